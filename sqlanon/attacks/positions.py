"""Unsorted matching: two tables in one order are joined by the positions of their rows.

Source: L. Sweeney, k-anonymity: a model for protecting privacy, International Journal on Uncertainty, Fuzziness and
Knowledge-based Systems 10(5), 2002, section 4.1 (figure 3, example 5).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from sqlglot import exp

from sqlanon.expressions import aliased, all_of, cast, col, ident, least, named, number, same, select, subquery
from sqlanon.ledger.linked import (
    FIRST,
    ROWS,
    SECOND,
    Linked,
    both_grouped,
    finest,
    joined,
    keyed,
    meeting,
    of_several_levels,
    pairs_name,
    within,
)

_PLACED = {FIRST: "sqlanon first placed", SECOND: "sqlanon second placed"}
_AGREEING = "sqlanon agreeing"


def unsorted_matching(
    first: exp.Expr, second: exp.Expr, shared: Sequence[str], attributes: Sequence[Linked], k: int
) -> exp.Select:
    """Combinations of finest values of rows that are in the same place of two tables, fewer than k: ``v0`` .., ``n``.

    Only places count at which the rows can be the same. It means something where the order is the same, more or less:
    see `places`.

    Examples
    --------
    >>> from sqlanon.expressions import table
    >>> unsorted_matching(table("one"), table("two"), [], [Linked("zip", "zip", "zip")], 2).named_selects
    ['v0', 'n']
    """
    values: list[exp.Expr] = [col(f"v{i}") for i in range(len(attributes))]
    rows = exp.Count(this=exp.Star())
    query = select([*values, named(rows, ROWS)], exp.Table(this=ident(_AGREEING)), [value.copy() for value in values])
    query = query.having(rows < number(k), copy=False)
    return _with_places(query, first, second, shared, attributes)


def places(first: exp.Expr, second: exp.Expr, shared: Sequence[str], attributes: Sequence[Linked]) -> exp.Select:
    """One row: ``places`` that both tables have, those ``agreeing``, at which the rows can be the same, and by
    ``chance`` the share of all pairs of rows that can: what a random order would give.
    """
    sizes = {name: select([exp.Count(this=exp.Star())], exp.Table(this=ident(_PLACED[name]))) for name in _PLACED}
    pairs = cast(col(ROWS, "a"), "DOUBLE") * cast(col(ROWS, "b"), "DOUBLE")
    meeting_pairs = joined(attributes, len(shared))
    meeting_pairs.set("expressions", [exp.Coalesce(this=exp.Sum(this=pairs), expressions=[number(0)])])
    one, two = (cast(subquery(size), "DOUBLE") for size in sizes.values())
    all_pairs = exp.Nullif(this=one * two, expression=number(0))
    agreeing = select([exp.Count(this=exp.Star())], exp.Table(this=ident(_AGREEING)))
    query = exp.Select(
        expressions=[
            named(least(*(subquery(size.copy()) for size in sizes.values())), "places"),
            named(subquery(agreeing), "agreeing"),
            named(subquery(meeting_pairs) / all_pairs, "chance"),
        ]
    )
    return _with_places(query, first, second, shared, attributes)


def _with_places(
    query: exp.Select, first: exp.Expr, second: exp.Expr, shared: Sequence[str], attributes: Sequence[Linked]
) -> exp.Select:
    """A query over the rows of both tables, by their places, and over the places at which they agree."""
    query = both_grouped(query, first, second, shared, attributes)
    for name, table, is_first in ((FIRST, first, True), (SECOND, second, False)):
        columns = [one.first if is_first else one.second for one in attributes]
        placed = keyed(_in_order(table, columns, shared), attributes, len(shared), is_first)
        query = query.with_(ident(_PLACED[name]), as_=placed, materialized=True, copy=False)
    agreeing = exp.Select(expressions=finest(attributes)).from_(within(_PLACED[FIRST], "a"), copy=False)
    on = all_of([col(ROWS, "a").eq(col(ROWS, "b")), meeting(attributes, len(shared))])
    agreeing = agreeing.join(within(_PLACED[SECOND], "b"), on=on, copy=False)
    for i, _ in of_several_levels(attributes):
        pair = [same(col(f"l{i}", "a"), col("one", f"c{i}")), same(col(f"l{i}", "b"), col("two", f"c{i}"))]
        agreeing = agreeing.join(within(pairs_name(i), f"c{i}"), on=all_of(pair), copy=False)
    return query.with_(ident(_AGREEING), as_=agreeing, materialized=True, copy=False)


def _in_order(table: exp.Expr, columns: Sequence[str | None], shared: Sequence[str]) -> exp.Select:
    """Rows as `groups` makes them, but one by one: ``n`` is the place of a row."""
    output: list[exp.Expr] = [
        named(cast(col(column, "r"), "VARCHAR"), f"l{i}") for i, column in enumerate(columns) if column is not None
    ]
    output += [named(col(column, "r"), f"s{j}") for j, column in enumerate(shared)]
    return select([*output, named(exp.Window(this=exp.RowNumber()), ROWS)], aliased(table, "r"))


CERTAIN = 0.001
"""An order that chance gives less often than this is none of chance's."""


def is_one_order(places: int, agreeing: int, chance: float | None) -> bool:
    """Whether two tables agree at more places than chance explains.

    By Chernoff's bound: n places of which each agrees with probability c have a share a > c of agreeing ones with
    probability at most exp(-n KL(a, c)), where KL(a, c) = a ln(a/c) + (1 - a) ln((1 - a)/(1 - c)). (W. Hoeffding,
    Probability inequalities for sums of bounded random variables, JASA 58, 1963, theorem 1.)

    Examples
    --------
    >>> is_one_order(12, 12, 0.5), is_one_order(12, 7, 0.5), is_one_order(12, 12, 1.0)
    (True, False, False)
    """
    if not places or not chance or chance >= 1 or agreeing <= chance * places:
        return False
    share = agreeing / places
    distance = share * math.log(share / chance)
    if share < 1:
        distance += (1 - share) * math.log((1 - share) / (1 - chance))
    return places * distance >= -math.log(CERTAIN)
