"""Strategy ``k-similar``: similar tuples in classes of k to 2k − 1 rows, with little loss.

Equal tuples stay together. Classes are compared by their loss as the lowest nodes that their members have in common.

- With at most `MAX_EXHAUSTIVE_COMBINATIONS` combinations every grouping is tried: the result is optimal by this loss.
- With more, combinations that agree at a generalization on a path through the lattice (see `Groups.climb`) form blocks;
  on a large lattice, the parts that `mondrian` cuts. Each combination of a block starts as a class. In each round every
  infeasible class joins another one of its block: one with which it has fewer than 2k rows, if any, and whose loss
  rises least. A block that loses less undivided stays whole.

Classes are released by ``summary``. (A range shows less than the ancestor only where the hierarchy does not follow the
order of the values.) The aim is that of k-Similar in L. Sweeney, "Computational disclosure control" (2001); its steps
are not reproduced here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from sqlglot import exp

from sqlanon.strategies.lattice import LatticeSearch
from sqlanon.strategies.lattice.limits import FIRST_GRACE
from sqlanon.strategies.local.core.finish import on_combinations
from sqlanon.strategies.local.core.groups import UNIT, Grouping, Groups, common_price, priced_representatives, sum_of
from sqlanon.strategies.local.core.nodes import Tree
from sqlanon.strategies.local.core.summaries import make_allowed_nodes, summarize
from sqlanon.strategies.local.core.task import SHARE_BEFORE_CUTS, LocalOutcome, LocalTask
from sqlanon.support.expressions import number, subquery, template

MAX_EXHAUSTIVE_COMBINATIONS = 10
"""Maximum number of combinations for which every grouping is tried: 1,023 classes, and 3¹⁰ steps."""

MAX_BLOCK = 500
"""Blocks of more combinations are not divided: all pairs in a block are compared."""

# Numbers of persons with rows in the same combinations, whose bits are set in ``places``; it is negative for persons
# with a row in none.
settled_persons_by_places = template("""
    SELECT coalesce(1 << combination, -1)::BIGINT AS places, sum(persons)::BIGINT AS persons
    FROM :members AS m
    GROUP BY combination
""")
persons_by_places = template("""
    SELECT places, sum(persons)::BIGINT AS persons
    FROM (
        SELECT coalesce(1 << combination, -1)::BIGINT AS places, sum(persons)::BIGINT AS persons
        FROM :members AS m
        WHERE mover IS NULL
        GROUP BY combination
        UNION ALL
        SELECT bit_or(coalesce(1 << combination, -1)::BIGINT) AS places, 1 AS persons
        FROM :members AS m
        WHERE mover IS NOT NULL
        GROUP BY mover
    ) AS p
    GROUP BY places
""")
# The members of classes worth dividing, each as a class; the former class is their block.
divisible_blocks = template("""
    SELECT combination, block, class_id
    FROM (
        SELECT
            m.combination,
            m.class_id AS block,
            m.combination AS class_id,
            count(*) OVER (PARTITION BY m.class_id) AS size
        FROM :members AS m
        JOIN :classes AS g ON m.class_id = g.class_id
        WHERE g.row_count >= :rows AND g.price > 0
    ) AS b
    WHERE size <= :max_block
""")
# The ``partner`` of its block that each infeasible class should join, whether both together are ``large``, and their
# ``added_price``. Pairs that are not large come first, then the cheapest. ``best`` is one number for each pair, and the
# least is chosen: 2^61 for large pairs, plus the added price; times 2^31, plus the partner. This breaks ties by the
# lesser and then the greater class of a pair, an order that both classes of a pair share.
_PROPOSALS = template("""
    WITH
        block_classes AS MATERIALIZED (
            SELECT g.*, b.block, j.kept
            FROM :representatives
            JOIN :blocks AS b ON g.class_id = b.combination
            JOIN :evaluated AS j ON g.class_id = j.class_id
        ),
        pairs AS (
            SELECT
                f.class_id, g.class_id AS partner,
                f.row_count AS class_rows, g.row_count AS partner_rows,
                f.price AS class_price, g.price AS partner_price, :price AS price
            FROM block_classes AS f
            JOIN block_classes AS g ON f.block = g.block AND f.class_id <> g.class_id
            WHERE NOT f.kept
        ),
        best_pairs AS (
            SELECT
                class_id,
                min(
                    (
                        CASE WHEN class_rows + partner_rows >= :rows THEN 2305843009213693952 ELSE 0 END
                        + (class_rows + partner_rows) * price - class_rows * class_price - partner_rows * partner_price
                    )::HUGEINT * 2147483648 + partner
                ) AS best
            FROM pairs
            WHERE price IS NOT NULL
            GROUP BY class_id
        )
    SELECT
        class_id,
        (best % 2147483648)::INTEGER AS partner,
        best // 2147483648 >= 2305843009213693952 AS large,
        (best // 2147483648 % 2305843009213693952)::BIGINT AS added_price
    FROM best_pairs
""")
# The classes that are united in a round: ``class_id``, and ``into``, the lesser number of the two. Two classes that
# propose each other are united, and a class without a proposal takes in the class that fits best. No class is in two
# unions.
class_unions = template("""
    WITH
        mutual AS (
            SELECT p.class_id, p.partner
            FROM :proposals AS p
            JOIN :proposals AS q ON p.partner = q.class_id AND p.class_id = q.partner AND p.class_id < q.class_id
        ),
        best_fits AS (
            SELECT arg_min(p.class_id, (p.large, p.added_price, p.class_id)) AS class_id, p.partner
            FROM :proposals AS p
            ANTI JOIN :proposals AS q ON p.partner = q.class_id
            GROUP BY p.partner
        ),
        unions AS (
            SELECT class_id, partner FROM mutual
            UNION ALL
            SELECT class_id, partner FROM best_fits
        )
    SELECT greatest(class_id, partner) AS class_id, least(class_id, partner) AS "into"
    FROM unions
""")
united_blocks = template("""
    SELECT m.combination, m.block, coalesce(u."into", m.class_id) AS class_id
    FROM :blocks AS m
    LEFT JOIN :unions AS u ON m.class_id = u.class_id
""")
# The members of the blocks that cost no more divided than whole.
cheaper_blocks = template("""
    SELECT o.*
    FROM :blocks AS o
    JOIN (
        SELECT m.block, sum(g.row_count * g.price)::BIGINT AS price
        FROM :blocks AS m
        JOIN :classes AS g ON g.class_id = m.combination
        GROUP BY m.block
    ) AS s ON o.block = s.block
    JOIN :whole AS b ON o.block = b.class_id
    WHERE s.price <= b.row_count * b.price
""")


def k_similar(task: LocalTask) -> LocalOutcome:
    """Group similar combinations.

    It ends sooner at the policy's ``time_limit`` or ``max_checks``, with the best classes so far.
    """
    search, start, best, rounds = group_combinations(task)
    if best is start and task.search_input.requirements.shields:
        # At lower levels than those of the generalization, classes might violate shields.
        assignment = task.make("similar_assignment", best.assignment(len(task.trees)))
        return LocalOutcome(task, assignment, rounds=rounds, search=search)
    query = template("SELECT combination, class_id AS part FROM :members")(members=best.members)
    parts = task.make("similar_parts", query)
    outcome = summarize(task, parts, make_allowed_nodes(task, "similar"), "similar", rounds)
    return replace(outcome, search=search)


def group_combinations(task: LocalTask) -> tuple[LatticeSearch, Grouping, Grouping, int]:
    """The full-domain search, the classes of its optimum, the best classes, and the number of rounds."""
    with task.clock.in_time(FIRST_GRACE):
        search, levels = task.search_full_domain(share=SHARE_BEFORE_CUTS)
        groups = Groups(task, "similar")
        start = groups.classes_at(levels)
    count = task.runner.count(task.combinations)
    with task.clock.until_limit():
        if count <= MAX_EXHAUSTIVE_COMBINATIONS:
            groups.keep_cheaper(start, _try_all_groupings(task, groups, count))
        else:
            best = groups.keep_cheaper(start, groups.climb_or_cut(as_ancestors=False))
            groups.keep_cheaper(best, _divide_classes(task, groups, best))
    return search, start, groups.best or start, groups.rounds


def _try_all_groupings(task: LocalTask, groups: Groups, count: int) -> Grouping:
    """The cheapest of all groupings of a few combinations, which are numbered from 0."""
    groups.start_round()
    # Every class that a few combinations can form, numbered by the set bits of its combinations.
    query = template("""
        SELECT c.combination, s.class_id::INTEGER AS class_id
        FROM range(1, :end) AS s(class_id)
        CROSS JOIN :combinations AS c
        WHERE ((s.class_id::INTEGER >> c.combination) & 1) = 1
    """)(end=2**count, combinations=task.combinations)
    members = groups.make(query)
    classes = groups.price_members(members).classes
    query = template("""
        SELECT g.class_id, g.row_count, g.row_count * g.price
        FROM :classes AS g
        JOIN :evaluated AS j ON g.class_id = j.class_id
        WHERE j.kept AND g.price IS NOT NULL
    """)(classes=classes, evaluated=groups.evaluate_members(members))
    rows_and_prices = {class_id: (n, price) for class_id, n, price in task.engine.rows(query)}
    needed_rows = task.row_count - task.allowed_rows
    class_ids = cheapest_grouping(count, rows_and_prices, needed_rows, _exceeds_person_limit(task))
    query = template("SELECT combination, class_id FROM :members WHERE class_id IN (:class_ids)")(
        members=members, class_ids=[number(class_id) for class_id in class_ids]
    )
    return groups.price_members(groups.make(query))


def _exceeds_person_limit(task: LocalTask) -> Callable[[int], bool]:
    """A test of kept combinations, as bits: whether too many persons have rows outside them."""
    evaluator, limit = task.evaluator, task.search_input.limit.persons
    if evaluator.persons is None or limit is None:
        return lambda kept_combinations: False
    query = persons_by_places if evaluator.moving else settled_persons_by_places
    persons = task.engine.rows(query(members=evaluator.persons))

    def exceeds_limit(kept_combinations: int) -> bool:
        return sum(int(count) for places, count in persons if places < 0 or places & ~kept_combinations) > limit

    return exceeds_limit


def _divide_classes(task: LocalTask, groups: Groups, whole: Grouping) -> Grouping:
    rows = 2 * task.evaluator.requirements.min_class_rows
    query = divisible_blocks(members=whole.members, classes=whole.classes, rows=rows, max_block=MAX_BLOCK)
    blocks = groups.make(query)
    while True:
        groups.start_round()
        classes = groups.price_members(blocks).classes
        evaluated = groups.make(groups.evaluate_members(blocks))
        union_proposals = groups.make(proposals(classes, evaluated, blocks, groups.combinations, task.trees, rows))
        if not task.runner.count(union_proposals):
            break
        unions = groups.make(class_unions(proposals=union_proposals))
        blocks = groups.make(united_blocks(blocks=blocks, unions=unions))
    divided = groups.make(cheaper_blocks(blocks=blocks, classes=classes, whole=whole.classes))
    query = template("""
        SELECT m.combination, coalesce(d.class_id, m.class_id) AS class_id
        FROM :members AS m
        LEFT JOIN :divided AS d ON m.combination = d.combination
    """)(members=whole.members, divided=divided)
    return groups.price_members(groups.make(query))


def proposals(
    classes: exp.Table,
    evaluated: exp.Table,
    blocks: exp.Table,
    combinations: exp.Table,
    trees: Sequence[Tree],
    rows: int,
) -> exp.Select:
    """The partner of its block that each infeasible class should join; both together are large from ``rows`` on."""
    return _PROPOSALS(
        rows=rows,
        price=sum_of([common_price(i, tree, "f", ("f", "g")) for i, tree in enumerate(trees)]),
        representatives=subquery(priced_representatives(classes, combinations, trees), "g"),
        blocks=blocks,
        evaluated=evaluated,
    )


def cheapest_grouping(
    count: int,
    rows_and_prices: dict[int, tuple[int, int]],
    needed_rows: int,
    is_refused: Callable[[int], bool] = lambda combinations: False,
) -> list[int]:
    """The disjoint classes of combinations, as bits, that cost least, have enough rows and are not refused; an empty
    list if none are.

    >>> cheapest_grouping(3, {0b011: (5, 7), 0b100: (4, 0), 0b111: (9, 20)}, 9)
    [3, 4]
    """
    # By combinations, as bits: their rows, the least price of classes of exactly these, and the classes.
    best: dict[int, tuple[int, int, list[int]]] = {0: (0, 0, [])}
    for combinations in range(1, 2**count):
        first = combinations & -combinations
        remaining = part = combinations ^ first
        options = []
        while True:  # the class of the first combination with each part of the remaining ones
            if part | first in rows_and_prices and remaining ^ part in best:
                rows, price, classes = best[remaining ^ part]
                class_rows, class_price = rows_and_prices[part | first]
                options.append((rows + class_rows, price + class_price, [part | first, *classes]))
            if not part:
                break
            part = (part - 1) & remaining
        if options:
            best[combinations] = min(options, key=lambda option: option[1:])
    allowed = [
        grouping
        for combinations, grouping in best.items()
        if grouping[0] >= needed_rows and not is_refused(combinations)
    ]
    _, _, classes = min(allowed, key=lambda option: (option[1] - option[0] * UNIT, option[2]), default=(0, 0, []))
    return classes


run = on_combinations(k_similar)
