"""What Spark means by something else than DuckDB, and how it is written there so that it is the same.

It is Spark 4 with ANSI mode on and the time zone UTC.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sqlglot import exp

from sqlanon.engines.dialects.kinds import Kinds
from sqlanon.engines.dialects.spark_casts import DAYS, by_type, cast_there, converted, refused_there, to_decimals
from sqlanon.engines.dialects.spark_lists import LIST_FUNCTIONS, called, filtered, list_of, listed
from sqlanon.errors import UntranslatableError
from sqlanon.expressions import ANY_NUMBER, anonymous, is_null, number, text


def _double(value: exp.Expr, kinds: Kinds) -> exp.Expr:
    return value if kinds.of(value) == "double" else cast_there(value, "DOUBLE")


def _if(condition: exp.Expr, true: exp.Expr, false: exp.Expr) -> exp.If:
    return exp.If(this=condition, true=true, false=false)


def _special(name: str) -> exp.Expr:
    return cast_there(text(name), "DOUBLE")


def _literal(node: exp.Expr, kinds: Kinds) -> exp.Expr:
    """A decimal of Spark would be worked with in digits."""
    if kinds.of(node) != "double" or isinstance(node.parent, exp.Cast):
        return node
    return cast_there(node.copy(), "DOUBLE")


def _divided(node: exp.Expr, kinds: Kinds) -> exp.Expr:
    """As DOUBLE; by 0 infinite, which here is an error."""
    left, right = _double(node.this, kinds), _double(node.expression, kinds)
    plain = exp.Div(this=left.copy(), expression=right.copy())
    if _is_never_zero(node.expression):
        return plain
    zero = exp.EQ(this=right.copy(), expression=number(0))
    return _if(zero, exp.Mul(this=left.copy(), expression=_special("Infinity")), plain)


def _is_never_zero(value: exp.Expr) -> bool:
    while isinstance(value, (exp.Paren, exp.Cast)):
        value = value.this
    if isinstance(value, exp.Nullif):
        return bool(value.expression == number(0))
    return isinstance(value, exp.Literal) and not value.is_string and float(value.name) != 0


def _subtracted(node: exp.Expr, kinds: Kinds) -> exp.Expr:
    """The days between two dates, which here would be an interval."""
    left, right = kinds.of(node.this), kinds.of(node.expression)
    if right == "date":
        return anonymous("DATEDIFF", node.this.copy(), node.expression.copy())
    if left == "date" and right != "whole":
        raise UntranslatableError(
            f"{node.sql('duckdb')}: only a date or a number of days is taken from a date in Spark"
        )
    return node


def _logarithm(logarithm: Callable[[exp.Expr], exp.Expr]) -> Callable[[exp.Expr, Kinds], exp.Expr]:
    """Of 0 it is minus infinity, and of what is less no number; here both are NULL."""

    def rule(node: exp.Expr, kinds: Kinds) -> exp.Expr:
        value = node.expressions[0] if isinstance(node, exp.Anonymous) else node.this
        cases = [
            (exp.GT(this=value.copy(), expression=number(0)), logarithm(value)),
            (exp.EQ(this=value.copy(), expression=number(0)), _special("-Infinity")),
            (exp.LT(this=value.copy(), expression=number(0)), _special("NaN")),
        ]
        return exp.Case(ifs=[exp.If(this=condition, true=result) for condition, result in cases])

    return rule


def _log2(value: exp.Expr) -> exp.Expr:
    """Of a power of two it is whole; here it is a quotient of two logarithms, and 2 ** 29 has 29.000000000000004."""
    plain = anonymous("LOG2", value.copy())
    nearest = anonymous("RINT", plain)
    exact = exp.EQ(
        this=exp.Pow(this=cast_there(number(2), "DOUBLE"), expression=nearest.copy()), expression=value.copy()
    )
    return _if(exact, nearest, plain.copy())


def _rounded(node: exp.Expr, kinds: Kinds) -> exp.Expr:
    """To some decimals: of the binary number, where here it is of the shortest decimal that it is written as."""
    decimals = node.args.get("decimals")
    if decimals is None:
        return node
    if not (isinstance(decimals, exp.Literal) and decimals.name.isdigit() and int(decimals.name) <= 15):
        raise UntranslatableError(f"{node.sql('duckdb')}: only to a number of decimals from 0 to 15 in Spark")
    return to_decimals(_double(node.this, kinds), int(decimals.name))


def _upwards(node: exp.Expr, kinds: Kinds) -> exp.Expr:
    """A DOUBLE, as it was; here it would be a BIGINT."""
    value = _double(node.this, kinds)
    exact = exp.LT(this=exp.Abs(this=value.copy()), expression=cast_there(number(2**53), "DOUBLE"))
    return _if(exact, cast_there(type(node)(this=value.copy()), "DOUBLE"), value.copy())


def _mean(node: exp.Expr, kinds: Kinds) -> exp.Expr:
    return exp.Avg(this=_double(node.this, kinds).copy())


def _any(node: exp.Expr, kinds: Kinds) -> exp.Expr:
    """A value that is not NULL, if there is one; here it may be NULL."""
    return exp.Max(this=node.this.copy())


def _ordered(node: exp.Expr, kinds: Kinds) -> exp.Expr:
    """Terms in full: NULL comes last, unless it is said."""
    if all(isinstance(term, exp.Ordered) for term in node.expressions):
        return node
    terms = [term if isinstance(term, exp.Ordered) else exp.Ordered(this=term) for term in node.expressions]
    return exp.Order(this=node.this, expressions=[term.copy() for term in terms])


def _windowed(node: exp.Expr, kinds: Kinds) -> exp.Expr:
    if (list_ := list_of(node)) is not None:
        return list_
    if node.meta.get(ANY_NUMBER):  # numbers without a gap would have all rows in one place
        return anonymous("MONOTONICALLY_INCREASING_ID")
    if isinstance(node.this, exp.RowNumber) and not node.args.get("order"):
        numbered = node.copy()
        numbered.set("order", exp.Order(expressions=[exp.Ordered(this=exp.null())]))
        return numbered
    return node


def _joined(node: exp.Expr, kinds: Kinds) -> exp.Expr:
    """The name in full: of a join of some kinds, the side."""
    if node.args.get("kind") in ("SEMI", "ANTI") and not node.args.get("side"):
        copy = node.copy()
        copy.set("side", "LEFT")
        return copy
    return node


def _with(node: exp.Expr, kinds: Kinds) -> exp.Expr:
    if node.args.get("recursive"):
        raise UntranslatableError("WITH RECURSIVE with windows cannot be put in the dialect of spark")
    return node


def _common(node: exp.Expr, kinds: Kinds) -> exp.Expr:
    """Spark makes what is read several times as often as it likes: it may be, where it is the same every time."""
    if any(isinstance(one, exp.Anonymous) and one.name.upper() == "RAND" for one in node.walk()):
        raise UntranslatableError("RANDOM() in a WITH cannot be put in the dialect of spark")
    copy = node.copy()
    copy.set("materialized", None)
    return copy


def _approximate(node: exp.Expr, kinds: Kinds) -> exp.Expr:
    value = node.this
    hashed = isinstance(value, exp.Anonymous) and value.name.upper() == "HASH"
    return exp.ApproxDistinct(this=value.expressions[0].copy()) if hashed else node


def _hash(node: exp.Expr, kinds: Kinds) -> exp.Expr:
    if isinstance(node.parent, exp.ApproxDistinct):  # any will do
        return node
    raise UntranslatableError("HASH() cannot be put in the dialect of spark: every engine has its own")


def _concatenated(node: exp.Expr, kinds: Kinds) -> exp.Expr:
    """NULL, if a part is."""
    if not node.args.get("safe"):
        raise UntranslatableError(
            f"{node.sql('duckdb')} cannot be put in the dialect of spark: NULL may be passed over"
        )
    together: exp.Expr = node.expressions[0].copy()
    for one in node.expressions[1:]:
        together = exp.DPipe(this=together, expression=one.copy())
    return together


def _collated(node: exp.Expr, kinds: Kinds) -> exp.Expr:
    """Byte by byte."""
    if node.expression.name.lower() not in ("binary", "c"):
        raise UntranslatableError(
            f"{node.sql('duckdb')} cannot be put in the dialect of spark: only bytes are compared"
        )
    return exp.Collate(this=node.this.copy(), expression=exp.Var(this="UTF8_BINARY"))


def _same(node: exp.Expr, kinds: Kinds) -> exp.Expr:
    return node


def _finite(node: exp.Expr, kinds: Kinds) -> exp.Expr:
    """A date is, if it is there."""
    value = node.expressions[0]
    there = exp.Nullif(this=exp.Paren(this=exp.Not(this=is_null(value.copy()))), expression=exp.false())
    return by_type(value, [(DAYS, there)], refused_there(f"a value of another type: {value.sql('duckdb')}"))


RULES: Mapping[type[exp.Expr], Callable[[exp.Expr, Kinds], exp.Expr]] = {
    exp.Literal: _literal,
    exp.Div: _divided,
    exp.Sub: _subtracted,
    exp.Ln: _logarithm(lambda value: exp.Ln(this=value.copy())),
    exp.Round: _rounded,
    exp.Ceil: _upwards,
    exp.Floor: _upwards,
    exp.Avg: _mean,
    exp.AnyValue: _any,
    exp.Cast: converted,
    exp.TryCast: converted,
    exp.Order: _ordered,
    exp.Window: _windowed,
    exp.Filter: filtered,
    exp.ArrayAgg: listed,
    exp.Join: _joined,
    exp.With: _with,
    exp.CTE: _common,
    exp.ApproxDistinct: _approximate,
    exp.Concat: _concatenated,
    exp.Collate: _collated,
}
"""By the kind of node."""

FUNCTIONS: Mapping[str, Callable[[exp.Expr, Kinds], exp.Expr]] = {
    "GREATEST": _same,
    "LEAST": _same,
    "LOG2": _logarithm(_log2),
    "RANDOM": called("RAND"),
    "HASH": _hash,
    "ISFINITE": _finite,
    **LIST_FUNCTIONS,
}
"""By the name of the function."""
