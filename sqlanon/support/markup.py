"""HTML from untrusted texts."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

_UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
"""Characters that XML lacks or that screens do not show."""
_ENDS_SCRIPTS = re.compile("<(?=/|!--)")
_JOINER = "\u2060"
"""A character without width that keeps the characters around it from forming a tag."""


def escape_chart_text(value: str) -> str:
    """Escape a text for charts, whose libraries write it unescaped into scripts and SVG.

    Unprintable characters become escapes; nothing in the text ends a script or begins an HTML comment.

    >>> escape_chart_text("a\\x01b"), escape_chart_text("</script>") == "<\\u2060/script>"
    ('a\\\\x01b', True)
    """
    return _ENDS_SCRIPTS.sub("<" + _JOINER, _escape_unprintable(value))


def _escape_unprintable(value: str) -> str:
    return _UNPRINTABLE.sub(lambda match: match[0].encode("unicode_escape").decode("ascii"), value)


def make_distinct(texts: Iterable[str]) -> list[str]:
    """Make texts distinct by adding a mark to repeated ones.

    >>> make_distinct(["a", "b", "a"])
    ['a', 'b', 'a′']
    """
    distinct: list[str] = []
    for text in texts:
        while text in distinct:
            text += "′"  # noqa: PLW2901
        distinct.append(text)
    return distinct


def escape_html(value: object) -> str:
    """Escape a text for HTML elements and attributes; unprintable characters become escapes.

    >>> escape_html('<script>"a" & b</script>'), escape_html("\\x1b[2J")
    ('&lt;script&gt;&quot;a&quot; &amp; b&lt;/script&gt;', '\\\\x1b[2J')
    """
    return html.escape(_escape_unprintable(str(value)), quote=True)


@dataclass(frozen=True)
class StyledText:
    """A trusted text with the CSS class of its cell."""

    text: str
    css: str


def html_table(
    caption: str, headings: Sequence[str], rows: Iterable[Sequence[object]], numbers: Sequence[int] = ()
) -> str:
    """An HTML table with a caption, column headings, and rows whose first cell is a heading.

    >>> '<td class="fails">no</td>' in html_table("one", ["what", "verdict"], [["k", StyledText("no", "fails")]])
    True
    >>> html_table("two", ["name", "rows"], [["<b>", 1200]], numbers=[1]).count("&lt;b&gt;")
    1
    """
    styles = [' class="number"' if i in numbers else "" for i in range(len(headings))]
    head = "".join(
        f'<th scope="col"{style}>{escape_html(heading)}</th>' for heading, style in zip(headings, styles, strict=True)
    )
    lines = []
    for first, *cells in rows:
        data = "".join(_data(cell, style) for cell, style in zip(cells, styles[1:], strict=True))
        lines.append(f'<tr><th scope="row"{styles[0]}>{_cell(first)}</th>{data}</tr>')
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
