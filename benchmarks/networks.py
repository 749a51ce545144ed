"""Networks as users bring them, measured by dlbench: their operations beside published ones, their steps, and what is null and why.

And dlbench's own BERT and GPT-2 beside those of transformers, with the same weights.

``make networks`` makes an environment with transformers, and runs this in it: docs/reference/networks.md and the run that it shows.
"""

import argparse
import re
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import NamedTuple

from benchmarks.alternate import ROOT, environment, python
from dlbench.analysis.contribute.public import machine_name, public_records
from dlbench.analysis.export.tabular import markdown_table
from dlbench.core import units
from dlbench.core.errors import explained
from dlbench.core.measurement import Measurement
from dlbench.core.model import Status
from dlbench.core.store import Record, RunFile, load
from dlbench.core.writer import as_line

PLUGIN, SUITE = (ROOT / "benchmarks" / f"real_networks.{ending}" for ending in ("py", "toml"))
PAGE = ROOT / "docs" / "reference" / "networks.md"
FOLDER = ROOT / "results" / "networks"
PUBLISHED: Mapping[str, int] = {"bert_base": 22_348_431_360, "vit_b_16": 35_127_656_448, "mobilenet_v2": 601_548_544}
"""Operations forward of a sample: of BERT-base at 128 tokens with its pooler, and of an image of 224 x 224."""
TOLERANCE = 0.01
MOST_APART = 1e-6
"""Between a network of dlbench's own in fp64 and that of transformers, whose GPT-2 computes its loss in fp32."""
STEPS = (("train_step", 1), ("train_step", 8), ("infer_step", 1), ("infer_step", 8))
_PART = re.compile(r"(<!-- Made by `make networks`\. -->\n).*?(<!-- end -->)", re.DOTALL)


class Apart(NamedTuple):
    """How far a network is from that of transformers: relative, in the 2-norm, of the tensor that is furthest."""

    network: str
    loss: float
    outputs: float
    gradients: float


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure all, and write the page and its run. Raises SystemExit where a count, or a network, is not the published one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--of", type=Path, metavar="FILE", help="show this run instead of measuring; its networks are not built")
    options = parser.parse_args(arguments)
    run = load(options.of or _measured())
    from benchmarks.same_networks import apart  # transformers is there only in the environment that is made for this

    compared = list(apart())
    found, nulls = shown(run.measurements, _parameters())
    text = "\n".join((found, agreement(compared), f"({_measured_with(run)})\n"))
    print(text, nulls, sep="\n")
    if other := [each.network for each in compared if not max(each[1:]) < MOST_APART]:
        raise SystemExit(f"other numbers than those of transformers: {', '.join(other)}")
    if wrong := wrong_counts(run.measurements):
        raise SystemExit(f"other operations than published: {', '.join(wrong)}")
    FOLDER.mkdir(exist_ok=True)
    path = FOLDER / f"{machine_name(run.header['devices'])}.jsonl"
    path.write_bytes(b"".join(map(as_line, publishable(run))))
    PAGE.write_text(_PART.sub(lambda part: f"{part[1]}\n{text}\n{part[2]}", PAGE.read_text()))


def _measured() -> Path:
    path = Path(tempfile.mkdtemp()) / "networks.jsonl"
    command = python("-m", "dlbench", "run", str(SUITE), str(PLUGIN), "--device", "cpu", "--output", str(path))
    subprocess.run(command, env=environment(), check=True)
    return path


def _parameters() -> dict[str, int]:
    """Return the parameters of each network."""
    from benchmarks import real_networks  # noqa: F401  # registers them
    from dlbench.harness.worker import user
    from dlbench.kit.user_networks import build

    networks = {name: user.find_network(name) for name in user.names("network")}
    return {name: sum(each.numel() for each in build(network).parameters()) for name, network in networks.items() if network}


def operations(measurements: Iterable[Measurement]) -> dict[str, float]:
    """Return the operations forward of a sample by network, of those that state any."""
    inferred = [each for each in measurements if each.case.workload == "infer_step" and each.flops is not None and each.items]
    return {str(each.case.params["model"]): each.flops / each.items for each in inferred if each.flops and each.items}


def wrong_counts(measurements: Iterable[Measurement]) -> list[str]:
    """Return the networks whose operations are unknown, or others than published."""
    counted = operations(measurements)
    return [name for name, count in PUBLISHED.items() if abs(counted.get(name, 0) / count - 1) > TOLERANCE]


def shown(measurements: Sequence[Measurement], parameters: Mapping[str, int]) -> Iterator[str]:
    """Yield the tables in Markdown: of the networks, and of what is null."""
    counted = operations(measurements)
    columns = ("network", "parameters", "operations of a sample", "published", *(f"{step}, batch {batch}" for step, batch in STEPS))
    rows = []
    for name, count in parameters.items():
        cells = (_count(counted.get(name)), _count(PUBLISHED.get(name)))
        rows.append((name, f"{count:,}", *cells, *(_time(measurements, name, step, batch) for step, batch in STEPS)))
    yield "".join(markdown_table(columns, rows))
    yield "".join(markdown_table(("null", "why", "of"), list(_nulls(measurements, tuple(parameters)))))


def agreement(compared: Iterable[Apart]) -> str:
    """Return the table of networks of dlbench's own beside those of transformers."""
    columns = ("dlbench's own, fp64", "loss apart", "outputs apart", "gradients apart")
    return "".join(markdown_table(columns, [(each.network, *(f"{apart:.1e}" for apart in each[1:])) for each in compared]))


def _count(number: float | None) -> str:
    return "" if number is None else f"{number:,.0f}"


def _time(measurements: Iterable[Measurement], name: str, step: str, batch: int) -> str:
    """Return the median over the rounds of a step's time, or how it ended."""
    found = [
        each for each in measurements if (each.case.params["model"], each.case.workload, each.case.params["batch"]) == (name, step, batch)
    ]
    timed = [median(each.samples.counted_s) for each in found if each.samples]
    return units.seconds(median(timed)) if timed else "".join(str(each.status) for each in found[-1:])


def _nulls(measurements: Iterable[Measurement], names: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """Yield each reason once, with the networks that it holds for."""
    found: dict[tuple[str, ...], dict[str, str]] = {}
    for each in measurements:
        named = {str(each.case.params["model"]): str(each.case.params["model"])}
        for group, reasons in each.missing_reasons.items():
            for reason in reasons if not isinstance(reasons, str) else ():
                key = (group, *(str(reason.get(part, "")) for part in ("part", "reason", "text")))
                # By how much a check would have taken too long is another figure for each case.
                why = re.sub(
                    r"it would take about .*, and (.*) at most are spent on it", r"it would take longer than \1", explained([reason])
                )
                found.setdefault(key, {"": why}).update(named)
        if each.status is not Status.OK:
            found.setdefault((each.case.workload, str(each.reason)), {"": str(each.reason)}).update(named)
    for key, why in sorted(found.items()):
        of = [name for name in names if name in why]
        yield key[0], why[""], "all" if len(of) == len(names) else ", ".join(of)


def _measured_with(run: RunFile) -> str:
    """Name release, software, machine and day of a run, which was measured in this environment."""
    made, stack, threads = run.header["environment"]["provenance"], run.header["environment"]["stack"], run.measurements[0].threads
    software = ", ".join(f"{name} {stack['versions'].get(name) or version(name)}" for name in ("python", "torch", "transformers"))
    machine = f"{run.measurements[0].device_name}, {threads} thread{'s' if threads != 1 else ''}"
    return f"dlbench {made['dlbench']}, {software}, {machine}, {made['utc'][:10]}"


def publishable(run: RunFile) -> Iterator[Record]:
    """Yield the lines of a run without what is private, and with why counts are unknown: that names nothing but layers of this file."""
    reasons = {(each.case.id, each.round): each.missing_reasons for each in run.measurements}
    for record in public_records(run):
        if record["kind"] == "measurement":
            told = reasons[record["case"]["id"], record["round"]]
            record["missing_reasons"] = {
                **record.get("missing_reasons", {}),
                **{part: told[part] for part in ("flops", "bytes") if part in told},
            }
        yield record


if __name__ == "__main__":
    main()
