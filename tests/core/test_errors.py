"""Exit codes, offers of a near name, and reasons why something is not known: in a result file, and as they are shown."""

import json
from collections.abc import Callable

from dlbench.core.errors import ExitCode, Unavailable, Unknown, explained, nearest

FIGURES = {"seconds": 1.5, "seconds_most": 1.0, "bytes": 1024, "bytes_left": 512, "kind": "mps", "precision": "fp16", "text": "no"}


def test_every_reason_has_a_sentence_in_which_its_figures_stand_and_what_is_raised_says_it() -> None:
    sentences = {unknown.name.lower(): explained([unknown.reason(**FIGURES)]) for unknown in Unknown}
    assert [name for name, sentence in sentences.items() if sentence == name or "{" in sentence] == []
    error = Unavailable(Unknown.NO_LOCKS, kind="mps")
    assert (error.reason, str(error)) == ({"reason": "no_locks", "kind": "mps"}, "dlbench locks no host memory for mps devices")


def test_sentences_have_their_figures_and_parts_and_one_that_is_not_known_or_lacks_a_figure_is_shown_by_its_name(
    transcript: Callable[..., None],
) -> None:
    transcript("reasons-explained", 9, lambda reasons: explained(json.loads(reasons)))


def test_exit_codes_are_those_that_scripts_rely_on() -> None:
    assert [code.value for code in ExitCode] == [0, 2, 3, 4, 5, 69, 70, 74, 75, 129, 130, 143]


def test_a_near_name_is_offered_or_the_few_that_begin_so_else_all() -> None:
    batches = [f"batch_{letter}" for letter in "abcd"]
    assert nearest("bathc", ["batch", "dtype"]) == "; did you mean 'batch'?"
    assert nearest("batch", batches[:3]) == "; did you mean 'batch_a' or 'batch_b' or 'batch_c'?"
    assert nearest("batch_", batches) == "; did you mean 'batch_d'?"
    assert nearest("x", ["batch", "dtype"]) == "; valid: batch, dtype"
    assert nearest("x", []) == ""
