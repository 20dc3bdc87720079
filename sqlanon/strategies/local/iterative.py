"""Strategy ``local``: what full-domain generalization suppresses or generalizes too far is recoded again, by itself.

One generalization for the whole table is as coarse as its rarest rows need. So:

- Rows are released at the first generalization on a path from the lattice's bottom to its top, or close beside it,
  at which their class holds (see `Groups.climb`); each class as the lowest nodes that its rows have in common. What
  is left at the top is taken in by the classes that it costs least.
- Of the classes that cost most, with `SHARE` of the rows, each is given up if its rows cost less in other classes; or
  else the one combination leaves it that saves most, if the rest still holds. This goes on, round after round, for as
  long as a round saves `LEAST_GAIN`.

It starts at the optimal full-domain generalization, its classes released as what their rows have in common, and never
costs more than that. It is no proven optimum.

On a lattice of more than a million generalizations neither the optimum nor a path serves: it starts at a good
generalization that is found soon, and at the parts that `mondrian` cuts the table into for the hierarchies' labels.

Local recoding is commonly made of full-domain generalizations, each of what the last one suppressed. The path in
place of a search for each of them, and what follows it, are ours.
"""

from __future__ import annotations

from sqlanon.strategies.lattice.limits import FIRST_GRACE, LimitReachedError
from sqlanon.strategies.local.finish import on_combinations
from sqlanon.strategies.local.groups import Grouping, Groups, in_no_group, placed, taken_in
from sqlanon.strategies.local.task import SHARE_BEFORE_CUTS, LocalOutcome, LocalTask
from sqlanon.support.expressions import subquery, template

SHARE = 0.1
"""So many of the rows may go elsewhere in a round, at most."""

MOST_PAIRS = 5_000_000
"""About so many pairs of a combination and a class are compared in a round: in some tenths of a second."""

LEAST_GAIN = 0.02
"""A round that makes the whole cheaper by a smaller share is the last."""

# The least price that is no more than that of so many rows in groups.
_THRESHOLD = template("""
    SELECT min(price)
    FROM (SELECT price, (sum(n) OVER (ORDER BY price))::BIGINT AS below FROM :classes) AS s
    WHERE below >= :rows
""")
_MEMBERS_WITHIN = template("""
    SELECT m.combination, m.cell
    FROM :members AS m
    JOIN :classes AS g ON m.cell = g.cell
    WHERE g.price <= :price
""")
_CHEAP = template("SELECT * FROM :classes WHERE price <= :price")
# What makes a release cheaper: a group goes as a whole, if all of its members cost less elsewhere than they do
# together. Of another, the member goes that saves most, if the rest has enough rows.
_MOVES = template("""
    SELECT combination, cell
    FROM (
        SELECT
            m.combination,
            o.cell,
            coalesce(
                count(o.more) OVER (PARTITION BY m.cell) = count(*) OVER (PARTITION BY m.cell)
                AND sum(o.more) OVER (PARTITION BY m.cell) < g.n * g.price,
                FALSE
            ) AS leaves,
            coalesce(p.n * g.price - o.more > 0 AND g.n - p.n >= :least, FALSE) AS may,
            row_number() OVER (
                PARTITION BY m.cell
                ORDER BY
                    CASE
                        WHEN p.n * g.price - o.more > 0 AND g.n - p.n >= :least THEN p.n * g.price - o.more
                        ELSE 0
                    END DESC,
                    m.combination
            ) AS place
        FROM :members AS m
        JOIN :classes AS g ON m.cell = g.cell
        JOIN :prices AS p ON m.combination = p.combination
        LEFT JOIN :offers AS o ON m.combination = o.combination
    ) AS q
    WHERE leaves OR (may AND place = 1)
""")
_MOVED = template("""
    SELECT combination, min(combination) OVER (PARTITION BY cell) AS cell
    FROM (
        SELECT m.combination, coalesce(o.cell, m.cell) AS cell
        FROM :members AS m
        LEFT JOIN :going AS o ON m.combination = o.combination
    ) AS q
""")
_FAILING = template("SELECT count(*) FROM :judged AS j WHERE NOT kept")


def local(task: LocalTask) -> LocalOutcome:
    """Recode by classes, round after round.

    It ends sooner at the policy's ``time_limit`` or ``max_checks``: at any time there is a recoding that satisfies.
    """
    with task.clock.in_time(FIRST_GRACE):
        search, levels = task.start(share=SHARE_BEFORE_CUTS)
        groups = Groups(task, "local")
        best = groups.at(levels)
    try:
        with task.clock.in_time():
            better = groups.cut(as_ancestors=True) if task.is_large else groups.grouping(groups.climb(groups.prices))
            best = groups.better(best, better)
            before = best.price + 1
            while best.price < before:
                before = round(best.price * (1 - LEAST_GAIN))
                best = groups.better(best, _again(task, groups, best))
    except LimitReachedError:
        best = groups.best or best
    target = task.steps.make(task.work("local_placed"), placed(best.members, best.classes, len(task.trees)))
    return LocalOutcome(task, target, rounds=groups.rounds, search=search)


def _again(task: LocalTask, groups: Groups, best: Grouping) -> Grouping:
    """The groups, after what costs most went where it costs less."""
    groups.refuse_over_time()
    share = min(SHARE, MOST_PAIRS / (task.steps.count(best.classes) * task.steps.count(groups.prices) + 1))
    price = task.engine.rows(_THRESHOLD(classes=best.classes, rows=round((1 - share) * best.rows)))[0][0]
    kept = groups.make(_MEMBERS_WITHIN(members=best.members, classes=best.classes, price=price))
    cheap = groups.make(_CHEAP(classes=best.classes, price=price))
    loose = groups.make(in_no_group(prices=groups.prices, members=kept))
    offers = groups.make(taken_in(loose, cheap, groups.prices, task.trees))
    moves = _MOVES(
        offers=offers,
        members=best.members,
        classes=best.classes,
        prices=groups.prices,
        least=task.members.requirements.min_class_rows,
    )
    going = groups.make(moves)
    now = groups.make(_MOVED(members=best.members, going=going))
    if task.engine.rows(_FAILING(judged=subquery(groups.judged_cells(now))))[0][0]:
        return best
    return groups.tight(now)


run = on_combinations(local)
