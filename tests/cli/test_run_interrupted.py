"""Runs that do not reach their end: killed, interrupted, out of disk. Nothing measured is lost, and nobody is left behind."""

import json
import os
import platform
import re
import resource
import signal
import subprocess
import time
from contextlib import contextmanager
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

THEIRS = """
from dlbench import Feeding, Spread, Unit, Value, Work, workload

@workload(values=(Value("found", Unit.NUMBER, None, "found", optional=True),))
def theirs(device, *, n: Feeding[int] = 1) -> Work:
    return Work(call=lambda: None)
"""
QUICK_ONES = 'workload = "matmul"\naxes.n = [8, 16, 24]'


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


@contextmanager
def stopped_in_the_waiting_case(folder, *arguments):
    """Start a run and yield it and its processes once it is inside the case that waits until a file is there; afterwards they are gone."""
    suite = front_door.suite(folder, QUICK_ONES, 'workload = "waits_for"\naxes.file = "go"')
    process = start("run", suite, PRETEND, "--device", "cpu", "-o", "o.jsonl", "--seed", "4", *arguments, cwd=folder)
    # Seed 4 has the waiting case third in its first round.
    wait_until(lambda: (folder / "o.jsonl").exists() and (folder / "o.jsonl").read_text().count("\n") == 3, process)
    # The process that said what there is, which forks, and its fork.
    wait_until(lambda: len(children_of(process.pid)) == 2, process)
    children = children_of(process.pid)
    yield process, children
    wait_until(lambda: not any(front_door.is_alive(pid) for pid in children))


def resume(folder, *arguments, code=0, **options):
    done = shared_hosts.dlbench("run", "--resume", "o.jsonl", *arguments, cwd=folder, **options)
    assert done.code == code, done.err
    return done


def case_rounds(folder):
    return [(each["case"]["id"], each["round"]) for each in measurements(folder / "o.jsonl")]


def test_a_killed_run_leaves_no_process_and_resumes_to_the_same_cases(tmp_path):
    with stopped_in_the_waiting_case(tmp_path) as (process, _):
        process.kill()
        process.communicate()
    path = tmp_path / "o.jsonl"
    before = path.read_bytes()
    with path.open("ab") as file:  # as a kill in the middle of a write leaves it
        file.write(b'{"kind":"measurement","case":{"id":"mat')
    shown = front_door.in_process(tmp_path, "show", "o.jsonl")
    assert (shown.code, "last line" in shown.err, "dlbench run --resume o.jsonl" in shown.err) == (0, True, True)

    (tmp_path / "go").touch()
    (tmp_path / "mine.toml").unlink()  # the suite is that of the file
    done = dlbench("run", "--resume", "o.jsonl", cwd=tmp_path)
    assert done.code == 0, done.err
    assert path.read_bytes().startswith(before)
    assert lines(path)[-1]["kind"] == "footer"
    expected = [*(f"matmul[n={n},dtype=fp32]@cpu" for n in (8, 16, 24)), "waits_for[file=go]@cpu"]
    assert sorted(case_rounds(tmp_path)) == sorted((case, number) for case in expected for number in (0, 1))


def test_a_run_goes_on_to_more_rounds_of_its_cases(tmp_path):
    suite, path = front_door.suite(tmp_path, 'workload = "spin"\naxes.seconds = [0.001, 0.002]'), tmp_path / "o.jsonl"
    case = "spin[seconds=0.002]@cpu"
    shared_hosts.run(tmp_path, suite, "--device", "cpu", "--isolation", "none", "--rounds", "1", "-k", case)
    for options in ("--rounds 3 --budget 10m", "--rounds 2"):
        before = path.read_bytes()
        resume(tmp_path, *options.split())
        assert path.read_bytes().startswith(before)
        assert case_rounds(tmp_path) == [(case, number) for number in range(3)]


@pytest.mark.parametrize(("virtual", "memory", "code"), [(False, 1.1, 0), (False, 0.5, 2), (None, 0.5, 2), (True, 0.5, 0)])
def test_a_machine_with_a_little_more_memory_and_another_build_of_its_kernel_goes_on(tmp_path, monkeypatch, virtual, memory, code):
    """As one that was updated has; a virtual machine may be given much more of it as it uses it."""
    monkeypatch.setattr(processor, "is_virtual", lambda: virtual)
    path = tmp_path / "o.jsonl"
    shared_hosts.run(tmp_path, front_door.suite(tmp_path, 'workload = "noop"'), "--device", "cpu", "--rounds", "1")
    header, *rest = lines(path)
    cpu = header["environment"]["identity"]["cpu"]
    cpu["memory_gib"] = round(cpu["memory_gib"] / memory)
    header["environment"]["stack"]["kernel"] = ".".join(re.findall(r"\d+", platform.release())[:3]) + "-made-up"
    path.write_text("".join(f"{json.dumps(each)}\n" for each in (header, *rest)))
    done = resume(tmp_path, "--rounds", "2", code=code)
    assert len(measurements(path)) == (2 if code == 0 else 1)
    assert ("its rows would not be of one machine: identity.cpu.memory_gib: " in done.err) == (code == 2)
    assert "stack.kernel" not in done.err


@pytest.mark.parametrize(("number", "code"), [(signal.SIGHUP, 129), (signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_the_first_signal_ends_the_case_keeps_the_rest_and_says_how_to_go_on(tmp_path, number, code):
    with stopped_in_the_waiting_case(tmp_path) as (process, children):
        process.send_signal(number)
        out, err = process.communicate(timeout=30)
        assert not any(front_door.is_alive(pid) for pid in children)
    assert process.returncode == code, err
    assert "interrupted; go on with: dlbench run --resume o.jsonl" in err
    assert "matmul" in out
    assert (len(measurements(tmp_path / "o.jsonl")), lines(tmp_path / "o.jsonl")[-1]["kind"]) == (2, "round")


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
    shared_hosts.run(tmp_path, suite, "--rounds", "1", "--budget", "60s")
    before = (tmp_path / "o.jsonl").read_bytes()
    done = resume(tmp_path, "--format", "json")
    assert len(json.loads(done.out)) == 4
    said = done.err.splitlines()[-1]  # behind what else runs here
    assert said == "o.jsonl is complete; for more rounds: dlbench run --resume o.jsonl --rounds N, or --budget TIME"
    assert (tmp_path / "o.jsonl").read_bytes() == before


@pytest.mark.parametrize(
    ("bench", "options", "code"), [("raises", (FAULTS,), 5), ("noop", ("--gate", "--timeout", "1ms"), 4)], ids=["failed", "no baseline"]
)
def test_resuming_a_complete_run_ends_as_the_run_did(tmp_path, bench, options, code):
    suite = front_door.suite(tmp_path, f'workload = "{bench}"')
    first, _ = shared_hosts.run(tmp_path, suite, *options, "--device", "cpu", code=code)
    again = resume(tmp_path, code=code)
    assert "o.jsonl is complete" in again.err
    notes = [[line for line in done.err.splitlines() if line.startswith("note: ")] for done in (first, again)]
    assert notes[0] == notes[1]
    more = "note: more rounds go to the same file with: dlbench run --resume o.jsonl --rounds N"
    assert (more in notes[1]) == (code == 4)


def test_ctrl_c_before_the_first_case_is_measured_ends_in_two_lines(tmp_path):
    suite = front_door.suite(tmp_path, f'workload = "waits_for"\naxes.file = "{tmp_path / "go"}"')
    process = start("run", suite, PRETEND, "--device", "cpu", "-o", "o.jsonl", cwd=tmp_path)
    wait_until(lambda: (tmp_path / "o.jsonl").exists() and len(children_of(process.pid)) == 2, process)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    begun, *ended = [line for line in err.splitlines() if not line.startswith("busy: ")]  # whoever else runs here
    assert begun.startswith("round 1 of 2, 1 case left: starting workers for cpu")
    assert (process.returncode, out) == (130, "")
    assert ended == ["interrupted before any case was done", "go on with: dlbench run --resume o.jsonl"]


def test_ctrl_c_while_a_case_waits_to_be_measured_again_keeps_what_was_shown_and_hides_no_lost_machine(tmp_path, monkeypatch):
    def interrupt(*_):
        os.kill(os.getpid(), signal.SIGINT)

    def lose_a_machine(*_):
        interrupt()
        raise DeviceFault("machine 1 is gone")

    monkeypatch.setattr(Monitor, "throttling", lambda *_: Throttling(thermal=0.5))
    monkeypatch.setattr(Interruption, "wait", interrupt)
    suite = front_door.suite(tmp_path, 'workload = "noop"', head="policy = { rounds = 1, round_s = 0.01, tries = 2 }")
    done = front_door.in_process(tmp_path, "run", suite, "--device", "cpu", "-o", "o.jsonl")
    assert (done.code, ", 1 case, 1 round" in done.out, "discarded" in done.out + done.err) == (130, True, False), done
    assert [line["kind"] for line in lines(tmp_path / "o.jsonl")] == ["header", "discarded", "measurement", "round"]
    monkeypatch.setattr(Runner, "_measure_attempt", lose_a_machine)
    done = shared_hosts.dlbench("run", suite, "--device", "cpu", "-o", "lost.jsonl", cwd=tmp_path)
    assert (done.code, done.err.endswith("dlbench: machine 1 is gone\n")) == (ExitCode.DEVICE_FAULT, True), done.err


def test_a_run_of_an_installed_package_s_workload_is_gone_on_with(tmp_path):
    """It is imported only where a suite names it, which a resumed run takes from its file."""
    installed = tmp_path / "installed"
    info = installed / "theirs-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[dlbench.workloads]\ntheirs = theirs\n")
    (installed / "theirs.py").write_text(THEIRS)
    variables = {"PYTHONPATH": f"{installed}{os.pathsep}{front_door.environment()['PYTHONPATH']}"}
    suite = front_door.suite(tmp_path, 'workload = "theirs"', name="of_theirs")
    shared_hosts.run(tmp_path, suite, "--device", "cpu", "--rounds", "1", variables=variables)
    resume(tmp_path, "--rounds", "2", variables=variables)
    assert case_rounds(tmp_path) == [("theirs[]@cpu", 0), ("theirs[]@cpu", 1)]


@pytest.mark.parametrize(
    "anew", [("Feeding[int]", "Spread[int]"), ("Feeding[int]", "int"), ("Unit.NUMBER", "Unit.BYTES")], ids=["role", "none", "unit"]
)
def test_a_run_whose_workload_declares_something_else_is_not_gone_on_with(tmp_path, anew):
    (tmp_path / "mine.py").write_text(THEIRS)
    shared_hosts.run(tmp_path, front_door.suite(tmp_path, 'workload = "theirs"'), "mine.py", "--device", "cpu", "--rounds", "1")
    before = (tmp_path / "o.jsonl").read_bytes()
    (tmp_path / "mine.py").write_text(THEIRS.replace(*anew))
    done = resume(tmp_path, "--rounds", "2", code=2)
    assert (tmp_path / "o.jsonl").read_bytes() == before
    assert "o.jsonl can't be resumed, as what theirs declares changed since it was begun" in done.err


def test_a_file_of_another_machine_is_not_gone_on_with(tmp_path):
    shared_hosts.run(tmp_path, front_door.suite(tmp_path, QUICK_ONES), "--rounds", "1", "--isolation", "none")
    path = tmp_path / "o.jsonl"
    path.write_text(path.read_text().replace('"architecture":"', '"architecture":"not-'))
    before = path.read_text()
    done = resume(tmp_path, code=2)
    assert ("o.jsonl can't be resumed here" in done.err, "identity.architecture" in done.err) == (True, True)
    assert path.read_text() == before


def test_a_disk_that_fills_up_ends_the_run_with_74_and_what_was_measured_is_kept(tmp_path):
    arguments = (front_door.suite(tmp_path, QUICK_ONES), "--seed", "1", "--isolation", "none")
    shared_hosts.run(tmp_path, *arguments)
    limit = (tmp_path / "o.jsonl").stat().st_size * 2 // 3
    (tmp_path / "o.jsonl").unlink()

    # The kernel answers as on a full disk: first a short write, then an error.
    def small_disk():
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))

    done, kept = front_door.run(tmp_path, *arguments, code=74, preexec_fn=small_disk)
    assert "cannot write o.jsonl: " in done.err
    assert "dlbench run --resume o.jsonl" in done.err
    assert 0 < len(kept) < 6
    resume(tmp_path)
    after = measurements(tmp_path / "o.jsonl")
    assert (after[: len(kept)], len(after)) == (kept, 6)


def test_killing_the_middle_process_is_a_crash_of_the_case_and_not_of_the_run(tmp_path):
    with stopped_in_the_waiting_case(tmp_path, "--rounds", "1") as (process, children):
        (tmp_path / "go").touch()
        os.kill(children[0], signal.SIGKILL)
        _, err = process.communicate(timeout=120)
    assert process.returncode in (0, 5), err
    assert len({case for case, _ in case_rounds(tmp_path)}) == 4


@pytest.mark.parametrize("device", ["cpu", "pretend:0"])
def test_a_killed_run_takes_along_what_its_cases_started(tmp_path, device):
    suite, pids = front_door.suite(tmp_path, f'workload = "hangs"\naxes.pid_file = "{tmp_path / "pids"}"'), tmp_path / "pids"
    process = start("run", suite, FAULTS, PRETEND, "--device", device, "-o", "o.jsonl", cwd=tmp_path)
    wait_until(lambda: pids.exists() and len(pids.read_text().split()) == 2, process)
    started = [*map(int, pids.read_text().split())]  # the case and what it started
    assert all(map(front_door.is_alive, started))
    process.kill()
    process.communicate()
    wait_until(lambda: not any(map(front_door.is_alive, started)))


def test_a_second_signal_ends_at_once(tmp_path):
    with stopped_in_the_waiting_case(tmp_path) as (process, _):
        for _ in range(2):
            subprocess.run(["kill", "-INT", str(process.pid)], check=True)
        process.communicate(timeout=30)
        assert process.returncode == 130
