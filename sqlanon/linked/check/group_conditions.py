"""Conditions on the sensitive values of groups of persons who share what an attacker may know."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from sqlanon.requirements.base import ClassCondition
from sqlanon.support.expressions import all_of, as_column, col, cols, template


def violating_persons(
    condition: ClassCondition, members: exp.Query, keys: Sequence[str], sensitive: exp.Expr
) -> exp.Select:
    """The persons in groups that violate a condition.

    Parameters
    ----------
    members:
        The persons of the groups: ``person`` and the ``keys`` of the group.
    sensitive:
        The values of persons: ``person`` and ``value_code``, without duplicates.
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
            SELECT :keys, value_code, count(*) AS row_count
            FROM members AS m
            JOIN :sensitive AS s USING (person)
            GROUP BY :keys, value_code
        ),
        figures AS (SELECT :keys, :figures FROM value_counts AS c GROUP BY :keys),
        groups AS (SELECT figures.*, sizes.class_count, :derived FROM figures JOIN sizes ON :same_group),
        violating AS (SELECT :keys FROM groups AS g WHERE NOT coalesce((:condition), FALSE))
        SELECT DISTINCT person FROM members AS m SEMI JOIN violating USING (:keys)
    """)
    return query(
        members=members,
        keys=cols(keys),
        same_group=all_of(col(key, "figures").eq(col(key, "sizes")) for key in keys),
        sensitive=sensitive,
        figures=figures,
        derived=derived_figures,
        condition=condition.condition(),
    )


def number_values(values: exp.Query) -> exp.Select:
    """Number the values of persons (``person``, ``value``): each pair once, as ``person`` and ``value_code``."""
    return template("""
        SELECT DISTINCT person, dense_rank() OVER (ORDER BY value) AS value_code FROM :values AS sensitive
    """)(values=values)
