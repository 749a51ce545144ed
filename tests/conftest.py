"""Helpers of the tests live beside them: ``import front_door``."""

import os
import re
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

TESTS = Path(__file__).parent
sys.path[:0] = [str(TESTS), str(TESTS.parent)]  # the benchmarks are scripts of the checkout, not of the installed package

# Tests run beside each other, each with threads for all CPUs. Threads that wait by spinning take them from those that are waited for, and
# a product of 64 x 64 takes 3 ms for 0.01. Inherited by every process that a test starts; libgomp reads it when torch is imported.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

# How long an example takes says something of the machine, which may be busy, and nothing of the code.
settings.register_profile("dlbench", deadline=None)
settings.load_profile("dlbench")

# A background job of a script starts with Ctrl-C ignored, and so would every process that a test interrupts.
signal.signal(signal.SIGINT, signal.default_int_handler)
# nohup starts one with hang-ups ignored. They still are in this process, and with a handler no longer in those that it starts.
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda *_: None)

# Defaults that whoever runs the tests has set for their own commands are none for these.
for name in [name for name in os.environ if name.startswith("DLBENCH_")]:
    del os.environ[name]
os.environ.pop("COLUMNS", None)  # the workers of pytest-xdist have a width, which screens heed

SLOW = ("cli", "benchmarks", "workloads", "kit")
"""Folders whose tests start processes."""
COLLECTED: list[str] = []
"""The names of all tests, those that are deselected, too."""


@pytest.fixture(autouse=True)
def wide_pipes() -> Iterator[None]:
    """Let pipes be so wide that no sentence is broken that a test reads.

    Not by a test's own ``monkeypatch``, which would then be undone after the test's other fixtures instead of before.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "100000")
        yield


@pytest.fixture
def earlier_files(monkeypatch: pytest.MonkeyPatch) -> tuple[object, ...]:
    """Stand for the reference runs that come with dlbench, which are measured anew from time to time."""
    import front_door

    from dlbench.analysis.read.runs import ReferenceRun
    from dlbench.core.store import read_header

    runs = tuple(ReferenceRun(path, read_header(path)) for path in sorted(front_door.FILES.glob("*/*.jsonl")))
    monkeypatch.setattr("dlbench.analysis.answers.health.reference_runs", lambda: runs)
    return runs


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let snapshots be written: a diff of tests/snapshots is what a reviewer reads."""
    parser.addoption("--snapshot-update", action="store_true", help="write tests/snapshots instead of holding texts against it")


@pytest.fixture
def snapshot(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Hold a text against the file of that name in tests/snapshots."""

    def check(name: str, text: str) -> None:
        path = TESTS / "snapshots" / f"{name}.txt"
        if request.config.getoption("--snapshot-update"):
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert path.exists(), f"there is no snapshot {path.name}: run this test with --snapshot-update, and read what it wrote"
        assert text == path.read_text(encoding="utf-8")

    return check


@pytest.fixture
def transcript(snapshot: Callable[[str, str], None]) -> Callable[[str, int, Callable[[str], str]], None]:
    """Give each title of a snapshot to a function, and hold what it says against the lines below that title.

    The titles are the test's input, and how many there are is said, so that one that goes is noticed. One more is written
    there, and its lines by --snapshot-update.
    """
    import front_door

    def check(name: str, count: int, say: Callable[[str], str]) -> None:
        titles = re.findall("^=== (.*) ===$", (TESTS / "snapshots" / f"{name}.txt").read_text(encoding="utf-8"), re.MULTILINE)
        assert len(titles) == count
        snapshot(name, front_door.under_titles({title: say(title) for title in titles}))

    return check


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark each test with its kind, and begin with the files that take long, so that at the end no worker is alone with one."""
    COLLECTED[:] = [item.nodeid for item in items]
    for item in items:
        item.add_marker(_kind_of(item))
    items.sort(key=lambda item: item.path.relative_to(TESTS).parts[0] not in SLOW)


def _kind_of(item: pytest.Item) -> str:
    """``real`` is a mark in the test file, the others show by what they use; see CONTRIBUTING.md."""
    if item.get_closest_marker("real"):
        return "real"
    if "snapshot" in getattr(item, "fixturenames", ()):
        return "snapshot"
    names = vars(item.module) if isinstance(item, pytest.Function) else {}
    by_command = "front_door" in names or any(getattr(each, "__module__", None) == "front_door" for each in names.values())
    return "front_door" if by_command or item.get_closest_marker("front_door") else "exact"


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Name a parameter that is long or unprintable text by its first words, or as its argument where it has none; so always bytes.

    All processes that share the tests have to call each by the same name, and bytes may hold the time of day.
    """
    if isinstance(val, str) and not re.fullmatch("[ -~]{1,40}", val):
        return " ".join(re.findall(r"[\w.+-]+", val, re.ASCII)[:8])[:80] or argname
    return argname if isinstance(val, bytes) else None


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A folder for what workloads write that are called without a case."""
    from dlbench.harness.worker.parent import give_scratch

    give_scratch(str(tmp_path_factory.mktemp("scratch")))
    yield
    give_scratch(None)


@pytest.fixture
def collected() -> list[str]:
    """The names of all tests that this process found."""
    return COLLECTED


@pytest.fixture
def needs_git() -> None:
    """Skip a test that calls git where there is none."""
    if shutil.which("git") is None:
        pytest.skip("needs git")


def pytest_sessionstart() -> None:
    if (TESTS.parent / "dlbench.toml").exists():
        raise pytest.UsageError("the checkout has a dlbench.toml, whose defaults commands of these tests would go by; move it away")


def pytest_sessionfinish() -> None:
    if shared := sys.modules.get("shared_hosts"):
        shared.end_all()
