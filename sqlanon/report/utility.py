"""What a release is still good for: means and correlations of its columns of numbers, and what each column lost."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from sqlglot import exp

from sqlanon.engines.base import Engine
from sqlanon.hierarchies.bounds import RangeKind
from sqlanon.hierarchies.parts import label_range_kind
from sqlanon.release.draft import ReleaseDraft
from sqlanon.release.manifest import Manifest
from sqlanon.report.distributions import spans_of
from sqlanon.strategies.compare import compute_attribute_losses
from sqlanon.support.expressions import all_of, as_column, cast, col, fragment, is_not_null, subquery, template

MOST = 8
"""Correlations are shown of up to this many columns."""

_NUMBERS = template("SELECT :columns FROM :relation")
_NUMBER = fragment("CASE WHEN isfinite(:value::DOUBLE) THEN :value::DOUBLE END")
_DAYS = fragment("date_diff('day', DATE '1970-01-01', :value::DATE)::DOUBLE")
_MIDDLE = fragment("(:low + :high) / 2")
_YEAR_OF = fragment("1970 + :days / 365.2425")
_MEAN = fragment("avg(:value)")
_DEVIATION = fragment("stddev_samp(:value)")
_COUNT = fragment("count(:value)")
_CORRELATION = fragment("corr(:x, :y) FILTER (WHERE :both)")
_FIGURES = template("SELECT :figures FROM :numbers")


_LEFT = template("""
    SELECT
        count(*) AS values,
        count(*) FILTER (WHERE n < :few) AS rare,
        coalesce(sum(n), 0)::BIGINT AS rows,
        coalesce(sum(n) FILTER (WHERE label = '*'), 0)::BIGINT AS hidden,
        coalesce(sum(n) FILTER (WHERE high IS NOT NULL AND low IS NOT NULL), 0)::BIGINT AS ranged,
        sum(n * (high - low)) / sum(n) FILTER (WHERE high IS NOT NULL AND low IS NOT NULL) AS width
    FROM (
        SELECT label, n, :low::DOUBLE AS low, :high::DOUBLE AS high
        FROM (SELECT :column::VARCHAR AS label, count(*) AS n FROM :relation GROUP BY :column) AS v
    ) AS w
""")


@dataclass(frozen=True)
class ColumnLeft:
    """What is left of a generalized column, by its released labels: how many there are, the share of the rows that read
    ``*``, and the mean width where all others are ranges of numbers, or of dates in years."""

    values: int
    hidden: float
    width: float | None


def columns_left(
    engine: Engine, relation: exp.Expr, labels: Mapping[str, RangeKind | None], few: int
) -> dict[str, ColumnLeft]:
    """Of columns whose labels are all in enough rows to be counted."""
    found = {}
    for name, kind in labels.items():
        low, high = spans_of(col("label"), kind or "number")
        query = _LEFT(low=low, high=high, column=col(name), relation=relation.copy(), few=few)
        values, rare, rows, hidden, ranged, width = engine.rows(query)[0]
        is_ranged = ranged and ranged + hidden == rows and width > 1
        if not rare:
            found[name] = ColumnLeft(values, hidden / max(rows, 1), width if is_ranged else None)
    return found


@dataclass(frozen=True)
class ColumnNumbers:
    """A column of numbers, or of dates in years: the rows that have one, their mean and standard deviation."""

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
    """What the labels of a column are ranges of, by the rules of its hierarchy."""
    attributes = {attribute.lower(): spec for attribute, spec in claims.policy.get("attributes", {}).items()}
    rules = attributes.get(name.lower(), {}).get("hierarchy")
    kinds = {rule.get("rule") for rule in rules if isinstance(rule, dict)} if isinstance(rules, list) else set()
    return "date" if "dates" in kinds else "number" if "intervals" in kinds else None


def numbers_of(
    engine: Engine, relation: exp.Expr, types: Mapping[str, str], labels: Mapping[str, RangeKind | None], few: int
) -> Numbers:
    """The means and correlations of columns by name; of a label the middle of its range counts."""
    values = {name: _value(name, type_, labels.get(name)) for name, type_ in types.items()}
    usable = {name: value for name, value in values.items() if value is not None}
    if not usable:
        return NO_NUMBERS
    keys = {name: f"v{i}" for i, name in enumerate(usable)}
    query = _NUMBERS(columns=[as_column(value, keys[name]) for name, value in usable.items()], relation=relation)
    figures: list[exp.Expr] = []
    for key in keys.values():
        figures += [make(value=col(key)) for make in (_COUNT, _MEAN, _DEVIATION)]
    pairs = list(combinations(list(keys)[:MOST], 2))
    for x, y in pairs:
        both = all_of([is_not_null(col(keys[x])), is_not_null(col(keys[y]))])
        figures.append(_CORRELATION(x=col(keys[x]), y=col(keys[y]), both=both))
    output = [as_column(one, f"f{i}") for i, one in enumerate(figures)]
    row = engine.rows(_FIGURES(figures=output, numbers=subquery(query, "numbers")))[0]
    columns = {
        name: ColumnNumbers(row[3 * i], row[3 * i + 1], row[3 * i + 2])
        for i, name in enumerate(keys)
        if row[3 * i] >= few
    }
    found = zip(pairs, row[3 * len(keys) :], strict=True)
    correlations = {
        (x, y): value
        for (x, y), value in found
        if x in columns and y in columns and value is not None and not math.isnan(value)
    }
    return Numbers(columns, correlations)


def _value(name: str, type_: str, labels: RangeKind | None) -> exp.Expr | None:
    """A value as a number; NULL where it has none."""
    match label_range_kind(type_):
        case "integer" | "number":
            return _NUMBER(value=col(name))
        case "date":
            return _YEAR_OF(days=_DAYS(value=col(name)))
    if labels is None:
        return None
    low, high = spans_of(cast(col(name), "VARCHAR"), labels)
    return _MIDDLE(low=low, high=high)


def loss_by_column(draft: ReleaseDraft) -> dict[str, float]:
    """What each quasi-identifier loses, by the measure `loss`, from 0 to 1; before noise and decoys."""
    return compute_attribute_losses(draft.search_input, draft.result)


def changed(before: float, after: float, spread: float | None) -> str:
    """How far a mean moved, in standard deviations of the source.

    >>> changed(10.0, 10.5, 5.0), changed(1.0, 1.0, None), changed(2.0, 1.99999, 1.0)
    ('+0.1', '', '0')
    """
    moved = f"{(after - before) / spread:+.3f}".rstrip("0").rstrip(".") if spread else ""
    return "0" if moved in ("+0", "-0") else moved.replace("-", "−")


def rounded(value: float, year: bool = False) -> str:
    """Three digits: what is in few rows hardly shows in them.

    >>> rounded(1234.5), rounded(0.012345), rounded(1971.23, year=True)
    ('1,230', '0.0123', '1971.2')
    """
    if year:
        return f"{value:.1f}"
    digits = float(f"{value:.3g}")
    return f"{digits:,.0f}" if abs(digits) >= 100 else f"{digits:.3g}"


def in_years(types: Mapping[str, str], labels: Mapping[str, RangeKind | None], name: str) -> bool:
    """Whether the numbers of a column are years."""
    return label_range_kind(types.get(name, "VARCHAR")) == "date" or labels.get(name) == "date"


def pairs_that_moved(before: Numbers, after: Numbers) -> Sequence[tuple[str, str, float, float]]:
    """The correlations of both, those that changed most first."""
    both = [
        (*pair, value, after.correlations[pair])
        for pair, value in before.correlations.items()
        if pair in after.correlations
    ]
    return sorted(both, key=lambda one: -abs(one[2] - one[3]))
