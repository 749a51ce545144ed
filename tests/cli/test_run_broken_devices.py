"""Accelerators by the front door: those that break get a reason in their rows, and memory peaks are those of a case alone."""

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
from dlbench.core.errors import explained
from dlbench.harness.probe.sampler import Monitor

pytestmark = pytest.mark.real


CARDS = str(PLUGINS / "broken_cards.py")
ADDS = 'workload = "adds"'
NO_INSTANCE = "its driver counts it and CUDA does not: in MIG mode without an instance, lost, or kept from this container; see nvidia-smi"
OLD_DRIVER = "its driver is too old for this torch, as it goes up to CUDA 11.4; update it, or install a torch for that"
MISMATCH = "the NVIDIA libraries and the loaded driver are of different versions: reboot, or match them"
NO_KERNELS = "this torch has no kernels for it, only for sm_80, sm_90; install one that was built for it"
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


def in_own_processes(*arguments, cwd):
    """The command in this process, and all cases in others of its own, as what a case leaves is there for the next."""
    with mock.patch.dict("os.environ", front_door.environment(), clear=True):
        return front_door.in_process(cwd, *arguments)


CARD_PLUGIN = """
from typing import Literal

import torch
from dlbench import Backend, Memory, Work, register_backend, workload

MIB = 1 << 20

class Counted(Backend):
    kind = "counted"
    block_s, warmup_s = 0.002, 0.01

    def count(self):
        return 1

    def describe(self, index):
        return {"name": "Made-up card"}

    def device(self, index):
        return torch.device("cpu")

    def reset_peak(self, device):
        self.reserved = self.live
        self.restart_peak(device)

    def restart_peak(self, device):
        self.peaks = Memory(self.live, self.reserved)

    def peak(self, device):
        return self.peaks

    def held(self, device):
        return Memory(self.live, self.reserved)

    live = reserved = 0

    def take(self, size):
        self.live += size
        self.reserved = max(self.reserved, self.live)
        self.peaks = Memory(max(self.peaks.peak_bytes, self.live), max(self.peaks.reserved_bytes, self.reserved))

    def use(self, size):
        self.take(size)
        self.live -= size

if not hasattr(torch, "made_up_card"):  # each request loads this module anew
    torch.made_up_card = Counted()
CARD = torch.made_up_card
register_backend(CARD)

@workload()
def leaves(device: torch.device, *, n: int) -> Work:
    CARD.take(100 * MIB)
    return Work(call=lambda: CARD.use(5 * MIB))

@workload()
def tries(device: torch.device) -> Work:
    torch.backends.cudnn.benchmark = True
    CARD.take(7 * MIB)
    CARD.use(1000 * MIB)
    return Work(call=lambda: CARD.use(5 * MIB))

@workload()
def frees(device: torch.device, *, n: int) -> Work:
    if CARD.live:
        CARD.live = 0
    else:
        CARD.take(100 * MIB)
    torch.backends.cudnn.benchmark = True
    return Work(call=lambda: CARD.use(5 * MIB))

@workload()
def compares(device: torch.device, *, mode: Literal["compile", "graph"]) -> Work:
    CARD.take(7 * MIB)
    CARD.use(1000 * MIB)
    return Work(call=lambda: CARD.use(5 * MIB), set_up_memory_counts=mode != "compile")
"""
MIB = 1 << 20


def memory(folder, bench, by=shared_hosts.dlbench):
    """Of each case the peak of live tensors and that of the allocator, in MiB, and what the row says of them."""
    (folder / "counted.py").write_text(CARD_PLUGIN)
    _, rows = front_door.run(folder, front_door.suite(folder, bench), "counted.py", "--device", "counted:0", "--rounds", "1", by=by)
    said = [explained(each["missing_reasons"]["memory"]) if "memory" in each["missing_reasons"] else None for each in rows]
    return [(each["memory"]["peak_bytes"] / MIB, each["memory"]["reserved_bytes"] / MIB, why) for each, why in zip(rows, said, strict=True)]


def test_what_an_earlier_case_left_allocated_is_not_the_next_ones_and_is_named(tmp_path):
    found = memory(tmp_path, 'workload = "leaves"\naxes.n = [1, 2, 3]', in_own_processes)
    left = [None, *(f"{mib} MiB that an earlier case left are not in it" for mib in (100, 200))]
    assert found == [(105, 105, said) for said in left]


def test_what_set_up_frees_of_an_earlier_case_is_not_taken_off(tmp_path):
    found = memory(tmp_path, 'workload = "frees"\naxes.n = [1, 2]', in_own_processes)
    assert [(live, said) for live, _, said in found] == [(105, None), (5, None)]


@pytest.mark.parametrize(
    ("bench", "live_mib"), [("tries", 12), ('compares"\naxes.mode = "compile', 12), ('compares"\naxes.mode = "graph', 1007)]
)
def test_what_cudnn_tries_and_the_eager_step_that_a_compiled_one_is_held_against_are_not_live_in_its_steps(tmp_path, bench, live_mib):
    """What a graph takes is allocated in its set-up, and so counts."""
    assert memory(tmp_path, f'workload = "{bench}"') == [(live_mib, 1007, None)]


PLUGIN = """
import os
from typing import Literal
import torch
from dlbench import Unit, Value, Work, workload

FOUND = tuple(Value(name, Unit.COUNT, None, "devices that torch may use") for name in ("cuda", "hip", "xpu"))

def found(clock):
    counts = {"cuda": len(torch.cuda._parse_visible_devices())}
    built_for, torch.version.hip = torch.version.hip, "6.4"
    counts["hip"] = len(torch.cuda._parse_visible_devices())
    torch.version.hip = built_for
    mask = os.environ.get("ZE_AFFINITY_MASK", "0,1")
    return {**counts, "xpu": sum(int(index) < 2 for index in mask.split(","))}

@workload(values=FOUND)
def visible(device: torch.device, *, mode: Literal["eager", "autotune"] = "eager") -> Work:
    return Work(observe=found)

@workload(values=FOUND)
def visible_to_ranks(device: torch.device, *, ranks: int) -> Work:
    return Work(observe=found)
"""
NONE = {"cuda": 0, "hip": 0, "xpu": 0}
ALL = {"cuda": 64, "hip": 1, "xpu": 2}
"""As many as torch can number, and of ROCm those that ROCR_VISIBLE_DEVICES leaves."""
MASKS = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ZE_AFFINITY_MASK")


@pytest.fixture
def nothing_hidden_by_the_caller(monkeypatch):
    for name in MASKS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ROCR_VISIBLE_DEVICES", "0")


def visible(folder, *benches, isolation="fork", by=shared_hosts.dlbench):
    """The devices that torch may use in each case on the CPU, and in each on an accelerator of the same run."""
    (folder / "visible.py").write_text(PLUGIN)
    more = ("visible.py", front_door.PRETEND, "--rounds", "1", "--isolation", isolation, "--seed", "3")
    _, rows = front_door.run(folder, front_door.suite(folder, *benches), *more, by=by)
    return tuple([each["values"] for each in rows if each["case"]["device"] == device] for device in ("cpu", "pretend:0"))


@pytest.mark.usefixtures("nothing_hidden_by_the_caller")
def test_cases_on_the_cpu_find_no_accelerator_nor_do_ranks_and_one_on_an_accelerator_finds_all(tmp_path):
    benches = 'workload = "visible"\ndevices = ["cpu", "pretend"]', 'workload = "visible_to_ranks"\naxes.ranks = 1\ndevices = ["cpu"]'
    assert visible(tmp_path, *benches) == ([NONE, NONE], [ALL])


@pytest.mark.parametrize(("isolation", "on_cpu"), [("spawn", NONE), ("none", ALL)])
@pytest.mark.usefixtures("nothing_hidden_by_the_caller")
def test_a_fresh_process_a_case_finds_none_and_one_process_for_all_devices_finds_all(tmp_path, isolation, on_cpu):
    bench = 'workload = "visible"\naxes.mode = ["autotune"]\ndevices = ["cpu", "pretend"]'
    assert visible(tmp_path, bench, isolation=isolation, by=in_own_processes) == ([on_cpu], [ALL])
