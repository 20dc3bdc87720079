"""Strategy ``forest``: groups from a forest of nearest neighbours, within a proven factor of the least loss.

The O(k) approximation of Aggarwal, Feder, Kenthapadi, Motwani, Panigrahy, Thomas and Zhu ("Approximation algorithms for
k-anonymity", 2005; "Anonymizing tables", ICDT 2005), for k of at least 2:

1. Every combination of fewer than k rows is a tree. The root of a tree of fewer than k rows gets an edge to the nearest
   combination outside it, and this again until every tree has k rows. The *price* of an edge is the loss of a row that
   is released as the lowest nodes that both ends have in common.
2. Trees are cut in parts of k rows or more, at edges and at vertices, while that is possible. A vertex may be in
   several parts: its rows are divided among them, and where a part has none of them it is there as what the paper calls
   a Steiner vertex.
3. Each part is a group, released as the lowest nodes that its rows have in common.

**The loss is at most max(2k − 1, 3k − 5) times the least** of all ways to put the rows in groups of k or more and to
release each group as nodes that its rows have in common, whether or not equal rows stay together, and however many rows
are suppressed; by the measure ``loss`` with the mean or the sum of attributes and any weights. With hierarchies of
height 1 (``suppress``) that is the paper's number of suppressed cells. The proof:

- *The edges together cost no more than the least loss.* A tree that gets an edge has fewer than k rows, so any group
  of a row of its root has a row from outside. The row's price there is at least that of the edge; if the row is
  suppressed its price is 1, and no edge costs more. Each combination gets one such edge at most: one of its rows pays.
- *A row of a part costs no more than the part's edges together*, and each edge is in one part. Of two edges that share
  a vertex the common nodes are on one path to the root. So in each attribute the highest of the nodes of all edges is
  common to the whole part.
- *A part has at most max(2k − 1, 3k − 5) rows, or is of equal rows*, which cost what they must. No edge of a part in
  step 2 can be cut further, so some vertex has fewer than k rows on each of its branches. While there are 2k rows and
  3k − 4 or more, some branches with some of the vertex's own rows make k to 2k − 2 rows and leave k, one of its own
  among them: added up one by one, until they make k rows with all but one of the vertex's own, branches make 2k − 2 at
  most. Where that leaves fewer than k, the last of them and some of the others make k to 2k − 4. (A test tries all
  cases of small k.)

A row that has nothing in common with k − 1 others, because of ``max_level`` or ``forbidden``, is suppressed here and in
any other release. Rounding is to 10⁻⁹ of a row's loss.

The same proof bounds the least loss of the table at hand, mostly better than the factor does: in any release each row
of a combination costs at least what is nearest to a tree of fewer than k rows that it is the root of, or the lowest
nodes that it may be released as; and each row that is suppressed here costs 1.

Which rows of a combination a group gets follows from ``source.key`` alone, which is never released. If it followed from
released values, readers could repeat the division, and tell the rows of a group apart.

That combinations are divided is necessary: of 1,000 equal rows and one that differs, with k = 2, a release that keeps
equal rows together loses 500 times what the best one loses, or suppresses a row. Pairs of combinations are compared, so
time grows with the square of their number.
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
from sqlanon.strategies.local.finish import on_combinations
from sqlanon.strategies.local.groups import CELL, MOST_PAIRS, UNIT, Groups, placed, price_name, summed
from sqlanon.strategies.local.nodes import COMBINATION, Tree, node_name
from sqlanon.strategies.local.task import LocalOutcome, LocalTask
from sqlanon.support.coding import ROWS
from sqlanon.support.expressions import all_of, col, fragment, template

MOST_COMPARED = 50 * MOST_PAIRS
"""Of more pairs the first round alone would take minutes."""

MOST_COMBINATIONS = 1_000_000
"""Trees are here, not in the engine."""

_COUNTS = template("SELECT count(*), count(*) FILTER (WHERE n < :k) FROM :combinations")
# The combinations that may be released as anything at all.
_SIZES = template("SELECT combination, n, :price AS price FROM :prices WHERE :may_be_released ORDER BY combination")
_IS_ALLOWED = fragment("greatest(:nodes) >= 0")
_VERTICES = template("""
    SELECT p.*, t.tree, t.place
    FROM :prices AS p
    JOIN :trees AS t ON p.combination = t.combination
""")
# The nearest combination outside the tree of each of some roots, if they have any node in common. What is least is one
# whole number for each pair, the other combination last.
_NEAREST = template("""
    SELECT one, (best % 2147483648)::INTEGER AS other, best // 2147483648 AS price
    FROM (
        SELECT one, min(price * 2147483648 + other) AS best
        FROM (
            SELECT x.combination AS one, y.combination AS other, :price AS price
            FROM :vertices AS x
            JOIN :vertices AS y ON x.tree <> y.tree
            WHERE x.place BETWEEN :first AND :last
        ) AS p
        WHERE price IS NOT NULL
        GROUP BY one
    ) AS b
""")
_IS_COMMON = fragment(":one = :other AND :one >= 0")
# The groups' shares of combinations as combinations of their own, each with the places of its rows among those of all.
_SHARES = template("""
    SELECT
        (row_number() OVER (ORDER BY g.cell, g.combination) - 1)::INTEGER AS combination,
        g.cell, g.n, g.first_row, g.last_row, :nodes
    FROM :groups AS g
    JOIN :combinations AS c ON g.combination = c.combination
""")
_MEMBERS = template("SELECT combination, cell FROM :shares")


def forest(task: LocalTask) -> LocalOutcome:
    """Group combinations by the trees of a forest, some of them in several groups."""
    prepared = task.prepared
    k = task.members.requirements.min_class_rows
    with task.clock.in_time(FIRST_GRACE):
        refuse_repeated_keys(task.engine, prepared.source, prepared.columns.key)
        _refuse_many(task, k)
        groups = Groups(task, "forest")
        names = [_node_names(i, tree) for i, tree in enumerate(task.trees)]
        may = all_of(_IS_ALLOWED(nodes=[col(name) for name in nodes]) for nodes in names)
        price = summed([_own_price(i, tree) for i, tree in enumerate(task.trees)])
        sizes = task.engine.rows(_SIZES(price=price, prices=groups.prices, may_be_released=may))
        trees = Forest({one: n for one, n, _ in sizes}, k, {one: price for one, _, price in sizes})
    try:
        with task.clock.in_time():
            while trees.open:
                trees.grow(_nearest(task, groups, trees))
    except LimitReachedError as limit:
        message = f"strategy forest reached {limit} before its trees were complete, and has no release: raise [search] "
        message += str(limit).partition(" ")[0]
        raise InfeasibleError(message, None, task.rows, task.allowed_rows) from None
    cells = trees.groups()
    shares = groups.make(_shares(task, groups, cells))
    divided = replace(task, combinations=shares)
    found = Groups(divided, "forest_shares").tight(groups.make(_MEMBERS(shares=shares)))
    target = task.steps.make(task.work("forest_placed"), placed(found.members, found.classes, len(task.trees)))
    return LocalOutcome(divided, target, rounds=groups.rounds, bound=_least_loss(task, trees, cells))


def _least_loss(task: LocalTask, trees: Forest, found: Sequence[dict[int, int]]) -> float:
    """A bound of what any release loses, where rows are grouped by what is minimised."""
    asked = task.prepared.policy.search
    if asked.measure != "loss" or asked.aggregate not in ("mean", "sum"):
        return 0.0
    # Each attribute's price is rounded, by half a unit at most.
    least = {one: max(price - len(task.trees) / 2, 0.0) for one, price in trees.least.items()}
    grouped = {one for group in found for one in group}
    rows = sum(trees.sizes[one] for one in grouped)
    share = (math.fsum(trees.sizes[one] * least[one] for one in grouped) / UNIT + task.rows - rows) / task.rows
    return policy_measure(task.prepared).combine([share] * len(task.trees), [tree.weight for tree in task.trees])


def _node_names(attribute: int, tree: Tree) -> list[str]:
    return [node_name(attribute, level) for level in range(tree.floor, tree.height + 1)]


def _refuse_many(task: LocalTask, k: int) -> None:
    every, small = task.engine.rows(_COUNTS(k=k, combinations=task.combinations))[0]
    message = ""
    if every > MOST_COMBINATIONS:
        message = f"strategy forest works on up to {MOST_COMBINATIONS:,} combinations, and there are {every:,}"
    elif small * every > MOST_COMPARED:
        message = f"strategy forest compares combinations of fewer than k rows, {small:,} here, with all {every:,}: "
        message += f"more than {MOST_COMPARED:,} pairs are refused"
    if message:
        message += "; set min_level, or use another strategy, such as local"
        raise InfeasibleError(message, None, task.rows, task.allowed_rows)


def _nearest(task: LocalTask, groups: Groups, trees: Forest) -> list[tuple[int, int, int]]:
    """The edges of the least price from open roots to other trees."""
    import pyarrow as pa  # noqa: PLC0415  (it is slow to load)

    place = {root: i for i, root in enumerate(trees.open)}
    table = task.work(f"forest_trees_{groups.rounds}")
    columns = {
        COMBINATION: list(trees.sizes),
        "tree": [trees.tree_of(one) for one in trees.sizes],
        "place": [place.get(one) for one in trees.sizes],
    }
    task.steps.engine.copy_arrow(table, pa.table({name: pa.array(one, pa.int32()) for name, one in columns.items()}))
    price = summed([_common_price(i, tree) for i, tree in enumerate(task.trees)])
    vertices = groups.make(_VERTICES(prices=groups.prices, trees=table))
    step, edges = max(MOST_PAIRS // len(trees.sizes), 1), []
    for first in range(0, len(place), step):
        groups.refuse_over_time()
        task.progress(len(place) - first, groups.rounds, None)
        query = _NEAREST(price=price, vertices=vertices, first=first, last=first + step - 1)
        edges += task.engine.rows(query)
    task.steps.drop(table, vertices)
    return sorted(edges)


def _own_price(attribute: int, tree: Tree) -> exp.Case:
    """The price of the lowest node that may be released."""
    price = exp.Case()
    for level in range(tree.floor, tree.height + 1):
        is_released = col(node_name(attribute, level)) >= 0
        price = price.when(is_released, col(price_name(attribute, level)), copy=False)
    return price


def _common_price(attribute: int, tree: Tree) -> exp.Case:
    """The price of the lowest node above both combinations that may be released."""
    price = exp.Case()
    for level in range(tree.floor, tree.height + 1):
        name = node_name(attribute, level)
        is_common = _IS_COMMON(one=col(name, "x"), other=col(name, "y"))
        price = price.when(is_common, col(price_name(attribute, level), "x"), copy=False)
    return price


def _shares(task: LocalTask, groups: Groups, found: Sequence[dict[int, int]]) -> exp.Select:
    """What each group has of each combination; the largest share of a combination has its first rows."""
    import pyarrow as pa  # noqa: PLC0415  (it is slow to load)

    rows, before = [], defaultdict[int, int](int)
    shares = [(n, cell, one) for cell, group in enumerate(found) for one, n in group.items()]
    for n, cell, one in sorted(shares, key=lambda share: (-share[0], share[1:])):
        rows.append((one, cell, n, before[one] + 1, before[one] + n))
        before[one] += n
    names = (COMBINATION, CELL, ROWS, "first_row", "last_row")
    columns = zip(*rows, strict=True) if rows else ((),) * len(names)
    table = task.work("forest_groups")
    arrow = pa.table({name: pa.array(column, pa.int64()) for name, column in zip(names, columns, strict=True)})
    task.steps.engine.copy_arrow(table, arrow)
    nodes = [col(name, "c") for i, tree in enumerate(task.trees) for name in _node_names(i, tree)]
    return _SHARES(nodes=nodes, groups=table, combinations=task.combinations)


@dataclass(frozen=True)
class Branch:
    """What hangs on a vertex of a tree by one edge."""

    vertices: tuple[int, ...]
    rows: int
    price: int  # of its edges, that to the vertex with them


@dataclass
class Forest:
    """Trees of combinations with some rows each, which grow until each has k rows, and are then cut in groups.

    >>> trees = Forest({0: 5, 1: 1, 2: 1}, 2, {0: 3, 1: 3, 2: 3})
    >>> trees.open
    [1, 2]
    >>> trees.grow([(1, 0, 7), (2, 0, 8)])
    >>> trees.open, trees.groups(), trees.least
    ([], [{2: 1, 0: 1}, {1: 1, 0: 1}, {0: 3}], {0: 3, 1: 7, 2: 8})
    """

    sizes: dict[int, int]
    k: int
    least: dict[int, int]  # the least price of a row in any group; at first, of one by itself
    open: list[int] = field(init=False)  # the roots of trees of fewer than k rows
    _above: dict[int, int] = field(init=False)  # by vertex another of its tree that is nearer to the root, or itself
    _rows: dict[int, int] = field(init=False)  # by root
    # The prices of the edges of each vertex, in both directions.
    _edges: defaultdict[int, dict[int, int]] = field(init=False)

    def __post_init__(self) -> None:
        self.open = [one for one, n in self.sizes.items() if n < self.k]
        self._above = {one: one for one in self.sizes}
        self._rows = dict(self.sizes)
        self._edges = defaultdict(dict)

    def tree_of(self, one: int) -> int:
        """The root of the tree that a combination is in."""
        while self._above[one] != one:
            self._above[one] = self._above[self._above[one]]
            one = self._above[one]
        return one

    def grow(self, nearest: Sequence[tuple[int, int, int]]) -> None:
        """Link each open root to the combination outside its tree that is nearest: root, combination, and price.

        An edge is left for the next round where the tree has grown to its other end meanwhile. A root without an edge
        has nothing in common with the rest.
        """
        for one, other, price in nearest:
            self.least[one] = price
            root = self.tree_of(other)
            if root != one and self._rows[one] < self.k:
                self._above[one] = root
                self._rows[root] += self._rows.pop(one)
                self._edges[one][other] = self._edges[other][one] = price
        near = {one for one, _, _ in nearest}
        self.open = [one for one in self.open if one in near and self._rows.get(one, self.k) < self.k]

    def groups(self) -> list[dict[int, int]]:
        """Groups of k rows or more: how many rows they have of each combination. What can be in none is left out."""
        return [group for root, rows in self._rows.items() if rows >= self.k for group in self._groups_of(root, rows)]

    def _groups_of(self, root: int, rows: int) -> Iterator[dict[int, int]]:
        """Cut the edges of a tree that have k rows on either side, from the leaves up; then divide what is left."""
        order = [(root, root)]
        for one, above in order:  # it grows meanwhile
            order += [(other, one) for other in self._edges[one] if other != above]
        below = dict.fromkeys((one for one, _ in order), 0)
        for one, above in reversed(order):
            below[one] += self.sizes[one]
            if one == root:
                yield from self._parts_at(self._middle(root, below))
            elif below[one] >= self.k and rows - below[one] >= self.k:
                rows -= below[one]
                del self._edges[one][above], self._edges[above][one]
                yield from self._parts_at(self._middle(one, below))
            else:
                below[above] += below[one]

    def _middle(self, one: int, below: dict[int, int]) -> int:
        """The vertex of the part under another that has fewer than k rows on each of its branches."""
        above = one
        while large := [other for other in self._edges[one] if other != above and below[other] >= self.k]:
            above, one = one, large[0]
        return one

    def _parts_at(self, middle: int) -> list[dict[int, int]]:
        own, parts = self.sizes[middle], []
        branches = [self._branch(one, middle) for one in self._edges[middle]]
        branches.sort(key=lambda one: (-one.price, one.vertices))
        rows = own + sum(one.rows for one in branches)
        # Any 3k branches have some that make a part.
        while (found := part_of(rows, own, [one.rows for one in branches[: 3 * self.k]], self.k)) is not None:
            chosen, taken = found
            parts.append(self._group([branches.pop(i) for i in reversed(chosen)], middle, taken))
            rows -= sum(parts[-1].values())
            own -= taken
        return [*parts, self._group(branches, middle, own)]

    def _branch(self, first: int, middle: int) -> Branch:
        found, price = [(first, middle)], self._edges[first][middle]
        for one, above in found:  # it grows meanwhile
            for other in self._edges[one]:
                if other != above:
                    found.append((other, one))
                    price += self._edges[one][other]
        vertices = tuple(one for one, _ in found)
        return Branch(vertices, sum(self.sizes[one] for one in vertices), price)

    def _group(self, branches: Sequence[Branch], middle: int, taken: int) -> dict[int, int]:
        group = {one: self.sizes[one] for branch in branches for one in branch.vertices}
        return group | ({middle: taken} if taken else {})


def part_of(rows: int, own: int, branches: Sequence[int], k: int) -> tuple[list[int], int] | None:
    """Of some rows at a vertex, its own and those of branches of fewer than k each: branches, and how many of its own,
    that make k to 2k − 2 rows and leave k, one of its own among them. None if there are no such.

    >>> part_of(1003, 1000, [1, 2], 3), part_of(8, 2, [2, 2, 2], 4), part_of(3, 1, [1, 1], 2)
    (([0], 2), ([0, 1], 0), None)
    """
    sums: dict[int, list[int]] = {0: []}
    for i, more in enumerate(branches if rows >= 2 * k else ()):
        for before, chosen in list(sums.items()):
            together = before + more
            taken = max(k - together, 0)
            if together <= 2 * k - 2 and taken < own and rows - together - taken >= k:
                return [*chosen, i], taken
            if together <= 2 * k - 2:
                sums.setdefault(together, [*chosen, i])
    return None


run = on_combinations(forest)
