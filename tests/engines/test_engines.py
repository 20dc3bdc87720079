"""All engines satisfy one Protocol, and the capability table says what each of them can do."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from sqlglot import exp, parse_one

from sqlanon.engines.base import Engine
from sqlanon.engines.dialects.postgres import analyze_table
from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.engines.federation import FederatedEngine, RemoteTables
from sqlanon.engines.postgres.engine import PostgresEngine
from sqlanon.engines.spark.engine import SparkEngine
from sqlanon.support.expressions import aliased, drop_table, select_star, table
from support.kiosk import KioskEngine
from support.servers.postgres import Server

NUMBERS = {
    "duckdb": "range({0}) AS r(i)",
    "postgres": "generate_series(0, {0} - 1) AS r(i)",
    "spark": "range({0}) AS r(i)",
}


@pytest.fixture
def of_duckdb() -> Iterator[DuckDBEngine]:
    with duckdb.connect() as connection:
        yield DuckDBEngine(connection)


@pytest.fixture
def of_postgres(postgres: Server) -> Iterator[PostgresEngine]:
    engine = PostgresEngine.open(postgres.address(), "source.postgres")
    with engine.rolled_back_unless_committed():
        yield engine
    engine.close()


@pytest.fixture
def of_spark(spark: Any) -> Iterator[SparkEngine]:
    engine = SparkEngine(spark)
    yield engine
    engine.close()


ENGINES = ["of_duckdb", "of_postgres"]


@pytest.fixture
def engine(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue(request.param)


def numbers(engine: Engine, query: str, count: int = 10) -> Any:
    """A query over the numbers from 0 on, as ``{r}``."""
    relation = NUMBERS[engine.dialect].format(count)
    return parse_one(query.format(r=relation), read=engine.dialect)


@pytest.mark.cases(1)
@pytest.mark.parametrize("engine", ENGINES, indirect=True)
def test_engines_satisfy_the_protocol(engine: Engine) -> None:
    satisfies(engine)


def test_spark_satisfies_the_protocol(of_spark: SparkEngine) -> None:
    satisfies(of_spark)


def satisfies(engine: Engine) -> None:
    uploaded = engine.upload("sqlanon_uploaded", pa.table({"zip": ["a", "b"], "n": pa.array([1, 2], pa.int64())}))
    assert list(engine.columns(uploaded)) == ["zip", "n"]
    assert sorted(engine.rows(select_star(uploaded))) == [("a", 1), ("b", 2)]
    query = exp.select("zip").from_(uploaded.copy()).where("n > 1")
    for _ in range(2):  # the second takes the place of the first
        assert engine.materialize("sqlanon_materialized", query.copy()) == 1
    assert engine.rows(select_star(table("sqlanon_materialized"))) == [("b",)]
    with engine.stream(select_star(table("sqlanon_materialized"))) as reader:
        assert reader.read_all().to_pydict() == {"zip": ["b"]}
    assert "sqlanon_materialized" in engine.render(select_star(table("sqlanon_materialized")))
    if engine.dialect != "spark":  # there they are views
        engine.execute(drop_table(table("sqlanon_materialized")))
        with pytest.raises(Exception, match="sqlanon_materialized"):
            engine.rows(select_star(table("sqlanon_materialized")))


def test_an_engine_with_tables_elsewhere_satisfies_it_too(of_duckdb: DuckDBEngine) -> None:
    server = DuckDBEngine(duckdb.connect())
    engine: Engine = FederatedEngine(of_duckdb, RemoteTables(server, 10))  # type: ignore[arg-type]
    assert engine.materialize("m", exp.select("1 AS a")) == 1
    assert engine.rows(select_star(engine.upload("u", pa.table({"a": [7]})))) == [(7,)]
    server.close()


def test_one_row_is_looked_up_by_several_columns(of_duckdb: DuckDBEngine) -> None:
    """Several columns share a query over a local and a remote table, and it does not change."""
    server = KioskEngine(duckdb.connect())
    engine = FederatedEngine(of_duckdb, RemoteTables(server, 10))
    for backend in (of_duckdb, server):
        backend.connection.execute('CREATE TABLE t AS SELECT i % 2 AS a, i % 3 AS "\'b", i AS n FROM range(6) AS r(i)')
    relation = table("there", "main", "temp")
    engine.register_remote(relation, {"a": "BIGINT", "'b": "BIGINT", "n": "BIGINT"}, table("t"))
    for rows in (table("t"), relation):
        query = parse_one("SELECT count(*) AS n, max(n) AS most FROM (SELECT count(*) AS n FROM t GROUP BY x) AS g")
        next(query.find_all(exp.Table)).replace(rows)
        before = query.copy()
        assert isinstance(query, exp.Select)
        grouping = engine.prepare_grouping(query)
        assert [grouping(["a"]), grouping(["'b"]), grouping(["a", "'b"])] == [(2, 3), (3, 2), (6, 1)]
        assert query == before
    server.connection.close()


def gives_batches(engine: Engine) -> bool:
    """The first rows are there before the last are worked out, which cannot be."""
    late = numbers(engine, "SELECT CAST(CASE WHEN i = 3999999 THEN 'x' ELSE '1' END AS int) AS n FROM {r}", 4_000_000)
    with engine.stream(late) as reader:
        return bool(reader.read_next_batch().num_rows)


def hands_over_files(engine: Any) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        return bool(engine.write_parquet(exp.select("1 AS a"), str(Path(folder, "rows"))) == 1)


def keeps_inner_order(engine: Engine) -> bool:
    labels = engine.upload("sqlanon_labels", pa.table({"k": pa.array(range(10), pa.int64())}))
    if engine.dialect == "postgres":  # as where rows are recoded
        engine.execute(analyze_table(labels.copy()))
    rows = "(SELECT i FROM {r} ORDER BY -i) AS q LEFT JOIN labels ON q.i = labels.k"
    query = numbers(engine, f"SELECT q.i FROM {rows}", 1000)
    next(node for node in query.find_all(exp.Table) if node.name == "labels").replace(aliased(labels, "labels"))
    return [int(i) for (i,) in engine.rows(query)] == [*range(999, -1, -1)]


def has_recursion(engine: Engine) -> bool:
    round_ = "SELECT n + 1 FROM (SELECT n, row_number() OVER (ORDER BY n) AS k FROM r) AS q WHERE n < 3 AND k = 1"
    query = f"WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL {round_}) SELECT count(*) AS n FROM r"
    return engine.rows(parse_one(query, read="duckdb")) == [(3,)]


def runs_python(engine: Any) -> bool:
    query = numbers(engine, "SELECT i FROM {r}")
    return bool(engine.materialize_mapped("sqlanon_mapped", query, same, {"i": "bigint"}) == 10)


def same(batches: Iterator[Any]) -> Iterator[Any]:
    yield from batches


def caches_rows(engine: Any) -> bool:
    return bool(engine.cache("sqlanon_cached", numbers(engine, "SELECT i FROM {r}")) == 10)


def approximates_counts(engine: Engine) -> bool:
    rows = numbers(engine, "SELECT i FROM {r}").subquery("q")
    return 8 <= engine.rows(exp.select(exp.ApproxDistinct(this=exp.column("i"))).from_(rows))[0][0] <= 12


def binds_stream_parameters(engine: Any) -> bool:
    parameter = exp.Parameter(this=exp.Literal.number(1))
    with engine.stream(exp.select(exp.cast(parameter, "TEXT").as_("name")), ["x"]) as reader:
        return bool(reader.read_all().to_pydict() == {"name": ["x"]})


def opens_read_only(engine: Any) -> bool:
    with engine.read_only():
        return bool(engine.rows(exp.select("1 AS a")) == [(1,)])


def changes_tables(engine: Any) -> bool:
    engine.materialize("sqlanon_changed", numbers(engine, "SELECT i FROM {r}"))
    engine.execute(parse_one("DELETE FROM sqlanon_changed WHERE i > 4"))
    return bool(engine.rows(exp.select("count(*) AS n").from_("sqlanon_changed")) == [(5,)])


PROBES: dict[str, Callable[[Any], bool]] = {
    "STREAMS_BATCHES": gives_batches,
    "CACHES_ROWS": caches_rows,
    "WRITES_PARQUET": hands_over_files,
    "KEEPS_SUBQUERY_ORDER": keeps_inner_order,
    "RUNS_RECURSIVE_WINDOWS": has_recursion,
    "RUNS_PYTHON": runs_python,
    "APPROXIMATES_COUNTS": approximates_counts,
    "BINDS_STREAM_PARAMETERS": binds_stream_parameters,
    "OPENS_READ_ONLY": opens_read_only,
    "CHANGES_TABLES": changes_tables,
}


def can(engine: Any, capability: str) -> bool:
    try:
        return PROBES[capability](engine)
    except Exception:
        return False


@pytest.mark.cases(1)
@pytest.mark.parametrize("capability", PROBES)
@pytest.mark.parametrize("engine", ENGINES, indirect=True)
def test_capability_constants_are_right(engine: Engine, capability: str) -> None:
    assert can(engine, capability) == getattr(engine, capability)


def test_capability_constants_are_right_for_spark(of_spark: SparkEngine) -> None:
    for capability in PROBES:
        assert can(of_spark, capability) == getattr(of_spark, capability), capability


BAR = """
import sys
from pathlib import Path
import duckdb
from sqlanon.engines.duckdb import DuckDBEngine

own, private = DuckDBEngine(duckdb.connect()), DuckDBEngine.open_private(Path(sys.argv[1]))
print([one.current_setting("enable_progress_bar") for one in (own, private, own.connect_beside())])
"""


@pytest.mark.thorough
def test_an_interactive_python_sees_no_progress_bar_of_duckdb(tmp_path: Path) -> None:
    """DuckDB takes a process without a script for an interactive one: its connection prints to stdout after two
    seconds."""
    ended = subprocess.run([sys.executable, "-c", BAR, str(tmp_path)], capture_output=True, text=True, check=True)
    assert ended.stdout == "[True, False, False]\n"
