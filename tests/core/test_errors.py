"""Exit codes, offers of a near name, and reasons why something is not known: in a result file, and as they are shown."""

from collections.abc import Callable

from dlbench.core.errors import ExitCode, Unavailable, Unknown, explained, nearest

FIGURES = {"seconds": 1.5, "seconds_most": 1.0, "bytes": 1024, "bytes_left": 512, "kind": "mps", "precision": "fp16", "text": "no"}


def test_every_reason_has_a_sentence_in_which_its_figures_stand_and_what_is_raised_says_it() -> None:
    sentences = {unknown.name.lower(): explained([unknown.reason(**FIGURES)]) for unknown in Unknown}
    assert [name for name, sentence in sentences.items() if sentence == name or "{" in sentence] == []
    error = Unavailable(Unknown.NO_LOCKS, kind="mps")
    assert (error.reason, str(error)) == ({"reason": "no_locks", "kind": "mps"}, "dlbench locks no host memory for mps devices")


REASONS = [
    [Unknown.TOO_SHORT.reason(seconds=0.1)],
    [Unknown.TOGETHER.reason(part="inputs"), Unknown.TOO_LONG.reason(part="fp64", seconds=213.4, seconds_most=1.0)],
    [Unknown.TOO_MUCH_TO_LOCK.reason(bytes=3 << 29, bytes_left=512)],
    [Unknown.EXCEPTION.reason(text="TypeError: {no}")],
    # One that is not known, or that lacks a figure, is shown by its name.
    [{"part": "fp64", "reason": "of_no_kind", "watts": 3}],
    [{"reason": "too_long", "seconds": 1.5}],
    [{"reason": "too_long", "seconds": "long", "seconds_most": 1.0}],
    [{"reason": "left_by_others", "bytes": "many"}],
    [{"reason": "no_events"}],
]


def test_sentences_have_their_figures_and_parts(snapshot: Callable[[str, str], None]) -> None:
    snapshot("reasons-explained", "".join(f"{explained(reasons)}\n" for reasons in REASONS))


def test_exit_codes_are_those_that_scripts_rely_on() -> None:
    assert [code.value for code in ExitCode] == [0, 2, 3, 4, 5, 69, 70, 74, 75, 129, 130, 143]


def test_a_near_name_is_offered_or_the_few_that_begin_so_else_all() -> None:
    batches = [f"batch_{letter}" for letter in "abcd"]
    assert nearest("bathc", ["batch", "dtype"]) == "; did you mean 'batch'?"
    assert nearest("batch", batches[:3]) == "; did you mean 'batch_a' or 'batch_b' or 'batch_c'?"
    assert nearest("batch_", batches) == "; did you mean 'batch_d'?"
    assert nearest("x", ["batch", "dtype"]) == "; valid: batch, dtype"
    assert nearest("x", []) == ""
