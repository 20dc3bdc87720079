"""Persons of a population that no row of a release can match, because a hierarchy lacks one of their values.

Only the top label ``*`` covers values that a hierarchy lacks. A person with a value outside another top label, such as
``Europe``, matches no row and does not count for k-map or presence.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from sqlglot import exp

from sqlanon.errors import InfeasibleError
from sqlanon.frequency.scan import Scan, ScanResult, scan_members_of
from sqlanon.hierarchies.build import Hierarchy
from sqlanon.hierarchies.parts import TOP
from sqlanon.policy import Policy
from sqlanon.requirements import bind_requirements
from sqlanon.support.expressions import Namer, all_of, cast, col, fragment, null_safe_equal, template

_LISTED = fragment("EXISTS(SELECT 1 FROM :hierarchy AS h WHERE :same)")
_ROW_COUNT = template("SELECT coalesce(sum(n)::BIGINT, 0) FROM :rows")
_LACKS = template("SELECT count(*) FROM :raw AS p WHERE NOT :listed")


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
    matched, unmatched = _drop_unmatched(scanned, closed, work)
    covering = bind_requirements(policy.privacy, policy.generalized_attributes).covering_condition
    if unmatched and covering is not None:
        lacking = [hierarchy for i, hierarchy in closed.items() if _lacks_values(scanned, i, hierarchy)]
        names = ", ".join(repr(hierarchy.attribute) for hierarchy in lacking)
        raise InfeasibleError(
            f"{covering.name}: {unmatched:,} rows of the population have values that are not in the hierarchy of "
            f"{names}, and its top label does not cover them: no release has rows that match these persons. Add the "
            f"values, or a level {TOP!r} above",
            None,
            0,
            None,
        )
    return scanned if matched is None else replace(scanned, population=replace(scanned.population, scan=matched))


def _drop_unmatched(scanned: ScanResult, hierarchies: Mapping[int, Hierarchy], work: Namer) -> tuple[Scan | None, int]:
    """The population without these persons, or None if there are none, and the number of their rows."""
    assert scanned.population is not None
    reader, population = scanned.reader, scanned.population.scan
    conditions = (_is_listed(scanned, i, hierarchy) for i, hierarchy in hierarchies.items())
    raw: exp.Table = reader.create_table(
        work("matched_frequency_raw"),
        template("SELECT p.* FROM :raw AS p WHERE :listed")(raw=population.raw, listed=all_of(conditions)),
    )
    before, after = (
        reader.fetch_rows(_ROW_COUNT(rows=rows), [(0,)], in_plan=False)[0][0] for rows in (population.raw, raw)
    )
    if before == after:
        return None, 0
    return scan_members_of(reader, raw, population.quasi, population.persons, work, "matched_"), int(before - after)


def _is_listed(scanned: ScanResult, i: int, hierarchy: Hierarchy) -> exp.Expr:
    value = cast(col(f"q{i}", "p"), scanned.types[i])
    return _LISTED(hierarchy=hierarchy.table, same=null_safe_equal(value, col("level_0", "h")))


def _lacks_values(scanned: ScanResult, i: int, hierarchy: Hierarchy) -> bool:
    """Whether the population has values that a hierarchy lacks."""
    assert scanned.population is not None
    query = _LACKS(raw=scanned.population.scan.raw, listed=_is_listed(scanned, i, hierarchy))
    return bool(scanned.reader.fetch_rows(query, [(0,)], in_plan=False)[0][0])
