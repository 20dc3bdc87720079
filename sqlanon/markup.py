"""HTML of texts that come from strangers."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


def escaped(value: object) -> str:
    """A text as HTML shows it, in an element and in an attribute.

    >>> escaped('<script>"a" & b</script>')
    '&lt;script&gt;&quot;a&quot; &amp; b&lt;/script&gt;'
    """
    return html.escape(str(value), quote=True)


@dataclass(frozen=True)
class Marked:
    """A text that is painted as its class says: our own word, and no stranger's."""

    text: str
    css: str


def html_table(
    caption: str, headings: Sequence[str], rows: Iterable[Sequence[object]], numbers: Sequence[int] = ()
) -> str:
    """A table: a caption, headings of columns, and rows whose first cell is a heading.

    Parameters
    ----------
    caption, headings, rows:
        Texts, and what becomes a text; all are escaped. Numbers get commas. `Marked` ones get their class.
    numbers:
        The columns that are aligned to the right.

    >>> '<td class="fails">no</td>' in html_table("one", ["what", "verdict"], [["k", Marked("no", "fails")]])
    True
    >>> html_table("two", ["name", "rows"], [["<b>", 1200]], numbers=[1]).count("&lt;b&gt;")
    1
    """
    styles = [' class="number"' if i in numbers else "" for i in range(len(headings))]
    head = "".join(f'<th scope="col"{style}>{escaped(one)}</th>' for one, style in zip(headings, styles, strict=True))
    lines = []
    for first, *rest in rows:
        cells = "".join(_data(one, style) for one, style in zip(rest, styles[1:], strict=True))
        lines.append(f'<tr><th scope="row"{styles[0]}>{_cell(first)}</th>{cells}</tr>')
    body = "\n".join(lines)
    top = f"<caption>{escaped(caption)}</caption>\n<thead><tr>{head}</tr></thead>"
    return f"<table>{top}\n<tbody>\n{body}\n</tbody></table>"


def _data(value: object, style: str) -> str:
    if isinstance(value, Marked):
        return f'<td class="{escaped(value.css)}">{escaped(value.text)}</td>'
    return f"<td{style}>{_cell(value)}</td>"


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return escaped(f"{value:.6g}" if isinstance(value, float) else value)
