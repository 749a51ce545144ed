"""Sides of an A/B: the options of each, its interpreter, environment, code and worker."""

import hashlib
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Self

import click

from dlbench.cli.options import Decorator, PlanOptions, option_group
from dlbench.cli.planning import Plan, plan_suites, signatures_of
from dlbench.cli.session import OpenSide, open_side
from dlbench.core.errors import DlbenchError, SuiteError, UsageError
from dlbench.core.units import Json
from dlbench.harness.plan.cases import Signatures, check
from dlbench.harness.plan.suite import Bench, Suite
from dlbench.harness.process import folders
from dlbench.harness.process.launch import Interpreter, Interruption, own_variables
from dlbench.harness.schedule import RunSettings, Side

_KINDS = {"python": "python=PATH", "env": "env=NAME=VALUE", "ref": "ref=REF"}
"""In what a side can differ, each as it is written."""


@dataclass(frozen=True, slots=True)
class SideOptions:
    """One side of an A/B, as its options say."""

    side: Side
    """Without plugins and the code of its reference. Where an interpreter was given, the code installed there is measured."""
    reference: str | None

    @classmethod
    def of(cls, name: str, said: Sequence[str]) -> Self:
        """Read what the option of a side says. Raises UsageError for what makes no sense."""
        single: dict[str, str] = {}
        environ: dict[str, str] = {}
        for words in said:
            kind, equals, value = words.partition("=")
            if kind not in _KINDS or not equals or not value:
                raise UsageError(f"--{name} {words}: write {', '.join(_KINDS.values())}")
            if kind == "env":
                variable, text = _variable(f"--{name} {words}", value)
                known = variable in environ
                environ[variable] = text
            else:
                variable, known = kind, kind in single
                single[kind] = value
            if known:
                raise UsageError(f"--{name} {words}: {variable} is given twice; give it once")
        python = single.get("python")
        found = Interpreter().python if python is None else shutil.which(python)
        if found is None:
            raise UsageError(f"--{name} python={python}: there is no such program; give the path of a Python, such as .venv/bin/python")
        # Absolute, and not resolved: a virtual environment's is a link to another one's.
        interpreter = Interpreter(str(Path(found).absolute()), environ, imports_from_folder=python is None)
        return cls(Side(name=name, interpreter=interpreter), single.get("ref"))


def _variable(option: str, text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not re.fullmatch(r"[A-Za-z_]\w*", key) or "\0" in value:
        raise UsageError(f"{option}: write env=NAME=VALUE")
    if key in own_variables(threads=1, seed=0):
        raise UsageError(f"{option}: dlbench sets {key} itself, alike on both sides; leave it out")
    # The loader would only print that it goes on without it.
    if key == "LD_PRELOAD" and (absent := [each for each in re.split("[ :]+", value) if "/" in each and not Path(each).is_file()]):
        raise UsageError(f"{option}: there is no file {absent[0]}; give the path of a library that is there")
    return key, value


def _sides(a: Sequence[str], b: Sequence[str], same: bool) -> tuple[SideOptions, SideOptions]:
    if same and (a or b):
        raise UsageError("--same measures the same code on both sides; give it without an option of a or b")
    if not (same or a or b):
        apart = ", ".join(f"--b {each}" for each in _KINDS.values())
        raise UsageError(f"a and b are the same code here; say in what b differs: {apart} (--same measures the same code twice)")
    return SideOptions.of("a", a), SideOptions.of("b", b)


def _option_of(name: str) -> Decorator:
    return click.option(
        f"--{name}",
        multiple=True,
        metavar="KIND=VALUE",
        help=f"In what side {name} differs: python=PATH, an interpreter with torch; env=NAME=VALUE; ref=REF, a git reference of the "
        "checkout that a --plugin FILE lies in. Repeatable.",
    )


_SAME = click.option("--same", is_flag=True, help="Measure the same code on both sides: what differs then is noise.")
side_options = option_group("sides", _sides, _option_of("a"), _option_of("b"), _SAME)
"""Adds --a, --b and --same; the command gets ``sides``, the `SideOptions` of each."""


@dataclass(frozen=True, slots=True)
class ABSide:
    """A side of an A/B with its code in place and its worker running."""

    opened: OpenSide
    folder: Path | None
    """Checkout of its git reference; None without one."""
    revision: Mapping[str, str]
    """Its git reference and the commit, for the header; empty without one."""

    def plan(self, suites: tuple[Suite, ...], other: Self, planning: PlanOptions) -> Plan:
        """Plan the suites, without the benches that only the other side's code has."""
        with _named(self.opened.side, self.folder):
            return plan_suites(_without_unknown(suites, self.opened.hello, other.opened.hello), self.opened.hello, planning)

    def to_json(self, plan: Plan) -> Json:
        """Return the side's part of the header: no paths, but a hash to tell interpreters of the same name apart."""
        from dlbench.harness.probe.fingerprint import fingerprint, without_secrets

        interpreter = self.opened.side.interpreter
        where = fingerprint(plan.hello, plan.devices, environ=interpreter.environment())
        return {
            "side": {
                "python": Path(interpreter.python).name,
                "python_key": hashlib.sha256(interpreter.python.encode()).hexdigest()[:8],
                "environ": without_secrets(interpreter.environ),
                **self.revision,
            },
            "workloads": plan.declarations(),
            **{block: where[block] for block in ("machine_key", "stack_key", "identity", "stack")},
        }


@contextmanager
def open_ab_side(
    options: SideOptions, plugins: tuple[str, ...], suites: Sequence[Suite], settings: RunSettings, interruption: Interruption
) -> Iterator[ABSide]:
    """Put the code of a side in place and start its worker, as `open_side` does; an error names the side."""
    with _code_in_place(options, plugins, interruption) as (side, folder, revision), ExitStack() as stack:
        with _named(side, folder):
            opened = stack.enter_context(open_side(side, suites, settings, interruption))
        yield ABSide(opened, folder, revision)


@contextmanager
def _named(side: Side, folder: Path | None) -> Iterator[None]:
    """Add the side's name to errors raised inside, and remove the folder of its code from them."""
    try:
        yield
    except DlbenchError as error:
        text = str(error).replace(f"{folder}{os.sep}", "") if folder else str(error)
        raise type(error)(f"side {side.name}: {text}") from error


@contextmanager
def _code_in_place(
    options: SideOptions, plugins: tuple[str, ...], interruption: Interruption
) -> Iterator[tuple[Side, Path | None, dict[str, str]]]:
    """Write the side's git reference, if any, into a temporary folder, which is removed even at an abrupt exit.

    Raises UsageError where no plugin lies in a checkout, or the reference does not have it.
    """
    side = replace(options.side, plugins=plugins)
    if options.reference is None:
        yield side, None, {}
        return
    option = f"--{side.name} ref={options.reference}"
    files = {plugin: Path(plugin).resolve() for plugin in plugins if plugin.endswith(".py")}
    root = next(filter(None, map(folders.root_of, files.values())), None)
    if root is None:
        raise UsageError(f"{option}: no --plugin FILE lies in a git checkout, so there is nothing to take this reference of")
    with (
        TemporaryDirectory(prefix="dlbench-", ignore_cleanup_errors=True) as temporary,
        interruption.before_exit(lambda: shutil.rmtree(temporary, ignore_errors=True)),
    ):
        folder = Path(temporary).resolve() / "checkout"
        folder.mkdir()
        try:
            commit = folders.write_reference(root, options.reference, folder)
        except UsageError as error:
            raise UsageError(f"{option}: {error}") from error
        for plugin, path in files.items():
            if path.is_relative_to(root):
                files[plugin] = folder / path.relative_to(root)
                if not files[plugin].is_file():
                    raise UsageError(f"{option}: this reference has no {path.relative_to(root)}")
        here = Path.cwd()
        at = folder / here.relative_to(root) if here.is_relative_to(root) else folder
        interpreter = replace(side.interpreter, folder=at if at.is_dir() else folder, imports_from_folder=True)
        written = tuple(str(files.get(plugin, plugin)) for plugin in plugins)
        side = replace(side, plugins=written, interpreter=interpreter, not_from=root)
        yield side, folder, {"ref": options.reference, "commit": commit}


def _without_unknown(suites: tuple[Suite, ...], own: Json, other: Json) -> tuple[Suite, ...]:
    """Leave out benches that need a workload, parameter or kind of device which only the other side's code has.

    Their cases then stand on the other side alone, which is a verdict and no mistake; where nothing would be left, nothing is left out.
    """
    here, there = ((signatures_of(side), side["kinds"]) for side in (own, other))

    def fits(suite: Suite, bench: Bench, code: tuple[Signatures, Sequence[str]]) -> bool:
        try:
            check([replace(suite, benches=(bench,))], *code)
        except SuiteError:
            return False
        return True

    left = []
    for suite in suites:
        benches = (bench for bench in suite.benches if fits(suite, bench, here) or not fits(suite, bench, there))
        left.append(replace(suite, benches=tuple(benches)))
    return tuple(left) if any(suite.benches for suite in left) else suites
