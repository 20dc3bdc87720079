"""What a release with decoys claims of them, and what of that it shows by itself: not which rows they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from sqlanon.release.check import AGAINST, Check
from sqlanon.release.manifest import Manifest


def claims_its_decoys(manifest: Manifest) -> bool:
    """Whether what a manifest says of decoys agrees with itself: they fill classes of 1 to k − 1 rows up to k."""
    policy = manifest.policy
    rows, classes, without = manifest.decoys, manifest.decoy_classes, manifest.smallest_class_without_decoys
    if not policy.get("decoys"):
        return rows is None and classes is None and without is None
    k = policy.get("privacy", {}).get("k")
    if rows is None or classes is None or without is None or not isinstance(k, int):
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
    told = f"k counts {manifest.decoys} decoys, which are rows of nobody; without them the smallest class has "
    told += f"{manifest.smallest_class_without_decoys}"
    asked = f"{manifest.policy['privacy']['k']}-anonymity"
    names = (asked, f"{AGAINST}{asked}")
    return [replace(one, message=f"{one.message}; {told}") if one.name in names else one for one in checks]


def decoy_checks(manifest: Manifest, sizes: Mapping[int, int]) -> list[Check]:
    """Whether so many classes as are filled have k rows; none where no decoys were asked for.

    Parameters
    ----------
    sizes:
        How many classes there are of each size.
    """
    if manifest.decoys is None:
        return []
    filled, k = manifest.decoy_classes or 0, manifest.policy["privacy"]["k"]
    found = sizes.get(k, 0)
    message = f"{manifest.decoys} rows in {filled} of the {found} classes of {k} rows; which, the release does not show"
    return [Check("decoys", filled <= found, message)]
