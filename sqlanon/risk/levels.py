"""Attributes that figures of risk generalize: their names, and the codes of their values at each level."""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import exp

from sqlanon.engines.statement_runner import StatementRunner
from sqlanon.errors import HierarchyError, PolicyError, Problem
from sqlanon.hierarchies import build_hierarchy
from sqlanon.hierarchies.build import AttributeValues
from sqlanon.policy import Policy
from sqlanon.support.coding import coded_values
from sqlanon.support.expressions import Namer


def resolve_attributes(policy: Policy, option: str, *names: str) -> list[str]:
    """Resolve names of quasi-identifiers with a hierarchy to their spelling in the policy, ignoring case."""
    spellings = {name.lower(): name for name in policy.generalized_attributes}
    choices = f"choose from {', '.join(policy.generalized_attributes)}"
    problems = [
        Problem(option, f"{name!r} is not a quasi-identifier with a hierarchy: {choices}")
        for name in dict.fromkeys(names)
        if name.lower() not in spellings
    ]
    if problems:
        raise PolicyError(problems)
    return [spellings[name.lower()] for name in names]


def code_levels(
    runner: StatementRunner, work: Namer, policy: Policy, values: Mapping[str, AttributeValues]
) -> dict[str, tuple[exp.Table, int]]:
    """Create the hierarchies of attributes, ``hierarchy_i``, and their `coded_values`, ``coded_i``.

    Returns the coded values by attribute, with the top level. A `HierarchyError` lists all problems.
    """
    coded, problems = dict[str, tuple[exp.Table, int]](), list[Problem]()
    for i, (name, attribute_values) in enumerate(values.items()):
        spec, target = policy.attributes[name], work(f"hierarchy_{i}")
        source, type_ = attribute_values.table, attribute_values.type
        hierarchy, faults = build_hierarchy(runner, name, spec.hierarchy or (), source, type_, target, spec.on_unknown)
        problems += faults
        if hierarchy is not None:
            height, top, open_ends = hierarchy.height, hierarchy.top or "", hierarchy.open_ends
            query = coded_values(source, target, height, top, nullable=True, open_ends=open_ends)
            coded[name] = runner.create_table(work(f"coded_{i}"), query), height
    if problems:
        raise HierarchyError(problems)
    return coded
