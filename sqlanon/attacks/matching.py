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
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlglot import exp

from sqlanon.attacks.attacker import Attacker, Found, ReleasePair, why_not_both, why_strange
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
    subquery,
    table,
    template,
)

# --- Composition

_PAIRS_WITH_ONE_VALUE = """
    WITH "sqlanon meeting" AS (:pairs),
    "sqlanon found" AS MATERIALIZED (
        SELECT
            :values,
            any_value(value) AS value,
            any_value(first_group) AS first_group,
            any_value(second_group) AS second_group,
            any_value(first_rows) AS first_rows,
            any_value(second_rows) AS second_rows,
            any_value(row_count) AS row_count
        FROM "sqlanon meeting"
        GROUP BY :values, :labels
        HAVING count(*) = 1
    )
"""
_COMPOSITION = template(f"""
    {_PAIRS_WITH_ONE_VALUE}
    SELECT :values, value, row_count
    FROM "sqlanon found"
""")  # noqa: S608 (a text of ours)
_COMPOSITION_VICTIMS = template(f"""
    {_PAIRS_WITH_ONE_VALUE}
    SELECT count(*) AS pairs, :rows AS victims
    FROM "sqlanon found"
""")  # noqa: S608 (a text of ours)
_FOUND = template('SELECT * FROM "sqlanon found"')


def composition(linked: ReleaseLink) -> exp.Select:
    """Pairs of classes that somebody can be in both of, and that have one value of a sensitive attribute, the shared
    column, in common: ``finest_0`` .., the finest values of the two, ``value``, and ``row_count``, the rows that have
    it: no more than the lesser of the two classes.
    """
    return with_comparison_parts(_COMPOSITION(**_meeting_classes(linked)), linked)


def composition_victims(linked: ReleaseLink) -> exp.Select:
    """One row: the ``pairs`` that `composition` finds, and ``victims``, the released rows in them: on either side, each
    at most once; the lesser count.
    """
    return with_comparison_parts(
        _COMPOSITION_VICTIMS(**_meeting_classes(linked), rows=count_rows_in_pairs(_FOUND())), linked
    )


def _meeting_classes(linked: ReleaseLink) -> dict[str, Any]:
    """The fillings of `_PAIRS_WITH_ONE_VALUE`."""
    labels: list[exp.Expr] = []
    for side, is_first in (("a", True), ("b", False)):
        labels += [as_column(col(f"label_{i}", side), f"{side}_label_{i}") for i, _ in linked.side(is_first)[1]]
    return {
        "pairs": join_groups(
            [*finest_values(linked), *labels, *group_pairs(as_column(col("shared_0", "a"), "value"))], linked
        ),
        "values": linked.values,
        "labels": [col(label.alias) for label in labels],
    }


# --- Unsorted matching: two tables in one order are joined by the positions of their rows

_POSITIONS = """
    WITH "sqlanon first placed" AS MATERIALIZED (:first),
    "sqlanon second placed" AS MATERIALIZED (:second),
    "sqlanon agreeing" AS MATERIALIZED (:agreeing)
"""
_UNSORTED_MATCHING = template(f"""
    {_POSITIONS}
    SELECT :values, count(*) AS row_count
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
_PAIRS_OF_ROWS = fragment("coalesce(sum(a.row_count::DOUBLE * b.row_count::DOUBLE), 0)")
_IN_ORDER = template("SELECT :columns, row_number() OVER () AS n FROM :rows AS r")
_AGREEING = template("""
    SELECT :finest
    FROM "sqlanon first placed" AS a
    JOIN "sqlanon second placed" AS b ON a.n = b.n AND :meeting
""")
_BLOCKS = template("""
    SELECT n, :block AS block
    FROM (SELECT :columns, row_number() OVER () AS n FROM :rows AS r) AS p
""")
_CLASS = fragment("dense_rank() OVER (ORDER BY :columns)")
_IS_BY_CLASS = template("""
    SELECT count(*) FILTER (WHERE begins) = count(DISTINCT block) AS is_by_class
    FROM (
        SELECT block, n = 1 OR block <> lag(block) OVER (ORDER BY n) AS begins
        FROM (:blocks) AS b
    ) AS c
""")
_PARTS = template("""
    SELECT *, sum(n) OVER (PARTITION BY block) AS size
    FROM (
        SELECT b.block, :columns, count(*)::DOUBLE AS n
        FROM :placed AS p
        JOIN :blocks AS b ON p.n = b.n
        GROUP BY b.block, :columns
    ) AS g
""")
_CHANCE_BY_CLASS = template("""
    WITH "sqlanon first placed" AS MATERIALIZED (:first),
    "sqlanon second placed" AS MATERIALIZED (:second),
    "sqlanon first blocks" AS MATERIALIZED (:first_blocks),
    "sqlanon second blocks" AS MATERIALIZED (:second_blocks),
    "sqlanon first parts" AS MATERIALIZED (:first_parts),
    "sqlanon second parts" AS MATERIALIZED (:second_parts),
    "sqlanon overlaps" AS MATERIALIZED (
        SELECT a.block AS first_block, b.block AS second_block, count(*) AS places
        FROM "sqlanon first blocks" AS a
        JOIN "sqlanon second blocks" AS b ON a.n = b.n
        GROUP BY a.block, b.block
    )
    SELECT :agreeing / (SELECT sum(places) FROM "sqlanon overlaps") AS chance
""")
_EXPECTED = template("""
    SELECT coalesce(sum(o.places * (a.n / a.size) * (b.n / b.size)), 0)::DOUBLE
    FROM "sqlanon overlaps" AS o
    JOIN "sqlanon first parts" AS a ON a.block = o.first_block
    JOIN "sqlanon second parts" AS b ON b.block = o.second_block AND :meeting
""")


def unsorted_matching(linked: ReleaseLink, k: int) -> exp.Select:
    """Combinations of finest values of rows that are in the same place of two tables, fewer than k: ``finest_0`` ..,
    ``row_count``.

    Only places count at which the rows can be the same. It means something where the order is the same, more or less:
    see `places`.
    """
    return with_comparison_parts(_UNSORTED_MATCHING(**_positions(linked), values=linked.values, k=k), linked)


def places(linked: ReleaseLink) -> exp.Select:
    """One row: ``places`` that both tables have, those ``agreeing``, at which the rows can be the same, and by
    ``chance`` the share of all pairs of rows that can: what a random order would give.
    """
    pairs = subquery(join_groups([_PAIRS_OF_ROWS()], linked))
    return with_comparison_parts(_PLACES(**_positions(linked), meeting_pairs=pairs), linked)


def chance_by_class(linked: ReleaseLink, first: Sequence[str], second: Sequence[str] | None) -> exp.Select:
    """One row: the ``chance`` of `places` where the order inside each class is random, and the order of the classes is
    as it is; classes by these columns. Without columns the second table has its own order.
    """
    names, parts = ("first", "second"), dict[str, exp.Expr]()
    for name, is_first, columns in zip(names, (True, False), (first, second), strict=True):
        placed = add_keys(_in_order(linked, is_first), linked, is_first)
        own = [col(one, "p") for one in placed.named_selects if one != "n"]
        tables = {"placed": table(f"sqlanon {name} placed"), "blocks": table(f"sqlanon {name} blocks")}
        parts[name] = placed
        parts[f"{name}_blocks"] = blocks(linked.side(is_first)[0], columns)
        parts[f"{name}_parts"] = _PARTS(columns=own, **tables)
    expected = _with_pairs(_EXPECTED(meeting=keys_match(linked)), linked)
    return with_comparison_parts(_CHANCE_BY_CLASS(**parts, agreeing=subquery(expected)), linked)


def blocks(rows: exp.Expr, columns: Sequence[str] | None) -> exp.Select:
    """The rows of a table by their places, ``n``, with the number of their class, ``block``: by columns, or each row
    by itself."""
    if columns is None:
        return _BLOCKS(block=col("n"), columns=[], rows=rows)
    labels = [f"label_{i}" for i in range(len(columns))]
    values = [as_column(col(column, "r"), label) for column, label in zip(columns, labels, strict=True)]
    return _BLOCKS(block=_CLASS(columns=[*map(col, labels)]), columns=values, rows=rows)


def is_by_class(rows: exp.Expr, columns: Sequence[str]) -> exp.Select:
    """One row: whether the rows of each class follow one another."""
    return _IS_BY_CLASS(blocks=blocks(rows, columns))


def _positions(linked: ReleaseLink) -> dict[str, exp.Expr]:
    """The fillings of `_POSITIONS`: the rows of both tables by their places, and the places at which they agree."""
    agreeing = _with_pairs(_AGREEING(finest=finest_values(linked), meeting=keys_match(linked)), linked)
    first, second = (add_keys(_in_order(linked, is_first), linked, is_first) for is_first in (True, False))
    return {"first": first, "second": second, "agreeing": agreeing}


def _with_pairs(query: exp.Select, linked: ReleaseLink) -> exp.Select:
    """A query over rows ``a`` and ``b``, joined to the pairs of labels of several levels that meet."""
    for i, _ in linked.multilevel_attributes:
        pair = [
            null_safe_equal(col(f"label_{i}", "a"), col("first_label", f"c{i}")),
            null_safe_equal(col(f"label_{i}", "b"), col("second_label", f"c{i}")),
        ]
        query = query.join(table(label_pairs_name(i), alias=f"c{i}"), on=all_of(pair), copy=False)
    return query


def _in_order(linked: ReleaseLink, is_first: bool) -> exp.Select:
    """Rows as `groups` makes them, but one by one: ``n`` is the place of a row."""
    rows, there = linked.side(is_first)
    output: list[exp.Expr] = [as_column(cast(col(column, "r"), "VARCHAR"), f"label_{i}") for i, column in there]
    output += [as_column(col(column, "r"), f"shared_{j}") for j, column in enumerate(linked.shared)]
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


# --- Linking

# Groups that meet; and those of the outside table with the rows they match.
_LINKED = """
    WITH "sqlanon met" AS MATERIALIZED (:pairs),
    "sqlanon linked" AS MATERIALIZED (
        SELECT :people, coalesce(s.matched, 0) AS matched, o.row_count, o.group_id
        FROM "sqlanon second" AS o
        LEFT JOIN (
            SELECT second_group, sum(first_rows)::BIGINT AS matched
            FROM "sqlanon met" AS m
            GROUP BY second_group
        ) AS s ON o.group_id = s.second_group
    )
"""
_LINKING = template(f"""
    {_LINKED}
    SELECT :values, matched, row_count
    FROM "sqlanon linked" AS l
    WHERE matched BETWEEN 1 AND :most
""")  # noqa: S608 (a text of ours)
_LINKAGE = template(f"""
    {_LINKED}
    SELECT
        coalesce(sum(row_count) FILTER (WHERE matched = 0)::BIGINT, 0) AS none,
        coalesce(sum(row_count) FILTER (WHERE matched = 1)::BIGINT, 0) AS one,
        coalesce(sum(row_count) FILTER (WHERE matched BETWEEN 1 AND :most)::BIGINT, 0) AS fewer,
        (
            SELECT coalesce(sum(row_count)::BIGINT, 0)
            FROM (SELECT any_value(m.first_rows) AS row_count FROM "sqlanon met" AS m GROUP BY m.first_group) AS a
        ) AS matched,
        (
            SELECT count(*) FILTER (WHERE first_rows = 1 AND second_rows = 1 AND first_pairs = 1 AND second_pairs = 1)
            FROM "sqlanon met" AS m
        ) AS identified,
        (
            SELECT coalesce(sum(row_count)::BIGINT, 0)
            FROM (
                SELECT any_value(m.first_rows) AS row_count
                FROM "sqlanon met" AS m
                SEMI JOIN "sqlanon linked" AS l ON m.second_group = l.group_id AND matched BETWEEN 1 AND :most
                GROUP BY m.first_group
            ) AS a
        ) AS victims
    FROM "sqlanon linked" AS l
""")  # noqa: S608 (a text of ours)
_LINKED_PAIR = template("""
    SELECT
        a.group_id AS first_group,
        b.group_id AS second_group,
        a.row_count AS first_rows,
        b.row_count AS second_rows,
        count(*) OVER (PARTITION BY a.group_id) AS first_pairs,
        count(*) OVER (PARTITION BY b.group_id) AS second_pairs
""")


def linking(linked: ReleaseLink, k: int) -> exp.Select:
    """Outside people whom some released rows fit, but fewer than k: ``finest_0`` .., their own values; ``matched``, the
    released rows that fit; and ``row_count``, how many of the outside table have these values.
    """
    values = [as_column(col(f"label_{i}"), f"finest_{i}") for i in range(len(linked.attributes))]
    return with_comparison_parts(_LINKING(**_people(linked), values=values, most=k - 1), linked)


def linkage(linked: ReleaseLink, k: int) -> exp.Select:
    """One row: of the outside table the rows that match ``none`` of the released rows, ``one``, and ``fewer`` than k
    (but some); the ``matched`` released rows, which somebody outside fits; ``identified``: pairs of a released row and
    a row outside that fit each other and nothing else; and ``victims``: the released rows that somebody fits whom
    fewer than k fit.
    """
    return with_comparison_parts(_LINKAGE(**_people(linked), most=k - 1), linked)


def _people(linked: ReleaseLink) -> dict[str, Any]:
    """The fillings of `_LINKED`."""
    people = [col(f"label_{i}", "o") for i in range(len(linked.attributes))]
    return {"pairs": join_groups(_LINKED_PAIR().expressions, linked), "people": people}


# --- The attacks

MOST_CLASSES = 5000
"""The most classes of two releases whose regions are shown in SQL: one statement takes all pairs of a region."""


def find_complementary_release(attacker: Attacker) -> Found:
    """What two releases reveal together: combinations of few rows, by values or by the counts of overlapping classes;
    and joined classes that do not meet the requirements of the policies."""
    pairs, reasons = _comparable_pairs(attacker)
    findings = []
    for pair in pairs:
        first, second, linked, k = pair.first, pair.second, pair.linked, pair.k
        figures = attacker.figures(
            with_comparison_parts(count_complementary_victims(linked, k), linked, as_numbers=True)
        )
        combinations, victims = figures["combinations"], [figures["victims"]]
        queries = [complementary_release(linked, k)]
        try:
            shared, more_victims, more_queries = _subtract(attacker, pair)
            combinations += shared
            victims += more_victims
            queries += more_queries
        except NotComparedError as error:
            reasons.append(f"{first.path} and {second.path} are not subtracted: {error}")
        for wanted in _requirements(first, second, linked):
            query = readable_violations(linked, k, wanted, "joined")
            if found := attacker.victims(query):
                victims.append(found)
                queries.append(query)
        more = {"combinations": combinations, "k": k}
        sql = attacker.script(*(add_titles(query, linked.titles) for query in queries))
        findings.append(_finding(first, second, max(victims), sql, more))
    return findings, reasons


def _subtract(attacker: Attacker, pair: ReleasePair) -> tuple[int, list[int], list[exp.Select]]:
    """The pairs of overlapping classes that share some rows by the counts of both, but fewer than k; the victims in
    these, or in joined classes that break a requirement by these counts; and the queries. Masked rows are left out."""
    k, linked = pair.k, pair.without_masked_rows.linked
    if not (attacker.counts and linked.multilevel_attributes):
        return 0, [], []
    with PairAudit.open(attacker.engine, attacker.work, linked, k) as audit:
        overlaps = audit.find_overlaps()
        if overlaps.few:
            rows = count_shared_rows(overlaps.few)
            return len(rows), [sum(rows.values())], [subtraction(linked, k, overlaps.few)]
        victims, queries = list[int](), list[exp.Select]()
        for wanted in _requirements(pair.first, pair.second, linked) if overlaps.bounds else ():
            classes, found = audit.count_violations(wanted, "joined by counts")
            if classes:
                shared_rows = audit.list_shared_rows(wanted)
                victims.append(found)
                queries.append(readable_violations(linked, k, wanted, "joined by counts", shared_rows))
    return 0, victims, queries


def _requirements(first: ComparedRelease, second: ComparedRelease, linked: ReleaseLink) -> list[SharedRequirement]:
    """What the policies of two releases ask of each class, as far as both releases show the attribute."""
    wanted = {
        one.name: one
        for release in (first, second)
        if release.privacy is not None
        for one in shared_requirements(release.privacy, release.sensitive, linked)
    }
    return [*wanted.values()]


def find_temporal(attacker: Attacker) -> Found:
    """Rows that came, or went, between two releases, of a class, of classes that overlap, or of the table: few, or such
    that do not meet the requirements of the policies."""
    pairs, reasons = _comparable_pairs(attacker)
    findings = []
    for pair in pairs:
        first, second, linked, k = pair.first, pair.second, pair.linked, pair.k
        unmasked = pair.without_masked_rows.linked
        counts, shown = dict[str, int](), list[exp.Select]()
        with PairAudit.open(attacker.engine, attacker.work, unmasked, k) as audit:
            for name, side in (("added", linked), ("removed", linked.in_reverse)):
                its_audit = audit if name == "added" else audit.in_reverse
                without = its_audit.linked
                unmatched = _unmatched(attacker, pair, its_audit, reasons)
                queries = [temporal_attack(without, k, unmatched)]
                queries += [readable_unions(side, k, union) for union in ("class", "table")]
                parts: list[tuple[ReleaseLink, Part]] = [(without, "new"), (side, "class"), (side, "table")]
                for wanted in _requirements(first, second, side):
                    queries += [readable_violations(its, k, wanted, part, (), unmatched) for its, part in parts]
                victims = [attacker.victims(query) for query in queries]
                regions = _find_in_regions(attacker, pair, its_audit, unmatched, reasons)
                counts[name] = max(*victims, *(rows for rows, _ in regions))
                shown += [query for query, count in zip(queries, victims, strict=True) if count] or queries[:1]
                shown += [query for _, query in regions if query is not None]
        sql = attacker.script(*(add_titles(query, linked.titles) for query in shown))
        findings.append(_finding(first, second, sum(counts.values()), sql, {**counts, "k": k}))
    return findings, reasons


def _unmatched(attacker: Attacker, pair: ReleasePair, audit: PairAudit, reasons: list[str]) -> list[tuple[Any, ...]]:
    """What queries need to show new rows; ``reasons`` says where classes are too many for that."""
    try:
        return audit.list_unmatched() if attacker.counts else []
    except NotComparedError as error:
        reasons.append(f"rows that are new in classes of {pair.second.path} or gone are not counted: {error}")
        return []


def _find_in_regions(
    attacker: Attacker, pair: ReleasePair, audit: PairAudit, unmatched: list[tuple[Any, ...]], reasons: list[str]
) -> list[tuple[int, exp.Select | None]]:
    """The new rows of classes that overlap: few, or such that do not meet a requirement; and their queries. Of many
    classes these are left out, and ``reasons`` says so."""
    if not (attacker.counts and audit.linked.multilevel_attributes):
        return []
    first, second, linked, k = pair.first, pair.second, audit.linked, pair.k
    try:
        found = [(audit.count_new_rows("region")[1], readable_unions(linked, k, "region", unmatched))]
        for wanted in _requirements(first, second, linked):
            query = readable_violations(linked, k, wanted, "region", (), unmatched)
            found.append((audit.count_violations(wanted, "region")[1], query))
    except NotComparedError as error:
        reasons.append(f"rows that overlapping classes of {first.path} and {second.path} gain are not counted: {error}")
        return []
    if first.manifest.classes + second.manifest.classes <= MOST_CLASSES:
        return [(rows, query) for rows, query in found if rows]
    if any(rows for rows, _ in found):
        reasons.append(
            f"the SQL for rows that overlapping classes of {first.path} and {second.path} gain is left out: it takes "
            f"too long for more than {MOST_CLASSES:,} classes"
        )
    return [(rows, None) for rows, _ in found]


def find_composition(attacker: Attacker) -> Found:
    """Classes of two releases that have one sensitive value in common."""
    both = [{name.lower() for name in one.sensitive} for one in attacker.subjects]
    names = sorted(set.intersection(*both)) if both else []
    if len(attacker.subjects) >= 2 and not names:
        return [], ["needs a sensitive attribute that both releases have"]
    pairs, reasons = _comparable_pairs(attacker)
    findings = []
    for pair in pairs:
        for name in names:
            column = pair.first.column(name) or name
            classes = replace(pair.linked, shared=(column,))
            figures = attacker.figures(composition_victims(classes))
            sql = attacker.script(add_titles(composition(classes), classes.titles))
            more = {"attribute": column, "pairs": figures["pairs"]}
            findings.append(_finding(pair.first, pair.second, figures["victims"], sql, more))
    return findings, reasons


def find_unsorted_matching(attacker: Attacker) -> Found:
    """Rows in the same places of two releases, or of a release and its source."""
    private = attacker.private
    if private is None and len(attacker.subjects) < 2:
        return [], ["needs two releases, or a policy with the source"]
    pairs, reasons = _comparable_pairs(attacker) if len(attacker.subjects) > 1 else ([], [])
    findings = [_by_position(attacker, pair.linked, pair.first, pair.second) for pair in pairs]
    for one in [one.with_sets_as_text for one in attacker.subjects] if private is not None else ():
        linked = _with_source(one, attacker.trees, private.run.source) if private is not None else None
        if linked is None:
            reasons.append(f"needs the policy with the hierarchies of {one.path}")
        elif why := why_strange(attacker, one, linked.attributes):
            reasons.append(why)
        else:
            findings.append(_by_position(attacker, linked, one, None))
    return findings, reasons


def find_linking(attacker: Attacker) -> Found:
    """A table from outside, joined to each release."""
    private = attacker.private
    if private is None or private.outside is None:
        return [], ["needs a policy and an outside table"]
    theirs = {name.lower(): name for name in private.outside.columns}
    findings, reasons = [], []
    for one in (each.with_sets_as_text for each in attacker.subjects):
        attributes = []
        for name in one.manifest.quasi_identifiers:
            column = theirs.get(name.lower())
            attribute = None if column is None else _beside_values(one, private.trees, name, column)
            if attribute is not None:
                attributes.append(attribute)
        if not attributes:
            reasons.append(f"{one.path} and the outside table have no quasi-identifier in common")
            continue
        if why := why_strange(attacker, one, attributes):
            reasons.append(why)
            continue
        linked = ReleaseLink(one.relation, private.outside.relation, (), tuple(attributes))
        figures = attacker.figures(linkage(linked, one.k))
        victims = figures.pop("victims")
        sql = attacker.script(add_titles(linking(linked, one.k), linked.titles))
        more = {**figures, "k": one.k, "attributes": linked.titles}
        findings.append(Finding((str(one.path),), victims, one.manifest.released_rows, sql, more))
    return findings, reasons


def _by_position(
    attacker: Attacker, linked: ReleaseLink, first: ComparedRelease, second: ComparedRelease | None
) -> Finding:
    """What the positions of two releases show; without a second one, of a release and its source."""
    found = attacker.figures(places(linked))
    both = (first,) if second is None else (first, second)
    if attacker.counts and all(
        attacker.figures(is_by_class(one.relation, one.manifest.quasi_identifiers))["is_by_class"] for one in both
    ):
        theirs = None if second is None else second.manifest.quasi_identifiers
        found |= attacker.figures(chance_by_class(linked, first.manifest.quasi_identifiers, theirs))
    ordered = is_one_order(found["places"], found["agreeing"], found["chance"])
    k = min(one.k for one in both)
    query = unsorted_matching(linked, k)
    victims = attacker.victims(query) if ordered else 0
    figures = {
        "ordered": ordered,
        "agreeing": found["agreeing"] / found["places"] if found["places"] else 0.0,
        "chance": found["chance"],
        "k": k,
    }
    names = str(first.path), "source" if second is None else str(second.path)
    return Finding(names, victims, found["places"], attacker.script(add_titles(query, linked.titles)), figures)


def _beside_values(one: ComparedRelease, trees: ComparedHierarchies, name: str, column: str) -> LinkedAttribute | None:
    """A quasi-identifier of a release beside a column that has its values; None where its hierarchy is not known."""
    tree = trees.find(name.lower(), [one.rule(name.lower())])
    if tree is None:
        return None
    levels, members = tree.levels(one, name.lower()), tree.member_level(one, name.lower())
    sets = None if members is None else (members, 0)
    return LinkedAttribute(name, name, column, levels, (0,), tree.table, tree.height, ranges=True, sets=sets)


def _with_source(one: ComparedRelease, trees: ComparedHierarchies, source_: Source) -> ReleaseLink | None:
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
        attribute = _beside_values(one, trees, own, column)
        if attribute is None:
            return None
        attributes.append(attribute)
    return ReleaseLink(one.relation, source_.relation, tuple(shared), tuple(attributes))


def _comparable_pairs(attacker: Attacker) -> tuple[list[ReleasePair], list[str]]:
    """The pairs of releases whose labels can be compared, the earlier first; and why others cannot."""
    if len(attacker.subjects) < 2:
        return [], ["needs two releases of one table"]
    pairs, reasons = [], []
    for pair in attacker.pairs():
        if missing := pair.linked.missing:
            names = ", ".join(map(repr, missing))
            reasons.append(
                f"needs a policy with the hierarchies of {names}: the releases have labels of different levels"
            )
        elif why := why_not_both(attacker, pair):
            reasons.append(why)
        else:
            pairs.append(pair)
    return pairs, reasons


def _finding(
    first: ComparedRelease, second: ComparedRelease, victims: int, sql: str, figures: Mapping[str, Any]
) -> Finding:
    rows = min(first.manifest.released_rows, second.manifest.released_rows)
    return Finding((str(first.path), str(second.path)), min(victims, rows), rows, sql, figures)
