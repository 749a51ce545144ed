"""Commands that measure a run or one case of it again, from what its file says of the command that measured it."""

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dlbench.analysis.pairing import grouped
from dlbench.analysis.read.references import part
from dlbench.core import units
from dlbench.core.model import kind_of
from dlbench.core.rows.row import Row

_WORD = re.compile(r"[\w.:@\[\],=+-]+")
"""A word of ``-k``, which selects the ids that contain it."""
_OPERATORS = ("and", "or", "not")
_WRITING = ("-o", "--output", "--resume", "--format", "--junit", "--verdict", "--report")
"""Options with a value that say where to write, or how."""
_CHOOSING = ("-k", "--device")
"""Options with a value that say what to measure."""
_FLAGS = ("--github", "--dry-run")
_NO_DEFAULTS = ("device", "format", "strict", "plain")
"""Options set by default that do not belong to the command either."""


def again(rows: Sequence[Row], environments: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return for each row the command that measures its case again and no other case of its file, quoted for a shell.

    Two ids that differ in nothing but the case of letters select each other.
    """
    of_run = grouped(rows, lambda row: row.case.run)
    ids = {run: [row.case.id.lower() for row in found] for run, found in of_run.items()}
    alike = {run: grouped(found, _parameters) for run, found in ids.items()}
    found = []
    for row in rows:
        run, case = row.case.run, row.case.id
        words = _words(case)
        # An id that holds another whole has its parameters, too; only an id of several words needs a look at all of them.
        rivals = ids[run] if len(words) > 1 else alike[run][_parameters(case.lower())]
        terms = [*words, *(f"not {word}" for word in _telling(case.lower(), words, rivals))]
        where = kind_of(row.case.device) if "ranks" in row.params else row.case.device  # one id stands for all devices of its kind
        command = ["dlbench", *_given(row, environments.get(run, {})), *(["-k", " and ".join(terms)] if terms else [])]
        found.append(shlex.join(map(units.one_line, [*command, "--device", where])))
    return found


def whole(rows: Sequence[Row], environment: Mapping[str, Any]) -> str:
    """Return the command that measures the cases of one run again, into a file of its own, quoted for a shell."""
    words = _recorded(environment)
    command = _kept(words, _WRITING) if words else ["run", *dict.fromkeys(row.case.suite for row in rows)]
    return shlex.join(map(units.one_line, ["dlbench", *command]))


def _words(case: str) -> list[str]:
    return [word for word in _WORD.findall(case) if word not in _OPERATORS]


def _parameters(case: str) -> str:
    return case[case.find("[") :]


def _telling(case: str, words: Sequence[str], rivals: Sequence[str]) -> list[str]:
    """Return a word of each rival that all of the words select as well, which the case has not."""
    wanted = [word.lower() for word in words]
    also = [rival for rival in dict.fromkeys(rivals) if rival != case and all(word in rival for word in wanted)]
    found = (next((word for word in _words(rival) if word not in case), None) for rival in also)
    return list(dict.fromkeys(filter(None, found)))


def _given(row: Row, environment: Mapping[str, Any]) -> list[str]:
    """Return the words of the command that measured a row, without what it chose and wrote; of another tool's file the suite alone.

    Options that defaults of the user's set stand there as if they had been typed.
    """
    words = _recorded(environment)
    if not words:
        return ["run", row.case.suite]
    return [*_kept(words, _WRITING + _CHOOSING), *_by_default(part(environment, "provenance", "defaults"))]


def _recorded(environment: Mapping[str, Any]) -> list[str]:
    """Return the words of the ``run`` or ``ab`` that a file was measured by; none where another command or tool made it."""
    argv = part(environment, "provenance", "argv")
    words = [str(word) for word in argv[1:]] if isinstance(argv, list) else []
    return words if words[:1] in (["run"], ["ab"]) else []


def _by_default(defaults: object) -> Iterator[str]:
    for name, default in defaults.items() if isinstance(defaults, dict) else ():
        if name not in _NO_DEFAULTS and isinstance(default, dict):
            value = default.get("value")
            for each in value if isinstance(value, list) else [value]:
                yield from (f"--{name}", str(each))


def _kept(words: Sequence[str], left_out: Sequence[str]) -> Iterator[str]:
    rest = iter(words)
    for word in rest:
        if word in left_out:
            next(rest, None)
        elif word not in _FLAGS and not word.startswith(tuple(f"{name}=" if name[1] == "-" else name for name in left_out)):
            yield word
