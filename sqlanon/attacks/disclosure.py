"""Attacks on the classes of one release, by the queries of `disclosure.attribute_disclosure`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlglot import exp

from sqlanon.attacks.attacker import Attacker, AttackResult
from sqlanon.disclosure.attribute_disclosure import (
    LIKELY,
    RATIO,
    background_knowledge,
    greatest_skew,
    homogeneity,
    similarity,
    skewness,
)
from sqlanon.ledger.joint.release_links import ComparedRelease


def find_homogeneity(attacker: Attacker) -> AttackResult:
    """Classes with a single sensitive value."""
    return _attack_attributes(
        attacker, lambda release, name: (homogeneity(release.relation, release.manifest.quasi_identifiers, name), {})
    )


def find_background_knowledge(attacker: Attacker) -> AttackResult:
    """Classes with few sensitive values, for an attacker who can rule out some."""

    def build_query(release: ComparedRelease, name: str) -> tuple[exp.Select, dict[str, Any]]:
        quasi = release.manifest.quasi_identifiers
        return background_knowledge(release.relation, quasi, name, attacker.ruled_out), {"known": attacker.ruled_out}

    return _attack_attributes(attacker, build_query)


def find_skewness(attacker: Attacker) -> AttackResult:
    """Values that are much more likely in a class than elsewhere."""

    def build_query(release: ComparedRelease, name: str) -> tuple[exp.Select, dict[str, Any]]:
        relation, quasi = release.relation, release.manifest.quasi_identifiers
        greatest = attacker.fetch_figures(greatest_skew(relation, quasi, name))
        return skewness(relation, quasi, name), {**greatest, "ratio": RATIO, "likely": LIKELY}

    return _attack_attributes(attacker, build_query)


def find_similarity(attacker: Attacker) -> AttackResult:
    """Classes whose values are of one kind, by the policy's hierarchy."""

    def build_query(release: ComparedRelease, name: str) -> tuple[exp.Select, dict[str, Any]] | None:
        hierarchy = attacker.hierarchies.hierarchies.get(name.lower())
        if hierarchy is None:
            return None
        quasi = release.manifest.quasi_identifiers
        return similarity(release.relation, quasi, name, hierarchy.table, hierarchy.height), {}

    return _attack_attributes(attacker, build_query, "needs a policy with a hierarchy of a sensitive attribute")


def _attack_attributes(
    attacker: Attacker,
    build_query: Callable[[ComparedRelease, str], tuple[exp.Select, dict[str, Any]] | None],
    obstacle: str = "needs a sensitive attribute: the release has none",
) -> AttackResult:
    """A finding for each sensitive attribute of each release, from the query and figures of ``build_query``."""
    findings = []
    for release in attacker.releases:
        for name in release.sensitive:
            if (parts := build_query(release, name)) is None:
                continue
            query, figures = parts
            quasi = release.manifest.quasi_identifiers
            findings.append(attacker.make_finding([release], [query], quasi, {"attribute": name, **figures}))
    return findings, [] if findings else [obstacle]
