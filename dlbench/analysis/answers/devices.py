"""Scaling: what another device brings, and under which parallelism."""

from collections import Counter
from collections.abc import Sequence

from dlbench.analysis.answers.base import DEVICE, Answer, Columns, Missing, Question, Table, answered, with_device
from dlbench.analysis.figures import Axis, Figure, drawn
from dlbench.analysis.ratios import grouped
from dlbench.analysis.read.table import Results
from dlbench.analysis.scaling.speedup import COLUMNS, as_chosen, scaling
from dlbench.analysis.wording import INTERVAL, number, plural, ratio, several_runs, short
from dlbench.core import units
from dlbench.core.rows.row import Cells as Row
from dlbench.core.schema import Column, Unit

QUESTION = Question("devices", "Does another device help, and under which parallelism?")
_SECOND = 2  # above it, "a second GPU" is "4 GPUs"
_ON_CPU = (
    "Ranks on a CPU share its cores and its memory, so efficiency is that of its cores: "
    "it shows that a form works and what it costs here, not how accelerators scale."
)
_MEANINGS = {
    "memory": "peak of one device, on a CPU of one process: the highest of the ranks",
    "waits": "communication that a step waits for, the price of synchronising: the step less the same one without it",
    "bubble": "idle part of a pipeline's step, from steps with other numbers of microbatches; in theory (p - 1) / (m + p - 1)",
}
_CHOSEN = "the way was chosen for bringing the most: its intervals allow for that, but its ratios are on the high side"
_VERDICTS = {"scales": "scale", "helps": "help", "slows": "slow down", "undecided": "are undecided"}
_EFFICIENCY_ENDS = {
    Column(f"scaling.efficiency_{end}", Unit.FRACTION, f"{end}er end of the 95 % interval of the efficiency"): f"scaling.speedup_{end}"
    for end in ("low", "high")
}
_WAY = Column("scaling.way", Unit.TEXT, "the work, how its batch is shared out, and where it ran")
_RANKS = Column("scaling.ranks_text", Unit.TEXT, "how many ranks took part")
WHAT: Columns = (
    ("case", COLUMNS["scaling.work"]),
    DEVICE,
    ("scaling", COLUMNS["scaling.kind"]),
    ("ranks", COLUMNS["scaling.ranks"]),
    ("cores each", COLUMNS["scaling.cores_per_rank"]),
)
"""What tells rows of `speedup.COLUMNS` apart."""
_SHOWN: Columns = (
    *WHAT,
    ("items/s", COLUMNS["scaling.items_per_s"]),
    ("speed-up", COLUMNS["scaling.speedup"]),
    (INTERVAL, COLUMNS["scaling.speedup_low"]),
    (INTERVAL, COLUMNS["scaling.speedup_high"]),
    ("efficiency", COLUMNS["scaling.efficiency"]),
    ("memory", COLUMNS["scaling.memory_bytes"]),
    ("waits", COLUMNS["scaling.exposed_s"]),
    ("of a step", Column("scaling.exposed_share", Unit.FRACTION, "that communication over the step", "lower")),
    ("bubble", COLUMNS["scaling.bubble"]),
    ("in theory", COLUMNS["scaling.bubble_theory"]),
    ("verdict", COLUMNS["scaling.verdict"]),
)


def answer(results: Results) -> Answer | Missing:
    """Return the form that brings the most, and how many of the others help."""
    rows = scaling(results)
    # What devices do that communicate nothing is a bound for the others, and trains no network.
    cases = {(row["case.run"], row["case.id"]): row for row in results.rows}
    alone = {key for key, row in cases.items() if row.get("param.form") in results.declaration(row).parallel.independent}
    gains = [row for row in rows if row["scaling.speedup"] is not None and row["scaling.verdict"] not in ("base", "implausible")]
    gained = [row for row in gains if (row["scaling.run"], row["scaling.case"]) not in alone]
    if not gained:
        return Missing(QUESTION, "no case of several ranks went well beside the same work of one rank", "dlbench run scaling")
    groups = list(grouped(gained, lambda row: tuple(row[f"scaling.{name}"] for name in ("work", "kind", "device", "run"))).values())
    best = max(groups, key=lambda group: (group[0]["scaling.device"] != "cpu", max(number(row["scaling.speedup"]) for row in group)))
    chosen = [as_chosen(row, results, len(gained)) for row in best] if len(groups) > 1 else best
    sentences = [_headline(chosen, several_runs(gained, "scaling"))]
    if len(groups) > 1:
        counts = Counter(_VERDICTS[str(row["scaling.verdict"])] for row in gained)
        verdicts = ", ".join(f"{count} {verdict}" for verdict, count in counts.most_common())
        sentences = [f"{sentences[0][:-1]}, the most of {len(groups)} ways.", f"Of {len(gained)} cases of several ranks {verdicts}."]
    ids = {(row["scaling.run"], row[f"scaling.{name}"]) for row in gained for name in ("case", "base")}
    on = [row for key, row in cases.items() if key in ids]
    on_cpu = ["ranks on a CPU share its cores, which says nothing of accelerators"] if best[0]["scaling.device"] == "cpu" else []
    of_several = [_CHOSEN] if len(groups) > 1 else []
    return answered(QUESTION, sentences, on, [*of_several, *on_cpu], table(rows), figures=[_efficiencies(gained)])


def table(rows: Sequence[Row]) -> Table:
    """Return the table of rows of `speedup.scaling`, without cases that had nothing to measure, and without projections."""
    shown = [{**row} for row in rows if row["scaling.case"] and row["scaling.verdict"] not in ("unsupported", "skipped")]
    for row in shown:
        known = row["scaling.exposed_s"] is not None and row["scaling.step_s"]
        row["scaling.exposed_share"] = number(row["scaling.exposed_s"]) / number(row["scaling.step_s"]) if known else None
    tidy = with_device(shown, "scaling")
    there = [heading for heading, column in _SHOWN if any(row[column.name] is not None for row in tidy)]
    meanings = [f"{heading}: {_MEANINGS[heading]}" for heading in there if heading in _MEANINGS]
    on_cpu = [_ON_CPU] if any(row["scaling.device"] == "cpu" for row in rows) else []
    counts = Counter(str(row["scaling.reason"]) for row in rows if row["scaling.case"] and row["scaling.reason"])
    reasons = [units.one_line(f"{plural(count, 'case')}: {reason}") for reason, count in counts.items()]
    return Table("More devices: what all do together, against one", _SHOWN, tidy, (*meanings, *on_cpu, *reasons))


def _efficiencies(gained: Sequence[Row]) -> Figure:
    """Return the figure of scaling efficiency: a row a way, a dot for each number of ranks."""
    rows: list[Row] = []
    for row in with_device(gained, "scaling"):
        resources = number(row["scaling.resources"])
        ends = {end.name: None if row[whole] is None else number(row[whole]) / resources for end, whole in _EFFICIENCY_ENDS.items()}
        words = (short(row["scaling.work"]), str(row["scaling.kind"] or ""), f"on {row['place']}")
        rows.append(
            {**row, **ends, _WAY.name: " ".join(filter(None, words)), _RANKS.name: plural(int(number(row["scaling.ranks"])), "rank")}
        )
    shown, left_out = drawn(rows, lambda row: number(row["scaling.efficiency"]))
    about = f"At 1 every further device brings as much as the first; the lines are 95 % intervals over rounds.{left_out}"
    efficiency, way, ranks = Axis("efficiency", COLUMNS["scaling.efficiency"]), Axis("way", _WAY), Axis("ranks", _RANKS)
    low, high = _EFFICIENCY_ENDS
    return Figure("Scaling efficiency: speed-up over resources", about, "dot", efficiency, way, shown, ranks, (low, high), 1.0)


def _headline(rows: Sequence[Row], several: bool) -> str:
    """Return what one way brings: ``A second GPU buys 1.83 × (1.80…1.86): data_parallel ddp …, weak.``."""
    first = rows[0]
    if first["scaling.device"] == "cpu":
        gains = [f"{_ranks(row)} do {_gain(row)} the work of one rank with {_of_base(row)}" for row in rows]
    else:
        gains = [f"{_devices(row)} {_gain(row)}" for row in rows]
        gains[0] = gains[0].replace(_devices(first), f"{_devices(first)} {'buys' if first['scaling.ranks'] == _SECOND else 'buy'}", 1)
    text = ", ".join(gains)
    about = [short(first["scaling.work"]), str(first["scaling.kind"] or ""), str(first["scaling.run"]) if several else ""]
    return f"{text[0].upper()}{text[1:]}: {', '.join(filter(None, about))}."


def _devices(row: Row) -> str:
    noun = "GPU" if str(row["scaling.device"]).partition(":")[0] in ("cuda", "xpu", "mps") else "device"
    return f"a second {noun}" if row["scaling.ranks"] == _SECOND else f"{row['scaling.ranks']} {noun}s"


def _ranks(row: Row) -> str:
    """Return ``4``, or on a CPU ``2 ranks of 1 core``."""
    ranks, cores = int(number(row["scaling.ranks"])), row["scaling.cores_per_rank"]
    return str(ranks) if cores is None else f"{plural(ranks, 'rank')} of {plural(int(number(cores)), 'core')}"


def _of_base(row: Row) -> str:
    """Return the cores that the base has in all: as many as it has itself, where it has as many times the resources of one."""
    mine = number(row["scaling.ranks"]) * number(row["scaling.cores_per_rank"] or 1)
    return plural(round(mine / number(row["scaling.resources"])), "core")


def _gain(row: Row) -> str:
    ends = {"speedup": "scaling.speedup", "ci_low": "scaling.speedup_low", "ci_high": "scaling.speedup_high"}
    return ratio({**row, **{f"ratio.{name}": row[end] for name, end in ends.items()}})
