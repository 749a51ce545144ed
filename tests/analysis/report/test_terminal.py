"""Notes, marks and cells of the screens of result files."""

from pathlib import Path

import front_door
import made_up
import pytest
from rich.console import Console, RenderableType

from dlbench.analysis.answers import answer_to, speedup
from dlbench.analysis.answers.engine.question import EXPLANATIONS, Tag
from dlbench.analysis.presentation import names
from dlbench.analysis.ratios.matching import match_rows
from dlbench.analysis.read.table import Results, collect
from dlbench.analysis.report import sentences, tables
from dlbench.analysis.report.terminal import overview, reasoning
from dlbench.core.declarations import Declaration
from dlbench.core.measurement import Measurement
from dlbench.core.model import Policy, Status
from dlbench.core.rows.columns import Flags, Identity
from dlbench.core.rows.row import Row
from dlbench.core.rows.summary import planned_row


def results_of(folder: Path, run: list[Measurement]) -> Results:
    return collect([made_up.write(folder / "run0.jsonl", run)])


def printed(renderable: RenderableType, width: int = 300) -> str:
    console = Console(width=width, force_terminal=False)
    with console.capture() as capture:
        console.print(renderable, crop=False)
    return capture.get()


def last_cell(text: str, start: str) -> str:
    """The last cell of the first line that begins so; two spaces part them."""
    line = next(line.strip() for line in text.splitlines() if line.strip().startswith(start))
    return line.rpartition("  ")[2]


REFERENCES = front_door.ROOT / "results" / "reference" / "intel-xeon-processor"
BUDGETS = {
    (None, 7): "--rounds 7",
    (60.0, 3): "--rounds 7",
    (60.0, 7): "--budget 150s",
    (60.0, 5): "--rounds 7 --budget 150s",
    (600.0, 7): "--budget 24m",
}


@pytest.mark.parametrize(("limits", "advice"), BUDGETS.items())
def test_more_rounds_are_asked_for_only_where_they_were_the_limit(tmp_path: Path, limits: tuple[float | None, int], advice: str) -> None:
    policy, footer = Policy(rounds=limits[1], budget_s=limits[0]), {"rounds": 3, "seconds": 62.0}
    results = collect([made_up.write(tmp_path / "run.jsonl", made_up.both_kinds(rounds=3), policy=policy, footer=footer)])
    text = printed(overview(results), 1000)
    few_rounds = f"no 95 % interval of a case; give {advice}"
    assert "min–max: spread of the rounds, as fewer than six carry no 95 % interval" in text
    assert [line for line in text.splitlines() if line.startswith("few rounds")] == [f"few rounds (all cases): {few_rounds}"]
    assert f"few rounds: {few_rounds}\n" in printed(reasoning(results, "cost"), 1000)


@pytest.mark.parametrize(
    ("planned", "measured", "advice"),
    [
        (14, (10, 10), "--budget 110s"),  # 75 s for ten, and 30 for four more
        (14, (10, 0), "--budget 130s"),  # ten in 75 s, and seven of the case that it left out
        (14, (10, 2), "--budget 110s"),  # twelve in 75 s, and five
        (1000, (10, 10), "--budget 125m"),
    ],
)
def test_the_budget_that_would_do_is_never_below_what_was_spent(tmp_path: Path, planned: int, measured: list[int], advice: str) -> None:
    cases = [made_up.case(model=model) for model in ("resnet18", "resnet50")]
    rounds = [each for case, count in zip(cases, measured, strict=True) for each in made_up.rounds_of(case, made_up.flat([1.0] * count))]
    rounds += [] if measured[1] else [made_up.ended(cases[1], Status.SKIPPED, "the budget was spent before its turn")]
    limits = {"policy": Policy(rounds=planned, budget_s=75.0), "footer": {"rounds": 10, "seconds": 74.0}}
    (spent,) = collect([made_up.write(tmp_path / "run.jsonl", rounds, **limits)]).budgets.values()
    assert str(spent) == f"the budget of 75 s ended the run after 10 of {planned} rounds; about {advice} would do"


def test_the_notes_have_few_of_many_values_and_those_of_a_product_only_details() -> None:
    convergence = printed(overview(collect([REFERENCES / "convergence.jsonl"])))
    note = "accuracy 99.1…99.3 % over 6 seeds, loss 0.0248…0.0283 over 6 seeds, …"
    assert last_cell(convergence, "convergence fp32 rate=0.02") == note
    precision = collect([REFERENCES / "precision.jsonl"])
    assert "scales left" not in printed(overview(precision))
    assert "0.0321" in printed(overview(precision, details=True))


def test_unpaired_rows_are_counted_and_named_by_reason(tmp_path: Path) -> None:
    pairs = match_rows(results_of(tmp_path, [each for each in made_up.both_kinds() if each.case.device == "cpu"][:14]), "device")
    assert sentences.unpaired(pairs.unmatched) == [
        "2 not paired, nothing to pair it with at another device: train_step[model=resnet18,batch=8,dtype=fp32]@cpu (run0), "
        "train_step[model=resnet18,batch=8,dtype=bf16]@cpu (run0)"
    ]


def launch_bound(*shares: float, **cache: str) -> list[Measurement]:
    """Products on both devices, ten times as fast on the accelerator, which works in a share of that time only."""
    found: list[Measurement] = []
    for number, share in enumerate(shares, 1):
        on_cpu, on_gpu = (made_up.case("matmul", device, n=number, dtype="fp32", **cache) for device in ("cpu", "cuda:0"))
        found += made_up.rounds_of(on_cpu, made_up.flat([1.0] * 7))
        found += [made_up.timed_on_device(each, share) for each in made_up.rounds_of(on_gpu, made_up.flat([0.1 / number] * 7))]
    return found


WAITS = "matmul, matmul n=2: each at its best 20.0 ×, same case 20.0 ×, launch-bound 2."
LAUNCHES = {
    "two of three wait": (launch_bound(0.5, 0.66, 0.68), [WAITS]),
    "hardly": (launch_bound(0.9, 0.9, 0.8), []),
    "a cold call is timed alone": (launch_bound(0.5, cache="cold"), []),
    "no device time": (made_up.both_kinds(), []),
}


@pytest.mark.parametrize("scene", LAUNCHES)
def test_the_answer_blames_launches_only_where_they_are_to_blame(tmp_path: Path, scene: str) -> None:
    measurements, blamed = LAUNCHES[scene]
    assert [each for each in answer_to(speedup, results_of(tmp_path, measurements)).sentences if "launch" in each] == blamed


def test_the_choice_of_a_side_names_a_layout_but_the_usual_one() -> None:
    small, other = {"batch": 8, "dtype": "fp32"}, {"batch": 64, "dtype": "bf16", "layout": "channels_last"}
    rows = [planned_row(made_up.case(**params)) for params in (small, {**small, "layout": "nchw"}, other)]
    assert list(map(names.choice, rows)) == ["batch=8 fp32", "batch=8 fp32", "batch=64 bf16 channels_last"]


@pytest.mark.parametrize(
    ("reasons", "lines"),
    [
        (["a", None, "b", "b", "c", "d"], ["2 cases: b", "1 case: a", "1 case: c", "1 case: d"]),
        ([f"again in 1 of {rounds} rounds" for rounds in (10, 14, 12)], ["3 cases: again in 1 of 10…14 rounds"]),
    ],
)
def test_reasons_of_flags_are_counted_and_the_most_common_stand_first(reasons: list[str | None], lines: list[str]) -> None:
    assert sentences.flag_reasons([Row(Identity(), {}, flag=Flags(reason=reason)) for reason in reasons]) == lines


@pytest.mark.parametrize(
    ("spreads", "explained", "marked"),
    [((0.5, 0.5), ["noisy (all cases)"], [False, False]), ((0.5, 0.01), ["noisy"], [True, False]), ((0.01, 0.01), [], [False, False])],
)
def test_a_mark_of_all_cases_is_explained_once(tmp_path: Path, spreads: list[float], explained: list[str], marked: list[bool]) -> None:
    rounds = [made_up.flat([1.0 + spread * (number % 2) for number in range(7)]) for spread in spreads]
    run = [each for n, some in enumerate(rounds) for each in made_up.rounds_of(made_up.case("matmul", n=n), some)]
    text = printed(overview(results_of(tmp_path, run)))
    found = [line for line in text.splitlines() if line.startswith("noisy")]
    assert found == [f"{mark}: {EXPLANATIONS[Tag.NOISY]}" for mark in explained]
    assert [last_cell(text, f"matmul n={n}") == "noisy" for n in (0, 1)] == marked


def test_the_work_that_is_asked_for_most_stands_first() -> None:
    kinds = {"tiny": (), "copies": ("copy",), "product": ("compute",), "largest": (), "step": ("training",)}
    params = {"largest": {"model": "resnet18"}, "step": {"model": "resnet18"}}
    rows = [Row(Identity(f"{name}@cpu", "", name), params.get(name, {}), declared=Declaration(tags=tags)) for name, tags in kinds.items()]
    assert [row.case.workload for row in tables.order_rows(rows)] == ["step", "largest", "product", "copies", "tiny"]
