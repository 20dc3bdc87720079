"""The checks that a release fails."""

from __future__ import annotations

from pathlib import Path

from sqlanon.audit.verify import verify_file
from sqlanon.release.targets.base import Verification


def failed(found: Verification) -> set[str]:
    """The names of the checks that a release fails."""
    assert found.verified is not any(check.passed is False for check in found.checks)
    return {check.name for check in found.checks if check.passed is False}


def failed_alone(path: Path) -> set[str]:
    """The names of the checks that a release fails without its policy."""
    return failed(verify_file(path))
