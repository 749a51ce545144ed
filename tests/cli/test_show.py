import csv
import io
import json
import shlex
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import made_up
import pytest
from click.testing import CliRunner, Result

from dlbench.analysis.answers import topics
from dlbench.cli.main import dlbench
from dlbench.core.conditions import RoundState, Throttling
from dlbench.core.errors import UsageError

ROOT = Path(__file__).parents[2]
Snapshot = Callable[[str, str], None]


def show(*arguments: str | Path) -> Result:
    return CliRunner().invoke(dlbench, ["show", *map(str, arguments)])


@pytest.fixture
def run_file(tmp_path: Path) -> Path:
    return made_up.write(tmp_path / "run.jsonl", made_up.both_kinds())


TOPICS = topics()
KNOWN = ", ".join((*TOPICS, "all", "claims", "card", "details"))


def test_answers_are_reasons_without_cases_and_a_topic_is_one_with_its_tables(run_file: Path) -> None:
    every, one = (show(run_file, *which).stdout for which in (["--topic", "all"], ["--topic", "precision"]))
    starts = [topic for line in every.splitlines() if (topic := line.partition(":")[0]) in TOPICS]
    assert starts == TOPICS
    assert "measure it with: dlbench run scaling" in every
    assert "8 cases, 7 rounds" not in every + one
    assert [line.partition(":")[0] for line in one.splitlines() if line.partition(":")[0] in TOPICS] == ["precision"]
    assert "train_step resnet18 batch=8" in one
    assert [
        each["question"]["topic"] for each in json.loads(show(run_file, "--topic", "precision", "--format", "json").stdout)["answers"]
    ] == ["precision"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--topic", "convergence"], f"there is no topic 'convergence'; its answer is 'precision'; the topics are {KNOWN}"),
        (["--topic", "precison"], f"there is no topic 'precison'; did you mean 'precision'?; the topics are {KNOWN}"),
        (["--topic", "zzz"], f"there is no topic 'zzz'; the topics are {KNOWN}"),
        (["--topic", "cost", "--by", "dtype"], "--topic and --by show something else each; give one of them"),
        (["--topic", "cost", "--format", "csv"], "--topic cost can't be written as csv; give --format table or md or json"),
    ],
)
def test_a_topic_is_one_of_ten_and_stands_alone(run_file: Path, arguments: list[str], told: str) -> None:
    result = show(run_file, *arguments)
    assert isinstance(result.exception, UsageError)
    assert str(result.exception) == told


def test_off_a_terminal_nothing_is_folded_or_cut(tmp_path: Path) -> None:
    reason = "a sentence that goes on and on " * 20
    case = made_up.case("conv2d", **{f"parameter_{number}": number for number in range(30)})
    result = show(made_up.write(tmp_path / "run.jsonl", [made_up.ended(case, made_up.Status.FAILED, reason)]))
    assert reason.strip() in result.stdout
    assert " ".join(f"parameter_{number}={number}" for number in range(30)) in result.stdout


def test_what_was_in_the_way_is_marked_counted_and_said_below_the_table(tmp_path: Path, snapshot: Snapshot) -> None:
    hot, cool = made_up.case("matmul", n=8), made_up.case("matmul", n=16)
    times = made_up.flat(made_up.SEVEN)
    measurements = [
        *made_up.rounds_of(hot, times, throttling=Throttling(thermal=0.25, tries=3)),
        *made_up.rounds_of(cool, times, throttling=Throttling(thermal=0.0)),
    ]
    states = [RoundState(number, 9.0, 1.0 if number == 3 else 0.0, 0.0, {"cpu": {"governor": "powersave"}}, {}) for number in range(7)]
    path = made_up.write(tmp_path / "run.jsonl", measurements, states=states, discarded=measurements[:2])
    snapshot("show-in-the-way", show(path).stdout)
    rows = json.loads(show(path, "--format", "json").stdout)
    flagged = [(row["flag.throttled"], row["flag.power_capped"], row["flag.disturbed"], row["time.rounds"]) for row in rows]
    assert flagged == [(True, None, True, 7), (False, None, True, 7)]


def test_what_lost_cpu_time_is_marked_and_what_was_made_again_is_counted(tmp_path: Path, snapshot: Snapshot) -> None:
    lost, kept = made_up.case("matmul", n=8), made_up.case("matmul", n=16)
    times = made_up.flat(made_up.SEVEN)
    shares = (0.0, 0.25, 0.0, 0.5, 0.0, 0.0, 0.0)
    measurements = [
        replace(each, throttling=Throttling(waiting=share, stolen=0.0, tries=3 if share else 1))
        for each, share in zip(made_up.rounds_of(lost, times), shares, strict=True)
    ] + made_up.rounds_of(kept, times, throttling=Throttling(waiting=0.0, tries=2))
    hot, partner = (replace(measurements[-1], throttling=each) for each in (Throttling(thermal=0.5), Throttling(waiting=0.0)))
    path = made_up.write(tmp_path / "run.jsonl", measurements, discarded=[measurements[1], measurements[3], hot, partner])
    snapshot("show-measured-again", show(path).stdout)
    rows = json.loads(show(path, "--format", "json").stdout)
    assert [(row["flag.disturbed"], row["flag.throttled"], row["time.lost_share"]) for row in rows] == [
        (True, None, 0.5),
        (False, None, 0.0),
    ]


def test_json(run_file: Path) -> None:
    rows = json.loads(show(run_file, "--format", "json").stdout)
    assert [row["case.device"] for row in rows[:2]] == ["cpu", "cuda:0"]
    assert rows[0]["transfer.h2d_s"] is None
    assert rows[0]["transfer.reason"] == made_up.NO_COPY


def test_csv_and_markdown(run_file: Path) -> None:
    assert len(list(csv.DictReader(io.StringIO(show(run_file, "--format", "csv").stdout)))) == 8
    assert len(show(run_file, "--format", "md").stdout.splitlines()) == 10


@pytest.mark.parametrize("to", ["json", "csv", "md"])
def test_pairs_as_data(run_file: Path, to: str) -> None:
    out = show(run_file, "--by", "device", "--format", to).stdout
    assert "ratio.speedup" in out
    assert "base.device_name" in out


def test_two_files_by_device(tmp_path: Path) -> None:
    cpu = made_up.write(
        tmp_path / "cpu.jsonl", [made_up.renamed(each, "Intel Xeon 8480", 56) for each in made_up.both_kinds() if each.case.device == "cpu"]
    )
    gpu = made_up.write(tmp_path / "gpu.jsonl", made_up.both_kinds(cpu_s=0.8))
    pairs = json.loads(show(cpu, gpu, "--by", "device", "--format", "json").stdout)
    first = [pair for pair in pairs if pair["pair.case"] == "train_step[model=resnet18,batch=8,dtype=fp32]"]
    assert [(pair["base.device_name"], pair["base.run"], round(pair["ratio.speedup"], 6)) for pair in first] == [
        ("Intel Xeon 8480", "cpu", 40.0),
        (made_up.CPU, "gpu", 80.0),
    ]
    table = show(cpu, gpu, "--by", "device").stdout
    assert "Each side at its own best batch, precision, layout and mode" in table
    assert "95 % interval" in table


def test_notes_on_what_a_file_lacks_go_to_stderr_and_the_exit_code_is_0(tmp_path: Path) -> None:
    path = made_up.write(tmp_path / "run.jsonl", made_up.both_kinds(), planned=10, finished=False)
    with path.open("a") as file:
        file.write('{"kind": "meas')
    result = show(path, "--format", "json")
    assert result.exit_code == 0
    assert len(json.loads(result.stdout)) == 8
    torn, interrupted = result.stderr.splitlines()
    assert torn.startswith(f"note: {path}: the last line was cut")
    assert interrupted.endswith(f"at 8 of 10 planned cases; continue it with: dlbench run --resume {shlex.quote(str(path))}")


def test_an_unknown_column_is_a_usage_error_with_the_nearest(run_file: Path) -> None:
    result = show(run_file, "--by", "devise")
    assert isinstance(result.exception, UsageError)
    assert "did you mean 'device'?" in str(result.exception)


def test_what_commands_import(run_file: Path) -> None:
    """One process calls one after the other, and says what was imported by then."""
    commands = (
        ["--help"],
        ["show", "--help"],
        ["list"],
        ["show", run_file],
        ["compare", run_file, "--by", "dtype"],
        ["export", run_file, "--to", "csv"],
    )
    code = "import sys; from dlbench.cli.main import dlbench\n" + "".join(
        f"dlbench({[*map(str, each)]}, standalone_mode=False); print(*sys.modules, file=sys.stderr)\n" for each in commands
    )
    ended = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    lines = [set(line.split()) for line in ended.stderr.splitlines() if "dlbench.cli.main" in line]
    heavy = [{"pandas", "numpy", "rich", "torch"} & each for each in lines]
    assert heavy[:4] == [set(), set(), {"rich"}, {"rich"}]
    assert [each for each in heavy if "torch" in each] == []
    assert len(lines) == len(commands)


@pytest.mark.parametrize("name", ["test_sum", "test_sum[a-b]", "test_sum[a[0]]", "sum]", "sum[n=3]s", "pkg.sum[n=3]", "[1]*1000"])
def test_a_name_that_another_tool_gave_is_left_as_it_is(tmp_path: Path, name: str) -> None:
    runs = [{"values": [seconds]} for seconds in made_up.SEVEN]
    content = {"version": "1.0", "benchmarks": [{"metadata": {"name": name}, "runs": runs}]}
    for side in ("a", "b"):
        (tmp_path / f"{side}.json").write_text(json.dumps(content))
    files = (tmp_path / "a.json", tmp_path / "b.json")
    (pair,) = json.loads(show(*files, "--by", "run", "--format", "json").stdout)
    assert (pair["pair.case"], pair["pair.work"]) == (name, name)
    for table in (show(files[0]).stdout, show(*files, "--by", "run").stdout):
        assert [line for line in table.splitlines() if line.split("  ")[0].strip() == name]
