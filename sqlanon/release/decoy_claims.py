"""What a release with decoys claims of them, and what of that it shows by itself: not which rows they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from sqlanon.release.check import AGAINST, Check
from sqlanon.release.manifest import Manifest


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
    told = f"k counts {manifest.decoys} decoys, which are rows of nobody"
    if manifest.smallest_class_without_decoys is not None:  # older releases say so
        told += f"; without them the smallest class has {manifest.smallest_class_without_decoys}"
    asked = f"{manifest.policy['privacy']['k']}-anonymity"
    names = (asked, f"{AGAINST}{asked}")
    return [replace(one, message=f"{one.message}; {told}") if one.name in names else one for one in checks]


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
