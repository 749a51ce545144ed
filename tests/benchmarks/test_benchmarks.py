"""The benchmark scripts run and say what they found; what they found is not a test's business."""

import re
import signal
import subprocess
import sys
from pathlib import Path

import front_door
import pytest

import benchmarks.__main__ as everything
from benchmarks import agreement, alternate, compare_scale, help_time, overhead

pytestmark = pytest.mark.real


@pytest.fixture
def printed(capsys):
    """Runs a script; returns the cells of its table, heading first, and what it says of its aim."""

    def run(script, *arguments):
        script.main(arguments)
        title, table, last = capsys.readouterr().out.split("\n\n")
        assert title.endswith(":")
        verdict, measured_with = re.fullmatch(r"((?:reached|MISSED): .*)\.\n\((.*)\)\n", last, re.DOTALL).groups()
        assert re.fullmatch(r"dlbench \S+, Python \S+, torch \S+, .+, \d+ threads, \d{4}-\d\d-\d\d", measured_with.replace("\n", " "))
        rows = [[cell.strip() for cell in line[2:-2].split(" | ")] for line in table.splitlines()]
        assert all(re.fullmatch("-+", cell) for cell in rows.pop(1))
        return rows, verdict.replace("\n", " ")

    return run


def test_help_time_says_what_was_imported(printed):
    table, verdict = printed(help_time, "--pairs", "2")
    assert [row[0] for row in table] == ["program", "dlbench", "bare click + rich"]
    assert verdict.endswith("imported of torch, numpy, pandas: none")


def test_an_interrupted_benchmark_ends_with_130_and_a_word(monkeypatch, capsys):
    monkeypatch.setattr(alternate._Timed, "case_started", lambda *_: signal.raise_signal(signal.SIGINT))
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        with pytest.raises(SystemExit) as ended:
            overhead.main(["--rounds", "1", "--seconds", "0.01"])
    finally:
        for number, handler in handlers.items():  # a second signal would still end the program
            signal.signal(number, handler)
    assert (ended.value.code, capsys.readouterr().err) == (130, "interrupted\n")


def test_overhead_covers_noop_and_each_spin(printed):
    table, _ = printed(overhead, "--rounds", "1", "--seconds", "0.01")
    assert [row[:2] for row in table[1:]] == [["noop", "0"], *(["spin", each] for each in ("50.0 µs", "500 µs", "5.00 ms", "50.0 ms"))]
    assert [row[4] for row in table[1:]] == ["150 ns", "1.00 µs", "5.50 µs", "50.5 µs", "500 µs"]


def test_agreement_pairs_in_fresh_processes_and_compare_scale_compares_every_case(printed):
    arguments = ("--processes", "2", "--pairs", "2", "--seconds", "0.01", "--case", "matmul 256")
    table, _ = printed(agreement, *arguments)
    assert ([row[0] for row in table], table[1][2]) == (["case", "matmul 256"], "4 in 2")
    table, _ = printed(compare_scale, "50", "100")
    assert [row[0] for row in table[1:]] == ["50", "100"]


def test_turns_change_who_begins_and_a_case_that_does_not_end_well_ends_the_benchmark():
    order = []
    pairs = alternate.alternate(lambda: order.append("a") or "a", lambda: order.append("b") or "b", 3)
    assert (order, pairs) == (["a", "b", "b", "a", "a", "b"], [("a", "b")] * 3)
    with pytest.raises(SystemExit, match=r"^raises\[\]@cpu: failed: ValueError: the numbers do not add up$"):
        alternate.run_cases([("raises", {})], alternate.Policy(rounds=1), (front_door.FAULTS,))


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_watched_command_hands_on_its_lines_and_one_that_fails_is_quoted(stream):
    lines = []
    command = [sys.executable, "-c", f"import sys; print('one\\ntwo', file=sys.{stream})"]
    watched = alternate.watch(command, stream, lambda seconds, line: lines.append(line), every_s=0.01)
    assert (lines, watched.seconds > 0) == (["one", "two"], True)
    with pytest.raises(SystemExit, match="ended with 1: no such thing"):
        alternate.watch([sys.executable, "-c", "raise SystemExit('no such thing')"], stream, lambda seconds, line: None)


def test_every_benchmark_of_the_page_is_there_and_started_by_a_test():
    pages = {path.relative_to(everything.PAGES).as_posix(): path.read_text() for path in everything.PAGES.rglob("*.md")}
    places = {name: re.findall(r"^<!-- python -m benchmarks\.(\w+) -->$", page, re.MULTILINE) for name, page in pages.items()}
    assert sorted(benchmark for found in places.values() for benchmark in found) == sorted(everything.MINUTES)
    page = "reference/benchmarks.md"
    rows = [line.split(" | ") for line in pages[page].partition("\n## ")[0].splitlines() if line.startswith("| `")]
    assert {row[0].strip("| `"): float(row[2]) for row in rows} == {name: everything.MINUTES[name] for name in places[page]}
    tests = "".join(path.read_text() for path in Path(__file__).parent.glob("test_*.py"))
    started = {name for names in re.findall(r"\bprinted\((\w+)|\b(\w+)\.main\(\[", tests) for name in names}
    assert everything.MINUTES.keys() - started == set()


def test_benchmarks_run_one_after_the_other_and_write_what_they_found(capsys, monkeypatch, tmp_path):
    def run(command, **_):
        name = command[-1]
        return subprocess.CompletedProcess(command, name.endswith("help_time"), f"{name} \\1 found\n")

    monkeypatch.setattr(everything.subprocess, "run", run)
    monkeypatch.setattr(everything, "PAGES", tmp_path)
    comments = "<!-- python -m benchmarks.{} -->\n\nof before\n\n<!-- end -->\n"
    page = tmp_path / "page.md"
    page.write_text("".join(map(comments.format, ("overhead", "help_time", "agreement"))))
    assert everything.main(["overhead", "help_time", "agreement", "--within", "1", "--write"]) == 1
    assert re.findall("^## (\\w+), in ", capsys.readouterr().out, re.MULTILINE) == ["overhead", "help_time"]
    kept = "".join(map(comments.format, ("help_time", "agreement")))  # one failed, the other takes longer
    assert page.read_text() == comments.format("overhead").replace("of before", "benchmarks.overhead \\1 found") + kept
    page.unlink()
    with pytest.raises(ValueError, match=r"no single place <!-- python -m benchmarks\.help_time --> … <!-- end -->"):
        everything.write_figures("help_time", "")
