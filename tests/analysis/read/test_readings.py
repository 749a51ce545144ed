"""Whether two files were measured at the same clocks."""

from pathlib import Path
from typing import Any

import made_up
import pytest

from dlbench.analysis.read.header import device_readings
from dlbench.analysis.read.usability import clock_difference
from dlbench.core.conditions import RoundState
from dlbench.core.store import load


def clocks(folder: Path, state: Any) -> Any:
    path = folder / "run.jsonl"
    path.unlink(missing_ok=True)
    return device_readings(load(made_up.write(path, made_up.rounds_of(made_up.case(n=1), [[1.0]]), state=state)))


def accelerator(**hz: Any) -> dict[str, Any]:
    return {"accelerators": {"cuda:0": {**hz, "reasons": {}}}}


def test_the_clocks_after_the_run_are_read(tmp_path: Path) -> None:
    state = {"cpu": {"clock_hz": 2.1e9}, **accelerator(clock_sm_hz=1.98e9, clock_memory_hz=3.2e9, power_w=300)}
    assert clocks(tmp_path, state) == {
        "cpu": {"clock_hz": [2.1e9]},
        "cuda:0": {"clock_sm_hz": [1.98e9], "clock_memory_hz": [3.2e9], "power_w": [300]},
    }


def test_the_clocks_after_each_round_go_before_those_after_the_run(tmp_path: Path) -> None:
    states = [
        RoundState(number, 10.0, None, None, before=accelerator(clock_sm_hz=3e8), after=accelerator(clock_sm_hz=hz))
        for number, hz in enumerate((1.98e9, 1.965e9))
    ]
    measured = made_up.rounds_of(made_up.case(n=1), [[1.0], [1.0]])
    path = made_up.write(tmp_path / "run.jsonl", measured, states=states, state=accelerator(clock_sm_hz=3e8))
    assert device_readings(load(path)) == {"cuda:0": {"clock_sm_hz": [1.98e9, 1.965e9]}}


@pytest.mark.parametrize(
    "state",
    [{}, {"cpu": None}, {"cpu": {"clock_hz": None}, "accelerators": None}, {"accelerators": {"cuda:0": {"clock_sm_hz": "fast"}}},
     {"accelerators": {"cuda:0": 3}}, accelerator(clock_sm_hz=0), accelerator(clock_sm_hz=True)],
)  # fmt: skip
def test_what_does_not_tell_a_clock_has_none(tmp_path: Path, state: Any) -> None:
    assert clocks(tmp_path, state) == {}


def test_an_unfinished_file_has_none(tmp_path: Path) -> None:
    path = made_up.write(tmp_path / "run.jsonl", made_up.rounds_of(made_up.case(n=1), [[1.0]]), finished=False)
    assert device_readings(load(path)) == {}


def of_gpu(*hz: float, name: str = "clock_sm_hz") -> Any:
    return {"cuda:0": {name: hz}}


def test_an_accelerators_clocks_are_compared_by_their_medians() -> None:
    assert clock_difference(of_gpu(1.98e9), of_gpu(1.95e9), "cuda:0") is None
    assert clock_difference(of_gpu(1.98e9), of_gpu(1.98e9, 1.5e9, 1.98e9), "cuda:0") is None
    said = "the clock of cuda:0 was 1.98 GHz in the base and 1.75 GHz in the new file"
    assert clock_difference(of_gpu(1.98e9), of_gpu(1.755e9), "cuda:0") == (said, 1.98 / 1.755, 1.0)
    assert clock_difference(of_gpu(1e9), of_gpu(1.0201e9), "cuda:0") is not None
    memory = clock_difference(of_gpu(2e9, name="clock_memory_hz"), of_gpu(1e9, name="clock_memory_hz"), "cuda:0")
    assert memory is not None
    assert memory.sentence == "the memory clock of cuda:0 was 2.00 GHz in the base and 1.00 GHz in the new file"


def test_an_unknown_clock_is_no_difference() -> None:
    assert clock_difference(of_gpu(1.98e9), {}, "cuda:0") is None
    assert clock_difference(of_gpu(1.98e9), of_gpu(1e9, name="clock_memory_hz"), "cuda:0") is None
    assert clock_difference(of_gpu(1.98e9), of_gpu(1e9), "cuda:1") is None


def of_cpu(*ghz: float) -> Any:
    return {"cpu": {"clock_hz": [1e9 * each for each in ghz]}}


def test_a_cpus_clocks_have_to_lie_wholly_apart() -> None:
    four = (2.0, 2.1, 2.0, 2.1)
    said = "the clock of cpu was 2.05 GHz in the base and 3.05 GHz in the new file"
    assert clock_difference(of_cpu(*four), of_cpu(3.0, 3.1, 3.0, 3.2), "cpu") == (said, 1.0, 2.0 / 3.2)
    assert clock_difference(of_cpu(3.0, 3.1, 3.0, 3.2), of_cpu(*four), "cpu") is not None
    assert clock_difference(of_cpu(*four), of_cpu(3.0, 3.1, 3.0, 2.1), "cpu") is None
    assert clock_difference(of_cpu(*four), of_cpu(2.14, 2.15, 2.16, 2.17), "cpu") is None
    assert clock_difference(of_cpu(2.0, 2.0, 2.0), of_cpu(3.0, 3.0, 3.0), "cpu") is None  # apart by accident in one of ten
