"""How a batch gets to the device: each sample once an epoch, no buffer overwritten too early, no worker left behind."""

import ast
import multiprocessing
import os
import select
from itertools import count
from pathlib import Path

import psutil
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data._utils import worker as torch_worker

import dlbench
from dlbench.harness.worker import registry, user
from dlbench.kit import batches
from dlbench.testing import ManualClock, set_up
from dlbench.workloads import feed

CPU = torch.device("cpu")
N, BATCH = 22, 4
"""Samples and batch of the small data sets here: 5 whole batches an epoch, and 2 samples left over."""
SMALL = {"batch": 8, "samples": 64, "width": 16}


def fed(source, workers=0):
    """Batches of a data set whose images hold the number of their sample, as its labels do."""
    labels = torch.arange(N)
    data = labels.float().view(N, 1, 1, 1).expand(N, *feed.IMAGE).contiguous(), labels
    order = batches.EpochSampler(N, BATCH, CPU)
    return (
        batches.LoadedBatches(data, order, CPU, "fp32", workers) if source == "loader" else batches.batch_source(source, data, order, CPU)
    )


def taken(source, calls):
    """What a step would get in so many calls."""
    found = []
    for _ in range(calls):
        source.make_room()
        found.append(source.send(source.fetch()))
    return found


@pytest.mark.parametrize(("source", "workers"), [("resident", 0), ("loader", 0), ("loader", 2), ("pageable", 0)])
def test_a_step_sees_each_sample_once_an_epoch_in_another_order_each_time(source, workers):
    feeding, epoch = fed(source, workers), N // BATCH
    found = taken(feeding, 3 * epoch)
    assert all(torch.equal(images[:, 0, 0, 0].long(), labels) for images, labels in found)
    orders = [tuple(torch.cat([labels for _, labels in found[at : at + epoch]]).tolist()) for at in range(0, 3 * epoch, epoch)]
    assert [len(set(order)) for order in orders] == [epoch * BATCH] * 3
    assert len(set(orders)) == 3
    feeding.pause()
    assert not multiprocessing.active_children()
    assert len(taken(feeding, 1)) == 1
    feeding.pause()


def test_the_check_of_a_source_that_copies_sets_the_step_up_without(monkeypatch):
    monkeypatch.setattr(registry, "names", lambda kind: ("mine",))
    for source, on_a_cpu in (("pinned", "resident"), ("loader", "resident"), ("mine", "mine")):
        expected = {"batch": 4, "source": on_a_cpu, "workers": 2 if source == "mine" else 0}
        assert registry.get("feed").resident({"batch": 4, "source": source, "workers": 2}) == expected


@pytest.mark.parametrize(("source", "workers"), [("resident", 0), ("loader", 1)])
def test_a_call_is_a_real_step_and_its_parts_and_counts_are_stated(source, workers):
    work = set_up("feed", **SMALL, source=source, workers=workers)
    assert all(1 < work.call().item() < 20 for _ in range(20))
    values = work.report(ManualClock())
    assert values.keys() == {"input_s"}
    assert values["input_s"] > 0
    assert not multiprocessing.active_children()
    layers = [(3072, 16), (16, 16), (16, 10)]
    linear = [4 * (8 * (n + m) + n * m + m) for n, m in layers]
    weights = 4 * sum(n * m + m for n, m in layers)
    relus = 2 * (2 + 3) * 4 * 8 * 16
    biases = 4 * (8 * (16 + 16 + 10) - 16 - 10)  # sums for their gradients; two products a layer go without them
    loss = 8 * 4 * 8 * 10 + 2 * 8 * 8 + 5 * 4  # logits, labels twice, and five scalars
    assert (work.items, work.flops) == (8, 8 * (2 * 2 * 3072 * 16 + 3 * 2 * (16 * 16 + 16 * 10)))
    assert work.bytes == 2 * linear[0] + 3 * sum(linear[1:]) + relus + biases + loss + 5 * weights
    assert work.least_bytes == 4 * 8 * 3072 + 5 * weights


def test_workers_end_when_they_are_told_to_and_not_when_they_notice(monkeypatch):
    monkeypatch.setattr(torch_worker, "MP_STATUS_CHECK_INTERVAL", 600.0, raising=False)  # after which they would look by themselves
    ended = []

    def end(process):  # as torch does to those that do not end by themselves
        ended.append(process)
        process.kill()

    monkeypatch.setattr(multiprocessing.process.BaseProcess, "terminate", end)
    work = set_up("feed", **SMALL, source="loader", workers=1)
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


def test_nested_inputs_are_taken_apart_along_the_batch_and_put_together_as_they_were():
    drawn = ({"a": torch.arange(6).view(3, 2), "b": (torch.arange(3), "word")}, None)
    data, put_together = feed.take_apart(drawn)
    inputs, targets = put_together(tuple(part[[2, 0]] for part in data))
    assert (inputs["a"].tolist(), inputs["b"][0].tolist(), inputs["b"][1], targets) == ([[4, 5], [0, 1]], [2, 0], "word", None)


@pytest.fixture
def registered(monkeypatch):
    """Networks and data of one test."""
    for kind in ("_networks", "_data"):
        monkeypatch.setattr(user, kind, {})


def own(make, targets=True, batch=4, workers=0, example=None, device=CPU, dtype="fp64"):
    """Batches of this function's, for a network of six numbers and three classes."""
    dlbench.data(make)
    given = example or (torch.zeros(batch, 6), torch.zeros(batch, dtype=torch.long) if targets else None)
    return batches.OwnBatches(dlbench.find_data(make.__name__), given, targets, device, dtype, batch, workers)


def labels_of(source, calls):
    return [labels.tolist() for _, labels in taken(source, calls)]


def test_epochs_follow_each_other_without_the_batch_that_is_left_over_and_an_iterator_is_made_anew_for_each(registered):
    def mine(batch):
        numbers = torch.arange(10)
        return DataLoader(TensorDataset(numbers.float().view(-1, 1).expand(-1, 6), numbers), batch_size=batch)

    source = own(mine)
    assert labels_of(source, 5) == [[0, 1, 2, 3], [4, 5, 6, 7], [0, 1, 2, 3], [4, 5, 6, 7], [0, 1, 2, 3]]
    source.pause()
    assert labels_of(source, 1) == [[0, 1, 2, 3]]
    ((inputs, _),) = taken(source, 1)
    assert inputs.dtype is torch.float64
    made = []

    def once():
        made.append(1)
        return (([torch.zeros(2, 6), torch.full((2,), len(made))]) for _ in range(2))

    assert labels_of(own(once, batch=2), 5) == [[1, 1], [1, 1], [2, 2], [2, 2], [3, 3]]


def test_a_function_is_given_what_it_takes_and_its_batches_keep_their_kind_on_an_accelerator_in_its_precision(registered):
    given = []

    def mine(workers):
        given.append(workers)
        return [{"more": "words", "mask": nn.Parameter(torch.ones(4, 2)), "ids": torch.ones(4, 2, dtype=torch.long)}]

    example = {"ids": torch.zeros(4, 2, dtype=torch.long), "mask": torch.zeros(4, 2)}
    ((inputs, targets),) = taken(own(mine, targets=False, workers=3, example=(example, None)), 1)
    assert (given, targets) == ([3], None)
    assert {name: each.dtype for name, each in inputs.items()} == {"ids": torch.int64, "mask": torch.float64}

    def on_card():
        return [(torch.ones(4, 6, dtype=torch.float64), torch.ones(4, dtype=torch.uint8))]

    source = own(on_card, device=torch.device("meta"), dtype="bf16")
    (sent,) = taken(source, 1)
    assert source.copies
    assert [(each.device.type, each.dtype) for each in sent] == [("meta", torch.bfloat16), ("meta", torch.uint8)]


def test_what_no_step_can_take_is_said(registered, transcript):
    def refused(title):
        given = ast.literal_eval(title)

        def mine():
            if not isinstance(given, list):
                return given
            return [(torch.zeros(each[0], 6), torch.zeros(each[1])) if isinstance(each[0], int) else each for each in given]

        with pytest.raises(ValueError, match="data 'mine'") as raised:
            taken(own(mine), 3)
        return str(raised.value)

    transcript("batches-no-step-can-take", 7, refused)


def test_who_waits_for_a_loader_says_so_at_the_start_of_an_epoch(registered, monkeypatch):
    notes, at = [], []
    monkeypatch.setattr(batches, "note_stage", notes.append)

    def mine():
        for _ in range(3):
            at.append(list(notes))
            yield torch.zeros(4, 6), torch.zeros(4)

    taken(own(mine), 3)
    waits = "it was waiting for mine"
    assert (at, notes) == ([[waits], [waits, ""], [waits, ""]], [waits, ""])


class Shop(batches.BatchSource):
    """A loader whose workers bring so many batches at once, each time after four seconds, by a clock of its own."""

    def __init__(self, clock, at_once):
        self.clock, self.at_once, self.ready, self.fetched = clock, at_once, 0, 0

    def fetch(self):
        if not self.ready:
            self.clock.advance(4)
            self.ready = self.at_once
        self.ready -= 1
        self.fetched += 1
        return (torch.zeros(4, 6), None)

    def pause(self):
        self.ready = 0


@pytest.mark.parametrize(
    ("workers", "at_once", "step_s", "fetched", "steps"),
    [(0, 1, 0.125, 1, 6), (1, 1, 0.125, 3, 6), (2, 2, 0.125, 4, 6), (8, 8, 0.125, 10, 6), (0, 1, 3.0, 1, 1), (1, 1, 3.0, 3, 1)],
)
def test_alone_a_loader_has_the_pace_of_its_workers_and_a_slow_step_is_timed_once(workers, at_once, step_s, fetched, steps):
    clock, seen = ManualClock(), []

    def step(inputs, targets):
        seen.append(inputs)
        clock.advance(step_s)

    shop = Shop(clock, at_once)
    assert batches.time_alone(shop, step, workers, clock) == {"input_alone_s": 4 / at_once, "step_alone_s": step_s}
    assert all(each is seen[0] for each in seen)
    assert (shop.fetched, len(seen)) == (fetched, steps)


def test_a_clock_that_stands_still_ends_the_measuring(registered):
    @dlbench.network(inputs=(6,), classes=3)
    def flat():
        return nn.Linear(6, 3)

    @dlbench.data
    def mine():
        return [(torch.zeros(4, 6), torch.zeros(4, dtype=torch.long))]

    work = set_up("feed", model="flat", batch=4, source="mine")
    assert work.call().item() > 0
    values = work.report(ManualClock())
    assert values.keys() == {"input_s", "input_alone_s", "step_alone_s"}
    assert (values["input_alone_s"], values["step_alone_s"]) == (0, 0)


@pytest.mark.real
def test_loaders_feed_or_end_their_own_case_with_a_sentence(tmp_path):
    import front_door
    import shared_hosts

    bench = 'workload = "feed"\naxes.model = "small"\naxes.batch = 4\naxes.source = '
    suite = front_door.suite(tmp_path, f'{bench}["empty", "alone", "words"]', f'{bench}["loaded", "listed", "torn"]\naxes.workers = 1')
    plugin = str(front_door.PLUGINS / "own_data.py")
    done = shared_hosts.dlbench("run", suite, plugin, "--device", "cpu", "--rounds", "1", "-o", "o.jsonl", cwd=tmp_path)
    assert done.code == 5, done.err
    rows = {each["case"]["params"]["source"]: each for each in front_door.measurements(tmp_path / "o.jsonl")}
    found = {name: (row["status"], row.get("reason") or sorted(row["values"])) for name, row in rows.items()}
    assert found.pop("loaded") == ("ok", ["input_alone_s", "input_s", "step_alone_s"])
    status, said = found.pop("listed")
    assert (status, said.partition(" (")[0]) == ("unsupported", "data 'listed' takes no workers; give its function that parameter")
    lines = Path(plugin).read_text().splitlines()
    # With the line of the decorator, as nothing of the user's was running.
    at = {name: next(number for number, line in enumerate(lines) if line.startswith(f"def {name}(")) for name in found}
    wrong = {
        "empty": "has ended without a batch; it is gone through once an epoch, so each time has to begin anew",
        "alone": "gives ['Tensor'], and a step takes (inputs, targets)",
        "words": "gives (['str', 'str', 'str', 'str'], 'Tensor'), and the network takes ('Tensor', 'Tensor')",
        "torn": "raises FileNotFoundError: there is no image 9.jpg",
    }
    assert found == {name: ("failed", f"ValueError: data '{name}' {said} (own_data.py, line {at[name]})") for name, said in wrong.items()}


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
@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="waits for processes by Linux")
def test_a_killed_run_takes_the_workers_of_a_loader_along(tmp_path):
    import front_door

    ready = tmp_path / "ready"
    os.mkfifo(ready)
    (tmp_path / "fed.py").write_text(PLUGIN.format(ready=ready))
    head = front_door.HASTY.replace("round_s = 0.01", "round_s = 60\nmin_blocks = 1000000\nmax_blocks = 1000000")
    suite = front_door.suite(tmp_path, 'workload = "fed"', head=head)
    opened = os.open(ready, os.O_RDONLY | os.O_NONBLOCK)
    process = front_door.start("run", suite, "fed.py", "--device", "cpu", "-o", "o.jsonl", cwd=tmp_path)
    try:
        assert select.select([opened], [], [], 60)[0], "no worker came"
        found, level = [], [psutil.Process(process.pid)]
        while level := [child for each in level for child in each.children()]:
            found.append(level)
        everybody = [os.pidfd_open(each.pid) for level in found for each in level]
    finally:
        process.kill()
        process.communicate()
    # The process that has torch imported, its fork for the case, and two workers of that.
    assert [len(each) for each in found[1:]] == [1, 2]
    for each in everybody:
        assert select.select([each], [], [], 10)[0], "a process was left behind"
        os.close(each)
    os.close(opened)
