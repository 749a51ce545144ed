"""Time and memory of ``dlbench compare`` over two large result files: 7 rounds of 30 blocks a case."""

import argparse
import json
import math
import random
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.alternate import python, report, watch
from dlbench.core.errors import Unknown
from dlbench.core.measurement import Measurement, Memory, Samples, measurement_to_json
from dlbench.core.model import Case, Status
from dlbench.core.store import SCHEMA
from dlbench.core.units import byte_count

MINUTES = 4
TARGET_S = 15.0
"""Most time for a file with as many cases as the smallest in `TARGET_BYTES`."""
TARGET_BYTES = {20_000: 900 << 20}
"""By the number of a file's cases, the most memory of all processes together at any moment; pages that they share count once."""
ROUNDS, BLOCKS = 7, 30


def main(arguments: Sequence[str] | None = None) -> None:
    """Compare files of so many cases, and read every line of the verdicts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", type=int, nargs="*", default=[1000, *TARGET_BYTES])
    parser.add_argument("--format", default="table")
    options = parser.parse_args(arguments)
    rows, reached, first_s_a_case = [], True, None
    for cases in options.cases:
        size, lines, seconds, peak_bytes = _compare(cases, options.format)
        first_s_a_case = first_s_a_case or seconds / cases
        reached &= lines >= cases and seconds / cases <= first_s_a_case
        reached &= peak_bytes <= next((most for size, most in TARGET_BYTES.items() if cases <= size), math.inf)
        reached &= cases > min(TARGET_BYTES) or seconds <= TARGET_S
        rows.append((f"{cases:,}", byte_count(size), f"{seconds:.2f} s", f"{seconds / cases * 1e3:.2f} ms", byte_count(peak_bytes)))
    report(
        f"dlbench compare of two files, {ROUNDS} rounds of {BLOCKS} blocks a case",
        ("cases", "a file", "all", "a case", "memory, all processes"),
        rows,
        f"{min(TARGET_BYTES):,} cases within {TARGET_S:.0f} s; "
        f"{', '.join(f'{cases:,} within {byte_count(most)}' for cases, most in TARGET_BYTES.items())}; "
        "no more time a case than with fewer cases",
        reached,
    )


def _compare(cases: int, form: str) -> tuple[int, int, float, int]:
    """Compare two files of so many cases; return bytes of a file, lines of the answer, seconds, and peak bytes of all processes."""
    lines = 0

    def count(seconds: float, line: str) -> None:
        nonlocal lines
        lines += 1

    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / f"{side}.jsonl" for side in ("base", "new")]
        for seed, path in enumerate(files):
            write(path, cases, random.Random(seed))
        command = python("-m", "dlbench", "compare", *map(str, files), "--format", form)
        # 3, 4 and 5 are answers, too.
        watched = watch(["sh", "-c", '"$@"; test $? -le 5', "sh", *command], "stdout", count, every_s=0.1)
        return files[0].stat().st_size, lines, watched.seconds, watched.peak_bytes


def write(path: Path, cases: int, chance: random.Random) -> None:
    """Write a result file of made-up times, as a run writes it but without waiting for the disk at every line."""
    planned = [
        Case(f"matmul[n={n},dtype=fp32]@cpu", "made-up", "matmul", {"n": n, "batch": 1, "dtype": "fp32", "layout": "row"}, "cpu")
        for n in range(1, cases + 1)
    ]
    header = {"kind": "header", "schema": SCHEMA, "planned": {"count": cases}, "environment": {}, "policy": {"target": 0.02}}
    with path.open("w") as file:
        file.write(json.dumps(header) + "\n")
        for number in range(ROUNDS):
            chance.shuffle(planned)
            for case in planned:
                file.write(json.dumps(measurement_to_json(_measurement(case, number, chance)), separators=(",", ":")) + "\n")
        file.write('{"kind": "footer"}\n')


def _measurement(case: Case, number: int, chance: random.Random) -> Measurement:
    process_s = 1e-3 * chance.lognormvariate(0, 0.02)
    blocks = tuple(process_s * chance.lognormvariate(0, 0.01) for _ in range(BLOCKS))
    return Measurement(
        case,
        number,
        Status.OK,
        device_name="A made-up processor",
        threads=2,
        samples=Samples(7, blocks, 9e-3, 0.2, steady=True),
        memory=Memory(host_peak_bytes=30 << 20),
        items=1,
        flops=1e9,
        bytes=1e6,
        math={"fp32_matmul": "ieee", "fp32_conv": "ieee", "cudnn_benchmark": False, "deterministic": False},
        missing_reasons={"memory": [Unknown.NO_OWN_MEMORY.reason()], "transfer": [Unknown.ON_HOST.reason()]},
        started="2026-01-31T12:00:00.000+00:00",
    )


if __name__ == "__main__":
    main()
