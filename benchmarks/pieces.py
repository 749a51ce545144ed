"""Pieces of a reference run, each some cases of a suite in files of their own: what they still want, and about how long it takes."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dlbench.cli.options import PlanOptions
from dlbench.cli.planning import load_suites, plan_suites
from dlbench.core.model import Case, Params, Policy, Status, kind_of
from dlbench.core.precision import PRECISIONS
from dlbench.core.store import RunFile, load
from dlbench.harness.plan.cases import estimate
from dlbench.harness.progress import Progress
from dlbench.harness.schedule import Side, Task

COMPILE_S, LONGEST_COMPILE_S = 60.0, 90.0
"""A cold compile of a step, usually and at most; in the first round alone."""
WARM_COMPILE_S = 10.0
"""The same in each later round, from the compiler's cache."""
COPIES_S, COPYING_ROUNDS = 4.5 / 2**30, 2
"""A byte of a product's operands and output, copied in each way a few times, as on the host of an H100: 3.1 s for n=8192 in fp32; and
in how many rounds."""
PROFILE_S = 1.5
"""Of a step, in one round: three steps under the profiler and reading its events."""
TRIES = {"largest": 12, "fastest": 50}
"""Of a search, by its aim, as counted on CPUs and on a scripted card."""
WARMUP_S = 0.5
"""Least warm-up on an accelerator, where the policy leaves it open."""


@dataclass(frozen=True)
class Piece:
    """Cases of a suite, and the stem of the files that they are measured into."""

    name: str
    suite: str
    expression: str | None = None
    """For ``-k``: some of the suite's cases; a file keeps what it was begun with, so these have files of their own."""

    @property
    def selection(self) -> tuple[str, ...]:
        """The words of the command line that choose the cases."""
        return (self.suite, *(("-k", self.expression) if self.expression else ()))

    def files_in(self, folder: Path) -> list[Path]:
        """Return the files that there are of the piece, and one more."""
        paths = [folder / f"{self.name}.jsonl"]
        while paths[-1].exists():
            paths.append(folder / f"{self.name}-{len(paths) + 1}.jsonl")
        return paths


@dataclass(frozen=True)
class Planned:
    """The cases of a piece before anything of it is measured, and the policy of its suite."""

    cases: tuple[Case, ...]
    policy: Policy
    tries: Mapping[str, int]
    """About how many each search will make, by its case's id."""
    compiling: frozenset[str]
    """Ids of the cases that are compiled, or that try compiling."""
    steps: int
    """Cases that are profiled once."""

    @property
    def on_accelerator(self) -> bool:
        """Whether each round starts a process on an accelerator."""
        return any(kind_of(each.device) != "cpu" for each in self.cases)

    def round_s(self) -> float:
        """Return about how long a round takes, without starts, compiling, copies and profiles."""
        there = sum(kind_of(each.device) != "cpu" for each in self.cases)
        once = replace(self.policy, rounds=1, budget_s=None)
        warm = once if once.warmup_s is not None else replace(once, warmup_s=WARMUP_S)
        return estimate(once, len(self.cases) - there) + estimate(warm, there)

    def copies_s(self) -> float:
        """Return about how long the copies of large products take in one round."""
        return COPIES_S * sum(
            _operands_bytes(case.params) for case in self.cases if case.workload == "matmul" and kind_of(case.device) != "cpu"
        )

    def more_s(self, rounds: int) -> float:
        """Return what copies, profiles and compiling from the cache take in the first rounds."""
        warm_s = WARM_COMPILE_S * len(self.compiling) * max(0, rounds - 1)
        return min(rounds, COPYING_ROUNDS) * self.copies_s() + PROFILE_S * self.steps + warm_s


def _operands_bytes(params: Params) -> float:
    m, n, k = (params.get(name) or params["n"] for name in "mnk")
    return float(m * k + k * n + m * n) * PRECISIONS[str(params["dtype"])].bytes  # type: ignore[operator]  # sizes


def planned(piece: Piece, hello: Mapping[str, Any], devices: Sequence[str]) -> Planned:
    """Plan a piece for these devices. Raises UsageError, SuiteError or DeviceAbsent as ``dlbench run`` would."""
    options = PlanOptions(names=(piece.suite,), expression=piece.expression, device_words=tuple(devices))
    plan = plan_suites(load_suites(options), hello, options)
    cases = tuple(plan.cases)
    tries, compiling = {}, {each.id for each in cases if each.params.get("mode") == "compile"}
    for case in cases:
        declared = plan.signatures[case.workload].declared
        if declared.searches(case.params):
            tries[case.id] = TRIES["largest" if declared.value("largest") else "fastest"]
            compiling |= {case.id} if "mode" in declared.searched and "mode" not in case.params else set()
    steps = [each for each in cases if plan.signatures[each.workload].declared.is_step and kind_of(each.device) != "cpu"]
    return Planned(cases, plan.policy, tries, frozenset(compiling), sum(each.id not in tries for each in steps))


@dataclass(frozen=True)
class Standing:
    """How far the files of a piece are: what the fullest of them still wants to reach so many rounds."""

    left: int
    """Measurements."""
    cases: int
    seconds: float
    """About how long those take, the starts of processes included."""
    useful_s: float
    """Of that the least which is worth a start: a round, or what is left of one; or the longest cold compile."""


def standing(plan: Planned, files: Sequence[RunFile], rounds: int, start_s: float) -> Standing:
    """Return the state of a piece, by the rounds measured so far, else by its policy; ``start_s``: of a process with an accelerator."""
    file = min(files, key=lambda each: measurements_left(each, rounds), default=None)
    count = len(plan.cases) if file is None else int(file.header["planned"]["count"])
    left = count * rounds if file is None else measurements_left(file, rounds)
    if file is not None and file.states and file.measurements:
        seen = {each.case.id for each in file.measurements if each.status is not Status.SKIPPED}
        # What copies take is in the time of a case by then, and what compiling from the cache takes from its second round on.
        case_s, copies_s = _seconds_a_case(file), 0.0
        more_s = WARM_COMPILE_S * len(plan.compiling) * (rounds - 1) if len(file.states) == 1 else 0.0
    else:
        seen = set()
        case_s, copies_s, more_s = plan.round_s() / max(1, len(plan.cases)), plan.copies_s(), plan.more_s(rounds)
    cold = len(plan.compiling - seen)
    begin_s = start_s if plan.on_accelerator else 0.0
    tries = sum(number for name, number in plan.tries.items() if name not in seen)
    rounds_to_go = math.ceil(left / max(1, count))
    useful_s = begin_s + (LONGEST_COMPILE_S if cold else min(left, count) * case_s + copies_s)
    seconds = (left + tries) * case_s + cold * COMPILE_S + rounds_to_go * begin_s + more_s
    return Standing(left, count, seconds if left else 0.0, useful_s)


def _seconds_a_case(file: RunFile) -> float:
    """Return the mean seconds of a measurement in a file's rounds, those left out and tried again counted, without cold compiling."""
    values = [each.values.get("compile_cold_s", 0.0) for each in (*file.measurements, *file.tries)]
    cold_s = sum(each for each in values if isinstance(each, float))
    made = len(file.measurements) + len(file.discarded) + len(file.tries)
    return max(0.0, sum(each.seconds for each in file.states) - cold_s) / made


def measurements_left(file: RunFile, rounds: int) -> int:
    """Return how many measurements a file still wants for so many rounds of each case, by the rules of the runner.

    A case that was left out for want of time has all its rounds to come, so a footer alone does not make a file complete. One that its own
    process left out, as what it needs is taken by others, counts as measured: it would be left out again.
    """
    tasks = {each.series: Task(each.case, Side(name=each.side)) for each in file.measurements if not _left_out_by_itself(each)}
    unseen = int(file.header["planned"]["count"]) - len({each.series for each in file.measurements})
    return unseen * rounds + Progress(list(tasks.values()), replace(Policy(), rounds=rounds), file.measurements).left()


def _left_out_by_itself(measurement: Any) -> bool:
    return measurement.status is Status.SKIPPED and bool(measurement.started)


def load_all(paths: Sequence[Path]) -> list[RunFile]:
    """Load result files. Raises ResultFileError for the first that can't be read."""
    return [load(path) for path in paths]
