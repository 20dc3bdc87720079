"""`suggest`: a policy to start from, for a table that nobody has said anything of."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
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
from sqlanon.suggest.policy_text import SUPPRESSION_LIMIT, K, Seen, policy_text
from sqlanon.suggest.profile import TableProfile, profile_table
from sqlanon.suggest.propose import SUPPRESS, Proposal, propose
from sqlanon.suggest.trials import Trial, try_strategies

SIZE = 3
"""The size of the largest sets of quasi-identifiers."""

_PERSONS = f"by its name: {OTHER_CODE}"


@dataclass(frozen=True)
class Place:
    """Where the table is, with absolute paths; and the folder that paths of the policy are relative to (None: they
    stay absolute)."""

    table: str | None = None
    database: Path | None = None
    files: tuple[str, ...] = ()
    folder: Path | None = None

    @property
    def source(self) -> dict[str, object]:
        """``[source]`` of the policy, as it is written."""
        found: dict[str, object] = {}
        if self.database is not None:
            found["database"] = self.shown(self.database)
        if self.files:
            shown = [self.shown(one) for one in self.files]
            found["files"] = shown if len(shown) > 1 else shown[0]
        elif self.table is not None:
            found["table"] = self.table
        return found

    def shown(self, path: str | Path) -> str:
        """A path as the policy has it."""
        if self.folder is None:
            return str(path)
        with suppress(ValueError):  # on another drive
            return os.path.relpath(path, self.folder).replace(os.sep, "/")
        return str(path)

    @property
    def read(self) -> dict[str, object]:
        """``[source]`` for the trials, where the connection does not say all of it."""
        found: dict[str, object] = {} if self.table is None or self.files else {"table": self.table}
        return found | ({"files": list(self.files)} if self.files else {})

    @property
    def name(self) -> str:
        return (table_parts(self.table or "") or (Path(self.files[0]).stem if self.files else "table",))[-1]


def asks_nothing(table: str | None, files: Sequence[str] = ()) -> Policy:
    """A policy by which a table is bound, and which says nothing of its columns."""
    attributes = {"sqlanon: any": {"role": "quasi", "hierarchy": "suppress"}}
    return Policy(source=Place(table, files=tuple(files)).read, attributes=attributes, privacy={"k": 2})


def suggest(begin: Callable[[Policy], Run], place: Place) -> str:
    with begin(asks_nothing(place.table, place.files)) as run:
        profile = profile_table(run)
        proposals: Sequence[Proposal] = propose(profile.profiles)
        apart = _apart(run, profile, proposals)
        narrowing = _dependencies(run, profile, proposals)
    person = _person(proposals)
    proposals = _that_hold(begin, proposals, place.read)
    trials = _trials(begin, proposals, place.read | person)
    file_name = re.sub(r"\W+", "_", place.name).strip("_") or "table"
    release = {"database": f"{file_name}_release.duckdb", "table": place.name if place.table else file_name}
    seen = Seen(profile.rows, profile.step, apart, narrowing, trials)
    return policy_text(place.source | person, release, proposals, seen)


def _trials(
    begin: Callable[[Policy], Run], proposals: Sequence[Proposal], source: Mapping[str, object]
) -> Sequence[Trial]:
    """What strategies keep of a sample, by the policy that is proposed."""
    attributes = {
        one.column.name: {"role": one.role} | ({} if one.hierarchy is None else {"hierarchy": one.hierarchy})
        for one in proposals
    }
    search = {"suppression_limit": SUPPRESSION_LIMIT}
    policy = Policy(source=source, attributes=attributes, privacy={"k": K}, search=search)
    return try_strategies(begin, policy)


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
