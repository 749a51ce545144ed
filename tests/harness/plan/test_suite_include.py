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
    monkeypatch.setattr("dlbench.core.files.PACKAGE", tmp_path)
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


@pytest.mark.parametrize(
    ("head", "sentence"),
    [
        ('place_in_full = "last"', "every.toml, place_in_full: must be a whole number, not 'last'"),
        ("place_in_full = true", "every.toml, place_in_full: must be a whole number, not True"),
        (
            'place_in_full = 1\ninclude = "*"',
            'every.toml, place_in_full: with include = "*" the suite would include itself; leave one of the two out',
        ),
        (
            'place_in_full = 1\ninclude = ["matmul", "full"]',
            'every.toml, place_in_full: with include = ["full"] the suite would include itself; leave one of the two out',
        ),
    ],
)
def test_a_place_is_a_whole_number_of_a_suite_that_does_not_include_itself(tmp_path, monkeypatch, head, sentence):
    (tmp_path / "suites").mkdir()
    (tmp_path / "suites" / "every.toml").write_text(f"{head}\n{OWN}")
    monkeypatch.setattr("dlbench.core.files.PACKAGE", tmp_path)
    for read in (lambda: load("every"), suite.names_in_full):
        with pytest.raises(SuiteError) as error:
            read()
        assert str(error.value) == sentence
