"""Types and casts in Spark: what makes the same of a value as DuckDB's cast does.

What depends on types, which are not known here, asks for them in the query (``TYPEOF``): Spark answers that before it
reads rows. A value that it would write, or read, in another way is an error there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from sqlglot import exp

from sqlanon.engines.dialects.kinds import WHOLE, Kind, Kinds, type_text
from sqlanon.errors import UntranslatableError
from sqlanon.expressions import anonymous, native_type, number, text

_TYPES: Mapping[str, str] = {
    "TINYINT": "TINYINT",
    "SMALLINT": "SMALLINT",
    "INTEGER": "INT",
    "INT": "INT",
    "BIGINT": "BIGINT",
    "UTINYINT": "SMALLINT",
    "USMALLINT": "INT",
    "UINTEGER": "BIGINT",
    "UBIGINT": "DECIMAL(20,0)",
    "HUGEINT": "DECIMAL(38,0)",
    "FLOAT": "FLOAT",
    "DOUBLE": "DOUBLE",
    "BOOLEAN": "BOOLEAN",
    "VARCHAR": "STRING",
    "TEXT": "STRING",
    "DATE": "DATE",
    "TIMESTAMP": "TIMESTAMP_NTZ",
    "TIMESTAMP WITH TIME ZONE": "TIMESTAMP",
    "INTEGER[]": "ARRAY<INT>",
}
"""Spark's types, by DuckDB's; unsigned ones become the signed ones that hold them."""

OURS = "sqlanon: "
"""So begins what errors say that our statements raise: no value is in it."""

_Caster: TypeAlias = Callable[[exp.Expr], exp.Expr]

_INTEGERS = ("tinyint", "smallint", "int", "bigint")
_FLOATING = ("float", "double")
_DECIMAL = ("decimal",)
DAYS = ("date", "timestamp_ntz", "timestamp")
_SAME_TEXT = (*_INTEGERS, "boolean", "date", "timestamp_ntz", "string", "void")


def spark_type(type_: str) -> str:
    """Spark's name of a type, by DuckDB's.

    >>> spark_type("UINTEGER"), spark_type("DECIMAL(8,2)")
    ('BIGINT', 'DECIMAL(8,2)')
    """
    if type_.startswith("DECIMAL("):
        return type_
    if type_ not in _TYPES:
        raise UntranslatableError(f"the type {type_} has no equal in Spark")
    return _TYPES[type_]


def converted(node: exp.Expr, kinds: Kinds) -> exp.Expr:
    """A cast. To integers it rounds (of two, DOUBLE to the even one), where here it cuts off."""
    assert isinstance(node, exp.Cast)
    type_ = type_text(node)
    target, value, kind = spark_type(type_), node.this, kinds.of(node.this)

    def to(what: exp.Expr) -> exp.Expr:
        # (Without it sqlglot makes a CAST of a TRY_CAST.)
        tried = {"safe": True} if isinstance(node, exp.TryCast) else {}
        return type(node)(this=what.copy(), to=native_type(target), **tried)

    nothing = kind == "null" or (isinstance(value, exp.Array) and not value.expressions)
    if nothing or target in ("FLOAT", "DOUBLE"):
        return to(value)
    if type_ in WHOLE:
        return _to_whole(value, kind, to)
    if type_.startswith("DECIMAL("):
        return _to_decimal(value, kind, int(type_[:-1].partition(",")[2] or 0), to)
    return _to_text(value, kind, to) if target == "STRING" else _to_other(value, kind, target, to)


def _to_other(value: exp.Expr, kind: Kind | None, target: str, to: _Caster) -> exp.Expr:
    """To a boolean, a date or a time: of text each engine reads some that others do not."""
    if target.endswith(">"):
        raise UntranslatableError(f"{to(value).sql('spark')}: lists are not cast in Spark")
    types = ("boolean", *_INTEGERS, "void") if target == "BOOLEAN" else DAYS
    known = kind == ("boolean" if target == "BOOLEAN" else "date")
    literal = target != "BOOLEAN" and isinstance(value, exp.Literal) and value.is_string
    if known or literal:
        return to(value)
    return by_type(value, [(types, to(value))], refused_there(f"a value of another type: {value.sql('duckdb')}"))


def _to_whole(value: exp.Expr, kind: Kind | None, to: _Caster) -> exp.Expr:
    to_even = to(anonymous("RINT", value.copy()))
    if kind in ("whole", "boolean", "text"):
        return to(value)
    if kind == "double":
        return to_even
    away_from_zero = exp.Round(this=value.copy())
    if kind == "decimal":
        return to(away_from_zero)
    return by_type(value, [(_FLOATING, to_even), (_DECIMAL, to(away_from_zero))], to(value))


def _to_decimal(value: exp.Expr, kind: Kind | None, scale: int, to: _Caster) -> exp.Expr:
    """Of a DOUBLE it is the binary number that is rounded."""
    of_double = to(to_decimals(cast_there(value.copy(), "DOUBLE"), scale))
    if kind == "double":
        return of_double
    return to(value) if kind is not None else by_type(value, [(_FLOATING, of_double)], to(value))


def _to_text(value: exp.Expr, kind: Kind | None, to: _Caster) -> exp.Expr:
    if kind in ("whole", "text", "date", "boolean", "decimal"):
        return to(value)
    in_utc = exp.DPipe(this=to(value), expression=text("+00"))
    same = [(_SAME_TEXT, to(value)), (_DECIMAL, to(value)), (("timestamp",), in_utc)]
    return by_type(value, same, refused_there(f"a value that has another text in Spark: {value.sql('duckdb')}"))


def by_type(value: exp.Expr, cases: Sequence[tuple[Sequence[str], exp.Expr]], default: exp.Expr) -> exp.Expr:
    """What is written for a value by Spark's name of its type, which it knows before it reads rows."""
    conditions = [(_is_decimal(value) if types is _DECIMAL else _type_in(value, types), what) for types, what in cases]
    return exp.Case(ifs=[exp.If(this=condition, true=what) for condition, what in conditions], default=default)


def refused_there(message: str) -> exp.Expr:
    """An error, when it is looked at."""
    return anonymous("RAISE_ERROR", text(f"{OURS}{message}"))


def to_decimals(value: exp.Expr, decimals: int) -> exp.Expr:
    """A DOUBLE, rounded to some decimals as the binary number that it is."""
    if decimals == 0:
        return exp.Round(this=value.copy())
    unit = cast_there(number(10**decimals), "DOUBLE")
    return exp.Div(this=exp.Round(this=exp.Mul(this=value.copy(), expression=unit)), expression=unit.copy())


def _type_in(value: exp.Expr, types: Sequence[str]) -> exp.Expr:
    return exp.In(this=anonymous("TYPEOF", value.copy()), expressions=[text(one) for one in types])


def _is_decimal(value: exp.Expr) -> exp.Expr:
    return exp.Like(this=anonymous("TYPEOF", value.copy()), expression=text("decimal%"))


def cast_there(value: exp.Expr, type_: str) -> exp.Cast:
    """A cast as Spark knows it."""
    return exp.Cast(this=value, to=native_type(type_))
