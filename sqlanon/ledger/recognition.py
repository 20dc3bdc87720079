"""Which releases of the ledger are of the source of a run: by its description, by its rows, or by its people."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sqlanon.ledger.people_samples import PeopleOfSource
from sqlanon.ledger.records import History, Publication, Spent
from sqlanon.ledger.same_people import PeopleHistory, compare_people
from sqlanon.ledger.source_match import MOST_SOURCES, SameRows
from sqlanon.policy import Policy
from sqlanon.sources.run import Run


@dataclass(frozen=True)
class Recognition:
    """The sources under other descriptions that have rows, or people, of the source of a run.

    Attributes
    ----------
    description:
        That of the run's own source.
    shares:
        The share of rows in common, by description.
    people:
        The people in common, by description.
    same_rows:
        What the comparison of rows left open.
    """

    description: str
    shares: dict[str, float]
    people: PeopleHistory
    same_rows: SameRows

    @property
    def undecided(self) -> set[str]:
        """The sources that may have the same rows, and were not recognized by their people either."""
        return self.same_rows.undecided - set(self.people.shared)

    def has_rows_of(self, source: str | None) -> bool:
        """Whether a source is the run's own, or has rows in common with it."""
        return source is not None and (source == self.description or source in self.shares)

    def recognizes(self, source: str | None) -> bool:
        """Whether a source is the run's own, or has rows or people in common with it."""
        return self.has_rows_of(source) or (source is not None and source in self.people.shared)


def recognize(
    run: Run,
    policy: Policy,
    path: Path,
    history: History,
    others: Sequence[Publication | Spent],
    people: PeopleOfSource,
) -> Recognition:
    """Compare the source of a run with those of other records of the ledger in the catalog at a path."""
    sources = {one.run_id: str(one.source) for one in others if one.source not in (None, run.identity)}
    same_rows = SameRows(run, policy, path, history.secret)
    shares = same_rows.shares({source: run_id for run_id, source in sources.items()})
    newest = dict([*sources.items()][-MOST_SOURCES:])
    shared = compare_people(run, path, people, history.secret, newest)
    return Recognition(run.identity, shares, shared, same_rows)
