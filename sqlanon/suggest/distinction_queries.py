"""How well sets of attributes tell rows apart.

Source: R. Motwani, Y. Xu, "Efficient algorithms for masking and finding quasi-identifiers" (2007): a set of attributes
is an α-distinct quasi-identifier if its combinations are at least α of the rows, and it separates α of the pairs of
rows if that many of them differ in it.

Names of columns, all ours. In the sets: ``subset`` (a number), ``attributes`` (a list of names), ``size``. In the
figures: ``subset``, ``distinct`` (combinations), ``together`` (ordered pairs of different rows that are equal).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from sqlglot import exp

from sqlanon.coding import ROWS
from sqlanon.expressions import aliased, cast, col, ident, named, number, select, subquery, text, total
from sqlanon.frequency.packed import SIZE, SUBSET, Packing, group_rows, subset_groups

DISTINCT = "distinct"
TOGETHER = "together"
ATTRIBUTES = "attributes"


def listed_sets(names: Sequence[str], subsets: Mapping[int, Sequence[int]]) -> exp.Select:
    """The sets by their names."""
    rows = []
    for name, one in subsets.items():
        own = cast(exp.Array(expressions=[text(names[i]) for i in one]), "VARCHAR[]")
        rows.append(exp.Tuple(expressions=[cast(number(name), "BIGINT"), own, number(len(one))]))
    columns = [ident(name) for name in (SUBSET, ATTRIBUTES, SIZE)]
    values = exp.Values(expressions=rows, alias=exp.TableAlias(this=ident("s"), columns=columns))
    return select([col(name.name) for name in columns], values)


def set_figures(keys: exp.Table, packing: Packing, subsets: Mapping[int, Sequence[int]]) -> exp.Select:
    """The figures of some sets.

    Parameters
    ----------
    keys, packing:
        Of `frequency.packed`.
    subsets:
        The sets, each with a number.
    """
    groups = subset_groups(keys, packing, subsets, [named(group_rows(), ROWS)])
    others = exp.Paren(this=exp.Sub(this=col(ROWS), expression=number(1)))
    output: list[exp.Expr] = [
        col(SUBSET),
        named(exp.Count(this=exp.Star()), DISTINCT),
        named(total(exp.Mul(this=col(ROWS), expression=others)), TOGETHER),
    ]
    return select(output, subquery(groups, "g"), [col(SUBSET)])


def key_figures(subsets: Iterable[int], rows: int) -> exp.Select:
    """The figures of sets that are known to tell all rows apart."""
    listed = [exp.Tuple(expressions=[cast(number(one), "BIGINT")]) for one in subsets]
    values = exp.Values(expressions=listed, alias=exp.TableAlias(this=ident("s"), columns=[ident(SUBSET)]))
    output: list[exp.Expr] = [col(SUBSET), named(number(rows), DISTINCT), named(number(0), TOGETHER)]
    return select(output, values)


def keys_among(figures: exp.Table, rows: int) -> exp.Select:
    """The sets that tell all rows apart."""
    condition = exp.EQ(this=col(DISTINCT), expression=number(rows))
    return select([col(SUBSET)], figures.copy()).where(condition, copy=False)


def distinction(sets: exp.Table, figures: exp.Table, rows: int) -> exp.Select:
    """Each set with its distinction and separation, the smaller sets first."""

    def by(part: exp.Expr, whole: int) -> exp.Expr:
        if not whole:
            return cast(exp.null(), "DOUBLE")
        return exp.Div(this=cast(part, "DOUBLE"), expression=cast(number(whole), "DOUBLE"))

    found = exp.Coalesce(this=col(DISTINCT, "f"), expressions=[number(0)])  # an empty table has no groups
    separation = exp.Sub(this=number(1), expression=by(col(TOGETHER, "f"), rows * (rows - 1)))
    output: list[exp.Expr] = [
        col(ATTRIBUTES, "s"),
        col(SIZE, "s"),
        named(found, DISTINCT),
        named(cast(number(rows), "BIGINT"), "rows"),
        named(by(found.copy(), rows), "distinction"),
        named(separation, "separation"),
    ]
    on = exp.EQ(this=col(SUBSET, "f"), expression=col(SUBSET, "s"))
    query = select(output, aliased(sets, "s")).join(aliased(figures, "f"), on=on, join_type="left", copy=False)
    return query.order_by(col(SUBSET, "s"), copy=False)
