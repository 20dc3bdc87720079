"""Releases in PostgreSQL are read unless something of them was changed: decided without a server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sqlanon.audit.verification import Verification
from sqlanon.engines.limits import NO_LIMITS
from sqlanon.errors import BrokenReleaseError
from sqlanon.publish.targets.postgres.reader import LockedRelease, OpenedPostgres, PostgresLocation
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
