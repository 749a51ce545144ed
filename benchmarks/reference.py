"""The reference runs of this machine, in pieces: ``make gpu``, or ``python3 -m benchmarks.reference --device cpu``.

From the bare checkout, with whatever torch is there and no network: first the tests that need an accelerator, then each suite into
``results/reference/<machine>/<suite>.jsonl``. A budget bounds one call; the next one goes on where it ended.
"""

import argparse
import importlib.util
import json
import os
import re
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
from dlbench.core.errors import DlbenchError, ExitCode
from dlbench.core.model import Policy, Status
from dlbench.core.store import RunFile, load
from dlbench.core.units import clock_time, parse_duration

SHARES = {"quick": 4, "cnn": 3, "matmul": 3, "precision": 2, "conv": 2}
"""The suites in their order, and how the time that is left is divided among those not yet complete."""
CPU_SUITES = ("quick", "cnn")
"""All that a machine without an accelerator is asked for."""
CASE_TIMEOUT = "30s"
"""Where an accelerator takes part: a CPU without native fp16 needs minutes for one product, which nobody waits to learn there."""
TESTS_SHARE = 1 / 3
LEAST_S = 20.0
"""Less time than this is not worth starting a piece: torch and an accelerator alone take half of it."""
GRACE_S = 15.0
"""Beyond its slice, for a piece to write its footer and tables, before it is interrupted."""
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
    """For ``--device``; none: every device takes part."""
    suites: tuple[str, ...]
    rounds: int
    budget_s: float
    timeout: str | None
    tests: bool


@dataclass(frozen=True)
class Outcome:
    """How one piece stands at the end of this call."""

    name: str
    did: str
    left: str
    """Empty: nothing."""
    code: ExitCode = ExitCode.OK


def run(plan: Plan, command: Command, clock: Callable[[], float] = time.monotonic) -> list[Outcome]:
    """Do the pieces in their order, each within its share of the time that is left, until one is interrupted by the user."""
    end = clock() + plan.budget_s
    outcomes = [_run_tests(command, plan.budget_s * TESTS_SHARE)] if plan.tests else []
    for number, suite in enumerate(plan.suites):
        if outcomes and outcomes[-1].code is ExitCode.INTERRUPTED:
            break
        shares = sum(_share(each) for each in plan.suites[number:] if not _is_complete(_file(plan, each)))
        left_s = end - clock()
        slice_s = max(left_s * _share(suite) / max(shares, 1), LEAST_S)
        outcomes.append(_run_suite(suite, plan, command, min(slice_s, left_s), clock))
    return outcomes


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


def _run_suite(suite: str, plan: Plan, command: Command, slice_s: float, clock: Callable[[], float]) -> Outcome:
    path, name = _file(plan, suite), Path(suite).stem
    try:
        before = load(path) if path.exists() else None
        if before and not rounds_left(before):
            return Outcome(name, "was complete", "")
        if slice_s < LEAST_S:
            return Outcome(name, "not begun in this call", _what_is_left(before))
        started = clock()
        code = command(_arguments(suite, plan, path, before is not None, slice_s), slice_s + GRACE_S)
        ended = "" if code == 0 else ", stopped at its limit" if code == STOPPED else f", ended with {code}"
        did = f"{'went on' if before else 'ran'} for {clock_time(clock() - started)}{ended}"
        return Outcome(name, did, _what_is_left(load(path) if path.exists() else None), _as_exit_code(code))
    except DlbenchError as error:
        return Outcome(name, str(error), "everything: move that file away", error.exit_code)


def _arguments(suite: str, plan: Plan, path: Path, resume: bool, slice_s: float) -> list[str]:
    timeout = ["--timeout", plan.timeout] if plan.timeout else []
    limits = ["--budget", f"{slice_s:.0f}s", *timeout]
    if resume:
        return ["-m", "dlbench", "run", "--resume", str(path), *limits]
    devices = [word for device in plan.devices for word in ("--device", device)]
    return ["-m", "dlbench", "run", suite, *devices, "--rounds", str(plan.rounds), *limits, "-o", str(path)]


def rounds_left(file: RunFile) -> int:
    """Return how many measurements a run still wants: a case counts until it has all its rounds or has ended otherwise than well.

    One that was left out for want of time has all its rounds to come, so a footer alone does not make a file complete.
    """
    rounds = int(file.header["policy"]["rounds"])
    good = Counter(each.case.id for each in file.measurements if each.status is Status.OK)
    bad = {each.case.id for each in file.measurements if each.status not in (Status.OK, Status.SKIPPED)}
    unseen = int(file.header["planned"]["count"]) - len(good.keys() | bad)
    return unseen * rounds + sum(max(0, rounds - count) for case_id, count in good.items() if case_id not in bad)


def _what_is_left(file: RunFile | None) -> str:
    if file is None:
        return "everything"
    left, planned = rounds_left(file), int(file.header["planned"]["count"])
    rounds = int(file.header["policy"]["rounds"])
    return f"{left} of {planned * rounds} measurements ({planned} cases, {rounds} rounds)" if left else ""


def _is_complete(path: Path) -> bool:
    try:
        return path.exists() and not rounds_left(load(path))
    except DlbenchError:
        return True  # its own turn says what is wrong; it takes no time


def _file(plan: Plan, suite: str) -> Path:
    return plan.folder / f"{Path(suite).stem}.jsonl"


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
    """Return what ``dlbench devices`` says, the CPU first. Raises SystemExit, with its code, where it can't say."""
    asked = subprocess.run(python("-m", "dlbench", "devices", "--format", "json"), env=environment(), stdout=subprocess.PIPE, check=False)
    if asked.returncode:
        raise SystemExit(int(_as_exit_code(asked.returncode)))
    devices: list[dict[str, Any]] = json.loads(asked.stdout)["devices"]
    return devices


def machine_name(devices: Sequence[dict[str, Any]]) -> str:
    """Return the first accelerator's name, or the CPU's where there is none, as a folder is called: ``nvidia-h200``."""
    first = next((device for device in devices if device["kind"] != "cpu"), devices[0])
    name = re.sub(r"\((r|tm)\)", " ", str(first["name"] or first["id"]).lower())
    return re.sub(r"[^a-z0-9]+", "-", name).strip("-")


def main(
    arguments: Sequence[str] | None = None,
    command: Command = run_python,
    devices: Callable[[], list[dict[str, Any]]] = describe_devices,
    clock: Callable[[], float] = time.monotonic,
) -> int:
    """Run the pieces, say what was done and what is left, and return the exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    options = _parse(arguments)
    wanted = [device for device in devices() if not options.device or {device["id"], device["kind"]} & set(options.device)]
    accelerated = any(device["kind"] != "cpu" for device in wanted)
    if not wanted or not (accelerated or options.device):
        what = f"no {' or '.join(options.device)}" if options.device else "no accelerator"
        print(f"reference: this machine has {what}; for a reference of its CPU add --device cpu", file=sys.stderr)
        return ExitCode.DEVICE_ABSENT
    plan = Plan(
        folder=options.into / machine_name(wanted),
        devices=tuple(options.device),
        suites=tuple(options.suites.split(",")) if options.suites else tuple(SHARES) if accelerated else CPU_SUITES,
        rounds=options.rounds,
        budget_s=options.budget,
        timeout=options.timeout or (CASE_TIMEOUT if accelerated else None),
        tests=accelerated and not options.no_tests,
    )
    started = clock()
    outcomes = run(plan, command, clock)
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
    parser.add_argument("--device", action="append", default=[], help="cpu, cuda or cuda:0; repeatable (default: every device)")
    parser.add_argument("--suites", metavar="NAME,…", help=f"default: {','.join(SHARES)}; with the CPU alone {','.join(CPU_SUITES)}")
    parser.add_argument("--budget", type=_duration, default="9m", help="for this call, all pieces together (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=Policy().rounds, help="of a file not yet begun (default: %(default)s)")
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
        print(f"  {each.name:<{width}}  {each.did}; left: {each.left or 'nothing'}")


def listen() -> None:
    """Take what a time limit from outside sends as Ctrl-C, and Ctrl-C even in a background job: it ends the command under way, too."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)


if __name__ == "__main__":
    listen()
    sys.exit(main())
