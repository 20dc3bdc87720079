"""Building blocks of checks: lists of faults, SQL that counts violating rows, the SHA-256, and decoys."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from sqlglot import exp

from sqlanon.errors import ReleaseError
from sqlanon.release.manifest import Manifest
from sqlanon.requirements.audit import Check, Queryable
from sqlanon.support.resources import __version__

__all__ = ["SOURCE_PREFIX", "UNREAD_BYTES", "Check", "Claim", "check_faults", "check_wording", "source_check"]

SOURCE_PREFIX = "against the source: "
"""Prefix of the names of checks against the source."""

UNREAD_BYTES = "only the SHA-256 finds data in their unused ends (--sha256, --policy)"
"""Limit of the checks of blocks and pages, for their messages."""

_BLOCK_BYTES = 1 << 20


def file_sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()


def check_sha256(path: Path, expected: str) -> Check:
    expected = expected.strip().lower()
    if not re.fullmatch("[0-9a-f]{64}", expected):
        raise ReleaseError("sha256: must be 64 hexadecimal digits, as `anonymize` prints them")
    try:
        actual = file_sha256(path)
    except OSError as error:
        raise ReleaseError(f"{path} cannot be read: {error.strerror or error}") from error
    if (log := path.with_name(f"{path.name}.wal")).exists():
        return Check("sha256", False, f"{log.name} is beside it, and DuckDB would apply it to the file: remove it")
    if actual == expected:
        return Check("sha256", True, "the file is unchanged since it was published")
    return Check("sha256", False, f"expected {expected}, found {actual}: the file was changed or is another one")


def check_faults(name: str, faults: Iterable[str], message: str) -> Check:
    """A check that fails with the faults, or passes with ``message`` if there are none."""
    listed = "; ".join(faults)
    return Check(name, not listed, listed or message)


def check_wording(name: str, changes: Iterable[str], message: str, manifest: Manifest) -> Check:
    """A check of the texts that a release derives from its manifest.

    Another version of sqlanon may word them differently: then a difference proves nothing.
    """
    check = check_faults(name, changes, message)
    if check.passed or manifest.sqlanon_version == __version__:
        return check
    message = f"{check.message}; the manifest says that sqlanon {manifest.sqlanon_version} wrote them, and this is "
    return Check(name, None, f"{message}{__version__}: they may be somebody else's, do not rely on them")


def source_check(name: str, passed: bool, claim: str, failure: str | None = None) -> Check:
    """A check against the source, with the claim as its message if it passed, else ``failure``."""
    return Check(f"{SOURCE_PREFIX}{name}", passed, claim if passed else failure or f"not true: {claim}")


@dataclass(frozen=True)
class Claim:
    """A check against the source by a query that counts the violating rows."""

    name: str
    claim: str
    violations: exp.Select

    def check(self, engine: Queryable) -> Check:
        return source_check(self.name, not engine.rows(self.violations)[0][0], self.claim)


def has_possible_decoys(manifest: Manifest) -> bool:
    """Whether the figures of decoys in a manifest are possible."""
    decoys = manifest.decoys
    if not manifest.policy.get("decoys"):
        return decoys is None
    k = manifest.policy.get("privacy", {}).get("k")
    if decoys is None or not isinstance(k, int):
        return False
    return decoys == 0 or (decoys > 0 and k > 1 and manifest.smallest_class == k)


def note_decoys_in_k(checks: Sequence[Check], manifest: Manifest) -> list[Check]:
    """Add a note to the checks of k that they count decoys, if the release has any."""
    if not manifest.decoys:
        return list(checks)
    note = f"k counts {manifest.decoys} decoys, which are invented rows"
    k = f"{manifest.policy['privacy']['k']}-anonymity"
    names = (k, f"{SOURCE_PREFIX}{k}")
    return [replace(check, message=f"{check.message}; {note}") if check.name in names else check for check in checks]


def check_decoys(manifest: Manifest, classes_by_size: Mapping[int, int]) -> list[Check]:
    """Check that enough classes have exactly k rows, as filled classes have. No check if the policy has no decoys."""
    if manifest.decoys is None:
        return []
    k = manifest.policy["privacy"]["k"]
    classes = classes_by_size.get(k, 0)
    message = f"{manifest.decoys} decoys in some of the {classes} classes of {k} rows; the release does not show which"
    return [Check("decoys", manifest.decoys <= classes * (k - 1), message)]
