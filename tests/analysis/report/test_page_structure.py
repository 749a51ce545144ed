"""What stands where on the page of ``dlbench report``, whatever the files are, which names it shows, and the figure of rounds."""

import json
import shutil
import subprocess
from itertools import pairwise
from pathlib import Path
from typing import Any

import front_door
import made_up
import pytest
from html_page import Page

from dlbench.analysis.answers import answers
from dlbench.analysis.answers.engine.question import Answer
from dlbench.analysis.presentation.columns import Figure
from dlbench.analysis.read.table import collect
from dlbench.analysis.report.page import rounds_figures
from dlbench.core.measurement import Measurement
from dlbench.core.model import Status

LONG = "<b>\"it's\" & 'that'</b>" + "n" * 180
NOOP = made_up.rounds_of(made_up.case("noop"), [[0.5]])
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def steps(suite: str = "quick", **params: Any) -> list[Measurement]:
    """Two training steps, seven rounds of each."""
    cases = [made_up.case("train_step", suite=suite, **params, batch=batch, dtype="fp32") for batch in (8, 64)]
    return [each for case in cases for each in made_up.rounds_of(case, made_up.flat(made_up.SEVEN))]


def saved(folder: Path, *files: Path, name: str = "page.html") -> Page:
    front_door.in_process(folder, "report", *map(str, files), "-o", name)
    return Page((folder / name).read_text())


def words(page: Page) -> str:
    """All that a reader, or a search in the file, may find, apart from style sheet and drawings."""
    attributes = [value for _, each in page.tags for name, value in each.items() if name in ("aria-label", "content", "id", "href")]
    return "\n".join([*(text for tag, text in page.texts if tag != "style"), *filter(None, attributes)])


def test_every_answer_is_a_section_with_its_plot_below_it_and_all_else_is_folded(tmp_path: Path) -> None:
    page = saved(tmp_path, made_up.write(tmp_path / "run.jsonl", made_up.both_kinds()))
    found = json.loads(front_door.in_process(tmp_path, "show", "run.jsonl", "--topic", "all", "--format", "json").out)["answers"]
    figures = {each["question"]["topic"]: len(each["figures"]) for each in found if each["kind"] == "answer"}
    assert [topic for topic, drawn in figures.items() if drawn] == ["speed-up", "precision", "batch"] == [*figures][:-2]
    in_order = [name for topic, drawn in figures.items() for name in (f"answer-{topic}", topic)[: 1 + bool(drawn)]]
    assert [str(each["id"]) for tag, each in page.unfolded if tag in ("section", "figure") and each.get("id")] == [*in_order, "samples"]
    assert [tag for tag, _ in page.unfolded if tag in ("section", "table")] == ["section"] * (1 + len(figures) + 4)
    commands = [each for each in page.all("code") if " -k " in each]
    assert (len(commands), page.all("summary").count("Commands that measure each case again")) == (8, 1)
    assert len(page.contents("figure")) == sum(figures.values()) + 1  # the rounds of all eight cases


ODD: dict[str, list[list[Measurement]]] = {
    "long names and markup": [[made_up.renamed(each, LONG, 2) for each in steps(LONG, model=LONG)]],
    "ten machines": [[made_up.renamed(each, f"machine {n}", n) for each in steps(LONG, model=LONG)[:7]] for n in range(10)],
    "one case": [NOOP],
    "failures alone": [[made_up.ended(made_up.case("noop"), Status.FAILED, f"{LONG} is odd")]],
    "nothing": [[]],
}
"""Files of a kind that a page has to bear."""


@pytest.mark.parametrize("kind", ODD)
def test_odd_files_make_a_page_that_holds_the_same(tmp_path: Path, kind: str) -> None:
    machines = [{"identity": {"cpu": {"name": f"machine {n}"}}, "stack": {"threads": n}} for n in range(len(ODD[kind]))]
    files = [
        made_up.write(tmp_path / f"my folder {n}" / "run.jsonl", run, environment=machine)
        for n, (run, machine) in enumerate(zip(ODD[kind], machines, strict=True))
    ]
    page = saved(tmp_path, *files)
    links = [str(each["href"]) for each in page.contents("a")]
    tiles = [each for each in links if each.startswith("#answer-")]
    assert tiles == [f"#answer-{each.question.topic}" for each in answers(collect(files)) if isinstance(each, Answer) and each.lines]
    ids = [str(each["id"]) for _, each in page.tags if each.get("id")]
    assert len(ids) == len(set(ids))
    assert {each[1:] for each in links} <= set(ids)
    assert (len(page.all("h1")), page.all("h2")[0], page.all("h2")[-1]) == (1, "Answers", "Warnings")
    assert [tag for tag, _ in page.tags if tag in ("b", "table")] == ["table"] * len(page.contents("table"))
    assert [each for each in (str(tmp_path), "my folder") if each in words(page)] == []
    assert [f"run {n}" in page.all("td") for n in range(1, 11)] == [len(files) == 10] * 10
    # Cases are unfolded where none was measured.
    before, _ = next((pair for pair in pairwise(page.tags) if pair[1] == ("summary", {"id": "cases"})), (None, None))
    assert before == {"nothing": None, "failures alone": ("details", {"open": None})}.get(kind, ("details", {}))


@pytest.mark.parametrize(
    ("suite", "days", "title"),
    [
        ("quick", ["24"], "quick on AMD EPYC 7B13, 2026-11-24 23:10 UTC · dlbench"),
        ("cnn", ["24", "22"], "cnn on AMD EPYC 7B13, 2026-11-22 to 2026-11-24 · dlbench"),
    ],
)
def test_the_title_distinguishes_pages(tmp_path: Path, suite: str, days: list[str], title: str) -> None:
    run = made_up.rounds_of(made_up.case("noop", suite=suite), [[0.5]])
    times = {day: {"provenance": {"utc": f"2026-11-{day}T23:10:39+00:00"}} for day in days}
    files = [made_up.write(tmp_path / f"{day}.jsonl", run, environment=environment) for day, environment in times.items()]
    assert saved(tmp_path, *files).all("title")[0] == title


def test_no_folder_of_the_user_is_in_a_plot(tmp_path: Path) -> None:
    made_up.write(tmp_path / "run.jsonl", steps(model="/home/somebody/secret/net.py"))
    front_door.in_process(tmp_path, "report", "run.jsonl", "-o", "page.html", "--figures", "figures")
    written = [tmp_path / "page.html", *(tmp_path / "figures").iterdir()]
    assert [each.name for each in written if "somebody" in each.read_text()] == []
    assert "model=net.py fp32" in Page(written[0].read_text()).all("text")


def test_no_folder_of_the_user_is_on_the_page(tmp_path: Path) -> None:
    environment = {
        "identity": {"os": "Linux", "cpu": {"governor": "/sys/devices/system/cpu says so"}},
        "stack": {"python": "/home/somebody/venv/bin/python"},
        "provenance": {"command": [["run", "/home/somebody/suites/mine.toml", "/srv/secret project/networks.py", "/secret/p.py"]]},
    }
    reason = "no such file: '/home/somebody b/secret/x y.bin', nor /root/some/secret/z"
    reason += ', error:/home/somebody/a.py, file:///home/somebody/secret/b.py, "/home/somebody b/the secret/c d", https://pytorch.org/e/f'
    run = [*steps(model="resnet18")[:7], made_up.ended(made_up.case("noop"), Status.FAILED, reason)]
    cut = made_up.write(tmp_path / "secret place" / "of mine" / "run.jsonl", run, planned=3, finished=False, environment=environment)
    page = saved(tmp_path, cut)
    whole = (tmp_path / "page.html").read_text()
    assert [word for word in ("secret", "somebody", "of mine", tmp_path.name) if word in whole] == []
    case_id = "'train_step[model=resnet18,batch=8,dtype=fp32]@cpu'"
    assert f"dlbench run mine.toml 'networks.py' p.py -k {case_id}" in page.all("code")
    assert "no such file: 'x y.bin', nor z, error:a.py, b.py, \"c d\", https://pytorch.org/e/f" in page.all("p")
    note = "run.jsonl: the run was interrupted or is still going on, at 2 of 3 planned cases"
    assert f"{note}; continue it with: dlbench run --resume run.jsonl" in page.all("li")
    assert {"python", "/sys/devices/system/cpu says so"} <= set(page.all("td"))


def test_a_page_on_a_folder_is_known_again_and_does_not_name_it(tmp_path: Path) -> None:
    for folder in ("secret", "other"):
        made_up.write(tmp_path / folder / "run.jsonl", NOOP)
    for _ in range(2):
        assert front_door.in_process(tmp_path, "report", "secret").err.splitlines()[-1] == "saved in report.html"
    assert "secret" not in (tmp_path / "report.html").read_text()
    assert front_door.in_process(tmp_path, "report", "other").code == 2


@pytest.mark.real
@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
@pytest.mark.parametrize(
    "command", [("report", "run.jsonl", "-o", "page.html"), ("compare", "run.jsonl", "--by", "dtype", "--report", "page.html")]
)
def test_a_browser_refuses_nothing(tmp_path: Path, command: tuple[str, ...]) -> None:
    hostile = "</script><script>console.log('ran')</script><!-- ${7*7}"
    cases = [made_up.case("train_step", "cpu", model=hostile, batch=batch, dtype=dtype) for batch in (1, 8) for dtype in ("fp32", "bf16")]
    made_up.write(tmp_path / "run.jsonl", [each for case in cases for each in made_up.rounds_of(case, made_up.flat(made_up.SEVEN * 2))])
    front_door.in_process(tmp_path, *command)
    switches = ["no-sandbox", "disable-gpu", "disable-quic", "no-first-run", "disable-background-networking", "disable-component-update"]
    switches += ["headless", "disable-sync", "enable-logging=stderr", f"user-data-dir={tmp_path / 'profile'}", "dump-dom"]
    browser = [str(CHROMIUM), *(f"--{each}" for each in switches), (tmp_path / "page.html").as_uri()]
    done = subprocess.run(browser, capture_output=True, text=True, check=True, timeout=60)
    assert [line for line in done.stderr.splitlines() if "CONSOLE" in line] == []
    assert "AMD EPYC 7B13</h1>" in done.stdout


def rounds_figure(folder: Path, measurements: list[Measurement], name: str = "run") -> list[Figure]:
    results = collect([made_up.write(folder / f"{name}.jsonl", measurements)])
    return rounds_figures(results, answers(results))


def mine(*medians_s: float, name: str = "mine") -> list[Measurement]:
    return made_up.rounds_of(made_up.case(name, n=1), made_up.flat(medians_s))


def test_each_round_stands_in_the_interval_relative_to_the_median(tmp_path: Path) -> None:
    (figure,) = rounds_figure(tmp_path, mine(1, 2, 3, 4, 5, 6, 7))
    assert [tuple(row.values()) for row in figure.rows] == [(each / 4, "mine n=1 on cpu", 0.25, 1.75) for each in range(1, 8)]
    assert rounds_figure(tmp_path, [], "empty") == []


def test_a_time_far_beyond_the_others_is_beyond_the_end_of_the_axis(tmp_path: Path) -> None:
    (figure,) = rounds_figure(tmp_path, mine(1.0, 1.1, 0.9, 1.05, 0.95, 1.0, 40.0))
    assert figure.clip == (0.9, 1.1)
    assert max(row["sample.relative"] for row in figure.rows) == 40.0  # the table still has it


def test_twenty_cases_are_drawn_those_first_that_more_answers_rest_on(tmp_path: Path) -> None:
    (figure,) = rounds_figure(tmp_path, [each for number in range(23) for each in mine(1.0, 2.0, name=f"case{number:02}")])
    assert len({row["sample.case"] for row in figure.rows}) == 20
    assert figure.about.endswith(" Drawn are the 20 of 23 cases that most answers rest on.")
    quiet = [each for n in range(20) for each in made_up.rounds_of(made_up.case("quiet", n=n), made_up.flat([1.0] * 7))]
    (figure,) = rounds_figure(tmp_path, [*quiet, *made_up.both_kinds()], "more")
    first = dict.fromkeys(str(row["sample.case"]) for row in figure.rows)
    assert ["train_step" in each for each in first] == [True] * 8 + [False] * 12  # speed-up, batch and precision rest on them
