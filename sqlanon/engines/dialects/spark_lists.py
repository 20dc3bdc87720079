"""Lists in Spark: with the NULLs, the order and the ends that DuckDB's have."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from sqlglot import exp

from sqlanon.engines.dialects.kinds import Kinds
from sqlanon.engines.dialects.spark_casts import cast_there
from sqlanon.errors import UntranslatableError
from sqlanon.expressions import anonymous, ident, is_null, number


def listed(node: exp.Expr, kinds: Kinds) -> exp.Expr:
    """A list, unless a filter or a window is around it: then it is made with that."""
    outer = isinstance(node.parent, (exp.Filter, exp.Window)) and node.arg_key == "this"
    return node if outer else list_of(node) or node


def list_of(node: exp.Expr) -> exp.Expr | None:
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
    """The filter and the window of a list, around another aggregate."""
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
        raise UntranslatableError(f"{aggregate.sql('duckdb')} cannot be put in the dialect of spark: its order")
    down = True in descending
    keys: list[exp.Expr] = []
    for i, term in enumerate(order):
        last = exp.Not(this=is_null(term.this.copy())) if down else is_null(term.this.copy())
        keys += [_field(f"last_{i}", last), _field(f"key_{i}", term.this.copy())]
    return keys, down


def _field(name: str, value: exp.Expr) -> exp.PropertyEQ:
    return exp.PropertyEQ(this=ident(name), expression=value)


def filtered(node: exp.Expr, kinds: Kinds) -> exp.Expr:
    """A list of some rows, unless a window is around it."""
    outer = isinstance(node.parent, exp.Window) and node.arg_key == "this"
    return node if outer else list_of(node) or node


def _prepended(node: exp.Expr, kinds: Kinds) -> exp.Expr:
    element, list_ = node.expressions
    return anonymous("CONCAT", exp.Array(expressions=[element.copy()]), *_pieces(list_))


def _appended(node: exp.Expr, kinds: Kinds) -> exp.Expr:
    list_, element = node.expressions
    return anonymous("CONCAT", *_pieces(list_), exp.Array(expressions=[element.copy()]))


def _pieces(list_: exp.Expr) -> list[exp.Expr]:
    """The lists that a list is put together from; where it is NULL, an empty one."""
    if _is_concat(list_):
        return [one.copy() for one in list_.expressions]
    return [exp.Coalesce(this=list_.copy(), expressions=[exp.Array(expressions=[])])]


def _is_concat(list_: exp.Expr) -> bool:
    return isinstance(list_, exp.Anonymous) and list_.name == "CONCAT"


def _reduced(node: exp.Expr, kinds: Kinds) -> exp.Expr:
    """From the first element on, which here has to be given."""
    list_, step = node.expressions
    if not (_is_concat(list_) and isinstance(first := list_.expressions[0], exp.Array)):
        raise UntranslatableError(f"{node.sql('duckdb')}: only of a list that begins with LIST_PREPEND in Spark")
    others = [one.copy() for one in list_.expressions[1:]]
    return anonymous("AGGREGATE", anonymous("CONCAT", *others), first.expressions[0].copy(), step.copy())


def _summed(node: exp.Expr, kinds: Kinds) -> exp.Expr:
    """As DOUBLE; NULL is passed over, and is the sum of nothing."""
    so_far, one = (exp.Var(this=name) for name in ("so_far", "one"))
    added = exp.Add(this=so_far, expression=cast_there(one, "DOUBLE"))
    either = exp.Coalesce(this=added, expressions=[so_far.copy(), cast_there(one.copy(), "DOUBLE")])
    add = exp.Lambda(this=either, expressions=[exp.Identifier(this="so_far"), exp.Identifier(this="one")])
    return anonymous("AGGREGATE", node.expressions[0].copy(), cast_there(exp.null(), "DOUBLE"), add)


def _sliced(node: exp.Expr, kinds: Kinds) -> exp.Expr:
    """From a place to a place, from 1 on; here a place and a length."""
    list_, first, last = (one.copy() for one in node.expressions)
    length = exp.Add(
        this=exp.Sub(this=exp.Paren(this=last), expression=exp.Paren(this=first.copy())), expression=number(1)
    )
    return anonymous("SLICE", list_, first, anonymous("GREATEST", length, number(0)))


def _flat(node: exp.Expr, kinds: Kinds) -> exp.Expr:
    return anonymous("FLATTEN", anonymous("ARRAY_COMPACT", node.expressions[0].copy()))


def _distinct(node: exp.Expr, kinds: Kinds) -> exp.Expr:
    return anonymous("ARRAY_COMPACT", anonymous("ARRAY_DISTINCT", node.expressions[0].copy()))


def called(name: str) -> Callable[[exp.Expr, Kinds], exp.Expr]:
    """The same function by another name."""

    def rule(node: exp.Expr, kinds: Kinds) -> exp.Expr:
        return anonymous(name, *(one.copy() for one in node.expressions))

    return rule


LIST_FUNCTIONS: Mapping[str, Callable[[exp.Expr, Kinds], exp.Expr]] = {
    "LEN": called("ARRAY_SIZE"),
    "LIST_TRANSFORM": called("TRANSFORM"),
    "LIST_SORT": called("ARRAY_SORT"),
    "LIST_EXTRACT": called("TRY_ELEMENT_AT"),
    "LIST_DISTINCT": _distinct,
    "LIST_PREPEND": _prepended,
    "LIST_APPEND": _appended,
    "LIST_REDUCE": _reduced,
    "LIST_SUM": _summed,
    "LIST_SLICE": _sliced,
    "FLATTEN": _flat,
}
"""By the name of the function, how it is written for Spark."""
