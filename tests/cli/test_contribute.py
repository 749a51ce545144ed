"""``dlbench contribute``: which runs are fit to be references, and what never leaves the machine."""

import copy
import json
import uuid
from dataclasses import replace

import front_door
import made_up
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dlbench.core.conditions import RoundState, Throttling
from dlbench.core.model import Policy, Status

STATE = {
    "cpu": {"load_1min": 0.5, "governor": "performance", "cgroup_throttling": {"throttled_s": 0.0}},
    "accelerators": {"cuda:0": {"temperature_c": 40, "throttle_reasons": ["gpu_idle"], "other_processes": 0, "reasons": {"power_w": "no"}}},
}
ENVIRONMENT = {
    "machine_key": "0123456789abcdef",
    "stack_key": "fedcba9876543210",
    "identity": {
        "architecture": "x86_64",
        "os": "Linux",
        "virtual": False,
        "cpu": {"name": made_up.CPU, "sockets": 1, "isa": "AVX2"},
        "accelerators": [{"kind": "cuda", "name": made_up.GPU, "compute_capability": "9.0", "mig": False}],
    },
    "stack": {
        "versions": {"python": "3.11.7", "torch": "2.11.0+cu130", "cuda": "13.0"},
        "driver": "580.159.03",
        "kernel": "6.18.44-fc-v445",
        "blas": "mkl",
        "math": {"fp32_matmul": "ieee", "deterministic": False},
        "environ": {"OMP_NUM_THREADS": "2"},
        "threads": 2,
    },
    "state": STATE,
    "provenance": {
        "dlbench": "0.1.0",
        "git": {"sha": "a" * 40, "dirty": False},
        "argv": ["dlbench", "run", "quick"],
        "cards": {"cuda:0": "0011223344556677"},
        "utc": "2026-11-21T15:40:55+00:00",
    },
}


def quiet():
    """Two cases on two devices, seven rounds each."""
    cases = [made_up.case("matmul", device, n=n, dtype="fp32") for device in ("cpu", "cuda:0") for n in (8, 64)]
    return [each for case in cases for each in made_up.rounds_of(case, made_up.flat(made_up.SEVEN), flops=1e9)]


def write(folder, measured, name="run.jsonl", **header):
    states = [RoundState(number, 1.5, 0.0, 0.0, STATE, STATE) for number in range(7)]
    given = {"environment": ENVIRONMENT, "state": STATE, "states": states, "accelerator": {"uuid_hash": "00ff", "pcie_width_max": 16}}
    return made_up.write(folder / name, measured, **{**given, **header})


def contribute(folder, *options, name="run.jsonl"):
    return front_door.in_process(folder, "contribute", name, *options)


def test_a_quiet_run_is_copied_without_what_is_private_and_the_copy_can_be_read_again(tmp_path):
    write(tmp_path, quiet())
    done = contribute(tmp_path)
    assert (done.code, done.out) == (0, "nvidia-h200-quick.jsonl\n")
    said = done.err.splitlines()
    assert said[0] == "all 4 rows of nvidia-h200-quick.jsonl are those of run.jsonl; look through it, it is plain text"
    assert said[1].startswith("to publish it, put it into a checkout as results/reference/nvidia-h200/quick.jsonl, and open a pull request")
    head, *rest = front_door.lines(tmp_path / "nvidia-h200-quick.jsonl")
    assert head["devices"] == [
        {"id": "cpu", "name": made_up.CPU, "kind": "cpu"},
        {"pcie_width_max": 16, "id": "cuda:0", "name": made_up.GPU, "kind": "cuda"},
    ]
    where = head["environment"]
    assert where["provenance"] == {"dlbench": "0.1.0", "git": {"sha": "a" * 40, "dirty": False}, "utc": "2026-11-21T15:40:55+00:00"}
    assert where["identity"] == ENVIRONMENT["identity"] | {
        "accelerators": [{"compute_capability": "9.0", "mig": False, "name": made_up.GPU}]
    }
    assert where["stack"] == {name: value for name, value in ENVIRONMENT["stack"].items() if name != "environ"} | {"kernel": "6.18.44"}
    assert where["state"]["accelerators"] == {"cuda:0": {"throttle_reasons": ["gpu_idle"], "temperature_c": 40, "other_processes": 0}}
    measured = [line for line in front_door.lines(tmp_path / "run.jsonl") if line["kind"] == "measurement"]
    assert [line for line in rest if line["kind"] == "measurement"] == measured
    tables = [front_door.in_process(tmp_path, "show", name, "--format", "json").out for name in ("run.jsonl", "nvidia-h200-quick.jsonl")]
    assert json.loads(tables[1]) == [{**row, "case.run": "nvidia-h200-quick"} for row in json.loads(tables[0])]


def test_what_was_contributed_can_be_contributed_again_and_stays_as_it_is(tmp_path):
    write(tmp_path, quiet())
    assert contribute(tmp_path, "-o", "once.jsonl").code == 0
    assert contribute(tmp_path, "-o", "twice.jsonl", name="once.jsonl").code == 0
    assert (tmp_path / "once.jsonl").read_text() == (tmp_path / "twice.jsonl").read_text()


PLANTED = st.sampled_from(
    [
        "/home/somebody/project",
        "somebody@example.org",
        "build-host-17",
        f"GPU-{uuid.UUID(int=7)}",
        "192.168.17.23",
        "SN0099XYZ",
        "fe80::1ff:fe23:4567",
    ]
)


def places(data, path=()):
    """The path of everything inside nested data."""
    inside = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for name, each in inside:
        yield (*path, name)
        yield from places(each, (*path, name))


@given(st.data(), PLANTED)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_private_text_anywhere_in_header_states_and_footer_never_leaves(tmp_path, data, planted):
    for old in tmp_path.iterdir():
        old.unlink()
    path = write(
        tmp_path, quiet(), policy=Policy(), isolation="fork", workloads={"matmul": {"values": [], "parallel": {}, "tags": ["compute"]}}
    )
    lines = front_door.lines(path)
    line = data.draw(st.sampled_from([each for each in lines if each["kind"] != "measurement"]))
    *way, last = data.draw(st.sampled_from(list(places(line))))
    spot = line
    for name in way:
        spot = spot[name]
    match data.draw(st.sampled_from(["instead", "inside", "beside", "as a name"])):
        case "instead":
            spot[last] = planted
        case "inside":
            spot[last] = copy.deepcopy([planted, {"name": planted, planted: [planted]}])
        case "beside" if isinstance(spot, dict):
            spot["host"] = planted
        case _ if isinstance(spot, dict):
            spot[planted] = spot[last]
        case _:
            spot.append(planted)
    path.write_text("".join(f"{json.dumps(each)}\n" for each in lines))
    done = contribute(tmp_path, "-o", "out.jsonl")
    assert done.code in (0, 2)
    if done.code == 0:
        assert planted not in (tmp_path / "out.jsonl").read_text()
    else:
        assert not (tmp_path / "out.jsonl").exists()


def test_paths_in_reasons_are_cut_out(tmp_path):
    oom = made_up.ended(
        made_up.case("matmul", n=9), Status.OOM, "no room in /home/somebody/train.py, nor in C:\\data\\x or src/lib/a.py: 3 FLOP/s"
    )
    noted = [replace(each, nulls={"check": "see ~/notes and somebody@example.org"}) for each in quiet()]
    write(tmp_path, [*noted, oom])
    assert contribute(tmp_path, "-o", "out.jsonl").code == 0
    lines = front_door.measurements(tmp_path / "out.jsonl")
    assert {line.get("reason") for line in lines} == {None, "no room in …, nor in … or …: 3 FLOP/s"}
    assert lines[0]["nulls"] == {"check": "see … and …"}


def hot(measured):
    return [replace(each, throttling=Throttling(thermal=0.5)) for each in measured]


def wide(measured):
    return [made_up.scaled(each, 1.0 + each.round) for each in measured]


FIRST = "matmul[n=8,dtype=fp32]@cpu"
UNFIT = {
    "failed": (lambda: [*quiet(), made_up.ended(made_up.case("matmul", n=9), Status.FAILED, "it broke")], {},
               "matmul[n=9]@cpu failed or crashed; find out why, and measure again"),
    "few rounds": (lambda: [each for each in quiet() if each.round < 5 or each.case.id != FIRST], {},
                   f"{FIRST} had fewer than 6 rounds; add some: dlbench run --resume run.jsonl --rounds 7"),
    "throttled": (lambda: hot(quiet()), {},
                  "4 of 4 cases are throttled, which is more than 25.0 %; cool the machine or raise its quota, and measure again"),
    "noisy": (lambda: wide(quiet()), {},
              "4 of 4 cases are noisy, with an interval wider than a factor of 1.5, which is more than 25.0 %; "
              "quieten the machine, and measure again"),
    "interrupted": (quiet, {"finished": False},
                    "the run was interrupted or is still going on, at 4 of 4 planned cases; "
                    "continue it with: dlbench run --resume run.jsonl"),
    "a path": (lambda: [*quiet(), *made_up.rounds_of(made_up.case("t", file="/home/somebody/x"), made_up.flat(made_up.SEVEN))], {},
               "names of its cases or devices look like a path or an address, such as 't[file=/home/somebody/x]'; measure without that"),
    "nothing": (lambda: [made_up.ended(made_up.case("matmul", n=9), Status.OOM, "full")], {}, "none of its cases went well"),
}  # fmt: skip


@pytest.mark.parametrize(("measured", "header", "sentence"), UNFIT.values(), ids=UNFIT)
def test_a_run_that_would_mislead_others_is_refused_with_what_to_do(tmp_path, measured, header, sentence):
    write(tmp_path, measured(), **header)
    done = contribute(tmp_path)
    assert (done.code, done.out, done.err) == (2, "", f"dlbench: run.jsonl can't be a reference run: {sentence}\n")
    assert [path.name for path in tmp_path.iterdir()] == ["run.jsonl"]


def test_a_few_restless_cases_are_tolerated(tmp_path):
    measured = quiet()
    write(tmp_path, [*hot(measured[:7]), *measured[7:]])
    assert contribute(tmp_path).code == 0


def test_sides_of_an_ab_are_no_reference(tmp_path):
    measured = [replace(each, side=side) for side in ("a", "b") for each in quiet()]
    write(tmp_path, measured, sides=made_up.TWO_SIDES)
    assert "it is an A/B, whose sides differ on purpose" in contribute(tmp_path).err


def test_an_output_that_exists_is_kept_and_one_that_can_not_be_written_is_said(tmp_path):
    write(tmp_path, quiet())
    (tmp_path / "there.jsonl").write_text("mine")
    assert contribute(tmp_path, "-o", "there.jsonl") == front_door.Done(
        2, "", "dlbench: there.jsonl exists and is never overwritten; choose another name\n"
    )
    assert (tmp_path / "there.jsonl").read_text() == "mine"
    assert contribute(tmp_path, "-o", "there.jsonl/out.jsonl").code == 74


def test_every_committed_reference_stands_the_same_scrutiny_or_says_why_not(tmp_path):
    folder = front_door.ROOT / "results" / "reference"
    files = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*.jsonl")}
    assert {name: contribute(tmp_path, "-o", name, name=str(path)).code for name, path in files.items()} == {
        "intel-xeon-processor/cnn.jsonl": 0,
        "intel-xeon-processor/quick.jsonl": 0,
        "intel-xeon-processor/scaling.jsonl": 2,  # its forms that train for a time have four rounds
        "intel-xeon-processor-amx/batch.jsonl": 0,
        "intel-xeon-processor-amx/cnn.jsonl": 0,
        "intel-xeon-processor-amx/quick.jsonl": 0,
    }
