"""Size of the last cache, read from a made-up /sys."""

import os
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from dlbench.harness.probe import linux
from dlbench.kit import memory

CPU = torch.device("cpu")
UNKNOWN = 256 << 20


@pytest.fixture
def cpus(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Four CPUs, each with a cache of 4 MiB to itself and half of one of 2 MiB; this process may use all but the last."""
    for cpu in range(4):
        pair = f"{cpu // 2 * 2}-{cpu // 2 * 2 + 1}"
        for index, (level, size, sharing) in enumerate([(1, "32K", f"{cpu}"), (2, "4096K", f"{cpu}"), (3, "2048K", pair)]):
            folder = tmp_path / f"sys/devices/system/cpu/cpu{cpu}/cache/index{index}"
            folder.mkdir(parents=True)
            for name, text in (("level", level), ("size", size), ("shared_cpu_list", sharing)):
                (folder / name).write_text(f"{text}\n")
    monkeypatch.setattr(linux, "ROOT", tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1, 2}, raising=False)
    return tmp_path


def test_last_caches_that_other_cpus_share_add_up_and_each_counts_once(cpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert memory.last_cache_bytes(CPU) == 4 << 20
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {1})
    assert memory.last_cache_bytes(CPU) == 2 << 20


def test_a_system_without_affinities_has_the_caches_of_all_its_cpus(cpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    assert memory.last_cache_bytes(CPU) == 2 << 20


def test_what_is_not_told_is_a_safe_guess(cpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for cpu in range(3):
        (cpus / f"sys/devices/system/cpu/cpu{cpu}/cache/index2/size").write_text("\n")
    assert memory.last_cache_bytes(CPU) == 3 * (4 << 20)
    monkeypatch.setattr(linux, "ROOT", cpus / "elsewhere")
    assert memory.last_cache_bytes(CPU) == UNKNOWN
    assert memory.last_cache_bytes(torch.device("meta")) == UNKNOWN


@pytest.mark.parametrize(
    ("name", "told", "hip", "expected"),
    [
        pytest.param("AMD Instinct MI300X", 4 << 20, "6.4", 256 << 20, id="a larger one behind what torch tells"),
        pytest.param("NVIDIA H100 80GB HBM3", 60 << 20, None, 60 << 20, id="torch tells more"),
        pytest.param("NVIDIA Made-up", 8 << 20, None, 8 << 20, id="not published"),
        pytest.param("AMD Made-up", 8 << 20, "6.4", UNKNOWN, id="not published, and AMD's may have another"),
        pytest.param("NVIDIA Made-up", 0, None, UNKNOWN, id="nothing tells it"),
    ],
)
def test_of_a_card_the_larger_of_what_torch_tells_and_what_is_published(
    name: str, told: int, hip: str | None, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.version, "hip", hip)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(name=name, L2_cache_size=told))
    assert memory.last_cache_bytes(torch.device("cuda", 0)) == expected
