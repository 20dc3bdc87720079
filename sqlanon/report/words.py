"""A policy in words, from what the manifest of a release shows of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sqlanon.measures import MEASURES
from sqlanon.policy import PrivacySection
from sqlanon.policy.problems import read_part
from sqlanon.release.manifest import Manifest
from sqlanon.report.facts import Facts
from sqlanon.requirements.base import plain

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
    if section.k is not None:
        yield (
            f"Nobody stands alone: each combination of the generalized columns is shared by at least {section.k} {who} "
            f"({section.k}-anonymity)."
        )
    for shield in section.k_anonymity:
        yield f"At least {shield.k} {who} share each combination of {', '.join(shield.quasi)}."
    yield from _of_sensitive(section)
    yield from _of_people(section)
    if section.confidence is not None:
        yield f"After noise, nobody is left nearly alone, with a confidence of {100 * section.confidence:g} %."


def _of_sensitive(section: PrivacySection) -> Iterator[str]:
    """What is asked of the sensitive values of those who look alike."""
    for one in section.l_diversity:
        joint = ", also among those who agree in the other sensitive columns" if one.joint else ""
        meant = {
            "distinct": f"at least {plain(one.l)} different values",
            "entropy": f"values as diverse as {plain(one.l)} equally frequent ones",
            "recursive": f"no value that outweighs the others (recursive, c = {plain(one.c or 0)}, l = {plain(one.l)})",
        }[one.kind]
        yield f"Those who look alike have {meant} of {one.attribute}{joint} (l-diversity)."
    for close in section.t_closeness:
        yield (
            f"Within each group, {close.attribute} is distributed nearly as in the whole table: the distance is at "
            f"most {plain(close.t)} ({close.distance} t-closeness)."
        )
    for delta in section.delta_disclosure:
        yield (
            f"No value of {delta.attribute} is much more or less frequent in a group than in the whole table "
            f"(δ-disclosure privacy, δ = {plain(delta.delta)})."
        )
    for beta in section.beta_likeness:
        yield (
            f"No value of {beta.attribute} is much more frequent in a group than in the whole table "
            f"({beta.kind} β-likeness, β = {plain(beta.beta)})."
        )
    for alpha in section.alpha_k:
        yield f"No value of {alpha.attribute} has more than {100 * alpha.alpha:g} % of a group."


def _of_people(section: PrivacySection) -> Iterator[str]:
    """What is asked of the whole table, and beside a population."""
    if section.k_map is not None:
        yield f"Each group matches at least {section.k_map} people of the population (k-map)."
    if section.delta_presence is not None:
        least, most = plain(section.delta_presence.min), plain(section.delta_presence.max)
        yield f"Of each group of the population, a share of {least} to {most} is in the release (δ-presence)."
    if section.average_risk is not None:
        yield f"The average risk of being found is at most {100 * section.average_risk:g} %."
    if section.sample_uniqueness is not None:
        yield f"At most {100 * section.sample_uniqueness:g} % of the rows are alone in their group."
    unique = section.population_uniqueness
    if unique is not None:
        yield f"At most {100 * unique.limit:g} % are estimated to be unique in the population ({unique.estimator})."


def search(facts: Facts) -> list[str]:
    """How the version was chosen, a sentence each."""
    claims = facts.claims
    asked = claims.policy.get("search", {})
    limit = asked.get("suppression_limit") or 0
    what = "At most " + f"{100 * float(limit):g} % of the rows may be left out." if limit else "No row may be left out."
    measure = MEASURES[claims.measure].words if claims.measure in MEASURES else claims.measure
    proof = "It is proven that no other does better." if claims.optimal else "That no other does better is not proven."
    told = [what, f"Of the versions that meet all this, one was chosen by {measure}. {proof}"]
    if claims.policy.get("suppressed") == "mask":
        told.append("Rows that cannot be kept stay with all generalized columns hidden, where that is safe.")
    if claims.decoys:
        told.append(f"{claims.decoys:,} rows of nobody (decoys) fill groups that would be too small.")
    if claims.epsilon is not None:
        told.append(f"Noise protects what stays a number: a budget of ε = {claims.epsilon:g} a row.")
    return told


def verdict(facts: Facts) -> str:
    """The whole in a sentence."""
    if not facts.holds:
        return "This release does NOT hold what it claims."
    if any(check.passed is None for check in facts.checks):
        return "All that can be checked holds; the rest needs the source."
    return "All requirements hold."
