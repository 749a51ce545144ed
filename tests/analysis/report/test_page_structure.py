"""What stands where on the page of ``dlbench report``, whatever the files are, and which names it shows."""

import json
from itertools import pairwise
from pathlib import Path

import front_door
import made_up
import pytest
from html_page import Page

from dlbench.analysis.answers import answers
from dlbench.analysis.answers.engine.question import Answer
from dlbench.analysis.read.table import collect
from dlbench.core.measurement import Measurement
from dlbench.core.model import Status

LONG = "<b>\"it's\" & 'that'</b>" + "n" * 180


def saved(folder: Path, *files: Path) -> Page:
    front_door.in_process(folder, "report", *map(str, files), "-o", "page.html")
    return Page((folder / "page.html").read_text())


def words(page: Page) -> str:
    """All that a reader, or a search in the file, may find, apart from style sheet and drawings."""
    attributes = [value for _, each in page.tags for name, value in each.items() if name in ("aria-label", "content", "id", "href")]
    return "\n".join([*(text for tag, text in page.texts if tag != "style"), *filter(None, attributes)])


def unfolded(page: Page, *names: str) -> list[str]:
    return [str(each["id"]) for tag, each in page.unfolded if tag in names and each.get("id")]


def test_every_answer_is_a_section_with_its_plot_below_it_and_all_else_is_folded(tmp_path: Path) -> None:
    run = made_up.write(tmp_path / "run.jsonl", made_up.both_kinds())
    page = saved(tmp_path, run)
    found = json.loads(front_door.in_process(tmp_path, "show", "run.jsonl", "--topic", "all", "--format", "json").out)["answers"]
    answered = [(each["question"]["topic"], bool(each["figures"])) for each in found if each["kind"] == "answer"]
    assert answered == [
        ("speed-up", True),
        *((topic, True) for topic in ("precision", "batch")),
        ("cost", False),
        ("health", False),
    ]
    in_order = [name for topic, drawn in answered for name in (f"answer-{topic}", topic)[: 1 + drawn]]
    assert unfolded(page, "section", "figure") == [*in_order, "samples"]
    assert [tag for tag, _ in page.unfolded if tag in ("section", "table")] == ["section"] * (1 + len(answered) + 4)
    commands = [each for each in page.all("code") if " -k " in each]
    assert (len(commands), page.all("summary").count("Commands that measure each case again")) == (8, 1)
    of_samples = 1  # the rounds of all eight cases
    assert len(page.contents("figure")) == sum(len(each.get("figures", ())) for each in found) + of_samples


@pytest.fixture
def odd_files(tmp_path: Path, request: pytest.FixtureRequest) -> list[Path]:
    """Files of a kind that a page has to bear."""
    cases = [made_up.case("train_step", suite=LONG, model=LONG, batch=batch, dtype="fp32") for batch in (8, 64)]
    both = [each for case in cases for each in made_up.rounds_of(case, made_up.flat(made_up.SEVEN))]
    kinds: dict[str, list[list[Measurement]]] = {
        "long names and markup": [[made_up.renamed(each, LONG, 2) for each in both]],
        "ten machines": [[made_up.renamed(each, f"machine {n}", n) for each in both[:7]] for n in range(10)],
        "one case": [made_up.rounds_of(made_up.case("noop"), [[0.5]])],
        "failures alone": [[made_up.ended(made_up.case("noop"), Status.FAILED, f"{LONG} is odd")]],
        "nothing": [[]],
    }
    return [
        made_up.write(
            tmp_path / f"my folder {n}" / "run.jsonl",
            of_file,
            environment={"identity": {"cpu": {"name": f"machine {n}"}}, "stack": {"threads": n}},
        )
        for n, of_file in enumerate(kinds[request.param])
    ]


@pytest.mark.parametrize("odd_files", ["long names and markup", "ten machines", "one case", "failures alone", "nothing"], indirect=True)
def test_odd_files_make_a_page_that_holds_the_same(tmp_path: Path, odd_files: list[Path]) -> None:
    page = saved(tmp_path, *odd_files)
    tiles = [str(each["href"]) for each in page.contents("a") if str(each["href"]).startswith("#answer-")]
    found = [each for each in answers(collect(odd_files)) if isinstance(each, Answer) and each.lines]
    assert tiles == [f"#answer-{each.question.topic}" for each in found]
    ids = [str(each["id"]) for _, each in page.tags if each.get("id")]
    assert len(ids) == len(set(ids))
    assert {each[1:] for each in (*tiles, *(str(each["href"]) for each in page.contents("a")))} <= set(ids)
    assert len(page.all("h1")) == 1
    assert page.all("h2")[0] == "Answers"
    assert page.all("h2")[-1] == "Warnings"
    assert [tag for tag, _ in page.tags if tag in ("b", "table")] == ["table"] * len(page.contents("table"))
    assert str(tmp_path) not in words(page)
    assert "my folder" not in words(page)
    cells = page.all("td")
    assert [f"run machine {n}" in cells for n in range(10)] == [len(odd_files) == 10] * 10


@pytest.mark.parametrize(("odd_files", "shown"), [("one case", False), ("failures alone", True)], indirect=["odd_files"])
def test_cases_are_unfolded_where_none_was_measured(tmp_path: Path, odd_files: list[Path], shown: bool) -> None:
    page = saved(tmp_path, *odd_files)
    before, _ = next(pair for pair in pairwise(page.tags) if pair[1] == ("summary", {"id": "cases"}))
    assert before == ("details", {"open": None} if shown else {})


def test_the_title_tells_pages_apart(tmp_path: Path) -> None:
    def title(name: str, suite: str, *days: str) -> str:
        files = [
            made_up.write(
                tmp_path / name / f"{day}.jsonl",
                made_up.rounds_of(made_up.case("noop", suite=suite), [[0.5]]),
                environment={"provenance": {"utc": f"2026-11-{day}T23:10:39+00:00"}},
            )
            for day in days
        ]
        return saved_anew(tmp_path / f"{name}.html", files).all("title")[0]

    def saved_anew(path: Path, files: list[Path]) -> Page:
        front_door.in_process(tmp_path, "report", *map(str, files), "-o", path.name)
        return Page(path.read_text())

    assert title("one", "quick", "24") == "quick on AMD EPYC 7B13, 2026-11-24 23:10 UTC · dlbench"
    assert title("two", "cnn", "24", "22") == "cnn on AMD EPYC 7B13, 2026-11-22 to 2026-11-24 · dlbench"


def test_no_folder_of_the_user_is_in_a_plot(tmp_path: Path) -> None:
    cases = [made_up.case("train_step", model="/home/somebody/secret/net.py", batch=batch, dtype="fp32") for batch in (8, 64)]
    made_up.write(tmp_path / "run.jsonl", [each for case in cases for each in made_up.rounds_of(case, made_up.flat(made_up.SEVEN))])
    front_door.in_process(tmp_path, "report", "run.jsonl", "-o", "page.html", "--figures", "figures")
    written = [tmp_path / "page.html", *(tmp_path / "figures").iterdir()]
    assert [each.name for each in written if "somebody" in each.read_text()] == []
    assert "model=net.py fp32" in Page(written[0].read_text()).all("text")


def test_no_folder_of_the_user_is_on_the_page(tmp_path: Path) -> None:
    case = made_up.case("train_step", model="resnet18", batch=8, dtype="fp32")
    command = [["run", "/home/somebody/suites/mine.toml", "/srv/secret project/networks.py", "/secret/p.py"]]
    environment = {
        "identity": {"os": "Linux", "cpu": {"governor": "/sys/devices/system/cpu says so"}},
        "stack": {"python": "/home/somebody/venv/bin/python"},
        "provenance": {"command": command},
    }
    reason = "no such file: '/home/somebody b/secret/x y.bin', nor /root/some/secret/z"
    reason += ', error:/home/somebody/a.py, file:///home/somebody/secret/b.py, "/home/somebody b/the secret/c d", https://pytorch.org/e/f'
    failed = made_up.ended(made_up.case("noop"), Status.FAILED, reason)
    run = [*made_up.rounds_of(case, made_up.flat(made_up.SEVEN)), failed]
    cut = made_up.write(tmp_path / "secret place" / "of mine" / "run.jsonl", run, planned=3, finished=False, environment=environment)
    page = saved(tmp_path, cut)
    whole = (tmp_path / "page.html").read_text()
    assert [word for word in ("secret", "somebody", "of mine", tmp_path.name) if word in whole] == []
    case_id = "'train_step[model=resnet18,batch=8,dtype=fp32]@cpu'"
    assert f"dlbench run mine.toml 'networks.py' p.py -k {case_id}" in page.all("code")
    assert "no such file: 'x y.bin', nor z, error:a.py, b.py, \"c d\", https://pytorch.org/e/f" in page.all("p")
    note = (
        "run.jsonl: the run was interrupted or is still going on, at 2 of 3 planned cases; continue it with: dlbench run --resume run.jsonl"
    )
    assert note in page.all("li")
    assert {"python", "/sys/devices/system/cpu says so"} <= set(page.all("td"))


def test_a_page_on_a_folder_is_known_again_and_does_not_name_it(tmp_path: Path) -> None:
    made_up.write(tmp_path / "secret" / "run.jsonl", made_up.rounds_of(made_up.case("noop"), [[0.5]]))
    made_up.write(tmp_path / "other" / "run.jsonl", made_up.rounds_of(made_up.case("noop"), [[0.5]]))
    for _ in range(2):
        assert front_door.in_process(tmp_path, "report", "secret").err.splitlines()[-1] == "saved in report.html"
    assert "secret" not in (tmp_path / "report.html").read_text()
    assert front_door.in_process(tmp_path, "report", "other").code == 2
