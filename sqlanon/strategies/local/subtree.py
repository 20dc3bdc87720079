"""Strategy ``subtree``: a cut of each attribute's hierarchy, the same for all rows: subtrees are generalized or not.

The search starts at the optimal full-domain generalization and goes

- top-down: a node of a cut is *split* into the nodes below it. One statement computes for all nodes of an attribute the
  gain of splitting them and the rows that it suppresses. The split with the most gain for each suppressed row is next.
  A split of one attribute mostly reduces the gains of other attributes' splits, so that these are computed again only
  when they are next, and at the end;
- bottom-up: without a split left, a node above a cut is *raised* to replace the nodes below it, and all nodes that can
  be split are split again, the raised one last. The best of the `MAX_RAISES` cheapest such moves is made, until none
  reduces the price.

The price is the mean loss with the attributes' weights; a suppressed row costs a little more than one released as the
roots. It never rises, so the result is never worse than the start. docs/reference/strategies.md names the sources.

A *cutting* is a table of the combinations with the nodes of a cut of each attribute's hierarchy: ``combination``,
``n``, the ground nodes, the released nodes ``node_i``, and ``cost``: the loss of a row, in whole numbers, so that sums
do not depend on the order. A *move* replaces a node by another: ``node``, ``ground``, ``new_node``, ``added_cost``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from sqlanon.strategies.lattice.limits import FIRST_GRACE
from sqlanon.strategies.local.evaluation import ClassEvaluator, feasible_rows
from sqlanon.strategies.local.finish import on_combinations
from sqlanon.strategies.local.nodes import (
    COMBINATION,
    NODE,
    Tree,
    ancestors_of_lowest,
    equal_columns,
    join_levels,
    level_column,
    node_column,
    node_columns,
)
from sqlanon.strategies.local.task import LocalOutcome, LocalTask
from sqlanon.support.coding import ROWS, Levels
from sqlanon.support.expressions import as_column, col, fragment, number, subquery, template

SCALE = 10**12
"""The cost of a row released as the roots. A value costs 1 for each level beside its loss, so that of two nodes with
the same ground values the lower one is released."""

MAX_RAISES = 32
"""Number of the cheapest moves up that are tried before the best of them is made."""

COST, NEW_NODE, SPLIT = "cost", "new_node", "split"


def suppressed_cost(trees: Sequence[Tree]) -> int:
    """The cost of a suppressed row: more than that of a row released as the roots."""
    return SCALE + sum(tree.height for tree in trees) + 1


def _node_costs(trees: Sequence[Tree], attribute: int) -> exp.Select:
    """The nodes of an attribute: ``node``, ``level``, ``cost``, ``released``."""
    tree = trees[attribute]
    share = tree.weight / sum(other_tree.weight for other_tree in trees)
    cost_of_leaf = SCALE * share / (tree.leaves - 1) if tree.leaves > 1 else 0.0
    return template("""
        SELECT node, level, round(leaves * :cost_of_leaf)::BIGINT + level AS cost, released
        FROM :nodes
    """)(cost_of_leaf=cost_of_leaf, nodes=tree.nodes)


def ground_column(trees: Sequence[Tree], attribute: int) -> str:
    """The column with an attribute's ground nodes."""
    return level_column(attribute, trees[attribute].floor)


def _combination_columns(trees: Sequence[Tree], alias: str) -> list[exp.Expr]:
    grounds = [col(ground_column(trees, i), alias) for i in range(len(trees))]
    return [col(COMBINATION, alias), col(ROWS, alias), *grounds]


def cutting_at(combinations: exp.Table, trees: Sequence[Tree], levels: Levels) -> exp.Select:
    """The cutting of a generalization."""
    cost: exp.Expr = number(0)
    for i in range(len(trees)):
        cost = cost + col(COST, f"v{i}")
    query = template("SELECT :columns FROM :combinations AS c")(
        columns=_combination_columns(trees, "c"), combinations=combinations
    )
    query, nodes = join_levels(query, trees, levels)
    released = [as_column(node, node_column(i)) for i, node in enumerate(nodes)]
    query = query.select(*released, as_column(cost, COST), copy=False)
    for i, node in enumerate(nodes):
        on = node.eq(col(NODE, f"v{i}"))
        query = query.join(subquery(_node_costs(trees, i), f"v{i}"), on=on, copy=False)
    return query


def paths(combinations: exp.Table, trees: Sequence[Tree], attribute: int) -> exp.Select:
    """The nodes above each ground value of an attribute that may be released: ``ground``, ``node``, ``level`` and
    ``cost``, which rises with the level."""
    tree = trees[attribute]
    return template("""
        WITH
            ground_values AS (
                SELECT DISTINCT :ground AS ground FROM :combinations
            ),
            ancestors AS (
                SELECT ground, unnest(:nodes) AS node
                FROM :ancestors AS a
                WHERE ground IN (SELECT ground FROM ground_values)
            )
        SELECT ancestors.ground, costs.node, costs.level, costs.cost
        FROM ancestors
        JOIN :costs AS costs ON ancestors.node = costs.node
        WHERE costs.released
    """)(
        nodes=exp.Array(expressions=[col(f"node_{level}") for level in tree.levels]),
        ground=col(ground_column(trees, attribute)),
        combinations=combinations,
        ancestors=subquery(ancestors_of_lowest(tree, tree.levels), "a"),
        costs=subquery(_node_costs(trees, attribute)),
    )


def splits(node_paths: exp.Table) -> exp.Select:
    """The moves down: each node is replaced by the highest releasable nodes below it.

    Only nodes all of whose ground values have such a node can be split.
    """
    return template("""
        WITH
            moves AS (
                SELECT
                    node,
                    ground,
                    lag(node) OVER (PARTITION BY ground ORDER BY level) AS new_node,
                    lag(cost) OVER (PARTITION BY ground ORDER BY level) - cost AS added_cost
                FROM :paths AS p
            ),
            checked AS (
                SELECT *, bool_and(new_node IS NOT NULL) OVER (PARTITION BY node) AS can_be_split FROM moves
            )
        SELECT node, ground, new_node, added_cost
        FROM checked
        WHERE can_be_split
    """)(paths=node_paths)


def raises(node_paths: exp.Table) -> exp.Subquery:
    """The moves up: each node is replaced by a releasable node above it.

    They are a subquery, not a table: a tall hierarchy has a row for each pair of levels.
    """
    query = template("""
        SELECT low.node, low.ground, high.node AS new_node, high.cost - low.cost AS added_cost
        FROM :paths AS low
        JOIN :paths AS high ON low.ground = high.ground AND low.level < high.level
    """)(paths=node_paths)
    return subquery(query)


def _is_move(trees: Sequence[Tree], attribute: int) -> exp.Expr:
    """Whether ``s`` is a move of the node of a row ``p`` of a cutting."""
    return fragment("s.node = :node AND s.ground = :ground")(
        node=col(node_column(attribute), "p"), ground=col(ground_column(trees, attribute), "p")
    )


def split_all(cutting: exp.Table, trees: Sequence[Tree], attribute: int, moves: exp.Table) -> exp.Select:
    """The rows of a cutting whose nodes of an attribute can be split, with all of them split; ``split`` is the former
    node."""
    nodes = node_columns(len(trees), "p")
    former_node, nodes[attribute] = nodes[attribute], as_column(col(NEW_NODE, "s"), node_column(attribute))
    return template("""
        SELECT :columns, :nodes, :former_node AS split, p.cost + s.added_cost AS cost
        FROM :cutting AS p
        JOIN :moves AS s ON :is_move
    """)(
        columns=_combination_columns(trees, "p"),
        nodes=nodes,
        former_node=former_node,
        cutting=cutting,
        moves=moves,
        is_move=_is_move(trees, attribute),
    )


def make_moves(
    cutting: exp.Table, trees: Sequence[Tree], attribute: int, moves: exp.Expr, column: str, nodes: Sequence[int]
) -> exp.Select:
    """A cutting after the moves of an attribute that have one of some nodes in a column."""
    columns = node_columns(len(trees), "p")
    columns[attribute] = as_column(
        fragment("coalesce(s.new_node, :node)")(node=columns[attribute]), node_column(attribute)
    )
    return template("""
        SELECT :columns, :nodes, p.cost + coalesce(s.added_cost, 0) AS cost
        FROM :cutting AS p
        LEFT JOIN :moves AS s ON :is_move AND :column IN (:chosen)
    """)(
        columns=_combination_columns(trees, "p"),
        nodes=columns,
        cutting=cutting,
        moves=moves,
        is_move=_is_move(trees, attribute),
        column=col(column, "s"),
        chosen=[number(node) for node in nodes],
    )


def subtree(task: LocalTask) -> LocalOutcome:
    """Find a cut of each attribute's hierarchy."""
    return _CutSearch(task).run()


@dataclass(frozen=True)
class _Cut:
    """A cut of each hierarchy."""

    cutting: exp.Table
    classes: exp.Table  # evaluated, with prices
    price: int  # the price of all rows
    suppressed_rows: int
    class_count: int  # kept classes
    losers: exp.Table | None = None  # the members of suppressed combinations, if persons are counted
    loser_count: int = 0  # persons who lose a row, if persons are counted


@dataclass(frozen=True)
class _Split:
    """A node that may be split, its gain, and the additional rows and persons who lose a row by it."""

    node: int
    gain: int
    suppressed_rows: int
    new_losers: int

    @property
    def worth(self) -> float:
        """The gain for each additional suppressed row."""
        return self.gain / (1 + max(self.suppressed_rows, 0))


class _CutSearch:
    """The search for cuts; it counts its checks."""

    def __init__(self, task: LocalTask) -> None:
        self.task = task
        self.attributes = range(len(task.trees))
        self.checks = 0
        self._number = 0
        self._columns = [node_column(i) for i in self.attributes]
        self._allowed_persons = task.search_input.limit.persons  # with a limit of 0, no row may be suppressed either

    def run(self) -> LocalOutcome:
        task, trees = self.task, self.task.trees
        with task.clock.in_time(FIRST_GRACE):
            search, levels = task.search_full_domain()
            # Rows of unknown values are in no combination, and are suppressed in any case.
            self._allowed_rows = task.allowed_rows - (task.row_count - task.count_rows(task.combinations))
            at_levels = cutting_at(task.combinations, trees, levels)
            requirements = task.search_input.requirements
            start = self._make_cut(at_levels.copy(), replace(task.evaluator, requirements=requirements))
        best = start if self.task.limit_is_reached() or not start.price else self._improve(start, at_levels)
        # The search evaluates shields over all attributes, which may be too strict.
        best = best if self._is_allowed(best) and best.price <= start.price else start
        assignment = task.make("subtree_assignment", feasible_rows(best.cutting, best.classes, self._columns))
        return LocalOutcome(task, assignment, rounds=self.checks, search=search)

    def _improve(self, start: _Cut, at_levels: exp.Select) -> _Cut:
        """Descend from a generalization, then raise nodes and descend again, until nothing is better."""
        best = start
        with self.task.clock.until_limit():
            self._list_moves()
            best = self._descend(self._make_cut(at_levels))
            while best.price and not self.task.limit_is_reached():
                better = self._raise_best(best)
                if better is None:
                    break
                self._drop(best)
                best = self._descend(better)
        return best

    def _list_moves(self) -> None:
        """Make the tables of the moves down and up."""
        task = self.task
        paths_by_attribute = [
            task.make(f"subtree_paths_{i}", paths(task.combinations, task.trees, i)) for i in self.attributes
        ]
        self.down = [task.make(f"subtree_splits_{i}", splits(paths_by_attribute[i])) for i in self.attributes]
        self.up = [raises(paths_by_attribute[i]) for i in self.attributes]

    def _make_cut(self, query: exp.Select, evaluator: ClassEvaluator | None = None) -> _Cut:
        """Make a cutting, and evaluate its classes."""
        task, evaluator = self.task, evaluator or self.task.evaluator
        self._number += 1
        self._count_check()
        cutting = task.make(f"subtree_cutting_{self._number}", query)
        evaluated = evaluator.evaluate(cutting, [*self._columns, COST])
        classes = task.make(f"subtree_classes_{self._number}", self._price_classes(evaluated))
        query = template("""
            SELECT sum(price), coalesce(sum(suppressed)::BIGINT, 0), count(*) FILTER (WHERE kept)
            FROM :classes
        """)(classes=classes)
        price, suppressed_rows, class_count = task.fetch_row(query)
        losers, loser_count = None, 0
        if self._allowed_persons and task.evaluator.persons is not None:
            kept_combinations = feasible_rows(cutting, classes, self._columns)
            # The members of suppressed combinations, and of none.
            query = template("SELECT m.* FROM :members AS m ANTI JOIN :kept AS k ON m.combination = k.combination")(
                members=task.evaluator.persons, kept=kept_combinations
            )
            losers = task.make(f"subtree_losers_{self._number}", query)
            query = template("SELECT coalesce(:persons, 0) FROM :losers")(
                persons=task.evaluator.person_count, losers=losers
            )
            loser_count = task.fetch_value(query)
        return _Cut(cutting, classes, int(price or 0), suppressed_rows, class_count, losers, loser_count)

    def _is_allowed(self, cut: _Cut) -> bool:
        return cut.suppressed_rows <= self._allowed_rows and cut.loser_count <= (self._allowed_persons or 0)

    def _price_classes(self, evaluated: exp.Query) -> exp.Select:
        # Evaluated classes with the ``price`` of all their rows, and ``suppressed``, their rows if they are infeasible.
        return template("""
            SELECT
                *,
                class_size::HUGEINT * CASE WHEN kept THEN cost ELSE :suppressed_cost END AS price,
                CASE WHEN kept THEN 0 ELSE class_size END AS suppressed
            FROM :evaluated AS j
        """)(suppressed_cost=suppressed_cost(self.task.trees), evaluated=evaluated)

    def _count_check(self) -> None:
        self.checks += 1
        self.task.clock.checks += 1

    def _drop(self, cut: _Cut) -> None:
        self.task.runner.drop(cut.cutting, cut.classes, *([] if cut.losers is None else [cut.losers]))

    def _find_splits(self, cut: _Cut, i: int) -> list[_Split]:
        """The nodes of an attribute whose splits have a gain, the best first."""
        self._count_check()
        task = self.task
        split = split_all(cut.cutting, task.trees, i, self.down[i])
        evaluated = task.evaluate(subquery(split), [*self._columns, SPLIT, COST])
        # The nodes with a gain, with the price that splitting them saves and the additional rows that it suppresses.
        gains = template("""
            WITH
                whole AS (
                    SELECT :node AS node, sum(price) AS price, sum(suppressed)::BIGINT AS suppressed
                    FROM :classes
                    GROUP BY :node
                ),
                split AS (
                    SELECT split AS node, sum(price) AS price, sum(suppressed)::BIGINT AS suppressed
                    FROM :split_classes AS s
                    GROUP BY split
                )
            SELECT whole.node, whole.price - split.price, split.suppressed - whole.suppressed
            FROM whole
            JOIN split ON whole.node = split.node
            WHERE whole.price - split.price > 0
        """)(node=col(node_column(i)), classes=cut.classes, split_classes=self._price_classes(evaluated))
        rows = task.engine.rows(gains)
        new_losers = self._count_new_losers(cut, split, evaluated) if rows else {}
        candidates = [
            _Split(node, int(gain), int(suppressed), new_losers.get(node, 0)) for node, gain, suppressed in rows
        ]
        return sorted(candidates, key=lambda candidate: (-candidate.worth, candidate.node))

    def _count_new_losers(self, cut: _Cut, split: exp.Select, evaluated: exp.Select) -> dict[int, int]:
        """Count by node the persons who lose a row only if it is split."""
        evaluator = self.task.evaluator
        if cut.losers is None or evaluator.persons is None:
            return {}
        is_new = fragment("coalesce(NOT m.mover IN (SELECT mover FROM :losers WHERE mover IS NOT NULL), TRUE)")(
            losers=cut.losers
        )
        # By node, the persons who lose a row only if it is split.
        query = template("""
            SELECT s.split, coalesce(:persons, 0)
            FROM :split AS s
            JOIN :evaluated AS j ON :same_class
            JOIN :members AS m ON s.combination = m.combination
            WHERE NOT j.kept
                AND NOT m.combination IN (SELECT combination FROM :losers WHERE combination IS NOT NULL)
                AND :is_new
            GROUP BY s.split
        """)(
            persons=evaluator.person_count,
            split=split,
            evaluated=evaluated,
            same_class=equal_columns([*self._columns, SPLIT], "s", "j"),
            members=evaluator.persons,
            losers=cut.losers,
            is_new=is_new if evaluator.moving else exp.true(),
        )
        return dict(self.task.engine.rows(query))

    def _descend(self, cut: _Cut, raised: tuple[int, int] | None = None) -> _Cut:
        """Split nodes until no split is left, or a limit is reached. Drops the tables of the former cut."""
        is_trial = raised is not None
        with self.task.clock.until_limit():
            candidates = {i: self._find_splits(cut, i) for i in self.attributes}
            fresh = set(self.attributes)
            while not self.task.limit_is_reached():
                possible = {i: self._possible_splits(cut, candidates[i], i, raised) for i in self.attributes}
                order = sorted((i for i in possible if possible[i]), key=lambda i: (-possible[i][0].worth, i))
                if not order and raised is not None:
                    raised = None
                    continue
                # A split may have gained worth: rows that it suppresses may be suppressed already.
                stale = order[:1] if order else [] if is_trial else list(self.attributes)
                if not fresh.issuperset(stale):
                    candidates |= {i: self._find_splits(cut, i) for i in stale if i not in fresh}
                    fresh.update(stale)
                    continue
                if not order:
                    break
                i, rival = order[0], possible[order[1]][0].worth if len(order) > 1 else 0.0
                nodes = list(self._compatible_splits(cut, possible[i], rival))
                query = make_moves(cut.cutting, self.task.trees, i, self.down[i], NODE, nodes)
                former, cut = cut, self._make_cut(query)
                self._drop(former)
                candidates[i], fresh = self._find_splits(cut, i), {i}
        return cut

    def _possible_splits(
        self, cut: _Cut, candidates: list[_Split], i: int, raised: tuple[int, int] | None
    ) -> list[_Split]:
        """The splits within the limits, without that of the raised node."""
        rows, persons = self._allowed_rows - cut.suppressed_rows, (self._allowed_persons or 0) - cut.loser_count
        return [
            split
            for split in candidates
            if split.suppressed_rows <= rows and split.new_losers <= persons and (i, split.node) != raised
        ]

    def _compatible_splits(self, cut: _Cut, candidates: list[_Split], rival: float) -> Iterator[int]:
        """The nodes of the first splits of an attribute that can be made together.

        They are in different classes, and worth more than any split of another attribute, so that each would be the
        next in any case.
        """
        suppressed_rows, loser_count = cut.suppressed_rows, cut.loser_count
        for place, split in enumerate(candidates):
            suppressed_rows += max(split.suppressed_rows, 0)
            loser_count += split.new_losers
            too_many = suppressed_rows > self._allowed_rows or loser_count > (self._allowed_persons or 0)
            if place and (too_many or split.worth <= rival):
                return
            yield split.node

    def _raise_best(self, cut: _Cut) -> _Cut | None:
        """The best cut after raising a node and splitting all others; None if it does not reduce the price."""
        best: _Cut | None = None
        with self.task.clock.until_limit():
            moves = sorted((cost, i, node) for i in self.attributes for node, cost in self._added_costs(cut, i))
            for place, (_, i, node) in enumerate(moves[:MAX_RAISES]):
                if self.task.limit_is_reached():
                    break
                self.task.progress(len(moves) - place, self.checks, None)
                query = make_moves(cut.cutting, self.task.trees, i, self.up[i], NEW_NODE, [node])
                candidate = self._make_cut(query)
                if self._is_allowed(candidate) and candidate.class_count:
                    candidate = self._descend(candidate, (i, node))
                rejected: _Cut | None = candidate
                is_allowed = self._is_allowed(candidate) and candidate.class_count > 0
                if is_allowed and candidate.price < (best or cut).price:
                    rejected, best = best, candidate
                if rejected is not None:
                    self._drop(rejected)
        return best

    def _added_costs(self, cut: _Cut, i: int) -> list[tuple[int, int]]:
        """The nodes above an attribute's cut, with the added cost of raising it to them."""
        is_move = _is_move(self.task.trees, i)
        query = template("""
            SELECT s.new_node, sum(p.n::HUGEINT * s.added_cost)
            FROM :cutting AS p
            JOIN :moves AS s ON :is_move
            GROUP BY s.new_node
        """)(cutting=cut.cutting, moves=self.up[i], is_move=is_move)
        rows = self.task.engine.rows(query)
        return [(node, int(cost)) for node, cost in rows]


run = on_combinations(subtree)
