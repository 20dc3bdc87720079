"""The lattice as a table: what a search looked at, one row a generalization."""

from __future__ import annotations

from sqlglot import exp

from sqlanon.expressions import cast, column_definitions, named

LATTICE_COLUMNS = {
    "levels": "INTEGER[]",
    "height": "INTEGER",
    "bound": "DOUBLE",
    "status": "VARCHAR",
    "classes": "BIGINT",
    "suppressed_rows": "BIGINT",
    "score": "DOUBLE",
}
"""Columns and types. ``levels`` is in the policy's order; figures are NULL where nothing had to be asked."""


def create_lattice(target: exp.Table) -> exp.Create:
    """The empty lattice table."""
    return column_definitions(target, LATTICE_COLUMNS.items())


def insert_lattice(target: exp.Table) -> exp.Insert:
    """Insert rows that come as one list a column, as parameters."""
    lists = [
        named(exp.Explode(this=cast(exp.Placeholder(), f"{type_}[]")), name) for name, type_ in LATTICE_COLUMNS.items()
    ]
    return exp.Insert(this=target, expression=exp.Select(expressions=lists))
