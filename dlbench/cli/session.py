"""Sessions: the first worker process, the tasks and settings of a run, and the header of its file."""

import secrets
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from dlbench.cli import BEGAN, defaults
from dlbench.cli.planning import Plan, signatures_of
from dlbench.cli.terminal import on_screen, say
from dlbench.core.errors import DeviceAbsent, ResultFileError, UsageError
from dlbench.core.files import __version__
from dlbench.core.machine import differences
from dlbench.core.measurement import BALANCED, Measurement
from dlbench.core.model import Policy, Status
from dlbench.core.store import RunFile
from dlbench.core.thresholds import ThresholdSettings
from dlbench.core.units import Json
from dlbench.core.writer import ResultWriter
from dlbench.harness.plan.cases import Signatures, check, plan, workload_names
from dlbench.harness.plan.suite import Suite, compile_expression
from dlbench.harness.pool import layout_seed
from dlbench.harness.probe import devices as machine
from dlbench.harness.probe import fingerprint
from dlbench.harness.probe.programs import OtherPrograms
from dlbench.harness.process.folders import refuse_unwritable
from dlbench.harness.process.launch import Interruption
from dlbench.harness.process.worker_process import Mode, WorkerProcess, handshake
from dlbench.harness.progress import Progress
from dlbench.harness.schedule import Isolation, RunSettings, Side, Task


def settings_for(seed: int | None = None, isolation: Isolation | None = None) -> RunSettings:
    """Return the settings for this machine, with the default policy; without a seed one is drawn."""
    cpu = machine.describe_cpu()
    default: Isolation = "fork" if sys.platform == "linux" else "spawn"  # fork where it is known to be safe
    began = click.get_current_context().meta[BEGAN]
    drawn = secrets.randbits(32) if seed is None else seed
    return RunSettings(Policy(), drawn, isolation or default, cpu.usable_threads(), began, cpu.usable_cpus())


@dataclass(frozen=True, slots=True)
class OpenSide:
    """A side with a running worker, which also measures the first round."""

    side: Side
    """Without its devices: which of them take part is for a plan to say."""
    worker: WorkerProcess
    hello: Json
    programs: OtherPrograms
    """Those that took CPUs since before the worker was started."""

    def tasks(self, plan: Plan) -> list[Task]:
        """Return the tasks of a round of the plan on this side."""
        side = self.side.on(plan.devices)
        return [Task(case, side) for case in plan.cases]


@contextmanager
def open_side(side: Side, suites: Sequence[Suite], settings: RunSettings, interruption: Interruption) -> Iterator[OpenSide]:
    """Start a worker and ask it for its devices and workloads; end it afterwards. Raises WorkerError where it can't say."""
    programs = OtherPrograms()
    if on_screen():
        say(f"starting torch{'' if side.name is None else f' of side {side.name}'} …")
    mode: Mode = "fork" if settings.isolation == "fork" else "stay"
    layout = layout_seed(settings.seed, 0, side.name)
    with WorkerProcess(mode, settings.threads, layout, interruption, side.interpreter) as worker:
        hello = handshake(worker, side.plugins, workload_names(suites), settings.threads, side.not_from)
        once = tuple(trial["plugin"] for trial in hello["trials"] if not trial["not_once"])  # others are imported anew for each case
        yield OpenSide(replace(side, imports_once=once), worker, hello, programs)


@dataclass(frozen=True, slots=True)
class Session:
    """Tasks still to measure, and the file that they go to."""

    tasks: tuple[Task, ...]
    settings: RunSettings
    devices: tuple[machine.Device, ...]
    signatures: Signatures
    open_writer: Callable[[], ResultWriter]
    done: tuple[Measurement, ...] = ()
    tried: tuple[Measurement, ...] = ()
    """Tries of the searches of the run that it goes on with."""
    first_round: int = 0
    gate: ThresholdSettings | None = None
    """Changes that every case of a baseline has to be able to show, from the command line."""
    answered: bool = False
    """Whether its rows are meant to answer questions, which the screen then shows from the first case on."""


def policy_for(plan: Plan, changes: Mapping[str, Any], gate_rounds: int | None = None) -> Policy:
    """Return the policy of the suites with the user's changes; ``gate_rounds``: rounds that a gate needs, which no budget shortens."""
    policy = plan.policy
    if gate_rounds is not None:
        policy = replace(policy, rounds=gate_rounds, max_rounds=gate_rounds, budget_s=None)
    return replace(policy, **changes)


def start(
    plan: Plan,
    tasks: Sequence[Task],
    settings: RunSettings,
    policy: Policy,
    output: Path | None,
    *,
    sides: Json | None = None,
    gate: ThresholdSettings | None = None,
) -> Session:
    """Return the session of a new run.

    ``output``: its file, by default a new one in results. ``sides``: the header's part on each side of an A/B, with its software.
    ``gate``: as in `Session`. Raises UsageError where a case names a folder that can't be written.
    """
    _check_places(tasks, plan.signatures)
    settings = replace(settings, policy=policy)
    machines = tasks[0].side.machines
    name = default_name(plan.suites)
    path = output or Path("results") / (f"ab-{name}" if sides else name)
    environment = fingerprint.fingerprint(plan.hello, plan.devices)
    if used_defaults := defaults.in_force().used:
        environment["provenance"]["defaults"] = used_defaults
    environment["provenance"]["command"] = _command_words()
    if sides:  # each has its own software
        environment = {key: value for key, value in environment.items() if key not in ("stack", "stack_key")}
    header = {
        "dlbench": __version__,
        "suites": [suite.to_json() for suite in plan.suites],
        "expression": plan.options.expression,
        "include_absent": not plan.options.device_words,
        "plugins": list(plan.options.plugins),
        "policy": asdict(policy),
        "seed": settings.seed,
        "isolation": settings.isolation,
        "planned": {"count": len(tasks)},
        "devices": [device.to_json() for device in plan.devices],
        "environment": environment,
        **({"sides": sides, "order": BALANCED} if sides else {"workloads": plan.declarations()}),
        **({"user": plan.hello["user"]} if plan.hello["user"] else {}),
        **({"machines": [each.environment for each in machines]} if machines else {}),
        **({} if gate is None else {"gate": dict(gate)}),
    }
    return Session(tuple(tasks), settings, plan.devices, plan.signatures, lambda: ResultWriter.create(path, header), gate=gate)


_ELSEWHERE = {"output", "resume", "form", "junit", "verdict", "github", "strict", "samples", "epochs"}
"""Parameters that say where results go, or how."""
_CHOSEN = (ParameterSource.COMMANDLINE, ParameterSource.DEFAULT_MAP)


def _command_words() -> list[list[str]]:
    """Return the words of the command that measures the same again, without folders: the command with its suites, then each option."""
    context = click.get_current_context()
    words = [[str(context.command.name)]]
    for each in context.command.params:
        value = context.params[str(each.name)]
        if isinstance(each, click.Argument):
            words[0] += value
        elif each.name not in _ELSEWHERE and context.get_parameter_source(str(each.name)) in _CHOSEN:
            option = max(each.opts, key=len)
            given = value if isinstance(value, tuple) else [value]
            words += [[option] if one is True else [option, str(one)] for one in given]
    return [[fingerprint.without_folders(word) for word in group] for group in words]


def _check_places(tasks: Sequence[Task], signatures: Signatures) -> None:
    """Raise UsageError for a parameter of a case that names a folder that can't be written."""
    folders = set[tuple[str, str]]()
    for each in tasks:
        name = signatures[each.case.workload].declared.parameter("scratch") if each.case.workload in signatures else None
        if name and (folder := each.case.params.get(name)):
            folders.add((name, str(folder)))
    for name, folder in sorted(folders):
        try:
            refuse_unwritable(Path(folder))
        except OSError as error:
            raise UsageError(
                f"{name}={folder}: no folder can be made there: {error.strerror}; name a folder that can be written"
            ) from error


def default_name(suites: Sequence[Suite]) -> str:
    """Return the default name of a result file of these suites."""
    return f"{'-'.join(suite.name for suite in suites)}-{datetime.now(UTC):%Y%m%d-%H%M%S}.jsonl"


def recorded_setup(run: RunFile, policy_changes: Mapping[str, Any]) -> tuple[tuple[Suite, ...], RunSettings, Side]:
    """Read the suites, settings and side of an earlier run from its header; ``policy_changes`` replace fields of its policy.

    Raises UsageError for an A/B and for a run on several machines, ResultFileError for an incomplete header.
    """
    if "sides" in run.header:
        raise UsageError(
            f"{run.path} is an A/B, which can't be resumed: its sides may have changed, and are compared because they "
            "were measured alternately; start dlbench ab again"
        )
    if "machines" in run.header:
        raise UsageError(f"{run.path} was measured on several machines, and such a run can't be resumed; start it again")
    with _complete_header(run) as header:
        suites = tuple(Suite.from_json(suite) for suite in header["suites"])
        policy = replace(Policy(**header["policy"]), **policy_changes)
        settings = replace(settings_for(header["seed"], header["isolation"]), policy=policy)
        return suites, settings, Side(plugins=tuple(header["plugins"]))


def resume(run: RunFile, writer: ResultWriter, suites: Sequence[Suite], opened: OpenSide, settings: RunSettings) -> Session:
    """Return the session that goes on with a run, with the cases that its file plans.

    ``writer``: that of the file, opened before it was read, so that nobody else has added to it since.
    Raises UsageError where this machine, its software or a declaration differs from those in the file.
    """
    with _complete_header(run) as header:
        signatures = signatures_of(opened.hello)
        ids = [device["id"] for device in header["devices"]]
        present = {device.id: device for device in machine.describe(opened.hello)}
        devices = tuple(present[device] for device in ids if device in present)
        unusable = machine.unusable(devices)
        for device in header["devices"]:
            if (name := device["id"]) in unusable and "unusable" not in device:
                raise DeviceAbsent(f"{name} can't be used now: {unusable[name]}; go on when it can, or start a new run without it")
        environment = fingerprint.fingerprint(opened.hello, devices)
        if different := differences(header["environment"], environment, but_for_restarts=True):
            raise UsageError(
                f"{run.path} can't be resumed here, its rows would not be of one machine: {'; '.join(different)}; start a new run instead"
            )
        only = compile_expression(header["expression"]) if header["expression"] else None
        check(suites, signatures, opened.hello["kinds"])
        if changed := _changed(run, opened.hello["user"], signatures):
            raise UsageError(f"{run.path} can't be resumed, as {' and '.join(changed)} changed since it was begun; start a new run instead")
        cases = plan(suites, signatures, ids, only=only, include_absent=header["include_absent"])
        side = opened.side.on(devices)
        tasks = tuple(Task(case, side) for case in cases)
    return Session(
        tasks,
        settings,
        devices,
        signatures,
        lambda: writer,
        run.measurements,
        run.tries,
        gate=header.get("gate"),
    )


def is_complete(run: RunFile, session: Session) -> bool:
    """Whether a run has ended, with every case measured whose device is there now, and no round lost with a damaged line."""
    tasks = [task for task in session.tasks if task.has_device]
    if run.footer is None or (run.left_out and Progress(tasks, session.settings.policy, run.measurements).left()):
        return False
    last = {each.series: each.status for each in run.measurements}
    return all(last.get(task.series, Status.SKIPPED) is not Status.SKIPPED for task in tasks)


def _changed(run: RunFile, user: Json, signatures: Signatures) -> list[str]:
    """Return the user's files and the declarations of workloads that differ from those in the header, by name."""
    from dlbench.analysis.read.header import declarations

    files = dict.fromkeys(each["file"] for name, each in run.header.get("user", {}).items() if user.get(name) != each)
    declared = (name for name, was in declarations(run).items() if name in signatures and signatures[name].declared != was)
    return [*files, *(f"what {name} declares" for name in declared)]


@contextmanager
def _complete_header(run: RunFile) -> Iterator[Json]:
    """Yield the header. Raises ResultFileError where the code inside misses something in it."""
    try:
        yield run.header
    except (KeyError, TypeError, AttributeError) as error:
        raise ResultFileError(f"{run.path}, line 1: the header lacks what a run needs to go on ({error}); start a new run") from error
