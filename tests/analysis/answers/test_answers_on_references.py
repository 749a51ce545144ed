"""Answers on every committed reference run, each alone and all of a folder together: what no answer may say, whatever was measured."""

from dataclasses import replace

import front_door
import pytest

from dlbench.analysis.answers import answers
from dlbench.analysis.answers.engine.question import Answer
from dlbench.analysis.read.table import collect

REFERENCES = front_door.ROOT / "results" / "reference"
RUNS = sorted(REFERENCES.glob("**/*.jsonl"))


@pytest.fixture(params=[*RUNS, *sorted({path.parent for path in RUNS})], ids=lambda path: str(path.relative_to(REFERENCES)), scope="module")
def results(request):
    """Rows of a run, or of all runs of a machine."""
    return replace(collect([request.param]), references=False)


@pytest.fixture(scope="module")
def answered_rows(results):
    """Rows of all tables of its answers."""
    found = [each for each in answers(results) if isinstance(each, Answer)]
    return [row for each in found for table in each.tables for row in table.rows]


def test_no_row_stands_above_its_ceiling(results, answered_rows):
    shares = [row.rate.ceiling_fraction for row in results.rows] + [row.get("rate.ceiling_fraction") for row in answered_rows]
    assert max([share for share in shares if share is not None], default=0) <= 1


def test_no_line_has_a_latency_or_a_beginning_of_zero(answered_rows):
    assert not [row for row in answered_rows if 0 in (row.get("copies.latency_s"), row.get("batch.fixed_bytes"))]
