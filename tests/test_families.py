"""A family of workloads is its own files: taking them away, or adding them, is all there is to do."""

import json
import re
import shutil
import subprocess
import sys

import pytest
import test_docs
from front_door import ROOT, environment
from project_files import project_files

pytestmark = pytest.mark.real

STORAGE = ("dlbench/workloads/storage.py", "suites/storage.toml", "docs/storage.md", "tests/workloads/test_storage.py")
"""Workload, suite, page, and their tests."""

PAGE = """# Attention

<!-- index: From which length on is attention bound by arithmetic? | dlbench run attention -->

`dlbench run attention` attends at three lengths.
"""
POLICY = """place_in_full = 55
policy = { rounds = 1, max_rounds = 1, round_s = 0.01, warmup_s = 0.01, max_warmup_s = 0.05 }
"""
(ANSWER,) = (text for text in test_docs.of_page("docs/design.md", test_docs.blocks("python")) if "ORDER = " in text)
ATTENTION = {
    "dlbench/workloads/attention.py": test_docs.named("docs/workloads.md")["attention.py"],
    "dlbench/analysis/answers/launches.py": ANSWER,
    "suites/attention.toml": POLICY + test_docs.named("docs/workloads.md")["attention.toml"],
    "docs/attention.md": PAGE,
}
"""A family by the examples of two pages: its files, and what stands in them."""


def checkout(folder, *, without=(), added=None):
    """Copy the project there without some of its files and with others, and make the generated pages anew."""
    for name in {*project_files()} - {*without}:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    for name, text in (added or {}).items():
        (folder / name).write_text(text)
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
    folder = checkout(tmp_path, added=ATTENTION)
    entry = "- [From which length on is attention bound by arithmetic?](attention.md) `dlbench run attention`\n"
    assert entry in (folder / "docs" / "README.md").read_text()
    assert "attention[seq=64,dtype=fp32]@cpu" in run(folder, "-m", "dlbench", "list", "full", "--device", "cpu")
    options = ("--device", "cpu", "--rounds", "1", "-o", "run.jsonl", "--format", "json")
    rows = json.loads(run(folder, "-m", "dlbench", "run", "attention", *options))
    assert [row["case.id"] for row in rows] == [
        f"attention[seq={n},dtype={dtype}]@cpu" for n in (64, 128, 256) for dtype in ("fp32", "bf16")
    ]
    assert [row["case.status"] for row in rows] == ["ok"] * 6
    (ceilings,) = (ROOT / "results" / "reference").glob("intel-xeon-processor/ceilings.jsonl")
    answer = json.loads(run(folder, "-m", "dlbench", "show", str(ceilings), "--topic", "launches", "--format", "json"))["answers"][0]
    assert re.fullmatch(r"\S+ .?s to start an operation", answer["headline"]), answer
