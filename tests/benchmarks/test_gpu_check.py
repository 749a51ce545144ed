"""``make gpu-check`` without a card: its steps, deadlines, state and table, with scripted commands and clock."""

import json
import re
import shlex
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import scripted_card

from benchmarks.check_steps import STEPS
from benchmarks.gpu_check import main
from benchmarks.limited import STOPPED
from dlbench.core.measurement import Measurement, Memory, measurement_to_json
from dlbench.core.model import Case, Status
from dlbench.core.writer import ResultWriter

pytestmark = pytest.mark.real

NAMES = [step.name for step in STEPS]
ANSWERS = {"answers": [{"kind": "answer", "question": {"topic": "bottleneck"}, "sentences": ["Arithmetic."]}]}
GOOD = {
    "import": "2.11.0 True\n",
    "benchmarks.card_workloads": '{"held": true, "seen": "output moved by 0"}\n',
    "pytest": "== 30 passed in 170 s ==\n",
    "show": json.dumps(ANSWERS),
}
"""What good commands print, by a word of theirs."""


def case(name, **params):
    return Case(f"{name}[{params}]@cuda:0", "quick", name, params, "cuda:0")


FOUND = Measurement(case("largest_batch", model="alexnet"), 0, Status.OK, found={"batch": 40})
TRIED = Measurement(case("largest_batch", model="alexnet", batch=64), 0, Status.OOM, "out of memory: tried to allocate")
EAGER, TUNED, TOO_MUCH = (
    Measurement(case("train_step", mode=mode), 0, Status.OK, memory=Memory(peak, peak))
    for mode, peak in (("eager", 100), ("autotune", 150), ("autotune", 900))
)
WITH_CUDA = Measurement(case("cuda_files"), 0, Status.OK, values={"cuda_files": 2.0})
WRONG = Measurement(case("noop"), 0, Status.FAILED, "wrong")
MEASURED = {"room": [FOUND], "context": [replace(WITH_CUDA, values={"cuda_files": 0.0})], "autotune": [EAGER, TUNED]}
"""What the file of a step then has; of any other one good case."""
REPORT = '<testsuites><testcase classname="tests.gpu.test_gpu" name="test_one"/></testsuites>'


class Commands:
    """Commands that take ten seconds each, or as a script says, and write what good ones would."""

    def __init__(self):
        self.now = 1000.0
        self.torch = "2.11.0"
        self.calls = []
        self.took = {}
        """By the name of a step's file: seconds (None: all it may), and exit code."""
        self.files = {name: list(found) for name, found in MEASURED.items()}
        self.tries = [TRIED]
        self.prints = dict(GOOD)

    def __call__(self, words, limit_s, path):
        self.calls.append((tuple(words), limit_s, path.stem))
        seconds, code = self.took.get(path.stem, (10.0, 0))
        self.now += limit_s if seconds is None else seconds
        path.write_text(next((text for word, text in self.prints.items() if word in (*words, words[1].partition(" ")[0])), "done\n"))
        if "run" in words and code != 2 and "--resume" not in words:
            self._write(words, path)
        if "--junitxml" in words:
            Path(words[words.index("--junitxml") + 1]).write_text(REPORT)
        if "-o" in words and words[-1].endswith(".html"):
            Path(words[-1]).write_text("<html>")
        return code

    def _write(self, words, path):
        found = self.files.get(path.stem, [Measurement(case("noop"), number, Status.OK, values={"a": 1.0}) for number in range(7)])
        writer = ResultWriter.create(Path(words[-1]), {"planned": {"count": len({each.case.id for each in found})}})
        records = [measurement_to_json(each, "try") for each in self.tries if path.stem == "room"]
        for each in (*records, *map(measurement_to_json, found)):
            writer.append(each)
        writer.close()

    def check(self, into, *arguments, devices=()):
        def ask():
            found = scripted_card.hello(*devices)
            return found | {"versions": found["versions"] | {"torch": self.torch}}

        return main(["--into", str(into), *arguments], self, ask, lambda: self.now)


def table(out):
    """The step, whether it held, and what was seen, of each line of the last table."""
    rows = [re.split("  +", row.rstrip(), maxsplit=2) for row in out.rpartition("in this call\n")[2].splitlines()[1:]]
    return {name: (held[0], held[1] if len(held) > 1 else "") for name, *held in rows if name in NAMES}


def test_every_step_is_done_and_the_table_says_what_was_seen(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("benchmarks.check_steps.shutil.which", lambda name: None)
    commands = Commands()
    assert commands.check(tmp_path) == 0
    out = capsys.readouterr().out
    rows = table(out)
    assert list(rows) == NAMES
    assert {name: held for name, (held, _) in rows.items() if held != "yes"} == {"facts": "–"}
    seen = {
        "a graph keeps its network": "output moved by 0",
        "no room is oom, AlexNet fits 2 GiB": "largest_batch[{'model': 'alexnet'}]@cuda:0: 40; 1 tries out of memory",
        "peak of autotuning": "eager 100 B, autotuned 150 B",
        "tests that need a card": "30 passed in 170 s",
        "bottleneck over all": "Arithmetic.",
        "modes": "1 ok",
    }
    assert {name: rows[name][1] for name in seen} == seen
    assert ("gcc unknown" in rows["facts"][1], "go on with" in out) == (True, False)
    by_name = {name: words for words, _, name in commands.calls}
    assert by_name["quick"][3:10] == ("quick", "--device", "cpu", "--device", "cuda:0", "--budget", "6m")
    assert by_name["modes"][3:9] == ("modes", "--device", "cuda:0", "--rounds", "2", "--budget")
    calls = len(commands.calls)
    assert (commands.check(tmp_path), len(commands.calls)) == (0, calls)  # all of it is there


def test_a_call_ends_in_nine_minutes_and_the_next_goes_on(tmp_path, capsys):
    commands, into = Commands(), tmp_path / "a folder"
    commands.took = {"modes": (None, STOPPED)}
    assert (commands.check(into), commands.now <= 1000 + 540) == (0, True)
    out = capsys.readouterr().out
    assert (table(out)["modes"], table(out)["doctor"]) == (("to come", "7:15 of 25:00 so far"), ("to come", ""))
    assert shlex.split(out.rpartition("go on with: ")[2]) == [sys.executable, "-m", "benchmarks.gpu_check", "--into", str(into)]
    commands.calls.clear()
    commands.took = {}
    assert commands.check(into) == 0
    assert commands.calls[0][0][3:5] == ("--resume", f"{into}/nvidia-h200/modes.jsonl")
    assert {held for held, _ in table(capsys.readouterr().out).values()} == {"yes", "–"}


def test_what_did_not_hold_is_done_again_with_another_torch_and_in_a_file_of_its_own(tmp_path, capsys):
    commands, only = Commands(), ("--only", "starts no", "--only", "doctor")
    commands.files["context"] = [WITH_CUDA]
    assert [commands.check(tmp_path, *only) for _ in range(2)] == [5, 5]
    assert [name for _, _, name in commands.calls] == ["context", "doctor"]  # with the same code it would end the same way
    assert commands.check(tmp_path, "--only", "doctor") == 0
    capsys.readouterr()
    commands.calls.clear()
    commands.torch, commands.files = "2.13.0", dict(MEASURED)
    assert commands.check(tmp_path, *only) == 0
    assert table(capsys.readouterr().out)["a CPU case starts no CUDA"] == ("yes", "0 files of CUDA open")
    ((words, _, name),) = commands.calls
    assert (name, "-o" in words) == ("context", True)
    assert '"cuda_files":2.0' in (tmp_path / "nvidia-h200" / "context.jsonl.old").read_text()
    commands.torch = "2.14.0"
    assert (commands.check(tmp_path, *only), len(commands.calls)) == (0, 1)  # what held stays


@pytest.mark.parametrize(
    ("step", "change", "seen"),
    [
        ("graph", {"prints": {"benchmarks.card_workloads": '{"held": false, "seen": "output moved by 0.3"}'}}, "output moved by 0.3"),
        ("graph", {"prints": {"benchmarks.card_workloads": "Traceback"}}, "ended with 0, see graph.txt and stderr"),
        ("context", {"files": {"context": [WITH_CUDA]}}, "2 files of CUDA open"),
        ("autotune", {"files": {"autotune": [EAGER, TOO_MUCH]}}, "autotuned 900 B"),
        ("room", {"files": {"room": [Measurement(FOUND.case, 0, Status.OOM, "not even batch=1 fits")]}}, "oom: not even batch=1 fits"),
        ("room", {"tries": [Measurement(TRIED.case, 0, Status.UNSUPPORTED, "unable to find an engine")]}, "unable to find an engine"),
        ("quick", {"files": {"quick": [WRONG]}, "took": {"quick": (9, 5)}}, "1 failed; noop"),
        ("quick", {"took": {"quick": (9, 2)}}, "dlbench run ended with 2, see stderr"),
        ("pytest", {"took": {"tests": (9, 1)}, "prints": {"pytest": "== 1 failed ==\n"}}, "1 failed"),
        ("doctor", {"took": {"doctor": (9, 4)}}, "ended with 4: done"),
        ("A/B", {"took": {"ab": (9, 3)}}, "ended with 3: done"),
    ],
)  # fmt: skip
def test_what_does_not_hold_is_said_and_ends_with_five(tmp_path, capsys, step, change, seen):
    commands = Commands()
    for name, values in change.items():
        getattr(commands, name).update(values) if isinstance(values, dict) else setattr(commands, name, values)
    word = {"context": "starts no", "autotune": "autotuning", "pytest": "tests that"}.get(step, step)
    assert commands.check(tmp_path, "--only", word) == 5
    assert ("NO", True) in [(held, seen in what) for held, what in table(capsys.readouterr().out).values()]


def test_on_a_cpu_what_only_a_card_can_show_is_left_out_and_ctrl_c_keeps_what_was_seen(tmp_path, capsys):
    commands = Commands()
    assert commands.check(tmp_path, "--device", "cpu", "--only", "graph", devices=(scripted_card.CPU,)) == 0
    assert table(capsys.readouterr().out) == {"a graph keeps its network": ("–", "only a CUDA device can show it, and cpu is none")}
    assert commands.calls == []
    commands.took = {"room": (5, 130)}
    assert commands.check(tmp_path / "card") == 130
    rows = table(capsys.readouterr().out)
    assert (rows["a graph keeps its network"][0], rows["no room is oom, AlexNet fits 2 GiB"][0]) == ("yes", "to come")
    assert commands.calls[-1][2] == "room"
