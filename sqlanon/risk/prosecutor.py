"""How risky a table is as it stands, to an attacker who knows that somebody is in it.

Source: K. El Emam, "Guide to the De-Identification of Personal Health Information" (2013): the prosecutor's risk of
a row is 1 / the size of its equivalence class.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sqlanon.risk.requirements import RequirementRisk


@dataclass(frozen=True)
class Risk:
    """The prosecutor's risk of a table, and what the policy's requirements say of it.

    Attributes
    ----------
    rows, classes, smallest_class:
        Rows, equivalence classes, and the rows of the smallest class (0 in an empty table).
    uniques:
        Rows that are alone in their class.
    k, rows_below_k:
        The policy's k (None without one), and the rows in classes of fewer rows, or of fewer persons where the
        policy counts persons. As all requirements, k is on the classes that the quasi-identifiers without noise make;
        all other figures are of those that all quasi-identifiers make.
    highest_risk, average_risk:
        The greatest risk of a row, and the mean over rows (= classes / rows), 0 to 1. Where the policy counts persons:
        of a person, and the mean over the persons of each class.
    persons, smallest_class_persons:
        Distinct persons (all rows without one are one), and the fewest in a class; None where rows are counted.
    requirements:
        Each requirement of the policy, ordered as `Requirements.names`.
    noise:
        By attribute with noise, for several ε: ``epsilon`` (the attribute's own), ``expected_relative_error`` and
        ``expected_error``, in the classes of the version that the policy's search finds. None without noise, and where
        nothing meets the policy.
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
    smallest_class_persons: int | None = None
    requirements: tuple[RequirementRisk, ...] = ()
    noise: Mapping[str, Sequence[Mapping[str, Any]]] | None = None

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON; figures of persons are there where persons are counted."""
        found = asdict(self)
        if self.persons is None:
            del found["persons"], found["smallest_class_persons"]
        if self.noise is None:
            del found["noise"]
        return found | {"requirements": [one.to_dict() for one in self.requirements]}
