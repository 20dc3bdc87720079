"""Values beyond an open end are one wherever rows are shown, linked or counted."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
import pytest

import sqlanon
from support.databases import change, fetch
from support.policies import make_policy
from support.thresholds import COARSE_SET, ROWS_PER_CODE, SMALL_SET

pytestmark = pytest.mark.slow

AGE = {"intervals": {"widths": [5, 10], "below": 18, "above": 90}}
AT_0 = {"role": "quasi", "hierarchy": AGE, "max_level": 0}
OPEN = {"<18", "≥90"}
# Thirty rows of each age from 17 to 26, and three of each from 88 to 99.
ROWS = """
    CREATE TABLE t AS
    SELECT i AS id, CASE WHEN i < 300 THEN 17 + i % 10 ELSE 88 + i % 12 END AS age, i % 3 AS ward, i % 4 AS illness
    FROM range(336) AS r(i)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    change(tmp_path / "source.duckdb", ROWS)
    return tmp_path


def policy(folder: Path, age: Any = AT_0, k: int = 3, **sections: Any) -> sqlanon.Policy:
    attributes = {"id": "identifying", "age": age, "ward": "insensitive", "illness": "sensitive"}
    source = {"database": folder / "source.duckdb", "table": "t", "key": "id"}
    places = {"source": source, "catalog": {"database": folder / "catalog.duckdb"}}
    return make_policy(attributes, k=k, table=None, **{**places, **sections})


def publish(policy: sqlanon.Policy, path: Path) -> sqlanon.Result:
    with sqlanon.connect() as db:
        result = db.anonymize(policy)
        result.publish(path)
        verification = db.verify(path, policy)
        assert verification.verified, [check for check in verification.checks if check.passed is False]
        return result


@pytest.mark.thorough
def test_a_release_at_level_0_shows_values_or_open_ends(folder: Path) -> None:
    result = publish(policy(folder), folder / "r.duckdb")
    assert result.generalization == {"age": 0}
    released = Counter(dict(fetch(folder / "r.duckdb", "SELECT age, count(*) FROM t GROUP BY age")))
    young = Counter({str(age): 30 for age in range(18, 27)})
    assert released == young + Counter({"<18": 30, "88": 3, "89": 3, "≥90": 30})
    assert fetch(folder / "r.duckdb", "SELECT DISTINCT typeof(age) FROM t") == [("VARCHAR",)]
    orders = fetch(folder / "r.duckdb", "SELECT age FROM age_labels ORDER BY age_order")
    assert [age for (age,) in orders] == ["<18", *(str(age) for age in (*range(18, 27), 88, 89)), "≥90"]
    bounds = fetch(folder / "r.duckdb", "SELECT age_low, age_high FROM age_labels WHERE age IN ('<18', '≥90')")
    assert set(bounds) == {(None, 17), (90, None)}
    words = fetch(folder / "r.duckdb", "SELECT what_was_done FROM release_overview WHERE attribute = 'age'")
    assert "<18 is any value less than 18, and ≥90 is 90 or more" in str(words)


@pytest.mark.thorough
def test_the_type_does_not_depend_on_the_values(folder: Path) -> None:
    change(folder / "source.duckdb", "DELETE FROM t WHERE age < 18 OR age >= 90")
    publish(policy(folder), folder / "r.parquet")
    with duckdb.connect() as connection:
        seen = connection.execute(f"SELECT DISTINCT typeof(age), age ~ '^[0-9]+$' FROM '{folder / 'r.parquet'}'")
        assert seen.fetchall() == [("VARCHAR", True)]


@pytest.mark.parametrize("age", [{**AT_0, "max_level": None}, AT_0], ids=["any level", "level 0"])
def test_large_tables_are_counted_alike(folder: Path, age: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    attributes = {"age": {name: value for name, value in age.items() if value is not None}, "ward": "suppress"}
    attributes |= {"id": "identifying", "illness": "sensitive"}
    search = {"suppression_limit": 0.1}
    large_policy = make_policy(attributes, k=12, table=None, search=search, source=dict(policy(folder).source))
    with sqlanon.connect() as db:
        small = db.anonymize(large_policy)
    monkeypatch.setattr(SMALL_SET, 5)
    monkeypatch.setattr(COARSE_SET, 2)
    monkeypatch.setattr(ROWS_PER_CODE, 1)
    with sqlanon.connect() as db:
        large = db.anonymize(large_policy)
        rows = Counter(large.relation().fetchall())
    assert (large.generalization, large.score) == (small.generalization, pytest.approx(small.score, abs=1e-12))
    assert sum(rows.values()) == 336 - large.suppressed_rows


@pytest.mark.thorough
def test_a_live_view_shows_open_ends_of_rows_to_come(folder: Path) -> None:
    with sqlanon.connect() as db:
        view = db.live(policy(folder)).view
    change(folder / "source.duckdb", "INSERT INTO t SELECT 1000 + i, 95, 0, 0 FROM range(3) AS r(i)")
    ages = dict(fetch(folder / "source.duckdb", f"SELECT age, count(*) FROM {view} GROUP BY age"))
    assert ages["≥90"] == 33 and set(ages) >= OPEN and not any(age.startswith("9") for age in ages)


@pytest.mark.thorough
def test_rows_that_are_added_show_open_ends(folder: Path) -> None:
    path = folder / "r.duckdb"
    extended = policy(folder, release={"database": path, "table": "t"})
    publish(extended, path)
    change(folder / "source.duckdb", "INSERT INTO t SELECT 1000 + i, 100 + i, 0, 0 FROM range(4) AS r(i)")
    with sqlanon.connect() as db:
        extension = db.extend(extended)
        assert extension.added_rows == 4
        assert extension.publish().verify().verified
    assert fetch(path, "SELECT count(*) FROM t WHERE age = '≥90'") == [(34,)]
    assert fetch(path, "SELECT count(*) FROM t WHERE age LIKE '1__' OR age LIKE '9_'") == [(0,)]


@pytest.mark.thorough
def test_a_release_is_based_on_one_with_open_ends(folder: Path) -> None:
    publish(policy(folder), folder / "first.duckdb")
    change(folder / "source.duckdb", "INSERT INTO t SELECT 1000 + i, 91, 0, 0 FROM range(30) AS r(i)")
    later = policy(folder, release={"database": folder / "second.duckdb", "after": [str(folder / "first.duckdb")]})
    publish(later, folder / "second.duckdb")
    assert fetch(folder / "second.duckdb", "SELECT count(*) FROM t WHERE age = '≥90'") == [(60,)]


def test_an_attacker_with_the_values_meets_open_ends(folder: Path) -> None:
    """All three persons in the outside table match rows of the release, two of them through an open end."""
    publish(policy(folder), folder / "r.duckdb")
    (folder / "outside.csv").write_text("age,who\n95,Ada\n88,Bea\n104,Cy\n")
    attacks = sqlanon.attack(folder / "r.duckdb", policy(folder), outside=folder / "outside.csv", only=["linking"])
    figures = attacks["linking"].findings[0].figures
    assert (figures["none"], figures["matched"]) == (0, 33)


def test_a_release_with_the_values_beside_one_with_open_ends_is_linked(folder: Path) -> None:
    """Rows that the first shows as ≥90 and the second by their ages are the same rows."""
    publish(policy(folder), folder / "open.duckdb")
    roles = {"id": "identifying", "age": "insensitive", "ward": "suppress", "illness": "sensitive"}
    source = {"database": folder / "source.duckdb", "table": "t"}
    with sqlanon.connect() as db:
        db.anonymize(make_policy(roles, k=3, table=None, source=source)).publish(folder / "values.duckdb")
    releases = [folder / "open.duckdb", folder / "values.duckdb"]
    attacks = sqlanon.attack(releases, policy(folder), only=["composition"])
    assert attacks["composition"].skipped is None
    with duckdb.connect() as connection:
        for statement in attacks["composition"].findings[0].sql.split(";\n"):
            rows = connection.execute(statement)
        assert {age for *_, age, _ in rows.fetchall()} == {str(age) for age in range(88, 100)}


@pytest.mark.thorough
def test_exported_statements_show_open_ends(folder: Path) -> None:
    with duckdb.connect(str(folder / "source.duckdb")) as connection:
        connection.execute(f"COPY (SELECT age, illness, count(*) AS n FROM t GROUP BY ALL) TO '{folder / 'f.parquet'}'")
        requested_policy = make_policy(
            {"id": "identifying", "age": AT_0, "ward": "insensitive", "illness": "sensitive"}, k=3, table=None,
            source={"table": "t", "frequency_set": str(folder / "f.parquet")}, release={"table": "shared"},
        )  # fmt: skip
        with sqlanon.connect() as db:
            result = db.anonymize(requested_policy)
            exported = result.export(folder / "export", "duckdb")
        for file in exported.glob("*.parquet"):
            connection.execute(f"CREATE TABLE {file.stem} AS FROM '{file}'")
        connection.execute((exported / "release.sql").read_text())
        ages = dict(connection.execute("SELECT age, count(*) FROM shared GROUP BY age").fetchall())
        assert ages["≥90"] == 30 and ages["<18"] == 30 and ages["88"] == 3
        assert not any(age.startswith("9") for age in ages)
        for statement in duckdb.extract_statements((exported / "audit.sql").read_text())[:-2]:
            assert connection.execute(statement).fetchall() == []


@pytest.mark.thorough
def test_risk_by_level_counts_open_ends_as_one(folder: Path) -> None:
    with sqlanon.connect() as db:
        requested_policy = policy(folder, {"role": "quasi", "hierarchy": AGE})
        levels = db.value_leakage(requested_policy, "age").levels
        values = {leak.value for leak in levels[0].most_leaking}
    assert levels[0].values == 13
    assert "≥90" not in values and not any(value.startswith("9") for value in values if value)


def test_decoys_show_open_ends(folder: Path) -> None:
    decoy_policy = policy(
        folder, k=12, release={"decoys": True, "table": "released"}, search={"suppression_limit": 0.2}
    )
    with sqlanon.connect() as db:
        result = db.anonymize(decoy_policy)
        ages = {age for age, *_ in result.relation().project("age").fetchall()}
    assert ages >= OPEN and not any(age.startswith(("9", "17")) for age in ages)
