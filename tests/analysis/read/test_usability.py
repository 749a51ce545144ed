"""Throughput against the batch, in made-up rows of one file, and whether two files were measured at the same clocks."""

from pathlib import Path
from typing import Any

import made_up
import pytest

from dlbench.analysis.read.header import device_readings
from dlbench.analysis.read.table import collect
from dlbench.analysis.read.usability import clock_difference
from dlbench.core.conditions import RoundState
from dlbench.core.measurement import Measurement
from dlbench.core.store import load

Rounds = list[Measurement]


def implausible(folder: Path, *measurements: Rounds) -> dict[str, str]:
    """Why rows are implausible, by id."""
    rows = collect([made_up.write(folder / "run.jsonl", [each for rounds in measurements for each in rounds])]).rows
    return {row.case.id: str(row.flag.implausible_reason) for row in rows if row.flag.implausible}


def rounds(seconds: float, device: str = "cuda:0", *, items: int = 0, count: int = 7, flops: float | None = None, **params: Any) -> Rounds:
    """Rounds around so many seconds, 3 % to either side, of a case of so many items."""
    times = made_up.flat([seconds * each for each in made_up.SEVEN[:count]])
    case = made_up.case("infer_step", device, model="resnet18", **params)
    return made_up.rounds_of(case, times, items=items or params["batch"], flops=flops)


B8 = rounds(1.0, batch=8)
ON_16 = "infer_step[model=resnet18,batch=16]@cuda:0"
ALL_ITS_WORK = "see that the larger one does all its work"
TEN_TIMES = {ON_16: f"10.0 times the throughput of batch 8 at 2 times the batch; {ALL_ITS_WORK}"}


@pytest.mark.parametrize(
    ("measurements", "reasons"),
    [
        ([B8, rounds(0.2, batch=16), rounds(0.9, batch=32)], TEN_TIMES),
        # A batch that costs little or nothing more, or has a better algorithm, is believed.
        *(([B8, rounds(seconds, batch=16)], {}) for seconds in (2.0, 1.0, 0.94, 0.5, 0.255)),
        ([rounds(6.3e-3, batch=1), rounds(5.4e-3, batch=2)], {}),
        ([rounds(1.0, batch=8, count=3), rounds(0.1, batch=16, count=3)], {}),
        ([B8, rounds(0.1, batch=16, device="cpu"), rounds(0.1, batch=32, dtype="bf16")], {}),
        (
            [rounds(1.0, items=1, ranks=1), rounds(0.8, items=2, ranks=2)],
            {"infer_step[model=resnet18,ranks=2]@cuda:0": f"2.50 times the throughput of ranks 1 at 2 times the ranks; {ALL_ITS_WORK}"},
        ),
        (
            [B8, rounds(0.2, batch=16, flops=0)],
            {ON_16: f"it states 0 operations; leave a count out where it means nothing; also, {TEN_TIMES[ON_16]}"},
        ),
        *(([B8, rounds(0.1, items=8, batch=batch)], {}) for batch in (0, -8, 10**400, 2.5, "many", True)),
    ],
)
def test_throughput_beyond_the_batch_or_ranks_is_implausible(tmp_path: Path, measurements: list[Rounds], reasons: dict[str, str]) -> None:
    assert implausible(tmp_path, *measurements) == reasons


def accelerator(**hz: Any) -> dict[str, Any]:
    return {"accelerators": {"cuda:0": {**hz, "reasons": {}}}}


BOTH = {"cpu": {"clock_hz": 2.1e9}, **accelerator(clock_sm_hz=1.98e9, clock_memory_hz=3.2e9, power_w=300)}


NO_CLOCKS: list[Any] = [{}, {"cpu": None}, {"cpu": {"clock_hz": None}, "accelerators": None}, {"accelerators": {"cuda:0": 3}}]
NO_CLOCKS += [{"accelerators": {"cuda:0": {"clock_sm_hz": "fast"}}}, accelerator(clock_sm_hz=0), accelerator(clock_sm_hz=True)]
READINGS = {"cpu": {"clock_hz": [2.1e9]}, "cuda:0": {"clock_sm_hz": [1.98e9], "clock_memory_hz": [3.2e9], "power_w": [300]}}


@pytest.mark.parametrize(("state", "readings"), [(BOTH, READINGS), *((state, {}) for state in NO_CLOCKS)])
def test_the_clocks_after_the_run_are_read_where_there_are_any(tmp_path: Path, state: Any, readings: Any) -> None:
    run = made_up.rounds_of(made_up.case(n=1), [[1.0]])
    assert device_readings(load(made_up.write(tmp_path / "run.jsonl", run, state=state))) == readings
    assert device_readings(load(made_up.write(tmp_path / "unfinished.jsonl", run, state=state, finished=False))) == {}


def test_the_clocks_after_each_round_go_before_those_after_the_run(tmp_path: Path) -> None:
    idle, clocks = accelerator(clock_sm_hz=3e8), [1.98e9, 1.965e9]
    states = [RoundState(number, 10.0, None, None, before=idle, after=accelerator(clock_sm_hz=each)) for number, each in enumerate(clocks)]
    path = made_up.write(tmp_path / "run.jsonl", made_up.rounds_of(made_up.case(n=1), [[1.0], [1.0]]), states=states, state=idle)
    assert device_readings(load(path)) == {"cuda:0": {"clock_sm_hz": clocks}}


def gpu(*ghz: float, name: str = "clock_sm_hz") -> Any:
    return {"cuda:0": {name: [1e9 * each for each in ghz]}}


def cpu(*ghz: float) -> Any:
    return {"cpu": {"clock_hz": [1e9 * each for each in ghz]}}


OF_MEMORY = [gpu(each, name="clock_memory_hz") for each in (2.0, 1.0)]
FOUR, HIGHER = cpu(2.0, 2.1, 2.0, 2.1), cpu(3.0, 3.1, 3.0, 3.2)


@pytest.mark.parametrize(
    ("base", "new", "device", "difference"),
    [
        (gpu(1.98), gpu(1.95), "cuda:0", None),
        (gpu(1.98), gpu(1.98, 1.5, 1.98), "cuda:0", None),  # by their medians
        (gpu(1.98), gpu(1.755), "cuda:0", ("clock of cuda:0 was 1.98 GHz in the base and 1.75 GHz", 1.98 / 1.755, 1.0)),
        (gpu(1.0), gpu(1.0201), "cuda:0", ("clock of cuda:0 was 1.00 GHz in the base and 1.02 GHz", 1.0, 1 / 1.0201)),
        (*OF_MEMORY, "cuda:0", ("memory clock of cuda:0 was 2.00 GHz in the base and 1.00 GHz", 2.0, 1.0)),
        (gpu(1.98), {}, "cuda:0", None),
        (gpu(1.98), OF_MEMORY[1], "cuda:0", None),
        (gpu(1.98), gpu(1.0), "cuda:1", None),
        # A CPU's have to lie wholly apart.
        (FOUR, HIGHER, "cpu", ("clock of cpu was 2.05 GHz in the base and 3.05 GHz", 1.0, 2.0 / 3.2)),
        (HIGHER, FOUR, "cpu", ("clock of cpu was 3.05 GHz in the base and 2.05 GHz", 3.2 / 2.0, 1.0)),
        (FOUR, cpu(3.0, 3.1, 3.0, 2.1), "cpu", None),
        (FOUR, cpu(2.14, 2.15, 2.16, 2.17), "cpu", None),
        (cpu(2.0, 2.0, 2.0), cpu(3.0, 3.0, 3.0), "cpu", None),  # apart by accident in one of ten
    ],
)
def test_clocks_differ_by_more_than_two_percent(base: Any, new: Any, device: str, difference: tuple[str, float, float] | None) -> None:
    found = clock_difference(base, new, device)
    if difference is None:
        assert found is None
    else:
        sentence, slower, faster = difference
        assert found == (f"the {sentence} in the new file", pytest.approx(slower), pytest.approx(faster))
