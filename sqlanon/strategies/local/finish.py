"""From what a local strategy placed to what is released of it: as readers see it, judged once more.

Labels of numbers sort as text in the order of their lower ends: ``05-09``, ``10``, ``10-14``. As with intervals,
negative numbers come before the others, and are in the order of their digits among themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import wraps

from sqlglot import exp

from sqlanon.engines.deadline import interrupt_after
from sqlanon.engines.statement_runner import StatementRunner
from sqlanon.errors import InfeasibleError
from sqlanon.hierarchies.numerals import NUMERAL, count_whole_digits, expand_exponent, extract_part, pad_whole_digits
from sqlanon.measures import Figures, Measure
from sqlanon.measures.base import RecodingTotals
from sqlanon.policy.guarantee import guaranteed_combinations
from sqlanon.requirements import Requirements
from sqlanon.requirements.base import SubsetCondition
from sqlanon.requirements.k_anonymity import KAnonymity
from sqlanon.strategies.lattice.checker import policy_measure
from sqlanon.strategies.lattice.infeasible import describe_remedies, time_limit_error
from sqlanon.strategies.lattice.input import SearchInput
from sqlanon.strategies.lattice.limits import FIRST_GRACE, GRACE, Budget, Clock, LimitReachedError
from sqlanon.strategies.lattice.persons import PersonFigures, person_figures
from sqlanon.strategies.lattice.result import SearchResult
from sqlanon.strategies.lattice.task import SearchTask, task_engines
from sqlanon.strategies.local.nodes import Tree, agree, may_be_shown
from sqlanon.strategies.local.placement import (
    LocalRecoding,
    as_read,
    attribute_figures,
    class_figures,
    judged_groups,
    kept_combinations,
    released_values,
    suppressed_ground,
)
from sqlanon.strategies.local.task import LocalOutcome, LocalTask, local_task
from sqlanon.support.coding import Levels
from sqlanon.support.expressions import aliased, col, fragment, star, subquery, template, union_all
from sqlanon.support.notices import Notice

MOST_DIGITS = 40
"""Labels are not made longer than can be read: a column of numbers such as 1e+300 does not sort as text."""

MOST_SHIELDS = 64
"""More shields than these are not judged by one statement: it would take minutes and gigabytes."""

_FORM = rf"(\[?)({NUMERAL})(?:(-| to |, )({NUMERAL}))?(\)?)"


_SORTABLE = template("""
    SELECT
        node, code, label, leaves, level,
        CASE
            WHEN low IS NOT NULL AND digits <= :most
            THEN opening || :padded_low || dash || coalesce(:padded_high, '') || closing
            ELSE label
        END AS sortable
    FROM (
        SELECT
            *,
            coalesce(
                max(greatest(coalesce(:digits_of_low, 0), coalesce(:digits_of_high, 0)))
                FILTER (WHERE is_kept AND low IS NOT NULL) OVER (),
                0
            ) AS digits
        FROM (
            SELECT a.*, :low AS low, :high AS high
            FROM (
                SELECT
                    *,
                    code IN (SELECT :code FROM :kept) AS is_kept,
                    CASE WHEN level <= :grid OR node > :root THEN :first END AS first,
                    coalesce(:opening, '') AS opening,
                    coalesce(:dash, '') AS dash,
                    :last AS last,
                    coalesce(:closing, '') AS closing
                FROM :released
            ) AS a
        ) AS w
    ) AS d
""")
_MAY_BE_SORTED = template("""
    SELECT
        count(DISTINCT code) = count(DISTINCT sortable)
        AND count(DISTINCT code) = count(DISTINCT (code, sortable))
        AND coalesce(bool_and(:allowed), TRUE)
    FROM :sortable
    WHERE label IS NOT NULL
""")
sorted_labels = template("SELECT node, code, sortable AS label, leaves, level FROM :sortable")
"""Released values with padded labels: ``node``, ``code``, ``label``, ``leaves``, ``level``."""


def sortable_labels(released: exp.Table, kept: exp.Table, attribute: int, root: int, grid: int = 0) -> exp.Select:
    """Released values as `placement.released_values` makes them, with ``sortable``: the label, its numbers padded.

    How wide they are follows from what is kept alone: what is suppressed may be larger. Labels of a hierarchy above
    the level of the ``grid`` stay as they are.
    """
    opening, first, dash, last, closing = (extract_part(col("label"), _FORM, group) for group in range(1, 6))
    low, high, digits = col("low"), col("high"), col("digits")
    return _SORTABLE(
        most=MOST_DIGITS,
        padded_low=pad_whole_digits(low, digits),
        padded_high=pad_whole_digits(high, digits),
        digits_of_low=count_whole_digits(low),
        digits_of_high=count_whole_digits(high),
        low=expand_exponent(col("first")),
        high=expand_exponent(col("last")),
        code=col(f"code_{attribute}"),
        kept=kept,
        root=root,
        grid=grid,
        opening=opening,
        first=first,
        dash=dash,
        last=last,
        closing=closing,
        released=released,
    )


def may_be_sorted(sortable: exp.Table, forbidden: Collection[str]) -> exp.Select:
    """Whether labels still tell the same things apart when they are padded, and none of them is forbidden then."""
    return _MAY_BE_SORTED(allowed=may_be_shown(col("sortable"), forbidden), sortable=sortable)


@dataclass(frozen=True)
class LocalResult:
    """What a local strategy placed, as readers see it: the kept combinations and the labels of their codes.

    ``levels`` are the lowest and the highest that each attribute is released at; ``values``, the attributes that are
    released as other nodes than their hierarchies'; ``typed``, those of them that keep the types of their columns.
    With a strategy that divides equal rows a combination may be there several times, each time for some of its rows.
    """

    trees: tuple[Tree, ...]
    table: exp.Table
    labels: tuple[exp.Table, ...]
    figures: Figures
    totals: RecodingTotals
    smallest_class: int
    levels: tuple[tuple[int, int], ...]
    values: frozenset[int] = frozenset()
    typed: frozenset[int] = frozenset()
    persons: PersonFigures | None = None
    warnings: tuple[Notice, ...] = ()

    @property
    def floor(self) -> Levels:
        """The levels at which combinations are told apart."""
        return tuple(tree.floor for tree in self.trees)

    @property
    def generalization(self) -> dict[str, int | None]:
        """The level of each attribute that is released at one: ranges and sets of values are at none."""
        return {
            tree.name: low if low == high and (low == 0 or i not in self.values) else None
            for i, (tree, (low, high)) in enumerate(zip(self.trees, self.levels, strict=True))
        }

    def score(self, measure: Measure) -> float:
        """By a measure."""
        return measure.score_recoding(self.figures, self.totals)

    def suppressed(self, steps: StatementRunner, prepared: SearchInput) -> exp.Table:
        """Make ``suppressed``: the combinations that are not kept, as classes of the generalization at the floor."""
        frequency = prepared.frequency_sets.at(self.floor).frequency
        return steps.make(prepared.work("suppressed"), suppressed_ground(frequency, self.table, self.trees))

    def recoding(self, prepared: SearchInput, mask: bool) -> LocalRecoding:
        """How it is made from the source."""
        types = [type_ if i in self.typed else None for i, type_ in enumerate(prepared.types)]
        return LocalRecoding(
            prepared.source.relation,
            prepared.released_columns,
            prepared.attributes,
            tuple(hierarchy.top for hierarchy in prepared.hierarchies),
            self.trees,
            self.table,
            self.labels,
            frozenset(i for i, (_, high) in enumerate(self.levels) if high == 0 and not self.trees[i].open_ends),
            tuple(types),
            mask,
            self._lists() if prepared.policy.search.sets == "list" else frozenset(),
            prepared.columns.key if prepared.policy.search.traits.may_split_equal_rows else (),
        )

    def _lists(self) -> frozenset[int]:
        """The attributes that may have sets."""
        return frozenset(i for i in self.values if not self.trees[i].ordered)


def example_result(task: LocalTask) -> LocalResult:
    """What a plan shows: every attribute is released at several levels."""
    every, work = range(len(task.trees)), task.work
    labels = tuple(work(f"released_{i}") for i in every)
    totals = RecodingTotals((0.0,) * len(task.trees), (0,) * len(task.trees))
    return LocalResult(task.trees, work("kept"), labels, Figures(1, 1), totals, 0, tuple((0, 1) for _ in every))


def finish(task: LocalTask, outcome: LocalOutcome) -> LocalResult:
    """Keep the classes that meet the policy, as readers see them.

    What reads the same is one class, however it was placed. Makes ``released_i`` (see `placement.released_values`),
    ``readable`` and ``kept`` in the work schema; and ``sorted_i`` for attributes of numbers that are released as ranges
    or medians.
    """
    steps, work = task.steps, task.work
    attributes = range(len(task.trees))
    tables = [outcome.values.get(i, tree.nodes) for i, tree in enumerate(task.trees)]
    labels = tuple(
        steps.make(work(f"released_{i}"), released_values(table, outcome.placed, i, task.trees[i].forbidden))
        for i, table in enumerate(tables)
    )
    divides = task.prepared.policy.search.traits.may_split_equal_rows
    seen = steps.make(work("readable"), as_read(task.combinations, outcome.placed, labels, task.trees, divides))
    # Here the shields are asked for as they are: these are the classes that the release will have.
    asked = _as_guaranteed(task)
    if len(asked.shields) > MOST_SHIELDS:
        seen, asked = _safe(task, seen, asked.shields), Requirements()
    members = replace(task.members, requirements=asked)
    judged = steps.make(work("judged"), judged_groups(members, seen, [f"code_{i}" for i in attributes]))
    good = star(judged)
    kept = steps.make(work("kept"), kept_combinations(seen, good, attributes))
    figures = steps.figures(class_figures(judged=good))
    sums = steps.figures(attribute_figures(kept, len(task.trees)))
    persons = _persons(task, kept, figures["fewest"])
    return LocalResult(
        task.trees,
        kept,
        tuple(_in_order(task, outcome, kept, i, table) for i, table in enumerate(labels)),
        Figures(
            classes=figures["classes"],
            suppressed_rows=task.rows - figures["rows"],
            squared_sizes=figures["squares"],
            count=figures["count"],
            suppressed_persons=None if persons is None else persons.suppressed,
        ),
        RecodingTotals(
            tuple(sums[f"leaves_{i}"] or 0.0 for i in attributes), tuple(sums[f"levels_{i}"] or 0 for i in attributes)
        ),
        figures["smallest"],
        tuple((sums[f"low_{i}"] or 0, sums[f"high_{i}"] or 0) for i in attributes),
        frozenset(outcome.values),
        outcome.typed,
        persons,
        _warn_of_exact_ends(task, outcome, kept),
    )


_EXACT_ROWS = template("""
    SELECT :counts
    FROM :kept AS k
    JOIN :exact_ends AS e ON k.combination = e.combination
""")
_ROWS = fragment("coalesce((sum(k.n) FILTER (WHERE :is_end))::BIGINT, 0)")
_EXACT_VALUES = {
    "range": "as an end of a range",
    "median": "as the median of its class",
    "set": "as an end of a range, or in a set although few rows have it",
}


def _warn_of_exact_ends(task: LocalTask, outcome: LocalOutcome, kept: exp.Table) -> tuple[Notice, ...]:
    """With ``ends = "exact"``, the share of the released rows whose exact value the release shows."""
    if outcome.exact_ends is None:
        return ()
    flags = [col(f"is_end_{i}", "e") for i in range(len(task.trees))]
    counts: list[exp.Expr] = [_ROWS(is_end=is_end) for is_end in (*flags, exp.or_(*flags), exp.true())]
    query = _EXACT_ROWS(counts=counts, kept=kept, exact_ends=outcome.exact_ends)
    *by_attribute, affected, rows = task.engine.rows(query)[0]
    if not affected:
        return ()
    named_rows = sorted(zip(by_attribute, (tree.name for tree in task.trees), strict=True), reverse=True)
    listed = ", ".join(f"{name} {count / rows:.1%}" for count, name in named_rows if count)
    where = _EXACT_VALUES[task.prepared.policy.search.summary]
    message = (
        f'search.ends = "exact": {affected / rows:.1%} of the released rows have an exact value of their own in the '
        f"release, {where} ({listed}); a reader who knows such a value finds the class of the row. "
        'Leave ends = "exact" out: ranges then end on the grid of the hierarchy, and sets list values that k rows have'
    )
    return (Notice(message, affected),)


def _persons(task: LocalTask, kept: exp.Table, fewest: int) -> PersonFigures | None:
    """The persons of the kept combinations, where persons are counted."""
    every = task.prepared.limit.all_persons
    suppressed, released = task.count_suppressed_persons(kept), task.count_released_persons(kept)
    if every is None or suppressed is None or released is None:
        return None
    return person_figures(every, suppressed, released, fewest)


def _in_order(task: LocalTask, outcome: LocalOutcome, kept: exp.Table, i: int, labels: exp.Table) -> exp.Table:
    """The labels of an attribute; those of numbers padded, so that they sort as text.

    What reads the same is known by now: nothing is padded that would read the same as something else then.
    """
    tree = task.trees[i]
    if i not in outcome.values or i in outcome.typed or not tree.ordered or (tree.grid and tree.grid.of_dates):
        return labels
    sortable = task.steps.make(task.work(f"sortable_{i}"), sortable_labels(labels, kept, i, tree.root, tree.grid_level))
    if not task.engine.rows(may_be_sorted(sortable, tree.forbidden))[0][0]:
        return labels
    return task.steps.make(task.work(f"sorted_{i}"), sorted_labels(sortable=sortable))


def _as_guaranteed(task: LocalTask) -> Requirements:
    """The policy's requirements; where k-anonymity is guaranteed of combinations only, of these."""
    policy, asked = task.prepared.policy, task.prepared.requirements
    listed = guaranteed_combinations(policy.redact())
    if not listed or policy.privacy.k is None:
        return asked
    names = [tree.name for tree in task.trees]
    shields = [SubsetCondition(tuple(names.index(name) for name in some), some, policy.privacy.k) for some in listed]
    return Requirements(shields=tuple(shields))


# The combinations in whose groups, by the codes of some attributes, are too few.
_FAILING = template("""
    SELECT s.combination
    FROM :seen AS s
    JOIN (SELECT :keys FROM :judged AS j WHERE NOT kept) AS f ON :same
""")
_WITHOUT = template("SELECT s.* FROM :seen AS s ANTI JOIN (:failing) AS f ON s.combination = f.combination")


def _safe(task: LocalTask, seen: exp.Table, shields: Sequence[SubsetCondition]) -> exp.Table:
    """The greatest part of what readers see in which all shields hold, which all ask for the policy's k."""
    steps, members = task.steps, replace(task.members, requirements=Requirements((KAnonymity(shields[0].k),)))

    def failing(attributes: Sequence[int]) -> exp.Select:
        keys = [f"code_{i}" for i in attributes]
        judged = judged_groups(members, aliased(seen, "g"), keys)
        return _FAILING(seen=seen, keys=[col(key) for key in keys], judged=subquery(judged), same=agree(keys, "s", "f"))

    # Classes of k over all attributes are so over some of them.
    found = steps.make(task.work("failing_0"), failing(range(len(task.trees))))
    if not steps.count(found):
        return seen
    left, number = steps.count(seen), 0
    while True:
        for first in range(0, len(shields), MOST_SHIELDS):
            number += 1
            some = [failing(one.attributes) for one in shields[first : first + MOST_SHIELDS]]
            seen = steps.make(task.work(f"safe_{number}"), _WITHOUT(seen=seen, failing=union_all(*some)))
        if left == (left := steps.count(seen)):
            return seen


def on_combinations(strategy: Callable[[LocalTask], LocalOutcome]) -> Callable[[SearchTask], SearchResult]:
    """A strategy that places combinations, as `policy.strategies.Strategy.run`."""

    @wraps(strategy)
    def run(task: SearchTask) -> SearchResult:
        asked = task.prepared.policy.search
        clock = Clock(Budget(asked.time_limit, asked.max_checks))
        if task.steps.dry:
            local = local_task(task.steps, task.prepared, task.progress, clock)
            return SearchResult(Figures(1, 1), 0.0, 0.0, optimal=False, local_result=example_result(local))
        late = None if asked.time_limit is None else asked.time_limit + GRACE
        with interrupt_after(late, task_engines(task), clock.may_interrupt):
            try:
                with clock.in_time(FIRST_GRACE):
                    local = local_task(task.steps, task.prepared, task.progress, clock)
                outcome = strategy(local)
            except LimitReachedError:
                raise time_limit_error(task.prepared) from None
        return _as_readers_see(outcome)

    return run


def _as_readers_see(outcome: LocalOutcome) -> SearchResult:
    """What a local strategy placed, judged once more."""
    task, found = outcome.task, finish(outcome.task, outcome)
    limit, strategy = task.prepared.limit, task.prepared.policy.search.strategy
    suppressed, persons = found.figures.suppressed_rows, found.figures.suppressed_persons
    if not found.figures.classes or not limit.allows(suppressed, persons):
        message = f"strategy {strategy} found no recoding that meets the policy: it would suppress "
        message += limit.sentence(suppressed, task.rows, persons)
        message += describe_remedies(
            task.prepared, found.figures, [one.name for one in task.prepared.requirements.class_conditions]
        )
        raise InfeasibleError(message, None, suppressed, limit.rows, persons, limit.persons)
    measure = policy_measure(task.prepared)
    score = found.score(measure)
    # No recoding scores less than what nothing is generalized and suppressed in.
    bound = min(score, max(measure.bound(task.floor), outcome.bound))
    return SearchResult(
        found.figures, score, bound, score <= bound, local_result=found, search=outcome.search, rounds=outcome.rounds
    )
