"""Labels computed from the values: masks, calendar levels, and intervals of growing width.

Intervals are exact: the value becomes an integer or a DECIMAL x, and an interval of width w starts at
``x - ((x - origin) mod w)``. Since widths are multiples of each other and the arithmetic is exact, each interval lies
in one interval of the next level.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal

from sqlglot import exp

from sqlanon.hierarchies.partial_dates import partial_dates_part
from sqlanon.hierarchies.parts import (
    CAST_IT,
    NANOSECONDS,
    ZONED_NANOSECONDS,
    ColumnKind,
    GeneratedLevels,
    LabelledQuery,
    RuleError,
    add_columns,
    column_kind,
    decimal_size,
    is_narrow_integer,
    try_cast,
)
from sqlanon.policy.rules import IntervalsRule
from sqlanon.support.expressions import all_of, anonymous, cast, col, fragment, is_not_null, template, text

_MAX_MASK_LEVELS = 1000

longest_text = template("SELECT max(length(value::VARCHAR)) FROM :values")
"""One row: the length of a column's longest text, or NULL."""

_MASKS = {
    "right": fragment("rpad(left(value::VARCHAR, :visible), :longest, '*')"),
    # Shorter texts are padded first.
    "left": fragment("lpad(right(lpad(value::VARCHAR, :longest, '*'), :visible), :longest, '*')"),
}


def mask_part(side: str, levels: int, longest: int) -> GeneratedLevels:
    """Mask characters from one side: the label of level j keeps ``longest - j`` of them."""
    if levels > _MAX_MASK_LEVELS:
        raise RuleError(f"the longest text has {longest} characters: give a number of levels, as in levels = 5")

    def extend(query: exp.Select, _: str) -> LabelledQuery:
        return LabelledQuery(
            query, tuple(_MASKS[side](visible=longest - j, longest=longest) for j in range(1, levels + 1))
        )

    return GeneratedLevels("mask", levels, extend, total=True)


def calendar_day(column_type: str) -> exp.Expr:
    """The day of a date or timestamp, in UTC if it has a time zone; NULL outside years 1 to 9999."""
    value: exp.Expr = col("value")
    if column_type in (NANOSECONDS, ZONED_NANOSECONDS):
        # A cast would round the last nanoseconds of a day to the next one.
        value = fragment("make_timestamp((epoch_ns(:value) - (epoch_ns(:value) % 1000 + 1000) % 1000) // 1000)")(
            value=value
        )
    elif column_kind(column_type) is ColumnKind.ZONED:
        # AT TIME ZONE needs an extension; these two do not.
        value = anonymous("MAKE_TIMESTAMP", anonymous("EPOCH_US", value))
    # This excludes infinite dates, too.
    return fragment("CASE WHEN :date BETWEEN '0001-01-01'::DATE AND '9999-12-31'::DATE THEN :date END")(
        date=fragment(":value::DATE")(value=value)
    )


_CALENDAR = {
    "day": fragment("strftime(:day, '%Y-%m-%d')"),
    "week": fragment("strftime(:day, '%G-W%V')"),
    "month": fragment("strftime(:day, '%Y-%m')"),
    "year": fragment("strftime(:day, '%Y')"),
    "decade": fragment("left(strftime(:day, '%Y'), 3) || '0s'"),
}
_QUARTER = fragment("strftime(:day, '%Y') || '-Q' || :quarter::VARCHAR")


def dates_part(granularities: tuple[str, ...], column_type: str) -> GeneratedLevels:
    """A calendar level for each granularity: ``1980-W01`` (ISO year), ``1980-Q1``, ``1980s``, .... For columns of
    texts, see `partial_dates`."""
    if column_kind(column_type) is ColumnKind.TEXT:
        return partial_dates_part(granularities)
    if column_kind(column_type) not in (ColumnKind.DATE, ColumnKind.ZONED):
        raise RuleError(f"dates need a column of dates or timestamps, not {column_type}: {CAST_IT}")

    def extend(query: exp.Select, prefix: str) -> LabelledQuery:
        day = col(f"{prefix}day")
        labels = tuple(_calendar(granularity, day) for granularity in granularities)
        return LabelledQuery(add_columns(query, {day.name: calendar_day(column_type)}), labels, is_not_null(day))

    return GeneratedLevels("dates", len(granularities), extend, total=False)


def _calendar(granularity: str, day: exp.Column) -> exp.Expr:
    if granularity != "quarter":
        return _CALENDAR[granularity](day=day)
    return _QUARTER(day=day, quarter=exp.Extract(this=exp.Var(this="QUARTER"), expression=day.copy()))


_EPOCH = date(1970, 1, 1)
_FLOATING_SCALE = 12
_MAX_DAYS = 3_652_059  # 9,999 years


@dataclass(frozen=True)
class _Scale:
    """The numbers of an intervals rule, checked against the column; for dates, days since ``start``."""

    widths: tuple[Decimal, ...]
    origin: Decimal
    below: Decimal | None
    above: Decimal | None
    column_type: str
    start: date | None = None  # the date of day 0; None for numbers

    @property
    def kind(self) -> ColumnKind:
        return column_kind(self.column_type)

    @property
    def label_decimals(self) -> int:
        bounds = (self.origin, self.below, self.above, *self.widths)
        return max(_decimals(bound) for bound in bounds if bound is not None)

    @property
    def decimals(self) -> int:
        if self.kind is ColumnKind.DECIMAL:
            return max(self.label_decimals, decimal_size(self.column_type)[1])
        return max(self.label_decimals, _FLOATING_SCALE) if self.kind is ColumnKind.FLOATING else 0

    @property
    def is_narrow(self) -> bool:
        """Whether 64 bits suffice for all computations, which is faster: for days, and integers of up to 32 bits."""
        return self.start is not None or is_narrow_integer(self.column_type)

    @property
    def exact_type(self) -> str:
        return "BIGINT" if self.is_narrow else f"DECIMAL(38, {self.decimals})"

    @property
    def limit(self) -> Decimal:
        """The limit of widths and bounds, below which no sum with a value overflows."""
        return Decimal(10) ** (15 if self.is_narrow else 36 - self.decimals)

    @property
    def is_half_open(self) -> bool:
        """Whether labels have the form ``[20, 25)``; otherwise ``20-24``."""
        return self.kind is not ColumnKind.INTEGER

    def end_text(self, bound: Decimal) -> str:
        """The bound of an open end, as in the policy."""
        return _plain(bound) if self.start is None else (self.start + timedelta(days=int(bound))).isoformat()

    def literal(self, value: Decimal) -> exp.Cast:
        return cast(exp.Literal.number(f"{value:f}"), self.exact_type)


def _decimals(value: Decimal) -> int:
    """The number of decimals that a number needs.

    >>> _decimals(Decimal("2.50")), _decimals(Decimal("100"))
    (1, 0)
    """
    return len(_plain(value).partition(".")[2])


def _plain(value: Decimal) -> str:
    """A number without superfluous zeros. (Arithmetic on Decimal would round long numbers.)

    >>> _plain(Decimal("2.50")), _plain(Decimal("1E+2")), _plain(Decimal("-0"))
    ('2.5', '100', '0')
    """
    digits = f"{value:f}"
    digits = digits.rstrip("0").rstrip(".") if "." in digits else digits
    return "0" if digits == "-0" else digits


def _scale(rule: IntervalsRule, levels: int, column_type: str) -> _Scale:
    """The numbers of a rule's first levels."""
    kind = column_kind(column_type)
    if kind in (ColumnKind.TEXT, ColumnKind.OTHER):
        raise RuleError(f"intervals need a column of numbers or dates, not {column_type}: {CAST_IT}")
    make = _date_scale if kind in (ColumnKind.DATE, ColumnKind.ZONED) else _number_scale
    return make(rule, rule.widths[:levels], column_type)


def _date_scale(rule: IntervalsRule, widths: tuple[Decimal, ...], column_type: str) -> _Scale:
    start = rule.origin if isinstance(rule.origin, date) else _EPOCH
    origin = None if rule.origin == 0 else rule.origin
    for name, bound in {"origin": origin, "below": rule.below, "above": rule.above}.items():
        if isinstance(bound, Decimal):
            raise RuleError(f"{name} must be a date, such as 1980-01-01: the column is of type {column_type}")
    if any(_decimals(width) for width in widths):
        raise RuleError(f"widths must be whole days: the column is of type {column_type}")
    if max(widths) > _MAX_DAYS:
        raise RuleError(f"widths for dates are days, at most {_MAX_DAYS:,}")
    below, above = (Decimal((end - start).days) if isinstance(end, date) else None for end in (rule.below, rule.above))
    return _Scale(widths, Decimal(0), below, above, column_type, start)


def _number_scale(rule: IntervalsRule, widths: tuple[Decimal, ...], column_type: str) -> _Scale:
    numbers: dict[str, Decimal] = {f"width {width}": width for width in widths}
    for name, bound in {"origin": rule.origin, "below": rule.below, "above": rule.above}.items():
        if isinstance(bound, date):
            raise RuleError(f"{name} is a date, but the column is of type {column_type}: give a number")
        if bound is not None:
            numbers[name] = bound
    scale = _Scale(widths, numbers["origin"], numbers.get("below"), numbers.get("above"), column_type)
    for name, value in numbers.items():
        if scale.kind is ColumnKind.INTEGER and _decimals(value):
            raise RuleError(f"{name} must be a whole number: the column is of type {column_type}")
        if value.copy_abs() >= scale.limit:
            raise RuleError(f"{name} is out of the range of a column of type {column_type}")
    return scale


def intervals_part(rule: IntervalsRule, levels: int, column_type: str) -> GeneratedLevels:
    """A level for each of the first widths."""
    scale = _scale(rule, levels, column_type)
    return GeneratedLevels("intervals", levels, lambda query, prefix: _intervals(scale, query, prefix), total=False)


def _intervals(scale: _Scale, query: exp.Select, prefix: str) -> LabelledQuery:
    """Add the labels in steps: the value as x, the starts of intervals, their bounds, and the lengths of these."""
    x = inside = col(f"{prefix}x")
    if scale.is_narrow:
        query = add_columns(query, {x.name: _exact_number(scale)})
    else:
        number = col(f"{prefix}number")
        query = add_columns(query, {number.name: _exact_number(scale)})
        # Arithmetic on larger numbers could overflow.
        limit = 9 * Decimal(10) ** (37 - scale.decimals)
        within_limits = fragment("CASE WHEN :x BETWEEN :low AND :high THEN :x END")
        value = within_limits(x=number, low=scale.literal(-limit), high=scale.literal(limit))
        query = add_columns(query, {x.name: value})
    conditions: list[exp.Expr] = [x >= scale.literal(scale.below)] if scale.below is not None else []
    conditions += [x < scale.literal(scale.above)] if scale.above is not None else []
    if conditions:
        inside = col(f"{prefix}inside")
        value = fragment("CASE WHEN :is_inside THEN :x END")(is_inside=all_of(conditions), x=x)
        query = add_columns(query, {inside.name: value})
    distance = inside - scale.literal(scale.origin) if scale.origin else inside
    # SQL's % has the sign of its dividend, so it is applied twice.
    start = fragment(":x - (((:distance % :width) + :width) % :width)")
    starts = [start(x=inside, distance=distance, width=scale.literal(width)) for width in scale.widths]
    query = add_columns(query, {f"{prefix}start_{i}": start for i, start in enumerate(starts)})
    query = add_columns(query, _bounds(scale, prefix))
    ends = [(col(f"{prefix}from_{i}"), col(f"{prefix}to_{i}")) for i in range(len(scale.widths))]
    if scale.start is None:
        # Length of the longest bound of a level, without sign.
        digits = fragment("""
            length(
                (max(CASE WHEN abs(:low) > abs(:high) THEN abs(:low) ELSE abs(:high) END) OVER ())::VARCHAR
            )::INTEGER
        """)
        lengths = {f"{prefix}digits_{i}": digits(low=low, high=high) for i, (low, high) in enumerate(ends)}
        query = add_columns(query, lengths)
    open_end = _open_end(scale, x)
    labels = (_label(scale, col(f"{prefix}digits_{i}"), low, high) for i, (low, high) in enumerate(ends))
    if open_end is not None:
        labels = (fragment("coalesce(:open_end, :label)")(open_end=open_end, label=label) for label in labels)
    return LabelledQuery(query, tuple(labels), is_not_null(x), open_end)


def _bounds(scale: _Scale, prefix: str) -> dict[str, exp.Expr]:
    """The bounds of intervals within the open ends; the upper one is the last integer, or the first number beyond."""
    bounds: dict[str, exp.Expr] = {}
    step = 0 if scale.is_half_open else 1
    for i, width in enumerate(scale.widths):
        low: exp.Expr = col(f"{prefix}start_{i}")
        high: exp.Expr = low + scale.literal(_subtract(width, step))
        if scale.below is not None:
            raised = fragment("CASE WHEN :bound < :end THEN :end ELSE :bound END")
            low = raised(bound=low, end=scale.literal(scale.below))
        if scale.above is not None:
            lowered = fragment("CASE WHEN :bound > :end THEN :end ELSE :bound END")
            high = lowered(bound=high, end=scale.literal(_subtract(scale.above, step)))
        bounds |= {f"{prefix}from_{i}": _format_bound(scale, low), f"{prefix}to_{i}": _format_bound(scale, high)}
    return bounds


def _exact_number(scale: _Scale) -> exp.Expr:
    """The value as an exact number, rounded down if necessary; NULL for NaN, infinity and overflow."""
    if scale.start is not None:
        days = fragment("date_diff('day', :start, :day)::BIGINT")
        return days(start=_date(scale.start), day=calendar_day(scale.column_type))
    if scale.kind is not ColumnKind.FLOATING:
        return try_cast(col("value"), scale.exact_type)
    # From the number's text, as readers see it: 0.7 is 0.7, not 0.699999988 or 0.69999999999999996.
    rounded = try_cast(cast(col("value"), "VARCHAR"), scale.exact_type)
    unit = scale.literal(Decimal(1).scaleb(-scale.decimals))
    # Only small numbers have texts with more than 12 decimals; they are rounded down.
    rounded_down = fragment("CASE WHEN abs(value) < 10000 AND :back > value THEN :rounded - :unit ELSE :rounded END")
    return rounded_down(back=cast(rounded.copy(), scale.column_type), rounded=rounded, unit=unit)


def _subtract(value: Decimal, step: int) -> Decimal:
    """The value minus the step, exactly; with a step, the value is a whole number."""
    return Decimal(int(value) - step) if step else value


def _format_bound(scale: _Scale, bound: exp.Expr) -> exp.Expr:
    """A bound as a date, or as a number with the decimals of labels."""
    if scale.start is not None:
        return fragment(":start + :days::INTEGER")(start=_date(scale.start), days=bound)
    return bound if scale.label_decimals == scale.decimals else cast(bound, f"DECIMAL(38, {scale.label_decimals})")


def _date(value: date) -> exp.Cast:
    return cast(text(value.isoformat()), "DATE")


def _label(scale: _Scale, digits: exp.Expr, low: exp.Expr, high: exp.Expr) -> exp.Expr:
    if scale.start is None:
        padded = fragment("CASE WHEN :bound < 0 THEN '-' ELSE '' END || lpad(abs(:bound)::VARCHAR, :digits, '0')")
        low, high = (padded(bound=bound, digits=digits) for bound in (low, high))
    else:
        low, high = (_CALENDAR["day"](day=bound) for bound in (low, high))
    interval = fragment("'[' || :low || ', ' || :high || ')'" if scale.is_half_open else ":low || '-' || :high")
    return interval(low=low, high=high)


def _open_end(scale: _Scale, x: exp.Column) -> exp.Expr | None:
    """The label of a value beyond an open end; NULL for other values."""
    case = exp.Case()
    if scale.below is not None:
        case = case.when(x < scale.literal(scale.below), text(f"<{scale.end_text(scale.below)}"), copy=False)
    if scale.above is not None:
        case = case.when(x >= scale.literal(scale.above), text(f"≥{scale.end_text(scale.above)}"), copy=False)
    return case if case.args.get("ifs") else None
