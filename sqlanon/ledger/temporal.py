"""Temporal attack: a release of a table that has changed, against an earlier one, shows the rows that came or went.

Who knows that somebody joined the table in between looks for them among the new rows alone.

Source: L. Sweeney, k-anonymity: a model for protecting privacy, International Journal on Uncertainty, Fuzziness and
Knowledge-based Systems 10(5), 2002, section 4.3 (example 7).
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from sqlanon.expressions import col, greatest, least, named, number, select, subquery, total
from sqlanon.ledger.linked import (
    FIRST,
    ROWS,
    SECOND,
    Linked,
    both_grouped,
    meeting,
    met_name,
    of_several_levels,
    shared_in,
    within,
)


def temporal(
    then: exp.Expr,
    now: exp.Expr,
    shared: Sequence[str],
    attributes: Sequence[Linked],
    k: int,
    count: str | None = None,
) -> exp.Select:
    """Classes of one release in which some rows, but fewer than k, can be new: ``v0`` .. and ``n``, the rows.

    Rows of both releases are counted by shared values and labels at the coarser of the two levels: what `now` has more
    is new. Where `now` is finer, each of its classes may have had all of the new rows. Where labels are of several
    levels, only those rows are counted that are new in any case: more than all rows of `then` that they could be.

    For the rows that are gone, give the releases, and the attributes (`Linked.swapped`), in the other order.

    Examples
    --------
    >>> from sqlanon.expressions import table
    >>> temporal(table("then"), table("now"), [], [Linked("zip", "zip", "zip")], 2).named_selects
    ['v0', 'n']
    """
    new = _counted_apart if of_several_levels(attributes) else _by_key
    here = [i for i, one in enumerate(attributes) if one.second is not None]
    labels: list[exp.Expr] = [col(f"l{i}") for i in here]
    rows = total(col(ROWS))
    output: list[exp.Expr] = [
        *(named(label, f"v{i}") for label, i in zip(labels, here, strict=True)),
        named(rows, ROWS),
    ]
    query = select(output, subquery(new(attributes, len(shared)), "new"), [label.copy() for label in labels])
    few = exp.Between(this=rows.copy(), low=number(1), high=number(k - 1))
    return both_grouped(query.having(few, copy=False), then, now, shared, attributes, count, finest=None)


def _by_key(attributes: Sequence[Linked], shared: int) -> exp.Select:
    """The rows of each group of `now` that can be new: all levels are known."""
    keys = [f"s{j}" for j in range(shared)]
    keys += [f"k{i}" for i, one in shared_in(attributes) if not one.meets_all]
    output: list[exp.Expr] = [*(col(key) for key in keys), named(total(col(ROWS)), ROWS)]
    there = select(output, within(FIRST, "t"))
    if keys:
        there.set("group", exp.Group(expressions=[col(key) for key in keys]))
    whole = exp.Window(this=exp.Sum(this=col(ROWS, "b")), partition_by=[col(key, "b") for key in keys])
    more = whole - exp.Coalesce(this=col(ROWS, "a"), expressions=[number(0)])
    found = least(col(ROWS, "b"), greatest(more, number(0)))
    query = select([*_labels(attributes), named(found, ROWS)], within(SECOND, "b"))
    on = meeting(attributes, shared)
    return query.join(subquery(there, "a"), on=on, join_type="left", copy=False)


def _counted_apart(attributes: Sequence[Linked], shared: int) -> exp.Select:
    """The rows of each group of `now` that are more than all of `then` that they could be."""
    compared = len(of_several_levels(attributes))
    last, rows = f"p{compared}", total(col(ROWS, "a"))
    met = select([col("b", "m"), named(rows, ROWS)], within(met_name(compared), "m"), [col("b", "m")])
    on = col(last, "a").eq(col("a", "m"))
    met = met.join(within(FIRST, "a"), on=on, copy=False)
    there = exp.Coalesce(this=col(ROWS, "t"), expressions=[number(0)])
    more = greatest(col(ROWS, "b") - there, number(0))
    query = select([*_labels(attributes), named(more, ROWS)], within(SECOND, "b"))
    on = col(last, "b").eq(col("b", "t"))
    return query.join(subquery(met, "t"), on=on, join_type="left", copy=False)


def _labels(attributes: Sequence[Linked]) -> list[exp.Expr]:
    return [col(f"l{i}", "b") for i, one in enumerate(attributes) if one.second is not None]
