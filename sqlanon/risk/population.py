"""How many rows are unique in the population, too: the estimates of `requirements.estimators`, side by side."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlanon.requirements.estimators import dankar_choice, pitman, snb, zayatz


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
