"""Every way of a batch to the device: each sample once an epoch, never a buffer overwritten too early, no worker left behind."""

import multiprocessing
import os
import select
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import front_door
import pytest
import torch
from torch.utils.data._utils import worker as torch_worker

from dlbench.core.errors import explained
from dlbench.core.measurement import Measurement, Samples
from dlbench.core.model import Case, Status
from dlbench.harness.worker import registry
from dlbench.harness.worker.checking.correctness import Subject, spot_check
from dlbench.kit import batches
from dlbench.testing import ManualClock, set_up
from dlbench.workloads import feed

CPU = torch.device("cpu")
N, BATCH = 22, 4
"""Samples and batch of the small data sets here: 5 whole batches an epoch, and 2 samples left over."""


def small():
    """A data set whose images hold the number of their sample, as its labels do."""
    labels = torch.arange(N)
    return labels.float().view(N, 1, 1, 1).expand(N, *feed.IMAGE).contiguous(), labels


def way(source, workers=0):
    return batches.batch_source(source, small(), batches.EpochSampler(N, BATCH, CPU), CPU, workers)


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


@pytest.mark.parametrize(
    ("given", "on_a_cpu"),
    [
        ({"source": "pinned", "workers": 0}, {"source": "resident", "workers": 0}),
        ({"source": "loader", "workers": 2}, {"source": "resident", "workers": 0}),
        ({"source": "mine", "workers": 2}, {"source": "mine", "workers": 2}),
    ],
)
def test_the_check_of_a_way_that_copies_sets_the_step_up_without(monkeypatch, given, on_a_cpu):
    feed_step = registry.get("feed")
    monkeypatch.setattr(registry, "names", lambda kind: ("mine",))
    assert feed_step.resident({"batch": 4, **given}) == {"batch": 4, **on_a_cpu}


def test_a_check_of_pageable_batches_asks_the_cpu_for_none():
    params = {"batch": 4, "samples": 8, "width": 16, "dtype": "fp32", "source": "pageable", "workers": 0}
    feed_step, asked = registry.get("feed"), []

    def set_up_on_card(device, params):
        asked.append(params["source"])
        return feed_step.set_up(device, {**params, "source": "resident"})

    workload = SimpleNamespace(signature=feed_step.signature, resident=feed_step.resident, set_up=set_up_on_card)
    card = SimpleNamespace(is_host=False, synchronize=lambda device: None, to_host=list)
    timed = Samples(1, (0.001,), 0.001, 0.0, steady=True)
    result = Measurement(Case("feed@cuda:0", "s", "feed", params, "cuda:0"), 0, Status.OK, samples=timed)
    checked = spot_check(Subject(result, set_up_on_card(CPU, params), workload, params, 1, card, CPU, 0.0, 60.0))
    assert asked == ["pageable", "pageable", "resident"]
    assert (
        explained(checked.missing_reasons["check"])
        == "inputs: the workload names none; fp64: its call draws random numbers, which are others on each device"
    )


@pytest.mark.parametrize(("source", "workers"), [("resident", 0), ("loader", 1)])
def test_a_call_is_a_real_step_and_its_parts_are_reported(source, workers):
    work = set_up("feed", batch=8, source=source, workers=workers, samples=64, width=16)
    losses = [work.call().item() for _ in range(20)]
    assert all(1 < loss < 20 for loss in losses)
    values = work.report(ManualClock())
    assert values.keys() == {"input_s"}
    assert values["input_s"] > 0
    assert (work.items, work.flops) == (8, 8 * (2 * 2 * 3072 * 16 + 3 * 2 * (16 * 16 + 16 * 10)))
    assert not multiprocessing.active_children()


def test_a_step_states_the_bytes_that_its_operators_move():
    work = set_up("feed", batch=8, source="resident", samples=64, width=16)
    layers = [(3072, 16), (16, 16), (16, 10)]
    linear = [4 * (8 * (n + m) + n * m + m) for n, m in layers]
    weights = 4 * sum(n * m + m for n, m in layers)
    relus = 2 * (2 + 3) * 4 * 8 * 16
    biases = 4 * (8 * (16 + 16 + 10) - 16 - 10)  # sums for their gradients; two products a layer go without them
    loss = 8 * 4 * 8 * 10 + 2 * 8 * 8 + 5 * 4  # logits, labels twice, and five scalars
    assert work.bytes == 2 * linear[0] + 3 * sum(linear[1:]) + relus + biases + loss + 5 * weights
    assert work.least_bytes == 4 * 8 * 3072 + 5 * weights


def test_workers_end_when_they_are_told_to_and_not_when_they_notice(monkeypatch):
    monkeypatch.setattr(torch_worker, "MP_STATUS_CHECK_INTERVAL", 600.0, raising=False)  # after which they would look by themselves
    ended = []

    def end(process):  # as torch does to those that do not end by themselves
        ended.append(process)
        process.kill()

    monkeypatch.setattr(multiprocessing.process.BaseProcess, "terminate", end)
    work = set_up("feed", batch=8, source="loader", workers=1, samples=64, width=16)
    work.call()
    (worker,) = multiprocessing.active_children()
    del work
    worker.join()
    assert (worker.exitcode, ended) == (0, [])


def test_waits_are_those_of_the_later_half_in_rows_of_sixteen():
    ticks = count()
    waits = feed.FetchTimer(lambda: float(next(ticks)))
    assert waits.usual_s() == 0
    for number in range(40):
        with waits:
            next(ticks) if number < 20 or number == 30 else None
    assert waits.usual_s() == 1 + 1 / 16


@pytest.mark.parametrize(
    ("params", "error", "sentence"),
    [
        ({"samples": 10**18}, MemoryError, r"the data set takes 1\d+\.\d\d GiB, and the host has .* GiB left"),
        ({"source": "loader", "workers": 10**9}, MemoryError, r"the data set with 1000000000 workers takes \d+\.\d\d GiB"),
        ({"samples": 7}, ValueError, r"a data set of 7 samples has no batch of 8"),
        ({"workers": 1}, NotImplementedError, r"workers are those of source=loader; resident has none"),
        ({"source": "pageable"}, NotImplementedError, r"a CPU copies no batch"),
        ({"source": "pinned"}, NotImplementedError, r"a CPU has neither page-locked memory nor streams"),
        ({"source": "prefetch"}, NotImplementedError, r"a CPU has neither page-locked memory nor streams"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_allocated(params, error, sentence):
    with pytest.raises(error, match=sentence):
        set_up("feed", **{"batch": 8, "source": "resident", **params})


def test_too_little_shared_memory_for_the_workers_is_said_with_numbers(monkeypatch, tmp_path):
    monkeypatch.setattr(feed, "SHARED_MEMORY", tmp_path)
    monkeypatch.setattr(feed.os, "statvfs", lambda path: SimpleNamespace(f_bavail=1, f_frsize=4096))
    with pytest.raises(MemoryError, match=r"2 workers hand over 0\.00 GiB in .*, which has 0\.00 GiB left"):
        set_up("feed", batch=8, source="loader", workers=2)


PLUGIN = """
from dlbench import Work, workload
from dlbench.workloads.feed import feed

@workload()
def fed(device) -> Work:
    "Be fed."
    work = feed(device, batch=8, source="loader", workers=2, samples=64, width=16)
    work.call()
    open("{ready}", "w").close()
    return work
"""


@pytest.mark.real
@pytest.mark.skipif(not (hasattr(os, "pidfd_open") and Path("/proc/self/task").is_dir()), reason="waits and looks for processes by Linux")
def test_a_killed_run_takes_the_workers_of_a_loader_along(tmp_path):
    ready = tmp_path / "ready"
    os.mkfifo(ready)
    (tmp_path / "fed.py").write_text(PLUGIN.format(ready=ready))
    head = front_door.HASTY.replace("round_s = 0.01", "round_s = 60\nmin_blocks = 1000000\nmax_blocks = 1000000")
    suite = front_door.suite(tmp_path, 'workload = "fed"', head=head)
    opened = os.open(ready, os.O_RDONLY | os.O_NONBLOCK)
    process = front_door.start("run", suite, "fed.py", "--device", "cpu", "-o", "o.jsonl", cwd=tmp_path)
    try:
        assert select.select([opened], [], [], 60)[0], "no worker came"
        found = generations(process.pid)
        everybody = [os.pidfd_open(pid) for each in found for pid in each]
    finally:
        process.kill()
        process.communicate()
    # The process that has torch imported, its fork for the case, and two workers of that.
    assert [len(each) for each in found[1:]] == [1, 2]
    for each in everybody:
        assert select.select([each], [], [], 10)[0], "a process was left behind"
        os.close(each)
    os.close(opened)


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
