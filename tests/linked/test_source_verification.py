"""A release of linked tables is held against its source: the same persons, whatever the keys are."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import duckdb
import pytest

import sqlanon
from properties.linked_cases import LinkedCase, small_cases
from sqlanon.errors import ReleaseError
from sqlanon.linked.publish.recode import LinkedRecoding, surrogate_table
from sqlanon.linked.source_verification import verify_named
from sqlanon.policy.linked import LinkedPolicy
from sqlanon.support.expressions import fragment, template
from support.commands import cli
from support.lanes import draw_tables, some
from support.linked_databases import anonymize_case, open_case
from support.linked_hospital import POLICY, fix_levels, make_hospital


def anonymize(folder: Path, policy: str) -> None:
    """Publish a release by a policy, which is written to the folder. No ledger compares it."""
    (folder / "policy.toml").write_text(policy, encoding="utf-8")
    loaded = LinkedPolicy.load(folder / "policy.toml")
    with sqlanon.connect() as db:
        replace(db.anonymize(loaded.model_copy(update={"catalog": None})), policy=loaded).publish()


def failures(folder: Path, release: str = "release.duckdb", policy: str = "policy.toml") -> list[str]:
    """The checks against the source that fail."""
    with sqlanon.connect() as db:
        verification = db.verify(folder / release, LinkedPolicy.load(folder / policy))
    return [failure.removeprefix("against the source: ") for failure in verification.failures]


def change_source(folder: Path, statement: str) -> None:
    """Run a statement in the source."""
    with duckdb.connect(str(folder / "hospital.duckdb")) as connection:
        connection.execute(statement)


@pytest.mark.thorough
def test_releases_verify_against_their_source_in_files_and_folders(hospital: Path) -> None:
    assert failures(hospital) == []
    ended = cli("verify", hospital / "release", "--policy", hospital / "policy.toml")
    assert ended.status == 0
    assert "gives the persons of the release with all their rows" in ended.out


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "failure"),
    [
        pytest.param(
            "UPDATE visits SET diagnosis = 'other' WHERE visit_id = (SELECT min(visit_id) FROM visits)",
            "recoded source",
            marks=pytest.mark.slow,
        ),
        (
            "UPDATE labs SET value = 9 WHERE visit_id = (SELECT min(visit_id) FROM labs)",
            "recoded source: persons that the source does not give: 1; persons missing in the release: 1",
        ),
        ("DELETE FROM labs WHERE visit_id = (SELECT min(visit_id) FROM labs)", "source rows"),
        ("UPDATE visits SET patient_id = 1001 WHERE visit_id IN (SELECT visit_id FROM visits LIMIT 9)", ""),
    ],
)
def test_a_changed_source_does_not_give_the_release(hospital_copy: Path, change: str, failure: str) -> None:
    change_source(hospital_copy, change)
    failed_checks = failures(hospital_copy)
    assert any(message.startswith(failure) for message in failed_checks), failed_checks


@pytest.mark.slow
def test_a_release_of_another_policy_does_not_verify(hospital_copy: Path) -> None:
    text = POLICY.replace("known = 2", "known = 1")
    (hospital_copy / "other.toml").write_text(text, encoding="utf-8")
    failed_checks = failures(hospital_copy, policy="other.toml")
    assert [failure.partition(":")[0] for failure in failed_checks] == ["policy", "manifest"]


@pytest.mark.slow
@pytest.mark.parametrize("order", [pytest.param("row", marks=pytest.mark.slow), "-row"])
def test_keys_in_the_order_of_the_source_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, order: str) -> None:
    """Numbers from 1 are not the keys of the source, but in its order they reveal the person of a row."""

    def number_in_order(recoding: LinkedRecoding) -> None:
        for table in recoding.records.tables:
            if table.key:
                query = template("""
                    SELECT row, row_number() OVER (ORDER BY :order) AS surrogate FROM :kept AS kept
                """)
                keys = query(order=fragment(order)(), kept=recoding._select_kept_rows(table))
                recoding.records.runner.create_table(surrogate_table(table), keys)

    make_hospital(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(LinkedRecoding, "create_surrogates", number_in_order)
        anonymize(tmp_path, fix_levels(POLICY))
    (failure,) = failures(tmp_path)
    assert "keys of 'patients' are in the order of the source" in failure
    assert "keys of 'visits' are in the order of the source" in failure


@pytest.mark.thorough
def test_local_recoding_is_repeated(tmp_path: Path) -> None:
    make_hospital(tmp_path)
    anonymize(tmp_path, POLICY.replace("[search]", '[search]\nstrategy = "mondrian"\nmax_checks = 3'))
    assert failures(tmp_path) == []
    change_source(tmp_path, "UPDATE labs SET value = 9 WHERE visit_id = (SELECT min(visit_id) FROM labs)")
    (failure,) = failures(tmp_path)
    assert failure.startswith("recoded source")


@pytest.mark.slow
def test_shifted_dates_are_not_compared(tmp_path: Path) -> None:
    make_hospital(tmp_path)
    anonymize(
        tmp_path, fix_levels(POLICY.replace('dates = ["month", "year"]', 'dates = ["month", "year"], shift = 30'))
    )
    ended = cli("verify", tmp_path / "release.duckdb", "--policy", tmp_path / "policy.toml")
    assert ended.status == 0
    assert "not compared: the dates of each person were moved by a random number of days" in ended.out


def test_releases_and_policies_of_other_kinds_are_refused(hospital_copy: Path) -> None:
    (hospital_copy / "one.toml").write_text(
        '[source]\ndatabase = "hospital.duckdb"\ntable = "patients"\nundeclared = "drop"\nperson = false\n'
        '[attributes]\nzip = { role = "quasi", hierarchy = "suppress" }\n[privacy]\nk = 2\n',
        encoding="utf-8",
    )
    ended = cli("verify", hospital_copy / "release.duckdb", "--policy", hospital_copy / "one.toml")
    assert ended.status == 2
    assert "--policy: is of one table, but the release has several" in ended.err
    with sqlanon.connect() as db, pytest.raises(ReleaseError, match="is not a release of several tables"):
        verify_named(
            db._workspace, LinkedPolicy.load(hospital_copy / "policy.toml"), hospital_copy / "hospital.duckdb", None
        )


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("case", "row_limit"),
    some(zip(small_cases(20, draw_tables(4, 60), first=1000), itertools.cycle((0.0, 0.2))), every=3),
)
def test_releases_of_random_databases_verify_against_them(case: LinkedCase, row_limit: float, tmp_path: Path) -> None:
    with open_case(case) as db:
        result = anonymize_case(case, db, row_suppression_limit=row_limit)
        if result is None:
            return
        result.publish(tmp_path / "release.duckdb")
        verification = db.verify(tmp_path / "release.duckdb", result.policy)
    assert verification.verified, verification.failures
