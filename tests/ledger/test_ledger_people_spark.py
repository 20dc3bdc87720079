"""The people of sources in Spark are hashed there, to the same hashes as in DuckDB."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pytest

import sqlanon
from sqlanon.engines.dialects.canonical_text import canonical_text
from sqlanon.errors import AuditError
from sqlanon.support.expressions import col
from support.people_tables import (
    IN_COMMON,
    TEXTS,
    in_csv,
    in_duckdb,
    in_parquet,
    make_people,
    make_tables,
    policy_of,
    publish,
)

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark_cluster")]


@pytest.fixture
def clinic(tmp_path: Path) -> Path:
    make_tables(tmp_path, make_people())
    return tmp_path


def publish_there(session: Any, policy: sqlanon.Policy) -> None:
    with sqlanon.connect(session) as db:
        db.anonymize(policy).publish()


def test_tables_of_the_same_people_are_refused_whether_spark_reads_them_or_not(session: Any, clinic: Path) -> None:
    publish_there(session, policy_of(clinic, "visits", in_parquet(clinic, "visits"), False))
    for person, place in ((False, in_csv), ("mrn", in_duckdb)):
        with pytest.raises(AuditError, match=IN_COMMON):
            publish(policy_of(clinic, "labs", place(clinic, "labs"), person))
    with pytest.raises(AuditError, match=IN_COMMON):
        publish_there(session, policy_of(clinic, "labs", in_parquet(clinic, "labs"), False))


def test_values_have_the_same_text_as_in_duckdb(session: Any) -> None:
    with duckdb.connect() as connection:
        for type_, spellings, values in TEXTS:
            query = canonical_text(col("v"), type_, "duckdb").sql("duckdb")
            rows = ", ".join(f"({i}, CAST({value} AS {type_}))" for i, value in enumerate(values))
            expected = connection.execute(f"SELECT {query} FROM (VALUES {rows}) AS t(n, v) ORDER BY n").fetchall()
            sql = canonical_text(col("v"), type_, "spark").sql("spark")
            rows = ", ".join(f"({i}, CAST({value} AS {spellings['spark']}))" for i, value in enumerate(values))
            answer = session.sql(f"SELECT {sql} FROM VALUES {rows} AS t(n, v) ORDER BY n").collect()
            assert [tuple(row) for row in answer] == expected, type_
