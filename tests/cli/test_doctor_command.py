"""``dlbench doctor``: findings on stdout, and an exit code that says whether to measure."""

import json
import re

import pytest
import shared_hosts
from front_door import PRETEND

from dlbench.cli.commands import noise
from dlbench.core.machine import Finding, Fitness

pytestmark = pytest.mark.real

FINE = Finding("governor", "cpu", Fitness.FIT, "performance")
NOTED = Finding("power limit", "cuda:0", Fitness.NOTE, "450 W, usual are 700 W", "have it raised", {"watts": 450})
BAD = Finding("same code", "cpu", Fitness.UNFIT, "it differs", "quieten the machine", {"change": 0.25}, "matmul[n=512]@cpu")


@pytest.mark.parametrize(
    ("findings", "code", "last"),
    [
        ([FINE], 0, "fit to measure on now; exit 0"),
        ([FINE, NOTED], 0, "fit to measure on now; exit 0"),
        ([FINE, BAD, NOTED], 4, "unfit to measure on now: 1 of 3 checks failed; exit 4"),
    ],
)
def test_the_worst_finding_decides(findings, code, last, capsys):
    assert noise.write_findings(findings, "table") == code
    out = capsys.readouterr().out.splitlines()
    assert out[-1] == last


def test_as_data_the_conclusion_goes_to_stderr(capsys):
    assert noise.write_findings([FINE, BAD], "json") == 4
    told = capsys.readouterr()
    assert told.err == "unfit to measure on now: 1 of 2 checks failed; exit 4\n"
    assert json.loads(told.out) == [
        {
            "doctor.check": "same code",
            "doctor.device": "cpu",
            "doctor.case": "matmul[n=512]@cpu",
            "doctor.fitness": "unfit",
            "doctor.found": "it differs",
            "doctor.advice": "quieten the machine",
            "value.change": 0.25,
        },
        {
            "doctor.check": "governor",
            "doctor.device": "cpu",
            "doctor.case": None,
            "doctor.fitness": "fit",
            "doctor.found": "performance",
            "doctor.advice": None,
            "value.change": None,
        },
    ]


@pytest.mark.usefixtures("hasty_doctor")
def test_really_on_this_machine(tmp_path):
    arguments = ("--rounds", "1", "--device", "cpu", "--device", "pretend:0", PRETEND, "--format", "json")
    done = shared_hosts.dlbench("doctor", *arguments, cwd=tmp_path)
    rows = json.loads(done.out)
    unfit = [row for row in rows if row["doctor.fitness"] == "unfit"]
    assert done.code == (4 if unfit else 0), done.err
    assert re.search(rf"(^|\n){'un' if unfit else ''}fit to measure on now.*; exit {done.code}\n$", done.err)
    checks = {(row["doctor.check"], row["doctor.device"]) for row in rows}
    assert checks == {
        *((each, "cpu") for each in ("memory", "governor", "quota", "hypervisor", "load", "stolen time", "throttling", "same code")),
        *((check, "pretend:0") for check in ("driver", "throttling", "same code")),
    }
    assert {row["doctor.case"] for row in rows} == {
        None,
        "matmul[n=512,dtype=fp32]@cpu",
        "matmul[n=1,m=4096,k=4096,dtype=fp32]@cpu",
        "spin[]@cpu",
        "matmul[n=512,dtype=fp32]@pretend:0",
        "matmul[n=1,m=4096,k=4096,dtype=fp32]@pretend:0",
    }
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
    assert done.code == 2
    assert "--selftest measures programs of its own on the CPU; give it without --device and FILE.py" in done.err
