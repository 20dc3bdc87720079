"""Texts of files are read as the types that a policy declares, exactly, or refused with the values that do not fit."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from bound_rows import bound_rows
from hypothesis import given, settings
from hypothesis import strategies as st

import sqlanon
from oracles.oracle_texts import read_day, read_number
from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.errors import PolicyError, SourceError
from sqlanon.sources.files import typed_columns
from sqlanon.sources.files.typed_columns import ColumnReading, NumberMarks, number_pattern, projection, read_columns
from sqlanon.support.expressions import select, table
from support.commands import cli
from support.lanes import examples
from support.policies import make_policy
from support.published_tables import publish_and_read


def column(
    path: Path, values: Sequence[str], attribute: dict[str, Any], csv: dict[str, Any] | None = None
) -> tuple[list[Any], str]:
    """The values and the type of a column that a file has next to another one, which is never empty."""
    lines = [f"{value};x{i}" for i, value in enumerate(values)]
    path.write_text("\n".join(["value;other", *lines, ""]), encoding="utf-8")
    attributes = {"value": {"role": "quasi", "hierarchy": "suppress", **attribute}, "other": "insensitive"}
    section = {"person": False, "csv": {"delimiter": ";", "header": True, "quote": "", **(csv or {})}}
    rows, types = bound_rows(str(path), attributes, source=section)
    return [row[0] for row in rows], types["value"]


def refusal(path: Path, values: Sequence[str], attribute: dict[str, Any], csv: dict[str, Any] | None = None) -> str:
    with pytest.raises(SourceError) as caught:
        column(path, values, attribute, csv)
    return str(caught.value)


digits = st.text("0123456789", min_size=1, max_size=14)
well_formed = st.builds(
    lambda sign, number, decimals, thousands: sign + (f"{number:,}" if thousands else str(number)) + decimals,
    st.sampled_from(["", "", "-", "+"]),
    st.integers(0, 10**17),
    st.one_of(st.just(""), digits.map(lambda text: f"~{text}")),
    st.booleans(),
)
strange_numbers = st.text("0123456789.,- +", max_size=8)


@pytest.mark.thorough
@settings(max_examples=examples(150), deadline=None)
@given(
    st.lists(st.one_of(well_formed, well_formed, strange_numbers), min_size=1, max_size=8),
    st.sampled_from([(".", None), (",", None), (",", "."), (".", ","), (",", " "), (".", "'")]),
)
def test_numbers_are_read_as_the_oracle_reads_them(
    tmp_path_factory: pytest.TempPathFactory,
    spellings: list[str],
    marks: tuple[str, str | None],
) -> None:
    decimal, thousands = marks
    texts = [text.replace(",", "#").replace("~", decimal).replace("#", thousands or "") for text in spellings]
    path = tmp_path_factory.mktemp("numbers") / "x.csv"
    csv = {"decimal": decimal, **({} if thousands is None else {"thousands": thousands})}
    expected = [None if text == "" else read_number(text, decimal, thousands) for text in texts]
    wrong = [text for text, value in zip(texts, expected, strict=True) if text != "" and value is None]
    if wrong:
        message = refusal(path, texts, {"type": "number"}, csv)
        assert f"attributes.value.type: {len(wrong)} value" in message
        lines = [f"{text!r} (line {i})" for i, text in enumerate(texts, 2) if text in wrong]
        assert all(line in message for line in lines[:5])
        assert message.count("(line ") == min(5, len(lines))
        return
    values, type_ = column(path, texts, {"type": "number"}, csv)
    assert [None if value is None else Decimal(value) for value in values] == expected
    assert type_ != "DOUBLE"


@pytest.mark.thorough
@settings(max_examples=examples(80), deadline=None)
@given(st.lists(st.integers(-(10**38) + 1, 10**38 - 1), min_size=1, max_size=5), st.booleans())
def test_integers_are_exact_up_to_38_digits(
    tmp_path_factory: pytest.TempPathFactory,
    numbers: list[int],
    grouped: bool,
) -> None:
    path = tmp_path_factory.mktemp("integers") / "x.csv"
    texts = [f"{number:,}".replace(",", ".") if grouped else str(number) for number in numbers]
    attribute, csv = {"type": "integer"}, {"decimal": ",", "thousands": "."}
    assert column(path, texts, attribute, csv)[0] == numbers
    undeclared, _ = column(path, texts, {}, csv)
    assert undeclared == numbers


parts = st.integers(0, 40).map(str) | st.integers(0, 99).map(lambda number: f"{number:02d}")
years = st.integers(0, 99).map(lambda number: f"{number:02d}") | st.integers(1850, 2100).map(str)


@pytest.mark.thorough
@settings(max_examples=examples(150), deadline=None)
@given(
    st.lists(st.tuples(parts, parts, years), min_size=1, max_size=6),
    st.permutations(["d", "m", "year"]),
    st.sampled_from([".", "/", "-", " "]),
    st.sampled_from([None, 1099, 1999, 2000, 2026, 2099]),
    st.integers(0, 3),
)
def test_dates_are_read_as_the_oracle_reads_them(
    tmp_path_factory: pytest.TempPathFactory,
    days: list[tuple[str, str, str]],
    order: list[str],
    separator: str,
    pivot: int | None,
    sound_dates: int,
) -> None:
    letters = "".join(letter if letter != "year" else "Y" if pivot is None else "y" for letter in order)
    format_ = separator.join(f"%{letter}" for letter in letters)
    texts = [
        separator.join({"d": day, "m": month, "year": year}[letter] for letter in order) for day, month, year in days
    ]
    expected = [read_day(text, letters, separator, pivot) for text in texts]
    if sound_dates:  # else random dates are seldom all sound
        sound = [(text, day) for text, day in zip(texts, expected, strict=True) if day is not None]
        texts, expected = [text for text, _ in sound], [day for _, day in sound]
        if not texts:
            return
    attribute = {"type": "date", "format": format_} | ({} if pivot is None else {"pivot": pivot})
    path = tmp_path_factory.mktemp("dates") / "x.csv"
    wrong = [text for text, day in zip(texts, expected, strict=True) if day is None]
    if wrong:
        message = refusal(path, texts, attribute)
        assert f"attributes.value.format: {len(wrong)} value" in message and f"in the format {format_}: " in message
        assert f"{wrong[0]!r} (line {texts.index(wrong[0]) + 2})" in message
    else:
        values, type_ = column(path, texts, attribute)
        assert values == expected and type_ == "DATE"
        assert pivot is None or all(day.year <= pivot for day in values)


@pytest.mark.parametrize("pivot", [100, 1999, 2000, 2026, 2099])
def test_two_digits_of_a_year_are_the_last_such_year_up_to_the_pivot(pivot: int, engine: DuckDBEngine) -> None:
    texts = [f"28.02.{year:02d}" for year in range(100)]
    days, type_ = read_texts(engine, texts, {"type": "date", "format": "%d.%m.%y", "pivot": pivot}, {})
    assert days == [read_day(text, "dmy", ".", pivot) for text in texts] and type_ == "DATE"


KINDS: dict[str, tuple[list[str], dict[str, Any], dict[str, Any], list[Any], str]] = {
    "padded integers": ([" 7", "007", "+7", "7 "], {"type": "integer"}, {}, [7] * 4, "BIGINT"),
    "decimals of one scale": (["1,5", "10"], {"type": "number"}, {"decimal": ","},
        [Decimal("1.5"), Decimal(10)], "DECIMAL(3,1)"),
    "whole numbers": (["1", "2"], {"type": "number"}, {}, [1, 2], "BIGINT"),
    "no whole part": ([",5", "-,25"], {"type": "number"}, {"decimal": ","},
        [Decimal("0.5"), Decimal("-0.25")], "DECIMAL(3,2)"),
    "exponents": (["1,5e3", "2"], {"type": "number"}, {"decimal": ","}, [1500.0, 2.0], "DOUBLE"),
    "exponents of three digits": (["1e+100", "2"], {"type": "number"}, {}, [1e100, 2.0], "DOUBLE"),
    "38 digits": (["1" * 38, "-2"], {"type": "integer"}, {}, [int("1" * 38), -2], "HUGEINT"),
    "38 digits with decimals": (["1" * 36 + ".25"], {"type": "number"}, {}, [Decimal("1" * 36 + ".25")],
        "DECIMAL(38,2)"),
    "undeclared decimals": (["1.234,5", "1.234", "2"], {}, {"decimal": ",", "thousands": "."},
                            [Decimal("1234.5"), Decimal(1234), Decimal(2)], "DECIMAL(5,1)"),
    "codes with zeros": (["02139", "10115"], {}, {"decimal": ","}, ["02139", "10115"], "VARCHAR"),
    "texts among marks": (["a", "1,5"], {}, {"decimal": ","}, ["a", "1,5"], "VARCHAR"),
    "two commas where few are numbers": (["1,5", "3,5,1", "x"], {}, {"decimal": ","}, ["1,5", "3,5,1", "x"], "VARCHAR"),
    "missing": (["1", "NA", "?", ""], {}, {"missing": ["", "NA", "?"]}, [1, None, None, None], "BIGINT"),
    "missing in a text": (["a", "NA"], {}, {"missing": ["NA"]}, ["a", None], "VARCHAR"),
    "no text is missing": (["a", ""], {}, {"missing": []}, ["a", ""], "VARCHAR"),
    "missing codes": (["17", "-9", "999", "9"], {"missing": ["-9", "999"]}, {}, [17, None, None, 9], "BIGINT"),
    "missing codes of both": (["17", "-9", "NA"], {"missing": ["-9"]}, {"missing": ["NA"]}, [17, None, None], "BIGINT"),
    "missing codes of a type": (["17", "?"], {"type": "integer", "missing": ["?"]}, {}, [17, None], "BIGINT"),
    "missing dates": (["2020-02-29", "unknown"], {"missing": ["unknown"]}, {}, [date(2020, 2, 29), None], "DATE"),
    "missing times": (["2020-02-29 10:00:00", "unknown"], {"missing": ["unknown"]}, {},
        [datetime(2020, 2, 29, 10), None], "TIMESTAMP"),
    "missing under a mask": (["02139", "XX"], {"missing": ["XX"], "hierarchy": {"mask": "right"}}, {},
        ["02139", None], "VARCHAR"),
    "all missing": (["?", "?"], {"missing": ["?"]}, {}, [None, None], "VARCHAR"),
    "text": (["1", "2"], {"type": "text"}, {}, ["1", "2"], "VARCHAR"),
    "an integer under a mask": (["1", "22"], {"type": "integer", "hierarchy": {"mask": "right"}}, {},
        [1, 22], "BIGINT"),
    "date": (["1999-12-31"], {"type": "date"}, {}, [date(1999, 12, 31)], "DATE"),
    "date without marks": (["19560412"], {"type": "date", "format": "%Y%m%d"}, {}, [date(1956, 4, 12)], "DATE"),
    "name of a month": (["1 JAN 1999"], {"type": "date", "format": "%d %b %Y"}, {}, [date(1999, 1, 1)], "DATE"),
    "leap day of 1900's century": (["29.02.00"], {"type": "date", "format": "%d.%m.%y", "pivot": 2026}, {},
        [date(2000, 2, 29)], "DATE"),
    "timestamp": (["1999-12-31T10:20:30.5"], {"type": "timestamp"}, {},
        [datetime(1999, 12, 31, 10, 20, 30, 500_000)], "TIMESTAMP"),
    "time in a format": (["12/31/56 01:05 PM"], {"type": "timestamp", "format": "%m/%d/%y %I:%M %p", "pivot": 2026}, {},
                         [datetime(1956, 12, 31, 13, 5)], "TIMESTAMP"),
}  # fmt: skip


@pytest.fixture(scope="module")
def engine() -> Iterator[DuckDBEngine]:
    with closing(DuckDBEngine(duckdb.connect())) as engine:
        yield engine


def read_texts(
    engine: DuckDBEngine, texts: Sequence[str], attribute: dict[str, Any], csv: dict[str, Any]
) -> tuple[list[Any], str]:
    """The values and the type of a column of texts that is in no file."""
    reads_text = "hierarchy" in attribute and "type" not in attribute
    keys = {key: value for key, value in attribute.items() if key != "hierarchy"}
    keys |= {"type": "text"} if reads_text else {}
    reading = ColumnReading("value", **{**keys, "missing": tuple(keys.get("missing", ()))})
    marks = NumberMarks(csv.get("decimal", "."), csv.get("thousands"), bool(csv))
    engine.connection.execute("CREATE OR REPLACE TABLE t AS SELECT unnest(?::VARCHAR[]) AS value", [texts])
    readings, undeclared = ({"value": reading}, set[str]()) if keys else ({}, {"value"})
    values = read_columns(engine, table("t"), readings, marks, undeclared)
    rows = engine.rows(select(projection(["value"], values), table("t")))
    return [value for (value,) in rows], values["value"][1] if values else "VARCHAR"


@pytest.mark.slow
def test_texts_are_read_as_declared(engine: DuckDBEngine) -> None:
    """Texts of all kinds, without a file; values that a file reads as NULL are left out."""
    for case, (texts, attribute, csv, values, type_) in KINDS.items():
        if "missing" not in csv:
            assert read_texts(engine, texts, attribute, csv) == (values, type_), case


@pytest.mark.thorough
@pytest.mark.parametrize("case", KINDS)
def test_a_column_is_read_as_declared(case: str, tmp_path: Path) -> None:
    texts, attribute, csv, values, type_ = KINDS[case]
    assert column(tmp_path / "x.csv", texts, attribute, csv) == (values, type_)


REFUSED: dict[str, tuple[list[str], dict[str, Any], dict[str, Any], str]] = {
    "a letter": (["17", "4e"], {"type": "integer"}, {},
        "1 value of the column is not an integer: '4e' (line 3); correct them, list those that mean NULL under"),
    "a decimal": (["17", "1.5"], {"type": "integer"}, {}, "not an integer: '1.5' (line 3)"),
    "an empty text that is a value": (["17", ""], {"type": "integer"}, {"missing": ["NA"]},
        "not an integer: '' (line 3)"),
    "a group of two": (["1.23,4"], {"type": "number"}, {"decimal": ",", "thousands": "."}, "'1.23,4' (line 2)"),
    "an undeclared group of two": (["1", "2,5", "12.34.567"], {}, {"decimal": ",", "thousands": "."},
                                   "is not written with decimal = ',' and thousands = '.': '12.34.567' (line 4)"),
    "a point among commas": (["1,5", "2,5", "1.5"], {}, {"decimal": ",", "thousands": "'"}, "'1.5' (line 4)"),
    "two commas": (["1,5", "2,5", "3,5,1"], {}, {"decimal": ","}, "'3,5,1' (line 4)"),
    "two commas where half are numbers": (["1,5", "2,5", "3,5,1", "x"], {}, {"decimal": ","}, "'3,5,1' (line 4)"),
    "39 digits": (["1" * 39], {"type": "integer"}, {}, "numbers of more than 38 digits"),
    "39 digits with decimals": (["1" * 36 + ".251"], {"type": "number"}, {}, "numbers of more than 38 digits"),
    "a day that is none": (["30.02.2020"], {"type": "date", "format": "%d.%m.%Y"}, {}, "'30.02.2020' (line 2)"),
    "a leap day before its pivot": (["29.02.00"], {"type": "date", "format": "%d.%m.%y", "pivot": 1999}, {},
        "'29.02.00' (line 2)"),
    "a word after a date": (["2020-01-01 foo"], {"type": "date"}, {}, "not a date: '2020-01-01 foo' (line 2)"),
    "a time that a date would lose": (["2020-01-01 10:00:00"], {"type": "date"}, {}, "not a date"),
    "a word after a time": (["2020-01-01T10:00 noon"], {"type": "timestamp"}, {}, "not a timestamp"),
    "nanoseconds": (["2020-01-01T10:00:00.123456789"], {"type": "timestamp"}, {}, "not a timestamp"),
}  # fmt: skip


def test_texts_that_do_not_fit_are_refused(engine: DuckDBEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(typed_columns, "_DATE_FORMATS", ["%d.%m.%Y"])  # to suggest others takes most of the time
    for case, (texts, attribute, csv, message) in REFUSED.items():
        if "missing" not in csv:
            by_row = re.sub(r"\(line (\d+)\)", lambda line: f"(row {int(line[1]) - 1})", message)
            with pytest.raises(SourceError) as refused:
                read_texts(engine, texts, attribute, csv)
            assert by_row in str(refused.value), case


@pytest.mark.cases(2)
@pytest.mark.parametrize("case", REFUSED)
def test_values_that_do_not_fit_are_named(case: str, tmp_path: Path) -> None:
    texts, attribute, csv, message = REFUSED[case]
    assert message in refusal(tmp_path / "x.csv", texts, attribute, csv)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("values", "attribute", "advice", "keys"),
    [
        (["01.01.1990", "13.02.1990"], {"type": "date"}, 'set type = "date", format = "%d.%m.%Y", which reads all 2',
         {"type": "date", "format": "%d.%m.%Y"}),
        (["13.02.1990", "14.02.1990", "NA"], {"type": "date"}, 'format = "%d.%m.%Y", which reads 2 of 3 values',
         {"type": "date", "format": "%d.%m.%Y", "missing": ["NA"]}),
        (["1990-02-13 10:30", "1990-02-14 9:30"], {"type": "date"}, 'type = "timestamp", format = "%Y-%m-%d %H:%M"',
         {"type": "timestamp", "format": "%Y-%m-%d %H:%M"}),
        (["13.02.1990", "14.02.1990"], {"type": "date", "format": "%m.%d.%Y"}, 'format = "%d.%m.%Y", which reads all',
         {"type": "date", "format": "%d.%m.%Y"}),
    ],
)  # fmt: skip
def test_declared_dates_in_a_usual_format_name_it(
    values: list[str], attribute: dict[str, Any], advice: str, keys: dict[str, Any], tmp_path: Path
) -> None:
    assert advice in refusal(tmp_path / "x.csv", values, attribute)
    assert column(tmp_path / "x.csv", values, keys)[1] == keys["type"].upper()


@pytest.mark.thorough
def test_the_first_five_of_many_values_are_named(tmp_path: Path) -> None:
    texts = [str(i) if i % 1000 else f"x{i}" for i in range(1, 20_001)]
    message = refusal(tmp_path / "x.csv", texts, {"type": "integer"})
    assert "20 values of the column are not an integer: 'x1000' (line 1,001), 'x2000' (line 2,001)" in message
    assert message.count("(line ") == 5 and "x6000" not in message


@pytest.mark.slow
def test_values_of_several_encoded_files_are_named_with_their_file(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("größe;n\n1;1\n2;2\n", encoding="latin-1")
    (tmp_path / "b.csv").write_text("n;größe\n1;1\n\n2;zwölf\nfooter\n", encoding="latin-1")
    (tmp_path / "a.csv").write_text("größe;n\n1;1\n2;2\nfooter\n", encoding="latin-1")
    attributes = {"größe": {"role": "quasi", "hierarchy": "suppress", "type": "integer"}, "n": "insensitive"}
    section = {"csv": {"encoding": "latin-1", "footer": 1}, "files": str(tmp_path / "*.csv"), "person": False}
    with pytest.raises(SourceError, match=r"'zwölf' \(b\.csv, line 4\)"):
        bound_rows(None, attributes, source=section)


WRONG_POLICIES = {
    "format without date": ({"format": "%Y"}, "attributes.value.format: applies to dates"),
    "format of a number": ({"type": "integer", "format": "%Y"}, "attributes.value.format: applies to dates"),
    "pivot without format": ({"type": "date", "pivot": 2026}, "attributes.value.pivot: applies to a format"),
    "pivot without %y": (
        {"type": "date", "format": "%d.%m.%Y", "pivot": 2026},
        "pivot: applies to years of two digits",
    ),
    "%y without pivot": ({"type": "date", "format": "%d.%m.%y"}, "pivot: is missing: %y is a year of two digits"),
    "no day": ({"type": "date", "format": "%m.%Y"}, "format: needs a day and a month"),
    "no year": ({"type": "date", "format": "%d.%m."}, "format: needs one year"),
    "two years": ({"type": "date", "format": "%d.%m.%Y %y", "pivot": 2026}, "format: needs one year"),
    "a day twice": ({"type": "date", "format": "%d.%m.%Y %d"}, "format: has %d twice"),
    "a time of a date": ({"type": "date", "format": "%d.%m.%Y %H:%M"}, 'set type = "timestamp"'),
    "a timestamp without a time": ({"type": "timestamp", "format": "%d.%m.%Y"}, 'set type = "date"'),
    "a zone": ({"type": "timestamp", "format": "%d.%m.%Y %H:%M %z"}, "format: %z is not supported"),
    "an unknown type": ({"type": "int"}, "did you mean 'integer'?"),
    "a number as a code": ({"missing": [-9]}, "attributes.value.missing[0]: must be a text"),
}


@pytest.mark.parametrize("case", WRONG_POLICIES)
def test_keys_that_do_not_go_together_are_policy_errors(case: str) -> None:
    keys, message = WRONG_POLICIES[case]
    with pytest.raises(PolicyError) as caught:
        make_policy({"value": {"role": "quasi", "hierarchy": "suppress", **keys}, "wrong": {"role": "none"}})
    assert message in str(caught.value)
    assert "attributes.wrong.role" in str(caught.value), "with all other problems"


@pytest.mark.parametrize(
    ("csv", "message"),
    [
        ({"thousands": "."}, 'source.csv.thousands: is also the decimal mark: add decimal = ","'),
        ({"thousands": ",", "decimal": ","}, "source.csv.thousands: is also the decimal mark: give another"),
        ({"thousands": "x"}, "source.csv.thousands: must be one of"),
        ({"decimal": ";"}, "source.csv.decimal: must be one of"),
    ],
)
def test_marks_that_do_not_go_together_are_policy_errors(csv: dict[str, str], message: str) -> None:
    with pytest.raises(PolicyError) as caught:
        make_policy({"value": "mask"}, table=None, source={"files": "x.csv", "csv": csv})
    assert message in str(caught.value)


def test_identifying_attributes_are_not_read() -> None:
    with pytest.raises(PolicyError, match=r"attributes\.name\.missing: controls how values are read"):
        make_policy({"value": "mask", "name": {"role": "identifying", "missing": ["x"]}})


@pytest.mark.parametrize(
    ("source", "where"),
    [
        ({"database": "x.duckdb", "table": "t"}, "a database"),
        ({"database": "x.sqlite", "table": "t"}, "a database"),
        ({"postgres": "postgresql://u@h/d", "table": "t"}, "PostgreSQL"),
        ({"spark": "sc://h:1", "table": "t"}, "Spark"),
        ({"frequency_set": "x.parquet", "table": "t"}, "a frequency set"),
    ],
)
def test_databases_know_their_types(source: dict[str, str], where: str) -> None:
    keys = {"type": "date", "format": "%d.%m.%y", "pivot": 2026, "missing": ["-"]}
    with pytest.raises(PolicyError) as caught:
        make_policy({"value": {"role": "quasi", "hierarchy": "suppress", **keys}}, table=None, source=source)
    for key in keys:
        assert f"attributes.value.{key}: applies to files and data frames, and this source is {where}" in str(
            caught.value
        )


def test_a_connection_knows_its_types() -> None:
    attributes = {"value": {"role": "quasi", "hierarchy": "suppress", "type": "integer"}}
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE t AS SELECT '1' AS value")
        with sqlanon.connect(connection) as db, pytest.raises(SourceError, match="this source is neither"):
            db.anonymize(make_policy(attributes, source={"table": "t", "person": False}))


TEXTS = {"age": ["17", "-9", "18", "40"], "born": ["31.12.99", "1.2.26", "1.2.27", "?"]}
TYPED = {
    "age": {"role": "quasi", "hierarchy": {"intervals": [10]}, "type": "integer", "missing": ["-9"]},
    "born": {"role": "quasi", "hierarchy": {"dates": ["year"]}, "type": "date", "format": "%d.%m.%y", "pivot": 2026,
             "missing": ["?"]},
}  # fmt: skip
READ = [(17, date(1999, 12, 31)), (None, date(2026, 2, 1)), (18, date(1927, 2, 1)), (40, None)]


@pytest.mark.slow
def test_texts_of_parquet_json_and_frames_are_read_alike(tmp_path: Path) -> None:
    frame = pa.table(TEXTS)
    pq.write_table(frame, tmp_path / "x.parquet")
    rows = [dict(zip(TEXTS, row, strict=True)) for row in zip(*TEXTS.values(), strict=True)]
    (tmp_path / "x.json").write_text(json.dumps(rows))
    (tmp_path / "x.csv").write_text("\n".join([",".join(TEXTS), *(",".join(row.values()) for row in rows)]))
    for source in (str(tmp_path / "x.parquet"), str(tmp_path / "x.json"), str(tmp_path / "x.csv"), frame):
        values, types = bound_rows(source, TYPED, source={"person": False})
        assert (values, types) == (READ, {"age": "BIGINT", "born": "DATE"})
        _, types = bound_rows(source, TYPED, source={"person": False}, reads=False)
        assert types == {"age": "BIGINT", "born": "DATE"}, "as a plan has them"
    bad = pa.table({**TEXTS, "age": ["17", "4e", "18", "40"]})
    with pytest.raises(
        SourceError, match=r"attributes\.age\.type: 1 value of the column is not an integer: '4e' \(row 2\)"
    ):
        bound_rows(bad, TYPED, source={"person": False})


def test_codes_of_numbers_are_null_in_frames() -> None:
    frame = pa.table({"age": [17, -9, 18], "wage": [1.5, 99.0, 2.5]})
    attributes = {
        "age": {"role": "quasi", "hierarchy": {"intervals": [10]}, "missing": ["-9"], "type": "integer"},
        "wage": {"role": "quasi", "hierarchy": {"intervals": [10]}, "missing": ["99"]},
    }
    rows, types = bound_rows(frame, attributes, source={"person": False})
    assert rows == [(17, 1.5), (None, None), (18, 2.5)] and types == {"age": "BIGINT", "wage": "DOUBLE"}
    for keys, message in (
        ({"missing": ["NA"]}, "'NA' cannot be a value of column 'age', which is BIGINT"),
        ({"missing": ["1.5"]}, "'1.5' cannot be a value of column 'age'"),
        ({"type": "date"}, "column 'age' is BIGINT already"),
    ):
        changed = {**attributes, "age": {"role": "quasi", "hierarchy": "suppress", **keys}}
        with pytest.raises(SourceError, match=message):
            bound_rows(frame, changed, source={"person": False})


@pytest.mark.thorough
def test_a_release_of_typed_columns_verifies(tmp_path: Path) -> None:
    days = [f"{1 + i % 28}.{1 + i % 12}.{i % 90:02d}" for i in range(300)]
    lines = [
        f"{i % 40 + 20};{days[i]};{i}.234,5{i % 10};{'NA' if i % 9 == 0 else 'ill'};p{i // 2}" for i in range(100, 300)
    ]
    (tmp_path / "people.csv").write_text("\n".join(["age;born;wage;illness;person", *lines, ""]))
    (tmp_path / "policy.toml").write_text("""
[source]
files = "people.csv"
person = "person"
[source.csv]
decimal = ","
thousands = "."
missing = ["", "NA"]
[attributes]
age = { role = "quasi", type = "integer", missing = ["20"], hierarchy = { intervals = [10, 20] } }
born = { role = "quasi", type = "date", format = "%d.%m.%y", pivot = 1999, hierarchy = { dates = ["decade"] } }
wage = { role = "sensitive" }
illness = { role = "sensitive" }
[privacy]
k = 2
[search]
suppression_limit = 0.5
[release]
database = "release.duckdb"
""")
    assert cli("anonymize", "policy.toml", cwd=tmp_path).status == 0
    ended = cli("verify", "release.duckdb", "--policy", "policy.toml", cwd=tmp_path)
    assert ended.status == 0, ended.err
    with duckdb.connect(str(tmp_path / "release.duckdb"), read_only=True) as connection:
        names = dict(
            connection.execute(
                "SELECT column_name, data_type FROM information_schema.columns WHERE table_name = 'release'"
            ).fetchall()
        )
        wages = {value for (value,) in connection.execute("SELECT DISTINCT wage FROM release").fetchall()}
        illnesses = {value for (value,) in connection.execute("SELECT DISTINCT illness FROM release").fetchall()}
    assert names["wage"] == "DECIMAL(8,2)" and illnesses == {None, "ill"}
    assert wages <= {Decimal(f"{i}234.5{i % 10}") for i in range(100, 300)}
    (tmp_path / "people.csv").write_text((tmp_path / "people.csv").read_text().replace("p60\n", "p61\n"))
    assert (
        "changed" in (ended := cli("verify", "release.duckdb", "--policy", "policy.toml", cwd=tmp_path)).out + ended.err
    )


@pytest.mark.thorough
def test_a_population_is_read_as_its_source(tmp_path: Path) -> None:
    for name in ("source.csv", "population.csv"):
        (tmp_path / name).write_text("age,ill\n" + "17,x\n-9,y\n18,x\n" * 3)
    attributes = {"age": TYPED["age"], "ill": "sensitive"}
    sections = {"population": {"files": str(tmp_path / "population.csv")}, "privacy": {"k_map": 3}}
    rows, _ = publish_and_read(
        str(tmp_path / "source.csv"), attributes, tmp_path, table=None, source={"person": False}, **sections
    )
    assert len(rows) == 9 and not {"-9", -9} & {row[0] for row in rows}


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("values", "csv", "numbers"),
    [
        (["$1,234.50", "-$7.00"], {"thousands": ","}, [Decimal("1234.50"), Decimal("-7.00")]),
        (["1.234,50 €", "7,00\u00a0€"], {"decimal": ",", "thousands": "."}, [Decimal("1234.50"), Decimal("7.00")]),
        (["12 %", "7%"], {}, [12, 7]),
        (["CHF 5", "CHF 6.5"], {}, [Decimal("5.0"), Decimal("6.5")]),
    ],
)
def test_numbers_in_one_unit_are_read_where_they_are_declared(
    values: list[str], csv: dict[str, Any], numbers: list[Any], tmp_path: Path
) -> None:
    assert column(tmp_path / "x.csv", values, {"type": "number"}, csv)[0] == numbers
    assert column(tmp_path / "x.csv", values, {"type": "text"}, csv) == (values, "VARCHAR")


@pytest.mark.cases(1)
@pytest.mark.parametrize(
    ("values", "message"),
    [
        (["€5", "$7", "€9"], "most numbers have '€', and others have not: '$7' (line 3)"),
        (["5", "7", "9 %"], "most numbers have no unit, and others have not: '9 %' (line 4)"),
        (["12 kg", "7 kg"], "2 values of the column are not a number: '12 kg' (line 2), '7 kg' (line 3)"),
        (["1e400", "7"], "numbers of more than 38 digits, or beyond 1e308, which no type holds exactly"),
        (["0x10", "7"], "1 value of the column is not a number: '0x10' (line 2)"),
    ],
)
def test_declared_numbers_that_are_not_certain_are_refused(values: list[str], message: str, tmp_path: Path) -> None:
    assert message in refusal(tmp_path / "x.csv", values, {"type": "number"})


@pytest.mark.slow
@pytest.mark.parametrize("late", [0, 2_500], ids=["early", "late"])
@pytest.mark.parametrize(
    ("value", "type_", "read"),
    [
        ("0.12345678901234567891", "DECIMAL(21,20)", Decimal("0.12345678901234567891")),
        ("9007199254740993.5", "DECIMAL(17,1)", Decimal("9007199254740993.5")),
        ("0.30000000000000004", "DOUBLE", 0.1 + 0.2),
        ("18446744073709551617", "HUGEINT", 2**64 + 1),
        (str(10**40), "VARCHAR", str(10**40)),
        ("1e400", "VARCHAR", "1e400"),
        ("1e-400", "VARCHAR", "1e-400"),
        ("1E5", "VARCHAR", "1E5"),
        ("1E+5", "DOUBLE", 1e5),
        ("0x10", "VARCHAR", "0x10"),
        ("nan", "VARCHAR", "nan"),
        (" 007", "VARCHAR", " 007"),
        (" 7 ", "BIGINT", 7),
    ],
)
def test_numbers_without_keys_are_exact_or_texts(value: str, type_: str, read: Any, late: int, tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("value,other\n" + "1,x\n" * (late or 2) + f"{value},x\n")
    attributes = dict.fromkeys(("value", "other"), "insensitive") | {"other": "suppress"}
    rows, types = bound_rows(str(path), attributes, source={"person": False})
    assert (types["value"], rows[-1][0]) == (type_, read)


MOMENTS = st.datetimes(datetime(1900, 1, 1), datetime(2100, 1, 1)).map(lambda moment: moment.replace(microsecond=0))
ZONES = st.sampled_from(["Z", "+02:00", "-11:30", "+0545", "+14", " UTC", " Europe/Berlin"])


@pytest.mark.slow
@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.tuples(MOMENTS, ZONES, st.sampled_from(" T")), min_size=1, max_size=5), st.booleans())
def test_times_with_a_zone_are_those_that_the_clock_showed(
    tmp_path_factory: pytest.TempPathFactory, moments: list[tuple[datetime, str, str]], is_declared: bool
) -> None:
    texts = [moment.isoformat(between) + zone for moment, zone, between in moments]
    expected = [moment for moment, _, _ in moments]
    folder = tmp_path_factory.mktemp("moments")
    attribute = {"role": "quasi", "hierarchy": "suppress", **({"type": "timestamp"} if is_declared else {})}
    assert column(folder / "x.csv", texts, attribute) == (expected, "TIMESTAMP")
    (folder / "x.json").write_text(json.dumps([{"value": value} for value in texts]))
    rows, types = bound_rows(str(folder / "x.json"), {"value": attribute}, source={"person": False})
    is_text = types == {"value": "VARCHAR"} and not is_declared  # the engine takes some spellings for texts
    assert is_text or (rows, types) == ([(moment,) for moment in expected], {"value": "TIMESTAMP"})


@pytest.mark.thorough
def test_times_with_and_without_a_zone_are_moved_nowhere(tmp_path: Path) -> None:
    texts = ["2024-01-31T00:30:00+02:00", "2024-01-31T00:30:00"]
    assert "cannot hold 1 value (row 2)" in refusal(tmp_path / "x.csv", texts, {})
    (tmp_path / "x.json").write_text(json.dumps([{"value": value} for value in texts]))
    attributes = {"value": {"role": "quasi", "hierarchy": "suppress"}}
    rows, _ = bound_rows(str(tmp_path / "x.json"), attributes, source={"person": False})
    assert rows == [(text,) for text in texts]


def is_number(value: str, decimal: str, thousands: str | None) -> bool:
    """Digits with one decimal mark at most, and thousands in groups of three behind one to three digits; a sign before
    them, and an exponent of up to three digits behind."""
    mantissa, e, exponent = value.lower().partition("e")
    digits = exponent.removeprefix("-") if exponent.startswith("-") else exponent.removeprefix("+")
    if e and not (digits.isdecimal() and len(digits) <= 3):
        return False
    unsigned = mantissa[1:] if mantissa[:1] in ("+", "-") else mantissa
    whole, mark, places = unsigned.partition(decimal)
    if places and not places.isdecimal():
        return False
    if not whole:
        return bool(mark and places)
    first, *groups = whole.split(thousands) if thousands else [whole]
    if groups and not (len(first) <= 3 and all(len(group) == 3 for group in groups)):
        return False
    return all(part.isdecimal() for part in (first, *groups))


@pytest.mark.parametrize(("decimal", "thousands"), [(".", None), (".", ","), (",", "."), (",", None), (".", "'")])
def test_numbers_have_their_marks_where_people_write_them(decimal: str, thousands: str | None) -> None:
    parts = ["", "1", "12", "123", "1234", "0"]
    groups = ["", ",23", ",234", ",2345", ",234,567", ",", ".5", ".", ",234.5", "'234", "e5", "e1234", ".5e-3", "x"]
    for sign, part, group in itertools.product(["", "-", "+", "--"], parts, groups):
        value = sign + part + group
        assert bool(re.fullmatch(number_pattern(NumberMarks(decimal, thousands)), value)) == is_number(
            value, decimal, thousands
        ), value
    codes = number_pattern(NumberMarks(decimal, thousands), leading_zeros=False)
    assert [bool(re.fullmatch(codes, value)) for value in ("0", "10", "007", "00")] == [True, True, False, False]
    whole = number_pattern(NumberMarks(decimal, thousands), is_integer=True)
    assert [bool(re.fullmatch(whole, value)) for value in ("12", "-12", f"12{decimal}5", "1e5", f"12{decimal}")] == [
        True, True, False, False, False,
    ]  # fmt: skip
