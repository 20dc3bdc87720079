"""The levels of attributes that a release may have, by the limits and the forbidden labels of the policy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from sqlglot import exp

from sqlanon.engines.statement_runner import StatementRunner
from sqlanon.errors import Problem
from sqlanon.policy import Attribute, Policy
from sqlanon.policy.rules import MaskRule
from sqlanon.support import coding
from sqlanon.support.coding import CodedAttribute, Levels
from sqlanon.support.fields import in_words
from sqlanon.support.notices import Notice

NO_LEVELS: frozenset[int] = frozenset()

ABOVE_ANY_MASK = 1_000_000_000
"""A level above the top of any mask; the top is used instead."""


def find_level_problems(
    runner: StatementRunner, name: str, spec: Attribute, hierarchy: exp.Table, columns: Sequence[str]
) -> Iterator[Problem]:
    """Problems of limits and forbidden labels in the policy that the hierarchy does not have.

    ``columns`` are the columns with released labels, by level.
    """
    height = len(columns) - 1
    # The height of a mask follows from the longest text, so the limits of a policy may lie above it.
    limits = {} if has_mask(spec) else {"min_level": spec.min_level, "max_level": spec.max_level}
    for key, limit in limits.items():
        if limit is not None and limit > height:
            message = f"is {limit}, but the hierarchy's top level is {height}"
            yield Problem(f"attributes.{name}.{key}", message)
    if not spec.forbidden:
        return
    labels = {label for (label,) in runner.fetch_rows(coding.matching_labels(hierarchy, columns, spec.forbidden), [])}
    for label in spec.forbidden:
        if label not in labels:
            message = f"{in_words(label)} is at no level of the hierarchy: write it as a release would show it"
            yield Problem(f"attributes.{name}.forbidden", message)


def warn_of_levels_above_top(policy: Policy, heights: Mapping[str, int]) -> tuple[Notice, ...]:
    """Warn about masks with fewer levels than ``min_level``: their columns are released at the top."""
    return tuple(
        Notice(
            f"attributes.{name}.min_level is {spec.min_level}, and the mask of the longest text has {height} levels: "
            "every value is released as *"
        )
        for name, height in heights.items()
        if has_mask(spec := policy.attributes[name]) and spec.min_level > height
    )


def has_mask(spec: Attribute) -> bool:
    """Whether the height of an attribute's hierarchy depends on the longest text of its column (a mask)."""
    return any(isinstance(rule, MaskRule) for rule in spec.hierarchy or ())


def find_forbidden_levels(
    runner: StatementRunner, policy: Policy, attributes: Sequence[CodedAttribute]
) -> tuple[frozenset[int], ...]:
    """The levels at which a value of the source has a label that the policy forbids, by quasi-identifier.

    Unknown values do not count, since they are never released.
    """
    forbidden = []
    for name, attribute in zip(policy.generalized_attributes, attributes, strict=True):
        labels = policy.attributes[name].forbidden
        row = (
            runner.fetch_rows(coding.levels_showing(attribute, labels), [(False,) * (attribute.height + 1)])[0]
            if labels
            else ()
        )
        forbidden.append(frozenset(level for level, has_label in enumerate(row) if has_label))
    return tuple(forbidden)


class PermittedLevels(NamedTuple):
    """The lowest and the highest permitted level of each quasi-identifier, and the forbidden levels between them.

    ``forbidden`` is empty without forbidden levels.
    """

    lowest: Levels
    highest: Levels
    forbidden: tuple[frozenset[int], ...]


def find_permitted_levels(policy: Policy, heights: Levels, forbidden: Sequence[frozenset[int]] = ()) -> PermittedLevels:
    """The levels within the limits of each attribute, except forbidden ones.

    If an attribute has no level left, all levels within its limits are forbidden.
    """
    bottom, top, holes = [], [], []
    for name, height, not_allowed in zip(
        policy.generalized_attributes, heights, forbidden or (NO_LEVELS,) * len(heights), strict=True
    ):
        spec = policy.attributes[name]
        low = min(spec.min_level, height)
        high = height if spec.max_level is None else min(spec.max_level, height)
        allowed = [level for level in range(low, high + 1) if level not in not_allowed]
        bottom.append(allowed[0] if allowed else low)
        top.append(allowed[-1] if allowed else high)
        holes.append(frozenset(range(bottom[-1], top[-1] + 1)) - frozenset(allowed))
    return PermittedLevels(tuple(bottom), tuple(top), tuple(holes) if any(holes) else ())
