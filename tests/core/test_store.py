"""The result file: what is appended is there, what is torn is mended, and what is damaged is left out with its line."""

import json
from contextlib import closing
from dataclasses import replace

import pytest
from edited import edited
from hypothesis import given, settings
from hypothesis import strategies as st

from dlbench.core.conditions import RoundState, Throttling
from dlbench.core.errors import OutputError, ResultFileError, UsageError
from dlbench.core.measurement import Measurement, Memory, Samples, SpotCheck, Transfer, measurement_to_json
from dlbench.core.model import Case, Status
from dlbench.core.store import SCHEMA, LeftOut, load
from dlbench.core.writer import ResultWriter, as_line

CASE = Case("matmul[n=4,dtype=fp32]@cuda:0", "mine", "matmul", {"n": 4, "dtype": "fp32"}, "cuda:0")
COUNTS = {"items": 4, "flops": 1e9, "least_flops": 2.5e8, "bytes": 64, "least_bytes": 16, "threads": 2}
READ = {"memory": Memory(1, 2, 3), "transfer": Transfer(10, 0.1, 20, 0.2), "check": SpotCheck(True, 1e-7, 1e-5, 4e-8)}
AROUND = {
    "throttling": Throttling(0.5, 0.25, 0.125, ("hw_slowdown",), 3, 0.75, 0.0625, clock_hz=1.98e9, power_w=690.0),
    "started": "2026-01-31T12:00:00.000+00:00",
}
SAID = {"values": {"loss": 0.5}, "math": {"deterministic": False}, "missing_reasons": {"memory": [{"reason": "no_proc"}]}}
SAMPLES = Samples(7, [0.5, 0.25], 1.5, 0.75, steady=False)
WHOLE = Measurement(CASE, 3, Status.OK, device_name="A card", samples=SAMPLES, **COUNTS, **READ, **AROUND, **SAID)
ROWS = (WHOLE, Measurement(CASE, 0, Status.OOM, "it was too big"))
STATE = RoundState(3, 5.0, 0.25, None, {"cpu": {"governor": "powersave"}}, {})


def line(measurement, kind="measurement"):
    return measurement if isinstance(measurement, dict) else measurement_to_json(measurement, kind)


def write(path, *records):
    """Write a file of lines, or measurements, at once; return its path."""
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"".join(map(as_line, [{"kind": "header", "schema": SCHEMA, "seed": 1}, *map(line, records)])))
    return path


@pytest.fixture
def path(tmp_path):
    return tmp_path / "deep" / "f.jsonl"


def test_what_is_written_is_read(path):
    again = replace(WHOLE, started="2026-01-31T11:00:00.000+00:00")
    with closing(ResultWriter.create(path, {"seed": 1})) as writer:
        for record in (*map(line, ROWS), line(again, "discarded"), STATE.to_json(), {"kind": "footer", "rounds": 4}):
            writer.append(record)
    run = load(path)
    assert run.header == {"kind": "header", "schema": SCHEMA, "seed": 1}
    assert (run.measurements, run.states, run.discarded) == (ROWS, (STATE,), (again,))
    assert (run.footer, run.torn, run.left_out) == ({"kind": "footer", "rounds": 4}, False, ())


def test_what_counts_for_want_of_a_repetition_is_not_discarded(path):
    first, again, kept = (replace(WHOLE, round=number, started=f"2026-01-01T00:00:0{at}+00:00") for at, number in enumerate((0, 0, 1)))
    run = load(write(path, line(first, "discarded"), line(kept, "discarded"), again, kept))
    assert (run.measurements, run.discarded) == ((again, kept), (first,))


def test_a_run_that_went_on_is_not_finished_until_its_new_footer(path):
    assert load(write(path, {"kind": "footer"}, WHOLE)).footer is None


@given(cut=st.integers(1, 10_000))
@settings(max_examples=60)
def test_a_file_cut_anywhere_in_its_last_line_is_torn_there_and_nothing_else_is_lost(tmp_path_factory, cut):
    path = write(tmp_path_factory.mktemp("torn") / "f.jsonl", *ROWS)
    whole = path.read_bytes()
    last = whole[:-1].rindex(b"\n") + 1
    path.write_bytes(whole[: last + 1 + cut % (len(whole) - last - 1)])
    torn, run = path.read_bytes(), load(path)
    assert (run.torn, run.measurements) == (True, ROWS[:1])
    with closing(ResultWriter.resume(path)) as writer:
        assert path.read_bytes() == torn  # only the first new line cuts the torn one off
        writer.append(line(ROWS[1]))
    assert path.read_bytes() == whole


def test_a_header_that_lacks_its_newline_stays_when_the_run_goes_on(path):
    path.write_bytes(write(path).read_bytes().rstrip())
    with closing(ResultWriter.resume(path)) as writer:
        writer.append(line(WHOLE))
    assert (load(path).header["seed"], load(path).measurements) == (1, ROWS[:1])


def test_appending_never_reads_the_file_back_nor_writes_numbers_that_json_does_not_have(path, tmp_path):
    with closing(ResultWriter.create(path, {})) as writer:
        path.rename(tmp_path / "moved.jsonl")
        with pytest.raises(ValueError, match="Out of range float"):
            writer.append(line(replace(WHOLE, flops=float("nan"))))
        writer.append(line(WHOLE))
    assert load(tmp_path / "moved.jsonl").measurements == ROWS[:1]


@pytest.mark.parametrize("make", [lambda path: path.write_text("precious"), lambda path: path.symlink_to("nowhere")], ids=["file", "link"])
def test_what_is_there_is_never_overwritten(tmp_path, make):
    make(path := tmp_path / "f.jsonl")
    with pytest.raises(UsageError, match=r"f\.jsonl exists and is never overwritten"):
        ResultWriter.create(path, {})
    assert path.is_symlink() or path.read_text() == "precious"


@pytest.mark.parametrize(("name", "why"), [(f"{'a' * 300}.jsonl", "File name too long"), ("file/f.jsonl", "Not a directory")])
def test_a_name_that_no_file_can_have_is_refused(tmp_path, name, why):
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match=why):
        ResultWriter.create(tmp_path / name, {})


def test_an_edited_line_is_left_out_with_its_number_and_what_is_wrong(path, transcript):
    def left_out(changes):
        run = load(write(path, WHOLE, edited(line(WHOLE), *changes.split("; ")), ROWS[1]))
        assert run.measurements == ROWS
        ((number, why),) = run.left_out
        return f"line {number}: {why}"

    transcript("edited-lines", 24, left_out)


def test_a_header_on_which_nobody_can_rely_is_refused(tmp_path, transcript):
    def refused(header):
        path = tmp_path / "f.jsonl"
        path.write_text(json.dumps({"kind": "header", "schema": SCHEMA, **json.loads(header)}) + "\n")
        with pytest.raises(ResultFileError) as caught:
            load(path)
        return str(caught.value).removeprefix(f"{tmp_path}/")

    transcript("edited-headers", 9, refused)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
LINES = [
    line(WHOLE),
    line(replace(WHOLE, round=4)),
    line(replace(WHOLE, started="2026-01-31T12:00:09.000+00:00"), "discarded"),
    line(replace(WHOLE, round=5)),
    line(WHOLE, "try"),
    RoundState(3, 5.0, 0.25, None, {}, {}).to_json(),
    {"kind": "footer", "rounds": 4},
]


def read_of(run):
    """All that was read of a file, as lines."""
    kinds = {"measurement": run.measurements, "discarded": run.discarded, "try": run.tries}
    found = [line(each, kind) for kind, of_kind in kinds.items() for each in of_kind]
    return [*found, *(each.to_json() for each in run.states), *filter(None, [run.footer])]


def in_order(records):
    return sorted(json.dumps(each, sort_keys=True) for each in records)


@given(field=st.sampled_from(sorted(line(WHOLE))), value=json_values)
@settings(max_examples=80)
def test_whatever_stands_in_a_field_is_read_or_left_out_with_its_line(tmp_path_factory, field, value):
    path = write(tmp_path_factory.mktemp("fuzz") / "f.jsonl", line(WHOLE) | {field: value})
    if value == "header":
        return
    run = load(path)
    assert len(read_of(run)) + len(run.left_out) == 1
    assert [each.number for each in run.left_out] in ([], [2])


@given(at=st.integers(1, len(LINES)), how=st.sampled_from(["garbage", "cut", "joined"]), data=st.data())
@settings(max_examples=60)
def test_one_damaged_line_takes_no_other_with_it_and_is_named(tmp_path_factory, at, how, data):
    path = write(tmp_path_factory.mktemp("damaged") / "f.jsonl", *LINES)
    lines = path.read_bytes().splitlines(keepends=True)
    lost, damaged = LINES[at - 1 : at], lines[at]
    if how == "garbage":
        lines[at] = data.draw(st.binary(max_size=80)).replace(b"\n", b" ").replace(b"{", b" ") + b"\n"
    elif how == "cut":
        lines[at] = damaged[: data.draw(st.integers(0, len(damaged) - 3))] + b"\n"
    else:  # cut by a kill, and written on by somebody who did not cut it off
        lost, lines[at] = LINES[at - 1 : at + 1], damaged[: data.draw(st.integers(1, len(damaged) - 3))]
    path.write_bytes(b"".join(lines))
    run = load(path)
    assert in_order(read_of(run)) == in_order(each for each in LINES if each not in lost)
    is_torn = how == "joined" and at == len(LINES)
    assert ([each.number for each in run.left_out], run.torn) == ([] if is_torn else [at + 1], is_torn)


def test_a_line_that_stands_there_twice_counts_once(path):
    run = load(write(path, WHOLE, WHOLE))
    assert (run.measurements, run.left_out) == (ROWS[:1], (LeftOut(3, "round 3 of its case stands above already"),))


@pytest.mark.parametrize("other", [{"kind": "header", "schema": 99}, {"kind": "header", "schema": SCHEMA, "seed": 1}])
def test_a_file_of_two_runs_is_refused(path, other):
    write(path, WHOLE, other, replace(WHOLE, round=9))
    with pytest.raises(ResultFileError, match=r"f\.jsonl, line 3: a second header, as where two files were joined"):
        load(path)


def test_half_of_a_surrogate_pair_becomes_a_question_mark_and_unknown_fields_are_ignored(path):
    newer = edited(line(WHOLE), "watts = 3", r'device_name = "é\ud800"', "samples.sigma = 0.5")
    run = load(write(path, newer))
    assert (run.measurements, run.left_out) == ((replace(WHOLE, device_name="é?"),), ())
