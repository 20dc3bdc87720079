"""The released rows that requirements are audited on, and the private relations of the data holder.

A release alone does not show its persons, the distribution of its source, or a population. Checks that need them are
not verifiable from the release alone; with `PrivateRelations` they are.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from sqlglot import exp

from sqlanon.requirements.macros import Macro, call_macro, count_class_sizes
from sqlanon.support.checks import Check


class Queryable(Protocol):
    """An engine that runs the queries of an audit."""

    def rows(self, query: exp.Expr) -> list[tuple[Any, ...]]: ...


class PersonCounts(Protocol):
    """Counts of persons for rows that stay on a remote server, as local relations of person numbers."""

    def release_relation(self, keys: Sequence[str], attribute: str | None = None) -> str:
        """The persons of each class, or of each value of a sensitive attribute in it."""

    def source_relation(self, attribute: str) -> str:
        """The persons of each value of a sensitive attribute in the source."""

    def count_source_persons(self) -> int: ...


@dataclass(frozen=True)
class PrivateRelations:
    """The relations that only the data holder has, each named by its text.

    ``source`` has the sensitive columns and the person column, if there is one; the audited relation then has it as
    well. ``population`` is generalized as the release is. ``hierarchies`` are those of sensitive attributes, with the
    columns ``level_0`` to the top.
    """

    source: str
    person: str | None = None
    population: str | None = None
    population_person: str | None = None
    hierarchies: Mapping[str, str] = field(default_factory=dict)
    person_counts: PersonCounts | None = None
    """For rows on a remote server. The audited relation then has no person column."""


@dataclass(frozen=True)
class AuditedRelease:
    """Released rows, named by their text, with the columns of their roles and the number of source rows.

    ``macro_catalog`` is the database with the macro library (None: the current one). ``combinations`` are those of
    k-anonymity, where a strategy guarantees it for some quasi-identifiers at a time.
    """

    engine: Queryable
    relation: str
    quasi_identifiers: Sequence[str]
    sensitive: Sequence[str]
    rows: int
    counts_persons: bool = False
    macro_catalog: str | None = None
    private: PrivateRelations | None = None
    combinations: Sequence[Sequence[str]] = ()

    @property
    def can_count(self) -> bool:
        """Whether the unit of counting is visible: rows always are, persons only with their ids."""
        return not self.counts_persons or self.private is not None

    @property
    def person(self) -> str | None:
        """The person column, if it is available."""
        return self.private.person if self.private is not None else None

    @property
    def person_counts(self) -> PersonCounts | None:
        return None if self.private is None else self.private.person_counts

    @property
    def person_option(self) -> dict[str, str]:
        """The macro option that counts persons, if they are available."""
        return {"person": self.person} if self.person else {}

    @property
    def population(self) -> tuple[str, dict[str, str]] | None:
        """The population, if it is available, and the macro option that counts its persons."""
        if self.private is None or self.private.population is None:
            return None
        person = self.private.population_person
        return self.private.population, {"population_person": person} if person is not None else {}

    @property
    def table(self) -> exp.Table:
        """The released rows as an expression, for requirements without a macro."""
        return exp.to_table(self.relation, dialect="duckdb")

    def figures(self, macro: Macro, *arguments: Any, **options: Any) -> dict[str, Any]:
        """The row that a macro returns, by column name."""
        relation = self.relation
        if self.person_counts is not None and (self.person in arguments or "person" in options):
            sensitive = {name.lower() for name in self.sensitive}
            attributes = (name for name in arguments[1:] if isinstance(name, str) and name.lower() in sensitive)
            relation = self.person_counts.release_relation(arguments[0], next(attributes, None))
        query = call_macro(macro.name, relation, *arguments, catalog=self.macro_catalog, **options)
        rows = self.engine.rows(query)
        return dict(zip(macro.columns, rows[0], strict=True)) if rows else dict.fromkeys(macro.columns)

    def population_figures(self, macro: Macro, **options: Any) -> dict[str, Any]:
        """The figures of a macro that compares with the population."""
        assert self.population is not None
        relation, person_option = self.population
        return self.figures(macro, self.quasi_identifiers, relation, **person_option, **options)

    def query_value(self, query: exp.Expr) -> Any:
        """The single value of a query; None where queries are recorded instead of run."""
        rows = self.engine.rows(query)
        return rows[0][0] if rows else None

    def against_source(self, macro: Macro, attribute: str, **options: Any) -> dict[str, Any]:
        """The figures of a macro that compares a sensitive attribute with its source, or else with the release."""
        if self.private is not None:
            counts = self.person_counts
            options["reference"] = self.private.source if counts is None else counts.source_relation(attribute)
            options |= self.person_option
        return self.figures(macro, self.quasi_identifiers, attribute, **options)

    def class_sizes(self) -> dict[int, int]:
        """The number of classes of each size, in rows or persons."""
        counts = self.person_counts
        relation = self.relation if counts is None else counts.release_relation(self.quasi_identifiers)
        query = count_class_sizes(relation, self.quasi_identifiers, self.person, self.macro_catalog)
        return dict(self.engine.rows(query))

    def as_source_check(self, check: Check) -> Check:
        """A check against shares of the source: unverifiable from the release alone."""
        return check if self.private is not None else check.as_unverifiable("against the release's own distribution")

    def as_person_check(self, check: Check) -> Check:
        """A check that may count persons: unverifiable without their ids."""
        return check if self.can_count else check.as_unverifiable("it counts persons; in rows")


def to_float(value: Any) -> float:
    """A figure of a macro as a number. Without rows there is none: NaN, which satisfies no requirement."""
    return math.nan if value is None else float(value)
