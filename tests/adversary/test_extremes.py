"""The least and the greatest values of a source are in no part of its release: rows, other tables, report, bytes.

Each is the value of one person, far from all others, and at no border of a grid. The strategies are those of the
registry: a new one is looked at by itself.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pytest

import sqlanon
from adversary.level_searches import searches
from support.lanes import some
from support.policies import make_policy

pytestmark = pytest.mark.slow

SOURCE = """
    CREATE TABLE t AS
    SELECT
        i AS id,
        CASE i WHEN 0 THEN -8317 WHEN 1 THEN 13077 ELSE hash(i) % 60 * 10 + 3 END::INTEGER AS age,
        CASE i WHEN 2 THEN -7654327 WHEN 3 THEN 9876543 ELSE hash(i + 1) % 7000 * 10 + 7 END::BIGINT AS income,
        CASE i WHEN 4 THEN DATE '1871-03-13' WHEN 5 THEN DATE '2023-11-23'
            ELSE DATE '1950-01-11' + (hash(i + 2) % 600 * 31)::INTEGER END AS birth,
        CASE i WHEN 6 THEN -313.37 WHEN 7 THEN 87654.31 ELSE (hash(i + 3) % 9000) / 7.0 END::DECIMAL(9, 2) AS cost,
        CASE i WHEN 8 THEN TIMESTAMP '1987-06-05 04:03:21' WHEN 9 THEN TIMESTAMP '2031-07-08 09:08:07'
            ELSE TIMESTAMP '2024-01-01 00:00:13' + to_minutes((hash(i + 4) % 90000)::INTEGER) END AS seen,
        CASE i WHEN 10 THEN -4321.98765 WHEN 11 THEN 65432.19876 ELSE hash(i + 5) % 90001 / 71.3 END::DOUBLE AS weight
    FROM range(120) AS r(i)
"""
ATTRIBUTES: dict[str, Any] = {
    "age": {"intervals": [5, 10, 50]},
    "income": "suppress",
    "birth": {"dates": ["month", "year"]},
    "cost": {"intervals": [50, 500]},
    "seen": {"dates": ["month", "year"]},
    "weight": "suppress",
}
EXTREMES = {  # without signs: zeros may stand behind them
    "age": ["8317", "13077"],
    "income": ["7654327", "9876543"],
    "birth": ["1871-03-13", "2023-11-23"],
    "cost": ["313.37", "87654.31"],
    "seen": ["1987-06-05", "04:03:21", "2031-07-08", "09:08:07"],
    "weight": ["4321.98765", "65432.19876"],
}
COLUMNS = [["age", "income"], ["birth", "cost"], ["seen", "weight"]]
ALL = [(search, names) for search in searches() for names in COLUMNS]
LOCAL = [(search, names) for search, names in ALL if search.get("strategy") in ("mondrian", "k-similar")]


def texts_of(path: Path) -> dict[str, str]:
    """The rows of each table and view of a release, as text."""
    with duckdb.connect(path, read_only=True) as connection:
        names = connection.execute(
            "SELECT schema_name, table_name FROM duckdb_tables() UNION "
            "SELECT schema_name, view_name FROM duckdb_views() WHERE NOT internal"
        ).fetchall()
        return {
            name: str(connection.execute(f'SELECT t::VARCHAR FROM "{schema}"."{name}" AS t').fetchall())
            for schema, name in names
        }


def shown_extremes(search: dict[str, Any], names: list[str], folder: Path) -> set[tuple[str, str]]:
    """Each extreme value that a release shows, with its part of the release."""
    with duckdb.connect(str(folder / "source.duckdb")) as connection:
        connection.execute(SOURCE)
    policy = make_policy(
        {"id": "identifying", **{name: ATTRIBUTES[name] for name in names}},
        k=4,
        table=None,
        source={"database": folder / "source.duckdb", "table": "t", "undeclared": "drop", "key": "id"},
        search={"suppression_limit": 0, **search},
        catalog={"database": folder / "catalog.duckdb"},
    )
    with sqlanon.connect() as db:
        result = db.anonymize(policy)
        result.publish(folder / "r.duckdb", "released")
        result.report(folder / "report.html")
    texts = texts_of(folder / "r.duckdb")
    assert "released" in texts and len(texts) > 3
    texts |= {"report": (folder / "report.html").read_text()}
    texts |= {"bytes of the file": (folder / "r.duckdb").read_bytes().decode("latin1")}
    return {(value, part) for name in names for value in EXTREMES[name] for part in texts if value in texts[part]}


@pytest.mark.parametrize(("search", "names"), some(LOCAL, 11), ids=str)
def test_no_part_of_a_release_shows_the_extremes_of_its_source(
    search: dict[str, Any], names: list[str], tmp_path: Path
) -> None:
    assert shown_extremes(search, names, tmp_path) == set()


@pytest.mark.thorough
@pytest.mark.parametrize(("search", "names"), ALL, ids=str)
def test_no_part_of_a_release_shows_the_extremes_of_its_source_in_any_way_of_a_strategy(
    search: dict[str, Any], names: list[str], tmp_path: Path
) -> None:
    assert shown_extremes(search, names, tmp_path) == set()


def test_the_reader_sees_exact_ends(tmp_path: Path) -> None:
    seen = shown_extremes({"strategy": "mondrian", "ends": "exact"}, ["age", "income"], tmp_path)
    assert {("9876543", "released"), ("9876543", "income_labels"), ("8317", "released")} <= seen
