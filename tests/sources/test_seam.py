"""The seams of sources and engines: others of each, outside the package, go through all that a policy can ask for."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest
from sqlglot import exp

import sqlanon
from sqlanon.engines.base import Engine, RemoteEngine
from sqlanon.engines.egress_guard import is_aggregated
from sqlanon.sources import register_source
from sqlanon.support.expressions import full_name
from support.databases import insert
from support.kiosk import KioskEngine
from support.recipes import recipe, registrations

WARDS = ("north", "south")
ROWS = [
    {"name": f"p{i}", "zip": f"{i * 37 % 60:05}", "age": i * 13 % 70, "ward": WARDS[i % 2], "cost": i % 7}
    for i in range(300)
]
K = 5


def policy(**more: Any) -> sqlanon.Policy:
    return sqlanon.Policy(
        source={"table": "patients"},
        attributes={
            "name": {"role": "identifying"},
            "zip": {"role": "quasi", "hierarchy": {"mask": "right"}},
            "age": {"role": "quasi", "hierarchy": {"intervals": [10, 40]}},
            "ward": {"role": "sensitive"},
            "cost": {"role": "insensitive"},
        },
        privacy={"k": K, "dependencies": "warn", "l_diversity": [{"attribute": "ward", "kind": "distinct", "l": 2}]},
        **more,
    )


def expected_result() -> tuple[dict[str, int], float]:
    """The result of DuckDB for the same rows."""
    with sqlanon.connect(duckdb_table()) as db:
        result = db.anonymize(policy())
        return result.generalization, result.score


def duckdb_table() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.execute("CREATE TABLE patients (name VARCHAR, zip VARCHAR, age BIGINT, ward VARCHAR, cost BIGINT)")
    insert(connection, "patients", [tuple(row.values()) for row in ROWS])
    return connection


def smallest_class(path: Path) -> int:
    with duckdb.connect(str(path), read_only=True) as release:
        query = "SELECT min(n) FROM (SELECT count(*) AS n FROM patients GROUP BY zip, age)"
        return int(release.execute(query).fetchall()[0][0])


@pytest.fixture
def listing() -> Iterator[Any]:
    """The source of EXTENDING.md."""
    module = recipe("listing")
    with registrations():
        register_source(module.ListingKind())
        yield module.Listing(ROWS)


@pytest.mark.thorough
def test_a_source_of_another_kind_goes_through_all(listing: Any, tmp_path: Path) -> None:
    path, asks = tmp_path / "release.duckdb", policy(catalog={"database": str(tmp_path / "catalog.duckdb")})
    with sqlanon.connect(listing) as db:
        assert "frequency" in str(db.plan(asks))
        assert db.risk(asks).rows == len(ROWS)
        result = db.anonymize(asks)
        assert (result.generalization, result.score) == expected_result()
        release = result.publish(path)
        assert smallest_class(path) >= K
        assert release.verify().verified
        assert json.loads(result._run.identity)["database"] == "listing"  # the ledger knows it again
        assert db.verify(path, asks).verified


def without_parts(query: exp.Query) -> exp.Query:
    """The same query with subqueries in place of the parts that it names first."""
    query = query.copy()
    parts = query.args.pop("with_").expressions if query.args.get("with_") else []
    for part in reversed(parts):  # a part may read those before it
        for node in [node for node in query.find_all(exp.Table) if node.name == part.alias and not node.db]:
            node.replace(exp.Subquery(this=part.this.copy(), alias=exp.TableAlias(this=exp.to_identifier("part"))))
    return query


@pytest.mark.slow
def test_an_engine_of_another_name_goes_through_all(tmp_path: Path) -> None:
    path, asks = tmp_path / "release.duckdb", policy(catalog={"database": str(tmp_path / "catalog.duckdb")})
    server = KioskEngine(duckdb_table())
    engine: RemoteEngine = server
    assert engine.STREAMS_BATCHES
    with sqlanon.connect(server) as db:
        plan = str(db.plan(asks))
        assert "-- in the kiosk" in plan
        assert server.left == []  # a plan reads nothing
        result = db.anonymize(asks)
        assert (result.generalization, result.score) == expected_result()
        mentioned = {name for query in server.left for name in names(query)}
        assert '"patients"' in mentioned
        # Until it is published nothing left but what is counted.
        assert all(is_aggregated(without_parts(query), {'"patients"'}) for query in server.left)
        assert "patients" in result.sql()
        release = result.publish(path)
        assert not all(is_aggregated(query, {'"patients"'}) for query in server.left)  # the rows of the release
        assert smallest_class(path) >= K
        assert release.verify().verified
        assert db.verify(path, asks).verified
        with pytest.raises(sqlanon.SourceError, match="at the kiosk, and its rows never leave it"):
            db.risk(asks)


def names(query: exp.Expr) -> set[str]:
    return {full_name(node) for node in query.find_all(exp.Table)}


def test_an_engine_outside_the_package_satisfies_the_protocol() -> None:
    members = {name for name in dir(Engine) if not name.startswith("_")}
    assert members <= set(dir(KioskEngine))
