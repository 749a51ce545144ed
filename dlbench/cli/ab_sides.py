"""The options of a side of an A/B, and the side that they come to: its interpreter, its environment, and its state of the user's code."""

import hashlib
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self, TypeVar

import click

from dlbench.core.errors import DlbenchError, SuiteError, UsageError
from dlbench.core.model import Signature
from dlbench.core.records import signature_from_json
from dlbench.harness import checkout
from dlbench.harness.host import Interpreter, own_variables
from dlbench.harness.interruption import Interruption
from dlbench.harness.planning import check
from dlbench.harness.suite import Suite

NAMES = ("a", "b")
Command = TypeVar("Command", bound=Callable[..., Any])


def side_options(command: Command) -> Command:
    """Add --a-python, --a-env and --a-ref, and the same of b; the command gets a_python, a_env, a_ref, b_python, ….."""
    for name in reversed(NAMES):
        for decorator in (
            click.option(
                f"--{name}-ref", metavar="REF", help=f"Of side {name}: git reference of the checkout that a --plugin FILE lies in."
            ),
            click.option(f"--{name}-env", multiple=True, metavar="NAME=VALUE", help=f"Of side {name}: environment variable. Repeatable."),
            click.option(
                f"--{name}-python", metavar="PYTHON", help=f"Of side {name}: interpreter; torch is all it needs (default: this one)."
            ),
        ):
            command = decorator(command)
    return command


@dataclass(frozen=True, slots=True)
class Asked:
    """What the options say of one side."""

    name: str
    python: str
    """Absolute, and not resolved: a virtual environment's is a link to another one's."""
    own_python: bool
    """Whether it was asked for: then what is installed there is measured, and not what happens to lie in the current folder."""
    environ: Mapping[str, str]
    reference: str | None

    @classmethod
    def of(cls, name: str, python: str | None, variables: Sequence[str], reference: str | None) -> Self:
        """Read the options. Raises UsageError for one that makes no sense."""
        found = Interpreter().python if python is None else shutil.which(python)
        if found is None:
            raise UsageError(f"--{name}-python {python}: there is no such program; give the path of a Python, such as .venv/bin/python")
        environ: dict[str, str] = {}
        for variable in variables:
            key, equals, value = variable.partition("=")
            if not equals or not re.fullmatch(r"[A-Za-z_]\w*", key) or "\0" in value:
                raise UsageError(f"--{name}-env {variable}: write NAME=VALUE")
            if key in own_variables(threads=1, seed=0):
                raise UsageError(f"--{name}-env {variable}: dlbench sets {key} itself, alike on both sides; leave it out")
            if key in environ:
                raise UsageError(f"--{name}-env {variable}: {key} is given twice; give it once")
            environ[key] = value
        return cls(name, str(Path(found).absolute()), python is not None, environ, reference)

    def told(self, commit: str | None) -> dict[str, Any]:
        """Return what the result file says of the side: no paths, but a hash that tells one interpreter from another of the same name."""
        from dlbench.harness.environment import without_secrets

        key = hashlib.sha256(self.python.encode()).hexdigest()[:8]
        told = {"python": Path(self.python).name, "python_key": key, "environ": without_secrets(self.environ)}
        return told if self.reference is None else {**told, "ref": self.reference, "commit": commit}


@dataclass(frozen=True, slots=True)
class Prepared:
    """A side with its code in place."""

    asked: Asked
    interpreter: Interpreter
    plugins: tuple[str, ...]
    folder: Path | None = None
    """Where the reference's files are; None without one, here and below."""
    root: Path | None = None
    """The checkout that they are of."""
    commit: str | None = None

    @contextmanager
    def named(self) -> Iterator[None]:
        """Say of an error inside which side it is of, and nothing of the folder that its code is in."""
        try:
            yield
        except DlbenchError as error:
            text = str(error).replace(f"{self.folder}{os.sep}", "") if self.folder else str(error)
            raise type(error)(f"side {self.asked.name}: {text}") from error


@contextmanager
def prepared(asked: Asked, plugins: Sequence[str], interruption: Interruption) -> Iterator[Prepared]:
    """Write the side's reference, if it has one, into a folder that is gone afterwards, also when the program is made to end at once.

    Raises UsageError where no plugin lies in a checkout, or the reference does not have it.
    """
    if asked.reference is None:
        yield Prepared(asked, Interpreter(asked.python, asked.environ, imports_from_folder=not asked.own_python), tuple(plugins))
        return
    option = f"--{asked.name}-ref {asked.reference}"
    files = {plugin: Path(plugin).resolve() for plugin in plugins if plugin.endswith(".py")}
    roots = (checkout.root_of(path) for path in files.values())
    root = next((root for root in roots if root), None)
    if root is None:
        raise UsageError(f"{option}: no --plugin FILE lies in a git checkout, so there is nothing to take this reference of")
    with (
        TemporaryDirectory(prefix="dlbench-", ignore_cleanup_errors=True) as temporary,
        interruption.before_exit(lambda: shutil.rmtree(temporary, ignore_errors=True)),
    ):
        folder = Path(temporary).resolve() / "checkout"
        folder.mkdir()
        try:
            commit = checkout.write_reference(root, asked.reference, folder)
        except UsageError as error:
            raise UsageError(f"{option}: {error}") from error
        for plugin, path in files.items():
            if path.is_relative_to(root) and not (folder / path.relative_to(root)).is_file():
                raise UsageError(f"{option}: this reference has no {path.relative_to(root)}")
            files[plugin] = folder / path.relative_to(root) if path.is_relative_to(root) else path
        here = Path.cwd()
        at = folder / here.relative_to(root) if here.is_relative_to(root) else folder
        interpreter = Interpreter(asked.python, asked.environ, at if at.is_dir() else folder)
        yield Prepared(asked, interpreter, tuple(str(files.get(plugin, plugin)) for plugin in plugins), folder, root, commit)


def without_what_only_the_other_has(suites: tuple[Suite, ...], own: Mapping[str, Any], other: Mapping[str, Any]) -> tuple[Suite, ...]:
    """Leave out the benches whose workload, or a parameter of it, this side's state of the code lacks and the other's has.

    Their cases then stand on the other side alone, which is a verdict and no mistake; where nothing would be left, nothing is left out.
    """
    here, there = ({each["name"]: signature_from_json(each) for each in answer["signatures"]} for answer in (own, other))

    def fits(suite: Suite, number: int, signatures: Mapping[str, Signature]) -> bool:
        try:
            check([replace(suite, benches=suite.benches[number : number + 1])], signatures, own["kinds"])
        except SuiteError:
            return False
        return True

    def kept(suite: Suite) -> Suite:
        numbers = [number for number in range(len(suite.benches)) if fits(suite, number, here) or not fits(suite, number, there)]
        return replace(suite, benches=tuple(suite.benches[number] for number in numbers))

    left = tuple(map(kept, suites))
    return left if any(suite.benches for suite in left) else suites
