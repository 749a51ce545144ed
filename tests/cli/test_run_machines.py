"""One run over several machines: two torchrun agents on this one, each with a processor of its own to itself."""

import os
import re
import socket
import subprocess
import sys
from contextlib import contextmanager

import click
import front_door
import pytest
import shared_hosts
from front_door import PLUGINS, dlbench

from dlbench.cli import BEGAN
from dlbench.cli.commands import run

pytestmark = pytest.mark.real

RANK_FAULTS = str(PLUGINS / "rank_faults.py")
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
    return subprocess.Popen(
        [sys.executable, "-m", "torch.distributed.run", *where, "-m", "dlbench", *arguments],
        cwd=cwd,
        env=front_door.environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: os.sched_setaffinity(0, {cpu}),
    )


def test_two_machines_measure_together_and_the_first_writes_one_file(tmp_path):
    benches = [
        'workload = "who_am_i"\naxes.ranks = [2, 3]',
        'workload = "together"\naxes.ranks = 2',
        'workload = "dies_in_one"\naxes.ranks = 2\naxes.number = 9',
        f'workload = "hangs_in_one"\naxes.ranks = 2\naxes.folder = "{tmp_path}"',
    ]
    suite = front_door.suite(tmp_path, *benches, head=front_door.HASTY.replace("timeout_s = 20", "timeout_s = 6"))
    port = free_port()
    arguments = ("run", suite, RANK_FAULTS, "--rounds", "1", "-o", "o.jsonl")
    agents = [torchrun(number, port, *arguments, cwd=tmp_path) for number in (0, 1)]
    try:
        (out, err), (other_out, other_err) = [agent.communicate(timeout=200) for agent in agents]
    finally:
        for agent in agents:
            agent.kill()
    assert agents[1].returncode == 0, other_err
    assert "who_am_i" in out, err
    assert re.search(r"exitcode +: 5 ", err)
    assert "SignalException" not in err  # how the ranks were ended is none of torchrun's business
    assert other_out == ""
    assert "machine 1 of 1 next to the first, 127.0.0.1, which writes the results" in other_err

    header, *_ = front_door.lines(tmp_path / "o.jsonl")
    (machine,) = header["machines"]
    assert machine["identity"] == header["environment"]["identity"]
    assert machine["stack_key"] == header["environment"]["stack_key"]
    rows = {each["case"]["id"].removesuffix("@cpu"): each for each in front_door.measurements(tmp_path / "o.jsonl")}
    assert {case: (row["status"], row.get("reason")) for case, row in rows.items()} == {
        "who_am_i[ranks=2]": ("ok", None),
        "who_am_i[ranks=3]": ("unsupported", "3 ranks need as many cores, and there are 2 to use"),
        "together[ranks=2]": ("ok", None),
        "dies_in_one[ranks=2,number=9]": ("crashed", "rank 1 was killed by SIGKILL"),
        f"hangs_in_one[ranks=2,folder={tmp_path}]": (
            "timeout",
            "not done within 6 s; raise --timeout",
        ),
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

    monkeypatch.setattr(run, "connect_nodes", after_an_hour)
    suite = front_door.suite(tmp_path, 'workload = "noop"', head="policy.rounds = 1")
    arguments = ("run", suite, "--device", "cpu", "--budget", "10m", "-o", "o.jsonl")
    done = shared_hosts.dlbench(*arguments, cwd=tmp_path, variables={**OF_TORCHRUN, "RANK": "0"})
    assert done.code == 0, done.err
    assert {each["status"] for each in front_door.measurements(tmp_path / "o.jsonl")} == {"ok"}


@pytest.mark.parametrize(
    ("more", "arguments", "sentence"),
    [
        (
            {},
            ("run", "self"),
            "torchrun's rendezvous at 127.0.0.1:{port} can't be used (Connection refused); start the same command on every machine",
        ),
        ({"RANK": "0"}, ("run", "self"), "torchrun's rendezvous at 127.0.0.1:{port} can't be used (Connection refused)"),
        ({"LOCAL_WORLD_SIZE": "2"}, ("run", "self"), "give torchrun --nproc-per-node 1"),
        (
            {},
            ("ab", "self", "--b", "same"),
            "dlbench ab measures on one machine; start it without torchrun, or have dlbench run measure on several",
        ),
        ({}, ("calibrate", "self"), "dlbench calibrate measures on one machine; start it without torchrun"),
        ({}, ("doctor",), "dlbench doctor measures on one machine; start it without torchrun"),
        ({}, ("run", "--resume", "o.jsonl"), "--resume goes on with a run on one machine; give it without torchrun"),
    ],
)
def test_what_cannot_be_started_on_several_machines_is_a_sentence(tmp_path, more, arguments, sentence):
    port = free_port()
    done = dlbench(*arguments, cwd=tmp_path, variables={**OF_TORCHRUN, "MASTER_PORT": str(port), **more})
    assert (done.code, done.out) == (2, "")
    assert sentence.format(port=port) in done.err
    assert "Traceback" not in done.err
