"""The fit of the estimate: what the script writes, and how many held-out figures its range holds."""

import pytest

from benchmarks import what_if
from dlbench.core.reference.published import WHAT_IF_TABLE, fitted, published_figures
from dlbench.kit.steps import train_counts
from dlbench.workloads.cnn import cross_entropy

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def found():
    """The figures that the fit is to, each with what is counted of its step."""
    return what_if.samples()


def test_the_script_remakes_its_table_and_its_page_and_tells_another(tmp_path, monkeypatch, found):
    monkeypatch.setattr(what_if, "samples", lambda: found)
    fit = what_if.make_fit()
    monkeypatch.setattr(what_if, "make_fit", lambda: fit)
    what_if.main(["--check"])
    monkeypatch.setattr(what_if, "ROOT", tmp_path)
    monkeypatch.setattr(what_if, "WHAT_IF_TABLE", other := tmp_path / "what_if.toml")
    other.write_text(WHAT_IF_TABLE.read_text().replace("a = ", "a = 1"))
    with pytest.raises(SystemExit, match=r"^what_if.toml is another than python -m benchmarks.what_if writes$"):
        what_if.main(["--check"])


def test_the_range_holds_nine_of_ten_held_out_figures(found):
    factor = fitted().factor
    assert factor <= 2
    for like in what_if.HELD_OUT.values():
        ratios = what_if.held_out_ratios(found, like)
        inside = [ratio for ratio in ratios if 1 / factor <= ratio <= factor]
        assert (len(ratios), len(inside) >= 0.9 * len(ratios)) == (28, True)
    reasons = [what_if.left_out(each) for each in published_figures()]
    assert (len(reasons), reasons.count(None)) == (53, 28)


def test_figures_that_the_formula_gives_are_fitted_exactly(found):
    made = [each._replace(taken_s=each.arithmetic_s / 1.4 + each.memory_s / 0.39) for each in found]
    assert what_if.fit(made) == pytest.approx((1.4, 0.39))
    assert [what_if.estimate_ratio((1.4, 0.39), each) for each in made] == pytest.approx([1] * 28)
    # The share counts ratios on both sides.
    assert what_if.factor_of([1.0] * 17 + [0.5, 1.9, 4.0]) == pytest.approx(1.9)


def test_a_figure_is_held_out_with_all_that_is_like_it(found):
    """Of figures of which a card's are twice as slow, only a fit without the card is off by two."""
    slow = "NVIDIA TITAN V"
    made = [each._replace(taken_s=(each.arithmetic_s + each.memory_s) * (2 if each.figure.device == slow else 1)) for each in found]
    ratios = what_if.held_out_ratios(made, what_if.HELD_OUT["card"])
    assert [ratio for ratio, each in zip(ratios, made, strict=True) if each.figure.device == slow] == pytest.approx([0.5, 0.5])


def test_bytes_are_those_of_a_step_at_any_batch():
    """Counted at 1 and 2, and here at 48."""
    images, labels = what_if.batch_of(48, "cpu")
    network = what_if.network("resnet18", "cpu")
    counted = train_counts(network, cross_entropy, (images, labels), "amp_fp16", 5)
    assert fitted().training["resnet18"].half.of(48) == counted["bytes"]
    assert fitted().training["resnet18"].flops == counted["flops"] / 48
