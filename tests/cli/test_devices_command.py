"""``dlbench devices``: what it shows of a made-up answer of the measuring process."""

import json
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result

from dlbench.cli.main import dlbench

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
