"""Strategies mu-argus and subtree on tables that stand in the test: runs in plain Python, and borders."""

from __future__ import annotations

import importlib
from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest
from plain_argus import Argus
from plain_counts import Counts
from small_tasks import Small, best_levels, draw_rows, letters, small_task
from sqlglot import exp
from subtree_cuts import check_no_split_is_left, cut_of

from oracles.oracle import Hierarchy
from properties.local_tasks import Nodes
from sqlanon.frequency.packing import assign_words
from sqlanon.policy.guarantee import select_combinations
from sqlanon.strategies.local.mu_argus import mu_argus
from sqlanon.strategies.local.subtree import MAX_RAISES, NEW_NODE, SCALE, _CutSearch, _Split, subtree
from sqlanon.support.coding import Levels

module = importlib.import_module("sqlanon.strategies.local.mu_argus")
packing_module = importlib.import_module("sqlanon.frequency.packing")
subtree_module = importlib.import_module("sqlanon.strategies.local.subtree")

A, B, C, D = letters("a", 4, 2), letters("b", 4, 2), letters("c", 3), letters("d", 2)
CLASSES = [("most", "more", "identifying", "identifying"), ("more", "more", "most", "identifying"), ()]


# Strategy mu-argus


ARGUS = [
    Small(draw_rows(n, 30, [A, B, C, D], 0.6), [A, B, C, D], 2 + n % 3, limit, identification=CLASSES[n % 3])
    for n, limit in [(1, 6), (6, 10)]
] + [
    Small(draw_rows(7, 28, [A, B, C], 0.6), [A, B, C], 3, 8, spans=[(0, 1), (1, 2), (0, 1)]),
    Small([*draw_rows(8, 28, [A, B, C], 0.6), ("?", "b0", "c0")], [A, B, C], 3, 9, forbidden=[["aa1"], [], ["c*"]]),
    # All rows may be suppressed, and at first would be: no cell may be blanked.
    Small(draw_rows(11, 9, [A, B, C], 0.2), [A, B, C], 4, 9, spans=[(0, 1), (0, 1), (0, 0)]),
    # No level of the last attribute is permitted.
    Small(draw_rows(12, 14, [A, C, D], 0.5), [A, C, D], 2, 14, forbidden=[[], [], ["d0", "d*"]], start=(1, 1, 1)),
    Small(draw_rows(22, 16, [B, A, C], 0.4), [B, A, C], 2, 5, spans=[(0, 2), (0, 1), (0, 1)], start=(2, 1, 1)),
    Small([*draw_rows(42, 12, [A, D, B], 0.4), ("?", "d0", "b2")], [A, D, B], 2, 0, start=(2, 1, 2)),
    # Two rows of unknown values, which are among the three that may be suppressed.
    Small([*draw_rows(0, 14, [A, C], 0.5), *[("?", "c0")] * 2], [A, C], 2, 3, start=(2, 1)),
    # Of cells in as many unsafe combinations of a row, the one of the attribute with most of them is blanked.
    Small(draw_rows(0, 16, [A, C, D, B], 0.5), [A, C, D, B], 2, 12,
          identification=("identifying", "more", "more", "most"), start=(2, 1, 1, 2)),
    # Persons in several combinations, and in one each
    Small(draw_rows(2, 14, [A, D, C], 0.4), [A, D, C], 3, 1, persons=[(row * row + 2) % 12 for row in range(14)],
          start=(2, 1, 1)),
    Small([*draw_rows(10, 15, [A, C], 0.6), ("?", "c0")], [A, C], 3, 2, persons=[row // 2 for row in range(16)]),
    # One row is unsafe, and one may be suppressed. Without it, a second row is unsafe.
    Small([(*row, "d0") for row in [
              ("a0", "b0", "c0"), ("a0", "b0", "c1"),
              *[("a0", "b1", "c1"), ("a1", "b0", "c0"), ("a2", "b0", "c1")] * 2,
          ]], [A, B, C, D], 2, 1, identification=("identifying", "identifying", "identifying", "most"),
          spans=[(0, 1), (0, 1), (0, 0), (0, 0)], start=(1, 1, 0, 0)),
]  # fmt: skip


class ArgusOfPersons(Argus):
    """µ-Argus for persons: counts the persons of unsafe rows, and those who lose a row."""

    plain: Counts

    def count(self, combinations: Collection[int]) -> int:
        return self.plain.count(combinations)

    def can_suppress(self, retained: Collection[int]) -> bool:
        return self.plain.can_suppress(retained)


@pytest.mark.parametrize("small", ARGUS)
def test_mu_argus_matches_plain_python(small: Small) -> None:
    small = small if small.start else best_levels(small)
    with small_task(small) as task:
        combinations = select_combinations(
            {name: spec.identification for name, spec in task.search_input.policy.attributes.items()}
        )
        names = [tree.name for tree in task.trees]
        plain = Counts(task, small)
        argus = Argus if small.persons is None else ArgusOfPersons
        expected = argus(plain, [[names.index(name) for name in name] for name in combinations], small.k).run()
        if expected is None:
            assert small.start is not None
            expected = plain.holding(plain.at(small.start))
        assert plain.placed(mu_argus(task).assignment) == expected


def test_combinations_of_attributes_that_are_checked_apart_count_as_together(monkeypatch: pytest.MonkeyPatch) -> None:
    small = Small(draw_rows(2, 30, [A, B, C, D], 0.6), [A, B, C, D], 4, 9, start=(2, 2, 1, 1))
    with small_task(small) as task:
        tables = []
        for number, together in enumerate([64, 2]):
            monkeypatch.setattr(module, "MAX_CHECKED", together)
            argus = module._MuArgus(task)
            argus._number = 100 * number
            unsafe = argus._make_unsafe(argus._generalize([0] * 4), argus.subsets)
            assert len(argus.subsets) > 2
            tables.append(sorted(task.engine.rows(exp.select("*").from_(unsafe))))
        assert tables[0] == tables[1] and tables[0]
        names = task.engine.rows(exp.select("table_name").from_("duckdb_tables").where("table_name LIKE '%unsafe%'"))
        assert len(names) == 2


# Strategy subtree


UNEVEN = Hierarchy({
    "u0": ("u0", "p", "s", "*"), "u1": ("u1", "p", "s", "*"), "u2": ("u2", "q", "s", "*"), "u3": ("u3", "q", "s", "*"),
    "u4": ("u4", "r", "t", "*"), "u5": ("u5", "r", "t", "*"),
})  # fmt: skip


SUBTREE = [
    Small(draw_rows(2, 36, [UNEVEN, B, C], 0.6), [UNEVEN, B, C], 3, 3, weights=(1.0, 3.0, 0.5)),
    Small([*draw_rows(6, 30, [UNEVEN, B], 0.6), ("?", "b0")], [UNEVEN, B], 3, 4, forbidden=[["p"], []]),
    Small(draw_rows(7, 30, [UNEVEN, B], 0.6), [UNEVEN, B], 3, 3, spans=[(1, 3), (0, 1)]),
    # Splitting at once what was raised leads to another cut.
    Small(draw_rows(40, 24, [A, B], 0.6), [A, B], 2),
]


def persons_of(rows: int, count: int, shift: int) -> list[int]:
    return [(row * row + shift) % count for row in range(rows)]


COUNTED = [
    # Persons in several combinations or in one each, and with an unknown value; shields; few moves up.
    (Small([*draw_rows(486, 12, [C, A], 0.5), ("?", "a1")], [C, A], 2, 2, persons=persons_of(13, 12, 486),
           forbidden=[[], ["aa0"]], start=(1, 2)), 1),
    (Small([*draw_rows(206, 11, [A, B], 0.6), ("?", "b0")], [A, B], 3, 1, forbidden=[["aa0"], ["bb1"]],
           start=(2, 2)), 2),
    (Small(draw_rows(63, 11, [B, C], 0.5), [B, C], 3, 2, persons=persons_of(11, 8, 63), forbidden=[["bb1"], []],
           start=(2, 1)), 2),
    (Small(draw_rows(26, 10, [C, D], 0.5), [C, D], 3, 1, persons=persons_of(10, 9, 26), shields=[((1,), 4)],
           start=(1, 0)), 1),
    (Small(draw_rows(294, 12, [C, A], 0.3), [C, A], 3, 2, persons=persons_of(12, 8, 294), start=(0, 1)), 32),
    (Small(draw_rows(406, 12, [B, C], 0.6), [B, C], 2, 1, persons=persons_of(12, 11, 406),
           shields=[((0,), 4), ((1,), 3)], start=(2, 0)), 32),
    (Small(draw_rows(6, 16, [A, C], 0.5), [A, C], 2, 1, persons=[row * row % 7 for row in range(16)],
           start=(2, 1)), 32),
    (Small([*draw_rows(17, 13, [A, C], 0.4), ("?", "c0")], [A, C], 2, 3, weights=(1.0, 2.5), start=(1, 1)), 1),
]  # fmt: skip


@dataclass
class Cut:
    """The nodes of each combination, the price, the number of suppressed rows, the kept classes, and the losing
    persons."""

    nodes: dict[int, Nodes]
    price: int = 0
    lost: int = 0
    kept: dict[Nodes, bool] = field(default_factory=dict)
    losers: set[Any] = field(default_factory=set)


@dataclass
class Splits:
    """The documented search for cuts. A cut by itself meets the shields, except for the generalization at the start."""

    plain: Counts
    most_raises: int = MAX_RAISES

    def __post_init__(self) -> None:
        plain, task = self.plain, self.plain.task
        weights = sum(tree.weight for tree in task.trees)
        self.k = plain.least
        self.suppressed = SCALE + sum(tree.height for tree in task.trees) + 1
        self.costs = [
            {node: round(value_node.leaves * SCALE * tree.weight / weights / (tree.leaves - 1)) + value_node.level
             for node, value_node in by.items()}
            for by, tree in zip(plain.nodes, task.trees, strict=True)
        ]  # fmt: skip
        self.attributes = range(len(task.trees))
        # By attribute and ground node the nodes above it that may be released, itself with them.
        self.paths = [
            {
                paths[i][0]: [node for node in paths[i] if plain.nodes[i][node].released]
                for paths in plain.paths.values()
            }
            for i in self.attributes
        ]
        self.persons = plain.persons
        self.most_persons = task.search_input.limit.persons or 0

    def holding(self, nodes: dict[int, Nodes]) -> dict[Nodes, bool]:
        members: dict[Nodes, list[int]] = defaultdict(list)
        for combination, its in nodes.items():
            members[its].append(combination)
        return {its: self.plain.count(some) >= self.k for its, some in members.items()}

    def price(self, nodes: dict[int, Nodes], is_kept: dict[Nodes, bool]) -> tuple[int, int]:
        """Cost of the rows of these combinations, and the number of suppressed ones."""
        price = lost = 0
        for combination, its in nodes.items():
            cost = sum(by[node] for by, node in zip(self.costs, its, strict=True)) if is_kept[its] else self.suppressed
            price += self.plain.n[combination] * cost
            lost += 0 if is_kept[its] else self.plain.n[combination]
        return price, lost

    def losers(self, nodes: dict[int, Nodes], is_kept: dict[Nodes, bool]) -> set[Any]:
        lost = {combination for combination, its in nodes.items() if not is_kept[its]}
        return {person for person, places in self.persons.items() if places & lost}

    def cut(self, nodes: dict[int, Nodes], as_generalization: bool = False) -> Cut:
        is_kept = self.holding(nodes)
        if as_generalization:
            together = self.plain.holding(nodes)
            is_kept = {its: c in together for c, its in nodes.items()}
        unknown = {person for person, places in self.persons.items() if None in places}
        return Cut(nodes, *self.price(nodes, is_kept), is_kept, self.losers(nodes, is_kept) | unknown)

    def is_allowed(self, cut: Cut) -> bool:
        return cut.lost <= self.plain.allowed and len(cut.losers) <= self.most_persons

    def below(self, i: int, node: int) -> dict[int, int] | None:
        """The highest node below a node, by ground node; None where a ground node has none."""
        paths = {ground: path[: path.index(node)] for ground, path in self.paths[i].items() if node in path}
        return {ground: path[-1] for ground, path in paths.items()} if all(paths.values()) else None

    def replaced(self, nodes: dict[int, Nodes], i: int, new: dict[int, int]) -> dict[int, Nodes]:
        """Replace the nodes of an attribute, by ground node."""
        return {
            combination: (*its[:i], new.get(self.plain.paths[combination][i][0], its[i]), *its[i + 1 :])
            for combination, its in nodes.items()
        }

    def splits(self, cut: Cut, i: int) -> list[_Split]:
        candidates = []
        for node in {its[i] for its in cut.nodes.values()}:
            if (below := self.below(i, node)) is None:
                continue
            before = {combination: its for combination, its in cut.nodes.items() if its[i] == node}
            after = self.replaced(before, i, below)
            is_kept = self.holding(after)
            (price, lost), (less, more_lost) = self.price(before, cut.kept), self.price(after, is_kept)
            if price > less:
                persons = len(self.losers(after, is_kept) - cut.losers) if self.most_persons else 0
                candidates.append(_Split(node, price - less, more_lost - lost, persons))
        return sorted(candidates, key=lambda split: (-split.worth, split.node))

    def possible(self, cut: Cut, splits: list[_Split], i: int, raised: tuple[int, int] | None) -> list[_Split]:
        rows, persons = self.plain.allowed - cut.lost, self.most_persons - len(cut.losers)
        return [s for s in splits if s.suppressed_rows <= rows and s.new_losers <= persons and (i, s.node) != raised]

    def descend(self, cut: Cut, raised: tuple[int, int] | None = None) -> Cut:
        """Split until nothing is left; what was raised is split last, and then nothing is looked at once more."""
        is_trial = raised is not None
        waiting, fresh = {i: self.splits(cut, i) for i in self.attributes}, {*self.attributes}
        while True:
            open_ = {i: self.possible(cut, waiting[i], i, raised) for i in self.attributes}
            order = sorted((i for i in open_ if open_[i]), key=lambda i: (-open_[i][0].worth, i))
            if not order and raised is not None:
                raised = None
                continue
            stale = {*order[:1]} if order or is_trial else {*self.attributes}
            if not stale <= fresh:
                waiting |= {i: self.splits(cut, i) for i in stale - fresh}
                fresh |= stale
                continue
            if not order:
                return cut
            i = order[0]
            rival = open_[order[1]][0].worth if len(order) > 1 else 0.0
            lost, persons, new = cut.lost, len(cut.losers), {}
            for place, split in enumerate(open_[i]):
                lost, persons = lost + max(split.suppressed_rows, 0), persons + split.new_losers
                if place and (lost > self.plain.allowed or persons > self.most_persons or split.worth <= rival):
                    break
                below = self.below(i, split.node) or {}
                new |= {ground: below[ground] for ground in self.grounds(cut, i, split.node)}
            cut = self.cut(self.replaced(cut.nodes, i, new))
            waiting[i], fresh = self.splits(cut, i), {i}

    def grounds(self, cut: Cut, i: int, node: int) -> set[int]:
        return {self.plain.paths[combination][i][0] for combination, its in cut.nodes.items() if its[i] == node}

    def exchange(self, cut: Cut) -> Cut | None:
        """The best result of raising one node and then making all splits."""
        extra: Counter[tuple[int, int]] = Counter()
        for combination, its in cut.nodes.items():
            for i in self.attributes:
                path = self.paths[i][self.plain.paths[combination][i][0]]
                for above in path[path.index(its[i]) + 1 :]:
                    extra[i, above] += self.plain.n[combination] * (self.costs[i][above] - self.costs[i][its[i]])
        best = None
        for _, i, node in sorted((more, *move) for move, more in extra.items())[: self.most_raises]:
            new = {
                ground: node
                for its_node in {its[i] for its in cut.nodes.values()}
                for ground in self.grounds(cut, i, its_node)
                if node in (path := self.paths[i][ground]) and path.index(node) > path.index(its_node)
            }
            after = self.cut(self.replaced(cut.nodes, i, new))
            if self.is_allowed(after) and any(after.kept.values()):
                after = self.descend(after, (i, node))
                if self.is_allowed(after) and after.price < (best or cut).price:
                    best = after
        return best

    def run(self, levels: Levels) -> dict[int, Nodes]:
        start = best = self.cut(self.plain.at(levels), as_generalization=True)
        if start.price:
            best = self.descend(self.cut(self.plain.at(levels)))
            while best.price and (better := self.exchange(best)) is not None:
                best = self.descend(better)
        best = best if self.is_allowed(best) and best.price <= start.price else start
        return {combination: its for combination, its in best.nodes.items() if best.kept[its]}


@pytest.mark.cases(5)
@pytest.mark.parametrize(("small", "raises"), COUNTED)
def test_cuts_are_those_of_a_plain_search(small: Small, raises: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subtree_module, "MAX_RAISES", raises)
    assert small.start is not None
    with small_task(small) as task:
        plain = Counts(task, small)
        assert plain.placed(subtree(task).assignment) == Splits(plain, raises).run(small.start)


@pytest.mark.slow
@pytest.mark.parametrize("place", [3, 7])
def test_cuts_are_the_same_if_the_nodes_of_a_class_need_several_words(
    place: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    small, raises = COUNTED[place]
    monkeypatch.setattr(subtree_module, "MAX_RAISES", raises)
    assert small.start is not None
    with small_task(small) as task:
        roots = [tree.root for tree in task.trees]
        monkeypatch.setattr(packing_module, "WORD_BITS", max(roots).bit_length())
        assert assign_words(roots).words == len(roots) > 1
        assert Counts(task, small).placed(subtree(task).assignment) == Splits(Counts(task, small), raises).run(
            small.start
        )


@pytest.mark.thorough
def test_cuts_are_the_same_with_two_attributes_in_one_of_two_words(monkeypatch: pytest.MonkeyPatch) -> None:
    small = best_levels(SUBTREE[0])
    assert small.start is not None
    with small_task(small) as task:
        roots = [tree.root for tree in task.trees]
        first, second, _ = (root.bit_length() for root in roots)
        monkeypatch.setattr(packing_module, "WORD_BITS", first + second)
        assert [place[:2] for place in assign_words(roots).places] == [(0, 0), (0, first), (1, 0)]
        plain = Counts(task, small)
        assert plain.placed(subtree(task).assignment) == Splits(plain).run(small.start)


@pytest.mark.thorough
@pytest.mark.parametrize(("spare", "least", "tried"), [(0, 1, 2), (-1, 1, 1), (-1, 2, 2)])
def test_fewer_moves_up_are_tried_if_they_would_read_many_combinations(
    spare: int, least: int, tried: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = COUNTED[7][0]
    raised: list[Sequence[int]] = []
    move = _CutSearch._move

    def record(self: _CutSearch, cutting: Any, i: int, moves: exp.Expr, column: str, nodes: Sequence[int]) -> Any:
        raised.extend([nodes] if column == NEW_NODE else [])
        return move(self, cutting, i, moves, column, nodes)

    with small_task(small) as task:
        monkeypatch.setattr(subtree_module, "MAX_RAISE_READS", 2 * len(Counts(task, small).paths) + spare)
        monkeypatch.setattr(subtree_module, "MIN_RAISES", least)
        monkeypatch.setattr(_CutSearch, "_move", record)
        subtree(task)
    assert len(raised) == tried  # in one round, since none reduces the price


def test_limited_search_returns_a_cut_that_is_not_worse() -> None:
    small = replace(COUNTED[-1][0], max_checks=5, start=(1, 1))
    with small_task(small) as task:
        plain = Counts(task, small)
        placed = plain.placed(subtree(task).assignment)
        start = plain.holding(plain.at((1, 1)))
        assert plain.holding(placed) == placed
        assert plain.can_suppress(placed) or placed == start
        assert plain.loss(placed) <= plain.loss(start) + 1e-9


@pytest.mark.cases(1)
@pytest.mark.parametrize("small", [pytest.param(SUBTREE[0], marks=pytest.mark.slow), *SUBTREE[1:]])
def test_no_split_of_a_cut_is_left_that_costs_less(small: Small) -> None:
    small = best_levels(small)
    assert small.start is not None
    with small_task(small) as task:
        plain = Counts(task, small)
        placed = plain.placed(subtree(task).assignment)
        assert placed == Splits(plain).run(small.start)
        assert plain.kept(placed, small.k) == placed
        assert sum(plain.n.values()) - plain.rows(placed) <= plain.allowed
        assert plain.loss(placed) <= plain.loss(plain.kept(plain.at(small.start), small.k)) + 1e-9
        check_no_split_is_left(plain, cut_of(plain, placed), placed, small.k)


def cuts(rows: int, persons: int) -> _CutSearch:
    """A search with limits of suppressed rows and persons."""
    search = object.__new__(_CutSearch)
    search._allowed_rows, search._allowed_persons = rows, persons
    return search


def cut(lost: int, persons: int) -> Any:
    return SimpleNamespace(suppressed_rows=lost, loser_count=persons)


SPLITS = [_Split(1, 90, 0, 0), _Split(2, 160, 1, 1), _Split(3, 90, 2, 1), _Split(4, 40, -1, 0), _Split(5, 30, 0, 0)]


@pytest.mark.parametrize(
    ("lost", "persons", "rival", "taken"),
    [
        (5, 0, 0.0, [1, 2, 3, 4, 5]),  # three more rows, as many as may be
        (6, 0, 0.0, [1, 2]),  # the third would suppress a row too many
        (8, 0, 0.0, [1]),
        (9, 0, 0.0, [1]),  # the first is taken, whatever it suppresses
        (5, 1, 0.0, [1, 2, 3, 4, 5]),
        (5, 2, 0.0, [1, 2]),  # the third would take a row from a person too many
        (5, 0, 30.0, [1, 2]),  # no more than the rival is worth
        (5, 0, 29.0, [1, 2, 3, 4, 5]),
        (5, 0, 100.0, [1]),
    ],
)
def test_splits_that_together_suppress_too_much_are_not_taken_together(
    lost: int, persons: int, rival: float, taken: list[int]
) -> None:
    assert [split.worth for split in SPLITS] == [90, 80, 30, 40, 30]
    assert [*cuts(8, 3)._compatible_splits(cut(lost, persons), SPLITS, rival)] == taken


def test_a_split_is_possible_within_the_limits_unless_its_node_was_just_raised() -> None:
    def possible(lost: int, persons: int, raised: tuple[int, int] | None = None) -> list[int]:
        return [split.node for split in cuts(8, 3)._possible_splits(cut(lost, persons), SPLITS, 0, raised)]

    assert possible(6, 2) == [1, 2, 3, 4, 5]
    assert possible(7, 2) == [1, 2, 4, 5]
    assert possible(6, 3) == [1, 4, 5]
    assert possible(6, 2, (0, 2)) == [1, 3, 4, 5]
    assert possible(6, 2, (1, 2)) == [1, 2, 3, 4, 5]
