"""``dlbench list`` and ``dlbench devices``, with the measuring process's answer made up."""

import json
import shlex
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import front_door
import pytest
import shared_hosts
from click.testing import CliRunner, Result

from dlbench.cli.main import dlbench
from dlbench.core.model import Parameter, Signature, signature_to_json
from dlbench.harness import runner
from dlbench.harness.probe import devices, programs
from dlbench.harness.probe.devices import Gpus, Processor

N = Parameter("n", "integer", required=True, minimum=1)
DTYPE = Parameter("dtype", "text", required=False, default="fp32", choices=("fp32", "bf16"))
SIGNATURES = [Signature("matmul", "Multiply.", (N, DTYPE)), Signature("noop", "Nothing.", ())]
CPU_ALONE = {"kinds": ["cpu"], "devices": [{"id": "cpu", "kind": "cpu"}], "versions": {"torch": None}}
SELF = "What does dlbench itself cost, and does its clock read true? (Not in full: it says nothing of the machine.)"
SUITE = """
about = "Dense"
[policy]
round_s = 0.5
[[bench]]
workload = "matmul"
axes.n = [64, 128]
axes.dtype = ["fp32", "bf16"]
"""


@pytest.fixture(autouse=True)
def idle(monkeypatch):
    """Let no other program take the CPUs."""
    monkeypatch.setattr(programs, "OtherPrograms", lambda: SimpleNamespace(named=lambda: None))


@pytest.fixture
def asked(monkeypatch):
    """What was asked of the measuring process, which is never started."""
    questions = []

    def hello(plugins, workloads):
        questions.append((plugins, workloads))
        return {"signatures": [signature_to_json(each) for each in SIGNATURES], **CPU_ALONE}

    monkeypatch.setattr(runner, "ask_hello", hello)
    monkeypatch.setattr(devices.Gpus, "find", lambda versions: Gpus())
    return questions


@pytest.fixture
def listed(asked, tmp_path):
    """Run the command in a folder with dense.toml; return exit code, stdout and stderr."""
    (tmp_path / "dense.toml").write_text(SUITE)

    def run(*arguments):
        done = front_door.in_process(tmp_path, "list", *arguments)
        return done.code, done.out, done.err

    return run


def test_without_names_the_suites_are_listed_in_every_format_and_nothing_is_started(listed, asked):
    code, out, err = listed()
    assert (code, err, asked) == (0, "", [])
    lines = [line.split(maxsplit=2) for line in out.splitlines()]
    assert [line[0] for line in lines] == sorted(path.stem for path in (front_door.ROOT / "suites").glob("*.toml"))
    rows = json.loads(listed("--format", "json")[1])
    assert [[row["suite"], str(row["minutes"]), row["about"]] for row in rows] == lines
    assert {"suite": "self", "minutes": 1, "about": SELF} in rows
    assert len(listed("--format", "csv")[1].splitlines()) == len(rows) + 1
    assert listed("--format", "md")[1].startswith("| suite | minutes | about |\n| --- | --- | --- |\n")


def test_its_minutes_are_those_of_the_devices_here(listed, monkeypatch):
    def minutes():
        rows = json.loads(listed("--format", "json")[1])
        return {row["suite"]: row["minutes"] for row in rows if row["suite"] in ("quick", "network", "scaling", "self")}

    assert minutes() == {"quick": 3, "network": 10, "scaling": 22, "self": 1}  # of those with a budget that, and of self its rounds
    monkeypatch.setattr(devices.Gpus, "find", lambda versions: Gpus((("RTX 4090", 24 << 30),) * 2, "580.65"))
    assert minutes() == {"quick": 9, "network": 29, "scaling": 66, "self": 3}


ABSENT = '\n[[bench]]\nworkload = "noop"\ndevices = ["cpu", "accelerator"]\n'


def test_cases_are_listed_with_an_estimate_and_a_mistake_is_one_sentence(listed, asked, tmp_path, transcript):
    (tmp_path / "absent.toml").write_text(ABSENT)
    (tmp_path / "paid.toml").write_text(f"[policy]\nbudget_s = 300\n{ABSENT}")

    def list_of(title):
        words, _, expected = title.rpartition(", exit ")
        code, out, err = listed(*shlex.split(words))
        assert code == int(expected)
        return out + err

    transcript("list", 17, list_of)
    assert asked[0] == (("mine.py",), ("matmul",))


def test_who_takes_the_cpus_is_named(listed, monkeypatch):
    busy = "other programs take 1.5 of 2 CPUs: python"
    monkeypatch.setattr(programs, "OtherPrograms", lambda: SimpleNamespace(named=lambda: busy))
    sentence = f"busy: {busy}; times would be too long, and forecasts are those of a quiet machine"
    assert listed("dense.toml")[2].splitlines()[1:] == [sentence]


BIG = f"""
import sys
from dlbench.harness import runner
from dlbench.harness.probe.devices import Processor
from dlbench.core.model import Parameter, Signature, signature_to_json
matmul = signature_to_json(Signature("matmul", "", (Parameter("n", "integer", True, minimum=1),)))
runner.ask_hello = lambda plugins, workloads: {{"signatures": [matmul], **{CPU_ALONE}}}
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


LARGEST = '"largest_batch"\naxes.model = "resnet18"\naxes.memory_gib = 1'
FASTEST = '"fastest_train_step"\naxes.model = "resnet18"\naxes.implementation = "default"'
RANKS = '"collective"\naxes.ranks = [2, 4, 8]\naxes.op = "broadcast"\naxes.bytes = 8'


@pytest.mark.parametrize(
    ("bench", "cpus", "estimate"),
    [
        (LARGEST, 2, "1 case, 1 search with about 9 tries, about 3.86 s"),
        # Of 4 precisions, 2 layouts, 4 modes, and a batch and threads that are halved and doubled: 3 + 1 + 3 + 2 + 2 changes, twice.
        (FASTEST, 2, "1 case, 1 search with about 23 tries, about 8.78 s"),
        (f"{LARGEST}\naxes.batch = 8", 2, "1 case, about 702 ms"),
        (RANKS, 2, "3 cases (2 skipped: too few devices or cores for their ranks), about 702 ms"),
        (RANKS, 8, "3 cases, about 2.11 s"),
    ],
)
def test_the_tries_of_searches_count_and_more_ranks_than_cores_take_no_time(tmp_path, monkeypatch, bench, cpus, estimate):
    monkeypatch.setattr(Processor, "usable_threads", lambda _: cpus)
    policy = "[policy]\nrounds = 2\nround_s = 0.05\nwarmup_s = 0.001\n"
    (tmp_path / "s.toml").write_text(f"{policy}[[bench]]\nworkload = {bench}\n")
    done = shared_hosts.dlbench("list", "s.toml", "--device", "cpu", cwd=tmp_path)
    assert (done.code, done.err) == (0, f"{estimate} in 2 rounds (estimated from the policy; slow steps take longer)\n")


HELLO = {
    "versions": {"torch": "2.11.0+rocm6.4", "hip": "6.4"},
    "parallel": {"threads": 2, "isa": "AVX512"},
    "devices": [
        {"id": "cpu", "kind": "cpu", "name": None},
        {
            "id": "cuda:0",
            "kind": "cuda",
            "name": "Odd [/foo] [bold]card",
            "vendor": "amd",
            "memory_bytes": 64 << 30,
            "multiprocessors": 104,
        },
    ],
}


def run(monkeypatch: pytest.MonkeyPatch, hello: dict[str, Any], *words: str) -> Result:
    """Run the command where the measuring process answers so, at once."""
    monkeypatch.setitem(sys.modules, "dlbench.harness.runner", SimpleNamespace(ask_hello=lambda plugins: hello))
    return CliRunner().invoke(dlbench, ["devices", *words], catch_exceptions=False)


def test_json(monkeypatch: pytest.MonkeyPatch) -> None:
    result = run(monkeypatch, HELLO, "--format", "json")
    written = json.loads(result.stdout)
    assert (result.exit_code, result.stderr, written["torch"], written["why_no_gpu"]) == (0, "", HELLO["versions"], None)
    cpu, gpu = written["devices"]
    assert (cpu["id"], cpu["isa"].partition(",")[0], cpu["kind"], cpu["usable_threads"] >= 1) == ("cpu", "AVX512", "cpu", True)
    assert (gpu["name"], gpu["memory_bytes"], gpu["power_limit_w"]) == ("Odd [/foo] [bold]card", 64 << 30, None)
    assert gpu["reasons"]["power_limit_w"] == "NVML reads NVIDIA devices only"


@pytest.mark.parametrize(
    ("found", "why", "gpu"),
    [
        ([], "there is no NVIDIA driver for torch 2", "none: there is no NVIDIA driver for torch 2"),
        ([], None, "none: torch finds none that it can use"),
        ([{"id": "cuda:0", "kind": "cuda"}], "not asked", "cuda:0"),
    ],
)
def test_first_comes_torch_and_whether_it_uses_a_gpu(monkeypatch: pytest.MonkeyPatch, found: list[Any], why: str | None, gpu: str) -> None:
    monkeypatch.setattr("dlbench.harness.probe.devices.why_gpu_unusable", lambda versions: why)
    result = run(monkeypatch, {**HELLO, "devices": [{"id": "cpu", "kind": "cpu"}, *found]})
    expected = [["torch"], ["version", "2.11.0+rocm6.4"], ["gpu", gpu], []]
    assert [line.split(maxsplit=1) for line in result.stdout.splitlines()[:4]] == expected
