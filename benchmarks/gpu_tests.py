"""Tests that need an accelerator, as a piece that goes on where it stopped: what has passed is not run again with the same code."""

import hashlib
import importlib.util
import json
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from benchmarks.alternate import ROOT
from benchmarks.limited import STOPPED, Command
from dlbench.core.errors import ExitCode

TESTS = ROOT / "tests" / "gpu"
TESTS_S = 200.0
"""What all of them may take on a usual machine; most read one and the same run, so that half of the time buys few of them."""
CODE = (
    "dlbench/**/*.py",
    "dlbench/**/*.toml",
    "suites/*.toml",
    "benchmarks/*.py",
    "tests/front_door.py",
    "tests/plugins/*.py",
    "tests/gpu/*.py",
)
"""All that decides here how a test or a check on a card ends."""


def code_key(software: str) -> str:
    """Return a digest of the code and of other software, as the version of torch: what did not hold with it need not be tried again."""
    digest = hashlib.sha256(software.encode())
    for path in sorted(path for pattern in CODE for path in ROOT.glob(pattern)):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


@dataclass(frozen=True)
class GpuTests:
    """The tests, and the files that keep what has passed of them."""

    folder: Path
    software: str
    """Whatever else than the code decides whether they pass: the version of torch."""

    @property
    def _record(self) -> Path:
        return self.folder / "gpu-tests.json"

    def _recorded(self) -> tuple[list[str], bool]:
        """Return the tests that have passed with this code, and whether nothing is left."""
        with suppress(OSError, ValueError, KeyError, TypeError):  # none yet, or damaged: all are run again
            record = json.loads(self._record.read_text())
            if record["key"] == code_key(self.software):
                return list(map(str, record["passed"])), bool(record["complete"])
        return [], False

    def complete(self) -> bool:
        """Whether nothing is left of them."""
        return self._recorded()[1]

    def run(self, command: Command, limit_s: float) -> tuple[str, str, ExitCode]:
        """Run those that have not passed yet; return what was done, what is left, and the code."""
        if importlib.util.find_spec("pytest") is None:
            return "skipped: pytest is not installed", "", ExitCode.OK
        self.folder.mkdir(parents=True, exist_ok=True)
        passed, report = self._recorded()[0], self.folder / "gpu-tests.xml"
        report.unlink(missing_ok=True)
        code = command(("-m", "pytest", *options(ROOT, report), *(f"--deselect={each}" for each in passed), str(TESTS)), limit_s)
        new = passed_in(report)
        report.unlink(missing_ok=True)
        passed = [*passed, *(each for each in new if each not in passed)]
        complete = code in (0, _NONE_SELECTED) and bool(passed)  # where the card is gone meanwhile, all are skipped
        self._record.write_text(json.dumps({"key": code_key(self.software), "passed": passed, "complete": complete}, indent=1) + "\n")
        if complete:
            return "passed", "", ExitCode.OK
        left = f"all but the {len(passed)} that passed" if passed else "all of them"
        if code == ExitCode.INTERRUPTED:
            return "interrupted", left, ExitCode.INTERRUPTED
        if code in (STOPPED, _INTERRUPTED):
            return f"stopped after {limit_s:.0f} s", left, ExitCode.OK
        if code == 0:
            return "were all skipped", left, ExitCode.DEVICE_ABSENT
        return f"failed (pytest ended with {code})", f"{left}; --no-tests leaves them out", ExitCode.CASES_FAILED


_OTHERWISE = ("failure", "error", "skipped")
_INTERRUPTED, _NONE_SELECTED = 2, 5
"""Exit codes of pytest."""


def options(root: Path, report: Path) -> tuple[str, ...]:
    """Return pytest's options for tests below a root."""
    # Warnings of whatever torch is there are not ours to fail on; a checkout may be read-only, and its cache is kept elsewhere.
    elsewhere = f"cache_dir={report.with_suffix('.cache')}"
    return ("-m", "gpu", "-W", "default", "--override-ini", elsewhere, "--rootdir", str(root), "--junitxml", str(report))


def passed_in(report: Path) -> Sequence[str]:
    """Return the ids of the tests that passed, from pytest's own report, which it writes even when interrupted."""
    try:
        cases = list(ET.parse(report).iter("testcase"))  # noqa: S314  # pytest has just written it
    except (OSError, ET.ParseError):
        return ()
    # One that was interrupted is listed without its name.
    good = [each for each in cases if "classname" in each.attrib and not any(each.find(how) is not None for how in _OTHERWISE)]
    return [f"{each.attrib['classname'].replace('.', '/')}.py::{each.attrib['name']}" for each in good]
