"""``dlbench run`` with cases of several ranks, by the front door: real launches of torchrun, and what ends as which row."""

import signal
import socket
import time

import front_door
import pytest
from front_door import PLUGINS, PRETEND, dlbench, measurements, start

from dlbench.core.errors import explained

pytestmark = pytest.mark.real

RANK_FAULTS = str(PLUGINS / "rank_faults.py")
HEAD = front_door.HASTY.replace("timeout_s = 20", "timeout_s = 6")


def by_id(path):
    return {each["case"]["id"].removesuffix("@cpu"): each for each in measurements(path)}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """One round over what goes well, what goes wrong and what can't be."""
    folder = tmp_path_factory.mktemp("ranks")
    benches = [
        'workload = "together"\naxes.ranks = 2\naxes.n = [10, 20]',
        'workload = "who_am_i"\naxes.ranks = [1, 2, 4096]',
        'workload = "raises_in_one"\naxes.ranks = 2\naxes.last = false',
        'workload = "refuses"\naxes.ranks = 2',
        f'workload = "dies_in_one"\naxes.ranks = 2\naxes.number = [{signal.SIGKILL:d}, -7]',
        f'workload = "hangs_in_one"\naxes.ranks = 2\naxes.folder = "{folder}"',
        'workload = "too_big_in_one"\naxes.ranks = 2',
    ]
    suite = front_door.suite(folder, *benches, head=HEAD)
    done = dlbench("run", suite, RANK_FAULTS, "--rounds", "1", "--device", "cpu", "-o", "o.jsonl", cwd=folder, cpus=2)
    assert done.code == 5, done.err
    return by_id(folder / "o.jsonl"), folder


def test_a_sweep_over_ranks_goes_on_whatever_happens_and_names_the_rank(run):
    rows, folder = run
    ended = {case: (row["status"], row.get("reason")) for case, row in rows.items()}
    assert ended.pop("too_big_in_one[ranks=2]")[1].startswith("rank 1: out of memory: ")
    assert ended == {
        "together[ranks=2]": ("ok", None),
        "together[ranks=2,n=20]": ("ok", None),
        "who_am_i[ranks=1]": ("ok", None),
        "who_am_i[ranks=2]": ("ok", None),
        "who_am_i[ranks=4096]": ("unsupported", "4096 ranks need as many cores, and there are 2 to use"),
        "raises_in_one[ranks=2,last=false]": ("failed", "rank 0: ValueError: only here"),
        "refuses[ranks=2]": ("failed", "ValueError: 3 does not divide by 2"),
        "dies_in_one[ranks=2,number=9]": ("crashed", "rank 1 was killed by SIGKILL"),
        "dies_in_one[ranks=2,number=-7]": ("crashed", "rank 1 ended with exit code 7 and no result"),
        f"hangs_in_one[ranks=2,folder={folder}]": (
            "timeout",
            "not done within 6 s; raise --timeout",
        ),
    }
    assert rows["too_big_in_one[ranks=2]"]["status"] == "oom"


def test_all_ranks_count_as_one_measurement(run):
    rows, _ = run
    row = rows["together[ranks=2]"]
    assert row["samples"]["calls"] > 1
    assert len(row["samples"]["block_s"]) >= 3
    assert row["items"] == 20
    assert row["memory"]["host_peak_bytes"] > 0
    assert explained(row["missing_reasons"]["device_s"]) == "each of several ranks has a device of its own"
    assert explained(row["missing_reasons"]["transfer"]) == "inputs and output are in host memory already"


def test_every_rank_is_a_process_with_its_share_of_the_threads_and_the_same_seed(run):
    rows, _ = run
    one, two = rows["who_am_i[ranks=1]"], rows["who_am_i[ranks=2]"]
    assert (one["values"]["size"], two["values"]["size"]) == (1, 2)
    assert (one["values"]["processes"], two["values"]["processes"]) == (1, 2)
    assert one["values"]["seeds"] == two["values"]["seeds"] == 1
    assert two["values"]["threads"] == two["threads"] == max(1, one["threads"] // 2)
    assert two["values"]["clock"] > 0


def test_nobody_is_left_and_the_port_is_free(run):
    _, folder = run
    pids, port = left_by(folder)
    assert not any(map(front_door.is_alive, pids))
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # connections that were cut may linger; a listener would still refuse
        probe.bind(("", port))


def left_by(folder):
    """The processes, torchrun's among them, and the port of the case that hangs."""
    said = [list(map(int, (folder / f"rank{rank}").read_text().split())) for rank in (0, 1)]
    return {pid for each in said for pid in each[:2]}, said[0][2]


def test_ranks_on_accelerators_have_a_device_each_and_one_launch_serves_all_cases_of_its_size(tmp_path):
    benches = ['workload = "who_am_i"\naxes.ranks = 2\naxes.n = [1, 2]', 'workload = "together"\naxes.ranks = [2, 3]']
    benches += ['workload = "refuses"\naxes.ranks = 2', 'workload = "takes_memory"\naxes.ranks = 2\naxes.n = [1, 2]']
    arguments = ("run", front_door.suite(tmp_path, *benches, head=HEAD), RANK_FAULTS, PRETEND, "--rounds", "1")
    done = dlbench(*arguments, "--device", "pretend", "--seed", "7", "-o", "o.jsonl", cwd=tmp_path)
    assert done.code == 5, done.err
    rows = by_id(tmp_path / "o.jsonl")
    # Between the two that tell their process comes one that every rank refuses, which costs no launch.
    order = [row["case"]["workload"] for row in front_door.measurements(tmp_path / "o.jsonl") if row["case"]["params"]["ranks"] == 2]
    assert order == ["who_am_i", "takes_memory", "takes_memory", "refuses", "together", "who_am_i"]
    assert {case: row["status"] for case, row in rows.items()} == {
        "who_am_i[ranks=2]@pretend:0": "ok",
        "who_am_i[ranks=2,n=2]@pretend:0": "ok",
        "together[ranks=2]@pretend:0": "ok",
        "together[ranks=3]@pretend:0": "unsupported",
        "refuses[ranks=2]@pretend:0": "failed",
        "takes_memory[ranks=2,n=1]@pretend:0": "ok",
        "takes_memory[ranks=2,n=2]@pretend:0": "ok",
    }
    # The second is told its memory, too, although the first has just freed as much.
    assert min(rows[f"takes_memory[ranks=2,n={n}]@pretend:0"]["memory"]["host_peak_bytes"] for n in (1, 2)) >= 64 << 20
    assert rows["together[ranks=2]@pretend:0"]["missing_reasons"]["transfer"] == [{"reason": "several_devices"}]
    assert len({row["values"]["pid"] for row in rows.values() if "values" in row}) == 1
    assert rows["together[ranks=2]@pretend:0"]["device_name"] == "Pretend [/0] accelerator + Pretend [/1] accelerator"
    assert rows["together[ranks=2]@pretend:0"]["memory"]["peak_bytes"] == 1_000_000
    assert rows["together[ranks=3]@pretend:0"]["reason"] == "3 ranks need as many pretend devices, and there are 2 to use"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_no_rank_survives_an_interrupted_or_a_killed_run(tmp_path, number):
    suite = front_door.suite(tmp_path, f'workload = "hangs_in_one"\naxes.ranks = 2\naxes.folder = "{tmp_path}"', head=front_door.HASTY)
    process = start("run", suite, RANK_FAULTS, "--device", "cpu", "--timeout", "60s", "-o", "o.jsonl", cwd=tmp_path, cpus=2)
    wait_until(
        lambda: all((tmp_path / f"rank{rank}").exists() and (tmp_path / f"rank{rank}").read_text().count(" ") == 2 for rank in (0, 1))
    )
    pids, port = left_by(tmp_path)
    assert all(map(front_door.is_alive, pids))
    process.send_signal(number)
    process.communicate(timeout=60)
    assert process.returncode == {signal.SIGINT: 130, signal.SIGKILL: -signal.SIGKILL}[number]
    wait_until(lambda: not any(map(front_door.is_alive, pids)))
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("", port))


def wait_until(condition):
    """Poll, bounded: what is waited for is another process."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.02)
