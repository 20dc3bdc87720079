"""Bound the rows that overlapping classes of two releases share, and find pairs of classes that share fewer than k.

A group is the rows of a class with equal values in the columns that both releases show unchanged. Groups that can have
rows in common are the edges of a graph. Where each group of a connected component can have rows in common with every
group of the other release in it, two groups share at most as many rows as the smaller one has: a greatest flow can
begin with these, as the remaining rows still match all groups of the other release. Elsewhere `OverlapFlows` bounds
them: such components are fetched to Python, up to `MOST_OVERLAPS` edges.

Pairs with the same finest labels are counted together. In regular components they share as many rows as a flow through
these pairs alone has: the smaller row count of either release where each of their groups matches all of the other, else
Python counts it. In irregular components it is the most that the pairs have together in a greatest flow.

Columns of the table of edges: ``a`` and ``b``, the numbers of a group of either release; ``n_a`` and ``n_b``, their
rows; ``v``, a number for the finest labels of the two; ``part``, a number for what both groups have in common.
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
    fragment,
    null_safe_equal,
    number,
    template,
    values_query,
)

MOST_OVERLAPS = 100_000
"""The most pairs of groups that are fetched to Python."""

MOST_COMBINATIONS = 5
"""The most combinations of finest labels with few rows that are searched for: one is enough to refuse a release."""

_EDGES = template("""
    SELECT a, b, n_a, n_b, part, dense_rank() OVER (ORDER BY :values) AS v
    FROM :matching_groups AS m
""")
# Two groups of the first release that match one group of the second, but not the same groups.
_IRREGULAR = template("""
    SELECT e.b
    FROM :edges AS e
    JOIN (SELECT a, count(*) AS n, bit_xor(hash(b)) AS ends FROM :edges AS e GROUP BY a) AS s ON s.a = e.a
    GROUP BY e.b
    HAVING min(n) < max(n) OR min(ends) < max(ends)
""")
# A group of the first release is an even node, one of the second an odd node.
_NODES = fragment("""
    SELECT DISTINCT 2 * a AS node FROM :edges AS e
    UNION ALL
    SELECT DISTINCT 2 * b + 1 AS node FROM :edges AS e
""")
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
# Where some groups of either release do not match, the smaller row count may exceed the flow.
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
_SUBTRACTION = template("""
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
    """Two groups that have some rows in common, but few.

    Their common rows are those of the groups ``seconds`` of the second release without those of the groups ``firsts``
    of the first, plus ``changed``, which are new in between, or gone.

    Attributes
    ----------
    values:
        The finest labels of the two groups.
    total:
        The most rows that all pairs with these labels share.
    rows:
        The most rows that these two groups share.
    """

    values: tuple[str | None, ...]
    total: int
    rows: int
    firsts: Sequence[Group]
    seconds: Sequence[Group]
    changed: int


@dataclass(frozen=True)
class Overlaps:
    """What overlapping groups share.

    Attributes
    ----------
    few:
        Pairs of groups with few rows in common.
    bounds:
        Without such pairs: the rows of the pairs that share fewer rows than the smaller group has.
    """

    few: Sequence[SharedRows] = ()
    bounds: Mapping[Edge, int] = field(default_factory=dict)


@dataclass(frozen=True)
class OverlapGraph:
    """The graph of groups that can have rows in common.

    Attributes
    ----------
    edges, components, irregular:
        Tables of its edges, of the connected component of each node, and of the edges of irregular components.
    flows:
        The flows of irregular components.
    """

    edges: exp.Table
    components: exp.Table
    irregular: exp.Table
    flows: ComponentFlows

    @property
    def tables(self) -> list[exp.Table]:
        return [self.edges, self.components, self.irregular]


def make_graph(
    engine: Engine, work: Namer, linked: ReleaseLink, matching_groups: exp.Expr, budget: StepBudget
) -> OverlapGraph:
    """Make the graph of groups; the caller drops its tables.

    Parameters
    ----------
    matching_groups:
        The pairs of groups that can have rows in common, with the numbers of their finest labels, ``finest_0`` ..
    budget:
        The steps that are left for flows of the two releases.

    Raises
    ------
    NotComparedError
        The classes overlap in too many ways to compare the releases.
    """
    edges, irregular = work("overlaps"), work("overlaps irregular")
    engine.execute(create_table(edges.copy(), _EDGES(values=linked.values, matching_groups=matching_groups)))
    components = connect(
        engine,
        work,
        "overlap components",
        _NODES(edges=edges),
        template("SELECT 2 * a AS a, 2 * b + 1 AS b FROM :edges AS e")(edges=edges),
    )
    query = _IRREGULAR_EDGES(edges=edges, components=components, irregular=_IRREGULAR(edges=edges))
    engine.execute(create_table(irregular.copy(), query))
    rows = engine.rows(_ROWS(rows=irregular).limit(MOST_OVERLAPS + 1))
    if len(rows) > MOST_OVERLAPS:
        for target in (edges, components, irregular):
            engine.execute(drop_table(target))
        raise _too_many_pairs()
    return OverlapGraph(edges, components, irregular, ComponentFlows(rows, budget))


def _too_many_pairs() -> NotComparedError:
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
    """Find pairs of groups with the same finest labels that share fewer than k rows in all greatest flows.

    At most `MOST_COMBINATIONS` combinations of finest labels are searched for; ``first`` and ``second`` are the groups
    of either release.

    Raises
    ------
    NotComparedError
        The search takes too many steps.
    """
    pairs, bounds = _find_few_rows(engine, graph, k)
    return Overlaps([*_add_labels(engine, linked, pairs, first, second)], bounds)


@dataclass(frozen=True)
class _FewRows:
    """Two groups with few common rows: the numbers of their finest labels and of the groups, the most rows of all such
    pairs, the most rows that these two share, and the reason."""

    finest: int
    edge: Edge
    total: int
    rows: int
    bound: Bound


def _find_few_rows(engine: Engine, graph: OverlapGraph, k: int) -> tuple[list[_FewRows], dict[Edge, int]]:
    """The pairs of groups with the same finest labels that share rows, but fewer than k; without any, the most rows of
    each pair that shares fewer rows than the smaller group has."""
    flows, pairs, few, bounds = graph.flows, list[_FewRows](), dict[int, int](), dict[Edge, int]()
    try:
        regular = _count_regular_rows(engine, graph, k)
        for finest in {**flows.by_values, **regular}:
            if 0 < (most := flows.most_rows(finest, regular.get(finest, 0), k)) < k:
                few[finest] = most
                pairs += _explain(flows, finest, most)
            if len(few) >= MOST_COMBINATIONS:
                break
        bounds = {} if few else flows.bounds()
    except TooManyStepsError:
        if not few:
            raise too_many_steps(graph) from None
    if few:
        for finest, a, b, n_a, n_b in _regular_edges(engine, graph, [*few]):
            bound = Bound(set(), {b}, min(n_a, n_b) - n_b)
            pairs.append(_FewRows(finest, (a, b), few[finest], min(n_a, n_b), bound))
        if not pairs:  # no steps were left to explain the bound
            raise too_many_steps(graph)
    return pairs, bounds


def _count_regular_rows(engine: Engine, graph: OverlapGraph, k: int) -> dict[int, int]:
    """The most rows that the pairs of regular components share, by the number of their finest labels.

    Only labels with fewer than k rows, or those that irregular components have as well, are listed; a flow counts the
    rows where SQL only bounds them.
    """
    query = _REGULAR_ROWS(edges=graph.edges, irregular=graph.irregular, k=k)
    rows, undecided = dict[int, int](), list[int]()
    for finest, most, is_exact in engine.rows(query):
        rows[finest] = most
        if not is_exact:
            undecided.append(finest)
    edges = defaultdict[int, list[tuple[int, int, int, int]]](list)
    for finest, a, b, n_a, n_b in _regular_edges(engine, graph, undecided):
        edges[finest].append((a, b, n_a, n_b))
    for finest, pairs in edges.items():
        firsts, seconds = {a: n_a for a, _, n_a, _ in pairs}, {b: n_b for _, b, _, n_b in pairs}
        rows[finest] = OverlapFlows(firsts, seconds, [(a, b) for a, b, *_ in pairs], graph.flows.budget).rows
    return rows


def _regular_edges(engine: Engine, graph: OverlapGraph, finest: Sequence[int]) -> list[tuple[int, ...]]:
    """The pairs of regular components with some finest labels: the number of these, ``a``, ``b``, and their rows."""
    if not finest:
        return []
    if len(finest) > MOST_OVERLAPS:
        raise _too_many_pairs()
    query = _REGULAR_EDGES(edges=graph.edges, irregular=graph.irregular, numbers=[*map(number, finest)])
    rows = engine.rows(query.limit(MOST_OVERLAPS + 1))
    if len(rows) > MOST_OVERLAPS:
        raise _too_many_pairs()
    return rows


def _explain(flows: ComponentFlows, finest: int, total: int) -> Iterator[_FewRows]:
    """The pairs of these finest labels that share rows, ``total`` in all, and why each shares no more."""
    for component, edges in flows.by_values[finest].items():
        component_flows = flows.of(component)
        for edge in edges:
            if most := component_flows.most(edge, total):
                yield _FewRows(finest, edge, total, most, component_flows.bound(edge))


def _add_labels(
    engine: Engine, linked: ReleaseLink, pairs: Sequence[_FewRows], first: exp.Expr, second: exp.Expr
) -> Iterator[SharedRows]:
    """The same pairs with the labels and values of their groups."""
    labels = []
    for is_first, groups in ((True, first), (False, second)):
        numbers = {i for pair in pairs for i in (pair.bound.firsts if is_first else pair.bound.seconds)}
        numbers |= {pair.edge[not is_first] for pair in pairs}
        columns: list[exp.Expr] = [cast(col(name), "VARCHAR") for name in group_columns(linked, is_first)]
        query = _GROUPS(columns=columns, groups=groups, numbers=[number(i) for i in numbers])
        labels.append({i: values for i, *values in engine.rows(query)} if numbers else {})
    firsts, seconds = labels
    names = dict[int, Sequence[str | None]]()
    for pair in pairs:
        a, b = pair.edge
        first_labels = dict(zip(group_columns(linked, is_first=True), firsts[a], strict=True))
        second_labels = dict(zip(group_columns(linked, is_first=False), seconds[b], strict=True))
        both = [_name_both(first_labels, second_labels, f"label_{i}") for i in range(len(linked.attributes))]
        shortest = min(both, names.get(pair.finest, both), key=lambda texts: sum(map(len, map(str, texts))))
        names[pair.finest] = shortest
    for pair in pairs:
        yield SharedRows(
            tuple(names[pair.finest]),
            pair.total,
            pair.rows,
            [tuple(firsts[i]) for i in sorted(pair.bound.firsts)],
            [tuple(seconds[i]) for i in sorted(pair.bound.seconds)],
            pair.bound.changed,
        )


def count_shared_rows(groups: Sequence[SharedRows]) -> dict[tuple[str | None, ...], int]:
    """The most rows that two classes share, by their finest labels.

    >>> flu, hiv = (SharedRows(("10-19 & 0-14",), 3, rows, (), (), 0) for rows in (2, 1))
    >>> count_shared_rows([flu, hiv])
    {('10-19 & 0-14',): 3}
    """
    return {pair.values: pair.total for pair in groups}


def group_columns(linked: ReleaseLink, is_first: bool) -> list[str]:
    """The columns that distinguish the groups of a release."""
    labels = [f"label_{i}" for i, _ in linked.side(is_first)[1]]
    return [*labels, *(f"shared_{j}" for j in range(len(linked.shared)))]


def columns_of_both(linked: ReleaseLink) -> list[str]:
    """The columns that distinguish the groups of either release."""
    return [*dict.fromkeys([*group_columns(linked, is_first=True), *group_columns(linked, is_first=False)])]


def _name_both(first: Mapping[str, str | None], second: Mapping[str, str | None], column: str) -> str | None:
    """The labels of two groups in a column as one text; a single label where they are equal."""
    labels = [*dict.fromkeys(group[column] for group in (first, second) if column in group)]
    return labels[0] if len(labels) == 1 else " & ".join("NULL" if label is None else label for label in labels)


def subtraction(linked: ReleaseLink, k: int, shared_rows: Sequence[SharedRows]) -> exp.Select:
    """Pairs of groups with few common rows, counted from both releases: ``finest_0`` .., and ``n``, the rows of some
    groups of the second release without those of some groups of the first.

    >>> from sqlanon.support.expressions import table
    >>> from sqlanon.ledger.joint.label_pairs import LinkedAttribute
    >>> linked = ReleaseLink(table("one"), table("two"), (), (LinkedAttribute("x", "x", "x"),))
    >>> pairs = [SharedRows(("10-19 & 0-14",), 1, 1, [("0-9",)], [("0-14",)], 0)]
    >>> subtraction(linked, 5, pairs).named_selects
    ['finest_0', 'n']
    """
    attributes = [f"finest_{i}" for i in range(len(linked.attributes))]
    columns = columns_of_both(linked)
    pairs, bounds = list[tuple[Any, ...]](), list[tuple[Any, ...]]()
    for pair_id, pair in enumerate(shared_rows):
        pairs.append((pair_id, pair.changed, *pair.values))
        for is_first, groups in ((True, pair.firsts), (False, pair.seconds)):
            for group in groups:
                values = dict(zip(group_columns(linked, is_first), group, strict=True))
                bounds.append((pair_id, is_first, *(values.get(name) for name in columns)))
    same_first, same_second = (
        all_of(
            null_safe_equal(cast(col(name, "g"), "VARCHAR"), col(name, "b")) for name in group_columns(linked, is_first)
        )
        for is_first in (True, False)
    )
    texts = dict.fromkeys(columns, "VARCHAR")
    return _SUBTRACTION(
        bounds=values_query({"pair": "BIGINT", "is_first": "BOOLEAN", **texts}, bounds),
        pairs=values_query({"pair": "BIGINT", "changed": "BIGINT", **dict.fromkeys(attributes, "VARCHAR")}, pairs),
        first=group_rows(linked, is_first=True),
        second=group_rows(linked, is_first=False),
        values=[col(name, "p") for name in attributes],
        same_first=same_first,
        same_second=same_second,
    )


# --- Connected components, by pointer jumping: Y. Shiloach, U. Vishkin, An O(log n) parallel connectivity algorithm,
# Journal of Algorithms 3(1), 1982.

# The least component of a node and its neighbours; then the component of that one.
_NEXT_COMPONENTS = template("""
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
_CHANGED_NODES = template("""
    SELECT count(*)
    FROM :before AS b
    JOIN :after AS a ON a.node = b.node
    WHERE a.component <> b.component
""")


def connect(engine: Engine, work: Namer, name: str, nodes: exp.Expr, edges: exp.Expr) -> exp.Table:
    """Make a table of the ``component`` of each ``node``: the least node of its connected component.

    Parameters
    ----------
    name:
        The beginning of the table's name.
    nodes:
        Numbers, in the column ``node``.
    edges:
        Pairs of nodes, ``a`` and ``b``, each in at least one direction.
    """
    before, steps = work(f"{name} 0"), 0
    engine.execute(
        create_table(before.copy(), template("SELECT node, node AS component FROM :nodes AS n")(nodes=nodes))
    )
    while True:
        steps += 1
        after = work(f"{name} {steps}")
        engine.execute(create_table(after.copy(), _NEXT_COMPONENTS(components=before, edges=edges)))
        changed = engine.rows(_CHANGED_NODES(before=before, after=after))[0][0]
        engine.execute(drop_table(before))
        if not changed:
            return after
        before = after
