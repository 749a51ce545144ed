"""A first hour on a card, as a script: ``make gpu-check``, or ``python3 -m benchmarks.gpu_check``.

Each step holds one thing that only a card can show. It has a deadline, an upper bound; all of them add up to more than two hours. A call
takes nine minutes at most, and the next one goes on where it ended, and does again with other code or torch what did not hold. The results,
the output of each step and the state are in ``results/gpu-check/<machine>``; the table at the end says of each step whether it held, and
what was seen.
"""

import argparse
import json
import shlex
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.check_steps import STEPS, Check, Seen, Step
from benchmarks.gpu_tests import code_key
from benchmarks.limited import GRACE_S, ask_twice_if_cold, choose_devices, listen, run_python
from benchmarks.reference import duration
from dlbench.analysis.contribute.public import machine_name
from dlbench.analysis.report.screen import ScreenColumn, ScreenTable
from dlbench.cli.terminal import draw
from dlbench.core.errors import DlbenchError, ExitCode, UsageError
from dlbench.core.units import clock_time
from dlbench.harness.runner import ask_hello

LEAST_S = 20.0
"""Of a call, where torch alone takes most of it to start."""
Recorded = Callable[[Sequence[str], float, Path], int]
"""Runs this Python with these arguments for at most so many seconds, what it prints into a file; returns its exit code, or STOPPED."""


def into_file(arguments: Sequence[str], limit_s: float, path: Path) -> int:
    """Run this interpreter with what it prints in a file."""
    with path.open("w") as output:
        return run_python(arguments, limit_s, output)


@dataclass
class State:
    """What earlier calls found, in a file that is written after each step."""

    path: Path
    seen: dict[str, Seen] = field(default_factory=dict)
    """By step, of those that have ended."""
    spent_s: dict[str, float] = field(default_factory=dict)
    """By step, of those that a call's end has cut."""
    keys: dict[str, str] = field(default_factory=dict)
    """By step, the digest of the code and torch that it was begun with."""

    @classmethod
    def load(cls, path: Path) -> "State":
        """Read it; new where there is none. Raises UsageError for a damaged one."""
        state = cls(path)
        if not path.exists():
            return state
        try:
            data = json.loads(path.read_text())
            state.seen = {str(name): Seen(**each) for name, each in data["seen"].items()}
            state.spent_s = {str(name): float(each) for name, each in data["spent_s"].items()}
            state.keys = {str(name): str(each) for name, each in data.get("keys", {}).items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise UsageError(f"{path} is damaged ({error}); move it away, and all steps begin anew") from error
        return state

    def save(self) -> None:
        """Write it in place of the old one, in one piece."""
        data = {"seen": {name: asdict(each) for name, each in self.seen.items()}, "spent_s": self.spent_s, "keys": self.keys}
        new = self.path.with_suffix(".new")
        new.write_text(json.dumps(data, indent=1) + "\n")
        new.replace(self.path)

    def begins_anew(self, step: str, key: str) -> bool:
        """Whether a step is to be begun: a new one, or one that other code or another torch has cut or did not hold with."""
        return self.keys.get(step) != key and (step not in self.seen or self.seen[step].held is False)

    def begin(self, step: str, key: str) -> None:
        """Forget what came of a step."""
        self.seen.pop(step, None)
        self.spent_s.pop(step, None)
        self.keys[step] = key
        self.save()


def run(steps: Sequence[Step], check: Check, state: State, record: Recorded, clock: Callable[[], float], end: float) -> ExitCode:
    """Do the steps that have not ended, in their order, and begin none that the rest of the call is too short for."""
    for step in steps:
        anew = state.begins_anew(step.name, check.key)
        if step.name in state.seen and not anew:
            continue
        left_s = end - clock() - GRACE_S
        deadline_s = step.deadline_s - (0.0 if anew else state.spent_s.get(step.name, 0.0))
        if left_s < min(step.least_s, deadline_s, check.call_s):
            break
        print(f"{step.name}: up to {clock_time(min(deadline_s, left_s))}", flush=True)
        began, limit_s = clock(), min(deadline_s, left_s)
        until = began + limit_s

        def command(words: Sequence[str], path: Path, until: float = until) -> int:
            return record(words, max(1.0, until - clock()), path)

        check.command, check.left_s, check.anew = command, limit_s, anew
        if anew:
            state.begin(step.name, check.key)
        try:
            seen = step.do(check)
        except DlbenchError as error:
            seen = Seen(False, str(error))
        if check.code is ExitCode.INTERRUPTED:
            return ExitCode.INTERRUPTED
        if seen is None:
            spent_s = state.spent_s.get(step.name, 0.0) + clock() - began
            state.spent_s[step.name] = spent_s
            if spent_s >= step.deadline_s - 1.0:
                seen = Seen(False, f"not done within {clock_time(step.deadline_s)}")
        if seen is not None:
            state.seen[step.name] = seen
            print(f"  {seen.word()}: {seen.what}", flush=True)
        state.save()
    failed = any(step.name in state.seen and state.seen[step.name].held is False for step in steps)
    return ExitCode.CASES_FAILED if failed else ExitCode.OK


def main(
    arguments: Sequence[str] | None = None,
    record: Recorded = into_file,
    ask: Callable[[], Mapping[str, Any]] = ask_hello,
    clock: Callable[[], float] = time.monotonic,
) -> int:
    """Do the steps, print the table, and return the exit code: 5 where a step did not hold."""
    started = clock()
    arguments = sys.argv[1:] if arguments is None else arguments
    options = _parse(arguments)
    try:
        check = _check(options, *ask_twice_if_cold(ask, clock), clock)
        steps = [step for step in STEPS if not options.only or any(word in step.name for word in options.only)]
        if not steps:
            raise UsageError(f"no step is called {' or '.join(options.only)}; there are {', '.join(step.name for step in STEPS)}")
        check.folder.mkdir(parents=True, exist_ok=True)
        state = State.load(check.folder / "state.json")
    except DlbenchError as error:
        print(f"gpu-check: {error}", file=sys.stderr)
        return error.exit_code
    code = run(steps, check, state, record, clock, started + options.budget)
    _print_table(steps, state, check.folder, clock() - started)
    if any(step.name not in state.seen for step in steps):
        print(f"go on with: {shlex.join([sys.executable, '-m', 'benchmarks.gpu_check', *arguments])}")
    return code


def _check(options: argparse.Namespace, hello: Mapping[str, Any], hello_s: float, start_s: float, clock: Callable[[], float]) -> Check:
    """Return what the steps are done with. Raises DeviceAbsent where there is no such device."""
    devices = choose_devices(hello, [options.device] if options.device else [], options.into)
    device = next((each for each in devices if each["kind"] != "cpu"), devices[0])
    call_s = max(LEAST_S, options.budget - 2 * start_s - GRACE_S)
    return Check(options.into / machine_name([device]), device, hello, hello_s, call_s, code_key(str(hello["versions"]["torch"])), clock)


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python3 -m benchmarks.gpu_check", description=__doc__.partition("\n")[0])
    parser.add_argument("--into", type=Path, default=Path("results/gpu-check"), metavar="DIR", help="default: %(default)s")
    parser.add_argument("--device", help="the device to check (default: the first accelerator); cpu tries the script out")
    parser.add_argument("--budget", type=duration, default="9m", help="for this call, all steps together (default: %(default)s)")
    parser.add_argument("--only", action="append", metavar="WORD", help="steps whose name contains it; repeatable")
    return parser.parse_args(arguments)


def _print_table(steps: Sequence[Step], state: State, folder: Path, seconds: float) -> None:
    rows = [("step", "held", "seen")]
    for step in steps:
        seen, spent_s = state.seen.get(step.name), state.spent_s.get(step.name)
        so_far = f"{clock_time(spent_s)} of {clock_time(step.deadline_s)} so far" if spent_s else ""
        rows.append((step.name, seen.word(), seen.what) if seen else (step.name, "to come", so_far))
    print(f"\n{folder}, {clock_time(seconds)} in this call")
    draw(ScreenTable([ScreenColumn("", column, priority=0) for column in zip(*rows, strict=True)]))


if __name__ == "__main__":
    listen()
    sys.exit(main())
