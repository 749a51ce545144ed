"""Collectives in two gloo processes, and forms of model parallelism that are the training of one network on one device."""

import json
from typing import Any, get_args

import pytest
import torch
from two_ranks import run_ranks

from dlbench.workloads.parallel import model_parallel as module
from dlbench.workloads.parallel.collective import Op

pytestmark = pytest.mark.real

OPS = get_args(Op)
START = f"""
import json
from dlbench.testing import set_up
from dlbench.workloads.parallel import collective as module

prepare, made = module._prepare, []
module._prepare = lambda *given: made.append(prepare(*given)) or made[-1]
OPS = {OPS}
"""


def test_every_collective_runs_in_each_precision_and_states_its_size(tmp_path):
    script = """
said = {}
for dtype in ("fp64", "fp32", "bf16", "fp16"):
    for op in OPS:
        work = set_up("collective", op=op, bytes=4096, ranks=2, dtype=dtype)
        work.call()
        said[op + " " + dtype] = [work.bytes, work.items, made[-1].input.nbytes, made[-1].result.nbytes]
print(json.dumps(said))
"""
    first, second = map(json.loads, run_ranks(START + script, tmp_path))
    halves = {"all_gather": [2048, 4096], "reduce_scatter": [4096, 2048]}
    expected = {f"{op} {dtype}": [4096, 1, *halves.get(op, [4096, 4096])] for op in OPS for dtype in ("fp64", "fp32", "bf16", "fp16")}
    assert first == second == expected


def test_what_a_collective_gives_is_checked_and_a_wrong_one_is_named(tmp_path):
    script = """
def broken(*given):
    ready = prepare(*given)
    return ready._replace(run=lambda: (ready.run(), ready.result.add_(1)))

module._prepare, said = broken, []
for op in OPS:
    try:
        set_up("collective", op=op, bytes=64, ranks=2)
    except ValueError as error:
        said.append(str(error))
print(json.dumps(said))
"""
    first, second = map(json.loads, run_ranks(START + script, tmp_path))
    first_values = {
        "all_reduce": (4, 4),
        "all_gather": (2, 2),
        "reduce_scatter": (3, 5),
        "all_to_all": (2, 3),
        "broadcast": (2, 2),
        "reduce": (4, None),  # what the other rank has then is nobody's business
        "send_recv": (3, 2),
    }
    for rank, said in ((0, first), (1, second)):
        values = {op: each[rank] for op, each in first_values.items()}
        assert said == [f"{op} gave rank {rank} a wrong result, such as {values[op]}" for op in OPS if values[op] is not None]


def test_repeated_sums_stay_finite(tmp_path):
    script = """
for dtype, calls in (("fp32", 1000), ("fp16", 100)):
    work = set_up("collective", op="all_reduce", bytes=64, ranks=2, dtype=dtype)
    for _ in range(calls):
        work.call()
        assert made[-1].result.isfinite().all() and made[-1].result.any()
"""
    assert run_ranks(START + script, tmp_path) == ["", ""]


CPU = torch.device("cpu")
BATCH = 4
WIDTH = 64

TRAIN = f"""
import json
from torch import nn
from small_classifier import Frozen, learn_visibly, train_alone
from dlbench.harness.worker.serving.ranks import control_group
from dlbench.models import MODELS
from dlbench.models.splitting import mlp
from dlbench.models.convnets import ResidualBlock
from dlbench.workloads import cnn
from dlbench.workloads.parallel import model_parallel

STEPS = 5
model_parallel.WIDTH = {WIDTH}

def small():
    front = nn.Sequential(nn.Conv2d(3, 4, kernel_size=32, stride=32), nn.BatchNorm2d(4), nn.ReLU(inplace=True))
    blocks = [ResidualBlock(channels, 8, stride, bottleneck=False) for channels, stride in ((4, 2), (8, 1))]
    return Frozen(front, *blocks, nn.Flatten(), nn.Dropout(), nn.Linear(8 * 4 * 4, 1000))

MODELS["resnet18"] = small
learn_visibly()
sgd, trained = cnn.OPTIMIZERS["sgd"], []

def remember(parameters):
    trained[:] = parameters
    return sgd(trained)

cnn.OPTIMIZERS["sgd"] = remember

def everyones(thing):
    things = [None] * size
    dist.all_gather_object(things, thing, group=control_group())
    return things

def whole(form):
    own = torch.cat([(p.full_tensor() if form == "tensor" else p).detach().flatten() for p in trained])
    return own if form == "tensor" else torch.cat(everyones(own))

def run(form, model, microbatches):
    torch.manual_seed(3)
    work = model_parallel.model_parallel(
        torch.device("cpu"), form=form, model=model, batch={BATCH}, ranks=size, dtype="fp64", microbatches=microbatches
    )
    before, local = whole(form), sum((p.to_local() if form == "tensor" else p).numel() for p in trained)
    for _ in range(STEPS):
        loss = work.call()
    after = whole(form)
    samples, labels = everyones(work.inputs)[0][0], everyones(work.inputs)[-1][-1]
    network = (mlp({WIDTH}) if model == "mlp" else small()).double()
    network.train()
    nn.utils.vector_to_parameters(before.clone(), network.parameters())
    alone = train_alone(network, samples, labels, STEPS)
    moved = (alone - before).abs()
    return {{
        "off": (after - alone).abs().max().item(),
        "moved": moved.max().item(),
        "local": local,
        "whole": len(after),
        "items": work.items,
        "flops": work.flops,
        "inputs": [list(each.shape) for each in work.inputs],
        "loss": None if loss is None else [loss.item(), loss.requires_grad],
        "gradients": all(p.grad is not None for p in trained),
    }}
"""

BOTH = """
said = {}
for form, microbatches in (("layers", 1), ("gpipe", 1), ("gpipe", 4), ("1f1b", 2), ("1f1b", 4)):
    said[f"{form} resnet18 {microbatches}"] = run(form, "resnet18", microbatches)
for form, microbatches in (("layers", 1), ("gpipe", 2), ("1f1b", 2), ("tensor", 1)):
    said[f"{form} mlp {microbatches}"] = run(form, "mlp", microbatches)
# Each case of a launch has groups of its own: nothing of the last one's may be left.
RankProcess(rank, size, dist.FileStore(file + "again", size)).join("gloo", torch.device("cpu"))
said["tensor mlp again"] = run("tensor", "mlp", 1)
said["gpipe mlp again"] = run("gpipe", "mlp", 2)
print(json.dumps(said))
"""


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each of two ranks found after five steps."""
    return [json.loads(out) for out in run_ranks(TRAIN + BOTH, tmp_path_factory.mktemp("trained"))]


def test_five_steps_in_parts_are_five_steps_of_the_whole_network(trained):
    first, last = trained
    # 8 blocks of two 64 x 256 matrices, the first without a gradient of the samples.
    perceptron = BATCH * 2 * 64 * 256 * (3 * 16 - 1)
    assert len(first) == 11
    for case in first:
        for found in (first[case], last[case]):
            assert found["off"] < 1e-6 < 1e-3 < found["moved"], case
            assert (found["gradients"], found["items"]) == (True, BATCH), case
            assert found["flops"] == (perceptron if "mlp" in case else first["layers resnet18 1"]["flops"])
        local, whole = [first[case]["local"], last[case]["local"]], first[case]["whole"]
        samples, labels = [BATCH, WIDTH] if "mlp" in case else [BATCH, 3, 224, 224], [BATCH]
        inputs = first[case]["inputs"], last[case]["inputs"]
        assert last[case]["loss"][1] is False
        if case.startswith("tensor"):  # of the second layers each rank has the whole bias
            assert (local, inputs) == ([(whole + 8 * WIDTH) // 2] * 2, ([samples, labels],) * 2)
            assert first[case]["loss"] == last[case]["loss"]
        else:  # samples are on the first rank, labels and loss on the last
            assert (sum(local), min(local) > 0, inputs, first[case]["loss"]) == (whole, True, ([samples], [labels]), None)


def test_one_rank_is_the_base_of_every_form_and_every_precision_computes(tmp_path):
    script = f"""
from typing import get_args
from dlbench import Dtype
from dlbench.workloads.parallel import model_parallel
model_parallel.WIDTH = {WIDTH}
for form in ("layers", "gpipe", "1f1b", "tensor"):
    for dtype in get_args(Dtype):
        if dtype == "amp_fp16":
            continue
        microbatches = 2 if form in ("gpipe", "1f1b") else 1
        work = model_parallel.model_parallel(
            torch.device("cpu"), form=form, model="mlp", batch=4, ranks=1, dtype=dtype, microbatches=microbatches
        )
        assert (work.items, *map(len, work.inputs)) == (4, 4, 4)
        assert torch.isfinite(work.call()), (form, dtype)
print("done")
"""
    assert run_ranks(script, tmp_path, 1) == ["done\n"]


def test_what_fits_on_no_single_device_fits_on_two(tmp_path):
    # Each process may take as much as the device that is pretended to be there, and a little more for what is no parameter.
    script = """
import resource
from dlbench.workloads.parallel import model_parallel

DEVICE, OTHER = 256 << 20, 96 << 20
model_parallel.device_memory = lambda device: DEVICE
model_parallel.WIDTH = 64

def train(form, percent=None):
    work = model_parallel.model_parallel(torch.device("cpu"), form=form, model="mlp", batch=2, ranks=size, memory_percent=percent)
    for _ in range(2):
        work.call()

FORMS = ("layers", "tensor")[:size]
for form in FORMS:
    train(form)  # a small one, for all that is only imported when needed
for form in FORMS:
    with open("/proc/self/status") as status:
        used = next(int(line.split()[1]) << 10 for line in status if line.startswith("VmData"))
    resource.setrlimit(resource.RLIMIT_DATA, (used + DEVICE + OTHER, resource.RLIM_INFINITY))
    try:
        train(form, 150)
        print(form, "fits")
    except RuntimeError as error:
        print(form, "is out of memory" if "DefaultCPUAllocator" in str(error) else error)
"""
    (one := tmp_path / "one").mkdir()
    (two := tmp_path / "two").mkdir()
    assert run_ranks(script, one, 1) == ["layers is out of memory\n"]
    assert run_ranks(script, two, 2) == ["layers fits\ntensor fits\n"] * 2


def test_a_model_larger_than_a_device_is_sized_by_parameter_gradient_and_momentum(monkeypatch):
    monkeypatch.setattr(module, "device_memory", lambda device: 3 << 30)
    # 1.5 x 3 GiB over 3 x 4 bytes are 403 million parameters: 8 blocks of 2 x 4 x width^2 with a width of 2509 or more.
    assert module._width(CPU, "mlp", "fp32", 150) == 2560
    assert module._width(CPU, "mlp", "bf16", 150) == 3584
