"""Results in README.md and the documentation, held against the committed result files."""

import re
from pathlib import Path

import pytest
from front_door import ROOT, dlbench

from benchmarks.replay import GATE

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
SHOWS = re.compile(r"```console\n\$ dlbench (show results/reference/[^\n]+)\n(.*?)```", re.DOTALL)
SHOWN = {str(page.relative_to(ROOT)): SHOWS.findall(page.read_text()) for page in PAGES}
TABLES = [each for found in SHOWN.values() for each in found]


def stripped(text):
    return [line.rstrip() for line in text.strip("\n").rstrip().splitlines()]


def test_there_are_tables_from_reference_files():
    assert {page for page, found in SHOWN.items() if found} == {"README.md", "docs/scaling-results.md"}


@pytest.mark.parametrize(("command", "shown"), TABLES, ids=[command for command, _ in TABLES])
def test_a_table_is_what_its_command_prints(command, shown):
    done = dlbench(*command.split(), cwd=ROOT)
    assert done.code == 0, done.err
    assert stripped(shown) == stripped(done.out)


def test_the_error_rates_are_those_of_the_page_that_a_test_holds_against_the_recording():
    words = " ".join((ROOT / "README.md").read_text().split())
    said = re.search(
        r"takes by itself called a suite of identical ones slower in ([\d.]+) % of windows, and saw a real 10 % in ([\d.]+) %", words
    )
    rows = [line.split(" | ") for line in (ROOT / "docs" / "validation.md").read_text().splitlines() if line.startswith(f"| {GATE}: ")]
    assert said
    assert [(row[4], row[9]) for row in rows] == [(f"{said[1]} %", f"{said[2]} %")]


def test_the_picture_is_what_report_draws_of_the_file_of_the_table(tmp_path):
    text = " ".join((ROOT / "README.md").read_text().split())
    ((words, picture),) = re.findall(r"!\[(.*?)\]\((.*?)\)", text)
    (command, shown), *_ = SHOWN["README.md"]
    done = dlbench("report", str(ROOT / command.split()[1]), "-o", "page.html", "--figures", "figures", cwd=tmp_path)
    assert done.code == 0, done.err
    drawn, committed = ((path / Path(picture).name).read_text() for path in (tmp_path / "figures", (ROOT / picture).parent))
    labels = [re.findall(r">([^<]+)</text>", svg) for svg in (drawn, committed)]
    assert labels[0] == labels[1]
    ratios = sorted(float(ratio) for ratio in re.findall(r"([\d.]+) ×", shown))
    assert len(ratios) == 6
    assert f"{ratios[0]:.2f} to {ratios[-1]:.2f} times as fast" in words
    assert f"up to {ratios[-1]:.1f} times as fast" in text
