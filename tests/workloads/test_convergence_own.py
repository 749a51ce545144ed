"""Trainings of a user's network on a user's batches: alike in each precision but for that, and one sentence for what can't be trained."""

import math

import front_door
import pytest
import shared_hosts
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import dlbench
from dlbench.harness.worker import user
from dlbench.testing import ManualClock, set_up
from dlbench.workloads import convergence

GIVEN = {"model": "signs", "source": "numbers", "batch": 16, "format": "fp32"}


def squares(output, targets):
    return (output.flatten() - targets).square().mean()


@pytest.fixture(autouse=True)
def own(monkeypatch):
    """A network that learns signs, and 1040 shuffled samples of them: 65 batches, of which 13 are held out."""
    for kind in ("_networks", "_data"):
        monkeypatch.setattr(user, kind, {})
    inputs = torch.randn(1040, 2, generator=torch.Generator().manual_seed(0))

    @dlbench.network(inputs=(2,), classes=2)
    def signs():
        return nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Dropout(0.1), nn.Linear(8, 2))

    @dlbench.network(inputs=(2,), classes=2, optimizer=lambda weights: torch.optim.SGD(weights, lr=1e30))
    def exploding():
        return nn.Linear(2, 2)

    @dlbench.network(example=lambda batch: (torch.zeros(batch, 2), torch.zeros(batch)), loss=squares)
    def regression():
        return nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 1))

    @dlbench.data
    def numbers(batch):
        return DataLoader(TensorDataset(inputs, (inputs[:, 0] > 0).long()), batch_size=batch, shuffle=True)


def trained(**given):
    return set_up("convergence", **{**GIVEN, **given}).observe(ManualClock())


@pytest.mark.real  # it trains for seconds
def test_each_seed_learns_and_a_network_with_a_loss_of_its_own_is_judged_by_that_on_batches_that_it_has_not_seen():
    values = trained(format="fp32", steps=300)
    assert min(values["accuracy"]) > 0.9
    assert values["loss_curve"][-1] < values["loss_curve"][0]
    assert (len(values["loss_curve"]), sum(values["diverged"]), len(set(values["loss"]))) == (40, 0, 6)
    fp32, bf16 = (trained(model="regression", format=name, steps=300) for name in ("fp32", "bf16"))
    assert "accuracy" not in fp32
    assert max(fp32["loss"]) < 0.2  # of guessing the mean 0.25
    assert (fp32["diverged"], fp32["loss_curve"][0] > 2 * fp32["loss_curve"][-1]) == ((0,) * 6, True)
    assert bf16["loss"] == pytest.approx(fp32["loss"], abs=0.03)


def test_a_seed_begins_and_goes_on_alike_again_and_in_each_precision_and_may_diverge():
    fp32, again, amp, faster = (trained(steps=4, **given) for given in ({}, {}, {"format": "amp_bf16"}, {"rate": 0.5}))
    assert fp32 == again
    assert amp["loss"] == pytest.approx(fp32["loss"], rel=0.02)
    assert len({each["loss"] for each in (fp32, amp, faster)}) == 3
    exploded, slower = trained(model="exploding", steps=5), trained(model="exploding", steps=5, rate=0.01)
    assert (exploded["diverged"], slower["diverged"]) == ((1,) * 6, (0,) * 6)
    assert exploded["loss"] == pytest.approx([10 * math.log(10)] * 6)


def test_accuracy_is_of_one_batch_in_five_that_no_seed_has_trained_on(monkeypatch):
    taken, step = [], convergence.training_step

    def noting(*given):
        return lambda inputs, targets: (taken.append(inputs), step(*given)(inputs, targets))[1]

    monkeypatch.setattr(convergence, "training_step", noting)
    torch.manual_seed(0)
    convergence.own_training(torch.device("cpu"), "signs", "numbers", 16, "fp32", None, 400)(1)
    assert len({each.data_ptr() for each in taken}) == 65 - 13


def test_a_file_takes_the_place_of_dlbench_s_own_networks_and_fp32_comes_first(tmp_path):
    options = (str(front_door.PLUGINS / "own_data.py"), "--set", "source=loaded", "--device", "cpu")
    listed = shared_hosts.dlbench("list", "convergence", *options, cwd=tmp_path)
    names = [f"convergence[format={name},steps=300,model=small,source=loaded]@cpu" for name in ("fp32", "amp_bf16", "bf16")]
    assert listed.out.split() == names
    network = "@dlbench.network(inputs=(6,), classes=3)\ndef mine():\n    return nn.Linear(6, 3)\n"
    (tmp_path / "mine.py").write_text(f"import dlbench\nfrom torch import nn\n\n\n{network}")
    lacking = shared_hosts.dlbench("run", "convergence", "mine.py", "--device", "cpu", cwd=tmp_path)
    right = "put @dlbench.data above a function that returns batches (docs/feeding.md shows one)"
    said = f"convergence.toml, bench 3 (convergence): source = own means one of your own, and there is none; {right}"
    assert (lacking.code, lacking.err) == (2, f"dlbench: {said}\n")
    without = shared_hosts.dlbench("list", "convergence", "--device", "cpu", cwd=tmp_path)
    assert (without.code, "model=" in without.out, "format=binary" in without.out) == (0, False, True)
