"""What README.md and the documentation show of results is what the committed result files still say."""

import re

import pytest
from front_door import ROOT, dlbench

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
SHOWN = {
    page.name: re.findall(r"```console\n\$ dlbench (show results/reference/[^\n]+)\n(.*?)```", page.read_text(), re.DOTALL)
    for page in PAGES
}
TABLES = [each for found in SHOWN.values() for each in found]


def stripped(text):
    return [line.rstrip() for line in text.strip("\n").splitlines()]


def test_there_are_tables_from_reference_files():
    assert {page for page, found in SHOWN.items() if found} == {"README.md", "scaling.md"}


@pytest.mark.parametrize(("command", "shown"), TABLES, ids=[command for command, _ in TABLES])
def test_a_table_is_what_its_command_prints(command, shown):
    done = dlbench(*command.split(), cwd=ROOT)
    assert done.code == 0, done.err
    assert stripped(shown) == stripped(done.out)
