"""Persons of a population that no row of a release can match, because a hierarchy lacks one of their values.

Only the top label ``*`` covers values that a hierarchy lacks. A person with a value outside another top label, such as
``Europe``, matches no row and does not count for k-map or presence.
"""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from sqlanon.errors import InfeasibleError
from sqlanon.frequency.scan import ScanResult, scan_members_of
from sqlanon.hierarchies.build import Hierarchy
from sqlanon.hierarchies.parts import TOP
from sqlanon.policy import Policy
from sqlanon.requirements import bind_requirements
from sqlanon.support.coding import quasi_column
from sqlanon.support.expressions import Namer, all_of, cast, col, fragment, template


def drop_unmatched_population(
    policy: Policy, scanned: ScanResult, hierarchies: tuple[Hierarchy, ...], work: Namer
) -> ScanResult:
    """Remove the persons of the population that no row of a release can match from the scan.

    Creates ``matched_frequency_raw`` and the tables of its counts. Raises `InfeasibleError` if the policy requires that
    each person of the population may be in the release.
    """
    closed = {i: hierarchy for i, hierarchy in enumerate(hierarchies) if hierarchy.top != TOP}
    if scanned.population is None or not closed:
        return scanned
    reader, population = scanned.reader, scanned.population.scan
    conditions = {i: _is_listed(hierarchy, i, scanned.types[i]) for i, hierarchy in closed.items()}

    def count_unmatched(matches: exp.Expr) -> int:
        query = template("SELECT coalesce(sum(row_count)::BIGINT, 0) FROM :raw AS p WHERE NOT (:matches)")
        return int(reader.fetch_rows(query(raw=population.raw, matches=matches), [(0,)], in_plan=False)[0][0])

    unmatched = count_unmatched(all_of(condition.copy() for condition in conditions.values()))
    covering = bind_requirements(policy.privacy, policy.generalized_attributes).covering_condition
    if unmatched and covering is not None:
        lacking = [closed[i].attribute for i, condition in conditions.items() if count_unmatched(condition)]
        raise InfeasibleError(
            f"{covering.name}: {unmatched:,} rows of the population have values that are not in the hierarchy of "
            f"{', '.join(map(repr, lacking))}, and its top label does not cover them: no release has rows that match "
            f"these persons. Add the values, or a level {TOP!r} above",
            None,
            0,
            None,
        )
    if not unmatched and not reader.dry:
        return scanned
    query = template("SELECT p.* FROM :raw AS p WHERE :matches")(
        raw=population.raw, matches=all_of(conditions.values())
    )
    raw = reader.create_table(work("matched_frequency_raw"), query)
    scan = scan_members_of(reader, raw, population.quasi, population.persons, work, "matched_")
    return replace(scanned, population=replace(scanned.population, scan=scan))


def _is_listed(hierarchy: Hierarchy, i: int, type_: str) -> exp.Expr:
    is_listed = fragment("EXISTS(SELECT 1 FROM :hierarchy AS h WHERE :value IS NOT DISTINCT FROM h.level_0)")
    return is_listed(hierarchy=hierarchy.table, value=cast(col(quasi_column(i), "p"), type_))
