"""A product that sleeps: for as long as its size asks for, and it writes down each size that it is set up with."""

import time
from pathlib import Path
from typing import Literal

import torch

from dlbench import Probed, Size, Sweep, Unit, Value, Work, workload

SET_UPS: list[int] = []


@workload(values=(Value("set_ups", Unit.COUNT, None, "in this process"),))
def slowing(
    device: torch.device,
    *,
    n: Sweep[Probed[Size]],
    full_s: float,
    log: str,
    m: Probed[Size] | None = None,
    small: Literal["slow", "fails", "hangs", "observes", "set_up_slowly", "loads_code"] = "slow",
) -> Work:
    """Sleep for `full_s` s at n = 64, and for n^3 of it at others."""
    SET_UPS.append(n)
    with Path(log).open("a") as file:
        file.write(f"{n} {m or ''}\n")
    if n < 64 and small == "set_up_slowly":
        time.sleep(0.9)
    if n < 64 and small == "fails":
        raise ValueError("too small")
    if n < 64 and small == "observes":
        return Work(observe=lambda _: {"set_ups": 0})
    first = iter([{"hangs": 3600, "loads_code": 0.12}.get(small, 0) if n < 64 else 0])
    return Work(
        call=lambda: time.sleep(next(first, 0) + full_s * (n / 64) ** 3),
        report=lambda _: {"set_ups": len(SET_UPS)},
        flops=2 * n**3,
    )
