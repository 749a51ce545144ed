"""Ratios on made-up noise: few deals with fixed seeds, so that a change of the rule shows; the rates are the module's to publish."""

import random

from benchmarks.simulated import ratios, winners


def test_intervals_hold_the_truth_where_spreads_differ():
    shares = {found.what.partition(";")[0]: found.share for found in ratios.findings(1, random.Random(3))}
    assert len(shares) == 20
    assert min(share for what, share in shares.items() if what.startswith("7 rounds")) >= 0.94  # by ranks alone 0.85
    assert ratios.coverage(14, ratios.normal, 100, 1000, random.Random(3)).share >= 0.94  # by ranks alone 0.933


def test_the_best_of_settings_that_are_all_alike_is_no_winner():
    assert [found.count for found in winners.findings(5, random.Random(3))] == [0] * 8
