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

FEED, OWN = {"batch": 8, "source": "resident"}, {"batch": 4, "source": "resident"}
PICTURES = {"width": 40, "pictures": 2, "batch": 4}
STORED = {"files": "one", "order": "sequential", "cache": "cold", "samples": 5, "sample_bytes": 8192}
LEARNT = {"model": "signs", "source": "mine", "batch": 4, "format": "fp32"}
PARALLEL = {"form": "ddp", "model": "alexnet", "batch": 8, "ranks": 4}
SPLIT = {"form": "layers", "model": "alexnet", "batch": 8, "ranks": 2}
CARD = {"device": "cuda"}
ROWS = {
    "matmul": [{"n": 16, "batch": 2, "dtype": "int8"}, {"n": 4, "copies": "pageable"}],
    "inverse": [{"n": 4, "dtype": "amp_bf16"}],
    "elementwise": [{"n": 4, "dtype": "amp_bf16"}],
    "reduction": [{"n": 4, "dtype": "amp_bf16"}],
    "conv2d": [{"batch": 1, "channels": 1, "size": 4, "filters": 1, "kernel": 7, "padding": 1}],
    "vectorised": [
        {"n": 3, "form": "loops", "dtype": "fp32"},
        {"n": 3, "form": "loops", "library": "numpy"},
        {"n": 3, "dtype": "amp_bf16"},
        {"n": 3, "device": "meta"},
    ],
    "stream": [{"op": "fill", "bytes": 1020}, {"op": "triad", "bytes": 2**34}],
    "transfer": [
        *({"bytes": 8, "direction": direction, "memory": "pinned"} for direction in ("h2d", "d2h", "both", "peer")),
        {"bytes": 8, "direction": "d2d", "blocking": False},
        {"bytes": 8, "direction": "d2d", "memory": "pinned"},
        {"bytes": 8, "direction": "both", **CARD},
        {"bytes": 2**34, "direction": "d2d"},
        {"bytes": 3 * 2**33, "direction": "h2d", **CARD},
    ],
    "pin": [{"bytes": 8}],
    "overlap": [{}],
    "train_step": [
        {"model": "resnet18", "batch": 2, "mode": "graph"},
        {"model": "resnet18", "batch": 2, "mode": "autotune"},
        {"model": "resnet18", "batch": 2, "dtype": "bf16", "kernels": "native"},
        {"model": "resnet18", "batch": 2, "mode": "graph", "dtype": "amp_fp16", **CARD},
    ],
    "infer_step": [{"model": "resnet18", "batch": 2, "dtype": "bf16", "kernels": "native"}],
    "fastest_train_step": [{"model": "resnet18", "batch": 8, "dtype": "fp16"}],
    "fastest_infer_step": [{"model": "resnet18", "batch": 8, "dtype": "amp_fp16"}, {"model": "resnet18", "batch": 8, "dtype": "fp16"}],
    "largest_batch": [{"model": "resnet18"}],
    "transformer_train_step": [
        {"model": "bert_base", "batch": 1, "seq": 513},
        {"model": "gpt2", "batch": 1, "seq": 1},
        {"model": "gpt2", "batch": 1, "mode": "graph"},
        {"model": "gpt2", "batch": 1, "mode": "graph", "dtype": "amp_fp16", "attention": "math", **CARD},
    ],
    "transformer_infer_step": [
        {"model": "gpt2", "batch": 1, "seq": 1025},
        {"model": "gpt2", "batch": 1, "mode": "graph"},
        {"model": "gpt2", "batch": 1, "dtype": "fp64", **CARD},
    ],
    "decode_step": [{"context": 2048}, {"context": 8, "heads": 7}, {"context": 1024, "batch": 1_000_000}],
    "feed": [
        {**FEED, "samples": 10**18},
        {**FEED, "source": "loader", "workers": 10**9},
        {**FEED, "source": "loader", "workers": 100},
        {**FEED, "samples": 7},
        {**FEED, "workers": 1},
        *({**FEED, "source": source} for source in ("pageable", "pinned", "prefetch")),
        {**OWN, "source": "mine"},
        {**OWN, "source": "mine", "model": "flat", "workers": 2},
        {**OWN, "source": "mine", "model": "flat", "width": 3},
        {**OWN, "model": "flat"},
    ],
    "preprocess": [
        {**PICTURES, "where": "device"},
        {**PICTURES, "width": 60_000},
        {**PICTURES, "workers": 10**9},
        {**PICTURES, "workers": 10**9, "where": "threads"},
        {**PICTURES, "model": "flat"},
        {**PICTURES, "model": "oblong"},
    ],
    "storage": [
        {**STORED, "samples": 10**18},
        {**STORED, "samples": 10**18, "files": "many", "sample_bytes": 1},
        {**STORED, "files": "many"},
        {**STORED, "sample_bytes": 10**18},
        {**STORED, "access": "direct", "sample_bytes": 1000},
        {**STORED, "access": "direct", "cache": "warm"},
        {**STORED, "model": "resnet18"},
        {**STORED, "model": "flat", "access": "direct", "sample_bytes": 112 << 10},
    ],
    "convergence": [
        {"model": "signs", "batch": 4, "format": "fp32"},
        {"source": "mine", "batch": 4, "format": "fp32"},
        {**LEARNT, "format": "binary"},
        LEARNT,
    ],
    "concurrent_training": [
        {"model": "resnet18", "batch": 1},
        {"model": "resnet18", "batch": 1, "networks": 99},
        {"model": "resnet18", "batch": 1, "networks": 2, "launch": "one_thread"},
    ],
    "distillation": [
        {"teacher": "resnet18", "student": "resnet18", "batch": 1, "launch": "one_thread"},
        {"teacher": "resnet18", "student": "resnet18", "batch": 1, "free_core": True},
    ],
    "collective": [
        {"op": "all_reduce", "bytes": 10, "ranks": 2},
        {"op": "all_gather", "bytes": 12, "ranks": 2},
        {"op": "send_recv", "bytes": 16, "ranks": 1},
    ],
    "data_parallel": [
        {**PARALLEL, "batch": 2, "scaling": "strong"},
        {**PARALLEL, "batch": 6, "scaling": "strong"},
        {**PARALLEL, "form": "fsdp", "bucket_mb": 1},
        {**PARALLEL, "form": "async", "synchronise": False},
        {**PARALLEL, "form": "fsdp", "layout": "channels_last"},
        {**PARALLEL, "average_every": 2},
        {**PARALLEL, "straggler": 50},
    ],
    "model_parallel": [
        {**SPLIT, "ranks": 9},
        {**SPLIT, "form": "gpipe", "microbatches": 3},
        {**SPLIT, "form": "gpipe", "microbatches": 16},
        {**SPLIT, "form": "1f1b"},
        {**SPLIT, "microbatches": 2},
        {**SPLIT, "form": "tensor", "model": "mlp", "microbatches": 2},
        {**SPLIT, "form": "tensor"},
        {**SPLIT, "form": "tensor", "model": "mlp", "ranks": 3},
        {**SPLIT, "memory_percent": 150},
        {**SPLIT, "model": "mlp", "memory_percent": 150},
        {**SPLIT, "dtype": "amp_fp16"},
    ],
}


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
    dlbench.data(named("mine", lambda: [(torch.zeros(4, 2), torch.zeros(4, dtype=torch.long))]))


def named(name, function):
    function.__name__ = name
    return function


@pytest.mark.skipif(not hasattr(os, "O_DIRECT"), reason="storage is read as Linux does")
def test_each_refusal(snapshot, small_machine, own_networks, tmp_path):
    registry.load_builtins()
    said = []
    for name, rows in ROWS.items():
        for row in rows:
            given = {key: value for key, value in row.items() if key != "device"}
            with pytest.raises((NotImplementedError, ValueError, MemoryError)) as raised:
                registry.get(name).function(torch.device(row.get("device", "cpu")), **given)
            scene = ", ".join(f"{key}={value}" for key, value in row.items())
            said.append(f"{name} {scene}\n    {type(raised.value).__name__}: {raised.value}\n".replace(str(tmp_path), "FOLDER"))
    set_math("fp32")  # transformers chose their kernels of attention
    snapshot("refusals", "".join(said))
