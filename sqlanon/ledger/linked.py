"""Two releases of one table, side by side: groups of rows that look alike, and which of them can be the same rows.

A row of one release can be a row of the other if the columns that both show as they are have equal values (NULL equals
NULL), and the labels of each shared quasi-identifier are equal, or one is an ancestor of the other in the hierarchy:
the lower one is the *finest* value that the two tell of.

Rows are grouped before anything is joined. Where an attribute has one known level in each release, groups meet by their
labels at the coarser of the two: a hash join. Where labels are of several levels (local recoding, masked rows), they
meet by a table of the pairs of labels that go together. Groups are compared one such attribute after the other, as
prefixes: those that differ in one are not compared in the next. So the cost is that of the prefixes that meet, which
are few more than the groups that do; a join with all tables of pairs at once costs their product.

Names of columns, all ours: ``l0`` is the label of attribute 0 as text, ``k0`` its label at the coarser level, ``s0``
the value of shared column 0, ``n`` counts rows, ``i`` numbers groups, ``v0`` is a finest value. ``p0`` numbers what
groups have in ``s0`` .. and ``k0`` .., ``p1`` that and their labels of the first attribute of several levels, and so
on; ``f0`` numbers the finer labels of attribute 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from sqlglot import exp

from sqlanon.expressions import (
    aliased,
    all_of,
    cast,
    col,
    dense_rank,
    ident,
    is_null,
    is_there,
    named,
    number,
    same,
    select,
    subquery,
    total,
    union_all,
    where,
)
from sqlanon.ledger.ranges import nodes_in_order, overlapping, placed, ranges

ROWS = "n"
FIRST, SECOND = "sqlanon first", "sqlanon second"
"""The groups of each release, within a statement: names that no relation of a user has."""


@dataclass(frozen=True)
class Linked:
    """A quasi-identifier of two releases, or of one of them.

    Attributes
    ----------
    name:
        What it is called in what is found.
    first, second:
        Its column in each release; None: that release does not have it. What is released as it is, whatever its role,
        is at level 0.
    first_levels, second_levels:
        The levels that its labels can be of: one where the release is full-domain and masks no rows, else several.
    hierarchy:
        ``level_0`` to the top, as `sqlanon.hierarchies` makes it. None: labels meet if they are equal.
    height:
        Its top level, where it has a hierarchy.
    ranges:
        Whether labels may be ranges, which meet all that they have values in common with: dear where there are many.
        Else they meet equal labels alone.
    pairs:
        About how many pairs of labels there are, if that is known: attributes with few are compared first.
    """

    name: str
    first: str | None
    second: str | None
    first_levels: tuple[int, ...] = (0,)
    second_levels: tuple[int, ...] = (0,)
    hierarchy: exp.Expr | None = None
    height: int = 0
    ranges: bool = False
    pairs: int = 0

    @property
    def is_shared(self) -> bool:
        """Whether both releases have it."""
        return self.first is not None and self.second is not None

    @property
    def levels(self) -> tuple[int, int] | None:
        """The level of each release, where both are known; equal ones where there is no hierarchy to tell."""
        if self.hierarchy is None:
            return (0, 0)
        if len(self.first_levels) == len(self.second_levels) == 1:
            return self.first_levels[0], self.second_levels[0]
        return None

    @property
    def meets_all(self) -> bool:
        """Whether one release has its top value only: it tells nothing."""
        return (
            self.hierarchy is not None
            and self.height > 0
            and ((self.height,) in (self.first_levels, self.second_levels) and self.levels is not None)
        )

    @property
    def swapped(self) -> Linked:
        """The same, of the releases in the other order."""
        return replace(
            self,
            first=self.second,
            second=self.first,
            first_levels=self.second_levels,
            second_levels=self.first_levels,
        )


def shared_in(attributes: Sequence[Linked]) -> list[tuple[int, Linked]]:
    """The attributes that both releases have, with their numbers."""
    return [(i, one) for i, one in enumerate(attributes) if one.is_shared]


def groups(
    release: exp.Expr, columns: Sequence[str | None], shared: Sequence[str], count: str | None = None
) -> exp.Select:
    """The rows of a release that look alike: ``l0`` .. as text, ``s0`` .., and ``n``."""
    there = [(i, column) for i, column in enumerate(columns) if column is not None]
    output: list[exp.Expr] = [named(col(column, "r"), f"l{i}") for i, column in there]
    output += [named(col(column, "r"), f"s{j}") for j, column in enumerate(shared)]
    by: list[exp.Expr] = [col(column, "r") for column in dict.fromkeys([*(column for _, column in there), *shared])]
    rows = exp.Count(this=exp.Star()) if count is None else total(col(count, "r"))
    counted = select([*output, named(rows, ROWS)], aliased(release, "r"), by)
    if not by:  # no rows are no group
        counted = counted.having(exp.Count(this=exp.Star()) > 0, copy=False)
    texts: list[exp.Expr] = [named(cast(col(f"l{i}"), "VARCHAR"), f"l{i}") for i, _ in there]
    return select([*texts, *(col(f"s{j}") for j in range(len(shared))), col(ROWS)], subquery(counted, "c"))


def keyed(grouped: exp.Select, attributes: Sequence[Linked], shared: int, first: bool) -> exp.Select:
    """`groups` of one of the releases, with ``k0`` ..: labels at the coarser level, where both levels are known.

    A label that the hierarchy does not have is itself.
    """
    query = exp.Select().from_(subquery(grouped, "g"), copy=False)
    output: list[exp.Expr] = []
    for i, one in enumerate(attributes):
        if (one.first if first else one.second) is None:
            continue
        output.append(col(f"l{i}", "g"))
        if not one.is_shared or one.levels is None or one.meets_all:
            continue
        own, other = one.levels if first else reversed(one.levels)
        if own >= other or one.hierarchy is None:
            output.append(named(col(f"l{i}", "g"), f"k{i}"))
            continue
        name = f"h{i}"
        on = col(f"l{i}", "g").eq(col("own", name))
        query = query.join(subquery(_upward(one.hierarchy, own, other), name), on=on, join_type="left", copy=False)
        found = exp.If(this=is_there(col("own", name)), true=col("other", name), false=col(f"l{i}", "g"))
        output.append(named(found, f"k{i}"))
    output += [col(f"s{j}", "g") for j in range(shared)]
    query.set("expressions", [*output, col(ROWS, "g")])
    return query


def _upward(hierarchy: exp.Expr, level: int, above: int) -> exp.Select:
    """The labels of a level, as ``own``, and those above them, as ``other``."""
    own, other = _label(level), _label(above)
    pairs = [named(own, "own"), named(other, "other")]
    return exp.Select(expressions=pairs, distinct=exp.Distinct()).from_(hierarchy.copy(), copy=False)


def _label(level: int) -> exp.Expr:
    return cast(col(f"level_{level}"), "VARCHAR")


Finest: TypeAlias = 'Literal["texts", "numbers"] | None'
"""How the finest values that two groups tell are asked for, if they are: numbers are enough to count by them."""


def compatible(one: Linked, i: int, finest: Finest) -> exp.Select:
    """Which labels of the two releases go together: ``one``, ``two``; and what ``finest`` asks for of the ``finer`` and
    a number of it, ``f``.

    Of the labels that the releases have, by the names `FIRST` and `SECOND` of their groups. Equal labels always do; and
    nodes of the hierarchy one of which is above the other; and ranges with what they have values in common with. Labels
    that are neither (sets) meet nothing else.
    """
    label = col(f"l{i}")
    present = {name: exp.Select(expressions=[label.copy()], distinct=exp.Distinct()) for name in (FIRST, SECOND)}
    for name, query in present.items():
        query.from_(exp.Table(this=ident(name)), copy=False)
    on = same(col(f"l{i}", "a"), col(f"l{i}", "b"))
    equal: list[exp.Expr] = [named(col(f"l{i}", "a"), name) for name in ("one", "two", "finer")]
    pairs: list[exp.Query] = [
        select(equal, subquery(present[FIRST].copy(), "a")).join(
            subquery(present[SECOND].copy(), "b"), on=on, copy=False
        )
    ]
    if one.hierarchy is not None and {*one.first_levels, *one.second_levels} != {0}:
        pairs.append(_pairs(one, one.hierarchy, present))
    # Labels may be of several levels, and so a pair be here twice; it is not there with ranges, too.
    by: list[exp.Expr] = [col("one"), col("two")]
    output: list[exp.Expr] = [] if finest is None else [named(exp.Min(this=col("finer")), "finer")]
    nodes = select([*by, *output], subquery(union_all(*pairs), "p"), [each.copy() for each in by])
    if finest == "numbers":
        numbered = exp.Table(this=ident(_labels_name(i)))
        nodes = select([col("one", "p"), col("two", "p"), named(col("id", "x"), "f")], subquery(nodes, "p"))
        nodes = nodes.join(aliased(numbered, "x"), on=same(col("finer", "p"), col("label", "x")), copy=False)
    pairs = [nodes]
    if one.hierarchy is not None and one.ranges:
        own, other = (exp.Table(this=ident(_placed_name(i, name))) for name in (FIRST, SECOND))
        ranged = overlapping(own, other, numbers=finest == "numbers")
        if finest is None:
            ranged.expressions.pop()
        pairs.append(ranged)
    if finest != "texts":
        return select([exp.Star()], subquery(union_all(*pairs), "p"))
    number_ = dense_rank(exp.Order(expressions=[exp.Ordered(this=col("finer"))]))
    return select([exp.Star(), named(number_, "f")], subquery(union_all(*pairs), "p"))


def _placed_labels(one: Linked, i: int, name: str, finest: Finest) -> exp.Query:
    """The labels of one of the releases, where ranges meet others."""
    labels = exp.Select(expressions=[named(col(f"l{i}"), "label")], distinct=exp.Distinct())
    labels = labels.from_(exp.Table(this=ident(name)), copy=False)
    # Where all labels are of one level, they are its nodes.
    have_ranges = len(one.first_levels if name == FIRST else one.second_levels) > 1
    numbered = exp.Table(this=ident(_labels_name(i))) if finest == "numbers" else None
    return placed(labels, exp.Table(this=ident(_nodes_name(i))), have_ranges, numbered)


def _numbered_labels(i: int) -> exp.Select:
    """The labels that either release has of an attribute, ``label``, each with a number, ``id``."""
    each = [select([named(col(f"l{i}"), "label")], exp.Table(this=ident(name))) for name in (FIRST, SECOND)]
    labels = exp.Select(expressions=[col("label")], distinct=exp.Distinct()).from_(subquery(union_all(*each), "e"))
    return select([col("label"), named(exp.Window(this=exp.RowNumber()), "id")], subquery(labels, "l"))


def labels_of(release: exp.Expr, columns: Sequence[str]) -> exp.Select:
    """One row: how many labels each column has."""
    counts: list[exp.Expr] = [exp.Count(this=exp.Distinct(expressions=[col(name, "r")])) for name in columns]
    return select(counts, aliased(release, "r"))


def strange_labels(release: exp.Expr, column: str, hierarchy: exp.Expr, height: int) -> exp.Select:
    """One row: of the labels of a column, but NULL, the ``ranges``; and the ``others`` that are no nodes of its
    hierarchy: sets, and values that the hierarchy does not have.
    """
    label = cast(col(column, "r"), "VARCHAR")
    labels = exp.Select(expressions=[named(label, "label")], distinct=exp.Distinct()).from_(aliased(release, "r"))
    nodes = exp.Table(this=ident(_nodes_name(0)))
    is_range = is_there(col("label", "r"))
    count = exp.Count(this=exp.Star())
    output = [named(where(count, is_range), "ranges"), named(where(count.copy(), is_null(col("label", "r"))), "others")]
    query = select([*output], subquery(labels, "l")).where(is_there(col("label", "l")), copy=False)
    for alias, known, kind in (("n", aliased(nodes, "n"), "anti"), ("r", subquery(ranges(labels, nodes), "r"), "left")):
        on = col("label", "l").eq(col("label", alias))
        query = query.join(known, on=on, join_type=kind, copy=False)
    return query.with_(ident(_nodes_name(0)), as_=nodes_in_order(hierarchy, range(height + 1)), copy=False)


def known_labels(release: exp.Expr, column: str, hierarchy: exp.Expr, levels: Sequence[int]) -> exp.Select:
    """One row: the labels of a column, but NULL, and how many of them the hierarchy has at some levels."""
    label = cast(col(column, "r"), "VARCHAR")
    labels = exp.Select(expressions=[named(label, "label")], distinct=exp.Distinct()).from_(aliased(release, "r"))
    each = [select([named(_label(level), "node")], hierarchy.copy()) for level in levels]
    nodes = exp.Select(expressions=[col("node")], distinct=exp.Distinct()).from_(subquery(union_all(*each), "e"))
    counts: list[exp.Expr] = [exp.Count(this=col("label", "l")), exp.Count(this=col("node", "n"))]
    query = select(counts, subquery(labels, "l"))
    on = col("label", "l").eq(col("node", "n"))
    return query.join(subquery(nodes, "n"), on=on, join_type="left", copy=False)


def _pairs(one: Linked, hierarchy: exp.Expr, present: dict[str, exp.Select]) -> exp.Select:
    """The labels of two levels that go together, as far as the releases have them: those of one ground value."""
    first = _at_levels(hierarchy, one.first_levels, present[FIRST])
    second = _at_levels(hierarchy, one.second_levels, present[SECOND])
    is_lower = col("level", "a") < col("level", "b")
    finer = exp.If(this=is_lower, true=col("label", "a"), false=col("label", "b"))
    pairs: list[exp.Expr] = [named(col("label", "a"), "one"), named(col("label", "b"), "two"), named(finer, "finer")]
    query = exp.Select(expressions=pairs, distinct=exp.Distinct()).from_(subquery(first, "a"), copy=False)
    other = col("level", "a").neq(col("level", "b"))
    on = same(col("value", "a"), col("value", "b")) & other
    return query.join(subquery(second, "b"), on=on, copy=False)


def _at_levels(hierarchy: exp.Expr, levels: Sequence[int], present: exp.Select) -> exp.Select:
    """Each ground value, as ``value``, with its labels at some levels: ``level`` and ``label``, if a release has it."""
    each = [
        select([named(col("level_0"), "value"), named(number(level), "level"), named(_label(level), "label")], table_)
        for level, table_ in ((level, hierarchy.copy()) for level in levels)
    ]
    query = select([col("value", "h"), col("level", "h"), col("label", "h")], subquery(union_all(*each), "h"))
    labels = present.copy()
    on = same(col("label", "h"), col(labels.named_selects[0], "x"))
    return query.join(subquery(labels, "x"), on=on, join_type="semi", copy=False)


def meeting(attributes: Sequence[Linked], shared: int, first: str = "a", second: str = "b") -> exp.Expr:
    """When groups of the two releases can be the same rows, as far as values and known levels tell."""
    return all_of(same(col(name, first), col(name, second)) for name in _key(attributes, shared))


def of_several_levels(attributes: Sequence[Linked]) -> list[tuple[int, Linked]]:
    """The shared attributes whose labels meet by a table of pairs, in the order in which they are compared."""
    return sorted(((i, one) for i, one in shared_in(attributes) if one.levels is None), key=lambda at: at[1].pairs)


def both_grouped(
    query: exp.Select,
    first: exp.Expr,
    second: exp.Expr,
    shared: Sequence[str],
    attributes: Sequence[Linked],
    count: str | None = None,
    finest: Finest = "texts",
) -> exp.Select:
    """A query over `FIRST` and `SECOND`, with what these are, each group with a number, ``i``; and, where labels are of
    several levels, over the tables of pairs and of prefixes that meet: ``sqlanon pairs 0`` .., ``sqlanon met 0`` ..;
    these with the finest values, or without."""
    several = of_several_levels(attributes)
    parts: dict[str, exp.Query] = {}
    for name, release, is_first in ((FIRST, first, True), (SECOND, second, False)):
        columns = [one.first if is_first else one.second for one in attributes]
        grouped = keyed(groups(release, columns, shared, count), attributes, len(shared), is_first)
        grouped.append("expressions", named(exp.Window(this=exp.RowNumber()), "i"))
        if several:
            grouped = _with_prefixes(grouped, attributes, len(shared))
        parts[name] = grouped
    for i, one in several:
        if finest == "numbers":
            parts[_labels_name(i)] = _numbered_labels(i)
        if one.hierarchy is not None and one.ranges:
            parts[_nodes_name(i)] = nodes_in_order(one.hierarchy, range(one.height + 1))
            parts |= {_placed_name(i, name): _placed_labels(one, i, name, finest) for name in (FIRST, SECOND)}
        parts[pairs_name(i)] = compatible(one, i, finest)
    for step in range(len(several) + 1) if several else ():
        parts[met_name(step)] = _met(attributes, len(shared), step, finest)
    own = query.args["with_"].expressions if query.args.get("with_") else []
    made = exp.Select()
    for name, part in parts.items():
        made.with_(ident(name), as_=part, materialized=True, copy=False)
    query.set("with_", exp.With(expressions=[*made.args["with_"].expressions, *own]))
    return query


def _with_prefixes(grouped: exp.Select, attributes: Sequence[Linked], shared: int) -> exp.Select:
    """Groups with the numbers of their prefixes: ``p0`` .."""
    key = [*_key(attributes, shared)]
    labels = [f"l{i}" for i, _ in of_several_levels(attributes)]
    numbers: list[exp.Expr] = []
    for length in range(len(labels) + 1):
        by = [exp.Ordered(this=col(name)) for name in (*key, *labels[:length])]
        number_ = dense_rank(exp.Order(expressions=by)) if by else number(1)
        numbers.append(named(number_, f"p{length}"))
    return select([exp.Star(), *numbers], subquery(grouped, "g"))


def _key(attributes: Sequence[Linked], shared: int) -> list[str]:
    """The columns in which groups that meet are equal."""
    by_level = [i for i, one in shared_in(attributes) if one.levels is not None and not one.meets_all]
    return [*(f"s{j}" for j in range(shared)), *(f"k{i}" for i in by_level)]


def _met(attributes: Sequence[Linked], shared: int, step: int, finest: Finest) -> exp.Select:
    """The prefixes of both releases that meet: their numbers, ``a`` and ``b``, and the finer labels, ``f0`` .."""
    several = of_several_levels(attributes)
    if not step:
        one, two = (_prefixes(name, _key(attributes, shared), "p0") for name in (FIRST, SECOND))
        pairs = select([named(col("p0", "a"), "a"), named(col("p0", "b"), "b")], subquery(one, "a"))
        return pairs.join(subquery(two, "b"), on=meeting(attributes, shared), copy=False)
    i = several[step - 1][0]
    before, label = f"p{step - 1}", f"l{i}"
    one, two = (_prefixes(name, [before, label], f"p{step}") for name in (FIRST, SECOND))
    finer = [*(col(f"f{j}", "m") for j, _ in several[: step - 1]), named(col("f", "c"), f"f{i}")]
    numbers = [named(col(f"p{step}", side), side) for side in ("a", "b")]
    query = select([*numbers, *(finer if finest else ())], within(met_name(step - 1), "m"))
    query = query.join(subquery(one, "a"), on=col(before, "a").eq(col("a", "m")), copy=False)
    query = query.join(within(pairs_name(i), "c"), on=same(col(label, "a"), col("one", "c")), copy=False)
    on = col(before, "b").eq(col("b", "m")) & same(col(label, "b"), col("two", "c"))
    return query.join(subquery(two, "b"), on=on, copy=False)


def _prefixes(name: str, columns: Sequence[str], prefix: str) -> exp.Select:
    query = exp.Select(expressions=[*map(col, columns), col(prefix)], distinct=exp.Distinct())
    return query.from_(exp.Table(this=ident(name)), copy=False)


def _nodes_name(i: int) -> str:
    return f"sqlanon nodes {i}"


def _placed_name(i: int, release: str) -> str:
    return f"{release} placed {i}"


def _labels_name(i: int) -> str:
    return f"sqlanon labels {i}"


def pairs_name(i: int) -> str:
    """The table of pairs of an attribute's labels, within a statement."""
    return f"sqlanon pairs {i}"


_MET = "sqlanon met "


def met_name(compared: int) -> str:
    """The table of the prefixes that meet in so many attributes of several levels, within a statement."""
    return f"{_MET}{compared}"


def is_met(name: str) -> bool:
    """Whether a table within a statement is of prefixes that meet."""
    return name.startswith(_MET)


def swapped_met(met: exp.Expr) -> exp.Select:
    """The prefixes that meet, of the releases in the other order."""
    return select([named(col("b"), "a"), named(col("a"), "b")], met.copy())


def joined(output: Sequence[exp.Expr], attributes: Sequence[Linked], shared: int, numbers: bool = False) -> exp.Select:
    """An output of the groups of both releases that can be the same rows, ``a`` and ``b``; finer labels are ``c0`` ..,
    if ``numbers`` are not enough."""
    several = of_several_levels(attributes)
    if not several:
        query = select([*output], within(FIRST, "a"))
        return query.join(within(SECOND, "b"), on=meeting(attributes, shared), copy=False)
    query, last = select([*output], within(met_name(len(several)), "m")), f"p{len(several)}"
    for name, side in ((FIRST, "a"), (SECOND, "b")):
        on = col(last, side).eq(col(side, "m"))
        query = query.join(within(name, side), on=on, copy=False)
    for i, _ in () if numbers else several:
        finer = exp.Select(expressions=[col("f"), col("finer")], distinct=exp.Distinct())
        finer = finer.from_(exp.Table(this=ident(pairs_name(i))), copy=False)
        on = col("f", f"c{i}").eq(col(f"f{i}", "m"))
        query = query.join(subquery(finer, f"c{i}"), on=on, copy=False)
    return query


def finest(attributes: Sequence[Linked], numbers: bool = False) -> list[exp.Expr]:
    """The finest value that two groups tell of each attribute, or a number for it: ``v0`` .."""
    values: list[exp.Expr] = []
    for i, one in enumerate(attributes):
        if one.first is None:
            value: exp.Expr = col(f"l{i}", "b")
        elif one.second is None:
            value = col(f"l{i}", "a")
        elif one.levels is None:
            value = col(f"f{i}", "m") if numbers else col("finer", f"c{i}")
        else:
            own, other = one.levels
            value = col(f"l{i}", "a" if own <= other else "b")
        values.append(named(value, f"v{i}"))
    return values


def within(name: str, alias: str) -> exp.Table:
    """A relation of the same statement, under an alias."""
    return aliased(exp.Table(this=ident(name)), alias)


def titled(query: exp.Select, titles: Iterable[str]) -> exp.Select:
    """What was found, for people: ``n`` is called rows, and ``v0`` .. as the attributes; figures keep their names."""
    names = {f"v{i}": title for i, title in enumerate(titles)}
    columns: list[exp.Expr] = [named(col(ROWS), "rows")]
    columns += [col(name) for name in query.named_selects if name not in names and name != ROWS]
    columns += [named(col(name), names[name]) for name in query.named_selects if name in names]
    return select(columns, subquery(query, "found"))
