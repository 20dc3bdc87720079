"""Linking: an outside table that names people is joined to a release on the quasi-identifiers.

Source: L. Sweeney, k-anonymity: a model for protecting privacy, International Journal on Uncertainty, Fuzziness and
Knowledge-based Systems 10(5), 2002, section 1 (figure 1: a voter list and hospital data).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlglot import exp

from sqlanon.attacks.attacker import Attacker, Found, why_strange
from sqlanon.attacks.findings import Finding
from sqlanon.expressions import col, named, template
from sqlanon.ledger.row_matching import LinkedAttribute, both_grouped, joined, titled

# Groups that meet; and those of the outside table with the rows they match.
_LINKED = """
    WITH "sqlanon met" AS MATERIALIZED (:pairs),
    "sqlanon linked" AS MATERIALIZED (
        SELECT :people, coalesce(s.matched, 0) AS matched, o.n, o.i
        FROM "sqlanon second" AS o
        LEFT JOIN (
            SELECT b, sum(n_a)::BIGINT AS matched
            FROM "sqlanon met" AS m
            GROUP BY b
        ) AS s ON o.i = s.b
    )
"""
_LINKING = template(f"""
    {_LINKED}
    SELECT :values, matched, n
    FROM "sqlanon linked" AS l
    WHERE matched BETWEEN 1 AND :most
""")  # noqa: S608 (a text of ours)
_LINKAGE = template(f"""
    {_LINKED}
    SELECT
        coalesce(sum(n) FILTER (WHERE matched = 0)::BIGINT, 0) AS none,
        coalesce(sum(n) FILTER (WHERE matched = 1)::BIGINT, 0) AS one,
        coalesce(sum(n) FILTER (WHERE matched BETWEEN 1 AND :most)::BIGINT, 0) AS fewer,
        (
            SELECT coalesce(sum(n)::BIGINT, 0)
            FROM (SELECT any_value(m.n_a) AS n FROM "sqlanon met" AS m GROUP BY m.a) AS a
        ) AS matched,
        (
            SELECT count(*) FILTER (WHERE n_a = 1 AND n_b = 1 AND pairs_a = 1 AND pairs_b = 1)
            FROM "sqlanon met" AS m
        ) AS identified,
        (
            SELECT coalesce(sum(n)::BIGINT, 0)
            FROM (
                SELECT any_value(m.n_a) AS n
                FROM "sqlanon met" AS m
                SEMI JOIN "sqlanon linked" AS l ON m.b = l.i AND matched BETWEEN 1 AND :most
                GROUP BY m.a
            ) AS a
        ) AS victims
    FROM "sqlanon linked" AS l
""")  # noqa: S608 (a text of ours)
_PAIR = template("""
    SELECT
        a.i AS a,
        b.i AS b,
        a.n AS n_a,
        b.n AS n_b,
        count(*) OVER (PARTITION BY a.i) AS pairs_a,
        count(*) OVER (PARTITION BY b.i) AS pairs_b
""")


def linking(release: exp.Expr, outside: exp.Expr, attributes: Sequence[LinkedAttribute], k: int) -> exp.Select:
    """Outside people whom some released rows fit, but fewer than k: ``v0`` .., their own values; ``matched``, the
    released rows that fit; and ``n``, how many of the outside table have these values.
    """
    values = [named(col(f"l{i}"), f"v{i}") for i in range(len(attributes))]
    query = _LINKING(**_met(attributes), values=values, most=k - 1)
    return both_grouped(query, release, outside, [], attributes)


def linkage(release: exp.Expr, outside: exp.Expr, attributes: Sequence[LinkedAttribute], k: int) -> exp.Select:
    """One row: of the outside table the rows that match ``none`` of the released rows, ``one``, and ``fewer`` than k
    (but some); the ``matched`` released rows, which somebody outside fits; ``identified``: pairs of a released row and
    a row outside that fit each other and nothing else; and ``victims``: the released rows that somebody fits whom
    fewer than k fit.
    """
    return both_grouped(_LINKAGE(**_met(attributes), most=k - 1), release, outside, [], attributes)


def _met(attributes: Sequence[LinkedAttribute]) -> dict[str, Any]:
    """The fillings of `_LINKED`."""
    return {
        "pairs": joined(_PAIR().expressions, attributes, 0),
        "people": [col(f"l{i}", "o") for i in range(len(attributes))],
    }


def find_linking(attacker: Attacker) -> Found:
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
                attributes.append(LinkedAttribute(name, name, column, levels, (0,), tree.table, tree.height, True))
        if not attributes:
            reasons.append(f"{one.path} and the table from outside have no quasi-identifier in common")
            continue
        if why := why_strange(attacker, one, attributes):
            reasons.append(why)
            continue
        arguments = one.relation, private.outside.relation, attributes, one.k
        figures = attacker.figures(linkage(*arguments))
        victims = figures.pop("victims")
        sql = attacker.script(titled(linking(*arguments), [linked.name for linked in attributes]))
        more = {**figures, "k": one.k, "attributes": [linked.name for linked in attributes]}
        findings.append(Finding((str(one.path),), victims, one.manifest.released_rows, sql, more))
    return findings, reasons
