"""Rows of a release before it is published: those of the release, audited; and of a published one."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import sqlanon
from sqlanon import AuditError, ReleaseError
from sqlanon.errors import MissingLibraryError
from support.policies import _attribute, make_policy
from support.servers.postgres import VARIABLE

PATIENTS = """
    CREATE TABLE patients AS
    SELECT 'person ' || i AS name, '0213' || i % 3 AS zip,
           CASE WHEN i % 50 = 7 THEN 95 + i // 50 ELSE i * 7 % 80 END AS age,
           DATE '2020-01-01' + (i % 9)::INTEGER AS seen,
           CASE WHEN i % 11 > 0 THEN (i % 5 * 1.25)::DECIMAL(6, 2) END AS cost, i % 6 AS ward, [i % 2] AS codes
    FROM range(300) AS t(i)
"""
ROLES: dict[str, Any] = {
    "name": "identifying",
    "zip": "mask",
    "age": {"intervals": [5, 10, 40]},
    "seen": "insensitive",
    "cost": "insensitive",
    "ward": "sensitive",
    "codes": "insensitive",
}


@pytest.fixture
def live() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        connection.execute(PATIENTS)
        yield connection


def policy(**more: Any) -> sqlanon.Policy:
    search = {"suppression_limit": 0.1, **more.pop("search", {})}
    roles = {name: _attribute(spec) for name, spec in {**ROLES, **more.pop("roles", {})}.items()}
    source = {"table": "patients"}
    return sqlanon.Policy(
        **{"source": source, "attributes": roles, "privacy": {"k": 4, "dependencies": "warn"}, "search": search, **more}
    )


def texts(rows: pa.Table) -> list[str]:
    return [str(row) for row in rows.to_pylist()]


def check_same(live: duckdb.DuckDBPyConnection, requested_policy: sqlanon.Policy, folder: Path) -> sqlanon.Result:
    """The rows that are handed out are those that are published after them, and they stay the same."""
    with sqlanon.connect(live) as db:
        result = db.anonymize(requested_policy)
        before, again = result.arrow(), result.relation().to_arrow_table()
        release = result.publish(folder / "release.duckdb", "patients")
        assert before.equals(again) and before.equals(result.arrow()), "they are made once"
    published = release.arrow()
    assert before.schema.equals(published.schema)
    assert [column.name for column in release.manifest.columns] == before.schema.names
    assert before.num_rows == result.released_rows == release.manifest.released_rows
    assert Counter(texts(before)) == Counter(texts(published))
    assert texts(before) != texts(published), "rows come in random order"
    assert release.verify().verified
    return result


@pytest.mark.thorough
def test_rows_are_those_of_the_release(live: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    """Types, order of columns, NULL, nested values; and no column that is not released."""
    result = check_same(live, policy(), tmp_path)
    assert result.suppressed_rows
    assert [path.name for path in tmp_path.iterdir()] == ["release.duckdb"]
    assert live.execute("SELECT count(*) FROM patients").fetchall() == [(300,)]


@pytest.mark.thorough
@pytest.mark.parametrize(
    "more",
    [
        {"search": {"strategy": "mondrian", "summary": "set", "suppression_limit": 0}},
        {"release": {"suppressed": "mask", "database": "r.duckdb"}},
        {"release": {"file": "r.parquet"}},
        {"roles": {"age": {"role": "quasi", "noise": {"epsilon": 1.0}}}},
    ],
    ids=["local", "masked", "parquet", "noise"],
)
def test_rows_of_other_policies(more: dict[str, Any], live: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    """Noise is drawn once: with other noise, the rows of the release would be others."""
    if "roles" in more:
        pytest.importorskip("opendp", reason="the extra dp is not installed")
    result = check_same(live, policy(**more), tmp_path)
    assert ("noise, ε = 1" in result._repr_html_()) == ("roles" in more)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("UPDATE patients SET ward = 1", "distinct 2-diversity of ward"),
        pytest.param(
            "DELETE FROM patients WHERE hash(name) % 3 > 0", "has the source changed since", marks=pytest.mark.slow
        ),
    ],
)
def test_rows_that_fail_the_audit_are_not_handed_out(
    change: str, message: str, live: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    """The source has changed since it was searched: the statement makes rows that do not meet the policy."""
    requested_policy = policy(
        privacy={"k": 4, "dependencies": "warn", "l_diversity": [{"attribute": "ward", "kind": "distinct", "l": 2}]}
    )
    with sqlanon.connect(live) as db:
        result = db.anonymize(requested_policy)
        live.execute(change)
        for hand_out in (result.arrow, lambda: result.publish(tmp_path / "r.duckdb", "patients")):
            with pytest.raises(AuditError, match=message):
                hand_out()
        assert live.sql("SELECT count(*) FROM duckdb_tables() WHERE table_name = 'release_rows'").fetchall() == [(0,)]


@pytest.mark.thorough
def test_rows_that_a_policy_refuses_are_not_handed_out(live: duckdb.DuckDBPyConnection) -> None:
    """A ward of one ZIP code narrows it: that is refused before anything is made."""
    live.execute("ALTER TABLE patients ADD COLUMN district VARCHAR")
    live.execute("UPDATE patients SET district = zip, zip = zip || age % 2")
    roles = {"district": "insensitive", "zip": {"role": "quasi", "hierarchy": {"mask": "right"}, "min_level": 2}}
    with sqlanon.connect(live) as db:
        result = db.anonymize(policy(roles=roles, privacy={"k": 4, "dependencies": "error"}))
        for hand_out in (result.relation, result.arrow):
            with pytest.raises(AuditError, match="district"):
                hand_out()


@pytest.mark.slow
def test_rows_of_a_frequency_set_are_elsewhere(live: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    counts = "SELECT zip, age, ward, count(*) AS n FROM patients GROUP BY ALL"
    live.execute(f"COPY ({counts}) TO '{tmp_path / 'counts.parquet'}'")
    source = {"frequency_set": str(tmp_path / "counts.parquet"), "table": "patients", "undeclared": "drop"}
    with sqlanon.connect() as db:
        result = db.anonymize(make_policy({name: ROLES[name] for name in ("zip", "age", "ward")}, k=4, source=source))
        with pytest.raises(ReleaseError, match=r"frequency set.*export"):
            result.arrow()


@pytest.mark.thorough
def test_the_ledger_does_not_know_them(live: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    """Rows that `publish` refuses because of an earlier release are handed out to try things out, as those of a draft
    are; nothing is recorded."""
    catalog = {"database": str(tmp_path / "catalog.duckdb")}
    with sqlanon.connect(live) as db:
        db.anonymize(policy(catalog=catalog)).publish(tmp_path / "first.duckdb", "patients")
        result = db.anonymize(policy(catalog=catalog, roles={"zip": "suppress", "age": {"intervals": [7, 28]}}))
        assert result.arrow().num_rows == result.released_rows
        with pytest.raises(AuditError, match=r"together with .*first\.duckdb"):
            result.publish(tmp_path / "second.duckdb", "patients")
    with duckdb.connect(str(tmp_path / "catalog.duckdb"), read_only=True) as ledger:
        assert ledger.execute("SELECT count(*) FROM sqlanon.releases").fetchall() == [(1,)]


@pytest.mark.slow
def test_frames_equal_the_released_table(live: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    pytest.importorskip("pandas", reason="the extra pandas is not installed")
    pytest.importorskip("polars", reason="the extra polars is not installed")
    with sqlanon.connect(live) as db:
        result = db.anonymize(policy())
        release = result.publish(tmp_path / "release.duckdb", "patients")
        parquet = result.publish(tmp_path / "release.parquet")
        for frames in (result, release, parquet):
            polars, pandas, arrow = frames.pl(), frames.df(), frames.arrow()
            assert polars.rows() == [tuple(row.values()) for row in arrow.to_pylist()]
            assert polars.columns == list(pandas.columns) == arrow.schema.names
            assert list(pandas["age"]) == polars["age"].to_list()
            assert list(pandas.index) == list(range(result.released_rows))
            assert str(polars.schema["cost"]).startswith("Decimal") and str(polars.schema["seen"]) == "Date"


@pytest.mark.thorough
@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_a_library_that_is_missing_is_named(
    library: str, live: duckdb.DuckDBPyConnection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with sqlanon.connect(live) as db:
        result = db.anonymize(policy())
        release = result.publish(tmp_path / "release.duckdb", "patients")
        for frames in (result, release):
            with pytest.raises(MissingLibraryError, match=rf"a {library} data frame.*'\.\[{library}\]'"):
                getattr(frames, {"pandas": "df", "polars": "pl"}[library])()


@pytest.mark.thorough
def test_rows_of_a_source_in_postgres(postgres: Any) -> None:
    """They come here, as those of a release file do."""
    pytest.importorskip("adbc_driver_postgresql", reason="the extra postgres is not installed")
    rows = [(f"0213{i % 3}", i * 7 % 80, i % 6) for i in range(300)]
    postgres.run("DROP TABLE IF EXISTS public.frames")
    postgres.load("public.frames", {"zip": "text", "age": "integer", "ward": "integer"}, rows)
    roles = {name: ROLES[name] for name in ("zip", "age", "ward")}
    source = {"postgres": f"env:{VARIABLE}", "table": "public.frames"}
    with sqlanon.connect() as db:
        result = db.anonymize(make_policy(roles, k=4, source=source))
        assert result.arrow().num_rows == result.released_rows == 300
        assert len({(row["zip"], row["age"]) for row in result.arrow().to_pylist()}) == result.classes
    postgres.run("DROP TABLE public.frames")
