"""Answers as a line each, on a screen of any width."""

from collections.abc import Container, Iterator, Mapping, Sequence
from types import MappingProxyType

from dlbench.analysis.answers.parts.base import Answer, Missing
from dlbench.analysis.answers.parts.headline import DOUBTS, EXPLANATIONS, Tag, cut

TOPIC_WIDTH = 12
"""Columns of the topic, with the gap behind it."""
_WITH_QUALIFIERS = 100
_WITH_TAGS = 60
"""Columns of a screen from which on a line has them."""


def lines(found: Sequence[Answer | Missing], width: int, shared: Container[str] = ()) -> list[tuple[str, str]]:
    """Return topic and text for each question, together at most as wide as the screen where that is wider than a topic.

    From 100 columns on qualifiers are shown, from 60 on tags, without those that all cases have (``shared``). Doubts stay
    at any width, or the worst run would have the cleanest lines. A line that is too long gives up its alignment, then tags from the last
    on, which `explanations` tell all the same, down to the last doubt, then the qualifier with the interval whose case that names, then
    the doubts; at last it is cut at a word.
    """
    everywhere = [tag for tag in Tag if tag in shared and tag not in DOUBTS]
    room = max(1, width - TOPIC_WIDTH)
    pad = max((len(each.headline) for each in found), default=0) if width >= _WITH_QUALIFIERS else 0

    def line(each: Answer | Missing) -> str:
        texts = list(_texts(each, width, pad, everywhere))
        return next((text for text in texts if len(text) <= room), cut(texts[-1], room))

    return [(each.question.topic, line(each)) for each in found]


def _texts(found: Answer | Missing, width: int, pad: int, everywhere: Sequence[Tag]) -> Iterator[str]:
    """Yield what a line may say, the most first."""
    known = found.tags if isinstance(found, Answer) else ()
    tags = [tag for tag in known if tag not in everywhere and (width >= _WITH_TAGS or tag in DOUBTS)]
    doubts = max((at for at, tag in enumerate(tags, 1) if tag in DOUBTS), default=0)
    shown = [", ".join(tags[:count]) for count in range(len(tags), -1, -1)]
    if isinstance(found, Missing) or width >= _WITH_QUALIFIERS:
        kept = shown[: len(shown) - doubts]
        yield from (_joined(found.headline.ljust(wide), found.qualifier, each) for each in kept for wide in (pad, 0))
    if isinstance(found, Answer):
        bare = found.headline.replace(found.interval, "", 1) if found.qualifier else found.headline
        yield from (_joined(bare, each) for each in shown)


def _joined(*parts: str) -> str:
    return "  ".join(filter(None, parts)).rstrip()


def explanations(
    found: Sequence[Answer | Missing], marks: Mapping[str, str] = MappingProxyType({}), shared: Container[str] = ()
) -> list[str]:
    """Return a line for each tag of the answers, and for each of the ``marks`` of cases: whose it is, its meaning, and what to do about it.

    ``shared``: marks that all cases have.
    """
    answers = [each for each in found if isinstance(each, Answer)]
    told: dict[str, str] = {tag: EXPLANATIONS[tag] for tag in Tag if tag in marks or any(tag in each.tags for each in answers)}

    def whose(mark: str) -> str:
        of = ["all cases"] if mark in shared else [each.question.topic for each in answers if mark in each.tags]
        return f" ({', '.join(of)})" if of else ""

    return [f"{mark}{whose(mark)}: {meaning}" for mark, meaning in (told | dict(marks)).items()]
