"""Claims of others, and what was measured, as data: one JSON document, or Markdown."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from dlbench.analysis.claims.evidence import Evidence, Held
from dlbench.analysis.claims.wording import sentence, source, tables
from dlbench.analysis.export.answers_export import section
from dlbench.analysis.export.tabular import markdown, markdown_table


def as_json(held: Sequence[Held], not_usable: Sequence[str] = ()) -> str:
    """Return one document: ``claims``, each with who says what and when, the ``sentence``, and the ``evidence`` in base units.

    ``outcome`` is measured, lacking or untested; ``not_usable``, first in it, is a line for each run that is not.
    """
    document = {"not_usable": list(not_usable), "claims": list(map(_claim, held))}
    return json.dumps(document, ensure_ascii=False, allow_nan=False, indent=1) + "\n"


def _claim(found: Held) -> dict[str, Any]:
    claim = found.claim
    stated = {name: getattr(claim, name) for name in ("id", "says", "low", "high", "is_our_reading", "unit", "who", "when")}
    return {
        **stated,
        "outcome": "measured" if found.findings else "lacking" if claim.test else "untested",
        "sentence": sentence(found),
        "command": found.command,
        "measure": claim.test.measure if claim.test else None,
        "evidence": [_evidence(each, finding.place, finding.part) for finding in found.findings for each in finding.evidence],
    }


def _evidence(found: Evidence, place: str, part: str) -> dict[str, Any]:
    return {
        "case": found.case,
        "device": place,
        "part": part or None,
        "unit": found.unit.value,
        "value": found.value,
        "low": found.low,
        "high": found.high,
        "rows": [row.case.id for row in found.sides],
        "files": list(dict.fromkeys(row.file for row in found.sides)),
        **({"converges": found.training.converges} if found.training else {}),
    }


def as_markdown(held: Sequence[Held], not_usable: Sequence[str] = ()) -> str:
    """Return a table with a line for each claim, and all that claims were held against; first a line for each run that is not usable."""
    return "\n\n".join(_parts(held, not_usable)) + "\n"


def _parts(held: Sequence[Held], not_usable: Sequence[str]) -> Iterator[str]:
    yield from (f"**{markdown(line)}**" for line in not_usable)
    rows = ([found.claim.id, found.claim.says, source(found.claim), sentence(found)] for found in held)
    headings = ["claim", "others say", "who and when", "here"]
    yield "".join(markdown_table(headings, (map(markdown, row) for row in rows))).rstrip()
    for each in tables(held):
        yield from section(each)
