"""Runs that do not reach their end: killed, interrupted, out of disk. Nothing measured is lost, and nobody is left behind."""

import json
import os
import platform
import re
import resource
import signal
import subprocess
import time
from pathlib import Path

import front_door
import pytest
import shared_hosts
from front_door import FAULTS, PRETEND, dlbench, lines, measurements, start

from dlbench.core.conditions import Throttling
from dlbench.core.errors import DeviceFault, ExitCode
from dlbench.harness.probe import processor
from dlbench.harness.probe.sampler import Monitor
from dlbench.harness.process.launch import Interruption
from dlbench.harness.runner import Runner

pytestmark = pytest.mark.real

THEIRS = '''
from dlbench import Work, workload


@workload()
def theirs(device) -> Work:
    """Nothing."""
    return Work(call=lambda: None)
'''
QUICK_ONES = 'workload = "matmul"\naxes.n = [8, 16, 24]'


def waiting_suite(folder):
    """Some quick cases and one that lasts until the test lets it go on."""
    return front_door.suite(folder, QUICK_ONES, 'workload = "waits_for"\naxes.file = "go"')


def wait_until(condition, process=None):
    """Poll, bounded: what is waited for is another process."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "it never came"
        if process is not None and process.poll() is not None:
            pytest.fail(f"the command ended by itself: {process.communicate()}")
        time.sleep(0.02)


def children_of(pid):
    """All descendants, from the kernel's own list."""
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in map(int, (task / "children").read_text().split()):
            found += [child, *children_of(child)]
    return found


def stopped_in_the_waiting_case(folder, *arguments):
    """Start a run and return once it is inside the case that waits."""
    process = start("run", waiting_suite(folder), PRETEND, "--device", "cpu", "-o", "o.jsonl", *arguments, cwd=folder)
    # Seed 4 has the waiting case third in its first round.
    wait_until(lambda: (folder / "o.jsonl").exists() and len(measurements_so_far(folder / "o.jsonl")) == 2, process)
    # The process that said what there is, which forks, and its fork.
    wait_until(lambda: len(children_of(process.pid)) == 2, process)
    return process


def measurements_so_far(path):
    return [line for line in path.read_text().splitlines()[1:] if line.endswith("}")]


def test_a_run_of_one_case_goes_on_with_that_one(tmp_path):
    name = front_door.suite(tmp_path, 'workload = "spin"\naxes.seconds = [0.001, 0.002]', head=front_door.HASTY)
    run = ("run", name, "--device", "cpu", "-k", "spin[seconds=0.002]@cpu", "-o", "o.jsonl")
    for arguments in (run, ("run", "--resume", "o.jsonl", "--rounds", "3")):
        done = shared_hosts.dlbench(*arguments, cwd=tmp_path)
        assert done.code == 0, done.err
    found = [(each["case"]["id"], each["round"]) for each in lines(tmp_path / "o.jsonl") if each["kind"] == "measurement"]
    assert found == [("spin[seconds=0.002]@cpu", number) for number in range(3)]


def test_a_killed_run_leaves_no_process_and_resumes_to_the_same_cases(tmp_path):
    process = stopped_in_the_waiting_case(tmp_path, "--seed", "4")
    children = children_of(process.pid)
    process.kill()
    process.communicate()
    wait_until(lambda: not any(front_door.is_alive(pid) for pid in children))

    path = tmp_path / "o.jsonl"
    before = path.read_bytes()
    with path.open("ab") as file:  # as a kill in the middle of a write leaves it
        file.write(b'{"kind":"measurement","case":{"id":"mat')
    shown = front_door.in_process(tmp_path, "show", "o.jsonl")
    assert shown.code == 0
    assert "last line" in shown.err
    assert "dlbench run --resume o.jsonl" in shown.err

    (tmp_path / "go").touch()
    (tmp_path / "mine.toml").unlink()  # the suite is that of the file
    done = dlbench("run", "--resume", "o.jsonl", cwd=tmp_path)
    assert done.code == 0, done.err
    assert path.read_bytes().startswith(before)
    assert lines(path)[-1]["kind"] == "footer"
    measured = [(each["case"]["id"], each["round"]) for each in measurements(path)]
    expected = [*(f"matmul[n={n},dtype=fp32]@cpu" for n in (8, 16, 24)), "waits_for[file=go]@cpu"]
    assert sorted(measured) == sorted((case, number) for case in expected for number in (0, 1))


def test_a_run_goes_on_to_more_rounds(tmp_path):
    suite, path = front_door.suite(tmp_path, 'workload = "noop"'), tmp_path / "o.jsonl"
    alone = ("--device", "cpu", "--isolation", "none", "--rounds", "1")
    assert shared_hosts.dlbench("run", suite, *alone, "-o", "o.jsonl", cwd=tmp_path).code == 0
    before = path.read_bytes()
    done = shared_hosts.dlbench("run", "--resume", "o.jsonl", "--rounds", "3", "--budget", "10m", cwd=tmp_path)
    assert done.code == 0, done.err
    assert path.read_bytes().startswith(before)
    assert [each["round"] for each in measurements(path)] == [0, 1, 2]
    after = path.read_bytes()
    assert shared_hosts.dlbench("run", "--resume", "o.jsonl", "--rounds", "2", cwd=tmp_path).code == 0
    assert path.read_bytes().startswith(after)
    assert len(measurements(path)) == 3


@pytest.mark.parametrize(("virtual", "memory", "code"), [(False, 1.1, 0), (False, 0.5, 2), (None, 0.5, 2), (True, 0.5, 0)])
def test_a_machine_with_a_little_more_memory_and_another_build_of_its_kernel_goes_on(tmp_path, monkeypatch, virtual, memory, code):
    """As one that was updated has; a virtual machine may be given much more of it as it uses it."""
    monkeypatch.setattr(processor, "is_virtual", lambda: virtual)
    suite, path = front_door.suite(tmp_path, 'workload = "noop"'), tmp_path / "o.jsonl"
    assert shared_hosts.dlbench("run", suite, "--device", "cpu", "--rounds", "1", "-o", "o.jsonl", cwd=tmp_path).code == 0
    header, *rest = lines(path)
    cpu = header["environment"]["identity"]["cpu"]
    cpu["memory_gib"] = round(cpu["memory_gib"] / memory)
    header["environment"]["stack"]["kernel"] = ".".join(re.findall(r"\d+", platform.release())[:3]) + "-made-up"
    path.write_text("".join(f"{json.dumps(each)}\n" for each in (header, *rest)))
    done = shared_hosts.dlbench("run", "--resume", "o.jsonl", "--rounds", "2", cwd=tmp_path)
    assert done.code == code, done.err
    assert len(measurements(path)) == (2 if code == 0 else 1)
    assert ("its rows would not be of one machine: identity.cpu.memory_gib: " in done.err) == (code == 2)
    assert "stack.kernel" not in done.err


@pytest.mark.parametrize(("number", "code"), [(signal.SIGHUP, 129), (signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_the_first_signal_ends_the_case_keeps_the_rest_and_says_how_to_go_on(tmp_path, number, code):
    process = stopped_in_the_waiting_case(tmp_path, "--seed", "4")
    children = children_of(process.pid)
    process.send_signal(number)
    out, err = process.communicate(timeout=30)
    assert process.returncode == code, err
    assert "interrupted; go on with: dlbench run --resume o.jsonl" in err
    assert "matmul" in out
    assert len(measurements(tmp_path / "o.jsonl")) == 2
    assert lines(tmp_path / "o.jsonl")[-1]["kind"] == "round"
    assert not any(front_door.is_alive(pid) for pid in children)


def test_the_first_signal_keeps_a_case_that_was_timed_already(tmp_path):
    """With why it lacks a profile; the round of the case behind it has not begun."""
    bench = f'workload = "troubled_in_its_profile"\naxes.trouble = "{tmp_path / "there"}"'
    suite = front_door.suite(tmp_path, bench, head=front_door.HASTY.replace("rounds = 2", "rounds = 1"))
    process = start("run", suite, FAULTS, "--device", "cpu", "-o", "o.jsonl", cwd=tmp_path)
    wait_until((tmp_path / "there").exists, process)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130, err
    (row,) = measurements(tmp_path / "o.jsonl")
    assert (row["status"], len(row["samples"]["block_s"]) > 1) == ("ok", True)
    assert row["missing_reasons"]["profile"] == [{"reason": "cut_off", "text": "the run was interrupted"}]


def test_resuming_a_finished_run_says_that_it_is_complete(tmp_path):
    """One that its budget has ended, too, which would otherwise be spent once more."""
    suite = front_door.suite(tmp_path, f'{QUICK_ONES}\ndevices = ["cpu"]', 'workload = "noop"\ndevices = ["xpu:7"]')
    arguments = ("run", suite, "--rounds", "1", "--budget", "60s", "-o", "o.jsonl")
    assert shared_hosts.dlbench(*arguments, cwd=tmp_path).code == 0
    before = (tmp_path / "o.jsonl").read_bytes()
    done = shared_hosts.dlbench("run", "--resume", "o.jsonl", "--format", "json", cwd=tmp_path)
    assert (done.code, len(json.loads(done.out))) == (0, 4)
    said = done.err.splitlines()[-1]  # behind what else runs here
    assert said == "o.jsonl is complete; for more rounds: dlbench run --resume o.jsonl --rounds N, or --budget TIME"
    assert (tmp_path / "o.jsonl").read_bytes() == before


def test_resuming_a_complete_run_with_a_failed_case_ends_as_the_run_did(tmp_path):
    suite = front_door.suite(tmp_path, 'workload = "noop"\ndevices = ["cpu"]', 'workload = "raises"\ndevices = ["cpu"]')
    assert shared_hosts.dlbench("run", suite, FAULTS, "--rounds", "1", "-o", "o.jsonl", cwd=tmp_path).code == 5
    done = shared_hosts.dlbench("run", "--resume", "o.jsonl", cwd=tmp_path)
    assert (done.code, "o.jsonl is complete" in done.err) == (5, True)


def test_resuming_a_complete_baseline_that_could_not_show_a_change_ends_as_the_run_did(tmp_path):
    suite = front_door.suite(tmp_path, 'workload = "noop"')
    arguments = ("run", suite, "--gate", "--device", "cpu", "--timeout", "1ms", "-o", "o.jsonl")
    first, again = (shared_hosts.dlbench(*each, cwd=tmp_path) for each in (arguments, ("run", "--resume", "o.jsonl")))
    assert (first.code, again.code, "o.jsonl is complete" in again.err) == (4, 4, True)
    notes = [[line for line in done.err.splitlines() if line.startswith("note: ")] for done in (first, again)]
    assert notes[0] == notes[1]
    assert "note: more rounds go to the same file with: dlbench run --resume o.jsonl --rounds N" in notes[1]


def test_ctrl_c_before_the_first_case_is_measured_ends_in_two_lines(tmp_path):
    suite = front_door.suite(tmp_path, f'workload = "waits_for"\naxes.file = "{tmp_path / "go"}"')
    process = start("run", suite, PRETEND, "--device", "cpu", "-o", "o.jsonl", cwd=tmp_path)
    wait_until(lambda: (tmp_path / "o.jsonl").exists() and len(children_of(process.pid)) == 2, process)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out) == (130, "")
    begun, *ended = [line for line in err.splitlines() if not line.startswith("busy: ")]  # whoever else runs here
    assert begun.startswith("round 1 of 2, 1 case left: starting workers for cpu")
    assert ended == ["interrupted before any case was done", "go on with: dlbench run --resume o.jsonl"]


@pytest.fixture
def interrupted_in_the_pause(tmp_path, monkeypatch):
    """The suite of one case that is throttled, and interrupted before it is measured again."""
    monkeypatch.setattr(Monitor, "throttling", lambda *_: Throttling(thermal=0.5))
    monkeypatch.setattr(Interruption, "wait", lambda *_: os.kill(os.getpid(), signal.SIGINT))
    return front_door.suite(tmp_path, 'workload = "noop"', head="policy = { rounds = 1, round_s = 0.01, tries = 2 }")


def test_ctrl_c_while_a_case_waits_to_be_measured_again_keeps_what_was_shown(tmp_path, interrupted_in_the_pause):
    done = front_door.in_process(tmp_path, "run", interrupted_in_the_pause, "--device", "cpu", "-o", "o.jsonl")
    assert (done.code, ", 1 case, 1 round" in done.out) == (130, True), done
    assert "discarded" not in done.out + done.err
    assert [line["kind"] for line in lines(tmp_path / "o.jsonl")] == ["header", "discarded", "measurement", "round"]


def test_ctrl_c_does_not_hide_that_a_machine_is_gone(tmp_path, interrupted_in_the_pause, monkeypatch):
    def lose_a_machine(self, *_):
        os.kill(os.getpid(), signal.SIGINT)
        raise DeviceFault("machine 1 is gone")

    monkeypatch.setattr(Runner, "_measure_attempt", lose_a_machine)
    done = shared_hosts.dlbench("run", interrupted_in_the_pause, "--device", "cpu", "-o", "o.jsonl", cwd=tmp_path)
    assert (done.code, done.err.endswith("dlbench: machine 1 is gone\n")) == (ExitCode.DEVICE_FAULT, True), done.err


def test_a_run_of_an_installed_package_s_workload_is_gone_on_with(tmp_path):
    """It is imported only where a suite names it, which a resumed run takes from its file."""
    installed = tmp_path / "installed"
    (installed / "theirs-1.0.dist-info").mkdir(parents=True)
    (installed / "theirs-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    (installed / "theirs-1.0.dist-info" / "entry_points.txt").write_text("[dlbench.workloads]\ntheirs = theirs\n")
    (installed / "theirs.py").write_text(THEIRS)
    variables = {"PYTHONPATH": f"{installed}{os.pathsep}{front_door.environment()['PYTHONPATH']}"}
    suite = front_door.suite(tmp_path, 'workload = "theirs"', name="of_theirs")
    first = shared_hosts.dlbench("run", suite, "--device", "cpu", "--rounds", "1", "-o", "o.jsonl", cwd=tmp_path, variables=variables)
    again = shared_hosts.dlbench("run", "--resume", "o.jsonl", "--rounds", "2", cwd=tmp_path, variables=variables)
    assert (first.code, again.code) == (0, 0), again.err
    assert [(each["case"]["id"], each["round"]) for each in measurements(tmp_path / "o.jsonl")] == [
        ("theirs[]@cpu", 0),
        ("theirs[]@cpu", 1),
    ]


@pytest.mark.parametrize(
    "anew", [("Feeding[int]", "Spread[int]"), ("Feeding[int]", "int"), ("Unit.NUMBER", "Unit.BYTES")], ids=["role", "none", "unit"]
)
def test_a_run_whose_workload_declares_something_else_is_not_gone_on_with(tmp_path, anew):
    plugin = """from dlbench import Feeding, Spread, Unit, Value, Work, workload

@workload(values=(Value("found", Unit.NUMBER, None, "found", optional=True),))
def mine(device, *, n: Feeding[int] = 1) -> Work:
    'Mine.'
    return Work(call=lambda: None)
"""
    (tmp_path / "mine.py").write_text(plugin)
    suite = front_door.suite(tmp_path, 'workload = "mine"')
    begun = ("run", suite, "mine.py", "--device", "cpu", "--rounds", "1", "-o", "o.jsonl")
    assert shared_hosts.dlbench(*begun, cwd=tmp_path).code == 0
    before = (tmp_path / "o.jsonl").read_bytes()
    (tmp_path / "mine.py").write_text(plugin.replace(*anew))
    done = shared_hosts.dlbench("run", "--resume", "o.jsonl", "--rounds", "2", cwd=tmp_path)
    assert (done.code, (tmp_path / "o.jsonl").read_bytes()) == (2, before)
    assert "o.jsonl can't be resumed, as what mine declares changed since it was begun" in done.err


def test_a_file_of_another_machine_is_not_gone_on_with(tmp_path):
    arguments = ("run", front_door.suite(tmp_path, QUICK_ONES), "--rounds", "1", "--isolation", "none", "-o", "o.jsonl")
    assert shared_hosts.dlbench(*arguments, cwd=tmp_path).code == 0
    path = tmp_path / "o.jsonl"
    path.write_text(path.read_text().replace('"architecture":"', '"architecture":"not-'))
    before = path.read_text()
    done = shared_hosts.dlbench("run", "--resume", "o.jsonl", cwd=tmp_path)
    assert done.code == 2
    assert "o.jsonl can't be resumed here" in done.err
    assert "identity.architecture" in done.err
    assert path.read_text() == before


def test_a_disk_that_fills_up_ends_the_run_with_74_and_what_was_measured_is_kept(tmp_path):
    arguments = ("run", front_door.suite(tmp_path, QUICK_ONES), "--seed", "1", "--isolation", "none")
    assert shared_hosts.dlbench(*arguments, "-o", "whole.jsonl", cwd=tmp_path).code == 0
    size = (tmp_path / "whole.jsonl").stat().st_size
    limit = size * 2 // 3

    # The kernel answers as on a full disk: first a short write, then an error.
    def small_disk():
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))

    done = dlbench(*arguments, "-o", "cut.jsonl", cwd=tmp_path, preexec_fn=small_disk)
    assert done.code == 74
    assert "cannot write cut.jsonl: " in done.err
    assert "dlbench run --resume cut.jsonl" in done.err
    kept = measurements(tmp_path / "cut.jsonl")
    assert 0 < len(kept) < 6
    resumed = shared_hosts.dlbench("run", "--resume", "cut.jsonl", cwd=tmp_path)
    assert resumed.code == 0, resumed.err
    assert measurements(tmp_path / "cut.jsonl")[: len(kept)] == kept
    assert len(measurements(tmp_path / "cut.jsonl")) == 6


def test_killing_the_middle_process_is_a_crash_of_the_case_and_not_of_the_run(tmp_path):
    process = stopped_in_the_waiting_case(tmp_path, "--seed", "4", "--rounds", "1")
    (tmp_path / "go").touch()
    os.kill(children_of(process.pid)[0], signal.SIGKILL)
    _, err = process.communicate(timeout=120)
    assert process.returncode in (0, 5), err
    assert len({each["case"]["id"] for each in measurements(tmp_path / "o.jsonl")}) == 4


@pytest.mark.parametrize("device", ["cpu", "pretend:0"])
def test_a_killed_run_takes_along_what_its_cases_started(tmp_path, device):
    suite = front_door.suite(tmp_path, f'workload = "hangs"\naxes.pid_file = "{tmp_path / "pids"}"')
    process = start("run", suite, FAULTS, PRETEND, "--device", device, "-o", "o.jsonl", cwd=tmp_path)
    wait_until(lambda: (tmp_path / "pids").exists() and len((tmp_path / "pids").read_text().split()) == 2, process)
    case, grandchild = map(int, (tmp_path / "pids").read_text().split())
    assert front_door.is_alive(case)
    assert front_door.is_alive(grandchild)
    process.kill()
    process.communicate()
    wait_until(lambda: not front_door.is_alive(case) and not front_door.is_alive(grandchild))


def test_a_second_signal_ends_at_once(tmp_path):
    process = stopped_in_the_waiting_case(tmp_path, "--seed", "4")
    children = children_of(process.pid)
    subprocess.run(["kill", "-INT", str(process.pid)], check=True)
    subprocess.run(["kill", "-INT", str(process.pid)], check=True)
    process.communicate(timeout=30)
    assert process.returncode == 130
    wait_until(lambda: not any(front_door.is_alive(pid) for pid in children))
