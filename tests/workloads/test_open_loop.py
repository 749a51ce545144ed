"""Open loops as a user runs them: what a row has, what is refused, and that nothing is left behind."""

import os
import signal
import time
from pathlib import Path
from typing import Any

import front_door
import psutil
import pytest
import shared_hosts
from front_door import measurements

PLUGIN = str(front_door.ROOT / "tests/plugins/serving_faults.py")
QUEUE = str(front_door.ROOT / "tests/plugins/scripted_queue.py")
HEAD = 'about = "Rates."\n[policy]\nrounds = 1\nmax_rounds = 1\ntimeout_s = 60\n'
ARRIVALS = ["poisson", "constant"]


def suite(folder: Path, **axes: Any) -> str:
    given = {"model": "server", "bound_ms": 1e6, "requests": 100, **axes}
    lines = "\n".join(f"axes.{name} = {value!r}" for name, value in given.items())
    return front_door.suite(folder, f'workload = "open_loop"\ndevices = ["cpu"]\n{lines}', head=HEAD)


def ended(folder: Path, *arguments: str, **axes: Any) -> tuple[Any, Any]:
    done = shared_hosts.dlbench("run", suite(folder, **axes), "--plugin", PLUGIN, "-o", "o.jsonl", *arguments, cwd=folder)
    return done, measurements(folder / "o.jsonl") if (folder / "o.jsonl").exists() else []


def test_a_row_has_rates_latencies_and_their_parts(tmp_path: Path) -> None:
    done, rows = ended(tmp_path, rate=1000.0, arrivals=ARRIVALS, batch=4, wait_ms=1.0)
    assert done.code == 0, done.err
    values, constant = (next(each for each in rows if each["case"]["params"]["arrivals"] == name)["values"] for name in ARRIVALS)
    assert (values["requests"], len(values["missed"]), values["within"]) == (100, 7, 1.0)
    assert values["queue_s"] > 0 < values["service_s"]
    assert values["late"] >= 0
    assert constant["scheduled_per_s"] == pytest.approx(1000)
    assert values["scheduled_per_s"] != pytest.approx(1000, rel=1e-6)


def searched(folder: Path, name: str, *arguments: str) -> Any:
    bench = front_door.suite(folder, 'workload = "queue"\ndevices = ["cpu"]', head=HEAD)
    done = shared_hosts.dlbench("run", bench, "--plugin", QUEUE, "--seed", "3", "-o", name, *arguments, cwd=folder)
    assert done.code == 0, done.err
    (row,) = measurements(folder / name)
    return row


def test_a_rate_that_is_left_open_is_searched_for_under_one_pattern_at_all_rates(tmp_path: Path) -> None:
    row = searched(tmp_path, "o.jsonl")
    values, tries = row["values"], [each for each in front_door.lines(tmp_path / "o.jsonl") if each["kind"] == "try"]
    assert row["found"] == {"rate": values["highest_per_s"]}
    assert 250 <= values["highest_per_s"] < 379 < values["failing_per_s"] < values["saturation_per_s"] == 500
    assert len(values["curve_s"]) == 4
    firsts = [each for each in tries if each["case"]["params"].get("rate") in (125, 250) and each["case"]["params"]["pattern"] == 1]
    first, second = (each["values"]["scheduled_per_s"] / each["case"]["params"]["rate"] for each in firsts)
    assert first == pytest.approx(second)
    assert first != pytest.approx(1.0, rel=0.001), "not rescaled"
    shown = shared_hosts.dlbench("show", "o.jsonl", cwd=tmp_path)
    assert "highest" in shown.out
    again = shared_hosts.dlbench("run", "--resume", "o.jsonl", cwd=tmp_path)
    assert "o.jsonl is complete" in again.err


def test_a_search_that_is_resumed_comes_to_the_same(tmp_path: Path) -> None:
    whole = searched(tmp_path, "whole.jsonl")
    lines = (tmp_path / "whole.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "cut.jsonl").write_text("".join(lines[:6]))
    assert shared_hosts.dlbench("run", "--resume", "cut.jsonl", cwd=tmp_path).code == 0
    (row,) = measurements(tmp_path / "cut.jsonl")
    assert row["values"] == whole["values"]


@pytest.mark.parametrize(
    ("axes", "said"),
    [
        ({"rate": 0.0}, "rate must be a number above 0, not 0.0"),
        ({"rate": float("inf")}, "axis rate: a value must be an integer of 64 bits, a finite number"),
        ({"requests": 99}, "requests must be an integer of at least 100, not 99"),
        ({"bound_ms": 0}, "bound_ms must be a number above 0, not 0"),
    ],
)
def test_what_no_open_loop_can_have_is_refused_before_anything_runs(tmp_path: Path, axes: dict[str, Any], said: str) -> None:
    done, _ = ended(tmp_path, **{"rate": 10.0, **axes})
    assert (done.code, said in done.err) == (2, True), done.err


@pytest.mark.parametrize(
    ("axes", "status", "said"),
    [
        ({"wait_ms": -1.0}, "failed", "ValueError: wait_ms must be 0 or more, not -1"),
        ({"bound_ms": 1e-6}, "unsupported", "so that none is done within bound_ms=1e-06"),
        ({"requests": 9000}, "failed", "9900 requests are more than can be on their way at once; give 8192 or fewer"),
        ({"model": "filling", "batch": 2}, "oom", "out of memory"),
        ({"model": "failing"}, "failed", "RuntimeError: the weights are gone"),
    ],
)
def test_what_goes_wrong_is_a_row_with_a_sentence_and_no_process(tmp_path: Path, axes: dict[str, Any], status: str, said: str) -> None:
    _, (row,) = ended(tmp_path, **{"rate": 1000.0, **axes})
    assert row["status"] == status
    assert said in row["reason"]
    left = [each.cmdline() for each in psutil.Process().children(recursive=True)]
    assert not [command for command in left if any("client.py" in part for part in command)]


def started(folder: Path, *arguments: str) -> tuple[Any, int]:
    """Start a case whose service never returns; return the command, and the process that sends its requests."""
    process = front_door.start("run", suite(folder, model="staying", rate=1.0), "--plugin", PLUGIN, "-o", "o.jsonl", *arguments, cwd=folder)
    until = time.monotonic() + 120
    while not (folder / "client").exists():
        assert process.poll() is None
        assert time.monotonic() < until
        os.sched_yield()
    return process, int((folder / "client").read_text())


def test_ctrl_c_during_a_probe_leaves_no_process(tmp_path: Path) -> None:
    process, client = started(tmp_path)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert not front_door.is_alive(client)


def test_a_service_that_never_returns_is_a_timeout_and_leaves_no_process(tmp_path: Path) -> None:
    process, client = started(tmp_path, "--timeout", "20s")
    process.communicate(timeout=120)
    (row,) = measurements(tmp_path / "o.jsonl")
    assert (row["status"], row["reason"]) == ("timeout", "not done within 20 s; raise --timeout")
    assert not front_door.is_alive(client)
