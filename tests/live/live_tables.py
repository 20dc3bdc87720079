"""Live releases of small tables."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import duckdb
import pytest

import sqlanon
from support.databases import DUCKDB_1
from support.policies import make_policy

SECRET = "SECRET 4711"
"""A diagnosis of one person, alone in a ward."""


FORMS = ["plain", pytest.param("secure", marks=pytest.mark.skipif(DUCKDB_1, reason="DuckDB 1 has no secure views"))]


def policy_for(
    privacy: dict[str, Any], attributes: Any = None, table: str | None = "t", **sections: Any
) -> sqlanon.Policy:
    """A policy with all of its requirements."""
    tree = make_policy(attributes or {"q": "suppress", "s": "sensitive"}, table=table).model_dump(exclude_none=True)
    return sqlanon.Policy(**{**tree, "privacy": privacy, **sections})


def live(connection: duckdb.DuckDBPyConnection, policy: sqlanon.Policy, name: str | None = None) -> Any:
    with sqlanon.connect(connection) as db:
        return db.live(policy, name)


@pytest.fixture
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        yield connection


def all_of(connection: duckdb.DuckDBPyConnection, view: str = "t_live") -> list[Any]:
    return sorted(connection.execute(f"FROM {view}").fetchall(), key=repr)
