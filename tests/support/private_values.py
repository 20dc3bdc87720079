"""A source with values that no released byte may contain."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Any

import duckdb
import pytest
from sqlglot import exp

ROWS = 400


ODD = 5
"""Rows that have to be suppressed: they are unique, and their levels are limited."""


REGIONS = {"north region": ["Nordhaven-c1", "Nordkap-c2"], "south region": ["Suedhafen-c3", "Suedkap-c4"]}


ALONE = {"far region": ["Farawaytown-c5"]}


ATTRIBUTES: dict[str, Any] = {
    "name": "identifying",
    "ssn": "identifying",
    "zip": {"role": "quasi", "hierarchy": {"mask": "right"}, "min_level": 2, "max_level": 4},
    "city": {"role": "quasi", "hierarchy": {"categories": REGIONS | ALONE}, "min_level": 1, "max_level": 1},
    "income": {"role": "quasi", "hierarchy": {"intervals": [10**12, 10**15]}, "min_level": 1},
    "born": {"role": "quasi", "hierarchy": {"dates": ["year", "decade"]}, "min_level": 1},
    "sex": {"role": "quasi", "hierarchy": "suppress", "max_level": 0},
    "illness": "sensitive",
    "drug": "sensitive",
    "visits": "sensitive",
    "history": "insensitive",
    "wards": "insensitive",
    "marked": "insensitive",
    "note": "insensitive",
    "code": "insensitive",
}


# ENUMs carry their whole dictionary: values that are nowhere in the table, too.
CITY = "ENUM ('Nowhereville-c9', 'Nordhaven-c1', 'Nordkap-c2', 'Suedhafen-c3', 'Suedkap-c4', 'Farawaytown-c5')"


DRUG = "ENUM ('unused-drug-d9', 'common-drug-d1', 'common-drug-d2', 'odd-drug-d3')"


WARD = "ENUM ('unused-ward-w9', 'ward-a-w1', 'ward-b-w2', 'odd-ward-w3')"


SOURCE = f"""
    CREATE TABLE people AS
    SELECT 'Identified Person ' || i AS name,
           CAST(8123450000000000 + i * 7919 AS BIGINT) AS ssn,
           CASE WHEN odd THEN 'QX99990' || i % 10 ELSE 'QX' || (71000 + (i * 37) % 90) || '' END AS zip,
           CAST(CASE WHEN odd THEN 'Farawaytown-c5' ELSE
               ['Nordhaven-c1', 'Nordkap-c2', 'Suedhafen-c3', 'Suedkap-c4'][1 + i % 4] END AS {CITY}) AS city,
           CAST(CASE WHEN odd THEN 7 * 10::BIGINT**15 ELSE 3 * 10::BIGINT**15 END
                + 123456789 * (1 + i % 50) AS BIGINT) AS income,
           CAST(CASE WHEN odd THEN DATE '1911-02-03' ELSE DATE '1984-01-05' END
               + CAST(i % 300 AS INTEGER) AS DATE) AS born,
           CASE WHEN odd THEN 'odd-sex-' || i ELSE ['sex-one-x1', 'sex-two-x2'][1 + i % 2] END AS sex,
           CASE WHEN odd THEN 'odd-illness-' || i ELSE 'common-illness-' || i % 5 END AS illness,
           CAST(CASE WHEN odd THEN 'odd-drug-d3' ELSE 'common-drug-d' || (1 + i % 2) END AS {DRUG}) AS drug,
           CAST(5550000000000000 + i * 6007 AS BIGINT) AS visits,
           CAST([CASE WHEN odd THEN 'odd-ward-w3' ELSE 'ward-a-w1' END, 'ward-b-w2'] AS {WARD}[]) AS history,
           {{'first': CAST(CASE WHEN odd THEN 'odd-ward-w3' ELSE 'ward-a-w1' END AS {WARD}), 'days': 3}} AS wards,
           CAST(MAP {{CASE WHEN odd THEN 'odd-ward-w3' ELSE 'ward-b-w2' END: 'x'}} AS MAP({WARD}, VARCHAR)) AS marked,
           'Note number ' || i || ' about a stay' AS note,
           'code-' || i % 3 AS code
    FROM (SELECT i, i >= {ROWS} AS odd FROM range({ROWS + ODD}) AS r(i))
"""


UNUSED = ["Nowhereville-c9", "unused-drug-d9", "unused-ward-w9"]


@pytest.fixture(scope="module")
def source() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        connection.execute("SET GLOBAL force_compression = 'uncompressed'")
        connection.execute(SOURCE)
        yield connection


def plain(execute: Callable[..., None]) -> Callable[..., None]:
    """Has Parquet files written without compression."""

    def call(engine: Any, statement: Any, *more: Any) -> None:
        if isinstance(statement, exp.Copy):
            option = exp.CopyParameter(this=exp.Var(this="COMPRESSION"), expression=exp.Var(this="UNCOMPRESSED"))
            statement.append("params", option)
        execute(engine, statement, *more)

    return call


@pytest.fixture(scope="module", params=["drop", pytest.param("mask", marks=pytest.mark.slow)])
def suppression_kind(request: pytest.FixtureRequest) -> str:
    kind: str = request.param
    return kind


def values(source: duckdb.DuckDBPyConnection, query: str) -> list[Any]:
    return [value for (value,) in source.execute(query).fetchall()]


def needles(source: duckdb.DuckDBPyConnection, suppressed: str = "drop") -> dict[str, bytes]:
    """Everything that must not be in the release, by its meaning, in the form in which it would be written."""
    secrets: dict[str, bytes] = {}
    for column in ("name", "zip", "city::VARCHAR", "born::VARCHAR", "income::VARCHAR", "ssn::VARCHAR"):
        for value in values(source, f"SELECT DISTINCT {column} FROM people"):
            secrets[f"{column} {value}"] = value.encode()
    for column in ("ssn", "income"):
        for value in values(source, f"SELECT DISTINCT {column} FROM people"):
            secrets[f"{column} {value} in binary"] = struct.pack("<q", value)
    # Values of suppressed rows only; where these are masked, columns without a role as quasi-identifier are released.
    odd = "FROM people WHERE city = 'Farawaytown-c5'"
    texts = ["illness", "drug::VARCHAR", "history[1]::VARCHAR", "wards.first::VARCHAR", "note"]
    for column in ["sex", *(texts if suppressed == "drop" else [])]:
        for value in values(source, f"SELECT DISTINCT {column} {odd}"):
            secrets[f"{column} {value}, suppressed"] = value.encode()
    for value in values(source, f"SELECT visits {odd}") if suppressed == "drop" else []:
        secrets[f"visits {value} in binary, suppressed"] = struct.pack("<q", value)
    return secrets | {f"{value} of a dictionary": value.encode() for value in UNUSED}


def query(expression: str) -> str:
    return f"database = \"people.duckdb\"\nquery = '''SELECT {expression} FROM people'''"
