import csv
import io
import json
from html.parser import HTMLParser
from pathlib import Path

import made_up
import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from dlbench.analysis.export.tabular import lines, markdown, render
from dlbench.analysis.read.table import read
from dlbench.core.errors import UsageError
from dlbench.core.model import Status
from dlbench.core.rows.columns import COLUMNS

NAMES = [column.name for column in COLUMNS]


@pytest.fixture
def frame(tmp_path: Path) -> pd.DataFrame:
    measurements = [
        *made_up.rounds_of(made_up.case("matmul", n=64, dtype="fp32"), made_up.flat([1 / 3] * 6)),
        made_up.ended(made_up.case("matmul", n=128, dtype="fp32"), Status.FAILED, "=cmd() | a\nb < c\x1b[31m \\"),
    ]
    return read(made_up.write(tmp_path / "run.jsonl", measurements))


def test_json_is_an_array_of_rows_with_nulls(frame: pd.DataFrame) -> None:
    ok, failed = json.loads(render(frame, "json"), parse_constant=pytest.fail)
    assert list(ok) == [*NAMES, "param.n"]
    assert (ok["time.median_s"], ok["time.rounds"], ok["flag.noisy"], ok["param.n"]) == (1 / 3, 6, False, 64)
    assert (ok["transfer.h2d_s"], ok["flag.throttled"], ok["memory.peak_bytes"], ok["energy.watts"]) == (None, None, None, None)
    assert failed["case.reason"] == "=cmd() | a\nb < c\x1b[31m \\"
    assert failed["time.median_s"] is None


def test_csv_has_full_names_and_every_digit(frame: pd.DataFrame) -> None:
    ok, failed = csv.DictReader(io.StringIO(render(frame, "csv")))
    assert list(ok) == [*NAMES, "param.n"]
    assert (ok["time.median_s"], ok["time.rounds"], ok["flag.noisy"], ok["transfer.h2d_s"]) == (repr(1 / 3), "6", "false", "")
    assert failed["case.reason"] == "'=cmd() | a b < c[31m \\"


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t=", "\r=", "\x00@"])
def test_no_csv_cell_is_a_formula(start: str) -> None:
    frame = pd.DataFrame({"case.reason": pd.Series([f"{start}1"], dtype="string"), "time.median_s": [-1.5]})
    rows = list(csv.reader(io.StringIO(render(frame, "csv"), newline="")))
    assert rows[1] == [f"'{start[-1]}1", "-1.5"]


def test_markdown_escapes_what_would_end_a_cell(frame: pd.DataFrame) -> None:
    header, rule, ok, failed = render(frame, "md").splitlines()
    assert header == f"| {' | '.join([*NAMES, 'param.n'])} |"
    assert rule.count("---") == len(NAMES) + 1
    assert f"| {1 / 3!r} |" in ok
    assert "| =cmd() \\| a b &lt; c[31m \\\\ |" in failed


def test_an_empty_table_is_still_a_table(tmp_path: Path) -> None:
    empty = read(made_up.write(tmp_path / "run.jsonl", []))
    assert render(empty, "json") == "[]\n"
    assert render(empty, "csv") == ",".join(NAMES) + "\n"
    assert len(render(empty, "md").splitlines()) == 2


def test_an_unknown_format_is_refused(frame: pd.DataFrame) -> None:
    with pytest.raises(UsageError, match="there is no format 'jsn'; did you mean 'json'"):
        render(frame, "jsn")


def test_rows_are_written_as_they_come_and_a_group_is_one_cell() -> None:
    drawn = []

    def cases():
        for number in range(2):
            drawn.append(number)
            yield {"id": f"a|{number}", "params": {"n": number}}

    written = lines(("id", "params"), cases(), "csv")
    assert (next(written), next(written), drawn) == ("id,params\n", 'a|0,"{""n"": 0}"\n', [0])
    assert "".join(lines(("id", "params"), cases(), "json")) == (
        '[\n{"id": "a|0", "params": {"n": 0}},\n{"id": "a|1", "params": {"n": 1}}\n]\n'
    )
    assert list(lines(("id", "params"), cases(), "md"))[2] == '| a\\|0 | {"n": 0} |\n'


class Shown(HTMLParser):
    """What a reader of a page of Markdown sees, and which elements it has."""

    def __init__(self, text):
        super().__init__()
        self.text, self.elements = "", []
        self.feed(MarkdownIt("commonmark").enable(["table", "strikethrough"]).render(text))

    def handle_starttag(self, tag, attrs):
        self.elements.append(tag)

    def handle_data(self, data):
        self.text += data


HOSTILE = st.text(st.sampled_from("ab1 <>&;#[]()!*_`~|\\\"'-+.=:/lt"), max_size=30)


@given(HOSTILE)
@example("<script>alert(1)</script>")
@example("![x](https://e/i.png) [a](b) [a][b] <https://e>")
@example("# head")
@example("[foo]: x")
@example("10) item")
@example("- item")
@example("&lt;b&gt; C:\\x\\* train_step _y_ ~~z~~ `q` | cell")
def test_a_text_in_markdown_is_itself_and_nothing_else(text):
    line = markdown(text)
    alone, cell = Shown(line), Shown(f"| a |\n| --- |\n| {line} |\n")
    shown = " ".join(text.split())
    assert (alone.text.strip(), set(alone.elements)) == (shown, {"p"} if shown else set())
    assert cell.text.split() == ["a", *shown.split()]
    assert set(cell.elements) == {"table", "thead", "tbody", "tr", "th", "td"}
