"""The noise between occasions: estimated, kept, and allowed for; with the variances and Student's t that it stands on."""

import json
import math
import random
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import compared
import made_up
import pytest
from compared import ONE, TEN, run, timed
from edited import edited
from hypothesis import given
from hypothesis import strategies as st

from dlbench.analysis.compare.calibration import Calibration, Common, Drift, Noise, estimate, load, two_way_variances, variance_between
from dlbench.analysis.compare.judge import rank_tests
from dlbench.analysis.compare.sides import compare
from dlbench.analysis.compare.verdict import CaseVerdict
from dlbench.core.errors import ResultFileError
from dlbench.core.measurement import Measurement
from dlbench.core.model import Status
from dlbench.core.rows.summary import per_round
from dlbench.core.stats import student_p, student_quantile

Rounds = list[Measurement]
TWO, THREE, FOUR = (made_up.case("matmul", n=n) for n in (2, 3, 4))


def estimated(*occasions: Sequence[Measurement]) -> Calibration:
    """The noise between occasions a day apart, of which there is some."""
    measurements = {f"run{number}": each for number, each in enumerate(occasions)}
    times = {name: f"2026-01-{number + 1:02}T12:00:00+00:00" for number, name in enumerate(measurements)}
    found = estimate("m", compared.runs(measurements, {name: {"provenance": {"utc": utc}} for name, utc in times.items()}))
    assert found is not None
    return found


def alike(sd: float, occasions: int) -> Noise:
    return Noise(occasions, *[pytest.approx(sd, abs=1e-6)] * 3)


def test_the_noise_of_constant_rounds_is_that_of_their_logarithms() -> None:
    found = estimated(*(timed(math.exp(shift), [1.0]) for shift in (0, 0.02, 0.04)))
    assert (found.cases, found.pooled) == ({ONE.id: alike(0.02, 3)}, alike(0.02, 3))
    assert (found.machine_key, found.first[:10], found.last[:10]) == ("m", "2026-01-01", "2026-01-03")


def test_occasions_alike_have_no_noise_and_cases_are_pooled() -> None:
    found = estimated(*([*timed(1), *timed(factor, case=TWO)] for factor in (1, 1.2)))
    # Of two cases, of which one moved, nobody can tell which it was.
    each = math.log(1.2) / math.sqrt(2) / math.sqrt(2)
    assert [noise.median for noise in (found.cases[ONE.id], found.cases[TWO.id], found.pooled)] == [pytest.approx(each, rel=0.01)] * 3
    assert found.common == Common(2, *[pytest.approx(0.0, abs=1e-6)] * 3, cases=2)


def test_what_all_cases_do_is_distinguished_from_what_each_does() -> None:
    shared, own = (0.02, -0.01, -0.01), ((ONE, (0.0, 0.0, 0.0)), (TWO, (0.01, 0.0, -0.01)), (THREE, (-0.01, 0.0, 0.01)))
    occasions = [[each for case, alone in own for each in timed(math.exp(shared[at] + alone[at]), [1.0], case)] for at in range(3)]
    found = estimated(*occasions)
    # Residual squares 2e-4 each of two cases: over (3 - 1) (3 - 1) a mean of 1e-4, of which a third is in each mean of three cases.
    assert found.common == Common(3, *[pytest.approx(math.sqrt(3e-4 - 1e-4 / 3))] * 3, cases=3)
    assert (found.pooled, found.cases[ONE.id]) == (alike(0.01, 3), alike(0, 3))
    assert found.cases[TWO.id] == alike(math.sqrt((1e-4 - 1e-4 / 3) * 3), 3)
    # One that was there twice only is not in the table, and keeps its noise as a whole.
    occasions[0] += timed(1.0, [1.0], FOUR)
    occasions[1] += timed(math.exp(0.1), [1.0], FOUR)
    more = estimated(*occasions)
    assert (more.common, more.pooled, more.cases[FOUR.id]) == (found.common, found.pooled, alike(0.1 / math.sqrt(2), 2))
    drift = more.drifts(ONE.id)["median"]
    assert (drift.freedom, drift.common_freedom, drift.common) == (4, 2, pytest.approx(math.sqrt(2 * (3e-4 - 1e-4 / 3))))


@pytest.mark.parametrize(
    "occasions",
    [[timed()], [timed(), timed(case=TWO)], [timed(), [made_up.ended(ONE, Status.OOM, "too large")]], [timed(0), timed(0)]],
    ids=["one", "no case twice", "once without a time", "times of zero"],
)
def test_one_occasion_has_no_noise(occasions: list[Rounds]) -> None:
    assert estimate("m", compared.runs({f"run{number}": each for number, each in enumerate(occasions)})) is None


NOISE = Calibration("m", "", "", Noise(5, 0.03, 0.01, 0.05), {ONE.id: Noise(4, 0.05, 0.005, 0.06)}, Common(5, 0.02, 0.04, 0.01, cases=6))


def test_a_case_drifts_as_all_do_and_more_where_it_was_seen_to() -> None:
    root = math.sqrt(2)
    for case, own in ((ONE, (0.05, 0.01, 0.06)), (TWO, (0.03, 0.01, 0.05))):
        parts = zip(("median", "p10", "mean"), own, (0.02, 0.04, 0.01), strict=True)
        assert NOISE.drifts(case.id) == {name: Drift(alone * root, 20, common * root, 4) for name, alone, common in parts}


GOOD: dict[str, Any] = NOISE.to_json()


def refused(path: Path, content: str) -> str:
    path.write_text(content)
    with pytest.raises(ResultFileError) as caught:
        load(path)
    return str(caught.value).removeprefix(f"{path.parent}/")


def test_a_file_that_is_no_calibration_is_one_sentence(tmp_path: Path, transcript: Callable[..., None]) -> None:
    path = tmp_path / "m.json"
    transcript("edited-calibrations", 13, lambda changes: refused(path, json.dumps(edited(GOOD, changes))))
    for content, wrong in (("", "data was truncated"), (json.dumps(GOOD)[:-9], "data was truncated"), ("[]", "`object`, got `array`")):
        assert wrong in refused(path, content)
    path.write_text(json.dumps(GOOD))
    assert load(path) == NOISE


def of_all(sd: float, occasions: int = 5) -> Calibration:
    return Calibration("m", "", "", Noise(occasions, sd, sd, sd), {}, None)


def against(factor: float, calibration: Calibration | None) -> CaseVerdict:
    return compared.verdict(timed(), timed(factor), calibration=calibration)


@pytest.mark.parametrize(
    ("factor", "sd", "expected"),
    [
        (1.2, None, "slower"),
        (1.2, 0.01, "slower"),
        (1.2, 0.05, "inconclusive"),
        (3.0, 0.05, "slower"),
        (0.3, 0.05, "faster"),
        (1.0, 0.01, "same"),
        (1.0, 0.05, "inconclusive"),
    ],
)
def test_a_verdict_needs_more_than_what_occasions_do(factor: float, sd: float | None, expected: str) -> None:
    assert against(factor, sd and of_all(sd)).verdict.value == expected


def tailed(slow: float) -> Rounds:
    """Ten rounds in which one call of three takes that many times as long."""
    return made_up.rounds_of(ONE, [[each, each, slow * each] for each in TEN])


def test_occasions_that_differ_in_their_slow_calls_are_no_change_of_the_program() -> None:
    steady, tails = (estimated(tailed(1), tailed(slow), tailed(1)) for slow in (1.01, 3))
    assert (tails.pooled.median, tails.pooled.mean) == (0, pytest.approx(math.log(5 / 3) / math.sqrt(3), rel=1e-3))
    found = [compared.verdict(tailed(1), tailed(3), calibration=each) for each in (None, steady, tails)]
    assert [each.verdict.value for each in found] == ["slower", "slower", "inconclusive"]
    assert found[1].statistic == "mean"


def test_few_occasions_ask_for_a_larger_change() -> None:
    p = [against(1.2, of_all(0.02, occasions)).tests["median"].p for occasions in (2, 3, 5, 10, 30)]
    assert p == sorted(p, reverse=True)
    assert p[0] > 0.05 > p[2]


def test_a_drift_widens_both_intervals_and_never_lowers_p() -> None:
    rounds = [per_round(made_up.rounds_of(made_up.case(), [[factor * each] for each in TEN])) for factor in (1.0, 1.1)]
    plain, none, wide = (
        rank_tests(*rounds, 0.1, {"median": drift} if drift else {})["median"] for drift in (None, Drift(0, 4), Drift(0.1, 4))
    )
    assert plain.interval
    assert wide.interval
    assert none.interval == pytest.approx(plain.interval)
    by = Drift(0.1, 4).half_width(plain.interval.confidence)
    low, high = (math.hypot(end - plain.shift, by) for end in (plain.interval.low, plain.interval.high))
    assert wide.interval == pytest.approx((plain.shift - low, plain.shift + high, plain.interval.confidence))
    assert (wide.shift, plain.p <= none.p <= wide.p) == (plain.shift, True)


def test_where_occasions_alone_exceed_the_threshold_more_rounds_are_not_advised() -> None:
    case = against(1.0, of_all(0.05))
    assert (case.rounds_to_see, case.note) == (None, "a slowdown of 25.0 % or more is excluded")
    assert case.detectable == pytest.approx(0.417, abs=0.001)
    hidden = against(1.0, of_all(0.2))
    assert (hidden.unseen, hidden.possible) == (
        "up to +88.1 % is possible; sessions alone differ by as much",
        pytest.approx(0.8813, abs=1e-4),
    )
    assert (hidden.remedy, hidden.rounds_to_see) == ("measure both sides alternately, with dlbench ab", None)


def occasion(chance: random.Random, drift: float, case_drift: float, third: float = 1.0) -> Rounds:
    """A suite of six cases on one occasion: all drift together and each by itself, and rounds differ by 3 %, now and then by much more.

    The third case takes so many times as long.
    """
    together = chance.gauss(0, drift)
    measurements: Rounds = []
    for number in range(6):
        centre = math.exp(together + chance.gauss(0, case_drift)) * (third if number == 2 else 1)
        rounds = [chance.lognormvariate(0, 0.03) * (1.3 if chance.random() < 0.05 else 1) for _ in range(10)]
        measurements += timed(centre, rounds, made_up.case("matmul", n=number))
    return measurements


def test_equal_programs_on_two_occasions_are_called_different_no_more_often_than_stated() -> None:
    chance = random.Random(2028)
    flagged = {True: 0, False: 0}
    for _ in range(20):
        every = [occasion(chance, 0.06, 0.04) for _ in range(7)]
        noise = estimated(*every[:5])
        for calibrated in flagged:
            found = compare(run(every[5]), run(every[6]), calibration=noise if calibrated else None)
            flagged[calibrated] += any(case.verdict.is_change for case in found.cases)
    assert flagged[True] <= 1
    assert flagged[False] >= 5  # a threshold of 10 % alone does not hold such a machine


@pytest.mark.parametrize(("drift", "occasions", "factor", "times", "least"), [(0.01, 8, 1.4, 5, 5), (0.02, 5, 1.25, 10, 7)])
def test_a_change_beyond_the_drift_is_found(drift: float, occasions: int, factor: float, times: int, least: int) -> None:
    chance, called = random.Random(2030), 0
    for _ in range(times):
        noise = estimated(*(occasion(chance, drift, drift) for _ in range(occasions)))
        base, new = run(occasion(chance, drift, drift)), run(occasion(chance, drift, drift, factor))
        slower = [case.case for case in compare(base, new, calibration=noise).cases if case.verdict.value == "slower"]
        called += slower == ["matmul[n=2]@cpu"]
    assert called >= least


def test_what_is_common_counts_once_however_many_cases_there_are() -> None:
    common, own, both = Drift(0, 40, 0.05, 4), Drift(0.05, 4), Drift(0.05, 36, 0.05, 4)
    for many in (1, 10, 100):
        # Student's t of 5 % with four degrees of freedom; of many cases by themselves that of 5 % over their number.
        assert common.half_width(1 - 0.05 / many) == pytest.approx(0.1388, abs=1e-4)
        assert common.p(0.1388, 0.0, 0, many) == pytest.approx(0.05, abs=0.004)
        assert own.p(0.2, 0.0, 0, many) == pytest.approx(min(1.0, many * 0.0161), rel=0.01)
        assert both.p(both.half_width(1 - 0.05 / many), 0.0, 0, many) == pytest.approx(0.05, abs=0.004)


def test_the_numbers_of_a_drift() -> None:
    drift, of_one_case = Drift(0.05, 36, 0.04, 4), Drift(0.03, 10)
    half_widths = [*(drift.half_width(1 - 0.05 / many, 0.06) for many in (1, 2, 20)), of_one_case.half_width(0.9, 0.02)]
    assert half_widths == pytest.approx([0.161915870, 0.183340221, 0.237112736, 0.057935428], rel=1e-7)
    p_values = [
        drift.p(0.2, 0.03, 18, 1),
        drift.p(-0.2, 0.03, 18, 5),
        Drift(0.05, 6).p(0.2, 0.03, 18, 2),
        Drift(0, 4, 0.05, 3).p(0.1, 0.02, 9, 1),
    ]
    assert p_values == pytest.approx([0.0191672425, 0.0676452342, 0.0128775831, 0.156347275], rel=1e-7)
    # Without any other variance the common part alone explains a shift, or nothing does.
    assert [Drift(0, 4).p(shift, 0, 0, 1) for shift in (0, 0.1)] == [1, 0]
    assert Drift(0, 4, 0.05, 3).p(0.1, 0, 0, 1) == pytest.approx(0.138252435, rel=1e-7)


@given(st.floats(0, 0.999999), st.integers(1, 40))
def test_the_quantile_is_the_inverse_of_p(confidence: float, freedom: int) -> None:
    assert student_p(student_quantile(confidence, freedom), freedom) == pytest.approx(1 - confidence, abs=1e-9)
    assert student_p(1e300, freedom) == pytest.approx(0, abs=1e-15)


SPREAD = [-1.0, 0.0, 1.0]
WITHIN = math.pi / 2 * 1.482602**2 / 3
CALM = [[0.0, 0.01, 0.02, 0.03, 0.04], [0.1, 0.11, 0.12, 0.13, 0.14]]


def test_the_variance_between_groups_is_what_the_spread_within_does_not_explain() -> None:
    assert variance_between([[1.0, 1.0], [3.0, 3.0]]) == variance_between([[1.0], [3.0]]) == 2
    assert variance_between([SPREAD, SPREAD]) == pytest.approx(-WITHIN, rel=1e-6)
    assert variance_between([SPREAD, [each + 4 for each in SPREAD]]) == pytest.approx(8 - WITHIN, rel=1e-6)
    wild = [[*group[:4], 9.0] for group in CALM]  # which does not hide how groups differ
    assert variance_between(wild) == variance_between(CALM) > 0.004


def test_variances_that_were_put_in_are_found_again() -> None:
    chance, sds = random.Random(1), (0.01, 0.02, 0.04)
    found = []
    for _ in range(1000):
        table = [[together + chance.gauss(0, sd) for sd in sds] for together in [chance.gauss(0, 0.03) for _ in range(5)]]
        of_rows, of_columns = two_way_variances(table)
        found.append([of_rows, *of_columns])
    shared, *own = (math.sqrt(statistics.fmean(variances)) for variances in zip(*found, strict=True))
    assert (shared, own) == (pytest.approx(0.03, rel=0.05), pytest.approx(sds, rel=0.15))
    chance = random.Random(7)
    for between, expected in ((0.05, pytest.approx(0.05, rel=0.1)), (0.0, pytest.approx(0, abs=0.01))):
        groups = [[chance.gauss(centre, 0.03) for _ in range(10)] for centre in [chance.gauss(0, between) for _ in range(400)]]
        assert math.sqrt(abs(variance_between(groups))) == expected
