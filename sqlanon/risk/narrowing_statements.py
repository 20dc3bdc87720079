"""How much released columns narrow the generalized quasi-identifiers, beyond their released labels.

Two rows with one label share their ground value with some probability; with the same values of other released columns,
too, with a greater one if these say more of it. The shares of pairs are estimated without bias from groups of any size,
and from samples.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sqlglot import exp

from sqlanon.expressions import col, ident, named, number, select, subquery, table
from sqlanon.template import template

_LABELLED = "sqlanon narrowing"

_GROUPS = template("""
    SELECT label, :names, sum(n) AS n, count(*) AS ground_values, sum(n * (n - 1)) / (sum(n) * (sum(n) - 1)) AS alike
    FROM :counted
    GROUP BY label, :names
    HAVING sum(n) > 1
""")

_LABELS = template("""
    SELECT label, count(*) AS ground_values, sum(n * (n - 1)) / (sum(n) * (sum(n) - 1)) AS alike
    FROM (SELECT label, ground, sum(n) AS n FROM :counted GROUP BY label, ground) AS v
    GROUP BY label
    HAVING count(*) > 1
""")

_NARROWING = template("""
    SELECT
        coalesce(sum(g.n), 0)::BIGINT AS rows,
        (sum(g.n * l.ground_values) / sum(g.n))::DOUBLE AS before,
        (sum(g.n * g.ground_values) / sum(g.n))::DOUBLE AS after,
        (sum(g.n * l.alike) / sum(g.n))::DOUBLE AS alike_before,
        (sum(g.n * g.alike) / sum(g.n))::DOUBLE AS alike_after,
        coalesce(sum(g.n) FILTER (
            WHERE g.ground_values = 1 AND g.n / 2 * ln(greatest(l.alike, 1e-300)) < ln(:by_chance)
        ), 0)::BIGINT AS pinned
    FROM :groups AS g
    JOIN :labels AS l ON g.label IS NOT DISTINCT FROM l.label
""")

_PINNED = template("""
    SELECT g.label AS v0, g.c0 AS v1, g.n::BIGINT AS n
    FROM :groups AS g
    JOIN :labels AS l ON g.label IS NOT DISTINCT FROM l.label
    WHERE g.ground_values = 1 AND g.n / 2 * ln(greatest(l.alike, 1e-300)) < ln(:by_chance)
""")

_COUNTED = template("""
    SELECT :label AS label, :ground AS ground, :columns, count(*)::DOUBLE AS n
    FROM :rows
    GROUP BY :places
""")

_SMALLEST = template("""
    SELECT coalesce(min(n), 0)::BIGINT AS smallest
    FROM (SELECT count(*) AS n FROM :rows GROUP BY :keys) AS c
""")

BY_CHANCE = 1e-6
"""A group of one ground value gives it away, unless a column that says nothing would show such a group so often."""


def narrowing(rows: exp.Expr, label: exp.Expr, ground: exp.Expr, columns: Sequence[exp.Expr]) -> exp.Select:
    """One row of figures of the rows in groups of two or more, all with one label and the same values of some columns.

    Columns: ``rows``; ``before`` and ``after``, the ground values that are left by the label, and by the group;
    ``alike_before`` and ``alike_after``, the probability that two of their rows share the ground value; ``pinned``, the
    rows whose ground value the group gives away.

    Parameters
    ----------
    rows:
        The source's rows with their released labels.
    label, ground:
        The released label of an attribute, and its value in the source.
    columns:
        Other released columns.
    """
    return _of_groups(_NARROWING, rows, label, ground, columns)


def pinned_groups(rows: exp.Expr, label: exp.Expr, ground: exp.Expr, column: exp.Expr) -> exp.Select:
    """The groups of one label and one value of a column that leave one ground value of several, and not by chance:
    ``v0`` (the label), ``v1`` (the column's value), ``n`` (rows)."""
    return _of_groups(_PINNED, rows, label, ground, [column])


def _of_groups(
    build: Callable[..., exp.Select],
    rows: exp.Expr,
    label: exp.Expr,
    ground: exp.Expr,
    columns: Sequence[exp.Expr],
) -> exp.Select:
    names = [col(f"c{i}") for i in range(len(columns))]
    output = [named(column.copy(), name.name) for column, name in zip(columns, names, strict=True)]
    places: list[exp.Expr] = [number(place + 1) for place in range(2 + len(output))]
    counted = _COUNTED(label=label, ground=ground, columns=output, rows=rows, places=places)
    groups = subquery(_GROUPS(names=names, counted=table(_LABELLED)))
    labels = subquery(_LABELS(counted=table(_LABELLED)))
    query = build(groups=groups, labels=labels, by_chance=number(BY_CHANCE))
    return query.with_(ident(_LABELLED), as_=counted, materialized=True, copy=False)


def smallest_group(rows: exp.Expr, keys: Sequence[exp.Expr]) -> exp.Select:
    """One row: the rows of the smallest group."""
    return _SMALLEST(rows=rows, keys=list(keys))


def shown_narrowing(source: exp.Expr, ground: str, columns: Sequence[str]) -> exp.Select:
    """What a data holder runs to see it: the values that are left of a column by those of others, the fewest first."""
    keys: list[exp.Expr] = [col(name) for name in columns]
    left = named(exp.Count(this=exp.Distinct(expressions=[col(ground)])), "values_left")
    query = select([*keys, left, named(exp.Count(this=exp.Star()), "rows")], source, [one.copy() for one in keys])
    return query.order_by(exp.Ordered(this=col("values_left")), exp.Ordered(this=col("rows"), desc=True), copy=False)


def positional(query: exp.Query, count: int) -> exp.Subquery:
    """A query's rows with columns ``r0``, ``r1``, ...: names of columns may be there twice."""
    columns = [ident(f"r{i}") for i in range(count)]
    part = subquery(query)
    part.set("alias", exp.TableAlias(this=ident("r"), columns=columns))
    return part
