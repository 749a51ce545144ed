"""``dlbench contribute``: which runs are fit to be references, and what never leaves the machine."""

import copy
import itertools
import json
import subprocess
import sys
import uuid
from dataclasses import replace

import front_door
import made_up
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dlbench.analysis.read.table import collect
from dlbench.core.conditions import RoundState, Throttling
from dlbench.core.errors import Unknown, UsageError
from dlbench.core.measurement import KindTime, LayerTime, StepProfile
from dlbench.core.model import Policy, Status
from dlbench.core.store import load

STATE = {
    "cpu": {"load_1min": 0.5, "governor": "performance", "cgroup_throttling": {"throttled_s": 0.0}},
    "accelerators": {"cuda:0": {"temperature_c": 40, "throttle_reasons": ["gpu_idle"], "other_processes": 0, "reasons": {"power_w": "no"}}},
}
CPU = {"name": made_up.CPU, "sockets": 1, "isa": "AVX2"}
CARD = {"kind": "cuda", "name": made_up.GPU, "compute_capability": "9.0", "mig": False}
IDENTITY = {"architecture": "x86_64", "os": "Linux", "virtual": False, "cpu": CPU, "accelerators": [CARD]}
VERSIONS = {"python": "3.11.7", "torch": "2.11.0+cu130", "cuda": "13.0"}
MATH = {"fp32_matmul": "ieee", "deterministic": False}
ENVIRON = {"OMP_NUM_THREADS": "2"}
STACK = {
    "versions": VERSIONS,
    "driver": "580.159.03",
    "kernel": "6.18.44-fc-v445",
    "blas": "mkl",
    "math": MATH,
    "environ": ENVIRON,
    "threads": 2,
}
PRIVATE = {"argv": ["dlbench", "run", "quick"], "command": [["run", "quick"], ["--device", "cpu"]], "cards": {"cuda:0": "0011223344556677"}}
PROVENANCE = {"dlbench": "0.1.0", "git": {"sha": "a" * 40, "dirty": False}, "utc": "2026-11-21T15:40:55+00:00", **PRIVATE}
KEYS = {"machine_key": "0123456789abcdef", "stack_key": "fedcba9876543210"}
ENVIRONMENT = {**KEYS, "identity": IDENTITY, "stack": STACK, "state": STATE, "provenance": PROVENANCE}
SEVEN = made_up.flat(made_up.SEVEN)


def quiet():
    """Two cases on two devices, seven rounds each."""
    fields = {"values": {"updates": 3.0}, "started": "2026-11-21T15:41:00.123+00:00", "math": MATH}
    on_cpu = {"missing_reasons": {"transfer": ({"reason": "on_host"},)}, "throttling": Throttling(waiting=0.001)}
    on_card = {"missing_reasons": {}, "throttling": Throttling(waiting=0.001, reasons=("sw_power_cap",))}
    measured = []
    for device, more in (("cpu", on_cpu), ("cuda:0", on_card)):
        for n in (8, 64):
            measured += made_up.rounds_of(made_up.case("matmul", device, n=n, dtype="fp32"), SEVEN, **fields, **more)
    return measured


def repeated():
    """Return the first round of that, before it was measured again."""
    return [replace(quiet()[0], started="2026-11-21T15:40:59.123+00:00")]


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
    assert done.err.splitlines() == [
        "nvidia-h200-quick.jsonl has the 28 measurements of run.jsonl, with dlbench's words for reasons; look through it, it is plain text",
        "by itself it is sent nowhere; three commands offer it, in the top folder of a checkout of the project that you have dlbench from:",
        "  git checkout -b reference-nvidia-h200-quick",
        "  mkdir -p results/reference/nvidia-h200 && "
        f"cp -n {tmp_path}/nvidia-h200-quick.jsonl results/reference/nvidia-h200/quick.jsonl && "
        "git add results/reference/nvidia-h200/quick.jsonl && git commit -m 'Add the reference run quick of nvidia-h200'",
        "  git push -u origin reference-nvidia-h200-quick && gh pr create --fill",
    ]
    assert front_door.measurements(tmp_path / "nvidia-h200-quick.jsonl") == front_door.measurements(tmp_path / "run.jsonl")
    tables = [front_door.in_process(tmp_path, "show", name, "--format", "json").out for name in ("run.jsonl", "nvidia-h200-quick.jsonl")]
    assert json.loads(tables[1]) == [{**row, "case.run": "nvidia-h200-quick"} for row in json.loads(tables[0])]


@pytest.mark.skipif(sys.platform != "linux", reason="a pipe as a file")
def test_a_run_that_comes_through_a_pipe_is_read_to_its_end(tmp_path):
    write(tmp_path, quiet())
    command = [sys.executable, "-m", "dlbench", "contribute", "/dev/stdin", "-o", "piped.jsonl"]
    content = (tmp_path / "run.jsonl").read_bytes()
    done = subprocess.run(command, cwd=tmp_path, env=front_door.environment(), input=content, capture_output=True)
    assert (done.returncode, done.stdout) == (0, b"piped.jsonl\n"), done.stderr
    assert contribute(tmp_path, "-o", "plain.jsonl").code == 0
    assert (tmp_path / "piped.jsonl").read_bytes() == (tmp_path / "plain.jsonl").read_bytes()


def test_the_last_three_lines_offer_it_when_they_are_typed_in_a_checkout(tmp_path, needs_git):
    folder, remote = tmp_path / "my checkout", tmp_path / "remote.git"
    folder.mkdir()
    write(folder, quiet())
    done = contribute(folder)
    (folder / "gh").write_text("#!/bin/sh\necho gh $*\n")
    (folder / "gh").chmod(0o755)
    repository = f"git init -q --bare '{remote}' && git init -q && git remote add origin '{remote}'"
    somebody = "git config user.name me && git config user.email me@here"
    typed = "\n".join(["set -e", repository, somebody, 'PATH="$PWD:$PATH"', *done.err.splitlines()[-3:]])
    shown = subprocess.run(["sh", "-c", typed], cwd=folder, capture_output=True, text=True, check=True)
    assert shown.stdout.splitlines()[-1] == "gh pr create --fill"
    log = ["git", "-C", remote, "log", "--name-only", "--format=%s", "reference-nvidia-h200-quick", "-1"]
    title, files = subprocess.run(log, capture_output=True, text=True, check=True).stdout.split("\n\n")
    assert (title, files) == ("Add the reference run quick of nvidia-h200", "results/reference/nvidia-h200/quick.jsonl\n")
    assert (folder / "results/reference/nvidia-h200/quick.jsonl").read_bytes() == (folder / done.out.strip()).read_bytes()


DISTINCT = {"name": "distinct", "unit": "fraction", "direction": "higher", "meaning": "rows asked for once", "margin": 0.1}
LOOKUP = {"tags": ["supply", "imagenet"], "values": [DISTINCT], "parameters": {"cache": {"supply": "cold"}, "path": {"scratch": ""}}}
DECLARED = {
    "matmul": {"values": [], "parallel": {}, "tags": ["compute"], "parameters": {}},
    "lookup": {**LOOKUP, "ceiling": None, "parallel": {}, "writes_files": False},
}


def test_what_is_published_has_no_sentence_of_others(tmp_path, snapshot):
    """Neither what values mean, nor names of layers and odd kinds of operations, nor the words of an error."""
    first, *rest = quiet()
    kinds = KindTime("products", 0.7, 2, 1e6, 1e9), KindTime("sorting of our ids", 0.2), KindTime("rest", 0.1)
    profile = StepProfile(1, 1.0, kinds, (LayerTime("our.layer", "OurLinear", 0.7, 0.0),))
    looked_up = made_up.rounds_of(made_up.case("lookup", n=8), SEVEN, values={"distinct": 0.5})
    text = "CUDA out of memory. Process 12345 of somebody on build07.corp.example.org, /home/some body/x"
    ends = enumerate((Status.OOM, Status.TIMEOUT, Status.UNSUPPORTED, Status.SKIPPED))
    ended = [made_up.ended(made_up.case("matmul", n=n, dtype="fp32"), status, text) for n, status in ends]
    write(tmp_path, [replace(first, profile=profile), *rest, *looked_up, *ended], workloads=DECLARED)
    assert contribute(tmp_path, "-o", "out.jsonl").code == 0
    header, profiled, *_ = front_door.lines(tmp_path / "out.jsonl")
    without = [each for each in front_door.measurements(tmp_path / "out.jsonl") if each["status"] != "ok"]
    records = {"header": header, "profiled": profiled, **{each["status"]: each for each in without}}
    snapshot("contributed", front_door.under_titles({name: json.dumps(each, indent=1) for name, each in records.items()}))
    assert "distinct 50.0 %" in front_door.in_process(tmp_path, "show", "out.jsonl").out
    profiles = [row.profile for row in collect([tmp_path / "out.jsonl"]).rows if row.profile]
    assert profiles == [StepProfile(1, 1.0, (kinds[0], kinds[2]))]


def test_what_was_contributed_can_be_contributed_again_and_stays_as_it_is(tmp_path):
    write(tmp_path, quiet())
    assert contribute(tmp_path, "-o", "once.jsonl").code == 0
    assert contribute(tmp_path, "-o", "twice.jsonl", name="once.jsonl").code == 0
    assert (tmp_path / "once.jsonl").read_text() == (tmp_path / "twice.jsonl").read_text()


PLANTED = (
    "/home/somebody/x",
    "somebody@example.org",
    "build-host-17",
    "build07.corp.example.org",
    "process 4711 of somebody",
    f"GPU-{uuid.UUID(int=7)}",
    "192.168.17.23",
    "SN0099-XYZ",
    "fe80::1ff:fe23:4567",
)


def places(data, path=()):
    """The path of everything inside nested data."""
    inside = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for name, each in inside:
        yield (*path, name)
        yield from places(each, (*path, name))


def as_text(lines):
    return "".join(f"{json.dumps(each)}\n" for each in lines)


def plant(line, place, planted, how):
    """Put a text into a line: in the place of something or inside it, next to it, or as another name of it."""
    *outer, last = place
    spot = line
    for name in outer:
        spot = spot[name]
    if how == "instead":
        spot[last] = planted
    elif how == "inside":
        spot[last] = copy.deepcopy([planted, {"name": planted, planted: [planted]}])
    elif isinstance(spot, dict) and how == "next to":
        spot["host"] = planted
    elif isinstance(spot, dict):
        spot[planted] = spot[last]
    else:
        spot.append(planted)


NEEDED = ("suite", "workload", "params", "device", "id", "device_name", "side")
"""Where a text can't be left out, so that the run is refused: names of cases, devices and sides."""


@given(st.data(), st.sampled_from(PLANTED), st.sampled_from(["instead", "inside", "next to", "as a name"]))
@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_private_text_anywhere_never_leaves(tmp_path, data, planted, how):
    for old in tmp_path.iterdir():
        old.unlink()
    oom = made_up.ended(made_up.case("lookup", n=9), Status.OOM, "full")
    path = write(tmp_path, [*quiet(), oom], policy=Policy(), isolation="fork", workloads=DECLARED, discarded=repeated())
    lines = front_door.lines(path)
    kind = data.draw(st.sampled_from(sorted({each["kind"] for each in lines})))
    line = data.draw(st.sampled_from([each for each in lines if each["kind"] == kind]))
    place = data.draw(st.sampled_from(list(places(line))))
    plant(line, place, planted, how)
    path.write_text(as_text(lines))
    done = contribute(tmp_path, "-o", "out.jsonl")
    if done.code == 0:
        assert planted not in (tmp_path / "out.jsonl").read_text()
        return
    assert (done.code, (tmp_path / "out.jsonl").exists()) == (2, False)
    if "can't be a reference run" in done.err:
        assert place[-1] in NEEDED or "params" in place or load(path).left_out
    else:
        with pytest.raises(UsageError):  # the file can't be read at all
            collect((path,))


NAMES = [("case", name) for name in ("id", "suite", "workload", "device")]
NAMES += [("case", "params", "dtype"), ("case", "params", "build-host-17"), ("device_name",), ("side",)]
MAKERS_NAMES = ["Intel(R) Core(TM) i7-8700 CPU @ 3.20GHz", "NVIDIA A100-SXM4-80GB MIG 1g.10gb"]
OTHER_NAMES = ["Xeon of somebody, build07.corp.example.org", "build07.corp.example.org", "somebody@example", "x" * 81]


def test_a_name_that_is_not_plain_is_refused(tmp_path, snapshot):
    plain = write(tmp_path, quiet(), name="plain.jsonl", discarded=repeated()).read_text()
    files = {device: plain.replace("cuda:0", device) for device in ("cuda:alices_box", "cuda:00000")}
    files |= {name: plain.replace(made_up.CPU, name) for name in (*MAKERS_NAMES, *OTHER_NAMES)}
    for kind, place in itertools.product(("measurement", "discarded"), NAMES):
        lines = [json.loads(line) for line in plain.splitlines()]
        plant(next(line for line in lines if line["kind"] == kind), place, "build-host-17", "instead")
        files[f"{kind} {'.'.join(place)}"] = as_text(lines)
    texts = {}
    for number, (what, text) in enumerate(files.items()):
        (tmp_path / "run.jsonl").write_text(text)
        done = contribute(tmp_path, "-o", f"{number}.jsonl")
        if done.code:
            texts[what] = front_door.refusal(done)
        else:
            texts[what] = f"published, private: {'build-host-17' in (tmp_path / f'{number}.jsonl').read_text()}"
    snapshot("private-names", front_door.under_titles(texts))


def published_reasons(folder, reasons):
    """What a copy has of these reasons why there was no check."""
    write(folder, [replace(each, missing_reasons={"check": reasons}) for each in quiet()])
    assert contribute(folder, "-o", "out.jsonl").code == 0
    first, *others = (line.get("missing_reasons") for line in front_door.measurements(folder / "out.jsonl"))
    assert all(each == first for each in others)
    return first


def test_reasons_of_dlbench_why_something_is_not_known_stay_with_their_figures(tmp_path):
    figures = {"seconds": 1.5, "seconds_most": 1.0, "bytes": 1024, "bytes_left": 512, "kind": "mps", "precision": "fp16"}
    reasons = [reason for unknown in Unknown for reason in (unknown.reason(part="fp64", **figures), unknown.reason())]
    assert published_reasons(tmp_path, reasons) == {"check": reasons}


@pytest.mark.parametrize("planted", PLANTED)
def test_of_a_reason_neither_texts_of_others_nor_other_words_stay(tmp_path, planted):
    named = {"reason": planted, "part": planted, "kind": planted, "precision": planted, "seconds": planted, planted: 1}
    raised = Unknown.EXCEPTION.reason(part="inputs", text=planted)
    assert published_reasons(tmp_path, [named, raised]) == {"check": [{}, {"part": "inputs", "reason": "exception"}]}


@pytest.mark.parametrize("digits", ["9" * 400, "1e101"])
def test_a_number_that_is_none_stays_behind(tmp_path, digits):
    path = write(tmp_path, quiet())
    path.write_text(path.read_text().replace('"seed": 1', f'"seed": {digits}'))
    assert contribute(tmp_path, "-o", "out.jsonl").code == 0
    assert "seed" not in front_door.lines(tmp_path / "out.jsonl")[0]


def hot(measured):
    return [replace(each, throttling=Throttling(thermal=0.5)) for each in measured]


FIRST = "matmul[n=8,dtype=fp32]@cpu"
BUDGET = {"policy": Policy(budget_s=60.0), "footer": {"rounds": 6, "seconds": 60.0}}
UNFIT = {
    "failed": ([*quiet(), made_up.ended(made_up.case("matmul", n=9), Status.FAILED, "it broke")], {}),
    "few rounds": ([each for each in quiet() if each.round < 5 or each.case.id != FIRST], {}),
    "a budget that was spent": ([each for each in quiet() if each.round < 3 or each.case.id != FIRST], BUDGET),
    "not usable": (hot(quiet()), {}),
    "throttled": ([*hot(quiet()[:14]), *quiet()[14:]], {}),
    "noisy": ([made_up.scaled(each, 1.0 + each.round) for each in quiet()], {}),
    "interrupted": (quiet(), {"finished": False}),
    "a path": ([*quiet(), *made_up.rounds_of(made_up.case("t", file="/home/somebody/x"), SEVEN)], {}),
    "nothing": ([made_up.ended(made_up.case("matmul", n=9), Status.OOM, "full")], {}),
    "an A/B": ([replace(each, side=side) for side in ("a", "b") for each in quiet()], {"sides": made_up.TWO_SIDES}),
}


def test_a_run_that_would_mislead_others_is_refused_with_what_to_do(tmp_path, snapshot):
    texts = {}
    for what, (measured, header) in UNFIT.items():
        write(tmp_path / what, measured, **header)
        texts[what] = front_door.refusal(contribute(tmp_path / what))
        assert [path.name for path in (tmp_path / what).iterdir()] == ["run.jsonl"]
    snapshot("no-reference-runs", front_door.under_titles(texts))


def test_a_few_restless_cases_are_tolerated(tmp_path):
    measured = quiet()
    write(tmp_path, [*hot(measured[:7]), *measured[7:]])
    assert contribute(tmp_path).code == 0


def test_every_committed_reference_stands_the_same_scrutiny_or_says_why_not(tmp_path):
    for number, path in enumerate(sorted((front_door.ROOT / "results" / "reference").rglob("*.jsonl"))):
        done = contribute(tmp_path, "-o", f"{number}.jsonl", name=str(path))
        refused = f"dlbench: {path} can't be a reference run: "
        assert done.code == 0 or (done.code == 2 and done.err.startswith(refused)), done
