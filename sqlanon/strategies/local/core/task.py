"""The input and output of local strategies."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sqlglot import exp

from sqlanon.engines.base import WorkEngine
from sqlanon.engines.statement_runner import StatementRunner
from sqlanon.errors import SourceError
from sqlanon.frequency.sets import ClassSpace, SensitiveTable
from sqlanon.frequency.statements import MOVER, PERSONS
from sqlanon.hierarchies.build import EXAMPLE_LEAVES
from sqlanon.policy.strategies import STRATEGIES
from sqlanon.requirements import Requirements
from sqlanon.requirements.base import SHARE, VALUE
from sqlanon.requirements.k_anonymity import KAnonymity
from sqlanon.strategies.lattice import Budget, LatticeSearch, dive
from sqlanon.strategies.lattice.input import SearchInput
from sqlanon.strategies.lattice.lattice import Progress
from sqlanon.strategies.lattice.limits import Clock, LimitReachedError
from sqlanon.strategies.lattice.task import SearchTask
from sqlanon.strategies.local.core.evaluation import ClassEvaluator
from sqlanon.strategies.local.core.grid import make_grid
from sqlanon.strategies.local.core.nodes import (
    COMBINATION,
    NODE,
    Tree,
    are_numbers,
    distinct_combinations,
    hierarchy_nodes,
    join_ancestors,
    level_column,
    map_to_combinations,
    set_labels,
)
from sqlanon.strategies.registry import run_strategy
from sqlanon.support.coding import ROW_COUNT, Levels, group_counts, inner_column
from sqlanon.support.expressions import Namer, aliased, col, fragment, subquery, template, union_all

_ORDERED_TYPE = re.compile(r"U?(TINY|SMALL|BIG|HUGE)?INT(EGER)?|DECIMAL.*|FLOAT|DOUBLE|BIGNUM|DATE|TIME.*")
"""Types of numbers and times, in the engine's spelling."""

START_CHECKS = 2_000
START_SHARE = 0.5
SHARE_BEFORE_CUTS = 0.1
"""Limits of the full-domain search on a large lattice: checks, and a share of the policy's ``time_limit``; the share is
less before cuts, which mostly find a better release."""


@dataclass(frozen=True)
class LocalTask:
    """The input of a local strategy."""

    runner: StatementRunner
    work: Namer
    search_input: SearchInput
    combinations: exp.Table  # made by `nodes.distinct_combinations`
    trees: tuple[Tree, ...]  # hierarchies of the quasi-identifiers
    evaluator: ClassEvaluator
    progress: Progress
    clock: Clock  # the limits of the policy

    @property
    def engine(self) -> WorkEngine:
        """The engine that runs the statements."""
        return self.runner.engine

    @property
    def floor(self) -> Levels:
        """The levels of the combinations."""
        return tuple(tree.floor for tree in self.trees)

    @property
    def row_count(self) -> int:
        """The rows of the source."""
        return self.search_input.marginals.rows

    @property
    def allowed_rows(self) -> int:
        """Maximum number of suppressed rows."""
        return self.search_input.limit.rows

    def make(self, name: str, query: exp.Query) -> exp.Table:
        """Make a table in the run's work schema."""
        return self.runner.create_table(self.work(name), query)

    def fetch_row(self, query: exp.Expr) -> tuple[Any, ...]:
        """The only row of a query."""
        return tuple(self.engine.rows(query)[0])

    def fetch_value(self, query: exp.Expr) -> Any:
        """The only value of a query."""
        return self.fetch_row(query)[0]

    def count_rows(self, relation: exp.Expr) -> int:
        """Count the source rows of a relation with ``row_count``."""
        query = template("SELECT coalesce(sum(row_count)::BIGINT, 0) FROM :relation AS r")(relation=relation)
        return int(self.fetch_value(query))

    def limit_is_reached(self) -> bool:
        """Whether a limit of the search is reached."""
        try:
            self.clock.refuse_over_limits()
        except LimitReachedError:
            return True
        return False

    def evaluate(self, relation: exp.Expr, keys: Sequence[str]) -> exp.Select:
        """The classes of a relation, evaluated by all requirements: see `evaluation.ClassEvaluator.evaluate`."""
        return self.evaluator.evaluate(relation, keys)

    def count_suppressed_persons(self, kept_combinations: exp.Expr) -> int | None:
        """Count persons with a row outside the kept combinations; None if rows are counted instead of persons."""
        return self._count_persons(kept_combinations, "anti")

    def count_released_persons(self, kept_combinations: exp.Expr) -> int | None:
        """Count persons with a row in the kept combinations; None if rows are counted instead of persons."""
        return self._count_persons(kept_combinations, "semi")

    def _count_persons(self, kept_combinations: exp.Expr, join_type: str) -> int | None:
        members = self.evaluator.persons
        if members is None:
            return None
        on = col(COMBINATION, "m").eq(col(COMBINATION, "k"))
        query = template("SELECT coalesce(:persons, 0) FROM :members AS m")(
            persons=self.evaluator.person_count, members=members
        )
        query = query.join(aliased(kept_combinations, "k"), on=on, join_type=join_type, copy=False)
        return int(self.fetch_value(query))

    def can_suppress(self, rows: int, kept_combinations: exp.Expr) -> bool:
        """Whether the suppression limit allows these rows, and the persons outside the kept combinations."""
        if rows > self.allowed_rows:
            return False
        return self.search_input.limit.allows(rows, self.count_suppressed_persons(kept_combinations) if rows else 0)

    def search_full_domain(self, strategy: str = "optimal", share: float = START_SHARE) -> tuple[LatticeSearch, Levels]:
        """Search with a full-domain strategy; the search, and the generalization that it chose by the policy's measure.

        A proof may take days on a large lattice: there the search gets a part of the limits, and returns its best.
        """
        budget = Budget(self.clock.remaining_seconds, self.clock.budget.checks)
        if self.is_large:
            checks, seconds = self.clock.budget.checks, self.clock.budget.seconds
            left = self.clock.remaining_seconds
            budget = Budget(
                None if seconds is None or left is None else min(share * seconds, left),
                START_CHECKS if checks is None else min(START_CHECKS, max(checks // 2, 1)),
            )
        task = SearchTask(self.runner, self.search_input, self.progress, budget)
        result = run_strategy(task, STRATEGIES[strategy])
        assert result.search is not None and result.levels is not None  # the strategy is full-domain
        self.clock.checks += len(result.search.figures)
        return result.search, result.levels

    @property
    def is_large(self) -> bool:
        """Whether the lattice is too large to be searched completely."""
        return self.search_input.lattice.size > dive.LARGE


@dataclass(frozen=True)
class LocalOutcome:
    """The output of a local strategy."""

    # Strategies that divide equal rows replace the combinations by shares of them, with ``first_row`` and ``last_row``:
    # the positions of their rows among equal ones.
    task: LocalTask
    # ``combination``, and the nodes that it is released as: ``node_0``, ... Other combinations are suppressed.
    assignment: exp.Table
    # For attributes with nodes other than those of their hierarchy, all nodes: ``node``, ``label``, ``leaves``,
    # ``level``.
    nodes: Mapping[int, exp.Table] = field(default_factory=dict)
    typed: frozenset[int] = frozenset()  # attributes whose labels are values of their columns, and keep their types
    rounds: int = 0  # passes over the combinations
    bound: float = 0.0  # lower bound on the score of any local recoding and any generalization
    search: LatticeSearch | None = None  # the search of the lattice, if there was one
    # With ``ends = "exact"``: by ``combination`` and attribute, whether the release shows its value as an end of a
    # range, as a median or as a rare member of a set: ``is_end_i``.
    exact_ends: exp.Table | None = None


def prepare_local_task(
    runner: StatementRunner, search_input: SearchInput, progress: Progress, clock: Clock | None = None
) -> LocalTask:
    """Make the tables that local strategies work on.

    Makes ``combinations``, ``local_nodes_i`` for each quasi-identifier, and where requirements need them
    ``local_members`` (with persons) and ``local_members_d`` (for each distribution of sensitive values).
    """
    work, search = search_input.work, search_input.policy.search
    attributes = range(len(search_input.attributes))
    orders = [_value_order(runner, search_input, i) for i in attributes]
    trees = tuple(_build_tree(runner, search_input, i, orders[i] is not None) for i in attributes)
    space = search_input.frequency_sets.class_space(tuple(tree.floor for tree in trees))
    _refuse_remote_tables(search_input, space)
    combinations = runner.create_table(work("combinations"), distinct_combinations(space.frequency, trees))
    for i, tree in enumerate(trees):
        order, hierarchy = orders[i], search_input.hierarchies[i]
        query = hierarchy_nodes(search_input.attributes[i], hierarchy, tree, col("level_0") if order is None else order)
        runner.create_table(tree.nodes, query)
    requirements = class_requirements(search_input.requirements)
    if search.traits.summarizes and search.ends == "grid":
        least_class = requirements.min_class_rows
        trees = tuple(_add_grid(runner, search_input, i, tree, orders[i], least_class) for i, tree in enumerate(trees))
    movers = [MOVER] if space.moving else []
    persons = None
    if space.persons:
        columns = [ROW_COUNT, PERSONS, *movers]
        query = map_to_combinations(space.frequency, combinations, trees, columns, include_unknown=True)
        persons = runner.create_table(work("local_members"), query)
    sensitive = {}
    for d, (distribution, counts) in enumerate(space.sensitive.items()):
        columns = [*(inner_column(i) for i in range(counts.inner)), VALUE, SHARE, ROW_COUNT, *movers]
        query = map_to_combinations(counts.table, combinations, trees, columns)
        table = runner.create_table(work(f"local_members_{d}"), query)
        sensitive[distribution] = SensitiveTable(table, counts.inner, counts.domain)
    evaluator = ClassEvaluator(requirements, persons, space.moving, sensitive)
    if search.traits.summarizes and search.summary == "set":
        trees = tuple(
            add_set_labels(runner, search_input, i, tree, combinations, evaluator) for i, tree in enumerate(trees)
        )
    clock = clock or Clock(Budget(search.time_limit, search.max_checks))
    return LocalTask(runner, work, search_input, combinations, trees, evaluator, progress, clock)


def _refuse_remote_tables(search_input: SearchInput, space: ClassSpace) -> None:
    tables = [space.frequency, *(counts.table for counts in space.sensitive.values())]
    if any(search_input.source.holds_table(table) for table in tables):
        search = search_input.policy.search
        feature = f"strategy {search.strategy}" if search.traits.is_local else 'suppression = "cells"'
        raise SourceError(
            f"source.fetch_limit: the source has more combinations of values than may be fetched, and {feature} "
            "needs them in the local database; raise the limit, or use a full-domain strategy, such as optimal"
        )


def class_requirements(requirements: Requirements) -> Requirements:
    """The requirements as conditions on each class by itself.

    Classes of k rows are k-anonymous over any subset of the attributes: shields become k-anonymity over all of them.
    """
    if not requirements.shields:
        return requirements
    largest_k = max(shield.k for shield in requirements.shields)
    return replace(requirements, class_conditions=(KAnonymity(largest_k), *requirements.class_conditions), shields=())


def _value_order(runner: StatementRunner, search_input: SearchInput, i: int) -> exp.Expr | None:
    """The expression that orders ground values that are numbers or times; None for other values."""
    if _ORDERED_TYPE.fullmatch(search_input.types[i]) is not None:
        return col("level_0")
    query = are_numbers(hierarchy=search_input.hierarchies[i].table)
    has_numbers = runner.fetch_rows(query, [(False,)], in_plan=False)[0][0]
    return fragment("TRY_CAST(level_0::VARCHAR AS DOUBLE)")() if has_numbers else None


def _build_tree(runner: StatementRunner, search_input: SearchInput, i: int, has_order: bool) -> Tree:
    attribute, hierarchy = search_input.attributes[i], search_input.hierarchies[i]
    spec, height = search_input.policy.attributes[hierarchy.attribute], hierarchy.height
    # A forbidden label forbids its node, and not the whole level as it does in the lattice.
    floor = min(spec.min_level, height)
    example = [(EXAMPLE_LEAVES,) * height]
    counts = runner.fetch_rows(group_counts(attribute), example, in_plan=False)[0] if height else ()
    offsets = [0]
    for level in range(floor, height):
        offsets.append(offsets[-1] + counts[level])
    return Tree(
        name=hierarchy.attribute,
        height=height,
        floor=floor,
        ceiling=height if spec.max_level is None else min(spec.max_level, height),
        offsets=tuple(offsets),
        leaves=hierarchy.leaves,
        weight=spec.weight,
        nodes=search_input.work(f"local_nodes_{i}"),
        is_ordered=floor == 0 and has_order,
        forbidden=spec.forbidden,
        open_ends=hierarchy.open_ends,
        column_type=search_input.types[i],
    )


def _add_grid(
    runner: StatementRunner, search_input: SearchInput, i: int, tree: Tree, order: exp.Expr | None, least_class: int
) -> Tree:
    """A tree with its grid. An attribute without a grid is not released as ranges."""
    if tree.floor == tree.height or order is None:
        return tree
    if tree.floor and search_input.policy.search.summary == "median":  # a number would look finer than ``min_level``
        return tree
    grid = make_grid(runner, search_input, i, tree, order, least_class)
    return replace(tree, grid=grid, is_ordered=grid is not None)


def add_set_labels(
    runner: StatementRunner,
    search_input: SearchInput,
    i: int,
    tree: Tree,
    combinations: exp.Table,
    evaluator: ClassEvaluator,
) -> Tree:
    """A tree with the labels that its sets may list."""
    if tree.is_ordered or tree.floor == tree.height:
        return tree
    least_class = max(evaluator.requirements.min_class_rows, 2)
    by_size = replace(evaluator, requirements=Requirements((KAnonymity(least_class),)), sensitive=None)
    lowest = f"n{tree.floor}"
    frequent = []
    for level in range(tree.floor, tree.height):
        nodes = template("SELECT c.combination, c.row_count, :node AS node FROM :combinations AS c")(
            node=col(NODE, f"n{level}"), combinations=combinations
        )
        on = col(level_column(i, tree.floor), "c").eq(col(NODE, lowest))
        nodes = nodes.join(aliased(tree.nodes, lowest), on=on, copy=False)
        nodes = join_ancestors(nodes, tree, range(tree.floor + 1, level + 1))
        evaluated = by_size.evaluate(subquery(nodes, "o"), [NODE])
        frequent.append(template("SELECT node FROM :evaluated AS j WHERE kept")(evaluated=evaluated))
    frequent_nodes = runner.create_table(search_input.work(f"local_frequent_{i}"), union_all(*frequent))
    query = set_labels(tree, frequent_nodes, search_input.policy.search.ends == "exact")
    return replace(tree, set_labels=runner.create_table(search_input.work(f"local_sets_{i}"), query))
