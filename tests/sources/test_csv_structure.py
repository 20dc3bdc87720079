"""Every line of a CSV file has the fields of its header, or the file is refused with the lines that differ."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import duckdb
import pytest

import sqlanon
from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.errors import SourceError
from sqlanon.sources.files import csv
from sqlanon.sources.files.scan import Scan
from sqlanon.support.expressions import table
from support.commands import cli
from support.policies import make_policy

HEADER = "age,sex,illness\n"
ROWS = "21,m,asthma\n53,w,flu\n" * 20
FEW = "line 1 has 3 fields (delimiter ','), and "


def copy_rows(path: Path) -> list[tuple[Any, ...]]:
    with duckdb.connect() as connection:
        csv.copy_csv(Scan(DuckDBEngine(connection).use_utc(), [str(path)]), table("copy"))
        return connection.execute("FROM copy").fetchall()


def refusal(path: Path) -> str:
    with pytest.raises(SourceError) as caught:
        copy_rows(path)
    message = str(caught.value)
    assert message.startswith(f"source.files: {path.name}: ")
    return message.removeprefix(f"source.files: {path.name}: ")


BROKEN = {
    "lines without a value at the end": (
        HEADER + ROWS + ",,\n\n" + ', ,""\n',
        "the last 2 lines have no value: set footer = 2 under [source.csv] to leave them out, or footer = 0 to read "
        "all lines as rows",
    ),
    "a line of totals": (
        "ward;age\nx1;20\nx2;30\nTotal:;50\n",
        "the last line begins with 'Total:': set footer = 1 under [source.csv] to leave it out, or footer = 0 to read "
        "all lines as rows",
    ),
    "a second header": (HEADER + ROWS + HEADER + ROWS, "line 42 repeats line 1: remove it"),
    "a person above the rows": (
        "m,flu,Oslo\nw,asthma,Rome\nw,flu,Bonn\n",
        "'flu' is in line 1 and, in the same column, in line 3: set header = false under [source.csv] if line 1 is a "
        "row, otherwise header = true",
    ),
    "a short line": (HEADER + ROWS + "5,m\n" + ROWS, FEW + "1 line differs: line 42 has 2; correct these lines"),
    "a short line in a tiny file": (
        "a,b\n1,2\n3\n",
        "line 1 has 2 fields (delimiter ','), and 1 line differs: line 3 has 1; correct these lines",
    ),
    "a long line": (HEADER + ROWS + "5,m,flu,x\n" + ROWS, FEW + "1 line differs: line 42 has 4; correct these lines"),
    "a long line of two empty fields": (HEADER + ROWS + "5,m,flu,,\n", FEW + "1 line differs: line 42 has 5; correct"),
    "a line that ends in a delimiter": (HEADER + ROWS + "5,m,flu,\n", FEW + "1 line differs: line 42 has 4; correct"),
    "an empty value and a delimiter": (HEADER + ROWS + "5,m,,\n" + ROWS, FEW + "1 line differs: line 42 has 4"),
    "a delimiter at the end of a file": (HEADER + ROWS + "5,m,flu,", FEW + "1 line differs: line 42 has 4; correct"),
    "a truncated last line": (HEADER + ROWS + "5,m", FEW + "1 line differs: line 42 has 2; correct these lines"),
    "a footer": (HEADER + ROWS + "Total: 40\n", FEW + "1 line differs: line 42 has 1; correct these lines"),
    "many": (
        HEADER + ("1,2\n" + ROWS + "1,2,3,4\n") * 4,
        FEW + "8 lines differ: line 2 has 2, line 43 has 4, line 44 has 2, line 85 has 4, line 86 has 2, and 3 more",
    ),
    "an extra delimiter in the header": (
        "age,sex,illness,\n" + ROWS,
        "the header (line 1) ends with an extra ',': it has 4 fields, and the 40 lines below it have 3; remove the "
        "last ',' of the header",
    ),
    "an extra delimiter in all rows": (
        HEADER + ROWS.replace("\n", ",\n"),
        "all lines below the header end with an extra ',': they have 4 fields, and the header (line 1) has 3; remove "
        "the last ',' of each line",
    ),
    "an extra delimiter in all lines": (
        (HEADER + ROWS).replace("\n", ",\n"),
        "every line ends with an extra ','; remove it from each line",
    ),
    "an extra tab in all lines": (
        (HEADER + ROWS).replace(",", "\t").replace("\n", "\t\r\n"),
        "every line ends with an extra tab; remove it from each line",
    ),
    "a header without a name for each field": (
        "age,sex\n" + ROWS,
        "line 1 has 2 fields (delimiter ','), and the 40 lines below it have 3; give each field a name in the "
        "header; if the line is above the header, set skip under [source.csv]",
    ),
    "text after a closing quote": (
        HEADER + ROWS + '5,m,"6" pipe\n' + ROWS,
        FEW + "1 line differs: line 42 has a quote that is not closed, or text after a closing quote; correct",
    ),
    "a quote that is not closed": (
        HEADER + ROWS + '5,m,"flu\n' + ROWS,
        FEW + "1 line differs: line 42 has a quote that is not closed, or text after a closing quote; correct",
    ),
    "quotes around line ends": (
        HEADER + ROWS + '5,"m,flu\n6,w,flu\n7,m",flu\n' + ROWS,
        "a quoted value in row 41 has line breaks, and its lines look like separate rows",
    ),
    "quotes around one line end": (HEADER + ROWS + '5,"m,flu\n7,m",flu\n' + ROWS, "a quoted value in row 41 has line"),
    "a NUL byte": (HEADER + ROWS + "5,m,fl\0u\n", "line 42 has a NUL byte; the file is damaged or not UTF-8"),
    "prose": ("note\nwell\nill, and old\nwell\n", "no delimiter splits its lines into the same number of fields"),
    "one late semicolon": ("note\n" + "well\n" * 20 + "ill;old\n", "the first 21 lines have no ';', and line 22 has; "),
    "notes above a table": (
        "a\nb\nc\nd\n" + HEADER + ROWS,
        "the first 4 lines have no ',', and line 5 has; if they",
    ),
    "two delimiters": ("a;b,c\n" + "1;2,3\n" * 9, "',' and ';' each split all lines into the same number of fields"),
    "a title with a delimiter": (
        "Export, of 2001\n" + HEADER + ROWS,
        "line 1 has 2 fields (delimiter ','), and the 41",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_file_is_refused_with_its_lines(case: str, tmp_path: Path) -> None:
    content, message = BROKEN[case]
    (tmp_path / "people.csv").write_bytes(content.encode())
    assert message in refusal(tmp_path / "people.csv")


@pytest.mark.slow
@pytest.mark.parametrize("case", ["a short line", "an empty value and a delimiter", "a NUL byte", "prose"])
def test_a_packed_file_is_refused_as_well(case: str, tmp_path: Path) -> None:
    content, message = BROKEN[case]
    (tmp_path / "people.csv.gz").write_bytes(gzip.compress(content.encode()))
    assert message in refusal(tmp_path / "people.csv.gz")


def test_a_truncated_packed_file_is_refused(tmp_path: Path) -> None:
    packed = gzip.compress((HEADER + ROWS).encode())
    (tmp_path / "people.csv.gz").write_bytes(packed[:-20])
    with pytest.raises((SourceError, duckdb.Error)):
        copy_rows(tmp_path / "people.csv.gz")


@pytest.mark.slow
def test_a_file_that_only_the_engine_unpacks_is_refused_as_well(tmp_path: Path) -> None:
    path = tmp_path / "people.csv.zst"
    cases = {"5,m": "line 42 has 2", '5,"m,flu\n7,m",flu': "a quoted value in row 41"}
    for broken, message in cases.items():
        lines = [*ROWS.splitlines(), broken, *ROWS.splitlines()]
        with duckdb.connect() as connection:
            connection.execute('CREATE TABLE lines AS SELECT unnest(?) AS "age,sex,illness"', [lines])
            connection.execute(f"COPY lines TO '{path}' (COMPRESSION zstd, DELIMITER '|', QUOTE '')")
        assert message in refusal(path)


LATE = {
    "5,m\n": "1 line differs: line 43,558 has 2; correct these lines",
    "5,m,flu,\n": "1 line differs: line 43,558 has 4; correct these lines",
    "5,m,,\n": "1 line differs: line 43,558 has 4; correct these lines",
    '5,"m,flu\n6,w,flu\n7,m",flu\n': "a quoted value in row 43,557 has line breaks",
    '5,m,"flu" x\n': "1 line differs: line 43,558 has a quote that is not closed, or text after a closing quote",
}


@pytest.mark.thorough
@pytest.mark.parametrize("line", LATE)
def test_a_broken_line_far_behind_the_first_lines_is_found(line: str, tmp_path: Path) -> None:
    (tmp_path / "people.csv").write_text(HEADER + "21,m,asthma\n" * 43_556 + line + ROWS)
    assert LATE[line] in refusal(tmp_path / "people.csv")


def test_a_delimiter_far_behind_the_first_lines_of_one_column_is_found(tmp_path: Path) -> None:
    (tmp_path / "people.csv").write_text("age\n" + "21\n" * 43_556 + "22;m\n")
    assert "row 43,557 has ',', ';', '|' or a tab" in refusal(tmp_path / "people.csv")


READ = {
    "one column": ("name\nAnn\nBob\n", [("Ann",), ("Bob",)]),
    "one column with a blank line": ("age\n1\n\n3\n", [(1,), (None,), (3,)]),
    "blank lines": ("a,b\n1,2\n\n3,4\n\n", [(1, 2), (3, 4)]),
    "quoted line breaks": ('a,b,c\n1,"x\ny",2\n', [(1, "x\ny", 2)]),
    "a quoted letter of many lines": (
        'a,b,c\n1,"Dear Ann,\nall is well,\nBob",2\n',
        [(1, "Dear Ann,\nall is well,\nBob", 2)],
    ),
    "a quoted address": ('a,b\n1,"Main St 1\nSpringfield, IL"\n', [(1, "Main St 1\nSpringfield, IL")]),
    "quoted delimiters": ('a,b\n1,"x,y"\n2,z\n', [(1, "x,y"), (2, "z")]),
    "a quote inside a value": ('a,b\n1,6" pipe\n2,z\n', [(1, '6" pipe'), (2, "z")]),
    "an empty last column": ("a,b\n1,\n2,\n", [(1, None), (2, None)]),
    "empty values": (
        'a,b,c\n1,,x\n2,"",y\n,,\n3,4,z\n',
        [(1, None, "x"), (2, None, "y"), (None, None, None), (3, 4, "z")],
    ),
    "totals among rows": ("a;b\nTotal;1\nx;2\nTotal;3\n", [("Total", 1), ("x", 2), ("Total", 3)]),
    "a title": ("Export of 2001\na,b\n1,2\n3,4\n5,6\n", [(1, 2), (3, 4), (5, 6)]),
    "decimal commas between semicolons": ("x;y\n1,5;2,5\n3,5;4,5\n", [("1,5", "2,5"), ("3,5", "4,5")]),
}


@pytest.mark.cases(2)
@pytest.mark.parametrize("case", READ)
def test_a_sound_file_is_read(case: str, tmp_path: Path) -> None:
    content, rows = READ[case]
    (tmp_path / "people.csv").write_text(content)
    assert copy_rows(tmp_path / "people.csv") == rows


@pytest.mark.cases(1)
@pytest.mark.parametrize("header", ["age,sex,illness,\n", HEADER + "5,m\n"], ids=["extra delimiter", "short line"])
def test_no_source_line_becomes_a_value_of_a_release(header: str, tmp_path: Path) -> None:
    """The sniffer alone makes one column of whole lines, which a local strategy would release as sets of lines."""
    (tmp_path / "people.csv").write_text(header + ROWS)
    column = header.splitlines()[0]
    policy = make_policy({column: "suppress"}, table=None, search={"strategy": "mondrian", "summary": "set"})
    with sqlanon.connect(tmp_path / "people.csv") as db:
        for verb in (db.anonymize, db.plan, db.risk):
            with pytest.raises(SourceError, match=r"people\.csv: (the header|line 1)"):
                verb(policy)
        with pytest.raises(SourceError, match=r"people\.csv: (the header|line 1)"):
            db.suggest()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("separator", "message"),
    [
        (":", "':' splits all of them into 3 fields: set delimiter = ':'"),
        ("\x01", r"'\x01' splits all of them into 3 fields"),
        (" ", "a space splits all of them into 3 fields"),
        ("   ", "columns of a fixed width are not read"),
        ("||", "the delimiter '|' twice between names"),
    ],
)
def test_lines_with_an_unusual_separator_are_split(tmp_path: Path, separator: str, message: str) -> None:
    rows = [("age", "sex", "ill"), *((str(20 + i), "mf"[i % 2], "flu") for i in range(20))]
    file = tmp_path / "x.csv"
    file.write_text("".join(separator.join(row) + "\n" for row in rows))
    ended = cli("inspect", str(file))
    assert ended.status == 2 and message in ended.err
    if len(separator) == 1:
        assert "3 columns" in cli("inspect", str(file), "--csv", f"delimiter={separator}").out


def test_a_column_of_times_is_one_column(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("time\n12:30\n08:15\n")
    assert "2 rows, 1 column" in cli("inspect", str(tmp_path / "x.csv")).out
