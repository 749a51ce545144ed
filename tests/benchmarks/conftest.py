"""The benchmarks are scripts of the checkout, not of the installed package."""

import re
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent.parent))


@pytest.fixture
def printed(capsys):
    """Runs a script; returns the cells of its table, heading first, and what it says of its aim."""

    def run(script, *arguments):
        script.main(arguments)
        title, table, last = capsys.readouterr().out.split("\n\n")
        assert title.endswith(":")
        verdict, measured_with = re.fullmatch(r"((?:reached|MISSED): .*)\.\n\((.*)\)\n", last, re.DOTALL).groups()
        assert re.fullmatch(r"dlbench \S+, Python \S+, torch \S+, .+, \d+ threads, \d{4}-\d\d-\d\d", measured_with.replace("\n", " "))
        rows = [[cell.strip() for cell in line[2:-2].split(" | ")] for line in table.splitlines()]
        assert all(re.fullmatch("-+", cell) for cell in rows.pop(1))
        return rows, verdict.replace("\n", " ")

    return run
