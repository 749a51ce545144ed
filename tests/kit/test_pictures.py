"""Pictures: noise as natural as a camera's, decoded by what is installed, resized alike everywhere, and prepared in order."""

import sys
import threading
from io import BytesIO
from itertools import count, islice
from types import ModuleType

import pytest
import torch

from dlbench.kit import pictures

Image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(7)


def drawn(width, height, files=1):
    return [pictures.decoder_of("pillow")(each) for each in pictures.draw_files(files, width, height)]


def levels(height, width):
    return torch.randint(256, (3, height, width), dtype=torch.uint8)


def tent(covered, to):
    """(to, covered) weights: a tent about each new pixel, as wide as what it covers, but no narrower than a pixel each side."""
    scale = covered / to
    reach = max(1.0, scale)
    centres = (torch.arange(to, dtype=torch.float64)[:, None] + 0.5) * scale
    weights = (1 - ((torch.arange(covered) + 0.5 - centres) / reach).abs()).clamp(min=0)
    return weights / weights.sum(1, keepdim=True)


SHAPES = [(90, 120, 56, (64, 85)), (1024, 768, 56, (85, 64)), (30, 40, 56, (64, 85)), (64, 64, 56, (64, 64)), (9, 200, 7, (8, 178))]


@pytest.mark.parametrize(("height", "width", "size", "to"), SHAPES)
def test_bytes_and_floats_are_resized_as_by_two_products_within_a_level(height, width, size, to):
    picture = levels(height, width)
    right = tent(height, to[0]) @ picture.double() @ tent(width, to[1]).T
    in_bytes, in_floats = pictures.resized(picture, size), pictures.resized(picture.float(), size)
    assert (in_bytes.dtype, in_bytes.shape) == (torch.uint8, (3, *to))
    assert (in_floats - right).abs().max() < 1e-2  # its weights are in fp32
    assert (in_bytes - right).abs().max() <= 1
    assert (in_bytes - in_floats.round()).abs().max() <= 1


@pytest.mark.parametrize(("height", "width", "size", "to"), SHAPES)
def test_pillow_resizes_alike(height, width, size, to):
    picture = levels(height, width)
    resized = Image.fromarray(picture.permute(1, 2, 0).numpy()).resize(to[::-1], Image.Resampling.BILINEAR)
    by_pillow = torch.frombuffer(bytearray(resized.tobytes()), dtype=torch.uint8).view(*to, 3).permute(2, 0, 1)
    assert (pictures.resized(picture, size).int() - by_pillow.int()).abs().max() <= 1


def test_amplitudes_fall_as_those_of_natural_images_do():
    (picture,) = drawn(512, 384)
    brightness = picture.double().mean(0)
    assert brightness.mean() == pytest.approx(128, abs=3)
    assert brightness.std() == pytest.approx(pictures.CONTRAST, rel=0.1)
    amplitudes = torch.fft.rfft2(brightness).abs()
    frequencies = torch.hypot(torch.fft.fftfreq(384, dtype=torch.float64)[:, None], torch.fft.rfftfreq(512, dtype=torch.float64))
    bands = [(frequencies >= low) & (frequencies < 2 * low) for low in (1 / 128, 1 / 64, 1 / 32, 1 / 16, 1 / 8)]
    means = torch.stack([amplitudes[band].mean() for band in bands]).log2()
    assert (means[:-1] - means[1:]).tolist() == pytest.approx([1.0] * 4, abs=0.15)  # half of it with each octave


def test_files_differ_from_each_other_and_are_the_same_for_the_same_seed():
    files = pictures.draw_files(3, 40, 30)
    torch.manual_seed(7)
    assert len(set(files)) == 3
    assert pictures.draw_files(3, 40, 30) == files
    assert Image.open(BytesIO(files[0])).size == (40, 30)


def test_a_grey_picture_has_three_channels_too():
    file = BytesIO()
    Image.new("L", (5, 4), 77).save(file, "PNG")
    decoded = pictures.decoder_of("pillow")(file.getvalue())
    assert (decoded.shape, decoded.unique().tolist()) == ((3, 4, 5), [77])


def test_a_cut_is_a_part_of_the_resized_picture_and_every_other_mirrored():
    picture = levels(24, 32)
    smaller = pictures.resized(picture, 14)  # 16 x 21
    places = {(top, left): smaller[:, top : top + 14, left : left + 14] for top in range(3) for left in range(8)}
    found = set()
    for _ in range(400):
        part = pictures.cut(picture, 14)
        found |= {
            (*place, flip) for place, window in places.items() for flip in (False, True) if part.equal(window.flip(-1) if flip else window)
        }
    assert len(found) == 3 * 8 * 2


def test_a_batch_is_normalised_by_channel():
    black, white = (torch.full((3, 2, 2), level, dtype=torch.uint8) for level in (0, 255))
    batch = pictures.normaliser(CPU)([black, white])
    mean, std = torch.tensor(pictures.MEAN), torch.tensor(pictures.STD)
    assert batch.shape == (2, 3, 2, 2)
    torch.testing.assert_close(batch[:, :, 0, 0], torch.stack([-mean / std, (1 - mean) / std]))


@pytest.mark.parametrize(("where", "workers"), [("processes", 0), ("processes", 1), ("threads", 2), ("device", 0), ("device", 2)])
def test_every_way_prepares_batches_without_end(where, workers):
    files = pictures.draw_files(2, 40, 30)
    batches = pictures.batches_of(files, pictures.decoder_of("pillow"), 14, 3, where, workers, CPU)
    assert [(each.shape, each.dtype) for each in islice(batches, 4)] == [((3, 3, 14, 14), torch.float32)] * 4


def test_threads_keep_the_order_and_begin_no_more_than_was_asked_for():
    begun, before = [], torch.get_num_threads()

    def task(index):
        begun.append(index)
        return index, torch.get_num_threads()

    items = pictures.in_threads(task, count(), workers=2, ahead=3)
    assert list(islice(items, 20)) == [(index, 1) for index in range(20)]
    items.close()
    assert len(begun) <= 20 + 2 + 3
    assert torch.get_num_threads() == before
    assert not [each for each in threading.enumerate() if each.name.startswith("ThreadPoolExecutor")]


def test_what_a_thread_raises_is_raised_where_its_turn_is():
    def task(index):
        if index == 2:
            raise ValueError("torn")
        return index

    items = pictures.in_threads(task, count(), workers=2, ahead=3)
    assert list(islice(items, 2)) == [0, 1]
    with pytest.raises(ValueError, match="torn"):
        next(items)


def test_a_picture_that_cannot_be_decoded_is_named():
    torn = pictures.draw_files(1, 400, 300)[0][:-5000]
    found = pictures.Pictures([torn, b"no picture"], pictures.decoder_of("pillow"), 14)
    with pytest.raises(ValueError, match="picture 0 can't be decoded: image file is truncated"):
        found[0]
    with pytest.raises(ValueError, match="picture 1 can't be decoded: cannot identify image file"):
        found[1]


def test_without_pillow_pictures_are_neither_drawn_nor_decoded(monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    for call in (lambda: pictures.draw_files(1, 8, 6), lambda: pictures.decoder_of("pillow")):
        with pytest.raises(NotImplementedError, match="Pillow is not installed; pip install pillow"):
            call()


def test_torchcodec_decodes_where_it_imports(monkeypatch):
    decoders = ModuleType("torchcodec.decoders")
    decoders.decode_image = lambda file: file
    monkeypatch.setitem(sys.modules, "torchcodec", ModuleType("torchcodec"))
    monkeypatch.setitem(sys.modules, "torchcodec.decoders", decoders)
    assert pictures.decoder_of("torchcodec") is decoders.decode_image


class _Broken:
    """Finds torchcodec as its wheel is found without CUDA's libraries."""

    def find_spec(self, name, path=None, target=None):
        if name == "torchcodec":
            raise OSError("Could not load this library") from OSError("libnvrtc.so.13: cannot open shared object file")


@pytest.mark.parametrize(
    ("finder", "reason"),
    [(_Broken(), r"libnvrtc\.so\.13: cannot open shared object file"), (None, "No module named 'torchcodec")],
)
def test_torchcodec_that_does_not_import_says_what_is_missing(monkeypatch, finder, reason):
    if finder:
        monkeypatch.setattr(sys, "meta_path", [finder, *sys.meta_path])
    else:
        monkeypatch.setitem(sys.modules, "torchcodec", None)
    with pytest.raises(NotImplementedError, match=f"torchcodec decodes no images here: .*({reason})"):
        pictures.decoder_of("torchcodec")
