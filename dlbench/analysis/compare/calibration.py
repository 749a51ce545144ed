"""Calibration: variation of identical code from one occasion to another, estimated from several runs and kept in a file for `compare`."""

import json
import math
import statistics
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from dlbench.analysis.ratios import Entry, entries
from dlbench.analysis.read.references import part
from dlbench.analysis.read.table import Results, as_frame
from dlbench.core.errors import ResultFileError
from dlbench.core.rows.summary import Row
from dlbench.core.schema import Column, Unit
from dlbench.core.stats import student_quantile, variance_between

if TYPE_CHECKING:
    import pandas as pd

SCHEMA = 1
STATISTICS = ("median", "p10")
FEWEST = 2
"""Occasions that an estimate takes."""

COLUMNS: dict[str, Column] = {
    column.name: column
    for column in (
        Column("calibrate.case", Unit.TEXT, "the case"),
        Column("calibrate.occasions", Unit.COUNT, "occasions on which it was measured"),
        Column("calibrate.median_s", Unit.SECONDS, "one call: median over the occasions"),
        Column("calibrate.median_sd", Unit.FRACTION, "by how much its median differs from one occasion to another: standard deviation"),
        Column("calibrate.p10_sd", Unit.FRACTION, "the same of its 10th percentile"),
    )
}


@dataclass(frozen=True, slots=True)
class Drift:
    """Variation of identical code between two occasions, on natural logarithms: 0.03 is about 3 %."""

    sd: float
    """Standard deviation of the difference: that of one occasion times the square root of 2."""
    freedom: int
    """Degrees of freedom that the estimate has."""

    def half_width(self, confidence: float) -> float:
        """Return how far apart two occasions are at most, with that confidence."""
        return student_quantile(confidence, self.freedom) * self.sd


@dataclass(frozen=True, slots=True)
class Noise:
    """Variation between occasions beyond that of the rounds of one: standard deviations on natural logarithms."""

    occasions: int
    median: float
    p10: float


@dataclass(frozen=True, slots=True)
class Calibration:
    """Noise of one machine, of all cases together and of each."""

    machine_key: str
    first: str
    """When the first occasion was and when the last: UTC, ISO 8601; empty where the runs do not say."""
    last: str
    pooled: Noise
    cases: Mapping[str, Noise]

    def drifts(self, case: str) -> dict[str, Drift]:
        """Return what to allow for in each statistic of a case.

        It is the larger of the pooled noise and the case's own, as a few occasions miss much of what a case may do; and so with the
        degrees of freedom.
        """
        own = self.cases.get(case, self.pooled)
        freedom = max(own.occasions, self.pooled.occasions) - 1
        return {name: Drift(math.sqrt(2) * max(getattr(own, name), getattr(self.pooled, name)), freedom) for name in STATISTICS}

    def to_json(self) -> dict[str, Any]:
        """Return plain data for the file."""
        return {"kind": "calibration", "schema": SCHEMA, **asdict(self)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Inverse of `to_json`. Raises KeyError, TypeError or ValueError for data that is no calibration."""
        texts = {name: data[name] for name in ("machine_key", "first", "last")}
        if not all(isinstance(text, str) for text in texts.values()):
            raise ValueError(f"{', '.join(texts)} must be text")
        return cls(**texts, pooled=_noise(data["pooled"]), cases={case: _noise(each) for case, each in data["cases"].items()})


def _noise(data: Mapping[str, Any]) -> Noise:
    noise = Noise(**data)
    if type(noise.occasions) is not int or noise.occasions < FEWEST:
        raise ValueError(f"occasions must be a whole number of at least {FEWEST}, not {noise.occasions!r}")
    for name in STATISTICS:
        sd = getattr(noise, name)
        if type(sd) not in (int, float) or not 0 <= sd <= 100:  # exp(100): nothing that is measured differs by so much
            raise ValueError(f"{name} must be a number of at least 0, not {sd!r}")
    return noise


def load(path: Path) -> Calibration:
    """Read a file that `Calibration.to_json` is the content of. Raises ResultFileError where it is not, or is damaged."""
    try:
        data = json.loads(path.read_bytes())
    except OSError as error:
        raise ResultFileError(f"cannot read {path}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise ResultFileError(
            f"{path} is no calibration, or was cut or damaged: it is not JSON; make it again: dlbench calibrate"
        ) from error
    if not isinstance(data, dict) or data.get("kind") != "calibration" or type(data.get("schema")) is not int:
        raise ResultFileError(f"{path} is no calibration; give a file that dlbench calibrate wrote")
    if data["schema"] > SCHEMA:
        raise ResultFileError(f"{path} has schema {data['schema']} and this dlbench reads up to {SCHEMA}; update dlbench")
    try:
        return Calibration.from_json(data)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        detail = f"no {error}" if isinstance(error, KeyError) else str(error)
        raise ResultFileError(f"{path} is not a valid calibration ({detail}); make it again: dlbench calibrate") from error


def estimate(machine_key: str, results: Results) -> Calibration | None:
    """Estimate the noise between occasions, each result file being one; None where no case was measured on two.

    Of a case it is the square root of `variance_between` over the rounds of its occasions, or zero where that is negative. The pooled
    variance is the mean over cases before that cut, so that those whose estimate happens to come out low and high weigh alike.
    """
    often = {case: occasions for case, occasions in _occasions(results).items() if len(occasions) >= FEWEST}
    if not often:
        return None
    variances = {
        case: {
            name: variance_between([[math.log(seconds) for seconds in getattr(each.rounds, f"{name}_s")] for each in occasions])
            for name in STATISTICS
        }
        for case, occasions in often.items()
    }
    pooled = {name: statistics.fmean(each[name] for each in variances.values()) for name in STATISTICS}
    times = sorted(
        when for environment in results.environments.values() if isinstance(when := part(environment, "provenance", "utc"), str) and when
    )
    return Calibration(
        machine_key,
        first=times[0] if times else "",
        last=times[-1] if times else "",
        pooled=_of_variances(statistics.median_low(map(len, often.values())), pooled),
        cases={case: _of_variances(len(often[case]), each) for case, each in variances.items()},
    )


def as_table(results: Results, calibration: Calibration | None) -> "pd.DataFrame":
    """Return a row a case, columns as in `COLUMNS`; of a case measured on one occasion the noise is null."""
    rows: list[Row] = []
    for case, occasions in _occasions(results).items():
        noise = calibration.cases.get(case) if calibration else None
        medians = [statistics.median(each.rounds.median_s) for each in occasions]
        rows.append(
            {
                "calibrate.case": case,
                "calibrate.occasions": len(occasions),
                "calibrate.median_s": statistics.median(medians),
                "calibrate.median_sd": noise.median if noise else None,
                "calibrate.p10_sd": noise.p10 if noise else None,
            }
        )
    return as_frame(rows, COLUMNS)


def _occasions(results: Results) -> dict[str, list[Entry]]:
    """Return the entries of each case, one an occasion, where it was ok and its times are above zero."""
    found: dict[str, list[Entry]] = {}
    for entry in entries(results):
        found_anew = entry.row["case.found"] is not None  # each occasion may have found other settings
        if entry.row["case.status"] == "ok" and not found_anew and min(entry.rounds.p10_s, default=0.0) > 0:
            found.setdefault(str(entry.row["case.id"]), []).append(entry)
    return found


def _of_variances(occasions: int, variances: Mapping[str, float]) -> Noise:
    return Noise(occasions, **{name: math.sqrt(max(0.0, variance)) for name, variance in variances.items()})
