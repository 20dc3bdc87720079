"""What Spark means by something else than DuckDB, and how it is written there so that it is the same.

It is Spark 4 with ANSI mode on and the time zone UTC.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from sqlglot import exp

from sqlanon.engines.dialects.kinds import INTEGER_TYPES, ValueKind, ValueKinds, cast_type
from sqlanon.errors import UntranslatableError
from sqlanon.support.expressions import (
    ARBITRARY_ROW_NUMBER,
    anonymous,
    fragment,
    ident,
    is_null,
    native_type,
    number,
    text,
)

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

ERROR_PREFIX = "sqlanon: "
"""So begins what errors say that our statements raise: no value is in it."""

_Rule: TypeAlias = Callable[[exp.Expr, ValueKinds], exp.Expr]
_Caster: TypeAlias = Callable[[exp.Expr], exp.Expr]

_INTEGERS = ("tinyint", "smallint", "int", "bigint")
_FLOATING = ("float", "double")
_DECIMAL = ("decimal",)
_DAYS = ("date", "timestamp_ntz", "timestamp")
_SAME_TEXT = (*_INTEGERS, "boolean", "date", "timestamp_ntz", "string", "void")

_LOGARITHM = fragment("""
    CASE WHEN :value > 0 THEN :logarithm
        WHEN :value = 0 THEN '-Infinity'::DOUBLE
        WHEN :value < 0 THEN 'NaN'::DOUBLE END
""")
# Of a power of two it is whole; here it is a quotient of two logarithms, and 2 ** 29 has 29.000000000000004.
_LOG2 = fragment("if(power(2::DOUBLE, :nearest) = :value, :nearest, :plain)")
# Kept a DOUBLE: Spark would make it a BIGINT.
_WHOLE_DOUBLE = fragment("if(abs(:value) < 9007199254740992::DOUBLE, :whole::DOUBLE, :value)")


def _untranslatable(node: exp.Expr, why: str) -> UntranslatableError:
    return UntranslatableError(f"{node.sql('duckdb')} cannot be put in the dialect of spark: {why}")


# Casts


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


def _converted(node: exp.Expr, kinds: ValueKinds) -> exp.Expr:
    """A cast. To integers it rounds (of two, DOUBLE to the even one), where here it cuts off."""
    assert isinstance(node, exp.Cast)
    type_ = cast_type(node)
    target, value, kind = spark_type(type_), node.this, kinds.of(node.this)

    def to(what: exp.Expr) -> exp.Expr:
        # (Without it sqlglot makes a CAST of a TRY_CAST.)
        tried = {"safe": True} if isinstance(node, exp.TryCast) else {}
        return type(node)(this=what.copy(), to=native_type(target), **tried)

    nothing = kind == "null" or (isinstance(value, exp.Array) and not value.expressions)
    if nothing or target in ("FLOAT", "DOUBLE"):
        return to(value)
    if type_ in INTEGER_TYPES:
        return _to_whole(value, kind, to)
    if type_.startswith("DECIMAL("):
        return _to_decimal(value, kind, int(type_[:-1].partition(",")[2] or 0), to)
    return _to_text(value, kind, to) if target == "STRING" else _to_other(value, kind, target, to)


def _to_other(value: exp.Expr, kind: ValueKind | None, target: str, to: _Caster) -> exp.Expr:
    """To a boolean, a date or a time: of text each engine reads some that others do not."""
    if target.endswith(">"):
        raise UntranslatableError(f"{to(value).sql('spark')}: lists are not cast in Spark")
    types = ("boolean", *_INTEGERS, "void") if target == "BOOLEAN" else _DAYS
    known = kind == ("boolean" if target == "BOOLEAN" else "date")
    literal = target != "BOOLEAN" and isinstance(value, exp.Literal) and value.is_string
    if known or literal:
        return to(value)
    return _by_type(value, [(types, to(value))], _refused_there(value, "of another type"))


def _to_whole(value: exp.Expr, kind: ValueKind | None, to: _Caster) -> exp.Expr:
    to_even = to(anonymous("RINT", value.copy()))
    if kind in ("whole", "boolean", "text"):
        return to(value)
    if kind == "double":
        return to_even
    away_from_zero = exp.Round(this=value.copy())
    if kind == "decimal":
        return to(away_from_zero)
    return _by_type(value, [(_FLOATING, to_even), (_DECIMAL, to(away_from_zero))], to(value))


def _to_decimal(value: exp.Expr, kind: ValueKind | None, scale: int, to: _Caster) -> exp.Expr:
    """Of a DOUBLE it is the binary number that is rounded."""
    of_double = to(_to_decimals(_cast(value.copy(), "DOUBLE"), scale))
    if kind == "double":
        return of_double
    return to(value) if kind is not None else _by_type(value, [(_FLOATING, of_double)], to(value))


def _to_text(value: exp.Expr, kind: ValueKind | None, to: _Caster) -> exp.Expr:
    if kind in ("whole", "text", "date", "boolean", "decimal"):
        return to(value)
    in_utc = exp.DPipe(this=to(value), expression=text("+00"))
    same = [(_SAME_TEXT, to(value)), (_DECIMAL, to(value)), (("timestamp",), in_utc)]
    return _by_type(value, same, _refused_there(value, "that has another text in Spark"))


def _to_decimals(value: exp.Expr, decimals: int) -> exp.Expr:
    """A DOUBLE, rounded to some decimals as the binary number that it is."""
    if decimals == 0:
        return exp.Round(this=value.copy())
    unit = _cast(number(10**decimals), "DOUBLE")
    return exp.Div(this=exp.Round(this=exp.Mul(this=value.copy(), expression=unit)), expression=unit.copy())


def _by_type(value: exp.Expr, cases: Sequence[tuple[Sequence[str], exp.Expr]], default: exp.Expr) -> exp.Expr:
    """What is written for a value by Spark's name of its type, which it knows before it reads rows."""
    type_, ifs = anonymous("TYPEOF", value.copy()), []
    for types, what in cases:
        is_decimal = exp.Like(this=type_.copy(), expression=text("decimal%"))
        is_one = exp.In(this=type_.copy(), expressions=[text(one) for one in types])
        ifs.append(exp.If(this=is_decimal if types is _DECIMAL else is_one, true=what))
    return exp.Case(ifs=ifs, default=default)


def _refused_there(value: exp.Expr, which: str) -> exp.Expr:
    """An error, when it is looked at."""
    return anonymous("RAISE_ERROR", text(f"{ERROR_PREFIX}a value {which}: {value.sql('duckdb')}"))


def _cast(value: exp.Expr, type_: str) -> exp.Cast:
    return exp.Cast(this=value, to=native_type(type_))


# Lists


def _listed(node: exp.Expr, kinds: ValueKinds) -> exp.Expr:
    """A list, unless a filter or a window is around it: then it is made with that."""
    outer = isinstance(node.parent, (exp.Filter, exp.Window)) and node.arg_key == "this"
    return node if outer else _list_of(node) or node


def _filtered(node: exp.Expr, kinds: ValueKinds) -> exp.Expr:
    outer = isinstance(node.parent, exp.Window) and node.arg_key == "this"
    return node if outer else _list_of(node) or node


def _list_of(node: exp.Expr) -> exp.Expr | None:
    """A list, within its filter and window: with its NULLs, in its order, and NULL where nothing is listed."""
    aggregate = node
    while isinstance(aggregate, (exp.Filter, exp.Window)):
        aggregate = aggregate.this
    if not isinstance(aggregate, exp.ArrayAgg):
        return None
    what, order = aggregate.this, None
    if isinstance(what, exp.Order):
        what, order = what.this, what.expressions
    distinct = isinstance(what, exp.Distinct)
    value = what.expressions[0] if distinct else what
    if isinstance(value, exp.Struct) and not order and not distinct:  # it is never NULL
        return _none_for_empty(_around(node, anonymous("COLLECT_LIST", value.copy())))
    keys, descending = _sort_keys(aggregate, order or [])
    parts: exp.Expr = exp.Struct(expressions=[*keys, _field("value", value.copy())])
    each = exp.Distinct(expressions=[parts]) if distinct else parts
    result = _around(node, anonymous("COLLECT_LIST", each))
    if order:
        result = anonymous("SORT_ARRAY", result, exp.convert(not descending))
    one = exp.Dot(this=exp.Var(this="one"), expression=ident("value"))
    only = exp.Lambda(this=one, expressions=[exp.Identifier(this="one")])
    return _none_for_empty(anonymous("TRANSFORM", result, only))


def _around(node: exp.Expr, aggregate: exp.Expr) -> exp.Expr:
    if not isinstance(node, (exp.Filter, exp.Window)):
        return aggregate
    copy = node.copy()
    copy.set("this", _around(node.this, aggregate))
    return copy


def _none_for_empty(list_: exp.Expr) -> exp.Expr:
    return exp.Nullif(this=list_, expression=exp.Array(expressions=[]))


def _sort_keys(aggregate: exp.Expr, order: Sequence[exp.Expr]) -> tuple[list[exp.Expr], bool]:
    """What structures are sorted by: whether a key is NULL, so that it comes last, and the key."""
    descending = {bool(term.args.get("desc")) for term in order}
    if len(descending) > 1 or any(term.args.get("nulls_first") for term in order):
        raise _untranslatable(aggregate, "its order")
    down = True in descending
    keys: list[exp.Expr] = []
    for i, term in enumerate(order):
        last = exp.Not(this=is_null(term.this.copy())) if down else is_null(term.this.copy())
        keys += [_field(f"last_{i}", last), _field(f"key_{i}", term.this.copy())]
    return keys, down


def _field(name: str, value: exp.Expr) -> exp.PropertyEQ:
    return exp.PropertyEQ(this=ident(name), expression=value)


def _prepended(node: exp.Expr, kinds: ValueKinds) -> exp.Expr:
    element, list_ = node.expressions
    return anonymous("CONCAT", exp.Array(expressions=[element.copy()]), *_pieces(list_))


def _appended(node: exp.Expr, kinds: ValueKinds) -> exp.Expr:
    list_, element = node.expressions
    return anonymous("CONCAT", *_pieces(list_), exp.Array(expressions=[element.copy()]))


def _pieces(list_: exp.Expr) -> list[exp.Expr]:
    """The lists that a list is put together from; where it is NULL, an empty one."""
    if _is_concat(list_):
        return [one.copy() for one in list_.expressions]
    return [exp.Coalesce(this=list_.copy(), expressions=[exp.Array(expressions=[])])]


def _is_concat(list_: exp.Expr) -> bool:
    return isinstance(list_, exp.Anonymous) and list_.name == "CONCAT"


def _reduced(node: exp.Expr, kinds: ValueKinds) -> exp.Expr:
    """From the first element on, which here has to be given."""
    list_, step = node.expressions
    if not (_is_concat(list_) and isinstance(first := list_.expressions[0], exp.Array)):
        raise UntranslatableError(f"{node.sql('duckdb')}: only of a list that begins with LIST_PREPEND in Spark")
    others = [one.copy() for one in list_.expressions[1:]]
    return anonymous("AGGREGATE", anonymous("CONCAT", *others), first.expressions[0].copy(), step.copy())


def _summed(node: exp.Expr, kinds: ValueKinds) -> exp.Expr:
    """As DOUBLE; NULL is passed over, and is the sum of nothing."""
    so_far, one = (exp.Var(this=name) for name in ("so_far", "one"))
    added = exp.Add(this=so_far, expression=_cast(one, "DOUBLE"))
    either = exp.Coalesce(this=added, expressions=[so_far.copy(), _cast(one.copy(), "DOUBLE")])
    add = exp.Lambda(this=either, expressions=[exp.Identifier(this="so_far"), exp.Identifier(this="one")])
    return anonymous("AGGREGATE", node.expressions[0].copy(), _cast(exp.null(), "DOUBLE"), add)


def _sliced(node: exp.Expr, kinds: ValueKinds) -> exp.Expr:
    """From a place to a place, from 1 on; here a place and a length."""
    list_, first, last = (one.copy() for one in node.expressions)
    length = exp.Sub(this=exp.Paren(this=last), expression=exp.Paren(this=first.copy())) + 1
    return anonymous("SLICE", list_, first, anonymous("GREATEST", length, number(0)))


def _called(*names: str) -> _Rule:
    """The same function by another name; several are called on one another, the last one first."""

    def rule(node: exp.Expr, kinds: ValueKinds) -> exp.Expr:
        call = anonymous(names[-1], *(one.copy() for one in node.expressions))
        for name in names[-2::-1]:
            call = anonymous(name, call)
        return call

    return rule


# Numbers


def _double(value: exp.Expr, kinds: ValueKinds) -> exp.Expr:
    return value if kinds.of(value) == "double" else _cast(value, "DOUBLE")


def _literal(node: exp.Expr, kinds: ValueKinds) -> exp.Expr:
    """A decimal of Spark would be worked with in digits."""
    if kinds.of(node) != "double" or isinstance(node.parent, exp.Cast):
        return node
    return _cast(node.copy(), "DOUBLE")


def _divided(node: exp.Expr, kinds: ValueKinds) -> exp.Expr:
    """As DOUBLE; by 0 infinite, which here is an error."""
    left, right = _double(node.this, kinds), _double(node.expression, kinds)
    plain = exp.Div(this=left.copy(), expression=right.copy())
    if _is_never_zero(node.expression):
        return plain
    infinite = exp.Mul(this=left.copy(), expression=_cast(text("Infinity"), "DOUBLE"))
    return exp.If(this=exp.EQ(this=right.copy(), expression=number(0)), true=infinite, false=plain)


def _is_never_zero(value: exp.Expr) -> bool:
    while isinstance(value, (exp.Paren, exp.Cast)):
        value = value.this
    if isinstance(value, exp.Nullif):
        return bool(value.expression == number(0))
    return isinstance(value, exp.Literal) and not value.is_string and float(value.name) != 0


def _subtracted(node: exp.Expr, kinds: ValueKinds) -> exp.Expr:
    """The days between two dates, which here would be an interval."""
    left, right = kinds.of(node.this), kinds.of(node.expression)
    if right == "date":
        return anonymous("DATEDIFF", node.this.copy(), node.expression.copy())
    if left == "date" and right != "whole":
        raise UntranslatableError(
            f"{node.sql('duckdb')}: only a date or a number of days is taken from a date in Spark"
        )
    return node


def _natural_logarithm(node: exp.Expr, kinds: ValueKinds) -> exp.Expr:
    """Of 0 it is minus infinity, and of what is less no number; here both are NULL."""
    return _LOGARITHM(value=node.this, logarithm=exp.Ln(this=node.this.copy()))


def _binary_logarithm(node: exp.Expr, kinds: ValueKinds) -> exp.Expr:
    value = node.expressions[0]
    plain = anonymous("LOG2", value.copy())
    return _LOGARITHM(value=value, logarithm=_LOG2(value=value, plain=plain, nearest=anonymous("RINT", plain.copy())))


def _rounded(node: exp.Expr, kinds: ValueKinds) -> exp.Expr:
    """To some decimals: of the binary number, where here it is of the shortest decimal that it is written as."""
    decimals = node.args.get("decimals")
    if decimals is None:
        return node
    if not (isinstance(decimals, exp.Literal) and decimals.name.isdigit() and int(decimals.name) <= 15):
        raise UntranslatableError(f"{node.sql('duckdb')}: only to a number of decimals from 0 to 15 in Spark")
    return _to_decimals(_double(node.this, kinds), int(decimals.name))


def _upwards(node: exp.Expr, kinds: ValueKinds) -> exp.Expr:
    value = _double(node.this, kinds)
    return _WHOLE_DOUBLE(value=value, whole=type(node)(this=value.copy()))


def _finite(node: exp.Expr, kinds: ValueKinds) -> exp.Expr:
    """A date is, if it is there."""
    value = node.expressions[0]
    there = exp.Nullif(this=exp.Paren(this=exp.Not(this=is_null(value.copy()))), expression=exp.false())
    return _by_type(value, [(_DAYS, there)], _refused_there(value, "of another type"))


# Rows and their order


def _ordered(node: exp.Expr, kinds: ValueKinds) -> exp.Expr:
    """Terms in full: NULL comes last, unless it is said."""
    if all(isinstance(term, exp.Ordered) for term in node.expressions):
        return node
    terms = [term if isinstance(term, exp.Ordered) else exp.Ordered(this=term) for term in node.expressions]
    return exp.Order(this=node.this, expressions=[term.copy() for term in terms])


def _windowed(node: exp.Expr, kinds: ValueKinds) -> exp.Expr:
    if (list_ := _list_of(node)) is not None:
        return list_
    if node.meta.get(ARBITRARY_ROW_NUMBER):  # numbers without a gap would have all rows in one place
        return anonymous("MONOTONICALLY_INCREASING_ID")
    if isinstance(node.this, exp.RowNumber) and not node.args.get("order"):
        return _with_part(node, "order", exp.Order(expressions=[exp.Ordered(this=exp.null())]))
    return node


def _with_part(node: exp.Expr, name: str, part: exp.Expr | str | None) -> exp.Expr:
    copy = node.copy()
    copy.set(name, part)
    return copy


def _joined(node: exp.Expr, kinds: ValueKinds) -> exp.Expr:
    """The name in full: of a join of some kinds, the side."""
    is_short = node.args.get("kind") in ("SEMI", "ANTI") and not node.args.get("side")
    return _with_part(node, "side", "LEFT") if is_short else node


def _with(node: exp.Expr, kinds: ValueKinds) -> exp.Expr:
    if node.args.get("recursive"):
        raise UntranslatableError("WITH RECURSIVE with windows cannot be put in the dialect of spark")
    return node


def _common(node: exp.Expr, kinds: ValueKinds) -> exp.Expr:
    """Spark makes what is read several times as often as it likes: it may be, where it is the same every time."""
    if any(isinstance(one, exp.Anonymous) and one.name.upper() == "RAND" for one in node.walk()):
        raise UntranslatableError("RANDOM() in a WITH cannot be put in the dialect of spark")
    return _with_part(node, "materialized", None)


def _approximate(node: exp.Expr, kinds: ValueKinds) -> exp.Expr:
    value = node.this
    hashed = isinstance(value, exp.Anonymous) and value.name.upper() == "HASH"
    return exp.ApproxDistinct(this=value.expressions[0].copy()) if hashed else node


def _hash(node: exp.Expr, kinds: ValueKinds) -> exp.Expr:
    if isinstance(node.parent, exp.ApproxDistinct):  # any will do
        return node
    raise UntranslatableError("HASH() cannot be put in the dialect of spark: every engine has its own")


# Texts


def _concatenated(node: exp.Expr, kinds: ValueKinds) -> exp.Expr:
    """NULL, if a part is."""
    if not node.args.get("safe"):
        raise _untranslatable(node, "NULL may be passed over")
    together: exp.Expr = node.expressions[0].copy()
    for one in node.expressions[1:]:
        together = exp.DPipe(this=together, expression=one.copy())
    return together


def _collated(node: exp.Expr, kinds: ValueKinds) -> exp.Expr:
    """Byte by byte."""
    if node.expression.name.lower() not in ("binary", "c"):
        raise _untranslatable(node, "only bytes are compared")
    return exp.Collate(this=node.this.copy(), expression=exp.Var(this="UTF8_BINARY"))


RULES: Mapping[type[exp.Expr], _Rule] = {
    exp.Literal: _literal,
    exp.Div: _divided,
    exp.Sub: _subtracted,
    exp.Ln: _natural_logarithm,
    exp.Round: _rounded,
    exp.Ceil: _upwards,
    exp.Floor: _upwards,
    exp.Avg: lambda node, kinds: exp.Avg(this=_double(node.this, kinds).copy()),
    # A value that is not NULL, if there is one; here it may be NULL.
    exp.AnyValue: lambda node, kinds: exp.Max(this=node.this.copy()),
    exp.Cast: _converted,
    exp.TryCast: _converted,
    exp.Order: _ordered,
    exp.Window: _windowed,
    exp.Filter: _filtered,
    exp.ArrayAgg: _listed,
    exp.Join: _joined,
    exp.With: _with,
    exp.CTE: _common,
    exp.ApproxDistinct: _approximate,
    exp.Concat: _concatenated,
    exp.Collate: _collated,
}
"""By the kind of node."""

FUNCTIONS: Mapping[str, _Rule] = {
    "GREATEST": lambda node, kinds: node,
    "LEAST": lambda node, kinds: node,
    "LOG2": _binary_logarithm,
    "RANDOM": _called("RAND"),
    "HASH": _hash,
    "ISFINITE": _finite,
    "LEN": _called("ARRAY_SIZE"),
    "LIST_TRANSFORM": _called("TRANSFORM"),
    "LIST_SORT": _called("ARRAY_SORT"),
    "LIST_EXTRACT": _called("TRY_ELEMENT_AT"),
    "LIST_DISTINCT": _called("ARRAY_COMPACT", "ARRAY_DISTINCT"),
    "FLATTEN": _called("FLATTEN", "ARRAY_COMPACT"),
    "LIST_PREPEND": _prepended,
    "LIST_APPEND": _appended,
    "LIST_REDUCE": _reduced,
    "LIST_SUM": _summed,
    "LIST_SLICE": _sliced,
}
"""By the name of the function."""
