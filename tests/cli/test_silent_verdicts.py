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
from front_door import FILES

from dlbench.analysis.compare.calibration import Calibration, Noise
from dlbench.core import units
from dlbench.core.conditions import RoundState, Throttling
from dlbench.core.measurement import Memory, Samples
from dlbench.core.model import Policy
from dlbench.core.store import load

TEN = (1.00, 1.01, 0.99, 1.02, 0.98, 1.005, 0.995, 1.015, 0.985, 1.001)
WIDE = (1.0, 2.1, 0.6, 1.7, 0.8, 2.4, 0.7, 1.9, 1.1, 0.9)
"""Rounds of which one is four times another."""


def cases(count, factors=(), rounds=TEN, **fields):
    """Rounds of so many cases, the first ones that many times as long."""
    found = []
    for n in range(count):
        factor = factors[n] if n < len(factors) else 1.0
        found += made_up.rounds_of(made_up.case("matmul", n=n), made_up.flat([factor * each for each in rounds]), **fields)
    return found


def compare(folder, *arguments, files=("base.jsonl", "new.jsonl")):
    return front_door.in_process(folder, "compare", *files, *arguments)


def files(folder, base, new, **options):
    made_up.write(folder / "base.jsonl", base, **options)
    made_up.write(folder / "new.jsonl", new, **options)


def calibrated(folder, pooled, **of_cases):
    calibration = Calibration("m", "", "", pooled, {f"matmul[n={name[1:]}]@cpu": each for name, each in of_cases.items()}, None)
    (folder / "m.json").write_text(json.dumps(calibration.to_json()))
    return "--calibration", "m.json"


@pytest.mark.parametrize(("count", "factor", "occasions"), [(14, 20, 2), (300, 5, 3)])
def test_a_small_calibration_does_not_let_everything_pass(tmp_path, count, factor, occasions):
    files(tmp_path, cases(count), cases(count, [factor] * count))
    done = compare(tmp_path, *calibrated(tmp_path, Noise(occasions, 0.03, 0.03, 0.03)))
    assert (done.code, done.out.splitlines()[-1]) == (4, f"{count} inconclusive; exit 4")
    assert done.err.splitlines()[-1] == (
        f"note: a slowdown of 25.0 % or more is not excluded in {count} of {count} cases; measure both sides alternately, with dlbench ab"
    )
    (reasons,) = [line for line in done.out.splitlines() if ": " in line]
    assert reasons.startswith(f"all {count} cases: up to ")
    assert reasons.endswith("; sessions alone differ by as much")
    assert compare(tmp_path).code == 3


def test_a_case_that_was_seen_on_few_occasions_is_as_well_known_as_all_are(tmp_path):
    files(tmp_path, cases(6), cases(6, [5]))
    done = compare(tmp_path, *calibrated(tmp_path, Noise(8, 0.03, 0.03, 0.03), n0=Noise(2, 0.031, 0.031, 0.031)))
    assert (done.code, done.out.splitlines()[-1]) == (3, "1 slower, 5 same; exit 3")


def disturbed(rounds):
    """The machine around rounds of which every other lost three quarters of a CPU."""
    return [RoundState(number, 9.0, 0.0, 0.75 * (number % 2), {}, {}) for number in range(rounds)]


def test_an_a_b_that_sees_nothing_does_not_pass(tmp_path):
    chance = random.Random(5)
    sides = []
    for side, factors in (("a", ()), ("b", (1.15, 1.15))):
        noisy = [chance.choice(WIDE) * each for each in TEN]
        sides += [replace(each, side=side) for each in cases(4, factors, rounds=noisy)]
    made_up.write(tmp_path / "ab.jsonl", sides, sides=made_up.TWO_SIDES, states=disturbed(10))
    done = compare(tmp_path, "--by", "run", files=("ab.jsonl",))
    assert (done.code, done.out.splitlines()[-1]) == (4, "4 inconclusive; exit 4")
    (note,) = [line for line in done.err.splitlines() if "is not excluded in" in line]
    assert note.startswith("note: a slowdown of 25.0 % or more is not excluded in 4 of 4 cases; stop the other processes, as top shows ")
    assert "rounds a side would probably call or exclude it: --rounds " in note
    (reasons,) = [line for line in done.out.splitlines() if "the hypervisor took" in line]
    assert reasons.startswith("all 4 cases: up to +")
    assert reasons.endswith("; the hypervisor took up to 0.75 CPUs' time in 5 of 10 rounds")


def unsteady(measurements, *numbers):
    return [
        replace(each, samples=replace(each.samples, steady=False)) if each.samples and each.round in numbers else each
        for each in measurements
    ]


def test_one_unsteady_round_of_twenty_silences_nothing(tmp_path):
    files(tmp_path, cases(1, rounds=TEN * 2), unsteady(cases(1, [1.99], rounds=TEN * 2), 7))
    done = compare(tmp_path, "--format", "json")
    (row,) = json.loads(done.out)
    assert (done.code, row["compare.verdict"]) == (3, "slower")
    assert row["compare.note"] == "the same without its rounds that were unsteady, throttled or short of CPU time"


def test_an_unsteady_round_that_decides_holds_the_verdict_back(tmp_path):
    # Four rounds a side are as few as can say anything, and without one of them nothing can.
    files(tmp_path, cases(1, rounds=TEN[:5]), unsteady(cases(1, [1.5], rounds=TEN[:5]), 0))
    assert compare(tmp_path).code == 3  # five against four still say it
    files(tmp_path / "four", cases(1, rounds=TEN[:4] * 2), unsteady(cases(1, [1.5], rounds=TEN[:4] * 2), 0, 1))
    done = compare(tmp_path / "four")
    assert (done.code, done.out.splitlines()[-1]) == (4, "1 inconclusive; exit 4")  # a quarter of the rounds is more than a fifth
    assert done.out.splitlines()[-2] == "matmul n=0: unsteady in the new file; its times alone would say slower"
    assert done.err.endswith("not excluded in 1 of 1 case; measure again on a quieter machine\n")


def cut(measurements, blocks):
    found = []
    for each in measurements:
        samples = each.samples
        if isinstance(samples, Samples):
            found.append(replace(each, samples=replace(samples, block_s=samples.block_s[:blocks])))
    return found


def test_a_file_cut_to_three_blocks_is_not_slower_than_itself(tmp_path):
    whole = load(FILES / "intel-xeon-processor" / "quick.jsonl").measurements
    files(tmp_path, whole, cut(whole, 3))
    assert "slower" not in compare(tmp_path).out
    files(tmp_path / "turned", cut(whole, 3), whole)
    assert "slower" not in compare(tmp_path / "turned").out


def test_the_number_of_blocks_calls_no_identical_code_slower(tmp_path):
    chance = random.Random(11)

    def noisy(count, blocks):
        return [
            each
            for n in range(count)
            for each in made_up.rounds_of(
                made_up.case("matmul", n=n), [[chance.lognormvariate(0, 0.05) for _ in range(blocks)] for _ in range(10)]
            )
        ]

    files(tmp_path, noisy(100, 40), noisy(100, 12))
    rows = json.loads(compare(tmp_path, "--threshold", "1%", "--format", "json").out)
    assert [row["compare.verdict"] for row in rows if row["compare.verdict"] in ("slower", "faster")] == []
    assert all(row["p10.p"] is not None for row in rows)
    files(tmp_path / "few", noisy(100, 20), noisy(100, 3))
    rows = json.loads(compare(tmp_path / "few", "--threshold", "1%", "--format", "json").out)
    assert [row["compare.verdict"] for row in rows if row["compare.verdict"] in ("slower", "faster")] == []
    assert all(row["p10.p"] is None for row in rows)


@pytest.mark.parametrize(("short", "p10"), [((), "slower"), ((4,), "slower"), ((4, 5), "slower"), ((4, 5, 6), None)])
def test_a_few_rounds_of_nine_blocks_take_no_p10_from_a_case(tmp_path, short, p10):
    # The median varies too much to call anything; of three rounds in ten more than a fifth have no p10.
    def rounds(factor, *short):
        counts = [5 if at in short else 6 for at in range(len(TEN))]
        blocks = [[factor * level] * 4 + [3 * wild] * count for level, wild, count in zip(TEN, WIDE, counts, strict=True)]
        return made_up.rounds_of(made_up.case("matmul", n=1), blocks)

    for new, base in ((rounds(1.3, *short), rounds(1.0)), (rounds(1.3), rounds(1.0, *short))):
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        files(folder, base, new)
        (row,) = json.loads(compare(folder, "--format", "json").out)
        assert (row["p10.verdict"], row["median.verdict"]) == (p10, "inconclusive")
        sides = [replace(each, side=side) for side, measured in (("a", base), ("b", new)) for each in measured]
        made_up.write(folder / "ab.jsonl", sides, sides=made_up.TWO_SIDES)
        (row,) = json.loads(compare(folder, "--by", "run", "--format", "json", files=("ab.jsonl",)).out)
        assert row["p10.verdict"] == p10
        # All pairs have one sign: 2 / 2^k of so many.
        assert p10 is None or row["paired.p"] == 2.0 ** (1 - len(TEN) + len(short))


def test_host_memory_that_is_apart_in_one_case_of_many_may_be_an_accident(tmp_path):
    def grown(rounds, *sizes):
        found = []
        for n, mib in enumerate(sizes):
            found += made_up.rounds_of(made_up.case("matmul", n=n), made_up.flat(TEN[:rounds]), memory=Memory(host_peak_bytes=mib << 20))
        return found

    # Four rounds against four are wholly apart in one of 35 cases, whatever is measured: of fourteen, that is none to call.
    for rounds, code in ((4, 4), (10, 3)):
        files(tmp_path / str(rounds), grown(rounds, *[100] * 14), grown(rounds, 130, *[100] * 13))
        done = compare(tmp_path / str(rounds), "--threshold", "100%")
        assert (done.code, "memory worse" in done.out) == (code, code == 3)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"isolation": "none"}, "isolation: fork against none"),
        ({"isolation": "fork", "policy": Policy(round_s=0.05)}, "policy.round_s: 1.0 against 0.05"),
        ({"isolation": "fork", "policy": Policy(warmup_s=0.01)}, "policy.warmup_s: default against 0.01"),
    ],
)
def test_what_was_measured_in_another_way_is_not_compared(tmp_path, options, said):
    made_up.write(tmp_path / "base.jsonl", cases(2), isolation="fork")
    made_up.write(tmp_path / "new.jsonl", cases(2, [1.5, 1.5]), **options)
    done = compare(tmp_path, "--format", "json")
    assert {(row["compare.verdict"], row["compare.note"]) for row in json.loads(done.out)} == {
        ("incomparable", f"{said}; measure both alike")
    }
    assert done.code == 4


def test_more_rounds_or_another_budget_are_no_other_way(tmp_path):
    made_up.write(tmp_path / "base.jsonl", cases(2), isolation="fork")
    made_up.write(tmp_path / "new.jsonl", cases(2), isolation="fork", policy=Policy(rounds=9, budget_s=60.0, target=0.5, timeout_s=9.0))
    assert compare(tmp_path).out.endswith("2 same; exit 0\n")


def test_another_version_of_dlbench_is_a_note(tmp_path):
    made_up.write(tmp_path / "base.jsonl", cases(1), environment={"provenance": {"dlbench": "0.1.0"}})
    made_up.write(tmp_path / "new.jsonl", cases(1), environment={"provenance": {"dlbench": "0.2.0"}})
    done = compare(tmp_path)
    assert done.code == 0
    assert "note: the software differs, base against new: dlbench 0.1.0 against 0.2.0" in done.err


def test_the_times_that_are_shown_are_those_that_were_tested(tmp_path):
    # All blocks of all rounds together have another p10 than the rounds have in the middle.
    def rounds(factor, low):
        levels = [factor * each for each in TEN[:-1]] + [low]
        return made_up.rounds_of(
            made_up.case("matmul", n=1), [[level] * 4 + [3 * spread] * 6 for level, spread in zip(levels, WIDE, strict=True)]
        )

    files(tmp_path, rounds(1.0, 1.0), rounds(1.3, 0.5))
    (row,) = json.loads(compare(tmp_path, "--format", "json").out)
    assert (row["compare.verdict"], row["compare.statistic"]) == ("slower", "p10")
    assert row["base.p10_s"] * (1 + row["p10.change"]) == pytest.approx(row["new.p10_s"], rel=0.02)
    cells = re.split("  +", next(line for line in compare(tmp_path).out.splitlines() if line.startswith(" matmul")))
    assert cells[1:4] == [units.seconds(row["base.p10_s"]), units.seconds(row["new.p10_s"]), f"{100 * row['p10.change']:+.1f} %"]


def test_cases_whose_cpus_were_taken_are_held_back_as_throttled_ones_are(tmp_path):
    # Half of its time lost, a program reads as multiples of the scheduler's turns, whatever it does.
    def taken(*rounds):
        return [replace(each, throttling=Throttling(waiting=0.5 if each.round in rounds else 0.1)) for each in cases(1)]

    files(tmp_path, taken(*range(10)), taken(*range(10)))
    done = compare(tmp_path)
    assert (done.code, done.out.splitlines()[-1]) == (4, "1 inconclusive; exit 4")
    assert done.out.splitlines()[-2] == (
        "matmul n=0: CPUs taken on both sides; its times alone would say same; disturbed in 10 of 10 rounds: "
        "waited for a CPU for 50.0 % of its time"
    )
    files(tmp_path / "few", taken(), taken(1, 5))
    done = compare(tmp_path / "few")
    assert (done.code, done.out.splitlines()[-1]) == (0, "1 same; exit 0")
    assert "the same without its rounds that were unsteady, throttled or short of CPU time" in done.out


@pytest.mark.skipif(sys.platform != "linux", reason="a pipe as a file")
def test_a_pipe_is_cut_to_as_few_blocks_as_a_file(tmp_path):
    # Of a file the blocks are read again; a pipe can be read only once.
    blocks = [[seconds * (1 + 0.01 * (at * 7 % 20)) for at in range(20)] for seconds in TEN]
    whole = [each for n in range(2) for each in made_up.rounds_of(made_up.case("matmul", n=n), blocks)]
    files(tmp_path, whole, cut(whole, 12))
    from_files = compare(tmp_path, "--format", "csv")
    command = [sys.executable, "-m", "dlbench", "compare", "/dev/stdin", "new.jsonl", "--format", "csv"]
    with (tmp_path / "base.jsonl").open("rb") as base, subprocess.Popen(["cat"], stdin=base, stdout=subprocess.PIPE) as pipe:
        piped = subprocess.run(command, stdin=pipe.stdout, capture_output=True, text=True, cwd=tmp_path)
    assert piped.stdout.replace(",stdin,", ",base,") == from_files.out


def test_a_case_that_is_held_back_and_slower_by_its_times_alone_is_4(tmp_path):
    files(tmp_path, cases(2), [*cases(1), *cases(2, [1, 10], steady=False)[10:]])
    done = compare(tmp_path)
    assert (done.code, done.out.splitlines()[-1]) == (4, "1 same, 1 inconclusive; exit 4")
    assert "matmul n=1: unsteady in the new file; its times alone would say slower\n" in done.out
    assert "note: a slowdown of 25.0 % or more is not excluded in 1 of 2 cases; measure again on a quieter machine\n" in done.err
    files(tmp_path / "same", cases(2), [*cases(1), *cases(2, steady=False)[10:]])
    done = compare(tmp_path / "same")
    assert done.code == 0
    assert "with --detect 25% that would end with 4" in done.err


@pytest.mark.parametrize(("others", "code"), [(1, 0), (2, 4)])
def test_where_most_cases_are_incomparable_nothing_was_decided(tmp_path, others, code):
    def threads(count):
        return [replace(each, threads=count) for n in range(1, others + 1) for each in cases(n + 1)[10 * n :]]

    files(tmp_path, [*cases(1), *threads(2)], [*cases(1), *threads(4)])
    done = compare(tmp_path)
    assert (done.code, done.out.splitlines()[-1]) == (code, f"1 same, {others} incomparable; exit {code}")
    assert ("with --detect" in done.err) is (code == 0)
    assert "; ;" not in done.err


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
    case = made_up.case(device="cuda:0", n=1)
    for name, times, clock in (("base", 1.0, 1.98e9), ("new", factor, clock_hz)):
        state = {"accelerators": {"cuda:0": {"clock_sm_hz": clock}}}
        made_up.write(tmp_path / f"{name}.jsonl", made_up.rounds_of(case, made_up.flat([times * each for each in TEN])), state=state)
    (row,) = json.loads(compare(tmp_path, "--format", "json").out)
    assert row["compare.verdict"] == verdict
    if verdict != "inconclusive":
        explained = 100 * (max(clock_hz, 1.98e9) / min(clock_hz, 1.98e9) - 1)
        assert row["compare.note"].endswith(f" GHz in the new file, which explains {explained:.1f} % at most")


def test_what_a_clock_explains_but_for_fewer_slow_calls_is_not_faster(tmp_path):
    case = made_up.case(device="cuda:0", n=1)
    for name, calls, clock_hz in (("base", (1.8, 1.8, 5.4), 1.1e9), ("new", (1.0, 1.0, 1.0), 1.98e9)):
        rounds = made_up.rounds_of(case, [[each * call for call in calls] for each in TEN])
        made_up.write(tmp_path / f"{name}.jsonl", rounds, state={"accelerators": {"cuda:0": {"clock_sm_hz": clock_hz}}})
    (row,) = json.loads(compare(tmp_path, "--format", "json").out)
    assert (row["median.verdict"], row["compare.verdict"]) == ("faster", "inconclusive")


def test_a_case_that_reports_values_alone_is_judged_whatever_its_clocks(tmp_path):
    declared = {"serve": {"values": [{"name": "p99_s", "unit": "s", "direction": "lower", "meaning": "m"}], "parallel": {}}}
    for name, clock_hz in (("base", 1.98e9), ("new", 1.1e9)):
        rounds = made_up.rounds_of(made_up.case("serve", "cuda:0"), made_up.flat(TEN), memory=Memory())
        reported = [made_up.with_values(made_up.without_rounds(each), p99_s=0.5) for each in rounds]
        state = {"accelerators": {"cuda:0": {"clock_sm_hz": clock_hz}}}
        made_up.write(tmp_path / f"{name}.jsonl", reported, state=state, workloads=declared)
    done = compare(tmp_path, "--format", "json")
    assert (done.code, json.loads(done.out)[0]["compare.verdict"]) == (0, "same")
