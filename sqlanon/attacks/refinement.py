"""Attacks that read the source: minimality and downcoding, by somebody who knows that the release generalizes no more
than it must; and dependencies between columns.

The first two split the classes of a full-domain release again, by one attribute at a time, one level lower, over the
private rows: an attacker needs them from elsewhere, the data holder has them.

Sources: R. C.-W. Wong, A. W.-C. Fu, K. Wang, J. Pei, Minimality attack in privacy preserving data publishing, VLDB
2007; A. Cohen, Attacks on deidentification's defenses, USENIX Security 2022 (downcoding).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlglot import exp

from sqlanon.attacks.attacker import Attacker, Found, PrivateSide
from sqlanon.attacks.findings import Finding, Kept
from sqlanon.disclosure.narrowing import pinned_groups
from sqlanon.engines.statement_runner import StatementRunner
from sqlanon.frequency.distribution import count_value_pairs, number_sensitive_values, ordered_domain
from sqlanon.frequency.scan import sensitive_domain
from sqlanon.frequency.sets import ClassSpace, SensitiveTable
from sqlanon.frequency.uncoded import uncoded_distribution
from sqlanon.ledger.joint.release_links import ComparedRelease
from sqlanon.ledger.joint.row_matching import add_titles
from sqlanon.requirements import Domain, Requirements, bind_requirements
from sqlanon.requirements.base import CLASS_POPULATION, Distribution
from sqlanon.strategies.lattice.classes import judged_classes
from sqlanon.support.coding import code_column, value_counts
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

_LABELLED = "sqlanon labelled"

_SPLIT = template("""
    WITH "sqlanon labelled" AS MATERIALIZED (:labelled),
    "sqlanon classes" AS (SELECT DISTINCT class, :classes FROM "sqlanon labelled")
    SELECT :labels, w.by, w.n
    FROM "sqlanon classes" AS p
    JOIN (
        SELECT class, string_agg(by, ', ' ORDER BY by) AS by, max(n) AS n
        FROM :splits AS s
        GROUP BY class
    ) AS w ON p.class = w.class
    SEMI JOIN :release AS r ON :is_released
""")
_SPLIT_BY = template("""
    SELECT class, :attribute AS by, :rows::BIGINT AS n
    FROM :parts AS j
    GROUP BY class
    HAVING :condition
""")
_NO_SPLIT = template("SELECT NULL::BIGINT AS class, '' AS by, 0 AS n WHERE FALSE")

_COUNTED = template("""
    SELECT :raw, count(*) AS n
    FROM :source AS r
    GROUP BY :columns
""")
_LABELS = template("SELECT :labels, c.n FROM :counted AS c")
_NUMBERED = template("""
    SELECT :kept, n, dense_rank() OVER (ORDER BY :labels) AS class, :parts
    FROM :labelled AS l
""")
_PART = fragment("dense_rank() OVER (ORDER BY :labels)")
_AT_LEVEL = template("""
    SELECT :label AS label, :ground AS ground, :others
    FROM :source AS r
    JOIN :hierarchy AS h ON :same
""")

_ALL_KEPT = fragment("bool_and(kept)")
_ROWS = fragment("sum(class_size)")
# All parts have k rows, and some break another requirement.
_NOT_MERGED_FOR_K = fragment("bool_and(class_count >= :k) AND NOT bool_and(kept) AND count(*) > 1")
_ROWS_OF_BROKEN_PARTS = fragment("sum(CASE WHEN kept THEN 0 ELSE class_size END)")


@dataclass(frozen=True)
class Released:
    """A quasi-identifier of a full-domain release (``released`` at ``level``), and of its source (``column``); a class
    is not split below the ``lowest`` level that the policy allows."""

    name: str
    released: str
    column: str
    level: int
    hierarchy: exp.Expr
    lowest: int = 0


@dataclass(frozen=True)
class FullDomainRelease:
    """A full-domain release, the source that it was made from, its attributes in both, and the policy's requirements.

    ``sensitive`` are the source's columns, by attribute.
    """

    relation: exp.Expr
    source: exp.Expr
    quasi: Sequence[Released]
    sensitive: Mapping[str, str]
    requirements: Requirements


def looks_at_rows_alone(requirements: Requirements) -> bool:
    """Whether classes can be judged by their rows and sensitive values: the attacks here can do no more."""
    plain = all(one.kind in ("values", "joint") for one in requirements.distributions)
    whole = requirements.table_conditions or requirements.shields or requirements.separate_conditions
    columns = [column.name for one in requirements.class_conditions for column in one.condition().find_all(exp.Column)]
    return plain and not whole and CLASS_POPULATION not in columns


def downcoding(release: FullDomainRelease) -> exp.Select:
    """Classes that could be released with one attribute a level lower, all their rows: ``v0`` .., ``by`` (which
    attributes), and ``n``.
    """
    return _split(release, _ALL_KEPT(), _ROWS())


def minimality(release: FullDomainRelease, k: int) -> exp.Select:
    """Classes that were not merged for k-anonymity: ``v0`` .., ``by``, and ``n``.

    Split by one attribute a level lower, all parts have k rows, but some break another requirement: that the class is
    whole tells of these. ``by`` has the attributes by which it can be so split; ``n`` are the rows of such parts, by
    the attribute with the most.
    """
    return _split(release, _NOT_MERGED_FOR_K(k=k), _ROWS_OF_BROKEN_PARTS())


def _split(release: FullDomainRelease, condition: exp.Expr, rows: exp.Expr) -> exp.Select:
    """The released classes whose parts meet a condition, by any attribute."""
    splits: list[exp.Query] = []
    parts: dict[str, exp.Query] = {}
    quasi = release.quasi
    for i, one in enumerate(quasi):
        if one.level <= one.lowest:
            continue
        space = _space(i, release, parts)
        parts_of = judged_classes(space, (0,), [as_column(exp.func("min", col("class")), "class")])
        splits.append(_SPLIT_BY(attribute=text(one.name), rows=rows, parts=subquery(parts_of), condition=condition))
    there = all_of(
        null_safe_equal(col(f"g{i}", "p"), cast(col(one.released, "r"), "VARCHAR")) for i, one in enumerate(quasi)
    )
    query = _SPLIT(
        labelled=_labelled(release.source, quasi, release.sensitive),
        classes=[col(f"g{i}") for i in range(len(quasi))],
        labels=[as_column(col(f"g{i}", "p"), f"v{i}") for i in range(len(quasi))],
        splits=subquery(union_all(*splits or [_NO_SPLIT()])),
        release=release.relation,
        is_released=there,
    )
    for name, part in parts.items():
        query = query.with_(ident(name), as_=part, materialized=True, copy=False)
    return query


def _labelled(source: exp.Expr, quasi: Sequence[Released], sensitive: Mapping[str, str]) -> exp.Select:
    """The source's combinations: ``g0`` .. (labels as released), ``class`` (their number), ``part0`` .. (the number of
    the part, by each attribute), ``s0`` .. and ``n``. Rows with values that a hierarchy lacks are not released.
    """
    counted = _COUNTED(
        raw=[
            *(as_column(col(one.column, "r"), f"q{i}") for i, one in enumerate(quasi)),
            *(as_column(col(name, "r"), f"s{j}") for j, name in enumerate(sensitive.values())),
        ],
        source=source,
        columns=[col(name, "r") for name in dict.fromkeys([*(one.column for one in quasi), *sensitive.values()])],
    )
    output: list[exp.Expr] = []
    for i, one in enumerate(quasi):
        output.append(as_column(cast(col(f"level_{one.level}", f"h{i}"), "VARCHAR"), f"g{i}"))
        output.append(as_column(cast(col(f"level_{max(one.level - 1, 0)}", f"h{i}"), "VARCHAR"), f"f{i}"))
    values = [f"s{j}" for j in range(len(sensitive))]
    labelled = _LABELS(labels=[*output, *(col(value, "c") for value in values)], counted=subquery(counted))
    for i, one in enumerate(quasi):
        on = null_safe_equal(col(f"q{i}", "c"), col("level_0", f"h{i}"))
        labelled = labelled.join(aliased(one.hierarchy, f"h{i}"), on=on, copy=False)
    labels = [col(f"g{i}") for i in range(len(quasi))]
    return _NUMBERED(
        kept=[*labels, *map(col, values)],
        labels=labels,
        parts=[
            as_column(_PART(labels=[*labels, col(f"f{i}")]), f"part{i}")
            for i, one in enumerate(quasi)
            if one.level > one.lowest
        ],
        labelled=subquery(labelled),
    )


def at_level(source: exp.Expr, column: str, hierarchy: exp.Expr, level: int, others: Sequence[str]) -> exp.Subquery:
    """The rows of a source: ``label`` and ``ground`` of an attribute, released at a level, and ``other_0`` .. of other
    columns, which may have these names."""
    rows = _AT_LEVEL(
        label=cast(col(f"level_{level}", "h"), "VARCHAR"),
        ground=col(column, "r"),
        others=[as_column(col(name, "r"), f"other_{i}") for i, name in enumerate(others)],
        source=source,
        hierarchy=hierarchy,
        same=null_safe_equal(col(column, "r"), col("level_0", "h")),
    )
    return subquery(rows, "r")


def _space(i: int, release: FullDomainRelease, parts: dict[str, exp.Query]) -> ClassSpace:
    """The parts of classes by an attribute, as classes of one generalization; adds what it needs to ``parts``."""
    frequency: list[exp.Expr] = [as_column(col(f"part{i}"), code_column(0, 0)), col("class"), col("n")]
    tables: Mapping[Distribution, SensitiveTable] = {
        one: _sensitive(i, one, release, parts) for one in release.requirements.distributions
    }
    rows = subquery(select(frequency, table(_LABELLED)), "frequency")
    return ClassSpace(rows, (1,), release.requirements, sensitive=tables)


def _sensitive(i: int, one: Distribution, release: FullDomainRelease, parts: dict[str, exp.Query]) -> SensitiveTable:
    """The counts of a sensitive attribute's values in the parts; its values and their order are the source's."""
    sensitive = release.sensitive
    j = list(sensitive).index(one.attribute)
    values, domain_name = f"sqlanon values {j}", f"sqlanon domain {j}"
    if values not in parts:
        column = col(sensitive[one.attribute], "r")
        counts = _COUNTED(raw=[as_column(column, "value")], source=release.source, columns=[column])
        parts[values] = number_sensitive_values(subquery(counts, "c"), moving=False)
        parts[domain_name] = ordered_domain(table(values))
    inner = [other for other in range(len(sensitive)) if other != j] if one.kind == "joint" else []
    rows: list[exp.Expr] = [as_column(col(f"part{i}"), "q0"), *(col(f"s{other}") for other in range(len(sensitive)))]
    pairs = count_value_pairs(subquery(select([*rows, col("n")], table(_LABELLED)), "n"), 1, j, inner)
    shares = uncoded_distribution(pairs, table(values), 1, len(inner))
    return SensitiveTable(shares, len(inner), table(domain_name) if one.kind == "values" else None)


KEEPS = "local"
"""The strategy that splits the classes of a full-domain release where all parts meet the policy."""


def find_dependencies(attacker: Attacker) -> Found:
    """Released columns that give the values of generalized quasi-identifiers away."""
    private = attacker.private
    if private is None:
        return [], ["needs the policy that made the release, with its source"]
    findings, reasons = [], []
    theirs = {name.lower(): name for name in private.run.source.columns}
    for one in attacker.subjects:
        others = [name for name in one.columns if not one.is_quasi(name) and name in theirs]
        levels = {name.lower(): level for name, level in one.manifest.levels(private.heights).items()}
        if not others or any(level is None for level in levels.values()):
            reasons.append(f"needs one level for each attribute, and unchanged columns: {one.path} has none")
            continue
        found = []
        for name, released_level in levels.items():
            tree = private.trees.hierarchies.get(name)
            if tree is None or name not in theirs or not (level := (released_level or 0) + tree.below):
                continue
            rows = at_level(private.run.source.relation, theirs[name], tree.table, level, others)
            for i, other in enumerate(others):
                query = pinned_groups(rows, col("label"), col("ground"), col(f"other_{i}"))
                sql = attacker.script(add_titles(query, [name, other]))
                more = {"attribute": other, "quasi": name}
                victims = min(attacker.victims(query), one.manifest.released_rows)
                found.append(Finding((str(one.path),), victims, one.manifest.released_rows, sql, more))
        findings += [each for each in found if each.victims] or found[:1]
        if not found:
            reasons.append(f"needs a generalized attribute: {one.path} has none")
    return findings, reasons


def find_minimality(attacker: Attacker) -> Found:
    """Classes that were not merged for k-anonymity."""
    releases, reasons = _full_domain_releases(attacker)
    findings = []
    for one, release in releases:
        query = minimality(release, release.requirements.k)
        sql = attacker.script(add_titles(query, [each.name for each in release.quasi]))
        findings.append(Finding((str(one.path),), attacker.victims(query), one.manifest.released_rows, sql))
    return findings, reasons


def find_downcoding(attacker: Attacker) -> Found:
    """Classes that could be finer: detail that could be kept. Nobody is a victim of it."""
    releases, reasons = _full_domain_releases(attacker)
    findings = []
    for one, release in releases:
        query = downcoding(release)
        sql = attacker.script(add_titles(query, [each.name for each in release.quasi]))
        kept = Kept(attacker.victims(query), KEEPS)
        findings.append(Finding((str(one.path),), 0, one.manifest.released_rows, sql, kept=kept))
    return findings, reasons


def _full_domain_releases(attacker: Attacker) -> tuple[list[tuple[ComparedRelease, FullDomainRelease]], list[str]]:
    """The full-domain releases of the policy, whose classes can be split again; and why others cannot."""
    private = attacker.private
    if private is None:
        return [], ["needs the policy that made the release, with its source"]
    policy, requirements = private.policy, _requirements(attacker, private)
    sensitive = dict(zip(private.columns.sensitive_names, private.columns.sensitive, strict=True))
    releases, reasons = [], []
    for one in attacker.subjects:
        levels = one.manifest.levels(private.heights)
        if not policy.matches_fingerprint(one.manifest.policy_hash):
            reasons.append(f"needs the policy that made {one.path}")
        elif (
            policy.noisy_attributes or policy.source.person_column is not None or not looks_at_rows_alone(requirements)
        ):
            reasons.append("covers rows and sensitive values, not persons, noise, populations or the whole table")
        elif any(level is None for level in levels.values()):
            reasons.append(f"needs one level for each attribute: {one.path} has several")
        else:
            quasi = [_released(private, one, name, levels[name] or 0) for name in policy.generalized_attributes]
            source = private.run.source.relation
            releases.append((one, FullDomainRelease(one.relation, source, quasi, sensitive, requirements)))
    return releases, reasons


def _released(private: PrivateSide, release: ComparedRelease, name: str, level: int) -> Released:
    spec, tree = private.policy.attributes[name], private.trees.hierarchies[name.lower()]
    lowest = level if spec.forbidden else min(spec.min_level, level)  # a mask may have fewer levels than min_level
    columns = release.column(name.lower()) or name, private.columns.by_attribute[name]
    return Released(name, *columns, level + tree.below, tree.table, lowest + tree.below)


def _requirements(attacker: Attacker, private: PrivateSide) -> Requirements:
    """The policy's requirements, as the search has them."""
    steps, run = StatementRunner(private.run.engine), private.run
    domains = {}
    for s, (name, column) in enumerate(zip(private.columns.sensitive_names, private.columns.sensitive, strict=True)):
        tree = attacker.trees.hierarchies.get(name.lower())
        values = steps.create_table(
            run.work(f"attack_domain_{s}"), value_counts(run.source.relation, column, counted=False)
        )
        domains[name] = Domain(sensitive_domain(steps, values, 0).values, tree.height if tree is not None else 0)
    steps.drop_all_except(())  # each attack counts them anew
    return bind_requirements(private.policy.privacy, private.policy.generalized_attributes, domains)
