"""``[source.csv]`` says how a file is written where its bytes do not."""

from __future__ import annotations

import codecs
import gzip
import itertools
from pathlib import Path
from typing import Any

import duckdb
import pytest

import sqlanon
from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.errors import PolicyError, SourceError
from sqlanon.policy.sections import CsvSection
from sqlanon.sources.files import csv
from sqlanon.sources.files.csv_text import _without_footer, describe_bad_byte
from sqlanon.sources.files.scan import Scan
from sqlanon.support.expressions import table
from support.policies import make_policy
from support.published_tables import publish_and_read

NAMES = "name,city\nMüller,Köln\nRené,Orléans\n"
READ_NAMES = [("Müller", "Köln"), ("René", "Orléans")]


def copy_rows(path: Path, **keys: Any) -> list[tuple[Any, ...]]:
    with duckdb.connect() as connection:
        csv.copy_csv(Scan(DuckDBEngine(connection).use_utc(), [str(path)], csv=CsvSection(**keys)), table("copy"))
        return connection.execute("FROM copy").fetchall()


def refusal(path: Path, **keys: Any) -> str:
    with pytest.raises(SourceError) as caught:
        copy_rows(path, **keys)
    return str(caught.value)


KEYS = {
    "delimiter": ("a:b\n1:2\n3:4\n", {"delimiter": ":"}, [(1, 2), (3, 4)]),
    "delimiter of two that fit": ("a;b,c\n1;2,3\n", {"delimiter": ";"}, [(1, "2,3")]),
    "one column": ("note\nill, old\nwell\n", {"delimiter": "\t"}, [("ill, old",), ("well",)]),
    "quote": ("a,b\n1,'x,y'\n2,\"z\n", {"quote": "'"}, [(1, "x,y"), (2, '"z')]),
    "no quote": ('a,b\n1,"x\n2,y"\n', {"quote": ""}, [(1, '"x'), (2, 'y"')]),
    "quote around what looks like rows": ('a,b,c\n1,"x,y\n2,z",3\n', {"quote": '"'}, [(1, "x,y\n2,z", 3)]),
    "header": ("name,city\nAnn,Rome\n", {"header": True}, [("Ann", "Rome")]),
    "no header": ("1,x\n2,y\n", {"header": False}, [(1, "x"), (2, "y")]),
    "no header of texts": ("Bob,Oslo\nAnn,Rome\n", {"header": False}, [("Bob", "Oslo"), ("Ann", "Rome")]),
    "skip": ("x\n" * 5 + "a,b\n1,2\n", {"skip": 5}, [(1, 2)]),
    "skip lines with delimiters": ("Export, 2001\n\na,b\n1,2\n", {"skip": 2}, [(1, 2)]),
    "skip nothing": ("a,b\n1,2\n3,4\n", {"skip": 0}, [(1, 2), (3, 4)]),
    "footer": ("a,b\n1,2\nTotal: 1\n", {"footer": 1}, [(1, 2)]),
    "footer that looks like a row": ("a,b\n1,2\n3,4\n4,6\n\n\n", {"footer": 1}, [(1, 2), (3, 4)]),
    "all": ("x\na;b\n1;'2;3'\n4;5\nend\n", {"delimiter": ";", "quote": "'", "skip": 1, "footer": 1, "header": True},
            [(1, "2;3"), (4, "5")]),
}  # fmt: skip


@pytest.mark.cases(4)
@pytest.mark.parametrize("case", KEYS)
def test_keys_set_the_csv_format(case: str, tmp_path: Path) -> None:
    content, keys, rows = KEYS[case]
    (tmp_path / "people.csv").write_text(content)
    assert copy_rows(tmp_path / "people.csv", **keys) == rows


WRONG = {
    "delimiter": ("a;b\n1;2\n3\n", {"delimiter": ";"}, "1 line differs: line 3 has 1"),
    "a delimiter that splits nothing": ("a,b\n1,2\n3,4;5\n", {"delimiter": ";"}, "1 line differs: line 3 has 2"),
    "skip": ("x\na,b\n1,2\n3\n", {"skip": 1}, "line 2 has 2 fields (delimiter ','), and 1 line differs: line 4 has 1"),
    "too few skipped": ("x\ny\na,b\n1,2\n3,4\n", {"skip": 1}, "line 2 has 1 field (delimiter ','), and the 3 lines"),
    "footer": ("a,b\n1,2\n3\nend\n", {"footer": 1}, "1 line differs: line 3 has 1"),
    "no footer": ("a,b\n1,2\nend\n", {"footer": 0}, "1 line differs: line 3 has 1"),
}


@pytest.mark.cases(1)
@pytest.mark.parametrize("case", WRONG)
def test_a_key_does_not_hide_broken_lines(case: str, tmp_path: Path) -> None:
    content, keys, message = WRONG[case]
    (tmp_path / "people.csv").write_text(content)
    assert message in refusal(tmp_path / "people.csv", **keys)


UTF_8 = (NAMES.encode(), codecs.BOM_UTF8 + NAMES.encode())
MARKED = (NAMES.encode("utf-16"), codecs.BOM_UTF16_BE + NAMES.encode("utf-16-be"), NAMES.encode("utf-32"))


@pytest.mark.slow
@pytest.mark.parametrize("content", [*UTF_8, *MARKED], ids=["utf-8", "utf-8 marked", "utf-16", "utf-16-be", "utf-32"])
def test_unicode_needs_no_key(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "people.csv").write_bytes(content)
    assert copy_rows(tmp_path / "people.csv") == READ_NAMES
    (tmp_path / "people.csv.gz").write_bytes(gzip.compress(content))
    assert copy_rows(tmp_path / "people.csv.gz") == READ_NAMES


@pytest.mark.cases(2)
@pytest.mark.parametrize(
    "encoding", ["latin-1", "windows-1252", "cp437", "utf-16-le", "utf-16", "utf-8", "gb18030", "utf-7"]
)
def test_a_file_is_read_in_its_encoding(encoding: str, tmp_path: Path) -> None:
    (tmp_path / "people.csv").write_bytes(NAMES.encode(encoding))
    assert copy_rows(tmp_path / "people.csv", encoding=encoding) == READ_NAMES


def test_a_file_of_shift_jis_is_read(tmp_path: Path) -> None:
    """The second byte of ソ is a backslash, and that of ポ a bar."""
    (tmp_path / "people.csv").write_bytes("name,city\nソポ,東京\n".encode("shift-jis"))
    assert copy_rows(tmp_path / "people.csv", encoding="shift-jis", header=True) == [("ソポ", "東京")]


def test_quoted_byte_order_mark_is_removed_from_the_name(tmp_path: Path) -> None:
    path = tmp_path / "people.csv"
    path.write_text('"\ufeffage";town\n21;Oslo\n53;Rome\n')
    with sqlanon.connect(str(path)) as db:
        assert [column.name for column in db.inspect().columns] == ["age", "town"]


def test_keys_decide_of_lines_that_may_be_rows(tmp_path: Path) -> None:
    path = tmp_path / "people.csv"
    path.write_text("m,flu\nw,asthma\nw,flu\n,\n")
    rows = [("m", "flu"), ("w", "asthma"), ("w", "flu")]
    assert copy_rows(path, header=False, footer=1) == rows
    assert copy_rows(path, header=False, footer=0) == [*rows, (None, None)]
    assert copy_rows(path, header=True, footer=1) == rows[1:]


@pytest.mark.cases(1)
@pytest.mark.parametrize("late", [0, 43_556])
def test_an_invalid_utf_8_byte_is_named(late: int, tmp_path: Path) -> None:
    (tmp_path / "people.csv").write_bytes(b"name,city\n" + b"Ann,Rome\n" * late + NAMES.encode("latin-1"))
    message = refusal(tmp_path / "people.csv")
    assert (
        f"people.csv: line {late + 3:,} has the byte 0xFC, which is not valid UTF-8; set the encoding of the file"
        in message
    )
    assert 'encoding = "windows-1252"' in message
    assert "ller" not in message, "no value"


def test_a_byte_among_letters_of_utf_8_names_no_other_encoding(tmp_path: Path) -> None:
    (tmp_path / "people.csv").write_bytes(NAMES.encode() + "Jürgen,Köln\nJ".encode() + b"\xfcrgen,Bonn\n")
    message = refusal(tmp_path / "people.csv")
    assert "has the byte 0xFC, which is not valid UTF-8, unlike the other letters: correct the line" in message
    assert "windows-1252" not in message


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_the_line_of_a_bad_byte_is_that_of_its_line_ends(newline: str, tmp_path: Path) -> None:
    late = 1 << 20  # behind the first bytes that are decoded at once, which end between \r and \n
    text = "ab\nx,y\n" + "," * (late - 10) + "\n1,é\n"
    (tmp_path / "people.csv").write_bytes(text.replace("\n", newline).encode("latin-1"))
    assert (describe_bad_byte(str(tmp_path / "people.csv")) or "").startswith("line 4 has the byte 0xE9")


def test_a_footer_does_not_hide_utf_16(tmp_path: Path) -> None:
    (tmp_path / "people.csv").write_bytes((NAMES + "end\n").encode("utf-16-le"))
    assert 'encoding = "utf-16-le" under [source.csv]' in refusal(tmp_path / "people.csv", footer=1)


def test_an_invalid_utf_8_line_above_the_header_is_named(tmp_path: Path) -> None:
    (tmp_path / "people.csv").write_bytes("Übersicht\nname,city\nAnn,Rome\nBob,Oslo\n".encode("latin-1"))
    assert "people.csv: line 1 has the byte 0xDC, which is not valid UTF-8" in refusal(tmp_path / "people.csv")


def test_an_invalid_utf_8_header_is_named(tmp_path: Path) -> None:
    (tmp_path / "people.csv").write_bytes("größe,zahl\n1,2\n3,4\n".encode("latin-1"))
    assert "people.csv: line 1 has the byte 0xF6, which is not valid UTF-8" in refusal(tmp_path / "people.csv")


def test_a_wrong_encoding_is_refused_with_its_byte(tmp_path: Path) -> None:
    (tmp_path / "people.csv").write_bytes(NAMES.encode("latin-1"))
    message = refusal(tmp_path / "people.csv", encoding="ascii")
    assert "line 2 has the byte 0xFC, which is not valid UTF-8" in message
    (tmp_path / "people.csv").write_bytes(b"name,city\n\x81,Rome\n")
    message = refusal(tmp_path / "people.csv", encoding="windows-1252")
    assert "line 2 has the byte 0x81, which is not valid cp1252; give another encoding" in message


def test_utf_16_without_a_mark_is_recognized(tmp_path: Path) -> None:
    for encoding in ("utf-16-le", "utf-16-be"):
        (tmp_path / "people.csv").write_bytes(NAMES.encode(encoding))
        assert f'set encoding = "{encoding}" under [source.csv]' in refusal(tmp_path / "people.csv")


def test_a_decoded_copy_does_not_outlive_the_reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    (tmp_path / "people.csv").write_bytes(NAMES.encode("latin-1"))
    assert copy_rows(tmp_path / "people.csv", encoding="latin-1") == READ_NAMES
    assert not [*(tmp_path / "temporary").iterdir()]


@pytest.mark.thorough
def test_a_release_and_its_verbs_read_a_file_alike(tmp_path: Path) -> None:
    """Also the column that no policy names, which the ledger hashes."""
    people = "Export\nNäme;Gruppe;Ort\n" + "".join(f"Ü{i};{i % 2};Köln\n" for i in range(8)) + "Summe: 8\n"
    (tmp_path / "people.csv").write_bytes(people.encode("latin-1"))
    keys = {"encoding": "latin-1", "delimiter": ";", "skip": 1, "footer": 1}
    source = {"files": [str(tmp_path / "people.csv")], "undeclared": "drop", "person": False, "csv": keys}
    rows, _ = publish_and_read(None, {"gruppe": "suppress", "ort": "insensitive"}, tmp_path, source=source)
    assert sorted(rows) == [(0, "Köln")] * 4 + [(1, "Köln")] * 4
    policy = make_policy({"gruppe": "suppress", "ort": "sensitive"}, source=source)
    with sqlanon.connect() as db:
        assert db.risk(policy).rows == 8
        assert db.plan(policy)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"encoding": "latin-99"}, "'latin-99' is not a text encoding"),
        ({"encoding": "rot13"}, "'rot13' is not a text encoding"),
        ({"encoding": "base64"}, "'base64' is not a text encoding"),
        ({"delimiter": ""}, "must be one character"),
        ({"delimiter": "||"}, "must be one character"),
        ({"delimiter": "\n"}, "must be one character"),
        ({"delimiter": ";", "quote": ";"}, "is also the delimiter"),
        ({"quote": "ab"}, "must be one character"),
        ({"skip": -1}, "0"),
        ({"footer": True}, "whole number"),
        ({"delimeter": ";"}, "did you mean"),
    ],
    ids=str,
)
def test_a_wrong_key_is_named(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(PolicyError) as caught:
        make_policy({"age": "suppress"}, source={"files": ["people.csv"], "csv": keys})
    assert f"source.csv.{[*keys][-1]}" in str(caught.value)
    assert message in str(caught.value)


def test_keys_of_csv_apply_to_csv_files(tmp_path: Path) -> None:
    (tmp_path / "people.json").write_text('[{"age": 1}]')
    source = {"files": [str(tmp_path / "people.json")], "csv": {"skip": 1}}
    with (
        sqlanon.connect() as db,
        pytest.raises(SourceError, match=r"source\.csv: applies to CSV files, and these are JSON"),
    ):
        db.anonymize(make_policy({"age": "suppress"}, source=source, k=1))
    with pytest.raises(PolicyError, match=r"source\.csv: applies to CSV files"):
        make_policy({"age": "suppress"}, source={"database": "x.duckdb", "table": "t", "csv": {"skip": 1}})


@pytest.mark.parametrize("footer", [0, 1, 2])
def test_the_footer_is_the_last_lines_with_text(footer: int) -> None:
    """Blank lines below it do not count; those above it are rows of a file with one column."""
    for size in range(6):
        for lines in itertools.product(["row\n", " \n"], repeat=size):
            text = [i for i, line in enumerate(lines) if line.strip()]
            first = len(lines) if not footer else text[max(len(text) - footer, 0)] if text else 0
            assert [*_without_footer(lines, footer)] == list(lines[:first]), lines
