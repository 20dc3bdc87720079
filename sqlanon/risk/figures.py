"""The figures of the risk of a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal

from sqlanon.disclosure.dependencies import Narrowing
from sqlanon.frequency.class_sizes import ClassSizes
from sqlanon.risk.attackers import JournalistRisk, MarketerRisk, PopulationRisk, ProsecutorRisk
from sqlanon.risk.individual import HouseholdRisk, IndividualRisk
from sqlanon.risk.leakage import Leakage
from sqlanon.risk.leakage_search import LeakageSearch

Columns = Mapping[str, str]
Table = tuple[Columns, Sequence[Sequence[Any]]]
"""The columns of a table of figures by name, with their types, and its rows."""


@dataclass(frozen=True)
class RequirementRisk:
    """Whether the source, as it stands, meets a requirement of the policy.

    Attributes
    ----------
    requirement:
        Its name.
    holds:
        Whether nothing violates it.
    classes, rows:
        The violating classes, and the rows in them; for a shield, classes over its own quasi-identifiers. None for a
        requirement on the table as a whole.
    figure, limit:
        For a requirement on the whole table: the figure (0 in an empty table; None without an estimate), and its
        greatest allowed value.
    population_classes:
        If each class of the population has to be released: the classes of the population without a row in the source.
    """

    requirement: str
    holds: bool
    classes: int | None = None
    rows: int | None = None
    figure: float | None = None
    limit: float | None = None
    population_classes: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the figures as a dictionary for JSON: ``classes`` and ``rows`` always, others only if they apply.

        >>> RequirementRisk("5-anonymity", holds=False, classes=2, rows=7).to_dict()
        {'requirement': '5-anonymity', 'holds': False, 'classes': 2, 'rows': 7}
        """
        figures = asdict(self)
        if self.limit is None:
            del figures["figure"], figures["limit"]
        if self.population_classes is None:
            del figures["population_classes"]
        return figures


@dataclass(frozen=True, kw_only=True)
class Risk:
    """The risk of a table, and whether it meets the policy's requirements.

    Attributes
    ----------
    rows, classes, smallest_class:
        Rows, equivalence classes, and the rows of the smallest class (0 in an empty table); if the policy counts
        persons, the fewest persons in a class.
    uniques:
        The classes of one row, or of one person if the policy counts persons.
    k, rows_below_k:
        The policy's k (None without one), and the rows in classes of fewer rows, or of fewer persons if the policy
        counts persons. Like all requirements, k applies to the classes of the quasi-identifiers without noise; all
        other figures are of the classes of all quasi-identifiers.
    highest_risk, average_risk:
        The greatest risk of a row, and the mean over rows (= classes / rows), 0 to 1. If the policy counts persons: of
        a person, and the mean over the persons of each class.
    persons, smallest_class_rows:
        Distinct persons (all rows without one count as one), and the fewest rows in a class; None if rows are counted.
    requirements:
        Each requirement of the policy, ordered as `Requirements.names`.
    noise:
        By attribute with noise, for several ε: ``epsilon`` (of this attribute), ``expected_relative_error`` and
        ``expected_error``, in the classes of the generalization that the policy's search finds. None without noise, and
        if no generalization meets the policy.
    counts:
        The unit of class sizes in all figures: ``rows`` or ``persons``. (In the leakage with priors, rows.)
    prosecutor, journalist, marketer:
        The risk by attacker. (With a population table, of the classes of the quasi-identifiers without noise.)
    population:
        Estimates of population uniqueness; None if the size of the population is unknown.
    class_sizes:
        The classes by size.
    individual, household:
        None without the columns that the policy's ``[risk]`` names for them.
    expected_reidentifications:
        The expected number of re-identifications of an attacker who tries all rows: by the weights if any, else the
        marketer's.
    leakage:
        Of all sets of quasi-identifiers of up to the requested size (by default three), and of the larger ones measured
        within a time limit; highest leakage first.
    leakage_search:
        The extent of the search for sets.
    dependencies:
        The columns to be released unchanged that narrow a quasi-identifier, if all of its values get one label.
    undecided_person:
        The decision that is due if the policy does not say who a person is, and a column numbers people with several
        rows. All figures count rows then.
    warnings:
        Bad lines in the files of the source that the policy drops; and unprotected columns that are released unchanged:
        nearly unique ones, and insensitive ones named like health, belief, politics, sexual life or crime.
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
        return tuple(requirement for requirement in self.requirements if not requirement.holds)

    def to_dict(self) -> dict[str, Any]:
        """Return the figures as a dictionary for JSON; those of persons only if persons are counted."""
        figures = {
            field_.name: _plain(getattr(self, field_.name))
            for field_ in fields(self)
            if not field_.name.startswith("_")
        }
        if self.persons is None:
            del figures["persons"], figures["smallest_class_rows"]
        if self.noise is None:
            del figures["noise"]
        violations = [
            {"requirement": violation.requirement, "classes": violation.classes, "rows": violation.rows}
            for violation in self.violations
        ]
        return figures | {"violations": violations}

    @property
    def tables(self) -> dict[str, Table]:
        """All figures as tables: ``result`` (name, value), ``class_sizes``, ``leakage``, ``requirements``."""
        figures = [(name, float(value)) for name, value in _flatten(self.to_dict()) if isinstance(value, (int, float))]
        leakages = [
            (list(leakage.attributes), leakage.gain, leakage.normalized, leakage.classes, leakage.uniques)
            for leakage in self.leakage
        ]
        requirements = [
            (risk.requirement, risk.holds, risk.classes, risk.rows, risk.figure, risk.limit)
            for risk in self.requirements
        ]
        return {
            "figures": ({"figure": "VARCHAR", "value": "DOUBLE"}, figures),
            "class_sizes": ({"class_size": "BIGINT", "classes": "BIGINT", "rows": "BIGINT"}, self.class_sizes.by_size),
            "leakage": (
                {"attributes": "VARCHAR[]", "gain": "DOUBLE", "normalized": "DOUBLE", "classes": "BIGINT",
                 "uniques": "BIGINT"},
                leakages,
            ),
            "requirements": (
                {"requirement": "VARCHAR", "holds": "BOOLEAN", "classes": "BIGINT", "rows": "BIGINT",
                 "figure": "DOUBLE", "limit": "DOUBLE"},
                requirements,
            ),
        }  # fmt: skip

    def relation(self, name: str) -> Any:
        """One of the `tables` as a relation of the `Database` of this assessment, until that is closed.

        Raises
        ------
        KeyError
            No table has this name.
        """
        if self._relate is None:
            raise ValueError("relation: this risk does not come from a Database; use .tables")
        return self._relate(self.tables[name])


def _plain(value: Any) -> Any:
    if hasattr(value, "to_dict"):
        return value.to_dict()
    if isinstance(value, tuple):
        return [_plain(element) for element in value]
    return asdict(value) if hasattr(value, "__dataclass_fields__") else value


def _flatten(tree: Mapping[str, Any], above: str = "") -> list[tuple[str, Any]]:
    """Flatten a tree of figures to names such as ``prosecutor.highest``, without lists, which have their own tables."""
    figures: list[tuple[str, Any]] = []
    for name, value in tree.items():
        if isinstance(value, Mapping):
            figures += _flatten(value, f"{above}{name}.")
        elif not isinstance(value, (bool, str, list)):
            figures.append((above + name, value))
    return figures
