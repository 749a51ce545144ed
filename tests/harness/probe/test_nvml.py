"""NVIDIA's library: what it answers in base units, and what it refuses with a reason."""

import re
import sys
from pathlib import Path

import pynvml as real
import pytest
from nvml_fake import H200, UUID, Card, FakeNvml, NVMLError, NVMLLibraryMismatchError

from dlbench.harness.probe import nvml

OTHER = "11111111-2222-3333-4444-555555555555"
HELD = ["gpu_idle", "hw_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown", "display_clock_setting"]


def read(fake, *wanted, uuid=UUID, pci_bus_id=None):
    with fake.imported():
        values, reasons = nvml.reader(uuid, pci_bus_id)(wanted or nvml.FACTS)
    return dict(values), dict(reasons)


def answered(answers, *wanted):
    return read(FakeNvml(Card(f"GPU-{UUID}", "0000:3b:00.0", answers)), *wanted)


def test_every_fact_and_state_in_base_units():
    facts = {"driver_version": "580.65.06", "pcie_generation": 1, "pcie_generation_max": 5, "pcie_width": 8, "pcie_width_max": 16}
    facts |= {"nvlink_links": 18, "power_limit_w": 650.0, "power_limit_default_w": 700.0, "clock_sm_hz": 345e6, "clock_sm_max_hz": 1980e6}
    facts |= {"clock_memory_hz": 3201e6, "clock_memory_max_hz": 3202e6, "ecc": True, "mig": False, "persistence": True}
    facts |= {"temperature_c": 34, "compute_mode": "default"}
    assert answered(H200) == (facts, {})
    state, reasons = answered(H200, *nvml.STATE)
    new = {"power_w": pytest.approx(120.5), "throttle_reasons": ["sw_power_cap", "sw_thermal_slowdown"]}
    new |= {"process_ids": [71], "graphics_process_ids": [72]}  # the second computes too, as a desktop may
    assert (state, reasons) == ({name: (new | facts)[name] for name in nvml.STATE}, {})


@pytest.mark.parametrize(
    "address", [{}, {"uuid": f"GPU-{UUID}"}, {"uuid": None, "pci_bus_id": "0000:3b:00.0"}, {"uuid": "odd", "pci_bus_id": "0000:3b:00.0"}]
)
def test_a_device_is_matched_whatever_its_place(address):
    wanted = Card(f"GPU-{UUID}", "0000:3b:00.0", {"nvmlDeviceGetPersistenceMode": 1})
    other = Card(f"GPU-{OTHER}", "0000:5e:00.0", {"nvmlDeviceGetPersistenceMode": 0})
    for cards in ((wanted, other), (other, wanted)):
        assert read(FakeNvml(*cards), "persistence", **address) == ({"persistence": True}, {})


@pytest.mark.parametrize("uuid", [UUID, f"MIG-{UUID}"])
def test_a_mig_instance_is_read_from_its_gpu(uuid):
    gpu = Card(f"GPU-{OTHER}", "0000:3b:00.0", {**H200, "nvmlDeviceGetMigMode": [1, 1]})
    found = read(FakeNvml(gpu, mig={f"MIG-{UUID}": gpu}), "mig", "clock_sm_hz", uuid=uuid)
    assert found == ({"mig": True, "clock_sm_hz": 345e6}, {})


def test_a_refusal_costs_one_field(snapshot):
    answers = {
        **H200,
        "nvmlDeviceGetEccMode": NVMLError(real.NVML_ERROR_NOT_SUPPORTED),
        "nvmlDeviceGetPersistenceMode": NVMLError(real.NVML_ERROR_NO_PERMISSION),
        "nvmlDeviceGetMigMode": NVMLError(real.NVML_ERROR_UNKNOWN),
        "nvmlDeviceGetTemperature": NVMLError(real.NVML_ERROR_GPU_IS_LOST),
        "nvmlDeviceGetNvLinkState": [],
        "nvmlDeviceGetComputeMode": NVMLError(real.NVML_ERROR_FUNCTION_NOT_FOUND),
        "nvmlDeviceGetCurrPcieLinkWidth": NVMLLibraryMismatchError("Unversioned function called and …"),
    }
    fake = FakeNvml(Card(f"GPU-{UUID}", "", answers))
    fake.without = {"nvmlDeviceGetMaxPcieLinkWidth"}
    values, reasons = read(fake)
    snapshot("nvml-refusals", "".join(f"{field}: {reason}\n" for field, reason in sorted(reasons.items())))
    assert values.keys() == set(nvml.FACTS) - reasons.keys()


@pytest.mark.parametrize(
    ("field", "answers", "value"),
    [
        ("nvlink_links", {"nvmlDeviceGetNvLinkState": [1, 0, 1, 0]}, 2),  # neither inactive nor missing links count
        ("compute_mode", {"nvmlDeviceGetComputeMode": 2}, "prohibited"),
        ("compute_mode", {"nvmlDeviceGetComputeMode": 3}, "exclusive_process"),
        ("compute_mode", {"nvmlDeviceGetComputeMode": 9}, "another"),
        ("throttle_reasons", {"nvmlDeviceGetCurrentClocksEventReasons": 0x1C9}, HELD),
        # A card without graphics still tells who computes.
        ("process_ids", {"nvmlDeviceGetComputeRunningProcesses": H200["nvmlDeviceGetComputeRunningProcesses"]}, [71, 72]),
    ],
)
def test_fields_of_their_own_kind(field, answers, value):
    assert answered(answers, field) == ({field: value}, {})


def test_a_card_that_tells_only_how_far_off_its_slowdown_is():
    answers = {"nvmlDeviceGetTemperature": {real.NVML_TEMPERATURE_GPU: 34}, "nvmlDeviceGetMarginTemperature": 53}
    if hasattr(real, "nvmlDeviceGetMarginTemperature"):  # else this nvidia-ml-py is too old to ask for it
        assert answered(answers, "temperature_slowdown_c") == ({"temperature_slowdown_c": 87}, {})
    del answers["nvmlDeviceGetMarginTemperature"]
    values, reasons = answered(answers, "temperature_slowdown_c")
    assert (values, list(reasons)) == ({}, ["temperature_slowdown_c"])


def test_where_nvml_does_not_open_or_does_not_know_the_device_every_field_says_why(snapshot, monkeypatch):
    codes = ("LIBRARY_NOT_FOUND", "DRIVER_NOT_LOADED", "LIB_RM_VERSION_MISMATCH", "UNKNOWN")
    scenes = {code: read(FakeNvml(init_error=getattr(real, f"NVML_ERROR_{code}")), "ecc", "mig") for code in codes}
    other = FakeNvml(Card(f"GPU-{OTHER}", "0000:3b:00.0", H200))
    scenes |= {f"another device, of UUID {uuid}": read(other, "ecc", uuid=uuid) for uuid in (UUID, None)}
    with FakeNvml().imported(), monkeypatch.context() as patch:
        patch.setitem(sys.modules, "pynvml", None)
        scenes["no package"] = tuple(nvml.reader(UUID, None)(["ecc"]))
    assert not any(values for values, _ in scenes.values())
    snapshot("nvml-reasons", "".join(f"{scene}\n    {dict(reasons)}\n" for scene, (_, reasons) in scenes.items()))


def test_nvml_is_opened_once_for_all_devices_and_readings():
    fake = FakeNvml(Card(f"GPU-{UUID}", "", H200), Card(f"GPU-{OTHER}", "", H200))
    with fake.imported():
        for uuid in (UUID, OTHER, UUID):
            assert nvml.reader(uuid, None)(["ecc"]).values == {"ecc": True}
    assert fake.opened == 1


def test_the_functions_asked_for_exist_in_pynvml():
    # The stand-in answers only under names of the real module, and `_read` takes a missing one for an old package.
    source = Path(nvml.__file__).read_text()
    asked = {*re.findall(r'nvml\.(nvml\w+|NVML\w+)|"(NVML_\w+)"', source)}
    names = {*map("".join, asked), *(f"nvmlDeviceGet{name}" for name in re.findall(r'_query\("(\w+)"', source))}
    assert len(names) > 40
    assert {name for name in names if not hasattr(real, name)} <= {"nvmlDeviceGetMarginTemperature"}  # the youngest
