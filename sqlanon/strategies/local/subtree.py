"""Strategy ``subtree``: a cut of each attribute's hierarchy, the same for all rows: subtrees are generalized or not.

The search starts at the optimal full-domain generalization and goes

- top-down: a node of a cut is *split* into the nodes below it. One statement computes for all nodes of an attribute the
  gain of splitting them and the rows that it suppresses. The split with the most gain for each suppressed row is next.
  A split of one attribute mostly reduces the gains of other attributes' splits, so that these are computed again only
  when they are next, and at the end;
- bottom-up: without a split left, a node above a cut is *raised* to replace the nodes below it, and all nodes that can
  be split are split again, the raised one last. Of these moves the `MAX_RAISES` cheapest are tried (fewer on many
  combinations) and the best is made, until none reduces the price.

The price is the mean loss with the attributes' weights; a suppressed row costs a little more than one released as the
roots. It never rises, so the result is never worse than the start. docs/reference/strategies.md names the sources.

A *cut* of an attribute is a table with the ``node`` that each ``ground`` node is released as: a move changes this table
only, and the combinations are read through the cuts. A *move* replaces a node by another: ``node``, ``ground``,
``new_node``. Costs are losses of a row, in whole numbers, so that sums do not depend on the order.

The nodes of a class are packed into words (see `sqlanon.frequency.packing`), mostly one: ``word_0``, ``word_1``, ... It
is grouped several times as fast as a column for each attribute.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from sqlanon.frequency.packing import Packing, assign_words
from sqlanon.strategies.lattice.limits import FIRST_GRACE
from sqlanon.strategies.local.core.evaluation import feasible_rows
from sqlanon.strategies.local.core.finish import on_combinations
from sqlanon.strategies.local.core.nodes import (
    NODE,
    Tree,
    ancestors_of_lowest,
    equal_columns,
    level_column,
    node_column,
)
from sqlanon.strategies.local.core.task import LocalOutcome, LocalTask
from sqlanon.support.expressions import aliased, all_of, as_column, cast, col, fragment, number, subquery, template

SCALE = 10**12
"""The cost of a row released as the roots. A value costs 1 for each level in addition to its loss, so that of two nodes
with the same ground values the lower one is released."""

MAX_RAISES, MIN_RAISES, MAX_RAISE_READS = 32, 4, 20_000_000
"""At most `MAX_RAISES` moves up are tried before the best is made: as many as read `MAX_RAISE_READS` combinations, but
at least `MIN_RAISES`. Each move reads them about once for each attribute and check."""

NEW_NODE = "new_node"


def suppressed_cost(trees: Sequence[Tree]) -> int:
    """The cost of a suppressed row: more than that of a row released as the roots."""
    return SCALE + sum(tree.height for tree in trees) + 1


def node_costs(trees: Sequence[Tree], attribute: int) -> exp.Select:
    """The nodes of an attribute: ``node``, ``level``, ``cost``, ``released``."""
    tree = trees[attribute]
    share = tree.weight / sum(other_tree.weight for other_tree in trees)
    cost_of_leaf = SCALE * share / (tree.leaves - 1) if tree.leaves > 1 else 0.0
    return template("""
        SELECT node, level, round(leaves * :cost_of_leaf)::BIGINT + level AS cost, released
        FROM :nodes
    """)(cost_of_leaf=cost_of_leaf, nodes=tree.nodes)


def cut_at(tree: Tree, level: int) -> exp.Select:
    """The cut of an attribute at a level."""
    return template("SELECT ground, :node AS node FROM :ancestors")(
        node=col(f"node_{level}"), ancestors=subquery(ancestors_of_lowest(tree, [level]), "a")
    )


def _word_columns(packing: Packing, nodes: Sequence[exp.Expr]) -> list[exp.Expr]:
    """The words of a class, from its node of each attribute."""
    words = packing.pack([cast(node, "BIGINT") for node in nodes])
    return [as_column(word, name) for word, name in zip(words, _word_names(packing), strict=True)]


def _word_names(packing: Packing) -> list[str]:
    return [f"word_{word}" for word in range(packing.words)]


def cut_combinations(
    combinations: exp.Table, trees: Sequence[Tree], packing: Packing, cuts: Sequence[exp.Expr]
) -> exp.Select:
    """The combinations as a cut of each attribute releases them: ``combination``, ``row_count``, ``node_i``, and the
    words of their classes."""
    query = template("SELECT c.combination, c.row_count FROM :combinations AS c")(combinations=combinations)
    for i, (tree, cut) in enumerate(zip(trees, cuts, strict=True)):
        alias = f"cut_{i}"
        on = col(level_column(i, tree.floor), "c").eq(col("ground", alias))
        query = query.join(aliased(cut, alias), on=on, copy=False)
        query = query.select(as_column(col(NODE, alias), node_column(i)), copy=False)
    return query.select(*_word_columns(packing, [col(NODE, f"cut_{i}") for i in range(len(cuts))]), copy=False)


def paths(combinations: exp.Table, tree: Tree, attribute: int, costs: exp.Table) -> exp.Select:
    """The nodes above each ground node of an attribute that may be released: ``ground``, its ``row_count``, ``node``,
    ``level`` and ``cost``, which rises with the level."""
    return template("""
        WITH
            ground_nodes AS (
                SELECT :ground AS ground, sum(row_count)::BIGINT AS row_count FROM :combinations GROUP BY :ground
            ),
            ancestors AS (
                SELECT ground, row_count, unnest(:nodes) AS node
                FROM :ancestors
                JOIN ground_nodes USING (ground)
            )
        SELECT ancestors.ground, ancestors.row_count, costs.node, costs.level, costs.cost
        FROM ancestors
        JOIN :costs AS costs ON ancestors.node = costs.node
        WHERE costs.released
    """)(
        nodes=exp.Array(expressions=[col(f"node_{level}") for level in tree.levels]),
        ground=col(level_column(attribute, tree.floor)),
        combinations=combinations,
        ancestors=subquery(ancestors_of_lowest(tree, tree.levels), "a"),
        costs=costs,
    )


def splits(node_paths: exp.Table) -> exp.Select:
    """The moves down: each node is replaced by the highest releasable nodes below it.

    Only nodes all of whose ground nodes have such a node can be split.
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
    """The moves up: each node is replaced by a releasable node above it, at the ``added_cost`` of all its rows.

    They are a subquery, not a table: a tall hierarchy has a row for each pair of levels.
    """
    query = template("""
        SELECT
            low.node, low.ground, high.node AS new_node,
            low.row_count::HUGEINT * (high.cost - low.cost) AS added_cost
        FROM :paths AS low
        JOIN :paths AS high ON low.ground = high.ground AND low.level < high.level
    """)(paths=node_paths)
    return subquery(query)


def split_cut(cut: exp.Table, moves: exp.Table) -> exp.Subquery:
    """The nodes of a cut that can be split, with all of them split: ``ground``, ``node``, ``former_node``, and
    ``added_cost``."""
    query = template("""
        SELECT c.ground, m.new_node AS node, c.node AS former_node, m.added_cost
        FROM :cut AS c
        JOIN :moves AS m ON c.node = m.node AND c.ground = m.ground
    """)(cut=cut, moves=moves)
    return subquery(query)


def make_moves(cut: exp.Table, moves: exp.Expr, column: str, nodes: Sequence[int]) -> exp.Select:
    """A cut after the moves that have one of some nodes in a column."""
    return template("""
        SELECT c.ground, coalesce(m.new_node, c.node) AS node
        FROM :cut AS c
        LEFT JOIN :moves AS m ON c.node = m.node AND c.ground = m.ground AND :column IN (:chosen)
    """)(cut=cut, moves=moves, column=col(column, "m"), chosen=[number(node) for node in nodes])


def subtree(task: LocalTask) -> LocalOutcome:
    """Find a cut of each attribute's hierarchy."""
    return _CutSearch(task).run()


@dataclass(frozen=True)
class _Solution:
    """A cut of each hierarchy, and the classes that they make."""

    cuts: tuple[exp.Table, ...]  # by attribute
    classes: exp.Table  # evaluated, with prices
    price: int  # the price of all rows
    suppressed_rows: int
    class_count: int  # kept classes
    losers: exp.Table | None = None  # the members of suppressed combinations, if persons are counted
    loser_count: int = 0  # persons who lose a row, if persons are counted

    @property
    def tables(self) -> list[exp.Table]:
        return [*self.cuts, self.classes, *([] if self.losers is None else [self.losers])]


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
        self._costs: list[exp.Table] = []  # by attribute, made by `node_costs`
        self._down: list[exp.Table] = []
        self._up: list[exp.Subquery] = []
        self._raise_limit = MAX_RAISES
        self._number = 0
        self._packing = assign_words([tree.root for tree in task.trees])
        self._words = _word_names(self._packing)
        self._tables = dict[str, exp.Table]()  # by name, the tables of solutions that exist
        self._allowed_persons = task.search_input.limit.persons  # with a limit of 0, no row may be suppressed either

    def run(self) -> LocalOutcome:
        task, trees = self.task, self.task.trees
        with task.clock.in_time(FIRST_GRACE):
            search, levels = task.search_full_domain()
            # Rows of unknown values are in no combination, and are suppressed in any case.
            self._allowed_rows = task.allowed_rows - (task.row_count - task.count_rows(task.combinations))
            self._costs = [task.make(f"subtree_costs_{i}", node_costs(trees, i)) for i in self.attributes]
            cuts = [self._make(f"cut_{i}", cut_at(trees[i], level)) for i, level in enumerate(levels)]
            shields = task.search_input.requirements.shields
            start = self._make_solution(cuts, self._classes_of_generalization(cuts) if shields else None)
        best = start if self.task.limit_is_reached() or not start.price else self._improve(start)
        # The search evaluates shields over all attributes, which may be too strict.
        best = best if self._is_allowed(best) and best.price <= start.price else start
        assignment = task.make("subtree_assignment", self._kept_combinations(best.cuts, best.classes))
        return LocalOutcome(task, assignment, rounds=self.checks, search=search)

    def _improve(self, start: _Solution) -> _Solution:
        """Descend from a generalization, then raise nodes and descend again, until nothing is better."""
        best = start
        with self.task.clock.until_limit():
            self._list_moves()
            reads = self.task.runner.count(self.task.combinations)  # of a move
            self._raise_limit = min(MAX_RAISES, max(MIN_RAISES, MAX_RAISE_READS // reads))
            best = self._descend(self._make_solution(start.cuts), [start])
            while best.price and not self.task.limit_is_reached():
                better = self._raise_best(best, start)
                if better is None:
                    break
                best = self._descend(better, [start])
        return best

    def _list_moves(self) -> None:
        """Make the tables of the moves down and up."""
        task = self.task
        paths_by_attribute = [
            task.make(f"subtree_paths_{i}", paths(task.combinations, task.trees[i], i, self._costs[i]))
            for i in self.attributes
        ]
        self._down = [task.make(f"subtree_splits_{i}", splits(paths_by_attribute[i])) for i in self.attributes]
        self._up = [raises(paths_by_attribute[i]) for i in self.attributes]

    def _make(self, name: str, query: exp.Query) -> exp.Table:
        self._number += 1
        table = self.task.make(f"subtree_{name}_{self._number}", query)
        self._tables[table.name] = table
        return table

    def _keep_only(self, *solutions: _Solution) -> None:
        """Drop the tables of all other solutions."""
        kept = {table.name for solution in solutions for table in solution.tables}
        dropped = [name for name in self._tables if name not in kept]
        self.task.runner.drop(*map(self._tables.pop, dropped))

    def _move(self, solution: _Solution, i: int, moves: exp.Expr, column: str, nodes: Sequence[int]) -> _Solution:
        """A solution after the moves of an attribute that have one of some nodes in a column."""
        cuts = [*solution.cuts]
        cuts[i] = self._make(f"cut_{i}", make_moves(cuts[i], moves, column, nodes))
        return self._make_solution(cuts)

    def _cut_combinations(self, cuts: Sequence[exp.Expr]) -> exp.Subquery:
        return subquery(cut_combinations(self.task.combinations, self.task.trees, self._packing, cuts))

    def _kept_combinations(self, cuts: Sequence[exp.Expr], classes: exp.Table) -> exp.Select:
        return feasible_rows(self._cut_combinations(cuts), classes, self._words)

    def _releases_rows(self, solution: _Solution) -> bool:
        """Whether a solution within the limits has a class."""
        return self._is_allowed(solution) and solution.class_count > 0

    def _classes_of_generalization(self, cuts: Sequence[exp.Table]) -> exp.Select:
        """Evaluate the classes of cuts as the search of the lattice does, with shields over some attributes."""
        evaluator = replace(self.task.evaluator, requirements=self.task.search_input.requirements)
        evaluated = evaluator.evaluate(self._cut_combinations(cuts), [node_column(i) for i in self.attributes])
        return template("SELECT :words, class_size, class_count, kept FROM :evaluated AS j")(
            words=_word_columns(self._packing, [col(node_column(i), "j") for i in self.attributes]), evaluated=evaluated
        )

    def _make_solution(self, cuts: Sequence[exp.Table], evaluated: exp.Select | None = None) -> _Solution:
        """Make the priced classes of cuts; ``evaluated`` if they are evaluated already."""
        task = self.task
        self._count_check()
        if evaluated is None:
            evaluated = task.evaluate(self._cut_combinations(cuts), self._words)
        classes = self._make("classes", self._priced_classes(evaluated))
        query = template("""
            SELECT sum(price), coalesce(sum(suppressed)::BIGINT, 0), count(*) FILTER (WHERE kept)
            FROM :classes
        """)(classes=classes)
        price, suppressed_rows, class_count = task.fetch_row(query)
        losers, loser_count = None, 0
        if self._allowed_persons and task.evaluator.persons is not None:
            # The members of suppressed combinations, and of none.
            query = template("SELECT m.* FROM :members AS m ANTI JOIN :kept AS k ON m.combination = k.combination")(
                members=task.evaluator.persons, kept=subquery(self._kept_combinations(cuts, classes))
            )
            losers = self._make("losers", query)
            query = template("SELECT coalesce(:persons, 0) FROM :losers")(
                persons=task.evaluator.person_count, losers=losers
            )
            loser_count = task.fetch_value(query)
        return _Solution(tuple(cuts), classes, int(price or 0), suppressed_rows, class_count, losers, loser_count)

    def _is_allowed(self, solution: _Solution) -> bool:
        return solution.suppressed_rows <= self._allowed_rows and solution.loser_count <= (self._allowed_persons or 0)

    def _priced_classes(self, evaluated: exp.Query) -> exp.Select:
        """Evaluated classes with their nodes, their ``cost``, the ``price`` of all their rows, and ``suppressed``,
        their rows if they are infeasible."""
        cost: exp.Expr = number(0)
        for i in self.attributes:
            cost = cost + col("cost", f"costs_{i}")
        query = template("""
            SELECT
                j.*,
                :nodes,
                :cost AS cost,
                j.class_size::HUGEINT * CASE WHEN j.kept THEN :cost ELSE :suppressed_cost END AS price,
                CASE WHEN j.kept THEN 0 ELSE j.class_size END AS suppressed
            FROM :evaluated AS j
        """)(
            nodes=[as_column(col(NODE, f"costs_{i}"), node_column(i)) for i in self.attributes],
            cost=cost,
            suppressed_cost=suppressed_cost(self.task.trees),
            evaluated=evaluated,
        )
        for i in self.attributes:
            on = self._read_node(i, "j").eq(col(NODE, f"costs_{i}"))
            query = query.join(aliased(self._costs[i], f"costs_{i}"), on=on, copy=False)
        return query

    def _count_check(self) -> None:
        self.checks += 1
        self.task.clock.checks += 1

    def _find_splits(self, solution: _Solution, i: int) -> list[_Split]:
        """The nodes of an attribute whose splits have a gain, the best first."""
        self._count_check()
        task = self.task
        cut_after = split_cut(solution.cuts[i], self._down[i])
        combinations = self._cut_combinations([*solution.cuts[:i], cut_after, *solution.cuts[i + 1 :]])
        evaluated = task.evaluate(combinations, self._words)
        # The nodes with a gain, with the price that splitting them saves and the additional rows that it suppresses.
        gains = template("""
            WITH
                before AS (
                    SELECT :node AS node, sum(price) AS price, sum(suppressed)::BIGINT AS suppressed
                    FROM :classes
                    GROUP BY :node
                ),
                after AS (
                    SELECT
                        s.former_node AS node,
                        sum(
                            j.class_size::HUGEINT
                            * CASE WHEN j.kept THEN c.cost + s.added_cost ELSE :suppressed_cost END
                        ) AS price,
                        sum(CASE WHEN j.kept THEN 0 ELSE j.class_size END)::BIGINT AS suppressed
                    FROM :evaluated AS j
                    JOIN (SELECT DISTINCT node, former_node, added_cost FROM :cut_after AS s) AS s
                        ON :new_node = s.node
                    JOIN :classes AS c ON :is_former_class
                    GROUP BY s.former_node
                )
            SELECT before.node, before.price - after.price, after.suppressed - before.suppressed
            FROM before
            JOIN after ON before.node = after.node
            WHERE before.price - after.price > 0
        """)(
            node=col(node_column(i)),
            classes=solution.classes,
            suppressed_cost=suppressed_cost(task.trees),
            evaluated=evaluated,
            cut_after=cut_after,
            new_node=self._read_node(i, "j"),
            is_former_class=self._is_former_class(i),
        )
        rows = task.engine.rows(gains)
        new_losers = self._count_new_losers(solution, i, cut_after, combinations, evaluated) if rows else {}
        candidates = [
            _Split(node, int(gain), int(suppressed), new_losers.get(node, 0)) for node, gain, suppressed in rows
        ]
        return sorted(candidates, key=lambda candidate: (-candidate.worth, candidate.node))

    def _is_former_class(self, i: int) -> exp.Expr:
        """Whether ``c`` is the class of ``j`` with ``s.former_node`` in place of ``s.node``: one word
        differs, by the difference of the nodes."""
        place, first, _ = self._packing.places[i]
        is_shifted = fragment(":former_word = :word + (s.former_node - s.node)::BIGINT * :stride")(
            former_word=col(self._words[place], "c"), word=col(self._words[place], "j"), stride=1 << first
        )
        return all_of(
            [is_shifted, equal_columns([name for name in self._words if name != self._words[place]], "j", "c")]
        )

    def _read_node(self, i: int, alias: str) -> exp.Expr:
        """The node of an attribute, read from the words of a relation."""
        word, first, bits = self._packing.places[i]
        return fragment("((:word >> :first) & :mask)::INTEGER")(
            word=col(self._words[word], alias), first=first, mask=(1 << bits) - 1
        )

    def _count_new_losers(
        self, solution: _Solution, i: int, cut_after: exp.Subquery, combinations: exp.Subquery, evaluated: exp.Select
    ) -> dict[int, int]:
        """Count by node the persons who lose a row only if it is split."""
        evaluator = self.task.evaluator
        if solution.losers is None or evaluator.persons is None:
            return {}
        is_new = fragment("coalesce(NOT m.mover IN (SELECT mover FROM :losers WHERE mover IS NOT NULL), TRUE)")(
            losers=solution.losers
        )
        query = template("""
            SELECT s.former_node, coalesce(:persons, 0)
            FROM :combinations AS p
            JOIN :evaluated AS j ON :same_class
            JOIN (SELECT DISTINCT node, former_node FROM :cut_after AS s) AS s ON :new_node = s.node
            JOIN :members AS m ON p.combination = m.combination
            WHERE NOT j.kept
                AND NOT m.combination IN (SELECT combination FROM :losers WHERE combination IS NOT NULL)
                AND :is_new
            GROUP BY s.former_node
        """)(
            persons=evaluator.person_count,
            combinations=combinations,
            evaluated=evaluated,
            same_class=equal_columns(self._words, "p", "j"),
            cut_after=cut_after,
            new_node=col(node_column(i), "p"),
            members=evaluator.persons,
            losers=solution.losers,
            is_new=is_new if evaluator.moving else exp.true(),
        )
        return dict(self.task.engine.rows(query))

    def _descend(
        self, solution: _Solution, others: Sequence[_Solution], raised: tuple[int, int] | None = None
    ) -> _Solution:
        """Split nodes until no split is left, or a limit is reached. Drops the tables of all but the result and some
        ``others``."""
        is_trial = raised is not None
        with self.task.clock.until_limit():
            candidates = {i: self._find_splits(solution, i) for i in self.attributes}
            fresh = set(self.attributes)
            while not self.task.limit_is_reached():
                possible = {i: self._possible_splits(solution, candidates[i], i, raised) for i in self.attributes}
                order = sorted((i for i in possible if possible[i]), key=lambda i: (-possible[i][0].worth, i))
                if not order and raised is not None:
                    raised = None
                    continue
                # A split may have gained worth: rows that it suppresses may be suppressed already.
                stale = order[:1] or ([] if is_trial else list(self.attributes))
                if not fresh.issuperset(stale):
                    candidates |= {i: self._find_splits(solution, i) for i in stale if i not in fresh}
                    fresh.update(stale)
                    continue
                if not order:
                    break
                i, rival = order[0], possible[order[1]][0].worth if len(order) > 1 else 0.0
                nodes = list(self._compatible_splits(solution, possible[i], rival))
                solution = self._move(solution, i, self._down[i], NODE, nodes)
                self._keep_only(solution, *others)
                candidates[i], fresh = self._find_splits(solution, i), {i}
        return solution

    def _possible_splits(
        self, solution: _Solution, candidates: list[_Split], i: int, raised: tuple[int, int] | None
    ) -> list[_Split]:
        """The splits within the limits, without that of the raised node."""
        rows, persons = (
            self._allowed_rows - solution.suppressed_rows,
            (self._allowed_persons or 0) - solution.loser_count,
        )
        return [
            split
            for split in candidates
            if split.suppressed_rows <= rows and split.new_losers <= persons and (i, split.node) != raised
        ]

    def _compatible_splits(self, solution: _Solution, candidates: list[_Split], rival: float) -> Iterator[int]:
        """The nodes of the first splits of an attribute that can be made together.

        They are in different classes, and worth more than any split of another attribute, so that each would be the
        next in any case.
        """
        suppressed_rows, loser_count = solution.suppressed_rows, solution.loser_count
        for place, split in enumerate(candidates):
            suppressed_rows += max(split.suppressed_rows, 0)
            loser_count += split.new_losers
            too_many = suppressed_rows > self._allowed_rows or loser_count > (self._allowed_persons or 0)
            if place and (too_many or split.worth <= rival):
                return
            yield split.node

    def _raise_best(self, solution: _Solution, start: _Solution) -> _Solution | None:
        """The best solution after raising a node and splitting all others; None if it does not reduce the price."""
        best = solution
        with self.task.clock.until_limit():
            moves = sorted((cost, i, node) for i in self.attributes for node, cost in self._added_costs(solution, i))
            moves = moves[: self._raise_limit]
            for place, (_, i, node) in enumerate(moves):
                if self.task.limit_is_reached():
                    break
                self.task.progress(len(moves) - place, self.checks, None)
                candidate = self._move(solution, i, self._up[i], NEW_NODE, [node])
                if self._releases_rows(candidate):
                    candidate = self._descend(candidate, [start, solution, best], (i, node))
                if self._releases_rows(candidate) and candidate.price < best.price:
                    best = candidate
                self._keep_only(start, solution, best)
        return None if best is solution else best

    def _added_costs(self, solution: _Solution, i: int) -> list[tuple[int, int]]:
        """The nodes above an attribute's cut, with the added cost of raising it to them."""
        query = template("""
            SELECT m.new_node, sum(m.added_cost)
            FROM :cut AS c
            JOIN :moves AS m ON c.node = m.node AND c.ground = m.ground
            GROUP BY m.new_node
        """)(cut=solution.cuts[i], moves=self._up[i])
        return [(node, int(cost)) for node, cost in self.task.engine.rows(query)]


run = on_combinations(subtree)
