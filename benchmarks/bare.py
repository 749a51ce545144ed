"""The least that a click and rich program does for its help; what `benchmarks.help_time` holds dlbench against."""

import click
from rich.console import Console


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def bare() -> None:
    """Do what every command line does."""


@bare.command()
def handshake() -> None:
    """Say hello."""
    Console().print("hello")


if __name__ == "__main__":
    bare()
