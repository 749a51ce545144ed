"""The reference runs that come with dlbench: each can be read and has most of its suites, all are small, and pages have their numbers."""

import functools
import json
import re
import runpy
from pathlib import Path

import pytest
from front_door import ROOT, in_process

from benchmarks.replay import GATE
from dlbench.analysis.read.runs import ReferenceRun
from dlbench.core.model import Status
from dlbench.core.store import load
from dlbench.harness.plan import cases as planning
from dlbench.harness.plan import suite
from dlbench.harness.worker import registry

SHOWS = re.compile(r"```console\n\$ dlbench (show results/reference/[^\n]+)\n(.*?)```", re.DOTALL)
FROM_RESULTS = runpy.run_path(str(ROOT / "docs" / "from_results.py"))


def page(name):
    return (ROOT / name).read_text()


def of_reference(name, *options):
    """What ``show`` says of the file of the machine that pages show, as JSON."""
    file = FROM_RESULTS["shown"]()["quick"].path.parent / f"{name}.jsonl"
    return json.loads(in_process(ROOT, "show", str(file), *options, "--format", "json").out)


def test_pages_have_what_dlbench_says_of_the_reference_files():
    """``make docs`` writes them anew; the tutorial has whole tables."""
    made = FROM_RESULTS["pages"]()
    names = ("claims", "convergence", "cost", "cpu-only", "reference-runs", "tutorial")
    assert sorted(made) == ["README.md", *(f"docs/{name}.md" for name in names)]
    assert [name for name, text in made.items() if SHOWS.search(text)] == ["docs/tutorial.md"]
    for name, text in made.items():
        assert page(name) == text, name


def test_pages_show_the_machine_with_most_suites_that_has_what_they_show(monkeypatch):
    measured = "a/cnn/21 a/quick/21 b/cnn/22 b/quick/22 b/batch/20 c/cnn/25 c/batch/25 c/feed/25 c/modes/25"
    runs = []
    for machine, name, day in (each.split("/") for each in measured.split()):
        header = {"environment": {"provenance": {"utc": f"2026-11-{day}"}}}
        runs.append(ReferenceRun(Path(machine) / f"{name}.jsonl", header))
    shown = FROM_RESULTS["shown"].__wrapped__
    monkeypatch.setitem(shown.__globals__, "reference_runs", lambda: runs)
    assert {name: run.machine for name, run in shown().items()} == {"cnn": "b", "quick": "b", "batch": "b"}
    runs[:] = runs[-1:]
    with pytest.raises(ValueError, match=r"^no machine in results/reference has runs of cnn and quick; make them with: make references$"):
        shown()


def test_the_error_rates_are_those_of_the_page_that_a_test_holds_against_the_recording():
    said = re.search(
        r"with its least of 14 rounds called (\S+) % of suites of identical programs slower "
        r"\((\S+ to \S+), by how chance deals the rounds\), and saw a real 10 % in (\S+) % (\(\S+ to \S+\)); "
        r"pytest-benchmark's mean beyond 5 % called (\S+) % and saw (\S+) %",
        " ".join(page("README.md").split()),
    )
    rows = [line.split(" | ") for line in page("docs/reference/validation.md").splitlines()]
    gate, mean = (next(row for row in rows if row[0].startswith(f"| {name}: ")) for name in (GATE, "pytest-benchmark mean:5%"))
    assert said
    assert (gate[4], gate[9]) == (f"{said[1]} ({said[2]})", f"{said[3]} {said[4]}")
    assert (mean[4], mean[9]) == (said[5], said[6])


def test_the_picture_is_what_report_draws_of_the_file_of_quick(tmp_path):
    ((words, picture),) = re.findall(r"!\[(.*?)\]\((.*?)\)", " ".join(page("README.md").split()))
    run = str(ROOT / FROM_RESULTS["first_shown"]().path)
    done = in_process(tmp_path, "report", run, "-o", "page.html", "--figures", "figures")
    assert done.code == 0, done.err
    drawn, committed = ((path / Path(picture).name).read_text() for path in (tmp_path / "figures", (ROOT / picture).parent))
    assert re.findall(r">([^<]+)</text>", drawn) == re.findall(r">([^<]+)</text>", committed)
    answers = json.loads(in_process(tmp_path, "show", run, "--topic", "bottleneck", "--format", "json").out)["answers"]
    gains = [row["step.gain"] for row in answers[0]["tables"][0]["rows"] if row["step.gain"] is not None]
    gain = float(re.search(r"([\d.]+) % of it to gain", words)[1])
    assert min(abs(gain - 100 * each) for each in gains) < 0.05


def test_the_course_shows_a_number_wherever_a_cpu_can_give_one():
    rows = [line.strip("| ").split(" | ") for line in page("docs/claims.md").splitlines() if line.startswith("| ") and "`dlbench " in line]
    assert (len(rows), [cell for row in rows for cell in row if len(cell.split()) > 15]) == (16, [])
    silent = [shows for _, _, shows in rows if not re.search(r"\d", shows)]
    assert all(each == "no GPU here" or each.startswith("unknown: ") for each in silent)
    assert len(silent) <= 6
    (served,) = re.findall(r"`dlbench run batch` \| ResNet-50 infers (\S+ /s) at batch 8", page("docs/claims.md"))
    of_batch = {row["case.id"]: row["rate.items_per_s"] for row in of_reference("batch")}
    assert served == f"{of_batch['infer_step[model=resnet50,batch=8,dtype=fp32]@cpu']:.1f} /s"


def test_the_memory_page_has_what_the_search_of_alexnet_found():
    words = " ".join(page("docs/memory.md").split())
    ended, room = map(int, re.search(r"AlexNet in 1 GiB ended at (\d+), where the line has room for (\d+)", words).groups())
    (answer,) = of_reference("memory", "--topic", "batch")["answers"]
    rows = [row for table in answer["tables"] for row in table["rows"] if "batch.sample_bytes" in row]
    (row,) = (each for each in rows if each["pair.case"] == "largest_batch[model=alexnet,dtype=fp32]")
    assert (ended, room) == (row["batch.largest"], int((2**30 - row["batch.fixed_bytes"]) / row["batch.sample_bytes"]))
    assert f"`batch {ended} fits into 1.00 GiB`" in words


def test_the_lines_of_readme_have_their_tags():
    """A number without an interval says so, and no line is wider than a wide terminal."""
    block = page("README.md").partition("```text\n")[2].partition("```")[0].splitlines()
    assert re.search(r"\b(not )?usable", " ".join(block))
    assert [line for line in block if len(line) > 120] == []
    without = [line for line in block if re.search(r"\d×|days", line) and "…" not in line]
    assert [line for line in without if "few rounds" not in line] == []


FOLDERS = sorted({path.parent for path in (ROOT / "results" / "reference").glob("*/*.jsonl")})
MAX_BYTES = 8_000_000
ANSWERED = (Status.OK, Status.UNSUPPORTED)
"""A case that the machine can't do is not missing."""


@functools.cache
def signatures():
    registry.load_builtins()
    return {name: each.signature for name, each in registry.all_workloads().items()}


def lacking(folder):
    """Return, by suite, what is planned today for the devices that the files of a machine measured it on, and what of it they lack.

    Only where they were asked for all of it: a contributed file does not tell, and -k and --set ask for less or for other cases.
    """
    runs = [load(path) for path in sorted(folder.glob("*.jsonl"))]
    assert [run.path.name for run in runs if run.left_out or run.torn] == []
    found = {}
    for name in sorted({each.case.suite for run in runs for each in run.measurements} & set(suite.builtin_names())):
        of_suite = [(run, each) for run in runs for each in run.measurements if each.case.suite == name]
        devices = sorted({each.case.device for _, each in of_suite})
        planned = {case.id for case in planning.plan([suite.load(name)], signatures(), devices) if case.device in devices}
        answered = {each.case.id for _, each in of_suite if each.status in ANSWERED}
        if all(run.header.get("expression", "") is None for run, _ in of_suite) and planned & answered:
            found[name] = planned, planned - answered
    return found


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_a_reference_can_be_read_wholly_and_has_most_of_the_cases_that_its_suites_plan(folder):
    found = lacking(folder)
    assert {name: sorted(lacks) for name, (planned, lacks) in found.items() if 3 * len(lacks) > len(planned)} == {}


def test_all_of_them_are_small():
    sizes = {str(path.relative_to(folder.parent)): path.stat().st_size for folder in FOLDERS for path in folder.glob("*.jsonl")}
    assert sum(sizes.values()) <= MAX_BYTES, sizes
