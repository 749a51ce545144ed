"""NVIDIA cards in trouble, as torch meets them: CARDS says which, one word a card. Those that work compute on the CPU."""

import fcntl
import os
from pathlib import Path
from types import SimpleNamespace

import torch

from dlbench import Backend, Work, register_backend, workload
from dlbench.harness.worker.backends.builtin import CudaBackend

CARDS = os.environ["CARDS"].split()
TELLS = "\nCUDA kernel errors might be asynchronously reported at some other API call.\nCompile with `TORCH_USE_CUDA_DSA`."
TROUBLES = {
    "old-driver": RuntimeError(
        "The NVIDIA driver on your system is too old (found version 11040). Please update your GPU driver by downloading and installing"
    ),
    "no-instance": RuntimeError("No CUDA GPUs are available"),
    "beyond": AssertionError("Invalid device id"),
    "mismatch": RuntimeError(
        "Unexpected error from cudaGetDeviceCount(). Did you run some cuda functions before calling NumCudaDevices() that might have "
        "already set an error? Error 803: system has unsupported display driver / cuda driver combination"
    ),
    "lost": RuntimeError(f"CUDA error: unknown error{TELLS}"),
}


def properties(index):
    card = CARDS[int(index if isinstance(index, int) else index.index or 0)]
    if card in TROUBLES:
        raise TROUBLES[card]
    facts = {"total_memory": 8 << 30, "major": 9, "minor": 0, "multi_processor_count": 132, "L2_cache_size": 1 << 20, "uuid": None}
    return SimpleNamespace(name=f"NVIDIA Made-up {card}", **facts, pci_domain_id=0, pci_bus_id=0x3B, pci_device_id=index)


def device_count():
    return 0 if "unstartable" in CARDS else len(CARDS)  # NVML does not open either, so that torch counts none


def init():
    if "unstartable" in CARDS:
        raise TROUBLES["mismatch"]


torch.cuda.device_count = device_count
torch.cuda.is_available = lambda: bool(device_count())
torch.cuda.init = init
torch.cuda.get_device_properties = properties
torch.version.cuda = "13.0"
torch.cuda.get_arch_list = lambda: ["sm_80", "sm_90"]


class Cards(CudaBackend):
    """CUDA but for what it computes on."""

    warmup_s, block_s = 0.01, 0.002

    def device(self, index):
        return torch.device("cpu")

    def start(self, index):
        if CARDS[index] == "ancient":
            raise RuntimeError(f"CUDA error: no kernel image is available for execution on the device{TELLS}")
        super().start(index)

    def synchronize(self, device):
        take_exclusively()

    def activate(self, device):
        take_exclusively()

    def do_nothing(self, *arguments):
        pass

    unsupported = reset_peak = event_timer = do_nothing
    peak = held = Backend.peak


def take_exclusively():
    """Take the card for as long as this process lives, if it is in exclusive mode: EXCLUSIVE names a file that stands for it."""
    if "EXCLUSIVE" not in os.environ or hasattr(torch.cuda, "made_up_lock"):
        return
    lock = Path(os.environ["EXCLUSIVE"]).open("w")  # noqa: SIM115  # kept below
    try:
        fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise RuntimeError(f"CUDA error: CUDA-capable device(s) is/are busy or unavailable{TELLS}") from None
    torch.cuda.made_up_lock = lock  # not in this module, which every request loads anew


register_backend(Cards())


@workload()
def adds(device: torch.device, *, n: int = 4) -> Work:
    """Add two small tensors."""
    a = torch.ones(n, device=device)
    return Work(call=lambda: a + a)


@workload()
def faults(device: torch.device, *, n: int = 0) -> Work:
    """Fail as CUDA does: the process is of no use afterwards."""
    return Work(call=fail)


def fail():
    raise RuntimeError(f"CUDA error: an illegal memory access was encountered{TELLS}")
