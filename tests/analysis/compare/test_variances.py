"""Variances of groups, held against the normal noise that they are made of, and Student's t against its table."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlbench.analysis.compare.calibration import variance_between
from dlbench.core.stats import student_p, student_quantile


@pytest.mark.parametrize(("freedom", "quantile"), [(1, 12.706), (2, 4.303), (3, 3.182), (4, 2.776), (9, 2.262), (30, 2.042), (120, 1.980)])
def test_students_t(freedom: int, quantile: float) -> None:
    assert student_quantile(0.95, freedom) == pytest.approx(quantile, abs=5e-4)
    assert student_p(student_quantile(0.95, freedom), freedom) == pytest.approx(0.05)
    assert student_p(0, freedom) == 1
    assert student_p(-2, freedom) == student_p(2, freedom)
    assert student_p(1e300, freedom) == pytest.approx(0, abs=1e-15)


@given(st.floats(0, 0.999999), st.integers(1, 40))
def test_the_quantile_is_the_inverse_of_p(confidence: float, freedom: int) -> None:
    assert student_p(student_quantile(confidence, freedom), freedom) == pytest.approx(1 - confidence, abs=1e-9)


def test_groups_without_spread_within_vary_as_their_medians_do() -> None:
    assert variance_between([[1.0, 1.0], [3.0, 3.0]]) == 2
    assert variance_between([[1.0], [3.0]]) == 2


def test_groups_that_differ_less_than_their_rounds_explain_have_no_variance_of_their_own() -> None:
    spread = [-1.0, 0.0, 1.0]
    within = math.pi / 2 * (1.482602 * 1) ** 2 / 3
    assert variance_between([spread, spread]) == pytest.approx(-within, rel=1e-6)
    assert variance_between([spread, [each + 4 for each in spread]]) == pytest.approx(8 - within, rel=1e-6)


def test_a_wild_round_does_not_hide_how_groups_differ() -> None:
    calm = [[0.0, 0.01, 0.02, 0.03, 0.04], [0.1, 0.11, 0.12, 0.13, 0.14]]
    wild = [[*group[:4], 9.0] for group in calm]
    assert variance_between(wild) == variance_between(calm) > 0.004


def test_the_variance_between_groups_is_found_again() -> None:
    chance = random.Random(7)

    def variance(between: float) -> float:
        groups = []
        for _ in range(400):
            centre = chance.gauss(0, between)
            groups.append([chance.gauss(centre, 0.03) for _ in range(10)])
        return variance_between(groups)

    assert math.sqrt(variance(0.05)) == pytest.approx(0.05, rel=0.1)
    assert abs(variance(0.0)) < 0.01**2
