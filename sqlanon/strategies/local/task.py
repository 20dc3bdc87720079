"""What a local strategy works on, and what it gives back."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from sqlglot import exp

from sqlanon.engines.base import Engine
from sqlanon.engines.statement_runner import StatementRunner
from sqlanon.errors import SourceError
from sqlanon.frequency.sets import ClassSpace, SensitiveTable
from sqlanon.frequency.statements import MOVER, PERSONS, class_count
from sqlanon.hierarchies.build import EXAMPLE_LEAVES
from sqlanon.policy.strategies import STRATEGIES
from sqlanon.requirements import Requirements
from sqlanon.requirements.base import SHARE, VALUE
from sqlanon.requirements.k_anonymity import KAnonymity
from sqlanon.strategies.lattice import Budget, LatticeSearch, dive
from sqlanon.strategies.lattice.input import SearchInput
from sqlanon.strategies.lattice.lattice import Progress
from sqlanon.strategies.lattice.limits import Clock
from sqlanon.strategies.lattice.task import SearchTask
from sqlanon.strategies.local.grid import make_grid
from sqlanon.strategies.local.nodes import (
    COMBINATION,
    Tree,
    are_numbers,
    combinations,
    in_combinations,
    node_name,
    nodes,
    set_members,
)
from sqlanon.strategies.local.placement import Members, judged_groups
from sqlanon.strategies.registry import run_strategy
from sqlanon.support import coding as cd
from sqlanon.support.coding import ROWS, Levels
from sqlanon.support.expressions import Namer, aliased, col, fragment, template, union_all

_ORDERED = re.compile(r"U?(TINY|SMALL|BIG|HUGE)?INT(EGER)?|DECIMAL.*|FLOAT|DOUBLE|BIGNUM|DATE|TIME.*")
"""Types whose values are numbers or times, as the engine spells them."""


START_CHECKS = 2_000
START_SHARE = 0.5
SHARE_BEFORE_CUTS = 0.1
"""What the search for the start may take on a large lattice: checks, and a share of the policy's ``time_limit``; less
where cuts follow, which mostly find better."""


_PERSONS = template("SELECT coalesce(:persons, 0) FROM :members AS m")


@dataclass(frozen=True)
class LocalTask:
    """A prepared source as local strategies see it."""

    engine: Engine
    steps: StatementRunner
    work: Namer
    prepared: SearchInput
    combinations: exp.Table  # its distinct combinations of known values, made by `recode.local.nodes.combinations`
    trees: tuple[Tree, ...]  # the quasi-identifiers' hierarchies
    members: Members
    progress: Progress
    clock: Clock  # what the policy lets all of it take

    @property
    def floor(self) -> Levels:
        """The levels at which combinations are told apart."""
        return tuple(tree.floor for tree in self.trees)

    @property
    def rows(self) -> int:
        """Of the source."""
        return self.prepared.marginals.rows

    @property
    def allowed_rows(self) -> int:
        """The most rows that may be suppressed."""
        return self.prepared.limit.rows

    def count_suppressed_persons(self, kept: exp.Expr) -> int | None:
        """The persons with a row that is in none of the kept combinations; None where rows are counted."""
        return self._count_persons(kept, "anti")

    def count_released_persons(self, kept: exp.Expr) -> int | None:
        """The persons with a row that is in one of the kept combinations; None where rows are counted."""
        return self._count_persons(kept, "semi")

    def _count_persons(self, kept: exp.Expr, join: str) -> int | None:
        members = self.members.persons
        if members is None:
            return None
        query = _PERSONS(persons=class_count(PERSONS, MOVER if self.members.moving else None), members=members)
        on = col(COMBINATION, "m").eq(col(COMBINATION, "k"))
        query = query.join(aliased(kept, "k"), on=on, join_type=join, copy=False)
        return int(self.engine.rows(query)[0][0])

    def may_suppress(self, rows: int, kept: exp.Expr) -> bool:
        """Whether so many rows may be suppressed, where all but the kept combinations are."""
        if rows > self.allowed_rows:
            return False
        return self.prepared.limit.allows(rows, self.count_suppressed_persons(kept) if rows else 0)

    def judged(self, placed: exp.Expr, keys: Sequence[str]) -> exp.Select:
        """The groups that a relation makes of combinations, judged by all requirements: `placement.judged_groups`."""
        return judged_groups(self.members, placed, keys)

    def start(self, strategy: str = "optimal", share: float = START_SHARE) -> tuple[LatticeSearch, Levels]:
        """The search of a full-domain strategy, and the generalization that it chose by the policy's measure.

        On a large lattice a proof may take days: the search takes a part of the limits, and gives the best that it met.
        """
        task = SearchTask(self.steps, self.prepared, self.progress, self._start_budget(share))
        found = run_strategy(task, STRATEGIES[strategy])
        assert found.search is not None and found.levels is not None  # as it is of the full domain
        self.clock.checks += len(found.search.figures)
        return found.search, found.levels

    @property
    def is_large(self) -> bool:
        """Whether the lattice is too large for a search of it to end soon."""
        return self.prepared.lattice.size > dive.LARGE

    def _start_budget(self, share: float) -> Budget:
        checks, left = self.clock.budget.checks, self.clock.remaining_seconds
        if not self.is_large:
            return Budget(left, checks)
        seconds = self.clock.budget.seconds
        return Budget(
            None if seconds is None or left is None else min(share * seconds, left),
            START_CHECKS if checks is None else min(START_CHECKS, max(checks // 2, 1)),
        )


@dataclass(frozen=True)
class LocalOutcome:
    """What a local strategy gives back."""

    # Of a strategy that divides equal rows, its combinations are shares of those of the source, with ``first_row`` and
    # ``last_row``: the places of their rows among equal ones.
    task: LocalTask
    placed: exp.Table  # ``combination``, and ``node_0``, ...: what each is released as; what is not there is suppressed
    # By attribute, where it is released as other nodes than its hierarchy's: ``node``, ``label``, ``leaves``, ``level``
    # of all nodes that are used.
    values: Mapping[int, exp.Table] = field(default_factory=dict)
    typed: frozenset[int] = frozenset()  # attributes whose labels are values of their columns: they keep their types
    rounds: int = 0  # how often it went over the combinations
    bound: float = 0.0  # no release of the kind scores less, and no generalization
    search: LatticeSearch | None = None  # what it learnt of the lattice, where it searched that
    # With ``ends = "exact"``: by ``combination`` whether its value of an attribute is shown as an end of its range, as
    # the median or as a rare member of a set, ``is_end_i``.
    exact_ends: exp.Table | None = None


def local_task(
    steps: StatementRunner, prepared: SearchInput, progress: Progress, clock: Clock | None = None
) -> LocalTask:
    """Make the tables that local strategies work on.

    Makes ``combinations``, ``local_nodes_i`` for each quasi-identifier, and where requirements need them
    ``local_members`` (with persons) and ``local_members_d`` (for each distribution of sensitive values).
    """
    work = prepared.work
    every = range(len(prepared.attributes))
    texts = [_is_text_of_numbers(steps, prepared, i) for i in every]
    trees = tuple(_tree(steps, prepared, i, texts[i]) for i in every)
    floor = tuple(tree.floor for tree in trees)
    space = prepared.frequency_sets.at(floor)
    _refuse_elsewhere(prepared, space)
    offsets = [tree.offsets for tree in trees]
    query = combinations(space.frequency, space.heights, floor, offsets)
    made = steps.make(work("combinations"), query)
    for i, tree in enumerate(trees):
        _make_nodes(steps, prepared, i, tree, texts[i])
    requirements = _of_classes(prepared.requirements)
    if prepared.policy.search.traits.summarizes and prepared.policy.search.ends == "grid":
        trees = tuple(
            _with_grid(steps, prepared, i, tree, texts[i], requirements.min_class_rows) for i, tree in enumerate(trees)
        )

    def within(name: str, relation: exp.Expr, columns: Sequence[str]) -> exp.Table:
        return steps.make(work(name), in_combinations(relation, made, space.heights, floor, offsets, columns))

    persons = None
    if space.persons:
        names = [ROWS, PERSONS, *([MOVER] if space.moving else [])]
        query = in_combinations(space.frequency, made, space.heights, floor, offsets, names, unknown=True)
        persons = steps.make(work("local_members"), query)
    sensitive = {}
    for d, (one, counts) in enumerate(space.sensitive.items()):
        names = [*(f"o{i}" for i in range(counts.inner)), VALUE, SHARE, ROWS, *([MOVER] if space.moving else [])]
        sensitive[one] = SensitiveTable(within(f"local_members_{d}", counts.table, names), counts.inner, counts.domain)
    members = Members(requirements, persons, space.moving, sensitive)
    if prepared.policy.search.traits.summarizes and prepared.policy.search.summary == "set":
        trees = tuple(_with_members(steps, prepared, i, tree, made, members) for i, tree in enumerate(trees))
    search = prepared.policy.search
    clock = clock or Clock(Budget(search.time_limit, search.max_checks))
    return LocalTask(steps.engine, steps, work, prepared, made, trees, members, progress, clock)


def _refuse_elsewhere(prepared: SearchInput, space: ClassSpace) -> None:
    """Combinations are placed here, one by one."""
    search = prepared.policy.search
    needed = [space.frequency, *(one.table for one in space.sensitive.values())]
    if any(prepared.source.holds_table(one) for one in needed):
        name = f"strategy {search.strategy}" if search.traits.is_local else 'suppression = "cells"'
        raise SourceError(
            f"source.fetch_limit: there are more combinations of values than may be fetched, and {name} places "
            "them one by one: allow more, or use a strategy of the full domain, such as optimal"
        )


def _of_classes(requirements: Requirements) -> Requirements:
    """What is asked of a group of combinations by itself.

    Classes of k rows are k-anonymous over any of the attributes too: what shields ask is asked of all of them.
    """
    if not requirements.shields:
        return requirements
    most = max(shield.k for shield in requirements.shields)
    return replace(requirements, class_conditions=(KAnonymity(most), *requirements.class_conditions), shields=())


def _tree(steps: StatementRunner, prepared: SearchInput, i: int, as_text: bool) -> Tree:
    attribute, hierarchy = prepared.attributes[i], prepared.hierarchies[i]
    spec, height = prepared.policy.attributes[hierarchy.attribute], hierarchy.height
    # A forbidden label forbids its node, and not the whole level as it does in the lattice.
    floor = min(spec.min_level, height)
    ceiling = height if spec.max_level is None else min(spec.max_level, height)
    example = [(EXAMPLE_LEAVES,) * height]
    counts = steps.look_up(cd.group_counts(attribute), example)[0] if height else ()
    offsets = [0]
    for level in range(floor, height):
        offsets.append(offsets[-1] + counts[level])
    return Tree(
        hierarchy.attribute,
        height,
        floor,
        ceiling,
        tuple(offsets),
        hierarchy.leaves,
        spec.weight,
        prepared.work(f"local_nodes_{i}"),
        floor == 0 and (as_text or _is_typed(prepared, i)),
        spec.forbidden,
        hierarchy.open_ends,
        prepared.types[i],
    )


def _is_typed(prepared: SearchInput, i: int) -> bool:
    return _ORDERED.fullmatch(prepared.types[i]) is not None


def _is_text_of_numbers(steps: StatementRunner, prepared: SearchInput, i: int) -> bool:
    """Whether values are text in which all are numbers."""
    found = (
        not _is_typed(prepared, i)
        and steps.look_up(are_numbers(hierarchy=prepared.hierarchies[i].table), [(False,)])[0][0]
    )
    return bool(found)


_AS_NUMBER = fragment("TRY_CAST(level_0::VARCHAR AS DOUBLE)")


def _order(as_text: bool) -> exp.Expr:
    return _AS_NUMBER() if as_text else col("level_0")


def _with_grid(steps: StatementRunner, prepared: SearchInput, i: int, tree: Tree, as_text: bool, least: int) -> Tree:
    """The tree of an attribute with its grid; an attribute without a grid is not released as ranges."""
    if tree.floor == tree.height or not (as_text or _is_typed(prepared, i)):
        return tree
    if tree.floor and prepared.policy.search.summary == "median":  # a number would look finer than ``min_level``
        return tree
    grid = make_grid(steps, prepared, i, tree, _order(as_text), least)
    return replace(tree, grid=grid, ordered=grid is not None)


_FREQUENT = template("SELECT :node AS node FROM :judged AS j WHERE kept")


def _with_members(
    steps: StatementRunner, prepared: SearchInput, i: int, tree: Tree, combinations: exp.Table, members: Members
) -> Tree:
    """The tree of an attribute with what its sets may list."""
    if tree.ordered or tree.floor == tree.height:
        return tree
    least = max(members.requirements.min_class_rows, 2)
    counted_members = replace(members, requirements=Requirements((KAnonymity(least),)), sensitive=None)
    names = [node_name(i, level) for level in range(tree.floor, tree.height)]
    frequent = union_all(
        *(_FREQUENT(node=col(name), judged=judged_groups(counted_members, combinations, [name])) for name in names)
    )
    target = prepared.work(f"local_sets_{i}")
    exact = prepared.policy.search.ends == "exact"
    made = steps.make(prepared.work(f"local_frequent_{i}"), frequent)
    return replace(tree, members=steps.make(target, set_members(tree, made, exact)))


def _make_nodes(steps: StatementRunner, prepared: SearchInput, i: int, tree: Tree, as_text: bool) -> None:
    hierarchy = prepared.hierarchies[i]
    query = nodes(
        prepared.attributes[i],
        hierarchy.table,
        hierarchy.leaves,
        hierarchy.top,
        tree.floor,
        tree.ceiling,
        tree.offsets,
        _order(as_text),
        tree.forbidden,
    )
    steps.make(tree.nodes, query)
