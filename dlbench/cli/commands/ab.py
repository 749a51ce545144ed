"""``dlbench ab``: its two sides, measured alternately on this machine, and a verdict for every case.

A side is an interpreter with its environment, and a state of the user's code. Each FILE.py of the user's is a plugin. A worker is a process
that measures; what it says of its devices and workloads is its hello. A gate is a comparison that is to fail if a case is slower. An A/B is
one.
"""

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Self

import click

from dlbench.cli import session as sessions
from dlbench.cli.options import (
    MeasureOptions,
    OutputOptions,
    PlanOptions,
    measuring_options,
    option_group,
    output_options,
    planning_options,
    threshold_options,
)
from dlbench.cli.output_files import check_writable, refuse_same_file
from dlbench.cli.planning import Plan, check_detect, load_suites, plan_suites, signatures_of
from dlbench.cli.recording import LEAST_ROUNDS, Recording, announce_gate, further_rounds, measure_until_seen, record
from dlbench.cli.session import OpenSide, open_side
from dlbench.cli.terminal import say
from dlbench.core.errors import DlbenchError, ExitCode, SuiteError, UsageError
from dlbench.core.measurement import CONFIRMING
from dlbench.core.rank_test import PAIRED_SHARES, rounds_for_gate
from dlbench.core.thresholds import WITHIN_A_RUN, ThresholdSettings, override_thresholds
from dlbench.core.units import Json
from dlbench.harness.plan.cases import Signatures, check
from dlbench.harness.plan.suite import Bench, Suite
from dlbench.harness.process import folders
from dlbench.harness.process.launch import Interpreter, Interruption, own_variables
from dlbench.harness.ranks.machines import refuse_several
from dlbench.harness.schedule import RunSettings, Side, Task

if TYPE_CHECKING:
    from dlbench.analysis.compare.verdict import Comparison
    from dlbench.analysis.read.table import Results

_KINDS = {"python": "python=PATH", "env": "env=NAME=VALUE", "ref": "ref=REF"}
"""The kinds of difference between sides, each as it is written."""
_SAME = "same"
"""What is given for side b in place of a difference where both sides are to be the same code."""
_NOT_PRELOADED = re.compile(r"ld\.so: object '(.*)' from LD_PRELOAD cannot be preloaded \((.*)\): ignored")
"""What the dynamic linker writes to stderr for a library that it can't load: its name and why."""


def _parse_side(name: str, differences: Sequence[str]) -> tuple[Side, str | None]:
    """Return the side called ``name``, ``a`` or ``b``, and the git reference of its code, or None.

    ``differences`` are the values of ``--a`` or ``--b``, such as ``env=NAME=VALUE``. The side has no plugins yet.
    Raises UsageError for a value of no known kind, one that is given twice, a variable that may not be set, and a Python that is missing.
    """
    python_and_ref: dict[str, str] = {}
    variables: dict[str, str] = {}
    for difference in differences:
        option = f"--{name} {difference}"
        kind, _, value = difference.partition("=")
        if kind not in _KINDS or not value:
            raise UsageError(f"{option}: write {', '.join(_KINDS.values())}")
        if kind == "env":
            variable, text = _parse_variable(option, value)
            _set_once(variables, variable, text, option)
        else:
            _set_once(python_and_ref, kind, value, option)
    python = python_and_ref.get("python")
    # A Python that the user names imports the packages that are installed for it, and nothing from the current folder.
    interpreter = Interpreter(_path_of_python(name, python), variables, imports_from_folder=python is None)
    return Side(name=name, interpreter=interpreter), python_and_ref.get("ref")


def _set_once(settings: dict[str, str], key: str, value: str, option: str) -> None:
    """Add a setting. Raises UsageError that begins with the option if there is one for this key already."""
    if key in settings:
        raise UsageError(f"{option}: {key} is given twice; give it once")
    settings[key] = value


def _path_of_python(side_name: str, python: str | None) -> str:
    """Return the absolute path of the program that a side's ``python=`` names; without it, that of the Python that runs this.

    Raises UsageError where there is no such program.
    """
    program = Interpreter().python if python is None else shutil.which(python)
    if program is None:
        raise UsageError(f"--{side_name} python={python}: there is no such program; give the path of a Python, such as .venv/bin/python")
    # Links are not resolved: the Python of a virtual environment is a link to another one.
    return str(Path(program).absolute())


def _parse_variable(option: str, text: str) -> tuple[str, str]:
    """Return name and value of an environment variable from ``NAME=VALUE``. Raises UsageError for one that may not be set."""
    name, equals, value = text.partition("=")
    if not equals or not re.fullmatch(r"[A-Za-z_]\w*", name):
        raise UsageError(f"{option}: write env=NAME=VALUE")
    if name in own_variables(threads=1, seed=0):
        raise UsageError(f"{option}: dlbench sets {name} itself, alike on both sides; leave it out")
    return name, value


def _parse_sides(a: Sequence[str], b: Sequence[str]) -> tuple[tuple[Side, str | None], ...]:
    """Return both sides, each with its git reference.

    Raises UsageError where no option makes them differ, and for a difference of b beside ``--b same``.
    """
    if not (a or b):
        apart = ", ".join(f"--b {kind}" for kind in _KINDS.values())
        raise UsageError(f"a and b are the same code here; say in what b differs: {apart} (--b same measures the same code twice)")
    differences = [value for value in b if value != _SAME]
    if differences and _SAME in b:
        options = " and ".join(f"--b {value}" for value in differences)
        raise UsageError(f"--b same contradicts {options}, as it says that b is what is here; leave one of them out")
    return _parse_side("a", a), _parse_side("b", differences)


_DIFFERS = "in python=PATH, env=NAME=VALUE, or ref=REF of the checkout of FILE.py. Repeatable."
_side_options = option_group(
    "sides",
    _parse_sides,
    click.option(
        "--b", multiple=True, metavar="KIND=VALUE", help=f"Side b, which is judged, differs from what is here {_DIFFERS} Or: same."
    ),
    click.option("--a", multiple=True, metavar="KIND=VALUE", help="The same of side a, the base."),
)
"""Adds --a and --b. The command gets ``sides``: a and b, each as a pair of the side and its git reference, or None."""


@dataclass(frozen=True, slots=True)
class ABSide:
    """A side of an A/B with its code in place and its worker running."""

    opened: OpenSide
    folder: Path | None
    """Checkout of its git reference; None without one."""
    revision: Mapping[str, str]
    """Its git reference and the commit, for the header; empty without one."""

    def plan(self, suites: tuple[Suite, ...], other: Self, planning: PlanOptions) -> Plan:
        """Plan the suites for this side, without the benches that only the code of the other side can run."""
        with _named(self.opened.side, self.folder):
            return plan_suites(_without_benches_of_other(suites, self.opened.hello, other.opened.hello), self.opened.hello, planning)

    def to_json(self, plan: Plan) -> Json:
        """Return the side's part of the header: what makes it differ, its workloads, and its machine and software.

        An interpreter is recorded by its name and a hash of its path, which distinguishes interpreters of one name. No path is recorded.
        """
        from dlbench.harness.probe.fingerprint import fingerprint, without_secrets

        interpreter = self.opened.side.interpreter
        machine_and_software = fingerprint(plan.hello, plan.devices, environ=interpreter.environment())
        return {
            "side": {
                "python": Path(interpreter.python).name,
                "python_key": hashlib.sha256(interpreter.python.encode()).hexdigest()[:8],
                "environ": without_secrets(interpreter.environ),
                **self.revision,
            },
            "workloads": plan.declarations(),
            **{block: machine_and_software[block] for block in ("machine_key", "stack_key", "identity", "stack")},
        }


@contextmanager
def open_ab_side(
    side: Side, reference: str | None, suites: Sequence[Suite], settings: RunSettings, interruption: Interruption
) -> Iterator[ABSide]:
    """Put the code of a side in place and start its worker, as `open_side` does; an error names the side."""
    with _side_at_reference(side, reference, interruption) as (here, folder, revision), ExitStack() as stack:
        _refuse_lost_preload(here)
        with _named(here, folder):
            opened = stack.enter_context(open_side(here, suites, settings, interruption))
        yield ABSide(opened, folder, revision)


def _refuse_lost_preload(side: Side) -> None:
    """Raise UsageError where a library in the side's LD_PRELOAD can't be loaded.

    The dynamic linker only warns of that and goes on without it, so both sides would be the same code.
    """
    interpreter = side.interpreter
    preload = interpreter.environ.get("LD_PRELOAD")
    if not preload:
        return
    # Only the linker knows where it looks for a library, so a Python that does nothing is started to see its warning.
    command, environment = [interpreter.python, "-c", ""], interpreter.environment()
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False, env=environment, cwd=interpreter.folder)
    except OSError:  # the file is no program; the worker, which is started next, fails with an error that says so
        return
    if warning := _NOT_PRELOADED.search(os.fsdecode(done.stderr)):
        library, reason = warning.groups()
        raise UsageError(
            f"--{side.name} env=LD_PRELOAD={preload}: '{library}' can't be loaded ({reason}), so the side would be measured without it; "
            "give the path of a library"
        )


@contextmanager
def _named(side: Side, folder: Path | None) -> Iterator[None]:
    """Add the side's name to errors raised inside, and remove the folder of its code from them."""
    try:
        yield
    except DlbenchError as error:
        text = str(error).replace(f"{folder}{os.sep}", "") if folder else str(error)
        raise type(error)(f"side {side.name}: {text}") from error


@contextmanager
def _temporary_folder(interruption: Interruption) -> Iterator[Path]:
    """Yield a new temporary folder, and remove it afterwards, also where a second signal ends the program at once."""
    folder = Path(tempfile.mkdtemp(prefix="dlbench-")).resolve()
    clean_up = partial(_remove, folder)
    interruption.clean_ups.append(clean_up)
    try:
        yield folder
    finally:
        clean_up()
        interruption.clean_ups.remove(clean_up)


def _remove(folder: Path) -> None:
    """Remove a folder, first renamed, so that git or a worker that still runs can't write into it meanwhile."""
    renamed = folder.with_name(f"{folder.name}-removed")
    with suppress(OSError):  # a further signal finds it renamed already
        folder.rename(renamed)
    shutil.rmtree(renamed, ignore_errors=True)


@contextmanager
def _side_at_reference(side: Side, reference: str | None, interruption: Interruption) -> Iterator[tuple[Side, Path | None, dict[str, str]]]:
    """Write the files of a git reference into a temporary folder. Yield the side that imports from there, that folder, and the revision.

    The reference is taken from the git checkout that a plugin lies in. Without a reference the side is yielded unchanged, with no folder
    and no revision.
    Raises UsageError where no plugin lies in a checkout, where git does not know the reference or can't write it, and where the reference
    lacks a plugin of that checkout.
    """
    if reference is None:
        yield side, None, {}
        return
    option = f"--{side.name} ref={reference}"
    plugins = [Path(plugin).resolve() for plugin in side.plugins]
    checkout = _checkout_of(plugins)
    if checkout is None:
        raise UsageError(f"{option}: no FILE.py of yours lies in a git checkout, so there is nothing to take this reference of")
    with _temporary_folder(interruption) as temporary:
        folder = temporary / "checkout"  # and not the temporary folder itself, as git's index is written next to it
        folder.mkdir()
        try:
            commit = folders.write_reference(checkout, reference, folder)
        except UsageError as error:
            raise UsageError(f"{option}: {error}") from error
        # A plugin outside of the checkout is used where it is. Each other one has to be among the files of the reference.
        paths_at_reference = [_path_in(folder, plugin, checkout) for plugin in plugins]
        for plugin, path in zip(plugins, paths_at_reference, strict=True):
            if path.is_relative_to(folder) and not path.is_file():
                raise UsageError(f"{option}: this reference has no {plugin.relative_to(checkout)}")
        # Code may import modules from the current folder, so the worker starts in the folder that has the same place in the reference.
        # It starts in the top folder where the reference has no such folder, or the current folder lies outside of the checkout.
        working_folder = _path_in(folder, Path.cwd(), checkout)
        if not working_folder.is_relative_to(folder) or not working_folder.is_dir():
            working_folder = folder
        interpreter = replace(side.interpreter, folder=working_folder, imports_from_folder=True)
        # ``not_from``: an import from the checkout itself would measure the code that is here, and not that of the reference.
        side = replace(side, plugins=tuple(map(str, paths_at_reference)), interpreter=interpreter, not_from=str(checkout))
        yield side, folder, {"ref": reference, "commit": commit}


def _checkout_of(paths: Iterable[Path]) -> Path | None:
    """Return the top folder of the git checkout of the first path that lies in one; None if none does."""
    for path in paths:
        if root := folders.root_of(path):
            return root
    return None


def _path_in(folder: Path, path: Path, root: Path) -> Path:
    """Return the path in ``folder`` that has the place of ``path`` below ``root``; ``path`` itself if it does not lie there."""
    return folder / path.relative_to(root) if path.is_relative_to(root) else path


def _without_benches_of_other(suites: tuple[Suite, ...], own_hello: Json, other_hello: Json) -> tuple[Suite, ...]:
    """Return the suites without the benches that only the code of the other side can run.

    A bench is a workload of a suite with values of its parameters. Code can't run it if it lacks the workload, a parameter, a value or the
    kind of device. Only the other side measures the cases of a bench that is left out. Their verdicts say so, such as ``missing``. A bench
    that neither side can run stays, so that planning reports it as a mistake. If no bench would be left, all stay: a plan needs a case.
    """

    def can_run(signatures: Signatures, device_kinds: Sequence[str], suite: Suite, bench: Bench) -> bool:
        try:
            check([replace(suite, benches=(bench,))], signatures, device_kinds)
        except SuiteError:
            return False
        return True

    own_signatures, other_signatures = signatures_of(own_hello), signatures_of(other_hello)
    remaining = []
    for suite in suites:
        benches = []
        for bench in suite.benches:
            own_can = can_run(own_signatures, own_hello["kinds"], suite, bench)
            if own_can or not can_run(other_signatures, other_hello["kinds"], suite, bench):
                benches.append(bench)
        remaining.append(replace(suite, benches=tuple(benches)))
    return tuple(remaining) if any(suite.benches for suite in remaining) else suites


@click.command("ab")
@_side_options
@planning_options
@measuring_options(
    rounds="Fresh processes a side (default: 14 or more, then up to 60).",
    budget="Time for all rounds, such as 10m (default: what they take).",
)
@threshold_options("3%, memory 5%", "Measure on until each case shows or excludes such a slowdown, or end with 4 (default: 25%).")
@click.option("--confirm", is_flag=True, help="Measure changes again; the new rounds alone decide.")
@output_options()
def ab_command(
    planning: PlanOptions,
    sides: Sequence[tuple[Side, str | None]],
    measuring: MeasureOptions,
    thresholds: ThresholdSettings,
    confirm: bool,
    output: OutputOptions,
) -> ExitCode:
    """Measure two sides alternately on this machine: interpreters, environments, or states of your code; then judge b against a.

    In each round both sides of every case are measured one after the other, each in processes of its own; every second round reverses
    their order. The result file holds both; compare gives the verdicts again, with --by run.

    \b
      dlbench ab --b python=../next/.venv/bin/python
      dlbench ab matmul -k fp32 --b env=MKL_CBWR=COMPATIBLE
      dlbench ab mine.toml mine.py --a ref=main --confirm
    """
    refuse_several("dlbench ab")  # several machines, under torchrun
    refuse_same_file({"--output": measuring.output, **output.files})
    check_writable(measuring.output, new=False)  # a file that exists is refused later, when it is to be created
    suites, settings = load_suites(planning), sessions.settings_for(measuring.seed, measuring.isolation)
    check_detect(suites, WITHIN_A_RUN, thresholds)  # --detect must be above the threshold: a smaller change does not count
    # The header holds the suites, so compare finds the thresholds of the command line in the file.
    suites = tuple(replace(suite, thresholds=override_thresholds(suite.thresholds, thresholds)) for suite in suites)
    # --rounds without --budget fixes the number of rounds. Otherwise rounds are added until each case shows or excludes the change that
    # --detect names, or until the budget is spent.
    adds_rounds = measuring.rounds is None or measuring.budget is not None
    with ExitStack() as stack:
        interruption = stack.enter_context(Interruption())
        opened = []
        for side, reference in sides:
            with_plugins = replace(side, plugins=planning.plugins)
            opened.append(stack.enter_context(open_ab_side(with_plugins, reference, suites, settings, interruption)))
        a, b = opened
        plans = a.plan(suites, b, planning), b.plan(suites, a, planning)
        session = _session(opened, plans, settings, measuring)
        workers = {ab_side.opened.side.name: ab_side.opened.worker for ab_side in opened}
        with record(session, interruption) as recording:
            announce_gate(session, adds_rounds)
            # Side a was opened first, so its `programs` have watched who else uses the CPUs since before any worker was started.
            recording.measure(session, workers, a.opened.programs)
            if adds_rounds:
                measure_until_seen(recording, session, _judge, measuring.budget)
            if confirm and not recording.stopped:
                _measure_again(recording, session, measuring.rounds)
        return _write_verdicts(recording, output)


def _session(sides: Sequence[ABSide], plans: Sequence[Plan], settings: RunSettings, measuring: MeasureOptions) -> sessions.Session:
    """Return the session that measures both sides in turn, by the policy of side a's suites, with the rounds that a gate needs."""
    tasks, header = list[Task](), {}
    for name, side, plan in zip("ab", sides, plans, strict=True):
        tasks += side.opened.tasks(plan)
        header[name] = side.to_json(plan)
    policy = sessions.policy_for(plans[0], measuring.policy, gate_rounds(len({task.case.id for task in tasks})))
    return sessions.start(plans[0], tasks, settings, policy, measuring.output, sides=header)


def gate_rounds(cases: int) -> int:
    """Return the rounds a side that so many cases get at first: `LEAST_ROUNDS`, or more if no change could be significant in these."""
    return rounds_for_gate(PAIRED_SHARES * cases, least=LEAST_ROUNDS, paired=True)


def _measure_again(recording: Recording, session: sessions.Session, rounds: int | None) -> None:
    """Measure the cases that were called slower or faster again, in fresh rounds whose verdicts replace the first ones.

    ``rounds`` is the number of fresh rounds. None: as many as a test of these few cases needs; then rounds are added as in the first
    measurement, but no budget limits them.
    """
    changed = {case.case for case in _judge(recording.results()).cases if case.verdict.is_change}
    if not changed:
        return
    from dlbench.analysis.presentation.wording import few

    fresh_rounds = rounds or gate_rounds(len(changed))
    # Only the fresh rounds decide. Their sides have names of their own, which keeps them apart from the first rounds in the file.
    tasks = [Task(task.case, replace(task.side, name=f"{task.side.name}{CONFIRMING}")) for task in session.tasks if task.case.id in changed]
    say(f"measuring again, in {fresh_rounds} fresh rounds: {few(sorted(changed))}")
    confirming_session = further_rounds(session, recording, tasks, fresh_rounds)
    recording.measure(confirming_session, {})  # the first workers have ended, so new ones are started
    if rounds is None:
        measure_until_seen(recording, confirming_session, _judge)


def _judge(results: "Results") -> "Comparison":
    """Return the verdicts on the sides."""
    from dlbench.analysis.compare.sides import compare_sides  # not at the top, so that --help stays quick

    return compare_sides(results)


def _write_verdicts(recording: Recording, output: OutputOptions) -> ExitCode:
    """Write the verdicts and return the exit code.

    After an interruption, or a fault of a device, rounds are missing that the tests were planned for. Then the results are written without
    verdicts, and a fault is raised.
    """
    from dlbench.analysis.compare.provenance import side_notes
    from dlbench.cli.output import write_results
    from dlbench.cli.verdicts import conclude

    results, path = recording.results(), recording.path
    if not recording.stopped:
        code = conclude([_judge(results)], side_notes(results), output, results)
        say(f"saved in {path}")
        return code
    write_results(results, output.form, [path], saved=True)
    if recording.fault:
        raise recording.fault
    say(f"interrupted, so there is no verdict; for one on what was measured: dlbench compare {path} --by run")
    return recording.interruption.exit_code
