"""Linking: an outside table that names people is joined to a release on the quasi-identifiers.

Source: L. Sweeney, k-anonymity: a model for protecting privacy, International Journal on Uncertainty, Fuzziness and
Knowledge-based Systems 10(5), 2002, section 1 (figure 1: a voter list and hospital data).
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from sqlanon.expressions import all_of, col, ident, named, number, select, subquery, total, where
from sqlanon.ledger.linked import ROWS, SECOND, Linked, both_grouped, joined, within

_LINKED, _MET = "sqlanon linked", "sqlanon met"


def linking(release: exp.Expr, outside: exp.Expr, attributes: Sequence[Linked], k: int) -> exp.Select:
    """Outside people whom some released rows fit, but fewer than k: ``v0`` .., their own values; ``matched``, the
    released rows that fit; and ``n``, how many of the outside table have these values.

    Examples
    --------
    >>> from sqlanon.expressions import table
    >>> linking(table("patients"), table("voters"), [Linked("zip", "zip", "zip")], 2).named_selects
    ['v0', 'matched', 'n']
    """
    output: list[exp.Expr] = [
        *(named(col(f"l{i}"), f"v{i}") for i in range(len(attributes))),
        col("matched"),
        col(ROWS),
    ]
    few = exp.Between(this=col("matched"), low=number(1), high=number(k - 1))
    query = select(output, within(_LINKED, "l")).where(few, copy=False)
    return _with_linked(query, release, outside, attributes)


def linkage(release: exp.Expr, outside: exp.Expr, attributes: Sequence[Linked], k: int) -> exp.Select:
    """One row: of the outside table the rows that match ``none`` of the released rows, ``one``, and ``fewer`` than k
    (but some); the ``matched`` released rows, which somebody outside fits; ``identified``: pairs of a released row and
    a row outside that fit each other and nothing else; and ``victims``: the released rows that somebody fits whom
    fewer than k fit.
    """
    rows = col("matched")

    def outside_rows(condition: exp.Expr) -> exp.Expr:
        return exp.Coalesce(this=total(col(ROWS), condition), expressions=[number(0)])

    def equal(value: exp.Expr, to: int) -> exp.Expr:
        return value.eq(number(to))

    few = exp.Between(this=rows.copy(), low=number(1), high=number(k - 1))
    met = within(_MET, "m")
    one_each = all_of([equal(col(name), 1) for name in ("n_a", "n_b", "ways_a", "ways_b")])
    victims = _matched()
    on = all_of([col("b", "m").eq(col("i", "l")), few.copy()])
    victims = victims.join(within(_LINKED, "l"), on=on, join_type="semi", copy=False)
    matched, victims = (
        select([exp.Coalesce(this=total(col("n")), expressions=[number(0)])], subquery(each, "a"))
        for each in (_matched(), victims)
    )
    output: list[exp.Expr] = [
        named(outside_rows(equal(rows.copy(), 0)), "none"),
        named(outside_rows(equal(rows.copy(), 1)), "one"),
        named(outside_rows(few), "fewer"),
        named(subquery(matched), "matched"),
        named(subquery(select([where(exp.Count(this=exp.Star()), one_each)], met)), "identified"),
        named(subquery(victims), "victims"),
    ]
    return _with_linked(select(output, within(_LINKED, "l")), release, outside, attributes)


def _matched() -> exp.Select:
    """The groups of the release that somebody outside fits."""
    return select([named(exp.AnyValue(this=col("n_a", "m")), "n")], within(_MET, "m"), [col("a", "m")])


def _with_linked(query: exp.Select, release: exp.Expr, outside: exp.Expr, attributes: Sequence[Linked]) -> exp.Select:
    """A query over groups that meet (`_MET`), and over those of the outside table with the rows they match."""
    query = both_grouped(query, release, outside, [], attributes)
    pairs = joined(attributes, 0)
    ways = {side: exp.Window(this=exp.Count(this=exp.Star()), partition_by=[col("i", side)]) for side in ("a", "b")}
    output = [named(col("i", side), side) for side in ("a", "b")]
    output += [named(col(ROWS, side), f"n_{side}") for side in ("a", "b")]
    output += [named(count, f"ways_{side}") for side, count in ways.items()]
    pairs.set("expressions", output)
    query = query.with_(ident(_MET), as_=pairs, materialized=True, copy=False)
    sums = select([col("b"), named(total(col("n_a")), "matched")], within(_MET, "m"), [col("b")])
    matched = named(exp.Coalesce(this=col("matched", "s"), expressions=[number(0)]), "matched")
    people: list[exp.Expr] = [col(f"l{i}", "o") for i in range(len(attributes))]
    linked = select([*people, matched, col(ROWS, "o"), col("i", "o")], within(SECOND, "o"))
    on = col("i", "o").eq(col("b", "s"))
    linked = linked.join(subquery(sums, "s"), on=on, join_type="left", copy=False)
    return query.with_(ident(_LINKED), as_=linked, materialized=True, copy=False)
