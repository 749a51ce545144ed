"""Names that rows need, which a copy can't leave out: those that are not plain are refused."""

import re
from collections.abc import Iterator, Sequence
from operator import itemgetter

from dlbench.analysis.ratios.matching import grouped
from dlbench.core.measurement import Measurement
from dlbench.core.model import Case, value_text
from dlbench.core.units import MOST

SETTING = r"[\w+]{0,80}\.?[\w+]{0,80}"
"""A plain word as a parameter has one: ``adamw``, ``1.5``. With more points it may be a host's name."""
LONGEST = 80
MOST_SENTENCES = 3

_PLAIN = f"letters, digits, spaces and ( ) - / + . @, {LONGEST} characters at most, and no path, address or host"
_DEVICE = re.compile(r"\w{1,20}(:\d{1,4})?", re.ASCII)
_DEVICE_NAME = re.compile(rf"[A-Za-z0-9 ()\-/+.@]{{1,{LONGEST}}}")
_PRIVATE = re.compile(
    r"""(?:^|\s)/ | \.{2}/ | /.*/                                      # a path
      | [\w.+-]+@(?!\d+\.\d+GHz)[\w-]                                # somebody somewhere; "CPU @ 2.60GHz" is none
      | (?:[\w-]+\.){2,}[\w-]+                                         # a host's name or an IPv4 address
      | \b(?:GPU|MIG)-[0-9a-f]+- | \b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-   # a UUID
    """,
    re.VERBOSE | re.IGNORECASE,
)


def refused(measurements: Sequence[Measurement]) -> list[str]:
    """Return a sentence for each kind of text or number that rows need and that may not be published."""
    cases = {id(each.case): each.case for each in measurements}  # rounds of a case share it
    found = [sentence for case in cases.values() for sentence in _unfit(case)]
    named = dict.fromkeys((each.case.device, each.device_name) for each in measurements if each.device_name is not None)
    for device, names in grouped(named, itemgetter(0)).items():
        for _, name in names:
            if not _DEVICE_NAME.fullmatch(name) or _PRIVATE.search(name):
                found.append(f"{name[:LONGEST]!r} is not what a maker calls a device, which has {_PLAIN}")
        if len(names) > 1:
            found.append(f"{device} has several names in it; measure on one machine")
    return [*dict.fromkeys(found)][:MOST_SENTENCES]


def _unfit(case: Case) -> Iterator[str]:
    """Yield what is not a plain word or a finite number of what tells a case from others."""
    for what, text, is_plain in (
        ("a suite is", case.suite, is_word(case.suite)),
        ("a workload is", case.workload, is_word(case.workload)),
        ("a device is", case.device, _DEVICE.fullmatch(case.device)),
        *(("a parameter is", name, is_word(name)) for name in case.params),
        *((f"{name} is", value, is_setting(value)) for name, value in case.params.items() if isinstance(value, str)),
    ):
        if not is_plain:
            yield f"{what} called {text[:LONGEST]!r}, and only plain words (letters, digits and _) are published; measure without that"
    words = {case.workload, *case.device.split(":"), *case.params, *map(value_text, case.params.values())}
    if any(not isinstance(value, str) and number(value) is None for value in case.params.values()):
        yield f"a parameter of {case.id[:LONGEST]} is not a finite number"
    elif not words.issuperset(filter(None, re.split(r"[][,=@:]|#\d{1,3}@", case.id))):
        yield f"the name {case.id[:LONGEST]!r} says something else than the case's workload, parameters and device; measure it again"


def is_word(text: str) -> bool:
    """Whether a text is a plain word: of letters, digits and ``_``."""
    return re.fullmatch(r"\w{1,80}", text, re.ASCII) is not None


def is_setting(text: str) -> bool:
    """Whether a text is a plain word as a parameter has one."""
    return re.fullmatch(SETTING, text, re.ASCII) is not None


def number(value: object) -> int | float | bool | None:
    """Return a flag or a finite number; None for anything else."""
    # Not math.isfinite, which a whole number of a thousand digits is too large for.
    return value if isinstance(value, int | float) and abs(value) <= MOST else None
