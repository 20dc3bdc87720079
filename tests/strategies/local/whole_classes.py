"""A strategy below the full domain in one file outside the package: it places what the best generalization keeps."""

from __future__ import annotations

from sqlanon.policy.strategies import Traits
from sqlanon.strategies.local.finish import on_combinations
from sqlanon.strategies.local.mu_argus import placed_at
from sqlanon.strategies.local.task import LocalOutcome, LocalTask


def place(task: LocalTask) -> LocalOutcome:
    """Place each combination at the best levels for all; its class is judged when all is placed."""
    search, levels = task.start()
    placed = task.steps.make(task.work("whole_placed"), placed_at(task.combinations, levels))
    return LocalOutcome(task, placed, search=search)


class WholeClasses:
    """What it finds is as good as the optimum of the full domain."""

    name = "whole-classes"
    description = "the optimum of the full domain, placed row by row"
    traits = Traits(is_local=True)
    run = staticmethod(on_combinations(place))
