"""Checks of a policy whose source's rows are not at hand, but counts of their combinations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sqlanon.errors import Problem
from sqlanon.policy.problems import join
from sqlanon.policy.rules import TableRule
from sqlanon.policy.sections import Attribute, PopulationSection, ReleaseSection, SearchSection, SourceSection


def without_rows(parts: Mapping[str, Any], rows: str, where: str, works_there: bool = False) -> Iterator[Problem]:
    """Yield what needs the rows of a source that are not at hand.

    Parameters
    ----------
    parts:
        The sections that are sound, by name.
    rows, where:
        Why they are not, and where they are: in words that end a sentence.
    works_there:
        Whether what is done row by row can be done where they are: noise, and the strategies below the full domain.
    """
    source: SourceSection = parts.get("source") or SourceSection()
    if source.person is not None:
        yield Problem("source.person", f"persons are counted row by row, {rows}: leave it out")
    if source.key:
        yield Problem("source.key", f"keys are kept of each row, {rows}: leave it out")
    yield from _of_attributes(parts, rows, where, works_there)
    if parts.get("risk") is not None:
        yield Problem("risk", f"looks at single rows, {rows}: leave it out")
    search: SearchSection = parts.get("search") or SearchSection()
    if search.is_local and not works_there:
        told = f"strategy {search.strategy}" if search.traits.local else 'suppression = "cells"'
        wide = "use a strategy of the full domain, such as optimal"
        yield Problem("search", f"{told} places rows one by one, {rows}: {wide}")
    population: PopulationSection | None = parts.get("population")
    if population is not None and population.database is None and not population.files:
        told = f"tables of a source {where} are no population: give database = ... or files = ..."
        yield Problem("population", told)
    release: ReleaseSection | None = parts.get("release")
    if release is not None and release.decoys:
        yield Problem("release.decoys", f"are drawn among the rows, {rows}: leave them out")
    if release is not None and release.after:
        yield Problem("release.after", f"needs to know which rows an earlier release has, {rows}: leave it out")


def _of_attributes(parts: Mapping[str, Any], rows: str, where: str, works_there: bool) -> Iterator[Problem]:
    attributes: Mapping[str, Attribute] = parts.get("attributes", {})
    for name, attribute in attributes.items():
        place = join("attributes", name)
        if attribute.noise is not None and not works_there:
            yield Problem(join(place, "noise"), f"is drawn row by row, {rows}: give it a hierarchy")
        if any(isinstance(rule, TableRule) for rule in attribute.hierarchy or ()):
            told = f"names a table of a DuckDB source, and this one is {where}: export it, and use file = ..."
            yield Problem(join(place, "hierarchy"), told)
