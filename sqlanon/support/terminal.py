"""Print lines, tables and bars: formatted on a terminal, plain in a pipe.

Names and labels are untrusted: they are printed without interpreting markup, and control characters are escaped.
"""

from __future__ import annotations

import re
import shutil
import sys
import textwrap
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table

_BAR = 30
"""Maximum length of a bar, which fits into 60 columns with its label and figure."""

# Control characters, line and paragraph separators, directional marks, and surrogates.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_NUMBER = re.compile(r"<?[-+]?[\d.,]+(e[-+]?\d+)?(-[\d,]+)?( %)?( \(.*\))?|inf|nan|")


def make_printable(text: str) -> str:
    r"""Escape control characters, so that a text is on one line and cannot control the terminal.

    >>> print(make_printable("\x1b[31mred\n[bold]é"))
    \x1b[31mred\n[bold]é
    """
    return _CONTROL.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def print_lines(text: str, *, err: bool = False) -> None:
    """Print lines on stdout or stderr; on a terminal, wrap them at words."""
    stream = sys.stderr if err else sys.stdout
    lines = [make_printable(line) for line in text.split("\n")]
    if stream and stream.isatty():
        lines = [part for line in lines for part in _wrap_line(line, shutil.get_terminal_size().columns)]
    print("\n".join(lines), file=stream)


def _wrap_line(line: str, width: int) -> list[str]:
    if _width(line) <= width:
        return [line]
    text = re.sub("^ *(- )?", "", line)
    indent = " " * (len(line) - len(text))
    return textwrap.wrap(
        line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False, replace_whitespace=False
    )


def print_sql(text: str) -> None:
    """Print a text for programs, such as SQL, unchanged; on a terminal, escape control characters."""
    if sys.stdout and sys.stdout.isatty():
        # Tabs are harmless, and statements are not wrapped.
        print("\n".join(map(make_printable, text.expandtabs(4).rstrip("\n").split("\n"))))
    else:
        print(text.rstrip("\n"))


def escape_unencodable_output() -> None:
    """Make stdout and stderr escape characters that their encoding lacks, instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and hasattr(stream, "reconfigure"):  # else a caller replaced it
            stream.reconfigure(errors="backslashreplace")


def is_unicode_output() -> bool:
    return "utf" in (getattr(sys.stdout, "encoding", None) or "").lower()


def format_percent(part: float, whole: float) -> str:
    """A share as a percentage with three digits; empty if the whole is 0.

    >>> format_percent(1346, 30162), format_percent(1, 3), format_percent(0, 0)
    ('4.46 %', '33.3 %', '')
    """
    return f"{100 * part / whole:.3g} %" if whole else ""


def format_figure(value: float) -> str:
    """A figure with three digits; whole thousands with commas.

    >>> format_figure(0.0239431), format_figure(12345.6), format_figure(0.4), format_figure(1e-7)
    ('0.0239', '12,346', '0.4', '1e-07')
    """
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def print_table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table: with rules and as wide as the terminal, or in plain aligned columns.

    Columns of numbers are aligned to the right.
    """
    heads = [make_printable(head) for head in headers]
    cells = [[make_printable(cell) for cell in row] for row in rows]
    right = [
        all(_NUMBER.fullmatch(row[i]) for row in cells) and any(row[i] for row in cells) for i in range(len(heads))
    ]
    if sys.stdout and sys.stdout.isatty():
        _print_rich(_build_rich_table(heads, cells, right))
    else:
        print("\n".join(_align_columns(heads, cells, right)))


def print_bars(headers: tuple[str, str], bars: Mapping[str, int]) -> None:
    """Print counts with bars, whose lengths are relative to the greatest count."""
    greatest = max(bars.values(), default=0)
    mark = "█" if sys.stdout and sys.stdout.isatty() and is_unicode_output() else "#"
    lengths = {name: -(-_BAR * count // greatest) if greatest else 0 for name, count in bars.items()}
    print_table([*headers, ""], [(name, f"{count:,}", mark * lengths[name]) for name, count in bars.items()])


def _align_columns(headers: list[str], rows: list[list[str]], right: list[bool]) -> list[str]:
    widths = [max(map(_width, column)) for column in zip(headers, *rows, strict=True)]

    def line(cells: list[str]) -> str:
        blanks = [" " * (width - _width(cell)) for cell, width in zip(cells, widths, strict=True)]
        padded = [b + c if r else c + b for c, b, r in zip(cells, blanks, right, strict=True)]
        return "  ".join(padded).rstrip()

    return [line(headers), *map(line, rows)]


def _width(text: str) -> int:
    """The approximate width of a text in terminal columns: wide characters take two, combining ones none."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text
    )


def _build_rich_table(headers: list[str], rows: list[list[str]], right: list[bool]) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="bold")
    for header, is_number in zip(headers, right, strict=True):
        table.add_column(Text(header), justify="right" if is_number else "left", overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    return table


def _print_rich(table: Table) -> None:
    from rich.console import Console

    console = Console(highlight=False, markup=False, emoji=False)
    with console.capture() as capture:
        console.print(table)
    print(capture.get(), end="")
