"""The reference runs of this machine, in pieces: ``make gpu``, or ``python3 -m benchmarks.reference --device cpu``.

From the bare checkout, with whatever torch is there and no network: first the tests that need an accelerator, then each suite into
``results/reference/<machine>/<suite>.jsonl``, some on the CPU and the first accelerator, the others on that one alone. Every suite gets
four rounds, the fewest that give a ratio its interval, before any gets more. A budget bounds one call; the next one goes on where it
ended, in a file of its own where other software is there by then.
"""

import argparse
import importlib.util
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.alternate import ROOT, environment, python
from dlbench.analysis.contribute.public import machine_name
from dlbench.core.errors import DlbenchError, ExitCode
from dlbench.core.model import Policy, Status
from dlbench.core.store import RunFile, load
from dlbench.core.units import clock_time, parse_duration

SHARES = {
    "quick": 10,
    "cnn": 4,
    "ceilings": 3,
    "modes": 4,
    "memory": 2,
    "crossover": 4,
    "transfer": 3,
    "feed": 2,
    "storage": 1,
    "precision": 3,
    "matmul": 3,
    "conv": 2,
}
"""The suites, the most important first, and how the time that is left is divided among those not yet complete."""
ON_BOTH = ("quick", "crossover", "feed", "storage")
"""Measured on the CPU, too, where an accelerator takes part; what the others ask takes a CPU most of the time there is."""
CPU_SUITES = ("quick", "cnn")
"""All that a machine without an accelerator is asked for."""
FIRST_ROUNDS = 4
"""Of every suite, before any gets more."""
CASE_TIMEOUT = "30s"
"""Where an accelerator takes part: a CPU without native fp16 needs minutes for one product, which nobody waits to learn there."""
COMPILING, COMPILE_TIMEOUT = ("modes",), "180s"
"""Suites with cases that compile, and what each of their cases may take."""
TESTS_S, TESTS_SHARE = 180.0, 1 / 3
"""The most that the tests may take, and of a short budget."""
DEVICES_S = 60.0
"""For the machine to say what is in it; a driver that hangs would keep it to itself for ever."""
LEAST_S = 20.0
"""Less budget than this is not worth starting a piece: torch and an accelerator alone take half of it."""
OVERRUN_S = 15.0
"""Beyond its budget, for a piece to start and to write its footer and tables, before it is interrupted."""
GRACE_S = 15.0
"""After that, to end before it is killed."""
STOPPED = -1
"""In place of an exit code: the limit was reached, and the command interrupted."""

# When several apply, the first of 2, 3, 5, 4 holds, after what ends a run before its end.
_WORST_FIRST = (
    ExitCode.INTERRUPTED,
    ExitCode.TERMINATED,
    ExitCode.INTERNAL,
    ExitCode.OUTPUT,
    ExitCode.DEVICE_FAULT,
    ExitCode.DEVICE_ABSENT,
    ExitCode.USAGE,
    ExitCode.REGRESSION,
    ExitCode.CASES_FAILED,
    ExitCode.UNDECIDABLE,
    ExitCode.OK,
)

Command = Callable[[Sequence[str], float], int]
"""Runs this Python with these arguments for at most so many seconds; returns its exit code, or STOPPED."""


@dataclass(frozen=True)
class Plan:
    """What was asked for."""

    folder: Path
    devices: tuple[str, ...]
    """For ``--device``, in every suite; none: the CPU and the accelerator, or that one alone."""
    accelerator: str | None
    """The first of those that take part."""
    suites: tuple[str, ...]
    rounds: int
    budget_s: float
    """Of this call, from its start."""
    timeout: str | None
    tests: bool

    def devices_of(self, suite: str) -> tuple[str, ...]:
        """Return what a new file of a suite is measured on."""
        if self.devices or self.accelerator is None:
            return self.devices
        return ("cpu", self.accelerator) if suite in ON_BOTH else (self.accelerator,)

    def timeout_of(self, suite: str) -> str | None:
        """Return what a case of a suite may take."""
        return COMPILE_TIMEOUT if self.timeout == CASE_TIMEOUT and suite in COMPILING else self.timeout

    def files_of(self, suite: str) -> list[Path]:
        """Return the files that there are of a suite, and one more."""
        stem = Path(suite).stem
        paths = [self.folder / f"{stem}.jsonl"]
        while paths[-1].exists():
            paths.append(self.folder / f"{stem}-{len(paths) + 1}.jsonl")
        return paths


@dataclass(frozen=True)
class Outcome:
    """How one piece stands at the end of this call."""

    name: str
    did: str
    """Empty: nothing."""
    left: str
    """Empty: nothing."""
    code: ExitCode = ExitCode.OK

    def after(self, earlier: "Outcome | None") -> "Outcome":
        """Return this one with what the same piece did earlier in this call."""
        if earlier is None:
            return self
        did = ", ".join(dict.fromkeys(filter(None, (earlier.did, self.did))))
        return Outcome(self.name, did, self.left, worst([earlier.code, self.code]))


def run(plan: Plan, command: Command, clock: Callable[[], float], started: float) -> list[Outcome]:
    """Do the pieces in their order, each within its share of the time that is left, until one is interrupted by the user."""
    end = started + plan.budget_s
    outcomes: dict[str, Outcome] = {}
    if plan.tests:
        outcomes["tests"] = _run_tests(command, min(TESTS_S, plan.budget_s * TESTS_SHARE) - GRACE_S)
    refused: set[Path] = set()
    for rounds in sorted({min(FIRST_ROUNDS, plan.rounds), plan.rounds}):
        for number, suite in enumerate(plan.suites):
            if any(each.code is ExitCode.INTERRUPTED for each in outcomes.values()):
                return list(outcomes.values())
            shares = sum(_share(each) for each in plan.suites[number:] if not _is_complete(plan, each, rounds))
            slice_s = max((end - clock()) * _share(suite) / max(shares, _share(suite)), LEAST_S + OVERRUN_S + GRACE_S)
            until = min(clock() + slice_s, end)
            outcome = _run_suite(suite, rounds, plan, command, until, clock, refused)
            outcomes[suite] = outcome.after(outcomes.get(suite))
    return list(outcomes.values())


def _run_tests(command: Command, limit_s: float) -> Outcome:
    name = "gpu tests"
    if importlib.util.find_spec("pytest") is None:
        return Outcome(name, "skipped: pytest is not installed", "")
    # Warnings of whatever torch is there are not ours to fail on; a checkout may be read-only.
    code = command(("-m", "pytest", "-m", "gpu", "-W", "default", "-p", "no:cacheprovider", str(ROOT / "tests" / "gpu")), limit_s)
    match code:
        case 0:
            return Outcome(name, "passed", "")
        case ExitCode.INTERRUPTED:
            return Outcome(name, "interrupted", "all of them", ExitCode.INTERRUPTED)
        case _ if code == STOPPED:
            return Outcome(name, f"stopped after {clock_time(limit_s)}", "all of them", ExitCode.CASES_FAILED)
    return Outcome(name, f"failed (pytest ended with {code})", "see above", ExitCode.CASES_FAILED)


def _run_suite(
    suite: str, rounds: int, plan: Plan, command: Command, until: float, clock: Callable[[], float], refused: set[Path]
) -> Outcome:
    """Bring a suite to so many rounds in the newest of its files that this machine may go on with, or in a new one."""
    name, started, did, code = Path(suite).stem, clock(), "", 0
    try:
        *existing, new = plan.files_of(suite)
        if any(not rounds_left(load(path), rounds) for path in existing):
            return Outcome(name, "", _what_is_left(existing, plan.rounds))
        for path in (*(path for path in reversed(existing) if path not in refused), new):
            budget_s = until - clock() - OVERRUN_S - GRACE_S
            if budget_s < LEAST_S:
                break
            code = command(_arguments(suite, rounds, plan, path, budget_s), budget_s + OVERRUN_S)
            if path is not new and code == ExitCode.USAGE:  # the machine or its software has changed, as it has just said
                refused.add(path)
                continue
            ended = "" if code == 0 else ", stopped at its limit" if code == STOPPED else f", ended with {code}"
            doing = "ran" if path is new and not existing else "went on" if path is not new else f"began {path.name} and ran"
            did = f"{doing} for {clock_time(clock() - started)}{ended}"
            break
        return Outcome(name, did, _what_is_left(plan.files_of(suite)[:-1], plan.rounds), _as_exit_code(code) if did else ExitCode.OK)
    except DlbenchError as error:
        return Outcome(name, str(error), "everything: move that file away", error.exit_code)


def _arguments(suite: str, rounds: int, plan: Plan, path: Path, budget_s: float) -> list[str]:
    timeout = ["--timeout", plan.timeout_of(suite)] if plan.timeout else []
    limits = ["--rounds", str(rounds), "--budget", f"{budget_s:.0f}s", *timeout]
    if path.exists():
        return ["-m", "dlbench", "run", "--resume", str(path), *limits]
    devices = [word for device in plan.devices_of(suite) for word in ("--device", device)]
    return ["-m", "dlbench", "run", suite, *devices, *limits, "-o", str(path)]


def rounds_left(file: RunFile, rounds: int) -> int:
    """Return how many measurements a file still wants: a case counts until it has so many rounds or has ended otherwise than well.

    One that was left out for want of time has all its rounds to come, so a footer alone does not make a file complete.
    """
    good = Counter(each.case.id for each in file.measurements if each.status is Status.OK)
    bad = {each.case.id for each in file.measurements if each.status not in (Status.OK, Status.SKIPPED)}
    unseen = int(file.header["planned"]["count"]) - len(good.keys() | bad)
    return unseen * rounds + sum(max(0, rounds - count) for case_id, count in good.items() if case_id not in bad)


def _what_is_left(paths: Sequence[Path], rounds: int) -> str:
    """Say what the fullest of the files still wants."""
    if not paths:
        return "everything"
    left, planned = min((rounds_left(file, rounds), int(file.header["planned"]["count"])) for file in map(load, paths))
    return f"{left} of {planned * rounds} measurements ({planned} cases, {rounds} rounds)" if left else ""


def _is_complete(plan: Plan, suite: str, rounds: int) -> bool:
    try:
        return any(not rounds_left(load(path), rounds) for path in plan.files_of(suite)[:-1])
    except DlbenchError:
        return True  # its own turn says what is wrong; it takes no time


def _share(suite: str) -> int:
    return SHARES.get(suite, 1)


def _as_exit_code(code: int) -> ExitCode:
    if code == STOPPED:
        return ExitCode.OK  # the time was up, which is no error: the rest comes with the next call
    return ExitCode(code) if code in set(ExitCode) else ExitCode.INTERNAL


def worst(codes: Sequence[ExitCode]) -> ExitCode:
    """Return the code that speaks for all of them."""
    return min(codes, key=_WORST_FIRST.index, default=ExitCode.OK)


def run_python(arguments: Sequence[str], limit_s: float) -> int:
    """Run this interpreter with these arguments, its output on ours; at the limit, or at Ctrl-C, it gets Ctrl-C, and at last a kill."""
    # A group of its own, so that whatever the command started ends with it and disturbs no later piece.
    with subprocess.Popen(python(*arguments), env=environment(), stdin=subprocess.DEVNULL, process_group=0) as process:
        try:
            return process.wait(limit_s)
        except subprocess.TimeoutExpired:
            code = STOPPED
        except KeyboardInterrupt:
            code = int(ExitCode.INTERRUPTED)
        with suppress(ProcessLookupError):  # it has just ended
            os.killpg(process.pid, signal.SIGINT)
            try:
                process.wait(GRACE_S)
            except (subprocess.TimeoutExpired, KeyboardInterrupt):
                os.killpg(process.pid, signal.SIGKILL)
        return code


def describe_devices() -> list[dict[str, Any]]:
    """Return what ``dlbench devices`` says, the CPU first. Raises SystemExit, with its code, where it can't say or takes too long."""
    command = python("-m", "dlbench", "devices", "--format", "json")
    try:
        asked = subprocess.run(command, env=environment(), stdout=subprocess.PIPE, check=False, timeout=DEVICES_S)
    except subprocess.TimeoutExpired as error:
        print(f"reference: dlbench devices did not answer within {DEVICES_S:.0f} s; look at the driver, then try again", file=sys.stderr)
        raise SystemExit(int(ExitCode.DEVICE_FAULT)) from error
    if asked.returncode:
        raise SystemExit(int(_as_exit_code(asked.returncode)))
    devices: list[dict[str, Any]] = json.loads(asked.stdout)["devices"]
    return devices


def main(
    arguments: Sequence[str] | None = None,
    command: Command = run_python,
    devices: Callable[[], list[dict[str, Any]]] = describe_devices,
    clock: Callable[[], float] = time.monotonic,
) -> int:
    """Run the pieces, say what was done and what is left, and return the exit code."""
    started = clock()
    arguments = sys.argv[1:] if arguments is None else arguments
    options = _parse(arguments)
    usable = [device for device in devices() if "unusable" not in device]
    wanted = [device for device in usable if not options.device or {device["id"], device["kind"]} & set(options.device)]
    accelerator = next((str(device["id"]) for device in wanted if device["kind"] != "cpu"), None)
    if not wanted or not (accelerator or options.device):
        what = f"no {' or '.join(options.device)}" if options.device else "no accelerator"
        print(f"reference: this machine has {what}; for a reference of its CPU add --device cpu", file=sys.stderr)
        return ExitCode.DEVICE_ABSENT
    plan = Plan(
        folder=options.into / machine_name(wanted),
        devices=tuple(options.device),
        accelerator=accelerator,
        suites=tuple(options.suites.split(",")) if options.suites else tuple(SHARES) if accelerator else CPU_SUITES,
        rounds=options.rounds,
        budget_s=options.budget,
        timeout=options.timeout or (CASE_TIMEOUT if accelerator else None),
        tests=accelerator is not None and not options.no_tests,
    )
    outcomes = run(plan, command, clock, started)
    _print_summary(plan, outcomes, clock() - started)
    if any(each.left for each in outcomes) or len(outcomes) < len(plan.suites):
        passed = ["--no-tests"] if plan.tests and not outcomes[0].left else []
        print(f"go on with: {shlex.join([sys.executable, '-m', 'benchmarks.reference', *arguments, *passed])}")
    else:
        print("everything is done")
    return worst([each.code for each in outcomes])


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python3 -m benchmarks.reference", description=__doc__.partition("\n")[0])
    parser.add_argument("--into", type=Path, default=Path("results/reference"), metavar="DIR", help="default: %(default)s")
    parser.add_argument("--device", action="append", default=[], help="cpu, cuda or cuda:0, for every suite; repeatable")
    parser.add_argument("--suites", metavar="NAME,…", help=f"default: {','.join(SHARES)}; with the CPU alone {','.join(CPU_SUITES)}")
    parser.add_argument("--budget", type=_duration, default="9m", help="for this call, all pieces together (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=Policy().rounds, help=f"default: %(default)s; {FIRST_ROUNDS} of every suite first")
    parser.add_argument("--timeout", help=f"of one case in one round (default: {CASE_TIMEOUT}; with the CPU alone the suite's)")
    parser.add_argument("--no-tests", action="store_true", help="leave the tests out, once they have passed")
    return parser.parse_args(arguments)


def _duration(text: str) -> float:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _print_summary(plan: Plan, outcomes: Sequence[Outcome], seconds: float) -> None:
    width = max(len(each.name) for each in outcomes)
    print(f"\n{plan.folder}, {clock_time(seconds)} of {clock_time(plan.budget_s)}")
    for each in outcomes:
        did = each.did or ("not begun in this call" if each.left else "was complete")
        print(f"  {each.name:<{width}}  {did}; left: {each.left or 'nothing'}")


def listen() -> None:
    """Take what a time limit from outside sends as Ctrl-C, and Ctrl-C even in a background job: it ends the command under way, too."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)


if __name__ == "__main__":
    listen()
    sys.exit(main())
