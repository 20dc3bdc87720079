"""Example values for plans: statements that are shown, not run, have no answers."""

from __future__ import annotations

import math

from sqlanon.engines.base import Engine
from sqlanon.engines.statement_runner import StatementRunner
from sqlanon.hierarchies import find_static_height
from sqlanon.hierarchies.build import EXAMPLE_TEXT_LENGTH
from sqlanon.hierarchies.levels import find_permitted_levels, has_mask
from sqlanon.policy import Hierarchy, Policy
from sqlanon.support.coding import Levels


def example_height(runner: StatementRunner, rules: Hierarchy | tuple[()]) -> int:
    """The height of a hierarchy as far as its rules and files determine it, else that of an example."""
    return find_static_height(rules, runner.engine, EXAMPLE_TEXT_LENGTH) or 0


def find_lattice_size(policy: Policy, engine: Engine) -> tuple[int | None, tuple[str, ...]]:
    """The size of the lattice if the policy and hierarchy files determine it, else None and the quasi-identifiers that
    leave it open."""
    level_counts: dict[str, int | None] = {}
    for name in policy.generalized_attributes:
        attribute = policy.attributes[name]
        height = find_static_height(attribute.hierarchy or (), engine)
        top = min((level for level in (height, attribute.max_level) if level is not None), default=None)
        depends_on_values = bool(attribute.forbidden) or has_mask(attribute)
        level_counts[name] = None if depends_on_values or top is None else top - attribute.min_level + 1
    unknown = tuple(name for name, count in level_counts.items() if count is None)
    return None if unknown else math.prod(count for count in level_counts.values() if count is not None), unknown


def example_levels(policy: Policy, heights: Levels) -> Levels:
    """An example generalization: every attribute at level 1, or at the lowest level that the policy permits."""
    lowest = find_permitted_levels(policy, heights).lowest
    levels = tuple(max(bottom, min(1, height)) for bottom, height in zip(lowest, heights, strict=True))
    # One class of all rows would need no decoys.
    return lowest if policy.has_decoys and levels == heights else levels
