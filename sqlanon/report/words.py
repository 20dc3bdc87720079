"""A policy in words, from what the manifest of a release shows of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sqlanon.measures import measure_named
from sqlanon.policy import PrivacySection
from sqlanon.policy.problems import read_part
from sqlanon.release.manifest import Manifest
from sqlanon.report.facts import Facts
from sqlanon.requirements import requirements_in

ROLES: Mapping[str, str] = {
    "identifying": "names people: left out",
    "quasi": "may be known to others: generalized",
    "sensitive": "sensitive",
    "insensitive": "not critical",
}


def requirements(facts: Facts) -> list[str]:
    """What is asked of a release, a sentence each."""
    return sentences(facts.claims.policy)


def sentences(policy: Mapping[str, Any]) -> list[str]:
    """The requirements of a policy as a manifest shows it, a sentence each."""
    section, _ = read_part(PrivacySection, policy.get("privacy"), "privacy", {})
    if section is None:
        return ["The manifest does not say in a readable way what was asked."]
    return list(_sentences(section, "people" if policy.get("persons") else "rows"))


def of_persons(claims: Manifest) -> bool:
    """Whether the policy counts persons, who may have several rows."""
    return bool(claims.policy.get("persons"))


def _sentences(section: PrivacySection, who: str) -> Iterator[str]:
    for one in requirements_in(section):
        yield one.sentence(who)
    if section.confidence is not None:
        yield f"After noise, nobody is left nearly alone, with a confidence of {100 * section.confidence:g} %."


def search(facts: Facts) -> list[str]:
    """How the version was chosen, a sentence each."""
    claims = facts.claims
    asked = claims.policy.get("search", {})
    limit = asked.get("suppression_limit") or 0
    what = "At most " + f"{100 * float(limit):g} % of the rows may be left out." if limit else "No row may be left out."
    known = measure_named(claims.measure)
    measure = claims.measure if known is None else known.words
    proof = "It is proven that no other does better." if claims.optimal else "That no other does better is not proven."
    sentences = [what, f"Of the versions that meet all this, one was chosen by {measure}. {proof}"]
    if claims.policy.get("suppressed") == "mask":
        sentences.append("Rows that cannot be kept stay with all generalized columns hidden, where that is safe.")
    if claims.decoys:
        sentences.append(f"{claims.decoys:,} rows of nobody (decoys) fill groups that would be too small.")
    if claims.epsilon is not None:
        sentences.append(f"Noise protects what stays a number: a budget of ε = {claims.epsilon:g} a row.")
    return sentences


def verdict(facts: Facts) -> str:
    if not facts.holds:
        return "This release does NOT hold what it claims."
    if any(check.passed is None for check in facts.checks):
        return "All that can be checked holds; the rest needs the source."
    return "All requirements hold."
