"""The engine of Spark: what it gives and takes, in a classic session and over Spark Connect."""

from __future__ import annotations

import datetime as dt
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from sqlglot import exp, parse_one

import sqlanon
from sqlanon.engines.spark.engine import SparkEngine
from sqlanon.support.expressions import col, create_temporary_view, drop_view, select, select_star, table
from support.servers.spark import Cluster

pytestmark = pytest.mark.spark

SECRET = "Ann-of-the-tests"
HOSTILE = "a`b \"c\" 'd' .e;-- \\ äß"


def query(text: str) -> Any:
    return parse_one(text, read="spark")


@pytest.fixture(params=["classic", "connect"])
def engine(request: pytest.FixtureRequest, spark_cluster: Cluster) -> Iterator[SparkEngine]:
    kind = "spark" if request.param == "classic" else "spark_connect"
    spark_engine = SparkEngine(request.getfixturevalue(kind), "source.spark")
    yield spark_engine
    spark_engine.close()


def _quote_name(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


# Values in both directions


TYPES: dict[str, tuple[pa.DataType, Any, str]] = {
    "i8": (pa.int8(), -128, "tinyint"),
    "i64": (pa.int64(), -(2**63), "bigint"),
    "u8": (pa.uint8(), 255, "smallint"),
    "u16": (pa.uint16(), 2**16 - 1, "int"),
    "u32": (pa.uint32(), 2**32 - 1, "bigint"),
    "u64": (pa.uint64(), 2**64 - 1, "decimal(20,0)"),
    "decimal": (pa.decimal128(38, 9), Decimal("-1.500000000"), "decimal(38,9)"),
    "float": (pa.float32(), 0.5, "float"),
    "double": (pa.float64(), -1e300, "double"),
    "bool": (pa.bool_(), True, "boolean"),
    "date": (pa.date32(), dt.date(1582, 10, 1), "date"),
    "time": (pa.timestamp("us"), dt.datetime(1900, 1, 1, 2, 30, 0, 7), "timestamp_ntz"),
    "zoned": (pa.timestamp("us", "UTC"), dt.datetime(2020, 3, 29, 2, 30, tzinfo=dt.timezone.utc), "timestamp"),
    "text": (pa.string(), HOSTILE, "string"),
    "empty": (pa.string(), "", "string"),
    "large": (pa.large_string(), "x" * 70_000, "string"),
    "view": (pa.string_view(), "é", "string"),
    "coded": (pa.dictionary(pa.int8(), pa.string()), "u", "string"),
    "bytes": (pa.binary(), b"\x00\xff", "binary"),
    "list": (pa.list_(pa.int64()), [1, None], "array<bigint>"),
}


def test_values_come_back_as_they_went(engine: SparkEngine) -> None:
    arrays = {name: pa.array([value, None], kind) for name, (kind, value, _) in TYPES.items()}
    uploaded = engine.upload("values_of_all_types", pa.table(arrays))
    assert engine.columns(uploaded) == {name: expected_type for name, (_, _, expected_type) in TYPES.items()}
    present, none = sorted(engine.rows(select_star(uploaded)), key=lambda row: row[0] is None)
    assert present == tuple(value for _, value, _ in TYPES.values())
    assert none == (None,) * len(TYPES)


def test_nan_and_infinity_are_fetched(engine: SparkEngine) -> None:
    uploaded = engine.upload("floats", pa.table({"x": [float("nan"), float("inf"), -0.0]}))
    with engine.stream(select_star(uploaded)) as reader:
        values = reader.read_all()["x"].to_pylist()
    assert sorted(map(str, values)) == ["-0.0", "inf", "nan"]


def test_names_with_quotes_dots_and_backticks(engine: SparkEngine) -> None:
    uploaded = engine.upload(HOSTILE, pa.table({HOSTILE: [HOSTILE], "x.y": [1], "*": [2]}))
    selection = select([col(HOSTILE), col("x.y"), col("*")], uploaded).where(
        exp.EQ(this=col(HOSTILE), expression=exp.Literal.string(HOSTILE))
    )
    assert engine.rows(selection) == [(HOSTILE, 1, 2)]
    assert list(engine.columns(uploaded)) == [HOSTILE, "x.y", "*"]
    assert engine.materialize(HOSTILE + "2", select_star(uploaded)) == 1
    assert engine.rows(select_star(table(HOSTILE + "2"))) == [(HOSTILE, 1, 2)]
    engine.forget(HOSTILE)
    engine.forget(HOSTILE + "2")
    assert not _has_table(engine, HOSTILE) and not _has_table(engine, HOSTILE + "2")


def _has_table(engine: SparkEngine, name: str) -> bool:
    try:
        engine.columns(table(name))
    except Exception:
        return False
    return True


def test_tables_without_rows_are_uploaded_and_read(engine: SparkEngine) -> None:
    uploaded = engine.upload("nothing", pa.table({"a": pa.array([], pa.int32()), "b": pa.array([], pa.string())}))
    assert engine.rows(select_star(uploaded)) == []
    with engine.stream(select_star(uploaded)) as reader:
        assert reader.schema.names == ["a", "b"] and reader.read_all().num_rows == 0
    assert engine.materialize("kept_nothing", select_star(uploaded)) == 0


def test_two_columns_may_have_one_name(engine: SparkEngine) -> None:
    assert engine.rows(query("SELECT 1 AS a, 2 AS a")) == [(1, 2)]


def test_a_stream_of_arrow_goes_in(engine: SparkEngine) -> None:
    batches = [pa.record_batch({"n": [i, i + 1]}) for i in (1, 3)]
    uploaded = engine.upload("streamed", pa.RecordBatchReader.from_batches(batches[0].schema, batches))
    assert engine.rows(query("SELECT SUM(n), COUNT(*) FROM streamed")) == [(10, 4)]
    assert uploaded.name == "streamed"


def test_rows_streamed_by_duckdb_are_uploaded(engine: SparkEngine) -> None:
    with duckdb.connect() as local:
        values = "SELECT i::UTINYINT AS a, i::HUGEINT AS b, "
        values += "'v' || i AS c, DATE '2020-01-01' + i::INT AS d FROM range(3) r(i)"
        engine.upload("of_duckdb", local.sql(values).to_arrow_reader())
        expected = local.sql(f"SELECT a, b, c, d FROM ({values})").fetchall()
    assert sorted(engine.rows(query("SELECT a, CAST(b AS BIGINT), c, d FROM of_duckdb"))) == expected


def test_statements_take_parameters(engine: SparkEngine) -> None:
    engine.execute(create_temporary_view(table("made"), query("SELECT id FROM range(5)")))
    assert engine.rows(query("SELECT COUNT(*) FROM made WHERE id < ?"), [3]) == [(3,)]
    engine.execute(drop_view(table("made")))
    assert not _has_table(engine, "made")
    assert engine.version.startswith("spark 4.")


def test_small_tables_are_broadcast(engine: SparkEngine) -> None:
    engine.upload("small", pa.table({"k": [1, 2], "label": ["a", "b"]}))
    joined = "SELECT r.id, s.label FROM range(100) AS r JOIN small AS s ON r.id <=> s.k"
    assert "BroadcastHashJoin" in engine.rows(query(f"EXPLAIN {joined}"))[0][0]


# Cached tables


def test_kept_rows_are_computed_once(engine: SparkEngine) -> None:
    assert engine.materialize("drawn", query("SELECT id, rand() AS r FROM range(1000)")) == 1000
    first = engine.rows(query("SELECT id, r FROM drawn ORDER BY id"))
    assert engine.rows(query("SELECT id, r FROM drawn ORDER BY id")) == first
    assert len({r for _, r in first}) == 1000
    # It can be read while another of its name is made.
    assert engine.materialize("drawn", query("SELECT id FROM drawn WHERE id < 10")) == 10
    engine.forget("drawn")
    assert not _has_table(engine, "drawn")
    engine.forget("drawn")


def test_cached_rows_are_kept_by_columns(engine: SparkEngine) -> None:
    assert engine.cache("cached", query("SELECT id FROM range(1000)")) == 1000
    assert "InMemoryTableScan" in engine.rows(query("EXPLAIN SELECT SUM(id) FROM cached"))[0][0]
    assert engine.rows(query("SELECT SUM(id) FROM cached")) == [(499_500,)]
    engine.forget("cached")
    assert not _has_table(engine, "cached")
    assert "InMemoryTableScan" not in engine.rows(query("EXPLAIN SELECT id FROM range(1000)"))[0][0]


def _kept_rdds(cluster: Cluster) -> set[int]:
    """The numbers of the RDDs that the executors keep."""
    return {rdd.id() for rdd in cluster.session.sparkContext._jsc.sc().getRDDStorageInfo()}


# Java frees unreferenced objects whenever it likes: leftovers of earlier tests are not counted.


def test_cached_rows_are_freed(spark_cluster: Cluster) -> None:
    earlier = _kept_rdds(spark_cluster)
    with closing(SparkEngine(spark_cluster.session)) as engine:
        for end in (lambda: engine.forget("held"), engine.close):
            engine.cache("held", query("SELECT id FROM range(1000)"))
            assert len(_kept_rdds(spark_cluster) - earlier) == 1
            end()
            assert not _kept_rdds(spark_cluster) - earlier


def test_dropped_tables_free_the_executors(spark_cluster: Cluster) -> None:
    earlier = _kept_rdds(spark_cluster)
    with closing(SparkEngine(spark_cluster.session)) as engine:
        for _ in range(2):  # the second replaces the first
            engine.materialize("held", query("SELECT id FROM range(1000)"))
        assert len(_kept_rdds(spark_cluster) - earlier) == 1
        engine.forget("held")
        assert not _kept_rdds(spark_cluster) - earlier
        engine.materialize("held", query("SELECT id FROM range(1000)"))
    assert not _kept_rdds(spark_cluster) - earlier


# Errors


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SELECT * FROM nowhere.at_all", "table or view `nowhere`.`at_all` does not exist"),
        ("SELECT nobody FROM range(2)", "there is no column `nobody`"),
        (f"SELECT CAST('{SECRET}' AS INT)", "a value does not fit its type (CAST_INVALID_INPUT)"),
        (f"SELECT CAST(concat('{SECRET}', id) AS DATE) FROM range(9)", "a value does not fit its type"),
        (f"SELECT raise_error(concat('{SECRET}', id)) FROM range(9)", "it failed, see its log (USER_RAISED_EXCEPTION)"),
        ("SELECT raise_error('sqlanon: a value of another type: x')", "a value of another type: x"),
        ("SELECT * FROM a.b.c", "its catalog knows schema.name, and not `a`.`b`.`c`"),
        ("SELECT 1 / (id - 5) FROM range(9)", "something is divided by zero (DIVIDE_BY_ZERO)"),
        ("SELECT CAST(id + 9223372036854775800 AS BIGINT) FROM range(9)", "a number is too large for its type"),
        (f"SELECT * FROM parquet.`/{SECRET}`", "the file or folder does not exist (PATH_NOT_FOUND)"),
    ],
)
def test_errors_reveal_no_values(
    engine: SparkEngine, text: str, message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(sqlanon.SourceError) as error, engine.translate_errors():
        engine.rows(query(text))
    assert str(error.value).startswith(f"source.spark: Spark says: {message}")
    assert SECRET not in str(error.value) and error.value.__suppress_context__
    assert capfd.readouterr() == ("", "")


def test_text_that_is_not_utf8(engine: SparkEngine) -> None:
    bad = query(
        f"SELECT 'a' AS fine, CAST(CAST(concat('{SECRET}', id) AS BINARY) || X'ff' AS STRING) AS bad FROM range(3)"
    )
    message = "source.spark: text that is not UTF-8 in 'bad': mend it"
    with pytest.raises(sqlanon.SourceError, match=message) as error:
        engine.rows(bad)
    assert SECRET not in str(error.value)
    with pytest.raises(sqlanon.SourceError, match=message), engine.stream(bad):
        pass


def test_the_kind_of_error_is_the_callers(engine: SparkEngine) -> None:
    with pytest.raises(sqlanon.ReleaseError), engine.translate_errors(sqlanon.ReleaseError):
        engine.execute(query("DROP TABLE nowhere"))
    with pytest.raises(ZeroDivisionError), engine.translate_errors():
        _ = 1 / 0


def test_too_large_result_names_the_setting_to_raise(spark: Any) -> None:
    with (
        closing(SparkEngine(spark)) as engine,
        pytest.raises(sqlanon.SourceError, match=r"raise spark\.driver\.maxResultSize"),
        engine.translate_errors(),
    ):
        # It is a setting of the driver: what Spark says of it is raised here.
        engine.rows(query("SELECT raise_error('bigger than spark.driver.maxResultSize') FROM range(1)"))


# Settings


def test_settings_are_put_back(spark_cluster: Cluster, spark_connect: Any) -> None:
    for session in (spark_cluster.session, spark_connect):
        session.conf.set("spark.sql.session.timeZone", "America/New_York")
        session.conf.set("spark.sql.ansi.enabled", "false")
        before = session.conf.getAll
        with closing(SparkEngine(session)) as engine:
            assert engine.rows(query("SELECT TIMESTAMP '2020-06-01 12:00:00'"))[0][0].hour == 12
            with pytest.raises(sqlanon.SourceError), engine.translate_errors():
                engine.rows(query("SELECT CAST('x' AS INT)"))
            engine.upload("left_over", pa.table({"a": [1]}))
        assert session.conf.getAll == before
        assert not session.catalog.tableExists("left_over")
        session.conf.unset("spark.sql.session.timeZone")
        session.conf.unset("spark.sql.ansi.enabled")


def test_views_of_a_users_session_are_visible(engine: SparkEngine) -> None:
    engine.session.sql("CREATE TEMPORARY VIEW of_the_user AS SELECT 7 AS n")
    assert engine.rows(select_star(table("of_the_user"))) == [(7,)]
    engine.close()
    assert engine.session.catalog.tableExists("of_the_user")
    engine.session.catalog.dropTempView("of_the_user")


# Files


def test_parquet_that_it_writes_is_read_by_duckdb(engine: SparkEngine, tmp_path: Path) -> None:
    engine.upload("hostile", pa.table({"id": [3], HOSTILE: [HOSTILE]}))
    text = (
        f"SELECT r.id, CAST(r.id / 4 AS DECIMAL(8, 2)) AS d, CAST('1500-03-01' AS DATE) AS day, "
        f"s.{_quote_name(HOSTILE)}, "
        "CAST('2020-06-01 12:00:00' AS TIMESTAMP_LTZ) AS z, CAST('2020-06-01 12:00:00' AS TIMESTAMP_NTZ) AS t "
        "FROM range(5) AS r LEFT JOIN hostile AS s ON r.id = s.id"
    )
    assert engine.write_parquet(query(text), str(tmp_path / "rows")) == 5
    with duckdb.connect() as local:
        local.execute("SET TimeZone = 'UTC'")
        rows = local.sql(f"FROM read_parquet('{tmp_path}/rows/*.parquet') ORDER BY id").fetchall()
        types = [str(type_) for type_ in local.sql(f"FROM read_parquet('{tmp_path}/rows/*.parquet')").types]
    assert rows == engine.rows(query(f"SELECT * FROM ({text}) ORDER BY id"))
    assert rows[3][3] == HOSTILE
    assert types == ["BIGINT", "DECIMAL(8,2)", "DATE", "VARCHAR", "TIMESTAMP WITH TIME ZONE", "TIMESTAMP"]
    with pytest.raises(sqlanon.SourceError, match="the folder exists already"), engine.translate_errors():
        engine.write_parquet(query(text), str(tmp_path / "rows"))
    assert engine.write_parquet(query("SELECT id FROM range(0)"), str(tmp_path / "none")) == 0


def test_a_folder_that_is_not_shared_is_reported(
    engine: SparkEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As where executors on other machines write into a folder of the same name.
    monkeypatch.setattr("sqlanon.engines.spark.engine.count_parquet_rows", lambda folder: 1)
    with pytest.raises(
        sqlanon.SourceError, match="not all of them are on this machine: give a folder that its executors"
    ):
        engine.write_parquet(query("SELECT id FROM range(5)"), str(tmp_path / "rows"))


# Interruptions and losses

LONG = "SELECT COUNT(*) FROM range(0, 100000000000, 1, 2) WHERE sqrt(id) + rand() > 1e9"


def test_ctrl_c_cancels_the_job_and_the_session_goes_on(engine: SparkEngine, spark_cluster: Cluster) -> None:
    status = spark_cluster.session.sparkContext.statusTracker()

    def send_interrupt() -> None:
        while not status.getActiveStageIds():  # until the job runs
            time.sleep(0.1)
        os.kill(os.getpid(), signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Thread(target=send_interrupt, daemon=True).start()
    try:
        with pytest.raises(KeyboardInterrupt), engine.translate_errors():
            engine.rows(query(LONG))
    finally:
        signal.signal(signal.SIGINT, before)
    assert engine.rows(query("SELECT 41 + 1")) == [(42,)]
    until = time.monotonic() + 300
    while status.getActiveStageIds() and time.monotonic() < until:
        time.sleep(0.1)
    assert not status.getActiveStageIds()


@pytest.mark.thorough
@pytest.mark.parametrize("engine", ["classic"], indirect=True)
def test_a_query_survives_the_death_of_an_executor(engine: SparkEngine, spark_cluster: Cluster) -> None:
    victims = spark_cluster.both_executors()
    busy = query("SELECT COUNT(*), SUM(id) FROM range(0, 20000000, 1, 12) WHERE sqrt(id) + sin(id) > -1")
    killer = threading.Timer(0.5, os.kill, (victims[0], signal.SIGKILL))
    killer.start()
    with engine.translate_errors():
        assert engine.rows(busy) == [(20_000_000, 20_000_000 * 19_999_999 // 2)]
    killer.join()
    assert victims[0] not in spark_cluster.executors()
    assert engine.rows(query("SELECT COUNT(DISTINCT id % 7) FROM range(1000)")) == [(7,)]


@pytest.mark.thorough
@pytest.mark.parametrize("engine", ["connect"], indirect=True)
def test_cached_rows_that_die_with_an_executor_are_made_again(engine: SparkEngine, spark_cluster: Cluster) -> None:
    spark_cluster.both_executors()
    engine.cache("mortal", query("SELECT id FROM range(0, 1000, 1, 4)"))
    for victim in spark_cluster.executors():
        os.kill(victim, signal.SIGKILL)
    with engine.translate_errors():
        assert engine.rows(query("SELECT SUM(id) FROM mortal")) == [(499_500,)]


@pytest.mark.thorough
@pytest.mark.parametrize("engine", ["connect"], indirect=True)
def test_kept_rows_that_die_with_an_executor_are_never_others(engine: SparkEngine, spark_cluster: Cluster) -> None:
    spark_cluster.both_executors()
    engine.materialize("mortal", query("SELECT id, rand() AS r FROM range(0, 1000, 1, 4)"))
    for victim in spark_cluster.executors():
        os.kill(victim, signal.SIGKILL)
    with pytest.raises(sqlanon.SourceError, match="an executor was lost with rows"), engine.translate_errors():
        engine.rows(query("SELECT SUM(r) FROM mortal"))
    assert engine.materialize("mortal", query("SELECT id FROM range(10)")) == 10
    assert engine.rows(query("SELECT COUNT(*) FROM mortal")) == [(10,)]
