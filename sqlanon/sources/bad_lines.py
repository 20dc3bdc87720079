"""Bad lines of CSV files, which ``on_bad_line = "drop"`` leaves out: they are counted, and the rest is copied.

A record is bad where the check of lines (`csv_lines.describe_broken_lines`) says so: it has another number of fields
than the first one, or its quotes are broken; or it has a NUL byte. A quote that is not closed takes good lines with
it. So of a bad record of several lines, the first one alone is dropped if each of the others is a row by itself. Where
it is not clear which lines are bad, the file is refused.
"""

from __future__ import annotations

import csv
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import islice
from typing import NamedTuple, TextIO

from sqlanon.sources.csv_lines import SHOWN_LINES, Layout, Record, describe_record, open_reader, read_records
from sqlanon.support.notices import Notice, with_noun

_MOST_LINES = 10_000  # of a record: a quote that is closed later is taken for a stray one
_RUN_LINES = 200  # that are parsed at once, as most lines are good
_NEAR_LINES = 10  # a bad line may be a part of a row with them, if other quotes are read
_LONGEST_FIELD = 2**31 - 1  # characters: Python's own limit is shorter than that of the engine
_QUOTES = ('"', "'")
_ESCAPED_QUOTES = [(quote, "\\") for quote in _QUOTES]


class UnclearLinesError(Exception):
    """It is not clear which lines are bad; the message says why."""


@dataclass(frozen=True)
class DroppedLines:
    """What was left out of a file."""

    file: str  # its name
    count: int
    shown: Sequence[str]  # the first bad lines, and what is wrong with them
    fields: int  # of the first record, and of each good one
    rows: int  # good records below the first one
    read_lines: int | None = None  # how many lines of the file were read; None: all
    path: str = ""  # of the file

    @property
    def message(self) -> str:
        more = f", and {self.count - len(self.shown):,} more" if self.count > len(self.shown) else ""
        scope = "" if self.read_lines is None else f" of the first {self.read_lines:,} lines"
        dropped = with_noun(self.count, "bad line", "is", "are")
        return f"{self.file}: {dropped} dropped{scope}: {', '.join(self.shown)}{more}"


def count_dropped_lines(dropped: Iterable[DroppedLines]) -> int:
    return sum(file.count for file in dropped)


def warn_of_dropped_lines(dropped: Iterable[DroppedLines], section: str = "source") -> tuple[Notice, ...]:
    """A warning for each file from which lines were left out."""
    return tuple(Notice(f"{section}.csv: {file.message}", file.count) for file in dropped)


def copy_good_lines(
    lines: Iterable[str],
    layout: Layout,
    target: TextIO,
    file: str,
    is_quote_known: bool = False,
    read_lines: int | None = None,
    run_lines: int = _RUN_LINES,
) -> DroppedLines:
    """Write the lines of a file but for the bad ones, with titles, blank lines and comments; as a stream.

    Runs of good lines are found at once, of up to ``run_lines``. Of 0, each record is parsed by itself: the result is
    the same.

    Raises
    ------
    UnclearLinesError
        It is not clear which lines are bad.
    """
    expected, rows, count, shown, opened = 0, 0, 0, list[str](), iter(lines)
    for piece in _read_pieces(islice(opened, read_lines), layout, is_quote_known, read_lines, run_lines):
        if piece.flaw is None:
            target.writelines(piece.lines)
            rows += piece.rows
            expected = expected or (0 if piece.record is None else len(piece.record.fields))
        else:
            count += 1
            if len(shown) < SHOWN_LINES:
                shown.append(f"line {piece.line:,} {piece.flaw}")
    is_cut = read_lines is not None and next(opened, None) is not None
    return DroppedLines(file, count, shown, expected, max(rows - 1, 0), read_lines if is_cut else None)


def read_good_records(lines: Iterable[str], layout: Layout, is_quote_known: bool = False) -> Iterator[Record]:
    """The records of a file that are not dropped, with their lines in the file."""
    for piece in _read_pieces(lines, layout, is_quote_known):
        if piece.flaw is None and piece.record is not None:
            yield replace(piece.record, line=piece.line)


@dataclass(frozen=True)
class _Piece:
    """Lines of a file: a record; or a title, a blank line or a comment; or a run of good records and blank lines."""

    line: int  # the first of them
    lines: Sequence[str]
    rows: int = 0  # good records
    record: Record | None = None  # none of a run
    flaw: str | None = None  # of a bad record


def _read_pieces(
    lines: Iterable[str], layout: Layout, is_quote_known: bool, read_lines: int | None = None, run_lines: int = 0
) -> Iterator[_Piece]:
    """A file piece by piece; of so many lines, the last record is left out if it is bad: it may go on behind them."""
    feed, expected, near = _Feed(lines), 0, deque[_Line](maxlen=_NEAR_LINES)
    for title in islice(feed, layout.skip):
        yield _Piece(feed.line, [title])
    for line, taken, record in _records(feed, layout):
        if record is None or (layout.comment and taken[0].startswith(layout.comment)):
            piece = _Piece(line, taken)
        elif not expected:
            if record.is_broken:
                raise UnclearLinesError(f"the first line of the table (line {line:,}) {describe_record(record)}")
            expected = len(record.fields)
            piece = _Piece(line, taken, 1, record)
        elif _is_good(record, expected):
            piece = _Piece(line, taken, 1, record)
        elif feed.line == read_lines:
            return
        else:
            bad = _bad_lines(line, taken, record, expected, layout)
            feed.put_back(taken[len(bad) :])
            flaw = describe_record(record if bad == taken else replace(record, fields=(), is_broken=True))
            piece = _Piece(line, bad, 0, record, "has a NUL byte" if any("\0" in text for text in bad) else flaw)
        near.extend(_numbered_lines(piece))
        has_bad = not is_quote_known and any(line.is_bad for line in near)
        if has_bad:
            _refuse_other_quotes(piece, near, expected, layout)
        yield piece
        if expected and not has_bad and (run := feed.take(run_lines)):
            count, rows = _count_good_lines(run, layout, expected)
            feed.put_back(run[count:])
            piece = _Piece(feed.line - count + 1, run[:count], rows)
            near.extend(_numbered_lines(piece))
            yield piece


class _Line(NamedTuple):
    number: int
    text: str
    is_bad: bool


def _numbered_lines(piece: _Piece) -> list[_Line]:
    """The last lines of a piece."""
    numbered = list(enumerate(piece.lines, piece.line))[-_NEAR_LINES:]
    return [_Line(number, text, piece.flaw is not None) for number, text in numbered]


class _Feed:
    """Lines that can be put back; ``line`` is the number of the last one that was taken."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._lines, self._returned, self.line = iter(lines), list[str](), 0

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = self._returned.pop() if self._returned else next(self._lines)
        self.line += 1
        return line

    def take(self, count: int) -> list[str]:
        """The next lines, up to so many."""
        lines = [self._returned.pop() for _ in range(min(count, len(self._returned)))]
        lines += islice(self._lines, count - len(lines))
        self.line += len(lines)
        return lines

    def put_back(self, lines: Sequence[str]) -> None:
        self._returned += reversed(lines)
        self.line -= len(lines)


def _records(feed: _Feed, layout: Layout) -> Iterator[tuple[int, Sequence[str], Record | None]]:
    """The number of the first line of each record, its lines, and what they say; None: a blank line."""
    marks = {layout.quote, layout.escape, "\0"} - {""}
    for first in feed:
        line, taken = feed.line, [first]
        if not any(mark in first for mark in marks):  # most lines: no parser is needed
            text = first.rstrip("\r\n")
            yield line, taken, Record(line, text.split(layout.delimiter)) if text else None
            continue
        if not layout.quote or layout.quote not in first:
            yield line, taken, _parse(taken, layout)
            continue

        def more(taken: list[str] = taken) -> Iterator[str]:
            yield taken[0]
            for other in islice(feed, _MOST_LINES):
                taken.append(other)
                yield other

        yield line, taken, _parse(more(), layout, taken)


def _count_good_lines(lines: Sequence[str], layout: Layout, expected: int) -> tuple[int, int]:
    """How many of the first lines are good records or blank, and how many records these are."""
    count, rows = 0, 0
    reader = open_reader(lines, layout.delimiter, layout.quote, layout.escape)
    with _long_fields(), suppress(csv.Error):
        for fields in reader:
            taken = lines[count : reader.line_num]
            is_comment = layout.comment and taken[0].startswith(layout.comment)
            has_escaped_end = len(taken) > 1 and not (layout.quote and layout.quote in taken[0])
            if is_comment or has_escaped_end or "\0" in "".join(taken) or (fields and len(fields) != expected):
                break
            count, rows = reader.line_num, rows + bool(fields)
    return count, rows


def _parse(lines: Iterable[str], layout: Layout, taken: Sequence[str] = ()) -> Record | None:
    """The first record of some lines; of lines that are taken one by one, ``taken`` has those that it took."""
    with _long_fields():
        record = next(read_records(lines, layout.delimiter, layout.quote, layout.escape), None)
    own = taken or lines
    has_null = record is not None and any("\0" in line for line in own)
    return replace(record, fields=(), is_broken=True) if record is not None and has_null else record


def _is_good(record: Record, expected: int) -> bool:
    return not record.is_broken and len(record.fields) == expected


def _bad_lines(line: int, taken: Sequence[str], record: Record, expected: int, layout: Layout) -> Sequence[str]:
    """Which lines of a bad record are bad: all, or the first one alone where the lines below it are rows."""
    if len(taken) == 1:
        return taken
    below = [(other, _parse([other], layout)) for other in taken[1:]]
    are_rows = [other is not None and _is_good(other, expected) for _, other in below]
    if not record.is_broken and expected > 1 and not any(are_rows):
        return taken
    are_paired = [text.count(layout.quote) % 2 == 0 for text, _ in below]
    are_inner_rows = all(
        is_paired and (is_row or other is None)
        for (_, other), is_row, is_paired in zip(below[:-1], are_rows, are_paired, strict=False)
    )
    if expected > 1 and taken[0].count(layout.quote) % 2 and are_inner_rows and are_rows[-1] == are_paired[-1]:
        return taken[:1]
    if expected == 1 or any(are_rows):
        raise UnclearLinesError(
            f"line {line:,} begins a record of {len(taken):,} lines that {describe_record(record)}, and some of these "
            "lines may be rows; correct its quotes"
        )
    return taken


def _refuse_other_quotes(piece: _Piece, near: Iterable[_Line], expected: int, layout: Layout) -> None:
    """Refuse to drop lines that are a good row, or a part of one with lines near them, where other quotes, or a
    backslash before quotes, are read."""
    alone = _numbered_lines(piece) if piece.flaw is not None else []
    for part, lines in (("a row", alone), ("a part of a row", list(near))):
        for quote, escape in (*((quote, "") for quote in _QUOTES if quote != layout.quote), *_ESCAPED_QUOTES):
            if any(f"{escape}{quote}" in line for line in piece.lines):
                number = _find_bad_line_in_row(lines, expected, layout.delimiter, quote, escape)
                if number is not None:
                    quotes = f"quotes are {quote}" + (" with a backslash before them in values" if escape else "")
                    raise UnclearLinesError(
                        f"line {number:,} is {part} where {quotes}, and a bad line where they are "
                        f"{layout.quote or 'none'} alone; set quote under [source.csv], or correct the line"
                    )


def _find_bad_line_in_row(lines: Sequence[_Line], expected: int, delimiter: str, quote: str, escape: str) -> int | None:
    """The first bad line of a good row that has quotes, as some lines are read."""
    records = list(read_records([line.text for line in lines], delimiter, quote, escape))
    ends = [*(record.line - 1 for record in records[1:]), len(lines)]
    for record, end in zip(records, ends, strict=False):
        row = lines[record.line - 1 : end]
        bad = [line.number for line in row if line.is_bad]
        text = "".join(line.text for line in row)
        is_quoted = f"{escape}{quote}" in text if escape else text.startswith(quote) or f"{delimiter}{quote}" in text
        if bad and is_quoted and "\0" not in text and _is_good(record, expected):
            return bad[0]
    return None


@contextmanager
def _long_fields() -> Iterator[None]:
    limit = csv.field_size_limit(_LONGEST_FIELD)
    try:
        yield
    finally:
        csv.field_size_limit(limit)
