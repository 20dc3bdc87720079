"""Releases on a server, without a server: which are read, replaced and recorded."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sqlanon.audit.verification import Verification
from sqlanon.engines.limits import NO_LIMITS
from sqlanon.errors import BrokenReleaseError, ReleaseError
from sqlanon.publish.targets.base import Reach, refuse_draft_over
from sqlanon.publish.targets.postgres.reader import LockedRelease, OpenedPostgres, PostgresLocation, recorded_location
from sqlanon.publish.targets.server import StagedOnServer
from sqlanon.support.checks import Check

LOCATION = PostgresLocation("postgresql://somewhere/db", "shared", "r")


def locked(passed: bool | None, fingerprint: str = "one") -> LockedRelease:
    """A release whose catalog has a check with this result."""
    nothing: Any = None
    manifest: Any = SimpleNamespace(fingerprint=lambda: fingerprint)
    return LockedRelease(LOCATION, nothing, nothing, manifest, [Check("rights", passed, "everybody has UPDATE")])


@pytest.mark.parametrize(
    ("passed", "fingerprint", "error"),
    [
        (True, "one", None),
        (None, "one", None),  # a warning
        (False, "one", "was changed since it was published, and is not read: rights: everybody has UPDATE"),
        (True, "two", "was replaced while it was verified"),
    ],
)
def test_rows_are_read_of_the_release_that_was_verified(
    passed: bool | None, fingerprint: str, error: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PostgresLocation, "locked_release", lambda self: nullcontext(locked(passed)))
    monkeypatch.setattr(LockedRelease, "stream", lambda self: nullcontext("rows"))
    verified: Any = SimpleNamespace(fingerprint=lambda: fingerprint)
    refused = nullcontext() if error is None else pytest.raises(BrokenReleaseError, match=error)
    with refused, LOCATION._stream(verified) as rows:
        assert rows == "rows"


@pytest.mark.parametrize(
    ("sha256", "verified", "is_changed"),
    [(None, True, False), ("same", True, False), ("other", True, True), ("other", False, False)],
)
def test_a_release_is_changed_if_its_hash_is_not_that_of_the_ledger(
    sha256: str | None, verified: bool, is_changed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A release that does not verify has no hash to compare: its faults are reported."""
    checks = (Check("digest", verified, ""),)
    verification = Verification(LOCATION.path, locked(True).manifest, checks, "")

    @contextmanager
    def open_verified(*_: Any) -> Iterator[OpenedPostgres]:
        yield OpenedPostgres(locked(True), verification, Path("copy"), NO_LIMITS)

    monkeypatch.setattr(PostgresLocation, "open_verified", open_verified)
    monkeypatch.setattr(OpenedPostgres, "sha256", lambda self: "same")
    with LOCATION.open_version(NO_LIMITS, None, sha256, trusted=False) as release:
        assert release.is_changed is is_changed


@pytest.mark.parametrize(("schema", "name"), [("shared", "r"), ("shared.more", "r"), ("shared", "r.r")])
def test_a_recorded_location_is_on_a_server_that_the_policy_names(schema: str, name: str) -> None:
    """Names may have points. Users and options do not matter."""
    path = Path(f"postgresql://somewhere/db/{schema}.{name}")
    for source, release in ((None, "me:secret@somewhere"), ("somewhere", "elsewhere")):
        sections = {
            section: SimpleNamespace(postgres=None if host is None else f"postgresql://{host}/db")
            for section, host in (("source", source), ("release", release))
        }
        location = recorded_location(path, name, Reach(cast(Any, SimpleNamespace(**sections))))
        assert (location.schema, location.name, location.path) == (schema, name, path)
    for policy in (None, SimpleNamespace(source=sections["release"], release=None)):
        with pytest.raises(ReleaseError, match="on a server that the policy does not name"):
            recorded_location(path, name, Reach(cast(Any, policy)))


@pytest.mark.parametrize(
    ("drafts", "is_refused"), [([], False), ([True, True], False), ([True, False], True), (None, True)]
)
def test_a_draft_replaces_drafts_only(drafts: list[bool] | None, is_refused: bool) -> None:
    """A release whose manifests cannot be read is not replaced either."""
    manifests: Any = None if drafts is None else [SimpleNamespace(draft=draft) for draft in drafts]
    with pytest.raises(ReleaseError, match="is a published release") if is_refused else nullcontext():
        refuse_draft_over(manifests, "shared.r")


@pytest.mark.parametrize(("catalog", "sha256"), [(None, None), ("c.duckdb", "hash")])
def test_rows_on_a_server_are_hashed_for_a_ledger(catalog: str | None, sha256: str | None) -> None:
    class Staged(StagedOnServer):
        draft: Any = SimpleNamespace(search_input=SimpleNamespace(policy=SimpleNamespace(catalog=catalog)))

        def hash_rows(self) -> str:
            return "hash"

    assert Staged().sha256 == sha256
