"""Files of before an optimizer's implementation was a parameter of its own, and of before a workload had the name of today."""

import json
from dataclasses import replace

import made_up
import pytest
import shared_hosts

from dlbench.analysis.read.table import collect
from dlbench.cli.session import as_recorded, recorded_cases
from dlbench.core import former
from dlbench.core.errors import UsageError
from dlbench.core.model import Case
from dlbench.core.store import load
from dlbench.harness.plan.cases import check, plan
from dlbench.harness.plan.selection import compile_expression
from dlbench.harness.plan.suite import Suite
from dlbench.harness.worker import registry

SETTINGS = {
    "sgd": ("sgd", "default"),
    "sgd_foreach": ("sgd", "foreach"),
    "sgd_fused": ("sgd", "fused"),
    "adamw": ("adamw", "default"),
    "adamw_foreach": ("adamw", "foreach"),
    "adamw_fused": ("adamw", "fused"),
}
HEADER = {"train_step": {"values": [], "parallel": {}, "switches": {"optimizer": "sgd"}}}
FORMER_ROLES = {"train_step": {"values": [], "parameters": {"optimizer": {"switch": "sgd"}}}}


@pytest.fixture(scope="module")
def signatures():
    registry.load_builtins()
    return {name: registry.get(name).signature for name in ("train_step", "fastest_train_step", "largest_batch")}


def former_case(optimizer):
    shown = "" if optimizer == "sgd" else f",optimizer={optimizer}"
    params = {"model": "vgg11", "batch": 8, "dtype": "fp32", "layout": "nchw", "optimizer": optimizer, "mode": "eager"}
    return Case(f"train_step[model=vgg11,batch=8,dtype=fp32{shown}]@cpu", "made", "train_step", params, "cpu")


def case_of_today(signatures, optimizer, implementation):
    params = {"model": "vgg11", "batch": 8, "optimizer": optimizer, "implementation": implementation}
    return Case.of("made", signatures["train_step"], params, "cpu")


def write(path, cases, **header):
    return made_up.write(path, [each for case in cases for each in made_up.rounds_of(case, made_up.flat([1.0] * 7))], **header)


def test_a_former_file_is_compared_with_one_of_today_over_all_optimizers(signatures, tmp_path):
    write(tmp_path / "old.jsonl", map(former_case, SETTINGS), workloads=HEADER)
    write(tmp_path / "new.jsonl", [case_of_today(signatures, *each) for each in SETTINGS.values()])
    done = shared_hosts.dlbench("compare", "old.jsonl", "new.jsonl", "--format", "json", cwd=tmp_path)
    assert done.code == 0, done.err
    compared = {each.id for each in (case_of_today(signatures, *settings) for settings in SETTINGS.values())}
    assert all(case in done.out for case in compared)
    assert "optimizer=adamw_fused" not in done.out
    old, new = (collect([tmp_path / name]) for name in ("old.jsonl", "new.jsonl"))
    assert {(row.case.id, *row.params.items()) for row in old.rows} == {(row.case.id, *row.params.items()) for row in new.rows}


@pytest.mark.parametrize("header", [HEADER, FORMER_ROLES])
def test_a_former_switch_is_the_implementation(tmp_path, header):
    path = write(tmp_path / "old.jsonl", map(former_case, SETTINGS), workloads=header)
    (declared,) = {row.declared.having("switch") for row in collect([path]).rows}
    assert set(declared) == {"dtype", "layout", "implementation", "mode"}


def test_what_a_former_search_found_is_an_implementation(tmp_path):
    searched = made_up.case("fastest_train_step", model="vgg11")
    (measured,) = made_up.rounds_of(searched, [[1.0]])
    measured.found = {"batch": 8, "optimizer": "sgd_fused", "mode": "graph"}
    plain = Case("fastest_train_step[model=vgg11,optimizer=sgd]@cpu", "made", "fastest_train_step", {"optimizer": "sgd"}, "cpu")
    run = load(made_up.write(tmp_path / "old.jsonl", [measured, *made_up.rounds_of(plain, [[1.0]])]))
    assert run.measurements[0].found == {"batch": 8, "implementation": "fused", "mode": "graph"}
    case = run.measurements[1].case
    assert (case.id, case.params) == ("fastest_train_step[model=vgg11,implementation=default]@cpu", {"implementation": "default"})


def test_a_run_goes_on_with_what_a_former_suite_planned(signatures, tmp_path):
    axes = {"model": ["vgg11"], "batch": [8], "optimizer": list(SETTINGS)}
    searched = {"model": ["vgg11"], "optimizer": ["sgd"]}
    benches = [{"workload": "train_step", "axes": axes}, {"workload": "fastest_train_step", "axes": searched}]
    run = load(write(tmp_path / "old.jsonl", map(former_case, SETTINGS), workloads=HEADER))
    header = {"suites": [{"name": "made", "bench": benches}], "policy": {}, "seed": 1, "isolation": "fork", "plugins": []}
    run = replace(run, header={**run.header, **header})
    suites, _, _ = as_recorded(run, {})
    check(suites, signatures)
    planned = [case.id for case in plan(suites, signatures, ["cpu"])]
    assert planned == [
        *dict.fromkeys(each.case.id for each in run.measurements),
        "fastest_train_step[model=vgg11,implementation=default]@cpu",
    ]


@pytest.mark.parametrize(
    ("expression", "chosen"),
    [
        ("adamw_fused", ["adamw_fused"]),
        ("batch=8,dtype=fp32,optimizer=sgd_foreach", ["sgd_foreach"]),
        ("not _fused", ["sgd", "sgd_foreach", "adamw", "adamw_foreach"]),
        ("implementation=fused and not adamw", ["sgd_fused"]),
    ],
)
def test_a_run_goes_on_with_what_a_former_expression_selects(signatures, expression, chosen):
    selects = former.in_any_spelling(compile_expression(expression))
    assert [name for name, settings in SETTINGS.items() if selects(case_of_today(signatures, *settings).id)] == chosen


@pytest.mark.parametrize(
    ("workload", "optimizer", "said"),
    [
        ("train_step", "adamw_fused", "no optimizer is called 'adamw_fused'; write optimizer=adamw implementation=fused"),
        ("train_step", "adamw_fusd", "no optimizer is called 'adamw_fusd'; valid: sgd, adamw"),
        ("fastest_train_step", "adamw_fused", "no parameter is called 'optimizer'; write implementation=fused"),
    ],
)
def test_a_former_spelling_is_answered_by_that_of_today(tmp_path, workload, optimizer, said):
    axes = {"train_step": "axes.batch = 8\n", "fastest_train_step": ""}[workload]
    (tmp_path / "s.toml").write_text(
        f'[[bench]]\nworkload = "{workload}"\naxes.model = {json.dumps("vgg11")}\n{axes}axes.optimizer = "{optimizer}"\n'
    )
    done = shared_hosts.dlbench("run", "s.toml", "--dry-run", cwd=tmp_path)
    assert (done.code, done.err) == (2, f"dlbench: s.toml, bench 1 ({workload}): {said}\n")


def searched(workload):
    case = Case(f"{workload}[model=vgg11,memory_gib=1]@cpu", "memory", workload, {"model": "vgg11", "memory_gib": 1}, "cpu")
    (measured,) = made_up.rounds_of(case, [[1.0]])
    measured.found, measured.values = {"batch": 8}, {"largest_batch": 8}
    return measured


@pytest.mark.parametrize("declared", [{"values": [{"name": "largest_batch", "unit": "count"}]}, None])
def test_a_search_for_a_batch_is_matched_under_its_name_of_today(tmp_path, declared):
    suites = [{"name": "memory", "bench": [{"workload": "fit_batch"}], "thresholds": {"fit_batch": {"time": 0.5}}}]
    header = {"suites": suites, **({"workloads": {"fit_batch": declared}} if declared else {})}
    made_up.write(tmp_path / "old.jsonl", [searched("fit_batch")], **header)
    made_up.write(tmp_path / "new.jsonl", [searched("largest_batch")])
    done = shared_hosts.dlbench("compare", "old.jsonl", "new.jsonl", "--format", "json", cwd=tmp_path)
    assert done.code == 4, done.err
    assert [each["compare.case"] for each in json.loads(done.out)] == ["largest_batch[model=vgg11,memory_gib=1]@cpu"]
    results = collect([tmp_path / "old.jsonl"])
    (row,) = results.rows
    assert row.declared.value("largest").name == "largest_batch"
    assert results.thresholds[row.case.run] == {"memory": {"largest_batch": {"time": 0.5}}}


def test_a_run_goes_on_with_a_workload_that_has_another_name_now():
    suite = Suite.from_json({"name": "memory", "bench": [{"workload": "fit_batch"}], "thresholds": {"fit_batch": {"time": 0.5}}})
    assert [bench.workload for bench in suite.benches] == list(suite.thresholds) == ["largest_batch"]


def test_a_run_goes_on_with_a_case_that_was_chosen_by_its_former_name(signatures):
    suite = Suite.from_json({"name": "memory", "bench": [{"workload": "fit_batch", "axes": {"model": ["resnet18", "vgg11"]}}]})
    chosen = recorded_cases({"cases": ["fit_batch[model=vgg11,dtype=fp32]@cpu"]})
    cases = plan([suite], signatures, ["cpu"], case_ids=chosen)
    assert [each.id for each in cases] == ["largest_batch[model=vgg11,dtype=fp32]@cpu"]


def test_a_former_name_in_an_expression_selects_what_it_did():
    selects = former.in_any_spelling(compile_expression("fit_batch and vgg11"))
    assert [selects(f"{name}[model=vgg11]@cpu") for name in ("largest_batch", "train_step")] == [True, False]


def test_a_suite_is_told_what_a_workload_is_called_now(tmp_path):
    (tmp_path / "s.toml").write_text('[[bench]]\nworkload = "fit_batch"\n')
    done = shared_hosts.dlbench("run", "s.toml", "--dry-run", cwd=tmp_path)
    said = "no workload is called 'fit_batch'; did you mean 'largest_batch'? (one of your own comes with --plugin)"
    assert (done.code, done.err) == (2, f"dlbench: s.toml, bench 1: {said}\n")


def test_no_workload_takes_a_name_that_files_use_for_another():
    def fit_batch(device):
        """Do nothing."""

    with pytest.raises(UsageError, match="files of earlier versions call dlbench's 'largest_batch' 'fit_batch'"):
        registry.workload()(fit_batch)
