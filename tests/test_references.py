"""The reference runs that come with dlbench: each can be read, has most of what its suites plan, and all together are small.

``pytest -s tests/test_references.py`` says which cases they lack.
"""

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
    """Return, by suite, what is planned today for the devices that the files of a machine measured it on, what of it they lack, and
    whether they were asked for all of it: a contributed file does not tell, and -k and --set ask for less or for other cases.

    Raises ResultFileError for a file that can't be read.
    """
    runs = [load(path) for path in sorted(folder.glob("*.jsonl"))]
    found = {}
    for name in sorted({each.case.suite for run in runs for each in run.measurements} & set(suite.builtin_names())):
        of_suite = [(run, each) for run in runs for each in run.measurements if each.case.suite == name]
        devices = sorted({each.case.device for _, each in of_suite})
        planned = [case.id for case in planning.plan([suite.load(name)], signatures(), devices) if case.device in devices]
        answered = {each.case.id for _, each in of_suite if each.status in ANSWERED}
        whole = all(run.header.get("expression", "") is None for run, _ in of_suite) and not answered.isdisjoint(planned)
        found[name] = planned, [case for case in planned if case not in answered], whole
    return found


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_a_reference_has_most_of_the_cases_that_its_suites_plan(folder):
    found = lacking(folder)
    for name, (planned, lacks, _) in found.items():
        print(f"\n{folder.name}: {name} lacks {len(lacks)} of {len(planned)} cases", *lacks, sep="\n  ")  # noqa: T201  # what a reader of this test is after
    assert found
    assert [name for name, (planned, lacks, whole) in found.items() if whole and 3 * len(lacks) > len(planned)] == []


def test_a_case_counts_as_missing_unless_a_file_of_its_suite_has_it():
    planned, lacks, whole = lacking(front_door.FILES / "intel-xeon-processor-amx")["batch"]
    assert "train_step[model=alexnet,batch=1,dtype=fp32]@cpu" in planned
    assert "train_step[model=alexnet,batch=1,dtype=fp32]@cpu" not in lacks
    assert "train_step[model=alexnet,batch=256,dtype=fp32]@cpu" in lacks
    assert not whole


def test_every_line_of_a_reference_is_read():
    runs = [load(path) for folder in FOLDERS for path in folder.glob("*.jsonl")]
    assert [run.path.name for run in runs if run.left_out or run.torn] == []


def test_all_of_them_are_small():
    sizes = {str(path.relative_to(folder.parent)): path.stat().st_size for folder in FOLDERS for path in folder.glob("*.jsonl")}
    assert sum(sizes.values()) <= MAX_BYTES, sizes
