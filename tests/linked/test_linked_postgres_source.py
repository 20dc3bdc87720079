"""Linked tables in PostgreSQL are anonymized there: the oracle's optimum, and nothing by person leaves the server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from oracles.oracle_linked import best
from properties.linked_cases import LinkedCase, small_cases
from sqlanon.database import connect
from sqlanon.errors import InfeasibleError
from sqlanon.policy.linked import LinkedPolicy
from support.lanes import examples
from support.postgres_cases import HERE, schemas
from support.servers.postgres import Server

__all__ = ["schemas"]  # fixtures

pytest.importorskip("adbc_driver_postgresql.dbapi", reason="the extra postgres is not installed")


def load_case(server: Server, case: LinkedCase, folder: Path, **sections: Any) -> LinkedPolicy:
    """Create the tables of a case in a new schema, and write its hierarchies to files; the policy."""
    server.run("DROP SCHEMA IF EXISTS clinic CASCADE", "CREATE SCHEMA clinic")
    tree = case.policy(source={"postgres": HERE}, **sections)
    for t, (table, section) in enumerate(zip(case.database.tables, tree["table"], strict=True)):
        section["table"] = f"clinic.{table.name}"
        columns = {f"id_{t}": "integer", **({f"parent_{t}": "integer"} if table.parent is not None else {})}
        rows = [
            [row.number + 100, *([] if row.parent is None else [row.parent + 100]), *row.values] for row in table.rows
        ]
        server.load(section["table"], {**columns, **dict.fromkeys(table.names, "text")}, rows)
        for name, hierarchy in zip(table.names, table.hierarchies, strict=True):
            file = folder / f"{name}.csv"
            file.write_text("".join(f"{';'.join(map(str, path))}\n" for path in hierarchy.paths.values()))
            section["attributes"][name]["hierarchy"] = {"file": str(file)}
    return LinkedPolicy(**tree)


def test_the_optimum_is_the_oracles(schemas: Server, tmp_path: Path) -> None:
    for case in small_cases(12, examples(60)):
        expected = best(case.database, case.k, case.known, case.allowed_persons, case.weights)
        with connect() as db:
            try:
                result = db.anonymize(load_case(schemas, case, tmp_path))
            except InfeasibleError:
                assert expected is None
                continue
        assert expected is not None
        assert result.score == pytest.approx(expected.score)
        assert result.levels == expected.levels
        assert result.suppressed_persons == expected.suppressed_persons
