"""Sentences on rows and ratios, and the texts of cells. Every number goes through `core.units`."""

import math
import shlex
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import chain
from operator import attrgetter, itemgetter
from typing import Any

from dlbench.analysis.answers.engine.question import EXPLANATIONS, Table, Tag, detail, table, tags_of
from dlbench.analysis.presentation import names, wording
from dlbench.analysis.ratios.matching import Unmatched, grouped, launch_bound
from dlbench.analysis.read.header import ENOUGH_ROUNDS, Environments, began, option_for
from dlbench.analysis.read.runs import part
from dlbench.analysis.read.table import Results
from dlbench.core import units
from dlbench.core.machine import leaves
from dlbench.core.model import Status, settings_text
from dlbench.core.rows.rates import NOTHING_STATED
from dlbench.core.rows.row import Row
from dlbench.core.stats import known

_ENTRIES = (
    detail("entry", "text", "entry", "what it is", itemgetter(0)),
    detail("value", "text", "value", "as recorded", itemgetter(1)),
)
_RECORDED = ("identity", "stack", "side", "provenance", "state", "state_after")
_PROVENANCE = ("dlbench", "utc", "git")


def dates_and_versions(environments: Environments) -> list[str]:
    """Return when files were measured and with which versions: ``2026-11-24 23:10 UTC``, ``torch 2.13.0``, ``dlbench 0.2.0``.

    Files that began at different times give the first day and the last. A fact that no file has is left out.
    """
    facts = list[str]()
    times = sorted(filter(None, map(began, environments.values())))  # as text: 2026-11-24T23:10:…
    if times:
        first, last = times[0], times[-1]
        days = dict.fromkeys((first[:10], last[:10]))  # only one if both are the same
        if first == last:
            facts.append(f"{first[:10]} {first[11:16]} UTC")  # day, hour and minute
        else:
            facts.append(" to ".join(days))
    for name, path in (("torch", ("stack", "versions", "torch")), ("dlbench", ("provenance", "dlbench"))):
        recorded = (part(environment, *path) for environment in environments.values())
        versions = dict.fromkeys(str(version) for version in recorded if version)
        if versions:
            facts.append(f"{name} {wording.few(versions, 3)}")
    return facts


def environment_tables(environments: Environments) -> list[Table]:
    """Return a table for each file: its machine and software, when it was measured, and the machine's state before and after."""
    found = []
    for run, each in environments.items():
        recorded = {**each, "provenance": {name: part(each, "provenance", name) for name in _PROVENANCE}}
        ends = [(name, end) for block in _RECORDED for name, end in leaves(block, recorded.get(block) or {}).items()]
        named = ((name if name.startswith("state_after") else name.partition(".")[2], end) for name, end in ends)
        found.append(table(run, _ENTRIES, [wording.entry(name, end) for name, end in named if end not in (None, {}, [])]))
    return found


_MARKED_ELSEWHERE = (Tag.FEW_ROUNDS, Tag.UNFINISHED)
"""Limits of a case that its spread or its status shows, and no mark."""
# Closed set of marks that are no limit of an answer: what each means, and what to do about it.
MARKS: Mapping[str, tuple[Callable[[Row], bool | None], str]] = {
    "power cap": (attrgetter("flag.power_capped"), "compare only with runs under the same limit, or raise it"),
    "implausible": (attrgetter("flag.implausible"), "impossible in that time and in no ratio; why is below the case"),
    "launch-bound": (launch_bound, "it waits for launches a third of the time; larger batch or compile"),
}
_ROUNDS_SPREAD = "min–max"
_BLOCKS_SPREAD = "p10–p90"
_SPREADS = {
    _ROUNDS_SPREAD: "spread of the rounds, as fewer than six carry no 95 % interval",
    _BLOCKS_SPREAD: "spread within one process, which hides how processes differ",
}
SHARES: Mapping[str, Callable[[Row], tuple[float | None, object, str]]] = {
    "peak": lambda row: (row.rate.peak_fraction, row.rate.peak, row.rate.peak.of if row.rate.peak else ""),
    "ceiling": lambda row: (row.rate.ceiling_fraction, row.rate.ceiling, row.rate.ceiling.kind if row.rate.ceiling else ""),
}
"""Functions by the heading of a share. Each returns a row's share, the rate that it is a share of, and ``arithmetic`` or ``memory``."""
_OF_SHARES = {
    "peak": "share of the published peak of arithmetic, or of memory where it says so. ",
    "ceiling": "share of the most that any case in the same precision, or moves of memory where it says so, reached there. ",
}
_REMEDIES = {"throttled": "cool the device or raise its CPU quota", "disturbed": "stop what else runs"}
"""Remedies by the flag of a spoiled case."""
_MANY = 4
"""Cases that failed alike from which on one line below the table has their reason."""
_SEVERAL = 2
"""Cases that could not be measured, for the same reason, from which on one line stands for all of them."""
_NAMED = 2
"""Cases that a note names."""
_COPIES = (
    "copying inputs there and the output back, from and to pageable memory as plain code does around each call: its share of the whole"
)


def extent(results: Results) -> str:
    """Return the extent of a run: suites, cases and those that did not end well, rounds, duration: ``quick, 14 cases (1 oom), 1:01``."""
    rows, files = results.rows, results.files
    suites = wording.few(dict.fromkeys(row.case.suite for row in rows), _NAMED, "suite")
    ended = Counter(names.status(row) for row in rows if row.case.status and row.case.status is not Status.OK)
    outcomes = f" ({', '.join(f'{count} {status}' for status, count in ended.items())})" if ended else ""
    cases = f"{wording.plural(len(rows), 'case')}{outcomes}"
    common = common_rounds(rows)
    rounds = "" if common is None else wording.plural(common, "round")
    all_timed = len(files.seconds) == len({*files.paths.values()}) > 0
    duration = units.clock_time(sum(files.seconds.values())) if all_timed else ""
    return ", ".join(filter(None, (suites, cases, rounds, duration)))


def devices(rows: Sequence[Row], most: int | None = None) -> list[str]:
    """Return a line for each device and place, such as ``cpu: AMD EPYC 7B13, 2 threads``; after ``most`` lines the number of the rest."""
    several = names.several_runs(rows)
    named = {names.device_label(row, several): row for row in names.most_threads_last(rows)}
    lines = [units.one_line(f"{label}: {names.name_and_threads(row)}") for label, row in named.items()]
    return [*lines[:most], *([f"and {len(lines) - most} more"] if most and len(lines) > most else [])]


def not_usable(results: Results) -> list[str]:
    """Return a line for each run that is not usable, with what to do: ``not usable: 14 of 17 cases disturbed in most rounds; …``."""
    results = results.files
    several = names.several_runs(results.rows)
    lines = []
    for run, rows in grouped((row for row in results.rows if row.flag.not_usable), lambda row: row.case.run).items():
        ok = [row for row in rows if row.is_ok]
        spoiled = [row for row in ok if row.is_mostly_disturbed]
        remedies = {flag: remedy for flag, remedy in _REMEDIES.items() if any(getattr(row.flag, flag) for row in spoiled)}
        extent = f"{len(spoiled)} of {wording.plural(len(ok), 'case')} {' or '.join(remedies)} in most rounds"
        command = measuring_command(rows, results.environments.get(run, {}))
        remedy = f"{' and '.join(remedies.values())}, and measure again: {command}"
        lines.append(units.one_line(f"not usable: {f'{run}: ' if several else ''}{extent}; {remedy}"))
    return lines


def measuring_command(rows: Sequence[Row], environment: Mapping[str, Any], case_id: str | None = None) -> str:
    """Return the command that measures the cases of one run again, quoted for a shell, with the run's options; or one case, by its id."""
    recorded = part(environment, "provenance", "command")
    options = [each for each in recorded if each and isinstance(each, list)] if isinstance(recorded, list) else []
    command = options or [["run", *dict.fromkeys(row.case.suite for row in rows)]]
    if case_id is not None:
        command = [*(each for each in command if each[0] != "-k"), ["-k", case_id]]
    return shlex.join(units.one_line(str(word)) for word in ("dlbench", *chain.from_iterable(command)))


def marks(rows: Sequence[Row], results: Results) -> dict[str, str]:
    """Return each mark of these rows, the limits of answers first, with what it means and what to do."""
    limits = {tag for row in rows for tag in tags_of(row)}
    found: dict[str, str] = {tag: EXPLANATIONS[tag] for tag in Tag if tag in limits}
    if Tag.FEW_ROUNDS in found:
        without = {row.file for row in rows if row.is_ok and row.time.ci_low_s is None}
        spent = [budget for run, budget in results.budgets.items() if run in without]
        found[Tag.FEW_ROUNDS] = f"no 95 % interval of a case; give {option_for(ENOUGH_ROUNDS, spent)}"
    return found | {mark: sentence for mark, (is_set, sentence) in MARKS.items() if any(map(is_set, rows))}


def shared_marks(rows: Sequence[Row]) -> set[str]:
    """Return the marks that all of several timed rows have; not that of a tail, which has a number of its own in each."""
    marks_by_row = [{*tags_of(row)} - {Tag.TAIL} for row in rows if row.time.median_s is not None]
    return {*set.intersection(*marks_by_row)} if len(marks_by_row) > 1 else set()


def legends(rows: Sequence[Row]) -> dict[str, str]:
    """Return the meanings of columns of the table of these rows, by heading."""
    kinds = {spread(row)[0] for row in rows}
    found = {kind: sentence for kind, sentence in _SPREADS.items() if kind in kinds}
    for what, sentence in _OF_SHARES.items():
        rates = known(SHARES[what](row)[1] for row in rows)
        if rates:
            figures = dict.fromkeys(map(str, rates))
            found[what] = sentence + "; ".join(figures)
    if any(row.transfer.share is not None for row in rows):
        found["copies"] = _COPIES
    return found


def common_endings(rows: Iterable[Row], *, failed: bool = False) -> dict[str, str]:
    """Return a line for each ending that several cases share, by that ending: ``26 cases unsupported, such as …: why``.

    An ending is the status and the reason of a case. By default the cases are those that could not be measured here. The table leaves out
    the rows for which there is a line, and a line takes `_SEVERAL` of them at least. With ``failed`` the cases are those that failed. Their
    rows stay in the table, and a line takes `_MANY` of them at least.
    """
    if failed:
        least = _MANY
        candidates = [row for row in rows if row.is_failure]
    else:
        least = _SEVERAL
        # An unfinished search counts as unmeasured, but it found something so far, which its own row shows.
        candidates = [row for row in rows if row.is_unmeasured and not row.case.unfinished]
    lines = dict[str, str]()
    for ending, alike in grouped(candidates, lambda row: row.ending).items():
        if len(alike) < least:
            continue
        first = alike[0]
        example = f", such as {wording.short(first.key)}" if first.has_device else ""  # a missing device needs no example
        lines[ending] = units.one_line(f"{len(alike)} cases {first.case.status}{example}: {first.reason}")
    return lines


def flag_reasons(rows: Sequence[Row]) -> list[str]:
    """Return a line for each reason of a flag, with its number of cases: ``12 cases: other processes took 0.2…0.8 CPUs' time``."""
    alike = grouped(known(row.flag.reason for row in rows), wording.numberless)
    groups = sorted(alike.values(), key=len, reverse=True)
    return [units.one_line(f"{wording.plural(len(each), 'case')}: {wording.merged(each)}") for each in groups]


def unpaired(rows: Iterable[Unmatched]) -> list[str]:
    """Return a line for each reason, with the rows that stand in no pair because of it."""
    return [
        units.one_line(f"{len(alike)} not paired, {reason}: {wording.few((f'{each.case} ({each.run})' for each in alike), _NAMED)}")
        for reason, alike in grouped(rows, lambda each: each.reason).items()
    ]


def missing_rates(results: Results) -> list[str]:
    """Return a line for each reason why timed workloads have no rate of operations or bytes, with their names and what to do."""
    without_rate = [row for row in results.rows if _lacks_rate(row)]
    lines = []
    for reason, alike in grouped(without_rate, lambda row: row.rate.reason or NOTHING_STATED).items():
        workloads = dict.fromkeys(f"{row.case.workload} {row.params.get('model') or ''}".rstrip() for row in alike)
        remedy = "; give Work flops=, bytes= or both" if reason == NOTHING_STATED else ""
        lines.append(units.one_line(f"{wording.few(workloads, _NAMED)}: {reason}, so rate, peak and ceiling stay empty{remedy}"))
    return lines


def _lacks_rate(row: Row) -> bool:
    """Whether a timed row has no rate of operations nor of bytes, and needs one; ceilings of launches and self-tests need none."""
    is_timed = row.time.median_s is not None
    has_rate = row.rate.flops_per_s is not None or row.rate.bytes_per_s is not None
    needs_none = bool(row.declared.ceiling) or "self" in row.declared.tags
    return is_timed and not has_rate and not needs_none


def spread(row: Row) -> tuple[str, str]:
    """Return the kind of a row's interval or spread, and its range; two empty texts where nothing was timed."""
    time, medians = row.time, row.rounds.median_s
    if time.ci_low_s is not None and time.ci_high_s is not None:
        kind, ends = wording.INTERVAL, (time.ci_low_s, time.ci_high_s)
    elif len(medians) > 1:
        kind, ends = _ROUNDS_SPREAD, (min(medians), max(medians))
    elif medians:
        kind, ends = _BLOCKS_SPREAD, (time.p10_s or 0.0, time.p90_s or 0.0)
    else:
        return "", ""
    return kind, wording.span(*ends, units.seconds)


def notes(row: Row, shared: Collection[str] = ()) -> list[str]:
    """Return the marks of a row, without those that it shares with all others."""
    # Without a time, the result of a search is shown as a value.
    found = [f"found {settings_text(row.case.found)}"] if row.case.found and row.time.median_s is not None else []
    found += [f"bus {units.byte_rate(row.rate.bus_bytes_per_s)}"] if row.rate.bus_bytes_per_s is not None else []
    mean_over_median = units.relative_change((row.time.mean_s or 0.0) / (row.time.median_s or math.nan) - 1)
    limits = [f"{tag} {mean_over_median}" if tag == Tag.TAIL else tag for tag in tags_of(row) if tag not in (*_MARKED_ELSEWHERE, *shared)]
    return found + limits + [mark for mark, (is_set, _) in MARKS.items() if is_set(row)]


def share_of(what: str, row: Row) -> str:
    """Return how much of its ``peak`` or ``ceiling`` a row reaches, ``83.1 %``, or ``41.0 % of memory``; empty where none is known."""
    fraction, _, kind = SHARES[what](row)
    return "" if fraction is None else f"{units.percent(fraction)}{' of memory' if kind == 'memory' else ''}"


def common_rounds(rows: Sequence[Row]) -> int | None:
    """Return the number of rounds if all ok rows have the same; it then needs no column."""
    counts = {row.time.rounds for row in rows if row.is_ok}
    return counts.pop() if len(counts) == 1 else None
