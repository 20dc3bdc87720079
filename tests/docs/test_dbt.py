"""What docs/how-to/dbt.md shows: a release as a Python model of dbt-duckdb, and the tests that hold its table to k.

The model itself runs in the quick lane, with a connection as dbt would give it. dbt builds the whole project in an
environment of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duckdb
import pytest
from environments import ROOT, python_of, run
from test_readme import blocks

import sqlanon
from sqlanon.demo.hospital import make_hospital
from sqlanon.ledger.catalog import init_database

PAGE = (ROOT / "docs" / "how-to" / "dbt.md").read_text(encoding="utf-8")
FILES = {
    re.match(r"(?:#|--) (.*)\n", block).group(1): block
    for language in ("toml", "python", "sql", "yaml")
    for block in blocks(language, PAGE)
}
MODEL, RELEASE = "models/patients_released.py", "released/patients.duckdb"
STAGING = "SELECT * FROM patients WHERE sex IS NOT NULL"
QUASI = "zip, birth_date, sex, ethnicity"
PROJECT = {
    "dbt_project.yml": "{name: warehouse, version: '1.0', profile: warehouse}",
    "profiles.yml": "warehouse: {target: dev, outputs: {dev: {type: duckdb, path: warehouse.duckdb, threads: 2}}}",
    "models/stg_patients.sql": STAGING,
}


def write(folder: Path, files: dict[str, str]) -> None:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content, encoding="utf-8")


def released_rows(folder: Path) -> list[tuple[Any, ...]]:
    with duckdb.connect(folder / RELEASE, read_only=True) as connection:
        return sorted(connection.execute("FROM patients").fetchall())


def test_the_page_has_the_files() -> None:
    assert list(FILES) == [
        "patients.toml",
        MODEL,
        "tests/generic/k_anonymous.sql",
        "tests/patients_are_diverse.sql",
        "models/schema.yml",
    ]
    pins = (ROOT / "tests" / "pins" / "dbt.txt").read_text(encoding="utf-8")
    for name, version in re.findall(r"(dbt-core|dbt-duckdb|duckdb)==(\S+)", pins):
        assert f"{name.replace('duckdb', 'DuckDB') if name == 'duckdb' else name} {version}" in PAGE


# --- the model, with a live connection


@pytest.fixture
def warehouse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection to a small warehouse, in a folder that has the page's policy."""
    make_hospital(tmp_path / "warehouse.duckdb", rows=1000)
    write(tmp_path, FILES)
    (tmp_path / "released").mkdir()
    monkeypatch.chdir(tmp_path)
    with duckdb.connect("warehouse.duckdb") as connection:
        connection.execute(f"CREATE VIEW stg_patients AS {STAGING}")
        yield connection


def model(session: duckdb.DuckDBPyConnection) -> duckdb.DuckDBPyRelation:
    """What the page's model returns; dbt only tells it where it stands."""
    names: dict[str, Any] = {}
    exec(compile(FILES[MODEL], MODEL, "exec"), names)
    dbt = SimpleNamespace(config=lambda materialized: None, ref=lambda name: None)
    relation: duckdb.DuckDBPyRelation = names["model"](dbt, session)
    return relation


def test_the_model_gives_the_rows_of_an_audited_release(warehouse: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    model(warehouse).create("patients_released")
    rows = warehouse.execute("FROM patients_released").fetchall()
    assert sorted(rows) == released_rows(tmp_path)
    ((smallest,),) = warehouse.execute(
        f"SELECT min(n) FROM (SELECT count(*) AS n FROM patients_released GROUP BY {QUASI})"
    ).fetchall()
    assert smallest >= 5
    with duckdb.connect("patients.catalog.duckdb", read_only=True) as catalog:
        assert catalog.execute("SELECT count(*) FROM sqlanon.releases").fetchall() == [(1,)]
    temporary = warehouse.execute("SELECT count(*) FROM duckdb_databases() WHERE database_name LIKE 'sqlanon%'")
    assert temporary.fetchall() == [(0,)]


@pytest.mark.slow
def test_the_model_with_parquet(warehouse: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    (one_line,) = re.findall(r"`(return session\.read_parquet.*?)`", PAGE)
    write(tmp_path, {"patients.toml": FILES["patients.toml"].replace(f'database = "{RELEASE}"', 'file = "p.parquet"')})
    text = re.sub(r"session\.execute\(.*\n    return .*", one_line, FILES[MODEL])
    names: dict[str, Any] = {}
    exec(compile(text, MODEL, "exec"), names)
    dbt = SimpleNamespace(config=lambda materialized: None, ref=lambda name: None)
    rows = names["model"](dbt, warehouse).fetchall()
    assert sorted(rows) == sorted(duckdb.connect().execute(f"FROM '{tmp_path / 'p.parquet'}'").fetchall())
    assert len(rows) > 900


def test_a_model_that_cannot_be_released_gives_nothing(warehouse: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    write(tmp_path, {"patients.toml": FILES["patients.toml"].replace("k = 5", "k = 5000")})
    with pytest.raises(sqlanon.InfeasibleError):
        model(warehouse)
    assert not (tmp_path / RELEASE).exists()


# --- the project, with dbt


def dbt(folder: Path, *command: str) -> tuple[int, str]:
    """What a command of dbt says; it sees sqlanon in the checkout."""
    main = [python_of("dbt", with_sqlanon=True), "-m", "dbt.cli.main", "--no-use-colors", *command]
    quiet = {"DBT_SEND_ANONYMOUS_USAGE_STATS": "false", "DO_NOT_TRACK": "1"}
    done = run([*main, "--profiles-dir", "."], folder, ROOT, **quiet)
    return done.returncode, done.stdout + done.stderr


def table(folder: Path) -> list[tuple[Any, ...]]:
    with duckdb.connect(folder / "warehouse.duckdb", read_only=True) as connection:
        return sorted(connection.execute("FROM patients_released").fetchall())


@pytest.mark.slow
def test_dbt_builds_the_release_and_fails_where_it_should(tmp_path: Path) -> None:
    """One test: each command of dbt takes seconds, and the project is what the one before has left."""
    make_hospital(tmp_path / "warehouse.duckdb", rows=1000)
    init_database(tmp_path / "warehouse.duckdb")
    write(tmp_path, {**PROJECT, **FILES})
    (tmp_path / "released").mkdir()

    status, told = dbt(tmp_path, "build")
    assert (status, "PASS=4" in told) == (0, True), told  # two models, two tests
    released = table(tmp_path)
    assert released == released_rows(tmp_path)
    with duckdb.connect(tmp_path / RELEASE, read_only=True) as connection:
        query = f"SELECT k, uniques FROM sqlanon.k_anonymity('patients', {QUASI.split(', ')})"
        ((k, uniques),) = connection.execute(query).fetchall()
    assert (k >= 5, uniques) == (True, 0)

    write(tmp_path, {"patients.toml": FILES["patients.toml"].replace("k = 5", "k = 5000")})
    status, told = dbt(tmp_path, "run", "--select", "patients_released")
    assert (status, "InfeasibleError" in told) == (1, True), told
    assert table(tmp_path) == released_rows(tmp_path) == released

    with duckdb.connect(tmp_path / "warehouse.duckdb") as connection:
        connection.execute("INSERT INTO patients_released BY NAME SELECT NULL AS zip, 'x' AS diagnosis")
    status, told = dbt(tmp_path, "test")
    assert (status, "ERROR=2" in told, "Got 1 result" in told) == (1, True, True), told
