"""Attacks that read the source: minimality and downcoding, by an attacker who knows that the release generalizes no
more than it must; and dependencies between columns.

Minimality and downcoding split the classes of a full-domain release again, by one attribute at a time, one level lower,
over the source rows. An attacker needs these from elsewhere; the data holder has them.

Sources: R. C.-W. Wong, A. W.-C. Fu, K. Wang, J. Pei, Minimality attack in privacy preserving data publishing, VLDB
2007; A. Cohen, Attacks on deidentification's defenses, USENIX Security 2022 (downcoding).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from sqlanon.attacks.attacker import Attacker, AttackResult, PrivateSide
from sqlanon.attacks.findings import AvoidableGeneralization
from sqlanon.disclosure.narrowing import pinned_groups
from sqlanon.engines.statement_runner import StatementRunner
from sqlanon.frequency.distribution import count_value_pairs, number_sensitive_values, ordered_domain
from sqlanon.frequency.scan import sensitive_domain
from sqlanon.frequency.sets import ClassSpace, SensitiveTable
from sqlanon.frequency.uncoded import uncoded_distribution
from sqlanon.ledger.joint.release_links import ComparedRelease
from sqlanon.requirements import Domain, Requirements, bind_requirements
from sqlanon.requirements.base import CLASS_POPULATION, Distribution
from sqlanon.strategies.lattice.classes import evaluated_classes
from sqlanon.support.coding import ROW_COUNT, code_column, quasi_column, sensitive_column, value_counts
from sqlanon.support.expressions import (
    aliased,
    all_of,
    as_column,
    cast,
    col,
    fragment,
    ident,
    null_safe_equal,
    select,
    subquery,
    table,
    template,
    text,
    union_all,
)

_FINER_STRATEGY = "local"
"""The strategy that splits the classes of a full-domain release whose parts all meet the policy."""

# The combinations of the source: released and finer labels, the class, and its part by each attribute.
_LABELLED = "sqlanon labelled"


@dataclass(frozen=True)
class SplitAttribute:
    """A quasi-identifier of a full-domain release (``released``, at ``level``), and its ``column`` of the source.

    Classes are not split below the ``lowest`` level that the policy allows.
    """

    name: str
    released: str
    column: str
    level: int
    hierarchy: exp.Expr
    lowest: int = 0

    @property
    def can_split(self) -> bool:
        """Whether the policy allows a lower level."""
        return self.level > self.lowest


@dataclass(frozen=True)
class FullDomainRelease:
    """A full-domain release, its source, its quasi-identifiers in both, and the policy's requirements.

    ``sensitive`` has the source's columns, by attribute.
    """

    relation: exp.Expr
    source: exp.Expr
    quasi: Sequence[SplitAttribute]
    sensitive: Mapping[str, str]
    requirements: Requirements


def depends_on_rows_alone(requirements: Requirements) -> bool:
    """Whether rows and sensitive values decide about a class, as these attacks assume."""
    is_plain = all(distribution.kind in ("values", "joint") for distribution in requirements.distributions)
    on_table = requirements.table_conditions or requirements.shields or requirements.separate_conditions
    conditions = (column.condition() for column in requirements.class_conditions)
    columns = {column.name for condition in conditions for column in condition.find_all(exp.Column)}
    return is_plain and not on_table and CLASS_POPULATION not in columns


def downcoding(release: FullDomainRelease) -> exp.Select:
    """Classes that could be released with one attribute a level lower, all their rows: ``label_0`` .., ``by`` (these
    attributes), and ``row_count``."""
    return _split_classes(release, fragment("bool_and(kept)")(), fragment("sum(class_size)")())


def minimality(release: FullDomainRelease, k: int) -> exp.Select:
    """Classes that were not merged for k-anonymity: ``label_0`` .., ``by``, and ``row_count``.

    Split by one attribute a level lower, all parts have k rows, but some break another requirement: that the class is
    not split reveals this. ``by`` has the attributes that split it so, and ``row_count`` is the number of rows in
    broken parts, by the attribute with the most.
    """
    condition = fragment("bool_and(class_count >= :k) AND NOT bool_and(kept) AND count(*) > 1")(k=k)
    return _split_classes(release, condition, fragment("sum(CASE WHEN kept THEN 0 ELSE class_size END)")())


def _split_classes(release: FullDomainRelease, condition: exp.Expr, rows: exp.Expr) -> exp.Select:
    """The released classes whose parts meet a condition, by any attribute."""
    splits, parts, quasi = list[exp.Query](), dict[str, exp.Query](), release.quasi
    for i, attribute in enumerate(quasi):
        if attribute.can_split:
            space = _part_space(i, release, parts)
            split = template("""
                SELECT class, :attribute AS by, :rows::BIGINT AS row_count
                FROM :parts AS p
                GROUP BY class
                HAVING :condition
            """)
            classes = evaluated_classes(space, (0,), [as_column(exp.func("min", col("class")), "class")])
            splits.append(
                split(attribute=text(attribute.name), rows=rows, parts=subquery(classes), condition=condition)
            )
    if not splits:
        splits.append(template("SELECT NULL::BIGINT AS class, '' AS by, 0 AS row_count WHERE FALSE")())
    query = template("""
        WITH "sqlanon labelled" AS MATERIALIZED (:labelled),
        "sqlanon classes" AS (
            SELECT DISTINCT class, :labels FROM "sqlanon labelled"
        )
        SELECT :output, s.by, s.row_count
        FROM "sqlanon classes" AS p
        JOIN (
            SELECT class, string_agg(by, ', ' ORDER BY by) AS by, max(row_count) AS row_count
            FROM :splits AS split
            GROUP BY class
        ) AS s ON p.class = s.class
        SEMI JOIN :release AS r ON :is_released
    """)(
        labelled=_label_combinations(release),
        labels=[col(f"released_{i}") for i in range(len(quasi))],
        output=[as_column(col(f"released_{i}", "p"), f"label_{i}") for i in range(len(quasi))],
        splits=subquery(union_all(*splits)),
        release=release.relation,
        is_released=all_of(
            null_safe_equal(col(f"released_{i}", "p"), cast(col(attribute.released, "r"), "VARCHAR"))
            for i, attribute in enumerate(quasi)
        ),
    )
    for name, part in parts.items():
        query = query.with_(ident(name), as_=part, materialized=True, copy=False)
    return query


def _label_combinations(release: FullDomainRelease) -> exp.Select:
    """The source's combinations: ``released_i`` labels, ``sensitive_j`` values, ``row_count``, the ``class`` and the
    ``part_i`` of the class by each attribute. Rows with values that a hierarchy lacks are not released."""
    quasi, sensitive = release.quasi, release.sensitive
    columns = [*(attribute.column for attribute in quasi), *sensitive.values()]
    names = [*(f"value_{i}" for i in range(len(quasi))), *(f"sensitive_{j}" for j in range(len(sensitive)))]
    combinations = template("""
        SELECT :values, count(*) AS row_count
        FROM :source AS r
        GROUP BY :columns
    """)(
        values=[as_column(col(column, "r"), name) for column, name in zip(columns, names, strict=True)],
        source=release.source,
        columns=[col(column, "r") for column in dict.fromkeys(columns)],
    )
    labels: list[exp.Expr] = [col(name, "c") for name in names[len(quasi) :]]
    for i, attribute in enumerate(quasi):
        finer_level = max(attribute.level - 1, 0)
        for name, level in (("released", attribute.level), ("finer", finer_level)):
            labels.append(as_column(cast(col(f"level_{level}", f"h{i}"), "VARCHAR"), f"{name}_{i}"))
    labelled = template("SELECT :labels, c.row_count FROM :combinations AS c")(
        labels=labels, combinations=subquery(combinations)
    )
    for i, attribute in enumerate(quasi):
        on = null_safe_equal(col(f"value_{i}", "c"), col("level_0", f"h{i}"))
        labelled = labelled.join(aliased(attribute.hierarchy, f"h{i}"), on=on, copy=False)
    released = [col(f"released_{i}") for i in range(len(quasi))]
    number = fragment("dense_rank() OVER (ORDER BY :labels)")
    return template("SELECT :columns, row_count, :class AS class, :parts FROM :labelled AS l")(
        **{"class": number(labels=released)},
        columns=[*released, *(col(name) for name in names[len(quasi) :])],
        parts=[
            as_column(number(labels=[*released, col(f"finer_{i}")]), f"part_{i}")
            for i, attribute in enumerate(quasi)
            if attribute.can_split
        ],
        labelled=subquery(labelled),
    )


def _part_space(i: int, release: FullDomainRelease, parts: dict[str, exp.Query]) -> ClassSpace:
    """The parts of classes by an attribute, as classes of one generalization; adds its tables to ``parts``."""
    columns: list[exp.Expr] = [as_column(col(f"part_{i}"), code_column(0, 0)), col("class")]
    columns.append(as_column(col("row_count"), ROW_COUNT))
    tables: Mapping[Distribution, SensitiveTable] = {
        distribution: _count_sensitive_values(i, distribution, release, parts)
        for distribution in release.requirements.distributions
    }
    rows = subquery(select(columns, table(_LABELLED)), "frequency")
    return ClassSpace(rows, (1,), release.requirements, sensitive=tables)


def _count_sensitive_values(
    i: int, distribution: Distribution, release: FullDomainRelease, parts: dict[str, exp.Query]
) -> SensitiveTable:
    """The counts of a sensitive attribute's values in the parts; its values and their order are the source's."""
    names = list(release.sensitive)
    position = names.index(distribution.attribute)
    values, domain = f"sqlanon values {position}", f"sqlanon domain {position}"
    if values not in parts:
        column = col(release.sensitive[distribution.attribute], "r")
        counts = template("SELECT :column AS value, count(*) AS row_count FROM :source AS r GROUP BY :column")
        parts[values] = number_sensitive_values(
            subquery(counts(column=column, source=release.source), "c"), moving=False
        )
        parts[domain] = ordered_domain(table(values))
    inner = [j for j in range(len(names)) if j != position] if distribution.kind == "joint" else []
    rows: list[exp.Expr] = [as_column(col(f"part_{i}"), quasi_column(0))]
    rows += [as_column(col(f"sensitive_{j}"), sensitive_column(j)) for j in range(len(names))]
    rows.append(as_column(col("row_count"), ROW_COUNT))
    pairs = count_value_pairs(subquery(select(rows, table(_LABELLED)), "rows"), 1, position, inner)
    shares = uncoded_distribution(pairs, table(values), 1, len(inner))
    return SensitiveTable(shares, len(inner), table(domain) if distribution.kind == "values" else None)


def generalize_column(
    source: exp.Expr, column: str, hierarchy: exp.Expr, level: int, unchanged: Sequence[str]
) -> exp.Subquery:
    """The rows of a source with the ``label`` of an attribute at a level, its ``ground`` value, and ``unchanged_0`` ..
    of columns that are released unchanged."""
    rows = template("""
        SELECT :label AS label, :ground AS ground, :unchanged
        FROM :source AS r
        JOIN :hierarchy AS h ON :same
    """)(
        label=cast(col(f"level_{level}", "h"), "VARCHAR"),
        ground=col(column, "r"),
        unchanged=[as_column(col(name, "r"), f"unchanged_{i}") for i, name in enumerate(unchanged)],
        source=source,
        hierarchy=hierarchy,
        same=null_safe_equal(col(column, "r"), col("level_0", "h")),
    )
    return subquery(rows, "r")


def find_dependencies(attacker: Attacker) -> AttackResult:
    """Released columns that reveal the values of generalized quasi-identifiers."""
    private = attacker.private
    if private is None:
        return [], [_NEEDS_SOURCE]
    findings, reasons = [], []
    source_columns = {name.lower(): name for name in private.run.source.columns}
    for release in attacker.releases:
        unchanged = [name for name in release.columns if not release.is_quasi(name) and name in source_columns]
        levels = {name.lower(): level for name, level in release.manifest.levels(private.heights).items()}
        if not unchanged or any(level is None for level in levels.values()):
            reasons.append(f"needs one level for each attribute, and unchanged columns: {release.path} has none")
            continue
        release_findings = []
        for name, released_level in levels.items():
            hierarchy = private.compared.hierarchies.get(name)
            if hierarchy is None or name not in source_columns:
                continue
            level = (released_level or 0) + hierarchy.below
            rows = generalize_column(
                private.run.source.relation, source_columns[name], hierarchy.table, level, unchanged
            )
            for i, unchanged_column in enumerate(unchanged if level else ()):
                query = pinned_groups(rows, col("label"), col("ground"), col(f"unchanged_{i}"))
                figures = {"attribute": unchanged_column, "quasi": name}
                release_findings.append(attacker.make_finding([release], [query], [name, unchanged_column], figures))
        findings += [finding for finding in release_findings if finding.victims] or release_findings[:1]
        if not release_findings:
            reasons.append(f"needs a generalized attribute: {release.path} has none")
    return findings, reasons


def find_minimality(attacker: Attacker) -> AttackResult:
    """Classes that were not merged for k-anonymity."""
    releases, reasons = _full_domain_releases(attacker)
    findings = []
    for compared, release in releases:
        query, titles = minimality(release, release.requirements.k), [attribute.name for attribute in release.quasi]
        findings.append(attacker.make_finding([compared], [query], titles, {}))
    return findings, reasons


def find_downcoding(attacker: Attacker) -> AttackResult:
    """Classes that could be finer, so that a release could keep more detail. It has no victims."""
    releases, reasons = _full_domain_releases(attacker)
    findings = []
    for compared, release in releases:
        query, titles = downcoding(release), [attribute.name for attribute in release.quasi]
        finding = attacker.make_finding([compared], [query], titles, {}, victims=0)
        findings.append(replace(finding, kept=AvoidableGeneralization(attacker.count_victims(query), _FINER_STRATEGY)))
    return findings, reasons


_NEEDS_SOURCE = "needs the policy that made the release, with its source"


def _full_domain_releases(attacker: Attacker) -> tuple[list[tuple[ComparedRelease, FullDomainRelease]], list[str]]:
    """The full-domain releases of the policy, whose classes can be split again; and why others cannot."""
    private = attacker.private
    if private is None:
        return [], [_NEEDS_SOURCE]
    policy, requirements = private.policy, _bind_requirements(attacker, private)
    sensitive = dict(zip(private.columns.sensitive_names, private.columns.sensitive, strict=True))
    counts_rows = not policy.noisy_attributes and policy.source.person_column is None
    releases, reasons = [], []
    for release in attacker.releases:
        levels = release.manifest.levels(private.heights)
        if not policy.matches_fingerprint(release.manifest.policy_hash):
            reasons.append(f"needs the policy that made {release.path}")
        elif not counts_rows or not depends_on_rows_alone(requirements):
            reasons.append("covers rows and sensitive values, not persons, noise, populations or the whole table")
        elif any(level is None for level in levels.values()):
            reasons.append(f"needs one level for each attribute: {release.path} has several")
        else:
            quasi = [
                _split_attribute(private, release, name, levels[name] or 0) for name in policy.generalized_attributes
            ]
            source = private.run.source.relation
            releases.append((release, FullDomainRelease(release.relation, source, quasi, sensitive, requirements)))
    return releases, reasons


def _split_attribute(private: PrivateSide, release: ComparedRelease, name: str, level: int) -> SplitAttribute:
    spec, hierarchy = private.policy.attributes[name], private.compared.hierarchies[name.lower()]
    lowest = level if spec.forbidden else min(spec.min_level, level)  # a mask may have fewer levels than min_level
    columns = release.column(name.lower()) or name, private.columns.by_attribute[name]
    return SplitAttribute(name, *columns, level + hierarchy.below, hierarchy.table, lowest + hierarchy.below)


def _bind_requirements(attacker: Attacker, private: PrivateSide) -> Requirements:
    """The policy's requirements, as the search has them."""
    steps, run = StatementRunner(private.run.engine), private.run
    domains = {}
    for i, (name, column) in enumerate(zip(private.columns.sensitive_names, private.columns.sensitive, strict=True)):
        hierarchy = attacker.hierarchies.hierarchies.get(name.lower())
        query = value_counts(run.source.relation, column, is_counted=False)
        values = steps.create_table(run.work(f"attack_domain_{i}"), query)
        height = hierarchy.height if hierarchy is not None else 0
        domains[name] = Domain(sensitive_domain(steps, values, 0).values, height)
    steps.drop_all_except(())  # each attack creates them again
    return bind_requirements(private.policy.privacy, private.policy.generalized_attributes, domains)
