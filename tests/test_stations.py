"""One case, walked: which modules are called from the command to its row."""

import os
import re
import subprocess
import sys
from pathlib import Path

import front_door
import pytest
from front_door import ROOT

pytestmark = pytest.mark.real

# Runs at the start of every Python process of the walk, the measuring one's, too, and notes each function of dlbench that is called;
# calls while a module is imported are of no case.
NOTING = """
import os, sys, threading
noted = os.open(os.environ["CALLED"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
seen = set()

def importing(frame):
    while frame is not None:
        path = frame.f_code.co_filename
        if frame.f_code.co_name == "<module>" and "/dlbench/" in path and os.path.basename(path) not in ("__main__.py", "main.py"):
            return True
        frame = frame.f_back

def note(frame, event, _):
    code = frame.f_code
    if event == "call" and code not in seen and "/dlbench/" in code.co_filename and code.co_flags & 1 and not importing(frame):
        seen.add(code)
        os.write(noted, code.co_filename.encode() + b"\\n")

sys.setprofile(note)
threading.setprofile(note)
"""


def test_one_case_calls_few_modules_and_those_of_the_design_among_them(tmp_path):
    (tmp_path / "sitecustomize.py").write_text(NOTING)
    suite = front_door.suite(tmp_path, 'workload = "matmul"\naxes.n = 16')
    called = tmp_path / "called"
    paths = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, "-m", "dlbench", "run", str(suite), "--device", "cpu", "--rounds", "1", "--format", "csv"]
    subprocess.run(
        command, cwd=tmp_path, env={**os.environ, "CALLED": str(called), "PYTHONPATH": paths}, check=True, stdout=subprocess.PIPE
    )
    modules = {Path(line).relative_to(ROOT).as_posix() for line in called.read_text().splitlines() if Path(line).is_relative_to(ROOT)}
    stations = re.search(r"\n## One case, from suite to table\n(.*?)\n```", (ROOT / "docs" / "design.md").read_text(), re.DOTALL)[1]
    named = {f"dlbench/{path}" for path in re.findall(r"`([\w/]+\.py)`", stations)}
    assert len(named) >= 20
    assert sorted(named - modules) == ["dlbench/analysis/report/terminal.py"]  # csv is the row without its table
    assert len(modules) <= 80
