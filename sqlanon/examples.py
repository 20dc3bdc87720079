"""What stands for the answers, where statements are only shown."""

from __future__ import annotations

from sqlglot import exp

from sqlanon.errors import HierarchyError, Problem
from sqlanon.hierarchies import hierarchy_query, known_height
from sqlanon.policy import Hierarchy
from sqlanon.steps import Steps

EXAMPLE_LENGTH = 5
"""A mask's levels depend on the data: what is shown is a column whose longest text has so many characters."""


def example_height(steps: Steps, rules: Hierarchy | tuple[()]) -> int:
    """The height of a hierarchy, as far as rules and files tell."""
    return known_height(rules, steps.engine, EXAMPLE_LENGTH) or 0


def show_hierarchy(
    steps: Steps, name: str, rules: Hierarchy | tuple[()], values: exp.Table, type_: str, target: exp.Table
) -> None:
    """Show how the hierarchy of an attribute is made.

    Raises
    ------
    HierarchyError
        A file or a table of it cannot be read; names the attribute.
    """
    try:
        query = hierarchy_query(rules, values, type_, engine=steps.engine, longest=EXAMPLE_LENGTH)
    except HierarchyError as error:
        place = f"attributes.{name}.hierarchy"
        raise HierarchyError(Problem(place, problem.message) for problem in error.problems) from error
    steps.make(target, query)
