"""Read pages of reports."""

from __future__ import annotations

import html.parser
import json
from collections import Counter
from pathlib import Path
from typing import Any

BUNDLE = "window.vegaEmbed = () => null;"


class Parsed(html.parser.HTMLParser):
    """A page as a browser reads it: its elements, attributes and texts, and the contents of its scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags, self.attributes, self.texts, self.scripts = (
            Counter[str](),
            list[tuple[str, str]](),
            [""],
            list[str](),
        )
        self._open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes += [(name, value or "") for name, value in attributes]
        self._open.append(tag)
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        if tag in self._open:
            while self._open.pop() != tag:
                pass

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] == "script":
            self.scripts[-1] += data
        elif not self._open or self._open[-1] != "style":
            self.texts.append(data)

    @property
    def text(self) -> str:
        return "".join(self.texts)

    @property
    def charts(self) -> dict[str, Any]:
        charts: dict[str, Any] = json.loads(self.scripts[0])
        return charts


def read(path: Path) -> Parsed:
    return Parsed(path.read_text(encoding="utf-8"))


HOSTILE = [
    "<script>alert(1)</script>", "</script><img src=x onerror=alert(2)>", "${alert(3)}", "javascript:alert(4)",
    "a\"b'c`d", "datum['x'] + alert(5)", "<!--", "]]>", "&lt;b&gt;", "\u2028\u202e{{7*7}}", "\\u003cscript", "=1+1",
]  # fmt: skip


ALLOWED = {
    *("html", "head", "meta", "title", "style", "script", "noscript", "body", "header", "section", "footer"),
    *("h1", "h2", "h3", "p", "div", "ul", "li", "dl", "dt", "dd", "pre", "code", "details", "summary"),
    *("table", "caption", "thead", "tbody", "tr", "th", "td", "figure", "figcaption"),
    *("nav", "main", "a", "ol", "strong", "form", "label", "input", "output", "button", "span"),
}
