"""Small CSV files with random damage: read as Python's csv module reads them, or refused.

`python tests/sources/fuzz_files.py --files 100000 --seed 1` damages that number of files and lists faults: an error
that is not sqlanon's, a value that differs from the file, whole lines as values of one column. The exit status is 1
if there are any. `--again SEED:NUMBER` shows one file.
"""

from __future__ import annotations

import argparse
import csv as reference
import datetime
import io
import random
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import duckdb

from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.errors import SqlanonError
from sqlanon.sources.files import csv, csv_lines
from sqlanon.sources.files.scan import Scan
from sqlanon.sources.relation import source_errors
from sqlanon.support.expressions import drop_table, table

DELIMITERS = ",;\t|"
TABLE = table("copy")


@dataclass(frozen=True)
class Dialect:
    delimiter: str = ","
    quote: str = '"'
    newline: str = "\n"
    quotes_all: bool = False

    def write(self, rows: Sequence[Sequence[str]]) -> bytes:
        text = io.StringIO(newline="")
        quoting = reference.QUOTE_ALL if self.quotes_all else reference.QUOTE_MINIMAL
        options = {"delimiter": self.delimiter, "quotechar": self.quote, "lineterminator": self.newline}
        reference.writer(text, quoting=quoting, **options).writerows(rows)
        return text.getvalue().encode()


DIALECTS = [
    Dialect(),
    Dialect(newline="\r\n"),
    Dialect(";"),
    Dialect("\t"),
    Dialect("|", newline="\r"),
    Dialect(quotes_all=True),
    Dialect(";", "'", "\r\n"),
    Dialect("\t", quotes_all=True),
]

ROWS = [
    ("name", "age", "born", "note"),
    ("Ann", "21", "1999-12-31", "well"),
    ("Bob", "53", "1971-02-03", 'ill, old; "bad" leg'),
    ("Müller", "7", "2017-05-06", ""),
    ("O'Neill", "", "1980-01-01", "two\nlines"),
    ("王芳", "64", "", '6" pipe | tab\t'),
    ("Eve", "33", "1991-11-11", "x"),
]
OTHER_ROWS = [
    [("zip", "cost", "ill"), ("02139", "1.5", "true"), ("10115", "-2", "false"), ("00501", "1e3", "true")],
    [("id", "seen"), ("1", "2001-02-03 10:00:00"), ("2", "2001-02-04 11:30:00"), ("3", "2001-02-05 00:00:00")],
    [("x",), ("1",), ("2",), ("3",), ("4",)],
    [("a", "b", "c"), *((str(i), str(i * i), "yz"[i % 2]) for i in range(12))],
    [("day", "n"), ("31/12/1999", "1"), ("01/02/2001", "2"), ("13/05/1980", "3")],
]
SPLICES = [
    *(mark.encode() for mark in (*DELIMITERS, '"', "'", '""', "\r", "\n", "\r\n", " ", "#", "\\", "\ufeff", "é", "\0")),
    *(text.encode() for text in ("NULL", "0", ".", "-", "e", "NA", ",,", '","', '"\n"', "\n\n")),
    *(sign.encode() for sign in ("\u2028", "\x1a", "\x85", "\x0b", "\xa0")),
    b"\xff", b"\xe9", b"\xff\xfe", b"\xc3", b"\x80",
]  # fmt: skip


def damage(content: bytes, draw: random.Random) -> bytes:
    """The content of a file with a few random changes of its bytes and lines."""
    for _ in range(draw.choice((1, 1, 1, 2, 3, 5))):
        place = draw.randrange(len(content) + 1) if content else 0
        match draw.randrange(8):
            case 0:  # another bit
                if place < len(content):
                    content = content[:place] + bytes([content[place] ^ 1 << draw.randrange(8)]) + content[place + 1 :]
            case 1:  # any byte more
                content = content[:place] + bytes([draw.randrange(256)]) + content[place:]
            case 2:  # bytes less
                content = content[:place] + content[place + draw.choice((1, 1, 2, 8)) :]
            case 3:  # a line twice, or none
                lines = content.splitlines(keepends=True)
                if lines:
                    i = draw.randrange(len(lines))
                    content = b"".join(lines[:i] + lines[i : i + 1] * draw.choice((0, 2, 2)) + lines[i + 1 :])
            case 4:  # one byte for another
                old, new = draw.sample([b",", b";", b"\t", b"|", b'"', b"'", b"\n", b"\r"], 2)
                content = content.replace(old, new, draw.choice((1, 2, -1)))
            case 5:  # the end is missing
                content = content[: max(place, 1)]
            case _:
                content = content[:place] + draw.choice(SPLICES) + content[place:]
    return content


@dataclass(frozen=True)
class Damaged:
    content: bytes
    dialect: Dialect
    rows: Sequence[Sequence[str]]


def damaged_file(seed: int, number: int) -> Damaged:
    draw = random.Random(f"{seed}:{number}")
    dialect, rows = draw.choice(DIALECTS), draw.choice([ROWS, *OTHER_ROWS])
    return Damaged(damage(dialect.write(rows), draw), dialect, rows)


class Reader:
    """Reads files as sqlanon does, all in one engine."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, folder: Path) -> None:
        self._connection, self._path = connection, folder / "people.csv"
        self._engine = DuckDBEngine(connection).use_utc()

    def read(self, content: bytes, are_texts: bool) -> tuple[csv_lines.Layout, list[tuple[Any, ...]]]:
        self._path.write_bytes(content)
        # a name that no file has makes nothing a text
        texts = _Everything() if are_texts else ()
        with source_errors():
            self._engine.execute(drop_table(TABLE.copy(), exists=True))
            layout = csv.copy_csv(Scan(self._engine, [str(self._path)], texts), TABLE)
            return layout, self._connection.execute("FROM copy").fetchall()


class _Everything(frozenset[str]):
    """The names of all columns, whatever they are."""

    def __contains__(self, name: object) -> bool:
        return True


def reference_rows(text: str, delimiter: str, quote: str, escape: str) -> list[list[str]] | None:
    """The rows as Python's csv module reads them, without blank lines; None where it refuses them."""
    reader = reference.reader(
        io.StringIO(text, newline=""),
        delimiter=delimiter,
        quotechar=quote or None,
        quoting=reference.QUOTE_MINIMAL if quote else reference.QUOTE_NONE,
        doublequote=escape in ("", quote),
        escapechar=None if escape in ("", quote) else escape,
        strict=True,
    )
    try:
        return [row for row in reader if row]
    except reference.Error:
        return None


def flaws(file: Damaged, reader: Reader) -> Iterator[str]:
    """Faults in the way sqlanon reads a file; a refusal is not a fault."""
    try:
        layout, rows = reader.read(file.content, are_texts=False)
    except SqlanonError as error:
        yield f"refused: {_kind(error)}"
        if "is read as" not in str(error):
            return
        try:
            layout, rows = reader.read(file.content, are_texts=True)
        except SqlanonError:
            return
    try:
        text = file.content.decode("utf-16" if file.content[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig")
    except UnicodeDecodeError:
        yield "WRONG: invalid UTF-8 is read"
        return
    yield from _flaws_of_table(file, text, layout, rows)


def _flaws_of_table(file: Damaged, text: str, layout: csv_lines.Layout, rows: Sequence[Sequence[Any]]) -> Iterator[str]:
    options, names = layout.csv_files[0].options, list(layout.columns)
    if len(names) == 1 and any(delimiter in text for delimiter in DELIMITERS):
        yield "WRONG: lines with a delimiter are the values of one column"
    lines, skip = _lines(text), int(options["skip"])
    if any(str(options["delim"]) in line for line in lines[:skip]):
        yield "WRONG: lines with a delimiter are skipped"
    comment = str(options["comment"])
    body = "".join(line for line in lines[skip:] if not (comment and line.startswith(comment)))
    types = list(layout.columns.values())
    readings = [reading for part in (body, _without_spaces(body, options)) if (reading := _reference(part, options))]
    if not readings:
        yield "WRONG: Python's csv module refuses these quotes"
    elif not any(are_equal(rows, expected, types, options) for _, expected in readings):
        yield "WRONG: other values than those of Python's csv module"
    elif options["header"] and not any(header == names or not all(header) for header, _ in readings):
        yield "WRONG: other names"
    dialect = {"delim": file.dialect.delimiter, "quote": file.dialect.quote}
    parts = [text, _without_spaces(text, dialect)]  # spaces before quotes are dropped between fields, and kept in them
    tables = [reference_rows(part, file.dialect.delimiter, file.dialect.quote, "") or [] for part in parts]
    width = len(file.rows[0])
    is_of_other_quotes = options["quote"] != file.dialect.quote and str(options["quote"]) in text
    is_table = width > 1 and not is_of_other_quotes and all({len(row) for row in part} == {width} for part in tables)
    if is_table and not any(are_equal(rows, part[bool(options["header"]) :], types, options) for part in tables):
        yield "WRONG: other values than in the dialect of the writer"
    yield "read"


def _reference(text: str, options: csv.Options) -> tuple[list[str], list[list[str]]] | None:
    """The names and the rows as Python's csv module reads them."""
    rows = reference_rows(text, str(options["delim"]), str(options["quote"]), str(options["escape"]))
    if rows is None:
        return None
    return ([name.strip() for name in rows[0]], rows[1:]) if options["header"] else ([], rows)


def _without_spaces(text: str, options: csv.Options) -> str:
    """A text without the spaces around quoted fields, which the engine passes over."""
    delimiter, quote = re.escape(str(options["delim"])), re.escape(str(options["quote"]))
    quoted = rf" *({quote}(?:{quote}{quote}|[^{quote}])*{quote}) *(?={delimiter}|[\r\n]|$)"
    fields = re.compile(rf"(^|{delimiter}|[\r\n])(?:{quoted})?")
    return fields.sub(lambda match: match[1] + (match[2] or ""), text)


def are_equal(
    rows: Sequence[Sequence[Any]], texts: Sequence[Sequence[str]], types: Sequence[str], options: csv.Options
) -> bool:
    """Whether rows have the values that texts say."""
    rows, texts = _without_blank_rows(rows), _without_blank_rows(texts)
    return len(rows) == len(texts) and all(
        len(row) == len(text_row) and all(map(partial(_is_value_of, options), row, text_row, types))
        for row, text_row in zip(rows, texts, strict=True)
    )


def _without_blank_rows(rows: Sequence[Sequence[Any]]) -> list[Sequence[Any]]:
    """Rows but for blank ones of one column."""
    return [row for row in rows if len(row) > 1 or str(row[0] or "").strip() or row[0] == 0]


def _is_value_of(options: csv.Options, value: Any, text: str, type_: str) -> bool:
    if value is None or not text:
        return value is None and not text
    if type_ == "VARCHAR":
        return bool(value.replace("\r\n", "\n") == text.replace("\r\n", "\n"))
    if type_ in ("DATE", "TIMESTAMP") and isinstance(value, str):
        return True  # of a year that Python does not have
    try:
        kind = type_.partition("(")[0]
        return bool(_VALUES[kind](text.strip(), options) == value)
    except (ValueError, ArithmeticError):
        return False


def _day(text: str, options: csv.Options) -> datetime.date:
    if "dateformat" in options:
        return datetime.datetime.strptime(text, str(options["dateformat"])).date()
    return datetime.date(*map(int, re.split("[-/]", text)))


def _moment(text: str, options: csv.Options) -> datetime.datetime:
    if "timestampformat" in options:
        return datetime.datetime.strptime(text, str(options["timestampformat"]))
    text = re.sub(r"(:[\d.]+) ?(UTC|Z|[-+]\d\d(:?\d\d)?|[A-Za-z]+/[\w/+-]+)$", r"\1", text)  # the clock, not its zone
    whole, _, fraction = text.partition(".")
    numbers = [int(part) for part in re.split("[-/ :T]+", whole)]
    year, month, day, hour, minute, second = numbers + [0] * (6 - len(numbers))
    return datetime.datetime(year, month, day, hour, minute, second, int(fraction[:6].ljust(6, "0")))


def _clock(text: str, options: csv.Options) -> datetime.time:
    return _moment(f"2000-01-01 {text}", {}).time()


_VALUES: Mapping[str, Callable[[str, csv.Options], Any]] = {
    **dict.fromkeys(("BIGINT", "HUGEINT"), lambda text, options: int(text.removesuffix("."))),
    "BIGNUM": lambda text, options: str(int(text.removesuffix("."))),
    "DECIMAL": lambda text, options: Decimal(text),
    "DOUBLE": lambda text, options: float(text),
    "BOOLEAN": lambda text, options: text.lower() in ("true", "t", "yes", "y", "1"),
    "DATE": _day,
    **dict.fromkeys(("TIMESTAMP", "TIMESTAMP WITH TIME ZONE"), _moment),
    "TIME": _clock,
}


def _lines(text: str) -> list[str]:
    return re.findall(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+$", text)


def _kind(error: SqlanonError) -> str:
    """The message without names and numbers."""
    return re.sub(r"0x\w\w|\d[\d,]*", "N", re.sub(r"'[^']*'", "...", str(error).replace("people.csv", "FILE")))[:90]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--again")
    arguments = parser.parse_args()
    counts, examples, started = Counter[str](), dict[str, list[str]](), time.perf_counter()
    with tempfile.TemporaryDirectory() as folder, duckdb.connect(config={"threads": 1}) as connection:
        reader = Reader(connection, Path(folder))
        if arguments.again:
            seed, number = map(int, arguments.again.split(":"))
            file = damaged_file(seed, number)
            print(file.content)
            for are_texts in (True, False):
                try:
                    print(*reader.read(file.content, are_texts), sep="\n")
                except SqlanonError as error:
                    print(error)
            print(*flaws(file, reader), sep="\n")
            return 0
        for number in range(arguments.first, arguments.first + arguments.files):
            try:
                messages = list(flaws(damaged_file(arguments.seed, number), reader))
            except Exception as error:  # any that is none of sqlanon's
                messages = [f"WRONG: {type(error).__name__}: {error}"[:150]]
            for flaw in messages:
                counts[flaw] += 1
                examples.setdefault(flaw, []).append(f"{arguments.seed}:{number}")
            if time.perf_counter() - started > arguments.seconds:
                break
    for flaw, count in counts.most_common():
        print(f"{count:8,}  {flaw}  {' '.join(examples[flaw][:6])}")
    print(f"{number + 1 - arguments.first:,} files in {time.perf_counter() - started:,.0f} s")
    return 1 if any(flaw.startswith("WRONG") for flaw in counts) else 0


if __name__ == "__main__":
    sys.exit(main())
