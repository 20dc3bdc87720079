"""The interface of privacy requirements: the policy entry, the condition for the search, the audit and the texts.

A `Requirement` is an entry of a policy's ``[privacy]``. Bound to a source (`Requirement.bind`), it is a condition on
equivalence classes, on subsets of the quasi-identifiers, on the released table, or on a figure that is counted for each
generalization separately.

Generalizing further merges classes, so the effect of merging decides how far a condition on classes prunes the lattice:

- *Hereditary*: if a class violates the condition, so does every part of it. All rows of the class are suppressed at
  this generalization and at every lower one, so the number of suppressed rows never grows on the way up.
- *Closed under merging*: if two classes satisfy the condition, so does their union. Without suppression, every
  generalization above a feasible one is feasible. With suppression this fails: a satisfying class can merge with a
  violating one and be suppressed. A violating class still loses at least its `shortfall` at this generalization and at
  every lower one.

All conditions on classes are closed under merging where counts add up. A person with several combinations of
quasi-identifiers breaks this, because it counts once in a merged class. There, only hereditary conditions prune.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Protocol, TypeAlias

from sqlglot import exp

from sqlanon.requirements.audit import AuditedRelease
from sqlanon.requirements.macros import Macro
from sqlanon.requirements.plain_sql import WarehouseRelease
from sqlanon.support.checks import Check
from sqlanon.support.expressions import col, number
from sqlanon.support.fields import Flaw

CLASS_SIZE = "class_size"
"""The column with the number of rows of a class; every query of classes has it."""

CLASS_COUNT = "class_count"
"""The column that requirements count: the rows of a class, or its distinct persons."""

CLASS_POPULATION = "class_population"
"""The column with the rows, or persons, of the population that match a class."""

TOLERANCE = 1e-12
"""Rounding allowance of comparisons: a class of exactly l equally frequent values is entropy l-diverse."""

VALUE = "value_code"
SHARE = "share"
"""Columns of a distribution: the code of a value, and its share of the whole source."""

CUMULATED = "cumulated"
WIDEST = "widest"
"""The columns of `frequency.distribution.ordered_domain`."""


def format_number(value: float) -> str:
    """Format a number for a name: short, and different for different numbers.

    >>> format_number(0.2), format_number(3.0), format_number(0.1000001)
    ('0.2', '3', '0.1000001')
    """
    short = f"{value:g}"
    return short if float(short) == value else repr(value)


@dataclass(frozen=True)
class Distribution:
    """The values of a sensitive attribute within classes.

    ``nodes``: the nodes of its hierarchy below the root, each with all values under it. ``joint``: the values within
    equal values of the other sensitive attributes.
    """

    attribute: str
    kind: Literal["values", "nodes", "joint"] = "values"

    def name(self, figure: str) -> str:
        """The column name of a figure of the distribution."""
        return f"{self.attribute} {self.kind} {figure}"

    def column(self, figure: str) -> exp.Column:
        return col(self.name(figure))


@dataclass(frozen=True)
class Domain:
    """The domain of a sensitive attribute in the source.

    ``values`` is the number of distinct values, NULL included; None: statements count them. ``height`` is the top
    level of the hierarchy, 0 without one.
    """

    values: int | None
    height: int = 0


@dataclass(frozen=True)
class SourceDomains:
    """The facts of a source that requirements need: quasi-identifiers in order, and domains of sensitive attributes."""

    quasi: Sequence[str] = ()
    domains: Mapping[str, Domain] = field(default_factory=dict)


class ClassCondition(ABC):
    """A condition on equivalence classes; classes that violate it are suppressed."""

    hereditary: ClassVar[bool] = False
    """Every part of a violating class violates it as well."""

    uses_population: ClassVar[bool] = False

    @property
    @abstractmethod
    def name(self) -> str:
        """The name with the parameters, such as ``5-anonymity``."""

    @property
    def distribution(self) -> Distribution | None:
        """The sensitive values that the condition is on: by default, those of its ``attribute``, if it has one."""
        attribute = getattr(self, "attribute", None)
        return None if attribute is None else Distribution(attribute)

    def figure_column(self, figure: str) -> exp.Column:
        """The column of a figure of the distribution."""
        assert self.distribution is not None
        return self.distribution.column(figure)

    def figure_columns(self, *figures: str) -> dict[str, exp.Expr]:
        """The columns of figures by name."""
        return {figure: self.figure_column(figure) for figure in figures}

    @property
    def group_condition(self) -> ClassCondition | None:
        """The condition on each group of equal other sensitive values, for a ``joint`` distribution."""
        return None

    @property
    def needs_domain(self) -> bool:
        """Whether it reads the columns of `frequency.distribution.ordered_domain`."""
        return False

    @property
    def compares_with_source(self) -> bool:
        """Whether it compares a class with the whole source."""
        columns = (column for figure in self.figures().values() for column in figure.find_all(exp.Column))
        return self.needs_domain or any(column.name == SHARE for column in columns)

    @property
    def min_class_rows(self) -> int:
        """The smallest class that can satisfy it, in rows; it bounds the search."""
        return self.min_class_count

    @property
    def min_class_count(self) -> int:
        """The required count (rows or persons) if the condition is nothing but a minimum count; otherwise 1."""
        return 1

    def figures(self) -> Mapping[str, exp.Expr]:
        """Aggregates of the `distribution` in a class, over ``value_code``, ``share`` and ``row_count``, by name."""
        return {}

    def derived_figures(self, min_rows: int) -> Mapping[str, exp.Expr]:
        """Expressions over the figures, evaluated once for each class, by name."""
        return {}

    @abstractmethod
    def condition(self) -> exp.Expr:
        """The condition over ``class_count``, ``class_population``, the figures and the derived figures."""

    def shortfall(self) -> exp.Expr:
        """A lower bound on the rows that a violating class loses at this generalization and every lower one."""
        return number(1)

    def uncoverable_class(self) -> exp.Expr | None:
        """The classes that cannot be released whatever is suppressed, if every class of the population must be."""
        return None


@dataclass(frozen=True)
class SubsetCondition:
    """k-anonymity over some of the quasi-identifiers (a shield): their ascending positions, their names, and k.

    Suppressing a class for one shield shrinks the classes of the others, so the kept rows are the greatest set in
    which all shields hold. This is monotone with suppression: generalizing a set that satisfies all shields keeps it
    satisfying, so the greatest set never shrinks on the way up.
    """

    attributes: tuple[int, ...]
    names: tuple[str, ...]
    k: int

    @property
    def name(self) -> str:
        """``3-anonymity of zip, age``."""
        return f"{self.k}-anonymity of {', '.join(self.names)}"


@dataclass(frozen=True)
class KeptClasses:
    """Totals of the kept classes: their number, rows, and what requirements count in them (rows or persons).

    ``single_classes`` are the classes of one; ``unmatched_rows`` the rows of classes without a match in the population.
    """

    classes: int
    rows: int
    count: int
    single_classes: int
    unmatched_rows: int = 0


class Limit(ABC):
    """An upper bound on a figure of all kept rows. It suppresses nothing."""

    label: ClassVar[str]
    """The name of the figure in messages."""

    @property
    @abstractmethod
    def upper_bound(self) -> float: ...

    @property
    def name(self) -> str:
        return f"{self.label} of at most {format_number(self.upper_bound)}"

    def is_within(self, figure: float) -> bool:
        """Whether a figure is within the limit; NaN, a figure that could not be computed, is not."""
        return figure <= self.upper_bound + TOLERANCE

    def check(self, figure: float, message: str) -> Check:
        return Check(self.name, self.is_within(figure), message)


class TableCondition(Limit):
    """A limit on a figure of the kept classes.

    Where the kept rows stay the same, every generalization above a satisfying one satisfies it.
    """

    @abstractmethod
    def figure(self, kept_classes: KeptClasses) -> float:
        """The figure of at least one kept class."""

    def is_met_by(self, kept_classes: KeptClasses) -> bool:
        return not kept_classes.count or self.is_within(self.figure(kept_classes))


class KeptRows(Protocol):
    """The kept rows of one generalization. Class sizes and wrong matches are counted on demand."""

    @property
    def rows(self) -> int: ...
    @property
    def source_count(self) -> int:
        """The rows or persons of the source."""

    def class_sizes(self) -> Mapping[int, int]:
        """The number of kept classes of each size, in rows or persons."""

    def count_wrong_matches(self) -> int:
        """Count the rows that match only other people in the population."""


class SeparateCondition(Limit):
    """A limit on a figure that has to be counted for each generalization: one result implies nothing about another."""

    @abstractmethod
    def figure(self, kept_rows: KeptRows) -> float:
        """The figure of at least one kept row; NaN if there is none."""

    def refuse(self, source_count: int) -> None:
        """Refuse parameters that contradict the number of rows or persons of the source."""


Condition: TypeAlias = ClassCondition | SubsetCondition | TableCondition | SeparateCondition
"""A requirement bound to a source."""


@dataclass(frozen=True)
class SensitiveAttribute:
    """A sensitive attribute of a policy: its path, whether it has a hierarchy, and whether it is the only one."""

    place: str
    has_hierarchy: bool
    is_only_one: bool


@dataclass(frozen=True)
class Entry:
    """The key of a requirement in ``[privacy]`` and its properties that other stages rely on."""

    key: str
    form: Literal["number", "table", "list"]
    """One number, one table, or a list of tables."""
    description: str
    number: Any = None
    """The type of the number."""
    scope: Literal["class", "population", "table"] = "class"
    """A requirement is on classes, on classes with a population, or on the table as a whole."""
    verifiable_alone: bool = True
    """A release alone shows whether it is met, where rows are counted."""
    plain_macros: bool = False
    """The macros in each release file are enough for its audit."""
    whole_source: bool = False
    """It holds for all rows of one source together, and may fail once some are removed."""
    subsets: bool = False
    """Each item of the list has ``quasi``: some of the quasi-identifiers."""
    compares_persons: bool = False
    """It compares the persons of the source with those of the population."""
    is_estimate: bool = False
    """The figure is estimated, not counted."""
    macros: Sequence[Macro] = ()
    example: Any = None


class Requirement(ABC):
    """A requirement of ``[privacy]``: everything that the policy, the search, the audit and reports need of it.

    A requirement that is a number wraps that number; the others are sections of the policy (`fields.Section`).
    """

    entry: ClassVar[Entry]

    def bind(self, source: SourceDomains) -> Condition:
        """The condition for the search on a source. Most requirements are their own condition."""
        assert isinstance(self, ClassCondition | TableCondition | SeparateCondition)
        return self

    @property
    def name(self) -> str:
        """The name with the parameters, such as ``5-anonymity``."""
        return self.bind(SourceDomains()).name

    @property
    def sensitive_attributes(self) -> tuple[str, ...]:
        """The sensitive attributes that it names."""
        attribute = getattr(self, "attribute", None)
        return () if attribute is None else (attribute,)

    @property
    def uses_all_sensitive(self) -> bool:
        """Whether it depends on all other sensitive attributes as well."""
        return False

    @property
    def quasi_identifiers(self) -> tuple[str, ...]:
        """The quasi-identifiers that it names."""
        return ()

    @property
    def needed_hierarchies(self) -> tuple[str, ...]:
        """The sensitive attributes whose hierarchies it needs."""
        return ()

    @property
    def ordered_attributes(self) -> tuple[str, ...]:
        """The sensitive attributes whose values it sorts."""
        return ()

    @property
    def sampling(self) -> tuple[int | None, float | None]:
        """The population size, or the sampling fraction, if it has one."""
        return None, None

    @classmethod
    def find_conflicts(cls, keys: Mapping[str, Any], name: str, attribute: SensitiveAttribute) -> Iterator[Flaw]:
        """Conflicts between the requirement as written and the sensitive attribute that it names."""
        return iter(())

    def guaranteed_k(self, quasi: Sequence[str]) -> int:
        """A lower bound on the rows of a class in which the requirement holds."""
        return 1

    def checks(self, audited: AuditedRelease) -> Iterator[Check]:
        """The checks of `audit`; if the population that it needs is not available, a single check that says so."""
        lacks_person = self.entry.compares_persons and audited.person is None
        if self.entry.scope == "population" and (audited.population is None or lacks_person):
            yield Check(self.name, None, "not verifiable alone: it needs the population")
        else:
            yield from self.audit(audited)

    @abstractmethod
    def audit(self, audited: AuditedRelease) -> Iterator[Check]:
        """Check it on released rows, by macros or SQL that are independent of the search."""

    def violations(self, released: WarehouseRelease) -> exp.Select | None:
        """A query of the violations in plain SQL, for any warehouse; None without such a query."""
        return None

    @abstractmethod
    def sentence(self, unit: str) -> str:
        """The requirement in words for people; ``unit`` is what is counted: rows or people."""
