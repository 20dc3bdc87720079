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

Local recoding is commonly made of full-domain generalizations, each of what the last one suppressed. The path in
place of a search for each of them, and what follows it, are ours.
"""

from __future__ import annotations

from sqlanon.expressions import subquery
from sqlanon.recode.local import groups as gr
from sqlanon.recode.local import groups as mv
from sqlanon.recode.local.groups import Grouping, Groups
from sqlanon.recode.local.task import LocalOutcome, LocalTask, on_combinations
from sqlanon.search.budget import LimitReachedError

SHARE = 0.1
"""So many of the rows may go elsewhere in a round, at most."""

MOST_PAIRS = 5_000_000
"""About so many pairs of a combination and a class are compared in a round: in some tenths of a second."""

LEAST_GAIN = 0.02
"""A round that makes the whole cheaper by a smaller share is the last."""


def local(task: LocalTask) -> LocalOutcome:
    """Recode by classes, round after round.

    It ends sooner at the policy's ``time_limit`` or ``max_checks``: at any time there is a recoding that satisfies.
    """
    search, levels = task.start()
    groups = Groups(task, "local")
    best = groups.at(levels)
    try:
        best = groups.better(best, groups.grouping(groups.climb(groups.prices)))
        before = best.price + 1
        while best.price < before:
            before = round(best.price * (1 - LEAST_GAIN))
            best = groups.better(best, _again(task, groups, best))
    except LimitReachedError:
        pass
    placed = task.steps.make(task.work("local_placed"), gr.placed(best.members, best.classes, len(task.trees)))
    return LocalOutcome(task, placed, rounds=groups.rounds, search=search)


def _again(task: LocalTask, groups: Groups, best: Grouping) -> Grouping:
    """The groups, after what costs most went where it costs less."""
    groups.refuse_late()
    share = min(SHARE, MOST_PAIRS / (task.steps.count(best.classes) * task.steps.count(groups.prices) + 1))
    price = task.engine.rows(mv.threshold(best.classes, round((1 - share) * best.rows)))[0][0]
    kept = groups.make(mv.within(best.members, best.classes, price))
    cheap = groups.make(mv.cheap(best.classes, price))
    loose = groups.make(gr.in_no_group(groups.prices, kept))
    offers = groups.make(mv.taken_in(loose, cheap, groups.prices, task.trees))
    least = task.members.requirements.least_class
    going = groups.make(mv.moves(offers, best.members, best.classes, groups.prices, least))
    now = groups.make(mv.moved(best.members, going))
    judged = task.judged(subquery(gr.sized(now, groups.prices), "s"), [gr.CELL])
    if task.engine.rows(mv.failing(judged))[0][0]:
        return best
    return groups.tight(now)


run = on_combinations(local)
