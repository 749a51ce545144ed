"""Feeding by a user's loader: what a run says of those that feed and those that go wrong, and what the values mean."""

from pathlib import Path

import front_door
import pytest
import shared_hosts
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import dlbench
from dlbench.harness.worker import user
from dlbench.kit import user_batches
from dlbench.testing import ManualClock, set_up

pytestmark = pytest.mark.real

BENCH = 'workload = "feed"\naxes.model = "small"\naxes.batch = 4\naxes.source = '


def test_loaders_feed_or_end_their_own_case_with_a_sentence(tmp_path):
    alone = f'{BENCH}["empty", "alone", "words"]'
    with_workers = f'{BENCH}["loaded", "listed", "torn"]\naxes.workers = 1'
    suite = front_door.suite(tmp_path, alone, with_workers)
    plugin = str(front_door.PLUGINS / "own_data.py")
    done = shared_hosts.dlbench("run", suite, plugin, "--device", "cpu", "--rounds", "1", "-o", "o.jsonl", cwd=tmp_path)
    rows = {each["case"]["id"]: each for each in front_door.measurements(tmp_path / "o.jsonl")}
    found = {
        name.removeprefix("feed[model=small,batch=4,source=").partition(",dtype")[0]: (
            row["status"],
            row.get("reason") or sorted(row["values"]),
        )
        for name, row in rows.items()
    }
    assert done.code == 5, done.err
    assert found.pop("loaded,workers=1") == ("ok", ["input_alone_s", "input_s", "step_alone_s"])
    status, said = found.pop("listed,workers=1")
    assert (status, said.partition(" (")[0]) == ("unsupported", "data 'listed' takes no workers; give its function that parameter")
    lines = Path(plugin).read_text().splitlines()
    # With the line of the decorator, as nothing of the user's was running.
    at = {name: lines.index(line) for line in lines for name in ("empty", "alone", "words", "torn") if line.startswith(f"def {name}(")}
    ended = "has ended without a batch; it is gone through once an epoch, so each time has to begin anew"
    wrong = {"empty": ended, "alone": "gives a list of 1 (Tensor), and a step takes (inputs, targets)"}
    wrong |= {"words": "gives inputs as a list of 4 (str), and the network takes a tensor"}
    assert found == {
        "torn,workers=1": (
            "failed",
            f"ValueError: data 'torn' raises FileNotFoundError: there is no image 9.jpg (own_data.py, line {at['torn']})",
        ),
        **{name: ("failed", f"ValueError: data '{name}' {said} (own_data.py, line {at[name]})") for name, said in wrong.items()},
    }


@pytest.fixture
def registered(monkeypatch):
    """Networks and data of one test."""
    for kind in ("_networks", "_data"):
        monkeypatch.setattr(user, kind, {})


@pytest.fixture
def flat(registered):
    @dlbench.network(inputs=(6,), classes=3)
    def flat():
        return nn.Linear(6, 3)


def own(make, targets=True, batch=4, workers=0, example=None):
    """Batches of this function's, for a network of six numbers and three classes."""
    dlbench.data(make)
    given = example or (torch.zeros(batch, 6), torch.zeros(batch, dtype=torch.long) if targets else None)
    return user_batches.OwnBatches(dlbench.find_data(make.__name__), given, targets, torch.device("cpu"), "fp64", batch, workers)


def numbered(samples):
    return TensorDataset(torch.arange(samples).float().view(-1, 1).expand(-1, 6), torch.arange(samples))


def taken(way, batches):
    return [way.send(way.fetch())[1].tolist() for _ in range(batches)]


def test_epochs_follow_each_other_without_the_batch_that_is_left_over(registered):
    def mine(batch):
        return DataLoader(numbered(10), batch_size=batch)

    way = own(mine)
    assert taken(way, 5) == [[0, 1, 2, 3], [4, 5, 6, 7], [0, 1, 2, 3], [4, 5, 6, 7], [0, 1, 2, 3]]
    way.pause()
    assert taken(way, 1) == [[0, 1, 2, 3]]
    inputs, _ = way.send(way.fetch())
    assert inputs.dtype is torch.float64


def test_what_can_be_gone_through_once_only_is_made_anew_for_each_epoch(registered):
    made = []

    def mine():
        made.append(1)
        return (([torch.zeros(2, 6), torch.full((2,), len(made))]) for _ in range(2))

    assert taken(own(mine, batch=2), 5) == [[1, 1], [1, 1], [2, 2], [2, 2], [3, 3]]


def test_a_function_is_given_what_it_takes_and_its_batches_keep_their_kind(registered):
    given = []

    def mine(workers):
        given.append(workers)
        return [{"ids": torch.ones(4, 2, dtype=torch.long), "mask": torch.ones(4, 2)}]

    example = {"ids": torch.zeros(4, 2, dtype=torch.long), "mask": torch.zeros(4, 2)}
    way = own(mine, targets=False, workers=3, example=(example, None))
    inputs, targets = way.send(way.fetch())
    assert (given, targets, {name: each.dtype for name, each in inputs.items()}) == (
        [3],
        None,
        {"ids": torch.int64, "mask": torch.float64},
    )


def test_an_accelerator_gets_a_copy_in_its_precision(registered):
    def mine():
        return [(torch.ones(4, 6, dtype=torch.float64), torch.ones(4, dtype=torch.uint8))]

    dlbench.data(mine)
    example = torch.zeros(4, 6), torch.zeros(4)
    way = user_batches.OwnBatches(dlbench.find_data("mine"), example, True, torch.device("meta"), "bf16", 4, 0)
    sent = way.send(way.fetch())
    assert way.copies
    assert [(each.device.type, each.dtype) for each in sent] == [("meta", torch.bfloat16), ("meta", torch.uint8)]


def of_recurrent():
    return [(torch.zeros(7, 4, 6), torch.zeros(4))]


def test_the_batch_may_be_the_second_dimension(registered):
    way = own(of_recurrent, example=(torch.zeros(7, 4, 6), torch.zeros(4)))
    assert way.fetch()[0].shape == (7, 4, 6)


@pytest.mark.parametrize(
    ("batches", "sentence"),
    [
        ([], "has ended without a batch; it is gone through once an epoch, so each time has to begin anew"),
        ([(5, 5)], "gives a batch of 5, and batch=4; give batch=5"),
        ([(3, 3)], "gives a batch of 3, and batch=4; give batch=3"),
        ([(4, 4), (3, 3), (4, 4)], "gives a batch of 3 before the last of an epoch, and batch=4"),
        (["ab"], "gives str, and a step takes (inputs, targets)"),
        (3, "raises TypeError: its function returns int, and no DataLoader or other iterable of batches"),
    ],
)
def test_what_no_step_can_take_is_said(registered, batches, sentence):
    def mine():
        if not isinstance(batches, list):
            return batches
        return [(torch.zeros(each[0], 6), torch.zeros(each[1])) if isinstance(each, tuple) else each for each in batches]

    way = own(mine)
    with pytest.raises(ValueError, match="data 'mine'") as raised:
        taken(way, 3)
    assert str(raised.value) == f"data 'mine' {sentence}"


def test_who_waits_for_a_loader_says_so_at_the_start_of_an_epoch_and_where_batches_are_slow(registered, monkeypatch):
    notes, at = [], []
    monkeypatch.setattr(user_batches, "note_stage", notes.append)

    def mine():
        for _ in range(3):
            at.append(list(notes))
            yield torch.zeros(4, 6), torch.zeros(4)

    way = own(mine)
    taken(way, 2)
    monkeypatch.setattr(user_batches, "SLOW_S", -1.0)
    taken(way, 1)
    waits = "it was waiting for mine"
    assert (at, notes) == ([[waits], [waits, ""], [waits, "", waits]], [waits, "", waits, ""])


class Shop:
    """A loader whose workers bring so many batches at once, each time after four seconds, by a clock of its own."""

    copies = False

    def __init__(self, clock, at_once):
        self.clock, self.at_once, self.ready, self.fetched = clock, at_once, 0, 0

    def fetch(self):
        if not self.ready:
            self.clock.advance(4)
            self.ready = self.at_once
        self.ready -= 1
        self.fetched += 1
        return (torch.zeros(4, 6), None)

    def copy(self, batch):
        return batch

    def pause(self):
        self.ready = 0


@pytest.mark.parametrize(("workers", "at_once"), [(0, 1), (1, 1), (2, 2), (8, 8)])
def test_alone_a_loader_has_the_pace_of_its_workers_and_a_step_its_own(workers, at_once):
    clock = ManualClock()
    steps = []

    def step(inputs, targets):
        steps.append(inputs)
        clock.advance(0.125)

    found = user_batches.time_alone(Shop(clock, at_once), step, workers, clock)
    assert found == {"input_alone_s": 4 / at_once, "step_alone_s": 0.125}
    assert all(each is steps[0] for each in steps)


def test_what_is_slow_is_timed_no_more_often_than_its_pace_takes():
    clock, steps = ManualClock(), []

    def step(inputs, targets):
        steps.append(inputs)
        clock.advance(3)

    shop = Shop(clock, 1)
    assert user_batches.time_alone(shop, step, 0, clock) == {"input_alone_s": 4, "step_alone_s": 3}
    assert (shop.fetched, len(steps)) == (1, 1)
    assert user_batches.time_alone(shop, step, 1, clock) == {"input_alone_s": 4, "step_alone_s": 3}
    assert (shop.fetched, len(steps)) == (4, 2)


def test_a_clock_that_stands_still_ends_the_measuring(flat):
    def mine():
        return [(torch.zeros(4, 6), torch.zeros(4, dtype=torch.long))]

    dlbench.data(mine)
    work = set_up("feed", model="flat", batch=4, source="mine")
    assert work.call().item() > 0
    values = work.report(ManualClock())
    assert values.keys() == {"input_s", "input_alone_s", "step_alone_s"}
    assert (values["input_alone_s"], values["step_alone_s"]) == (0, 0)


def test_what_does_not_go_together_is_refused(flat):
    @dlbench.data
    def mine():
        return []

    refused = [
        ({"source": "mine"}, ValueError, "source=mine needs a network that takes its batches; give model=…"),
        ({"source": "mine", "model": "flat", "workers": 2}, NotImplementedError, "data 'mine' takes no workers; give its function that"),
        ({"model": "flat", "source": "mine", "width": 3}, ValueError, "width=3 is that of the perceptron; leave it out with model=flat"),
        ({"model": "flat"}, ValueError, "model=flat is fed by data of your own; give source=…"),
    ]
    for params, error, sentence in refused:
        with pytest.raises(error, match=sentence):
            set_up("feed", **{"batch": 4, "source": "resident", **params})
