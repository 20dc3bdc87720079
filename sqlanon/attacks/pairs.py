"""Attacks on two releases of one table; and on a release beside its source."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sqlanon.attacks import composition as cp
from sqlanon.attacks import positions
from sqlanon.attacks.attacker import Attacker, Found, why_strange
from sqlanon.attacks.report import Finding
from sqlanon.ledger import complementary as cr
from sqlanon.ledger import temporal as tp
from sqlanon.ledger.linked import Linked, titled
from sqlanon.ledger.side_by_side import Link, Subject, Trees
from sqlanon.sources import Source

_TWO = "needs two releases of one table"


def _of_pairs(attacker: Attacker, find: Callable[[Subject, Subject, Link], list[Finding]]) -> Found:
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
        reason = why_strange(attacker, first, linked.attributes) or why_strange(attacker, second, swapped)
        if reason:
            reasons.append(reason)
        else:
            findings += find(first, second, linked)
    return findings, reasons


def _finding(first: Subject, second: Subject, victims: int, sql: str, figures: Mapping[str, Any]) -> Finding:
    rows = min(first.manifest.released_rows, second.manifest.released_rows)
    return Finding((str(first.path), str(second.path)), min(victims, rows), rows, sql, figures)


def complementary_release(attacker: Attacker) -> Found:
    """Combinations of few rows that two releases tell together."""

    def find(first: Subject, second: Subject, linked: Link) -> list[Finding]:
        k = min(first.k, second.k)
        arguments = linked.first, linked.second, linked.shared, linked.attributes, k
        figures = attacker.figures(cr.complementary_victims(*arguments))
        sql = attacker.shown.text(titled(cr.complementary_release(*arguments), linked.titles))
        return [_finding(first, second, figures["victims"], sql, {"combinations": figures["combinations"], "k": k})]

    return _of_pairs(attacker, find)


def temporal(attacker: Attacker) -> Found:
    """Few rows of a class that came, or went, between two releases."""

    def find(first: Subject, second: Subject, linked: Link) -> list[Finding]:
        k = min(first.k, second.k)
        swapped = [one.swapped for one in linked.attributes]
        added = tp.temporal(linked.first, linked.second, linked.shared, linked.attributes, k)
        removed = tp.temporal(linked.second, linked.first, linked.shared, swapped, k)
        counts = {"added": attacker.victims(added), "removed": attacker.victims(removed)}
        sql = attacker.shown.text(*(titled(query, linked.titles) for query in (added, removed)))
        return [_finding(first, second, sum(counts.values()), sql, {**counts, "k": k})]

    return _of_pairs(attacker, find)


def composition(attacker: Attacker) -> Found:
    """Classes of two releases that have one sensitive value in common."""
    both = [{name.lower() for name in one.sensitive} for one in attacker.subjects]
    names = sorted(set.intersection(*both)) if both else []
    if len(attacker.subjects) >= 2 and not names:
        return [], ["needs a sensitive attribute that the releases have in common"]

    def find(first: Subject, second: Subject, linked: Link) -> list[Finding]:
        found = []
        for name in names:
            column = first.column(name) or name
            arguments = linked.first, linked.second, column, linked.attributes
            figures = attacker.figures(cp.composition_victims(*arguments))
            sql = attacker.shown.text(titled(cp.composition(*arguments), linked.titles))
            more = {"attribute": column, "pairs": figures["pairs"]}
            found.append(_finding(first, second, figures["victims"], sql, more))
        return found

    return _of_pairs(attacker, find)


def unsorted_matching(attacker: Attacker) -> Found:
    """Rows in the same places of two releases, or of a release and its source."""

    def find(first: Subject, second: Subject, linked: Link) -> list[Finding]:
        return [_by_position(attacker, linked, (str(first.path), str(second.path)), min(first.k, second.k))]

    private = attacker.private
    if private is None and len(attacker.subjects) < 2:
        return [], ["needs two releases, or a policy with the source"]
    findings, reasons = _of_pairs(attacker, find) if len(attacker.subjects) > 1 else ([], [])
    for one in attacker.subjects if private is not None else ():
        linked = _with_source(one, attacker.trees, private.run.source) if private is not None else None
        if linked is None:
            reasons.append(f"needs the policy that has the hierarchies of {one.path}")
        elif why := why_strange(attacker, one, linked.attributes):
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
        attributes.append(Linked(own, own, column, levels, (0,), tree.table, tree.height, True))
    return Link(one.relation, source_.relation, tuple(shared), tuple(attributes), ())
