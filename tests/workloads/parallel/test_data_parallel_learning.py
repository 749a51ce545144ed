"""The forms of data parallelism that train for a time: they learn, and what they say of it adds up."""

import json
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from small_classifier import train_alone, weights_of
from torch import nn
from two_ranks import run_ranks

from dlbench.workloads.cnn import cross_entropy
from dlbench.workloads.parallel import experiments
from dlbench.workloads.parallel.experiments import STALENESS, STEPS, Experiment, Learner, ParameterServer, histogram, outcome

pytestmark = pytest.mark.real

BATCH = 4
RANKS = 3

LEARN = """
import json, os, tempfile
from pathlib import Path
from small_classifier import replace_models
from dlbench.harness.worker.serving.ranks import RanksClock
from dlbench.workloads.parallel import experiments
from dlbench.workloads.parallel.data_parallel import data_parallel
from dlbench.workloads.parallel.experiments import Learner, average

replace_models()
CPU = torch.device("cpu")
tempfile.tempdir = os.getcwd()
said = {}
for seed, form in enumerate(("tower", "async", "hogwild", "local")):
    torch.manual_seed(seed)
    work = data_parallel(CPU, form=form, model="resnet18", batch=4, ranks=size, seconds=1.0, straggler=100 if form == "async" else 0)
    said[form] = work.observe(RanksClock(lambda: None))
said["files"] = [path.name for path in Path().glob("dlbench-*")]
dist.barrier()

counts, weights = experiments._share_memory(torch.arange(4.0) + 10 * rank, size)
counts[rank] += rank + 1
weights[rank] = -1.0
dist.barrier()
said["shared"] = [counts.tolist(), weights.tolist()]

network = torch.nn.Sequential(torch.nn.Linear(1, 1), torch.nn.BatchNorm1d(1)).double()
learner = Learner(network, None, (torch.zeros(1, 1), torch.zeros(1)), 1, "fp64")
for each in network.state_dict().values():
    each.fill_(2 ** rank)
average(learner)
said["averaged"] = {name: each.item() for name, each in network.state_dict().items()}

os.environ["LOCAL_WORLD_SIZE"] = "1"
try:
    data_parallel(CPU, form="hogwild", model="resnet18", batch=4, ranks=size)
except NotImplementedError as error:
    said["apart"] = str(error)
print(json.dumps(said))
"""


def learner_of(network: nn.Module, images: torch.Tensor, labels: torch.Tensor, dtype: Any, straggler: int = 0) -> Learner:
    """Train a classifier by cross-entropy."""
    return Learner(network, cross_entropy(network), (images, labels), len(labels), dtype, straggler)


@pytest.fixture(scope="module")
def learnt(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each of three ranks found; the values of a case are the first one's."""
    return [json.loads(out) for out in run_ranks(LEARN, tmp_path_factory.mktemp("learnt"), RANKS)]


FORMS = ("tower", "async", "hogwild", "local")


@pytest.mark.parametrize("form", FORMS)
def test_it_learns_from_the_same_start_and_its_rates_are_its_counts_over_the_time(learnt, form):
    values = learnt[0][form]
    assert 0 <= values["loss"] < values["loss_before"]
    assert len({learnt[0][each]["loss_before"] for each in FORMS}) == 1
    images = values["updates"] * BATCH * (RANKS if form in ("tower", "local") else 1)
    assert values["items_per_s"] / values["updates_per_s"] == pytest.approx(images / values["updates"])
    if form == "tower":
        assert all(values[step.name] > 0 for step in STEPS)
    if form in ("async", "hogwild"):
        assert values["updates_per_s"] == values["updates"]
        assert len(values["staleness"]) == len(STALENESS.points)
        assert sum(values["staleness"]) == values["updates"] > 0
        assert values["staleness"][0] < values["updates"]  # three ranks do come in between each other


def test_weights_and_batch_statistics_are_averaged_and_counts_are_each_ranks_own(learnt):
    mean = pytest.approx((1 + 2 + 4) / RANKS)
    for rank, found in enumerate(learnt):
        averaged = found["averaged"]
        assert averaged.pop("1.num_batches_tracked") == 2**rank
        assert averaged == dict.fromkeys(("0.weight", "0.bias", "1.weight", "1.bias", "1.running_mean", "1.running_var"), mean)


def test_hogwild_shares_memory_between_processes_and_leaves_no_file(learnt):
    for rank in learnt:
        assert rank["shared"] == [[1, 2, 3], [-1.0, -1.0, -1.0, 3.0]]
        assert rank["files"] == []
        assert rank["apart"] == "hogwild writes into memory that all ranks share, and several machines share none"


def test_updates_of_a_server_are_those_of_plain_training_and_know_how_stale_they_are():
    start = torch.tensor([1.0, -2.0])
    server = ParameterServer(start.clone(), Experiment(seconds=1.0, learning_rate=0.1))
    gradients = [torch.tensor([1.0, 0.5]), torch.tensor([-3.0, 2.0]), torch.tensor([0.25, 4.0]), torch.tensor([1.0, 1.0])]
    weights = torch.empty(2)
    for rank, gradient in zip((0, 1, 1, 0), gradients, strict=True):
        server.exchange(rank, gradient, weights)
    assert server.staleness == [0, 1, 0, 2]
    expected, velocity = start.clone(), torch.zeros(2)
    for gradient in gradients:
        velocity = 0.9 * velocity + gradient + 1e-4 * expected
        expected = expected - 0.1 * velocity
    torch.testing.assert_close(weights, expected)
    assert torch.equal(weights, server.weights)


def small() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Flatten(), nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 5)).double()


def test_a_learner_computes_on_vectors_what_its_network_computes():
    images, labels = torch.randn(6, 3, 2, 2).double(), torch.tensor([0, 1, 2, 3, 4, 0])
    learner = learner_of(network := small(), images, labels, "fp64")
    optimizer = Experiment(seconds=1.0, learning_rate=0.05).optimizer(weights := nn.Parameter(learner.weights))
    weights.grad = learner.gradients
    for _ in range(3):
        learner.backward(learner.forward())
        optimizer.step()
    torch.testing.assert_close(learner.weights, train_alone(small(), images, labels, 3))
    assert torch.equal(weights_of(network), learner.weights)


def test_a_straggler_sleeps_for_a_part_of_what_it_computed(monkeypatch):
    class Clock:
        now, slept = 10.0, 0.0

        def perf_counter(self) -> float:
            self.now += 2.0
            return self.now

        def sleep(self, seconds: float) -> None:
            self.slept += seconds

    clock = Clock()
    monkeypatch.setattr(experiments, "time", clock)
    images, labels = torch.randn(2, 3, 2, 2).double(), torch.tensor([0, 1])
    for straggler, slept in ((0, 0.0), (150, 3.0)):
        learner = learner_of(small(), images, labels, "fp64", straggler)
        learner.backward(learner.forward())
        assert clock.slept == slept


def test_neither_scaled_gradients_nor_no_update_at_all():
    apart = r"^amp_fp16 scales gradients in turn with the update, and here they are apart; take amp_bf16$"
    with pytest.raises(NotImplementedError, match=apart):
        learner_of(small(), torch.randn(2, 3, 2, 2), torch.tensor([0, 1]), "amp_fp16")
    with pytest.raises(ValueError, match=r"^no gradient was ready within 0\.5 s; give more seconds$"):
        outcome(1.0, 1.0, 0, 0, 0.5)


@given(st.lists(st.integers(min_value=0, max_value=100)))
def test_every_update_is_in_one_bin(staleness):
    counts = histogram(staleness)
    bins = [(0, 0), (1, 1), (2, 3), (4, 7), (8, 15), (16, 100)]
    assert counts == [sum(low <= each <= high for each in staleness) for low, high in bins]
