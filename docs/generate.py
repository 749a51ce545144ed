"""The pages of docs/reference, from what the program itself says: ``make docs`` writes them, a test holds that they are up to date."""

import ast
import inspect
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path

import click

import dlbench as offered
from dlbench.analysis import answers
from dlbench.analysis.answers.parts.headline import EXPLANATIONS
from dlbench.analysis.export import compare_export
from dlbench.analysis.export.tabular import markdown_table
from dlbench.analysis.presentation.columns import PAIR_COLUMNS
from dlbench.analysis.report import compare_terminal, doctor_text
from dlbench.analysis.scaling import projection as scaling_columns
from dlbench.cli.main import dlbench
from dlbench.core import declarations, files, model
from dlbench.core.declarations import Value
from dlbench.core.files import PACKAGE
from dlbench.core.model import Parameter, value_text
from dlbench.core.rows.columns import COLUMNS
from dlbench.harness.plan import cases, suite
from dlbench.harness.worker import registry

FOLDER = Path(__file__).parent / "reference"
WIDTH = 120
"""Columns of a line of prose."""
ACCELERATOR = "cuda:0"
"""Stands for the one accelerator of a machine: any other is planned alike."""

INDEX = re.compile(r"(<!-- Made by `make docs` from the pages that begin with an index line; .*? -->\n).*?(<!-- end -->)", re.DOTALL)
QUESTIONS = re.compile(r"(<!-- Made by `make docs` from the questions; .*? -->\n).*?(<!-- end -->)", re.DOTALL)
TAGS = re.compile(r"(<!-- Made by `make docs` from the tags; .*? -->\n).*?(<!-- end -->)", re.DOTALL)
INDEX_LINE = re.compile(r"\A# .*\n\n<!-- index: (.*) \| (.*) -->\n")

TABLES = {
    "The table of results": (
        "What `dlbench.read` returns and `dlbench show --format json|csv|md` and `dlbench export --to csv|parquet` write: a row a "
        "case. Behind these columns come `param.NAME`, one for each parameter of any case, and `value.NAME`, what its workload "
        "declares ([workloads.md](workloads.md)). What nulls and flags mean is in [results.md](../results.md#the-table).",
        COLUMNS,
    ),
    "Pairs": (
        "What `dlbench show --by COLUMN --format json|csv|md` writes: a row a pair. See [results.md](../results.md#showing-files-again).",
        PAIR_COLUMNS.values(),
    ),
    "Scaling": (
        "What `dlbench show --by ranks --format json|csv|md` writes: a row a case of several ranks. See "
        "[scaling-reference.md](../scaling-reference.md#speed-up-and-efficiency).",
        scaling_columns.COLUMNS.values(),
    ),
    "Comparisons": (
        "What `dlbench compare` and `dlbench ab` write with `--format json|csv|md`, and the rows of `--verdict`: a row a case, the "
        "worst first. Behind these columns come `value.NAME.base`, `new`, `change` and `verdict` of each declared value. See "
        "[compare.md](../compare.md#output).",
        compare_export.COLUMNS,
    ),
    "Calibration": (
        "What `dlbench calibrate --format json|csv|md` writes: a row a case. See [calibrate.md](../calibrate.md).",
        list(compare_terminal.NOISE_COLUMNS),
    ),
    "Fitness of a machine": (
        "What `dlbench doctor --format json|csv|md` writes: a row a check. See [doctor.md](../doctor.md).",
        doctor_text.COLUMNS,
    ),
}

FILLED_IN = (
    ("Work", model, "Work"),
    ("Value", declarations, "Value"),
    ("@workload(…)", declarations, "Declaration"),
    ("Parallel", declarations, "Parallel"),
    ("Role", declarations, "Role"),
)
"""What authors fill in: a title, and the class that has its fields."""


def pages() -> dict[str, str]:
    """Return the text of every page by its file name."""
    made = {"columns.md": columns(), "workloads.md": workloads(), "commands.md": commands(), "suites.md": suites(), "authors.md": authors()}
    return {name: "\n\n".join(each).rstrip() + "\n" for name, each in made.items()}


def with_questions(text: str) -> str:
    """Return the text of docs/reference/answers.md with the tables of the questions, as they are asked, and of the tags."""
    found = [each.QUESTION for each in files.ordered(answers.__name__)]
    questions = _table(("topic", "question"), [(each.topic, each.text) for each in found])
    tags = _table(("tag", "meaning"), list(EXPLANATIONS.items()))
    text = QUESTIONS.sub(lambda block: f"{block[1]}\n{questions}\n\n{block[2]}", text)
    return TAGS.sub(lambda block: f"{block[1]}\n{tags}\n\n{block[2]}", text)


def with_index(text: str) -> str:
    """Return the text of docs/README.md with the question and the command of each page whose title an index line follows, by name."""
    found = ((path.name, INDEX_LINE.search(path.read_text())) for path in sorted(FOLDER.parent.glob("*.md")))
    rows = [(line[1], f"`{line[2]}`", f"[{name}]({name})") for name, line in found if line]
    table = _table(("question", "command", "page"), rows)
    return INDEX.sub(lambda block: f"{block[1]}\n{table}\n\n{block[2]}", text)


def columns() -> Iterator[str]:
    """Yield the page of columns, a part each."""
    yield from _head("Columns", "Numbers are in the base units named here, unrounded. *Better* says which change is an improvement.")
    for title, (about, listed) in TABLES.items():
        yield f"## {title}"
        yield _wrapped(about)
        yield _table(
            ("column", "unit", "better", "meaning"),
            [(f"`{each.name}`", each.unit.value, each.better or "", each.meaning) for each in listed],
        )


def workloads() -> Iterator[str]:
    """Yield the page of workloads, a part each: those of dlbench itself, by name."""
    registry.load_builtins()
    yield from _head(
        "Workloads",
        "What a suite can name, and the values that its axes can take. A parameter without a default has to be in the suite. "
        "[suites.md](../suites.md) says how to write one, [workloads.md](../workloads.md) how to add a workload of your own.",
    )
    builtin = {name: each for name, each in registry.all_workloads().items() if each.function.__module__.startswith("dlbench.")}
    for name, each in sorted(builtin.items()):
        path = f"{each.function.__module__.replace('.', '/')}.py"
        yield f"## {name}"
        yield from map(_wrapped, _paragraphs(inspect.getdoc(each.function) or ""))
        if each.signature.parameters:
            yield _table(("parameter", "valid", "default"), map(_parameter, each.signature.parameters))
        if each.signature.declared.values:
            yield "What it reports, apart from its time:"
            yield _table(("value", "unit", "better", "meaning", "reported by"), map(_value, each.signature.declared.values))
        yield f"Source: [{path}](../../{path})"


def suites() -> Iterator[str]:
    """Yield the page of built-in suites, a part each: how many cases each plans, and for how long."""
    registry.load_builtins()
    yield from _head(
        "Built-in suites",
        "What `dlbench run` takes by name. [suites.md](../suites.md) says how to write one. `dlbench list NAME` shows the cases that a "
        "suite plans on this machine, with an estimate of the time.",
    )
    yield _wrapped(
        "Cases are those of a machine with a CPU alone, and those that one accelerator has. *At most* is the suite's budget for each "
        "device that takes part: on a CPU and an accelerator a run takes twice that at most, beyond its first round. A suite without one "
        "ends with its rounds."
    )
    yield _table(("suite", "on a CPU", "on an accelerator", "rounds", "at most", "question"), map(_suite, suite.builtin_names()))


def _suite(name: str) -> tuple[str, ...]:
    loaded, signatures = suite.load(name), {name: each.signature for name, each in registry.all_workloads().items()}
    devices = [each.device for each in cases.plan([loaded], signatures, ["cpu", ACCELERATOR])]
    counts = [str(devices.count(device)) for device in ("cpu", ACCELERATOR)]
    budget_s = loaded.policy.budget_s
    at_most = "" if budget_s is None else f"{budget_s / 60:.3g} min a device"
    return f"`{name}`", *counts, str(loaded.policy.rounds), at_most, loaded.about


def commands() -> Iterator[str]:
    """Yield the page of commands, a part each, in the order of ``dlbench --help``."""
    yield from _head(
        "Commands",
        "What `--help` says of each. Data goes to stdout, everything else to stderr; [results.md](../results.md#exit-codes) has the "
        "exit codes.",
    )
    group = click.Context(dlbench, info_name="dlbench")
    for name in dlbench.list_commands(group):
        yield f"## dlbench {name}"
        if found := dlbench.get_command(group, name):
            yield from _command(found, click.Context(found, group, info_name=name))


def _command(command: click.Command, context: click.Context) -> Iterator[str]:
    yield f"    {context.command_path} {' '.join(command.collect_usage_pieces(context))}"
    for paragraph in _paragraphs(inspect.cleandoc("\n\n".join(filter(None, (command.help, command.epilog))))):
        yield _as_it_stands(paragraph) if paragraph.startswith("\b") else _wrapped(paragraph)
    records = filter(None, (each.get_help_record(context) for each in command.params if isinstance(each, click.Option)))
    if rows := [(f"`{names}`", meaning) for names, meaning in records]:
        yield _table(("option", "meaning"), rows)


def authors() -> Iterator[str]:
    """Yield the page of the module dlbench, a part each: every name that it offers, and the fields of those that authors fill in."""
    yield from _head(
        "What authors import",
        "What `dlbench` offers to authors of workloads and of kinds of device, as its docstrings say it. "
        "[workloads.md](../workloads.md) shows it at work.",
    )
    documented = {home: _documented(ast.parse(inspect.getsource(import_module(home))).body) for home in offered._HOMES}
    texts = {name: documented[home][name] for home, listed in offered._HOMES.items() for name in listed.split() if name in offered.__all__}
    used = _uses()
    rows = [(f"`{name}`", texts[name], f"`{used[name]}`") for name in sorted(texts, key=str.lower) if not name.startswith("__")]
    yield _table(("name", "what it is", "as dlbench's own code uses it"), rows)
    for title, module, name in FILLED_IN:
        (filled,) = (node for node in ast.parse(inspect.getsource(module)).body if isinstance(node, ast.ClassDef) and node.name == name)
        fields = {field: text for field, text in _documented(filled.body, functions=False).items() if text and field != "parameters"}
        yield f"## {title}"
        yield _table(("field", "meaning"), [(f"`{field}`", text) for field, text in fields.items()])
    yield "## Roles of values"
    yield _wrapped(_code(documented[declarations.__name__]["ValueRole"]))


def _uses() -> Mapping[str, str]:
    """Return for each name that is offered the shortest whole line that uses it: in pages and examples, workloads, else in dlbench."""
    shortest: dict[str, tuple[int, int, str]] = {}
    root = FOLDER.parent.parent
    pages = [page.read_text() for page in (*sorted(FOLDER.parent.glob("*.md")), *sorted((root / "examples").rglob("*.py")))]
    for name, line in re.findall(r"^(?=.*dlbench\.(\w+)\b)(@?[^`\n]*(?:\)|\.data))$", "\n".join(pages), re.MULTILINE):
        shortest[name] = min(shortest.get(name, (9, 0, "")), (0, len(line), line))
    for path in sorted(PACKAGE.rglob("*.py")):
        written = path.relative_to(PACKAGE).parts[0] in ("workloads", "kit", "models")
        lines, tree = path.read_text().splitlines(), ast.parse(path.read_text())
        imported = {each.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for each in node.names}
        for node in ast.walk(tree):
            if isinstance(node, ast.Name) and node.id in imported & {*offered.__all__}:
                line = lines[node.lineno - 1].partition("  #")[0].strip().rstrip(",")
                whole = re.search("[(:=]", line) and all(line.count(each[0]) == line.count(each[1]) for each in ("()", "[]", "{}"))
                shortest[node.id] = min(shortest.get(node.id, (9, 0, "")), (1 + 2 * (not whole) + (not written), len(line), line))
    return {name: line for name, (_, _, line) in shortest.items()}


def _documented(body: Sequence[ast.stmt], *, functions: bool = True) -> Mapping[str, str]:
    """Return what the source says of each name, in a paragraph: its docstring, or the text below where it is assigned."""
    found: dict[str, str] = {}
    for node, below in zip(body, [*body[1:], ast.Pass()], strict=True):
        if functions and isinstance(node, ast.FunctionDef | ast.ClassDef):
            found[node.name] = _code((ast.get_docstring(node) or "").split("\n\n")[0])
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            text = below.value.value if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant) else ""
            found[ast.unparse(target)] = _code(str(text))
    return found


def _code(text: str) -> str:
    """Return a docstring's text with code as Markdown writes it."""
    return text.replace("``", "`")


def _head(title: str, about: str) -> Iterator[str]:
    yield f"# {title}"
    yield "<!-- Made by `make docs` from the program; not to be edited. -->"
    yield _wrapped(about)


def _parameter(each: Parameter) -> tuple[str, str, str]:
    default = "required" if each.required else "" if each.default is None else value_text(each.default)
    return f"`{each.name}`", each.wanted().removeprefix("one of "), default


def _value(each: Value) -> tuple[str, str, str, str, str]:
    what = f"{each.meaning} ({', '.join(each.points)})" if each.points else each.meaning
    when = "; ".join(f"{name} {', '.join(valid)}" for name, valid in each.when.items())
    better = f"{each.direction}, by {each.margin:g}" if each.margin else each.direction or ""
    return f"`value.{each.name}`", each.unit.value, better, what, when


def _paragraphs(text: str) -> list[str]:
    return [each for each in text.split("\n\n") if each.strip()]


def _wrapped(paragraph: str) -> str:
    return textwrap.fill(" ".join(paragraph.split()), WIDTH, break_long_words=False, break_on_hyphens=False)


def _as_it_stands(paragraph: str) -> str:
    """Return lines that help does not refill as a block: of shell where they are commands."""
    lines = textwrap.dedent(paragraph.removeprefix("\b").strip("\n"))
    language = "sh" if re.match(r"\s*dlbench ", lines) else "text"
    return f"```{language}\n{lines}\n```"


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    cells = ([" ".join(cell.replace("|", r"\|").split()) for cell in row] for row in rows)
    return "".join(markdown_table(header, cells)).replace("|  |", "| |").rstrip("\n")


if __name__ == "__main__":
    for name, text in pages().items():
        (FOLDER / name).write_text(text)
    for page, remade in ((FOLDER.parent / "README.md", with_index), (FOLDER / "answers.md", with_questions)):
        page.write_text(remade(page.read_text()))
