"""The journalist: an attacker who does not know whether somebody is in the table, and looks in the population.

Source: K. El Emam, "Guide to the De-Identification of Personal Health Information" (2013), chapters 15 and 16: the
journalist's risk of a row is 1 / F, F the size of its class in the population; the average risk of the table is the
greater one of |J| / Σ F (the attacker begins with somebody of the population) and 1/n Σ f / F (with a row of the
table), over the classes J of the table. Where nothing is known of the population, the prosecutor's risk is an upper
bound, and stands in (as in the ARX Data Anonymization Tool).

F is

- with the policy's ``[population]``: counted there (the rows, or persons). A class that matches nobody there has the
  risk 0: that attacker finds nobody. Such rows are told.
- with its size alone (``population`` or ``sampling_fraction`` in ``[risk]``): the expectation of 1 / F given f by the
  model of Benedetti and Franconi, at p = π for all classes, which is `individual.individual_risk` with all weights
  1 / π; then the average is the mean over rows.
- without either: f, as for the prosecutor.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sqlanon.histogram import ClassSizes
from sqlanon.risk.individual import individual_risk
from sqlanon.risk.prosecutor import prosecutor_risk, shares, threshold_text


@dataclass(frozen=True)
class JournalistRisk:
    """The risk of rows, 0 to 1.

    Attributes
    ----------
    highest, average, rows_at_highest, share_at_highest, rows_above, share_above:
        As of `prosecutor.ProsecutorRisk`, by the population's classes.
    population:
        ``table``: counted in one; ``estimate``: estimated from its size; None: the prosecutor's risk stands in.
    classes_of_nobody, rows_of_nobody:
        With a table: what matches nobody there; else None.
    """

    highest: float
    average: float
    rows_at_highest: int
    share_at_highest: float
    rows_above: Mapping[str, int]
    share_above: Mapping[str, float]
    population: Literal["table", "estimate"] | None
    classes_of_nobody: int | None = None
    rows_of_nobody: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON: what matches nobody where there is a table."""
        found = {**vars(self), "rows_above": dict(self.rows_above), "share_above": dict(self.share_above)}
        if self.classes_of_nobody is None:
            del found["classes_of_nobody"], found["rows_of_nobody"]
        return found


@dataclass(frozen=True)
class PopulationSizes:
    """The classes of a table by the size of their class in the population.

    Attributes
    ----------
    by_population:
        F, classes, their counts (rows or persons) added up, and their rows.
    """

    by_population: tuple[tuple[int, int, int, int], ...]

    @classmethod
    def from_rows(cls, rows: Iterable[Sequence[Any]]) -> PopulationSizes:
        """From the rows of a query."""
        return cls(tuple(sorted((int(f), int(n), int(count), int(of)) for f, n, count, of in rows)))

    @property
    def found(self) -> list[tuple[int, int, int, int]]:
        """Those that match somebody."""
        return [one for one in self.by_population if one[0] > 0]

    @property
    def expected(self) -> float:
        """Σ f / F: how many an attacker who tries all rows is expected to find."""
        return sum(count / size for size, _, count, _ in self.found)

    @property
    def rows(self) -> int:
        """The rows of the table."""
        return sum(rows for *_, rows in self.by_population)

    @property
    def count(self) -> int:
        """The rows of the table, or the persons of each class."""
        return sum(count for _, _, count, _ in self.by_population)


def journalist_by_table(sizes: PopulationSizes, thresholds: Sequence[float]) -> JournalistRisk:
    """The risk by a population table.

    >>> found = journalist_by_table(PopulationSizes(((0, 1, 2, 2), (4, 2, 8, 8), (10, 1, 1, 1))), [0.2])
    >>> found.highest, round(found.average, 4), found.rows_above, found.rows_of_nobody
    (0.25, 0.1909, {'0.2': 8}, 2)
    """
    found = sizes.found
    least = found[0][0] if found else 0
    at_highest = found[0][3] if found else 0
    from_population = sum(n for _, n, _, _ in found) / sum(size * n for size, n, _, _ in found) if found else 0.0
    above = {threshold_text(t): sum(rows for size, _, _, rows in found if 1 / size > t) for t in thresholds}
    nobody = [one for one in sizes.by_population if one[0] == 0]
    return JournalistRisk(
        highest=1 / least if least else 0.0,
        average=max(from_population, sizes.expected / sizes.count) if sizes.count else 0.0,
        rows_at_highest=at_highest,
        share_at_highest=at_highest / sizes.rows if sizes.rows else 0.0,
        rows_above=above,
        share_above=shares(above, sizes.rows),
        population="table",
        classes_of_nobody=sum(n for _, n, _, _ in nobody),
        rows_of_nobody=sum(rows for *_, rows in nobody),
    )


def journalist_by_estimate(sizes: ClassSizes, share: float | None, thresholds: Sequence[float]) -> JournalistRisk:
    """The risk from the sizes of the classes and the sampling fraction; without one, the prosecutor's.

    >>> journalist_by_estimate(ClassSizes.of({2: 5}), 0.1, [0.05]).rows_above
    {'0.05': 10}
    """
    if share is None:
        bound = prosecutor_risk(sizes, thresholds)
        return JournalistRisk(**vars(bound), population=None)
    risks = {size: individual_risk(size, share) for size, _, _ in sizes.by_size}
    highest = max(risks.values(), default=0.0)
    at_highest = sizes.rows_where(lambda size: risks[size] == highest)
    above = {threshold_text(t): sizes.rows_where(lambda size, t=t: risks[size] > t) for t in thresholds}  # type: ignore[misc]  # mypy infers no lambda with a default
    return JournalistRisk(
        highest=highest,
        average=sizes.mean(risks.__getitem__),
        rows_at_highest=at_highest,
        share_at_highest=at_highest / sizes.rows if sizes.rows else 0.0,
        rows_above=above,
        share_above=shares(above, sizes.rows),
        population="estimate",
    )
