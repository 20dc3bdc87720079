"""The checks that a release fails."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq

import sqlanon
from sqlanon.audit.verification import Verification
from sqlanon.audit.verify import verify_file
from support.databases import fetch


def failed_checks(verification: Verification) -> set[str]:
    """The names of the checks that a release fails."""
    assert verification.verified is not any(check.passed is False for check in verification.checks)
    return {check.name for check in verification.checks if check.passed is False}


def failed_alone(path: Path) -> set[str]:
    """The names of the checks that a release fails without its policy."""
    return failed_checks(verify_file(path))


def manifest_text(release: sqlanon.Release) -> str:
    if release.path.suffix == ".parquet":
        return pq.read_metadata(release.path).metadata[b"sqlanon"].decode()
    return json.dumps(fetch(release.path, "FROM sqlanon.manifest"), default=str, ensure_ascii=False)
