"""The slowdown that a gate must call or exclude: where it comes from, what it decides, and what is said where it does neither."""

import json
import math
import statistics
from dataclasses import replace
from xml.etree import ElementTree

import front_door
import made_up
import pytest
import shared_hosts

from dlbench.core.model import Policy

TEN = (1.00, 1.01, 0.99, 1.02, 0.98, 1.005, 0.995, 1.015, 0.985, 1.001)
WIDE = (0.7, 1.3, 0.8, 1.2, 0.9, 1.1, 1.0, 0.75, 1.25, 1.05)
"""Ten rounds that leave a quarter more time possible where the other side reads a little slower."""
LITTLE = 1.15
QUIET, NOISY = made_up.case("matmul", n=1), made_up.case("matmul", n=2)


def rounds(case, seconds, factor=1.0, **fields):
    return made_up.rounds_of(case, made_up.flat([factor * each for each in seconds]), **fields)


@pytest.fixture
def folder(tmp_path):
    """Two files: one case is quiet, and the other too noisy to exclude a quarter more where it reads 15 % slower."""
    for name, factor in (("base", 1), ("new", LITTLE)):
        suites = [{"name": "quick"}, {"name": "strict", "thresholds": {"detect": "25%"}}]
        made_up.write(tmp_path / f"{name}.jsonl", [*rounds(QUIET, TEN), *rounds(NOISY, WIDE, factor)], suites=suites)
    return tmp_path


def compare(folder, *arguments, files=("base.jsonl", "new.jsonl")):
    return front_door.in_process(folder, "compare", *files, *arguments)


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        ((), 0, True),
        (("--strict",), 4, True),
        (("--detect", "25"), 4, True),
        (("--detect", "25%"), 4, True),
        (("--detect", "0.25"), 4, True),
        (("--detect", "60%"), 0, False),
        (("--detect", "60%", "--strict"), 4, False),  # strict: an inconclusive case is 4, too
        (("--threshold", "40%"), 0, False),
    ],
    ids=["plain", "strict", "number", "percent", "fraction", "larger", "larger-strict", "threshold"],
)
def test_what_is_not_excluded_is_told_and_decides_where_it_is_asked_for(folder, arguments, code, told):
    done = compare(folder, *arguments)
    assert (done.code, "is not excluded in" in done.err) == (code, told), done.err


@pytest.mark.parametrize(("sides", "apart"), [(("base",), False), (("new",), False), (("base", "new"), True)])
def test_it_decides_where_a_gate_measured_a_side_of_one_machine(tmp_path, sides, apart):
    for name, factor in (("base", 1), ("new", LITTLE)):
        gate, environment = {} if name in sides else None, {"machine_key": name} if apart else {}
        made_up.write(tmp_path / f"{name}.jsonl", [*rounds(QUIET, TEN), *rounds(NOISY, WIDE, factor)], gate=gate, environment=environment)
    done = compare(tmp_path, *(["--across-machines"] if apart else []))
    assert (done.code, "is not excluded in" in done.err) == ((0, False) if apart else (4, True)), done.err
    assert apart or compare(tmp_path, "--detect", "60%").code == 0


def test_the_sentence_names_the_case_what_is_still_possible_why_and_what_to_do(folder):
    done = compare(folder, "--format", "json")
    (note,) = [line for line in done.err.splitlines() if "is not excluded in" in line]
    noisy = next(row for row in json.loads(done.out) if row["compare.case"] == NOISY.id)
    spread = 100 * statistics.stdev(WIDE) / statistics.mean(WIDE)
    left = noisy["compare.possible"]
    assert noisy["compare.detect"] == 0.25
    # The 28th largest of the hundred quotients: the upper end of the interval of 90 % at ten rounds a side.
    assert left == pytest.approx(sorted(LITTLE * b / a for a in WIDE for b in WIDE)[-28] - 1)
    why = f"up to +{100 * left:.1f} % is possible; its rounds differ by {spread:.1f} %"
    needed = 31  # in which 95 % of A/As of two cases exclude it; to call it takes one less
    assert math.ceil(10 * (math.log1p(noisy["compare.detectable"]) / math.log1p(0.25)) ** 2) == 30
    assert noisy["compare.unseen"] == why
    assert noisy["compare.note"] == f"up to +{100 * left:.1f} % is possible"
    assert note == (
        f"note: a slowdown of 25.0 % or more is not excluded in 1 of 2 cases; "
        f"{needed} rounds a side would probably call or exclude it: --rounds {needed}; with --detect 25% that would end with 4"
    )
    quiet = next(row for row in json.loads(done.out) if row["compare.case"] == QUIET.id)
    assert (quiet["compare.unseen"], quiet["compare.verdict"]) == (None, "same")
    assert (quiet["compare.detectable"], quiet["compare.detect"]) == (pytest.approx(0.106, abs=1e-3), 0.25)
    assert 0 < quiet["compare.possible"] < 0.03


@pytest.mark.parametrize(
    ("budget_s", "planned", "option"),
    [(None, 10, "--rounds 31"), (60.0, 1000, "--budget 200s"), (60.0, 15, "--rounds 31 --budget 200s")],
    ids=["no budget", "budget", "budget and too few rounds"],
)
def test_where_a_budget_was_the_limit_the_sentence_names_the_one_that_would_do(tmp_path, budget_s, planned, option):
    """Ten rounds took 62 s, so 31 take 192."""
    for name, factor in (("base", 1), ("new", LITTLE)):
        limits = {"policy": Policy(rounds=planned, budget_s=budget_s), "footer": {"rounds": 10, "seconds": 62.0}}
        made_up.write(tmp_path / f"{name}.jsonl", [*rounds(QUIET, TEN), *rounds(NOISY, WIDE, factor)], **limits)
    assert f"; 31 rounds a side would probably call or exclude it: {option}; with --detect" in compare(tmp_path).err


@pytest.mark.parametrize(("budget_s", "option"), [(None, "--rounds 10"), (60.0, "--rounds 10 --budget 200s")])
def test_so_does_the_one_on_too_few_rounds_for_any_change(tmp_path, budget_s, option):
    for name in ("base", "new"):
        limits = {"policy": Policy(rounds=7, budget_s=budget_s), "footer": {"rounds": 3, "seconds": 45.0}}
        made_up.write(tmp_path / f"{name}.jsonl", rounds(QUIET, TEN[:3]), **limits)
    told = compare(tmp_path).err
    assert f"; 10 rounds a side would do: {option}\n" in told
    ended = "note: the budget of 60 s ended the run after 3 of 7 rounds; about --budget 140s would do\n"
    assert told.count(ended) == (budget_s is not None)


def test_the_suite_may_ask_for_it_for_all_and_for_a_workload(folder):
    for number, thresholds in enumerate(({"detect": "25%"}, {"matmul": {"detect": 0.25}}, {"conv2d": {"detect": 0.25}})):
        for name, factor in (("base", 1), ("new", LITTLE)):
            path = folder / f"{name}{number}.jsonl"
            made_up.write(path, [*rounds(QUIET, TEN), *rounds(NOISY, WIDE, factor)], suites=[{"name": "quick", "thresholds": thresholds}])
        done = compare(folder, files=(f"base{number}.jsonl", f"new{number}.jsonl"))
        assert done.code == (4 if number < 2 else 0)
        assert compare(folder, "--detect", "60%", files=(f"base{number}.jsonl", f"new{number}.jsonl")).code == 0


def test_where_no_case_could_have_shown_it_nothing_was_decided(folder):
    for name, factor in (("base", 1), ("new", LITTLE)):
        made_up.write(folder / f"{name}-noisy.jsonl", rounds(NOISY, WIDE, factor))
    done = compare(folder, files=("base-noisy.jsonl", "new-noisy.jsonl"))
    assert (done.code, done.out.splitlines()[-1]) == (4, "1 inconclusive; exit 4")
    assert "is not excluded in 1 of 1 case" in done.err


def test_what_is_held_back_counts_as_unseen(folder):
    made_up.write(folder / "unsteady.jsonl", [*rounds(QUIET, TEN, steady=False), *rounds(NOISY, WIDE)])
    done = compare(folder, "--detect", "90%", files=("base.jsonl", "unsteady.jsonl"))
    assert done.code == 4
    assert "matmul n=1: unsteady in the new file; its times alone would say same\n" in done.out
    assert "a slowdown of 90.0 % or more is not excluded in 1 of 2 cases; " in done.err


def test_a_regression_and_a_failure_go_first(folder):
    made_up.write(folder / "slower.jsonl", [*rounds(QUIET, TEN, 2), *rounds(NOISY, WIDE)])
    assert compare(folder, "--detect", "25%", files=("base.jsonl", "slower.jsonl")).code == 3
    made_up.write(folder / "less.jsonl", rounds(NOISY, WIDE))
    assert compare(folder, "--detect", "25%", files=("base.jsonl", "less.jsonl")).code == 5


def test_within_a_file_and_across_machines_only_where_it_is_given(tmp_path):
    wide = made_up.case("matmul", n=2, dtype="bf16")
    both = [*rounds(made_up.case("matmul", n=2, dtype="fp32"), WIDE), *rounds(wide, WIDE, LITTLE)]
    suites = [{"name": "quick", "thresholds": {"detect": "25%"}}]
    made_up.write(tmp_path / "base.jsonl", both, suites=suites, environment={"machine_key": "one"})
    slower = [made_up.scaled(each, LITTLE) for each in both]
    made_up.write(tmp_path / "new.jsonl", slower, suites=suites, environment={"machine_key": "other"})
    for arguments, files in ((("--by", "dtype"), ("base.jsonl",)), (("--across-machines",), ("base.jsonl", "new.jsonl"))):
        plain = compare(tmp_path, *arguments, files=files)
        assert (plain.code, "is not excluded in" in plain.err) == (0, False)
        given = compare(tmp_path, *arguments, "--detect", "25%", files=files)
        assert (given.code, "is not excluded in" in given.err) == (4, True)


def test_machines_read_it_too(folder):
    done = compare(folder, "--detect", "25%", "--verdict", "verdict.json", "--junit", "junit.xml")
    document = json.loads((folder / "verdict.json").read_text())
    assert (document["verdict"], document["exit_code"]) == ("undecidable", 4)
    (comparison,) = document["comparisons"]
    assert comparison["powerless"] is None
    assert (comparison["unseen"]["cases"], comparison["unseen"]["decisive"]) == ([NOISY.id], True)
    assert {*comparison["unseen"]} == {"cases", "sentence", "decisive"}
    assert comparison["unseen"]["sentence"] in document["notes"]
    assert f"note: {comparison['unseen']['sentence']}\n" in done.err
    tests = ElementTree.parse(folder / "junit.xml")  # noqa: S314  # written just now
    error = tests.find(".//error")
    assert error is not None
    assert error.attrib["message"] == comparison["unseen"]["sentence"]


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ("0", "--detect 0: '0' is no change that could be seen; write for example 25% or 0.25"),
        ("-5%", "--detect -5%: '-5%' is no change that could be seen; write for example 25% or 0.25"),
        ("lots", "--detect lots: 'lots' is no change that could be seen; write for example 25% or 0.25"),
        ("", "--detect : '' is no change that could be seen; write for example 25% or 0.25"),
        ("5%", f"--detect 5%: of {QUIET.id} a change of 5.0 % can't be relied on to be called at a threshold of 10.0 %; give more"),
        ("10%", f"--detect 10%: of {QUIET.id} a change of 10.0 % can't be relied on to be called at a threshold of 10.0 %; give more"),
    ],
    ids=["zero", "negative", "text", "empty", "below", "at the threshold"],
)
def test_what_makes_no_sense_is_2_with_a_sentence(folder, value, sentence):
    done = compare(folder, f"--detect={value}")
    assert (done.code, done.out, done.err) == (2, "", f"dlbench: {sentence}\n")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ("ab", "matmul", "--b", "same", "--set", "n=64", "--detect", "2%"),
            "--detect 2%: of matmul a change of 2.0 % can't be relied on to be called at a threshold of 3.0 %; give more",
        ),
        (
            ("run", "mine.toml", "--gate"),
            "mine.toml, thresholds: of noop a change of 6.0 % can't be relied on to be called at a threshold of 10.0 %; give more",
        ),
        (("run", "self", "--detect", "25%"), "--detect says which slowdown a baseline has to exclude; give it with --gate"),
        (
            ("run", "self", "--gate", "--detect", "much"),
            "--detect much: 'much' is no change that could be seen; write for example 25% or 0.25",
        ),
    ],
    ids=["ab", "gate", "without-gate", "text"],
)
def test_before_anything_is_measured(tmp_path, arguments, sentence):
    front_door.suite(tmp_path, 'workload = "noop"', head='[thresholds]\ndetect = "6%"\n')
    done = shared_hosts.dlbench(*arguments, cwd=tmp_path)
    assert (done.code, done.err.strip()) == (2, f"dlbench: {sentence}")
    assert not (tmp_path / "results").exists()


def test_a_suite_is_told_at_once_where_it_contradicts_itself(tmp_path):
    front_door.suite(tmp_path, 'workload = "noop"', head='[thresholds]\ntime = "20%"\ndetect = "15%"\n')
    done = shared_hosts.dlbench("list", "mine.toml", cwd=tmp_path)
    sentence = "a change of 15.0 % can't be relied on to be called at a threshold of 20.0 %; give more"
    assert (done.code, done.err.strip()) == (2, f"dlbench: mine.toml, thresholds: {sentence}")


def test_a_suite_that_wants_no_more_seen_than_its_threshold_is_taken_at_twice_the_threshold(folder):
    for name in ("base", "new"):
        made_up.write(folder / f"{name}6.jsonl", rounds(QUIET, TEN), suites=[{"name": "quick", "thresholds": {"detect": "6%"}}])
    done = compare(folder, "--format", "json", files=("base6.jsonl", "new6.jsonl"))
    assert (done.code, json.loads(done.out)[0]["compare.detect"]) == (0, pytest.approx(0.2))
    assert compare(folder, "--threshold", "3%", files=("base6.jsonl", "new6.jsonl")).code == 0


def test_what_was_measured_in_another_way_counts_where_the_suite_asks(folder):
    suites = [{"name": "quick", "thresholds": {"detect": "30%"}}]
    for name, isolation in (("fork", "fork"), ("none", "none")):
        made_up.write(folder / f"{name}.jsonl", rounds(QUIET, TEN), suites=suites, isolation=isolation)
    done = compare(folder, files=("fork.jsonl", "none.jsonl"))
    assert done.code == 4
    assert "no case has times that can be compared, so nothing could have been called slower" in done.err


def test_a_few_spoiled_rounds_beside_a_side_that_is_spoiled_throughout(folder):
    made_up.write(
        folder / "one.jsonl", [replace(each, samples=replace(each.samples, steady=each.round != 3)) for each in rounds(QUIET, TEN)]
    )
    made_up.write(folder / "all.jsonl", rounds(QUIET, TEN, steady=False))
    done = compare(folder, files=("one.jsonl", "all.jsonl"))
    assert (done.code, done.out.splitlines()[-1]) == (4, "1 inconclusive; exit 4")
    assert done.out.splitlines()[-2] == "matmul n=1: unsteady on both sides; its times alone would say same"


def test_what_was_confirmed_too_noisily_is_unseen(folder):
    sides = []
    for side, factor, seconds in (("a", 1, TEN), ("b", 1.5, TEN), ("a-confirm", 1, WIDE), ("b-confirm", 1.2, WIDE[::-1])):
        sides += [replace(each, side=side) for each in rounds(QUIET, seconds, factor)]
    made_up.write(folder / "ab.jsonl", sides, sides=made_up.TWO_SIDES)
    done = compare(folder, "--by", "run", files=("ab.jsonl",))
    assert (done.code, done.out.splitlines()[-1]) == (4, "1 inconclusive; exit 4")
    assert "note: a slowdown of 25.0 % or more is not excluded in 1 of 1 case; " in done.err


def test_a_steady_p10_does_not_speak_for_a_median_that_may_have_grown(tmp_path):
    """Of ten blocks a round four take their time exactly; the others make the median wide, and in new a little slower."""
    for name, factor in (("base", 1), ("new", LITTLE)):
        both = [[base] * 4 + [3 * factor * wide] * 6 for base, wide in zip(TEN, WIDE, strict=True)]
        made_up.write(tmp_path / f"{name}.jsonl", [*rounds(QUIET, TEN), *made_up.rounds_of(NOISY, both)])
    done = compare(tmp_path, "--detect", "25%", "--format", "json")
    noisy = next(row for row in json.loads(done.out) if row["compare.case"] == NOISY.id)
    assert (done.code, noisy["p10.verdict"], noisy["median.verdict"]) == (4, "same", "inconclusive")
    assert noisy["compare.detectable"] == pytest.approx(0.106, abs=1e-3)  # by its p10
    assert noisy["compare.possible"] == pytest.approx(sorted(LITTLE * b / a for a in WIDE for b in WIDE)[-28] - 1)
