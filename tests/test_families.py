"""A family of workloads is its own files: taking them away, or adding them, is all there is to do."""

import json
import re

import pytest
from families import LOOKUP, STORAGE, checkout, run

pytestmark = pytest.mark.real

NAMED = re.compile(r"""["'`\[. /]storage["'`\]]|workloads\.storage|storage\.(?:toml|md)|\bsupply\b.*import""")
IN_THE_PACKAGE = ("dlbench/", "suites/", "docs/")


def test_nothing_knows_storage_but_its_own_files(tmp_path):
    assert len([name for name in STORAGE if name.startswith(IN_THE_PACKAGE)]) == 3
    folder = checkout(tmp_path, without=STORAGE)
    sources = [path for place in ("dlbench", "suites") for ending in ("py", "toml") for path in (folder / place).rglob(f"*.{ending}")]
    assert [str(path) for path in sources if NAMED.search(path.read_text())] == []
    words = "links or index or rooms or reference_is or registered or full_is or leaves_out"
    files = ("tests/test_docs.py", "tests/workloads/test_registered_workloads.py", "tests/suites/test_shipped_suites.py")
    run(folder, "-m", "pytest", "-q", "-p", "no:cacheprovider", *files, "-k", words)


def test_a_family_is_found_by_its_own_files(tmp_path):
    folder = checkout(tmp_path, added=LOOKUP)
    assert "- [How fast are rows of a table found?](lookup.md) `dlbench run lookup`\n" in (folder / "docs" / "README.md").read_text()
    assert "lookup[n=64,order=sorted]@cpu" in run(folder, "-m", "dlbench", "list", "full", "--device", "cpu")
    options = ("--device", "cpu", "--rounds", "1", "-o", "run.jsonl", "--format", "json")
    rows = json.loads(run(folder, "-m", "dlbench", "run", "lookup", *options))
    assert [row["case.id"] for row in rows] == [f"lookup[n={n}{order}]@cpu" for n in (64, 128) for order in ("", ",order=sorted")]
    assert all(0 < row["value.distinct"] <= 1 for row in rows)
    answers = json.loads(run(folder, "-m", "dlbench", "show", "run.jsonl", "--topic", "all", "--format", "json"))["answers"]
    (bottleneck,) = [each for each in answers if each["question"]["topic"] == "bottleneck"]
    assert bottleneck["sentences"][0].startswith("lookup n=")
    assert re.fullmatch(r"rows found: \S+ [kMG]?/s at most", bottleneck["headline"]), bottleneck["headline"]
    assert [table["title"] for table in bottleneck["tables"]] == ["Lookups"]
