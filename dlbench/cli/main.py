"""The ``dlbench`` command: its table of contents, and the one place where errors become exit codes."""

import os
import shlex
import sys
import time
from functools import partial
from importlib import import_module
from types import ModuleType

import click
from click.shell_completion import CompletionItem, shell_complete

from dlbench.cli import BEGAN
from dlbench.cli.terminal import drop_stdout, make_printable, say, write_notes
from dlbench.core.errors import DlbenchError, ExitCode, UsageError, nearest
from dlbench.core.files import __version__

# Static text, so that --help imports none of the commands.
COMMANDS = {
    "new": "Write the file of a network of your own, for run.",
    "devices": "What is in this machine: CPU and every accelerator.",
    "list": "Suites; with names, the planned cases and an estimate of the time.",
    "run": "Measure: run suites (default: quick), and say in a few lines what they answer.",
    "show": "Questions answered from result files, a line each; their reasoning and tables.",
    "report": "One page on result files, to look at or to send: answers, plots, tables.",
    "compare": "A verdict for every case of BASE and NEW, and an exit code for CI.",
    "ab": "Two versions measured alternately on this machine, with a verdict for every case.",
    "doctor": "Is this machine fit to measure on now, and what to change.",
    "export": "Write a result file in the format of another tool.",
    "contribute": "Make a reference run for others: check a result file, and strip what is private.",
    "calibrate": "This machine's noise between sessions, which compare allows for.",
}

_ELSEWHERE = {
    "list": "planning",
    "doctor": "commands.noise",
    "calibrate": "commands.noise",
    "report": "commands.convert",
    "export": "commands.convert",
    "contribute": "commands.convert",
}
"""Modules of commands that have none of their own."""
_REPORT_NEEDS = ("vl_convert", "jinja2")
"""Modules of the extra that makes pages."""
_OF_FILES = {".jsonl": "show", ".py": "run", ".toml": "run"}
"""The command that is nearly always meant by a file in its place."""
_COMPLETE = "_DLBENCH_COMPLETE"
"""The variable in which a shell says how it asks for completions, by Click's convention."""


class LazyGroup(click.Group):
    """Imports a command's module when that command is called, not before."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the commands in the order of the table above."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command of exactly this name, importing its module; None if there is no such command."""
        return load(cmd_name) if cmd_name in COMMANDS else None

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Take ``help`` and ``help run`` as the option."""
        return super().parse_args(ctx, [*args[1:], "--help"] if args[:1] == ["help"] else args)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, and the defaults that the user has set for its options; help is given without them."""
        word = args[0]
        if word not in COMMANDS and not word.startswith("-") and not ctx.resilient_parsing:
            raise UsageError(f"there is no command '{word}'{_likely_command(word)}")
        name, command, arguments = super().resolve_command(ctx, args)
        asks_for_help = not {*ctx.help_option_names}.isdisjoint(arguments)
        if command is not None and not asks_for_help and not ctx.resilient_parsing:
            from dlbench.cli import defaults  # not at the top, so that --help stays quick

            settings = defaults.read({each: partial(load, each) for each in COMMANDS})
            ctx.obj = defaults.Defaults(settings.get(word, {}))
            ctx.default_map = {word: ctx.obj.for_click(command)}
        return name, command, arguments

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete the name of a command, or an option."""
        commands = [CompletionItem(name, help=about) for name, about in COMMANDS.items() if name.startswith(incomplete)]
        return [*commands, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the static help."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


def _likely_command(word: str) -> str:
    """Return the end of a sentence on a word that is no command: what was meant, the command for such a file or a name that is near."""
    for_file = next((command for ending, command in _OF_FILES.items() if word.endswith(ending)), None)
    if for_file is None:
        return nearest(word, list(COMMANDS))
    return f"; did you mean dlbench {for_file} {shlex.quote(word)}?"


def load(name: str) -> click.Command:
    """Import a command of the table."""
    command: click.Command = getattr(_module(name), f"{name}_command")
    return command


def _module(command: str) -> ModuleType:
    return import_module(f"dlbench.cli.{_ELSEWHERE.get(command, f'commands.{command}')}")


@click.group(cls=LazyGroup, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 102})
@click.version_option(__version__, prog_name="dlbench")
@click.pass_context
def dlbench(context: click.Context) -> None:
    """Measure deep-learning workloads on the CPU and every accelerator, with intervals.

    Data goes to stdout, everything else to stderr.

    Exit codes: 0 fine, 2 usage or bad file, 3 regression, 4 undecidable or nothing measured,
    5 some cases failed, 69 a required device or all are absent, 70 internal error, 74 could not write, 75 device fault,
    130 / 143 interrupted.

    \b
    Completion: eval "$(_DLBENCH_COMPLETE=bash_source dlbench)";
    for other shells zsh_source or fish_source.
    """
    if context.invoked_subcommand is None:  # a bare `dlbench`
        _module("devices").write_first_screen()


def main() -> None:
    """Run the command line and exit with the code that fits."""
    began = time.monotonic()  # before the command is imported: the second that this takes counts towards its --budget
    make_printable(sys.stdout, sys.stderr)
    context: click.Context | None = None
    try:
        if instruction := os.environ.get(_COMPLETE):
            sys.exit(_complete(instruction))
        # Not Click's own main: it ends with 1 on Ctrl-C and on a closed pipe. Here they have codes of their own, below.
        with dlbench.make_context("dlbench", sys.argv[1:]) as context:
            context.meta[BEGAN] = began
            code = dlbench.invoke(context)
    except click.exceptions.Exit as requested:  # as after --help
        code = requested.exit_code
    except (KeyboardInterrupt, click.exceptions.Abort):
        code = ExitCode.INTERRUPTED
    except click.ClickException as error:
        error.show()
        code = ExitCode.USAGE
    except DlbenchError as error:
        say(f"dlbench: {error}")
        if context and context.obj:
            write_notes(context.obj.notes())  # the user's defaults that were used, as they may be the mistake
        code = error.exit_code
    except BrokenPipeError:
        drop_stdout()  # its reader has left (`dlbench list big | head`), which is no error
        code = ExitCode.OK
    except ModuleNotFoundError as error:
        say(f"dlbench: {_missing_package(error)}")
        code = ExitCode.USAGE
    except Exception as error:  # noqa: BLE001  # a mistake in dlbench
        # Its report needs the traceback. Python would print that, too, but end with 1, which is none of dlbench's codes.
        import traceback

        traceback.print_exc()
        say(f"dlbench: internal error ({type(error).__name__}); please report it with the lines above")
        code = ExitCode.INTERNAL
    sys.exit(int(code or 0))  # a command that can only succeed returns nothing


def _complete(instruction: str) -> ExitCode:
    """Print what the shell asks for, the completions of a line or its script for them, and return the exit code."""
    failed = shell_complete(dlbench, {}, "dlbench", _COMPLETE, instruction)
    return ExitCode.USAGE if failed else ExitCode.OK


def _missing_package(error: ModuleNotFoundError) -> str:
    """Return a sentence that says how to install the package that could not be imported."""
    if (error.name or "").partition(".")[0] in _REPORT_NEEDS:
        return "a page needs vl-convert-python and Jinja2: pip install '.[report]' in a clone"
    return f"the package '{error.name}' is not installed here; pip install . adds what is missing"
