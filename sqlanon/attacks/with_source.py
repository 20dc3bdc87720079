"""Attacks that need what the data holder has: a table from outside, or the source."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from sqlglot import exp

from sqlanon.attacks import linking as builders
from sqlanon.attacks import refinement
from sqlanon.attacks.attacker import Attacker, Found, why_strange
from sqlanon.attacks.private import Private
from sqlanon.attacks.refinement import Released
from sqlanon.attacks.report import Finding, Kept
from sqlanon.coding import value_counts
from sqlanon.engines.statement_runner import StatementRunner
from sqlanon.expressions import col
from sqlanon.frequency.scan import domain_of
from sqlanon.ledger.linked import Linked, titled
from sqlanon.ledger.side_by_side import Subject
from sqlanon.release.dependencies import pinned_groups
from sqlanon.requirements import Domain, Requirements, requirements_of

KEEPS = "local"
"""The strategy that splits the classes of a full-domain release where all parts meet the policy."""


def linking(attacker: Attacker) -> Found:
    """A table from outside, joined to each release."""
    private = attacker.private
    if private is None or private.outside is None:
        return [], ["needs a policy and a table from outside"]
    theirs = {name.lower(): name for name in private.outside.columns}
    findings, reasons = [], []
    for one in attacker.subjects:
        attributes = []
        for name in one.manifest.quasi:
            column = theirs.get(name.lower())
            tree = private.trees.of(name.lower(), one.rule(name.lower()))
            if column is not None and tree is not None:
                levels = one.levels(name.lower(), tree.height)
                attributes.append(Linked(name, name, column, levels, (0,), tree.table, tree.height, True))
        if not attributes:
            reasons.append(f"{one.path} and the table from outside have no quasi-identifier in common")
            continue
        if why := why_strange(attacker, one, attributes):
            reasons.append(why)
            continue
        arguments = one.relation, private.outside.relation, attributes, one.k
        figures = attacker.figures(builders.linkage(*arguments))
        victims = figures.pop("victims")
        sql = attacker.shown.text(titled(builders.linking(*arguments), [linked.name for linked in attributes]))
        more = {**figures, "k": one.k, "attributes": [linked.name for linked in attributes]}
        findings.append(Finding((str(one.path),), victims, one.manifest.released_rows, sql, more))
    return findings, reasons


def dependencies(attacker: Attacker) -> Found:
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
            reasons.append(
                f"needs one level for each attribute, and columns that are not generalized: {one.path} has none"
            )
            continue
        found = []
        for name, level in levels.items():
            if not level or name not in theirs or name not in private.tables:
                continue
            rows = refinement.at_level(private.run.source.relation, theirs[name], private.tables[name], level, others)
            for other in others:
                query = pinned_groups(rows, col("label"), col("ground"), col(other))
                sql = attacker.shown.text(titled(query, [name, other]))
                more = {"attribute": other, "quasi": name}
                victims = min(attacker.victims(query), one.manifest.released_rows)
                found.append(Finding((str(one.path),), victims, one.manifest.released_rows, sql, more))
        findings += [each for each in found if each.victims] or found[:1]
        if not found:
            reasons.append(f"needs an attribute that is generalized: {one.path} has none")
    return findings, reasons


Split: TypeAlias = Callable[[Subject, Private, list[Released], dict[str, str], Requirements], exp.Select]
"""A query for the classes of a release that are split again."""


def _of_refinement(attacker: Attacker, build: Split, found: Callable[[Subject, exp.Select, str], Finding]) -> Found:
    """What is found in each full-domain release of the policy when its classes are split again."""
    private = attacker.private
    if private is None:
        return [], ["needs the policy that made the release, with its source"]
    policy = private.policy
    findings, reasons = [], []
    requirements = _requirements(attacker, private)
    for one in attacker.subjects:
        levels = one.manifest.levels(private.heights)
        if one.manifest.policy_hash != policy.fingerprint():
            reasons.append(f"needs the policy that made {one.path}")
        elif policy.noisy or policy.source.person is not None or not refinement.looks_at_rows_alone(requirements):
            reasons.append(
                "looks at rows and their sensitive values: not at persons, noise, a population, the whole table"
            )
        elif any(level is None for level in levels.values()):
            reasons.append(f"needs one level for each attribute: {one.path} has several")
        else:
            quasi = [
                Released(
                    name,
                    one.column(name.lower()) or name,
                    private.columns.by_attribute[name],
                    int(levels[name] or 0),
                    private.tables[name.lower()],
                    int(levels[name] or 0) if policy.attributes[name].forbidden else policy.attributes[name].min_level,
                )
                for name in policy.generalized
            ]
            sensitive = dict(zip(private.columns.sensitive_names, private.columns.sensitive, strict=True))
            query = build(one, private, quasi, sensitive, requirements)
            sql = attacker.shown.text(titled(query, [each.name for each in quasi]))
            findings.append(found(one, query, sql))
    return findings, reasons


def _requirements(attacker: Attacker, private: Private) -> Requirements:
    """The policy's requirements, as the search has them."""
    steps, run = StatementRunner(private.run.engine), private.run
    domains = {}
    for s, (name, column) in enumerate(zip(private.columns.sensitive_names, private.columns.sensitive, strict=True)):
        tree = attacker.trees.hierarchies.get(name.lower())
        values = steps.make(run.work(f"attack_domain_{s}"), value_counts(run.source.relation, column, counted=False))
        domains[name] = Domain(domain_of(steps, values, 0).values, tree.height if tree is not None else 0)
    steps.drop_all_but(())  # each attack counts them anew
    return requirements_of(private.policy.privacy, private.policy.generalized, domains)


def minimality(attacker: Attacker) -> Found:
    """Classes that were not merged for k-anonymity."""

    def build(
        one: Subject, private: Private, quasi: list[Released], sensitive: dict[str, str], requirements: Requirements
    ) -> exp.Select:
        source = private.run.source.relation
        return refinement.minimality(one.relation, source, quasi, sensitive, requirements, requirements.k)

    def found(one: Subject, query: exp.Select, sql: str) -> Finding:
        return Finding((str(one.path),), attacker.victims(query), one.manifest.released_rows, sql)

    return _of_refinement(attacker, build, found)


def downcoding(attacker: Attacker) -> Found:
    """Classes that could be finer: detail that could be kept. Nobody is a victim of it."""

    def build(
        one: Subject, private: Private, quasi: list[Released], sensitive: dict[str, str], requirements: Requirements
    ) -> exp.Select:
        return refinement.downcoding(one.relation, private.run.source.relation, quasi, sensitive, requirements)

    def found(one: Subject, query: exp.Select, sql: str) -> Finding:
        return Finding((str(one.path),), 0, one.manifest.released_rows, sql, kept=Kept(attacker.victims(query), KEEPS))

    return _of_refinement(attacker, build, found)
