"""The risk by attacker, and estimates of population uniqueness.

The prosecutor knows that a person is in the table, and searches the person's row: the risk of a row is 1 / the size of
its equivalence class (K. El Emam, "Guide to the De-Identification of Personal Health Information", 2013).

The journalist does not know whether a person is in the table, and searches in the population (chapters 15 and 16): the
risk of a row is 1 / F, F the size of its class in the population; the average risk of the table is the maximum of
|J| / Σ F (the attacker starts with a person of the population) and 1/n Σ f / F (with a row of the table), over the
classes J of the table. If the population is unknown, the prosecutor's risk is an upper bound and replaces it (as in the
ARX Data Anonymization Tool). F is

- with the policy's ``[population]``: counted (in rows, or persons). A class without a match in it has the risk 0;
  such rows are reported.
- with its size alone (``population`` or ``sampling_fraction`` in ``[risk]``): the expectation of 1 / F given f by the
  model of Benedetti and Franconi, at p = π for all classes, which is `individual.individual_risk` with all weights
  1 / π; the average is then the mean over rows.
- without either: f, as for the prosecutor.

The marketer tries to find everybody, and is satisfied with some (chapter 16; F. K. Dankar, K. El Emam, "A method for
evaluating marketer re-identification risk", 2010): the risk is the expected share of the rows that are found: |J| / n
if the table is the population, 1/n Σ f / F if it is a sample.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sqlanon.frequency.class_sizes import ClassSizes
from sqlanon.requirements.estimators import dankar_choice, pitman, snb, zayatz
from sqlanon.risk.individual import format_threshold, individual_risk


@dataclass(frozen=True)
class ProsecutorRisk:
    """The risk of rows, 0 to 1.

    Attributes
    ----------
    highest, average:
        The greatest, and the mean over rows (= classes / rows). If persons are counted: of a person, and the mean over
        the persons of each class.
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


def _row_risks(
    risks: Iterable[tuple[float, int]], rows: int, average: float, thresholds: Sequence[float]
) -> Mapping[str, Any]:
    """The figures of `ProsecutorRisk` for risks with the number of their rows, in a table of ``rows`` rows."""
    risks = list(risks)
    highest = max((risk for risk, _ in risks), default=0.0)
    at_highest = sum(count for risk, count in risks if risk == highest)
    above = {
        format_threshold(threshold): sum(count for risk, count in risks if risk > threshold) for threshold in thresholds
    }
    return {
        "highest": highest,
        "average": average,
        "rows_at_highest": at_highest,
        "share_at_highest": at_highest / rows if rows else 0.0,
        "rows_above": above,
        "share_above": {threshold: count / rows if rows else 0.0 for threshold, count in above.items()},
    }


def prosecutor_risk(sizes: ClassSizes, thresholds: Sequence[float]) -> ProsecutorRisk:
    """The prosecutor's risk from the sizes of the classes.

    >>> risk = prosecutor_risk(ClassSizes.from_classes({1: 2, 4: 2}), [0.2, 0.25])
    >>> risk.highest, risk.average, risk.rows_at_highest, risk.share_at_highest
    (1.0, 0.4, 2, 0.2)
    >>> risk.rows_above, risk.share_above
    ({'0.2': 10, '0.25': 2}, {'0.2': 1.0, '0.25': 0.2})
    """
    risks = [(1 / size, rows) for size, _, rows in sizes.by_size]
    average = sizes.classes / sizes.count if sizes.count else 0.0
    return ProsecutorRisk(**_row_risks(risks, sizes.rows, average, thresholds))


@dataclass(frozen=True)
class JournalistRisk(ProsecutorRisk):
    """The risk of rows, 0 to 1, by the population's classes.

    Attributes
    ----------
    population:
        ``table``: classes are counted in a table of the population; ``estimate``: they are estimated from its size;
        None: the prosecutor's risk replaces this one.
    classes_of_nobody, rows_of_nobody:
        The classes and rows without a match in the table of the population; None without a table.
    """

    population: Literal["table", "estimate"] | None
    classes_of_nobody: int | None = None
    rows_of_nobody: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the figures as a dictionary for JSON; unmatched classes and rows only with a population table."""
        figures = {**vars(self), "rows_above": dict(self.rows_above), "share_above": dict(self.share_above)}
        if self.classes_of_nobody is None:
            del figures["classes_of_nobody"], figures["rows_of_nobody"]
        return figures


@dataclass(frozen=True)
class MarketerRisk:
    """The share that the marketer is expected to find.

    Attributes
    ----------
    average:
        The share of the rows; if persons are counted, of the persons of each class.
    expected:
        Their number.
    population:
        As for `JournalistRisk`.
    """

    average: float
    expected: float
    population: Literal["table", "estimate"] | None


def attackers_by_table(
    sizes: Iterable[Sequence[Any]], thresholds: Sequence[float]
) -> tuple[JournalistRisk, MarketerRisk]:
    """The risks by a population table.

    ``sizes`` has, by the size F of a class in the population, the number of classes, their counts (rows or persons)
    added up, and their rows.

    >>> journalist, marketer = attackers_by_table([(0, 1, 2, 2), (4, 2, 8, 8), (10, 1, 1, 1)], [0.2])
    >>> journalist.highest, round(journalist.average, 4), journalist.rows_above, journalist.rows_of_nobody
    (0.25, 0.1909, {'0.2': 8}, 2)
    >>> attackers_by_table([(4, 2, 8, 8)], [])[1]
    MarketerRisk(average=0.25, expected=2.0, population='table')
    """
    by_size = sorted(tuple(map(int, entry)) for entry in sizes)
    matched = [entry for entry in by_size if entry[0] > 0]
    all_rows, all_counts = sum(rows for *_, rows in by_size), sum(count for _, _, count, _ in by_size)
    expected = sum(count / size for size, _, count, _ in matched)
    from_table, from_population = expected / all_counts if all_counts else 0.0, 0.0
    if matched:
        classes = sum(classes for _, classes, _, _ in matched)
        from_population = classes / sum(size * classes for size, classes, _, _ in matched)
    risks = [(1 / size, rows) for size, *_, rows in matched]
    journalist = JournalistRisk(
        **_row_risks(risks, all_rows, max(from_population, from_table), thresholds),
        population="table",
        classes_of_nobody=sum(classes for size, classes, _, _ in by_size if size == 0),
        rows_of_nobody=sum(rows for size, *_, rows in by_size if size == 0),
    )
    return journalist, MarketerRisk(from_table, expected, "table")


def attackers_by_estimate(
    sizes: ClassSizes, share: float | None, thresholds: Sequence[float]
) -> tuple[JournalistRisk, MarketerRisk]:
    """The risks from the sizes of the classes and the sampling fraction; without one, the prosecutor's.

    >>> attackers_by_estimate(ClassSizes.from_classes({2: 5}), 0.1, [0.05])[0].rows_above
    {'0.05': 10}
    >>> attackers_by_estimate(ClassSizes.from_classes({1: 2, 4: 2}), None, [])[1]
    MarketerRisk(average=0.4, expected=4.0, population=None)
    """
    if share is None:
        bound = prosecutor_risk(sizes, thresholds)
        journalist = JournalistRisk(**vars(bound), population=None)
        return journalist, MarketerRisk(bound.average, float(sizes.classes), None)
    risks = {size: individual_risk(size, share) for size, _, _ in sizes.by_size}
    by_rows = [(risks[size], rows) for size, _, rows in sizes.by_size]
    average = sizes.mean(risks.__getitem__)
    journalist = JournalistRisk(**_row_risks(by_rows, sizes.rows, average, thresholds), population="estimate")
    return journalist, MarketerRisk(average, average * sizes.count, "estimate")


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
        The estimated share of the population that is unique in it, which is also the expected share of unique rows in
        the table; None if the model has no estimate.
    chosen:
        The estimator that Dankar et al. choose; None if nothing can be estimated.
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
        """Return the figures as a dictionary for JSON."""
        return {**vars(self), "N": int(self.N) if int(self.N) == self.N else self.N}


def explain_disagreement(journalist: JournalistRisk, population: PopulationRisk | None) -> str | None:
    """Explain why more rows are unique in the population than the journalist's risk implies; None if they are not.

    >>> population = population_risk({1: 100}, count=100, population=1000)
    >>> journalist, _ = attackers_by_estimate(ClassSizes.from_classes({1: 100}), 0.1, [])
    >>> round(journalist.highest, 2), explain_disagreement(journalist, population)[:47]
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


def population_risk(sizes: Mapping[int, int], count: int, population: float) -> PopulationRisk:
    """Estimate population uniqueness from the sizes of the classes.

    >>> risk = population_risk({1: 40, 2: 20, 5: 4}, count=100, population=1000)
    >>> round(risk.zayatz, 4), risk.chosen
    (0.1794, 'pitman')
    """
    estimates: dict[str, float | None] = dict.fromkeys(("zayatz", "pitman", "snb", "dankar"))
    chosen = None
    if sum(size * classes for size, classes in sizes.items()) <= population:
        chosen, share = dankar_choice(sizes, population)
        shares = {estimate.__name__: estimate(sizes, population) for estimate in (zayatz, pitman, snb)}
        shares["dankar"] = share
        estimates = {name: None if math.isnan(value) else value for name, value in shares.items()}
    return PopulationRisk(
        n=count,
        N=population,
        sampling_fraction=count / population if population else 1.0,
        uniques=sizes.get(1, 0),
        chosen=chosen,
        **estimates,
    )
