import re
import sys
from pathlib import Path

import pynvml as real
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nvml_fake import H200, Card, FakeNvml, NVMLError, NVMLLibraryMismatchError

from dlbench.harness.probe import nvml

UUID = "8d2a59f1-6c1f-4c4b-9a55-0123456789ab"
OTHER = "11111111-2222-3333-4444-555555555555"


def read(fake, address, *wanted):
    with fake.imported():
        readings = nvml.read_devices({"it": address}, wanted or nvml.FACTS)["it"]
    assert fake.open == 0  # closed again, whatever happened
    return readings


def test_every_fact_in_base_units():
    readings = read(FakeNvml(Card(f"GPU-{UUID}", "0000:3b:00.0", H200)), nvml.Address(UUID))
    assert readings.reasons == {}
    assert readings.values == {
        "driver_version": "580.65.06",
        "pcie_generation": 1,
        "pcie_generation_max": 5,
        "pcie_width": 8,
        "pcie_width_max": 16,
        "nvlink_links": 18,
        "power_limit_w": 650.0,
        "power_limit_default_w": 700.0,
        "clock_sm_hz": 345e6,
        "clock_sm_max_hz": 1980e6,
        "clock_memory_hz": 3201e6,
        "clock_memory_max_hz": 3202e6,
        "ecc": True,
        "mig": False,
        "persistence": True,
        "temperature_c": 34,
        "compute_mode": "default",
    }


def test_state():
    readings = read(FakeNvml(Card(f"GPU-{UUID}", "0000:3b:00.0", H200)), nvml.Address(UUID), *nvml.STATE)
    assert readings.values["power_w"] == pytest.approx(120.5)
    assert readings.values["throttle_reasons"] == ["sw_power_cap", "sw_thermal_slowdown"]
    assert (readings.values["process_ids"], readings.values["graphics_process_ids"]) == ([71], [72])  # 72 computes too, as a desktop may


@pytest.mark.parametrize("address", [nvml.Address(uuid=UUID), nvml.Address(uuid=f"GPU-{UUID}"), nvml.Address(pci_bus_id="0000:3b:00.0")])
def test_a_device_is_matched_whatever_its_place(address):
    wanted = Card(f"GPU-{UUID}", "0000:3b:00.0", {"nvmlDeviceGetPersistenceMode": 1})
    other = Card(f"GPU-{OTHER}", "0000:5e:00.0", {"nvmlDeviceGetPersistenceMode": 0})
    for cards in ((wanted, other), (other, wanted)):
        assert read(FakeNvml(*cards), address, "persistence").values == {"persistence": True}


def test_an_unknown_uuid_falls_back_to_the_pci_address():
    fake = FakeNvml(Card(f"GPU-{OTHER}", "0000:3b:00.0", {"nvmlDeviceGetPersistenceMode": 1}))
    assert read(fake, nvml.Address(UUID, "0000:3b:00.0"), "persistence").values == {"persistence": True}


@pytest.mark.parametrize("uuid", [UUID, f"MIG-{UUID}"])
def test_a_mig_instance_is_read_from_its_gpu(uuid):
    gpu = Card(f"GPU-{OTHER}", "0000:3b:00.0", {**H200, "nvmlDeviceGetMigMode": [1, 1]})
    readings = read(FakeNvml(gpu, mig={f"MIG-{UUID}": gpu}), nvml.Address(uuid), "mig", "clock_sm_hz")
    assert readings.values == {"mig": True, "clock_sm_hz": 345e6}


def test_a_refusal_costs_one_field():
    answers = {
        **H200,
        "nvmlDeviceGetEccMode": NVMLError(real.NVML_ERROR_NOT_SUPPORTED),
        "nvmlDeviceGetPersistenceMode": NVMLError(real.NVML_ERROR_NO_PERMISSION),
        "nvmlDeviceGetMigMode": NVMLError(real.NVML_ERROR_UNKNOWN),
        "nvmlDeviceGetTemperature": NVMLError(real.NVML_ERROR_GPU_IS_LOST),
        "nvmlDeviceGetNvLinkState": [],
    }
    readings = read(FakeNvml(Card(f"GPU-{UUID}", "0000:3b:00.0", answers)), nvml.Address(UUID))
    assert readings.reasons == {
        "nvlink_links": "NVML refused: code 2",
        "ecc": "this device does not tell it through NVML",
        "mig": "NVML refused: code 999",
        "persistence": "the driver tells it to administrators only",
        "temperature_c": "the GPU stopped answering its driver: reboot",
    }
    assert readings.values.keys() | readings.reasons.keys() == set(nvml.FACTS)


def test_inactive_and_missing_links_do_not_count():
    card = Card(f"GPU-{UUID}", "0000:3b:00.0", {"nvmlDeviceGetNvLinkState": [1, 0, 1, 0]})
    assert read(FakeNvml(card), nvml.Address(UUID), "nvlink_links").values == {"nvlink_links": 2}


def test_an_old_package_lacks_a_function():
    fake = FakeNvml(Card(f"GPU-{UUID}", "0000:3b:00.0", H200 | {"nvmlDeviceGetCurrentClocksThrottleReasons": 1}))
    fake.without = {"nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetMigMode"}
    readings = read(fake, nvml.Address(UUID), "throttle_reasons", "mig")
    assert readings.values == {"throttle_reasons": ["gpu_idle"]}
    assert readings.reasons == {"mig": "the installed nvidia-ml-py is too old to ask for it; pip install -U nvidia-ml-py"}


def test_a_driver_too_old_for_the_package_costs_one_field():
    answers = {**H200, "nvmlDeviceGetComputeRunningProcesses": NVMLLibraryMismatchError("Unversioned function called and …")}
    readings = read(FakeNvml(Card(f"GPU-{UUID}", "", answers)), nvml.Address(UUID), "process_ids", "ecc")
    assert (readings.values, readings.reasons) == ({"ecc": True}, {"process_ids": "the NVIDIA driver is too old to tell it"})


def test_a_driver_before_535_knows_the_throttle_reasons_by_their_older_name():
    refusal = NVMLError(real.NVML_ERROR_FUNCTION_NOT_FOUND)
    answers = {"nvmlDeviceGetCurrentClocksEventReasons": refusal, "nvmlDeviceGetCurrentClocksThrottleReasons": 0x4}
    assert read(FakeNvml(Card(f"GPU-{UUID}", "", answers)), nvml.Address(UUID), "throttle_reasons").values == {
        "throttle_reasons": ["sw_power_cap"]
    }
    answers["nvmlDeviceGetCurrentClocksThrottleReasons"] = refusal
    assert read(FakeNvml(Card(f"GPU-{UUID}", "", answers)), nvml.Address(UUID), "throttle_reasons").reasons == {
        "throttle_reasons": "the NVIDIA driver is too old to tell it"
    }


def slowdown(*without):
    answers = {"nvmlDeviceGetTemperature": {real.NVML_TEMPERATURE_GPU: 34}, "nvmlDeviceGetMarginTemperature": 53}
    fake = FakeNvml(Card(f"GPU-{UUID}", "", answers))
    fake.without = set(without)
    return read(fake, nvml.Address(UUID), "temperature_slowdown_c")


@pytest.mark.skipif(not hasattr(real, "nvmlDeviceGetMarginTemperature"), reason="this nvidia-ml-py is too old to ask for the margin")
def test_a_card_that_tells_only_how_far_off_its_slowdown_is():
    assert slowdown().values == {"temperature_slowdown_c": 87}


def test_a_card_that_tells_neither_its_slowdown_nor_how_far_off_it_is():
    said = {"temperature_slowdown_c": "this device does not tell it through NVML"}
    assert slowdown("nvmlDeviceGetMarginTemperature").reasons == said


@pytest.mark.parametrize(("mode", "name"), [(0, "default"), (2, "prohibited"), (3, "exclusive_process"), (9, "9")])
def test_compute_mode(mode, name):
    fake = FakeNvml(Card(f"GPU-{UUID}", "", {"nvmlDeviceGetComputeMode": mode}))
    assert read(fake, nvml.Address(UUID), "compute_mode").values == {"compute_mode": name}


def test_a_card_without_graphics_still_tells_who_computes():
    answers = {"nvmlDeviceGetComputeRunningProcesses": H200["nvmlDeviceGetComputeRunningProcesses"]}
    assert read(FakeNvml(Card(f"GPU-{UUID}", "", answers)), nvml.Address(UUID), "process_ids").values == {"process_ids": [71, 72]}


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (real.NVML_ERROR_LIBRARY_NOT_FOUND, "NVML was not found: install the NVIDIA driver (in a container: its 'utility' capability)"),
        (real.NVML_ERROR_DRIVER_NOT_LOADED, "the NVIDIA driver is not loaded"),
        (
            real.NVML_ERROR_LIB_RM_VERSION_MISMATCH,
            "the NVML library and the loaded NVIDIA driver are of different versions: reboot or match the driver",
        ),
        (real.NVML_ERROR_UNKNOWN, "NVML did not start: code 999"),
    ],
)
def test_where_nvml_does_not_open_every_field_says_why(code, reason):
    assert read(FakeNvml(init_error=code), nvml.Address(UUID), "ecc", "mig") == nvml.Readings({}, {"ecc": reason, "mig": reason})


def test_without_the_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    readings = nvml.read_devices({"cuda:0": nvml.Address(UUID)}, ["ecc"])
    assert readings["cuda:0"].reasons == {"ecc": "the package nvidia-ml-py is not installed; pip install nvidia-ml-py"}


@pytest.mark.parametrize(("address", "why"), [(nvml.Address(UUID), "NVML: Not Found"), (nvml.Address(), "torch tells neither")])
def test_a_device_that_nvml_does_not_know(address, why):
    readings = read(FakeNvml(Card(f"GPU-{OTHER}", "0000:3b:00.0", H200)), address, "ecc")
    assert readings.reasons == {"ecc": f"NVML does not find this device by its UUID or PCI address ({why})"}


def test_the_functions_asked_for_exist_in_pynvml():
    # The stand-in answers only under names of the real module, and `read` takes a missing one for an old package.
    source = Path(nvml.__file__).read_text()
    asked = set(re.findall(r"nvml\.(nvml\w+|NVML\w+)", source))
    looked_for = set(re.findall(r'hasattr\(nvml, "(\w+)"\)', source))  # what an older package lacks is asked for only where it is there
    assert len(asked) > 20
    assert {name for name in asked - looked_for if not hasattr(real, name)} == set()


@given(st.uuids(), st.sampled_from(["", "GPU-", "MIG-", "gpu-"]), st.booleans(), st.booleans())
def test_any_spelling_of_a_uuid_gives_the_names_nvml_knows(uuid, prefix, upper, bare):
    digits = str(uuid).replace("-", "") if bare else str(uuid)
    names = nvml.uuid_names(prefix + (digits.upper() if upper else digits))
    assert names == tuple(f"{each}-{uuid}" for each in ([prefix[:3].upper()] if prefix else ["GPU", "MIG"]))


@given(st.text())
def test_what_is_no_uuid_is_asked_for_as_it_is(text):
    assert nvml.uuid_names("!" + text) == ("!" + text,)
