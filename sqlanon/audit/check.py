"""Checks of a release, for all audits: by lists of faults, by SQL that counts rows, of the SHA-256 and of decoys."""

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

_AT_ONCE = 1 << 20


def file_sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_AT_ONCE):
            digest.update(block)
    return digest.hexdigest()


def check_sha256(path: Path, expected: str) -> Check:
    expected = expected.strip().lower()
    if not re.fullmatch("[0-9a-f]{64}", expected):
        raise ReleaseError("sha256: must be 64 hexadecimal digits, as `anonymize` prints them")
    try:
        found = file_sha256(path)
    except OSError as error:
        raise ReleaseError(f"{path} cannot be read: {error.strerror or error}") from error
    if (log := path.with_name(f"{path.name}.wal")).exists():
        return Check("sha256", False, f"{log.name} is beside it, and DuckDB would apply it to the file: remove it")
    if found == expected:
        return Check("sha256", True, "the file is unchanged since it was published")
    return Check("sha256", False, f"expected {expected}, found {found}: the file was changed or is another one")


def has_possible_decoys(manifest: Manifest) -> bool:
    """Whether the figures of decoys in a manifest are possible."""
    policy = manifest.policy
    rows = manifest.decoys
    if not policy.get("decoys"):
        return rows is None
    k = policy.get("privacy", {}).get("k")
    if rows is None or not isinstance(k, int):
        return False
    return rows == 0 or (rows > 0 and k > 1 and manifest.smallest_class == k)


def note_decoys_in_k(checks: Sequence[Check], manifest: Manifest) -> list[Check]:
    """Add to the check of k that it counts decoys, if there are any."""
    if not manifest.decoys:
        return list(checks)
    message = f"k counts {manifest.decoys} decoys, which are invented rows"
    k = f"{manifest.policy['privacy']['k']}-anonymity"
    names = (k, f"{SOURCE_PREFIX}{k}")
    return [replace(one, message=f"{one.message}; {message}") if one.name in names else one for one in checks]


def check_decoys(manifest: Manifest, sizes: Mapping[int, int]) -> list[Check]:
    """Whether enough classes have k rows, as filled classes do. No check if the policy has no decoys."""
    if manifest.decoys is None:
        return []
    k = manifest.policy["privacy"]["k"]
    found = sizes.get(k, 0)
    message = f"{manifest.decoys} decoys in some of the {found} classes of {k} rows; the release does not show which"
    return [Check("decoys", manifest.decoys <= found * (k - 1), message)]


SOURCE_PREFIX = "against the source: "
"""The prefix of checks against the source."""


UNREAD_BYTES = "only the SHA-256 finds data in their unused ends (--sha256, --policy)"
"""What checks of blocks or pages cannot see."""


def check_faults(name: str, wrong: Iterable[str], right: str) -> Check:
    """A check that fails with the faults, or passes with the message ``right``."""
    return Check(name, not (message := "; ".join(wrong)), message or right)


def check_wording(name: str, changed: Iterable[str], right: str, manifest: Manifest) -> Check:
    """A check of the words that a release has of its manifest. Another version of sqlanon may write others: then a
    difference shows nothing."""
    check = check_faults(name, changed, right)
    if check.passed or manifest.sqlanon_version == __version__:
        return check
    message = f"{check.message}; the manifest says that sqlanon {manifest.sqlanon_version} wrote them, and this is "
    return Check(name, None, f"{message}{__version__}: they may be somebody else's, do not rely on them")


def source_check(name: str, passed: bool, claim: str, found: str | None = None) -> Check:
    """A check against the source: the claim if it passed, else what was found."""
    return Check(f"{SOURCE_PREFIX}{name}", passed, claim if passed else found or f"not true: {claim}")


@dataclass(frozen=True)
class Claim:
    """A check against the source: its name, its claim, and the query that counts the rows that break it."""

    name: str
    words: str
    broken: exp.Select

    def check(self, engine: Queryable) -> Check:
        return source_check(self.name, not engine.rows(self.broken)[0][0], self.words)


__all__ = ["SOURCE_PREFIX", "UNREAD_BYTES", "Check", "Claim", "check_faults", "check_wording", "source_check"]
