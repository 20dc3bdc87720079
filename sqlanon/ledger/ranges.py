"""Labels that are ranges of values, as Mondrian makes them: ``20-29``, ``2020-01-05 to 2020-02-10``.

Numbers may be padded with zeros, so that they sort: ``07`` is a range of one value, if the hierarchy has ``7``.

A range is no node of a hierarchy. It goes together with the nodes and ranges that it has values in common with: in the
order of the ground values, all of them are from some place to another.
"""

from __future__ import annotations

from collections.abc import Iterable

from sqlglot import exp

from sqlanon.expressions import (
    aliased,
    all_of,
    cast,
    col,
    ident,
    is_there,
    named,
    number,
    select,
    subquery,
    text,
    union_all,
)
from sqlanon.hierarchies.numerals import NUMERAL, part_of, plain, written_out


def nodes_in_order(hierarchy: exp.Expr, levels: Iterable[int]) -> exp.Select:
    """The nodes of a hierarchy: ``label``, and the places of its first and last value, ``low`` and ``high``."""
    order = exp.Order(expressions=[exp.Ordered(this=col("level_0"))])
    place = named(exp.Window(this=exp.Anonymous(this="DENSE_RANK"), order=order), "place")
    there = select([exp.Star(), place], hierarchy.copy()).where(is_there(col("level_0")), copy=False)
    each = [
        select([named(cast(col(f"level_{level}"), "VARCHAR"), "label"), col("place")], subquery(there.copy(), "p"))
        for level in levels
    ]
    output = [col("label"), named(exp.Min(this=col("place")), "low"), named(exp.Max(this=col("place")), "high")]
    return select([*output], subquery(union_all(*each), "e"), [col("label")])


def ranges(labels: exp.Query, nodes: exp.Expr) -> exp.Select:
    """The ranges among labels: ``label``, ``low`` and ``high``. Both ends of one are nodes, and it is none itself."""
    label = col("label", "l")
    forms = [f"({NUMERAL})(?:-({NUMERAL}))?", "(.+) to (.+)"]
    ends = [exp.Coalesce(this=part_of(label, forms[0], i), expressions=[part_of(label, forms[1], i)]) for i in (1, 2)]
    ends_ = select([label.copy(), named(ends[0], "first"), named(ends[1], "second")], subquery(labels, "l"))
    last = exp.Coalesce(this=col("second", "e"), expressions=[col("first", "e")])
    both = select(
        [col("label", "e"), named(_plain(col("first", "e")), "first"), named(_plain(last), "last")],
        subquery(ends_, "e"),
    )
    # Values of a text may be one number: then a range is from the least of their places to the greatest.
    output = [
        col("label", "r"),
        named(exp.Min(this=col("low", "a")), "low"),
        named(exp.Max(this=col("high", "b")), "high"),
    ]
    query = select([*output], subquery(both, "r"), [col("label", "r")])
    for alias, end in (("a", "first"), ("b", "last")):
        on = col(end, "r").eq(_plain(col("label", alias)))
        query = query.join(exp.alias_(nodes.copy(), alias, table=True), on=on, copy=False)
    on = col("label", "r").eq(col("label", "n"))
    return query.join(exp.alias_(nodes.copy(), "n", table=True), on=on, join_type="anti", copy=False)


def _plain(label: exp.Expr) -> exp.Expr:
    """A number without the zeros that it may be padded with; all else as it is."""
    return exp.Coalesce(this=plain(written_out(part_of(label, f"({NUMERAL})"))), expressions=[label.copy()])


def overlapping(one: exp.Expr, two: exp.Expr, numbers: bool) -> exp.Select:
    """Pairs of two labels, a range at least among them, that have values in common: ``one``, ``two`` and the ``finer``,
    or a number for that, ``f``.

    Where neither holds the other, what both have in common is finer: it is called by both.
    """

    def within(inner: str, outer: str) -> exp.Expr:
        lower = col("low", inner) >= col("low", outer)
        return all_of([lower, col("high", inner) <= col("high", outer)])

    own, name = ("id", "f") if numbers else ("label", "finer")
    first, second = col(own, "a"), col(own, "b")
    if numbers:
        both: exp.Expr = (first * number(_MORE_THAN_LABELS)) + second
    else:
        both = exp.DPipe(this=exp.DPipe(this=first, expression=text(" & ")), expression=second)
    finer = exp.Case(
        ifs=[
            exp.If(this=within("a", "b"), true=col(own, "a")),
            exp.If(this=within("b", "a"), true=col(own, "b")),
        ],
        default=both,
    )
    on = all_of(
        [
            col("low", "a") <= col("high", "b"),
            col("low", "b") <= col("high", "a"),
            exp.Paren(this=col("is_range", "a") | col("is_range", "b")),
            col("label", "a").neq(col("label", "b")),
        ]
    )
    output = [named(col("label", "a"), "one"), named(col("label", "b"), "two"), named(finer, name)]
    sides = [aliased(one.copy(), "a"), aliased(two.copy(), "b")]
    return select([*output], sides[0]).join(sides[1], on=on, copy=False)


_MORE_THAN_LABELS = 2**32


def placed(labels: exp.Query, nodes: exp.Expr, have_ranges: bool, numbered: exp.Expr | None) -> exp.Query:
    """Labels with the places of their values, and whether they are ranges."""
    found = _placed(labels, nodes, have_ranges)
    if numbered is None:
        return found
    query = select([exp.Column(this=exp.Star(), table=ident("p")), col("id", "x")], subquery(found, "p"))
    on = col("label", "p").eq(col("label", "x"))
    return query.join(exp.alias_(numbered.copy(), "x", table=True), on=on, copy=False)


def _placed(labels: exp.Query, nodes: exp.Expr, have_ranges: bool) -> exp.Query:
    own = select(
        [col("label", "l"), col("low", "n"), col("high", "n"), named(exp.false(), "is_range")],
        subquery(labels.copy(), "l"),
    )
    on = col("label", "l").eq(col("label", "n"))
    own = own.join(exp.alias_(nodes.copy(), "n", table=True), on=on, copy=False)
    if not have_ranges:
        return own
    found = subquery(ranges(labels.copy(), nodes), "x")
    return union_all(own, select([col("label"), col("low"), col("high"), named(exp.true(), "is_range")], found))
