"""Copies in the answer on the bottleneck: latency, bandwidth, and the link."""

import made_up
import pytest

from dlbench.analysis.answers.bottleneck import ceilings
from dlbench.analysis.answers.engine import making
from dlbench.analysis.answers.engine.question import Question
from dlbench.analysis.read.table import collect

WORKLOAD = {
    "transfer": {
        "ceiling": "copy",
        "parameters": {"bytes": {"sweep": ""}},
        "values": [{"name": "link", "unit": "bytes/s", "meaning": "the link", "bounds": "rate.bytes_per_s", "optional": True}],
    }
}
GEN5 = {"pcie_generation_max": 5, "pcie_width_max": 16}
SIZES = [4**power for power in range(6, 16)]


def copied(device="cuda:0", latency_s=1e-5, bytes_per_s=5e10, sizes=SIZES, link=None, **params):
    found = []
    for size in sizes:
        seconds = made_up.flat([factor * (latency_s + size / bytes_per_s) for factor in made_up.SEVEN])
        given = {"bytes": size, "items": None, "flops": None, "values": {} if link is None else {"link": link}}
        case = made_up.case("transfer", device, bytes=given.pop("bytes"), **params)
        found += made_up.rounds_of(case, seconds, bytes=size, transfer=None, **given)
    return found


def answer(results):
    return making.answer(Question("copies", "How fast?", sections=[ceilings.TOPS]), results)


@pytest.fixture
def found(tmp_path):
    def read(*measurements, **header):
        path = made_up.write(tmp_path / "run.jsonl", [each for some in measurements for each in some], workloads=WORKLOAD, **header)
        return answer(collect([path]))

    return read


def line(told):
    return told.headline, told.qualifier, told.tags


def test_the_fastest_way_over_the_link_is_told_with_its_intervals(found):
    ways = (copied(link=63e9, memory="pinned"), copied(link=63e9, memory="pageable", bytes_per_s=1e10), copied(bytes_per_s=2e12))
    told = found(*ways, accelerator=GEN5)
    assert told.sentences == (
        "copy, transfer pinned: bytes 50.0 GB/s, latency 10.0 µs (9.70…10.3 µs), bandwidth 50.0 GB/s (48.5…51.5 GB/s), of the link 79.3 %.",
    )
    assert line(told) == ("copies run at 50.0 GB/s after 10.0 µs", "transfer pinned: 79.3 % of the link", ())
    (table,) = told.tables
    assert [row["copies.link_share"] for row in table.rows] == [pytest.approx(0.793, abs=1e-3), pytest.approx(0.159, abs=1e-3), None]
    assert [row["pair.case"] for row in table.rows] == ["transfer[memory=pinned]", "transfer[memory=pageable]", "transfer[]"]
    assert told.weaknesses == ()
    assert len(told.cases) == 30


def test_a_link_that_stays_trained_down_is_named(found):
    (weakness,) = found(copied(link=15.75e9, bytes_per_s=1.4e10), accelerator=GEN5).weaknesses
    rates = "the PCIe link of cuda:0 stays trained down at 15.8 GB/s of 63.0 GB/s"
    assert weakness == f"{rates}: see how the card is seated, its slot and the firmware"


def test_copies_faster_than_the_link_that_was_read_have_no_share_of_it(found):
    """A guest shows 2.5 GT/s, and copies over NVLink-C2C are none of PCIe: such a link is not trained down either."""
    told = found(copied(link=4e9, memory="pinned"), copied(link=4e9, memory="pageable", bytes_per_s=1e9), accelerator=GEN5)
    assert [row["copies.link_share"] for row in told.tables[0].rows] == [None, None]
    assert line(told)[1] == "transfer pinned"
    assert told.weaknesses == ()


def test_a_cpu_has_no_link_and_two_sizes_no_latency(found):
    told = found(copied("cpu", sizes=SIZES[:2], bytes_per_s=1e9), accelerator=GEN5)
    assert line(told) == ("copies run at 621 MB/s at best", "transfer", ())
    assert told.tables[0].rows[0]["copies.bandwidth"] is None


def test_times_that_follow_no_line_are_named(found):
    cached = [copied("cpu", latency_s=0.0, bytes_per_s=1e9 if size > SIZES[4] else 1e11, sizes=[size]) for size in SIZES]
    told = found(*cached)
    assert line(told)[:2] == ("copies run at 100 GB/s at best", "transfer")
    (row,) = told.tables[0].rows
    assert (row["copies.latency_s"], row["copies.bandwidth"]) == (None, None)


def test_bandwidth_stands_against_size_with_a_line_a_way(found):
    accelerator, cpu = found(copied(memory="pinned"), copied(memory="pageable"), copied("cpu")).figures
    assert (accelerator.title, cpu.title) == ("Bandwidth by size: transfer on cuda:0", "Bandwidth by size: transfer on cpu")
    assert {row["copies.way"] for row in accelerator.rows} == {"transfer pinned", "transfer pageable"}
    assert [row["copies.size"] for row in cpu.rows] == pytest.approx(SIZES)


@pytest.mark.parametrize("values", [{"link": 0.0}, {"link": -1.0}, {"link": 1e300}, {"link": (1.0, 2.0)}, {}])
@pytest.mark.parametrize(("size", "stated"), [("many", 0), (-1, None), (True, 1e-9), (1.5, 10**15)])
def test_odd_numbers_of_an_edited_file_crash_nothing(tmp_path, values, size, stated):
    measured = copied(sizes=SIZES[:3])
    odd = made_up.rounds_of(made_up.case("transfer", "cuda:0", bytes=size), [[1e-9]], bytes=stated, values=values, transfer=None)
    path = made_up.write(tmp_path / "run.jsonl", [*measured, *odd], workloads=WORKLOAD, accelerator=GEN5)
    found = answer(collect([path]))
    assert [table.title for table in found.tables] == ["What each device can do at most"]
    assert all(table.cells() for table in found.tables)
