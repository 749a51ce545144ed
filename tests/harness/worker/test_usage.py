"""CPU time that a measuring process lost, on made-up machines, and what it says of that."""

import os
import shutil
import threading
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import made_up
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from machine_fake import write

from dlbench.core.conditions import Throttling
from dlbench.core.errors import Unknown, explained
from dlbench.harness.worker import usage
from dlbench.harness.worker.serving.main import _note_lost_time
from dlbench.harness.worker.usage import SHORTEST_S, LostTime, thread_waits

NS = 10**9
NOT_WAITED = "the system does not count how long threads wait for a CPU"
NOT_STOLEN = "the system does not count what a hypervisor takes"
OWN = "the case has processes or threads of its own, which take the CPUs from each other"
SHORT = "it was timed for less than 0.1 s, of which a single wait would be too much"
SCHEDSTAT = "proc/self/task/7/schedstat"
NEITHER = {"waiting": NOT_WAITED, "stolen": NOT_STOLEN}


def threads(**waited_ns):
    """/proc of a process with these threads, each of which has had turns."""
    return {f"proc/self/task/{name[1:]}/schedstat": f"123456789 {waited} 42" for name, waited in waited_ns.items()}


def stat(*stolen_ticks):
    """/proc/stat of a CPU for each of these counts of stolen ticks."""
    rows = "\n".join(f"cpu{number} 50 0 9 1000 5 0 0 {stolen} 0 0" for number, stolen in enumerate(stolen_ticks))
    return {"proc/stat": f"cpu  1 0 0 1 0 0 0 {sum(stolen_ticks)} 0 0\n{rows}\nintr 1"}


def lost(root, before, after, seconds, *, own_threads=False):
    """The shares between two states of a machine that are so far apart, and why some are missing."""
    now_s = iter((5.0, 5.0 + seconds))
    write(root, before)
    links = mock.Mock(side_effect=lambda _: len(list((root / "proc/self/task").iterdir())))  # not every file system counts folders
    with mock.patch.object(usage, "_links", links), mock.patch("dlbench.harness.probe.linux.ROOT", root):
        lost_time = LostTime(lambda: next(now_s))
        for gone in before.keys() - after.keys():
            (root / gone).unlink()
        write(root, after)
        found, missing_reasons = lost_time.shares(own_threads)
    return found, {group: explained(reasons) for group, reasons in missing_reasons.items()}


THREE_CPUS = (
    threads(_7=5 * NS, _8=0) | stat(100, 200, 300),
    threads(_7=5 * NS + NS // 10, _8=NS // 5, _9=3 * NS // 10) | stat(100, 221, 999),
)


@pytest.fixture(autouse=True)
def _two_cpus(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1}, raising=False)
    monkeypatch.setattr("dlbench.harness.probe.linux.TICK_S", 0.01)
    monkeypatch.setattr("dlbench.harness.worker.usage.TICK_S", 0.01)


@pytest.mark.parametrize(
    ("before", "after", "seconds", "shares", "missing"),
    [
        # A third thread came and waited for 0.3 s, and the CPU that was taken most is not ours.
        (THREE_CPUS[0], THREE_CPUS[1], 2.0, (0.15, 0.1), {}),
        # The count of whole ticks may be one too many.
        (threads(_7=0) | stat(0, 0), threads(_7=0) | stat(1, 0), 0.2, (0.0, 0.0), {}),
        # One thread has ended.
        (threads(_7=0, _8=NS) | stat(0), threads(_7=NS // 4) | stat(0), 1.0, (0.25, 0.0), {}),
        (threads(_7=0), threads(_7=NS), 2.0, (0.5, None), {"stolen": NOT_STOLEN}),
        (stat(0, 0), stat(0, 101), 2.0, (None, 0.5), {"waiting": NOT_WAITED}),
        (threads(_7=0) | stat(0), threads(_7=NS // 100) | stat(0), SHORTEST_S / 2, (None, 0.0), {"waiting": SHORT}),
        *((files, files, 9.0, (None, None), NEITHER) for files in ({}, {SCHEDSTAT: "0 0 0"}, {SCHEDSTAT: "not counted"})),
    ],
)
def test_the_thread_that_waited_most_and_the_cpu_that_was_taken_most_count(tmp_path, before, after, seconds, shares, missing):
    found, missing_reasons = lost(tmp_path, before, after, seconds)
    assert ((found.waiting, found.stolen), missing_reasons) == (shares, missing)
    assert found.disturbed is (None if shares == (None, None) else sum(filter(None, shares)) > 0.05)


@pytest.mark.parametrize(("children_s", "own_threads", "waiting"), [(0.25, False, None), (0.0, True, None), (0.0, False, 0.5)])
def test_processes_or_threads_of_a_case_leave_no_waiting_for_others(tmp_path, monkeypatch, children_s, own_threads, waiting):
    spent = iter((1.0, 1.0 + children_s))
    monkeypatch.setattr(os, "times", lambda: SimpleNamespace(children_user=next(spent), children_system=0.0))
    before, after = (threads(_7=waited) | stat(0) for waited in (0, NS))
    found, missing_reasons = lost(tmp_path, before, after, 2.0, own_threads=own_threads)
    assert (found.waiting, missing_reasons) == (waiting, {} if waiting else {"waiting": OWN})


counts = st.lists(st.integers(0, 2**63), min_size=1, max_size=3)


@settings(max_examples=30)
@given(counts, counts, st.floats(0, 1e6))
def test_a_share_is_a_share_whatever_is_counted(tmp_path_factory, waited, stolen, seconds):
    before, after = (threads(_7=waited[at]) | stat(stolen[at]) for at in (0, -1))
    found, missing_reasons = lost(tmp_path_factory.mktemp("machine"), before, after, seconds)
    assert all(share is None or 0 <= share <= 1 for share in (found.waiting, found.stolen))
    assert missing_reasons.keys() == {name for name in ("waiting", "stolen") if getattr(found, name) is None}


@pytest.fixture
def process(tmp_path, monkeypatch):
    """Let the process have these threads, each with what it has waited for so far, whatever the file system counts of a folder."""
    waited = {}
    monkeypatch.setattr("dlbench.harness.probe.linux.ROOT", tmp_path)
    monkeypatch.setattr(usage, "_links", lambda _: len(waited) + 2)

    def now(**waited_ns):
        for gone in waited.keys() - waited_ns.keys():
            shutil.rmtree(tmp_path / f"proc/self/task/{gone[1:]}")
        waited.clear()
        waited.update(waited_ns)
        write(tmp_path, threads(**waited_ns))

    return now


def test_the_longest_wait_of_a_thread_in_a_block_is_its_wait_also_of_threads_that_come_and_go(process):
    process()
    assert thread_waits() is None
    process(_7=5 * NS, _8=0)
    waits = thread_waits()
    process(_7=5 * NS + 1000, _8=3_000_000)
    assert [waits.longest_s(0.02), waits.longest_s(0.02)] == [0.003, 0.0]
    process(_7=5 * NS + 2000, _8=3_000_000)
    waits.restart()
    process(_7=5 * NS + 2000, _8=3_250_000)
    assert waits.longest_s(0.02) == 0.00025
    process(_7=5 * NS + 2000, _8=3_250_000, _9=2_000_000)  # it began with nothing
    assert waits.longest_s(0.02) == 0.002
    process(_7=5 * NS + 1_002_000)
    assert waits.longest_s(0.02) == 0.001


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="this kernel does not count waits")
def test_this_kernel_links_the_folder_of_threads_once_for_each_and_no_file_stays_open():
    folder = os.open("/proc/self/task", os.O_RDONLY)
    before, stop = usage._links(folder), threading.Event()
    thread = threading.Thread(target=stop.wait)
    thread.start()
    assert usage._links(folder) == before + 1
    stop.set()
    thread.join()
    os.close(folder)
    open_before = len(list(Path("/proc/self/fd").iterdir()))
    waits = thread_waits()
    assert len(list(Path("/proc/self/fd").iterdir())) >= open_before + 2
    del waits
    assert len(list(Path("/proc/self/fd").iterdir())) == open_before


@pytest.mark.parametrize(
    ("why", "wait_s"),
    [(None, (0.5, 0.0)), (Unknown.TOO_SHORT, (0.5, 0.0)), (Unknown.WAITING, (0.5, 0.0)), (Unknown.WAITING_OF_CHILDREN, None)],
)
def test_blocks_in_which_threads_may_have_waited_for_processes_of_the_case_have_no_wait(why, wait_s):
    (result,) = made_up.rounds_of(made_up.case(), [[1.0, 2.0]])
    result.samples.wait_s = (0.5, 0.0)
    missing_reasons = {"waiting": [why.reason()]} if why else {}
    lost_time = SimpleNamespace(shares=lambda own_threads: (Throttling(stolen=0.0), missing_reasons))
    _note_lost_time(result, lost_time, own_threads=False)
    assert (result.samples.wait_s, result.throttling, result.missing_reasons) == (wait_s, Throttling(stolen=0.0), missing_reasons)
