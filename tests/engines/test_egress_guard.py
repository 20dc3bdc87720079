"""The guard that keeps rows where they are, and the engine that lets nothing pass without it: without a server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import duckdb
import pyarrow
import pytest
from sqlglot import exp, parse_one

from sqlanon.engines.dialects.remote import shadow_query
from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.engines.egress_guard import (
    extract_local_queries,
    is_aggregated,
    may_leave,
    refuse_rows,
    split_aggregation,
)
from sqlanon.engines.federation import FederatedEngine, RemoteTables
from sqlanon.errors import SourceError
from sqlanon.support.expressions import create_table, table

# Permitted transfers


@pytest.mark.parametrize(
    ("query", "is_counted"),
    [
        ("SELECT zip, COUNT(*) FROM rows_there GROUP BY zip", True),
        ("SELECT DISTINCT zip FROM rows_there", True),
        ("SELECT COUNT(*) FILTER (WHERE zip IS NULL), MAX(age) FROM rows_there", True),
        ("SELECT 1 + CAST(SUM(age) AS BIGINT) FROM rows_there", True),
        ("SELECT g.n, h.label FROM (SELECT zip, COUNT(*) AS n FROM rows_there GROUP BY zip) AS g JOIN h ON TRUE", True),
        ("SELECT COUNT(*) FROM h WHERE EXISTS (SELECT zip FROM rows_there)", True),
        ("SELECT zip FROM h", True),
        ("SELECT zip FROM rows_there", False),
        ("SELECT zip FROM rows_there ORDER BY zip LIMIT 1", False),
        ("SELECT zip, COUNT(*) OVER (PARTITION BY zip) FROM rows_there", False),
        ("SELECT zip, (SELECT COUNT(*) FROM h) FROM rows_there", False),
        ("SELECT zip FROM h UNION ALL SELECT zip FROM rows_there", False),
        ("SELECT r.zip FROM rows_there AS r JOIN (SELECT DISTINCT zip FROM rows_there) AS g ON TRUE", False),
        ("SELECT zip FROM h WHERE zip IN (SELECT zip FROM rows_there)", False),
        ("WITH w AS (SELECT zip FROM rows_there) SELECT zip FROM w", False),
        ("SELECT x FROM (SELECT zip AS x FROM rows_there) AS s", False),
    ],
)  # fmt: skip
def test_counts_may_leave_the_server_and_rows_may_not(query: str, is_counted: bool) -> None:
    assert is_aggregated(parse_one(query, dialect="duckdb"), {'"rows_there"'}) is is_counted


@pytest.mark.slow
@pytest.mark.parametrize(
    "rows", ["SELECT * FROM s", "SELECT COUNT(*) FROM s", "SELECT b FROM s WHERE a = 1 AND b = 'x'"]
)
@pytest.mark.parametrize("around", ["{}", "CREATE TABLE t AS {}", "SELECT COUNT(*) FROM ({}) AS q"])
def test_a_shadow_can_be_bound_and_is_never_read(rows: str, around: str) -> None:
    """Whatever the optimizer makes of it: an empty answer would be one that is less private than claimed."""
    with duckdb.connect() as connection:
        types = {"a": "INTEGER", "b": "VARCHAR", "c d": "DECIMAL(8,2)", "e": "TIMESTAMP WITH TIME ZONE"}
        connection.execute(f"CREATE VIEW s AS {shadow_query(types).sql('duckdb')}")
        assert DuckDBEngine(connection).columns(table("s")) == types
        with pytest.raises(duckdb.InvalidInputException, match="are not read here"):
            connection.execute(around.format(rows)).fetchall()


class FakeServer:
    """Stands for Spark: records its statements and answers them."""

    dialect = "spark"
    STREAMS_BATCHES = KEEPS_SUBQUERY_ORDER = RUNS_RECURSIVE_WINDOWS = False
    WRITES_PARQUET = CACHES_ROWS = RUNS_PYTHON = True
    place = "source.spark"

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.answer = pyarrow.table({"zip": ["a", "b"], "n": pyarrow.array([3, 4], pyarrow.int64())})
        self.views: set[str] = set()

    @contextmanager
    def translate_errors(self, kind: object = None) -> Iterator[None]:
        yield

    @contextmanager
    def stream(self, query: exp.Expr) -> Iterator[pyarrow.RecordBatchReader]:
        self.asked.append(query.sql("spark"))
        yield self.answer.to_reader()

    def upload(self, name: str, arrow: pyarrow.RecordBatchReader) -> exp.Table:
        self.asked.append(f"ingest {arrow.read_all().to_pydict()}")
        self.views.add(name)
        return table(name)

    def materialize(self, name: str, query: exp.Expr) -> int:
        self.asked.append(f"keep {query.sql('spark')}")
        self.views.add(name)
        return 1000

    def forget(self, name: str) -> None:
        self.views.remove(name)


@pytest.fixture
def federated_engine() -> Iterator[tuple[FederatedEngine, FakeServer]]:
    server = FakeServer()
    with duckdb.connect() as connection:
        engine = FederatedEngine(
            DuckDBEngine(connection), RemoteTables(server, fetch_limit=10_000, max_rows=100, name="Spark")
        )
        engine.register_remote(
            table("people", "main", "memory"), {"zip": "VARCHAR", "id": "INTEGER"}, table("people", "clinic")
        )
        yield engine, server


PEOPLE = '"memory"."main"."people"'


def parse_query(query: str) -> exp.Query:
    statement = parse_one(query, dialect="duckdb")
    assert isinstance(statement, exp.Query)
    return statement


def test_counts_are_fetched(federated_engine: tuple[FederatedEngine, FakeServer]) -> None:
    engine, server = federated_engine
    query = parse_query(f'SELECT "zip", COUNT(*) AS "n" FROM {PEOPLE} GROUP BY "zip"')
    target = table("counts", "main", "memory")
    engine.execute(create_table(target, query))
    assert engine.rows(parse_query('SELECT * FROM "memory"."main"."counts"')) == [("a", 3), ("b", 4)]
    assert engine.rows(query) == [("a", 3), ("b", 4)]
    assert len(server.asked) == 2 and all("`clinic`.`people`" in statement for statement in server.asked)


def test_rows_stay_on_the_server(federated_engine: tuple[FederatedEngine, FakeServer]) -> None:
    engine, server = federated_engine
    with pytest.raises(SourceError, match="never leave"):
        engine.rows(parse_query(f'SELECT "id" FROM {PEOPLE}'))
    assert server.asked == []
    target = table("copied", "main", "memory")
    engine.execute(create_table(target, parse_query(f'SELECT "id", 1 AS "x" FROM {PEOPLE}')))
    assert server.asked[0].startswith("keep SELECT")
    assert engine.columns(target) == {"id": "INTEGER", "x": "INTEGER"}
    with pytest.raises(duckdb.InvalidInputException, match="are not read here"):
        engine.connection.execute("SELECT COUNT(*) FROM copied")
    engine.execute(exp.Drop(tables=[target], kind="TABLE"))
    assert not server.views


def test_too_many_counts_stay_on_the_server(federated_engine: tuple[FederatedEngine, FakeServer]) -> None:
    engine, server = federated_engine
    engine.remote.fetch_limit, engine.remote.max_rows = 999, None
    target = table("counts", "main", "memory")
    query = f'SELECT "zip", "id", COUNT(*) AS "n" FROM {PEOPLE} GROUP BY "zip", "id"'
    engine.execute(create_table(target, parse_query(query)))
    assert [statement.split()[0] for statement in server.asked] == ["keep"] and len(server.views) == 1
    engine.drop_remote_tables()
    assert not server.views


LABELLED = (
    f'SELECT g.*, u."label" FROM (SELECT "zip", COUNT(*) AS "n" FROM {PEOPLE} GROUP BY "zip") AS g '
    'JOIN (SELECT DISTINCT "zip", "label" FROM "memory"."main"."labels") AS u ON g."zip" = u."zip"'
)


def with_labels(engine: FederatedEngine) -> None:
    engine.connection.execute(
        "CREATE TABLE labels AS FROM (VALUES ('a', 'A'), ('b', 'B'), ('b', 'B')) AS t(zip, label)"
    )


@pytest.mark.slow
def test_local_tables_joined_to_counts_are_joined_locally(federated_engine: tuple[FederatedEngine, FakeServer]) -> None:
    engine, server = federated_engine
    with_labels(engine)
    for most in (100, None):  # as it is known to be small; or after it was looked at
        engine.remote.max_rows = most
        engine.execute(create_table(table("counts", "main", "memory"), parse_query(LABELLED)))
        rows = engine.rows(parse_query('SELECT * FROM "memory"."main"."counts" ORDER BY ALL'))
        assert rows == [("a", 3, "A"), ("b", 4, "B")]
        engine.execute(exp.Drop(tables=[table("counts", "main", "memory")], kind="TABLE"))
    assert [statement.split()[0] for statement in server.asked] == ["SELECT", "keep", "SELECT"]
    assert not any("labels" in statement or "label" in statement for statement in server.asked)
    assert not server.views


def test_local_tables_joined_to_remote_counts_are_shipped(federated_engine: tuple[FederatedEngine, FakeServer]) -> None:
    engine, server = federated_engine
    with_labels(engine)
    engine.remote.fetch_limit, engine.remote.max_rows = 999, None
    target = table("counts", "main", "memory")
    engine.execute(create_table(target, parse_query(LABELLED)))
    aggregation, answer, joined = server.asked
    assert aggregation.startswith("keep SELECT") and "GROUP BY" in aggregation and "label" not in aggregation
    assert sorted(answer.removeprefix("ingest ")) == sorted("{'zip': ['a', 'b'], 'label': ['A', 'B']}")
    assert "DISTINCT" not in joined and "GROUP BY" not in joined and "label" in joined
    assert len(server.views) == 1 and engine.columns(target) == {"zip": "VARCHAR", "n": "BIGINT", "label": "VARCHAR"}
    engine.drop_remote_tables()
    assert not server.views and not engine.remote.tables


@pytest.mark.parametrize(
    "query",
    [
        f'SELECT g."n" FROM (SELECT COUNT(*) AS "n" FROM {PEOPLE} GROUP BY "zip") AS g JOIN {PEOPLE} AS p ON true',
        f'SELECT MAX(g."n") FROM (SELECT COUNT(*) AS "n" FROM {PEOPLE} GROUP BY "zip") AS g JOIN "a"."b"."c" ON true',
        f'SELECT g."n" FROM (SELECT COUNT(*) AS "n" FROM {PEOPLE} GROUP BY "zip") AS g JOIN "a"."b"."c" ON 1 LIMIT 1',
        f'SELECT g."n" FROM (SELECT COUNT(*) AS "n" FROM {PEOPLE} GROUP BY "zip") AS g',
        f'SELECT DISTINCT g."n" FROM (SELECT "zip" AS "n" FROM {PEOPLE}) AS g JOIN "a"."b"."c" ON true',
        f'SELECT g."n" FROM (SELECT COUNT(*) AS "n" FROM {PEOPLE} GROUP BY "zip") AS g CROSS JOIN "a"."b"."c"',
        f'SELECT g."n" FROM (SELECT COUNT(*) AS "n" FROM {PEOPLE} GROUP BY "zip") AS g SEMI JOIN "a"."b"."c" ON 1',
    ],
)
def test_a_query_that_does_more_than_join_is_not_split(query: str) -> None:
    parsed_query = parse_query(query)
    aggregation, whole = split_aggregation(parsed_query, {PEOPLE})
    assert aggregation is parsed_query and whole(parsed_query) is parsed_query


def test_lists_of_joined_values_stay_on_the_server(federated_engine: tuple[FederatedEngine, FakeServer]) -> None:
    engine, server = federated_engine
    with_labels(engine)
    target = table("counts", "main", "memory")
    text = LABELLED.replace('COUNT(*) AS "n"', 'COUNT(*) AS "n", ARRAY_AGG("id") AS "l"').replace("g.*", 'g."n"')
    server.answer = pyarrow.table({"n": pyarrow.array([3], pyarrow.int64()), "label": ["A"]})
    engine.execute(create_table(target, parse_query(text)))
    statement = parse_one(server.asked[-1], dialect="spark")
    assert statement.named_selects == ["n", "label"] and len(list(statement.find_all(exp.Join))) == 1


@pytest.mark.slow
def test_names_in_a_query_are_its_own(federated_engine: tuple[FederatedEngine, FakeServer]) -> None:
    """A table that is shipped is not taken for what WITH calls by a name; and of one that is only counted one column
    is shipped."""
    engine, server = federated_engine
    with_labels(engine)
    server.answer = pyarrow.table({"n": pyarrow.array([8], pyarrow.int64())})
    labels = '"memory"."main"."labels"'
    query = (
        f'WITH "answer_0" AS (SELECT "zip" FROM {PEOPLE}) SELECT COUNT(*) AS "n" FROM "answer_0" '
        f'JOIN (SELECT DISTINCT "zip" FROM {labels}) AS x ON "answer_0"."zip" = x."zip"'
    )
    assert engine.rows(parse_query(query)) == [(8,)]
    assert server.asked[-1].count("`answer_0`") == query.count('"answer_0"')
    query = f'SELECT COUNT(*) AS "n" FROM {PEOPLE} AS p WHERE p."id" < (SELECT COUNT(*) FROM {labels})'
    assert engine.rows(parse_query(query)) == [(8,)]
    assert server.asked[-2].startswith("ingest {'zip': ")


def test_a_derived_table_that_names_others_is_left_alone() -> None:
    inner = '(SELECT p."zip" AS "z" FROM "a"."b"."c" AS c) AS l'
    query = parse_query(f'SELECT COUNT(*) AS "n" FROM {PEOPLE} AS p JOIN {inner} ON p."zip" = l."z"')
    assert extract_local_queries(query, {PEOPLE}, "answer") == (query, {})


def test_the_printed_sql_names_where_each_statement_runs(federated_engine: tuple[FederatedEngine, FakeServer]) -> None:
    engine, _ = federated_engine
    target = table("labelled", "main", "memory")
    aggregation, local_statement = engine.render(create_table(target, parse_query(LABELLED))).split(";\n\n")
    assert aggregation.startswith("-- in Spark, makes counted\nSELECT") and "label" not in aggregation
    assert "CREATE TABLE" in local_statement and "counted" in local_statement and "labels" in local_statement
    labels = '(SELECT DISTINCT "zip", "label" FROM "memory"."main"."labels")'
    joined = f'SELECT p."id", l."label" FROM {PEOPLE} AS p JOIN {labels} AS l ON p."zip" = l."zip"'
    answer, shipped_join = engine.render(create_table(target, parse_query(joined))).split(";\n\n")
    assert answer.startswith('-- here, shipped to Spark as "answer_0"\nSELECT DISTINCT') and "labels" in answer
    assert (
        shipped_join.startswith("-- in Spark, makes labelled\nSELECT")
        and "`answer_0`" in shipped_join
        and "DISTINCT" not in shipped_join
    )


def test_a_query_without_remote_tables_runs_locally(federated_engine: tuple[FederatedEngine, FakeServer]) -> None:
    """A subquery over local tables runs locally, and its result is shipped, unless its types differ in the server."""
    engine, server = federated_engine
    with_labels(engine)
    labels = '"memory"."main"."labels"'
    server.answer = pyarrow.table({"n": pyarrow.array([3], pyarrow.int64())})
    narrow = f'(SELECT DISTINCT "zip" AS "z" FROM {labels})'
    wide = f'(SELECT "zip" AS "z", SUM(1) AS "s" FROM {labels} GROUP BY "zip")'
    for labels_query, shipped in ((narrow, "{'z': ['a', 'b']}"), (wide, "{'zip': ['a', 'b', 'b']}")):
        query = f'SELECT COUNT(*) AS "n" FROM {PEOPLE} AS p JOIN {labels_query} AS l ON p."zip" = l."z"'
        assert engine.rows(parse_query(query)) == [(3,)]
        assert server.asked[-2] in (f"ingest {shipped}", "ingest {'z': ['b', 'a']}")
        assert ("SUM" in server.asked[-1]) == (labels_query is wide)
    assert not server.views


def test_local_tables_are_shipped_for_one_query(federated_engine: tuple[FederatedEngine, FakeServer]) -> None:
    engine, server = federated_engine
    engine.connection.execute("CREATE TABLE labels AS SELECT 'a' AS zip, 'A' AS label, 'private' AS other")
    query = (
        f'SELECT l."label", COUNT(*) AS "n" FROM {PEOPLE} AS p JOIN "memory"."main"."labels" AS l ON p."zip" = l."zip"'
    )
    server.answer = pyarrow.table({"label": ["A"], "n": pyarrow.array([3], pyarrow.int64())})
    assert engine.rows(parse_query(f'{query} GROUP BY l."label"')) == [("A", 3)]
    assert server.asked[0] == "ingest {'zip': ['a'], 'label': ['A']}"
    assert not server.views


@pytest.mark.parametrize(
    ("query", "types", "message"),
    [
        ("SELECT a FROM t", {"a": "VARCHAR"}, "rows of the source"),
        ("SELECT a, COUNT(*) AS n FROM t GROUP BY a", {"a": "VARCHAR", "n": "BIGINT"}, None),
        ("SELECT ARRAY_AGG(a) AS a FROM t", {"a": "VARCHAR[]"}, "lists of source values"),
        ("SELECT MAX(a) AS a FROM t", {"a": "STRUCT(b INTEGER)"}, "lists of source values"),
    ],
)
def test_only_aggregates_may_leave_the_server(query: str, types: dict[str, str], message: str | None) -> None:
    assert may_leave(parse_query(query), {'"t"'}, types) == (message is None)
    if message is None:
        refuse_rows(parse_query(query), {'"t"'}, types, "the kiosk")
        return
    with pytest.raises(SourceError, match=message) as error:
        refuse_rows(parse_query(query), {'"t"'}, types, "the kiosk")
    assert "the kiosk" in str(error.value)
