"""Header of a result file: machine, protocol, declarations, notes on what the file lacks, and the place that files share."""

import math
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from dlbench.core.declarations import Declaration
from dlbench.core.decoding import convert
from dlbench.core.errors import ResultFileError
from dlbench.core.machine import contradict, facts
from dlbench.core.measurement import CONFIRMING
from dlbench.core.model import Status
from dlbench.core.rows.row import Row
from dlbench.core.store import RunFile
from dlbench.core.thresholds import ThresholdSettings

Sides = Mapping[str | None, Mapping[str, Any]]
"""Entries of a header for each side; a plain run has the side None."""
Readings = Mapping[str, Mapping[str, Sequence[float]]]
"""Device to the name in the file to what was read after each round, in base units."""
READ = ("clock_hz", "clock_sm_hz", "clock_memory_hz", "temperature_c", "power_w")


def run_name(file: str, side: str | None) -> str:
    """Return the ``case.run`` of a file, or of a side of it."""
    return file if side is None else f"{file}:{side}"


def sides_of(run: RunFile, measured: Iterable[str | None]) -> Sides:
    """Return the entries of the header for each side, including sides that were ``measured``.

    The second measurement of a side has the entries of that side.
    """
    sides = run.header.get("sides", {})
    return {side: sides.get((side or "").removesuffix(CONFIRMING), {}) for side in (*(sides or [None]), *measured)}


def environments(run: RunFile, name: str, sides: Sides) -> dict[str, Mapping[str, Any]]:
    """Return the environment in which each ``case.run`` of a file was measured.

    ``state_after`` is the machine's state after the last case, and ``seconds`` the time of the whole run; ``gate`` is there only if
    ``run --gate`` measured it.
    """
    footer = run.footer or {}
    recorded = {"gate": run.header.get("gate"), "state_after": footer.get("state") or None, "seconds": footer.get("seconds") or None}
    shared = {**run.header.get("environment", {}), **{key: value for key, value in recorded.items() if value is not None}}
    return {run_name(name, side): {**shared, **entries} for side, entries in sides.items()}


def declarations(run: RunFile, side: Mapping[str, Any] | None = None) -> Mapping[str, Declaration]:
    """Return the declarations of a file's workloads, or of those of one ``side``, whose code may be another.

    Raises ResultFileError for a declaration that makes no sense.
    """
    found = {}
    for workload, payload in ((side or {}).get("workloads") or run.header.get("workloads", {})).items():
        try:
            found[workload] = declaration(payload)
        except ValueError as error:
            where = f"{run.path}, line 1: in the header, workloads.{workload}"
            raise ResultFileError(f"{where}: {error}; the file was edited or damaged") from error
    return found


def declaration(payload: object) -> Declaration:
    """Return a workload's declaration from a header. Raises ValueError with a sentence if it declares nothing, or makes no sense."""
    found = convert(Declaration, payload)
    if wrong := found.mistake():
        raise ValueError(wrong)
    return found


def device_readings(run: RunFile) -> Readings:
    """Return the readings of devices right after each round, or at the end of a file without states of its rounds; without unknown ones.

    Readings before a round are those of an idle device, and say nothing about its work.
    """
    readings: dict[str, dict[str, list[float]]] = {}
    for state in [each.after for each in run.states] or [(run.footer or {}).get("state") or {}]:
        for device, reading in {"cpu": state.get("cpu", {}), **state.get("accelerators", {})}.items():
            for name in READ:
                if value := reading.get(name):
                    readings.setdefault(device, {}).setdefault(name, []).append(value)
    return readings


_TIMING = ("round_s", "min_blocks", "max_blocks", "warmup_s", "max_warmup_s")
"""Fields of a policy that the time of a round depends on, unlike the number of rounds."""


def protocol(run: RunFile) -> Mapping[str, str]:
    """Return how a file was measured, as far as its header records it.

    That is isolation, order of sides, the fields of the policy that a time depends on, and the code of the user's networks and data; not
    the code of an A/B, whose sides may differ in it.
    """
    defined = {} if "sides" in run.header else run.header.get("user", {})
    policy = run.header.get("policy", {})
    timing = {f"policy.{name}": "default" if policy[name] is None else str(policy[name]) for name in _TIMING if name in policy}
    code = {f"{name} in {each['file']}": f"SHA-256 {each['sha256'][:8]}" for name, each in defined.items()}
    return timing | code | {name: setting for name in ("isolation", "order") if isinstance(setting := run.header.get(name), str)}


ENOUGH_ROUNDS = 7
"""Rounds that are measured by default, enough for an interval."""
_MINUTES_FROM_S = 600
"""Budget from which on it is shown in minutes."""
_MOST = 2**53
"""Limit of the figures of a budget: an edited file may have any."""


class SpentBudget(NamedTuple):
    """Budget that ended a run before the rounds that were planned."""

    budget_s: float
    rounds: int
    planned: int
    spent_s: float
    measured: tuple[int, ...]
    """The rounds of each case, zero of one that it left out."""

    @property
    def enough(self) -> int:
        """The rounds that give each case an interval, or where all have one those that were planned."""
        return ENOUGH_ROUNDS if min(self.measured) < ENOUGH_ROUNDS else self.planned

    def seconds(self, rounds: int) -> float:
        """Return about what so many rounds of all its cases take: what was spent, and for what is left as much a round of a case."""
        return self.spent_s * (1 + sum(max(0, rounds - each) for each in self.measured) / sum(self.measured))

    def option(self, rounds: int) -> str:
        """Return the budget that so many rounds take, as the command line takes it, ``--budget 140s``; with them if fewer were planned."""
        whole = math.ceil(self.seconds(rounds) / 10) * 10
        more = f"--rounds {rounds} " if self.planned < rounds else ""
        return f"{more}--budget {f'{whole}s' if whole < _MINUTES_FROM_S else f'{math.ceil(whole / 60)}m'}"

    def __str__(self) -> str:
        ended = f"the budget of {self.budget_s:g} s ended the run after {self.rounds} of {self.planned} rounds"
        return f"{ended}; about {self.option(self.enough)} would do"


def option_for(rounds: int, budgets: Iterable[SpentBudget]) -> str:
    """Return the option of the command line that gives so many rounds: a larger budget if one was the limit."""
    spent = max(budgets, key=lambda each: each.seconds(each.enough), default=None)
    return spent.option(rounds) if spent else f"--rounds {rounds}"


def spent_budget(run: RunFile, rows: Sequence[Row]) -> SpentBudget | None:
    """Return the budget that ended a complete run before its planned rounds; None if none did."""
    policy = run.header.get("policy", {})
    footer = run.footer or {}
    figures = [policy.get("budget_s"), policy.get("rounds"), footer.get("rounds"), footer.get("seconds")]
    if not all(figure and 0 < figure < _MOST for figure in figures):
        return None
    budget_s, planned, rounds, took_s = figures
    devices = {device["id"] for device in run.header.get("devices", ())}
    # A search whose result has no time is made once a run, so more rounds would not repeat it.
    repeated = [row for row in rows if row.is_ok and not (row.case.found and row.time.median_s is None)]
    # Not every skipped case was left out by the budget: one whose device the run did not have would be skipped with any budget.
    left_out = [row for row in rows if row.case.status is Status.SKIPPED and row.case.device in devices]
    rounds_of_cases = [row.time.rounds or 0 for row in repeated] + [0] * len(left_out)
    if rounds >= planned or not any(rounds_of_cases):  # from no round at all, `SpentBudget.seconds` could not tell what one takes
        return None
    # A run may end a little before its budget, if no further case fits into what is left. The whole budget counts as spent.
    return SpentBudget(budget_s, rounds, planned, max(took_s, budget_s), tuple(rounds_of_cases))


def thresholds(run: RunFile) -> dict[str, ThresholdSettings]:
    """Return the thresholds of each suite that sets any."""
    suites = [suite for suite in run.header.get("suites", ()) if isinstance(suite, dict)]
    return {str(suite.get("name")): suite["thresholds"] for suite in suites if suite.get("thresholds")}


def planned_cases(run: RunFile, cases: int) -> int:
    """Return the number of planned cases; of a file that does not record it, the number of its ``cases``."""
    return int(run.header.get("planned", {}).get("count", cases))


def incomplete(run: RunFile, cases: int) -> list[str]:
    """Return a sentence for each thing that a file lacks, and what to do about it; ``cases`` is the number of its measured cases."""
    resume = "start it again, as an A/B can't be resumed" if "sides" in run.header else f"continue it with: {_resume(run)}"
    planned, notes = planned_cases(run, cases), []
    if run.torn:
        remedy = resume if run.footer is None or cases < planned else "all planned cases are there"
        notes.append(f"{run.path}: the last line was cut while it was written and is left out; {remedy}")
    if run.footer is None:
        notes.append(f"{run.path}: the run was interrupted or is still going on, at {cases} of {planned} planned cases; {resume}")
    elif cases < planned:
        notes.append(f"{run.path}: {planned - cases} of {planned} planned cases were never measured; {resume}")
    return notes


_NAMED = 3
"""Lines that a note names; it counts the others."""


def left_out(run: RunFile) -> list[str]:
    """Return a sentence on the lines of a file that could not be read, and what to do about them; nothing if there are none."""
    if not (lines := run.left_out):
        return []
    named = ", ".join(f"line {each.number} ({each.why})" for each in lines[:_NAMED])
    more = f" and {len(lines) - _NAMED} more" if len(lines) > _NAMED else ""
    again = "start it again if a round is missing, as no A/B can be resumed"
    again = again if "sides" in run.header else f"{_resume(run)} measures what is missing, if anything is"
    return [f"{run.path}: {'1 line is' if len(lines) == 1 else f'{len(lines)} lines are'} left out: {named}{more}; {again}"]


def _resume(run: RunFile) -> str:
    return f"dlbench run --resume {shlex.quote(str(run.path))}"


def short_of_rounds(run: RunFile, name: str, sides: Iterable[str | None], rows: Sequence[Row]) -> dict[str, frozenset[str]]:
    """Return the ids of the cases that may have lost a round, for each ``case.run`` of a file with damaged lines.

    A case may have lost one if it lacks a round before its last. It may also have lost one if it has fewer than planned, while another case
    of its side has more. Empty for a file without damaged lines. ``sides`` are those of the file called ``name``; one of them may have lost
    all of its rows.
    """
    if not run.left_out:
        return {}
    planned = run.header.get("policy", {}).get("rounds", 1)
    short: dict[str, frozenset[str]] = {}
    for side in sides:
        rows_of_side = [row for row in rows if row.case.side == side]
        round_numbers = [number for row in rows_of_side for number in row.rounds.numbers]
        # Rounds are numbered from 0. Only those of a second measurement begin at a higher number, which the file does not record.
        first = min(round_numbers, default=0) if (side or "").endswith(CONFIRMING) else 0
        most_rounds = max(round_numbers, default=0) - first + 1
        least = min(most_rounds, planned)
        short[run_name(name, side)] = frozenset(row.case.id for row in rows_of_side if _lacks_round(row, first, least))
    return short


def _lacks_round(row: Row, first: int, least: int) -> bool:
    """Whether a case has fewer than ``least`` rounds, or lacks one between the number ``first`` and its last one."""
    is_search = row.case.found and not row.rounds.numbers  # made once a run
    if not row.is_ok or is_search:  # a case that did not go well has its own verdict
        return False
    last = max(row.rounds.numbers, default=0)
    expected = max(least, last - first + 1)
    return (row.time.rounds or 0) < expected


def circumstances(run: RunFile, name: str) -> list[str]:
    """Return a sentence for each circumstance that affected all cases of a file, and what to do about it."""
    notes = []
    governors = {governor for each in run.states if (governor := each.before.get("cpu", {}).get("governor"))}
    if slow := sorted(governors - {"performance"}):
        notes.append(
            f"{name}: the CPU's frequency governor was {' and '.join(slow)}, so the clock followed the load; "
            "as root: cpupower frequency-set -g performance"
        )
    if count := len(run.discarded):
        cases = len({each.case.id for each in run.discarded})
        of = f"{count} measurement{'s' * (count > 1)} of {cases} case{'s' * (cases > 1)}"
        notes.append(f"{name}: left out {of}, throttled or disturbed on a side, which {'was' if count == 1 else 'were'} made again")
    return notes


Environments = Mapping[str, Mapping[str, Any]]
"""As in `Results`, by ``case.run``."""

_CARDS, _DATE = "identity.accelerators", "date"
_TELLING = {
    "identity.cpu.name": "{}",
    _CARDS: "{}",
    "identity.cpu.isa": "{}",
    "identity.cpu.physical_cores": "{}-core",
    "identity.cpu.memory_gib": "{} GiB",
    "stack.versions.torch": "torch {}",
    "stack.versions.cuda": "cuda {}",
    "stack.versions.hip": "hip {}",
    "stack.versions.python": "python {}",
    "stack.driver": "driver {}",
    _DATE: "{}",
}
"""Facts that distinguish machines, then software and days, the most distinctive first, and their words."""


def place_names(environments: Environments) -> dict[str, str]:
    """Return a name for the place of each ``case.run``: the fewest facts that distinguish it from other places, or else the file.

    A place is a machine with its software; files whose facts do not contradict each other are of one place. A file that fits two places is
    a place of its own, and the sides of an A/B stay apart.
    """
    facts_of = {run: facts(environment) for run, environment in environments.items() if "side" not in environment}
    runs_with_facts = [run for run, known_facts in facts_of.items() if known_facts]
    # A file with few facts may fit several places. Files with the most facts come first, so that all these places exist before it comes.
    runs_with_facts.sort(key=lambda run: knowledge(environments[run]), reverse=True)
    places: list[list[str]] = []  # the files of each, the one with the most facts first
    for run in runs_with_facts:
        fitting = [place for place in places if not any(contradict(facts_of[run], facts_of[other]) for other in place)]
        if len(fitting) == 1:
            fitting[0].append(run)
        else:
            places.append([run])
    names = _names({place[0]: _texts(environments[place[0]]) for place in places})
    name_of = {run: names[place[0]] for place in places for run in place}
    return {run: name_of.get(run, run) for run in environments}


def keyed(environment: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return an environment with the name of its place as ``machine_key``, if it records its machine and software."""
    return {**environment, "machine_key": name} if facts(environment) else environment


def knowledge(environment: Mapping[str, Any]) -> tuple[int, str]:
    """Return a sort key of environments: by the number of facts that they record, then by age, the newest last."""
    return len(facts(environment)), began(environment)


def began(environment: Mapping[str, Any]) -> str:
    """Return when a run began, as ISO 8601 in UTC; an empty text if its file does not record it."""
    provenance = environment.get("provenance")
    return str(provenance.get("utc") or "") if isinstance(provenance, Mapping) else ""


def _texts(environment: Mapping[str, Any]) -> dict[str, str]:
    """Return the known facts of a place in words, the most distinctive first."""
    known = {**facts(environment), _DATE: began(environment)[:10]}
    cards = Counter(str(value) for path, value in known.items() if re.fullmatch(r"identity\.accelerators\[\d+\]\.name", path))
    known[_CARDS] = ", ".join(name if count == 1 else f"{count} × {name}" for name, count in cards.items())
    return {path: words.format(known[path]) for path, words in _TELLING.items() if known.get(path)}


def _names(facts_of: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """Return a name for each place: the facts that distinguish it from others, or for a single place its most distinctive one.

    ``facts_of`` has the facts of each place in words, by their path. A place is named there by its first file. If several places would
    have the same name, each also gets the name of that file. A place without such facts is called like that file.
    """
    paths = _telling_paths(list(facts_of.values()))
    names = {place: ", ".join(texts[path] for path in paths if path in texts) for place, texts in facts_of.items()}
    places_of_name = Counter(names.values())
    for place, name in names.items():
        if not name:
            names[place] = place
        elif places_of_name[name] > 1:
            names[place] = f"{name}, {place}"
    return names


def _telling_paths(places: Sequence[Mapping[str, str]]) -> list[str]:
    """Return the paths of the facts that tell places apart, each one only if it distinguishes more of them than those before it."""
    values = {path: {texts[path] for texts in places if path in texts} for path in _TELLING}
    if len(places) == 1:
        return [path for path in _TELLING if values[path]][:1]
    chosen: list[str] = []
    distinguished = 1
    for path in _TELLING:
        combinations = {tuple(texts.get(each) for each in (*chosen, path)) for texts in places}
        if len(values[path]) > 1 and len(combinations) > distinguished:
            chosen.append(path)
            distinguished = len(combinations)
    return chosen
