"""Networks of one's own: from a file to rows, and a sentence where one can't be measured."""

import json
from pathlib import Path

import front_door
import pytest
import shared_hosts

from dlbench.core.errors import UsageError
from dlbench.core.model import OWN
from dlbench.core.prices import Prices
from dlbench.harness.worker import user

pytestmark = pytest.mark.real

STEPS = (
    'workload = "train_step"\naxes.model = "own"\naxes.optimizer = "own"\naxes.batch = 2',
    ('workload = "infer_step"\naxes.model = "own"\naxes.batch = 2'),
)
LINEAR = """
import dlbench
from torch import nn


@dlbench.network(inputs=(6,), classes=3)
def {name}() -> nn.Module:
    return nn.Linear(6, {outputs})
"""
NOT_FINITE = "its output is missing, or not finite; it computes something else than it says, or not in fp32"
NETWORKS = ("pictures", "words", "pair", "named", "masks", "dropping", "counting")


def measured(folder: Path, plugin: str, *more: str) -> dict[str, tuple[str, str | None, str | None]]:
    """Status, reason and what was not checked of each case of both steps of all networks of a plugin."""
    suite = front_door.suite(folder, *STEPS)
    options = ("--device", "cpu", "--rounds", "1", "--seed", "1", "-o", "run.jsonl", "--format", "json")
    done = shared_hosts.dlbench("run", suite, str(front_door.PLUGINS / plugin), *options, *more, cwd=folder)
    rows = json.loads(done.out)
    return {row["case.id"]: (row["case.status"], row["case.reason"], row["check.reason"]) for row in rows}


def test_every_kind_of_network_is_trained_and_run_forward(tmp_path):
    rows = measured(tmp_path, "own_networks.py")
    assert {case: status for case, (status, *_) in rows.items()} == {
        f"{step}[model={name},batch=2,dtype=fp32{end}]@cpu": "ok"
        for step, end in (("train_step", ",optimizer=own"), ("infer_step", ""))
        for name in NETWORKS
    }
    checks = {name: rows[f"train_step[model={name},batch=2,dtype=fp32,optimizer=own]@cpu"][2] for name in NETWORKS}
    assert checks["pictures"] is checks["words"] is checks["masks"] is None
    assert checks["dropping"] == "fp64: its call draws random numbers, which are others on each device"


def at(text):
    """Where this stands in the plugin, behind a reason."""
    lines = (front_door.ROOT / "tests" / "plugins" / "bad_networks.py").read_text().splitlines()
    return f" (bad_networks.py, line {next(number for number, line in enumerate(lines, 1) if text in line)})"


def test_what_a_network_gets_wrong_is_a_row_with_a_sentence_and_the_others_are_measured(tmp_path):
    rows = measured(tmp_path, "bad_networks.py")
    trained, inferred = (
        {case.partition(",")[0].rpartition("=")[2]: reason for case, (_, reason, _) in rows.items() if case.startswith(step)}
        for step in ("train_step", "infer_step")
    )
    wrong = {
        "unbuilt": "KeyError: 'depth'" + at('KeyError("depth")'),
        "no_module": "TypeError: network 'no_module' returns object; it has to return a torch.nn.Module",
        "other_batch": "ValueError: network 'other_batch': example(2) has to return a batch of 2, and returned (3, 6)",
    }
    untrained = {
        "weightless": "ValueError: network 'weightless' has no weights to train; infer_step measures it",
        "no_loss": "ValueError: network 'no_loss' has neither classes nor a loss to be trained by; give @dlbench.network one",
        "no_optimizer": "TypeError: network 'no_optimizer': optimizer returns str, not a torch.optim.Optimizer",
    }
    wrong, untrained = (  # where it is defined, if nothing of the user's was running
        {name: said if "line" in said else said + at("def made(") for name, said in found.items()} for found in (wrong, untrained)
    )
    by_torch = {"overflowing": NOT_FINITE, "misfit": "RuntimeError: mat1 and mat2 shapes cannot be multiplied (2x7 and 6x3)"}
    many_losses = {"many_losses": "RuntimeError: grad can be implicitly created only for scalar outputs"}
    assert {name: reason for name, reason in trained.items() if reason} == wrong | untrained | by_torch | many_losses
    assert {name: reason for name, reason in inferred.items() if reason} == wrong | by_torch
    assert set(inferred) == set(trained) >= {"sound", "loud"}


def test_a_file_is_run_by_the_suite_that_is_made_for_it(tmp_path):
    (tmp_path / "mine.py").write_text(LINEAR.format(name="first", outputs=3) + LINEAR.format(name="second", outputs=3))
    listed = shared_hosts.dlbench("list", "mine.py", "-k", "train_step and batch=1, and cpu", cwd=tmp_path)
    assert listed.out.split() == [f"train_step[model={name},batch=1,dtype=fp32]@cpu" for name in ("first", "second")]
    one = shared_hosts.dlbench("list", "mine.py", "-k", "train_step and batch=1, and cpu", "--set", "model=second", cwd=tmp_path)
    assert one.out.split() == ["train_step[model=second,batch=1,dtype=fp32]@cpu"]


def test_one_of_several_networks_is_chosen_that_has_an_optimizer_of_its_own(tmp_path):
    source = LINEAR.format(name="first", outputs=3) + LINEAR.format(name="second", outputs=3)
    optimizer = "import torch\n" + source.replace("classes=3", "classes=3, optimizer=torch.optim.AdamW")
    (tmp_path / "mine.py").write_text(optimizer)
    cases = "(train_step or infer_step) and batch=1, and cpu"
    one = shared_hosts.dlbench("list", "mine.py", "--set", "model=second", "-k", cases, cwd=tmp_path)
    expected = ["train_step[model=second,batch=1,dtype=fp32,optimizer=own]@cpu", "infer_step[model=second,batch=1,dtype=fp32]@cpu"]
    assert (one.code, one.out.split()) == (0, expected), one.err
    inferred = front_door.suite(tmp_path, STEPS[1], 'workload = "feed"\naxes.model = "own"\naxes.source = "own"\naxes.batch = 2')
    options = ("mine.py", "--device", "cpu", "--set", "model=second")
    alone = shared_hosts.dlbench("list", inferred, *options, cwd=tmp_path)
    assert (alone.code, alone.out.split()) == (0, ["infer_step[model=second,batch=2,dtype=fp32]@cpu"]), alone.err


def test_requests_are_served_by_every_kind_of_network_in_place_of_the_published(tmp_path):
    options = ("-k", "closed_loop", "--set", "batch=2", "--set", "seconds=0.001", "--rounds", "1", "-o", "run.jsonl")
    done = shared_hosts.dlbench("run", "serving", str(front_door.PLUGINS / "own_networks.py"), "--device", "cpu", *options, cwd=tmp_path)
    assert done.code == 0, done.err
    rows = front_door.measurements(tmp_path / "run.jsonl")
    found = {each["case"]["params"]["model"]: (each["status"], each["items"], *sorted(each["values"])[:2]) for each in rows}
    assert found == dict.fromkeys(NETWORKS, ("ok", 2, "calls", "items_per_s"))


RIGHT = "put @dlbench.network(inputs=…, classes=…) above the function that returns it, and name its file: dlbench run mine.py"


@pytest.mark.parametrize("argument", ["network", "empty.py"])
def test_a_suite_for_networks_without_one_says_how_to_bring_it(tmp_path, argument):
    (tmp_path / "empty.py").write_text("import dlbench\n")
    done = shared_hosts.dlbench("run", argument, cwd=tmp_path)
    none = "network.toml, bench 1 (train_step): model = own means one of your own, and there is none"
    assert (done.code, done.out, done.err) == (2, "", f"dlbench: {none}; {RIGHT} (docs/my-network.md shows one)\n")


FORWARD = """
class Net(nn.Linear):
    def forward(self, features):
        return super().forward(features.view(-1, 5))


@dlbench.network(inputs=(6,), classes=3)
def mine() -> nn.Module:
    return Net(5, 3)
"""


@pytest.mark.parametrize(
    ("source", "line", "said"),
    [
        ("x = = 3\n", 4, "SyntaxError: invalid syntax"),
        ("import no_such_package\n", 4, "ModuleNotFoundError: No module named 'no_such_package'"),
        ("@dlbench.network(input=(3,))\ndef mine(): ...\n", 4, "@dlbench.network has no input=; did you mean 'inputs'?"),
        (
            "@dlbench.network(inputs=(3,))\nclass Net(nn.Module): ...\n",
            4,
            "@dlbench.network stands above a function, and Net is a class; "
            "write @dlbench.network(…) and below it def my_network(): return Net()",
        ),
    ],
)
def test_a_file_that_is_wrong_is_named_with_its_line(tmp_path, source, line, said):
    (tmp_path / "mine.py").write_text(f"import dlbench\nfrom torch import nn\n\n{source}")
    done = shared_hosts.dlbench("run", "mine.py", cwd=tmp_path)
    # The process that answers has the file by its whole path.
    assert (done.code, done.err.replace(f"{tmp_path}/", "")) == (2, f"dlbench: mine.py, line {line}: {said}\n")


def test_a_network_that_raises_is_answered_with_the_line_that_raised(tmp_path):
    (tmp_path / "mine.py").write_text(f"import dlbench\nfrom torch import nn\n{FORWARD}")
    rows = measured(tmp_path, str(tmp_path / "mine.py"))
    raised = "RuntimeError: shape '[-1, 5]' is invalid for input of size 12 (mine.py, line 6)"
    assert {(status, reason) for status, reason, _ in rows.values()} == {("failed", raised)}


def test_the_code_of_a_network_is_part_of_what_a_comparison_holds_equal(tmp_path):
    suite = front_door.suite(tmp_path, 'workload = "infer_step"\naxes.model = "mine"\naxes.batch = 2')
    for number, outputs in enumerate((3, 3, 4)):
        (tmp_path / "mine.py").write_text(LINEAR.format(name="mine", outputs=outputs))
        options = ("mine.py", "--device", "cpu", "--rounds", "1", "-o", f"{number}.jsonl")
        assert shared_hosts.dlbench("run", suite, *options, cwd=tmp_path).code == 0
    first, other = (front_door.lines(tmp_path / f"{number}.jsonl")[0]["user"]["mine"] for number in (0, 2))
    assert first["file"] == other["file"] == "mine.py"
    alike, unlike = (front_door.in_process(tmp_path, "compare", "0.jsonl", f"{number}.jsonl").out for number in (1, 2))
    sentence = f"mine in mine.py: SHA-256 {first['sha256'][:8]} against SHA-256 {other['sha256'][:8]}; measure both alike"
    assert sentence not in alike
    assert sentence in " ".join(unlike.split())
    resumed = shared_hosts.dlbench("run", "--resume", "0.jsonl", "--rounds", "3", cwd=tmp_path)
    assert resumed.code == 2
    assert "0.jsonl can't be resumed, as mine.py changed since it was begun; start a new run instead" in resumed.err


@pytest.mark.parametrize(("computes", "imports"), [("", 2), ("torch.ones(2) + 1", 3)])
def test_a_file_is_imported_once_a_round_unless_it_computes_then(tmp_path, computes, imports):
    """Once to try it, and by the process that forks; else by each of two cases."""
    noting = f"import torch\nwith open({str(tmp_path / 'imports')!r}, 'a') as file:\n    file.write('once ')\n{computes}\n"
    (tmp_path / "mine.py").write_text(noting + LINEAR.format(name="mine", outputs=3))
    suite = front_door.suite(tmp_path, *STEPS)
    assert front_door.dlbench("run", suite, "mine.py", "--device", "cpu", "--rounds", "1", cwd=tmp_path).code == 0
    assert (tmp_path / "imports").read_text().split() == ["once"] * imports


def build() -> None:
    """Nothing."""


def resnet18() -> None:
    """Nothing."""


def own() -> None:
    """Nothing."""


@pytest.mark.parametrize(
    ("function", "given", "sentence"),
    [
        (resnet18, {"inputs": (3,), "classes": 2}, "network 'resnet18': the name is dlbench's own; give the function another"),
        (own, {"inputs": (3,), "classes": 2}, f"network '{OWN}': the name is dlbench's own; give the function another"),
        (
            build,
            {},
            "network 'build': give either inputs=, a shape without the batch such as (3, 224, 224) or Tokens, or example=, "
            "a function of the batch",
        ),
        (
            build,
            {"inputs": (3,), "example": len},
            "network 'build': give either inputs=, a shape without the batch such as (3, 224, 224) "
            "or Tokens, or example=, a function of the batch",
        ),
        (
            build,
            {"inputs": (3, 0)},
            "network 'build': inputs must be a shape of positive integers, such as (3, 224, 224), or "
            "dlbench.Tokens(seq=…, vocabulary=…), not (3, 0)",
        ),
        (build, {"inputs": (3,), "classes": 1}, "network 'build': classes must be an integer of at least 2, not 1"),
        (build, {"inputs": (3,), "loss": "mse"}, "network 'build': loss must be a function, not 'mse'"),
        (
            build,
            {"inputs": (3,), "loss": lambda output, target: 0},
            "network 'build': its loss takes targets; give classes, or an example that returns (inputs, targets)",
        ),
        (lambda depth: None, {"inputs": (3,)}, "network '<lambda>': dlbench calls it without arguments; give its parameters defaults"),
    ],
)
def test_what_a_network_declares_wrongly_is_a_sentence(function, given, sentence):
    user.reserve(["resnet18"])
    with pytest.raises(UsageError) as refused:
        user.network(**given)(function)
    assert str(refused.value) == sentence


@pytest.mark.parametrize(
    ("written", "sentence"),
    [
        (
            lambda: user.network(build),
            "@dlbench.network needs to know the inputs; write @dlbench.network(inputs=(3, 224, 224), classes=1000)",
        ),
        (lambda: user.data(lambda size: []), "data '<lambda>': its parameters can be batch and workers, not 'size'"),
        (lambda: user.data(own), "data 'own': the name is dlbench's own; give the function another"),
    ],
)
def test_a_decorator_that_is_written_wrongly_is_told(written, sentence):
    with pytest.raises(UsageError) as refused:
        written()
    assert str(refused.value) == sentence


def test_what_is_wanted_first_stands_first(tmp_path):
    (tmp_path / "mine.py").write_text(LINEAR.format(name="mine", outputs=3))
    listed = shared_hosts.dlbench("list", "mine.py", "--device", "cpu", cwd=tmp_path)
    ids = listed.out.split()
    batches = [f"{step}[model=mine,batch={2**exponent},dtype=fp32]@cpu" for step in ("train_step", "infer_step") for exponent in range(7)]
    assert ids[: len(batches)] == batches
    workloads = [each.partition("[")[0] for each in ids[len(batches) :]]
    assert workloads[:4] == ["matmul", "matmul", "stream", "launch_kernel"]
    assert workloads[4:].index("largest_batch") > ids[len(batches) + 4 :].index(
        "train_step[model=mine,batch=8,dtype=fp32,mode=compile]@cpu"
    )


@pytest.mark.parametrize("inputs", ["images", "tokens", "example"])
def test_a_new_file_runs_as_it_is_and_is_never_overwritten(tmp_path, inputs):
    file = "other.py"
    made = front_door.in_process(tmp_path, "new", file, "--inputs", inputs)
    assert (made.code, made.out, made.err) == (0, "", f"wrote {file}; put your network into it, then: dlbench run {file}\n")
    text = (tmp_path / file).read_text()
    again = front_door.in_process(tmp_path, "new", file)
    assert (again.code, again.err) == (2, f"dlbench: {file} exists and is never overwritten; choose another name\n")
    assert (tmp_path / file).read_text() == text
    suite = front_door.suite(tmp_path, *STEPS)
    done = shared_hosts.dlbench("run", suite, file, "--device", "cpu", "--rounds", "1", "--format", "json", cwd=tmp_path)
    assert {row["case.status"] for row in json.loads(done.out)} == {"ok"}, done.err


@pytest.mark.parametrize(
    ("file", "sentence"),
    [
        ("mine.txt", "mine.txt: the file becomes a module of Python; call it like a name that ends in .py, such as mine.py"),
        ("my-net.py", "my-net.py: the file becomes a module of Python; call it like a name that ends in .py, such as mine.py"),
        ("torch.py", "torch.py: Python has a module 'torch' already, which this one would hide; choose another name"),
        ("none/mine.py", "there is no folder none to write mine.py in; make it, or choose another"),
    ],
)
def test_a_name_that_is_no_module_is_refused(tmp_path, file, sentence):
    done = front_door.in_process(tmp_path, "new", file)
    assert (done.code, done.out, done.err) == (2, "", f"dlbench: {sentence}\n")
    assert not list(tmp_path.iterdir())


def test_a_training_of_ones_own_is_for_the_answers_and_is_not_stored(tmp_path, monkeypatch):
    told = []
    monkeypatch.setattr("dlbench.cli.output.write_results", lambda results, *_, **__: told.append(results.prices))
    (tmp_path / "mine.py").write_text(LINEAR.format(name="mine", outputs=3))
    suite = front_door.suite(tmp_path, *STEPS)
    options = ("mine.py", "--device", "cpu", "--rounds", "1", "-o", "o.jsonl")
    done = shared_hosts.dlbench("run", suite, *options, "--samples", "50000", "--epochs", "7", cwd=tmp_path)
    assert (done.code, told) == (0, [Prices(samples=50000, epochs=7)]), done.err
    assert "samples" not in str(front_door.lines(tmp_path / "o.jsonl")[0]["environment"]["provenance"]["command"])
    again = shared_hosts.dlbench("run", "--resume", "o.jsonl", "--samples", "9", cwd=tmp_path)
    assert (again.code, told[1:]) == (0, [Prices(samples=9)]), again.err
    alone = front_door.in_process(tmp_path, "run", suite, "--epochs", "7")
    assert (alone.code, alone.err) == (2, "dlbench: --epochs says how often a training passes over --samples; give that, too\n")
