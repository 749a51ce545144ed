"""Words that a shell offers while one types: asked as the shells ask, and once by a real one."""

import os
import subprocess
import sys

import front_door
import pytest
import shared_hosts


def offered(folder, *words):
    """What bash is offered for the last of the words: kind and word of each."""
    variables = {"_DLBENCH_COMPLETE": "bash_complete", "COMP_WORDS": " ".join(words), "COMP_CWORD": str(len(words) - 1)}
    done = shared_hosts.dlbench(cwd=folder, variables=variables)
    assert (done.code, done.err) == (0, "")
    return [tuple(line.split(",", 1)) for line in done.out.splitlines()]


@pytest.mark.parametrize(
    ("line", "words", "kind"),
    [
        ("dlbench co", ["compare", "contribute"], "plain"),
        ("dlbench run mat", ["matmul"], "plain"),
        ("dlbench run --rou", ["--rounds"], "plain"),
        ("dlbench run --device c", ["cpu", "cuda"], "plain"),
        ("dlbench show --topic b", ["bottleneck", "batch"], "plain"),
        ("dlbench show run.jsonl --by d", ["device", "device_name", "dtype"], "plain"),
        ("dlbench show run.jsonl --format j", ["json"], "plain"),
        ("dlbench export run.jsonl --to p", ["parquet", "pyperf"], "plain"),
        *((f"dlbench {words}", [words.split()[-1]], "file") for words in ("show no", "run no/", "run --resume no", "export no")),
    ],
)
def test_the_words_that_begin_so_are_offered_and_a_path_is_left_to_the_shell(tmp_path, line, words, kind):
    assert offered(tmp_path, *line.split()) == [(kind, word) for word in words]


def test_a_broken_file_of_defaults_is_no_trouble_here_and_what_no_shell_asks_is_a_usage_error(tmp_path):
    (tmp_path / "dlbench.toml").write_text("[run\n")
    assert offered(tmp_path, "dlbench", "run", "noi") == [("plain", "noise")]
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
