"""``dlbench run`` with cases of several ranks, by the front door: real launches of torchrun, and what ends as which row."""

import signal
import socket
import time

import front_door
import pytest
from front_door import PLUGINS, PRETEND, run, start

from dlbench.core.errors import explained

pytestmark = pytest.mark.real

RANK_FAULTS = str(PLUGINS / "rank_faults.py")
HEAD = front_door.HASTY.replace("timeout_s = 20", "timeout_s = 6")


def by_id(rows):
    return {each["case"]["id"].removesuffix("@cpu"): each for each in rows}


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
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
    _, rows = run(folder, suite, RANK_FAULTS, "--rounds", "1", "--device", "cpu", code=5, cpus=2)
    return by_id(rows), folder


def test_a_sweep_over_ranks_goes_on_whatever_happens_and_names_the_rank(ran):
    rows, folder = ran
    ended = {case: (row["status"], row.get("reason")) for case, row in rows.items()}
    status, reason = ended.pop("too_big_in_one[ranks=2]")
    assert (status, reason.startswith("rank 1: out of memory: ")) == ("oom", True)
    hangs = "not done within 6 s; raise --timeout"
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
        f"hangs_in_one[ranks=2,folder={folder}]": ("timeout", hangs),
    }
    nobody_is_left(folder)


def test_all_ranks_count_as_one_measurement_and_each_is_a_process_with_its_share_of_the_threads_and_the_same_seed(ran):
    rows, _ = ran
    row = rows["together[ranks=2]"]
    assert (row["samples"]["calls"] > 1, len(row["samples"]["block_s"]) >= 3, row["items"]) == (True, True, 20)
    assert row["memory"]["host_peak_bytes"] > 0
    assert explained(row["missing_reasons"]["device_s"]) == "each of several ranks has a device of its own"
    assert explained(row["missing_reasons"]["transfer"]) == "inputs and output are in host memory already"
    one, two = rows["who_am_i[ranks=1]"], rows["who_am_i[ranks=2]"]
    for count, each in ((1, one), (2, two)):
        assert [each["values"][name] for name in ("size", "processes", "seeds")] == [count, count, 1]
    assert two["values"]["threads"] == two["threads"] == max(1, one["threads"] // 2)
    assert two["values"]["clock"] > 0


def left_by(folder):
    """The processes, torchrun's among them, and the port of the case that hangs, once both ranks have written them."""
    deadline, files = time.monotonic() + 60, [folder / f"rank{rank}" for rank in (0, 1)]
    while not all(file.exists() and file.read_text().count(" ") == 2 for file in files):  # bounded: of another process
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.02)
    said = [list(map(int, file.read_text().split())) for file in files]
    return {pid for each in said for pid in each[:2]}, said[0][2]


def nobody_is_left(folder):
    """Neither a process nor a listener of the case that hangs."""
    pids, port = left_by(folder)
    deadline = time.monotonic() + 60
    while any(map(front_door.is_alive, pids)):
        assert time.monotonic() < deadline, "they are still there"
        time.sleep(0.02)
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # connections that were cut may linger; a listener would still refuse
        probe.bind(("", port))


def test_ranks_on_accelerators_have_a_device_each_and_one_launch_serves_all_cases_of_its_size(tmp_path):
    benches = ['workload = "who_am_i"\naxes.ranks = 2\naxes.n = [1, 2]', 'workload = "together"\naxes.ranks = [2, 3]']
    benches += ['workload = "refuses"\naxes.ranks = 2', 'workload = "takes_memory"\naxes.ranks = 2\naxes.n = [1, 2]']
    suite = front_door.suite(tmp_path, *benches, head=HEAD)
    _, measured = run(tmp_path, suite, RANK_FAULTS, PRETEND, "--rounds", "1", "--device", "pretend", "--seed", "7", code=5)
    rows = {each["case"]["id"].removesuffix("@pretend:0"): each for each in measured}
    # Between the two that tell their process comes one that every rank refuses, which costs no launch.
    order = [row["case"]["workload"] for row in measured if row["case"]["params"]["ranks"] == 2]
    assert order == ["who_am_i", "takes_memory", "takes_memory", "refuses", "together", "who_am_i"]
    assert {case: row["status"] for case, row in rows.items() if row["status"] != "ok"} == {
        "together[ranks=3]": "unsupported",
        "refuses[ranks=2]": "failed",
    }
    assert len(rows) == 7
    # The second is told its memory, too, although the first has just freed as much.
    assert min(rows[f"takes_memory[ranks=2,n={n}]"]["memory"]["host_peak_bytes"] for n in (1, 2)) >= 64 << 20
    together = rows["together[ranks=2]"]
    assert together["missing_reasons"]["transfer"] == [{"reason": "several_devices"}]
    assert len({row["values"]["pid"] for row in rows.values() if "values" in row}) == 1
    assert together["device_name"] == "Pretend [/0] accelerator + Pretend [/1] accelerator"
    assert together["memory"]["peak_bytes"] == 1_000_000
    assert rows["together[ranks=3]"]["reason"] == "3 ranks need as many pretend devices, and there are 2 to use"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_no_rank_survives_an_interrupted_or_a_killed_run(tmp_path, number):
    suite = front_door.suite(tmp_path, f'workload = "hangs_in_one"\naxes.ranks = 2\naxes.folder = "{tmp_path}"')
    process = start("run", suite, RANK_FAULTS, "--device", "cpu", "--timeout", "60s", "-o", "o.jsonl", cwd=tmp_path, cpus=2)
    assert all(map(front_door.is_alive, left_by(tmp_path)[0]))
    process.send_signal(number)
    process.communicate(timeout=60)
    assert process.returncode == {signal.SIGINT: 130, signal.SIGKILL: -signal.SIGKILL}[number]
    nobody_is_left(tmp_path)
