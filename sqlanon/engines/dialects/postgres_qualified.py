"""Statements that people run in PostgreSQL themselves: operators and functions by their full names.

On a search path that others may write to, theirs would be taken in place of the server's own: `engines.postgres.PATH`.
A connection of ours has its path pinned; a statement that is printed has to hold on any, and by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar, cast

from sqlglot import exp

from sqlanon.expressions import is_null, native_type, number

_Statement = TypeVar("_Statement", bound=exp.Expr)

_OPERATORS: Mapping[type[exp.Expr], str] = {
    **{exp.EQ: "=", exp.NEQ: "<>", exp.GT: ">", exp.GTE: ">=", exp.LT: "<", exp.LTE: "<="},
    **{exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/", exp.DPipe: "||"},
}
_OF_GRAMMAR = (exp.Coalesce, exp.Case, exp.If, exp.Cast, exp.And, exp.Or, exp.Array)
"""What sqlglot has as functions, and PostgreSQL as a part of its grammar: it looks no name up for these."""


def by_full_names(statement: _Statement) -> _Statement:
    """The same statement with ``OPERATOR(pg_catalog.=)``, ``pg_catalog.count`` and so on.

    What stays unqualified are tables, and what goes by the type of its values alone: GROUP BY, DISTINCT, ORDER BY.

    >>> from sqlglot import parse_one
    >>> by_full_names(parse_one("SELECT COUNT(*) FROM t WHERE a = 1", dialect="postgres")).sql("postgres")
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
    return by_full_names(node)


def _operator(left: exp.Expr, symbol: str, right: exp.Expr) -> exp.Paren:
    return exp.Paren(this=exp.Operator(this=left, operator=f"pg_catalog.{symbol}", expression=right))
