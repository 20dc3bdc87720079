"""Queries that are built for DuckDB, as other engines are to run them.

sqlglot writes every query in every dialect, and some of them then mean something else without a word. So what may be
translated is listed: the kinds of nodes, with the parts of them that are known to mean the same, and the functions.
Where an engine means something else, a rewrite makes it the same. All else is refused, by its name.

What holds everywhere: a decimal literal becomes a DOUBLE, as DuckDB makes of it beside one; what is added up of a
column and cast to BIGINT are counts (`expressions.total`); of several equal values any one may be taken
(``ANY_VALUE``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from sqlglot import exp

from sqlanon.engines.dialects import spark_rewrites as spark
from sqlanon.engines.dialects import warehouses as others
from sqlanon.engines.dialects.kinds import ValueKinds, value_kinds
from sqlanon.errors import UntranslatableError

Rule: TypeAlias = Callable[[exp.Expr, ValueKinds], exp.Expr]
"""Makes of a node, whose parts are translated, what means the same; by the kinds that the parts had."""

DIALECTS = ("spark", "databricks", "postgres", "trino", "bigquery", "snowflake")
"""What is translated to."""

_PARTS: Mapping[type[exp.Expr], str] = {
    **dict.fromkeys((exp.Null, exp.RowNumber, exp.DenseRank), ""),
    **dict.fromkeys((exp.From, exp.Where, exp.Having, exp.Boolean, exp.Paren, exp.Not, exp.Neg, exp.Var), "this"),
    **dict.fromkeys((exp.Abs, exp.Ln, exp.Exp, exp.Sqrt, exp.Ceil, exp.Floor), "this"),
    **dict.fromkeys((exp.Sum, exp.Avg, exp.Min, exp.Max, exp.AnyValue, exp.ApproxDistinct, exp.ArrayAgg), "this"),
    **dict.fromkeys((exp.LogicalAnd, exp.LogicalOr), "this"),
    **dict.fromkeys((exp.And, exp.Or, exp.Is, exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE), "this expression"),
    **dict.fromkeys((exp.NullSafeEQ, exp.NullSafeNEQ, exp.Nullif, exp.PropertyEQ, exp.Dot), "this expression"),
    **dict.fromkeys((exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod, exp.BitwiseAnd, exp.Pow), "this expression"),
    **dict.fromkeys((exp.DPipe, exp.Collate, exp.Filter), "this expression"),
    **dict.fromkeys((exp.Group, exp.Tuple, exp.Distinct, exp.Array, exp.Struct), "expressions"),
    **dict.fromkeys((exp.In, exp.Coalesce, exp.Lambda, exp.Anonymous, exp.Order), "this expressions"),
    **dict.fromkeys((exp.Union, exp.Except, exp.Intersect), "this expression distinct order with_"),
    **dict.fromkeys((exp.Subquery, exp.Alias), "this alias"),
    **dict.fromkeys((exp.Cast, exp.TryCast), "this to"),
    exp.Select: "expressions from_ joins where group having order limit distinct with_",
    exp.Join: "this on side kind",
    exp.Ordered: "this desc nulls_first",
    exp.Limit: "expression",
    exp.Table: "this db catalog alias",
    exp.TableAlias: "this columns",
    exp.With: "expressions recursive",
    exp.CTE: "this alias materialized",
    exp.Values: "expressions alias",
    exp.Column: "this table db catalog",
    exp.Identifier: "this quoted",
    exp.Star: "except_",
    exp.Literal: "this is_string",
    exp.Between: "this low high",
    exp.Round: "this decimals",
    exp.Case: "ifs default",
    exp.If: "this true false",
    exp.Concat: "expressions safe",
    exp.Count: "this big_int",
    exp.Trim: "this expression position",
    exp.MD5: "this",
    exp.Rank: "expressions",
    exp.Window: "this partition_by order spec over",
    exp.WindowSpec: "kind start start_side end end_side",
}
"""The nodes that are known, each with those of its parts that are."""

_JOINS = frozenset({"", "CROSS", "INNER", "SEMI", "ANTI"})
_SIDES = frozenset({"", "LEFT"})

_RULES: Mapping[str, Mapping[type[exp.Expr], Rule]] = {
    **dict.fromkeys(("spark", "databricks"), spark.RULES),
    **{name: others.rewrite_rules(name) for name in others.DIALECTS},
}
_FUNCTIONS: Mapping[str, Mapping[str, Rule]] = dict.fromkeys(("spark", "databricks"), spark.FUNCTIONS)


def translate_query(query: exp.Expr, dialect: str) -> exp.Expr:
    """A query that was built for DuckDB, as another engine is to run it: its text in that dialect is right.

    Names of tables stay as they are.

    >>> from sqlanon.support.expressions import col, number
    >>> half = exp.Div(this=col("rows"), expression=number(2))
    >>> translate_query(half, "spark").sql("spark")
    'CAST(`rows` AS DOUBLE) / CAST(2 AS DOUBLE)'
    >>> translate_query(exp.func("mode", col("rows")), "spark")
    Traceback (most recent call last):
    ...
    sqlanon.errors.UntranslatableError: MODE("rows") cannot be put in the dialect of spark: ...
    """
    if dialect == "duckdb":
        return query.copy()
    if dialect not in _RULES:
        raise UntranslatableError(f"nothing is translated to {dialect!r}: it is one of {', '.join(DIALECTS)}")
    rules, functions = _RULES[dialect], _FUNCTIONS.get(dialect, {})
    whole = exp.Paren(this=query.copy())
    # From the innermost on: what a rule is given is translated already, and it may be written several times.
    nodes = [node for node in whole.this.walk(prune=_is_leaf) if not isinstance(node, exp.DataType)]
    for node in nodes:
        _refuse_unknown(node, functions, dialect)
    kinds = value_kinds(nodes)
    for node in reversed(nodes):
        name = node.name.upper() if isinstance(node, exp.Anonymous) else ""
        rule = functions[name] if name else rules.get(type(node))
        if rule is not None and (new := rule(node, kinds)) is not node:
            kinds.replaced(node, new)
            node.replace(new)
    result: exp.Expr = whole.this.pop()
    return result


def _is_leaf(node: exp.Expr) -> bool:
    return isinstance(node, exp.DataType)


def _refuse_unknown(node: exp.Expr, functions: Mapping[str, Rule], dialect: str) -> None:
    """Refuse a node that is not listed, or a part of it that is not."""
    parts = _PARTS.get(type(node))
    if parts is None or (dialect in others.DIALECTS and type(node) not in others.NODES):
        raise _refused(node, dialect)
    known = parts.split()
    if unknown := [name for name, part in node.args.items() if name not in known and part not in (None, False, [])]:
        raise _refused(node, dialect, unknown[0].strip("_"))
    if isinstance(node, exp.Anonymous) and node.name.upper() not in functions:
        raise _refused(node, dialect)
    if isinstance(node, exp.Join) and not (node.kind in _JOINS and node.side in _SIDES):
        raise _refused(node, dialect, f"{node.side} {node.kind} JOIN")
    if isinstance(node, exp.Distinct) and not _is_known_distinct(node):
        raise _refused(node, dialect, "DISTINCT")
    if isinstance(node, exp.Trim) and node.expression is None:  # engines do not agree on what is removed then
        raise _refused(node, dialect)
    if isinstance(node, exp.Table) and not isinstance(node.this, exp.Identifier):
        raise _refused(node, dialect)


def _is_known_distinct(node: exp.Distinct) -> bool:
    """Rows that are distinct; or, counted or listed, the distinct values of one column."""
    if isinstance(node.parent, exp.Select):
        return not node.expressions
    return isinstance(node.parent, (exp.Count, exp.ArrayAgg)) and len(node.expressions) == 1


def _refused(node: exp.Expr, dialect: str, part: str = "") -> UntranslatableError:
    text = node.sql("duckdb")
    shown = text if len(text) <= 80 else f"{text[:77]}..."
    what = f"{part} of {shown}" if part else shown
    return UntranslatableError(f"{what} cannot be put in the dialect of {dialect}: it is not known to mean the same")
