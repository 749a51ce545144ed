"""The table of published peaks, found by a driver's name and never by a guess, and what links and collectives cost."""

import re
import tomllib
from itertools import pairwise

import pytest

from dlbench.core.errors import SuiteError
from dlbench.core.precision import ARITHMETIC
from dlbench.core.reference import peaks

TABLE = tomllib.loads(peaks._TABLE.read_text())["device"]


def test_a_device_is_found_as_drivers_old_and_new_call_it_and_no_other_is_taken_for_it(transcript):
    """With FLOP/s in fp32 and bytes/s, both in units of 1e12; of a MI250X one die, as torch sees it."""

    def peak(name):
        device = peaks.peak_of(name)
        return f"{device.flops_per_s['fp32'] / 1e12:g} {device.bytes_per_s / 1e12:g}" if device else "unknown"

    transcript("peaks-of-devices", 57, peak)
    assert peaks.peak_of(None) is None


def test_every_device_of_the_table_is_found_under_each_name_and_has_a_source():
    words = [peaks.name_words(name) for device in TABLE for name in device["names"]]
    assert len(words) == len(set(words))
    for device in TABLE:
        assert device["names"]
        assert device["source"].strip()
        assert set(device["matrix"]) <= set(device["flops"]) <= set(ARITHMETIC.values())
        for name in device["names"]:
            assert peaks.peak_of(name).flops_per_s == device["flops"]


def test_a_precision_is_set_against_the_unit_of_one_device_that_computes_it_dense_with_sums_in_fp32(transcript):
    """A MI250X has half of its package's 383, and a RTX 3090 twice as much with sums in fp16."""

    def share(title):
        dtype, _, name = title.partition(" on ")
        found = peaks.arithmetic_share(peaks.peak_of(name), dtype, 1e12)
        return f"{1 / found.fraction:g}e12, {found}" if found else "unknown"

    transcript("shares-of-peaks", 23, share)


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
