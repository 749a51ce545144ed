"""A page of HTML as a browser takes it apart."""

from html.parser import HTMLParser

VOID = {"meta", "link", "br"}


class Page(HTMLParser):
    """A page as a browser takes it apart: its tags, and the text below each."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self.unfolded: list[tuple[str, dict[str, str | None]]] = []
        """The tags outside of all that is folded away."""
        self._open: list[str] = []
        self.feed(html)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if "details" not in self._open:
            self.unfolded.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)
            self.texts.append((tag, ""))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts += [(self._open[-1], data)] if self._open else []

    def all(self, *names: str) -> list[str]:
        """The texts right below these tags, in their order."""
        return [text.strip() for tag, text in self.texts if tag in names and text.strip()]

    def contents(self, name: str) -> list[dict[str, str | None]]:
        return [attributes for tag, attributes in self.tags if tag == name]

    @property
    def policy(self) -> str:
        (found,) = (each["content"] for each in self.contents("meta") if each.get("http-equiv") == "Content-Security-Policy")
        return found or ""
