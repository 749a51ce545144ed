"""What the engine makes of declarations: lengths, order of tags, sentences and what is missing."""

import made_up
import pytest

from dlbench.analysis.answers.engine import making
from dlbench.analysis.answers.engine.question import Lack, Question, Section, Tag
from dlbench.analysis.presentation.columns import KEY, RATIO, TIME, place
from dlbench.analysis.ratios.matching import match_rows
from dlbench.analysis.read.table import collect
from dlbench.core.units import Column, Unit


@pytest.fixture
def answered(tmp_path):
    """The answer to a question of one section, on steps of a CPU and of a card that is twice as fast."""

    def ask(factors=made_up.SEVEN, batches=(1,), **changes):
        found = []
        for device, seconds in (("cpu", 2.0), ("cuda:0", 1.0)):
            for batch in batches:
                case = made_up.case("step", device, batch=batch)
                found += made_up.rounds_of(case, made_up.flat([seconds * each for each in factors]), items=batch)
        results = collect([made_up.write(tmp_path / f"run{len(list(tmp_path.iterdir()))}.jsonl", found)])
        section = Section(
            **{
                "records": lambda results: match_rows(results, "device").rows,
                "title": "Matches",
                "columns": [KEY.by(lambda pair: pair.case), place, RATIO],
                "headline": {"": "{speedup}{span} as fast"},
                **changes,
            }
        )
        return making.answer(Question("own", "How fast?", sections=[section]), results)

    return ask


def test_a_headline_has_its_interval_where_it_fits_and_loses_what_the_next_adds_first(answered):
    two = {"batches": (1, 2), "foremost": lambda pairs: pairs}
    assert answered().headline == "2.00× (1.94…2.06) as fast"
    texts = {"": "{speedup}{span} as fast as the CPU{more}"}
    assert answered(**two, headline=texts, more={"": "; {speedup}"}).headline == "2.00× (1.94…2.06) as fast as the CPU; 2.00×"
    assert answered(**two, headline=texts, more={"": "; {speedup} in another"}).headline == "2.00× (1.94…2.06) as fast as the CPU"
    assert (
        answered(headline={"": "{speedup}{span} as fast as the CPU of this machine"}).headline == "2.00× as fast as the CPU of this machine"
    )
    none = Column("own.reason", Unit.TEXT, "why", of=lambda _: None)
    assert answered(columns=[none], headline={"": ("{reason} is why", "no reason is known")}).headline == "no reason is known"
    assert answered(headline=lambda pair: f"{pair.case} {{by}}").headline == "step[batch=1] {by}"


def test_lines_say_the_most_first_and_name_the_case_of_what_would_do_for_a_headline(answered):
    long = "{speedup}{span} as fast as the CPU beside it in the same case of {case}"
    found = answered(headline={"": (long, "{speedup}{span} as fast")}, label="worth it")
    assert (found.headline, found.label) == ("2.00× (1.94…2.06) as fast", "worth it")
    assert found.lines == (
        (
            "2.00× (1.94…2.06) as fast as the CPU beside it in the same case of step b1",
            "2.00× (1.94…2.06) as fast  step b1",
            "2.00× as fast as the CPU beside it in the same case of step b1",
            "2.00× as fast  step b1",
            "2.00× as fast",
        ),
    )


def test_so_many_of_the_foremost_have_a_line_each_under_the_label_of_the_section(answered):
    two = {"batches": (1, 2), "foremost": lambda found: found, "lines": 2, "more": {"": "; {speedup}"}}
    found = answered(**two, label=lambda pairs: f"of {len(pairs)}")
    assert (found.label, [line[0] for line in found.lines]) == ("of 2", [f"2.00× (1.94…2.06) as fast  step b{n}" for n in (1, 2)])
    assert answered(**{**two, "batches": (1,)}).lines == answered().lines
    assert (answered().label, answered(headline={}).lines) == ("own", ())


def test_a_name_with_a_number_is_cut_to_so_many_characters(answered):
    assert answered(headline={"": "{case:6}: {speedup}"}).headline == "step…: 2.00×"


def test_of_few_rounds_the_declared_condition_decides_and_others_add_to_those_of_the_rows(answered):
    assert answered(made_up.SEVEN[:3]).tags == (Tag.FEW_ROUNDS,)
    assert answered(made_up.SEVEN[:3], tags={Tag.FEW_ROUNDS: lambda _: False, Tag.ESTIMATE: lambda _: True}).tags == (Tag.ESTIMATE,)
    wide = (0.5, 0.7, 0.9, 1.0, 1.2, 1.4, 1.6)
    every = {tag: lambda _: True for tag in (Tag.NOT_CHECKED, Tag.TAIL, Tag.ESTIMATE)}
    answer = answered(wide, tags=every)
    assert answer.tags == (Tag.NOISY, Tag.ESTIMATE, Tag.TAIL)  # unusable, then what it rests on
    assert answer.weaknesses == (
        "2 of 2 cases it rests on are noisy",
        "not checked: error against fp64 unknown; dlbench run precision has some",
    )


def test_sentences_have_at_most_25_words_each_with_what_it_is_of(answered):
    numbers = [Column(f"own.n{n}", Unit.COUNT, "a count", heading=f"number of the {n}th kind of things", priority=0) for n in range(5)]
    columns = [each.by(lambda _, n=n: n) for n, each in enumerate(numbers)]
    answer = answered(columns=[KEY.by(lambda pair: pair.case), place, *columns, TIME], headline={"": "{n4}"})
    assert answer.sentences == (
        "step batch=1: number of the 0th kind of things 0, number of the 1th kind of things 1.",
        "step batch=1: number of the 2th kind of things 2, number of the 3th kind of things 3.",
        "step batch=1: number of the 4th kind of things 4, time 1.00 s (970 ms…1.03 s).",
    )
    assert max(len(each.split()) for each in answer.sentences) <= making.MOST_WORDS


def test_cautions_of_a_section_weaken_its_answer(answered):
    assert answered(cautions=lambda pairs: [f"{len(pairs)} pair is made up"]).weaknesses == ("1 pair is made up",)


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
