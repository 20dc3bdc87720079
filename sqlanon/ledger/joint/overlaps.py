"""Bound the rows that overlapping classes of two releases share, and find those that share fewer than k.

A group is the rows of a class with equal values in the columns that both releases show unchanged. Groups that can have
rows in common are the edges of a graph. Where each group of a connected component can have rows in common with all of
the other release there, two groups share at most as many rows as the smaller one has: a greatest flow can begin with
these, as what remains still meets all of the other release. Elsewhere `OverlapFlows` bounds them: such components come
to Python, up to `MOST_OVERLAPS` edges.

The pairs with the same finest values are counted together. In regular components they share as many rows as a flow
through these pairs alone has: the lesser of the rows of either release where each of their groups meets all of the
other, else Python counts it. Of irregular components it is the most that the pairs have together in a greatest flow.

Columns of the table of edges: ``a`` and ``b``, the numbers of a group of either release; ``n_a`` and ``n_b``, their
rows; ``v``, a number for the finest values of the two; ``part``, for what both groups have in common in any case.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlglot import exp

from sqlanon.engines.base import Engine
from sqlanon.errors import NotComparedError
from sqlanon.ledger.joint.overlap_flows import Bound, ComponentFlows, Edge, OverlapFlows, StepBudget, TooManyStepsError
from sqlanon.ledger.joint.row_matching import ReleaseLink, group_rows
from sqlanon.support.expressions import (
    Namer,
    all_of,
    cast,
    col,
    create_table,
    drop_table,
    number,
    same,
    subquery,
    template,
    union_all,
    values_query,
)

MOST_OVERLAPS = 100_000
"""The most pairs of groups in components that come to Python."""

MOST_COMBINATIONS = 5
"""The most finest values with few rows that are looked for: one is enough to refuse a release."""

_EDGES = template("""
    SELECT a, b, n_a, n_b, part, dense_rank() OVER (ORDER BY :values) AS v
    FROM :meeting AS m
""")
# Two groups of the first release that meet one of the second, but not the same ones.
_IRREGULAR = template("""
    SELECT e.b
    FROM :edges AS e
    JOIN (SELECT a, count(*) AS n, bit_xor(hash(b)) AS ends FROM :edges AS e GROUP BY a) AS s ON s.a = e.a
    GROUP BY e.b
    HAVING min(n) < max(n) OR min(ends) < max(ends)
""")
_FIRST_NODES = template("SELECT DISTINCT 2 * a AS node FROM :edges AS e")
_SECOND_NODES = template("SELECT DISTINCT 2 * b + 1 AS node FROM :edges AS e")
_ARCS = template("SELECT 2 * a AS a, 2 * b + 1 AS b FROM :edges AS e")
_IRREGULAR_EDGES = template("""
    SELECT c.component, e.a, e.b, e.n_a, e.n_b, e.v
    FROM :edges AS e
    JOIN :components AS c ON c.node = 2 * e.a
    SEMI JOIN (
        SELECT c.component
        FROM (:irregular) AS i
        JOIN :components AS c ON c.node = 2 * i.b + 1
    ) AS i ON i.component = c.component
""")
# Of pairs that are not all pairs of their groups, the count of either side may be more than they have.
_REGULAR_ROWS = template("""
    WITH
        "sqlanon regular" AS (
            SELECT e.* FROM :edges AS e ANTI JOIN :irregular AS i ON i.a = e.a AND i.b = e.b
        ),
        "sqlanon firsts" AS (
            SELECT v, part, sum(n) AS n, count(*) AS groups, sum(pairs) AS pairs, max(most) AS most
            FROM (
                SELECT
                    v,
                    part,
                    least(sum(least(n_a, n_b)), min(n_a)) AS n,
                    count(*) AS pairs,
                    max(least(n_a, n_b)) AS most
                FROM "sqlanon regular" AS e
                GROUP BY v, part, a
            ) AS g
            GROUP BY v, part
        ),
        "sqlanon seconds" AS (
            SELECT v, part, sum(n) AS n, count(*) AS groups
            FROM (
                SELECT v, part, least(sum(least(n_a, n_b)), min(n_b)) AS n
                FROM "sqlanon regular" AS e
                GROUP BY v, part, b
            ) AS g
            GROUP BY v, part
        )
    SELECT r.v, r.n, r.is_exact
    FROM (
        SELECT
            f.v,
            sum(least(f.n, s.n))::BIGINT AS n,
            bool_and(f.pairs = f.groups * s.groups) OR max(f.most) >= :k AS is_exact
        FROM "sqlanon firsts" AS f
        JOIN "sqlanon seconds" AS s ON s.v = f.v AND s.part = f.part
        GROUP BY f.v
    ) AS r
    LEFT JOIN (SELECT DISTINCT v FROM :irregular AS i) AS i ON i.v = r.v
    WHERE i.v IS NOT NULL OR (r.n >= :k AND NOT r.is_exact)
""")
_REGULAR_EDGES = template("""
    SELECT e.v, e.a, e.b, e.n_a, e.n_b
    FROM :edges AS e
    ANTI JOIN :irregular AS i ON i.a = e.a AND i.b = e.b
    WHERE e.v IN (:numbers)
""")
_GROUPS = template("SELECT i, :columns FROM :groups AS g WHERE i IN (:numbers)")
_DIFFERENCES = template("""
    WITH "sqlanon bounds" AS (:bounds),
    "sqlanon pairs" AS (:pairs),
    "sqlanon first" AS (:first),
    "sqlanon second" AS (:second)
    SELECT :values, (p.changed + sum(c.n))::BIGINT AS n
    FROM "sqlanon pairs" AS p
    JOIN (
        SELECT b.pair, -g.n AS n
        FROM "sqlanon first" AS g
        JOIN "sqlanon bounds" AS b ON b.is_first AND :same_first
        UNION ALL
        SELECT b.pair, g.n
        FROM "sqlanon second" AS g
        JOIN "sqlanon bounds" AS b ON NOT b.is_first AND :same_second
    ) AS c ON c.pair = p.pair
    GROUP BY p.pair, p.changed, :values
""")
_ROWS = template("SELECT * FROM :rows AS r")

Group = tuple[str | None, ...]
"""The labels of a group, ``label_0`` .., and its shared values, ``shared_0`` .., as texts."""


@dataclass(frozen=True)
class SharedRows:
    """Two groups that have some rows in common, but few: the finest values of the two, the most rows that all pairs
    with these values share, ``total``, and the most of these two, ``rows``.

    These rows are those of the groups ``seconds`` of the second release without those of the groups ``firsts`` of the
    first; ``changed`` are to be added, which are new in between, or gone.
    """

    values: tuple[str | None, ...]
    total: int
    rows: int
    firsts: Sequence[Group]
    seconds: Sequence[Group]
    changed: int


@dataclass(frozen=True)
class Overlaps:
    """What overlapping groups share: pairs with few rows; and, if there are none, the rows of the pairs (``a``, ``b``)
    that share fewer than the smaller of the two has."""

    few: Sequence[SharedRows] = ()
    bounds: Mapping[Edge, int] = field(default_factory=dict)


@dataclass(frozen=True)
class OverlapGraph:
    """Groups that can have rows in common: the tables of ``edges``, of the ``components`` of all groups that have some,
    and of the edges of ``irregular`` components; and the flows of these."""

    edges: exp.Table
    components: exp.Table
    irregular: exp.Table
    flows: ComponentFlows

    @property
    def tables(self) -> list[exp.Table]:
        return [self.edges, self.components, self.irregular]


def make_graph(engine: Engine, work: Namer, linked: ReleaseLink, meeting: exp.Expr, budget: StepBudget) -> OverlapGraph:
    """Make the graph of groups, whose tables are the caller's to drop.

    Parameters
    ----------
    meeting:
        The pairs of groups that can have rows in common, with the finest values of the two as numbers, ``finest_0`` ..
    budget:
        The steps that are left for flows of the two releases.

    Raises
    ------
    NotComparedError
        The classes overlap in too many ways to decide what both show.
    """
    edges, irregular = work("overlaps"), work("overlaps irregular")
    engine.execute(create_table(edges.copy(), _EDGES(values=linked.values, meeting=meeting)))
    nodes = subquery(union_all(_FIRST_NODES(edges=edges), _SECOND_NODES(edges=edges)))
    components = connect(engine, work, "overlap components", nodes, subquery(_ARCS(edges=edges)))
    query = _IRREGULAR_EDGES(edges=edges, components=components, irregular=_IRREGULAR(edges=edges))
    engine.execute(create_table(irregular.copy(), query))
    rows = engine.rows(_ROWS(rows=irregular).limit(MOST_OVERLAPS + 1))
    if len(rows) > MOST_OVERLAPS:
        for one in (edges, components, irregular):
            engine.execute(drop_table(one))
        raise too_many_pairs()
    return OverlapGraph(edges, components, irregular, ComponentFlows(rows, budget))


def too_many_pairs() -> NotComparedError:
    return NotComparedError(
        f"their classes overlap, and more than {MOST_OVERLAPS:,} pairs of groups may have rows in common: "
        "too many to decide what both show together"
    )


def too_many_steps(graph: OverlapGraph) -> NotComparedError:
    return NotComparedError(
        f"their classes overlap in groups of up to {graph.flows.largest:,} pairs: too many to decide what both show "
        "together"
    )


def find_overlaps(
    engine: Engine, linked: ReleaseLink, k: int, graph: OverlapGraph, first: exp.Expr, second: exp.Expr
) -> Overlaps:
    """Pairs of groups with the same finest values that share fewer than k rows in all greatest flows, of at most
    `MOST_COMBINATIONS` of these values; ``first`` and ``second`` are the groups of either release.

    Raises
    ------
    NotComparedError
        It takes too many steps to decide it.
    """
    found, bounds = _find_few_rows(engine, graph, k)
    return Overlaps([*_add_labels(engine, linked, found, first, second)], bounds)


@dataclass(frozen=True)
class _FewRows:
    """Two groups, by their numbers, and that of their finest values; the most rows of all such pairs; the most rows
    that these two share, and why."""

    finest: int
    edge: Edge
    total: int
    rows: int
    bound: Bound


def _find_few_rows(engine: Engine, graph: OverlapGraph, k: int) -> tuple[list[_FewRows], dict[Edge, int]]:
    """The pairs of groups with the same finest values that share rows, but fewer than k; without any, the most rows of
    each pair that shares fewer than the smaller of the two has."""
    flows, found, few, bounds = graph.flows, list[_FewRows](), dict[int, int](), dict[Edge, int]()
    try:
        regular = _count_regular_rows(engine, graph, k)
        for values in {**flows.by_values, **regular}:
            if 0 < (most := flows.most_rows(values, regular.get(values, 0), k)) < k:
                few[values] = most
                found += _explain(flows, values, most)
            if len(few) >= MOST_COMBINATIONS:
                break
        bounds = {} if few else flows.bounds()
    except TooManyStepsError:
        if not few:
            raise too_many_steps(graph) from None
    if few:
        for v, a, b, n_a, n_b in _regular_edges(engine, graph, [*few]):
            bound = Bound(set(), {b}, min(n_a, n_b) - n_b)
            found.append(_FewRows(v, (a, b), few[v], min(n_a, n_b), bound))
        if not found:  # no steps were left to explain it
            raise too_many_steps(graph)
    return found, bounds


def _count_regular_rows(engine: Engine, graph: OverlapGraph, k: int) -> dict[int, int]:
    """The most rows that the pairs of regular components share, by the number of their finest values; a bound of k or
    more, where it is k or more. Of values that irregular components have, too, and of those that SQL only bounds: these
    are counted by a flow."""
    query = _REGULAR_ROWS(edges=graph.edges, irregular=graph.irregular, k=k)
    rows, undecided = dict[int, int](), list[int]()
    for values, most, is_exact in engine.rows(query):
        rows[values] = most
        if not is_exact:
            undecided.append(values)
    edges = defaultdict[int, list[tuple[int, int, int, int]]](list)
    for values, a, b, n_a, n_b in _regular_edges(engine, graph, undecided):
        edges[values].append((a, b, n_a, n_b))
    for values, pairs in edges.items():
        firsts, seconds = {a: n_a for a, _, n_a, _ in pairs}, {b: n_b for _, b, _, n_b in pairs}
        rows[values] = OverlapFlows(firsts, seconds, [(a, b) for a, b, *_ in pairs], graph.flows.budget).rows
    return rows


def _regular_edges(engine: Engine, graph: OverlapGraph, values: Sequence[int]) -> list[tuple[int, ...]]:
    """The pairs of regular components with some finest values: the number of these, ``a``, ``b``, and their rows."""
    if not values:
        return []
    if len(values) > MOST_OVERLAPS:
        raise too_many_pairs()
    numbers = [number(each) for each in values]
    query = _REGULAR_EDGES(edges=graph.edges, irregular=graph.irregular, numbers=numbers)
    rows = engine.rows(query.limit(MOST_OVERLAPS + 1))
    if len(rows) > MOST_OVERLAPS:
        raise too_many_pairs()
    return rows


def _explain(flows: ComponentFlows, values: int, total: int) -> Iterator[_FewRows]:
    """The pairs of these finest values that share rows, ``total`` in all, and why each shares no more."""
    for component, edges in flows.by_values[values].items():
        of_component = flows.of(component)
        for edge in edges:
            if most := of_component.most(edge, total):
                yield _FewRows(values, edge, total, most, of_component.bound(edge))


def _add_labels(
    engine: Engine, linked: ReleaseLink, found: Sequence[_FewRows], first: exp.Expr, second: exp.Expr
) -> Iterator[SharedRows]:
    """The same with the labels and values of the groups."""
    labels = []
    for is_first, numbered in ((True, first), (False, second)):
        numbers = {i for one in found for i in (one.bound.firsts if is_first else one.bound.seconds)}
        numbers |= {one.edge[not is_first] for one in found}
        columns: list[exp.Expr] = [cast(col(name), "VARCHAR") for name in group_columns(linked, is_first)]
        query = _GROUPS(columns=columns, groups=numbered, numbers=[number(i) for i in numbers])
        labels.append({i: values for i, *values in engine.rows(query)} if numbers else {})
    firsts, seconds = labels
    names = dict[int, Sequence[str | None]]()
    for one in found:
        a, b = one.edge
        own = dict(zip(group_columns(linked, is_first=True), firsts[a], strict=True))
        other = dict(zip(group_columns(linked, is_first=False), seconds[b], strict=True))
        both = [_both_labels(own, other, f"label_{i}") for i in range(len(linked.attributes))]
        names[one.finest] = min(both, names.get(one.finest, both), key=lambda texts: sum(map(len, map(str, texts))))
    for one in found:
        yield SharedRows(
            tuple(names[one.finest]),
            one.total,
            one.rows,
            [tuple(firsts[i]) for i in sorted(one.bound.firsts)],
            [tuple(seconds[i]) for i in sorted(one.bound.seconds)],
            one.bound.changed,
        )


def count_shared_rows(groups: Sequence[SharedRows]) -> dict[tuple[str | None, ...], int]:
    """The most rows that two classes share, by their finest values.

    >>> flu, hiv = (SharedRows(("10-19 & 0-14",), 3, rows, (), (), 0) for rows in (2, 1))
    >>> count_shared_rows([flu, hiv])
    {('10-19 & 0-14',): 3}
    """
    return {each.values: each.total for each in groups}


def group_columns(linked: ReleaseLink, is_first: bool) -> list[str]:
    """The columns of the groups of a release that tell them apart."""
    return [*(f"label_{i}" for i, _ in linked.side(is_first)[1]), *(f"shared_{j}" for j in range(len(linked.shared)))]


def columns_of_both(linked: ReleaseLink) -> list[str]:
    """The columns of the groups of either release."""
    return [*dict.fromkeys([*group_columns(linked, is_first=True), *group_columns(linked, is_first=False)])]


def _both_labels(own: Mapping[str, str | None], other: Mapping[str, str | None], name: str) -> str | None:
    first, *others = dict.fromkeys(one[name] for one in (own, other) if name in one)
    return " & ".join("NULL" if label is None else label for label in (first, others[0])) if others else first


def subtraction(linked: ReleaseLink, k: int, found: Sequence[SharedRows]) -> exp.Select:
    """What was found, counted from both releases: ``finest_0`` .., and ``n``, the rows of some groups of the second
    release
    without those of some of the first.

    >>> from sqlanon.support.expressions import table
    >>> from sqlanon.ledger.joint.row_matching import LinkedAttribute
    >>> linked = ReleaseLink(table("one"), table("two"), (), (LinkedAttribute("x", "x", "x"),))
    >>> found = [SharedRows(("10-19 & 0-14",), 1, 1, [("0-9",)], [("0-14",)], 0)]
    >>> subtraction(linked, 5, found).named_selects
    ['finest_0', 'n']
    """
    attributes = [f"finest_{i}" for i in range(len(linked.attributes))]
    columns = columns_of_both(linked)
    pairs, bounds = list[tuple[Any, ...]](), list[tuple[Any, ...]]()
    for pair, one in enumerate(found):
        pairs.append((pair, one.changed, *one.values))
        for is_first, its_groups in ((True, one.firsts), (False, one.seconds)):
            for group in its_groups:
                values = dict(zip(group_columns(linked, is_first), group, strict=True))
                bounds.append((pair, is_first, *(values.get(name) for name in columns)))
    texts = dict.fromkeys(columns, "VARCHAR")
    same_groups = [
        all_of(same(cast(col(name, "g"), "VARCHAR"), col(name, "b")) for name in group_columns(linked, is_first))
        for is_first in (True, False)
    ]
    return _DIFFERENCES(
        bounds=values_query({"pair": "BIGINT", "is_first": "BOOLEAN", **texts}, bounds),
        pairs=values_query({"pair": "BIGINT", "changed": "BIGINT", **dict.fromkeys(attributes, "VARCHAR")}, pairs),
        first=group_rows(linked, is_first=True),
        second=group_rows(linked, is_first=False),
        values=[col(name, "p") for name in attributes],
        same_first=same_groups[0],
        same_second=same_groups[1],
    )


_ROOTS = template("SELECT node, node AS component FROM :nodes AS n")
# The least component of a node and its neighbours; then the component of that one.
_NEARER = template("""
    WITH nearest AS MATERIALIZED (
        SELECT c.node, least(c.component, min(n.component)) AS component
        FROM :components AS c
        LEFT JOIN (
            SELECT e.a AS node, r.component FROM :edges AS e JOIN :components AS r ON r.node = e.b
            UNION ALL
            SELECT e.b AS node, r.component FROM :edges AS e JOIN :components AS r ON r.node = e.a
        ) AS n ON n.node = c.node
        GROUP BY c.node, c.component
    )
    SELECT n.node, r.component
    FROM nearest AS n
    JOIN nearest AS r ON r.node = n.component
""")
_MOVED = template("""
    SELECT count(*) FROM :before AS b JOIN :after AS a ON a.node = b.node WHERE a.component <> b.component
""")


def connect(engine: Engine, work: Namer, name: str, nodes: exp.Expr, edges: exp.Expr) -> exp.Table:
    """Make a table of the ``component`` of each ``node``, the least node of its connected component. ``name`` begins
    its name.

    Parameters
    ----------
    nodes:
        Numbers, in the column ``node``.
    edges:
        Pairs of nodes, ``a`` and ``b``, each in one direction at least.
    """
    before, steps = work(f"{name} 0"), 0
    engine.execute(create_table(before.copy(), _ROOTS(nodes=nodes)))
    while True:
        steps += 1
        after = work(f"{name} {steps}")
        engine.execute(create_table(after.copy(), _NEARER(components=before, edges=edges)))
        moved = engine.rows(_MOVED(before=before, after=after))[0][0]
        engine.execute(drop_table(before))
        if not moved:
            return after
        before = after
