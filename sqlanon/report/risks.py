"""What could still go wrong with a release that meets its policy: each a finding, a figure, and what would reduce it.

Figures of a release are counted from its rows alone, by the queries that attacks use. Those that need the source or the
ledger are for a private page; elsewhere the page says that it does not know them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlglot import exp

from sqlanon.engines.base import Engine
from sqlanon.expressions import subquery, template
from sqlanon.policy import RiskSection
from sqlanon.release.class_sizes import ClassSizes
from sqlanon.release.dependencies import Narrowing
from sqlanon.release.manifest import Manifest
from sqlanon.report.distributions import MIXED, Distribution
from sqlanon.requirements import Requirement
from sqlanon.requirements.audit import Check
from sqlanon.risk.attackers import population_risk
from sqlanon.risk.disclosure import background_knowledge, homogeneity, skewness

MUCH = 0.05
"""From this share of the rows a finding is painted as grave."""

_ROWS = template("SELECT coalesce(sum(n)::BIGINT, 0) FROM :found AS f")


@dataclass(frozen=True)
class ResidualRisk:
    """One thing that could go wrong. ``weight`` orders them: the affected share of the rows, or a number like it; 0:
    nothing to report; None: it cannot be known here. Texts may have `code` between backticks."""

    title: str
    finding: str
    remedy: str = ""
    weight: float | None = 0.0
    number: str = ""


def by_weight(risks: Iterable[ResidualRisk]) -> list[ResidualRisk]:
    """What is worst first."""
    return sorted(risks, key=lambda one: -(one.weight or 0.0))


def percent(share: float) -> str:
    """A share for people.

    >>> percent(0.4512), percent(0.00004), percent(0.9999), percent(1.0), percent(0.0104), percent(0)
    ('45 %', 'under 0.1 %', 'over 99.9 %', '100 %', '1 %', '0 %')
    """
    whole = f"{100 * share:.0f} %"
    if 0 < share < 0.001:
        return "under 0.1 %"
    if 0.999 < share < 1:
        return "over 99.9 %"
    return f"{100 * share:.1f} %" if share >= 0.99 and share < 1 else f"{100 * share:.2g} %" if share < 0.1 else whole


def risks_of_release(
    engine: Engine,
    relation: exp.Expr,
    claims: Manifest,
    sizes: ClassSizes,
    few: int,
    columns: Mapping[str, Distribution],
) -> list[ResidualRisk]:
    """What the rows of a release show, to anybody who has it."""
    found = [_being_found(claims, sizes)]
    sensitive = [one.name for one in claims.columns if one.role == "sensitive"]
    if sensitive and claims.quasi:
        values = {name: columns[name].values for name in sensitive}
        found += _disclosure(engine, relation, claims, values, sizes.rows, few)
    elif not sensitive:
        found.append(ResidualRisk("Sensitive values", "The policy declares no sensitive column."))
    found.append(
        _near_unique({name: one for name, one in columns.items() if name not in claims.quasi}, sizes.rows, few)
    )
    found.append(_uniques(claims, sizes, few))
    return found


def _being_found(claims: Manifest, sizes: ClassSizes) -> ResidualRisk:
    title, k = "Being found in a group", claims.policy.get("privacy", {}).get("k")
    if not sizes.rows:
        return ResidualRisk(title, "The release has no rows.")
    average = sizes.mean(lambda size: 1 / size)
    known = f"the values of {_listed(claims.quasi)}" if claims.quasi else "nothing else"
    finding = (
        f"Somebody who knows that a person is in the table, and {known}, finds the right row with a chance of "
        f"{percent(average)} on average, and of 1 in {sizes.smallest:,} in the smallest group."
    )
    raise_k = "Ask for `k` in `[privacy]`" if k is None else f"Raise `k`, which is {k}"
    return ResidualRisk(title, finding, f"{raise_k}: every group then has more rows.", average, percent(average))


def _disclosure(
    engine: Engine, relation: exp.Expr, claims: Manifest, sensitive: Mapping[str, int | None], rows: int, few: int
) -> Iterator[ResidualRisk]:
    """What the groups say of sensitive columns, of which the number of values is given (None: many). Of a column with
    two values, to rule out one is always to know the other; of one value there is nothing to learn."""
    kinds: tuple[tuple[str, Any, int, str, str], ...] = (
        (
            "The group gives the value away",
            homogeneity,
            2,
            "{share} are in a group whose rows all have the same {name}: to find the group is to know the value.",
            "Ask for 2 different values in each group: `[[privacy.l_diversity]]` with `attribute = {quoted}`, "
            '`kind = "distinct"`, `l = 2`. Or generalize further.',
        ),
        (
            "One more fact is enough",
            background_knowledge,
            3,
            "{share} are in a group with at most two values of {name}. Somebody who can rule out "
            "one of them knows the other.",
            'Ask for 3 different values: `[[privacy.l_diversity]]` with `attribute = {quoted}`, `kind = "distinct"`, '
            "`l = 3`.",
        ),
        (
            "The group makes a value likely",
            skewness,
            2,
            "{share} have a value of {name} that at least half of their group has, and that is at least twice as "
            "frequent there as in the whole release.",
            "Ask for t-closeness: `[[privacy.t_closeness]]` with `attribute = {quoted}` and `t = 0.3` or less.",
        ),
    )
    for title, query, least, finding, remedy in kinds:
        counts = {}
        some = [name for name, values in sensitive.items() if values is None or values >= least]
        if not some:
            yield ResidualRisk(title, f"No sensitive column ({_listed([*sensitive])}) has {least} values or more.")
            continue
        for name in some:
            found = subquery(query(relation, claims.quasi, name))
            counts[name] = int(engine.rows(_ROWS(found=found))[0][0]) if rows else 0
        worst = max(counts, key=lambda name: counts[name])
        if not counts[worst]:
            yield ResidualRisk(title, f"No row is affected, of any sensitive column ({_listed(some)}).")
            continue
        share = max(counts[worst], few) / rows
        is_few = counts[worst] < few
        rows_ = f"Fewer than {few} rows" if is_few else f"{percent(share)} of the rows ({counts[worst]:,})"
        words = {"share": rows_, "name": worst, "quoted": _quoted(worst)}
        others = [f"{name} {percent(max(n, few) / rows)}" for name, n in counts.items() if name != worst and n]
        also = f" Other columns: {', '.join(others)}." if others else ""
        number = f"under {percent(share)}" if is_few else percent(share)
        sentence = finding.format(**words)
        yield ResidualRisk(title, sentence[:1].upper() + sentence[1:] + also, remedy.format(**words), share, number)


def _near_unique(columns: Mapping[str, Distribution], rows: int, few: int) -> ResidualRisk:
    """Columns that are released as they are, and whose values few rows share."""
    title = "Columns that single out rows"
    rare = {name: one for name, one in columns.items() if one.rare_rows}
    if not rare:
        return ResidualRisk(title, f"Each released value of the other columns is shared by at least {few} rows.")
    worst = max(rare, key=lambda name: rare[name].rare_rows)
    told = {name: _share_of_rare(one, rows, few) for name, one in rare.items()}
    others = [f"{name} {told[name]}" for name in rare if name != worst]
    also = f" Other columns: {', '.join(others[:10])}." if others else ""
    finding = (
        f"{told[worst][:1].upper()}{told[worst][1:]} of the rows have a value of {worst} that fewer than {few} rows "
        f"share. Somebody who knows it needs no group to find them.{also}"
    )
    remedy = (
        f"Round {worst}, or make it a quasi-identifier with a hierarchy or noise. Leave it out where nobody needs it: "
        '`role = "identifying"`.'
    )
    return ResidualRisk(title, finding, remedy, max(rare[worst].rare_rows, few) / max(rows, 1), told[worst])


def _share_of_rare(one: Distribution, rows: int, few: int) -> str:
    """The share of the rows with rare values; of one value, or of few rows, no more than that there are some."""
    if one.rare_values < MIXED or one.rare_rows < few:
        return f"under {percent(few / max(rows, 1)).removeprefix('under ')}"
    return percent(one.rare_rows / rows)


def _uniques(claims: Manifest, sizes: ClassSizes, few: int) -> ResidualRisk:
    title = "Being unique in the population"
    if claims.policy.get("persons"):
        return ResidualRisk(
            title, "The policy counts persons, and a release does not show which rows are of one.", weight=None
        )
    if sizes.uniques:
        share = sizes.uniques / sizes.rows
        finding = (
            f"{percent(share)} of the rows are alone with their generalized columns. How many of these people are "
            "unique in the population, too, depends on its size."
        )
        remedy = "Ask for `k` of 2 or more, or for a limit: `population_uniqueness` in `[privacy]`."
        return ResidualRisk(title, finding, remedy, share, percent(share))
    return ResidualRisk(
        title, f"{max(sizes.smallest, 1):,} rows or more share each combination of the generalized columns."
    )


def uniques_in_source(before: ClassSizes, section: RiskSection | None, rows: int) -> ResidualRisk:
    """How unique people are in the source, which somebody who has another copy of it would use; for a private page."""
    title = "Being unique in the source"
    share = before.uniques / before.rows if before.rows else 0.0
    finding = f"Before anything is generalized, {percent(share)} of the rows are alone with their quasi-identifiers."
    population = None if section is None else section.population
    if section is not None and population is None and section.sampling_fraction:
        population = round(rows / section.sampling_fraction)
    if population is None:
        return ResidualRisk(
            title,
            finding,
            "Set `population` in `[risk]` for an estimate of how many of them are unique in the population, too.",
            None,
        )
    found = population_risk(before.sizes, before.count, population)
    estimate = found.dankar
    told = (
        "there is no estimate of it" if estimate is None else f"an estimated {percent(estimate)} are unique in it, too"
    )
    return ResidualRisk(title, f"{finding} Of the population of {population:,}, {told}.")


def narrowing_risk(found: Sequence[Narrowing], why_not: str | None) -> ResidualRisk:
    """Released columns that say more about a generalized one than its label; for a private page."""
    title = "Columns that narrow others"
    if why_not is not None:
        return ResidualRisk(title, f"This was not measured: {why_not}.", weight=None)
    if not found:
        return ResidualRisk(title, "No released column says more about a generalized column than its label does.")
    worst = max(found, key=lambda one: (one.pinned, one.before / max(one.after, 1.0)))
    names = " and ".join(worst.columns)
    finding = (
        f"A label of {worst.quasi} stands for {worst.before:,.1f} values on average. Together with {names} only "
        f"{worst.after:,.1f} are left, and {percent(worst.pinned)} of the rows give their value away."
    )
    if len(found) > 1:
        finding += f" {len(found) - 1:,} more are in the table of columns that narrow others."
    remedy = f"Make {names} a quasi-identifier, too, or leave it out."
    return ResidualRisk(title, finding, remedy, max(worst.pinned, 0.01), percent(worst.pinned))


def earlier_risk(checks: Sequence[Check], why_not: str | None) -> ResidualRisk:
    """What somebody learns who has an earlier release, too; for a private page."""
    title = "Linking with earlier releases"
    if why_not is not None:
        return ResidualRisk(title, why_not, weight=None)
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
    finding = f"{some} earlier releases {what}. {first.name}: {why}."
    remedy = 'Base this release on the earlier ones: `after = "all"` in `[release]`. Or replace the earlier release.'
    return ResidualRisk(title, finding, remedy, 1.0 if broken else 0.5, some)


def unknown_risks(checks: Sequence[Check], requirements: Sequence[Requirement], published: bool) -> list[ResidualRisk]:
    """What a page without the source and the ledger cannot know, and how to find out."""
    names = {one.name for one in requirements}
    alone = [check.name for check in checks if check.passed is None and check.name in names]
    found = [
        ResidualRisk(
            "Columns that narrow others",
            "Only the source shows whether a released column says more about a generalized column than its label.",
            "`sqlanon report POLICY.toml --private` measures it.",
            None,
        ),
        ResidualRisk(
            "Linking with earlier releases",
            "Only the data holder's catalog lists the other releases of the same people.",
            "`sqlanon anonymize` compares before it publishes; `sqlanon attack` compares releases that you have.",
            None,
        ),
        ResidualRisk(
            "Other tables about the same people",
            "No release shows what others know about these people, or which registers list them.",
            "`sqlanon attack --outside` tries a table that names people.",
            None,
        ),
    ]
    if alone:
        which = "`--policy POLICY.toml`" if published else "a policy"
        found.append(
            ResidualRisk(
                "Requirements on the source",
                f"{_listed(alone)} cannot be verified from the release alone.",
                f"Make the page with {which}: the source is then at hand.",
                None,
            )
        )
    return found


def _listed(names: Sequence[str]) -> str:
    """Names in a sentence.

    >>> _listed(["zip", "age", "sex"]), _listed(["zip"])
    ('zip, age and sex', 'zip')
    """
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def _quoted(name: str) -> str:
    """A name as TOML writes a text."""
    escaped = name.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
