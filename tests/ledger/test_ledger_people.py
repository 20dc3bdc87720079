"""Sources of the same people are recognized by the values of their keys, wherever they are; others are not."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest

import sqlanon
from sqlanon.engines.dialects.canonical_text import canonical_text
from sqlanon.errors import AuditError
from sqlanon.publish import stage as publishing
from sqlanon.support.expressions import col
from support.files import folder_again, folder_and_copy
from support.lanes import some
from support.people_tables import (
    IN_COMMON,
    PEOPLE,
    UUID,
    K,
    in_csv,
    in_duckdb,
    in_parquet,
    make_people,
    make_tables,
    of_labs,
    policy_of,
    publish,
)

pytestmark = pytest.mark.usefixtures("plain_macros")


@pytest.fixture(scope="module")
def published_release(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("clinic")
    make_tables(folder, make_people())
    publish(policy_of(folder, "visits", in_csv(folder, "visits")))
    return folder_and_copy(folder)


@pytest.fixture
def clinic(published_release: tuple[Path, Path]) -> Path:
    """A clinic whose visits are published, from a CSV file."""
    return folder_again(*published_release)


LABS: dict[str, Callable[[Path], tuple[dict[str, Any], str | bool]]] = {
    "CSV": lambda folder: (in_csv(folder, "labs"), "mrn"),
    "each row is called a person": lambda folder: (in_csv(folder, "labs"), False),
    "another name, and half of the people": lambda folder: (
        of_labs(folder, "* RENAME (mrn AS token)", "mrn % 2 = 0"),
        "token",
    ),
    "a table": lambda folder: (in_duckdb(folder, "labs"), "mrn"),
    "Parquet": lambda folder: (in_parquet(folder, "labs"), "mrn"),
    "zeros in front": lambda folder: (of_labs(folder, "* REPLACE (lpad(mrn::TEXT, 9, '0') AS mrn)"), "mrn"),
    "spaces": lambda folder: (of_labs(folder, "* REPLACE (' ' || mrn || '  ' AS mrn)"), "mrn"),
    "decimals": lambda folder: (of_labs(folder, "* REPLACE (mrn::DECIMAL(18, 2) AS mrn)"), "mrn"),
    "floats": lambda folder: (of_labs(folder, "* REPLACE (mrn::DOUBLE AS mrn)"), "mrn"),
    "some without a number": lambda folder: (of_labs(folder, "* REPLACE (if(mrn < 90, NULL, mrn) AS mrn)"), "mrn"),
}


def refuse_labs(clinic: Path, case: str) -> str:
    source, person = LABS[case](clinic)
    with pytest.raises(AuditError, match=IN_COMMON) as refused:
        publish(policy_of(clinic, "labs", source, person))
    assert not (clinic / "labs_release.duckdb").exists()
    return str(refused.value)


@pytest.mark.thorough
def test_the_refusal_of_a_table_of_the_same_people_explains_itself(clinic: Path) -> None:
    message = refuse_labs(clinic, "CSV")
    assert "(why 19 rows with k = 4: one person has up to 6 rows, so 18 rows can be those of 3 persons)" in message
    assert message.count("why") == 1
    assert "if mrn numbers other people in that source (both may count from 1)" in message


@pytest.mark.thorough
@pytest.mark.parametrize("case", ["each row is called a person", "another name, and half of the people"])
def test_another_table_of_the_same_people_is_refused(clinic: Path, case: str) -> None:
    refuse_labs(clinic, case)


@pytest.mark.thorough
@pytest.mark.parametrize("case", some([*LABS][3:], 7))
def test_another_table_of_the_same_people_is_refused_wherever_it_lies(clinic: Path, case: str) -> None:
    refuse_labs(clinic, case)


@pytest.mark.thorough
@pytest.mark.parametrize("place", [in_duckdb, in_parquet])
def test_the_people_of_a_release_are_known_wherever_they_came_from(
    tmp_path: Path, place: Callable[[Path, str], dict[str, Any]]
) -> None:
    make_tables(tmp_path, make_people())
    publish(policy_of(tmp_path, "visits", place(tmp_path, "visits")))
    refuse_labs(tmp_path, "CSV")


@pytest.mark.thorough
def test_equal_sequential_ids_do_not_prove_common_people(tmp_path: Path) -> None:
    """All numbers of one are in the other, but no column agrees more often than chance explains."""
    make_tables(tmp_path, make_people(1), make_people(2))
    publish(policy_of(tmp_path, "visits", in_csv(tmp_path, "visits")))
    result = publish(policy_of(tmp_path, "labs", in_duckdb(tmp_path, "labs")))
    assert result.held_against == ()


@pytest.mark.slow
def test_shared_random_numbers_are_people_in_common_whatever_else_differs(tmp_path: Path) -> None:
    """Nothing that both tables say of a person agrees: but numbers of nine digits are not the same by chance."""
    people = make_people(1, sparse=True)
    chosen = random.Random(3)
    visits = [
        (number, chosen.randint(20, 79), f"029{chosen.randrange(30):02}", "x", chosen.randrange(28))
        for number, *_ in people
    ]
    make_tables(tmp_path, people, visits)
    publish(policy_of(tmp_path, "visits", in_csv(tmp_path, "visits")))
    result = publish(policy_of(tmp_path, "labs", in_duckdb(tmp_path, "labs"), day=False, after="all"))
    assert [Path(path).name for path in result.held_against] == ["visits_release.duckdb"]


@pytest.mark.thorough
def test_patients_of_the_same_doctors_are_not_the_same_people(tmp_path: Path) -> None:
    """A doctor has patients of all ages: the column numbers no patients."""
    with duckdb.connect(str(tmp_path / "clinic.duckdb")) as connection:
        for name, measured in (("visits", "diagnosis"), ("labs", "test")):
            connection.execute(
                f"CREATE TABLE {name} AS SELECT 1000 + i % 40 * 977 AS doctor, 'ward ' || i % 40 % 7 AS ward, "
                f"20 + (hash(i || '{name}') % 60)::INTEGER AS age, '021' || (10 + hash('{name}' || i) % 30) AS zip, "
                f"if(hash(i || '{name} sex') % 2 = 0, 'f', 'm') AS sex, 'x' AS {measured}, DATE '2024-01-01' AS day "
                "FROM range(800) AS t(i)"
            )
    publish(policy_of(tmp_path, "visits", in_duckdb(tmp_path, "visits"), False))
    result = publish(policy_of(tmp_path, "labs", in_duckdb(tmp_path, "labs"), False))
    assert result.held_against == ()


@pytest.mark.thorough
def test_a_release_of_the_same_people_that_is_published_meanwhile_is_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Visits are published while laboratory tests are audited, which the ledger has no release to hold against yet."""
    make_tables(tmp_path, make_people())
    audit, policies = publishing.audit, [policy_of(tmp_path, "visits", in_csv(tmp_path, "visits"))]

    def audit_after_visits(*arguments: Any) -> None:
        audit(*arguments)
        if policies:
            publish(policies.pop())

    monkeypatch.setattr(publishing, "audit", audit_after_visits)
    with pytest.raises(AuditError, match=IN_COMMON):
        publish(policy_of(tmp_path, "labs", in_duckdb(tmp_path, "labs")))


@pytest.mark.thorough
def test_the_catalog_has_hashes_of_people_as_long_as_their_release_stands(clinic: Path) -> None:
    query = "SELECT (SELECT count(*) FROM sqlanon.source_people), (SELECT count(*) FROM sqlanon.released_people)"
    with duckdb.connect(str(clinic / "catalog.duckdb"), read_only=True) as catalog:
        sampled, released = catalog.execute(query).fetchall()[0]
        secret = catalog.execute("SELECT secret FROM sqlanon.secret").fetchall()[0][0]
        people = {person for (person,) in catalog.execute("SELECT person FROM sqlanon.source_people").fetchall()}
    assert sampled == PEOPLE and K <= released <= PEOPLE and secret
    assert not people & set(range(PEOPLE + 1))
    publish(policy_of(clinic, "visits", in_duckdb(clinic, "visits")))  # takes the place of the other one
    with duckdb.connect(str(clinic / "catalog.duckdb"), read_only=True) as catalog:
        assert catalog.execute(query).fetchall()[0][0] == PEOPLE


@pytest.mark.slow
@pytest.mark.parametrize(
    ("first_type", "second_type"),
    [
        ("7::INTEGER", "' 007 '"),
        ("7::BIGINT", "7.00::DECIMAL(18, 2)"),
        ("7::DOUBLE", "'7.0'"),
        ("7.5::DOUBLE", "'07.50'"),
        ("9007199254740993::BIGINT", "'9007199254740993'"),
        (f"'{UUID}'::UUID", f"'{{{UUID.upper()}}}'"),
        (f"'{UUID}'::UUID", f"'{UUID.replace('-', '')}'"),
        ("DATE '1980-01-02'", "TIMESTAMP '1980-01-02'"),
        ("'ab'", "' AB '"),
    ],
)
def test_one_value_has_one_text_in_all_types(first_type: str, second_type: str) -> None:
    with duckdb.connect() as connection:
        texts = []
        for value in (first_type, second_type):
            ((type_,),) = connection.execute(f"SELECT typeof({value})").fetchall()
            form = canonical_text(col("v"), type_, "duckdb").sql("duckdb")
            texts.append(connection.execute(f"SELECT {form} FROM (SELECT {value} AS v)").fetchall())
    assert texts[0] == texts[1]


def test_two_numbers_that_floats_take_for_one_are_two() -> None:
    with duckdb.connect() as connection:
        form = canonical_text(col("v"), "BIGINT", "duckdb").sql("duckdb")
        query = f"SELECT count(DISTINCT {form}) FROM (VALUES (9007199254740992), (9007199254740993)) AS t(v)"
        assert connection.execute(query).fetchall() == [(2,)]


SERIAL = {
    "patients": "i AS id, i AS row_number, hash(i) % 5 AS age, hash(i * 3) % 4 AS ward",
    "staff": "i AS id, i AS line, hash(i * 7) % 6 AS grade, hash(i * 11) % 4 AS shift",
}


@pytest.mark.thorough
@pytest.mark.parametrize("person", ["id", False])
def test_tables_that_both_count_from_1_are_of_other_people(person: Any, tmp_path: Path) -> None:
    """Neither numbers that both have, nor a column that repeats them, nor the same few values by other names."""
    for name, attributes in (("patients", ("age", "ward")), ("staff", ("grade", "shift"))):
        with duckdb.connect(tmp_path / "clinic.duckdb") as connection:
            connection.execute(f"CREATE TABLE {name} AS SELECT {SERIAL[name]} FROM range(1, 301) AS r(i)")
        policy = sqlanon.Policy(
            source={"database": str(tmp_path / "clinic.duckdb"), "table": name, "undeclared": "drop", "person": person},
            attributes={
                "id": {"role": "identifying"},
                **{attribute: {"role": "quasi", "hierarchy": "suppress"} for attribute in attributes},
            },
            privacy={"k": 3},
            release={"file": str(tmp_path / f"{name}.parquet")},
            catalog={"database": str(tmp_path / "catalog.duckdb")},
        )
        with sqlanon.connect() as db:
            result = db.anonymize(policy)
            result.publish()
        assert result.held_against == ()
        assert not any("same people" in warning or "in common" in warning for warning in result.warnings)
