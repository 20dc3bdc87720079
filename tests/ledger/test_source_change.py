"""A source that has changed since its release: what `verify` and `extend` say of it, by keys, persons and values."""

from __future__ import annotations

import json
import shutil
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from visits import CHANGE_A_VALUE, CREATE, DELETE_A_VISIT, GROW, POLICY, WITHDRAW_TWO, K, policy, publish

import sqlanon
from sqlanon.errors import ReleaseError
from sqlanon.release.source_change import SOURCE_CHECK, SourceChange
from support.commands import cli
from support.databases import change
from support.files import folder_again, folder_and_copy
from support.verification import failed_checks


@pytest.fixture(scope="module")
def published_before(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return folder_and_copy(publish(tmp_path_factory.mktemp("visits")))


@pytest.fixture
def visits(published_before: tuple[Path, Path]) -> Path:
    """A source with its release, made with a key and persons."""
    return folder_again(*published_before)


def verify(folder: Path, **more: Any) -> Any:
    with sqlanon.connect() as db:
        return db.verify(folder / "r.duckdb", policy(folder, **more))


def source_change(folder: Path, **more: Any) -> SourceChange:
    """Findings of a verification about the source, without other failures."""
    verification = verify(folder, **more)
    assert failed_checks(verification) == {SOURCE_CHECK}, verification.failures
    assert isinstance(verification.source_change, SourceChange)
    return verification.source_change


@pytest.mark.thorough
def test_the_release_of_an_unchanged_source_has_no_change(visits: Path) -> None:
    verification = verify(visits)
    assert verification.verified
    assert verification.source_change is None


@pytest.mark.thorough
def test_withdrawn_persons_are_counted_with_all_their_rows(visits: Path) -> None:
    change(visits / "h.duckdb", WITHDRAW_TWO)
    source_change_ = source_change(visits)
    figures = (
        source_change_.withdrawn_persons,
        source_change_.deleted_rows,
        source_change_.changed_rows,
        source_change_.new_rows,
        source_change_.missing_rows,
    )
    assert figures == (2, 6, 0, 0, 6)
    assert source_change_.differences == "2 persons are withdrawn; 6 released rows were deleted"
    assert source_change_.counts_persons
    assert (source_change_.smallest_class, source_change_.small_classes) == (2, 2)  # each was one of three persons


@pytest.mark.thorough
@pytest.mark.parametrize("key", [True, False])
def test_persons_who_left_are_named_where_others_have_come_with_their_rows(tmp_path: Path, key: bool) -> None:
    publish(tmp_path, key=key)
    change(tmp_path / "h.duckdb", "UPDATE visits SET pid = 'newcomer', id = id + 1000 WHERE pid = 'p5'")
    source_change_ = source_change(tmp_path, key=key)
    assert (source_change_.withdrawn_persons, source_change_.deleted_rows, source_change_.new_rows) == (
        1,
        *((3, 3) if key else (None, None)),
    )
    assert source_change_.rows_now == source_change_.rows_before
    assert "It still shows what has left the source" in source_change_.valid_claims
    assert "sqlanon withdraw" in source_change_.remedy("p.toml")


@pytest.mark.thorough
def test_keys_that_left_are_named_where_others_have_come_with_their_rows(tmp_path: Path) -> None:
    publish(tmp_path, person=False)
    change(tmp_path / "h.duckdb", "UPDATE visits SET id = 1000 WHERE id = 9")
    source_change_ = source_change(tmp_path, person=False)
    assert (source_change_.withdrawn_persons, source_change_.deleted_rows, source_change_.new_rows) == (1, 1, 1)


@pytest.mark.thorough
def test_a_person_who_keeps_other_rows_is_not_withdrawn(visits: Path) -> None:
    change(visits / "h.duckdb", DELETE_A_VISIT)
    source_change_ = source_change(visits)
    assert (source_change_.withdrawn_persons, source_change_.deleted_rows, source_change_.smallest_class) == (0, 1, K)
    assert source_change_.differences == "1 released row was deleted"


@pytest.mark.thorough
def test_a_grown_source_is_named_and_the_release_has_lost_nothing(visits: Path) -> None:
    change(visits / "h.duckdb", GROW)
    source_change_ = source_change(visits)
    assert (source_change_.has_lost_rows, source_change_.differences) == (False, "4 rows are new")
    assert "withdraw" not in source_change_.remedy("policy.toml")


@pytest.mark.thorough
def test_suppressed_rows_are_not_new(tmp_path: Path) -> None:
    with sqlanon.connect() as db:
        change(
            tmp_path / "h.duckdb",
            CREATE,
            "INSERT INTO visits SELECT 500 + i, 'rare', 95, 'x', 'a' FROM range(2) AS r(i)",
        )
        result = db.anonymize(policy(tmp_path, person=False))
        assert result.suppressed_rows == 2
        result.publish()
    change(tmp_path / "h.duckdb", GROW)
    source_change_ = source_change(tmp_path, person=False)
    assert (source_change_.new_rows, source_change_.differences) == (4, "4 rows are new")


@pytest.mark.thorough
def test_a_changed_value_is_named(visits: Path) -> None:
    change(visits / "h.duckdb", CHANGE_A_VALUE)
    source_change_ = source_change(visits)
    assert (source_change_.has_lost_rows, source_change_.differences) == (False, "1 released row has other values")


def test_simultaneous_changes_are_distinguished(visits: Path) -> None:
    change(visits / "h.duckdb", WITHDRAW_TWO, DELETE_A_VISIT, CHANGE_A_VALUE, GROW)
    source_change_ = source_change(visits)
    words = "2 persons are withdrawn; 7 released rows were deleted; 1 released row has other values; 4 rows are new"
    assert source_change_.differences == words


@pytest.mark.thorough
def test_rows_without_persons_are_persons(tmp_path: Path) -> None:
    folder = publish(tmp_path, person=False)
    change(folder / "h.duckdb", "DELETE FROM visits WHERE id < 3")
    source_change_ = source_change(folder, person=False)
    assert (source_change_.withdrawn_persons, source_change_.counts_persons) == (3, False)


@pytest.mark.thorough
def test_without_a_key_deleted_and_changed_rows_are_counted_together(tmp_path: Path) -> None:
    folder = publish(tmp_path, key=False)
    change(folder / "h.duckdb", WITHDRAW_TWO, CHANGE_A_VALUE)
    source_change_ = source_change(folder, key=False)
    assert (source_change_.withdrawn_persons, source_change_.deleted_rows, source_change_.missing_rows) == (2, None, 7)
    assert source_change_.differences == "2 persons are withdrawn; 7 released rows were deleted or changed"
    assert source_change_.smallest_class == 2


@pytest.mark.thorough
def test_withdrawn_persons_of_ranges_are_counted(tmp_path: Path) -> None:
    """A release whose rows cannot be compared one by one."""
    local = {"search": {"strategy": "mondrian"}}
    folder = publish(tmp_path, **local)
    change(folder / "h.duckdb", WITHDRAW_TWO, GROW)
    source_change_ = source_change(folder, **local)
    assert (
        source_change_.withdrawn_persons,
        source_change_.deleted_rows,
        source_change_.new_rows,
        source_change_.missing_rows,
    ) == (2, 6, 4, None)


@pytest.mark.slow
def test_a_source_without_rows_has_lost_all_persons(visits: Path) -> None:
    change(visits / "h.duckdb", "DELETE FROM visits")
    source_change_ = source_change(visits)
    assert (source_change_.withdrawn_persons, source_change_.deleted_rows, source_change_.rows_now) == (60, 180, 0)
    with sqlanon.connect() as db, pytest.raises(ReleaseError, match=r"none of its rows is in the source any more"):
        db.withdraw(policy(visits))


@pytest.mark.thorough
def test_persons_are_withdrawn_if_the_source_lost_all_released_rows(visits: Path) -> None:
    change(visits / "h.duckdb", "DELETE FROM visits WHERE NOT pid = 'p3'", GROW)
    source_change_ = source_change(visits)
    assert source_change_.withdrawn_persons == 59


@pytest.mark.thorough
def test_a_copy_of_the_release_fails_only_the_source_check(visits: Path) -> None:
    change(visits / "h.duckdb", WITHDRAW_TWO)
    shutil.copy(visits / "r.duckdb", visits / "copy.duckdb")
    with sqlanon.connect() as db:
        verification = db.verify(visits / "copy.duckdb", policy(visits))
    assert failed_checks(verification) == {SOURCE_CHECK}


@pytest.mark.thorough
def test_a_catalog_without_the_release_excuses_nothing(visits: Path) -> None:
    """Nothing shows that the release is the one that was published."""
    (visits / "c.duckdb").unlink()
    change(visits / "h.duckdb", WITHDRAW_TWO)
    verification = verify(visits)
    assert verification.source_change is None
    assert "against the source: recoded source" in failed_checks(verification)


@pytest.mark.thorough
def test_another_policy_is_not_another_source(visits: Path) -> None:
    change(visits / "h.duckdb", GROW)
    with sqlanon.connect() as db:
        other_policy = policy(visits)
        verification = db.verify(
            visits / "r.duckdb",
            other_policy.model_copy(update={"privacy": other_policy.privacy.model_copy(update={"k": 2})}),
        )
    assert verification.source_change is None
    assert "against the source: policy" in failed_checks(verification)


@pytest.mark.thorough
def test_extend_counts_deleted_rows_that_are_still_released(tmp_path: Path) -> None:
    folder = publish(tmp_path, person=False)
    change(folder / "h.duckdb", "DELETE FROM visits WHERE id < 3", CHANGE_A_VALUE, GROW)
    with sqlanon.connect() as db:
        extension = db.extend(policy(folder, person=False))
    assert extension.source_change.losses == (
        "3 persons are withdrawn; 3 released rows were deleted; 1 released row has other values"
    )
    assert extension.to_dict()["source_change"]["withdrawn_persons"] == 3


@pytest.mark.slow
def test_extend_names_withdrawn_persons_where_it_is_refused(visits: Path) -> None:
    change(visits / "h.duckdb", WITHDRAW_TWO, GROW)
    with sqlanon.connect() as db, pytest.raises(ReleaseError, match="2 persons are withdrawn"):
        db.extend(policy(visits))


@pytest.mark.thorough
def test_command_line_explains_the_change_and_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    change(tmp_path / "h.duckdb", CREATE)
    (tmp_path / "policy.toml").write_text(POLICY.format(person='"pid"'))
    assert cli("anonymize", "policy.toml").status == 0
    change(tmp_path / "h.duckdb", WITHDRAW_TWO)
    capsys.readouterr()
    assert cli("verify", "r.duckdb", "--policy", "policy.toml").status == 1
    out = capsys.readouterr().out
    assert "NOT verified against the source, which has changed since: 2 persons are withdrawn" in out
    assert "What holds: the release is the one that was published" in out
    assert "its smallest class has 2 persons, and 2 classes have fewer than 3" in out
    assert "What to do: `sqlanon" in out
    assert cli("verify", "r.duckdb", "--policy", "policy.toml", "--json").status == 1
    document = json.loads(capsys.readouterr().out)
    assert document["verified"] is False
    assert document["source_change"]["withdrawn_persons"] == 2
    assert cli("verify", "r.duckdb").status == 0


@pytest.mark.thorough
def test_a_report_names_the_changed_source_without_figures(visits: Path) -> None:
    pytest.importorskip("altair")
    change(visits / "h.duckdb", WITHDRAW_TWO)
    with sqlanon.connect() as db:
        assert not db.report(visits / "r.duckdb", visits / "page.html", policy=policy(visits))
    page = (visits / "page.html").read_text(encoding="utf-8")
    assert "The source has changed since this release was published." in page
    assert "NOT hold" not in page
    assert "withdrawn" not in page


def test_sample_without_departed_persons_proves_nothing() -> None:
    then = datetime(2026, 5, 1)
    assert SourceChange(then, 5000, 4999, withdrawn_persons=0, is_estimate=True).may_have_lost_rows
    assert SourceChange(then, 5000, 5000).may_have_lost_rows
    assert not SourceChange(then, 50, 50, withdrawn_persons=0, missing_rows=0, deleted_rows=0).may_have_lost_rows
