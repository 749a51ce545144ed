"""The table of published peaks, found by a driver's name and never by a guess, and what links and collectives cost."""

import re
import tomllib
from itertools import pairwise

import pytest

from dlbench.core.errors import SuiteError
from dlbench.core.precision import ARITHMETIC
from dlbench.core.reference import peaks

TABLE = tomllib.loads(peaks._TABLE.read_text())["device"]


NAMES = """
NVIDIA H200 67 4.8; NVIDIA H100 80GB HBM3 67 3.35; NVIDIA H100 PCIe 51 2.0; NVIDIA H20 44 4.0; NVIDIA L4 30.3 0.3; NVIDIA A10 31.2 0.6;
A100-SXM4-40GB 19.5 1.555; NVIDIA A100-SXM4-80GB 19.5 2.039; NVIDIA A100 80GB PCIe 19.5 1.935; Tesla T4 8.1 0.32; NVIDIA T4 8.1 0.32;
NVIDIA GeForce GTX TITAN X 6.6 0.337; GeForce GTX TITAN X 6.6 0.337; TITAN X (Pascal) 11 0.48; NVIDIA GeForce RTX 4090 82.6 1.008;
NVIDIA GeForce RTX 4080 48.7 0.7168; NVIDIA GeForce RTX 4070 Ti 40.09 0.504; NVIDIA GeForce RTX 3090 35.58 0.936;
NVIDIA GeForce RTX 5080 56.28 0.96; NVIDIA GeForce RTX 5070 Ti 44 0.896; AMD Instinct MI300X 163.4 5.3; AMD Instinct MI300X VF 163.4 5.3;
AMD Instinct MI325X 163.4 6.0; AMD Instinct MI355X 157.3 8.0; AMD Instinct MI250X 47.85 1.6384; AMD Instinct MI210 45.3 1.6;
Apple M1 Max, 32 GPU cores 10.617 0.4096; Apple M2 Max, 38 GPU cores 13.6 0.4
"""
"""As drivers old and new call devices, with FLOP/s in fp32 and bytes/s, both in units of 1e12; of a MI250X one die, as torch sees it."""
OTHERS = """
|NVIDIA|NVIDIA H100|NVIDIA H100 NVL|NVIDIA H200 NVL|NVIDIA GH200 480GB|NVIDIA A100-SXM4-40GB MIG 1g.5gb|NVIDIA GeForce RTX 4090 Laptop GPU
|NVIDIA GeForce RTX 4090 D|NVIDIA TITAN Xp|NVIDIA TITAN X|AMD EPYC 7B13|Apple M3 GPU|Apple M2 Max|Apple M2 Max GPU
|Apple M2 Max, 30 GPU cores
|NVIDIA B300|NVIDIA GB200|NVIDIA H20-3e|NVIDIA L40|NVIDIA A10G|NVIDIA GeForce RTX 4080 SUPER|NVIDIA GeForce RTX 4070
|NVIDIA GeForce RTX 4070 Ti SUPER|NVIDIA GeForce RTX 3090 Ti|NVIDIA GeForce RTX 5080 Laptop GPU|NVIDIA GeForce RTX 5070|AMD Instinct MI250
|AMD Instinct MI350X
"""


def test_a_device_is_found_as_drivers_old_and_new_call_it_and_no_other_is_taken_for_it():
    for name, flops, bandwidth in (each.strip().rsplit(" ", 2) for each in NAMES.split(";")):
        device = peaks.peak_of(name)
        assert device is not None, name
        assert (device.flops_per_s["fp32"], device.bytes_per_s) == pytest.approx((float(flops) * 1e12, float(bandwidth) * 1e12)), name
    assert [name for name in (None, *OTHERS.split("|")) if peaks.peak_of(name.strip() if name else name)] == []


def test_every_device_of_the_table_is_found_under_each_name_and_has_a_source():
    words = [peaks.name_words(name) for device in TABLE for name in device["names"]]
    assert len(words) == len(set(words))
    for device in TABLE:
        assert device["names"]
        assert device["source"].strip()
        assert set(device["matrix"]) <= set(device["flops"]) <= set(ARITHMETIC.values())
        for name in device["names"]:
            assert peaks.peak_of(name).flops_per_s == device["flops"]


@pytest.mark.parametrize(
    ("dtype", "peak", "figure"),
    [
        ("fp64", 67, "67.0 TFLOP/s, dense fp64 on the matrix units"),
        ("fp32", 67, "67.0 TFLOP/s, dense fp32 on the ordinary cores"),
        ("tf32", 494.5, "494 TFLOP/s, dense tf32 on the matrix units"),
        ("bf16", 989, "989 TFLOP/s, dense bf16 on the matrix units"),
        ("amp_bf16", 989, "989 TFLOP/s, dense bf16 on the matrix units"),
        ("amp_fp16", 989, "989 TFLOP/s, dense fp16 on the matrix units"),
        ("fp8", 1979, "1.98 PFLOP/s, dense fp8 on the matrix units"),
        ("fp8_e4m3", 1979, "1.98 PFLOP/s, dense fp8 on the matrix units"),
        ("fp8_e5m2", 1979, "1.98 PFLOP/s, dense fp8 on the matrix units"),
        ("int8", 1979, "1.98 POP/s, dense int8 on the matrix units"),
    ],
)
def test_a_precision_is_set_against_the_unit_that_computes_it(dtype, peak, figure):
    share = peaks.arithmetic_share(peaks.peak_of("NVIDIA H200"), dtype, 33.5e12)
    assert (share.fraction, share.of, share.figure) == (pytest.approx(33.5 / peak), "arithmetic", f"{figure} of NVIDIA H200")


@pytest.mark.parametrize(
    ("name", "dtype", "rate"),
    [
        ("AMD Instinct MI300X", "bf16", 1307.4e12),  # not the 1300 that some tables round it to
        ("AMD Instinct MI250X", "fp16", 191.5e12),  # half of the package's 383
        ("NVIDIA GeForce RTX 3090", "fp16", 71e12),  # with sums in fp16 it is 142
        ("NVIDIA GeForce RTX 4090", "fp16", 165.2e12),
        ("NVIDIA GeForce RTX 4090", "fp8", 330.3e12),
        ("NVIDIA GeForce RTX 5090", "fp8", 419e12),
        ("NVIDIA B200", "fp8", 4500e12),
        ("NVIDIA H20", "bf16", 148e12),
        ("NVIDIA L40S", "fp64", None),
        ("Tesla V100-SXM2-16GB", "tf32", None),
        ("NVIDIA H200", "", None),
        ("NVIDIA H200", "int4", None),
        ("NVIDIA A100-SXM4-80GB", "fp8", None),
    ],
)
def test_figures_are_dense_with_sums_in_fp32_and_of_one_device(name, dtype, rate):
    share = peaks.arithmetic_share(peaks.peak_of(name), dtype, rate or 1e12)
    assert (share and share.fraction) == (rate and 1)


ENTRY = """
[[device]]
names = ["NVIDIA B300"]
flops = { fp32 = 1e12 }
matrix = []
bandwidth = 1e12
last_cache = 1048576
source = "a datasheet, its table of figures"
"""


@pytest.mark.parametrize("key", ["source", "names", "flops", "bandwidth", "last_cache"])
def test_an_entry_that_lacks_something_is_refused(tmp_path, key):
    table = tmp_path / "peaks.toml"
    table.write_text(ENTRY.replace("B300", "B310") + re.sub(f"{key} =.*", "", ENTRY))
    with pytest.raises(SuiteError) as refused:
        peaks.read_table(table)
    assert str(refused.value) == f"dlbench/core/reference/peaks.toml, entry 2: it has no {key}; the head of the file says what that is"


def test_only_what_no_cache_holds_is_set_against_the_memory():
    device = peaks.peak_of("NVIDIA H200")
    assert peaks.memory_share(device, 8 * 62914560 - 1, 1e12) is None
    share = peaks.memory_share(device, 8 * 62914560, 1.2e12)
    assert (share.fraction, str(share)) == (pytest.approx(0.25), "memory: 4.80 TB/s, the bandwidth of NVIDIA H200")


LINKS = {(1, 1): 0.25, (2, 16): 8, (3, 16): 15.754, (4, 16): 31.508, (5, 8): 31.508, (5, 16): 63.015, (6, 16): 121}
"""GB/s by generation and lanes."""


def test_a_link_carries_its_transfers_less_the_encoding():
    found = {link: peaks.link_bytes_per_s(*link) for link in LINKS}
    assert found == pytest.approx({link: rate * 1e9 for link, rate in LINKS.items()}, rel=1e-4)
    assert [peaks.link_bytes_per_s(*link) for link in ((0, 16), (7, 16), (5, 0), (5, -16), (5, 33))] == [None] * 5


def test_links_are_known_as_linux_writes_them():
    known = {("32.0 GT/s PCIe\n", "16\n"): 63.015e9, ("2.5 GT/s", "8"): 2e9, ("8 GT/s", "16"): 15.754e9}  # older kernels write no more
    assert {link: peaks.link_bytes_per_s_of(*link) for link in known} == pytest.approx(known, rel=1e-4)
    unknown = (("Unknown", "16"), ("", "16"), ("16.0 GT/s PCIe", "0"), ("16.0 GT/s PCIe", "many"), ("12.0 GT/s PCIe", "16"))
    assert [peaks.link_bytes_per_s_of(*link) for link in unknown] == [None] * len(unknown)


def test_the_factors_of_collectives_are_those_of_nccl_tests():
    factors = {"all_reduce": (1.0, 1.75), **dict.fromkeys(("all_gather", "reduce_scatter", "all_to_all"), (0.5, 0.875))}
    factors |= dict.fromkeys(("broadcast", "reduce", "send_recv"), (1.0, 1.0))
    assert {each: (peaks.bus_factor(each, 2), peaks.bus_factor(each, 8)) for each in peaks.OPERATIONS} == factors


@pytest.mark.parametrize("cost", [peaks.bus_factor, peaks.ring_steps])
def test_an_all_reduce_is_a_reduce_scatter_and_an_all_gather_and_more_ranks_never_move_less(cost):
    for ranks in range(1, 100):
        assert cost("all_reduce", ranks) == pytest.approx(cost("reduce_scatter", ranks) + cost("all_gather", ranks))
    for operation in peaks.OPERATIONS:
        assert cost(operation, 1) == 0
        assert all(cost(operation, fewer) <= cost(operation, more) for fewer, more in pairwise(range(1, 50)))
    with pytest.raises(KeyError):
        cost("gossip", 2)
