"""Rewrites of DuckDB expressions that mean something else in Spark 4, with ANSI mode on and the time zone UTC."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from sqlglot import exp

from sqlanon.engines.dialects.kinds import INTEGER_TYPES, ValueKind, ValueKinds, cast_type
from sqlanon.engines.dialects.semi_joins import join_by_condition
from sqlanon.errors import UntranslatableError
from sqlanon.support.expressions import (
    ARBITRARY_ROW_NUMBER,
    anonymous,
    cast,
    col,
    fragment,
    ident,
    is_null,
    number,
    text,
)

_TYPES: Mapping[str, str] = {
    **{name: name for name in ("TINYINT", "SMALLINT", "BIGINT", "FLOAT", "DOUBLE", "BOOLEAN", "DATE")},
    **{"INTEGER": "INT", "INT": "INT", "VARCHAR": "STRING", "TEXT": "STRING", "INTEGER[]": "ARRAY<INT>"},
    **{"UTINYINT": "SMALLINT", "USMALLINT": "INT", "UINTEGER": "BIGINT", "UBIGINT": "DECIMAL(20,0)"},
    **{"HUGEINT": "DECIMAL(38,0)", "TIMESTAMP": "TIMESTAMP_NTZ", "TIMESTAMP WITH TIME ZONE": "TIMESTAMP"},
}
"""Spark types by DuckDB types; unsigned ones become the signed ones that hold them."""

ERROR_PREFIX = "sqlanon: "
"""The beginning of the messages of errors that translated statements raise, which quote no values."""

_Rule: TypeAlias = Callable[[exp.Expr, ValueKinds], exp.Expr]

_INTEGERS = ("tinyint", "smallint", "int", "bigint")
_FLOATING = ("float", "double")
_DECIMAL = ("decimal",)
_DAYS = ("date", "timestamp_ntz", "timestamp")
_SAME_TEXT = (*_INTEGERS, "boolean", "date", "timestamp_ntz", "string", "void")
_TYPE_OF_KIND: Mapping[ValueKind, str] = {
    "whole": "int", "double": "double", "decimal": "decimal", "text": "string", "date": "date", "boolean": "boolean",
}  # fmt: skip


def _refusal(node: exp.Expr, reason: str) -> UntranslatableError:
    return UntranslatableError(f"{node.sql('duckdb')} cannot be translated to spark: {reason}")


# --- Casts


def spark_type(type_: str) -> str:
    """The Spark type for a DuckDB type.

    >>> spark_type("UINTEGER"), spark_type("DECIMAL(8,2)")
    ('BIGINT', 'DECIMAL(8,2)')
    """
    if type_.startswith("DECIMAL("):
        return type_
    if type_ not in _TYPES:
        raise UntranslatableError(f"the type {type_} has no equal in Spark")
    return _TYPES[type_]


def _rewrite_cast(node: exp.Expr, kinds: ValueKinds) -> exp.Expr:
    """Translate a cast: to an integer, DuckDB rounds (DOUBLE: half to even) and Spark truncates; texts of some types
    differ."""
    assert isinstance(node, exp.Cast)
    type_, value, kind = cast_type(node), node.this, kinds.kind_of(node.this)
    target = spark_type(type_)
    safe = {"safe": True} if isinstance(node, exp.TryCast) else {}  # otherwise sqlglot would write a CAST

    def recast(value: exp.Expr) -> exp.Expr:
        copy = cast(value.copy(), target)
        return type(node)(this=copy.this, to=copy.to, **safe)

    plain = recast(value)
    is_empty = kind == "null" or (isinstance(value, exp.Array) and not value.expressions)
    if is_empty or target in ("FLOAT", "DOUBLE"):
        return plain
    if type_ in INTEGER_TYPES:
        to_even, away_from_zero = recast(anonymous("RINT", value.copy())), recast(exp.Round(this=value.copy()))
        return _choose_by_type(value, kind, [(_FLOATING, to_even), (_DECIMAL, away_from_zero)], plain)
    if type_.startswith("DECIMAL("):
        rounded = recast(_round_binary(cast(value.copy(), "DOUBLE"), int(type_[:-1].partition(",")[2] or 0)))
        return _choose_by_type(value, kind, [(_FLOATING, rounded)], plain)
    if target == "STRING":
        in_utc = exp.DPipe(this=plain.copy(), expression=text("+00"))
        cases = [(_SAME_TEXT, plain), (_DECIMAL, plain.copy()), (("timestamp",), in_utc)]
        return _choose_by_type(value, kind, cases, _raise_error(value, "that has another text in Spark"))
    if target.endswith(">"):
        raise UntranslatableError(f"{plain.sql('spark')}: Spark does not cast lists")
    if target != "BOOLEAN" and isinstance(value, exp.Literal) and value.is_string:
        return plain
    # Each engine reads some texts as booleans, dates or times that others do not.
    types = ("boolean", *_INTEGERS, "void") if target == "BOOLEAN" else _DAYS
    return _choose_by_type(value, kind, [(types, plain)], _raise_error(value, "of another type"))


def _round_binary(value: exp.Expr, decimals: int) -> exp.Expr:
    """Round a DOUBLE by its binary value: Spark rounds its shortest decimal form."""
    if decimals == 0:
        return exp.Round(this=value.copy())
    unit = cast(number(10**decimals), "DOUBLE")
    return exp.Div(this=exp.Round(this=exp.Mul(this=value.copy(), expression=unit)), expression=unit.copy())


def _choose_by_type(
    value: exp.Expr, kind: ValueKind | None, cases: Sequence[tuple[Sequence[str], exp.Expr]], default: exp.Expr
) -> exp.Expr:
    """Choose the expression for a value's Spark type: by its kind if it is known, else let Spark choose before it
    reads rows."""
    if kind is not None:
        type_name = _TYPE_OF_KIND[kind]
        return next((expression for types, expression in cases if type_name in types), default)
    type_, ifs = anonymous("TYPEOF", value.copy()), []
    for types, expression in cases:
        is_decimal = exp.Like(this=type_.copy(), expression=text("decimal%"))
        is_listed = exp.In(this=type_.copy(), expressions=[text(name) for name in types])
        ifs.append(exp.If(this=is_decimal if types is _DECIMAL else is_listed, true=expression))
    return exp.Case(ifs=ifs, default=default)


def _raise_error(value: exp.Expr, problem: str) -> exp.Expr:
    """An expression that raises an error when a row is read."""
    return anonymous("RAISE_ERROR", text(f"{ERROR_PREFIX}a value {problem}: {value.sql('duckdb')}"))


# --- Lists


def _rewrite_list(node: exp.Expr, kinds: ValueKinds) -> exp.Expr:
    """Translate ``list``, with its filter and window: it keeps NULLs and its order, and is NULL without elements."""
    if isinstance(node.parent, (exp.Filter, exp.Window)) and node.arg_key == "this":
        return node  # rewritten together with its filter or window
    aggregate = node
    while isinstance(aggregate, (exp.Filter, exp.Window)):
        aggregate = aggregate.this
    if not isinstance(aggregate, exp.ArrayAgg):
        return node
    content, order = aggregate.this, None
    if isinstance(content, exp.Order):
        content, order = content.this, content.expressions
    is_distinct = isinstance(content, exp.Distinct)
    value = content.expressions[0] if is_distinct else content
    if isinstance(value, exp.Struct) and not order and not is_distinct:  # it is never NULL
        return _null_if_empty(_replace_aggregate(node, anonymous("COLLECT_LIST", value.copy())))
    keys, is_descending = _sort_keys(aggregate, order or [])
    parts: exp.Expr = exp.Struct(expressions=[*keys, _field("value", value.copy())])
    result = _replace_aggregate(
        node, anonymous("COLLECT_LIST", exp.Distinct(expressions=[parts]) if is_distinct else parts)
    )
    if order:
        result = anonymous("SORT_ARRAY", result, exp.convert(not is_descending))
    read_value = exp.Dot(this=exp.Var(this="one"), expression=ident("value"))
    return _null_if_empty(anonymous("TRANSFORM", result, _lambda(read_value, "one")))


def _replace_aggregate(node: exp.Expr, aggregate: exp.Expr) -> exp.Expr:
    """Replace the aggregate of a node, and keep its filter and window."""
    if not isinstance(node, (exp.Filter, exp.Window)):
        return aggregate
    return _with_part(node, "this", _replace_aggregate(node.this, aggregate))


def _null_if_empty(list_: exp.Expr) -> exp.Expr:
    return exp.Nullif(this=list_, expression=exp.Array(expressions=[]))


def _sort_keys(aggregate: exp.Expr, order: Sequence[exp.Expr]) -> tuple[list[exp.Expr], bool]:
    """The fields that structures are sorted by: whether a key is NULL, which comes last, and the key."""
    descending = {bool(term.args.get("desc")) for term in order}
    if len(descending) > 1 or any(term.args.get("nulls_first") for term in order):
        raise _refusal(aggregate, "its order")
    keys: list[exp.Expr] = []
    for i, term in enumerate(order):
        is_last = is_null(term.this.copy())
        keys += [_field(f"last_{i}", exp.Not(this=is_last) if True in descending else is_last)]
        keys += [_field(f"key_{i}", term.this.copy())]
    return keys, True in descending


def _field(name: str, value: exp.Expr) -> exp.PropertyEQ:
    return exp.PropertyEQ(this=ident(name), expression=value)


def _lambda(result: exp.Expr, *parameters: str) -> exp.Lambda:
    return exp.Lambda(this=result, expressions=[exp.Identifier(this=name) for name in parameters])


def _prepend(node: exp.Expr, kinds: ValueKinds) -> exp.Expr:
    element, list_ = node.expressions
    return anonymous("CONCAT", exp.Array(expressions=[element.copy()]), *_concatenated_lists(list_))


def _append(node: exp.Expr, kinds: ValueKinds) -> exp.Expr:
    list_, element = node.expressions
    return anonymous("CONCAT", *_concatenated_lists(list_), exp.Array(expressions=[element.copy()]))


def _concatenated_lists(list_: exp.Expr) -> list[exp.Expr]:
    """The parts of a concatenation; any other list is a single part, or an empty list if it is NULL."""
    if _is_concat(list_):
        return [part.copy() for part in list_.expressions]
    return [exp.Coalesce(this=list_.copy(), expressions=[exp.Array(expressions=[])])]


def _is_concat(list_: exp.Expr) -> bool:
    return isinstance(list_, exp.Anonymous) and list_.name == "CONCAT"


def _reduce(node: exp.Expr, kinds: ValueKinds) -> exp.Expr:
    """Translate ``list_reduce``: DuckDB starts with the first element, Spark with a separate argument."""
    list_, step = node.expressions
    if not (_is_concat(list_) and isinstance(first := list_.expressions[0], exp.Array)):
        raise UntranslatableError(f"{node.sql('duckdb')}: only of a list that begins with LIST_PREPEND in Spark")
    remaining = anonymous("CONCAT", *(part.copy() for part in list_.expressions[1:]))
    return anonymous("AGGREGATE", remaining, first.expressions[0].copy(), step.copy())


def _sum_list(node: exp.Expr, kinds: ValueKinds) -> exp.Expr:
    """Sum a list as DOUBLE without its NULLs; the sum of no element is NULL."""
    so_far, value = exp.Var(this="so_far"), cast(exp.Var(this="one"), "DOUBLE")
    total = exp.Coalesce(this=exp.Add(this=so_far, expression=value), expressions=[so_far.copy(), value.copy()])
    add = _lambda(total, "so_far", "one")
    return anonymous("AGGREGATE", node.expressions[0].copy(), cast(exp.null(), "DOUBLE"), add)


def _slice(node: exp.Expr, kinds: ValueKinds) -> exp.Expr:
    """Translate ``list_slice``: DuckDB takes the first and the last position, Spark the first position and a length."""
    list_, first, last = (argument.copy() for argument in node.expressions)
    length = exp.Sub(this=exp.Paren(this=last), expression=exp.Paren(this=first.copy())) + 1
    return anonymous("SLICE", list_, first, anonymous("GREATEST", length, number(0)))


def _rename(*names: str) -> _Rule:
    """Call the function by another name; several names are nested calls, the innermost last."""

    def rule(node: exp.Expr, kinds: ValueKinds) -> exp.Expr:
        call = anonymous(names[-1], *(argument.copy() for argument in node.expressions))
        for name in names[-2::-1]:
            call = anonymous(name, call)
        return call

    return rule


# --- Numbers


def _double(value: exp.Expr, kinds: ValueKinds) -> exp.Expr:
    return value if kinds.kind_of(value) == "double" else cast(value, "DOUBLE")


def _rewrite_literal(node: exp.Expr, kinds: ValueKinds) -> exp.Expr:
    """Cast a decimal literal to DOUBLE: otherwise Spark computes in decimal digits."""
    is_decimal = kinds.kind_of(node) == "double" and not isinstance(node.parent, exp.Cast)
    return cast(node.copy(), "DOUBLE") if is_decimal else node


def _divide(node: exp.Expr, kinds: ValueKinds) -> exp.Expr:
    """Divide as DOUBLE: a division by 0 is infinite, where Spark raises an error."""
    left, right = _double(node.this, kinds), _double(node.expression, kinds)
    quotient = exp.Div(this=left.copy(), expression=right.copy())
    if _is_never_zero(node.expression):
        return quotient
    infinite = exp.Mul(this=left.copy(), expression=cast(text("Infinity"), "DOUBLE"))
    return exp.If(this=exp.EQ(this=right.copy(), expression=number(0)), true=infinite, false=quotient)


def _is_never_zero(value: exp.Expr) -> bool:
    while isinstance(value, (exp.Paren, exp.Cast)):
        value = value.this
    if isinstance(value, exp.Nullif):
        return bool(value.expression == number(0))
    return isinstance(value, exp.Literal) and not value.is_string and float(value.name) != 0


def _subtract(node: exp.Expr, kinds: ValueKinds) -> exp.Expr:
    """Subtract dates as a number of days: Spark returns an interval."""
    left, right = kinds.kind_of(node.this), kinds.kind_of(node.expression)
    if right == "date":
        return anonymous("DATEDIFF", node.this.copy(), node.expression.copy())
    if left == "date" and right != "whole":
        raise _refusal(node, "only dates and whole numbers can be subtracted from a date")
    return node


def _guard_logarithm(value: exp.Expr, logarithm: exp.Expr) -> exp.Expr:
    """Return minus infinity for the logarithm of 0, and NaN for that of a negative number: Spark returns NULL."""
    guarded = fragment("""
        CASE
            WHEN :value > 0 THEN :logarithm
            WHEN :value = 0 THEN '-Infinity'::DOUBLE
            WHEN :value < 0 THEN 'NaN'::DOUBLE
        END
    """)
    return guarded(value=value, logarithm=logarithm)


def _binary_logarithm(node: exp.Expr, kinds: ValueKinds) -> exp.Expr:
    """Return whole logarithms for powers of two: Spark divides two logarithms, 29.000000000000004 for 2 ** 29."""
    value = node.expressions[0]
    plain = anonymous("LOG2", value.copy())
    exact = fragment("if(power(2::DOUBLE, :nearest) = :value, :nearest, :plain)")
    nearest = anonymous("RINT", plain.copy())
    return _guard_logarithm(value, exact(value=value, plain=plain, nearest=nearest))


def _round(node: exp.Expr, kinds: ValueKinds) -> exp.Expr:
    decimals = node.args.get("decimals")
    if decimals is None:
        return node
    if not (isinstance(decimals, exp.Literal) and decimals.name.isdigit() and int(decimals.name) <= 15):
        raise _refusal(node, "only 0 to 15 decimals")
    return _round_binary(_double(node.this, kinds), int(decimals.name))


def _round_to_double(node: exp.Expr, kinds: ValueKinds) -> exp.Expr:
    """Return CEIL and FLOOR of a DOUBLE as DOUBLE: Spark returns BIGINT."""
    value = _double(node.this, kinds)
    whole = fragment("if(abs(:value) < 9007199254740992::DOUBLE, :whole::DOUBLE, :value)")
    return whole(value=value, whole=type(node)(this=value.copy()))


def _is_finite(node: exp.Expr, kinds: ValueKinds) -> exp.Expr:
    """Return true for every date: Spark has no infinite ones."""
    value = node.expressions[0]
    is_date = exp.Nullif(this=exp.Paren(this=exp.Not(this=is_null(value.copy()))), expression=exp.false())
    return _choose_by_type(value, None, [(_DAYS, is_date)], _raise_error(value, "of another type"))


# --- Rows and their order


def _order_nulls(node: exp.Expr, kinds: ValueKinds) -> exp.Expr:
    """Write the place of NULL in each term: it comes last by default, but first in Spark."""
    if all(isinstance(term, exp.Ordered) for term in node.expressions):
        return node
    terms = [
        term.copy() if isinstance(term, exp.Ordered) else exp.Ordered(this=term.copy()) for term in node.expressions
    ]
    return exp.Order(this=node.this, expressions=terms)


def _rewrite_window(node: exp.Expr, kinds: ValueKinds) -> exp.Expr:
    if (list_ := _rewrite_list(node, kinds)) is not node:
        return list_
    if node.meta.get(ARBITRARY_ROW_NUMBER):  # numbers without gaps would need all rows in one place
        return anonymous("MONOTONICALLY_INCREASING_ID")
    if isinstance(node.this, exp.RowNumber) and not node.args.get("order"):
        terms = _grouped_columns(node) or [exp.null()]
        return _with_part(node, "order", exp.Order(expressions=[exp.Ordered(this=term) for term in terms]))
    return node


def _grouped_columns(node: exp.Expr) -> list[exp.Expr]:
    """The columns of the groups that a window is over, which identify them; empty if it is not over groups alone.

    In their order, the groups have the same numbers each time that a common table expression is computed.
    """
    query = node.parent_select
    source = None if query is None or query.args.get("joins") else query.args["from_"].this
    if not isinstance(source, exp.Subquery) or not source.this.args.get("group"):
        return []
    keys = {key.name for key in source.this.args["group"].expressions}
    names = [column.alias_or_name for column in source.this.expressions if column.name in keys]
    return [col(name, source.alias_or_name) for name in names] if len(names) == len(keys) else []


def _with_part(node: exp.Expr, name: str, part: exp.Expr | str | None) -> exp.Expr:
    copy = node.copy()
    copy.set(name, part)
    return copy


def _rewrite_join(node: exp.Expr, kinds: ValueKinds) -> exp.Expr:
    """Spark needs LEFT in LEFT SEMI JOIN and LEFT ANTI JOIN, and would put the columns of USING first."""
    assert isinstance(node, exp.Join)
    needs_side = node.args.get("kind") in ("SEMI", "ANTI") and not node.args.get("side")
    query = node.parent
    if node.args.get("using") and not needs_side and isinstance(query, exp.Select) and query.is_star:
        raise _refusal(node, "name its columns, whose order differs")
    return _with_part(join_by_condition(node, "spark"), "side", "LEFT") if needs_side else node


def _unnest_laterally(node: exp.Expr, kinds: ValueKinds) -> exp.Expr:
    """Spark expands lists in a lateral join, not inside expressions."""
    assert isinstance(node, exp.Select)
    lists = [part for column in node.expressions for part in column.find_all(exp.Explode)]
    if not lists:
        return node
    if len(lists) > 1 or node.args.get("group"):
        raise _refusal(node, "it expands several lists, or groups")
    query = node.copy()
    for part in [part for column in query.expressions for part in column.find_all(exp.Explode)]:
        part.replace(col(_ELEMENT, _ELEMENTS))
        alias = exp.TableAlias(this=ident(_ELEMENTS), columns=[ident(_ELEMENT)])
        query.append("laterals", exp.Lateral(this=part, view=True, alias=alias))
    return query


_ELEMENTS, _ELEMENT = "sqlanon_elements", "element"


def _list_numbers(node: exp.Expr, kinds: ValueKinds) -> exp.Expr:
    """Translate ``range``, which excludes its end: Spark would include it, and count down to a smaller one."""
    numbers = _NUMBERS(first=cast(node.args["start"], "BIGINT"), end=cast(node.args["end"], "BIGINT"))
    if not node.args.get("is_end_exclusive"):
        raise _refusal(node, "use range")
    return numbers


_NUMBERS = fragment("if(:end > :first, sequence(:first, :end - 1), array())", "spark")


def _refuse_recursion(node: exp.Expr, kinds: ValueKinds) -> exp.Expr:
    if node.args.get("recursive"):
        raise UntranslatableError("WITH RECURSIVE with windows cannot be translated to spark")
    return node


def _inline_cte(node: exp.Expr, kinds: ValueKinds) -> exp.Expr:
    """Refuse random numbers in a common table expression: Spark may compute it again each time it is read."""
    if any(isinstance(part, exp.Anonymous) and part.name.upper() == "RAND" for part in node.walk()):
        raise UntranslatableError("RANDOM() in a WITH cannot be translated to spark")
    return _with_part(node, "materialized", None)


def _count_approximately(node: exp.Expr, kinds: ValueKinds) -> exp.Expr:
    value = node.this
    is_hash = isinstance(value, exp.Anonymous) and value.name.upper() == "HASH"
    return exp.ApproxDistinct(this=value.expressions[0].copy()) if is_hash else node


def _refuse_hash(node: exp.Expr, kinds: ValueKinds) -> exp.Expr:
    if isinstance(node.parent, exp.ApproxDistinct):  # any hash will do
        return node
    raise UntranslatableError("HASH() cannot be translated to spark: every engine has its own")


# --- Texts


def _concatenate(node: exp.Expr, kinds: ValueKinds) -> exp.Expr:
    """Concatenate texts; the result is NULL if a part is."""
    if not node.args.get("safe"):
        raise _refusal(node, "NULL may be passed over")
    result: exp.Expr = node.expressions[0].copy()
    for part in node.expressions[1:]:
        result = exp.DPipe(this=result, expression=part.copy())
    return result


def _collate(node: exp.Expr, kinds: ValueKinds) -> exp.Expr:
    if node.expression.name.lower() not in ("binary", "c"):
        raise _refusal(node, "only bytes are compared")
    return exp.Collate(this=node.this.copy(), expression=exp.Var(this="UTF8_BINARY"))


RULES: Mapping[type[exp.Expr], _Rule] = {
    exp.Literal: _rewrite_literal,
    exp.Div: _divide,
    exp.Sub: _subtract,
    exp.Ln: lambda node, kinds: _guard_logarithm(node.this, exp.Ln(this=node.this.copy())),
    exp.Round: _round,
    exp.Ceil: _round_to_double,
    exp.Floor: _round_to_double,
    exp.Avg: lambda node, kinds: exp.Avg(this=_double(node.this, kinds).copy()),
    # DuckDB returns a value that is not NULL if there is one; Spark may return NULL.
    exp.AnyValue: lambda node, kinds: exp.Max(this=node.this.copy()),
    exp.Cast: _rewrite_cast,
    exp.TryCast: _rewrite_cast,
    exp.Order: _order_nulls,
    exp.Window: _rewrite_window,
    exp.Filter: _rewrite_list,
    exp.ArrayAgg: _rewrite_list,
    exp.Join: _rewrite_join,
    exp.Select: _unnest_laterally,
    exp.GenerateSeries: _list_numbers,
    exp.With: _refuse_recursion,
    exp.CTE: _inline_cte,
    exp.ApproxDistinct: _count_approximately,
    exp.ToDays: lambda node, kinds: anonymous("MAKE_DT_INTERVAL", node.this.copy()),
    exp.Rand: lambda node, kinds: anonymous("RAND"),
    exp.Concat: _concatenate,
    exp.Collate: _collate,
}
"""Rewrites by type of node."""

FUNCTIONS: Mapping[str, _Rule] = {
    "GREATEST": lambda node, kinds: node,
    "LEAST": lambda node, kinds: node,
    "LOG2": _binary_logarithm,
    "RANDOM": _rename("RAND"),
    "HASH": _refuse_hash,
    "ISFINITE": _is_finite,
    "LEN": _rename("ARRAY_SIZE"),
    "LIST_TRANSFORM": _rename("TRANSFORM"),
    "LIST_SORT": _rename("ARRAY_SORT"),
    "LIST_EXTRACT": _rename("TRY_ELEMENT_AT"),
    "LIST_DISTINCT": _rename("ARRAY_COMPACT", "ARRAY_DISTINCT"),
    "FLATTEN": _rename("FLATTEN", "ARRAY_COMPACT"),
    "LIST_PREPEND": _prepend,
    "LIST_APPEND": _append,
    "LIST_REDUCE": _reduce,
    "LIST_SUM": _sum_list,
    "LIST_SLICE": _slice,
}
"""Rewrites by name of function."""
