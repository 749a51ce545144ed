"""Words that a shell offers while one types: asked as the shells ask, and once by a real one."""

import os
import subprocess
import sys

import front_door
import pytest
import shared_hosts


def offered(folder, *words):
    """What bash would be offered for the last of the words: kind and word of each."""
    variables = {"_DLBENCH_COMPLETE": "bash_complete", "COMP_WORDS": " ".join(words), "COMP_CWORD": str(len(words) - 1)}
    done = shared_hosts.dlbench(cwd=folder, variables=variables)
    assert (done.code, done.err) == (0, "")
    return [tuple(line.split(",", 1)) for line in done.out.splitlines()]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("dlbench co", ["compare", "contribute"]),
        ("dlbench run mat", ["matmul"]),
        ("dlbench run --rou", ["--rounds"]),
        ("dlbench run --device c", ["cpu", "cuda"]),
        ("dlbench show --topic b", ["bottleneck", "batch"]),
        ("dlbench show run.jsonl --by d", ["device", "device_name", "dtype"]),
        ("dlbench show run.jsonl --format j", ["json"]),
        ("dlbench export run.jsonl --to p", ["parquet", "pyperf"]),
    ],
)
def test_the_words_that_begin_so_are_offered(tmp_path, line, words):
    assert offered(tmp_path, *line.split()) == [("plain", word) for word in words]


@pytest.mark.parametrize("line", ["dlbench show no", "dlbench run no/", "dlbench run --resume no", "dlbench export no"])
def test_a_path_is_for_the_shell_to_complete(tmp_path, line):
    words = line.split()
    assert offered(tmp_path, *words) == [("file", words[-1])]


def test_a_broken_file_of_defaults_is_no_trouble_here(tmp_path):
    (tmp_path / "dlbench.toml").write_text("[run\n")
    assert offered(tmp_path, "dlbench", "run", "noi") == [("plain", "noise")]


def test_what_no_shell_asks_is_a_usage_error(tmp_path):
    assert shared_hosts.dlbench(cwd=tmp_path, variables={"_DLBENCH_COMPLETE": "nonsense"}).code == 2


def test_bash_itself_completes(tmp_path, tmp_path_factory):
    program = tmp_path_factory.mktemp("bin") / "dlbench"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m dlbench "$@"\n')
    program.chmod(0o755)
    script = """
        eval "$(_DLBENCH_COMPLETE=bash_source dlbench)"
        COMP_WORDS=(dlbench run noi) COMP_CWORD=2
        _dlbench_completion dlbench
        printf '%s\\n' "${COMPREPLY[@]}"
    """
    variables = front_door.environment(PATH=f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, env=variables, capture_output=True, text=True, check=False)
    assert (done.stdout.split(), done.stderr) == (["noise"], "")
