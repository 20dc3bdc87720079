"""Attacks that match the rows of two tables: two releases, a release and its source, a release and a table from outside
that names people.

Sources: L. Sweeney, k-anonymity: a model for protecting privacy, International Journal on Uncertainty, Fuzziness and
Knowledge-based Systems 10(5), 2002, section 1 (linking; figure 1: a voter list and hospital data) and section 4
(unsorted matching, complementary release, temporal attack); S. R. Ganta, S. P. Kasiviswanathan, A. Smith, Composition
attacks and auxiliary information in data privacy, KDD 2008 (composition: a person is in a class of each release, and
few sensitive values are in both).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sqlglot import exp

from sqlanon.attacks.attacker import Attacker, AttackResult, ReleasePair, why_incomparable, why_pair_incomparable
from sqlanon.attacks.findings import Finding
from sqlanon.errors import NotComparedError
from sqlanon.ledger.joint.attacks import (
    complementary_release,
    count_complementary_victims,
    count_rows_in_pairs,
    group_pairs,
    readable_unions,
    temporal_attack,
)
from sqlanon.ledger.joint.label_pairs import LinkedAttribute, label_pairs_name
from sqlanon.ledger.joint.overlaps import count_shared_rows, subtraction
from sqlanon.ledger.joint.pair_audit import PairAudit
from sqlanon.ledger.joint.part_requirements import Part, SharedRequirement, readable_violations, shared_requirements
from sqlanon.ledger.joint.release_links import ComparedHierarchies, ComparedRelease
from sqlanon.ledger.joint.row_matching import (
    ReleaseLink,
    add_keys,
    add_titles,
    finest_values,
    join_groups,
    keys_match,
    with_comparison_parts,
)
from sqlanon.sources import Source
from sqlanon.support.expressions import (
    aliased,
    all_of,
    as_column,
    cast,
    col,
    fragment,
    null_safe_equal,
    prepend_ctes,
    select_star,
    subquery,
    table,
    template,
)

# --- Composition


def composition(link: ReleaseLink) -> exp.Select:
    """Pairs of classes that can contain the same person and have one value of the shared sensitive column in common:
    ``finest_0`` .., the finest values of the two, ``value``, and ``row_count``, the most rows that can have it."""
    query = template("SELECT :values, value, row_count FROM :pairs AS pairs")
    return with_comparison_parts(query(values=link.values, pairs=_one_value_pairs(link)), link)


def composition_victims(link: ReleaseLink) -> exp.Select:
    """One row: the number of ``pairs`` that `composition` finds, and of ``victims``: their rows in the release with
    fewer, each counted once."""
    query = template("""
        WITH "sqlanon pairs" AS MATERIALIZED (:pairs)
        SELECT count(*) AS pairs, :victims AS victims FROM "sqlanon pairs"
    """)
    victims = count_rows_in_pairs(select_star(table("sqlanon pairs")))
    return with_comparison_parts(query(pairs=_one_value_pairs(link), victims=victims), link)


def _one_value_pairs(link: ReleaseLink) -> exp.Select:
    labels: list[exp.Expr] = []
    for side, is_first in (("a", True), ("b", False)):
        labels += [as_column(col(f"label_{i}", side), f"{side}_label_{i}") for i, _ in link.side(is_first)[1]]
    columns = group_pairs(*finest_values(link), *labels, as_column(col("shared_0", "a"), "value"))
    pairs = join_groups(columns, link)
    # Pairs of classes by their finest values and labels: one row if they have a single sensitive value in common.
    return template("""
        SELECT
            :values,
            any_value(value) AS value,
            any_value(first_group) AS first_group,
            any_value(second_group) AS second_group,
            any_value(first_rows) AS first_rows,
            any_value(second_rows) AS second_rows,
            any_value(row_count) AS row_count
        FROM :pairs AS matching
        GROUP BY :values, :labels
        HAVING count(*) = 1
    """)(values=link.values, labels=[col(label.alias) for label in labels], pairs=pairs)


# --- Unsorted matching: two tables in the same order are joined by the positions of their rows

_FIRST, _SECOND = "sqlanon first positions", "sqlanon second positions"
_AGREEMENT = template("""
    SELECT
        least(f.rows, s.rows) AS positions,
        (SELECT count(*) FROM "sqlanon agreeing") AS agreeing,
        :matching_pairs / nullif(f.rows::DOUBLE * s.rows::DOUBLE, 0) AS chance
    FROM (SELECT count(*) AS rows FROM "sqlanon first positions") AS f
    CROSS JOIN (SELECT count(*) AS rows FROM "sqlanon second positions") AS s
""")
_CLASSES_BY_POSITION = template("""
    SELECT position, :class AS class
    FROM (SELECT :columns, row_number() OVER () AS position FROM :rows AS r) AS numbered
""")
# Rows of a class by their values, with the size of the class.
_CLASS_VALUES = template("""
    SELECT *, sum(row_count) OVER (PARTITION BY class) AS class_size
    FROM (
        SELECT c.class, :columns, count(*)::DOUBLE AS row_count
        FROM :positions AS p
        JOIN :classes AS c ON p.position = c.position
        GROUP BY c.class, :columns
    ) AS counted
""")
_EXPECTED_AGREEMENT = template("""
    SELECT
        coalesce(sum(o.positions * (a.row_count / a.class_size) * (b.row_count / b.class_size)), 0)::DOUBLE
    FROM "sqlanon overlaps" AS o
    JOIN "sqlanon first values" AS a ON a.class = o.first_class
    JOIN "sqlanon second values" AS b ON b.class = o.second_class AND :matching
""")


def unsorted_matching(link: ReleaseLink, k: int) -> exp.Select:
    """Combinations of finest values of rows at the same position of two tables, fewer than k: ``finest_0`` ..,
    ``row_count``.

    Only positions count whose rows can be the same. The result means something if the order is about the same: see
    `compare_positions`.
    """
    query = template("""
        SELECT :values, count(*) AS row_count
        FROM "sqlanon agreeing"
        GROUP BY :values
        HAVING count(*) < :k
    """)(values=link.values, k=k)
    return with_comparison_parts(_with_positions(query, link), link)


def compare_positions(link: ReleaseLink) -> exp.Select:
    """Compare the order of two tables by the rows at equal positions, in one row.

    Columns: ``positions``; ``agreeing``, the positions whose rows can be the same; ``chance``, the share of all pairs
    of rows that can be the same, which a random order would give.
    """
    pairs = join_groups([fragment("coalesce(sum(a.row_count::DOUBLE * b.row_count::DOUBLE), 0)")()], link)
    return with_comparison_parts(_with_positions(_AGREEMENT(matching_pairs=subquery(pairs)), link), link)


def chance_by_class(link: ReleaseLink, first: Sequence[str], second: Sequence[str] | None) -> exp.Select:
    """One row: the ``chance`` of `compare_positions` if the order within each class is random, and the order of the
    classes is the given one. Classes are equal in these columns; without columns, each row is a class."""
    parts: dict[str, exp.Expr] = {}
    for name, is_first, columns in (("first", True, first), ("second", False, second)):
        values = [col(column, "p") for column in _position_rows(link, is_first).named_selects if column != "position"]
        positions, classes = table(f"sqlanon {name} positions"), table(f"sqlanon {name} classes")
        parts[f"{name}_classes"] = number_classes(link.side(is_first)[0], columns)
        parts[f"{name}_values"] = _CLASS_VALUES(columns=values, positions=positions, classes=classes)
    expected = _join_label_pairs(_EXPECTED_AGREEMENT(matching=keys_match(link)), link)
    # The expected share of agreeing positions if rows are shuffled within their class.
    query = template("""
        WITH "sqlanon first classes" AS MATERIALIZED (:first_classes),
        "sqlanon second classes" AS MATERIALIZED (:second_classes),
        "sqlanon first values" AS MATERIALIZED (:first_values),
        "sqlanon second values" AS MATERIALIZED (:second_values),
        "sqlanon overlaps" AS MATERIALIZED (
            SELECT a.class AS first_class, b.class AS second_class, count(*) AS positions
            FROM "sqlanon first classes" AS a
            JOIN "sqlanon second classes" AS b ON a.position = b.position
            GROUP BY a.class, b.class
        )
        SELECT :agreeing / (SELECT sum(positions) FROM "sqlanon overlaps") AS chance
    """)(**parts, agreeing=subquery(expected))
    return with_comparison_parts(_with_positions(query, link, agreeing=False), link)


def number_classes(rows: exp.Expr, columns: Sequence[str] | None) -> exp.Select:
    """The rows of a table by their ``position``, with the number of their ``class``; without columns, each is one."""
    if columns is None:
        return _CLASSES_BY_POSITION(**{"class": col("position")}, columns=[], rows=rows)
    labels = [f"label_{i}" for i in range(len(columns))]
    values = [as_column(col(column, "r"), label) for column, label in zip(columns, labels, strict=True)]
    number = fragment("dense_rank() OVER (ORDER BY :columns)")(columns=[*map(col, labels)])
    return _CLASSES_BY_POSITION(**{"class": number}, columns=values, rows=rows)


def is_by_class(rows: exp.Expr, columns: Sequence[str]) -> exp.Select:
    """Whether the rows of each class are adjacent, in one row."""
    return template("""
        SELECT count(*) FILTER (WHERE begins) = count(DISTINCT class) AS is_by_class
        FROM (
            SELECT class, position = 1 OR class <> lag(class) OVER (ORDER BY position) AS begins
            FROM (:classes) AS c
        ) AS runs
    """)(classes=number_classes(rows, columns))


def _position_rows(link: ReleaseLink, is_first: bool) -> exp.Select:
    """The rows of a table as `group_rows` groups them, but one by one, with their ``position``."""
    rows, columns = link.side(is_first)
    output: list[exp.Expr] = [as_column(cast(col(column, "r"), "VARCHAR"), f"label_{i}") for i, column in columns]
    output += [as_column(col(column, "r"), f"shared_{j}") for j, column in enumerate(link.shared)]
    numbered = template("SELECT :columns, row_number() OVER () AS position FROM :rows AS r")
    return add_keys(numbered(columns=output, rows=aliased(rows, "r")), link, is_first)


def _with_positions(query: exp.Select, link: ReleaseLink, agreeing: bool = True) -> exp.Select:
    """A query with the rows of both tables by position, and the positions at which they can be the same."""
    parts = {_FIRST: _position_rows(link, is_first=True), _SECOND: _position_rows(link, is_first=False)}
    if agreeing:
        multilevel = {i for i, _ in link.multilevel_attributes}
        finest = [
            as_column(col("finer", f"c{i}"), value.alias) if i in multilevel else value
            for i, value in enumerate(finest_values(link))
        ]
        rows = template("""
            SELECT :finest
            FROM "sqlanon first positions" AS a
            JOIN "sqlanon second positions" AS b ON a.position = b.position AND :matching
        """)(finest=finest, matching=keys_match(link))
        parts["sqlanon agreeing"] = _join_label_pairs(rows, link)
    return prepend_ctes(query, parts, materialized=True)


def _join_label_pairs(query: exp.Select, link: ReleaseLink) -> exp.Select:
    """A query over rows ``a`` and ``b``, joined to the pairs of matching labels of several levels."""
    for i, _ in link.multilevel_attributes:
        pair = [
            null_safe_equal(col(f"label_{i}", "a"), col("first_label", f"c{i}")),
            null_safe_equal(col(f"label_{i}", "b"), col("second_label", f"c{i}")),
        ]
        query = query.join(table(label_pairs_name(i), alias=f"c{i}"), on=all_of(pair), copy=False)
    return query


_SIGNIFICANCE = 0.001


def have_same_order(positions: int, agreeing: int, chance: float | None) -> bool:
    """Whether two tables agree at more positions than chance explains.

    By Chernoff's bound: n positions that each agree with probability c have a share a > c of agreeing ones with
    probability at most exp(-n KL(a, c)), where KL(a, c) = a ln(a/c) + (1 - a) ln((1 - a)/(1 - c)). (W. Hoeffding,
    Probability inequalities for sums of bounded random variables, JASA 58, 1963, theorem 1.)

    >>> have_same_order(12, 12, 0.5), have_same_order(12, 7, 0.5), have_same_order(12, 12, 1.0)
    (True, False, False)
    """
    if not positions or not chance or chance >= 1 or agreeing <= chance * positions:
        return False
    share = agreeing / positions
    distance = share * math.log(share / chance)
    if share < 1:
        distance += (1 - share) * math.log((1 - share) / (1 - chance))
    return positions * distance >= -math.log(_SIGNIFICANCE)


# --- Linking

_MATCHES = "sqlanon matches"
_LINKED_PAIRS = template("""
    SELECT
        a.group_id AS released_group,
        b.group_id AS outside_group,
        a.row_count AS released_rows,
        b.row_count AS outside_rows,
        count(*) OVER (PARTITION BY a.group_id) AS outside_groups,
        count(*) OVER (PARTITION BY b.group_id) AS released_groups
""")
_OUTSIDE_GROUPS = template("""
    SELECT :people, coalesce(s.matched, 0) AS matched, o.row_count, o.group_id
    FROM "sqlanon second" AS o
    LEFT JOIN (
        SELECT outside_group, sum(released_rows)::BIGINT AS matched
        FROM "sqlanon matches" AS m
        GROUP BY outside_group
    ) AS s ON o.group_id = s.outside_group
""")
_LINKING = template("""
    SELECT :values, matched, row_count
    FROM "sqlanon linked" AS l
    WHERE matched BETWEEN 1 AND :limit
""")
_LINKAGE = template("""
    WITH "sqlanon released" AS (
        SELECT
            released_group,
            any_value(m.released_rows) AS row_count,
            bool_or(l.matched BETWEEN 1 AND :limit) AS is_victim
        FROM "sqlanon matches" AS m
        JOIN "sqlanon linked" AS l ON m.outside_group = l.group_id
        GROUP BY m.released_group
    )
    SELECT
        coalesce(sum(row_count) FILTER (WHERE matched = 0)::BIGINT, 0) AS none,
        coalesce(sum(row_count) FILTER (WHERE matched = 1)::BIGINT, 0) AS one,
        coalesce(sum(row_count) FILTER (WHERE matched BETWEEN 1 AND :limit)::BIGINT, 0) AS fewer,
        (SELECT coalesce(sum(row_count)::BIGINT, 0) FROM "sqlanon released" AS r) AS matched,
        (
            SELECT count(*) FILTER (
                WHERE released_rows = 1 AND outside_rows = 1 AND outside_groups = 1 AND released_groups = 1
            )
            FROM "sqlanon matches" AS m
        ) AS identified,
        (SELECT coalesce(sum(row_count)::BIGINT, 0) FROM "sqlanon released" AS r WHERE is_victim) AS victims
    FROM "sqlanon linked" AS l
""")


def linking(link: ReleaseLink, k: int) -> exp.Select:
    """Outside people who match some released rows, but fewer than k: ``finest_0`` .., their own values; ``matched``,
    the matching released rows; and ``row_count``, the people of the outside table with these values."""
    values = [as_column(col(f"label_{i}"), f"finest_{i}") for i in range(len(link.attributes))]
    return with_comparison_parts(_with_people(_LINKING(values=values, limit=k - 1), link), link)


def linkage(link: ReleaseLink, k: int) -> exp.Select:
    """Count how the rows of an outside table match the released rows, in one row.

    Columns: ``none``, ``one`` and ``fewer``, the outside rows with no match, with one, and with fewer than k but some;
    ``matched``, the released rows with a match; ``identified``, the pairs of a released and an outside row that match
    each other only; ``victims``, the released rows that match a person whom fewer than k match.
    """
    return with_comparison_parts(_with_people(_LINKAGE(limit=k - 1), link), link)


def _with_people(query: exp.Select, link: ReleaseLink) -> exp.Select:
    people = [col(f"label_{i}", "o") for i in range(len(link.attributes))]
    pairs = join_groups(_LINKED_PAIRS().expressions, link)
    return prepend_ctes(query, {_MATCHES: pairs, "sqlanon linked": _OUTSIDE_GROUPS(people=people)}, materialized=True)


# --- The attacks

MAX_SHOWN_CLASSES = 5000
"""Maximum number of classes of two releases whose regions are shown in SQL: a statement takes all pairs of a region."""


def find_complementary_release(attacker: Attacker) -> AttackResult:
    """Combinations of few rows by the values of two releases, or by the counts of overlapping classes; and joined
    classes that do not meet the requirements of the policies."""
    pairs, reasons = _comparable_pairs(attacker)
    findings = []
    for pair in pairs:
        first, second, link, k = pair.first, pair.second, pair.link, pair.k
        counts = with_comparison_parts(count_complementary_victims(link, k), link, as_numbers=True)
        figures = attacker.fetch_figures(counts)
        group_count, victims = figures["combinations"], [figures["victims"]]
        queries = [complementary_release(link, k)]
        try:
            shared_groups, more_victims, more_queries = _subtract(attacker, pair)
            group_count += shared_groups
            victims += more_victims
            queries += more_queries
        except NotComparedError as error:
            reasons.append(f"{first.path} and {second.path} are not subtracted: {error}")
        for requirement in _requirements(first, second, link):
            query = readable_violations(link, requirement, "joined")
            if count := attacker.count_victims(query):
                victims.append(count)
                queries.append(query)
        figures = {"combinations": group_count, "k": k}
        findings.append(attacker.make_finding([first, second], queries, link.titles, figures, max(victims)))
    return findings, reasons


def _subtract(attacker: Attacker, pair: ReleasePair) -> tuple[int, list[int], list[exp.Select]]:
    """The pairs of overlapping classes that share some rows by the counts of both, but fewer than k; the victims in
    these, or in joined classes that break a requirement by these counts; and the queries. Masked rows are left out."""
    k, link = pair.k, pair.without_masked_rows.link
    if not (attacker.counts and link.multilevel_attributes):
        return 0, [], []
    with PairAudit.open(attacker.engine, attacker.work, link, k) as audit:
        overlaps = audit.find_overlaps()
        if overlaps.few:
            rows = count_shared_rows(overlaps.few)
            return len(rows), [sum(rows.values())], [subtraction(link, overlaps.few)]
        victims, queries = list[int](), list[exp.Select]()
        for requirement in _requirements(pair.first, pair.second, link) if overlaps.bounds else ():
            classes, count = audit.count_violations(requirement, "joined by counts")
            if classes:
                shared_rows = audit.list_shared_rows(requirement)
                victims.append(count)
                queries.append(readable_violations(link, requirement, "joined by counts", shared_rows))
    return 0, victims, queries


def _requirements(first: ComparedRelease, second: ComparedRelease, link: ReleaseLink) -> list[SharedRequirement]:
    """The requirements of both policies on classes, as far as both releases show the attribute."""
    requirements = {
        requirement.name: requirement
        for release in (first, second)
        if release.privacy is not None
        for requirement in shared_requirements(release.privacy, release.sensitive, link)
    }
    return [*requirements.values()]


def find_temporal(attacker: Attacker) -> AttackResult:
    """New or removed rows of a class, of overlapping classes, or of the table, that are few or do not meet the
    requirements of the policies."""
    pairs, reasons = _comparable_pairs(attacker)
    findings = []
    for pair in pairs:
        link = pair.link
        with PairAudit.open(attacker.engine, attacker.work, pair.without_masked_rows.link, pair.k) as audit:
            added, queries = _find_new_rows(attacker, pair, link, audit, reasons)
            removed, removed_queries = _find_new_rows(attacker, pair, link.in_reverse, audit.in_reverse, reasons)
        figures = {"added": added, "removed": removed, "k": pair.k}
        queries += removed_queries
        findings.append(
            attacker.make_finding([pair.first, pair.second], queries, link.titles, figures, added + removed)
        )
    return findings, reasons


def _find_new_rows(
    attacker: Attacker, pair: ReleasePair, link: ReleaseLink, audit: PairAudit, reasons: list[str]
) -> tuple[int, list[exp.Select]]:
    """The victims among the rows that the second release of a link adds, and the queries that show them.

    ``audit`` leaves out masked rows, which are a separate class in ``link``.
    """
    unmatched = _list_unmatched(attacker, pair, audit, reasons)
    queries = [temporal_attack(audit.link, pair.k, unmatched)]
    queries += [readable_unions(link, pair.k, union) for union in ("class", "table")]
    parts: list[tuple[ReleaseLink, Part]] = [(audit.link, "new"), (link, "class"), (link, "table")]
    for requirement in _requirements(pair.first, pair.second, link):
        queries += [readable_violations(part_link, requirement, part, (), unmatched) for part_link, part in parts]
    victims = [attacker.count_victims(query) for query in queries]
    regions = _find_in_regions(attacker, pair, audit, unmatched, reasons)
    shown_queries = [query for query, count in zip(queries, victims, strict=True) if count] or queries[:1]
    shown_queries += [query for _, query in regions if query is not None]
    return max(*victims, *(rows for rows, _ in regions)), shown_queries


def _list_unmatched(
    attacker: Attacker, pair: ReleasePair, audit: PairAudit, reasons: list[str]
) -> list[tuple[Any, ...]]:
    """The input of queries that show new rows; adds a reason if there are too many classes."""
    try:
        return audit.list_unmatched() if attacker.counts else []
    except NotComparedError as error:
        reasons.append(f"rows that are new in classes of {pair.second.path} or gone are not counted: {error}")
        return []


def _find_in_regions(
    attacker: Attacker, pair: ReleasePair, audit: PairAudit, unmatched: list[tuple[Any, ...]], reasons: list[str]
) -> list[tuple[int, exp.Select | None]]:
    """The new rows of overlapping classes that are few, or do not meet a requirement, and their queries; adds a reason
    if there are too many classes for a query."""
    if not (attacker.counts and audit.link.multilevel_attributes):
        return []
    first, second, link, k = pair.first, pair.second, audit.link, pair.k
    try:
        regions = [(audit.count_new_rows("region")[1], readable_unions(link, k, "region", unmatched))]
        for requirement in _requirements(first, second, link):
            query = readable_violations(link, requirement, "region", (), unmatched)
            regions.append((audit.count_violations(requirement, "region")[1], query))
    except NotComparedError as error:
        reasons.append(f"rows that overlapping classes of {first.path} and {second.path} gain are not counted: {error}")
        return []
    if first.manifest.classes + second.manifest.classes <= MAX_SHOWN_CLASSES:
        return [(rows, query) for rows, query in regions if rows]
    if any(rows for rows, _ in regions):
        reasons.append(
            f"the SQL for rows that overlapping classes of {first.path} and {second.path} gain is left out: it takes "
            f"too long for more than {MAX_SHOWN_CLASSES:,} classes"
        )
    return [(rows, None) for rows, _ in regions]


def find_composition(attacker: Attacker) -> AttackResult:
    """Classes of two releases that have one sensitive value in common."""
    sensitive = [{name.lower() for name in release.sensitive} for release in attacker.releases]
    names = sorted(set.intersection(*sensitive)) if sensitive else []
    if len(attacker.releases) >= 2 and not names:
        return [], ["needs a sensitive attribute that both releases have"]
    pairs, reasons = _comparable_pairs(attacker)
    findings = []
    for pair in pairs:
        for name in names:
            column = pair.first.column(name) or name
            link = replace(pair.link, shared=(column,))
            counts = attacker.fetch_figures(composition_victims(link))
            figures = {"attribute": column, "pairs": counts["pairs"]}
            releases, victims = [pair.first, pair.second], counts["victims"]
            findings.append(attacker.make_finding(releases, [composition(link)], link.titles, figures, victims))
    return findings, reasons


def find_unsorted_matching(attacker: Attacker) -> AttackResult:
    """Rows at the same positions of two releases, or of a release and its source."""
    private = attacker.private
    if private is None and len(attacker.releases) < 2:
        return [], ["needs two releases, or a policy with the source"]
    pairs, reasons = _comparable_pairs(attacker) if len(attacker.releases) > 1 else ([], [])
    findings = [_match_positions(attacker, pair.link, (pair.first, pair.second)) for pair in pairs]
    for release in () if private is None else attacker.releases:
        assert private is not None
        compared = release.with_sets_as_text
        link = _link_source(compared, attacker.hierarchies, private.run.source)
        if link is None:
            reasons.append(f"needs the policy with the hierarchies of {compared.path}")
        elif reason := why_incomparable(attacker, compared, link.attributes):
            reasons.append(reason)
        else:
            findings.append(_match_positions(attacker, link, (compared,)))
    return findings, reasons


def find_linking(attacker: Attacker) -> AttackResult:
    """Link a table from outside to each release."""
    private = attacker.private
    if private is None or private.outside is None:
        return [], ["needs a policy and an outside table"]
    outside_columns = {name.lower(): name for name in private.outside.columns}
    findings, reasons = [], []
    for release in (release.with_sets_as_text for release in attacker.releases):
        attributes = []
        for name in release.manifest.quasi_identifiers:
            column = outside_columns.get(name.lower())
            if column is not None and (attribute := _link_values(release, private.compared, name, column)) is not None:
                attributes.append(attribute)
        if not attributes:
            reasons.append(f"{release.path} and the outside table have no quasi-identifier in common")
        elif reason := why_incomparable(attacker, release, attributes):
            reasons.append(reason)
        else:
            link = ReleaseLink(release.relation, private.outside.relation, (), tuple(attributes))
            figures = attacker.fetch_figures(linkage(link, release.k))
            victims, query = figures.pop("victims"), linking(link, release.k)
            figures |= {"k": release.k, "attributes": link.titles}
            findings.append(attacker.make_finding([release], [query], link.titles, figures, victims))
    return findings, reasons


def _match_positions(attacker: Attacker, link: ReleaseLink, releases: Sequence[ComparedRelease]) -> Finding:
    """Match two releases by the positions of their rows, or one release and its source."""
    figures = attacker.fetch_figures(compare_positions(link))
    quasi = [release.manifest.quasi_identifiers for release in releases]
    if attacker.counts and all(
        attacker.fetch_figures(is_by_class(release.relation, names))["is_by_class"]
        for release, names in zip(releases, quasi, strict=True)
    ):
        figures |= attacker.fetch_figures(chance_by_class(link, quasi[0], quasi[1] if len(quasi) > 1 else None))
    positions, agreeing, chance = (figures[name] for name in ("positions", "agreeing", "chance"))
    ordered, k = have_same_order(positions, agreeing, chance), min(release.k for release in releases)
    query = unsorted_matching(link, k)
    share = agreeing / positions if positions else 0.0
    return Finding(
        (*(str(release.path) for release in releases), *(["source"] if len(releases) == 1 else [])),
        attacker.count_victims(query) if ordered else 0,
        positions,
        attacker.writer.write(add_titles(query, link.titles)),
        {"ordered": ordered, "agreeing": share, "chance": chance, "k": k},
    )


def _link_values(
    release: ComparedRelease, hierarchies: ComparedHierarchies, name: str, column: str
) -> LinkedAttribute | None:
    """A quasi-identifier of a release, paired with a column of values; None if its hierarchy is unknown."""
    key = name.lower()
    hierarchy = hierarchies.find(key, [release.rule(key)])
    if hierarchy is None:
        return None
    levels, member_level = hierarchy.levels(release, key), hierarchy.member_level(release, key)
    sets = None if member_level is None else (member_level, 0)
    return LinkedAttribute(name, name, column, levels, (0,), hierarchy.table, hierarchy.height, ranges=True, sets=sets)


def _link_source(release: ComparedRelease, hierarchies: ComparedHierarchies, source: Source) -> ReleaseLink | None:
    """Link a release to its source; None if a hierarchy is unknown."""
    source_columns = {name.lower(): name for name in source.columns}
    attributes, shared = [], []
    for name in release.columns:
        source_column, column = source_columns.get(name), release.column(name)
        if source_column is None or column is None:
            continue
        if not release.is_quasi(name):
            shared += [column] if source.columns[source_column] == release.columns[name] else []
            continue
        attribute = _link_values(release, hierarchies, column, source_column)
        if attribute is None:
            return None
        attributes.append(attribute)
    return ReleaseLink(release.relation, source.relation, tuple(shared), tuple(attributes))


def _comparable_pairs(attacker: Attacker) -> tuple[list[ReleasePair], list[str]]:
    """The pairs of releases whose labels can be compared, the earlier first; and why others cannot."""
    if len(attacker.releases) < 2:
        return [], ["needs two releases of one table"]
    pairs, reasons = [], []
    for pair in attacker.list_pairs():
        if missing := pair.link.missing:
            names = ", ".join(map(repr, missing))
            reasons.append(
                f"needs a policy with the hierarchies of {names}: the releases have labels of different levels"
            )
        elif reason := why_pair_incomparable(attacker, pair):
            reasons.append(reason)
        else:
            pairs.append(pair)
    return pairs, reasons
