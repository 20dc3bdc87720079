"""Errors of typical counts from a release: a figure that compares sets, ranges and generalized values.

A count has one or two conditions on quasi-identifiers. Its estimate from a release is the sum, over the rows, of the
shares of their labels' values that meet the conditions, as the macro `share` computes it: all values of a label are
equally likely. The error is that of Xiao and Tao, "Anatomy: simple and effective privacy preservation" (VLDB 2006): the
difference from the true count as a share of it, or of 1 % of the rows if that is more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import combinations

from sqlglot import exp

from sqlanon.disclosure.dependencies import number_columns
from sqlanon.engines.statement_runner import StatementRunner
from sqlanon.hierarchies.bounds import RangeKind, label_bounds
from sqlanon.hierarchies.parts import label_range_kind
from sqlanon.sources.source import Source
from sqlanon.strategies.lattice.input import SearchInput
from sqlanon.strategies.recoding import ClassRecoding
from sqlanon.support.coding import CodedAttribute, Column
from sqlanon.support.expressions import (
    Namer,
    aliased,
    all_of,
    cast,
    col,
    fragment,
    select_star,
    template,
    union_all,
    value_or_zero,
)

_MAX_COUNTS = 10
_MIN_SHARE = 0.01  # of the rows: differences are compared with at least this many

_RANKED_VALUES = template("""
    SELECT value, row_number() OVER (ORDER BY value) AS rank, row_count
    FROM (SELECT :column AS value, count(*) AS row_count FROM :rows WHERE :column IS NOT NULL GROUP BY :column) AS v
""")
_RANKS_TO_MEDIAN = template("""
    SELECT 1, greatest(1, least(min(rank) FILTER (WHERE 2 * cumulated_rows >= total_rows), max(rank) - 1))
    FROM (
        SELECT rank, sum(row_count) OVER (ORDER BY rank) AS cumulated_rows, sum(row_count) OVER () AS total_rows
        FROM :ranked
    ) AS cumulated
""")
_HIERARCHY_LABELS = template("""
    SELECT :label AS label, r.rank FROM :coded AS c JOIN :ranked AS r ON c.value = r.value
""")
# The share of each label's values whose ranks are in the span of a condition.
_HIERARCHY_SHARES = template("""
    SELECT label, avg(CASE WHEN rank BETWEEN :low AND :high THEN 1 ELSE 0 END) AS share
    FROM (SELECT DISTINCT label, rank FROM :labels AS l) AS hierarchy_labels
    WHERE label IS NOT NULL
    GROUP BY label
""")
# A label that is not in the hierarchy is a set: its values are those of the rows that have it.
_SET_SHARES = template("""
    WITH
        released AS (
            SELECT DISTINCT :label::VARCHAR AS label, :value AS value FROM :released AS p
        ),
        set_values AS (
            SELECT DISTINCT released.label, ranked.rank
            FROM released
            JOIN :ranked AS ranked ON released.value = ranked.value
        ),
        shares AS (
            SELECT label, avg(CASE WHEN rank BETWEEN :low AND :high THEN 1 ELSE 0 END) AS share
            FROM set_values
            WHERE NOT label IN (SELECT label FROM :known)
            GROUP BY label
            UNION ALL
            SELECT label, share FROM :known
        )
    SELECT * FROM shares
""")
# A range has all distinct values between its ends; a label without ends may be any value. The bounds of integers and
# days are values of the range; of other numbers, the upper bound of `[20, 25)` and `<25` is the next value.
_RANGE_SHARES = template("""
    WITH ends AS (
        SELECT
            label,
            :least AS least,
            :greatest AS greatest,
            :is_number AND (label LIKE '[%' OR label LIKE '<%') AS half_open
        FROM (SELECT DISTINCT :label::VARCHAR AS label FROM :released AS p) AS released
        WHERE NOT label IN (SELECT label FROM :known)
    ),
    compared AS (
        SELECT :value AS value, rank FROM :ranked
    ),
    ranks AS (
        SELECT
            ends.label,
            coalesce(first_value.rank, 1) AS first,
            CASE
                WHEN ends.half_open AND ends.greatest = last_value.value THEN last_value.rank - 1
                ELSE coalesce(last_value.rank, (SELECT max(rank) FROM :ranked))
            END AS last
        FROM ends
        ASOF LEFT JOIN compared AS first_value ON ends.least <= first_value.value
        ASOF LEFT JOIN compared AS last_value ON ends.greatest >= last_value.value
    ),
    shares AS (
        SELECT
            label,
            greatest(0, least(last, :high) - greatest(first, :low) + 1) / greatest(1, last - first + 1) AS share
        FROM ranks
        UNION ALL
        SELECT label, share FROM :known
    )
    SELECT * FROM shares
""")
_COMPARED_AS = {"integer": "BIGINT", "number": "DOUBLE", "date": "TIMESTAMP"}


@dataclass(frozen=True)
class TypicalCounts:
    """Counts of the rows of a source, with their true answers.

    Each count is a tuple of one or two attributes by number. The condition on an attribute is a span of ranks in its
    table of ``ranked`` values: up to the median for numbers and dates, otherwise the most frequent value.
    """

    ranked: Sequence[exp.Table]
    spans: Sequence[tuple[int, int]]
    counts: Sequence[tuple[int, ...]]
    answers: Sequence[int]
    rows: int

    @property
    def attributes(self) -> list[int]:
        return sorted({i for count in self.counts for i in count})


def count_source(steps: StatementRunner, source: Source, names: Sequence[str], work: Namer) -> TypicalCounts:
    """Choose counts with conditions on columns of a source, and answer them. Makes ``ranked_i``."""
    ranked, spans = [], []
    for i, name in enumerate(names):
        values = _RANKED_VALUES(column=col(name), rows=source.relation)
        ranked.append(steps.create_table(work(f"ranked_{i}"), values))
        rank_of_mode = template("SELECT rank, rank FROM :ranked ORDER BY row_count DESC, rank LIMIT 1")
        span_query = rank_of_mode if label_range_kind(source.columns[name]) is None else _RANKS_TO_MEDIAN
        rows = steps.fetch_rows(span_query(ranked=ranked[i]), [])
        low, high = rows[0] if rows else (1, None)
        spans.append((low, high or 1))
    counts = _choose_counts(len(names))
    condition = fragment("coalesce(:rank BETWEEN :low AND :high, FALSE)")
    conditions = [condition(rank=col("rank", f"r{i}"), low=low, high=high) for i, (low, high) in enumerate(spans)]
    answer = fragment("count(*) FILTER (WHERE :conditions)")
    answers = [answer(conditions=all_of(conditions[i].copy() for i in count)) for count in counts]
    query = template("SELECT :counts, count(*) FROM :rows AS s")(counts=answers, rows=source.relation)
    for i in sorted({i for count in counts for i in count}):
        on = col(names[i], "s").eq(col("value", f"r{i}"))
        query = query.join(aliased(ranked[i], f"r{i}"), on=on, join_type="left", copy=False)
    *true_counts, total_rows = steps.fetch_rows(query, [])[0]
    return TypicalCounts(ranked, spans, counts, true_counts, total_rows)


def compute_count_error(
    steps: StatementRunner, counts: TypicalCounts, search_input: SearchInput, recoding: ClassRecoding
) -> float:
    """The mean error of counts that are estimated from a release.

    Released labels that are not in the hierarchy are ranges for numbers and dates, and sets for other attributes.
    """
    work, columns = search_input.work, recoding.columns
    for i in counts.attributes:
        recoding = recoding.with_column(Column(search_input.attributes[i].column))
    rows = number_columns(recoding.select(shuffled=False), len(columns) + len(counts.attributes))
    released = steps.create_table(work("counted_rows"), select_star(rows))
    labels = {column.quasi: f"r{j}" for j, column in enumerate(columns) if column.quasi is not None}
    shares = {
        i: _create_shares(steps, counts, search_input, i, released, col(labels[i]), col(f"r{position}"))
        for position, i in enumerate(counts.attributes, len(columns))
    }
    products = [
        reduce(lambda left, right: exp.Mul(this=left, expression=right),
               [value_or_zero(value=col("share", f"s{i}")) for i in count])
        for count in counts.counts
    ]  # fmt: skip
    estimate = fragment("coalesce(sum(:product), 0)::DOUBLE")
    estimates = [estimate(product=product) for product in products]
    query = template("SELECT :estimates FROM :released AS p")(estimates=estimates, released=released)
    for i, table in shares.items():
        on = fragment(":released::VARCHAR = :label")(released=col(labels[i], "p"), label=col("label", f"s{i}"))
        query = query.join(aliased(table, f"s{i}"), on=on, join_type="left", copy=False)
    least = max(1, _MIN_SHARE * counts.rows)
    pairs = zip(steps.fetch_rows(query, [])[0], counts.answers, strict=True)
    errors = [abs(estimated - true) / max(true, least) for estimated, true in pairs]
    return float(sum(errors) / len(errors))


def _create_shares(
    steps: StatementRunner,
    counts: TypicalCounts,
    search_input: SearchInput,
    i: int,
    released: exp.Table,
    label: exp.Column,
    value: exp.Column,
) -> exp.Table:
    """Create ``shares_i``: each released label of an attribute with the share of its values that meet the condition.

    ``label`` and ``value`` are columns of ``released``: the label and the value of the source.
    """
    work, attribute = search_input.work, search_input.attributes[i]
    (low, high), ranked = counts.spans[i], counts.ranked[i]
    known_shares = _HIERARCHY_SHARES(labels=_list_hierarchy_labels(attribute, ranked), low=low, high=high)
    known_labels = steps.create_table(work(f"known_labels_{i}"), known_shares)
    kind = label_range_kind(search_input.source.columns[attribute.column])
    span = {"known": known_labels, "ranked": ranked, "low": low, "high": high}
    if kind is None:
        share_query = _SET_SHARES(label=label, value=value, released=released, **span)
    else:
        share_query = _RANGE_SHARES(label=label, released=released, **span, **_range_ends(kind))
    return steps.create_table(work(f"shares_{i}"), share_query)


def _list_hierarchy_labels(attribute: CodedAttribute, ranked: exp.Table) -> exp.Query:
    """Each ``label`` of a hierarchy with the ``rank`` of each value under it."""
    labels: list[exp.Expr] = [] if attribute.open_ends else [cast(col("value", "c"), "VARCHAR")]
    labels += [col(f"label_{level}", "c") for level in range(attribute.lowest_labelled, attribute.height + 1)]
    return union_all(*(_HIERARCHY_LABELS(label=label, coded=attribute.table, ranked=ranked) for label in labels))


def _range_ends(kind: RangeKind) -> dict[str, exp.Expr]:
    """The ends of the range that a label shows, and the value to compare with them."""
    least, greatest = label_bounds(col("label"), kind)
    if kind == "date":
        least = fragment(":day::TIMESTAMP")(day=least)
        greatest = fragment(":day::TIMESTAMP + to_days(1) - to_microseconds(1)")(day=greatest)
    is_number = exp.true() if kind == "number" else exp.false()
    value = cast(col("value"), _COMPARED_AS[kind])
    return {"least": least, "greatest": greatest, "is_number": is_number, "value": value}


def _choose_counts(attributes: int) -> list[tuple[int, ...]]:
    """At most ten counts, half with one condition and half with two if possible, spread evenly over the attributes.

    >>> _choose_counts(3)
    [(0,), (1,), (2,), (0, 1), (0, 2), (1, 2)]
    >>> _choose_counts(24)
    [(0,), (4,), (9,), (14,), (19,), (0, 1), (2, 13), (5, 11), (8, 18), (12, 23)]
    """
    singles = [(i,) for i in range(attributes)]
    pairs = list(combinations(range(attributes), 2))
    single_count = min(len(singles), max(_MAX_COUNTS // 2, _MAX_COUNTS - len(pairs)))
    return [*_pick(singles, single_count), *_pick(pairs, min(len(pairs), _MAX_COUNTS - single_count))]


def _pick(items: Sequence[tuple[int, ...]], count: int) -> list[tuple[int, ...]]:
    return [items[len(items) * i // count] for i in range(count)]
