"""The noise between occasions: estimated, kept, and allowed for."""

import json
import math
import random
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import made_up
import pytest

from dlbench.analysis.compare.calibration import Calibration, Common, Drift, Noise, estimate, load, two_way_variances
from dlbench.analysis.compare.judge import Verdict, rank_tests
from dlbench.analysis.compare.sides import compare
from dlbench.analysis.compare.verdict import CaseVerdict, Comparison
from dlbench.analysis.read.table import Results, by_case, named
from dlbench.core.errors import ResultFileError
from dlbench.core.measurement import Measurement
from dlbench.core.model import Status
from dlbench.core.rows.summary import per_round, summarise

TEN = (1.00, 1.01, 0.99, 1.02, 0.98, 1.005, 0.995, 1.015, 0.985, 1.001)
ONE, TWO, THREE, FOUR = (made_up.case("matmul", n=n) for n in (1, 2, 3, 4))


def runs(*measurements: Sequence[Measurement]) -> Results:
    cases = [(f"run{number}", each) for number, some in enumerate(measurements) for each in by_case(some)]
    environments = {
        f"run{number}": {"provenance": {"utc": f"2026-01-{number + 1:02}T12:00:00+00:00"}} for number in range(len(measurements))
    }
    return Results(tuple(named(summarise(each), name) for name, each in cases), (), environments)


def timed(factor: float, case: made_up.Case = ONE, rounds: Sequence[float] = TEN) -> list[Measurement]:
    return made_up.rounds_of(case, made_up.flat([factor * each for each in rounds]))


def test_the_noise_of_constant_rounds_is_that_of_their_logarithms() -> None:
    found = estimate("m", runs(timed(1, rounds=[1.0]), timed(math.exp(0.02), rounds=[1.0]), timed(math.exp(0.04), rounds=[1.0])))
    assert found is not None
    assert found.cases == {ONE.id: Noise(3, *[pytest.approx(0.02)] * 3)}
    assert found.pooled == Noise(3, *[pytest.approx(0.02)] * 3)
    assert (found.machine_key, found.first[:10], found.last[:10]) == ("m", "2026-01-01", "2026-01-03")


def test_occasions_alike_have_no_noise_and_cases_are_pooled() -> None:
    found = estimate("m", runs([*timed(1), *timed(1, TWO)], [*timed(1), *timed(1.2, TWO)]))
    assert found is not None
    own = math.log(1.2) / math.sqrt(2)
    # Of two cases, of which one moved, nobody can tell which it was.
    assert found.cases[ONE.id].median == found.cases[TWO.id].median == pytest.approx(own / math.sqrt(2), rel=0.01)
    assert found.pooled.median == pytest.approx(own / math.sqrt(2), rel=0.01)
    assert found.common == Common(2, *[pytest.approx(0.0, abs=1e-6)] * 3, cases=2)


def test_what_all_cases_do_is_told_from_what_each_does() -> None:
    shared, own = (0.02, -0.01, -0.01), [(ONE, (0.0, 0.0, 0.0)), (TWO, (0.01, 0.0, -0.01)), (THREE, (-0.01, 0.0, 0.01))]
    every = [[each for case, alone in own for each in timed(math.exp(shared[at] + alone[at]), case, [1.0])] for at in range(3)]
    found = estimate("m", runs(*every))
    assert found is not None
    assert found.common is not None
    # Residual squares 2e-4 each of two cases: over (3 - 1) (3 - 1) a mean of 1e-4, of which a third is in each mean of three cases.
    assert (found.common.occasions, found.common.cases) == (3, 3)
    assert found.common.median == pytest.approx(math.sqrt(3e-4 - 1e-4 / 3))
    assert found.pooled.median == pytest.approx(0.01)
    assert found.cases[ONE.id].median == 0
    assert found.cases[TWO.id].median == pytest.approx(math.sqrt((1e-4 - 1e-4 / 3) * 3))
    # One that was there twice only is not in the table, and keeps its noise as a whole.
    every[0] += timed(1.0, FOUR, [1.0])
    every[1] += timed(math.exp(0.1), FOUR, [1.0])
    more = estimate("m", runs(*every))
    assert more is not None
    assert (more.common, more.pooled) == (found.common, found.pooled)
    assert more.cases[FOUR.id] == Noise(2, *[pytest.approx(0.1 / math.sqrt(2))] * 3)
    drift = more.drifts(ONE.id)["median"]
    assert (drift.freedom, drift.common_freedom, drift.common) == (4, 2, pytest.approx(math.sqrt(2) * found.common.median))


def test_two_way_variances_are_those_that_were_put_in() -> None:
    chance, sds = random.Random(1), (0.01, 0.02, 0.04)
    shared, own = [], []
    for _ in range(1000):
        table = [[together + chance.gauss(0, sd) for sd in sds] for together in [chance.gauss(0, 0.03) for _ in range(5)]]
        of_rows, of_columns = two_way_variances(table)
        shared.append(of_rows)
        own.append(of_columns)
    assert math.sqrt(statistics.fmean(shared)) == pytest.approx(0.03, rel=0.05)
    for sd, variances in zip(sds, zip(*own, strict=True), strict=True):
        assert math.sqrt(statistics.fmean(variances)) == pytest.approx(sd, rel=0.15)


def test_one_occasion_tells_nothing() -> None:
    assert estimate("m", runs(timed(1))) is None
    assert estimate("m", runs(timed(1), timed(1, TWO))) is None
    assert estimate("m", runs(timed(1), [made_up.ended(ONE, Status.OOM, "too large")])) is None
    assert estimate("m", runs(timed(0), timed(0))) is None


NOISE = Calibration("m", "", "", Noise(5, 0.03, 0.01, 0.05), {ONE.id: Noise(4, 0.05, 0.005, 0.06)}, Common(5, 0.02, 0.04, 0.01, cases=6))


def test_a_case_drifts_as_all_do_and_more_where_it_was_seen_to() -> None:
    root = math.sqrt(2)
    p10 = Drift(0.01 * root, 20, 0.04 * root, 4)
    of_one = {"median": Drift(0.05 * root, 20, 0.02 * root, 4), "p10": p10, "mean": Drift(0.06 * root, 20, 0.01 * root, 4)}
    assert NOISE.drifts(ONE.id) == of_one
    of_two = {"median": Drift(0.03 * root, 20, 0.02 * root, 4), "p10": p10, "mean": Drift(0.05 * root, 20, 0.01 * root, 4)}
    assert NOISE.drifts(TWO.id) == of_two


def test_a_calibration_survives_its_file(tmp_path: Path) -> None:
    path = tmp_path / "m.json"
    path.write_text(json.dumps(NOISE.to_json()))
    assert load(path) == NOISE


GOOD: dict[str, Any] = NOISE.to_json()


def invalid(why: str) -> str:
    return f"m.json is not a valid calibration ({why}); make it again: dlbench calibrate"


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("", invalid("Input data was truncated")),
        (json.dumps(GOOD)[:-9], invalid("Input data was truncated")),
        ("[]", invalid("Expected `object`, got `array`")),
        ('{"kind": "header", "schema": 1}', invalid("Invalid enum value 'header' - at `$.kind`")),
        (json.dumps({**GOOD, "schema": 3}), invalid("Invalid enum value 3 - at `$.schema`")),
        (
            json.dumps({name: value for name, value in GOOD.items() if name != "common"}),
            invalid("Object missing required field `common`"),
        ),
        (
            json.dumps({**GOOD, "common": {**GOOD["common"], "occasions": 1}}),
            invalid("Expected `int` >= 2 - at `$.common.occasions`"),
        ),
        (
            json.dumps({**GOOD, "common": {**GOOD["common"], "cases": 1.5}}),
            invalid("Expected `int`, got `float` - at `$.common.cases`"),
        ),
        (
            json.dumps({**GOOD, "common": {**GOOD["common"], "p10": None}}),
            invalid("Expected `float`, got `null` - at `$.common.p10`"),
        ),
        (
            json.dumps({**GOOD, "pooled": {**GOOD["pooled"], "mean": None}}),
            invalid("Expected `float`, got `null` - at `$.pooled.mean`"),
        ),
        (
            json.dumps({**GOOD, "pooled": {**GOOD["pooled"], "occasions": 1}}),
            invalid("Expected `int` >= 2 - at `$.pooled.occasions`"),
        ),
        (
            json.dumps({**GOOD, "pooled": {**GOOD["pooled"], "median": -0.1}}),
            invalid("Expected `float` >= 0.0 - at `$.pooled.median`"),
        ),
        (
            json.dumps({**GOOD, "pooled": {**GOOD["pooled"], "median": float("nan")}}),
            invalid("JSON is malformed: invalid character (byte 83)"),
        ),
        (
            json.dumps({name: value for name, value in GOOD.items() if name != "pooled"}),
            invalid("Object missing required field `pooled`"),
        ),
        (
            json.dumps({**GOOD, "machine_key": 3}),
            invalid("Expected `str`, got `int` - at `$.machine_key`"),
        ),
    ],
)
def test_a_file_that_is_no_calibration_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str, sentence: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("m.json").write_text(content)
    with pytest.raises(ResultFileError) as caught:
        load(Path("m.json"))
    assert str(caught.value) == sentence


def of_all(sd: float, occasions: int = 5) -> Calibration:
    return Calibration("m", "", "", Noise(occasions, sd, sd, sd), {}, None)


def against(factor: float, calibration: Calibration | None) -> CaseVerdict:
    base, new = (runs(timed(each)) for each in (1, factor))
    comparison: Comparison = compare(base, new, calibration=calibration)
    return comparison.cases[0]


def test_a_verdict_needs_more_than_what_occasions_do() -> None:
    assert against(1.2, None).verdict is Verdict.SLOWER
    assert against(1.2, of_all(0.01)).verdict is Verdict.SLOWER
    assert against(1.2, of_all(0.05)).verdict is Verdict.INCONCLUSIVE
    assert against(3.0, of_all(0.05)).verdict is Verdict.SLOWER
    assert against(0.3, of_all(0.05)).verdict is Verdict.FASTER
    assert against(1.0, of_all(0.01)).verdict is Verdict.SAME
    assert against(1.0, of_all(0.05)).verdict is Verdict.INCONCLUSIVE


def tailed(slow: float) -> list[Measurement]:
    """Ten rounds in which one call of three takes that many times as long."""
    return made_up.rounds_of(ONE, [[each, each, slow * each] for each in TEN])


def test_occasions_that_differ_in_their_slow_calls_are_no_change_of_the_program() -> None:
    calm, slow = runs(tailed(1)), runs(tailed(3))
    assert compare(calm, slow).cases[0].verdict is Verdict.SLOWER
    steady = estimate("m", runs(tailed(1), tailed(1.01), tailed(1)))
    assert compare(calm, slow, calibration=steady).cases[0].statistic == "mean"
    tails = estimate("m", runs(tailed(1), tailed(3), tailed(1)))
    assert tails is not None
    assert (tails.pooled.median, tails.pooled.mean) == (0, pytest.approx(math.log(5 / 3) / math.sqrt(3), rel=1e-3))
    assert compare(calm, slow, calibration=tails).cases[0].verdict is Verdict.INCONCLUSIVE


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
    assert none.interval
    assert wide.interval
    assert (none.interval.low, none.interval.high) == (pytest.approx(plain.interval.low), pytest.approx(plain.interval.high))
    assert wide.interval.low < plain.interval.low < plain.interval.high < wide.interval.high
    by = Drift(0.1, 4).half_width(plain.interval.confidence)
    assert wide.interval.high - wide.shift == pytest.approx(math.hypot(plain.interval.high - plain.shift, by))
    assert wide.shift == plain.shift
    assert plain.p <= none.p <= wide.p


def test_where_occasions_alone_exceed_the_threshold_more_rounds_are_not_advised() -> None:
    case = against(1.0, of_all(0.05))
    assert (case.rounds_to_see, case.note) == (None, "a slowdown of 25.0 % or more is excluded")
    assert case.detectable is not None
    assert case.detectable == pytest.approx(0.417, abs=0.001)


def occasion(chance: random.Random, drift: float, case_drift: float, cases: int = 6) -> list[Measurement]:
    """A suite on one occasion: all cases drift together and each by itself, and rounds differ by 3 %, now and then by much more."""
    together = chance.gauss(0, drift)
    measurements: list[Measurement] = []
    for number in range(cases):
        centre = math.exp(together + chance.gauss(0, case_drift))
        rounds = [centre * chance.lognormvariate(0, 0.03) * (1.3 if chance.random() < 0.05 else 1) for _ in range(10)]
        measurements += made_up.rounds_of(made_up.case("matmul", n=number), made_up.flat(rounds))
    return measurements


def test_equal_programs_on_two_occasions_are_called_different_no_more_often_than_stated() -> None:
    chance = random.Random(2028)
    flagged = {True: 0, False: 0}
    for _ in range(40):
        every = [occasion(chance, 0.06, 0.04) for _ in range(7)]
        noise = estimate("m", runs(*every[:5]))
        base, new = runs(every[5]), runs(every[6])
        for calibrated in flagged:
            found = compare(base, new, calibration=noise if calibrated else None)
            flagged[calibrated] += any(case.verdict in (Verdict.SLOWER, Verdict.FASTER) for case in found.cases)
    assert flagged[True] <= 2
    assert flagged[False] >= 10  # a threshold of 10 % alone does not hold such a machine


def test_a_change_beyond_the_drift_is_found() -> None:
    chance = random.Random(2029)
    noise = estimate("m", runs(*(occasion(chance, 0.01, 0.01) for _ in range(8))))
    slower = [
        [made_up.scaled(each, 1.4 if each.case.id.startswith("matmul[n=2]") else 1) for each in occasion(chance, 0.01, 0.01)]
        for _ in range(10)
    ]
    for each in slower:
        found = compare(runs(occasion(chance, 0.01, 0.01)), runs(each), calibration=noise)
        assert [case.case for case in found.cases if case.verdict is Verdict.SLOWER] == ["matmul[n=2]@cpu"]


def test_a_quarter_more_time_is_called_after_five_occasions() -> None:
    chance = random.Random(2030)
    called = 0
    for _ in range(20):
        every = [occasion(chance, 0.02, 0.02) for _ in range(7)]
        base, new = runs(every[5]), [made_up.scaled(each, 1.25 if each.case.id == "matmul[n=2]@cpu" else 1) for each in every[6]]
        found = compare(base, runs(new), calibration=estimate("m", runs(*every[:5])))
        called += [case.case for case in found.cases if case.verdict is Verdict.SLOWER] == ["matmul[n=2]@cpu"]
    assert called >= 14


def test_what_is_common_counts_once_however_many_cases_there_are() -> None:
    common, own = Drift(0, 40, 0.05, 4), Drift(0.05, 4)
    for many in (1, 10, 100):
        # Student's t of 5 % with four degrees of freedom; of many cases by themselves that of 5 % over their number.
        assert common.half_width(1 - 0.05 / many) == pytest.approx(0.1388, abs=1e-4)
        assert common.p(0.1388, 0.0, 0, many) == pytest.approx(0.05, abs=0.004)
        assert own.p(0.2, 0.0, 0, many) == pytest.approx(min(1.0, many * 0.0161), rel=0.01)
    both = Drift(0.05, 36, 0.05, 4)
    for many in (1, 10, 100):
        assert both.p(both.half_width(1 - 0.05 / many), 0.0, 0, many) == pytest.approx(0.05, abs=0.004)
