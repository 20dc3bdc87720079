"""A table that is written in any dialect and encoding is read back equal, or refused with a reason."""

from __future__ import annotations

import csv as writers
import io
import re
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.errors import SourceError
from sqlanon.policy.sections import CsvSection
from sqlanon.sources.files import csv
from sqlanon.sources.files.scan import Scan
from sqlanon.sources.relation import source_errors
from sqlanon.support.expressions import table
from support.lanes import examples

pytestmark = pytest.mark.slow

NAMES = ("person", "town", "illness", "note")
UNICODE = "äßÉЖ東ソ王€😀"
LETTERS = {
    **dict.fromkeys(("utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"), UNICODE),
    "latin-1": "äßÉéüø",
    "windows-1252": "äßÉé€Š",
    "shift-jis": "東京ソポ表能予ｶ",  # the second bytes of some are those of \ and |
    "gb18030": "王芳北東乗倈äé😀",
}
_LEAST_READ = 0.5  # of the tables: a fifth has a broken line, and others look like what they are not
NEEDS_KEY = ("utf-16-le", "utf-16-be", "latin-1", "windows-1252", "shift-jis", "gb18030")


def values(letters: str) -> st.SearchStrategy[str]:
    plain = st.text(st.sampled_from(f"abcxyz .{letters}"), max_size=6)
    numbers = st.sampled_from(["0", "7", "021", "-3", "1.5", "2,5", "1e3", "12345678901234567890"])
    strange = st.text(st.sampled_from(f"ab,;\t|\"'\\\n#0 {letters}"), max_size=8)
    return st.one_of(plain, plain, plain, numbers, strange)


@st.composite
def written_tables(draw: st.DrawFn) -> dict[str, Any]:
    width = draw(st.integers(1, 4))
    encoding = draw(st.sampled_from([*LETTERS]))
    ends = st.sampled_from(["", *LETTERS[encoding]])
    has_header = draw(st.sampled_from([True, True, False]))
    return {
        "rows": draw(st.lists(st.tuples(*[values(LETTERS[encoding])] * width), min_size=1, max_size=12)),
        "names": tuple(name + draw(ends) for name in NAMES[:width]),
        "delimiter": draw(st.sampled_from([",", ";", "\t", "|"])),
        "quote": draw(st.sampled_from(['"', "'"])),
        "all_quoted": draw(st.booleans()),
        "newline": draw(st.sampled_from(["\n", "\r\n", "\r"])),
        "last_lines": draw(st.integers(0, 2)),
        "has_header": has_header,
        "encoding": encoding,
        "titles": draw(st.integers(0, 2)),
        "footers": draw(st.integers(0, 2)),
        "is_known": draw(st.booleans()),
        "drops": draw(st.booleans()),
        "broken": draw(st.one_of(st.none(), st.none(), st.integers(0, 11))) if has_header else None,
    }


def write(path: Path, case: dict[str, Any]) -> dict[str, Any]:
    """Write a file; return the keys that say how, but for the encoding."""
    text = io.StringIO(newline="")
    text.write("".join(f"title{case['newline']}" for _ in range(case["titles"])))
    has_other_ends = case["newline"] == "\r" and any("\n" in value for row in case["rows"] for value in row)
    quoting = writers.QUOTE_ALL if case["all_quoted"] or has_other_ends else writers.QUOTE_MINIMAL
    writer = writers.writer(
        text,
        delimiter=case["delimiter"],
        quotechar=case["quote"],
        quoting=quoting,
        lineterminator=case["newline"],
    )
    if case["has_header"]:
        writer.writerow(case["names"])
    for i, row in enumerate(case["rows"]):
        writer.writerow((*row, "x") if i == case["broken"] else row)
    text.write("".join(f"end{case['newline']}" for _ in range(case["footers"])))
    lines = text.getvalue().removesuffix(case["newline"]) + case["newline"] * case["last_lines"]
    path.write_bytes(lines.encode(case["encoding"]))
    keys = {"header": case["has_header"], "footer": case["footers"]}
    if case["drops"]:
        keys["on_bad_line"] = "drop"
    if len(case["names"]) == 1 or not case["has_header"]:  # a title looks like a header or a row
        keys["skip"] = case["titles"]
    if len(case["names"]) == 1 and any(set(",;|\t") & {*row[0]} for row in case["rows"]):  # 2,5: two columns
        keys |= {"delimiter": case["delimiter"], "quote": case["quote"]}
    has_usual_quotes = any('"' in value for row in case["rows"] for value in row)
    if case["quote"] == "'" and (has_usual_quotes or len(case["rows"]) == 1):
        # Without the key `""` is the empty text, in the usual quotes; and '2,5' alone may be two values.
        keys["quote"] = case["quote"]
    if case["is_known"]:
        keys |= {"delimiter": case["delimiter"], "quote": case["quote"], "skip": case["titles"]}
    return keys


def read(path: Path, **keys: Any) -> tuple[dict[str, str], list[tuple[Any, ...]]]:
    """The columns of a file with their types, and its rows; all columns are read as texts."""
    names = {name.lower() for name in (*NAMES, *(f"column{i}" for i in range(4)))}
    names |= {name + letter.lower() for name in NAMES for letters in LETTERS.values() for letter in letters}
    with duckdb.connect() as connection, source_errors():
        csv.copy_csv(
            Scan(DuckDBEngine(connection).use_utc(), [str(path)], names, csv=CsvSection(**keys)), table("copy")
        )
        columns = {name: type_ for name, type_, *_ in connection.execute("DESCRIBE copy").fetchall()}
        return columns, connection.execute("FROM copy").fetchall()


def is_read_as_utf_8(path: Path) -> bool:
    content = path.read_bytes()
    try:
        return "\0" not in content.decode()
    except UnicodeDecodeError:
        return False


def test_a_table_is_read_back_equal_or_refused(tmp_path: Path) -> None:
    are_read: list[bool] = []

    @settings(max_examples=examples(600))
    @given(written_tables())
    def check(case: dict[str, Any]) -> None:
        are_read.append(is_read_back(tmp_path / "people.csv", case))

    check()
    assert sum(are_read) >= _LEAST_READ * len(are_read)


def is_read_back(path: Path, case: dict[str, Any]) -> bool:
    """Whether a file is read, and not refused."""
    keys, encoding = write(path, case), case["encoding"]
    if encoding in NEEDS_KEY:
        if not is_read_as_utf_8(path):
            with pytest.raises(SourceError) as caught:
                read(path, **keys)
            assert_names_encoding(str(caught.value), path.read_bytes(), encoding)
        keys["encoding"] = encoding
    try:
        columns, rows = read(path, **keys)
    except SourceError as error:
        message = str(error)
        event("refused: " + re.sub(r"\d[\d,]*|'.'", "N", message)[:90])
        assert "people.csv" in message
        assert not re.search(r"UTF|encoding|NUL|0x", message), message
        return False
    event("read")
    count = len(case["names"])
    names = case["names"] if case["has_header"] else tuple(f"column{i}" for i in range(count))
    assert columns == dict.fromkeys(names, "VARCHAR")
    expected = [tuple(value.replace("\r\n", "\n") or None for value in row) for row in case["rows"]]
    broken = case["broken"]
    if broken is not None and broken < len(expected):
        assert case["drops"]
        del expected[broken]
    if count > 1:
        assert [tuple(value and value.replace("\r\n", "\n") for value in row) for row in rows] == expected
    else:
        assert [row for row in rows if row[0]] == [row for row in expected if row[0]]
    return True


def assert_names_encoding(message: str, content: bytes, encoding: str) -> None:
    """A message names the first byte that is no UTF-8, its line, probable encodings, and the key."""
    if encoding.startswith("utf-16"):
        assert re.search(r"people\.csv: line 1 has (a NUL byte|the byte 0x)", message)
        assert f'encoding = "{encoding}" under [source.csv]' in message
        return
    with pytest.raises(UnicodeDecodeError) as caught:
        content.decode()
    line = 1 + len(re.findall(rb"\r\n?|\n", content[: caught.value.start]))
    assert (
        f"people.csv: line {line} has the byte 0x{content[caught.value.start]:02X}, which is not valid UTF-8" in message
    )
    assert 'encoding = "' in message
    assert "[source.csv]" in message
    matches = re.findall(r"[a-z]+[a-z0-9-]*\d+|shift-jis|euc-kr|big5", message.partition('encoding = "')[2])
    for name in matches:
        content.decode(name)
    if sum(byte > 0x7F for byte in content) >= 10:  # fewer bytes may be of any encoding
        assert {encoding, "windows-1252" if encoding == "latin-1" else encoding} & {*matches}, message
