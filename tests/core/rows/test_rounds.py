import json
from dataclasses import replace
from pathlib import Path

import made_up
import pytest

from dlbench.core.errors import ResultFileError
from dlbench.core.measurement import Measurement, SpotCheck, measurement_to_json
from dlbench.core.model import Status
from dlbench.core.rows.rounds import Blocks, Round, RoundReader
from dlbench.core.store import LeftOut, load

ONE, OTHER = made_up.case(batch=8), made_up.case(batch=16)
BLOCKS = [[1.0, 2.0, 3.0], [4.0, 6.0, 5.0], [7.0, 8.0, 9.0]]


def read(path: Path, *measurements: Measurement) -> RoundReader:
    made_up.write(path, measurements)
    reduction = RoundReader()
    assert load(path, reduction.add).measurements == ()
    return reduction


def test_rounds_read_from_a_file_are_those_of_its_measurements(tmp_path: Path) -> None:
    odd = [
        replace(made_up.rounds_of(ONE, [[1.0, 1, 2.5]])[0], round=3),
        replace(made_up.rounds_of(ONE, BLOCKS)[0], round=4, values={"loss": 0.5}, check=SpotCheck(True, 0.5, 1.0, 1e-6)),
        made_up.ended(ONE, Status.OOM, "too large", 5),
        replace(made_up.rounds_of(ONE, BLOCKS)[1], round=6, math={"tf32": True}),
        replace(made_up.rounds_of(ONE, BLOCKS)[1], round=7, threads=3),
    ]
    measurements = [*made_up.rounds_of(ONE, BLOCKS), *made_up.rounds_of(OTHER, BLOCKS, items=16), *odd]
    found = read(tmp_path / "f.jsonl", *measurements).cases
    expected = RoundReader()
    for each in measurements:
        expected.add(each)
    assert list(found) == [(None, ONE.id), (None, OTHER.id)]
    for key, rounds in expected.cases.items():
        assert [each._replace(source=0) for each in found[key]] == [each._replace(source=0) for each in rounds]


def test_rounds_that_state_the_same_share_it(tmp_path: Path) -> None:
    rounds = read(tmp_path / "f.jsonl", *made_up.rounds_of(ONE, BLOCKS)).cases[None, ONE.id]
    assert len({id(each.stated) for each in rounds}) == 1


def test_equal_is_not_enough_to_be_taken_for_what_another_case_states(tmp_path: Path) -> None:
    measurements = [*made_up.rounds_of(ONE, BLOCKS, math={"tf32": True}), *made_up.rounds_of(OTHER, BLOCKS, math={"tf32": 1})]
    cases = read(tmp_path / "f.jsonl", *measurements).cases
    assert [repr(rounds[0].stated.math) for rounds in cases.values()] == ["{'tf32': True}", "{'tf32': 1}"]


def test_the_first_blocks_are_read_again_from_the_file(tmp_path: Path) -> None:
    path = tmp_path / "f.jsonl"
    rounds = read(path, *made_up.rounds_of(ONE, BLOCKS)).cases[None, ONE.id]
    blocks = Blocks(tuple(each.blocks for each in rounds), tuple(each.source for each in rounds), path)
    assert [list(each) for each in blocks.first(2)] == [[1.0, 2.0], [4.0, 6.0], [7.0, 8.0]]
    assert [list(each) for each in blocks.at([2, 0]).first(2)] == [[7.0, 8.0], [1.0, 2.0]]


def test_a_file_that_is_another_by_then_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "f.jsonl"
    rounds = read(path, *made_up.rounds_of(ONE, BLOCKS)).cases[None, ONE.id]
    path.write_text("{}\n")
    with pytest.raises(ResultFileError, match="was changed while it was read; compare it again"):
        Blocks((3,), (rounds[2].source,), path).first(2)
    path.unlink()
    with pytest.raises(ResultFileError, match=r"cannot read .*: No such file or directory"):
        Blocks((3,), (rounds[2].source,), path).first(2)


@pytest.mark.parametrize("name", ["round", "samples", "memory", "started", "threads"])
def test_a_later_round_is_checked_as_well(tmp_path: Path, name: str) -> None:
    lines = [measurement_to_json(each) for each in made_up.rounds_of(ONE, BLOCKS)]
    lines[2][name] = "wrong" if name == "threads" else -1
    path = tmp_path / "f.jsonl"
    path.write_text("\n".join(map(json.dumps, [{"kind": "header", "schema": 1}, *lines])) + "\n")
    (left_out,) = load(path, RoundReader().add).left_out
    assert (left_out.number, f"`$.{name}`" in left_out.why) == (4, True)


def test_of_two_measurements_of_a_round_the_first_counts(tmp_path: Path) -> None:
    """Lines of two writers, or lines that were copied; a case that was skipped in a round may be measured in it yet."""
    skipped = made_up.ended(ONE, Status.SKIPPED, "no time")
    lines = [measurement_to_json(each) for each in (skipped, *made_up.rounds_of(ONE, BLOCKS), *made_up.rounds_of(ONE, BLOCKS[1:3]))]
    path = tmp_path / "f.jsonl"
    path.write_text("\n".join(map(json.dumps, [{"kind": "header", "schema": 1}, *lines])) + "\n")
    reduction = RoundReader()
    whole, compared = load(path), load(path, reduction.add)
    assert (
        whole.left_out
        == compared.left_out
        == (
            LeftOut(6, "round 0 of its case stands above already"),
            LeftOut(7, "round 1 of its case stands above already"),
        )
    )
    assert [each.round for each in whole.measurements] == [each.number for each in reduction.cases[None, ONE.id]] == [0, 0, 1, 2]


def test_a_measurement_in_memory_keeps_its_blocks() -> None:
    assert list(Round.of(made_up.rounds_of(ONE, BLOCKS)[1]).source) == [4.0, 6.0, 5.0]
