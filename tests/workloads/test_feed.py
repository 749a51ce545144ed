"""Every way of a batch to the device: each sample once an epoch, never a buffer overwritten too early, no worker left behind."""

import multiprocessing
import signal
import time
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import front_door
import pytest
import torch

from dlbench import UsageError, workload
from dlbench.core.declarations import from_json, to_json
from dlbench.harness.worker import registry
from dlbench.testing import set_up
from dlbench.workloads import batches, feed

CPU = torch.device("cpu")
N, BATCH = 22, 4
"""Samples and batch of the small data sets here: 5 whole batches an epoch, and 2 samples left over."""


def small():
    """A data set whose images hold the number of their sample, as its labels do."""
    labels = torch.arange(N)
    return labels.float().view(N, 1, 1, 1).expand(N, *feed.IMAGE).contiguous(), labels


def way(source, workers=0):
    return batches.way_of(source, small(), batches.Order(N, BATCH, CPU), CPU, workers)


def taken(way, calls):
    """What a step would get in so many calls."""
    found = []
    for _ in range(calls):
        way.make_room()
        found.append(way.send(way.fetch()))
    return found


def assert_whole_epochs(found, epochs=3, per_epoch=N // BATCH):
    assert all(torch.equal(images[:, 0, 0, 0].long(), labels) for images, labels in found)
    orders = [torch.cat([labels for _, labels in found[at * per_epoch : (at + 1) * per_epoch]]).tolist() for at in range(epochs)]
    assert all(len(set(order)) == per_epoch * BATCH for order in orders)
    assert len({tuple(order) for order in orders}) == epochs


@pytest.mark.parametrize(("source", "workers"), [("resident", 0), ("loader", 0), ("loader", 2), ("pageable", 0)])
def test_a_step_sees_each_sample_once_an_epoch_in_another_order_each_time(source, workers):
    feeding = way(source, workers)
    assert_whole_epochs(taken(feeding, 3 * (N // BATCH)))
    feeding.pause()
    assert not multiprocessing.active_children()
    assert len(taken(feeding, 1)) == 1
    feeding.pause()


def test_what_says_how_a_step_is_fed_is_declared_by_names_of_parameters_and_stands_in_the_header():
    declared = registry.get("feed").signature.declared
    assert from_json(to_json(declared)) == (declared, [])
    assert declared.feeding == ("source", "workers")
    with pytest.raises(UsageError, match=r"workload 'fed', feeding: no parameter is called 'sorce'; did you mean 'source'\?"):

        @workload(feeding=("sorce",))
        def fed(device: torch.device, *, source: str) -> None:
            """Be fed."""


class Streams:
    """Streams and events as a device has them, which copies only when somebody waits for it, as late as it may."""

    def __init__(self):
        self.step = self.now = self.Stream()

    class Stream:
        def __init__(self):
            self.queue = []

        def run(self, until=None):
            while self.queue and self.queue[0] is not until:
                self.queue.pop(0)()

        def wait_event(self, event):
            event.synchronize()

    @property
    def Event(self):  # noqa: N802  # as torch calls it
        streams = self

        class Event:
            def record(self):
                self.on, self.place = streams.now, lambda: None
                self.on.queue.append(self.place)

            def synchronize(self):
                if self.place in self.on.queue:
                    self.on.run(self.place)

        return Event

    @contextmanager
    def stream(self, stream):
        before, self.now = self.now, stream
        yield
        self.now = before

    def current_stream(self):
        return self.now

    def copied(self, part, device):
        target = torch.full_like(part, -1)
        self.now.queue.append(lambda: target.copy_(part))
        return target


@pytest.fixture
def streams(monkeypatch):
    made = Streams()
    monkeypatch.setattr(torch, "get_device_module", lambda device: made)
    monkeypatch.setattr(batches, "copied", made.copied)
    monkeypatch.setattr(batches, "page_locked", torch.empty_like)
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda tensor, stream: None)
    return made


@pytest.mark.parametrize("source", ["pinned", "prefetch"])
def test_a_page_locked_buffer_is_filled_again_only_when_its_copy_has_ended(source, streams):
    found = taken(way(source), 3 * (N // BATCH))
    streams.step.run()
    assert_whole_epochs(found)


@pytest.mark.parametrize("source", ["pinned", "prefetch"])
def test_the_streams_of_these_tests_show_a_buffer_that_is_filled_too_early(source, streams, monkeypatch):
    monkeypatch.setattr(batches.PageLocked, "make_room", lambda way: None)
    monkeypatch.setattr(Streams.Stream, "wait_event", lambda stream, event: None)
    feeding = way(source)
    found = taken(feeding, N // BATCH)
    for stream in (streams.step, getattr(feeding, "_stream", streams.step)):
        stream.run()
    with pytest.raises(AssertionError):
        assert_whole_epochs(found, epochs=1)


def test_a_prefetched_batch_is_there_before_the_step_and_the_next_is_not(streams):
    feeding = way("prefetch")
    ((images, labels),) = taken(feeding, 1)
    assert (images >= 0).all()
    assert (labels >= 0).all()
    assert all((part == -1).all() for part in feeding._ahead[0])


def test_no_page_locked_memory_is_unsupported_with_the_reason(streams, monkeypatch):
    def refuse(part):
        raise RuntimeError("no memory to lock\nand more")

    monkeypatch.setattr(batches, "page_locked", refuse)
    with pytest.raises(NotImplementedError, match=r"^no page-locked memory: no memory to lock$"):
        way("pinned")


@pytest.mark.parametrize(("source", "workers"), [("resident", 0), ("loader", 1)])
def test_a_call_is_a_real_step_and_its_parts_are_reported(source, workers):
    work = set_up("feed", batch=8, source=source, workers=workers, samples=64, width=16)
    losses = [work.call().item() for _ in range(20)]
    assert all(1 < loss < 20 for loss in losses)
    values = work.report()
    assert values.keys() == {"input_s", "epoch_gap_s"}
    assert 0 < values["input_s"] < 1
    assert (work.items, work.flops) == (8, 8 * (2 * 2 * 3072 * 16 + 3 * 2 * (16 * 16 + 16 * 10)))
    assert not multiprocessing.active_children()
    work.call()
    begun = time.monotonic()
    del work
    assert time.monotonic() - begun < 3
    assert not multiprocessing.active_children()


def test_an_epoch_of_one_batch_has_no_usual_call_and_so_no_gap(monkeypatch):
    monkeypatch.setattr(feed, "EPOCHS_S", 0.05)
    work = set_up("feed", batch=8, samples=8, width=16)
    work.call()
    assert work.report() == {"input_s": 0.0}


def test_the_gap_is_what_a_call_takes_longer_in_which_an_epoch_begins(monkeypatch):
    now_s = [0.0]
    monkeypatch.setattr(feed, "time", SimpleNamespace(perf_counter=lambda: now_s[0]))
    monkeypatch.setattr(feed, "EPOCHS_S", 5.0)
    order = batches.Order(100, 1, CPU)
    indices = order.batches()

    def call():
        begun = order.begun
        next(indices)
        now_s[0] += 0.25 if order.begun > begun else 0.0625

    call()
    assert feed.epoch_gaps(call, order, lambda: None) == [0.1875] * 3  # and then its time is up
    assert order.most == 100


def test_waits_are_those_in_the_middle_without_warm_up_and_beginnings_of_epochs(monkeypatch):
    ticks = count()
    monkeypatch.setattr(feed, "time", SimpleNamespace(perf_counter=lambda: float(next(ticks))))
    order = batches.Order(10, 1, CPU)
    waits = feed.Waits(order)
    assert waits.usual_s() == 0
    for number in range(40):
        with waits:
            order.begun += number % 7 == 0
            next(ticks) if number < 20 else None
    assert waits.usual_s() == 1


@pytest.mark.parametrize(
    ("params", "error", "sentence"),
    [
        ({"samples": 10**18}, MemoryError, r"the data set takes 1\d+\.\d\d GiB, and the host has .* GiB left"),
        ({"source": "loader", "workers": 10**9}, MemoryError, r"the data set with 1000000000 workers takes \d+\.\d\d GiB"),
        ({"samples": 7}, ValueError, r"a data set of 7 samples has no batch of 8"),
        ({"workers": 1}, ValueError, r"workers are those of source=loader; resident has none"),
        ({"source": "pageable"}, NotImplementedError, r"a CPU copies no batch"),
        ({"source": "pinned"}, NotImplementedError, r"a CPU has neither page-locked memory nor streams"),
        ({"source": "prefetch"}, NotImplementedError, r"a CPU has neither page-locked memory nor streams"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_allocated(params, error, sentence):
    with pytest.raises(error, match=sentence):
        set_up("feed", batch=8, **params)


def test_too_little_shared_memory_for_the_workers_is_said_with_numbers(monkeypatch, tmp_path):
    monkeypatch.setattr(feed, "SHARED_MEMORY", tmp_path)
    monkeypatch.setattr(feed.os, "statvfs", lambda path: SimpleNamespace(f_bavail=1, f_frsize=4096))
    with pytest.raises(MemoryError, match=r"2 workers hand over 0\.00 GiB in .*, which has 0\.00 GiB left"):
        set_up("feed", batch=8, source="loader", workers=2)


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="reads the kernel's list of children")
def test_a_killed_run_takes_the_workers_of_a_loader_along(tmp_path):
    axes = 'axes.source = "loader"\naxes.workers = 2\naxes.batch = 8\naxes.samples = 64\naxes.width = 16'
    head = front_door.HASTY.replace("round_s = 0.01", "round_s = 60\nmin_blocks = 1000000\nmax_blocks = 1000000")
    suite = front_door.suite(tmp_path, f'workload = "feed"\n{axes}', head=head)
    process = front_door.start("run", suite, "--device", "cpu", "-o", "o.jsonl", cwd=tmp_path)
    try:
        deadline = time.monotonic() + 60
        # The process that has torch imported, its fork for the case, and two workers of that.
        while len(found := generations(process.pid)) < 3 or len(found[2]) < 2:
            assert time.monotonic() < deadline, "no worker came"
            time.sleep(0.05)
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    everybody = [pid for each in found for pid in each]
    deadline = time.monotonic() + 10
    while any(map(front_door.is_alive, everybody)):
        assert time.monotonic() < deadline, "a process was left behind"
        time.sleep(0.05)


def generations(pid):
    """Children of a process, their children, and so on."""
    found, of = [], [pid]
    while of := [child for parent in of for child in children(parent)]:
        found.append(of)
    return found


def children(pid):
    try:
        return [int(each) for file in Path(f"/proc/{pid}/task").glob("*/children") for each in file.read_text().split()]
    except OSError:
        return []
