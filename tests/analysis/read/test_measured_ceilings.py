"""Shares of measured ceilings: of the best sound row of the same machine and precision, over all files read together."""

from pathlib import Path
from typing import Any

import made_up
import pytest

from dlbench.analysis.read.ceilings import measured_ceilings
from dlbench.analysis.read.table import collect
from dlbench.core.measurement import Measurement
from dlbench.core.model import Status

DECLARED: dict[str, Any] = {
    "swept": {"ceiling": "arithmetic", "parameters": {"n": {"sweep": ""}, "copies": {"copies": "none"}}},
    "product": {"ceiling": "arithmetic"},
    "moves": {"ceiling": "memory"},
    "addition": {"tags": ["memory"]},
    "start": {"ceiling": "launch"},
    "step": {},
}
Run = list[Measurement]
Share = tuple[float | None, str | None]
NONE: Share = (None, None)


def work(
    name: str, seconds: float = 1.0, device: str = "cpu", gflop: float | None = None, moved: float | None = None, **params: Any
) -> Run:
    """Seven rounds of a case of so many billion operations that moves so many GB."""
    counts = {"flops": gflop and gflop * 1e9, "bytes": moved and moved * 1e9, "items": 1}
    return made_up.rounds_of(made_up.case(name, device, **params), made_up.flat([seconds] * 7), **counts)


def shares(folder: Path, *files: Run, keys: tuple[str | None, ...] = ("a", "a")) -> dict[str, Share]:
    """Of each ok case its share of a ceiling and which that is, of files of machines with these keys."""
    paths = [
        made_up.write(folder / f"run{number}.jsonl", each, workloads=DECLARED, environment={"machine_key": key} if key else {})
        for number, (each, key) in enumerate(zip(files, keys, strict=False))
    ]
    rows = [row for row in collect(paths).rows if row.is_ok]
    return {row.case.id: (row.rate.ceiling_fraction, row.rate.ceiling and str(row.rate.ceiling)) for row in rows}


PRODUCT, STEP = work("product", gflop=4, dtype="fp32"), work("step", gflop=1, dtype="fp32")
FASTER = work("step", gflop=5, moved=1, dtype="fp32")
BOUND = work("step", gflop=1, moved=4, dtype="fp32", n=1)
CACHED = work("step", 0.25, gflop=0.1, moved=1.9, dtype="fp32", n=2)  # memory would bound it, and what it moves may come from a cache
FROM_CACHES = work("step", gflop=1, moved=17, dtype="fp32")  # layers of a network come back to what they wrote, never seen by the memory
MOVE, FEWER = work("moves", moved=8, op="a"), work("moves", moved=2, op="b")
ADDITIONS = [*work("addition", moved=9, n=2), *work("addition", 0.1, moved=2, n=1)]
PAGEABLE, RESIDENT = (work("swept", gflop=each, dtype="fp32", copies=copies) for each, copies in ((2, "pageable"), (4, "none")))
HALF = work("step", device="cuda:0", gflop=2, dtype="fp32", n=3)
ELSEWHERE = [
    *(made_up.renamed(each, "another CPU", 2) for each in work("product", gflop=4, dtype="fp32", n=1)),
    *(made_up.renamed(each, made_up.CPU, 1) for each in work("product", gflop=4, dtype="fp32", n=2)),
    *work("product", device="cuda:0", gflop=4, dtype="fp32", n=3),
    *work("product", 1e-9, device="cuda:0", gflop=4, dtype="fp32", n=4),  # impossible
    made_up.ended(made_up.case("product", dtype="fp32", n=5), Status.OOM, "out of memory"),
]
TWICE = [*work("product", gflop=4, dtype="fp32", n=1), *work("product", 0.5, gflop=4, dtype="fp32", n=2)]
NARROW = [*work("product", gflop=4, dtype="bf16"), *work("step", gflop=1, dtype="amp_bf16")]
OF = "arithmetic: {} GFLOP/s in fp32, {}"
OF_PRODUCT, OF_SECOND = OF.format("4.00", "product[dtype=fp32]"), OF.format("8.00", "product[dtype=fp32,n=2]")
IN_FP32 = "step[dtype=fp32]@cpu"
SHARES: dict[str, tuple[list[Run], dict[str, Share]]] = {
    "the best of a precision in any file": (
        [TWICE, [*STEP, *work("step", gflop=2, dtype="bf16")]],
        {"product[dtype=fp32,n=1]@cpu": (0.5, OF_SECOND), "product[dtype=fp32,n=2]@cpu": NONE, IN_FP32: (0.125, OF_SECOND),
         "step[dtype=bf16]@cpu": NONE},
    ),
    "autocast": ([NARROW], {"step[dtype=amp_bf16]@cpu": (0.25, "arithmetic: 4.00 GFLOP/s in bf16, product[dtype=bf16]")}),
    "nearest to memory": ([[*PRODUCT, *MOVE, *FEWER, *BOUND]], {"step[dtype=fp32,n=1]@cpu": (0.5, "memory: 8.00 GB/s, moves[op=a]")}),
    "perhaps cached": ([[*PRODUCT, *MOVE, *FEWER, *CACHED]], {"step[dtype=fp32,n=2]@cpu": NONE}),
    "no ceiling of memory": ([[*PRODUCT, *CACHED]], {"step[dtype=fp32,n=2]@cpu": (0.1, OF_PRODUCT)}),
    "surely cached": ([[*PRODUCT, *MOVE], FROM_CACHES], {"moves[op=a]@cpu": NONE, IN_FP32: (0.25, OF_PRODUCT)}),
    "a step beats the product": ([PRODUCT, FASTER], {"product[dtype=fp32]@cpu": (0.8, OF.format("5.00", IN_FP32[:-4])), IN_FP32: NONE}),
    "a step alone": ([FASTER], {IN_FP32: NONE}),
    "moves each of many bytes once": (
        [MOVE, ADDITIONS],
        {"moves[op=a]@cpu": (8 / 9, "memory: 9.00 GB/s, addition[n=2]"), "addition[n=2]@cpu": NONE, "addition[n=1]@cpu": NONE},
    ),
    "other devices, and unsound rows": (
        [[*ELSEWHERE, *HALF, *STEP]],
        {IN_FP32: NONE, "step[dtype=fp32,n=3]@cuda:0": (0.5, OF.format("4.00", "product[dtype=fp32,n=3]")),
         "product[dtype=fp32,n=4]@cuda:0": NONE},
    ),
    "a call that copies": ([[*PAGEABLE, *STEP]], {IN_FP32: NONE, "swept[dtype=fp32,copies=pageable]@cpu": NONE}),
    "another call that copies": (
        [[*PAGEABLE, *RESIDENT, *STEP]],
        {IN_FP32: (0.25, OF.format("4.00", "swept[dtype=fp32,copies=none]")), "swept[dtype=fp32,copies=pageable]@cpu": NONE},
    ),
    "ranks": ([[*PRODUCT, *work("step", gflop=4, dtype="fp32", ranks=2)]], {"step[dtype=fp32,ranks=2]@cpu": (0.5, OF_PRODUCT)}),
}  # fmt: skip
"""Files of one machine, and shares of some of their cases."""


@pytest.mark.parametrize("scene", SHARES)
def test_the_share_of_a_ceiling(tmp_path: Path, scene: str) -> None:
    files, expected = SHARES[scene]
    found = shares(tmp_path, *files, keys=("a",) * len(files))
    assert {name: found[name] for name in expected} == expected


@pytest.mark.parametrize(("keys", "share"), [(("a", "a"), 0.25), (("a", "b"), None), ((None, None), None), (("a", None), None)])
def test_files_count_together_that_are_of_one_machine(tmp_path: Path, keys: tuple[str | None, ...], share: float | None) -> None:
    assert shares(tmp_path, PRODUCT, STEP, keys=keys)["step[dtype=fp32]@cpu"][0] == share


@pytest.mark.parametrize("ranks", [0, -1, True, "many", 2**62, 1.5])
def test_odd_numbers_of_an_edited_file_do_no_harm(tmp_path: Path, ranks: Any) -> None:
    tops = [*work("product", 0.0, gflop=1e5, moved=1e5, dtype="fp32"), *work("moves", 0.0, moved=1e5), *work("start", 0.0)]
    assert "product[dtype=fp32]@cpu" in shares(tmp_path, [*tops, *work("step", gflop=0, moved=0, dtype="fp32", ranks=ranks)])


def test_launches_are_a_ceiling_that_no_row_is_held_against(tmp_path: Path) -> None:
    results = collect([made_up.write(tmp_path / "run.jsonl", [*work("start", 2e-6), *STEP], workloads=DECLARED)])
    (of_machine,) = measured_ceilings(results.rows, results.environments).values()
    assert of_machine["launch", ""].per_s == pytest.approx(5e5)
    assert [row.rate.ceiling for row in results.rows] == [None, None]
