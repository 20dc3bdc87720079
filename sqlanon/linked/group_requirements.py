"""Requirements on sensitive attributes of linked tables: on the groups of persons who share what an attacker may know.

A group is the persons who support a combination of known rows, or have the same signature. Its values are those of its
persons, each counted once for a person. Groups overlap, so none of these requirements is monotone: a higher
generalization may violate what a lower one meets.

The values of child rows that are suppressed by themselves count, too: then no value has more persons in the release.

Tables: ``sensitive_N`` (``person``, and ``v``, the number of a value) for each attribute.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from sqlanon.linked.records import LinkedRecords
from sqlanon.linked.tables import LinkedTable
from sqlanon.requirements.base import ClassCondition
from sqlanon.support.expressions import as_column, col, cols, subquery, template, union_all


def violating_persons(
    condition: ClassCondition, members: exp.Query, keys: Sequence[str], sensitive: exp.Expr
) -> exp.Select:
    """The persons in groups that violate a condition.

    Parameters
    ----------
    members:
        The persons of the groups: ``person`` and the ``keys`` of the group.
    sensitive:
        The values of persons: ``person`` and ``v``, without duplicates.
    """
    distribution = condition.distribution
    assert distribution is not None
    figures = [as_column(value, distribution.name(name)) for name, value in condition.figures().items()]
    derived_figures = [
        as_column(value, distribution.name(name)) for name, value in condition.derived_figures(1).items()
    ]
    query = template("""
        WITH members AS (:members),
        sizes AS (SELECT :keys, count(*) AS class_count FROM members AS m GROUP BY :keys),
        value_counts AS (
            SELECT :keys, v, count(*) AS n
            FROM members AS m
            JOIN :sensitive AS s USING (person)
            GROUP BY :keys, v
        ),
        figures AS (SELECT :keys, :figures FROM value_counts AS c GROUP BY :keys),
        groups AS (SELECT figures.*, sizes.class_count, :derived FROM figures JOIN sizes USING (:keys)),
        violating AS (SELECT :keys FROM groups AS g WHERE NOT coalesce((:condition), FALSE))
        SELECT DISTINCT person FROM members AS m SEMI JOIN violating USING (:keys)
    """)
    return query(
        members=members,
        keys=cols(keys),
        sensitive=sensitive,
        figures=figures,
        derived=derived_figures,
        condition=condition.condition(),
    )


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


def number_values(values: exp.Query) -> exp.Select:
    """Number the values of persons (``person``, ``value``): each pair once, as ``person`` and ``v``."""
    return template("""
        SELECT DISTINCT person, dense_rank() OVER (ORDER BY value) AS v FROM :values AS sensitive
    """)(values=values)


def _source_values(table: LinkedTable, name: str) -> exp.Select:
    """The values of a sensitive attribute with their persons."""
    owner = "numbers" if table.parent is None else "parent"
    column = table.columns.by_attribute[name]
    output = [col("person", owner), as_column(col(column, "child"), "value")]
    return table.select_linked_rows().select(*output, copy=False)
