"""Strategy ``forest``: classes from a forest of nearest neighbours, within a proven factor of the least loss.

The O(k) approximation of Aggarwal, Feder, Kenthapadi, Motwani, Panigrahy, Thomas and Zhu ("Approximation algorithms for
k-anonymity", 2005; "Anonymizing tables", ICDT 2005), for k of at least 2:

1. Every combination of fewer than k rows is a tree. The root of a tree of fewer than k rows gets an edge to the nearest
   combination outside the tree, until every tree has k rows. The *price* of an edge is the loss of a row released as
   the lowest nodes that both ends have in common.
2. Trees are cut into parts of k rows or more, at edges and at vertices, while that is possible. A vertex may be in
   several parts: its rows are divided among them. In a part without any of its rows it is a Steiner vertex.
3. Each part is a class, released as the lowest nodes that its rows have in common.

**The loss is at most max(2k − 1, 3k − 5) times the least** of all ways to put the rows in classes of k or more and to
release each class as nodes that its rows have in common, whether or not equal rows stay together, and however many rows
are suppressed; by the measure ``loss`` with the mean or the sum of attributes and any weights. With hierarchies of
height 1 (``suppress``) that is the paper's number of suppressed cells. The proof:

- *The edges together cost no more than the least loss.* A tree that gets an edge has fewer than k rows, so any class
  of a row of its root has a row from outside. The row's price in it is at least that of the edge; if the row is
  suppressed its price is 1, and no edge costs more. Each combination gets at most one such edge: one of its rows pays.
- *A row of a part costs no more than the part's edges together*, and each edge is in one part. If two edges share a
  vertex, their common nodes are on one path to the root. So in each attribute the highest of the nodes of all edges is
  common to the whole part.
- *A part has at most max(2k − 1, 3k − 5) rows, or is of equal rows*, whose loss no release avoids. No edge of a part in
  step 2 can be cut further, so some vertex has fewer than k rows on each of its branches. While a part has 2k rows and
  3k − 4 or more, some branches with some of the vertex's own rows make k to 2k − 2 rows and leave k, one of its own
  among them: added up one by one, until they make k rows with all but one of the vertex's own, branches make 2k − 2 at
  most. Where that leaves fewer than k, the last of them and some of the others make k to 2k − 4. (A test tries all
  cases of small k.)

A row that has no releasable node in common with k − 1 others, because of ``max_level`` or ``forbidden``, is suppressed
here and in any other release. Rounding is to 10⁻⁹ of a row's loss.

The same proof bounds the least loss of the table at hand, mostly better than the factor does: in any release each row
of a combination costs at least the nearest edge of a tree of fewer than k rows that it is the root of, or the lowest
nodes that it may be released as; and each row that is suppressed here costs 1.

Which rows of a combination a class gets depends on ``source.key`` alone, which is never released. If it depended on
released values, readers could repeat the division, and identify the rows of a class.

Dividing combinations is necessary: with 1,000 equal rows and one that differs, and k = 2, a release that keeps equal
rows together loses 500 times what the best one loses, or suppresses a row. Pairs of combinations are compared, so time
grows with the square of their number.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from sqlglot import exp

from sqlanon.errors import InfeasibleError
from sqlanon.sources.columns import refuse_repeated_keys
from sqlanon.strategies.lattice.checker import policy_measure
from sqlanon.strategies.lattice.limits import FIRST_GRACE, LimitReachedError
from sqlanon.strategies.local.core.finish import on_combinations
from sqlanon.strategies.local.core.groups import (
    CLASS_ID,
    MAX_PAIRS,
    UNIT,
    Groups,
    price_column,
    priced_combinations,
    sum_of,
)
from sqlanon.strategies.local.core.nodes import COMBINATION, Tree, level_column
from sqlanon.strategies.local.core.task import LocalOutcome, LocalTask
from sqlanon.support.coding import ROW_COUNT
from sqlanon.support.expressions import all_of, col, fragment, template

MAX_FIRST_ROUND_PAIRS = 50 * MAX_PAIRS
"""With more pairs the first round alone would take minutes."""

MAX_COMBINATIONS = 1_000_000
"""Trees are held in Python, not in the engine."""


def forest(task: LocalTask) -> LocalOutcome:
    """Form classes from the trees of a forest; some combinations are divided among several classes."""
    search_input = task.search_input
    k = task.evaluator.requirements.min_class_rows
    with task.clock.in_time(FIRST_GRACE):
        refuse_repeated_keys(task.engine, search_input.source, search_input.columns.key)
        _refuse_large_inputs(task, k)
        groups = Groups(task, "forest")
        priced = groups.make(priced_combinations(groups.combinations, task.trees))
        columns = [[col(level_column(i, level)) for level in tree.levels] for i, tree in enumerate(task.trees)]
        query = template(
            "SELECT combination, row_count, :price AS price FROM :priced WHERE :can_be_released ORDER BY combination"
        )(
            price=sum_of([_least_price(i, tree) for i, tree in enumerate(task.trees)]),
            priced=priced,
            can_be_released=all_of(fragment("greatest(:nodes) >= 0")(nodes=nodes) for nodes in columns),
        )
        combinations = task.engine.rows(query)
        trees = Forest(
            {combination: n for combination, n, _ in combinations},
            k,
            {combination: price for combination, _, price in combinations},
        )
    try:
        with task.clock.in_time():
            while trees.open:
                trees.grow(_find_nearest(task, groups, priced, trees))
    except LimitReachedError as limit:
        message = f"strategy forest reached {limit} before its trees were complete, and has no release: raise [search] "
        message += str(limit).partition(" ")[0]
        raise InfeasibleError(message, None, task.row_count, task.allowed_rows) from None
    classes = trees.classes()
    shares = groups.make(_divide_combinations(task, classes))
    divided = replace(task, combinations=shares)
    grouping = Groups(divided, "forest_shares").price_members(
        groups.make(template("SELECT combination, class_id FROM :shares")(shares=shares))
    )
    assignment = task.make("forest_assignment", grouping.assignment(len(task.trees)))
    return LocalOutcome(divided, assignment, rounds=groups.rounds, bound=_lower_bound(task, trees, classes))


def _lower_bound(task: LocalTask, trees: Forest, classes: Sequence[dict[int, int]]) -> float:
    """A lower bound on the loss of any release; 0 if the policy minimises another measure."""
    search = task.search_input.policy.search
    if search.measure != "loss" or search.aggregate not in ("mean", "sum"):
        return 0.0
    # Each attribute's price is rounded, by half a unit at most.
    rounding = len(task.trees) / 2
    least_prices = {combination: max(price - rounding, 0.0) for combination, price in trees.least_prices.items()}
    released = {combination for class_ in classes for combination in class_}
    rows = sum(trees.sizes[combination] for combination in released)
    released_loss = math.fsum(trees.sizes[combination] * least_prices[combination] for combination in released) / UNIT
    share = (released_loss + task.row_count - rows) / task.row_count
    return policy_measure(task.search_input).combine([share] * len(task.trees), [tree.weight for tree in task.trees])


def _refuse_large_inputs(task: LocalTask, k: int) -> None:
    query = template("SELECT count(*), count(*) FILTER (WHERE row_count < :k) FROM :combinations")(
        k=k, combinations=task.combinations
    )
    count, small_count = task.fetch_row(query)
    message = ""
    if count > MAX_COMBINATIONS:
        message = f"strategy forest: the source has {count:,} combinations, more than the limit of {MAX_COMBINATIONS:,}"
    elif small_count * count > MAX_FIRST_ROUND_PAIRS:
        message = f"strategy forest: comparing {small_count:,} combinations of fewer than k rows with all {count:,} "
        message += f"exceeds the limit of {MAX_FIRST_ROUND_PAIRS:,} pairs"
    if message:
        message += "; set min_level, or use another strategy, such as local"
        raise InfeasibleError(message, None, task.row_count, task.allowed_rows)


def _find_nearest(task: LocalTask, groups: Groups, priced: exp.Table, trees: Forest) -> list[tuple[int, int, int]]:
    """The cheapest edges from open roots to other trees: root, combination, price."""
    import pyarrow as pa  # noqa: PLC0415  (it is slow to load)

    places = {root: place for place, root in enumerate(trees.open)}
    table = task.work(f"forest_trees_{groups.rounds}")
    columns = {
        COMBINATION: list(trees.sizes),
        "tree": [trees.tree_of(combination) for combination in trees.sizes],
        "place": [places.get(combination) for combination in trees.sizes],
    }
    arrow = pa.table({name: pa.array(values, pa.int32()) for name, values in columns.items()})
    task.engine.copy_arrow(table, arrow)
    price = sum_of([_price_of_edge(i, tree) for i, tree in enumerate(task.trees)])
    query = template("""
        SELECT p.*, t.tree, t.place
        FROM :priced AS p
        JOIN :trees AS t ON p.combination = t.combination
    """)(priced=priced, trees=table)
    vertices = groups.make(query)
    step, edges = max(MAX_PAIRS // len(trees.sizes), 1), []
    for first in range(0, len(places), step):
        groups.start_round()
        task.progress(len(places) - first, groups.rounds, None)
        # The nearest combination outside the tree of some open roots, if both have a releasable node in common.
        # ``best`` is one number for each pair, the price times 2^31 plus the neighbour, and the least is chosen.
        query = template("""
            WITH
                pairs AS (
                    SELECT x.combination AS root, y.combination AS neighbour, :price AS price
                    FROM :vertices AS x
                    JOIN :vertices AS y ON x.tree <> y.tree
                    WHERE x.place BETWEEN :first AND :last
                ),
                nearest AS (
                    SELECT root, min(price * 2147483648 + neighbour) AS best
                    FROM pairs
                    WHERE price IS NOT NULL
                    GROUP BY root
                )
            SELECT root, (best % 2147483648)::INTEGER AS neighbour, best // 2147483648 AS price
            FROM nearest
        """)(price=price, vertices=vertices, first=first, last=first + step - 1)
        edges += task.engine.rows(query)
    task.runner.drop(table, vertices)
    return sorted(edges)


def _least_price(attribute: int, tree: Tree) -> exp.Case:
    """The price of the lowest node that may be released."""
    price = exp.Case()
    for level in tree.levels:
        is_released = col(level_column(attribute, level)) >= 0
        price = price.when(is_released, col(price_column(attribute, level)), copy=False)
    return price


def _price_of_edge(attribute: int, tree: Tree) -> exp.Case:
    """The price of the lowest node above both combinations that may be released."""
    price = exp.Case()
    for level in tree.levels:
        name = level_column(attribute, level)
        is_common = fragment(":node = :neighbour AND :node >= 0")(node=col(name, "x"), neighbour=col(name, "y"))
        price = price.when(is_common, col(price_column(attribute, level), "x"), copy=False)
    return price


def _divide_combinations(task: LocalTask, classes: Sequence[dict[int, int]]) -> exp.Select:
    """The shares of the combinations in classes. The largest share of a combination has its first rows."""
    import pyarrow as pa  # noqa: PLC0415  (it is slow to load)

    rows, assigned_rows = [], defaultdict[int, int](int)
    shares = [
        (n, class_id, combination) for class_id, class_ in enumerate(classes) for combination, n in class_.items()
    ]
    for n, class_id, combination in sorted(shares, key=lambda share: (-share[0], share[1:])):
        before = assigned_rows[combination]
        rows.append((combination, class_id, n, before + 1, before + n))
        assigned_rows[combination] += n
    names = (COMBINATION, CLASS_ID, ROW_COUNT, "first_row", "last_row")
    columns = zip(*rows, strict=True) if rows else ((),) * len(names)
    table = task.work("forest_groups")
    arrow = pa.table({name: pa.array(column, pa.int64()) for name, column in zip(names, columns, strict=True)})
    task.engine.copy_arrow(table, arrow)
    nodes = [col(level_column(i, tree.floor), "c") for i, tree in enumerate(task.trees)]
    # The shares of combinations in classes as separate combinations, each with the positions of its rows.
    return template("""
        SELECT
            (row_number() OVER (ORDER BY g.class_id, g.combination) - 1)::INTEGER AS combination,
            g.class_id, g.row_count, g.first_row, g.last_row, :nodes
        FROM :classes AS g
        JOIN :combinations AS c ON g.combination = c.combination
    """)(nodes=nodes, classes=table, combinations=task.combinations)


@dataclass(frozen=True)
class Branch:
    """The part of a tree that is connected with a vertex by one edge."""

    vertices: tuple[int, ...]
    rows: int
    price: int  # the price of its edges, including the one to the vertex


@dataclass
class Forest:
    """Trees of combinations, which grow until each has k rows, and are then cut into classes.

    >>> trees = Forest({0: 5, 1: 1, 2: 1}, 2, {0: 3, 1: 3, 2: 3})
    >>> trees.open
    [1, 2]
    >>> trees.grow([(1, 0, 7), (2, 0, 8)])
    >>> trees.open, trees.classes(), trees.least_prices
    ([], [{2: 1, 0: 1}, {1: 1, 0: 1}, {0: 3}], {0: 3, 1: 7, 2: 8})
    """

    sizes: dict[int, int]  # rows by combination
    k: int
    least_prices: dict[int, int]  # lower bounds on the price of a row in any class; at first, in a class of equal rows
    open: list[int] = field(init=False)  # the roots of trees of fewer than k rows
    _parents: dict[int, int] = field(init=False)  # a vertex of the same tree that is nearer to the root, or itself
    _rows: dict[int, int] = field(init=False)  # the rows of each tree, by its root
    # The prices of the edges of each vertex, in both directions.
    _edges: defaultdict[int, dict[int, int]] = field(init=False)

    def __post_init__(self) -> None:
        self.open = [combination for combination, n in self.sizes.items() if n < self.k]
        self._parents = {combination: combination for combination in self.sizes}
        self._rows = dict(self.sizes)
        self._edges = defaultdict(dict)

    def tree_of(self, combination: int) -> int:
        """The root of the tree that a combination is in."""
        vertex, parents = combination, self._parents
        while parents[vertex] != vertex:
            parents[vertex] = parents[parents[vertex]]
            vertex = parents[vertex]
        return vertex

    def grow(self, nearest: Sequence[tuple[int, int, int]]) -> None:
        """Link each open root to the combination outside its tree that is nearest: root, combination, and price.

        An edge is left for the next round if the tree has grown to its other end meanwhile. A root without an edge
        has no releasable node in common with other trees.
        """
        for root, neighbour, price in nearest:
            self.least_prices[root] = price
            neighbour_root = self.tree_of(neighbour)
            if neighbour_root != root and self._rows[root] < self.k:
                self._parents[root] = neighbour_root
                self._rows[neighbour_root] += self._rows.pop(root)
                self._edges[root][neighbour] = self._edges[neighbour][root] = price
        linked = {root for root, _, _ in nearest}
        self.open = [root for root in self.open if root in linked and self._rows.get(root, self.k) < self.k]

    def classes(self) -> list[dict[int, int]]:
        """Classes of k rows or more: their rows by combination. Trees of fewer rows are left out."""
        return [class_ for root, rows in self._rows.items() if rows >= self.k for class_ in self._cut(root, rows)]

    def _cut(self, root: int, rows: int) -> Iterator[dict[int, int]]:
        """Cut the edges of a tree with k rows on either side, from the leaves up; then divide each part."""
        order = [(root, root)]
        for vertex, parent in order:  # grows meanwhile
            order += [(child, vertex) for child in self._edges[vertex] if child != parent]
        below = dict.fromkeys((vertex for vertex, _ in order), 0)
        for vertex, parent in reversed(order):
            below[vertex] += self.sizes[vertex]
            if vertex == root:
                yield from self._divide(self._middle(root, below))
            elif below[vertex] >= self.k and rows - below[vertex] >= self.k:
                rows -= below[vertex]
                del self._edges[vertex][parent], self._edges[parent][vertex]
                yield from self._divide(self._middle(vertex, below))
            else:
                below[parent] += below[vertex]

    def _middle(self, vertex: int, below: dict[int, int]) -> int:
        """The vertex of the part under another that has fewer than k rows on each of its branches."""
        parent = vertex
        while large := [child for child in self._edges[vertex] if child != parent and below[child] >= self.k]:
            parent, vertex = vertex, large[0]
        return vertex

    def _divide(self, middle: int) -> list[dict[int, int]]:
        """Divide a part at its middle vertex into classes."""
        middle_rows, classes = self.sizes[middle], []
        branches = [self._branch(vertex, middle) for vertex in self._edges[middle]]
        branches.sort(key=lambda branch: (-branch.price, branch.vertices))
        rows = middle_rows + sum(branch.rows for branch in branches)
        # Some of any 3k branches make a class.
        while (
            split := choose_branches(rows, middle_rows, [branch.rows for branch in branches[: 3 * self.k]], self.k)
        ) is not None:
            chosen, taken = split
            classes.append(self._class([branches.pop(i) for i in reversed(chosen)], middle, taken))
            rows -= sum(classes[-1].values())
            middle_rows -= taken
        return [*classes, self._class(branches, middle, middle_rows)]

    def _branch(self, first: int, middle: int) -> Branch:
        order, price = [(first, middle)], self._edges[first][middle]
        for vertex, parent in order:  # grows meanwhile
            for child in self._edges[vertex]:
                if child != parent:
                    order.append((child, vertex))
                    price += self._edges[vertex][child]
        vertices = tuple(vertex for vertex, _ in order)
        return Branch(vertices, sum(self.sizes[vertex] for vertex in vertices), price)

    def _class(self, branches: Sequence[Branch], middle: int, middle_rows: int) -> dict[int, int]:
        rows = {vertex: self.sizes[vertex] for branch in branches for vertex in branch.vertices}
        return rows | ({middle: middle_rows} if middle_rows else {})


def choose_branches(rows: int, vertex_rows: int, branches: Sequence[int], k: int) -> tuple[list[int], int] | None:
    """Choose branches and a number of the vertex's rows that make k to 2k − 2 rows, and leave k rows with one of the
    vertex's among them; None if that is impossible. ``branches`` are the rows of branches of fewer than k rows.

    >>> choose_branches(1003, 1000, [1, 2], 3), choose_branches(8, 2, [2, 2, 2], 4), choose_branches(3, 1, [1, 1], 2)
    (([0], 2), ([0, 1], 0), None)
    """
    sums: dict[int, list[int]] = {0: []}
    for i, branch_rows in enumerate(branches if rows >= 2 * k else ()):
        for previous_sum, chosen in list(sums.items()):
            chosen_rows = previous_sum + branch_rows
            taken = max(k - chosen_rows, 0)
            if chosen_rows <= 2 * k - 2 and taken < vertex_rows and rows - chosen_rows - taken >= k:
                return [*chosen, i], taken
            if chosen_rows <= 2 * k - 2:
                sums.setdefault(chosen_rows, [*chosen, i])
    return None


run = on_combinations(forest)
