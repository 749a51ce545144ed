"""Result files with made-up measurements, so that tests can assert exact numbers."""

import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from itertools import product
from pathlib import Path
from typing import Any

from dlbench.core import model
from dlbench.core.conditions import RoundState
from dlbench.core.declarations import Declaration, Value
from dlbench.core.errors import Reason, Unknown
from dlbench.core.measurement import Measurement, Memory, MeteredWindow, Samples, SpotCheck, Transfer, measurement_to_json
from dlbench.core.model import Case, ParamValue, Policy, Reported, Status
from dlbench.core.store import SCHEMA
from dlbench.core.units import Unit

CPU = "AMD EPYC 7B13"
GPU = "NVIDIA H200"
NAMES = {"cpu": CPU, "cuda:0": GPU}
NO_COPY = "inputs are in host memory already"
DECLARED = tomllib.loads((Path(__file__).parent / "data" / "declarations.toml").read_text())
"""What workloads of dlbench declare, unless a test gives something else."""


def why(text: str) -> list[Reason]:
    """Why a group is null, in these words."""
    return [Unknown.EXCEPTION.reason(text=text)]


def case(workload: str = "train_step", device: str = "cpu", suite: str = "quick", **params: ParamValue) -> Case:
    """A case whose id shows every parameter."""
    shown = ",".join(f"{name}={value}" for name, value in params.items())
    return Case(f"{workload}[{shown}]@{device}", suite, workload, params, device)


def rounds_of(a_case: Case, rounds: Sequence[Sequence[float]], calls: int = 1, **fields: Any) -> list[Measurement]:
    """One ok measurement for each list of block times; other fields as on that kind of device, unless given."""
    on_cpu = a_case.device == "cpu"
    defaults: dict[str, Any] = {
        "device_name": NAMES[a_case.device],
        "threads": 2,
        "items": 8,
        "flops": 1e9,
        "memory": Memory(host_peak_bytes=3 << 20) if on_cpu else Memory(5 << 20, 6 << 20, 3 << 20),
        "transfer": None if on_cpu else Transfer(1000, 0.25, 10, 0.125),
        "missing_reasons": {"transfer": why(NO_COPY)} if on_cpu else {},
        "math": {"tf32": False},
    }
    steady = fields.pop("steady", True)
    return [
        Measurement(a_case, number, Status.OK, samples=Samples(calls, tuple(blocks), 9.0, 0.5, steady), **{**defaults, **fields})
        for number, blocks in enumerate(rounds)
    ]


def flat(seconds: Sequence[float]) -> list[list[float]]:
    """Rounds of ten blocks that all took the same time: as few as have a p10."""
    return [[each] * 10 for each in seconds]


def ended(a_case: Case, status: Status, reason: str, number: int = 0) -> Measurement:
    """A case that did not go well."""
    return Measurement(a_case, number, status, reason, device_name=NAMES.get(a_case.device), threads=2)


def write(
    path: Path,
    measurements: Sequence[Measurement],
    *,
    planned: int | None = None,
    finished: bool = True,
    policy: Policy | None = None,
    state: Mapping[str, Any] | None = None,
    states: Sequence[RoundState] = (),
    discarded: Sequence[Measurement] = (),
    tries: Sequence[Measurement] = (),
    accelerator: Mapping[str, Any] | None = None,
    workloads: Mapping[str, Any] | None = None,
    footer: Mapping[str, Any] | None = None,
    **header: Any,
) -> Path:
    """Write a result file as a run does, but for waiting until each line is on the disk; ``header``: other parts of its first line."""
    measured = {each.case.workload for each in measurements}
    first: Mapping[str, Any] = {
        "environment": {},
        "suites": ["quick"],
        "policy": asdict(policy or Policy()),
        "seed": 1,
        "planned": {"count": len({each.case.id for each in measurements}) if planned is None else planned},
        "devices": [{"id": "cpu", "name": CPU}, {"id": "cuda:0", "name": GPU, **(accelerator or {})}],
        "workloads": {name: DECLARED[name] for name in sorted(measured & DECLARED.keys())} | dict(workloads or {}),
        **{name: value for name, value in header.items() if value is not None},
    }
    records = [{"kind": "header", "schema": SCHEMA, **first}]
    records += [measurement_to_json(each) for each in measurements]
    records += [measurement_to_json(each) | {"kind": "discarded"} for each in discarded]
    records += [measurement_to_json(each, "try") for each in tries]
    records += [each.to_json() for each in states]
    if finished:
        records.append({"kind": "footer", "state": state or {}, **(footer or {})})
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("x") as file:
        file.writelines(f"{json.dumps(record)}\n" for record in records)
    return path


TWO_SIDES = {name: {"side": {"python": "python3", "python_key": "0", "environ": {"SPEED": name}}} for name in ("a", "b")}
"""What the header of an A/B says where only a variable differs."""

SEVEN = (1.00, 1.01, 0.99, 1.02, 0.98, 1.03, 0.97)
"""Seven rounds around one second, 3 % to either side."""


def around(a_case: Case, seconds: float, factors: Sequence[float] = SEVEN, **fields: Any) -> list[Measurement]:
    """Seven rounds of a case that takes about so long, or a round for each factor."""
    return rounds_of(a_case, flat([seconds * each for each in factors]), **fields)


def both_kinds(cpu_s: float = 0.4, gpu_s: float = 0.01, rounds: int = 7) -> list[Measurement]:
    """The same training steps on a CPU and on an accelerator that is ``cpu_s / gpu_s`` times as fast at batch 8 in fp32.

    With the default times it is 40 times as fast there, 80 in bf16, and at batch 64 50 and 100.
    """
    cpu_times, gpu_times = ([scale * each for each in SEVEN[:rounds]] for scale in (cpu_s, gpu_s))
    measurements: list[Measurement] = []
    for batch, dtype, (device, times) in product((8, 64), ("fp32", "bf16"), (("cpu", cpu_times), ("cuda:0", gpu_times))):
        # A batch eight times as large takes four times as long, on the accelerator 3.2; bf16 halves that there only.
        larger, narrower = (4, 1) if device == "cpu" else (3.2, 0.5)
        factor = (larger if batch == 64 else 1) * (narrower if dtype == "bf16" else 1)
        a_case = case("train_step", device, model="resnet18", batch=batch, dtype=dtype)
        measurements += rounds_of(a_case, flat([factor * each for each in times]), items=batch, flops=batch * 1e9)
    return measurements


_RATES = (
    Value("items_per_s", Unit.ITEMS_PER_S, series=True, role="pace"),
    Value("burst_items_per_s", Unit.ITEMS_PER_S, role="burst"),
    Value("steady_items_per_s", Unit.ITEMS_PER_S, "higher", role="steady"),
)
SUSTAINED = {
    f"sustained_{kind}": model.declaration_to_json(Declaration(tags=("cnn", kind, "imagenet", "sustained"), values=_RATES))
    for kind in ("training", "inference")
}
"""What the header of a file with sustained steps has of their workloads."""


def sustained(
    kind: str, device: str, kept: Sequence[float], burst: float = 1000.0, watts: float | None = None, seconds: float = 60.0, **params: Any
) -> list[Measurement]:
    """A round for each share of its burst that a step kept; where it was metered it took so many watts, 20 of them when idle."""
    a_case = case(f"sustained_{kind}", device, "sustained", **{"model": "resnet18", "batch": 128, "dtype": "fp32", **params})
    missing_reasons = {} if watts else {"energy": [Unknown.NO_POWERCAP.reason()]}
    common: dict[str, Any] = {"device_name": NAMES[device], "threads": 2, "missing_reasons": missing_reasons, "items": 128}
    found = []
    for number, share in enumerate(kept):
        steady = share * burst
        values = {"items_per_s": (burst, burst, *[steady] * 4), "burst_items_per_s": burst, "steady_items_per_s": steady}
        energy = MeteredWindow(seconds, steady * seconds, "rapl", watts * seconds, 20.0) if watts else MeteredWindow(seconds, 1.0)
        found.append(Measurement(a_case, number, Status.OK, values=values, energy=energy, **common))
    return found


def without_rounds(measurement: Measurement) -> Measurement:
    """The same with its samples left out, as an ``observe`` is."""
    return replace(measurement, samples=None)


def with_values(measurement: Measurement, **values: Reported) -> Measurement:
    """The same with what an ``observe`` returned."""
    return replace(measurement, values=values)


def renamed(measurement: Measurement, device_name: str, threads: int) -> Measurement:
    """The same on another machine."""
    return replace(measurement, device_name=device_name, threads=threads)


def scaled(measurement: Measurement, factor: float) -> Measurement:
    """The same with every block that many times as long."""
    assert measurement.samples is not None
    blocks = tuple(factor * seconds for seconds in measurement.samples.block_s)
    return replace(measurement, samples=replace(measurement.samples, block_s=blocks))


def timed_on_device(measurement: Measurement, share: float) -> Measurement:
    """The same with a device time of that share of its first block."""
    assert measurement.samples is not None
    return replace(measurement, samples=replace(measurement.samples, device_s=share * measurement.samples.block_s[0]))


def checked(measurement: Measurement, check: SpotCheck, reason: str) -> Measurement:
    """The same with what spot checks found, and why one was not made."""
    return replace(measurement, check=check, missing_reasons={**measurement.missing_reasons, "check": why(reason)})
