"""What stands for the answers, where statements are only shown."""

from __future__ import annotations

import math

from sqlanon.engines.base import Engine
from sqlanon.engines.statement_runner import StatementRunner
from sqlanon.hierarchies import find_static_height
from sqlanon.hierarchies.build import EXAMPLE_TEXT_LENGTH
from sqlanon.hierarchies.levels import find_permitted_levels, has_mask
from sqlanon.policy import Hierarchy, Policy
from sqlanon.support.coding import Levels


def example_height(steps: StatementRunner, rules: Hierarchy | tuple[()]) -> int:
    """The height of a hierarchy, as far as rules and files tell."""
    return find_static_height(rules, steps.engine, EXAMPLE_TEXT_LENGTH) or 0


def find_lattice_size(policy: Policy, engine: Engine) -> tuple[int | None, tuple[str, ...]]:
    """The size of the lattice, as far as the policy and hierarchy files tell: else None, and on which quasi-identifiers
    it depends."""
    spans: dict[str, int | None] = {}
    for name in policy.generalized_attributes:
        limit = policy.attributes[name]
        height = find_static_height(limit.hierarchy or (), engine)
        most = min((one for one in (height, limit.max_level) if one is not None), default=None)
        is_unknown = bool(limit.forbidden) or has_mask(limit)
        spans[name] = None if is_unknown or most is None else most - limit.min_level + 1
    unknown = tuple(name for name, span in spans.items() if span is None)
    return None if unknown else math.prod(span for span in spans.values() if span is not None), unknown


def example_levels(policy: Policy, heights: Levels) -> Levels:
    """A generalization to show: every attribute at level 1, or at the lowest that the policy allows."""
    lowest = find_permitted_levels(policy, heights).lowest
    levels = tuple(max(bottom, min(1, height)) for bottom, height in zip(lowest, heights, strict=True))
    return (
        lowest if policy.has_decoys and levels == heights else levels
    )  # in one class of all rows, there is nothing to fill
