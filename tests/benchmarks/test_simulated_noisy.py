"""Simulated A/Bs of noisy cases: they go through the loop of `ab`, and each question of the benchmark has its answer."""

import itertools
import random

from benchmarks.simulated import noisy
from dlbench.core.errors import ExitCode


def test_two_quiet_cases_take_the_first_rounds_alone():
    ended = noisy.ab(random.Random(1), [0.005, 0.005], {})
    assert (ended.code, ended.rounds, {each.value for each in ended.verdicts.values()}) == (ExitCode.OK, 14, {"same"})


def test_a_noisy_case_gets_rounds_until_a_quarter_more_is_called():
    ended = noisy.ab(random.Random(2), [0.2, 0.02], {0: 0.25})
    assert (ended.code, [each.value for each in ended.verdicts.values()]) == (ExitCode.REGRESSION, ["slower", "same"])
    assert 14 < ended.rounds <= 60


def test_what_would_take_hundreds_of_rounds_is_left_and_does_not_pass():
    ended = noisy.ab(random.Random(3), [1.0, 0.02], {})
    assert (ended.code, ended.rounds) == (ExitCode.UNDECIDABLE, 14)


def test_each_aim_has_a_share_of_all_that_were_simulated():
    called, silent = itertools.islice(noisy.findings(2, random.Random(5)), 2)
    assert (called.of, called.at_least, silent.of, silent.at_most) == (2, 0.75, 2, 0.05)
    assert called.what == "+25 % in one case of 2, sd 12 %: called"
    assert (called.reached, silent.reached) == (True, True)
