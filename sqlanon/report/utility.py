"""The remaining utility of a release: detail left in each column, and means and correlations of columns of numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from sqlglot import exp

from sqlanon.engines.base import Engine
from sqlanon.hierarchies.bounds import RangeKind
from sqlanon.hierarchies.parts import label_range_kind
from sqlanon.release.manifest import Manifest
from sqlanon.report.distributions import span_of_label
from sqlanon.support.expressions import all_of, as_column, cast, col, fragment, is_not_null, subquery, template

MAX_CORRELATED_COLUMNS = 8
"""Correlations are shown for up to this many columns."""

_REMAINING = template("""
    WITH "sqlanon labels" AS (
        SELECT :column::VARCHAR AS label, count(*) AS row_count FROM :relation GROUP BY :column
    ),
    "sqlanon ranges" AS (
        SELECT label, row_count, :low::DOUBLE AS low, :high::DOUBLE AS high FROM "sqlanon labels"
    )
    SELECT
        count(*) AS values,
        count(*) FILTER (WHERE row_count < :few) AS rare_values,
        coalesce(sum(row_count), 0)::BIGINT AS rows,
        coalesce(sum(row_count) FILTER (WHERE label = '*'), 0)::BIGINT AS hidden_rows,
        coalesce(sum(row_count) FILTER (WHERE high IS NOT NULL AND low IS NOT NULL), 0)::BIGINT AS ranged_rows,
        sum(row_count * (high - low)) / sum(row_count) FILTER (WHERE high IS NOT NULL AND low IS NOT NULL) AS width
    FROM "sqlanon ranges"
""")


@dataclass(frozen=True)
class RemainingDetail:
    """Remaining detail of a generalized column: the number of its labels, the share of the rows that read ``*``, and
    the mean width if all other labels are ranges of numbers, or of dates in years."""

    values: int
    hidden: float
    width: float | None


def measure_remaining_detail(
    engine: Engine, relation: exp.Expr, label_kinds: Mapping[str, RangeKind | None], few: int
) -> dict[str, RemainingDetail]:
    """The remaining detail of the columns whose labels are all in ``few`` rows or more."""
    details = {}
    for name, kind in label_kinds.items():
        low, high = span_of_label(col("label"), kind or "number")
        query = _REMAINING(low=low, high=high, column=col(name), relation=relation.copy(), few=few)
        values, rare_values, rows, hidden_rows, ranged_rows, width = engine.rows(query)[0]
        has_width = ranged_rows and ranged_rows + hidden_rows == rows and width > 1
        if not rare_values:
            details[name] = RemainingDetail(values, hidden_rows / max(rows, 1), width if has_width else None)
    return details


@dataclass(frozen=True)
class ColumnNumbers:
    """Rows with a number, or with a date in years, and their mean and standard deviation."""

    rows: int
    mean: float
    deviation: float | None


@dataclass(frozen=True)
class Numbers:
    """The columns of numbers of a table, and the correlations of pairs of them."""

    columns: Mapping[str, ColumnNumbers]
    correlations: Mapping[tuple[str, str], float]


NO_NUMBERS = Numbers({}, {})


def range_kind(claims: Manifest, name: str) -> RangeKind | None:
    """The kind of ranges that the hierarchy of a column makes."""
    attributes = {attribute.lower(): spec for attribute, spec in claims.policy.get("attributes", {}).items()}
    rules = attributes.get(name.lower(), {}).get("hierarchy")
    kinds = {rule.get("rule") for rule in rules if isinstance(rule, dict)} if isinstance(rules, list) else set()
    return "date" if "dates" in kinds else "number" if "intervals" in kinds else None


def summarize_numbers(
    engine: Engine, relation: exp.Expr, types: Mapping[str, str], label_kinds: Mapping[str, RangeKind | None], few: int
) -> Numbers:
    """Means and correlations of columns with ``few`` numbers or more; a label counts as the middle of its range."""
    values = {
        name: value
        for name, type_ in types.items()
        if (value := _numeric_value(name, type_, label_kinds.get(name))) is not None
    }
    if not values:
        return NO_NUMBERS
    keys = {name: f"number_{i}" for i, name in enumerate(values)}
    numbers = template("SELECT :columns FROM :relation")(
        columns=[as_column(value, keys[name]) for name, value in values.items()], relation=relation
    )
    figures: list[exp.Expr] = []
    for key in keys.values():
        figures += [fragment(call)(value=col(key)) for call in ("count(:value)", "avg(:value)", "stddev_samp(:value)")]
    pairs = list(combinations(list(keys)[:MAX_CORRELATED_COLUMNS], 2))
    for pair in pairs:
        x, y = (col(keys[name]) for name in pair)
        is_complete = all_of([is_not_null(x.copy()), is_not_null(y.copy())])
        figures.append(fragment("corr(:x, :y) FILTER (WHERE :is_complete)")(x=x, y=y, is_complete=is_complete))
    columns = [as_column(figure, f"figure_{i}") for i, figure in enumerate(figures)]
    query = template("SELECT :figures FROM :numbers")(figures=columns, numbers=subquery(numbers, "numbers"))
    row = engine.rows(query)[0]
    summaries = {name: ColumnNumbers(*row[3 * i : 3 * i + 3]) for i, name in enumerate(keys) if row[3 * i] >= few}
    correlations = {
        (x, y): value
        for (x, y), value in zip(pairs, row[3 * len(keys) :], strict=True)
        if x in summaries and y in summaries and value is not None and not math.isnan(value)
    }
    return Numbers(summaries, correlations)


def _numeric_value(name: str, type_: str, label_kind: RangeKind | None) -> exp.Expr | None:
    """A value as a number, or NULL; None for columns without numbers."""
    match label_range_kind(type_):
        case "integer" | "number":
            return fragment("CASE WHEN isfinite(:value::DOUBLE) THEN :value::DOUBLE END")(value=col(name))
        case "date":
            days = fragment("date_diff('day', DATE '1970-01-01', :value::DATE)::DOUBLE")(value=col(name))
            return fragment("1970 + :days / 365.2425")(days=days)
    if label_kind is None:
        return None
    low, high = span_of_label(cast(col(name), "VARCHAR"), label_kind)
    return fragment("(:low + :high) / 2")(low=low, high=high)


def standardized_change(before: float, after: float, deviation: float | None) -> str:
    """The change of a mean, in standard deviations of the source.

    >>> standardized_change(10.0, 10.5, 5.0), standardized_change(2.0, 1.99999, 1.0)
    ('+0.1', '0')
    """
    change = f"{(after - before) / deviation:+.3f}".rstrip("0").rstrip(".") if deviation else ""
    return "0" if change in ("+0", "-0") else change.replace("-", "−")


def round_figure(value: float, year: bool = False) -> str:
    """Round to three digits, so that values of few rows hardly change the figure.

    >>> round_figure(1234.5), round_figure(0.012345), round_figure(1971.23, year=True)
    ('1,230', '0.0123', '1971.2')
    """
    if year:
        return f"{value:.1f}"
    digits = float(f"{value:.3g}")
    return f"{digits:,.0f}" if abs(digits) >= 100 else f"{digits:.3g}"


def changed_correlations(before: Numbers, after: Numbers) -> Sequence[tuple[str, str, float, float]]:
    """The correlations of pairs in both tables, the greatest change first."""
    pairs = [
        (*pair, value, after.correlations[pair])
        for pair, value in before.correlations.items()
        if pair in after.correlations
    ]
    return sorted(pairs, key=lambda pair: -abs(pair[2] - pair[3]))
