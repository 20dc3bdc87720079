"""Steps of strategy local and of its groups on small tables, compared with plain Python."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Callable

import pytest
from plain_counts import Counts
from small_tasks import Small, best_levels, draw_rows, generalizations, letters, small_task
from sqlglot import exp
from step_queries import price_of, query

from oracles.oracle import Row
from properties.local_tasks import Plain
from sqlanon.strategies.local import k_similar, local
from sqlanon.strategies.local.core.groups import UNIT, Groups, cheapest_classes, unassigned_combinations
from sqlanon.strategies.local.core.task import LocalOutcome, LocalTask
from sqlanon.support.coding import Levels
from sqlanon.support.expressions import table, template
from support.databases import insert

A, B, C = letters("a", 4, 2), letters("b", 4, 2), letters("c", 3)
TABLES = {name: table(name) for name in ("offers", "members", "classes", "combinations")}
CLASSES = "class_id INTEGER, row_count BIGINT, price BIGINT"


@pytest.mark.parametrize(("rows", "price"), [(3, 1), (4, 4), (5, 4), (9, 4), (10, 7)])
def test_the_threshold_is_the_least_price_of_groups_with_enough_rows(rows: int, price: int) -> None:
    classes = [(0, 3, 1), (2, 2, 4), (4, 4, 4), (5, 1, 7)]
    threshold = local.price_threshold(classes=table("classes"), rows=rows)
    assert query(threshold, classes=(CLASSES, classes)) == [(price,)]


def test_groups_up_to_the_threshold_stay() -> None:
    classes = [(0, 3, 1), (2, 2, 4), (4, 4, 5)]
    members = local.members_up_to_price(members=table("members"), classes=table("classes"), price=4)
    cells = ("combination INTEGER, class_id INTEGER", [(0, 0), (1, 0), (2, 2), (4, 4)])
    assert query(members, members=cells, classes=(CLASSES, classes)) == [(0, 0), (1, 0), (2, 2)]
    assert (
        query(local.classes_up_to_price(classes=table("classes"), price=4), classes=(CLASSES, classes)) == classes[:2]
    )


Numbers = dict[int, int]


def moves(members: Numbers, n: Numbers, prices: Numbers, offers: dict[int, Row], least: int) -> list[Row]:
    """Groups that go, all of them, as that costs less; of each other one the member that saves most, if enough stay."""
    groups = defaultdict(list)
    for c, cell in members.items():
        groups[cell].append(c)
    steps = []
    for cell, some in groups.items():
        size = sum(n[c] for c in some)
        whole = all(c in offers for c in some) and sum(offers[c][1] for c in some) < size * prices[cell]
        saved = {c: n[c] * prices[cell] - offers[c][1] for c in some if c in offers}
        may = [c for c in saved if saved[c] > 0 and size - n[c] >= least]
        going = some if whole else sorted(may, key=lambda c: (-saved[c], c))[:1]
        steps += [(c, offers[c][0]) for c in going]
    return sorted(steps)


def test_combinations_move_to_a_cheaper_class() -> None:
    members = {0: 0, 1: 0, 2: 2, 3: 2, 4: 4, 5: 4, 6: 6, 7: 6, 8: 8, 9: 8, 10: 10, 11: 10}
    n = {0: 2, 1: 2, 2: 2, 3: 3, 4: 3, 5: 3, 6: 1, 7: 4, 8: 2, 9: 2, 10: 3, 11: 3}
    prices = {0: 10, 2: 10, 4: 10, 6: 10, 8: 10, 10: 10}
    offers: dict[int, Row] = {
        0: (2, 15), 1: (4, 24),  # together less than 40: both go
        2: (0, 19), 3: (0, 31),  # together as much as before; one saves something, and three rows stay
        4: (0, 20), 5: (0, 20),  # together less
        6: (0, 5), 7: (0, 46),  # one would save, and just enough stay
        8: (0, 15),  # no offer for the other; too few would stay
        10: (0, 21), 11: (0, 20),  # both save, and go together
    }  # fmt: skip
    for least in (3, 4):
        moved = local.profitable_moves(**TABLES, least_class=least)
        size = {cell: sum(n[c] for c in members if members[c] == cell) for cell in prices}
        answer = query(
            moved,
            members=("combination INTEGER, class_id INTEGER", [*members.items()]),
            classes=(CLASSES, [(cell, size[cell], price) for cell, price in prices.items()]),
            combinations=("combination INTEGER, row_count BIGINT", [*n.items()]),
            offers=(
                "combination INTEGER, class_id INTEGER, added_price BIGINT",
                [(c, *offer) for c, offer in offers.items()],
            ),
        )
        assert answer == moves(members, n, prices, offers, least)


def test_the_combination_that_saves_most_leaves_first() -> None:
    members, n = [(0, 0), (1, 0), (2, 0), (3, 0)], [(0, 2), (1, 2), (2, 2), (3, 5)]
    moved = local.profitable_moves(**TABLES, least_class=3)
    offers = [(0, 9, 15), (1, 9, 12), (2, 9, 12), (3, 9, 90)]
    answer = query(
        moved,
        members=("combination INTEGER, class_id INTEGER", members),
        classes=(CLASSES, [(0, 11, 10)]),
        combinations=("combination INTEGER, row_count BIGINT", n),
        offers=("combination INTEGER, class_id INTEGER, added_price BIGINT", offers),
    )
    assert answer == [(1, 9)]


def test_a_group_has_the_number_of_its_least_member_after_moves() -> None:
    members = ("combination INTEGER, class_id INTEGER", [(0, 0), (1, 0), (2, 2), (3, 2)])
    going = ("combination INTEGER, class_id INTEGER", [(0, 2), (3, 0)])
    moved = local.members_after_moves(members=table("members"), moves=table("going"))
    assert query(moved, members=members, going=going) == [(0, 0), (1, 1), (2, 0), (3, 1)]


TAKEN = [
    Small(draw_rows(3, 30, [A, B, C], 0.5), [A, B, C], 3),
    Small(draw_rows(4, 30, [A, B], 0.5), [A, B], 3, weights=(1.0, 2.0), forbidden=[["aa0"], []]),
]


@pytest.mark.parametrize("breaks", [False, True])
def test_a_combination_joins_no_class_that_it_breaks(breaks: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rare sensitive value can break a class: a class with the last combination is infeasible, or none is."""
    with small_task(TAKEN[0]) as task:
        groups, places = Groups(task, "g"), sorted(Plain(task).n)
        last, assigned = places[-1], {c: c - c % 2 for c in places[:-1]}
        task.engine.connection.execute("CREATE TABLE cells (combination INTEGER, class_id INTEGER)")
        insert(task.engine.connection, "cells", [*assigned.items()])
        holds = template(
            "SELECT class_id, NOT (:breaks AND max(combination) = :last) AS kept FROM :members GROUP BY ALL"
        )
        monkeypatch.setattr(
            groups, "evaluate_members", lambda members: holds(breaks=breaks, last=last, members=members)
        )
        completed = groups.complete([table("cells")])
        members = dict(task.engine.rows(exp.select("combination", "class_id").from_(completed.members)))
        assert members.keys() == ({*assigned} if breaks else {*places})


@pytest.mark.parametrize("small", TAKEN)
def test_an_unassigned_combination_joins_the_class_that_costs_least_more(small: Small) -> None:
    with small_task(small) as task:
        plain, groups = Plain(task), Groups(task, "g")
        members = {c: c - c % 2 for c in plain.n if c % 6 < 4}
        task.engine.connection.execute("CREATE TABLE cells (combination INTEGER, class_id INTEGER)")
        insert(task.engine.connection, "cells", [*members.items()])
        best = groups.price_members(table("cells"))
        of_cell = {cell: [c for c in members if members[c] == cell] for cell in {*members.values()}}
        n = {cell: sum(plain.n[c] for c in some) for cell, some in of_cell.items()}
        prices = {cell: price_of(plain, some) or 0 for cell, some in of_cell.items()}
        loose = {*plain.n} - {*members}
        suppressed = sum(plain.n[c] for c in loose)
        assert best.rows == sum(n.values())
        assert best.price == sum(n[cell] * prices[cell] for cell in n) + suppressed * UNIT
        outside = groups.make(unassigned_combinations(combinations=groups.combinations, members=best.members))
        assert {row[0] for row in task.engine.rows(local.template("SELECT combination FROM :o")(o=outside))} == loose
        rows = task.engine.rows(cheapest_classes(outside, best.classes, groups.combinations, task.trees))
        options: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for c, cell in itertools.product(loose, of_cell):
            if (after := price_of(plain, [*of_cell[cell], c])) is not None:
                options[c].append(((n[cell] + plain.n[c]) * after - n[cell] * prices[cell], cell))
        assert sorted(rows) == sorted((c, cell, more) for c, (more, cell) in ((c, min(o)) for c, o in options.items()))


HELD = [
    *TAKEN,
    Small([*draw_rows(5, 30, [A, B, C], 0.5), ("?", "b0", "c0")], [A, B, C], 3, 4, spans=[(0, 1), (1, 2), (0, 1)]),
]


class Climb:
    """The path through the lattice, and the groups that are formed on it."""

    def __init__(self, plain: Plain, k: int) -> None:
        self.plain, self.k = plain, k
        self.left = {*plain.n}
        self.steps: list[tuple[Levels, Numbers]] = []

    def cells(self, levels: Levels) -> Numbers:
        """The feasible class of each unassigned combination, named by its least member."""
        plain = self.plain
        at = {c: nodes for c, nodes in plain.at(levels).items() if c in self.left}
        sizes: Counter[tuple[int, ...]] = Counter()
        for c, nodes in at.items():
            is_released = all(by[node].released for by, node in zip(plain.nodes, nodes, strict=True))
            sizes[nodes] += plain.n[c] if is_released else 0
        return {c: min(o for o in at if at[o] == nodes) for c, nodes in at.items() if sizes[nodes] >= self.k}

    def held(self, levels: Levels) -> int:
        return sum(self.plain.n[c] for c in self.cells(levels))

    def cost(self, levels: Levels) -> float:
        return self.plain.loss(self.plain.at(levels))

    def step(self, levels: Levels) -> None:
        self.steps.append((levels, self.cells(levels)))
        self.left -= {*self.steps[-1][1]}

    def run(self) -> None:
        trees = self.plain.task.trees
        levels, top = tuple(tree.floor for tree in trees), tuple(tree.ceiling for tree in trees)
        passed: set[Levels] = set()
        self.step(levels)
        while levels != top:
            higher = [(*levels[:i], low + 1, *levels[i + 1 :]) for i, low in enumerate(levels) if low < top[i]]
            held = {candidate: self.held(candidate) for candidate in higher}
            before = self.cost(levels)
            levels = max(
                higher,
                key=lambda candidate: ((held[candidate] + 0.5) / (self.cost(candidate) - before + 1e-6), candidate),
            )
            passed = (passed | {candidate for candidate in higher if held[candidate]}) - {levels}
            due = sorted(
                (self.cost(candidate), candidate)
                for candidate in passed
                if self.cost(candidate) <= self.cost(levels) + 1e-12
            )
            passed -= {candidate for _, candidate in due}
            left = sum(self.plain.n[c] for c in self.left)
            for due_levels in [candidate for _, candidate in due if self.held(candidate) > 0.02 * left]:
                self.step(due_levels)
            if held[levels]:
                self.step(levels)


@pytest.mark.parametrize("small", HELD)
def test_a_climb_matches_plain_python(small: Small) -> None:
    with small_task(small) as task:
        groups, climb = Groups(task, "g"), Climb(Plain(task), small.k)
        climb.run()
        steps = groups.climb(groups.combinations)
        grouped = [exp.select("combination", "class_id").from_(step).where("class_id IS NOT NULL") for step in steps]
        answers = [dict(task.engine.rows(statement)) for statement in grouped]
        assert answers == [cells for _, cells in climb.steps]
        assert len(answers) > 1


def test_feasible_and_unassigned_rows_are_those_that_may_be_released() -> None:
    small = TAKEN[1]
    with small_task(small) as task:
        plain, groups = Plain(task), Groups(task, "g")
        expected, most = {}, 0
        for levels in generalizations(task):
            at = {
                c: nodes
                for c, nodes in plain.at(levels).items()
                if all(by[node].released for by, node in zip(plain.nodes, nodes, strict=True))
            }
            sizes: Counter[tuple[int, ...]] = Counter()
            for c, nodes in at.items():
                sizes[nodes] += plain.n[c]
            expected[levels] = sum(size for size in sizes.values() if size >= small.k)
            most = max(most, sum(sizes.values()))
        assert groups.count_feasible_rows(groups.combinations, [*expected]) == (expected, most)
        assert groups.count_feasible_rows(groups.combinations, [(1, 0), (0, 0)])[1] == most


@pytest.mark.parametrize("most", [3, 7])
def test_whole_classes_are_counted_among_many_combinations(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sqlanon.strategies.local.core.groups.SAMPLE_COMBINATIONS", most)
    monkeypatch.setattr("sqlanon.strategies.local.core.groups.SAMPLED_ATTRIBUTES", 2)
    small = TAKEN[0]
    with small_task(small) as task:
        plain, groups = Plain(task), Groups(task, "g")
        parts = len(plain.n) // most
        assert parts > 1
        expected, row_counts = {}, []
        for levels in generalizations(task):
            sizes: Counter[tuple[int, ...]] = Counter()
            counts = [
                sum(node.level == level for node in by.values()) for by, level in zip(plain.nodes, levels, strict=True)
            ]
            finest = sorted(range(len(levels)), key=lambda i: -counts[i])[:2]
            for c, nodes in plain.at(levels).items():
                draw = sum(nodes[i] * (7919 ** (place + 1) % 1_000_003) for place, i in enumerate(finest))
                sizes[nodes] += plain.n[c] if draw * 48271 % 2147483647 % parts == 0 else 0
            expected[levels] = sum(size for size in sizes.values() if size >= small.k)
            row_counts.append(sum(sizes.values()))
        assert groups.count_feasible_rows(groups.combinations, [*expected]) == (expected, max(row_counts))
        assert any(expected.values())


@pytest.mark.cases(4)
@pytest.mark.parametrize("most", [100_000, 3])
@pytest.mark.parametrize("small", HELD)
def test_local_holds_and_costs_no_more_than_where_it_starts(
    small: Small, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where a part of the classes chooses the path."""
    monkeypatch.setattr("sqlanon.strategies.local.core.groups.SAMPLE_COMBINATIONS", most)
    small = best_levels(small)
    assert small.start is not None
    with small_task(small) as task:
        plain = Plain(task)
        assignment = plain.placed(local.local(task).assignment)
        assert plain.kept(assignment, small.k) == assignment
        assert sum(plain.n.values()) - plain.rows(assignment) <= plain.allowed
        assert plain.loss(assignment) <= plain.loss(plain.kept(plain.at(small.start), small.k)) + 1e-8


@pytest.mark.thorough
@pytest.mark.parametrize("strategy", [local.local, k_similar.k_similar])
@pytest.mark.parametrize("number", [2, 3])
def test_classes_that_shields_need_together_are_released_as_the_generalization_they_start_at(
    number: int, strategy: Callable[[LocalTask], LocalOutcome]
) -> None:
    """Some have fewer rows than the shield requires: at lower levels than the generalization, they would violate it."""
    small = Small(draw_rows(number, 18, [A, C], 0.5), [A, C], 2, 6, shields=[((0,), 5)], start=(1, 0))
    assert small.start is not None
    with small_task(small) as task:
        plain = Counts(task, small)
        at_start = plain.holding(plain.at(small.start))
        assert 2 <= min(map(plain.count, plain.classes(at_start).values())) < 5
        assignment = plain.placed(strategy(task).assignment)
        assert plain.holding(assignment) == assignment
        assert plain.can_suppress(assignment)
        assert plain.loss(assignment) <= plain.loss(at_start) + 1e-8
