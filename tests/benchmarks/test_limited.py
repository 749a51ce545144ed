"""Commands within a limit, and a machine that does not answer."""

import signal
import subprocess
import sys

import front_door
import pytest

from benchmarks import limited
from benchmarks.limited import STOPPED, worst
from benchmarks.reference import main
from dlbench.core.errors import DeviceFault, ExitCode

pytestmark = pytest.mark.real


@pytest.mark.parametrize(
    ("codes", "expected"),
    [([], 0), ([0, 0], 0), ([0, 4], 4), ([4, 5], 5), ([5, 3], 3), ([3, 2], 2), ([2, 75, 5], 75), ([75, 74], 74), ([5, 130], 130)],
)
def test_the_worst_code_speaks_for_all(codes, expected):
    assert worst([ExitCode(code) for code in codes]) == expected


def test_a_machine_that_does_not_answer_ends_the_call_with_that_sentence(tmp_path, capsys):
    def ask():
        raise DeviceFault("the devices do not answer")

    assert main(["--into", str(tmp_path)], ask=ask) == 75
    assert capsys.readouterr().err == "reference: the devices do not answer\n"


def test_a_command_beyond_its_limit_is_interrupted():
    assert limited.run_python(["-c", "import signal; signal.pause()"], 0.5) == STOPPED
    assert limited.run_python(["-c", "raise SystemExit(5)"], 60) == 5


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_and_a_time_limit_reach_the_command_under_way_and_are_waited_for(number):
    inner = (
        "import signal\ntry:\n    print('ready', flush=True)\n    signal.pause()\nexcept KeyboardInterrupt:\n    print('saved', flush=True)"
    )
    ignored = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)"  # as in a background job
    outer = f"{ignored}; from benchmarks.limited import listen, run_python; listen(); print(run_python(['-c', {inner!r}], 60))"
    with subprocess.Popen(
        [sys.executable, "-c", outer], cwd=front_door.ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stdout.readline() == "ready\n"
        process.send_signal(number)
        assert process.stdout.read() == "saved\n130\n"
