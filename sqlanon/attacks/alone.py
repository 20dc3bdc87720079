"""Attacks on the classes of one release."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sqlglot import exp

from sqlanon.attacks import disclosure
from sqlanon.attacks.attacker import Attacker, Found
from sqlanon.attacks.report import Finding
from sqlanon.ledger.linked import titled
from sqlanon.ledger.side_by_side import Subject


def _of_each(
    attacker: Attacker,
    build: Callable[[Subject, str], exp.Select | None],
    figures: Callable[[Subject, str], Mapping[str, Any]] = lambda one, name: {},
    needed: str = "needs a sensitive attribute: the release has none",
) -> Found:
    """An attack on each sensitive attribute of each release, but those that have no query; else what is needed."""
    findings = []
    for one in attacker.subjects:
        for name in one.sensitive:
            query = build(one, name)
            if query is None:
                continue
            more = {"attribute": name, **figures(one, name)}
            sql = attacker.shown.text(titled(query, one.manifest.quasi))
            rows = one.manifest.released_rows
            findings.append(Finding((str(one.path),), attacker.victims(query), rows, sql, more))
    return findings, [] if findings else [needed]


def homogeneity(attacker: Attacker) -> Found:
    """Classes with one sensitive value."""
    return _of_each(attacker, lambda one, name: disclosure.homogeneity(one.relation, one.manifest.quasi, name))


def background_knowledge(attacker: Attacker) -> Found:
    """Classes with few sensitive values, for who can rule out some."""

    def build(one: Subject, name: str) -> exp.Select:
        return disclosure.background_knowledge(one.relation, one.manifest.quasi, name, attacker.known)

    return _of_each(attacker, build, lambda one, name: {"known": attacker.known})


def skewness(attacker: Attacker) -> Found:
    """Values that classes make much more likely."""

    def figures(one: Subject, name: str) -> Mapping[str, Any]:
        greatest = disclosure.greatest_skew(one.relation, one.manifest.quasi, name)
        greatest.set("expressions", [greatest.expressions[0].as_("greatest_ratio")])
        thresholds = {"ratio": disclosure.RATIO, "likely": disclosure.LIKELY}
        return {**attacker.figures(greatest), **thresholds}

    return _of_each(attacker, lambda one, name: disclosure.skewness(one.relation, one.manifest.quasi, name), figures)


def similarity(attacker: Attacker) -> Found:
    """Classes whose values are of one kind, by the hierarchy that the policy gives."""

    def build(one: Subject, name: str) -> exp.Select | None:
        tree = attacker.trees.hierarchies.get(name.lower())
        if tree is None:
            return None
        return disclosure.similarity(one.relation, one.manifest.quasi, name, tree.table, tree.height)

    return _of_each(attacker, build, needed="needs a policy with a hierarchy of a sensitive attribute")
