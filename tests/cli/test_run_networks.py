"""Networks of one's own: from a file to rows, and a sentence where one can't be measured."""

import json
from pathlib import Path

import front_door
import pytest
import shared_hosts

from dlbench.core.errors import UsageError
from dlbench.core.prices import Prices
from dlbench.harness.worker import user

pytestmark = pytest.mark.real

STEPS = [f'workload = "{step}"\naxes.model = "own"\naxes.batch = 2' for step in ('train_step"\naxes.optimizer = "own', "infer_step")]
LINEAR = """
import dlbench
from torch import nn


@dlbench.network(inputs=(6,), classes=3)
def {name}() -> nn.Module:
    return nn.Linear(6, {outputs})
"""
MINE = LINEAR.format(name="mine", outputs=3)
TWO = LINEAR.format(name="first", outputs=3) + LINEAR.format(name="second", outputs=3)
PATIENT = front_door.HASTY.replace("timeout_s = 20", "timeout_s = 600")  # a tenth of which a check may take
UNHURRIED = "from dlbench.harness.worker.checking import correctness\ncorrectness.BUDGET_S = 60.0\n"  # however busy this machine is
NETWORKS = ("pictures", "words", "pair", "named", "masks", "dropping", "counting")


def measured(folder: Path, plugin: str, *more: str) -> dict[str, tuple[str, str | None, str | None]]:
    """Status, reason and what was not checked of each case of both steps of all networks of a plugin."""
    options = ("--device", "cpu", "--rounds", "1", "--seed", "1", "-o", "run.jsonl", "--format", "json")
    suite = front_door.suite(folder, *STEPS, head=PATIENT)
    done = shared_hosts.dlbench("run", suite, str(front_door.PLUGINS / plugin), *options, *more, cwd=folder)
    return {row["case.id"]: (row["case.status"], row["case.reason"], row["check.reason"]) for row in json.loads(done.out)}


def listed(folder: Path, *arguments: str) -> list[str]:
    """The cases that are planned."""
    done = shared_hosts.dlbench("list", *arguments, cwd=folder)
    assert done.code == 0, done.err
    return done.out.split()


def test_every_kind_of_network_is_trained_and_run_forward(tmp_path):
    (tmp_path / "patient.py").write_text(UNHURRIED)
    rows = measured(tmp_path, "own_networks.py", str(tmp_path / "patient.py"))
    assert {case: status for case, (status, *_) in rows.items()} == {
        f"{step}[model={name},batch=2,dtype=fp32{end}]@cpu": "ok"
        for step, end in (("train_step", ",optimizer=own"), ("infer_step", ""))
        for name in NETWORKS
    }
    checks = {name: rows[f"train_step[model={name},batch=2,dtype=fp32,optimizer=own]@cpu"][2] for name in NETWORKS}
    assert checks["pictures"] is checks["words"] is checks["masks"] is None
    assert checks["dropping"] == "fp64: its call draws random numbers, which are others on each device"


def test_what_a_network_gets_wrong_is_a_row_with_a_sentence_and_the_others_are_measured(tmp_path, snapshot):
    (tmp_path / "patient.py").write_text(UNHURRIED)
    rows = measured(tmp_path, "bad_networks.py", str(tmp_path / "patient.py"))
    snapshot("networks-gone-wrong", "".join(f"{case}: {reason or status}\n" for case, (status, reason, _) in sorted(rows.items())))


def test_a_file_is_run_by_the_suite_that_is_made_for_it_and_one_of_several_networks_is_chosen(tmp_path):
    (tmp_path / "mine.py").write_text(TWO)
    case = "train_step[model={},batch=1,dtype=fp32]@cpu"
    narrow = ("mine.py", "-k", "train_step and batch=1, and cpu")
    assert listed(tmp_path, *narrow) == [case.format(name) for name in ("first", "second")]
    assert listed(tmp_path, *narrow, "--set", "model=second") == [case.format("second")]
    # One that has an optimizer of its own.
    (tmp_path / "mine.py").write_text("import torch\n" + TWO.replace("classes=3", "classes=3, optimizer=torch.optim.AdamW"))
    assert listed(tmp_path, "mine.py", "--set", "model=second", "-k", "(train_step or infer_step) and batch=1, and cpu") == [
        "train_step[model=second,batch=1,dtype=fp32,optimizer=own]@cpu",
        "infer_step[model=second,batch=1,dtype=fp32]@cpu",
    ]
    inferred = front_door.suite(tmp_path, STEPS[1], 'workload = "feed"\naxes.model = "own"\naxes.source = "own"\naxes.batch = 2')
    alone = listed(tmp_path, inferred, "mine.py", "--device", "cpu", "--set", "model=second")
    assert alone == ["infer_step[model=second,batch=2,dtype=fp32]@cpu"]


def test_requests_are_served_by_every_kind_of_network_in_place_of_the_published(tmp_path):
    options = ("-k", "closed_loop", "--set", "batch=2", "--set", "seconds=0.001", "--rounds", "1", "--device", "cpu")
    _, rows = shared_hosts.run(tmp_path, "serving", str(front_door.PLUGINS / "own_networks.py"), *options)
    found = {each["case"]["params"]["model"]: (each["status"], each["items"], *sorted(each["values"])[:2]) for each in rows}
    assert found == dict.fromkeys(NETWORKS, ("ok", 2, "calls", "items_per_s"))


FORWARD = """
class Net(nn.Linear):
    def forward(self, features):
        return super().forward(features.view(-1, 5))


@dlbench.network(inputs=(6,), classes=3)
def mine() -> nn.Module:
    return Net(5, 3)
"""


CLASS = "@dlbench.network(inputs=(3,))\nclass Net(nn.Module): ...\n"


def test_a_file_that_is_wrong_is_named_with_its_line_and_what_is_missing_with_how_to_bring_it(tmp_path, snapshot):
    said = {}
    for source in ("", "x = = 3\n", "import no_such_package\n", "@dlbench.network(input=(3,))\ndef mine(): ...\n", CLASS):
        (tmp_path / "mine.py").write_text(f"import dlbench\nfrom torch import nn\n\n{source}")
        done = shared_hosts.dlbench("run", "mine.py", cwd=tmp_path)
        assert (done.code, done.out) == (2, "")
        said[source.strip().replace("\n", " / ") or "nothing"] = done.err.replace(
            f"{tmp_path}/", ""
        )  # the process that answers has the file by its whole path
    said["no file"] = shared_hosts.dlbench("run", "network", cwd=tmp_path).err
    for name in ("mine.txt", "my-net.py", "torch.py", "none/mine.py"):
        said[f"dlbench new {name}"] = front_door.in_process(tmp_path, "new", name).err
    assert {path.name for path in tmp_path.iterdir()} - {"__pycache__"} == {"mine.py"}
    snapshot("networks-that-are-no-files", front_door.under_titles(said))


def test_a_network_that_raises_is_answered_with_the_line_that_raised(tmp_path):
    (tmp_path / "mine.py").write_text(f"import dlbench\nfrom torch import nn\n{FORWARD}")
    raised = "the network does not take its input, (2, 6): shape '[-1, 5]' is invalid for input of size 12 (mine.py, line 6)"
    found = {(status, reason) for status, reason, _ in measured(tmp_path, str(tmp_path / "mine.py")).values()}
    assert found == {("failed", f"ValueError: {raised}")}


def test_the_code_of_a_network_is_part_of_what_a_comparison_holds_equal(tmp_path):
    suite = front_door.suite(tmp_path, 'workload = "infer_step"\naxes.model = "mine"\naxes.batch = 2')
    for number, outputs in enumerate((3, 3, 4)):
        (tmp_path / "mine.py").write_text(LINEAR.format(name="mine", outputs=outputs))
        shared_hosts.run(tmp_path, suite, "mine.py", "--device", "cpu", "--rounds", "1")
        (tmp_path / "o.jsonl").rename(tmp_path / f"{number}.jsonl")
    first, other = (front_door.lines(tmp_path / f"{number}.jsonl")[0]["user"]["mine"] for number in (0, 2))
    assert first["file"] == other["file"] == "mine.py"
    alike, unlike = (front_door.in_process(tmp_path, "compare", "0.jsonl", f"{number}.jsonl").out for number in (1, 2))
    sentence = f"mine in mine.py: SHA-256 {first['sha256'][:8]} against SHA-256 {other['sha256'][:8]}; measure both alike"
    assert (sentence in alike, sentence in " ".join(unlike.split())) == (False, True)
    resumed = shared_hosts.dlbench("run", "--resume", "0.jsonl", "--rounds", "3", cwd=tmp_path)
    assert resumed.code == 2
    assert "0.jsonl can't be resumed, as mine.py changed since it was begun; start a new run instead" in resumed.err


@pytest.mark.parametrize(("computes", "imports"), [("", 2), ("torch.ones(2) + 1", 3)])
def test_a_file_is_imported_once_a_round_unless_it_computes_then(tmp_path, computes, imports):
    """Once to try it, and by the process that forks; else by each of two cases."""
    noting = f"import torch\nwith open({str(tmp_path / 'imports')!r}, 'a') as file:\n    file.write('once ')\n{computes}\n"
    (tmp_path / "mine.py").write_text(noting + MINE)
    front_door.run(tmp_path, front_door.suite(tmp_path, *STEPS), "mine.py", "--device", "cpu", "--rounds", "1")
    assert (tmp_path / "imports").read_text().split() == ["once"] * imports


def build() -> None:
    """Nothing."""


def resnet18() -> None:
    """Nothing."""


def own() -> None:
    """Nothing."""


DECLARED_WRONGLY = {
    "the name of a built-in one": lambda: user.network(inputs=(3,), classes=2)(resnet18),
    "the name that stands for all": lambda: user.network(inputs=(3,), classes=2)(own),
    "no brackets": lambda: user.network(build),
    "neither inputs nor example": lambda: user.network()(build),
    "inputs and example": lambda: user.network(inputs=(3,), example=len)(build),
    "inputs=(3, 0)": lambda: user.network(inputs=(3, 0))(build),
    "classes=1": lambda: user.network(inputs=(3,), classes=1)(build),
    "loss='mse'": lambda: user.network(inputs=(3,), loss="mse")(build),
    "a loss of targets without any": lambda: user.network(inputs=(3,), loss=lambda output, target: 0)(build),
    "a function with a parameter": lambda: user.network(inputs=(3,))(lambda depth: None),
    "data with another parameter": lambda: user.data(lambda size: []),
    "data of a built-in name": lambda: user.data(own),
}


def test_what_a_network_or_data_declares_wrongly_is_a_sentence(snapshot):
    user.reserve(["resnet18"])
    said = {}
    for title, declare in DECLARED_WRONGLY.items():
        with pytest.raises(UsageError) as refused:
            declare()
        said[title] = str(refused.value)
    snapshot("networks-declared-wrongly", front_door.under_titles(said))


def test_what_is_wanted_first_stands_first(tmp_path):
    (tmp_path / "mine.py").write_text(MINE)
    ids = listed(tmp_path, "mine.py", "--device", "cpu")
    batches = [f"{step}[model=mine,batch={2**exponent},dtype=fp32]@cpu" for step in ("train_step", "infer_step") for exponent in range(7)]
    assert ids[: len(batches)] == batches
    workloads = [each.partition("[")[0] for each in ids]
    assert workloads[len(batches) :][:4] == ["matmul", "matmul", "stream", "launch_kernel"]
    assert workloads.index("largest_batch") > ids.index("train_step[model=mine,batch=8,dtype=fp32,mode=compile]@cpu")


@pytest.mark.parametrize("inputs", ["images", "tokens", "example"])
def test_a_new_file_runs_as_it_is_and_is_never_overwritten(tmp_path, inputs):
    made, again = (front_door.in_process(tmp_path, "new", "other.py", "--inputs", inputs) for _ in range(2))
    assert made == front_door.Done(0, "", "wrote other.py; put your network into it, then: dlbench run other.py\n")
    assert again == front_door.Done(2, "", "dlbench: other.py exists and is never overwritten; choose another name\n")
    assert {status for status, _, _ in measured(tmp_path, str(tmp_path / "other.py")).values()} == {"ok"}


def test_a_training_of_ones_own_is_for_the_answers_and_is_not_stored(tmp_path, monkeypatch):
    told = []
    monkeypatch.setattr("dlbench.cli.output.write_results", lambda results, *_, **__: told.append(results.prices))
    (tmp_path / "mine.py").write_text(MINE)
    suite = front_door.suite(tmp_path, *STEPS)
    shared_hosts.run(tmp_path, suite, "mine.py", "--device", "cpu", "--rounds", "1", "--samples", "50000", "--epochs", "7")
    assert "samples" not in str(front_door.lines(tmp_path / "o.jsonl")[0]["environment"]["provenance"]["command"])
    again = shared_hosts.dlbench("run", "--resume", "o.jsonl", "--samples", "9", cwd=tmp_path)
    assert (again.code, told) == (0, [Prices(samples=50000, epochs=7), Prices(samples=9)]), again.err
    alone = front_door.in_process(tmp_path, "run", suite, "--epochs", "7")
    assert (alone.code, alone.err) == (2, "dlbench: --epochs says how often a training passes over --samples; give that, too\n")
