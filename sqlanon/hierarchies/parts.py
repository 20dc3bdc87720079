"""The parts of a hierarchy that rules become, as SQL expressions over the values of a column; and kinds of column
types."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import TypeAlias

from sqlglot import exp
from sqlglot.errors import ParseError

from sqlanon.engines.values import canonical_value
from sqlanon.hierarchies.bounds import RangeKind
from sqlanon.support.expressions import as_column, col, fragment, ident, native_type, select, subquery, template

TOP = "*"
CAST_IT = "cast it in the source query, or declare its type if it is read from a file"


class RuleError(Exception):
    """A rule cannot be used on its column; the message says why."""


class ColumnKind(Enum):
    TEXT = "text"
    INTEGER = "integer"
    DECIMAL = "decimal"
    FLOATING = "floating"
    DATE = "date"
    ZONED = "zoned"
    OTHER = "other"


NANOSECONDS, ZONED_NANOSECONDS = "TIMESTAMP_NS", "TIMESTAMPTZ_NS"

_Type = exp.DataType.Type
_KINDS = {
    ColumnKind.TEXT: exp.DataType.TEXT_TYPES,
    ColumnKind.INTEGER: exp.DataType.INTEGER_TYPES - {_Type.BIT},
    ColumnKind.DECIMAL: {_Type.DECIMAL, _Type.DECIMAL32, _Type.DECIMAL64, _Type.DECIMAL128},
    ColumnKind.FLOATING: exp.DataType.FLOAT_TYPES,
    ColumnKind.ZONED: {_Type.TIMESTAMPTZ, _Type.TIMESTAMPLTZ},
    ColumnKind.DATE: exp.DataType.TEMPORAL_TYPES - {_Type.TIME, _Type.TIMETZ},
}
_HUGE = {_Type.INT128, _Type.UINT128, _Type.INT256, _Type.UINT256}
_NARROW = {_Type.TINYINT, _Type.SMALLINT, _Type.INT, _Type.UTINYINT, _Type.USMALLINT, _Type.UINT}


@lru_cache(maxsize=256)
def _parsed_type(text: str) -> exp.DataType:
    try:
        return exp.DataType.build(text, dialect="duckdb", udt=True)
    except ParseError:  # a type that no rule supports
        return native_type(text)


def column_kind(column_type: str) -> ColumnKind:
    """The kind of a column type.

    >>> column_kind("DECIMAL(18,3)"), column_kind("TIMESTAMP WITH TIME ZONE")
    (<ColumnKind.DECIMAL: 'decimal'>, <ColumnKind.ZONED: 'zoned'>)
    """
    if column_type == ZONED_NANOSECONDS:  # sqlglot does not know it
        return ColumnKind.ZONED
    type_ = _parsed_type(column_type).this
    return next((kind for kind, types in _KINDS.items() if type_ in types), ColumnKind.OTHER)


def is_narrow_integer(column_type: str) -> bool:
    """Whether a type is an integer of up to 32 bits.

    >>> is_narrow_integer("UINTEGER"), is_narrow_integer("BIGINT")
    (True, False)
    """
    return _parsed_type(column_type).this in _NARROW


def label_range_kind(column_type: str) -> RangeKind | None:
    """The kind of ranges that the labels of a column can be; None unless they are of numbers or dates.

    >>> [label_range_kind(name) for name in ("SMALLINT", "UBIGINT", "TIMESTAMP", "VARCHAR")]
    ['integer', 'number', 'date', None]
    """
    match column_kind(column_type):
        case ColumnKind.INTEGER:
            return "number" if _parsed_type(column_type).this in _HUGE | {_Type.UBIGINT} else "integer"
        case ColumnKind.DECIMAL | ColumnKind.FLOATING:
            return "number"
        case ColumnKind.DATE | ColumnKind.ZONED:
            return "date"
    return None


def decimal_size(column_type: str) -> tuple[int, int]:
    """Precision and scale of a DECIMAL type.

    >>> decimal_size("DECIMAL(10,2)")
    (10, 2)
    """
    sizes = [int(param.name) for param in _parsed_type(column_type).expressions]
    return (sizes[0], sizes[1] if len(sizes) > 1 else 0) if sizes else (18, 3)


def _exact_scale(column_type: str) -> int | None:
    """Number of decimals that a DECIMAL(38) can have in addition to all digits of an integer or decimal type, or
    None."""
    match column_kind(column_type):
        case ColumnKind.DECIMAL:
            precision, scale = decimal_size(column_type)
            return 38 - (precision - scale)
        case ColumnKind.INTEGER if _parsed_type(column_type).this not in _HUGE:
            return 12
    return None


@dataclass(frozen=True)
class LabelledQuery:
    """A query over a column's values, with expressions for their labels."""

    query: exp.Select  # one row per value, with a column ``value``
    labels: tuple[exp.Expr, ...]  # one for each level, finest first, over the query's columns; NULL for NULL
    known: exp.Expr | None = None  # whether a value has labels; None if all values have
    open_end: exp.Expr | None = None  # label of a value beyond an open end, or NULL; None without open ends


@dataclass(frozen=True)
class GeneratedLevels:
    """Levels that a rule computes from the values."""

    name: str  # the name of the rule, for messages
    levels: int  # number of levels, without a top
    extend: Callable[[exp.Select, str], LabelledQuery]  # adds labels to a query, with this prefix for new columns
    total: bool  # whether every value has labels
    top: bool = True  # ``*`` is always above computed levels


@dataclass(frozen=True)
class ListedLevels:
    """Levels that a file, a table or categories list by key."""

    name: str  # the name of the list, for messages
    levels: int  # number of used levels
    width: int  # number of listed levels
    query: exp.Select  # columns ``c0`` (the key) and ``c1`` .. ``c{width}``, all text
    top: bool  # whether ``*`` is above the used levels; otherwise the last of them is the top
    lines: int | None = None  # number of listed keys; None for a table, whose rows only the engine can count


Part: TypeAlias = GeneratedLevels | ListedLevels


def add_columns(query: exp.Select, columns: Mapping[str, exp.Expr]) -> exp.Select:
    """Add computed columns to a query: ``SELECT *, ... FROM (query)``."""
    return select([exp.Star(), *(as_column(value, name) for name, value in columns.items())], subquery(query, "v"))


@dataclass(frozen=True)
class HierarchyDraft:
    parts: tuple[Part, ...]  # from its rules, finest levels first
    values: exp.Table  # the column's values, NULL among them: columns ``value`` and ``rows``
    column_type: str
    nullable: bool = True  # whether its values may include NULL

    @property
    def height(self) -> int:
        return sum(part.levels for part in self.parts) + self.parts[-1].top

    @property
    def listed_parts(self) -> dict[int, ListedLevels]:
        return {index: part for index, part in enumerate(self.parts) if isinstance(part, ListedLevels)}

    @property
    def is_list(self) -> bool:
        """Whether its ground values are the listed keys instead of the column's values."""
        return len(self.parts) == 1 and isinstance(self.parts[0], ListedLevels)

    def with_keys(self, query: exp.Select, materialized: bool | None = None) -> exp.Select:
        """Add the keys of listed parts (see `keys_query`) to a query, as the CTEs named by `keys_table`."""
        for index, part in self.listed_parts.items():
            keys = keys_query(part.query, part.width, self.column_type)
            query = query.with_(keys_table(index).this, as_=keys, materialized=materialized, copy=False)
        return query


def keys_table(index: int) -> exp.Table:
    """The name of a CTE with the keys of a part, which differs from user tables."""
    return exp.Table(this=ident(f"keys of rule {index + 1}"))


_KEYS = template("SELECT c0 AS text, :key AS key, :levels FROM :listed AS k")


def keys_query(listed: exp.Select, width: int, column_type: str) -> exp.Select:
    """The listed keys with their labels.

    Columns: ``text`` (the key as listed), ``key`` (cast to the column's type; NULL if that fails), ``c1`` ..
    ``c{width}``.
    """
    levels = [col(f"c{level}") for level in range(1, width + 1)]
    return _KEYS(key=_cast_key(column_type), levels=levels, listed=listed)


def _cast_key(column_type: str) -> exp.Expr:
    """A listed key cast to the column's type; NULL if the cast fails or would round (1.5 to an integer)."""
    if column_kind(column_type) is ColumnKind.TEXT:
        return col("c0")
    key = canonical_value(try_cast(col("c0"), column_type), column_type)
    scale = _exact_scale(column_type)
    if_exact = fragment("CASE WHEN :exact = :key THEN :key END")
    return key if scale is None else if_exact(exact=try_cast(col("c0"), f"DECIMAL(38, {scale})"), key=key)


def try_cast(expression: exp.Expr, type_: str) -> exp.TryCast:
    """A cast to a type in the engine's spelling; NULL if it fails."""
    return exp.TryCast(this=expression, to=native_type(type_))
