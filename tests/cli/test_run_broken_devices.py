"""Devices that can't be computed on, or stop being so, by the front door: a reason in their rows, and all others measured."""

import fcntl
import json
import re
import subprocess
from unittest import mock

import front_door
import pytest
import shared_hosts
from front_door import PLUGINS, dlbench, lines, measurements

from dlbench.core.conditions import Throttling
from dlbench.harness.probe.sampler import Monitor

pytestmark = pytest.mark.real

CARDS = str(PLUGINS / "broken_cards.py")
ADDS = 'workload = "adds"'
NO_INSTANCE = "its driver counts it and CUDA does not: in MIG mode without an instance, lost, or kept from this container; see nvidia-smi"
OLD_DRIVER = "its driver is too old for this torch, as it goes up to CUDA 11.4; update it, or install a torch for that"
MISMATCH = "the NVIDIA libraries and the loaded driver are of different versions: reboot, or match them"
NO_KERNELS = "this torch has no kernels for it; install one that was built for it"
LOST = "it does not start (RuntimeError: CUDA error: unknown error); see what its driver says"
BUSY = "another process has it to itself, or its compute mode prohibits computing; see nvidia-smi -q -d COMPUTE"
FAULT = "RuntimeError: CUDA error: an illegal memory access was encountered"
FAULTED = f"cuda:0 failed in 2 processes in a row ({FAULT})"
# In the folder that the command runs in, so that it is found before the real one.
EXCLUSIVE_NVML = """
class NVMLError(Exception):
    value = 3

def __getattr__(name):
    if name.startswith("NVML_"):
        return len(name)
    if name.startswith("nvmlDeviceGet"):
        return refuse
    raise AttributeError(name)

def refuse(*_):
    raise NVMLError

def nvmlInit(): pass
def nvmlShutdown(): pass
def nvmlDeviceGetHandleByPciBusId(address): return address
def nvmlDeviceGetComputeMode(card): return 3
"""


def with_cards(cards, *arguments, cwd, run=shared_hosts.dlbench, **variables):
    return run(*arguments, CARDS, cwd=cwd, variables={"CARDS": cards, **variables})


def run_on(cards, folder, *arguments, benches=(ADDS,), code=0):
    return shared_hosts.run(folder, front_door.suite(folder, *benches), CARDS, *arguments, code=code, variables={"CARDS": cards})


@pytest.mark.parametrize(
    ("cards", "reasons"),
    [("no-instance", [NO_INSTANCE]), ("lost ancient fine beyond", [LOST, NO_KERNELS, None, NO_INSTANCE]), ("unstartable", [MISMATCH])],
    ids=["MIG without instances, or NVML sees what CUDA does not", "each for itself", "NVML and the driver of different versions"],
)
def test_devices_shows_what_cannot_be_used_and_why(tmp_path, cards, reasons):
    done = with_cards(cards, "devices", "--format", "json", cwd=tmp_path)
    found = {each["id"]: each.get("unusable") for each in json.loads(done.out)["devices"]}
    assert (done.code, found) == (0, {"cpu": None, **{f"cuda:{index}": reason for index, reason in enumerate(reasons)}})


def test_devices_leaves_out_what_is_not_known_of_such_a_device(tmp_path):
    done = with_cards("old-driver", "devices", cwd=tmp_path)
    assert done.out.split("\n\n", 2)[2] == f"cuda:0\nkind      cuda\nunusable  {OLD_DRIVER}\n\n"


@pytest.fixture(scope="module")
def mixed(tmp_path_factory):
    """A run on a CPU, a card and one that can't be used."""
    folder = tmp_path_factory.mktemp("mixed")
    return *run_on("fine no-instance", folder), folder


def test_a_run_measures_the_others_and_gives_its_cases_a_reason_and_its_machine_is_that_of_the_others(mixed):
    done, rows, folder = mixed
    assert {each["case"]["id"]: (each["status"], each.get("reason")) for each in rows} == {
        "adds[]@cpu": ("ok", None),
        "adds[]@cuda:0": ("ok", None),
        "adds[]@cuda:1": ("skipped", f"cuda:1 can't be used: {NO_INSTANCE}"),
    }
    assert NO_INSTANCE in done.out
    header = lines(folder / "o.jsonl")[0]
    assert {each["id"]: each.get("unusable") for each in header["devices"]} == {"cpu": None, "cuda:0": None, "cuda:1": NO_INSTANCE}
    assert [each["name"] for each in header["environment"]["identity"]["accelerators"]] == ["NVIDIA Made-up fine"]


def test_a_run_that_goes_on_without_a_device_that_it_had_says_which(mixed):
    *_, folder = mixed
    done = shared_hosts.dlbench("run", "--resume", "o.jsonl", cwd=folder, variables={"CARDS": "old-driver no-instance"})
    said = f"cuda:0 can't be used now: {OLD_DRIVER}; go on when it can, or start a new run without it"
    assert (done.code, done.err) == (69, f"dlbench: {said}\n")


def test_a_device_that_was_asked_for_and_cannot_be_used_is_69_and_the_reason(tmp_path):
    for words in (("--device", "cuda"), ("--device", "cpu", "--device", "cuda:0")):
        done, rows = run_on("old-driver", tmp_path, *words, code=69)
        assert (done.out, done.err, rows) == ("", f"dlbench: cuda:0 can't be used: {OLD_DRIVER}\n", [])


def test_a_device_in_exclusive_mode_that_another_process_uses_says_so(tmp_path):
    with (tmp_path / "card").open("w") as card:
        fcntl.lockf(card, fcntl.LOCK_EX)
        done = with_cards("fine", "devices", "--format", "json", cwd=tmp_path, run=dlbench, EXCLUSIVE=str(tmp_path / "card"))
    assert json.loads(done.out)["devices"][1]["unusable"] == BUSY


def test_both_sides_of_an_ab_take_turns_on_a_device_in_exclusive_mode(tmp_path):
    (tmp_path / "pynvml.py").write_text(EXCLUSIVE_NVML)
    arguments = ("ab", front_door.suite(tmp_path, ADDS), "--b", "same", "--rounds", "1", "--device", "cuda", "-o", "o.jsonl")
    done = with_cards("fine", *arguments, cwd=tmp_path, run=dlbench, EXCLUSIVE=str(tmp_path / "card"))
    ended = [(each["side"], each["status"]) for each in measurements(tmp_path / "o.jsonl")]
    assert sorted(ended) == [("a", "ok"), ("b", "ok")], done.err
    assert lines(tmp_path / "o.jsonl")[0]["devices"][0]["compute_mode"] == "exclusive_process"


@pytest.fixture(scope="module")
def retired(tmp_path_factory):
    """A run in which one of two cards fails until it is left alone."""
    folder = tmp_path_factory.mktemp("retired")
    benches = ('workload = "faults"\ndevices = ["cuda:0"]\naxes.n = [1, 2, 3]', ADDS)
    # With this seed cuda:0 measures its other case before it fails twice, and the last case of all is on the CPU.
    with mock.patch.object(Monitor, "throttling", return_value=Throttling(waiting=0.0)):  # whoever else runs here
        return *run_on("fine fine", folder, "--seed", "55", benches=benches, code=75), folder


def test_a_device_that_keeps_failing_is_left_alone_and_the_others_are_measured_to_the_end(retired):
    done, rows, folder = retired
    for device in ("cpu", "cuda:1"):
        assert [(each["round"], each["status"]) for each in rows if each["case"]["device"] == device] == [(0, "ok"), (1, "ok")]
    there = [each for each in rows if each["case"]["device"] == "cuda:0"]
    skipped = ("skipped", f"{FAULTED}; check it, then measure again")
    crashed = ("crashed", FAULT)
    assert [(each["case"]["workload"], each["round"], each["status"], each.get("reason")) for each in there] == [
        ("adds", 0, "ok", None),
        ("faults", 0, *crashed),
        ("faults", 0, *crashed),
        ("faults", 0, *skipped),
        ("adds", 1, *skipped),
    ]
    # Then the footer, the tables and how to go on are there all the same.
    assert lines(folder / "o.jsonl")[-1]["kind"] == "footer"
    assert re.search(r"^worth it +.*×", done.out, re.MULTILINE)
    assert done.err.splitlines()[-2:] == [
        "what was skipped can be measured with: dlbench run --resume o.jsonl",
        f"dlbench: {FAULTED}; the remaining cases there were skipped; check it, then measure again",
    ]


def test_a_resumed_run_gives_its_cases_another_chance(retired):
    *_, folder = retired
    done = shared_hosts.dlbench("run", "--resume", "o.jsonl", cwd=folder, variables={"CARDS": "fine fine"})
    assert done.code == 5, done.err  # what crashed before is not tried again
    ok = [each["round"] for each in measurements(folder / "o.jsonl") if each["case"]["id"] == "adds[]@cuda:0" and each["status"] == "ok"]
    assert ok == [0, 1]


def test_no_verdict_on_an_ab_in_which_a_device_kept_failing(tmp_path):
    suite = front_door.suite(tmp_path, 'workload = "faults"\naxes.n = [1, 2, 3]', ADDS)
    arguments = ("ab", suite, "--b", "same", "--rounds", "1", "--device", "cuda", "--confirm", "-o", "o.jsonl", "--seed", "1")
    done = with_cards("fine", *arguments, cwd=tmp_path)
    assert (done.code, "verdict" in done.out) == (75, False), done.err
    assert all(f"side {side}: cuda:0 failed in 2 processes in a row" in done.err for side in "ab")
    assert lines(tmp_path / "o.jsonl")[-1]["kind"] == "footer"


@pytest.mark.usefixtures("hasty_doctor")
def test_the_doctor_says_what_cannot_be_used(tmp_path):
    done = with_cards("old-driver", "doctor", "--rounds", "1", "--format", "json", cwd=tmp_path)
    assert done.code == 4, done.err
    found = [
        (row["doctor.check"], row["doctor.fitness"], row["doctor.found"])
        for row in json.loads(done.out)
        if row["doctor.device"] == "cuda:0"
    ]
    assert found == [("start", "unfit", f"can't be used: {OLD_DRIVER}")]


def test_a_process_that_survives_its_kill_is_left_and_its_device_given_up(tmp_path, monkeypatch):
    """As one that waits for a card which fell off its bus: nothing waits for it without end."""
    wait = subprocess.Popen.wait

    def never_ends(process, timeout=None):
        code = wait(process)
        if timeout is not None:
            raise subprocess.TimeoutExpired("a process", timeout)
        return code

    monkeypatch.setattr(subprocess.Popen, "wait", never_ends)
    suite = front_door.suite(tmp_path, f'workload = "waits_for"\naxes.file = ["{tmp_path}/1", "{tmp_path}/2", "{tmp_path}/3"]')
    arguments = (front_door.PRETEND, "--device", "pretend:0", "--rounds", "1", "--timeout", "0.2s", "-o", "o.jsonl")
    done = front_door.in_process(tmp_path, "run", suite, *arguments)
    assert done.code == 75
    first, second, third = measurements(tmp_path / "o.jsonl")
    assert [first["status"], second["status"]] == ["timeout"] * 2
    assert (third["status"], third["reason"]) == (
        "skipped",
        f"pretend:0 failed in 2 processes in a row ({second['reason']}); check it, then measure again",
    )
