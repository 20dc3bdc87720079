"""Classes of combinations, formed on a path through the lattice; shared by strategies ``local``, ``k-similar`` and
``forest``.

A class is numbered by ``class_id``: the least combination in it when it was formed. It is released as the lowest nodes
that its members have in common and that may be released. Combinations may move to another class where that costs less.
Prices are whole numbers, so that their sums do not depend on the order: the loss of a row, in units of 10⁻⁹.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from sqlanon.measures import Loss
from sqlanon.strategies.lattice.lattice import Lattice
from sqlanon.strategies.local.core.evaluation import feasible_rows
from sqlanon.strategies.local.core.nodes import (
    NODE,
    Tree,
    ancestors_of_lowest,
    equal_columns,
    level_column,
    node_column,
    node_columns,
)
from sqlanon.strategies.local.core.summaries import make_allowed_nodes
from sqlanon.strategies.local.core.task import LocalTask
from sqlanon.strategies.local.mondrian import Cutting
from sqlanon.support.coding import Levels
from sqlanon.support.expressions import (
    aliased,
    all_of,
    as_column,
    cast,
    col,
    fragment,
    subquery,
    template,
    union_all,
)

CLASS_ID = "class_id"
UNIT = 1_000_000_000
"""The price of a suppressed row, or of one that is released as the roots."""

SAMPLE_COMBINATIONS = 100_000
"""Number of combinations in the sample of classes that chooses the path through the lattice, if there are more."""

SAMPLED_ATTRIBUTES = 3
"""Number of attributes that decide which classes are in the sample: those with the most nodes."""


def price_column(attribute: int, level: int) -> str:
    """The column with the price of a row whose attribute is released at a level."""
    return f"price_{attribute}_level_{level}"


_SIGNED_NODE = fragment("CASE WHEN :released THEN :node ELSE -:node - 1 END")


def combinations_at_all_levels(combinations: exp.Table, trees: Sequence[Tree]) -> exp.Select:
    """The combinations with their nodes of all levels. Nodes that must not be released have negative numbers."""
    query = template("SELECT c.combination, c.row_count FROM :combinations AS c")(combinations=combinations)
    for i, tree in enumerate(trees):
        alias = f"a{i}"
        on = col(level_column(i, tree.floor), "c").eq(col("ground", alias))
        query = query.join(subquery(_priced_nodes(tree, i, trees), alias), on=on, copy=False)
        query = query.select(*(col(level_column(i, level), alias) for level in tree.levels), copy=False)
    return query


def _priced_nodes(tree: Tree, attribute: int, trees: Sequence[Tree]) -> exp.Select:
    """The nodes above the lowest nodes of an attribute, ``ground``, at all levels, and the price of each."""
    query = ancestors_of_lowest(tree, tree.levels)
    node_type = "SMALLINT" if tree.root < 2**15 else "INTEGER"  # each step of a climb reads all levels
    for level in tree.levels:
        alias = f"n{level}"
        node = _SIGNED_NODE(released=col("released", alias), node=col(NODE, alias))
        query = query.select(
            as_column(cast(node, node_type), level_column(attribute, level)),
            as_column(_node_price(tree, trees, alias), price_column(attribute, level)),
            copy=False,
        )
    return query


def _node_price(tree: Tree, trees: Sequence[Tree], nodes: str) -> exp.Expr:
    """The price of a row whose attribute is released as a node of ``nodes``."""
    share = tree.weight / (sum(other.weight for other in trees) or 1.0) * UNIT / max(tree.leaves - 1, 1)
    return fragment("round(:leaves * :share)::BIGINT")(leaves=col("leaves", nodes), share=share)


def priced_combinations(combinations: exp.Expr, trees: Sequence[Tree]) -> exp.Select:
    """Combinations at all levels, with the price of each node."""
    query = template("SELECT c.* FROM :combinations AS c")(combinations=combinations)
    for i, tree in enumerate(trees):
        alias, lowest = f"a{i}", level_column(i, tree.floor)
        query = query.join(
            subquery(_priced_nodes(tree, i, trees), alias), on=col(lowest, "c").eq(col(lowest, alias)), copy=False
        ).select(*(col(price_column(i, level), alias) for level in tree.levels), copy=False)
    return query


def priced_representatives(classes: exp.Expr, combinations: exp.Table, trees: Sequence[Tree]) -> exp.Select:
    """Classes, each with the nodes and prices of the combination that numbers it."""
    nodes = [col(level_column(i, level), "r") for i, tree in enumerate(trees) for level in tree.levels]
    relation = template("SELECT g.*, :nodes FROM :classes AS g JOIN :combinations AS r ON g.class_id = r.combination")(
        nodes=nodes, classes=classes, combinations=combinations
    )
    return priced_combinations(subquery(relation, "c"), trees)


def priced_classes(members: exp.Table, combinations: exp.Table, trees: Sequence[Tree], lowest: Levels) -> exp.Select:
    """Classes by their members: ``class_id``, ``row_count``, the lowest common node from some levels up ``node_i``, and
    the ``price`` of a row."""
    nodes: list[exp.Expr] = []
    for i, (low, tree) in enumerate(zip(lowest, trees, strict=True)):
        common_nodes = [
            fragment("CASE WHEN min(:node) = max(:node) AND min(:node) >= 0 THEN min(:node) END")(
                node=col(level_column(i, level), "p")
            )
            for level in range(low, tree.height + 1)
        ]
        common = fragment("coalesce(:nodes)")(nodes=common_nodes) if common_nodes[1:] else common_nodes[0]
        nodes.append(as_column(common, node_column(i)))
    query = template("""
        SELECT g.class_id, g.row_count, :released, :price AS price
        FROM (
            SELECT m.class_id, sum(p.row_count)::BIGINT AS row_count, :nodes
            FROM :members AS m
            JOIN :combinations AS p ON m.combination = p.combination
            GROUP BY m.class_id
        ) AS g
    """)(
        released=node_columns(len(trees), "g"),
        price=sum_of([_node_price(tree, trees, f"a{i}") for i, tree in enumerate(trees)]),
        nodes=nodes,
        members=members,
        combinations=combinations,
    )
    for i, tree in enumerate(trees):
        on = col(node_column(i), "g").eq(col(NODE, f"a{i}"))
        query = query.join(aliased(tree.nodes, f"a{i}"), on=on, join_type="left", copy=False)
    return query


def sum_of(terms: Sequence[exp.Expr]) -> exp.Expr:
    """The sum of at least one term."""
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return exp.Paren(this=total)


unassigned_combinations = template(
    "SELECT * FROM :combinations AS p ANTI JOIN :members AS m ON p.combination = m.combination"
)
"""The combinations that are in no class."""


def common_price(attribute: int, tree: Tree, other: str, classes: Sequence[str]) -> exp.Case:
    """The price of the lowest node above the representatives ``g`` and the combinations ``other`` that is at or above
    the released nodes of some classes.

    Ancestors have higher numbers; each class must contain one of the two combinations.
    """
    price = exp.Case()
    for level in tree.levels:
        name = level_column(attribute, level)
        is_common: list[exp.Expr] = [col(name, other).eq(col(name, "g"))]
        is_common += [(col(name, "g") >= col(node_column(attribute), class_)) for class_ in classes]
        price = price.when(all_of(is_common), col(price_column(attribute, level), "g"), copy=False)
    return price


def cheapest_classes(
    unassigned: exp.Table, classes: exp.Table, combinations: exp.Table, trees: Sequence[Tree]
) -> exp.Select:
    """The class whose price rises least if an unassigned combination alone is added, for each of these:
    ``combination``, ``class_id``, ``added_price``."""
    # ``best`` is one number for each pair, the added price times 2^31 plus the class, and the least is chosen: arg_min
    # by several values keeps all minima on its way, which takes gigabytes.
    return template("""
        WITH
            representatives AS MATERIALIZED (:representatives),
            pairs AS (
                SELECT
                    x.combination, g.class_id, x.row_count AS added_rows, g.row_count AS class_rows,
                    g.price AS price_before, :price AS price_after
                FROM :unassigned AS x
                CROSS JOIN representatives AS g
            ),
            cheapest AS (
                SELECT
                    combination,
                    min(
                        ((class_rows + added_rows) * price_after - class_rows * price_before)::HUGEINT * 2147483648
                        + class_id
                    ) AS best
                FROM pairs
                WHERE price_after IS NOT NULL
                GROUP BY combination
            )
        SELECT combination, (best % 2147483648)::INTEGER AS class_id, (best // 2147483648)::BIGINT AS added_price
        FROM cheapest
    """)(
        representatives=priced_representatives(classes, combinations, trees),
        price=sum_of([common_price(i, tree, "x", ["g"]) for i, tree in enumerate(trees)]),
        unassigned=unassigned,
    )


MAX_PAIRS = 20_000_000
"""Maximum number of pairs of a combination and a class that one statement compares, in about two seconds."""

MIN_SHARE = 0.02
"""A generalization next to the path must make more than this share of the unassigned rows feasible, to be worth its
time."""


@dataclass(frozen=True)
class Grouping:
    """Feasible classes, with their members and their total price."""

    members: exp.Table  # ``combination``, ``class_id``
    classes: exp.Table  # made by `priced_classes`
    price: int  # the price of all rows; a row in no class has the price of a suppressed one
    rows: int  # the rows in classes

    def assignment(self, attribute_count: int) -> exp.Select:
        """The combinations with the nodes that their class is released as."""
        return template(
            "SELECT m.combination, :nodes FROM :members AS m JOIN :classes AS g ON m.class_id = g.class_id"
        )(nodes=node_columns(attribute_count, "g"), members=self.members, classes=self.classes)


def _in_first_part(nodes: Sequence[exp.Expr], parts: int) -> exp.Expr:
    """Whether a class is in the first of some parts of about equal size, drawn by some of its nodes."""
    terms = [cast(node, "BIGINT") * (7919 ** (i + 1) % 1_000_003) for i, node in enumerate(nodes)]
    return fragment("(:sum * 48271 % 2147483647) % :parts = 0")(sum=sum_of(terms), parts=parts)


class Groups:
    """Forms classes, and counts its rounds: the statements that evaluated all combinations."""

    def __init__(self, task: LocalTask, prefix: str) -> None:
        self.task = task
        self.rounds = 0
        self.best: Grouping | None = None  # the last one that `keep_cheaper` returned
        self._prefix = prefix
        self._number = 0
        self._tables: list[exp.Table] = []
        weights = [tree.weight for tree in task.trees]
        self._cost = Loss(task.search_input.marginals, weights).bound
        self.combinations = self.make(combinations_at_all_levels(task.combinations, task.trees))
        self._tables.clear()

    def make(self, query: exp.Query) -> exp.Table:
        """Make a table with the next number."""
        self._number += 1
        table = self.task.make(f"{self._prefix}_{self._number}", query)
        self._tables.append(table)
        return table

    def keep_cheaper(self, best: Grouping, candidate: Grouping) -> Grouping:
        """The candidate if it costs less and stays within the suppression limit, or else the best so far.

        All other tables are dropped.
        """
        suppressed = self.task.row_count - candidate.rows
        if candidate.price < best.price and self.task.can_suppress(suppressed, candidate.members):
            best = candidate
        self.best = best
        retained = (best.members, best.classes)
        self.task.runner.drop(*(table for table in self._tables if table not in retained))
        self._tables = list(retained)
        self.task.progress(0, self.rounds, best.price / (self.task.row_count * UNIT))
        return best

    def start_round(self) -> None:
        self.task.clock.spend()
        self.rounds += 1

    def climb_or_cut(self, as_ancestors: bool) -> Grouping:
        """Classes on a path through the lattice; on a large lattice, the parts of `mondrian`."""
        return self.cut(as_ancestors) if self.task.is_large else self.complete(self.climb(self.combinations))

    def classes_at(self, levels: Levels) -> Grouping:
        """The feasible classes of a generalization."""
        search_input, evaluator = self.task.search_input, self.task.evaluator
        # With shields, classes at lower levels than those of the generalization may be too small.
        lowest = levels if search_input.requirements.shields else self.task.floor
        task = replace(self.task, evaluator=replace(evaluator, requirements=search_input.requirements))
        return self.price_members(self._members([self._assign_at_levels(task, self.combinations, levels)]), lowest)

    def cut(self, as_ancestors: bool) -> Grouping:
        """The parts that `mondrian` cuts the table into, for the policy's summary or for ancestors alone."""
        allowed = make_allowed_nodes(self.task, f"{self._prefix}_cut")
        cutting = Cutting(self.task, allowed, as_ancestors)
        parts = cutting.run()
        self.rounds += cutting.rounds
        return self.price_members(
            self.make(
                template("SELECT combination, min(combination) OVER (PARTITION BY part) AS class_id FROM :parts")(
                    parts=parts
                )
            )
        )

    def climb(self, combinations: exp.Table) -> list[exp.Table]:
        """Assign combinations to classes on a path from the lowest levels to the highest: the members of feasible
        classes stay, other combinations go on.

        The path goes to the generalization one level above with the most feasible rows for its added cost. Those that
        were passed by are evaluated once they cost no more than the path, the cheapest first.
        """
        # Levels with forbidden labels are in this lattice: nodes are excluded one by one.
        floor, ceiling = self.task.floor, tuple(tree.ceiling for tree in self.task.trees)
        lattice = Lattice(self.task.search_input.lattice.attributes, floor, ceiling)
        levels, unassigned = lattice.bottom, combinations
        steps: list[exp.Table] = []

        def take_step(levels: Levels) -> None:
            nonlocal unassigned
            self.start_round()
            members = self._assign_at_levels(self.task, unassigned, levels)
            if not self.task.runner.count(members):
                return
            steps.append(members)
            remaining = self.make(unassigned_combinations(combinations=unassigned, members=members))
            if unassigned is not combinations:
                self._drop(unassigned)
            unassigned = remaining

        take_step(levels)
        passed: set[Levels] = set()
        while levels != lattice.top:
            candidates = lattice.successors(levels)
            feasible, _ = self.count_feasible_rows(unassigned, candidates)
            cost = self._cost(levels)
            levels = max(
                candidates,
                key=lambda candidate: ((feasible[candidate] + 0.5) / (self._cost(candidate) - cost + 1e-6), candidate),
            )
            passed = (passed | {candidate for candidate in candidates if feasible[candidate]}) - {levels}
            due = {candidate for candidate in passed if self._cost(candidate) <= self._cost(levels)}
            passed -= due
            may_be_feasible = feasible[levels] or self._count_parts(unassigned) > 1  # a part may lack the feasible ones
            for candidate in [*self._worthwhile(unassigned, due), *([levels] if may_be_feasible else [])]:
                take_step(candidate)
        return steps

    def _worthwhile(self, unassigned: exp.Table, passed: Collection[Levels]) -> list[Levels]:
        """The generalizations next to the path that make many unassigned rows feasible, the cheapest first."""
        if not passed:
            return []
        feasible, unassigned_rows = self.count_feasible_rows(unassigned, sorted(passed))
        worthwhile = [levels for levels in passed if feasible[levels] > MIN_SHARE * unassigned_rows]
        return sorted(worthwhile, key=lambda levels: (self._cost(levels), levels))

    def _assign_at_levels(self, task: LocalTask, unassigned: exp.Table, levels: Levels) -> exp.Table:
        """Make a table of the unassigned combinations in the feasible classes of a generalization."""
        keys = [level_column(i, level) for i, level in enumerate(levels)]
        query = template("""
            SELECT r.combination, min(r.combination) OVER (PARTITION BY :keys) AS class_id
            FROM :unassigned AS r
            SEMI JOIN (SELECT * FROM :evaluated AS e WHERE kept) AS j ON :same_class
        """)(
            keys=[col(key, "r") for key in keys],
            unassigned=unassigned,
            evaluated=self._evaluate_levels(task, unassigned, levels),
            same_class=equal_columns(keys, "r", "j"),
        )
        return self.make(query)

    def _evaluate_levels(self, task: LocalTask, unassigned: exp.Table, levels: Levels, parts: int = 1) -> exp.Select:
        """Evaluate the classes of a generalization whose nodes may be released; of several parts of them, one."""
        keys = [level_column(i, level) for i, level in enumerate(levels)]
        nodes = [col(key) for key in keys]
        releasable = template("SELECT combination, row_count, :nodes FROM :unassigned")(
            nodes=nodes, unassigned=unassigned
        ).where(*((node >= 0) for node in nodes), copy=False)
        if parts > 1:
            counts = [tree.count_nodes(level) for tree, level in zip(self.task.trees, levels, strict=True)]
            finest = sorted(range(len(levels)), key=lambda i: -counts[i])[:SAMPLED_ATTRIBUTES]
            releasable = releasable.where(_in_first_part([nodes[i] for i in finest], parts), copy=False)
        return task.evaluate(subquery(releasable, "o"), keys)

    def _count_parts(self, unassigned: exp.Table) -> int:
        """The number of parts into which classes are divided; one of them chooses the path. 1 for few combinations."""
        return max(self.task.runner.count(unassigned) // SAMPLE_COMBINATIONS, 1)

    def count_feasible_rows(self, unassigned: exp.Table, candidates: Sequence[Levels]) -> tuple[dict[Levels, int], int]:
        """Count the unassigned rows that each generalization makes feasible, and all unassigned rows; of many
        combinations, in a part of the classes."""
        counts = template("""
            SELECT
                :candidate AS candidate,
                coalesce((sum(class_size) FILTER (WHERE kept))::BIGINT, 0) AS feasible,
                coalesce(sum(class_size)::BIGINT, 0) AS unassigned
            FROM :evaluated AS j
        """)
        parts = self._count_parts(unassigned)
        queries = [
            counts(candidate=i, evaluated=self._evaluate_levels(self.task, unassigned, levels, parts))
            for i, levels in enumerate(candidates)
        ]
        rows = self.task.engine.rows(union_all(*queries))
        return {candidates[i]: feasible for i, feasible, _ in rows}, max(count for _, _, count in rows)

    def evaluate_members(self, members: exp.Table) -> exp.Select:
        """Evaluate classes, given by their members."""
        with_rows = template("""
            SELECT m.combination, m.class_id, p.row_count
            FROM :members AS m
            JOIN :combinations AS p ON m.combination = p.combination
        """)(members=members, combinations=self.combinations)
        return self.task.evaluate(subquery(with_rows, "s"), [CLASS_ID])

    def complete(self, steps: Sequence[exp.Table]) -> Grouping:
        """The classes of the steps of a climb. Each unassigned combination is added to the class where it costs least,
        if that class stays feasible."""
        grouping = self.price_members(self._members(steps))
        unassigned = self.make(unassigned_combinations(combinations=self.combinations, members=grouping.members))
        pairs = self.task.runner.count(unassigned) * self.task.runner.count(grouping.classes)
        if not 0 < pairs <= MAX_PAIRS:
            return grouping
        self.start_round()
        additions = self.make(cheapest_classes(unassigned, grouping.classes, self.combinations, self.task.trees))
        enlarged = self._members([grouping.members, additions])
        feasible = self.make(feasible_rows(additions, self.evaluate_members(enlarged), [CLASS_ID]))
        return self.price_members(self._members([grouping.members, feasible]))

    def _drop(self, table: exp.Table) -> None:
        self._tables.remove(table)
        self.task.runner.drop(table)

    def _members(self, tables: Sequence[exp.Table]) -> exp.Table:
        """Make a table of the combinations with a class: ``combination`` and ``class_id``."""
        if not tables:  # no class on the path is feasible
            query = template("SELECT combination, combination AS class_id FROM :combinations WHERE FALSE")
            return self.make(query(combinations=self.combinations))
        return self.make(
            union_all(*(template("SELECT combination, class_id FROM :members")(members=table) for table in tables))
        )

    def price_members(self, members: exp.Table, lowest: Levels | None = None) -> Grouping:
        """Classes by their members, released as their lowest common nodes from some levels up, with their price."""
        classes = self.make(priced_classes(members, self.combinations, self.task.trees, lowest or self.task.floor))
        query = template(
            "SELECT coalesce(sum(price * row_count)::BIGINT, 0), coalesce(sum(row_count)::BIGINT, 0) FROM :classes"
        )
        price, rows = self.task.fetch_row(query(classes=classes))
        return Grouping(members, classes, price + (self.task.row_count - rows) * UNIT, rows)
