"""An answer is its own file: the example of docs/design.md, put into a folder of its own."""

import json
import re
import runpy
import sys

import front_door
import made_up
import pytest

from dlbench.analysis import answers
from dlbench.analysis.read.table import collect
from dlbench.core import files

EXAMPLE = re.search(r"## Adding an answer\n.*?```python\n(.*?)```", (front_door.ROOT / "docs" / "design.md").read_text(), re.DOTALL)


@pytest.fixture
def with_launches(tmp_path, monkeypatch):
    """Add the answer of the example to the questions."""
    folder = tmp_path / "own"
    (folder / "launches").mkdir(parents=True)
    (folder / "launches" / "__init__.py").write_text(EXAMPLE[1])
    monkeypatch.setattr(answers, "__path__", [*answers.__path__, str(folder)])
    files.ordered.cache_clear()
    yield
    files.ordered.cache_clear()
    sys.modules.pop("dlbench.analysis.answers.launches", None)


@pytest.fixture
def run_file(tmp_path):
    launches = [
        each
        for n, seconds in ((1, 2e-6), (2, 5e-6))
        for each in made_up.rounds_of(made_up.case("start", n=n), made_up.flat([seconds * factor for factor in made_up.SEVEN]), items=None)
    ]
    return made_up.write(tmp_path / "run.jsonl", launches, workloads={"start": {"ceiling": "launch"}})


def show(run_file, *options):
    return front_door.in_process(run_file.parent, "show", run_file.name, *options).out


def test_it_is_found_by_every_screen_page_and_document(with_launches, run_file):
    assert answers.topics().index("launches") == 3
    assert "launches   2.00 µs to start an operation" in show(run_file)
    assert show(run_file, "--topic", "launches").splitlines()[:3] == [
        "cpu: AMD EPYC 7B13, 2 threads",
        "launches: 2.00 µs to start an operation  start n=1",
        "  start n=1: time 2.00 µs (1.94…2.06 µs).",
    ]
    found = {each["question"]["topic"]: each for each in json.loads(show(run_file, "--topic", "all", "--format", "json"))["answers"]}
    answer = found["launches"]
    assert answer["question"] == {"topic": "launches", "text": "How long does it take to start an operation?"}
    assert [column["name"] for _, column in answer["tables"][0]["columns"]] == [
        "case.id", "place", "time.median_s", "time.ci_low_s", "time.ci_high_s",
    ]  # fmt: skip
    assert [row["time.median_s"] for row in answer["tables"][0]["rows"]] == pytest.approx([2e-6, 5e-6])
    assert front_door.in_process(run_file.parent, "report", run_file.name, "-o", "page.html").code == 0
    page = (run_file.parent / "page.html").read_text()
    assert "How long does it take to start an operation?" in page
    assert "2.00 µs to start an operation" in page


def test_the_generator_of_readme_finds_it(with_launches, run_file):
    lines = runpy.run_path(str(front_door.ROOT / "docs" / "from_results.py"))
    assert "launches   2.00 µs to start an operation" in lines["_end"](collect([run_file]))


def test_without_rows_it_names_its_command(with_launches, tmp_path):
    path = made_up.write(tmp_path / "other.jsonl", made_up.rounds_of(made_up.case("matmul", n=1), made_up.flat([1.0] * 7)))
    assert "launches: –  dlbench run ceilings\n  no launch was measured; measure it with: dlbench run ceilings\n" in show(
        path, "--topic", "all"
    )
