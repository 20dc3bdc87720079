"""Requirements on sensitive attributes of linked tables: on the groups of persons who share what an attacker may know.

A group is the persons who support a combination of known rows, or have the same signature. Its values are those of its
persons, each counted once for a person. Groups overlap, so none of these requirements is monotone: a higher
generalization may violate what a lower one meets.

The values of child rows that are suppressed individually count, too: then no value has more persons in the release.

Tables: ``sensitive_N`` (``person``, and ``value_code``, the number of a value) for each attribute.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from sqlanon.linked.check.group_conditions import number_values, violating_persons
from sqlanon.linked.records import LinkedRecords
from sqlanon.linked.tables import LinkedTable
from sqlanon.requirements.base import ClassCondition
from sqlanon.support.expressions import as_column, col, subquery, template, union_all


class GroupRequirements:
    """The requirements of a policy on sensitive attributes, with the values of persons in tables of a run."""

    def __init__(self, records: LinkedRecords) -> None:
        self.conditions: list[tuple[ClassCondition, exp.Table]] = []
        tables: dict[tuple[str, str], exp.Table] = {}
        for requirement in records.policy.group_requirements:
            table = records.table(requirement.section.name)
            key = (table.name, requirement.attribute)
            if key not in tables:
                tables[key] = records.work(f"sensitive_{len(tables)}")
                values = number_values(_source_values(table, requirement.attribute))
                records.runner.create_table(tables[key], values)
            self.conditions.append((requirement.condition, tables[key]))

    def persons_of_violating_groups(self, groups: Sequence[tuple[exp.Query, Sequence[str]]]) -> exp.Select:
        """The persons in groups that violate a requirement; ``groups`` are members with their keys."""
        parts = [
            violating_persons(condition, members.copy(), keys, sensitive)
            for condition, sensitive in self.conditions
            for members, keys in groups
        ]
        return template("SELECT DISTINCT person FROM :persons AS persons")(persons=subquery(union_all(*parts)))


def _source_values(table: LinkedTable, name: str) -> exp.Select:
    """The values of a sensitive attribute with their persons."""
    owner = "numbers" if table.parent is None else "parent"
    column = table.columns.by_attribute[name]
    output = [col("person", owner), as_column(col(column, "child"), "value")]
    return table.select_linked_rows().select(*output, copy=False)
