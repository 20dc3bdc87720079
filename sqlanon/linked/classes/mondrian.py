"""Strategy ``mondrian`` for linked tables: classes of persons, each with its own levels for all tables.

There are two starts: the best generalization that a full-domain search finds in a limited number of checks, and the
highest levels. The better of the two results is released, so it is never worse than that generalization. The first
classes are those of the start; persons and rows that cannot stay there are suppressed. In each round every class tries
one step: it lowers one attribute by one level, the one that promises the greatest gain.

- An attribute of the person table divides the persons of the class by their labels at the lower level.
- An attribute of a child table is lowered for the greatest set of persons in which k persons share everything that an
  attacker may know. If an attacker knows all rows, classes are signatures, so the step divides the class by them.

Persons who cannot follow stay behind together, at the former levels. If some of them cannot stay there either, the
smallest of the new classes stays behind with them. Otherwise they are suppressed, if the limit allows it and the step
gains more than they lose. Otherwise the class does not take the step. Classes that cannot take any step are released.

The persons who can follow are the greatest such set, so those who stay behind can never follow: their class does not
try the attribute again. A step that was not taken is tried again in the smaller classes that other steps create. So
persons are divided by what their child rows have in common, and no summaries of these rows are needed: signatures at
the highest levels are numbers of rows, and cuts by these numbers gain nothing in addition to the steps if fewer rows
are known (measured with `benchmarks/linked_local.py`).

Tables: ``class_members_N`` (``person``, ``class_id``), ``class_suppressed_N`` (``position``, ``row``) and
``class_levels_N`` (``class_id``, ``level_0``, ...) are the result of start N. During the rounds one of
``members_0`` and ``members_1`` has the current persons, and likewise one of ``class_attributes_0`` and
``class_attributes_1`` the current attributes: ``class_id``, ``attribute``, ``level``, ``is_final``, ``has_failed``.

Source: LeFevre, DeWitt and Ramakrishnan, Mondrian multidimensional k-anonymity (2006); the cuts here are of persons.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from sqlglot import exp

from sqlanon.linked.check.kept_rows import KeptRows
from sqlanon.linked.classes.class_snapshot import ClassSnapshot
from sqlanon.linked.search import LinkedTask
from sqlanon.policy.linked_sections import LinkedSearchSection
from sqlanon.strategies.full_domain.optimal import optimal
from sqlanon.strategies.lattice.limits import Budget, Clock
from sqlanon.support.coding import Levels, code_column, level_leaves
from sqlanon.support.expressions import all_of, as_column, col, fragment, number, subquery, template, union_all

_FULL_DOMAIN_CHECKS = 200
"""Maximum number of checks of the search for the first start."""

_MAX_RETURNS = 3
"""Maximum number of new classes that stay behind with persons who could not stay there alone."""

_STEPS = template(
    "SELECT :attribute AS attribute, :level AS level, :next_level AS next_level, :gain::DOUBLE AS gain, :rank AS rank"
)

_FIRST_ATTRIBUTES = template("""
    SELECT c.class_id, a.attribute, a.level, false AS is_final, false AS has_failed
    FROM (SELECT DISTINCT class_id FROM :members AS members) AS c
    CROSS JOIN (:levels) AS a
""")

_CLASS_LEVELS = template("SELECT class_id, :levels FROM :attributes AS a GROUP BY class_id")

_MOVES = template("""
    SELECT class_id, attribute, level, next_level, gain
    FROM (
        SELECT
            a.class_id,
            a.attribute,
            a.level,
            s.next_level,
            s.gain,
            row_number() OVER (PARTITION BY a.class_id ORDER BY s.rank) AS rank
        FROM :attributes AS a
        JOIN :steps AS s ON a.attribute = s.attribute AND a.level = s.level
        WHERE NOT a.is_final AND NOT a.has_failed
    ) AS possible
    WHERE rank = 1
""")

# The persons of classes that take a step, in the classes that it leads to.
_TRIALS = template("""
    SELECT
        members.person,
        members.class_id AS parent_class,
        (dense_rank() OVER (ORDER BY members.class_id, :code) - 1)::INTEGER AS class_id
    FROM :members AS members
    JOIN :moves AS moves ON members.class_id = moves.class_id
    JOIN :persons AS r ON members.person = r.person
""")

_TRIAL_LEVELS = template("""
    SELECT t.class_id, :levels
    FROM (SELECT DISTINCT class_id, parent_class FROM :trials AS t) AS t
    JOIN :moves AS moves ON t.parent_class = moves.class_id
    JOIN :former AS former ON t.parent_class = former.class_id
""")

_LEVEL = fragment("max(CASE WHEN attribute = :i THEN level END)::TINYINT")
_LOWERED = fragment("CASE WHEN moves.attribute = :i THEN moves.next_level ELSE :former END")

_ENTROPY = template("""
    WITH label_counts AS (
        SELECT sum(rows)::DOUBLE AS row_count FROM :coded AS coded GROUP BY :code
    ),
    shares AS (
        SELECT row_count / sum(row_count) OVER () AS share FROM label_counts
    )
    SELECT sum(-share * log2(share)) FROM shares
""")

_STAYERS = template("""
    SELECT t.person, t.parent_class AS class_id
    FROM :trials AS t
    ANTI JOIN :followers AS followers ON t.person = followers.person
    WHERE :of_classes
""")

_STEP_COUNTS = template("""
    SELECT
        t.parent_class,
        count(followers.person) AS following,
        count(*) - count(followers.person) - count(s.person) AS unassigned
    FROM :trials AS t
    LEFT JOIN :followers AS followers ON t.person = followers.person
    LEFT JOIN :stayers AS s ON t.person = s.person
    GROUP BY t.parent_class
""")

# For each class with unassigned persons, the smallest of its new classes, if there are several.
_RETURNING_CLASSES = template("""
    WITH sizes AS (
        SELECT
            t.parent_class,
            followers.class_id,
            count(*) AS persons,
            count(*) OVER (PARTITION BY t.parent_class) AS classes
        FROM :followers AS followers
        JOIN :trials AS t ON followers.person = t.person
        GROUP BY t.parent_class, followers.class_id
    )
    SELECT parent_class, class_id
    FROM (
        SELECT
            sizes.*,
            row_number() OVER (PARTITION BY sizes.parent_class ORDER BY sizes.persons, sizes.class_id) AS rank
        FROM sizes
        JOIN :step_counts AS c ON sizes.parent_class = c.parent_class
        WHERE c.unassigned > 0 AND sizes.classes > 1
    ) AS ordered
    WHERE rank = 1
""")

# Steps are taken if all persons are assigned, or if the limit allows to suppress the others, the best steps first.
_TAKEN_STEPS = template("""
    WITH gains AS (
        SELECT c.parent_class, c.following, c.unassigned, moves.gain * c.following AS gain
        FROM :step_counts AS c
        JOIN :moves AS moves ON c.parent_class = moves.class_id
        WHERE c.following > 0
    ),
    costly AS (
        SELECT
            parent_class,
            sum(unassigned) OVER (
                ORDER BY gain / unassigned DESC, parent_class ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
            ) AS suppressed
        FROM gains
        WHERE unassigned > 0 AND gain >= unassigned
    )
    SELECT parent_class FROM gains WHERE unassigned = 0
    UNION ALL
    SELECT parent_class FROM costly WHERE suppressed <= :allowed
""")

_NEXT_MEMBERS = template("""
    SELECT person, class_id FROM :members AS members ANTI JOIN :taken AS taken ON members.class_id = taken.parent_class
    UNION ALL
    SELECT s.person, s.class_id FROM :stayers AS s SEMI JOIN :taken AS taken ON s.class_id = taken.parent_class
    UNION ALL
    SELECT person, class_id FROM :arrivals AS arrivals
""")

_ARRIVALS = template("""
    SELECT
        followers.person,
        t.parent_class,
        (dense_rank() OVER (ORDER BY followers.class_id) + :last_class)::INTEGER AS class_id
    FROM :followers AS followers
    JOIN :trials AS t ON followers.person = t.person
    SEMI JOIN :taken AS taken ON t.parent_class = taken.parent_class
""")

# New classes have the levels of their former class, except for the attribute of the step. The persons who stay behind
# never try that attribute again.
_NEXT_ATTRIBUTES = template("""
    WITH new_classes AS (SELECT DISTINCT class_id, parent_class FROM :arrivals AS arrivals),
    remaining AS (SELECT DISTINCT class_id FROM :next_members AS members)
    SELECT
        n.class_id,
        a.attribute,
        CASE WHEN a.attribute = moves.attribute THEN moves.next_level ELSE a.level END AS level,
        a.is_final,
        false AS has_failed
    FROM new_classes AS n
    JOIN :attributes AS a ON n.parent_class = a.class_id
    JOIN :moves AS moves ON n.parent_class = moves.class_id
    UNION ALL
    SELECT
        a.class_id,
        a.attribute,
        a.level,
        a.is_final OR (taken.parent_class IS NOT NULL AND a.attribute = moves.attribute) AS is_final,
        taken.parent_class IS NULL AND (a.has_failed OR coalesce(a.attribute = moves.attribute, false)) AS has_failed
    FROM :attributes AS a
    SEMI JOIN remaining ON a.class_id = remaining.class_id
    LEFT JOIN :moves AS moves ON a.class_id = moves.class_id
    LEFT JOIN :taken AS taken ON a.class_id = taken.parent_class
""")


@dataclass(frozen=True)
class Step:
    """The tables of a round in which classes try one step each."""

    moves: exp.Table
    """The step of each class."""
    trials: exp.Table
    """The persons of these classes, in the classes that the steps lead to."""
    followers: exp.Table
    """The persons of ``trials`` who can stay in their new class."""
    stayers: exp.Table
    """The persons of ``trials`` who can stay at the former levels."""
    former: exp.Table
    """The former levels of the classes."""

    def count_persons(self) -> exp.Select:
        """The persons who follow, and the persons who are in neither group, by former class."""
        return _STEP_COUNTS(trials=self.trials, followers=self.followers, stayers=self.stayers)


class Mondrian:
    """The classes of persons, and the rounds that divide them and lower their levels.

    It begins with what the snapshot of the task keeps at the levels of a start, which has a number.
    """

    def __init__(self, task: LinkedTask, start: Levels, start_index: int, allowed: int) -> None:
        self.task, self.records, self.start, self.start_index = task, task.records, start, start_index
        self.class_snapshot = ClassSnapshot(task.peeling.snapshot)
        self.rounds = 0
        self.allowed = allowed
        """The number of persons that may still be suppressed."""
        self.steps = self.class_snapshot.create("steps", union_all(*self._list_steps()))
        self.members = self._first_members()
        levels = template("SELECT :attribute AS attribute, :level AS level")
        top = union_all(*(levels(attribute=i, level=level) for i, level in enumerate(start)))
        self.attributes = self.class_snapshot.create(
            "class_attributes_0", _FIRST_ATTRIBUTES(members=self.members, levels=top)
        )
        self.last_class = self._fetch(template("SELECT max(class_id) FROM :members AS members")(members=self.members))

    def run(self) -> LinkedClasses:
        """Take steps until no class can take any, or a limit is reached: classes can be released at any time."""
        search = self.records.policy.search
        seconds = None if search.time_limit is None else search.time_limit / 4
        clock = Clock(Budget(seconds, search.max_checks))
        with clock.until_limit():
            while True:
                moves = self.class_snapshot.create("moves", _MOVES(attributes=self.attributes, steps=self.steps))
                if not self.class_snapshot.snapshot.runner.count(moves):
                    break
                clock.spend()
                self.rounds += 1
                self._take_steps(moves)
                waiting_classes = self.class_snapshot.snapshot.runner.count(moves)
                self.task.progress(waiting_classes, self.rounds, None)
        return self._create_result()

    def _create_result(self) -> LinkedClasses:
        """Copy the classes to the tables of the start, and drop the others."""
        create, select_all = self.class_snapshot.create, template("SELECT * FROM :rows AS rows")
        levels = create(f"class_levels_{self.start_index}", self._select_levels(self.attributes))
        members = create(f"class_members_{self.start_index}", select_all(rows=self.members))
        suppressed_rows, snapshot = None, self.class_snapshot.snapshot
        if snapshot.suppresses_rows:
            query = select_all(rows=snapshot.suppressed_rows)
            suppressed_rows = create(f"class_suppressed_{self.start_index}", query)
        self.class_snapshot.drop_all_except(levels, members, *filter(None, [suppressed_rows]))
        return _measure_classes(KeptRows(self.records, members, suppressed_rows), levels, self.start, self.rounds)

    # --- The start

    def _first_members(self) -> exp.Table:
        """The persons whom the highest levels keep."""
        snapshot = self.class_snapshot.snapshot
        query = template("SELECT person, (dense_rank() OVER (ORDER BY class_id) - 1)::INTEGER AS class_id FROM :p AS p")
        members = query(p=snapshot.kept_persons)
        if self.class_snapshot.known != "all":
            return self.class_snapshot.create("members_0", members)
        first = self.class_snapshot.create("trial_members", members)
        return self.class_snapshot.find_shared_signatures("members_0", first, self._create_start_levels(first))

    def _create_start_levels(self, members: exp.Table) -> exp.Table:
        levels = [as_column(number(level), f"level_{i}") for i, level in enumerate(self.start)]
        query = template("SELECT DISTINCT class_id, :levels FROM :members AS members")
        return self.class_snapshot.create("trial_levels", query(levels=levels, members=members))

    def _list_steps(self) -> Iterator[exp.Select]:
        """The steps that levels allow: from a level to the next lower one.

        ``gain`` is the fall in loss if all rows took the step, and ``rank`` orders steps by their gain for each bit
        that the step reveals to an attacker about a person: by labels that are rare, and by each known row.
        """
        lattice, measure, records = self.records.lattice, self.task.lattice.measure, self.records
        ranked: list[tuple[float, int, int, int, float]] = []
        for i, (lowest, highest) in enumerate(zip(lattice.bottom, self.start, strict=True)):
            forbidden = lattice.forbidden[i] if lattice.forbidden else frozenset()
            levels = [level for level in range(highest, lowest - 1, -1) if level not in forbidden]
            for level, next_level in pairwise(levels):
                losses = [
                    measure.bound((*lattice.bottom[:i], step_level, *lattice.bottom[i + 1 :]))
                    for step_level in (level, next_level)
                ]
                gain = losses[0] - losses[1]
                bits = (self._entropy(i, next_level) - self._entropy(i, level)) * self._mean_known_rows(
                    records.owners[i]
                )
                ranked.append((round(-gain / max(bits, 1e-9), 9), i, level, next_level, gain))
        for rank, (_, i, level, next_level, gain) in enumerate(sorted(ranked)):
            yield _STEPS(attribute=i, level=level, next_level=next_level, gain=gain, rank=rank)
        yield template("SELECT -1 AS attribute, 0 AS level, 0 AS next_level, 0::DOUBLE AS gain, 0 AS rank LIMIT 0")()

    def _entropy(self, i: int, level: int) -> float:
        """The entropy of the labels of a quasi-identifier at a level, in bits."""
        attribute = self.records.attributes[i]
        if level == attribute.height:
            return 0.0
        query = _ENTROPY(coded=attribute.table, code=col(f"code_{level}"))
        return float(self.records.engine.rows(query)[0][0] or 0)

    def _mean_known_rows(self, position: int) -> float:
        """The mean number of rows of a person in a table, at most the number that an attacker knows."""
        mean_rows = self.records.tables[position].rows / self.records.persons
        return (
            mean_rows
            if not position or self.class_snapshot.known == "all"
            else min(mean_rows, self.class_snapshot.known)
        )

    # --- A round

    def _take_steps(self, moves: exp.Table) -> None:
        create, step = self.class_snapshot.create, self._try_steps(moves)
        step_counts = create("step_counts", step.count_persons())
        for _ in range(_MAX_RETURNS):
            query = _RETURNING_CLASSES(followers=step.followers, trials=step.trials, step_counts=step_counts)
            returning = create("returning", query)
            if not self.class_snapshot.snapshot.runner.count(returning):
                break
            self._return_smallest_classes(returning, step)
            step_counts = create("step_counts", step.count_persons())
        taken = create("taken", _TAKEN_STEPS(step_counts=step_counts, moves=moves, allowed=self.allowed))
        suppressed = template(
            "SELECT coalesce(sum(unassigned), 0) FROM :step_counts AS c SEMI JOIN :taken AS taken USING (parent_class)"
        )
        self.allowed -= self._fetch(suppressed(step_counts=step_counts, taken=taken))
        self._store_classes(step, taken)

    def _try_steps(self, moves: exp.Table) -> Step:
        """Find who can follow the moves, and who can stay behind."""
        create, class_snapshot = self.class_snapshot.create, self.class_snapshot
        of_moving = template("SELECT a.* FROM :attributes AS a SEMI JOIN :moves AS moves USING (class_id)")
        moving = subquery(of_moving(attributes=self.attributes, moves=moves), "a")
        former = create("former_levels", self._select_levels(moving))
        persons = self.records.tables[0].records
        trials = create(
            "trial_members", _TRIALS(members=self.members, moves=moves, persons=persons, code=self._dividing_code())
        )
        names = [f"level_{i}" for i in range(len(self.records.names))]
        levels = [as_column(_LOWERED(i=i, former=col(name, "former")), name) for i, name in enumerate(names)]
        trial_levels = create("trial_levels", _TRIAL_LEVELS(levels=levels, trials=trials, moves=moves, former=former))
        if class_snapshot.known == "all":
            followers = class_snapshot.find_shared_signatures("followers", trials, trial_levels)
        else:
            followers = create("followers", template("SELECT person, class_id FROM :trials AS t")(trials=trials))
            class_snapshot.peel(followers, trial_levels)
        step = Step(moves, trials, followers, class_snapshot.snapshot.work("stayers"), former)
        self._keep_stayers("stayers", step, exp.true())
        return step

    def _keep_stayers(self, target: str, step: Step, of_classes: exp.Expr) -> exp.Table:
        """The persons who do not follow, and can stay at the former levels."""
        query = _STAYERS(trials=step.trials, followers=step.followers, of_classes=of_classes)
        stayers = self.class_snapshot.create(target, query)
        if self.class_snapshot.known == "all":  # the persons of a class have the same signature at the former levels
            self.class_snapshot.remove_small_classes(stayers)
        else:
            self.class_snapshot.peel(stayers, step.former)
        return stayers

    def _return_smallest_classes(self, returning: exp.Table, step: Step) -> None:
        """Let new classes stay behind."""
        runner = self.class_snapshot.snapshot.runner
        of_followers = template("SELECT person FROM :followers AS followers SEMI JOIN :returning AS r USING (class_id)")
        persons = self.class_snapshot.create(
            "returning_persons", of_followers(followers=step.followers, returning=returning)
        )
        self.class_snapshot.delete_persons(step.followers, persons)
        of_returning = template("SELECT t.person FROM :trials AS t SEMI JOIN :returning AS r USING (parent_class)")
        persons = self.class_snapshot.create("returning_persons", of_returning(trials=step.trials, returning=returning))
        self.class_snapshot.delete_persons(step.stayers, persons)
        classes = template("SELECT parent_class FROM :returning AS r")(returning=returning)
        of_classes = exp.In(this=col("parent_class", "t"), query=subquery(classes))
        returned_stayers = self._keep_stayers("returned_stayers", step, of_classes)
        runner.add(step.stayers, template("SELECT person, class_id FROM :returned AS r")(returned=returned_stayers))

    def _store_classes(self, step: Step, taken: exp.Table) -> None:
        create, parity = self.class_snapshot.create, self.rounds % 2
        query = _ARRIVALS(followers=step.followers, trials=step.trials, taken=taken, last_class=self.last_class)
        arrivals = create("arrivals", query)
        query = _NEXT_MEMBERS(members=self.members, taken=taken, stayers=step.stayers, arrivals=arrivals)
        members = create(f"members_{parity}", query)
        query = _NEXT_ATTRIBUTES(
            arrivals=arrivals, next_members=members, attributes=self.attributes, moves=step.moves, taken=taken
        )
        self.attributes = create(f"class_attributes_{parity}", query)
        self.members = members
        max_class = template("SELECT coalesce(max(class_id), :last) FROM :arrivals AS a")
        self.last_class = self._fetch(max_class(arrivals=arrivals, last=self.last_class))

    def _dividing_code(self) -> exp.Expr:
        """The codes that divide the persons ``r`` of a class at a step in ``moves``, by an attribute of persons."""
        code = exp.Case(this=col("attribute", "moves"), default=number(0))
        for i in self.records.tables[0].attribute_numbers:
            at_level = exp.Case(this=col("next_level", "moves"), default=number(0))
            for level in range(self.records.attributes[i].height):
                at_level = at_level.when(number(level), col(code_column(i, level), "r"), copy=False)
            if at_level.args["ifs"]:
                code = code.when(number(i), at_level, copy=False)
        return code if code.args.get("ifs") else number(0)

    def _select_levels(self, attributes: exp.Expr) -> exp.Select:
        levels = [as_column(_LEVEL(i=i), f"level_{i}") for i in range(len(self.records.names))]
        return _CLASS_LEVELS(levels=levels, attributes=attributes)

    def _fetch(self, query: exp.Query) -> int:
        return int(self.class_snapshot.snapshot.runner.engine.rows(query)[0][0] or 0)


@dataclass(frozen=True)
class LinkedClasses:
    """The classes of a result, with its figures by quasi-identifier and by table."""

    class_levels: exp.Table
    """The levels of each class."""
    kept_rows: KeptRows
    score: float
    used_levels: tuple[tuple[int, ...], ...]
    """By quasi-identifier, the levels of its labels in the release, from low to high."""
    losses: tuple[float, ...]
    """By quasi-identifier."""
    released_rows: tuple[int, ...]
    """By table."""
    classes: int
    rounds: int

    @property
    def levels(self) -> tuple[int | None, ...]:
        """The level of all labels of each quasi-identifier; None if they have several."""
        return tuple(levels[0] if len(levels) == 1 else None for levels in self.used_levels)


def full_domain_budget(search: LinkedSearchSection) -> Budget:
    """The limits of the search for the first start: half of the time, which both starts share."""
    seconds = None if search.time_limit is None else search.time_limit / 2
    checks = _FULL_DOMAIN_CHECKS if search.max_checks is None else min(search.max_checks, _FULL_DOMAIN_CHECKS)
    return Budget(seconds, checks)


def divide_persons(task: LinkedTask) -> LinkedClasses | None:
    """Divide the persons into classes with separate levels; None if no start suppresses few enough."""
    outcome = optimal(task.lattice)
    starts = dict.fromkeys(levels for levels in (outcome.levels, task.records.lattice.top) if levels is not None)
    best: LinkedClasses | None = None
    for start_index, start in enumerate(starts):
        peeling_result = task.peeling.suppress_rows_and_persons(start, task.allowed_persons, task.allowed_rows)
        suppressed = peeling_result.suppressed_persons
        if peeling_result.is_complete and suppressed <= task.allowed_persons and suppressed < task.records.persons:
            mondrian = Mondrian(task, start, start_index, task.allowed_persons - suppressed)
            classes = mondrian.run()
            if best is None or classes.score < best.score * (1 - 1e-12):
                best = classes
    return best


def _measure_classes(kept_rows: KeptRows, class_levels: exp.Table, start: Levels, rounds: int) -> LinkedClasses:
    """Count the released rows, and the loss of each quasi-identifier: a suppressed row counts 1."""
    records = kept_rows.records
    rows = records.engine.rows
    used_levels: list[tuple[int, ...]] = []
    losses: list[float] = []
    released_rows: list[int] = []
    for position, table in enumerate(records.tables):
        released = kept_rows.count_rows(position)
        released_rows.append(released)
        for i in table.attribute_numbers:
            query = _level_figures(kept_rows, class_levels, position, i)
            figures = {int(level): float(leaf_sum) for level, leaf_sum in rows(query)}
            used_levels.append(tuple(sorted(figures)) or (start[i],))
            span = max(records.hierarchies[i].leaves - 1, 1)
            losses.append((math.fsum(figures.values()) / span + table.rows - released) / max(table.rows, 1))
    class_count = template("SELECT count(DISTINCT class_id) FROM :members AS members")(members=kept_rows.persons)
    weights = records.weights
    return LinkedClasses(
        class_levels,
        kept_rows,
        math.fsum(map(operator.mul, weights, losses)) / math.fsum(weights),
        tuple(used_levels),
        tuple(losses),
        tuple(released_rows),
        int(rows(class_count)[0][0]),
        rounds,
    )


def _level_figures(kept_rows: KeptRows, class_levels: exp.Table, position: int, i: int) -> exp.Select:
    """The sum over released rows of the leaves under their label, less one each, by level of a quasi-identifier."""
    attribute, hierarchy = kept_rows.records.attributes[i], kept_rows.records.hierarchies[i]
    level = col(f"level_{i}", "class_levels")
    leaves = exp.Case(this=level.copy(), default=number(0))
    query = template("""
        SELECT 1
        FROM :rows AS r
        JOIN :members AS members ON r.person = members.person
        JOIN :levels AS class_levels ON members.class_id = class_levels.class_id
    """)(rows=kept_rows.select_records(position), members=kept_rows.persons, levels=class_levels)
    query.set("expressions", [])
    for inner in range(attribute.lowest_labelled, attribute.height):
        name = f"leaves_{inner}"
        on = all_of((level.eq(number(inner)), col(code_column(i, inner), "r").eq(col("code", name))))
        query = query.join(subquery(level_leaves(attribute, inner), name), on=on, join_type="left", copy=False)
        leaves = leaves.when(number(inner), col("leaves", name), copy=False)
    if attribute.height:
        leaves = leaves.when(number(attribute.height), number(hierarchy.leaves - 1), copy=False)
    summed = template("SELECT sum(:leaves)::DOUBLE AS leaf_sum")(leaves=leaves)
    query = query.select(as_column(level.copy(), "level"), *summed.expressions, copy=False)
    return query.group_by(level.copy(), copy=False)
