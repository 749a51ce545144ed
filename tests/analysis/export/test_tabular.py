"""Tables, and answers whose every word a test knows, as data for other programs."""

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path

import front_door
import made_up
import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.common.utils import escapeHtml

from dlbench.analysis.answers.engine.question import Answer, Missing, Question, Tag
from dlbench.analysis.export.answers_export import as_json, as_markdown
from dlbench.analysis.export.tabular import lines, markdown, render
from dlbench.analysis.read.table import read
from dlbench.core.model import Status
from dlbench.core.rows.columns import COLUMNS

NAMES = [column.name for column in COLUMNS]
REASON = "=cmd() | a\nb < c\x1b[31m \\"


@pytest.fixture
def frame(tmp_path: Path) -> pd.DataFrame:
    measurements = [
        *made_up.rounds_of(made_up.case("matmul", n=64, dtype="fp32"), made_up.flat([1 / 3] * 6)),
        made_up.ended(made_up.case("matmul", n=128, dtype="fp32"), Status.FAILED, REASON),
    ]
    return read(made_up.write(tmp_path / "run.jsonl", measurements))


def test_a_table_has_full_names_every_digit_and_each_null_in_any_format(frame: pd.DataFrame) -> None:
    of_json = json.loads(render(frame, "json"), parse_constant=pytest.fail)
    of_csv = list(csv.DictReader(io.StringIO(render(frame, "csv"))))
    assert list(of_json[0]) == list(of_csv[0]) == [*NAMES, "param.n"]
    some = ["time.median_s", "time.rounds", "flag.noisy", "param.n", "transfer.h2d_s", "flag.throttled", "energy.watts", "case.reason"]
    assert [of_json[0][name] for name in some] == [1 / 3, 6, False, 64, None, None, None, None]
    assert [of_csv[0][name] for name in some] == [repr(1 / 3), "6", "false", "64", "", "", "", ""]
    assert (of_json[1]["case.reason"], of_json[1]["time.median_s"]) == (REASON, None)
    assert of_csv[1]["case.reason"] == "'=cmd() | a b < c[31m \\"
    header, rule, ok, failed = render(frame, "md").splitlines()
    assert (header, rule.count("---")) == (f"| {' | '.join([*NAMES, 'param.n'])} |", len(NAMES) + 1)
    assert f"| {1 / 3!r} |" in ok
    assert "| =cmd() \\| a b &lt; c[31m \\\\ |" in failed


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t=", "\r=", "\x00@"])
def test_no_csv_cell_is_a_formula(start: str) -> None:
    frame = pd.DataFrame({"case.reason": pd.Series([f"{start}1"], dtype="string"), "time.median_s": [-1.5]})
    rows = list(csv.reader(io.StringIO(render(frame, "csv"), newline="")))
    assert rows[1] == [f"'{start[-1]}1", "-1.5"]


def test_an_empty_table_is_still_a_table(tmp_path: Path) -> None:
    empty = read(made_up.write(tmp_path / "run.jsonl", []))
    rendered = [render(empty, form) for form in ("json", "csv", "md")]
    assert (rendered[:2], rendered[2].count("\n")) == (["[]\n", ",".join(NAMES) + "\n"], 2)


def test_rows_are_written_as_they_come_and_a_group_is_one_cell() -> None:
    drawn = []

    def cases():
        for number in range(2):
            drawn.append(number)
            yield {"id": f"a|{number}", "params": {"n": number}}

    written = lines(("id", "params"), cases(), "csv")
    assert (next(written), next(written), drawn) == ("id,params\n", 'a|0,"{""n"": 0}"\n', [0])
    as_rows = '[\n{"id": "a|0", "params": {"n": 0}},\n{"id": "a|1", "params": {"n": 1}}\n]\n'
    assert "".join(lines(("id", "params"), cases(), "json")) == as_rows
    assert list(lines(("id", "params"), cases(), "md"))[2] == '| a\\|0 | {"n": 0} |\n'


MARKDOWN = MarkdownIt("commonmark").enable(["table", "strikethrough"])


@given(st.text(st.sampled_from("ab1 <>&;#[]()!*_`~|\\\"'-+.=:/lt"), max_size=30))
@example("<script>alert(1)</script>")
@example("![x](https://e/i.png) [a](b) [a][b] <https://e>")
@example("# head")
@example("[foo]: x")
@example("10) item")
@example("- item")
@example("&lt;b&gt; C:\\x\\* train_step _y_ ~~z~~ `q` | cell")
def test_a_text_in_markdown_is_itself_and_nothing_else(text):
    line = markdown(text)
    shown = escapeHtml(" ".join(text.split()))
    assert MARKDOWN.render(line).strip() == (f"<p>{shown}</p>" if shown else "")
    rows = MARKDOWN.render(f"| a |\n| --- |\n| {line} |\n").partition("<tbody>")[2]
    assert rows == f"\n<tr>\n<td>{shown}</td>\n</tr>\n</tbody>\n</table>\n"


BF16, TAGS = ("bf16 2.7× fp32 (2.6…2.8)", "train res|net50"), (Tag.FEW_ROUNDS, Tag.ESTIMATE)
SENTENCES, WEAKNESSES = ("It is faster.", "It is off by 0.3 %."), ("whether it converges was not measured",)
ANSWERS = (
    Answer(Question("precision", "Which precision?"), *BF16, TAGS, SENTENCES, ("train_step[n=1]@cpu",), WEAKNESSES, ()),
    Missing(Question("devices", "Does another device help?"), "no case of several ranks went well", "dlbench run scaling"),
    Missing(Question("serving", "For serving?"), "no suite measures requests", why="not measured by dlbench yet"),
)


def test_answers_and_missing_ones_as_documents(snapshot: Callable[[str, str], None]) -> None:
    texts = {"JSON": as_json(ANSWERS, ["a run is not usable"]), "Markdown": as_markdown(ANSWERS, ["a run is not usable"])}
    snapshot("answers-exported", front_door.under_titles(texts))
