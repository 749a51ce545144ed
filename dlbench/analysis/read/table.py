"""Result files as one tidy table: a row a case and file, a column an address. The door to pandas.

That is imported when a frame is asked for: it takes longer than most comparisons, which need the rows alone.
"""

import re
import statistics
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from itertools import chain
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from dlbench.analysis.read import header, pyperf
from dlbench.analysis.read.ceilings import Ceilings, Machine, measured_ceilings, with_ceilings
from dlbench.analysis.read.header import Environments, Readings, keyed, place_names
from dlbench.analysis.read.usability import with_flags
from dlbench.core import store
from dlbench.core.declarations import Declaration
from dlbench.core.errors import UsageError
from dlbench.core.measurement import Measurement
from dlbench.core.model import Case, ParamValue, Policy, value_text
from dlbench.core.prices import NO_PRICES, Prices
from dlbench.core.rows.columns import COLUMNS
from dlbench.core.rows.row import Cells, Row, cells
from dlbench.core.rows.summary import Origin, summarise
from dlbench.core.stats import known
from dlbench.core.store import RunFile
from dlbench.core.thresholds import ThresholdSettings
from dlbench.core.units import MOST, Column, Unit, one_line

if TYPE_CHECKING:
    import pandas as pd

_DTYPES = {Unit.TEXT: "string", Unit.COUNT: "Int64", Unit.BYTES: "Int64", Unit.FLAG: "boolean"}
"""Types that hold a null as a null; every other unit is a float, whose null is NaN."""


@dataclass(frozen=True)
class Results:
    """Result files, read."""

    rows: tuple[Row, ...]
    """One a case and file."""
    notes: tuple[str, ...]
    """A sentence for each thing that a file lacks, and what to do about it."""
    environments: Environments
    """The header's ``environment`` of each ``case.run``, with its entries for a side; empty where a file has none."""
    thresholds: Mapping[str, Mapping[str, ThresholdSettings]] = field(default_factory=dict)
    """Thresholds of each suite that sets any, by ``case.run``."""
    readings: Mapping[str, Readings] = field(default_factory=dict)
    """Readings of each file's devices after its rounds; by its own name where it is an A/B, whose sides share them."""
    circumstances: tuple[str, ...] = ()
    """A sentence for each circumstance that affected all cases of a file, and what to do about it."""
    protocols: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """How each ``case.run`` was measured, as far as its header says: see `header.protocol`."""
    budgets: Mapping[str, header.SpentBudget] = field(default_factory=dict)
    """Budget of each ``case.run`` that it ended before its rounds."""
    tries: tuple[Row, ...] = ()
    """Tries of searches, each in one round: no planned cases, so nothing compares them."""
    missing: Mapping[str, int] = field(default_factory=dict)
    """Number of planned cases that the file of each incomplete ``case.run`` lacks."""
    lost: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Cases that may have lost a round, for each ``case.run`` with damaged lines; a sound one is not in it."""
    seconds: Mapping[str, float] = field(default_factory=dict)
    """Seconds that each complete file took, by its own name."""
    others: Mapping[str, float] = field(default_factory=dict)
    """CPUs that other processes kept busy, in the median of the rounds, for each ``case.run`` whose file has them."""
    paths: Mapping[str, Path] = field(default_factory=dict)
    """File of each ``case.run``, as it was given."""
    set_aside: tuple[Row, ...] = ()
    """Rows that `usable` left out."""
    unmerged: "Results | None" = None
    """The same with each file apart, where `runs.merged` made this of several."""
    prices: Prices = NO_PRICES
    """What devices cost, and the training that is asked for, as the user says with the command: no file has any of it."""
    references: bool = True
    """Whether answers hold it against the reference runs of machines that are like it, which are read for it, each once."""

    @cached_property
    def frame(self) -> "pd.DataFrame":
        """The rows; columns as in `core.rows.columns`, then ``param.*`` and ``value.*``."""
        return as_frame([cells(row) for row in self.rows], COLUMNS)

    @cached_property
    def parameters(self) -> tuple[str, ...]:
        """Those that any row has, in the order in which they came first."""
        return tuple(dict.fromkeys(name for row in self.rows for name in row.params))

    @property
    def files(self) -> "Results":
        """The same with each file apart; of merged results all files, also after `where` or `of_run` chose some of the rows."""
        return self.unmerged or self

    @cached_property
    def usable(self) -> "Results":
        """The same without the rows that no answer rests on, see `Row.is_set_aside`; they are in ``set_aside``."""
        kept, left = ([row for row in self.rows if row.is_set_aside is aside] for aside in (False, True))
        if not left:
            return self
        return replace(self, rows=tuple(kept), set_aside=tuple(left), unmerged=self.unmerged and self.unmerged.usable)

    @cached_property
    def ceilings(self) -> Mapping[Machine, Ceilings]:
        """Measured ceilings of each machine."""
        return measured_ceilings(self.rows, self.environments)

    def of_run(self, *names: str) -> Self:
        """Return the rows of one ``case.run``, or of several."""
        by_run: dict[str, Any] = {
            field: {name: getattr(self, field)[name] for name in names if name in getattr(self, field)} for field in _BY_RUN
        }
        tries = tuple(row for row in self.tries if row.case.run in names)
        return replace(self.where(lambda row: row.case.run in names), tries=tries, **by_run)

    def where(self, wanted: Callable[[Row], bool]) -> Self:
        """Return the rows that are wanted."""
        return replace(self, rows=tuple(filter(wanted, self.rows)))


_JOINED = ("rows", "notes", "circumstances", "tries")
"""Fields of `Results` that have the entries of all files, one file after the other."""
_BY_RUN = ("environments", "thresholds", "readings", "protocols", "missing", "lost", "budgets", "seconds", "others", "paths")
"""Fields of `Results` that are keyed by ``case.run``, some by the name of a file whose sides share the entry."""


def read(paths: str | PathLike[str] | Iterable[str | PathLike[str]]) -> "pd.DataFrame":
    """Return one result file or several, or a folder of them, as a tidy table; see `core.rows.columns` for the columns, in base units.

    ``param.*`` has the parameters (precision and mode are ``case.dtype`` and ``case.mode`` only) and ``value.*`` what
    single workloads report. Warns where a file is incomplete; raises ResultFileError where one can't be read.
    """
    several = [paths] if isinstance(paths, str | PathLike) else paths
    results = collect([Path(path) for path in several])
    for note in results.notes:
        warnings.warn(note, stacklevel=2)
    return results.frame


def rows_so_far(rows: Sequence[Row], name: str, declarations: Mapping[str, Declaration], environment: Mapping[str, Any]) -> Results:
    """Return the results of a run that goes on, as if its file had been read under this name.

    ``declarations`` are those of its workloads, and ``environment`` is the one in its header.
    """
    named_rows = [named(row, name, declarations.get(row.case.workload)) for row in rows]
    return Results(tuple(with_ceilings(with_flags(named_rows), {})), (), {name: environment}, references=False)


def named(row: Row, run: str, declaration: Declaration | None = None) -> Row:
    """Return a row as one of a run, with what its workload declares."""
    return replace(row, case=replace(row.case, run=run), declared=declaration or row.declared)


def files_in(paths: Sequence[Path]) -> list[Path]:
    """Return ``paths`` with each folder replaced by the result files in it, in the order of their names.

    A file that is also given itself is left out of its folder's files. Raises UsageError for a folder without result files, and for a
    folder that is given twice; its files would otherwise be reported as given twice.
    """
    given = Counter(path.resolve() for path in paths)
    files: list[Path] = []
    for path in paths:
        if not path.is_dir():
            files.append(path)
            continue
        if given[path.resolve()] > 1:
            raise UsageError(f"the folder {path} is given twice; name it once")
        inside = sorted(path.glob("*.jsonl"))
        if not inside:
            raise UsageError(f"{path} is a folder without a result file; give one that itself holds .jsonl files of dlbench run")
        files += [each for each in inside if each.resolve() not in given]
    return files


Read = Callable[[Path, str], Results]
Map = Callable[[Read, Iterable[Path], Iterable[str]], Iterable[Results]]
"""`map`, or that of a pool of processes: calls a function with each path and name, and returns the results in that order."""


def collect(paths: Sequence[Path], each: Map = map) -> Results:
    """Read files into one table; ``each`` maps the function that reads a file over them, here or in a pool of processes.

    A folder means the result files in it. Raises ResultFileError for a file that can't be read, UsageError for one given twice.
    """
    paths = files_in(paths)
    files = list(each(_read_one, paths, _names(paths)))
    joined: dict[str, Any] = {field: tuple(chain.from_iterable(getattr(file, field) for file in files)) for field in _JOINED}
    joined |= {field: dict(chain.from_iterable(getattr(file, field).items() for file in files)) for field in _BY_RUN}
    results = Results(**joined)
    names = place_names(results.environments) if len(files) > 1 else {}
    places = {run: keyed(results.environments[run], name) for run, name in names.items()}
    return replace(results, rows=tuple(with_ceilings(results.rows, places)))


def _read_one(path: Path, name: str) -> Results:
    return results_of(load(path), name)  # at the top of the module, for a pool of processes to find


def results_of(run: RunFile, name: str) -> Results:
    """Return the results of a file that is called ``name``.

    Its ``case.run`` is that name; an A/B has one for each side, such as ``NAME:a``. What the file records once is entered for each of them,
    but readings of devices and the duration stand under the name of the file.
    """
    cases = by_case(run.measurements)
    sides = header.sides_of(run, [*(rounds[0].side for rounds in cases), *(each.side for each in run.tries)])
    environments = header.environments(run, name, sides)
    devices = {device["id"]: device for device in run.header.get("devices", ())}
    origins = {side: Origin(header.run_name(name, side), devices, header.declarations(run, entries)) for side, entries in sides.items()}
    # Relative half-width of an interval above which a row is noisy.
    target_width = run.header.get("policy", {}).get("target", Policy().target)
    rows = with_flags([summarise(rounds, target_width, run.states, origins[rounds[0].side]) for rounds in cases])
    lacking = header.planned_cases(run, len(rows)) - len(rows)
    budget = header.spent_budget(run, rows)
    other_cpus = known(each.other_cpus for each in run.states)
    seconds = (run.footer or {}).get("seconds")
    runs = list(environments)
    return Results(
        rows=tuple(rows),
        notes=(*header.left_out(run), *header.incomplete(run, len(rows))),
        environments=environments,
        thresholds=dict.fromkeys(runs, header.thresholds(run)),
        readings={name: header.device_readings(run)},
        circumstances=tuple(header.circumstances(run, name)),
        protocols=dict.fromkeys(runs, header.protocol(run)),
        budgets=dict.fromkeys(runs, budget) if budget else {},
        tries=tuple([summarise([each], origin=origins[each.side]) for each in run.tries]),
        missing=dict.fromkeys(runs, lacking) if lacking > 0 else {},
        lost=header.short_of_rounds(run, name, sides, rows),
        seconds={name: float(seconds)} if seconds else {},
        others=dict.fromkeys(runs, statistics.median(other_cpus)) if other_cpus else {},
        paths=dict.fromkeys(runs, run.path),
    )


def by_case(measurements: Iterable[Measurement]) -> list[list[Measurement]]:
    """Return the rounds of each case, on each side, in the order of the table: rounds shuffle them, so their order means nothing."""
    cases: dict[tuple[str | None, str], list[Measurement]] = {}
    for measurement in measurements:
        cases.setdefault((measurement.side, measurement.case.id), []).append(measurement)
    return sorted(cases.values(), key=lambda rounds: _order(rounds[0].case, rounds[0].side))


def _order(case: Case, side: str | None) -> tuple[Any, ...]:
    """Return a sort key of cases as readers expect: by work, 8 before 16, fp64 before fp32 before bf16, the CPU first, and by side."""
    work = tuple(_natural(value, widest_first=name == "dtype") for name, value in case.params.items())
    return case.workload, work, case.device != "cpu", _natural(case.device), side or ""


@cache  # the values of parameters are few
def _natural(value: ParamValue, widest_first: bool = False) -> tuple[Any, ...]:
    if not isinstance(value, str):
        return 0, value
    parts = re.split(r"(\d+)", value)  # texts at even places, digits at odd ones
    numbers = [*map(int, parts[1::2]), 0]
    if widest_first:
        return 1, [("", -number) for number in numbers], value
    return 1, list(zip(parts[::2], numbers, strict=True)), value


def load(path: Path) -> RunFile:
    """Read a result file, or a file of another tool. Raises ResultFileError if it is neither, or damaged."""
    return pyperf.load(path) or store.load(path)


def as_frame(rows: Sequence[Cells], columns: Iterable[Column]) -> "pd.DataFrame":
    """Return rows as a frame: the columns given, each always there, then whatever ``param.*`` and ``value.*`` the rows have."""
    import pandas as pd

    units = {each.name: each.unit for each in columns}
    found = dict.fromkeys(name for row in rows for name in row)
    others = [name for start in ("param.", "value.") for name in found if name.startswith(start)]
    return pd.DataFrame({name: _series([row.get(name) for row in rows], units.get(name)) for name in (*units, *others)})


def records(frame: "pd.DataFrame") -> list[Cells]:
    """Return the rows as plain Python values, every kind of null as None."""
    columns = [zip(frame[name].tolist(), frame[name].isna().tolist(), strict=True) for name in frame.columns]
    plain = ([None if null else value for value, null in column] for column in columns)
    return [dict(zip(frame.columns, values, strict=True)) for values in zip(*plain, strict=True)]


def _names(paths: Sequence[Path]) -> list[str]:
    """Return a name for each file: its stem, and its place among the files where several share that: ``quick 2``."""
    times = Counter(path.resolve() for path in paths)
    if repeated := next((path for path in paths if times[path.resolve()] > 1), None):
        raise UsageError(f"{repeated} is given twice; name each result file once")
    names = [one_line(path.stem) for path in paths]
    while len({*names}) < len(names):  # again where another stem ends in such a number
        taken = Counter(names)
        names = [f"{name} {place}" if taken[name] > 1 else name for place, name in enumerate(names, 1)]
    return names


def _series(values: list[Any], unit: Unit | None) -> "pd.Series[Any]":
    import pandas as pd

    dtype = _DTYPES.get(unit, "float64") if unit else _dtype_of(values)
    if dtype == "string":
        values = [None if value is None else value_text(value) for value in values]
    return pd.Series(values, dtype=dtype)


def _dtype_of(values: Iterable[ParamValue | None]) -> str:
    """Return the pandas type that holds a parameter's values unchanged; text if they are of several kinds."""
    known = [value for value in values if value is not None]
    kinds = {type(value) for value in known}
    if kinds == {bool}:
        return "boolean"
    numbers = [value for value in known if isinstance(value, int | float)]
    if not numbers or not kinds <= {int, float} or not all(abs(value) <= MOST for value in numbers):
        return "string"
    return "Int64" if kinds == {int} and all(-(2**63) <= value < 2**63 for value in numbers) else "float64"
