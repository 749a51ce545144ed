"""A run about to start: what it measures and how, from options or from the header of the file that it goes on with."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dlbench import __version__
from dlbench.cli.options import Planned
from dlbench.core.declarations import Value
from dlbench.core.errors import DeviceAbsent, ResultFileError, UsageError
from dlbench.core.model import Measurement, Policy, Signature
from dlbench.core.provenance import differences
from dlbench.core.records import signature_from_json
from dlbench.core.store import ResultWriter, RunFile
from dlbench.core.thresholds import Settings as SightSettings
from dlbench.harness import devices as machine
from dlbench.harness import environment
from dlbench.harness.planning import check, plan
from dlbench.harness.runner import Settings
from dlbench.harness.selection import compile_expression
from dlbench.harness.side import Side, Task
from dlbench.harness.suite import Suite

if TYPE_CHECKING:
    from dlbench.harness.devices import Device


@dataclass(frozen=True, slots=True)
class Session:
    """What is left to do, and where it goes."""

    tasks: tuple[Task, ...]
    settings: Settings
    devices: "tuple[Device, ...]"
    open_writer: Callable[[], ResultWriter]
    done: tuple[Measurement, ...] = ()
    first_round: int = 0
    values: Mapping[str, tuple[Value, ...]] = field(default_factory=dict)
    """What each workload declares that it reports, for the screen."""
    gate: SightSettings | None = None
    """Of a run that is meant as a baseline: what the command line says that every case has to be able to show."""


def policy_for(planned: Planned, changes: Mapping[str, Any], gate_rounds: int | None = None) -> Policy:
    """Return the policy of a run: that of its suites, changed where the user set a field (None where not).

    ``gate_rounds``: the rounds that a gate needs, which no budget shortens.
    """
    policy = planned.policy
    if gate_rounds is not None:
        policy = replace(policy, rounds=gate_rounds, max_rounds=gate_rounds, budget_s=None)
    return _changed(policy, changes)


def start(
    planned: Planned,
    tasks: Sequence[Task],
    settings: Settings,
    *,
    expression: str | None,
    include_absent: bool,
    plugins: Sequence[str],
    output: Path | None,
    sides: Mapping[str, Any] | None = None,
    machines: Sequence[Mapping[str, Any]] = (),
    gate: SightSettings | None = None,
) -> Session:
    """Make the session of a new run.

    ``sides``: of an A/B, what the header says of each side; the software is then a side's. ``machines``: the environments of others that
    take part. ``gate``: of a baseline, what is given of the change that every case has to be able to show.
    """
    name = default_name(planned.suites)
    path = output or Path("results") / (f"ab-{name}" if sides else name)
    where = environment.fingerprint(planned.hello, planned.devices)
    if sides:
        where = {key: value for key, value in where.items() if key not in ("stack", "stack_key")}
    header = {
        "dlbench": __version__,
        "suites": [suite.to_json() for suite in planned.suites],
        "expression": expression,
        "include_absent": include_absent,
        "plugins": list(plugins),
        "policy": asdict(settings.policy),
        "seed": settings.seed,
        "isolation": settings.isolation,
        "planned": {"count": len(tasks)},
        "devices": [device.to_json() for device in planned.devices],
        "environment": where,
        **({"sides": sides} if sides else {"workloads": planned.declarations()}),
        **({"machines": list(machines)} if machines else {}),
        **({} if gate is None else {"gate": dict(gate)}),
    }
    values = _values(planned.signatures)
    return Session(tuple(tasks), settings, planned.devices, lambda: ResultWriter.create(path, header), values=values, gate=gate)


def default_name(suites: Sequence[Suite]) -> str:
    """Return what a run of these suites that starts now is called where the user chose no name."""
    return f"{'-'.join(suite.name for suite in suites)}-{datetime.now(UTC):%Y%m%d-%H%M%S}.jsonl"


def go_on(run: RunFile, hello: Mapping[str, Any], changes: Mapping[str, Any], threads: int) -> Session:
    """Make the session of an interrupted run from its file: the same cases, seed and policy, on the same machine.

    Raises UsageError where this machine or its software differs from what the file was measured with, and for an A/B.
    """
    header = run.header
    if "sides" in header:
        raise UsageError(
            f"{run.path} is an A/B, which can't be resumed: its sides may not be what they were, and are compared because they were "
            "measured in turn; start dlbench ab again"
        )
    if "machines" in header:
        raise UsageError(f"{run.path} was measured on several machines, and such a run can't be resumed; start it again")
    try:
        suites = [Suite.from_json(suite) for suite in header["suites"]]
        signatures = {each["name"]: signature_from_json(each) for each in hello["signatures"]}
        ids = [device["id"] for device in header["devices"]]
        present = {device.id: device for device in machine.describe(hello)}
        devices = tuple(present[device] for device in ids if device in present)
        _refuse_lost(header["devices"], machine.unusable(devices))
        before, now = header["environment"], environment.fingerprint(hello, devices)
        settings = Settings(
            policy=_changed(Policy(**header["policy"]), changes),
            seed=header["seed"],
            isolation=header["isolation"],
            threads=threads,
        )
        side = Side.on(devices, tuple(header["plugins"]))
        if different := differences(before, now):
            raise UsageError(
                f"{run.path} can't be resumed here, its rows would not be of one machine: {'; '.join(different)}; start a new run instead"
            )
        only = compile_expression(header["expression"]) if header["expression"] else None
        check(suites, signatures, hello["kinds"])
        cases = plan(suites, signatures, ids, only=only, include_absent=header["include_absent"])
        tasks = tuple(Task(case, side) for case in cases)
    except (KeyError, TypeError, AttributeError) as error:
        raise ResultFileError(f"{run.path}, line 1: the header lacks what a run needs to go on ({error}); start a new run") from error
    values = _values(signatures)
    return Session(tasks, settings, devices, lambda: ResultWriter.resume(run), run.measurements, values=values, gate=header.get("gate"))


def _values(signatures: Mapping[str, Signature]) -> dict[str, tuple[Value, ...]]:
    return {name: each.values for name, each in signatures.items() if each.values}


def _refuse_lost(before: Sequence[Mapping[str, Any]], unusable: Mapping[str, str]) -> None:
    """Raise DeviceAbsent where a device can't be used that could be when the run began."""
    for device in before:
        if device["id"] in unusable and "unusable" not in device:
            raise DeviceAbsent(
                f"{device['id']} can't be used now: {unusable[device['id']]}; go on when it can, or start a new run without it"
            )


def _changed(policy: Policy, changes: Mapping[str, Any]) -> Policy:
    return replace(policy, **{name: value for name, value in changes.items() if value is not None})
