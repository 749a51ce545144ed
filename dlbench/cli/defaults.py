"""Defaults of options from the nearest dlbench.toml, and those that a command used."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import click

from dlbench.core.errors import UsageError, nearest
from dlbench.core.units import Json, one_line

FILE = "dlbench.toml"

SETTABLE = ("device", "set", "rounds", "budget", "timeout", "seed", "isolation", "format", "strict", "price")
"""Options that may have a default of the user's. An option that is not named here has none, so a new one is refused until it is."""
_REFUSED = "it may change what a gate lets pass, or what a single call is to do; say it on the command line"
_NOT_SETTABLE_FOR = {"ab": ("device", "set")}
"""Some of them that may have no default for this command: they would change what a gate lets pass."""

OptionValue = str | bool | tuple[str, ...]
"""A value as click takes it: a truth value of a flag, a tuple of a repeatable option, else a text."""
Settings = Mapping[str, OptionValue]
"""By the long names of options, without dashes."""


@dataclass(frozen=True, slots=True)
class Defaults:
    """The user's defaults for one command, and those that it used."""

    settings: Settings = field(default_factory=dict)
    used: dict[str, OptionValue] = field(default_factory=dict)

    def for_click(self, command: click.Command) -> dict[str, Callable[[], OptionValue]]:
        """Return click's ``default_map``. Click calls an entry only if the command line has no such option, and then `used` keeps it."""
        return {str(option.name): partial(self._use, name) for name, option in _options(command).items() if name in self.settings}

    def _use(self, name: str) -> OptionValue:
        return self.used.setdefault(name, self.settings[name])

    def notes(self) -> list[str]:
        """Return a sentence for each option that this command did not get from its command line."""
        return [one_line(f"{FILE} set --{name} to {_as_typed(value)}") for name, value in self.used.items()]


def in_force() -> Defaults:
    """Return the defaults of the command that is running."""
    return click.get_current_context().obj or Defaults()


def without_defaults(*names: str) -> Callable[[click.Context, click.Parameter, Any], Any]:
    """Return the callback of an eager option that switches off the user's defaults: those of ``names``, or all; --format keeps its own."""

    def callback(context: click.Context, _: click.Parameter, value: Any) -> Any:
        if value:
            defaults = context.default_map or {}
            switched_off = {*(names or defaults)} - {"form"}
            context.default_map = {name: default for name, default in defaults.items() if name not in switched_off}
        return value

    return callback


def _as_typed(value: OptionValue) -> str:
    """Return a value as it is written on a command line or in the file."""
    if isinstance(value, tuple):
        return " ".join(value)
    return str(value).lower() if isinstance(value, bool) else value


def read(commands: Mapping[str, Callable[[], click.Command]]) -> dict[str, Settings]:
    """Return the settings of each command in the nearest dlbench.toml, all of it checked.

    ``commands`` has by name the function that imports a command. It is called only if the file has a table of that command.
    Raises UsageError where the file is no valid TOML, or has an unknown command, an unknown option, one that may have no default, or a bad
    value. The error says the place in the file, and for an unknown name the nearest valid one.
    """
    settings: dict[str, Settings] = {}
    try:
        for name, table in _nearest_tables().items():
            if name not in commands:
                raise UsageError(f"{FILE}: there is no command '{name}'{nearest(name, list(commands))}")
            if not isinstance(table, dict):
                raise UsageError(f"{FILE}, {name}: must be a table of its options, such as [{name}]")
            command = commands[name]()
            settings[name] = {option: _checked_setting(command, name, option, value) for option, value in table.items()}
    except UsageError as error:
        raise UsageError(one_line(str(error))) from error  # names in the file may have line breaks
    return settings


def _checked_setting(command: click.Command, command_name: str, option_name: str, value: object) -> OptionValue:
    """Return the ``value`` that the file has for an option of a command, as click takes it from a command line.

    Raises UsageError that begins with the place in the file: for an unknown option, for one that may have no default, and for a bad value.
    """
    place = f"{FILE}, [{command_name}] {option_name}"
    options = _options(command)
    not_settable = _NOT_SETTABLE_FOR.get(command_name, ())
    settable = [each for each in options if each in SETTABLE and each not in not_settable]
    if option_name not in options:
        raise UsageError(f"{place}: dlbench {command_name} has no option '{option_name}'{nearest(option_name, settable)}")
    if option_name not in settable:
        raise UsageError(f"{place}: --{option_name} can't have a default, as {_REFUSED}")
    option = options[option_name]
    values = value if isinstance(value, list) else [value]
    as_text = tuple(map(str, values)) if option.multiple else str(value)
    # Click converts the text of a default when it uses it. Here it is converted to find a bad value, and for the truth value of a flag.
    try:
        converted = option.type_cast_value(click.Context(command), as_text)
    except click.BadParameter as error:
        raise UsageError(f"{place}: {error.message}") from error
    return bool(converted) if option.is_flag else as_text


def _options(command: click.Command) -> dict[str, click.Option]:
    """Return the options of a command by their long names, without dashes."""
    options = [each for each in command.params if isinstance(each, click.Option)]
    return {long.removeprefix("--"): each for each in options for long in each.opts if long.startswith("--")}


def _nearest_tables() -> Json:
    """Return the tables of the nearest dlbench.toml; none if there is no such file.

    It is looked for in the working directory, then in each folder above up to the top of the git checkout. No file above the checkout is
    read, as somebody else may have put it there. Outside of a checkout only the working directory is searched.
    """
    try:
        here = Path.cwd()
        upwards = [here, *here.parents]
        top = next((folder for folder in upwards if (folder / ".git").exists()), here)
        searched = upwards[: upwards.index(top) + 1]
        path = next((folder / FILE for folder in searched if (folder / FILE).is_file()), None)
    except OSError:  # the folder was removed, or one above it may not be read
        return {}
    if path is None:
        return {}
    from dlbench.core.files import parse_toml, read_text  # not at the top: most calls have no such file

    return parse_toml(read_text(path, path.name), path.name)
