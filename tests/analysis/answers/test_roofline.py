"""Ceilings of devices, and the cases below them."""

import made_up
import pytest

from dlbench.analysis.answers.bottleneck import ceilings
from dlbench.analysis.answers.engine import making
from dlbench.analysis.answers.engine.question import Missing, Question
from dlbench.analysis.read.table import collect

DECLARED = {
    "product": {"ceiling": "arithmetic"},
    "moves": {"ceiling": "memory"},
    "start": {"ceiling": "launch"},
    "wait": {"ceiling": "synchronisation"},
    "step": {},
}


def work(name, seconds=1.0, device="cpu", flops=None, moved=None, **params):
    return made_up.rounds_of(made_up.case(name, device, **params), made_up.flat([seconds] * 7), flops=flops, bytes=moved, items=1)


def tops(device="cpu", times=1):
    """100 GFLOP/s in fp32, 200 in bf16; 10 GB/s; 2 and 5 µs."""
    products = [
        *work("product", 1.0, device, flops=times * 1e11, dtype="fp32"),
        *work("product", 0.5, device, flops=times * 1e11, dtype="bf16"),
    ]
    moves = [*work("moves", 1.0, device, moved=times * 1e10, op="triad"), *work("moves", 1.0, device, moved=times * 8e9, op="copy")]
    return [*products, *moves, *work("start", 2e-6, device), *work("wait", 5e-6, device)]


@pytest.fixture
def found(tmp_path):
    header = {"workloads": DECLARED, "environment": {"machine_key": "a", "stack_key": "b"}}

    def read(*files):
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        paths = [made_up.write(folder / f"run{number}.jsonl", each, **header) for number, each in enumerate(files)]
        return making.answer(Question("roof", "What at most?", sections=[ceilings.TOPS]), collect(paths))

    return read


def line(found):
    return found.headline, found.qualifier, found.tags


def test_the_headline_and_the_sentences_say_what_a_device_can_do_at_most(found):
    on_cpu, on_gpu = found(tops()), found(tops("cuda:0"))
    assert line(on_cpu) == ("200 GFLOP/s bf16, 10.0 GB/s memory at most", "product bf16", ())
    assert line(on_gpu)[1] == "0.02 % of the published peak"
    assert on_gpu.sentences == (
        "arithmetic, bf16, product bf16: FLOP 200 GFLOP/s, peak 0.02 %.",
        "memory, moves triad: bytes 10.0 GB/s, peak 0.2 %.",
        "launch, start: time 2.00 µs.",
    )


def test_the_table_has_the_best_of_each_kind_with_published_peaks(found):
    ceilings, *_ = found([*tops(), *tops("cuda:0", 100)]).tables
    names = ("place", "ceiling.kind", "ceiling.precision", "pair.case")
    of_each = [
        ("arithmetic", "bf16", "product[dtype=bf16]"),
        ("arithmetic", "fp32", "product[dtype=fp32]"),
        ("memory", "", "moves[op=triad]"),
        ("launch", "", "start[]"),
        ("synchronisation", "", "wait[]"),
    ]
    rows = [tuple(row[name] for name in names) for row in ceilings.rows]
    assert rows == [(device, *each) for device in ("cuda:0", "cpu") for each in of_each]
    assert [row["rate.peak_fraction"] for row in ceilings.rows[:2]] == [pytest.approx(20 / 989), pytest.approx(10 / 67)]


def test_cases_of_another_file_stand_below_the_roof_of_the_same_device(found):
    slope = work("step", 1.0, flops=5e9, moved=9e9, dtype="fp32", n=1)
    plain = work("step", 1.0, flops=5e10, moved=1e9, dtype="fp32", n=2)
    results = found(tops(), [*slope, *plain])
    (figure,) = results.figures
    assert (figure.title, figure.mark, len(figure.rows)) == ("Roofline in fp32: cpu", "dot", 2)
    corners = [(row["roofline.intensity"], row["rate.flops_per_s"]) for row in figure.bound]
    assert corners == [(pytest.approx(5 / 9), pytest.approx(5e10 / 9)), (10.0, 1e11), (50.0, 1e11)]


def test_no_case_stands_above_the_ceilings(found):
    """A convolution may beat the best product, and caches may serve what a network moves."""
    faster = work("step", 1.0, flops=1.2e11, moved=1e9, dtype="fp32", n=1)
    cached = work("step", 1.0, flops=5e9, moved=2.13e10, dtype="fp32", n=2)
    (ceilings,) = (results := found(tops(), [*faster, *cached])).tables
    assert (ceilings.rows[1]["pair.case"], ceilings.rows[1]["rate.flops_per_s"]) == ("step[dtype=fp32,n=1]", 1.2e11)
    (figure,) = results.figures
    assert [row["rate.flops_per_s"] for row in figure.rows] == [1.2e11]
    assert max(corner["rate.flops_per_s"] for corner in figure.bound) == 1.2e11
    assert "step[dtype=fp32,n=1]@cpu" in results.cases


def test_two_machines_whose_device_has_one_id_are_told_apart(found):
    other = [made_up.renamed(each, "another CPU", 8) for each in tops(times=2)]
    both = found(tops(), other)
    assert line(both) == ("200 GFLOP/s bf16, 10.0 GB/s memory at most", "product bf16 on run0 and 1 more", ())
    places = {row["place"] for row in both.tables[0].rows}
    assert places == {"cpu (run0)", "cpu (run1)"}


def test_without_a_measured_memory_there_is_no_roof(found):
    results = found([*work("product", flops=1e11, dtype="fp32"), *work("start", 2e-6)])
    assert isinstance(results, Missing)


def test_most_of_many_precisions_are_drawn_and_a_precision_without_a_roof_is_not(found):
    steps = [*work("step", flops=1e9, moved=1e9, dtype="amp_bf16"), *work("step", flops=1e9, moved=1e9, dtype="fp64")]
    assert [figure.title for figure in found([*tops(), *steps]).figures] == ["Roofline in bf16: cpu"]
