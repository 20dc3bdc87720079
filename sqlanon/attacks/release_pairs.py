"""Attacks on two releases of one table; unsorted matching also on a release and its source.

Sources: L. Sweeney, k-anonymity: a model for protecting privacy, International Journal on Uncertainty, Fuzziness and
Knowledge-based Systems 10(5), 2002, section 4 (unsorted matching, complementary release, temporal attack); S. R. Ganta,
S. P. Kasiviswanathan, A. Smith, Composition attacks and auxiliary information in data privacy, KDD 2008 (composition:
a person is in a class of each release, and few sensitive values are in both).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sqlglot import exp

from sqlanon.attacks.attacker import Attacker, Found, why_strange
from sqlanon.attacks.findings import Finding
from sqlanon.expressions import aliased, all_of, cast, col, fragment, named, same, subquery, template
from sqlanon.ledger.joint_attacks import complementary_release, complementary_victims, rows_in, temporal
from sqlanon.ledger.release_links import ComparedRelease, ReleaseLink, Trees
from sqlanon.ledger.row_matching import (
    LinkedAttribute,
    both_grouped,
    finest,
    joined,
    keyed,
    meeting,
    of_several_levels,
    pairs_name,
    titled,
    within,
)
from sqlanon.sources import Source

# --- Composition

_PAIRS_WITH_ONE_VALUE = """
    WITH "sqlanon meeting" AS (:pairs),
    "sqlanon found" AS MATERIALIZED (
        SELECT
            :values,
            any_value(value) AS value,
            any_value(a) AS a,
            any_value(b) AS b,
            any_value(n_a) AS n_a,
            any_value(n_b) AS n_b,
            any_value(n) AS n
        FROM "sqlanon meeting"
        GROUP BY :values, :labels
        HAVING count(*) = 1
    )
"""
_COMPOSITION = template(f"""
    {_PAIRS_WITH_ONE_VALUE}
    SELECT :values, value, n
    FROM "sqlanon found"
""")  # noqa: S608 (a text of ours)
_COMPOSITION_VICTIMS = template(f"""
    {_PAIRS_WITH_ONE_VALUE}
    SELECT count(*) AS pairs, :rows AS victims
    FROM "sqlanon found"
""")  # noqa: S608 (a text of ours)
_FOUND = template('SELECT * FROM "sqlanon found"')
_PAIR = template("""
    SELECT a.s0 AS value, a.i AS a, b.i AS b, a.n AS n_a, b.n AS n_b, least(a.n, b.n) AS n
""")


def composition(first: exp.Expr, second: exp.Expr, sensitive: str, attributes: Sequence[LinkedAttribute]) -> exp.Select:
    """Pairs of classes that somebody can be in both of, and that have one sensitive value in common: ``v0`` .., the
    finest values of the two, ``value``, and ``n``, the rows that have it: no more than the lesser of the two classes.
    """
    query = _COMPOSITION(**_meeting_classes(attributes))
    return both_grouped(query, first, second, [sensitive], attributes)


def composition_victims(
    first: exp.Expr, second: exp.Expr, sensitive: str, attributes: Sequence[LinkedAttribute]
) -> exp.Select:
    """One row: the ``pairs`` that `composition` finds, and ``victims``, the released rows in them: on either side, each
    at most once; the lesser count.
    """
    query = _COMPOSITION_VICTIMS(**_meeting_classes(attributes), rows=rows_in(_FOUND()))
    return both_grouped(query, first, second, [sensitive], attributes)


def _meeting_classes(attributes: Sequence[LinkedAttribute]) -> dict[str, Any]:
    """The fillings of `_PAIRS_WITH_ONE_VALUE`."""
    labels: list[exp.Expr] = []
    for side in ("a", "b"):
        columns = [one.first if side == "a" else one.second for one in attributes]
        labels += [named(col(f"l{i}", side), f"{side}l{i}") for i, name in enumerate(columns) if name is not None]
    return {
        "pairs": joined([*finest(attributes), *labels, *_PAIR().expressions], attributes, 1),
        "values": _values(attributes),
        "labels": [col(label.alias) for label in labels],
    }


def _values(attributes: Sequence[LinkedAttribute]) -> list[exp.Expr]:
    return [col(f"v{i}") for i in range(len(attributes))]


# --- Unsorted matching: two tables in one order are joined by the positions of their rows

_POSITIONS = """
    WITH "sqlanon first placed" AS MATERIALIZED (:first),
    "sqlanon second placed" AS MATERIALIZED (:second),
    "sqlanon agreeing" AS MATERIALIZED (:agreeing)
"""
_UNSORTED_MATCHING = template(f"""
    {_POSITIONS}
    SELECT :values, count(*) AS n
    FROM "sqlanon agreeing"
    GROUP BY :values
    HAVING count(*) < :k
""")  # noqa: S608 (a text of ours)
_PLACES = template(f"""
    {_POSITIONS}
    SELECT
        least((SELECT count(*) FROM "sqlanon first placed"), (SELECT count(*) FROM "sqlanon second placed")) AS places,
        (SELECT count(*) FROM "sqlanon agreeing") AS agreeing,
        :meeting_pairs / nullif(
            (SELECT count(*) FROM "sqlanon first placed")::DOUBLE
                * (SELECT count(*) FROM "sqlanon second placed")::DOUBLE,
            0
        ) AS chance
""")  # noqa: S608 (a text of ours)
_PAIRS_OF_ROWS = fragment("coalesce(sum(a.n::DOUBLE * b.n::DOUBLE), 0)")
_IN_ORDER = template("SELECT :columns, row_number() OVER () AS n FROM :rows AS r")
_AGREEING = template("""
    SELECT :finest
    FROM "sqlanon first placed" AS a
    JOIN "sqlanon second placed" AS b ON a.n = b.n AND :meeting
""")


def unsorted_matching(
    first: exp.Expr, second: exp.Expr, shared: Sequence[str], attributes: Sequence[LinkedAttribute], k: int
) -> exp.Select:
    """Combinations of finest values of rows that are in the same place of two tables, fewer than k: ``v0`` .., ``n``.

    Only places count at which the rows can be the same. It means something where the order is the same, more or less:
    see `places`.
    """
    parts = _positions(first, second, shared, attributes)
    query = _UNSORTED_MATCHING(**parts, values=_values(attributes), k=k)
    return both_grouped(query, first, second, shared, attributes)


def places(
    first: exp.Expr, second: exp.Expr, shared: Sequence[str], attributes: Sequence[LinkedAttribute]
) -> exp.Select:
    """One row: ``places`` that both tables have, those ``agreeing``, at which the rows can be the same, and by
    ``chance`` the share of all pairs of rows that can: what a random order would give.
    """
    pairs = subquery(joined([_PAIRS_OF_ROWS()], attributes, len(shared)))
    query = _PLACES(**_positions(first, second, shared, attributes), meeting_pairs=pairs)
    return both_grouped(query, first, second, shared, attributes)


def _positions(
    first: exp.Expr, second: exp.Expr, shared: Sequence[str], attributes: Sequence[LinkedAttribute]
) -> dict[str, exp.Expr]:
    """The fillings of `_POSITIONS`: the rows of both tables by their places, and the places at which they agree."""
    agreeing = _AGREEING(finest=finest(attributes), meeting=meeting(attributes, len(shared)))
    for i, _ in of_several_levels(attributes):
        pair = [same(col(f"l{i}", "a"), col("one", f"c{i}")), same(col(f"l{i}", "b"), col("two", f"c{i}"))]
        agreeing = agreeing.join(within(pairs_name(i), f"c{i}"), on=all_of(pair), copy=False)
    in_order = [
        keyed(_in_order(rows, columns, shared), attributes, len(shared), is_first)
        for rows, columns, is_first in (
            (first, [one.first for one in attributes], True),
            (second, [one.second for one in attributes], False),
        )
    ]
    return {"first": in_order[0], "second": in_order[1], "agreeing": agreeing}


def _in_order(rows: exp.Expr, columns: Sequence[str | None], shared: Sequence[str]) -> exp.Select:
    """Rows as `groups` makes them, but one by one: ``n`` is the place of a row."""
    output: list[exp.Expr] = [
        named(cast(col(column, "r"), "VARCHAR"), f"l{i}") for i, column in enumerate(columns) if column is not None
    ]
    output += [named(col(column, "r"), f"s{j}") for j, column in enumerate(shared)]
    return _IN_ORDER(columns=output, rows=aliased(rows, "r"))


CERTAIN = 0.001
"""An order that chance gives less often than this is not by chance."""


def is_one_order(places: int, agreeing: int, chance: float | None) -> bool:
    """Whether two tables agree at more places than chance explains.

    By Chernoff's bound: n places of which each agrees with probability c have a share a > c of agreeing ones with
    probability at most exp(-n KL(a, c)), where KL(a, c) = a ln(a/c) + (1 - a) ln((1 - a)/(1 - c)). (W. Hoeffding,
    Probability inequalities for sums of bounded random variables, JASA 58, 1963, theorem 1.)

    >>> is_one_order(12, 12, 0.5), is_one_order(12, 7, 0.5), is_one_order(12, 12, 1.0)
    (True, False, False)
    """
    if not places or not chance or chance >= 1 or agreeing <= chance * places:
        return False
    share = agreeing / places
    distance = share * math.log(share / chance)
    if share < 1:
        distance += (1 - share) * math.log((1 - share) / (1 - chance))
    return places * distance >= -math.log(CERTAIN)


# --- The attacks


def find_complementary_release(attacker: Attacker) -> Found:
    """Combinations of few rows that two releases reveal together."""

    def find(first: ComparedRelease, second: ComparedRelease, linked: ReleaseLink) -> list[Finding]:
        k = min(first.k, second.k)
        arguments = linked.first, linked.second, linked.shared, linked.attributes, k
        figures = attacker.figures(complementary_victims(*arguments))
        sql = attacker.script(titled(complementary_release(*arguments), linked.titles))
        return [_finding(first, second, figures["victims"], sql, {"combinations": figures["combinations"], "k": k})]

    return _in_each_pair(attacker, find)


def find_temporal(attacker: Attacker) -> Found:
    """Few rows of a class that came, or went, between two releases."""

    def find(first: ComparedRelease, second: ComparedRelease, linked: ReleaseLink) -> list[Finding]:
        k = min(first.k, second.k)
        swapped = [one.swapped for one in linked.attributes]
        added = temporal(linked.first, linked.second, linked.shared, linked.attributes, k)
        removed = temporal(linked.second, linked.first, linked.shared, swapped, k)
        counts = {"added": attacker.victims(added), "removed": attacker.victims(removed)}
        sql = attacker.script(*(titled(query, linked.titles) for query in (added, removed)))
        return [_finding(first, second, sum(counts.values()), sql, {**counts, "k": k})]

    return _in_each_pair(attacker, find)


def find_composition(attacker: Attacker) -> Found:
    """Classes of two releases that have one sensitive value in common."""
    both = [{name.lower() for name in one.sensitive} for one in attacker.subjects]
    names = sorted(set.intersection(*both)) if both else []
    if len(attacker.subjects) >= 2 and not names:
        return [], ["needs a sensitive attribute that the releases have in common"]

    def find(first: ComparedRelease, second: ComparedRelease, linked: ReleaseLink) -> list[Finding]:
        found = []
        for name in names:
            column = first.column(name) or name
            arguments = linked.first, linked.second, column, linked.attributes
            figures = attacker.figures(composition_victims(*arguments))
            sql = attacker.script(titled(composition(*arguments), linked.titles))
            more = {"attribute": column, "pairs": figures["pairs"]}
            found.append(_finding(first, second, figures["victims"], sql, more))
        return found

    return _in_each_pair(attacker, find)


def find_unsorted_matching(attacker: Attacker) -> Found:
    """Rows in the same places of two releases, or of a release and its source."""

    def find(first: ComparedRelease, second: ComparedRelease, linked: ReleaseLink) -> list[Finding]:
        return [_by_position(attacker, linked, (str(first.path), str(second.path)), min(first.k, second.k))]

    private = attacker.private
    if private is None and len(attacker.subjects) < 2:
        return [], ["needs two releases, or a policy with the source"]
    findings, reasons = _in_each_pair(attacker, find) if len(attacker.subjects) > 1 else ([], [])
    for one in attacker.subjects if private is not None else ():
        linked = _with_source(one, attacker.trees, private.run.source) if private is not None else None
        if linked is None:
            reasons.append(f"needs the policy that has the hierarchies of {one.path}")
        elif why := why_strange(attacker, one, linked.attributes):
            reasons.append(why)
        else:
            findings.append(_by_position(attacker, linked, (str(one.path), "source"), one.k))
    return findings, reasons


def _by_position(attacker: Attacker, linked: ReleaseLink, names: tuple[str, str], k: int) -> Finding:
    arguments = linked.first, linked.second, linked.shared, linked.attributes
    found = attacker.figures(places(*arguments))
    ordered = is_one_order(found["places"], found["agreeing"], found["chance"])
    query = unsorted_matching(*arguments, k)
    victims = attacker.victims(query) if ordered else 0
    figures = {
        "ordered": ordered,
        "agreeing": found["agreeing"] / found["places"] if found["places"] else 0.0,
        "chance": found["chance"],
        "k": k,
    }
    return Finding(names, victims, found["places"], attacker.script(titled(query, linked.titles)), figures)


def _with_source(one: ComparedRelease, trees: Trees, source_: Source) -> ReleaseLink | None:
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
        attributes.append(LinkedAttribute(own, own, column, levels, (0,), tree.table, tree.height, True))
    return ReleaseLink(one.relation, source_.relation, tuple(shared), tuple(attributes), ())


def _in_each_pair(
    attacker: Attacker, find: Callable[[ComparedRelease, ComparedRelease, ReleaseLink], list[Finding]]
) -> Found:
    """An attack on all pairs of releases."""
    if len(attacker.subjects) < 2:
        return [], ["needs two releases of one table"]
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


def _finding(
    first: ComparedRelease, second: ComparedRelease, victims: int, sql: str, figures: Mapping[str, Any]
) -> Finding:
    rows = min(first.manifest.released_rows, second.manifest.released_rows)
    return Finding((str(first.path), str(second.path)), min(victims, rows), rows, sql, figures)
