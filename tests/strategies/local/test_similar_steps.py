"""Steps of k-similar and of groups on tables that stand in the test, compared with plain Python."""

from __future__ import annotations

import itertools
from collections import Counter
from operator import itemgetter

import pytest
from plain_counts import Counts
from plain_similar import least_loss, partitions
from small_tasks import Small, best_levels, draw_rows, letters, small_task
from sqlglot import exp
from step_queries import price_of, query

from oracles.oracle import Row
from properties.local_tasks import Plain
from sqlanon.strategies.local import k_similar
from sqlanon.strategies.local.core.groups import UNIT, Groups
from sqlanon.strategies.local.k_similar import cheapest_grouping, group_combinations
from sqlanon.support.expressions import table
from support.databases import insert

A, B, C = letters("a", 4, 2), letters("b", 4, 2), letters("c", 3)


# The groups that are united


PROPOSED = "class_id INTEGER, partner INTEGER, large BOOLEAN, added_price BIGINT"


def test_mutual_proposals_are_united_and_a_class_without_a_proposal_takes_in_the_best_fit() -> None:
    proposed = [
        (1, 4, False, 5), (4, 1, True, 9),  # each other
        (7, 4, False, 1),  # to one that proposes another
        (5, 2, True, 3), (6, 2, False, 8), (8, 2, False, 7), (9, 2, False, 7),  # not large, then cheap, then first
        (10, 11, True, 2), (12, 11, True, 1),
    ]  # fmt: skip
    united = query(k_similar.class_unions(proposals=table("proposed")), proposed=(PROPOSED, proposed))
    assert united == [(4, 1), (8, 2), (12, 11)]


def test_united_groups_have_the_lesser_number() -> None:
    united = k_similar.united_blocks(blocks=table("blocks"), unions=table("united"))
    blocks = ("combination INTEGER, block INTEGER, class_id INTEGER", [(0, 9, 0), (1, 9, 0), (2, 9, 2), (3, 9, 3)])
    assert query(united, blocks=blocks, united=('class_id INTEGER, "into" INTEGER', [(2, 0)])) == [
        (0, 9, 0), (1, 9, 0), (2, 9, 0), (3, 9, 3),
    ]  # fmt: skip


# The blocks


def test_blocks_of_two_classes_that_lose_something_are_divided() -> None:
    """Group 0 has exactly k rows, group 2 one fewer; group 4 loses nothing; group 6 has too many members."""
    members = [(0, 0), (1, 0), (2, 2), (3, 2), (4, 4), (5, 4), (6, 6), (7, 6), (8, 6)]
    classes = [(0, 6, 5), (2, 5, 5), (4, 9, 0), (6, 9, 5)]
    blocks = k_similar.divisible_blocks(members=table("members"), classes=table("classes"), rows=6, max_block=2)
    answer = query(
        blocks,
        members=("combination INTEGER, class_id INTEGER", members),
        classes=("class_id INTEGER, row_count BIGINT, price BIGINT", classes),
    )
    assert answer == [(0, 0, 0), (1, 0, 1)]


def test_a_block_stays_divided_if_that_costs_no_more() -> None:
    """Block 0 costs 20 either way, block 2 costs 19 if divided, and block 4 costs 21 if divided."""
    blocks = [(0, 0, 0), (1, 0, 1), (2, 2, 2), (3, 2, 3), (4, 4, 4), (5, 4, 5)]
    classes = [(0, 2, 5), (1, 5, 2), (2, 3, 3), (3, 2, 5), (4, 5, 3), (5, 2, 3)]
    before = [(0, 10, 2), (2, 20, 1), (4, 4, 5)]
    columns = "class_id INTEGER, row_count BIGINT, price BIGINT"
    answer = query(
        k_similar.cheaper_blocks(blocks=table("blocks"), classes=table("classes"), whole=table("before")),
        blocks=("combination INTEGER, block INTEGER, class_id INTEGER", blocks),
        classes=(columns, classes),
        before=(columns, before),
    )
    assert [row[0] for row in answer] == [0, 1, 2, 3]


# Persons


MEMBERS = "combination INTEGER, row_count BIGINT, persons BIGINT, mover INTEGER"


def test_persons_are_counted_once_by_the_combinations_in_which_they_are() -> None:
    settled = [(0, 3, 2, None), (1, 4, 4, None), (None, 2, 1, None)]
    moving: list[Row] = [
        (0, 1, 0, 7),
        (2, 1, 0, 7),
        (0, 2, 0, 8),
        (2, 1, 0, 8),
        (1, 1, 0, 9),
        (None, 1, 0, 9),
        (0, 1, 0, 5),
        (1, 1, 0, 5),
    ]
    by_places = k_similar.settled_persons_by_places(members=table("members"))
    assert query(by_places, members=(MEMBERS, settled)) == [(-1, 1), (1, 2), (2, 4)]
    by_places = k_similar.persons_by_places(members=table("members"))
    counts: Counter[int] = Counter()
    for places, persons in query(by_places, members=(MEMBERS, [*settled, *moving])):
        counts[places] += persons
    assert counts == {-1: 2, 0b1: 2, 0b10: 4, 0b101: 2, 0b11: 1}


# Groupings of few


@pytest.mark.parametrize("number", range(4))
def test_the_grouping_that_costs_least_is_chosen(number: int) -> None:
    """A suppressed row costs UNIT; of equal costs the first groups are chosen."""
    count, things, sizes = 4, range(4), (2, 1, 3, 1)
    groups = {
        cell: (
            sum(sizes[place] for place in things if cell >> place & 1),
            (cell * cell * 3 + number) % 4 * UNIT // 2,
        )
        for cell in range(1, 2**count)
        if (cell * 5 + number) % 3
    }

    def is_refused(cell_bits: int) -> bool:
        return cell_bits & 3 == number

    options = []
    for size in range(count + 1):
        for some in itertools.combinations(things, size):
            cell_bits = sum(1 << member for member in some)
            for parts in partitions([*some]):
                cells = [sum(1 << member for member in part) for part in parts]
                if all(cell in groups for cell in cells) and not is_refused(cell_bits):
                    rows, cost = (sum(groups[cell][place] for cell in cells) for place in (0, 1))
                    if rows >= 4:
                        options.append((cost - rows * UNIT, sorted(cells, key=lambda cell: cell & -cell)))
    chosen = cheapest_grouping(count, groups, 4, is_refused)
    cost = sum(groups[cell][1] - groups[cell][0] * UNIT for cell in chosen)
    assert cost == min(options, default=(0, []))[0]
    assert not options or chosen in [cells for _, cells in options]


FEW = [
    Small([*draw_rows(1, 16, [A, B], 0.7)], [A, B], 3, 2),
    Small([*draw_rows(2, 18, [A, B, C], 0.75)], [A, B, C], 3, 3, weights=(1.0, 2.0, 0.5)),
    Small([*draw_rows(3, 18, [A, B], 0.7), ("?", "b0")], [A, B], 3, 4, spans=[(0, 1), (0, 2)]),
    Small([*draw_rows(5, 18, [A, B], 0.7)], [A, B], 3, 4, forbidden=[["aa0"], ["bb1"]]),
    # Persons in several combinations; one person may lose rows
    Small(draw_rows(4, 16, [A, C], 0.75), [A, C], 3, 1, persons=[(row * row + 4) % 9 for row in range(16)],
          start=(2, 1)),
    # As many rows as may be suppressed are in no class with others.
    Small([*[("a0",), ("a1",)] * 2, ("a2",)], [A], 2, 1, spans=[(0, 1)], start=(1,)),
]  # fmt: skip


@pytest.mark.parametrize("small", FEW)
def test_no_grouping_of_few_combinations_loses_less(small: Small) -> None:
    with small_task(small if small.start else best_levels(small)) as task:
        plain = Counts(task, small)
        assert len(plain.n) <= 7
        _, _, best, _ = group_combinations(task)
        nodes = task.runner.create_table(table("found"), best.assignment(len(task.trees)))
        assert plain.can_suppress(plain.placed(nodes))
        assert plain.loss(plain.placed(nodes)) == pytest.approx(least_loss(plain, small.k), abs=1e-8)


# Partner of an infeasible group


THREE, TWO = [A, B, C], [A, B]
NOTHING_SHOWN = Small(
    [(f"a{i}",) for i in range(4) for _ in range(i + 1)],
    [A],
    4,
    forbidden=[[f"a{i}" for i in range(4)] + ["aa0", "aa1"]],
)
WITHOUT_A_NODE = {"weights": (1.0, 2.0), "forbidden": [["aa0"], []]}


@pytest.mark.parametrize(
    ("small", "size", "rows"),
    [
        (Small(draw_rows(25, 34, THREE), THREE, 4), 1, 4),
        (Small(draw_rows(24, 34, THREE), THREE, 4), 2, 5),
        (Small(draw_rows(2, 34, TWO), TWO, 4, **WITHOUT_A_NODE), 1, 4),
        (NOTHING_SHOWN, 1, 4),  # together they are large, and cost no more
    ],
)
def test_a_class_proposes_the_partner_with_which_it_is_small_and_loses_least(
    small: Small, size: int, rows: int
) -> None:
    with small_task(small) as task:
        plain, groups = Plain(task), Groups(task, "g")
        places = sorted(plain.n)
        cells = {c: c - c % size for c in places}
        blocks = {c: cells[c] % 3 for c in places}
        columns = "combination INTEGER, block INTEGER, class_id INTEGER"
        task.engine.connection.execute(f"CREATE TABLE blocks ({columns})")
        values = [(c, blocks[c], cells[c]) for c in places]
        insert(task.engine.connection, "blocks", values)
        classes = groups.price_members(table("blocks")).classes
        evaluated = groups.make(groups.evaluate_members(table("blocks")))
        answer = task.engine.rows(
            k_similar.proposals(classes, evaluated, table("blocks"), groups.combinations, task.trees, rows)
        )
        of_cell = {cell: [c for c in places if cells[c] == cell] for cell in {*cells.values()}}
        n = {cell: sum(plain.n[c] for c in of_cell[cell]) for cell in of_cell}
        prices = {cell: price_of(plain, of_cell[cell]) for cell in of_cell}
        assert {cell: (count, price) for cell, count, price in task.engine.rows(
            exp.select("class_id", "row_count", "price").from_(classes)
        )} == {cell: (n[cell], prices[cell]) for cell in of_cell}  # fmt: skip
        expected = []
        for first, second in itertools.permutations(of_cell, 2):
            joint = price_of(plain, [*of_cell[first], *of_cell[second]])
            if n[first] < small.k and blocks[first] == blocks[second] and joint is not None:
                before = n[first] * (prices[first] or 0) + n[second] * (prices[second] or 0)
                together = n[first] + n[second]
                expected.append((first, together >= rows, together * joint - before, second))
        best = [min(options) for _, options in itertools.groupby(sorted(expected), key=itemgetter(0))]
        assert sorted(answer) == [(first, second, large, more) for first, large, more, second in best]
