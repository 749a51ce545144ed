"""``dlbench run`` with every form of model parallelism, in real ranks."""

from pathlib import Path

import pytest
from front_door import PLUGINS, dlbench, measurements, suite

pytestmark = pytest.mark.real

SMALL_MODELS = str(PLUGINS / "small_models.py")
BENCH = """workload = "model_parallel"
axes.form = {forms}
axes.model = "mlp"
axes.batch = 4
axes.ranks = {ranks}
"""


def test_every_form_is_a_row(tmp_path: Path) -> None:
    benches = [
        BENCH.format(forms=["layers", "tensor"], ranks=2),
        BENCH.format(forms=["gpipe", "1f1b"], ranks=2) + "axes.microbatches = 2",
        BENCH.format(forms=["gpipe"], ranks=2) + "axes.microbatches = 3",
        BENCH.format(forms=["layers"], ranks=2) + "axes.memory_percent = 150",
    ]
    mine = suite(tmp_path, *benches)
    done = dlbench("run", mine, SMALL_MODELS, "--device", "cpu", "--rounds", "1", "-o", "o.jsonl", cwd=tmp_path, cpus=2)
    assert done.code == 5, done.err
    rows = {each["case"]["id"].removeprefix("model_parallel[form="): each for each in measurements(tmp_path / "o.jsonl")}
    uneven = rows.pop("gpipe,model=mlp,batch=4,ranks=2,dtype=fp32,microbatches=3]@cpu")
    assert (uneven["status"], uneven["reason"]) == (
        "failed",
        "ValueError: a batch of 4 does not split evenly into 3 microbatches; take a multiple of 3",
    )
    shared = rows.pop("layers,model=mlp,batch=4,ranks=2,dtype=fp32,memory_percent=150]@cpu")
    assert shared["status"] == "unsupported"
    assert shared["reason"].startswith("ranks on a CPU share its memory, so what is too large for one is too large for all of them")
    assert {case: row.get("reason") for case, row in rows.items() if row["status"] != "ok"} == {}
    assert sorted(rows) == [
        "1f1b,model=mlp,batch=4,ranks=2,dtype=fp32,microbatches=2]@cpu",
        "gpipe,model=mlp,batch=4,ranks=2,dtype=fp32,microbatches=2]@cpu",
        "layers,model=mlp,batch=4,ranks=2,dtype=fp32]@cpu",
        "tensor,model=mlp,batch=4,ranks=2,dtype=fp32]@cpu",
    ]
    # 8 blocks of two 64 x 256 matrices, the first without a gradient of the samples.
    assert {(row["items"], row["flops"]) for row in rows.values()} == {(4, 4 * 2 * 64 * 256 * (3 * 16 - 1))}
