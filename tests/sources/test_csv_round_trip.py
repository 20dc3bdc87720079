"""A table that is written in any dialect and encoding is read back equal, or refused with a reason."""

from __future__ import annotations

import csv as writers
import io
from pathlib import Path
from typing import Any

import duckdb
import pytest
from conftest import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.errors import SourceError
from sqlanon.expressions import table
from sqlanon.policy.sections import CsvSection
from sqlanon.sources import csv

NAMES = ("person", "town", "illness", "note")

plain = st.text(st.sampled_from("abcxyzÄé ."), max_size=6)
strange = st.text(st.sampled_from("ab,;\t|\"'\n#0 "), max_size=8)
values = st.one_of(plain, plain, plain, strange)


@st.composite
def written_tables(draw: st.DrawFn) -> dict[str, Any]:
    width = draw(st.integers(1, 4))
    is_known = draw(st.booleans())
    return {
        "rows": draw(st.lists(st.tuples(*[values] * width), min_size=1, max_size=12)),
        "names": NAMES[:width],
        "delimiter": draw(st.sampled_from([",", ";", "\t", "|"])),
        "quote": draw(st.sampled_from(['"', "'"])),
        "all_quoted": draw(st.booleans()),
        "newline": draw(st.sampled_from(["\n", "\r\n"])),
        "encoding": draw(st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "windows-1252"])),
        "titles": draw(st.integers(0, 2)),
        "footers": draw(st.integers(0, 2)),
        "is_known": is_known,
        "broken": draw(st.one_of(st.none(), st.integers(0, 11))),
    }


def write(path: Path, written: dict[str, Any]) -> CsvSection:
    text = io.StringIO(newline="")
    text.write("".join(f"title{written['newline']}" for _ in range(written["titles"])))
    quoting = writers.QUOTE_ALL if written["all_quoted"] else writers.QUOTE_MINIMAL
    writer = writers.writer(
        text,
        delimiter=written["delimiter"],
        quotechar=written["quote"],
        quoting=quoting,
        lineterminator=written["newline"],
    )
    writer.writerow(written["names"])
    for i, row in enumerate(written["rows"]):
        writer.writerow((*row, "x") if i == written["broken"] else row)
    text.write("".join(f"end{written['newline']}" for _ in range(written["footers"])))
    path.write_bytes(text.getvalue().encode(written["encoding"]))
    keys = {"header": True, "footer": written["footers"]}
    if written["encoding"] == "windows-1252":
        keys["encoding"] = written["encoding"]
    if len(written["names"]) == 1:  # nobody tells its title from its header
        keys["skip"] = written["titles"]
    if written["quote"] == "'" and any('"' in value for row in written["rows"] for value in row):
        keys["quote"] = written["quote"]  # without the key `""` is the empty text, in the usual quotes
    if written["is_known"]:
        keys |= {"delimiter": written["delimiter"], "quote": written["quote"], "skip": written["titles"]}
    return CsvSection(**keys)


@settings(max_examples=examples(400))
@given(written_tables())
def test_a_table_is_read_back_equal_or_refused(
    tmp_path_factory: pytest.TempPathFactory, written: dict[str, Any]
) -> None:
    path = tmp_path_factory.mktemp("written") / "people.csv"
    section = write(path, written)
    texts = dict.fromkeys(written["names"])
    with duckdb.connect() as connection:
        try:
            csv.copy_csv(DuckDBEngine(connection).in_utc(), [str(path)], {*texts}, set(), table("copy"), section)
        except SourceError as error:
            assert "people.csv" in str(error)
            return
        except duckdb.Error:  # `source_errors` makes a refusal of it
            return
        assert connection.execute("DESCRIBE copy").fetchall() == [
            (name, "VARCHAR", "YES", None, None, None) for name in written["names"]
        ]
        rows = connection.execute("FROM copy").fetchall()
    assert written["broken"] is None or written["broken"] >= len(written["rows"])
    expected = [tuple(value.replace("\r\n", "\n") or None for value in row) for row in written["rows"]]
    if len(written["names"]) > 1:
        assert [tuple(value and value.replace("\r\n", "\n") for value in row) for row in rows] == expected
    else:
        assert [row for row in rows if row[0]] == [row for row in expected if row[0]]
