"""Differences between DuckDB and the warehouses that create releases by SQL alone.

Frequency sets, releases and their audit need few kinds of nodes, whose meaning differs little. Column types are
unknown, and lists are not available.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from sqlglot import exp

from sqlanon.engines.dialects.kinds import ValueKinds, cast_type
from sqlanon.errors import UntranslatableError
from sqlanon.support.expressions import cast


@dataclass(frozen=True)
class Warehouse:
    """Differences of a warehouse from DuckDB."""

    types: Mapping[str, str] = field(default_factory=dict)  # its types by DuckDB types, for `rewrite_rules`
    floats: Mapping[str, str] = field(default_factory=dict)  # floating-point types that have another name
    as_text: str | None = None  # the function that formats a value of a type whose equal values may differ as texts
    is_nan: str | None = None  # the function that recognizes NaN, where NaN may not equal itself
    settings: tuple[str, ...] = ()  # statements that set what the meaning of others depends on
    before: tuple[str, ...] = ()  # statements that run before the release
    full_names: bool = False  # functions need their schema, since the search path may have others of the same name


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
        before=("SET SESSION skip_redundant_sort = FALSE",),  # otherwise rows of a new table are not sorted
    ),
}
"""Warehouses by sqlglot's names of their dialects."""

DIALECTS = tuple(name for name, warehouse in WAREHOUSES.items() if warehouse.types)
"""The dialects with few nodes and rules; Spark and Databricks have many more."""

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
"""The nodes that can be translated: those of frequency sets, releases and their audit."""


def _double(value: exp.Expr, kinds: ValueKinds, types: Mapping[str, str]) -> exp.Expr:
    is_double = kinds.kind_of(value) == "double" and not isinstance(value, exp.Literal)
    return value.copy() if is_double else cast(value.copy(), types["DOUBLE"])


def _rewrite_literal(node: exp.Expr, kinds: ValueKinds, types: Mapping[str, str]) -> exp.Expr:
    """Cast a decimal literal to DOUBLE: otherwise a warehouse computes in decimal digits."""
    is_double = kinds.kind_of(node) == "double" and not isinstance(node.parent, exp.Cast)
    return _double(node, kinds, types) if is_double else node


def _divide(node: exp.Expr, kinds: ValueKinds, types: Mapping[str, str]) -> exp.Expr:
    """Divide as DOUBLE: some warehouses divide integers as integers. Most raise an error for a division by 0."""
    left, right = _double(node.this, kinds, types), _double(node.expression, kinds, types)
    return exp.Div(this=left, expression=right, typed=True)  # typed: sqlglot adds no cast


def _rewrite_cast(node: exp.Expr, kinds: ValueKinds, types: Mapping[str, str]) -> exp.Expr:
    """Translate a cast that has the same result in every engine: of integers, of numbers to DOUBLE, of texts."""
    assert isinstance(node, exp.Cast)
    type_, kind = cast_type(node), kinds.kind_of(node.this)
    same = {"BIGINT": ("whole",), "DOUBLE": ("whole", "double", "decimal", None), "VARCHAR": ("text",)}
    if kind not in same.get(type_, ()):
        raise UntranslatableError(f"{node.sql('duckdb')}: its result differs between engines")
    return cast(node.this.copy(), types[type_])


def _refuse_unordered(node: exp.Expr, kinds: ValueKinds, types: Mapping[str, str]) -> exp.Expr:
    if isinstance(node.this, exp.RowNumber) and not node.args.get("order"):
        raise UntranslatableError(f"{node.sql('duckdb')}: some engines require an order")
    return node


def rewrite_rules(dialect: str) -> dict[type[exp.Expr], Callable[[exp.Expr, ValueKinds], exp.Expr]]:
    """The rewrites of a dialect by type of node."""
    rules = {exp.Literal: _rewrite_literal, exp.Div: _divide, exp.Cast: _rewrite_cast, exp.Window: _refuse_unordered}
    return {node: partial(rule, types=WAREHOUSES[dialect].types) for node, rule in rules.items()}
