"""Running attacks: each makes its queries from the builders, asks for figures, and shows the SQL of the victims."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, TypeAlias

from sqlglot import exp

from sqlanon.attacks.private import Private
from sqlanon.attacks.report import NAMES, Attack, Finding
from sqlanon.attacks.shown import Shown
from sqlanon.attacks.subject import NO_TREES, Link, Subject, Trees, link
from sqlanon.counting import domain_of
from sqlanon.engines.base import Engine
from sqlanon.privacy import Domain, Requirements, requirements_of
from sqlanon.queries.attacks import complementary, composition, disclosure, linking, positions, refinement
from sqlanon.queries.attacks import temporal as tp
from sqlanon.queries.attacks.linked import ROWS, Linked, strange_labels, titled
from sqlanon.queries.attacks.refinement import Released
from sqlanon.queries.coding import value_counts
from sqlanon.queries.names import col, number, select, subquery, total
from sqlanon.sources import Source
from sqlanon.steps import Steps

Found: TypeAlias = "tuple[list[Finding], list[str]]"
"""What an attack finds; and why it cannot look, or not everywhere."""


@dataclass(frozen=True)
class Attacker:
    """What attacks are made with.

    Attributes
    ----------
    engine, subjects, shown:
        Where, on which releases, and how queries are shown.
    private:
        What the data holder has beside them; None without a policy.
    known:
        How many sensitive values the adversary can rule out.
    counts:
        Whether queries are run; else figures are all 0, and the SQL is what counts.
    """

    engine: Engine
    subjects: Sequence[Subject]
    shown: Shown
    private: Private | None = None
    known: int = 1
    counts: bool = True

    @property
    def trees(self) -> Trees:
        """The hierarchies that are known."""
        return self.private.trees if self.private is not None else NO_TREES

    def attack(self, name: str) -> Attack:
        """Make one attack, by its name."""
        findings, reasons = ATTACKS[name](self)
        return Attack(name, tuple(findings), "; ".join(dict.fromkeys(reasons)) or None)

    def figures(self, query: exp.Query) -> dict[str, Any]:
        """The one row of a query, by name; zeros where nothing is run."""
        names = query.named_selects
        row = self.engine.rows(query)[0] if self.counts else (0,) * len(names)
        return dict(zip(names, row, strict=True))

    def victims(self, query: exp.Select) -> int:
        """The rows of all victims that a query finds."""
        rows = exp.Coalesce(this=total(col(ROWS)), expressions=[number(0)])
        return int(self.figures(select([rows.as_("victims")], subquery(query.copy(), "v")))["victims"])

    def strange(self, subject: Subject, attributes: Sequence[Linked]) -> list[str]:
        """The attributes of a release, the first of a link, whose labels are no nodes of their hierarchies."""
        found = []
        for one in attributes:
            if one.first is None or one.hierarchy is None or len(one.first_levels) == 1:
                continue
            query = strange_labels(subject.relation, one.first, one.hierarchy, one.first_levels)
            if subject.shows_medians or (self.counts and self.engine.rows(query)[0][0]):
                found.append(one.first)
        return found

    def pairs(self) -> Iterator[tuple[Subject, Subject, Link]]:
        """All pairs of releases, the earlier first."""
        ordered = sorted(self.subjects, key=lambda one: one.manifest.published_at)
        for first, second in combinations(ordered, 2):
            yield first, second, link(first, second, self.trees)


def _of_each(
    attacker: Attacker,
    build: Callable[[Subject, str], exp.Select],
    figures: Callable[[Subject, str, exp.Select], Mapping[str, Any]] = lambda one, name, query: {},
) -> Found:
    """An attack on each sensitive attribute of each release."""
    findings = []
    for one in attacker.subjects:
        for name in one.sensitive:
            query = build(one, name)
            more = {"attribute": name, **figures(one, name, query)}
            sql = attacker.shown.text(titled(query, one.manifest.quasi))
            rows = one.manifest.released_rows
            findings.append(Finding((str(one.path),), attacker.victims(query), rows, sql, more))
    return findings, [] if findings else ["needs a sensitive attribute: the release has none"]


def _homogeneity(attacker: Attacker) -> Found:
    return _of_each(attacker, lambda one, name: disclosure.homogeneity(one.relation, one.manifest.quasi, name))


def _background_knowledge(attacker: Attacker) -> Found:
    def build(one: Subject, name: str) -> exp.Select:
        return disclosure.background_knowledge(one.relation, one.manifest.quasi, name, attacker.known)

    return _of_each(attacker, build, lambda one, name, query: {"known": attacker.known})


def _skewness(attacker: Attacker) -> Found:
    def figures(one: Subject, name: str, query: exp.Select) -> Mapping[str, Any]:
        greatest = disclosure.greatest_skew(one.relation, one.manifest.quasi, name)
        greatest.set("expressions", [greatest.expressions[0].as_("greatest_ratio")])
        thresholds = {"ratio": disclosure.RATIO, "likely": disclosure.LIKELY}
        return {**attacker.figures(greatest), **thresholds}

    return _of_each(attacker, lambda one, name: disclosure.skewness(one.relation, one.manifest.quasi, name), figures)


def _similarity(attacker: Attacker) -> Found:
    known = attacker.trees.hierarchies
    if not any(name.lower() in known for one in attacker.subjects for name in one.sensitive):
        return [], ["needs a policy with a hierarchy of a sensitive attribute"]
    findings = []
    for one in attacker.subjects:
        for name in one.sensitive:
            tree = known.get(name.lower())
            if tree is None:
                continue
            query = disclosure.similarity(one.relation, one.manifest.quasi, name, tree.table, tree.height)
            sql = attacker.shown.text(titled(query, one.manifest.quasi))
            rows = one.manifest.released_rows
            findings.append(Finding((str(one.path),), attacker.victims(query), rows, sql, {"attribute": name}))
    return findings, []


_TWO = "needs two releases of one table"


def _of_pairs(attacker: Attacker, find: Callable[[Subject, Subject, Link], Finding | str | None]) -> Found:
    """An attack on all pairs of releases."""
    if len(attacker.subjects) < 2:
        return [], [_TWO]
    findings: list[Finding] = []
    reasons: list[str] = []
    for first, second, linked in attacker.pairs():
        if linked.missing:
            names = ", ".join(map(repr, linked.missing))
            reasons.append(
                f"needs a policy that has the hierarchies of {names}: the releases show labels of different levels"
            )
            continue
        swapped = [one.swapped for one in linked.attributes]
        reason = _strange(attacker, first, linked.attributes) or _strange(attacker, second, swapped)
        found = reason or find(first, second, linked)
        if isinstance(found, str):
            reasons.append(found)
        elif found is not None:
            findings.append(found)
    return findings, reasons


def _strange(attacker: Attacker, subject: Subject, attributes: Sequence[Linked]) -> str | None:
    """Why the labels of a release cannot be compared with others; None: they can."""
    names = attacker.strange(subject, attributes)
    if not names:
        return None
    listed = ", ".join(map(repr, names))
    return f"needs labels that are in the hierarchies: {subject.path} shows ranges, sets or medians of {listed}"


def _finding(first: Subject, second: Subject, victims: int, sql: str, figures: Mapping[str, Any]) -> Finding:
    rows = min(first.manifest.released_rows, second.manifest.released_rows)
    return Finding((str(first.path), str(second.path)), min(victims, rows), rows, sql, figures)


def _complementary_release(attacker: Attacker) -> Found:
    def find(first: Subject, second: Subject, linked: Link) -> Finding:
        k = min(first.k, second.k)
        arguments = linked.first, linked.second, linked.shared, linked.attributes, k
        figures = attacker.figures(complementary.complementary_victims(*arguments))
        sql = attacker.shown.text(titled(complementary.complementary_release(*arguments), linked.titles))
        return _finding(first, second, figures["victims"], sql, {"combinations": figures["combinations"], "k": k})

    return _of_pairs(attacker, find)


def _temporal(attacker: Attacker) -> Found:
    def find(first: Subject, second: Subject, linked: Link) -> Finding:
        k = min(first.k, second.k)
        swapped = [one.swapped for one in linked.attributes]
        added = tp.temporal(linked.first, linked.second, linked.shared, linked.attributes, k)
        removed = tp.temporal(linked.second, linked.first, linked.shared, swapped, k)
        counts = {"added": attacker.victims(added), "removed": attacker.victims(removed)}
        titles = [[one.name for one in side if one.second is not None] for side in (linked.attributes, swapped)]
        queries = [_renumbered(query, side) for query, side in ((added, linked.attributes), (removed, swapped))]
        sql = attacker.shown.text(*(titled(query, names) for query, names in zip(queries, titles, strict=True)))
        return _finding(first, second, sum(counts.values()), sql, {**counts, "k": k})

    return _of_pairs(attacker, find)


def _renumbered(query: exp.Select, attributes: Sequence[Linked]) -> exp.Select:
    """The labels of the attributes that a release has, numbered from 0."""
    here = [i for i, one in enumerate(attributes) if one.second is not None]
    if here == list(range(len(here))):
        return query
    columns: list[exp.Expr] = [col(f"v{i}").as_(f"v{place}", quoted=True) for place, i in enumerate(here)]
    return select([*columns, col(ROWS)], subquery(query, "t"))


def _composition(attacker: Attacker) -> Found:
    both = [{name.lower() for name in one.sensitive} for one in attacker.subjects]
    names = sorted(set.intersection(*both)) if both else []
    if len(attacker.subjects) >= 2 and not names:
        return [], ["needs a sensitive attribute that the releases have in common"]

    def find(first: Subject, second: Subject, linked: Link) -> Finding:
        found = []
        for name in names:
            column = first.column(name) or name
            arguments = linked.first, linked.second, column, linked.attributes
            figures = attacker.figures(composition.composition_victims(*arguments))
            sql = attacker.shown.text(titled(composition.composition(*arguments), linked.titles))
            more = {"attribute": column, "pairs": figures["pairs"]}
            found.append(_finding(first, second, figures["victims"], sql, more))
        return max(found, key=lambda one: one.victims)

    return _of_pairs(attacker, find)


def _unsorted_matching(attacker: Attacker) -> Found:
    def find(first: Subject, second: Subject, linked: Link) -> Finding:
        return _by_position(attacker, linked, (str(first.path), str(second.path)), min(first.k, second.k))

    private = attacker.private
    if private is None and len(attacker.subjects) < 2:
        return [], ["needs two releases, or a policy with the source"]
    findings, reasons = _of_pairs(attacker, find) if len(attacker.subjects) > 1 else ([], [])
    for one in attacker.subjects if private is not None else ():
        linked = _with_source(one, attacker.trees, private.run.source) if private is not None else None
        if linked is None:
            reasons.append(f"needs the policy that has the hierarchies of {one.path}")
        elif why := _strange(attacker, one, linked.attributes):
            reasons.append(why)
        else:
            findings.append(_by_position(attacker, linked, (str(one.path), "source"), one.k))
    return findings, reasons


def _by_position(attacker: Attacker, linked: Link, names: tuple[str, str], k: int) -> Finding:
    arguments = linked.first, linked.second, linked.shared, linked.attributes
    found = attacker.figures(positions.places(*arguments))
    ordered = positions.is_one_order(found["places"], found["agreeing"], found["chance"])
    query = positions.unsorted_matching(*arguments, k)
    victims = attacker.victims(query) if ordered else 0
    figures = {
        "ordered": ordered,
        "agreeing": found["agreeing"] / found["places"] if found["places"] else 0.0,
        "chance": found["chance"],
        "k": k,
    }
    return Finding(names, victims, found["places"], attacker.shown.text(titled(query, linked.titles)), figures)


def _with_source(one: Subject, trees: Trees, source_: Source) -> Link | None:
    """A release beside its source, whose values are as they are; None where the hierarchies are not known."""
    source = {name.lower(): name for name in source_.columns}
    attributes, shared = [], []
    for name in one.columns:
        column, own = source.get(name), one.column(name)
        if column is None or own is None:
            continue
        if not one.is_quasi(name):
            shared += [own] if source_.columns[column] == one.columns[name] else []
            continue
        tree = trees.of(name, one.rule(name))
        if tree is None:
            return None
        levels = one.levels(name, tree.height)
        attributes.append(Linked(own, own, column, levels, (0,), tree.table, tree.height))
    return Link(one.relation, source_.relation, tuple(shared), tuple(attributes), ())


def _linking(attacker: Attacker) -> Found:
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
                attributes.append(Linked(name, name, column, levels, (0,), tree.table, tree.height))
        if not attributes:
            reasons.append(f"{one.path} and the table from outside have no quasi-identifier in common")
            continue
        if why := _strange(attacker, one, attributes):
            reasons.append(why)
            continue
        arguments = one.relation, private.outside.relation, attributes, one.k
        figures = attacker.figures(linking.linkage(*arguments))
        victims = figures.pop("victims")
        sql = attacker.shown.text(titled(linking.linking(*arguments), [linked.name for linked in attributes]))
        more = {**figures, "k": one.k, "attributes": [linked.name for linked in attributes]}
        findings.append(Finding((str(one.path),), victims, one.manifest.released_rows, sql, more))
    return findings, reasons


def _of_refinement(
    attacker: Attacker, build: Callable[[Subject, Private, list[Released], dict[str, str], Requirements], exp.Select]
) -> Found:
    """An attack on each full-domain release of the policy that splits its classes again."""
    private = attacker.private
    if private is None:
        return [], ["needs the policy that made the release, with its source"]
    policy = private.policy
    findings, reasons = [], []
    for one in attacker.subjects:
        levels = one.manifest.generalization
        requirements = _requirements(attacker, private)
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
            rows = one.manifest.released_rows
            findings.append(Finding((str(one.path),), attacker.victims(query), rows, sql))
    return findings, reasons


def _requirements(attacker: Attacker, private: Private) -> Requirements:
    """The policy's requirements, as the search has them."""
    steps, run = Steps(private.run.engine), private.run
    domains = {}
    for s, (name, column) in enumerate(zip(private.columns.sensitive_names, private.columns.sensitive, strict=True)):
        tree = attacker.trees.hierarchies.get(name.lower())
        values = steps.make(run.work(f"attack_domain_{s}"), value_counts(run.source.relation, column, counted=False))
        domains[name] = Domain(domain_of(steps, values, 0).values, tree.height if tree is not None else 0)
    return requirements_of(private.policy.privacy, private.policy.generalized, domains)


def _minimality(attacker: Attacker) -> Found:
    def build(
        one: Subject, private: Private, quasi: list[Released], sensitive: dict[str, str], requirements: Requirements
    ) -> exp.Select:
        source = private.run.source.relation
        return refinement.minimality(one.relation, source, quasi, sensitive, requirements, requirements.k)

    return _of_refinement(attacker, build)


def _downcoding(attacker: Attacker) -> Found:
    def build(
        one: Subject, private: Private, quasi: list[Released], sensitive: dict[str, str], requirements: Requirements
    ) -> exp.Select:
        return refinement.downcoding(one.relation, private.run.source.relation, quasi, sensitive, requirements)

    return _of_refinement(attacker, build)


ATTACKS: Mapping[str, Callable[[Attacker], Found]] = dict(
    zip(
        NAMES,
        (
            _homogeneity,
            _background_knowledge,
            _skewness,
            _similarity,
            _unsorted_matching,
            _complementary_release,
            _temporal,
            _composition,
            _minimality,
            _downcoding,
            _linking,
        ),
        strict=True,
    )
)
"""The attacks, by name."""
