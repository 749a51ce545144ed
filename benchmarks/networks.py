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
    """Measure the networks, and write the page and its run. Raises SystemExit where a count or a network differs from the published one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--of", type=Path, metavar="FILE", help="show this run instead of measuring; its networks are not built")
    options = parser.parse_args(arguments)
    run = load(options.of or _measure())
    from benchmarks.same_networks import apart  # only the environment made for this has transformers

    compared = list(apart())
    networks_table, nulls_table = tables(run.measurements, _parameters())
    text = "\n".join((networks_table, agreement(compared), f"({_describe_environment(run)})\n"))
    print(text, nulls_table, sep="\n")
    differing = [each.network for each in compared if not max(each[1:]) < MOST_APART]
    if differing:
        raise SystemExit(f"other numbers than those of transformers: {', '.join(differing)}")
    wrong = wrong_counts(run.measurements)
    if wrong:
        raise SystemExit(f"other operations than published: {', '.join(wrong)}")
    FOLDER.mkdir(exist_ok=True)
    path = FOLDER / f"{machine_name(run.header['devices'])}.jsonl"
    path.write_bytes(b"".join(map(as_line, publishable(run))))
    PAGE.write_text(_PART.sub(lambda part: f"{part[1]}\n{text}\n{part[2]}", PAGE.read_text()))


def _measure() -> Path:
    """Run the suite on the CPU, and return the path of its results."""
    path = Path(tempfile.mkdtemp()) / "networks.jsonl"
    command = python("-m", "dlbench", "run", str(SUITE), str(PLUGIN), "--device", "cpu", "--output", str(path))
    subprocess.run(command, env=environment(), check=True)
    return path


def _parameters() -> dict[str, int]:
    """Return the number of parameters of each network."""
    from benchmarks import real_networks  # noqa: F401  # registers them
    from dlbench.harness.worker import user
    from dlbench.kit.user_networks import build

    networks = {name: user.find_network(name) for name in user.names("network")}
    return {name: sum(each.numel() for each in build(network).parameters()) for name, network in networks.items() if network}


def operations(measurements: Iterable[Measurement]) -> dict[str, float]:
    """Return the operations of a forward pass for one sample by network, for those whose measurements state them."""
    inferred = [each for each in measurements if each.case.workload == "infer_step" and each.flops is not None and each.items]
    return {str(each.case.params["model"]): each.flops / each.items for each in inferred if each.flops and each.items}


def wrong_counts(measurements: Iterable[Measurement]) -> list[str]:
    """Return the networks whose operations are unknown or differ from the published ones."""
    counted = operations(measurements)
    return [name for name, count in PUBLISHED.items() if abs(counted.get(name, 0) / count - 1) > TOLERANCE]


def tables(measurements: Sequence[Measurement], parameters: Mapping[str, int]) -> Iterator[str]:
    """Yield two tables in Markdown: the networks, and the nulls with their reasons."""
    counted = operations(measurements)
    columns = ("network", "parameters", "operations of a sample", "published", *(f"{step}, batch {batch}" for step, batch in STEPS))
    rows = []
    for name, count in parameters.items():
        cells = (_count(counted.get(name)), _count(PUBLISHED.get(name)))
        rows.append((name, f"{count:,}", *cells, *(_time(measurements, name, step, batch) for step, batch in STEPS)))
    yield "".join(markdown_table(columns, rows))
    yield "".join(markdown_table(("null", "why", "of"), list(_nulls(measurements, tuple(parameters)))))


def agreement(compared: Iterable[Apart]) -> str:
    """Return the table that compares dlbench's own networks with those of transformers."""
    columns = ("dlbench's own, fp64", "loss apart", "outputs apart", "gradients apart")
    return "".join(markdown_table(columns, [(each.network, *(f"{apart:.1e}" for apart in each[1:])) for each in compared]))


def _count(number: float | None) -> str:
    return "" if number is None else f"{number:,.0f}"


def _time(measurements: Iterable[Measurement], name: str, step: str, batch: int) -> str:
    """Return the median over the rounds of a step's time, or its status where none was timed."""
    wanted = (name, step, batch)
    rounds = [each for each in measurements if (each.case.params["model"], each.case.workload, each.case.params["batch"]) == wanted]
    timed = [median(each.samples.counted_s) for each in rounds if each.samples]
    return units.seconds(median(timed)) if timed else "".join(str(each.status) for each in rounds[-1:])


def _nulls(measurements: Iterable[Measurement], names: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """Yield a row for each reason: what is null, why, and for which of the networks."""
    texts: dict[tuple[str, ...], str] = {}
    networks: dict[tuple[str, ...], set[str]] = {}
    for each in measurements:
        for key, text in _reasons(each):
            texts.setdefault(key, text)
            networks.setdefault(key, set()).add(str(each.case.params["model"]))
    for key in sorted(texts):
        affected = [name for name in names if name in networks[key]]
        yield key[0], texts[key], "all" if len(affected) == len(names) else ", ".join(affected)


def _reasons(measurement: Measurement) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield each reason for a null of a measurement, or for its bad end: a key that is the same for all cases, and the reason in words.

    A key begins with the group of columns that is null, or the workload of what did not end well.
    """
    for group, reasons in measurement.missing_reasons.items():
        for reason in reasons if not isinstance(reasons, str) else ():
            # The time that a check would take differs from case to case.
            text = re.sub("it would take about .*, and (.*) at most are spent on it", r"it would take longer than \1", explained([reason]))
            yield (group, *(str(reason.get(part, "")) for part in ("part", "reason", "text"))), text
    if measurement.status is not Status.OK:
        yield (measurement.case.workload, str(measurement.reason)), str(measurement.reason)


def _describe_environment(run: RunFile) -> str:
    """Name release, software, machine and day of a run that was measured in this environment."""
    made, stack, threads = run.header["environment"]["provenance"], run.header["environment"]["stack"], run.measurements[0].threads
    software = ", ".join(f"{name} {stack['versions'].get(name) or version(name)}" for name in ("python", "torch", "transformers"))
    machine = f"{run.measurements[0].device_name}, {threads} thread{'s' if threads != 1 else ''}"
    return f"dlbench {made['dlbench']}, {software}, {machine}, {made['utc'][:10]}"


def publishable(run: RunFile) -> Iterator[Record]:
    """Yield the records of a run without anything private, but with the reasons for unknown counts: those name only layers of PLUGIN."""
    reasons = {(each.case.id, each.round): each.missing_reasons for each in run.measurements}
    for record in public_records(run):
        if record["kind"] == "measurement":
            own_reasons = reasons[record["case"]["id"], record["round"]]
            counts = {part: own_reasons[part] for part in ("flops", "bytes") if part in own_reasons}
            record["missing_reasons"] = {**record.get("missing_reasons", {}), **counts}
        yield record


if __name__ == "__main__":
    main()
