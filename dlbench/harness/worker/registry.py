"""Registered workloads. A function's signature is the schema of its parameters and its docstring their help."""

import enum
import importlib
import importlib.util
import inspect
import itertools
import pkgutil
import sys
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from importlib.metadata import entry_points
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, overload

from dlbench.core.declarations import Aim, Ceiling, Declaration, Learning, Parallel, Search, Supply, Sweep, Value, mistakes
from dlbench.core.errors import UsageError, nearest
from dlbench.core.model import Parameter, ParamValue, Signature, Work

ENTRY_POINT_GROUP = "dlbench.workloads"
"""Of installed packages: an entry point for each workload, of the workload's name."""


@dataclass(frozen=True)
class Least:
    """Annotation: the least valid number (exclusive where the parameter is a float)."""

    value: float


Size = Annotated[int, Least(1)]
"""A positive integer."""
Duration = Annotated[float, Least(0)]
"""Seconds, more than zero."""
Layout = Literal["nchw", "channels_last"]
"""Order of an image batch in memory."""
Cache = Literal["hot", "cold"]
"""Whether operands may lie in the last cache from the call before, or were driven out of it."""

WorkloadFunction = Callable[..., Work]


@dataclass(frozen=True, slots=True)
class Workload:
    """A registered function and the signature read from it."""

    function: WorkloadFunction
    signature: Signature

    def resident(self, params: Mapping[str, ParamValue]) -> dict[str, ParamValue]:
        """Return the parameters of the same case with its operands on the device from the start: no copies within its calls."""
        sweep = self.signature.declared.sweep
        own = [each for each in self.signature.parameters if sweep and each.name == sweep.copies and each.name in params]
        return {**params, **{each.name: each.default for each in own if each.default is not None}}

    def set_up(self, device: Any, params: Mapping[str, ParamValue]) -> Work:
        """Call the function: allocate, initialise, and return what is to be timed. Raises TypeError if that is no Work."""
        hints = typing.get_type_hints(self.function)
        enums = {name: hint for name, hint in hints.items() if isinstance(hint, type) and issubclass(hint, enum.Enum)}
        # A suite has an enum's member by its value; the function gets the member.
        work = self.function(device, **{name: enums[name](value) if name in enums else value for name, value in params.items()})
        if not isinstance(work, Work):
            raise TypeError(f"workload '{self.signature.name}' returned {type(work).__name__}; it has to return a dlbench.Work")
        return work


_workloads: dict[str, Workload] = {}


@overload
def workload(function: WorkloadFunction, /) -> WorkloadFunction: ...


@overload
def workload(
    *,
    tags: tuple[str, ...] = ...,
    values: tuple[Value, ...] = ...,
    parallel: Parallel = ...,
    ceiling: Ceiling | None = ...,
    sweep: Sweep | None = ...,
    feeding: tuple[str, ...] = ...,
    switches: Mapping[str, str] = ...,
    search: Search | None = ...,
    learning: Learning | None = ...,
    scratch: str | None = ...,
    supply: Supply | None = ...,
) -> Callable[[WorkloadFunction], WorkloadFunction]: ...


def workload(function: WorkloadFunction | None = None, /, **declared: Any) -> Any:
    """Register a function ``name(device, *, parameters…) -> Work`` under its own name; with nothing to declare, without brackets.

    A tag ``training`` says that it uses an optimizer, which is then imported once a round and not by each of its cases. ``values`` are
    all that it reports beside its time; ``parallel`` is for one with a parameter ``ranks``; ``ceiling`` for one whose rows say what the
    machine can do at most; ``sweep`` for one that is looked at over its size; ``feeding`` names the parameters that only say how a step
    gets its batch; ``switches`` those that only say how the same step is executed, each with its plain default; ``search`` is for one
    whose case looks for the parameters that it leaves open; ``learning`` for one that trains at a batch and says what that came to;
    ``scratch`` for one that writes files; ``supply`` for one that reads samples such as training steps consume.

    Raises UsageError if the name is taken by another function, a type in the signature says too little, or a declaration makes no sense.
    """
    if function is not None and not callable(function):
        raise UsageError(f"@workload({function!r}): what it declares is given by name, such as tags=('training',)")
    usual = {each.name: getattr(Declaration(), each.name) for each in fields(Declaration)}
    for name, given in declared.items():
        if name not in usual:
            raise UsageError(f"@workload declares no '{name}'{nearest(name, list(usual))}")
        kind = type(usual[name])
        if usual[name] is not None and not isinstance(given, _AS_GOOD.get(kind, kind)):
            raise UsageError(f"@workload: {name} is a {kind.__name__}, not {given!r}; leave it out where there is nothing to declare")
    declaration = Declaration(**declared)
    if function is not None:
        return _registered(function, declaration)
    return lambda decorated: _registered(decorated, declaration)


_AS_GOOD: dict[type, Any] = {tuple: (tuple, list), dict: Mapping}
"""What may stand for a kind."""


def _registered(function: WorkloadFunction, declared: Declaration) -> WorkloadFunction:
    """Register a function with its declaration, and return it. Raises UsageError as `workload` does."""
    known = _workloads.get(function.__name__)
    if known and known.function.__module__ != function.__module__:
        raise UsageError(f"two workloads are called '{function.__name__}': in {known.function.__module__} and {function.__module__}")
    about = (inspect.getdoc(function) or "").partition("\n")[0]
    signature = Signature(function.__name__, about, tuple(_parameters(function)), declared)
    for wrong in itertools.chain(mistakes(declared.values), _misfits(signature)):  # the latter only of what is well-formed
        raise UsageError(f"workload '{function.__name__}', {wrong}")
    _workloads[function.__name__] = Workload(function, signature)
    return function


def get(name: str) -> Workload:
    """Return the workload of that name, importing the installed plugin that offers it if need be."""
    if name not in _workloads and (offered := tuple(entry_points(group=ENTRY_POINT_GROUP, name=name))):
        offered[-1].load()
    if name not in _workloads:
        raise UsageError(f"no workload is called '{name}'{nearest(name, sorted(_workloads))}")
    return _workloads[name]


def all_workloads() -> dict[str, Workload]:
    """Return every workload registered by now."""
    return dict(_workloads)


def load_builtins() -> None:
    """Import dlbench's own workloads: every module in their folder and below it."""
    for each in pkgutil.walk_packages(importlib.import_module("dlbench.workloads").__path__, "dlbench.workloads."):
        importlib.import_module(each.name)


def load_plugin(plugin: str) -> None:
    """Import a module, or a file ending in ``.py``, that registers workloads. Raises UsageError with the reason if it does not import."""
    try:
        if not plugin.endswith(".py"):
            if not all(part.isidentifier() for part in plugin.split(".")):
                raise UsageError(f"plugin '{plugin}' is neither the name of a module nor a path that ends in .py")
            importlib.import_module(plugin)
            return
        path = Path(plugin).resolve()
        spec = importlib.util.spec_from_file_location(path.stem, path)
        if spec is None or spec.loader is None or not path.is_file():
            raise UsageError(f"there is no plugin file {plugin}")
        module = importlib.util.module_from_spec(spec)
        sys.modules[path.stem] = module
        spec.loader.exec_module(module)
    except UsageError:
        raise
    except Exception as error:  # whatever a stranger's module raises is a sentence about that module
        raise UsageError(f"plugin '{plugin}' does not import: {type(error).__name__}: {error}") from error


def refuse_imports_from(folder: str | None) -> None:
    """Raise UsageError if a module of the user's was imported from there, as another state of that folder is to be measured."""
    if folder is None:
        return
    own = (sys.prefix, sys.base_prefix)  # an environment may lie in the folder, and is no part of its state
    for name, module in list(sys.modules.items()):
        path = Path(getattr(module, "__file__", None) or "/")
        if name.split(".")[0] != "dlbench" and path.is_relative_to(folder) and not any(map(path.is_relative_to, own)):
            raise UsageError(
                f"module '{name}' was imported from the checkout itself and not from the reference; "
                "give that side an environment whose PYTHONPATH leads to it, such as PYTHONPATH=src"
            )


def _misfits(signature: Signature) -> Iterator[str]:
    """Yield a sentence on each parameter, and text of one, that the signature has not."""
    parallel, valid = signature.declared.parallel, {each.name: each for each in signature.parameters}
    forms = (*parallel.independent, *parallel.all_reduce, *parallel.pipelines)
    ranks = () if parallel == Parallel() else ("ranks",)
    named: dict[str, Mapping[str, tuple[str, ...]]] = {f"value '{each.name}'": each.when for each in signature.declared.values}
    named["parallel"] = {"form": forms} if forms else {}
    named["supply"] = supply.when if (supply := signature.declared.supply) else {}
    for where, texts_of in named.items():
        plain = (*ranks, *filter(None, (parallel.collective, *parallel.spread, parallel.synchronise))) if where == "parallel" else ()
        for name in (*plain, *texts_of):
            if name not in valid:
                yield f"{where}: no parameter is called '{name}'{nearest(name, list(valid))}"
            elif name in texts_of and valid[name].kind != "text":
                texts = [each.name for each in signature.parameters if each.kind == "text"]
                yield f"{where}: parameter '{name}' is a {valid[name].kind} and no text{nearest(name, texts)}"
            elif choices := list(valid[name].choices):
                yield from (
                    f"{where}: {name} can't be '{each}'{nearest(each, choices)}" for each in texts_of.get(name, ()) if each not in choices
                )
    yield from _unlike_search(signature)
    declared, values = signature.declared, [each.name for each in signature.declared.values]
    learning = declared.learning
    for name in (learning.seconds, learning.accuracy, learning.diverged) if learning else ():
        if name not in values:
            yield f"learning: no value is called '{name}'{nearest(name, values)}"
    sweep, feeding, switches, scratch = declared.sweep, declared.feeding, declared.switches, declared.scratch
    of_sweep = (sweep.size, sweep.copies, *sweep.ways) if sweep else ()
    for where, names in (("sweep", of_sweep), ("feeding", feeding), ("switches", tuple(switches)), ("scratch", (scratch,))):
        yield from (f"{where}: no parameter is called '{name}'{nearest(name, list(valid))}" for name in names if name and name not in valid)
    for where, bases in (("sweep", sweep.ways if sweep else {}), ("switches", switches)):
        for name, base in bases.items():
            if name in valid and base not in (texts := list(valid[name].choices)):
                yield f"{where}: {name} can't be '{base}'{nearest(base, texts)}"
    if signature.declared.ceiling not in (None, *(ceilings := list(get_args(Ceiling)))):
        yield f"ceiling can't be '{signature.declared.ceiling}'{nearest(str(signature.declared.ceiling), ceilings)}"
    if parallel.scaling not in (None, *(scalings := ["weak", "strong"])):
        yield f"parallel: scaling can't be '{parallel.scaling}'{nearest(str(parallel.scaling), scalings)}"


def _unlike_search(signature: Signature) -> Iterator[str]:
    """Yield a sentence on each thing in the declaration of a search that the signature does not bear out."""
    search = signature.declared.search
    if search is None:
        return
    if search.aim not in get_args(Aim):
        yield f"search can't look for the '{search.aim}'{nearest(str(search.aim), list(get_args(Aim)))}"
    valid, values = {each.name: each for each in signature.parameters}, [each.name for each in signature.declared.values]
    for name in filter(None, (*search.over, search.limit)):
        if name not in valid:
            yield f"search: no parameter is called '{name}'{nearest(name, list(valid))}"
    yield from (f"search is not over '{name}'{nearest(name, list(search.over))}" for name in search.last if name not in search.over)
    for name in filter(valid.__contains__, search.over):
        if valid[name].required or valid[name].default is not None:
            yield f"search: parameter '{name}' can't be left open; write {name}: … | None = None"
        elif valid[name].kind != "integer" and (search.aim == "largest" or not valid[name].choices):
            yield f"search: parameter '{name}' has no values to try; annotate it with Size, or where the fastest is wanted a Literal"
    if not search.over or (search.aim == "largest" and len(search.over) != 1):
        yield f"search for the {search.aim} is over {'one parameter' if search.aim == 'largest' else 'one parameter at least'}"
    if search.aim == "largest" and search.value not in values:
        yield f"search: no value is called '{search.value}'{nearest(str(search.value), values)}"


def _parameters(function: WorkloadFunction) -> Iterator[Parameter]:
    hints = typing.get_type_hints(function, include_extras=True)
    device, *rest = inspect.signature(function).parameters.values()
    if device.kind is device.KEYWORD_ONLY:
        raise UsageError(f"workload '{function.__name__}': its first parameter, the device, stands before '*'")
    for each in rest:
        where = f"workload '{function.__name__}', parameter '{each.name}'"
        if each.kind is not each.KEYWORD_ONLY:
            raise UsageError(f"{where}: write it after '*', so that suites can name it")
        kind, choices, minimum = _meaning(hints.get(each.name), where)
        required = each.default is each.empty
        default = None if required else each.default
        yield Parameter(each.name, kind, required, default.value if isinstance(default, enum.Enum) else default, choices, minimum)


def _meaning(hint: Any, where: str) -> tuple[Literal["integer", "number", "text", "flag"], tuple[str, ...], float | None]:
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        hint = next(arg for arg in typing.get_args(hint) if arg is not type(None))
    minimum = None
    if typing.get_origin(hint) is Annotated:
        hint, *marks = typing.get_args(hint)
        minimum = next((mark.value for mark in marks if isinstance(mark, Least)), None)
    if typing.get_origin(hint) is Literal:
        return "text", tuple(map(str, typing.get_args(hint))), None
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return "text", tuple(str(member.value) for member in hint), None
    for kind, name in ((bool, "flag"), (int, "integer"), (float, "number"), (str, "text")):
        if hint is kind:
            return name, (), minimum  # type: ignore[return-value]  # the four names above are the Literal's
    raise UsageError(f"{where}: annotate it with int, float, str, bool, a Literal or an Enum, not {hint!r}")
