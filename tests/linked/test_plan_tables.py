"""The plan of linked tables shows what would run, and reads no row."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from sqlanon.database import connect
from sqlanon.policy.linked import LinkedPolicy
from support.commands import cli
from support.linked_hospital import POLICY, make_hospital

UNREADABLE = """
    CREATE TABLE one (x INTEGER); INSERT INTO one VALUES (1);
    CREATE VIEW patients AS SELECT error('read')::INTEGER AS patient_id, 'n' AS name, error('read') AS zip FROM one;
    CREATE VIEW visits AS SELECT error('read')::INTEGER AS visit_id, 1 AS patient_id, error('read')::DATE AS admitted,
        error('read') AS ward, 'flu' AS diagnosis FROM one;
    CREATE VIEW labs AS SELECT 1 AS visit_id, error('read') AS test, 0.5 AS value FROM one
"""


def make_unreadable_hospital(folder: Path, policy: str = POLICY) -> Path:
    """A database whose rows cannot be read, and a policy of it."""
    with duckdb.connect(str(folder / "hospital.duckdb")) as connection:
        connection.execute(UNREADABLE)
    (folder / "policy.toml").write_text(policy, encoding="utf-8")
    return folder / "policy.toml"


@pytest.mark.thorough
def test_a_plan_shows_tables_keys_and_limits_and_reads_no_rows(tmp_path: Path) -> None:
    confidence = '[[privacy.confidence]]\nattribute = "diagnosis"\nmax = 0.5\n\n[search]'
    ended = cli("plan", make_unreadable_hospital(tmp_path, POLICY.replace("[search]", confidence)))
    assert (ended.status, ended.err) == (0, "")
    text = " ".join(ended.out.split())
    for words in (
        "release: release.duckdb",
        "requirements: 3-anonymity, confidence of at most 0.5 in diagnosis, for an attacker who knows 2 child rows",
        "depends on the data: on the values of patients.zip",
        "at most 20 % of the persons suppressed",
        "patients, from table patients of hospital.duckdb: persons by patient_id",
        "labs, from table labs of hospital.duckdb: rows of visits by visit_id",
        "admitted dates by month, year",
        "statements: link (",
        "Nothing was run. To print the statements: sqlanon plan ",
    ):
        assert words in text, words


@pytest.mark.thorough
def test_a_plan_counts_the_generalizations_of_all_tables(tmp_path: Path) -> None:
    text = POLICY.replace('{ mask = "right" }', '"suppress"')
    policy = LinkedPolicy.load(make_unreadable_hospital(tmp_path, text))
    with connect() as db:
        assert db.plan(policy).nodes == 2 * 4 * 2 * 2  # zip; admitted and ward; test


@pytest.mark.thorough
def test_a_plan_names_missing_columns_with_their_table(tmp_path: Path) -> None:
    ended = cli("plan", make_unreadable_hospital(tmp_path, POLICY.replace("ward  ", "wards ")))
    assert ended.status == 2
    assert "table 'visits'" in ended.err and "wards" in ended.err


STAGES = ["link", "encode", "search", "recode and suppress", "verify and publish"]


WITHOUT_LABS = POLICY[: POLICY.index('[[table]]\nname = "labs"')] + POLICY[POLICY.index("[privacy]") :]
ROW_LIMIT = "[search]\nrow_suppression_limit = 0.1"
CONFIDENCE = '[[privacy.confidence]]\nattribute = "diagnosis"\nmax = 0.5\n\n[search]'


@pytest.mark.cases(1)
@pytest.mark.parametrize(
    "policy",
    [
        POLICY.replace("known = 2", "known = 3"),
        pytest.param(POLICY.replace("known = 2", 'known = "all"'), marks=pytest.mark.slow),
        pytest.param(POLICY.replace("[search]", CONFIDENCE), marks=pytest.mark.slow),
        POLICY.replace('"month", "year"] }', '"month", "year"], shift = 30 }'),
        WITHOUT_LABS.replace("[search]", CONFIDENCE).replace("[search]", ROW_LIMIT),
        WITHOUT_LABS.replace("[search]", ROW_LIMIT).replace("known = 2", 'known = "all"'),
    ],
)
def test_the_statements_of_a_plan_make_all_tables_that_they_read(tmp_path: Path, policy: str) -> None:
    make_hospital(tmp_path, policy)
    with connect() as db:
        plan = db.plan(LinkedPolicy.load(tmp_path / "policy.toml"))
    assert [stage.name for stage in plan.stages] == STAGES
    with duckdb.connect(str(tmp_path / "hospital.duckdb")) as connection:
        connection.execute("ATTACH ':memory:' AS sqlanon_work")
        for i, name in enumerate(("patients", "visits", "labs"), 1):
            connection.execute(f"CREATE SCHEMA sqlanon_work.run_{i}")
            connection.execute(f"CREATE TEMP VIEW sqlanon_work_run_{i}_source AS FROM hospital.{name}")
        for stage in plan.stages[:-1]:
            for statement in stage.sql:
                connection.execute(statement)


@pytest.mark.thorough
def test_a_plan_prints_its_statements(tmp_path: Path) -> None:
    ended = cli("plan", make_unreadable_hospital(tmp_path), "--sql")
    assert (ended.status, ended.err) == (0, "")
    for stage in STAGES:
        assert f". {stage}: " in ended.out
    assert "\"sqlanon\".KM_ANONYMITY('known_rows', 2)" in ended.out
