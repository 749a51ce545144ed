"""Data parallelism: the mathematics of one process with the whole batch, or the very own kind of each form, which learns and adds up."""

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
from dlbench.workloads.parallel import learner as learner_module
from dlbench.workloads.parallel.data_parallel import count_uses, find_stages
from dlbench.workloads.parallel.experiments import STALENESS, STEP_PARTS, ParameterServer, histogram
from dlbench.workloads.parallel.learner import Experiment, Learner, outcome

pytestmark = pytest.mark.real

CPU = torch.device("cpu")
BATCH, RANKS = 3, 2

# Every rank writes one JSON object a form: how far its weights are from a reference, and what the form is asked about.
TRAIN = """
import json
from torch.nn.parallel import DistributedDataParallel
from small_classifier import Frozen, learn_visibly, replace_models, train_alone, weights_of
from dlbench.workloads import cnn
from dlbench.workloads.parallel import data_parallel

CPU, BATCH, STEPS = torch.device("cpu"), 3, 5
built = replace_models(Frozen)
learn_visibly()
wrapped = []

class Spied(DistributedDataParallel):
    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        wrapped.append(self)

data_parallel.DistributedDataParallel = Spied

def whole(part):
    parts = [torch.empty_like(part) for _ in range(size)]
    dist.all_gather(parts, part)
    return torch.cat(parts)

class Steps:
    '''A second passes with every step.'''
    def __init__(self):
        self.seconds = 0
        built[-1].register_forward_hook(self.count)
    def count(self, *_):
        self.seconds += 1
    def now(self):
        return self.seconds

def trained(form, batch=BATCH, dtype="fp64", **options):
    '''Train by STEPS steps; return the work and its weights.'''
    torch.manual_seed(data_parallel.START_SEED)
    del wrapped[:]
    work = data_parallel.data_parallel(CPU, form=form, model="resnet18", batch=batch, ranks=size, dtype=dtype, **options)
    if work.call:
        for _ in range(STEPS):
            loss = work.call()
        return work, weights_of(built[-1])
    values = work.observe(Steps())
    assert values["updates"] == STEPS
    every = options.get("average_every")
    assert values.get("averagings") == (every and -(-STEPS // every))
    return work, weights_of(built[-1])

def alone(images, labels):
    torch.manual_seed(data_parallel.START_SEED)
    network = cnn.build_on(CPU, "resnet18", "fp64", "nchw")
    network.train()
    before = weights_of(network)
    after = train_alone(network, images, labels, STEPS)
    assert (after - before).abs().max() > 0.01
    return after

def averaged(shares, every):
    '''What ranks with these shares come to that average their weights every so many steps, and at the end, and keep their momentum.'''
    torch.manual_seed(data_parallel.START_SEED)
    start = cnn.build_on(CPU, "resnet18", "fp64", "nchw").state_dict()
    networks = [cnn.build_on(CPU, "resnet18", "fp64", "nchw").eval() for _ in shares]
    for network in networks:
        network.load_state_dict(start)
    optimizers = [torch.optim.SGD(each.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4) for each in networks]
    for step in range(STEPS):
        for network, optimizer, (images, labels) in zip(networks, optimizers, shares):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(network(images), labels).backward()
            optimizer.step()
        if (step + 1) % every == 0 or step + 1 == STEPS:
            mean = torch.stack([weights_of(each) for each in networks]).mean(0)
            for network in networks:
                torch.nn.utils.vector_to_parameters(mean.clone(), network.parameters())
    return mean

def difference(a, b):
    return (a - b).abs().max().item()

said = {}
work, ddp = trained("ddp")
images, labels = work.inputs
together, own = alone(whole(images), whole(labels)), alone(images, labels)
said["ddp"] = {"off": difference(ddp, together), "items": work.items, "flops": work.flops, "call": work.call().shape}
said["own"] = {"off": difference(own, together)}
work, fsdp = trained("fsdp")
local = sum(p.to_local().numel() for p in built[-1].parameters())
said["fsdp"] = {"off": difference(fsdp, together), "items": work.items, "flops": work.flops, "local": local, "whole": len(fsdp)}
work, tower = trained("tower", seconds=5.0, learning_rate=0.05)
said["tower"] = {"off": difference(tower, together), "items": work.items, "flops": work.flops}
shares = list(zip(whole(images).split(BATCH), whole(labels).split(BATCH)))
for every in (1, 2, 7):
    work, local = trained("local", seconds=5.0, learning_rate=0.05, average_every=every)
    said[f"local {every}"] = {
        "off": difference(local, together if every == 1 else averaged(shares, every)),
        "whole": difference(local, together),
        "items": work.items,
        "flops": work.flops,
    }
work, strong = trained("ddp", batch=BATCH * size, scaling="strong")
said["strong"] = {"off": difference(strong, together), "items": work.items, "flops": work.flops}
said["replicas"] = {"off": difference(trained("replicas")[1], own)}
said["unsynchronised"] = {"off": difference(trained("ddp", synchronise=False)[1], own)}
ordered = trained("ddp", layout="channels_last")[0]
said["layout"] = {
    "off": difference(weights_of(built[-1]), together),
    "images": ordered.inputs[0].is_contiguous(memory_format=torch.channels_last),
    "weights": any(p.dim() == 4 and not p.is_contiguous() for p in built[-1].parameters()),
}
said["bucket"] = {"off": difference(trained("ddp", bucket_mb=2)[1], together), "bytes": wrapped[0].bucket_bytes_cap}
narrow = trained("ddp", gradients="fp16")[1]
said["fp16"] = {"off": difference(narrow, together), "exact": all(bool((p.grad == p.grad.half()).all()) for p in built[-1].parameters())}
try:
    trained("ddp", gradients="bf16")
except NotImplementedError as error:
    said["bf16"] = str(error)
print(json.dumps(said))
"""


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each of two ranks found after five steps."""
    return [json.loads(out) for out in run_ranks(TRAIN, tmp_path_factory.mktemp("trained"), RANKS)]


def test_five_steps_on_parts_are_those_on_the_whole_batch_on_the_own_share_or_apart_until_they_average(trained):
    for rank in trained:
        off = {form: found["off"] for form, found in rank.items() if form != "bf16"}
        assert max(off[form] for form in ("ddp", "fsdp", "tower", "local 1", "strong", "bucket", "layout")) < 1e-6
        assert max(off[form] for form in ("local 2", "local 7", "replicas", "unsynchronised")) < 1e-12
        assert min(off["own"] / 1e3, rank["local 2"]["whole"], rank["local 7"]["whole"]) > 1e-6  # from those on the whole batch


def test_counts_are_those_of_all_ranks_and_options_reach_their_form(trained):
    # The small classifier: 4 x 7 x 7 outputs of 3 x 32 x 32 multiply-adds each, without the gradient of the image, and a 196 x 1000 layer.
    image = 2 * 2 * (4 * 7 * 7) * (3 * 32 * 32) + 3 * 2 * 196 * 1000
    for rank in trained:
        for form in ("ddp", "fsdp", "tower", "local 1", "strong"):
            assert (rank[form]["items"], rank[form]["flops"]) == (RANKS * BATCH, RANKS * BATCH * image)
        assert (rank["ddp"]["call"], rank["layout"]["images"], rank["layout"]["weights"]) == ([], True, True)
        assert rank["fsdp"]["local"] < 0.6 * rank["fsdp"]["whole"]
        assert (rank["bucket"]["bytes"], rank["fp16"]["exact"]) == (2 << 20, True)
        assert 0 < rank["fp16"]["off"] < 1e-2
        assert rank["bf16"].startswith("gradients=bf16: ")  # gloo sends none
    assert sum(rank["fsdp"]["local"] for rank in trained) == trained[0]["fsdp"]["whole"]


def test_stages_are_neither_lists_nor_share_a_weight_with_others():
    block = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    shared = nn.Sequential(nn.Embedding(3, 2), nn.ModuleList([block]))
    network = nn.Module()
    network.body, network.heads, network.stem = shared, nn.ModuleList([nn.Linear(2, 3)]), nn.Sequential(nn.Linear(2, 2))
    network.heads[0].weight = shared[0].weight
    assert list(find_stages(network, count_uses(network))) == [block, network.stem]


def test_one_rank_is_the_base_of_every_form(tmp_path):
    script = """
from small_classifier import replace_models
from dlbench.harness.worker.serving.ranks import RanksClock
from dlbench.workloads.parallel.data_parallel import data_parallel
replace_models()
for form in ("ddp", "fsdp", "replicas"):
    for scaling in ("weak", "strong"):
        work = data_parallel(torch.device("cpu"), form=form, model="vgg11", batch=4, ranks=1, scaling=scaling)
        assert (work.items, *map(len, work.inputs)) == (4, 4, 4), form
        assert torch.isfinite(work.call())
for form in ("tower", "async", "hogwild", "local"):
    work = data_parallel(torch.device("cpu"), form=form, model="vgg11", batch=4, ranks=1, seconds=0.2)
    values = work.observe(RanksClock(lambda: None))
    assert work.items == 4
    assert 0 <= values["loss"] < values["loss_before"]
    assert sum(values.get("staleness", [values["updates"]])) == values["updates"] > 0, values
    assert values.get("staleness", [values["updates"]])[0] == values["updates"], values
print("done")
"""
    assert run_ranks(script, tmp_path, 1) == ["done\n"]


LEARN_BATCH, LEARN_RANKS = 4, 3

LEARN = """
import json, os, tempfile
from pathlib import Path
from small_classifier import replace_models
from dlbench.harness.worker.serving.ranks import RanksClock
from dlbench.workloads.parallel import experiments
from dlbench.workloads.parallel.data_parallel import data_parallel
from dlbench.workloads.parallel.learner import Learner, average

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
    return [json.loads(out) for out in run_ranks(LEARN, tmp_path_factory.mktemp("learnt"), LEARN_RANKS)]


FORMS = ("tower", "async", "hogwild", "local")


@pytest.mark.parametrize("form", FORMS)
def test_it_learns_from_the_same_start_and_its_rates_are_its_counts_over_the_time(learnt, form):
    values = learnt[0][form]
    assert 0 <= values["loss"] < values["loss_before"]
    assert len({learnt[0][each]["loss_before"] for each in FORMS}) == 1
    images = values["updates"] * LEARN_BATCH * (LEARN_RANKS if form in ("tower", "local") else 1)
    assert values["items_per_s"] / values["updates_per_s"] == pytest.approx(images / values["updates"])
    if form == "tower":
        assert all(values[step.name] > 0 for step in STEP_PARTS)
    if form in ("async", "hogwild"):
        assert values["updates_per_s"] == values["updates"]
        assert len(values["staleness"]) == len(STALENESS.points)
        assert sum(values["staleness"]) == values["updates"] > 0
        assert values["staleness"][0] < values["updates"]  # three ranks do come in between each other


def test_weights_and_batch_statistics_are_averaged_and_counts_are_each_ranks_own(learnt):
    mean = pytest.approx((1 + 2 + 4) / LEARN_RANKS)
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
    monkeypatch.setattr(learner_module, "time", clock)
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
