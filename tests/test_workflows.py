"""The action, the workflows of this repository and those of docs/ci.md: well-formed, safe, and run as GitHub's runner would."""

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import front_door
import made_up
import pytest
import test_docs
import yaml

from dlbench.cli.main import dlbench
from dlbench.cli.recording import LEAST_ROUNDS
from dlbench.core.model import Policy
from dlbench.core.rank_test import PAIRED_SHARES, TESTS_A_CASE, rounds_for_gate
from dlbench.harness.plan import suite
from dlbench.harness.plan.cases import estimate

ROOT = front_door.ROOT
ACTION = yaml.safe_load((ROOT / "action.yml").read_text())
PAGE = (ROOT / "docs" / "ci.md").read_text()
BLOCKS, EXPORTED = (
    [yaml.safe_load(block) for block in test_docs.of_page(f"docs/{name}.md", test_docs.blocks("yaml"))] for name in ("ci", "export")
)
FILES = [yaml.safe_load(path.read_text()) for path in (ROOT / ".github" / "workflows").glob("*.yml")]
ALL = [ACTION, *FILES, *BLOCKS, *EXPORTED]
WORKFLOWS = [each for each in ALL if isinstance(each, dict) and "jobs" in each]
MOST = 60  # rounds a side that a gate goes on to
ON = True  # what YAML 1.1 makes of the key `on`


def steps(content):
    """Every step anywhere in it; a block of the page may be a list of steps on its own."""
    if isinstance(content, list):
        found = [each for each in content if isinstance(each, dict) and {"run", "uses"} & each.keys()]
        return found or [step for each in content for step in steps(each)]
    return [step for value in content.values() for step in steps(value)] if isinstance(content, dict) else []


def scripts(content):
    return [step["run"] for step in steps(content) if "run" in step]


def test_scripts_are_bash_without_expressions_and_other_actions_are_pinned_and_keep_no_token():
    assert (len(FILES), len(WORKFLOWS) >= 4, len(steps(ALL)) > 15) == (2, True, True)
    used = [step for step in steps(ALL) if "uses" in step]
    pinned = re.compile(r"[\w-]+/[\w/-]+@[0-9a-f]{40}|OWNER/dlbench@COMMIT")
    assert [step["uses"] for step in used if not pinned.fullmatch(step["uses"])] == []
    checkouts = [step for step in used if step["uses"].startswith("actions/checkout@")]
    assert [step for step in checkouts if step.get("with", {}).get("persist-credentials") is not False] == []
    assert [script for script in scripts(ALL) if "${{" in script] == []
    for script in scripts(ALL):
        done = subprocess.run(["bash", "-n"], input=script, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, ""), script


def test_a_workflow_may_read_and_what_may_write_runs_no_code_of_a_pull_request():
    for workflow in WORKFLOWS:
        assert workflow["permissions"] in ({}, {"contents": "read"})
        assert "pull_request_target" not in workflow[ON]
        if "workflow_run" in workflow[ON]:
            assert [step.get("uses", "").partition("@")[0] for step in steps(workflow)] == ["actions/download-artifact", ""]
            assert not re.search(r"\b(dlbench|python|bash|sh|eval|source)\b", re.sub(r'"dlbench: ', '"', scripts(workflow)[0]))
        elif not is_release(workflow):
            assert [job for job in workflow["jobs"].values() if "permissions" in job] == []


def is_release(workflow):
    """Whether nothing but a tag starts it."""
    return list(workflow[ON]) == ["push"] and list(workflow[ON]["push"]) == ["tags"]


def test_what_may_publish_runs_no_code_and_waits_for_approval():
    (release,) = (workflow for workflow in WORKFLOWS if is_release(workflow))
    build, publish = release["jobs"].values()
    assert "permissions" not in build
    assert (publish["needs"], publish["environment"], scripts(publish)) == ("build", "pypi", [])
    assert publish["permissions"] == {"id-token": "write", "attestations": "write"}


def test_the_page_has_commands_that_the_command_line_takes_and_the_inputs_and_outputs_of_the_action():
    gitlab = next(block["benchmarks"]["script"] for block in BLOCKS if "benchmarks" in block)
    texts = [*(script for block in BLOCKS for script in scripts(block)), *gitlab]
    commands = [command for text in texts if re.search("^dlbench ", text, re.MULTILINE) for command in test_docs.commands(text)]
    assert len(commands) >= 3
    for command in commands:
        parse(*command)
    inputs = [[name, each.get("default", ""), each["description"]] for name, each in ACTION["inputs"].items()]
    outputs = [[name, each["description"]] for name, each in ACTION["outputs"].items()]
    assert test_docs.table("docs/ci.md", "input", "default", "meaning") == inputs
    assert test_docs.table("docs/ci.md", "output", "meaning") == outputs


def parse(name, *arguments):
    with dlbench.make_context("dlbench", [name], resilient_parsing=True) as context:
        found = dlbench.get_command(context, name)
        assert found is not None, f"there is no command {name}"
        found.make_context(name, [*arguments])


def test_the_page_has_the_rounds_and_minutes_of_a_gate():
    rows = [line.split(" | ") for line in PAGE.split("| suite | cases |")[1].split("\n\n")[0].splitlines()[2:]]
    assert [row[1] for row in rows] == ["2", "10", "17", "50"]
    for name, counted, *found in rows:
        cases, policy = int(counted), suite.load("quick").policy if "quick" in name else Policy()

        def minutes(rounds, measured, policy=policy):
            return f"{estimate(replace(policy, rounds=rounds, budget_s=None), measured) / 60:.1f}"

        first = rounds_for_gate(PAIRED_SHARES * cases, least=LEAST_ROUNDS, paired=True)
        alone = rounds_for_gate(TESTS_A_CASE * cases, least=LEAST_ROUNDS)
        baseline = minutes(alone, cases), minutes(MOST, cases)
        pairs = minutes(first, 2 * cases), minutes(MOST, 2 * cases)
        assert [each.strip(" |") for each in found] == [f"{a} to {b}" for a, b in ((first, MOST), pairs, (alone, MOST), baseline)]


@pytest.mark.parametrize(("code", "ended", "warns"), [("0", 0, False), ("4", 0, True), ("3", 3, False), ("", 70, False)])
def test_a_job_can_warn_of_what_is_undecided(code, ended, warns):
    (block,) = (block for block in BLOCKS if isinstance(block, list) and any("continue-on-error" in step for step in block))
    done = subprocess.run(["bash", "-ec", block[1]["run"]], env={"CODE": code}, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.startswith("::warning title=dlbench::")) == (ended, warns)


# A Python that writes down how it is called. In place of measuring it hands out a file that is there; all else it does.
STAND_IN = """#!{python}
import json, os, pathlib, shutil, sys
with open({log!r}, "a") as log:
    print(json.dumps(sys.argv[1:]), file=log)
if sys.argv[2] == "pip":
    sys.exit(0)
if sys.argv[1:3] == ["-m", "dlbench"] and sys.argv[3] in ("run", "ab"):
    shutil.copy({measured!r}, sys.argv[sys.argv.index("-o") + 1])
    sys.exit({code})
os.execv({python!r}, [{python!r}, *sys.argv[1:]])
"""


BASH = ("bash", "--noprofile", "--norc", "-e", "-o", "pipefail")
AS_TEXT: dict[str, Any] = {"capture_output": True, "text": True, "check": False}


class Runner:
    """Runs the steps of the action as GitHub's runner does: a script file for bash, inputs in variables, files for what it says."""

    def __init__(self, folder):
        self.folder = folder
        self.log = folder / "calls"
        self.temp = folder / "runner temp"
        self.temp.mkdir()

    def stand_in(self, measured="head.jsonl", code=0):
        path = self.folder / "stand in for python"
        path.write_text(STAND_IN.format(python=sys.executable, log=str(self.log), measured=str(self.folder / measured), code=code))
        path.chmod(0o755)
        return str(path)

    def calls(self):
        """The arguments of each call of the Python that stands in, without folders that have a random name."""
        lines = self.log.read_text().splitlines()
        return [json.loads(re.sub(r"dlbench-\w{6}/", "FOLDER/", line.replace(f"{self.temp}/", ""))) for line in lines]

    def run(self, number, **inputs):
        """Return the exit code, the outputs and the summary of one step of the action."""
        step = ACTION["runs"]["steps"][number]
        given = {name: inputs.pop(name.replace("-", "_"), each.get("default", "")) for name, each in ACTION["inputs"].items()}
        assert not inputs
        variables = {name: re.sub(r"\$\{\{ inputs\.([\w-]+) \}\}", lambda each: given[each[1]], text) for name, text in step["env"].items()}
        script, outputs, summary = (self.folder / name for name in ("script.sh", "outputs", "summary"))
        script.write_text(step["run"])
        outputs.touch()
        assert step["shell"] == "bash"
        files = {"GITHUB_OUTPUT": outputs, "GITHUB_STEP_SUMMARY": summary, "GITHUB_ACTION_PATH": ROOT, "RUNNER_TEMP": self.temp}
        variables |= {name: str(path) for name, path in files.items()}
        done = subprocess.run([*BASH, str(script)], cwd=self.folder, env=front_door.environment(**variables), **AS_TEXT, timeout=240)
        said = dict(line.split("=", 1) for line in outputs.read_text().splitlines())
        return done.returncode, said, summary.read_text() if summary.exists() else done.stdout + done.stderr


@pytest.fixture
def runner(tmp_path):
    noisy = tuple(1 + 12 * (each - 1) for each in made_up.SEVEN)
    files = (("base", 1.0, made_up.SEVEN), ("head", 1.0, made_up.SEVEN), ("slow", 1.5, made_up.SEVEN), ("noisy", 1.4, noisy))
    for name, factor, times in files:
        quiet = made_up.rounds_of(made_up.case("matmul", n=1), made_up.flat(made_up.SEVEN))
        other = made_up.rounds_of(made_up.case("matmul", n=2), made_up.flat([factor * each for each in times]))
        made_up.write(tmp_path / f"{name}.jsonl", [*quiet, *other], gate=None if name == "base" else {})
    return Runner(tmp_path)


INSTALL, GATE = 0, 1
JUDGE = ["--github", "--verdict=FOLDER/verdict.json", "--junit=FOLDER/verdicts.xml"]
HOSTILE = "x\"; touch owned; $(touch owned) `touch owned` '*' \\ -rf"


def test_dlbench_is_installed_beside_the_torch_that_is_there_and_compares_two_commits_whatever_the_inputs(runner):
    assert runner.run(INSTALL, python=runner.stand_in())[0] == 0
    assert runner.calls() == [["-m", "pip", "install", "--quiet", "--disable-pip-version-check", str(ROOT)]]
    inputs = {"plugin": "bench.py", "device": "cpu", "base_ref": "main", "rounds": "12", "threshold": "5%", "detect": "15%"}
    runner.run(GATE, python=runner.stand_in(), suite="mine.toml", **inputs)
    _, _, *command = runner.calls()[-1]
    assert command == [
        *("ab", "mine.toml", "-o", "FOLDER/results.jsonl", "bench.py", "--device=cpu", "--rounds=12"),
        *("--a", "ref=main", "--b", "ref=HEAD", *JUDGE, "--threshold=5%", "--detect=15%"),
    ]
    parse(*command)
    # Inputs are never commands.
    inputs = {"plugin": f"p {HOSTILE}", "base_ref": f"r {HOSTILE}", "threshold": f"t {HOSTILE}", "rounds": f"n {HOSTILE}"}
    runner.run(GATE, python=runner.stand_in(), suite="a.toml  $(touch owned)\n* b.toml", **inputs)
    assert runner.calls()[-1][2:] == [
        *("ab", "a.toml", "$(touch", "owned)", "*", "b.toml", "-o", "FOLDER/results.jsonl"),
        *(f"p {HOSTILE}", f"--rounds=n {HOSTILE}", "--a", f"ref=r {HOSTILE}", "--b", "ref=HEAD", *JUDGE, f"--threshold=t {HOSTILE}"),
    ]
    assert not list(runner.folder.rglob("owned"))


@pytest.mark.parametrize(
    ("measured", "code", "expected", "verdict"),
    [
        ("head.jsonl", 0, 0, "ok"),
        ("slow.jsonl", 0, 3, "regression"),
        ("slow.jsonl", 5, 3, "regression"),
        ("slow.jsonl", 4, 3, "regression"),
        ("head.jsonl", 4, 0, "ok"),  # what a run like itself would have hidden, the base excludes
        ("noisy.jsonl", 0, 4, "undecidable"),
        ("head.jsonl", 75, 75, None),
    ],
)
def test_against_a_baseline(runner, measured, code, expected, verdict):
    ended, outputs, summary = runner.run(GATE, python=runner.stand_in(measured, code), baseline="base.jsonl", device="cpu")
    folder = Path(outputs.pop("folder"))
    assert (ended, outputs) == (expected, {"exit-code": str(expected)} | ({"verdict": verdict} if verdict else {}))
    run, *others = runner.calls()
    assert run == ["-m", "dlbench", "run", "quick", "-o", "FOLDER/results.jsonl", "--device=cpu", "--gate"]
    if verdict:
        assert others[0] == ["-m", "dlbench", "compare", "base.jsonl", "FOLDER/results.jsonl", *JUDGE]
        assert sorted(path.name for path in folder.iterdir()) == ["results.jsonl", "verdict.json", "verdicts.xml"]
        counts = {0: "2 same", 3: "1 slower, 1 same", 4: "1 same, 1 inconclusive"}[expected]
        assert summary.startswith(f"### dlbench: {counts}; exit {expected}\n")
    else:
        assert others == []


@pytest.mark.parametrize("inputs", [{}, {"baseline": "base.jsonl", "base_ref": "main"}])
def test_one_thing_to_compare_with_is_needed(runner, inputs):
    ended, outputs, text = runner.run(GATE, python=runner.stand_in(), **inputs)
    assert (ended, outputs["exit-code"], "verdict" in outputs) == (2, "2", False)
    assert text == "::error title=dlbench::give either base-ref or baseline\n"
    assert not runner.log.exists()


@pytest.mark.real
def test_with_a_real_run(runner):
    mine = front_door.suite(runner.folder, 'workload = "noop"')
    made_up.write(runner.folder / "noop.jsonl", made_up.rounds_of(made_up.case("noop"), [[1e-7]]))
    ended, outputs, summary = runner.run(GATE, python=sys.executable, suite=mine, device="cpu", rounds="1", baseline="noop.jsonl")
    assert (ended, outputs["exit-code"], outputs["verdict"]) == (4, "4", "undecidable")  # another machine's, and one round only
    assert summary.startswith("### dlbench: 1 in")
    (measured,) = front_door.measurements(Path(outputs["folder"]) / "results.jsonl")
    assert (measured["case"]["workload"], measured["status"]) == ("noop", "ok")


COMMENT = next(workflow for workflow in WORKFLOWS if "workflow_run" in workflow[ON])["jobs"]["comment"]["steps"][1]["run"]
COUNTS = {"slower": 1, "failed": 0, "missing": 0, "inconclusive": 2, "incomparable": 0, "faster": 3, "same": 4, "new": 0}


def comment(folder, counts, heads):
    """Run the script that posts, with a ``gh`` that knows pull requests of these commits and writes down what is posted."""
    tools = folder / "tools"
    tools.mkdir()
    pulls = json.dumps([{"number": number, "head": {"sha": head}} for number, head in enumerate(heads, 7)])
    (tools / "gh").write_text(f"#!/bin/bash\nif [ \"$1\" = api ]; then echo '{pulls}'; else printf '%s\\n' \"$@\" > posted; fi\n")
    (tools / "gh").chmod(0o755)
    (folder / "verdict.json").write_text(json.dumps({"counts": counts}))
    variables = {"REPOSITORY": "me/mine", "HEAD": "you:$(touch owned)", "COMMIT": "abc", "PAGE": "https://page", "VERDICT": "verdict.json"}
    variables["PATH"] = f"{tools}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run([*BASH, "-c", COMMENT], cwd=folder, env=variables, **AS_TEXT)
    assert not (folder / "owned").exists()
    posted = folder / "posted"
    return done.returncode, posted.read_text() if posted.exists() else ""


BODY = "dlbench: 1 slower, 0 failed, 0 missing, 2 inconclusive, 3 faster, 4 same: https://page"
POSTED = ["pr", "comment", "8", "--repo", "me/mine", "--body", BODY]


@pytest.mark.skipif(shutil.which("jq") is None, reason="needs jq, which GitHub's runners have")
@pytest.mark.parametrize(
    ("counts", "heads", "expected"),
    [
        (COUNTS, ["other", "abc"], POSTED),
        ({**COUNTS, "same": "@everyone"}, ["abc"], []),
        ({}, ["abc"], []),
        (COUNTS, [], []),
        (COUNTS, ["other"], []),
    ],
)
def test_the_comment_has_the_counts_of_its_pull_request_and_nothing_else_is_posted(tmp_path, counts, heads, expected):
    code, posted = comment(tmp_path, counts, heads)
    assert (code == 0, posted.splitlines()) == (bool(expected), expected)
