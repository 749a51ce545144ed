"""What the engine makes of declarations: lengths, order of tags, sentences and what is missing."""

import made_up
import pytest

from dlbench.analysis.answers.engine import making
from dlbench.analysis.answers.engine.question import Lack, Question, Section, Tag
from dlbench.analysis.presentation.columns import KEY, RATIO, TIME, place
from dlbench.analysis.ratios.matching import match_rows
from dlbench.analysis.read.table import collect
from dlbench.core.units import Column, Unit

CASE = KEY.by(lambda pair: pair.case)
TWO = {"batches": (1, 2), "foremost": lambda pairs: pairs}


@pytest.fixture
def answered(tmp_path):
    """The answer to a question of one section, on steps of a CPU and of a card that is twice as fast."""

    def ask(factors=made_up.SEVEN, batches=(1,), **changes):
        cases = [(made_up.case("step", device, batch=n), s, n) for device, s in (("cpu", 2.0), ("cuda:0", 1.0)) for n in batches]
        found = [each for case, s, n in cases for each in made_up.around(case, s, factors, items=n)]
        results = collect([made_up.write(tmp_path / f"run{len(list(tmp_path.iterdir()))}.jsonl", found)])
        declared = {
            "records": lambda results: match_rows(results, "device").rows,
            "title": "Matches",
            "columns": [CASE, place, RATIO],
            "headline": {"": "{speedup}{span} as fast"},
        }
        return making.answer(Question("own", "How fast?", sections=[Section(**{**declared, **changes})]), results)

    return ask


LONG = "{speedup}{span} as fast as the CPU{more}"
NO_REASON = Column("own.reason", Unit.TEXT, "why", of=lambda _: None)


@pytest.mark.parametrize(
    ("changes", "headline"),
    [
        ({}, "2.00× (1.94…2.06) as fast"),
        # The interval has room, and what the next record adds goes first where it has none.
        ({**TWO, "headline": {"": LONG}, "more": {"": "; {speedup}"}}, "2.00× (1.94…2.06) as fast as the CPU; 2.00×"),
        ({**TWO, "headline": {"": LONG}, "more": {"": "; {speedup} in another"}}, "2.00× (1.94…2.06) as fast as the CPU"),
        ({"headline": {"": "{speedup}{span} as fast as the CPU of this machine"}}, "2.00× as fast as the CPU of this machine"),
        ({"columns": [NO_REASON], "headline": {"": ("{reason} is why", "no reason is known")}}, "no reason is known"),
        ({"headline": lambda pair: f"{pair.case} {{by}}"}, "step[batch=1] {by}"),
        ({"headline": {"": "{case:6}: {speedup}"}}, "step…: 2.00×"),  # cut to so many characters
    ],
)
def test_the_headline_is_the_first_text_that_has_its_names_and_room(answered, changes, headline):
    assert answered(**changes).headline == headline


def test_lines_say_the_most_first_and_name_the_case_of_what_would_do_for_a_headline(answered):
    long = "{speedup}{span} as fast as the CPU beside it in the same case of {case}"
    found = answered(headline={"": (long, "{speedup}{span} as fast")}, label="worth it")
    assert (found.headline, found.label) == ("2.00× (1.94…2.06) as fast", "worth it")
    (line,) = found.lines
    assert line == (
        "2.00× (1.94…2.06) as fast as the CPU beside it in the same case of step b1",
        "2.00× (1.94…2.06) as fast  step b1",
        "2.00× as fast as the CPU beside it in the same case of step b1",
        "2.00× as fast  step b1",
        "2.00× as fast",
    )
    two = {**TWO, "lines": 2, "more": {"": "; {speedup}"}}  # so many of the foremost have a line each
    found = answered(**two, label=lambda pairs: f"of {len(pairs)}")
    assert (found.label, [line[0] for line in found.lines]) == ("of 2", [f"2.00× (1.94…2.06) as fast  step b{n}" for n in (1, 2)])
    assert answered(**{**two, "batches": (1,)}).lines == answered().lines
    assert answered().label == "own"


def test_of_few_rounds_the_declared_condition_decides_and_others_add_to_those_of_the_rows(answered):
    assert answered(made_up.SEVEN[:3]).tags == (Tag.FEW_ROUNDS,)
    assert answered(made_up.SEVEN[:3], tags={Tag.FEW_ROUNDS: lambda _: False, Tag.ESTIMATE: lambda _: True}).tags == (Tag.ESTIMATE,)
    every = {tag: lambda _: True for tag in (Tag.NOT_CHECKED, Tag.TAIL, Tag.ESTIMATE)}
    answer = answered((0.5, 0.7, 0.9, 1.0, 1.2, 1.4, 1.6), tags=every, cautions=lambda pairs: [f"{len(pairs)} pair is made up"])
    assert answer.tags == (Tag.NOISY, Tag.ESTIMATE, Tag.TAIL)  # unusable, then what it rests on
    assert answer.weaknesses == (
        "2 of 2 cases it rests on are noisy",
        "1 pair is made up",
        "not checked: error against fp64 unknown; dlbench run precision has some",
    )


def test_sentences_have_at_most_25_words_each_with_what_it_is_of(answered):
    numbers = [Column(f"own.n{n}", Unit.COUNT, "a count", heading=f"number of the {n}th kind of things", priority=0) for n in range(5)]
    answer = answered(columns=[CASE, place, *(each.by(lambda _, n=n: n) for n, each in enumerate(numbers)), TIME], headline={"": "{n4}"})
    assert answer.sentences == (
        "step batch=1: number of the 0th kind of things 0, number of the 1th kind of things 1.",
        "step batch=1: number of the 2th kind of things 2, number of the 3th kind of things 3.",
        "step batch=1: number of the 4th kind of things 4, time 1.00 s (970 ms…1.03 s).",
    )
    assert max(len(each.split()) for each in answer.sentences) <= making.MOST_WORDS


@pytest.mark.parametrize(
    ("missing", "expected"),
    [
        (["nothing was measured"], ("nothing was measured", "dlbench run own", "")),
        ([lambda _: None, Lack("why", "no card")], ("why", None, "no card")),
        ([lambda results: Lack(f"{len(results.rows)} rows"), "other"], ("0 rows", "dlbench run own", "")),
    ],
)
def test_without_records_the_first_reason_that_holds_is_why(tmp_path, missing, expected):
    results = collect([made_up.write(tmp_path / "run.jsonl", [])])
    found = making.answer(Question("own", "How fast?", command="dlbench run own", missing=missing), results)
    assert (found.reason, found.command, found.why) == expected
