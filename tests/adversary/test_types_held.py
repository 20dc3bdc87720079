"""A file gives back what was released; what it cannot hold is refused before anything is searched."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

import sqlanon
from adversary.odd_values import SCALARS, nested_literals, with_odd_floats
from sqlanon import ReleaseError
from support.databases import DUCKDB_1
from support.lanes import some
from support.policies import make_policy

pytestmark = pytest.mark.slow

CASES = [
    *((name, values) for name, values in SCALARS.items() if name != "INTERVAL"),
    ("INTERVAL", ["INTERVAL 1 MONTH", "INTERVAL '-1 day'", "INTERVAL '1 microsecond'"]),
    *(
        (f"{name} in {kind}", inner)
        for name in ("INTEGER", "HUGEINT", "GEOMETRY", "VARIANT", "TIME WITH TIME ZONE")
        for kind, inner in nested_literals(SCALARS[name][:3], name).items()
    ),
]


@pytest.mark.parametrize(
    ("name", "values", "ending"),
    [
        pytest.param(*case.values, id=f"{case.values[0]}-{case.values[2]}", marks=case.marks)
        for case in some([(*case, ending) for case in CASES for ending in ("parquet", "duckdb")], 25)
    ],
)
def test_a_type_is_held_or_refused_at_the_start(tmp_path: Path, name: str, values: list[str], ending: str) -> None:
    path = tmp_path / f"release.{ending}"
    rows = " UNION ALL ".join(f"SELECT 1 AS q, {value} AS x" for value in [*values, "NULL"])
    place = {"file": str(path)} if ending == "parquet" else {"database": str(path)}
    with with_odd_floats(duckdb.connect()) as connection:
        try:
            connection.execute(f"CREATE TABLE t AS {rows}")
        except duckdb.Error:
            assert DUCKDB_1
            pytest.skip("the older DuckDB has no such values")
        policy = make_policy({"q": "suppress", "x": "insensitive"}, release=place)
        with sqlanon.connect(connection) as db:
            try:
                result = db.anonymize(policy)
            except ReleaseError as error:
                assert "'x'" in str(error) and ("source query" in str(error))
                held = False
            else:
                assert result.publish().verify().verified
                assert db.verify(path, policy).verified
                held = True
    if name in ("INTEGER", "DOUBLE", "VARCHAR", "JSON", "ENUM", "VARIANT", "UUID", "INTEGER in LIST", "INTEGER in MAP"):
        assert held
    if ending == "parquet" and name in (
        "GEOMETRY",
        "INTERVAL",
        "BIT",
        "HUGEINT",
        "INTEGER in UNION",
        "HUGEINT in LIST",
    ):
        assert not held
    assert path.exists() == held


@pytest.mark.thorough
def test_a_type_that_a_given_path_does_not_hold(tmp_path: Path) -> None:
    """A policy without a file is checked when the file is known, before the rows are written."""
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE t AS SELECT 1 AS q, union_value(u := i) AS x FROM range(4) AS r(i)")
        with sqlanon.connect(connection) as db:
            result = db.anonymize(make_policy({"q": "suppress", "x": "insensitive"}))
            with pytest.raises(ReleaseError, match=r"Parquet cannot hold the types of 'x' \(UNION"):
                result.publish(tmp_path / "release.parquet")
            assert result.publish(tmp_path / "release.duckdb").verify().verified
    assert [path.name for path in tmp_path.iterdir()] == ["release.duckdb"]


def test_plan_refuses_types_the_location_cannot_hold(tmp_path: Path) -> None:
    policy = make_policy({"q": "suppress", "x": "insensitive"}, release={"file": str(tmp_path / "release.parquet")})
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE t AS SELECT 1 AS q, union_value(u := i) AS x FROM range(4) AS r(i)")
        with sqlanon.connect(connection) as db:
            for job in (db.plan, db.anonymize):
                with pytest.raises(ReleaseError, match=r"Parquet cannot hold the types of 'x' \(UNION") as caught:
                    job(policy)
                assert "convert them in the files, or with a source query of a database" in str(caught.value)
