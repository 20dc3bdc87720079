"""What could still go wrong with a release that meets its policy, counted from its rows alone: who has them can count
the same. Cheap enough to be said wherever a release is published or verified.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from sqlglot import exp

from sqlanon.disclosure.attribute_disclosure import COMMON, LIKELY, RATIO
from sqlanon.disclosure.class_sizes import class_labels
from sqlanon.engines.base import Queries
from sqlanon.policy import PrivacySection
from sqlanon.policy.problems import read_part
from sqlanon.release.manifest import Manifest, ReleasedColumn
from sqlanon.release.sentences import join_names
from sqlanon.requirements import guaranteed_k, require_close_values, require_distinct_values
from sqlanon.requirements.base import TOLERANCE
from sqlanon.sources.column_kinds import find_special_category
from sqlanon.support.expressions import all_of, col, named, number, same, template, union_all
from sqlanon.support.toml import toml_key, toml_value

if TYPE_CHECKING:
    from sqlanon.disclosure.dependencies import Narrowing

FEW = 5
"""Without a k, what is in fewer rows than these is neither named nor counted."""
FEWEST_HIDDEN_VALUES = 2
"""The fewest values that are not shown: one alone could be counted by subtraction."""
SERIOUS = 0.1
"""From this share of the rows a finding is serious; with a k of more than 10, from 1 / k."""

Status: TypeAlias = Literal["serious", "minor", "accepted", "none", "not counted", "unknown"]
_ORDER: Sequence[Status] = ("serious", "minor", "accepted", "none", "not counted", "unknown")

_VALUES = template("""
    SELECT
        :place AS place,
        count(*) AS values,
        count(*) FILTER (WHERE n < :few) AS rare_values,
        coalesce(sum(n) FILTER (WHERE n < :few), 0)::BIGINT AS rare_rows
    FROM (SELECT count(*) AS n FROM :relation GROUP BY :column) AS c
""")
_CLASSES = template("""
    SELECT coalesce(sum(n), 0)::BIGINT AS rows, coalesce(min(n), 0)::BIGINT AS smallest, count(*) FILTER (WHERE n = 1)
    FROM (SELECT count(*) AS n FROM :relation GROUP BY :quasi HAVING count(*) > 0) AS c
""")
# Classes get numbers, so that rows are grouped by their labels once, and by a number afterwards.
_DISCLOSED = template("""
    WITH "sqlanon classes" AS MATERIALIZED (
        SELECT :labels, row_number() OVER () AS class FROM :relation AS r GROUP BY :quasi
    ),
    "sqlanon counts" AS MATERIALIZED (
        SELECT c.class, :sensitive AS value, count(*) AS n
        FROM :relation AS r
        JOIN "sqlanon classes" AS c ON :same
        GROUP BY c.class, :sensitive
    ),
    "sqlanon sizes" AS MATERIALIZED (
        SELECT class, count(*) AS values, sum(n)::BIGINT AS n FROM "sqlanon counts" GROUP BY class
    ),
    "sqlanon values" AS MATERIALIZED (
        SELECT value, sum(n)::BIGINT AS n FROM "sqlanon counts" GROUP BY value
    ),
    "sqlanon skewed" AS (
        SELECT coalesce(sum(c.n), 0)::BIGINT AS skewed
        FROM "sqlanon counts" AS c
        JOIN "sqlanon sizes" AS s ON c.class = s.class AND c.n::DOUBLE / s.n::DOUBLE >= :likely
        JOIN "sqlanon values" AS v ON c.value IS NOT DISTINCT FROM v.value
        WHERE c.n::DOUBLE / s.n::DOUBLE
            / (v.n::DOUBLE / (SELECT sum(n)::DOUBLE FROM "sqlanon sizes")) >= :ratio
    ),
    "sqlanon revealed" AS (
        SELECT
            coalesce(sum(c.n) FILTER (WHERE s.values = 1), 0)::BIGINT AS one_value,
            coalesce(sum(c.n), 0)::BIGINT AS two_values
        FROM "sqlanon counts" AS c
        JOIN "sqlanon sizes" AS s ON c.class = s.class AND s.values <= 2
        JOIN "sqlanon values" AS v ON c.value IS NOT DISTINCT FROM v.value
        WHERE v.n::DOUBLE / (SELECT sum(n)::DOUBLE FROM "sqlanon sizes") < :common
    )
    SELECT
        coalesce(sum(n), 0)::BIGINT AS rows,
        coalesce(min(n), 0)::BIGINT AS smallest,
        count(*) FILTER (WHERE n = 1) AS uniques,
        (SELECT one_value FROM "sqlanon revealed") AS one_value,
        (SELECT two_values FROM "sqlanon revealed") AS two_values,
        (SELECT skewed FROM "sqlanon skewed") AS skewed,
        coalesce((SELECT max(n)::DOUBLE FROM "sqlanon values") / sum(n)::DOUBLE >= :common, false) AS has_common,
        (SELECT count(*) FROM "sqlanon values") AS different,
        (SELECT count(*) FILTER (WHERE n < :few) FROM "sqlanon values") AS rare_values,
        (SELECT coalesce(sum(n) FILTER (WHERE n < :few), 0)::BIGINT FROM "sqlanon values") AS rare_rows
    FROM "sqlanon sizes"
""")


@dataclass(frozen=True)
class ResidualRisk:
    """One thing that could go wrong: its status, the affected ``share`` of the rows if it has one, and that or another
    figure as text. ``line`` and ``advice`` say the same on a command line. Texts may have `code` between backticks.
    ``change`` has the keys of a policy that the advice adds, where these are known: what it costs can be measured."""

    title: str
    finding: str
    remedy: str = ""
    status: Status = "none"
    share: float | None = None
    number: str = ""
    line: str = ""
    advice: str = ""
    change: Mapping[str, Mapping[str, Any]] | None = None

    @property
    def is_finding(self) -> bool:
        return self.status in ("serious", "minor")


def sort_by_severity(risks: Iterable[ResidualRisk]) -> list[ResidualRisk]:
    """What is worst first."""
    return sorted(risks, key=lambda one: (_ORDER.index(one.status), -(1.0 if one.share is None else one.share)))


def find_worst(risks: Iterable[ResidualRisk]) -> ResidualRisk | None:
    """The worst finding that a command line can say; None where there is nothing to say."""
    return next((one for one in sort_by_severity(risks) if one.is_finding and one.line), None)


def _privacy(claims: Manifest) -> PrivacySection | None:
    """What the policy of a manifest requires; None where that cannot be read."""
    return read_part(PrivacySection, claims.policy.get("privacy"), "privacy", {})[0]


def required_k(claims: Manifest) -> int | None:
    """The k of a policy."""
    section = _privacy(claims)
    return None if section is None else section.k


def serious_share(k: int | None) -> float:
    """The share of the rows from which a finding is serious: 10 %, or 1 / k if that is less."""
    return SERIOUS if k is None else min(SERIOUS, 1 / k)


def grade_share(share: float, claims: Manifest) -> Status:
    return "serious" if share >= serious_share(required_k(claims)) else "minor" if share else "none"


def fewest_shown_rows(claims: Manifest) -> int:
    """Counts below it are not shown: what a class has at least by the policy that a manifest shows; without a k, `FEW`
    or more."""
    section = _privacy(claims)
    if section is None:
        return FEW
    promised = guaranteed_k(section, claims.quasi_identifiers)
    return promised if section.k is not None else max(promised, FEW)


def format_percent(share: float) -> str:
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


@dataclass(frozen=True)
class _Values:
    """Of a column: how many values it has; of these, and of the rows, those that few rows share."""

    values: int
    rare_values: int
    rare_rows: int


@dataclass(frozen=True)
class _Classes:
    """The rows of a release, those of its smallest class, and those that are alone in theirs."""

    rows: int
    smallest: int
    uniques: int


@dataclass(frozen=True)
class _Disclosed:
    """The classes beside a sensitive column; the rows of those with one value of it, with at most two, and of values
    that their class makes likely; whether nearly all rows share a value, which is in none of these; and its values."""

    classes: _Classes
    one_value: int
    two_values: int
    skewed: int
    has_common: bool
    values: _Values


def find_worst_risk(engine: Queries, relation: exp.Expr, claims: Manifest) -> ResidualRisk | None:
    """The worst that the rows of a release still show; None where there is nothing to say."""
    return find_worst(find_risks(engine, relation, claims))


def find_risks(engine: Queries, relation: exp.Expr, claims: Manifest) -> list[ResidualRisk]:
    """Homogeneity, background knowledge, skewness, values that few rows share, and unique rows."""
    few = fewest_shown_rows(claims)
    there = {name.lower() for name in engine.columns(relation)}  # some engines have what requirements look at only
    quasi = {name.lower() for name in claims.quasi_identifiers}
    columns = [one for one in claims.columns if one.name.lower() in there - quasi]
    sensitive = [one.name for one in columns if _is_sensitive(one)]
    found, known = list[ResidualRisk](), dict[str, _Disclosed]()
    if sensitive and claims.quasi_identifiers:
        known = {name: _count_disclosed(engine, relation, claims.quasi_identifiers, name, few) for name in sensitive}
        classes = known[sensitive[0]].classes
        distinct = {name: one.values.values for name, one in known.items()}
        one_value = {name: one.one_value for name, one in known.items()}
        two_values = {name: one.two_values for name, one in known.items()}
        skewed = {name: one.skewed for name, one in known.items()}
        common = [name for name, one in known.items() if one.has_common]
        for kind, affected in ((HOMOGENEITY, one_value), (BACKGROUND_KNOWLEDGE, two_values), (SKEWNESS, skewed)):
            found += describe_disclosure(kind, affected, distinct, common, classes.rows, few, claims)
    else:
        quasi_columns = [col(name) for name in claims.quasi_identifiers]
        classes = _Classes(*engine.rows(_CLASSES(relation=relation, quasi=quasi_columns))[0])
        if not any(map(_is_sensitive, claims.columns)):
            no_column = "The policy declares no sensitive column."
            found.append(ResidualRisk("Sensitive values", no_column, status="not counted"))
    others = _count_values(engine, relation, [one.name for one in columns if one.name not in known], few)
    values = {one.name: known[one.name].values if one.name in known else others[one.name] for one in columns}
    noisy = {name.lower() for name, spec in claims.policy.get("attributes", {}).items() if "noise" in spec}
    values = {name: one for name, one in values.items() if name.lower() not in noisy}  # nobody knows a noisy value
    return [*found, _describe_rare_values(values, classes.rows, few, claims), _describe_uniques(claims, classes)]


def _is_sensitive(column: ReleasedColumn) -> bool:
    """Whether its values are sensitive: by its role, or by its name although the policy calls it insensitive."""
    return column.role == "sensitive" or (
        column.role == "insensitive" and find_special_category(column.name) is not None
    )


def _count_values(engine: Queries, relation: exp.Expr, names: Sequence[str], few: int) -> dict[str, _Values]:
    if not names:
        return {}
    queries = [
        _VALUES(place=number(place), few=few, relation=relation.copy(), column=col(name))
        for place, name in enumerate(names)
    ]
    rows = engine.rows(queries[0] if len(queries) == 1 else union_all(*queries))
    return {names[place]: _Values(*figures) for place, *figures in rows}


@dataclass(frozen=True)
class Disclosure:
    """A way in which groups give sensitive values away, and its words. ``least``: the values that a column needs for
    it; ``trivial`` says why columns with fewer are not counted; ``closeness`` is the t that prevents it, where
    different values do not."""

    title: str
    least: int
    finding: str
    remedy: str
    trivial: str
    line: str
    closeness: float | None = None


_DIVERSITY = "Require {count} different values in each group: `[[privacy.{key}]]` with {entry}."
HOMOGENEITY = Disclosure(
    "The group gives the value away",
    2,
    "{share} are in a group whose rows all have the same {name}: to find the group is to know the value.",
    _DIVERSITY + " Or generalize further.",
    "all rows have the same value, so that no group adds anything",
    "Homogeneity: in {in_rows} the group has a single {name}.",
)
BACKGROUND_KNOWLEDGE = Disclosure(
    "One more fact is enough",
    3,
    "{share} are in a group with at most two values of {name}. Somebody who can rule out one of them knows the other.",
    _DIVERSITY,
    "with at most two values, ruling one out always gives the other",
    "Background knowledge: in {in_rows} the group has at most two values of {name}.",
)
# p >= 1/2 and p >= 2q make the distance at least p - q >= 1/4.
SKEWNESS = Disclosure(
    "The group makes a value likely",
    2,
    "{share} have a value of {name} that at least half of their group has, and that is at least twice as frequent "
    "there as in the whole release.",
    "Require t-closeness: `[[privacy.{key}]]` with {entry}.",
    "all rows have the same value, so that no group adds anything",
    "Skewness: in {in_rows} the group makes the value of {name} likely.",
    0.2,
)


def _count_disclosed(engine: Queries, relation: exp.Expr, quasi: Sequence[str], sensitive: str, few: int) -> _Disclosed:
    """What a sensitive column gives away, from one table of its values by class."""
    labels = class_labels(quasi)
    query = _DISCLOSED(
        labels=[named(col(name, "r"), label.name) for name, label in zip(quasi, labels, strict=True)],
        relation=relation,
        quasi=[col(name, "r") for name in quasi],
        sensitive=col(sensitive, "r"),
        same=all_of(same(col(name, "r"), col(label.name, "c")) for name, label in zip(quasi, labels, strict=True)),
        likely=LIKELY - TOLERANCE,
        ratio=RATIO - TOLERANCE,
        common=COMMON - TOLERANCE,
        few=few,
    )
    rows, smallest, uniques, one_value, two_values, skewed, has_common, *values = engine.rows(query)[0]
    classes = _Classes(rows, smallest, uniques)
    return _Disclosed(classes, one_value, two_values, skewed, has_common, _Values(*values))


def describe_disclosure(
    kind: Disclosure,
    affected: Mapping[str, int],
    values: Mapping[str, int],
    common: Sequence[str],
    rows: int,
    few: int,
    claims: Manifest,
) -> Iterator[ResidualRisk]:
    """One finding of all sensitive columns, the worst in its sentence; and those that are not counted, and why."""
    trivial = [name for name, count in values.items() if count < kind.least]
    counts = {name: count for name, count in affected.items() if name not in trivial}
    if trivial and rows:
        yield ResidualRisk(kind.title, f"Not counted for {join_names(trivial)}: {kind.trivial}.", status="not counted")
    if not counts:
        return
    worst = max(counts, key=lambda name: counts[name])
    if not counts[worst]:
        shared = [name for name in counts if name in common]
        unaffected = f"No row is affected by its {join_names([*counts])}."
        if shared:
            common_share = format_percent(COMMON)
            unaffected += (
                f" The value of {join_names(shared)} that {common_share} of the rows or more share reveals nothing."
            )
        yield ResidualRisk(kind.title, unaffected)
        return
    share, is_few = max(counts[worst], few) / rows, counts[worst] < few
    count = kind.least
    if kind.closeness is None:
        key, entry = require_distinct_values(worst, count)
    else:
        key, entry = require_close_values(worst, kind.closeness)
    words = {
        "name": worst,
        "count": str(count),
        "key": key,
        "entry": ", ".join(f"`{name} = {toml_value(value)}`" for name, value in entry.items()),
        "share": f"Fewer than {few} rows" if is_few else f"{counts[worst]:,} of {rows:,} rows",
        "in_rows": f"fewer than {few} rows" if is_few else f"{format_percent(share)} of the rows",
    }
    others = [f"{name} {format_percent(max(n, few) / rows)}" for name, n in counts.items() if name != worst and n]
    also = f" Other columns: {', '.join(others)}." if others else ""
    finding = kind.finding.format(**words)
    section = _privacy(claims)
    there = section is not None and key in section.requirements  # a policy has a key once
    advice = f"add to {key} in [privacy]:\n  {toml_value(entry)}" if there else (
        f"add to [privacy]:\n  {key} = {toml_value([entry])}"
    )  # fmt: skip
    remedy = kind.remedy.format(**words)
    change: dict[str, Mapping[str, Any]] = {"privacy": {key: [entry]}}
    if any(one.name == worst and one.role == "insensitive" for one in claims.columns):
        change["attributes"] = {worst: {"role": "sensitive"}}
        remedy = f'Set `role = "sensitive"` for {worst}. {remedy}'
        advice = f'set role = "sensitive" for {toml_key(worst)} in [attributes], and {advice}'
    yield ResidualRisk(
        kind.title,
        finding[:1].upper() + finding[1:] + also,
        remedy,
        grade_share(share, claims),
        share,
        f"under {format_percent(share).removeprefix('under ')}" if is_few else format_percent(share),
        kind.line.format(**words),
        f"To prevent it, {advice}",
        change,
    )


def _describe_rare_values(columns: Mapping[str, _Values], rows: int, few: int, claims: Manifest) -> ResidualRisk:
    """Columns that are released as they are, and whose values few rows share."""
    title = "Columns that single out rows"
    rare = {name: one for name, one in columns.items() if one.rare_rows}
    if not rare:
        return ResidualRisk(title, f"Each released value of the other columns is shared by at least {few} rows.")
    worst = max(rare, key=lambda name: rare[name].rare_rows)
    told = {name: _share_of_rare(one, rows, few) for name, one in rare.items()}
    others = [f"{name} {told[name]}" for name in rare if name != worst]
    also = f" Other columns: {', '.join(others[:10])}." if others else ""
    has = f"of the rows have a value of {worst} that fewer than {few} rows share."
    remedy = (
        f"Round {worst}, or make it a quasi-identifier with a hierarchy or noise. Leave it out where nobody needs it: "
        '`role = "identifying"`.'
    )
    share = max(rare[worst].rare_rows, few) / max(rows, 1)
    return ResidualRisk(
        title,
        f"{_share_as_rows(rare[worst], few)} {has.removeprefix('of the rows ')} Somebody who knows it needs no group "
        f"to find them.{also}",
        remedy,
        grade_share(share, claims),
        share,
        told[worst],
        f"Rare values: {told[worst]} {has}",
        f"To prevent it, round {worst}, make it a quasi-identifier, or leave it out.",
    )


def _share_as_rows(one: _Values, few: int) -> str:
    few_rows = one.rare_values < FEWEST_HIDDEN_VALUES or one.rare_rows < few
    return f"Fewer than {few} rows" if few_rows else f"{one.rare_rows:,} rows"


def _share_of_rare(one: _Values, rows: int, few: int) -> str:
    """The share of the rows with rare values; of one value, or of few rows, no more than that there are some."""
    if one.rare_values < FEWEST_HIDDEN_VALUES or one.rare_rows < few:
        return f"under {format_percent(few / max(rows, 1)).removeprefix('under ')}"
    return format_percent(one.rare_rows / rows)


def _describe_uniques(claims: Manifest, sizes: _Classes) -> ResidualRisk:
    title = "Being unique in the population"
    if claims.policy.get("persons"):
        why = "The policy counts persons, and a release does not show which rows are of one."
        return ResidualRisk(title, why, status="unknown")
    if not sizes.uniques:
        shared = f"{max(sizes.smallest, 1):,} rows or more share each combination of the generalized columns."
        return ResidualRisk(title, shared)
    share = sizes.uniques / sizes.rows
    return ResidualRisk(
        title,
        f"{sizes.uniques:,} of {sizes.rows:,} rows are alone with their generalized columns. How many of these people "
        "are unique in the population, too, depends on its size.",
        "Require a `k` of 2 or more, or a limit: `population_uniqueness` in `[privacy]`.",
        grade_share(share, claims),
        share,
        format_percent(share),
        f"Unique rows: {format_percent(share)} of the rows are alone with their quasi-identifiers.",
        "To prevent it, set k in [privacy] to 2 or more.",
        {"privacy": {"k": 2}},
    )


def describe_narrowing(found: Sequence[Narrowing], why_not: str | None, k: int | None, total: int) -> ResidualRisk:
    """Released columns that say more about a generalized one than its label; the holder of the source knows them.

    Its share is that of the persons (rows) among the ``total`` whose values are narrowed.
    """
    title = "Columns that narrow others"
    if why_not is not None:
        return ResidualRisk(title, f"This was not measured: {why_not}.", status="unknown")
    if not found:
        return ResidualRisk(title, "No released column says more about a generalized column than its label does.")
    worst = max(found, key=lambda one: (one.pinned, one.affected, one.before / max(one.after, 1.0)))
    names = join_names(worst.columns)
    left = f"{worst.before:,.1f} to {worst.after:,.1f}"
    finding = (
        f"A label of {worst.quasi} stands for {worst.before:,.1f} {worst.unit} on average. Together with {names} only "
        f"{worst.after:,.1f} are left, and {format_percent(worst.pinned)} of the rows give their value away."
    )
    if len(found) > 1:
        finding += f" {len(found) - 1:,} more are in the table of columns that narrow others."
    gives = (
        f"give{'s' if len(worst.columns) == 1 else ''} {worst.quasi} away in {format_percent(worst.pinned)} of the rows"
    )
    narrows = f"narrow{'s' if len(worst.columns) == 1 else ''} a label of {worst.quasi} from {left} {worst.unit}"
    return ResidualRisk(
        title,
        finding,
        f"Make {names} a quasi-identifier, too, or leave it out.",
        "serious" if worst.pinned >= serious_share(k) else "minor",
        min(worst.affected / max(total, 1), 1.0),
        format_percent(worst.pinned),
        f"Narrowing columns: {names} {gives if worst.pinned else narrows}.",
        f"To prevent it, make {names} quasi-identifiers, or leave them out.",
        {"attributes": {name: {"role": "quasi", "hierarchy": "suppress"} for name in worst.columns}},
    )
