"""``dlbench list`` from the front door, with the measuring process's answer made up."""

import csv
import io
import json
import subprocess
import sys

import pytest
import shared_hosts
from front_door import ROOT

from dlbench.cli import main as front_door
from dlbench.cli import session
from dlbench.core.model import Parameter, Signature, signature_to_json
from dlbench.harness import runner
from dlbench.harness.probe import devices
from dlbench.harness.probe import programs as programs_of_others
from dlbench.harness.probe.devices import Gpus, Processor

MATMUL = Signature(
    "matmul",
    "Multiply.",
    (
        Parameter("n", "integer", required=True, minimum=1),
        Parameter("dtype", "text", required=False, default="fp32", choices=("fp32", "bf16")),
    ),
)
SELF = "What does dlbench itself cost, and does its clock read true? (Not in full: it says nothing of the machine.)"
NOOP = Signature("noop", "Nothing.", ())
SUITE = """
about = "Dense"
[policy]
round_s = 0.5
[[bench]]
workload = "matmul"
axes.n = [64, 128]
axes.dtype = ["fp32", "bf16"]
"""
IDS = [
    "matmul[n=64,dtype=fp32]@cpu",
    "matmul[n=64,dtype=bf16]@cpu",
    "matmul[n=128,dtype=fp32]@cpu",
    "matmul[n=128,dtype=bf16]@cpu",
]


class Idle:
    """In place of the other programs of this machine: it has none."""

    found = ""

    def named(self, lost=0.0):
        return self.found or None


@pytest.fixture(autouse=True)
def programs(monkeypatch):
    for module in (session, programs_of_others):
        monkeypatch.setattr(module, "OtherPrograms", Idle)
    return Idle


@pytest.fixture
def asked(monkeypatch):
    """What was asked of the measuring process, which is never started."""
    questions = []

    def hello(plugins, workloads):
        questions.append((plugins, workloads))
        return {
            "signatures": [signature_to_json(MATMUL), signature_to_json(NOOP)],
            "kinds": ["cpu"],
            "devices": [{"id": "cpu", "kind": "cpu"}],
            "versions": {"torch": None},
        }

    monkeypatch.setattr(runner, "ask_hello", hello)
    monkeypatch.setattr(devices.Gpus, "find", lambda versions: Gpus())
    return questions


@pytest.fixture
def dlbench(asked, tmp_path, monkeypatch, capsys):
    """Run the command line in a folder with dense.toml; return exit code, stdout and stderr."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "dense.toml").write_text(SUITE)

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["dlbench", *arguments])
        with pytest.raises(SystemExit) as exited:
            front_door.main()
        return exited.value.code, *capsys.readouterr()

    return run


def test_without_names_the_suites_are_listed_and_nothing_is_started(dlbench, asked):
    code, out, err = dlbench("list")
    assert (code, err, asked) == (0, "", [])
    lines = out.splitlines()
    assert [line.split()[0] for line in lines] == sorted(path.stem for path in (ROOT / "suites").glob("*.toml"))
    assert ["self", "1", SELF] in [line.split(maxsplit=2) for line in lines]


def test_its_minutes_are_those_of_the_devices_here(dlbench, monkeypatch):
    def minutes():
        rows = json.loads(dlbench("list", "--format", "json")[1])
        return {row["suite"]: row["minutes"] for row in rows if row["suite"] in ("quick", "network", "scaling", "self")}

    assert minutes() == {"quick": 3, "network": 10, "scaling": 22, "self": 1}  # of those with a budget that, and of self its rounds
    monkeypatch.setattr(devices.Gpus, "find", lambda versions: Gpus((("RTX 4090", 24 << 30),) * 2, "580.65"))
    assert minutes() == {"quick": 9, "network": 29, "scaling": 66, "self": 3}


def test_the_list_of_suites_in_every_format(dlbench):
    rows = json.loads(dlbench("list", "--format", "json")[1])
    assert {"suite": "self", "minutes": 1, "about": SELF} in rows
    table = list(csv.DictReader(io.StringIO(dlbench("list", "--format", "csv")[1])))
    assert [{**row, "minutes": int(row["minutes"])} for row in table] == rows
    lines = dlbench("list", "--format", "md")[1].splitlines()
    assert lines[:2] == ["| suite | minutes | about |", "| --- | --- | --- |"]
    assert len(lines) == 2 + len(rows)


def test_cases_are_one_id_a_line_and_the_estimate_goes_to_stderr(dlbench, asked):
    code, out, err = dlbench("list", "dense.toml", "mine.py")
    assert (code, out.splitlines()) == (0, IDS)
    assert err == "4 cases, about 28.0 s in 7 rounds (estimated from the policy; slow steps take longer)\n"
    assert asked == [(("mine.py",), ("matmul",))]


ABSENT = """
[[bench]]
workload = "noop"
devices = ["cpu", "accelerator"]
"""


def test_what_is_not_here_is_counted_and_not_listed(dlbench, tmp_path):
    (tmp_path / "all.toml").write_text(ABSENT)
    code, out, err = dlbench("list", "all.toml")
    assert (code, out) == (0, "noop[]@cpu\n")
    assert err.splitlines()[1:] == ["not listed: 1 case of what is not here: accelerator"]


def test_a_budget_is_the_most_that_it_takes_and_who_takes_the_cpus_is_said(dlbench, tmp_path, monkeypatch, programs):
    monkeypatch.setattr(programs, "found", "other programs take 1.5 of 2 CPUs: python")
    (tmp_path / "paid.toml").write_text(f"[policy]\nbudget_s = 300\n{ABSENT}")
    assert dlbench("list", "paid.toml", "--device", "cpu")[2].splitlines() == [
        "1 case, about 10.5 s in 7 rounds (estimated from the policy; slow steps take longer, 300 s at most)",
        "busy: other programs take 1.5 of 2 CPUs: python; times would be too long, and forecasts are those of a quiet machine",
    ]


def test_the_options_narrow_and_change_the_plan(dlbench):
    assert dlbench("list", "dense.toml", "-k", "bf16 and not 64")[1].splitlines() == [IDS[3]]
    assert dlbench("list", "dense.toml", "--set", "n=8", "--set", "dtype=bf16")[1:] == (
        "matmul[n=8,dtype=bf16]@cpu\n",
        "1 case, about 7.00 s in 7 rounds (estimated from the policy; slow steps take longer)\n",
    )
    assert dlbench("list", "dense.toml", "--device", "cpu")[1].splitlines() == IDS
    assert dlbench("list", "dense.toml", "-k", f"{IDS[3]} or {IDS[0]}", "--device", "cpu")[1].splitlines() == [IDS[0], IDS[3]]


def test_cases_in_every_format(dlbench):
    rows = json.loads(dlbench("list", "dense.toml", "--format", "json")[1])
    assert [row["id"] for row in rows] == IDS
    assert rows[1] == {"id": IDS[1], "suite": "dense", "workload": "matmul", "device": "cpu", "params": {"n": 64, "dtype": "bf16"}}
    table = list(csv.DictReader(io.StringIO(dlbench("list", "dense.toml", "--format", "csv")[1])))
    assert [{**row, "params": json.loads(row["params"])} for row in table] == rows
    assert dlbench("list", "dense.toml", "-k", "64 and bf16", "--format", "md")[1].splitlines() == [
        "| id | suite | workload | device | params |",
        "| --- | --- | --- | --- | --- |",
        '| matmul[n=64,dtype=bf16]@cpu | dense | matmul | cpu | {"n": 64, "dtype": "bf16"} |',
    ]


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["quikc"], 2, "no suite is called 'quikc'; did you mean 'quick'? (a suite of your own is a path that ends in .toml)"),
        (
            ["dense.toml", "-k", "and"],
            2,
            "-k 'and': words are joined by 'and', 'or', 'not' and parentheses, and have letters, digits and _=.:@[],-+/",
        ),
        (["dense.toml", "-k", "vgg"], 2, "dense plans no case that -k selects; loosen it (dlbench list SUITE shows the ids)"),
        (["dense.toml", "--set", "m=1"], 2, "--set m: no workload of dense has such a parameter; valid: dtype, n"),
        (["dense.toml", "--set", "n=x"], 2, "--set n=x (matmul): n must be a positive integer, not 'x'"),
        (["dense.toml", "--device", "cuda"], 69, "there is no device 'cuda' here; this machine has: cpu; torch is not installed"),
        (["-k", "vgg"], 2, "-k, --set and --device need a SUITE, such as dlbench list quick -k resnet18"),
        (["conv"], 2, "conv.toml, bench 1: no workload is called 'conv2d'; valid: matmul, noop (one of your own comes with its FILE.py)"),
        (
            ["dense.toml", "--device", "gpu"],
            69,
            "there is no GPU here, be it cuda (NVIDIA, AMD), xpu (Intel) or mps (Apple); this machine has: cpu; torch is not installed",
        ),
    ],
)
@pytest.mark.parametrize("form", ["table", "json"])
def test_a_mistake_is_one_sentence_and_no_output(dlbench, arguments, code, sentence, form):
    assert dlbench("list", *arguments, "--format", form) == (code, "", f"dlbench: {sentence}\n")


BIG = """
import sys
from dlbench.harness import runner
from dlbench.harness.probe.devices import Processor
from dlbench.core.model import Parameter, Signature
from dlbench.core.model import signature_to_json
noop = Signature("matmul", "", (Parameter("n", "integer", True, minimum=1),))
cpu = {"kinds": ["cpu"], "devices": [{"id": "cpu", "kind": "cpu"}], "versions": {}}
runner.ask_hello = lambda plugins, workloads: {"signatures": [signature_to_json(noop)], **cpu}
from dlbench.cli.main import main
sys.argv = ["dlbench", "list", sys.argv[1]]
main()
"""


def test_a_reader_that_leaves_gets_no_traceback(tmp_path):
    suite = tmp_path / "big.toml"
    suite.write_text(f"[[bench]]\nworkload = 'matmul'\naxes.n = {list(range(1, 20_001))}")
    listing = subprocess.Popen([sys.executable, "-c", BIG, str(suite)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    with listing:
        assert listing.stdout.readline() == "matmul[n=1]@cpu\n"
        listing.stdout.close()
        assert listing.stderr.read() == ""
    assert listing.returncode == 0


@pytest.mark.parametrize(
    ("bench", "said"),
    [
        ('"largest_batch"\naxes.model = "resnet18"\naxes.memory_gib = 1', "1 case, 1 search with about 15 tries, about 5.97 s"),
        ('"largest_batch"\naxes.model = "resnet18"\naxes.memory_gib = 1\naxes.batch = 8', "1 case, about 702 ms"),
    ],
)
def test_the_tries_of_searches_count(tmp_path, bench, said):
    policy = "[policy]\nrounds = 2\nround_s = 0.05\nwarmup_s = 0.001\n"
    (tmp_path / "s.toml").write_text(f"{policy}[[bench]]\nworkload = {bench}\n")
    done = shared_hosts.dlbench("list", "s.toml", "--device", "cpu", cwd=tmp_path)
    assert (done.code, done.err) == (0, f"{said} in 2 rounds (estimated from the policy; slow steps take longer)\n")


@pytest.mark.parametrize(("cpus", "said"), [(2, "2 skipped: too few devices or cores for their ranks"), (8, "")])
def test_more_ranks_than_cores_take_no_time(tmp_path, monkeypatch, cpus, said):
    monkeypatch.setattr(Processor, "usable_threads", lambda _: cpus)
    policy = "[policy]\nrounds = 2\nround_s = 0.5\nwarmup_s = 0.2\n"
    (tmp_path / "s.toml").write_text(
        f'{policy}[[bench]]\nworkload = "collective"\naxes.ranks = [2, 4, 8]\naxes.op = "broadcast"\naxes.bytes = 8\n'
    )
    done = shared_hosts.dlbench("list", "s.toml", "--device", "cpu", cwd=tmp_path)
    time = "2.00 s" if said else "6.00 s"
    which = f" ({said})" if said else ""
    assert (done.code, done.err) == (0, f"3 cases{which}, about {time} in 2 rounds (estimated from the policy; slow steps take longer)\n")
