"""``dlbench export`` as a user calls it, and its files in the tools that they are for."""

import importlib.util
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import front_door
import made_up
import pandas as pd
import pytest
from front_door import dlbench, in_process

from dlbench import read
from dlbench.analysis.export.tabular import FILE_FORMATS
from dlbench.core.measurement import measurement_to_json
from dlbench.core.writer import ResultWriter

PAGE = (front_door.ROOT / "docs" / "export.md").read_text()
ONE_FILE = ("pyperf", "google-benchmark", "bencher")
HEADER: dict[str, Any] = {
    "dlbench": "0.1.0",
    "environment": {
        "identity": {"architecture": "x86_64", "os": "Linux", "cpu": {"name": made_up.CPU, "threads": 4}},
        "stack": {"versions": {"python": "3.11.7", "torch": "2.13.0"}},
        "state": {"cpu": {"load_1min": 0.5, "clock_hz": 2e9, "governor": "powersave"}},
        "provenance": {"utc": "2026-01-31T12:00:00+00:00"},
    },
}
CASE = made_up.case("infer_step", model="resnet18", batch=4, dtype="fp32")
ID = CASE.id
ODD = made_up.ended(made_up.case("matmul", n=64), made_up.Status.FAILED, "it is odd")


def needs(package: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(importlib.util.find_spec(package) is None, reason=f"needs {package}")


@pytest.fixture
def run_file(tmp_path: Path) -> Path:
    """The run that docs/export.md shows in every format."""
    writer = ResultWriter.create(tmp_path / "run.jsonl", HEADER)
    started = {"started": "2026-01-31T12:00:04.500+00:00"}
    for each in made_up.rounds_of(CASE, [[0.25, 0.5, 0.25], [0.5, 0.5, 0.5]], 2, items=4, flops=None, **started):
        writer.append(measurement_to_json(each))
    writer.append({"kind": "footer"})
    writer.close()
    return writer.path


@pytest.fixture
def mixed_file(tmp_path: Path) -> Path:
    """Two cases that are ok, on two devices, and one that is not."""
    return made_up.write(tmp_path / "mixed.jsonl", [*made_up.both_kinds(rounds=2)[:4], ODD])


def shown(form: str) -> list[Any]:
    """The JSON blocks of the page's section of a format."""
    section = re.split(r"^## ", PAGE.split(f"\n## {form}\n")[1], maxsplit=1, flags=re.MULTILINE)[0]
    return [json.loads(block) for block in re.findall(r"^```json\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)]


@pytest.mark.parametrize("form", ONE_FILE)
def test_the_page_shows_what_goes_to_stdout(run_file: Path, form: str) -> None:
    done = in_process(run_file.parent, "export", "run.jsonl", "--to", form)
    assert (done.code, done.err) == (0, "")
    assert [json.loads(done.out, parse_constant=pytest.fail)] == shown(form)


@pytest.mark.parametrize(("output", "prefix"), [("out/run", "run-"), ("out", "")])
def test_the_page_shows_the_two_files_of_github_action_benchmark(run_file: Path, output: str, prefix: str) -> None:
    folder = run_file.parent / "out"
    folder.mkdir()
    done = in_process(run_file.parent, "export", "run.jsonl", "--to", "github-action-benchmark", "-o", output)
    assert (done.code, done.out, done.err) == (0, "", "")
    written = {path.name: json.loads(path.read_text()) for path in folder.iterdir()}
    smaller, bigger = shown("github-action-benchmark")
    assert written == {f"{prefix}smaller-is-better.json": smaller, f"{prefix}bigger-is-better.json": bigger}


def test_csv_is_the_table_that_show_prints(mixed_file: Path) -> None:
    exported = in_process(mixed_file.parent, "export", "mixed.jsonl", "--to", "csv")
    table = in_process(mixed_file.parent, "show", "mixed.jsonl", "--format", "csv").out
    assert (exported, table.count("\n")) == (front_door.Done(0, table, ""), 4)


@needs("pyarrow")
def test_parquet_reads_back_as_the_table_with_its_types(mixed_file: Path) -> None:
    assert in_process(mixed_file.parent, "export", "mixed.jsonl", "--to", "parquet", "-o", "mixed.parquet").code == 0
    found = pd.read_parquet(mixed_file.parent / "mixed.parquet")
    pd.testing.assert_frame_equal(found, read(mixed_file))
    columns = json.loads(found[["case.status", "param.batch", "flag.noisy"]].to_json(orient="values"))
    assert columns == [["failed", None, None], ["ok", 8, None], ["ok", 8, None]]


def test_parquet_without_pyarrow_is_a_sentence_with_the_remedy(run_file: Path) -> None:
    hidden = front_door.without(run_file.parent, "pyarrow")
    done = dlbench("export", "run.jsonl", "--to", "parquet", "-o", "run.parquet", cwd=run_file.parent, variables=hidden)
    sentence = "dlbench: parquet needs the package pyarrow, which is not installed here; add it: pip install pyarrow\n"
    assert (done, (run_file.parent / "run.parquet").exists()) == (front_door.Done(2, "", sentence), False)


FILES: dict[str, Callable[[Path], object]] = {
    "mixed": lambda path: made_up.write(path, [*made_up.both_kinds(rounds=2)[:4], ODD]),
    "interrupted": lambda path: made_up.write(path, made_up.rounds_of(CASE, [[1.0]]), planned=3, finished=False),
    "without items": lambda path: made_up.write(path, made_up.rounds_of(CASE, [[1.0]], items=None, flops=None)),
    "without times": lambda path: made_up.write(path, [made_up.ended(CASE, made_up.Status.OOM, "too large")]),
}


def test_what_is_left_out_or_refused_is_named_and_nothing_is_overwritten(tmp_path: Path, transcript: Callable[..., None]) -> None:
    def export(title: str) -> str:
        file, words, code = re.fullmatch("(.*): (.*), exit (.*)", title).groups()  # type: ignore[union-attr]  # or the title is wrong
        folder = tmp_path / str(len([*tmp_path.iterdir()]))
        FILES[file](folder / "run.jsonl")
        (folder / "x-bigger-is-better.json").write_text("mine")
        before = {path: path.read_bytes() for path in folder.iterdir()}
        done = in_process(folder, "export", "run.jsonl", "--to", *words.split())
        assert (done.code, all(path.read_bytes() == content for path, content in before.items())) == (int(code), True)
        written = [f"wrote {path.name}\n" for path in sorted({*folder.iterdir()} - {*before})]
        return "".join([done.err, *written, "wrote to stdout\n" * bool(done.out)])

    transcript("export", 11, export)


def test_a_full_disk_behind_stdout_is_74(run_file: Path) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("needs /dev/full")
    command = [sys.executable, "-m", "dlbench", "export", "run.jsonl", "--to", "csv"]
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            command, cwd=run_file.parent, env=front_door.environment(), stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert (done.returncode, done.stderr) == (74, "dlbench: cannot write stdout: No space left on device\n")


@pytest.mark.parametrize("form", [form for form in FILE_FORMATS if form != "parquet"])
def test_text_that_no_encoding_has_stays_out(tmp_path: Path, form: str) -> None:
    """A file of pyperf may hold it; dlbench writes none, and leaves out a line of its own that has it."""
    odd = {"name": "w\ud800\x1b", "cpu_model_name": "a\n\ud800\x1b", "python_version": "\ud800"}
    (tmp_path / "f.json").write_text(json.dumps({"version": "1.0", "metadata": odd, "benchmarks": [{"runs": [{"values": [1.0]}]}]}))
    assert in_process(tmp_path, "export", "f.json", "--to", form, "-o", "out").code == 0
    (text,) = [path.read_text() for path in tmp_path.glob("out*")]
    assert "w@cpu" in text
    assert [each for each in ("\\ud800", "\x1b", "\\u001b") if each in text] == []


def test_a_pyperf_file_is_shown_and_exported_like_our_own(run_file: Path) -> None:
    folder = run_file.parent
    assert in_process(folder, "export", "run.jsonl", "--to", "pyperf", "-o", "run.json").code == 0
    (row,) = json.loads(in_process(folder, "show", "run.json", "--format", "json").out)
    assert (row["case.id"], row["case.device_name"], row["time.median_s"], row["time.rounds"]) == (ID, made_up.CPU, 0.375, 2)
    latency = json.loads(in_process(folder, "export", "run.json", "--to", "bencher").out)[ID]
    assert latency == {"latency": shown("bencher")[0][ID]["latency"]}
    table = in_process(folder, "show", "run.json")
    assert (table.code, table.err) == (0, "")
    assert "infer_step resnet18 batch=4 fp32" in table.out


@needs("pyperf")
def test_pyperf_reads_and_compares_them(tmp_path: Path) -> None:
    for name, factor in (("a", 1), ("b", 2)):
        made_up.write(tmp_path / f"{name}.jsonl", [made_up.scaled(each, factor) for each in made_up.both_kinds()])
        assert in_process(tmp_path, "export", f"{name}.jsonl", "--to", "pyperf", "-o", f"{name}.json").code == 0
    compare = [sys.executable, "-m", "pyperf", "compare_to", "a.json", "b.json"]
    compared = subprocess.run(compare, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert compared.count("2.00x slower") >= 8
