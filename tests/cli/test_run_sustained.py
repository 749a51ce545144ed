"""Sustained steps by the command line: energy that the parent reads, the columns that it gives, and what a run without it says."""

import json
import signal
import time
from statistics import median

import front_door
import pytest
import shared_hosts
from front_door import PLUGINS, measurements, start
from shared_hosts import run

from dlbench.core.errors import Unavailable, Unknown
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

    for name, value in (("LEAST_S", 0.1), ("IDLE_S", 0.05), ("processor_meter", meter)):
        monkeypatch.setattr(sampler, name, value)
    _, measured = run(tmp_path, patient(tmp_path, rounds=6), "steps.py", "--device", "cpu")
    assert len(meters) == 2 + 6, "twice for idle power, and a window in each round"
    energies = [each["energy"] for each in measured]
    for energy, told in zip(energies, meters[2:], strict=True):
        assert (energy["joules"], energy["source"], energy["items"]) == (pytest.approx(told[-1] - told[0], abs=1e-6), "rapl", 8)
        assert energy["seconds"] >= 0.1
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
