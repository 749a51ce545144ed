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


def results_of(path: Path, *runs: list[Measurement]) -> Results:
    return collect([made_up.write(path / f"run{number}.jsonl", run) for number, run in enumerate(runs)])


def printed(renderable: RenderableType, width: int = 300) -> str:
    console = Console(width=width, force_terminal=False)
    with console.capture() as capture:
        console.print(renderable, crop=False)
    return capture.get()


def cells(text: str, start: str) -> list[str]:
    """The cells of the first line that begins so; two spaces part them."""
    line = next(line.strip() for line in text.splitlines() if line.strip().startswith(start))
    return [cell.strip() for cell in line.split("  ") if cell.strip()]


@pytest.mark.parametrize(
    ("budget_s", "planned", "advice"),
    [
        (None, 7, "give --rounds 7"),
        (60.0, 3, "give --rounds 7"),
        (60.0, 7, "give --budget 150s"),
        (60.0, 5, "give --rounds 7 --budget 150s"),
        (600.0, 7, "give --budget 24m"),
    ],
)
def test_more_rounds_are_asked_for_only_where_they_were_the_limit(
    tmp_path: Path, budget_s: float | None, planned: int, advice: str
) -> None:
    policy, footer = Policy(rounds=planned, budget_s=budget_s), {"rounds": 3, "seconds": 62.0}
    path = made_up.write(tmp_path / "run.jsonl", made_up.both_kinds(rounds=3), policy=policy, footer=footer)
    text = " ".join(printed(overview(collect([path]))).split())
    assert "min–max: spread of the rounds, as fewer than six carry no 95 % interval" in text
    assert f"few rounds (all cases): no 95 % interval of a case; {advice}" in text
    assert ("--rounds" in text, "--budget" in text) == ("--rounds" in advice, "--budget" in advice)
    text = " ".join(printed(reasoning(collect([path]), "cost")).split())
    assert f"few rounds: no 95 % interval of a case; {advice}" in text


@pytest.mark.parametrize(
    ("planned", "measured", "advice"),
    [
        (14, (10, 10), "--budget 110s"),  # 75 s for ten, and 30 for four more
        (14, (10, 0), "--budget 130s"),  # ten in 75 s, and seven of the case that it left out
        (14, (10, 2), "--budget 110s"),  # twelve in 75 s, and five
        (1000, (10, 10), "--budget 125m"),
    ],
)
def test_the_budget_that_would_do_is_never_below_what_was_spent(
    tmp_path: Path, planned: int, measured: tuple[int, int], advice: str
) -> None:
    one, other = made_up.case(model="resnet18"), made_up.case(model="resnet50")
    rounds = [*made_up.rounds_of(one, made_up.flat([1.0] * measured[0])), *made_up.rounds_of(other, made_up.flat([1.0] * measured[1]))]
    if not measured[1]:
        rounds.append(made_up.ended(other, Status.SKIPPED, "the budget was spent before its turn"))
    limits = {"policy": Policy(rounds=planned, budget_s=75.0), "footer": {"rounds": 10, "seconds": 74.0}}
    (spent,) = collect([made_up.write(tmp_path / "run.jsonl", rounds, **limits)]).budgets.values()
    assert str(spent) == f"the budget of 75 s ended the run after 10 of {planned} rounds; about {advice} would do"


REFERENCES = front_door.ROOT / "results" / "reference" / "intel-xeon-processor"


def test_of_many_values_the_notes_have_few_and_a_sign_for_the_others() -> None:
    text = printed(overview(collect([REFERENCES / "convergence.jsonl"])))
    assert cells(text, "convergence fp32 rate=0.02")[-1] == "accuracy 99.1…99.3 % over 6 seeds, loss 0.0248…0.0283 over 6 seeds, …"


def test_the_errors_and_scales_of_a_product_are_in_details_alone() -> None:
    results = collect([REFERENCES / "precision.jsonl"])
    assert "scales left" not in printed(overview(results))
    assert "0.0321" in printed(overview(results, details=True))


def test_unpaired_rows_are_counted_and_named_by_reason(tmp_path: Path) -> None:
    pairs = match_rows(results_of(tmp_path, [each for each in made_up.both_kinds() if each.case.device == "cpu"][:14]), "device")
    assert sentences.unpaired(pairs.unmatched) == [
        "2 not paired, nothing to pair it with at another device: train_step[model=resnet18,batch=8,dtype=fp32]@cpu (run0), "
        "train_step[model=resnet18,batch=8,dtype=bf16]@cpu (run0)"
    ]


def launch_bound(*shares: float, cache: str = "hot") -> list[Measurement]:
    """Products on both devices, ten times as fast on the accelerator, which works in a share of that time only."""
    found: list[Measurement] = []
    for number, share in enumerate(shares):
        params = {"n": number + 1, "dtype": "fp32", **({"cache": cache} if cache != "hot" else {})}
        found += made_up.rounds_of(made_up.case("matmul", **params), made_up.flat([1.0] * 7))
        on_gpu = made_up.rounds_of(made_up.case("matmul", "cuda:0", **params), made_up.flat([0.1 / (number + 1)] * 7))
        found += [made_up.timed_on_device(each, share) for each in on_gpu]
    return found


def test_a_device_that_waits_for_launches_is_told_in_the_answer(tmp_path: Path) -> None:
    results = results_of(tmp_path, launch_bound(0.5, 0.66, 0.68))
    assert list(answer_to(speedup, results).sentences) == ["matmul, matmul n=2: each at its best 20.0 ×, same case 20.0 ×, launch-bound 2."]


@pytest.mark.parametrize(
    "measurements",
    [
        pytest.param(launch_bound(0.9, 0.9, 0.8), id="hardly"),
        pytest.param(launch_bound(0.5, cache="cold"), id="a cold call is timed alone"),
        pytest.param(made_up.both_kinds(), id="no device time"),
    ],
)
def test_the_answer_blames_launches_only_where_they_are_to_blame(tmp_path: Path, measurements: list[Measurement]) -> None:
    assert "launch" not in " ".join(answer_to(speedup, results_of(tmp_path, measurements)).sentences)


def test_the_choice_of_a_side_names_a_layout_but_the_usual_one() -> None:
    usual = [{"batch": 8, "dtype": "fp32"}, {"batch": 8, "dtype": "fp32", "layout": "nchw"}]
    rows = [planned_row(made_up.case(**params)) for params in (*usual, {"batch": 64, "dtype": "bf16", "layout": "channels_last"})]
    assert list(map(names.choice, rows)) == ["batch=8 fp32", "batch=8 fp32", "batch=64 bf16 channels_last"]


def test_many_reasons_of_flags_are_told_by_the_most_common_ones():
    def flagged(*reasons):
        return [Row(Identity(), {}, flag=Flags(reason=reason)) for reason in reasons]

    assert sentences.flag_reasons(flagged("a", None, "b", "b", "c", "d")) == ["2 cases: b", "1 case: a", "1 case: c", "1 case: d"]
    assert sentences.flag_reasons(flagged("a", "b", "c", "c", "d", "e")) == [
        *("2 cases: c", "1 case: a", "1 case: b", "1 case: d"),
        "1 case more, each with a reason of its own: flag.reason of --format json",
    ]


def test_what_all_cases_share_is_said_once_and_a_wide_interval_is_noisy(tmp_path: Path) -> None:
    wide, narrow = (made_up.flat([1.0, 1.0 + spread, 1.0, 1.0 + spread, 1.0, 1.0 + spread, 1.0]) for spread in (0.5, 0.01))
    kinds = {"both wide": (wide, wide), "one wide": (wide, narrow), "none": (narrow, narrow)}
    for at, (kind, times) in enumerate(kinds.items()):
        cases = [each for n, rounds in enumerate(times) for each in made_up.rounds_of(made_up.case("matmul", n=n), rounds)]
        (tmp_path / str(at)).mkdir()
        text = printed(overview(results_of(tmp_path / str(at), cases)))
        explained = EXPLANATIONS[Tag.NOISY]
        said = {"both wide": f"noisy (all cases): {explained}", "one wide": f"noisy: {explained}"}.get(kind, "")
        assert [line for line in text.splitlines() if line.startswith("noisy")] == [said] * bool(said)
        assert [cells(text, f"matmul n={n}")[-1] == "noisy" for n in (0, 1)] == [kind == "one wide", False]


def test_what_is_asked_for_most_stands_first(tmp_path: Path) -> None:
    kinds = {"tiny": (), "copies": ("copy",), "product": ("compute",), "largest": (), "step": ("training",)}
    declared = {name: Declaration(tags=tags) for name, tags in kinds.items()}
    params = {"largest": {"model": "resnet18"}, "step": {"model": "resnet18"}}
    rows = [Row(Identity(workload=name, id=f"{name}@cpu"), params.get(name, {}), declared=each) for name, each in declared.items()]
    assert [row.case.workload for row in tables.order_rows(rows)] == ["step", "largest", "product", "copies", "tiny"]


def test_reasons_that_differ_in_numbers_are_one() -> None:
    rows = [Row(Identity(), {}, flag=Flags(reason=f"measured again in 1 of {rounds} rounds")) for rounds in (10, 14, 12)]
    assert sentences.flag_reasons(rows) == ["3 cases: measured again in 1 of 10…14 rounds"]
