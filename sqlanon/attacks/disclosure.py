"""Attacks on the classes of one release, by the queries of `release.disclosure`."""

from __future__ import annotations

from typing import Any

from sqlglot import exp

from sqlanon.attacks.attacker import Attacker, Found
from sqlanon.attacks.findings import Finding
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
from sqlanon.ledger.joint.row_matching import add_titles


def find_homogeneity(attacker: Attacker) -> Found:
    """Classes with a single sensitive value."""
    findings = [
        _finding(attacker, one, name, homogeneity(one.relation, one.manifest.quasi_identifiers, name))
        for one, name in _attributes(attacker)
    ]
    return findings, [] if findings else [_NO_ATTRIBUTE]


def find_background_knowledge(attacker: Attacker) -> Found:
    """Classes with few sensitive values, for an adversary who can rule out some."""
    findings = []
    for one, name in _attributes(attacker):
        query = background_knowledge(one.relation, one.manifest.quasi_identifiers, name, attacker.known)
        findings.append(_finding(attacker, one, name, query, known=attacker.known))
    return findings, [] if findings else [_NO_ATTRIBUTE]


def find_skewness(attacker: Attacker) -> Found:
    """Values that are much more likely in a class than elsewhere."""
    findings = []
    for one, name in _attributes(attacker):
        query = skewness(one.relation, one.manifest.quasi_identifiers, name)
        greatest = attacker.figures(greatest_skew(one.relation, one.manifest.quasi_identifiers, name))
        findings.append(_finding(attacker, one, name, query, **greatest, ratio=RATIO, likely=LIKELY))
    return findings, [] if findings else [_NO_ATTRIBUTE]


def find_similarity(attacker: Attacker) -> Found:
    """Classes whose values are of one kind, by the policy's hierarchy."""
    findings = []
    for one, name in _attributes(attacker):
        tree = attacker.trees.hierarchies.get(name.lower())
        if tree is not None:
            query = similarity(one.relation, one.manifest.quasi_identifiers, name, tree.table, tree.height)
            findings.append(_finding(attacker, one, name, query))
    return findings, [] if findings else ["needs a policy with a hierarchy of a sensitive attribute"]


_NO_ATTRIBUTE = "needs a sensitive attribute: the release has none"


def _attributes(attacker: Attacker) -> list[tuple[ComparedRelease, str]]:
    return [(one, name) for one in attacker.subjects for name in one.sensitive]


def _finding(attacker: Attacker, one: ComparedRelease, name: str, query: exp.Select, **figures: Any) -> Finding:
    sql = attacker.script(add_titles(query, one.manifest.quasi_identifiers))
    more = {"attribute": name, **figures}
    return Finding((str(one.path),), attacker.victims(query), one.manifest.released_rows, sql, more)
