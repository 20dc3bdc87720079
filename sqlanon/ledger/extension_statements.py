"""What is added to a release: rows of the source that no release has yet, beside the rows that it has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlglot import exp

from sqlanon.coding import Coded, code_name
from sqlanon.expressions import aliased, at_random, cast, col, named, number, same, select, subquery, union_all
from sqlanon.search.classes import ClassSpace
from sqlanon.sources.earlier import EARLIER

RELEASED = 1
"""The bit of the release that is extended, among the marks."""


def unreleased(rows: exp.Table) -> exp.Select:
    """The marked rows that the release does not have."""
    return select([exp.Star()], rows.copy()).where(_is_new(col(EARLIER)), copy=False)


def released(rows: exp.Table) -> exp.Select:
    """The marked rows that the release has."""
    return select([exp.Star()], rows.copy()).where(~_is_new(col(EARLIER)), copy=False)


def unreleased_space(space: ClassSpace, marks: Coded) -> ClassSpace:
    """The same classes, of the rows alone that the release does not have."""
    code = code_name(len(space.heights) - 1, 0)
    new = select([col("code_0")], marks.table.copy()).where(_is_new(col("value")), copy=False)

    def of_new(relation: exp.Expr) -> exp.Expr:
        among = exp.In(this=col(code), query=subquery(new.copy()))
        return subquery(select([exp.Star()], relation.copy()).where(among, copy=False), "f")

    sensitive = {key: replace(one, table=of_new(one.table)) for key, one in space.sensitive.items()}
    return replace(space, frequency=of_new(space.frequency), sensitive=sensitive)


def _is_new(mark: exp.Expr) -> exp.Expr:
    bits = exp.BitwiseAnd(this=mark, expression=number(RELEASED))
    return exp.Paren(this=bits).eq(0)


def extended(released: exp.Expr, added: exp.Expr, columns: Sequence[str], shuffled: bool = True) -> exp.Select:
    """The rows of a release and those that are added, in random order unless it is for checks."""
    output: list[exp.Expr] = [col(name) for name in columns]
    both = union_all(select(output, released.copy()), select([one.copy() for one in output], added.copy()))
    query = select([one.copy() for one in output], subquery(both, "r"))
    return query.order_by(*at_random(), copy=False) if shuffled else query


def class_figures(rows: exp.Expr, quasi: Sequence[str]) -> exp.Select:
    """One row: ``rows``, ``classes``, ``smallest_class`` and ``squares`` of released rows."""
    size = named(exp.Count(this=exp.Star()), "size")
    each = select([size], rows, [col(name) for name in quasi])
    squared = exp.Sum(this=col("size") * cast(col("size"), "DOUBLE"))
    figures: list[exp.Expr] = [
        named(exp.Coalesce(this=exp.Sum(this=col("size")), expressions=[number(0)]), "rows"),
        named(exp.Count(this=exp.Star()), "classes"),
        named(exp.Coalesce(this=exp.Min(this=col("size")), expressions=[number(0)]), "smallest_class"),
        named(exp.Coalesce(this=squared, expressions=[number(0)]), "squares"),
    ]
    return select(figures, subquery(each, "c"))


def changed_labels(then: exp.Expr, now: exp.Expr, level: int) -> exp.Select:
    """How many ground values had another label at a level than they have now."""
    on = same(col("level_0", "t"), col("level_0", "n"))
    differs = ~same(col(f"level_{level}", "t"), col(f"level_{level}", "n"))
    query = exp.Select(expressions=[exp.Count(this=exp.Star())]).from_(aliased(then, "t"), copy=False)
    return query.join(aliased(now, "n"), on=on, copy=False).where(differs, copy=False)
