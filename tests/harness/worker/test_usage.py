"""CPU time that a measuring process lost, on made-up machines."""

import os
import shutil
import threading
from collections.abc import Callable
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st
from machine_fake import write

from dlbench.core.conditions import Throttling
from dlbench.core.errors import explained
from dlbench.harness.worker import usage
from dlbench.harness.worker.usage import SHORTEST_S, LostTime, block_waits

NS = 10**9
NOT_WAITED = "the system does not count how long threads wait for a CPU"
NOT_STOLEN = "the system does not count what a hypervisor takes"


def threads(**waited_ns: int) -> dict[str, str]:
    """/proc of a process with these threads, each of which has had turns."""
    return {f"proc/self/task/{name[1:]}/schedstat": f"123456789 {waited} 42" for name, waited in waited_ns.items()}


def stat(*stolen_ticks: int) -> dict[str, str]:
    """/proc/stat of a CPU for each of these counts of stolen ticks."""
    rows = "\n".join(f"cpu{number} 50 0 9 1000 5 0 0 {stolen} 0 0" for number, stolen in enumerate(stolen_ticks))
    return {"proc/stat": f"cpu  1 0 0 1 0 0 0 {sum(stolen_ticks)} 0 0\n{rows}\nintr 1"}


def lost(root: Path, before: dict[str, str], after: dict[str, str], seconds: float) -> tuple[Throttling, dict[str, str]]:
    """Return the shares between two states of a machine that are so far apart."""
    now_s = iter((5.0, 5.0 + seconds))
    write(root, before)
    links = mock.Mock(side_effect=lambda _: len(list((root / "proc/self/task").iterdir())))  # not every file system counts folders
    with mock.patch.object(usage, "_links", links), mock.patch("dlbench.harness.probe.linux.ROOT", root):
        lost_time = LostTime(lambda: next(now_s))
        write(root, after)
        found, missing_reasons = lost_time.shares(own_threads=False)
    return found, {group: explained(reasons) for group, reasons in missing_reasons.items()}


@pytest.fixture(autouse=True)
def _two_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1}, raising=False)
    monkeypatch.setattr("dlbench.harness.probe.linux.TICK_S", 0.01)
    monkeypatch.setattr("dlbench.harness.worker.usage.TICK_S", 0.01)


def test_the_thread_that_waited_most_and_the_cpu_that_was_taken_most_count(tmp_path: Path) -> None:
    before = threads(_7=5 * NS, _8=0) | stat(100, 200, 300)
    # A third thread came and waited for 0.3 s, and the CPU that was taken most is not ours.
    after = threads(_7=5 * NS + NS // 10, _8=NS // 5, _9=3 * NS // 10) | stat(100, 221, 999)
    assert lost(tmp_path, before, after, 2.0) == (Throttling(waiting=0.15, stolen=0.1), {})


def test_what_a_count_of_whole_ticks_leaves_open_is_not_taken_for_stolen(tmp_path: Path) -> None:
    found, missing_reasons = lost(tmp_path, threads(_7=0) | stat(0, 0), threads(_7=0) | stat(1, 0), 0.2)
    assert (found, found.disturbed, missing_reasons) == (Throttling(waiting=0.0, stolen=0.0), False, {})


def test_a_thread_that_has_ended_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dlbench.harness.probe.linux.ROOT", tmp_path)
    write(tmp_path, threads(_7=0, _8=NS) | stat(0))
    now_s = iter((0.0, 1.0))
    lost_time = LostTime(lambda: next(now_s))
    (tmp_path / "proc/self/task/8/schedstat").unlink()
    write(tmp_path, threads(_7=NS // 4))
    assert lost_time.shares(own_threads=False)[0].waiting == 0.25


def test_where_a_case_has_processes_of_its_own_waiting_says_nothing_of_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spent = iter((1.0, 1.25))
    monkeypatch.setattr(os, "times", lambda: SimpleNamespace(children_user=next(spent), children_system=0.0))
    found, missing_reasons = lost(tmp_path, threads(_7=0) | stat(0), threads(_7=NS) | stat(0), 2.0)
    assert (found.waiting, found.disturbed) == (None, False)
    assert missing_reasons == {"waiting": "the case has processes or threads of its own, which take the CPUs from each other"}


def test_so_it_does_where_a_case_has_threads_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dlbench.harness.probe.linux.ROOT", tmp_path)
    write(tmp_path, threads(_7=0) | stat(0))
    now_s = count()
    lost_time = LostTime(lambda: float(next(now_s)))
    write(tmp_path, threads(_7=NS // 4))
    assert [lost_time.shares(own_threads)[0].waiting for own_threads in (True, False)] == [None, 0.125]


@pytest.mark.parametrize(
    "schedstat",
    [
        pytest.param({}, id="no such file"),
        pytest.param({"proc/self/task/7/schedstat": "0 0 0"}, id="zeros"),
        pytest.param({"proc/self/task/7/schedstat": "not counted"}, id="words"),
    ],
)
def test_a_system_that_does_not_count_is_null_with_a_reason(tmp_path: Path, schedstat: dict[str, str]) -> None:
    found, missing_reasons = lost(tmp_path, schedstat, {}, 9.0)
    assert (found, found.lost, found.disturbed) == (Throttling(), None, None)
    assert missing_reasons == {"waiting": NOT_WAITED, "stolen": NOT_STOLEN}


def test_each_is_told_without_the_other(tmp_path: Path) -> None:
    assert lost(tmp_path / "a", threads(_7=0), threads(_7=NS), 2.0) == (Throttling(waiting=0.5), {"stolen": NOT_STOLEN})
    assert lost(tmp_path / "b", stat(0, 0), stat(0, 101), 2.0) == (Throttling(stolen=0.5), {"waiting": NOT_WAITED})


def test_of_a_moment_a_single_wait_would_be_too_much(tmp_path: Path) -> None:
    found, missing_reasons = lost(tmp_path, threads(_7=0) | stat(0), threads(_7=NS // 100) | stat(0), SHORTEST_S / 2)
    assert (found, found.disturbed) == (Throttling(stolen=0.0), False)
    assert missing_reasons == {"waiting": "it was timed for less than 0.1 s, of which a single wait would be too much"}


counts = st.lists(st.integers(0, 2**63), min_size=1, max_size=3)


@given(counts, counts, st.floats(0, 1e6))
def test_a_share_is_a_share_whatever_is_counted(
    tmp_path_factory: pytest.TempPathFactory, waited: list[int], stolen: list[int], seconds: float
) -> None:
    root = tmp_path_factory.mktemp("machine")
    before, after = (threads(_7=waited[at]) | stat(stolen[at]) for at in (0, -1))
    found, missing_reasons = lost(root, before, after, seconds)
    assert all(share is None or 0 <= share <= 1 for share in (found.waiting, found.stolen))
    assert missing_reasons.keys() == {name for name in ("waiting", "stolen") if getattr(found, name) is None}


@pytest.fixture
def process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """What has the process have these threads, each with what it has waited for so far, whatever the file system counts of a folder."""
    waited: dict[str, int] = {}
    monkeypatch.setattr("dlbench.harness.probe.linux.ROOT", tmp_path)
    monkeypatch.setattr(usage, "_links", lambda _: len(waited) + 2)

    def now(**waited_ns: int) -> None:
        for gone in waited.keys() - waited_ns.keys():
            shutil.rmtree(tmp_path / f"proc/self/task/{gone[1:]}")
        waited.clear()
        waited.update(waited_ns)
        write(tmp_path, threads(**waited_ns))

    return now


def test_the_longest_wait_of_a_thread_in_a_block_is_its_wait(process: Callable[..., None]) -> None:
    process(_7=5 * NS, _8=0)
    waits = block_waits()
    process(_7=5 * NS + 1000, _8=3_000_000)
    assert waits.longest_s(0.02) == 0.003
    assert waits.longest_s(0.02) == 0.0
    process(_7=5 * NS + 2000, _8=3_000_000)
    waits.restart()
    process(_7=5 * NS + 2000, _8=3_250_000)
    assert waits.longest_s(0.02) == 0.00025


def test_threads_that_come_and_go_are_seen_as_soon_as_their_number_changes(process: Callable[..., None]) -> None:
    process(_7=NS, _8=NS)
    waits = block_waits()
    process(_7=NS, _8=NS, _9=2_000_000)  # it began with nothing
    assert waits.longest_s(0.02) == 0.002
    process(_7=NS + 1_000_000)
    assert waits.longest_s(0.02) == 0.001


def test_where_the_kernel_counts_no_waits_a_block_in_which_a_thread_had_to_leave_its_cpu_is_all_wait(
    process: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    process()
    forced = iter((4, 4, 4, 9, 9))
    monkeypatch.setattr(usage, "_switches", lambda: (3, next(forced)))
    waits = block_waits()
    assert [waits.longest_s(0.02) for _ in range(3)] == [0.0, 0.02, 0.0]


def test_where_nothing_counts_no_block_has_a_wait(process: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    process()
    monkeypatch.setattr(usage, "_switches", lambda: (0, 0))
    assert block_waits() is None


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="this kernel does not count waits")
def test_this_kernel_links_the_folder_of_threads_once_for_each() -> None:
    folder = os.open("/proc/self/task", os.O_RDONLY)
    before, stop = usage._links(folder), threading.Event()
    thread = threading.Thread(target=stop.wait)
    thread.start()
    assert usage._links(folder) == before + 1
    stop.set()
    thread.join()
    os.close(folder)


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="this kernel does not count waits")
def test_no_file_stays_open_behind_a_case() -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    waits = block_waits()
    assert waits
    assert len(list(Path("/proc/self/fd").iterdir())) >= before + 2
    del waits
    assert len(list(Path("/proc/self/fd").iterdir())) == before
