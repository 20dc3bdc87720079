"""Statements that measure how far released columns narrow a quasi-identifier, and the thresholds of their figures.

Two persons with the same label share the ground value of a quasi-identifier with some probability. Among persons who
also agree in another released column, independence predicts the same probability. Both are estimated without bias from
the pairs of persons in groups of any size, and from samples. A column narrows by its excess over that prediction.

The excess counts where others can know which values go together: if several persons share a value of the column, or if
the ground value determines the column, as a postcode determines the district. No reference table has the values that
only two or three persons share, such as the income of a household.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlglot import exp

from sqlanon.support.expressions import (
    as_column,
    col,
    count_rows,
    fragment,
    number,
    prepend_ctes,
    select,
    table,
    template,
    union_all,
)

BY_CHANCE = 1e-6
"""A group with one ground value reveals it, unless unrelated columns show such a group with this probability."""

SHARED = 5
"""Number of persons with a value of the column from which others may know the ground values that go with it."""

COPIED = 0.5
"""Probability that persons with one ground value agree in the column, from which the ground value determines it."""

COMMON = 0.81
"""Probability that two persons share their value, from which sharing it reveals nothing: 90 % have one value."""

FACTOR = 1.5
"""A column narrows if two persons who agree in it are likelier to share the ground value by this factor."""

REDUCTION = 0.15
"""A column also narrows if it reduces the probability that two persons differ in the ground value by this share."""

PINNED = 0.05
"""Share of persons with a revealed ground value from which a column narrows; also the share of persons that must be in
groups at all."""

PARTS = 20
"""Number of parts with equally many rows in which numbers and dates with many values are measured."""

_LOG_CONFIDENCE = 15.0
"""Columns are reported if independence shows their excess with a probability below exp(-15), one in 3 million."""

HASH_VALUE = fragment("CASE WHEN :value IS NOT NULL THEN hash(:value) END")
RANK_VALUE = fragment("CASE WHEN :value IS NOT NULL THEN dense_rank() OVER (ORDER BY :value) END")
"""Numbers for values; NULL for NULL, which counts no person. Hashes are faster, in an engine that has them; two of
20,000 values share one of 64 bits with a probability of 10^-11."""

_COUNTS, _GROUNDS, _LABELS, _GROUPS = (table(f"sqlanon {name}") for name in ("counts", "grounds", "labels", "groups"))

_PERSON_COUNT = fragment("count(DISTINCT :person)")

# Steps that the statements share. A `candidate` is the number of a `Grouping`.
_COUNT_GROUP = template("""
    SELECT :candidate AS candidate, :label AS label, :ground AS ground, :columns, :count::DOUBLE AS persons
    FROM :rows
    GROUP BY :positions
""")
_SUM_GROUNDS = template("""
    SELECT candidate, label, ground, sum(persons) AS persons FROM :counts WHERE candidate IN (:candidates)
    GROUP BY candidate, label, ground
""")
_DESCRIBE_LABELS = template("""
    SELECT
        candidate,
        label,
        sum(persons) AS persons,
        count(*) AS ground_values,
        sum(persons * (persons - 1)) / greatest(sum(persons) * (sum(persons) - 1), 1) AS alike,
        sum(persons * (persons - 1) * (persons - 2))
            / greatest(sum(persons) * (sum(persons) - 1) * (sum(persons) - 2), 1) AS three_alike
    FROM :grounds
    GROUP BY candidate, label
    HAVING count(*) > 1
""")
# Only groups of two or more persons count, with values that several persons share or the ground value determines.
_DESCRIBE_GROUPS = template("""
    SELECT g.*, l.persons AS label_persons, l.ground_values AS label_values, l.alike AS label_alike, l.three_alike
    FROM (
        SELECT
            candidate,
            label,
            :names,
            sum(persons) AS persons,
            count(*) AS ground_values,
            sum(persons * (persons - 1)) / greatest(sum(persons) * (sum(persons) - 1), 1) AS alike,
            sum(sum(persons)) OVER (PARTITION BY candidate, :names) AS shared_by
        FROM :counts
        GROUP BY candidate, label, :names
    ) AS g
    JOIN :labels AS l ON g.candidate = l.candidate AND g.label IS NOT DISTINCT FROM l.label
    LEFT JOIN (
        -- the probability that two persons with the same ground value agree in the columns
        SELECT candidate, sum(persons * agree) / sum(persons) AS determined
        FROM (
            SELECT
                candidate,
                sum(persons) AS persons,
                sum(persons * (persons - 1)) / (sum(persons) * (sum(persons) - 1)) AS agree
            FROM :counts
            GROUP BY candidate, label, ground
            HAVING sum(persons) > 1
        ) AS agreeing
        GROUP BY candidate
    ) AS d ON g.candidate = d.candidate
    WHERE g.persons > 1 AND (g.shared_by >= :shared OR coalesce(d.determined, 0) >= :copied)
""")

# By independence, the number of pairs that share a value varies by `spread` times one figure of the label, and by
# another one with the rows outside groups. A person with rows in several groups counts once: the sums of groups are
# scaled to the persons of the label.
_NARROWING = template("""
    SELECT
        c.candidate AS candidate,
        coalesce(sum(s.persons), 0)::BIGINT AS rows,
        coalesce(max(c.persons), 0)::BIGINT AS all_rows,
        (sum(s.persons * s.label_values) / sum(s.persons))::DOUBLE AS before,
        (sum(s.scale * s.values_left) / sum(s.persons))::DOUBLE AS after,
        (sum(s.persons * s.label_alike) / sum(s.persons))::DOUBLE AS alike_before,
        (sum(s.scale * s.alike) / sum(s.persons))::DOUBLE AS alike_after,
        sum(
            s.scale * s.spread
                * greatest(s.label_alike + s.label_alike * s.label_alike - 2 * s.three_alike, 0)
            + s.persons * (1 - s.persons / s.label_persons)
                * greatest(s.three_alike - s.label_alike * s.label_alike, 0)
        )::DOUBLE AS variance,
        coalesce(sum(least(coalesce(s.pinned, 0), s.persons)), 0)::BIGINT AS pinned
    FROM (SELECT candidate, sum(persons) AS persons FROM :grounds GROUP BY candidate) AS c
    LEFT JOIN (
        SELECT
            candidate,
            label,
            label_persons,
            label_values,
            label_alike,
            three_alike,
            least(sum(persons), label_persons) AS persons,
            least(sum(persons), label_persons) / sum(persons) AS scale,
            sum(persons * ground_values) AS values_left,
            sum(persons * alike) AS alike,
            sum(persons / (2 * (persons - 1))) AS spread,
            sum(persons) FILTER (
                WHERE ground_values = 1 AND label_alike < :common
                    AND persons / 2 * ln(greatest(label_alike, 1e-300)) < ln(:by_chance)
            ) AS pinned
        FROM :groups
        GROUP BY candidate, label, label_persons, label_values, label_alike, three_alike
    ) AS s ON c.candidate = s.candidate
    GROUP BY c.candidate
""")

# Of n persons drawn from the N of a label, none has a value of m persons with about the probability
# (1 - a / (N - (b - 1) / 2)) ^ b; a is the greater of n and m, b the lesser one.
_BY_CHANCE = template("""
    WITH
        group_sizes AS (
            SELECT label, label_persons, persons, sum(persons) AS rows
            FROM :groups
            GROUP BY label, label_persons, persons
        ),
        ground_sizes AS (
            SELECT label, persons, count(*) AS ground_values FROM :grounds GROUP BY label, persons
        ),
        expected_values AS (
            SELECT
                g.rows,
                sum(v.ground_values * (1 - power(
                    greatest(
                        1 - greatest(g.persons, v.persons)
                            / greatest(g.label_persons - (least(g.persons, v.persons) - 1) / 2, 1),
                        0
                    ),
                    least(g.persons, v.persons)
                ))) AS expected
            FROM group_sizes AS g
            JOIN ground_sizes AS v ON g.label IS NOT DISTINCT FROM v.label
            GROUP BY g.label, g.persons, g.rows
        )
    SELECT (sum(rows * expected) / sum(rows))::DOUBLE AS expected
    FROM expected_values
""")

_PINNED = template("""
    SELECT g.label AS label_0, g.column_0 AS label_1, g.persons::BIGINT AS row_count
    FROM (
        SELECT label, column_0, sum(persons) AS persons
        FROM :counts
        GROUP BY label, column_0
        HAVING count(*) = 1 AND sum(persons) > 1
    ) AS g
    JOIN :labels AS l ON g.label IS NOT DISTINCT FROM l.label
    WHERE g.persons / 2 * ln(greatest(l.alike, 1e-300)) < ln(:by_chance)
""")


@dataclass(frozen=True)
class Grouping:
    """Expressions over rows: a released label, the ground value behind it, the columns that may narrow it, and the
    person. Without a person, each row is one."""

    label: exp.Expr
    ground: exp.Expr
    columns: Sequence[exp.Expr]
    person: exp.Expr | None = None


def measure_narrowing(rows: exp.Expr, groupings: Sequence[Grouping], shared: float = SHARED) -> exp.Select:
    """One row of figures for each grouping, about its groups with one label and equal values of the columns.

    Columns: ``candidate``, the number of the grouping; ``rows`` of the groups that count, of ``all_rows``; ``before``
    and ``after``, the ground values left by the label, and by the group; ``alike_before`` and ``alike_after``, the
    probability that two of their rows share the ground value; ``variance`` of the pairs that share it, by independence;
    ``pinned``, the rows whose ground value the group reveals. With a person, all figures count persons. A grouping
    without rows has no row of figures.

    Several groupings are measured at once: their labels, ground values and columns then have one type, as those of
    `number_values` have.
    """
    query = _NARROWING(grounds=_GROUNDS.copy(), groups=_GROUPS.copy(), common=COMMON, by_chance=BY_CHANCE)
    return _with_steps(query, rows, groupings, shared)


def values_by_chance(rows: exp.Expr, grouping: Grouping, shared: float = SHARED) -> exp.Select:
    """One number: the ground values that independence leaves in the groups of `measure_narrowing`."""
    return _with_steps(_BY_CHANCE(grounds=_GROUNDS.copy(), groups=_GROUPS.copy()), rows, [grouping], shared)


def pinned_groups(rows: exp.Expr, label: exp.Expr, ground: exp.Expr, column: exp.Expr) -> exp.Select:
    """Groups of one label and one value of a column that leave one ground value of several, and not by chance:
    ``label_0`` (the label), ``label_1`` (the column's value), ``row_count``."""
    query = _PINNED(counts=_COUNTS.copy(), labels=_LABELS.copy(), by_chance=BY_CHANCE)
    return _with_steps(query, rows, [Grouping(label, ground, [column])], SHARED)


def number_values(
    rows: exp.Expr, columns: Collection[str], unchanged: Collection[str], number_value: Callable[..., exp.Expr]
) -> exp.Select:
    """Rows with a number for each value of some columns, by `HASH_VALUE` or `RANK_VALUE`, and other columns
    unchanged."""
    numbers = [as_column(number_value(value=col(name)), name) for name in columns]
    return select([*numbers, *(col(name) for name in unchanged)], rows)


def _with_steps(query: exp.Select, rows: exp.Expr, groupings: Sequence[Grouping], shared: float) -> exp.Select:
    """A query with the steps that it reads."""
    width = max(len(grouping.columns) for grouping in groupings)
    names = [col(f"column_{i}") for i in range(width)]
    counts, grounds = list[exp.Query](), list[exp.Query]()
    summed: list[exp.Expr] = []  # candidates whose ground values are counted from the groups
    for candidate, grouping in enumerate(groupings):
        columns = [*grouping.columns, *[number(0)] * (width - len(grouping.columns))]
        count = count_rows() if grouping.person is None else _PERSON_COUNT(person=grouping.person)
        values = {"candidate": candidate, "label": grouping.label, "ground": grouping.ground, "count": count}
        keys = [number(position) for position in range(2, 4 + len(grouping.columns))]
        output = [as_column(column.copy(), name.name) for column, name in zip(columns, names, strict=True)]
        counts.append(_COUNT_GROUP(**values, columns=output, rows=rows.copy(), positions=keys))
        if grouping.person is None:
            summed.append(number(candidate))
        else:  # a person with several rows may have several values of a column, and counts once for the ground value
            grounds.append(_COUNT_GROUP(**values, columns=[], rows=rows.copy(), positions=keys[:2]))
    if summed:
        grounds.append(_SUM_GROUNDS(counts=_COUNTS.copy(), candidates=summed))
    groups = _DESCRIBE_GROUPS(names=names, counts=_COUNTS.copy(), labels=_LABELS.copy(), shared=shared, copied=COPIED)
    steps: dict[str, exp.Expr] = {
        _COUNTS.name: union_all(*counts),
        _GROUNDS.name: union_all(*grounds),
        _LABELS.name: _DESCRIBE_LABELS(grounds=_GROUNDS.copy()),
        _GROUPS.name: groups,
    }
    return prepend_ctes(query, steps, materialized=True)


def smallest_group(rows: exp.Expr, keys: Sequence[exp.Expr], person: exp.Expr | None = None) -> exp.Select:
    """One number: the rows, or the persons, of the smallest group that agrees in the keys."""
    count = count_rows() if person is None else _PERSON_COUNT(person=person)
    return template("""
        SELECT coalesce(min(persons), 0)::BIGINT AS smallest
        FROM (SELECT :count AS persons FROM :rows GROUP BY :keys) AS c
    """)(count=count, rows=rows, keys=list(keys))


def rank_part(value: exp.Expr) -> exp.Expr:
    """The part of a number or a date, of `PARTS` with equally many rows; NULL for NULL."""
    return fragment("""
        CASE WHEN :value IS NOT NULL
        THEN floor((rank() OVER (ORDER BY :value) - 1) * :parts / (count(:value) OVER ()))::INTEGER END
    """)(value=value, parts=float(PARTS))


def narrowing_query(source: exp.Expr, ground: str, columns: Mapping[str, bool]) -> exp.Select:
    """The query that shows narrowing to a data holder: the values of ``ground`` left by other columns, fewest first.

    ``columns`` says for each column whether it is known to one of `PARTS` parts only.
    """
    names = [col(name) for name in columns]
    if not any(columns.values()):
        return template("""
            SELECT :columns, count(DISTINCT :ground) AS values_left, count(*) AS rows
            FROM :source
            GROUP BY :columns
            ORDER BY values_left, rows DESC
        """)(columns=names, ground=col(ground), source=source)
    parts = {name: f"part of {name}" for name, in_parts in columns.items() if in_parts}
    ends: list[exp.Expr] = []
    for name in parts:
        ends += [
            as_column(exp.Min(this=col(name)), f"least {name}"),
            as_column(exp.Max(this=col(name)), f"greatest {name}"),
        ]
    return template("""
        SELECT :ends, :columns, count(DISTINCT :ground) AS values_left, count(*) AS rows
        FROM (SELECT :inner, :ground FROM :source) AS s
        GROUP BY :columns
        ORDER BY values_left, rows DESC
    """)(
        ends=ends,
        columns=[col(parts.get(name, name)) for name in columns],
        inner=[*names, *(as_column(rank_part(col(name)), part) for name, part in parts.items())],
        ground=col(ground),
        source=source,
    )


def has_excess(figures: Mapping[str, Any], baseline: float) -> bool:
    """Whether persons share the ground value more often than by a baseline probability, beyond chance.

    Source of the bound on chance: G. Bennett, "Probability inequalities for the sum of independent random variables",
    Journal of the American Statistical Association 57 (1962).
    """
    if not figures["alike_before"] or figures["rows"] < PINNED * figures["all_rows"]:
        return False
    excess = (figures["alike_after"] - baseline) * figures["rows"] / 2
    variance = max(figures["variance"] * baseline / figures["alike_before"], 1e-9)
    ratio = excess / variance
    return bool(excess > 0 and variance * ((1 + ratio) * math.log1p(ratio) - ratio) >= _LOG_CONFIDENCE)


def has_large_excess(figures: Mapping[str, Any], baseline: float) -> bool:
    """Whether the excess matters: a ground value is likelier by `FACTOR`, or uncertainty shrinks by `REDUCTION`."""
    after = figures["alike_after"]
    reduction = (after - baseline) / (1 - baseline) if baseline < 1 else 0.0
    return bool(after >= FACTOR * baseline or reduction >= REDUCTION)
