import json
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result

from dlbench.cli.main import dlbench
from dlbench.core.errors import WorkerError

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
            "memory_bytes": 64 * 2**30,
            "multiprocessors": 104,
        },
    ],
}


@pytest.fixture
def hello(monkeypatch: pytest.MonkeyPatch) -> None:
    # The measuring process has tests of its own; here it answers at once.
    monkeypatch.setitem(sys.modules, "dlbench.harness.runner", SimpleNamespace(ask_hello=lambda plugins: HELLO))


def run(*words: str) -> Result:
    return CliRunner().invoke(dlbench, ["devices", *words], catch_exceptions=False)


@pytest.mark.usefixtures("hello")
def test_json() -> None:
    result = run("--format", "json")
    said = json.loads(result.stdout)
    assert (said["torch"], said["why_no_gpu"]) == (HELLO["versions"], None)
    cpu, gpu = said["devices"]
    assert (result.exit_code, result.stderr) == (0, "")
    assert (cpu["id"], cpu["isa"].partition(",")[0], cpu["kind"]) == ("cpu", "AVX512", "cpu")
    assert cpu["usable_threads"] >= 1
    assert gpu["name"] == "Odd [/foo] [bold]card"
    assert gpu["memory_bytes"] == 64 * 2**30
    assert gpu["power_limit_w"] is None
    assert gpu["reasons"]["power_limit_w"] == "NVML reads NVIDIA devices only"


@pytest.mark.parametrize(
    ("found", "why", "said"),
    [
        ([], "there is no NVIDIA driver for torch 2", "none: there is no NVIDIA driver for torch 2"),
        ([], None, "none: torch finds none that it can use"),
        ([{"id": "cuda:0", "kind": "cuda"}], "not asked", "cuda:0"),
    ],
)
def test_first_comes_torch_and_whether_it_uses_a_gpu(monkeypatch: pytest.MonkeyPatch, found: list[Any], why: str | None, said: str) -> None:
    hello = {**HELLO, "devices": [{"id": "cpu", "kind": "cpu"}, *found]}
    monkeypatch.setitem(sys.modules, "dlbench.harness.runner", SimpleNamespace(ask_hello=lambda plugins: hello))
    monkeypatch.setattr("dlbench.harness.probe.devices.why_gpu_unusable", lambda versions: why)
    assert [line.split(maxsplit=1) for line in run().stdout.splitlines()[:4]] == [
        ["torch"],
        ["version", "2.11.0+rocm6.4"],
        ["gpu", said],
        [],
    ]


def test_a_measuring_process_that_does_not_start_is_the_callers_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(plugins: object) -> None:
        raise WorkerError("torch does not import")

    monkeypatch.setitem(sys.modules, "dlbench.harness.runner", SimpleNamespace(ask_hello=fail))
    with pytest.raises(WorkerError, match="torch does not import"):
        run()
