"""What a privacy requirement is to the rest: one class, which says all of it, and the condition that the search needs.

A `Requirement` is an entry of a policy's ``[privacy]``. Held against a source (`Requirement.of`) it is a condition on
equivalence classes, on k-anonymous subsets of the quasi-identifiers, on the kept table, or on a figure that is counted
for each generalization separately.

How far a condition on classes prunes the lattice follows from what merging does to it. Generalizing further merges
classes.

- *Hereditary*: no part of a class that breaks it ever meets it. Then all rows of such a class are lost here and at
  every lower generalization: the number of suppressed rows never grows on the way up, with suppression too.
- *Closed under merging*: two classes that meet it, merged, meet it. Without suppression that is enough: above a
  generalization in which all classes meet it, all classes meet it. With suppression it is not: a class that meets it
  can merge with one that does not, and be lost. What remains true: a class that breaks it loses at least its
  `shortfall` here and at every lower generalization, whatever is suppressed there.

All conditions on classes are closed under merging where counts add up. They do, but for persons who are in several
combinations of quasi-identifiers: such a person, merged with itself, counts once. There only hereditary ones prune.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Protocol, TypeAlias

from sqlglot import exp

from sqlanon.requirements.audit import AuditedRelease, Check
from sqlanon.requirements.macros import Macro
from sqlanon.requirements.plain_sql import WarehouseRelease
from sqlanon.support.expressions import col, number
from sqlanon.support.fields import Flaw

CLASS_SIZE = "class_size"
"""The column of a class that is always there: its number of rows."""

CLASS_COUNT = "class_count"
"""What requirements count: the rows of a class, or its distinct persons."""

CLASS_POPULATION = "class_population"
"""The rows, or persons, of the population that a class matches."""

TOLERANCE = 1e-12
"""Comparisons at a border carry it: a class of exactly l equally frequent values is entropy l-diverse."""

VALUE = "v"
SHARE = "share"
"""Of a distribution: a value's small integer, and its share of the whole source; beside its count in a class."""

CUMULATED = "cumulated"
SUMS = "sums"
WIDEST = "widest"
"""The columns of `frequency.distribution.ordered_domain`."""


def format_number(value: float) -> str:
    """A number for a name: short, and never the same for two numbers.

    >>> format_number(0.2), format_number(3.0), format_number(0.1000001)
    ('0.2', '3', '0.1000001')
    """
    short = f"{value:g}"
    return short if float(short) == value else repr(value)


@dataclass(frozen=True)
class Distribution:
    """The values of a sensitive attribute within classes.

    ``nodes`` are those of its hierarchy below the root, each with all values under it; ``joint`` are values within
    equal values of the other sensitive attributes.
    """

    attribute: str
    kind: Literal["values", "nodes", "joint"] = "values"

    def name(self, figure: str) -> str:
        """The column of a class with one of the distribution's figures."""
        return f"{self.attribute} {self.kind} {figure}"

    def column(self, figure: str) -> exp.Column:
        """The same as an expression."""
        return col(self.name(figure))


@dataclass(frozen=True)
class Domain:
    """A sensitive attribute in the whole source: its number of values, NULL among them (None: counted whenever it is
    needed), and the top level of its hierarchy, if it has one.
    """

    values: int | None
    height: int = 0


@dataclass(frozen=True)
class SourceFacts:
    """What a requirement needs of a source: its quasi-identifiers in their order, and the domains of its sensitive
    attributes, if they are known.
    """

    quasi: Sequence[str] = ()
    domains: Mapping[str, Domain] = field(default_factory=dict)


class ClassCondition(ABC):
    """A condition that every equivalence class of a release has to meet; classes that do not are suppressed."""

    hereditary: ClassVar[bool] = False
    """Whether no part of a class that breaks it ever meets it."""

    uses_population: ClassVar[bool] = False
    """Whether it is on what a class matches in the population."""

    @property
    @abstractmethod
    def name(self) -> str:
        """What people call it, with its parameters: ``5-anonymity``."""

    @property
    def distribution(self) -> Distribution | None:
        """The sensitive values that it is on, if it is."""
        return None

    @property
    def group_condition(self) -> ClassCondition | None:
        """The condition that each group of its distribution has to meet, if that is ``joint``."""
        return None

    @property
    def needs_domain(self) -> bool:
        """Whether it needs the columns of `frequency.distribution.ordered_domain` beside its figures."""
        return False

    @property
    def min_class_rows(self) -> int:
        """No class of fewer rows ever meets it: that bounds what a search can find."""
        return 1

    @property
    def min_class_count(self) -> int:
        """It is a least count (rows or persons) of classes, and nothing else: this one; else 1."""
        return 1

    def figures(self) -> Mapping[str, exp.Expr]:
        """Aggregates of a class's `distribution`, over ``v``, ``share`` and ``n``, by the name of the figure."""
        return {}

    def derived_figures(self, min_rows: int) -> Mapping[str, exp.Expr]:
        """What is worked out from the figures, once for a class: likewise by name."""
        return {}

    @abstractmethod
    def condition(self) -> exp.Expr:
        """What a class has to meet, over ``class_count``, ``class_population``, the figures and what is derived."""

    def shortfall(self) -> exp.Expr:
        """Of a class that breaks it: the fewest of its rows that are lost, here and at every lower generalization."""
        return number(1)

    def uncoverable_class(self) -> exp.Expr | None:
        """Where each class of the population has to be a kept class: those that no suppression can make one."""
        return None


@dataclass(frozen=True)
class SubsetCondition:
    """k-anonymity over some of the quasi-identifiers: a shield. Their numbers (ascending), their names, and k.

    Suppressing a class for one shield makes the classes of the others smaller: the kept rows are the greatest set in
    which all hold. Monotone, with suppression too: a set of rows that meets all shields meets them when it is
    generalized further, so that the greatest set never shrinks on the way up.
    """

    attributes: tuple[int, ...]
    names: tuple[str, ...]
    k: int

    @property
    def name(self) -> str:
        """``3-anonymity of zip, age``."""
        return f"{self.k}-anonymity of {', '.join(self.names)}"


@dataclass(frozen=True)
class RetainedClasses:
    """The kept classes together: how many they are, their rows, and what requirements count in them (rows or persons).

    ``singles`` are the classes of one; ``unmatched`` the rows of classes that match nobody in the population.
    """

    classes: int
    rows: int
    count: int
    uniques: int
    unmatched_rows: int = 0


class Limit(ABC):
    """A limit on a figure of the kept rows together. It suppresses nothing."""

    label: ClassVar[str]
    """What people call the figure."""

    @property
    @abstractmethod
    def upper_bound(self) -> float:
        """The greatest figure that meets it."""

    @property
    def name(self) -> str:
        """What people call it, with its limit."""
        return f"{self.label} of at most {format_number(self.upper_bound)}"

    def is_within(self, figure: float) -> bool:
        """Whether a figure is within the limit; where there is none (NaN), it is not."""
        return figure <= self.upper_bound + TOLERANCE


class TableCondition(Limit):
    """A limit on a figure of the kept classes.

    Where the kept rows stay the same, a generalization above one that meets it meets it.
    """

    @abstractmethod
    def figure(self, kept: RetainedClasses) -> float:
        """The figure of kept classes, of which there are some."""

    def is_met_by(self, kept: RetainedClasses) -> bool:
        """Whether kept classes meet it."""
        return not kept.count or self.is_within(self.figure(kept))


class RetainedRows(Protocol):
    """The kept rows of one generalization: how many they are, and what the source counts (rows or persons). All else is
    counted when it is asked for.
    """

    @property
    def rows(self) -> int: ...
    @property
    def source_count(self) -> int: ...

    def class_sizes(self) -> Mapping[int, int]:
        """How many kept classes there are of each size, in rows or persons."""

    def count_wrong_matches(self) -> int:
        """The rows that match only other people in the population."""


class SeparateCondition(Limit):
    """A limit on a figure counted for each generalization separately: that one meets it says nothing of another."""

    @abstractmethod
    def figure(self, kept: RetainedRows) -> float:
        """The figure of kept rows, of which there are some; NaN: there is none."""

    def refuse(self, counted: int) -> None:
        """Refuse what contradicts the rows or persons of the source."""


Condition: TypeAlias = ClassCondition | SubsetCondition | TableCondition | SeparateCondition
"""What a requirement is to a source."""


@dataclass(frozen=True)
class SensitiveAttribute:
    """A sensitive attribute of a policy: its place, whether it has a hierarchy, whether no other is sensitive."""

    place: str
    has_hierarchy: bool
    is_only_one: bool


@dataclass(frozen=True)
class Entry:
    """A requirement as ``[privacy]`` has it, under a key: a number, one table, or any number of tables.

    ``scope``: it is on classes, beside a population, or on the table as a whole. ``alone``: a
    release alone shows that it is met, where rows are counted. ``plain_macros``: the macros of each release file are
    enough for its audit. ``whole_source``: it holds of all rows of one source together, and not with some left out.
    ``subsets``: each of its ``quasi`` are some of the quasi-identifiers. ``persons``: it compares the persons of the
    source with those of the population. ``estimate``: its figure is estimated, not counted.
    """

    key: str
    form: Literal["number", "table", "list"]
    description: str
    number: Any = None
    scope: Literal["class", "population", "table"] = "class"
    verifiable_alone: bool = True
    plain_macros: bool = False
    whole_source: bool = False
    subsets: bool = False
    compares_persons: bool = False
    is_estimate: bool = False
    macros: Sequence[Macro] = ()
    example: Any = None


class Requirement(ABC):
    """What an entry of ``[privacy]`` asks for, and all that the rest needs to know of it.

    A requirement that is a number is a class over that number; the others are sections of the
    policy (`fields.Section`) themselves.
    """

    entry: ClassVar[Entry]

    def bind(self, source: SourceFacts) -> Condition:
        """The condition that it is for the search; most are one themselves."""
        assert isinstance(self, ClassCondition | TableCondition | SeparateCondition)
        return self

    @property
    def name(self) -> str:
        """What people call it, with its parameters: ``5-anonymity``."""
        return self.bind(SourceFacts()).name

    @property
    def sensitive_attributes(self) -> tuple[str, ...]:
        """The sensitive attributes that it is on."""
        name = getattr(self, "attribute", None)
        return () if name is None else (name,)

    @property
    def uses_all_sensitive(self) -> bool:
        """Whether all other sensitive attributes play a part."""
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
        """The sensitive attributes whose values it puts in order."""
        return ()

    @property
    def sampling(self) -> tuple[int | None, float | None]:
        """The rows of the population, or the source's share of it, where it names them."""
        return None, None

    @classmethod
    def find_conflicts(cls, written: Mapping[str, Any], name: str, spot: SensitiveAttribute) -> Iterator[Flaw]:
        """What is wrong between it, as it is written, and the sensitive attribute that it names."""
        return iter(())

    def guaranteed_k(self, quasi: Sequence[str]) -> int:
        """The rows that a class has at least, if it is met."""
        return 1

    @abstractmethod
    def audit(self, audited: AuditedRelease) -> Iterator[Check]:
        """Check it on a relation, by macros or SQL that know nothing of the search."""

    def violations(self, released: WarehouseRelease) -> exp.Select | None:
        """A query in plain SQL, for any warehouse, of what breaks it; None where there is none."""
        return None

    @abstractmethod
    def sentence(self, who: str) -> str:
        """It in words for people; ``who`` are counted: rows or people."""
