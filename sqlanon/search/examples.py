"""What stands for the answers, where statements are only shown."""

from __future__ import annotations

import math

from sqlglot import exp

from sqlanon.coding import Levels
from sqlanon.engines.base import Engine
from sqlanon.engines.statement_runner import StatementRunner
from sqlanon.errors import HierarchyError, Problem
from sqlanon.hierarchies import hierarchy_query, known_height
from sqlanon.policy import Hierarchy, Policy
from sqlanon.search.levels import lattice_of

EXAMPLE_LENGTH = 5
"""A mask's levels depend on the data: what is shown is a column whose longest text has so many characters."""


def example_height(steps: StatementRunner, rules: Hierarchy | tuple[()]) -> int:
    """The height of a hierarchy, as far as rules and files tell."""
    return known_height(rules, steps.engine, EXAMPLE_LENGTH) or 0


def size_of_lattice(policy: Policy, engine: Engine) -> tuple[int | None, tuple[str, ...]]:
    """The size of the lattice, as far as the policy and hierarchy files tell: else None, and on which quasi-identifiers
    it depends."""
    spans: dict[str, int | None] = {}
    for name in policy.generalized:
        limit = policy.attributes[name]
        height = known_height(limit.hierarchy or (), engine)
        most = min((one for one in (height, limit.max_level) if one is not None), default=None)
        spans[name] = None if limit.forbidden or most is None else most - limit.min_level + 1
    unknown = tuple(name for name, span in spans.items() if span is None)
    return None if unknown else math.prod(span for span in spans.values() if span is not None), unknown


def example_levels(policy: Policy, heights: Levels) -> Levels:
    """A generalization to show: every attribute at level 1, or at the lowest that the policy allows."""
    lowest = lattice_of(policy, heights).bottom
    return tuple(max(bottom, min(1, height)) for bottom, height in zip(lowest, heights, strict=True))


def show_hierarchy(
    steps: StatementRunner, name: str, rules: Hierarchy | tuple[()], values: exp.Table, type_: str, target: exp.Table
) -> None:
    """Show how the hierarchy of an attribute is made."""
    try:
        query = hierarchy_query(rules, values, type_, engine=steps.engine, longest=EXAMPLE_LENGTH)
    except HierarchyError as error:
        place = f"attributes.{name}.hierarchy"
        raise HierarchyError(Problem(place, problem.message) for problem in error.problems) from error
    steps.make(target, query)
