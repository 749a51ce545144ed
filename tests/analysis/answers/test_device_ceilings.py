"""What devices can do at most: ceilings with the cases below them, and copies, whose latency and bandwidth a line through sizes gives."""

import math

import made_up
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_answers import columns_of, plain

from dlbench.analysis.answers.bottleneck import ceilings
from dlbench.analysis.answers.bottleneck.ceilings import fit_latency_and_bandwidth
from dlbench.analysis.answers.engine import making
from dlbench.analysis.answers.engine.lines import fit
from dlbench.analysis.answers.engine.question import Missing, Question
from dlbench.analysis.read.table import collect
from dlbench.core.rows.columns import CaseRounds

LINK = {"name": "link", "unit": "bytes/s", "meaning": "the link", "bounds": "rate.bytes_per_s", "optional": True}
DECLARED = {
    **{name: {"ceiling": kind} for name, kind in (("product", "arithmetic"), ("moves", "memory"), ("start", "launch"))},
    "wait": {"ceiling": "synchronisation"},
    "step": {},
    "transfer": {"ceiling": "copy", "parameters": {"bytes": {"sweep": ""}}, "values": [LINK]},
}
GEN5 = {"pcie_generation_max": 5, "pcie_width_max": 16}
SIZES = [4**power for power in range(6, 16)]  # 4 KiB to 1 GiB


def work(name, seconds=1.0, device="cpu", flops=None, moved=None, **params):
    return made_up.rounds_of(made_up.case(name, device, **params), made_up.flat([seconds] * 7), flops=flops, bytes=moved, items=1)


def tops(device="cpu", times=1):
    """100 GFLOP/s in fp32, 200 in bf16; 10 GB/s; 2 and 5 µs."""
    moves = [*work("moves", 1.0, device, moved=times * 1e10, op="triad"), *work("moves", 1.0, device, moved=times * 8e9, op="copy")]
    products = [each for dtype, s in (("fp32", 1.0), ("bf16", 0.5)) for each in work("product", s, device, times * 1e11, dtype=dtype)]
    return [*products, *moves, *work("start", 2e-6, device), *work("wait", 5e-6, device)]


def copied(device="cuda:0", latency_s=1e-5, bytes_per_s=5e10, sizes=SIZES, link=None, **params):
    """Copies of these sizes that take a latency, and their bytes at a bandwidth."""
    found = []
    for size in sizes:
        seconds = made_up.flat([factor * (latency_s + size / bytes_per_s) for factor in made_up.SEVEN])
        values = {} if link is None else {"link": link}
        given = {"items": None, "flops": None, "values": values, "bytes": size, "transfer": None}
        found += made_up.rounds_of(made_up.case("transfer", device, bytes=size, **params), seconds, **given)
    return found


@pytest.fixture
def found(tmp_path):
    """What these files say of devices at most."""

    def read(*files, accelerator=GEN5):
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        header = {"workloads": DECLARED, "environment": {"machine_key": "a", "stack_key": "b"}, "accelerator": accelerator}
        paths = [made_up.write(folder / f"run{number}.jsonl", each, **header) for number, each in enumerate(files)]
        return making.answer(Question("roof", "What at most?", sections=[ceilings.TOPS]), collect(paths))

    return read


def test_what_it_says(found, snapshot):
    in_step = [*work("step", 1.0, flops=5e9, moved=9e9, dtype="fp32", n=1), *work("step", 1.0, flops=5e10, moved=1e9, dtype="fp32", n=2)]
    pinned, pageable = copied(link=63e9, memory="pinned"), copied(link=63e9, memory="pageable", bytes_per_s=1e10)
    cached = [each for size in SIZES for each in copied("cpu", 0.0, 1e9 if size > SIZES[4] else 1e11, [size])]
    files = {
        "a CPU": [tops()],
        "a card with published peaks beside a CPU": [[*tops(), *tops("cuda:0", 100)]],
        "steps of another file below the roof of the same device": [tops(), in_step],
        "two machines whose device has one id": [tops(), [made_up.renamed(each, "another CPU", 8) for each in tops(times=2)]],
        "three ways to copy, of which the last does not go over the link": [[*pinned, *pageable, *copied(bytes_per_s=2e12)]],
        "a link that stays trained down": [copied(link=15.75e9, bytes_per_s=1.4e10)],
        "copies faster than the link that a guest shows": [[*copied(link=4e9, memory="pinned"), *copied(link=4e9, memory="pageable")]],
        "two sizes alone, on a CPU": [copied("cpu", sizes=SIZES[:2], bytes_per_s=1e9)],
        "times that follow no line, as caches hold the small ones": [cached],
    }
    snapshot("ceilings", "\n".join(f"== {name}\n{plain(found(*each))}" for name, each in files.items()))


def test_the_roofline_is_the_most_that_was_measured_and_no_case_stands_above_it(found):
    """A convolution may beat the best product, and caches may serve what a network moves."""
    slope, plain_step = work("step", flops=5e9, moved=9e9, dtype="fp32", n=1), work("step", flops=5e10, moved=1e9, dtype="fp32", n=2)
    (figure,) = found(tops(), [*slope, *plain_step]).figures
    assert (figure.title, figure.mark, len(figure.rows)) == ("Roofline in fp32: cpu", "dot", 2)
    corners = columns_of(figure.bound, "roofline.intensity", "rate.flops_per_s")
    assert corners == [(pytest.approx(5 / 9), pytest.approx(5e10 / 9)), (10.0, 1e11), (50.0, 1e11)]
    faster = work("step", flops=1.2e11, moved=1e9, dtype="fp32", n=1)
    results = found(tops(), [*faster, *work("step", flops=5e9, moved=2.13e10, dtype="fp32", n=2)])
    assert columns_of(results.tables[0].rows, "pair.case", "rate.flops_per_s")[1] == ("step[dtype=fp32,n=1]", 1.2e11)
    (figure,) = results.figures
    assert [row["rate.flops_per_s"] for row in figure.rows] == [1.2e11] == [max(corner["rate.flops_per_s"] for corner in figure.bound)]
    assert "step[dtype=fp32,n=1]@cpu" in results.cases
    others = [each for dtype in ("amp_bf16", "fp64") for each in work("step", flops=1e9, moved=1e9, dtype=dtype)]
    assert [figure.title for figure in found([*tops(), *others]).figures] == ["Roofline in bf16: cpu"]


def test_without_a_measured_memory_there_is_no_roof(found):
    assert isinstance(found([*work("product", flops=1e11, dtype="fp32"), *work("start", 2e-6)]), Missing)


def test_bandwidth_stands_against_size_with_a_line_for_each_kind_of_copy(found):
    accelerator, cpu = found([*copied(memory="pinned"), *copied(memory="pageable"), *copied("cpu")]).figures
    assert (accelerator.title, cpu.title) == ("Bandwidth by size: transfer on cuda:0", "Bandwidth by size: transfer on cpu")
    assert {row["copies.way"] for row in accelerator.rows} == {"transfer pinned", "transfer pageable"}
    assert [row["copies.size"] for row in cpu.rows] == pytest.approx(SIZES)


@pytest.mark.parametrize("values", [{"link": 0.0}, {"link": -1.0}, {"link": 1e300}, {"link": (1.0, 2.0)}, {}])
@pytest.mark.parametrize(("size", "stated"), [("many", 0), (-1, None), (True, 1e-9), (1.5, 10**15)])
def test_odd_numbers_of_an_edited_file_crash_nothing(found, values, size, stated):
    odd = made_up.rounds_of(made_up.case("transfer", "cuda:0", bytes=size), [[1e-9]], bytes=stated, values=values, transfer=None)
    tables = found([*copied(sizes=SIZES[:3]), *odd]).tables
    assert [table.title for table in tables] == ["What each device can do at most"]
    assert all(table.cells() for table in tables)


def times(latency_s, bytes_per_s):
    return [(float(size), latency_s + size / bytes_per_s) for size in SIZES]


def by_round(points, factors=(1.0,) * 7):
    """Sizes with the times of seven rounds."""
    return [(size, CaseRounds(median_s=[each * seconds for each in factors], numbers=tuple(range(7)))) for size, seconds in points]


few = settings(max_examples=30)
latencies, bandwidths = st.floats(1e-6, 1e-4), st.floats(1e9, 1e11)
wild_factors = st.one_of(st.floats(0.02, 0.5), st.floats(2, 50))


@given(st.floats(2**19, 2**22), bandwidths, st.integers(0, 3), wild_factors, st.integers(6, 9), wild_factors)
@few
def test_a_wild_small_size_and_a_wild_large_one_do_not_carry_a_line_away(knee, bytes_per_s, small, small_factor, large, large_factor):
    """As long as some sizes tell of the latency and some of the bandwidth: the knee is where they take as long."""
    points = times(knee / bytes_per_s, bytes_per_s)
    for index, factor in ((small, small_factor), (large, large_factor)):
        points[index] = (points[index][0], factor * points[index][1])
    line = fit(points)
    assert (line.fixed, 1 / line.slope) == pytest.approx((knee / bytes_per_s, bytes_per_s), rel=0.01)


@given(latencies, bandwidths, st.lists(st.floats(0.97, 1.03), min_size=10, max_size=10))
@few
def test_a_little_noise_moves_it_a_little(latency_s, bytes_per_s, noise):
    points = times(latency_s, bytes_per_s)
    assert tuple(fit(points)) == pytest.approx((latency_s, 1 / bytes_per_s), rel=1e-3)
    line = fit([(size, factor * seconds) for factor, (size, seconds) in zip(noise, points, strict=True)])
    assert 1 / line.slope == pytest.approx(bytes_per_s, rel=0.2)
    assert max(line.distance(*point) for point in points) < 0.2


@given(st.lists(st.tuples(st.floats(), st.floats()), max_size=8))
@few
def test_whatever_a_file_holds_gives_a_line_or_none(points):
    line = fit(points)
    assert line is None or (line.fixed >= 0 and 0 < line.slope < math.inf)


def test_through_two_sizes_there_is_no_fit_and_no_latency_is_below_zero():
    points = times(1e-5, 1e10)
    assert fit([*points[:2], *points[:2]]) is None
    assert fit_latency_and_bandwidth(by_round(points[:2])) == ((), ())
    assert fit([(size, 1e-10 * size**1.1) for size in SIZES]).fixed == 0


@pytest.mark.parametrize(("latency_s", "shows"), [(0.05e-6, False), (1e-6, True)])
def test_a_latency_below_what_the_line_is_off_at_the_smallest_size_is_none(latency_s, shows):
    """The times are up to 10 % off a line by turns, and the smallest copy takes 0.4 µs beside its latency."""
    points = [(size, seconds * (1.1 if index % 2 else 0.9)) for index, (size, seconds) in enumerate(times(latency_s, 1e10))]
    found = fit_latency_and_bandwidth(by_round(points))
    assert [len(found.latency_s), len(found.bytes_per_s)] == [7 * shows, 7]


def test_each_round_has_a_line_of_its_own():
    found = fit_latency_and_bandwidth(by_round(times(1e-5, 1e10), made_up.SEVEN))
    assert found.latency_s == pytest.approx([1e-5 * factor for factor in made_up.SEVEN])
    assert found.bytes_per_s == pytest.approx([1e10 / factor for factor in made_up.SEVEN])
