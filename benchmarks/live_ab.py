"""Verdicts of live A/Bs on a busy machine: identical programs, slower ones, and ones whose own threads are in their way."""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.alternate import ROOT, environment, python, report
from benchmarks.live_ab_programs import FIGHTING, SLOWER

PROGRAMS = ROOT / "benchmarks" / "live_ab_programs.py"
_HALF = "import time\nwhile True:\n    end = time.perf_counter() + 0.25\n    while time.perf_counter() < end: pass\n    time.sleep(0.25)"
_FULL = "while True: pass"
LOADS: Mapping[str, Sequence[str]] = {"none": (), "half a core": (_HALF,), "a core": (_FULL,), "five": (_FULL,) * 5}
"""What else runs, a process each."""
SUITE = """
[[bench]]
workload = "changed"
axes.program = ["matmul", "conv2d"]
"""


class _Kind(NamedTuple):
    """A kind of A/B: what makes side b another program, and the verdicts that are right."""

    changes: str | None
    right: Sequence[str]
    wrong: Sequence[str]


KINDS: Mapping[str, _Kind] = {
    "A/A": _Kind(None, ("same",), ("slower", "faster")),
    "+15 %": _Kind(f"{SLOWER}=15", ("slower",), ("faster", "same")),
    "fighting": _Kind(f"{FIGHTING}=1", ("slower",), ("faster", "same")),
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run A/Bs of each kind, and count the verdicts over their cases."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", default=sys.executable, help="interpreter whose dlbench measures and judges")
    parser.add_argument("--times", type=int, default=5, help="of A/A and +15 %%; two of these with fighting threads")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--load", choices=LOADS, default="half a core", help="what runs meanwhile")
    parser.add_argument("--kind", action="append", choices=KINDS, help="only this one; repeatable")
    options = parser.parse_args(arguments)
    rows, wrong = [], 0
    with tempfile.TemporaryDirectory() as folder, running(LOADS[options.load]):
        for name in options.kind or KINDS:
            kind, found, open_cases = KINDS[name], Counter[str](), 0
            times = options.times if name != "fighting" else min(2, options.times)
            for number in range(times):
                cases = _cases(options.python, kind, options.rounds, Path(folder) / f"{name[:2].strip('/+')}-{number}")
                found.update(case["compare.verdict"] for case in cases)
                open_cases += sum(case["compare.unseen"] is not None for case in cases)
            wrong += sum(found[each] for each in kind.wrong)
            counts = ", ".join(f"{verdict} {count}" for verdict, count in sorted(found.items()))
            rows.append((name, str(times), f"{sum(found[each] for each in kind.right)} of {found.total()}", counts, str(open_cases)))
    report(
        f"A/Bs of two programs, {options.rounds} rounds a side; load: {options.load}",
        ("b against a", "A/Bs", "right", "verdicts of cases", "25 % neither called nor excluded"),
        rows,
        f"{wrong} wrong verdicts, at most 0",
        not wrong,
    )


@contextmanager
def running(programs: Sequence[str]) -> Iterator[None]:
    """Have Python programs run meanwhile."""
    started = [subprocess.Popen(python("-c", program), env=environment()) for program in programs]
    try:
        if started:
            time.sleep(0.3)  # their start is another load
        yield
    finally:
        for each in started:
            each.kill()
            each.wait()


def _cases(python: str, kind: _Kind, rounds: int, stem: Path) -> list[dict[str, Any]]:
    suite, file = stem.with_suffix(".toml"), stem.with_suffix(".json")
    suite.write_text(SUITE)
    words = ["ab", str(suite), str(PROGRAMS), "--device", "cpu", "--rounds", str(rounds), "--verdict", str(file)]
    words += ["--b", f"env={kind.changes}"] if kind.changes else ["--b", "same"]
    # Its own dlbench, not this one's: the checkout isn't on its path.
    own = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [python, "-m", "dlbench", *words, "-o", str(stem.with_suffix(".jsonl"))], env=own, cwd=stem.parent, capture_output=True, text=True
    )
    if not file.exists():
        raise SystemExit(f"dlbench ab ended with {done.returncode}: {done.stderr[-2000:]}")
    (comparison,) = json.loads(file.read_text())["comparisons"]
    return list(comparison["cases"])


if __name__ == "__main__":
    main()
