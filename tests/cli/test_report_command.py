"""``dlbench report`` and the page of ``dlbench compare``, as a user calls them."""

import base64
import hashlib
import json
import re
import shlex
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import front_door
import made_up
import pytest
import shared_hosts
from front_door import in_process
from html_page import Page

from dlbench import __version__
from dlbench.analysis.answers.engine.question import EXPLANATIONS
from dlbench.analysis.read.table import collect
from dlbench.analysis.report.sentences import measuring_command
from dlbench.cli.output_files import create
from dlbench.core.errors import UsageError
from dlbench.core.model import Status
from dlbench.core.rows.columns import Identity
from dlbench.core.rows.row import Row

EARLIER = front_door.FILES / "intel-xeon-processor"


Snapshot = Callable[[str, str], None]
HOSTILE = "</script><script>alert(1)</script><!--\"'`&\x1b[31m\u202e" + "y" * 10_000
ENVIRONMENT = {
    "machine_key": "k1",
    "identity": {"os": "Linux", "cpu": {"name": made_up.CPU, "memory_bytes": 1 << 34}},
    "stack": {"versions": {"torch": "2.13.0"}},
    "state": {"cpu": {"load_1min": 0.5, "clock_hz": 2e9}},
    "provenance": {
        "dlbench": "0.1.0",
        "utc": "2026-11-24T23:10:39+00:00",
        "command": [["run", "quick"], ["--rounds", "7"], ["-k", "resnet"]],
    },
}


def hashed(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def saved(folder: Path, *arguments: str, name: str = "") -> Page:
    done = in_process(folder, "report", *arguments)
    assert (done.code, done.out) == (0, "")
    return Page((folder / (name or Path(arguments[0]).with_suffix(".html"))).read_text())


def write_run(folder: Path) -> Path:
    state = {"cpu": {"load_1min": 2.5, "clock_hz": 2e9}}
    return made_up.write(folder / "run.jsonl", made_up.both_kinds(), environment=ENVIRONMENT, state=state)


@pytest.fixture
def run_file(tmp_path: Path) -> Path:
    return write_run(tmp_path)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Page:
    """The page on that file, for tests that only read it."""
    folder = write_run(tmp_path_factory.mktemp("page")).parent
    done = in_process(folder, "report", "run.jsonl")
    assert (done.code, done.out, done.err) == (0, "", "saved in run.html\n")
    return Page((folder / "run.html").read_text())


def plain(page: Page) -> str:
    """What a page says: each text behind the tag that it is right below, a row of a table on a line, and the labels of what is drawn."""
    lines: list[str] = []
    for tag, each in page.texts:
        text = " ".join(each.replace(__version__, "VERSION").split())
        if tag == "tr" and not each:
            lines.append("")
        elif tag in ("td", "th") and text:
            lines[-1] += f"| {text} "
        elif tag not in ("style", "text") and text:
            lines.append(f"{tag}: {text}")
    return "\n".join([*map(str.rstrip, lines), f"drawn: {', '.join(sorted({*page.all('text')}))}", ""])


def test_the_page_begins_with_the_answers_and_has_every_case_and_the_environment(page: Page, run_file: Path, snapshot: Snapshot) -> None:
    snapshot("report-page", plain(page))
    assert page.contents("html") == [{"lang": "en"}]
    found = json.loads(in_process(run_file.parent, "show", "run.jsonl", "--topic", "all", "--format", "json").out)["answers"]
    ids = [f"answer-{each['question']['topic']}" for each in found]
    assert sorted(str(each["id"]) for each in page.contents("section") + page.contents("li") if each.get("id")) == sorted(ids)
    lines = [str(each["href"]) for each in page.contents("a") if str(each["href"]).startswith("#answer-")]
    assert lines == [f"#{each}" for each in ids if each in ("answer-speed-up", "answer-precision", "answer-batch")]
    for each in found:
        if each["kind"] == "answer":
            assert (each["headline"], " ".join(each["sentences"])) in pairwise(page.all("p"))
            assert set(each["weaknesses"]) <= set(page.all("li"))
            explained = dict(zip(page.all("dt"), page.all("dd"), strict=True))
            assert {tag: EXPLANATIONS[tag] for tag in each["tags"]}.items() <= explained.items()


def test_the_page_draws_rounds_of_twenty_cases(tmp_path: Path) -> None:
    many = [made_up.case("matmul", n=n) for n in range(1, 24)]
    made_up.write(tmp_path / "many.jsonl", [each for case in many for each in made_up.rounds_of(case, made_up.flat([1.0] * 7))])
    crowded = saved(tmp_path, "many.jsonl")
    assert any(line.endswith("Drawn are the 20 of 23 cases that most answers rest on.") for line in crowded.all("p"))


def test_the_page_loads_nothing_and_runs_nothing(page: Page) -> None:
    (style,) = page.all("style")
    whole = next(text for tag, text in page.texts if tag == "style" and text)
    assert page.policy == f"default-src 'none'; style-src {hashed(whole)}; base-uri 'none'; form-action 'none'"
    assert "url(" not in style
    assert page.contents("script") == []
    attributes = [attribute for _, each in page.tags for attribute in each.items()]
    assert [value for name, value in attributes if name in ("src", "href", "action", "data") and not str(value).startswith("#")] == []
    assert [name for name, _ in attributes if name.startswith("on") or name == "style"] == []
    ids = [value for name, value in attributes if name == "id"]
    assert len(ids) == len(set(ids))


def test_hostile_names_change_nothing_but_their_own_text(tmp_path: Path) -> None:
    pages = []
    for name, word in (("good", "word"), ("bad", HOSTILE)):
        cases = [made_up.case("train_step", device, suite=word, model=word, dtype="fp32") for device in ("cpu", "cuda:0")]
        rounds = [made_up.renamed(each, word, 2) for case in cases for each in made_up.rounds_of(case, made_up.flat(made_up.SEVEN))]
        environment = {"identity": {word: word}, "stack": {word: [word]}, "provenance": {"argv": ["dlbench", "run", word], "utc": word}}
        made_up.write(tmp_path / f"{name}.jsonl", rounds, environment=environment)
        pages.append(saved(tmp_path, f"{name}.jsonl"))
    good, bad = ([tag for tag, _ in page.tags if tag not in ("g", "path", "line", "text", "tspan")] for page in pages)
    assert good == bad
    said = "".join(text for tag, text in pages[1].texts if tag not in ("script", "style"))
    assert not {"\x1b", "\u202e"} & {*said}
    assert "<script><!--\"'`&[31m" + "y" * 10_000 in said  # what stands before looks like folders of a path


def test_little_is_a_page_as_well(tmp_path: Path) -> None:
    failed = [made_up.ended(made_up.case("noop"), Status.FAILED, "it is odd")]
    one = made_up.rounds_of(made_up.case("noop"), [[0.5]])
    for name, measurements, sentence in (("0", [], "0 cases"), ("1", one, "1 case, 1 round"), ("2", failed, "1 case (1 failed)")):
        made_up.write(tmp_path / f"{name}.jsonl", measurements)
        assert sentence in " ".join(saved(tmp_path, f"{name}.jsonl").all("p"))
    # A number larger than any is shown as it stands.
    identity = {"os": "Linux", "cpu": {"memory_bytes": 10**400}}
    made_up.write(tmp_path / "run.jsonl", made_up.both_kinds(), environment={**ENVIRONMENT, "identity": identity})
    assert str(10**400) in saved(tmp_path, "run.jsonl").all("td")


def test_files_of_different_machines_share_a_page(run_file: Path) -> None:
    other = [made_up.renamed(each, "AMD EPYC 9654", 8) for each in made_up.both_kinds()[:14]]
    made_up.write(run_file.parent / "other.jsonl", other, environment={**ENVIRONMENT, "identity": {"os": "BSD"}})
    page = saved(run_file.parent, "run.jsonl", "other.jsonl", "-o", "both.html", name="both.html")
    assert page.all("h1") == ["quick on AMD EPYC 7B13, NVIDIA H200, AMD EPYC 9654"]
    assert [each for each in page.all("summary") if each.startswith("Machine")] == [
        f"Machine, software and state of {name}" for name in ("run", "other")
    ]


def test_an_output_that_exists_or_cannot_be_written_is_refused(run_file: Path) -> None:
    folder, long, by = run_file.parent, f"{'a' * 300}.html", "compare run.jsonl --by dtype --report"
    (folder / "there.html").write_text("mine")
    (folder / "link.html").symlink_to("nowhere.html")
    before = sorted(path.name for path in folder.iterdir())
    no_folder = "there is no folder there.html to write page.html in; make it, or choose another"
    for words, code, sentence in (
        ("report run.jsonl -o there.html", 2, "there.html exists and is never overwritten; choose another name"),
        ("report run.jsonl -o there.html/page.html", 2, no_folder),
        ("report run.jsonl -o link.html", 2, "link.html exists and is never overwritten; choose another name"),
        (f"report run.jsonl -o {long}", 74, f"cannot write {long}: File name too long"),
        (f"{by} {long}", 74, f"cannot write {long}: File name too long"),
        (f"{by} x --junit x", 2, "--junit and --report both name x; give each a file of its own"),
        (f"{by} x --verdict ./new/../x", 2, "--verdict and --report both name x; give each a file of its own"),
    ):
        assert in_process(folder, *words.split()) == front_door.Done(code, "", f"dlbench: {sentence}\n")
    assert (sorted(path.name for path in folder.iterdir()), (folder / "there.html").read_text()) == (before, "mine")


def test_a_page_is_called_like_its_run_and_replaces_only_one_on_that_run(tmp_path: Path) -> None:
    for name in ("run", "a & b"):
        made_up.write(tmp_path / f"{name}.jsonl", made_up.rounds_of(made_up.case("noop"), [[0.5]]))
    (tmp_path / "run.html").write_text("mine")
    refused = front_door.Done(2, "", "dlbench: run.html exists and is never overwritten; choose another name\n")
    assert in_process(tmp_path, "report", "run.jsonl") == refused
    saved(tmp_path, "a & b.jsonl")
    (tmp_path / "a & b.jsonl").unlink()
    made_up.write(tmp_path / "a & b.jsonl", [made_up.ended(made_up.case("noop"), Status.FAILED, "it is odd")])
    assert "1 case (1 failed)" in " ".join(saved(tmp_path, "a & b.jsonl").all("p"))
    (tmp_path / "a & b.html").replace(tmp_path / "run.html")  # which is the page on another run
    assert in_process(tmp_path, "report", "run.jsonl") == refused
    assert in_process(tmp_path, "report", "a & b.jsonl", "-o", "run.html").code == 2
    for _ in range(2):
        assert in_process(tmp_path, "report", "run.jsonl", "a & b.jsonl").err == "saved in report.html\n"
    assert in_process(tmp_path, "report", "run.jsonl", "-o", "report.html").code == 2


def test_no_half_of_a_file_stays_behind_nor_takes_the_place_of_another(tmp_path: Path) -> None:
    with pytest.raises(TypeError):
        create(tmp_path / "page.html", "no bytes")  # type: ignore[arg-type]  # which is found out once the file is open
    assert not list(tmp_path.iterdir())
    create(tmp_path / "page.html", b"mine")
    with pytest.raises(UsageError, match="exists and is never overwritten"):  # it came after the options were checked
        create(tmp_path / "page.html", b"another")
    assert (tmp_path / "page.html").read_bytes() == b"mine"


def test_a_header_of_odd_provenance_is_one_that_does_not_say(run_file: Path) -> None:
    for number, provenance in enumerate(("text", ["a", "list"], {"command": "text", "utc": {}}, {"command": [1, []]})):
        environment = {**ENVIRONMENT, "provenance": provenance}
        results = collect([made_up.write(run_file.parent / f"{number}.jsonl", made_up.both_kinds(), environment=environment)])
        case_id = results.rows[0].case.id
        assert measuring_command(results.rows, results.environments[str(number)], case_id) == f"dlbench run quick -k '{case_id}'"
        done = in_process(run_file.parent, "compare", "run.jsonl", f"{number}.jsonl")
        assert (done.out.endswith("; exit 0\n"), "was measured by dlbench" in done.err) == (True, False)


def test_figures_are_files_of_their_own(run_file: Path) -> None:
    done = in_process(run_file.parent, "report", "run.jsonl", "-o", "one.html", "--figures", "one")
    assert done == front_door.Done(0, "", "saved in one.html, and 7 figures in one\n")
    names = ("batch", "batch-2", "batch-3", "precision", "samples", "speed-up", "speed-up-2")
    assert sorted(path.name for path in (run_file.parent / "one").iterdir()) == sorted(f"{name}.svg" for name in names)


def test_a_missing_package_is_one_sentence(run_file: Path) -> None:
    by = ("compare", "run.jsonl", "--by", "dtype", "--report", "page.html")
    for name, command in (("vl_convert", ("report", "run.jsonl")), ("jinja2", by)):
        done = front_door.dlbench(*command, cwd=run_file.parent, variables=front_door.without(run_file.parent, name))
        sentence = "dlbench: a page needs vl-convert-python and Jinja2: pip install '.[report]' in a clone\n"
        assert done == front_door.Done(2, "", sentence)
        assert not list(run_file.parent.glob("*.html"))
        (run_file.parent / "hiding" / f"{name}.py").unlink()


def test_a_comparison_has_the_worst_case_first(tmp_path: Path, snapshot: Snapshot) -> None:
    times = made_up.flat(made_up.SEVEN * 2)
    base = [each for n in (1, 2, 3) for each in made_up.rounds_of(made_up.case("matmul", n=n, dtype="fp32"), times)]
    new = [made_up.scaled(each, {1: 1, 2: 1.5, 3: 0.5}[each.case.params["n"]]) for each in base]
    done = front_door.compared(tmp_path, base, new, "--report", "page.html", environment=ENVIRONMENT)
    assert (done.code, done.err.splitlines()[-1]) == (3, "saved in page.html")
    snapshot("report-comparison", plain(Page((tmp_path / "page.html").read_text())))


def planned(command: str, folder: Path) -> list[str]:
    """What the command plans, by what it and ``list`` have in common."""
    (dlbench, run, *words) = shlex.split(re.sub(r" --(rounds|seed) \d+", "", command))
    assert (dlbench, run) == ("dlbench", "run")
    done = shared_hosts.dlbench("list", *words, "--format", "json", cwd=folder)
    assert done.code == 0, done.err
    return [each["id"] for each in json.loads(done.out)]


def again(*paths: Path) -> list[tuple[str, str]]:
    """Each case of result files, and the command that measures it again."""
    results = collect(paths)
    return [(row.case.id, measuring_command([row], results.environments[row.file], row.case.id)) for row in results.rows]


def test_each_command_plans_its_case_alone(tmp_path: Path) -> None:
    for case, command in again(*(EARLIER / f"{name}.jsonl" for name in ("quick", "scaling")))[::40]:
        assert planned(command, tmp_path) == [case]


def test_a_command_names_the_suite_file_the_axes_of_the_user_and_what_defaults_set(tmp_path: Path) -> None:
    bench = 'workload = "spin"\naxes.seconds = [0.001, 0.01]'
    suite = front_door.suite(tmp_path, bench, 'workload = "noop"', name="my own")
    shared_hosts.run(tmp_path, suite, "--device", "cpu", "--set", "seconds=0.001,0.002,0.02", "--rounds", "1")
    for case, command in again(tmp_path / "o.jsonl"):
        assert (planned(command, tmp_path), "'my own.toml'" in command) == ([case], True)
    (tmp_path / "o.jsonl").unlink()
    (tmp_path / "dlbench.toml").write_text("[run]\nset = 'seconds=0.002,0.02'\nrounds = 1\ndevice = 'cpu'\n")
    shared_hosts.run(tmp_path, front_door.suite(tmp_path, bench), "--seed", "1")
    for case, command in again(tmp_path / "o.jsonl"):
        assert command.partition(" -k")[0] == "dlbench run mine.toml --set seconds=0.002,0.02 --device cpu --rounds 1 --seed 1"
        assert planned(command, tmp_path) == [case]


def test_a_command_chooses_one_case() -> None:
    of_case = Identity("matmul[text=rock and roll]@cuda:0", "mine", "matmul", "cuda:0", status=Status.OK, run="run")
    row = Row(of_case, {})

    def command(*words: list[str], case_id: str | None = row.case.id) -> str:
        return measuring_command([row], {"provenance": {"command": [*words]}} if words else {}, case_id)

    assert command() == "dlbench run mine -k 'matmul[text=rock and roll]@cuda:0'"
    ab = (["ab", "matmul"], ["--b", "env=A=1 2"], ["--confirm"], ["-k", "fp32"], ["--rounds", "7"])
    assert command(*ab) == "dlbench ab matmul --b 'env=A=1 2' --confirm --rounds 7 -k 'matmul[text=rock and roll]@cuda:0'"
    whole = "dlbench ab matmul --b 'env=A=1 2' --confirm -k fp32 --rounds 7"
    assert command(*ab, case_id=None) == whole
