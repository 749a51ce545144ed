"""Sustained steps by the command line and the energy that the parent reads, and spot checks of what workloads compute."""

import json
import re
import signal
import time
from statistics import median

import front_door
import pytest
import shared_hosts
from front_door import PLUGINS, PRETEND, measurements, start
from shared_hosts import dlbench, run

from dlbench.core.errors import Unavailable, Unknown, explained
from dlbench.harness.probe import sampler
from dlbench.harness.probe.sampler import CounterMeter

pytestmark = pytest.mark.real


NETWORK = str(PLUGINS / "own_networks.py")
WATTS = 50.0


STEPS = """
import time
from pathlib import Path

from dlbench import Unit, Value, Work, metered_window, workload

VALUES = (
    Value("steady", Unit.ITEMS_PER_S, "higher", role="steady"),
    Value("power_w", Unit.WATTS, series=True, optional=True, role="power"),
)


@workload(values=VALUES)
def patient(device, *, waits: bool = False) -> Work:
    \"\"\"Repeat a step for a tenth of a second, or until a file is there.\"\"\"
    folder = Path(__file__).parent

    def observe(clock):
        began = clock.now()
        with metered_window(0.02) as metered:
            (folder / "begun").touch()
            while clock.now() < began + 0.1 or (waits and not (folder / "go").exists()):
                time.sleep(0.01)
            metered.count = 8
        return {"steady": 8 / (clock.now() - began)}

    return Work(observe=observe)
"""


def patient(folder, rounds, *, waits=False):
    """A suite of a workload of a plugin whose steps do nothing."""
    (folder / "steps.py").write_text(STEPS)
    head = f"[policy]\nrounds = {rounds}\ntries = 1\n"
    return front_door.suite(folder, f'workload = "patient"\naxes.waits = {str(waits).lower()}', head=head)


def rows(folder):
    shown = shared_hosts.dlbench("show", "o.jsonl", "--format", "json", cwd=folder)
    return {each["case.workload"]: each for each in json.loads(shown.out)}


def test_energy_is_what_the_counter_gained_between_both_ends_of_the_window(tmp_path, monkeypatch):
    meters = []
    """Of each meter what it told: counters of RAPL that gain `WATTS` a second."""

    def meter():
        told = []
        meters.append(told)

        def count():
            told.append(time.monotonic() * WATTS)
            return {"package-0": told[-1]}

        return CounterMeter("rapl", count)

    # On a busy machine the parent hears late of either end of a window, which it then finds shorter than it was.
    for name, value in (("LEAST_S", 0.0), ("IDLE_S", 0.05), ("processor_meter", meter)):
        monkeypatch.setattr(sampler, name, value)
    _, measured = run(tmp_path, patient(tmp_path, rounds=6), "steps.py", "--device", "cpu")
    assert len(meters) == 2 + 6, "twice for idle power, and a window in each round"
    energies = [each["energy"] for each in measured]
    for energy, told in zip(energies, meters[2:], strict=True):
        assert (energy["joules"], energy["source"], energy["items"]) == (pytest.approx(told[-1] - told[0], abs=1e-6), "rapl", 8)
        assert energy["seconds"] > 0
        assert energy["idle_watts"] == energies[0]["idle_watts"] > 0
    assert all(len(each["values"]["power_w"]) >= 1 for each in measured)
    (row,) = rows(tmp_path).values()
    per_item = sorted(each["joules"] / each["items"] for each in energies)
    net = [max(0.0, each["joules"] - each["idle_watts"] * each["seconds"]) / each["items"] for each in energies]
    steady = sorted(each["values"]["steady"] for each in measured)
    expected = {
        "energy.joules_per_item": pytest.approx(median(per_item)),
        "energy.joules_per_item_low": per_item[0],
        "energy.joules_per_item_high": per_item[-1],
        "energy.net_joules_per_item": pytest.approx(median(net)),
        "energy.watts": pytest.approx(median(each["joules"] / each["seconds"] for each in energies)),
        "energy.idle_watts": energies[0]["idle_watts"],
        "energy.source": "rapl",
        "rate.items_per_s": row["value.steady"],
        "rate.items_per_s_low": steady[0],
        "rate.items_per_s_high": steady[-1],
    }
    assert {name: row[name] for name in expected} == expected


def test_a_run_whose_meter_fails_meanwhile_keeps_its_throughput_and_what_is_not_sustained_says_what_measures(tmp_path, monkeypatch):
    def refused():
        raise Unavailable(Unknown.POWERCAP_REFUSED)

    monkeypatch.setattr(sampler, "processor_meter", lambda: CounterMeter("rapl", refused))
    bench = 'workload = "sustained_training"\naxes.model = "pictures"\naxes.batch = 4\naxes.seconds = 0.2'
    suite = front_door.suite(tmp_path, bench, 'workload = "noop"', head="[policy]\nrounds = 1\ntries = 1\ntimeout_s = 20\n")
    run(tmp_path, suite, NETWORK, "--device", "cpu")
    found = rows(tmp_path)
    assert {name: row["energy.joules_per_item"] for name, row in found.items()} == {"sustained_training": None, "noop": None}
    assert found["sustained_training"]["rate.items_per_s"] > 0
    root = "only root may read the energy of processors here; allow it: sudo chmod a+r "
    assert found["sustained_training"]["energy.reason"].startswith(root)
    assert found["noop"]["energy.reason"] == "measured by dlbench run sustained"


def test_a_window_that_ctrl_c_cuts_is_no_row_and_the_run_goes_on(tmp_path):
    process = start("run", patient(tmp_path, 1, waits=True), "steps.py", "--device", "cpu", "-o", "o.jsonl", cwd=tmp_path)
    deadline = time.monotonic() + 60
    while not (tmp_path / "begun").exists():
        assert time.monotonic() < deadline
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=30)
    assert (process.returncode, "--resume o.jsonl" in error, measurements(tmp_path / "o.jsonl")) == (130, True, []), error
    (tmp_path / "go").touch()
    done = shared_hosts.dlbench("run", "--resume", "o.jsonl", cwd=tmp_path)
    assert done.code == 0, done.err
    (found,) = measurements(tmp_path / "o.jsonl")
    assert (found["status"], found["energy"]["items"]) == ("ok", 8)


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
