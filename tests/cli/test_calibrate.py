"""``dlbench calibrate`` by the front door: sessions into a folder, and what compare then knows."""

import json
import os
import re
import signal
from pathlib import Path

import front_door
import pytest
import shared_hosts

pytestmark = pytest.mark.real

SPIN = 'workload = "spin"\naxes.seconds = [1e-4, 2e-4]'
FOLDER = Path("results", "calibration")
ONE_ROUND = front_door.HASTY.replace("rounds = 2", "rounds = 1")


def calibrate(folder: Path, *arguments: str) -> front_door.Done:
    return shared_hosts.dlbench("calibrate", *arguments, cwd=folder)


def test_sessions_become_a_calibration_that_compare_uses(tmp_path: Path) -> None:
    mine = front_door.suite(tmp_path, SPIN, head=ONE_ROUND)
    first = calibrate(tmp_path, mine)
    assert first.code == 0, first.err
    ids = [f"spin[seconds={seconds}]@cpu" for seconds in ("0.0001", "0.0002")]
    assert first.err.splitlines()[-1] == (
        "note: no case was measured in two sessions yet, so their noise is not known; call dlbench calibrate again at another time"
    )
    assert list((tmp_path / FOLDER).glob("*.json")) == []

    # One more of the same software, and one of other software.
    (run,) = (tmp_path / FOLDER).glob("*.jsonl")
    run = run.rename(run.with_name("first.jsonl"))  # the second is named by its second
    text = run.read_text()
    environment = json.loads(text.splitlines()[0])["environment"]
    run.with_name("copy.jsonl").write_text(text)
    run.with_name("older.jsonl").write_text(text.replace(environment["stack_key"], "another"))
    again = calibrate(tmp_path, mine)
    assert again.code == 0, again.err
    _, heading, _, *rows, _ = again.out.splitlines()
    assert re.split(" {2,}", heading.strip())[:3] == ["case", "sessions", "sd of median"]
    assert [re.split(" {2,}", row.strip())[:2] for row in rows] == [[f"spin seconds={s} on cpu", "3"] for s in ("0.0001", "0.0002")]
    kept = FOLDER / f"{environment['machine_key']}.json"
    assert again.err.splitlines()[-3:] == [
        "note: left out, as of another machine or other software: 1 of 4 files in results/calibration",
        "note: 3 sessions are few, and compare allows for that; 5 or more tell much better",
        f"saved in {kept}, for dlbench compare",
    ]
    found = json.loads((tmp_path / kept).read_text())
    assert (found["machine_key"], found["pooled"]["occasions"], list(found["cases"])) == (environment["machine_key"], 3, ids)

    compared = front_door.in_process(tmp_path, "compare", *(str(FOLDER / name) for name in (run.name, "copy.jsonl")))
    assert f"the noise between sessions in {kept}: 3 sessions from 20" in compared.err


def test_a_mistake_is_named_before_anything_is_measured(tmp_path: Path) -> None:
    right = "did you mean 'quick'? (a suite of your own is a path that ends in .toml)"
    assert calibrate(tmp_path, "quikc") == front_door.Done(2, "", f"dlbench: no suite is called 'quikc'; {right}\n")
    (tmp_path / FOLDER).mkdir(parents=True)
    (tmp_path / FOLDER / "old.jsonl").write_text("hello\n")
    sentence = f"dlbench: {FOLDER}/old.jsonl, line 1: no dlbench header; give a file that dlbench run wrote\n"
    assert calibrate(tmp_path) == front_door.Done(2, "", sentence)


def test_a_case_that_failed_is_5(tmp_path: Path) -> None:
    mine = front_door.suite(tmp_path, 'workload = "raises"', head=ONE_ROUND)
    assert calibrate(tmp_path, mine, front_door.FAULTS).code == 5


def test_an_interruption_keeps_what_was_measured(tmp_path: Path) -> None:
    mine = front_door.suite(tmp_path, SPIN, head="[policy]\nrounds = 1000\nmax_rounds = 1000\nround_s = 0.01\nmax_warmup_s = 0.1\n")
    process = front_door.start("calibrate", mine, cwd=tmp_path)
    assert process.stderr is not None
    next(line for line in process.stderr if "spin" in line)
    os.kill(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    (file,) = (tmp_path / FOLDER).glob("*.jsonl")
    assert front_door.measurements(file)


def test_a_calibration_that_cannot_be_kept_is_74(tmp_path: Path) -> None:
    (tmp_path / "results").write_text("")
    done = calibrate(tmp_path, front_door.suite(tmp_path, SPIN))
    assert (done.code, "cannot write results/calibration/" in done.err) == (74, True)
