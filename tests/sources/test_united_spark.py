"""Parquet files in Spark are united by the names of their columns; texts that are not UTF-8 are refused."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from united_files import FIRST, ROLES, Columns, reorder, write_files

import sqlanon
from sqlanon import SourceError
from support.policies import make_policy
from support.published_tables import table_of

pytestmark = pytest.mark.spark


def policy_of(source: dict[str, Any], roles: dict[str, Any] = ROLES) -> sqlanon.Policy:
    return make_policy(roles, k=1, source={"spark": "local[1]", **source})


def released_rows(session: Any, files: list[str], folder: Path) -> tuple[list[tuple[Any, ...]], dict[str, str]]:
    with sqlanon.connect(session) as db:
        db.anonymize(policy_of({"files": files})).publish(folder / "r.duckdb", "released")
    return table_of(folder / "r.duckdb")


def refusal(session: Any, source: dict[str, Any], roles: dict[str, Any] = ROLES) -> str:
    with sqlanon.connect(session) as db, pytest.raises(SourceError) as caught:
        db.anonymize(policy_of(source, roles))
    return str(caught.value)


@pytest.fixture(params=["classic", "connect"])
def any_session(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue("spark" if request.param == "classic" else "spark_connect")


@pytest.mark.usefixtures("spark_cluster")
def test_two_patterns_are_united_by_name(any_session: Any, tmp_path: Path) -> None:
    files = write_files(tmp_path, "parquet", [FIRST, reorder(FIRST, "name", "diagnosis", "age", "zip")])
    rows, types = released_rows(any_session, files, tmp_path)
    assert list(types) == list(FIRST)
    assert Counter(rows) == Counter(dict.fromkeys(zip(*FIRST.values(), strict=True), 2))


def test_one_pattern_is_united_by_name(spark: Any, tmp_path: Path) -> None:
    for i, order in enumerate((list(FIRST), ["name", "diagnosis", "age", "zip"], ["age", "zip", "name", "diagnosis"])):
        pq.write_table(pa.table(reorder(FIRST, *order)), tmp_path / f"f [{i}] %41.parquet")
    rows, _ = released_rows(spark, [str(tmp_path / "f *.parquet")], tmp_path)
    assert Counter(rows) == Counter(dict.fromkeys(zip(*FIRST.values(), strict=True), 3))


OTHERS: dict[str, tuple[Columns, str]] = {
    "missing": (reorder(FIRST, "zip", "name", "age"), "f1.parquet lacks 'diagnosis' of f0.parquet"),
    "extra": ({**FIRST, "ward": [1] * 4}, "f1.parquet has 'ward', which f0.parquet lacks"),
    "of another type": ({**FIRST, "age": [1.5] * 4}, "'age' is bigint in f0.parquet and double in f1.parquet"),
}


@pytest.mark.parametrize("one_pattern", [False, True], ids=["two patterns", "one pattern"])
@pytest.mark.parametrize("kind", OTHERS)
def test_files_with_other_columns_are_refused(spark: Any, kind: str, one_pattern: bool, tmp_path: Path) -> None:
    """Spark itself reads a missing column as NULL, and leaves an extra one out."""
    second, message = OTHERS[kind]
    files = write_files(tmp_path, "parquet", [FIRST, second])
    files_option = [str(tmp_path / "f*.parquet")] if one_pattern else files
    refusal_message = refusal(spark, {"files": files_option})
    assert "the files do not have the same columns" in refusal_message
    assert message in refusal_message.replace(f"file:{tmp_path}/", "").replace(f"{tmp_path}/", "")


def test_a_file_of_two_patterns_is_refused(spark: Any, tmp_path: Path) -> None:
    """Its rows would count twice, and each person would be two."""
    files = write_files(tmp_path, "parquet", [FIRST, FIRST])
    message = refusal(spark, {"files": [files[0], str(tmp_path / "f*.parquet")]})
    assert "two patterns match f0.parquet" in message


BROKEN = "SELECT zip, diagnosis, IF(age > 3, CAST(X'ff41' AS STRING), name) AS name, age FROM people"


@pytest.mark.parametrize("role", ["insensitive", "sensitive", "suppress"])
def test_text_that_is_not_utf8_is_refused(spark: Any, role: str, tmp_path: Path) -> None:
    spark.createDataFrame(pa.table(FIRST)).createOrReplaceTempView("people")
    try:
        message = refusal(spark, {"query": BROKEN}, {**ROLES, "name": role})
        assert "text that is not UTF-8 in 'name' (1 value)" in message
        mended = BROKEN.replace("SELECT zip, diagnosis, IF(", "SELECT zip, diagnosis, make_valid_utf8(IF(")
        mended = mended.replace(", name) AS name", ", name)) AS name")
        with sqlanon.connect(spark) as db:
            db.anonymize(policy_of({"query": mended})).publish(tmp_path / "r.duckdb", "released")
        assert {row[2] for row in table_of(tmp_path / "r.duckdb")[0]} == {"a", "b", "c", "\ufffdA"}
    finally:
        spark.catalog.dropTempView("people")
