"""Labels that follow from a value alone: masks and calendar levels."""

from __future__ import annotations

from sqlglot import exp

from sqlanon.expressions import col, number, text
from sqlanon.hierarchies.parts import (
    CAST_IT,
    VALUE,
    ColumnKind,
    Flaw,
    Generated,
    Labelled,
    choose,
    column_kind,
    is_known,
    join_texts,
    pad,
    stage,
    to_type,
)

_MOST_MASKED = 1000


def mask_part(side: str, levels: int, longest: int) -> Generated:
    """Mask characters from one side: the label of level j keeps ``longest - j`` of them."""
    if levels > _MOST_MASKED:
        raise Flaw(f"the longest text has {longest} characters: give a number of levels, as in levels = 5")

    def extend(query: exp.Select, prefix: str) -> Labelled:
        del prefix
        labels = (_mask(side, longest, longest - level) for level in range(1, levels + 1))
        return Labelled(query, tuple(labels))

    return Generated("mask", levels, extend, total=True)


def _mask(side: str, longest: int, kept: int) -> exp.Expr:
    value = to_type(col(VALUE), "VARCHAR")
    if side == "right":
        return pad(exp.Left(this=value, expression=number(kept)), longest, "*", left=False)
    # Shorter texts are padded before anything is cut.
    padded = pad(value, longest, "*", left=True)
    return pad(exp.Right(this=padded, expression=number(kept)), longest, "*", left=True)


def longest_query(values: exp.Table) -> exp.Select:
    """Return the length of a column's longest text: one row, NULL if there is none."""
    length = exp.Length(this=to_type(col(VALUE), "VARCHAR"))
    return exp.Select(expressions=[exp.Max(this=length)]).from_(values.copy())


def day(column_type: str) -> exp.Expr:
    """Return the day of a date or timestamp, in UTC if it has a time zone; NULL outside years 1 to 9999."""
    value: exp.Expr = col(VALUE)
    if column_kind(column_type) is ColumnKind.ZONED:
        # AT TIME ZONE needs an extension; these two do not.
        value = exp.Anonymous(this="MAKE_TIMESTAMP", expressions=[exp.Anonymous(this="EPOCH_US", expressions=[value])])
    date_ = to_type(value, "DATE")
    bounds = [to_type(text(bound), "DATE") for bound in ("0001-01-01", "9999-12-31")]
    # Infinite dates are out of these bounds too.
    return choose([(exp.Between(this=date_, low=bounds[0], high=bounds[1]), date_.copy())])


def dates_part(granularities: tuple[str, ...], column_type: str) -> Generated:
    """Make a calendar level for each granularity: ``1980-W01`` (ISO year), ``1980-Q1``, ``1980s``, ..."""
    if column_kind(column_type) not in (ColumnKind.DATE, ColumnKind.ZONED):
        raise Flaw(f"dates need a column of dates or timestamps, not {column_type}: {CAST_IT}")

    def extend(query: exp.Select, prefix: str) -> Labelled:
        name = f"{prefix}day"
        labels = tuple(_calendar(granularity, name) for granularity in granularities)
        return Labelled(stage(query, [(name, day(column_type))]), labels, is_known(col(name)))

    return Generated("dates", len(granularities), extend, total=False)


def _calendar(granularity: str, name: str) -> exp.Expr:
    formats = {"day": "%Y-%m-%d", "week": "%G-W%V", "month": "%Y-%m", "year": "%Y"}
    if granularity in formats:
        return date_text(col(name), formats[granularity])
    year = date_text(col(name), "%Y")
    if granularity == "quarter":
        quarter = exp.Extract(this=exp.Var(this="QUARTER"), expression=col(name))
        return join_texts([year, text("-Q"), to_type(quarter, "VARCHAR")])
    return join_texts([exp.Left(this=year, expression=number(3)), text("0s")])


def date_text(date_: exp.Expr, format_: str = "%Y-%m-%d") -> exp.TimeToStr:
    """Return the text of a date."""
    return exp.TimeToStr(this=date_, format=text(format_))
