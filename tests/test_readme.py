"""Results in README.md and the documentation, held against the committed result files."""

import json
import re
import runpy
from pathlib import Path

import pytest
from front_door import ROOT, dlbench

from benchmarks.replay import GATE
from dlbench.analysis.read.runs import ReferenceRun

SHOWS = re.compile(r"```console\n\$ dlbench (show results/reference/[^\n]+)\n(.*?)```", re.DOTALL)
FROM_RESULTS = runpy.run_path(str(ROOT / "docs" / "from_results.py"))
MADE = FROM_RESULTS["pages"]()


def test_pages_show_tables_of_reference_files():
    shown = {name for name, text in MADE.items() if SHOWS.search(text)}
    assert shown == {"docs/tutorial.md"}
    assert MADE.keys() - shown == {f"docs/{page}.md" for page in ("claims", "convergence", "cost", "cpu-only", "reference-runs")} | {
        "README.md"
    }


@pytest.mark.parametrize("name", MADE)
def test_a_page_has_what_dlbench_says_of_the_reference_files(name):
    """``make docs`` writes it anew."""
    assert (ROOT / name).read_text() == MADE[name]


def reference(machine, suite, began):
    return ReferenceRun(Path(machine) / f"{suite}.jsonl", {"environment": {"provenance": {"utc": began}}})


def test_pages_show_the_machine_with_most_suites_that_has_what_they_show(monkeypatch):
    shown = FROM_RESULTS["shown"].__wrapped__
    runs = [reference(machine, suite, f"2026-11-2{day}") for day, machine in enumerate("ab") for suite in ("cnn", "quick")]
    runs += [reference("b", "batch", "2026-11-20"), *(reference("c", suite, "2026-11-25") for suite in ("cnn", "batch", "feed", "modes"))]
    monkeypatch.setitem(shown.__globals__, "reference_runs", lambda: runs)
    assert {suite: run.machine for suite, run in shown().items()} == {"cnn": "b", "quick": "b", "batch": "b"}
    runs[:] = runs[-1:]
    with pytest.raises(ValueError, match=r"^no machine in results/reference has runs of cnn and quick; make them with: make references$"):
        shown()


def test_the_error_rates_are_those_of_the_page_that_a_test_holds_against_the_recording():
    words = " ".join((ROOT / "README.md").read_text().split())
    said = re.search(
        r"with its least of 14 rounds called (\S+) % of suites of identical programs slower "
        r"\((\S+ to \S+), by how chance deals the rounds\), "
        r"and saw a real 10 % in (\S+) % (\(\S+ to \S+\)); "
        r"pytest-benchmark's mean beyond 5 % called (\S+) % and saw (\S+) %",
        words,
    )
    lines = (ROOT / "docs" / "reference" / "validation.md").read_text().splitlines()
    (gate,), (mean,) = (
        [line.split(" | ") for line in lines if line.startswith(f"| {name}: ")] for name in (GATE, "pytest-benchmark mean:5%")
    )
    assert said
    assert (gate[4], gate[9]) == (f"{said[1]} ({said[2]})", f"{said[3]} {said[4]}")
    assert (mean[4], mean[9]) == (said[5], said[6])


@pytest.mark.real
def test_the_picture_is_what_report_draws_of_the_file_of_quick(tmp_path):
    text = (ROOT / "README.md").read_text()
    ((words, picture),) = re.findall(r"!\[(.*?)\]\((.*?)\)", " ".join(text.split()))
    run = FROM_RESULTS["first_shown"]().path
    done = dlbench("report", str(ROOT / run), "-o", "page.html", "--figures", "figures", cwd=tmp_path)
    assert done.code == 0, done.err
    drawn, committed = ((path / Path(picture).name).read_text() for path in (tmp_path / "figures", (ROOT / picture).parent))
    labels = [re.findall(r">([^<]+)</text>", svg) for svg in (drawn, committed)]
    assert labels[0] == labels[1]
    done = dlbench("show", str(ROOT / run), "--topic", "bottleneck", "--format", "json", cwd=tmp_path)
    gains = [row["step.gain"] for row in json.loads(done.out)["answers"][0]["tables"][0]["rows"] if row["step.gain"] is not None]
    gain = float(re.search(r"([\d.]+) % of it to gain", words)[1])
    assert min(abs(gain - 100 * each) for each in gains) < 0.05


def test_the_course_shows_a_number_wherever_a_cpu_can_give_one():
    page = (ROOT / "docs" / "claims.md").read_text()
    rows = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("| ") and "`dlbench " in line]
    assert len(rows) == 16
    assert [cell for row in rows for cell in row if len(cell.split()) > 15] == []
    silent = [shows for _, _, shows in rows if not re.search(r"\d", shows)]
    assert all(each == "no GPU here" or each.startswith("unknown: ") for each in silent)
    assert len(silent) <= 6


def test_the_course_names_the_command_whose_file_it_shows():
    (served,) = re.findall(r"`dlbench run batch` \| ResNet-50 infers (\S+ /s) at batch 8", (ROOT / "docs" / "claims.md").read_text())
    rows = json.loads(dlbench("show", str(FROM_RESULTS["shown"]()["quick"].path.parent / "batch.jsonl"), "--format", "json", cwd=ROOT).out)
    (rate,) = (row["rate.items_per_s"] for row in rows if row["case.id"] == "infer_step[model=resnet50,batch=8,dtype=fp32]@cpu")
    assert served == f"{rate:.1f} /s"


def test_the_memory_page_has_what_the_search_of_alexnet_found():
    words = " ".join((ROOT / "docs" / "memory.md").read_text().split())
    ended, room = map(int, re.search(r"AlexNet in 1 GiB ended at (\d+), where the line has room for (\d+)", words).groups())
    file = FROM_RESULTS["shown"]()["quick"].path.parent / "memory.jsonl"
    (answer,) = json.loads(dlbench("show", str(file), "--topic", "batch", "--format", "json", cwd=ROOT).out)["answers"]
    rows = [row for table in answer["tables"] for row in table["rows"] if "batch.sample_bytes" in row]
    (row,) = (each for each in rows if each["pair.case"] == "largest_batch[model=alexnet,dtype=fp32]")
    assert (ended, room) == (row["batch.largest"], int((2**30 - row["batch.fixed_bytes"]) / row["batch.sample_bytes"]))
    assert f"`batch {ended} fits into 1.00 GiB`" in words


def test_the_lines_of_readme_have_their_tags():
    """A number without an interval says so, and no line is wider than a wide terminal."""
    block = (ROOT / "README.md").read_text().partition("```text\n")[2].partition("```")[0].splitlines()
    assert re.search(r"\b(not )?usable", " ".join(block))
    assert [line for line in block if len(line) > 120] == []
    without = [line for line in block if re.search(r"\d×|days", line) and "…" not in line]
    assert [line for line in without if "few rounds" not in line] == []
