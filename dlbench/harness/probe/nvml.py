"""NVIDIA's management library: the only module that uses ``pynvml``. A refusal of NVML becomes a reason, never an exception of its own.

A device is found by its UUID or PCI address, never by index: CUDA_VISIBLE_DEVICES reorders torch's devices and not NVML's.
"""

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from functools import cache, partial
from importlib import import_module
from typing import Any, NamedTuple

Pynvml = Any
"""The module ``pynvml``, which carries no types."""
Handle = Any
"""An opaque pointer of NVML to one device."""
Query = Callable[[Pynvml, Handle], Any]


class Readings(NamedTuple):
    """A value, or the reason why there is none, for every field that a device was asked for."""

    values: Mapping[str, Any]
    reasons: Mapping[str, str]


Reader = Callable[[Collection[str]], Readings]
"""Asks one device for the fields with these names."""


class NvmlUnavailable(Exception):
    """NVML can't be asked, or not about this device; ``str()`` of it is the reason."""


@cache
def library() -> Pynvml:
    """Open NVML, once for as long as this process lives. Raises NvmlUnavailable, with the reason, where there is none."""
    try:
        pynvml: Pynvml = import_module("pynvml")
    except ImportError as error:
        raise NvmlUnavailable("the package nvidia-ml-py is not installed; pip install nvidia-ml-py") from error
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        raise NvmlUnavailable(_reason(pynvml, error, "NVML did not start")) from error
    return pynvml


def reader(uuid: str | None, pci_bus_id: str | None) -> Reader:
    """Return the reader of the device with that UUID or PCI address (``0000:3b:00.0``).

    Where NVML or the device is missing, its readings have that reason for each field.
    """
    try:
        nvml = library()
        return partial(_read, nvml, _find(nvml, uuid, pci_bus_id))
    except NvmlUnavailable as unavailable:
        return partial(without_values, str(unavailable))


def without_values(reason: str, wanted: Collection[str]) -> Readings:
    """Return readings that have the same reason for each field."""
    return Readings({}, dict.fromkeys(wanted, reason))


def uuid_names(uuid: str) -> tuple[str, ...]:
    """Return the names under which NVML may know a device: torch writes the UUID of a GPU, or of a MIG instance, without the prefix."""
    return (uuid,) if uuid.startswith(("GPU-", "MIG-")) else (f"GPU-{uuid}", f"MIG-{uuid}")


def _find(nvml: Pynvml, uuid: str | None, pci_bus_id: str | None) -> Handle:
    """Return the handle of a device; for a MIG instance that of its GPU, which has the clocks, the power and the PCIe link.

    Raises NvmlUnavailable, with the reason, if NVML does not know the device.
    """
    # Each function to look it up by, with the name to look up.
    lookups = [(nvml.nvmlDeviceGetHandleByUUID, name) for name in uuid_names(uuid)] if uuid else []
    if pci_bus_id:
        lookups.append((nvml.nvmlDeviceGetHandleByPciBusId, pci_bus_id))
    refusal = "torch tells neither"  # the reason where there is no name to look up
    for look_up, name in lookups:
        try:
            handle = look_up(name)
            return nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(handle) if name.startswith("MIG-") else handle
        except nvml.NVMLError as error:
            refusal = f"NVML: {error}"
    raise NvmlUnavailable(f"NVML does not find this device by its UUID or PCI address ({refusal})")


def _read(nvml: Pynvml, device: Handle, wanted: Collection[str]) -> Readings:
    """Ask a device for each of the wanted fields on its own, so that a refusal costs one field."""
    values = dict[str, Any]()
    reasons = dict[str, str]()
    # Raised if the package calls the newest form of a function and the driver has an older one. It is no NVMLError, and older packages
    # do not have it: an empty tuple catches nothing.
    mismatch = getattr(nvml, "NVMLLibraryMismatchError", ())
    for name in wanted:
        try:
            values[name] = _QUERIES[name](nvml, device)
        except nvml.NVMLError as error:
            reasons[name] = _reason(nvml, error, "NVML refused")
        except mismatch:
            reasons[name] = _OLDER_DRIVER
        except AttributeError:  # the function is younger than the package
            reasons[name] = "the installed nvidia-ml-py is too old to ask for it; pip install -U nvidia-ml-py"
    return Readings(values, reasons)


def cards() -> tuple[str, tuple[int, int], list[tuple[str, int]]]:
    """Return the versions of the driver and of its CUDA, and each card's name and bytes of memory. Raises NvmlUnavailable."""
    nvml = library()
    try:
        handles = map(nvml.nvmlDeviceGetHandleByIndex, range(nvml.nvmlDeviceGetCount()))
        found = [(nvml.nvmlDeviceGetName(each), int(nvml.nvmlDeviceGetMemoryInfo(each).total)) for each in handles]
        cuda = nvml.nvmlSystemGetCudaDriverVersion()
        return nvml.nvmlSystemGetDriverVersion(), (cuda // 1000, cuda % 1000 // 10), found
    except nvml.NVMLError as error:
        raise NvmlUnavailable(f"NVML: {error}") from error


_OLDER_DRIVER = "the NVIDIA driver is too old to tell it"
_SENTENCES = {
    "NVML_ERROR_LIBRARY_NOT_FOUND": "NVML was not found: install the NVIDIA driver (in a container: its 'utility' capability)",
    "NVML_ERROR_DRIVER_NOT_LOADED": "the NVIDIA driver is not loaded",
    "NVML_ERROR_LIB_RM_VERSION_MISMATCH": "the NVML library and the loaded NVIDIA driver are of different versions: "
    "reboot or match the driver",
    "NVML_ERROR_NOT_SUPPORTED": "this device does not tell it through NVML",
    "NVML_ERROR_NO_PERMISSION": "the driver tells it to administrators only",
    "NVML_ERROR_FUNCTION_NOT_FOUND": _OLDER_DRIVER,
    "NVML_ERROR_GPU_IS_LOST": "the GPU stopped answering its driver: reboot",
}


def _reason(nvml: Pynvml, error: Any, otherwise: str) -> str:
    return next((text for name, text in _SENTENCES.items() if getattr(nvml, name) == error.value), f"{otherwise}: {error}")


_MILLI, _MEGA, _NANO = 1e-3, 1e6, 1e-9  # NVML counts milliwatts, megahertz and nanoseconds


def _active_nvlinks(nvml: Pynvml, gpu: Handle) -> int:
    """Count the active links. Raises NVMLError if no link at all answers: the device has none."""
    states = []
    for link in range(nvml.NVML_NVLINK_MAX_LINKS):
        with suppress(nvml.NVMLError):  # each device has fewer links than the most there can be
            states.append(nvml.nvmlDeviceGetNvLinkState(gpu, link))
    return sum(states or [nvml.nvmlDeviceGetNvLinkState(gpu, 0)])


_CLOCK_REASONS = (
    "gpu_idle",
    "applications_clocks_setting",
    "sw_power_cap",
    "hw_slowdown",
    "sync_boost",
    "sw_thermal_slowdown",
    "hw_thermal_slowdown",
    "hw_power_brake_slowdown",
    "display_clock_setting",
)
"""nvidia-smi's names for the bits of nvmlClocksEventReasons in nvml.h, from the lowest on."""


def _throttle_reasons(nvml: Pynvml, gpu: Handle) -> list[str]:
    bits = nvml.nvmlDeviceGetCurrentClocksEventReasons(gpu)  # from driver 535 on
    return [name for at, name in enumerate(_CLOCK_REASONS) if bits >> at & 1]


def _slowdown_c(nvml: Pynvml, gpu: Handle) -> int:
    """Return the temperature at which a card slows down; from Ada on NVML may tell only how far off that is."""
    try:
        return int(nvml.nvmlDeviceGetTemperatureThreshold(gpu, nvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN))
    except nvml.NVMLError:
        return int(nvml.nvmlDeviceGetTemperature(gpu, nvml.NVML_TEMPERATURE_GPU) + nvml.nvmlDeviceGetMarginTemperature(gpu))


_COMPUTE_MODES = {0: "default", 2: "prohibited", 3: "exclusive_process"}
"""nvmlComputeMode_t of nvml.h."""


def _compute_process_ids(nvml: Pynvml, gpu: Handle) -> list[int]:
    # A desktop's processes may compute too, and are listed apart, as a workstation always has them.
    drawing: list[int] = []
    with suppress(nvml.NVMLError):  # cards without graphics need not answer
        drawing = _graphics_process_ids(nvml, gpu)
    return sorted({process.pid for process in nvml.nvmlDeviceGetComputeRunningProcesses(gpu)}.difference(drawing))


def _graphics_process_ids(nvml: Pynvml, gpu: Handle) -> list[int]:
    return sorted({process.pid for process in nvml.nvmlDeviceGetGraphicsRunningProcesses(gpu)})


def _query(function: str, unit: float = 1, *constants: str) -> Query:
    """Return a query by the function ``nvmlDeviceGet…``, whose answer is in this unit; it gets these constants of NVML after the device."""
    return lambda nvml, gpu: unit * getattr(nvml, f"nvmlDeviceGet{function}")(gpu, *(getattr(nvml, name) for name in constants))


_QUERIES: Mapping[str, Query] = {
    "driver_version": lambda nvml, gpu: nvml.nvmlSystemGetDriverVersion(),
    "pcie_generation": _query("CurrPcieLinkGeneration"),
    "pcie_generation_max": _query("MaxPcieLinkGeneration"),
    "pcie_width": _query("CurrPcieLinkWidth"),
    "pcie_width_max": _query("MaxPcieLinkWidth"),
    "nvlink_links": _active_nvlinks,
    "power_limit_w": _query("EnforcedPowerLimit", _MILLI),
    "power_limit_default_w": _query("PowerManagementDefaultLimit", _MILLI),
    "power_w": _query("PowerUsage", _MILLI),
    # Since the driver was loaded; from Volta on.
    "energy_j": _query("TotalEnergyConsumption", _MILLI),
    "clock_sm_hz": _query("ClockInfo", _MEGA, "NVML_CLOCK_SM"),
    "clock_sm_max_hz": _query("MaxClockInfo", _MEGA, "NVML_CLOCK_SM"),
    "clock_memory_hz": _query("ClockInfo", _MEGA, "NVML_CLOCK_MEM"),
    "clock_memory_max_hz": _query("MaxClockInfo", _MEGA, "NVML_CLOCK_MEM"),
    "ecc": lambda nvml, gpu: bool(nvml.nvmlDeviceGetEccMode(gpu)[0]),
    "mig": lambda nvml, gpu: bool(nvml.nvmlDeviceGetMigMode(gpu)[0]),
    "persistence": lambda nvml, gpu: bool(nvml.nvmlDeviceGetPersistenceMode(gpu)),
    "temperature_c": _query("Temperature", 1, "NVML_TEMPERATURE_GPU"),
    "throttle_reasons": _throttle_reasons,
    "process_ids": _compute_process_ids,
    "graphics_process_ids": _graphics_process_ids,
    # Seconds since the driver was loaded in which heat, or the power limit, held the clock down.
    "thermal_violation_s": lambda nvml, gpu: nvml.nvmlDeviceGetViolationStatus(gpu, nvml.NVML_PERF_POLICY_THERMAL).violationTime * _NANO,
    "power_violation_s": lambda nvml, gpu: nvml.nvmlDeviceGetViolationStatus(gpu, nvml.NVML_PERF_POLICY_POWER).violationTime * _NANO,
    "temperature_slowdown_c": _slowdown_c,
    "compute_mode": lambda nvml, gpu: _COMPUTE_MODES.get(nvml.nvmlDeviceGetComputeMode(gpu), "another"),
    "memory_free_bytes": lambda nvml, gpu: int(nvml.nvmlDeviceGetMemoryInfo(gpu).free),
}

FACTS = (
    "driver_version", "pcie_generation", "pcie_generation_max", "pcie_width", "pcie_width_max", "nvlink_links", "power_limit_w",
    "power_limit_default_w", "clock_sm_hz", "clock_sm_max_hz", "clock_memory_hz", "clock_memory_max_hz", "ecc", "mig", "persistence",
    "temperature_c", "compute_mode",
)  # fmt: skip
"""Fields that describe a device, in watts, hertz and degrees Celsius as the names say."""
STATE = (
    "pcie_generation", "pcie_width", "power_limit_w", "power_w", "clock_sm_hz", "clock_memory_hz", "ecc", "persistence", "temperature_c",
    "throttle_reasons", "process_ids", "graphics_process_ids",
)  # fmt: skip
"""Fields that may change from one minute to the next, or by an administrator's command."""
SLOWDOWN = ("thermal_violation_s", "power_violation_s")
"""Counters of how long a device was held back: the only fields that are read around every case."""
TELEMETRY = ("clock_sm_hz", "temperature_c", "power_w", "throttle_reasons")
"""Fields that are read again and again under load."""
HEALTH = ("temperature_c", "temperature_slowdown_c", "memory_free_bytes")
"""Further fields that may make a device unfit to measure on."""
