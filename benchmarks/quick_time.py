"""Time of ``dlbench run quick`` to its first complete table and to the end of seven rounds, and its memory."""

import argparse
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.alternate import python, report, watch
from dlbench.core.units import byte_count

MINUTES = 3.5
FIRST_S, ALL_S, MEMORY_BYTES = 30.0, 180.0, 3 * 2**30
ROUNDS = 7
"""What is left of the budget buys more, which are not counted here."""
_LINE = re.compile(r"round (\d+) of .*?, \d+ cases? left: (?!starting )")
"""A case that has ended; the first line says what starts."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run it once and watch it from outside."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--suite", default="quick")
    options = parser.parse_args(arguments)
    rounds: dict[int, list[float]] = {}

    def note(seconds: float, line: str) -> None:
        if match := _LINE.match(line):
            rounds.setdefault(int(match[1]), []).append(seconds)

    with tempfile.TemporaryDirectory() as folder:
        command = python("-m", "dlbench", "run", options.suite, "--device", "cpu", "-o", str(Path(folder) / "run.jsonl"))
        watched = watch(command, "stderr", note)
    last = min(ROUNDS, max(rounds))
    first_s, all_s = rounds[1][-1], rounds[last][-1]
    report(
        f"dlbench run {Path(options.suite).stem}, from starting the command",
        ("what", "measured", "target"),
        [
            (f"first table, {len(rounds[1])} cases", f"{first_s:.1f} s", f"{FIRST_S:.0f} s"),
            (f"{last} rounds", f"{all_s:.1f} s", f"{ALL_S:.0f} s"),
            ("memory, all processes, twice a second", byte_count(watched.peak_bytes), byte_count(MEMORY_BYTES)),
        ],
        "every row within its target",
        first_s <= FIRST_S and all_s <= ALL_S and watched.peak_bytes <= MEMORY_BYTES,
    )


if __name__ == "__main__":
    main()
