"""The lines of a CSV file as they stand, and which of them are broken.

Of a clean file only bytes are searched, which costs a fraction of reading it. Its lines are parsed one by one where the
engine refuses the file: to say which lines are broken, and why.
"""

from __future__ import annotations

import csv
import gzip
import re
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice, takewhile
from pathlib import Path
from typing import TYPE_CHECKING, AnyStr, BinaryIO, cast

from sqlanon.policy.sections import CsvSection
from sqlanon.sources.tabular import TOTAL_WORDS
from sqlanon.support.fields import in_words
from sqlanon.support.notices import with_noun

if TYPE_CHECKING:
    from _csv import Reader

DELIMITERS = (",", ";", "\t", "|")

SAMPLED_LINES = 1_000
SHOWN_LINES = 5
_CHUNK = 1 << 20
_END = 1 << 16
_GZIP = b"\x1f\x8b"
_STRAY_QUOTE = "has a quote that is not closed, or text after a closing quote"

_COMPARED_LINES = 100
_BEGINS_LIKE_NUMBER = re.compile(r"\s*[-+(]?[.,]?\d")
_LINE_END = re.compile(rb"\r\n|\r|\n")
_LINE_ENDS = {b"\r\n": r"\r\n", b"\n": r"\n", b"\r": r"\r"}

Lines = Callable[[int | None], Iterator[str]]
"""Opens the lines of a file, all or so many, each with its end."""


def delimiter_name(delimiter: str) -> str:
    return "tab" if delimiter == "\t" else f"'{delimiter}'"


def can_open(path: str) -> bool:
    """Whether a path is a file on this machine whose bytes are read without the engine."""
    if path.lower().endswith(".zst") or not Path(path).is_file():
        return False
    if path.lower().endswith(".gz"):
        with Path(path).open("rb") as file:
            return file.read(2) == _GZIP
    return True


def open_bytes(path: str) -> BinaryIO:
    return cast(BinaryIO, gzip.open(path, "rb")) if path.lower().endswith(".gz") else Path(path).open("rb")


def _chunks(path: str) -> Iterator[bytes]:
    with open_bytes(path) as file:
        while chunk := file.read(_CHUNK):
            yield chunk


def read_lines(path: str, limit: int | None = None) -> Iterator[str]:
    """The lines of a file on this machine, all or so many. Bytes that are no UTF-8 stay apart from all characters."""
    open_text = gzip.open if path.lower().endswith(".gz") else open
    with open_text(path, "rt", encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
        yield from islice(cast(Iterable[str], file), limit)


def may_be_utf_16(path: str) -> bool:
    """Whether the first line of a file, or what follows its end at once, has a NUL byte."""
    first, second = islice(chain(read_lines(path, 2), ("", "")), 2)
    return "\0" in first + second[:1]


def describe_null_byte(path: str) -> str | None:
    """Where the first NUL byte of a file is; None without one."""
    line, start, above = 1, 0, b""
    for chunk in _chunks(path):
        position = chunk.find(b"\0")
        if position >= 0:
            line += count_line_ends(chunk[:position], above)
            utf_16 = "utf-16-le" if (start + position) % 2 else "utf-16-be"
            return (
                f"line {line:,} has a NUL byte; the file is damaged, or it is no text in UTF-8: for UTF-16 without a "
                f'byte order mark, set encoding = "{utf_16}" under [source.csv]'
            )
        start += len(chunk)
        line += count_line_ends(chunk, above)
        above = chunk
    return None


def count_line_ends(part: AnyStr, above: AnyStr) -> int:
    r"""The line ends of a part of a file: \n, \r or \r\n, which may begin in the part above.

    >>> count_line_ends("\na\rb\r\n", "\r")
    2
    """
    line_feed, carriage_return = ("\n", "\r") if isinstance(part, str) else (b"\n", b"\r")
    both = (above[-1:] + part).count(carriage_return + line_feed)
    return part.count(line_feed) + part.count(carriage_return) - both


@dataclass(frozen=True)
class ByteFacts:
    has_null: bool
    lines: int | None  # the last one with or without an end; None where no byte is a quote


def search_bytes(path: str, quote: str, newline: str) -> ByteFacts:
    """What the bytes of a file show, in one pass; in two where the first quote is far behind."""
    mark, end, lines, has_quote, last = quote.encode(), newline.encode(), 0, False, b""
    for i, chunk in enumerate(_chunks(path)):
        if b"\0" in chunk:
            return ByteFacts(True, None)
        if not has_quote and mark in chunk:
            has_quote = True
            lines = sum(earlier.count(end) for earlier in islice(_chunks(path), i))
        if has_quote:
            lines += chunk.count(end)
        last = chunk
    return ByteFacts(False, lines + (bool(last) and not last.endswith(end)) if has_quote else None)


def may_end_in_delimiter(path: str, delimiter: str) -> bool:
    """Whether any line ends in a delimiter."""
    patterns, last = [delimiter.encode() + end for end in (b"\n", b"\r")], b""
    for chunk in _chunks(path):
        if any(pattern in last + chunk for pattern in patterns):
            return True
        last = chunk[-len(delimiter.encode()) :]
    return last == delimiter.encode()


@dataclass(frozen=True)
class Record:
    line: int  # its first line
    fields: Sequence[str]
    is_broken: bool = False  # whether its quotes are


def describe_record(record: Record) -> str:
    return _STRAY_QUOTE if record.is_broken else f"has {len(record.fields):,}"


def open_reader(lines: Iterable[str], delimiter: str, quote: str, escape: str) -> Reader:
    return csv.reader(
        lines,
        delimiter=delimiter,
        quotechar=quote or None,
        quoting=csv.QUOTE_MINIMAL if quote else csv.QUOTE_NONE,
        doublequote=escape in ("", quote),
        escapechar=None if escape in ("", quote) else escape,
        strict=True,
    )


def read_records(lines: Iterable[str], delimiter: str, quote: str, escape: str = "") -> Iterator[Record]:
    """The records of a file but for blank lines; reading goes on behind broken ones."""
    reader = open_reader(lines, delimiter, quote, escape)
    while True:
        line = reader.line_num + 1
        try:
            fields = next(reader)
        except StopIteration:
            return
        except csv.Error:
            yield Record(line, (), is_broken=True)
        else:
            if fields:
                yield Record(line, fields)


@dataclass(frozen=True)
class Layout:
    """How lines are parsed: the delimiter, the lines above the first record, and its number of fields."""

    delimiter: str
    quote: str = '"'
    escape: str = ""
    skip: int = 0
    comment: str = ""

    def is_like(self, other: Layout) -> bool:
        """Whether it parses lines as another layout does, below the lines that are skipped."""
        escapes = [{"", layout.quote, layout.escape} for layout in (self, other)]
        same = (self.delimiter, self.quote, self.comment) == (other.delimiter, other.quote, other.comment)
        return same and escapes[0] == escapes[1]

    def records(self, lines: Iterable[str]) -> Iterator[Record]:
        records = read_records(islice(lines, self.skip, None), self.delimiter, self.quote, self.escape)
        for record in records:
            if not (self.comment and record.fields and record.fields[0].startswith(self.comment)):
                yield Record(record.line + self.skip, record.fields, record.is_broken)


def guess_layout(open_lines: Lines, known: CsvSection) -> Layout | None:
    """The delimiter that splits most of the first lines into one number of fields; None where none splits them.

    Lines above the first one that it splits are titles.
    """
    quote = '"' if known.quote is None else known.quote
    if known.delimiter is not None:
        return Layout(known.delimiter, quote, skip=known.skip or 0)
    guesses = []
    lines = list(open_lines((known.skip or 0) + SAMPLED_LINES))
    for delimiter in DELIMITERS:
        records = list(Layout(delimiter, quote, skip=known.skip or 0).records(lines))
        counts = Counter(len(record.fields) for record in records if len(record.fields) > 1)
        if counts:
            fields, count = max(counts.items(), key=lambda pair: (pair[1], pair[0]))
            first = next(record for record in records if len(record.fields) > 1)
            skip = first.line - 1 if known.skip is None else known.skip
            guesses.append((count, fields, len(records), Layout(delimiter, quote, skip=skip)))
    if not guesses:
        return None
    count, _, records_count, layout = max(guesses, key=lambda guess: guess[:2])
    return layout if 2 * count >= records_count - 1 else None


def other_delimiters(open_lines: Lines, layout: Layout) -> list[str]:
    """The delimiters that would also split all of the first lines into the same number of fields."""
    first = list(open_lines(layout.skip + SAMPLED_LINES))
    header = next(iter(first[layout.skip :]), "")
    others = []
    for delimiter in DELIMITERS:
        if delimiter != layout.delimiter and delimiter in header:
            other = replace(layout, delimiter=delimiter)
            counts = {len(record.fields) for record in other.records(first)}
            if len(counts) == 1 and counts != {1}:
                others.append(delimiter)
    return others


def describe_repeated_header(layout: Layout, open_lines: Lines) -> str | None:
    """Describe a first record that may be a row, as its values recur, or that is repeated; None for a header."""
    records = layout.records(open_lines(layout.skip + SAMPLED_LINES))
    header = next(records, None)
    if header is None:
        return None
    for record in records:
        values = [value.removeprefix("\ufeff") for value in record.fields]
        if values == [*header.fields]:
            return f"line {record.line:,} repeats line {header.line:,}: remove it"
        for name, value in zip(header.fields, values, strict=False):
            if name == value and name.strip():
                return (
                    f"{in_words(name)} stands in line {header.line:,} and, in its column, in line {record.line:,}: "
                    f"set header = false under [source.csv] if line {header.line:,} is a row, else header = true"
                )
    return None


def describe_last_lines(path: str, layout: Layout) -> str | None:
    """Describe last lines that have delimiters alone, or totals; None where the last lines are rows."""
    records = [
        next(read_records([line], layout.delimiter, layout.quote, layout.escape), Record(0, ()))
        for line in _read_last_lines(path)
        if line
    ]
    rows = [[field.strip() for field in record.fields] for record in records]
    if not rows or len(rows[-1]) < 2:
        return None
    blank = sum(1 for _ in takewhile(lambda row: not any(row), reversed(rows)))
    if blank:
        lines = "the last line has" if blank == 1 else f"the last {blank:,} lines have"
        return (
            f"{lines} no value: set footer = {blank} under [source.csv] to leave {'it' if blank == 1 else 'them'} out"
        )
    i, word = next((i, field) for i, field in enumerate(rows[-1]) if field)
    if re.fullmatch(TOTAL_WORDS, word) and sum(row[i : i + 1] == [word] for row in rows) == 1:
        return f"the last line begins with {in_words(word)}: set footer = 1 under [source.csv] to leave it out"
    return None


def _read_last_lines(path: str) -> list[str]:
    """The last whole lines of a file, without their ends."""
    last = deque(_chunks(path), 2) if path.lower().endswith(".gz") else [_read_end(path)]
    lines = _LINE_END.split(b"".join(last)[-_END:])
    return [line.decode("utf-8", "replace") for line in lines[1:]]


def _read_end(path: str) -> bytes:
    with Path(path).open("rb") as file:
        file.seek(max(file.seek(0, 2) - _END, 0))
        return file.read()


def may_be_header(layout: Layout, open_lines: Lines) -> bool:
    """Whether the first record of a file has texts alone, or a value of another kind than those below it."""
    records = list(layout.records(open_lines(layout.skip + _COMPARED_LINES)))
    if not records:
        return False
    first, *below = [[_kind_of(value) for value in record.fields] for record in records]
    if "number" not in first:
        return True
    for i, kind in enumerate(first):
        kinds = Counter(row[i] for row in below if i < len(row))
        values = kinds["number"] + kinds["text"]
        if kind == "blank" and not kinds["blank"]:
            return True
        if (kind == "number" and not kinds["number"] and values) or (kind == "text" and 2 * kinds["number"] > values):
            return True
    return False


def _kind_of(value: str) -> str:
    """Dates are numbers, too."""
    return "blank" if not value.strip() else "number" if _BEGINS_LIKE_NUMBER.match(value) else "text"


def find_delimiter(lines: Iterable[str]) -> tuple[int, str] | None:
    """The first line that has a delimiter: its number, and the delimiter."""
    for number, line in enumerate(lines, 1):
        for delimiter in DELIMITERS:
            if delimiter in line:
                return number, delimiter
    return None


_OTHER_SEPARATORS = (":", "~", "^", "!", "#", "&", "=", "\\", *map(chr, (*range(1, 9), *range(14, 32))))


def describe_other_separator(lines: Iterable[str]) -> str | None:
    """What splits the header and all of some lines alike, though it is no usual delimiter; None where nothing does.

    >>> describe_other_separator(["age:sex", "34:f", "51:m"])
    "':' splits all of them into 2 fields: set delimiter = ':' under [source.csv]"
    >>> describe_other_separator(["time", "12:30", "8:15"])
    """
    written = [stripped for line in lines if (stripped := line.strip())]
    if len(written) < 2:
        return None
    for separator in (*_OTHER_SEPARATORS, None):
        counts = {len(line.split(separator)) for line in written}
        if len(counts) > 1 or 1 in counts:
            continue
        fields = f"all of them into {counts.pop()} fields"
        if separator is not None:
            return f"{separator!r} splits {fields}: set delimiter = {separator!r} under [source.csv]"
        if all(line.split() == line.split(" ") for line in written):
            return f"a space splits {fields}: set delimiter = ' ' under [source.csv]"
        return f"spaces split {fields}: columns of a fixed width are not read; save the file with a delimiter"
    return None


def describe_line_ends(path: str) -> str | None:
    """Where the line ends of a file change; None where they are alike."""
    first, line = b"", 0
    for chunk in _whole_lines(path):
        for end in _LINE_END.findall(chunk):
            line += 1
            first = first or end
            if end != first:
                return (
                    f"line {line:,} ends with {_LINE_ENDS[end]}, and the lines above it with {_LINE_ENDS[first]}; give "
                    "all lines the same end"
                )
    return None


def _whole_lines(path: str) -> Iterator[bytes]:
    """The bytes of a file; no chunk ends between the two of a line end."""
    held = b""
    for chunk in _chunks(path):
        held += chunk
        end = len(held) - held.endswith(b"\r")
        yield held[:end]
        held = held[end:]
    yield held


def describe_unreadable_lines(open_lines: Lines) -> str:
    """Why no dialect fits the lines of a file."""
    layouts = [Layout(delimiter) for delimiter in DELIMITERS]
    broken = [
        next((record.line for record in layout.records(open_lines(None)) if record.is_broken), 0) for layout in layouts
    ]
    if all(broken):
        return f"line {max(broken):,} {_STRAY_QUOTE}; correct it, or set quote under [source.csv]"
    return (
        "no delimiter splits its lines into the same number of fields; correct the file, or set delimiter and quote "
        "under [source.csv]"
    )


def find_broken_lines(open_lines: Lines, layout: Layout) -> tuple[int, int, Sequence[str]] | None:
    """The fields of the first record of a file, the number of lines with others, and the first of these."""
    summary = _compare_lines(layout.records(open_lines(None)))
    return None if summary is None else (summary.expected, summary.broken, summary.shown)


def describe_broken_lines(open_lines: Lines, layout: Layout) -> str | None:
    """What is wrong with the lines of a file, in words: they differ from its first record; None: nothing."""
    summary = _compare_lines(layout.records(open_lines(None)))
    if summary is None:
        return None
    name = delimiter_name(layout.delimiter)
    return _describe_extra_delimiters(summary, name) or (_describe_lines(summary, name) if summary.broken else None)


@dataclass(frozen=True)
class _Summary:
    """How records compare with the first one of a file."""

    first: Record
    rows: int  # records below it
    counts: Mapping[int, int]  # of rows with another number of fields, by that number; 0 for those with broken quotes
    blank_ends: int  # rows with its number of fields, of which the last one is empty
    extra_ends: int  # rows with one field more, which is empty
    shown: Sequence[str]  # the first rows that differ

    @property
    def expected(self) -> int:
        return len(self.first.fields)

    @property
    def broken(self) -> int:
        return sum(self.counts.values())


def _compare_lines(records: Iterator[Record]) -> _Summary | None:
    first = next(records, None)
    if first is None:
        return None
    expected, rows, blank_ends, extra_ends = len(first.fields), 0, 0, 0
    counts: Counter[int] = Counter()
    shown: list[str] = []
    for record in chain([first] if first.is_broken else [], records):
        rows += 1
        fields = len(record.fields)
        is_blank = bool(fields) and record.fields[-1] == ""
        if not record.is_broken and fields == expected:
            blank_ends += is_blank
            continue
        counts[fields] += 1
        extra_ends += is_blank and fields == expected + 1
        if len(shown) < SHOWN_LINES:
            shown.append(f"line {record.line:,} {describe_record(record)}")
    return _Summary(first, rows, counts, blank_ends, extra_ends, shown)


def _describe_extra_delimiters(summary: _Summary, name: str) -> str | None:
    first, rows, expected = summary.first, summary.rows, summary.expected
    if rows and first.fields and first.fields[-1] == "":
        if summary.counts == {expected - 1: rows}:
            return (
                f"the header (line {first.line:,}) ends with an extra {name}: it has {with_noun(expected, 'field')}, "
                f"and the {with_noun(rows, 'line', 'below it has', 'below it have')} {expected - 1:,}; remove the last "
                f"{name} of the header"
            )
        if summary.blank_ends == rows:
            return f"every line ends with an extra {name}; remove it from each line"
    if summary.extra_ends == summary.broken == rows > 0:
        return (
            f"all lines below the header end with an extra {name}: they have {with_noun(expected + 1, 'field')}, and "
            f"the header (line {first.line:,}) has {expected:,}; remove the last {name} of each line"
        )
    return None


def _describe_lines(summary: _Summary, name: str) -> str:
    broken, shown = summary.broken, summary.shown
    head = f"line {summary.first.line:,} has {with_noun(summary.expected, 'field')} (delimiter {name})"
    if broken == summary.rows > 1 and len(summary.counts) == 1 and 0 not in summary.counts:
        return (
            f"{head}, and the {broken:,} lines below it have {next(iter(summary.counts)):,}; give each field a name in "
            "the header; if the line is above the header, set skip under [source.csv]"
        )
    more = f", and {broken - len(shown):,} more" if broken > len(shown) else ""
    differing = "1 line differs" if broken == 1 else f"{broken:,} lines differ"
    is_title = 2 * broken > summary.rows and summary.expected == 1
    remedy = (
        "if line {:,} is above the header, set skip under [source.csv], else correct them"
        if is_title
        else ("correct these lines")
    )
    return f"{head}, and {differing}: {', '.join(shown)}{more}; {remedy.format(summary.first.line)}"
