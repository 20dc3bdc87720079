"""The subject of an audit: released rows, and what only the data holder has beside them.

A release alone shows its rows: who they are of, how the source is distributed, and a population it does not show. What
needs these is not verifiable alone; with `PrivateRelations` relations it is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from sqlglot import exp

from sqlanon.requirements.macros import Macro, call_macro, count_class_sizes


@dataclass(frozen=True)
class Check:
    """One check of a release: its name, whether it passed (None: not verifiable alone), and what was seen."""

    name: str
    passed: bool | None
    message: str

    def as_unverifiable(self, reason: str) -> Check:
        """The same, where the release alone does not show it."""
        return replace(self, passed=None, message=f"not verifiable alone: {reason}, {self.message}")


def needs_population(name: str) -> Check:
    """The check of a requirement on a population, where the population cannot be seen."""
    return Check(name, None, "not verifiable alone: it needs the population")


class Queryable(Protocol):
    """What runs the queries of an audit: an engine."""

    def rows(self, query: exp.Expr) -> list[tuple[Any, ...]]:
        """The rows of a query."""


class PersonCounts(Protocol):
    """The persons of rows that stay elsewhere, as relations with a number for each: they are counted there."""

    def release_relation(self, keys: Sequence[str], attribute: str | None = None) -> str:
        """The persons of each class, or of each value of a sensitive attribute in it."""

    def source_relation(self, attribute: str) -> str:
        """The persons of each value of a sensitive attribute in the source."""

    def count_source_persons(self) -> int:
        """The persons of the source."""


@dataclass(frozen=True)
class PrivateRelations:
    """What only the data holder has, as relations by their text.

    The source, with its sensitive columns and its person column, if it has one (then the relation that is checked has
    it too); the population, generalized as the release is, and its person column; and by attribute the hierarchies of
    sensitive attributes, ``level_0`` to the top.
    """

    source: str
    person: str | None = None
    population: str | None = None
    population_person: str | None = None
    hierarchies: Mapping[str, str] = field(default_factory=dict)
    person_counts: PersonCounts | None = None
    """Where the persons are counted, if the rows stay elsewhere: then the relation that is checked has none."""


@dataclass(frozen=True)
class AuditedRelease:
    """The released rows, by their text, the columns of their roles, and the rows of their source.

    ``macros`` is the database that has the macro library (None: the one in use); ``persons``: the policy counts
    persons; ``combinations``: those of k-anonymity, where it is guaranteed of some quasi-identifiers at a time.
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
        """Whether what requirements count can be seen: rows always, persons with their ids only."""
        return not self.counts_persons or self.private is not None

    @property
    def person(self) -> str | None:
        """The person column, where there is one to be seen."""
        return self.private.person if self.private is not None else None

    @property
    def person_counts(self) -> PersonCounts | None:
        """Where persons are counted, if the rows of the source stay elsewhere."""
        return None if self.private is None else self.private.person_counts

    @property
    def person_option(self) -> dict[str, str]:
        """The option of macros that count persons, where they can be seen."""
        return {"person": self.person} if self.person else {}

    @property
    def population(self) -> tuple[str, dict[str, str]] | None:
        """The population, where it can be seen, and the option of macros that count its persons."""
        if self.private is None or self.private.population is None:
            return None
        person = self.private.population_person
        return self.private.population, {"population_person": person} if person is not None else {}

    @property
    def table(self) -> exp.Table:
        """The released rows as an expression, for a requirement that has no macro."""
        return exp.to_table(self.relation, dialect="duckdb")

    def figures(self, macro: Macro, *arguments: Any, **options: Any) -> dict[str, Any]:
        """The one row of a macro, by name."""
        relation = self.relation
        if self.person_counts is not None and (self.person in arguments or "person" in options):
            sensitive = {name.lower() for name in self.sensitive}
            named = (one for one in arguments[1:] if isinstance(one, str) and one.lower() in sensitive)
            relation = self.person_counts.release_relation(arguments[0], next(named, None))
        query = call_macro(macro.name, relation, *arguments, catalog=self.macro_catalog, **options)
        rows = self.engine.rows(query)
        return dict(zip(macro.columns, rows[0], strict=True)) if rows else dict.fromkeys(macro.columns)

    def query_value(self, query: exp.Expr) -> Any:
        """The one value of a query; None where the query is recorded, and not run."""
        rows = self.engine.rows(query)
        return rows[0][0] if rows else None

    def against_source(self, macro: Macro, attribute: str, **options: Any) -> dict[str, Any]:
        """The figures of a macro on a sensitive attribute, beside its shares in the source or else in the release."""
        if self.private is not None:
            counts = self.person_counts
            options["reference"] = self.private.source if counts is None else counts.source_relation(attribute)
            options |= self.person_option
        return self.figures(macro, list(self.quasi_identifiers), attribute, **options)

    def class_sizes(self) -> dict[int, int]:
        """How many classes there are of each size, in rows or persons."""
        counts = self.person_counts
        relation = self.relation if counts is None else counts.release_relation(self.quasi_identifiers)
        return dict(
            self.engine.rows(count_class_sizes(relation, self.quasi_identifiers, self.person, self.macro_catalog))
        )

    def as_source_check(self, check: Check) -> Check:
        """A check on shares of the source, which a release alone does not show."""
        return check if self.private is not None else check.as_unverifiable("against the release's own distribution")

    def as_person_check(self, check: Check) -> Check:
        """A check on counts of persons, which a release alone does not show."""
        return check if self.can_count else check.as_unverifiable("it counts persons; in rows")


def figure(value: Any) -> float:
    """A figure of a macro. There is none of no rows: nothing is met then."""
    return math.nan if value is None else float(value)
