"""Translate queries that are built for DuckDB to other engines.

sqlglot writes every query in every dialect, also where its meaning changes. So only listed nodes, parts of nodes and
functions are translated, and rewritten where an engine means something else; all others are refused by name.

In every dialect a decimal literal becomes a DOUBLE, as it does in DuckDB next to a DOUBLE; sums of columns that are
cast to BIGINT are sums of counts (`expressions.total`); ``ANY_VALUE`` may return any value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from sqlglot import exp

from sqlanon.engines.dialects import spark_rewrites as spark
from sqlanon.engines.dialects import warehouses
from sqlanon.engines.dialects.kinds import ValueKinds
from sqlanon.engines.dialects.nested_names import name_ctes_apart
from sqlanon.errors import UntranslatableError

Rule: TypeAlias = Callable[[exp.Expr, ValueKinds], exp.Expr]
"""Rewrites a node whose parts are translated already; the kinds are those of its original parts."""

DIALECTS = ("spark", "databricks", *warehouses.DIALECTS)
"""The dialects that queries can be translated to."""

_PARTS: Mapping[type[exp.Expr], str] = {
    **dict.fromkeys((exp.Null, exp.RowNumber, exp.DenseRank, exp.Rand), ""),
    **dict.fromkeys((exp.From, exp.Where, exp.Having, exp.Boolean, exp.Paren, exp.Not, exp.Neg, exp.Var), "this"),
    **dict.fromkeys((exp.Abs, exp.Ln, exp.Exp, exp.Sqrt, exp.Ceil, exp.Floor), "this"),
    **dict.fromkeys((exp.Sum, exp.Avg, exp.Min, exp.Max, exp.AnyValue, exp.ApproxDistinct, exp.ArrayAgg), "this"),
    **dict.fromkeys((exp.LogicalAnd, exp.LogicalOr), "this"),
    **dict.fromkeys((exp.And, exp.Or, exp.Is, exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE), "this expression"),
    **dict.fromkeys((exp.NullSafeEQ, exp.NullSafeNEQ, exp.Nullif, exp.PropertyEQ, exp.Dot), "this expression"),
    **dict.fromkeys((exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod, exp.BitwiseAnd, exp.Pow), "this expression"),
    **dict.fromkeys((exp.DPipe, exp.Collate, exp.Filter, exp.IntDiv, exp.ArgMin), "this expression"),
    **dict.fromkeys((exp.Group, exp.Tuple, exp.Distinct, exp.Array, exp.Struct), "expressions"),
    **dict.fromkeys((exp.In, exp.Coalesce, exp.Lambda, exp.Anonymous, exp.Order), "this expressions"),
    **dict.fromkeys((exp.Union, exp.Except, exp.Intersect), "this expression distinct order with_"),
    **dict.fromkeys((exp.Subquery, exp.Alias), "this alias"),
    **dict.fromkeys((exp.Cast, exp.TryCast), "this to"),
    exp.Select: "expressions from_ joins where group having order limit distinct with_",
    exp.Join: "this on using side kind",
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
    exp.Case: "this ifs default",
    exp.If: "this true false",
    exp.Concat: "expressions safe",
    exp.Count: "this big_int",
    exp.Trim: "this expression position",
    exp.Explode: "this",
    exp.ToDays: "this",
    exp.GenerateSeries: "start end is_end_exclusive",
    exp.MD5: "this",
    exp.Rank: "expressions",
    exp.Window: "this partition_by order spec over",
    exp.WindowSpec: "kind start start_side end end_side",
}
"""The nodes that can be translated, and the parts of each that can be."""

_RULES: Mapping[str, Mapping[type[exp.Expr], Rule]] = {
    **dict.fromkeys(("spark", "databricks"), spark.RULES),
    **{name: warehouses.rewrite_rules(name) for name in warehouses.DIALECTS},
}
_FUNCTIONS: Mapping[str, Mapping[str, Rule]] = dict.fromkeys(("spark", "databricks"), spark.FUNCTIONS)


def translate_query(query: exp.Expr, dialect: str) -> exp.Expr:
    """Translate a query that was built for DuckDB; names of tables stay the same.

    >>> from sqlanon.support.expressions import col, number
    >>> half = exp.Div(this=col("rows"), expression=number(2))
    >>> translate_query(half, "spark").sql("spark")
    'CAST(`rows` AS DOUBLE) / CAST(2 AS DOUBLE)'
    >>> translate_query(exp.func("mode", col("rows")), "spark")
    Traceback (most recent call last):
    ...
    sqlanon.errors.UntranslatableError: MODE("rows") cannot be translated to spark: it may mean something else there
    """
    if dialect == "duckdb":
        return query.copy()
    if dialect not in _RULES:
        raise UntranslatableError(f"unknown dialect {dialect!r}; give one of {', '.join(DIALECTS)}")
    rules, functions = _RULES[dialect], _FUNCTIONS.get(dialect, {})
    root = exp.Paren(this=query.copy())
    if dialect in _FUNCTIONS:
        name_ctes_apart(root)
    # Innermost nodes first: rules get translated parts, and may use them several times.
    nodes = [
        node
        for node in root.this.walk(prune=lambda node: isinstance(node, exp.DataType))
        if not isinstance(node, exp.DataType)
    ]
    for node in nodes:
        if (part := _find_unknown_part(node, functions, dialect)) is not None:
            text = node.sql("duckdb")
            text = text if len(text) <= 80 else f"{text[:77]}..."
            text = f"{part} of {text}" if part else text
            raise UntranslatableError(f"{text} cannot be translated to {dialect}: it may mean something else there")
    kinds = ValueKinds(nodes)
    for node in reversed(nodes):
        name = node.name.upper() if isinstance(node, exp.Anonymous) else ""
        rule = functions[name] if name else rules.get(type(node))
        if rule is not None and (new := rule(node, kinds)) is not node:
            kinds.set(new, kinds.kind_of(node))
            node.replace(new)
    translation: exp.Expr = root.this.pop()
    return translation


def _find_unknown_part(node: exp.Expr, functions: Mapping[str, Rule], dialect: str) -> str | None:
    """The part of a node that cannot be translated; empty if it is the node itself, None if all of it can be."""
    parts = _PARTS.get(type(node))
    if parts is None or (dialect in warehouses.DIALECTS and type(node) not in warehouses.NODES):
        return ""
    known_parts = parts.split()
    if unknown := [
        name for name, part in node.args.items() if name not in known_parts and part not in (None, False, [])
    ]:
        return unknown[0].strip("_")
    if isinstance(node, exp.Join):
        is_known = node.kind in ("", "CROSS", "INNER", "SEMI", "ANTI") and node.side in ("", "LEFT")
        if node.args.get("using") and dialect in warehouses.DIALECTS:
            return "USING"
        return None if is_known else f"{node.side} {node.kind} JOIN"
    if isinstance(node, exp.Distinct):
        is_of_rows = isinstance(node.parent, exp.Select) and not node.expressions
        is_of_column = isinstance(node.parent, (exp.Count, exp.ArrayAgg)) and len(node.expressions) == 1
        return None if is_of_rows or is_of_column else "DISTINCT"
    is_unknown = (
        (isinstance(node, exp.Anonymous) and node.name.upper() not in functions)
        or (isinstance(node, exp.Trim) and node.expression is None)  # engines trim different characters by default
        or (isinstance(node, exp.Table) and not isinstance(node.this, exp.Identifier))
    )
    return "" if is_unknown else None
