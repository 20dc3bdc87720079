"""SQL in which every function has its full name: for DuckDB, ``system.main.sum``, and for PostgreSQL.

DuckDB looks up functions by name, and with them operators, lists and structs: a macro ``sum``, ``+`` or ``list_value``
in the schema of a view replaces the engine's own function in it, also if the macro is made later than the view. A full
name finds the engine's own. On a search path of PostgreSQL that others may write to, theirs would be taken, too:
`engines.postgres.PATH`.
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
_OF_GRAMMAR = (exp.Coalesce, exp.Case, exp.If, exp.Cast, exp.And, exp.Or, exp.Array, exp.Collate)
"""What sqlglot has as functions, and PostgreSQL as a part of its grammar: it looks no name up for these."""


def qualify_functions(statement: _Statement) -> _Statement:
    """The same statement with ``OPERATOR(pg_catalog.=)``, ``pg_catalog.count`` and so on.

    What stays unqualified are tables, and what goes by the type of its values alone: GROUP BY, DISTINCT, ORDER BY.

    >>> from sqlglot import parse_one
    >>> qualify_functions(parse_one("SELECT COUNT(*) FROM t WHERE a = 1", dialect="postgres")).sql("postgres")
    'SELECT pg_catalog.COUNT(*) FROM t WHERE (a OPERATOR(pg_catalog.=) 1)'
    """
    return cast("_Statement", statement.copy().transform(_full))


def _full(node: exp.Expr) -> exp.Expr:
    if (symbol := _OPERATORS.get(type(node))) is not None:
        return _operator(_done(node.this), symbol, _done(node.expression))
    if (rewritten := _REWRITTEN.get(type(node))) is not None:
        return rewritten(node)
    is_call = isinstance(node, exp.Func) and not isinstance(node, _OF_GRAMMAR)
    return _call(node) if is_call and not isinstance(node.parent, exp.Dot) else node


def _same(node: exp.Expr) -> exp.Expr:
    """``IS NOT DISTINCT FROM`` looks for an operator, too."""
    left, right = _done(node.this), _done(node.expression)
    equal = exp.Coalesce(this=_operator(left, "=", right), expressions=[exp.false()])
    neither = exp.and_(is_null(left.copy()), is_null(right.copy()), copy=False)
    return exp.Paren(this=exp.Or(this=exp.Paren(this=neither), expression=equal))


def _null_if(node: exp.Expr) -> exp.Expr:
    value = _done(node.this)
    equal = exp.If(this=_operator(value, "=", _done(node.expression)), true=exp.null())
    return exp.Case(ifs=[equal], default=value.copy())


def _negative(node: exp.Expr) -> exp.Expr:
    return node if isinstance(node.this, exp.Literal) else _operator(number(0), "-", _done(node.this))


def _type(node: exp.Expr) -> exp.Expr:
    """Text is the one of our types whose name is looked up."""
    is_text = node.this == exp.DataType.Type.TEXT or node.args.get("kind") == "TEXT"
    return native_type("pg_catalog.text") if is_text else node


_REWRITTEN: Mapping[type[exp.Expr], Callable[[exp.Expr], exp.Expr]] = {
    exp.NullSafeEQ: _same,
    exp.Nullif: _null_if,
    exp.Neg: _negative,
    exp.DataType: _type,
}


def _call(node: exp.Expr) -> exp.Dot:
    call = node.copy()
    for name, value in node.args.items():
        call.set(name, [_done(one) for one in value] if isinstance(value, list) else _part(value))
    return exp.Dot(this=exp.Var(this="pg_catalog"), expression=call)


def _part(value: object) -> object:
    return _done(value) if isinstance(value, exp.Expr) else value


def _done(node: exp.Expr) -> exp.Expr:
    """A part of what is replaced: `transform` does not go on into that."""
    return qualify_functions(node)


def _operator(left: exp.Expr, symbol: str, right: exp.Expr) -> exp.Paren:
    return exp.Paren(this=exp.Operator(this=left, operator=f"pg_catalog.{symbol}", expression=right))


_SYNTAX = frozenset({"coalesce", "grouping", "row", "try"})
"""What looks like a call, and is known to the parser: no name is looked up."""

_COMPARISONS = frozenset(
    {"=", "<>", "<", "<=", ">", ">=", "IS", "IS NOT", "IS DISTINCT FROM", "IS NOT DISTINCT FROM", ":=", "=>"}
)
"""Operators for which no name is looked up."""

_OTHERS = (
    exp.Bracket, exp.Comprehension, exp.Extract, exp.ILike, exp.Interval, exp.Like, exp.SimilarTo, exp.Unnest,
)  # fmt: skip
"""Notations for functions that nothing here has needed: they are refused."""


class QualifiedDuckDB(DuckDB):
    """The dialect.

    >>> query = exp.select(exp.func("sum", exp.column("x") + 1), exp.Array(expressions=[exp.column("y")])).from_("t")
    >>> query.sql(dialect=QualifiedDuckDB)
    'SELECT system.main.sum(system.main."+"(x, 1)), system.main.list_value(y) FROM t'
    """

    class Generator(DuckDBGenerator):
        """Its writer.

        Some of the engine's own functions are macros, in whose text functions have no full names: they are written out.
        """

        TRANSFORMS: ClassVar[dict[type[exp.Expr], Callable[..., str]]] = {
            **DuckDBGenerator.TRANSFORMS,
            exp.Array: lambda self, array: self.func("list_value", *array.expressions),
            exp.Mod: lambda self, node: self.binary(node, "%"),
            exp.Nullif: lambda self, node: self.sql(_nullif(node)),
            exp.Rand: lambda self, _: self.func("random"),
            exp.Struct: lambda self, struct: self.func("struct_pack", *struct.expressions),
            **{kind: lambda self, node: self.refuse(node) for kind in _OTHERS},
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
            """A call of a function by its name; of one with a schema, as it is."""
            parent = expression.parent
            placed = isinstance(parent, exp.Dot) and parent.expression is expression
            placed = placed or (isinstance(parent, exp.Table) and bool(parent.args.get("db")))
            return self.func(self.sql(expression, "this"), *expression.expressions, normalize=not placed)

        def binary(self, expression: exp.Binary, op: str) -> str:
            if op in _COMPARISONS:
                return super().binary(expression, op)
            return self.func(f'"{op}"', expression.this, expression.expression)

        def neg_sql(self, expression: exp.Neg) -> str:
            return self.func('"-"', expression.this)

        def column_sql(self, expression: exp.Column) -> str:
            """A column; or a field of the parameter of a lambda, which looks like one."""
            around = expression.find_ancestor(exp.Lambda) if expression.table else None
            while around is not None:
                for parameter in around.expressions:
                    if parameter.name == expression.table:
                        return self.func("struct_extract", parameter.copy(), exp.Literal.string(expression.name))
                around = around.find_ancestor(exp.Lambda)
            return super().column_sql(expression)

        def dot_sql(self, expression: exp.Dot) -> str:
            if isinstance(expression.expression, exp.Func):
                return super().dot_sql(expression)
            return self.func("struct_extract", expression.this, exp.Literal.string(expression.expression.name))

        def collate_sql(self, expression: exp.Collate) -> str:
            return super().binary(expression, "COLLATE")

        def refuse(self, expression: exp.Expr) -> str:
            raise NotImplementedError(f"{expression.key}: write a call of the function")


def _nullif(node: exp.Nullif) -> exp.Case:
    same = exp.EQ(this=node.this.copy(), expression=node.expression.copy())
    return exp.Case(ifs=[exp.If(this=same, true=exp.null())], default=node.this.copy())
