"""The reference runs that come with dlbench: each can be read, has most of what its suites plan, and all together are small."""

import functools

import front_door
import pytest

from dlbench.core.model import Status
from dlbench.core.store import load
from dlbench.harness.plan import cases as planning
from dlbench.harness.plan import suite
from dlbench.harness.worker import registry

FOLDERS = sorted({path.parent for path in (front_door.ROOT / "results" / "reference").glob("*/*.jsonl")})
MAX_BYTES = 8_000_000
ANSWERED = (Status.OK, Status.UNSUPPORTED)
"""A case that the machine can't do is not missing."""


@functools.cache
def signatures():
    registry.load_builtins()
    return {name: each.signature for name, each in registry.all_workloads().items()}


def lacking(folder):
    """Return, by suite, what is planned today for the devices that the files of a machine measured it on, and what of it they lack.

    Only where they were asked for all of it: a contributed file does not tell, and -k and --set ask for less or for other cases.
    """
    runs = [load(path) for path in sorted(folder.glob("*.jsonl"))]
    assert [run.path.name for run in runs if run.left_out or run.torn] == []
    found = {}
    for name in sorted({each.case.suite for run in runs for each in run.measurements} & set(suite.builtin_names())):
        of_suite = [(run, each) for run in runs for each in run.measurements if each.case.suite == name]
        devices = sorted({each.case.device for _, each in of_suite})
        planned = {case.id for case in planning.plan([suite.load(name)], signatures(), devices) if case.device in devices}
        answered = {each.case.id for _, each in of_suite if each.status in ANSWERED}
        if all(run.header.get("expression", "") is None for run, _ in of_suite) and planned & answered:
            found[name] = planned, planned - answered
    return found


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_a_reference_can_be_read_wholly_and_has_most_of_the_cases_that_its_suites_plan(folder):
    found = lacking(folder)
    assert {name: sorted(lacks) for name, (planned, lacks) in found.items() if 3 * len(lacks) > len(planned)} == {}


def test_all_of_them_are_small():
    sizes = {str(path.relative_to(folder.parent)): path.stat().st_size for folder in FOLDERS for path in folder.glob("*.jsonl")}
    assert sum(sizes.values()) <= MAX_BYTES, sizes
