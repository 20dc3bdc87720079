"""Small files as people have them: each has one peculiarity, and an approved answer.

`python tests/sources/small_files.py` reads all of them and writes tests/golden/small_files.txt. Read the diff: each
answer must be the table that a careful person reads in the file, or a refusal with the line, the reason and the key
that decides.
"""

from __future__ import annotations

import codecs
import datetime
import gzip
import io
import json
import re
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

import duckdb
import openpyxl

from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.errors import SqlanonError
from sqlanon.policy import SourceSection
from sqlanon.sources.files.binding import bind_files
from sqlanon.sources.source import WorkNames
from sqlanon.support.expressions import table

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support.workbooks import workbook

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "small_files.txt"

HEADER = "age,sex,illness\n"
ROWS = "21,m,asthma\n53,w,flu\n"
LATE = 43_556  # rows: far behind those that are sniffed


@dataclass(frozen=True)
class SmallFile:
    """A file, the keys that a policy has for it, and the columns that the policy reads as texts."""

    title: str
    content: str | bytes
    csv: Mapping[str, Any] = field(default_factory=dict)
    texts: Sequence[str] = ()
    name: str = "people.csv"
    sheet: str | None = None  # the key `table`, for Excel files
    others: Mapping[str, str | bytes] = field(default_factory=dict)  # more files of the source

    @property
    def files(self) -> dict[str, bytes]:
        contents = {self.name: self.content, **self.others}
        return {name: part.encode() if isinstance(part, str) else part for name, part in contents.items()}


def parquet(query: str) -> bytes:
    with tempfile.TemporaryDirectory() as folder, duckdb.connect() as connection:
        connection.execute(f"COPY ({query}) TO '{folder}/people.parquet'")
        return Path(folder, "people.parquet").read_bytes()


NAMES = "name,city\nMüller,Köln\nRené,Orléans\n"
JAPANESE = "name,city\nソポ,東京\n鈴木,大阪\n"
CHINESE = "name,city\n李明,北京\n王芳,上海\n"
BUNDLE = {
    "resourceType": "Bundle",
    "entry": [{"resource": {"resourceType": "Patient", "gender": "male", "name": [{"family": "Ito"}]}}],
}


def column(name: str, *values: str) -> str:
    """A file in which values of a column stand among others."""
    sexes = "mw" if len(values) < 9 else "m"
    return f"{name},sex\n" + "".join(f"{value},{sexes[i % len(sexes)]}\n" for i, value in enumerate(values))


def semicolons(name: str, *values: str) -> str:
    return f"{name};sex\n" + "".join(f"{value};{'mw'[i % 2]}\n" for i, value in enumerate(values))


STRUCTURE = [
    SmallFile("commas", HEADER + ROWS),
    SmallFile("semicolons", (HEADER + ROWS).replace(",", ";")),
    SmallFile("tabs", (HEADER + ROWS).replace(",", "\t"), name="people.tsv"),
    SmallFile("bars", (HEADER + ROWS).replace(",", "|"), name="people.txt"),
    SmallFile("colons", (HEADER + ROWS).replace(",", ":")),
    SmallFile("colons, with the key", (HEADER + ROWS).replace(",", ":"), {"delimiter": ":"}),
    SmallFile("two characters between fields", (HEADER + ROWS).replace(",", "||")),
    SmallFile("fields of a fixed width", "age sex illness\n 21 m   asthma \n 53 w   flu    \n"),
    SmallFile("spaces between fields", (HEADER + ROWS).replace(",", " ")),
    SmallFile("spaces behind commas", (HEADER + ROWS).replace(",", ", ")),
    SmallFile("quotes behind spaces", 'age, note\n21, "ill, old"\n53, "well"\n'),
    SmallFile("Excel's line with the delimiter", "sep=;\n" + (HEADER + ROWS).replace(",", ";")),
    SmallFile("line ends of Windows", (HEADER + ROWS).replace("\n", "\r\n")),
    SmallFile("line ends of old Macs", (HEADER + ROWS).replace("\n", "\r")),
    SmallFile("line ends of two kinds", HEADER + ROWS.replace("\n", "\r\n") + ROWS),
    SmallFile("no line end behind the last line", (HEADER + ROWS)[:-1]),
    SmallFile("blank lines", HEADER + ROWS + "\n" + ROWS + "\n\n"),
    SmallFile("lines of spaces", HEADER + ROWS + "   \n" + ROWS),
    SmallFile("lines of delimiters", HEADER + ROWS + ",,\n,,\n"),
    SmallFile("quoted delimiters", 'age,note\n21,"ill, old"\n53,well\n'),
    SmallFile("quoted line ends", 'age,sex,note\n21,m,"ill\nold"\n53,w,well\n'),
    SmallFile("doubled quotes", 'age,note\n21,"a ""bad"" leg"\n53,"""well"""\n'),
    SmallFile("quotes behind backslashes", 'age,note\n21,"a \\"bad\\" leg"\n53,"well, old"\n'),
    SmallFile("backslashes", "age,note\n21,C:\\temp\n53,a\\b\n"),
    SmallFile("apostrophes for quotes", "age,note\n21,'ill, old'\n53,'well'\n"),
    SmallFile("apostrophes in names", "age,name\n21,O'Neill\n53,'t Hooft\n"),
    SmallFile("apostrophes in names, with the key", "age,name\n21,O'Neill\n53,'t Hooft\n", {"quote": '"'}),
    SmallFile("a quote for inches", 'age,note\n21,6" pipe\n53,well\n'),
    SmallFile("all fields quoted", '"age","sex"\n"21","m"\n"53","w"\n'),
    SmallFile("one column", "age\n21\n53\n"),
    SmallFile("one column of names", "name\nAnn\nBob\n"),
    SmallFile("one column with a blank line", "age\n21\n\n53\n"),
    SmallFile("one column of sentences", "note\nwell\nill, and old\nwell\n"),
    SmallFile("one column of sentences, with the key", "note\nwell\nill, and old\nwell\n", {"delimiter": "\t"}),
    SmallFile("one column of quoted sentences", 'note\n"well, old"\n"ill, and old"\n'),
    SmallFile("an extra delimiter in the header", "age,sex,illness,\n" + ROWS),
    SmallFile("an extra delimiter in all rows", HEADER + ROWS.replace("\n", ",\n")),
    SmallFile("an extra delimiter in all lines", (HEADER + ROWS).replace("\n", ",\n")),
    SmallFile("an extra delimiter in one row", HEADER + ROWS + "5,m,flu,\n"),
    SmallFile("a short line", HEADER + ROWS * 2 + "5,m\n" + ROWS),
    SmallFile("a long line", HEADER + ROWS * 2 + "5,m,flu,x\n" + ROWS),
    SmallFile("a late short line", HEADER + "21,m,asthma\n" * LATE + "5,m\n"),
    SmallFile("a late long line", HEADER + "21,m,asthma\n" * LATE + "5,m,flu,x\n"),
    SmallFile("a decimal comma between commas", "age,cost\n21,1,5\n53,2,5\n54,2\n"),
    SmallFile("a truncated last line", HEADER + ROWS * 2 + "5,m"),
    SmallFile("a last line truncated in quotes", HEADER + ROWS * 2 + '5,m,"as'),
    SmallFile("a quote that is not closed", HEADER + ROWS * 2 + '5,m,"flu\n' + ROWS),
    SmallFile("text behind a closing quote", HEADER + ROWS * 2 + '5,m,"6" pipe\n' + ROWS),
    SmallFile("rows between stray quotes", HEADER + ROWS + '5,"m,flu\n6,w,flu\n7,m",flu\n' + ROWS),
    SmallFile("a NUL byte", HEADER + ROWS + "5,m,fl\0u\n"),
    SmallFile("a title", "Patients of 2001\n" + HEADER + ROWS * 2),
    SmallFile("a title and a blank line", "Patients of 2001\n\n" + HEADER + ROWS * 2),
    SmallFile("a title with a comma", "Patients, 2001\n" + HEADER + ROWS * 2),
    SmallFile("a title with a comma, with the key", "Patients, 2001\n" + HEADER + ROWS * 2, {"skip": 1}),
    SmallFile("a title with as many delimiters", "Patients,,\n" + HEADER + ROWS * 2),
    SmallFile("a footer", HEADER + ROWS * 2 + "Source: ward 3\n"),
    SmallFile("a footer, with the key", HEADER + ROWS * 2 + "Source: ward 3\n", {"footer": 1}),
    SmallFile("a total", semicolons("age", "21", "53", "21") + "Total;95\n"),
    SmallFile("a total, with the key", semicolons("age", "21", "53", "21") + "Total;95\n", {"footer": 1}),
    SmallFile("a line of units", "age,cost\nyears,EUR\n21,1\n53,2\n"),
    SmallFile("a header in the middle", HEADER + ROWS + HEADER + ROWS),
    SmallFile("two tables", HEADER + ROWS + "\nward,beds\n3,20\n"),
    SmallFile("two delimiters that fit", "a;b,c\n1;2,3\n4;5,6\n"),
    SmallFile("two delimiters that fit, with the key", "a;b,c\n1;2,3\n4;5,6\n", {"delimiter": ";"}),
    SmallFile("comments", "# exported in 2001\n" + HEADER + ROWS),
    SmallFile("comments between rows", HEADER + ROWS + "# ward 3\n" + ROWS),
    SmallFile("values that begin like comments", "room,sex\n#1,m\n#2,w\n#3,m\n"),
    SmallFile("no header", ROWS),
    SmallFile("no header, of texts", "Bob,Oslo\nAnn,Rome\nEve,Bern\n"),
    SmallFile("no header, of texts, with the key", "Bob,Oslo\nAnn,Rome\nEve,Bern\n", {"header": False}),
    SmallFile("a header above texts", "name,city\nBob,Oslo\nAnn,Rome\n"),
    SmallFile("a header above texts, with the key", "name,city\nAnn,Rome\n", {"header": True}),
    SmallFile("a header of years", "2019,2020\n17,18\n21,20\n"),
    SmallFile("a header of years, with the key", "2019,2020\n17,18\n21,20\n", {"header": True}),
    SmallFile("a header with a blank name above texts", '"","type"\n"1","NA"\n"2","car"\n'),
    SmallFile("a header alone", HEADER),
    SmallFile("a header alone with a blank name", '"","type"\n'),
    SmallFile("a header and one row", HEADER + "21,m,asthma\n"),
    SmallFile("nothing", ""),
    SmallFile("blank lines alone", "\n\n \n"),
    SmallFile("a page of the web", "<!DOCTYPE html>\n<html>\n<body>\n<p>Log in, please</p>\n</body>\n</html>\n"),
    SmallFile("a table of Markdown", "| age | sex |\n| --- | --- |\n| 21 | m |\n| 53 | w |\n"),
    SmallFile("a workbook with a wrong ending", b"PK\x03\x04\x14\x00\x06\x00\x08\x00\x00\x00!\x00\xb5U0#\xf4\n\x01,\n"),
    SmallFile("JSON with a wrong ending", '[{"age": 21, "sex": "m"},\n {"age": 53, "sex": "w"}]\n'),
]

ENCODINGS = [
    SmallFile("UTF-8", NAMES),
    SmallFile("UTF-8 with a mark", codecs.BOM_UTF8 + NAMES.encode()),
    SmallFile("UTF-8 with a mark before a quote", codecs.BOM_UTF8 + b'"name","city"\n"Ann","Rome"\n"Bob","Oslo"\n'),
    SmallFile("UTF-8 with a mark, with the key", codecs.BOM_UTF8 + NAMES.encode(), {"encoding": "utf-8"}),
    SmallFile("marked files one behind another", (codecs.BOM_UTF8 + b"age,sex\n21,m\n") * 2),
    SmallFile("UTF-8 with one byte of latin-1", NAMES.encode() + b"Jos\xe9,Lima\n"),
    SmallFile("UTF-8 with a truncated last character", NAMES.encode() + "José,Limé".encode()[:-1]),
    SmallFile("UTF-8 with half of a pair", NAMES.encode() + b"\xed\xa0\x80,Lima\n"),
    SmallFile("UTF-16", NAMES.encode("utf-16")),
    SmallFile("UTF-16 of old Macs", codecs.BOM_UTF16_BE + NAMES.encode("utf-16-be")),
    SmallFile("UTF-16 with an odd byte", NAMES.encode("utf-16")[:-1]),
    SmallFile("UTF-16 without a mark", NAMES.encode("utf-16-le")),
    SmallFile("UTF-16 without a mark, with the key", NAMES.encode("utf-16-le"), {"encoding": "utf-16-le"}),
    SmallFile("UTF-32", NAMES.encode("utf-32")),
    SmallFile("latin-1", NAMES.encode("latin-1")),
    SmallFile("latin-1, with the key", NAMES.encode("latin-1"), {"encoding": "latin-1"}),
    SmallFile("latin-1 in the header", "größe,ort\n1,Ulm\n2,Bern\n".encode("latin-1")),
    SmallFile("latin-1, late", b"name,city\n" + b"Ann,Rome\n" * LATE + "René,Lyon\n".encode("latin-1")),
    SmallFile("windows-1252, with the key", "name,cost\nRené,5 €\nŽana,6 €\n".encode("cp1252"), {"encoding": "cp1252"}),
    SmallFile("a byte that windows-1252 has not", b"name,city\n\x81,Rome\n", {"encoding": "windows-1252"}),
    SmallFile("shift-jis", JAPANESE.encode("shift-jis")),
    SmallFile("shift-jis, with the key", JAPANESE.encode("shift-jis"), {"encoding": "shift-jis"}),
    SmallFile("gb18030, with the key", CHINESE.encode("gb18030"), {"encoding": "gb18030"}),
    SmallFile("cp437, with the key", NAMES.encode("cp437"), {"encoding": "cp437"}),
    SmallFile("another encoding than the key's", NAMES.encode("latin-1"), {"encoding": "utf-8"}),
    SmallFile("UTF-8 that is said to be latin-1", NAMES, {"encoding": "latin-1"}),
    SmallFile(
        "UTF-8 with a mark that is said to be latin-1", codecs.BOM_UTF8 + NAMES.encode(), {"encoding": "latin-1"}
    ),
    SmallFile("packed UTF-16", gzip.compress(NAMES.encode("utf-16"), mtime=0), name="people.csv.gz"),
    SmallFile("emoji", "name,mood\nAnn,😀\nBob,👩‍👧\n"),
    SmallFile("letters from right to left", "שם,עיר\nדוד,חיפה\nרות,יפו\n"),
]

NUMBERS = [
    SmallFile("whole numbers", column("age", "21", "-5", "0")),
    SmallFile("numbers with a plus", column("change", "+2", "-1", "+3")),
    SmallFile("leading zeros", column("zip", "02139", "10115", "00501")),
    SmallFile("leading zeros in a text", column("zip", "02139", "10115", "00501"), texts=["zip"]),
    SmallFile("a late leading zero", column("zip", *["10115"] * 2_500, "02139")),
    SmallFile("numbers in a text", column("zip", "2139", "10115", "501"), texts=["zip"]),
    SmallFile("padded numbers", column("age", " 21", "53 ", " 7 ")),
    SmallFile("quoted numbers", column("age", '"21"', '"53"', '"7"')),
    SmallFile("decimals", column("cost", "1.5", "2.25", "-0.5")),
    SmallFile("decimals of money", column("cost", "0.10", "19.99", "1000000.01")),
    SmallFile("decimals without a digit on a side", column("cost", ".5", "2.", "-.25")),
    SmallFile("whole numbers and decimals", column("cost", "1", "2.5", "3")),
    SmallFile("a late decimal", column("cost", *["1"] * 2_500, "2.5")),
    SmallFile("decimals of 20 digits", column("dose", "0.12345678901234567891", "1.5", "2.5")),
    SmallFile("decimals beyond 2^53", column("cost", "9007199254740993.5", "1.5", "2.5")),
    SmallFile("decimal commas", semicolons("cost", "1,5", "2,25", "-0,5")),
    SmallFile("quoted decimal commas", column("cost", '"1,5"', '"2,25"', '"0,5"')),
    SmallFile("thousands with commas", column("cost", '"1,234"', '"12,345"', '"7"')),
    SmallFile("thousands with points", semicolons("cost", "1.234", "12.345", "7.000")),
    SmallFile("points that are no thousands", semicolons("cost", "1.234", "0.345", "7")),
    SmallFile("thousands with points and decimal commas", semicolons("cost", "1.234,50", "12.345,00", "7,25")),
    SmallFile("thousands with spaces", column("cost", "1 234", "12 345", "7")),
    SmallFile("currency signs", column("cost", "€5", "$7", "£9")),
    SmallFile("percent signs", column("share", "5%", "7%", "9 %")),
    SmallFile("exponents", column("count", "1e3", "2E-2", "1.5e+10")),
    SmallFile("whole numbers beyond 2^53", column("id", "9007199254740993", "9007199254740995", "1")),
    SmallFile("whole numbers beyond 2^63", column("id", "9223372036854775808", "18446744073709551617", "1")),
    SmallFile("whole numbers of 40 digits", column("id", "1" * 40, "2" * 40, "3")),
    SmallFile("a late whole number beyond 2^63", column("id", *["1"] * 2_500, "18446744073709551617")),
    SmallFile("numbers beyond all doubles", column("x", "1e400", "1.5", "2.5")),
    SmallFile("infinity and nan", column("x", "inf", "nan", "1.5")),
    SmallFile("minus zero", column("x", "-0", "0", "1")),
    SmallFile("hexadecimal numbers", column("x", "0x10", "0xff", "0x1")),
    SmallFile("numbers with underscores", column("x", "1_000", "2_000", "3_000")),
    SmallFile("a minus behind numbers", column("x", "5-", "7-", "9")),
    SmallFile("negative numbers in brackets", column("x", "(5)", "7", "(9)")),
    SmallFile("a letter among numbers", column("age", "21", "4e", "53")),
    SmallFile("a letter among many numbers", column("age", *["21"] * 2_500, "4e")),
    SmallFile("digits of another script", column("age", "٢١", "٥٣", "٧")),
    SmallFile("truth values", column("ill", "true", "false", "true")),
    SmallFile("truth values as letters", column("ill", "T", "F", "T")),
    SmallFile("truth values as words", column("ill", "yes", "no", "yes")),
    SmallFile("truth values as numbers", column("ill", "1", "0", "1")),
    SmallFile("a late one among truth values", column("ill", *["true"] * 2_500, "1")),
    SmallFile("codes with letters", column("icd", "J45", "E11.9", "1E5")),
    SmallFile("codes that look like exponents", column("icd", "1E5", "2E7", "3E9")),
]

DATES = [
    SmallFile("days", column("born", "1999-12-31", "2001-02-03", "1980-05-06")),
    SmallFile("days without zeros", column("born", "1999-2-3", "2001-12-3", "1980-5-6")),
    SmallFile("days with slashes, year first", column("born", "1999/12/31", "2001/02/03", "1980/05/06")),
    SmallFile("German days", column("born", "31.12.1999", "03.02.2001", "06.05.1980")),
    SmallFile("German days that are ambiguous", column("born", "01.12.1999", "03.02.2001", "06.05.1980")),
    SmallFile("American days", column("born", "12/31/1999", "2/3/2001", "5/6/1980")),
    SmallFile("British days", column("born", "31/12/1999", "03/02/2001", "06/05/1980")),
    SmallFile("days that are ambiguous", column("born", "01/12/1999", "03/02/2001", "06/05/1980")),
    SmallFile("days of both orders", column("born", "31/12/1999", "12/31/1999", "06/05/1980")),
    SmallFile("a late day of the other order", column("born", *["01/12/1999"] * 2_500, "31/12/1999")),
    SmallFile("years of two digits", column("born", "1/24/56", "2/3/01", "5/6/80")),
    SmallFile("German years of two digits", column("born", "24.01.56", "03.02.01", "06.05.80")),
    SmallFile("days without separators", column("born", "19560412", "20010203", "19800506")),
    SmallFile("days with names of months", column("born", "31-Dec-1999", "03-Feb-2001", "06-May-1980")),
    SmallFile("days in words", column("born", '"December 31, 1999"', '"February 3, 2001"', '"May 6, 1980"')),
    SmallFile("days that do not exist", column("born", "1999-02-30", "2001-02-03", "1980-05-06")),
    SmallFile("days of zeros", column("born", "0000-00-00", "2001-02-03", "1980-05-06")),
    SmallFile("far days", column("born", "9999-12-31", "0001-01-01", "1980-05-06")),
    SmallFile("days before Christ", column("born", "0044-03-15 (BC)", "2001-02-03", "1980-05-06")),
    SmallFile("years", column("born", "1999", "2001", "1980")),
    SmallFile("months", column("born", "1999-12", "2001-02", "1980-05")),
    SmallFile("quarters", column("born", "1999-Q4", "2001-Q1", "1980-Q2")),
    SmallFile("weeks", column("born", "1999-W52", "2001-W05", "1980-W19")),
    SmallFile("partial dates", column("born", "1981", "1980-05", "1980-05-06")),
    SmallFile("a late partial date", column("born", *["1999-12-31"] * 2_500, "1981")),
    SmallFile("serial numbers of Excel", column("born", "36525", "36925", "29347")),
    SmallFile("moments", column("seen", "1999-12-31 10:00:00", "2001-02-03 00:00:00", "1980-05-06 23:59:59")),
    SmallFile("moments at midnight", column("seen", "1999-05-02 00:00:00.000", "2001-02-03 00:00:00.000")),
    SmallFile("moments without seconds", column("seen", "1999-12-31 10:00", "2001-02-03 00:00", "1980-05-06 23:59")),
    SmallFile("moments with a T", column("seen", "1999-12-31T10:00:00", "2001-02-03T00:00:00")),
    SmallFile("moments of UTC", column("seen", "1999-12-31T10:00:00Z", "2001-02-03T00:00:00Z")),
    SmallFile("moments with an offset", column("seen", "2024-01-31T10:00+02:00", "2024-07-31T00:30+02:00")),
    SmallFile("moments with offsets", column("seen", "2024-01-31T10:00+02:00", "2024-07-31T00:30-05:00")),
    SmallFile("moments with and without an offset", column("seen", "2024-01-31T10:00+02:00", "2024-07-31T00:30")),
    SmallFile("moments of a zone", column("seen", "2024-01-31 10:00:00 Europe/Berlin", "2024-07-31 00:30:00 UTC")),
    SmallFile("moments of nanoseconds", column("seen", "1999-12-31 10:00:00.123456789", "2001-02-03 00:00:00.5")),
    SmallFile("German moments", column("seen", "31.12.1999 10:00", "03.02.2001 00:00")),
    SmallFile("American moments", column("seen", "12/31/1999 10:00 PM", "2/3/2001 1:05 AM")),
    SmallFile("days and moments", column("seen", "1999-12-31", "2001-02-03 10:30:00")),
    SmallFile("a late moment among days", column("seen", *["1999-12-31"] * 2_500, "2001-02-03 10:30:00")),
    SmallFile("a word behind a moment", column("seen", *["1999-12-31 10:00:00"] * 2_500, "2001-02-03 10:30:00 foo")),
    SmallFile("times", column("seen", "10:00:00", "23:59:59", "00:00:00")),
    SmallFile("times without seconds", column("seen", "10:00", "23:59", "9:05")),
    SmallFile("lengths of time", column("stay", "25:00:00", "100:30:00", "01:00:00")),
    SmallFile("leap seconds", column("seen", "2016-12-31 23:59:60", "2001-02-03 00:00:00")),
    SmallFile("days in a text", column("born", "1999-2-3", "2001-12-3", "1980-5-6"), texts=["born"]),
]

MISSING = [
    SmallFile("empty numbers", column("age", "21", "", "53")),
    SmallFile("empty texts", column("name", "Ann", "", "Bob")),
    SmallFile("quoted empty texts", column("name", "Ann", '""', "Bob")),
    SmallFile("texts of spaces", column("name", "Ann", " ", "Bob")),
    SmallFile("numbers of spaces", column("age", "21", " ", "53")),
    SmallFile("an empty column", column("note", "", "", "")),
    SmallFile("a column that begins late", column("note", *[""] * 4_500, "7")),
    *(
        SmallFile(f"{code} among numbers", column("age", "21", code, "53"))
        for code in ("NA", "N/A", "NULL", "\\N", ".", "?", "-", "nan", "None", "*", "#N/A")
    ),
    *(SmallFile(f"{code} among ages", column("age", "21", "53", "40", code)) for code in ("-9", "99", "999", "9999")),
    SmallFile("NA among texts", column("country", "DE", "NA", "FR")),
    SmallFile("NULL among texts", column("name", "Ann", "NULL", "Bob")),
    SmallFile("NA among days", column("born", "1999-12-31", "NA", "1980-05-06")),
    SmallFile("an asterisk among texts", column("smokes", "yes", "*", "no")),
    SmallFile("9999-12-31 among days", column("died", "2001-02-03", "9999-12-31", "2001-02-04")),
    SmallFile("a late NA", column("age", *["21"] * 2_500, "NA")),
]

COLUMN_NAMES = [
    SmallFile("padded names", " age , sex\n21,m\n53,w\n"),
    SmallFile("quoted names", '"age, in years","sex"\n21,m\n53,w\n'),
    SmallFile("names with quotes", '"the ""age""",sex\n21,m\n53,w\n'),
    SmallFile("names with line ends", '"age\nin years",sex\n21,m\n53,w\n'),
    SmallFile("names with points", "person.age,person.sex\n21,m\n53,w\n"),
    SmallFile("names of other scripts", "Größe,性别\n21,m\n53,w\n"),
    SmallFile("names of numbers", "1,2\n21,m\n53,w\n"),
    SmallFile("names of SQL", "select,order by\n21,m\n53,w\n"),
    SmallFile("names with a command", '"a"";DROP TABLE x;--",sex\n21,m\n53,w\n'),
    SmallFile("names like those of no header", "column1,column0\n21,m\n53,w\n"),
    SmallFile("equal names", "age,sex,age\n21,m,22\n53,w,54\n"),
    SmallFile("names that differ in case", "age,sex,Age\n21,m,22\n53,w,54\n"),
    SmallFile("names that differ in padding", "age,sex,age \n21,m,22\n53,w,54\n"),
    SmallFile("names of equal letters", "é,sex,e\u0301\n21,m,22\n53,w,54\n"),
    SmallFile("names that differ in an invisible character", "age,sex,age\u200b\n21,m,22\n53,w,54\n"),
    SmallFile("a blank name", "age,,illness\n21,m,flu\n53,w,flu\n"),
    SmallFile("a blank name and the one that it would get", "column1,,illness\n21,m,flu\n53,w,flu\n"),
    SmallFile("a blank first name", ",age,sex\n0,21,m\n1,53,w\n"),
    SmallFile("two blank names", "age,,\n21,m,flu\n53,w,flu\n"),
    SmallFile("a blank last name", "age,sex,\n21,m,flu\n53,w,flu\n"),
    SmallFile("a long name", f"{'a' * 300},sex\n21,m\n53,w\n"),
    SmallFile("files with columns in another order", "age,sex\n21,m\n", others={"z.csv": "sex,age\nw,53\n"}),
    SmallFile("files with names in another case", "age,sex\n21,m\n", others={"z.csv": "AGE,Sex\n53,w\n"}),
    SmallFile("files with other columns", "age,sex\n21,m\n", others={"z.csv": "age,illness\n53,flu\n"}),
    SmallFile("files with other delimiters", "age,sex\n21,m\n", others={"z.csv": "age;sex\n53;w\n"}),
    SmallFile("files with other types", "age,sex\n21,m\n", others={"z.csv": "age,sex\nold,w\n"}),
    SmallFile("files with other encodings", NAMES, others={"z.csv": NAMES.encode("utf-16")}),
    SmallFile(
        "files with days of two orders", column("born", "31/12/1999"), others={"z.csv": column("born", "12/31/1999")}
    ),
    SmallFile("a file with no rows and another", "age,sex\n21,m\n", others={"z.csv": "age,sex\n"}),
    SmallFile("a file without a header and another", "age,sex\n21,m\n53,w\n", others={"z.csv": "53,w\n"}),
]

FORMATS = [
    SmallFile("an array of JSON", '[{"age": 21, "sex": "m"}, {"age": 53, "sex": "w"}]', name="people.json"),
    SmallFile("lines of JSON", '{"age": 21, "sex": "m"}\n{"age": 53, "sex": "w"}\n', name="people.jsonl"),
    SmallFile("lines of JSON in ndjson", '{"age": 21, "sex": "m"}\n{"sex": "w", "age": 53}\n', name="people.ndjson"),
    SmallFile("JSON without a key in a row", '[{"age": 21, "sex": "m"}, {"sex": "w"}]', name="people.json"),
    SmallFile("JSON with null", '[{"age": null, "sex": "m"}, {"age": 53, "sex": null}]', name="people.json"),
    SmallFile("JSON of two types", '[{"age": 21}, {"age": "old"}]', name="people.json"),
    SmallFile("JSON with codes", '[{"zip": "02139"}, {"zip": "10115"}]', name="people.json"),
    SmallFile("JSON with dates", '[{"born": "1999-12-31"}, {"born": "2001-02-03"}]', name="people.json"),
    SmallFile(
        "JSON with days that are ambiguous", '[{"born": "01/12/1999"}, {"born": "03/02/2001"}]', name="people.json"
    ),
    SmallFile(
        "JSON with large numbers", '[{"id": 9007199254740993}, {"id": 18446744073709551617}]', name="people.json"
    ),
    SmallFile("JSON with large numbers and decimals", '[{"id": 9007199254740993}, {"id": 0.5}]', name="people.json"),
    SmallFile("JSON with decimals", '[{"cost": 0.1}, {"cost": 2}]', name="people.json"),
    SmallFile("nested JSON", '[{"name": {"given": "Ann"}, "ages": [1, 2]}]', name="people.json"),
    SmallFile("JSON with a key twice", '[{"age": 21, "age": 22}]', name="people.json"),
    SmallFile("JSON with keys that differ in case", '[{"age": 21, "Age": 22}]', name="people.json"),
    SmallFile("JSON of one object", '{"age": 21, "sex": "m"}', name="people.json"),
    SmallFile("JSON of columns", '{"age": [21, 53], "sex": ["m", "w"]}', name="people.json"),
    SmallFile("JSON of rows without names", '[[21, "m"], [53, "w"]]', name="people.json"),
    SmallFile("JSON of numbers", "[21, 53]", name="people.json"),
    SmallFile("a bundle of FHIR", json.dumps(BUNDLE), name="bundle.json"),
    SmallFile("broken JSON", '[{"age": 21, "sex": "m"}, {"age": 53', name="people.json"),
    SmallFile("JSON with a mark", codecs.BOM_UTF8 + b'[{"age": 21}, {"age": 53}]', name="people.json"),
    SmallFile("JSON of latin-1", '[{"city": "Köln"}]'.encode("latin-1"), name="people.json"),
    SmallFile("JSON of UTF-16", '[{"city": "Köln"}]'.encode("utf-16"), name="people.json"),
    SmallFile("an empty array of JSON", "[]", name="people.json"),
    SmallFile("packed CSV", gzip.compress((HEADER + ROWS).encode(), mtime=0), name="people.csv.gz"),
    SmallFile("CSV that is not packed", HEADER + ROWS, name="people.csv.gz"),
    SmallFile(
        "packed CSV that is truncated", gzip.compress((HEADER + ROWS).encode(), mtime=0)[:-9], name="people.csv.gz"
    ),
    SmallFile("Parquet", parquet("SELECT 21 AS age, 'm' AS sex UNION ALL SELECT 53, 'w'"), name="people.parquet"),
    SmallFile(
        "Parquet with days", parquet("SELECT DATE '1999-12-31' AS born, 1.50::DECIMAL(9, 2) AS cost"), name="x.parquet"
    ),
    SmallFile("Parquet with a wrong ending", parquet("SELECT 21 AS age"), name="people.csv"),
    SmallFile("CSV with the ending of Parquet", HEADER + ROWS, name="people.parquet"),
    SmallFile("an old workbook", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", name="people.xls"),
    SmallFile("an unknown ending", HEADER + ROWS, name="people.dat"),
    SmallFile("no ending", HEADER + ROWS, name="people"),
    SmallFile("two formats", HEADER + ROWS, others={"z.json": '[{"age": 21}]'}),
    SmallFile("keys of CSV for JSON", '[{"age": 21}]', {"skip": 1}, name="people.json"),
]

PEOPLE: list[list[Any]] = [["age", "sex", "illness"], [21, "m", "asthma"], [53, "w", "flu"]]
DAY = datetime.date(1999, 12, 31)


def excel(title: str, rows: Sequence[Sequence[Any]], sheet: str | None = None, **options: Any) -> SmallFile:
    return SmallFile(title, workbook(rows, **options), name="people.xlsx", sheet=sheet)


WORKBOOKS = [
    excel("a table", PEOPLE),
    excel("a title", [["Patients of 2001"], *PEOPLE]),
    excel("a title over merged cells and a blank row", [["Patients of 2001"], [], *PEOPLE], merged=["A1:C1"]),
    excel("five titles", [*[[f"title {i}"] for i in range(5)], *PEOPLE]),
    excel("five titles, with the key", [*[[f"title {i}"] for i in range(5)], *PEOPLE], "Patients!A6"),
    excel("a title of two cells", [["Ward", 7], [], *PEOPLE]),
    excel("a table that begins at C3", [[], [], *[[None, None, *row] for row in PEOPLE]]),
    excel("a blank first row of data", [PEOPLE[0], [], *PEOPLE[1:]]),
    excel("blank rows and columns", [["age", None, "sex"], [21, None, "m"], [], [53, None, "w"]]),
    excel("a column without values", [["age", "sex", "note"], [21, "m"], [53, "w"]]),
    excel("a column without a name", [["age", None, "sex"], [21, "x", "m"], [53, "y", "w"]]),
    excel("row numbers without a name", [[None, "age", "sex"], [0, 21, "m"], [1, 53, "w"]]),
    excel("names of two rows", [["", "2019", "", "2020"], ["ward", "m", "w", "m"], ["north", 3, 4, 5]]),
    excel("names that are years", [["ward", 2019, 2020], ["north", 3, 4], ["south", 5, 6]]),
    excel("names that are years, with the key", [["ward", 2019, 2020], ["north", 3, 4]], "Patients!A1"),
    excel("no names", PEOPLE[1:]),
    excel("a note below the table", [*PEOPLE, [], ["Source: ward 3"]]),
    excel("a note below the table, with the key", [*PEOPLE, [], ["Source: ward 3"]], "Patients!A1:C3"),
    excel("a total", [["age", "sex"], [21, "m"], [53, "w"], ["Total", None]]),
    excel("merged cells in a column", [*PEOPLE, [34, None, "flu"]], merged=["B3:B4"]),
    excel("merged names", [["age", "illness", None], [21, "flu", "asthma"]], merged=["B1:C1"]),
    excel("two sheets", PEOPLE, more={"Codes": [["code", "label"], [1, "flu"]]}),
    excel("two sheets, with the key", PEOPLE, "Codes", more={"Codes": [["code", "label"], [1, "flu"]]}),
    excel("a hidden sheet", PEOPLE, more={"Codes": [["code", "label"], [1, "flu"]]}, hidden=["Codes"]),
    excel("an empty sheet and another", PEOPLE, more={"Codes": []}),
    excel("no sheet of this name", PEOPLE, "People"),
    excel("no values", []),
    excel("days", [["born", "sex"], [DAY, "m"], [DAY, "w"]]),
    excel("days counted from 1904", [["born", "sex"], [DAY, "m"], [DAY, "w"]], from_1904=True),
    excel("days and moments", [["seen", "sex"], [DAY, "m"], [datetime.datetime(2001, 2, 3, 10, 30), "w"]]),
    excel("times", [["seen", "sex"], [datetime.time(10), "m"], [datetime.time(23, 59, 59), "w"]]),
    excel("lengths of time", [["stay", "sex"], [datetime.timedelta(hours=30), "m"]]),
    excel("days as texts", [["born", "sex"], ["31.12.1999", "m"], ["03.02.2001", "w"]]),
    excel("days and a word", [["born", "sex"], [DAY, "m"], ["unknown", "w"]]),
    excel("days and a number", [["born", "sex"], [DAY, "m"], [36525, "w"]]),
    excel("the day that never was", [["born", "sex"], [60, "m"]], formats={"A2": "yyyy-mm-dd"}),
    excel("numbers as texts", [["zip", "sex"], ["02139", "m"], ["10115", "w"]]),
    excel("zeros of a format", [["zip", "sex"], [2139, "m"], [10115, "w"]], formats={"A2": "00000", "A3": "00000"}),
    excel("numbers and a word", [["age", "sex"], [21, "m"], ["NA", "w"]]),
    excel("percent", [["share", "sex"], [0.05, "m"], [0.125, "w"]], formats={"A2": "0%", "A3": "0.0%"}),
    excel("currency", [["cost", "sex"], [1234.5, "m"]], formats={"A2": '#,##0.00 "€"'}),
    excel("truth values", [["ill", "sex"], [True, "m"], [False, "w"]]),
    excel("errors", [["age", "sex"], [21, "m"], ["#N/A", "w"], ["#DIV/0!", "w"]]),
    excel("formulas without results", [["age", "sex"], [21, "m"], ["=A2+1", "w"]]),
    excel("names that differ in case", [["age", "Age"], [21, 22]]),
    SmallFile("a workbook that is none", b"PK\x03\x04 and no more", name="people.xlsx"),
    SmallFile("an old workbook with the new ending", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", name="people.xlsx"),
]

SUBJECTS: Mapping[str, Sequence[SmallFile]] = {
    "Structure": STRUCTURE,
    "Encodings": ENCODINGS,
    "Numbers": NUMBERS,
    "Dates": DATES,
    "Missing values": MISSING,
    "Names": COLUMN_NAMES,
    "Formats": FORMATS,
    "Excel": WORKBOOKS,
}
SMALL_FILES = {f"{subject}: {file.title}": file for subject, files in SUBJECTS.items() for file in files}


def read(file: SmallFile, folder: Path) -> str:
    """The table that sqlanon reads, or the reason for its refusal."""
    for name, content in file.files.items():
        (folder / name).write_bytes(content)
    section: dict[str, Any] = {
        "files": [str(folder / name) for name in file.files],
        "csv": dict(file.csv) or None,
        "table": file.sheet,
    }
    with duckdb.connect() as connection:
        try:
            source = bind_files(
                DuckDBEngine(connection).use_utc(),
                SourceSection(**{name: value for name, value in section.items() if value}),
                WorkNames("small", table("source_copy")),
                [name.lower() for name in file.texts],
            )
            relation = connection.sql(f"FROM {source.relation.sql('duckdb')}")
            names, types, rows = relation.columns, [str(type_) for type_ in relation.types], _rows(relation)
        except SqlanonError as error:
            return f"refused: {str(error).replace(str(folder), '.')}"
    header = ", ".join(f"{name} {type_}" for name, type_ in zip(names, types, strict=True))
    return "\n".join([_visible_text(header), *_runs([_row(row, types) for row in rows])])


def _rows(relation: duckdb.DuckDBPyRelation) -> list[tuple[Any, ...]]:
    texts = ", ".join('CAST("{}" AS VARCHAR)'.format(name.replace('"', '""')) for name in relation.columns)
    return relation.project(texts).fetchall()


def _row(row: tuple[Any, ...], types: list[str]) -> str:
    values = [
        "NULL" if value is None else json.dumps(value, ensure_ascii=False) if type_ == "VARCHAR" else str(value)
        for value, type_ in zip(row, types, strict=True)
    ]
    return _visible_text(" | ".join(values))


def _runs(lines: list[str]) -> list[str]:
    """Lines, where a run of many equal ones appears once."""
    texts: list[str] = []
    for line, group in groupby(lines):
        count = len(list(group))
        texts += [f"{line}  ({count:,} times)"] if count > 4 else [line] * count
    return texts


def _visible_text(text: str) -> str:
    """A text in one line, in signs that are seen."""
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape", "surrogatepass").decode()
        for character in text
    )


def _content(name: str, content: bytes) -> list[str]:
    if name.endswith(".gz") and content.startswith(b"\x1f\x8b"):
        return [f"{len(content)} bytes"]
    if content.startswith(b"PAR1"):
        return ["a file of Parquet"]
    if content.startswith(b"PK") and len(content) > 100:
        return _sheets(content)
    mark = next(
        (m for m in (codecs.BOM_UTF32_LE, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE) if content.startswith(m)), None
    )
    if mark is not None or b"m\0" in content:
        return [repr(content[:80])[2:-1] + "..."]
    lines = content.decode("utf-8", "surrogateescape").split("\n")
    texts = []
    for line, end in [(line, "") for line in lines[:-1]] + ([(lines[-1], " (no line end)")] if lines[-1] else []):
        pieces = [f"\\x{ord(c) - 0xDC00:02x}" if "\udc80" <= c <= "\udcff" else _visible_text(c) for c in line]
        text = "".join(pieces)
        texts.append(text.rstrip() + "\\x20" * (len(text) - len(text.rstrip())) + end)
    return _runs(texts)


def _sheets(content: bytes) -> list[str]:
    """The cells of a workbook that have values, as another program reads them."""
    texts: list[str] = []
    for sheet in openpyxl.load_workbook(io.BytesIO(content)).worksheets:
        merged = ", ".join(map(str, sheet.merged_cells.ranges))
        texts.append(f"{sheet.title}{f' ({sheet.sheet_state})' if sheet.sheet_state != 'visible' else ''}:")
        for row in sheet.iter_rows():
            cells = [f"{cell.coordinate} {cell.value!r}" for cell in row if cell.value is not None]
            texts += [f"    {', '.join(cells)}"] if cells else []
        texts += [f"    merged: {merged}"] if merged else []
    return texts


def answer(title: str, file: SmallFile, folder: Path) -> str:
    """The text for the golden file: the content, the keys, and the values that are read."""
    parts = [f"## {title}", ""]
    for name, content in file.files.items():
        parts += [f"{name}:", *(f"    {line}".rstrip() for line in _content(name, content)), ""]
    for key, value in file.csv.items():
        parts.append(f"{key} = {json.dumps(value)}")
    if file.sheet:
        parts.append(f"table = {json.dumps(file.sheet)}")
    if file.texts:
        parts.append(f"texts: {', '.join(file.texts)}")
    if file.csv or file.texts or file.sheet:
        parts.append("")
    return "\n".join([*parts, read(file, folder), ""])


def approved_answers() -> dict[str, str]:
    """The approved answers, by their titles."""
    parts = re.split(r"^(?=## )", GOLDEN.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {part.splitlines()[0].removeprefix("## "): part.rstrip() + "\n" for part in parts if part}


if __name__ == "__main__":
    answers = []
    for title, file in SMALL_FILES.items():
        with tempfile.TemporaryDirectory() as folder:
            answers.append(answer(title, file, Path(folder)))
    GOLDEN.write_text("\n".join(answers), encoding="utf-8")
