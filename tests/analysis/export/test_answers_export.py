"""Answers as data, from answers whose every word a test knows."""

import json

from dlbench.analysis.answers.engine.question import Answer, Missing, Question, Tag
from dlbench.analysis.export.answers_export import as_json, as_markdown

FOUND = (
    Answer(
        Question("precision", "Which precision?"),
        "bf16 2.7× fp32 (2.6…2.8)",
        "train res|net50",
        (Tag.FEW_ROUNDS, Tag.ESTIMATE),
        ("It is faster.", "It is off by 0.3 %."),
        ("train_step[n=1]@cpu",),
        ("whether it converges was not measured",),
        (),
    ),
    Missing(Question("devices", "Does another device help?"), "no case of several ranks went well", "dlbench run scaling"),
    Missing(Question("serving", "For serving?"), "no suite measures requests", why="not measured by dlbench yet"),
)


def test_json_has_headline_qualifier_and_tags_of_each_and_of_what_is_missing_too():
    one, two, three = json.loads(as_json(FOUND))["answers"]
    keys = ("kind", "headline", "qualifier", "tags", "sentences", "weaknesses")
    assert [one[key] for key in keys] == [
        "answer",
        "bf16 2.7× fp32 (2.6…2.8)",
        "train res|net50",
        ["few rounds", "estimate"],
        ["It is faster.", "It is off by 0.3 %."],
        ["whether it converges was not measured"],
    ]
    missing = ("kind", "headline", "qualifier", "reason", "command", "why")
    assert [[each[key] for key in missing] for each in (two, three)] == [
        ["missing", "–", "dlbench run scaling", "no case of several ranks went well", "dlbench run scaling", ""],
        ["missing", "–", "not measured by dlbench yet", "no suite measures requests", None, "not measured by dlbench yet"],
    ]


def test_markdown_has_headline_and_qualifier_first_and_tags_with_their_meaning():
    assert (
        as_markdown(FOUND, ["a run is not usable"])
        == """\
**a run is not usable**

## Which precision?

**bf16 2.7× fp32 (2.6…2.8)** train res\\|net50

It is faster. It is off by 0.3 %.

Caution:

- few rounds: no 95 % interval of a case; give --rounds 7
- estimate: of the best, of steps alone, or of ranks that share a CPU; --topic all
- whether it converges was not measured

## Does another device help?

**–** `dlbench run scaling`

Not answered: no case of several ranks went well.

## For serving?

**–** not measured by dlbench yet

Not answered: no suite measures requests.
"""
    )
