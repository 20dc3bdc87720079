"""`suggest`: a policy to start from, for a table that nobody has said anything of."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from sqlanon.engines.statement_runner import StatementRunner
from sqlanon.errors import HierarchyError, InfeasibleError
from sqlanon.frequency.scan import scan
from sqlanon.hierarchies.build import build_hierarchies
from sqlanon.policy import Policy, SourceSection, table_parts
from sqlanon.release.dependencies import Narrowing, narrowing_columns_of_source
from sqlanon.sources.run import Run
from sqlanon.suggest.distinction import figures_of
from sqlanon.suggest.kinds import OTHER_CODE
from sqlanon.suggest.policy_text import policy_text
from sqlanon.suggest.profile import TableProfile, profile_table
from sqlanon.suggest.propose import SUPPRESS, Proposal, propose

SIZE = 3
"""The size of the largest sets of quasi-identifiers."""

_PERSONS = f"by its name: {OTHER_CODE}"


def asks_nothing(table: str | None) -> Policy:
    """A policy by which a table is bound, and which says nothing of its columns."""
    attributes = {"sqlanon: any": {"role": "quasi", "hierarchy": "suppress"}}
    return Policy(source={} if table is None else {"table": table}, attributes=attributes, privacy={"k": 2})


def suggest(begin: Callable[[Policy], Run], table: str | None, database: Path | None, files: Sequence[str]) -> str:
    with begin(asks_nothing(table)) as run:
        table_profile = profile_table(run)
        proposals = propose(table_profile.profiles)
        apart = _apart(run, table_profile, proposals)
        dependencies = _dependencies(run, table_profile, proposals)
    source: dict[str, object] = {"database": str(database)} if database is not None else {}
    if files:
        source = {"files": [*files] if len(files) > 1 else files[0]}
    elif table is not None:
        source["table"] = table
    source |= _person(proposals)
    name = (table_parts(table or "") or (Path(files[0]).stem if files else "table",))[-1]
    place = re.sub(r"\W+", "_", name).strip("_") or "table"
    release = {"database": f"{place}_release.duckdb", "table": name if table else place}

    def policy(proposals: Sequence[Proposal]) -> str:
        return policy_text(source, release, proposals, apart, table_profile.rows, table_profile.step, dependencies)

    return policy(_that_hold(begin, proposals, source))


def _apart(
    run: Run, table_profile: TableProfile, proposals: Sequence[Proposal]
) -> Mapping[frozenset[str], tuple[float | None, float | None]]:
    names = [one.column.name for one in proposals if one.role == "quasi"]
    if not names:
        return {}
    steps = StatementRunner(run.engine)
    query = figures_of(steps, run.work, table_profile.sample, names, names, SIZE)
    return {
        frozenset(attributes): (distinction, separation)
        for attributes, _, _, _, distinction, separation in steps.ask(query, [])
    }


def _dependencies(run: Run, table_profile: TableProfile, proposals: Sequence[Proposal]) -> Sequence[Narrowing]:
    """The columns that would be released as they are, and narrow a quasi-identifier."""
    columns = [
        one.column.name for one in proposals if one.role in ("sensitive", "insensitive") and not one.column.constant
    ]
    quasi = [one.column.name for one in proposals if one.role == "quasi"]
    rows = table_profile.rows // table_profile.step
    return narrowing_columns_of_source(
        StatementRunner(run.engine), run.work, table_profile.sample, rows, columns, quasi, SourceSection()
    )


def _person(proposals: Sequence[Proposal]) -> dict[str, object]:
    """The column that tells persons apart, where persons have several rows."""
    for one in proposals:
        column = one.column
        named = one.role == "identifying" and one.reason == _PERSONS
        if named and column.many and not column.nearly_unique and column.values == column.rows:
            return {"person": column.name}
    return {}


def _that_hold(
    begin: Callable[[Policy], Run], proposals: Sequence[Proposal], source: Mapping[str, object]
) -> Sequence[Proposal]:
    """The proposals, with ``suppress`` in place of a hierarchy that has no place for some values."""

    def holds(some: Sequence[Proposal]) -> bool:
        attributes = {one.column.name: {"role": "quasi", "hierarchy": one.hierarchy or SUPPRESS} for one in some}
        policy = Policy(source={**source, "undeclared": "drop"}, attributes=attributes, privacy={"k": 2})
        with begin(policy) as run, suppress(InfeasibleError):
            try:
                steps = StatementRunner(run.engine)
                scanned = scan(steps, policy, run.source, run.work)
                build_hierarchies(steps, policy, scanned.values, run.work)
            except HierarchyError:
                return False
        return True

    with_rules = [one for one in proposals if one.hierarchy not in (None, SUPPRESS)]
    if not with_rules or holds(with_rules):
        return proposals
    wrong = [one for one in with_rules if not holds([one])]
    reason = "some values have no place in intervals or dates"
    return [
        replace(one, hierarchy=SUPPRESS, reason=f"{one.reason}; {reason}") if one in wrong else one for one in proposals
    ]
