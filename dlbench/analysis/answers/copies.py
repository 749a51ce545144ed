"""Copies: their latency and bandwidth, and what of the link that is. A part of the answer on the bottleneck."""

import math
import statistics
from collections.abc import Sequence

from dlbench.analysis.answers.base import DEVICE, Columns, Findings, Table, by_device, with_device
from dlbench.analysis.copies import COLUMNS, latency_and_bandwidth
from dlbench.analysis.figures import Axis, Figure
from dlbench.analysis.lines import MOST_OFF
from dlbench.analysis.ratios import Entry, entries, grouped, identifying, label
from dlbench.analysis.read.table import Results
from dlbench.analysis.wording import INTERVAL, interval, number, short
from dlbench.core import units
from dlbench.core.model import Status
from dlbench.core.reference.peaks import OTHER_LINK
from dlbench.core.rows.row import BY_NAME
from dlbench.core.rows.row import Cells as Row
from dlbench.core.schema import Column, Unit

_RATE = BY_NAME["rate.bytes_per_s"]
_WAY = Column("copies.way", Unit.TEXT, "the copy, without its size")
_SIZE = Column("copies.size", Unit.BYTES, "bytes that a copy counts")
_LINK = Column("copies.link_bytes_per_s", Unit.BYTES_PER_S, "the most that the link carries as it was while copying; null where not read")
_SHARE = Column("copies.link_share", Unit.FRACTION, "the fastest size over that", "higher")
_RATES = (
    Column("copies.rate_low", Unit.BYTES_PER_S, "lower end of its 95 % interval"),
    Column("copies.rate_high", Unit.BYTES_PER_S, "upper end of it"),
)
_COLUMNS: Columns = (
    ("copy", _WAY),
    DEVICE,
    ("sizes", COLUMNS["copies.sizes"]),
    ("latency", COLUMNS["copies.latency_s"]),
    (INTERVAL, COLUMNS["copies.latency_s_low"]),
    (INTERVAL, COLUMNS["copies.latency_s_high"]),
    ("bandwidth", COLUMNS["copies.bytes_per_s"]),
    (INTERVAL, COLUMNS["copies.bytes_per_s_low"]),
    (INTERVAL, COLUMNS["copies.bytes_per_s_high"]),
    ("off the line", COLUMNS["copies.off"]),
    ("fastest size", _RATE),
    ("link", _LINK),
    ("of the link", _SHARE),
    ("no line", COLUMNS["copies.reason"]),
)
_TRAINED_DOWN = 0.99
"""Of what device and slot can have: a link that carries less has another generation, or fewer lanes."""


def findings(results: Results) -> Findings:
    """Return latency and bandwidth of each way to copy that was measured over sizes, and what of its link that is."""
    groups = _ways(results)
    if not groups:
        return Findings()
    devices = by_device([_row(results, group) for group in groups], "case")
    for where, found in devices.items():
        if _over_another_link(where, found):
            devices[where] = [{**row, _SHARE.name: None} for row in found]
    rows = [entry.row for group in groups for entry in group]
    return Findings(
        sentences=tuple(_sentence(where, found) for where, found in devices.items()),
        rows=tuple(rows),
        tables=(Table("Copies: latency and bandwidth", _COLUMNS, tuple(row for found in devices.values() for row in found)),),
        figures=tuple(_figures(results, groups)),
        weaknesses=tuple(text for each in devices.items() for doubt in _DOUBTS if (text := doubt(*each))),
    )


def _ways(results: Results) -> list[list[Entry]]:
    """Return the copies that went well, in groups that differ in their size alone, the smallest first."""
    columns = identifying(results.columns)
    groups: dict[tuple[object, ...], list[Entry]] = {}
    for each in entries(results):
        declared, row = results.declaration(each.row), each.row
        went_well = row["case.status"] == Status.OK and not row["flag.implausible"] and 0 < _size(row) < math.inf
        if declared.ceiling == "copy" and declared.sweep and went_well:
            key = tuple(row[name] for name in columns if name != f"param.{declared.sweep.size}")
            groups.setdefault(key, []).append(each)
    return [sorted(group, key=lambda each: _size(each.row)) for group in groups.values()]


def _size(row: Row) -> float:
    """Return the bytes that a call states; zero where that is unknown."""
    rate, seconds = row["rate.bytes_per_s"], row["time.median_s"]
    return 0.0 if rate is None or seconds is None else number(rate) * number(seconds)


def _way(results: Results, row: Row) -> str:
    """Return the case's id without its device and its size."""
    sweep = results.declaration(row).sweep
    return label(row, (sweep.size,) if sweep else ())


def _row(results: Results, group: Sequence[Entry]) -> Row:
    fastest = max(group, key=lambda each: number(each.row[_RATE.name])).row
    most = results.declaration(fastest).bound(fastest, _RATE.name)
    return {
        **{name: fastest[name] for name in ("case.run", "case.device", "transfer.link_bytes_per_s", _RATE.name)},
        **latency_and_bandwidth([(_size(each.row), each.rounds) for each in group]),
        _WAY.name: _way(results, fastest),
        _LINK.name: most,
        _SHARE.name: number(fastest[_RATE.name]) / most if most else None,
    }


def _sentence(where: str, rows: Sequence[Row]) -> str:
    """Say how quick copies over the link are, at the largest share of it and the smallest; where none was read, all by bandwidth."""
    ways = [row for row in rows if row[_SHARE.name] is not None] or rows
    order = "copies.bytes_per_s" if ways[0][_SHARE.name] is None else _SHARE.name
    fitted = sorted((row for row in ways if row["copies.reason"] is None), key=lambda row: number(row[order]))
    if not fitted:
        best = max(ways, key=lambda row: number(row[_RATE.name]))
        rate = units.byte_rate(number(best[_RATE.name]))
        if best["copies.off"] is not None:
            return f"On {where} {short(best[_WAY.name])} reaches {rate} at best; its times follow no line of latency and bandwidth."
        return f"On {where} {short(best[_WAY.name])} reaches {rate}; to tell latency from bandwidth it takes more sizes."
    slowest, fastest = fitted[0], fitted[-1]
    text = f"On {where} {short(fastest[_WAY.name])} copies with {_described(fastest)}"
    if slowest is fastest:
        return f"{text}."
    return f"{text}; the slowest of {len(fitted)} ways, {short(slowest[_WAY.name])}, with {_described(slowest)}."


def _described(row: Row) -> str:
    """Return a latency, a bandwidth and the share of the link, with intervals, as words that a sentence can go on with."""
    quantities = (("latency", "copies.latency_s", units.seconds), ("bandwidth", "copies.bytes_per_s", units.byte_rate))
    parts = [
        f"a {noun} of {text(number(row[name]))} ({interval(row[f'{name}_low'], row[f'{name}_high'], text)})"
        if row[name] is not None
        else f"no {noun} that shows at these sizes"
        for noun, name, text in quantities
    ]
    share = row[_SHARE.name]
    at_best = "" if share is None else f", at best {units.percent(number(share))} of what its link carries"
    return f"{' and '.join(parts)}{at_best}"


def _trained_down(where: str, rows: Sequence[Row]) -> str | None:
    """Say of a link that was slower while copying than device and slot can have it; None where it was not, or nothing tells."""
    read = [(number(row[_LINK.name]), number(most)) for row in rows if row[_LINK.name] and (most := row["transfer.link_bytes_per_s"])]
    if not read or _over_another_link(where, rows):
        return None
    # The median: copies both ways at once have twice the rate.
    link, most = statistics.median(now for now, _ in read), statistics.median(most for _, most in read)
    if link >= _TRAINED_DOWN * most:
        return None
    carried = f"{units.byte_rate(link)} each way while copying, where device and slot can have {units.byte_rate(most)}"
    return f"the PCIe link of {where} stays trained down at {carried}: see how the card is seated, its slot and the firmware's settings"


def _over_another_link(where: str, rows: Sequence[Row]) -> str | None:
    """Say that copies are faster than the link that was read, which then is not theirs; None where none is."""
    beyond = [row for row in rows if row[_LINK.name] and number(row[_RATE.name]) > number(row[_LINK.name])]
    if not beyond:
        return None
    fastest = max(beyond, key=lambda row: number(row[_RATE.name]) / number(row[_LINK.name]))
    rate, link = (units.byte_rate(number(fastest[name])) for name in (_RATE.name, _LINK.name))
    return f"on {where} {short(fastest[_WAY.name])} reaches {rate}, {OTHER_LINK.format(rate=link)}"


def _bent(where: str, rows: Sequence[Row]) -> str | None:
    """Say that times do not follow a line, of the way to copy of which that is worst; None where all do."""
    off, row = max(((number(row["copies.off"] or 0), row) for row in rows), key=lambda each: each[0])
    if off < MOST_OFF:
        return None
    bends = "caches and protocols bend it, so the figure says more than latency and bandwidth"
    return f"on {where} the sizes of {short(row[_WAY.name])} are {units.percent(off)} off their line in the median: {bends}"


_DOUBTS = (_over_another_link, _trained_down, _bent)


def _figures(results: Results, groups: Sequence[Sequence[Entry]]) -> list[Figure]:
    """Return bandwidth against size, of each workload and device a figure, with a line a way."""
    points = [
        {**row, **_interval(row), _SIZE.name: _size(row), _WAY.name: short(_way(results, row))}
        for group in groups
        for row in (entry.row for entry in group)
    ]
    about = "One line a way to copy; from where it is level on, bandwidth bounds a copy, and left of that latency."
    about += " The vertical lines are 95 % intervals over rounds."
    return [
        Figure(
            f"Bandwidth by size: {workload} on {where}",
            about,
            "line",
            Axis("bytes", _SIZE, log=True),
            Axis("bytes a second", _RATE, log=True),
            tuple(rows),
            Axis("copy", _WAY),
            _RATES,
        )
        for (workload, where), rows in grouped(with_device(points, "case"), lambda row: (row["case.workload"], row["place"])).items()
    ]


def _interval(row: Row) -> Row:
    """Return the ends of the interval of the bandwidth, as columns: a time at the upper end of its own is the rate at the lower."""
    moved, of_time = number(row[_RATE.name]) * number(row["time.median_s"]), (row["time.ci_high_s"], row["time.ci_low_s"])
    return {column.name: moved / number(end) if end else None for column, end in zip(_RATES, of_time, strict=True)}
