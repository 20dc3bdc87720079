"""The stages from a policy of linked tables to a release: encode, search, recode, publish."""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlanon.engines.deadline import interrupt_after
from sqlanon.errors import InfeasibleError
from sqlanon.linked.classes.mondrian import LinkedClasses, divide_persons, full_domain_budget
from sqlanon.linked.infeasible import infeasible_error, stopped_error
from sqlanon.linked.publish.earlier import EarlierRelease, find_earlier_release
from sqlanon.linked.publish.recode import LinkedClassRecoding, LinkedRecoding
from sqlanon.linked.publish.stage import LinkedRelease, publish_linked, refuse_unusable_target
from sqlanon.linked.records import LinkedRecords, encode_tables
from sqlanon.linked.release.manifest import RequirementClaim
from sqlanon.linked.search import LinkedFigures, LinkedTask
from sqlanon.linked.tables import LinkedTable
from sqlanon.policy.linked import LinkedPolicy
from sqlanon.policy.strategies import STRATEGIES
from sqlanon.sources.workspace import Workspace
from sqlanon.strategies.lattice.limits import GRACE, LimitReachedError
from sqlanon.strategies.registry import find_lattice_search
from sqlanon.support.coding import Levels


@dataclass(frozen=True)
class LinkedResult(ABC):
    """The result for linked tables: rows that meet the policy. Nothing is published yet.

    Attributes
    ----------
    score, bound, optimal:
        The loss, a lower bound on it, and whether no generalization that meets the policy loses less.
    seconds:
        Wall time by stage.
    earlier:
        The release that it is made from.
    """

    policy: LinkedPolicy
    task: LinkedTask
    score: float
    bound: float
    optimal: bool
    seconds: dict[str, float]
    earlier: EarlierRelease | None

    @property
    def records(self) -> LinkedRecords:
        """The coded tables."""
        return self.task.records

    @property
    @abstractmethod
    def generalization(self) -> Mapping[str, int | None]:
        """The level of each quasi-identifier by ``table.attribute``; None if classes have several."""

    @property
    def persons(self) -> int:
        """Persons of the source."""
        return self.records.persons

    @property
    @abstractmethod
    def suppressed_persons(self) -> int:
        """Persons who are left out with all their rows."""

    def publish(self, target: str | os.PathLike[str] | None = None) -> LinkedRelease:
        """Write the tables to a new location, verify them as a reader would, and show them at once.

        Parameters
        ----------
        target:
            A DuckDB file, or a folder for Parquet files: a path without an ending. Default: the location that the
            policy names.

        Raises
        ------
        ReleaseError
            No location is named, or it cannot be written.
        AuditError
            The written tables do not meet the policy.
        """
        return publish_result(self, target)

    @abstractmethod
    def find_recoding(self) -> LinkedRecoding:
        """Find the persons and rows to release, and their labels."""

    @property
    def checked(self) -> int:
        """The number of checked generalizations."""
        return len(self.task.lattice.figures)

    def to_dict(self) -> dict[str, Any]:
        """The figures as JSON values."""
        return {
            "persons": self.persons,
            "released_persons": self.persons - self.suppressed_persons,
            "suppressed_persons": self.suppressed_persons,
            "known": self.policy.privacy.known,
            "tables": {table.name: self._table_figures(table) for table in self.records.tables},
            "measure": "loss",
            "score": self.score,
            "lattice": {"nodes": self.records.lattice.size, "checked": self.checked},
            "optimal": self.optimal,
            "seconds": self.seconds,
        }

    @abstractmethod
    def _suppressed_rows(self, table: LinkedTable) -> int:
        """The rows of a table that are not released."""

    @abstractmethod
    def _losses(self) -> Sequence[float]:
        """The loss of each quasi-identifier."""

    def _table_figures(self, table: LinkedTable) -> dict[str, Any]:
        suppressed, losses = self._suppressed_rows(table), self._losses()
        levels = list(self.generalization.values())
        weights = {i: self.records.weights[i] for i in table.attribute_numbers}
        total = sum(weights.values())
        return {
            "rows": table.rows,
            "released_rows": table.rows - suppressed,
            "suppressed_rows": suppressed,
            "generalization": {
                name: levels[i]
                for name, i in zip(table.policy.generalized_attributes, table.attribute_numbers, strict=True)
            },
            "loss": sum(weights[i] * losses[i] for i in table.attribute_numbers) / total if total else 0.0,
        }


@dataclass(frozen=True)
class FullDomainResult(LinkedResult):
    """The best generalization that meets the policy; ``levels`` are those of the quasi-identifiers, by number."""

    levels: Levels

    @property
    def generalization(self) -> Mapping[str, int | None]:
        return dict(zip(self.records.names, self.levels, strict=True))

    @property
    def suppressed_persons(self) -> int:
        return self._figures.suppressed_rows

    def find_recoding(self) -> LinkedRecoding:
        return LinkedRecoding(self.task.find_kept_rows(self.levels), self.levels)

    @property
    def _figures(self) -> LinkedFigures:
        figures = self.task.lattice.figures[self.levels]
        assert isinstance(figures, LinkedFigures)
        return figures

    def _suppressed_rows(self, table: LinkedTable) -> int:
        return self._figures.suppressed_by_table[table.position] + table.orphans

    def _losses(self) -> Sequence[float]:
        return self.task.losses(self.levels)


@dataclass(frozen=True)
class ClassesResult(LinkedResult):
    """Classes of persons with separate levels that meet the policy."""

    classes: LinkedClasses

    @property
    def generalization(self) -> Mapping[str, int | None]:
        return dict(zip(self.records.names, self.classes.levels, strict=True))

    @property
    def suppressed_persons(self) -> int:
        return self.persons - self.classes.released_rows[0]

    def find_recoding(self) -> LinkedRecoding:
        classes = self.classes
        return LinkedClassRecoding(classes.kept_rows, classes.levels, classes.class_levels, classes.used_levels)

    def to_dict(self) -> dict[str, Any]:
        return super().to_dict() | {"classes": self.classes.classes, "rounds": self.classes.rounds}

    def _suppressed_rows(self, table: LinkedTable) -> int:
        return table.rows - self.classes.released_rows[table.position]

    def _losses(self) -> Sequence[float]:
        return self.classes.losses


def publish_result(
    result: LinkedResult, target: str | os.PathLike[str] | None, is_recorded: bool = True
) -> LinkedRelease:
    """Publish a result; ``is_recorded`` says whether the ledger compares and records the release."""
    recoding, policy = result.find_recoding(), result.policy
    claims = {
        "policy": policy.redact(),
        "policy_hash": policy.fingerprint(),
        "k": policy.privacy.k,
        "known": policy.privacy.known,
        "requirements": tuple(_claim_requirements(result.records)),
        "optimal": result.optimal,
    }
    return publish_linked(recoding, target, claims, result.earlier, is_recorded)


def _claim_requirements(records: LinkedRecords) -> Iterator[RequirementClaim]:
    for requirement in records.policy.group_requirements:
        table = records.table(requirement.section.name)
        column = table.columns.by_attribute[requirement.attribute]
        yield RequirementClaim(requirement.key, requirement.parameters, table.name, column)


def anonymize_linked(
    workspace: Workspace,
    policy: LinkedPolicy,
    progress: Callable[[str, int, int, float | None], None],
) -> LinkedResult:
    """Find the generalization of all tables that meets the policy with the least loss.

    A location of the policy that cannot take the release is refused before the search.
    """
    started = time.perf_counter()
    progress("scan", 0, 0, None)
    records = encode_tables(workspace, policy)
    if policy.release is not None and policy.release.has_location:
        refuse_unusable_target(records)
    records, earlier = find_earlier_release(records)
    earlier_rows = None if earlier is None else earlier.kept_rows
    encoded_at = time.perf_counter()
    strategy = STRATEGIES[policy.search.strategy]
    budget = full_domain_budget(policy.search) if strategy.traits.is_local else None
    task = LinkedTask(
        records, lambda waiting, checked, score: progress("search", waiting, checked, score), budget, earlier_rows
    )
    if not records.lattice.size:
        raise InfeasibleError("every level of a quasi-identifier has a forbidden label", None, 0, 0)
    if strategy.traits.is_local:
        classes = divide_persons(task)
        if classes is None:
            raise infeasible_error(task)
        seconds = {"load": encoded_at - started, "search": time.perf_counter() - encoded_at}
        return ClassesResult(
            policy=policy,
            task=task,
            score=classes.score,
            bound=0.0,
            optimal=False,
            seconds=seconds,
            earlier=earlier,
            classes=classes,
        )
    time_limit, engines = policy.search.time_limit, [table.run.engine for table in records.tables]
    deadline = None if time_limit is None else time_limit + GRACE
    with interrupt_after(deadline, engines, task.lattice.clock.may_interrupt):
        try:
            outcome = find_lattice_search(strategy)(task.lattice)
        except LimitReachedError:  # in the first check
            message = f"search.time_limit = {time_limit:g} ended the search before it had checked anything: raise it"
            raise InfeasibleError(message, None, 0, task.allowed_persons) from None
    if outcome.levels is None:
        raise stopped_error(task, outcome.stopped) if outcome.stopped else infeasible_error(task)
    seconds = {"load": encoded_at - started, "search": time.perf_counter() - encoded_at}
    return FullDomainResult(
        policy=policy,
        task=task,
        score=task.lattice.scores[outcome.levels],
        bound=outcome.bound,
        optimal=outcome.optimal,
        seconds=seconds,
        earlier=earlier,
        levels=outcome.levels,
    )
