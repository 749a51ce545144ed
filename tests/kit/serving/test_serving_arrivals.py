"""Patterns of arrivals: one for all rates, and what is drawn for it."""

import statistics
from itertools import pairwise

import pytest
import torch

from dlbench.kit.open_loop import schedule


def drawn(*of: object) -> list[float]:
    torch.manual_seed(5)
    return schedule(*of)  # type: ignore[arg-type]  # as the test says


def test_a_pattern_is_one_for_all_rates_and_whatever_else_was_drawn() -> None:
    slow = drawn("poisson", 1.0, 100)
    torch.rand(7)  # weights, say
    assert schedule("poisson", 1.0, 100) == slow
    assert [each / 4 for each in slow] == drawn("poisson", 4.0, 100)
    assert slow != drawn("poisson", 1.0, 100, 2)
    assert drawn("poisson", 1.0, 50) == slow[:50], "not rescaled to its mean"


def test_gaps_are_exponential_or_constant() -> None:
    times = [0.0, *drawn("poisson", 8.0, 50_000)]
    gaps = sorted(after - before for before, after in pairwise(times))
    assert statistics.fmean(gaps) == pytest.approx(0.125, rel=0.02)
    assert [gaps[len(gaps) * part // 4] * 8 for part in (1, 2, 3)] == pytest.approx([0.2877, 0.6931, 1.3863], rel=0.03)
    assert drawn("constant", 4.0, 3) == [0.25, 0.5, 0.75]
