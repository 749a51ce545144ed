"""Mistakes of a user and damaged files: one sentence with place and remedy, the right exit code, and what is whole is shown."""

import ast
import errno
import fcntl
import json
import os
import re
import shlex
from contextlib import closing
from unittest import mock

import front_door
import made_up
import pytest
import shared_hosts
from front_door import dlbench, measurements, refusal, under_titles

from dlbench.analysis.export import tabular
from dlbench.core.model import Status
from dlbench.core.store import load
from dlbench.core.writer import ResultWriter

HEADER = '{"kind":"header","schema":1,"policy":{},"devices":[],"environment":{}}\n'


def test_wrong_options(tmp_path, transcript):
    (tmp_path / "file").write_text("")
    transcript("wrong-options", 24, lambda words: refusal(shared_hosts.dlbench(*shlex.split(words), cwd=tmp_path)))
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_wrong_suites(tmp_path, transcript):
    def run(suite):
        (tmp_path / "s.toml").write_text(ast.literal_eval(suite))
        return refusal(shared_hosts.dlbench("run", "s.toml", cwd=tmp_path))

    transcript("wrong-suites", 15, run)


FILES = {
    "nothing": b"",
    "a word": b"hello\n",
    "no text": b"\x00\xff\x00",
    "other JSON": b'{"benchmarks": []}\n',
    "another schema": b'{"kind":"header","schema":99}\n',
    "half a header": b'{"kind":"header","schema":1,"dl',
    "deep": b"[" * 100_000 + b"\n",
    "a header without suites": HEADER.encode(),
}


def test_wrong_result_files(tmp_path, snapshot):
    texts = {}
    for what, content in FILES.items():
        (tmp_path / "f.jsonl").write_bytes(content)
        for command in ("show", "run --resume")[what == "a header without suites" :]:
            texts[f"{command} {what}"] = refusal(shared_hosts.dlbench(*command.split(), "f.jsonl", cwd=tmp_path))
        assert (tmp_path / "f.jsonl").read_bytes() == content
    snapshot("wrong-files", under_titles(texts))


@pytest.mark.parametrize(
    ("package", "command", "sentence"),
    [
        ("torch", ("run", "self"), "torch is not installed for "),
        ("click", ("list",), "the package 'click' is not installed here; pip install . adds what is missing\n"),
    ],
)
def test_a_missing_package_is_a_sentence(tmp_path, package, command, sentence):
    """Installed without its dependencies, or run from a bare checkout where one is missing."""
    for name in ("dlbench", "suites"):
        (tmp_path / name).symlink_to(front_door.ROOT / name)
    (tmp_path / f"{package}.py").write_text(f"raise ModuleNotFoundError(\"No module named '{package}'\", name='{package}')\n")
    done = dlbench(*command, cwd=tmp_path)
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert done.err.startswith(f"dlbench: {sentence}")


HOSTILE = "=</script><script>alert(1)</script><!--\"'`&|![x](http://e)\x1b[31m\u202e\n" + "y" * 10_000
"""Markup, quotes, a formula, an escape sequence, a mark of the direction of writing, a line break, and much of it."""
HARMLESS = "9xxxxxxxx"


@pytest.mark.parametrize("form", ["csv", "json", "md", "table"])
def test_hostile_names_change_nothing_but_their_own_text_in_any_format(tmp_path, form):
    """What is printed is that of harmless names, with those names in place of the others."""

    def shown(name):
        case = made_up.case("matmul", suite=name, n=3, text=name)
        measured = made_up.rounds_of(case, made_up.flat(made_up.SEVEN), device_name=name)
        made_up.write(tmp_path / name[:1] / "run.jsonl", measured)
        return shared_hosts.dlbench("show", "run.jsonl", "--format", form, cwd=tmp_path / name[:1])

    harmless, hostile = shown(HARMLESS), shown(HOSTILE)
    assert (hostile.code, hostile.err) == (0, "")
    assert "\x1b" not in hostile.out
    assert ("\u202e" in hostile.out) is (form == "json")  # data for programs is what the file says
    line = HOSTILE.replace("\x1b", "").replace("\u202e", "").rstrip().replace("\n", " ")
    inside = {
        "csv": lambda text: text.replace(line, HARMLESS).replace(line.replace('"', '""'), HARMLESS).replace(f"'{HARMLESS}", HARMLESS),
        "json": lambda text: json.dumps(json.loads(text)).replace(json.dumps(HOSTILE)[1:-1], HARMLESS),
        "md": lambda text: text.replace(tabular.markdown(HOSTILE), HARMLESS),
        "table": lambda text: text.replace(line, HARMLESS),
    }[form]
    expected = json.dumps(json.loads(harmless.out)) if form == "json" else harmless.out
    words, expected_words = (re.sub('["─]', "", text).split() for text in (inside(hostile.out), expected))
    assert words == expected_words


CASES = ["matmul[n=8,dtype=fp32]@cpu", "matmul[n=16,dtype=fp32]@cpu"]
SEVEN = made_up.flat(made_up.SEVEN)
ONE, TWO = made_up.case("train_step", batch=8), made_up.case("train_step", batch=64)
MALFORMED = "JSON is malformed: invalid character (byte 0)"
REMEDY = "dlbench run --resume o.jsonl measures what is missing, if anything is"


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A finished run of two cases in two rounds."""
    folder = tmp_path_factory.mktemp("finished")
    suite = front_door.suite(folder, 'workload = "matmul"\naxes.n = [8, 16]')
    assert shared_hosts.dlbench("run", suite, "--device", "cpu", "-o", "o.jsonl", cwd=folder).code == 0
    return (folder / "o.jsonl").read_bytes()


@pytest.fixture
def file(finished, tmp_path):
    """A copy of it, to be damaged."""
    path = tmp_path / "o.jsonl"
    path.write_bytes(finished)
    return path


def damage(path, number, content=b"#" * 40 + b"\n"):
    """Replace a line; return what it was."""
    lines = path.read_bytes().splitlines(keepends=True)
    was, lines[number - 1] = lines[number - 1], content
    path.write_bytes(b"".join(lines))
    return was


def first_measurement(path):
    """Return the number of its line."""
    return 1 + next(at for at, line in enumerate(front_door.lines(path)) if line["kind"] == "measurement")


def test_a_second_resume_is_refused_at_once_and_changes_nothing(file):
    before = file.read_bytes()
    with closing(ResultWriter.resume(file)):
        done = front_door.in_process(file.parent, "run", "--resume", "o.jsonl", "--rounds", "3")
        shown = front_door.in_process(file.parent, "show", "o.jsonl")
    assert (done.code, done.out) == (74, "")
    assert done.err.startswith("dlbench: o.jsonl is being written by another process, ")
    assert done.err.endswith("What is there so far: dlbench show o.jsonl\n")
    assert (shown.code, file.read_bytes()) == (0, before)


def test_a_run_holds_its_file_from_the_header_to_the_footer(tmp_path, monkeypatch):
    """Seen from inside: each line is appended while nobody else could open the file to write."""
    refused, write = [], ResultWriter._write

    def watched(self, line):
        write(self, line)
        with pytest.raises(Exception, match="is being written by"):
            ResultWriter.resume(self.path)
        refused.append(json.loads(line)["kind"])

    monkeypatch.setattr(ResultWriter, "_write", watched)
    suite = front_door.suite(tmp_path, 'workload = "noop"')
    assert shared_hosts.dlbench("run", suite, "--device", "cpu", "--rounds", "1", "-o", "o.jsonl", cwd=tmp_path).code == 0
    assert shared_hosts.dlbench("run", "--resume", "o.jsonl", "--rounds", "2", cwd=tmp_path).code == 0
    assert refused == [each["kind"] for each in front_door.lines(tmp_path / "o.jsonl")]


def test_where_there_are_no_locks_a_run_says_so_and_goes_on(file, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(fcntl, "flock", mock.Mock(side_effect=OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))))
        done = shared_hosts.dlbench("run", "--resume", "o.jsonl", "--rounds", "3", cwd=file.parent)
    assert done.code == 0, done.err
    sentence = "note: o.jsonl can't be locked where it is (Operation not supported); see to it that no other dlbench writes it meanwhile\n"
    assert done.err.count(sentence) == 1
    assert len(measurements(file)) == 6


def test_a_damaged_line_is_named_and_its_round_is_measured_again(file):
    number = first_measurement(file)
    was = json.loads(damage(file, number))
    before = file.read_bytes()
    shown = front_door.in_process(file.parent, "show", "o.jsonl", "--format", "json")
    assert (shown.code, f"note: o.jsonl: 1 line is left out: line {number} ({MALFORMED}); {REMEDY}\n" in shown.err) == (0, True)
    rounds = {case: 1 if case == was["case"]["id"] else 2 for case in CASES}
    assert {row["case.id"]: row["time.rounds"] for row in json.loads(shown.out)} == rounds
    done = shared_hosts.dlbench("run", "--resume", "o.jsonl", cwd=file.parent)
    assert done.code == 0, done.err
    assert file.read_bytes().startswith(before)  # a line is never written anew
    run = load(file)
    assert sorted((each.case.id, each.round) for each in run.measurements) == sorted((case, at) for case in CASES for at in (0, 1))
    assert (run.measurements[-1].case.id, run.measurements[-1].round) == (was["case"]["id"], was["round"])
    assert [each.number for each in run.left_out] == [number]
    whole = file.read_bytes()
    again = shared_hosts.dlbench("run", "--resume", "o.jsonl", cwd=file.parent)
    assert (again.code, "o.jsonl is complete" in again.err, file.read_bytes() == whole) == (0, True, True), again.err


def test_every_reading_says_what_was_left_out(file):
    sentence = f"o.jsonl: 1 line is left out: line {first_measurement(file)} ({MALFORMED}); "
    damage(file, first_measurement(file))
    (file.parent / "new.jsonl").write_bytes(file.read_bytes())
    for command in (
        "show o.jsonl --topic all",
        "compare o.jsonl new.jsonl",
        "compare o.jsonl --by n",
        "export o.jsonl --to csv -o o.csv",
        "export o.jsonl --to pyperf -o o.json",
    ):
        assert f"note: {sentence}" in front_door.in_process(file.parent, *command.split()).err, command
    assert front_door.in_process(file.parent, "report", "o.jsonl", "-o", "o.html").code == 0
    assert sentence in (file.parent / "o.html").read_text()


def test_many_damaged_lines_are_counted(file):
    with file.open("ab") as end:
        end.write(b'{"kind":3}\n[]\n\n{"kind":"measurement"}\n{}\n')
    first = len(file.read_bytes().splitlines()) - 4
    reasons = "Expected `str`, got `int` - at `$.kind`", "Expected `object`, got `array`", "Input data was truncated"
    named = ", ".join(f"line {first + number} ({reason})" for number, reason in enumerate(reasons))
    done = front_door.in_process(file.parent, "show", "o.jsonl")
    assert done.err.startswith(f"note: o.jsonl: 5 lines are left out: {named} and 2 more; {REMEDY}\n")


def test_what_lost_a_round_is_no_reference_until_it_is_measured_again(tmp_path):
    cases = [made_up.case("matmul", n=n, dtype="fp32") for n in (1, 2)]
    path = made_up.write(tmp_path / "o.jsonl", [each for case in cases for each in made_up.rounds_of(case, SEVEN)])
    was = damage(path, 3)
    done = front_door.in_process(tmp_path, "contribute", "o.jsonl")
    sentence = f"{cases[0].id} may have lost a round with a damaged line; measure it again: dlbench run --resume o.jsonl"
    assert (done.code, sentence in done.err) == (2, True)
    path.write_bytes(path.read_bytes() + was)
    assert "may have lost" not in front_door.in_process(tmp_path, "contribute", "o.jsonl").err


TWO_CASES, ONE_CASE = [*made_up.rounds_of(ONE, SEVEN), *made_up.rounds_of(TWO, SEVEN)], made_up.rounds_of(ONE, SEVEN)
NARROW = made_up.flat([1 + number / 10_000 for number in range(10)])
DEVICES = [each for device in ("cpu", "cuda:0") for each in made_up.rounds_of(made_up.case("train_step", device, batch=8), NARROW)]
SIDES = [each for side in ("a", "b") for each in made_up.rounds_of(ONE, NARROW, side=side)]
SEARCH = made_up.without_rounds(made_up.rounds_of(TWO, SEVEN, found={"batch": 64})[0])
NO_ROUNDS = [*ONE_CASE, SEARCH, made_up.ended(made_up.case("train_step", batch=128), Status.OOM, "too large")]
LOST = {
    "a round of the base": ({"base": TWO_CASES, "new": TWO_CASES}, "base", [5], ()),
    "a round of the new file": ({"base": TWO_CASES, "new": TWO_CASES}, "new", [5], ()),
    "the last round in the base": ({"base": TWO_CASES, "new": TWO_CASES}, "base", [8], ()),
    "the last round in the new file": ({"base": TWO_CASES, "new": TWO_CASES}, "new", [8], ()),
    "all rounds in the base": ({"base": TWO_CASES, "new": TWO_CASES}, "base", range(2, 9), ()),
    "all rounds in the new file": ({"base": TWO_CASES, "new": TWO_CASES}, "new", range(2, 9), ()),
    "the first round of all cases": ({"base": ONE_CASE, "new": ONE_CASE}, "new", [2], ()),
    "the same in a file with the name of a side": ({"base": ONE_CASE, "new-confirm": ONE_CASE}, "new-confirm", [2], ()),
    "a round of one file's rows": ({"o": DEVICES}, "o", [15], ("--by", "device")),
    "a round of a side": ({"ab": SIDES}, "ab", [15], ("--by", "run")),
    "the footer, where other cases have no second round": ({"base": NO_ROUNDS, "new": NO_ROUNDS}, "new", [11], ()),
}


def test_a_comparison_says_which_case_may_have_lost_rounds_and_is_undecided_if_strict(tmp_path, snapshot):
    texts = {}
    for what, (files, damaged, numbers, options) in LOST.items():
        paths = [
            made_up.write(tmp_path / what / f"{name}.jsonl", measured, sides=made_up.TWO_SIDES if name == "ab" else None)
            for name, measured in files.items()
        ]
        for number in numbers:
            damage(tmp_path / what / f"{damaged}.jsonl", number)
        command = ("compare", *(path.name for path in paths), *options)
        loose, strict = (front_door.in_process(tmp_path / what, *command, *more) for more in ((), ("--strict",)))
        texts[f"{what}, exit {loose.code}, strict {strict.code}"] = loose.out + loose.err
    snapshot("compare-damaged", front_door.under_titles(texts))
