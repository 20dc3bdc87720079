"""Rows of a file as sqlanon binds them."""

from __future__ import annotations

from typing import Any

from sqlanon.sources.workspace import Workspace
from support.policies import make_policy


def bound_rows(
    connection: Any, /, attributes: dict[str, Any], reads: bool = True, **sections: Any
) -> tuple[list[tuple[Any, ...]], dict[str, str]]:
    """The rows of a source as a policy binds it, and the types of its columns."""
    workspace = Workspace(connection)
    try:
        with workspace.run(make_policy(attributes, table=None, **sections), reads) as run:
            rows = [] if not reads else run.engine.connection.execute(f"FROM {run.source.relation.sql()}").fetchall()
            return rows, dict(run.source.columns)
    finally:
        workspace.close()
