"""Strategy ``local``: recode separately what full-domain generalization suppresses or generalizes too far.

The start is the optimal full-domain generalization (on a large lattice a good one), its classes released as the lowest
nodes that their rows have in common. The result never costs more:

- Rows are released at the first generalization on a path from the lattice's bottom to its top, or close to it, at
  which their class is feasible (see `Groups.climb`). On a large lattice, the classes are parts that `mondrian` cuts.
- Among the classes that cost most, with `SHARE` of the rows, each is dissolved if its rows cost less in other classes;
  or else the one combination leaves it that saves most. Rounds are repeated as long as one saves `MIN_GAIN`.
"""

from __future__ import annotations

from sqlanon.strategies.lattice.limits import FIRST_GRACE
from sqlanon.strategies.local.core.finish import on_combinations
from sqlanon.strategies.local.core.groups import Grouping, Groups, cheapest_classes, unassigned_combinations
from sqlanon.strategies.local.core.task import SHARE_BEFORE_CUTS, LocalOutcome, LocalTask
from sqlanon.support.expressions import template

SHARE = 0.1
"""Maximum share of the rows that may move in a round."""

MAX_PAIRS_PER_ROUND = 5_000_000
"""Approximate maximum number of pairs of a combination and a class compared in a round, in some tenths of a second."""

MIN_GAIN = 0.02
"""The last round is the one that reduces the price by a smaller share."""

# The lowest price up to which classes have at least a number of rows together.
price_threshold = template("""
    SELECT min(price)
    FROM (SELECT price, (sum(row_count) OVER (ORDER BY price))::BIGINT AS rows_so_far FROM :classes) AS s
    WHERE rows_so_far >= :rows
""")
members_up_to_price = template("""
    SELECT m.combination, m.class_id
    FROM :members AS m
    JOIN :classes AS g ON m.class_id = g.class_id
    WHERE g.price <= :price
""")
classes_up_to_price = template("SELECT * FROM :classes WHERE price <= :price")
# A class is dissolved if its members cost less in the classes offered to them than they do together. From any other
# class, the member that saves the most moves, if enough rows stay.
profitable_moves = template("""
    WITH
        member_offers AS (
            SELECT
                m.combination,
                m.class_id AS from_class,
                o.class_id AS to_class,
                o.added_price,
                g.row_count * g.price AS class_price,
                p.row_count * g.price - o.added_price AS saving,
                g.row_count - p.row_count >= :least_class AS enough_rows_stay
            FROM :members AS m
            JOIN :classes AS g ON m.class_id = g.class_id
            JOIN :combinations AS p ON m.combination = p.combination
            LEFT JOIN :offers AS o ON m.combination = o.combination
        ),
        candidates AS (
            SELECT
                combination,
                to_class,
                coalesce(
                    count(added_price) OVER (PARTITION BY from_class) = count(*) OVER (PARTITION BY from_class)
                    AND sum(added_price) OVER (PARTITION BY from_class) < class_price,
                    FALSE
                ) AS class_is_dissolved,
                coalesce(saving > 0 AND enough_rows_stay, FALSE) AS can_move,
                row_number() OVER (
                    PARTITION BY from_class
                    ORDER BY CASE WHEN saving > 0 AND enough_rows_stay THEN saving ELSE 0 END DESC, combination
                ) AS place
            FROM member_offers
        )
    SELECT combination, to_class AS class_id
    FROM candidates
    WHERE class_is_dissolved OR (can_move AND place = 1)
""")
members_after_moves = template("""
    SELECT combination, min(combination) OVER (PARTITION BY class_id) AS class_id
    FROM (
        SELECT m.combination, coalesce(o.class_id, m.class_id) AS class_id
        FROM :members AS m
        LEFT JOIN :moves AS o ON m.combination = o.combination
    ) AS q
""")


def local(task: LocalTask) -> LocalOutcome:
    """Improve the classes of a generalization, round after round.

    It ends sooner at the policy's ``time_limit`` or ``max_checks``, with the best recoding so far.
    """
    with task.clock.in_time(FIRST_GRACE):
        search, levels = task.search_full_domain(share=SHARE_BEFORE_CUTS)
        groups = Groups(task, "local")
        best = groups.classes_at(levels)
    with task.clock.until_limit():
        best = groups.keep_cheaper(best, groups.climb_or_cut(as_ancestors=True))
        target_price = best.price + 1
        while best.price < target_price:
            target_price = round(best.price * (1 - MIN_GAIN))
            best = groups.keep_cheaper(best, _move_members(task, groups, best))
    best = groups.best or best
    assignment = task.make("local_assignment", best.assignment(len(task.trees)))
    return LocalOutcome(task, assignment, rounds=groups.rounds, search=search)


def _move_members(task: LocalTask, groups: Groups, best: Grouping) -> Grouping:
    """Move members of the classes that cost most to cheaper classes; the same classes if one would be infeasible."""
    groups.start_round()
    pairs = task.runner.count(best.classes) * task.runner.count(groups.combinations)
    share = min(SHARE, MAX_PAIRS_PER_ROUND / (pairs + 1))
    query = price_threshold(classes=best.classes, rows=round((1 - share) * best.rows))
    threshold = task.fetch_value(query)
    staying = groups.make(members_up_to_price(members=best.members, classes=best.classes, price=threshold))
    cheap_classes = groups.make(classes_up_to_price(classes=best.classes, price=threshold))
    expensive = groups.make(unassigned_combinations(combinations=groups.combinations, members=staying))
    offers = groups.make(cheapest_classes(expensive, cheap_classes, groups.combinations, task.trees))
    query = profitable_moves(
        offers=offers,
        members=best.members,
        classes=best.classes,
        combinations=groups.combinations,
        least_class=task.evaluator.requirements.min_class_rows,
    )
    moves = groups.make(query)
    members = groups.make(members_after_moves(members=best.members, moves=moves))
    evaluated = groups.evaluate_members(members)
    if task.fetch_value(template("SELECT count(*) FROM :evaluated AS j WHERE NOT kept")(evaluated=evaluated)):
        return best
    return groups.price_members(members)


run = on_combinations(local)
