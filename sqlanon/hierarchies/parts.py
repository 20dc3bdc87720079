"""What a rule becomes: a part of a hierarchy, made of SQL expressions over the values of its column."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import TypeAlias

from sqlglot import exp
from sqlglot.errors import ParseError

from sqlanon.engines.values import one_form
from sqlanon.expressions import col, ident, is_null, named, native_type, number, select, subquery
from sqlanon.hierarchies.bounds import Kind

TOP = "*"
VALUE = "value"
CAST_IT = "cast it in the source query"


class Flaw(Exception):  # noqa: N818 - it ends as a Problem of a HierarchyError
    """Why a rule cannot be used on its column, in words for people."""


class ColumnKind(Enum):
    """The types of columns that rules tell apart."""

    TEXT = "text"
    INTEGER = "integer"
    DECIMAL = "decimal"
    FLOATING = "floating"
    DATE = "date"
    ZONED = "zoned"
    OTHER = "other"


_Type = exp.DataType.Type
_KINDS = {
    ColumnKind.TEXT: exp.DataType.TEXT_TYPES,
    ColumnKind.INTEGER: exp.DataType.INTEGER_TYPES - {_Type.BIT},
    ColumnKind.DECIMAL: {_Type.DECIMAL, _Type.DECIMAL32, _Type.DECIMAL64, _Type.DECIMAL128},
    ColumnKind.FLOATING: exp.DataType.FLOAT_TYPES,
    ColumnKind.ZONED: {_Type.TIMESTAMPTZ, _Type.TIMESTAMPLTZ},
    ColumnKind.DATE: exp.DataType.TEMPORAL_TYPES - {_Type.TIME, _Type.TIMETZ},
}
_WIDE = {_Type.UBIGINT, _Type.INT128, _Type.UINT128, _Type.INT256, _Type.UINT256}  # than BIGINT
_NARROW = {_Type.TINYINT, _Type.SMALLINT, _Type.INT, _Type.UTINYINT, _Type.USMALLINT, _Type.UINT}


@lru_cache(maxsize=256)
def _parsed_type(text: str) -> exp.DataType:
    try:
        return exp.DataType.build(text, dialect="duckdb", udt=True)
    except ParseError:  # a type that no rule needs to know
        return native_type(text)


def column_kind(column_type: str) -> ColumnKind:
    """Tell how rules see a column's type.

    >>> column_kind("DECIMAL(18,3)"), column_kind("TIMESTAMP WITH TIME ZONE")
    (<ColumnKind.DECIMAL: 'decimal'>, <ColumnKind.ZONED: 'zoned'>)
    """
    type_ = _parsed_type(column_type).this
    return next((kind for kind, types in _KINDS.items() if type_ in types), ColumnKind.OTHER)


def is_narrow_integer(column_type: str) -> bool:
    """Tell whether a type is an integer of up to 32 bits.

    >>> is_narrow_integer("UINTEGER"), is_narrow_integer("BIGINT")
    (True, False)
    """
    return _parsed_type(column_type).this in _NARROW


def bounds_kind(column_type: str) -> Kind | None:
    """Tell what the labels of a column are made of, as `hierarchies.bounds` asks; ``None``: of no numbers or dates.

    >>> bounds_kind("SMALLINT"), bounds_kind("UBIGINT"), bounds_kind("TIMESTAMP"), bounds_kind("VARCHAR")
    ('integer', 'number', 'date', None)
    """
    match column_kind(column_type):
        case ColumnKind.INTEGER:
            return "number" if _parsed_type(column_type).this in _WIDE else "integer"
        case ColumnKind.DECIMAL | ColumnKind.FLOATING:
            return "number"
        case ColumnKind.DATE | ColumnKind.ZONED:
            return "date"
    return None


def to_type(expression: exp.Expr, type_: str, attempt: bool = False) -> exp.Cast:
    """Cast to one of our own types; with ``attempt``, what cannot be cast becomes NULL."""
    return (exp.TryCast if attempt else exp.Cast)(this=expression, to=_parsed_type(type_).copy())


def choose(cases: Sequence[tuple[exp.Expr, exp.Expr]], default: exp.Expr | None = None) -> exp.Case:
    """``CASE WHEN condition THEN value ... [ELSE default] END``."""
    return exp.Case(ifs=[exp.If(this=when, true=then) for when, then in cases], default=default)


def is_known(expression: exp.Expr) -> exp.Not:
    """``NOT expression IS NULL``."""
    return ~is_null(expression)


def join_texts(parts: Sequence[exp.Expr]) -> exp.Expr:
    """Texts one after the other; NULL if one of them is NULL."""
    whole = parts[0]
    for part in parts[1:]:
        whole = exp.DPipe(this=whole, expression=part)
    return whole


def pad(text: exp.Expr, length: exp.Expr | int, fill: str, left: bool) -> exp.Pad:
    """Fill a text up to a length, on its left or its right."""
    size = number(length) if isinstance(length, int) else length
    return exp.Pad(this=text, expression=size, fill_pattern=exp.Literal.string(fill), is_left=left)


def stage(query: exp.Select, columns: Sequence[tuple[str, exp.Expr]]) -> exp.Select:
    """Add computed columns to a query: ``SELECT *, ... FROM (query)``."""
    return select([exp.Star(), *(named(value, name) for name, value in columns)], subquery(query, "v"))


@dataclass(frozen=True)
class Labelled:
    """A query over a column's values that has what labels are made from.

    Attributes
    ----------
    query:
        One row a value, with a column ``value``.
    labels:
        The label of each level, finest first, over the query's columns. NULL for NULL.
    known:
        The condition on a value of having labels; ``None`` where every value has.
    """

    query: exp.Select
    labels: tuple[exp.Expr, ...]
    known: exp.Expr | None = None


@dataclass(frozen=True)
class Generated:
    """Levels that a rule computes from the values.

    Attributes
    ----------
    what:
        The rule, in words for people.
    levels:
        How many levels it gives; a top is not counted.
    extend:
        Adds the labels to a query over values; its new columns begin with the prefix.
    total:
        Whether every value has labels.
    top:
        Whether ``*`` stands above the levels; for what is computed it always does.
    """

    what: str
    levels: int
    extend: Callable[[exp.Select, str], Labelled]
    total: bool
    top: bool = True


@dataclass(frozen=True)
class Listed:
    """Levels that a file, a table or categories list for their keys.

    Attributes
    ----------
    what:
        Where they are listed, in words for people.
    levels:
        How many levels are used.
    width:
        How many levels are listed.
    query:
        Columns ``c0`` (the key) and ``c1`` .. ``c{width}``, all text.
    top:
        Whether ``*`` stands above the used levels; otherwise the last of them is the top.
    lines:
        How many keys are listed; ``None`` where only the engine knows (a table).
    """

    what: str
    levels: int
    width: int
    query: exp.Select
    top: bool
    lines: int | None = None


Part: TypeAlias = Generated | Listed


@dataclass(frozen=True)
class Draft:
    """A hierarchy that is not validated yet.

    Attributes
    ----------
    parts:
        What its rules became, finest levels first.
    values:
        The column's values, NULL among them: columns ``value`` and ``rows``.
    column_type:
        The type of the column.
    nullable:
        Whether there may be a NULL among its values.
    """

    parts: tuple[Part, ...]
    values: exp.Table
    column_type: str
    nullable: bool = True

    @property
    def height(self) -> int:
        """The top level."""
        return sum(part.levels for part in self.parts) + self.parts[-1].top

    @property
    def listed(self) -> dict[int, Listed]:
        """The listed parts by their index."""
        return {index: part for index, part in enumerate(self.parts) if isinstance(part, Listed)}


def keys_name(index: int) -> str:
    """Return the name of the common table expression with a part's keys: one that no table of a user has."""
    return f"keys of rule {index + 1}"


def keys_table(index: int) -> exp.Table:
    """Return the table of that name."""
    return exp.Table(this=ident(keys_name(index)))


def keys_query(part: Listed, column_type: str) -> exp.Select:
    """Return the keys of a listed part with their labels.

    Makes the columns ``text`` (the key as it is listed), ``key`` (cast to the column's type; NULL where that
    fails), ``c1`` .. ``c{width}``.
    """
    levels = [col(f"c{level}") for level in range(1, part.width + 1)]
    key = named(cast_key(col("c0"), column_type), "key")
    return select([named(col("c0"), "text"), key, *levels], subquery(part.query.copy(), "k"))


def cast_key(text: exp.Expr, column_type: str) -> exp.Expr:
    """Cast a listed key to the column's type; NULL where that fails or would round it (1.5 to an integer)."""
    kind = column_kind(column_type)
    if kind is ColumnKind.TEXT:
        return text
    key = one_form(exp.TryCast(this=text, to=native_type(column_type)), column_type)
    scale = _exact_scale(kind, column_type)
    if scale is None:
        return key
    exact = to_type(text.copy(), f"DECIMAL(38, {scale})", attempt=True)
    return choose([(exact.eq(key), key)])


def _exact_scale(kind: ColumnKind, column_type: str) -> int | None:
    """Return the decimals that fit beside all digits of an integer or decimal type."""
    if kind is ColumnKind.DECIMAL:
        precision, scale = decimal_size(column_type)
        return 38 - (precision - scale)
    wide = {_Type.INT128, _Type.UINT128, _Type.INT256, _Type.UINT256}
    return 12 if kind is ColumnKind.INTEGER and _parsed_type(column_type).this not in wide else None


def decimal_size(column_type: str) -> tuple[int, int]:
    """Return precision and scale of a DECIMAL type.

    >>> decimal_size("DECIMAL(10,2)")
    (10, 2)
    """
    sizes = [int(param.name) for param in _parsed_type(column_type).expressions]
    return (sizes[0], sizes[1] if len(sizes) > 1 else 0) if sizes else (18, 3)
