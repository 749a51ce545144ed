"""A run about to start: its cases and settings, from options or from the header of the file that it goes on with."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dlbench import __version__
from dlbench.cli.options import Planned
from dlbench.core.errors import ResultFileError, UsageError
from dlbench.core.model import Case, Measurement, Policy, Signature
from dlbench.core.stats import rounds_for_gate
from dlbench.core.store import ResultWriter, RunFile
from dlbench.harness import devices as machine
from dlbench.harness import environment
from dlbench.harness.planning import check, plan
from dlbench.harness.runner import Isolation, Settings
from dlbench.harness.selection import compile_expression
from dlbench.harness.suite import Suite

if TYPE_CHECKING:
    from dlbench.harness.devices import Device


@dataclass(frozen=True, slots=True)
class Session:
    """What is left to do, and where it goes."""

    cases: tuple[Case, ...]
    settings: Settings
    devices: "tuple[Device, ...]"
    open_writer: Callable[[], ResultWriter]
    done: tuple[Measurement, ...] = ()


def start(
    planned: Planned,
    *,
    expression: str | None,
    include_absent: bool,
    plugins: Sequence[str],
    changes: Mapping[str, Any],
    gate: bool,
    seed: int,
    isolation: Isolation,
    threads: int,
    output: Path | None,
) -> Session:
    """Make the session of a new run. ``changes`` are fields of the policy that the user set, None where not."""
    cases = tuple(planned.cases)
    policy = _changed(planned.policy, changes)
    if gate:
        enough = rounds_for_gate(len(cases))
        policy = replace(policy, rounds=enough, max_rounds=enough, budget_s=None)
    settings = Settings(
        policy=policy,
        seed=seed,
        isolation=isolation,
        threads=threads,
        devices={device.id: device.name for device in planned.devices},
        plugins=tuple(plugins),
    )
    path = output or Path("results") / f"{'-'.join(suite.name for suite in planned.suites)}-{datetime.now(UTC):%Y%m%d-%H%M%S}.jsonl"
    header = {
        "dlbench": __version__,
        "suites": [suite.to_json() for suite in planned.suites],
        "expression": expression,
        "include_absent": include_absent,
        "plugins": list(plugins),
        "policy": asdict(policy),
        "seed": settings.seed,
        "isolation": isolation,
        "planned": {"count": len(cases)},
        "devices": [device.to_json() for device in planned.devices],
        "environment": environment.fingerprint(planned.hello, planned.devices),
    }
    return Session(cases, settings, planned.devices, lambda: ResultWriter.create(path, header))


def go_on(run: RunFile, hello: Mapping[str, Any], changes: Mapping[str, Any], threads: int) -> Session:
    """Make the session of an interrupted run from its file: the same cases, seed and policy, on the same machine.

    Raises UsageError where this machine or its software differs from what the file was measured with.
    """
    header = run.header
    try:
        suites = [Suite.from_json(suite) for suite in header["suites"]]
        signatures = {each["name"]: Signature.from_json(each) for each in hello["signatures"]}
        ids = [device["id"] for device in header["devices"]]
        present = {device.id: device for device in machine.describe(hello)}
        devices = tuple(present[device] for device in ids if device in present)
        before, now = header["environment"], environment.fingerprint(hello, devices)
        settings = Settings(
            policy=_changed(Policy(**header["policy"]), changes),
            seed=header["seed"],
            isolation=header["isolation"],
            threads=threads,
            devices={device.id: device.name for device in devices},
            plugins=tuple(header["plugins"]),
        )
        if differences := environment.differences(before, now):
            raise UsageError(
                f"{run.path} can't be resumed here, its rows would not be of one machine: {'; '.join(differences)}; start a new run instead"
            )
        only = compile_expression(header["expression"]) if header["expression"] else None
        check(suites, signatures)
        cases = tuple(plan(suites, signatures, ids, only=only, include_absent=header["include_absent"]))
    except (KeyError, TypeError, AttributeError) as error:
        raise ResultFileError(f"{run.path}, line 1: the header lacks what a run needs to go on ({error}); start a new run") from error
    return Session(cases, settings, devices, lambda: ResultWriter.resume(run), run.measurements)


def _changed(policy: Policy, changes: Mapping[str, Any]) -> Policy:
    return replace(policy, **{name: value for name, value in changes.items() if value is not None})
