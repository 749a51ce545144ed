"""Steps of `benchmarks.gpu_check`: what each runs, and what has to come of it."""

import json
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.alternate import ROOT
from benchmarks.gpu_tests import TESTS_S, GpuTests
from benchmarks.limited import STOPPED, dlbench_run, to_rounds
from benchmarks.pieces import measurements_left
from dlbench.core.errors import ExitCode
from dlbench.core.model import Status
from dlbench.core.rank_test import FEWEST_ROUNDS
from dlbench.core.store import RunFile, load
from dlbench.core.units import byte_count

PEAK_TIMES = 2.0
"""How many times eager's peak autotuning may take: its algorithm may need more, but those that were only tried do not count."""


@dataclass(frozen=True)
class Seen:
    """What came of a step."""

    held: bool | None
    """None: there was nothing to hold, as with facts, or on a CPU."""
    what: str

    def word(self) -> str:
        """Return it as the table has it."""
        return {True: "yes", False: "NO", None: "–"}[self.held]


@dataclass
class Check:
    """What the steps are done with."""

    folder: Path
    device: Mapping[str, Any]
    """As ``dlbench devices`` describes it."""
    hello: Mapping[str, Any]
    hello_s: float
    """What this call's first process took to import torch and to tell of the machine."""
    call_s: float
    """What a fresh call has for its first step."""
    key: str
    """Digest of the code and of torch."""
    clock: Callable[[], float]
    command: Callable[[Sequence[str], Path], int] = field(init=False)
    """Runs this Python, what it prints into a file, to the end of the step's time."""
    left_s: float = field(default=0.0, init=False)
    """Of the step that is being done."""
    anew: bool = field(default=False, init=False)
    """Whether the step begins, so that a file of its own is one of other code."""
    code: ExitCode = field(default=ExitCode.OK, init=False)

    @property
    def id(self) -> str:
        """Of the device."""
        return str(self.device["id"])

    @property
    def devices(self) -> list[str]:
        """The options for the CPU and the device."""
        return [word for name in dict.fromkeys(("cpu", self.id)) for word in ("--device", name)]

    def run(self, words: Sequence[str], name: str) -> tuple[int, str]:
        """Run this Python; return its exit code and what it printed, which stays in the folder."""
        path = self.folder / f"{name}.txt"
        code = self.command(words, path)
        if code == ExitCode.INTERRUPTED:
            self.code = ExitCode.INTERRUPTED
        return code, path.read_text(errors="replace") if path.exists() else ""

    def measure(self, name: str, words: Sequence[str], limits: Sequence[str]) -> tuple[int, RunFile | None]:
        """Run a suite into a file of that name, or go on with it; return the exit code and the file."""
        path = self.folder / f"{name}.jsonl"
        if self.anew and path.exists():
            path.replace(path.with_suffix(".jsonl.old"))
        code, _ = self.run(dlbench_run(path, words, limits), name)
        return code, load(path) if path.exists() else None


@dataclass(frozen=True)
class Step:
    """One thing to look at, the seconds that it may take in all calls together, and the least of a call that it is begun in."""

    name: str
    deadline_s: float
    least_s: float
    do: Callable[[Check], Seen | None]
    """None: to go on with in the next call."""


def _needs_cuda(do: Callable[[Check], Seen | None]) -> Callable[[Check], Seen | None]:
    def skipping(check: Check) -> Seen | None:
        return do(check) if check.device["kind"] == "cuda" else Seen(None, f"only a CUDA device can show it, and {check.id} is none")

    return skipping


def _import(check: Check) -> Seen | None:
    began = check.clock()
    code, output = check.run(["-c", "import torch; print(torch.__version__, torch.accelerator.is_available())"], "import")
    if code:
        return None if code == STOPPED else Seen(False, f"import torch ended with {code}: {_last(output)}")
    return Seen(True, f"{check.hello_s:.1f} s with the devices, when this call began, then {check.clock() - began:.1f} s")


def _facts(check: Check) -> Seen | None:
    versions, device = check.hello["versions"], check.device
    facts = {name: versions.get(name) for name in ("python", "torch", "cuda", "cudnn")} | {"driver": device.get("driver_version")}
    gcc = shutil.which("gcc")
    facts["gcc"] = (
        subprocess.run([gcc, "--version"], capture_output=True, text=True, check=False).stdout.partition("\n")[0] if gcc else None
    )
    with suppress(OSError):
        facts["MemTotal"] = Path("/proc/meminfo").read_text().partition("\n")[0].partition(":")[2].strip()
    facts["numa_node"] = device.get("numa_node")
    link = [device.get(name) for name in ("pcie_generation", "pcie_generation_max", "pcie_width", "pcie_width_max")]
    facts["link"] = "generation {} of {}, {} of {} lanes".format(*link) if None not in link else None
    return Seen(None, ", ".join(f"{name} {value if value is not None else 'unknown'}" for name, value in facts.items()))


@_needs_cuda
def _graph(check: Check) -> Seen | None:
    code, output = check.run(["-m", "benchmarks.card_workloads", check.id], "graph")
    if code == STOPPED:
        return None
    with suppress(ValueError, KeyError):
        found = json.loads(_last(output))
        return Seen(bool(found["held"]), str(found["seen"]))
    return Seen(False, f"ended with {code}, see graph.txt and stderr")


def _cases(name: str, suite: str, judge: Callable[[RunFile], Seen], *plugin: str, on: str = "") -> Callable[[Check], Seen | None]:
    """Return what measures a small suite in one round, and judges the file."""

    def do(check: Check) -> Seen | None:
        path = check.folder / f"{name}.toml"
        path.write_text(suite)
        code, run = check.measure(name, [str(path), "--device", on or check.id, *plugin], to_rounds(1))
        if code in (STOPPED, ExitCode.INTERRUPTED):
            return None
        if run is None:
            return Seen(False, f"dlbench run ended with {code}, see stderr")
        return judge(run)

    return do


def _fits(run: RunFile) -> Seen:
    found = {each.case.id: each.found.get("batch") or f"{each.status}: {each.reason}" for each in run.measurements}
    other = [f"{each.case.id}: {each.reason}" for each in run.tries if each.status not in (Status.OK, Status.OOM)]
    held = not other and bool(found) and all(isinstance(each, int) for each in found.values())
    refused = sum(each.status is Status.OOM for each in run.tries)
    return Seen(held, "; ".join([*(f"{name}: {batch}" for name, batch in found.items()), f"{refused} tries out of memory", *other[:1]]))


def _no_context(run: RunFile) -> Seen:
    (each,) = run.measurements
    files = each.values.get("cuda_files")
    return Seen(files == 0, f"{files:g} files of CUDA open" if isinstance(files, float) else f"{each.status}: {each.reason}")


def _peaks(run: RunFile) -> Seen:
    peaks = {str(each.case.params.get("mode")): each.memory.peak_bytes for each in run.measurements}
    eager, tuned = peaks.get("eager"), peaks.get("autotune")
    if not eager or not tuned:
        return Seen(False, "; ".join(f"{each.case.id}: {each.status}: {each.reason}" for each in run.measurements if each.reason))
    return Seen(tuned <= PEAK_TIMES * eager, f"eager {byte_count(eager)}, autotuned {byte_count(tuned)}")


def _tests(check: Check) -> Seen | None:
    if check.device["kind"] == "cpu":
        return Seen(None, "they would all be skipped")
    tests = GpuTests(check.folder, str(check.hello["versions"]["torch"]))
    did, left, code = tests.run(lambda words, limit_s: check.command(words, check.folder / "tests.txt"), check.left_s)
    if code is ExitCode.INTERRUPTED:
        check.code = code
    if did.startswith(("stopped", "skipped")):
        return Seen(None, did) if did.startswith("skipped") else None
    last = _last((check.folder / "tests.txt").read_text()) if (check.folder / "tests.txt").exists() else did
    return Seen(not left if code is ExitCode.OK else False, last.strip("= ") or did)


def _suite(name: str, rounds: int = FEWEST_ROUNDS, both: bool = False, budget: str = "") -> Callable[[Check], Seen | None]:
    """Return what brings a suite to so many rounds, or to as many more as a budget pays for, over several calls if need be."""

    def do(check: Check) -> Seen | None:
        devices = check.devices if both else ["--device", check.id]
        code, run = check.measure(name, [name, *devices], ("--budget", budget) if budget else to_rounds(rounds))
        if code in (STOPPED, ExitCode.INTERRUPTED):
            return None
        if run is None:
            return Seen(False, f"dlbench run ended with {code}, see stderr")
        last = {each.series: each for each in run.measurements}
        statuses = Counter(each.status.value for each in last.values())
        bad = [f"{each.case.id}: {each.reason}" for each in last.values() if each.status.is_failure or each.status is Status.TIMEOUT]
        left = measurements_left(run, rounds)
        counted = ", ".join(f"{count} {status}" for status, count in statuses.most_common())
        what = f"{counted}{f'; {left} measurements left' if left else ''}{f'; {bad[0]}' if bad else ''}"
        return Seen(code == 0 and not bad and not left, what)

    return do


def _answers(*names: str, topic: str = "") -> Callable[[Check], Seen | None]:
    """Make a step that prints one answer, or the number of answers."""

    def do(check: Check) -> Seen | None:
        paths = [str(path) for name in names if (path := check.folder / f"{name}.jsonl").exists()]
        code, output = check.run(["-m", "dlbench", "show", *paths, "--topic", "all", "--format", "json"], f"answers-{names[-1]}")
        if code:
            return None if code == STOPPED else Seen(False, f"dlbench show ended with {code}, see stderr")
        asked = json.loads(output)["answers"]
        found = {each["question"]["topic"]: each["sentences"] for each in asked if each["kind"] == "answer"}
        if topic:
            return Seen(topic in found, (found.get(topic) or ["not answered"])[0])
        return Seen(bool(found), f"{len(found)} of {len(asked)} questions answered: {', '.join(found)}")

    return do


def _report(check: Check) -> Seen | None:
    page = check.folder / "quick.html"
    page.unlink(missing_ok=True)
    code, _ = check.run(["-m", "dlbench", "report", str(check.folder / "quick.jsonl"), "-o", str(page)], "report")
    if code == STOPPED:
        return None
    return Seen(code == 0, f"{page.name}, {byte_count(page.stat().st_size)}" if page.exists() else f"ended with {code}, see stderr")


def _doctor(check: Check) -> Seen | None:
    code, output = check.run(["-m", "dlbench", "doctor", "--device", check.id], "doctor")
    return None if code == STOPPED else Seen(code == 0, f"ended with {code}: {_last(output)}")


def _ab(check: Check) -> Seen | None:
    path = check.folder / "ab.jsonl"
    path.unlink(missing_ok=True)  # an A/B is not gone on with
    words = ["quick", "--b", "same", "-k", "matmul[n=1024", "--device", check.id, "--rounds", "7"]
    code, output = check.run(["-m", "dlbench", "ab", *words, "-o", str(path)], "ab")
    return None if code == STOPPED else Seen(code in (ExitCode.OK, ExitCode.UNDECIDABLE), f"ended with {code}: {_last(output)}")


def _last(text: str) -> str:
    """Return the last line that says anything."""
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "nothing was printed")


_HEAD = "[policy]\nround_s = 0.2\nmin_blocks = 1\ntimeout_s = 180\n"
_ROOM = f"""{_HEAD}
[[bench]]
workload = "largest_batch"
axes.model = ["alexnet", "resnet50"]
axes.memory_gib = 2
"""
_CONTEXT = f"""{_HEAD}
[[bench]]
workload = "cuda_files"
"""
_AUTOTUNE = f"""{_HEAD}
[[bench]]
workload = "train_step"
axes.model = "resnet50"
axes.batch = 8
axes.dtype = "amp_bf16"
axes.layout = "channels_last"
axes.mode = ["eager", "autotune"]
"""
_PLUGIN = str(ROOT / "benchmarks" / "card_workloads.py")
_GO_ON_S = 90.0
"""Of a call that a suite is begun in: its starts, and a part of a round."""

STEPS = (
    Step("import torch, twice", 300, 120, _import),
    Step("facts", 60, 20, _facts),
    Step("a graph keeps its network", 150, 150, _graph),
    Step("no room is oom, AlexNet fits 2 GiB", 480, _GO_ON_S, _cases("room", _ROOM, _fits)),
    Step("a CPU case starts no CUDA", 180, 180, _cases("context", _CONTEXT, _no_context, _PLUGIN, on="cpu")),
    Step("peak of autotuning", 180, 180, _needs_cuda(_cases("autotune", _AUTOTUNE, _peaks))),
    Step("tests that need a card", 1200, TESTS_S, _tests),
    Step("quick", 600, _GO_ON_S, _suite("quick", both=True, budget="6m")),
    Step("quick: answers", 90, 60, _answers("quick")),
    Step("quick: report", 120, 90, _report),
    Step("modes", 1500, 2 * _GO_ON_S, _suite("modes", rounds=2)),
    Step("transfer", 900, _GO_ON_S, _suite("transfer")),
    Step("ceilings", 600, _GO_ON_S, _suite("ceilings")),
    Step("bottleneck over all", 90, 60, _answers("quick", "modes", "transfer", "ceilings", topic="bottleneck")),
    Step("memory", 600, _GO_ON_S, _suite("memory", rounds=1)),
    Step("crossover", 900, _GO_ON_S, _suite("crossover", rounds=1, both=True)),
    Step("doctor", 300, 240, _doctor),
    Step("A/B of the same code", 400, 300, _ab),
)
"""In the order of what a defect there would spoil most."""
