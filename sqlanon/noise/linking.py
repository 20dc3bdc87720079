"""Linking noisy records to the originals of their class: is a record's own value the nearest, and how many are near.

Over what `noise.statements` makes: ``record``, ``class``, ``x_j`` and ``y_j``, and the classes with their ranges.

Source: (k,ε)-Anonymity (see `sqlanon.policy.noise`): the linking attack, the linking range, β-confidence.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from sqlglot import exp

from sqlanon.expressions import (
    aliased,
    all_columns,
    all_of,
    cast,
    col,
    greatest,
    ident,
    is_there,
    least,
    named,
    number,
    of_rows,
    select,
    subquery,
    union_all,
    where,
)
from sqlanon.noise.statements import NoisyColumn

EVERYTHING = 1e300
"""The half-width of a range that holds all values: where there is no noise."""


def links(noisy: exp.Table, classes: exp.Table, columns: Sequence[NoisyColumn], every: int = 1) -> exp.Select:
    """Which records are linked to their own values: ``record``, ``linked`` and ``strictly``.

    Linked: no original of the class is strictly nearer than its own. Strictly: its own is nearer than all others.
    """
    return _nearest_of_one(noisy) if len(columns) == 1 else _nearest_of_several(noisy, classes, columns, every)


def _nearest_of_one(noisy: exp.Table) -> exp.Select:
    """One attribute: in the order of originals and noisy values, the nearest original is one of two neighbours."""
    nothing = exp.null()
    originals = select(
        [
            named(nothing, "record"),
            col("class"),
            named(col("x_0"), "place"),
            named(col("x_0"), "original"),
            named(nothing.copy(), "own"),
            named(nothing.copy(), "others"),
        ],
        noisy.copy(),
    )
    equals = exp.Window(this=exp.Count(this=exp.Star()), partition_by=[col("class"), col("x_0")])
    shown = select(
        [
            col("record"),
            col("class"),
            named(col("y_0"), "place"),
            named(nothing.copy(), "original"),
            named(col("x_0"), "own"),
            named(equals, "others"),
        ],
        noisy.copy(),
    )
    both = union_all(originals, shown)
    neighbours = [
        named(_running(exp.Max(this=col("original")), descending=False), "below"),
        named(_running(exp.Min(this=col("original")), descending=True), "above"),
    ]
    placed = select([all_columns("b"), *neighbours], subquery(both, "b"))
    below = exp.Paren(this=col("place") - col("below"))
    above = exp.Paren(this=col("above") - col("place"))
    own = exp.Abs(this=col("place") - col("own"))
    nearest = least(below, above)  # there is one at least, and NULL is passed over
    linked = own <= nearest
    two = all_of([below.eq(above), col("below").neq(col("above"))])
    alone = all_of(
        [
            linked.copy(),
            col("others").eq(1),
            ~exp.Coalesce(this=exp.Paren(this=two), expressions=[exp.false()]),
        ]
    )
    query = select([col("record"), named(linked, "linked"), named(alone, "strictly")], subquery(placed, "p"))
    return query.where(is_there(col("record")), copy=False)


def _running(aggregate: exp.Expr, descending: bool) -> exp.Window:
    """An aggregate over all in the class that come before, and what is in the same place."""
    order = exp.Order(expressions=[exp.Ordered(this=col("place"), desc=descending)])
    spec = exp.WindowSpec(kind="RANGE", start="UNBOUNDED", start_side="PRECEDING", end="CURRENT ROW")
    return exp.Window(this=aggregate, partition_by=[col("class")], order=order, spec=spec)


def _nearest_of_several(noisy: exp.Table, classes: exp.Table, columns: Sequence[NoisyColumn], every: int) -> exp.Select:
    """Several attributes: the distance is the largest of theirs, each by its scale; all pairs of a class count."""
    own, other = _distance(columns, "r"), _distance(columns, "o")
    nearest = exp.Min(this=other)
    query = select([col("record", "r"), named(own, "own"), named(nearest, "nearest")], aliased(noisy, "r"))
    query = query.join(aliased(classes, "c"), on=_same_class("c"), copy=False)
    apart = col("record", "r").neq(col("record", "o"))
    query = query.join(aliased(noisy, "o"), on=all_of([_same_class("o"), apart]), join_type="left", copy=False)
    if every > 1:
        chosen = exp.Mod(this=col("record", "r"), expression=number(every)).eq(0)
        query = query.where(chosen, copy=False)
    query = query.group_by(col("record", "r"), own.copy(), copy=False)
    farther = exp.Coalesce(this=col("nearest"), expressions=[number(EVERYTHING)])
    found: list[exp.Expr] = [
        col("record"),
        named(col("own") <= farther, "linked"),
        named(col("own") < farther, "strictly"),
    ]
    return of_rows(select(found, subquery(query, "p")))


def _distance(columns: Sequence[NoisyColumn], alias: str) -> exp.Expr:
    """How far a noisy record is from an original: the largest of the attributes' distances, each by its scale.

    An attribute without noise is the same in all of the class: it tells nothing.
    """
    parts = []
    for j, one in enumerate(columns):
        scale = col(f"delta_{j}", "c") / number(one.epsilon)
        off = exp.Abs(this=col(f"y_{j}", "r") - col(f"x_{j}", alias))
        none = col(f"delta_{j}", "c").eq(0.0)
        parts.append(exp.If(this=none, true=number(0.0), false=off / exp.Paren(this=scale)))
    return greatest(*parts) if len(parts) > 1 else parts[0]


def _same_class(alias: str) -> exp.Expr:
    return col("class", "r").eq(col("class", alias))


def _half_widths(columns: Sequence[NoisyColumn], confidence: float) -> list[exp.Expr]:
    """Half of the linking range, by attribute: −b ln(1 − β^(1/m)) for m attributes, b = Δ/ε the scale of the noise."""
    factor = -math.log(-math.expm1(math.log(confidence) / len(columns)))
    widths: list[exp.Expr] = []
    for j, one in enumerate(columns):
        width = col(f"delta_{j}", "c") * number(factor / one.epsilon)
        none = col(f"delta_{j}", "c").eq(0.0)
        widths.append(exp.If(this=none, true=number(EVERYTHING), false=width))
    return widths


def near(noisy: exp.Table, classes: exp.Table, columns: Sequence[NoisyColumn], confidence: float, j: int) -> exp.Select:
    """How many originals of its class are in the linking range of each record, in attribute ``j``: as ``near``.

    The range is around the value with noise, before it is rounded and cut off at bounds: so it holds the original with
    the confidence that is asked for. (What is released tells less.) Counted in their order: originals up to the upper
    end of a range, less those before its lower end.
    """
    width = _half_widths(columns, confidence)[j]
    originals = select(
        [
            named(exp.null(), "record"),
            col("class"),
            named(col(f"x_{j}"), "place"),
            named(number(1), "turn"),
            named(number(1), "original"),
        ],
        noisy.copy(),
    )
    ends: list[exp.Query] = [originals]
    for turn, sign in ((0, exp.Sub), (2, exp.Add)):
        end: list[exp.Expr] = [
            col("record", "r"),
            col("class", "r"),
            named(sign(this=col(f"v_{j}", "r"), expression=width.copy()), "place"),
            named(number(turn), "turn"),
            named(number(0), "original"),
        ]
        query = select(end, aliased(noisy, "r"))
        ends.append(query.join(aliased(classes, "c"), on=_same_class("c"), copy=False))
    order = exp.Order(expressions=[exp.Ordered(this=col("place")), exp.Ordered(this=col("turn"))])
    spec = exp.WindowSpec(kind="ROWS", start="UNBOUNDED", start_side="PRECEDING", end="CURRENT ROW")
    so_far = exp.Window(this=exp.Sum(this=col("original")), partition_by=[col("class")], order=order, spec=spec)
    counted = select([col("record"), col("turn"), named(so_far, "so_far")], subquery(union_all(*ends), "e"))
    is_upper = col("turn").eq(2)
    signed = exp.If(this=is_upper, true=col("so_far"), false=exp.Neg(this=col("so_far")))
    count = named(cast(exp.Sum(this=signed), "BIGINT"), "near")
    query = select([col("record"), count], subquery(counted, "c"), [col("record")])
    return of_rows(query.where(is_there(col("record")), copy=False))


def near_in_all(
    noisy: exp.Table,
    classes: exp.Table,
    columns: Sequence[NoisyColumn],
    confidence: float,
    each: Sequence[exp.Table],
    k: int,
) -> exp.Select:
    """How many originals are in the linking range in all attributes: ``record`` and ``near``; k or more may be told as
    less than it is, but not as less than k.

    Of n originals, n_j in the range of attribute j, at least Σ n_j − (m − 1) n are in all, and at most the least n_j:
    that decides of most records. Of the others, all pairs of the class are looked at.
    """
    names = [f"m{j}" for j in range(len(each))]
    counts = [col("near", name) for name in names]
    together: exp.Expr = counts[0]
    for count in counts[1:]:
        together = together + count
    others = exp.Paren(this=number(len(each) - 1) * col("size", "c"))
    bounds: list[exp.Expr] = [
        col("record", "r"),
        named(exp.Paren(this=together) - others, "at_least"),
        named(least(*(count.copy() for count in counts)), "at_most"),
    ]
    known = select(bounds, aliased(noisy, "r")).join(aliased(classes, "c"), on=_same_class("c"), copy=False)
    for name, table in zip(names, each, strict=True):
        on = col("record", "r").eq(col("record", name))
        known = known.join(aliased(table, name), on=on, copy=False)
    inside = all_of(
        (exp.Abs(this=col(f"v_{j}", "r") - col(f"x_{j}", "o")) <= width)
        for j, width in enumerate(_half_widths(columns, confidence))
    )
    open_ = all_of(
        [
            col("at_least", "b") < number(k),
            col("at_most", "b") > 0,
        ]
    )
    counted = select([col("record", "r"), named(where(exp.Count(this=exp.Star()), inside), "near")], table_of("bounds"))
    counted = counted.join(aliased(noisy, "r"), on=col("record", "b").eq(col("record", "r")), copy=False)
    counted = counted.join(aliased(classes, "c"), on=_same_class("c"), copy=False)
    counted = counted.join(aliased(noisy, "o"), on=_same_class("o"), copy=False)
    counted = counted.where(open_, copy=False).group_by(col("record", "r"), copy=False)
    decided = exp.If(this=col("at_most", "b").eq(0), true=number(0), false=col("at_least", "b"))
    found = named(exp.Coalesce(this=col("near", "n"), expressions=[decided]), "near")
    query = select([col("record", "b"), found], table_of("bounds"))
    on = col("record", "b").eq(col("record", "n"))
    query = query.join(subquery(counted, "n"), on=on, join_type="left", copy=False)
    return query.with_(ident("bounds"), as_=known, materialized=True, copy=False)


def table_of(name: str) -> exp.Table:
    """A relation of the same statement, as ``b``."""
    return exp.Table(this=ident(name), alias=exp.TableAlias(this=ident("b")))


def pairs(classes: exp.Table) -> exp.Select:
    """One row: how many pairs of records there are within classes."""
    squared = exp.Pow(this=cast(col("size"), "DOUBLE"), expression=number(2))
    return select([exp.Coalesce(this=exp.Sum(this=squared), expressions=[number(0)])], classes.copy())


def risk(links: exp.Table, kept: exp.Table | None) -> exp.Select:
    """One row, of the records that are released: how many were looked at, are linked, and are strictly."""
    count = exp.Count(this=exp.Star())
    query = select(
        [count, where(count.copy(), col("linked", "l")), where(count.copy(), col("strictly", "l"))], aliased(links, "l")
    )
    if kept is not None:
        on = col("record", "l").eq(col("record", "k"))
        query = query.join(aliased(kept, "k"), on=on, join_type="semi", copy=False)
    return query
