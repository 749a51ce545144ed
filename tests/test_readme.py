"""What README.md shows of results is what the committed result files still say."""

import re

import pytest
from front_door import ROOT, dlbench

README = (ROOT / "README.md").read_text()
SHOWN = re.findall(r"```console\n\$ dlbench (show results/reference/\S+)\n(.*?)```", README, re.DOTALL)


def stripped(text):
    return [line.rstrip() for line in text.strip("\n").splitlines()]


def test_there_is_a_table_from_a_reference_file():
    assert SHOWN


@pytest.mark.parametrize(("command", "shown"), SHOWN, ids=[command for command, _ in SHOWN])
def test_a_table_is_what_its_command_prints(command, shown):
    done = dlbench(*command.split(), cwd=ROOT)
    assert done.code == 0, done.err
    assert stripped(shown) == stripped(done.out)
