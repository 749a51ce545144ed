"""The time of each tool to an interval of one width: the sums with made-up tools, and each real tool on a call that does nothing."""

import json
import re

import front_door
import pytest

from benchmarks import precision_time, precision_tools

NOOP = {"id": "noop[]@cpu", "workload": "noop", "params": {}, "threads": 1}


def test_widths_are_made_equal_by_the_square(monkeypatch, capsys):
    clock = iter(range(1000))
    monkeypatch.setattr(precision_time.time, "perf_counter", lambda: next(clock))  # so that each turn takes a second
    monkeypatch.setattr(precision_time, "_planned", lambda name: [NOOP])
    turns = iter((0.99, 1.01, 1.0, 1.0, 1.0, 1.0))
    monkeypatch.setattr(precision_time, "_by_dlbench", lambda name, turn, folder: {"noop": [next(turns)]})
    wider = iter((0.98, 1.02, 1.0, 1.0, 1.0, 1.0))
    monkeypatch.setattr(precision_time, "_by_torch", lambda cases: {"noop": [next(wider)]})
    narrower = iter((0.995, 1.005, 1.0, 1.0, 1.0, 1.0))
    monkeypatch.setattr(precision_time, "_by_pytest_benchmark", lambda folder: {"noop": [next(narrower)]})
    monkeypatch.setattr(precision_time, "_by_pyperf", lambda processes, folder: {"noop": [0.99, *[1.0] * (processes - 2), 1.01]})
    precision_time.main([])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("quick: 1 cases, 6 processes of each by every tool (")
    assert [re.split(r" {2,}", line) for line in lines[3:7]] == [
        ["dlbench", "0:06", "1.0 %", "1.00", "1.00"],
        ["torch adaptive_autorange", "0:06", "2.0 %", "1.00", "0.25"],
        ["pytest-benchmark", "0:06", "0.5 %", "1.00", "4.00"],
        ["pyperf", "0:01", "1.0 %", "6.00", "6.00"],
    ]
    assert lines[-1] == "MISSED: dlbench takes less time than every other tool to an interval of equal width"


def test_too_few_turns_are_refused(capsys):
    with pytest.raises(SystemExit, match="2"):
        precision_time.main(["--turns", "5"])
    assert "5 turns give no interval; it takes 6 or more" in capsys.readouterr().err


def test_every_tool_times_the_same_call(monkeypatch, tmp_path):
    pytest.importorskip("pyperf")
    pytest.importorskip("pytest_benchmark")
    (tmp_path / "cases.json").write_text(json.dumps([NOOP]))
    monkeypatch.setenv(precision_tools.CASES, str(tmp_path / "cases.json"))
    # Else pytest-benchmark takes its own session for one of several workers, and times nothing.
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    for found in (
        precision_time._by_torch([NOOP]),
        precision_time._by_pytest_benchmark(tmp_path),
        precision_time._by_pyperf(1, tmp_path),
    ):
        assert list(found) == [NOOP["id"]]
        assert all(0 < seconds < 1e-4 for seconds in found[NOOP["id"]])


def test_a_suite_is_planned_for_the_cpu(tmp_path):
    path = tmp_path / front_door.suite(tmp_path, 'workload = "spin"\naxes.seconds = [0.001, 0.002]')
    assert [case["params"] for case in precision_time._planned(str(path))] == [{"seconds": 0.001}, {"seconds": 0.002}]
