"""What could still go wrong with a release that meets its policy: each a finding, a figure, and what would reduce it.

Figures of a release are counted from its rows alone, by the queries that attacks use. Those that need the source or the
ledger are for a private page; elsewhere the page says that it does not know them.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from sqlanon.disclosure.class_sizes import ClassSizes
from sqlanon.disclosure.residual_risk import (
    ResidualRisk,
    find_risks,
    format_percent,
    grade_share,
    required_k,
)
from sqlanon.engines.base import Engine
from sqlanon.policy import RiskSection
from sqlanon.release.manifest import Manifest
from sqlanon.release.sentences import join_names
from sqlanon.requirements import Requirement
from sqlanon.requirements.audit import Check
from sqlanon.risk.attackers import population_risk

MOST_NAMES = 8
"""The most columns that a sentence names."""


def risks_of_release(engine: Engine, relation: exp.Expr, claims: Manifest, sizes: ClassSizes) -> list[ResidualRisk]:
    """What the rows of a release show, to anybody who has it."""
    return [_being_found(claims, sizes), *find_risks(engine, relation, claims)]


def _being_found(claims: Manifest, sizes: ClassSizes) -> ResidualRisk:
    title, k = "Being found in a group", required_k(claims)
    if not sizes.rows:
        return ResidualRisk(title, "The release has no rows.")
    average = sizes.mean(lambda size: 1 / size)
    known = f"the values of {join_names(claims.quasi_identifiers)}" if claims.quasi_identifiers else "nothing else"
    if len(claims.quasi_identifiers) > MOST_NAMES:
        known = f"all {len(claims.quasi_identifiers):,} generalized columns of this person"
    finding = (
        f"Somebody who knows that a person is in the table, and {known}, finds the right row with this chance on "
        f"average, and with a chance of 1 in {sizes.smallest:,} in the smallest group."
    )
    if k is not None and sizes.smallest >= k:
        finding += f" The policy accepts up to 1 in {k:,}."
        remedy = f"Raise `k`, which is {k:,}: every group then has more rows."
        return ResidualRisk(title, finding, remedy, "accepted", average, format_percent(average))
    remedy = "Require `k` in `[privacy]`: every group then has at least k rows."
    line = (
        "Small groups: somebody who knows a person's quasi-identifiers finds the row in "
        f"{format_percent(average)} of cases."
    )
    advice = "To reduce it, set k in [privacy]."
    return ResidualRisk(
        title, finding, remedy, grade_share(average, claims), average, format_percent(average), line, advice
    )


def uniques_in_source(
    before: ClassSizes, section: RiskSection | None, rows: int, has_population: bool = False
) -> ResidualRisk:
    """How unique people are in the source, which somebody who has another copy of it would use; for a private page."""
    title = "Being unique in the source"
    share = before.uniques / before.rows if before.rows else 0.0
    finding = (
        f"Before anything is generalized, {format_percent(share)} of the rows are alone with their quasi-identifiers."
    )
    population = None if section is None else section.population
    if section is not None and population is None and section.sampling_fraction:
        population = round(rows / section.sampling_fraction)
    if population is None:
        remedy = "Set `population` in `[risk]` for an estimate of how many of them are unique in the population, too."
        if has_population:
            remedy = (
                "`sqlanon risk` counts the people of the population table who share the quasi-identifiers of a row."
            )
        return ResidualRisk(title, finding, remedy, "unknown")
    found = population_risk(before.sizes, before.count, population)
    estimate = found.dankar
    told = (
        "there is no estimate of it"
        if estimate is None
        else f"an estimated {format_percent(estimate)} are unique in it, too"
    )
    return ResidualRisk(title, f"{finding} Of the population of {population:,}, {told}.", status="not counted")


def earlier_risk(checks: Sequence[Check], why_not: str | None) -> ResidualRisk:
    """What somebody learns who has an earlier release, too; for a private page."""
    title = "Linking with earlier releases"
    if why_not is not None:
        return ResidualRisk(title, why_not, status="unknown")
    if not checks:
        return ResidualRisk(title, "The catalog has no other release of this source.")
    broken = [one for one in checks if one.passed is False]
    unsure = [one for one in checks if one.passed is None]
    if not broken and not unsure:
        releases = "one earlier release" if len(checks) == 1 else f"{len(checks):,} earlier releases"
        return ResidualRisk(title, f"Compared with {releases}: together they give away no more than each of them.")
    first = (broken or unsure)[0]
    some = f"{len(broken) or len(unsure):,} of {len(checks):,}"
    what = "would give more away together with this one" if broken else "could not be compared with this one"
    why = first.message.partition(".\n")[0]
    finding = f"{some} earlier releases {what}. With {first.name.removeprefix('together with ')}: {why}."
    remedy = 'Base this release on the earlier ones: `after = "all"` in `[release]`. Or replace the earlier release.'
    gives = "give" if len(broken) > 1 else "gives"
    how = f"{gives} more away together" if broken else "could not be compared"
    line = f"Earlier releases: {some} {how} with this one."
    advice = 'To prevent it, set after = "all" in [release], or replace the earlier release.'
    return ResidualRisk(title, finding, remedy, "serious", None, some, line, advice)


def unknown_risks(checks: Sequence[Check], requirements: Sequence[Requirement], published: bool) -> list[ResidualRisk]:
    """What a page without the source and the ledger cannot know, and how to find out."""
    names = {one.name for one in requirements}
    alone = [check.name for check in checks if check.passed is None and check.name in names]
    found = [
        ResidualRisk(
            "Columns that narrow others",
            "Only the source shows whether a released column says more about a generalized column than its label.",
            "`sqlanon report POLICY.toml --private` measures it.",
            "unknown",
        ),
        ResidualRisk(
            "Linking with earlier releases",
            "Only the data holder's catalog lists the other releases of the same people.",
            "`sqlanon anonymize` compares before it publishes; `sqlanon attack` compares releases that you have.",
            "unknown",
        ),
        ResidualRisk(
            "Other tables about the same people",
            "No release shows what others know about these people, or which registers list them.",
            "`sqlanon attack --outside` tries a table that names people.",
            "unknown",
        ),
    ]
    if alone:
        which = "`--policy POLICY.toml`" if published else "a policy"
        found.append(
            ResidualRisk(
                "Requirements on the source",
                f"{join_names(alone)} cannot be verified from the release alone.",
                f"Make the page with {which}: the source is then at hand.",
                "unknown",
            )
        )
    return found
