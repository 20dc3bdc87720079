"""The intermediate tables that ``keep_work`` copies to a file."""

from __future__ import annotations

import re
from fnmatch import fnmatch
from pathlib import Path

import duckdb
import pytest

import sqlanon
from support.commands import cli

POLICY = {
    "attributes": {
        "zip": {"role": "quasi", "hierarchy": {"mask": "right"}},
        "age": {"role": "quasi", "hierarchy": {"intervals": [10]}},
    },
    "privacy": {"k": 3},
    "search": {"suppression_limit": 0.2},
}
ROWS = "SELECT '021' || i % 2 AS zip, i AS age FROM range(12) AS t(i)"
PAGE = (Path(__file__).resolve().parents[2] / "CONTRIBUTING.md").read_text(encoding="utf-8")


def tables(file: Path) -> dict[str, int]:
    """The tables of a file, with their rows."""
    with duckdb.connect(str(file), read_only=True) as connection:
        names = connection.execute("SELECT table_name FROM duckdb_tables()").fetchall()
        return {name: connection.execute(f'SELECT count(*) FROM "{name}"').fetchone()[0] for (name,) in names}


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["optimal", pytest.param("mondrian", marks=pytest.mark.slow)])
def test_the_file_has_the_tables_of_the_run_and_nothing_else_changes(tmp_path: Path, strategy: str) -> None:
    file, connection = tmp_path / "work.duckdb", duckdb.connect()
    connection.execute(f"CREATE TABLE people AS {ROWS}")
    policy = sqlanon.Policy(source={"table": "people"}, **{**POLICY, "search": {"strategy": strategy}})
    with sqlanon.connect(connection) as db:
        result = db.anonymize(policy, keep_work=file)
        plain = db.anonymize(policy)
        assert (result.generalization, result.score) == (plain.generalization, plain.score)
        attached = {name for (name,) in connection.execute("SELECT database_name FROM duckdb_databases()").fetchall()}
        assert not any("kept" in name for name in attached)
    row_counts = tables(file)
    assert row_counts["hierarchy_0"] == 2 and row_counts["hierarchy_1"] == 12
    assert row_counts["frequency_0"] == 12
    assert file.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["work.duckdb"]


def test_an_infeasible_run_keeps_its_lattice(tmp_path: Path) -> None:
    (tmp_path / "people.csv").write_text("zip,age\n" + "".join(f"021{i % 2},{i}\n" for i in range(12)))
    (tmp_path / "policy.toml").write_text(
        '[source]\nfiles = "people.csv"\n[attributes]\nzip = { role = "quasi", hierarchy = { mask = "right" } }\n'
        'age = { role = "quasi", hierarchy = { intervals = [10] } }\n[privacy]\nk = 13\n'
    )
    file = tmp_path / "work.duckdb"
    done = cli("anonymize", tmp_path / "policy.toml", "--dry-run", "--keep-work", file)
    assert done.status == 1 and "no generalization meets the policy" in done.err
    assert tables(file)["frequency_0"] == 12
    again = cli("anonymize", tmp_path / "policy.toml", "--dry-run", "--keep-work", file)
    assert again.status == 2 and f"{file} exists already" in again.err


@pytest.mark.slow
def test_a_file_that_appears_during_the_run_is_not_replaced(tmp_path: Path) -> None:
    file = tmp_path / "work.duckdb"

    def write_file(stage: str, *_: object) -> None:
        if stage == "search":
            file.write_text("of another run", encoding="utf-8")

    with sqlanon.connect(duckdb.connect().sql(ROWS)) as db, pytest.raises(sqlanon.SourceError, match="exists already"):
        db.anonymize(sqlanon.Policy(**POLICY), progress=write_file, keep_work=file)
    assert file.read_text(encoding="utf-8") == "of another run"
    assert [path.name for path in tmp_path.iterdir()] == ["work.duckdb"]


def test_a_file_that_cannot_be_written_is_refused_before_the_search(tmp_path: Path) -> None:
    with (
        sqlanon.connect(duckdb.connect().sql(ROWS)) as db,
        pytest.raises(sqlanon.SourceError, match="cannot be written"),
    ):
        db.anonymize(sqlanon.Policy(**POLICY), keep_work=tmp_path / "missing" / "work.duckdb")


@pytest.mark.thorough
@pytest.mark.parametrize("strategy", ["optimal", "mondrian", "k-similar", "subtree", "local", "mu-argus", "iab"])
def test_contributing_lists_each_table(tmp_path: Path, strategy: str) -> None:
    matches = set(re.findall(r"^\| (`[^|]*`) \|", PAGE[PAGE.index("## Intermediate tables") :], re.MULTILINE))
    patterns = [name for row in matches for name in re.findall(r"`([^`]+)`", row)]
    search = {"strategy": strategy} | ({"max_checks": 50} if strategy == "iab" else {})
    file = tmp_path / "work.duckdb"
    with sqlanon.connect(duckdb.connect().sql(ROWS)) as db:
        db.anonymize(sqlanon.Policy(**{**POLICY, "search": search}), keep_work=file)
    names = {re.sub(r"\d+", "N", name) for name in tables(file)}
    assert [name for name in sorted(names) if not any(fnmatch(name, pattern) for pattern in patterns)] == []
