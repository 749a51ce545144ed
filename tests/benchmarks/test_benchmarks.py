"""The benchmark scripts run and say what they found; what they found is not a test's business."""

import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import front_door
import made_up
import pytest

import benchmarks.__main__ as everything
from benchmarks import (
    agreement,
    alternate,
    bare_matmul,
    ceilings,
    compare_scale,
    copy_rate,
    first_answer,
    help_time,
    isolation_cost,
    live_clock,
    memory_limit,
    overhead,
    plain_loop,
    planning,
    quick_time,
    ranks,
    round_length,
    undisturbed,
)
from dlbench.core.model import Status
from dlbench.core.store import RunFile


def test_help_time_says_what_was_imported(printed):
    table, verdict = printed(help_time, "--pairs", "2")
    assert [row[0] for row in table] == ["program", "dlbench", "bare click + rich"]
    assert verdict.endswith("imported of torch, numpy, pandas: none")


def test_live_clock_holds_a_run_with_it_against_one_without(printed):
    table, verdict = printed(live_clock, "--seconds", "1")
    assert [row[0] for row in table] == ["clock", "standing", "moving"]
    assert verdict.endswith("of a CPU, at most 0.2 %")


def test_quick_time_counts_cases_and_rounds(printed, tmp_path):
    suite = front_door.suite(tmp_path, 'workload = "spin"\naxes.seconds = [0.001, 0.002]')
    table, _ = printed(quick_time, "--suite", str(tmp_path / suite))
    assert [row[0] for row in table] == ["what", "first table, 2 cases", "2 rounds", "memory, all processes, twice a second"]
    assert [row[2] for row in table] == ["target", "30 s", "180 s", "3.00 GiB"]


def test_first_answer_times_each_step_and_adds_up_all_but_the_download(printed, tmp_path, monkeypatch):
    def quickly(*command, **_):
        if "make" in command:  # the steps are pip's and git's, and take a minute
            python = Path(command[2]) / ".venv" / "bin" / "python"
            python.parent.mkdir(parents=True)
            python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
            python.chmod(0o755)
        return 30.0

    monkeypatch.setattr(first_answer, "_seconds", quickly)
    suite = front_door.suite(tmp_path, 'workload = "spin"\naxes.seconds = 0.001')
    table, verdict = printed(first_answer, "--suite", str(tmp_path / suite))
    steps = ["clone", "torch's download (apart)", "environment and installation", "dlbench run, to the first answer"]
    assert [row[0] for row in table] == ["step", *steps]
    run_s = float(table[-1][1].removesuffix(" s"))
    assert 0.5 < run_s < 29
    assert verdict == f"reached: {60 + run_s:.1f} s without torch's download, at most 120 s"


def test_isolation_cost_tells_the_round_that_checks_from_later_ones(printed):
    table, _ = printed(isolation_cost, "--cases", "2", "--rounds", "2", "--seconds", "0.01", "--case", "noop")
    assert [row[:3] for row in table] == [["case", "round", "times"], ["noop", "first, 2 fully checked", "2"], ["noop", "later", "2"]]


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="this kernel does not count waits")
def test_undisturbed_has_a_row_a_load_and_a_cell_a_rule(printed):
    table, verdict = printed(undisturbed, "--turns", "1", "--seconds", "0.01", "--case", "matmul 512", "--load", "none", "--load", "a core")
    assert table[0][4:] == ["all", *(f"wait < {share} %" for share in ("0.5", "1.0", "2.0", "5.0")), "no forced switch"]
    assert [row[:2] for row in table[1:]] == [["matmul 512", "none"], ["matmul 512", "a core"]]
    assert [row[4].startswith("100.0 %, ") for row in table[1:]] == [True, True]
    assert re.fullmatch(r"(reached|MISSED): reading the waits takes \d+\.\d µs a block, at most 10 µs", verdict)


def test_plain_loop_holds_a_run_against_a_loop_at_each_batch(printed):
    narrow = ["--pairs", "1", "--rounds", "1", "--seconds", "0.01", "--batch", "1", "--batch", "2"]
    table, verdict = printed(plain_loop, *narrow, "--load", "a core")
    assert table[0] == ["batch", "plain loop", "dlbench / loop", "flags"]
    assert [row[0] for row in table[1:]] == ["1", "2"]
    assert verdict.endswith("of the loop's, at most 15.0 %")


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


def test_agreement_pairs_in_fresh_processes(printed):
    arguments = ("--processes", "2", "--pairs", "2", "--seconds", "0.01", "--case", "matmul 256")
    table, _ = printed(agreement, *arguments)
    assert [row[0] for row in table] == ["case", "matmul 256"]
    assert table[1][2] == "4 in 2"


def test_planning_counts_what_is_listed(printed):
    table, _ = printed(planning, "2000")
    assert [row[:2] for row in table[1:]] == [["2,000", "2,000"]]


def test_compare_scale_compares_every_case(printed):
    table, _ = printed(compare_scale, "50", "100")
    assert [row[0] for row in table[1:]] == ["50", "100"]


def test_turns_change_who_begins():
    order = []
    pairs = alternate.alternate(lambda: order.append("a") or "a", lambda: order.append("b") or "b", 3)
    assert order == ["a", "b", "b", "a", "a", "b"]
    assert pairs == [("a", "b")] * 3


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_watched_command_hands_on_its_lines(stream):
    lines = []
    command = [sys.executable, "-c", f"import sys; print('one\\ntwo', file=sys.{stream})"]
    watched = alternate.watch(command, stream, lambda seconds, line: lines.append(line), every_s=0.01)
    assert lines == ["one", "two"]
    assert watched.seconds > 0


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_watched_command_that_fails_is_quoted(stream):
    command = [sys.executable, "-c", "raise SystemExit('no such thing')"]
    with pytest.raises(SystemExit, match="ended with 1: no such thing"):
        alternate.watch(command, stream, lambda seconds, line: None)


def test_a_case_that_does_not_end_well_ends_the_benchmark():
    with pytest.raises(SystemExit, match=r"^raises\[\]@cpu: failed: ValueError: the numbers do not add up$"):
        alternate.run_cases([("raises", {})], alternate.Policy(rounds=1), (front_door.FAULTS,))


def test_ranks_are_timed_by_both_in_turns(printed, monkeypatch):
    monkeypatch.setattr(alternate, "usable_threads", lambda: ranks.RANKS)  # which is a matter of speed alone
    table, _ = printed(ranks, "--pairs", "1", "--seconds", "0.01", "--case", "all-reduce of 64 KiB")
    assert [row[0] for row in table] == ["case", "all-reduce of 64 KiB"]
    assert table[1][2] == "1"


def test_copy_rate_holds_each_direction_against_a_bare_loop(printed, monkeypatch):
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.version, "hip", None)
    monkeypatch.setattr(copy_rate, "_timed", lambda direction, pairs, seconds: [(1.0, 0.98)] * pairs)
    table, verdict = printed(copy_rate, "--pairs", "2")
    assert [(row[0], row[3]) for row in table[1:]] == [("h2d", "0.980"), ("d2h", "0.980")]
    assert verdict == "reached: at least 0.980 of a bare loop's rate, at least 0.97"


def test_copy_rate_says_where_there_is_no_device(monkeypatch):
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit, match="there is no NVIDIA device here"):
        copy_rate.main([])


def test_ceilings_hold_products_and_moves_against_bare_loops(printed, monkeypatch):
    rates = {"_product": 98e9, "_bare_product": 100e9, "_moves": (31e9, 2 << 30), "_triad": 30e9, "_has_gpu": False}
    for name, rate in rates.items():
        monkeypatch.setattr(ceilings, name, lambda *_, rate=rate: rate)
    monkeypatch.setattr(ceilings.os, "sched_setaffinity", lambda *_: None)
    monkeypatch.setattr(ceilings.subprocess, "run", lambda *_, **__: None)  # no compiler is needed
    table, verdict = printed(ceilings, "--pairs", "2")
    assert [row[1:4] for row in table[1:]] == [["100 GFLOP/s", "2", "0.980"], ["100 GFLOP/s", "2", "0.980"], ["30.0 GB/s", "2", "1.033"]]
    assert verdict.startswith("reached")


def test_the_bare_loop_times_a_product():
    assert 0 < bare_matmul.loop(64, "fp32", 1, 0.001) < 1


def test_round_length_holds_what_is_decided_against_fixed_lengths(printed, monkeypatch):
    """In few runs of noise whose best length is clear."""
    monkeypatch.setattr(round_length, "NOISES", {"blocks": round_length.Noise(blocks=0.05), "processes": round_length.Noise(processes=0.5)})
    table, _ = printed(round_length, "--deals", "12")
    assert table[0] == ["what scatters", "0.1 s", "0.3 s", "1 s", "3 s", "decided", "its length"]
    blocks, processes = ([float(cell) for cell in row[1:5]] for row in table[1:3])
    assert blocks[0] > max(blocks[2:])
    assert processes[3] > 3 * processes[0]
    assert table[2][6] == "0.3 s"


def test_memory_limit_holds_what_was_found_against_every_batch(printed, monkeypatch):
    """In place of the runs, a network of which 40 samples fit, and 42."""

    def measured(model, step, gibibytes, batches=()):
        case = made_up.case("largest_batch", model=model)
        found = replace(made_up.ended(case, Status.OK, ""), found={"batch": 39})
        cases = [made_up.case("largest_batch", batch=batch) for batch in batches]
        tried = [made_up.ended(each, Status.OK if each.params["batch"] in (*range(41), 42) else Status.OOM, "") for each in cases]
        return RunFile(Path("fit.jsonl"), {}, tuple(tried) or (found,), None, torn=False, tries=(found,) * 7)

    monkeypatch.setattr(memory_limit, "_run", measured)
    table, verdict = printed(memory_limit, "--gib", "0.5")
    assert table[1] == ["0.5 GiB", "39", "7", "40", "42", "25"]
    assert verdict == "reached: found within 2.5 % of the true one, at most 5.0 %; 0 processes ended by the kernel"


def test_every_benchmark_of_the_page_is_there_and_started_by_a_test():
    pages = {path.relative_to(everything.PAGES).as_posix(): path.read_text() for path in everything.PAGES.rglob("*.md")}
    places = {name: re.findall(r"^<!-- python -m benchmarks\.(\w+) -->$", page, re.MULTILINE) for name, page in pages.items()}
    assert sorted(benchmark for found in places.values() for benchmark in found) == sorted(everything.MINUTES)
    page = "reference/benchmarks.md"
    rows = [line.split(" | ") for line in pages[page].splitlines() if line.startswith("| `")]
    assert {row[0].strip("| `"): float(row[2]) for row in rows} == {name: everything.MINUTES[name] for name in places[page]}
    tests = "".join(path.read_text() for path in Path(__file__).parent.glob("test_*.py"))
    started = {name for names in re.findall(r"\bprinted\((\w+)|\b(\w+)\.main\(\[", tests) for name in names}
    assert everything.MINUTES.keys() - started == set()


def test_benchmarks_run_one_after_the_other_and_write_what_they_found(capsys, monkeypatch, tmp_path):
    def run(command, **_):
        name = command[-1]
        return subprocess.CompletedProcess(command, name.endswith("planning"), f"{name} \\1 found\n")

    monkeypatch.setattr(everything.subprocess, "run", run)
    monkeypatch.setattr(everything, "PAGES", tmp_path)
    comments = "<!-- python -m benchmarks.{} -->\n\nof before\n\n<!-- end -->\n"
    page = tmp_path / "page.md"
    page.write_text("".join(map(comments.format, ("overhead", "planning", "agreement"))))
    assert everything.main(["overhead", "planning", "agreement", "--within", "1", "--write"]) == 1
    assert re.findall("^## (\\w+), in ", capsys.readouterr().out, re.MULTILINE) == ["overhead", "planning"]
    kept = "".join(map(comments.format, ("planning", "agreement")))  # one failed, the other takes longer
    assert page.read_text() == comments.format("overhead").replace("of before", "benchmarks.overhead \\1 found") + kept
    with pytest.raises(ValueError, match=r"no single place <!-- python -m benchmarks\.ranks --> … <!-- end -->"):
        everything.write_figures("ranks", "")
