"""Shares of measured ceilings: of the best sound row of the same machine and precision, over all files read together."""

import made_up
import pytest

from dlbench.analysis.read.ceilings import measured
from dlbench.analysis.read.table import collect
from dlbench.core.model import Status

DECLARED = {
    "swept": {"ceiling": "arithmetic", "parameters": {"n": {"sweep": ""}, "copies": {"copies": "none"}}},
    "product": {"ceiling": "arithmetic"},
    "moves": {"ceiling": "memory"},
    "addition": {"tags": ["memory"]},
    "start": {"ceiling": "launch"},
    "step": {},
}
GB = 1e9


def work(name, seconds=1.0, device="cpu", flops=None, moved=None, **params):
    return made_up.rounds_of(made_up.case(name, device, **params), made_up.flat([seconds] * 7), flops=flops, bytes=moved, items=1)


@pytest.fixture
def shares(tmp_path):
    """Of each ok case its share of a ceiling and which that is, of files of one machine with these measurements."""
    header = {"workloads": DECLARED, "environment": {"machine_key": "a"}}

    def read(*files):
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        paths = [made_up.write(folder / f"run{number}.jsonl", each, **header) for number, each in enumerate(files)]
        rows = collect(paths).rows
        return {row.case.id: (row.rate.ceiling_fraction, row.rate.ceiling and str(row.rate.ceiling)) for row in rows if row.is_ok}

    return read


def test_a_row_is_held_against_the_best_of_its_precision_in_any_file(shares):
    products = [*work("product", flops=4 * GB, dtype="fp32", n=1), *work("product", 0.5, flops=4 * GB, dtype="fp32", n=2)]
    found = shares(products, work("step", flops=2 * GB, dtype="fp32") + work("step", flops=2 * GB, dtype="bf16"))
    ceiling = "arithmetic: 8.00 GFLOP/s in fp32, product[dtype=fp32,n=2]"
    assert found == {
        "product[dtype=fp32,n=1]@cpu": (0.5, ceiling),
        "product[dtype=fp32,n=2]@cpu": (None, None),
        "step[dtype=fp32]@cpu": (0.25, ceiling),
        "step[dtype=bf16]@cpu": (None, None),
    }


def test_autocast_counts_as_the_type_of_its_products(shares):
    found = shares([*work("product", flops=4 * GB, dtype="bf16"), *work("step", flops=1 * GB, dtype="amp_bf16")])
    assert found["step[dtype=amp_bf16]@cpu"] == (0.25, "arithmetic: 4.00 GFLOP/s in bf16, product[dtype=bf16]")


def test_the_nearer_of_arithmetic_and_memory_counts_and_memory_only_where_no_cache_holds_it(shares):
    tops = [*work("product", flops=4 * GB, dtype="fp32"), *work("moves", moved=8 * GB, op="a"), *work("moves", moved=2 * GB, op="b")]
    bound = work("step", flops=1 * GB, moved=4 * GB, dtype="fp32", n=1)
    # Memory would bound it, and what it moves may come from a cache.
    cached = work("step", 0.25, flops=0.1 * GB, moved=1.9 * GB, dtype="fp32", n=2)
    found = shares([*tops, *bound, *cached])
    assert found["step[dtype=fp32,n=1]@cpu"] == (0.5, "memory: 8.00 GB/s, moves[op=a]")
    assert found["step[dtype=fp32,n=2]@cpu"] == (None, None)
    assert shares([*tops[:7], *cached])["step[dtype=fp32,n=2]@cpu"] == (0.1, "arithmetic: 4.00 GFLOP/s in fp32, product[dtype=fp32]")


def test_what_beats_the_best_product_is_the_ceiling_of_its_precision(shares):
    product = work("product", flops=4 * GB, dtype="fp32")
    faster = work("step", flops=5 * GB, dtype="fp32")
    ceiling = "arithmetic: 5.00 GFLOP/s in fp32, step[dtype=fp32]"
    assert shares(product, faster) == {"product[dtype=fp32]@cpu": (0.8, ceiling), "step[dtype=fp32]@cpu": (None, None)}


def test_a_step_alone_is_no_ceiling_of_itself(shares):
    assert set(shares(work("step", flops=5 * GB, moved=GB, dtype="fp32")).values()) == {(None, None)}


def test_of_memory_only_what_moves_each_byte_once_raises_the_ceiling_and_only_with_many(shares):
    move = work("moves", moved=8 * GB, op="a")
    large, small = work("addition", moved=9 * GB, n=2), work("addition", 0.1, moved=2 * GB, n=1)
    ceiling = "memory: 9.00 GB/s, addition[n=2]"
    assert shares(move, large, small) == {
        "moves[op=a]@cpu": (8 / 9, ceiling),
        "addition[n=2]@cpu": (None, None),
        "addition[n=1]@cpu": (None, None),
    }


def test_what_moves_faster_than_memory_is_held_against_arithmetic(shares):
    """The layers of a network come back to what they wrote, so its stated bytes may never reach the memory."""
    tops = [*work("product", flops=4 * GB, dtype="fp32"), *work("moves", moved=8 * GB, op="a")]
    found = shares(tops, work("step", flops=GB, moved=17 * GB, dtype="fp32"))
    assert found["moves[op=a]@cpu"] == (None, None)
    assert found["step[dtype=fp32]@cpu"] == (0.25, "arithmetic: 4.00 GFLOP/s in fp32, product[dtype=fp32]")


def test_other_machines_and_rows_that_are_not_sound_make_no_ceiling(shares, tmp_path):
    elsewhere = [made_up.renamed(each, "another CPU", 2) for each in work("product", flops=4 * GB, dtype="fp32", n=1)]
    threads = [made_up.renamed(each, made_up.CPU, 1) for each in work("product", flops=4 * GB, dtype="fp32", n=2)]
    on_gpu = work("product", device="cuda:0", flops=4 * GB, dtype="fp32", n=3)
    impossible = work("product", 1e-9, device="cuda:0", flops=4 * GB, dtype="fp32", n=4)
    failed = made_up.ended(made_up.case("product", dtype="fp32", n=5), Status.OOM, "out of memory")
    half = work("step", device="cuda:0", flops=2 * GB, dtype="fp32", n=3)
    found = shares([*elsewhere, *threads, *on_gpu, *impossible, failed, *half, *work("step", flops=GB, dtype="fp32")])
    assert found["step[dtype=fp32]@cpu"] == (None, None)
    assert found["step[dtype=fp32,n=3]@cuda:0"][0] == 0.5
    assert found["product[dtype=fp32,n=4]@cuda:0"] == (None, None)


def test_calls_that_copy_make_no_ceiling_and_have_none(shares):
    copying = work("swept", flops=2 * GB, moved=GB, dtype="fp32", n=1, copies="pageable")
    assert set(shares([*copying, *work("step", flops=GB, dtype="fp32")]).values()) == {(None, None)}
    found = shares([*copying, *work("swept", flops=4 * GB, dtype="fp32", n=1, copies="none"), *work("step", flops=GB, dtype="fp32")])
    assert found["step[dtype=fp32]@cpu"][0] == 0.25
    assert found["swept[dtype=fp32,n=1,copies=pageable]@cpu"] == (None, None)


@pytest.mark.parametrize(("keys", "share"), [(("a", "a"), 0.25), (("a", "b"), None), ((None, None), None), (("a", None), None)])
def test_files_count_together_that_are_of_one_machine(tmp_path, keys, share):
    of_file = [work("product", flops=4 * GB, dtype="fp32"), work("step", flops=GB, dtype="fp32")]
    paths = [
        made_up.write(tmp_path / f"{number}.jsonl", each, workloads=DECLARED, environment={"machine_key": key} if key else {})
        for number, (each, key) in enumerate(zip(of_file, keys, strict=True))
    ]
    assert collect(paths).rows[1].rate.ceiling_fraction == share


def test_each_of_several_ranks_is_held_against_its_own_device(shares):
    found = shares([*work("product", flops=4 * GB, dtype="fp32"), *work("step", flops=4 * GB, dtype="fp32", ranks=2)])
    assert found["step[dtype=fp32,ranks=2]@cpu"][0] == 0.5


@pytest.mark.parametrize("ranks", [0, -1, True, "many", 2**62, 1.5])
def test_odd_numbers_of_an_edited_file_do_no_harm(shares, ranks):
    rows = [*work("product", 0.0, flops=1e14, moved=1e14, dtype="fp32"), *work("moves", 0.0, moved=1e14), *work("start", 0.0)]
    assert shares([*rows, *work("step", flops=0, moved=0, dtype="fp32", ranks=ranks)]).keys() >= {"product[dtype=fp32]@cpu"}


def test_launches_are_a_ceiling_that_no_row_is_held_against(tmp_path):
    path = made_up.write(tmp_path / "run.jsonl", [*work("start", 2e-6), *work("step", flops=GB, dtype="fp32")], workloads=DECLARED)
    results = collect([path])
    (of_machine,) = measured(results.rows, results.environments).values()
    assert of_machine["launch", ""].per_s == pytest.approx(5e5)
    assert [row.rate.ceiling for row in results.rows] == [None, None]
