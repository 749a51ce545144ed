"""``dlbench run`` by the front door: what ends as which row, and with which exit code."""

import json
import re
import time
from types import SimpleNamespace
from unittest import mock

import front_door
import pytest
import shared_hosts
import torch
from front_door import FAULTS, PLUGINS, PRETEND, dlbench, lines, measurements

from dlbench.cli import main
from dlbench.core.conditions import Throttling
from dlbench.core.errors import explained
from dlbench.harness.probe.sampler import Monitor


def statuses(path):
    return {each["case"]["workload"]: (each["status"], each.get("reason", "")) for each in measurements(path)}


@pytest.fixture(scope="module")
def faulty_run(tmp_path_factory):
    """One run over everything that can go wrong; the sweep never aborts."""
    folder = tmp_path_factory.mktemp("faults")
    pids = {name: folder / f"{name}.pid" for name in ("hangs", "leaves_a_child")}
    benches = [
        *(
            f'workload = "{name}"'
            for name in (
                "fine",
                "raises",
                "returns_nothing",
                "segfaults",
                "exits",
                "scribbles",
                "too_big",
                "unsupported_op",
                "chatters",
                "experiment",
                "infinite_experiment",
                "remembers_processes",
            )
        ),
        *(f'workload = "{name}"\naxes.pid_file = "{path}"' for name, path in pids.items()),
    ]
    head = front_door.HASTY.replace("timeout_s = 20", "timeout_s = 8")
    done = dlbench("run", front_door.suite(folder, *benches, head=head), FAULTS, "-o", "out.jsonl", "--seed", "7", cwd=folder)
    return done, folder, pids


def test_a_sweep_goes_on_whatever_happens_and_says_so(faulty_run):
    done, folder, _ = faulty_run
    assert done.code == 5, done.err
    found = statuses(folder / "out.jsonl")
    assert {name: status for name, (status, _) in found.items()} == {
        "fine": "ok",
        "raises": "failed",
        "returns_nothing": "failed",
        "segfaults": "crashed",
        "exits": "crashed",
        "scribbles": "crashed",
        "too_big": "oom",
        "unsupported_op": "unsupported",
        "chatters": "ok",
        "experiment": "ok",
        "infinite_experiment": "failed",
        "remembers_processes": "ok",
        "hangs": "timeout",
        "leaves_a_child": "ok",
    }
    assert found["raises"][1] == "ValueError: the numbers do not add up"
    assert found["returns_nothing"][1] == "TypeError: workload 'returns_nothing' returned NoneType; it has to return a dlbench.Work"
    assert found["scribbles"][1] == "its process wrote '1, 2, 3' where only dlbench writes; leave descriptors of others alone"
    assert found["segfaults"][1].startswith("its process was killed by SIGSEGV")
    assert found["exits"][1] == "its process ended with exit code 7 and no result"
    assert found["hangs"][1] == "not done within 8 s; raise --timeout"
    assert found["infinite_experiment"][1] == "ValueError: value 'loss' is inf; it has to be finite, and 1e+100 at most"
    assert found["too_big"][1].startswith("out of memory: ")
    assert re.fullmatch(rf"linalg\.inv: .+ \(torch {re.escape(torch.__version__)}\)", found["unsupported_op"][1])


def test_what_ended_badly_is_not_tried_again(faulty_run):
    _, folder, _ = faulty_run
    rounds = {}
    for each in measurements(folder / "out.jsonl"):
        rounds.setdefault(each["case"]["workload"], []).append(each["round"])
    assert rounds["fine"] == [0, 1]
    assert rounds["chatters"] == [0, 1]
    assert all(rounds[name] == [0] for name in ("raises", "scribbles", "segfaults", "exits", "too_big", "hangs", "unsupported_op"))


def test_a_case_takes_all_that_it_started_with_it(faulty_run):
    _, _, pids = faulty_run
    for path in pids.values():
        assert [pid for pid in path.read_text().split() if front_door.is_alive(int(pid))] == []


def test_each_round_is_a_process_of_its_own_layout_and_each_case_a_fork_of_it(faulty_run):
    _, folder, _ = faulty_run
    first, second = [each["values"] for each in measurements(folder / "out.jsonl") if each["case"]["workload"] == "remembers_processes"]
    assert first["parent"] != second["parent"]
    assert first["pid"] != second["pid"]
    assert (first["hash_seed"], first["padding"]) != (second["hash_seed"], second["padding"])
    # The same numbers in every round, whatever ran before.
    assert first["first_random"] == second["first_random"]


def test_the_file_has_a_header_a_line_a_case_and_round_and_a_footer(faulty_run):
    _, folder, _ = faulty_run
    header, *rest, last_round, footer = lines(folder / "out.jsonl")
    assert (header["kind"], header["schema"], header["seed"], header["planned"]) == ("header", 1, 7, {"count": 14})
    assert {each["kind"] for each in rest} == {"measurement", "round"}
    assert [each["round"] for each in (*rest, last_round) if each["kind"] == "round"] == [0, 1]
    assert last_round["seconds"] > 0
    assert "memory_available_bytes" in last_round["before"]["cpu"]
    assert (footer["kind"], footer["rounds"]) == ("footer", 2)


def test_the_order_is_random_and_follows_the_seed(faulty_run):
    _, folder, _ = faulty_run
    order = [each["case"]["workload"] for each in measurements(folder / "out.jsonl") if each["round"] == 0]
    assert order != sorted(order)
    assert sorted(order) == sorted(statuses(folder / "out.jsonl"))


@pytest.fixture(scope="module")
def two_devices(tmp_path_factory):
    """A run on the CPU and on a pretend accelerator, four rounds, so that the ratios have intervals."""
    folder = tmp_path_factory.mktemp("two")
    benches = ['workload = "matmul"\naxes.n = 64\naxes.dtype = ["fp32", "tf32"]', 'workload = "noop"']
    head = front_door.HASTY.replace("rounds = 2", "rounds = 4")
    arguments = ("run", front_door.suite(folder, *benches, head=head), PRETEND)
    options = ("--device", "cpu", "--device", "pretend:0", "--isolation", "none", "-o", "out.jsonl")
    with mock.patch.object(Monitor, "throttling", return_value=Throttling(waiting=0.0)):  # whoever else runs here
        done = shared_hosts.dlbench(*arguments, *options, cwd=folder)
    assert done.code == 0, done.err
    return done, folder


def rows(folder, *arguments):
    shown = front_door.in_process(folder, "show", "out.jsonl", "--format", "json", *arguments)
    assert shown.code == 0, shown.err
    return {row.get("case.id", row.get("pair.case")): row for row in json.loads(shown.out)}


def test_copies_and_device_memory_are_measured_on_an_accelerator_only(two_devices):
    _, folder = two_devices
    table = rows(folder)
    there, here = table["matmul[n=64,dtype=fp32]@pretend:0"], table["matmul[n=64,dtype=fp32]@cpu"]
    assert there["transfer.h2d_bytes"] == 2 * 64 * 64 * 4
    assert there["transfer.d2h_bytes"] == 64 * 64 * 4
    assert 0 < there["transfer.share"] < 1
    assert there["transfer.h2d_bytes_per_s"] == pytest.approx(there["transfer.h2d_bytes"] / there["transfer.h2d_s"])
    assert there["transfer.pinned_h2d_bytes_per_s"] == pytest.approx(there["transfer.h2d_bytes"] / there["transfer.pinned_h2d_s"])
    assert there["transfer.pinned_d2h_bytes_per_s"] == pytest.approx(there["transfer.d2h_bytes"] / there["transfer.pinned_d2h_s"])
    assert there["transfer.reason"] == "link: NVML reads NVIDIA devices only"
    assert (there["memory.peak_bytes"], there["memory.reserved_bytes"]) == (1_000_000, 2_000_000)
    assert [here[f"transfer.{name}"] for name in ("h2d_bytes", "h2d_s", "d2h_s", "share")] == [None] * 4
    assert here["transfer.reason"] == "inputs and output are in host memory already"
    assert (here["memory.peak_bytes"], here["memory.reason"]) == (None, "a CPU has no memory of its own")
    assert table["noop[]@pretend:0"]["transfer.reason"] == "there is neither an input nor an output to copy"


def test_a_device_whose_events_are_not_read_says_so(two_devices):
    _, folder = two_devices
    table = rows(folder)
    assert {row["time.device_s"] for row in table.values()} == {None}
    told = {
        each["case"]["device"]: explained(each["missing_reasons"]["device_s"])
        for each in measurements(folder / "out.jsonl")
        if each["status"] == "ok"
    }
    assert told == {"cpu": "a CPU has no clock but the host's", "pretend:0": "dlbench reads no events of pretend devices"}


def test_a_precision_that_a_device_lacks_is_a_row_with_the_reason(two_devices):
    _, folder = two_devices
    table = rows(folder)
    assert table["matmul[n=64,dtype=tf32]@pretend:0"]["case.status"] == "unsupported"
    assert table["matmul[n=64,dtype=tf32]@pretend:0"]["case.reason"] == "a pretend device has no TF32"
    assert table["matmul[n=64,dtype=tf32]@cpu"]["case.reason"].startswith("TF32 is a format of GPU matrix units")


def test_the_cases_come_first_and_then_lines_which_say_how_much_faster(two_devices):
    done, folder = two_devices
    assert re.search(r"^cuda:0|pretend:0: Pretend \[/0\] accelerator", done.out, re.MULTILINE)
    # How much that is depends on who else runs here.
    assert re.search(r"\nPretend \[/0\] accelerator against .+ · .+, \d+ cases.* · (not )?usable", done.out)
    assert re.search(r"\nworth it   (.*\b\S+× \(\S+…\S+\)|no gain shown in)", done.out)
    reasons = front_door.in_process(folder, "show", "out.jsonl", "--topic", "speed-up").out
    assert re.search(r"^cpu: .+, \d+ threads?$", reasons, re.MULTILINE)
    assert "\npretend:0: Pretend [/0] accelerator" in f"\n{reasons}"
    ratio = r"\S+ × \(\S+…\S+\)"
    assert re.search(rf"^  matmul, matmul n=64: each at its best {ratio}, same case {ratio}\.$", reasons, re.MULTILINE)
    assert re.search(r"^ work +cpu  at +pretend:0  at +ratio  95 % interval$", reasons, re.MULTILINE)
    paired = front_door.in_process(folder, "show", "out.jsonl", "--by", "device", "--format", "json")
    (pair,) = [row for row in json.loads(paired.out) if "matmul" in row["pair.case"]]
    assert pair["ratio.ci_low"] <= pair["ratio.speedup"] <= pair["ratio.ci_high"]


@pytest.mark.real
def test_an_accelerator_keeps_its_process_until_a_fault(tmp_path):
    benches = ['workload = "which_process"\naxes.n = [1, 2, 3]', 'workload = "runs_out"']
    arguments = ("run", front_door.suite(tmp_path, *benches), PRETEND, "--device", "pretend:0", "--isolation", "none")
    done = dlbench(*arguments, "-o", "o.jsonl", cwd=tmp_path)
    assert done.code == 0, done.err
    told = [each for each in measurements(tmp_path / "o.jsonl") if "values" in each]
    first, second = ({each["values"]["pid"] for each in told if each["round"] == number} for number in (0, 1))
    assert (len(first), len(second)) == (1, 1)
    assert first != second
    assert statuses(tmp_path / "o.jsonl")["runs_out"] == ("oom", "out of memory: CUDA out of memory. Tried to allocate 20.00 GiB.")


@pytest.mark.real
def test_a_device_that_faults_once_gets_a_new_process_and_the_rest_goes_on(tmp_path):
    benches = ['workload = "which_process"\naxes.n = [1, 2, 3, 4]', 'workload = "faulty"']
    arguments = ("run", front_door.suite(tmp_path, *benches), PRETEND, "--device", "pretend:0", "--isolation", "none")
    done = dlbench(*arguments, "--rounds", "1", "--seed", "0", "-o", "o.jsonl", cwd=tmp_path)
    assert done.code == 5, done.err
    first = [each for each in measurements(tmp_path / "o.jsonl") if each["round"] == 0]
    at = [each["status"] for each in first].index("crashed")
    assert 0 < at < 4, "the seed puts the fault in the middle"
    assert len({each["values"]["pid"] for each in first[:at]}) == 1
    assert {each["values"]["pid"] for each in first[:at]} != {each["values"]["pid"] for each in first[at + 1 :]}
    assert len({each["values"]["pid"] for each in first[at + 1 :]}) == 1


ENDS = {
    "segfault": "its process was killed by SIGSEGV",
    "exit": "its process ended with exit code 7 and no result",
    "fault": "RuntimeError: CUDA error: an illegal memory access was encountered",
}


@pytest.mark.real
@pytest.mark.parametrize(("device", "troubles"), [("cpu", ["segfault", "exit"]), ("pretend:0", ["segfault", "exit", "fault"])])
def test_what_was_timed_stays_where_its_profile_takes_the_process_and_the_next_case_is_measured(tmp_path, device, troubles):
    benches = [
        f'workload = "troubled_in_its_profile"\naxes.trouble = {json.dumps(troubles)}',
        'workload = "which_process"\naxes.n = [1, 2]',
    ]
    plugins = (FAULTS, PRETEND, "--device", device)
    done = dlbench("run", front_door.suite(tmp_path, *benches), *plugins, "--rounds", "1", "-o", "o.jsonl", cwd=tmp_path)
    assert done.code == 0, done.err
    rows = measurements(tmp_path / "o.jsonl")
    assert {each["status"] for each in rows} == {"ok"}
    assert len(rows) == len(troubles) + 2
    for trouble in troubles:
        (row,) = (each for each in rows if each["case"]["params"].get("trouble") == trouble)
        assert len(row["samples"]["block_s"]) > 1
        assert ("transfer" in row, "profile" in row, "check" in row) == (device != "cpu", False, False)
        for group in ("profile", "check"):
            ((reason, text),) = (each.values() for each in row["missing_reasons"][group])
            assert (reason, text.startswith(ENDS[trouble])) == ("cut_off", True)


@pytest.mark.real
def test_a_device_that_faults_twice_in_a_row_is_asked_no_more_and_the_run_ends_with_75(tmp_path):
    benches = ['workload = "faulty"\naxes.n = [1, 2, 3]']
    arguments = ("run", front_door.suite(tmp_path, *benches), PRETEND, "--device", "pretend:0", "--isolation", "none")
    done = dlbench(*arguments, "-o", "o.jsonl", cwd=tmp_path)
    assert done.code == 75
    assert "pretend:0 failed in 2 processes in a row" in done.err
    assert [each["status"] for each in measurements(tmp_path / "o.jsonl")] == ["crashed", "crashed", "skipped"]


@pytest.mark.real
@pytest.mark.parametrize(("isolation", "processes"), [("spawn", 2), ("none", 1)])
def test_isolation_decides_how_many_processes_a_round_has(tmp_path, isolation, processes):
    benches = ['workload = "which_process"\naxes.n = [1, 2]']
    arguments = ("run", front_door.suite(tmp_path, *benches), PRETEND, "--device", "cpu", "--rounds", "1", "-o", "o.jsonl")
    done = dlbench(*arguments, "--isolation", isolation, cwd=tmp_path)
    assert done.code == 0, done.err
    assert len({each["values"]["pid"] for each in measurements(tmp_path / "o.jsonl")}) == processes


def test_a_device_that_a_suite_names_and_the_machine_lacks_is_a_skipped_row(tmp_path):
    head = 'devices = ["cpu", "cuda:7"]\n' + front_door.HASTY
    suite = front_door.suite(tmp_path, 'workload = "noop"', head=head)
    done = shared_hosts.dlbench("run", suite, "--rounds", "1", "-o", "o.jsonl", cwd=tmp_path)
    assert done.code == 0, done.err
    ended = {each["case"]["device"]: (each["status"], each.get("reason")) for each in measurements(tmp_path / "o.jsonl")}
    assert ended["cpu"] == ("ok", None)
    assert ended["cuda:7"][0] == "skipped"
    assert ended["cuda:7"][1].startswith("this machine has no cuda:7; it has cpu")


def test_a_run_whose_devices_are_all_absent_ends_with_69_and_without_dashes(tmp_path, monkeypatch):
    """Or a runner that lost its GPU would pass."""
    head = 'devices = ["cpu", "accelerator"]\n' + front_door.HASTY
    suite = front_door.suite(tmp_path, 'workload = "noop"', 'workload = "matmul"\ndevices = ["accelerator"]\naxes.n = [8, 9]', head=head)
    monkeypatch.setattr("dlbench.cli.commands.run.why_gpu_unusable", lambda versions: "there is no driver")
    done = shared_hosts.dlbench("run", suite, "-k", "matmul", "-o", "o.jsonl", cwd=tmp_path)
    absent = "this machine has no accelerator; it has cpu"
    reason, end = done.out.splitlines()
    assert (done.code, reason, end.rpartition(" · ")[2]) == (69, f"2 cases skipped: {absent}", "nothing measured"), done
    assert "mine, 2 cases (2 skipped)" in end
    assert done.err.splitlines()[-2:] == [
        "next       dlbench devices · saved in o.jsonl · why: dlbench show o.jsonl --topic all",
        f"dlbench: nothing was measured: {absent}; there is no driver",
    ]
    some = shared_hosts.dlbench("run", suite, "--rounds", "1", "-o", "some.jsonl", cwd=tmp_path)
    assert some.code == 0, some.err
    again = shared_hosts.dlbench("run", "--resume", "some.jsonl", cwd=tmp_path)
    assert (again.code, "some.jsonl is complete" in again.err) == (0, True)


def test_a_budget_skips_what_it_cannot_pay_for_and_says_so(tmp_path):
    suite = front_door.suite(tmp_path, 'workload = "spin"\naxes.seconds = [0.3, 0.31, 0.32, 0.33]')
    done = shared_hosts.dlbench("run", suite, "--budget", "1ms", "-o", "o.jsonl", cwd=tmp_path)
    assert done.code == 4, done.err
    assert done.err.splitlines()[-2].startswith("next       dlbench run --resume o.jsonl · saved in o.jsonl ·")
    ended = [(each["status"], each.get("reason")) for each in measurements(tmp_path / "o.jsonl")]
    assert ended == [("skipped", "the budget of 0.001 s was spent before its turn; give a larger --budget")] * 4


def test_a_budget_counts_from_the_start_of_the_command(tmp_path, monkeypatch):
    suite = front_door.suite(tmp_path, 'workload = "noop"')
    monkeypatch.setattr(main, "time", SimpleNamespace(monotonic=lambda: time.monotonic() - 60.0))
    done = shared_hosts.dlbench("run", suite, "--budget", "60s", "-o", "o.jsonl", cwd=tmp_path)
    assert done.code == 4, done.err
    (row,) = measurements(tmp_path / "o.jsonl")
    assert (row["status"], row["reason"]) == ("skipped", "the budget of 60 s was spent before its turn; give a larger --budget")


@pytest.mark.real
def test_the_budget_of_a_suite_pays_for_seven_rounds_on_each_device(tmp_path):
    # Far more than these need, as nothing here may depend on how busy the machine is.
    head = front_door.HASTY.replace("rounds = 2", "rounds = 7\nmax_rounds = 7\nbudget_s = 150")
    suite = front_door.suite(tmp_path, 'workload = "noop"', head=head)
    two = (PRETEND, "--device", "cpu", "--device", "pretend:0")
    done = shared_hosts.dlbench("run", suite, *two, "--isolation", "none", "-o", "o.jsonl", cwd=tmp_path)
    assert done.code == 0, done.err
    assert lines(tmp_path / "o.jsonl")[0]["policy"]["budget_s"] == 300
    (pair,) = json.loads(shared_hosts.dlbench("show", "o.jsonl", "--by", "device", "--format", "json", cwd=tmp_path).out)
    assert (pair["base.rounds"], pair["other.rounds"], pair["ratio.reason"]) == (7, 7, None)
    assert pair["ratio.ci_low"] <= pair["ratio.speedup"] <= pair["ratio.ci_high"]


def test_a_budget_on_the_command_line_is_that_of_the_whole_run(tmp_path):
    suite = front_door.suite(tmp_path, 'workload = "noop"', head="policy.budget_s = 150")
    devices = (PRETEND, "--device", "cpu", "--device", "pretend")
    done = shared_hosts.dlbench(
        "run", suite, *devices, "--rounds", "1", "--timeout", "1ms", "--budget", "1m", "-o", "o.jsonl", cwd=tmp_path
    )
    assert done.code == 0, done.err
    assert lines(tmp_path / "o.jsonl")[0]["policy"]["budget_s"] == 60


def test_a_gate_has_the_rounds_that_its_cases_need(tmp_path):
    # A case that runs out of time is not tried again, so the rounds that were planned cost nothing here.
    suite = front_door.suite(tmp_path, 'workload = "noop"')
    done = shared_hosts.dlbench("run", suite, "--gate", "--timeout", "1ms", "--isolation", "none", "-o", "o.jsonl", cwd=tmp_path)
    assert done.code == 4, done.err
    assert (
        "note: compared with a run like this one, no case has times that can be compared, so nothing could have been called slower"
        in done.err
    )
    policy = lines(tmp_path / "o.jsonl")[0]["policy"]
    assert (policy["rounds"], policy["max_rounds"], policy["budget_s"]) == (14, 14, None)


VARIES = """
from pathlib import Path

import torch

import scripted
from dlbench import Work, workload


@workload()
def varies(device: torch.device) -> Work:
    rounds = Path(ROUNDS)
    number = len(rounds.read_text()) if rounds.exists() else 0
    rounds.write_text("." * (number + 1))
    seconds = 1e-3 * (0.7, 1.3, 0.8, 1.2, 0.9, 1.1, 1.0, 0.75, 1.25, 1.05)[number % 10]

    def call():
        scripted.ScriptedClock.seconds += seconds

    return Work(call=call)
"""


def test_a_gate_goes_on_until_a_run_like_it_would_call_and_exclude_what_must_be_seen(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(PLUGINS)
    (tmp_path / "varies.py").write_text(VARIES.replace("ROUNDS", repr(str(tmp_path / "rounds.txt"))))
    suite = front_door.suite(tmp_path, 'workload = "varies"')
    plugins = (str(PLUGINS / "scripted.py"), "varies.py")
    run = ("run", suite, *plugins, "--gate", "--detect", "30%", "--device", "cpu", "-o", "o.jsonl")
    done = shared_hosts.dlbench(*run, cwd=tmp_path)
    assert done.code == 0, done.err
    assert "1 case in 14 to 60 rounds, about " in done.err
    assert done.err.count("6 more rounds for 1 case whose change is not known well enough yet\n") == 1
    assert [each["round"] for each in measurements(tmp_path / "o.jsonl")] == [*range(20)]


def test_a_command_that_is_proposed_can_be_pasted_where_the_path_has_a_space(tmp_path):
    suite = front_door.suite(tmp_path, 'workload = "noop"')
    run = ("run", suite, "--rounds", "1", "-o", "my run.jsonl")
    done = shared_hosts.dlbench(*run, cwd=tmp_path)
    assert re.search(
        r"next       dlbench (run cnn|doctor) · saved in my run.jsonl · why: dlbench show 'my run.jsonl' --topic all\n", done.err
    )
    again = shared_hosts.dlbench(*run, cwd=tmp_path)
    assert again.err.endswith(
        "my run.jsonl exists and is never overwritten; choose another name, or go on with it: dlbench run --resume 'my run.jsonl'\n"
    )
    path = tmp_path / "my run.jsonl"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))  # as a kill leaves it
    shown = shared_hosts.dlbench("show", "my run.jsonl", cwd=tmp_path)
    assert "continue it with: dlbench run --resume 'my run.jsonl'" in shown.out + shown.err


def test_results_go_to_results_by_default_and_say_where(tmp_path):
    done = shared_hosts.dlbench("run", front_door.suite(tmp_path, 'workload = "noop"'), "--rounds", "1", cwd=tmp_path)
    (path,) = (tmp_path / "results").iterdir()
    assert re.fullmatch(r"mine-\d{8}-\d{6}\.jsonl", path.name)
    shown = f"results/{path.name}"
    assert f" · saved in {shown} · why: dlbench show {shown} --topic all\n" in done.err
    assert "Against published figures" not in done.out  # those tables may be longer than the cases


@pytest.mark.real
def test_every_case_says_how_long_it_waited_for_a_cpu_or_why_not(tmp_path):
    head = front_door.HASTY.replace("round_s = 0.01", "round_s = 0.2").replace("warmup_s = 0.01", "warmup_s = 0.2")
    suite = front_door.suite(
        tmp_path,
        'workload = "matmul"\naxes.n = 8',
        'workload = "collective"\naxes.op = "all_reduce"\naxes.ranks = 1\naxes.bytes = 64',
        head=head,
    )
    done = shared_hosts.dlbench("run", suite, "--device", "cpu", "--rounds", "1", "-o", "out.jsonl", cwd=tmp_path)
    assert done.code == 0, done.err
    one, ranks = sorted(measurements(tmp_path / "out.jsonl"), key=lambda each: each["case"]["workload"], reverse=True)
    told, missing_reasons = one.get("throttling", {}), one["missing_reasons"]
    assert ("waiting" in told) is not ("waiting" in missing_reasons)
    assert all(0 <= told[name] <= 1 for name in ("waiting", "stolen") if name in told)
    assert "waiting" not in ranks.get("throttling", {})
    assert explained(ranks["missing_reasons"]["waiting"]) == "threads of several ranks wait for each other's, too"
