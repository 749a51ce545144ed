"""One run over several machines: two torchrun agents on this one, each with a processor of its own to itself."""

import functools
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
from front_door import PLUGINS

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

    monkeypatch.setattr(run, "connect_nodes", after_an_hour)
    suite = front_door.suite(tmp_path, 'workload = "noop"', head="policy.rounds = 1")
    _, rows = shared_hosts.run(tmp_path, suite, "--device", "cpu", "--budget", "10m", variables={**OF_TORCHRUN, "RANK": "0"})
    assert {each["status"] for each in rows} == {"ok"}


ONE_MACHINE = ("ab self --b same", "calibrate self", "doctor")


REFUSED = "torchrun's rendezvous at 127.0.0.1:{port} can't be used (Connection refused)"


@pytest.mark.parametrize(
    ("variable", "arguments", "sentence"),
    [
        (("RANK", "1"), "run self", f"{REFUSED}; start the same command on every machine"),
        (("RANK", "0"), "run self", REFUSED),
        (("LOCAL_WORLD_SIZE", "2"), "run self", "give torchrun --nproc-per-node 1"),
        *(
            (("RANK", "1"), words, f"dlbench {words.split()[0]} measures on one machine; start it without torchrun")
            for words in ONE_MACHINE
        ),
        (("RANK", "1"), "run --resume o.jsonl", "--resume goes on with a run on one machine; give it without torchrun"),
    ],
)
def test_what_cannot_be_started_on_several_machines_is_a_sentence(tmp_path, variable, arguments, sentence):
    port = free_port()
    variables = {**OF_TORCHRUN, "MASTER_PORT": str(port), variable[0]: variable[1]}
    done = shared_hosts.dlbench(*arguments.split(), cwd=tmp_path, variables=variables)
    assert (done.code, done.out, "Traceback" in done.err) == (2, "", False)
    assert sentence.format(port=port) in done.err
