"""Workloads that are not what they say: how a run tells, in its result file and on its screen."""

import json
import re

import front_door
import pytest
from front_door import PLUGINS, PRETEND
from shared_hosts import dlbench, run

from dlbench.core.errors import explained

pytestmark = pytest.mark.real

DISHONEST = str(PLUGINS / "dishonest.py")
PATIENT = front_door.HASTY.replace("timeout_s = 20", "timeout_s = 600")  # a tenth of which a check may take


NAMES = (
    *("honest", "uncounted", "zeros", "deaf", "idle", "narrow", "always_narrow", "skips", "overflows"),
    *("drops", "draws_its_own", "draws_unseen", "states_zero", "breaks_at_last"),
)


def bench(workload, **axes):
    return "\n".join([f'workload = "{workload}"', *(f"axes.{name} = {json.dumps(value)}" for name, value in axes.items())])


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """One round of every workload of the plugin, on the CPU; with the rows that ``show`` makes of it."""
    folder = tmp_path_factory.mktemp("dishonest")
    benches = [
        *(bench(name) for name in NAMES),
        bench("matmul", n=[16, 128], dtype=["fp64", "fp32", "bf16", "fp16", "amp_bf16"]),
        bench("noop"),
        bench("honest", dtype="fp64"),
        bench("overflows", dtype="fp16"),
        bench("faint", dtype="bf16"),
    ]
    suite = front_door.suite(folder, *benches, head=PATIENT.replace("rounds = 2", "rounds = 1"))
    done, measured = run(folder, suite, DISHONEST, code=5)
    shown = json.loads(dlbench("show", "o.jsonl", "--format", "json", cwd=folder).out)
    rows = {row["case.id"].partition("@")[0]: row for row in shown}
    return {each["case"]["id"].partition("@")[0]: each for each in measured}, rows, done


def name(workload, dtype="fp32"):
    return f"{workload}[dtype={dtype}]"


def test_honest_work_and_products_in_every_precision_pass_both_checks(ran):
    measured, rows, _ = ran
    check = measured[name("honest")]["check"]
    assert (check["follows_input"], check["empty_call_s"] > 0) == (True, True)
    assert 0 < check["error"] < check["tolerance"] < 1e-5
    assert "check" not in measured[name("honest")]["missing_reasons"]
    row = rows[name("honest")]
    assert (row["check.follows_input"], row["check.error"], row["check.reason"]) == (True, check["error"], None)
    assert (row["flag.implausible"], row["flag.implausible_reason"]) == (False, None)
    products = [measured[f"matmul[n={n},dtype={dtype}]"] for n in (16, 128) for dtype in ("fp32", "bf16", "fp16", "amp_bf16")]
    assert {(each["status"], each["check"]["follows_input"]) for each in products} == {("ok", True)}
    assert all(0 < each["check"]["error"] < each["check"]["tolerance"] for each in products)


@pytest.mark.parametrize("workload", ["zeros", "deaf"])
def test_an_output_that_stays_the_same_on_other_inputs_is_implausible(ran, workload):
    measured, rows, done = ran
    assert (measured[name(workload)]["status"], measured[name(workload)]["check"]["follows_input"]) == ("ok", False)
    sentence = "its output stayed the same on other inputs; see that its call computes, and that Work.inputs are the tensors it reads"
    assert rows[name(workload)]["flag.implausible_reason"] == sentence
    assert sentence in done.out


def test_what_is_doubted_and_what_is_not(ran):
    """An output that hardly follows its inputs in exact arithmetic either, a call that does nothing, no work stated as work, and none."""
    faint, idle, zero, noop = (ran[1][case] for case in (name("faint", "bf16"), name("idle"), "states_zero[]", "noop[]"))
    assert (faint["check.follows_input"], faint["flag.implausible"]) == (None, False)
    assert faint["check.reason"] == "inputs: others may change its output by less than a rounding in bf16"
    assert idle["flag.implausible"] is True
    prepares = "see that its call does the work and does not only prepare it"
    assert re.fullmatch(rf"it states operations, and .*; {prepares}", idle["flag.implausible_reason"])
    assert zero["flag.implausible_reason"] == "it states 0 operations; leave a count out where it means nothing"
    assert (noop["flag.implausible"], noop["rate.reason"]) == (False, "the workload states neither operations nor bytes")
    assert noop["check.reason"] == "inputs: the workload names none; fp64: the workload has none"


def test_a_row_says_why_its_workload_does_not_state_a_count(ran):
    measured, rows, _ = ran
    said = ["its operations are unknown: no formula for aten._fft_r2c", "its bytes are unknown: no formula for FourierLayer"]
    missing_reasons = measured[name("uncounted")]["missing_reasons"]
    assert [explained(missing_reasons[count]) for count in ("flops", "bytes")] == said
    row = rows[name("uncounted")]
    assert (row["rate.flops_per_s"], row["rate.bytes_per_s"], row["rate.reason"]) == (None, None, "; also, ".join(said))


@pytest.mark.parametrize("workload", ["narrow", "skips", "overflows"])
def test_numbers_that_rounding_does_not_explain_fail_the_case(ran, workload):
    measured, rows, _ = ran
    measurement = measured[name(workload)]
    assert measurement["status"] == "failed"
    assert measurement["reason"].endswith("; it computes something else than it says, or not in fp32")
    assert rows[name(workload)]["time.median_s"] is None
    if workload == "overflows":
        assert measurement["reason"].startswith("its output is missing, or not finite;")
        assert measurement["check"]["error"] is None
    else:
        assert measurement["check"]["error"] > 10 * measurement["check"]["tolerance"]


CALLS_NO_FLOATS = "its call returns no floating-point numbers"
UNCHECKED = {
    name("always_narrow"): "fp64: there it computes in a narrower type too",
    name("drops"): "fp64: its call draws random numbers, which are others on each device",
    name("draws_its_own"): "fp64: not compared with fp64: its inputs differ there; draw them with dlbench.operands",
    name("draws_unseen"): "fp64: its numbers change from one set-up to the next",
    name("idle"): f"inputs: {CALLS_NO_FLOATS}; fp64: {CALLS_NO_FLOATS}, or others there",
    name("zeros"): "fp64: there its output is all zeros, or not finite",
    name("breaks_at_last"): "inputs: ValueError: these are not my numbers; operations: ValueError: these are not my numbers",
    name("honest", "fp64"): "fp64: the case is in fp64 on the CPU itself",
    name("overflows", "fp16"): "fp64: its numbers leave the range of fp16",
    "states_zero[]": "fp64: the workload has none",
}


def test_what_cannot_be_checked_says_why_and_fails_nothing(ran):
    measured, rows, _ = ran
    assert {case: explained(measured[case]["missing_reasons"]["check"]) for case in UNCHECKED} == UNCHECKED
    assert {case: rows[case]["check.reason"] for case in UNCHECKED} == UNCHECKED
    assert {measured[case]["status"] for case in UNCHECKED} == {"ok"}


def test_only_the_first_round_is_checked_and_an_accelerator_as_well(tmp_path):
    suite = front_door.suite(tmp_path, bench("honest"), bench("narrow"), head=PATIENT)
    _, rows = run(tmp_path, suite, DISHONEST, PRETEND, "--device", "pretend:0", code=5)
    found = [(each["case"]["workload"], each["round"], each["status"], "check" in each) for each in rows]
    assert sorted(found) == [("honest", 0, "ok", True), ("honest", 1, "ok", False), ("narrow", 0, "failed", True)]
