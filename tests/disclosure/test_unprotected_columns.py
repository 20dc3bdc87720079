"""Warnings of columns that are released unchanged and that nothing protects, by what their names say."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

import sqlanon
from sqlanon.suggest.profile import Profile
from sqlanon.suggest.propose import propose
from support.policies import make_policy

STAYS = """
    CREATE TABLE stays AS
    SELECT
        i // 2 AS patient_id, 'w' || i % 5 AS ward, 'd' || i // 5 % 4 AS diagnosis, i % 3 = 0 AS hiv,
        CASE WHEN i % 7 = 0 THEN 'x' END AS asthma, 'flu' AS disease, 'Dr ' || i % 6 AS doctor, i % 11 AS bp,
        'n' || i // 3 AS surname, 'p' || i // 2 || '@example.org' AS email, i % 13 AS cost, i % 4 AS health_insurance,
        i AS stay
    FROM range(600) AS r(i)
"""
HEALTH = 'column {} is insensitive, and named like health: no requirement protects it; set role = "sensitive"'


@pytest.fixture
def stays() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        connection.execute(STAYS)
        yield connection


def policy(roles: dict[str, Any], person: str | bool = False, **sections: Any) -> sqlanon.Policy:
    source = {"table": "stays", "person": person, "undeclared": "drop"}
    return make_policy({"ward": "suppress", **roles}, table=None, source=source, **sections)


def warnings(connection: duckdb.DuckDBPyConnection, roles: dict[str, Any], **more: Any) -> tuple[str, ...]:
    with sqlanon.connect(connection) as db:
        requested_policy = policy(roles, **more)
        messages: tuple[str, ...] = db.anonymize(requested_policy).warnings
        assert [warning for warning in db.risk(requested_policy).warnings if "named like" in warning] == [
            message for message in messages if "named like" in message
        ]
        return messages


@pytest.mark.thorough
def test_health_that_is_called_insensitive_is_named_until_it_is_sensitive(stays: duckdb.DuckDBPyConnection) -> None:
    for name in ("diagnosis", "hiv", "asthma"):
        (warning,) = warnings(stays, {name: "insensitive"})
        assert warning.startswith(HEALTH.format(repr(name)))
        assert warnings(stays, {name: "sensitive"}) == ()
        assert warnings(stays, {name: "suppress"}) == ()


@pytest.mark.thorough
def test_belief_that_is_called_insensitive_is_named(stays: duckdb.DuckDBPyConnection) -> None:
    stays.execute("ALTER TABLE stays ADD COLUMN religion VARCHAR; UPDATE stays SET religion = 'r' || stay % 3")
    (warning,) = warnings(stays, {"religion": "insensitive"})
    assert warning.startswith("column 'religion' is insensitive, and named like belief, politics, sexual life, crime:")
    assert warnings(stays, {"religion": "sensitive"}) == ()


@pytest.mark.thorough
def test_columns_of_health_share_one_warning_which_comes_first(stays: duckdb.DuckDBPyConnection) -> None:
    roles = dict.fromkeys(("diagnosis", "hiv", "email", "surname"), "insensitive")
    first, *further = warnings(stays, roles)
    assert first.startswith("columns 'diagnosis' and 'hiv' are insensitive, and named like health")
    assert len(further) == 2


@pytest.mark.thorough
def test_harmless_columns_are_not_named(stays: duckdb.DuckDBPyConnection) -> None:
    assert warnings(stays, dict.fromkeys(("disease", "bp", "cost", "health_insurance"), "insensitive")) == ()


@pytest.mark.thorough
def test_a_plan_names_health_without_reading_a_row(stays: duckdb.DuckDBPyConnection) -> None:
    with sqlanon.connect(stays) as db:
        (warning,) = db.plan(policy({"diagnosis": "insensitive"})).warnings
        assert db.plan(policy({"diagnosis": "sensitive"})).warnings == ()
    assert warning.startswith(HEALTH.format("'diagnosis'"))


@pytest.mark.thorough
@pytest.mark.parametrize("role", ["sensitive", "insensitive"])
def test_names_and_addresses_of_many_people_are_not_released_unchanged(
    stays: duckdb.DuckDBPyConnection, role: str
) -> None:
    (warning,) = warnings(stays, {"surname": role, "doctor": role})  # six doctors are categories
    before, count, after = re.split(r"(\d+)", warning)
    assert before == "column 'surname' is released unchanged, and named like an identifier (names): it has "
    assert after == " different values; make it identifying or a quasi-identifier"
    assert 180 <= int(count) <= 220  # an estimate of 200


@pytest.mark.thorough
def test_an_identifier_of_each_person_is_named_where_persons_have_several_rows(
    stays: duckdb.DuckDBPyConnection,
) -> None:
    stays.execute("CREATE TABLE many AS SELECT s.* FROM stays AS s, range(4)")
    stays.execute("DROP TABLE stays")
    stays.execute("ALTER TABLE many RENAME TO stays")  # eight rows a person: values are an eighth of the rows
    (warning,) = warnings(stays, {"email": "insensitive"}, person="patient_id")
    assert "'email'" in warning and "named like an identifier (e-mail addresses)" in warning


@pytest.mark.thorough
def test_extend_and_live_name_health_columns_too(tmp_path: Path) -> None:
    file = tmp_path / "stays.duckdb"
    with duckdb.connect(str(file)) as connection:
        connection.execute(STAYS)
    places = {"release": tmp_path / "out.duckdb", "catalog": tmp_path / "catalog.duckdb"}
    sections = {name: {"database": str(place)} for name, place in places.items()}
    requested_policy = make_policy(
        {"ward": "suppress", "diagnosis": "insensitive"},
        table=None,
        source={"table": "stays", "person": False, "undeclared": "drop", "key": ["stay"]},
        **sections,
    )
    with sqlanon.connect(file) as db:
        db.anonymize(requested_policy).publish()
    with duckdb.connect(str(file)) as connection:
        connection.execute("INSERT INTO stays SELECT * REPLACE (stay + 600 AS stay) FROM stays")
    with sqlanon.connect(file) as db:
        assert any(warning.startswith(HEALTH.format("'diagnosis'")) for warning in db.extend(requested_policy).warnings)
        assert any(warning.startswith(HEALTH.format("'diagnosis'")) for warning in db.live(requested_policy).warnings)


@pytest.mark.thorough
def test_a_reader_of_a_release_learns_which_groups_give_insensitive_health_away(
    stays: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    stays.execute("UPDATE stays SET diagnosis = ward WHERE ward < 'w3'")
    roles = {"diagnosis": "insensitive", "cost": "insensitive"}
    add = {"l_diversity": [{"attribute": "diagnosis", "kind": "distinct", "l": 2}]}
    with sqlanon.connect(stays) as db:
        worst = db.anonymize(policy(roles)).publish(tmp_path / "one.duckdb", "stays").verify().residual_risk
        assert worst is not None
        assert worst.line == "Homogeneity: in 60 % of the rows the group has a single diagnosis."
        role, _, entry = worst.advice.partition(", and add to [privacy]:\n")
        assert role == 'To prevent it, set role = "sensitive" for diagnosis in [attributes]' and '"diagnosis"' in entry
        changed = policy(roles | {"diagnosis": "sensitive"}, privacy=add, release={"draft": True})
        after = db.anonymize(changed).publish(tmp_path / "two.duckdb", "stays").verify().residual_risk
    assert after is None or "Homogeneity" not in after.line


@pytest.mark.parametrize("name", ["diagnosis", "tumor_size", "patient_name", "email", "ssn", "hh_id"])
def test_suggest_marks_only_constant_columns_insensitive(name: str) -> None:
    for type_ in ("VARCHAR", "BIGINT", "BOOLEAN", "DATE"):
        for values, distinct in ((100, 2), (100, 60), (100, 100), (99, 1)):
            (proposal,) = propose(
                [Profile(name, type_, 100, values=values, distinct=distinct, longest=9, mean_length=5)]
            )
            assert proposal.role != "insensitive"
