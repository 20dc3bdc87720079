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
from sqlanon.engines.dialects import warehouse_rewrites as others
from sqlanon.engines.dialects.kinds import Kinds, kinds_of
from sqlanon.errors import UntranslatableError

Rule: TypeAlias = Callable[[exp.Expr, Kinds], exp.Expr]
"""Makes of a node, whose parts are translated, what means the same; by the kinds that the parts had."""

DIALECTS = ("spark", "databricks", "postgres", "trino", "bigquery", "snowflake")
"""What is translated to."""

_PARTS: Mapping[type[exp.Expr], str] = {
    exp.Select: "expressions from_ joins where group having order limit distinct with_",
    exp.From: "this",
    exp.Join: "this on side kind",
    exp.Where: "this",
    exp.Group: "expressions",
    exp.Having: "this",
    exp.Order: "this expressions",
    exp.Ordered: "this desc nulls_first",
    exp.Limit: "expression",
    exp.Subquery: "this alias",
    exp.Table: "this db catalog alias",
    exp.TableAlias: "this columns",
    exp.Union: "this expression distinct order with_",
    exp.Except: "this expression distinct order with_",
    exp.Intersect: "this expression distinct order with_",
    exp.With: "expressions recursive",
    exp.CTE: "this alias materialized",
    exp.Values: "expressions alias",
    exp.Tuple: "expressions",
    exp.Alias: "this alias",
    exp.Column: "this table db catalog",
    exp.Identifier: "this quoted",
    exp.Star: "except_",
    exp.Distinct: "expressions",
    exp.Literal: "this is_string",
    exp.Null: "",
    exp.Boolean: "this",
    exp.Paren: "this",
    exp.And: "this expression",
    exp.Or: "this expression",
    exp.Not: "this",
    exp.Is: "this expression",
    exp.EQ: "this expression",
    exp.NEQ: "this expression",
    exp.GT: "this expression",
    exp.GTE: "this expression",
    exp.LT: "this expression",
    exp.LTE: "this expression",
    exp.NullSafeEQ: "this expression",
    exp.NullSafeNEQ: "this expression",
    exp.Between: "this low high",
    exp.In: "this expressions",
    exp.Add: "this expression",
    exp.Sub: "this expression",
    exp.Mul: "this expression",
    exp.Div: "this expression",
    exp.Mod: "this expression",
    exp.Neg: "this",
    exp.Abs: "this",
    exp.BitwiseAnd: "this expression",
    exp.Ln: "this",
    exp.Exp: "this",
    exp.Sqrt: "this",
    exp.Pow: "this expression",
    exp.Round: "this decimals",
    exp.Ceil: "this",
    exp.Floor: "this",
    exp.Case: "ifs default",
    exp.If: "this true false",
    exp.Coalesce: "this expressions",
    exp.Nullif: "this expression",
    exp.Cast: "this to",
    exp.TryCast: "this to",
    exp.DPipe: "this expression",
    exp.Concat: "expressions safe",
    exp.Collate: "this expression",
    exp.Count: "this big_int",
    exp.Sum: "this",
    exp.Avg: "this",
    exp.Min: "this",
    exp.Max: "this",
    exp.AnyValue: "this",
    exp.ApproxDistinct: "this",
    exp.LogicalAnd: "this",
    exp.LogicalOr: "this",
    exp.Filter: "this expression",
    exp.ArrayAgg: "this",
    exp.Window: "this partition_by order spec over",
    exp.WindowSpec: "kind start start_side end end_side",
    exp.RowNumber: "",
    exp.DenseRank: "",
    exp.Array: "expressions",
    exp.Struct: "expressions",
    exp.PropertyEQ: "this expression",
    exp.Lambda: "this expressions",
    exp.Dot: "this expression",
    exp.Var: "this",
    exp.Anonymous: "this expressions",
}
"""The nodes that are known, each with those of its parts that are."""

_JOINS = frozenset({"", "CROSS", "INNER", "SEMI", "ANTI"})
_SIDES = frozenset({"", "LEFT"})

_SPARK: Mapping[type[exp.Expr], Rule] = spark.RULES
_SPARK_FUNCTIONS: Mapping[str, Rule] = spark.FUNCTIONS

_RULES: Mapping[str, Mapping[type[exp.Expr], Rule]] = {
    "spark": _SPARK,
    "databricks": _SPARK,
    **{name: others.rules_of(name) for name in others.DIALECTS},
}
_FUNCTIONS: Mapping[str, Mapping[str, Rule]] = {
    "spark": _SPARK_FUNCTIONS,
    "databricks": _SPARK_FUNCTIONS,
    **{name: {} for name in others.DIALECTS},
}


def translated(query: exp.Expr, dialect: str) -> exp.Expr:
    """A query that was built for DuckDB, as another engine is to run it: its text in that dialect is right.

    Names of tables stay as they are.

    >>> from sqlanon.expressions import col, number
    >>> half = exp.Div(this=col("rows"), expression=number(2))
    >>> translated(half, "spark").sql("spark")
    'CAST(`rows` AS DOUBLE) / CAST(2 AS DOUBLE)'
    >>> translated(exp.func("mode", col("rows")), "spark")
    Traceback (most recent call last):
    ...
    sqlanon.errors.UntranslatableError: MODE("rows") cannot be put in the dialect of spark: ...
    """
    if dialect == "duckdb":
        return query.copy()
    if dialect not in _RULES:
        raise UntranslatableError(f"nothing is translated to {dialect!r}: it is one of {', '.join(_RULES)}")
    rules, functions = _RULES[dialect], _FUNCTIONS[dialect]
    whole = exp.Paren(this=query.copy())
    # From the innermost on: what a rule is given is translated already, and it may be written several times.
    nodes = [node for node in whole.this.walk(prune=_is_leaf) if not isinstance(node, exp.DataType)]
    for node in nodes:
        _refuse_unknown(node, functions, dialect)
    kinds = kinds_of(nodes)
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
