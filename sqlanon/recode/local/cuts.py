"""The cuts that strategy ``mondrian`` tries on the parts of a table, by kind of attribute.

Names of tables and columns, all ours. ``parts`` has the combinations that may still be cut: ``combination`` and
``part``. ``rows`` has for each ``attribute`` and ``combination`` its ``node`` at the attribute's lowest level, its
``item`` (what a cut keeps together: the node, or the combination), and ``n``. ``values`` has what is known of these
nodes, and ``ancestors`` the ``node`` of an ``item`` at each level with its ``leaves``.

A cut is given by rows, one an item: by ``attribute``, ``part`` and ``item`` the side that it goes to (``inside`` or
not), with the ``gain`` that the cut promises: by how much the loss of the part's rows falls, times the attribute's
weight.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlglot import exp

from sqlanon.coding import ROWS
from sqlanon.expressions import (
    aliased,
    all_of,
    cast,
    col,
    ident,
    named,
    number,
    select,
    subquery,
    table,
    total,
    union_all,
    where,
)
from sqlanon.recode.local.nodes import COMBINATION, NODE

PART = "part"
ATTRIBUTE = "attribute"
INSIDE = "inside"
GAIN = "gain"
KEYS = (ATTRIBUTE, PART)
"""The columns that tell cuts apart."""

SHARE = 8
"""Where no single value (or child) has one of so many parts of the rows, several are cut off together: thousands of
values do not take thousands of rounds."""


def items(parts: exp.Table, rows: exp.Table, attributes: Sequence[int]) -> exp.Select:
    """What can be told apart in each part along some attributes, with its rows."""
    keys = [col(ATTRIBUTE, "r"), col(PART, "p"), col("item", "r"), col(NODE, "r")]
    on = col(COMBINATION, "r").eq(col(COMBINATION, "p"))
    query = select([*keys, named(total(col(ROWS, "r")), ROWS)], aliased(rows, "r"))
    query = query.join(aliased(parts, "p"), on=on, copy=False)
    query = query.where(exp.In(this=col(ATTRIBUTE, "r"), expressions=[number(i) for i in attributes]), copy=False)
    return query.group_by(*(key.copy() for key in keys), copy=False)


def cut_of_values(items_: exp.Select, values: exp.Table, least: int) -> exp.Select:
    """Cut numbers and times along their order, and other values by how frequent they are.

    Of all borders between numbers, the one nearest to the middle of the rows, the first of equals; NULL is the least
    value. Of other values the most frequent is cut off, or as many of the most frequent as have ``least`` rows, and one
    of `SHARE` parts of all.
    """
    names = ["low", "high", "leaves", "void", "top", "scale", "ordered"]
    valued = select([*_columns("i", [*KEYS, "item", ROWS]), *_columns("v", names)], subquery(items_, "i"))
    valued = valued.join(aliased(values, "v"), on=_same([NODE, ATTRIBUTE], "i", "v"), copy=False)
    first = exp.If(this=col("ordered"), true=col("low"), false=exp.Neg(this=col(ROWS)))
    order: list[exp.Expr] = [exp.Ordered(this=first), exp.Ordered(this=col("item"))]
    placed = with_columns(valued, {"so_far": total_over(KEYS, order), "whole": total_over(KEYS)})
    off = (number(2) * col("so_far")) - col("whole")
    beyond = exp.If(this=off > 0, true=number(1), false=number(0))
    distance = (number(2) * exp.Abs(this=off.copy())) + beyond
    is_border = col("so_far") < col("whole")
    nearest = where(exp.ArgMin(this=col("so_far"), expression=distance), is_border)
    before = exp.Paren(this=col("so_far") - col(ROWS))
    few = (before < number(least)) | _is_small_share(before)
    inside = exp.If(this=col("ordered"), true=col("so_far") <= over(nearest, KEYS), false=few)
    sides = with_columns(placed, {INSIDE: inside})
    gains = _gains(table("sides"), least)
    query = _result(table("sides"), table("gains"), KEYS, col(INSIDE, "i"), col(GAIN, "b"))
    return _with_steps(query, {"sides": sides, "gains": gains})


def _gains(sides: exp.Table, least: int) -> exp.Select:
    """The gains of the cuts whose sides both have the rows.

    What is shown as one range loses its width, and what is shown as one set the values in it. Where NULL is among
    several, all is lost.
    """
    conditions = {"all": exp.true(), "in": col(INSIDE), "out": ~col(INSIDE)}
    facts: dict[str, exp.Expr] = {name: exp.AnyValue(this=col(name)) for name in ("top", "scale", "ordered")}
    for name, condition in conditions.items():
        facts |= {
            f"rows_{name}": total(col(ROWS), condition),
            f"low_{name}": where(exp.Min(this=col("low")), condition.copy()),
            f"last_{name}": where(exp.Max(this=col("low")), condition.copy()),
            f"high_{name}": where(exp.Max(this=col("high")), condition.copy()),
            f"void_{name}": where(exp.LogicalOr(this=col("void")), condition.copy()),
            f"size_{name}": where(exp.Sum(this=col("leaves") + 1), condition.copy()),
        }

    def lost(name: str) -> exp.Expr:
        several = col(f"low_{name}") < col(f"last_{name}")
        mixed = col(f"void_{name}") & several
        width = col(f"high_{name}") - col(f"low_{name}")
        members = col(f"size_{name}") - 1
        shown = exp.If(this=col("ordered"), true=width, false=members)
        return col(f"rows_{name}") * exp.If(this=mixed, true=col("top"), false=shown)

    saved = (lost("all") - lost("in")) - lost("out")
    gain = exp.Paren(this=saved) * col("scale")
    found = select([*(col(key) for key in KEYS), named(gain, GAIN)], subquery(_grouped(sides, facts), "g"))
    enough = [(col(f"rows_{name}") >= number(least)) for name in ("in", "out")]
    return found.where(col("low_all") < col("last_all"), *enough, copy=False)


def cut_of_hierarchy(items_: exp.Select, ancestors: exp.Table, least: int) -> exp.Select:
    """Cut one child of the lowest common ancestor off the others: the one that promises most.

    As many of those that promise most are cut off as have one of `SHARE` parts of the rows. Their rows are promised
    their child, and where there are two children, those of the other the other.
    """
    counts: dict[str, exp.Expr] = {"whole": total(col(ROWS)), "members": exp.Count(this=exp.Star())}
    wide = select([exp.Star()], subquery(_grouped(table("items"), counts), "g"))
    several = col("members") > 1
    wide = wide.where(several, col("whole") >= number(2 * least), copy=False)
    steps = {
        "items": items_,
        "wide": wide,
        "common": _common(ancestors),
        "split": _split(ancestors),
        "children": _children(least),
    }
    query = _result(table("split"), table("children"), [*KEYS, "child"], col("taken", "b"), col(GAIN, "b"))
    return _with_steps(query, steps)


def _common(ancestors: exp.Table) -> exp.Select:
    """The ``level`` of the lowest common ancestor of a part's items, and its ``leaves``."""
    above = _joined([*_columns("i", KEYS), *_columns("a", ["level", NODE, "leaves"])], "wide")
    above = above.join(aliased(ancestors, "a"), on=_same(["item", ATTRIBUTE], "i", "a"), copy=False)
    is_one = exp.Min(this=col(NODE)).eq(exp.Max(this=col(NODE)))
    levels = _grouped(subquery(above, "m"), {"leaves": exp.AnyValue(this=col("leaves"))}, ["level"])
    lowest = {"level": exp.Min(this=col("level")), "leaves": exp.ArgMin(this=col("leaves"), expression=col("level"))}
    return _grouped(subquery(levels.having(is_one, copy=False), "l"), lowest)


def _split(ancestors: exp.Table) -> exp.Select:
    """Items by ``child`` of the lowest common ancestor, with what they would save as that."""
    is_below = col("level", "a").eq(col("level", "b") - 1)
    spared = exp.Paren(this=col("leaves", "b") - col("leaves", "a"))
    saved = named(col(ROWS, "i") * spared, "saved")
    child = named(col(NODE, "a"), "child")
    query = _joined([*_columns("i", [*KEYS, "item", ROWS]), child, col("scale", "a"), saved], "common")
    on = _same(["item", ATTRIBUTE], "i", "a") & is_below
    return query.join(aliased(ancestors, "a"), on=on, copy=False)


def _children(least: int) -> exp.Select:
    """The children, with whether they are ``taken``, and the ``gain`` of that; of the parts where one is.

    Only those are that have rows enough, in and beside them.
    """
    facts = {
        "border": total(col(ROWS)),
        "saved": exp.Sum(this=col("saved")),
        "scale": exp.AnyValue(this=col("scale")),
    }
    beside = {
        "whole": over(exp.Sum(this=col("border")), KEYS),
        "saved_all": over(exp.Sum(this=col("saved")), KEYS),
        "children": over(exp.Count(this=exp.Star()), KEYS),
    }
    children = with_columns(_grouped(table("split"), facts, ["child"]), beside)
    most = col("whole") - number(least)
    fits = (col("border") >= number(least)) & (col("border") <= most)
    fitting = with_columns(children, {"fits": fits})
    order: list[exp.Expr] = [
        exp.Ordered(this=col("fits"), desc=True),
        exp.Ordered(this=col("saved"), desc=True),
        exp.Ordered(this=col("child")),
    ]
    ranked = with_columns(fitting, {"so_far": over(exp.Sum(this=col("border")), KEYS, order)})
    before = exp.Paren(this=col("so_far") - col("border"))
    room = col("so_far") <= most
    taking = with_columns(ranked, {"taken": all_of([col("fits"), room, _is_small_share(before)])})
    two = col("children").eq(2)
    saved = over(where(exp.Sum(this=col("saved")), col("taken")), KEYS)
    gain = exp.If(this=two, true=col("saved_all"), false=saved) * col("scale")
    gains = with_columns(taking, {GAIN: gain, "any_taken": over(exp.LogicalOr(this=col("taken")), KEYS)})
    return select([exp.Star()], subquery(gains, "g")).where(col("any_taken"), copy=False)


def _is_small_share(rows: exp.Expr) -> exp.Expr:
    """Whether rows are less than one of `SHARE` parts of the whole."""
    return (rows * number(SHARE)) < col("whole")


def union(branches: Sequence[exp.Query]) -> exp.Query:
    """All rows of some queries, at least one."""
    return union_all(*branches)


def total_over(keys: Sequence[str], order: Sequence[exp.Expr] = ()) -> exp.Cast:
    """The rows of a group, up to these where there is an order."""
    return cast(over(exp.Sum(this=col(ROWS)), keys, order), "BIGINT")


def over(function: exp.Expr, keys: Sequence[str], order: Sequence[exp.Expr] = ()) -> exp.Window:
    """A function over the rows that agree in some columns, in an order."""
    window = exp.Window(this=function, partition_by=[col(key) for key in keys])
    if order:
        window.set("order", exp.Order(expressions=[term.copy() for term in order]))
    return window


def with_columns(query: exp.Select, columns: Mapping[str, exp.Expr]) -> exp.Select:
    """The same rows with more columns."""
    return select([exp.Star(), *(named(value, name) for name, value in columns.items())], subquery(query, "q"))


def _result(items_: exp.Table, gains: exp.Table, keys: Sequence[str], inside: exp.Expr, gain: exp.Expr) -> exp.Select:
    # Equal gains are ties, however they were worked out.
    rounded = exp.Round(this=gain, decimals=number(9))
    output = [*_columns("i", [*KEYS, "item"]), named(inside, INSIDE), named(rounded, GAIN)]
    query = select(output, aliased(items_, "i"))
    return query.join(aliased(gains, "b"), on=_same(keys, "i", "b"), copy=False)


def _with_steps(query: exp.Select, steps: Mapping[str, exp.Select]) -> exp.Select:
    """A query with what it is made from, each worked out once."""
    for name, step in steps.items():
        query = query.with_(ident(name), as_=step, materialized=True, copy=False)
    return query


def _joined(output: list[exp.Expr], other: str) -> exp.Select:
    """The items, each with the facts of its part."""
    query = select(output, aliased(table("items"), "i"))
    return query.join(aliased(table(other), "b"), on=_same(KEYS, "i", "b"), copy=False)


def _grouped(relation: exp.Expr, facts: Mapping[str, exp.Expr], more: Sequence[str] = ()) -> exp.Select:
    keys = [*KEYS, *more]
    output: list[exp.Expr] = [*(col(key) for key in keys), *(named(value, name) for name, value in facts.items())]
    return select(output, relation, [col(key) for key in keys])


def _columns(alias: str, names: Sequence[str]) -> list[exp.Expr]:
    return [col(name, alias) for name in names]


def _same(names: Sequence[str], one: str, other: str) -> exp.Expr:
    return all_of(col(name, one).eq(col(name, other)) for name in names)
