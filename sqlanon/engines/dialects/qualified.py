"""SQL in which every function has its full name, for DuckDB (``system.main.sum``) and for PostgreSQL.

DuckDB looks up functions by name, and with them operators, lists and structs: a macro ``sum``, ``+`` or ``list_value``
in the schema of a view replaces the engine's own function in the view, also if it is created after the view. A full
name finds the engine's own function. The same holds for a search path of PostgreSQL that others may write to.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, TypeVar, cast

from sqlglot import exp
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.generators.duckdb import DuckDBGenerator

from sqlanon.support.expressions import is_null, native_type, number

_Statement = TypeVar("_Statement", bound=exp.Expr)

_OPERATORS: Mapping[type[exp.Expr], str] = {
    **{exp.EQ: "=", exp.NEQ: "<>", exp.GT: ">", exp.GTE: ">=", exp.LT: "<", exp.LTE: "<="},
    **{exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/", exp.DPipe: "||"},
}
_GRAMMAR = (exp.Coalesce, exp.Case, exp.If, exp.Cast, exp.And, exp.Or, exp.Array, exp.Collate)
"""Functions of sqlglot that are grammar in PostgreSQL, which looks up no name for them."""


def qualify_functions(statement: _Statement) -> _Statement:
    """Write ``OPERATOR(pg_catalog.=)``, ``pg_catalog.count`` and so on in a statement for PostgreSQL.

    Tables stay unqualified, and so do clauses that depend on the types of values only: GROUP BY, DISTINCT, ORDER BY.

    >>> from sqlglot import parse_one
    >>> qualify_functions(parse_one("SELECT COUNT(*) FROM t WHERE a = 1", dialect="postgres")).sql("postgres")
    'SELECT pg_catalog.COUNT(*) FROM t WHERE (a OPERATOR(pg_catalog.=) 1)'
    """
    return cast("_Statement", statement.copy().transform(_qualify))


def _qualify(node: exp.Expr) -> exp.Expr:
    """Replace a node. `transform` does not visit the parts of a replacement, so they are qualified here."""
    if (symbol := _OPERATORS.get(type(node))) is not None:
        return _operator(qualify_functions(node.this), symbol, qualify_functions(node.expression))
    if isinstance(node, exp.NullSafeEQ):  # IS NOT DISTINCT FROM looks up an operator, too
        left, right = qualify_functions(node.this), qualify_functions(node.expression)
        equal = exp.Coalesce(this=_operator(left, "=", right), expressions=[exp.false()])
        are_null = exp.and_(is_null(left.copy()), is_null(right.copy()), copy=False)
        return exp.Paren(this=exp.Or(this=exp.Paren(this=are_null), expression=equal))
    if isinstance(node, exp.Nullif):
        value = qualify_functions(node.this)
        equal_value = _operator(value, "=", qualify_functions(node.expression))
        return exp.Case(ifs=[exp.If(this=equal_value, true=exp.null())], default=value.copy())
    if isinstance(node, exp.Neg) and not isinstance(node.this, exp.Literal):
        return _operator(number(0), "-", qualify_functions(node.this))
    if isinstance(node, exp.DataType):  # the names of the other types are not looked up
        is_text = node.this == exp.DataType.Type.TEXT or node.args.get("kind") == "TEXT"
        return native_type("pg_catalog.text") if is_text else node
    is_call = isinstance(node, exp.Func) and not isinstance(node, _GRAMMAR) and not isinstance(node.parent, exp.Dot)
    return _qualify_call(node) if is_call else node


def _qualify_call(node: exp.Expr) -> exp.Dot:
    call = node.copy()
    for name, value in node.args.items():
        if isinstance(value, list):
            call.set(name, [qualify_functions(part) for part in value])
        elif isinstance(value, exp.Expr):
            call.set(name, qualify_functions(value))
    return exp.Dot(this=exp.Var(this="pg_catalog"), expression=call)


def _operator(left: exp.Expr, symbol: str, right: exp.Expr) -> exp.Paren:
    return exp.Paren(this=exp.Operator(this=left, operator=f"pg_catalog.{symbol}", expression=right))


_SYNTAX = frozenset({"coalesce", "grouping", "row", "try"})
"""Syntax that looks like a call; no name is looked up."""

_COMPARISONS = frozenset(
    {"=", "<>", "<", "<=", ">", ">=", "IS", "IS NOT", "IS DISTINCT FROM", "IS NOT DISTINCT FROM", ":=", "=>"}
)
"""Operators for which no name is looked up."""

_REFUSED = (
    exp.Bracket, exp.Comprehension, exp.Extract, exp.ILike, exp.Interval, exp.Like, exp.SimilarTo, exp.Unnest,
)  # fmt: skip
"""Notations for functions that no statement uses; they are refused."""


class QualifiedDuckDB(DuckDB):
    """DuckDB's dialect with full names of functions.

    >>> query = exp.select(exp.func("sum", exp.column("x") + 1), exp.Array(expressions=[exp.column("y")])).from_("t")
    >>> query.sql(dialect=QualifiedDuckDB)
    'SELECT system.main.sum(system.main."+"(x, 1)), system.main.list_value(y) FROM t'
    """

    class Generator(DuckDBGenerator):
        """Some of the engine's own functions are macros, which call functions without full names: they are expanded."""

        TRANSFORMS: ClassVar[dict[type[exp.Expr], Callable[..., str]]] = {
            **DuckDBGenerator.TRANSFORMS,
            exp.Array: lambda self, array: self.func("list_value", *array.expressions),
            exp.Mod: lambda self, node: self.binary(node, "%"),
            exp.Nullif: lambda self, node: self.sql(_expand_nullif(node)),
            exp.Rand: lambda self, _: self.func("random"),
            exp.Struct: lambda self, struct: self.func("struct_pack", *struct.expressions),
            **{kind: lambda self, node: self.refuse(node) for kind in _REFUSED},
        }

        def func(self, name: str, *args: Any, prefix: str = "(", suffix: str = ")", normalize: bool = True) -> str:
            lower = name.lower()
            match lower, args:
                case "list_append" | "array_append", (items, item):
                    return self.func("list_concat", items, exp.Array(expressions=[item]))
                case "list_prepend" | "array_prepend", (item, items):
                    return self.func("list_concat", exp.Array(expressions=[item]), items)
                case "list_sum", (items,):
                    return self.func("list_aggregate", items, exp.Literal.string("sum"))
            full = name if not normalize or "." in name or lower in _SYNTAX else f"system.main.{lower}"
            return super().func(full, *args, prefix=prefix, suffix=suffix, normalize=False)

        def anonymous_sql(self, expression: exp.Anonymous) -> str:
            parent = expression.parent
            has_schema = (isinstance(parent, exp.Dot) and parent.expression is expression) or (
                isinstance(parent, exp.Table) and bool(parent.args.get("db"))
            )
            return self.func(self.sql(expression, "this"), *expression.expressions, normalize=not has_schema)

        def binary(self, expression: exp.Binary, op: str) -> str:
            if op in _COMPARISONS:
                return super().binary(expression, op)
            return self.func(f'"{op}"', expression.this, expression.expression)

        def neg_sql(self, expression: exp.Neg) -> str:
            return self.func('"-"', expression.this)

        def column_sql(self, expression: exp.Column) -> str:
            """A column, or a field of the parameter of a lambda, which looks like one."""
            lambda_ = expression.find_ancestor(exp.Lambda) if expression.table else None
            while lambda_ is not None:
                for parameter in lambda_.expressions:
                    if parameter.name == expression.table:
                        return self.func("struct_extract", parameter.copy(), exp.Literal.string(expression.name))
                lambda_ = lambda_.find_ancestor(exp.Lambda)
            return super().column_sql(expression)

        def dot_sql(self, expression: exp.Dot) -> str:
            if isinstance(expression.expression, exp.Func):
                return super().dot_sql(expression)
            return self.func("struct_extract", expression.this, exp.Literal.string(expression.expression.name))

        def collate_sql(self, expression: exp.Collate) -> str:
            return super().binary(expression, "COLLATE")

        def refuse(self, expression: exp.Expr) -> str:
            raise NotImplementedError(f"{expression.key}: write a call of the function")


def _expand_nullif(node: exp.Nullif) -> exp.Case:
    same = exp.EQ(this=node.this.copy(), expression=node.expression.copy())
    return exp.Case(ifs=[exp.If(this=same, true=exp.null())], default=node.this.copy())
