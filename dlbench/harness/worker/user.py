"""Networks and data of users, registered by the files that define them."""

import hashlib
import inspect
import sysconfig
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from dlbench.core.errors import UsageError, nearest
from dlbench.core.model import OWN, Params

Kind = Literal["network", "data", "optimizer"]
"""Kinds of names of users that a parameter may take."""


@dataclass(frozen=True)
class UserDefined:
    """Annotation of a parameter that takes names of users, too: of their networks, data or optimizers."""

    kind: Kind


@dataclass(frozen=True, slots=True)
class Tokens:
    """Inputs of token ids: a (batch, ``seq``) tensor of integers below ``vocabulary``."""

    seq: int
    vocabulary: int


@dataclass(frozen=True, slots=True)
class Network:
    """A user's network: the function that builds it, and its inputs, loss and optimizer.

    Its inputs are a shape without the batch, tokens, or what ``example`` returns for a batch: a tensor, a tuple of the network's arguments,
    or a dictionary of them by name. With ``classes`` and no ``loss`` it is trained by cross-entropy of its output, (batch, classes), and
    random classes. A ``loss`` gets the output and, if it has a second argument, the targets: classes, or the second value that ``example``
    returns.
    """

    name: str
    build: Callable[[], Any]
    inputs: tuple[int, ...] | Tokens | None = None
    classes: int | None = None
    example: Callable[[int], Any] | None = None
    loss: Callable[..., Any] | None = None
    optimizer: Callable[[Any], Any] | None = None
    """Gets an iterable of weights, and returns an optimizer of torch."""

    @property
    def takes_targets(self) -> bool:
        """Whether training needs targets: for the second argument of its loss, or else classes."""
        return self.classes is not None if self.loss is None else _arguments(self.loss) > 1


@dataclass(frozen=True, slots=True)
class Data:
    """A user's batches: ``build`` gets ``batch`` and ``workers``, if it has such parameters, and returns an iterable."""

    name: str
    build: Callable[..., Any]

    @property
    def parameters(self) -> tuple[str, ...]:
        """Return which of ``batch`` and ``workers`` it takes."""
        return tuple(inspect.signature(self.build).parameters)


_networks: dict[str, Network] = {}
_data: dict[str, Data] = {}
_taken = {OWN}
"""dlbench's own names, which users can't give to theirs."""


def network(
    inputs: Sequence[int] | Tokens | None = None,
    *,
    classes: int | None = None,
    example: Callable[[int], Any] | None = None,
    loss: Callable[..., Any] | None = None,
    optimizer: Callable[[Any], Any] | None = None,
    **others: object,
) -> Callable[[Callable[[], Any]], Callable[[], Any]]:
    """Register a function without parameters that returns an `nn.Module` as a network of the function's name: ``--set model=NAME``.

    ``inputs`` is the shape of one input without the batch, or `Tokens`; instead of it, ``example`` is a function from a batch size to
    inputs, or to (inputs, targets) if the loss takes targets. ``classes`` is the number of a classifier's classes; without it a training
    step needs a ``loss``, or a network whose output is a mapping with the key ``loss``. ``optimizer`` is a function from weights to an
    optimizer that dlbench does not have.
    Raises UsageError for arguments that don't go together, and for a name that is taken.
    """
    for name in others:  # these are misspelt arguments; Python's own error would not tell the right name
        raise UsageError(f"@dlbench.network has no {name}={nearest(name, ['inputs', 'classes', 'example', 'loss', 'optimizer'])}")
    if callable(inputs):  # a decorator that is written without brackets gets the decorated function
        raise UsageError("@dlbench.network needs to know the inputs; write @dlbench.network(inputs=(3, 224, 224), classes=1000)")
    shape = tuple(inputs) if isinstance(inputs, list | tuple) else inputs

    def register(build: Callable[[], Any]) -> Callable[[], Any]:
        name = _name_of(build, "network")
        where = f"network '{name}'"
        for argument, function in (("loss", loss), ("optimizer", optimizer), ("example", example)):
            if function and not callable(function):
                raise UsageError(f"{where}: {argument} must be a function, not {function!r}")
        if mistake := _mistake_in_inputs(shape, classes, example):
            raise UsageError(f"{where}: {mistake}")
        if _arguments(build):
            raise UsageError(f"{where}: dlbench calls it without arguments; give its parameters defaults")
        defined = Network(name, build, shape, classes, example, loss, optimizer)  # type: ignore[arg-type]  # `_mistake_in_inputs` has checked
        if defined.takes_targets and not (classes or example):
            raise UsageError(f"{where}: its loss takes targets; give classes, or an example that returns (inputs, targets)")
        return _register(defined)

    return register


def data(make: Callable[..., Any]) -> Callable[..., Any]:
    """Register a function that returns batches, such as a `DataLoader`, as a source of the function's name: ``--set source=NAME``.

    It may take ``batch`` and ``workers``. Each batch is what a step takes: inputs and targets, or inputs alone. Raises UsageError for other
    parameters, and for a name that is taken.
    """
    name = _name_of(make, "data")
    if other := [each for each in inspect.signature(make).parameters if each not in ("batch", "workers")]:
        raise UsageError(f"data '{name}': its parameters can be batch and workers, not '{other[0]}'")
    return _register(Data(name, make))


def find_network(name: str) -> Network | None:
    """Return the user's network of a name; None for dlbench's own."""
    return _networks.get(name)


def find_data(name: str) -> Data | None:
    """Return the user's data of a name; None for dlbench's own sources."""
    return _data.get(name)


def names(kind: Kind) -> tuple[str, ...]:
    """Return the names of this kind that users have defined by now, in that order."""
    if kind == "optimizer":
        return (OWN,) if any(each.optimizer for each in _networks.values()) else ()
    return tuple(_networks if kind == "network" else _data)


def place_of(error: BaseException, params: Params) -> str:
    """Return the place in the user's own code that raised an error: ``mine.py, line 12``.

    If the user's code did not raise it, return where a network or data of the user is defined: one whose name is in the error, or else one
    whose name is in the ``params`` of the case. Return an empty text if there is none.
    """
    defined = _defined()
    if not defined:  # only files with networks or data count as the user's own code here
        return ""
    cause: BaseException | None = error
    while cause:  # torch may have raised its own error because of an error in the user's code
        users_frames = [frame for frame in traceback.extract_tb(cause.__traceback__) if _is_own(frame.filename)]
        if users_frames:
            return f"{Path(users_frames[-1].filename).name}, line {users_frames[-1].lineno}"
        cause = cause.__cause__ or cause.__context__
    named_by_error = [each for each in defined if f"'{each.name}'" in str(error)]
    named = named_by_error or [each for each in defined if each.name in params.values()]
    code = getattr(inspect.unwrap(named[0].build), "__code__", None) if named else None  # a function of C has no code
    return f"{Path(code.co_filename).name}, line {code.co_firstlineno}" if code else ""


def _is_own(file: str) -> bool:
    """Return whether a file belongs to the user, and not to Python, dlbench or an installed package."""
    path = Path(file)
    libraries = (sysconfig.get_path("stdlib"), Path(__file__).parents[2])
    is_installed = any(path.is_relative_to(each) for each in libraries) or {"site-packages", "dist-packages"} & {*path.parts}
    return not (is_installed or file.startswith("<"))


def reserve(taken: Sequence[str]) -> None:
    """Keep users from giving these names to theirs."""
    _taken.update(taken)


def sources() -> dict[str, dict[str, str]]:
    """Return for each of the users' networks and data the name and SHA-256 of the file that defines it."""
    return {each.name: _source(inspect.getsourcefile(inspect.unwrap(each.build)) or "") for each in _defined()}


def _defined() -> list[Network | Data]:
    return [*_networks.values(), *_data.values()]


@cache
def _source(path: str) -> dict[str, str]:
    return {"file": Path(path).name, "sha256": hashlib.sha256(Path(path).read_bytes()).hexdigest()}


def _name_of(function: Any, what: str) -> str:
    if inspect.isclass(function):
        below = f"write @dlbench.{what}(…) and below it def my_{what}(): return {function.__name__}()"
        raise UsageError(f"@dlbench.{what} stands above a function, and {function.__name__} is a class; {below}")
    if not inspect.isfunction(function):
        raise UsageError(f"@dlbench.{what} stands above a function, not {type(function).__name__}")
    return function.__name__


def _register(defined: Network | Data) -> Callable[..., Any]:
    of_kind: dict[str, Any] = _networks if isinstance(defined, Network) else _data
    kind, kinds = ("network", "networks") if of_kind is _networks else ("data", "data")
    if defined.name in _taken:
        raise UsageError(f"{kind} '{defined.name}': the name is dlbench's own; give the function another")
    known = of_kind.get(defined.name)
    refuse_second(kinds, known and known.build, defined.build)
    of_kind[defined.name] = defined
    return defined.build


def refuse_second(kinds: str, known: Callable[..., Any] | None, function: Callable[..., Any]) -> None:
    """Raise UsageError if the known function of the same name is in another module."""
    if known and known.__module__ != function.__module__:
        raise UsageError(f"two {kinds} are called '{function.__name__}': in {known.__module__} and {function.__module__}")


def _arguments(function: Callable[..., Any]) -> int:
    """Return how many arguments without defaults a function has; 2 with ``*args``, as torch's own losses may have."""
    parameters = inspect.signature(function).parameters.values()
    if any(each.kind is each.VAR_POSITIONAL for each in parameters):
        return 2
    return sum(each.default is each.empty and each.kind is not each.VAR_KEYWORD for each in parameters)


def _mistake_in_inputs(shape: object, classes: object, example: object) -> str | None:
    """Return a sentence about a mistake in the inputs of a network; None if there is none."""
    if (shape is None) == (example is None):
        return "give either inputs=, a shape without the batch such as (3, 224, 224) or Tokens, or example=, a function of the batch"
    sizes: object = (shape.seq, shape.vocabulary) if isinstance(shape, Tokens) else shape
    is_shape = isinstance(sizes, tuple) and sizes and all(type(each) is int and each > 0 for each in sizes)
    if shape is not None and not is_shape:
        return f"inputs must be a shape of positive integers, such as (3, 224, 224), or dlbench.Tokens(seq=…, vocabulary=…), not {shape!r}"
    if classes is not None and (type(classes) is not int or classes < 2):  # one class is no choice
        return f"classes must be an integer of at least 2, not {classes!r}"
    return None
