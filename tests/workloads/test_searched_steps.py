"""Steps that search for their fastest settings or the largest batch: what they measure, and where a search goes."""

import pytest
import torch
from small_classifier import tiny_network

from dlbench.core.measurement import Measurement, Memory
from dlbench.core.model import Case, Status
from dlbench.harness.plan.searches import search_of
from dlbench.harness.worker import registry
from dlbench.workloads import cnn
from dlbench.workloads.cnn import largest_batch

CPU = torch.device("cpu")
PLAIN = {"batch": 8, "dtype": "fp32", "layout": "nchw", "mode": "eager"}


@pytest.mark.parametrize(("name", "step"), [("fastest_train_step", cnn.train_step), ("fastest_infer_step", cnn.infer_step)])
def test_what_is_chosen_runs_as_the_step_of_that_name_and_a_search_begins_at_its_defaults(monkeypatch, name, step):
    monkeypatch.setattr(cnn, "build", tiny_network)
    registry.load_builtins()
    signature = registry.get(name).signature
    plain = {**PLAIN, **({"implementation": "default"} if name == "fastest_train_step" else {})}
    plan = search_of(Case.of("modes", signature, {"model": "resnet18"}, "cpu"), signature)
    assert plan.next([]).params == {"model": "resnet18", **plain}
    switches = signature.declared.having("switch")
    assert {name: signature.declared.plain_default(name) for name in switches} == {name: plain[name] for name in switches}
    works = []
    for function in (getattr(cnn, name), step):
        torch.manual_seed(1)
        works.append(function(CPU, model="resnet18", **plain))
    ours, theirs = works
    assert (ours.items, ours.flops, ours.bytes) == (theirs.items, theirs.flops, theirs.bytes)
    torch.testing.assert_close(ours.call(), theirs.call())


MIB = 1 << 20


@pytest.mark.parametrize(("step", "shape"), [("train", ()), ("infer", (1, 1000))])
def test_it_is_a_step_of_the_network(step, shape):
    work = largest_batch(CPU, model="resnet18", batch=1, step=step)
    assert (work.items, work.call().shape) == (1, shape)


def searched(peak_mib, *, gibibytes=1.0, fits=None, reports=True):
    """Search with a peak by batch, and return the outcome and the batches that were tried."""
    registry.load_builtins()
    signature = registry.get("largest_batch").signature
    plan = search_of(Case.of("memory", signature, {"model": "alexnet", "memory_gib": gibibytes}, "cpu"), signature)
    tries = []
    while case := plan.next(tries):
        peak = int(peak_mib(case.params["batch"]) * MIB)
        went_well = peak <= gibibytes * 2**30 if fits is None else fits(case.params["batch"])
        status = Status.OK if went_well else Status.OOM
        memory = Memory(host_peak_bytes=peak) if went_well and reports else Memory()
        tries.append(Measurement(case, 0, status, None if went_well else "full", memory=memory, limit_bytes=int(gibibytes * 2**30)))
        assert len(tries) < 40
    return plan.outcome(tries, 0), [each.case.params["batch"] for each in tries]


@pytest.mark.parametrize("fixed", [0, 90, 900])
@pytest.mark.parametrize("sample", [0.3, 5, 31, 120])
def test_a_line_is_searched_in_few_tries_and_the_limit_is_met_within_five_percent(fixed, sample):
    outcome, tried = searched(lambda batch: fixed + sample * batch)
    true = int((1024 - fixed) / sample)
    assert outcome.found["batch"] == pytest.approx(true, rel=0.05, abs=1)
    assert outcome.found["batch"] <= true
    assert outcome.values == {"largest_batch": outcome.found["batch"]}
    assert len(tried) <= 11


def test_a_size_that_takes_less_than_a_smaller_one_does_not_mislead_it():
    """As was measured of ResNet-18: another algorithm of a convolution takes less from batch 59 on."""
    outcome, tried = searched(lambda batch: 89 + 7.4 * batch - (24 if batch >= 59 else 0), gibibytes=0.5, fits=lambda batch: batch <= 63)
    assert outcome.found["batch"] in range(60, 64)
    assert max(tried) <= 75
    assert len(tried) <= 9


def test_without_peaks_it_doubles_and_halves():
    outcome, tried = searched(lambda batch: 10 * batch, reports=False)
    assert outcome.found["batch"] in range(97, 103)
    assert tried[:8] == [1, 2, 4, 8, 16, 32, 64, 128]


def test_where_not_even_one_sample_fits_the_outcome_is_out_of_memory():
    outcome, tried = searched(lambda batch: 2000.0)
    assert (outcome.status, outcome.reason, tried) == (Status.OOM, "not even batch=1 fits: full", [1])
    assert outcome.limit_bytes == 2**30
