"""Several shields: which classes are kept when all of them hold.

Suppressing a class for one shield can break another, so that it is done in rounds, until nothing changes. What stays
is the greatest set of classes in which all shields hold.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from sqlanon.expressions import (
    all_of,
    anonymous,
    cast,
    col,
    ident,
    is_there,
    named,
    number,
    select,
    subquery,
    table,
    union_all,
)
from sqlanon.requirements.base import CLASS_COUNT, SubsetCondition

MOVERS = "movers"
SETTLED = "settled"


def after_shields(
    judged: exp.Query, keys: Sequence[str], shields: Sequence[SubsetCondition], moving: bool
) -> exp.Select:
    """Classes with ``kept`` by the requirements on each, to classes with ``kept`` by the shields too."""
    names = [f"shield {key}" for key in keys]
    counts = [SETTLED, MOVERS] if moving else [CLASS_COUNT]
    own = [*names, *counts]
    first = select([*(col(name) for name in own), named(number(0), "round")], table("alone"))
    first = first.where(col("kept"), copy=False)
    fine = all_of(_holds(shield, keys, moving) for shield in shields)
    tested = select([*(col(name) for name in own), col("round"), named(fine, "fine")], table("rounds"))
    all_fine = exp.Window(this=exp.LogicalAnd(this=col("fine")))
    watched = select([exp.Star(), named(all_fine, "all_fine")], subquery(tested, "t"))
    one_more = exp.Add(this=col("round"), expression=number(1))
    later: list[exp.Expr] = [*(col(name) for name in own), named(one_more, "round")]
    next_ = select(later, subquery(watched, "w")).where(
        exp.And(this=col("fine"), expression=exp.Not(this=col("all_fine"))), copy=False
    )
    last = select([exp.Max(this=col("round"))], table("rounds"))
    # In the last round all are fine, or none is: then nothing stays.
    final = select([*(col(name) for name in names), col("fine")], subquery(tested.copy(), "t"))
    final = final.where(exp.EQ(this=col("round"), expression=exp.Subquery(this=last)), col("fine"), copy=False)
    return (
        select(
            [
                exp.Column(this=exp.Star(except_=[ident("kept")]), table=ident("a")),
                named(is_there(col("fine", "s")), "kept"),
            ],
            exp.Table(this=ident("alone"), alias=exp.TableAlias(this=ident("a"))),
        )
        .join(
            subquery(final, "s"),
            on=all_of(exp.EQ(this=col(name, "a"), expression=col(name, "s")) for name in names),
            join_type="left",
            copy=False,
        )
        .with_(ident("alone"), as_=judged, materialized=True, copy=False)
        .with_(
            ident("rounds"),
            as_=union_all(first, next_),
            recursive=True,
            copy=False,
        )
    )


def _holds(shield: SubsetCondition, keys: Sequence[str], moving: bool) -> exp.Expr:
    """Whether a class, in this round, is in a group of at least k that agree in the shield's attributes."""
    mine = [key for key in keys if any(key.startswith(f"q{i}_l") for i in shield.attributes)]
    group = [col(f"shield {key}") for key in mine]

    def over(aggregate: exp.Expr) -> exp.Window:
        return exp.Window(this=aggregate, partition_by=[col("round"), *(key.copy() for key in group)])

    if not moving:
        count: exp.Expr = over(exp.Sum(this=col(CLASS_COUNT)))
    else:
        lists = anonymous("flatten", over(exp.ArrayAgg(this=col(MOVERS))))
        distinct = exp.Coalesce(this=anonymous("len", anonymous("list_distinct", lists)), expressions=[number(0)])
        count = exp.Add(this=over(exp.Sum(this=col(SETTLED))), expression=distinct)
    return exp.GTE(this=cast(count, "BIGINT"), expression=number(shield.k))
