"""How well typical counts can be answered from a release: a figure that compares sets, ranges and generalized values.

A count asks for the rows with one or two conditions on quasi-identifiers. Its answer from a release is the sum, over
the rows, of the shares of their labels' values that meet the conditions, as the macro `share` has it: all values that a
label stands for are equally likely. The error is that of Xiao and Tao, "Anatomy: simple and effective privacy
preservation" (VLDB 2006): the difference from the true count as a share of it, or of 1 % of the rows if that is more.
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
    subquery,
    template,
    union_all,
)

MOST = 10
"""The most counts that are asked for."""

_LEAST = 0.01  # of the rows: a difference is compared with as many at least

_RANKED = template("""
    SELECT value, row_number() OVER (ORDER BY value) AS rank, n
    FROM (SELECT :column AS value, count(*) AS n FROM :rows WHERE :column IS NOT NULL GROUP BY :column) AS v
""")
_TO_MEDIAN = template("""
    SELECT 1, greatest(1, least(min(rank) FILTER (WHERE 2 * below >= every), max(rank) - 1))
    FROM (SELECT rank, sum(n) OVER (ORDER BY rank) AS below, sum(n) OVER () AS every FROM :ranked) AS r
""")
_MOST_FREQUENT = template("SELECT rank, rank FROM :ranked ORDER BY n DESC, rank LIMIT 1")
_ROWS = template("SELECT :counts, count(*) FROM :rows AS s")
_COUNT = fragment("count(*) FILTER (WHERE :conditions)")
_IS_WITHIN = fragment("coalesce(:rank BETWEEN :low AND :high, FALSE)")
_GENERALIZED = template("SELECT :label AS label, r.rank FROM :coded AS c JOIN :ranked AS r ON c.value = r.value")
_OF_HIERARCHY = template("""
    SELECT label, avg(CASE WHEN rank BETWEEN :low AND :high THEN 1 ELSE 0 END) AS share
    FROM (SELECT DISTINCT label, rank FROM :labels AS every) AS known
    WHERE label IS NOT NULL
    GROUP BY label
""")
_OTHER_LABELS = template("SELECT DISTINCT :label::VARCHAR AS label, :value AS value FROM :released AS p")
_OF_SETS = template("""
    SELECT label, avg(CASE WHEN rank BETWEEN :low AND :high THEN 1 ELSE 0 END) AS share
    FROM (SELECT DISTINCT p.label, r.rank FROM :labels AS p JOIN :ranked AS r ON p.value = r.value) AS seen
    WHERE NOT label IN (SELECT label FROM :known)
    GROUP BY label
""")
# A range has all distinct values between its ends; what shows no ends may be any of them.
_OF_RANGES = template("""
    WITH ends AS (
        SELECT label, :least AS least, :greatest AS greatest, :is_half_open AS is_half_open
        FROM (SELECT DISTINCT label FROM :labels AS every WHERE NOT label IN (SELECT label FROM :known)) AS others
    ), places AS (
        SELECT
            e.label,
            coalesce(l.rank, 1) AS first,
            CASE
                WHEN e.is_half_open AND e.greatest = g.value THEN g.rank - 1
                ELSE coalesce(g.rank, (SELECT max(rank) FROM :ranked))
            END AS last
        FROM ends AS e
        ASOF LEFT JOIN :below AS l ON e.least <= l.value
        ASOF LEFT JOIN :above AS g ON e.greatest >= g.value
    )
    SELECT label, greatest(0, least(last, :high) - greatest(first, :low) + 1) / greatest(1, last - first + 1) AS share
    FROM places
""")
# Bounds of integers and days are values of the range; of other numbers, that of `[20, 25)` and `<25` is the next one.
_IS_HALF_OPEN = fragment("label LIKE '[%' OR label LIKE '<%'")
_COMPARED = template("SELECT :value AS value, rank FROM :ranked")
_COMPARED_AS = {"integer": "BIGINT", "number": "DOUBLE", "date": "TIMESTAMP"}
_START_OF_DAY = fragment(":day::TIMESTAMP")
_END_OF_DAY = fragment(":day::TIMESTAMP + to_days(1) - to_microseconds(1)")
_SUMS = template("SELECT :sums FROM :released AS p")
_SUM = fragment("coalesce(sum(:product), 0)::DOUBLE")
_SHARE = fragment("coalesce(:share, 0)")
_IS_LABEL = fragment(":released::VARCHAR = :label")


@dataclass(frozen=True)
class TypicalCounts:
    """Counts of the rows of a source, with their true answers.

    A condition is a span of ranks among the distinct values of an attribute, which ``ranked`` has: of numbers and dates
    those up to the median, of other attributes the most frequent value. A count has one or two attributes, by number.
    """

    ranked: Sequence[exp.Table]
    spans: Sequence[tuple[int, int]]
    counts: Sequence[tuple[int, ...]]
    answers: Sequence[int]
    rows: int

    @property
    def attributes(self) -> list[int]:
        return sorted({i for count in self.counts for i in count})


def typical_counts(steps: StatementRunner, source: Source, names: Sequence[str], work: Namer) -> TypicalCounts:
    """Counts with conditions on columns of a source, at most `MOST`. Makes ``ranked_i``."""
    ranked = [
        steps.create_table(work(f"ranked_{i}"), _RANKED(column=col(name), rows=source.relation))
        for i, name in enumerate(names)
    ]
    spans = []
    for name, table in zip(names, ranked, strict=True):
        query = _MOST_FREQUENT if label_range_kind(source.columns[name]) is None else _TO_MEDIAN
        found = steps.fetch_rows(query(ranked=table), [])
        low, high = found[0] if found else (1, None)
        spans.append((low, high or 1))
    counts = _chosen_counts(len(names))
    conditions = [_IS_WITHIN(rank=col("rank", f"r{i}"), low=low, high=high) for i, (low, high) in enumerate(spans)]
    answers = [_COUNT(conditions=all_of(conditions[i].copy() for i in count)) for count in counts]
    rows = _ROWS(counts=answers, rows=source.relation)
    for i in sorted({i for count in counts for i in count}):
        on = col(names[i], "s").eq(col("value", f"r{i}"))
        rows = rows.join(aliased(ranked[i], f"r{i}"), on=on, join_type="left", copy=False)
    *found, every = steps.fetch_rows(rows, [])[0]
    return TypicalCounts(ranked, spans, counts, found, every)


def error_of_counts(
    steps: StatementRunner,
    asked: TypicalCounts,
    prepared: SearchInput,
    recoding: ClassRecoding,
    work: Namer,
) -> float:
    """The mean error of the counts if they are answered from a release: of numbers and dates, labels that no hierarchy
    has are ranges, of other attributes sets."""
    columns = recoding.columns
    for i in asked.attributes:
        recoding = recoding.with_column(Column(prepared.attributes[i].column))
    rows = number_columns(recoding.select(shuffled=False), len(columns) + len(asked.attributes))
    released = steps.create_table(work("counted_rows"), select_star(rows))
    labels = {column.quasi: f"r{j}" for j, column in enumerate(columns) if column.quasi is not None}
    shares = {}
    for place, i in enumerate(asked.attributes, len(columns)):
        low, high = asked.spans[i]
        ranked, nodes = asked.ranked[i], _labels_of_hierarchy(prepared.attributes[i], asked.ranked[i])
        known = steps.create_table(work(f"known_labels_{i}"), _OF_HIERARCHY(labels=nodes, low=low, high=high))
        seen = _OTHER_LABELS(label=col(labels[i]), value=col(f"r{place}"), released=released)
        kind = label_range_kind(prepared.source.columns[prepared.attributes[i].column])
        given = {"labels": seen, "known": known, "ranked": ranked, "low": low, "high": high}
        others = _OF_SETS(**given) if kind is None else _OF_RANGES(**given, **_ends(kind, ranked))
        shares[i] = steps.create_table(
            work(f"shares_{i}"), union_all(select_star(known), select_star(subquery(others, "others")))
        )
    products = [reduce(_times, [_SHARE(share=col("share", f"s{i}")) for i in count]) for count in asked.counts]
    query = _SUMS(sums=[_SUM(product=one) for one in products], released=released)
    for i, table in shares.items():
        on = _IS_LABEL(released=col(labels[i], "p"), label=col("label", f"s{i}"))
        query = query.join(aliased(table, f"s{i}"), on=on, join_type="left", copy=False)
    estimates = steps.fetch_rows(query, [])[0]
    least = max(1, _LEAST * asked.rows)
    errors = [abs(estimate - true) / max(true, least) for estimate, true in zip(estimates, asked.answers, strict=True)]
    return float(sum(errors) / len(errors))


def _labels_of_hierarchy(attribute: CodedAttribute, ranked: exp.Table) -> exp.Query:
    """Each label of a hierarchy beside the ranks of the values under it: ``label`` and ``rank``."""
    values: list[exp.Expr] = [] if attribute.open_ends else [cast(col("value", "c"), "VARCHAR")]
    values += [col(f"label_{level}", "c") for level in range(attribute.lowest_labelled, attribute.height + 1)]
    return union_all(*(_GENERALIZED(label=label, coded=attribute.table, ranked=ranked) for label in values))


def _ends(kind: RangeKind, ranked: exp.Table) -> dict[str, exp.Expr]:
    """The ends of the ranges that labels show, and the values to compare with them."""
    least, greatest = label_bounds(col("label"), kind)
    if kind == "date":
        least, greatest = _START_OF_DAY(day=least), _END_OF_DAY(day=greatest)
    values = _COMPARED(value=cast(col("value"), _COMPARED_AS[kind]), ranked=ranked)
    is_half_open = _IS_HALF_OPEN() if kind == "number" else exp.false()
    ends = {"least": least, "greatest": greatest, "is_half_open": is_half_open}
    return {**ends, "below": values, "above": values.copy()}


def _times(left: exp.Expr, right: exp.Expr) -> exp.Expr:
    return exp.Mul(this=left, expression=right)


def _chosen_counts(attributes: int) -> list[tuple[int, ...]]:
    """At most ten: half with one condition and half with two, as far as there are so many, on all attributes alike.

    >>> _chosen_counts(3)
    [(0,), (1,), (2,), (0, 1), (0, 2), (1, 2)]
    >>> _chosen_counts(24)
    [(0,), (4,), (9,), (14,), (19,), (0, 1), (2, 13), (5, 11), (8, 18), (12, 23)]
    """
    singles = [(i,) for i in range(attributes)]
    pairs = list(combinations(range(attributes), 2))
    few = min(len(singles), max(MOST // 2, MOST - len(pairs)))
    return [*_spread(singles, few), *_spread(pairs, min(len(pairs), MOST - few))]


def _spread(items: Sequence[tuple[int, ...]], count: int) -> list[tuple[int, ...]]:
    return [items[len(items) * i // count] for i in range(count)]
