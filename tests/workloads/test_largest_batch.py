"""The largest batch that fits: a step within a limit, and how few tries find the limit of a network whose memory is known."""

import pytest
import torch

from dlbench.core.measurement import Measurement, Memory
from dlbench.core.model import Case, Status
from dlbench.harness.plan.adaptive import AdaptivePlan
from dlbench.harness.worker import registry
from dlbench.workloads.searched_steps import largest_batch

CPU = torch.device("cpu")
MIB = 1 << 20


@pytest.mark.parametrize(("step", "shape"), [("train", ()), ("infer", (1, 1000))])
def test_it_is_a_step_of_the_network(step, shape):
    work = largest_batch(CPU, model="resnet18", batch=1, step=step)
    assert (work.items, work.call().shape) == (1, shape)


def test_a_batch_has_to_be_given_or_searched_for():
    with pytest.raises(ValueError, match="give batch=8"):
        largest_batch(CPU, model="resnet18")


def searched(peak_mib, *, gibibytes=1.0, fits=None, reports=True):
    """Search with a peak by batch, and return the outcome and the batches that were tried."""
    registry.load_builtins()
    signature = registry.get("largest_batch").signature
    plan = AdaptivePlan.of(Case.of("memory", signature, {"model": "alexnet", "memory_gib": gibibytes}, "cpu"), signature)
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
