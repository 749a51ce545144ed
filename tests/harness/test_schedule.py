"""Cases that come again, as long as that helps, fits or is paid for; and the start of processes: none of them is a real one."""

import math
import random
import statistics
from collections import namedtuple
from dataclasses import replace
from itertools import product
from types import SimpleNamespace

import made_up
import pytest

from dlbench.core.conditions import Throttling
from dlbench.core.measurement import Measurement, Samples
from dlbench.core.model import Case, Policy, Status
from dlbench.core.stats import median_interval
from dlbench.harness import pool
from dlbench.harness.process.launch import Interruption
from dlbench.harness.process.worker_process import RequestOutcome
from dlbench.harness.progress import LOOK_S, MOST_BLOCKS, MOST_S, Progress, SeriesRounds, allocate_rounds
from dlbench.harness.ranks.placement import place_ranks
from dlbench.harness.schedule import DeviceQuarantine, Retries, RunSettings, Side, Task, best_try, in_order

HOT, COOL, DISTURBED = Throttling(thermal=0.5), Throttling(thermal=0.0), Throttling(thermal=0.0, waiting=0.051)


def case(name, device="cpu", side=None):
    return Task(Case(f"{name}@{device}", "s", name, {}, device), Side({device: None}, name=side))


def sides(*conditions):
    """A try at a case on as many sides."""
    return [Measurement(case("a").case, 0, Status.OK, throttling=each) for each in conditions]


def played(cases, held_back, how=HOT, most=3, left_s=math.inf):
    """Play a round in which the tries in ``held_back`` are; return the tries with their pauses."""
    retries, seen = Retries(most), []
    for attempt in retries.of_round(cases):
        tried = f"{attempt.tasks[0].case.workload}{len(attempt.earlier_tries) + 1}"
        seen.append(f"{tried}+{attempt.pause_s:g}" if attempt.pause_s else tried)
        retries.grant(attempt, sides(how if tried in held_back else COOL), left_s)
    return seen


def test_cases_that_share_a_group_of_processes_are_neighbours_behind_all_others():
    params = [{"ranks": 2}, {"instances": 2}, {"instances": 2, "threads": 1}, {}] * 4
    tasks = [Task(Case(f"c{number}", "s", "w", each, "cpu"), Side({"cpu": None})) for number, each in enumerate(params)]
    for number in range(3):
        ordered = [task.case.params for task in in_order(tasks, Policy(), 7, number)]
        assert ordered[:4] == [{}] * 4
        assert [ordered[at : at + 4] for at in (4, 8, 12)] == [[ordered[at]] * 4 for at in (4, 8, 12)]


@pytest.mark.parametrize(
    ("names", "held_back", "options", "tries"),
    [
        ("abc", "a1 a2 b1", {}, "a1 b1 c1 a2+1 b2+1 a3+4"),
        ("ab", "a1 a2 a3 b1", {"how": DISTURBED}, "a1 b1 a2 b2 a3"),
        ("a", "a1", {"how": DISTURBED, "left_s": -0.1}, "a1"),
        ("a", "a1", {"left_s": 0.5}, "a1"),
        ("a", "a1 a2", {"left_s": 1.0}, "a1 a2+1"),
        ("a", "a1 a2 a3 a4 a5", {"most": 1}, "a1"),
        ("a", "a1 a2 a3 a4 a5", {"most": 2}, "a1 a2+1"),
        ("a", "a1 a2 a3 a4 a5", {"most": 5}, "a1 a2+1 a3+4 a4+4 a5+4"),
    ],
)
def test_a_case_that_was_held_back_comes_again_at_the_end_as_often_as_the_policy_says(names, held_back, options, tries):
    assert played([case(name) for name in names], held_back.split(), **options) == tries.split()


def test_a_case_that_nothing_held_back_that_failed_or_that_is_a_search_comes_once():
    retries, (hot,) = Retries(3), sides(HOT)
    (attempt,) = retries.of_round([case("a")])
    for told in (*sides(None, Throttling(), Throttling(power_cap=1.0)), replace(hot, status=Status.OOM), replace(hot, found={"batch": 8})):
        assert not retries.grant(attempt, [told], math.inf)


def test_the_sides_of_a_case_come_again_together_whichever_was_held_back():
    retries, seen = Retries(3), []
    for attempt in retries.of_round([case(name, side=side) for name in "ab" for side in "xy"]):
        seen.append("".join(task.case.workload + task.side.name for task in attempt.tasks))
        retries.grant(attempt, sides(COOL, DISTURBED if len(seen) == 1 else None), math.inf)
    assert seen == ["axay", "bxby", "axay"]


ALL = "abcdefghijklmnopq"


@pytest.mark.parametrize(
    ("held_back", "others", "more"),
    [
        ([f"{name}{tries}" for name in ALL for tries in (1, 2, 3)], [], 3),
        # A round in which all but two are calm tries these again, and so does one that is disturbed from its middle on.
        (["c1", "q1"], [], 2),
        ([f"{name}1" for name in "jklmnopq"], [], 8),
        # Another device has a count of its own.
        ([f"{name}1" for name in f"{ALL}r"], [case("r", "cuda:0")], 4),
    ],
)
def test_where_most_of_a_round_is_held_back_a_handful_of_cases_comes_again_once(held_back, others, more):
    cases = [*map(case, ALL), *others]
    assert len(played(cases, held_back, DISTURBED)) == len(cases) + more


Rounds = namedtuple("Rounds", "variance count took_s")  # as much of `SeriesRounds` as `allocate_rounds` asks for


@pytest.mark.parametrize(
    ("spreads", "left_s", "more"),
    [
        pytest.param([(4.0, 6, 1.0), (1.0, 6, 1.0)], 24.0, [18, 6], id="twice the deviation, twice the rounds in the end"),
        pytest.param([(1.0, 6, 1.0), (1.0, 6, 4.0)], 42.0, [18, 6], id="four times the cost, half as many rounds"),
        pytest.param([(1.0, 6, 1.0), (9.0, 6, 100.0)], 3.0, [3, 0], id="what does not fit leaves its time to others"),
        pytest.param([(9.0, 7, 1.0), (1.0, 99, 1.0), (0.1, 96, 1.0)], 99.0, [92, 0, 3], id="none more than the most"),
        pytest.param([(1.0, 6, 1.0)], 0.5, [0], id="no time left"),
        pytest.param([], 9.0, [], id="no case"),
    ],
)
def test_time_left_buys_rounds_where_they_take_most_variance_off_for_a_second(spreads, left_s, more):
    assert allocate_rounds([Rounds(*each) for each in spreads], 99, left_s) == more


def test_a_device_that_fails_twice_in_a_row_is_given_up_on_its_side():
    quarantine, here, there = DeviceQuarantine(), case("a", "cuda:0", side="a"), case("a", "cuda:0", side="b")
    for task, fault in ((here, True), (there, True), (here, False), (here, True), (here, True)):
        assert quarantine.why_skipped(here, ("cuda:0",)) is None
        quarantine.note(task, fault, "gone")
    why = "cuda:0 failed in 2 processes in a row (gone)"
    assert quarantine.why_skipped(here, ("cuda:0",)) == f"{why}; check it, then measure again"
    assert [quarantine.why_skipped(task, (task.case.device,)) for task in (there, case("a", "cuda:1", side="a"))] == [None, None]
    assert quarantine.faults() == (f"side a: {why}",)


def measured(task, number, median_s, calls=1):
    samples = Samples(calls, (median_s,), first_call_s=0.0, warmup_s=0.5, steady=True)
    return Measurement(task.case, number, Status.OK, samples=samples)


BUDGET = Policy(rounds=7, max_rounds=20, budget_s=60.0)


def names(tasks):
    return [task.case.workload for task in tasks]


def test_a_budget_buys_extra_rounds_by_variance_and_cost_and_none_where_the_interval_is_narrow():
    cases = [case("steady"), case("noisy"), case("noisier, and slow"), case("few")]
    progress = Progress(cases, BUDGET, ())
    for number in range(7):
        late = 1 + 0.1 * (number % 2)
        for each, seconds in zip(cases[: 3 if number == 6 else 4], (1.0, late, late**1.5, 1.0), strict=False):
            progress.add(measured(each, number, seconds))
            progress.took(each.series, 100.0 if "slow" in each.case.workload else 1.0)
    # First what lacks one of the seven; then by what is gained for a second, as long as it fits.
    assert names(progress.pending(7, 1000.0)) == ["few"]
    progress.add(measured(cases[3], 7, 1.0))
    pending = [names(progress.pending(8, left_s)) for left_s in (1000.0, 99.0, 0.5)]
    assert pending == [["noisy", "noisier, and slow"], ["noisy"], []]
    progress.start_s = 98.5
    assert names(progress.pending(8, 99.0)) == []  # the processes of the round have to start, too


def test_the_time_left_is_what_each_case_took_last_else_what_the_policy_tells():
    cases = [case("a"), case("b"), case("c")]
    progress = Progress([*cases, Task(case("a", "cuda:0").case, Side({"cpu": None}))], Policy(rounds=3), ())
    progress.pending(0, math.inf)
    assert progress.left_s() == 3 * 3 * 1.5
    for task, took_s, measurement in (
        (cases[0], 4.0, measured(cases[0], 0, 1.0)),
        (cases[1], 2.0, Measurement(cases[1].case, 0, Status.OOM)),
    ):
        progress.took(task.series, took_s)
        progress.add(measurement)
    assert progress.left_s() == 2 * 4.0 + 3 * 1.5


def test_an_extra_round_takes_what_is_pending_in_it():
    slow, noisy = case("slow"), case("noisy")
    progress = Progress([slow, noisy], Policy(rounds=2, max_rounds=4, budget_s=60.0), ())
    for number, (each, took_s) in product(range(2), ((slow, 40.0), (noisy, 2.0))):
        progress.add(measured(each, number, 1.0 + number))
        progress.took(each.series, took_s)
    assert progress.left_s() == 0.0
    assert names(progress.pending(2, 30.0)) == ["noisy"]
    assert progress.left_s() == 2.0


def test_rounds_that_are_certain_to_come_are_those_that_the_policy_still_lacks():
    cases = [case("a"), case("b")]
    for policy, done, certain in ((BUDGET, cases[:1], 7), (BUDGET, cases, 6), (replace(BUDGET, rounds=1), cases, 1)):
        progress = Progress(cases, policy, [measured(each, 0, 1.0) for each in done])
        progress.pending(1, 60.0)
        assert progress.certain_rounds == certain


def test_a_resumed_run_knows_the_cost_of_a_round_from_its_file():
    slow, quick = case("slow"), case("quick")
    done = [measured(each, n, 1 + 0.1 * (n % 2), calls) for n in range(7) for each, calls in ((slow, 50), (quick, 1))]
    assert names(Progress([slow, quick], BUDGET, done).pending(7, 10.0)) == ["quick"]


def test_rounds_by_cost_leave_a_third_less_variance_than_as_many_seconds_spent_alike_and_lose_no_coverage():
    """Fourteen cases whose noise and cost are as far apart as those of quick; docs/protocol.md says how rounds are allocated."""
    noise, covered, promised, variances, alike, cases = random.Random(1), [], [], [], [], [case(f"c{n}") for n in range(14)]
    for _ in range(10):
        deviations = [noise.uniform(0.005, 0.04) * (4 if n % 5 == 0 else 1) for n in range(14)]
        costs = [0.3 * 1.15**n for n in range(14)]
        progress, left_s, medians = Progress(cases, BUDGET, ()), 11 * sum(costs), [[] for _ in cases]
        for number in range(20):
            for task in progress.pending(number, left_s):
                index = cases.index(task)
                medians[index].append(noise.lognormvariate(0, deviations[index]))
                progress.add(measured(task, number, medians[index][-1]))
                progress.took(task.series, costs[index])
                left_s -= costs[index]
        assert left_s >= 0
        intervals = [median_interval(each) for each in medians]
        covered += [each.low <= 1 <= each.high for each in intervals]
        promised += [each.confidence for each in intervals]
        variances.append(sum(deviation**2 / len(each) for deviation, each in zip(deviations, medians, strict=True)))
        alike.append(sum(deviation**2 / 11 for deviation in deviations))
    assert sum(variances) / sum(alike) == pytest.approx(0.66, abs=0.05)
    assert sum(covered) / len(covered) == pytest.approx(sum(promised) / len(promised), abs=0.01)


BUDGET_OF_QUICK = Policy(round_s=0.3, budget_s=180.0)


def a_round(progress, task, number, blocks, calls=1, set_up_s=0.6):
    spent_s = calls * sum(blocks)
    progress.took(task.series, set_up_s + spent_s)
    samples = Samples(calls, tuple(blocks), first_call_s=0.0, warmup_s=0.2, steady=True)
    progress.add(Measurement(task.case, number, Status.OK, side=task.side.name, samples=samples))


def test_the_second_round_looks_for_bursts_and_later_ones_last_as_long_as_that_narrows_the_interval():
    cases = [case("processes"), case("bursts"), case("calm")]
    progress, waves = Progress(cases, BUDGET_OF_QUICK, ()), [0.9, 1.1, 1.2, 0.8]
    lengths_s = []
    for number in range(4):
        assert progress.pending(number, 1e9) == cases
        longer = [progress.lengthened(task.case, BUDGET_OF_QUICK) for task in cases]
        lengths_s.append([each.round_s for each in longer])
        a_round(progress, cases[0], number, [0.01 * (1 + 0.1 * number)] * 100)
        a_round(progress, cases[1], number, [0.01 * level for level in waves for _ in range(25)])
        a_round(progress, cases[2], number, [0.01] * 100)
    assert lengths_s == [[0.3] * 3, [LOOK_S] * 3, lengths_s[2], [0.3, MOST_S, 0.3]]
    assert longer[1] == replace(BUDGET_OF_QUICK, round_s=MOST_S, max_blocks=MOST_BLOCKS)


def test_the_length_is_that_of_kalibera_and_jones():
    rounds = SeriesRounds(Policy(round_s=0.3, budget_s=60.0), took_s=1.6)
    for level in (1.0, 1.05, 0.95, 1.02):
        rounds.add([0.01 * level * wave for wave in (0.97, 1.03, 0.99, 1.01) for _ in range(25)], 1.0)
    within = statistics.variance((0.97, 1.03, 0.99, 1.01)) / 4
    between = (statistics.variance(map(math.log, (1.0, 1.05, 0.95, 1.02))) - within) * 3 / 9  # six degrees of freedom for the doubt
    assert math.sqrt(0.6 * within / between) == pytest.approx(0.4317, abs=1e-4)
    assert rounds.best_length_s() == pytest.approx(0.4317, rel=1e-3)


@pytest.mark.parametrize(
    ("set_up_s", "blocks", "length_s"),
    [(58.5, [0.01] * 30, 0.75), (59.9, [0.01] * 30, 0.3), (1.0, [0.01] * 30, LOOK_S), (1.0, [0.0] * 9, LOOK_S)],
)
def test_a_longer_round_ends_well_before_its_deadline(set_up_s, blocks, length_s):
    rounds = SeriesRounds(BUDGET_OF_QUICK, took_s=set_up_s + 0.3)
    rounds.add(blocks, 0.3)
    assert rounds.best_length_s() == pytest.approx(length_s)
    rounds.add([0.0, 0.0, 1.0], 0.0)
    assert 0.3 <= rounds.best_length_s() <= MOST_S


def test_both_sides_of_a_case_are_measured_as_long_in_each_round():
    sides = [case("a", side="a"), case("a", side="b")]
    progress = Progress(sides, BUDGET_OF_QUICK, ())
    for number in range(3):
        progress.pending(number, 1e9)
        lengths = {progress.lengthened(side.case, BUDGET_OF_QUICK).round_s for side in sides}
        for side, spread in zip(sides, (0.0, 0.2), strict=True):
            a_round(progress, side, number, [0.01 * level for level in (1 - spread, 1 + spread) for _ in range(50)])
    assert lengths == {MOST_S}


@pytest.mark.parametrize("policy", [replace(BUDGET_OF_QUICK, budget_s=None), replace(BUDGET_OF_QUICK, min_blocks=40, max_blocks=40)])
def test_the_policy_alone_says_how_long_a_round_is_without(policy):
    task = case("a")
    progress = Progress([task], policy, ())
    for number in range(3):
        progress.pending(number, 1e9)
        assert progress.lengthened(task.case, policy) is policy
        a_round(progress, task, number, [0.01, 0.02] * 20)


def test_longer_rounds_leave_time_for_all_that_the_policy_plans_and_their_cost_is_known():
    """Seventeen cases in the time of quick, whose start, set-up and least blocks take most of it."""
    cases, left_s = [case(f"c{n}") for n in range(17)], BUDGET_OF_QUICK.budget_s
    progress = Progress(cases, BUDGET_OF_QUICK, ())
    progress.start_s = 2.0
    spent = []
    for number in range(7):
        assert progress.pending(number, left_s) == cases
        expected_s, began_s = progress.start_s + progress.cases_s(cases), left_s
        assert expected_s <= left_s
        left_s -= progress.start_s
        for task in cases:
            length_s = progress.lengthened(task.case, BUDGET_OF_QUICK).round_s
            a_round(progress, task, number, [0.008, 0.009, 0.011, 0.012] * 2, calls=length_s / 0.08)
            left_s -= 0.6 + length_s
        spent.append(began_s - left_s)
        if number:
            assert spent[-1] == pytest.approx(expected_s)
    assert spent[0] == pytest.approx(2.0 + 17 * 0.9)
    assert 0 < left_s < 0.1 * BUDGET_OF_QUICK.budget_s


ROUNDS, SIDE = 7, Side({"cpu": None})


class Process:
    """In place of a real one, or of a group of them."""

    mode = "fork"
    usable = True

    def __init__(self, *_):
        self.answer = self.ask = self.send = lambda *_, **__: RequestOutcome("replied")

    def end(self):
        self.usable = False


Group = type("Group", (Process,), {})


def pool_of(threads, first):
    return pool.WorkerPool(RunSettings(Policy(), 0, "fork", threads), Interruption(), {None: first}, {})


@pytest.mark.parametrize(
    ("cpus", "there"),
    [
        (1, [1, 1, 1, 1, 1, 1, 1]),
        (2, [1, 2, 1, 2, 1, 2, 1]),
        (3, [1, 3, 2, 1, 3, 2, 1]),
        (64, [1, 4, 3, 2, 1, 2, 1]),  # the first goes on in the one that said which devices there are; then four at once, and what is left
    ],
)
def test_as_many_processes_of_later_rounds_start_beside_that_of_a_round_as_there_are_cpus(monkeypatch, cpus, there):
    made = [Process()]
    monkeypatch.setattr(pool, "WorkerProcess", lambda *_: made.append(Process()) or made[-1])
    counted = []
    with pool_of(cpus, made[0]) as workers:
        for number in range(ROUNDS):
            with workers.processes_of_round(number, [Task(made_up.case(), SIDE)], ROUNDS - number, training=False):
                counted.append(sum(process.usable for process in made))
    assert (counted, [process.usable for process in made]) == (there, [False] * ROUNDS)


def test_a_process_that_waits_for_a_later_round_is_not_started_again_where_each_round_starts_one_for_an_accelerator(monkeypatch):
    made, side = [Process()], Side({"cpu": None, "cuda:0": None})
    monkeypatch.setattr(pool, "WorkerProcess", lambda *_: made.append(Process()) or made[-1])
    with pool_of(64, made[0]) as workers:
        for number in range(ROUNDS):
            tasks = [Task(made_up.case(device=device), side) for device in ("cpu", "cuda:0")]
            with workers.processes_of_round(number, tasks, ROUNDS - number, training=False):
                pass
    assert (len(made), {process.usable for process in made}) == (2 * ROUNDS, {False})


def test_instances_of_a_try_end_before_the_next_one_of_the_search_is_measured(monkeypatch):
    monkeypatch.setattr(pool, "RankGroup", Group)
    there = []
    with pool_of(4, Process()) as workers:
        for settings in ({"instances": 2}, {"instances": 2}, {}, {"instances": 4}):
            case = made_up.case("told", **settings)
            workers.ask(SimpleNamespace(case=case, policy=Policy()), SIDE, place_ranks(case, SIDE.capacities(4)), None, math.inf)
            there.append([key[2] for key, each in workers._workers.items() if each.usable])
    two, four = "2 instances on cpu, threads None", "4 instances on cpu, threads None"
    assert there == [[two], [two], ["cpu"], ["cpu", four]]


@pytest.mark.parametrize(
    ("policy", "medians", "rounds"),
    [
        pytest.param(Policy(rounds=7), [1.0, 2.0] * 20, 7, id="without a budget all have the same"),
        pytest.param(Policy(rounds=7, budget_s=60), [1.0] * 40, 7, id="a narrow interval"),
        pytest.param(Policy(rounds=7, budget_s=60, max_rounds=20), [1.0, 2.0] * 40, 20, id="a wide interval"),
        pytest.param(Policy(rounds=7, budget_s=60), [1.0, 1.5, *[1.0] * 8], 9, id="until it is narrow"),
        pytest.param(Policy(rounds=7, budget_s=60), [None] * 40, 7, id="an experiment has no medians"),
    ],
)
def test_a_budget_buys_more_rounds_only_where_the_interval_is_wide(policy, medians, rounds):
    rule = SeriesRounds(policy)
    for count, median in enumerate(medians):
        if rule.done():
            assert count == rounds
            return
        rule.add([median] if median else (), 1.0)
    assert (rule.done(), len(medians)) == (True, rounds)


def simulated_run(noise, sd, policy):
    """Round medians around one, as many as the rule takes."""
    rule, medians = SeriesRounds(policy), []
    while not rule.done():
        medians.append(noise.lognormvariate(0, sd))
        rule.add(medians[-1:], 1.0)
    return medians


@pytest.mark.parametrize(
    ("policy", "covered"),
    [
        pytest.param(Policy(), 0.984, id="seven rounds"),
        pytest.param(Policy(rounds=20), 0.959, id="twenty rounds"),
        pytest.param(Policy(budget_s=60), 0.94, id="a budget"),
    ],
)
def test_stopping_on_precision_costs_a_percent_of_coverage(policy, covered):
    """Where rounds differ by 3.5 %, the worst for it; docs/protocol.md tells the share."""
    noise, runs = random.Random(1), 2000
    intervals = [median_interval(simulated_run(noise, 0.035, policy)) for _ in range(runs)]
    assert sum(each.low <= 1 <= each.high for each in intervals) / runs == pytest.approx(covered, abs=0.008)


HEATED = {"waiting": 0.2, "thermal": 0.5}


@pytest.mark.parametrize(
    ("tries", "kept"),
    [
        pytest.param([{"waiting": 0.067}, {"waiting": 0.669}, {"waiting": 0.3}], 0, id="least lost"),
        pytest.param([{"waiting": 0.2, "stolen": 0.2}, {"waiting": 0.3}, {"waiting": 0.1, "stolen": 0.3}], 1, id="stolen counts"),
        pytest.param([HEATED, {"waiting": 0.6}, HEATED], 1, id="not throttled"),
        pytest.param([HEATED, {**HEATED, "waiting": 0.1}, HEATED], 1, id="all hot"),
        pytest.param([{"waiting": 0.3}, {"waiting": 0.2}, {"waiting": 0.2}], 2, id="the last of equal ones"),
        pytest.param([{"waiting": 0.2}, {"stolen": 0.1}, {"waiting": 0.3}], 2, id="not known"),
    ],
)
def test_of_several_tries_the_one_that_lost_least_counts(tries, kept):
    made = [sides(Throttling(**each)) for each in tries]
    assert best_try(made) is made[kept]
