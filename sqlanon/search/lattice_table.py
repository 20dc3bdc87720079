"""The table of the generalizations that a search looked at."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlglot import exp

from sqlanon.engines.base import Engine
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


def keep_lattice(engine: Engine, target: exp.Table, rows: Sequence[Sequence[Any]] | None) -> None:
    """Make the table; its rows come as one list a column, as parameters."""
    engine.execute(column_definitions(target, LATTICE_COLUMNS.items()))
    if rows is not None:
        lists = [
            named(exp.Explode(this=cast(exp.Placeholder(), f"{type_}[]")), name)
            for name, type_ in LATTICE_COLUMNS.items()
        ]
        engine.execute(exp.Insert(this=target, expression=exp.Select(expressions=lists)), rows)
