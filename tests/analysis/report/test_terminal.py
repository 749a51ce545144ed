from dataclasses import replace
from pathlib import Path

import front_door
import made_up
import pytest
from rich.console import Console, RenderableType

from dlbench.analysis.answers import speedup
from dlbench.analysis.answers.parts.best import best
from dlbench.analysis.answers.parts.pair_tables import reported
from dlbench.analysis.presentation import names, wording
from dlbench.analysis.ratios.pairing import match_rows
from dlbench.analysis.read.table import Results, collect
from dlbench.analysis.report import case_table, detail_tables, sentences
from dlbench.analysis.report.screen import Note
from dlbench.analysis.report.terminal import overview, paired, reasoning
from dlbench.core.measurement import Measurement, Transfer
from dlbench.core.model import Policy, Status
from dlbench.core.rows.columns import Flags, Identity
from dlbench.core.rows.row import Row
from dlbench.core.rows.summary import planned_row, summarise


def results_of(path: Path, *runs: list[Measurement]) -> Results:
    return collect([made_up.write(path / f"run{number}.jsonl", run) for number, run in enumerate(runs)])


def printed(renderable: RenderableType, width: int = 300) -> str:
    console = Console(width=width, force_terminal=False)
    with console.capture() as capture:
        console.print(renderable, crop=False)
    return capture.get()


def by(results: Results, column: str) -> str:
    return printed(paired(results, match_rows(results, column), reported(results, column)[1]))


def cells(text: str, start: str) -> list[str]:
    """The cells of the first line that begins so; two spaces part them."""
    line = next(line.strip() for line in text.splitlines() if line.strip().startswith(start))
    return [cell.strip() for cell in line.split("  ") if cell.strip()]


def test_the_answer_has_a_fact_in_each_sentence(tmp_path: Path) -> None:
    assert list(speedup.answer(results_of(tmp_path, made_up.both_kinds(0.4, 0.01))).sentences) == [
        "NVIDIA H200 runs training 50.0 × (48.5…51.5) as fast as the CPU.",
        "The CPU is AMD EPYC 7B13, 2 threads.",
        "The case is train_step resnet18 batch=64 fp32, the lower middle of 4 cases from 40.0 × to 100 ×.",
        "Each at its best batch, precision, layout and mode: train_step resnet18 100 × (95.1…105).",
    ]


def test_one_pair_of_few_rounds_says_so(tmp_path: Path) -> None:
    found = speedup.answer(results_of(tmp_path, made_up.both_kinds(rounds=3)[:6]))
    assert list(found.sentences) == [
        "NVIDIA H200 runs training 40.0 × (no interval before 4 rounds) as fast as the CPU.",
        "The CPU is AMD EPYC 7B13, 2 threads.",
        "The case is train_step resnet18 batch=8 fp32.",
        "Each at its best batch, precision, layout and mode: train_step resnet18 40.0 × (no interval before 4 rounds).",
    ]


@pytest.mark.parametrize("status", [Status.SKIPPED, Status.TIMEOUT])
def test_a_search_that_was_cut_short_is_unfinished_and_says_what_fits_so_far(tmp_path: Path, status: Status) -> None:
    reason = "unfinished: batch=21 fits so far; the budget ran out after 5 tries"
    cut = replace(made_up.ended(made_up.case("largest_batch", model="resnet18"), status, reason), found={"batch": 21}, unfinished=True)
    absent = made_up.ended(made_up.case("train_step", model="resnet18"), Status.SKIPPED, "the budget was spent before its turn")
    text = printed(overview(results_of(tmp_path, [cut, absent])))
    assert "2 cases: 1 skipped, 1 unfinished." in text
    assert cells(text, "largest_batch resnet18") == ["largest_batch resnet18", "unfinished"]
    assert reason in text
    assert cells(text, "train_step resnet18") == ["train_step resnet18", "skipped"]


def test_a_search_is_unfinished_by_what_its_line_says_and_not_by_the_words_of_its_reason(tmp_path: Path) -> None:
    cut = replace(made_up.ended(made_up.case("largest_batch"), Status.SKIPPED, "stopped"), found={"batch": 21}, unfinished=True)
    assert "1 case: 1 unfinished." in printed(overview(results_of(tmp_path, [cut])))


def test_searches_that_were_cut_short_alike_are_each_in_the_table(tmp_path: Path) -> None:
    reason = "unfinished: batch=8 fits so far; the budget ran out after 4 tries"
    models = [f"resnet{number}" for number in range(4)]
    cut = [made_up.ended(made_up.case("largest_batch", model=model), Status.SKIPPED, reason) for model in models]
    text = printed(overview(results_of(tmp_path, [replace(each, found={"batch": 8}, unfinished=True) for each in cut])))
    assert [cells(text, f"largest_batch {model}")[1] for model in models] == ["unfinished"] * 4


def test_what_a_search_found_and_could_not_be_measured_is_not_unfinished(tmp_path: Path) -> None:
    failed = replace(made_up.ended(made_up.case("fastest", model="vgg"), Status.TIMEOUT, "not done within 60 s"), found={"batch": 8})
    assert "1 case: 1 timeout." in printed(overview(results_of(tmp_path, [failed])))


@pytest.mark.parametrize(
    ("budget_s", "planned", "advice"),
    [
        (None, 7, "give --rounds 7"),
        (60.0, 3, "give --rounds 7"),
        (60.0, 7, "the budget of 60 s ended the run after 3 of 7 rounds; about --budget 150s would do"),
        (60.0, 5, "the budget of 60 s ended the run after 3 of 5 rounds; about --rounds 7 --budget 150s would do"),
        (600.0, 7, "the budget of 600 s ended the run after 3 of 7 rounds; about --budget 24m would do"),
    ],
)
def test_more_rounds_are_asked_for_only_where_they_were_the_limit(
    tmp_path: Path, budget_s: float | None, planned: int, advice: str
) -> None:
    policy, footer = Policy(rounds=planned, budget_s=budget_s), {"rounds": 3, "seconds": 62.0}
    path = made_up.write(tmp_path / "run.jsonl", made_up.both_kinds(rounds=3), policy=policy, footer=footer)
    text = " ".join(printed(overview(collect([path]))).split())
    assert "min–max: spread of the rounds, as fewer than six carry no 95 % interval" in text
    assert f"few rounds (all cases): too few for a 95 % interval of a case; {advice}" in text
    assert ("--rounds" in text, "--budget" in text) == ("--rounds" in advice, "--budget" in advice)
    text = " ".join(printed(reasoning(collect([path]), "cost")).split())
    assert f"few rounds (cost): too few for a 95 % interval of a case; {advice}" in text


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


@pytest.mark.parametrize(
    ("budget_s", "advice"),
    [
        (None, "give --rounds 7 to short"),
        (60.0, "short: the budget of 60 s ended the run after 3 of 7 rounds; about --budget 150s would do"),
    ],
)
def test_of_several_files_the_one_without_intervals_is_named(tmp_path: Path, budget_s: float | None, advice: str) -> None:
    policy, footer = Policy(budget_s=budget_s), {"rounds": 3, "seconds": 62.0}
    short = made_up.write(tmp_path / "short.jsonl", made_up.both_kinds(rounds=3), policy=policy, footer=footer)
    text = printed(overview(collect([short, made_up.write(tmp_path / "whole.jsonl", made_up.both_kinds())])))
    line = next(line for line in text.splitlines() if line.startswith("few rounds ("))
    assert line.partition("): ")[2] == f"too few for a 95 % interval of a case; {advice}"


def test_each_row_has_what_a_person_wants(tmp_path: Path) -> None:
    text = printed(overview(results_of(tmp_path, made_up.both_kinds())))
    assert cells(text, "case") == ["case", "device", "time", "95 % interval", "items/s", "FLOP/s", "peak", "memory", "copies"]
    rows = [line.split("  ") for line in text.splitlines() if line.strip().startswith("train_step resnet18 batch=8 fp32")]
    cpu, gpu = ([cell.strip() for cell in row if cell.strip()] for row in rows[:2])
    assert cpu == ["train_step resnet18 batch=8 fp32", "cpu", "400 ms", "388…412 ms", "20.0", "20.0 G", "3.00 MiB"]
    assert gpu == [
        "train_step resnet18 batch=8 fp32",
        "cuda:0",
        "10.0 ms",
        "9.70…10.3 ms",
        "800",
        "800 G",
        "1.2 %",
        "5.00 MiB",
        "97.4 %",
    ]
    assert "copies: copying inputs there" in text
    assert (
        "peak: share of the published peak of arithmetic, or of memory where it says so. "
        "arithmetic: 67.0 TFLOP/s, dense fp32 on the ordinary cores of NVIDIA H200; "
        "arithmetic: 989 TFLOP/s, dense bf16 on the matrix units of NVIDIA H200"
    ) in text


@pytest.mark.parametrize(
    ("accelerator", "told"),
    [
        pytest.param({"pcie_generation_max": 4, "pcie_width_max": 16}, " at up to 28.0 GB/s, 88.9 % of the PCIe link", id="with a link"),
        pytest.param({}, " at up to 28.0 GB/s", id="without"),
    ],
)
def test_copies_say_what_they_are_and_how_fast_pinned_ones_were(tmp_path: Path, accelerator: dict[str, int], told: str) -> None:
    transfers = [Transfer(size, 0.1, 8, 0.1, 0.001, 0.1) for size in (7_000_000, 28_000_000, 14_000_000)]
    measurements = [
        made_up.rounds_of(made_up.case("matmul", "cuda:0", n=n), [[0.5]], transfer=transfer)[0] for n, transfer in enumerate(transfers)
    ]
    text = printed(overview(collect([made_up.write(tmp_path / "run.jsonl", measurements, accelerator=accelerator)])))
    line = next(line for line in text.splitlines() if line.startswith("copies: "))
    assert line == (
        "copies: copying inputs there and the output back, from and to pageable memory as plain code does around each call: its share of "
        f"the whole; from page-locked memory inputs go there{told}"
    )


def test_both_tables_of_ratios_follow_and_each_side_states_its_choice(tmp_path: Path) -> None:
    same, own_best = (
        printed(overview(results_of(tmp_path, made_up.both_kinds()), details=True))
        .split("The same case on both sides")[1]
        .split("Each side at its own best")
    )
    assert cells(same, "train_step resnet18 batch=64 bf16") == [
        "train_step resnet18 batch=64 bf16",
        "1.60 s",
        "16.0 ms",
        "100 ×",
        "97.0…103",
    ]
    assert cells(own_best, "work") == ["work", "cpu", "at", "cuda:0", "at", "ratio", "95 % interval"]
    assert cells(own_best, "train_step") == [
        "train_step resnet18", "40.0 /s", "batch=64 fp32", "4.00 k/s", "batch=64 bf16", "100 ×", "95.1…105",
    ]  # fmt: skip


def test_a_cpu_alone_gets_no_answer_and_no_empty_columns(tmp_path: Path) -> None:
    text = printed(overview(results_of(tmp_path, [each for each in made_up.both_kinds() if each.case.device == "cpu"])))
    assert text.splitlines()[:2] == ["4 cases: 4 ok; 7 rounds.", "cpu: AMD EPYC 7B13, 2 threads"]
    assert cells(text, "case") == ["case", "time", "95 % interval", "items/s", "FLOP/s", "memory"]
    assert "ratio" not in text


def test_a_case_that_is_not_ok_shows_its_status_and_its_sentence(tmp_path: Path) -> None:
    case = made_up.case("train_step", model="vgg19", dtype="fp16")
    text = printed(overview(results_of(tmp_path, [made_up.ended(case, Status.TIMEOUT, "not done within 60 s; raise --timeout")])))
    assert "1 case: 1 timeout." in text
    assert cells(text, "train_step") == ["train_step vgg19 fp16", "timeout"]
    assert "\n not done within 60 s; raise --timeout" in text


def test_many_that_could_not_be_measured_for_one_reason_are_a_line_and_no_rows(tmp_path: Path) -> None:
    few = [made_up.ended(made_up.case("matmul", n=n), Status.UNSUPPORTED, "no TF32") for n in range(3)]
    many = [made_up.ended(made_up.case("collective", ranks=n), Status.UNSUPPORTED, "4 [b]cores[/b]") for n in range(4)]
    failed = [made_up.ended(made_up.case("matmul", k=n), Status.FAILED, "it broke") for n in range(4)]
    text = printed(overview(results_of(tmp_path, [*few, *many, *failed])))
    above = text.partition("speed-up ")[0]  # the line on health says again what broke
    assert [above.count(reason) for reason in ("no TF32", "4 [b]cores[/b]", "it broke")] == [1, 1, 1]
    assert "\nmatmul n=0 on cpu, matmul n=1 on cpu, matmul n=2 on cpu unsupported: no TF32\n" in text
    assert "\n4 cases unsupported, such as collective ranks=0: 4 [b]cores[/b]" in text
    assert "\n4 cases failed, such as matmul k=0: it broke" in text
    assert "11 cases: 7 unsupported, 4 failed." in text


@pytest.mark.parametrize(
    ("rounds", "kind", "span"),
    [
        ([[0.2], [0.1], [0.4]], "min–max", "100…400 ms"),
        ([[0.1, 0.1, 0.1]], "p10–p90", "100…100 ms"),
        ([[9e-4], [2e-3]], "min–max", "900 µs…2.00 ms"),
    ],
)
def test_below_six_rounds_the_spread_says_what_it_is(tmp_path: Path, rounds: list[list[float]], kind: str, span: str) -> None:
    text = printed(overview(results_of(tmp_path, made_up.rounds_of(made_up.case(n=1), rounds))))
    assert "95 % interval" not in text.split(f"{kind}:")[0]
    assert kind in cells(text, "case")
    assert span in cells(text, "train_step")
    assert f"{kind}: spread" in text


def test_where_rounds_differ_each_row_says_how_many_and_which_spread(tmp_path: Path) -> None:
    seven = made_up.rounds_of(made_up.case(n=1), made_up.flat(made_up.SEVEN))
    text = printed(overview(results_of(tmp_path, [*seven, *made_up.rounds_of(made_up.case(n=2), [[0.1], [0.2]])])))
    assert cells(text, "case")[2:4] == ["95 % interval", "rounds"]
    assert cells(text, "train_step n=1")[2:4] == ["970 ms…1.03 s", "7"]
    assert cells(text, "train_step n=2")[2:4] == ["min–max 100…200 ms", "2"]


def test_text_from_files_is_neither_markup_nor_control(tmp_path: Path) -> None:
    case = made_up.case("train_step", model="[red]x[/red]\x1b[2J")
    text = printed(overview(results_of(tmp_path, [made_up.ended(case, Status.FAILED, "[bold]bad[/nothing] \x1b[31mnews\u202e\r")])))
    assert "[bold]bad[/nothing] [31mnews" in text
    assert "[red]x[/red][2J" in text
    assert not {"\x1b", "\r", "\u202e"} & set(text)


@pytest.mark.parametrize("width", [110, 120, 140])
def test_a_narrow_screen_folds_between_words_and_cuts_no_number(tmp_path: Path, width: int) -> None:
    shown = overview(results_of(tmp_path, made_up.both_kinds()))
    narrow = printed(shown, width).partition("\nspeed-up ")[0]
    assert max(map(len, narrow.splitlines())) <= width
    words = {word for word in printed(shown).partition("\nspeed-up ")[0].split() if "──" not in word}
    assert words <= set(narrow.split())


def test_a_screen_of_80_columns_shows_fewer_columns_and_says_so(tmp_path: Path) -> None:
    text = printed(overview(results_of(tmp_path, made_up.both_kinds())), 80)
    assert max(map(len, text.splitlines())) <= 80
    assert cells(text, "case  ") == ["case", "device", "time", "95 % interval", "items/s", "FLOP/s", "peak"]
    assert "not shown at this width: memory, copies; widen the terminal, or use --format csv" in " ".join(text.split())
    assert {"9.70…10.3", "400", "4.00"} <= set(text.split())


@pytest.mark.parametrize(("width", "marks"), [(300, ["min–max", "peak", "copies"]), (80, ["min–max", "peak"]), (40, [])])
def test_what_a_column_means_is_said_only_where_the_column_is_shown(tmp_path: Path, width: int, marks: list[str]) -> None:
    lines = printed(overview(results_of(tmp_path, made_up.both_kinds(rounds=3))), width).splitlines()
    assert [mark for line in lines if (mark := line.partition(": ")[0]) in ("min–max", "peak", "copies")] == marks


def test_two_files_are_told_apart(tmp_path: Path) -> None:
    cpu_run = [made_up.renamed(each, "Intel Xeon 8480", 56) for each in made_up.both_kinds() if each.case.device == "cpu"]
    gpu_run = [each for each in made_up.both_kinds() if each.case.device != "cpu"]
    results = results_of(tmp_path, cpu_run, gpu_run)
    text = by(results, "device")
    assert text.splitlines()[:3] == [
        "speed-up: training 50.0× (48.5…51.5)  resnet18 b64; 4 cases 40.0…100×",
        "  NVIDIA H200 (run1) runs training 50.0 × (48.5…51.5) as fast as the CPU.",
        "  The CPU is Intel Xeon 8480, 56 threads, run0.",
    ]
    assert "cpu (run0): Intel Xeon 8480, 56 threads" in text
    assert cells(text, "case")[:3] == ["case", "cpu (run0)", "cuda:0 (run1)"]


def test_by_precision_each_device_stands_on_its_own(tmp_path: Path) -> None:
    results = results_of(tmp_path, made_up.both_kinds())
    text = by(results, "dtype")
    assert cells(text, "case") == ["case", "device", "fp32", "bf16", "ratio", "95 % interval"]
    assert cells(text, "train_step resnet18 batch=8") == ["train_step resnet18 batch=8", "cpu", "400 ms", "400 ms", "1.00 ×", "0.970…1.03"]


def test_nothing_to_pair_is_said(tmp_path: Path) -> None:
    results = results_of(tmp_path, made_up.rounds_of(made_up.case(n=1), [[1.0]]))
    assert "No two ok rows differ in that column alone." in by(results, "device")


def test_a_table_can_be_shown_while_the_run_goes_on() -> None:
    measurements = made_up.rounds_of(made_up.case(n=1), [[1.0]])
    assert cells(printed(case_table.table([summarise(measurements)])), "train_step") == [
        "train_step n=1", "1.00 s", "1.00…1.00 s", "8.00", "1.00 G", "3.00 MiB",
    ]  # fmt: skip


def test_values_of_an_observation_are_notes(tmp_path: Path) -> None:
    observed = made_up.with_values(made_up.without_rounds(made_up.rounds_of(made_up.case(n=1), [[1.0]])[0]), accuracy=0.9312)
    results = results_of(tmp_path, [observed])
    assert detail_tables.value_notes(results.rows[0]) == ["accuracy 0.931"]
    assert cells(printed(overview(results)), "train_step")[-1] == "accuracy 0.931"


def test_a_series_of_an_observation_is_a_note_by_its_ends(tmp_path: Path) -> None:
    observed = made_up.with_values(made_up.without_rounds(made_up.rounds_of(made_up.case(n=1), [[1.0]])[0]), losses=[4.0, 3.0, 2.5])
    assert cells(printed(overview(results_of(tmp_path, [observed]))), "train_step")[-1] == "losses 4.00…2.50 (3 values)"


REFERENCES = front_door.ROOT / "results" / "reference" / "intel-xeon-processor"


def test_of_many_values_the_notes_have_few_and_say_once_how_many_seeds() -> None:
    text = printed(overview(collect([REFERENCES / "convergence.jsonl"])))
    assert cells(text, "convergence fp32 rate=0.02")[-1] == "accuracy 99.1…99.3 %, loss 0.0248…0.0283"
    assert text.count("over 6 seeds") == text.count("--details") == 1
    assert "notes: ranges over 6 seeds; all values of 35 cases: --details" in text
    assert "notes: ranges over 6 seeds\n" in printed(overview(collect([REFERENCES / "convergence.jsonl"]), details=True))


def test_the_errors_and_scales_of_a_product_are_in_details_alone() -> None:
    results = collect([REFERENCES / "precision.jsonl"])
    assert "scales left" not in printed(overview(results))
    assert "0.0321" in printed(overview(results, details=True))


def test_unpaired_rows_are_counted_and_named_by_reason(tmp_path: Path) -> None:
    pairs = match_rows(results_of(tmp_path, [each for each in made_up.both_kinds() if each.case.device == "cpu"][:14]), "device")
    assert sentences.unpaired(pairs.unpaired) == [
        "2 not paired, nothing to pair it with at another device: train_step[model=resnet18,batch=8,dtype=fp32]@cpu (run0), "
        "train_step[model=resnet18,batch=8,dtype=bf16]@cpu (run0)"
    ]


def test_of_many_unpaired_rows_the_first_are_named_and_the_others_counted(tmp_path: Path) -> None:
    found = [each for n in range(1, 8) for each in made_up.rounds_of(made_up.case("matmul", n=n), [[1.0]])]
    (line,) = sentences.unpaired(match_rows(results_of(tmp_path, found), "device").unpaired)
    assert line.startswith("7 not paired, nothing to pair it with at another device: matmul[n=1]@cpu (run0), ")
    assert line.endswith(", matmul[n=4]@cpu (run0) and 3 more")


def test_an_implausible_row_says_why_below_its_case_and_stands_in_no_ratio(tmp_path: Path) -> None:
    measurements = [
        *made_up.rounds_of(made_up.case("matmul", n=8, dtype="fp32"), made_up.flat(made_up.SEVEN)),
        *made_up.rounds_of(made_up.case("matmul", "cuda:0", n=8, dtype="fp32"), made_up.flat(made_up.SEVEN), flops=670e12),
    ]
    results = results_of(tmp_path, measurements)
    text = printed(overview(results))
    assert text.splitlines()[0] == "2 cases: 2 ok; 7 rounds."
    assert "it reaches 10.0 times the published peak of arithmetic (67.0 TFLOP/s, dense fp32 on the ordinary cores of NVIDIA H200);" in text
    assert "implausible: it can't have done what it says in that time, so no ratio counts it; the reason is below the case" in text
    (unpaired, alone) = match_rows(results, "device").unpaired
    assert unpaired.reason.startswith("implausible: it reaches 10.0 times")
    assert alone.case == "matmul[n=8,dtype=fp32]@cpu"
    assert not best(results).rows


def test_a_share_of_memory_says_so(tmp_path: Path) -> None:
    a_case = made_up.case("stream", "cuda:0", bytes=1)
    text = printed(overview(results_of(tmp_path, made_up.rounds_of(a_case, made_up.flat(made_up.SEVEN), flops=None, bytes=1.2e12))))
    assert "25.0 % of memory" in text
    assert "memory: 4.80 TB/s, the bandwidth of NVIDIA H200" in text


def launch_bound(*shares: float, cache: str = "hot") -> list[Measurement]:
    """Products on both devices, ten times as fast on the accelerator, which works in a share of that time only."""
    found: list[Measurement] = []
    for number, share in enumerate(shares):
        params = {"n": number + 1, "dtype": "fp32", **({"cache": cache} if cache != "hot" else {})}
        found += made_up.rounds_of(made_up.case("matmul", **params), made_up.flat([1.0] * 7))
        on_gpu = made_up.rounds_of(made_up.case("matmul", "cuda:0", **params), made_up.flat([0.1 / (number + 1)] * 7))
        found += [made_up.timed_on_device(each, share) for each in on_gpu]
    return found


def test_a_device_that_waits_for_launches_is_marked_and_told_in_the_answer(tmp_path: Path) -> None:
    results = results_of(tmp_path, launch_bound(0.5, 0.66, 0.68))
    assert list(speedup.answer(results).sentences) == [
        "NVIDIA H200 runs matmul 20.0 × (20.0…20.0) as fast as the CPU.",
        "The CPU is AMD EPYC 7B13, 2 threads.",
        "The case is matmul n=2 fp32, the middle of 3 cases from 10.0 × to 30.0 ×.",
        "There it waits for launches, as in 2 of 3 cases.",
        "Each at its best batch, precision, layout and mode: matmul n=2 20.0 × (20.0…20.0).",
    ]
    text = printed(overview(results))
    marks = [line.split()[-1] for line in text.splitlines() if line.strip().startswith("matmul") and "cuda:0" in line]
    assert [mark == "launch-bound" for mark in marks] == [True, True, False]
    assert (
        "launch-bound: the device waits for Python and its launches, a third of the time or more; "
        "a larger batch, compiling or CUDA graphs would help\n"
    ) in text


def test_one_case_that_waits_for_launches_is_not_counted(tmp_path: Path) -> None:
    assert "There it waits for launches." in speedup.answer(results_of(tmp_path, launch_bound(0.5))).sentences


@pytest.mark.parametrize(
    "measurements",
    [
        pytest.param(launch_bound(0.9, 0.9, 0.5), id="not in the middle"),
        pytest.param(launch_bound(0.5, cache="cold"), id="a cold call is timed alone"),
        pytest.param(made_up.both_kinds(), id="no device time"),
    ],
)
def test_the_answer_blames_launches_only_where_they_are_to_blame(tmp_path: Path, measurements: list[Measurement]) -> None:
    assert "launches" not in " ".join(speedup.answer(results_of(tmp_path, measurements)).sentences)


def test_the_choice_of_a_side_names_a_layout_but_the_usual_one() -> None:
    usual = [{"batch": 8, "dtype": "fp32"}, {"batch": 8, "dtype": "fp32", "layout": "nchw"}]
    rows = [planned_row(made_up.case(**params)) for params in (*usual, {"batch": 64, "dtype": "bf16", "layout": "channels_last"})]
    assert list(map(names.choice, rows)) == ["batch=8 fp32", "batch=8 fp32", "batch=64 bf16 channels_last"]


def test_pairs_of_cold_and_hot_calls_say_which_time_it_is(tmp_path: Path) -> None:
    runs = [
        made_up.timed_on_device(each, 0.5) if device == "cuda:0" else each
        for device in ("cpu", "cuda:0")
        for cache, seconds in (("hot", 1.0), ("cold", 2.0))
        for each in made_up.rounds_of(made_up.case("matmul", device, n=256, cache=cache), made_up.flat([seconds] * 7))
    ]
    results = results_of(tmp_path, runs)
    text = by(results, "cache")
    assert cells(text, "case ") == ["case", "device", "which time", "cold", "hot", "ratio", "95 % interval"]
    assert cells(text, "matmul n=256  cpu") == ["matmul n=256", "cpu", "wall", "2.00 s", "1.00 s", "2.00 ×", "2.00…2.00"]
    assert cells(text, "matmul n=256  cuda") == ["matmul n=256", "cuda:0", "device", "1.00 s", "500 ms", "2.00 ×", "2.00…2.00"]
    assert "device: by the device's own events; the wall time of a cold call" in text
    assert "which time" not in by(results, "device")


def test_many_reasons_of_flags_are_told_by_the_most_common_ones():
    def flagged(*reasons):
        return [Row(Identity(), {}, flag=Flags(reason=reason)) for reason in reasons]

    assert sentences.reasons(flagged("a", None, "b", "b", "c", "d")) == ["1 case: a", "2 cases: b", "1 case: c", "1 case: d"]
    assert sentences.reasons(flagged("a", "b", "c", "c", "d", "e")) == [
        "2 cases: c",
        "1 case: a",
        "1 case: b",
        "2 cases more, each with a reason of its own: flag.reason of --format json",
    ]


def test_what_all_cases_share_is_said_once_and_a_wide_interval_is_noisy(tmp_path: Path) -> None:
    wide, narrow = (made_up.flat([1.0, 1.0 + spread, 1.0, 1.0 + spread, 1.0, 1.0 + spread, 1.0]) for spread in (0.5, 0.01))
    kinds = {"both wide": (wide, wide), "one wide": (wide, narrow), "none": (narrow, narrow)}
    for at, (kind, times) in enumerate(kinds.items()):
        cases = [each for n, rounds in enumerate(times) for each in made_up.rounds_of(made_up.case("matmul", n=n), rounds)]
        (tmp_path / str(at)).mkdir()
        text = printed(overview(results_of(tmp_path / str(at), cases)))
        explained = "the interval is wider than 20 % of the median, or spans no difference; add rounds"
        said = {"both wide": f"noisy (all cases): {explained}", "one wide": f"noisy: {explained}"}.get(kind, "")
        assert [line for line in text.splitlines() if line.startswith("noisy")] == [said] * bool(said)
        assert [cells(text, f"matmul n={n}")[-1] == "noisy" for n in (0, 1)] == [kind == "one wide", False]


def test_trouble_has_room_first_and_then_each_workload_in_turn(tmp_path: Path) -> None:
    cases = [made_up.case(workload, n=n) for workload in ("matmul", "conv2d") for n in range(3)]
    measured = [made_up.rounds_of(case, [[1.0]])[0] for case in cases[:-1]]
    rows = results_of(tmp_path, [*measured, made_up.ended(cases[-1], Status.FAILED, "it broke")]).rows
    order = ["conv2d n=2", "conv2d n=0", "matmul n=0", "conv2d n=1", "matmul n=1", "matmul n=2"]
    assert [wording.short(row.key) for row in case_table.by_importance(case_table.ordered(rows))] == order


@pytest.mark.parametrize("width", [14, 30, 44])
def test_notes_break_neither_in_a_word_nor_between_a_number_and_its_unit(width: int) -> None:
    words = "it took 161 ms and 21.0 % in /a/long/path-with-hyphens/that-no-line/holds of resnet18 fp32"
    lines = [line.rstrip() for line in printed(Note(words), width).splitlines()]
    assert " ".join(lines) == words
    assert all(len(line) <= width for line in lines if "/" not in line)
    assert not {"161", "21.0"} & {line.split()[-1] for line in lines}


def test_a_spread_of_hours_and_minutes_has_both_ends_in_full(tmp_path: Path) -> None:
    results = results_of(tmp_path, made_up.rounds_of(made_up.case("slow", n=1), [[7300.0], [9000.0]]))
    assert sentences.spread(results.rows[0]) == ("min–max", "2 h 2 min…2 h 30 min")
