"""What no workload can do is a sentence before anything is built: tests/snapshots/refusals.txt holds them all."""

import os
from types import SimpleNamespace

import pytest
import torch
from torch import nn

import dlbench
from dlbench.harness.probe import linux
from dlbench.harness.worker import registry, user
from dlbench.harness.worker.backends.torch_build import set_math
from dlbench.workloads import ceilings, concurrency, feed, preprocess, transformer

ROWS = """
matmul n=16 batch=2 dtype=int8
matmul n=4 copies=pageable
inverse n=4 dtype=amp_bf16
elementwise n=4 dtype=amp_bf16
reduction n=4 dtype=amp_bf16
conv2d batch=1 channels=1 size=4 filters=1 kernel=7 padding=1
vectorised n=3 form=loops dtype=fp32
vectorised n=3 form=loops library=numpy
vectorised n=3 dtype=amp_bf16
vectorised n=3 device=meta
stream op=fill bytes=1020
stream op=triad bytes=17179869184
transfer bytes=8 direction=h2d memory=pinned
transfer bytes=8 direction=d2h memory=pinned
transfer bytes=8 direction=both memory=pinned
transfer bytes=8 direction=peer memory=pinned
transfer bytes=8 direction=d2d blocking=False
transfer bytes=8 direction=d2d memory=pinned
transfer bytes=8 direction=both device=cuda
transfer bytes=17179869184 direction=d2d
transfer bytes=25769803776 direction=h2d device=cuda
pin bytes=8
overlap
train_step model=resnet18 batch=2 read_loss=each
train_step model=resnet18 batch=2 mode=graph
train_step model=resnet18 batch=2 mode=autotune
train_step model=resnet18 batch=2 dtype=bf16 kernels=native
train_step model=resnet18 batch=2 mode=graph dtype=amp_fp16 device=cuda
infer_step model=resnet18 batch=2 dtype=bf16 kernels=native
fastest_train_step model=resnet18 batch=8 dtype=fp16
fastest_infer_step model=resnet18 batch=8 dtype=amp_fp16
fastest_infer_step model=resnet18 batch=8 dtype=fp16
largest_batch model=resnet18
transformer_train_step model=bert_base batch=1 seq=513
transformer_train_step model=gpt2 batch=1 seq=1
transformer_train_step model=gpt2 batch=1 mode=graph
transformer_train_step model=gpt2 batch=1 mode=graph dtype=amp_fp16 attention=math device=cuda
transformer_infer_step model=gpt2 batch=1 seq=1025
transformer_infer_step model=gpt2 batch=1 mode=graph
transformer_infer_step model=gpt2 batch=1 dtype=fp64 device=cuda
decode_step context=2048
decode_step context=8 heads=7
decode_step context=1024 batch=1000000
feed batch=8 source=resident samples=1000000000000000000
feed batch=8 source=loader workers=1000000000
feed batch=8 source=loader workers=100
feed batch=8 source=resident samples=7
feed batch=8 source=resident workers=1
feed batch=8 source=pageable
feed batch=8 source=pinned
feed batch=8 source=prefetch
feed batch=4 source=mine
feed batch=4 source=mine model=flat workers=2
feed batch=4 source=mine model=flat width=3
feed batch=4 source=resident model=flat samples=3
feed batch=4 source=resident model=flat samples=1000000000000000000
feed batch=4 source=resident model=resnet18
feed batch=4 source=loader model=recurrent samples=8
preprocess width=40 pictures=2 batch=4 where=device
preprocess width=60000 pictures=2 batch=4
preprocess width=40 pictures=2 batch=4 workers=1000000000
preprocess width=40 pictures=2 batch=4 workers=1000000000 where=threads
preprocess width=40 pictures=2 batch=4 model=flat
preprocess width=40 pictures=2 batch=4 model=oblong
storage files=one order=sequential cache=cold samples=1000000000000000000 sample_bytes=8192
storage files=many order=sequential cache=cold samples=1000000000000000000 sample_bytes=1
storage files=one order=sequential cache=cold samples=5 sample_bytes=1000 access=direct
storage files=one order=sequential cache=warm samples=5 sample_bytes=8192 access=direct
storage files=one order=sequential cache=cold samples=5 sample_bytes=8192 model=resnet18
storage files=one order=sequential cache=cold samples=5 sample_bytes=114688 model=flat access=direct
convergence model=signs batch=4 format=fp32
convergence source=mine batch=4 format=fp32
convergence model=signs source=mine batch=4 format=binary
convergence model=signs source=mine batch=4 format=fp32
concurrent_training model=resnet18 batch=1
concurrent_training model=resnet18 batch=1 networks=99
concurrent_training model=resnet18 batch=1 networks=2 launch=one_thread
distillation teacher=resnet18 student=resnet18 batch=1 launch=one_thread
distillation teacher=resnet18 student=resnet18 batch=1 free_core=True
collective op=all_reduce bytes=10 ranks=2
collective op=all_gather bytes=12 ranks=2
collective op=send_recv bytes=16 ranks=1
data_parallel form=ddp model=alexnet batch=2 ranks=4 scaling=strong
data_parallel form=ddp model=alexnet batch=6 ranks=4 scaling=strong
data_parallel form=fsdp model=alexnet batch=8 ranks=4 bucket_mb=1
data_parallel form=async model=alexnet batch=8 ranks=4 synchronise=False
data_parallel form=fsdp model=alexnet batch=8 ranks=4 layout=channels_last
data_parallel form=ddp model=alexnet batch=8 ranks=4 average_every=2
data_parallel form=ddp model=alexnet batch=8 ranks=4 straggler=50
model_parallel form=layers model=alexnet batch=8 ranks=9
model_parallel form=gpipe model=alexnet batch=8 ranks=2 microbatches=3
model_parallel form=gpipe model=alexnet batch=8 ranks=2 microbatches=16
model_parallel form=1f1b model=alexnet batch=8 ranks=2
model_parallel form=layers model=alexnet batch=8 ranks=2 microbatches=2
model_parallel form=tensor model=mlp batch=8 ranks=2 microbatches=2
model_parallel form=tensor model=alexnet batch=8 ranks=2
model_parallel form=tensor model=mlp batch=8 ranks=3
model_parallel form=layers model=alexnet batch=8 ranks=2 memory_percent=150
model_parallel form=layers model=mlp batch=8 ranks=2 memory_percent=150
model_parallel form=layers model=alexnet batch=8 ranks=2 dtype=amp_fp16
"""


@pytest.fixture
def small_machine(monkeypatch, tmp_path):
    """A host with two CPUs, 16 GiB of memory and a disk of 4 MiB with three files left, whose last cache has 64 KiB."""
    monkeypatch.setattr(linux, "available_memory", lambda: 2**34)
    monkeypatch.setattr(os, "statvfs", lambda path: SimpleNamespace(f_bavail=1024, f_frsize=4096, f_files=10, f_favail=3))
    monkeypatch.setattr(ceilings, "last_cache_bytes", lambda device: 64 << 10)
    monkeypatch.setattr(feed, "SHARED_MEMORY", tmp_path)
    monkeypatch.setattr(concurrency, "usable_cpus", lambda: [0, 1])
    monkeypatch.setattr("dlbench.harness.worker.parent._folder", tmp_path)
    for module, name in ((preprocess, "draw_files"), (transformer, "with_random_weights")):
        monkeypatch.setattr(module, name, pytest.fail)


@pytest.fixture
def own_networks(monkeypatch):
    for kind in ("_networks", "_data"):
        monkeypatch.setattr(user, kind, {})
    for name, shape in (("flat", (6,)), ("oblong", (3, 6, 8)), ("signs", (2,))):
        dlbench.network(inputs=shape, classes=3)(named(name, lambda shape=shape: nn.Sequential(nn.Flatten(), nn.LazyLinear(3))))
    second = named("recurrent", lambda: nn.RNN(6, 3))  # its batch is the second dimension
    dlbench.network(example=lambda batch: torch.zeros(7, batch, 6), loss=lambda output: output.sum())(second)
    dlbench.data(named("mine", lambda: [(torch.zeros(4, 2), torch.zeros(4, dtype=torch.long))]))


def named(name, function):
    function.__name__ = name
    return function


@pytest.mark.skipif(not hasattr(os, "O_DIRECT"), reason="storage is read as Linux does")
def test_each_refusal(snapshot, small_machine, own_networks, tmp_path):
    registry.load_builtins()
    said = []
    for row in ROWS.split("\n")[1:-1]:
        name, *words = row.split()
        given = {key: value_of(text) for key, _, text in (word.partition("=") for word in words)}
        with pytest.raises((NotImplementedError, ValueError, MemoryError)) as raised:
            registry.get(name).function(torch.device(given.pop("device", "cpu")), **given)
        said.append(f"{row}\n    {type(raised.value).__name__}: {raised.value}\n".replace(str(tmp_path), "FOLDER"))
    set_math("fp32")  # transformers chose their kernels of attention
    snapshot("refusals", "".join(said))


def value_of(text):
    return {"True": True, "False": False}.get(text, int(text) if text.isdigit() else text)
