"""Runs whose plan grows: what is open is found by tries, which nothing compares, and a killed run goes on with them."""

import json
import os
import signal
import time
from dataclasses import replace

import front_door
import pytest
import shared_hosts
from front_door import PLUGINS, lines, measurements, start

from dlbench.analysis.contribute.public import public_records
from dlbench.analysis.read.table import collect
from dlbench.core.store import load
from dlbench.harness import runner

pytestmark = pytest.mark.real

SEARCHING = str(PLUGINS / "searching.py")
FILL = 'workload = "fill"\naxes.memory_gib = 0.1'
CHOOSE = 'workload = "choose"\naxes.n = 100'
LARGEST = "fill[memory_gib=0.1]@cpu"
FITS = 51  # of 2 MiB each in 0.1 GiB, of which the process takes some


def tries(path):
    return [line for line in lines(path) if line["kind"] == "try"]


def ids(rows):
    return [each["case"]["id"] for each in rows]


def run(folder, *arguments):
    return shared_hosts.dlbench("run", *arguments, cwd=folder)


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """A run that was killed while it searched, its files as they were left, and gone on with."""
    folder = tmp_path_factory.mktemp("killed")
    temporary = folder / "temporary"
    temporary.mkdir()
    suite = front_door.suite(folder, FILL, CHOOSE, 'workload = "write"\naxes.path = "temporary"')
    process = start("run", suite, SEARCHING, "--device", "cpu", "-o", "o.jsonl", "--seed", "22", cwd=folder)
    path, deadline = folder / "o.jsonl", time.monotonic() + 60

    def written():
        return path.read_text().splitlines() if path.exists() else []

    while sum('"try"' in line for line in written()) < 3 or not list(temporary.iterdir()):
        assert time.monotonic() < deadline
        assert process.poll() is None, process.communicate()
        time.sleep(0.005)
    process.kill()
    process.communicate()
    before, left = path.read_bytes(), list(temporary.iterdir())
    (folder / "killed.jsonl").write_bytes(before[: before.rindex(b"\n") + 1])
    done = run(folder, "--resume", "o.jsonl")
    assert done.code == 0, done.err
    return folder, left, done


def test_a_killed_search_goes_on_with_the_tries_that_it_made(killed):
    folder, _, done = killed
    before, after = tries(folder / "killed.jsonl"), tries(folder / "o.jsonl")
    assert after[: len(before)] == before
    assert len(after) > len(before) >= 3
    assert len(set(ids(after))) == len(after)
    assert {each["round"] for each in after} == {0}
    assert done.err.count(": tried ") == len(after) - len(before)
    largest = [each for each in measurements(folder / "o.jsonl") if each["case"]["id"] == LARGEST]
    assert [each["round"] for each in largest] == [0]
    assert 0.9 * FITS <= largest[0]["values"]["largest_batch"] <= FITS
    assert largest[0]["found"] == {"batch": largest[0]["values"]["largest_batch"]}
    assert largest[0]["limit_bytes"] == int(0.1 * 2**30)
    chosen = [each for each in measurements(folder / "o.jsonl") if each["case"]["workload"] == "choose"]
    assert [each["round"] for each in chosen] == [0, 1]
    assert chosen[0]["found"] == chosen[1]["found"]
    assert chosen[0]["found"].keys() == {"dtype", "batch"}


def test_folders_are_gone_after_the_end_and_those_of_a_killed_run_with_the_next(killed):
    folder, left, _ = killed
    assert [each.name.startswith("dlbench-scratch-") for each in left] == [True]
    assert list((folder / "temporary").iterdir()) == []


def test_tries_stand_outside_of_what_is_planned_shown_and_published(killed):
    folder, *_ = killed
    results = collect((folder / "o.jsonl",))
    assert lines(folder / "o.jsonl")[0]["planned"] == {"count": 3}
    assert len(results.rows) == 3
    assert [row.case.id for row in results.tries] == ids(tries(folder / "o.jsonl"))
    shown = front_door.in_process(folder, "show", "o.jsonl")
    assert "3 cases" in shown.out
    assert "found dtype=" in shown.out
    for form in ("csv", "pyperf", "jsonl"):
        exported = front_door.in_process(folder, "export", "o.jsonl", "--to", form, "-o", f"all.{form}")
        assert exported.code in (0, 2), exported.err  # 2: no such form
        if exported.code == 0:
            assert "fill[batch=" not in (folder / f"all.{form}").read_text()


def test_of_a_search_a_reference_run_has_what_it_found_and_no_try(killed):
    """Two rounds are too few for the others; tries end with reasons, in words that may be anybody's."""
    folder, *_ = killed
    refused = front_door.in_process(folder, "contribute", "o.jsonl").err
    few = refused.partition(" had fewer than 6 rounds")[0]
    assert "write[" in few
    assert "fill[" not in few
    run_file = load(folder / "o.jsonl")
    assert "try" not in {each["kind"] for each in public_records(run_file)}
    found = {"batch": 8, "mode": "compile", "path": "/home/somebody", "a b": "word"}
    measured = replace(run_file.measurements[0], found=found)
    assert list(public_records(replace(run_file, measurements=(measured,))))[1]["found"] == {"batch": 8, "mode": "compile"}


def edited(folder, name, factor):
    """The file with another largest batch, where all tries are as they were."""
    texts = []
    for line in lines(folder / "o.jsonl"):
        if line["kind"] == "measurement" and line["case"]["id"] == LARGEST:
            line["values"]["largest_batch"] *= factor
        texts.append(json.dumps(line))
    (folder / name).write_text("\n".join(texts) + "\n")
    return name


@pytest.mark.parametrize(("factor", "verdict", "code"), [(1.0, "same", 4), (0.97, "same", 4), (0.8, "slower", 3), (1.5, "faster", 4)])
def test_what_was_found_is_judged_by_its_threshold_alone(killed, factor, verdict, code):
    """One value a run is too few for a test of ranks; two rounds are for the times beside it, which stay inconclusive."""
    folder, *_ = killed
    done = front_door.in_process(folder, "compare", "o.jsonl", edited(folder, "new.jsonl", factor), "--format", "json")
    cases = {each["compare.case"]: each for each in json.loads(done.out)}
    assert cases[LARGEST]["compare.verdict"] == verdict
    assert len(cases) == 3
    assert done.code == code
    assert "fill[batch=" not in done.out


def test_searches_that_found_other_settings_are_not_compared_by_time(killed):
    """The faster of two may take longer for a call, of a larger batch."""
    folder, *_ = killed
    texts = []
    for line in lines(folder / "o.jsonl"):
        if line["kind"] == "measurement" and line.get("found", {}).get("dtype"):
            line["found"]["batch"] *= 2
            line["samples"]["block_s"] = [seconds * 1.6 for seconds in line["samples"]["block_s"]]
        texts.append(json.dumps(line))
    (folder / "other.jsonl").write_text("\n".join(texts) + "\n")
    cases = json.loads(front_door.in_process(folder, "compare", "o.jsonl", "other.jsonl", "--format", "json").out)
    (fastest,) = [each for each in cases if each["compare.case"].startswith("choose")]
    assert fastest["compare.verdict"] == "incomparable"
    assert "found.batch: " in fastest["compare.note"]


@pytest.mark.parametrize("batch", ["abc", None])
def test_a_try_that_was_edited_is_made_again(killed, batch):
    folder, *_ = killed
    texts = []
    for line in lines(folder / "o.jsonl")[:-1]:
        if line["kind"] == "try" and line["case"]["workload"] == "fill":
            line["case"]["params"]["batch"] = batch
            line["case"]["params"] = {name: value for name, value in line["case"]["params"].items() if value is not None}
        if line["kind"] != "measurement" or line["case"]["id"] != LARGEST:
            texts.append(json.dumps(line))
    (folder / f"edited-{batch}.jsonl").write_text("\n".join(texts) + "\n")
    assert run(folder, "--resume", f"edited-{batch}.jsonl").code == 0
    assert [each for each in measurements(folder / f"edited-{batch}.jsonl") if each["case"]["id"] == LARGEST][-1]["found"]


def test_a_budget_that_runs_out_is_said_and_more_of_it_goes_on(tmp_path, monkeypatch):
    suite = front_door.suite(tmp_path, FILL)
    with monkeypatch.context() as patch:
        patch.setattr(runner.Runner, "_left_s", lambda self: 1.0 - len(self.tried))
        done = run(tmp_path, suite, SEARCHING, "--device", "cpu", "--rounds", "1", "--budget", "10m", "-o", "o.jsonl")
    (row,) = measurements(tmp_path / "o.jsonl")
    made = tries(tmp_path / "o.jsonl")
    assert done.code == 4, done.err
    assert "note: the budget left out 1 case; go on with: dlbench run --resume o.jsonl --budget TIME" in done.err
    assert (row["status"], row["case"]["id"]) == ("skipped", LARGEST)
    assert len(made) == 1
    assert row["found"] == {"batch": made[0]["case"]["params"]["batch"]}
    assert row["reason"].endswith("the budget ran out after 1 try; go on with --resume and a larger --budget")
    assert run(tmp_path, "--resume", "o.jsonl", "--budget", "60s").code == 0
    assert tries(tmp_path / "o.jsonl")[: len(made)] == made
    assert measurements(tmp_path / "o.jsonl")[-1]["found"]


def test_a_limit_that_can_not_be_is_a_row_with_a_sentence(tmp_path):
    suite = front_door.suite(tmp_path, 'workload = "fill"\naxes.memory_gib = 1e6')
    done = run(tmp_path, suite, SEARCHING, "--device", "cpu", "--rounds", "1", "-o", "o.jsonl")
    (row,) = measurements(tmp_path / "o.jsonl")
    assert (done.code, row["status"], "the budget" in done.err) == (0, "skipped", False)
    assert row["reason"].startswith("memory_gib=1e+06 is more than the ")
    assert tries(tmp_path / "o.jsonl") == []


def test_a_place_that_goes_while_it_is_measured_is_a_row_with_a_sentence(tmp_path, monkeypatch):
    """What was there before the first case, as a disk that is taken out."""
    monkeypatch.setattr("dlbench.cli.session.refuse_unwritable", lambda place: None)
    (tmp_path / "file").touch()
    suite = front_door.suite(tmp_path, f'workload = "write"\naxes.path = ["{tmp_path}/file", "{tmp_path}/none"]')
    done = run(tmp_path, suite, SEARCHING, "--device", "cpu", "--rounds", "1", "-o", "o.jsonl")
    rows = {row["case"]["id"]: (row["status"], row["reason"]) for row in measurements(tmp_path / "o.jsonl")}
    assert done.code == 5
    assert rows[f"write[path={tmp_path}/file]@cpu"] == (
        "failed",
        f"no folder can be made in {tmp_path}/file: Not a directory; name one that can be written",
    )
    assert rows[f"write[path={tmp_path}/none]@cpu"][1].startswith(f"no folder can be made in {tmp_path}/none: No such file")


def test_an_accelerator_without_limits_is_unsupported(tmp_path):
    suite = front_door.suite(tmp_path, FILL)
    arguments = (SEARCHING, front_door.PRETEND, "--device", "pretend:0", "--rounds", "1", "-o", "o.jsonl")
    assert run(tmp_path, suite, *arguments).code == 0
    (row,) = measurements(tmp_path / "o.jsonl")
    assert row["status"] == "unsupported"
    assert row["reason"].startswith("batch=1: dlbench can't limit the memory of pretend devices")


def test_a_search_goes_on_where_cudnn_says_that_it_has_no_plan_for_want_of_memory(tmp_path):
    """torch catches the allocator's error of each plan; only its count tells that memory ran out."""
    suite = front_door.suite(tmp_path, 'workload = "convolve"\naxes.memory_gib = 0.1', 'workload = "convolve_nothing"')
    done = run(tmp_path, suite, SEARCHING, "--device", "card:0", "--rounds", "1", "-o", "o.jsonl")
    rows = {row["case"]["workload"]: row for row in measurements(tmp_path / "o.jsonl")}
    assert done.code == 0, done.err
    assert 0.9 * FITS <= rows["convolve"]["found"]["batch"] <= FITS
    made = {(each["status"], each["limit_bytes"]) for each in tries(tmp_path / "o.jsonl")}
    assert made == {(status, int(0.1 * 2**30)) for status in ("ok", "oom")}
    assert rows["convolve_nothing"]["status"] == "unsupported"


def test_in_one_process_a_limit_ends_with_its_case_and_ctrl_c_keeps_the_tries(tmp_path):
    """After a search under 0.1 GiB, a case that takes more than that goes well."""
    suite = front_door.suite(tmp_path, FILL, 'workload = "fill"\naxes.batch = 100')
    arguments = (SEARCHING, "--device", "cpu", "--isolation", "none", "--rounds", "1", "--seed", "2", "-o", "o.jsonl")
    process, path = start("run", suite, *arguments, cwd=tmp_path), tmp_path / "o.jsonl"
    while not (path.exists() and '"try"' in path.read_text()):
        assert process.poll() is None
        time.sleep(0.005)
    os.kill(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "go on with: dlbench run --resume o.jsonl" in err
    made = tries(path)
    done = front_door.dlbench("run", "--resume", "o.jsonl", cwd=tmp_path)
    assert done.code == 0, done.err
    assert {row["status"] for row in measurements(path)} == {"ok"}
    assert tries(path)[: len(made)] == made


def test_threads_are_searched_on_a_cpu_and_nowhere_else(tmp_path):
    suite = front_door.suite(tmp_path, 'workload = "spread"')
    plugins = (SEARCHING, front_door.PRETEND, "--device", "cpu", "--device", "pretend:0")
    done = run(tmp_path, suite, *plugins, "--rounds", "1", "-o", "o.jsonl")
    assert done.code == 0, done.err
    made = {device: [each for each in tries(tmp_path / "o.jsonl") if each["case"]["device"] == device] for device in ("cpu", "pretend:0")}
    usual = made["cpu"][0]["threads"]
    asked = {each["case"]["params"].get("threads"): (each["status"], each["threads"]) for each in made["cpu"]}
    assert asked[None] == ("ok", usual)
    assert asked.keys() >= {2 * usual, *([usual // 2] if usual > 1 else [])}
    assert all(status in ("ok", "unsupported") and used == threads for threads, (status, used) in asked.items() if threads)
    assert [each["case"]["params"] for each in made["pretend:0"]] == [{"dtype": "fp32"}, {"dtype": "bf16"}]
    found = {row["case"]["device"]: row["found"].keys() for row in measurements(tmp_path / "o.jsonl")}
    assert found["pretend:0"] == {"dtype"} <= found["cpu"] <= {"dtype", "threads"}


def test_both_sides_of_an_ab_search(tmp_path):
    suite = front_door.suite(tmp_path, 'workload = "fill"\naxes.memory_gib = 0.03')
    arguments = (SEARCHING, "--device", "cpu", "--rounds", "2", "-o", "o.jsonl", "--b", "env=ANY=1")
    done = shared_hosts.dlbench("ab", suite, *arguments, cwd=tmp_path)
    assert done.code == 0, done.err
    assert "same" in done.out
    made = tries(tmp_path / "o.jsonl")
    assert {each["side"] for each in made} == {"a", "b"}
    assert sorted(each["side"] for each in measurements(tmp_path / "o.jsonl")) == ["a", "b"]
    assert len({(each["side"], each["case"]["id"]) for each in made}) == len(made)
