"""The time of each tool to an interval of one width: the sums with made-up tools, and each real tool on a call that does nothing."""

import json

import front_door
import pytest

from benchmarks import precision_time, precision_tools

NOOP = {"id": "noop[]@cpu", "workload": "noop", "params": {}, "threads": 1}


def spread(percent, middle=1.0):
    """Two values whose logarithms lie so far from the middle's."""
    return {"noop": [middle * 1.01**percent, middle * 1.01**-percent]}


def test_to_equal_width_time_counts_by_variance_within_turns(monkeypatch, printed):
    clock = iter(range(1000))
    monkeypatch.setattr(precision_time.time, "perf_counter", lambda: next(clock))  # so that each turn takes a second
    monkeypatch.setattr(precision_time, "_planned", lambda name: [NOOP])
    order = []

    def finds(tool, percent):
        def turn(*arguments):
            order.append(tool)
            return spread(percent, middle=len(order))  # the machine changes between turns, and no tool pays for that

        return turn

    for tool, percent in (("dlbench", 2), ("torch", 4), ("pytest_benchmark", 1), ("pyperf", 2)):
        monkeypatch.setattr(precision_time, f"_by_{tool}", finds(tool, percent))
    table, verdict = printed(precision_time, "--rounds", "2")
    assert order == ["dlbench", "torch", "pytest_benchmark", "pyperf", "pyperf", "pytest_benchmark", "torch", "dlbench"]
    assert table[1:] == [
        ["dlbench", "torch imported, by the cases of a round", "0:02", "2.8 %", "1.00", "1.00"],
        ["torch adaptive_autorange", "nothing", "0:02", "5.6 %", "1.00", "0.25"],
        ["pytest-benchmark", "all of a session, by its cases", "0:02", "1.4 %", "1.00", "4.00"],
        ["pyperf", "nothing", "0:02", "2.8 %", "1.00", "1.00"],
    ]
    assert verdict == "MISSED: to equal width at most 0.5 x torch adaptive_autorange, 1.0 x pytest-benchmark and 0.4 x pyperf"


def test_over_several_cases_the_ratio_is_a_geometric_mean_with_its_interval(monkeypatch, capsys):
    clock = iter(range(1000))
    monkeypatch.setattr(precision_time.time, "perf_counter", lambda: next(clock))
    monkeypatch.setattr(precision_time, "_planned", lambda name: [NOOP] * 3)
    for tool, (one, other) in {"dlbench": (1, 1), "torch": (2, 4), "pytest_benchmark": (1, 1), "pyperf": (4, 4)}.items():
        found = {"a": spread(one)["noop"], "b": spread(other)["noop"], f"by {tool} alone": spread(9)["noop"]}
        monkeypatch.setattr(precision_time, f"_by_{tool}", lambda *arguments, found=found: found)
    precision_time.main(["--rounds", "2", "--turns", "1"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "quick: 2 of 3 cases, 2 processes of each by every tool:"
    # 1/4 and 1/16: the interval is that of two logarithms, with 12.7 of their standard errors.
    assert [line[:-2].rpartition("| ")[2].strip() for line in lines[4:8]] == [
        "1.00",
        "0.12 (0.00 to 835.33)",
        "1.00 (1.00 to 1.00)",
        "0.06 (0.06 to 0.06)",
    ]
    assert lines[9].startswith("reached: ")


def test_every_tool_times_the_same_call(monkeypatch, tmp_path):
    pytest.importorskip("pyperf")
    pytest.importorskip("pytest_benchmark")
    suite = str(tmp_path / front_door.suite(tmp_path, 'workload = "noop"'))
    (tmp_path / "cases.json").write_text(json.dumps([NOOP]))
    monkeypatch.setenv(precision_tools.CASES, str(tmp_path / "cases.json"))
    # Else pytest-benchmark takes its own session for one of several workers, and times nothing.
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    for found in (
        precision_time._by_dlbench(suite, 1, 0, tmp_path),
        precision_time._by_torch([NOOP], 1),
        precision_time._by_pytest_benchmark(1, tmp_path),
        precision_time._by_pyperf(1, 0, tmp_path),
    ):
        (values,) = found.values()
        (seconds,) = values
        assert 0 < seconds < 1e-4
