"""Published peaks of devices, the share of them that a case reaches, and what collectives cost on a link."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from dlbench.core import units
from dlbench.core.errors import SuiteError, UsageError, did_you_mean
from dlbench.core.files import parse_toml, read_text
from dlbench.core.precision import ARITHMETIC

TABLE = "dlbench/core/reference/peaks.toml"
"""Name of the file for users, who may add to it."""
_TABLE = Path(__file__).with_name("peaks.toml")
_NEEDED = ("names", "flops", "bandwidth", "last_cache", "source")
"""Keys that an entry must have."""
_BRANDS = frozenset(("nvidia", "amd", "geforce", "tesla", "instinct", "r", "tm"))
"""Words to ignore in names: drivers added and dropped them over the years."""

_LANE_BYTES_PER_S = {
    1: 2.5e9 / 8 * 8 / 10,
    2: 5e9 / 8 * 8 / 10,
    3: 8e9 / 8 * 128 / 130,
    4: 16e9 / 8 * 128 / 130,
    5: 32e9 / 8 * 128 / 130,
    6: 64e9 / 8 * 242 / 256,
}
"""One lane of PCIe, in one direction, by generation: transfers a second, less the encoding."""
_MOST_LANES = 32
OTHER_LINK = (
    "faster than the reported PCIe link ({rate}): the copies use another link, such as NVLink-C2C, or a virtual machine reports a false one"
)
"""Reason for copies that are faster than their link can be, with its rate."""
_GENERATIONS = {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6}
"""Generation by the gigatransfers a second of a lane."""

UNCACHED = 8
"""A working set that many times as large as the last cache finds an eighth of itself there at most, so it must come from memory."""


@dataclass(frozen=True, slots=True)
class DevicePeak:
    """The published figures of one device."""

    name: str
    flops_per_s: Mapping[str, float]
    """Dense operations a second by precision; those of int8 are on integers."""
    matrix: tuple[str, ...]
    """Precisions whose figure is that of the matrix units, and not of the ordinary cores."""
    bytes_per_s: float
    """Bandwidth of its memory."""
    last_cache_bytes: int
    memory_bytes: float | None = None
    """None where no source states it."""
    lacks: tuple[str, ...] = ()
    """Precisions that it has no matrix units for: these have no figure for that, and not for want of a source."""


@dataclass(frozen=True, slots=True)
class Share:
    """How much of a peak a case reaches."""

    fraction: float
    of: str
    """``arithmetic`` or ``memory``."""
    figure: str
    """The peak, in words."""

    def __str__(self) -> str:
        return f"{self.of}: {self.figure}"


@cache
def peak_of(device_name: str | None) -> DevicePeak | None:
    """Return the figures of the device of that name, as its driver writes it; None for one that is not in the table: nothing is guessed.

    Raises SuiteError where an entry of the table lacks something, a source above all.
    """
    return _table().get(name_words(device_name or ""))


def card_of(text: str) -> DevicePeak:
    """Return the card that a user names in full, or by words that only its name has.

    Raises UsageError for any other text, with the cards that it may mean, or else all that there are.
    """
    cards, words = _table(), name_words(text)  # the table has the cards by the words of their names
    if words in cards:
        return cards[words]
    matching = [card for card_words, card in cards.items() if words and set(words) <= set(card_words)]
    if len(matching) == 1:
        return matching[0]
    names = [card.name for card in cards.values()]
    if matching:
        hint = f"; did you mean {' or '.join(repr(card.name) for card in matching)}?"
    else:  # users leave out words of a name in full, so the text need not be as similar to one as elsewhere
        hint = did_you_mean(text, names, least=0.4) or f"; the cards there are {', '.join(map(repr, names))}"
    raise UsageError(f"no peaks of a card '{text}' are in {TABLE}, where an entry with its sources adds them{hint}")


def arithmetic_share(device: DevicePeak, dtype: str, flops_per_s: float) -> Share | None:
    """Return a rate of operations as a share of its precision's peak; None where the table has none."""
    precision = ARITHMETIC.get(dtype, dtype)
    most = device.flops_per_s.get(precision)
    if most is None:
        return None
    unit = "matrix units" if precision in device.matrix else "ordinary cores"
    rate = units.integer_rate(most) if precision.startswith("int") else units.flop_rate(most)
    return Share(flops_per_s / most, "arithmetic", f"{rate}, dense {precision} on the {unit} of {device.name}")


def memory_share(device: DevicePeak, call_bytes: float, bytes_per_s: float) -> Share | None:
    """Return a rate of bytes as a share of the memory's bandwidth; None where a call's bytes may come from a cache."""
    if call_bytes < UNCACHED * device.last_cache_bytes:
        return None
    return Share(bytes_per_s / device.bytes_per_s, "memory", f"{units.byte_rate(device.bytes_per_s)}, the bandwidth of {device.name}")


def link_bytes_per_s(generation: int, lanes: int) -> float | None:
    """Return the most that a PCIe link carries in one direction, before the headers of packets; None for an unknown generation or width.

    PCI Express base specification, revisions 1.1 to 6.0: generations 1 and 2 send 10 bits for 8, 3 to 5 send 130 for 128, and 6 sends
    FLITs of 256 bytes, 14 of them checksum and error correction.
    """
    lane = _LANE_BYTES_PER_S.get(generation)
    return lane * lanes if lane and 0 < lanes <= _MOST_LANES else None


def link_bytes_per_s_of(speed: str, width: str) -> float | None:
    """Return the same of a link as Linux writes it in sysfs, ``32.0 GT/s PCIe`` and ``16``; None for what it does not know."""
    try:
        return link_bytes_per_s(_GENERATIONS[float(speed.split()[0])], int(width))
    except (IndexError, KeyError, ValueError):
        return None


@cache
def _table() -> Mapping[tuple[str, ...], DevicePeak]:
    return read_table(_TABLE)


def read_table(path: Path) -> Mapping[tuple[str, ...], DevicePeak]:
    """Return the devices of such a file by the words of their names. Raises SuiteError for an entry that lacks something."""
    found: dict[tuple[str, ...], DevicePeak] = {}
    for number, device in enumerate(parse_toml(read_text(path, TABLE), TABLE)["device"], 1):
        if missing := [key for key in _NEEDED if not device.get(key)]:
            raise SuiteError(f"{TABLE}, entry {number}: it has no {missing[0]}; the head of the file says what that is")
        figures = device["flops"], tuple(device.get("matrix", ())), device["bandwidth"], device["last_cache"]
        for name in device["names"]:
            found[name_words(name)] = DevicePeak(name, *figures, device.get("memory"), tuple(device.get("lacks", ())))
    return found


def name_words(name: str) -> tuple[str, ...]:
    """Return the words of a device's name that distinguish it from others."""
    return tuple(word for word in re.findall(r"[a-z0-9]+", name.casefold()) if word not in _BRANDS)


_COSTS: Mapping[str, Callable[[int], tuple[float, int]]] = {
    "all_reduce": lambda n: (2 * (n - 1) / n, 2 * (n - 1)),
    **dict.fromkeys(("all_gather", "reduce_scatter", "all_to_all"), lambda n: ((n - 1) / n, n - 1)),
    **dict.fromkeys(("broadcast", "reduce"), lambda n: (1.0, n - 1)),
    "send_recv": lambda n: (1.0, 1),
}
"""Bus factor and ring steps of each operation among n ranks, two at least."""

OPERATIONS = tuple(_COSTS)


def bus_factor(operation: str, ranks: int) -> float:
    """Return bus bandwidth over algorithm bandwidth (bytes over time): how often each byte crosses the slowest link.

    The sizes are those of nccl-tests, and so are the factors (its doc/PERFORMANCE.md): of all_gather and reduce_scatter the whole
    that all ranks hold together, else what one rank hands in. Zero for one rank. Raises KeyError for another operation.
    """
    return _COSTS[operation](ranks)[0] if ranks > 1 else 0.0


def ring_steps(operation: str, ranks: int) -> int:
    """Return how many messages follow each other on a ring of so many ranks: how often the latency counts. Raises KeyError as above.

    Source: Patarasuk and Yuan, Bandwidth optimal all-reduce algorithms for clusters of workstations, Journal of Parallel and
    Distributed Computing 69, 2009.
    """
    return _COSTS[operation](ranks)[1] if ranks > 1 else 0
