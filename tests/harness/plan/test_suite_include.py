"""A suite can take in the benches of built-in ones."""

import pytest

from dlbench.core.errors import SuiteError
from dlbench.harness.plan import suite
from dlbench.harness.plan.suite import load, parse

OWN = '[[bench]]\nworkload = "noop"\n'


def test_included_benches_follow_its_own():
    mine = parse(f'include = ["self"]\n{OWN}', "mine.toml")
    assert mine.benches[1:] == load("self").benches
    assert mine.benches[0].workload == "noop"
    assert mine.policy == parse(OWN, "mine.toml").policy


def test_a_star_stands_for_the_built_in_suites_that_have_a_place_by_that(tmp_path, monkeypatch):
    (tmp_path / "suites").mkdir()
    for name, place in (("first", "place_in_full = 1\n"), ("another", "place_in_full = 2\n"), ("apart", "")):
        (tmp_path / "suites" / f"{name}.toml").write_text(f'{place}[[bench]]\nworkload = "{name}"\n')
    (tmp_path / "suites" / "every.toml").write_text('include = "*"\n')
    monkeypatch.setattr(suite, "_PACKAGE", tmp_path)
    assert [bench.workload for bench in load("every").benches] == ["first", "another"]


@pytest.mark.parametrize(
    ("include", "sentence"),
    [
        ('["matmull"]', "mine.toml, include: no suite is called 'matmull'; did you mean 'matmul'?"),
        ('"matmul"', 'mine.toml, include: must be a list of built-in suites, such as ["matmul", "conv"], or "*" for those of full'),
        ("[1]", 'mine.toml, include: must be a list of built-in suites, such as ["matmul", "conv"], or "*" for those of full'),
        ("[]", "mine.toml: has no bench; add a [[bench]] with a workload and its axes"),
    ],
)
def test_what_is_no_suite_is_a_sentence(include, sentence):
    with pytest.raises(SuiteError) as error:
        parse(f"include = {include}\n", "mine.toml")
    assert str(error.value) == sentence
