"""Collectives in two gloo processes: what they give, what they state, and what they refuse."""

import json
from typing import get_args

import pytest
import two_ranks

from dlbench.workloads.parallel.collective import Op

pytestmark = pytest.mark.real

OPS = get_args(Op)
START = f"""
import json
from dlbench.testing import set_up
from dlbench.workloads.parallel import collective as module

prepare, made = module._prepare, []
module._prepare = lambda *given: made.append(prepare(*given)) or made[-1]
OPS = {OPS}
"""


def test_every_collective_runs_in_each_precision_and_states_its_size(tmp_path):
    script = """
said = {}
for dtype in ("fp64", "fp32", "bf16", "fp16"):
    for op in OPS:
        work = set_up("collective", op=op, bytes=4096, ranks=2, dtype=dtype)
        work.call()
        said[op + " " + dtype] = [work.bytes, work.items, made[-1].input.nbytes, made[-1].result.nbytes]
print(json.dumps(said))
"""
    first, second = map(json.loads, two_ranks.run_ranks(START + script, tmp_path))
    halves = {"all_gather": [2048, 4096], "reduce_scatter": [4096, 2048]}
    expected = {f"{op} {dtype}": [4096, 1, *halves.get(op, [4096, 4096])] for op in OPS for dtype in ("fp64", "fp32", "bf16", "fp16")}
    assert first == second == expected


def test_what_a_collective_gives_is_checked_and_a_wrong_one_is_named(tmp_path):
    script = """
def broken(*given):
    ready = prepare(*given)
    return ready._replace(run=lambda: (ready.run(), ready.result.add_(1)))

module._prepare, said = broken, []
for op in OPS:
    try:
        set_up("collective", op=op, bytes=64, ranks=2)
    except ValueError as error:
        said.append(str(error))
print(json.dumps(said))
"""
    first, second = map(json.loads, two_ranks.run_ranks(START + script, tmp_path))
    first_values = {
        "all_reduce": (4, 4),
        "all_gather": (2, 2),
        "reduce_scatter": (3, 5),
        "all_to_all": (2, 3),
        "broadcast": (2, 2),
        "reduce": (4, None),  # what the other rank has then is nobody's business
        "send_recv": (3, 2),
    }
    for rank, said in ((0, first), (1, second)):
        values = {op: each[rank] for op, each in first_values.items()}
        assert said == [f"{op} gave rank {rank} a wrong result, such as {values[op]}" for op in OPS if values[op] is not None]


def test_repeated_sums_stay_finite(tmp_path):
    script = """
for dtype, calls in (("fp32", 1000), ("fp16", 100)):
    work = set_up("collective", op="all_reduce", bytes=64, ranks=2, dtype=dtype)
    for _ in range(calls):
        work.call()
        assert made[-1].result.isfinite().all() and made[-1].result.any()
"""
    assert two_ranks.run_ranks(START + script, tmp_path) == ["", ""]
