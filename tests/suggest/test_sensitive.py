"""Sensitive columns: what may be released unchanged, what mentions persons, and groups that share one value."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

import sqlanon
from sqlanon.policy import Policy
from sqlanon.sources.column_kinds import find_kind

PATIENTS = """
    CREATE TABLE patients AS
    SELECT
        2500 + hash(i) % 5000 AS salary,
        100 * (20 + hash(i) % 60) AS gehalt,
        ['none', 'catholic', 'jewish'][1 + (hash(i + 1) % 3)::INTEGER] AS religion,
        chr((65 + i % 26)::INTEGER) || 'nna ' || chr((65 + i // 26)::INTEGER) || 'vermere' AS religione,
        'pain ' || CASE WHEN i % 50 = 7 THEN 'ask person' || i || '@example.org' ELSE (i % 9)::VARCHAR END AS symptoms,
        'fever ' || CASE WHEN i % 25 = 3 THEN 'call +49 30 90182' || i ELSE (i % 9)::VARCHAR END AS sintomas,
        'since day ' || hash(i + 2) % 300 || ' of this year' AS klachten,
        'code ' || hash(i + 3) % 300 AS diagnose,
        'a' || i % 5 AS ward, hash(i + 4) % 90 AS age
    FROM range(600) AS r(i)
"""


def suggest_policy(connection: duckdb.DuckDBPyConnection, folder: Path, table: str) -> tuple[str, Policy]:
    with sqlanon.connect(connection) as db:
        text = db.suggest(table)
    (folder / "policy.toml").write_text(text, encoding="utf-8")
    return text, Policy.load(folder / "policy.toml")


def without_trials(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("sqlanon.suggest.trials.SECONDS", 0.0)


@pytest.mark.slow
def test_only_categories_and_shared_amounts_are_released_unchanged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_trials(monkeypatch)
    with duckdb.connect() as connection:
        connection.execute(PATIENTS)
        text, policy = suggest_policy(connection, tmp_path, "patients")
    assert {name: attribute.role for name, attribute in policy.attributes.items()} == {
        "salary": "quasi",  # nearly every amount is one person's
        "gehalt": "sensitive",
        "religion": "sensitive",
        "religione": "identifying",  # looks like names
        "symptoms": "identifying",  # mentions e-mail addresses
        "sintomas": "identifying",  # mentions telephone numbers
        "klachten": "identifying",  # free text
        "diagnose": "quasi",  # too many values for categories
        "ward": "quasi",
        "age": "quasi",
    }
    assert "2 % of its texts mention e-mail addresses" in text
    assert "4 % of its texts mention telephone numbers" in text
    assert "# religion: by its name: belief, politics, sexual life, crime; released unchanged\n" in text
    assert text.count("released unchanged") == 3  # of both columns, and what the roles mean
    assert "example.org" not in text


@pytest.mark.thorough
def test_where_all_columns_identify_people_nothing_of_them_is_released(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_trials(monkeypatch)
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE m AS SELECT 'p' || i % 50 || '@example.org' AS email FROM range(1000) AS r(i)")
        _, policy = suggest_policy(connection, tmp_path, "m")
        with sqlanon.connect(connection) as db:
            assert db.anonymize(policy).relation().fetchall() == [("*",)] * 1000


@pytest.mark.parametrize(
    ("kind", "names"),
    {
        "health": "symptome sintomi síntomas symptomen Beschwerden klachten allergies tratamiento behandeling",
        "belief, politics, sexual life, crime": "religione religie sindacato vakbond parti_politique geloof "
        "sexuelle_Orientierung antecedentes_penales",
        "money": "Jahresgehalt Bruttolohn retribuzione ordenado loon Haushaltseinkommen",
    }.items(),
)
def test_sensitive_names_are_recognized_in_seven_languages(kind: str, names: str) -> None:
    kinds = {name: recognized.name if (recognized := find_kind(name)) else None for name in names.split()}
    assert kinds == dict.fromkeys(names.split(), kind)


DIVERSE = """
    CREATE TABLE people AS
    SELECT (hash(i) % 20)::INTEGER AS age, 'town ' || hash(i + 1) % 3 AS town,
        CASE WHEN i % {every} = 0 THEN 'ill' ELSE 'well' END AS diagnosis
    FROM range(400) AS r(i)
"""


@pytest.mark.parametrize(
    ("every", "is_active"), [pytest.param(3, True, id="frequent"), pytest.param(100, False, id="rare")]
)
@pytest.mark.thorough
def test_diversity_is_active_where_it_costs_little(every: int, is_active: bool, tmp_path: Path) -> None:
    """The policy requires two values in each group, or states what that would cost, and how many rows share a value."""
    with duckdb.connect() as connection:
        connection.execute(DIVERSE.format(every=every))
        text, policy = suggest_policy(connection, tmp_path, "people")
        with sqlanon.connect(connection) as db:
            release = db.anonymize(policy).publish(tmp_path / "release.duckdb")
        assert release.verify().verified
    assert bool(policy.privacy.l_diversity) is is_active
    assert ("Not active" in text) is not is_active
    with duckdb.connect(str(tmp_path / "release.duckdb")) as connection:
        values = (
            "SELECT count(DISTINCT diagnosis) AS n, count(*) AS rows FROM people GROUP BY age::VARCHAR, town::VARCHAR"
        )
        (shared, _) = connection.execute(
            f"SELECT coalesce(sum(rows) FILTER (WHERE n = 1), 0), sum(rows) FROM ({values})"
        ).fetchall()[0]
    assert (shared == 0) is is_active
    if not is_active:  # of a diagnosis that nearly everybody has, a group gives nothing away
        assert "are in groups that share one diagnosis" not in text


@pytest.mark.thorough
def test_a_diagnosis_that_follows_from_a_group_is_counted(tmp_path: Path) -> None:
    with duckdb.connect() as connection:
        connection.execute(
            "CREATE TABLE people AS SELECT (hash(i) % 20)::INTEGER AS age, 'town ' || i % 4 AS town, "
            "CASE WHEN i % 4 = 0 THEN 'ill' ELSE 'well' END AS diagnosis FROM range(400) AS r(i)"
        )
        text, policy = suggest_policy(connection, tmp_path, "people")
    assert not policy.privacy.l_diversity
    assert "100 % of the rows are in groups that share one diagnosis, which gives it away" in text.replace("\n# ", " ")
