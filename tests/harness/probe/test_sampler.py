"""What the parent samples of a made-up machine: around and during cases, of counters of NVML and of RAPL, and in a round."""

import math
import os
from dataclasses import replace
from types import SimpleNamespace

import psutil
import pynvml as real
import pytest
from hypothesis import given
from hypothesis import strategies as st
from machine_fake import write
from nvml_fake import H200, UUID, Card, FakeNvml, Load, NVMLError

from dlbench.core.conditions import RoundState, Throttling
from dlbench.core.declarations import Declaration, Value
from dlbench.core.decoding import convert
from dlbench.core.errors import explained
from dlbench.core.measurement import Measurement
from dlbench.core.model import Case, Status
from dlbench.core.units import Unit
from dlbench.harness.probe import sampler
from dlbench.harness.probe.devices import Accelerator, Processor
from dlbench.harness.probe.sampler import CounterMeter, Monitor, Window
from dlbench.harness.worker.parent import metered_window

CARD = Accelerator(id="cuda:0", kind="cuda", uuid=UUID, vendor="nvidia")
DECLARED = Declaration(
    values=(
        Value("clock_hz", Unit.HERTZ, series=True, optional=True, role="clock"),
        Value("temperature_c", Unit.CELSIUS, series=True, optional=True, role="temperature"),
        Value("power_w", Unit.WATTS, series=True, optional=True, role="power"),
        Value("throttle", Unit.NUMBER, series=True, optional=True, role="throttle"),
    )
)
RAPL = "sys/class/powercap/intel-rapl:{}"
RANGE_J = 262143.328850
REFUSED = NVMLError(real.NVML_ERROR_NOT_SUPPORTED)


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self):
        self.now_s = 1000.0

    def __call__(self):
        return self.now_s


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(sampler.time, "monotonic", clock)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1}, raising=False)
    return clock


def zones(**joules):
    """A powercap tree: a zone for each package, below it its cores and its memory, which a name ``dram`` gives."""
    files = {f"{RAPL.format('0:0')}/name": "core", f"{RAPL.format('0:0')}/energy_uj": "77"}
    for name, count in joules.items():
        zone = RAPL.format("0:1" if name == "dram" else name.rpartition("_")[2])
        files |= {f"{zone}/name": name.replace("_", "-"), f"{zone}/energy_uj": f"{count * 1e6:.0f}"}
        files[f"{zone}/max_energy_range_uj"] = f"{RANGE_J * 1e6:.0f}"
    return files


def card(energy_mj=1000, power_mw=300_000, reasons=0, clock_mhz=1800, celsius=60):
    return {
        **H200,
        "nvmlDeviceGetTotalEnergyConsumption": energy_mj,
        "nvmlDeviceGetPowerUsage": power_mw,
        "nvmlDeviceGetClockInfo": {real.NVML_CLOCK_SM: clock_mhz, real.NVML_CLOCK_MEM: 3201},
        "nvmlDeviceGetTemperature": {real.NVML_TEMPERATURE_GPU: celsius},
        "nvmlDeviceGetCurrentClocksEventReasons": reasons,
    }


@pytest.fixture
def made_up():
    """A card of the library."""
    made_up = Card(f"GPU-{UUID}", "0000:3b:00.0", card())
    with FakeNvml(made_up).imported():
        yield made_up


def measured(seen):
    return seen.add_samples(Measurement(Case("mine@cuda:0", "s", "mine", {}, "cuda:0"), 0, Status.OK, values={"burst": 1.0}))


def reason(found, group):
    return explained(found.missing_reasons[group]) if group in found.missing_reasons else ""


def on_processor(tmp_path, clock, steps, seconds=10.0):
    """A window on the CPU whose machine has these files at its beginning and after each step."""
    write(tmp_path, steps[0])
    seen = Window(Monitor([Processor()], 2), "cpu", DECLARED)
    seen.mark({"interval_s": seconds})
    for at, step in enumerate(steps[1:], 1):
        clock.now_s += seconds
        write(tmp_path, step)
        if at < len(steps) - 1:
            seen.read()
    seen.mark({"items": 500.0, "seconds": seconds * (len(steps) - 1)})
    return measured(seen)


@pytest.mark.parametrize("dram_j", [51.0, 1.0])  # memory that is not metered stands still
def test_packages_and_their_memory_are_added_and_cores_are_in_them_already(tmp_path, clock, dram_j):
    begun, ended = zones(package_0=100.0, package_1=7.5, dram=1.0), zones(package_0=1300.25, package_1=807.5, dram=dram_j)
    found = on_processor(tmp_path, clock, [begun, ended], seconds=30)
    energy = found.energy
    assert (energy.source, energy.seconds, energy.items, energy.host_joules, energy.idle_watts) == ("rapl", 30.0, 500.0, None, None)
    assert energy.joules == pytest.approx(1200.25 + 800 + dram_j - 1, abs=1e-6)
    assert reason(found, "energy") == "idle: no power was read before the first round"


def test_a_counter_that_wraps_around_twice_goes_on(tmp_path, clock):
    # Between the two in the middle lie 262 kJ, 150 s at 1.7 kW.
    steps = [zones(package_0=joules) for joules in (RANGE_J - 1000, 500.0, RANGE_J - 200, 300.0)]
    found = on_processor(tmp_path, clock, steps, seconds=150)
    assert found.energy.joules == pytest.approx(1500 + (RANGE_J - 700) + 500, abs=1e-6)


def test_a_counter_that_stands_still_or_may_not_be_read_is_null_with_its_reason(tmp_path, clock):
    found = on_processor(tmp_path, clock, [zones(package_0=9000.0)] * 4, seconds=15)
    assert (found.energy.joules, found.energy.source, "power_w" in found.values) == (None, None, False)
    assert reason(found, "energy") == "its counter of energy stood still"
    (tmp_path / RAPL.format(0) / "energy_uj").unlink()
    allow = "only root may read the energy of processors here; allow it: sudo chmod a+r /sys/class/powercap/*/energy_uj"
    assert reason(on_processor(tmp_path, clock, [{}, {}], seconds=30), "energy") == allow


@pytest.mark.parametrize("wraps_at", [{}, {"card": RANGE_J}])
def test_a_counter_that_jumps_back_without_a_range_or_sooner_than_it_could_wrap_around_is_null(clock, wraps_at):
    counts = iter((9000.0, 9400.0, 200.0, 300.0))
    meter = CounterMeter("made-up", lambda: {"card": next(counts)}, wraps_at)
    for _ in range(4):
        meter.read()
        clock.now_s += 15
    assert (meter.joules(), explained([meter.missing()])) == (None, "its counter of energy jumped back, and not by wrapping around")


@pytest.mark.parametrize(
    ("flags", "who", "energy", "of"),
    [("fpu hypervisor\ncpu MHz\t: 2300.0", "a virtual machine", "has no", ""), ("fpu", "this machine", "there is no", " of the device")],
)
def test_a_machine_that_tells_nothing_says_so_in_a_sentence_each(tmp_path, clock, flags, who, energy, of):
    found = on_processor(tmp_path, clock, [{"proc/cpuinfo": f"processor\t: 0\nflags\t\t: {flags}"}, {}], seconds=1)
    assert (found.energy.seconds, found.energy.joules, found.values) == (1.0, None, {"burst": 1.0})
    where = f"{who} {energy} /sys/class/powercap" if of == "" else f"{energy} /sys/class/powercap here"
    assert reason(found, "energy") == f"{where}, by which processors tell their energy"
    assert reason(found, "telemetry") == f"{who} tells no clock, temperature, power or throttling{of}"


def test_a_short_window_has_series_and_no_energy(tmp_path, clock):
    found = on_processor(tmp_path, clock, [zones(package_0=joules) for joules in (0.0, 50.0, 130.0, 140.0)], seconds=5)
    assert (found.energy.joules, found.values["power_w"]) == (None, (10.0, 16.0, 2.0))
    assert reason(found, "energy") == "it ran for 15 s, and a counter of energy needs 20 s; give more seconds"
    not_told = [f"{each}: this machine does not tell it" for each in ("clock", "temperature", "throttle")]
    assert reason(found, "telemetry") == "; ".join(not_told)


def test_a_processor_tells_its_clock_its_temperature_and_whether_it_was_too_hot(tmp_path, clock):
    def sensors(mhz, millidegrees, throttled_ms):
        hwmon = "sys/class/hwmon/hwmon{}/{}".format
        hot = {hwmon(1, "name"): "coretemp", hwmon(1, "temp1_input"): f"{millidegrees}"}
        other = {hwmon(0, "name"): "nvme", hwmon(0, "temp1_input"): "99000"}
        info = {"proc/cpuinfo": f"processor\t: 0\ncpu MHz\t: {mhz:.3f}\nflags\t: fpu"}
        return {**hot, **other, **info, THROTTLE.format(0, "package"): f"{throttled_ms}"}

    states = [sensors(3000, 60_000, 100), sensors(2900, 70_000, 100), sensors(2500, 92_500, 400), {}]
    found = on_processor(tmp_path, clock, states, seconds=1)
    assert found.values == {"burst": 1.0, "clock_hz": (2.9e9, 2.5e9, 2.5e9), "temperature_c": (70.0, 92.5, 92.5)}
    assert found.throttling == Throttling(thermal=pytest.approx(0.1)), "of three seconds"


def on_card(clock, made_up, steps, interval_s, seconds, items=1.0, seen=None):
    """A window on the card, which answers otherwise after each step."""
    seen = seen or Window(Monitor([CARD], 2), "cuda:0", DECLARED)
    seen.mark({"interval_s": interval_s})
    for passed_s, answers in steps:
        clock.now_s += passed_s
        made_up.answers = card(**answers)
        seen.read()
    seen.mark({"items": items, "seconds": seconds})
    return measured(seen)


def test_without_a_counter_power_is_integrated(clock, made_up):
    made_up.answers = card(REFUSED, 100_000)
    steps = [(seconds, {"energy_mj": REFUSED, "power_mw": power}) for seconds, power in ((10, 200_000), (10, 300_000), (5, 300_000))]
    energy = on_card(clock, made_up, steps, 10, 25.0).energy
    assert (energy.source, energy.joules) == ("nvml_power", pytest.approx(10 * 150 + 10 * 250 + 5 * 300))


def test_a_card_is_metered_to_a_millijoule_with_idle_power_and_its_host(tmp_path, clock, made_up):
    write(tmp_path, zones(package_0=10.0))

    def idle(seconds):
        clock.now_s += seconds
        made_up.answers = card(1000 + int(70_000 * seconds))

    watch = Monitor([Processor(), CARD], 2)
    watch.read_idle({"cuda:0"}, idle)
    seen = Window(watch, "cuda:0", DECLARED)
    assert seen.due_s == math.inf
    seen.mark({"interval_s": 30})
    assert seen.due_s == clock.now_s + 30
    clock.now_s += 30
    made_up.answers = card(19_000_001, 301_000, reasons=0x1 | 0x4, clock_mhz=1700, celsius=80)
    seen.read()
    write(tmp_path, zones(package_0=4210.0))
    clock.now_s += 30
    made_up.answers = card(23_700_123, 250_000, reasons=0x4 | 0x40, clock_mhz=1500, celsius=85)
    seen.mark({"items": 4096.0, "seconds": 60.0})
    found = measured(seen)
    energy = found.energy
    assert (energy.source, energy.seconds, energy.items) == ("nvml_counter", 60.0, 4096.0)
    joules = pytest.approx(23_700.123 - 701, abs=1e-9)
    assert (energy.joules, energy.idle_watts, energy.host_joules) == (joules, pytest.approx(70), pytest.approx(4200))
    series = {"clock_hz": (1.7e9, 1.5e9), "temperature_c": (80.0, 85.0), "power_w": (301.0, 250.0)}
    assert found.values == {"burst": 1.0, "throttle": (sampler.AT_POWER_LIMIT, sampler.SLOWED_DOWN), **series}
    assert (found.throttling.reasons, found.missing_reasons) == (("hw_thermal_slowdown", "sw_power_cap"), {})


def test_a_reading_that_comes_late_stands_for_those_that_it_missed(clock, made_up):
    found = on_card(clock, made_up, [(3.5, {}), (0.5, {"clock_mhz": 900})], 1, 4.0)
    assert found.values["clock_hz"] == (1.8e9, 1.8e9, 1.8e9, 0.9e9)


def test_series_have_the_points_of_the_worker_whose_window_began_first(clock, made_up):
    found = on_card(clock, made_up, [(1.0, {})] * 21 + [(0.99, {})], 1.0, 22.01)  # the message took 20 ms
    assert {len(points) for points in found.values.values() if isinstance(points, tuple)} == {22}


def test_a_second_window_takes_the_place_of_the_first(clock, made_up):
    seen = Window(Monitor([CARD], 2), "cuda:0", DECLARED)
    on_card(clock, made_up, [(30, {"energy_mj": 1000})], 30, 30.0, 1000, seen)
    found = on_card(clock, made_up, [(30, {"energy_mj": 51_000, "clock_mhz": 900})], 30, 30.0, 50_000, seen)
    assert (found.energy.joules, found.energy.items, found.values["clock_hz"]) == (pytest.approx(50), 50_000, (0.9e9,))


@pytest.mark.parametrize(
    ("refused", "throttling"),
    [
        ((), Throttling(reasons=("sw_power_cap",), clock_hz=1.5e9, power_w=690.0)),
        (("CurrentClocksEventReasons", "PowerUsage"), Throttling(clock_hz=1.5e9)),
    ],
)
def test_what_holds_a_card_down_is_read_while_its_blocks_run(clock, made_up, refused, throttling):
    """It is under load for a second, is timed for most of that, and copies for two."""
    load = Load(clock, clock.now_s, clock.now_s + 1)
    made_up.answers |= {
        "nvmlDeviceGetCurrentClocksEventReasons": load.answer(0x0, 0x4),
        "nvmlDeviceGetClockInfo": load.answer({real.NVML_CLOCK_SM: 1980}, {real.NVML_CLOCK_SM: 1500}),
        "nvmlDeviceGetPowerUsage": load.answer(124_000, 690_000),
        **{f"nvmlDeviceGet{name}": REFUSED for name in refused},
    }
    seen = Window(Monitor([CARD], 2), "cuda:0", Declaration())
    clock.now_s += 0.3
    seen.mark({"timed": True})
    while seen.due_s < load.end_s:
        clock.now_s = seen.due_s
        seen.read()
    clock.now_s = load.end_s
    seen.mark({"timed": False})
    assert seen.due_s == math.inf
    clock.now_s += 2
    found = measured(seen)
    assert found.throttling == throttling
    assert (found.values, found.energy, found.missing_reasons) == ({"burst": 1.0}, None, {})


NOT_STARTED, SILENT, ANSWERS = (
    FakeNvml(init_error=real.NVML_ERROR_DRIVER_NOT_LOADED),
    *(FakeNvml(Card(f"GPU-{UUID}", "", card(each, each))) for each in (REFUSED, 1000)),
)


@pytest.mark.parametrize(
    ("device", "fake", "sentence"),
    [
        (CARD, NOT_STARTED, "NVML tells neither energy nor power of this device"),
        (CARD, SILENT, "NVML tells neither energy nor power of this device"),
        (replace(CARD, mig=True), ANSWERS, "a MIG instance has no meter of its own"),
        (Accelerator(id="xpu:0", kind="xpu", vendor="intel"), ANSWERS, "dlbench reads no energy of xpu devices"),
    ],
)
def test_a_device_without_a_meter_says_why(clock, device, fake, sentence):
    with fake.imported():
        watch = Monitor([Processor(), device], 2)
        assert watch.meters({device.id}) == {}
        seen = Window(watch, device.id, DECLARED)
        seen.mark({"interval_s": 1})
        clock.now_s += 30
        seen.mark({"items": 1.0, "seconds": 30.0})
        found = measured(seen)
    no_host = "host: there is no /sys/class/powercap here, by which processors tell their energy"
    assert reason(found, "energy") == f"{sentence}; {no_host}"


@pytest.mark.parametrize("seconds", [0, -1, 0.001, math.inf, math.nan])
def test_readings_too_close_or_never_are_refused(seconds):
    with pytest.raises(ValueError, match=r"readings .* s apart can't be taken; give 0.01 s or more"), metered_window(seconds):
        pytest.fail("nothing is measured")


@given(st.lists(st.integers(0, 2000), min_size=1, max_size=40).filter(any), st.floats(65_000, 300_000), st.floats(0, 1))
def test_a_counter_gives_what_was_taken_however_often_it_wraps_around(watts, most, start):
    totals = [start * most + sum(watts[:at]) for at in range(len(watts) + 1)]
    readings = iter(totals)
    meter = CounterMeter("made-up", lambda: {"zone": next(readings) % most}, {"zone": most})
    for _ in totals:
        meter.read()
    assert meter.joules() == pytest.approx(sum(watts), abs=1e-6)


THROTTLE = "sys/devices/system/cpu/cpu{}/thermal_throttle/{}_throttle_total_time_ms"
MOUNT = "31 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw"


def stat(busy, stolen):
    """/proc/stat with so many ticks on each of two CPUs; a third is not ours."""
    row = f"{busy} 0 0 1000 5 0 0 {stolen} 7 7"
    return {"proc/stat": f"cpu  {2 * busy} 0 0 2000 10 0 0 {2 * stolen} 14 14\ncpu0 {row}\ncpu1 {row}\ncpu2 9 9 9 9 9 9 9 9 9 9\nintr 1"}


def quota(throttled_us):
    counters = f"nr_periods 9\nnr_throttled 4\nthrottled_usec {throttled_us}"
    return {"proc/self/cgroup": "0::/", "proc/self/mountinfo": MOUNT, "sys/fs/cgroup/cpu.stat": counters}


def cores(one_ms, package_ms):
    return {THROTTLE.format(0, "core"): f"{one_ms}", THROTTLE.format(1, "core"): "0", THROTTLE.format(1, "package"): f"{package_ms}"}


LOST = Throttling(waiting=0.25, stolen=0.0)


@pytest.mark.parametrize(
    ("before", "after", "seen", "found"),
    [
        ({}, {}, Throttling(), None),  # counts nothing
        ({}, {}, LOST, LOST),
        (quota(10**6), quota(1_400_000), Throttling(), Throttling(quota=pytest.approx(0.04))),  # against the time of all threads
        (quota(0), quota(10**6), LOST, Throttling(quota=0.1, waiting=0.25, stolen=0.0)),
        (cores(500, 40), cores(525, 540), Throttling(), Throttling(thermal=pytest.approx(0.1))),  # the hottest counts
    ],
)
def test_what_held_back_a_processor_in_five_seconds(tmp_path, clock, before, after, seen, found):
    begun = measured(Window(Monitor([Processor()], 2), "cpu", Declaration()))  # a window that was never begun adds nothing
    assert (begun.energy, begun.missing_reasons, begun.values) == (None, {}, {"burst": 1.0})
    write(tmp_path, before)
    watch = Monitor([Processor()], 2)
    counters = watch.counters("cpu")
    clock.now_s += 5
    write(tmp_path, after)
    assert watch.throttling("cpu", counters, seen) == found


def violations(thermal_ns, power_ns, reasons=0):
    counted = {
        real.NVML_PERF_POLICY_THERMAL: SimpleNamespace(violationTime=thermal_ns),
        real.NVML_PERF_POLICY_POWER: SimpleNamespace(violationTime=power_ns),
    }
    return {**H200, "nvmlDeviceGetViolationStatus": counted, "nvmlDeviceGetCurrentClocksEventReasons": reasons}


def test_a_card_is_asked_for_its_violations_and_one_that_nvml_does_not_know_tells_nothing(clock, made_up):
    unknown = Accelerator(id="cuda:1", kind="cuda", uuid="11111111-2222-3333-4444-555555555555", vendor="nvidia")
    watch = Monitor([Processor(), unknown, CARD], 2)
    made_up.answers = violations(10**9, 0)
    before = {device: watch.counters(device) for device in ("cpu", "cuda:0", "cuda:1")}
    clock.now_s += 10
    made_up.answers = violations(3 * 10**9, 5 * 10**9, reasons=0x1 | 0x4 | 0x40)
    # It idles by then, so what holds its clock down now tells nothing of the case.
    card = Throttling(thermal=pytest.approx(0.2), power_cap=0.5)
    assert [watch.throttling(device, counters, Throttling()) for device, counters in before.items()] == [None, card, None]


def test_a_round_tells_what_others_used(clock, tmp_path, monkeypatch, made_up):
    saved = list[RoundState]()
    ticks = os.sysconf("SC_CLK_TCK")
    own_s = iter((1.0, 7.0))
    monkeypatch.setattr("dlbench.harness.probe.processor.own_cpu_s", lambda: next(own_s))
    write(tmp_path, {**stat(0, 0), "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "powersave"})
    made_up.answers = H200
    with Monitor([Processor(), CARD], 2).round(3, saved.append) as read_state:
        clock.now_s += 4
        made_up.answers = {**H200, "nvmlDeviceGetTemperature": {real.NVML_TEMPERATURE_GPU: 71}}
        read_state()
        made_up.answers = H200
        clock.now_s += 1
        write(tmp_path, stat(5 * ticks, 2 * ticks))
    (state,) = saved
    # Ten seconds busy on two CPUs, six of them ours, four stolen; in five seconds.
    assert (state.round, state.seconds, state.other_cpus, state.stolen_cpus) == (3, 5.0, pytest.approx(0.8), pytest.approx(0.8))
    assert (state.before["cpu"]["governor"], "cgroup_quota_cores" in state.before["cpu"]) == ("powersave", False)
    assert [each["accelerators"]["cuda:0"]["temperature_c"] for each in (state.before, state.after)] == [34, 71]
    assert "reasons" not in state.after["accelerators"]["cuda:0"]
    assert convert(RoundState, state.to_json()) == state


def test_a_short_round_and_a_sandbox_tell_nothing_of_others(clock, tmp_path):
    saved = list[RoundState]()
    for files, seconds in ((stat(0, 0), 0.5), ({"proc/stat": "cpu 0 0 0 0 0 0 0 0 0 0\ncpu0 0 0 0 0 0 0 0 0 0 0"}, 5)):
        write(tmp_path, files)
        with Monitor([Processor()], 2).round(0, saved.append):
            clock.now_s += seconds
    assert [(each.other_cpus, each.stolen_cpus) for each in saved] == [(None, None)] * 2


def test_process_ids_of_another_namespace_are_not_taken_for_others_while_ours_are_at_work(monkeypatch, made_up):
    ours = SimpleNamespace(pid=1, children=lambda recursive: [SimpleNamespace(pid=2)])
    made_up.answers["nvmlDeviceGetComputeRunningProcesses"] = [SimpleNamespace(pid=2**22 + 1)]
    saved = list[RoundState]()
    with Monitor([CARD], 2).round(0, saved.append) as read_state, monkeypatch.context() as patch:
        patch.setattr(psutil, "Process", lambda: ours)
        read_state()
    assert (saved[0].before["accelerators"]["cuda:0"]["other_processes"], saved[0].other_processes("cuda:0")) == (1, 1)
    assert "other_processes" not in saved[0].after["accelerators"]["cuda:0"]
