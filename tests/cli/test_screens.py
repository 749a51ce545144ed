"""Screens of commands as they look, on terminals of many widths and in a pipe: plain text in tests/snapshots, a file each."""

import contextlib
import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import front_door
import made_up
import pytest
from front_door import under_titles
from rich.cells import cell_len

from dlbench.cli.commands import noise
from dlbench.cli.terminal import wrapped
from dlbench.core.conditions import Throttling
from dlbench.core.machine import Finding, Fitness
from dlbench.core.measurement import Measurement, Transfer
from dlbench.core.model import Status

pytestmark = pytest.mark.usefixtures("earlier_files")

WIDTHS = (120, 80, 20)
TEN = (1.00, 1.01, 0.99, 1.02, 0.98, 1.005, 0.995, 1.015, 0.985, 1.001)
WIDE = (1.0, 2.1, 0.6, 1.7, 0.8, 2.4, 0.7, 1.9, 1.1, 0.9)
Snapshot = Callable[[str, str], None]


def written(folder: Path, *runs: list[Measurement], **options: object) -> list[str]:
    """Write a result file for each run, and return their names."""
    return [made_up.write(folder / f"run{number}.jsonl", run, **options).name for number, run in enumerate(runs)]


def steps() -> list[Measurement]:
    """Training steps of one model on two devices, and a product of a cold and of a hot call."""
    by_cache = [
        made_up.timed_on_device(each, 0.5) if device == "cuda:0" else each
        for device in ("cpu", "cuda:0")
        for cache, seconds in (("hot", 1.0), ("cold", 2.0))
        for each in made_up.rounds_of(made_up.case("matmul", device, n=256, cache=cache), made_up.flat([seconds] * 7))
    ]
    return [*made_up.both_kinds(), *by_cache]


def on(device: str) -> Callable[[], list[Measurement]]:
    """The steps of a machine that has this device alone."""
    return lambda: [each for each in made_up.both_kinds() if each.case.device == device]


def unlike() -> list[Measurement]:
    """Cases of as many rounds and spreads as there are kinds of, and with values."""
    rounds: dict[int, list[list[float]]] = {1: made_up.flat(made_up.SEVEN), 2: [[0.1], [0.2]], 3: [[0.1, 0.1, 0.1]], 4: [[9e-4], [2e-3]]}
    rounds |= {5: [[7300.0], [9000.0]], 6: made_up.flat([1.0, 1.5, 1.0, 1.5, 1.0, 1.5, 1.0])}
    found = [each for n, blocks in rounds.items() for each in made_up.rounds_of(made_up.case("matmul", n=n), blocks)]
    probes = [made_up.without_rounds(made_up.rounds_of(made_up.case("probe", n=n), [[1.0]])[0]) for n in (1, 2)]
    found.append(made_up.with_values(probes[0], accuracy=0.9312, losses=[4.0, 3.0, 2.5]))
    return [*found, made_up.with_values(probes[1], a=1.0, b=2.0, c=0.0, d=3.0)]


def on_the_card_alone() -> list[Measurement]:
    """Cases whose shares of peaks, copies and launches are told."""
    seven = made_up.flat(made_up.SEVEN)
    copied, pinned, implausible, launches = (made_up.case("matmul", "cuda:0", n=n, dtype="fp32") for n in range(4))
    found = made_up.rounds_of(copied, seven, transfer=Transfer(7_000_000, 0.1, 8, 0.1, 0.001, 0.1))
    found += made_up.rounds_of(pinned, seven, transfer=Transfer(28_000_000, 0.1, 8, 0.1, 0.001, 0.1))
    found += made_up.rounds_of(implausible, seven, flops=670e12)
    found += [made_up.timed_on_device(each, 0.5) for each in made_up.rounds_of(launches, seven)]
    return found + made_up.rounds_of(made_up.case("stream", "cuda:0", bytes=1), seven, flops=None, bytes=1.2e12)


def troubles() -> list[Measurement]:
    """Cases that did not go well, alone or many alike, and text that would steer a terminal."""
    searches = [made_up.ended(made_up.case("largest_batch", n=n), Status.SKIPPED, "stopped: batch=21 fits so far") for n in range(2)]
    return [
        made_up.ended(made_up.case("train_step", model="vgg19", dtype="fp16"), Status.TIMEOUT, "not done within 60 s; raise --timeout"),
        *(replace(each, found={"batch": 21}, unfinished=True) for each in searches),
        made_up.ended(made_up.case("train_step", model="resnet18"), Status.SKIPPED, "the budget was spent before its turn"),
        replace(made_up.ended(made_up.case("fastest", model="vgg"), Status.TIMEOUT, "not done within 60 s"), found={"batch": 8}),
        *(made_up.ended(made_up.case("matmul", n=n), Status.UNSUPPORTED, "no TF32") for n in range(3)),
        *(made_up.ended(made_up.case("collective", ranks=n), Status.UNSUPPORTED, "4 [b]cores[/b]") for n in range(4)),
        *(made_up.ended(made_up.case("matmul", k=n), Status.FAILED, "it broke") for n in range(4)),
        made_up.ended(made_up.case("step", model="[red]x[/red]\x1b[2J"), Status.FAILED, "[bold]bad[/nothing] \x1b[31mnews\u202e\r"),
        *made_up.rounds_of(made_up.case("step", model="\N{CJK UNIFIED IDEOGRAPH-6C49}" * 30), made_up.flat(made_up.SEVEN)),
    ]


def many(count: int = 4) -> list[Measurement]:
    """Disturbed cases with long names, so many of two workloads each, the last of which failed."""
    cases = [made_up.case(workload, n=n, model="a_name_of_200_letters_" * 9) for workload in ("matmul", "infer_step") for n in range(count)]
    lost = Throttling(waiting=0.5)
    measured = [each for case in cases[:-1] for each in made_up.rounds_of(case, made_up.flat([1.0, 2.0, 1.0]), throttling=lost)]
    return [*measured, made_up.ended(cases[-1], Status.FAILED, "it broke at 12 MiB")]


SHOWN: Mapping[str, tuple[list[Callable[[], list[Measurement]]], str]] = {
    "show": ([steps], ""),
    "show-details": ([steps], "--topic details"),
    "show-topic": ([steps], "--topic speed-up"),
    "show-answers": ([made_up.both_kinds], "--topic all"),
    "show-by-device": ([on("cpu"), on("cuda:0")], "--by device"),
    "show-by-dtype": ([made_up.both_kinds], "--by dtype"),
    "show-by-cache": ([steps], "--by cache"),
    "show-nothing-to-pair": ([on("cpu")], "--by device"),
    "show-unlike": ([unlike], ""),
    "show-card": ([on_the_card_alone], ""),
    "show-troubles": ([troubles], ""),
    "show-many": ([many], ""),
    "show-few-rounds": ([lambda: made_up.both_kinds(rounds=3)], ""),
    "show-one-pair": ([lambda: made_up.both_kinds(rounds=3)[:6]], "--topic speed-up"),
    "show-cpu": ([on("cpu")], ""),
    "show-empty": ([list], ""),
}
"""Result files, and the options with which they are shown."""


def at_widths(folder: Path, *command: str, widths: tuple[int, ...] = WIDTHS) -> dict[str, str]:
    """What a command says on terminals of these widths and in a pipe, and on stderr, where nobody watches."""
    done = {f"{columns} columns": front_door.in_process(folder, *command, columns=columns) for columns in widths}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "")
        piped = front_door.in_process(folder, *command)
    return {width: each.out for width, each in done.items()} | {"a pipe": piped.out, f"stderr, exit {piped.code}": piped.err}


def tables_within(texts: Mapping[str, str], widths: tuple[int, ...] = WIDTHS) -> None:
    """Hold that no line of a table, from its rule on, is wider than the terminal."""
    for columns in widths:
        lines = texts[f"{columns} columns"].splitlines()
        ruled = [at for at, line in enumerate(lines) if line.startswith(" ──")]
        rows = [line for at in ruled for line in (lines[at - 1], *lines[at : lines.index("", at)])]
        assert [line for line in rows if cell_len(line.rstrip()) > columns and not line.startswith("   ")] == []


@pytest.mark.parametrize("name", SHOWN)
def test_result_files(tmp_path: Path, snapshot: Snapshot, name: str) -> None:
    runs, options = SHOWN[name]
    files = written(tmp_path, *(run() for run in runs), accelerator={"pcie_generation_max": 4, "pcie_width_max": 16})
    texts = at_widths(tmp_path, "show", *files, *options.split())
    tables_within(texts)
    snapshot(name, under_titles(texts))


def test_a_comparison(tmp_path: Path, snapshot: Snapshot) -> None:
    cases = [made_up.case("train_step", model=model, batch=batch, dtype="fp32") for model in ("resnet50", "resnet34") for batch in (8, 64)]
    for name, factors in (("base", (1, 1, 1, 1)), ("new", (1.5, 1.1, 1.2, 0.9))):
        rounds = [[factor * each for each in (made_up.SEVEN if n == 0 else WIDE)] for n, factor in enumerate(factors)]
        measured = [each for case, seconds in zip(cases, rounds, strict=True) for each in made_up.rounds_of(case, made_up.flat(seconds))]
        made_up.write(tmp_path / f"{name}.jsonl", measured, environment={"machine_key": "one"})
    texts = at_widths(tmp_path, "compare", "base.jsonl", "new.jsonl")
    tables_within(texts)
    snapshot("compare", under_titles(texts))
    shown = texts["80 columns"].rstrip()
    assert "\n".join(map(str.rstrip, shown.splitlines())) in (front_door.ROOT / "docs" / "compare.md").read_text()
    other = made_up.case("storage", suite="storage", block=1)
    made_up.write(tmp_path / "other.jsonl", made_up.rounds_of(other, made_up.flat(WIDE)), environment={"machine_key": "two"})
    texts = at_widths(tmp_path, "compare", "base.jsonl", "other.jsonl", "--across-machines")
    snapshot("compare-nothing-in-common", under_titles(texts))


def test_comparisons_of_several_files_and_what_is_missing(tmp_path: Path, snapshot: Snapshot) -> None:
    def timed(n: int, factor: float = 1.0, rounds: tuple[float, ...] = TEN) -> list[Measurement]:
        return made_up.rounds_of(made_up.case("matmul", n=n), made_up.flat([factor * each for each in rounds]))

    skewed = (1.00, 1.01, 1.02, 1.3, 1.4, 1.5, 0.99), (1.03, 1.04, 1.05, 1.06, 0.5, 0.4, 0.6)
    runs = {
        "base": [*timed(1), *timed(2), *timed(3), *timed(4, rounds=skewed[0]), *timed(5, rounds=WIDE), *timed(6, rounds=WIDE)],
        "new": [*timed(1), *timed(2, 1.2), *timed(4, rounds=skewed[1]), *timed(5, 1.1, WIDE), *timed(6, 1.3, WIDE)],
        "later": [*timed(1, 0.5), made_up.ended(made_up.case("matmul", n=2), Status.FAILED, "\x1b[2J\nslower")],
    }
    for name, run in runs.items():
        made_up.write(tmp_path / f"{name}.jsonl", run)
    texts = at_widths(tmp_path, "compare", *(f"{name}.jsonl" for name in runs))
    tables_within(texts)
    snapshot("compare-several", under_titles(texts))


def test_suites_and_findings(tmp_path: Path, snapshot: Snapshot, capsys: pytest.CaptureFixture[str]) -> None:
    texts = at_widths(tmp_path, "list")
    tables_within(texts)
    listed = [line.split()[0] for line in texts["a pipe"].splitlines() if line[:1].strip()]
    assert listed == sorted(path.stem for path in front_door.ROOT.glob("suites/*.toml"))
    findings = [
        Finding("governor", "cpu", Fitness.FIT, "performance"),
        Finding("power limit", "cuda:0", Fitness.NOTE, "450 W, usual are 700 W", "have it raised", {"watts": 450}),
        Finding("same code", "cpu", Fitness.UNFIT, "it differs " * 9, "quieten the machine", {"change": 0.25}, "matmul[n=512]@cpu"),
    ]
    shown = {}
    for columns in (*WIDTHS, None):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("COLUMNS", str(columns or ""))
            noise.write_findings(findings, "table")
            shown[f"{columns} columns" if columns else "a pipe"] = capsys.readouterr().out
    snapshot("doctor", under_titles(shown))


def test_devices(tmp_path: Path, snapshot: Snapshot, monkeypatch: pytest.MonkeyPatch) -> None:
    known = {"kind": "cuda", "name": "Odd [/foo] [bold]card", "memory_bytes": 64 << 30, "clock_sm_max_hz": 1.98e9, "power_limit_w": None}
    known |= {"temperature_c": 34, "ecc": True, "nvlink_links": 0, "caches": ("L1 32 KiB", "L2 1.00 MiB"), "cgroup_quota_cores": 1.5}
    reasons = {"power_limit_w": "NVML reads NVIDIA devices only"}
    card = SimpleNamespace(to_json=lambda: {"id": "cuda:0", **known, "reasons": reasons})
    broken = SimpleNamespace(to_json=lambda: {"id": "cuda:1", "kind": "cuda", "name": None, "unusable": "driver too old", "reasons": {}})
    monkeypatch.setattr("dlbench.harness.runner.ask_hello", lambda _: {"versions": {"torch": "2.11.0+cu130", "cuda": "13.0"}})
    monkeypatch.setattr("dlbench.harness.probe.devices.describe", lambda _: [card, broken])
    snapshot("devices", under_titles(at_widths(tmp_path, "devices")))


def test_cases_are_folded_so_that_the_end_stays_on_the_screen(tmp_path: Path) -> None:
    (name,) = written(tmp_path, many(30))
    for columns, most in ((100, 39), (80, 39), (40, 54), (20, 92)):
        lines = front_door.in_process(tmp_path, "show", name, columns=columns, lines=40).out.splitlines()
        assert (len(lines) <= most, "60 cases" in " ".join(lines)) == (True, True)
        assert sum(line.startswith(("open ", "open:")) for line in lines) == 1
        whole = front_door.in_process(tmp_path, "show", name, "--topic", "details", columns=columns, lines=40).out
        assert whole.count("n=") >= 60


def test_what_comes_next(tmp_path: Path) -> None:
    """To go on, the doctor where all cases were disturbed in some round, and what the file of an own network needs where it failed."""
    every, other = (
        made_up.rounds_of(made_up.case("matmul", suite=suite, n=8), made_up.flat(made_up.SEVEN)) for suite in ("quick", "network")
    )
    disturbed = [replace(each, throttling=Throttling(waiting=0.5 if each.round < 3 else 0.0)) for each in every]
    some = [*disturbed, *made_up.rounds_of(made_up.case("matmul", n=2), made_up.flat(made_up.SEVEN))]
    failed = made_up.ended(made_up.case("train_step", "cpu", suite="network", model="bad"), Status.FAILED, "no such layer")
    own: dict[str, object] = {"environment": {"provenance": {"command": [["run", "bad one.py"], ["--rounds", "7"]]}}}
    for name, measured, options, expected in (
        ("begun", [], {"planned": 2, "finished": False}, "dlbench run --resume begun.jsonl"),
        ("disturbed", disturbed, {}, "dlbench doctor"),
        ("some", some, {}, "dlbench run mine.py"),
        ("own", [failed, *other], own, "mend 'bad one.py', then dlbench run 'bad one.py' --rounds 7"),
        ("sound", other, own, "dlbench run cnn"),
    ):
        made_up.write(tmp_path / f"{name}.jsonl", measured, **options)
        done = front_door.in_process(tmp_path, "show", f"{name}.jsonl", columns=140)
        assert ("not usable" in done.out, (done.out.splitlines()[0], done.out.count("──")) == ("No cases.", 0)) == (False, name == "begun")
        assert done.err.splitlines()[-1] == f"next       {expected} · of {name}.jsonl · why: dlbench show {name}.jsonl --topic all"


def test_a_pipe_is_as_wide_as_its_variable_says_and_else_as_a_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (name,) = written(tmp_path, made_up.both_kinds())
    for columns in ("70", ""):
        monkeypatch.setenv("COLUMNS", columns)
        piped = front_door.in_process(tmp_path, "compare", name, "--by", "batch").out
        assert max(map(len, piped.splitlines())) <= int(columns or 100)
    # What an encoding lacks is written alike.
    command, variables = ("show", name, "--topic", "details"), {"PYTHONIOENCODING": "latin-1", "COLUMNS": "100"}
    done = front_door.dlbench(*command, cwd=tmp_path, variables=variables, errors="replace")
    assert ("?" in done.out, max(map(len, done.out.splitlines())) <= 100) == (False, True)
    assert "97.0~103" in done.out  # for 97.0…103


def shown_on_terminal(folder: Path, *arguments: str, columns: int) -> str:
    """What a command writes to a real terminal of that width, without colours."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    command, environment = [sys.executable, "-m", "dlbench", *arguments], front_door.environment(TERM="xterm")
    seen = b""
    with subprocess.Popen(command, cwd=folder, env=environment, stdin=theirs, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        with contextlib.suppress(OSError):  # so a terminal tells that nobody has it open any more
            while data := os.read(ours, 1 << 16):
                seen += data
    os.close(ours)
    assert process.returncode == 0, seen
    return re.sub(rb"\x1b\[\d*m|\r", b"", seen).decode()


@pytest.mark.real
def test_a_real_terminal_gets_what_its_width_has_room_for(tmp_path: Path) -> None:
    (name,) = written(tmp_path, made_up.both_kinds())
    show = ("show", name, "--topic", "speed-up")
    assert shown_on_terminal(tmp_path, *show, columns=90) == front_door.in_process(tmp_path, *show, columns=90).out
    lines = shown_on_terminal(tmp_path, "list", "quick", "-k", "alexnet", "--device", "cpu", columns=60).splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("2 cases"))  # others may take the CPUs, which comes behind
    told = ["2 cases, about 11.2 s in 7 rounds (estimated from the", "  policy; slow steps take longer, 180 s at most)"]
    assert lines[first : first + 2] == told


def test_a_note_breaks_between_words_on_a_terminal_and_nowhere_else(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    path = f"/{'a-long-folder/' * 4}run.jsonl"
    note = f"note: base and new took 161 ms and 21.0 % in {path}; those of base hold"
    ours, theirs = pty.openpty()
    with os.fdopen(ours), os.fdopen(theirs, "w") as stream, (tmp_path / "notes").open("w") as file:
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 28, 0, 0))
        broken = ("note: base and new took", "161 ms and 21.0 % in", f"{path};", "those of base hold")
        assert wrapped(note, stream) == "\n  ".join(broken)
        monkeypatch.setenv("COLUMNS", "200")
        assert wrapped(note, stream) == wrapped(note, file) == note
