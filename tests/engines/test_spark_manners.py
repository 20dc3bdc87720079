"""The effects on a user's Spark session, and the functions that sources may call in it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from spark_cases import in_duckdb
from spark_tables import PLANTED, into_spark, outcome, plain_policy, planted_table, state

import sqlanon
from sqlanon.engines.spark.engine import SparkEngine
from support.thresholds import SMALL_SET, SMALL_SPARK

pytestmark = pytest.mark.spark


def cached_rdds(session: Any) -> set[int]:
    """Cached RDDs of the executors, by their numbers."""
    return set(session.sparkContext._jsc.getPersistentRDDs())


@pytest.fixture
def own_session(session: Any) -> Iterator[Any]:
    """Session with non-default settings."""
    theirs = {"spark.sql.session.timeZone": "America/New_York", "spark.sql.ansi.enabled": "false"}
    before = {name: session.conf.get(name, None) for name in theirs}
    for name, value in theirs.items():
        session.conf.set(name, value)
    into_spark(session, planted_table(), "planted")
    yield session
    for name, was in before.items():
        session.conf.unset(name) if was is None else session.conf.set(name, was)


@pytest.fixture
def huge(monkeypatch: pytest.MonkeyPatch) -> sqlanon.Policy:
    """A policy whose frequency sets stay in Spark."""
    monkeypatch.setattr(SMALL_SPARK, 5)
    monkeypatch.setattr(SMALL_SET, 5)
    tree = plain_policy(fetch_limit=1).model_dump(exclude_none=True)
    return sqlanon.Policy(**{**tree, "privacy": {"k": 4}})


@pytest.mark.thorough
def test_publish_leaves_no_temporary_objects(own_session: Any, huge: sqlanon.Policy, tmp_path: Path) -> None:
    before, earlier = state(own_session), cached_rdds(own_session)
    with sqlanon.connect(own_session) as db:
        result = db.anonymize(huge)
        assert state(own_session) != before  # the difference is visible
        assert cached_rdds(own_session) - earlier
        result.publish(tmp_path / "r.duckdb")
        db.plan(huge)
    assert state(own_session) == before
    assert cached_rdds(own_session) <= earlier


@pytest.mark.thorough
def test_failed_publish_leaves_no_files(
    own_session: Any, huge: sqlanon.Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The failure may be at any statement of a run."""
    before, earlier, run_statement = state(own_session), cached_rdds(own_session), SparkEngine._run
    calls, fails_at = [0], [10**9]

    def count_statement(self: SparkEngine, work: Any) -> Any:
        calls[0] += 1
        if calls[0] == fails_at[0]:
            raise sqlanon.SourceError("the cable is cut")
        return run_statement(self, work)

    monkeypatch.setattr(SparkEngine, "_run", count_statement)
    with sqlanon.connect(own_session) as db:
        db.anonymize(huge)
        whole, failed = calls[0], 0
    for at in range(2, whole, max(1, whole // 5)):
        calls[0], fails_at[0] = 0, at
        try:
            with sqlanon.connect(own_session) as db:
                db.anonymize(huge)
        except sqlanon.SourceError as error:
            failed += str(error) == "the cable is cut"
        assert state(own_session) == before
        assert cached_rdds(own_session) <= earlier
    assert failed  # not all: what fails to be dropped is dropped later, and no error


@pytest.mark.thorough
def test_databases_on_one_session_do_not_affect_each_other(own_session: Any, tmp_path: Path) -> None:
    """The one that ends first changes nothing for the other: no setting, and no view."""
    before, policy = state(own_session), plain_policy()
    first, second = sqlanon.connect(own_session), sqlanon.connect(own_session)
    result, second_result = first.anonymize(policy), second.anonymize(policy)
    first.close()
    assert own_session.conf.get("spark.sql.session.timeZone") == "UTC"
    again = second.anonymize(policy)
    assert result.generalization == second_result.generalization == again.generalization
    assert second_result.publish(tmp_path / "r.duckdb").verify().verified
    second.close()
    assert state(own_session) == before


# --- names, and kinds of sources ------------------------------------------------------------------


HOSTILE = [
    'say "x"',
    "tick`s",
    "a.b",
    "it's; --",
    "größe 日本",
    "select",
    "value",
    "n",
    "quasi_0",
    "known",
    "x" * 200,
    " ",
    "%s",
]


def rename_columns(table: pa.Table, names: list[str]) -> pa.Table:
    return table.rename_columns(dict(zip(("zip", "age", "ill", "note", "name"), names, strict=True)))


@pytest.mark.parametrize("turn", range(4))
@pytest.mark.parametrize("way", ["small", pytest.param("huge", marks=pytest.mark.thorough)])
def test_hostile_names_are_released(
    session: Any, turn: int, way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = (HOSTILE * 2)[3 * turn : 3 * turn + 5]
    table = planted_table().select(["zip", "age", "ill", "note", "name"])
    kinds = (
        {"role": "quasi", "hierarchy": "suppress"},
        {"role": "quasi", "hierarchy": {"intervals": [5, 15]}},
        {"role": "sensitive"},
        {"role": "insensitive"},
        {"role": "identifying"},
    )
    view = f"{HOSTILE[turn][:100]} of `mine`"
    policy = sqlanon.Policy(
        source={"table": "t"},
        attributes=dict(zip(names, kinds, strict=True)),
        privacy={"k": 4, "l_diversity": [{"attribute": names[2], "kind": "entropy", "l": 1.5}]},
        search={"suppression_limit": 0.2},
        release={"table": "r"},
    )
    hostile = rename_columns(table, names)
    with in_duckdb(hostile) as connection:
        expected = outcome(connection, policy, tmp_path)
    assert "digest" in expected
    into_spark(session, hostile, "`" + view.replace("`", "``") + "`")
    source: dict[str, Any] = {"query": f"SELECT * FROM `{view.replace('`', '``')}`"}
    if way == "small":
        source = {"table": f'"{view.replace(chr(34), chr(34) * 2)}"'}
    else:
        source["fetch_limit"] = 1
        monkeypatch.setattr(SMALL_SPARK, 5)
        monkeypatch.setattr(SMALL_SET, 5)
    spark_policy = sqlanon.Policy(**{**policy.model_dump(), "source": source})
    assert outcome(session, spark_policy, tmp_path) == expected


@pytest.mark.parametrize("rows", [0, 1, 9])
def test_small_tables_are_released(session: Any, rows: int, tmp_path: Path) -> None:
    """No rows, one row, and a table in which nothing varies."""
    table = pa.table(
        {name: pa.array([column[0].as_py()] * rows, column.type) for name, column in zip(
            planted_table().column_names, planted_table().columns, strict=True)}
    )  # fmt: skip
    tree = plain_policy().model_dump(exclude_none=True) | {"privacy": {"k": 4}}
    with in_duckdb(table) as connection:
        expected = outcome(connection, sqlanon.Policy(**{**tree, "source": {"table": "t"}}), tmp_path)
    assert ("digest" in expected) == (rows == 9)
    into_spark(session, table, "planted", tmp_path / "t.parquet")
    assert outcome(session, sqlanon.Policy(**tree), tmp_path) == expected


@pytest.mark.thorough
def test_all_kinds_of_sources_read_equal_rows(session: Any, tmp_path: Path) -> None:
    """A table of the catalog, files by a pattern, queries: all are the same rows."""
    table = planted_table()
    into_spark(session, table, "planted")
    with duckdb.connect() as connection:
        for i, part in enumerate((table.slice(0, 50), table.slice(50))):
            connection.register("part", part)
            connection.execute(f"COPY part TO '{tmp_path / f'part {i}.parquet'}' (FORMAT parquet)")
            connection.unregister("part")
    session.sql("CREATE DATABASE IF NOT EXISTS contract_schema")
    session.sql("DROP TABLE IF EXISTS contract_schema.planted")
    session.sql("CREATE TABLE contract_schema.planted USING parquet AS SELECT * FROM planted")
    try:
        sources: list[dict[str, Any]] = [
            {"table": "planted"},
            {"table": "contract_schema.planted"},
            {"files": str(tmp_path / "part *.parquet")},
            {"query": "SELECT * FROM planted -- the whole"},
            {"query": "WITH a AS (SELECT * FROM planted /* ; */) SELECT a.* FROM a WHERE zip <> ';' OR zip IS NULL;"},
        ]
        outcomes = []
        for source in sources:
            tree = plain_policy().model_dump(exclude_none=True) | {"source": {"spark": "local[1]", **source}}
            outcomes.append(outcome(session, sqlanon.Policy(**tree), tmp_path))
        assert all(result == outcomes[0] for result in outcomes)
        assert "digest" in outcomes[0]
    finally:
        session.sql("DROP DATABASE contract_schema CASCADE")


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ({"table": "nowhere"}, "nowhere|no table"),
        ({"query": "SELECT 1 AS zip; DROP VIEW planted"}, "one SELECT"),
        ({"query": "DROP VIEW planted"}, "one SELECT"),
        ({"query": "SELECT FROM WHERE"}, "cannot be parsed"),
        ({"query": "SELECT nothing FROM planted"}, "nothing|no column"),
        ({"query": "SELECT zip, age, ill, name FROM planted"}, "note"),
        ({"query": "SELECT *, 1 AS ZIP FROM planted"}, "differ in case|twice|ambiguous|same name"),
        ({"query": "SELECT zip, age, ill, array(note) AS note, name FROM planted"}, "DuckDB does not have"),
        ({"query": "SELECT zip, CAST(note AS INT) AS age, ill, note, name FROM planted"}, "CAST|cast|value"),
    ],
)
def test_unsupported_policies_are_refused(session: Any, source: dict[str, Any], says: str) -> None:
    """Errors are raised before anything is counted, where possible, and never contain a value of a row."""
    into_spark(session, planted_table(), "planted")
    tree = plain_policy().model_dump(exclude_none=True) | {"source": {"spark": "local[1]", **source}}
    with sqlanon.connect(session) as db, pytest.raises(sqlanon.SqlanonError, match=says) as error:
        db.anonymize(sqlanon.Policy(**tree))
    assert PLANTED not in str(error.value)
    assert session.catalog.tableExists("planted")


@pytest.mark.parametrize(
    "extra",
    [
        {"source": {"table": "planted", "key": ["name"]}},
        {"population": {"table": "planted"}, "privacy": {"k_map": 2}},
        {"release": {"table": "r", "decoys": True}, "privacy": {"k": 4}},
    ],
)
def test_features_that_need_rows_are_refused(session: Any, extra: dict[str, Any]) -> None:
    """Policies refused for a source in Spark are refused for a session, too."""
    into_spark(session, planted_table(), "planted")
    policy = sqlanon.Policy(**{**plain_policy().model_dump(exclude_none=True), **extra})
    with sqlanon.connect(session) as db, pytest.raises(sqlanon.PolicyError, match="Spark"):
        db.anonymize(policy)
