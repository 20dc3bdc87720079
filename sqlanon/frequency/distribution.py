"""Sensitive values beside the frequency set: how often each occurs in each combination of quasi-identifiers.

Names of columns: the codes of the quasi-identifiers and ``known`` as in the frequency set; ``o0, o1, ...`` (other
sensitive attributes that count as quasi-identifiers); ``v`` (a small integer for the value), ``share`` (of the whole
source) and ``n``: rows, or distinct pairs of person and value; with movers, ``mover`` tells their pairs apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp

from sqlanon.coding import ROWS, Coded, Levels, rank_of
from sqlanon.expressions import (
    aliased,
    anonymous,
    cast,
    col,
    greatest,
    named,
    number,
    same,
    select,
    subquery,
    total,
    union_all,
    where,
)
from sqlanon.frequency.statements import (
    MOVER,
    PERSON,
    coded_rows,
    counted,
    grouped,
    settled,
    with_movers,
    with_upper_codes,
)
from sqlanon.requirements.base import CUMULATED, SHARE, SUMS, VALUE, WIDEST


def plain_pairs(rows: exp.Expr, quasi: int, sensitive: int, inner: Sequence[int] = ()) -> exp.Select:
    """The source's rows under the names of `value_pairs`, each by itself."""
    return select(_renamed(quasi, sensitive, inner), rows.copy())


def _renamed(quasi: int, sensitive: int, inner: Sequence[int]) -> list[exp.Expr]:
    names = [(f"q{i}", f"q{i}") for i in range(quasi)]
    names += [(f"s{other}", f"o{i}") for i, other in enumerate(inner)] + [(f"s{sensitive}", "value")]
    return [named(col(name), alias) for name, alias in names]


def value_pairs(
    raw: exp.Expr,
    quasi: int,
    sensitive: int,
    inner: Sequence[int] = (),
    persons: bool = False,
    moving: exp.Table | None = None,
) -> exp.Select:
    """The rows, or the distinct pairs of person and value, by combination and value: ``q0`` .., ``o0`` ..,
    ``value``.
    """
    keys = _renamed(quasi, sensitive, inner)
    if not persons:
        return select([*keys, named(total(col(ROWS)), ROWS)], raw.copy(), [key.this.copy() for key in keys])
    each = subquery(exp.Select(expressions=[*keys, col(PERSON)], distinct=exp.Distinct()).from_(raw.copy()), "r")
    own: list[exp.Expr] = [col(key.alias, "r") for key in keys]
    count: exp.Expr = exp.Count(this=exp.Star())
    if moving is None:
        return select([*own, named(count, ROWS)], each, [column.copy() for column in own])
    query = with_movers(each, "r", moving).select(*own, col(MOVER, "m"), copy=False)
    query = query.select(named(where(count, settled()), ROWS), copy=False)
    return query.group_by(*(column.copy() for column in own), col(MOVER, "m"), copy=False)


def sensitive_values(pairs: exp.Expr, moving: bool, is_counted: bool = True) -> exp.Select:
    """A sensitive attribute's values in the source: ``value``, ``v`` (in order, NULL first), ``rows``, ``share``."""
    mass = counted(ROWS, MOVER if moving else None) if is_counted else exp.Count(this=exp.Star())
    counts = select([col("value"), named(mass, "rows")], pairs.copy(), [col("value")])
    all_ = exp.Window(this=exp.Sum(this=cast(col("rows"), "DOUBLE")))
    share = cast(col("rows"), "DOUBLE") / all_
    output: list[exp.Expr] = [col("value"), named(rank_of([col("value")]), VALUE), col("rows"), named(share, SHARE)]
    return select(output, subquery(counts, "c"))


def domain(values: exp.Table) -> exp.Select:
    """One row of lists over a sensitive attribute's values in their order, for the ordered distance.

    ``cumulated``: the share of a value and of all before it; ``sums``: the sums of these, from 0; ``widest``: the mean
    over all values but the last of the share of what is on that side of it which is the larger.
    """
    order = exp.Order(expressions=[exp.Ordered(this=col(VALUE))])
    cumulated = exp.Window(this=exp.Sum(this=col(SHARE)), order=order)
    each = subquery(select([col(VALUE), named(cumulated, "so_far")], values.copy()), "e")
    sums = exp.Window(this=exp.Sum(this=col("so_far")), order=order.copy())
    both = subquery(select([col(VALUE), col("so_far"), named(sums, "sum_so_far")], each), "b")

    def listed(name: str) -> exp.Expr:
        return exp.ArrayAgg(this=exp.Order(this=col(name), expressions=[exp.Ordered(this=col(VALUE))]))

    so_far = col("so_far")
    larger = greatest(so_far, exp.Paren(this=number(1) - so_far))
    others = exp.Nullif(this=exp.Paren(this=exp.Count(this=exp.Star()) - 1), expression=number(0))
    all_but_last = exp.Paren(this=exp.Sum(this=larger) - 1)
    widest = all_but_last / others
    from_zero = anonymous("list_prepend", number(0.0), listed("sum_so_far"))
    return select([named(listed("so_far"), CUMULATED), named(from_zero, SUMS), named(widest, WIDEST)], both)


def nodes(values: exp.Table, coded: exp.Table, height: int) -> exp.Select:
    """Every value of a sensitive attribute beside the nodes above it in its hierarchy, itself first, without the root.

    Makes ``value``, ``leaf`` (the value's own small integer), ``v`` (the node's) and ``share`` (the node's).
    """
    levels = []
    for level in range(max(height, 1)):  # one level alone: all values are one node
        code: exp.Expr = col(f"code_{level}", "c") if height else number(0)
        output: list[exp.Expr] = [
            col("value", "s"),
            named(col(VALUE, "s"), "leaf"),
            col(SHARE, "s"),
            named(number(level), "level"),
            named(code, "code"),
        ]
        on = same(col("value", "s"), col("value", "c"))
        levels.append(select(output, aliased(values, "s")).join(aliased(coded, "c"), on=on, copy=False))
    every: exp.Query = union_all(*levels)
    share = exp.Window(this=exp.Sum(this=col(SHARE)), partition_by=[col("level"), col("code")])
    columns: list[exp.Expr] = [
        col("value"),
        col("leaf"),
        named(rank_of([col("level"), col("code")]), VALUE),
        named(share, SHARE),
    ]
    return select(columns, subquery(every, "n"))


@dataclass(frozen=True)
class Pairs:
    """What the counts of a sensitive attribute's values are made from.

    Attributes
    ----------
    rows:
        Made by `value_pairs`; or the source itself, with the columns of that.
    values:
        Made by `sensitive_values` or `nodes`.
    inner:
        How many other sensitive attributes count as quasi-identifiers.
    counted:
        Whether ``n`` counts the rows.
    moving:
        Whether there are movers.
    leaves:
        For `nodes`: the number of values. A mover that has two values under one node counts there twice.
    domain:
        Made by `domain`; None for `nodes` and joint ones.
    """

    rows: exp.Expr
    values: exp.Table
    inner: int = 0
    counted: bool = True
    moving: bool = False
    leaves: int | None = None
    domain: exp.Table | None = None


def distribution(pairs: Pairs, attributes: Sequence[Coded], levels: Levels) -> exp.Select:
    """The counts by combination of codes and value, with the codes above them."""
    query, keys = coded_rows(pairs.rows, attributes, levels)
    query = query.join(aliased(pairs.values, "s"), on=same(col("value", "r"), col("value", "s")), copy=False)
    keys |= {f"o{i}": col(f"o{i}", "r") for i in range(pairs.inner)}
    keys |= {VALUE: col(VALUE, "s"), SHARE: col(SHARE, "s")}
    if pairs.moving:
        mover: exp.Expr = col(MOVER, "r")
        if pairs.leaves is not None:
            each = cast(mover, "BIGINT") * number(pairs.leaves)
            mover = each + col("leaf", "s")
        keys[MOVER] = mover
    count: exp.Expr = total(col(ROWS, "r")) if pairs.counted else exp.Count(this=exp.Star())
    return with_upper_codes(grouped(query, keys, {ROWS: count}), attributes, levels)


def counts_by_value(table: exp.Expr, keys: Sequence[str], moving: bool) -> exp.Select:
    """The values within each class: ``keys``, ``v``, ``share`` and ``n``."""
    own: list[exp.Expr] = [*(col(key) for key in keys), col(VALUE)]
    share = named(exp.AnyValue(this=col(SHARE)), SHARE)
    count = named(counted(ROWS, MOVER if moving else None), ROWS)
    return select([*own, share, count], table.copy(), [key.copy() for key in own])
