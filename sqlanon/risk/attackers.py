"""The risk by attacker, and estimates of population uniqueness.

The prosecutor knows that somebody is in the table, and looks for that person's row: the risk of a row is 1 / the size
of its equivalence class (K. El Emam, "Guide to the De-Identification of Personal Health Information", 2013).

The journalist does not know whether somebody is in the table, and looks in the population (chapters 15 and 16 there):
the risk of a row is 1 / F, F the size of its class in the population; the average risk of the table is the greater one
of |J| / Σ F (the attacker begins with somebody of the population) and 1/n Σ f / F (with a row of the table), over the
classes J of the table. Where nothing is known of the population, the prosecutor's risk is an upper bound, and stands in
(as in the ARX Data Anonymization Tool). F is

- with the policy's ``[population]``: counted there (the rows, or persons). A class that matches nobody there has the
  risk 0: that attacker finds nobody. Such rows are reported.
- with its size alone (``population`` or ``sampling_fraction`` in ``[risk]``): the expectation of 1 / F given f by the
  model of Benedetti and Franconi, at p = π for all classes, which is `individual.individual_risk` with all weights
  1 / π; then the average is the mean over rows.
- without either: f, as for the prosecutor.

The marketer tries to find everybody, and is content with some (chapter 16; F. K. Dankar, K. El Emam, "A method for
evaluating marketer re-identification risk", 2010): the expected share of the rows that are found: |J| / n where the
table is the population, 1/n Σ f / F where it is a sample of it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sqlanon.disclosure.class_sizes import ClassSizes
from sqlanon.requirements.estimators import dankar_choice, pitman, snb, zayatz
from sqlanon.risk.individual import format_threshold, individual_risk


@dataclass(frozen=True)
class ProsecutorRisk:
    """The risk of rows, 0 to 1.

    Attributes
    ----------
    highest, average:
        The greatest, and the mean over rows (= classes / rows). Where persons are counted: of a person, and the mean
        over the persons of each class.
    rows_at_highest, share_at_highest:
        The rows that have the highest risk, and their share.
    rows_above:
        By threshold, as text: the rows with a greater risk.
    share_above:
        Their share of all rows, 0 to 1.
    """

    highest: float
    average: float
    rows_at_highest: int
    share_at_highest: float
    rows_above: Mapping[str, int]
    share_above: Mapping[str, float]


def _of_rows(
    risks: Iterable[tuple[float, int]], rows: int, average: float, thresholds: Sequence[float]
) -> Mapping[str, Any]:
    """What `ProsecutorRisk` says of risks, each of some rows, in a table of this many rows."""
    risks = list(risks)
    highest = max((risk for risk, _ in risks), default=0.0)
    at_highest = sum(n for risk, n in risks if risk == highest)
    above = {format_threshold(t): sum(n for risk, n in risks if risk > t) for t in thresholds}
    return {
        "highest": highest,
        "average": average,
        "rows_at_highest": at_highest,
        "share_at_highest": at_highest / rows if rows else 0.0,
        "rows_above": above,
        "share_above": {threshold: n / rows if rows else 0.0 for threshold, n in above.items()},
    }


def prosecutor_risk(sizes: ClassSizes, thresholds: Sequence[float]) -> ProsecutorRisk:
    """The prosecutor's risk from the sizes of the classes.

    >>> found = prosecutor_risk(ClassSizes.of({1: 2, 4: 2}), [0.2, 0.25])
    >>> found.highest, found.average, found.rows_at_highest, found.share_at_highest
    (1.0, 0.4, 2, 0.2)
    >>> found.rows_above, found.share_above
    ({'0.2': 10, '0.25': 2}, {'0.2': 1.0, '0.25': 0.2})
    """
    risks = [(1 / size, rows) for size, _, rows in sizes.by_size]
    average = sizes.classes / sizes.count if sizes.count else 0.0
    return ProsecutorRisk(**_of_rows(risks, sizes.rows, average, thresholds))


@dataclass(frozen=True)
class JournalistRisk(ProsecutorRisk):
    """The risk of rows, 0 to 1, by the population's classes.

    Attributes
    ----------
    population:
        ``table``: counted in one; ``estimate``: estimated from its size; None: the prosecutor's risk stands in.
    classes_of_nobody, rows_of_nobody:
        With a table: what matches nobody there; else None.
    """

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
    from_population = sum(n for _, n, _, _ in found) / sum(size * n for size, n, _, _ in found) if found else 0.0
    average = max(from_population, sizes.expected / sizes.count) if sizes.count else 0.0
    nobody = [one for one in sizes.by_population if one[0] == 0]
    return JournalistRisk(
        **_of_rows([(1 / size, rows) for size, *_, rows in found], sizes.rows, average, thresholds),
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
    by_rows = [(risks[size], rows) for size, _, rows in sizes.by_size]
    average = sizes.mean(risks.__getitem__)
    return JournalistRisk(**_of_rows(by_rows, sizes.rows, average, thresholds), population="estimate")


@dataclass(frozen=True)
class MarketerRisk:
    """The share that is expected to be found.

    Attributes
    ----------
    average:
        The share of the rows; where persons are counted, of the persons of each class.
    expected:
        Their number.
    population:
        As of `JournalistRisk`.
    """

    average: float
    expected: float
    population: Literal["table", "estimate"] | None


def marketer_by_table(sizes: PopulationSizes) -> MarketerRisk:
    """Σ f / F over the classes.

    >>> marketer_by_table(PopulationSizes(((4, 2, 8, 8),)))
    MarketerRisk(average=0.25, expected=2.0, population='table')
    """
    return MarketerRisk(sizes.expected / sizes.count if sizes.count else 0.0, sizes.expected, "table")


def marketer_by_estimate(sizes: ClassSizes, share: float | None) -> MarketerRisk:
    """By the expected 1 / F of each class; without a sampling fraction, 1 / f.

    >>> marketer_by_estimate(ClassSizes.of({1: 2, 4: 2}), None)
    MarketerRisk(average=0.4, expected=4.0, population=None)
    """
    if share is None:
        expected = float(sizes.classes)
    else:
        expected = sizes.mean(lambda size: individual_risk(size, share)) * sizes.count
    return MarketerRisk(expected / sizes.count if sizes.count else 0.0, expected, None if share is None else "estimate")


@dataclass(frozen=True)
class PopulationRisk:
    """Population uniqueness.

    Attributes
    ----------
    n, N:
        The rows (or persons) of the table, and of the population.
    sampling_fraction:
        n / N.
    uniques:
        The classes of one in the table.
    zayatz, pitman, snb, dankar:
        The estimated share of the population that is unique in it, which is also the expected share of the table's rows
        that are; None where the model has no estimate.
    chosen:
        The estimator that Dankar et al. choose; None where there is nothing to estimate.
    """

    n: int
    N: float
    sampling_fraction: float
    uniques: int
    zayatz: float | None
    pitman: float | None
    snb: float | None
    dankar: float | None
    chosen: str | None

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {**vars(self), "N": int(self.N) if int(self.N) == self.N else self.N}


def explain_disagreement(journalist: JournalistRisk, population: PopulationRisk | None) -> str | None:
    """Why more rows are unique in the population than the journalist's risk says, in one sentence; None: they are not.

    >>> found = population_risk({1: 100}, counted=100, population=1000)
    >>> journalist = journalist_by_estimate(ClassSizes.of({1: 100}), 0.1, [])
    >>> round(journalist.highest, 2), explain_disagreement(journalist, found)[:47]
    (0.26, 'The estimates of journalist and uniqueness diff')
    >>> explain_disagreement(journalist, None)
    """
    unique = None if population is None else population.dankar
    if journalist.population != "estimate" or unique is None or unique <= journalist.highest:
        return None
    return (
        "The estimates of journalist and uniqueness differ: the first assumes that each row has unseen doubles in the "
        "population, the second concludes from how few rows of the table agree that most have none; go by the greater "
        "one."
    )


def population_risk(sizes: Mapping[int, int], counted: int, population: float) -> PopulationRisk:
    """The estimates from the sizes of the classes.

    >>> found = population_risk({1: 40, 2: 20, 5: 4}, counted=100, population=1000)
    >>> round(found.zayatz, 4), found.chosen
    (0.1794, 'pitman')
    """
    estimates: dict[str, float | None] = dict.fromkeys(("zayatz", "pitman", "snb", "dankar"))
    chosen = None
    if sum(size * classes for size, classes in sizes.items()) <= population:
        chosen, share = dankar_choice(sizes, population)
        found = {one.__name__: one(sizes, population) for one in (zayatz, pitman, snb)} | {"dankar": share}
        estimates = {name: None if math.isnan(value) else value for name, value in found.items()}
    return PopulationRisk(
        n=counted,
        N=population,
        sampling_fraction=counted / population if population else 1.0,
        uniques=sizes.get(1, 0),
        chosen=chosen,
        **estimates,
    )
