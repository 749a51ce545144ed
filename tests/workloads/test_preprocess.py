"""Preprocessing: batches of pictures alone and for a step, what is refused, and pictures that are wrong."""

import multiprocessing
from dataclasses import dataclass

import front_door
import pytest
import shared_hosts
import torch
from torch import nn

import dlbench
from dlbench.analysis.read.header import declaration
from dlbench.core.declared_json import to_json
from dlbench.harness.worker import registry, user_definitions
from dlbench.kit import pictures
from dlbench.testing import ManualClock, set_up
from dlbench.workloads import preprocess

pytest.importorskip("PIL", reason="Pillow is not installed")
SMALL = {"width": 40, "pictures": 2, "batch": 4}


@pytest.fixture
def registered(monkeypatch):
    """Networks of one test."""
    monkeypatch.setattr(user_definitions, "_registry", user_definitions._Registry(taken=user_definitions._registry.taken))


@pytest.fixture
def tiny(registered):
    @dlbench.network(inputs=(3, 14, 14), classes=5)
    def tiny():
        return nn.Sequential(nn.Flatten(), nn.Linear(3 * 14 * 14, 5))


def test_alone_a_call_is_a_batch_of_imagenets_size():
    work = set_up("preprocess", **SMALL)
    images = work.call()
    assert (images.shape, images.dtype, work.items, work.flops, work.own_threads) == ((4, 3, 224, 224), torch.float32, 4, None, False)
    assert not images.equal(work.call())
    values = work.report(ManualClock())
    assert values.keys() == {"input_s", "picture_bytes", "resize_error"}
    assert 0 < values["picture_bytes"] < 3 * 40 * 30
    assert values["resize_error"] <= 1 / 255


@dataclass
class Ticking:
    """A clock that takes a second each time it is read."""

    seconds: float = 0.0

    def now(self):
        self.seconds += 1
        return self.seconds


@pytest.mark.parametrize(("where", "workers", "batches"), [("processes", 0, 1), ("processes", 2, 2), ("threads", 2, 1)])
@pytest.mark.parametrize("step", ["training", "inference"])
def test_for_a_step_a_call_takes_a_batch_of_each_process_and_says_both_paces(tiny, where, workers, batches, step):
    work = set_up("preprocess", **SMALL, model="tiny", step=step, where=where, workers=workers)
    output = work.call()
    assert output.shape == (() if step == "training" else (4, 5))
    assert (work.items, work.own_threads) == (4 * batches, where == "threads")
    products = 2 * 4 * 3 * 14 * 14 * 5  # twice in training: the images need no gradient
    assert work.flops == batches * products * (2 if step == "training" else 1)
    values = work.report(Ticking())
    assert values.keys() == {"input_s", "input_alone_s", "step_alone_s", "picture_bytes", "resize_error"}
    assert values["step_alone_s"] == batches  # of one batch a second
    assert not multiprocessing.active_children()


def test_it_says_how_a_step_is_fed_and_what_its_values_are_for():
    declared = registry.get("preprocess").signature.declared
    assert declaration(to_json(declared)) == declared
    assert declared.having("feeding") == ("decoder", "where", "workers")
    assert [declared.value(role).name for role in ("input", "transfer", "input_alone", "step_alone")] == [
        "input_s",
        "transfer_s",
        "input_alone_s",
        "step_alone_s",
    ]


@pytest.mark.parametrize(
    ("params", "error", "sentence"),
    [
        ({"step": "inference"}, ValueError, "step=inference needs a network; give model="),
        ({"where": "threads"}, ValueError, "where=threads needs workers=1 or more"),
        ({"where": "device"}, NotImplementedError, "a CPU has decoded them where they are resized; where=threads is the same"),
        ({"width": 65_501}, ValueError, "a JPEG file has sides of 65500 pixels at most; give a width up to that, not 65501"),
        ({"width": 60_000}, MemoryError, r"drawing pictures of 60000 x 45000 and preparing them with 0 workers takes 150\.87 GiB"),
        ({"workers": 10**9, "where": "threads"}, MemoryError, r"with 1000000000 workers takes \d+\.\d\d GiB, and the host has"),
        ({"workers": 10**9}, MemoryError, r"with 1000000000 workers takes \d+\.\d\d GiB, and the host has"),
    ],
)
def test_what_cannot_be_is_refused_before_a_picture_is_drawn(monkeypatch, params, error, sentence):
    monkeypatch.setattr(preprocess, "draw_files", pytest.fail)
    monkeypatch.setattr("dlbench.kit.host_memory.too_little_memory", lambda needed: 2**34 if needed > 2**34 else None)
    with pytest.raises(error, match=sentence):
        set_up("preprocess", **{**SMALL, **params})


def test_a_network_that_takes_no_pictures_is_refused(registered):
    @dlbench.network(inputs=(6,), classes=3)
    def flat():
        return nn.Linear(6, 3)

    with pytest.raises(ValueError, match="model=flat takes no square pictures of three channels"):
        set_up("preprocess", **SMALL, model="flat")


def test_numbers_that_rounding_does_not_explain_fail(monkeypatch):
    work = set_up("preprocess", **SMALL)
    work.call()

    def darker(picture, size):
        return pictures.resized(picture, size) // (2 if picture.dtype is torch.uint8 else 1)

    monkeypatch.setattr(preprocess, "resized", darker)
    with pytest.raises(ValueError, match=r"a pixel resized here is \d+ of 255 levels away from fp64 on the CPU; rounding explains one"):
        work.report(ManualClock())


PLUGIN = """
from dlbench import Size, Work, workload
from dlbench.workloads import preprocess
from dlbench.workloads.feed import Count

@workload()
def torn(device, *, where: str, workers: Count) -> Work:
    "Prepare pictures of which one is torn."
    drawn = preprocess.draw_files
    preprocess.draw_files = lambda *given: [each[:200] for each in drawn(*given)]
    try:
        return preprocess.preprocess(device, batch=2, width=40, pictures=1, where=where, workers=workers)
    finally:
        preprocess.draw_files = drawn
"""


def test_a_picture_that_cannot_be_decoded_ends_its_case_with_a_sentence(tmp_path):
    (tmp_path / "torn.py").write_text(PLUGIN)
    bench = 'workload = "torn"\naxes.where = '
    suite = front_door.suite(tmp_path, f'{bench}"processes"\naxes.workers = [0, 1]', f'{bench}"threads"\naxes.workers = 1')
    done = shared_hosts.dlbench("run", suite, "--plugin", "torn.py", "--device", "cpu", "--rounds", "1", "-o", "o.jsonl", cwd=tmp_path)
    assert done.code == 5, done.err
    sentence = "ValueError: data 'pictures' raises ValueError: picture 0 can't be decoded: Truncated File Read"
    assert [(each["status"], each["reason"]) for each in front_door.measurements(tmp_path / "o.jsonl")] == [("failed", sentence)] * 3
