"""Preprocessing: pictures as natural as a camera's, decoded, resized alike everywhere and batched, alone and for a step."""

import multiprocessing
import sys
import threading
from io import BytesIO
from itertools import count, islice
from types import ModuleType, SimpleNamespace

import pytest
import torch
from torch import nn

import dlbench
from dlbench.harness.worker import user
from dlbench.testing import ManualClock, set_up
from dlbench.workloads import preprocess

Image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
SMALL = {"width": 40, "pictures": 2, "batch": 4}


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(7)


def levels(height, width):
    return torch.randint(256, (3, height, width), dtype=torch.uint8)


def tent(covered, to):
    """(to, covered) weights: a tent about each new pixel, as wide as what it covers, but no narrower than a pixel each side."""
    scale = covered / to
    centres = (torch.arange(to, dtype=torch.float64)[:, None] + 0.5) * scale
    weights = (1 - ((torch.arange(covered) + 0.5 - centres) / max(1.0, scale)).abs()).clamp(min=0)
    return weights / weights.sum(1, keepdim=True)


SHAPES = [(90, 120, 56, (64, 85)), (1024, 768, 56, (85, 64)), (30, 40, 56, (64, 85)), (64, 64, 56, (64, 64)), (9, 200, 7, (8, 178))]


@pytest.mark.parametrize(("height", "width", "size", "to"), SHAPES)
def test_bytes_and_floats_are_resized_as_by_two_products_within_a_level(height, width, size, to):
    """A CPU resizes bytes, an accelerator floats."""
    picture = levels(height, width)
    right = tent(height, to[0]) @ picture.double() @ tent(width, to[1]).T
    in_bytes, in_floats = preprocess.resize(picture, size), preprocess.resize(picture.float(), size)
    assert (in_bytes.dtype, in_bytes.shape) == (torch.uint8, (3, *to))
    assert (in_floats - right).abs().max() < 1e-2  # its weights are in fp32
    assert (in_bytes - right).abs().max() <= 1
    assert (in_bytes - in_floats.round()).abs().max() <= 1


def test_amplitudes_fall_as_those_of_natural_images_do():
    (file,) = preprocess.draw_files(1, 512, 384)
    brightness = preprocess.decode_by_pillow(file).double().mean(0)
    assert brightness.mean() == pytest.approx(128, abs=3)
    assert brightness.std() == pytest.approx(45, rel=0.1)
    amplitudes = torch.fft.rfft2(brightness).abs()
    frequencies = torch.hypot(torch.fft.fftfreq(384, dtype=torch.float64)[:, None], torch.fft.rfftfreq(512, dtype=torch.float64))
    bands = [(frequencies >= low) & (frequencies < 2 * low) for low in (1 / 128, 1 / 64, 1 / 32, 1 / 16, 1 / 8)]
    means = torch.stack([amplitudes[band].mean() for band in bands]).log2()
    assert (means[:-1] - means[1:]).tolist() == pytest.approx([1.0] * 4, abs=0.15)  # half of it with each octave


def test_files_differ_are_the_same_for_the_same_seed_and_a_grey_one_has_three_channels_too():
    files = list(preprocess.draw_files(3, 40, 30))
    torch.manual_seed(7)
    assert len(set(files)) == 3
    assert list(preprocess.draw_files(3, 40, 30)) == files
    assert Image.open(BytesIO(files[0])).size == (40, 30)
    file = BytesIO()
    Image.new("L", (5, 4), 77).save(file, "PNG")
    decoded = preprocess.decode_by_pillow(file.getvalue())
    assert (decoded.shape, decoded.unique().tolist()) == ((3, 4, 5), [77])


def test_a_cut_is_a_part_of_the_resized_picture_and_every_other_mirrored():
    picture = levels(24, 32)
    smaller = preprocess.resize(picture, 14)  # 16 x 21
    windows = {(top, left): smaller[:, top : top + 14, left : left + 14] for top in range(3) for left in range(8)}
    expected = {(*place, mirrored): window.flip(2) if mirrored else window for place, window in windows.items() for mirrored in (0, 1)}
    parts = [preprocess.crop(picture, 14) for _ in range(400)]
    assert {next(place for place, window in expected.items() if part.equal(window)) for part in parts} == expected.keys()


def test_a_call_is_a_batch_as_the_network_takes_it_normalised_by_channel(monkeypatch):
    black, white = (torch.full((3, 2, 2), level, dtype=torch.uint8) for level in (0, 255))
    mean, std = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    batch = preprocess.to_batch(iter([black, white]))
    assert batch.shape == (2, 3, 2, 2)
    torch.testing.assert_close(batch[:, :, 0, 0], torch.stack([-mean / std, (1 - mean) / std]))
    work = set_up("preprocess", **SMALL)
    images = work.call()
    assert (images.shape, images.dtype, work.items, work.own_threads) == ((4, 3, 224, 224), torch.float32, 4, False)
    assert not images.equal(work.call())
    assert work.report(ManualClock()).keys() == {"input_s"}


@pytest.mark.parametrize("workers", [0, 2])
def test_threads_keep_the_order_and_are_one_list_ahead(workers):
    usual, begun, numbers, running = torch.get_num_threads(), [], count(), {*threading.enumerate()}

    def task(index):
        begun.append(index)
        return index, torch.get_num_threads()

    lists = preprocess.in_threads(task, iter(lambda: list(islice(numbers, 3)), None), workers)
    assert [list(each) for each in islice(lists, 5)] == [
        [(at, 1 if workers else usual) for at in range(first, first + 3)] for first in range(0, 15, 3)
    ]
    lists.close()
    assert len(begun) <= 15 + (3 if workers else 0)
    assert torch.get_num_threads() == usual
    assert not {*threading.enumerate()} - running


class Broken:
    """Finds torchcodec as its wheel is found without CUDA's libraries."""

    def find_spec(self, name, path=None, target=None):
        if name == "torchcodec":
            raise OSError("Could not load this library") from OSError("libnvrtc.so.13: cannot open shared object file")


def test_what_is_not_installed_says_so_and_torchcodec_decodes_where_it_imports(monkeypatch):
    decoded, decoders = [], ModuleType("torchcodec.decoders")
    decoders.decode_image = lambda file: decoded.append(file) or preprocess.decode_by_pillow(file)
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "torchcodec", ModuleType("torchcodec"))
        patch.setitem(sys.modules, "torchcodec.decoders", decoders)
        set_up("preprocess", **SMALL, decoder="torchcodec").call()
    assert len(decoded) == 4
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "PIL", None)
        for call in (lambda: set_up("preprocess", **SMALL), lambda: preprocess.decode_by_pillow(b"")):
            with pytest.raises(NotImplementedError, match="Pillow is not installed; pip install pillow"):
                call()
    monkeypatch.setitem(sys.modules, "torchcodec", None)
    with pytest.raises(NotImplementedError, match="torchcodec decodes no images here: No module named 'torchcodec"):
        set_up("preprocess", **SMALL, decoder="torchcodec")
    monkeypatch.delitem(sys.modules, "torchcodec")
    monkeypatch.setattr(sys, "meta_path", [Broken(), *sys.meta_path])
    with pytest.raises(NotImplementedError, match=r"torchcodec decodes no images here: libnvrtc\.so\.13: cannot open shared object file"):
        set_up("preprocess", **SMALL, decoder="torchcodec")


@pytest.mark.parametrize(("where", "workers", "batches"), [("processes", 0, 1), ("processes", 2, 2), ("threads", 2, 1)])
@pytest.mark.parametrize(("step", "shape"), [("training", ()), ("inference", (4, 5))])
def test_for_a_step_a_call_takes_a_batch_of_each_process_and_says_both_paces(monkeypatch, where, workers, batches, step, shape):
    monkeypatch.setattr(user, "_networks", {})

    @dlbench.network(inputs=(3, 14, 14), classes=5)
    def tiny():
        return nn.Sequential(nn.Flatten(), nn.Linear(3 * 14 * 14, 5))

    running, seconds = {*threading.enumerate()}, count(1)
    work = set_up("preprocess", **SMALL, model="tiny", step=step, where=where, workers=workers)
    assert work.call().shape == shape
    assert (work.items, work.own_threads) == (4 * batches, where == "threads")
    values = work.report(SimpleNamespace(now=lambda: float(next(seconds))))  # a second each time it is read
    assert values.keys() == {"input_s", "input_alone_s", "step_alone_s"}
    assert values["step_alone_s"] == batches  # of a second each
    assert not multiprocessing.active_children()
    ending = {*threading.enumerate()} - running
    for thread in ending:
        thread.join(60)  # the thread that fed a queue ends a moment after the queue was closed
    assert not any(thread.is_alive() for thread in ending)


def test_numbers_that_rounding_does_not_explain_fail(monkeypatch):
    work, usual = set_up("preprocess", **SMALL), preprocess.resize

    def darker(picture, size):
        return usual(picture, size) // (2 if picture.dtype is torch.uint8 else 1)

    work.call()
    monkeypatch.setattr(preprocess, "resize", darker)
    with pytest.raises(ValueError, match=r"a pixel resized here is \d+ of 255 levels away from fp64 on the CPU; rounding explains one"):
        work.report(ManualClock())
