"""The numbers that intervals are made of, checked against their column."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal

from sqlglot import exp

from sqlanon.hierarchies.parts import CAST_IT, ColumnKind, Flaw, column_kind, decimal_size, is_narrow_integer, to_type
from sqlanon.policy.rules import IntervalsRule

_EPOCH = date(1970, 1, 1)
_FLOATING_SCALE = 12
_LONGEST_DAYS = 3_652_059  # 9,999 years


@dataclass(frozen=True)
class Scale:
    """The numbers that intervals are made of, checked against their column.

    Attributes
    ----------
    widths, origin, below, above:
        As in the rule; for dates, days since ``start``.
    column_type:
        The type of the column.
    start:
        The date from which days are counted; ``None`` for numbers.
    """

    widths: tuple[Decimal, ...]
    origin: Decimal
    below: Decimal | None
    above: Decimal | None
    column_type: str
    start: date | None = None

    @property
    def kind(self) -> ColumnKind:
        """What kind of column it is."""
        return column_kind(self.column_type)

    @property
    def shown(self) -> int:
        """The decimals that labels show."""
        bounds = (self.origin, self.below, self.above, *self.widths)
        return max(decimals(bound) for bound in bounds if bound is not None)

    @property
    def computed(self) -> int:
        """The decimals that are computed with."""
        if self.kind is ColumnKind.DECIMAL:
            return max(self.shown, decimal_size(self.column_type)[1])
        return max(self.shown, _FLOATING_SCALE) if self.kind is ColumnKind.FLOATING else 0

    @property
    def narrow(self) -> bool:
        """Whether 64 bits hold all that is computed: for days, and integers of up to 32 bits. It is faster."""
        return self.start is not None or is_narrow_integer(self.column_type)

    @property
    def exact(self) -> str:
        """The type that is computed with."""
        return "BIGINT" if self.narrow else f"DECIMAL(38, {self.computed})"

    @property
    def limit(self) -> Decimal:
        """What widths and bounds must stay below, so that no sum of them and a value can overflow."""
        return Decimal(10) ** (15 if self.narrow else 36 - self.computed)

    @property
    def half_open(self) -> bool:
        """Whether labels are ``[20, 25)``; otherwise ``20-24``."""
        return self.kind is not ColumnKind.INTEGER

    def end_text(self, bound: Decimal) -> str:
        """Write an open end's bound as the policy gives it."""
        return plain(bound) if self.start is None else (self.start + timedelta(days=int(bound))).isoformat()

    def literal(self, value: Decimal) -> exp.Cast:
        """Return a number in the type that is computed with."""
        return to_type(exp.Literal.number(f"{value:f}"), self.exact)


def decimals(value: Decimal) -> int:
    """Return how many decimals a number needs.

    >>> decimals(Decimal("2.50")), decimals(Decimal("100"))
    (1, 0)
    """
    return len(plain(value).partition(".")[2])


def plain(value: Decimal) -> str:
    """Write a number with no more digits than it needs. (Arithmetic on Decimal would round long ones.)

    >>> plain(Decimal("2.50")), plain(Decimal("1E+2")), plain(Decimal("-0"))
    ('2.5', '100', '0')
    """
    digits = f"{value:f}"
    digits = digits.rstrip("0").rstrip(".") if "." in digits else digits
    return "0" if digits == "-0" else digits


def scale_of(rule: IntervalsRule, levels: int, column_type: str) -> Scale:
    """Return the numbers of a rule's first levels."""
    kind = column_kind(column_type)
    if kind in (ColumnKind.TEXT, ColumnKind.OTHER):
        raise Flaw(f"intervals need a column of numbers or dates, not {column_type}: {CAST_IT}")
    make = _date_scale if kind in (ColumnKind.DATE, ColumnKind.ZONED) else _number_scale
    return make(rule, rule.widths[:levels], column_type)


def _date_scale(rule: IntervalsRule, widths: tuple[Decimal, ...], column_type: str) -> Scale:
    start = rule.origin if isinstance(rule.origin, date) else _EPOCH
    origin = None if rule.origin == 0 else rule.origin
    for name, bound in {"origin": origin, "below": rule.below, "above": rule.above}.items():
        if isinstance(bound, Decimal):
            raise Flaw(f"{name} must be a date, such as 1980-01-01: the column is of type {column_type}")
    if any(decimals(width) for width in widths):
        raise Flaw(f"widths must be whole days: the column is of type {column_type}")
    if max(widths) > _LONGEST_DAYS:
        raise Flaw(f"widths for dates are days, at most {_LONGEST_DAYS:,}")
    below, above = (Decimal((end - start).days) if isinstance(end, date) else None for end in (rule.below, rule.above))
    return Scale(widths, Decimal(0), below, above, column_type, start)


def _number_scale(rule: IntervalsRule, widths: tuple[Decimal, ...], column_type: str) -> Scale:
    numbers: dict[str, Decimal] = {f"width {width}": width for width in widths}
    for name, bound in {"origin": rule.origin, "below": rule.below, "above": rule.above}.items():
        if isinstance(bound, date):
            raise Flaw(f"{name} is a date, but the column is of type {column_type}: give a number")
        if bound is not None:
            numbers[name] = bound
    scale = Scale(widths, numbers["origin"], numbers.get("below"), numbers.get("above"), column_type)
    for name, value in numbers.items():
        if scale.kind is ColumnKind.INTEGER and decimals(value):
            raise Flaw(f"{name} must be a whole number: the column is of type {column_type}")
        if value.copy_abs() >= scale.limit:
            raise Flaw(f"{name} is out of the range of a column of type {column_type}")
    return scale
