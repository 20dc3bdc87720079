"""HTML of texts that come from strangers."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

_NO_SIGNS = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
"""What XML has no sign for, and what screens do not show."""
_ENDS_SCRIPTS = re.compile("<(?=/|!--)")
_JOINER = "\u2060"
"""It has no width, and keeps what it stands between from being taken for a tag."""


def escape_chart_text(value: str) -> str:
    """A text that reads the same, for charts: others write it into scripts of pages and into SVG, as it is.

    Signs that cannot be shown stand as escapes; nothing in it ends a script or begins a comment of HTML.

    >>> escape_chart_text("a\\x01b"), escape_chart_text("</script>") == "<\\u2060/script>"
    ('a\\\\x01b', True)
    """
    return _ENDS_SCRIPTS.sub("<" + _JOINER, _shown(value))


def _shown(value: str) -> str:
    return _NO_SIGNS.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), value)


def make_distinct(texts: Iterable[str]) -> list[str]:
    """The same texts; one that is there already, such as a text that reads as no value, with a mark.

    >>> make_distinct(["a", "b", "a"])
    ['a', 'b', 'a′']
    """
    found: list[str] = []
    for text in texts:
        while text in found:
            text += "′"  # noqa: PLW2901 - until it is another one
        found.append(text)
    return found


def escape_html(value: object) -> str:
    """A text as HTML shows it, in an element and in an attribute; signs that cannot be shown stand as escapes.

    >>> escape_html('<script>"a" & b</script>'), escape_html("\\x1b[2J")
    ('&lt;script&gt;&quot;a&quot; &amp; b&lt;/script&gt;', '\\\\x1b[2J')
    """
    return html.escape(_shown(str(value)), quote=True)


@dataclass(frozen=True)
class StyledText:
    """A text that is painted as its class says: our own word, and no stranger's."""

    text: str
    css: str


def html_table(
    caption: str, headings: Sequence[str], rows: Iterable[Sequence[object]], numbers: Sequence[int] = ()
) -> str:
    """A table: a caption, headings of columns, and rows whose first cell is a heading.

    >>> '<td class="fails">no</td>' in html_table("one", ["what", "verdict"], [["k", StyledText("no", "fails")]])
    True
    >>> html_table("two", ["name", "rows"], [["<b>", 1200]], numbers=[1]).count("&lt;b&gt;")
    1
    """
    styles = [' class="number"' if i in numbers else "" for i in range(len(headings))]
    head = "".join(
        f'<th scope="col"{style}>{escape_html(one)}</th>' for one, style in zip(headings, styles, strict=True)
    )
    lines = []
    for first, *rest in rows:
        cells = "".join(_data(one, style) for one, style in zip(rest, styles[1:], strict=True))
        lines.append(f'<tr><th scope="row"{styles[0]}>{_cell(first)}</th>{cells}</tr>')
    body = "\n".join(lines)
    top = f"<caption>{escape_html(caption)}</caption>\n<thead><tr>{head}</tr></thead>"
    return f"<table>{top}\n<tbody>\n{body}\n</tbody></table>"


def _data(value: object, style: str) -> str:
    if isinstance(value, StyledText):
        return f'<td class="{escape_html(value.css)}">{escape_html(value.text)}</td>'
    return f"<td{style}>{_cell(value)}</td>"


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return escape_html(f"{value:.6g}" if isinstance(value, float) else value)
