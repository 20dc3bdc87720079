"""Composition: a person is in a class of each of two releases, and few sensitive values are in both classes.

Source: S. R. Ganta, S. P. Kasiviswanathan, A. Smith, Composition attacks and auxiliary information in data privacy, KDD
2008 (the intersection attack).
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from sqlanon.expressions import col, ident, least, named, select
from sqlanon.ledger.linked import ROWS, Linked, both_grouped, finest, joined, rows_in

_MEETING, _FOUND = "sqlanon meeting", "sqlanon found"


def composition(first: exp.Expr, second: exp.Expr, sensitive: str, attributes: Sequence[Linked]) -> exp.Select:
    """Pairs of classes that somebody can be in both of, and that have one sensitive value in common: ``v0`` .., the
    finest values of the two, ``value``, and ``n``, the rows that have it: no more than the lesser of the two classes.

    Examples
    --------
    >>> from sqlanon.expressions import table
    >>> composition(table("one"), table("two"), "diagnosis", [Linked("zip", "zip", "zip")]).named_selects
    ['v0', 'value', 'n']
    """
    query = select([*_values(attributes), col("value"), col(ROWS)], exp.Table(this=ident(_FOUND)))
    return _with_found(query, first, second, sensitive, attributes)


def composition_victims(first: exp.Expr, second: exp.Expr, sensitive: str, attributes: Sequence[Linked]) -> exp.Select:
    """One row: the ``pairs`` that `composition` finds, and ``victims``, the released rows in them: on either side, each
    at most once; the lesser count.
    """
    found = exp.Table(this=ident(_FOUND))
    output = [named(exp.Count(this=exp.Star()), "pairs"), named(rows_in(exp.select("*").from_(found)), "victims")]
    return _with_found(select([*output], found.copy()), first, second, sensitive, attributes)


def _values(attributes: Sequence[Linked]) -> list[exp.Expr]:
    return [col(f"v{i}") for i in range(len(attributes))]


def _with_found(
    query: exp.Select, first: exp.Expr, second: exp.Expr, sensitive: str, attributes: Sequence[Linked]
) -> exp.Select:
    """A query over the pairs of classes with one value in common: with the groups that have it, and their rows."""
    looks: list[exp.Expr] = []
    for side in ("a", "b"):
        columns = [one.first if side == "a" else one.second for one in attributes]
        looks += [named(col(f"l{i}", side), f"{side}l{i}") for i, name in enumerate(columns) if name is not None]
    figures: list[exp.Expr] = [named(col("s0", "a"), "value"), *(named(col("i", side), side) for side in ("a", "b"))]
    figures += [named(col(ROWS, side), f"n_{side}") for side in ("a", "b")]
    figures += [named(least(col(ROWS, "a"), col(ROWS, "b")), ROWS)]
    pairs = joined(attributes, 1)
    pairs.set("expressions", [*finest(attributes), *looks, *figures])
    alone = exp.Count(this=exp.Star()).eq(1)
    only = [named(exp.AnyValue(this=col(figure.alias)), figure.alias) for figure in figures]
    by: list[exp.Expr] = [*_values(attributes), *(col(look.alias) for look in looks)]
    found = select([*_values(attributes), *only], exp.Table(this=ident(_MEETING)), by).having(alone, copy=False)
    query = both_grouped(query, first, second, [sensitive], attributes)
    query = query.with_(ident(_MEETING), as_=pairs, copy=False)
    return query.with_(ident(_FOUND), as_=found, materialized=True, copy=False)
