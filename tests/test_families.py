"""A family of workloads is its own files: taking them away, or adding them, is all there is to do."""

import json
import re
import shutil
import subprocess
import sys
import textwrap

import pytest
from front_door import ROOT, environment
from project_files import project_files

pytestmark = pytest.mark.real

STORAGE = ("dlbench/workloads/storage.py", "suites/storage.toml", "docs/storage.md", "tests/workloads/test_storage.py")
"""Workload, suite, page, and their tests."""

LOOKUP = {
    "dlbench/workloads/lookup.py": '''
        """Rows of a table, by their numbers."""

        from typing import Literal

        import torch

        from dlbench import Size, Sweep, Switch, Unit, Value, Work, workload

        VALUES = (Value("distinct", Unit.FRACTION, "higher", "share of the rows that are asked for once"),)


        @workload(tags=("lookup",), values=VALUES)
        def lookup(device: torch.device, *, n: Sweep[Size], order: Switch[Literal["random", "sorted"]] = "random") -> Work:
            """Look up n rows of 64 numbers."""
            table = torch.randn(n, 64, device=device)
            asked = torch.randint(n, (n,), device=device)
            rows = asked.sort().values if order == "sorted" else asked
            share = len(asked.unique()) / n
            return Work(call=lambda: table[rows], inputs=(table,), items=n, bytes=2 * table.nbytes, report=lambda _: {"distinct": share})
    ''',
    "dlbench/analysis/answers/lookup.py": '''
        """Lookups: how many rows a device finds in a second."""

        from dlbench.analysis.answers.engine.question import Question, Section
        from dlbench.analysis.presentation.columns import KEY, THROUGHPUT
        from dlbench.analysis.read.table import Results
        from dlbench.core.rows.row import Row

        ORDER = 67


        def lookups(results: Results) -> list[Row]:
            """Return the lookups, the fastest first."""
            rows = [row for row in results.rows if "lookup" in row.declared.tags and row.has_throughput]
            return sorted(rows, key=lambda row: -row.throughput)


        QUESTION = Question(
            "lookup",
            "How many rows does a device find in a second?",
            command="dlbench run lookup",
            missing=["no lookup was measured"],
            sections=[
                Section(
                    records=lookups,
                    title="Lookups",
                    columns=[KEY.headed("lookup"), THROUGHPUT.headed("rows/s")],
                    headline={"": "rows found: {items_per_s} at most"},
                )
            ],
        )
    ''',
    "suites/lookup.toml": """
        about = "How fast are rows of a table found by their numbers?"
        place_in_full = 55

        policy = { rounds = 1, max_rounds = 1, round_s = 0.01, warmup_s = 0.01, max_warmup_s = 0.05 }

        [[bench]]
        workload = "lookup"
        axes.n = [64, 128]
        axes.order = ["random", "sorted"]
    """,
    "docs/lookup.md": """
        # Rows by their numbers

        <!-- index: How fast are rows of a table found? | dlbench run lookup -->

        `dlbench run lookup` looks rows of a table up, at random and in order.
    """,
}
"""A family with a sweep, a switch, a value and an answer: its files, and what stands in them."""


def checkout(folder, *, without=(), added=None):
    """Copy the project there without some of its files and with others, and make the generated pages anew."""
    for name in {*project_files()} - {*without}:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    for name, text in (added or {}).items():
        (folder / name).write_text(textwrap.dedent(text).lstrip())
    run(folder, "docs/generate.py")
    return folder


def run(folder, *arguments):
    """Run Python in a checkout, importing from there, and return what it prints. Raises CalledProcessError where it fails."""
    variables = environment(PYTHONPATH=str(folder))
    return subprocess.run([sys.executable, *arguments], cwd=folder, env=variables, stdout=subprocess.PIPE, text=True, check=True).stdout


NAMED = re.compile(r"""["'`\[. /]storage["'`\]]|workloads\.storage|storage\.(?:toml|md)|\bsupply\b.*import""")
IN_THE_PACKAGE = ("dlbench/", "suites/", "docs/")


def test_nothing_knows_storage_but_its_own_files(tmp_path):
    assert len([name for name in STORAGE if name.startswith(IN_THE_PACKAGE)]) == 3
    folder = checkout(tmp_path, without=STORAGE)
    sources = [path for place in ("dlbench", "suites") for ending in ("py", "toml") for path in (folder / place).rglob(f"*.{ending}")]
    assert [str(path) for path in sources if NAMED.search(path.read_text())] == []
    words = "links or index or reference_is or registered or full_is or leaves_out"
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
    measured = folder / "run.jsonl"
    # Whoever else runs here.
    measured.write_text(re.sub(r'"(waiting|stolen|other_cpus|stolen_cpus)":[\d.e-]+', r'"\1":0', measured.read_text()))
    (answer,) = json.loads(run(folder, "-m", "dlbench", "show", "run.jsonl", "--topic", "lookup", "--format", "json"))["answers"]
    assert answer["sentences"][0].startswith("lookup n=")
    assert re.fullmatch(r"rows found: \S+ [kMG]?/s at most", answer["headline"]), answer["headline"]
    assert [table["title"] for table in answer["tables"]] == ["Lookups"]
