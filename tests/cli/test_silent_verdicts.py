"""Comparisons that once passed, or failed, without a reason: each by the made-up files that showed it."""

import json
import random
import re
import subprocess
import sys
from dataclasses import replace

import front_door
import made_up
import pytest
from front_door import FILES, compared, verdicts

from dlbench.analysis.compare.calibration import Calibration, Noise
from dlbench.core import units
from dlbench.core.conditions import RoundState, Throttling
from dlbench.core.measurement import Memory
from dlbench.core.model import Policy
from dlbench.core.store import load

TEN = (1.00, 1.01, 0.99, 1.02, 0.98, 1.005, 0.995, 1.015, 0.985, 1.001)
WIDE = (1.0, 2.1, 0.6, 1.7, 0.8, 2.4, 0.7, 1.9, 1.1, 0.9)
"""Rounds of which one is four times another."""


def cases(count, factors=(), rounds=TEN, **fields):
    """Rounds of so many cases, the first ones that many times as long."""
    factors = [*factors, *[1.0] * (count - len(factors))]
    times = [made_up.flat([factor * each for each in rounds]) for factor in factors]
    return [each for n in range(count) for each in made_up.rounds_of(made_up.case("matmul", n=n), times[n], **fields)]


def row_of(folder, base, new, *arguments, **options):
    """Compare two files of one case; return the exit code and the row."""
    done = compared(folder, base, new, "--format", "json", *arguments, **options)
    (row,) = verdicts(done).values()
    return done.code, row


def end(done):
    """The exit code and the conclusion."""
    return done.code, done.out.splitlines()[-1].partition(";")[0]


def calibrated(folder, pooled, **of_cases):
    calibration = Calibration("m", "", "", pooled, {f"matmul[n={name[1:]}]@cpu": each for name, each in of_cases.items()}, None)
    (folder / "m.json").write_text(json.dumps(calibration.to_json()))
    return "--calibration", "m.json"


def unsteady(measurements, *numbers):
    return [
        replace(each, samples=replace(each.samples, steady=False)) if each.samples and each.round in numbers else each
        for each in measurements
    ]


def taken(*rounds):
    """A case that waits for a CPU for half of its time in these rounds: it then reads as multiples of the scheduler's turns."""
    return [replace(each, throttling=Throttling(waiting=0.5 if each.round in rounds else 0.1)) for each in cases(1)]


def with_threads(count, threads):
    """A case, and so many that have this number of threads."""
    return [*cases(1), *cases(1 + count, threads=threads)[10:]]


def of_version(version):
    return {"environment": {"provenance": {"dlbench": version}}}


SOME = {"isolation": "fork"}
WITH_UNSURE = [*cases(1), *cases(2, [1, 10], steady=False)[10:]]
SCENES = {
    "14 cases 20 times as long, on a machine known from two occasions": (cases(14), cases(14, [20] * 14), Noise(2, 0.03, 0.03, 0.03)),
    "the same on one that is not known": (cases(14), cases(14, [20] * 14)),
    "300 cases 5 times as long, three occasions": (cases(300), cases(300, [5] * 300), Noise(3, 0.03, 0.03, 0.03)),
    "one unsteady round of twenty": (cases(1, rounds=TEN * 2), unsteady(cases(1, [1.99], rounds=TEN * 2), 7)),
    "one of five: four rounds are as few as can say anything": (cases(1, rounds=TEN[:5]), unsteady(cases(1, [1.5], rounds=TEN[:5]), 0)),
    "two of eight, which is more than a fifth": (cases(1, rounds=TEN[:4] * 2), unsteady(cases(1, [1.5], rounds=TEN[:4] * 2), 0, 1)),
    "another isolation": (cases(2), cases(2, [1.5, 1.5]), {"isolation": "none"}),
    "shorter rounds": (cases(2), cases(2, [1.5, 1.5]), {"policy": Policy(round_s=0.05)}),
    "a shorter warm-up": (cases(2), cases(2, [1.5, 1.5]), {"policy": Policy(warmup_s=0.01)}),
    "more rounds and another budget": (
        cases(2),
        cases(2, [1.5] * 2),
        {"policy": Policy(rounds=9, budget_s=60.0, target=0.5, timeout_s=9.0)},
    ),
    "an earlier version of dlbench": (cases(1), cases(1), of_version("0.1.0")),
    "CPUs taken in all rounds": (taken(*range(10)), taken(*range(10))),
    "CPUs taken in two rounds of one side": (taken(), taken(1, 5)),
    "an unsteady case that is ten times as long": (cases(2), WITH_UNSURE),
    "an unsteady case that is not": (cases(2), [*cases(1), *cases(2, steady=False)[10:]]),
    "one case of two is incomparable": (with_threads(1, 2), with_threads(1, 4)),
    "two of three are": (with_threads(2, 2), with_threads(2, 4)),
}
"""Both sides, and what the machine is known to vary by, or what the header of the new file says otherwise."""
IN_EACH = ("note: base does not say", "note: new does not say", "note: no calibration")


def test_what_a_comparison_says_that_once_passed_or_failed_without_a_reason(tmp_path, snapshot):
    texts = {}
    for what, (base, new, *more) in SCENES.items():
        known = calibrated(tmp_path, more[0]) if more and isinstance(more[0], Noise) else ()
        header = more[0] if more and not known else {}
        done = compared(tmp_path, base, new, *known, new_options={**SOME, **of_version("0.2.0"), **header}, **SOME, **of_version("0.2.0"))
        notes = [
            line for line in done.err.splitlines() if not line.startswith(("note: base does", "note: new does", "note: no calibration"))
        ]
        texts[what] = "\n".join([*filter(None, done.out.splitlines()[-2 - (len(base) < 40) :]), *notes])
    snapshot("silent-verdicts", front_door.under_titles(texts))


def test_a_case_that_was_seen_on_few_occasions_is_as_well_known_as_all_are(tmp_path):
    noise = calibrated(tmp_path, Noise(8, 0.03, 0.03, 0.03), n0=Noise(2, 0.031, 0.031, 0.031))
    assert end(compared(tmp_path, cases(6), cases(6, [5]), *noise)) == (3, "1 slower, 5 same")


def test_an_a_b_that_sees_nothing_does_not_pass(tmp_path):
    chance, sides = random.Random(5), []
    for side, factors in (("a", ()), ("b", (1.15, 1.15))):
        noisy = [chance.choice(WIDE) * each for each in TEN]
        sides += [replace(each, side=side) for each in cases(4, factors, rounds=noisy)]
    # The machine around rounds of which every other lost three quarters of a CPU.
    states = [RoundState(number, 9.0, 0.0, 0.75 * (number % 2), {}, {}) for number in range(10)]
    made_up.write(tmp_path / "ab.jsonl", sides, sides=made_up.TWO_SIDES, states=states)
    done = front_door.in_process(tmp_path, "compare", "--by", "run", "ab.jsonl")
    assert end(done) == (4, "4 inconclusive")
    (note,) = [line for line in done.err.splitlines() if "is not excluded in" in line]
    assert note.startswith("note: a slowdown of 25.0 % or more is not excluded in 4 of 4 cases; stop the other processes, as top shows ")
    assert "rounds a side would probably call or exclude it: --rounds " in note
    (reasons,) = [line for line in done.out.splitlines() if "the hypervisor took" in line]
    assert re.fullmatch(r"all 4 cases: up to \+.*; the hypervisor took up to 0.75 CPUs' time in 5 of 10 rounds", reasons)


def cut(measurements, blocks):
    return [replace(each, samples=replace(each.samples, block_s=each.samples.block_s[:blocks])) for each in measurements if each.samples]


def test_a_file_cut_to_three_blocks_is_not_slower_than_itself(tmp_path):
    whole = load(FILES / "intel-xeon-processor" / "quick.jsonl").measurements
    for base, new in ((whole, cut(whole, 3)), (cut(whole, 3), whole)):
        assert "slower" not in compared(tmp_path, base, new).out


def test_the_number_of_blocks_calls_no_identical_code_slower(tmp_path):
    chance = random.Random(11)

    def noisy(count, blocks):
        times = [[[chance.lognormvariate(0, 0.05) for _ in range(blocks)] for _ in range(10)] for _ in range(count)]
        return [each for n in range(count) for each in made_up.rounds_of(made_up.case("matmul", n=n), times[n])]

    for blocks, has_p10 in (((40, 12), True), ((20, 3), False)):
        files = [noisy(100, each) for each in blocks]
        rows = json.loads(compared(tmp_path, *files, "--threshold", "1%", "--format", "json").out)
        assert [row["compare.verdict"] for row in rows if row["compare.verdict"] in ("slower", "faster")] == []
        assert {row["p10.p"] is not None for row in rows} == {has_p10}


@pytest.mark.parametrize(("short", "p10"), [((), "slower"), ((4,), "slower"), ((4, 5), "slower"), ((4, 5, 6), None)])
def test_a_few_rounds_of_nine_blocks_take_no_p10_from_a_case(tmp_path, short, p10):
    # The median varies too much to call anything; of three rounds in ten more than a fifth have no p10.
    def rounds(factor, *short):
        counts = [5 if at in short else 6 for at in range(len(TEN))]
        blocks = [[factor * level] * 4 + [3 * wild] * count for level, wild, count in zip(TEN, WIDE, counts, strict=True)]
        return made_up.rounds_of(made_up.case("matmul", n=1), blocks)

    for number, (base, new) in enumerate(((rounds(1.0), rounds(1.3, *short)), (rounds(1.0, *short), rounds(1.3)))):
        _, row = row_of(tmp_path, base, new)
        assert (row["p10.verdict"], row["median.verdict"]) == (p10, "inconclusive")
        sides = [replace(each, side=side) for side, measured in (("a", base), ("b", new)) for each in measured]
        made_up.write(tmp_path / f"ab{number}.jsonl", sides, sides=made_up.TWO_SIDES)
        (row,) = json.loads(front_door.in_process(tmp_path, "compare", "--by", "run", "--format", "json", f"ab{number}.jsonl").out)
        # All pairs have one sign: 2 / 2^k of so many.
        assert (row["p10.verdict"], row["paired.p"] if p10 else None) == (p10, 2.0 ** (1 - len(TEN) + len(short)) if p10 else None)


def test_host_memory_that_is_apart_in_one_case_of_many_may_be_an_accident(tmp_path):
    # Four rounds against four are wholly apart in one of 35 cases, whatever is measured: of fourteen, that is none to call.
    for rounds, code in ((4, 4), (10, 3)):
        base = cases(14, rounds=TEN[:rounds], memory=Memory(host_peak_bytes=100 << 20))
        new = [replace(each, memory=Memory(host_peak_bytes=130 << 20)) if each.case.params["n"] == 0 else each for each in base]
        done = compared(tmp_path, base, new, "--threshold", "100%")
        assert (done.code, "memory worse" in done.out) == (code, code == 3)


def test_the_times_that_are_shown_are_those_that_were_tested(tmp_path):
    # All blocks of all rounds together have another p10 than the rounds have in the middle.
    def rounds(factor, low):
        levels = [*(factor * each for each in TEN[:-1]), low]
        return made_up.rounds_of(made_up.case("matmul", n=1), [[one] * 4 + [3 * wide] * 6 for one, wide in zip(levels, WIDE, strict=True)])

    files = rounds(1.0, 1.0), rounds(1.3, 0.5)
    _, row = row_of(tmp_path, *files)
    assert (row["compare.verdict"], row["compare.statistic"]) == ("slower", "p10")
    assert row["base.p10_s"] * (1 + row["p10.change"]) == pytest.approx(row["new.p10_s"], rel=0.02)
    cells = re.split("  +", next(line for line in compared(tmp_path, *files).out.splitlines() if line.startswith(" matmul")))
    assert cells[1:4] == [units.seconds(row["base.p10_s"]), units.seconds(row["new.p10_s"]), f"{100 * row['p10.change']:+.1f} %"]


@pytest.mark.skipif(sys.platform != "linux", reason="a pipe as a file")
def test_a_pipe_is_cut_to_as_few_blocks_as_a_file(tmp_path):
    # Of a file the blocks are read again; a pipe can be read only once.
    blocks = [[seconds * (1 + 0.01 * (at * 7 % 20)) for at in range(20)] for seconds in TEN]
    whole = [each for n in range(2) for each in made_up.rounds_of(made_up.case("matmul", n=n), blocks)]
    from_files = compared(tmp_path, whole, cut(whole, 12), "--format", "csv")
    command = [sys.executable, "-m", "dlbench", "compare", "/dev/stdin", "new.jsonl", "--format", "csv"]
    with (tmp_path / "base.jsonl").open("rb") as base, subprocess.Popen(["cat"], stdin=base, stdout=subprocess.PIPE) as pipe:
        piped = subprocess.run(command, stdin=pipe.stdout, capture_output=True, text=True, cwd=tmp_path)
    assert piped.stdout.replace(",stdin,", ",base,") == from_files.out


def at_clock(clock_hz):
    return {"state": {"accelerators": {"cuda:0": {"clock_sm_hz": clock_hz}}}}


ON_CARD = made_up.case(device="cuda:0", n=1)


@pytest.mark.parametrize(
    ("factor", "clock_hz", "verdict"),
    [
        (2.0, 1.93e9, "slower"),
        (1.9, 1.1e9, "inconclusive"),  # of 1.9 the clock explains 1.8
        (2.0, 2.5e9, "slower"),
        (0.5, 2.02e9, "faster"),
        (0.5, 1.1e9, "faster"),
        (1.0, 1.93e9, "inconclusive"),
    ],
)
def test_a_clock_explains_no_more_than_its_own_ratio(tmp_path, factor, clock_hz, verdict):
    base, new = (made_up.rounds_of(ON_CARD, made_up.flat([times * each for each in TEN])) for times in (1.0, factor))
    _, row = row_of(tmp_path, base, new, new_options=at_clock(clock_hz), **at_clock(1.98e9))
    assert row["compare.verdict"] == verdict
    if verdict != "inconclusive":
        explained = 100 * (max(clock_hz, 1.98e9) / min(clock_hz, 1.98e9) - 1)
        assert row["compare.note"].endswith(f" GHz in the new file, which explains {explained:.1f} % at most")


def test_what_a_clock_explains_but_for_fewer_slow_calls_is_not_faster(tmp_path):
    base, new = (
        made_up.rounds_of(ON_CARD, [[each * call for call in calls] for each in TEN]) for calls in ((1.8, 1.8, 5.4), (1.0, 1.0, 1.0))
    )
    _, row = row_of(tmp_path, base, new, new_options=at_clock(1.98e9), **at_clock(1.1e9))
    assert (row["median.verdict"], row["compare.verdict"]) == ("faster", "inconclusive")


def test_a_case_that_reports_values_alone_is_judged_whatever_its_clocks(tmp_path):
    declared = {"serve": {"values": [{"name": "p99_s", "unit": "s", "direction": "lower", "meaning": "m"}], "parallel": {}}}
    rounds = made_up.rounds_of(made_up.case("serve", "cuda:0"), made_up.flat(TEN), memory=Memory())
    reported = [made_up.with_values(made_up.without_rounds(each), p99_s=0.5) for each in rounds]
    base, new = ({**at_clock(clock_hz), "workloads": declared} for clock_hz in (1.98e9, 1.1e9))
    code, row = row_of(tmp_path, reported, reported, new_options=new, **base)
    assert (code, row["compare.verdict"]) == (0, "same")


# Only some calls are slow, which neither the median nor the p10 of a round shows.
CASE = made_up.case("matmul", n=1)
LEVELS = (1.00, 1.01, 0.99, 1.02, 0.98, 1.005, 0.995, 1.015, 0.985, 1.001, 1.012, 0.992, 1.018, 0.983)
ONE_IN_THREE = (1, 1, 3)


def timed(*calls, times=1, slow=range(14)):
    """Fourteen rounds whose blocks, one call each, take these times, and one second each in a round that is not slow."""
    blocks = [[level * call for call in (calls if number in slow else [1] * len(calls))] * times for number, level in enumerate(LEVELS)]
    return made_up.rounds_of(CASE, blocks)


STEADY, EXCLUDED = timed(1, 1, 1), "the same but for the mean of all its calls, {}; a slowdown of 25.0 % or more is excluded"


@pytest.mark.parametrize("times", [1, 3, 14])
def test_every_third_call_three_times_as_long_is_slower(tmp_path, times):
    code, row = row_of(tmp_path, timed(1, 1, 1, times=times), timed(*ONE_IN_THREE, times=times), "--strict")
    assert (code, row["compare.verdict"], row["compare.statistic"]) == (3, "slower", "mean")
    assert (row["mean.verdict"], row["median.verdict"], row["median.change"]) == ("slower", "same", 0)
    assert (row["mean.change"], row["compare.note"]) == (pytest.approx(2 / 3), "same by its median, slower by its mean")


@pytest.mark.parametrize(
    ("base", "new", "code", "verdict", "note"),
    [
        (timed(*ONE_IN_THREE), STEADY, 4, "inconclusive", "-40.0 %"),
        (STEADY, timed(*ONE_IN_THREE, slow=range(8)), 4, "inconclusive", "+63.3 %"),
        (timed(*ONE_IN_THREE, slow=range(5)), timed(*ONE_IN_THREE, slow=range(9)), 0, "same", None),
    ],
    ids=["fewer slow calls", "a mean that may have grown", "within the threshold"],
)
def test_an_unsure_mean_keeps_a_case_from_being_the_same_but_within_the_threshold(tmp_path, base, new, code, verdict, note):
    found, row = row_of(tmp_path, base, new, "--strict")
    assert (found, row["compare.verdict"], row["mean.verdict"], row["median.verdict"]) == (code, verdict, "inconclusive", "same")
    assert row["compare.note"] == (note and EXCLUDED.format(note))
    if base is STEADY:
        assert row["mean.p_holm"] > 0.05


@pytest.mark.parametrize("times", [1, 14])
def test_an_a_b_shows_every_third_call_too(tmp_path, times):
    sides = [replace(each, side=side) for side, calls in (("a", (1, 1, 1)), ("b", ONE_IN_THREE)) for each in timed(*calls, times=times)]
    made_up.write(tmp_path / "ab.jsonl", sides, sides=made_up.TWO_SIDES)
    done = front_door.in_process(tmp_path, "compare", "--by", "run", "ab.jsonl")
    assert (done.code, done.out.splitlines()[-1]) == (3, "1 slower; exit 3")
    assert "+66.7 %  +65.0…+68.4 %" in done.out


def test_a_file_of_more_blocks_has_no_other_mean(tmp_path):
    # One call of ten is slow: hardly one of three, and four of forty.
    many = timed(1, 1, 1, 1, 1, 3, 1, 1, 1, 1, times=4)
    few = [replace(each, samples=replace(each.samples, block_s=each.samples.block_s[:3])) for each in many]
    assert [row_of(tmp_path, *files)[1]["compare.verdict"] for files in ((few, many), (many, few))] == ["same"] * 2


def test_a_row_says_how_much_its_slow_calls_take(tmp_path):
    made_up.write(tmp_path / "run.jsonl", timed(*ONE_IN_THREE))
    done = front_door.in_process(tmp_path, "show", "run.jsonl")
    assert "tail +66.7 %" in done.out
    assert "\ntail: some calls take far longer than the median; --topic details has which\n" in done.out
    (row,) = json.loads(front_door.in_process(tmp_path, "show", "run.jsonl", "--format", "json").out)
    assert (row["flag.tail"], row["time.mean_s"] / row["time.median_s"]) == (True, pytest.approx(5 / 3))
    assert row["rate.items_per_s"] == pytest.approx(8 / row["time.median_s"], rel=1e-12)
