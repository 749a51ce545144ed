"""The ``-k`` expression over case ids: words joined by ``and``, ``or``, ``not`` and parentheses, as in pytest."""

import re
from collections.abc import Callable

from dlbench.core.errors import UsageError

Matcher = Callable[[str], bool]

_TOKEN = re.compile(r"\s*(?:(?P<word>[\w.:@\[\],=+-]+)|(?P<parenthesis>[()]))")
_OPERATORS = ("and", "or", "not")

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
        self._tokens = _tokens(text)
        self._next = 0

    def parse(self) -> Matcher:
        matcher = self._disjunction(0)
        if self._next < len(self._tokens):
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
        if self._next == len(self._tokens) or self._tokens[self._next][0] in (*_OPERATORS, ")"):
            raise self._error("a word, 'not' or '('")
        word = self._tokens[self._next][0].lower()
        self._next += 1
        return lambda case_id: word in case_id

    def _take(self, token: str) -> bool:
        if self._next < len(self._tokens) and self._tokens[self._next][0] == token:
            self._next += 1
            return True
        return False

    def _error(self, wanted: str) -> UsageError:
        if self._next == len(self._tokens):
            return UsageError(f"-k '{self._text}', column {len(self._text) + 1}: expected {wanted}, got the end of the expression")
        token, column = self._tokens[self._next]
        return UsageError(f"-k '{self._text}', column {column}: expected {wanted}, got '{token}'")


def _tokens(text: str) -> list[tuple[str, int]]:
    """Split into (token, column from 1)."""
    tokens, position, end = [], 0, len(text.rstrip())
    while position < end:
        match = _TOKEN.match(text, position)
        if match is None:
            column = position + len(text[position:]) - len(text[position:].lstrip()) + 1
            allowed = "letters, digits and _=.:@[],-+"
            raise UsageError(f"-k '{text}', column {column}: '{text[column - 1]}' can't stand in a word; words are {allowed}")
        tokens.append((match[0].lstrip(), match.end() - len(match[0].lstrip()) + 1))
        position = match.end()
    return tokens
