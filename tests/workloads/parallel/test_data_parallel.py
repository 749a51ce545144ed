"""Data parallelism: the same mathematics as one process with the whole batch, or the very own kind of each form."""

import json
from typing import Any

import pytest
import torch
from torch import nn
from two_ranks import run_ranks

from dlbench.workloads.parallel.data_parallel import count_uses, find_stages

pytestmark = pytest.mark.real

CPU = torch.device("cpu")
BATCH = 3
RANKS = 2

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
