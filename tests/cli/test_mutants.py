"""A file may hold anything: every command that reads answers with a result or with an error of dlbench's own."""

import os

import mutants
import pytest

pytestmark = pytest.mark.front_door

SEED, COUNT = int(os.environ.get("MUTANTS_SEED", "1")), int(os.environ.get("MUTANTS", "108"))  # 108: four times each command


def test_whatever_was_done_to_a_file_it_is_no_internal_error():
    content = mutants.whole()
    found = [f"{' '.join(command)}: {done}\n{said}" for command, done, _, said in mutants.failing(content, COUNT, SEED)]
    assert not found, "\n".join(found)
    first, again, other = ([mutant for _, mutant in mutants.mutants(content, 100, seed)] for seed in (1, 1, 2))
    assert first == again != other
    assert sum(mutant == content for mutant in first) < 5
