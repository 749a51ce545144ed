"""``dlbench doctor`` and ``calibrate``: findings with an exit code that says whether to measure, and the noise between sessions."""

import json
import os
import re
import shutil
import signal
from pathlib import Path

import front_door
import pytest
import shared_hosts
from front_door import PRETEND

from dlbench.cli.commands import noise
from dlbench.core.machine import Finding, Fitness

pytestmark = pytest.mark.real

FINE = Finding("governor", "cpu", Fitness.FIT, "performance")
NOTED = Finding("power limit", "cuda:0", Fitness.NOTE, "450 W, usual are 700 W", "have it raised", {"watts": 450})
BAD = Finding("same code", "cpu", Fitness.UNFIT, "it differs", "quieten the machine", {"change": 0.25}, "matmul[n=512]@cpu")


def test_the_worst_finding_decides(capsys):
    for fit in ([FINE], [FINE, NOTED]):
        assert noise.write_findings(fit, "table") == 0
        assert capsys.readouterr().out.splitlines()[-1] == "fit to measure on now; exit 0"
    assert noise.write_findings([FINE, BAD, NOTED], "table") == 4
    assert capsys.readouterr().out.splitlines()[-1] == "unfit to measure on now: 1 of 3 checks failed; exit 4"


def test_as_data_the_conclusion_goes_to_stderr(capsys):
    assert noise.write_findings([FINE, BAD], "json") == 4
    written = capsys.readouterr()
    assert written.err == "unfit to measure on now: 1 of 2 checks failed; exit 4\n"
    rows = [
        ("same code", "cpu", "matmul[n=512]@cpu", "unfit", "it differs", "quieten the machine", 0.25),
        ("governor", "cpu", None, "fit", "performance", None, None),
    ]
    names = *(f"doctor.{name}" for name in ("check", "device", "case", "fitness", "found", "advice")), "value.change"
    assert json.loads(written.out) == [dict(zip(names, row, strict=True)) for row in rows]


@pytest.mark.usefixtures("hasty_doctor")
def test_really_on_this_machine(tmp_path):
    arguments = ("--rounds", "1", "--device", "cpu", "--device", "pretend:0", PRETEND, "--format", "json")
    done = shared_hosts.dlbench("doctor", *arguments, cwd=tmp_path)
    rows = json.loads(done.out)
    unfit = [row for row in rows if row["doctor.fitness"] == "unfit"]
    assert done.code == (4 if unfit else 0), done.err
    assert re.search(rf"(^|\n){'un' if unfit else ''}fit to measure on now.*; exit {done.code}\n$", done.err)
    checks = {device: {row["doctor.check"] for row in rows if row["doctor.device"] == device} for device in ("cpu", "pretend:0")}
    assert checks == {
        "cpu": {"memory", "governor", "quota", "hypervisor", "load", "stolen time", "throttling", "same code"},
        "pretend:0": {"driver", "throttling", "same code"},
    }
    products = ("matmul[n=512,dtype=fp32]", "matmul[n=1,m=4096,k=4096,dtype=fp32]")
    cases = {f"{product}@{device}" for product in products for device in ("cpu", "pretend:0")}
    assert {row["doctor.case"] for row in rows} == {None, "spin[]@cpu", *cases}
    assert all(row["doctor.advice"] for row in rows if row["doctor.fitness"] in ("unfit", "note"))
    assert list(tmp_path.iterdir()) == []


def test_a_device_that_is_not_there(tmp_path):
    done = shared_hosts.dlbench("doctor", "--device", "xpu:3", cwd=tmp_path)
    assert (done.code, done.out) == (69, "")
    assert "there is no device 'xpu:3' here" in done.err


@pytest.mark.usefixtures("hasty_doctor")
def test_a_selftest_measures_judges_and_says_what_is_too_little(tmp_path):
    done = shared_hosts.dlbench("doctor", "--selftest", "--rounds", "1", "--format", "json", cwd=tmp_path)
    rows = json.loads(done.out)
    assert done.code == 4
    unfit = sum(row["doctor.fitness"] == "unfit" for row in rows)
    assert done.err.splitlines()[-1] == f"self-test not passed: {unfit} of {len(rows)} checks failed; exit 4"
    found = {row["doctor.check"]: row["doctor.found"] for row in rows}
    assert found["measurements"] == "passed: 76 of 76 measurements went well; all have to"
    assert found["comparisons"] == "not passed: none could be made of 1 round; they take 11 rounds of every program"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("option", [("--device", "cpu"), (PRETEND,)])
def test_a_selftest_chooses_what_it_measures(tmp_path, option):
    done = shared_hosts.dlbench("doctor", "--selftest", *option, cwd=tmp_path)
    right = "give it without --device and FILE.py"
    assert (done.code, done.err) == (2, f"dlbench: --selftest measures programs of its own on the CPU; {right}\n")


SPIN = 'workload = "spin"\naxes.seconds = [1e-4, 2e-4]'
FOLDER = Path("results", "calibration")
ONE_ROUND = front_door.HASTY.replace("rounds = 2", "rounds = 1")


def calibrate(folder, *arguments):
    return shared_hosts.dlbench("calibrate", *arguments, cwd=folder)


def test_sessions_become_a_calibration_that_compare_uses(tmp_path):
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


def test_a_mistake_is_named_before_anything_is_measured(tmp_path):
    right = "did you mean 'quick'? (a suite of your own is a path that ends in .toml)"
    assert calibrate(tmp_path, "quikc") == front_door.Done(2, "", f"dlbench: no suite is called 'quikc'; {right}\n")
    (tmp_path / FOLDER).mkdir(parents=True)
    (tmp_path / FOLDER / "old.jsonl").write_text("hello\n")
    sentence = f"dlbench: {FOLDER}/old.jsonl, line 1: no dlbench header; give a file that dlbench run wrote\n"
    assert calibrate(tmp_path) == front_door.Done(2, "", sentence)


def test_a_case_that_failed_is_5_and_a_calibration_that_cannot_be_kept_74(tmp_path):
    mine = front_door.suite(tmp_path, 'workload = "raises"', head=ONE_ROUND)
    assert calibrate(tmp_path, mine, front_door.FAULTS).code == 5
    shutil.rmtree(tmp_path / "results")
    (tmp_path / "results").write_text("")
    done = calibrate(tmp_path, mine, front_door.FAULTS)
    assert (done.code, "cannot write results/calibration/" in done.err) == (74, True)


def test_an_interruption_keeps_what_was_measured(tmp_path):
    mine = front_door.suite(tmp_path, SPIN, head="[policy]\nrounds = 1000\nmax_rounds = 1000\nround_s = 0.01\nmax_warmup_s = 0.1\n")
    process = front_door.start("calibrate", mine, cwd=tmp_path)
    assert process.stderr is not None
    next(line for line in process.stderr if "spin" in line)
    os.kill(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    (file,) = (tmp_path / FOLDER).glob("*.jsonl")
    assert front_door.measurements(file)
