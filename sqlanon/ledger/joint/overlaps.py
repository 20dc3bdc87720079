"""Bound the rows that overlapping classes of two releases share, and find pairs of classes that share fewer than k.

Groups, the rows of a class with equal shared values, are nodes of a graph; its edges are groups that can have rows in
common. In a regular component, where each group matches every group of the other release, two groups share as many rows
as the smaller one has. Elsewhere a flow bounds them, in Python (`overlap_flows`). Pairs with the same finest labels are
counted together.
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
from sqlanon.ledger.joint.row_matching import ReleaseLink, group_rows, same_texts
from sqlanon.support.expressions import (
    Namer,
    cast,
    col,
    cols,
    create_table,
    drop_table,
    fragment,
    number,
    select_star,
    template,
    values_query,
)

MAX_OVERLAPS = 100_000
"""Maximum number of pairs of groups that are fetched to Python."""

MAX_LISTED_COMBINATIONS = 5
"""Maximum number of combinations of finest labels with few rows to search for: one is enough to refuse a release."""

# Components with two groups of the first release that match one group of the second, but not the same groups. Groups of
# the first release are even nodes, those of the second odd nodes.
_IRREGULAR_EDGES = template("""
    WITH
        neighbours AS (
            SELECT first_group, count(*) AS degree, bit_xor(hash(second_group)) AS ends
            FROM :edges AS e
            GROUP BY first_group
        ),
        irregular_groups AS (
            SELECT e.second_group
            FROM :edges AS e
            JOIN neighbours AS s ON s.first_group = e.first_group
            GROUP BY e.second_group
            HAVING min(degree) < max(degree) OR min(ends) < max(ends)
        ),
        irregular_components AS (
            SELECT c.component
            FROM irregular_groups AS i
            JOIN :components AS c ON c.node = 2 * i.second_group + 1
        )
    SELECT c.component, e.first_group, e.second_group, e.first_rows, e.second_rows, e.finest_id
    FROM :edges AS e
    JOIN :components AS c ON c.node = 2 * e.first_group
    SEMI JOIN irregular_components AS i ON i.component = c.component
""")
# Where some groups of either release do not match, the smaller row count may exceed the flow.
_REGULAR_ROWS = template("""
    WITH
        regular AS (
            SELECT e.*
            FROM :edges AS e
            ANTI JOIN :irregular AS i ON i.first_group = e.first_group AND i.second_group = e.second_group
        ),
        first_groups AS (
            SELECT
                finest_id,
                part,
                least(sum(least(first_rows, second_rows)), min(first_rows)) AS row_count,
                count(*) AS pairs,
                max(least(first_rows, second_rows)) AS most
            FROM regular
            GROUP BY finest_id, part, first_group
        ),
        second_groups AS (
            SELECT finest_id, part, least(sum(least(first_rows, second_rows)), min(second_rows)) AS row_count
            FROM regular
            GROUP BY finest_id, part, second_group
        ),
        firsts AS (
            SELECT
                finest_id, part, sum(row_count) AS row_count, count(*) AS groups, sum(pairs) AS pairs, max(most) AS most
            FROM first_groups
            GROUP BY finest_id, part
        ),
        seconds AS (
            SELECT finest_id, part, sum(row_count) AS row_count, count(*) AS groups
            FROM second_groups
            GROUP BY finest_id, part
        ),
        bounds AS (
            SELECT
                f.finest_id,
                sum(least(f.row_count, s.row_count))::BIGINT AS row_count,
                bool_and(f.pairs = f.groups * s.groups) OR max(f.most) >= :k AS is_exact
            FROM firsts AS f
            JOIN seconds AS s ON s.finest_id = f.finest_id AND s.part = f.part
            GROUP BY f.finest_id
        )
    SELECT r.finest_id, r.row_count, r.is_exact
    FROM bounds AS r
    LEFT JOIN (SELECT DISTINCT finest_id FROM :irregular AS i) AS i ON i.finest_id = r.finest_id
    WHERE i.finest_id IS NOT NULL OR (r.row_count >= :k AND NOT r.is_exact)
""")
_SUBTRACTION = template("""
    WITH "sqlanon bounds" AS (:bounds),
    "sqlanon pairs" AS (:pairs),
    "sqlanon first" AS (:first),
    "sqlanon second" AS (:second),
    "sqlanon counted" AS (
        SELECT b.pair, -g.row_count AS row_count
        FROM "sqlanon first" AS g
        JOIN "sqlanon bounds" AS b ON b.is_first AND :same_first
        UNION ALL
        SELECT b.pair, g.row_count
        FROM "sqlanon second" AS g
        JOIN "sqlanon bounds" AS b ON NOT b.is_first AND :same_second
    )
    SELECT :values, (p.changed + sum(c.row_count))::BIGINT AS row_count
    FROM "sqlanon pairs" AS p
    JOIN "sqlanon counted" AS c ON c.pair = p.pair
    GROUP BY p.pair, p.changed, :values
""")


Group = tuple[str | None, ...]
"""The labels of a group, ``label_0`` .., and its shared values, ``shared_0`` .., as texts."""


@dataclass(frozen=True)
class SharedRows:
    """Two groups that have some rows in common, but few.

    Their common rows are those of the groups ``seconds`` of the second release without those of the groups ``firsts``
    of the first, plus ``changed``, which are new in between, or gone.
    """

    values: tuple[str | None, ...]  # the finest labels of the two groups
    total: int  # the most rows that all pairs with these labels share
    rows: int  # the most rows that these two groups share
    firsts: Sequence[Group]
    seconds: Sequence[Group]
    changed: int


@dataclass(frozen=True)
class Overlaps:
    """Rows shared by overlapping groups."""

    few: Sequence[SharedRows] = ()  # pairs of groups with few rows in common
    bounds: Mapping[Edge, int] = field(default_factory=dict)  # otherwise: the rows of pairs that share fewer than both


@dataclass(frozen=True)
class OverlapGraph:
    """The graph of groups that can have rows in common."""

    edges: exp.Table
    components: exp.Table  # the connected component of each node
    irregular: exp.Table  # the edges of irregular components
    flows: ComponentFlows  # the flows of irregular components


def make_graph(
    engine: Engine, work: Namer, link: ReleaseLink, matching_groups: exp.Expr, budget: StepBudget
) -> OverlapGraph:
    """Make the graph of groups; the caller drops its tables.

    ``matching_groups`` are the pairs of groups that can have rows in common, with the numbers of their finest labels,
    ``finest_0`` ..; ``budget`` has the steps that are left for flows of the two releases.
    """
    edges, irregular = work("overlaps"), work("overlaps irregular")
    query = template("""
        SELECT
            first_group, second_group, first_rows, second_rows, part,
            dense_rank() OVER (ORDER BY :values) AS finest_id
        FROM :matching_groups AS m
    """)(values=link.values, matching_groups=matching_groups)
    engine.execute(create_table(edges.copy(), query))
    nodes = fragment("""
        SELECT DISTINCT 2 * first_group AS node FROM :edges AS e
        UNION ALL
        SELECT DISTINCT 2 * second_group + 1 AS node FROM :edges AS e
    """)(edges=edges)
    node_pairs = template("SELECT 2 * first_group AS first_node, 2 * second_group + 1 AS second_node FROM :edges AS e")
    components = connect(engine, work, "overlap components", nodes, node_pairs(edges=edges))
    engine.execute(create_table(irregular.copy(), _IRREGULAR_EDGES(edges=edges, components=components)))
    rows = engine.rows(select_star(irregular.copy()).limit(MAX_OVERLAPS + 1))
    if len(rows) > MAX_OVERLAPS:
        for target in (edges, components, irregular):
            engine.execute(drop_table(target))
        raise _too_many_pairs()
    return OverlapGraph(edges, components, irregular, ComponentFlows(rows, budget))


def _too_many_pairs() -> NotComparedError:
    return NotComparedError(
        f"their classes overlap, and more than {MAX_OVERLAPS:,} pairs of groups may have rows in common: "
        "too many to decide what both show together"
    )


def too_many_steps(graph: OverlapGraph) -> NotComparedError:
    return NotComparedError(
        f"their classes overlap in groups of up to {graph.flows.largest:,} pairs: too many to decide what both show "
        "together"
    )


def find_overlaps(
    engine: Engine, link: ReleaseLink, k: int, graph: OverlapGraph, first: exp.Expr, second: exp.Expr
) -> Overlaps:
    """Find pairs of groups with the same finest labels that share fewer than k rows in all maximum flows.

    At most `MAX_LISTED_COMBINATIONS` combinations of finest labels are searched for; ``first`` and ``second`` are the
    groups of either release. A search that takes too many steps raises `NotComparedError`.
    """
    pairs, bounds = _find_few_rows(engine, graph, k)
    return Overlaps([*_add_labels(engine, link, pairs, first, second)], bounds)


@dataclass(frozen=True)
class _FewRows:
    """Two groups with few common rows."""

    finest_id: int
    edge: Edge
    total: int  # the most rows of all such pairs
    rows: int  # the maximum number of rows that these two share
    bound: Bound  # the reason


def _find_few_rows(engine: Engine, graph: OverlapGraph, k: int) -> tuple[list[_FewRows], dict[Edge, int]]:
    """The pairs of groups with the same finest labels that share rows, but fewer than k; without any, the maximum
    number of rows of each pair that shares fewer rows than the smaller group has."""
    flows, pairs, few, bounds = graph.flows, list[_FewRows](), dict[int, int](), dict[Edge, int]()
    try:
        regular = _count_regular_rows(engine, graph, k)
        for finest_id in {**flows.by_finest, **regular}:
            if 0 < (most := flows.max_shared_rows(finest_id, regular.get(finest_id, 0), k)) < k:
                few[finest_id] = most
                pairs += [
                    _FewRows(finest_id, edge, most, rows, bound) for edge, rows, bound in flows.explain(finest_id, most)
                ]
            if len(few) >= MAX_LISTED_COMBINATIONS:
                break
        bounds = {} if few else flows.bounds()
    except TooManyStepsError:
        if not few:
            raise too_many_steps(graph) from None
    if few:
        for finest_id, first, second, first_rows, second_rows in _regular_edges(engine, graph, [*few]):
            rows = min(first_rows, second_rows)
            bound = Bound(set(), {second}, rows - second_rows)
            pairs.append(_FewRows(finest_id, (first, second), few[finest_id], rows, bound))
        if not pairs:  # no steps were left to explain the bound
            raise too_many_steps(graph)
    return pairs, bounds


def _count_regular_rows(engine: Engine, graph: OverlapGraph, k: int) -> dict[int, int]:
    """The maximum number of rows that the pairs of regular components share, by the number of their finest labels.

    Only labels that irregular components have as well are listed, and those whose rows SQL only bounds by k or more: a
    flow counts these. The join of both releases finds the others with fewer than k rows.
    """
    bounds = engine.rows(_REGULAR_ROWS(edges=graph.edges, irregular=graph.irregular, k=k))
    rows = {finest_id: most for finest_id, most, _ in bounds}
    edges = defaultdict[int, list[tuple[int, ...]]](list)
    for finest_id, *edge in _regular_edges(engine, graph, [bound[0] for bound in bounds if not bound[2]]):
        edges[finest_id].append(tuple(edge))
    for finest_id, pairs in edges.items():
        firsts = {first: first_rows for first, _, first_rows, _ in pairs}
        seconds = {second: second_rows for _, second, _, second_rows in pairs}
        rows[finest_id] = OverlapFlows(
            firsts, seconds, [(first, second) for first, second, *_ in pairs], graph.flows.budget
        ).rows
    return rows


def _regular_edges(engine: Engine, graph: OverlapGraph, finest_ids: Sequence[int]) -> list[tuple[int, ...]]:
    """The pairs of regular components with some finest labels: the number of these, both groups, and their rows."""
    if not finest_ids:
        return []
    if len(finest_ids) > MAX_OVERLAPS:
        raise _too_many_pairs()
    query = template("""
        SELECT e.finest_id, e.first_group, e.second_group, e.first_rows, e.second_rows
        FROM :edges AS e
        ANTI JOIN :irregular AS i ON i.first_group = e.first_group AND i.second_group = e.second_group
        WHERE e.finest_id IN (:numbers)
    """)(edges=graph.edges, irregular=graph.irregular, numbers=[*map(number, finest_ids)])
    rows = engine.rows(query.limit(MAX_OVERLAPS + 1))
    if len(rows) > MAX_OVERLAPS:
        raise _too_many_pairs()
    return rows


def _add_labels(
    engine: Engine, link: ReleaseLink, pairs: Sequence[_FewRows], first: exp.Expr, second: exp.Expr
) -> Iterator[SharedRows]:
    """The same pairs with the labels and values of their groups."""
    labels = []
    for is_first, groups in ((True, first), (False, second)):
        numbers = {i for pair in pairs for i in (pair.bound.firsts if is_first else pair.bound.seconds)}
        numbers |= {pair.edge[not is_first] for pair in pairs}
        query = template("SELECT group_id, :columns FROM :groups AS g WHERE group_id IN (:numbers)")(
            columns=[cast(col(name), "VARCHAR") for name in link.group_columns(is_first)],
            groups=groups,
            numbers=[*map(number, numbers)],
        )
        labels.append({group: values for group, *values in engine.rows(query)} if numbers else {})
    firsts, seconds = labels
    names = dict[int, Sequence[str | None]]()
    for pair in pairs:
        first_labels = dict(zip(link.group_columns(is_first=True), firsts[pair.edge[0]], strict=True))
        second_labels = dict(zip(link.group_columns(is_first=False), seconds[pair.edge[1]], strict=True))
        labels_of_both = [_name_both(first_labels, second_labels, f"label_{i}") for i in range(len(link.attributes))]
        shortest = min(
            labels_of_both, names.get(pair.finest_id, labels_of_both), key=lambda texts: sum(map(len, map(str, texts)))
        )
        names[pair.finest_id] = shortest
    for pair in pairs:
        yield SharedRows(
            tuple(names[pair.finest_id]),
            pair.total,
            pair.rows,
            [tuple(firsts[group]) for group in sorted(pair.bound.firsts)],
            [tuple(seconds[group]) for group in sorted(pair.bound.seconds)],
            pair.bound.changed,
        )


def count_shared_rows(groups: Sequence[SharedRows]) -> dict[tuple[str | None, ...], int]:
    """The maximum number of rows that two classes share, by their finest labels.

    >>> flu, hiv = (SharedRows(("10-19 & 0-14",), 3, rows, (), (), 0) for rows in (2, 1))
    >>> count_shared_rows([flu, hiv])
    {('10-19 & 0-14',): 3}
    """
    return {pair.values: pair.total for pair in groups}


def _name_both(first: Mapping[str, str | None], second: Mapping[str, str | None], column: str) -> str | None:
    """The labels of two groups in a column as one text; a single label where they are equal."""
    labels = [*dict.fromkeys(group[column] for group in (first, second) if column in group)]
    return labels[0] if len(labels) == 1 else " & ".join("NULL" if label is None else label for label in labels)


def subtraction(link: ReleaseLink, shared_rows: Sequence[SharedRows]) -> exp.Select:
    """Pairs of groups with few common rows, counted from both releases: ``finest_0`` .., and
    ``row_count``, the rows of some groups of the second release without those of some groups of the first.

    >>> from sqlanon.support.expressions import table
    >>> from sqlanon.ledger.joint.label_pairs import LinkedAttribute
    >>> link = ReleaseLink(table("one"), table("two"), (), (LinkedAttribute("x", "x", "x"),))
    >>> pairs = [SharedRows(("10-19 & 0-14",), 1, 1, [("0-9",)], [("0-14",)], 0)]
    >>> subtraction(link, pairs).named_selects
    ['finest_0', 'row_count']
    """
    attributes = [f"finest_{i}" for i in range(len(link.attributes))]
    columns = link.all_group_columns
    pairs, bounds = list[tuple[Any, ...]](), list[tuple[Any, ...]]()
    for pair_id, pair in enumerate(shared_rows):
        pairs.append((pair_id, pair.changed, *pair.values))
        for is_first, groups in ((True, pair.firsts), (False, pair.seconds)):
            for group in groups:
                values = dict(zip(link.group_columns(is_first), group, strict=True))
                bounds.append((pair_id, is_first, *(values.get(name) for name in columns)))
    texts = dict.fromkeys(columns, "VARCHAR")
    return _SUBTRACTION(
        bounds=values_query({"pair": "BIGINT", "is_first": "BOOLEAN", **texts}, bounds),
        pairs=values_query({"pair": "BIGINT", "changed": "BIGINT", **dict.fromkeys(attributes, "VARCHAR")}, pairs),
        first=group_rows(link, is_first=True),
        second=group_rows(link, is_first=False),
        values=cols(attributes, "p"),
        same_first=same_texts(link.group_columns(is_first=True), "g", "b"),
        same_second=same_texts(link.group_columns(is_first=False), "g", "b"),
    )


# --- Connected components, by pointer jumping: Y. Shiloach, U. Vishkin, An O(log n) parallel connectivity algorithm,
# Journal of Algorithms 3(1), 1982.

# The least component of a node and its neighbours; then the component of that one.
_NEXT_COMPONENTS = template("""
    WITH
        neighbours AS (
            SELECT e.first_node AS node, r.component FROM :edges AS e JOIN :components AS r ON r.node = e.second_node
            UNION ALL
            SELECT e.second_node AS node, r.component FROM :edges AS e JOIN :components AS r ON r.node = e.first_node
        ),
        nearest AS MATERIALIZED (
            SELECT c.node, least(c.component, min(n.component)) AS component
            FROM :components AS c
            LEFT JOIN neighbours AS n ON n.node = c.node
            GROUP BY c.node, c.component
        )
    SELECT n.node, r.component
    FROM nearest AS n
    JOIN nearest AS r ON r.node = n.component
""")


def connect(engine: Engine, work: Namer, name: str, nodes: exp.Expr, edges: exp.Expr) -> exp.Table:
    """Make a table of the ``component`` of each ``node``: the least node of its connected component.

    Each edge, ``first_node`` and ``second_node``, is given in at least one direction. ``name`` is the beginning of the
    table's name.
    """
    before, steps = work(f"{name} 0"), 0
    query = template("SELECT node, node AS component FROM :nodes AS nodes")(nodes=nodes)
    engine.execute(create_table(before.copy(), query))
    while True:
        steps += 1
        after = work(f"{name} {steps}")
        engine.execute(create_table(after.copy(), _NEXT_COMPONENTS(components=before, edges=edges)))
        is_changed = engine.rows(
            template("""
                SELECT count(*) > 0
                FROM :before AS b
                JOIN :after AS a ON a.node = b.node
                WHERE a.component <> b.component
            """)(before=before, after=after)
        )[0][0]
        engine.execute(drop_table(before))
        if not is_changed:
            return after
        before = after
