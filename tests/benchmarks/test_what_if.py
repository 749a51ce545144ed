"""The fit of the estimate: what the script writes, and how many held-out figures its range holds."""

import pytest

from benchmarks import what_if
from dlbench.core.reference.published import WHAT_IF_TABLE, fitted, published_figures
from dlbench.kit.steps import train_counts
from dlbench.workloads.cnn import cross_entropy

pytestmark = pytest.mark.real

FOUND = what_if.samples()


def test_the_script_remakes_its_table_and_its_page():
    what_if.main(["--check"])


def test_another_table_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(what_if, "ROOT", tmp_path)
    monkeypatch.setattr(what_if, "WHAT_IF_TABLE", other := tmp_path / "what_if.toml")
    other.write_text(WHAT_IF_TABLE.read_text().replace("a = ", "a = 1"))
    with pytest.raises(SystemExit, match=r"^what_if.toml is another than python -m benchmarks.what_if writes$"):
        what_if.main(["--check"])


@pytest.mark.parametrize("way", what_if.HELD_OUT)
def test_the_range_holds_nine_of_ten_held_out_figures(way):
    ratios = what_if.held_out_ratios(FOUND, what_if.HELD_OUT[way])
    inside = [ratio for ratio in ratios if 1 / fitted().factor <= ratio <= fitted().factor]
    assert (len(ratios), len(inside) >= 0.9 * len(ratios), fitted().factor <= 2) == (28, True, True)


def test_the_fit_is_to_all_figures_but_those_with_a_reason():
    reasons = [what_if.left_out(each) for each in published_figures()]
    assert (len(reasons), reasons.count(None)) == (53, 28)


def test_figures_that_the_formula_gives_are_fitted_exactly():
    made = [each._replace(taken_s=each.arithmetic_s / 1.4 + each.memory_s / 0.39) for each in FOUND]
    assert what_if.fit(made) == pytest.approx((1.4, 0.39))
    assert [what_if.estimate_ratio((1.4, 0.39), each) for each in made] == pytest.approx([1] * 28)


def test_a_figure_is_held_out_with_all_that_is_like_it():
    """Of figures of which a card's are twice as slow, only a fit without the card is off by two."""
    slow = "NVIDIA TITAN V"
    made = [each._replace(taken_s=(each.arithmetic_s + each.memory_s) * (2 if each.figure.device == slow else 1)) for each in FOUND]
    ratios = what_if.held_out_ratios(made, what_if.HELD_OUT["card"])
    assert [ratio for ratio, each in zip(ratios, made, strict=True) if each.figure.device == slow] == pytest.approx([0.5, 0.5])


def test_the_share_counts_ratios_on_both_sides():
    assert what_if.factor_of([1.0] * 17 + [0.5, 1.9, 4.0]) == pytest.approx(1.9)


def test_bytes_are_those_of_a_step_at_any_batch():
    """Counted at 1 and 2, and here at 48."""
    images, labels = what_if.batch_of(48, "cpu")
    network = what_if.network("resnet18", "cpu")
    counted = train_counts(network, cross_entropy, (images, labels), "amp_fp16", 5)
    assert fitted().training["resnet18"].half.of(48) == counted["bytes"]
    assert fitted().training["resnet18"].flops == counted["flops"] / 48
