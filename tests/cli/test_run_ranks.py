"""``dlbench run`` with several ranks, machines and measuring processes: real launches of torchrun, and what ends as which row."""

import functools
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager

import click
import front_door
import pytest
import shared_hosts
from front_door import PLUGINS, PRETEND, run, start, suite

from dlbench.cli import BEGAN
from dlbench.core.errors import explained

pytestmark = pytest.mark.real


RANK_FAULTS = str(PLUGINS / "rank_faults.py")
HEAD = front_door.HASTY.replace("timeout_s = 20", "timeout_s = 6")


def by_id(rows):
    return {each["case"]["id"].removesuffix("@cpu"): each for each in rows}


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """One round over what goes well, what goes wrong and what can't be."""
    folder = tmp_path_factory.mktemp("ranks")
    benches = [
        'workload = "together"\naxes.ranks = 2\naxes.n = [10, 20]',
        'workload = "who_am_i"\naxes.ranks = [1, 2, 4096]',
        'workload = "raises_in_one"\naxes.ranks = 2\naxes.last = false',
        'workload = "refuses"\naxes.ranks = 2',
        f'workload = "dies_in_one"\naxes.ranks = 2\naxes.number = [{signal.SIGKILL:d}, -7]',
        f'workload = "hangs_in_one"\naxes.ranks = 2\naxes.folder = "{folder}"',
        'workload = "too_big_in_one"\naxes.ranks = 2',
    ]
    suite = front_door.suite(folder, *benches, head=HEAD)
    _, rows = run(folder, suite, RANK_FAULTS, "--rounds", "1", "--device", "cpu", code=5, cpus=2)
    return by_id(rows), folder


def test_a_sweep_over_ranks_goes_on_whatever_happens_and_names_the_rank(ran):
    rows, folder = ran
    ended = {case: (row["status"], row.get("reason")) for case, row in rows.items()}
    status, reason = ended.pop("too_big_in_one[ranks=2]")
    assert (status, reason.startswith("rank 1: out of memory: ")) == ("oom", True)
    hangs = "not done within 6 s; raise --timeout"
    assert ended == {
        "together[ranks=2]": ("ok", None),
        "together[ranks=2,n=20]": ("ok", None),
        "who_am_i[ranks=1]": ("ok", None),
        "who_am_i[ranks=2]": ("ok", None),
        "who_am_i[ranks=4096]": ("unsupported", "4096 ranks need as many cores, and there are 2 to use"),
        "raises_in_one[ranks=2,last=false]": ("failed", "rank 0: ValueError: only here"),
        "refuses[ranks=2]": ("failed", "ValueError: 3 does not divide by 2"),
        "dies_in_one[ranks=2,number=9]": ("crashed", "rank 1 was killed by SIGKILL"),
        "dies_in_one[ranks=2,number=-7]": ("crashed", "rank 1 ended with exit code 7 and no result"),
        f"hangs_in_one[ranks=2,folder={folder}]": ("timeout", hangs),
    }
    nobody_is_left(folder)


def test_all_ranks_count_as_one_measurement_and_each_is_a_process_with_its_share_of_the_threads_and_the_same_seed(ran):
    rows, _ = ran
    row = rows["together[ranks=2]"]
    assert (row["samples"]["calls"] > 1, len(row["samples"]["block_s"]) >= 3, row["items"]) == (True, True, 20)
    assert row["memory"]["host_peak_bytes"] > 0
    assert explained(row["missing_reasons"]["device_s"]) == "each of several ranks has a device of its own"
    assert explained(row["missing_reasons"]["transfer"]) == "inputs and output are in host memory already"
    one, two = rows["who_am_i[ranks=1]"], rows["who_am_i[ranks=2]"]
    for count, each in ((1, one), (2, two)):
        assert [each["values"][name] for name in ("size", "processes", "seeds")] == [count, count, 1]
    assert two["values"]["threads"] == two["threads"] == max(1, one["threads"] // 2)
    assert two["values"]["clock"] > 0


def left_by(folder):
    """The processes, torchrun's among them, and the port of the case that hangs, once both ranks have written them."""
    deadline, files = time.monotonic() + 60, [folder / f"rank{rank}" for rank in (0, 1)]
    while not all(file.exists() and file.read_text().count(" ") == 2 for file in files):  # bounded: of another process
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.02)
    said = [list(map(int, file.read_text().split())) for file in files]
    return {pid for each in said for pid in each[:2]}, said[0][2]


def nobody_is_left(folder):
    """Neither a process nor a listener of the case that hangs."""
    pids, port = left_by(folder)
    deadline = time.monotonic() + 60
    while any(map(front_door.is_alive, pids)):
        assert time.monotonic() < deadline, "they are still there"
        time.sleep(0.02)
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # connections that were cut may linger; a listener would still refuse
        probe.bind(("", port))


def test_ranks_on_accelerators_have_a_device_each_and_one_launch_serves_all_cases_of_its_size(tmp_path):
    benches = ['workload = "who_am_i"\naxes.ranks = 2\naxes.n = [1, 2]', 'workload = "together"\naxes.ranks = [2, 3]']
    benches += ['workload = "refuses"\naxes.ranks = 2', 'workload = "takes_memory"\naxes.ranks = 2\naxes.n = [1, 2]']
    suite = front_door.suite(tmp_path, *benches, head=HEAD)
    _, measured = run(tmp_path, suite, RANK_FAULTS, PRETEND, "--rounds", "1", "--device", "pretend", "--seed", "7", code=5)
    rows = {each["case"]["id"].removesuffix("@pretend:0"): each for each in measured}
    # Between the two that tell their process comes one that every rank refuses, which costs no launch.
    order = [row["case"]["workload"] for row in measured if row["case"]["params"]["ranks"] == 2]
    assert order == ["who_am_i", "takes_memory", "takes_memory", "refuses", "together", "who_am_i"]
    assert {case: row["status"] for case, row in rows.items() if row["status"] != "ok"} == {
        "together[ranks=3]": "unsupported",
        "refuses[ranks=2]": "failed",
    }
    assert len(rows) == 7
    # The second is told its memory, too, although the first has just freed as much.
    assert min(rows[f"takes_memory[ranks=2,n={n}]"]["memory"]["host_peak_bytes"] for n in (1, 2)) >= 64 << 20
    together = rows["together[ranks=2]"]
    assert together["missing_reasons"]["transfer"] == [{"reason": "several_devices"}]
    assert len({row["values"]["pid"] for row in rows.values() if "values" in row}) == 1
    assert together["device_name"] == "Pretend [/0] accelerator + Pretend [/1] accelerator"
    assert together["memory"]["peak_bytes"] == 1_000_000
    assert rows["together[ranks=3]"]["reason"] == "3 ranks need as many pretend devices, and there are 2 to use"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_no_rank_survives_an_interrupted_or_a_killed_run(tmp_path, number):
    suite = front_door.suite(tmp_path, f'workload = "hangs_in_one"\naxes.ranks = 2\naxes.folder = "{tmp_path}"')
    process = start("run", suite, RANK_FAULTS, "--device", "cpu", "--timeout", "60s", "-o", "o.jsonl", cwd=tmp_path, cpus=2)
    assert all(map(front_door.is_alive, left_by(tmp_path)[0]))
    process.send_signal(number)
    process.communicate(timeout=60)
    assert process.returncode == {signal.SIGINT: 130, signal.SIGKILL: -signal.SIGKILL}[number]
    nobody_is_left(tmp_path)


SMALL = (str(PLUGINS / "small_models.py"), "--device", "cpu", "--rounds", "1")
BENCH = 'workload = "{}"\naxes.form = {}\naxes.model = "{}"\naxes.batch = {}\naxes.ranks = 2\n{}'


def rows_by_form(folder, *benches):
    """The rows of a run on two CPUs, by their parameters behind the workload."""
    _, rows = run(folder, suite(folder, *benches), *SMALL, code=5, cpus=2)
    return {each["case"]["id"].partition("[form=")[2].removesuffix("@cpu"): each for each in rows}


def pop_ending(rows, case):
    row = rows.pop(case)
    return row["status"], row["reason"]


def test_every_form_of_data_parallelism_is_a_row(tmp_path):
    forms = (
        (["ddp", "fsdp", "replicas"], ""),
        (["tower", "async", "hogwild"], "axes.seconds = 0.5"),
        (["local"], "axes.seconds = 0.5\naxes.average_every = [1, 4]"),
        (["ddp"], 'axes.scaling = "strong"'),
    )
    rows = rows_by_form(tmp_path, *(BENCH.format("data_parallel", names, "resnet18", 3, more) for names, more in forms))
    reason = "ValueError: a batch of 3 does not split evenly among 2 ranks; take a multiple of 2"
    assert pop_ending(rows, "ddp,model=resnet18,batch=3,ranks=2,scaling=strong,dtype=fp32]") == ("failed", reason)
    assert {case: row.get("reason") for case, row in rows.items() if row["status"] != "ok"} == {}
    assert sorted(case.partition(",")[0] for case in rows) == ["async", "ddp", "fsdp", "hogwild", "local", "local", "replicas", "tower"]
    for case, row in rows.items():
        assert (row["items"], "samples" in row) == (2 * 3, "loss" not in row.get("values", {})), case
        if every := row["case"]["params"].get("average_every"):
            assert row["values"]["averagings"] == -(-row["values"]["updates"] // every)


def test_every_form_of_model_parallelism_is_a_row(tmp_path):
    forms = (
        (["layers", "tensor"], ""),
        (["gpipe", "1f1b"], "axes.microbatches = 2"),
        (["gpipe"], "axes.microbatches = 3"),
        (["layers"], "axes.memory_percent = 150"),
    )
    rows = rows_by_form(tmp_path, *(BENCH.format("model_parallel", names, "mlp", 4, more) for names, more in forms))
    uneven = "ValueError: a batch of 4 does not split evenly into 3 microbatches; take a multiple of 3"
    assert pop_ending(rows, "gpipe,model=mlp,batch=4,ranks=2,dtype=fp32,microbatches=3]") == ("failed", uneven)
    status, reason = pop_ending(rows, "layers,model=mlp,batch=4,ranks=2,dtype=fp32,memory_percent=150]")
    assert status == "unsupported"
    assert reason.startswith("ranks on a CPU share its memory, so what is too large for one is too large for all of them")
    assert {case: row["status"] for case, row in rows.items()} == {
        "1f1b,model=mlp,batch=4,ranks=2,dtype=fp32,microbatches=2]": "ok",
        "gpipe,model=mlp,batch=4,ranks=2,dtype=fp32,microbatches=2]": "ok",
        "layers,model=mlp,batch=4,ranks=2,dtype=fp32]": "ok",
        "tensor,model=mlp,batch=4,ranks=2,dtype=fp32]": "ok",
    }
    # 8 blocks of two 64 x 256 matrices, the first without a gradient of the samples.
    assert {(row["items"], row["flops"]) for row in rows.values()} == {(4, 4 * 2 * 64 * 256 * (3 * 16 - 1))}


OF_TORCHRUN = {
    "TORCHELASTIC_RUN_ID": "x",
    "WORLD_SIZE": "2",
    "LOCAL_WORLD_SIZE": "1",
    "RANK": "1",
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "1",
}


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def torchrun(number, port, *arguments, cwd):
    """Start one of two agents, which may use one CPU: so each machine has room for one rank."""
    cpu = sorted(os.sched_getaffinity(0))[0]
    where = ["--nnodes=2", f"--node-rank={number}", "--nproc-per-node=1", "--master-addr=127.0.0.1", f"--master-port={port}"]
    command = [sys.executable, "-m", "torch.distributed.run", *where, "-m", "dlbench", *arguments]
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    alone = functools.partial(os.sched_setaffinity, 0, {cpu})
    return subprocess.Popen(command, cwd=cwd, env=front_door.environment(), preexec_fn=alone, **pipes)


def test_two_machines_measure_together_and_the_first_writes_one_file(tmp_path):
    benches = [
        'workload = "who_am_i"\naxes.ranks = [2, 3]',
        'workload = "together"\naxes.ranks = 2',
        'workload = "dies_in_one"\naxes.ranks = 2\naxes.number = 9',
        f'workload = "hangs_in_one"\naxes.ranks = 2\naxes.folder = "{tmp_path}"',
    ]
    suite = front_door.suite(tmp_path, *benches, head=front_door.HASTY.replace("timeout_s = 20", "timeout_s = 6"))
    port = free_port()
    agents = [torchrun(number, port, "run", suite, RANK_FAULTS, "--rounds", "1", "-o", "o.jsonl", cwd=tmp_path) for number in (0, 1)]
    try:
        (out, err), (other_out, other_err) = [agent.communicate(timeout=200) for agent in agents]
    finally:
        for agent in agents:
            agent.kill()
    assert (agents[1].returncode, other_out) == (0, ""), other_err
    assert "who_am_i" in out, err
    assert re.search(r"exitcode +: 5 ", err)
    assert "SignalException" not in err  # how the ranks were ended is none of torchrun's business
    assert "machine 1 of 1 next to the first, 127.0.0.1, which writes the results" in other_err

    header, *_ = front_door.lines(tmp_path / "o.jsonl")
    (machine,) = header["machines"]
    assert [machine[key] for key in ("identity", "stack_key")] == [header["environment"][key] for key in ("identity", "stack_key")]
    rows = {each["case"]["id"].removesuffix("@cpu"): each for each in front_door.measurements(tmp_path / "o.jsonl")}
    hangs = "not done within 6 s; raise --timeout"
    assert {case: (row["status"], row.get("reason")) for case, row in rows.items()} == {
        "who_am_i[ranks=2]": ("ok", None),
        "who_am_i[ranks=3]": ("unsupported", "3 ranks need as many cores, and there are 2 to use"),
        "together[ranks=2]": ("ok", None),
        "dies_in_one[ranks=2,number=9]": ("crashed", "rank 1 was killed by SIGKILL"),
        f"hangs_in_one[ranks=2,folder={tmp_path}]": ("timeout", hangs),
    }
    assert rows["who_am_i[ranks=2]"]["values"]["processes"] == 2
    assert len(list(tmp_path.glob("*.jsonl"))) == 1
    shown = front_door.in_process(tmp_path, "show", "o.jsonl")
    assert shown.code == 0, shown.err


def test_the_budget_begins_once_the_machines_have_connected(tmp_path, monkeypatch):
    @contextmanager
    def after_an_hour(node):
        click.get_current_context().meta[BEGAN] -= 3600
        yield ()

    monkeypatch.setattr("dlbench.cli.commands.run.connect_nodes", after_an_hour)
    suite = front_door.suite(tmp_path, 'workload = "noop"', head="policy.rounds = 1")
    _, rows = shared_hosts.run(tmp_path, suite, "--device", "cpu", "--budget", "10m", variables={**OF_TORCHRUN, "RANK": "0"})
    assert {each["status"] for each in rows} == {"ok"}


def test_what_cannot_be_started_on_several_machines_is_a_sentence(tmp_path, transcript):
    port = str(free_port())

    def start(words):
        variable, *arguments = words.split()
        variables = {**OF_TORCHRUN, "MASTER_PORT": port, **dict([variable.split("=")])}
        done = shared_hosts.dlbench(*arguments, cwd=tmp_path, variables=variables)
        assert (done.code, done.out, "Traceback" in done.err) == (2, "", False)
        return done.err.replace(port, "PORT")

    transcript("no-several-machines", 7, start)


PLUGIN = """
import os, sys
import psutil
from dlbench import Unit, Value, Work, workload

TOLD = tuple(Value(name, Unit.NUMBER, None, "told") for name in ("host", "beside", "prepared", "hash"))

def told(clock):
    command = psutil.Process(os.getppid()).ppid()
    beside = sum(each.info["ppid"] == command for each in psutil.process_iter(["ppid"])) - 1
    prepared = "torch._dynamo" in sys.modules
    return {"host": os.getppid(), "beside": beside, "prepared": prepared, "hash": int(os.environ["PYTHONHASHSEED"])}

@workload(tags=("training",), values=TOLD)
def trains(device) -> Work:
    return Work(observe=told)

@workload(values=TOLD)
def plain(device) -> Work:
    return Work(observe=told)
"""


def test_rounds_have_processes_of_their_own_which_start_beside_that_of_a_round_and_import_what_training_needs(tmp_path):
    """On three CPUs."""
    (tmp_path / "told.py").write_text(PLUGIN)
    found = {}
    for name, rounds in (("plain", "4"), ("trains", "1")):
        _, rows = run(tmp_path, front_door.suite(tmp_path, f'workload = "{name}"'), "told.py", "--rounds", rounds, cpus=3)
        found[name] = [each["values"] for each in rows]
        (tmp_path / "o.jsonl").unlink()
    assert [len({each[what] for each in found["plain"]}) for what in ("host", "hash")] == [4, 4]
    # The first round goes on in the process that said which devices there are, before any round was known.
    assert [each["beside"] for each in found["plain"]] == [0, 2, 1, 0]
    assert {name: {each["prepared"] for each in told} for name, told in found.items()} == {"plain": {0.0}, "trains": {1.0}}


ALONE = """
import sys
from dlbench import Work, workload

@workload
def alone(device) -> Work:
    assert "msgspec" not in sys.modules
    return Work(call=lambda: None)
"""


def test_a_run_needs_no_optional_package_and_its_measuring_process_nothing_but_torch_and_the_standard_library(tmp_path):
    """As of a bare checkout on a machine that has torch and little else."""
    (tmp_path / "mine.py").write_text(ALONE)
    suite = front_door.suite(tmp_path, 'workload = "alone"')
    variables = front_door.without(tmp_path, "pynvml", "pyarrow")
    done, rows = run(tmp_path, suite, "mine.py", "--device", "cpu", "--format", "json", variables=variables)
    assert [row["case.status"] for row in json.loads(done.out)] == ["ok"], done.err
    assert [each["status"] for each in rows] == ["ok", "ok"]


def test_a_case_has_the_threads_and_the_processes_that_it_asks_for(tmp_path):
    matmul = 'workload = "matmul"\ndevices = ["cpu"]\naxes.n = 64\n'
    batch = 'workload = "small_batch"\ndevices = ["cpu"]\naxes.batch = 8\naxes.norm = "no_norm"\naxes.learning_rate = 0.1\n'
    benches = (
        f"{matmul}axes.threads = [1, 4096]",
        f"{matmul}axes.threads = 1\naxes.instances = 1",
        f"{matmul}axes.instances = 4095",
        f"{batch}axes.threads = 1\naxes.instances = 1",
    )
    _, rows = run(tmp_path, front_door.suite(tmp_path, *benches), "--rounds", "1", code=5)
    found = {each["case"]["id"]: (each["status"], each.get("threads"), each.get("items"), each.get("reason")) for each in rows}
    lacks = "take a number that does, or set threads, too"
    assert {case: (*row, re.sub("[0-9]+ (cores|to use)", r"n \1", reason or "")) for case, (*row, reason) in found.items()} == {
        "matmul[n=64,dtype=fp32,threads=1]@cpu": ("ok", 1, 1, ""),
        "matmul[n=64,dtype=fp32,threads=4096]@cpu": (
            *("unsupported", 4096, None),
            "4096 threads need as many CPUs, and there are n to use",
        ),
        "matmul[n=64,dtype=fp32,threads=1,instances=1]@cpu": ("ok", 1, 1, ""),
        "matmul[n=64,dtype=fp32,instances=4095]@cpu": (*("unsupported", 1, None), f"4095 instances don't divide n cores evenly; {lacks}"),
        "small_batch[batch=8,norm=no_norm,learning_rate=0.1,threads=1,instances=1]@cpu": (
            *("failed", 1, None),
            "ValueError: instances repeat a call, and small_batch is an experiment; leave them out",
        ),
    }
