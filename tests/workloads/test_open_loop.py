"""Open loops as a user runs them: what a row has, what is refused, and that nothing is left behind."""

from pathlib import Path
from typing import Any, Self

import front_door
import psutil
import pytest
import shared_hosts
import torch
from front_door import measurements
from scripted_loop import ScriptedServer

from dlbench import Work
from dlbench.workloads import serving as module
from dlbench.workloads.serving import count_requests, cpus_of_client, open_loop

pytestmark = pytest.mark.real

CPU = torch.device("cpu")

PLUGIN = str(front_door.ROOT / "tests/plugins/serving_faults.py")
QUEUE = str(front_door.ROOT / "tests/plugins/scripted_queue.py")
HEAD = 'about = "Rates."\n[policy]\nrounds = 1\nmax_rounds = 1\ntimeout_s = 60\n'


def ended(folder: Path, *benches: dict[str, Any]) -> tuple[Any, Any]:
    texts = []
    for axes in benches:
        given = {"model": "server", "bound_ms": 1e6, "requests": 100, "rate": 1000.0, **axes}
        texts.append('workload = "open_loop"\ndevices = ["cpu"]\n' + "\n".join(f"axes.{name} = {value!r}" for name, value in given.items()))
    done = shared_hosts.dlbench("run", front_door.suite(folder, *texts, head=HEAD), PLUGIN, "-o", "o.jsonl", cwd=folder)
    return done, measurements(folder / "o.jsonl") if (folder / "o.jsonl").exists() else []


def test_a_row_has_rates_latencies_and_their_parts(tmp_path):
    done, rows = ended(tmp_path, {"arrivals": ["poisson", "constant"], "batch": 4, "wait_ms": 1.0})
    assert done.code == 0, done.err
    for values in (each["values"] for each in rows):
        assert (values["requests"], len(values["missed"]), values["within"]) == (100, 7, 1.0)
        assert values["late"] >= 0


class ScriptedDevice(ScriptedServer):
    """A clock, steps that move it by a ms for each of their batch, and a client that sends by it."""

    def __init__(self) -> None:
        super().__init__([], lambda size: 0.001 * size)
        self.given: dict[str, Any] = {}
        self.stamp = self.now

    def step(self, device: torch.device, *, batch: int, **given: Any) -> Work:
        self.given = given
        return Work(call=lambda: self.service(batch) or torch.zeros(batch), items=batch)

    def __call__(self, times: list[float], cpus: Any) -> Self:
        self.planned = times
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def start(self) -> list[float]:
        self.sizes.clear()
        self._times, self._come = [self.now_s + each for each in self.planned], 0
        return self._times


def test_requests_are_put_into_batches_of_powers_of_two_and_padded(monkeypatch):
    device = ScriptedDevice()
    monkeypatch.setattr(module, "infer_step", device.step)
    monkeypatch.setattr(module, "Client", device)
    params = {"model": "resnet18", "bound_ms": 50.0, "batch": 6, "mode": "freeze"}
    assert open_loop(CPU, **params).observe(device) == {"saturation_per_s": pytest.approx(1000)}
    values = open_loop(CPU, **params, rate=700.0, arrivals="constant", requests=200).observe(device)
    assert device.given == {"model": "resnet18", "dtype": "fp32", "layout": "nchw", "mode": "freeze"}
    assert {*device.sizes} <= {1, 2, 4, 6}
    assert device.planned[:3] == pytest.approx([1 / 700, 2 / 700, 3 / 700])
    assert len(device.planned) == 220, "a tenth goes ahead"
    assert values["requests"] == 200
    assert (values["within"], values["late"], values["backlog"]) == (1.0, 0.0, 0)


@pytest.mark.parametrize(
    ("mine", "others", "threads", "found"),
    [
        ({0, 1}, {0, 1}, 2, set()),  # all of them compute
        ({0, 1}, {0, 1}, 1, set()),  # the system finds it one
        ({0}, {0, 1}, 1, {1}),  # the case is pinned, and leaves it another
        ({0, 1}, {0, 1, 2, 3}, 1, set()),
    ],
)
def test_a_client_gets_a_cpu_of_its_own_where_the_server_leaves_one(monkeypatch, mine, others, threads, found):
    monkeypatch.setattr(module.os, "sched_getaffinity", lambda pid: others if pid else mine)
    assert cpus_of_client(threads) == found


@pytest.mark.parametrize(
    ("percentile", "load", "given", "count"),
    [("p90", 0.1, None, 300), ("p90", 0.8, None, 625), ("p90", 1.5, None, 2000), ("p99", 0.1, None, 2000), ("p90", 0.8, 150, 150)],
)
def test_a_run_has_more_requests_close_to_capacity(percentile, load, given, count):
    assert count_requests(percentile, load, given) == (count // 10 if count != 625 else 62, count)


def searched(folder: Path, name: str, *arguments: str) -> Any:
    bench = front_door.suite(folder, 'workload = "queue"\ndevices = ["cpu"]', head=HEAD)
    done = shared_hosts.dlbench("run", bench, QUEUE, "--seed", "3", "-o", name, *arguments, cwd=folder)
    assert done.code == 0, done.err
    (row,) = measurements(folder / name)
    return row


def test_a_rate_that_is_left_open_is_searched_for_under_one_pattern_at_all_rates(tmp_path):
    row = searched(tmp_path, "o.jsonl")
    values, tries = row["values"], [each for each in front_door.lines(tmp_path / "o.jsonl") if each["kind"] == "try"]
    assert row["found"] == {"rate": values["highest_per_s"]}
    assert 250 <= values["highest_per_s"] < 379 < values["failing_per_s"] < values["saturation_per_s"] == 500
    assert len(values["curve_s"]) == 4
    assert {each["case"]["params"].get("pattern") for each in tries} >= {1}
    shown = shared_hosts.dlbench("show", "o.jsonl", cwd=tmp_path)
    assert "highest" in shown.out
    again = shared_hosts.dlbench("run", "--resume", "o.jsonl", cwd=tmp_path)
    assert "o.jsonl is complete" in again.err


def test_a_search_that_is_resumed_comes_to_the_same(tmp_path):
    whole = searched(tmp_path, "whole.jsonl")
    lines = (tmp_path / "whole.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "cut.jsonl").write_text("".join(lines[:6]))
    assert shared_hosts.dlbench("run", "--resume", "cut.jsonl", cwd=tmp_path).code == 0
    (row,) = measurements(tmp_path / "cut.jsonl")
    assert row["values"] == whole["values"]


WRONG = [
    ({"wait_ms": -1.0}, "failed", "ValueError: wait_ms must be 0 or more, not -1"),
    ({"bound_ms": 1e-6}, "unsupported", "so that none is done within bound_ms=1e-06"),
    ({"requests": 9000}, "failed", "9900 requests are more than can be on their way at once; give 8192 or fewer"),
    ({"model": "filling", "batch": 2}, "oom", "out of memory"),
    ({"model": "failing"}, "failed", "RuntimeError: the weights are gone"),
]


def test_what_goes_wrong_is_a_row_with_a_sentence_and_no_process(tmp_path):
    _, rows = ended(tmp_path, *(axes for axes, *_ in WRONG))
    for axes, status, said in WRONG:
        (row,) = (each for each in rows if axes.items() <= each["case"]["params"].items())
        assert (row["status"], said in row["reason"]) == (status, True), row
    left = [each.cmdline() for each in psutil.Process().children(recursive=True)]
    assert not [command for command in left if any("client.py" in part for part in command)]
