"""The ``-k`` expression over case ids: words joined by ``and``, ``or``, ``not`` and parentheses, as in pytest."""

import ast
import re
from collections.abc import Callable

from dlbench.core.errors import UsageError

Matcher = Callable[[str], bool]

_WORD = re.compile(r"[\w.:@\[\],=+/-]+")
_MAX_DEPTH = 100
"""Parentheses and ``not`` within each other: far more than a person writes, far less than Python's stack."""


def compile_expression(text: str) -> Matcher:
    """Return a function that says of a case's id whether the expression selects it.

    A word selects the ids that contain it, whatever the case of the letters; ``not`` binds before ``and``, and ``and`` before ``or``.
    Raises UsageError that names the column.
    """
    # Python's own grammar, with a name in place of each word that is as long, so that columns stay those of the text.
    named = _WORD.sub(lambda word: word[0] if word[0] in ("and", "or", "not") else "_" * len(word[0]), re.sub(r"\s", " ", text))
    begun = named.lstrip()
    try:
        matcher = _matcher(ast.parse(begun, mode="eval").body, text[len(text) - len(begun) :], 0)
    except (SyntaxError, MemoryError, RecursionError, ValueError) as error:  # ValueError: a null byte
        column = len(text) - len(begun) + (getattr(error, "offset", None) or len(begun) + 1)
        rule = "words are joined by 'and', 'or', 'not' and parentheses, and have letters, digits and _=.:@[],-+/"
        raise UsageError(f"-k '{text}', column {column}: {rule}") from error
    return lambda case_id: matcher(case_id.lower())


def _matcher(node: ast.expr, text: str, depth: int) -> Matcher:
    """Return what a part of the expression selects, of ids in small letters. Raises SyntaxError for one that Python alone knows."""
    match node:
        case ast.BoolOp(op, values) if depth <= _MAX_DEPTH:
            terms, decide = [_matcher(value, text, depth + 1) for value in values], any if isinstance(op, ast.Or) else all
            return lambda case_id: decide(term(case_id) for term in terms)
        case ast.UnaryOp(ast.Not(), operand) if depth <= _MAX_DEPTH:
            inner = _matcher(operand, text, depth + 1)
            return lambda case_id: not inner(case_id)
        case ast.Name():
            word = text[node.col_offset : node.end_col_offset].lower()
            return lambda case_id: word in case_id
    raise SyntaxError("", ("", 1, node.col_offset + 1, ""))
