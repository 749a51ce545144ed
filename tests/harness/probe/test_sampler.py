"""What the parent samples of a made-up machine: around and during cases, of counters of NVML and of RAPL, and in a round."""

import os
from types import SimpleNamespace

import psutil
import pynvml as real
import pytest
from hypothesis import given
from hypothesis import strategies as st
from machine_fake import write
from nvml_fake import H200, Card, FakeNvml, Load, NVMLError

from dlbench.core.conditions import RoundState, Throttling
from dlbench.core.declarations import Declaration, Value
from dlbench.core.decoding import convert
from dlbench.core.errors import explained
from dlbench.core.measurement import Measurement
from dlbench.core.model import Case, Status
from dlbench.core.units import Unit
from dlbench.harness.probe import sampler
from dlbench.harness.probe.devices import Accelerator, Processor
from dlbench.harness.probe.sampler import MOST_WATTS, CounterMeter, Monitor, Window
from dlbench.harness.worker.parent import metered_window

UUID = "8d2a59f1-6c1f-4c4b-9a55-0123456789ab"
CARD = Accelerator(id="cuda:0", kind="cuda", uuid=UUID, vendor="nvidia")
DECLARED = Declaration(
    values=tuple(
        Value(name, unit, series=True, optional=True, role=role)  # type: ignore[arg-type]  # roles, all of them
        for name, unit, role in (
            ("clock_hz", Unit.HERTZ, "clock"),
            ("temperature_c", Unit.CELSIUS, "temperature"),
            ("power_w", Unit.WATTS, "power"),
            ("throttle", Unit.NUMBER, "throttle"),
        )
    )
)
ENERGY = "nvmlDeviceGetTotalEnergyConsumption"
RAPL = "sys/class/powercap/intel-rapl:{}"
RANGE_J = 262143.328850


class Clock:
    """Seconds that pass when told to."""

    def __init__(self):
        self.now_s = 1000.0

    def __call__(self):
        return self.now_s


def zones(**joules):
    """A powercap tree: a zone for each package, below it its cores and its memory, which a name ``dram`` gives."""
    files = {f"{RAPL.format('0:0')}/name": "core", f"{RAPL.format('0:0')}/energy_uj": "77"}
    for name, count in joules.items():
        zone = RAPL.format("0:1" if name == "dram" else name.rpartition("_")[2])
        files |= {
            f"{zone}/name": name.replace("_", "-"),
            f"{zone}/energy_uj": f"{count * 1e6:.0f}",
            f"{zone}/max_energy_range_uj": f"{RANGE_J * 1e6:.0f}",
        }
    return files


def card(energy_mj, power_mw=300_000, reasons=0, clock_mhz=1800, celsius=60):
    energy = NVMLError(real.NVML_ERROR_NOT_SUPPORTED) if energy_mj is None else energy_mj
    return {
        **H200,
        ENERGY: energy,
        "nvmlDeviceGetPowerUsage": power_mw,
        "nvmlDeviceGetClockInfo": {real.NVML_CLOCK_SM: clock_mhz, real.NVML_CLOCK_MEM: 3201},
        "nvmlDeviceGetTemperature": {real.NVML_TEMPERATURE_GPU: celsius},
        "nvmlDeviceGetCurrentClocksEventReasons": reasons,
    }


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(sampler.time, "monotonic", clock)
    return clock


def measured(seen):
    return seen.add_samples(Measurement(Case("mine@cuda:0", "s", "mine", {}, "cuda:0"), 0, Status.OK, values={"burst": 1.0}))


def reason(found, group):
    return explained(found.missing_reasons[group]) if group in found.missing_reasons else ""


def on_processor(tmp_path, clock, steps, seconds=10.0):
    """A window on the CPU whose counters are read at its beginning and after each step."""
    write(tmp_path, zones(**steps[0]))
    with Monitor([Processor()], 2) as watch:
        seen = Window(watch, "cpu", DECLARED)
        seen.mark({"interval_s": seconds})
        for at, step in enumerate(steps[1:], 1):
            clock.now_s += seconds
            write(tmp_path, zones(**step))
            if at < len(steps) - 1:
                seen.read()
        seen.mark({"items": 500.0, "seconds": seconds * (len(steps) - 1)})
    return measured(seen)


@pytest.mark.parametrize("dram_j", [51.0, 1.0])  # memory that is not metered stands still
def test_packages_and_their_memory_are_added_and_cores_are_in_them_already(tmp_path, clock, dram_j):
    steps = [{"package_0": 100.0, "package_1": 7.5, "dram": 1.0}, {"package_0": 1300.25, "package_1": 807.5, "dram": dram_j}]
    found = on_processor(tmp_path, clock, steps, seconds=30)
    assert (found.energy.source, found.energy.seconds, found.energy.items) == ("rapl", 30.0, 500.0)
    assert found.energy.joules == pytest.approx(1200.25 + 800 + dram_j - 1, abs=1e-6)
    assert (found.energy.host_joules, found.energy.idle_watts) == (None, None)
    assert reason(found, "energy") == "idle: no power was read before the first round"


def test_a_counter_that_wraps_around_twice_goes_on(tmp_path, clock):
    steps = [{"package_0": RANGE_J - 1000}, {"package_0": 500.0}, {"package_0": RANGE_J - 200}, {"package_0": 300.0}]
    found = on_processor(tmp_path, clock, [*steps[:2]], seconds=30)
    assert found.energy.joules == pytest.approx(1500, abs=1e-6)
    # Between these two lie 262 kJ, 150 s at 1.7 kW.
    found = on_processor(tmp_path, clock, steps, seconds=150)
    assert found.energy.joules == pytest.approx(1500 + (RANGE_J - 700) + 500, abs=1e-6)


JUMPED, STOOD_STILL = "its counter of energy jumped back, and not by wrapping around", "its counter of energy stood still"


@pytest.mark.parametrize(
    ("steps", "sentence"),
    [
        ([{"package_0": 9000.0}, {"package_0": 9400.0}, {"package_0": 200.0}], JUMPED),
        ([{"package_0": 9000.0}] * 4, STOOD_STILL),
        ([{"package_0": 1.0 + 900 * at, "package_1": 5.0} for at in range(3)], STOOD_STILL),
    ],
)
def test_a_counter_that_jumps_back_or_stands_still_is_null_with_its_reason(tmp_path, clock, steps, sentence):
    found = on_processor(tmp_path, clock, steps, seconds=15)
    assert (found.energy.joules, found.energy.source) == (None, None)
    assert reason(found, "energy") == sentence
    assert sentence == JUMPED or "power_w" not in found.values


def test_a_counter_that_may_not_be_read_says_how_to_allow_it(tmp_path, clock):
    tree = zones(package_0=5.0)
    del tree[f"{RAPL.format(0)}/energy_uj"]
    write(tmp_path, tree)
    with Monitor([Processor()], 2) as watch:
        seen = Window(watch, "cpu", DECLARED)
        seen.mark({"interval_s": 1})
        clock.now_s += 30
        seen.mark({"items": 1.0, "seconds": 30.0})
    allow = "only root may read the energy of processors here; allow it: sudo chmod a+r /sys/class/powercap/*/energy_uj"
    assert reason(measured(seen), "energy") == allow


@pytest.mark.parametrize(
    ("flags", "energy", "telemetry"),
    [
        (
            "fpu hypervisor",
            "a virtual machine has no /sys/class/powercap, by which processors tell their energy",
            "a virtual machine tells no clock, temperature, power or throttling",
        ),
        (
            "fpu",
            "there is no /sys/class/powercap here, by which processors tell their energy",
            "this machine tells no clock, temperature, power or throttling of the device",
        ),
    ],
)
def test_a_machine_that_tells_nothing_says_so_in_a_sentence_each(tmp_path, clock, flags, energy, telemetry):
    write(tmp_path, {"proc/cpuinfo": f"processor\t: 0\nflags\t\t: {flags}" + ("\ncpu MHz\t: 2300.0" if "hyper" in flags else "")})
    with Monitor([Processor()], 2) as watch:
        seen = Window(watch, "cpu", DECLARED)
        seen.mark({"interval_s": 1})
        clock.now_s += 1
        seen.read()
        seen.mark({"items": 1.0, "seconds": 1.0})
    found = measured(seen)
    assert (found.energy.seconds, found.energy.joules, found.values) == (1.0, None, {"burst": 1.0})
    assert (reason(found, "energy"), reason(found, "telemetry")) == (energy, telemetry)


def test_a_card_is_metered_to_a_millijoule_with_idle_power_and_its_host(tmp_path, clock):
    write(tmp_path, zones(package_0=10.0))
    made_up = Card(f"GPU-{UUID}", "0000:3b:00.0", card(5_000_000))

    def idle(seconds):
        clock.now_s += seconds
        passed_s = clock.now_s - 1000
        made_up.answers = card(5_000_000 + int(70_000 * passed_s))
        write(tmp_path, zones(package_0=10 + 20 * passed_s))

    with FakeNvml(made_up).imported(), Monitor([Processor(), CARD], 2) as watch:
        watch.read_idle({"cuda:0"}, idle)
        seen = Window(watch, "cuda:0", DECLARED)
        assert seen.due_s == float("inf")
        seen.mark({"interval_s": 30})
        assert seen.due_s == clock.now_s + 30
        clock.now_s += 30
        made_up.answers = card(19_000_001, 301_000, reasons=0x1 | 0x4, clock_mhz=1700, celsius=80)
        seen.read()
        clock.now_s += 30
        made_up.answers = card(23_700_123, 250_000, reasons=0x4 | 0x40, clock_mhz=1500, celsius=85)
        seen.read()
        write(tmp_path, zones(package_0=4210.0))
        seen.mark({"items": 4096.0, "seconds": 60.0})
    found = measured(seen)
    energy = found.energy
    assert (energy.source, energy.seconds, energy.items) == ("nvml_counter", 60.0, 4096.0)
    assert energy.joules == pytest.approx(23_700.123 - 5_700, abs=1e-9)
    assert (energy.idle_watts, energy.host_idle_watts) == (pytest.approx(70), pytest.approx(20))
    assert energy.host_joules == pytest.approx(4000)
    assert found.values == {
        "burst": 1.0,
        "clock_hz": (1.7e9, 1.5e9),
        "temperature_c": (80.0, 85.0),
        "power_w": (301.0, 250.0),
        "throttle": (sampler.AT_POWER_LIMIT, sampler.SLOWED_DOWN),
    }
    assert found.throttling.reasons == ("hw_thermal_slowdown", "sw_power_cap")
    assert not found.missing_reasons


def test_a_reading_that_comes_late_stands_for_those_that_it_missed(tmp_path, clock):
    made_up = Card(f"GPU-{UUID}", "0000:3b:00.0", card(1000))
    with FakeNvml(made_up).imported(), Monitor([CARD], 2) as watch:
        seen = Window(watch, "cuda:0", DECLARED)
        seen.mark({"interval_s": 1})
        clock.now_s += 3.5
        seen.read()
        clock.now_s += 0.5
        made_up.answers = card(2000, clock_mhz=900)
        seen.read()
        seen.mark({"items": 1.0, "seconds": 4.0})
    assert measured(seen).values["clock_hz"] == (1.8e9, 1.8e9, 1.8e9, 0.9e9)


def test_series_have_the_points_of_the_worker_whose_window_began_first(tmp_path, clock):
    made_up = Card(f"GPU-{UUID}", "0000:3b:00.0", card(1000))
    with FakeNvml(made_up).imported(), Monitor([CARD], 2) as watch:
        seen = Window(watch, "cuda:0", DECLARED)
        clock.now_s += 0.02  # the message's way
        seen.mark({"interval_s": 1.0})
        for _ in range(21):
            clock.now_s = seen.due_s
            seen.read()
        clock.now_s += 0.99
        seen.mark({"items": 1.0, "seconds": 22.01})
    assert {len(points) for points in measured(seen).values.values() if isinstance(points, tuple)} == {22}


def timed(clock, **answers):
    """A case whose card is under load for a second, is timed for most of that, and copies for two."""
    load = Load(clock, clock.now_s, clock.now_s + 1)
    made_up = Card(f"GPU-{UUID}", "0000:3b:00.0", card(1000, reasons=0x0, clock_mhz=1980))
    made_up.answers |= {
        "nvmlDeviceGetCurrentClocksEventReasons": load.answer(0x0, 0x4),
        "nvmlDeviceGetClockInfo": load.answer({real.NVML_CLOCK_SM: 1980}, {real.NVML_CLOCK_SM: 1500}),
        "nvmlDeviceGetPowerUsage": load.answer(124_000, 690_000),
        **answers,
    }
    with FakeNvml(made_up).imported(), Monitor([CARD], 2) as watch:
        seen = Window(watch, "cuda:0", Declaration())
        clock.now_s += 0.3
        seen.mark({"timed": True})
        while seen.due_s < load.end_s:
            clock.now_s = seen.due_s
            seen.read()
        clock.now_s = load.end_s
        seen.mark({"timed": False})
        assert seen.due_s == float("inf")
        clock.now_s += 2
        return measured(seen)


def test_what_holds_a_card_down_is_read_while_its_blocks_run(tmp_path, clock):
    found = timed(clock)
    assert found.throttling == Throttling(reasons=("sw_power_cap",), clock_hz=1.5e9, power_w=690.0)
    assert (found.values, found.energy, found.missing_reasons) == ({"burst": 1.0}, None, {})


def test_what_a_card_does_not_tell_under_load_is_unknown(tmp_path, clock):
    refused = NVMLError(real.NVML_ERROR_NOT_SUPPORTED)
    found = timed(clock, nvmlDeviceGetCurrentClocksEventReasons=refused, nvmlDeviceGetPowerUsage=refused)
    assert found.throttling == Throttling(clock_hz=1.5e9)
    assert (found.throttling.throttled, found.throttling.power_capped) == (None, None)


def test_without_a_counter_power_is_integrated(tmp_path, clock):
    made_up = Card(f"GPU-{UUID}", "0000:3b:00.0", card(None, 100_000))
    with FakeNvml(made_up).imported(), Monitor([CARD], 2) as watch:
        seen = Window(watch, "cuda:0", DECLARED)
        seen.mark({"interval_s": 10})
        for milliwatts in (200_000, 300_000):
            clock.now_s += 10
            made_up.answers = card(None, milliwatts)
            seen.read()
        clock.now_s += 5
        seen.mark({"items": 10.0, "seconds": 25.0})
    energy = measured(seen).energy
    assert (energy.source, energy.joules) == ("nvml_power", pytest.approx(10 * 150 + 10 * 250 + 5 * 300))


@pytest.mark.parametrize(
    ("device", "fake", "sentence"),
    [
        (CARD, FakeNvml(init_error=real.NVML_ERROR_DRIVER_NOT_LOADED), "NVML tells neither energy nor power of this device"),
        (
            Accelerator(id="cuda:0", kind="cuda", uuid=UUID, vendor="nvidia", mig=True),
            FakeNvml(Card(f"GPU-{UUID}", "0000:3b:00.0", card(1))),
            "a MIG instance has no meter of its own",
        ),
        (Accelerator(id="xpu:0", kind="xpu", vendor="intel"), FakeNvml(), "dlbench reads no energy of xpu devices"),
    ],
)
def test_a_device_without_a_meter_says_why(tmp_path, clock, device, fake, sentence):
    with fake.imported(), Monitor([Processor(), device], 2) as watch:
        assert watch.meters({device.id}) == {}
        seen = Window(watch, device.id, DECLARED)
        seen.mark({"interval_s": 1})
        clock.now_s += 30
        seen.mark({"items": 1.0, "seconds": 30.0})
    no_host = "host: there is no /sys/class/powercap here, by which processors tell their energy"
    assert reason(measured(seen), "energy") == f"{sentence}; {no_host}"


def test_a_short_window_has_series_and_no_energy(tmp_path, clock):
    found = on_processor(tmp_path, clock, [{"package_0": 0.0}, {"package_0": 50.0}, {"package_0": 130.0}, {"package_0": 140.0}], seconds=5)
    assert (found.energy.joules, found.values["power_w"]) == (None, (10.0, 16.0, 2.0))
    assert reason(found, "energy") == "it ran for 15 s, and a counter of energy needs 20 s; give more seconds"
    told = [f"{each}: this machine does not tell it" for each in ("clock", "temperature", "throttle")]
    assert reason(found, "telemetry") == "; ".join(told)


def test_a_processor_tells_its_clock_its_temperature_and_whether_it_was_too_hot(tmp_path, clock):
    def sensors(mhz, millidegrees, throttled_ms):
        throttle = "sys/devices/system/cpu/cpu0/thermal_throttle/package_throttle_total_time_ms"
        hot = {"sys/class/hwmon/hwmon1/name": "coretemp", "sys/class/hwmon/hwmon1/temp1_input": str(millidegrees)}
        other = {"sys/class/hwmon/hwmon0/name": "nvme", "sys/class/hwmon/hwmon0/temp1_input": "99000"}
        write(
            tmp_path, {**hot, **other, throttle: str(throttled_ms), "proc/cpuinfo": f"processor\t: 0\ncpu MHz\t: {mhz:.3f}\nflags\t: fpu"}
        )

    sensors(3000, 60_000, 100)
    with Monitor([Processor()], 2) as watch:
        seen = Window(watch, "cpu", DECLARED)
        seen.mark({"interval_s": 1})
        for state in ((2900, 70_000, 100), (2500, 92_500, 400)):
            clock.now_s += 1
            sensors(*state)
            seen.read()
        seen.mark({"items": 1.0, "seconds": 2.0})
    found = measured(seen)
    assert found.values["clock_hz"] == (2.9e9, 2.5e9)
    assert (found.values["temperature_c"], found.values["throttle"]) == ((70.0, 92.5), (0.0, sampler.SLOWED_DOWN))
    assert found.throttling == Throttling(thermal=pytest.approx(0.15)), "of two seconds"


def test_a_window_that_was_never_begun_adds_nothing(tmp_path):
    with Monitor([Processor()], 2) as watch:
        found = measured(Window(watch, "cpu", Declaration()))
    assert (found.energy, found.missing_reasons, found.values) == (None, {}, {"burst": 1.0})


def test_a_second_window_takes_the_place_of_the_first(tmp_path, clock):
    made_up = Card(f"GPU-{UUID}", "0000:3b:00.0", card(1000))
    with FakeNvml(made_up).imported(), Monitor([CARD], 2) as watch:
        seen = Window(watch, "cuda:0", DECLARED)
        for energy_mj, mhz in ((1000, 1800), (50_000, 900)):
            made_up.answers = card(energy_mj, clock_mhz=mhz)
            seen.mark({"interval_s": 30})
            clock.now_s += 30
            made_up.answers = card(2 * energy_mj, clock_mhz=mhz)
            seen.read()
            seen.mark({"items": energy_mj, "seconds": 30.0})
    found = measured(seen)
    assert (found.energy.joules, found.energy.items, found.values["clock_hz"]) == (pytest.approx(50), 50_000, (0.9e9,))


@pytest.mark.parametrize("seconds", [0, -1, 0.001, float("inf"), float("nan")])
def test_readings_too_close_or_never_are_refused(seconds):
    with pytest.raises(ValueError, match=r"readings .* s apart can't be taken; give 0.01 s or more"), metered_window(seconds):
        pytest.fail("nothing is measured")


def test_idle_power_without_a_counter_is_that_of_all_readings(tmp_path, clock):
    made_up = Card(f"GPU-{UUID}", "0000:3b:00.0", card(None, 300_000))

    def settle(seconds):
        clock.now_s += seconds
        made_up.answers = card(None, 50_000)

    with FakeNvml(made_up).imported(), Monitor([CARD], 2) as watch:
        watch.read_idle({"cuda:0"}, settle)
        idle = watch.idle["cuda:0"]
    assert idle == pytest.approx((175 + 9 * 50) / 10)


@given(st.lists(st.integers(0, int(MOST_WATTS)), min_size=1, max_size=40).filter(any), st.floats(65_000, 300_000), st.floats(0, 1))
def test_a_counter_gives_what_was_taken_however_often_it_wraps_around(watts, most, start):
    def counts():
        total = start * most
        yield total % most
        for each in watts:
            total += each
            yield total % most

    readings = counts()
    meter = CounterMeter("made-up", lambda: {"zone": next(readings)}, {"zone": most})
    for at in range(len(watts) + 1):
        meter.read(float(at))
    assert meter.joules() == pytest.approx(sum(watts), abs=1e-6)


@given(st.lists(st.floats(1.0, 700.0), min_size=2, max_size=40), st.floats(0.1, 10))
def test_power_integrates_to_the_trapezoids_of_its_readings(watts, interval_s):
    readings = iter(watts)
    meter = CounterMeter("made-up", lambda: {"": next(readings)}, by_power=True)
    for at in range(len(watts)):
        meter.read(at * interval_s)
    assert meter.joules() == pytest.approx(interval_s * (sum(watts) - (watts[0] + watts[-1]) / 2))


THROTTLE = "sys/devices/system/cpu/cpu{}/thermal_throttle/{}_throttle_total_time_ms"


def stat(busy, stolen):
    """/proc/stat with so many ticks on each of two CPUs; a third is not ours."""
    row = f"{busy} 0 0 1000 5 0 0 {stolen} 7 7"
    return {"proc/stat": f"cpu  {2 * busy} 0 0 2000 10 0 0 {2 * stolen} 14 14\ncpu0 {row}\ncpu1 {row}\ncpu2 9 9 9 9 9 9 9 9 9 9\nintr 1"}


def quota(throttled_us):
    mount = "31 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw"
    counters = f"nr_periods 9\nnr_throttled 4\nthrottled_usec {throttled_us}"
    return {"proc/self/cgroup": "0::/", "proc/self/mountinfo": mount, "sys/fs/cgroup/cpu.stat": counters}


def answers(thermal_ns, power_ns, reasons=0):
    counted = {
        real.NVML_PERF_POLICY_THERMAL: SimpleNamespace(violationTime=thermal_ns),
        real.NVML_PERF_POLICY_POWER: SimpleNamespace(violationTime=power_ns),
    }
    return {**H200, "nvmlDeviceGetViolationStatus": counted, "nvmlDeviceGetCurrentClocksEventReasons": reasons}


@pytest.fixture(autouse=True)
def _two_cpus(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1}, raising=False)


def test_a_machine_that_counts_nothing_tells_nothing(tmp_path):
    with Monitor([Processor()], 2) as watch:
        assert watch.throttling("cpu", watch.counters("cpu"), Throttling()) is None


def test_a_quota_counts_against_the_time_of_all_threads(clock, tmp_path):
    write(tmp_path, quota(1_000_000))
    with Monitor([Processor()], 2) as watch:
        before = watch.counters("cpu")
        clock.now_s += 5
        write(tmp_path, quota(1_400_000))
        found = watch.throttling("cpu", before, Throttling())
    assert (found.quota, found.thermal, found.throttled) == (pytest.approx(0.04), None, True)


def test_what_the_process_saw_of_its_cpus_is_told_with_what_its_parent_saw(clock, tmp_path):
    lost = Throttling(waiting=0.25, stolen=0.0)
    with Monitor([Processor()], 2) as watch:
        assert watch.throttling("cpu", watch.counters("cpu"), lost) == lost
        assert watch.throttling("cpu", watch.counters("cpu"), Throttling()) is None
        write(tmp_path, quota(0))
        before = watch.counters("cpu")
        clock.now_s += 5
        write(tmp_path, quota(1_000_000))
        assert watch.throttling("cpu", before, lost) == Throttling(quota=0.1, waiting=0.25, stolen=0.0)


def test_the_hottest_core_counts(clock, tmp_path):
    write(tmp_path, {THROTTLE.format(0, "core"): "500", THROTTLE.format(1, "core"): "0", THROTTLE.format(1, "package"): "40"})
    with Monitor([Processor()], 2) as watch:
        before = watch.counters("cpu")
        clock.now_s += 2
        write(tmp_path, {THROTTLE.format(0, "core"): "510", THROTTLE.format(1, "package"): "240"})
        found = watch.throttling("cpu", before, Throttling())
    assert (found.thermal, found.quota, found.throttled) == (pytest.approx(0.1), None, True)


def test_a_card_is_asked_in_one_session_for_its_violations(clock, tmp_path):
    card = Card(f"GPU-{UUID}", "0000:3b:00.0", answers(10**9, 0))
    fake = FakeNvml(card)
    with fake.imported(), Monitor([Processor(), CARD], 2) as watch:
        assert fake.open == 1
        before = watch.counters("cuda:0")
        clock.now_s += 10
        card.answers = answers(3 * 10**9, 5 * 10**9, reasons=0x1 | 0x4 | 0x40)
        found = watch.throttling("cuda:0", before, Throttling())
        assert watch.throttling("cpu", watch.counters("cpu"), Throttling()) is None
    assert fake.open == 0
    # It idles by then, so what holds its clock down now tells nothing of the case.
    assert found == Throttling(thermal=pytest.approx(0.2), power_cap=0.5)


@pytest.mark.parametrize("fake", [FakeNvml(init_error=real.NVML_ERROR_DRIVER_NOT_LOADED), FakeNvml()])
def test_a_card_that_nvml_does_not_know_tells_nothing(tmp_path, fake):
    with fake.imported(), Monitor([CARD], 2) as watch:
        assert watch.throttling("cuda:0", watch.counters("cuda:0"), Throttling()) is None
    assert fake.open == 0


def test_a_card_is_seen_beside_one_that_nvml_does_not_know(tmp_path):
    unknown = Accelerator(id="cuda:1", kind="cuda", uuid="11111111-2222-3333-4444-555555555555", vendor="nvidia")
    fake = FakeNvml(Card(f"GPU-{UUID}", "0000:3b:00.0", answers(0, 0)))
    with fake.imported(), Monitor([unknown, CARD], 2) as watch:
        assert watch.throttling("cuda:1", watch.counters("cuda:1"), Throttling()) is None
        found = watch.throttling("cuda:0", watch.counters("cuda:0"), Throttling())
    assert found == Throttling(thermal=0.0, power_cap=0.0)


def test_a_round_tells_what_others_used(clock, tmp_path, monkeypatch):
    saved = list[RoundState]()
    ticks = os.sysconf("SC_CLK_TCK")
    own_s = iter((1.0, 7.0))
    monkeypatch.setattr("dlbench.harness.probe.processor.own_cpu_s", lambda: next(own_s))
    write(tmp_path, {**stat(0, 0), "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "powersave"})
    card = Card(f"GPU-{UUID}", "0000:3b:00.0", answers(0, 0))
    with FakeNvml(card).imported(), Monitor([Processor(), CARD], 2) as watch, watch.round(3, saved.append) as read_state:
        clock.now_s += 4
        card.answers = {**card.answers, "nvmlDeviceGetTemperature": {real.NVML_TEMPERATURE_GPU: 71}}
        read_state()
        card.answers = answers(0, 0)
        clock.now_s += 1
        write(tmp_path, stat(5 * ticks, 2 * ticks))
    (state,) = saved
    # Ten seconds busy on two CPUs, six of them ours, four stolen; in five seconds.
    assert (state.round, state.seconds, state.other_cpus, state.stolen_cpus) == (3, 5.0, pytest.approx(0.8), pytest.approx(0.8))
    assert state.before["cpu"]["governor"] == "powersave"
    assert "cgroup_quota_cores" not in state.before["cpu"]
    assert [each["accelerators"]["cuda:0"]["temperature_c"] for each in (state.before, state.after)] == [34, 71]
    assert "reasons" not in state.after["accelerators"]["cuda:0"]
    assert convert(RoundState, state.to_json()) == state


def test_a_short_round_and_a_sandbox_tell_nothing_of_others(clock, tmp_path):
    saved = list[RoundState]()
    write(tmp_path, stat(0, 0))
    with Monitor([Processor()], 2) as watch:
        with watch.round(0, saved.append):
            clock.now_s += 0.5
        write(tmp_path, {"proc/stat": "cpu 0 0 0 0 0 0 0 0 0 0\ncpu0 0 0 0 0 0 0 0 0 0 0"})
        with watch.round(1, saved.append):
            clock.now_s += 5
    assert [(each.other_cpus, each.stolen_cpus) for each in saved] == [(None, None)] * 2


def test_process_ids_of_another_namespace_are_not_taken_for_others_while_ours_are_at_work(tmp_path, monkeypatch):
    class Me:
        pid = 1

        def children(self, recursive):
            return [SimpleNamespace(pid=2)]

    card = Card(f"GPU-{UUID}", "0000:3b:00.0", {**H200, "nvmlDeviceGetComputeRunningProcesses": [SimpleNamespace(pid=2**22 + 1)]})
    with FakeNvml(card).imported(), Monitor([CARD], 2) as watch:
        saved = list[RoundState]()
        with watch.round(0, saved.append) as read_state, monkeypatch.context() as patch:
            patch.setattr(psutil, "Process", Me)
            read_state()
    assert (saved[0].before["accelerators"]["cuda:0"]["other_processes"], saved[0].other_processes("cuda:0")) == (1, 1)
    assert "other_processes" not in saved[0].after["accelerators"]["cuda:0"]
