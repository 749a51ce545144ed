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
from shared_hosts import run

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


def resume(folder, *arguments, file="o.jsonl"):
    done = shared_hosts.dlbench("run", "--resume", file, *arguments, cwd=folder)
    assert done.code == 0, done.err
    return done


def edited(folder, name, edit):
    """Write the file anew as ``edit`` has its lines, or without those of which it returns False, and return its name."""
    kept = [line for line in lines(folder / "o.jsonl") if edit(line) is not False]
    (folder / name).write_text("".join(f"{json.dumps(line)}\n" for line in kept))
    return name


ON_CPU = (SEARCHING, "--device", "cpu", "--rounds", "1")


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """A run that was killed while it searched, its files as they were left, and gone on with."""
    folder = tmp_path_factory.mktemp("killed")
    temporary = folder / "temporary"
    temporary.mkdir()
    suite = front_door.suite(folder, FILL, CHOOSE, 'workload = "write"\naxes.path = "temporary"')
    process = start("run", suite, SEARCHING, "--device", "cpu", "-o", "o.jsonl", "--seed", "22", cwd=folder)
    path, deadline = folder / "o.jsonl", time.monotonic() + 60
    while not path.exists() or path.read_text().count('"try"') < 3 or not list(temporary.iterdir()):
        assert time.monotonic() < deadline
        assert process.poll() is None, process.communicate()
        time.sleep(0.005)
    process.kill()
    process.communicate()
    before, left = path.read_bytes(), list(temporary.iterdir())
    (folder / "killed.jsonl").write_bytes(before[: before.rindex(b"\n") + 1])
    return folder, left, resume(folder)


def test_a_killed_search_goes_on_with_the_tries_that_it_made_and_no_folder_is_left(killed):
    folder, left, done = killed
    before, after = tries(folder / "killed.jsonl"), tries(folder / "o.jsonl")
    assert after[: len(before)] == before
    assert len(after) > len(before) >= 3
    assert len(set(ids(after))) == len(after)
    assert {each["round"] for each in after} == {0}
    assert done.err.count(": tried ") == len(after) - len(before)
    (largest,) = [each for each in measurements(folder / "o.jsonl") if each["case"]["id"] == LARGEST]
    assert 0.9 * FITS <= largest["values"]["largest_batch"] <= FITS
    assert (largest["round"], largest["limit_bytes"]) == (0, int(0.1 * 2**30))
    assert largest["found"] == {"batch": largest["values"]["largest_batch"]}
    chosen = [each for each in measurements(folder / "o.jsonl") if each["case"]["workload"] == "choose"]
    assert [(each["round"], each["found"].keys()) for each in chosen] == [(0, {"dtype", "batch"}), (1, {"dtype", "batch"})]
    assert chosen[0]["found"] == chosen[1]["found"]
    # Those of the killed run are gone with the next.
    assert [each.name.startswith("dlbench-scratch-") for each in left] == [True]
    assert list((folder / "temporary").iterdir()) == []


def test_tries_stand_outside_of_what_is_planned_shown_and_published(killed):
    """Two rounds are too few for a reference; tries end with reasons, in words that may be anybody's."""
    folder, *_ = killed
    results = collect((folder / "o.jsonl",))
    assert (lines(folder / "o.jsonl")[0]["planned"], len(results.rows)) == ({"count": 3}, 3)
    assert [row.case.id for row in results.tries] == ids(tries(folder / "o.jsonl"))
    shown = front_door.in_process(folder, "show", "o.jsonl").out
    assert ("3 cases" in shown, "found dtype=" in shown) == (True, True)
    for form in ("csv", "pyperf"):
        exported = front_door.in_process(folder, "export", "o.jsonl", "--to", form, "-o", f"all.{form}")
        assert exported.code == 0, exported.err
        assert "fill[batch=" not in (folder / f"all.{form}").read_text()
    few = front_door.in_process(folder, "contribute", "o.jsonl").err.partition(" had fewer than 6 rounds")[0]
    assert ("write[" in few, "fill[" in few) == (True, False)
    run_file = load(folder / "o.jsonl")
    assert "try" not in {each["kind"] for each in public_records(run_file)}
    found = {"batch": 8, "mode": "compile", "path": "/home/somebody", "a b": "word"}
    measured = replace(run_file.measurements[0], found=found)
    assert list(public_records(replace(run_file, measurements=(measured,))))[1]["found"] == {"batch": 8, "mode": "compile"}


@pytest.mark.parametrize(("factor", "verdict", "code"), [(1.0, "same", 4), (0.97, "same", 4), (0.8, "slower", 3), (1.5, "faster", 4)])
def test_what_was_found_is_judged_by_its_threshold_alone(killed, factor, verdict, code):
    """One value a run is too few for a test of ranks; two rounds are for the times beside it, which stay inconclusive."""
    folder, *_ = killed

    def edit(line):
        if line["kind"] == "measurement" and line["case"]["id"] == LARGEST:
            line["values"]["largest_batch"] *= factor

    done = front_door.in_process(folder, "compare", "o.jsonl", edited(folder, "new.jsonl", edit), "--format", "json")
    cases = front_door.verdicts(done)
    assert (done.code, cases[LARGEST]["compare.verdict"], len(cases)) == (code, verdict, 3)
    assert "fill[batch=" not in done.out


def test_searches_that_found_other_settings_are_not_compared_by_time(killed):
    """The faster of two may take longer for a call, of a larger batch."""
    folder, *_ = killed

    def edit(line):
        if line["kind"] == "measurement" and line.get("found", {}).get("dtype"):
            line["found"]["batch"] *= 2
            line["samples"]["block_s"] = [seconds * 1.6 for seconds in line["samples"]["block_s"]]

    done = front_door.in_process(folder, "compare", "o.jsonl", edited(folder, "other.jsonl", edit), "--format", "json")
    (fastest,) = [row for case, row in front_door.verdicts(done).items() if case.startswith("choose")]
    assert (fastest["compare.verdict"], "found.batch: " in fastest["compare.note"]) == ("incomparable", True)


@pytest.mark.parametrize("batch", ["abc", None])
def test_a_try_that_was_edited_is_made_again(killed, batch):
    folder, *_ = killed

    def edit(line):
        if line["kind"] == "try" and line["case"]["workload"] == "fill":
            line["case"]["params"] |= {"batch": batch}
            line["case"]["params"] = {name: value for name, value in line["case"]["params"].items() if value is not None}
        return line["kind"] != "footer" and not (line["kind"] == "measurement" and line["case"]["id"] == LARGEST)

    name = edited(folder, f"edited-{batch}.jsonl", edit)
    resume(folder, file=name)
    assert [each for each in measurements(folder / name) if each["case"]["id"] == LARGEST][-1]["found"]


def test_a_budget_that_runs_out_is_said_and_more_of_it_goes_on(tmp_path, monkeypatch):
    suite = front_door.suite(tmp_path, FILL)
    with monkeypatch.context() as patch:
        patch.setattr(runner.Runner, "_left_s", lambda self: 1.0 - len(self.tried))
        done, (row,) = run(tmp_path, suite, *ON_CPU, "--budget", "10m", code=4)
    (made,) = tries(tmp_path / "o.jsonl")
    assert "note: the budget left out 1 case; go on with: dlbench run --resume o.jsonl --budget TIME" in done.err
    assert (row["status"], row["case"]["id"], row["found"]) == ("skipped", LARGEST, {"batch": made["case"]["params"]["batch"]})
    assert row["reason"].endswith("the budget ran out after 1 try; go on with --resume and a larger --budget")
    resume(tmp_path, "--budget", "60s")
    assert tries(tmp_path / "o.jsonl")[0] == made
    assert measurements(tmp_path / "o.jsonl")[-1]["found"]


def test_a_limit_that_can_not_be_or_that_a_device_lacks_is_a_row_with_a_sentence(tmp_path):
    done, (row,) = run(tmp_path, front_door.suite(tmp_path, 'workload = "fill"\naxes.memory_gib = 1e6'), *ON_CPU)
    assert (row["status"], "the budget" in done.err, tries(tmp_path / "o.jsonl")) == ("skipped", False, [])
    assert row["reason"].startswith("memory_gib=1e+06 is more than the ")
    (tmp_path / "o.jsonl").unlink()
    options = (SEARCHING, front_door.PRETEND, "--device", "pretend:0", "--rounds", "1")
    _, (row,) = run(tmp_path, front_door.suite(tmp_path, FILL), *options)
    assert row["status"] == "unsupported"
    assert row["reason"].startswith("batch=1: dlbench can't limit the memory of pretend devices")


def test_a_place_that_goes_while_it_is_measured_is_a_row_with_a_sentence(tmp_path, monkeypatch):
    """What was there before the first case, as a disk that is taken out."""
    monkeypatch.setattr("dlbench.cli.session.refuse_unwritable", lambda place: None)
    (tmp_path / "file").touch()
    suite = front_door.suite(tmp_path, f'workload = "write"\naxes.path = ["{tmp_path}/file", "{tmp_path}/none"]')
    _, rows = run(tmp_path, suite, *ON_CPU, code=5)
    found = {row["case"]["params"]["path"]: (row["status"], row["reason"]) for row in rows}
    none = f"no folder can be made in {tmp_path}"
    assert found[f"{tmp_path}/file"] == ("failed", f"{none}/file: Not a directory; name one that can be written")
    assert found[f"{tmp_path}/none"][1].startswith(f"{none}/none: No such file")


def test_a_search_goes_on_where_cudnn_says_that_it_has_no_plan_for_want_of_memory(tmp_path):
    """torch catches the allocator's error of each plan; only its count tells that memory ran out."""
    suite = front_door.suite(tmp_path, 'workload = "convolve"\naxes.memory_gib = 0.1', 'workload = "convolve_nothing"')
    _, rows = run(tmp_path, suite, SEARCHING, "--device", "card:0", "--rounds", "1")
    found = {row["case"]["workload"]: row for row in rows}
    assert 0.9 * FITS <= found["convolve"]["found"]["batch"] <= FITS
    made = {(each["status"], each["limit_bytes"]) for each in tries(tmp_path / "o.jsonl")}
    assert made == {(status, int(0.1 * 2**30)) for status in ("ok", "oom")}
    assert found["convolve_nothing"]["status"] == "unsupported"


def test_in_one_process_a_limit_ends_with_its_case_and_ctrl_c_keeps_the_tries(tmp_path):
    """After a search under 0.1 GiB, a case that takes more than that goes well."""
    suite = front_door.suite(tmp_path, FILL, 'workload = "fill"\naxes.batch = 100')
    arguments = (*ON_CPU, "--isolation", "none", "--seed", "2", "-o", "o.jsonl")
    process, path = start("run", suite, *arguments, cwd=tmp_path), tmp_path / "o.jsonl"
    while not (path.exists() and '"try"' in path.read_text()):
        assert process.poll() is None
        time.sleep(0.005)
    os.kill(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, "go on with: dlbench run --resume o.jsonl" in err) == (130, True), err
    made = tries(path)
    done = front_door.dlbench("run", "--resume", "o.jsonl", cwd=tmp_path)
    assert done.code == 0, done.err
    assert {row["status"] for row in measurements(path)} == {"ok"}
    assert tries(path)[: len(made)] == made


def test_threads_are_searched_on_a_cpu_and_nowhere_else(tmp_path):
    suite = front_door.suite(tmp_path, 'workload = "spread"')
    _, rows = run(tmp_path, suite, *ON_CPU, front_door.PRETEND, "--device", "pretend:0")
    made = {device: [each for each in tries(tmp_path / "o.jsonl") if each["case"]["device"] == device] for device in ("cpu", "pretend:0")}
    usual = made["cpu"][0]["threads"]
    asked = {each["case"]["params"].get("threads"): (each["status"], each["threads"]) for each in made["cpu"]}
    assert asked[None] == ("ok", usual)
    assert asked.keys() >= {2 * usual, *([usual // 2] if usual > 1 else [])}
    assert all(status in ("ok", "unsupported") and used == threads for threads, (status, used) in asked.items() if threads)
    assert [each["case"]["params"] for each in made["pretend:0"]] == [{"dtype": "fp32"}, {"dtype": "bf16"}]
    found = {row["case"]["device"]: row["found"].keys() for row in rows}
    assert found["pretend:0"] == {"dtype"} <= found["cpu"] <= {"dtype", "threads"}


def test_both_sides_of_an_ab_search(tmp_path):
    suite = front_door.suite(tmp_path, 'workload = "fill"\naxes.memory_gib = 0.03')
    arguments = (SEARCHING, "--device", "cpu", "--rounds", "2", "-o", "o.jsonl", "--b", "env=ANY=1")
    done = shared_hosts.dlbench("ab", suite, *arguments, cwd=tmp_path)
    assert (done.code, "same" in done.out) == (0, True), done.err
    made = [(each["side"], each["case"]["id"]) for each in tries(tmp_path / "o.jsonl")]
    assert ({side for side, _ in made}, len(set(made))) == ({"a", "b"}, len(made))
    assert sorted(each["side"] for each in measurements(tmp_path / "o.jsonl")) == ["a", "b"]
