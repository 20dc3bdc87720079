"""The distribution of a column in a report: labels with their rows, or ranges of numbers, counted where the rows are.
Values in few rows are not shown, and do not follow from what is shown.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import Any, TypeAlias

from sqlglot import exp

from sqlanon.disclosure.residual_risk import FEWEST_HIDDEN_VALUES
from sqlanon.engines.base import Engine
from sqlanon.hierarchies.bounds import RangeKind, label_bounds
from sqlanon.hierarchies.parts import label_range_kind
from sqlanon.support.expressions import anonymous, col, fragment, number, subquery, template, text, values_query
from sqlanon.support.markup import make_distinct

_LABEL_COUNTS = template("""
    SELECT value::VARCHAR AS label, rows
    FROM (SELECT :column AS value, count(*) AS rows FROM :relation GROUP BY :column) AS v
""")
_COMMON_LABELS = template("""
    SELECT label, rows
    FROM :counts
    WHERE rows >= :few
    ORDER BY rows DESC, label NULLS LAST
    LIMIT :most
""")
# One row: labels, their rows; and those in few rows: labels, rows.
_LABEL_FIGURES = template("""
    SELECT
        count(*),
        coalesce(sum(rows)::BIGINT, 0),
        count(*) FILTER (WHERE rows < :few),
        coalesce(sum(rows) FILTER (WHERE rows < :few)::BIGINT, 0)
    FROM :counts
""")
# A number has a place if it is not NULL, no NaN and not infinite.
_SPREAD = template("""
    SELECT quantile_cont(:value::DOUBLE, 0.05), quantile_cont(:value::DOUBLE, 0.95)
    FROM :relation
    WHERE isfinite(:value::DOUBLE)
""")
# What is below the lowest bin is in the lowest, what is above the highest in the highest. Bin NULL: no number.
_BINS = template("""
    SELECT bin, count(*) AS rows
    FROM (
        SELECT
            CASE
                WHEN isfinite(:value::DOUBLE)
                    THEN greatest(least(:floor, :highest), :lowest)::BIGINT
            END AS bin
        FROM :relation
    ) AS b
    GROUP BY bin
    ORDER BY bin NULLS LAST
""")
_SPANS = template("SELECT place, :low::DOUBLE AS low, :high::DOUBLE AS high FROM :labels ORDER BY place")
# One row of the labels that are ranges: where 5 % of their rows begin and 95 % end, and whether all ends are integers.
_LABEL_SPREAD = template("""
    SELECT
        min(low) FILTER (WHERE begun >= 0.05 * total),
        min(high) FILTER (WHERE ended >= 0.95 * total),
        count(*) FILTER (WHERE low <> floor(low) OR high <> floor(high)) = 0
    FROM (
        SELECT
            low,
            high,
            sum(rows) OVER (ORDER BY low) AS begun,
            sum(rows) OVER (ORDER BY high) AS ended,
            sum(rows) OVER () AS total
        FROM :ranged
        WHERE low <= high
    ) AS l
""")
_RANGED = template("SELECT rows, :low::DOUBLE AS low, :high::DOUBLE AS high FROM :counts")
# Each row counts evenly over its range; an open end reaches to the outermost bin. Bin NULL: labels that are no ranges.
_SPREAD_ROWS = template("""
    SELECT
        bin,
        sum(rows * CASE WHEN high > low THEN (least(high, finish) - greatest(low, start)) / (high - low) ELSE 1 END)
    FROM (
        SELECT
            rows,
            CASE WHEN NOT high IS NULL THEN coalesce(low, least(high, :least)) ELSE low END AS low,
            CASE WHEN NOT low IS NULL THEN coalesce(high, greatest(low, :greatest)) ELSE high END AS high
        FROM :ranged
    ) AS l
    LEFT JOIN :bins
        ON start < high AND finish > low OR high <= low AND start <= low AND finish > low
    GROUP BY bin
    ORDER BY bin NULLS LAST
""")
_NEXT = fragment(":value + 1")
_EITHER = fragment("coalesce(:whole::DOUBLE, :other)")
_YEARS = fragment("1970 + (:day - DATE '1970-01-01') / 365.2425")
_QUOTIENT = fragment(":value::DOUBLE / :width")

BARS = 20
"""The most labels, and about the most ranges."""
NO_VALUE = "(no value)"
NO_RANGE = "(no range)"
_FAR = 1e300
Spans: TypeAlias = "tuple[tuple[float | None, float | None], ...]"


@dataclass(frozen=True)
class Distribution:
    """The values of a column: the ``bars``, labels and their rows (of numbers and dates with many values: ranges); how
    many ``values`` there are (None: ranges); the ``others``, which are not shown, and of these the ``rare`` ones, in
    fewer rows than may be shown.

    ``spans`` are the ends of the first bars, where these are ranges beside one another (None: an open end); of dates
    in years. ``rare_values`` and ``rare_rows`` count all values in fewer rows than may be shown, and their rows.
    """

    bars: tuple[tuple[str, int], ...]
    values: int | None = None
    others: int = 0
    rare: int = 0
    spans: Spans = ()
    rare_values: int = 0
    rare_rows: int = 0
    spread: bool = False
    """The rows of labels that overlap count evenly over their ranges."""


def distribution(
    engine: Engine, relation: exp.Expr, column: str, type_: str, few: int, labels: RangeKind | None = None
) -> Distribution:
    """Of a column; ``labels`` says what its labels are ranges of, where they may be some."""
    counts = subquery(_LABEL_COUNTS(column=col(column), relation=relation), "labels")
    values, rows, rare, rare_rows = engine.rows(_LABEL_FIGURES(counts=counts, few=few))[0]
    kind = label_range_kind(type_)
    if values > BARS and kind is not None:
        found_ranges = _ranges(engine, relation, column, kind == "date", few)
        return replace(found_ranges, rare_values=rare, rare_rows=rare_rows)
    if labels is not None and values > BARS:
        spread = _spread(engine, counts, labels, few)
        if spread is not None:
            return replace(spread, rare_values=rare, rare_rows=rare_rows)
    found = safe_labels(engine.rows(_COMMON_LABELS(counts=counts, few=few, most=BARS)), values, rows, rare, few)
    if len(found) == values:  # all of them: in their own order
        found = sorted(found, key=lambda one: _order(one[0], kind in ("integer", "number")))
    bars = tuple(zip(make_distinct(_named(label) for label, _ in found), (n for _, n in found), strict=True))
    spans: Spans = ()
    if labels is not None and len(found) == values:
        spans = _spans_of_labels(engine, [label for label, _ in found if label is not None], labels)
    return Distribution(bars, values, values - len(found), rare, spans, rare, rare_rows)


def _spans_of_labels(engine: Engine, labels: Sequence[str], kind: RangeKind) -> Spans:
    """The ends of labels that are ranges beside one another, in their order; none where they are not."""
    if len(labels) < FEWEST_HIDDEN_VALUES:
        return ()
    given = values_query({"place": "INTEGER", "label": "VARCHAR"}, list(enumerate(labels)))
    low, high = spans_of(col("label"), kind)
    rows = engine.rows(_SPANS(low=low, high=high, labels=subquery(given, "given")))
    ends = tuple((low, high) for _, low, high in rows)
    beside = all(high is not None and low is not None and high <= low for (_, high), (low, _) in pairwise(ends))
    are_ranges = all(low is None or high is None or low < high for low, high in ends)  # not the value 2.5
    return ends if beside and are_ranges else ()


def spans_of(label: exp.Expr, kind: RangeKind) -> tuple[exp.Expr, exp.Expr]:
    """The first number of a label, and the first number beyond it; of dates in years."""
    if kind == "date":
        low, high = label_bounds(label, "date")
        return _YEARS(day=low), _YEARS(day=_NEXT(value=high))
    (low, high), (least, beyond) = label_bounds(label, "integer"), label_bounds(label, "number")
    return _EITHER(whole=low, other=least), _EITHER(whole=_NEXT(value=high), other=beyond)


def safe_labels(
    common: Sequence[tuple[Any, int]], values: int, rows: int, rare: int, few: int
) -> list[tuple[Any, int]]:
    """The labels that may be shown. All rows are known: where some values are rare, what is left over has enough
    rows, of two values at least, or a count would follow by subtraction.

    >>> safe_labels([("a", 133), ("b", 132), ("c", 132)], 4, 400, 1, 5)
    [('a', 133), ('b', 132)]
    >>> safe_labels([("a", 133), ("b", 132)], 2, 265, 0, 5)
    [('a', 133), ('b', 132)]
    """
    shown = list(common)
    while rare and shown and (values - len(shown) < FEWEST_HIDDEN_VALUES or rows - sum(n for _, n in shown) < few):
        shown.pop()
    return shown


def _order(label: str | None, numbers: bool) -> tuple[bool, float, str]:
    return label is None, float(label) if numbers and label is not None else 0.0, label or ""


def _named(label: str | None) -> str:
    if label is None:
        return NO_VALUE
    return label if label.strip() else "(empty text)"


def _ranges(engine: Engine, relation: exp.Expr, column: str, dates: bool, few: int) -> Distribution:
    value: exp.Expr = anonymous("DATE_PART", text("year"), col(column)) if dates else col(column)
    low, high = engine.rows(_SPREAD(value=value, relation=relation))[0]
    if low is None:
        return Distribution(())
    width = round_width((high - low) / BARS)
    if dates:
        width = max(width, 1.0)
    lowest, highest = math.floor(low / width) - 2, math.floor(high / width) + 2
    floor = anonymous("FLOOR", _QUOTIENT(value=value, width=number(width)))
    query = _BINS(value=value, floor=floor, highest=number(highest), lowest=number(lowest), relation=relation)
    counted = dict(engine.rows(query))
    missing = counted.pop(None, 0)
    bins = sorted(counted.items())
    bars = with_missing(merged(bins, width, few, dates), counted, missing, few)
    return Distribution(tuple(bars), spans=_spans_of_groups(_groups(bins, few), width))


def _spread(engine: Engine, counts: exp.Subquery, kind: RangeKind, few: int) -> Distribution | None:
    """Labels that are ranges of many kinds, in ranges beside one another; None where few of them are ranges."""
    low_, high_ = spans_of(col("label"), kind)
    ranged = subquery(_RANGED(low=low_, high=high_, counts=counts.copy()), "ranged")
    low, high, integers = engine.rows(_LABEL_SPREAD(ranged=ranged.copy()))[0]
    if low is None or high is None or high <= low:
        return None
    width = round_width((high - low) / BARS)
    if integers or kind == "date":
        width = max(width, 1.0)
    lowest, highest = math.floor(low / width) - 2, math.floor(high / width) + 2
    edges = [(bin_, bin_ * width, (bin_ + 1) * width) for bin_ in range(lowest, highest + 1)]
    edges[0], edges[-1] = (lowest, -_FAR, edges[0][2]), (highest, edges[-1][1], _FAR)
    bins = subquery(values_query({"bin": "INTEGER", "start": "DOUBLE", "finish": "DOUBLE"}, edges), "bins")
    query = _SPREAD_ROWS(ranged=ranged, bins=bins, least=number(lowest * width), greatest=number((highest + 1) * width))
    found = dict(engine.rows(query))
    missing = round(found.pop(None, 0))
    counted = _whole(sorted(found.items()))
    groups = _groups(counted, few)
    if len(groups) < FEWEST_HIDDEN_VALUES or missing > sum(rows for _, rows in counted):
        return None
    bars = with_missing(merged(counted, width, few, kind == "date"), dict(counted), missing, few, NO_RANGE)
    return Distribution(tuple(bars), spans=_spans_of_groups(groups, width), spread=True)


def _whole(parts: Sequence[tuple[int, float]]) -> list[tuple[int, int]]:
    """Shares of rows as whole rows, with the same sum.

    >>> _whole([(0, 2.5), (1, 2.5), (3, 5.0)])
    [(0, 2), (1, 3), (3, 5)]
    """
    sums = [round(one) for one in accumulate(float(rows) for _, rows in parts)]
    return [(bin_, upto - before) for (bin_, _), before, upto in zip(parts, [0, *sums], sums, strict=False)]


def with_missing(
    bars: Sequence[tuple[str, int]], counted: Mapping[int, int], missing: int, few: int, name: str = NO_VALUE
) -> list[tuple[str, int]]:
    """Ranges, and the rows without a number; where one or the other are few, both are in one.

    >>> with_missing([("< 10", 9), ("≥ 10", 7)], {0: 9, 1: 7}, 2, 5)
    [('< 10', 9), ('≥ 10, or (no value)', 9)]
    >>> with_missing([], {0: 2}, 50, 5)
    [('all values, or (no value)', 52)]
    """
    found = list(bars)
    if not found:
        rows = sum(counted.values()) + missing
        return [(f"all values, or {name}", rows)] if rows >= few else []
    if missing >= few:
        found.append((name, missing))
    elif missing:
        smallest = min(range(len(found)), key=lambda i: found[i][1])
        label, rows = found[smallest]
        found[smallest] = (f"{label}, or {name}", rows + missing)
    return found


def round_width(least: float) -> float:
    """A round number that is no less: 1, 2 or 5 times a power of ten.

    >>> round_width(3.2), round_width(0.011), round_width(0)
    (5.0, 0.02, 1.0)
    """
    if least <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(least))
    return float(f"{next(m for m in (1, 2, 5, 10) if m * power >= least * (1 - 1e-9)) * power:.12g}")


def merged(bins: Sequence[tuple[int, int]], width: float, few: int, dates: bool = False) -> list[tuple[str, int]]:
    """Ranges of numbers with their rows: neighbours are one until they have enough rows; the ends are open.

    >>> merged([(0, 9), (1, 2), (2, 4), (3, 9), (4, 1)], 10.0, 5)
    [('< 10', 9), ('10 to 30', 6), ('≥ 30', 10)]
    >>> merged([(0, 2)], 10.0, 5)
    []
    """
    groups = _groups(bins, few)
    starts = [group[0] for group in groups]
    labels = []
    for i, group in enumerate(groups):
        start, end = group[0] * width, (starts[i + 1] if i + 1 < len(groups) else group[1] + 1) * width
        low, high = (f"{edge:.0f}" if dates else f"{edge:,.12g}" for edge in (start, end))
        if len(groups) == 1:
            label = "all values"
        elif i == 0:
            label = f"< {high}"
        elif i == len(groups) - 1:
            label = f"≥ {low}"
        else:
            label = f"{low} to {high}"
        labels.append((label, group[2]))
    return labels


def _groups(bins: Sequence[tuple[int, int]], few: int) -> list[list[int]]:
    """Neighbouring bins with enough rows together: the first bin, the last one, the rows."""
    groups: list[list[int]] = []
    for bin_, rows in bins:
        if groups and groups[-1][2] < few:
            groups[-1][1:] = [bin_, groups[-1][2] + rows]
        else:
            groups.append([bin_, bin_, rows])
    if len(groups) > 1 and groups[-1][2] < few:
        last = groups.pop()
        groups[-1][1:] = [last[1], groups[-1][2] + last[2]]
    return groups if groups and groups[0][2] >= few else []


def _spans_of_groups(groups: Sequence[Sequence[int]], width: float) -> Spans:
    """The ends of ranges; the outer two are open."""
    starts = [group[0] * width for group in groups]
    if len(groups) < FEWEST_HIDDEN_VALUES:
        return ()
    return tuple(zip([None, *starts[1:]], [*starts[1:], None], strict=True))
