"""If a column numbers people with several rows, the policy must say who a person is before a release."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pytest

import sqlanon
from sqlanon.errors import PolicyError
from sqlanon.policy import Policy
from support.commands import cli

# 60 persons with five to seven rows: five rows with the same birth date and ZIP code are one person.
VISITS = """
    SELECT 100 + i AS {key}, ['m', 'w'][1 + i % 2] AS sex, DATE '1950-01-01' + (i * 311)::INTEGER AS birth_date,
        (10000 + i * 17)::VARCHAR AS zip, 'diagnosis ' || (hash(i * 10 + v) % 9) AS diagnosis
    FROM range(60) AS persons(i), range(7) AS rows(v)
    WHERE v < 5 + i % 3
"""
QUASI = {
    "sex": {"role": "quasi", "hierarchy": "suppress"},
    "birth_date": {"role": "quasi", "hierarchy": {"dates": ["month", "year", "decade"]}},
    "zip": {"role": "quasi", "hierarchy": {"mask": "right"}},
}


def policy_of(key: str | None, role: str | None, **source: Any) -> Policy:
    attributes = {**QUASI, "diagnosis": {"role": "sensitive"}}
    if key is not None and role is not None:
        attributes[key] = {"role": role}
    return Policy(
        source={"table": "visits"} | source, attributes=attributes, privacy={"k": 5}, search={"suppression_limit": 0.05}
    )


def visits(key: str = "mrn") -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.execute(f"CREATE TABLE visits AS {VISITS.format(key=key)}")
    return connection


@pytest.mark.slow
@pytest.mark.parametrize(
    ("key", "role"),
    [("id", "identifying"), ("mrn", "identifying"), ("case_no", "insensitive"), ("x", "sensitive"), ("PatID", None)],
)
def test_a_release_is_refused_whose_classes_are_single_persons(key: str, role: str | None) -> None:
    policy = policy_of(key, role, undeclared="drop")
    with sqlanon.connect(visits(key)) as db, pytest.raises(PolicyError) as refused:
        db.anonymize(policy)
    (problem,) = refused.value.problems
    assert problem.place == "source.person"
    assert f"'{key}' numbers people: 60 values in 360 rows" in problem.message
    assert f"60 classes (360 rows) hold fewer than 5 values of '{key}'" in problem.message


@pytest.mark.thorough
def test_the_figures_are_those_of_the_release() -> None:
    """The first 30 persons share their values in groups of six, the others are alone."""
    connection = visits()
    connection.execute("""
        CREATE OR REPLACE TABLE visits AS
        SELECT * REPLACE (
            CASE WHEN mrn < 130 THEN 'm' ELSE sex END AS sex,
            CASE WHEN mrn < 130 THEN DATE '1950-01-01' + ((mrn - 100) // 6 * 31)::INTEGER ELSE birth_date END
                AS birth_date,
            CASE WHEN mrn < 130 THEN '10000' ELSE zip END AS zip
        )
        FROM visits
    """)
    alone = connection.execute("SELECT count(*) FROM visits WHERE mrn >= 130").fetchone()
    with sqlanon.connect(connection) as db, pytest.raises(PolicyError, match=r"source\.person") as refused:
        db.anonymize(policy_of("mrn", "identifying"))
    assert alone is not None
    assert f"30 classes ({alone[0]} rows) hold fewer than 5 values of 'mrn'" in str(refused.value)


@pytest.mark.thorough
def test_a_policy_that_decides_about_persons_gets_a_release() -> None:
    with sqlanon.connect(visits()) as db:
        of_rows = db.anonymize(policy_of("mrn", "identifying", person=False))
        of_persons = db.anonymize(policy_of("mrn", "identifying", person="mrn"))
    assert of_rows.generalization == {"sex": 0, "birth_date": 0, "zip": 0}
    assert of_persons.generalization != of_rows.generalization


@pytest.mark.slow
def test_padded_texts_are_one_person() -> None:
    """Five rows of one person, each padded differently, do not form a class of five persons."""
    connection = duckdb.connect()
    connection.execute("""
        CREATE TABLE visits AS
        SELECT repeat(' ', v) || 'A' || i || repeat(' ', 4 - v) AS mrn, i AS ward
        FROM range(6) AS persons(i), range(5) AS rows(v)
    """)
    policy = Policy(
        source={"table": "visits", "person": "mrn", "undeclared": "drop"},
        attributes={"ward": {"role": "quasi", "hierarchy": "suppress"}},
        privacy={"k": 5},
    )
    with sqlanon.connect(connection) as db:
        assert db.anonymize(policy).generalization == {"ward": 1}
        undecided = policy.model_copy(update={"source": policy.source.model_copy(update={"person": None})})
        with pytest.raises(PolicyError, match="hold fewer than 5 values of 'mrn'"):
            db.anonymize(undecided)


@pytest.mark.thorough
def test_risk_warns_that_figures_count_rows() -> None:
    with sqlanon.connect(visits()) as db:
        undecided = db.risk(policy_of("mrn", "identifying"))
        decided = [db.risk(policy_of("mrn", "identifying", person=person)) for person in (False, "mrn")]
    assert undecided.counts == "rows"
    assert str(undecided.undecided_person).startswith(
        "source.person: not set, and 'mrn' numbers people: 60 values in 360 rows. Set person = \"mrn\""
    )
    assert [figures.undecided_person for figures in decided] == [None, None]
    assert [figures.counts for figures in decided] == ["rows", "persons"]


def test_compare_warns_about_undecided_persons(tmp_path: Path) -> None:
    with duckdb.connect(str(tmp_path / "visits.duckdb")) as connection:
        connection.execute(f"CREATE TABLE visits AS {VISITS.format(key='mrn')}")
    (tmp_path / "policy.toml").write_text("""
        [source]
        database = "visits.duckdb"
        table = "visits"
        undeclared = "drop"
        [attributes]
        sex = { role = "quasi", hierarchy = "suppress" }
        zip = { role = "quasi", hierarchy = { mask = "right" } }
        [privacy]
        k = 5
    """)
    ended = cli("compare", "policy.toml", "--strategies", "datafly", cwd=tmp_path)
    assert ended.status == 0
    assert "warning: source.person: not set, and 'mrn' numbers people: 60 values in 360 rows" in ended.err


@pytest.mark.thorough
def test_the_people_of_a_large_table_are_estimated() -> None:
    """They are counted in a sample."""
    connection = duckdb.connect()
    connection.execute("""
        CREATE TABLE visits AS
        SELECT i AS mrn, ['m', 'w'][1 + i % 2] AS sex, DATE '1950-01-01' + (i % 20000)::INTEGER AS birth_date,
            (10000 + i % 997)::VARCHAR AS zip, 'diagnosis ' || (hash(i * 10 + v) % 9) AS diagnosis
        FROM range(16000) AS persons(i), range(6) AS rows(v)
    """)
    with sqlanon.connect(connection) as db:
        undecided_person = db.compare(policy_of("mrn", "identifying"), ["datafly"]).undecided_person
    assert "'mrn' numbers people: about 1" in str(undecided_person)
    assert " values in 96,000 rows" in str(undecided_person)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("persons", "missing", "message"),
    [
        (5, 0, None),
        (5, 2, None),
        (
            4,
            2,
            "2 rows have no 'mrn', and count as one person in each class. If they are of people with other rows in "
            "that class, 1 class holds fewer than 5 persons.",
        ),
        (4, 1, "1 row has no 'mrn', and counts as one person in each class. If it is of people with other rows in "),
    ],
)
def test_classes_that_need_their_rows_without_a_person_are_warned_of(
    persons: int, missing: int, message: str | None
) -> None:
    """Four patients and an unknown one are five persons, unless the unknown one is among the four."""
    connection = duckdb.connect()
    connection.execute(f"""
        CREATE TABLE visits AS
        SELECT 'a' AS ward, 'p' || i AS mrn FROM range({persons}) AS r(i)
        UNION ALL SELECT 'a', NULL FROM range({missing})
        UNION ALL SELECT 'b', 'q' || i // 2 FROM range(12) AS r(i)
    """)
    policy = Policy(
        source={"table": "visits", "person": "mrn", "undeclared": "drop"},
        attributes={"ward": {"role": "quasi", "hierarchy": "suppress"}},
        privacy={"k": 5},
    )
    with sqlanon.connect(connection) as db:
        result = db.anonymize(policy)
    assert result.generalization == {"ward": 0}
    assert [warning.startswith(message or "") for warning in result.warnings if "no 'mrn'" in warning] == [True] * bool(
        message
    )


@pytest.mark.thorough
def test_k_of_some_columns_decides_as_k_of_all() -> None:
    policy = policy_of("mrn", "identifying")
    every = policy.model_copy(
        update={"privacy": type(policy.privacy)(k_anonymity=[{"quasi": [*QUASI], "k": 5}])}  # type: ignore[list-item]
    )
    with sqlanon.connect(visits()) as db, pytest.raises(PolicyError, match="hold fewer than 5 values of 'mrn'"):
        db.anonymize(every)


@pytest.mark.slow
def test_spaces_of_any_kind_around_an_id_make_no_person() -> None:
    connection = duckdb.connect()
    connection.execute("""
        CREATE TABLE visits AS
        SELECT i AS ward, unnest(['A', 'A' || chr(13), chr(9) || 'A', ' A ', 'A' || chr(10)]) || '' AS mrn
        FROM range(6) AS r(i)
    """)
    connection.execute("UPDATE visits SET mrn = replace(mrn, 'A', 'A' || ward)")
    policy = Policy(
        source={"table": "visits", "person": "mrn", "undeclared": "drop"},
        attributes={"ward": {"role": "quasi", "hierarchy": "suppress"}},
        privacy={"k": 2},
    )
    with sqlanon.connect(connection) as db:
        result = db.anonymize(policy)
    assert (result.persons, result.generalization) == (6, {"ward": 1})


@pytest.mark.thorough
def test_an_empty_id_belongs_to_no_person() -> None:
    connection = duckdb.connect()
    connection.execute("""
        CREATE TABLE visits AS
        SELECT 'a' AS ward, 'p' || i AS mrn FROM range(4) AS r(i) UNION ALL SELECT 'a', ' ' FROM range(3)
    """)
    policy = Policy(
        source={"table": "visits", "person": "mrn", "undeclared": "drop"},
        attributes={"ward": {"role": "quasi", "hierarchy": "suppress"}},
        privacy={"k": 5},
    )
    with sqlanon.connect(connection) as db:
        assert any(warning.startswith("3 rows have no 'mrn'") for warning in db.anonymize(policy).warnings)


@pytest.mark.thorough
def test_a_quasi_identifier_that_numbers_people_is_counted_without_white_space() -> None:
    """Each person's number has two spellings, and ten rows have a blank one."""
    connection = visits("code")
    connection.execute("""
        CREATE OR REPLACE TABLE visits AS
        SELECT * EXCLUDE (n) REPLACE (
            CASE WHEN n <= 10 THEN ' ' WHEN n % 2 = 0 THEN code || ' ' ELSE code::VARCHAR END AS code
        )
        FROM (SELECT row_number() OVER (ORDER BY diagnosis, code) AS n, * FROM visits)
    """)
    attributes = {**QUASI, "code": {"role": "quasi", "hierarchy": "suppress"}, "diagnosis": {"role": "sensitive"}}
    policy = Policy(
        source={"table": "visits"}, attributes=attributes, privacy={"k": 5}, search={"suppression_limit": 0.05}
    )
    with sqlanon.connect(connection) as db, pytest.raises(PolicyError, match="'code' numbers people") as refused:
        db.anonymize(policy)
    assert "60 values in 350 rows (10 rows without a value count as one person in each class)" in str(refused.value)
