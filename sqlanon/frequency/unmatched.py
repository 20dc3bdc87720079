"""The people of a population whom no row of a release can match, because a hierarchy lacks one of their values.

Only the label ``*`` stands for values that a hierarchy lacks. Under another top label, such as ``Europe``, somebody
from elsewhere is no candidate for a row, and does not count for k-map or presence.
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
from sqlanon.support.expressions import Namer, all_of, cast, col, fragment, same, template

_MATCHED = template("SELECT p.* FROM :raw AS p WHERE :listed")
_LISTED = fragment("EXISTS(SELECT 1 FROM :hierarchy AS h WHERE :same)")
_ROW_COUNT = template("SELECT coalesce(sum(n)::BIGINT, 0) FROM :rows")
_LACKS = template("SELECT count(*) FROM :raw AS p WHERE NOT :listed")


def drop_unmatched_population(
    policy: Policy, scanned: ScanResult, hierarchies: tuple[Hierarchy, ...], work: Namer
) -> ScanResult:
    """What was scanned, without the people of the population whom no row of a release can match.

    Makes ``matched_frequency_raw``, and what is counted of it. An `InfeasibleError` says so where the policy requires
    that each of the people is in the release with some chance.
    """
    closed = {i: one for i, one in enumerate(hierarchies) if one.top != TOP}
    if scanned.population is None or not closed:
        return scanned
    matched, unmatched = _matched(scanned, closed, work)
    covering = bind_requirements(policy.privacy, policy.generalized_attributes).covering_condition
    if unmatched and covering is not None:
        lacking = [one for i, one in closed.items() if _lacks_values(scanned, i, one)]
        names = ", ".join(repr(one.attribute) for one in lacking)
        raise InfeasibleError(
            f"{covering.name}: {unmatched:,} rows of the population have values that are not in the hierarchy of "
            f"{names}, and its top label does not stand for them: no release has rows that match these people. Add the "
            f"values, or a level {TOP!r} above",
            None,
            0,
            None,
        )
    return scanned if matched is None else replace(scanned, population=replace(scanned.population, scan=matched))


def _matched(scanned: ScanResult, hierarchies: Mapping[int, Hierarchy], work: Namer) -> tuple[Scan | None, int]:
    """The population without these people, None where there are none; and their rows."""
    assert scanned.population is not None
    reader, whole = scanned.reader, scanned.population.scan
    listed = (_listed(scanned, i, one) for i, one in hierarchies.items())
    raw: exp.Table = reader.make(work("matched_frequency_raw"), _MATCHED(raw=whole.raw, listed=all_of(listed)))
    before, after = (reader.look_up(_ROW_COUNT(rows=rows), [(0,)])[0][0] for rows in (whole.raw, raw))
    if before == after:
        return None, 0
    return scan_members_of(reader, raw, whole.quasi, whole.persons, work, "matched_"), int(before - after)


def _listed(scanned: ScanResult, i: int, hierarchy: Hierarchy) -> exp.Expr:
    value = cast(col(f"q{i}", "p"), scanned.types[i])
    return _LISTED(hierarchy=hierarchy.table, same=same(value, col("level_0", "h")))


def _lacks_values(scanned: ScanResult, i: int, hierarchy: Hierarchy) -> bool:
    """Whether a hierarchy lacks values of the population."""
    assert scanned.population is not None
    query = _LACKS(raw=scanned.population.scan.raw, listed=_listed(scanned, i, hierarchy))
    return bool(scanned.reader.look_up(query, [(0,)])[0][0])
