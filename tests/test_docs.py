"""The documentation, held against the program: suites are checked, commands parsed, examples run, tables compared."""

import contextlib
import json
import os
import re
import runpy
import shlex
import subprocess
import sys
import tomllib
from dataclasses import fields
from itertools import dropwhile, groupby
from pathlib import Path

import click
import front_door
import pytest
import shared_hosts
from project_files import project_files

from dlbench import models
from dlbench.analysis import answers
from dlbench.cli.defaults import FILE
from dlbench.cli.main import dlbench
from dlbench.cli.options import NETWORK_SUITE
from dlbench.core import files
from dlbench.core.decoding import convert
from dlbench.core.errors import ExitCode
from dlbench.core.files import MAX_BYTES
from dlbench.core.measurement import Measurement
from dlbench.core.model import Policy, Signature, Status
from dlbench.core.stats import median_ranks
from dlbench.harness.plan import cases as planning
from dlbench.harness.plan import suite
from dlbench.harness.plan.suite import compile_expression
from dlbench.harness.progress import MOST_BLOCKS
from dlbench.harness.runner import ask_hello
from dlbench.harness.worker import registry
from dlbench.harness.worker.backends.builtin import CpuBackend, CudaBackend
from dlbench.harness.worker.measuring import measure

ROOT = front_door.ROOT
EXAMPLE = ROOT / "examples" / "my-network" / "my_network.py"
PAGES = {
    name: (ROOT / name).read_text()
    for name in project_files()
    if name == "tests/README.md" or (name.endswith(".md") and name.partition("/")[0] in (name, "docs", "examples"))
}


def blocks(language):
    """Return (page, text) for each fenced block of a language."""
    return [
        pytest.param(page, body, id=f"{page}-{number}")
        for page, text in PAGES.items()
        for number, (found, body) in enumerate(re.findall(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL), 1)
        if found == language
    ]


def named(page):
    """The files that a page shows whole: blocks that begin with a comment that is their name."""
    found = (re.match(r"# (\w+\.(?:py|toml))\n", each.values[1]) for language in ("python", "toml") for each in blocks(language))
    return {match[1]: match.string for match in found if match and match.string in PAGES[page]}


def commands(body):
    """Yield the words behind ``dlbench`` of each such command in a shell block; in a console block only a ``$`` begins one."""
    lines = body.replace("\\\n", " ").splitlines()
    if any(line.startswith("$ ") for line in lines):
        lines = [line[2:] for line in lines if line.startswith("$ ")]
    for line in lines:
        for operator, words in groupby(shlex.split(line, comments=True), {"|", "||", "&&", ";", ">"}.__contains__):
            program, *arguments = dropwhile(re.compile(r"\w+=.*|python3?|-m").fullmatch, words)
            if program == "dlbench" and not operator:
                yield arguments


SHELL = blocks("sh") + blocks("console")
COMMANDS = [pytest.param(command, id=f"{each.values[0]}: {shlex.join(command)}") for each in SHELL for command in commands(each.values[1])]


def table(page, *header):
    """The rows of the table with that header, without backticks."""
    line = f"| {' | '.join(header)} |\n"
    assert PAGES[page].count(line) == 1, f"{page} has one table with the header {line}"
    rows = PAGES[page].split(line)[1].split("\n\n")[0].splitlines()[1:]
    return [[cell.strip().replace("`", "") for cell in re.split(r"(?<!\\)\|", row)[1:-1]] for row in rows]


@pytest.fixture(scope="module")
def hello(tmp_path_factory):
    """What a process says with all that the pages bring, and the example."""
    folder = tmp_path_factory.mktemp("plugins")
    texts = {name: text for page in PAGES for name, text in named(page).items()}
    plugins = {name: text for name, text in texts.items() if re.search(r"^@(workload|dlbench\.)", text, re.MULTILINE)}
    for name, text in plugins.items():
        (folder / name).write_text(text)
    return ask_hello([*(str(folder / name) for name in plugins), str(EXAMPLE)])


@pytest.fixture(scope="module")
def signatures(hello):
    return {each["name"]: convert(Signature, each) for each in hello["signatures"]}


@pytest.mark.parametrize("page", PAGES)
def test_what_a_page_links_to_and_names_is_there_and_its_lines_wrap_at_120(page):
    """Except in code and in tables, and where a line is a single word, such as an address."""
    targets = [each.partition("#") for each in re.findall(r"\]\(([^)\s]+)\)", PAGES[page]) if not re.match(r"[a-z]+:", each)]
    assert [path for path, _, _ in targets if not ((ROOT / page).parent / path).exists()] == []
    there = {path: str(((ROOT / page).parent / path).resolve().relative_to(ROOT)) if path else page for path, _, _ in targets}
    assert [f"{path}#{anchor}" for path, _, anchor in targets if anchor and anchor not in anchors(PAGES[there[path]])] == []
    benchmarks = re.findall(r"python -m benchmarks\.(\w+)", PAGES[page])
    assert [name for name in benchmarks if not (ROOT / "benchmarks" / f"{name}.py").exists()] == []
    text = re.sub(r"^ *```.*?^ *```$|^ *\|[^\n]*$", "", PAGES[page], flags=re.MULTILINE | re.DOTALL)
    assert [line for line in text.splitlines() if len(line) > 120 and " " in line.lstrip(" -*")] == []


def test_pages_that_the_project_and_the_index_name_are_all_there():
    """In docstrings, messages, comments and configuration."""
    sources = (name for name in project_files() if name.endswith((".py", ".toml", ".yml", "Makefile")) and not name.startswith("tests/"))
    named = {(name, page) for name in sources for page in re.findall(r"\bdocs/[\w/-]+\.md", (ROOT / name).read_text())}
    assert sorted(each for each in named if each[1] not in PAGES) == []
    listed = {f"docs/{name}" for name in re.findall(r"\]\(([^)#]+\.md)\)", PAGES["docs/README.md"])}
    assert listed == {page for page in PAGES if page.startswith("docs/")} - {"docs/README.md"}


def anchors(text):
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading).lower().replace(" ", "-") for heading in headings}


def test_every_example_in_python_sql_and_yaml_is_on_a_page_that_is_run():
    python = ("data", "design", "my-network", "results", "workloads")
    assert {each.values[0] for each in blocks("python")} == {f"docs/{name}.md" for name in python}
    assert {each.values[0] for each in blocks("sql")} == {"docs/data.md"}
    assert {each.values[0] for each in blocks("yaml")} == {"docs/ci.md", "docs/export.md"}  # by test_workflows.py
    languages = {language for text in PAGES.values() for language in re.findall(r"^ *```(\w*)\n.*?^ *```$", text, re.MULTILINE | re.DOTALL)}
    assert languages == {"console", "json", "python", "sh", "sql", "text", "toml", "yaml"}
    for each in blocks("python"):
        compile(each.values[1], each.values[0], "exec")
    assert all(json.loads(each.values[1]) for each in blocks("json"))


@pytest.mark.parametrize(("page", "body"), blocks("toml"))
def test_suites_and_files_of_defaults_are_valid(page, body, signatures, tmp_path):
    if "project" in (data := tomllib.loads(body)):
        assert list(data["project"]["entry-points"]) == [registry.ENTRY_POINT_GROUP]
        return
    if body.startswith(f"# {FILE}\n"):
        (tmp_path / FILE).write_text(body)
        assert shared_hosts.dlbench("list", cwd=tmp_path).code == 0
        return
    written = suite.parse(body, page)
    planning.check([written], signatures)
    assert list(planning.plan([written], signatures, ["cpu", "cuda:0"]))


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_are_what_the_command_line_takes(command, signatures):
    with dlbench.make_context("dlbench", command[:0], resilient_parsing=True) as context:
        if not command or command[0].startswith("-"):
            with contextlib.suppress(click.exceptions.Exit):  # --help and --version have done all there is to do
                dlbench.make_context("dlbench", command)
            return
        found = dlbench.get_command(context, command[0])
        assert found is not None, f"there is no command {command[0]}"
        given = found.make_context(command[0], command[1:]).params
    names = given.get("names", ())
    suites_named = [name for name in names if not name.endswith(".py")] or [NETWORK_SUITE for _ in names]
    only = compile_expression(given["expression"]) if given.get("expression") else None
    if suites := suite.load_all([name for name in suites_named if not name.endswith(".toml")]):
        suites = planning.with_settings(suites, given["overrides"], signatures)
        planning.check(suites, signatures)
        assert next(planning.plan(suites, signatures, ["cpu", "cuda:0"], only=only))
    assert [word for word in given.get("device_words", ()) if not re.fullmatch(r"(cpu|cuda|xpu|mps|twin)(:\d+)?", word)] == []


def test_commands_options_and_targets_of_make_in_prose_are_there():
    targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert [name for each in SHELL for name in re.findall(r"^make (\w+)", each.values[1], re.MULTILINE) if name not in targets] == []
    with dlbench.make_context("dlbench", [], resilient_parsing=True) as context:
        for page in PAGES:
            for name, *words in map(str.split, re.findall(r"`dlbench ([^`]+)`", prose(page))):
                found = dlbench if name.startswith("-") or name == "help" else dlbench.get_command(context, name)
                assert found is not None, f"{page}: there is no command {name}"
                options = {option for each in found.get_params(context) for option in each.opts}
                assert {word for word in (name, *words) if word.startswith("-")} <= options, page


def of_page(page, parameters):
    """The blocks of a page."""
    return [each.values[1] for each in parameters if each.values[0] == page]


def run(folder, *command):
    """Run a command, which is to end well."""
    done = shared_hosts.dlbench(*command, cwd=folder)
    assert done.code == 0, f"{command}: {done.err}"


def run_python(folder, *arguments):
    """Run a fresh interpreter, which is to end well."""
    command = [sys.executable, *arguments]
    done = subprocess.run(command, cwd=folder, env=front_door.environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def replay(page, folder):
    """Run every command of a page in a folder that has its files."""
    for command in (words for body in of_page(page, SHELL) for words in commands(body)):
        run(folder, *command)


def write_files_of(page, folder):
    """Write the files that a page shows; a suite has the least of everything, unless it sets its own policy."""
    for name, text in named(page).items():
        (folder / name).write_text(text + front_door.HASTY if name.endswith(".toml") and "[policy]" not in text else text)


@pytest.mark.real
def test_the_workloads_page_runs(tmp_path):
    page = "docs/workloads.md"
    write_files_of(page, tmp_path)
    replay(page, tmp_path)
    ended = {each["case"]["workload"]: each["status"] for path in tmp_path.glob("*.jsonl") for each in front_door.measurements(path)}
    assert ended == dict.fromkeys(("attention", "cold_sum", "steps_to_fit", "gradient"), "ok")
    (tests,) = (name for name in named(page) if name.startswith("test_"))
    run_python(tmp_path, "-m", "pytest", "-q", "-p", "no:cacheprovider", tests)


def test_networks_of_pages_are_imported_once_a_round(hello):
    found = {each["plugin"].rpartition("/")[2]: each["not_once"] for each in hello["trials"]}
    assert found == dict.fromkeys(("mine.py", "more.py", "my_network.py"))


@pytest.mark.real
def test_the_networks_page_runs(tmp_path):
    write_files_of("docs/my-network.md", tmp_path)
    quick = ("--device", "cpu", "--rounds", "1")
    run(tmp_path, "run", "mine.py", "-k", "infer_step and batch=1,", *quick, "-o", "first.jsonl")
    run(tmp_path, "run", "mine.toml", "more.py", "--set", "batch=8", *quick, "-o", "more.jsonl")
    ended = [(each["case"]["id"], each["status"]) for path in sorted(tmp_path.glob("*.jsonl")) for each in front_door.measurements(path)]
    trained = [f"train_step[model={name},batch=8,dtype=fp32,optimizer=own]@cpu" for name in ("words", "masks", "by_name")]
    assert dict(ended) == dict.fromkeys(["infer_step[model=digits,batch=1,dtype=fp32]@cpu", *trained], "ok")


@pytest.mark.real
def test_the_results_page_runs(tmp_path):
    page = "docs/results.md"
    (tmp_path / "twin.py").write_text(named("docs/workloads.md")["twin.py"])
    mine = front_door.suite(tmp_path, 'workload = "matmul"\naxes.n = [8, 16]\naxes.dtype = ["fp32", "bf16"]')
    for name, devices in {"run": ("cpu", "twin"), "cpu": ("cpu",), "gpu": ("twin",)}.items():
        where = [word for device in devices for word in ("--device", device)]
        run(tmp_path, "run", mine, "twin.py", *where, "--rounds", "1", "-o", f"{name}.jsonl")
    finished = tmp_path / re.findall(r"results/quick-\S+\.jsonl", PAGES[page])[0]
    finished.parent.mkdir()
    finished.write_bytes((tmp_path / "cpu.jsonl").read_bytes())
    replay(page, tmp_path)
    for body in of_page(page, blocks("python")):
        run_python(tmp_path, "-W", "error", "-c", body)
    header = front_door.lines(tmp_path / "run.jsonl")[0]
    assert keys(page, "Header keys") == [key for key in header if key != "kind"]
    assert keys(page, "Measurement keys") == [each.name for each in fields(Measurement)]


def section(page, heading):
    """What stands below a heading, up to the next one."""
    return re.split(r"^##+ ", PAGES[page].partition(f"# {heading}\n")[2], maxsplit=1, flags=re.MULTILINE)[0]


def keys(page, heading):
    """The names with which the points of a list begin, each before a colon."""
    return [key for names in re.findall(r"^- (`[^:]+`):", section(page, heading), re.MULTILINE) for key in re.findall(r"`(\w+)`", names)]


@pytest.mark.real
def test_the_data_page_runs(tmp_path):
    import duckdb

    page = "docs/data.md"
    (tmp_path / "run.jsonl").write_bytes((front_door.FILES / "intel-xeon-processor" / "quick.jsonl").read_bytes())
    replay(page, tmp_path)
    run_python(tmp_path, "-W", "error", "-c", "\n".join(of_page(page, blocks("python"))))
    with contextlib.chdir(tmp_path):
        found = [duckdb.sql(body).fetchall() for body in of_page(page, blocks("sql"))]
    assert [len(rows) for rows in found] == [14, 14 * 7]  # cases, and their rounds


def test_the_reference_is_what_make_docs_writes():
    generate = runpy.run_path(str(ROOT / "docs" / "generate.py"))
    made = generate["pages"]()
    assert {name: PAGES[f"docs/reference/{name}"] for name in made} == made, "make docs writes them anew"
    others = {page for page in PAGES if page.startswith("docs/reference/")} - {f"docs/reference/{name}" for name in made}
    assert [page for page in others if not re.search(r"^<!-- (Made by `|python -m benchmarks\.)", PAGES[page], re.MULTILINE)] == []
    assert generate["with_index"](PAGES["docs/README.md"]) == PAGES["docs/README.md"]
    assert generate["with_tags"](PAGES["docs/answers.md"]) == PAGES["docs/answers.md"]


def test_pages_have_every_topic_and_say_how_many_there_are():
    topics = re.findall(r"^- \*\*([\w-]+)\*\*", section("docs/answers.md", "The twelve questions"), re.MULTILINE)
    assert topics == [each.QUESTION.topic for each in files.ordered(answers.__name__)]
    numbers = {"eight": 8, "nine": 9, "ten": 10, "eleven": 11, "twelve": 12}
    pages = [prose(page) for page in PAGES if page != "CHANGELOG.md"]
    assert {numbers[each] for page in pages for each in re.findall(rf"({'|'.join(numbers)}) \[?questions", page)} == {len(topics)}


def test_the_exit_codes_statuses_and_policy_are_those_of_the_program():
    codes = [(int(code), name) for code, name, _ in table("docs/results.md", "code", "name", "meaning")]
    assert codes == [(code.value, code.name) for code in ExitCode]
    for text in (dlbench.help, PAGES.get("README.md", "").partition("## Exit codes")[2]):
        codes = [int(code) for code in re.findall(r"(?:^|[,:·/] )(\d+)\b", text.replace("\n", " ").partition("Never")[0])]
        assert set(codes) <= set(ExitCode)
    rows = table("docs/results.md", "status", "meaning", "fails the run")
    assert [(status, fails == "yes") for status, _, fails in rows] == [(each.value, each.is_failure) for each in Status]
    policy = [(key, default) for key, default, _ in table("docs/suites.md", "key", "default", "meaning")]
    assert [key for key, _ in policy] == [each.name for each in fields(Policy)]
    assert [None if text in ("none", "by device") else float(text) for _, text in policy] == [each.default for each in fields(Policy)]


def test_the_list_of_suites_has_what_each_plans_and_no_page_counts_their_cases_by_hand(signatures):
    listed = re.findall(r"^- `(\w+)` \((\d+)/(\d+), ", PAGES["docs/reference/suites.md"], re.M)
    assert [name for name, _, _ in listed] == suite.builtin_names()
    for name, *counts in listed:
        # One network of a user's, of those that the pages have.
        suites = planning.with_settings([suite.load(name)], ["model=digits"] if name == NETWORK_SUITE else (), signatures)
        planned = [case.device for case in planning.plan(suites, signatures, ["cpu", "cuda:0"])]
        assert counts == [str(planned.count("cpu")), str(planned.count("cuda:0"))]
    for page in ("README.md", "docs/suites.md", "docs/tutorial.md"):
        assert re.findall(r"(?<![\d,])\d+ cases", prose(page)) == []  # the most that can be planned is no suite's
    # The log of docs/results.md begins with all cases of quick, and the table of docs/ci.md has them.
    (of_quick,) = (cpu for name, cpu, _ in listed if name == "quick")
    assert {*re.findall(r"^round 1 of \d+, (\d+) cases left", PAGES["docs/results.md"], re.MULTILINE)} == {of_quick}
    assert re.findall(r"^\| `quick` \| (\d+) \|", PAGES["docs/ci.md"], re.MULTILINE) == [of_quick]


def test_the_kinds_of_line_are_those_that_files_hold(tmp_path):
    """Each of them is known to what reads a file, and a run of an earlier version has no other."""
    listed = [kind for kind, *_ in table("docs/results.md", "`kind`", "when", "content")]
    run = front_door.FILES / "intel-xeon-processor" / "quick.jsonl"
    assert {line["kind"] for path in front_door.FILES.rglob("*.jsonl") for line in front_door.lines(path)} <= {*listed}
    for kind in (*listed, "comment"):
        (tmp_path / f"{kind}.jsonl").write_bytes(run.read_bytes() + json.dumps({"kind": kind}).encode() + b"\n")
        said = shared_hosts.dlbench("show", f"{kind}.jsonl", "--format", "json", cwd=tmp_path).err
        assert ("no line of dlbench is called" in said) is (kind == "comment"), said


def prose(page):
    """A page's text on one line, without code."""
    return " ".join(re.sub(r"^ *```.*?^ *```$", "", PAGES[page], flags=re.MULTILINE | re.DOTALL).split())


def test_the_documentation_has_48000_words_and_the_readme_90_lines_at_most():
    """As ``wc -w`` counts them, generated pages included: what is added is paid for by cuts, and each thing is said once."""
    counts = {page: len(text.split()) for page, text in PAGES.items() if page == "README.md" or page.startswith("docs/")}
    assert sum(counts.values()) <= 48_000, sorted(counts.items(), key=lambda each: -each[1])
    assert len(PAGES.get("README.md", "").splitlines()) <= 90


def test_rates_of_tools_are_those_of_the_replay():
    """docs/validation.md repeats some of docs/reference/validation.md."""
    shown = table("docs/validation.md", "rule", "identical suites of six called slower", "sees a real +5 %", "+10 %", "tail")
    rows = [line.strip("| ").split(" | ") for line in PAGES["docs/reference/validation.md"].splitlines()]
    replayed = {row[0].partition(": ")[0]: [f"{row[at].partition(' (')[0]} %" for at in (4, 8, 9, 10)] for row in rows if len(row) > 10}
    assert {rule: replayed[rule] for rule, *_ in shown} == {rule: rates for rule, *rates in shown}
    assert len(shown) == 7


def test_the_numbers_of_the_protocol_and_of_suites_are_those_of_the_program():
    of_suites = [f"{MAX_BYTES:,}", f"{planning.MAX_CASES:,}", f"exponents from 0 to {suite.MAX_POWER}"]
    of_the_protocol = [
        f"If it takes more than {measure.SLOW_CALL_S} s",
        f"if the third is within {measure.WARM_CALLS_AGREE * 100:g} % of it",
        f"at least {CpuBackend.warmup_s} s and {CpuBackend.warmup_calls} calls on a CPU",
        f"{CudaBackend.warmup_s} s and {CudaBackend.warmup_calls} calls on an accelerator",
        f"medians within {measure.STEADY_SHIFT * 100:g} % of each other",
        f"is below {measure.STEADY_TREND[measure.WINDOW]}",
        f"Of blocks longer than {measure.LONG_BLOCK_S * 1e3:g} ms six",
        f"tau below {measure.STEADY_TREND[measure.SHORT_WINDOW]}",
        f"After {Policy().max_warmup_s:g} s the case is measured all the same",
        f"at least {CpuBackend.block_s * 1e3:g} ms on a CPU and {CudaBackend.block_s * 1e3:g} ms on an accelerator",
        f"and {measure.MOST_CALLS:,} at most",
        f"At least {Policy().min_blocks} and at most {Policy().max_blocks}. From {Policy().min_blocks} on",
        f"when {Policy().round_s:g} s was spent in blocks",
        f"then with at most {MOST_BLOCKS} blocks",
        f"wider than ±{Policy().target * 100:g} %, up to {Policy().max_rounds} rounds each",
        f"A case has {Policy().timeout_s:g} s in each round",
        f"of more than {models.BLOCK:,} values",
    ]
    for page, phrases in (("docs/suites.md", of_suites), ("docs/protocol.md", of_the_protocol)):
        assert [phrase for phrase in phrases if phrase not in " ".join(PAGES[page].split())] == []
    for rounds, ends, coverage in table("docs/protocol.md", "rounds", "from … to", "coverage"):
        rank, exact = median_ranks(int(rounds), 0.95)
        assert (rank, f"{exact * 100:.1f} %") == (int((re.match(r"\d+", ends) or ["1"])[0]), coverage)


# Runs at the start of every Python process of the walk, the measuring one's, too, and notes each function of dlbench that is called;
# calls while a module is imported are of no case.
NOTING = """
import os, sys, threading
noted = os.open(os.environ["CALLED"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
seen = set()

def importing(frame):
    while frame is not None:
        path = frame.f_code.co_filename
        if frame.f_code.co_name == "<module>" and "/dlbench/" in path and os.path.basename(path) not in ("__main__.py", "main.py"):
            return True
        frame = frame.f_back

def note(frame, event, _):
    code = frame.f_code
    if event == "call" and code not in seen and "/dlbench/" in code.co_filename and code.co_flags & 1 and not importing(frame):
        seen.add(code)
        os.write(noted, code.co_filename.encode() + b"\\n")

sys.setprofile(note)
threading.setprofile(note)
"""


@pytest.mark.real
def test_one_case_from_the_command_to_its_row_calls_few_modules_and_all_stations_of_the_design(tmp_path):
    text = section("docs/design.md", "One case, from suite to table").partition("```")[0]
    stations = [f"dlbench/{path}" for path in re.findall(r"`([a-z_/]+\.py)`", text)]
    assert 20 <= len(set(stations)) == len(stations) == int(re.search(r"stations of one .*, (\d+) files", text)[1]) <= 25
    (tmp_path / "sitecustomize.py").write_text(NOTING)
    variables = {"CALLED": str(tmp_path / "called"), "PYTHONPATH": os.pathsep.join([str(tmp_path), front_door.environment()["PYTHONPATH"]])}
    words = ("run", front_door.suite(tmp_path, 'workload = "matmul"\naxes.n = 16'), "--device", "cpu", "--rounds", "1", "--format", "csv")
    assert front_door.dlbench(*words, cwd=tmp_path, variables=variables).code == 0
    called = {Path(line) for line in (tmp_path / "called").read_text().splitlines()}
    modules = {path.relative_to(ROOT).as_posix() for path in called if path.is_relative_to(ROOT)}
    assert sorted({*stations} - modules) == ["dlbench/analysis/report/terminal.py"]  # csv is the row without its table
    assert len(modules - {"dlbench/analysis/report/sentences.py"}) <= 80  # which tells how to measure again on a busy machine


def test_the_index_of_test_helpers_has_every_one():
    listed = re.findall(r"^\| `([\w/]+\.py)` \|", PAGES["tests/README.md"], re.MULTILINE)
    helpers = [name for name in project_files() if re.match(r"tests/(.*/)?(?!test_)[\w]+\.py$", name)]
    assert sorted(listed) == sorted(name.removeprefix("tests/") for name in helpers)


def test_no_file_tells_where_it_was_made():
    # Made-up people are somebody and private-user.
    folder = re.compile(rb"/(?:home|root|Users|work)/(?!some|private-user)[\w.]")
    assert [name for name in project_files() if folder.search((ROOT / name).read_bytes())] == []


def test_every_name_that_authors_import_has_an_example():
    listed = PAGES["docs/reference/authors.md"].partition("\n## ")[0].split("\n- ")[1:]
    assert len(listed) > 40
    assert [each for each in listed if not each.strip().endswith("`")] == []
