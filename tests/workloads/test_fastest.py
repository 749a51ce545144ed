"""Steps that search for their fastest settings: what they measure, where a search begins, and what it leaves out."""

import pytest
import torch
from small_classifier import tiny_network

from dlbench.core.model import Case
from dlbench.core.precision import PRECISIONS
from dlbench.harness.plan.adaptive import AdaptivePlan
from dlbench.harness.worker import registry
from dlbench.workloads import cnn, searched_steps

CPU = torch.device("cpu")
PLAIN = {"batch": 8, "dtype": "fp32", "layout": "nchw", "mode": "eager"}


@pytest.mark.parametrize(("name", "step"), [("fastest_train_step", cnn.train_step), ("fastest_infer_step", cnn.infer_step)])
def test_what_is_chosen_runs_as_the_step_of_that_name_and_a_search_begins_at_its_defaults(monkeypatch, name, step):
    monkeypatch.setattr(cnn, "build", tiny_network)
    registry.load_builtins()
    signature = registry.get(name).signature
    plain = {**PLAIN, **({"implementation": "default"} if name == "fastest_train_step" else {})}
    plan = AdaptivePlan.of(Case.of("modes", signature, {"model": "resnet18"}, "cpu"), signature)
    assert plan.next([]).params == {"model": "resnet18", **plain}
    switches = signature.declared.having("switch")
    assert {name: signature.declared.plain_default(name) for name in switches} == {name: plain[name] for name in switches}
    works = []
    for function in (getattr(searched_steps, name), step):
        torch.manual_seed(1)
        works.append(function(CPU, model="resnet18", **plain))
    ours, theirs = works
    assert (ours.items, ours.flops, ours.bytes) == (theirs.items, theirs.flops, theirs.bytes)
    torch.testing.assert_close(ours.call(), theirs.call())


@pytest.mark.parametrize("name", ["fastest_train_step", "fastest_infer_step"])
def test_what_takes_a_cpu_minutes_is_left_out(name):
    registry.load_builtins()
    (dtype,) = (each for each in registry.get(name).signature.parameters if each.name == "dtype")
    narrow = [each for each in dtype.choices if PRECISIONS[each].narrow_range]
    assert narrow
    for each in narrow:
        settings = {**PLAIN, "dtype": each, **({"implementation": "default"} if name == "fastest_train_step" else {})}
        with pytest.raises(NotImplementedError, match="some CPUs take 250 times longer in fp16"):
            getattr(searched_steps, name)(CPU, model="resnet18", **settings)
