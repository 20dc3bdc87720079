"""A column that gets noise: what its values are as numbers, what there is room for, and its type in the release."""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal

from sqlglot import exp

from sqlanon.expressions import all_of, anonymous, cast, is_there, number

LARGEST = 1e100
"""Greater magnitudes are no measurements, and their ranges would overflow."""

_DATE = "DATE"
_WHOLE = {
    **dict.fromkeys(("TINYINT", "SMALLINT", "INTEGER", "UTINYINT", "USMALLINT"), "INTEGER"),
    **dict.fromkeys(("BIGINT", "UINTEGER"), "BIGINT"),
    **dict.fromkeys(("UBIGINT", "HUGEINT", "UHUGEINT", "BIGNUM"), "DECIMAL(38,0)"),
}
_FLOATING = ("FLOAT", "DOUBLE")
_LIMITS = {"INTEGER": (-(2.0**31), 2.0**31 - 1), "BIGINT": (-(2.0**62), 2.0**62), "DATE": (-719162.0, 2932896.0)}
"""What a type holds, as far as noise may go: dates from year 1 to 9999, which all readers know."""


@dataclass(frozen=True)
class NoisyColumn:
    """A column that gets noise.

    Attributes
    ----------
    name, type:
        In the source.
    place:
        Its number among the released columns: the recoding's rows have it as ``value_place``.
    epsilon:
        Its ε.
    round:
        The policy's granularity.
    bounds:
        The policy's bounds, as numbers (days).
    """

    name: str
    type: str
    place: int
    epsilon: float
    round: Decimal | None = None
    bounds: tuple[float, float] | None = None

    @property
    def is_date(self) -> bool:
        """Whether its values are dates."""
        return self.type == _DATE

    @property
    def unit(self) -> Decimal | None:
        """Released values are multiples of it; None where they are multiples of a power of two."""
        return unit_of(self.type) if self.round is None else self.round

    @property
    def released_type(self) -> str:
        """Its type in the release, in which values with noise have room."""
        found = re.fullmatch(r"DECIMAL\((\d+),\s*(\d+)\)", self.type)
        if found:
            return f"DECIMAL({min(38, max(18, int(found[1]) + 6))},{found[2]})"
        return _WHOLE.get(self.type, _DATE if self.type == _DATE else "DOUBLE")

    @property
    def held(self) -> tuple[float, float]:
        """The least and the greatest value that there is room for in the release."""
        found = re.fullmatch(r"DECIMAL\((\d+),(\d+)\)", self.released_type)
        if found is None:
            return _LIMITS.get(self.released_type, (-LARGEST, LARGEST))
        room = 10.0 ** (int(found[1]) - int(found[2]) - 1)
        return -room, room

    @property
    def limits(self) -> tuple[float, float]:
        """The least and the greatest value that is released: the policy's bounds, and what there is room for."""
        low, high = self.held
        return (low, high) if self.bounds is None else (max(self.bounds[0], low), min(self.bounds[1], high))


def can_be_noisy(type_: str) -> bool:
    """Whether noise can be added to values of a type: numbers and dates."""
    return type_ in (*_WHOLE, *_FLOATING, _DATE) or type_.startswith("DECIMAL(")


def unit_of(type_: str) -> Decimal | None:
    """What all values of a type are multiples of; None where there is nothing of the kind."""
    found = re.fullmatch(r"DECIMAL\(\d+,\s*(\d+)\)", type_)
    return Decimal(1).scaleb(-int(found[1])) if found else None if type_ in _FLOATING else Decimal(1)


def as_number(value: exp.Expr, type_: str) -> exp.Expr:
    """A value as a DOUBLE; of a date the days since 1970-01-01."""
    if type_ == _DATE:
        epoch = cast(exp.Literal.string("1970-01-01"), _DATE)
        value = exp.Paren(this=value - epoch)
    return cast(value, "DOUBLE")


def usable(value: exp.Expr, column: NoisyColumn) -> exp.Expr:
    """Whether noise can be added to a value: it is there, and a number that there is room for."""
    conditions: list[exp.Expr] = [is_there(value)]
    if column.is_date:
        conditions.append(anonymous("ISFINITE", value.copy()))
    low, high = (number(limit) for limit in column.held)
    room = exp.Between(this=as_number(value.copy(), column.type), low=low, high=high)  # NaN is not
    return all_of([*conditions, exp.Paren(this=room)])


def is_zero(x: exp.Expr) -> exp.Expr:
    """Whether a value is 0, or so near to it that to be off by something has no meaning in shares of it."""
    return exp.Abs(this=x) < number(1 / LARGEST)


def typed(value: exp.Expr, column: NoisyColumn) -> exp.Expr:
    """A number as a value of the released column."""
    if column.type != _DATE:
        return cast(value, column.released_type)
    epoch = cast(exp.Literal.string("1970-01-01"), _DATE)
    return cast(exp.Paren(this=epoch + cast(value, "INTEGER")), _DATE)
