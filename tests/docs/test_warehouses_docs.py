"""docs/how-to/warehouses.md: what it shows is true."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import duckdb
import pytest
from typer.testing import CliRunner

import sqlanon
from sqlanon.cli import app
from sqlanon.warehouse import DIALECTS
from support.pages import ROOT, blocks

PAGE = (ROOT / "docs" / "how-to" / "warehouses.md").read_text(encoding="utf-8")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "freq").mkdir()
    (tmp_path / "patients.toml").write_text(blocks("toml", PAGE)[0], encoding="utf-8")
    return tmp_path


def run(command: str) -> str:
    assert command.startswith("sqlanon ")
    done = CliRunner().invoke(app, shlex.split(command)[1:])
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.mark.slow
def test_warehouse_steps_run(folder: Path) -> None:
    plan, anonymize = (line for block in blocks("sh", PAGE) for line in block.splitlines())
    (query,) = blocks("sql", PAGE)
    assert query.strip() + ";" in run(plan)
    with duckdb.connect() as connection:
        connection.execute("CREATE SCHEMA clinic; CREATE SCHEMA shared")
        connection.execute(
            "CREATE TABLE clinic.patients AS SELECT 'p' || i AS name, (i % 7)::VARCHAR AS zip, 20 + i % 11 AS age, "
            "'fm'[1 + i % 2] AS sex, 'abc'[1 + i % 3] AS diagnosis, i AS cost FROM range(1000) AS t(i)"
        )
        connection.execute(f"COPY ({query}) TO 'freq/one.parquet'")
        outcome = run(anonymize)
        assert "rows to be released" in outcome and "for_snowflake" in outcome.replace("\n", "")
        # DuckDB reads this statement of Snowflake's.
        for file in Path("for_snowflake").glob("*.parquet"):
            connection.execute(f"CREATE TABLE {file.stem} AS FROM '{file}'")
        connection.execute(Path("for_snowflake/release.sql").read_text(encoding="utf-8"))
        rows = connection.execute("SELECT count(*) FROM shared.patients").fetchone()
        with sqlanon.connect() as db:
            result = db.anonymize(sqlanon.Policy.load("patients.toml"))
        assert rows == (result.released_rows,)
    matches = re.findall(r"^\| (`[^|]*) \|", PAGE, re.MULTILINE)
    names = {name for line in matches for name in line.replace("`", "").split(", ")} - {"..."}
    assert {path.name for path in Path("for_snowflake").iterdir()} <= names | {"sqlanon_2_sex.parquet"}


def test_warehouse_page_names_every_dialect() -> None:
    (line,) = re.findall(r"^Dialects: (.*)\.$", PAGE, re.MULTILINE)
    assert tuple(re.findall(r"`(\w+)`", line)) == DIALECTS
