"""Checks of a release, as all audits make them: by what is wrong, or by SQL that counts the rows that break a claim;
those of its file's SHA-256, and of what it claims of its decoys."""

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

_AT_ONCE = 1 << 20


def sha256_of(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_AT_ONCE):
            digest.update(block)
    return digest.hexdigest()


def file_check(path: Path, expected: str) -> Check:
    expected = expected.strip().lower()
    if not re.fullmatch("[0-9a-f]{64}", expected):
        raise ReleaseError("sha256 must be 64 hexadecimal digits, as `anonymize` prints them")
    try:
        found = sha256_of(path)
    except OSError as error:
        raise ReleaseError(f"{path} cannot be read: {error.strerror or error}") from error
    if (log := path.with_name(f"{path.name}.wal")).exists():
        return Check("sha256", False, f"{log.name} is beside it, and DuckDB reads that into the file: remove it")
    if found == expected:
        return Check("sha256", True, "the file is the one that was published")
    return Check("sha256", False, f"expected {expected}, found {found}: the file was changed, or it is another one")


def claims_its_decoys(manifest: Manifest) -> bool:
    """Whether what a manifest says of decoys agrees with itself: they fill classes of 1 to k − 1 rows up to k. Older
    releases say how many classes, and how small the smallest was."""
    policy = manifest.policy
    rows, classes, without = manifest.decoys, manifest.decoy_classes, manifest.smallest_class_without_decoys
    if not policy.get("decoys"):
        return rows is None and classes is None and without is None
    k = policy.get("privacy", {}).get("k")
    if rows is None or not isinstance(k, int):
        return False
    if classes is None and without is None:
        return rows == 0 or (rows > 0 and k > 1 and manifest.smallest_class == k)
    if classes is None or without is None:
        return False
    if not classes:
        return rows == 0 and without == manifest.smallest_class
    return (
        classes <= rows <= classes * (k - 1)
        and classes <= manifest.classes
        and manifest.smallest_class == k
        and 1 <= without < k
        and k - without <= rows
    )


def k_counts_decoys(checks: Sequence[Check], manifest: Manifest) -> list[Check]:
    """The checks of requirements; that of k says that it counts decoys, where there are any."""
    if not manifest.decoys:
        return list(checks)
    message = f"k counts {manifest.decoys} decoys, which are rows of nobody"
    if manifest.smallest_class_without_decoys is not None:  # older releases say so
        message += f"; without them the smallest class has {manifest.smallest_class_without_decoys}"
    k = f"{manifest.policy['privacy']['k']}-anonymity"
    names = (k, f"{AGAINST}{k}")
    return [replace(one, message=f"{one.message}; {message}") if one.name in names else one for one in checks]


def decoy_checks(manifest: Manifest, sizes: Mapping[int, int]) -> list[Check]:
    """Whether enough classes have k rows, as those have that are filled; none where no decoys were asked for."""
    if manifest.decoys is None:
        return []
    filled, k = manifest.decoy_classes, manifest.policy["privacy"]["k"]
    found = sizes.get(k, 0)
    where = f"some of the {found}" if filled is None else f"{filled} of the {found}"
    message = f"{manifest.decoys} rows in {where} classes of {k} rows; which, the release does not show"
    enough = manifest.decoys <= found * (k - 1) if filled is None else filled <= found
    return [Check("decoys", enough, message)]


AGAINST = "against the source: "
"""The names of checks that have the source begin with it."""


UNREAD = "only the SHA-256 finds data in their unused ends (--sha256, --policy)"
"""What no check that reads a file sees, of its blocks or pages."""


def check_of(name: str, wrong: Iterable[str], right: str) -> Check:
    """A check by all that is wrong, in words."""
    return Check(name, not (message := "; ".join(wrong)), message or right)


def source_check(name: str, passed: bool, claim: str, found: str | None = None) -> Check:
    """A check that has the source: the claim, if it passed, else what was found, by default its contrary."""
    return Check(f"{AGAINST}{name}", passed, claim if passed else f"not so: {found or claim}")


@dataclass(frozen=True)
class Claim:
    """A check against the source as SQL: its name, what holds, and the query of one number, the rows that break it."""

    name: str
    words: str
    broken: exp.Select

    def check(self, engine: Queryable) -> Check:
        return source_check(self.name, not engine.rows(self.broken)[0][0], self.words)


__all__ = ["AGAINST", "UNREAD", "Check", "Claim", "check_of", "source_check"]
