"""The score and the proof of optimality that a release may publish.

A score that depends on unreleased values could reveal them: two tables that differ in one person's value can have the
same release and different scores. A manifest has the score only if it can be computed from the manifest and the
released rows; `verify` computes it again. The result and the catalog always have it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from sqlanon.measures import MEASURES, Figures, Marginals, Measure, find_measure
from sqlanon.policy.strategies import strategy_traits

if TYPE_CHECKING:
    from sqlanon.policy import Policy
    from sqlanon.release.manifest import Manifest


def recompute_score(manifest: Manifest, sizes: Mapping[int, int]) -> float | None:
    """The score of the release, or None if its measure needs more than the release."""
    if not is_score_public(manifest):
        return None
    heights = {name.lower(): height for name, height in (manifest.heights or {}).items()}
    names = [name.lower() for name in manifest.generalization]
    of_levels = MEASURES[manifest.measure].derivable_from == "levels"
    marginals = Marginals(
        rows=manifest.rows,
        heights=tuple(heights.get(name, 0) for name in names) if of_levels else (),
        leaves=(),
        unknown=(0,) * len(names) if of_levels else (),
        leaf_sums=(),
    )
    weights = [manifest.attribute(name).get("weight", 1.0) for name in names] if of_levels else ()
    measure = MEASURES[manifest.measure](marginals, weights, manifest.policy["search"].get("aggregate", "mean"))
    squares = float(sum(size * size * count for size, count in sizes.items()))
    figures = Figures(manifest.classes, manifest.suppressed_rows, squares)
    return measure.reported_score(
        measure.score(tuple(level or 0 for level in manifest.generalization.values()), figures)
    )


def is_score_public(manifest: Manifest) -> bool:
    """Whether the score can be computed from the release alone."""
    policy, measure = manifest.policy, find_measure(manifest.measure) or Measure
    if measure.derivable_from == "levels":
        heights = {name.lower() for name in manifest.heights or {}}
        levels = manifest.generalization
        has_heights = all(level == 0 or name.lower() in heights for name, level in levels.items())
        if not has_heights or None in levels.values() or _is_local(policy):
            return False
        if measure.counts_steps and _has_hidden_top(manifest):
            return False
        # With noise, rows may be suppressed after the search.
        return not (manifest.noise and measure.counts_suppression)
    if manifest.noise or measure.derivable_from != "counts":
        return False
    # Masked rows form a class that the search did not count; with persons or decoys, sizes are not numbers of rows.
    masked = policy.get("suppressed") == "mask" and manifest.suppressed_rows > 0
    persons = policy.get("persons") or manifest.decoys is not None
    return not (measure.counts_classes and (masked or persons or _is_local(policy)))


def _has_hidden_top(manifest: Manifest) -> bool:
    """Whether an attribute is at the top of a mask, which is published as level 1 of 1."""
    heights = {name.lower(): height for name, height in (manifest.heights or {}).items()}
    return any(
        level == heights.get(name.lower()) == 1
        and any(rule["rule"] == "mask" for rule in manifest.attribute(name).get("hierarchy") or ())
        for name, level in manifest.generalization.items()
    )


def _is_local(policy: Mapping[str, object]) -> bool:
    search = policy.get("search")
    if not isinstance(search, Mapping):
        return True
    return search.get("suppression") == "cells" or strategy_traits(search.get("strategy")).is_local


def is_proof_public(policy: Policy) -> bool:
    """Whether the policy alone decides that the result is proven optimal, independently of unreleased values."""
    search = policy.search
    return (
        search.traits.proves_optimum and not search.is_local and search.time_limit is None and search.max_checks is None
    )


def public_generalization(
    policy: Policy, levels: Mapping[str, int | None], heights: Mapping[str, int]
) -> tuple[dict[str, int | None], dict[str, int]]:
    """The levels and heights that readers can derive from the labels.

    The height of a mask is the length of the longest text, which may be in a suppressed row. Only masked labels show
    it: level 0 is published without a height, and the top as level 1 of 1 (see `Manifest.levels`).
    """
    masks = {
        name.lower()
        for name, attribute in policy.attributes.items()
        if any(rule.kind == "mask" for rule in attribute.hierarchy or ())
    }
    tops = {name for name, level in levels.items() if name.lower() in masks and level == heights.get(name)}
    return (
        {name: 1 if name in tops else level for name, level in levels.items()},
        {
            name: 1 if name in tops else height
            for name, height in heights.items()
            if levels.get(name) or name.lower() not in masks
        },
    )
