"""All answers together: their order and forms, on committed runs, and one that somebody adds, as docs/design.md has it."""

import json
import re
import runpy
import sys
from dataclasses import replace

import front_door
import made_up
import pytest

from dlbench.analysis import answers
from dlbench.analysis.answers.engine.question import Answer
from dlbench.analysis.read.table import collect
from dlbench.core import files

EXAMPLE = re.search(r"## Adding an answer\n.*?```python\n(.*?)```", (front_door.ROOT / "docs" / "design.md").read_text(), re.DOTALL)
REFERENCES = front_door.ROOT / "results" / "reference"
RUNS = sorted(REFERENCES.glob("**/*.jsonl"))
PRODUCT = made_up.rounds_of(made_up.case("matmul", n=1), made_up.flat([1.0] * 7))


@pytest.fixture
def show(tmp_path):
    """A function that writes a file with these measurements and shows it."""

    def show(measured, *options, **header):
        path = made_up.write(tmp_path / f"{len(list(tmp_path.iterdir()))}.jsonl", measured, **header)
        return front_door.in_process(tmp_path, "show", path.name, *options)

    return show


def test_off_a_terminal_nothing_is_cut_and_what_is_missing_names_its_command(show, snapshot):
    snapshot("answers-of-a-product", show(PRODUCT, "--topic", "all").out)


def test_text_of_a_file_can_not_end_a_cell_or_steer_a_terminal(show):
    cases = [made_up.case("t", model="a|b\x1b[2J<b>", batch=batch, dtype="fp32") for batch in (1, 2)]
    named = [each for case in cases for each in made_up.rounds_of(case, made_up.flat([1.0] * 7), items=case.params["batch"])]
    assert "| t a\\|b[2J&lt;b> fp32 |" in show(named, "--topic", "all", "--format", "md").out
    assert "\x1b" not in show(named, "--topic", "all").out
    case = made_up.case("train_step", "cuda:0", model="resnet50", batch=8, dtype="amp_fp16")
    named = [replace(each, device_name="<b>\x1b[2J\u202e card") for each in made_up.rounds_of(case, made_up.flat(made_up.SEVEN))]
    text = show(named, "--topic", "all", "--format", "md").out
    assert "no other reference run has a case of cuda:0 (&lt;b>[2J card); " in text
    assert [part for part in ("<b>", "\x1b", "\u202e") if part in text] == []
    assert not {"\x1b", "\u202e"} & set(show(named, "--topic", "all").out)


@pytest.mark.parametrize("path", [*RUNS, *sorted({path.parent for path in RUNS})], ids=lambda path: str(path.relative_to(REFERENCES)))
def test_on_committed_runs_no_row_is_above_its_ceiling_and_no_line_begins_at_zero(path):
    """Each alone, and all of a machine together."""
    results = replace(collect([path]), references=False)
    found = [each for each in answers.answers(results) if isinstance(each, Answer)]
    rows = [row for each in found for table in each.tables for row in table.rows]
    shares = [row.rate.ceiling_fraction for row in results.rows] + [row.get("rate.ceiling_fraction") for row in rows]
    assert max([share for share in shares if share is not None], default=0) <= 1
    assert not [row for row in rows if 0 in (row.get("copies.latency_s"), row.get("batch.fixed_bytes"))]


@pytest.fixture
def with_launches(tmp_path_factory, monkeypatch):
    """Add the answer of the example to the questions."""
    folder = tmp_path_factory.mktemp("own")
    (folder / "launches").mkdir()
    (folder / "launches" / "__init__.py").write_text(EXAMPLE[1])
    monkeypatch.setattr(answers, "__path__", [*answers.__path__, str(folder)])
    files.ordered.cache_clear()
    yield
    files.ordered.cache_clear()
    sys.modules.pop("dlbench.analysis.answers.launches", None)


def test_an_answer_that_is_added_is_found_by_every_screen_page_and_document(with_launches, show, tmp_path):
    measured = [each for n, s in ((1, 2e-6), (2, 5e-6)) for each in made_up.around(made_up.case("start", n=n), s, items=None)]
    header = {"workloads": {"start": {"ceiling": "launch"}}}
    assert answers.topics().index("launches") == 3
    assert "launches   2.00 µs to start an operation" in show(measured, **header).out
    assert show(measured, "--topic", "launches", **header).out.splitlines()[:3] == [
        "cpu: AMD EPYC 7B13, 2 threads",
        "launches: 2.00 µs to start an operation  start n=1",
        "  start n=1: time 2.00 µs (1.94…2.06 µs).",
    ]
    (answer,) = json.loads(show(measured, "--topic", "launches", "--format", "json", **header).out)["answers"]
    assert answer["question"] == {"topic": "launches", "text": "How long does it take to start an operation?"}
    names = [column["name"] for _, column in answer["tables"][0]["columns"]]
    assert names == ["case.id", "place", "time.median_s", "time.ci_low_s", "time.ci_high_s"]
    assert [row["time.median_s"] for row in answer["tables"][0]["rows"]] == pytest.approx([2e-6, 5e-6])
    assert front_door.in_process(tmp_path, "report", "0.jsonl", "-o", "page.html").code == 0
    page = (tmp_path / "page.html").read_text()
    assert [text in page for text in ("How long does it take to start an operation?", "2.00 µs to start an operation")] == [True, True]
    lines = runpy.run_path(str(front_door.ROOT / "docs" / "from_results.py"))  # the generator of README
    assert "launches   2.00 µs to start an operation" in lines["_end"](collect([tmp_path / "0.jsonl"]))
    missing = "launches: –  dlbench run ceilings\n  no launch was measured; measure it with: dlbench run ceilings\n"
    assert missing in show(PRODUCT, "--topic", "all").out
