"""``make`` in a checkout that can't be written, and what it says while it installs."""

import shutil
import subprocess

import front_door
import pytest

KEEPING = ("PYTHONPYCACHEPREFIX", "HYPOTHESIS_STORAGE_DIRECTORY", "MYPY_CACHE_DIR", "RUFF_CACHE_DIR")


@pytest.fixture
def checkout(tmp_path):
    """A folder with a space in its name, and an environment in which each program prints its variables and what it is told."""
    folder = tmp_path / "a checkout"
    for name in ("Makefile", "pyproject.toml", "constraints.txt", "venv/bin/python", "venv/bin/ruff", "venv/bin/mypy", "venv/.installed"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("#!/bin/sh\nenv\nprintf 'told=%s\\n' \"$@\"\n")
        (folder / name).chmod(0o755)
    shutil.copy(front_door.ROOT / "Makefile", folder)
    return folder


def kept(folder, *arguments):
    """What the programs are told of where to keep things, each once."""
    variables = {name: value for name, value in front_door.environment().items() if name not in (*KEEPING, "MAKEFLAGS")}
    command = ["make", "--silent", "check", "test", "VENV=venv", *arguments]
    done = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, check=True)
    return sorted({line for line in done.stdout.splitlines() if line.partition("=")[0] in KEEPING or line.startswith("told=cache_dir")})


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
def test_what_tools_keep_is_in_the_environment_where_the_checkout_cannot_be_written(checkout):
    assert kept(checkout, "WRITABLE=yes") == []
    place = checkout / "venv" / "kept"
    assert kept(checkout, "WRITABLE=") == [
        f"HYPOTHESIS_STORAGE_DIRECTORY={place}/hypothesis",
        f"MYPY_CACHE_DIR={place}/mypy",
        f"PYTHONPYCACHEPREFIX={place}/bytecode",
        f"RUFF_CACHE_DIR={place}/ruff",
        f"told=cache_dir={place}/pytest",
    ]


PIP = """#!/bin/sh
case "$*" in
*--quiet*) ;;
*pip*) cat <<'END'
Obtaining file:///somewhere/dlbench
  Downloading torch-9.8.7-cp311-cp311-manylinux_2_28_x86_64.whl (189.2 MB)
Downloading six-1.17.0-py2.py3-none-any.whl (11 kB)
Using cached numpy-2.4.1-cp311-cp311-manylinux_2_28_x86_64.whl (16.8 MB)
Installing collected packages: six, numpy, torch
END
;;
esac
case "$*" in *pip*) exit $PIP_CODE ;; esac
"""


def installed(checkout, code):
    """Make the environment, with a pip that ends with this code; return how make ended."""
    (checkout / "venv" / ".installed").unlink()
    (checkout / "constraints.txt").write_text("torch==9.8.7\n")
    (checkout / "venv" / "bin" / "python").write_text(PIP)
    variables = {name: value for name, value in front_door.environment(PIP_CODE=str(code)).items() if name != "MAKEFLAGS"}
    command = ["make", "--silent", "venv/.installed", "VENV=venv", "PYTHON=true", "WRITABLE=yes"]
    return subprocess.run(command, cwd=checkout, env=variables, capture_output=True, text=True, check=False)


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
def test_make_names_what_it_downloads_with_the_size_that_pip_says(checkout):
    done = installed(checkout, 0)
    assert done.stdout.splitlines() == [
        "installing torch 9.8.7, and what dlbench and its tests need, into venv:",
        "Downloading torch-9.8.7-cp311-cp311-manylinux_2_28_x86_64.whl, 189.2 MB",
        "Using cached numpy-2.4.1-cp311-cp311-manylinux_2_28_x86_64.whl, 16.8 MB",
    ]
    assert (done.returncode, (checkout / "venv" / ".installed").exists()) == (0, True)


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
def test_make_ends_where_pip_fails_and_installs_again_the_next_time(checkout):
    done = installed(checkout, 1)
    assert (done.returncode, (checkout / "venv" / ".installed").exists()) == (2, False)
