"""All figures about the risk of a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal

from sqlanon.disclosure.class_sizes import ClassSizes
from sqlanon.disclosure.dependencies import Narrowing
from sqlanon.risk.attackers import JournalistRisk, MarketerRisk, PopulationRisk, ProsecutorRisk
from sqlanon.risk.individual import HouseholdRisk, IndividualRisk
from sqlanon.risk.leakage import Leakage
from sqlanon.risk.leakage_search import LeakageSearch

Columns = Mapping[str, str]
Table = tuple[Columns, Sequence[Sequence[Any]]]
"""The columns of a table of figures by name, with their types, and its rows."""


@dataclass(frozen=True)
class RequirementRisk:
    """What a requirement of the policy says of the source as it stands.

    Attributes
    ----------
    requirement:
        Its name.
    holds:
        Whether nothing breaks it.
    classes, rows:
        The classes that break it, and the rows in them; of a shield, classes over its own quasi-identifiers. None
        where it is about the table as a whole.
    figure, limit:
        Of a requirement on the whole table: what was found (0 in an empty table; None where there is no estimate),
        and the most that it may be.
    population_classes:
        Where each class of the population has to be kept: those of the population that have no row in the source.
    """

    requirement: str
    holds: bool
    classes: int | None = None
    rows: int | None = None
    figure: float | None = None
    limit: float | None = None
    population_classes: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON: ``classes`` and ``rows`` always, the rest where it means something.

        >>> RequirementRisk("5-anonymity", holds=False, classes=2, rows=7).to_dict()
        {'requirement': '5-anonymity', 'holds': False, 'classes': 2, 'rows': 7}
        """
        found = asdict(self)
        if self.limit is None:
            del found["figure"], found["limit"]
        if self.population_classes is None:
            del found["population_classes"]
        return found


@dataclass(frozen=True, kw_only=True)
class Risk:
    """The risk of a table, and what the policy's requirements say of it.

    Attributes
    ----------
    rows, classes, smallest_class:
        Rows, equivalence classes, and the rows of the smallest class (0 in an empty table); where the policy counts
        persons, the fewest persons in a class.
    uniques:
        The classes of one row, or of one person where the policy counts persons.
    k, rows_below_k:
        The policy's k (None without one), and the rows in classes of fewer rows, or of fewer persons where the
        policy counts persons. As all requirements, k is on the classes that the quasi-identifiers without noise make;
        all other figures are of those that all quasi-identifiers make.
    highest_risk, average_risk:
        The greatest risk of a row, and the mean over rows (= classes / rows), 0 to 1. Where the policy counts persons:
        of a person, and the mean over the persons of each class.
    persons, smallest_class_rows:
        Distinct persons (all rows without one are one), and the fewest rows in a class; None where rows are counted.
    requirements:
        Each requirement of the policy, ordered as `Requirements.names`.
    noise:
        By attribute with noise, for several ε: ``epsilon`` (the attribute's own), ``expected_relative_error`` and
        ``expected_error``, in the classes of the version that the policy's search finds. None without noise, and where
        nothing meets the policy.
    counts:
        What the size of a class counts in all figures: ``rows`` or ``persons``. (In the leakage with priors, rows.)
    prosecutor, journalist, marketer:
        The risk by attacker. (With a population table, of the classes that the quasi-identifiers without noise make.)
    population:
        Estimates of population uniqueness; None where nothing says how large the population is.
    class_sizes:
        The classes by size.
    individual, household:
        None without the columns that the policy's ``[risk]`` names for them.
    expected_reidentifications:
        How many an attacker who tries all rows is expected to make: by the weights, where there are any, else the
        marketer's.
    leakage:
        Of all sets of quasi-identifiers of up to the size that was asked for (by default three), and of the larger ones
        that were measured within a time limit; highest leakage first.
    leakage_search:
        How many sets were measured.
    dependencies:
        The columns to be released as they are that narrow a quasi-identifier, where all of its values have one label.
    undecided_person:
        Where the policy does not say who a person is, and a column numbers people of several rows: what there is to
        decide. All figures count rows then.
    warnings:
        What is left out of the files of the source: the bad lines that the policy drops; and columns that are released
        unchanged and that nothing protects: nearly unique ones, and insensitive ones named like health, belief,
        politics, sexual life or crime.
    """

    rows: int
    classes: int
    smallest_class: int
    uniques: int
    k: int | None
    rows_below_k: int
    highest_risk: float
    average_risk: float
    persons: int | None = None
    smallest_class_rows: int | None = None
    requirements: tuple[RequirementRisk, ...] = ()
    noise: Mapping[str, Sequence[Mapping[str, Any]]] | None = None
    counts: Literal["rows", "persons"] = "rows"
    prosecutor: ProsecutorRisk
    journalist: JournalistRisk
    marketer: MarketerRisk
    population: PopulationRisk | None = None
    class_sizes: ClassSizes
    individual: IndividualRisk | None = None
    household: HouseholdRisk | None = None
    expected_reidentifications: float
    leakage_search: LeakageSearch
    leakage: tuple[Leakage, ...] = ()
    dependencies: tuple[Narrowing, ...] = ()
    undecided_person: str | None = None
    warnings: tuple[str, ...] = ()
    _relate: Callable[[Table], Any] | None = field(default=None, repr=False, compare=False)

    @property
    def violations(self) -> tuple[RequirementRisk, ...]:
        """The requirements that do not hold."""
        return tuple(one for one in self.requirements if not one.holds)

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON; figures of persons are there where persons are counted."""
        found = {one.name: _plain(getattr(self, one.name)) for one in fields(self) if not one.name.startswith("_")}
        if self.persons is None:
            del found["persons"], found["smallest_class_rows"]
        if self.noise is None:
            del found["noise"]
        broken = [{"requirement": one.requirement, "classes": one.classes, "rows": one.rows} for one in self.violations]
        return found | {"violations": broken}

    @property
    def tables(self) -> dict[str, Table]:
        """All figures as tables: ``result`` (name, value), ``class_sizes``, ``leakage``, ``requirements``."""
        figures = [(name, float(value)) for name, value in _flat(self.to_dict()) if isinstance(value, (int, float))]
        leaks = [(list(one.attributes), one.gain, one.normalized, one.classes, one.uniques) for one in self.leakage]
        requirements = [
            (one.requirement, one.holds, one.classes, one.rows, one.figure, one.limit) for one in self.requirements
        ]
        return {
            "figures": ({"figure": "VARCHAR", "value": "DOUBLE"}, figures),
            "class_sizes": ({"class_size": "BIGINT", "classes": "BIGINT", "rows": "BIGINT"}, self.class_sizes.by_size),
            "leakage": (
                {"attributes": "VARCHAR[]", "gain": "DOUBLE", "normalized": "DOUBLE", "classes": "BIGINT",
                 "uniques": "BIGINT"},
                leaks,
            ),
            "requirements": (
                {"requirement": "VARCHAR", "holds": "BOOLEAN", "classes": "BIGINT", "rows": "BIGINT",
                 "figure": "DOUBLE", "limit": "DOUBLE"},
                requirements,
            ),
        }  # fmt: skip

    def relation(self, name: str) -> Any:
        """One of the `tables` as a relation of the `Database` that found this; it is gone when that is closed.

        Raises
        ------
        KeyError
            There is no table of that name.
        """
        if self._relate is None:
            raise ValueError("this was not found by a database: use .tables")
        return self._relate(self.tables[name])


def _plain(value: Any) -> Any:
    """A figure, ready for JSON."""
    if hasattr(value, "to_dict"):
        return value.to_dict()
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    return asdict(value) if hasattr(value, "__dataclass_fields__") else value


def _flat(tree: Mapping[str, Any], above: str = "") -> list[tuple[str, Any]]:
    """The figures of a tree, with names such as ``prosecutor.highest``; lists have tables of their own."""
    found: list[tuple[str, Any]] = []
    for name, value in tree.items():
        if isinstance(value, Mapping):
            found += _flat(value, f"{above}{name}.")
        elif not isinstance(value, (bool, str, list)):
            found.append((above + name, value))
    return found
