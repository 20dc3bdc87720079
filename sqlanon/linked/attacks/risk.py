"""The risk of linked tables as they stand: the persons whom their quasi-identifiers and child rows single out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlanon.linked.attacks.matching import Matches, MatchingRun, list_knowledge, source_tables
from sqlanon.linked.tables import bind_tables
from sqlanon.policy.linked import LinkedPolicy
from sqlanon.sources.workspace import Workspace


@dataclass(frozen=True)
class LinkedRisk:
    """The risk of linked tables before anonymizing, by what an attacker knows of a person.

    Attributes
    ----------
    policy:
        Names the tables, and k and ``known``, which the figures are compared with.
    persons, rows:
        The persons, and the rows of each table that belong to one. Of many persons, a sample is attacked.
    alone:
        The quasi-identifiers of the person are known, and no child row.
    tables:
        By child table, the matches with 1, 2 and all of its rows known, too.
    together:
        The matches with 1, 2 and all rows of all child tables known, with the rows that belong to them.
    """

    policy: LinkedPolicy
    persons: int
    rows: Mapping[str, int]
    alone: Matches
    tables: Mapping[str, Sequence[Matches]]
    together: Sequence[Matches]

    @property
    def matches_of_policy(self) -> Matches:
        """The matches of the attacker whom the policy names."""
        return next(matches for matches in self.together if matches.known == self.policy.privacy.known)

    def to_dict(self) -> dict[str, Any]:
        """The fields as JSON values."""
        return {
            "persons": self.persons,
            "attacked_persons": self.alone.persons,
            "rows": dict(self.rows),
            "k": self.policy.privacy.k,
            "known": self.policy.privacy.known,
            "persons_below_k": self.matches_of_policy.persons_below_k,
            "alone": self.alone.to_dict(),
            "tables": {name: _by_known(matches) for name, matches in self.tables.items()},
            "together": _by_known(self.together),
        }


def _by_known(matches: Sequence[Matches]) -> dict[str, dict[str, Any]]:
    return {str(known_matches.known): known_matches.to_dict() for known_matches in matches}


def assess_linked_risk(workspace: Workspace, policy: LinkedPolicy) -> LinkedRisk:
    """Count the persons whom their quasi-identifiers and child rows single out; hierarchies are not read."""
    tables = bind_tables(workspace, policy)
    run, k = MatchingRun(tables[0].run.engine, tables[0].run.work), policy.privacy.k
    records = run.describe("source", source_tables(tables))
    knowledge = list_knowledge(policy.privacy.known)
    alone, *together = run.count_matches(records, records, knowledge, k)
    by_table = {
        table.name: run.count_matches(records, records, knowledge[1:], k, position)
        for position, table in enumerate(tables)
        if table.parent is not None
    }
    counts = {table.name: table.rows - table.orphans for table in tables}
    return LinkedRisk(policy, tables[0].rows, counts, alone, by_table, together)
