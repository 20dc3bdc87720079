"""The stages from a policy of linked tables to a release: encode, search, recode, publish."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sqlanon.errors import InfeasibleError
from sqlanon.linked.recode import LinkedRecoding
from sqlanon.linked.records import LinkedRecords, LinkedTable, encode_tables
from sqlanon.linked.release import LinkedRelease, publish_linked
from sqlanon.linked.search import LinkedFigures, LinkedTask
from sqlanon.policy.linked import LinkedPolicy
from sqlanon.policy.strategies import STRATEGIES
from sqlanon.sources.workspace import Workspace
from sqlanon.strategies.lattice.outcome import Outcome
from sqlanon.strategies.registry import find_lattice_search
from sqlanon.support.coding import Levels


@dataclass(frozen=True)
class LinkedResult:
    """The best generalization of linked tables that meets the policy. Nothing is published yet.

    Attributes
    ----------
    levels:
        The level of each quasi-identifier, in the order of ``generalization``.
    score, bound, optimal:
        The loss, a lower bound on it, and whether no generalization that meets the policy loses less.
    seconds:
        Wall time by stage.
    """

    policy: LinkedPolicy
    task: LinkedTask
    levels: Levels
    score: float
    bound: float
    optimal: bool
    seconds: dict[str, float]

    @property
    def records(self) -> LinkedRecords:
        """The coded tables."""
        return self.task.records

    @property
    def figures(self) -> LinkedFigures:
        """The figures of the generalization."""
        figures = self.task.lattice.figures[self.levels]
        assert isinstance(figures, LinkedFigures)
        return figures

    @property
    def generalization(self) -> dict[str, int]:
        """The level of each quasi-identifier by ``table.attribute``."""
        return dict(zip(self.records.names, self.levels, strict=True))

    @property
    def persons(self) -> int:
        """Persons of the source."""
        return self.records.persons

    @property
    def suppressed_persons(self) -> int:
        """Persons who are left out with all their rows."""
        return self.figures.suppressed_rows

    def publish(self, target: str | os.PathLike[str] | None = None) -> LinkedRelease:
        """Write the tables to a new place, verify them as a reader would, and show them at once.

        Parameters
        ----------
        target:
            A DuckDB file, or a folder for Parquet files: a path without an ending. Default: the place that the policy
            names.

        Raises
        ------
        ReleaseError
            No place is named, or it cannot be written.
        AuditError
            The written tables do not meet the policy.
        """
        self.task.peeling.find(self.levels, self.task.allowed_persons, self.task.allowed_rows)
        recoding = LinkedRecoding(self.records, self.levels, self.task.peeling.snapshot)
        claims = {
            "policy": self.policy.redact(),
            "policy_hash": self.policy.fingerprint(),
            "k": self.policy.privacy.k,
            "known": self.policy.privacy.known,
            "optimal": self.optimal,
        }
        return publish_linked(recoding, target, claims)

    def to_dict(self) -> dict[str, Any]:
        """The figures as JSON values."""
        return {
            "persons": self.persons,
            "released_persons": self.persons - self.suppressed_persons,
            "suppressed_persons": self.suppressed_persons,
            "known": self.policy.privacy.known,
            "tables": {table.name: self._table_figures(t, table) for t, table in enumerate(self.records.tables)},
            "measure": "loss",
            "score": self.score,
            "lattice": {"nodes": self.records.lattice.size, "checked": len(self.task.lattice.figures)},
            "optimal": self.optimal,
            "seconds": self.seconds,
        }

    def _table_figures(self, t: int, table: LinkedTable) -> dict[str, Any]:
        suppressed = self.figures.suppressed_by_table[t] + table.orphans
        losses = self.task.losses(self.levels)
        weights = {i: self.records.weights[i] for i in table.own}
        total = sum(weights.values())
        return {
            "rows": table.rows,
            "released_rows": table.rows - suppressed,
            "suppressed_rows": suppressed,
            "generalization": {
                name: self.levels[i] for name, i in zip(table.policy.generalized_attributes, table.own, strict=True)
            },
            "loss": sum(weights[i] * losses[i] for i in table.own) / total if total else 0.0,
        }


def anonymize_linked(
    workspace: Workspace, policy: LinkedPolicy, progress: Callable[[str, int, int, float | None], None]
) -> LinkedResult:
    """Find the generalization of all tables that meets the policy with the least loss."""
    started = time.perf_counter()
    progress("scan", 0, 0, None)
    records = encode_tables(workspace, policy)
    loaded = time.perf_counter()
    task = LinkedTask(records, lambda waiting, checked, score: progress("search", waiting, checked, score))
    if not records.lattice.size:
        raise InfeasibleError("every level of a quasi-identifier has a forbidden label", None, 0, 0)
    outcome = find_lattice_search(STRATEGIES[policy.search.strategy])(task.lattice)
    if outcome.levels is None:
        raise _infeasible_error(task, outcome)
    seconds = {"load": loaded - started, "search": time.perf_counter() - loaded}
    score = task.lattice.scores[outcome.levels]
    return LinkedResult(policy, task, outcome.levels, score, outcome.bound, outcome.optimal, seconds)


def _infeasible_error(task: LinkedTask, outcome: Outcome) -> InfeasibleError:
    """The error of a search without a result, with the persons whom the highest generalization suppresses."""
    records, privacy = task.records, task.records.policy.privacy
    support = task.peeling.peel(records.lattice.top, records.persons)
    suppressed, allowed = support.suppressed_persons, task.allowed_persons
    known = "all child rows" if privacy.known == "all" else f"{privacy.known} child rows"
    found = "no generalization meets the policy" if not outcome.stopped else f"the search stopped at {outcome.stopped}"
    message = (
        f"{found}: even the highest suppresses {suppressed:,} of {records.persons:,} persons ({allowed:,} are allowed) "
        f"for k = {privacy.k} and an attacker who knows {known}. What can help: raise search.suppression_limit, lower "
        "known (an attacker who knows more rows can then single out persons), or lower k (it hides persons among "
        "fewer others)"
    )
    closest = dict(zip(records.names, records.lattice.top, strict=True))
    return InfeasibleError(message, closest, suppressed, allowed, suppressed, allowed)
