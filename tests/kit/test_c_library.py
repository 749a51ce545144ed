"""The compiler of products of single bits: called once in a run, and what stands in where it is missing, fails or hangs."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import front_door
import pytest
import torch

from dlbench.kit import binary
from dlbench.kit.binary import BinaryProduct, NotBuilt

np = pytest.importorskip("numpy", reason="it stands in for a compiler")
counts_bits = pytest.mark.skipif(not hasattr(np, "bitwise_count"), reason=f"NumPy {np.__version__} counts no bits, as 2.0 does")
pytestmark = [pytest.mark.real, pytest.mark.usefixtures("scratch")]


@pytest.fixture(autouse=True)
def _each_builds_its_own() -> Iterator[None]:
    """What a test has built, or has failed to, is no other's."""
    binary._library.cache_clear()
    yield
    binary._library.cache_clear()


def compiler_or_skip() -> str:
    try:
        return binary._compiler()[0]
    except NotBuilt as error:
        pytest.skip(str(error))


HANGS = 'cd "${0%/*}"; sleep 987 & echo $$ $! >> asked; wait'
"""A compiler with a child, both of which it names before they wait."""


def script(folder: Path, text: str) -> str:
    path = folder / "compiler"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def no_compiler(folder: Path, patch: pytest.MonkeyPatch) -> str:
    patch.delenv("CC", raising=False)
    patch.setenv("PATH", str(folder))
    return "there is no C compiler; install gcc or name one in CC"


def absent(folder: Path, patch: pytest.MonkeyPatch) -> str:
    patch.setenv("CC", "no-such-compiler -O1")
    return "CC names no-such-compiler, which is not there"


def unfinished(folder: Path, patch: pytest.MonkeyPatch) -> str:
    patch.setenv("CC", "gcc 'x")
    return "CC is no command, gcc 'x: No closing quotation"


def failing(folder: Path, patch: pytest.MonkeyPatch) -> str:
    patch.setenv("CC", script(folder, "echo In binary.c >&2; echo 'binary.c:1: error: no' >&2; exit 2"))
    return f"the C compiler {folder}/compiler fails: binary.c:1: error: no"


def silent(folder: Path, patch: pytest.MonkeyPatch) -> str:
    patch.setenv("CC", script(folder, "exit 3"))
    return f"the C compiler {folder}/compiler fails: exit code 3"


def hanging(folder: Path, patch: pytest.MonkeyPatch) -> str:
    patch.setattr(binary, "PATIENCE_S", 0.5)
    patch.setenv("CC", script(folder, HANGS))
    return f"the C compiler {folder}/compiler has not ended within 0.5 s"


def without_scratch(folder: Path, patch: pytest.MonkeyPatch) -> str:
    patch.setattr("dlbench.harness.worker.parent._folder", None)
    return "there is no folder to write in: the workload does not declare scratch, or the temporary folder takes no locks"


def idle(folder: Path, patch: pytest.MonkeyPatch) -> str:
    patch.setenv("CC", script(folder, "exit 0"))
    return f"{folder}/compiler makes no library that loads: "


def unreadable(folder: Path, patch: pytest.MonkeyPatch) -> str:
    """A compiler for another processor, say."""
    patch.setenv("CC", script(folder, 'while [ "$1" != -o ]; do shift; done; echo nothing > "$2"'))
    return f"{folder}/compiler makes no library that loads: "


@counts_bits
@pytest.mark.parametrize("broken", [no_compiler, absent, unfinished, failing, silent, hanging, idle, unreadable, without_scratch])
def test_without_a_compiler_that_works_numpy_computes_and_says_why(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, broken: Callable[[Path, pytest.MonkeyPatch], str]
) -> None:
    (tmp_path / "scratch").mkdir()
    monkeypatch.setattr("dlbench.harness.worker.parent._folder", tmp_path / "scratch")
    says = broken(tmp_path, monkeypatch)
    made = BinaryProduct(torch.ones(2, 70), -torch.ones(70, 2))
    assert (made.kernel, made.is_numerics) == ("NumPy", True)
    assert made.why.startswith(says) if says.endswith(" ") else made.why == says
    assert made().tolist() == [[-70, -70], [-70, -70]]
    assert not any(each.is_dir() for each in (tmp_path / "scratch").iterdir())
    if broken is hanging:
        assert all_end(tmp_path / "asked")


def all_end(asked: Path) -> bool:
    """Whether what was asked has ended, or does within 10 s; a killed process takes a moment."""
    started, deadline = [*map(int, asked.read_text().split())], time.monotonic() + 10
    while (running := any(map(front_door.is_alive, started))) and time.monotonic() < deadline:
        time.sleep(0.01)
    return bool(started) and not running


@counts_bits
def test_a_compiler_that_hangs_is_waited_for_once_in_a_run(tmp_path: Path) -> None:
    bench = 'workload = "matmul"\naxes.n = 128\naxes.dtype = "binary"\ndevices = ["cpu"]'
    head = front_door.HASTY.replace("timeout_s = 20", "timeout_s = 12")
    (tmp_path / "temporary").mkdir()
    variables = {"CC": script(tmp_path, HANGS), "TMPDIR": str(tmp_path / "temporary")}
    mine = front_door.suite(tmp_path, bench, head=head)
    assert front_door.dlbench("run", mine, "-o", "o.jsonl", cwd=tmp_path, variables=variables).code == 0
    rounds = front_door.measurements(tmp_path / "o.jsonl")
    says = f"the C compiler {tmp_path}/compiler has not ended within 5 s"
    assert [(each["status"], says in str(each["missing_reasons"]["speed"])) for each in rounds] == [("ok", True)] * 2
    assert len((tmp_path / "asked").read_text().splitlines()) == 1
    assert all_end(tmp_path / "asked")
    assert [*(tmp_path / "temporary").iterdir()] == []


@counts_bits
def test_a_compiler_ends_with_the_process_that_waits_for_it(tmp_path: Path) -> None:
    """Killed at a deadline, which leaves it no time for anything."""
    bench = 'workload = "matmul"\naxes.n = 16\naxes.dtype = "binary"\ndevices = ["cpu"]'
    head = front_door.HASTY.replace("timeout_s = 20", "timeout_s = 2")
    mine = front_door.suite(tmp_path, bench, head=head)
    front_door.dlbench("run", mine, "-o", "o.jsonl", cwd=tmp_path, variables={"CC": script(tmp_path, HANGS)})
    assert [each["status"] for each in front_door.measurements(tmp_path / "o.jsonl")] == ["timeout"]
    assert all_end(tmp_path / "asked")


def test_a_run_compiles_once_and_its_other_processes_load_that(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    command = compiler_or_skip()
    monkeypatch.setattr("dlbench.harness.worker.parent._folder", tmp_path)
    monkeypatch.setenv("CC", script(tmp_path, f'echo >> {tmp_path}/asked; exec {command} "$@"'))
    for _ in range(2):
        assert BinaryProduct(torch.ones(2, 3), -torch.ones(3, 2))().tolist() == [[-3, -3], [-3, -3]]
        binary._library.cache_clear()
    assert (tmp_path / "asked").read_text() == "\n"


def test_a_compiler_that_has_failed_is_not_asked_again_in_this_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CC", script(tmp_path, f"echo >> {tmp_path}/asked; exit 1"))
    assert str(binary._library()) == str(binary._library())
    assert (tmp_path / "asked").read_text() == "\n"


def test_the_compiler_that_cc_names_gets_its_options(monkeypatch: pytest.MonkeyPatch) -> None:
    command = compiler_or_skip()
    monkeypatch.setenv("CC", f"{command} -g0 -O2")
    assert BinaryProduct(torch.ones(2, 3), -torch.ones(3, 2))().tolist() == [[-3, -3], [-3, -3]]
