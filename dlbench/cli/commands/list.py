"""``dlbench list``: the built-in suites; with names, the cases that they plan and an estimate of the time."""

import click

from dlbench.cli.options import PlanOptions, format_option, planning_options, typed_options
from dlbench.cli.planning import load_suites, plan_suites, write_plan, write_suites
from dlbench.core.errors import UsageError
from dlbench.harness.plan.cases import workload_names


@click.command()
@planning_options
@format_option
def command(planning: PlanOptions, form: str) -> None:
    """Show the built-in suites; with names, the cases that they plan and an estimate of the time.

    SUITE is the name of a built-in suite, or a path that ends in .toml. Off a terminal the cases are one id a line; their number
    and the estimate go to stderr.

    \b
      dlbench list
      dlbench list quick cnn
      dlbench list matmul -k bf16 --device cpu --format csv
    """
    if not planning.names:
        if typed_options() - {"form"}:
            raise UsageError("-k, --case, --set, --device and --plugin need a SUITE, such as dlbench list quick -k resnet18")
        write_suites(form)
        return
    # Not at the top: without a SUITE no process starts, and --help needs none.
    from dlbench.harness.probe.programs import OtherPrograms
    from dlbench.harness.runner import ask_hello

    suites, programs = load_suites(planning), OtherPrograms()
    plan = plan_suites(suites, ask_hello(planning.plugins, workload_names(suites)), planning)
    write_plan(plan, form, plan.policy, programs)
