"""Strategy local: sound, never worse than its start, and better where there is something to gain."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import given, settings
from local_checks import check_private, check_sound, of_classes

import sqlanon
from properties.local_tasks import LIMITS, SOME_ROWS
from properties.privacy_cases import PrivacyCase, privacy_cases
from properties.random_cases import Case
from properties.search_checks import thorough
from sqlanon.strategies.local.local import local
from support.databases import insert
from support.lanes import draw_tables
from support.policies import make_policy

pytestmark = pytest.mark.thorough

PATIENTS = [
    ("w", "22981", 1944, "Hepatitis"),
    ("w", "22362", 1945, "Gicht"),
    ("w", "22669", 1949, "Arthrose"),
    ("w", "22862", 1985, "Diabetes"),
    ("w", "22875", 1992, "Demenz"),
    ("m", "22997", 1936, "Arthrose"),
    ("m", "22121", 1949, "Diabetes"),
    ("m", "22350", 1963, "Demenz"),
    ("m", "22188", 1964, "Demenz"),
    ("m", "22997", 1975, "Hepatitis"),
]
PATIENT_ATTRIBUTES = {
    "geschlecht": "suppress",
    "plz": "mask",
    "geburtsjahr": {"intervals": [5, 10, 20, 40]},
    "erkrankung": "sensitive",
}


@settings(thorough, max_examples=draw_tables(20, usual=40))
@given(SOME_ROWS, LIMITS)
def test_local_release_is_sound_and_never_worse_than_its_start(case: Case, limits: list[int]) -> None:
    check_sound(local, case, limits, "local")


def patients(directory: Path, strategy: str, **privacy: Any) -> list[tuple[Any, ...]]:
    """The ten patients' release."""
    policy = make_policy(PATIENT_ATTRIBUTES, search={"strategy": strategy}).model_dump(mode="json", exclude_none=True)
    policy["privacy"] |= privacy
    local_policy = sqlanon.Policy(**policy)
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE t (geschlecht VARCHAR, plz VARCHAR, geburtsjahr INTEGER, erkrankung VARCHAR)")
        insert(connection, "t", PATIENTS)
        with sqlanon.connect(connection) as db:
            release = db.anonymize(local_policy).publish(directory / "r.duckdb")  # which audits it
    with duckdb.connect(release.path, read_only=True) as connection:
        return connection.execute("FROM t").fetchall()


@pytest.mark.parametrize("strategy", ["local", pytest.param("k-similar", marks=pytest.mark.slow)])
def test_ten_patients_are_recoded_2_anonymous_and_2_diverse(tmp_path: Path, strategy: str) -> None:
    """An example from a lecture in Hamburg: no row is suppressed, though the full domain shows little."""
    diverse = [{"attribute": "erkrankung", "kind": "distinct", "l": 2}]
    for number, privacy in enumerate([{}, {"l_diversity": diverse}]):
        directory = tmp_path / str(number)
        directory.mkdir()
        rows = patients(directory, strategy, **privacy)
        assert sorted(row[3] for row in rows) == sorted(row[3] for row in PATIENTS)
        classes: dict[tuple[Any, ...], list[str]] = {}
        for *quasi, illness in rows:
            classes.setdefault(tuple(quasi), []).append(illness)
        assert len(classes) >= 3
        assert all(len(illnesses) >= 2 for illnesses in classes.values())
        assert not privacy or all(len(set(illnesses)) >= 2 for illnesses in classes.values())


@pytest.mark.parametrize("name", ["local", "k-similar"])
@settings(thorough, max_examples=draw_tables(6, usual=20))
@given(case=privacy_cases().filter(of_classes))
def test_every_class_meets_the_requirements(name: str, case: PrivacyCase) -> None:
    check_private(name, case)
