"""A stand-in for the module ``pynvml``: the same names, made-up cards, in an order of its own."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pynvml as real
import pytest

from dlbench.harness.probe import nvml

UUID = "8d2a59f1-6c1f-4c4b-9a55-0123456789ab"


class NVMLLibraryMismatchError(Exception):
    """What the package raises where the driver lacks the form of a function that it calls; no NVMLError."""


class NVMLError(Exception):
    def __init__(self, value: int) -> None:
        self.value = value
        super().__init__(
            {real.NVML_ERROR_NOT_SUPPORTED: "Not Supported", real.NVML_ERROR_NOT_FOUND: "Not Found"}.get(value, f"code {value}")
        )


@dataclass
class Card:
    """A card by what each query answers, or by what gives that; a query set to an error code is refused with it."""

    uuid: str
    pci_bus_id: str
    answers: dict[str, Any] = field(default_factory=dict)


@dataclass
class Load:
    """A load from one time to another, which a card tells of late, and anew only every so often."""

    now: Callable[[], float]
    begin_s: float
    end_s: float
    refresh_s: float = 0.1
    lag_s: float = 0.05

    def answer(self, idle: Any, loaded: Any) -> Callable[[], Any]:
        """Return what answers with one of these."""

        def answer() -> Any:
            of_s = (self.now() - self.lag_s) // self.refresh_s * self.refresh_s
            return loaded if self.begin_s <= of_s < self.end_s else idle

        return answer


_PCIE = {"CurrPcieLinkGeneration": 1, "MaxPcieLinkGeneration": 5, "CurrPcieLinkWidth": 8, "MaxPcieLinkWidth": 16}
_POWER = {"EnforcedPowerLimit": 650_000, "PowerManagementDefaultLimit": 700_000, "PowerUsage": 120_500}
_CLOCKS = {
    "ClockInfo": {real.NVML_CLOCK_SM: 345, real.NVML_CLOCK_MEM: 3201},
    "MaxClockInfo": {real.NVML_CLOCK_SM: 1980, real.NVML_CLOCK_MEM: 3202},
    "CurrentClocksEventReasons": 0x24,
}
_MODES = {"EccMode": [1, 1], "MigMode": [0, 0], "PersistenceMode": 1, "ComputeMode": 0, "NvLinkState": [1] * 18}
_OTHERS = {
    "Temperature": {real.NVML_TEMPERATURE_GPU: 34},
    "ComputeRunningProcesses": [SimpleNamespace(pid=71), SimpleNamespace(pid=72)],
    "GraphicsRunningProcesses": [SimpleNamespace(pid=72)],
}
H200: dict[str, Any] = {f"nvmlDeviceGet{name}": each for name, each in (_PCIE | _POWER | _CLOCKS | _MODES | _OTHERS).items()}


class FakeNvml:
    """The module. Handles are the cards themselves."""

    NVMLError = NVMLError
    NVMLLibraryMismatchError = NVMLLibraryMismatchError

    def __init__(self, *cards: Card, driver: str = "580.65.06", init_error: int | None = None, mig: dict[str, Card] | None = None) -> None:
        self.cards, self.init_error, self.mig = cards, init_error, mig or {}
        self.opened = 0
        self.without: set[str] = set()
        self._answers: dict[str, Callable[..., Any]] = {
            "nvmlInit": self._open,
            "nvmlSystemGetDriverVersion": lambda: driver,
            "nvmlSystemGetCudaDriverVersion": lambda: 13000,
            "nvmlDeviceGetCount": lambda: len(cards),
            "nvmlDeviceGetHandleByIndex": cards.__getitem__,
            "nvmlDeviceGetHandleByUUID": lambda uuid: uuid if uuid in self.mig else self._found("uuid", uuid),
            "nvmlDeviceGetHandleByPciBusId": lambda address: self._found("pci_bus_id", address),
            "nvmlDeviceGetDeviceHandleFromMigDeviceHandle": self.mig.__getitem__,
        }

    def __getattr__(self, name: str) -> Any:
        if name in self.__dict__.get("without", ()) or not hasattr(real, name):
            raise AttributeError(name)
        if name.startswith("NVML_"):
            return getattr(real, name)
        return self._answers.get(name) or (lambda card, *which: self._answer(card, name, *which))

    @contextmanager
    def imported(self) -> Iterator[None]:
        """Have ``import pynvml`` give this."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(sys.modules, "pynvml", self)
            nvml.library.cache_clear()
            try:
                yield
            finally:
                nvml.library.cache_clear()

    def _open(self) -> None:
        if self.init_error is not None:
            raise NVMLError(self.init_error)
        self.opened += 1

    def _found(self, name: str, value: str) -> Card:
        if found := [card for card in self.cards if getattr(card, name) == value]:
            return found[0]
        raise NVMLError(real.NVML_ERROR_NOT_FOUND)

    def _answer(self, card: Any, name: str, *which: int) -> Any:
        assert isinstance(card, Card), f"{name} was asked of a MIG instance"
        answer = card.answers.get(name, NVMLError(real.NVML_ERROR_NOT_SUPPORTED))
        if isinstance(answer, Exception):
            raise answer
        answer = answer() if callable(answer) else answer
        if which and isinstance(answer, list) and which[0] >= len(answer):
            raise NVMLError(real.NVML_ERROR_INVALID_ARGUMENT)
        return answer[which[0]] if which else answer
