"""``dlbench show``: its answers, a card to paste, and prices."""

import csv
import io
import json
import lzma
import shlex
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import front_door
import made_up
import pytest

from dlbench.analysis.answers import answers, topics
from dlbench.analysis.answers.engine.question import Answer
from dlbench.analysis.export.answers_export import card
from dlbench.analysis.read.table import collect
from dlbench.core.conditions import RoundState, Throttling
from dlbench.core.model import Status
from dlbench.core.reference import peaks

Snapshot = Callable[[str, str], None]


def show(*arguments: str | Path) -> front_door.Done:
    return front_door.in_process(Path.cwd(), "show", *map(str, arguments))


@pytest.fixture
def run_file(tmp_path: Path) -> Path:
    return made_up.write(tmp_path / "run.jsonl", made_up.both_kinds())


TOPICS = topics()


def test_answers_are_reasons_without_cases_and_a_topic_is_one_with_its_tables(run_file: Path) -> None:
    every, one = (show(run_file, "--topic", topic).out for topic in ("all", "precision"))
    starts, alone = ([line.partition(":")[0] for line in text.splitlines() if line.partition(":")[0] in TOPICS] for text in (every, one))
    assert (starts, alone) == (TOPICS, ["precision"])
    assert "measure it with: dlbench run scaling" in every
    assert "8 cases, 7 rounds" not in every + one
    assert "train_step resnet18 batch=8" in one
    (answer,) = json.loads(show(run_file, "--topic", "precision", "--format", "json").out)["answers"]
    assert answer["question"]["topic"] == "precision"


def test_what_makes_no_sense_is_one_sentence(run_file: Path) -> None:
    known = f"the topics are {', '.join((*TOPICS, 'all', 'claims', 'card', 'details'))}"
    for options, sentence in (
        ("--topic convergence", f"there is no topic 'convergence'; its answer is 'precision'; {known}"),
        ("--topic precison", f"there is no topic 'precison'; did you mean 'precision'?; {known}"),
        ("--topic zzz", f"there is no topic 'zzz'; {known}"),
        ("--topic cost --by dtype", "--topic and --by show something else each; give one of them"),
        ("--topic cost --format csv", "--topic cost can't be written as csv; give --format table or md or json"),
    ):
        assert show(run_file, *options.split()) == front_door.Done(2, "", f"dlbench: {sentence}\n")
    unknown = show(run_file, "--by", "devise")
    assert (unknown.code, "did you mean 'device'?" in unknown.err) == (2, True)


def test_off_a_terminal_nothing_is_folded_or_cut(tmp_path: Path) -> None:
    reason = "a sentence that goes on and on " * 20
    case = made_up.case("conv2d", **{f"parameter_{number}": number for number in range(30)})
    shown = show(made_up.write(tmp_path / "run.jsonl", [made_up.ended(case, made_up.Status.FAILED, reason)])).out
    assert reason.strip() in shown
    assert " ".join(f"parameter_{number}={number}" for number in range(30)) in shown


def test_what_was_in_the_way_is_marked_counted_and_said_below_the_table(tmp_path: Path, snapshot: Snapshot) -> None:
    times = made_up.flat(made_up.SEVEN)
    hot = made_up.rounds_of(made_up.case("matmul", n=8), times, throttling=Throttling(thermal=0.25, tries=3))
    cool = made_up.rounds_of(made_up.case("matmul", n=16), times, throttling=Throttling(thermal=0.0))
    states = [RoundState(number, 9.0, 1.0 if number == 3 else 0.0, 0.0, {"cpu": {"governor": "powersave"}}, {}) for number in range(7)]
    path = made_up.write(tmp_path / "run.jsonl", [*hot, *cool], states=states, discarded=hot[:2])
    snapshot("show-in-the-way", show(path).out)
    rows = json.loads(show(path, "--format", "json").out)
    flagged = [(row["flag.throttled"], row["flag.power_capped"], row["flag.disturbed"], row["time.rounds"]) for row in rows]
    assert flagged == [(True, None, True, 7), (False, None, True, 7)]


def test_what_lost_cpu_time_is_marked_and_what_was_made_again_is_counted(tmp_path: Path, snapshot: Snapshot) -> None:
    lost, kept = (made_up.rounds_of(made_up.case("matmul", n=n), made_up.flat(made_up.SEVEN)) for n in (8, 16))
    shares = {1: 0.25, 3: 0.5}
    by_round = [Throttling(waiting=shares.get(number, 0.0), stolen=0.0, tries=3 if number in shares else 1) for number in range(7)]
    measurements = [replace(each, throttling=by_round[each.round]) for each in lost]
    measurements += [replace(each, throttling=Throttling(waiting=0.0, tries=2)) for each in kept]
    hot, partner = (replace(measurements[-1], throttling=each) for each in (Throttling(thermal=0.5), Throttling(waiting=0.0)))
    path = made_up.write(tmp_path / "run.jsonl", measurements, discarded=[measurements[1], measurements[3], hot, partner])
    snapshot("show-measured-again", show(path).out)
    rows = json.loads(show(path, "--format", "json").out)
    found = [(row["flag.disturbed"], row["flag.throttled"], row["time.lost_share"]) for row in rows]
    assert found == [(True, None, 0.5), (False, None, 0.0)]


def test_formats_for_machines(run_file: Path) -> None:
    rows = json.loads(show(run_file, "--format", "json").out)
    assert [row["case.device"] for row in rows[:2]] == ["cpu", "cuda:0"]
    assert (rows[0]["transfer.h2d_s"], rows[0]["transfer.reason"]) == (None, made_up.NO_COPY)
    assert len(list(csv.DictReader(io.StringIO(show(run_file, "--format", "csv").out)))) == 8
    assert len(show(run_file, "--format", "md").out.splitlines()) == 10
    for to in ("json", "csv", "md"):
        pairs = show(run_file, "--by", "device", "--format", to).out
        assert ("ratio.speedup" in pairs, "base.device_name" in pairs) == (True, True)


def test_two_files_by_device(tmp_path: Path) -> None:
    xeon = [made_up.renamed(each, "Intel Xeon 8480", 56) for each in made_up.both_kinds() if each.case.device == "cpu"]
    files = made_up.write(tmp_path / "cpu.jsonl", xeon), made_up.write(tmp_path / "gpu.jsonl", made_up.both_kinds(cpu_s=0.8))
    pairs = json.loads(show(*files, "--by", "device", "--format", "json").out)
    first = [pair for pair in pairs if pair["pair.case"] == "train_step[model=resnet18,batch=8,dtype=fp32]"]
    assert [(pair["base.device_name"], pair["base.run"], round(pair["ratio.speedup"], 6)) for pair in first] == [
        ("Intel Xeon 8480", "cpu", 40.0),
        (made_up.CPU, "gpu", 80.0),
    ]
    table = show(*files, "--by", "device").out
    assert "Each side at its own best batch, precision, layout and mode" in table
    assert "95 % interval" in table


def test_notes_on_what_a_file_lacks_go_to_stderr_and_the_exit_code_is_0(tmp_path: Path) -> None:
    path = made_up.write(tmp_path / "run.jsonl", made_up.both_kinds(), planned=10, finished=False)
    with path.open("a") as file:
        file.write('{"kind": "meas')
    done = show(path, "--format", "json")
    assert (done.code, len(json.loads(done.out))) == (0, 8)
    torn, interrupted = done.err.splitlines()
    assert torn.startswith(f"note: {path}: the last line was cut")
    assert interrupted.endswith(f"at 8 of 10 planned cases; continue it with: dlbench run --resume {shlex.quote(str(path))}")


@pytest.mark.real
def test_what_commands_import(run_file: Path) -> None:
    """One process calls one after the other, and says what was imported by then."""
    commands = ("--help", "show --help", "list", f"show {run_file}", f"compare {run_file} --by dtype", f"export {run_file} --to csv")
    code = "import sys; from dlbench.cli.main import dlbench\n" + "".join(
        f"dlbench({each.split()}, standalone_mode=False); print(*sys.modules, file=sys.stderr)\n" for each in commands
    )
    ended = subprocess.run([sys.executable, "-c", code], cwd=front_door.ROOT, capture_output=True, text=True, check=True)
    lines = [set(line.split()) for line in ended.stderr.splitlines() if "dlbench.cli.main" in line]
    heavy = [{"pandas", "numpy", "rich", "torch"} & each for each in lines]
    assert heavy[:4] == [set(), set(), {"rich"}, {"rich"}]
    assert ([each for each in heavy if "torch" in each], len(lines)) == ([], len(commands))


@pytest.mark.parametrize("name", ["test_sum", "test_sum[a-b]", "test_sum[a[0]]", "sum]", "sum[n=3]s", "pkg.sum[n=3]", "[1]*1000"])
def test_a_name_that_another_tool_gave_is_left_as_it_is(tmp_path: Path, name: str) -> None:
    content = {"version": "1.0", "benchmarks": [{"metadata": {"name": name}, "runs": [{"values": [each]} for each in made_up.SEVEN]}]}
    files = (tmp_path / "a.json", tmp_path / "b.json")
    for file in files:
        file.write_text(json.dumps(content))
    (pair,) = json.loads(show(*files, "--by", "run", "--format", "json").out)
    assert (pair["pair.case"], pair["pair.work"]) == (name, name)
    for table in (show(files[0]).out, show(*files, "--by", "run").out):
        assert [line for line in table.splitlines() if line.split("  ")[0].strip() == name]


ENTRY = """
[[device]]
names = ["NVIDIA B300"]
flops = { fp8 = 242e12 }
matrix = ["fp8"]
bandwidth = 1e12
last_cache = 1048576
"""
NO_SOURCE = "entry 1: it has no source; the head of the file says what that is"
NO_ENTRY = "NVIDIA B300 is not in dlbench's table of published peaks; add it with its source to dlbench/core/reference/peaks.toml"


@pytest.mark.parametrize(
    ("entry", "device", "dtype", "share", "peak", "reason"),
    [
        (None, "NVIDIA L4", "int8", "0.5", "arithmetic: 242 TOP/s, dense int8 on the matrix units of NVIDIA L4", ""),
        (None, "NVIDIA B300", "int8", "", "", NO_ENTRY),
        (ENTRY, "NVIDIA B300", "fp8", None, None, f"dlbench: dlbench/core/reference/peaks.toml, {NO_SOURCE}\n"),
        (f'{ENTRY}source = "a datasheet"', "NVIDIA B300", "fp8", "0.5",
         "arithmetic: 242 TFLOP/s, dense fp8 on the matrix units of NVIDIA B300", ""),
    ],
    ids=["eight bits", "without an entry", "an entry without a source", "an entry of one's own"],
)  # fmt: skip
def test_a_card_has_its_share_of_a_published_peak_or_says_what_to_add(
    request, tmp_path, monkeypatch, entry, device, dtype, share, peak, reason
):
    if entry:
        (tmp_path / "peaks.toml").write_text(entry)
        monkeypatch.setattr(peaks, "_TABLE", tmp_path / "peaks.toml")
        for cached in (peaks.peak_of, peaks._table):
            cached.cache_clear()
            request.addfinalizer(cached.cache_clear)
    case = made_up.case("matmul", "cuda:0", n=8, dtype=dtype)
    rounds = made_up.rounds_of(case, made_up.flat([1.0] * 7), device_name=device, flops=121e12)
    done = show(made_up.write(tmp_path / "run.jsonl", rounds), "--format", "csv")
    if share is None:
        assert done == front_door.Done(2, "", reason)
    else:
        (row,) = csv.DictReader(io.StringIO(done.out))
        assert (row["rate.peak_fraction"], row["rate.peak"], row["rate.reason"]) == (share, peak, reason)


@pytest.mark.parametrize("packed", sorted((front_door.FILES / "small").glob("*.jsonl.xz")), ids=lambda path: path.name.partition(".")[0])
def test_small_files_of_all_suites(tmp_path: Path, packed: Path, snapshot: Snapshot) -> None:
    """As people see them: cases, ten lines, all tables, and reasons."""
    name = packed.name.removesuffix(".xz")
    (tmp_path / name).write_bytes(lzma.decompress(packed.read_bytes()))
    shown = [front_door.in_process(tmp_path, "show", name, *more, columns=120) for more in ((), ("--topic", "details"), ("--topic", "all"))]
    snapshot(f"small-{packed.name.partition('.')[0]}", "\n\n".join(f"{done.out}{done.err}".rstrip() for done in shown) + "\n")


REFERENCES = sorted((front_door.ROOT / "results" / "reference").glob("*/*.jsonl"))
COMMAND = [["run", "/home/somebody/my suites/mine.toml"], ["/home/somebody/net.py"], ["--set", "path=/home/somebody/d"]]
ENVIRONMENT = {
    "stack": {"versions": {"torch": "2.13.0+cu130"}},
    "provenance": {"dlbench": "0.2.0", "utc": "2026-11-21T15:40:55+00:00", "command": [*COMMAND, ["--rounds", "7"]]},
}


TWO_KINDS = made_up.both_kinds()
ON_CPU = [each for each in TWO_KINDS if each.case.device == "cpu"]
CARDS = {
    "a run": ([TWO_KINDS], ()),
    "a run and a price": ([TWO_KINDS], ("--price", "cuda=2/h")),
    "several machines": ([[made_up.renamed(each, f"CPU {number}", 2) for each in ON_CPU] for number in range(4)], ()),
    "a run that is not usable": ([[replace(each, throttling=Throttling(thermal=0.5)) for each in TWO_KINDS]], ()),
    "nothing that went well": ([[made_up.ended(made_up.case("matmul", n=n), Status.FAILED, "no") for n in (8, 16)]], ()),
}


@pytest.mark.usefixtures("earlier_files")
def test_a_card_of_each_kind(tmp_path, snapshot):
    texts = {}
    for what, (files, options) in CARDS.items():
        names = [f"run{number}.jsonl" for number in range(len(files))]
        for name, measured in zip(names, files, strict=True):
            made_up.write(tmp_path / what / name, measured, environment=ENVIRONMENT)
        done = front_door.in_process(tmp_path / what, "show", *names, "--topic", "card", *options)
        texts[f"{what}, exit {done.code}"] = done.out + done.err
    snapshot("cards", front_door.under_titles(texts))


@pytest.mark.parametrize("path", REFERENCES, ids=lambda path: path.stem)
def test_each_committed_reference_has_the_lines_of_its_answers(path):
    results = collect([path])
    lines = [line for line in card(results).splitlines() if line.startswith("- ")]
    found = [each for each in answers(results) if isinstance(each, Answer)]
    labels = dict.fromkeys(each.label or each.question.topic for each in found if each.lines)
    assert list(dict.fromkeys(line[2:].partition(": ")[0] for line in lines)) == [*labels]
    assert not [line for line in lines if "/home/" in line or "results/" in line]


def test_names_are_text_and_no_markup_and_never_too_long(tmp_path):
    name = "<b>a|b\x1b[2J*" + "`x|" * 20
    measured = [replace(each, device_name=name) for each in TWO_KINDS]
    command = [["run", "quick"], ["-k", "`" * 5 + "x" * 2000]]
    made_up.write(tmp_path / "run.jsonl", measured, environment={"provenance": {"dlbench": "0.2.0", "command": command}})
    text = front_door.in_process(tmp_path, "show", "run.jsonl", "--topic", "card").out
    assert len(text) < 3000
    assert not {"<", "\x1b"} & set(text)
    assert "a\\|b[2J\\*" in text


@pytest.fixture
def priced(tmp_path):
    """The command on a file of training steps, with what it says beside the file and its options."""
    made_up.write(tmp_path / "run.jsonl", made_up.both_kinds())

    def call(*options, defaults="", command="show"):
        (tmp_path / "dlbench.toml").write_text(defaults)
        return front_door.in_process(tmp_path, command, "run.jsonl", *options)

    return call


REFUSED = (
    "-3/h | nan | 2,50 | ٣ | cuda= | =2 | cuda:=2 | cuda=2/d | cuda=9/4y | EUR2EUR | \x1b[31m2 | 1/0y/8h | 1/4y/24.5h | kwh=1/h | "
    f"{'9' * 300} | 1/h --price 2/h | cpu=1 --price cpu=2 | kwh=1 --price KWH=2 | cpu=1EUR --price cuda=2USD | xpu=2/h | cuda:3=2"
).split(" | ")
"""Prices that make no sense."""


def test_prices_that_make_no_sense_are_one_sentence(priced, tmp_path, snapshot):
    said = {}
    for options in (*(f"--price {each}" for each in REFUSED), "--samples 0", "--epochs 4"):
        done, page = (priced(*options.split(" "), command=command) for command in ("show", "report"))
        assert (done.code, done.out, page.code, page.out) == (2, "", 2, "")
        assert done.err.replace("dlbench show", "dlbench report") == page.err
        said[options.replace("\x1b", "ESC")] = done.err.splitlines()[-1]
    for options in ("--by dtype", "--format csv", "--topic batch"):  # a default rests where no answer on cost is shown
        assert priced(*options.split(), defaults="[show]\nprice = 1\n").code == 0
        said[f"{options} --price 1"] = priced(*options.split(), "--price", "1").err
    for line in ("price = -1", "price = ['cuda=']", "samples = 3"):
        said[f"dlbench.toml: [show] {line}"] = priced(defaults=f"[show]\n{line}\n").err
    absent = made_up.ended(made_up.case("matmul", device="accelerator", n=8), Status.SKIPPED, "this machine has no accelerator; it has cpu")
    on_cpu = [each for each in made_up.both_kinds() if each.case.device == "cpu"]
    made_up.write(tmp_path / "absent.jsonl", [*on_cpu, absent])
    (tmp_path / "dlbench.toml").unlink()
    said["a device that was absent"] = front_door.in_process(tmp_path, "show", "absent.jsonl", "--price", "cuda=2.50/h").err
    assert "\x1b" not in "".join(said.values())
    assert not list(tmp_path.glob("*.html"))
    snapshot("prices-refused", front_door.under_titles(said))


def money(done):
    assert done.code == 0, done.err
    tables = json.loads(done.out)["answers"][0]["tables"]
    return {row["place"]: row["cost.per_hour"] for each in tables for row in each["rows"] if "cost.per_hour" in row}


def test_defaults_hold_where_the_command_line_says_nothing_and_may_name_devices_of_other_machines(priced):
    defaults = '[show]\nprice = ["cuda=2.5/h", "cpu=0.125EUR/h", "xpu=7/h"]\n'
    document = ("--topic", "cost", "--format", "json")
    done = priced(*document, defaults=defaults)
    assert money(done) == {"cuda:0": 2.5, "cpu": 0.125}
    assert "note: --price xpu=: no row of these files is of xpu; they have cpu, cuda:0" in " ".join(done.err.split())
    assert money(priced(*document, "--price", "3/h", defaults=defaults)) == {"cuda:0": 3, "cpu": 3}
    assert money(priced(*document, defaults="[show]\nprice = '4/h'\n")) == {"cuda:0": 4, "cpu": 4}


def test_a_currency_is_text_on_the_page_and_no_markup_of_the_terminal(priced, tmp_path):
    done = priced("--price", "2<b>&x/h", command="report")
    assert done.code == 0, done.err
    page = (tmp_path / "run.html").read_text()
    assert ("What it costs, in &lt;b&gt;&amp;x" in page, "<b>&x" in page) == (True, False)
    assert "What it costs, in [red]x" in priced("--topic", "cost", "--price", "[red]x2/h").out
    done = priced("--topic", "all", "--format", "md", "--price", "2*|`x/h")
    assert "in \\*\\|\\`x" in done.out or "in \\*&#124;\\`x" in done.out
