"""Attacks on the classes of one release."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sqlglot import exp

from sqlanon.attacks.attacker import Attacker, Found
from sqlanon.attacks.report import Finding
from sqlanon.queries.attacks import disclosure
from sqlanon.queries.attacks.linked import titled
from sqlanon.release.side_by_side import Subject


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


def homogeneity(attacker: Attacker) -> Found:
    """Classes with one sensitive value."""
    return _of_each(attacker, lambda one, name: disclosure.homogeneity(one.relation, one.manifest.quasi, name))


def background_knowledge(attacker: Attacker) -> Found:
    """Classes with few sensitive values, for who can rule out some."""

    def build(one: Subject, name: str) -> exp.Select:
        return disclosure.background_knowledge(one.relation, one.manifest.quasi, name, attacker.known)

    return _of_each(attacker, build, lambda one, name, query: {"known": attacker.known})


def skewness(attacker: Attacker) -> Found:
    """Values that classes make much more likely."""

    def figures(one: Subject, name: str, query: exp.Select) -> Mapping[str, Any]:
        greatest = disclosure.greatest_skew(one.relation, one.manifest.quasi, name)
        greatest.set("expressions", [greatest.expressions[0].as_("greatest_ratio")])
        thresholds = {"ratio": disclosure.RATIO, "likely": disclosure.LIKELY}
        return {**attacker.figures(greatest), **thresholds}

    return _of_each(attacker, lambda one, name: disclosure.skewness(one.relation, one.manifest.quasi, name), figures)


def similarity(attacker: Attacker) -> Found:
    """Classes whose values are of one kind, by the hierarchy that the policy gives."""
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
