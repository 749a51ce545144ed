"""``dlbench run`` with every form of data and of model parallelism, in two real ranks."""

import pytest
from front_door import PLUGINS, run, suite

pytestmark = pytest.mark.real

SMALL = (str(PLUGINS / "small_models.py"), "--device", "cpu", "--rounds", "1")
BENCH = 'workload = "{}"\naxes.form = {}\naxes.model = "{}"\naxes.batch = {}\naxes.ranks = 2\n{}'


def rows_by_form(folder, *benches):
    """The rows of a run on two CPUs, by their parameters behind the workload."""
    _, rows = run(folder, suite(folder, *benches), *SMALL, code=5, cpus=2)
    return {each["case"]["id"].partition("[form=")[2].removesuffix("@cpu"): each for each in rows}


def pop_ending(rows, case):
    row = rows.pop(case)
    return row["status"], row["reason"]


def test_every_form_of_data_parallelism_is_a_row(tmp_path):
    forms = (
        (["ddp", "fsdp", "replicas"], ""),
        (["tower", "async", "hogwild"], "axes.seconds = 0.5"),
        (["local"], "axes.seconds = 0.5\naxes.average_every = [1, 4]"),
        (["ddp"], 'axes.scaling = "strong"'),
    )
    rows = rows_by_form(tmp_path, *(BENCH.format("data_parallel", names, "resnet18", 3, more) for names, more in forms))
    reason = "ValueError: a batch of 3 does not split evenly among 2 ranks; take a multiple of 2"
    assert pop_ending(rows, "ddp,model=resnet18,batch=3,ranks=2,scaling=strong,dtype=fp32]") == ("failed", reason)
    assert {case: row.get("reason") for case, row in rows.items() if row["status"] != "ok"} == {}
    assert sorted(case.partition(",")[0] for case in rows) == ["async", "ddp", "fsdp", "hogwild", "local", "local", "replicas", "tower"]
    for case, row in rows.items():
        assert (row["items"], "samples" in row) == (2 * 3, "loss" not in row.get("values", {})), case
        if every := row["case"]["params"].get("average_every"):
            assert row["values"]["averagings"] == -(-row["values"]["updates"] // every)


def test_every_form_of_model_parallelism_is_a_row(tmp_path):
    forms = (
        (["layers", "tensor"], ""),
        (["gpipe", "1f1b"], "axes.microbatches = 2"),
        (["gpipe"], "axes.microbatches = 3"),
        (["layers"], "axes.memory_percent = 150"),
    )
    rows = rows_by_form(tmp_path, *(BENCH.format("model_parallel", names, "mlp", 4, more) for names, more in forms))
    uneven = "ValueError: a batch of 4 does not split evenly into 3 microbatches; take a multiple of 3"
    assert pop_ending(rows, "gpipe,model=mlp,batch=4,ranks=2,dtype=fp32,microbatches=3]") == ("failed", uneven)
    status, reason = pop_ending(rows, "layers,model=mlp,batch=4,ranks=2,dtype=fp32,memory_percent=150]")
    assert status == "unsupported"
    assert reason.startswith("ranks on a CPU share its memory, so what is too large for one is too large for all of them")
    assert {case: row["status"] for case, row in rows.items()} == {
        "1f1b,model=mlp,batch=4,ranks=2,dtype=fp32,microbatches=2]": "ok",
        "gpipe,model=mlp,batch=4,ranks=2,dtype=fp32,microbatches=2]": "ok",
        "layers,model=mlp,batch=4,ranks=2,dtype=fp32]": "ok",
        "tensor,model=mlp,batch=4,ranks=2,dtype=fp32]": "ok",
    }
    # 8 blocks of two 64 x 256 matrices, the first without a gradient of the samples.
    assert {(row["items"], row["flops"]) for row in rows.values()} == {(4, 4 * 2 * 64 * 256 * (3 * 16 - 1))}
