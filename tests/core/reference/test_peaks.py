"""The table of published peaks: found by a driver's name, and never by a guess."""

import re
import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlbench.core.errors import SuiteError
from dlbench.core.precision import ARITHMETIC
from dlbench.core.reference import peaks
from dlbench.core.reference.peaks import arithmetic_share, link_bytes_per_s, link_bytes_per_s_of, memory_share, peak_of

TABLE = tomllib.loads(peaks._TABLE.read_text())["device"]


@pytest.mark.parametrize(
    ("name", "fp32", "bandwidth"),
    [
        ("NVIDIA H200", 67e12, 4.8e12),
        ("NVIDIA H100 80GB HBM3", 67e12, 3.35e12),
        ("NVIDIA H100 PCIe", 51e12, 2.0e12),
        ("A100-SXM4-40GB", 19.5e12, 1.555e12),
        ("NVIDIA A100-SXM4-80GB", 19.5e12, 2.039e12),
        ("NVIDIA A100 80GB PCIe", 19.5e12, 1.935e12),
        ("NVIDIA GeForce GTX TITAN X", 6.6e12, 0.337e12),
        ("GeForce GTX TITAN X", 6.6e12, 0.337e12),
        ("TITAN X (Pascal)", 11e12, 0.48e12),
        ("NVIDIA GeForce RTX 4090", 82.6e12, 1.008e12),
        ("Tesla T4", 8.1e12, 0.32e12),
        ("NVIDIA T4", 8.1e12, 0.32e12),
        ("AMD Instinct MI300X", 163.4e12, 5.3e12),
        ("AMD Instinct MI300X VF", 163.4e12, 5.3e12),
        ("NVIDIA H20", 44e12, 4.0e12),
        ("NVIDIA L4", 30.3e12, 0.3e12),
        ("NVIDIA A10", 31.2e12, 0.6e12),
        ("AMD Instinct MI325X", 163.4e12, 6.0e12),
        ("AMD Instinct MI355X", 157.3e12, 8.0e12),
        ("AMD Instinct MI250X", 47.85e12, 1.6384e12),  # of one die, as torch sees it
        ("AMD Instinct MI210", 45.3e12, 1.6e12),
        ("NVIDIA GeForce RTX 4080", 48.7e12, 0.7168e12),
        ("NVIDIA GeForce RTX 4070 Ti", 40.09e12, 0.504e12),
        ("NVIDIA GeForce RTX 3090", 35.58e12, 0.936e12),
        ("NVIDIA GeForce RTX 5080", 56.28e12, 0.96e12),
        ("NVIDIA GeForce RTX 5070 Ti", 44e12, 0.896e12),
        ("Apple M1 Max, 32 GPU cores", 10.617e12, 409.6e9),
        ("Apple M2 Max, 38 GPU cores", 13.6e12, 400e9),
    ],
)
def test_a_device_is_found_as_drivers_old_and_new_call_it(name, fp32, bandwidth):
    device = peak_of(name)
    assert device is not None
    assert (device.flops_per_s["fp32"], device.bytes_per_s) == (fp32, bandwidth)


@pytest.mark.parametrize(
    "name",
    [
        None,
        "",
        "NVIDIA",
        "NVIDIA H100",
        "NVIDIA H100 NVL",
        "NVIDIA H200 NVL",
        "NVIDIA GH200 480GB",
        "NVIDIA A100-SXM4-40GB MIG 1g.5gb",
        "NVIDIA GeForce RTX 4090 Laptop GPU",
        "NVIDIA GeForce RTX 4090 D",
        "NVIDIA TITAN Xp",
        "NVIDIA TITAN X",
        "AMD EPYC 7B13",
        "Apple M3 GPU",
        "Apple M2 Max",
        "Apple M2 Max GPU",
        "Apple M2 Max, 30 GPU cores",
        "NVIDIA B300",
        "NVIDIA GB200",
        "NVIDIA H20-3e",
        "NVIDIA L40",
        "NVIDIA A10G",
        "NVIDIA GeForce RTX 4080 SUPER",
        "NVIDIA GeForce RTX 4070",
        "NVIDIA GeForce RTX 4070 Ti SUPER",
        "NVIDIA GeForce RTX 3090 Ti",
        "NVIDIA GeForce RTX 5080 Laptop GPU",
        "NVIDIA GeForce RTX 5070",
        "AMD Instinct MI250",
        "AMD Instinct MI350X",
    ],
)
def test_another_device_is_not_taken_for_one_of_them(name):
    assert peak_of(name) is None


@given(st.text(max_size=40))
def test_any_name_has_an_answer(name):
    assert peak_of(name) is None or peak_of(name).name


def test_every_device_of_the_table_is_found_under_each_name_and_has_a_source():
    words = [peaks.name_words(name) for device in TABLE for name in device["names"]]
    assert len(words) == len(set(words))
    for device in TABLE:
        assert device["names"]
        assert device["source"].strip()
        assert set(device["matrix"]) <= set(device["flops"]) <= set(ARITHMETIC.values())
        for name in device["names"]:
            assert peak_of(name).flops_per_s == device["flops"]


@pytest.mark.parametrize(
    ("dtype", "fraction", "figure"),
    [
        ("fp64", 0.5, "67.0 TFLOP/s, dense fp64 on the matrix units of NVIDIA H200"),
        ("fp32", 0.5, "67.0 TFLOP/s, dense fp32 on the ordinary cores of NVIDIA H200"),
        ("tf32", 33.5 / 494.5, "494 TFLOP/s, dense tf32 on the matrix units of NVIDIA H200"),
        ("bf16", 33.5 / 989, "989 TFLOP/s, dense bf16 on the matrix units of NVIDIA H200"),
        ("amp_bf16", 33.5 / 989, "989 TFLOP/s, dense bf16 on the matrix units of NVIDIA H200"),
        ("amp_fp16", 33.5 / 989, "989 TFLOP/s, dense fp16 on the matrix units of NVIDIA H200"),
        ("fp8", 33.5 / 1979, "1.98 PFLOP/s, dense fp8 on the matrix units of NVIDIA H200"),
        ("fp8_e4m3", 33.5 / 1979, "1.98 PFLOP/s, dense fp8 on the matrix units of NVIDIA H200"),
        ("fp8_e5m2", 33.5 / 1979, "1.98 PFLOP/s, dense fp8 on the matrix units of NVIDIA H200"),
        ("int8", 33.5 / 1979, "1.98 POP/s, dense int8 on the matrix units of NVIDIA H200"),
    ],
)
def test_a_precision_is_set_against_the_unit_that_computes_it(dtype, fraction, figure):
    share = arithmetic_share(peak_of("NVIDIA H200"), dtype, 33.5e12)
    assert (share.fraction, share.of, share.figure) == (pytest.approx(fraction), "arithmetic", figure)


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
    ],
)
def test_figures_are_dense_with_sums_in_fp32_and_of_one_device(name, dtype, rate):
    assert arithmetic_share(peak_of(name), dtype, rate).fraction == 1


def test_a_precision_without_a_figure_has_no_share():
    assert arithmetic_share(peak_of("NVIDIA L40S"), "fp64", 1e12) is None
    assert arithmetic_share(peak_of("Tesla V100-SXM2-16GB"), "tf32", 1e12) is None
    assert arithmetic_share(peak_of("NVIDIA H200"), "", 1e12) is None
    assert arithmetic_share(peak_of("NVIDIA H200"), "int4", 1e12) is None
    assert arithmetic_share(peak_of("NVIDIA A100-SXM4-80GB"), "fp8", 1e12) is None


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
    device = peak_of("NVIDIA H200")
    assert memory_share(device, 8 * 62914560 - 1, 1e12) is None
    share = memory_share(device, 8 * 62914560, 1.2e12)
    assert (share.fraction, str(share)) == (pytest.approx(0.25), "memory: 4.80 TB/s, the bandwidth of NVIDIA H200")


@pytest.mark.parametrize(
    ("generation", "lanes", "bytes_per_s"),
    [
        (1, 1, 250e6),
        (2, 16, 8e9),
        (3, 16, 15.754e9),
        (4, 16, 31.508e9),
        (5, 8, 31.508e9),
        (5, 16, 63.015e9),
        (6, 16, 121e9),
    ],
)
def test_a_link_carries_its_transfers_less_the_encoding(generation, lanes, bytes_per_s):
    assert link_bytes_per_s(generation, lanes) == pytest.approx(bytes_per_s, rel=1e-4)


@pytest.mark.parametrize(("generation", "lanes"), [(0, 16), (7, 16), (5, 0), (5, -16), (5, 33)])
def test_a_link_that_there_is_not_carries_nothing_that_is_known(generation, lanes):
    assert link_bytes_per_s(generation, lanes) is None


@pytest.mark.parametrize(
    ("speed", "width", "bytes_per_s"),
    [
        ("32.0 GT/s PCIe\n", "16\n", 63.015e9),
        ("2.5 GT/s", "8", 2e9),  # older kernels write no more
        ("8 GT/s", "16", 15.754e9),
        ("Unknown", "16", None),
        ("", "16", None),
        ("16.0 GT/s PCIe", "0", None),
        ("16.0 GT/s PCIe", "many", None),
        ("12.0 GT/s PCIe", "16", None),
    ],
)
def test_links_are_known_as_linux_writes_them(speed, width, bytes_per_s):
    expected = None if bytes_per_s is None else pytest.approx(bytes_per_s, rel=1e-4)
    assert link_bytes_per_s_of(speed, width) == expected
