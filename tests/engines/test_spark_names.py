"""Names and settings of a user's session of Spark: none of them changes what is released, or in which order."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from spark_cases import in_duckdb
from spark_tables import into_spark, plain_policy, planted_table, state
from sqlglot import exp

import sqlanon
from sqlanon.engines.spark import settings as spark_settings
from sqlanon.engines.spark.engine import SparkEngine
from sqlanon.places.addresses import spark_name_flaw
from sqlanon.publish.targets.spark import catalog as spark_catalog
from sqlanon.publish.targets.spark.target import SparkLocation
from sqlanon.support.expressions import as_column, col, select, text
from sqlanon.support.expressions import table as named_table
from support.servers.spark import CHEAP
from support.thresholds import SMALL_SET, SMALL_SPARK

SCHEMA = "sqlanon_names"
TABLE = named_table("columns_of_a_name")
GRAMMAR = {"in", "as", "values", "exists", "cast", "over", "filter", "by", "on", "and", "or", "not", "then", "decimal"}
"""Words before a parenthesis that are not function names."""
HOSTILE_VIEWS = ("source", "released", "raw", "rows", "s", "r", "h0", "l0", "x", "q", "counted", "query", "shipped")
VARIABLES = ("zip", "age", "ill", "label", "code", "value", "secret", "one", "so_far", "n", "known", "masked", "c0")


@contextmanager
def settings(session: Any, values: Mapping[str, str]) -> Iterator[None]:
    """Settings of a user, as long as they are needed."""
    before = {name: session.conf.get(name, None) for name in values}
    for name, value in values.items():
        session.conf.set(name, value)
    yield
    for name, was in before.items():
        session.conf.unset(name) if was is None else session.conf.set(name, was)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> sqlanon.Policy:
    """A policy whose counts stay in Spark, and whose release is in Spark."""
    monkeypatch.setattr(SMALL_SPARK, 5)
    monkeypatch.setattr(SMALL_SET, 5)
    tree = plain_policy(fetch_limit=1).model_dump(exclude_none=True)
    privacy = {"k": 4, "l_diversity": [{"attribute": "ill", "kind": "entropy", "l": 1.2}]}
    return sqlanon.Policy(**{**tree, "privacy": privacy, "release": {"spark": True, "table": f"{SCHEMA}.r"}})


def record_statements(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Statements that Spark runs from now on."""
    statements: list[str] = []
    frame = SparkEngine._frame

    def note_statement(self: SparkEngine, statement: Any, parameters: Any = ()) -> Any:
        statements.append(self.sql(statement))
        return frame(self, statement, parameters)

    monkeypatch.setattr(SparkEngine, "_frame", note_statement)
    return statements


def publish_and_read(session: Any, policy: sqlanon.Policy, schema_options: str = "") -> tuple[Any, ...]:
    """Result of a policy: the generalization and the digest of the rows."""
    second_session = session.newSession()  # of the same catalog, and of no settings
    second_session.sql(f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE")
    if schema_options:
        second_session.conf.set("spark.sql.collation.schemaLevel.enabled", "true")
    second_session.sql(f"CREATE SCHEMA {SCHEMA} {schema_options}")
    with sqlanon.connect(session) as db:
        result = db.anonymize(policy)
        release = result.publish()
        assert release.verify().verified
    return result.generalization, result.score, result.suppressed_rows, release.manifest.digest


def functions_of(statements: list[str]) -> set[str]:
    """The names of the functions that statements call."""
    plain = [re.sub(r"'(?:[^'\\]|\\.)*'|`(?:[^`]|``)*`", "x", statement) for statement in statements]
    called = {name.lower() for query in plain for name in re.findall(r"\b([A-Za-z_]\w*)\s*\(", query)}
    return called - GRAMMAR


def hostile(name: str) -> Any:
    """A function that does something other than its name says."""
    return lambda *arguments: f"{name} of others"


@pytest.mark.thorough
def test_functions_variables_and_views_of_a_session_take_no_name(session: Any, small: sqlanon.Policy) -> None:
    """Each function that a statement calls is registered, of any number of arguments, in each order of names."""
    own_session = session.newSession()
    into_spark(own_session, planted_table(), "planted")
    with pytest.MonkeyPatch.context() as patch:
        statements = record_statements(patch)
        expected = publish_and_read(own_session, small)
    names = functions_of(statements)
    assert {"sha2", "uuid", "xxhash64", "concat", "count", "sum", "ln", "md5", "conv", "coalesce"} <= names
    for name in sorted(names):
        own_session.udf.register(name, hostile(name))
    for name in HOSTILE_VIEWS:
        own_session.sql("SELECT 'of others' AS `label`, 1 AS code, 'not secret' AS secret").createOrReplaceTempView(
            name
        )
    for name in VARIABLES:
        own_session.sql(f"DECLARE OR REPLACE VARIABLE `{name}` STRING DEFAULT 'of others'")
    for order in ("first", "second", "last"):
        own_session.conf.set("spark.sql.functionResolution.sessionOrder", order)
        row = own_session.sql("SELECT sha2('a', 256), uuid()").collect()[0]
        assert (row[0] == "sha2 of others") == (row[1] == "uuid of others") == (order == "first")
        before = state(own_session)
        assert publish_and_read(own_session, small) == expected
        assert state(own_session) == before
    session.sql(f"DROP SCHEMA {SCHEMA} CASCADE")


CALLED = {
    *("approx_count_distinct", "coalesce", "concat", "conv", "count", "count_if", "greatest", "if", "is_valid_utf8"),
    *("md5", "min", "nullif", "raise_error", "rint", "round", "sha2", "shiftleft", "shiftright", "substring", "sum"),
    *("trim", "typeof", "uuid", "xxhash64"),
}
"""The functions of a release that is counted in Spark and searched here."""
WORDS = {"broadcast", "from", "join", "select", "tblproperties", "x"}
"""Other words before a parenthesis there. A hint is not a function."""


@pytest.mark.thorough
def test_functions_of_a_thin_clients_session_take_no_name(
    spark_cluster: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The same through Spark Connect, where a session and its functions are the server's."""
    from pyspark.sql.connect.session import SparkSession  # noqa: PLC0415  (it is an extra)

    tree = plain_policy().model_dump(exclude_none=True) | {"privacy": {"k": 4}}
    with in_duckdb(planted_table()) as connection, sqlanon.connect(connection) as db:
        result = db.anonymize(sqlanon.Policy(**{**tree, "source": {"table": "t"}}))
        expected = result.generalization, result.score, result.suppressed_rows
        digest = result.publish(tmp_path / "release.duckdb").manifest.digest
    own_session = SparkSession.builder.remote(spark_cluster.connect).create()
    for name, value in CHEAP.items():
        own_session.conf.set(name, value)
    into_spark(own_session, planted_table(), "planted")
    for name in sorted(CALLED):
        own_session.udf.register(name, hostile(name))
    own_session.conf.set("spark.sql.functionResolution.sessionOrder", "first")
    assert own_session.sql("SELECT sha2('a', 256), uuid()").collect()[0] == ("sha2 of others", "uuid of others")
    statements = record_statements(monkeypatch)
    policy = sqlanon.Policy(**{**tree, "release": {"spark": True, "table": f"{SCHEMA}.r"}})
    assert publish_and_read(own_session, policy) == (*expected, digest)
    assert functions_of(statements) - WORDS == CALLED
    own_session.sql(f"DROP SCHEMA {SCHEMA} CASCADE")
    own_session.stop()


def turned_round(session: Any) -> dict[str, str]:
    """All boolean settings of Spark that may change the meaning of SQL, each with its non-default value."""
    every = getattr(getattr(session._jvm.org.apache.spark.sql.internal, "SQLConf$"), "MODULE$")
    turned, entries = {}, every.getConfigEntries().iterator()
    while entries.hasNext():
        entry = entries.next()
        name, default = entry.key(), entry.defaultValueString()
        matters = name in spark_settings.SETTINGS or spark_settings._changes_meaning(name)
        if matters and default in ("true", "false") and not every.isStaticConfigKey(name):
            turned[name] = "false" if default == "true" else "true"
    return turned


OTHERS = {
    "spark.sql.session.timeZone": "America/New_York",
    "spark.sql.timestampType": "TIMESTAMP_NTZ",
    "spark.sql.storeAssignmentPolicy": "LEGACY",
    "spark.sql.legacy.timeParserPolicy": "LEGACY",
    "spark.sql.legacy.ctePrecedencePolicy": "LEGACY",
    "spark.sql.functionResolution.sessionOrder": "first",
    "spark.sql.parquet.outputTimestampType": "INT96",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "LEGACY",
    "spark.sql.mapKeyDedupPolicy": "LAST_WIN",
    "spark.sql.sources.partitionOverwriteMode": "DYNAMIC",
    "spark.sql.sources.default": "csv",
}


@pytest.mark.thorough
def test_session_settings_do_not_change_the_release(session: Any, small: sqlanon.Policy) -> None:
    """All settings that may change the meaning of SQL are reversed, including those of older versions."""
    own_session = session.newSession()
    into_spark(own_session, planted_table(), "planted")
    expected = publish_and_read(own_session, small)
    turned = turned_round(session) | OTHERS
    assert (
        len(turned) > 120
        and {
            "spark.sql.ansi.enabled",
            "spark.sql.ansi.doubleQuotedIdentifiers",
            "spark.sql.ansi.enforceReservedKeywords",
            "spark.sql.variable.substitute",
            "spark.sql.parser.quotedRegexColumnNames",
            "spark.sql.parser.escapedStringLiterals",
            "spark.sql.groupByOrdinal",
            "spark.sql.legacy.literal.pickMinimumPrecision",
            "spark.sql.collation.schemaLevel.enabled",
        }
        <= turned.keys()
    )
    with settings(own_session, turned):
        before = dict(own_session.conf.getAll)
        assert publish_and_read(own_session, small) == expected
        assert dict(own_session.conf.getAll) == before


def test_a_setting_that_is_changed_meanwhile_is_set_again_and_given_back(spark: Any, spark_connect: Any) -> None:
    for own_session in (spark.newSession(), spark_connect):
        changed = {
            "spark.sql.ansi.enabled": "false",
            "spark.sql.functionResolution.sessionOrder": "first",
            "spark.sql.parser.quotedRegexColumnNames": "true",
            "spark.sql.variable.substitute": "true",
        }
        engine = SparkEngine(own_session)
        with settings(own_session, changed):
            query = select(
                [as_column(text("${spark.app.name}"), "a"), as_column(exp.column("a.c", quoted=True), "b")], TABLE
            )
            own_session.sql("SELECT 1 AS `abc`, 2 AS `a.c`").createOrReplaceTempView("columns_of_a_name")
            assert engine.rows(query) == [("${spark.app.name}", 2)]
            assert own_session.conf.get("spark.sql.ansi.enabled") == "true"
            engine.close()
            assert {name: own_session.conf.get(name) for name in changed} == changed
            own_session.sql("DROP VIEW columns_of_a_name")


TEXTS = [
    "${env:HOME}",
    "${spark.app.name}",
    "$${x}",
    "\\${env:HOME}",
    "\\\\${x}",
    "it's ${env:HOME}",
    "{{ x }}",
    "\\",
    "'",
    '"',
    "`",
]


def test_texts_have_no_variables_whatever_is_set(spark: Any) -> None:
    """Texts stay unchanged even in a session that replaces variables."""
    own_session = spark.newSession()
    engine = SparkEngine(own_session)
    texts = [engine.sql(exp.select(as_column(text(value), "x"))) for value in TEXTS]
    view, rows = named_table("r", "s"), named_table("r_v1", "s")
    queries: list[exp.Expr] = [
        spark_catalog.create_view(view=view, comment=text(TEXTS[1]), columns=[col("a")], rows=rows),
        spark_catalog.comment_on_view(view=view, comment=text(TEXTS[1])),
        *spark_catalog.comment_statements(rows, {"a": TEXTS[0]}, TEXTS[1]),
        spark_catalog.create_version_table(TABLE, {"a": "VARCHAR"}, TEXTS[0]),
    ]
    assert "${" not in "".join([*texts, *map(engine.sql, queries)])
    engine.close()
    assert own_session.conf.get("spark.sql.variable.substitute") == "true"
    assert own_session.sql("SELECT '${env:HOME}'").collect()[0][0] != "${env:HOME}"
    assert [own_session.sql(statement).collect()[0][0] for statement in texts] == TEXTS


def test_session_does_not_change_row_order_of_a_release(session: Any) -> None:
    """Rows of one file stand in no order of the source, where functions that make an order are registered."""
    own_session = session.newSession()
    for name in ("uuid", "sha2", "concat"):
        own_session.udf.register(name, hostile(name))
    own_session.conf.set("spark.sql.functionResolution.sessionOrder", "first")
    own_session.sql(f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE")
    own_session.sql(f"CREATE SCHEMA {SCHEMA}")
    target = named_table("t", SCHEMA)
    engine = SparkEngine(own_session)
    engine.execute(spark_catalog.create_version_table(target.copy(), {"id": "BIGINT"}, "t"))
    secret = engine.upload("secret_of_the_test", pa.table({spark_catalog.SECRET: ["00"]}))
    engine.execute(spark_catalog.insert_shuffled(target, exp.select("*").from_("range(400)"), ["id"], secret))
    engine.close()
    places = own_session.sql(f"SELECT input_file_name() AS file, id FROM {SCHEMA}.t").collect()
    numbers: dict[str, list[int]] = {}
    for file, number in places:
        numbers.setdefault(file, []).append(number)
    assert sum(map(len, numbers.values())) == 400 and max(map(len, numbers.values())) > 100
    # Of what a task of the source sends to a file, each number would be greater than the one before.
    pairs = [pair for numbers in numbers.values() for pair in pairwise(numbers)]
    assert 0.3 < sum(number < next_number for number, next_number in pairs) / len(pairs) < 0.7
    own_session.sql(f"DROP SCHEMA {SCHEMA} CASCADE")


def test_a_function_of_the_users_own_query_is_not_replaced_in_silence(session: Any, small: sqlanon.Policy) -> None:
    own_session = session.newSession()
    into_spark(own_session, planted_table(), "planted")
    own_session.udf.register("upper", hostile("upper"))
    own_session.conf.set("spark.sql.functionResolution.sessionOrder", "first")
    tree = small.model_dump(exclude_none=True)
    query = "SELECT zip, age, upper(ill) AS ill, note, name FROM planted"
    with sqlanon.connect(own_session) as db, pytest.raises(sqlanon.SourceError, match=r"source\.query: upper: "):
        db.anonymize(sqlanon.Policy(**{**tree, "source": {"query": query}}))


def test_a_search_path_is_refused(session: Any) -> None:
    own_session = session.newSession()
    with settings(own_session, {"spark.sql.path.enabled": "true"}):
        SparkEngine(own_session).close()
        own_session.sql("SET PATH = spark_catalog.default, system.session, system.builtin")
        with pytest.raises(sqlanon.SourceError, match="the session has a search path"):
            SparkEngine(own_session)
        assert own_session.conf.get("spark.sql.path.enabled") == "true"
        own_session.sql("SET PATH = DEFAULT_PATH")


def test_a_spark_whose_functions_can_be_replaced_is_refused(session: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Versions before 4.2 do not have the setting, and registered functions replace Spark's own."""
    monkeypatch.setattr(spark_settings, "_ORDER", "spark.sql.functionResolution.notKnown")
    own_session = session.newSession()
    with pytest.raises(sqlanon.SourceError, match="functions of a session replace those of Spark"):
        SparkEngine(own_session)
    SparkEngine(own_session, is_own=True).close()


@pytest.mark.thorough
def test_schema_collation_does_not_change_the_release(session: Any, small: sqlanon.Policy) -> None:
    """Readers would see larger classes than there are; and one that is given later is noticed."""
    own_session = session.newSession()
    into_spark(own_session, planted_table(), "planted")
    with settings(own_session, {"spark.sql.collation.schemaLevel.enabled": "true"}):
        release = publish_and_read(own_session, small, "DEFAULT COLLATION UTF8_LCASE")
        own_session.sql(f"CREATE TABLE {SCHEMA}.other (a STRING) USING PARQUET")
        assert own_session.table(f"{SCHEMA}.other").dtypes == [("a", "string collate UTF8_LCASE")]
        assert dict(own_session.table(f"{SCHEMA}.r").dtypes)["ill"] == "string" and release
        own_session.sql(f"ALTER TABLE {SCHEMA}.r_v1 ALTER COLUMN ill TYPE STRING COLLATE UTF8_LCASE")
        assert not SparkLocation.parse(own_session, f"{SCHEMA}.r").verify().verified
    session.newSession().sql(f"DROP SCHEMA {SCHEMA} CASCADE")


@pytest.mark.parametrize("name", ["session.r", "SESSION.r", "global_temp.r"])
def test_a_schema_of_temporary_views_takes_no_release(name: str) -> None:
    assert "temporary views" in (spark_name_flaw(name) or "")
