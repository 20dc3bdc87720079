"""docs/explanation/risk.md and docs/reference/macros.md: what they show is true."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pytest

from sqlanon import Policy, connect
from sqlanon.demo.hospital import make_hospital
from sqlanon.policy.models import parse_toml
from sqlanon.support.resources import macro_script, read_sql_file
from support.commands import cli
from support.pages import FIRST_POLICY, FOLDER, blocks

pytestmark = pytest.mark.slow

DOCS = Path(__file__).resolve().parents[2] / "docs"
MACROS = (DOCS / "reference" / "macros.md").read_text(encoding="utf-8")
RISK = (DOCS / "explanation" / "risk.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^### `(\w+)\(.*?^```sql\n(.*?)^```$", MACROS, re.MULTILINE | re.DOTALL)


def cell(value: Any) -> str:
    if value is None:
        return "NULL"
    return f"{value:.6g}" if isinstance(value, (float, Decimal)) else str(value)


@pytest.fixture(scope="module")
def practice() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.execute(macro_script())
    connection.execute(blocks("sql", MACROS)[0])
    return connection


@pytest.mark.parametrize(("name", "example"), EXAMPLES, ids=[name for name, _ in EXAMPLES])
def test_macro_examples_return_the_documented_rows(
    name: str, example: str, practice: duckdb.DuckDBPyConnection
) -> None:
    call, _, output = example.partition(";\n")
    assert re.match(rf"(FROM|SELECT|SELECT \w+,) sqlanon\.{name}\(", call)
    sql = practice.sql(call)
    rows = [", ".join(f"{name} {cell(v)}" for name, v in zip(sql.columns, row, strict=True)) for row in sql.fetchall()]
    assert sorted(rows) == [line.removeprefix("-- ") for line in output.splitlines()]


def test_every_macro_has_an_example(practice: duckdb.DuckDBPyConnection) -> None:
    query = "SELECT DISTINCT function_name, parameters FROM duckdb_functions() WHERE schema_name = 'sqlanon'"
    of_attacks = re.findall(r"MACRO sqlanon\.(\w+)", read_sql_file("macros_attacks.sql"))  # on a page of their own
    macros = {name: comment for name, comment in practice.execute(query).fetchall() if name not in of_attacks}
    assert "(macros_attacks.md)" in MACROS
    assert {name for name, _ in EXAMPLES} == macros.keys()
    signatures = dict(re.findall(r"^### `(\w+)\((.*)\)`$", MACROS, re.MULTILINE))
    for name, parameters in macros.items():
        if signatures[name] != "...":
            assert [part.split(" := ")[0] for part in signatures[name].split(", ")] == parameters


@pytest.fixture(scope="module")
def hospital(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("risk")
    (folder / FOLDER).mkdir()
    make_hospital(folder / FOLDER / "hospital.duckdb", rows=2000)
    (folder / FOLDER / "first.toml").write_text(blocks("toml", FIRST_POLICY)[0], encoding="utf-8")
    return folder


@pytest.mark.thorough
def test_the_policy_example_is_assessed(hospital: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (shares,) = blocks("csv", RISK)
    (tmp_path / "shares_of_sex.csv").write_text(shares, encoding="utf-8")
    section, priors, _ = blocks("toml", RISK)
    (tmp_path / "example.toml").write_text(f"{section}\n{priors}", encoding="utf-8")
    tree = parse_toml(hospital / FOLDER / "first.toml") | parse_toml(tmp_path / "example.toml")
    tree["source"] = tree["source"] | {"database": hospital / FOLDER / "hospital.duckdb"}
    del tree["release"]
    with connect() as db:
        assessment = db.risk(Policy(**tree))
    assert set(assessment.prosecutor.rows_above) == {"0.05", "0.2"}
    assert assessment.population.N == 200_000
    assert assessment.journalist.population == "estimate"
    assert {leak.attributes: round(leak.gain, 9) for leak in assessment.leakage}["sex",] == 1


@pytest.mark.thorough
def test_the_population_example_agrees_with_the_matrix(hospital: Path, tmp_path: Path) -> None:
    (tmp_path / "example.toml").write_text(blocks("toml", RISK)[2], encoding="utf-8")
    first, example = parse_toml(hospital / FOLDER / "first.toml"), parse_toml(tmp_path / "example.toml")
    tree = {**first, **example, "attributes": first["attributes"] | example["attributes"]}
    tree["source"] = tree["source"] | {"database": hospital / FOLDER / "hospital.duckdb"}
    del tree["release"]
    with connect() as db:
        journalist = db.risk(Policy(**tree)).journalist
        population = db.uniques_matrix(Policy(**tree), "zip", "birth_date").population
    assert population.rows[0][0] == journalist.rows_at_highest and journalist.highest == 1
    assert population.uniques[0][0] > population.uniques[1][1] > 0


def test_the_python_block_prints_true(hospital: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (program,) = blocks("python", RISK)
    monkeypatch.chdir(hospital)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(program, "risk.md", "exec"), {})
    assert printed.getvalue().strip() == "True"


def test_the_risk_command_prints_each_section(hospital: Path) -> None:
    (command,) = blocks("sh", RISK)
    done = cli(*shlex.split(command)[1:], cwd=hospital)
    assert (done.status, done.err) == (0, "")
    assert "unique rows: zip by birth_date" in done.out
    assert "bits of leakage" in done.out
    assert "values of zip" in done.out
