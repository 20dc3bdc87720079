"""Null-map and wrong-map: what the rows of a release match in the population."""

from __future__ import annotations

from dataclasses import dataclass

from sqlanon.coding import Levels
from sqlanon.engines.base import Engine
from sqlanon.search.population_statements import null_map, wrong_map
from sqlanon.search.preparation import Prepared


@dataclass(frozen=True)
class PopulationMatch:
    """Figures of the kept rows of a release.

    Attributes
    ----------
    null_map:
        Rows that match nobody of the population.
    wrong_map:
        Rows that match somebody, but not the person that they are of; None where persons are not told apart in both.
    """

    null_map: int
    wrong_map: int | None


def mapping_of(engine: Engine, prepared: Prepared, levels: Levels) -> PopulationMatch | None:
    """Count what kept rows match; None without a population."""
    if prepared.population is None:
        return None
    space = prepared.sets.at(levels)
    nobody = engine.rows(null_map(space, levels))[0][0]
    own, theirs = prepared.own.members, prepared.population.members
    if own is None or theirs is None:
        return PopulationMatch(nobody, None)
    query = wrong_map(space, levels, own, theirs, prepared.attributes, prepared.types)
    return PopulationMatch(nobody, engine.rows(query)[0][0])
