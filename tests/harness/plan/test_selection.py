"""The -k expression against an independent evaluator, and one exact sentence for each mistake."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlbench.core.errors import UsageError
from dlbench.harness.plan.suite import compile_expression

CASE = "train_step[model=resnet18,batch=8,dtype=bf16]@cuda:0"

words = st.text("abAB01_=.:@[],-", min_size=1, max_size=2)
trees = st.recursive(
    words,
    lambda inner: st.one_of(
        st.tuples(st.just("not"), inner), st.tuples(st.sampled_from(["and", "or"]), st.lists(inner, min_size=2, max_size=3))
    ),
    max_leaves=8,
)
LEVEL = {"or": 0, "and": 1, "not": 2}


def rendered(tree, level=0):
    """Write a tree with no more parentheses than it needs."""
    if isinstance(tree, str):
        return tree
    operator, operands = tree
    inner = LEVEL[operator]
    text = f"not {rendered(operands, inner)}" if operator == "not" else f" {operator} ".join(rendered(each, inner + 1) for each in operands)
    return f"({text})" if inner < level else text


def evaluated(tree, case_id):
    if isinstance(tree, str):
        return tree.lower() in case_id.lower()
    operator, operands = tree
    if operator == "not":
        return not evaluated(operands, case_id)
    return {"and": all, "or": any}[operator]([evaluated(each, case_id) for each in operands])


@given(trees, st.text("abAB01_=.:@[],-", max_size=6))
def test_it_selects_what_the_tree_says(tree, case_id):
    assert compile_expression(rendered(tree))(case_id) == evaluated(tree, case_id)


@pytest.mark.parametrize(
    ("text", "selects"),
    [
        ("resnet18", True),
        ("RESNET", True),
        ("vgg", False),
        ("not vgg", True),
        ("not not vgg", False),
        ("batch=8,dtype=bf16]@cuda:0", True),
        ("vgg or resnet and cpu", False),
        ("(vgg or resnet)and(cuda)", True),
        ("not vgg and not cpu", True),
        ("not (vgg or cuda)", False),
        ("android or ornot", False),
        ("  cuda  ", True),
        ("not " * 100 + "cuda", True),
        (" or ".join(["vgg"] * 10_000), False),
    ],
)
def test_examples(text, selects):
    assert compile_expression(text)(CASE) is selects


RULE = "words are joined by 'and', 'or', 'not' and parentheses, and have letters, digits and _=.:@[],-+/"


@pytest.mark.parametrize(
    "text", ["", "   ", "vgg and", "or vgg", "vgg resnet", "vgg)", "vgg)or(cuda", "(vgg", "()", "vgg (cuda)", "vgg*", "!x", "a if b else c"]
)
def test_a_mistake_is_one_sentence_with_its_column(text):
    with pytest.raises(UsageError) as caught:
        compile_expression(text)
    assert re.fullmatch(rf"-k '{re.escape(text)}', column \d+: {re.escape(RULE)}", str(caught.value))


@pytest.mark.parametrize(("text", "column"), [(" vgg resnet", 6), ("vgg and", 8), ("vgg (cuda)", 1), ("vgg and  !x", 10)])
def test_the_column_is_that_of_the_text(text, column):
    with pytest.raises(UsageError, match=f"column {column}: "):
        compile_expression(text)


@pytest.mark.parametrize("opening", ["(", "not "])
def test_endless_nesting_is_a_sentence(opening):
    with pytest.raises(UsageError, match="words are joined by"):
        compile_expression(opening * 100_000 + "vgg")
