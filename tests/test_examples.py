"""What is in examples/, as somebody uses it: a package installed, tested and run, and a file with a network and its loader."""

import json
import os
import re
import shlex
import subprocess
import sys
import tomllib

import front_door
import pytest
import shared_hosts

pytestmark = pytest.mark.real

EXAMPLE = front_door.ROOT / "examples" / "dlbench-attention"
NETWORK = front_door.ROOT / "examples" / "my-network" / "my_network.py"
NOTEBOOK = front_door.ROOT / "examples" / "notebook" / "dlbench.ipynb"
SOURCE = tomllib.loads((front_door.ROOT / "pyproject.toml").read_text())["project"]["urls"]["Source"].removeprefix("https://github.com/")


def test_an_installed_package_has_a_workload_that_runs_by_its_name_alone_and_tests_that_pass(tmp_path):
    """Installed without a network into a folder of its own."""
    installed = tmp_path / "installed"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index", "--no-deps"]
    subprocess.run([*pip, "--no-build-isolation", "--target", str(installed), str(EXAMPLE)], check=True)
    variables = {"PYTHONPATH": f"{installed}{os.pathsep}{front_door.environment()['PYTHONPATH']}"}
    (tmp_path / "decode.toml").write_text((EXAMPLE / "decode.toml").read_text() + front_door.HASTY)
    narrow = ("--set", "seq=64", "--set", "kv_heads=4,1", "--set", "heads=4", "--device", "cpu", "--rounds", "1")
    _, rows = front_door.run(tmp_path, "decode.toml", *narrow, variables=variables)
    ids = [f"decode_attention[seq=64,heads=4,kv_heads={kv_heads},dtype=fp32]@cpu" for kv_heads in (4, 1)]
    assert {each["case"]["id"]: each["status"] for each in rows} == dict.fromkeys(ids, "ok")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(EXAMPLE), "--rootdir", str(EXAMPLE)]
    environment = front_door.environment(**variables)
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=240)
    assert (done.returncode, "3 passed" in done.stdout) == (0, True), done.stdout


def test_a_network_is_measured_by_itself_and_fed_by_its_loader(tmp_path):
    steps = 'workload = "train_step"\naxes.model = "own"\naxes.optimizer = "own"\naxes.batch = 4'
    feeding = 'workload = "feed"\naxes.model = "own"\naxes.source = "pictures"\naxes.workers = 1\naxes.batch = 4'
    suite = front_door.suite(tmp_path, steps, feeding)
    _, rows = shared_hosts.run(tmp_path, suite, str(NETWORK), "--device", "cpu", "--rounds", "1")
    found = {each["case"]["id"]: each for each in rows}
    fed = "feed[model=small_cnn,batch=4,source=pictures,workers=1,dtype=fp32]@cpu"
    ids = ["train_step[model=small_cnn,batch=4,dtype=fp32,optimizer=own]@cpu", fed]
    assert {case: each["status"] for case, each in found.items()} == dict.fromkeys(ids, "ok")
    assert found[fed]["values"]["input_alone_s"] > 0


def test_the_notebook_runs_from_top_to_bottom_and_all_pages_install_from_one_address(tmp_path):
    """On the CPU, with one case of its suite in one round."""
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    install, *commands = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    assert install == f"%pip install --quiet git+https://github.com/{SOURCE}@COMMIT"
    for command in commands:
        program, *words = shlex.split(command)
        assert program == "!dlbench"
        small = ["--rounds", "1", "--device", "cpu", "-k", "launch_kernel"] if words[0] == "run" else []
        done = front_door.dlbench(*words, *small, cwd=tmp_path)
        assert done.code == 0, done.err
    assert (tmp_path / "run.jsonl").is_file()
    pages = [front_door.ROOT / "README.md", front_door.ROOT / "action.yml", *(front_door.ROOT / "docs").glob("*.md"), NOTEBOOK]
    named = {name for page in pages for name in re.findall(r"(?:uses: |github\.com/)([\w.-]+/dlbench)\b", page.read_text())}
    assert named == {SOURCE}
