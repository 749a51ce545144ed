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
from front_door import FAULTS, PLUGINS, PRETEND, lines, measurements
from shared_hosts import run

from dlbench.cli import main
from dlbench.core.conditions import Throttling
from dlbench.core.errors import explained
from dlbench.harness.probe.sampler import Monitor


def ended(rows):
    return {each["case"]["workload"]: (each["status"], each.get("reason")) for each in rows}


FAULTY = {
    "fine": ("ok", "None"),
    "raises": ("failed", "ValueError: the numbers do not add up"),
    "returns_nothing": ("failed", "TypeError: workload 'returns_nothing' returned NoneType; it has to return a dlbench.Work"),
    "segfaults": ("crashed", "its process was killed by SIGSEGV.*"),
    "exits": ("crashed", "its process ended with exit code 7 and no result"),
    "scribbles": ("crashed", "its process wrote '1, 2, 3' where only dlbench writes; leave descriptors of others alone"),
    "too_big": ("oom", "out of memory: .*"),
    "unsupported_op": ("unsupported", rf"linalg\.inv: .+ \(torch {re.escape(torch.__version__)}\)"),
    "chatters": ("ok", "None"),
    "experiment": ("ok", "None"),
    "infinite_experiment": ("failed", r"ValueError: value 'loss' is inf; it has to be finite, and 1e\+100 at most"),
    "remembers_processes": ("ok", "None"),
    "hangs": ("timeout", "not done within 8 s; raise --timeout"),
    "leaves_a_child": ("ok", "None"),
}
"""Workloads of the plugin of faults, and the status and the reason that each ends with."""


@pytest.fixture(scope="module")
def faulty_run(tmp_path_factory):
    """One run over everything that can go wrong; the sweep never aborts."""
    folder = tmp_path_factory.mktemp("faults")
    benches = [f'workload = "{name}"' for name in FAULTY]
    benches[-2:] = [f'workload = "{name}"\naxes.pid_file = "{folder / name}"' for name in ("hangs", "leaves_a_child")]
    suite = front_door.suite(folder, *benches, head=front_door.HASTY.replace("timeout_s = 20", "timeout_s = 8"))
    return *front_door.run(folder, suite, FAULTS, "--seed", "7", code=5), folder


def test_a_sweep_goes_on_whatever_happens_and_what_ended_badly_is_not_tried_again(faulty_run):
    _, rows, _ = faulty_run
    found = ended(rows)
    assert found.keys() == FAULTY.keys()
    for name, (status, reason) in FAULTY.items():
        assert (found[name][0], bool(re.fullmatch(reason, str(found[name][1])))) == (status, True), found[name]
        assert [each["round"] for each in rows if each["case"]["workload"] == name] == ([0, 1] if status == "ok" else [0])


def test_a_case_takes_all_that_it_started_with_it(faulty_run):
    pids = [pid for name in ("hangs", "leaves_a_child") for pid in (faulty_run[-1] / name).read_text().split()]
    assert [pid for pid in pids if front_door.is_alive(int(pid))] == []
    assert len(pids) >= 2


def test_each_round_is_a_process_of_its_own_layout_and_each_case_a_fork_of_it(faulty_run):
    first, second = [each["values"] for each in faulty_run[1] if each["case"]["workload"] == "remembers_processes"]
    assert [name for name in ("parent", "pid") if first[name] == second[name]] == []
    assert (first["hash_seed"], first["padding"]) != (second["hash_seed"], second["padding"])
    # The same numbers in every round, whatever ran before.
    assert first["first_random"] == second["first_random"]


def test_the_file_has_a_header_a_line_a_case_and_round_and_a_footer_and_its_order_is_that_of_the_seed(faulty_run):
    _, rows, folder = faulty_run
    header, *rest, last_round, footer = lines(folder / "o.jsonl")
    assert (header["kind"], header["schema"], header["seed"], header["planned"]) == ("header", 1, 7, {"count": 14})
    assert {each["kind"] for each in rest} == {"measurement", "round"}
    assert [each["round"] for each in (*rest, last_round) if each["kind"] == "round"] == [0, 1]
    assert last_round["seconds"] > 0
    assert "memory_available_bytes" in last_round["before"]["cpu"]
    assert (footer["kind"], footer["rounds"]) == ("footer", 2)
    order = [each["case"]["workload"] for each in rows if each["round"] == 0]
    assert sorted(order) == sorted(FAULTY) != order


@pytest.fixture(scope="module")
def two_devices(tmp_path_factory):
    """A run on the CPU and on a pretend accelerator, four rounds, so that the ratios have intervals."""
    folder = tmp_path_factory.mktemp("two")
    benches = ['workload = "matmul"\naxes.n = 64\naxes.dtype = ["fp32", "tf32"]', 'workload = "noop"']
    suite = front_door.suite(folder, *benches, head=front_door.HASTY.replace("rounds = 2", "rounds = 4"))
    with mock.patch.object(Monitor, "throttling", return_value=Throttling(waiting=0.0)):  # whoever else runs here
        done, _ = run(folder, suite, PRETEND, "--device", "cpu", "--device", "pretend:0", "--isolation", "none")
    return done, folder


def shown(folder, *arguments):
    done = front_door.in_process(folder, "show", "o.jsonl", "--format", "json", *arguments)
    assert done.code == 0, done.err
    return {row.get("case.id", row.get("pair.case")): row for row in json.loads(done.out)}


def test_copies_and_device_memory_are_measured_on_an_accelerator_only(two_devices):
    _, folder = two_devices
    table = shown(folder)
    there, here = table["matmul[n=64,dtype=fp32]@pretend:0"], table["matmul[n=64,dtype=fp32]@cpu"]
    assert (there["transfer.h2d_bytes"], there["transfer.d2h_bytes"]) == (2 * 64 * 64 * 4, 64 * 64 * 4)
    assert 0 < there["transfer.share"] < 1
    for way, size in (("h2d", "h2d"), ("pinned_h2d", "h2d"), ("pinned_d2h", "d2h")):
        assert there[f"transfer.{way}_bytes_per_s"] == pytest.approx(there[f"transfer.{size}_bytes"] / there[f"transfer.{way}_s"])
    assert there["transfer.reason"] == "link: NVML reads NVIDIA devices only"
    assert (there["memory.peak_bytes"], there["memory.reserved_bytes"]) == (1_000_000, 2_000_000)
    assert [here[f"transfer.{name}"] for name in ("h2d_bytes", "h2d_s", "d2h_s", "share")] == [None] * 4
    assert here["transfer.reason"] == "inputs and output are in host memory already"
    assert (here["memory.peak_bytes"], here["memory.reason"]) == (None, "a CPU has no memory of its own")
    assert table["noop[]@pretend:0"]["transfer.reason"] == "there is neither an input nor an output to copy"
    # A device whose events are not read, and a precision that a device lacks.
    assert {row["time.device_s"] for row in table.values()} == {None}
    reasons = {
        each["case"]["device"]: explained(each["missing_reasons"]["device_s"])
        for each in measurements(folder / "o.jsonl")
        if each["status"] == "ok"
    }
    assert reasons == {"cpu": "a CPU has no clock but the host's", "pretend:0": "dlbench reads no events of pretend devices"}
    lacking, here = (table[f"matmul[n=64,dtype=tf32]@{device}"] for device in ("pretend:0", "cpu"))
    assert (lacking["case.status"], lacking["case.reason"]) == ("unsupported", "a pretend device has no TF32")
    assert here["case.reason"].startswith("TF32 is a format of GPU matrix units")


def test_the_cases_come_first_and_then_lines_which_say_how_much_faster(two_devices):
    done, folder = two_devices
    # How much that is depends on who else runs here.
    for line in (
        r"^cuda:0|pretend:0: Pretend \[/0\] accelerator",
        r"^Pretend \[/0\] accelerator against .+ · .+, \d+ cases.* · (not )?usable",
        r"^worth it   (.*\b\S+× \(\S+…\S+\)|no gain shown in)",
    ):
        assert re.search(line, done.out, re.MULTILINE)
    reasons = front_door.in_process(folder, "show", "o.jsonl", "--topic", "speed-up").out
    ratio = r"\S+ × \(\S+…\S+\)"
    for line in (
        r"^cpu: .+, \d+ threads?$",
        r"^pretend:0: Pretend \[/0\] accelerator",
        rf"^  matmul, matmul n=64: each at its best {ratio}, same case {ratio}\.$",
        r"^ work +cpu  at +pretend:0  at +ratio  95 % interval$",
    ):
        assert re.search(line, reasons, re.MULTILINE)
    (pair,) = [row for case, row in shown(folder, "--by", "device").items() if "matmul" in case]
    assert pair["ratio.ci_low"] <= pair["ratio.speedup"] <= pair["ratio.ci_high"]


@pytest.mark.real
def test_an_accelerator_keeps_its_process_until_a_fault(tmp_path):
    benches = ['workload = "which_process"\naxes.n = [1, 2, 3]', 'workload = "runs_out"']
    suite = front_door.suite(tmp_path, *benches)
    _, rows = front_door.run(tmp_path, suite, PRETEND, "--device", "pretend:0", "--isolation", "none")
    first, second = ({each["values"]["pid"] for each in rows if "values" in each and each["round"] == number} for number in (0, 1))
    assert (len(first), len(second), first == second) == (1, 1, False)
    assert ended(rows)["runs_out"] == ("oom", "out of memory: CUDA out of memory. Tried to allocate 20.00 GiB.")


@pytest.mark.real
def test_a_device_that_faults_once_gets_a_new_process_and_the_rest_goes_on(tmp_path):
    suite = front_door.suite(tmp_path, 'workload = "which_process"\naxes.n = [1, 2, 3, 4]', 'workload = "faulty"')
    options = ("--device", "pretend:0", "--isolation", "none", "--rounds", "1", "--seed", "0")
    _, rows = front_door.run(tmp_path, suite, PRETEND, *options, code=5)
    at = [each["status"] for each in rows].index("crashed")
    assert 0 < at < 4, "the seed puts the fault in the middle"
    before, after = ({each["values"]["pid"] for each in some} for some in (rows[:at], rows[at + 1 :]))
    assert (len(before), len(after), before == after) == (1, 1, False)


ENDS = {
    "segfault": "its process was killed by SIGSEGV",
    "exit": "its process ended with exit code 7 and no result",
    "fault": "RuntimeError: CUDA error: an illegal memory access was encountered",
}


@pytest.mark.real
@pytest.mark.parametrize(("device", "troubles"), [("cpu", ["segfault", "exit"]), ("pretend:0", ["segfault", "exit", "fault"])])
def test_what_was_timed_stays_where_its_profile_takes_the_process_and_the_next_case_is_measured(tmp_path, device, troubles):
    troubled = f'workload = "troubled_in_its_profile"\naxes.trouble = {json.dumps(troubles)}'
    suite = front_door.suite(tmp_path, troubled, 'workload = "which_process"\naxes.n = [1, 2]')
    _, rows = front_door.run(tmp_path, suite, FAULTS, PRETEND, "--device", device, "--rounds", "1")
    assert [each["status"] for each in rows] == ["ok"] * (len(troubles) + 2)
    for trouble in troubles:
        (row,) = (each for each in rows if each["case"]["params"].get("trouble") == trouble)
        assert len(row["samples"]["block_s"]) > 1
        assert ("transfer" in row, "profile" in row, "check" in row) == (device != "cpu", False, False)
        for group in ("profile", "check"):
            ((reason, text),) = (each.values() for each in row["missing_reasons"][group])
            assert (reason, text.startswith(ENDS[trouble])) == ("cut_off", True)


@pytest.mark.real
def test_a_device_that_faults_twice_in_a_row_is_asked_no_more_and_the_run_ends_with_75(tmp_path):
    suite = front_door.suite(tmp_path, 'workload = "faulty"\naxes.n = [1, 2, 3]')
    done, rows = front_door.run(tmp_path, suite, PRETEND, "--device", "pretend:0", "--isolation", "none", code=75)
    assert "pretend:0 failed in 2 processes in a row" in done.err
    assert [each["status"] for each in rows] == ["crashed", "crashed", "skipped"]


@pytest.mark.real
@pytest.mark.parametrize(("isolation", "processes"), [("spawn", 2), ("none", 1)])
def test_isolation_decides_how_many_processes_a_round_has(tmp_path, isolation, processes):
    suite = front_door.suite(tmp_path, 'workload = "which_process"\naxes.n = [1, 2]')
    _, rows = front_door.run(tmp_path, suite, PRETEND, "--device", "cpu", "--rounds", "1", "--isolation", isolation)
    assert len({each["values"]["pid"] for each in rows}) == processes


def test_a_device_that_a_suite_names_and_the_machine_lacks_is_a_skipped_row(tmp_path):
    suite = front_door.suite(tmp_path, 'workload = "noop"', head='devices = ["cpu", "cuda:7"]\n' + front_door.HASTY)
    _, rows = run(tmp_path, suite, "--rounds", "1")
    found = {each["case"]["device"]: (each["status"], (each.get("reason") or "").partition(";")[0]) for each in rows}
    assert found == {"cpu": ("ok", ""), "cuda:7": ("skipped", "this machine has no cuda:7")}


def test_a_run_whose_devices_are_all_absent_ends_with_69_and_without_dashes(tmp_path, monkeypatch):
    """Or a runner that lost its GPU would pass."""
    head = 'devices = ["cpu", "accelerator"]\n' + front_door.HASTY
    suite = front_door.suite(tmp_path, 'workload = "noop"', 'workload = "matmul"\ndevices = ["accelerator"]\naxes.n = [8, 9]', head=head)
    monkeypatch.setattr("dlbench.cli.commands.run.why_gpu_unusable", lambda versions: "there is no driver")
    done, _ = run(tmp_path, suite, "-k", "matmul", code=69)
    absent = "this machine has no accelerator; it has cpu"
    reason, end = done.out.splitlines()
    assert (reason, end.rpartition(" · ")[2]) == (f"2 cases skipped: {absent}", "nothing measured"), done
    assert "mine, 2 cases (2 skipped)" in end
    assert done.err.splitlines()[-2:] == [
        "next       dlbench devices · saved in o.jsonl · why: dlbench show o.jsonl --topic all",
        f"dlbench: nothing was measured: {absent}; there is no driver",
    ]
    (tmp_path / "o.jsonl").unlink()
    run(tmp_path, suite, "--rounds", "1")
    again = shared_hosts.dlbench("run", "--resume", "o.jsonl", cwd=tmp_path)
    assert (again.code, "o.jsonl is complete" in again.err) == (0, True)


def test_a_budget_counts_from_the_start_of_the_command_and_skips_what_it_cannot_pay_for(tmp_path, monkeypatch):
    suite = front_door.suite(tmp_path, 'workload = "spin"\naxes.seconds = [0.3, 0.31, 0.32, 0.33]')
    done, rows = run(tmp_path, suite, "--budget", "1ms", code=4)
    assert done.err.splitlines()[-2].startswith("next       dlbench run --resume o.jsonl · saved in o.jsonl ·")
    spent = "the budget of {} s was spent before its turn; give a larger --budget"
    assert [(each["status"], each["reason"]) for each in rows] == [("skipped", spent.format("0.001"))] * 4
    (tmp_path / "o.jsonl").unlink()
    monkeypatch.setattr(main, "time", SimpleNamespace(monotonic=lambda: time.monotonic() - 60.0))
    _, rows = run(tmp_path, suite, "--budget", "60s", code=4)
    assert [(each["status"], each["reason"]) for each in rows] == [("skipped", spent.format("60"))] * 4


@pytest.mark.real
def test_the_budget_of_a_suite_pays_for_seven_rounds_on_each_device_and_one_that_is_given_for_the_whole_run(tmp_path):
    # Far more than these need, as nothing here may depend on how busy the machine is.
    head = front_door.HASTY.replace("rounds = 2", "rounds = 7\nmax_rounds = 7\nbudget_s = 150")
    suite = front_door.suite(tmp_path, 'workload = "noop"', head=head)
    two = (PRETEND, "--device", "cpu", "--device", "pretend:0")
    run(tmp_path, suite, *two, "--isolation", "none")
    assert lines(tmp_path / "o.jsonl")[0]["policy"]["budget_s"] == 300
    (pair,) = shown(tmp_path, "--by", "device").values()
    assert (pair["base.rounds"], pair["other.rounds"], pair["ratio.reason"]) == (7, 7, None)
    assert pair["ratio.ci_low"] <= pair["ratio.speedup"] <= pair["ratio.ci_high"]
    (tmp_path / "o.jsonl").unlink()
    run(tmp_path, suite, *two, "--rounds", "1", "--timeout", "1ms", "--budget", "1m")
    assert lines(tmp_path / "o.jsonl")[0]["policy"]["budget_s"] == 60


def test_a_gate_has_the_rounds_that_its_cases_need(tmp_path):
    # A case that runs out of time is not tried again, so the rounds that were planned cost nothing here.
    suite = front_door.suite(tmp_path, 'workload = "noop"')
    done, _ = run(tmp_path, suite, "--gate", "--timeout", "1ms", "--isolation", "none", code=4)
    note = "compared with a run like this one, no case has times that can be compared, so nothing could have been called slower"
    assert f"note: {note}" in done.err
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
    done, rows = run(tmp_path, suite, str(PLUGINS / "scripted.py"), "varies.py", "--gate", "--detect", "30%", "--device", "cpu")
    assert "1 case in 14 to 60 rounds, about " in done.err
    assert done.err.count("6 more rounds for 1 case whose change is not known well enough yet\n") == 1
    assert [each["round"] for each in rows] == [*range(20)]


def test_a_command_that_is_proposed_can_be_pasted_where_the_path_has_a_space(tmp_path):
    words = ("run", front_door.suite(tmp_path, 'workload = "noop"'), "--rounds", "1", "-o", "my run.jsonl")
    done, again = (shared_hosts.dlbench(*words, cwd=tmp_path).err for _ in range(2))
    assert re.search(r"next       dlbench (run cnn|doctor) · saved in my run.jsonl · why: dlbench show 'my run.jsonl' --topic all\n", done)
    assert again.endswith("exists and is never overwritten; choose another name, or go on with it: dlbench run --resume 'my run.jsonl'\n")
    path = tmp_path / "my run.jsonl"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))  # as a kill leaves it
    assert "continue it with: dlbench run --resume 'my run.jsonl'" in shared_hosts.dlbench("show", "my run.jsonl", cwd=tmp_path).err


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
    collective = 'workload = "collective"\naxes.op = "all_reduce"\naxes.ranks = 1\naxes.bytes = 64'
    suite = front_door.suite(tmp_path, 'workload = "matmul"\naxes.n = 8', collective, head=head)
    _, rows = run(tmp_path, suite, "--device", "cpu", "--rounds", "1")
    one, ranks = sorted(rows, key=lambda each: each["case"]["workload"], reverse=True)
    told, missing_reasons = one.get("throttling", {}), one["missing_reasons"]
    assert ("waiting" in told) is not ("waiting" in missing_reasons)
    assert all(0 <= told[name] <= 1 for name in ("waiting", "stolen") if name in told)
    assert "waiting" not in ranks.get("throttling", {})
    assert explained(ranks["missing_reasons"]["waiting"]) == "threads of several ranks wait for each other's, too"
