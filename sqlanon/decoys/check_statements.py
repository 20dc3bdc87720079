"""Queries that hold a release with decoys against the real rows, as released."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlglot import exp

from sqlanon.expressions import aliased, all_columns, all_of, col, named, number, same, select, subquery
from sqlanon.release.row_differences import same_to_readers, told_apart


def minus(rows: exp.Table, others: exp.Table, types: Mapping[str, str]) -> exp.Select:
    """The rows that others do not have, or not so often: a row that is there twice is two rows.

    Parameters
    ----------
    types:
        DuckDB's types of their columns.
    """
    values = [(name, [col(name), *told_apart(col(name), type_)]) for name, type_ in types.items()]
    numbered = [named(one, f"c{i}_{j}") for i, (_, parts) in enumerate(values) for j, one in enumerate(parts)]
    own, theirs = (select([one.copy() for one in numbered], table.copy()) for table in (rows, others))
    rest = subquery(exp.Except(this=own, expression=theirs, distinct=False), "m")
    return select([named(col(f"c{i}_0"), name) for i, (name, _) in enumerate(values)], rest)


def surplus(rows: exp.Table, others: exp.Table, types: Mapping[str, str]) -> exp.Select:
    """One number: the rows that others do not have, or not so often."""
    return select([exp.Count(this=exp.Star())], subquery(minus(rows, others, types), "q"))


def short_classes(real: exp.Table, quasi: Sequence[str], k: int) -> exp.Select:
    """The classes of fewer than k real rows: ``q0``, ``q1``, ...: numbered, so that no name is taken twice."""
    too_few = exp.LT(this=exp.Count(this=exp.Star()), expression=number(k))
    output: list[exp.Expr] = [named(col(name), f"q{i}") for i, name in enumerate(quasi)]
    return select(output, real.copy(), [col(name) for name in quasi]).having(too_few, copy=False)


def part(rows: exp.Table, places: exp.Table, quasi: Mapping[str, str], within: bool) -> exp.Select:
    """The rows that are in some classes, or those that are not.

    Parameters
    ----------
    places:
        The classes, made by `short_classes`.
    quasi:
        The quasi-identifiers, with DuckDB's types of them.
    """
    on = all_of(
        same_to_readers(col(name, "r"), col(f"q{i}", "p"), type_) for i, (name, type_) in enumerate(quasi.items())
    )
    query = select([all_columns("r")], aliased(rows, "r"))
    return query.join(aliased(places, "p"), on=on, join_type="semi" if within else "anti", copy=False)


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


def strangers(rest: exp.Table, kept: exp.Query, name: str, type_: str) -> exp.Select:
    """One number: the rows whose value in a column no kept row has."""
    query = select([exp.Count(this=exp.Star())], aliased(rest, "d"))
    on = same_to_readers(col(name, "d"), col(name, "k"), type_)
    return query.join(subquery(kept, "k"), on=on, join_type="anti", copy=False)
