"""Intervals of growing width over numbers and dates, in exact arithmetic.

The value becomes an integer or a DECIMAL x. An interval of width w starts at ``x - ((x - origin) mod w)``. Since
widths are multiples of each other and the arithmetic is exact, each interval lies in one of the next level.
"""

from __future__ import annotations

from datetime import date
from decimal import Decimal

from sqlglot import exp

from sqlanon.expressions import cast, col, text
from sqlanon.hierarchies.labels import date_text, day
from sqlanon.hierarchies.parts import (
    VALUE,
    ColumnKind,
    Generated,
    Labelled,
    choose,
    is_known,
    join_texts,
    pad,
    stage,
    to_type,
)
from sqlanon.hierarchies.scales import Scale, scale_of
from sqlanon.policy.rules import IntervalsRule


def intervals_part(rule: IntervalsRule, levels: int, column_type: str) -> Generated:
    """Make a level for each of the first widths."""
    scale = scale_of(rule, levels, column_type)

    def extend(query: exp.Select, prefix: str) -> Labelled:
        return _extend(scale, query, prefix)

    return Generated("intervals", levels, extend, total=False)


def _extend(scale: Scale, query: exp.Select, prefix: str) -> Labelled:
    """Add the labels in stages: the value as x, starts of intervals, their bounds, and how long those are."""
    levels = range(len(scale.widths))
    x = inside = f"{prefix}x"
    if scale.narrow:
        query = stage(query, [(x, _exact_number(scale))])
    else:
        query = stage(query, [(f"{prefix}number", _exact_number(scale))])
        query = stage(query, [(x, _within_range(scale, f"{prefix}number"))])
    if scale.below is not None or scale.above is not None:
        inside = f"{prefix}inside"
        query = stage(query, [(inside, _inside(scale, x))])
    query = stage(query, [(f"{prefix}start_{i}", _start(scale, inside, scale.widths[i])) for i in levels])
    bounds = []
    for i in levels:
        bounds += [
            (f"{prefix}from_{i}", _from(scale, f"{prefix}start_{i}")),
            (f"{prefix}to_{i}", _to(scale, f"{prefix}start_{i}", scale.widths[i])),
        ]
    query = stage(query, bounds)
    if scale.start is None:
        query = stage(query, [(f"{prefix}digits_{i}", _digits(prefix, i)) for i in levels])
    labels = tuple(_label(scale, prefix, i) for i in levels)
    return Labelled(query, labels, is_known(col(x)))


def _exact_number(scale: Scale) -> exp.Expr:
    """Return the value as an exact number, rounded down if need be; NULL for NaN, infinity and overflow."""
    value = col(VALUE)
    if scale.start is not None:
        value_day, start = day(scale.column_type), _date(scale.start)
        return to_type(exp.DateDiff(this=value_day, expression=start, unit=exp.Var(this="DAY")), scale.exact)
    if scale.kind is not ColumnKind.FLOATING:
        return to_type(value, scale.exact, attempt=True)
    # By the number's text, which is what people see: 0.7 is 0.7, not 0.699999988 or 0.69999999999999996.
    rounded = to_type(to_type(value, "VARCHAR"), scale.exact, attempt=True)
    # Only small numbers have more than 12 decimals in their text; they are rounded down.
    small = exp.Abs(this=value.copy()) < 10_000
    rounded_up = cast(rounded.copy(), scale.column_type) > value
    unit = scale.literal(Decimal(1).scaleb(-scale.computed))
    down = rounded - unit
    return choose([(small & rounded_up, down)], rounded)


def _within_range(scale: Scale, x: str) -> exp.Expr:
    """Return x; NULL where arithmetic with it could overflow."""
    bound = 9 * Decimal(10) ** (37 - scale.computed)
    within = exp.Between(this=col(x), low=scale.literal(-bound), high=scale.literal(bound))
    return choose([(within, col(x))])


def _inside(scale: Scale, x: str) -> exp.Expr:
    """Return x; NULL in an open end."""
    conditions: list[exp.Expr] = []
    if scale.below is not None:
        conditions.append(col(x) >= scale.literal(scale.below))
    if scale.above is not None:
        conditions.append(col(x) < scale.literal(scale.above))
    return choose([(exp.and_(*conditions), col(x))])


def _start(scale: Scale, x: str, width: Decimal) -> exp.Expr:
    """Return x - ((x - origin) mod width). SQL's % has the sign of its dividend: hence twice."""
    distance: exp.Expr = col(x)
    if scale.origin:
        distance = exp.Paren(this=distance - scale.literal(scale.origin))
    size = scale.literal(width)
    rest = exp.Mod(this=distance, expression=size) + size
    return col(x) - exp.Mod(this=exp.Paren(this=rest), expression=size.copy())


def _from(scale: Scale, start: str) -> exp.Expr:
    """Return the lower bound, not below the open end."""
    bound: exp.Expr = col(start)
    if scale.below is not None:
        end = scale.literal(scale.below)
        bound = choose([(col(start) < end, end.copy())], bound)
    return _shown(scale, bound)


def _to(scale: Scale, start: str, width: Decimal) -> exp.Expr:
    """Return the upper bound, not above the open end: the last integer, or else the first number beyond."""
    step = 0 if scale.half_open else 1
    bound: exp.Expr = col(start) + scale.literal(_less(width, step))
    if scale.above is not None:
        end = scale.literal(_less(scale.above, step))
        bound = choose([(bound > end, end.copy())], bound.copy())
    return _shown(scale, bound)


def _less(value: Decimal, step: int) -> Decimal:
    """Return value - step, exactly: with a step, the value is a whole number."""
    return Decimal(int(value) - step) if step else value


def _shown(scale: Scale, bound: exp.Expr) -> exp.Expr:
    """Return a bound as a date, or a number with the decimals that labels show."""
    if scale.start is not None:
        return _date(scale.start) + to_type(bound, "INTEGER")
    return bound if scale.shown == scale.computed else to_type(bound, f"DECIMAL(38, {scale.shown})")


def _date(value: date) -> exp.Cast:
    return to_type(text(value.isoformat()), "DATE")


def _digits(prefix: str, level: int) -> exp.Expr:
    """Return the length of the level's longest bound, without sign."""
    ends = [exp.Abs(this=col(f"{prefix}{end}_{level}")) for end in ("from", "to")]
    larger = choose([(ends[0] > ends[1], ends[0].copy())], ends[1].copy())
    longest = exp.Length(this=to_type(exp.Window(this=exp.Max(this=larger)), "VARCHAR"))
    return to_type(longest, "INTEGER")


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
            cases.append((condition, text(f"{sign}{scale.end_text(bound)}")))
    return choose(cases, label) if cases else label


def _bound_text(scale: Scale, prefix: str, end: str, level: int) -> exp.Expr:
    bound = col(f"{prefix}{end}_{level}")
    if scale.start is not None:
        return date_text(bound)
    digits = to_type(exp.Abs(this=bound), "VARCHAR")
    padded = pad(digits, col(f"{prefix}digits_{level}"), "0", left=True)
    negative = bound < 0
    return join_texts([choose([(negative, text("-"))], text("")), padded])
