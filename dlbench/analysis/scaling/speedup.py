"""Speed-up of several devices over one: throughput, efficiency, and the communication and idle time that limit them."""

import statistics
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from dlbench.analysis.ratios.matching import MATH, RANKS, THREADS, label, settings_named
from dlbench.analysis.ratios.ratio import Ratio, speed_ratio
from dlbench.analysis.read.runs import part
from dlbench.analysis.read.table import Results
from dlbench.core.declarations import Parallel
from dlbench.core.model import ParamValue, kind_of
from dlbench.core.rank_test import shift_interval
from dlbench.core.rows.row import Row, Setting
from dlbench.core.stats import theil_sen
from dlbench.core.units import Unit

SCALES_FROM = 0.9
"""Efficiency from which on more devices are called well used."""
_WORKLOAD = Setting("case", "workload")


@dataclass(frozen=True, eq=False)
class Step:
    """A case with ranks, compared with the same work on one device."""

    row: Row
    models: tuple[str, ...] = ()
    """Names of the accelerators of its ranks, each once; empty for a CPU, or where the file does not say."""
    base: "Step | None" = None
    """The step on one device that it is set against."""
    ratio: Ratio | None = None
    """Its throughput over that of the base."""
    exposed_s: float | None = None
    """Communication that it waits for: its time less that of the same step without it."""
    bubble: float | None = None
    """Idle share of a pipeline's time, measured by other numbers of microbatches."""
    reason: str | None = None
    """Why there is no ratio, no interval, or no measured bubble."""

    @property
    def ranks(self) -> int:
        """Zero where it has no parameter of that name."""
        return self.row.ranks or 0

    @property
    def parallel(self) -> Parallel:
        """How its workload uses several devices."""
        return self.row.declared.parallel

    @property
    def form(self) -> ParamValue | None:
        """The kind of parallelism, where its workload has several."""
        return self.row.params.get("form")

    @property
    def kind(self) -> ParamValue | None:
        """``weak``: each device has a batch of its own; ``strong``: they share one; None where that is not said."""
        return self.row.params.get("scaling") or self.parallel.scaling

    @property
    def case(self) -> str:
        """The work: the case without ranks and scaling."""
        return label(self.row, ("ranks", "scaling"))

    @property
    def apart_from_ranks(self) -> Hashable:
        """A key that is equal for steps that differ in their ranks alone."""
        return self.case, self.kind, self.row.case.device, self.row.case.run

    @property
    def cores(self) -> int | None:
        """On a CPU the cores of each rank; else None."""
        return self.row.case.threads if self.row.is_on_cpu else None

    @property
    def processors(self) -> int:
        """Its devices, on a CPU its cores: ranks there share one device, and have the fewer cores the more they are."""
        return self.ranks * (self.cores or 1)

    @property
    def is_timed(self) -> bool:
        """Whether it went well and has times."""
        return self.row.is_ok and bool(self.row.rounds.median_s)

    @property
    def is_independent(self) -> bool:
        """Whether its devices communicate nothing."""
        return self.form in self.parallel.independent

    @property
    def is_unsynchronised(self) -> bool:
        """Whether its communication is switched off."""
        return self.row.params.get(self.row.declared.parameter("communicates") or "") is False

    @property
    def items(self) -> float | None:
        """Items that each of its ranks has; None where it does not say, or an edited file says what is no number."""
        batch = self.row.batch
        if not batch or not self.ranks:
            return None
        return batch / self.ranks if self.kind == "strong" else batch

    @property
    def bubble_theory(self) -> float | None:
        """Idle share of a pipeline by theory; None for anything else."""
        microbatches = self.row.count("microbatches")
        if microbatches is None or self.ranks < 2 or self.form not in self.parallel.pipelines:
            return None
        return (self.ranks - 1) / (microbatches + self.ranks - 1)

    @property
    def step_s(self) -> float | None:
        """Median time of a step that went well; None for an experiment."""
        return (self.row.time.median_s or None) if self.row.is_ok else None

    @cached_property
    def rates(self) -> tuple[float, ...]:
        """Items a second in each round, of an experiment as it reports them; empty where a round lacks them or has none."""
        rounds = self.row.rounds
        reported = [each.name for each in self.row.described if each.unit is Unit.ITEMS_PER_S and each.name in self.row.values]
        rates = rounds.items_per_s or (rounds.values.get(reported[0], ()) if reported else ())
        return rates if min(rates, default=0) > 0 else ()

    @property
    def items_per_s(self) -> float | None:
        """Items a second of all its devices together."""
        return self.row.rate.items_per_s or (statistics.median(self.rates) if self.rates else None)

    @property
    def resources(self) -> float | None:
        """How many times the devices of the base it has, on a CPU how many times its cores."""
        return self.processors / self.base.processors if self.base else None

    def per_resource(self, speedup: float | None) -> float | None:
        """Return a speed-up over the resources that it took; None where there is none."""
        return speedup / self.resources if speedup is not None and self.resources else None

    @property
    def speedup(self) -> float | None:
        """How many times the throughput of the base it has."""
        return self.ratio.speedup if self.ratio else None

    @property
    def efficiency(self) -> float | None:
        """Speed-up over resources."""
        return self.per_resource(self.speedup)

    @property
    def verdict(self) -> str | None:
        """Verdict on its devices, or how the case ended; None without a ratio.

        ``base`` is the step on one device. Others are ``scales`` where the interval shows an efficiency of `SCALES_FROM` at least,
        ``helps`` where it shows a smaller gain, ``slows`` where it shows a loss, else ``undecided``; ``implausible`` where their numbers
        can't be true.
        """
        if not self.row.is_ok:
            return str(self.row.case.status)
        if self.row.flag.implausible:
            return "implausible"
        if self.ranks == 1:
            return "base"
        if self.ratio is None:
            return None
        if self.ratio.is_behind:
            return "slows"
        if not self.ratio.is_ahead:
            return "undecided"
        least_efficiency = self.per_resource(self.ratio.low) or 0
        return "scales" if least_efficiency >= SCALES_FROM else "helps"

    def chosen(self, among: int) -> "Step":
        """Return it with an interval that allows for its choice as the best ``among`` several."""
        return replace(self, ratio=speed_ratio(self.base.rates, self.rates, among=among)) if self.base else self

    @cached_property
    def settings(self) -> frozenset[tuple[Setting, Hashable]]:
        """Settings that distinguish it from other steps; threads and flags go with the number of ranks."""
        found = self.row.settings().items()
        return frozenset((setting, value) for setting, value in found if setting not in (THREADS, MATH) and value is not None)

    @property
    def spread(self) -> set[Setting]:
        """The settings that only say how the step is spread over devices."""
        return {RANKS, *settings_named(self.row.declared.having("spread"))}

    def differing(self, other: "Step") -> set[Setting]:
        """Return the settings in which it differs from another."""
        return {setting for setting, _ in self.settings ^ other.settings}


def scaling(results: Results) -> list[Step]:
    """Return a step for each case with ranks that is no collective, in the order of the work, then of the ranks.

    The base of a case is the ``ok`` row of the same place, device, precision and work at one rank; of several the most similar one. Cases
    without synchronisation show the cost of synchronising, and have no step of their own.
    """
    with_ranks = (row for row in results.rows if row.ranks and not row.declared.having("collective_op"))
    steps = [Step(row, _models(row, results.environments)) for row in with_ranks]
    found = [_compare_with_base(each, steps) for each in steps if not each.is_unsynchronised]
    works = [each.case for each in found]
    return sorted(found, key=lambda each: (works.index(each.case), str(each.kind), each.row.case.device, each.row.case.run, each.ranks))


def _models(row: Row, environments: Mapping[str, Mapping[str, Any]]) -> tuple[str, ...]:
    """Return the names of the accelerators of the ranks, each once."""
    known = part(environments.get(row.case.run), "identity", "accelerators")
    if not isinstance(known, list):
        return ()
    kind = kind_of(row.case.device)
    names = [str(part(each, "name")) for each in known if part(each, "kind") == kind]
    return tuple(dict.fromkeys(names[: row.ranks]))


def _compare_with_base(step: Step, steps: Sequence[Step]) -> Step:
    """Return a step with its base, their ratio, its exposed communication and its bubble, and why any of them is missing."""
    base, why_no_base = _base(step, steps)
    ratio = speed_ratio(base.rates, step.rates) if base else None
    why_no_interval = ratio.reason if ratio and step.ranks > 1 else None
    bubble, why_no_bubble = _bubble(step, steps)
    reasons = dict.fromkeys(filter(None, (why_no_base, why_no_interval, why_no_bubble)))
    exposed_s = _exposed_communication(step, steps)
    return replace(step, base=base, ratio=ratio, exposed_s=exposed_s, bubble=bubble, reason="; ".join(reasons) or None)


def _base(step: Step, steps: Sequence[Step]) -> tuple[Step | None, str | None]:
    """Return the most similar step at one rank that does the same work, or None and the reason why there is none."""
    if not step.row.is_ok:
        return None, step.row.ending
    if len(step.models) > 1:
        return None, f"its devices are {' and '.join(step.models)}: one of them is no measure of the others"
    if not step.rates:
        return None, "it states no items, so it has no throughput"
    at_one_rank = [each for each in steps if each.ranks == 1 and each.row.is_ok and each.rates and not each.is_unsynchronised]
    candidates = [each for each in at_one_rank if _does_same_work(each, step)]
    base = min(candidates, key=lambda each: len(each.differing(step)), default=None)
    if base is None:
        return None, "no ok row of the same work with ranks = 1 to set it against"
    return base, None


def _does_same_work(candidate: Step, step: Step) -> bool:
    """Whether a candidate does the work of a step: it differs at most in how the two are spread over devices.

    A parallel step may be a workload of its own: what it computes is then the step that its workload declares.
    """
    may_differ = candidate.spread | step.spread
    if step.parallel.step:
        may_differ.add(_WORKLOAD)
    return candidate.parallel.step == step.parallel.step and candidate.differing(step) <= may_differ


def _exposed_communication(step: Step, steps: Sequence[Step]) -> float | None:
    """Return the seconds of communication that a step waits for: its time less that of the same step without it.

    The step without communication has its synchronisation switched off. If no such step was timed, it is one of a form whose devices
    communicate nothing. Its scaling and batch may differ if each rank has the same number of items. None if there is neither, if the
    workload has one form only, and for steps that do not communicate or have no times.
    """
    times_s = step.row.rounds.median_s
    if step.form is None or step.is_independent or step.ranks < 2 or not times_s:
        return None
    same_items = [each for each in steps if each.is_timed and each.items == step.items]
    may_differ = {*settings_named((*step.row.declared.having("communicates"), "scaling", "batch"))}
    unsynchronised = [each for each in same_items if each.is_unsynchronised and each.differing(step) <= may_differ]
    # An independent form is another way to spread the same step over as many ranks.
    may_differ_in_form = may_differ | (step.spread - {RANKS})
    independent = [each for each in same_items if each.is_independent and each.differing(step) <= may_differ_in_form]
    without_communication = [*unsynchronised, *independent]
    if not without_communication:
        return None
    # The estimate of how many seconds the step takes more, over the rounds of both.
    exposed_s, _ = shift_interval(without_communication[0].row.rounds.median_s, times_s)
    return exposed_s


def _bubble(step: Step, steps: Sequence[Step]) -> tuple[float | None, str | None]:
    """Return the measured idle share of a pipeline's step, or None and the reason why it was not measured.

    With p ranks and m microbatches of one batch a step takes w (1 + (p - 1) / m) in theory (GPipe: Huang et al.,
    https://arxiv.org/abs/1811.06965, section 2.3). Here w is the time of the step without a bubble. As a function of 1 / m the times lie on
    a line. Its intercept is w.
    """
    if step.bubble_theory is None or not step.is_timed:
        return None, None  # it is no pipeline, or has no time
    time_of: dict[int, float] = {}  # by the number of microbatches; the step itself comes last, so that its own time stands for its number
    for each in _same_pipeline(step, steps):
        if microbatches := each.row.count("microbatches"):
            time_of[microbatches] = statistics.median(each.row.rounds.median_s)
    line = theil_sen([1 / microbatches for microbatches in time_of], list(time_of.values()))
    if line is None:
        return None, "its bubble takes rows with another number of microbatches"
    without_bubble_s, _ = line
    step_s = statistics.median(step.row.rounds.median_s)
    if not step_s or not 0 <= without_bubble_s <= step_s:
        return None, "more microbatches did not make it faster, so what small ones cost hides the bubble"
    return 1 - without_bubble_s / step_s, None


def _same_pipeline(step: Step, steps: Sequence[Step]) -> list[Step]:
    """Return the timed steps that differ from a pipeline's step in the number of microbatches at most, that step last."""
    pipelines = step.parallel.pipelines
    whole_batch = pipelines[0]  # this form is any of the others with one microbatch
    forms = pipelines[:2] if step.form == whole_batch else (whole_batch, step.form)
    may_differ = {*settings_named(("form", "microbatches"))}
    others = [each for each in steps if each.is_timed and each.form in forms and each.differing(step) <= may_differ]
    return [*others, step]
