"""A suite can take in the benches of built-in ones."""

import pytest

from dlbench.core.errors import SuiteError
from dlbench.harness.plan.suite import load, parse

OWN = '[[bench]]\nworkload = "noop"\n'


def test_included_benches_follow_its_own():
    suite = parse(f'include = ["self"]\n{OWN}', "mine.toml")
    assert suite.benches[1:] == load("self").benches
    assert suite.benches[0].workload == "noop"
    assert suite.policy == parse(OWN, "mine.toml").policy


@pytest.mark.parametrize(
    ("include", "sentence"),
    [
        ('["matmull"]', "mine.toml, include: no suite is called 'matmull'; did you mean 'matmul'?"),
        ('"matmul"', 'mine.toml, include: must be a list of built-in suites, such as ["matmul", "conv"]'),
        ("[1]", 'mine.toml, include: must be a list of built-in suites, such as ["matmul", "conv"]'),
        ("[]", "mine.toml: has no bench; add a [[bench]] with a workload and its axes"),
    ],
)
def test_what_is_no_suite_is_a_sentence(include, sentence):
    with pytest.raises(SuiteError) as error:
        parse(f"include = {include}\n", "mine.toml")
    assert str(error.value) == sentence
