"""Defaults of options from dlbench.toml and pyproject.toml, and which of them a command went by."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import click

from dlbench.core.errors import UsageError, nearest
from dlbench.core.units import Json, one_line

FILE = "dlbench.toml"
PROJECT = "pyproject.toml"

SETTABLE = ("device", "set", "rounds", "budget", "timeout", "seed", "isolation", "format", "strict", "price")
"""Options that may have a default of the user's. An option that is not named here has none, so a new one is refused until it is."""
_REFUSED = "it may change what a gate lets pass, or what a single call is to do; say it on the command line"
_NOT_OF = {"ab": ("device", "set")}
"""Options of a gate that may have a default with other commands only."""

Given = str | bool | tuple[str, ...]
"""A value as click takes it: of an option that is repeatable a tuple."""


@dataclass(frozen=True, slots=True)
class UserDefault:
    """Default of one option of one command."""

    name: str
    """The option's long name, without its dashes."""
    parameter: str
    """What click calls it."""
    value: Given
    origin: str
    """The name of a file, without its folder."""


@dataclass(frozen=True, slots=True)
class Defaults:
    """Settings of every command, and those that the command which was called went by."""

    settings: Mapping[tuple[str, str], UserDefault] = field(default_factory=dict)
    """By command and option the one that counts."""
    used: list[UserDefault] = field(default_factory=list)

    def of_command(self, name: str) -> dict[str, Callable[[], Given]]:
        """Return a command's part of click's ``default_map``; click asks for what the command line leaves out, which `used` keeps."""
        return {each.parameter: partial(self._use, each) for (command, _), each in self.settings.items() if command == name}

    def _use(self, setting: UserDefault) -> Given:
        self.used.append(setting)
        return setting.value

    def notes(self) -> list[str]:
        """Return a sentence for each option that this command did not get from its command line."""
        return [one_line(f"{each.origin} set --{each.name} to {shown(each.value)}") for each in self.used]

    def to_json(self) -> Json:
        """Return what this command went by, for the provenance of a result file."""
        return {each.name: {"value": each.value, "from": each.origin} for each in self.used}


def in_force() -> Defaults:
    """Return the defaults of the command that is running; none outside of one."""
    context = click.get_current_context(silent=True)
    return (context and context.obj) or Defaults()


def without_defaults(*names: str) -> Callable[[click.Context, click.Parameter, Any], Any]:
    """Return the callback of an eager option that switches off the user's defaults, or those of ``names``; a format keeps its own."""

    def callback(context: click.Context, _: click.Parameter, value: Any) -> Any:
        if value:
            kept = context.default_map or {}
            context.default_map = {name: each for name, each in kept.items() if name == "form" or (names and name not in names)}
        return value

    return callback


def shown(value: Given | None) -> str:
    """Return a value as one would type it."""
    if isinstance(value, tuple):
        return " ".join(value)
    return "" if value is None else str(value).lower() if isinstance(value, bool) else value


def settable(command: click.Command) -> dict[str, click.Option]:
    """Return the options of a command that may have a default, by their long names."""
    refused = _NOT_OF.get(str(command.name), ())
    return {name: option for name, option in _options(command).items() if name in SETTABLE and name not in refused}


def read(commands: Mapping[str, Callable[[], click.Command]]) -> Defaults:
    """Read the nearest files, and check all of them. Raises UsageError with the place and the nearest valid name.

    ``commands``: what imports each; only those that something is set for are imported.
    """
    found: dict[tuple[str, str], UserDefault] = {}
    for origin, tables in _files():
        for command, table in tables.items():
            if command not in commands:
                raise _mistake(f"{origin}: there is no command '{command}'{nearest(command, list(commands))}")
            if not isinstance(table, dict):
                raise _mistake(f"{origin}, {command}: must be a table of its options, such as [{command}]")
            for name, value in table.items():
                found[command, name] = _setting(commands[command](), command, name, value, origin)
    return Defaults(found)


def _setting(command: click.Command, called: str, name: str, value: object, origin: str) -> UserDefault:
    """Return the setting of an option if it may have one and click takes the value. Raises UsageError that begins with the place."""
    place = f"{origin}, [{called}] {name}"
    options = _options(command)
    if name not in options:
        raise _mistake(f"{place}: dlbench {called} has no option '{name}'{nearest(name, list(settable(command)))}")
    if name not in settable(command):
        raise _mistake(f"{place}: --{name} can't have a default, as {_REFUSED}")
    option = options[name]
    given = tuple(map(str, value if isinstance(value, list) else [value])) if option.multiple else str(value)
    try:
        converted = option.type_cast_value(click.Context(command), given)
    except click.BadParameter as error:
        raise _mistake(f"{place}: {error.message}") from error
    if name == "strict" and not converted:
        raise _mistake(f"{place}: --strict can't be turned off by default, as {_REFUSED}")
    return UserDefault(name, str(option.name), bool(converted) if option.is_flag else given, origin)


def _mistake(text: str) -> UsageError:
    """Return the error; what a file says is shown without what would steer a terminal."""
    return UsageError(one_line(text))


def _options(command: click.Command) -> dict[str, click.Option]:
    options = [each for each in command.params if isinstance(each, click.Option)]
    return {long.removeprefix("--"): each for each in options for long in each.opts if long.startswith("--")}


def _files() -> Iterator[tuple[str, Json]]:
    """Yield name and tables of the nearest pyproject.toml that has ours, then of the nearest dlbench.toml, which goes first."""
    folders = _folders()
    ours = next((found for folder in folders if (found := _of_project(folder / PROJECT)) is not None), None)
    if ours is not None and not isinstance(ours, dict):
        raise _mistake(f"{PROJECT}, tool.dlbench: must be a table of commands, such as [tool.dlbench.run]")
    if ours:
        yield PROJECT, ours
    if path_of_ours := next((folder / FILE for folder in folders if (folder / FILE).is_file()), None):
        yield FILE, _toml(path_of_ours)


def _of_project(path: Path) -> object:
    """Return ``tool.dlbench`` of a project's file; None where it has none, which is most often so."""
    with suppress(OSError):
        if b"tool.dlbench" in path.read_bytes():  # what is wrong in a file that is not about dlbench is not ours to say
            return _toml(path).get("tool", {}).get("dlbench")
    return None


def _folders() -> list[Path]:
    """Return the working directory and, in a git checkout, those above it up to the checkout's: a file further up may be a stranger's."""
    try:
        here = Path.cwd()
        above = [here, *here.parents]
        root = next((folder for folder in above if (folder / ".git").exists()), here)
    except OSError:  # the folder was removed, or one above it may not be read
        return []
    return above[: above.index(root) + 1]


def _toml(path: Path) -> Json:
    from dlbench.core.files import parse_toml, read_text  # not at the top: most calls have no such file

    return parse_toml(read_text(path, path.name), path.name)
