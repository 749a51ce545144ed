"""Caches and memory nodes: the kernel's lists and sizes, and files that are missing."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from machine_fake import two_sockets, write

from dlbench.harness.probe.linux import CpuCache, caches_of, cpus_of_nodes, parse_cpu_list, parse_size


def test_the_caches_of_a_cpu_and_the_cpus_of_a_node(tmp_path: Path) -> None:
    two_sockets(tmp_path)
    core = frozenset({1, 5})
    assert caches_of(1)[:2] == [CpuCache(1, 48 << 10, core), CpuCache(2, 2 << 20, core)]
    assert caches_of(99) == []
    nodes = cpus_of_nodes()
    assert (len(nodes), frozenset().union(*nodes)) == (2, frozenset(range(8)))


def test_a_cache_that_is_not_told_whole_is_left_out_or_of_its_cpu_alone(tmp_path: Path) -> None:
    cache = "sys/devices/system/cpu/cpu3/cache"
    files = {"index0/level": "1", "index1/level": "2", "index1/size": "1024K", "index2/level": "x", "index2/size": "32M"}
    write(tmp_path, {f"{cache}/{name}": text for name, text in files.items()})
    assert caches_of(3) == [CpuCache(2, 1 << 20, frozenset({3}))]


@given(st.sets(st.integers(0, 300)))
def test_cpu_lists_read_back_what_the_kernel_would_write(cpus: set[int]) -> None:
    spans: list[list[int]] = []
    for cpu in sorted(cpus):
        if spans and spans[-1][-1] == cpu - 1:
            spans[-1].append(cpu)
        else:
            spans.append([cpu])
    text = ",".join(str(span[0]) if len(span) == 1 else f"{span[0]}-{span[-1]}" for span in spans)
    assert parse_cpu_list(text) == cpus


@given(st.integers(0, 10**9), st.sampled_from([("", 1), ("K", 2**10), ("M", 2**20), ("G", 2**30)]))
def test_sizes(count: int, unit: tuple[str, int]) -> None:
    assert parse_size(f"{count}{unit[0]}") == count * unit[1]


@given(st.text())
def test_no_text_in_sys_breaks_the_parsers(text: str) -> None:
    parse_cpu_list(text.replace("-", ""))  # spans are the kernel's own, and are not made up to fill the memory
    parse_size(text)
