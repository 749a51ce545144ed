"""Published peaks by the command line: a card without an entry, one of eight bits, and an entry without a source."""

import csv
import io
from pathlib import Path

import made_up
import pytest
from front_door import Done, in_process

from dlbench.core.reference import peaks

ENTRY = """
[[device]]
names = ["NVIDIA B300"]
flops = { fp8 = 242e12 }
matrix = ["fp8"]
bandwidth = 1e12
last_cache = 1048576
"""
RATE = ("rate.peak_fraction", "rate.peak", "rate.reason")


def shown(folder: Path, device_name: str, dtype: str) -> Done:
    case = made_up.case("matmul", "cuda:0", n=8, dtype=dtype)
    rounds = made_up.rounds_of(case, made_up.flat([1.0] * 7), device_name=device_name, flops=121e12)
    made_up.write(folder / "run.jsonl", rounds)
    return in_process(folder, "show", "run.jsonl", "--format", "csv")


def rate_of(result: Done) -> tuple[str, ...]:
    (row,) = csv.DictReader(io.StringIO(result.out))
    return tuple(row[name] for name in RATE)


@pytest.fixture
def own_table(tmp_path, monkeypatch):
    """A file that stands in for the table, for one test."""
    table = tmp_path / "peaks.toml"
    monkeypatch.setattr(peaks, "_TABLE", table)
    for cached in (peaks.peak_of, peaks._table):
        cached.cache_clear()
    yield table
    for cached in (peaks.peak_of, peaks._table):
        cached.cache_clear()


def test_a_card_of_the_table_has_a_share_in_eight_bits(tmp_path):
    peak = "arithmetic: 242 TOP/s, dense int8 on the matrix units of NVIDIA L4"
    assert rate_of(shown(tmp_path, "NVIDIA L4", "int8")) == ("0.5", peak, "")


def test_a_card_without_an_entry_has_no_share_and_the_row_tells_how_to_add_it(tmp_path):
    reason = "NVIDIA B300 is not in dlbench's table of published peaks; add it with its source to dlbench/core/reference/peaks.toml"
    assert rate_of(shown(tmp_path, "NVIDIA B300", "int8")) == ("", "", reason)


def test_an_entry_without_a_source_is_refused_with_what_to_add(tmp_path, own_table):
    own_table.write_text(ENTRY)
    done = shown(tmp_path, "NVIDIA B300", "fp8")
    assert (done.code, done.out) == (2, "")
    assert done.err == ("dlbench: dlbench/core/reference/peaks.toml, entry 1: it has no source; the head of the file says what that is\n")


def test_an_entry_with_a_source_is_taken(tmp_path, own_table):
    own_table.write_text(f'{ENTRY}source = "a datasheet"\n')
    assert rate_of(shown(tmp_path, "NVIDIA B300", "fp8")) == (
        "0.5",
        "arithmetic: 242 TFLOP/s, dense fp8 on the matrix units of NVIDIA B300",
        "",
    )
