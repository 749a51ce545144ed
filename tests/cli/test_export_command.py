"""``dlbench export`` as a user calls it, and its files in the tools that they are for."""

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import front_door
import made_up
import pytest
from front_door import dlbench, in_process

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
    failed = made_up.ended(made_up.case("matmul", n=64), made_up.Status.FAILED, "it is odd")
    return made_up.write(tmp_path / "mixed.jsonl", [*made_up.both_kinds(rounds=2)[:4], failed])


def shown(form: str) -> list[Any]:
    """The JSON blocks of the page's section of a format."""
    section = re.split(r"^## ", PAGE.split(f"\n## {form}\n")[1], maxsplit=1, flags=re.MULTILINE)[0]
    return [json.loads(block) for block in re.findall(r"^```json\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)]


@pytest.mark.parametrize("form", ONE_FILE)
def test_the_page_shows_what_goes_to_stdout(run_file: Path, form: str) -> None:
    done = in_process(run_file.parent, "export", "run.jsonl", "--to", form)
    assert (done.code, done.err) == (0, "")
    assert [json.loads(done.out, parse_constant=pytest.fail)] == shown(form)


def test_the_page_shows_the_two_files_of_github_action_benchmark(run_file: Path) -> None:
    (run_file.parent / "new").mkdir()
    done = in_process(run_file.parent, "export", "run.jsonl", "--to", "github-action-benchmark", "-o", "new/run")
    assert (done.code, done.out, done.err) == (0, "", "")
    written = [json.loads((run_file.parent / "new" / f"run-{each}-is-better.json").read_text()) for each in ("smaller", "bigger")]
    assert written == shown("github-action-benchmark")


def test_the_two_files_may_go_into_a_folder(run_file: Path) -> None:
    (run_file.parent / "out").mkdir()
    in_process(run_file.parent, "export", "run.jsonl", "--to", "github-action-benchmark", "-o", "out")
    assert sorted(path.name for path in (run_file.parent / "out").iterdir()) == ["bigger-is-better.json", "smaller-is-better.json"]


def test_a_direction_without_entries_has_no_file(tmp_path: Path) -> None:
    made_up.write(tmp_path / "run.jsonl", made_up.rounds_of(made_up.case("noop"), [[1.0]], items=None, flops=None))
    done = in_process(tmp_path, "export", "run.jsonl", "--to", "github-action-benchmark", "-o", "run")
    assert done.err == "note: no case states how many items or operations a call handles, so there is no run-bigger-is-better.json\n"
    assert (done.code, sorted(path.name for path in tmp_path.iterdir())) == (0, ["run-smaller-is-better.json", "run.jsonl"])


def test_csv_is_the_table_that_show_prints(mixed_file: Path) -> None:
    exported, table = (
        in_process(mixed_file.parent, *words)
        for words in (("export", "mixed.jsonl", "--to", "csv"), ("show", "mixed.jsonl", "--format", "csv"))
    )
    assert (exported.code, exported.out, exported.err) == (0, table.out, "")
    assert exported.out.count("\n") == 4


@needs("pyarrow")
def test_parquet_reads_back_as_the_table_with_its_types(mixed_file: Path) -> None:
    assert in_process(mixed_file.parent, "export", "mixed.jsonl", "--to", "parquet", "-o", "mixed.parquet").code == 0
    code = (
        "import pandas, dlbench; found, table = pandas.read_parquet('mixed.parquet'), dlbench.read('mixed.jsonl'); "
        "pandas.testing.assert_frame_equal(found, table); print(found[['case.status', 'param.batch', 'flag.noisy']].to_json())"
    )
    environment = front_door.environment()
    done = subprocess.run([sys.executable, "-c", code], cwd=mixed_file.parent, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert {name: list(column.values()) for name, column in json.loads(done.stdout).items()} == {
        "case.status": ["failed", "ok", "ok"],
        "param.batch": [None, 8, 8],
        "flag.noisy": [None, None, None],
    }


def test_parquet_without_pyarrow_is_a_sentence_with_the_remedy(run_file: Path) -> None:
    hidden = front_door.without(run_file.parent, "pyarrow")
    done = dlbench("export", "run.jsonl", "--to", "parquet", "-o", "run.parquet", cwd=run_file.parent, variables=hidden)
    assert (done.code, done.out) == (2, "")
    assert done.err == "dlbench: parquet needs the package pyarrow, which is not installed here; add it: pip install pyarrow\n"
    assert not (run_file.parent / "run.parquet").exists()


def test_what_is_not_exported_is_named(mixed_file: Path) -> None:
    done = in_process(mixed_file.parent, "export", "mixed.jsonl", "--to", "bencher")
    assert (done.code, done.err) == (0, "note: 1 of 3 cases not exported, failed: it is odd: matmul[n=64]@cpu\n")
    assert len(json.loads(done.out)) == 2


def test_what_a_file_lacks_is_a_note(tmp_path: Path) -> None:
    path = made_up.write(tmp_path / "run.jsonl", made_up.rounds_of(CASE, [[1.0]]), planned=3, finished=False)
    for form in ("csv", "pyperf"):
        done = in_process(tmp_path, "export", "run.jsonl", "--to", form)
        assert done.code == 0
        assert done.err.startswith(f"note: {path.name}: the run was interrupted or is still going on, at 1 of 3 planned cases; ")


@pytest.mark.parametrize("form", ["pyperf", "github-action-benchmark"])
def test_nothing_to_export_is_a_usage_error(tmp_path: Path, form: str) -> None:
    made_up.write(tmp_path / "run.jsonl", [made_up.ended(CASE, made_up.Status.OOM, "too large")])
    done = in_process(tmp_path, "export", "run.jsonl", "--to", form, "-o", "out")
    assert (done.code, done.out) == (2, "")
    assert done.err.splitlines()[1] == f"dlbench: run.jsonl has no case with times, so there is nothing to export to {form}"
    assert [path.name for path in tmp_path.iterdir()] == ["run.jsonl"]


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (("--to", "parquet"), 2, "parquet is not text, so it needs a name: add -o OUT"),
        (("--to", "github-action-benchmark"), 2, "github-action-benchmark makes two files, so it needs a name: add -o OUT"),
        (("--to", "csv", "-o", "run.jsonl"), 2, "run.jsonl exists and is never overwritten; choose another name"),
        (("--to", "csv", "-o", "no/such/x.csv"), 2, "there is no folder no/such to write x.csv in; make it, or choose another"),
        (("--to", "csv", "-o", "run.jsonl/x.csv"), 2, "there is no folder run.jsonl to write x.csv in; make it, or choose another"),
    ],
)
def test_wrong_outputs(run_file: Path, arguments: tuple[str, ...], code: int, sentence: str) -> None:
    before = run_file.read_bytes()
    done = in_process(run_file.parent, "export", "run.jsonl", *arguments)
    assert (done.code, done.out, done.err) == (code, "", f"dlbench: {sentence}\n")
    assert [(path.name, path.read_bytes()) for path in run_file.parent.iterdir()] == [("run.jsonl", before)]


def test_where_one_of_two_files_exists_none_is_written(run_file: Path) -> None:
    (run_file.parent / "x-bigger-is-better.json").write_text("mine")
    done = in_process(run_file.parent, "export", "run.jsonl", "--to", "github-action-benchmark", "-o", "x")
    assert (done.code, done.err) == (2, "dlbench: x-bigger-is-better.json exists and is never overwritten; choose another name\n")
    assert sorted(path.name for path in run_file.parent.iterdir()) == ["run.jsonl", "x-bigger-is-better.json"]


def test_a_full_disk_behind_stdout_is_74(run_file: Path) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("needs /dev/full")
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "dlbench", "export", "run.jsonl", "--to", "csv"],
            cwd=run_file.parent,
            env=front_door.environment(),
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
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


def consumer(*words: str, cwd: Path) -> str:
    """What another tool prints, run as a module of this Python."""
    done = subprocess.run([sys.executable, "-m", *words], cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def two_runs(tmp_path: Path) -> Path:
    """A folder with two runs of the same cases, the second twice as slow."""
    made_up.write(tmp_path / "a.jsonl", made_up.both_kinds())
    made_up.write(tmp_path / "b.jsonl", [made_up.scaled(each, 2) for each in made_up.both_kinds()])
    return tmp_path


@needs("pyperf")
def test_pyperf_reads_and_compares_them(two_runs: Path) -> None:
    for name in ("a", "b"):
        assert in_process(two_runs, "export", f"{name}.jsonl", "--to", "pyperf", "-o", f"{name}.json").code == 0
    compared = consumer("pyperf", "compare_to", "a.json", "b.json", cwd=two_runs)
    assert compared.count("2.00x slower") >= 8
