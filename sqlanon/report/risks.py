"""Residual risks of a release beyond those that `disclosure` counts in its rows.

Risks that need the source or the ledger are for private pages; public pages list them as unknown.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from sqlanon.disclosure.residual_risk import ResidualRisk, find_risks, format_percent, grade_share, required_k
from sqlanon.engines.base import Engine
from sqlanon.frequency.class_sizes import ClassSizes
from sqlanon.policy import RiskSection
from sqlanon.release.manifest import Manifest
from sqlanon.release.sentences import join_names
from sqlanon.requirements import Requirement
from sqlanon.risk.attackers import population_risk
from sqlanon.support.checks import Check

_MAX_LISTED_NAMES = 8


def find_release_risks(engine: Engine, relation: exp.Expr, claims: Manifest, sizes: ClassSizes) -> list[ResidualRisk]:
    """The risks that the rows of a release show to any reader."""
    return [_reidentification_risk(claims, sizes), *find_risks(engine, relation, claims)]


def _reidentification_risk(claims: Manifest, sizes: ClassSizes) -> ResidualRisk:
    title, k = "Being found in a group", required_k(claims)
    if not sizes.rows:
        return ResidualRisk(title, "The release has no rows.")
    average = sizes.mean(lambda size: 1 / size)
    percent, names = format_percent(average), claims.quasi_identifiers
    knowledge = f"the values of {join_names(names)}" if names else "nothing else"
    if len(names) > _MAX_LISTED_NAMES:
        knowledge = f"all {len(names):,} generalized columns of this person"
    finding = (
        f"Somebody who knows that a person is in the table, and {knowledge}, finds the right row with this chance on "
        f"average, and with a chance of 1 in {sizes.smallest:,} in the smallest group."
    )
    if k is not None and sizes.smallest >= k:
        finding += f" The policy accepts up to 1 in {k:,}."
        remedy = f"Raise `k`, which is {k:,}: every group then has more rows."
        return ResidualRisk(title, finding, remedy, "accepted", average, percent)
    remedy = "Require `k` in `[privacy]`: every group then has at least k rows."
    line = f"Small groups: somebody who knows a person's quasi-identifiers finds the row in {percent} of cases."
    advice = "To reduce it, set k in [privacy]."
    return ResidualRisk(title, finding, remedy, grade_share(average, claims), average, percent, line, advice)


def uniques_in_source(
    sizes: ClassSizes, section: RiskSection | None, rows: int, has_population: bool = False
) -> ResidualRisk:
    """The share of source rows that are unique, for an attacker with another copy of the source."""
    title = "Being unique in the source"
    share = format_percent(sizes.uniques / sizes.rows if sizes.rows else 0.0)
    finding = f"Before generalization, {share} of the rows are unique in their quasi-identifiers."
    population = None if section is None else section.population
    if section is not None and population is None and section.sampling_fraction:
        population = round(rows / section.sampling_fraction)
    if population is None:
        remedy = "Set `population` in `[risk]` to estimate how many of them are unique in the population, too."
        if has_population:
            remedy = (
                "`sqlanon risk` counts the people of the population table who share the quasi-identifiers of a row."
            )
        return ResidualRisk(title, finding, remedy, "unknown")
    estimate = population_risk(sizes.sizes, sizes.count, population).dankar
    result = "no estimate is possible"
    if estimate is not None:
        result = f"an estimated {format_percent(estimate)} are unique in it, too"
    return ResidualRisk(title, f"{finding} Of the population of {population:,}, {result}.", status="not counted")


def describe_linking(checks: Sequence[Check], obstacle: str | None) -> ResidualRisk:
    """The risk of linking this release with earlier ones, from the checks of each pair; ``obstacle``: why there are
    none."""
    title = "Linking with earlier releases"
    if obstacle is not None:
        return ResidualRisk(title, obstacle, status="unknown")
    if not checks:
        return ResidualRisk(title, "The catalog has no other release of this source.")
    failed = [check for check in checks if check.passed is False]
    undecided = [check for check in checks if check.passed is None]
    if not failed and not undecided:
        releases = "one earlier release" if len(checks) == 1 else f"{len(checks):,} earlier releases"
        return ResidualRisk(title, f"Compared with {releases}: together they reveal no more than each of them.")
    first = (failed or undecided)[0]
    share = f"{len(failed) or len(undecided):,} of {len(checks):,}"
    effect = "would reveal more together with this one" if failed else "could not be compared with this one"
    reason = first.message.partition(".\n")[0]
    finding = f"{share} earlier releases {effect}. With {first.name.removeprefix('together with ')}: {reason}."
    remedy = 'Base this release on the earlier ones: `after = "all"` in `[release]`. Or replace the earlier release.'
    verb = (
        ("reveal more together" if len(failed) > 1 else "reveals more together") if failed else "could not be compared"
    )
    line = f"Earlier releases: {share} {verb} with this one."
    advice = 'To prevent it, set after = "all" in [release], or replace the earlier release.'
    return ResidualRisk(title, finding, remedy, "serious", None, share, line, advice)


def unknown_risks(checks: Sequence[Check], requirements: Sequence[Requirement], published: bool) -> list[ResidualRisk]:
    """The risks that a page without the source and the ledger cannot show, and how to measure them."""
    names = {requirement.name for requirement in requirements}
    unverified = [check.name for check in checks if check.passed is None and check.name in names]
    texts = [
        (
            "Columns that narrow others",
            "Only the source shows whether a released column says more about a generalized column than its label.",
            "`sqlanon report POLICY.toml --private` measures it.",
        ),
        (
            "Linking with earlier releases",
            "Only the data holder's catalog lists the other releases of the same people.",
            "`sqlanon anonymize` compares before it publishes; `sqlanon attack` compares releases that you have.",
        ),
        (
            "Other tables about the same people",
            "A release does not show what others know about these people, or which registers list them.",
            "`sqlanon attack --outside` tries a table that names people.",
        ),
    ]
    if unverified:
        option = "`--policy POLICY.toml`" if published else "a policy"
        finding = f"{join_names(unverified)} cannot be verified from the release alone."
        remedy = f"Make the page with {option}: it then reads the source."
        texts.append(("Requirements on the source", finding, remedy))
    return [ResidualRisk(title, finding, remedy, "unknown") for title, finding, remedy in texts]
