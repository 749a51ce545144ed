"""``dlbench config``: every option that may have a default of the user's, its value, and where it came from."""

import click

from dlbench.cli import defaults
from dlbench.cli.listing import write_rows
from dlbench.cli.main import COMMANDS, load
from dlbench.cli.options import format_option

BUILT_IN = "built-in"


@click.command("config")
@format_option
def command(form: str) -> None:
    """Show every option that may have a default of yours, its value, and where that came from.

    The command line goes first, then dlbench.toml, [tool.dlbench] of pyproject.toml, and what is built in. Both files are looked for in
    the working directory and, in a git checkout, above it up to its top. Plugins, output files and what a gate stands on can't be set
    there: docs/config.md says why.

    \b
      dlbench config
      dlbench config --format json
    """
    set_here = defaults.in_force().settings
    rows = []
    for name in COMMANDS:
        for long, option in defaults.settable(load(name)).items():
            setting = set_here.get((name, long))
            built_in = option.default if isinstance(option.default, str) else False if option.is_flag else None
            rows.append(
                {
                    "command": name,
                    "option": long,
                    "value": defaults.shown(setting.value if setting else built_in) or None,
                    "from": setting.origin if setting else BUILT_IN,
                }
            )
    write_rows(rows, form)
