"""The reference runs of this machine, in pieces: ``make gpu``, or ``make references`` of its CPU alone.

From the bare checkout, with whatever torch is there and no network: each suite into ``results/card/<machine>/<suite>.jsonl``, where git
ignores it and a borrowed machine may keep it between two calls, or of a CPU alone into ``results/reference``; some on the CPU and the first
accelerator, the others on that one alone. One suite after the other gets four rounds, the fewest that give a ratio
its interval: a short set, then the tests that need an accelerator, then the rest; at last all get seven. A call is bounded, and the next
one goes on where it ended, in a file of its own where other software is there by then.
"""

import argparse
import math
import shlex
import sys
import tarfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.gpu_tests import TESTS_S, GpuTests
from benchmarks.limited import (
    GRACE_S,
    STOPPED,
    Command,
    as_exit_code,
    ask_twice_if_cold,
    choose_devices,
    dlbench_run,
    listen,
    run_python,
    to_rounds,
    worst,
)
from benchmarks.pieces import Piece, Planned, Standing, load_all, planned, standing
from benchmarks.reference_suites import CPU_SUITES, LATER, ON_BOTH, SHORT
from dlbench.analysis.contribute.public import machine_name
from dlbench.core.errors import DlbenchError, ExitCode
from dlbench.core.model import Policy
from dlbench.core.rank_test import FEWEST_ROUNDS
from dlbench.core.units import clock_time, parse_duration
from dlbench.harness.runner import ask_hello

DOZEN = "train_step and resnet50 and not optimizer and not implementation and (batch=8, or (batch=128, and amp_bf16))"
"""Of modes: ResNet-50 at batch 8 in each mode, in fp32 and as fast training does it, and the latter at batch 128."""
ON_A_CPU = "not (batch=64 or batch=128 or batch=256)"
"""Of batch: two thirds of its cases there. One step of ResNet-50 at batch 256 takes two cores most of a minute."""
CARD, REFERENCE = Path("results/card"), Path("results/reference")
CASE_TIMEOUT = "30s"
"""Where an accelerator takes part: a CPU without native fp16 needs minutes for one product, which nobody waits to learn there."""
COMPILE_TIMEOUT = "180s"
"""What each case of a suite with cases that compile may take there."""
LEAST_S = 5.0
"""Less than this is no limit that a command could keep."""
TESTS = "gpu tests"
_ENDING = (ExitCode.INTERRUPTED, ExitCode.DEVICE_ABSENT, ExitCode.DEVICE_FAULT)
"""Codes after which no later piece is begun: each would start and end alike."""


@dataclass(frozen=True)
class Plan:
    """The pieces of this machine, and the limits of this call."""

    folder: Path
    hello: Mapping[str, Any]
    devices: tuple[str, ...]
    """What ``--device`` names, for every suite; empty: each suite's default, the CPU and the accelerator or the accelerator alone."""
    accelerator: str | None
    """The first accelerator that takes part."""
    short: tuple[Piece, ...]
    """Pieces that get their first rounds before the tests and all other pieces."""
    later: tuple[Piece, ...]
    rounds: int
    budget_s: float
    """Time of a call, from its start."""
    start_s: float
    """Time that a process takes to import torch, whose files are in memory by then, and to start the devices."""
    timeout: str | None
    """Limit of one case in one round, if one was given."""
    tests: GpuTests | None
    _planned: dict[str, Planned] = field(default_factory=dict)

    @property
    def pieces(self) -> tuple[Piece, ...]:
        """All pieces in order."""
        return self.short + self.later

    @property
    def first_rounds(self) -> int:
        """Rounds that each piece has before any gets more."""
        return min(FEWEST_ROUNDS, self.rounds)

    def steps(self) -> Iterator[tuple[Piece | None, int]]:
        """Yield each piece with the rounds that it is to have then, in order; None means the tests."""
        yield from ((piece, self.first_rounds) for piece in self.short)
        if self.tests:
            yield None, 0
        yield from ((piece, self.first_rounds) for piece in self.later)
        if self.rounds > self.first_rounds:
            yield from ((piece, self.rounds) for piece in self.pieces)

    def devices_of(self, piece: Piece) -> tuple[str, ...]:
        """Return the devices for a new file of a piece."""
        if self.devices or self.accelerator is None:
            return self.devices
        return ("cpu", self.accelerator) if piece.suite in ON_BOTH else (self.accelerator,)

    def planned(self, piece: Piece) -> Planned:
        """Return the cases of a piece. Raises UsageError or SuiteError for a suite that can't be planned."""
        if piece.name not in self._planned:
            self._planned[piece.name] = planned(piece, self.hello, self.devices_of(piece))
        return self._planned[piece.name]

    def standing(self, piece: Piece, rounds: int) -> Standing:
        """Return what a piece has and still needs. Raises what `planned` raises, and ResultFileError for a damaged file of it."""
        return standing(self.planned(piece), load_all(piece.files_in(self.folder)[:-1]), rounds, self.start_s)

    def useful_s(self, least_s: float) -> float:
        """Return the least time left for which a piece is worth a start: ``least_s``, but no more than a fresh call has."""
        return max(LEAST_S, min(least_s, self.budget_s - 2 * self.start_s - GRACE_S))


@dataclass(frozen=True)
class Outcome:
    """What this call did for a piece, and what is left of it."""

    name: str
    did: str
    """Empty where it did nothing."""
    left: str
    """Empty where nothing is left."""
    code: ExitCode = ExitCode.OK

    def after(self, earlier: "Outcome | None") -> "Outcome":
        """Return this outcome joined with an earlier one of the same piece in this call."""
        if earlier is None:
            return self
        did = ", ".join(dict.fromkeys(filter(None, (earlier.did, self.did))))
        return Outcome(self.name, did, self.left, worst([earlier.code, self.code]))


def run(plan: Plan, command: Command, clock: Callable[[], float], started: float) -> list[Outcome]:
    """Run the pieces in order, but start none with too little time left for it; return the outcome of each.

    ``clock`` and ``started`` are in s. A command that ends with a code in `_ENDING` is the last.
    """
    end = started + plan.budget_s
    outcomes: dict[str, Outcome] = {}
    refused: set[Path] = set()
    print(forecast(plan, end - clock()), flush=True)
    for piece, rounds in plan.steps():
        name = piece.name if piece else TESTS
        try:
            least_s = _least_s(plan, piece, rounds)
        except DlbenchError as error:
            outcomes[name] = Outcome(name, str(error), "everything: put that right, or move the file away", error.exit_code)
            continue
        if least_s is None:
            continue
        if end - clock() - GRACE_S < plan.start_s + plan.useful_s(least_s):
            if piece:
                break
            continue  # the tests, which come first in the next call
        if piece:
            outcome = _measure(piece, rounds, plan, command, end, clock, refused)
        else:
            assert plan.tests  # noqa: S101  # `steps` yields None for them alone
            outcome = Outcome(TESTS, *plan.tests.run(command, end - clock() - GRACE_S))
        outcomes[name] = outcome.after(outcomes.get(name))
        print(f"\n{forecast(plan, end - clock())}", flush=True)
        if outcome.code in _ENDING:
            break
    names = dict.fromkeys(piece.name if piece else TESTS for piece, _ in plan.steps())
    return [outcomes.get(name) or Outcome(name, "", _what_is_left(plan, name)) for name in names]


def _least_s(plan: Plan, piece: Piece | None, rounds: int) -> float | None:
    """Return the least time left for which a piece, or None for the tests, is worth a start; None where it is complete."""
    if piece is None:
        return _tests_s(plan)
    standing = plan.standing(piece, rounds)
    return standing.useful_s if standing.left else None


def _tests_s(plan: Plan) -> float | None:
    """Return the time of the tests; None where there are none to be run."""
    return None if plan.tests is None or plan.tests.complete() else TESTS_S


def _measure(
    piece: Piece, rounds: int, plan: Plan, command: Command, end: float, clock: Callable[[], float], refused: set[Path]
) -> Outcome:
    """Measure a piece up to so many rounds, continuing the newest of its files that this machine may continue, or in a new file.

    ``refused``: files that this machine may not continue; the call adds those that it finds.
    """
    began, did, code = clock(), "", 0
    *existing, new = piece.files_in(plan.folder)
    for path in (*(path for path in reversed(existing) if path not in refused), new):
        limit_s = end - clock() - GRACE_S
        if limit_s < LEAST_S:
            break
        code = command(_arguments(piece, rounds, plan, path), limit_s)
        if path is not new and code == ExitCode.USAGE:  # the machine or its software has changed
            refused.add(path)
            continue
        ended = "" if code == 0 else ", stopped at its limit" if code == STOPPED else f", ended with {code}"
        doing = "ran" if path is new and not existing else "went on" if path is not new else f"began {path.name} and ran"
        did = f"{doing} for {clock_time(clock() - began)}{ended}"
        break
    return Outcome(piece.name, did, _what_is_left(plan, piece.name), as_exit_code(code) if did else ExitCode.OK)


def _arguments(piece: Piece, rounds: int, plan: Plan, path: Path) -> list[str]:
    timeout = plan.timeout
    if timeout is None and plan.accelerator:
        timeout = COMPILE_TIMEOUT if plan.planned(piece).compiling else CASE_TIMEOUT
    devices = [word for device in plan.devices_of(piece) for word in ("--device", device)]
    return dlbench_run(path, [*piece.selection, *devices], [*to_rounds(rounds), *(["--timeout", timeout] if timeout else [])])


def _what_is_left(plan: Plan, name: str) -> str:
    """Return a phrase for what the fullest file of a piece lacks, or for the tests by their name; empty where nothing is left."""
    piece = next((each for each in plan.pieces if each.name == name), None)
    if piece is None:
        return "" if _tests_s(plan) is None else "those that have not passed yet"
    try:
        if len(piece.files_in(plan.folder)) == 1:
            return "everything"
        state = plan.standing(piece, plan.rounds)
    except DlbenchError as error:
        return f"unknown, as {error}"
    if not state.left:
        return ""
    return f"{state.left} of {state.cases * plan.rounds} measurements ({state.cases} cases, {plan.rounds} rounds)"


def forecast(plan: Plan, left_s: float) -> str:
    """Return a sentence about the time that the next piece needs, and all pieces up to the next goal, with the calls that this takes."""
    every = f"all {'of it' if len(plan.pieces) == 1 else 'suites'} to {{}} rounds"
    goals = [
        ("the short set", plan.short, plan.first_rounds),
        (every.format(plan.first_rounds), plan.pieces, plan.first_rounds),
        (every.format(plan.rounds), plan.pieces, plan.rounds),
    ]
    for goal, pieces, rounds in goals:
        standings = ((piece, _standing_or_none(plan, piece, rounds)) for piece in pieces)
        unfinished = [(piece, plan.start_s + standing.seconds) for piece, standing in standings if standing and standing.left]
        if not unfinished:
            continue
        seconds = sum(piece_s for _, piece_s in unfinished)
        seconds += (_tests_s(plan) or 0.0) if pieces is plan.pieces else 0.0
        call_s = max(LEAST_S, plan.budget_s - GRACE_S - 2 * plan.start_s)
        calls = 1 + max(0, math.ceil((seconds - left_s) / call_s))
        piece, piece_s = unfinished[0]
        first = f"{piece.name}: about {clock_time(piece_s)} to its {rounds} rounds"
        return f"{first}; {goal}: about {clock_time(seconds)}, {calls} call{'' if calls == 1 else 's'} of {clock_time(plan.budget_s)}"
    readable = all(_standing_or_none(plan, piece, plan.rounds) for piece in plan.pieces)
    return f"every suite {'' if readable else 'that can go on '}has its rounds"


def _standing_or_none(plan: Plan, piece: Piece, rounds: int) -> Standing | None:
    with suppress(DlbenchError):  # its own turn says what is wrong; it takes no time
        return plan.standing(piece, rounds)
    return None


def main(
    arguments: Sequence[str] | None = None,
    command: Command = run_python,
    ask: Callable[[], Mapping[str, Any]] = ask_hello,
    clock: Callable[[], float] = time.monotonic,
) -> int:
    """Run the pieces, say what was done and what is left, and return the exit code."""
    started = clock()
    arguments = sys.argv[1:] if arguments is None else arguments
    options = _parse(arguments)
    try:
        hello, _, start_s = ask_twice_if_cold(ask, clock)
        plan = _plan(options, hello, start_s)
    except DlbenchError as error:
        print(f"reference: {error}", file=sys.stderr)
        return error.exit_code
    outcomes = run(plan, command, clock, started)
    _print_summary(plan, outcomes, clock() - started)
    if plan.accelerator and plan.folder.is_dir():
        print(f"all of its files: {_pack(plan.folder)}")
    if any(each.left for each in outcomes):
        print(f"go on with: {shlex.join([sys.executable, '-m', 'benchmarks.reference', *arguments])}")
    else:
        print("everything is done")
    return worst([each.code for each in outcomes])


def _pack(folder: Path) -> Path:
    """Pack a folder's files into an archive next to it, one file to take from a borrowed machine; return its path."""
    archive = folder.parent / f"{folder.name}.tar.gz"
    with tarfile.open(archive, "w:gz") as packed:
        packed.add(folder, folder.name)
    return archive


def _plan(options: argparse.Namespace, hello: Mapping[str, Any], start_s: float) -> Plan:
    """Make the plan of this call for the machine that a hello describes. Raises DeviceAbsent where nothing is to be measured on."""
    wanted = choose_devices(hello, options.device, options.into or CARD)
    accelerator = next((str(device["id"]) for device in wanted if device["kind"] != "cpu"), None)
    short, later = (tuple(map(_piece, names)) for names in ((SHORT, LATER) if accelerator else ((), CPU_SUITES)))
    if options.suites:
        short, later = (), tuple(Piece(Path(each).stem, each) for each in options.suites.split(","))
    folder = (options.into or (CARD if accelerator else REFERENCE)) / machine_name(wanted)
    return Plan(
        folder=folder,
        hello=hello,
        devices=tuple(options.device),
        accelerator=accelerator,
        short=short,
        later=later,
        rounds=options.rounds,
        budget_s=options.budget,
        start_s=start_s,
        timeout=options.timeout,
        tests=GpuTests(folder, str(hello["versions"]["torch"])) if accelerator and not options.no_tests else None,
    )


def _piece(name: str) -> Piece:
    if name == "modes-dozen":
        return Piece(name, "modes", DOZEN)
    return Piece(name, name, ON_A_CPU if name == "batch" else None)


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python3 -m benchmarks.reference", description=__doc__.partition("\n")[0])
    parser.add_argument("--into", type=Path, metavar="DIR", help=f"default: {CARD}; with the CPU alone {REFERENCE}")
    parser.add_argument("--device", action="append", default=[], help="cpu, cuda or cuda:0, for every suite; repeatable")
    parser.add_argument("--suites", metavar="NAME,…", help=f"default: {','.join(SHORT + LATER)}; with the CPU alone {','.join(CPU_SUITES)}")
    parser.add_argument("--budget", type=duration, default="9m", help="for this call, all pieces together (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=Policy().rounds, help=f"default: %(default)s; {FEWEST_ROUNDS} of every suite first")
    parser.add_argument(
        "--timeout",
        help=f"of one case in one round (default: {CASE_TIMEOUT}, {COMPILE_TIMEOUT} where any compile; with the CPU alone the suite's)",
    )
    parser.add_argument("--no-tests", action="store_true", help="leave the tests that need an accelerator out")
    return parser.parse_args(arguments)


def duration(text: str) -> float:
    """Read ``90s`` or ``9m`` as seconds: a type of arguments."""
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


if __name__ == "__main__":
    listen()
    sys.exit(main())
