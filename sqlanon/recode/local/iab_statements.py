"""The tables of strategy ``iab``: generalized tables as one node for each value, their tuples, and how they go on.

Names of tables and columns, all ours. ``maps`` holds the generalized tables: ``state`` (which one), ``attribute``,
``ground`` (a node at the attribute's lowest level) and ``node`` (what it reads there). ``steps``: by attribute and node
the ``next`` one above it that may be released. ``hits``: by state and attribute those that violating rows go to.
``others``: by combination the rows that agree in all other released columns, as ``other`` and ``n``.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from sqlanon.coding import ROWS, Coded, Levels
from sqlanon.expressions import (
    aliased,
    all_columns,
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
    total,
    union_all,
    where,
)
from sqlanon.frequency.statements import coded_rows
from sqlanon.recode.local.nodes import COMBINATION, NODE, Tree, in_combinations, node_name, released_name
from sqlanon.recode.recoding import Column

STATE = "state"
OTHER = "other"
VIOLATES = "violates"

HITS = {STATE: "INTEGER", "attribute": "INTEGER", "next": "INTEGER"}
"""Columns and types of ``hits``."""


def next_nodes(trees: Sequence[Tree]) -> exp.Query:
    """``attribute``, ``node`` and ``next``: for each node the nearest one above it that may be released, if any may.

    What may not be released is climbed past.
    """
    parts = [_next_nodes(i, tree.nodes) for i, tree in enumerate(trees)]
    return union_all(*parts)


def _next_nodes(attribute: int, nodes: exp.Table) -> exp.Select:
    climbing = table("climbing")
    there = is_there(col("parent"))
    first = select([col(NODE), named(col("parent"), "next")], nodes.copy()).where(there, copy=False)
    past = exp.Not(this=col("released", "u"))
    on = exp.EQ(this=col(NODE, "u"), expression=col("next", "c"))
    above = select([col(NODE, "c"), col("parent", "u")], aliased(climbing, "c"))
    above = above.join(aliased(nodes, "u"), on=on, copy=False)
    above = above.where(past, is_there(col("parent", "u")), copy=False)
    found = select([named(number(attribute), "attribute"), col(NODE, "c"), col("next", "c")], aliased(climbing, "c"))
    found = found.join(aliased(nodes, "u"), on=on.copy(), copy=False).where(col("released", "u"), copy=False)
    both = union_all(first, above)
    # In a subquery, for each attribute has its own.
    query = found.with_(ident("climbing"), as_=both, recursive=True, copy=False)
    return select([exp.Star()], subquery(query, "found"))


def first_maps(trees: Sequence[Tree], steps: exp.Table) -> exp.Query:
    """The table as it stands: every value is itself, or the nearest one above it that may be released.

    What has none is in no generalized table.
    """
    parts = []
    for i, tree in enumerate(trees):
        mine = all_of(
            [
                exp.EQ(this=col("attribute", "s"), expression=number(i)),
                exp.EQ(this=col(NODE, "s"), expression=col(NODE, "v")),
            ]
        )
        node = exp.If(this=col("released", "v"), true=col(NODE, "v"), false=col("next", "s"))
        output: list[exp.Expr] = [
            named(number(0), STATE),
            named(number(i), "attribute"),
            named(col(NODE, "v"), "ground"),
            named(node, NODE),
        ]
        query = select(output, aliased(tree.nodes, "v")).join(
            aliased(steps, "s"), on=mine, join_type="left", copy=False
        )
        ground = exp.EQ(this=col("level", "v"), expression=number(tree.floor))
        parts.append(query.where(ground, is_there(node.copy()), copy=False))
    return union_all(*parts)


def others(
    source: exp.Table,
    columns: Sequence[Column],
    attributes: Sequence[Coded],
    combinations: exp.Table,
    trees: Sequence[Tree],
) -> exp.Select:
    """The source's rows by combination and all released columns that are no quasi-identifiers: ``other`` numbers these.

    Parameters
    ----------
    source, columns:
        The private table, and what is released of it.
    attributes, trees, combinations:
        The quasi-identifiers, and their combinations.
    """
    names = [column.name for column in columns if column.quasi is None]
    values: list[exp.Expr] = [named(col(one.column), f"q{i}") for i, one in enumerate(attributes)]
    values += [named(col(name), f"o{j}") for j, name in enumerate(names)]
    floor: Levels = tuple(tree.floor for tree in trees)
    query, codes = coded_rows(subquery(select(values, source.copy()), "s"), attributes, floor)
    rest = [f"o{j}" for j in range(len(names))]
    coded = query.select(*(named(code, name) for name, code in codes.items()), *(col(o, "r") for o in rest), copy=False)
    heights: Levels = tuple(tree.height for tree in trees)
    offsets = [tree.offsets for tree in trees]
    rows = in_combinations(subquery(coded, "f"), combinations, heights, floor, offsets, rest)
    keys: list[exp.Expr] = [col(COMBINATION), *(col(o) for o in rest)]
    counts = select([*keys, named(exp.Count(this=exp.Star()), ROWS)], subquery(rows, "r"), [key.copy() for key in keys])
    rank = exp.Window(this=exp.DenseRank(), order=exp.Order(expressions=[exp.Ordered(this=col(o)) for o in rest]))
    return select([col(COMBINATION), named(cast(rank, "INTEGER"), OTHER), col(ROWS)], subquery(counts, "c"))


def ground(combinations: exp.Table, maps: exp.Table, trees: Sequence[Tree]) -> exp.Select:
    """The combinations that can be released: ``combination``, ``n``, and by attribute its lowest node ``ground_i``."""
    keys = [node_name(i, tree.floor) for i, tree in enumerate(trees)]
    output: list[exp.Expr] = [
        col(COMBINATION),
        col(ROWS),
        *(named(col(key), f"ground_{i}") for i, key in enumerate(keys)),
    ]
    query = select(output, combinations.copy())
    for i, key in enumerate(keys):
        mine = select([col("ground")], maps.copy()).where(
            exp.EQ(this=col("attribute"), expression=number(i)), copy=False
        )
        query = query.where(exp.In(this=col(key), query=exp.Subquery(this=mine)), copy=False)
    return query


def placed(combinations: exp.Table, maps: exp.Table, attributes: int, states: Sequence[int]) -> exp.Select:
    """Some generalized tables: ``state``, ``combination``, ``n``, and by attribute what it reads, ``node_i``.

    Every combination has a node in each. Outer joins are made in the order in which they stand: inner ones the engine
    may begin with the maps of all attributes, a product of them.

    Parameters
    ----------
    combinations, maps:
        Made by `ground` and `first_maps`.
    attributes, states:
        How many quasi-identifiers there are, and which tables.
    """
    listed = exp.Values(
        expressions=[exp.Tuple(expressions=[number(state)]) for state in states],
        alias=exp.TableAlias(this=ident("t"), columns=[ident(STATE)]),
    )
    query = exp.Select().from_(aliased(combinations, "c"), copy=False).join(listed, join_type="cross", copy=False)
    output: list[exp.Expr] = [col(STATE, "t"), col(COMBINATION, "c"), col(ROWS, "c")]
    for i in range(attributes):
        mine = select([col(STATE), col("ground"), col(NODE)], maps.copy())
        mine = mine.where(_among(states), exp.EQ(this=col("attribute"), expression=number(i)), copy=False)
        reads = exp.EQ(this=col(f"ground_{i}", "c"), expression=col("ground", f"m{i}"))
        on = exp.And(this=reads, expression=_same(STATE, f"m{i}", "t"))
        query = query.join(subquery(mine, f"m{i}"), on=on, join_type="left", copy=False)
        output.append(named(col(NODE, f"m{i}"), released_name(i)))
    return query.select(*output, copy=False)


def flagged(rows: exp.Table, small: Sequence[tuple[exp.Query, Sequence[str]]]) -> exp.Select:
    """Placed rows with ``violates``: whether one of the requirements' groups that they are in is too small.

    Parameters
    ----------
    rows:
        Made by `placed`.
    small:
        For each requirement its groups that are too small, and their keys.
    """
    query = exp.Select().from_(aliased(rows, "p"), copy=False)
    is_small: list[exp.Expr] = []
    for number_, (groups, keys) in enumerate(small):
        alias = f"g{number_}"
        on = all_of(exp.EQ(this=col(key, "p"), expression=col(key, alias)) for key in keys)
        query = query.join(subquery(groups, alias), on=on, join_type="left", copy=False)
        is_small.append(is_there(col(keys[0], alias)))
    violates = named(exp.or_(*is_small, copy=False), VIOLATES)
    return query.select(all_columns("p"), violates, copy=False)


def tuples(rows: exp.Table, other: exp.Table | None, attributes: int) -> exp.Select:
    """One row of figures for each generalized table: ``state``, ``tuples`` (distinct ones), ``violating`` (those that
    violate), ``rows`` and ``violating_rows``.

    Parameters
    ----------
    rows:
        Made by `flagged`.
    other:
        Made by `others`; None where nothing else is released.
    attributes:
        How many quasi-identifiers there are.
    """
    keys: list[exp.Expr] = [col(name, "p") for name in (STATE, *map(released_name, range(attributes)), VIOLATES)]
    query = exp.Select().from_(aliased(rows, "p"), copy=False)
    counted = "p"
    if other is not None:
        on = exp.EQ(this=col(COMBINATION, "p"), expression=col(COMBINATION, "o"))
        query = query.join(aliased(other, "o"), on=on, copy=False)
        keys.append(col(OTHER, "o"))
        counted = "o"
    each = query.select(col(STATE, "p"), col(VIOLATES, "p"), named(total(col(ROWS, counted)), ROWS), copy=False)
    each = each.group_by(*keys, copy=False)
    output: list[exp.Expr] = [
        col(STATE),
        named(exp.Count(this=exp.Star()), "tuples"),
        named(where(exp.Count(this=exp.Star()), col(VIOLATES)), "violating"),
        named(total(col(ROWS)), "rows"),
        named(exp.Coalesce(this=total(col(ROWS), col(VIOLATES)), expressions=[number(0)]), "violating_rows"),
    ]
    return select(output, subquery(each, "t"), [col(STATE)]).order_by(col(STATE), copy=False)


def hits(rows: exp.Table, steps: exp.Table, target: exp.Table, attributes: int) -> exp.Insert:
    """Insert, by generalized table and attribute, the nodes that the values of violating rows go to, each once:
    ``state``, ``attribute``, ``next``."""
    parts = []
    for i in range(attributes):
        goes = exp.EQ(this=col(NODE, "s"), expression=col(released_name(i), "p"))
        on = exp.And(this=exp.EQ(this=col("attribute", "s"), expression=number(i)), expression=goes)
        query = select([col(STATE, "p"), col("attribute", "s"), col("next", "s")], aliased(rows, "p"))
        query = query.join(aliased(steps, "s"), on=on, copy=False)
        parts.append(query.where(col(VIOLATES, "p"), copy=False).distinct(copy=False))
    query_: exp.Query = union_all(*parts)
    return exp.Insert(this=target.copy(), expression=query_)


def kept(rows: exp.Table, state: int, nodes: Sequence[str]) -> exp.Select:
    """The rows of a generalized table, with flags, that do not violate: ``state``, ``combination``, ``n``, nodes."""
    columns: list[exp.Expr] = [col(name) for name in (STATE, COMBINATION, ROWS, *nodes)]
    return select(columns, rows.copy()).where(_among([state]), exp.Not(this=col(VIOLATES)), copy=False)


def children(maps: exp.Table, steps: exp.Table, hit: exp.Table, state: int, first: int) -> exp.Insert:
    """Insert what follows from a generalized table: for each attribute that violating rows can go up in, the table in
    which all values that have the same next one as a violating row's are generalized to that.

    Parameters
    ----------
    maps, steps, hit:
        Made by `first_maps`, `next_nodes`, `hits`.
    state, first:
        The table; its child on attribute ``i`` is ``first + i``.
    """
    mine = subquery(select([exp.Star()], maps.copy()).where(_among([state]), copy=False), "m")
    moved = exp.Select(expressions=[col("attribute")], distinct=exp.Distinct()).from_(hit.copy())
    moved = moved.where(_among([state]), copy=False)
    output: list[exp.Expr] = [
        named(exp.Add(this=col("attribute", "c"), expression=number(first)), STATE),
        col("attribute", "m"),
        col("ground", "m"),
        named(exp.Coalesce(this=col("next", "h"), expressions=[col(NODE, "m")]), NODE),
    ]
    query = exp.Select(expressions=output).from_(mine, copy=False)
    query = query.join(subquery(moved, "c"), join_type="cross", copy=False)
    goes = [_same("attribute", "s", "m"), _same(NODE, "s", "m")]
    query = query.join(aliased(steps, "s"), on=all_of(goes), join_type="left", copy=False)
    is_hit = [_same(STATE, "h", "m"), _same("attribute", "h", "m"), _same("next", "h", "s")]
    is_hit.append(_same("attribute", "h", "c"))
    query = query.join(aliased(hit, "h"), on=all_of(is_hit), join_type="left", copy=False)
    return exp.Insert(this=maps.copy(), expression=query)


def digests(maps: exp.Table, first: int) -> exp.Select:
    """``state`` and a digest for each generalized table from a number on: equal tables have equal digests."""
    order = [exp.Ordered(this=col("attribute")), exp.Ordered(this=col("ground"))]
    nodes = exp.ArrayAgg(this=exp.Order(this=col(NODE), expressions=order))
    output: list[exp.Expr] = [col(STATE), named(anonymous("md5", cast(nodes, "VARCHAR")), "digest")]
    newer = exp.GTE(this=col(STATE), expression=number(first))
    query = select(output, maps.copy(), [col(STATE)]).where(newer, copy=False)
    return query.order_by(col(STATE), copy=False)


def without(relation: exp.Table, states: Sequence[int]) -> exp.Delete:
    """Delete what there is of generalized tables."""
    return exp.Delete(this=relation.copy(), where=exp.Where(this=_among(states)))


def _among(states: Sequence[int]) -> exp.Expr:
    return exp.In(this=col(STATE), expressions=[number(state) for state in states])


def _same(name: str, left: str, right: str) -> exp.Expr:
    return exp.EQ(this=col(name, left), expression=col(name, right))
