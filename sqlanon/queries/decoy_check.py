"""Queries that hold a release with decoys against the real rows, as released."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from sqlanon.queries.names import aliased, all_of, col, named, number, same, select, subquery


def minus(rows: exp.Table, others: exp.Table, names: Sequence[str]) -> exp.Select:
    """The rows that others do not have, or not so often: a row that is there twice is two rows."""
    own, theirs = (select([col(name) for name in names], one.copy()) for one in (rows, others))
    return select([exp.Star()], subquery(exp.Except(this=own, expression=theirs, distinct=False), "m"))


def surplus(rows: exp.Table, others: exp.Table, names: Sequence[str]) -> exp.Select:
    """One number: the rows that others do not have, or not so often."""
    return select([exp.Count(this=exp.Star())], subquery(minus(rows, others, names), "q"))


def misplaced(rest: exp.Table, released: exp.Table, quasi: Sequence[str], k: int) -> exp.Select:
    """One number: the classes of decoys that have not exactly k rows in the release, or no real row.

    Parameters
    ----------
    rest:
        The rows of the release that are no real ones.
    """
    classes = [_classes(one, quasi, name) for one, name in ((rest, "decoys"), (released, "rows"))]
    right = all_of(
        [
            exp.EQ(this=col("rows", "b"), expression=number(k)),
            exp.LT(this=col("decoys", "a"), expression=number(k)),
        ]
    )
    query = select([exp.Count(this=exp.Star())], subquery(classes[0], "a"))
    query = query.join(subquery(classes[1], "b"), on=_same_class("a", "b", quasi), copy=False)
    return query.where(exp.Not(this=exp.Paren(this=right)), copy=False)


def strangers(rest: exp.Table, real: exp.Table, quasi: Sequence[str], k: int, name: str) -> exp.Select:
    """One number: the decoys whose value in a column no real row has in a class of at least k real ones."""
    enough = exp.GTE(this=exp.Count(this=exp.Star()), expression=number(k))
    large = _classes(real, quasi, "rows").having(enough, copy=False)
    kept = select([col(name, "r")], aliased(real, "r"))
    kept = kept.join(subquery(large, "l"), on=_same_class("r", "l", quasi), join_type="semi", copy=False)
    query = select([exp.Count(this=exp.Star())], aliased(rest, "d"))
    on = same(col(name, "d"), col(name, "k"))
    return query.join(subquery(kept, "k"), on=on, join_type="anti", copy=False)


def _classes(rows: exp.Table, quasi: Sequence[str], count: str) -> exp.Select:
    """The classes with their rows; columns are numbered, so that no name is taken twice."""
    output: list[exp.Expr] = [named(col(name), f"q{i}") for i, name in enumerate(quasi)]
    return select([*output, named(exp.Count(this=exp.Star()), count)], rows.copy(), [col(name) for name in quasi])


def _same_class(left: str, right: str, quasi: Sequence[str]) -> exp.Expr:
    """Whether a class, or a row on the left, is of the class on the right."""
    names = [f"q{i}" for i in range(len(quasi))] if left == "a" else list(quasi)
    return all_of(same(col(name, left), col(f"q{i}", right)) for i, name in enumerate(names))
