"""What fits into memory: the line through peaks, and what searches found, in the answer on batches."""

import json

import made_up
import pytest

from dlbench.core.measurement import Measurement, Memory
from dlbench.core.model import Status, declaration_to_json
from dlbench.harness.worker import registry

MIB = 1 << 20


def line(answer):
    return answer["headline"], answer["qualifier"], answer["tags"]


def fit_case(device="cpu", **params):
    return made_up.case("largest_batch", device, model="resnet18", **params)


def tried(batch, status=Status.OK, device="cpu", fixed=200, sample=30, gib=1.0):
    case = fit_case(device, batch=batch, memory_gib=gib)
    if status is not Status.OK:
        return made_up.ended(case, status, "full")
    memory = Memory(host_peak_bytes=(fixed + sample * batch) * MIB)
    (found,) = made_up.rounds_of(case, [[0.1 * batch]], items=batch, memory=memory)
    return found


def ended(found=25, status=Status.OK, reason=None, device="cpu", gib=1.0):
    fields = {"found": {"batch": found}, "values": {"largest_batch": float(found)}} if status is Status.OK else {}
    return Measurement(fit_case(device, memory_gib=gib), 0, status, reason, device_name=made_up.NAMES[device], threads=2, **fields)


@pytest.fixture
def answered(tmp_path, asked, monkeypatch):
    """The answer on batches of measurements and tries."""
    registry.load_builtins()
    declared = declaration_to_json(registry.get("largest_batch").signature.declared)

    def answer(measurements, tries):
        write = made_up.write

        def with_tries(path, *arguments, **header):
            write(path, *arguments, **header)
            head, *others = path.read_text().splitlines(keepends=True)
            lines = [json.dumps(made_up.measurement_to_json(each) | {"kind": "try"}) + "\n" for each in tries]
            path.write_text("".join([head, *lines, *others]))
            return path

        monkeypatch.setattr(made_up, "write", with_tries)
        return asked(measurements, workloads={"largest_batch": declared})["batch"]

    return answer


def test_the_largest_batch_stands_with_the_next_that_did_not_fit_and_what_a_sample_takes(answered):
    tries = [*map(tried, (1, 2, 8, 25)), tried(26, Status.OOM), tried(32, Status.OOM)]
    answer = answered([ended()], tries)
    assert line(answer) == ("batch 25 fits into 1.00 GiB", "largest_batch resnet18", [])
    assert answer["sentences"] == [
        "largest_batch resnet18: limit 1.00 GiB, largest batch 25, too large 26, a sample 30.0 MiB, fixed part 200 MiB."
    ]
    (table,) = answer["tables"]
    (row,) = table["rows"]
    assert (row["batch.largest"], row["batch.beyond"]) == (25, 26)
    assert answer["figures"] == []


def test_a_search_that_met_its_limit_says_so_and_how_far_it_came(answered):
    reason = "unfinished: batch=8 fits so far; batch=25: not done within 60 s; raise --timeout"
    answer = answered([ended(status=Status.TIMEOUT, reason=reason)], [*map(tried, (1, 2, 8)), tried(25, Status.TIMEOUT)])
    assert line(answer) == ("batch 8 fits so far into 1.00 GiB", "largest_batch resnet18", ["unfinished"])
    assert answer["tables"][0]["rows"][0]["batch.beyond"] is None
    assert answer["weaknesses"] == [
        f"the search for the largest batch of largest_batch resnet18: {reason}",
    ]


def test_of_several_searches_the_one_that_found_most_is_told(answered):
    half = [tried(batch, gib=0.5) for batch in (1, 2, 4)]
    answer = answered([ended(), ended(found=4, gib=0.5)], [*map(tried, (1, 2, 8, 25)), *half])
    assert line(answer) == ("batch 25 fits into 1.00 GiB", "largest_batch resnet18", [])
    rows = answer["tables"][0]["rows"]
    assert [row["batch.largest"] for row in rows] == [25, 4]


def test_what_fitted_above_a_batch_that_did_not_does_not_count_and_without_tries_the_outcome_does(answered):
    tries = [*map(tried, (1, 2, 8, 22, 32)), tried(24, Status.OOM)]
    found = [answered([ended(found=22)], each)["tables"][0]["rows"][0] for each in ([], tries)]
    assert [(row["batch.largest"], row["batch.beyond"]) for row in found] == [(22, None), (22, 24)]


def test_a_batch_that_fits_in_its_second_try_is_not_the_next_that_does_not(answered):
    tries = [*map(tried, (1, 2, 8, 22)), tried(22, Status.OOM), tried(24, Status.OOM)]
    assert answered([ended(found=22)], tries)["tables"][0]["rows"][0]["batch.beyond"] == 24


def test_where_nothing_fits_it_says_so_and_the_reason_stands_beside(answered):
    answer = answered([ended(status=Status.OOM, reason="not even batch=1 fits: full")], [tried(1, Status.OOM)])
    assert line(answer) == ("no batch fits into 1.00 GiB", "largest_batch resnet18", [])
    assert answer["tables"][0]["rows"][0]["batch.largest"] is None
    assert "not even batch=1 fits" in "".join(answer["weaknesses"])


def test_a_sweep_tells_what_a_sample_takes_and_a_wild_peak_does_not_carry_it_away(asked):
    found = []
    for batch, mib in ((1, 230), (2, 260), (4, 320), (8, 440), (16, 2000)):
        case = made_up.case("train_step", model="resnet18", batch=batch, dtype="fp32")
        memory = Memory(host_peak_bytes=mib * MIB)
        found += made_up.rounds_of(case, made_up.flat([0.1 * batch * each for each in made_up.SEVEN]), items=batch, memory=memory)
    answer = asked(found)["batch"]
    assert answer["sentences"][-1] == "train_step resnet18 fp32: a sample 30.0 MiB, fixed part 200 MiB."


def test_peaks_that_lie_on_no_line_tell_of_no_sample(answered):
    wild = [tried(batch, fixed=0, sample=mib) for batch, mib in ((1, 100), (2, 400), (4, 100), (8, 400), (16, 100), (32, 400))]
    answer = answered([ended(found=32)], wild)
    assert answer["sentences"] == ["largest_batch resnet18: limit 1.00 GiB, largest batch 32."]
    (row,) = answer["tables"][0]["rows"]
    assert (row["batch.sample_bytes"], row["batch.fixed_bytes"]) == (None, None)


@pytest.mark.parametrize("peaks", [(0, 0, 0), (5, 5, 5), (9, 5, 1), (1, 1 << 60, 1)])
def test_peaks_that_tell_nothing_are_no_trouble(asked, peaks):
    found = []
    for batch, peak in zip((1, 2, 4), peaks, strict=True):
        case = made_up.case("train_step", model="a", batch=batch)
        found += made_up.rounds_of(case, [[1.0]] * 4, items=batch, memory=Memory(host_peak_bytes=peak))
    assert asked(found)["batch"]["kind"] == "answer"
