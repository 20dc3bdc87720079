"""Queries that hold a release with decoys against the real rows, as released."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from sqlanon.queries.names import aliased, all_columns, all_of, col, named, number, same, select, subquery


def minus(rows: exp.Table, others: exp.Table, names: Sequence[str]) -> exp.Select:
    """The rows that others do not have, or not so often: a row that is there twice is two rows."""
    own, theirs = (select([col(name) for name in names], one.copy()) for one in (rows, others))
    return select([exp.Star()], subquery(exp.Except(this=own, expression=theirs, distinct=False), "m"))


def surplus(rows: exp.Table, others: exp.Table, names: Sequence[str]) -> exp.Select:
    """One number: the rows that others do not have, or not so often."""
    return select([exp.Count(this=exp.Star())], subquery(minus(rows, others, names), "q"))


def short_classes(real: exp.Table, quasi: Sequence[str], k: int) -> exp.Select:
    """The classes of fewer than k real rows: ``q0``, ``q1``, ...: numbered, so that no name is taken twice."""
    too_few = exp.LT(this=exp.Count(this=exp.Star()), expression=number(k))
    output: list[exp.Expr] = [named(col(name), f"q{i}") for i, name in enumerate(quasi)]
    return select(output, real.copy(), [col(name) for name in quasi]).having(too_few, copy=False)


def part(rows: exp.Table, places: exp.Table, quasi: Sequence[str], within: bool) -> exp.Select:
    """The rows that are in some classes, or those that are not.

    Parameters
    ----------
    places:
        The classes, made by `short_classes`.
    """
    query = select([all_columns("r")], aliased(rows, "r"))
    kind = "semi" if within else "anti"
    return query.join(aliased(places, "p"), on=_in_place("r", quasi), join_type=kind, copy=False)


def unfilled(places: exp.Table, among: exp.Table, quasi: Sequence[str], k: int) -> exp.Select:
    """One number: the classes that have not exactly k rows in the release.

    Parameters
    ----------
    among:
        The rows of the release that are in them.
    """
    right = exp.EQ(this=exp.Count(this=exp.Star()), expression=number(k))
    filled = select([named(col(name), f"q{i}") for i, name in enumerate(quasi)], among.copy())
    filled = filled.group_by(*(col(name) for name in quasi), copy=False).having(right, copy=False)
    on = all_of(same(col(f"q{i}", "f"), col(f"q{i}", "p")) for i in range(len(quasi)))
    query = select([exp.Count(this=exp.Star())], aliased(places, "p"))
    return query.join(subquery(filled, "f"), on=on, join_type="anti", copy=False)


def strangers(rest: exp.Table, kept: exp.Query, name: str) -> exp.Select:
    """One number: the rows whose value in a column no kept row has."""
    query = select([exp.Count(this=exp.Star())], aliased(rest, "d"))
    on = same(col(name, "d"), col(name, "k"))
    return query.join(subquery(kept, "k"), on=on, join_type="anti", copy=False)


def _in_place(rows: str, quasi: Sequence[str]) -> exp.Expr:
    return all_of(same(col(name, rows), col(f"q{i}", "p")) for i, name in enumerate(quasi))
