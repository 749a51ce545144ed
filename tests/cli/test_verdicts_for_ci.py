"""Files that ``dlbench compare`` writes for CI: one JSON document, and the summary and annotations of GitHub Actions."""

import json
import math
import re
from collections.abc import Callable
from pathlib import Path

import made_up
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_compare_command import ONE, PAGE, TEN, WIDE, Folder, environment, timed

from dlbench.analysis.compare.judge import RankTest, Verdict
from dlbench.analysis.compare.verdict import CaseVerdict, Comparison
from dlbench.analysis.export import verdict_files
from dlbench.core.model import Status
from dlbench.core.stats import Interval


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


@pytest.fixture
def summary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that GitHub's runner makes for a step."""
    path = tmp_path / "step_summary"
    path.touch()
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(path))
    return path


def numbered(n: int) -> made_up.Case:
    return made_up.case("matmul", n=n)


def annotated(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("::")]


def test_annotations_go_to_stderr_the_worst_first(folder: Folder, summary: Path) -> None:
    """Two slower and one faster, same, inconclusive, missing, failed and incomparable case each."""
    cases = {n: timed(numbered(n), 1, WIDE if n == 5 else TEN) for n in range(1, 9)}
    folder.write("base", *cases.values(), environment=environment())
    cases |= {n: timed(numbered(n), factor) for n, factor in ((1, 1.2), (2, 1.5), (3, 0.8))}
    cases |= {6: [], 7: [made_up.ended(numbered(7), Status.CRASHED, "killed\n::error::by 100%")], 8: timed(numbered(8), threads=4)}
    folder.write("new", *cases.values(), environment=environment())
    done = folder.compare("--github")
    assert (done.code, annotated(done.out)) == (3, [])
    lines = [line.replace("%25", "%").replace("@cpu", "") for line in annotated(done.err)]
    (unsure,) = (line for line in lines if "n=5" in line)
    assert [line for line in lines if line != unsure] == [
        "::error title=matmul[n=2]::slower: time +50.0 %, 95 % interval +47.8…+52.2 %",
        "::error title=matmul[n=1]::slower: time +20.0 %, 95 % interval +18.2…+21.8 %",
        "::error title=matmul[n=7]::failed: crashed: killed ::error::by 100%",
        "::error title=matmul[n=6]::missing: not in the new file",
        "::warning title=matmul[n=8]::incomparable: case.threads: 2 against 4",
        "::notice title=matmul[n=3]::faster: time -20.0 %, 95 % interval -21.2…-18.8 %",
    ]
    assert unsure.startswith("::warning title=matmul[n=5]::inconclusive: time +0.0 %, 95 % interval -")
    assert summary.read_text().startswith("### dlbench: 2 slower, ")


def test_the_summary_is_the_conclusion_a_table_and_the_notes(folder: Folder, summary: Path) -> None:
    folder.write("base", timed(numbered(1)), timed(numbered(2)), timed(made_up.case("noop", text="a|b`c")))
    folder.write("new", timed(numbered(1)), timed(numbered(2), 1.2))
    summary.write_text("# Build\n\n")
    notes = [line.removeprefix("note: ") for line in folder.compare("--github").err.splitlines() if line.startswith("note: ")]
    assert len(notes) >= 2
    assert summary.read_text().splitlines() == [
        "# Build",
        "",
        "### dlbench: 1 slower, 1 same, 1 missing; exit 3",
        "",
        "`new against base`: 1 slower, 1 same, 1 missing",
        "",
        "| case | base | new | change | 95 % interval | p after Holm | verdict | note |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
        "| `matmul[n=2]@cpu` | 1.00 s | 1.20 s | +20.0 % | +18.2…+21.8 % | <0.0001 | slower |  |",
        "| `noop[text=a¦b'c]@cpu` | 1.00 s |  |  |  |  | missing | `not in the new file` |",
        "| `matmul[n=1]@cpu` | 1.00 s | 1.00 s | +0.0 % | -1.5…+1.5 % | 1.0000 | same |  |",
        "",
        *(f"- `{note}`" for note in notes),
    ]


def test_several_comparisons_have_a_table_each_and_slower_across_machines_is_a_warning(folder: Folder, summary: Path) -> None:
    for name, factor in (("base", 1), ("new", 1), ("later", 1.3)):
        folder.write(name, timed(ONE, factor), environment=environment())
    folder.write("other", timed(ONE, 2), environment=environment(cpu="Intel Xeon"))
    done = folder.compare("--github", files=("base.jsonl", "new.jsonl", "later.jsonl"))
    assert (done.code, len(annotated(done.err))) == (3, 1)
    assert re.findall(r"^`(.*)`: (.*)$", summary.read_text(), re.MULTILINE) == [
        ("new against base", "1 same"),
        ("later against base", "1 slower"),
    ]
    summary.write_text("")
    done = folder.compare("--github", "--across-machines", files=("base.jsonl", "other.jsonl"))
    assert (done.code, [line.partition(" ")[0] for line in annotated(done.err)]) == (0, ["::warning"])
    assert summary.read_text().startswith("### dlbench: 1 slower; exit 0\n")
    full = "x" * (verdict_files.SUMMARY_LIMIT - 10)
    summary.write_text(full)
    done = folder.compare("--github")
    assert (done.code, done.err.splitlines()[-1]) == (0, "note: the summary of this step is full, so nothing was added to it")
    assert summary.read_text() == full


def test_a_gate_that_could_not_have_failed_is_an_error(folder: Folder, summary: Path) -> None:
    folder.write("base", timed(ONE, 1, TEN[:1]))
    folder.write("new", timed(ONE, 3, TEN[:1]))
    done = folder.compare("--github")
    first, second = annotated(done.err)
    assert (done.code, second.partition(" ")[0]) == (4, "::warning")
    assert first.startswith("::error title=new against base::too few rounds: in 3 tests none ")
    assert "too few rounds" in summary.read_text()


def test_a_file_that_cannot_be_written_is_refused_before_anything_is_read(
    folder: Folder, monkeypatch: pytest.MonkeyPatch, transcript: Callable[..., None]
) -> None:
    def compare(words: str) -> str:
        option, _, path = words.partition(" ")
        summary = path if option == "--github" else ""
        monkeypatch.setenv("GITHUB_STEP_SUMMARY", summary)
        if (summary or path == "base.jsonl") and not list(folder.path.iterdir()):  # before that there is nothing to read
            folder.write("base", timed(ONE))
            folder.write("new", timed(ONE))
        before = {file: file.read_bytes() for file in folder.path.iterdir()}
        done = folder.compare(*words.split()[: 1 if option == "--github" else None])
        assert {file: file.read_bytes() for file in folder.path.iterdir()} == before
        return f"exit {done.code}: {done.err.splitlines()[-1]}"

    transcript("verdicts-not-written", 8, compare)


def slower(name: str, percent: float = 20, note: str = "") -> CaseVerdict:
    interval = Interval(math.log1p(0.1), math.log1p(0.3), 0.95)
    by = math.log1p(percent / 100)
    change = RankTest((0.0,), (by,), shift=by, round_intervals=(interval, None), p_holm=1e-4)
    return CaseVerdict(name, Verdict.SLOWER, (note,) if note else (), ("time",), tests={"median": change, "p10": change})


def comparison(*cases: CaseVerdict, title: str = "new against base") -> Comparison:
    return Comparison(title, cases, None)


def same(number: int) -> CaseVerdict:
    return CaseVerdict(f"same[n={number}]@cpu", Verdict.SAME)


@pytest.mark.parametrize("cases", [10, 11, 25])
def test_of_more_than_ten_annotations_the_last_counts_the_rest(cases: int) -> None:
    two = [comparison(*(slower(f"{side}{number}", number) for number in range(cases, 0, -1) if number % 2 == side)) for side in (0, 1)]
    found = verdict_files.annotations(two)
    assert [line.partition("::slower")[0] for line in found[:9]] == [f"::error title={n % 2}{n}" for n in range(cases, cases - 9, -1)]
    assert len(found) == 10
    if cases > 10:
        assert found[-1] == f"::error title=dlbench::{cases - 9} more; the summary of this step names them"


def as_the_runner_reads(line: str) -> tuple[str, dict[str, str], str]:
    """Command, properties and data, by the rules of ActionCommand.TryParseV2 in github.com/actions/runner."""
    command, _, data = line.removeprefix("::").partition("::")
    name, _, properties = command.partition(" ")

    def unescaped(text: str, *signs: str) -> str:
        for sign in ("\r", "\n", *signs, "%"):
            text = text.replace(f"%{ord(sign):02X}", sign)
        return text

    pairs = (each.split("=", 1) for each in properties.split(","))
    return name, {key: unescaped(value, ":", ",") for key, value in pairs}, unescaped(data)


@given(st.text(st.characters(codec="utf-8", categories=("L", "N", "P", "S")), min_size=1), st.text(), st.integers(1, 3))
def test_whatever_a_file_holds_the_runner_reads_it_back_and_it_is_inert_in_the_summary(name: str, note: str, comparisons: int) -> None:
    judged = comparison(slower(name, note=note), title=note)
    (line,) = verdict_files.annotations([judged])
    assert (not {"\n", "\r"} & set(line), line.startswith("::")) == (True, True)
    kind, properties, data = as_the_runner_reads(line)
    assert (kind, properties) == ("error", {"title": name})
    assert data.startswith("slower: time +20.0 %, 95 % interval +10.0…+30.0 %")
    text = verdict_files.step_summary([judged] * comparisons, "1 slower; exit 3", [note], 1 << 20)
    assert len(text.splitlines()) == 2 + 6 * comparisons + 1
    rows = [line for line in text.splitlines() if "+20.0 %" in line]
    assert [len(re.split(r"\|", row)) for row in rows] == [10] * comparisons
    outside = re.sub(r"`[^`]*`", "", text)
    assert set(outside) <= set("abcdefghijklmnopqrstuvwxyzH0123456789 #:;|.,%+-<…_\n")


def test_a_summary_stays_below_its_limit_and_counts_what_it_leaves_out() -> None:
    cases = [slower(f"matmul[n={number}]@cpu", number, "é" * 5000) for number in range(300, 0, -1)] + [same(n) for n in range(20_000)]
    notes = [f"note {n} " * 500 for n in range(30)]
    text = verdict_files.step_summary([comparison(*cases)], "300 slower; exit 3", notes, verdict_files.SUMMARY_LIMIT)
    assert len(text.encode()) <= verdict_files.SUMMARY_LIMIT
    rows = [line for line in text.splitlines() if line.startswith("| `")]
    assert rows[0].startswith("| `matmul[n=300]@cpu` |")
    slow, steady = (sum(line.startswith(f"| `{workload}") for line in rows) for workload in ("matmul", "same"))
    assert (slow, steady > 1000) == (300, True)
    assert f"\nNo room here for {20_000 - steady:,} more: {20_000 - steady:,} same. None needs more attention than those above.\n" in text
    assert "\n- and 10 more notes in the log\n" in text
    many = [comparison(slower("worst", 500), *(same(number) for number in range(20_000)), title=f"run {each}") for each in range(3)]
    text = verdict_files.step_summary(many, "3 slower; exit 3", [], verdict_files.SUMMARY_LIMIT)
    assert (len(text.encode()) <= verdict_files.SUMMARY_LIMIT, text.count("| `worst` |")) == (True, 3)


def test_files_for_others_name_no_folder(folder: Folder, summary: Path) -> None:
    for name in ("secret a", "secret b"):
        made_up.write(folder.path / name / "run.jsonl", timed(ONE), planned=3, finished=False)
    done = folder.compare("--github", "--verdict", "verdict.json", "--junit", "j.xml", files=("secret a/run.jsonl", "secret b/run.jsonl"))
    assert "note: run 1 is secret a/run.jsonl" in done.err.splitlines()
    written = {"verdict.json", "j.xml", summary.name}
    assert [name for name in written if "secret" in (folder.path / name).read_text()] == []
    notes = json.loads((folder.path / "verdict.json").read_text())["notes"]
    assert [note.partition(":")[0] for note in notes[:2]] == ["run.jsonl", "run.jsonl"]
    assert notes[0].endswith("continue it with: dlbench run --resume run.jsonl")


def test_the_document_is_that_of_the_page(folder: Folder) -> None:
    for name, factor in (("before", 1.0), ("after", 1.2)):
        folder.write(name, timed(ONE), timed(numbered(2), factor), timed(numbered(3)), environment=environment())
    done = folder.compare("--verdict", "verdict.json", files=("before.jsonl", "after.jsonl"))
    document = json.loads((folder.path / "verdict.json").read_text(), parse_constant=pytest.fail)
    assert [f"note: {note}" for note in document["notes"]] == done.err.splitlines()
    comparison = document["comparisons"][0]
    assert comparison["cases"] == json.loads(folder.compare("--format", "json", files=("before.jsonl", "after.jsonl")).out)
    assert (comparison["counts"]["slower"], comparison["counts"]["same"]) == (1, 2)
    document["notes"], comparison["cases"], comparison["counts"] = [], [], {}
    assert (done.code, document) == (3, json.loads(PAGE.split("```json\n")[1].split("```")[0]))


@pytest.mark.parametrize(
    ("new", "code", "verdict"),
    [(timed(ONE), 0, "ok"), (timed(ONE, 1.2), 3, "regression"), (timed(ONE, 1, TEN[:1]), 4, "undecidable"), ([], 5, "cases_failed")],
)
def test_the_document_names_the_exit_code(folder: Folder, new: list[made_up.Measurement], code: int, verdict: str) -> None:
    folder.write("base", timed(ONE))
    folder.write("new", new)
    done = folder.compare("--verdict", "verdict.json", "--format", "csv")
    document = json.loads((folder.path / "verdict.json").read_text())
    assert (done.code, document["exit_code"], document["verdict"]) == (code, code, verdict)
    assert bool(document["comparisons"][0]["powerless"]) == (code == 4 or not new)
