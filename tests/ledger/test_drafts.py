"""Drafts: releases for testing, marked as such, which nothing is compared with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pytest

import sqlanon
from sqlanon.errors import AuditError, PolicyError, ReleaseError
from support.commands import cli
from support.databases import change
from support.files import folder_again, folder_and_copy
from support.ledger_hospital import FINE_RACE, FINE_ZIP, make_hospital, policy, publish

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("plain_macros")]


def draft(requested_policy: sqlanon.Policy) -> Any:
    with sqlanon.connect() as db:
        return db.anonymize(requested_policy).publish(draft=True)


@pytest.fixture(scope="module")
def folder_of_before(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("drafts")
    make_hospital(folder)
    publish(policy(folder, "one", FINE_RACE))
    draft(policy(folder, "two", FINE_ZIP))  # together with one it would be refused
    return folder_and_copy(folder)


@pytest.fixture
def folder(folder_of_before: tuple[Path, Path]) -> Path:
    """A release `one`, and a draft `two` that reveals more together with it."""
    return folder_again(*folder_of_before)


def ledger(place: Path) -> list[tuple[str, bool, bool]]:
    with duckdb.connect(str(place / "private.duckdb"), read_only=True) as connection:
        rows = connection.execute("SELECT path, draft, replaced_at IS NULL FROM sqlanon.ledger ORDER BY ALL").fetchall()
    return [(Path(path).stem, is_draft, stands) for path, is_draft, stands in rows]


@pytest.mark.thorough
def test_draft_is_marked_in_every_view(folder: Path) -> None:
    assert ledger(folder) == [("one", False, True), ("two", True, True)]
    with duckdb.connect(str(folder / "two.duckdb"), read_only=True) as connection:
        (marked,) = connection.execute("SELECT policy->>'draft' FROM sqlanon.manifest").fetchall()
        figures = connection.execute("SELECT value FROM quality WHERE figure = 'draft'").fetchall()
        comments = connection.execute("SELECT comment FROM duckdb_views() WHERE view_name = 'patients'").fetchall()
    assert marked == ("true",) and figures == [(1.0,)] and comments[0][0].startswith("DRAFT")
    outcome = cli("verify", folder / "two.duckdb")
    assert outcome.status == 0 and "\nVerified (a draft" in outcome.out
    assert '"draft": true' in cli("verify", folder / "two.duckdb", "--json").out
    assert "draft" not in cli("verify", folder / "one.duckdb").out


@pytest.mark.thorough
def test_a_draft_whose_mark_is_removed_is_noticed(folder: Path) -> None:
    """This holds even if the figure of the mark is removed, too: the ledger records drafts."""
    path, requested_policy = folder / "two.duckdb", policy(folder, "two", FINE_ZIP)
    with sqlanon.connect() as db:
        assert db.verify(path, requested_policy).verified
    with duckdb.connect(str(path)) as connection:
        connection.execute("UPDATE sqlanon.manifest SET policy = replace(policy, ', \"draft\": true', '')")
        connection.execute("DELETE FROM sqlanon.figures WHERE figure = 'draft'")
    moved = path.rename(folder / "elsewhere.duckdb")
    with sqlanon.connect() as db:
        verification = db.verify(moved, requested_policy)
    assert not verification.verified and not verification.manifest.draft
    assert any(check.name == "against the ledger: draft" and check.passed is False for check in verification.checks)


@pytest.mark.thorough
def test_a_draft_does_not_take_the_place_of_a_release(folder: Path) -> None:
    before = (folder / "one.duckdb").read_bytes()
    with pytest.raises(ReleaseError, match="a draft does not replace"):
        draft(policy(folder, "one", FINE_RACE))
    assert (folder / "one.duckdb").read_bytes() == before
    (folder / "one.duckdb").unlink()  # the ledger still knows it: others may have it
    with pytest.raises(ReleaseError, match=r"one\.duckdb.*a draft does not replace"):
        draft(policy(folder, "one", FINE_RACE))
    assert ledger(folder) == [("one", False, True), ("two", True, True)]


@pytest.mark.thorough
def test_release_is_not_overwritten_without_a_catalog(folder: Path) -> None:
    requested_policy = policy(folder, "one", FINE_RACE).model_copy(update={"catalog": None})
    with pytest.raises(ReleaseError, match="a draft does not replace"):
        draft(requested_policy)


@pytest.mark.thorough
def test_a_release_is_compared_with_releases_and_not_with_drafts(folder: Path) -> None:
    with pytest.raises(AuditError, match=r"one\.duckdb"):  # the location of a draft does not circumvent it
        publish(policy(folder, "two", FINE_ZIP))
    (folder / "one.duckdb").unlink()
    change(folder / "private.duckdb", "DELETE FROM sqlanon.releases WHERE NOT coalesce(draft, false)")
    result, _ = publish(policy(folder, "three", FINE_RACE))  # together with two alone
    assert result.held_against == ()
    assert ledger(folder) == [("three", False, True), ("two", True, True)]


@pytest.mark.thorough
def test_drafts_and_releases_replace_each_other_in_one_place(folder: Path) -> None:
    requested_policy = policy(folder, "two", FINE_ZIP, release={"draft": True, "keep": 3})
    draft(requested_policy)
    publish(requested_policy)  # the policy says that it is one
    assert ledger(folder)[1:] == [("two", True, False)] * 2 + [("two", True, True)]
    coarse = policy(folder, "two", {"race": 1, "birth": 3, "sex": 1, "zip": 5}, release={"keep": 3, "after": ["one"]})
    publish(coarse)
    assert ledger(folder)[1:] == [("two", False, True)] + [("two", True, False)] * 3
    with duckdb.connect(str(folder / "two.duckdb"), read_only=True) as connection:
        assert connection.execute("SELECT policy->>'draft' FROM sqlanon.manifest").fetchall() == [
            (None,)
        ]  # none is kept


def test_draft_is_refused_as_base(folder: Path) -> None:
    with pytest.raises(PolicyError, match="'two' is a draft"):
        publish(policy(folder, "three", {}, release={"after": ["two"]}))
    after_all = draft(policy(folder, "three", {}, release={"after": "all"}))
    with sqlanon.connect() as db:
        verification = db.verify(after_all.path, policy(folder, "three", {}, release={"after": "all"}))
    assert verification.verified and verification.manifest.draft
    source = {"table": None, "query": "SELECT *, rowid AS id FROM patients", "key": ["id"], "undeclared": "drop"}
    with pytest.raises(ReleaseError, match="is a draft"), sqlanon.connect() as db:
        db.extend(policy(folder, "two", FINE_ZIP, source=dict(source)))
    with pytest.raises(PolicyError, match="a draft cannot be extended"), sqlanon.connect() as db:
        db.extend(policy(folder, "two", FINE_ZIP, release={"draft": True}, source=dict(source)))


@pytest.mark.thorough
@pytest.mark.parametrize("ledger_knows", [True, False])
def test_a_parquet_release_can_be_a_draft(folder: Path, ledger_knows: bool) -> None:
    place = {"database": None, "file": folder / "three.parquet", "ledger": ledger_knows}
    release = draft(policy(folder, "three", FINE_ZIP, release=place))
    assert release.manifest.draft and release.verify().manifest.draft
    assert ("three", True, True) in ledger(folder) or not ledger_knows


@pytest.mark.thorough
def test_noise_of_drafts_is_not_added_up(folder: Path) -> None:
    noisy = {
        "attributes": {"cost": {"role": "quasi", "noise": {"epsilon": 1.0, "bounds": [0, 100]}}},
        "source": {"table": None, "query": "SELECT *, length(problem) AS cost FROM patients"},
    }
    for name in ("a", "b"):
        draft(policy(folder, name, {}, **{key: dict(value) for key, value in noisy.items()}))
    publish(policy(folder, "c", {"race": 1, "birth": 3, "sex": 1, "zip": 5}, **noisy), force=True)
    with duckdb.connect(str(folder / "private.duckdb"), read_only=True) as connection:
        rows = connection.execute("SELECT max(epsilon_so_far) FROM sqlanon.ledger").fetchall()
    assert rows == [(1.0,)]
