"""The slowdown that a gate must call or exclude: where it comes from, what it decides, and when a gate goes on with its cases."""

import json
import math
import shlex
import statistics
from dataclasses import replace
from xml.etree import ElementTree

import front_door
import made_up
import pytest
import shared_hosts
from front_door import compared, verdicts

from dlbench.analysis.compare.judge import RankTest, Verdict
from dlbench.analysis.compare.verdict import CaseVerdict, Comparison, Undetectable
from dlbench.cli.commands import ab
from dlbench.cli.recording import announce_gate, measure_until_seen
from dlbench.cli.session import Session
from dlbench.core.model import Policy, Signature
from dlbench.core.stats import Interval
from dlbench.core.units import seconds
from dlbench.harness.schedule import RunSettings, Side, Task

TEN = (1.00, 1.01, 0.99, 1.02, 0.98, 1.005, 0.995, 1.015, 0.985, 1.001)
WIDE = (0.7, 1.3, 0.8, 1.2, 0.9, 1.1, 1.0, 0.75, 1.25, 1.05)
"""Ten rounds that leave a quarter more time possible where the other side reads a little slower."""
LITTLE = 1.15
QUIET, NOISY = made_up.case("matmul", n=1), made_up.case("matmul", n=2)


def rounds(case, seconds, factor=1.0, **fields):
    return made_up.rounds_of(case, made_up.flat([factor * each for each in seconds]), **fields)


def both(factor=1.0):
    """One case is quiet, and the other too noisy to exclude a quarter more where it reads 15 % slower."""
    return [*rounds(QUIET, TEN), *rounds(NOISY, WIDE, factor)]


def asking(**thresholds):
    return {"suites": [{"name": "quick", "thresholds": thresholds}]}


@pytest.mark.parametrize(
    ("options", "arguments", "code", "told"),
    [
        ({}, "", 0, True),
        ({}, "--strict", 4, True),
        ({}, "--detect 25", 4, True),
        ({}, "--detect 25%", 4, True),
        ({}, "--detect 0.25", 4, True),
        ({}, "--detect 60%", 0, False),
        ({}, "--detect 60% --strict", 4, False),  # strict: an inconclusive case is 4, too
        ({}, "--threshold 40%", 0, False),
        (asking(detect="25%"), "", 4, True),
        (asking(detect="25%"), "--detect 60%", 0, False),
        (asking(matmul={"detect": 0.25}), "", 4, True),
        (asking(conv2d={"detect": 0.25}), "", 0, True),
        ({"suites": [{"name": "quick"}, {"name": "strict", "thresholds": {"detect": "25%"}}]}, "", 0, True),
    ],
)
def test_what_is_not_excluded_is_told_and_decides_where_it_is_asked_for(tmp_path, options, arguments, code, told):
    done = compared(tmp_path, both(), both(LITTLE), *arguments.split(), **options)
    assert (done.code, "is not excluded in" in done.err) == (code, told), done.err


def test_it_decides_where_a_gate_measured_a_side_of_one_machine_and_across_them_or_within_a_file_where_it_is_given(tmp_path):
    gate, one, other = {"gate": {}}, {"environment": {"machine_key": "one"}}, {"environment": {"machine_key": "other"}}
    for base, new in ((gate, {}), ({}, gate)):
        assert compared(tmp_path, both(), both(LITTLE), new_options=new, **base).code == 4
        assert compared(tmp_path, both(), both(LITTLE), "--detect", "60%", new_options=new, **base).code == 0
    two = [made_up.case("matmul", n=2, dtype=dtype) for dtype in ("fp32", "bf16")]
    noisy = [*rounds(two[0], WIDE), *rounds(two[1], WIDE, LITTLE)]
    slower = [made_up.scaled(each, LITTLE) for each in noisy]
    for given, expected in (((), (0, False)), (("--detect", "25%"), (4, True))):
        apart = compared(tmp_path, noisy, slower, "--across-machines", *given, new_options={**gate, **other}, **gate, **one)
        within = front_door.in_process(tmp_path, "compare", "base.jsonl", "--by", "dtype", *given)
        assert [(each.code, "is not excluded in" in each.err) for each in (apart, within)] == [expected] * 2


def test_the_sentence_names_the_case_what_is_still_possible_why_and_what_to_do(tmp_path):
    done = compared(tmp_path, both(), both(LITTLE), "--format", "json")
    (note,) = [line for line in done.err.splitlines() if "is not excluded in" in line]
    noisy, quiet = (verdicts(done)[case.id] for case in (NOISY, QUIET))
    spread = 100 * statistics.stdev(WIDE) / statistics.mean(WIDE)
    left = noisy["compare.possible"]
    # The 28th largest of the hundred quotients: the upper end of the interval of 90 % at ten rounds a side.
    assert left == pytest.approx(sorted(LITTLE * b / a for a in WIDE for b in WIDE)[-28] - 1)
    assert noisy["compare.unseen"] == f"up to +{100 * left:.1f} % is possible; its rounds differ by {spread:.1f} %"
    assert (noisy["compare.note"], noisy["compare.detect"]) == (f"up to +{100 * left:.1f} % is possible", 0.25)
    # In 31 rounds 95 % of A/As of two cases exclude it; to call it takes one less.
    assert math.ceil(10 * (math.log1p(noisy["compare.detectable"]) / math.log1p(0.25)) ** 2) == 30
    assert note == (
        "note: a slowdown of 25.0 % or more is not excluded in 1 of 2 cases; "
        "31 rounds a side would probably call or exclude it: --rounds 31; with --detect 25% that would end with 4"
    )
    assert (quiet["compare.unseen"], quiet["compare.verdict"]) == (None, "same")
    assert (quiet["compare.detectable"], quiet["compare.detect"]) == (pytest.approx(0.106, abs=1e-3), 0.25)
    assert 0 < quiet["compare.possible"] < 0.03


MORE = "31 rounds a side would probably call or exclude it:"


@pytest.mark.parametrize(
    ("measured", "footer", "budget_s", "planned", "sentence"),
    [
        ((both(), both(LITTLE)), (10, 62.0), None, 10, f"{MORE} --rounds 31; with"),
        ((both(), both(LITTLE)), (10, 62.0), 60.0, 1000, f"{MORE} --budget 200s; with"),
        ((both(), both(LITTLE)), (10, 62.0), 60.0, 15, f"{MORE} --rounds 31 --budget 200s; with"),
        ((rounds(QUIET, TEN[:3]),) * 2, (3, 45.0), None, 7, "10 rounds a side would do: --rounds 10\n"),
        ((rounds(QUIET, TEN[:3]),) * 2, (3, 45.0), 60.0, 7, "10 rounds a side would do: --rounds 10 --budget 200s\n"),
    ],
    ids=["rounds", "budget", "both", "few", "few and budget"],
)
def test_where_a_budget_was_the_limit_the_sentence_names_the_one_that_would_do(tmp_path, measured, footer, budget_s, planned, sentence):
    """Ten rounds took 62 s, so 31 take 192."""
    limits = {"policy": Policy(rounds=planned, budget_s=budget_s), "footer": dict(zip(("rounds", "seconds"), footer, strict=True))}
    told = compared(tmp_path, *measured, **limits).err
    assert f"; {sentence}" in told
    ended = "note: the budget of 60 s ended the run after 3 of 7 rounds; about --budget 140s would do\n"
    assert told.count(ended) == (budget_s is not None and planned == 7)


def test_unseen_is_what_no_case_could_show_what_is_held_back_and_what_was_confirmed_too_noisily(tmp_path):
    done = compared(tmp_path, rounds(NOISY, WIDE), rounds(NOISY, WIDE, LITTLE), **asking(detect="25%"))
    assert (done.code, done.out.splitlines()[-1]) == (4, "1 inconclusive; exit 4")
    assert "is not excluded in 1 of 1 case" in done.err
    unsteady = [*rounds(QUIET, TEN, steady=False), *rounds(NOISY, WIDE)]
    done = compared(tmp_path, both(), unsteady, "--detect", "90%")
    assert done.code == 4
    assert "matmul n=1: unsteady in the new file; its times alone would say same\n" in done.out
    assert "a slowdown of 90.0 % or more is not excluded in 1 of 2 cases; " in done.err
    quiet, suite = rounds(QUIET, TEN), asking(detect="30%")
    done = compared(tmp_path, quiet, quiet, isolation="fork", new_options={"isolation": "none", **suite}, **suite)
    assert done.code == 4
    assert "no case has times that can be compared, so nothing could have been called slower" in done.err
    one_round = [replace(each, samples=replace(each.samples, steady=each.round != 3)) for each in quiet]
    done = compared(tmp_path, one_round, rounds(QUIET, TEN, steady=False))
    assert (done.code, done.out.splitlines()[-1]) == (4, "1 inconclusive; exit 4")
    assert done.out.splitlines()[-2] == "matmul n=1: unsteady on both sides; its times alone would say same"
    sides = []
    for side, factor, times in (("a", 1, TEN), ("b", 1.5, TEN), ("a-confirm", 1, WIDE), ("b-confirm", 1.2, WIDE[::-1])):
        sides += [replace(each, side=side) for each in rounds(QUIET, times, factor)]
    made_up.write(tmp_path / "ab.jsonl", sides, sides=made_up.TWO_SIDES)
    done = front_door.in_process(tmp_path, "compare", "ab.jsonl", "--by", "run")
    assert (done.code, done.out.splitlines()[-1]) == (4, "1 inconclusive; exit 4")
    assert "note: a slowdown of 25.0 % or more is not excluded in 1 of 1 case; " in done.err


def test_a_regression_and_a_failure_go_first(tmp_path):
    assert compared(tmp_path, both(), [*rounds(QUIET, TEN, 2), *rounds(NOISY, WIDE)], "--detect", "25%").code == 3
    assert compared(tmp_path, both(), rounds(NOISY, WIDE), "--detect", "25%").code == 5


def test_machines_read_it_too(tmp_path):
    done = compared(tmp_path, both(), both(LITTLE), "--detect", "25%", "--verdict", "verdict.json", "--junit", "junit.xml")
    document = json.loads((tmp_path / "verdict.json").read_text())
    assert (document["verdict"], document["exit_code"]) == ("undecidable", 4)
    (comparison,) = document["comparisons"]
    unseen = comparison["unseen"]
    assert (comparison["powerless"], unseen) == (None, {"cases": [NOISY.id], "sentence": unseen["sentence"], "decisive": True})
    assert unseen["sentence"] in document["notes"]
    assert f"note: {unseen['sentence']}\n" in done.err
    error = ElementTree.parse(tmp_path / "junit.xml").find(".//error")  # noqa: S314  # written just now
    assert error is not None
    assert error.attrib["message"] == unseen["sentence"]


def test_what_makes_no_sense_is_2_with_a_sentence_before_anything_is_measured(tmp_path, transcript):
    for name in ("base", "new"):
        made_up.write(tmp_path / f"{name}.jsonl", both())
    front_door.suite(tmp_path, 'workload = "noop"', head='[thresholds]\ndetect = "6%"\n')
    front_door.suite(tmp_path, 'workload = "noop"', head='[thresholds]\ntime = "20%"\ndetect = "15%"\n', name="at_odds")
    transcript("wrong-detect", 11, lambda words: front_door.refusal(shared_hosts.dlbench(*shlex.split(words), cwd=tmp_path)))
    assert not (tmp_path / "results").exists()


def test_a_suite_that_wants_no_more_seen_than_its_threshold_is_taken_at_twice_the_threshold(tmp_path):
    done = compared(tmp_path, rounds(QUIET, TEN), rounds(QUIET, TEN), "--format", "json", **asking(detect="6%"))
    assert (done.code, verdicts(done)[QUIET.id]["compare.detect"]) == (0, pytest.approx(0.2))
    assert front_door.in_process(tmp_path, "compare", "base.jsonl", "new.jsonl", "--threshold", "3%").code == 0


def test_a_steady_p10_does_not_speak_for_a_median_that_may_have_grown(tmp_path):
    """Of ten blocks a round four take their time exactly; the others make the median wide, and in new a little slower."""
    blocks = [[[level] * 4 + [3 * by * wide] * 6 for level, wide in zip(TEN, WIDE, strict=True)] for by in (1, LITTLE)]
    base, new = ([*rounds(QUIET, TEN), *made_up.rounds_of(NOISY, each)] for each in blocks)
    done = compared(tmp_path, base, new, "--detect", "25%", "--format", "json")
    noisy = verdicts(done)[NOISY.id]
    assert (done.code, noisy["p10.verdict"], noisy["median.verdict"]) == (4, "same", "inconclusive")
    assert noisy["compare.detectable"] == pytest.approx(0.106, abs=1e-3)  # by its p10
    assert noisy["compare.possible"] == pytest.approx(sorted(LITTLE * b / a for a in WIDE for b in WIDE)[-28] - 1)


CASES = [made_up.case("matmul", n=n) for n in (1, 2)]
TASKS = tuple(Task(case, Side({"cpu": None}, name=side)) for case in CASES for side in "ab")
SESSION = Session(TASKS, RunSettings(Policy(), 1, "none", 2), (), {}, lambda: None)
TESTED = RankTest((), (), shift=0.1, round_intervals=(Interval(-0.4, 0.6, 0.95), None))


class Recording:
    """Fourteen rounds were measured; whatever is measured further takes its time and is noted in ``asked``."""

    stopped = False

    def __init__(self):
        self.rounds, self.seconds, self.asked = 14, 140.0, []

    def results(self):
        return None

    def measure(self, session, first_workers):
        policy = session.settings.policy
        self.asked.append(([(task.side.name, task.case.id) for task in session.tasks], policy.rounds, session.first_round, policy.budget_s))
        self.rounds += policy.rounds
        self.seconds += policy.rounds * 10 * len(session.tasks) / len(TASKS)


@pytest.mark.parametrize(
    ("rounds", "budget_s", "goes_on", "forecast"),
    [
        (14, None, True, "in 14 to 60 rounds a side, about 9.83 s to 42.1 s"),
        (5, None, False, "in 5 rounds a side, about 3.51 s"),
        (70, 60.0, True, "in 70 rounds a side, about 49.1 s"),
        (14, 30.0, True, "in 14 to 60 rounds a side, about 9.83 s to 30.0 s"),
        (14, 5.0, True, "in 14 to 60 rounds a side, about 5.00 s"),
    ],
)
def test_it_says_beforehand_what_it_takes_at_least_and_at_most(capsys, rounds, budget_s, goes_on, forecast):
    policy = Policy(rounds=rounds, round_s=0.05, warmup_s=0.001, budget_s=budget_s)
    settings, signatures = RunSettings(policy, 1, "none", 2), {"matmul": Signature("matmul", "", ())}
    announce_gate(replace(SESSION, tasks=TASKS[:2], settings=settings, signatures=signatures), goes_on)
    most = f", {seconds(budget_s)} at most" if budget_s else ""
    assert capsys.readouterr().err == f"1 case {forecast} (estimated from the policy; slow steps take longer{most})\n"


def unseen(*numbers, rounds=20, verdict=Verdict.INCONCLUSIVE):
    """A comparison in which these cases could not show enough, each before so many rounds."""
    needed = dict(zip(numbers, rounds if isinstance(rounds, tuple) else [rounds] * len(numbers), strict=True))
    cases = tuple(CaseVerdict(case.id, verdict, tests={"median": TESTED}, rounds_to_see=needed.get(n)) for n, case in enumerate(CASES))
    ids = tuple(CASES[n].id for n in numbers)
    return Comparison("b against a", cases, None, Undetectable(ids, "…", True) if numbers else None)


def gone_on(*comparisons, budget_s=None, stop_after=99):
    """What was measured further, where the file compares so in turn, and like the last of them from then on."""
    answers, recording = list(comparisons), Recording()
    measure = recording.measure

    def watched(*arguments):
        measure(*arguments)
        recording.stopped = len(recording.asked) >= stop_after

    recording.measure = watched
    measure_until_seen(recording, SESSION, lambda _: answers.pop(0) if len(answers) > 1 else answers[0], budget_s)
    return recording.asked


HOPELESS = 14 + 4 * (60 - 14) + 1
"""So many rounds are more than four times those left."""


GOES_ON = {
    "all was seen": ([unseen()], {}, []),
    "until the first has enough": ([unseen(0, 1, rounds=(20, 40)), unseen(1, rounds=40), unseen()], {}, [(4, 6), (2, 20)]),
    **{each.value: ([unseen(1, verdict=each), unseen()], {}, [(2, 6)]) for each in (Verdict.SLOWER, Verdict.FASTER, Verdict.SAME)},
    "sixty rounds at most": ([unseen(0, 1, rounds=58), unseen(0, 1, rounds=64)], {}, [(4, 44), (4, 2)]),
    "a budget is that of all rounds": ([unseen(0, 1, rounds=16), unseen()], {"budget_s": 165.0}, [(4, 2)]),
    "a spent budget": ([unseen(0, 1, rounds=16), unseen()], {"budget_s": 149.0}, []),
    "a large budget": ([unseen(0, 1, rounds=40), unseen(0, rounds=41), unseen()], {"budget_s": 1000.0}, [(4, 26), (2, 2)]),
    "many times the rounds left": ([unseen(0, rounds=HOPELESS)], {}, []),
    "one of two is hopeless": ([unseen(0, 1, rounds=(HOPELESS, 17)), unseen()], {}, [(2, 3)]),
    "not quite hopeless": ([unseen(0, rounds=HOPELESS - 1), unseen()], {}, [(2, 46)]),
    "Ctrl-C": ([unseen(0, rounds=16)], {"stop_after": 1}, [(2, 2)]),
}


@pytest.mark.parametrize(("comparisons", "options", "tasks_and_rounds"), GOES_ON.values(), ids=GOES_ON)
def test_cases_that_can_not_show_enough_are_measured_further(comparisons, options, tasks_and_rounds):
    assert [(len(tasks), rounds) for tasks, rounds, *_ in gone_on(*comparisons, **options)] == tasks_and_rounds


def test_only_what_can_not_show_enough_gets_more_rounds_on_both_sides_until_it_can():
    asked = gone_on(unseen(1, rounds=20), unseen(1, rounds=21), unseen())
    both = [("a", CASES[1].id), ("b", CASES[1].id)]
    assert asked == [(both, 6, 14, None), (both, 2, 20, None)]  # six rounds are missing, then one, where two are the least


def test_fresh_rounds_go_on_as_the_first_ones_did_and_count_for_themselves(monkeypatch):
    comparisons = [unseen(verdict=Verdict.SLOWER), unseen(1, rounds=20), unseen()]
    monkeypatch.setattr(ab, "_judge", lambda _: comparisons.pop(0) if len(comparisons) > 1 else comparisons[0])
    recording = Recording()
    ab._measure_again(recording, SESSION, None)
    assert [([side for side, _ in tasks], *rest) for tasks, *rest in recording.asked] == [
        (["a-confirm", "b-confirm"] * 2, 14, 14, None),
        (["a-confirm", "b-confirm"], 6, 28, None),
    ]
    recording, comparisons[:] = Recording(), [unseen(verdict=Verdict.SLOWER), unseen(1, rounds=20)]
    ab._measure_again(recording, SESSION, 5)
    assert [rounds for _, rounds, _, _ in recording.asked] == [5]
