"""The distribution of a column: labels with their rows, or ranges of numbers, counted where the rows are.

Values in few rows are not shown, and cannot be computed from those that are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any, TypeAlias

from sqlglot import exp

from sqlanon.disclosure.residual_risk import MIN_HIDDEN_VALUES
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
    LIMIT :limit
""")
_LABEL_TOTALS = template("""
    SELECT count(*) AS values, coalesce(sum(rows)::BIGINT, 0) AS rows, count(*) FILTER (WHERE rows < :few) AS rare
    FROM :counts
""")
# NULL, NaN and infinite numbers have no range.
_QUANTILES = template("""
    SELECT quantile_cont(:value::DOUBLE, 0.05), quantile_cont(:value::DOUBLE, 0.95)
    FROM :relation
    WHERE isfinite(:value::DOUBLE)
""")
# The outer bins hold everything beyond them; the bin is NULL for rows without a number.
_BINS = template("""
    SELECT bin, count(*) AS rows
    FROM (
        SELECT
            CASE
                WHEN isfinite(:value::DOUBLE)
                    THEN greatest(least(floor(:value::DOUBLE / :width), :highest), :lowest)::BIGINT
            END AS bin
        FROM :relation
    ) AS binned
    GROUP BY bin
    ORDER BY bin NULLS LAST
""")
# The quantiles of 5 % and 95 % of the rows whose labels are ranges, and whether all ends are integers.
_RANGED_QUANTILES = template("""
    SELECT
        min(low) FILTER (WHERE rows_from_low >= 0.05 * total),
        min(high) FILTER (WHERE rows_to_high >= 0.95 * total),
        count(*) FILTER (WHERE low <> floor(low) OR high <> floor(high)) = 0
    FROM (
        SELECT
            low,
            high,
            sum(rows) OVER (ORDER BY low) AS rows_from_low,
            sum(rows) OVER (ORDER BY high) AS rows_to_high,
            sum(rows) OVER () AS total
        FROM :ranged
        WHERE low <= high
    ) AS cumulated
""")
# Each row counts evenly over its range; an open end reaches to the outermost bin. The bin of other labels is NULL.
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
    ) AS closed
    LEFT JOIN :bins
        ON start < high AND finish > low OR high <= low AND start <= low AND finish > low
    GROUP BY bin
    ORDER BY bin NULLS LAST
""")

BARS = 20
"""Maximum number of labels, and approximate maximum number of ranges."""
NO_VALUE = "(no value)"
NO_RANGE = "(no range)"
_FAR = 1e300
Spans: TypeAlias = "tuple[tuple[float | None, float | None], ...]"


@dataclass(frozen=True)
class Distribution:
    """The values of a column: ``bars`` are labels with their rows, or ranges if a column has many numbers or dates.

    ``values`` counts the distinct values (None for ranges), ``others`` those that are not shown, and ``rare`` those in
    fewer rows than may be shown. ``spans`` are the ends of the first bars if these are adjacent ranges: None is an open
    end, and dates are in years. With ``spread``, rows of overlapping labels count evenly over their ranges.
    """

    bars: tuple[tuple[str, int], ...]
    values: int | None = None
    others: int = 0
    rare: int = 0
    spans: Spans = ()
    spread: bool = False


def distribution(
    engine: Engine, relation: exp.Expr, column: str, type_: str, few: int, label_kind: RangeKind | None = None
) -> Distribution:
    """The distribution of a column; ``label_kind`` says what its labels are ranges of, if they are."""
    counts = subquery(_LABEL_COUNTS(column=col(column), relation=relation), "labels")
    values, rows, rare = engine.rows(_LABEL_TOTALS(counts=counts, few=few))[0]
    kind = label_range_kind(type_)
    if values > BARS and kind is not None:
        return _number_ranges(engine, relation, column, kind == "date", few)
    if values > BARS and label_kind is not None and (spread := _spread_labels(engine, counts, label_kind, few)):
        return spread
    labels = safe_labels(engine.rows(_COMMON_LABELS(counts=counts, few=few, limit=BARS)), values, rows, rare, few)
    spans: Spans = ()
    if len(labels) == values:  # complete: sorted by value instead of by rows
        is_number = kind in ("integer", "number")
        labels.sort(key=lambda label: (label[0] is None, float(label[0] or 0) if is_number else 0.0, label[0] or ""))
        if label_kind is not None:
            spans = _find_spans(engine, [label for label, _ in labels if label is not None], label_kind)
    names = (NO_VALUE if label is None else label if label.strip() else "(empty text)" for label, _ in labels)
    bars = tuple(zip(make_distinct(names), (rows for _, rows in labels), strict=True))
    return Distribution(bars, values, values - len(labels), rare, spans)


def _find_spans(engine: Engine, labels: Sequence[str], kind: RangeKind) -> Spans:
    """The ends of labels that are adjacent ranges, in their order; otherwise none."""
    if len(labels) < MIN_HIDDEN_VALUES:
        return ()
    positions = values_query({"position": "INTEGER", "label": "VARCHAR"}, list(enumerate(labels)))
    low, high = span_of_label(col("label"), kind)
    spans = template("SELECT position, :low::DOUBLE AS low, :high::DOUBLE AS high FROM :labels ORDER BY position")
    rows = engine.rows(spans(low=low, high=high, labels=subquery(positions, "p")))
    ends = tuple((low, high) for _, low, high in rows)
    adjacent = all(high is not None and low is not None and high <= low for (_, high), (low, _) in pairwise(ends))
    are_ranges = all(low is None or high is None or low < high for low, high in ends)  # a value such as 2.5 is none
    return ends if adjacent and are_ranges else ()


def span_of_label(label: exp.Expr, kind: RangeKind) -> tuple[exp.Expr, exp.Expr]:
    """The first number of a label, and the first number beyond it; dates are in years."""
    if kind == "date":
        year = fragment("1970 + (:day - DATE '1970-01-01') / 365.2425")
        first, last = label_bounds(label, "date")
        return year(day=first), year(day=fragment(":value + 1")(value=last))
    (first, last), (least, beyond) = label_bounds(label, "integer"), label_bounds(label, "number")
    low = fragment("coalesce(:first::DOUBLE, :least)")(first=first, least=least)
    return low, fragment("coalesce((:last + 1)::DOUBLE, :beyond)")(last=last, beyond=beyond)


def safe_labels(
    common: Sequence[tuple[Any, int]], values: int, rows: int, rare: int, few: int
) -> list[tuple[Any, int]]:
    """The labels that may be shown.

    The number of all rows is public. If some values are rare, the hidden values are at least two and in enough rows:
    otherwise a count would follow by subtraction.

    >>> safe_labels([("a", 133), ("b", 132), ("c", 132)], 4, 400, 1, 5)
    [('a', 133), ('b', 132)]
    >>> safe_labels([("a", 133), ("b", 132)], 2, 265, 0, 5)
    [('a', 133), ('b', 132)]
    """
    labels = list(common)
    while rare and labels and (values - len(labels) < MIN_HIDDEN_VALUES or rows - sum(n for _, n in labels) < few):
        labels.pop()
    return labels


def _number_ranges(engine: Engine, relation: exp.Expr, column: str, dates: bool, few: int) -> Distribution:
    value: exp.Expr = anonymous("DATE_PART", text("year"), col(column)) if dates else col(column)
    low, high = engine.rows(_QUANTILES(value=value, relation=relation))[0]
    if low is None:
        return Distribution(())
    width, lowest, highest = _bin_range(low, high, dates)
    query = _BINS(value=value, width=number(width), highest=number(highest), lowest=number(lowest), relation=relation)
    bins = dict(engine.rows(query))
    missing = bins.pop(None, 0)
    groups = _group_bins(sorted(bins.items()), few)
    bars = add_missing(label_groups(groups, width, dates), sum(bins.values()), missing, few)
    return Distribution(tuple(bars), spans=_spans_of_groups(groups, width))


def _spread_labels(engine: Engine, counts: exp.Subquery, kind: RangeKind, few: int) -> Distribution | None:
    """Rows of overlapping ranges in adjacent ranges; None if few labels are ranges."""
    low_end, high_end = span_of_label(col("label"), kind)
    ranges = template("SELECT rows, :low::DOUBLE AS low, :high::DOUBLE AS high FROM :counts")
    ranged = subquery(ranges(low=low_end, high=high_end, counts=counts.copy()), "ranged")
    low, high, integers = engine.rows(_RANGED_QUANTILES(ranged=ranged.copy()))[0]
    if low is None or high is None or high <= low:
        return None
    width, lowest, highest = _bin_range(low, high, integers or kind == "date")
    edges = [(position, position * width, (position + 1) * width) for position in range(lowest, highest + 1)]
    edges[0], edges[-1] = (lowest, -_FAR, edges[0][2]), (highest, edges[-1][1], _FAR)
    bins = subquery(values_query({"bin": "INTEGER", "start": "DOUBLE", "finish": "DOUBLE"}, edges), "bins")
    query = _SPREAD_ROWS(ranged=ranged, bins=bins, least=number(lowest * width), greatest=number((highest + 1) * width))
    shares = dict(engine.rows(query))
    missing = round(shares.pop(None, 0))
    whole_rows = _round_shares(sorted(shares.items()))
    groups, rows = _group_bins(whole_rows, few), sum(rows for _, rows in whole_rows)
    if len(groups) < MIN_HIDDEN_VALUES or missing > rows:
        return None
    bars = add_missing(label_groups(groups, width, kind == "date"), rows, missing, few, NO_RANGE)
    return Distribution(tuple(bars), spans=_spans_of_groups(groups, width), spread=True)


def _bin_range(low: float, high: float, whole: bool) -> tuple[float, int, int]:
    """The width of bins for most values, and the numbers of the outer bins."""
    width = round_width((high - low) / BARS)
    if whole:
        width = max(width, 1.0)
    return width, math.floor(low / width) - 2, math.floor(high / width) + 2


def _round_shares(shares: Sequence[tuple[int, float]]) -> list[tuple[int, int]]:
    """Round shares of rows to whole rows, with the same sum.

    >>> _round_shares([(0, 2.5), (1, 2.5), (3, 5.0)])
    [(0, 2), (1, 3), (3, 5)]
    """
    sums = [round(total) for total in accumulate(float(rows) for _, rows in shares)]
    return [(position, upto - before) for (position, _), before, upto in zip(shares, [0, *sums], sums, strict=False)]


def add_missing(
    bars: Sequence[tuple[str, int]], rows: int, missing: int, few: int, name: str = NO_VALUE
) -> list[tuple[str, int]]:
    """Ranges of ``rows`` rows, and the rows without a number: these join the smallest range if they are few.

    >>> add_missing([("< 10", 9), ("≥ 10", 7)], 16, 2, 5)
    [('< 10', 9), ('≥ 10, or (no value)', 9)]
    >>> add_missing([], 2, 50, 5)
    [('all values, or (no value)', 52)]
    """
    if not bars:
        return [(f"all values, or {name}", rows + missing)] if rows + missing >= few else []
    complete = list(bars)
    if missing >= few:
        complete.append((name, missing))
    elif missing:
        smallest = min(range(len(complete)), key=lambda i: complete[i][1])
        label, label_rows = complete[smallest]
        complete[smallest] = (f"{label}, or {name}", label_rows + missing)
    return complete


def round_width(least: float) -> float:
    """The next round number at or above a number: 1, 2 or 5 times a power of ten.

    >>> round_width(3.2), round_width(0.011), round_width(0)
    (5.0, 0.02, 1.0)
    """
    if least <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(least))
    return float(f"{next(m for m in (1, 2, 5, 10) if m * power >= least * (1 - 1e-9)) * power:.12g}")


def _group_bins(bins: Sequence[tuple[int, int]], few: int) -> list[tuple[int, int, int]]:
    """Join neighbouring bins until they have enough rows: the first bin, the last one, and the rows.

    >>> _group_bins([(0, 9), (1, 2), (2, 4), (3, 9), (4, 1)], 5), _group_bins([(0, 2)], 5)
    ([(0, 0, 9), (1, 2, 6), (3, 4, 10)], [])
    """
    groups: list[tuple[int, int, int]] = []
    for position, rows in bins:
        if groups and groups[-1][2] < few:
            first, _, grouped_rows = groups.pop()
            groups.append((first, position, grouped_rows + rows))
        else:
            groups.append((position, position, rows))
    if len(groups) > 1 and groups[-1][2] < few:
        _, last, rows = groups.pop()
        first, _, grouped_rows = groups.pop()
        groups.append((first, last, grouped_rows + rows))
    return groups if groups and groups[0][2] >= few else []


def label_groups(groups: Sequence[tuple[int, int, int]], width: float, dates: bool = False) -> list[tuple[str, int]]:
    """Groups of bins as labels with their rows; the outer ends are open.

    >>> label_groups([(0, 0, 9), (1, 2, 6), (3, 4, 10)], 10.0)
    [('< 10', 9), ('10 to 30', 6), ('≥ 30', 10)]
    """
    if len(groups) == 1:
        return [("all values", groups[0][2])]
    edges = [f"{first * width:.0f}" if dates else f"{first * width:,.12g}" for first, _, _ in groups]
    labels = [f"{low} to {high}" for low, high in pairwise(edges)]
    if groups:
        labels = [f"< {edges[1]}", *labels[1:], f"≥ {edges[-1]}"]
    return [(label, rows) for label, (_, _, rows) in zip(labels, groups, strict=True)]


def _spans_of_groups(groups: Sequence[tuple[int, int, int]], width: float) -> Spans:
    """The ends of groups of bins; the outer two are open."""
    starts = [first * width for first, _, _ in groups]
    if len(groups) < MIN_HIDDEN_VALUES:
        return ()
    return tuple(zip([None, *starts[1:]], [*starts[1:], None], strict=True))
