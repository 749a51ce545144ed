"""``dlbench run`` with every form of data parallelism, in two real ranks."""

from pathlib import Path

import pytest
from front_door import PLUGINS, dlbench, measurements, suite

pytestmark = pytest.mark.real

SMALL_MODELS = str(PLUGINS / "small_models.py")
BENCH = """workload = "data_parallel"
axes.form = {forms}
axes.model = "resnet18"
axes.batch = 3
axes.ranks = 2
"""


def test_every_form_is_a_row(tmp_path: Path) -> None:
    timed = BENCH.format(forms=["ddp", "fsdp", "replicas"])
    trained = BENCH.format(forms=["tower", "async", "hogwild"]) + "axes.seconds = 0.5"
    averaged = BENCH.format(forms=["local"]) + "axes.seconds = 0.5\naxes.average_every = [1, 4]"
    uneven = BENCH.format(forms=["ddp"]) + 'axes.scaling = "strong"'
    mine = suite(tmp_path, timed, trained, averaged, uneven)
    done = dlbench("run", mine, SMALL_MODELS, "--device", "cpu", "--rounds", "1", "-o", "o.jsonl", cwd=tmp_path, cpus=2)
    assert done.code == 5, done.err
    rows = {each["case"]["id"].removeprefix("data_parallel[form="): each for each in measurements(tmp_path / "o.jsonl")}
    uneven_row = rows.pop("ddp,model=resnet18,batch=3,ranks=2,scaling=strong,dtype=fp32]@cpu")
    assert (uneven_row["status"], uneven_row["reason"]) == (
        "failed",
        "ValueError: a batch of 3 does not split evenly among 2 ranks; take a multiple of 2",
    )
    assert {case: row.get("reason") for case, row in rows.items() if row["status"] != "ok"} == {}
    assert sorted(case.partition(",")[0] for case in rows) == ["async", "ddp", "fsdp", "hogwild", "local", "local", "replicas", "tower"]
    for row in rows.values():
        if every := row["case"]["params"].get("average_every"):
            assert row["values"]["averagings"] == -(-row["values"]["updates"] // every)
    for case, row in rows.items():
        assert row["items"] == 2 * 3
        assert ("samples" in row) != ("loss" in row.get("values", {})), case
