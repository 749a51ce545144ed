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
    if seed is None:
        seed = secrets.randbits(32)
    if isolation is None:
        isolation = "fork" if sys.platform == "linux" else "spawn"  # fork where it is known to be safe
    cpu = machine.describe_cpu()
    began = click.get_current_context().meta[BEGAN]
    return RunSettings(Policy(), seed, isolation, cpu.usable_threads(), began=began, logical_cpus=cpu.usable_cpus())


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
    programs = OtherPrograms()  # watches from before the worker takes CPUs itself
    if on_screen():
        say(f"starting torch{'' if side.name is None else f' of side {side.name}'} …")
    mode: Mode = "fork" if settings.isolation == "fork" else "stay"
    layout = layout_seed(settings.seed, 0, side.name)  # of the first round, which this worker measures, too
    with WorkerProcess(mode, settings.threads, layout, interruption, side.interpreter) as worker:
        hello = handshake(worker, side.plugins, workload_names(suites), settings.threads, side.not_from)
        # A plugin that no process that forks may import is imported anew for each case.
        imports_once = tuple(trial["plugin"] for trial in hello["trials"] if not trial["not_once"])
        yield OpenSide(replace(side, imports_once=imports_once), worker, hello, programs)


@dataclass(frozen=True, slots=True)
class Session:
    """Tasks still to measure, and the file that they go to."""

    tasks: tuple[Task, ...]
    settings: RunSettings
    devices: tuple[machine.Device, ...]
    signatures: Signatures
    open_writer: Callable[[], ResultWriter]
    done: tuple[Measurement, ...] = ()
    """Measurements that a resumed file has already."""
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

    ``policy`` replaces that of the ``settings``. ``output`` is the path of the result file; if it is None, a new one is made in the folder
    results. ``sides`` is None unless the run is an A/B. Then it has what the header says of each side, by the name of the side: its
    workloads and its software, for example. ``gate`` is that of the `Session`.
    Raises UsageError where a case names a folder that can't be written.
    """
    _refuse_unwritable_folders(tasks, plan.signatures)
    settings = replace(settings, policy=policy)
    name = default_name(plan.suites)
    path = output or Path("results") / (f"ab-{name}" if sides else name)
    header = _header(plan, tasks, settings, sides, gate)
    # A function opens the writer, so that no file is made before the recording begins.
    return Session(tuple(tasks), settings, plan.devices, plan.signatures, lambda: ResultWriter.create(path, header), gate=gate)


def _header(plan: Plan, tasks: Sequence[Task], settings: RunSettings, sides: Json | None, gate: ThresholdSettings | None) -> dict[str, Any]:
    """Return the header of a new run's file: what is measured, how and where. ``sides`` and ``gate`` are those of `start`."""
    header: dict[str, Any] = {
        "dlbench": __version__,
        "suites": [suite.to_json() for suite in plan.suites],
        "expression": plan.options.expression,
        "include_absent": not plan.options.device_words,  # a user who names devices wants cases on these alone
        "plugins": list(plan.options.plugins),
        "policy": asdict(settings.policy),
        "seed": settings.seed,
        "isolation": settings.isolation,
        "planned": {"count": len(tasks)},
        "devices": [device.to_json() for device in plan.devices],
        "environment": _environment(plan, with_software=not sides),  # each side has its own software
    }
    if sides:
        # Each side has its own workloads in its own part. Every second round measures the sides in the reverse order.
        header |= {"sides": sides, "order": BALANCED}
    else:
        header["workloads"] = plan.declarations()
    if plan.hello["user"]:  # what the user's own files define, such as networks; not the user's name
        header["user"] = plan.hello["user"]
    if machines := tasks[0].side.machines:  # a run on several machines has one side, that of all tasks
        header["machines"] = [each.environment for each in machines]
    if gate is not None:
        header["gate"] = dict(gate)
    return header


def _environment(plan: Plan, with_software: bool) -> Json:
    """Return the header's part on the machine, its software if wanted, and the command with the defaults that it used."""
    environment = fingerprint.fingerprint(plan.hello, plan.devices)
    if used_defaults := defaults.in_force().used:
        environment["provenance"]["defaults"] = used_defaults
    environment["provenance"]["command"] = _command_words()
    if with_software:
        return environment
    return {block: content for block, content in environment.items() if block not in ("stack", "stack_key")}


_ELSEWHERE = {"output", "resume", "form", "junit", "verdict", "github", "strict", "samples", "epochs"}
"""Parameters that say where results go and how they are shown or judged; without them the command measures the same."""
_CHOSEN = (ParameterSource.COMMANDLINE, ParameterSource.DEFAULT_MAP)
"""Sources of a value that the user has given, with the command or in a file of defaults."""


def _command_words() -> list[list[str]]:
    """Return the command that measures the same again: a list of its name and arguments, then a list for each option and its value.

    Folders are left out of all words, as the header must not name folders of this machine.
    """
    context = click.get_current_context()
    command_and_suites = [str(context.command.name)]
    options = list[list[str]]()
    for parameter in context.command.params:
        name = str(parameter.name)
        value = context.params[name]
        if isinstance(parameter, click.Argument):
            command_and_suites += value  # a tuple: arguments of a command that measures take any number of words
        elif name not in _ELSEWHERE and context.get_parameter_source(name) in _CHOSEN:
            long_name = max(parameter.opts, key=len)
            for each in value if isinstance(value, tuple) else [value]:
                is_flag = each is True  # a flag has no value on the command line
                options.append([long_name] if is_flag else [long_name, str(each)])
    return [[fingerprint.without_folders(word) for word in words] for words in (command_and_suites, *options)]


def _refuse_unwritable_folders(tasks: Sequence[Task], signatures: Signatures) -> None:
    """Raise UsageError for a case whose workload writes to a folder that can't be written.

    A parameter of the workload names that folder, the one with the role "scratch".
    """
    folders = set[tuple[str, str]]()
    for task in tasks:
        signature = signatures.get(task.case.workload)
        parameter = signature.declared.parameter("scratch") if signature else None
        folder = task.case.params.get(parameter) if parameter else None
        if parameter and folder:
            folders.add((parameter, str(folder)))
    for parameter, folder in sorted(folders):
        try:
            refuse_unwritable(Path(folder))
        except OSError as error:
            raise UsageError(
                f"{parameter}={folder}: no folder can be made there: {error.strerror}; name a folder that can be written"
            ) from error


def default_name(suites: Sequence[Suite]) -> str:
    """Return the default name of a result file of these suites."""
    return f"{'-'.join(suite.name for suite in suites)}-{datetime.now(UTC):%Y%m%d-%H%M%S}.jsonl"


def recorded_setup(run: RunFile, policy_changes: Mapping[str, Any]) -> tuple[tuple[Suite, ...], RunSettings, Side]:
    """Return the suites, settings and side of an earlier run, by its header; ``policy_changes`` replace fields of its policy.

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
    """Return the session that goes on with an earlier run, with the cases that its header plans and the measurements that it has already.

    ``suites`` and ``settings`` are those of `recorded_setup`. ``writer`` appends to the file of that run. It was opened before the file was
    read, so that nobody else has added to it since.
    Raises UsageError where this machine, its software, a declaration or a file of the user's differs from those of the run. Raises
    DeviceAbsent for a device that can't be used any more, and ResultFileError for an incomplete header.
    """
    with _complete_header(run) as header:
        signatures = signatures_of(opened.hello)
        recorded_ids = [device["id"] for device in header["devices"]]
        present = {device.id: device for device in machine.describe(opened.hello)}
        # Only devices that are still there take part. Cases of one that has gone are planned below, and skipped with a reason.
        devices = tuple(present[device_id] for device_id in recorded_ids if device_id in present)
        _refuse_unusable(header["devices"], machine.unusable(devices))
        _refuse_differences(run, opened.hello, devices)
        matches_expression = compile_expression(header["expression"]) if header["expression"] else None
        check(suites, signatures, opened.hello["kinds"])
        if changed := _changed(run, opened.hello["user"], signatures):  # "user": what the user's own files define
            raise UsageError(f"{run.path} can't be resumed, as {' and '.join(changed)} changed since it was begun; start a new run instead")
        cases = plan(suites, signatures, recorded_ids, only=matches_expression, include_absent=header["include_absent"])
        side = opened.side.on(devices)
        tasks = tuple(Task(case, side) for case in cases)
    return Session(
        tasks,
        settings,
        devices,
        signatures,
        open_writer=lambda: writer,
        done=run.measurements,
        tried=run.tries,
        gate=header.get("gate"),
    )


def _refuse_unusable(recorded_devices: Sequence[Json], unusable: Mapping[str, str]) -> None:
    """Raise DeviceAbsent for a device that could be used when the run was begun and is ``unusable`` now, with the reason why."""
    for recorded in recorded_devices:
        name = recorded["id"]
        if name in unusable and "unusable" not in recorded:
            raise DeviceAbsent(f"{name} can't be used now: {unusable[name]}; go on when it can, or start a new run without it")


def _refuse_differences(run: RunFile, hello: Json, devices: Sequence[machine.Device]) -> None:
    """Raise UsageError where this machine or its software is another than in the header; a restart may change some of it."""
    environment = fingerprint.fingerprint(hello, devices)
    if different := differences(run.header["environment"], environment, but_for_restarts=True):
        raise UsageError(
            f"{run.path} can't be resumed here, its rows would not be of one machine: {'; '.join(different)}; start a new run instead"
        )


def is_complete(run: RunFile, session: Session) -> bool:
    """Whether a run has ended, with every case measured whose device is there now, and no round lost with a damaged line."""
    if run.footer is None:
        return False
    tasks = [task for task in session.tasks if task.has_device]
    if run.left_out and Progress(tasks, session.settings.policy, run.measurements).left():
        return False
    last_status = {each.series: each.status for each in run.measurements}
    return all(last_status.get(task.series, Status.SKIPPED) is not Status.SKIPPED for task in tasks)


def _changed(run: RunFile, user: Json, signatures: Signatures) -> list[str]:
    """Return the user's files and the declarations of workloads that differ from those in the header, by name."""
    from dlbench.analysis.read.header import declarations

    recorded_user = run.header.get("user", {})
    files = dict.fromkeys(recorded["file"] for name, recorded in recorded_user.items() if user.get(name) != recorded)
    workloads = [name for name, was in declarations(run).items() if name in signatures and signatures[name].declared != was]
    return [*files, *(f"what {name} declares" for name in workloads)]


@contextmanager
def _complete_header(run: RunFile) -> Iterator[Json]:
    """Yield the header. Raises ResultFileError where the code inside misses something in it."""
    try:
        yield run.header
    except (KeyError, TypeError, AttributeError) as error:
        raise ResultFileError(f"{run.path}, line 1: the header lacks what a run needs to go on ({error}); start a new run") from error
