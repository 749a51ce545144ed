"""Registered workloads. A function's signature is the schema of its parameters and its docstring their help."""

import enum
import importlib
import importlib.util
import inspect
import pkgutil
import sys
import traceback
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, overload

from dlbench.core.declarations import Ceiling, Declaration, Parallel, Value
from dlbench.core.errors import UsageError, nearest
from dlbench.core.model import CPU_AXES, Parameter, Params, ParamValue, Signature, Work
from dlbench.harness.worker.signatures import find_misfits, read_parameters, unwrap
from dlbench.harness.worker.user import Kind, names, refuse_second

ENTRY_POINT_GROUP = "dlbench.workloads"
"""Group of entry points of installed packages; an entry point has the name of its workload."""


WorkloadFunction = Callable[..., Work]


@dataclass(frozen=True, slots=True)
class Workload:
    """A registered function and the signature read from it."""

    function: WorkloadFunction
    _signature: Signature
    takes: Mapping[str, Kind]
    """Parameters that take names of users, with the kind of these."""

    @property
    def signature(self) -> Signature:
        """The signature, whose choices include the names that users have defined by now."""
        parameters: list[Parameter] = []
        for each in self._signature.parameters:
            if kind := self.takes.get(each.name):
                defined = names(kind)
                each = replace(each, choices=(*each.choices, *defined), user=defined)
            parameters.append(each)
        return replace(self._signature, parameters=tuple(parameters))

    def resident(self, params: Params) -> dict[str, ParamValue]:
        """Return the parameters of the same case with its data on the device from the start, so that its calls copy nothing."""
        roles = self._signature.declared.parameters
        plain: dict[str, ParamValue] = {name: text for name, own in roles.items() if (text := own.get("copies") or own.get("feeding"))}
        if not plain or any(params.get(name) in names(kind) for name, kind in self.takes.items() if name in plain):
            return dict(params)  # data of a user's own has no plain form
        # Other parameters of feeding return to their defaults.
        for each in self._signature.parameters:
            if "feeding" in roles.get(each.name, {}) and each.default is not None:
                plain.setdefault(each.name, each.default)
        return {**params, **{name: value for name, value in plain.items() if name in params}}

    def set_up(self, device: Any, params: Params) -> Work:
        """Call the function, which allocates and initialises, and return its work to be timed.

        Raises TypeError if it returns no Work. With ``instances`` among the parameters several processes do the work at once; raises
        ValueError if the work is an experiment that can't be done so.
        """
        hints = typing.get_type_hints(self.function)
        arguments: dict[str, Any] = {}
        for name, value in params.items():
            if name in hints:  # threads and instances are parameters of every workload, and of few functions
                hint, _ = unwrap(hints[name])
                # A suite names a member of an enum by its value.
                arguments[name] = hint(value) if isinstance(hint, enum.EnumType) else value
        work = self.function(device, **arguments)
        if not isinstance(work, Work):
            raise TypeError(f"workload '{self._signature.name}' returned {type(work).__name__}; it has to return a dlbench.Work")
        if "instances" in params and work.observe and not work.joins_instances:
            raise ValueError(f"instances repeat a call, and {self._signature.name} is an experiment; leave them out")
        return work


_workloads: dict[str, Workload] = {}


@overload
def workload(function: WorkloadFunction, /) -> WorkloadFunction: ...


@overload
def workload(
    *,
    tags: tuple[str, ...] = ...,
    values: tuple[Value, ...] = ...,
    ceiling: Ceiling | None = ...,
    parallel: Parallel = ...,
    writes_files: bool = ...,
) -> Callable[[WorkloadFunction], WorkloadFunction]: ...


def workload(function: WorkloadFunction | None = None, /, **declared: Any) -> Any:
    """Register a function ``name(device, *, parameters…) -> Work`` under its own name. Without declarations it needs no brackets.

    The tag ``training`` says that it uses an optimizer, which is then imported once a round and not by each of its cases. ``values`` are
    all that it reports except its time. Declare ``ceiling`` if its rows are limits of the machine, ``parallel`` if it has a parameter
    ``ranks``, and ``writes_files`` if it writes into `scratch_folder`. Roles of parameters are annotations of these.

    Raises UsageError if the name is taken by another function, a type in the signature says too little, or a declaration makes no sense.
    """
    if function is None:
        return lambda decorated: _register(decorated, declared)
    if not callable(function):
        raise UsageError(f"@workload({function!r}): what it declares is given by name, such as tags=('training',)")
    return _register(function, declared)


def _register(function: WorkloadFunction, declarations: Mapping[str, Any]) -> WorkloadFunction:
    """Register a function with the declarations of its ``@workload``, and return it. Raises UsageError as `workload` does."""
    earlier = _workloads.get(function.__name__)
    refuse_second("workloads", earlier.function if earlier else None, function)
    # `@workload` can't give the field `parameters`, as it is read from annotations of the function.
    valid_names = [each.name for each in fields(Declaration) if each.name != "parameters"]
    for name in declarations:
        if name not in valid_names:
            raise UsageError(f"workload '{function.__name__}': @workload declares no '{name}'{nearest(name, valid_names)}")
    first_line = (inspect.getdoc(function) or "").partition("\n")[0]
    parameters, roles, takes = read_parameters(function)
    own_names = [each.name for each in parameters]
    if "ranks" not in own_names:  # a workload of one process takes threads and instances, whether its function has them or not
        parameters += [Parameter(name, "integer", required=False, minimum=1) for name in CPU_AXES if name not in own_names]
    declared = Declaration(parameters=roles, **declarations)
    signature = Signature(function.__name__, first_line, tuple(parameters), declared)
    # A mistake in a declaration itself comes first, then one that the parameters show.
    mistake = declared.mistake() or next(find_misfits(signature), None)
    if mistake:
        raise UsageError(f"workload '{function.__name__}', {mistake}")
    _workloads[function.__name__] = Workload(function, signature, takes)
    return function


def get(name: str) -> Workload:
    """Return the workload of that name, after importing the installed plugin that has it if need be. Raises UsageError if none has."""
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
    """Import a Python file that registers workloads, networks, data or devices, unless this process has imported it.

    Raises UsageError if there is no such file, or if the import fails: then with the error and the line of the file.
    """
    path = Path(plugin).resolve()
    if getattr(sys.modules.get(path.stem), "__file__", None) == str(path):
        return
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise UsageError(f"there is no file {plugin}; give the path of one that ends in .py")
    sys.modules[path.stem] = module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[path.stem]
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
        if isinstance(error, SyntaxError) and error.filename == str(path):
            lines.append(error.lineno)  # the traceback has no line of the file, as that has not run
        place = f", line {lines[-1]}" if lines else ""
        # str() of a SyntaxError ends with its place, and its `msg` does not.
        text = str(getattr(error, "msg", error))
        if not isinstance(error, UsageError):
            text = f"{type(error).__name__}: {text}"
        raise UsageError(f"{plugin}{place}: {text}") from error


def refuse_imports_from(folder: str | None) -> None:
    """Raise UsageError if a module of the user's was imported from a folder, as another commit of it is to be measured."""
    if folder is None:
        return
    environments = (sys.prefix, sys.base_prefix)  # one may lie in the folder, and is no part of its state
    for name, module in list(sys.modules.items()):
        path = Path(getattr(module, "__file__", None) or "/")
        in_checkout = path.is_relative_to(folder) and not any(map(path.is_relative_to, environments))
        if in_checkout and name.split(".")[0] != "dlbench":
            raise UsageError(
                f"module '{name}' was imported from the checkout itself and not from the reference; "
                "give that side an environment whose PYTHONPATH leads to it, such as PYTHONPATH=src"
            )
