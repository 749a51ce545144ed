"""Rates of real occasions, of made-up files."""

from datetime import UTC, datetime, timedelta

import made_up
import pytest

from benchmarks import drift
from dlbench.core.units import percent

pytestmark = pytest.mark.real

ONE, TWO = made_up.case("matmul", n=1), made_up.case("matmul", n=2)
START = datetime(2026, 1, 1, tzinfo=UTC)


def occasion(folder, hours, factor=1.0, sha="abc"):
    where = {"machine_key": "m", "stack_key": "s", "provenance": {"utc": (START + timedelta(hours=hours)).isoformat(), "git": {"sha": sha}}}
    rounds = made_up.rounds_of(ONE, made_up.flat(made_up.SEVEN)) + made_up.rounds_of(TWO, made_up.flat([factor * s for s in made_up.SEVEN]))
    made_up.write(folder / f"{hours}-{sha}.jsonl", rounds, environment=where, footer={"seconds": 180.0})


def test_fewer_than_twelve_occasions_an_hour_apart_give_no_rate(tmp_path, capsys):
    drift.main([str(tmp_path)])
    assert capsys.readouterr().out == (
        f"0 of 0 files in {tmp_path} are occasions of the same code that lie 60 min apart or more; "
        "12 more and there are rates: make drift, every two hours, such as from cron\n"
    )
    for number in range(11):
        occasion(tmp_path, 2 * number)
        occasion(tmp_path, 2 * number + 0.5)
        occasion(tmp_path, 2 * number + 1, sha="another")
    drift.main([str(tmp_path)])
    assert capsys.readouterr().out == (
        f"11 of 33 files in {tmp_path} are occasions of the same code that lie 60 min apart or more; "
        "1 more and there are rates: make drift, every two hours, such as from cron\n"
    )


@pytest.mark.parametrize("factor", [1.0, 1.5])
def test_rates_by_the_time_between_occasions(tmp_path, monkeypatch, factor):
    reports = []
    monkeypatch.setattr(drift, "report", lambda *arguments: reports.append(arguments))
    for number in range(12):
        occasion(tmp_path, 3 * number, factor if number == 11 else 1.0)
    drift.main([str(tmp_path)])
    ((title, _, rows, *_),) = reports
    assert title == "12 occasions of identical code"
    expected = []
    for time, pairs, called in (("60 min to 6 h", 21, 2), ("6 h to 24 h", 39, 6), ("24 h to 7 days", 6, 3)):
        suites, cases = (percent(each) for each in (called / pairs, called / pairs / 2)) if factor > 1 else ("0.0 %", "0.0 %")
        expected.append((time, str(pairs), suites, f"{cases} of {2 * pairs}"))
    assert rows == expected
