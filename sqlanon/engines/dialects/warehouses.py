"""What PostgreSQL, Trino, BigQuery and Snowflake mean by something else than DuckDB, where a release is made there.

Far fewer kinds of nodes are known here than for Spark: those of a frequency set, of a release and of its audit, which
are written so that little has to be. None of them tells types apart, and none has lists.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from sqlglot import exp

from sqlanon.engines.dialects.kinds import ValueKinds, cast_type
from sqlanon.errors import UntranslatableError
from sqlanon.support.expressions import native_type


@dataclass(frozen=True)
class Warehouse:
    """What has to be known of an engine that a release is made in by statements alone."""

    types: Mapping[str, str] = field(default_factory=dict)  # its names of DuckDB's types, for `rewrite_rules`
    floats: Mapping[str, str] = field(default_factory=dict)  # its names of floating-point types, where they are others
    as_text: str | None = None  # the function that writes a value as its type does, where texts may equal others
    is_nan: str | None = None  # the function that knows NaN, where that does not equal itself, or may not
    settings: tuple[str, ...] = ()  # what the meaning of statements depends on, where a session may have others
    before: tuple[str, ...] = ()  # what must be run before the release
    full_names: bool = False  # functions need their schema: others may have put theirs on the search path


WAREHOUSES: Mapping[str, Warehouse] = {
    "bigquery": Warehouse(
        types={"BIGINT": "INT64", "DOUBLE": "FLOAT64", "VARCHAR": "STRING"},
        floats={"FLOAT": "FLOAT64", "DOUBLE": "FLOAT64"},
        is_nan="IS_NAN",
    ),
    "databricks": Warehouse(is_nan="isnan"),
    "duckdb": Warehouse(),
    "postgres": Warehouse(
        types={"BIGINT": "BIGINT", "DOUBLE": "DOUBLE PRECISION", "VARCHAR": "TEXT"},
        floats={"FLOAT": "real", "DOUBLE": "double precision"},
        as_text="concat",
        settings=("SET standard_conforming_strings = on",),
        full_names=True,
    ),
    "snowflake": Warehouse(
        types={"BIGINT": "BIGINT", "DOUBLE": "DOUBLE", "VARCHAR": "VARCHAR"},
        floats={"FLOAT": "DOUBLE", "DOUBLE": "DOUBLE"},
    ),
    "spark": Warehouse(
        is_nan="isnan",
        settings=(
            "SET spark.sql.ansi.enabled = TRUE",
            "SET spark.sql.caseSensitive = FALSE",
            "SET spark.sql.variable.substitute = FALSE",
            "SET spark.sql.parser.escapedStringLiterals = FALSE",
            "SET spark.sql.parser.quotedRegexColumnNames = FALSE",
            "SET spark.sql.path.enabled = FALSE",
            "SET spark.sql.functionResolution.sessionOrder = second",
        ),
    ),
    "trino": Warehouse(
        types={"BIGINT": "BIGINT", "DOUBLE": "DOUBLE", "VARCHAR": "VARCHAR"},
        floats={"FLOAT": "REAL", "DOUBLE": "DOUBLE"},
        is_nan="is_nan",
        before=("SET SESSION skip_redundant_sort = FALSE",),  # it does not sort the rows of a new table by itself
    ),
}
"""By sqlglot's names of their dialects."""

DIALECTS = tuple(name for name, warehouse in WAREHOUSES.items() if warehouse.types)
"""Those with few nodes and rules; Spark and Databricks have far more."""

NODES: frozenset[type[exp.Expr]] = frozenset(
    {
        *(exp.Select, exp.From, exp.Join, exp.Where, exp.Group, exp.Having, exp.Subquery, exp.Table, exp.TableAlias),
        *(exp.Alias, exp.Column, exp.Identifier, exp.Star, exp.Distinct, exp.Literal, exp.Null, exp.Boolean, exp.Paren),
        *(exp.And, exp.Or, exp.Not, exp.Is, exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.NullSafeEQ),
        *(exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Neg, exp.Abs, exp.Ln, exp.Case, exp.If, exp.Coalesce, exp.Nullif),
        *(exp.Cast, exp.Count, exp.Sum, exp.Min, exp.Max, exp.Window, exp.RowNumber, exp.Order, exp.Ordered, exp.Var),
        exp.Union,
    }
)
"""The nodes that are known."""


def _double(value: exp.Expr, kinds: ValueKinds, types: Mapping[str, str]) -> exp.Expr:
    if kinds.of(value) == "double" and not isinstance(value, exp.Literal):
        return value.copy()
    return exp.Cast(this=value.copy(), to=native_type(types["DOUBLE"]))


def _literal(node: exp.Expr, kinds: ValueKinds, types: Mapping[str, str]) -> exp.Expr:
    """A decimal would be worked with in digits."""
    inside = isinstance(node.parent, exp.Cast)
    return node if kinds.of(node) != "double" or inside else _double(node, kinds, types)


def _divided(node: exp.Expr, kinds: ValueKinds, types: Mapping[str, str]) -> exp.Expr:
    """Of two integers it would be one in some. By 0 it is an error in most, and never another number."""
    # (Typed: sqlglot adds no cast of its own.)
    return exp.Div(this=_double(node.this, kinds, types), expression=_double(node.expression, kinds, types), typed=True)


def _converted(node: exp.Expr, kinds: ValueKinds, types: Mapping[str, str]) -> exp.Expr:
    """A cast of which all make the same: of integers, of numbers to DOUBLE, of text."""
    assert isinstance(node, exp.Cast)
    type_, kind = cast_type(node), kinds.of(node.this)
    same = {"BIGINT": ("whole",), "DOUBLE": ("whole", "double", "decimal", None), "VARCHAR": ("text",)}
    if kind not in same.get(type_, ()):
        raise UntranslatableError(f"{node.sql('duckdb')}: not every engine makes the same of it")
    return exp.Cast(this=node.this.copy(), to=native_type(types[type_]))


def _numbered(node: exp.Expr, kinds: ValueKinds, types: Mapping[str, str]) -> exp.Expr:
    if isinstance(node.this, exp.RowNumber) and not node.args.get("order"):
        raise UntranslatableError(f"{node.sql('duckdb')}: some engines number in an order only")
    return node


def rewrite_rules(dialect: str) -> dict[type[exp.Expr], Callable[[exp.Expr, ValueKinds], exp.Expr]]:
    """By the kind of node, how it is written in a dialect so that it means the same."""
    own = {exp.Literal: _literal, exp.Div: _divided, exp.Cast: _converted, exp.Window: _numbered}
    return {node: partial(rule, types=WAREHOUSES[dialect].types) for node, rule in own.items()}
