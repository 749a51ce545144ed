"""Sustained steps by the command line: energy that the parent reads, the columns that it gives, and what a run without it says."""

import json
import signal
import time
from dataclasses import dataclass, field
from statistics import median

import front_door
import pytest
import shared_hosts
from front_door import PLUGINS, measurements, start

from dlbench.core.errors import Unavailable, Unknown
from dlbench.harness.probe import sampler
from dlbench.harness.probe.sampler import CounterMeter

pytestmark = pytest.mark.real

NETWORK = str(PLUGINS / "own_networks.py")
WATTS = 50.0


@dataclass
class Packages:
    """Counters of RAPL that gain `WATTS` a second, and remember what they told."""

    told: list[list[float]] = field(default_factory=list)

    def meter(self):
        told = []
        self.told.append(told)

        def count():
            told.append(time.monotonic() * WATTS)
            return {"package-0": told[-1]}

        return CounterMeter("rapl", count)


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


def suite(folder, name, rounds):
    bench = f'workload = "{name}"\naxes.model = "pictures"\naxes.batch = 4\naxes.seconds = 0.2'
    return front_door.suite(folder, bench, head=f"[policy]\nrounds = {rounds}\ntries = 1\ntimeout_s = 20\n")


def run(folder, *arguments, plugin=NETWORK):
    done = shared_hosts.dlbench("run", *arguments, plugin, "--device", "cpu", "-o", "o.jsonl", cwd=folder)
    assert done.code == 0, done.err
    return measurements(folder / "o.jsonl")


def rows(folder):
    shown = shared_hosts.dlbench("show", "o.jsonl", "--format", "json", cwd=folder)
    return {each["case.workload"]: each for each in json.loads(shown.out)}


def test_energy_is_what_the_counter_gained_between_both_ends_of_the_window(tmp_path, monkeypatch):
    packages = Packages()
    monkeypatch.setattr(sampler, "LEAST_S", 0.1)
    monkeypatch.setattr(sampler, "IDLE_S", 0.05)
    monkeypatch.setattr(sampler, "processor_meter", packages.meter)
    measured = run(tmp_path, patient(tmp_path, rounds=6), plugin="steps.py")
    assert len(packages.told) == 2 + 6, "twice for idle power, and a window in each round"
    for each, told in zip(measured, packages.told[2:], strict=True):
        energy = each["energy"]
        assert (energy["joules"], energy["source"]) == (pytest.approx(told[-1] - told[0], abs=1e-6), "rapl")
        assert energy["seconds"] >= 0.1
        assert energy["items"] == 8
        assert energy["idle_watts"] == measured[0]["energy"]["idle_watts"] > 0
        assert len(each["values"]["power_w"]) >= 1
    (row,) = rows(tmp_path).values()
    energies = [each["energy"] for each in measured]
    per_item = sorted(each["joules"] / each["items"] for each in energies)
    net = [max(0.0, each["joules"] - each["idle_watts"] * each["seconds"]) / each["items"] for each in energies]
    assert row["energy.joules_per_item"] == pytest.approx(median(per_item))
    assert (row["energy.joules_per_item_low"], row["energy.joules_per_item_high"]) == (per_item[0], per_item[-1])
    assert row["energy.net_joules_per_item"] == pytest.approx(median(net))
    assert row["energy.watts"] == pytest.approx(median(each["joules"] / each["seconds"] for each in energies))
    assert (row["energy.idle_watts"], row["energy.source"]) == (energies[0]["idle_watts"], "rapl")
    steady = sorted(each["values"]["steady"] for each in measured)
    assert row["rate.items_per_s"] == row["value.steady"]
    assert (row["rate.items_per_s_low"], row["rate.items_per_s_high"]) == (steady[0], steady[-1])


def test_a_run_whose_meter_fails_meanwhile_keeps_its_throughput(tmp_path, monkeypatch):
    def refused():
        raise Unavailable(Unknown.POWERCAP_REFUSED)

    monkeypatch.setattr(sampler, "processor_meter", lambda: CounterMeter("rapl", refused))
    measured = run(tmp_path, suite(tmp_path, "sustained_training", rounds=1))
    assert [each["energy"].get("joules") for each in measured] == [None]
    for row in rows(tmp_path).values():
        assert row["rate.items_per_s"] > 0
        assert row["energy.joules_per_item"] is None
        assert row["energy.reason"].startswith("only root may read the energy of processors here; allow it: sudo chmod a+r ")


def test_what_is_not_sustained_says_what_measures_energy(tmp_path):
    noop = front_door.suite(tmp_path, 'workload = "noop"')
    done = shared_hosts.dlbench("run", noop, "--device", "cpu", "-o", "o.jsonl", cwd=tmp_path)
    assert done.code == 0, done.err
    assert (row := rows(tmp_path)["noop"])["energy.joules_per_item"] is None
    assert row["energy.reason"] == "measured by dlbench run sustained"


def test_a_window_that_ctrl_c_cuts_is_no_row_and_the_run_goes_on(tmp_path):
    mine = patient(tmp_path, rounds=1, waits=True)
    process = start("run", mine, "steps.py", "--device", "cpu", "-o", "o.jsonl", cwd=tmp_path)
    deadline = time.monotonic() + 60
    while not (tmp_path / "begun").exists():
        assert time.monotonic() < deadline
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=30)
    assert process.returncode == 130, error
    assert "--resume o.jsonl" in error
    assert not measurements(tmp_path / "o.jsonl")
    (tmp_path / "go").touch()
    done = shared_hosts.dlbench("run", "--resume", "o.jsonl", cwd=tmp_path)
    assert done.code == 0, done.err
    (found,) = measurements(tmp_path / "o.jsonl")
    assert (found["status"], found["energy"]["items"]) == ("ok", 8)
