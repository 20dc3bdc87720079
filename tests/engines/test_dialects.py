"""Queries that are built for DuckDB, in the dialects of other engines: what is known to mean the same, and what not."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from recorded import Asked, Job, Recorder, do, jobs, people, recording
from spark_answers import differences, in_spark, rows
from sqlglot import exp, parse_one

from sqlanon.engines.dialects import translation as dialects
from sqlanon.engines.dialects.translation import translate_query
from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.engines.values import strip_white_space
from sqlanon.errors import UntranslatableError
from sqlanon.support.expressions import (
    all_columns,
    anonymous,
    as_column,
    cast,
    col,
    filter_where,
    fragment,
    number,
    select,
    subquery,
    table,
    template,
    text,
)
from support.lanes import EXAMPLES, some

JOBS = list(jobs())
RECURSIVE = "WITH RECURSIVE"
"""What rounds of shields are made with, and Spark has not: it has no windows in it."""


@pytest.mark.slow
@pytest.mark.parametrize("job", some(JOBS, 24, 12), ids=lambda job: job.name)
def test_every_query_over_rows_translates_to_spark(job: Job, tmp_path: Path) -> None:
    recorder = Recorder(answers=False)
    with recording(recorder):
        do(job, people(random.Random(1)), tmp_path)
    assert recorder.asked
    refused = []
    for statement in recorder.asked.values():
        try:
            translate_query(statement.query, "spark").sql("spark")
        except UntranslatableError as error:
            refused.append(str(error))
    assert [message for message in refused if RECURSIVE not in message] == []
    assert not refused or job.name.startswith("shields")


# --- what is refused --------------------------------------------------------------------------------


@pytest.mark.cases(7)
@pytest.mark.parametrize(
    ("sql", "named_as"),
    [
        ("SELECT QUANTILE_CONT(x, 0.5) FROM t", "QUANTILE_CONT"),
        ("SELECT MODE(x) FROM t", "MODE"),
        ("SELECT x FROM t USING SAMPLE 3", "sample"),
        ("SELECT DISTINCT ON (x) x, y FROM t", "DISTINCT"),
        ("SELECT * FROM t JOIN s USING (x)", "name its columns"),
        ("SELECT x FROM t JOIN r ON t.x = r.x SEMI JOIN s USING (x)", "put it first"),
        ("SELECT UNNEST(RANGE(1, x)), UNNEST(RANGE(1, y)) FROM t", "several lists"),
        ("SELECT x FROM t QUALIFY ROW_NUMBER() OVER (ORDER BY x) = 1", "qualify"),
        ("SELECT x FROM t GROUP BY CUBE (x)", "cube"),
        ("SELECT x FROM t GROUP BY ALL", "all"),
        ("SELECT x FROM t ASOF JOIN s ON t.x >= s.x", "method"),
        ("SELECT x FROM t FULL JOIN s ON t.x = s.x", "FULL"),
        ("SELECT * REPLACE (1 AS x) FROM t", "replace"),
        ("SELECT x FROM RANGE(3) AS t(x)", "RANGE"),
        ("SELECT DATE_TRUNC('month', x) FROM t", "DATE_TRUNC"),
        ("SELECT HASH(x) FROM t", "HASH"),
        ("SELECT TRIM(x) FROM t", "TRIM"),
        ("SELECT x LIKE 'a%' FROM t", "LIKE"),
        ("SELECT x IN (SELECT y FROM s) FROM t", "query"),
        ("SELECT CAST(x AS UUID) FROM t", "UUID"),
        ("SELECT CAST(x AS TIME) FROM t", "TIME"),
        ("SELECT SUM(DISTINCT x) FROM t", "DISTINCT"),
        ("SELECT ROUND(x, -2) FROM t", "ROUND"),
        ("SELECT LIST_REDUCE(x, (a, b) -> a + b) FROM t", "LIST_REDUCE"),
        ("SELECT ARRAY_AGG(x ORDER BY y NULLS FIRST) FROM t", "order"),
        ("WITH RECURSIVE r AS (SELECT 1) SELECT * FROM r", RECURSIVE),
        ("WITH r AS MATERIALIZED (SELECT RANDOM() AS x) SELECT a.x FROM r AS a, r AS b", "RANDOM"),
        ("DELETE FROM t", "DELETE"),
    ],
)
def test_untranslatable_functions_are_refused_by_name(sql: str, named_as: str) -> None:
    query = parse_one(sql, dialect="duckdb")
    for function in query.find_all(exp.Rand):
        function.replace(anonymous("RANDOM"))
    with pytest.raises(UntranslatableError, match=r"(?i)spark") as caught:
        translate_query(query, "spark")
    assert named_as.lower() in str(caught.value).lower()


def test_concat_that_passes_over_null_is_refused() -> None:
    with pytest.raises(UntranslatableError, match="NULL may be passed over"):
        translate_query(exp.Concat(expressions=[col("x"), col("y")]), "spark")


def test_unknown_dialect_is_refused() -> None:
    with pytest.raises(UntranslatableError, match=r"'oracle'.*spark"):
        translate_query(col("x"), "oracle")


def test_translation_leaves_the_original_query_unchanged() -> None:
    query = select([exp.Div(this=col("x"), expression=number(2))], table("t"))
    before = query.sql("duckdb")
    assert translate_query(query, "spark").sql("spark") != before
    assert query.sql("duckdb") == before == translate_query(query, "duckdb").sql("duckdb")


def test_text_and_names_are_quoted_as_spark_does() -> None:
    query = select([as_column(text("it's \\n"), 'a`b"c')], table("d.e`"))
    assert translate_query(query, "spark").sql("spark") == "SELECT 'it\\'s \\\\n' AS `a``b\"c` FROM `d.e```"


# --- expressions, in both engines -------------------------------------------------------------------

ROWS = """
    SELECT * FROM (VALUES
        (1, 'a', 2::BIGINT, 2.5::DOUBLE, 2.5::DOUBLE, 2.50::DECIMAL(8,2), 'é', DATE '2020-02-29', TRUE, 3::SMALLINT),
        (2, 'a', -3, -2.5, 'NaN', -2.50, 'É', DATE '1969-12-31', FALSE, -7),
        (3, 'a', 0, 3.5, 'Infinity', 1.45, 'e', DATE '0001-01-01', TRUE, 0),
        (4, 'b', 7, -0.0, '-Infinity', 0.00, 'it''s', DATE '9999-12-31', NULL, 100),
        (5, 'b', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL),
        (6, 'b', 536870912, 536870912, 1e300, 123456.78, '', DATE '1970-01-01', FALSE, 1),
        (7, NULL, 9007199254740993, 1.005, 4.9e-324, -0.01, ' \\n', DATE '2000-01-01', TRUE, -1),
        (8, NULL, 2, 0.285, 0.5, 2.51, 'E', DATE '2020-02-29', NULL, 3)
    ) AS v(id, g, w, d, e, m, t, y, b, i)
"""
"""Whole numbers, DOUBLEs, DOUBLEs of any kind, decimals, texts, dates, booleans: with what engines disagree about."""


def _call(name: str, *arguments: exp.Expr) -> exp.Expr:
    return anonymous(name, *arguments)


def _window(aggregate: exp.Expr, order: list[exp.Expr] | None = None, **parts: Any) -> exp.Window:
    return exp.Window(this=aggregate, order=exp.Order(expressions=order) if order else None, **parts)


_W, _D, _E, _M, _T, _Y, _B, _I, _G = (col(name) for name in "wdemtybig")
_NULL = exp.null()
_EPOCH = cast(text("1970-01-01"), "DATE")
_AGAIN = exp.Is(this=col("id"), expression=exp.null())


def _if(condition: exp.Expr, true: exp.Expr, false: exp.Expr) -> exp.If:
    return exp.If(this=condition, true=true, false=false)


def _bin(kind: type[exp.Binary], left: exp.Expr, right: exp.Expr) -> exp.Expr:
    return kind(this=left.copy(), expression=right.copy())


SCALARS: Mapping[str, exp.Expr] = {
    "text without white space around it": strip_white_space(exp.DPipe(this=text(" \t\u00a0"), expression=_T)),
    "the hash of a text": exp.MD5(this=_T),
    **{
        f"{left.name} {kind.__name__} {right.sql()}": _bin(kind, left, right)
        for kind in (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.NullSafeEQ, exp.NullSafeNEQ)
        for left, right in (
            (_W, _I),
            (_D, _E),
            (_E, _E),
            (_M, number(2.5)),
            (_T, text("e")),
            (_Y, _EPOCH),
        )
    },
    **{
        f"{left.name} {kind.__name__} {right.sql()}": _bin(kind, left, right)
        for kind in (exp.Add, exp.Sub, exp.Mul, exp.Div)
        for left, right in (
            (_I, _I),
            (_D, _E),
            (_E, _D),
            (_M, _I),
            (_I, _M),
            (_D, number(0)),
            (_I, number(0)),
            (_D, number(0.1)),
        )
    },
    "w / i": _bin(exp.Div, _W, _I),
    "w / (0 or NULL)": _bin(exp.Div, _W, exp.Nullif(this=_I.copy(), expression=number(0))),
    "w % 3": _bin(exp.Mod, _W, number(3)),
    "w & 5": _bin(exp.BitwiseAnd, _W, number(5)),
    "-i": exp.Neg(this=_I),
    "|i|": exp.Abs(this=_I),
    "|e|": exp.Abs(this=_E),
    "days": exp.Sub(this=_Y, expression=_EPOCH),
    "days as a number": cast(exp.Paren(this=exp.Sub(this=_Y, expression=_EPOCH)), "DOUBLE"),
    "a day": cast(exp.Paren(this=exp.Add(this=_EPOCH, expression=cast(_I, "INTEGER"))), "DATE"),
    "ln d": exp.Ln(this=_D),
    "ln e": exp.Ln(this=_E),
    "ln w": exp.Ln(this=_W),
    "log2 w": _call("LOG2", _W),
    "log2 e": _call("LOG2", _E),
    "ceil log2": exp.Ceil(this=_call("LOG2", _W)),
    "exp": exp.Exp(this=_I),
    "sqrt": exp.Sqrt(this=exp.Abs(this=_I)),
    "pow": exp.Pow(this=_D, expression=number(2)),
    "pow of e": exp.Pow(this=number(2.0), expression=_E),
    "round d": exp.Round(this=_D),
    "round e": exp.Round(this=_E),
    "round m": exp.Round(this=_M),
    "round d to 2": exp.Round(this=_D, decimals=number(2)),
    "round d to 0": exp.Round(this=_D, decimals=number(0)),
    "ceil d": exp.Ceil(this=_D),
    "ceil e": exp.Ceil(this=_E),
    "ceil w": exp.Ceil(this=_W),
    "floor d": exp.Floor(this=_D),
    "floor e": exp.Floor(this=_E),
    "floor m": exp.Floor(this=_M),
    "case of a value": exp.Case(this=_G, ifs=[exp.If(this=text("a"), true=number(1))], default=number(0)),
    "whole part": exp.IntDiv(this=_I, expression=number(2)),
    "days later": cast(_EPOCH + exp.ToDays(this=_I), "DATE"),
    "drawn": exp.And(this=exp.Rand() >= number(0), expression=exp.Rand() < number(1)),
    "case": exp.Case(ifs=[exp.If(this=_B, true=number(1))], default=number(0.5)),
    "case without default": exp.Case(ifs=[exp.If(this=_B, true=_T)]),
    "if": _if(_B, _W, _I),
    "coalesce": exp.Coalesce(this=_W, expressions=[_I, number(0)]),
    "nullif": exp.Nullif(this=_W, expression=number(2)),
    "greatest": _call("GREATEST", _W, _I, number(1)),
    "greatest of e": _call("GREATEST", _E, _D),
    "least": _call("LEAST", _W, _I),
    "least of e": _call("LEAST", _E, number(0.0)),
    "least of none": _call("LEAST", exp.Nullif(this=_W, expression=_W), _I),
    "and": exp.And(this=_B, expression=_bin(exp.GT, _W, number(0))),
    "or": exp.Or(this=_B, expression=_bin(exp.GT, _W, number(0))),
    "not": exp.Not(this=_B),
    "false": exp.And(this=_B, expression=exp.false()),
    "is null": exp.Is(this=_W, expression=_NULL),
    "between": exp.Between(this=_E, low=number(-1e100), high=number(1e100)),
    "in": exp.In(this=_T, expressions=[text("e"), text("it's"), text("É")]),
    "||": exp.DPipe(this=_T, expression=text("-'")),
    "concat": exp.Concat(expressions=[text("x"), _T], safe=True),
    "collate": _bin(exp.EQ, exp.Collate(this=_T, expression=exp.Identifier(this="binary", quoted=True)), text("E")),
    "d as INTEGER": cast(_D, "INTEGER"),
    "d as a literal": cast(number(2.5), "INTEGER"),
    "d / 1 as BIGINT": cast(_bin(exp.Div, _D, number(1)), "BIGINT"),
    "m as INTEGER": cast(_M, "INTEGER"),
    "m + m as INTEGER": cast(_bin(exp.Add, _M, _M), "INTEGER"),
    "i as UTINYINT": cast(exp.Abs(this=_I), "UTINYINT"),
    "w as HUGEINT": cast(_W, "HUGEINT"),
    "w as DOUBLE": cast(_W, "DOUBLE"),
    "m as DOUBLE": cast(_M, "DOUBLE"),
    "d as FLOAT": cast(_D, "FLOAT"),
    "d as DECIMAL(18,2)": cast(_D, "DECIMAL(18,2)"),
    "d as DECIMAL(18,0)": cast(_D, "DECIMAL(18,0)"),
    "d / 1 as DECIMAL(18,1)": cast(_bin(exp.Div, _D, number(1)), "DECIMAL(18,1)"),
    "m as DECIMAL(9,1)": cast(_M, "DECIMAL(9,1)"),
    "w as DECIMAL(38,0)": cast(_W, "DECIMAL(38,0)"),
    "0.1 as DECIMAL(3,2)": cast(number(0.1), "DECIMAL(3,2)"),
    "w as VARCHAR": cast(_W, "VARCHAR"),
    "m as VARCHAR": cast(_M, "VARCHAR"),
    "y as VARCHAR": cast(_Y, "VARCHAR"),
    "b as VARCHAR": cast(_B, "VARCHAR"),
    "t as VARCHAR": cast(_T, "VARCHAR"),
    "y as TIMESTAMP as VARCHAR": cast(cast(_Y, "TIMESTAMP"), "VARCHAR"),
    "y as TIMESTAMPTZ as VARCHAR": cast(cast(cast(_Y, "TIMESTAMP"), "TIMESTAMP WITH TIME ZONE"), "VARCHAR"),
    "i as BOOLEAN": cast(_I, "BOOLEAN"),
    "NULL as DATE": cast(_NULL, "DATE"),
    "try d as TINYINT": exp.TryCast(this=_D, to=cast(_D, "TINYINT").to),
    "try e as BIGINT": exp.TryCast(this=_E, to=cast(_E, "BIGINT").to),
    "try w as SMALLINT": exp.TryCast(this=_W, to=cast(_W, "SMALLINT").to),
    "try m as DECIMAL(3,1)": exp.TryCast(this=_M, to=cast(_M, "DECIMAL(3,1)").to),
    "finite": _call("ISFINITE", _Y),
}
"""Every kind of value node, and every function."""


def _order(*terms: exp.Expr) -> list[exp.Expr]:
    return list(terms)


_ID = exp.Ordered(this=col("id"))
_LISTED = exp.Order(this=_T, expressions=[exp.Ordered(this=_W, desc=True), exp.Ordered(this=col("id"), desc=True)])
_UPWARDS = exp.Order(this=_W, expressions=[exp.Ordered(this=_W)])
_FRAME = exp.WindowSpec(kind="ROWS", start="UNBOUNDED", start_side="PRECEDING", end="CURRENT ROW")
_RANGE = exp.WindowSpec(kind="RANGE", start="UNBOUNDED", start_side="PRECEDING", end="CURRENT ROW")
_STRUCT = exp.Struct(expressions=[exp.PropertyEQ(this=exp.to_identifier("c", quoted=True), expression=_D)])

AGGREGATES: Mapping[str, exp.Expr] = {
    "count": exp.Count(this=exp.Star()),
    "count w": exp.Count(this=_W),
    "count distinct": exp.Count(this=exp.Distinct(expressions=[_T])),
    "sum": exp.Sum(this=_W),
    "sum as BIGINT": cast(exp.Sum(this=_I), "BIGINT"),
    "sum m": exp.Sum(this=_M),
    "sum d": exp.Sum(this=_D),
    "sum e": exp.Sum(this=_E),
    "sum of some": cast(filter_where(exp.Sum(this=_I), _B), "BIGINT"),
    "sum of none": filter_where(exp.Sum(this=_I), _AGAIN),
    "avg": exp.Avg(this=_I),
    "avg m": exp.Avg(this=_M),
    "min": exp.Min(this=_T),
    "max": exp.Max(this=_T),
    "max e": exp.Max(this=_E),
    "min e": exp.Min(this=_E),
    "any": exp.AnyValue(this=exp.Nullif(this=col("g"), expression=text("b"))),
    "all": exp.LogicalAnd(this=_B),
    "one": exp.LogicalOr(this=_B),
    "first of": fragment("arg_min(t, {'a': -coalesce(i, 0), 'b': id})")(),
    "least": fragment("min({'a': coalesce(i, 0), 'b': id})")(),
    "listed": exp.ArrayAgg(this=_LISTED),
    "listed upwards": exp.ArrayAgg(this=_UPWARDS),
    "list of none": filter_where(exp.ArrayAgg(this=_T), _AGAIN),
    "list sum": _call("LIST_SUM", exp.ArrayAgg(this=_I)),
    "list sum of none": _call("LIST_SUM", filter_where(exp.ArrayAgg(this=_I), _AGAIN)),
    "structs": _call(
        "LIST_SUM",
        _call(
            "LIST_TRANSFORM",
            filter_where(exp.ArrayAgg(this=_STRUCT), exp.Not(this=exp.Is(this=_D, expression=exp.null()))),
            exp.Lambda(
                this=exp.Abs(this=exp.Dot(this=exp.Var(this="x"), expression=exp.to_identifier("c", quoted=True))),
                expressions=[exp.Identifier(this="x")],
            ),
        ),
    ),
    "length": _call("LEN", exp.ArrayAgg(this=_T)),
    "length of distinct": _call("LEN", _call("LIST_DISTINCT", exp.ArrayAgg(this=_B))),
    "flat": _call("LEN", _call("FLATTEN", exp.ArrayAgg(this=exp.Array(expressions=[_I, _I])))),
    "sorted": _call("LIST_SORT", exp.ArrayAgg(this=_W)),
    "of a set": _call("LIST_SORT", exp.ArrayAgg(this=exp.Distinct(expressions=[_B]))),
    "first": _call("LIST_EXTRACT", exp.ArrayAgg(this=_UPWARDS), number(1)),
    "ninth": _call("LIST_EXTRACT", exp.ArrayAgg(this=_UPWARDS), number(9)),
    "from the second": _call("LIST_SLICE", exp.ArrayAgg(this=_LISTED), number(2), number(9)),
    "from the ninth": _call("LIST_SLICE", exp.ArrayAgg(this=_LISTED), number(9), number(12)),
    "none": _call("LIST_SLICE", exp.ArrayAgg(this=_LISTED), number(2), number(1)),
    "prepended": _call("LIST_PREPEND", number(0.0), filter_where(exp.ArrayAgg(this=_UPWARDS), _AGAIN)),
    "appended": _call("LIST_APPEND", _call("LIST_PREPEND", text("x"), exp.ArrayAgg(this=_LISTED)), text("z")),
    "reduced": _call(
        "LIST_REDUCE",
        _call(
            "LIST_PREPEND", cast(number(1), "DOUBLE"), exp.ArrayAgg(this=exp.Coalesce(this=_D, expressions=[number(3)]))
        ),
        exp.Lambda(
            this=exp.Add(this=exp.Var(this="a"), expression=exp.Mul(this=exp.Var(this="b"), expression=number(2.0))),
            expressions=[exp.Identifier(this="a"), exp.Identifier(this="b")],
        ),
    ),
}

WINDOWS: Mapping[str, exp.Expr] = {
    "row": _window(exp.RowNumber(), _order(exp.Ordered(this=_W), _ID)),
    "row downwards": _window(exp.RowNumber(), _order(exp.Ordered(this=_W, desc=True), _ID)),
    "row of no order in full": _window(exp.RowNumber(), _order(_W, col("id"))),
    "rank of text": _window(exp.DenseRank(), _order(exp.Ordered(this=_T, nulls_first=True))),
    "rank with gaps": _window(exp.Rank(), _order(exp.Ordered(this=_Y, nulls_first=True))),
    "rank of e": _window(exp.DenseRank(), _order(exp.Ordered(this=_E))),
    "rank of dates": _window(exp.DenseRank(), _order(exp.Ordered(this=_Y, desc=True))),
    "rank of booleans": _window(exp.DenseRank(), _order(exp.Ordered(this=_B))),
    "of all": _window(exp.Sum(this=_I)),
    "of a group": _window(exp.Count(this=exp.Star()), partition_by=[col("g")]),
    "all of a group": _window(exp.LogicalAnd(this=_B), partition_by=[col("g")]),
    "so far": _window(exp.Sum(this=_I), _order(exp.Ordered(this=_I)), partition_by=[col("g")]),
    "rows so far": _window(exp.Sum(this=_I), _order(_ID), spec=_FRAME),
    "range so far": _window(exp.Max(this=_D), _order(exp.Ordered(this=_I, desc=True)), spec=_RANGE),
    "lists": _call(
        "LEN", _call("FLATTEN", _window(exp.ArrayAgg(this=exp.Array(expressions=[_I])), partition_by=[col("g")]))
    ),
}


def _queries() -> Mapping[str, exp.Expr]:
    left, right = table("t"), table("t", alias="o")
    keys = exp.EQ(this=col("w", "t"), expression=col("i", "o"))
    nullable = exp.NullSafeEQ(this=col("g", "t"), expression=col("t", "o"))

    def join_tables(kind: str, on: exp.Expr = keys) -> exp.Expr:
        return select([col("id", "t")], left.copy()).join(right.copy(), on=on, join_type=kind)

    numbers = exp.Values(
        expressions=[exp.Tuple(expressions=[number(1), exp.null()]), exp.Tuple(expressions=[number(2), text("'")])],
        alias=exp.TableAlias(this=exp.to_identifier("v"), columns=[exp.to_identifier("a"), exp.to_identifier("b")]),
    )
    queries = exp.union(select([_T], left.copy()), select([_NULL], left.copy()), distinct=False)
    once = select([as_column(exp.Count(this=exp.Star()), "n"), col("g")], left.copy(), [col("g")])
    shared = select([all_columns("a")], table("c", alias="a")).join(
        table("c", alias="b"), on=exp.NullSafeEQ(this=col("g", "a"), expression=col("g", "b"))
    )
    return {
        "join": join_tables(""),
        "left": join_tables("left"),
        "semi": join_tables("semi"),
        "anti": join_tables("anti"),
        "anti with NULL": join_tables("anti", nullable),
        "cross": select([col("id", "t")], left.copy()).join(right.copy(), join_type="cross"),
        "values": select([col("a"), col("b")], numbers),
        "having": once.copy().having(exp.GT(this=exp.Count(this=exp.Star()), expression=number(2))),
        "distinct": exp.Select(expressions=[_W, _D], distinct=exp.Distinct()).from_(left.copy()),
        "zeros are one group": select(
            [_bin(exp.Mul, _D, number(0)), exp.Count(this=exp.Star())], left.copy(), [_bin(exp.Mul, _D, number(0))]
        ),
        "union": queries,
        "except": exp.except_(queries.copy(), select([_T], left.copy()), distinct=False),
        "intersect": exp.intersect(queries.copy(), select([_T], left.copy()), distinct=False),
        "except once": exp.except_(queries.copy(), select([text("e")], left.copy())),
        "with": shared.with_("c", as_=once.copy(), materialized=True),
        "star without": select(
            [exp.Column(this=exp.Star(except_=[exp.to_identifier("g")]), table=exp.to_identifier("a"))],
            subquery(once.copy(), "a"),
        ),
        "range": template("SELECT id, w + unnest(range(1, i + 1)) AS n FROM t")(),
        "semi with USING": template("""
            SELECT * FROM t SEMI JOIN (SELECT w AS id, g FROM t WHERE id < 5) AS o USING (g, id)
        """)(),
        "join with USING": template("""
            SELECT g, t.id, o.most FROM t JOIN (SELECT g, max(w) AS most FROM t GROUP BY g) AS o USING (g)
        """)(),
        "numbers of groups": template("""
            WITH numbered AS (SELECT *, row_number() OVER () AS n FROM (SELECT w FROM t GROUP BY w) AS k)
            SELECT a.w FROM numbered AS a JOIN numbered AS b ON a.n = b.n AND a.w = b.w
        """)(),
        "nested names": template("""
            WITH c AS (SELECT id + 10 AS id FROM t)
            SELECT d.id, c.id AS again
            FROM (WITH c AS (SELECT id + 1 AS id FROM c) SELECT id FROM c) AS d
            JOIN c ON d.id = c.id
        """)(),
        "first three": select([_W], left.copy()).order_by(_W, col("id")).limit(3),
        "last three": select([_W], left.copy()).order_by(exp.Ordered(this=_W, desc=True), col("id")).limit(3),
    }


QUERIES = _queries()


@pytest.fixture(scope="module")
def engine(spark: Any) -> Iterator[Any]:
    """A Spark engine for many queries over few rows; starting each takes the most time."""
    from sqlanon.engines.spark.engine import SparkEngine  # noqa: PLC0415  (pyspark is an extra)

    spark_engine = SparkEngine(spark)
    settings = {"shuffle.partitions": "1", "adaptive.enabled": "false", "codegen.wholeStage": "false"}
    before = {name: spark.conf.get(f"spark.sql.{name}") for name in settings}
    for name, value in settings.items():
        spark.conf.set(f"spark.sql.{name}", value)
    yield spark_engine
    for name, value in before.items():
        spark.conf.set(f"spark.sql.{name}", value)
    spark_engine.close()


@pytest.fixture(scope="module")
def local_engine() -> DuckDBEngine:
    engine = DuckDBEngine(duckdb.connect())
    engine.connection.execute("SET TimeZone = 'UTC'")
    engine.connection.execute(f"CREATE TABLE t AS {ROWS}")
    return engine


@pytest.fixture(scope="module")
def remote_tables(engine: Any, local_engine: DuckDBEngine) -> dict[str, exp.Expr]:
    return {"t": engine.upload("sqlanon_test_rows", local_engine.relation(exp.select("*").from_("t")).to_arrow_table())}


@pytest.mark.parametrize(
    ("expressions", "keys"),
    [(SCALARS, ["id"]), (AGGREGATES, ["g"]), (WINDOWS, ["id"])],
    ids=["scalars", "aggregates", "windows"],
)
def test_each_expression_has_the_same_value_in_spark_and_duckdb(
    expressions: Mapping[str, exp.Expr],
    keys: list[str],
    engine: Any,
    local_engine: DuckDBEngine,
    remote_tables: dict[str, exp.Expr],
) -> None:
    output = [
        *map(col, keys),
        *(as_column(expression.copy(), f"c{i}") for i, expression in enumerate(expressions.values())),
    ]
    query = select([*output], table("t"), [*map(col, keys)] if expressions is AGGREGATES else None)
    duckdb_rows, elsewhere = (
        rows(local_engine.relation(query.copy()).to_arrow_table()),
        rows(in_spark(engine, query, remote_tables)),
    )
    names = [*keys, *expressions]
    wrong = {
        names[i]: pair
        for row, remote_row in zip(duckdb_rows, elsewhere, strict=True)
        for i in range(len(names))
        if (pair := differences([row[i : i + 1]], [remote_row[i : i + 1]], 1e-15))
    }
    assert wrong == {}


@pytest.mark.parametrize("name", QUERIES)
def test_each_form_of_query_has_the_same_rows_in_spark_and_duckdb(
    name: str, engine: Any, local_engine: DuckDBEngine, remote_tables: dict[str, exp.Expr]
) -> None:
    query = QUERIES[name]
    local_rows = rows(local_engine.relation(query.copy()).to_arrow_table())
    assert local_rows
    assert differences(local_rows, rows(in_spark(engine, query, remote_tables))) == []


def test_every_kind_of_node_that_is_known_is_in_one_of_these() -> None:
    every = [*SCALARS.values(), *AGGREGATES.values(), *WINDOWS.values(), *QUERIES.values()]
    seen = {type(node) for expression in every for node in expression.walk()}
    calls = {node.name for expression in every for node in expression.walk() if isinstance(node, exp.Anonymous)}
    wrapping = {exp.Alias, exp.Column, exp.Select, exp.Subquery}
    assert set(dialects._PARTS) - seen - wrapping == {exp.ApproxDistinct}
    assert set(dialects._FUNCTIONS["spark"]) - calls == {"RANDOM", "HASH"}


@pytest.mark.parametrize(
    ("value", "type_"),
    [(_D, "VARCHAR"), (cast(_D, "FLOAT"), "VARCHAR"), (_T, "DATE"), (_T, "BOOLEAN"), (_W, "TIMESTAMP")],
)
def test_values_that_spark_would_convert_are_an_error(
    value: exp.Expr, type_: str, engine: Any, remote_tables: dict[str, exp.Expr]
) -> None:
    with pytest.raises(Exception, match=r"(?i)USER_RAISED_EXCEPTION|DATATYPE_MISMATCH"):
        in_spark(engine, select([as_column(cast(value.copy(), type_), "c")], table("t")), remote_tables)


@pytest.fixture(scope="module")
def recorded_statements(tmp_path_factory: pytest.TempPathFactory) -> list[Asked]:
    """Recorded row queries of jobs that together use everything: a few of each kind."""
    recorder = Recorder(most=max(2, round(2 * EXAMPLES)))
    with recording(recorder):
        for job in JOBS:
            do(job, people(random.Random(job.name)), tmp_path_factory.mktemp("releases"))
    return list(recorder.asked.values())


ANY_NUMBERS = frozenset({"record", "mover", "id"})
"""Columns whose numbers distinguish rows, in no order."""


@pytest.mark.thorough
def test_queries_over_rows_have_the_same_answer_in_spark(engine: Any, recorded_statements: list[Asked]) -> None:
    shipped: dict[str, exp.Expr] = {}
    wrong = []
    for statement in recorded_statements:
        try:
            remote_tables = {name: _upload_once(engine, table, shipped) for name, table in statement.tables.items()}
            answer = in_spark(engine, statement.query, remote_tables)
        except UntranslatableError as error:
            assert RECURSIVE in str(error)
            continue
        if any(expression.find(exp.ApproxDistinct) for expression in statement.query.expressions):
            continue
        numbered = any(
            isinstance(node.this, exp.RowNumber) and not node.args.get("order")
            for node in statement.query.find_all(exp.Window)
        )
        without = ANY_NUMBERS if numbered else frozenset()
        answer = answer.rename_columns(statement.answer.schema.names)
        if differing := differences(rows(statement.answer, without), rows(answer, without)):
            wrong.append((statement.name, statement.query.sql("duckdb"), differing[:3]))
    assert wrong == []


def _upload_once(engine: Any, local_table: pa.Table, shipped: dict[str, exp.Expr]) -> exp.Expr:
    """A table in Spark, sent once."""
    content = f"{local_table.schema.to_string(show_schema_metadata=False)} {local_table.to_pylist()}"
    if content not in shipped:
        shipped[content] = engine.upload(f"sqlanon_test_{len(shipped)}", local_table)
    return shipped[content]
