"""The ``-k`` expression over case ids: words joined by ``and``, ``or``, ``not`` and parentheses, as in pytest."""

import re
from collections import deque
from collections.abc import Callable

from dlbench.core.errors import UsageError

Matcher = Callable[[str], bool]

_TOKEN = re.compile(r"\s*([\w.:@\[\],=+-]+|[()])")
_OPERATORS = ("and", "or", "not")
_END = ""

_MAX_DEPTH = 100
"""Parentheses and ``not`` within each other: far more than a person writes, far less than Python's stack."""


def compile_expression(text: str) -> Matcher:
    """Return a function that says of a case's id whether the expression selects it.

    A word selects the ids that contain it, whatever the case of the letters; ``not`` binds before ``and``, and ``and`` before ``or``.
    Raises UsageError that names the column.
    """
    matcher = _Parser(text).parse()
    return lambda case_id: matcher(case_id.lower())


class _Parser:
    """Recursive descent, one method a level of the grammar; matchers see ids in small letters."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = deque(_tokens(text))

    def parse(self) -> Matcher:
        matcher = self._disjunction(0)
        if not self._take(_END):
            raise self._error("'and', 'or' or the end")
        return matcher

    def _disjunction(self, depth: int) -> Matcher:
        terms = [self._conjunction(depth)]
        while self._take("or"):
            terms.append(self._conjunction(depth))
        return lambda case_id: any(term(case_id) for term in terms)

    def _conjunction(self, depth: int) -> Matcher:
        terms = [self._term(depth)]
        while self._take("and"):
            terms.append(self._term(depth))
        return lambda case_id: all(term(case_id) for term in terms)

    def _term(self, depth: int) -> Matcher:
        if depth > _MAX_DEPTH:
            raise self._error("less nesting")
        if self._take("not"):
            term = self._term(depth + 1)
            return lambda case_id: not term(case_id)
        if self._take("("):
            inside = self._disjunction(depth + 1)
            if not self._take(")"):
                raise self._error("'and', 'or' or ')'")
            return inside
        token, _ = self._tokens[0]
        if token in (*_OPERATORS, ")", _END):
            raise self._error("a word, 'not' or '('")
        self._tokens.popleft()
        word = token.lower()
        return lambda case_id: word in case_id

    def _take(self, wanted: str) -> bool:
        token, _ = self._tokens[0]
        if token == wanted:
            self._tokens.popleft()
        return token == wanted

    def _error(self, wanted: str) -> UsageError:
        token, column = self._tokens[0]
        got = "the end of the expression" if token == _END else f"'{token}'"
        return UsageError(f"-k '{self._text}', column {column}: expected {wanted}, got {got}")


def _tokens(text: str) -> list[tuple[str, int]]:
    """Split into (token, column from 1), the end the last of them."""
    tokens, position, end = [], 0, len(text.rstrip())
    while position < end:
        match = _TOKEN.match(text, position)
        if match is None:
            column = len(text) - len(text[position:].lstrip()) + 1
            allowed = "letters, digits and _=.:@[],-+"
            raise UsageError(f"-k '{text}', column {column}: '{text[column - 1]}' can't stand in a word; words are {allowed}")
        tokens.append((match[1], match.start(1) + 1))
        position = match.end()
    return [*tokens, (_END, len(text) + 1)]
