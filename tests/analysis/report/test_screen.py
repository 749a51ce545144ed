"""Tables on screens of any width."""

from collections.abc import Callable
from io import StringIO

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from dlbench.analysis.report.screen import ScreenColumn, ScreenTable
from dlbench.core.units import fold


def drawn(table: ScreenTable, width: int) -> list[str]:
    console = Console(file=StringIO(), width=width)
    console.print(table)
    return console.file.getvalue().splitlines()  # type: ignore[attr-defined]  # it is the one above


COLUMNS = (
    ScreenColumn("case", ["train_step resnet18 batch=64", "matmul"], priority=0),
    ScreenColumn("time", ["1.00 s", "12.3 ms"], True, 0),
    ScreenColumn("rounds", ["7", "3 of 7"], True, priority=3, note="rounds: fresh processes"),
    ScreenColumn("rate", ["40.0 k", ""], True, 1),
    ScreenColumn("share", ["83.1 %", "41.0 %"], True, 2),
    ScreenColumn("notes", ["launch-bound", "it took 12.5 ms longer"]),
)


def test_the_greatest_priority_goes_first_and_is_named(transcript: Callable[..., None]) -> None:
    transcript("table-at-widths", 6, lambda title: "\n".join(drawn(ScreenTable(COLUMNS), int(title.split()[0]))))


CELLS = st.lists(st.text("ab 1×汉…\x1b", max_size=40), min_size=3, max_size=3)
NUMBERS = st.lists(st.text("1.", max_size=9), min_size=3, max_size=3)
HEADING, PRIORITY = st.text("ab ", max_size=9), st.integers(0, 3)
ANY = st.builds(ScreenColumn, HEADING, CELLS, priority=PRIORITY) | st.builds(ScreenColumn, HEADING, NUMBERS, st.just(True), PRIORITY)


@given(st.lists(ANY, min_size=1, max_size=6), st.integers(20, 130))
def test_no_line_of_a_table_is_wider_than_the_screen_and_no_number_is_cut(columns: list[ScreenColumn], width: int) -> None:
    lines = drawn(ScreenTable(columns, below={1: "why it failed"}), width)
    assert max(map(cell_len, lines), default=0) <= width
    text = " ".join(" ".join(lines).split())
    numbers = [each for each in columns[1:] if each.number and each.heading.strip()]  # of one without a heading nothing says that it went
    assert "not shown at" in text or all(cell in text for each in numbers for cell in each.texts)
    assert "\x1b" not in text
    assert "why it failed" in text


@pytest.mark.parametrize(
    ("text", "width", "cell", "lines"),
    [
        ("it took 161 ms and 21.0 % of /a/path-with-hyphens", 13, False, "it took|  161 ms and|  21.0 % of|  /a/path-with-hyphens"),
        ("  an indented line", 12, False, "  an|    indented|    line"),
        ("accuracy 0.931, losses 4.00", 15, True, "accuracy 0.931,|losses 4.00"),
        ("resnet18 batch=64 fp32", 9, True, "resnet18|batch=64|fp32"),
        ("unbreakable", 4, True, "unbr|eaka|ble"),
        ("汉字汉字 汉字", 8, True, "汉字汉字|汉字"),
    ],
)
def test_lines_break_between_words_and_never_between_a_number_and_its_unit(text: str, width: int, cell: bool, lines: str) -> None:
    assert fold(text, width, cell=cell) == lines.split("|")
