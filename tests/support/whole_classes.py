"""A strategy below the full domain in one file outside the package: it places what the best generalization keeps."""

from __future__ import annotations

from sqlanon.policy.strategies import Traits
from sqlanon.strategies.local.core.evaluation import generalized_combinations
from sqlanon.strategies.local.core.finish import on_combinations
from sqlanon.strategies.local.core.task import LocalOutcome, LocalTask


def place(task: LocalTask) -> LocalOutcome:
    """Place each combination at the best levels for all; its class is judged when all is placed."""
    search, levels = task.search_full_domain()
    assignment = task.make("whole_placed", generalized_combinations(task.combinations, task.trees, levels))
    return LocalOutcome(task, assignment, search=search)


class WholeClasses:
    """Its result is as good as the optimum of the full domain."""

    name = "whole-classes"
    description = "the optimum of the full domain, placed row by row"
    traits = Traits(is_local=True)
    run = staticmethod(on_combinations(place))
