"""Drop bad lines of CSV files, for ``on_bad_line = "drop"``: count them, and copy the others.

A record is bad where `csv_lines.describe_broken_lines` reports it: its number of fields differs from the first record,
or its quotes are broken; or it has a NUL byte. An unclosed quote takes good lines with it. So if each other line of a
bad record is a row by itself, only the first line is dropped. Where it is not clear which lines are bad, the file is
refused.
"""

from __future__ import annotations

import csv
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import islice
from typing import NamedTuple, TextIO

from sqlanon.sources.files.csv_lines import MAX_EXAMPLES, Layout, Record, describe_record, open_reader, read_records
from sqlanon.support.notices import Notice, count_noun

_MAX_RECORD_LINES = 10_000  # a quote that is closed later is a stray one
_RUN_LINES = 200  # parsed at once, as most lines are good
_NEARBY_LINES = 10  # with other quotes, a bad line may belong to a row with them
_MAX_FIELD_LENGTH = 2**31 - 1  # Python's own limit is shorter than the engine's
_QUOTES = ('"', "'")
_ESCAPED_QUOTES = [(quote, "\\") for quote in _QUOTES]


class UnclearLinesError(Exception):
    """It is not clear which lines are bad; the message says why."""


@dataclass(frozen=True)
class DroppedLines:
    """The bad lines that were dropped from a file."""

    file: str  # its name
    count: int
    examples: Sequence[str]  # the first bad lines, with their flaws
    fields: int  # the number of fields of the first record, and of each good one
    rows: int  # good records below the first one
    read_lines: int | None = None  # the number of lines that were read; None: all
    path: str = ""

    @property
    def message(self) -> str:
        more = f", and {self.count - len(self.examples):,} more" if self.count > len(self.examples) else ""
        scope = "" if self.read_lines is None else f" of the first {self.read_lines:,} lines"
        count = count_noun(self.count, "bad line", "is", "are")
        return f"{self.file}: {count} dropped{scope}: {', '.join(self.examples)}{more}"


def count_dropped_lines(files: Iterable[DroppedLines]) -> int:
    return sum(file.count for file in files)


def warn_of_dropped_lines(files: Iterable[DroppedLines], section: str = "source") -> tuple[Notice, ...]:
    """Warn about each file from which lines were dropped."""
    return tuple(Notice(f"{section}.csv: {file.message}", file.count) for file in files)


def copy_good_lines(
    lines: Iterable[str],
    layout: Layout,
    target: TextIO,
    file: str,
    has_given_quote: bool = False,
    read_lines: int | None = None,
    run_lines: int = _RUN_LINES,
) -> DroppedLines:
    """Copy the lines of a file without the bad ones, with titles, blank lines and comments, as a stream.

    Runs of up to ``run_lines`` good lines are parsed at once; with 0, each record is parsed by itself, with the same
    result.

    Raises
    ------
    UnclearLinesError
        It is not clear which lines are bad.
    """
    fields, rows, count, examples, remaining = 0, 0, 0, list[str](), iter(lines)
    for piece in _read_pieces(islice(remaining, read_lines), layout, has_given_quote, read_lines, run_lines):
        if piece.flaw is None:
            target.writelines(piece.lines)
            rows += piece.rows
            fields = fields or (0 if piece.record is None else len(piece.record.fields))
        else:
            count += 1
            if len(examples) < MAX_EXAMPLES:
                examples.append(f"line {piece.line:,} {piece.flaw}")
    is_cut = read_lines is not None and next(remaining, None) is not None
    return DroppedLines(file, count, examples, fields, max(rows - 1, 0), read_lines if is_cut else None)


def read_good_records(lines: Iterable[str], layout: Layout, has_given_quote: bool = False) -> Iterator[Record]:
    """Read the records of a file that are not dropped, with their lines in the file."""
    for piece in _read_pieces(lines, layout, has_given_quote):
        if piece.flaw is None and piece.record is not None:
            yield replace(piece.record, line=piece.line)


@dataclass(frozen=True)
class _Piece:
    """Lines of a file: a record, a title, a blank line, a comment, or a run of good records and blank lines."""

    line: int  # the first of them
    lines: Sequence[str]
    rows: int = 0  # good records
    record: Record | None = None  # None for a run
    flaw: str | None = None  # the flaw of a bad record

    def last_lines(self) -> list[_Line]:
        numbered = list(enumerate(self.lines, self.line))[-_NEARBY_LINES:]
        return [_Line(number, text, self.flaw is not None) for number, text in numbered]


class _Line(NamedTuple):
    number: int
    text: str
    is_bad: bool


class _Feed:
    """Lines that can be put back; ``line`` is the number of the last line that was taken."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._lines, self._returned, self.line = iter(lines), list[str](), 0

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = self._returned.pop() if self._returned else next(self._lines)
        self.line += 1
        return line

    def take(self, limit: int) -> list[str]:
        """Take up to ``limit`` lines."""
        lines = [self._returned.pop() for _ in range(min(limit, len(self._returned)))]
        lines += islice(self._lines, limit - len(lines))
        self.line += len(lines)
        return lines

    def put_back(self, lines: Sequence[str]) -> None:
        self._returned += reversed(lines)
        self.line -= len(lines)


def _read_pieces(
    lines: Iterable[str], layout: Layout, has_given_quote: bool, read_lines: int | None = None, run_lines: int = 0
) -> Iterator[_Piece]:
    """Read a file piece by piece. A bad record that ends at line ``read_lines`` is omitted: it may continue."""
    feed, fields, nearby = _Feed(lines), 0, deque[_Line](maxlen=_NEARBY_LINES)
    for title in islice(feed, layout.skip):
        yield _Piece(feed.line, [title])
    for line, record_lines, record in _read_records(feed, layout):
        if record is None or (layout.comment and record_lines[0].startswith(layout.comment)):
            piece = _Piece(line, record_lines)
        elif not fields:
            if record.is_broken:
                raise UnclearLinesError(f"the first line of the table (line {line:,}) {describe_record(record)}")
            fields = len(record.fields)
            piece = _Piece(line, record_lines, 1, record)
        elif _is_good(record, fields):
            piece = _Piece(line, record_lines, 1, record)
        elif feed.line == read_lines:
            return
        else:
            bad_lines = _choose_bad_lines(line, record_lines, record, fields, layout)
            feed.put_back(record_lines[len(bad_lines) :])
            is_whole = bad_lines == record_lines
            flaw = describe_record(record if is_whole else replace(record, fields=(), is_broken=True))
            has_null = any("\0" in text for text in bad_lines)
            piece = _Piece(line, bad_lines, 0, record, "has a NUL byte" if has_null else flaw)
        nearby.extend(piece.last_lines())
        has_bad_lines = not has_given_quote and any(line.is_bad for line in nearby)
        if has_bad_lines:
            _refuse_other_quotes(piece, nearby, fields, layout)
        yield piece
        if fields and not has_bad_lines and (run := feed.take(run_lines)):
            count, rows = _count_good_lines(run, layout, fields)
            feed.put_back(run[count:])
            piece = _Piece(feed.line - count + 1, run[:count], rows)
            nearby.extend(piece.last_lines())
            yield piece


def _read_records(feed: _Feed, layout: Layout) -> Iterator[tuple[int, Sequence[str], Record | None]]:
    """Read records with the number of their first line and their lines; the record is None for a blank line."""
    marks = {layout.quote, layout.escape, "\0"} - {""}
    for first in feed:
        line, record_lines = feed.line, [first]
        if not any(mark in first for mark in marks):  # most lines need no parser
            text = first.rstrip("\r\n")
            yield line, record_lines, Record(line, text.split(layout.delimiter)) if text else None
            continue
        if not layout.quote or layout.quote not in first:
            yield line, record_lines, _parse_record(record_lines, record_lines, layout)
            continue

        def take_lines(record_lines: list[str] = record_lines) -> Iterator[str]:
            yield record_lines[0]
            for next_line in islice(feed, _MAX_RECORD_LINES):
                record_lines.append(next_line)
                yield next_line

        yield line, record_lines, _parse_record(take_lines(), record_lines, layout)


def _parse_record(lines: Iterable[str], record_lines: Sequence[str], layout: Layout) -> Record | None:
    """Parse the first record of some lines; ``record_lines`` are those that were consumed for it."""
    with _long_fields():
        record = next(read_records(lines, layout.delimiter, layout.quote, layout.escape), None)
    if record is not None and any("\0" in line for line in record_lines):
        return replace(record, fields=(), is_broken=True)
    return record


def _count_good_lines(lines: Sequence[str], layout: Layout, fields: int) -> tuple[int, int]:
    """Count the leading lines that are good records or blank, and the records among them."""
    count, rows = 0, 0
    reader = open_reader(lines, layout.delimiter, layout.quote, layout.escape)
    with _long_fields(), suppress(csv.Error):
        for values in reader:
            record_lines = lines[count : reader.line_num]
            is_comment = layout.comment and record_lines[0].startswith(layout.comment)
            has_escaped_end = len(record_lines) > 1 and not (layout.quote and layout.quote in record_lines[0])
            if is_comment or has_escaped_end or "\0" in "".join(record_lines) or (values and len(values) != fields):
                break
            count, rows = reader.line_num, rows + bool(values)
    return count, rows


def _is_good(record: Record, fields: int) -> bool:
    return not record.is_broken and len(record.fields) == fields


def _choose_bad_lines(
    line: int, record_lines: Sequence[str], record: Record, fields: int, layout: Layout
) -> Sequence[str]:
    """Choose the bad lines of a bad record: all, or only the first one if the lines below it are rows."""
    if len(record_lines) == 1:
        return record_lines
    below = [(text, _parse_record([text], [text], layout)) for text in record_lines[1:]]
    are_rows = [parsed is not None and _is_good(parsed, fields) for _, parsed in below]
    if not record.is_broken and fields > 1 and not any(are_rows):
        return record_lines
    are_paired = [text.count(layout.quote) % 2 == 0 for text, _ in below]
    are_inner_rows = all(
        is_paired and (is_row or parsed is None)
        for (_, parsed), is_row, is_paired in zip(below[:-1], are_rows, are_paired, strict=False)
    )
    has_open_quote = record_lines[0].count(layout.quote) % 2
    if fields > 1 and has_open_quote and are_inner_rows and are_rows[-1] == are_paired[-1]:
        return record_lines[:1]
    if fields == 1 or any(are_rows):
        raise UnclearLinesError(
            f"line {line:,} begins a record of {len(record_lines):,} lines that {describe_record(record)}, and some of "
            "these lines may be rows; correct its quotes"
        )
    return record_lines


def _refuse_other_quotes(piece: _Piece, nearby: Iterable[_Line], fields: int, layout: Layout) -> None:
    """Refuse to drop lines that are a good row, alone or with nearby lines, if other quotes or a backslash before
    quotes are read."""
    piece_lines = piece.last_lines() if piece.flaw is not None else []
    for role, lines in (("a row", piece_lines), ("a part of a row", list(nearby))):
        for quote, escape in (*((quote, "") for quote in _QUOTES if quote != layout.quote), *_ESCAPED_QUOTES):
            if any(f"{escape}{quote}" in line for line in piece.lines):
                number = _find_bad_line_in_row(lines, fields, layout.delimiter, quote, escape)
                if number is not None:
                    quotes = f"quotes are {quote}" + (" with a backslash before them in values" if escape else "")
                    raise UnclearLinesError(
                        f"line {number:,} is {role} where {quotes}, and a bad line where they are "
                        f"{layout.quote or 'none'} alone; set quote under [source.csv], or correct the line"
                    )


def _find_bad_line_in_row(lines: Sequence[_Line], fields: int, delimiter: str, quote: str, escape: str) -> int | None:
    """Find the first bad line that belongs to a good row with quotes, if the given quote and escape are read."""
    records = list(read_records([line.text for line in lines], delimiter, quote, escape))
    ends = [*(record.line - 1 for record in records[1:]), len(lines)]
    for record, end in zip(records, ends, strict=False):
        row = lines[record.line - 1 : end]
        bad_numbers = [line.number for line in row if line.is_bad]
        text = "".join(line.text for line in row)
        is_quoted = f"{escape}{quote}" in text if escape else text.startswith(quote) or f"{delimiter}{quote}" in text
        if bad_numbers and is_quoted and "\0" not in text and _is_good(record, fields):
            return bad_numbers[0]
    return None


@contextmanager
def _long_fields() -> Iterator[None]:
    limit = csv.field_size_limit(_MAX_FIELD_LENGTH)
    try:
        yield
    finally:
        csv.field_size_limit(limit)
