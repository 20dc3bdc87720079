"""Intervals of growing width over numbers and dates, in exact arithmetic.

The value becomes a DECIMAL x. An interval of width w starts at ``x - ((x - origin) mod w)``: since widths are
multiples of each other and decimals are exact, each interval lies in one of the next level.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from decimal import Decimal

from sqlglot import exp

from sqlanon.hierarchies.labels import date_text, day
from sqlanon.hierarchies.parts import (
    CAST_IT,
    VALUE,
    ColumnKind,
    Flaw,
    Generated,
    Labelled,
    choose,
    column_kind,
    decimal_size,
    is_known,
    join_texts,
    pad,
    stage,
    to_type,
)
from sqlanon.policy.rules import IntervalsRule
from sqlanon.queries.names import col, number, text

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
    def exact(self) -> str:
        """The type that is computed with."""
        return f"DECIMAL(38, {self.computed})"

    @property
    def half_open(self) -> bool:
        """Whether labels are ``[20, 25)``; otherwise ``20-24``."""
        return self.kind is not ColumnKind.INTEGER

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


def intervals_part(rule: IntervalsRule, levels: int, column_type: str) -> Generated:
    """Make a level for each of the first widths.

    Raises
    ------
    Flaw
        The column has no order that intervals can be made of, or the numbers do not fit it.
    """
    kind = column_kind(column_type)
    if kind in (ColumnKind.TEXT, ColumnKind.OTHER):
        raise Flaw(f"intervals need a column of numbers or dates, not {column_type}: {CAST_IT}")
    make = _date_scale if kind in (ColumnKind.DATE, ColumnKind.ZONED) else _number_scale
    scale = make(rule, rule.widths[:levels], column_type)

    def extend(query: exp.Select, prefix: str) -> Labelled:
        return _extend(scale, query, prefix)

    return Generated("intervals", levels, extend, total=False)


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
    below, above = (
        Decimal((end - start).days) if isinstance(end, date) else None for end in (rule.below, rule.above)
    )
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
        # Two digits are kept free, so that no sum of these can overflow.
        if value.copy_abs() >= Decimal(10) ** (36 - scale.computed):
            raise Flaw(f"{name} is out of the range of a column of type {column_type}")
    return scale


def _extend(scale: Scale, query: exp.Select, prefix: str) -> Labelled:
    """Add the labels in stages: the value as x, x mod width, bounds, how long they are, labels."""
    x = f"{prefix}x"
    levels = range(len(scale.widths))
    query = stage(query, [(f"{prefix}number", _exact_number(scale))])
    query = stage(query, [(x, _within_range(scale, f"{prefix}number"))])
    query = stage(query, [(f"{prefix}rest_{i}", _rest(scale, x, scale.widths[i])) for i in levels])
    bounds = []
    for i in levels:
        start = _start(scale, x, f"{prefix}rest_{i}", scale.widths[i])
        bounds += [
            (f"{prefix}from_{i}", _shown(scale, start, exp.Greatest, scale.below)),
            (f"{prefix}to_{i}", _to(scale, start.copy(), scale.widths[i])),
        ]
    query = stage(query, bounds)
    if scale.start is None:
        query = stage(query, [(f"{prefix}digits_{i}", _digits(prefix, i)) for i in levels])
    labels = tuple(_label(scale, prefix, i) for i in levels)
    return Labelled(query, labels, is_known(col(x)))


def _exact_number(scale: Scale) -> exp.Expr:
    """Return the value as a DECIMAL, rounded down if need be; NULL for NaN, infinity and overflow."""
    value = col(VALUE)
    if scale.start is not None:
        value_day, start = day(scale.column_type), _date(scale.start)
        return to_type(exp.DateDiff(this=value_day, expression=start, unit=exp.Var(this="DAY")), scale.exact)
    if scale.kind is not ColumnKind.FLOATING:
        return to_type(value, scale.exact, attempt=True)
    # By the number's text, which is what people see: 0.7 is 0.7, not 0.699999988 or 0.69999999999999996.
    rounded = to_type(to_type(value, "VARCHAR"), scale.exact, attempt=True)
    # Only small numbers have more than 12 decimals in their text; they are rounded down.
    small = exp.LT(this=exp.Abs(this=value.copy()), expression=number(10_000))
    rounded_up = exp.GT(this=to_type(rounded.copy(), scale.column_type), expression=value.copy())
    unit = scale.literal(Decimal(1).scaleb(-scale.computed))
    down = exp.Sub(this=rounded.copy(), expression=unit)
    return choose([(exp.And(this=small, expression=rounded_up), down)], rounded)


def _within_range(scale: Scale, name: str) -> exp.Expr:
    """Return the number; NULL where arithmetic with it could overflow."""
    bound = 9 * Decimal(10) ** (37 - scale.computed)
    within = exp.Between(this=col(name), low=scale.literal(-bound), high=scale.literal(bound))
    return choose([(within, col(name))])


def _rest(scale: Scale, x: str, width: Decimal) -> exp.Expr:
    """Return (x - origin) % width, which has the sign of x - origin; NULL in an open end."""
    inside: list[exp.Expr] = []
    if scale.below is not None:
        inside.append(exp.GTE(this=col(x), expression=scale.literal(scale.below)))
    if scale.above is not None:
        inside.append(exp.LT(this=col(x), expression=scale.literal(scale.above)))
    distance: exp.Expr = col(x)
    if scale.origin:
        distance = exp.Paren(this=exp.Sub(this=distance, expression=scale.literal(scale.origin)))
    rest = exp.Mod(this=distance, expression=scale.literal(width))
    return choose([(exp.and_(*inside), rest)]) if inside else rest


def _start(scale: Scale, x: str, rest: str, width: Decimal) -> exp.Expr:
    """Return x - ((x - origin) mod width), where mod is never negative."""
    negative = exp.LT(this=col(rest), expression=number(0))
    wrapped = exp.Add(this=col(rest), expression=scale.literal(width))
    return exp.Sub(this=col(x), expression=choose([(negative, wrapped)], col(rest)))


def _to(scale: Scale, start: exp.Expr, width: Decimal) -> exp.Expr:
    """Return the upper bound: of integers the last one, otherwise the first number beyond."""
    step = 0 if scale.half_open else 1
    end = exp.Add(this=start, expression=scale.literal(_less(width, step)))
    return _shown(scale, end, exp.Least, None if scale.above is None else _less(scale.above, step))


def _less(value: Decimal, step: int) -> Decimal:
    """Return value - step, exactly: with a step, the value is a whole number."""
    return Decimal(int(value) - step) if step else value


def _shown(
    scale: Scale, bound: exp.Expr, clip: type[exp.Greatest | exp.Least], end: Decimal | None
) -> exp.Expr:
    """Return a bound, not beyond the open end, as labels show it."""
    if end is not None:
        # GREATEST and LEAST pass over NULL: a value in an open end must stay without bounds.
        clipped = clip(this=bound, expressions=[scale.literal(end)])
        bound = choose([(is_known(bound.copy()), clipped)])
    if scale.start is not None:
        return exp.Add(this=_date(scale.start), expression=to_type(bound, "INTEGER"))
    return to_type(bound, f"DECIMAL(38, {scale.shown})")


def _date(value: date) -> exp.Cast:
    return to_type(text(value.isoformat()), "DATE")


def _digits(prefix: str, level: int) -> exp.Expr:
    """Return the length of the level's longest bound, without sign."""
    lengths = [exp.Length(this=_unsigned(f"{prefix}{end}_{level}")) for end in ("from", "to")]
    longest = exp.Max(this=exp.Greatest(this=lengths[0], expressions=[lengths[1]]))
    return to_type(exp.Window(this=longest), "INTEGER")


def _unsigned(name: str) -> exp.Expr:
    return to_type(exp.Abs(this=col(name)), "VARCHAR")


def _label(scale: Scale, prefix: str, level: int) -> exp.Expr:
    ends = [_bound_text(scale, prefix, end, level) for end in ("from", "to")]
    if scale.half_open:
        label = join_texts([text("["), ends[0], text(", "), ends[1], text(")")])
    else:
        label = join_texts([ends[0], text("-"), ends[1]])
    cases: list[tuple[exp.Expr, exp.Expr]] = []
    for bound, outside, sign in ((scale.below, exp.LT, "<"), (scale.above, exp.GTE, "≥")):
        if bound is not None:
            condition = outside(this=col(f"{prefix}x"), expression=scale.literal(bound))
            cases.append((condition, _end(scale, sign, bound)))
    return choose(cases, label) if cases else label


def _bound_text(scale: Scale, prefix: str, end: str, level: int) -> exp.Expr:
    name = f"{prefix}{end}_{level}"
    if scale.start is not None:
        return date_text(col(name))
    negative = exp.LT(this=col(name), expression=number(0))
    sign = choose([(negative, text("-"))], text(""))
    return join_texts([sign, pad(_unsigned(name), col(f"{prefix}digits_{level}"), "0", left=True)])


def _end(scale: Scale, sign: str, bound: Decimal) -> exp.Literal:
    """Return the label of an open end, with the bound as the policy gives it."""
    if scale.start is not None:
        return text(f"{sign}{date.fromordinal(scale.start.toordinal() + int(bound)).isoformat()}")
    return text(f"{sign}{plain(bound)}")
