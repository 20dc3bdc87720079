"""Read the lines of CSV files, and describe broken ones.

Clean files are only searched for bytes, which costs a fraction of reading them. Lines are parsed one by one where the
engine refuses a file, to report which lines are broken and why.
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

from sqlanon.places.databases import file_name
from sqlanon.policy.sections import CsvSection
from sqlanon.support.fields import in_words
from sqlanon.support.notices import count_noun

if TYPE_CHECKING:
    from _csv import Reader

DELIMITERS = (",", ";", "\t", "|")

TOTAL_WORDS = (
    "(?i)(?:(?:(?:grand|sub)[ -]?)?total(?:s|e|en)?|totaal|sums?|summe|(?:ins)?gesamt(?:summe|zahl)?|somme|ensemble|"
    "suma|somma|razem) ?:?"
)
"""A pattern of the first value in a row of totals, without surrounding spaces, for Python and DuckDB."""

SAMPLED_LINES = 1_000
MAX_EXAMPLES = 5
_CHUNK = 1 << 20
_END_BYTES = 1 << 16
_GZIP = b"\x1f\x8b"
_STRAY_QUOTE = "has a quote that is not closed, or text after a closing quote"

_COMPARED_LINES = 100
_BEGINS_LIKE_NUMBER = re.compile(r"\s*[-+(]?[.,]?\d")
_LINE_END = re.compile(rb"\r\n|\r|\n")
_LINE_ENDS = {b"\r\n": r"\r\n", b"\n": r"\n", b"\r": r"\r"}

Lines = Callable[[int | None], Iterator[str]]
"""Opens the lines of a file, each with its line end; at most the given number of them."""


def delimiter_name(delimiter: str) -> str:
    return "tab" if delimiter == "\t" else f"'{delimiter}'"


def can_open(path: str) -> bool:
    """Whether a path is a file on this machine that Python can decompress."""
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
    """Read the lines of a file on this machine, at most ``limit``. Invalid UTF-8 is kept as lone surrogates."""
    open_text = gzip.open if path.lower().endswith(".gz") else open
    with open_text(path, "rt", encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
        yield from islice(cast(Iterable[str], file), limit)


def may_be_utf_16(path: str) -> bool:
    """Whether the first line of a file, or the character after it, has a NUL byte."""
    first, second = islice(chain(read_lines(path, 2), ("", "")), 2)
    return "\0" in first + second[:1]


def describe_null_byte(path: str) -> str | None:
    """Describe the first NUL byte of a file; None without one."""
    line, start, above = 1, 0, b""
    for chunk in _chunks(path):
        position = chunk.find(b"\0")
        if position >= 0:
            line += count_line_ends(chunk[:position], above)
            utf_16 = "utf-16-le" if (start + position) % 2 else "utf-16-be"
            return (
                f"line {line:,} has a NUL byte; the file is damaged or not UTF-8: for UTF-16 without a byte order "
                f'mark, set encoding = "{utf_16}" under [source.csv]'
            )
        start += len(chunk)
        line += count_line_ends(chunk, above)
        above = chunk
    return None


def count_line_ends(part: AnyStr, above: AnyStr) -> int:
    r"""Count the line ends of a part of a file: \n, \r or \r\n, which may begin in the part above.

    >>> count_line_ends("\na\rb\r\n", "\r")
    2
    """
    line_feed, carriage_return = ("\n", "\r") if isinstance(part, str) else (b"\n", b"\r")
    crlf = (above[-1:] + part).count(carriage_return + line_feed)
    return part.count(line_feed) + part.count(carriage_return) - crlf


@dataclass(frozen=True)
class ByteFacts:
    has_null: bool
    lines: int | None  # with an unfinished last line; None for a file without quotes


def search_bytes(path: str, quote: str, newline: str) -> ByteFacts:
    """Search the bytes of a file for NUL bytes, quotes and line ends, in one pass or, with a late quote, two."""
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
    is_broken: bool = False  # has broken quotes


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
    """Read the records of a file without blank lines; reading continues after a broken record."""
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
    """The syntax of a CSV file."""

    delimiter: str
    quote: str = '"'
    escape: str = ""
    skip: int = 0  # lines above the first record
    comment: str = ""

    def is_like(self, candidate: Layout) -> bool:
        """Whether another layout parses lines below the skipped ones in the same way."""
        escapes = [{"", layout.quote, layout.escape} for layout in (self, candidate)]
        same = (self.delimiter, self.quote, self.comment) == (candidate.delimiter, candidate.quote, candidate.comment)
        return same and escapes[0] == escapes[1]

    def records(self, lines: Iterable[str]) -> Iterator[Record]:
        records = read_records(islice(lines, self.skip, None), self.delimiter, self.quote, self.escape)
        for record in records:
            if not (self.comment and record.fields and record.fields[0].startswith(self.comment)):
                yield Record(record.line + self.skip, record.fields, record.is_broken)


Options = Mapping[str, "str | bool | int"]
"""Arguments of ``read_csv`` or ``sniff_csv``."""

DATE_FORMAT_TYPES = {"dateformat": "DATE", "timestampformat": "TIMESTAMP"}
NO_DELIMITER = "\x1f"  # makes each line one value


@dataclass(frozen=True)
class CsvFile:
    """A CSV file, and how the engine reads it."""

    path: str
    options: Options  # arguments of ``read_csv``
    columns: Mapping[str, str]  # type by name, in order
    missing: Sequence[str] | None = None  # texts that mean NULL; None: the empty text

    @property
    def name(self) -> str:
        return file_name(self.path)

    @property
    def has_one_column(self) -> bool:
        return len(self.columns) <= 1

    def with_texts(self) -> CsvFile:
        """The same file with all columns as text."""
        return replace(self, options=self._options_without_formats(), columns=dict.fromkeys(self.columns, "VARCHAR"))

    def with_lines(self, from_top: bool = False) -> CsvFile:
        """The same file with its lines as the only column, ``line``; with the skipped lines if ``from_top``."""
        options: Options = {
            **self._options_without_formats(),
            "delim": NO_DELIMITER, "quote": "", "escape": "", "comment": "", "header": False,
            "skip": 0 if from_top else self.options["skip"],
        }  # fmt: skip
        return replace(self, options=options, columns={"line": "VARCHAR"}, missing=None)

    def with_header_as_row(self) -> CsvFile:
        """The same file with its header line as the first row of columns ``c0``, ``c1``, ..."""
        columns = {f"c{i}": "VARCHAR" for i in range(len(self.columns))}
        return CsvFile(self.path, {**self._options_without_formats(), "header": False}, columns)

    def _options_without_formats(self) -> Options:
        return {name: value for name, value in self.options.items() if name not in DATE_FORMAT_TYPES}

    def layout(self) -> Layout:
        quote, escape, comment = (str(self.options[name]) for name in ("quote", "escape", "comment"))
        return Layout(str(self.options["delim"]), quote, escape, int(self.options["skip"]), comment)


def guess_layout(open_lines: Lines, section: CsvSection) -> Layout | None:
    """Guess the delimiter that splits most of the first lines into one number of fields; None if none splits them.

    Lines above the first one that it splits are titles.
    """
    quote = '"' if section.quote is None else section.quote
    if section.delimiter is not None:
        return Layout(section.delimiter, quote, skip=section.skip or 0)
    guesses = []
    lines = list(open_lines((section.skip or 0) + SAMPLED_LINES))
    for delimiter in DELIMITERS:
        records = list(Layout(delimiter, quote, skip=section.skip or 0).records(lines))
        counts = Counter(len(record.fields) for record in records if len(record.fields) > 1)
        if counts:
            fields, count = max(counts.items(), key=lambda pair: (pair[1], pair[0]))
            first = next(record for record in records if len(record.fields) > 1)
            skip = first.line - 1 if section.skip is None else section.skip
            guesses.append((count, fields, len(records), Layout(delimiter, quote, skip=skip)))
    if not guesses:
        return None
    count, _, records_count, layout = max(guesses, key=lambda guess: guess[:2])
    return layout if 2 * count >= records_count - 1 else None


def find_other_delimiters(open_lines: Lines, layout: Layout) -> list[str]:
    """Find other delimiters that split all of the first lines into the same number of fields."""
    lines = list(open_lines(layout.skip + SAMPLED_LINES))
    header = next(iter(lines[layout.skip :]), "")
    delimiters = []
    for delimiter in DELIMITERS:
        if delimiter != layout.delimiter and delimiter in header:
            records = replace(layout, delimiter=delimiter).records(lines)
            counts = {len(record.fields) for record in records}
            if len(counts) == 1 and counts != {1}:
                delimiters.append(delimiter)
    return delimiters


def describe_repeated_header(layout: Layout, open_lines: Lines) -> str | None:
    """Describe a first record that is repeated, or that may be a row because a value recurs; None for a header."""
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
                    f"{in_words(name)} is in line {header.line:,} and, in the same column, in line {record.line:,}: "
                    f"set header = false under [source.csv] if line {header.line:,} is a row, otherwise header = true"
                )
    return None


def describe_last_lines(path: str, layout: Layout) -> str | None:
    """Describe last lines that have only delimiters, or totals; None where the last lines are rows."""
    records = [
        next(read_records([line], layout.delimiter, layout.quote, layout.escape), Record(0, ()))
        for line in _read_last_lines(path)
        if line
    ]
    rows = [[field.strip() for field in record.fields] for record in records]
    if not rows or len(rows[-1]) < 2:
        return None
    blank_rows = sum(1 for _ in takewhile(lambda row: not any(row), reversed(rows)))
    if blank_rows:
        lines = "the last line has" if blank_rows == 1 else f"the last {blank_rows:,} lines have"
        pronoun = "it" if blank_rows == 1 else "them"
        return f"{lines} no value: set footer = {blank_rows} under [source.csv] to leave {pronoun} out"
    i, word = next((i, field) for i, field in enumerate(rows[-1]) if field)
    if re.fullmatch(TOTAL_WORDS, word) and sum(row[i : i + 1] == [word] for row in rows) == 1:
        return f"the last line begins with {in_words(word)}: set footer = 1 under [source.csv] to leave it out"
    return None


def _read_last_lines(path: str) -> list[str]:
    """Read the last whole lines of a file, without their ends."""
    if path.lower().endswith(".gz"):
        end = b"".join(deque(_chunks(path), 2))[-_END_BYTES:]
    else:
        with Path(path).open("rb") as file:
            file.seek(max(file.seek(0, 2) - _END_BYTES, 0))
            end = file.read()
    lines = _LINE_END.split(end)
    return [line.decode("utf-8", "replace") for line in lines[1:]]


def may_be_header(layout: Layout, open_lines: Lines) -> bool:
    """Whether the first record of a file has only texts, or a value of another kind than those below it."""
    records = list(layout.records(open_lines(layout.skip + _COMPARED_LINES)))
    if not records:
        return False
    first, *below = [[_classify_value(value) for value in record.fields] for record in records]
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


def _classify_value(value: str) -> str:
    """Classify a value; dates count as numbers."""
    if not value.strip():
        return "blank"
    return "number" if _BEGINS_LIKE_NUMBER.match(value) else "text"


def find_delimiter(lines: Iterable[str]) -> tuple[int, str] | None:
    """Find the first line that has a usual delimiter: its number, and the delimiter."""
    for number, line in enumerate(lines, 1):
        for delimiter in DELIMITERS:
            if delimiter in line:
                return number, delimiter
    return None


_OTHER_SEPARATORS = (":", "~", "^", "!", "#", "&", "=", "\\", *map(chr, (*range(1, 9), *range(14, 32))))


def describe_other_separator(lines: Iterable[str]) -> str | None:
    """Describe an unusual separator that splits all of some lines into as many fields; None without one.

    >>> describe_other_separator(["age:sex", "34:f", "51:m"])
    "':' splits all of them into 2 fields: set delimiter = ':' under [source.csv]"
    >>> describe_other_separator(["time", "12:30", "8:15"])
    """
    texts = [text for line in lines if (text := line.strip())]
    if len(texts) < 2:
        return None
    for separator in (*_OTHER_SEPARATORS, None):
        counts = {len(line.split(separator)) for line in texts}
        if len(counts) > 1 or 1 in counts:
            continue
        fields = f"all of them into {counts.pop()} fields"
        if separator is not None:
            return f"{separator!r} splits {fields}: set delimiter = {separator!r} under [source.csv]"
        if all(line.split() == line.split(" ") for line in texts):
            return f"a space splits {fields}: set delimiter = ' ' under [source.csv]"
        return f"spaces split {fields}: columns of a fixed width are not read; save the file with a delimiter"
    return None


def describe_line_ends(path: str) -> str | None:
    """Describe where the line ends of a file change; None where all are alike."""
    first, line = b"", 0
    for chunk in _whole_lines(path):
        for end in _LINE_END.findall(chunk):
            line += 1
            first = first or end
            if end != first:
                return (
                    f"line {line:,} ends with {_LINE_ENDS[end]}, and the lines above it with {_LINE_ENDS[first]}; give "
                    "all lines the same line end"
                )
    return None


def _whole_lines(path: str) -> Iterator[bytes]:
    """Read the bytes of a file in chunks that do not split a line end."""
    held = b""
    for chunk in _chunks(path):
        held += chunk
        end = len(held) - held.endswith(b"\r")
        yield held[:end]
        held = held[end:]
    yield held


def describe_unreadable_lines(open_lines: Lines) -> str:
    """Describe why no layout fits the lines of a file."""
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


def describe_broken_lines(open_lines: Lines, layout: Layout) -> str | None:
    """Describe lines of a file that do not match its first record; None without such lines."""
    comparison, name = compare_lines(open_lines, layout), delimiter_name(layout.delimiter)
    if comparison is None:
        return None
    extra = comparison.describe_extra_delimiters(name)
    return extra or (comparison.describe_differences(name) if comparison.broken_lines else None)


@dataclass(frozen=True)
class LineComparison:
    """Records of a file, compared with its first record."""

    first: Record
    rows: int  # records below it
    counts: Mapping[int, int]  # broken rows by their number of fields, 0 for broken quotes
    blank_ends: int  # rows with the right number of fields whose last field is empty
    extra_ends: int  # rows with an extra empty field at the end
    examples: Sequence[str]  # the first broken rows

    @property
    def expected_fields(self) -> int:
        return len(self.first.fields)

    @property
    def broken_lines(self) -> int:
        return sum(self.counts.values())

    def describe_extra_delimiters(self, name: str) -> str | None:
        first, rows, expected = self.first, self.rows, self.expected_fields
        if rows and first.fields and first.fields[-1] == "":
            if self.counts == {expected - 1: rows}:
                lines = count_noun(rows, "line", "below it has", "below it have")
                return (
                    f"the header (line {first.line:,}) ends with an extra {name}: it has "
                    f"{count_noun(expected, 'field')}, and the {lines} {expected - 1:,}; remove the last {name} of the "
                    "header"
                )
            if self.blank_ends == rows:
                return f"every line ends with an extra {name}; remove it from each line"
        if self.extra_ends == self.broken_lines == rows > 0:
            return (
                f"all lines below the header end with an extra {name}: they have {count_noun(expected + 1, 'field')}, "
                f"and the header (line {first.line:,}) has {expected:,}; remove the last {name} of each line"
            )
        return None

    def describe_differences(self, name: str) -> str:
        broken, line = self.broken_lines, self.first.line
        head = f"line {line:,} has {count_noun(self.expected_fields, 'field')} (delimiter {name})"
        if broken == self.rows > 1 and len(self.counts) == 1 and 0 not in self.counts:
            return (
                f"{head}, and the {broken:,} lines below it have {next(iter(self.counts)):,}; give each field a name "
                "in the header; if the line is above the header, set skip under [source.csv]"
            )
        more = f", and {broken - len(self.examples):,} more" if broken > len(self.examples) else ""
        differing = "1 line differs" if broken == 1 else f"{broken:,} lines differ"
        remedy = "correct these lines"
        if 2 * broken > self.rows and self.expected_fields == 1:
            remedy = f"if line {line:,} is above the header, set skip under [source.csv], otherwise correct them"
        return f"{head}, and {differing}: {', '.join(self.examples)}{more}; {remedy}"


def compare_lines(open_lines: Lines, layout: Layout) -> LineComparison | None:
    """Compare the records of a file with its first record; None for a file without records."""
    records = layout.records(open_lines(None))
    first = next(records, None)
    if first is None:
        return None
    expected, rows, blank_ends, extra_ends = len(first.fields), 0, 0, 0
    counts: Counter[int] = Counter()
    examples: list[str] = []
    for record in chain([first] if first.is_broken else [], records):
        rows += 1
        fields = len(record.fields)
        is_blank = bool(fields) and record.fields[-1] == ""
        if not record.is_broken and fields == expected:
            blank_ends += is_blank
            continue
        counts[fields] += 1
        extra_ends += is_blank and fields == expected + 1
        if len(examples) < MAX_EXAMPLES:
            examples.append(f"line {record.line:,} {describe_record(record)}")
    return LineComparison(first, rows, counts, blank_ends, extra_ends, examples)
