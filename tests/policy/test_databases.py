"""Databases and files that need an extension of DuckDB, as a policy names them: paths, addresses, and no secret."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

import sqlanon
from sqlanon.places.databases import (
    choose_attachment,
    format_address,
    format_database,
    is_attached,
    local_database,
    read_data_files,
    read_database,
    resolve_database,
)

ROLES = {"zip": {"role": "quasi", "hierarchy": "suppress"}}


def policy(**source: object) -> sqlanon.Policy:
    return sqlanon.Policy(source=source, attributes=ROLES, privacy={"k": 2})


def problem(**source: object) -> str:
    with pytest.raises(sqlanon.PolicyError) as caught:
        policy(**source)
    return str(caught.value)


@pytest.mark.parametrize(
    "source",
    [
        {"database": "mysql:host=db user=me passwd=hush database=h", "table": "t"},
        {"database": "mysql:host=db password='hu sh' database=h", "table": "t"},
        {"database": "mysql://me:hush@db/h", "table": "t"},
        {"database": "mysql://me@db/h?PassWord=hush", "table": "t"},
        {"database": "ducklake:mysql:host=db password=hush", "table": "t"},
        {"database": "ducklake:postgres:postgresql://me:hush@db/h", "table": "t"},
        {"database": "https://me:hush@host/x.duckdb", "table": "t"},
        {"files": "https://me:hush@host/x.parquet"},
        {"files": "https://host/x.parquet?X-Amz-Signature=hush"},
        {"files": ["x.parquet", "https://host/x.parquet?a=b&sig=hush"]},
        {"files": "s3://bucket/x.parquet?s3_secret_access_key=hush"},
        {"files": "s3://bucket/x.parquet?s3_session%5Ftoken=hush"},
        {"files": "delta:s3://me:hush@bucket/x"},
    ],
)
def test_a_secret_is_refused_and_never_quoted(source: dict[str, object]) -> None:
    message = problem(**source)
    assert "does not belong in a policy" in message
    assert "env:NAME" in message
    assert "hush" not in message and "hu sh" not in message


@pytest.mark.parametrize(
    "source",
    [
        {"database": "mysql:host=db user=me database=h", "table": "t"},
        {"database": "mysql://me@db:3307/h", "table": "t"},
        {"database": "env:HOSPITAL", "table": "t"},
        {"files": "s3://bucket/2026/*.parquet?s3_region=eu-west-1&s3_url_style=path"},
        {"files": ["https://host/x.csv", "https://host/y.csv"]},
        {"files": "env:PATIENTS"},
    ],
)
def test_an_address_without_a_secret_is_unchanged(source: dict[str, object]) -> None:
    read = policy(**source).source
    assert str(read.database) == source["database"] if "database" in source else read.files[0] in source["files"]


def test_a_server_of_postgresql_has_a_key_of_its_own() -> None:
    assert 'postgres = "postgresql://' in problem(database="postgres:dbname=x", table="t")


def test_paths_are_relative_to_the_policy() -> None:
    folder = Path("/data/policies")
    assert read_database("../x.sqlite", folder) == folder / "../x.sqlite"
    assert read_database("sqlite:x.db", folder) == folder / "x.db"
    assert read_database("ducklake:lake.ducklake", folder) == "ducklake:/data/policies/lake.ducklake"
    assert read_database("ducklake:sqlite:lake.db", folder) == "ducklake:sqlite:/data/policies/lake.db"
    assert read_database("ducklake:mysql:host=db database=h", folder) == "ducklake:mysql:host=db database=h"
    assert read_data_files("delta:lake/patients", folder) == "delta:/data/policies/lake/patients"
    assert read_data_files("iceberg:s3://bucket/x", folder) == "iceberg:s3://bucket/x"
    assert read_data_files("*.json", folder) == "/data/policies/*.json"


def test_the_ledger_knows_a_database_however_it_is_written() -> None:
    spellings = {
        format_database(spelling)
        for spelling in (
            "mysql:host=db user=me database=h",
            "mysql:database=h user=you host=db port=3306 passwd=hush",
            "mysql://you:hush@db/h",
            "mysql://db:3306/h?ssl_mode=required",
        )
    }
    assert spellings == {"mysql://db/h"}
    assert format_database("mysql://db:3307/h") not in spellings
    assert format_database("ducklake:mysql://me:hush@db/h") == "ducklake:mysql://db/h"
    assert format_address("s3://bucket/x.parquet?s3_region=eu") == "s3://bucket/x.parquet"
    assert format_address("delta:https://me:hush@h/x?sig=hush") == "delta:https://h/x"


def test_a_database_of_sqlite_is_known_by_its_content(tmp_path: Path) -> None:
    path = tmp_path / "patients.duckdb"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE t (x)")
    connection.close()
    assert is_attached(path)
    path.write_bytes(b"SQLite")
    assert not is_attached(path)
    assert not is_attached(tmp_path / "none")


def test_secrets_are_not_in_the_repr() -> None:
    attachment = choose_attachment("mysql:host=db passwd=hush database=h")
    assert (attachment.type, attachment.secrets) == ("mysql", ("hush",))
    assert "hush" not in repr(attachment)


def test_an_environment_variable_has_the_whole_address(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOSPITAL", "mysql://me:hush@db/h")
    assert resolve_database("env:HOSPITAL") == "mysql://me:hush@db/h"
    monkeypatch.setenv("HOSPITAL", str(tmp_path / "x.sqlite"))
    assert resolve_database("env:HOSPITAL") == tmp_path / "x.sqlite"
    monkeypatch.delenv("HOSPITAL")
    with pytest.raises(sqlanon.SourceError, match="HOSPITAL is not set"):
        resolve_database("env:HOSPITAL")


def test_the_release_may_not_be_the_catalog_of_the_lake(tmp_path: Path) -> None:
    lake = tmp_path / "lake.ducklake"
    assert local_database(f"ducklake:{lake}") == lake
    with pytest.raises(sqlanon.PolicyError, match="which sqlanon only reads"):
        sqlanon.Policy(
            source={"database": f"ducklake:{lake}", "table": "t"},
            attributes=ROLES,
            privacy={"k": 2},
            release={"database": str(lake)},
        )
