"""Risks that remain in a release that meets its policy, counted from its rows alone, as any reader can count them.

The queries are cheap enough to run whenever a release is published or verified.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from sqlglot import exp

from sqlanon.disclosure.attribute_disclosure import COMMON, LIKELY, RATIO
from sqlanon.engines.base import Queryable
from sqlanon.frequency.class_sizes import class_labels
from sqlanon.release.manifest import Manifest, ReleasedColumn
from sqlanon.release.sentences import join_names
from sqlanon.requirements import guaranteed_k, require_close_values, require_distinct_values
from sqlanon.requirements.base import TOLERANCE
from sqlanon.sources.column_kinds import find_special_category
from sqlanon.support.expressions import all_of, as_column, col, null_safe_equal, number, template, union_all
from sqlanon.support.toml import toml_key, toml_value

if TYPE_CHECKING:
    from sqlanon.disclosure.dependencies import Narrowing

DEFAULT_MIN_COUNT = 5
"""Without a k, values and groups with fewer rows are neither named nor counted."""
MIN_HIDDEN_VALUES = 2
"""The fewest values that are hidden together: a single one could be counted by subtraction."""
SERIOUS = 0.1
"""Share of the rows from which a finding is serious; with a k of more than 10, 1 / k."""

Status: TypeAlias = Literal["serious", "minor", "accepted", "none", "not counted", "unknown"]
_SEVERITY: Sequence[Status] = ("serious", "minor", "accepted", "none", "not counted", "unknown")

_VALUES = template("""
    SELECT
        :position AS position,
        count(*) AS values,
        count(*) FILTER (WHERE row_count < :few) AS rare_values,
        coalesce(sum(row_count) FILTER (WHERE row_count < :few), 0)::BIGINT AS rare_rows
    FROM (SELECT count(*) AS row_count FROM :relation GROUP BY :column) AS c
""")
_CLASSES = template("""
    SELECT
        coalesce(sum(row_count), 0)::BIGINT AS rows,
        coalesce(min(row_count), 0)::BIGINT AS smallest,
        count(*) FILTER (WHERE row_count = 1) AS uniques
    FROM (SELECT count(*) AS row_count FROM :relation GROUP BY :quasi HAVING count(*) > 0) AS c
""")


@dataclass(frozen=True)
class ResidualRisk:
    """A risk that remains in a release: its status, the affected ``share`` of the rows if any, and a figure as text.

    ``line`` and ``advice`` are the wording for a command line. Texts may have `code` between backticks. ``change`` has
    the keys that the advice adds to a policy, if they are known: then the cost of the change can be measured.
    """

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
    """Sort risks, the worst first."""
    return sorted(risks, key=lambda risk: (_SEVERITY.index(risk.status), -(1.0 if risk.share is None else risk.share)))


def find_worst(risks: Iterable[ResidualRisk]) -> ResidualRisk | None:
    """The worst finding that has wording for a command line, if any."""
    return next((risk for risk in sort_by_severity(risks) if risk.is_finding and risk.line), None)


def required_k(manifest: Manifest) -> int | None:
    """The k of the policy of a manifest; None without k-anonymity."""
    return None if manifest.privacy is None else manifest.privacy.k


def serious_share(k: int | None) -> float:
    """The share of the rows from which a finding is serious: 10 %, or 1 / k if that is less."""
    return SERIOUS if k is None else min(SERIOUS, 1 / k)


def grade_share(share: float, manifest: Manifest) -> Status:
    return "serious" if share >= serious_share(required_k(manifest)) else "minor" if share else "none"


def fewest_shown_rows(manifest: Manifest) -> int:
    """The smallest count that is shown: the rows that the policy guarantees in a class; without a k, at least
    `DEFAULT_MIN_COUNT`."""
    if (section := manifest.privacy) is None:
        return DEFAULT_MIN_COUNT
    guaranteed = guaranteed_k(section, manifest.quasi_identifiers)
    return guaranteed if section.k is not None else max(guaranteed, DEFAULT_MIN_COUNT)


def format_percent(share: float) -> str:
    """Format a share as a percentage.

    >>> format_percent(0.4512), format_percent(0.00004), format_percent(0.9999), format_percent(1.0)
    ('45 %', 'under 0.1 %', 'over 99.9 %', '100 %')
    >>> format_percent(0.0104), format_percent(0)
    ('1 %', '0 %')
    """
    if 0 < share < 0.001:
        return "under 0.1 %"
    if 0.999 < share < 1:
        return "over 99.9 %"
    if share < 0.1:
        return f"{100 * share:.2g} %"
    return f"{100 * share:.1f} %" if 0.99 <= share < 1 else f"{100 * share:.0f} %"


@dataclass(frozen=True)
class _Values:
    """The number of values of a column; of values that few rows share; and of rows with such a value."""

    values: int
    rare_values: int
    rare_rows: int


@dataclass(frozen=True)
class _Classes:
    """The rows of a release, the rows of its smallest class, and the rows that are alone in their class."""

    rows: int
    smallest: int
    uniques: int


@dataclass(frozen=True)
class _Disclosed:
    """What classes disclose of a sensitive column: the rows of classes with one value, of classes with at most two, and
    of values that their class makes likely; whether nearly all rows share a value, which none of these counts."""

    classes: _Classes
    one_value: int
    two_values: int
    skewed: int
    has_common: bool
    values: _Values


def find_worst_risk(engine: Queryable, relation: exp.Expr, manifest: Manifest) -> ResidualRisk | None:
    """Find the worst risk that remains in the rows of a release, if any."""
    return find_worst(find_risks(engine, relation, manifest))


def find_risks(engine: Queryable, relation: exp.Expr, manifest: Manifest) -> list[ResidualRisk]:
    """Find homogeneity, background knowledge, skewness, values that few rows share, and unique rows."""
    few = fewest_shown_rows(manifest)
    available = {
        name.lower() for name in engine.columns(relation)
    }  # some engines have only the columns of requirements
    quasi = {name.lower() for name in manifest.quasi_identifiers}
    columns = [column for column in manifest.columns if column.name.lower() in available - quasi]
    sensitive = [column.name for column in columns if _is_sensitive(column)]
    risks, disclosed = list[ResidualRisk](), dict[str, _Disclosed]()
    if sensitive and manifest.quasi_identifiers:
        disclosed = {
            name: _count_disclosed(engine, relation, manifest.quasi_identifiers, name, few) for name in sensitive
        }
        classes = disclosed[sensitive[0]].classes
        distinct = {name: counts.values.values for name, counts in disclosed.items()}
        common = [name for name, counts in disclosed.items() if counts.has_common]
        for kind, affected in (
            (HOMOGENEITY, {name: counts.one_value for name, counts in disclosed.items()}),
            (BACKGROUND_KNOWLEDGE, {name: counts.two_values for name, counts in disclosed.items()}),
            (SKEWNESS, {name: counts.skewed for name, counts in disclosed.items()}),
        ):
            risks += describe_disclosure(kind, affected, distinct, common, classes.rows, few, manifest)
    else:
        quasi_columns = [col(name) for name in manifest.quasi_identifiers]
        classes = _Classes(*engine.rows(_CLASSES(relation=relation, quasi=quasi_columns))[0])
        if not any(map(_is_sensitive, manifest.columns)):
            finding = "The policy declares no sensitive column."
            risks.append(ResidualRisk("Sensitive values", finding, status="not counted"))
    # A noisy value is not known to anybody.
    noisy = {name.lower() for name, spec in manifest.policy.get("attributes", {}).items() if "noise" in spec}
    uncounted = [column.name for column in columns if column.name not in disclosed]
    values = _count_values(engine, relation, uncounted, few)
    values |= {name: counts.values for name, counts in disclosed.items()}
    exact = {column.name: values[column.name] for column in columns if column.name.lower() not in noisy}
    return [*risks, _describe_rare_values(exact, classes.rows, few, manifest), _describe_uniques(manifest, classes)]


def _is_sensitive(column: ReleasedColumn) -> bool:
    """Whether its values are sensitive: by its role, or by its name although the policy calls it insensitive."""
    is_special = find_special_category(column.name) is not None
    return column.role == "sensitive" or (column.role == "insensitive" and is_special)


def _count_values(engine: Queryable, relation: exp.Expr, names: Sequence[str], few: int) -> dict[str, _Values]:
    if not names:
        return {}
    queries = [
        _VALUES(position=number(position), few=few, relation=relation.copy(), column=col(name))
        for position, name in enumerate(names)
    ]
    rows = engine.rows(queries[0] if len(queries) == 1 else union_all(*queries))
    return {names[position]: _Values(*figures) for position, *figures in rows}


@dataclass(frozen=True)
class Disclosure:
    """A way in which groups disclose sensitive values, with its wording.

    ``min_values`` is the number of distinct values from which it is counted for a column, and ``trivial`` the reason
    why columns with fewer values are left out; ``closeness`` is the t that prevents it, if distinct values do not.
    """

    title: str
    min_values: int
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


# Numbered classes: rows are grouped by their labels once, and by a number afterwards.
_DISCLOSED_ROWS = template("""
    WITH "sqlanon classes" AS MATERIALIZED (
        SELECT :labels, row_number() OVER () AS class_id FROM :relation AS r GROUP BY :quasi
    ),
    "sqlanon counts" AS MATERIALIZED (
        SELECT c.class_id, :sensitive AS value, count(*) AS row_count
        FROM :relation AS r
        JOIN "sqlanon classes" AS c ON :same
        GROUP BY c.class_id, :sensitive
    ),
    "sqlanon sizes" AS MATERIALIZED (
        SELECT class_id, count(*) AS values, sum(row_count)::BIGINT AS row_count
        FROM "sqlanon counts"
        GROUP BY class_id
    ),
    "sqlanon values" AS MATERIALIZED (
        SELECT value, sum(row_count)::BIGINT AS row_count FROM "sqlanon counts" GROUP BY value
    ),
    "sqlanon skewed" AS (
        SELECT coalesce(sum(c.row_count), 0)::BIGINT AS skewed
        FROM "sqlanon counts" AS c
        JOIN "sqlanon sizes" AS s
            ON c.class_id = s.class_id AND c.row_count::DOUBLE / s.row_count::DOUBLE >= :likely
        JOIN "sqlanon values" AS v ON c.value IS NOT DISTINCT FROM v.value
        WHERE c.row_count::DOUBLE / s.row_count::DOUBLE
            / (v.row_count::DOUBLE / (SELECT sum(row_count)::DOUBLE FROM "sqlanon sizes")) >= :ratio
    ),
    "sqlanon revealed" AS (
        SELECT
            coalesce(sum(c.row_count) FILTER (WHERE s.values = 1), 0)::BIGINT AS one_value,
            coalesce(sum(c.row_count), 0)::BIGINT AS two_values
        FROM "sqlanon counts" AS c
        JOIN "sqlanon sizes" AS s ON c.class_id = s.class_id AND s.values <= 2
        JOIN "sqlanon values" AS v ON c.value IS NOT DISTINCT FROM v.value
        WHERE v.row_count::DOUBLE / (SELECT sum(row_count)::DOUBLE FROM "sqlanon sizes") < :common
    )
    SELECT
        coalesce(sum(row_count), 0)::BIGINT AS rows,
        coalesce(min(row_count), 0)::BIGINT AS smallest,
        count(*) FILTER (WHERE row_count = 1) AS uniques,
        (SELECT one_value FROM "sqlanon revealed") AS one_value,
        (SELECT two_values FROM "sqlanon revealed") AS two_values,
        (SELECT skewed FROM "sqlanon skewed") AS skewed,
        coalesce((SELECT max(row_count)::DOUBLE FROM "sqlanon values") / sum(row_count)::DOUBLE >= :common, false)
            AS has_common,
        (SELECT count(*) FROM "sqlanon values") AS distinct_values,
        (SELECT count(*) FILTER (WHERE row_count < :few) FROM "sqlanon values") AS rare_values,
        (SELECT coalesce(sum(row_count) FILTER (WHERE row_count < :few), 0)::BIGINT FROM "sqlanon values")
            AS rare_rows
    FROM "sqlanon sizes"
""")


def _count_disclosed(
    engine: Queryable, relation: exp.Expr, quasi_identifiers: Sequence[str], sensitive: str, few: int
) -> _Disclosed:
    """Count the rows whose class discloses a sensitive value, from one table of its values by class."""
    labels = class_labels(quasi_identifiers)
    pairs = [*zip(quasi_identifiers, labels, strict=True)]
    query = _DISCLOSED_ROWS(
        labels=[as_column(col(name, "r"), label.name) for name, label in pairs],
        relation=relation,
        quasi=[col(name, "r") for name in quasi_identifiers],
        sensitive=col(sensitive, "r"),
        same=all_of(null_safe_equal(col(name, "r"), col(label.name, "c")) for name, label in pairs),
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
    manifest: Manifest,
) -> Iterator[ResidualRisk]:
    """Describe a kind of disclosure over all sensitive columns, the worst first; and why columns are not counted."""
    trivial = [name for name, count in values.items() if count < kind.min_values]
    counts = {name: count for name, count in affected.items() if name not in trivial}
    if trivial and rows:
        finding = f"Not counted for {join_names(trivial)}: {kind.trivial}."
        yield ResidualRisk(kind.title, finding, status="not counted")
    if not counts:
        return
    worst = max(counts, key=lambda name: counts[name])
    if not counts[worst]:
        yield ResidualRisk(kind.title, _describe_no_disclosure(counts, common))
        return
    share, is_few = max(counts[worst], few) / rows, counts[worst] < few
    if kind.closeness is None:
        key, entry = require_distinct_values(worst, kind.min_values)
    else:
        key, entry = require_close_values(worst, kind.closeness)
    words = {
        "name": worst,
        "count": str(kind.min_values),
        "key": key,
        "entry": ", ".join(f"`{name} = {toml_value(value)}`" for name, value in entry.items()),
        "share": f"Fewer than {few} rows" if is_few else f"{counts[worst]:,} of {rows:,} rows",
        "in_rows": f"fewer than {few} rows" if is_few else f"{format_percent(share)} of the rows",
    }
    finding = kind.finding.format(**words)
    finding = finding[:1].upper() + finding[1:]
    further = [
        f"{name} {format_percent(max(count, few) / rows)}" for name, count in counts.items() if name != worst and count
    ]
    if further:
        finding += f" Other columns: {', '.join(further)}."
    remedy, advice, change = _advise_requirement(worst, key, entry, manifest)
    yield ResidualRisk(
        kind.title,
        finding,
        remedy + kind.remedy.format(**words),
        grade_share(share, manifest),
        share,
        f"under {format_percent(share).removeprefix('under ')}" if is_few else format_percent(share),
        kind.line.format(**words),
        f"To prevent it, {advice}",
        change,
    )


def _describe_no_disclosure(columns: Collection[str], common: Sequence[str]) -> str:
    """The finding for columns without affected rows; a ``common`` value reveals nothing."""
    finding = f"No row is affected by its {join_names([*columns])}."
    if shared := [name for name in columns if name in common]:
        share_text = format_percent(COMMON)
        finding += f" The value of {join_names(shared)} that {share_text} of the rows or more share reveals nothing."
    return finding


def _advise_requirement(
    name: str, key: str, entry: Mapping[str, Any], manifest: Manifest
) -> tuple[str, str, dict[str, Mapping[str, Any]]]:
    """How to add an entry of a requirement on a column to the policy.

    Returns a sentence before the remedy (empty if the column is sensitive already), the advice, and the changed keys.
    """
    if manifest.privacy is not None and key in manifest.privacy.requirements:  # a policy has a key once
        advice = f"add to {key} in [privacy]:\n  {toml_value(entry)}"
    else:
        advice = f"add to [privacy]:\n  {key} = {toml_value([entry])}"
    change: dict[str, Mapping[str, Any]] = {"privacy": {key: [entry]}}
    if not any(column.name == name and column.role == "insensitive" for column in manifest.columns):
        return "", advice, change
    change["attributes"] = {name: {"role": "sensitive"}}
    advice = f'set role = "sensitive" for {toml_key(name)} in [attributes], and {advice}'
    return f'Set `role = "sensitive"` for {name}. ', advice, change


def _describe_rare_values(columns: Mapping[str, _Values], rows: int, few: int, manifest: Manifest) -> ResidualRisk:
    """Describe columns that are released unchanged, and whose values few rows share."""
    title = "Columns that single out rows"
    rare = {name: values for name, values in columns.items() if values.rare_rows}
    if not rare:
        return ResidualRisk(title, f"Each released value of the other columns is shared by at least {few} rows.")
    worst = max(rare, key=lambda name: rare[name].rare_rows)
    shares = {name: _format_rare_share(values, rows, few) for name, values in rare.items()}
    further = [f"{name} {shares[name]}" for name in rare if name != worst]
    further_columns = f" Other columns: {', '.join(further[:10])}." if further else ""
    have_rare_value = f"have a value of {worst} that fewer than {few} rows share."
    share = max(rare[worst].rare_rows, few) / max(rows, 1)
    affected = f"Fewer than {few}" if _is_hidden(rare[worst], few) else f"{rare[worst].rare_rows:,}"
    return ResidualRisk(
        title,
        f"{affected} rows {have_rare_value} Somebody who knows it needs no group to find them.{further_columns}",
        f"Round {worst}, or make it a quasi-identifier with a hierarchy or noise. Leave it out if it is not needed: "
        '`role = "identifying"`.',
        grade_share(share, manifest),
        share,
        shares[worst],
        f"Rare values: {shares[worst]} of the rows {have_rare_value}",
        f"To prevent it, round {worst}, make it a quasi-identifier, or leave it out.",
    )


def _is_hidden(values: _Values, few: int) -> bool:
    """Whether the number of rows with rare values would reveal the rows of a single value."""
    return values.rare_values < MIN_HIDDEN_VALUES or values.rare_rows < few


def _format_rare_share(values: _Values, rows: int, few: int) -> str:
    if _is_hidden(values, few):
        return f"under {format_percent(few / max(rows, 1)).removeprefix('under ')}"
    return format_percent(values.rare_rows / rows)


def _describe_uniques(manifest: Manifest, classes: _Classes) -> ResidualRisk:
    title = "Being unique in the population"
    if manifest.policy.get("persons"):
        finding = "The policy counts persons, and a release does not show which rows belong to one person."
        return ResidualRisk(title, finding, status="unknown")
    if not classes.uniques:
        finding = f"{max(classes.smallest, 1):,} rows or more share each combination of the generalized columns."
        return ResidualRisk(title, finding)
    share = classes.uniques / classes.rows
    return ResidualRisk(
        title,
        f"{classes.uniques:,} of {classes.rows:,} rows are alone with their generalized columns. How many of these "
        "people are unique in the population, too, depends on its size.",
        "Require a `k` of 2 or more, or a limit: `population_uniqueness` in `[privacy]`.",
        grade_share(share, manifest),
        share,
        format_percent(share),
        f"Unique rows: {format_percent(share)} of the rows are alone with their quasi-identifiers.",
        "To prevent it, set k in [privacy] to 2 or more.",
        {"privacy": {"k": 2}},
    )


def describe_narrowing(
    dependencies: Sequence[Narrowing], obstacle: str | None, k: int | None, total: int
) -> ResidualRisk:
    """Describe released columns that say more about a generalized column than its label; only the data holder can
    measure them.

    ``obstacle`` is the reason why they were not measured; the share is that of the affected persons (rows) among the
    ``total``.
    """
    title = "Columns that narrow others"
    if obstacle is not None:
        return ResidualRisk(title, f"This was not measured: {obstacle}.", status="unknown")
    if not dependencies:
        return ResidualRisk(title, "No released column says more about a generalized column than its label does.")
    worst = max(
        dependencies,
        key=lambda narrowing: (narrowing.pinned, narrowing.affected, narrowing.before / max(narrowing.after, 1.0)),
    )
    names, s = join_names(worst.columns), "s" if len(worst.columns) == 1 else ""
    finding = (
        f"A label of {worst.quasi} stands for {worst.before:,.1f} {worst.unit} on average. Together with {names} only "
        f"{worst.after:,.1f} are left, and {format_percent(worst.pinned)} of the rows give their value away."
    )
    if len(dependencies) > 1:
        finding += f" {len(dependencies) - 1:,} more are in the table of columns that narrow others."
    effect = f"narrow{s} a label of {worst.quasi} from {worst.before:,.1f} to {worst.after:,.1f} {worst.unit}"
    if worst.pinned:
        effect = f"give{s} {worst.quasi} away in {format_percent(worst.pinned)} of the rows"
    return ResidualRisk(
        title,
        finding,
        f"Make {names} a quasi-identifier, too, or leave it out.",
        "serious" if worst.pinned >= serious_share(k) else "minor",
        min(worst.affected / max(total, 1), 1.0),
        format_percent(worst.pinned),
        f"Narrowing columns: {names} {effect}.",
        f"To prevent it, make {names} quasi-identifiers, or leave them out.",
        {"attributes": {name: {"role": "quasi", "hierarchy": "suppress"} for name in worst.columns}},
    )
