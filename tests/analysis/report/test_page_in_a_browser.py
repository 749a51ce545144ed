"""The page in a real browser, which says what it refuses."""

import shutil
import subprocess
from pathlib import Path

import front_door
import made_up
import pytest

pytestmark = pytest.mark.real

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
HOSTILE = "</script><script>console.log('ran')</script><!-- ${7*7}"


@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
@pytest.mark.parametrize(
    "command",
    [("report", "run.jsonl", "-o", "page.html"), ("compare", "run.jsonl", "--by", "dtype", "--report", "page.html")],
)
def test_a_browser_has_nothing_to_say(tmp_path: Path, command: tuple[str, ...]) -> None:
    cases = [made_up.case("train_step", "cpu", model=HOSTILE, batch=batch, dtype=dtype) for batch in (1, 8) for dtype in ("fp32", "bf16")]
    made_up.write(tmp_path / "run.jsonl", [each for case in cases for each in made_up.rounds_of(case, made_up.flat(made_up.SEVEN * 2))])
    front_door.in_process(tmp_path, *command)
    browser = [str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--enable-logging=stderr"]
    browser += [
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        f"--user-data-dir={tmp_path / 'profile'}",
    ]
    page = (tmp_path / "page.html").as_uri()
    done = subprocess.run([*browser, "--dump-dom", page], capture_output=True, text=True, check=True, timeout=60)
    assert [line for line in done.stderr.splitlines() if "CONSOLE" in line] == []
    assert "AMD EPYC 7B13</h1>" in done.stdout
