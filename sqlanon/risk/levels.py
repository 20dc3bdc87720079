"""The attributes that some figures of risk generalize: by their names, and with their values coded at each level."""

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
    """Quasi-identifiers with a hierarchy as the policy spells them, whatever the case."""
    there = {name.lower(): name for name in policy.generalized_attributes}
    choose = f"choose from {', '.join(policy.generalized_attributes)}"
    problems = [
        Problem(option, f"{name!r} is not a quasi-identifier with a hierarchy: {choose}")
        for name in dict.fromkeys(names)
        if name.lower() not in there
    ]
    if problems:
        raise PolicyError(problems)
    return [there[name.lower()] for name in names]


def code_levels(
    steps: StatementRunner, work: Namer, policy: Policy, values: Mapping[str, AttributeValues]
) -> dict[str, tuple[exp.Table, int]]:
    """Make the hierarchies of attributes, ``hierarchy_i``, and their `coded_values`, ``coded_i``: these by attribute,
    each with its top level. A `HierarchyError` has all that is wrong.
    """
    found, problems = dict[str, tuple[exp.Table, int]](), list[Problem]()
    for i, (name, of) in enumerate(values.items()):
        spec, target = policy.attributes[name], work(f"hierarchy_{i}")
        rules = spec.hierarchy or ()
        hierarchy, wrong = build_hierarchy(steps, name, rules, of.table, of.type, target, spec.on_unknown)
        problems += wrong
        if hierarchy is not None:
            height, top, open_ends = hierarchy.height, hierarchy.top or "", hierarchy.open_ends
            query = coded_values(of.table, target, height, top, nullable=True, open_ends=open_ends)
            found[name] = steps.make(work(f"coded_{i}"), query), height
    if problems:
        raise HierarchyError(problems)
    return found
