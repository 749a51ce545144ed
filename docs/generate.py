"""The pages of docs/reference, from what the program itself says: ``make docs`` writes them, a test holds that they are up to date."""

import ast
import inspect
import re
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from itertools import chain, groupby
from pathlib import Path
from typing import NamedTuple, get_args

import click

import dlbench as offered
from dlbench.analysis.answers.engine.question import EXPLANATIONS
from dlbench.analysis.doctor import checks
from dlbench.analysis.export import verdict_files
from dlbench.analysis.presentation.columns import PAIR_COLUMNS
from dlbench.analysis.scaling import projection as scaling_columns
from dlbench.cli.main import dlbench
from dlbench.core import declarations, model
from dlbench.core.declarations import Value
from dlbench.core.files import PACKAGE
from dlbench.core.model import Parameter, value_text
from dlbench.core.rows.columns import COLUMNS
from dlbench.core.units import Column, Unit
from dlbench.harness.plan import cases, suite
from dlbench.harness.worker import registry

FOLDER = Path(__file__).parent / "reference"
WIDTH = 120
"""Columns of a line of prose."""
CORES = ("threads", "instances")
"""Parameters that nearly all workloads have, which stand on top of their page."""
POSITIVE = ": a positive integer"
"""How most parameters end, which no list repeats."""
ACCELERATOR = "cuda:0"
"""Stands for the one accelerator of a machine: any other is planned alike."""

_PLAIN = (Unit.TEXT, Unit.FLAG, Unit.COUNT, Unit.NUMBER)
_ENDINGS = {
    Unit.SECONDS: "_s",
    Unit.BYTES: "_bytes",
    Unit.PER_S: "_per_s",
    Unit.ITEMS_PER_S: "items_per_s",
    Unit.FLOPS_PER_S: "flops_per_s",
    Unit.BYTES_PER_S: "bytes_per_s",
    Unit.WATTS: "watts",
    Unit.HERTZ: "_hz",
    Unit.FRACTION: "fraction",
}
"""How names of columns end that say their unit."""

RANGE = re.compile(r" *\[[^]]*<[^]]*\]")
"""Of a number, as click shows it behind an option."""

INDEX = re.compile(r"(<!-- Made by `make docs` from the index lines of pages; .*? -->\n).*?(<!-- end -->)", re.DOTALL)
TAGS = re.compile(r"(<!-- Made by `make docs` from the tags; .*? -->\n).*?(<!-- end -->)", re.DOTALL)
INDEX_LINE = re.compile(r"^<!-- index: (.*) \| (.*) -->$", re.MULTILINE)

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
        "[scaling.md](../scaling.md#speed-up-and-efficiency).",
        scaling_columns.COLUMNS.values(),
    ),
    "Comparisons": (
        "What `dlbench compare` and `dlbench ab` write with `--format json|csv|md`, and the rows of `--verdict`: a row a case, the "
        "worst first. Behind these columns come `value.NAME.base`, `new`, `change` and `verdict` of each declared value. See "
        "[compare.md](../compare.md#for-ci).",
        verdict_files.COLUMNS,
    ),
    "Fitness of a machine": (
        "What `dlbench doctor --format json|csv|md` writes: a row a check. See [doctor.md](../doctor.md).",
        checks.FINDING_COLUMNS,
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


def with_tags(text: str) -> str:
    """Return the text of docs/answers.md with the tags and their meaning."""
    tags = _listed(f"`{tag}`: {meaning}" for tag, meaning in EXPLANATIONS.items())
    return TAGS.sub(lambda block: f"{block[1]}\n{tags}\n\n{block[2]}", text)


def with_index(text: str) -> str:
    """Return the text of docs/README.md with the question and the command of each index line of a page, by the page's name."""
    found = [(path.name, line) for path in sorted(FOLDER.parent.glob("*.md")) for line in INDEX_LINE.finditer(path.read_text())]
    lines = _listed(f"[{line[1]}]({name}) `{line[2]}`" for name, line in found)
    return INDEX.sub(lambda block: f"{block[1]}\n{lines}\n\n{block[2]}", text)


def columns() -> Iterator[str]:
    """Yield the page of columns, a part each; what stands in an earlier part is not repeated."""
    yield from _head(
        "Columns",
        "Numbers are unrounded, in the base unit that the name ends with or that stands in brackets, next to which change is an "
        "improvement. Others are texts, counts, or flags.",
    )
    above: set[str] = set()
    for title, (about, listed) in TABLES.items():
        lines = _alike(listed)
        yield f"## {title}"
        yield _wrapped(about)
        if again := [line.partition(": ")[0] for line in lines if line in above]:
            yield _wrapped(f"As above: {', '.join(again)}. And:")
        yield _listed(line for line in lines if line not in above)
        above |= {*lines}


def _alike(listed: Iterable[Column]) -> list[str]:
    """Return a line for each column, or for those that say the same of several sides: ``base.rounds`` and ``new.rounds``."""
    found: dict[tuple[str, ...], list[Column]] = {}
    sides: dict[str, str] = {}
    for each in listed:
        prefix, _, name = each.name.partition(".")
        side, _, meaning = each.meaning.partition(": ")
        is_of_a_side = bool(meaning) and sides.setdefault(prefix, side) == side
        found.setdefault((name, meaning) if is_of_a_side else (each.name,), []).append(each)
    lines = []
    for (first, *others), meaning in ((columns, key[-1]) for key, columns in found.items()):
        names = ", ".join(f"`{each.name}`" for each in (first, *others))
        lines.append(_described(names, first.unit, first.better, meaning if others else first.meaning))
    return lines


def workloads() -> Iterator[str]:
    """Yield the page of workloads, a part each: what several share first, then those of dlbench itself, by name."""
    registry.load_builtins()
    yield from _head(
        "Workloads",
        "What a suite can name, the values that its axes can take, and what is reported apart from the time (`value.NAME`). A parameter in "
        "bold has to be in the suite, others have the default behind them; where no list says what is valid, a positive integer is. "
        "Workloads of one process take `threads` and `instances`, too ([modes.md](../modes.md#cores-of-a-cpu)). "
        "[suites.md](../suites.md) says how to write a suite, [workloads.md](../workloads.md) a workload.",
    )
    builtin = {
        name: each
        for name, each in registry.all_workloads().items()
        if each.function.__module__.startswith("dlbench.") and "self" not in each.signature.declared.tags
    }
    signatures = [each.signature for each in builtin.values()]
    parameters = Counter(_parameter(each) for signature in signatures for each in signature.parameters)
    values = Counter(_value(each) for signature in signatures for each in signature.declared.values)
    yield "## Parameters of several workloads"
    yield _listed(text for text, count in sorted(parameters.items()) if count > 1 and not text.endswith(POSITIVE))
    yield "## Values of several workloads"
    yield _listed(text for text, count in sorted(values.items()) if count > 1)
    for name, each in sorted(builtin.items()):
        path = f"{each.function.__module__.replace('.', '/')}.py"
        yield f"## {name}"
        yield _wrapped(f"{' '.join(_paragraphs(inspect.getdoc(each.function) or ''))} ([source](../../{path}))")
        yield from _parameters([each for each in each.signature.parameters if each.name not in CORES], parameters)
        yield from _values(each.signature.declared.values, values)


def _parameters(listed: Sequence[Parameter], counts: Mapping[str, int]) -> Iterator[str]:
    """Yield the names and defaults of a workload's parameters, and what is valid where neither another has it nor any number is."""
    if listed:
        yield _wrapped(f"Parameters: {', '.join(map(_default, listed))}.")
    if own := [text for text in map(_parameter, listed) if counts[text] == 1 and not text.endswith(POSITIVE)]:
        yield _listed(own)


def _values(listed: Sequence[Value], counts: Mapping[str, int]) -> Iterator[str]:
    """Yield what a workload reports: the names of what others report, too, and its own with their meaning."""
    if shared := [f"`{each.name}`" for each in listed if counts[_value(each)] > 1]:
        yield _wrapped(f"Values of several: {', '.join(shared)}.")
    for when, alike in groupby((each for each in listed if counts[_value(each)] == 1), key=_when):
        yield f"Values{when}:"
        yield _listed(map(_value, alike))


def suites() -> Iterator[str]:
    """Yield the page of built-in suites, a part each: how many cases each plans, and for how long."""
    registry.load_builtins()
    yield from _head(
        "Built-in suites",
        "What `dlbench run` takes by name. [suites.md](../suites.md) says how to write one. `dlbench list NAME` shows the cases that a "
        "suite plans on this machine, with an estimate of the time.",
    )
    yield _wrapped(
        "In brackets: the cases on a CPU/on one accelerator, the rounds, and the budget for each device that takes part, beyond its "
        "first round. A suite without one ends with its rounds."
    )
    yield _listed(map(_suite, suite.builtin_names()))


def _suite(name: str) -> str:
    loaded, signatures = suite.load(name), {name: each.signature for name, each in registry.all_workloads().items()}
    devices = [each.device for each in cases.plan([loaded], signatures, ["cpu", ACCELERATOR])]
    counts = "/".join(str(devices.count(device)) for device in ("cpu", ACCELERATOR))
    budget_s = loaded.policy.budget_s
    rounds = f"{loaded.policy.rounds} {'round' if loaded.policy.rounds == 1 else 'rounds'}"
    at_most = "" if budget_s is None else f", {budget_s / 60:.3g} min"
    return f"`{name}` ({counts}, {rounds}{at_most}): {loaded.about}"


def commands() -> Iterator[str]:
    """Yield the page of commands, a part each, in the order of ``dlbench --help``."""
    yield from _head(
        "Commands",
        "What `--help` says of each. Data goes to stdout, everything else to stderr; [results.md](../results.md#exit-codes) has the "
        "exit codes.",
    )
    group = click.Context(dlbench, info_name="dlbench")
    found = {name: command for name in dlbench.list_commands(group) if (command := dlbench.get_command(group, name))}
    options = {name: _options(command, click.Context(command, group, info_name=name)) for name, command in found.items()}
    counts = Counter(chain.from_iterable(options.values()))
    yield "## Options of several commands"
    yield _listed(
        f"{text} ({', '.join(name for name, listed in options.items() if text in listed)})" for text, count in counts.items() if count > 1
    )
    for name, command in found.items():
        context = click.Context(command, group, info_name=name)
        yield f"## dlbench {name}"
        yield f"    {context.command_path} {' '.join(command.collect_usage_pieces(context))}"
        for paragraph in _paragraphs(inspect.cleandoc("\n\n".join(filter(None, (command.help, command.epilog))))):
            yield _as_it_stands(paragraph) if paragraph.startswith("\b") else _wrapped(paragraph)
        if own := [text for text in options[name] if counts[text] == 1]:
            yield _listed(own)


def _options(command: click.Command, context: click.Context) -> list[str]:
    """Return a line an option, without the range of a number."""
    records = filter(None, (each.get_help_record(context) for each in command.params if isinstance(each, click.Option)))
    return [f"`{names.replace('INTEGER RANGE', 'N')}`: {RANGE.sub('', meaning)}" for names, meaning in records]


def authors() -> Iterator[str]:
    """Yield the page of the module dlbench, a part each: every name that it offers, and the fields of those that authors fill in."""
    yield from _head(
        "What authors import",
        "What `dlbench` offers to authors of workloads and of kinds of device, as its docstrings say it. "
        "[workloads.md](../workloads.md) shows it at work.",
    )
    documented = {home: _documented(ast.parse(inspect.getsource(import_module(home))).body) for home in offered._HOMES}
    filled_in = {name for _, _, name in FILLED_IN}
    texts = {name: documented[home][name] for home, listed in offered._HOMES.items() for name in listed.split() if name in offered.__all__}
    used = _uses()
    names = [name for name in sorted(texts, key=str.lower) if name not in filled_in and not name.startswith("__")]
    yield _listed(f"`{name}`: {_sentence(texts[name])}" + (f" `{used[name]}`" if name in used else "") for name in names)
    for title, module, name in FILLED_IN:
        (filled,) = (node for node in ast.parse(inspect.getsource(module)).body if isinstance(node, ast.ClassDef) and node.name == name)
        fields = {field: text for field, text in _documented(filled.body, functions=False).items() if text and field != "parameters"}
        yield f"## {title}"
        yield _listed(f"`{field}`: {_sentence(text)}" for field, text in fields.items())
    yield "## Roles of values"
    yield _wrapped(f"What answers take a value for: {', '.join(f'`{role}`' for role in get_args(declarations.ValueRole))}.")


class Use(NamedTuple):
    """A line that uses a name; the smallest is the best example."""

    rank: int
    """By where the line stands, and whether it says something by itself."""
    length: int
    line: str


def _uses() -> Mapping[str, str]:
    """Return for each name that is offered the shortest whole line that uses it: in pages and examples, workloads, else in dlbench."""
    best: dict[str, Use] = {}
    for name, use in chain(_uses_in_pages(), _uses_in_the_package()):
        best[name] = min(best.get(name, use), use)
    return {name: use.line for name, use in best.items()}


def _uses_in_pages() -> Iterator[tuple[str, Use]]:
    """Yield the lines of pages and examples that use a name as ``dlbench.NAME`` and end with what they began."""
    examples = sorted((FOLDER.parent.parent / "examples").rglob("*.py"))
    text = "\n".join(path.read_text() for path in (*sorted(FOLDER.parent.glob("*.md")), *examples))
    for name, line in re.findall(r"^(?=.*dlbench\.(\w+)\b)(@?[^`\n]*(?:\)|\.data))$", text, re.MULTILINE):
        yield name, Use(0, len(line), line)


def _uses_in_the_package() -> Iterator[tuple[str, Use]]:
    """Yield the lines of the package that use an imported name; those of workloads, which authors write, too, are better examples."""
    for path in sorted(PACKAGE.rglob("*.py")):
        is_of_workloads = path.relative_to(PACKAGE).parts[0] in ("workloads", "kit", "models")
        lines, nodes = path.read_text().splitlines(), list(ast.walk(ast.parse(path.read_text())))
        imported = {each.name for node in nodes if isinstance(node, ast.ImportFrom) for each in node.names}
        for node in nodes:
            if isinstance(node, ast.Name) and node.id in imported and node.id in offered.__all__:
                line = lines[node.lineno - 1].partition("  #")[0].strip().rstrip(",")
                rank = 1 + (0 if is_of_workloads else 1) + (0 if _is_whole(line) else 2)
                yield node.id, Use(rank, len(line), line)


def _is_whole(line: str) -> bool:
    """Whether a line says something by itself: a call, an annotation or an assignment, whose brackets are all closed."""
    return bool(re.search("[(:=]", line)) and all(line.count(opened) == line.count(closed) for opened, closed in ("()", "[]", "{}"))


def _documented(body: Sequence[ast.stmt], *, functions: bool = True) -> Mapping[str, str]:
    """Return what the source says of each name, in a paragraph: its docstring, or the text below where it is assigned."""
    found: dict[str, str] = {}
    for node, below in zip(body, [*body[1:], ast.Pass()], strict=True):
        if functions and isinstance(node, ast.FunctionDef | ast.ClassDef):
            found[node.name] = _code((ast.get_docstring(node) or "").split("\n\n")[0])
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            text = below.value.value if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant) else ""
            found[ast.unparse(target)] = _code(str(text).strip())
    return found


def _sentence(text: str) -> str:
    """Return the first sentence of a docstring, of a function what it returns."""
    first = text.partition(". ")[0].removesuffix(".").removeprefix("Return ")
    return f"{first[:1].upper()}{first[1:]}."


def _code(text: str) -> str:
    """Return a docstring's text with code as Markdown writes it."""
    return text.replace("``", "`")


def _head(title: str, about: str) -> Iterator[str]:
    yield f"# {title}"
    yield "<!-- Made by `make docs` from the program; not to be edited. -->"
    yield _wrapped(about)


def _parameter(each: Parameter) -> str:
    return f"`{each.name}`: {each.wanted().removeprefix('one of ')}"


def _default(each: Parameter) -> str:
    if each.required:
        return f"**`{each.name}`**"
    return f"`{each.name}`" if each.default is None else f"`{each.name}={value_text(each.default)}`"


def _value(each: Value) -> str:
    what = f"{each.meaning} ({', '.join(each.points)})" if each.points else each.meaning
    margin = f" by {each.margin:g}" if each.margin else ""
    return _described(f"`{each.name}`", each.unit, f"{each.direction}{margin}" if each.direction else None, what)


def _when(each: Value) -> str:
    found = "; ".join(f"{name} {', '.join(valid)}" for name, valid in each.when.items())
    return f" of {found}" if found else ""


def _described(name: str, unit: Unit, better: str | None, meaning: str) -> str:
    """Return a line on a column, without a unit that its name ends with."""
    facts = [*([] if unit in _PLAIN or name.strip("`").endswith(_ENDINGS.get(unit, "…")) else [unit.value]), *([better] if better else [])]
    return f"{name}{' (' + ', '.join(facts) + ')' if facts else ''}: {meaning}"


def _listed(lines: Iterable[str]) -> str:
    """Return a list of Markdown, a point a line of text."""
    return "\n".join(_wrapped(f"- {' '.join(line.split())}", "  ") for line in lines)


def _paragraphs(text: str) -> list[str]:
    return [each for each in text.split("\n\n") if each.strip()]


def _wrapped(paragraph: str, indent: str = "") -> str:
    return textwrap.fill(" ".join(paragraph.split()), WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def _as_it_stands(paragraph: str) -> str:
    """Return lines that help does not refill as a block: of shell where they are commands."""
    lines = textwrap.dedent(paragraph.removeprefix("\b").strip("\n"))
    language = "sh" if re.match(r"\s*dlbench ", lines) else "text"
    return f"```{language}\n{lines}\n```"


if __name__ == "__main__":
    for name, text in pages().items():
        (FOLDER / name).write_text(text)
    for page, remade in ((FOLDER.parent / "README.md", with_index), (FOLDER.parent / "answers.md", with_tags)):
        page.write_text(remade(page.read_text()))
