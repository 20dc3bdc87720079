"""Checks of a source, or of a release, in Spark against the rest of a policy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sqlanon.errors import Problem
from sqlanon.policy.problems import join
from sqlanon.policy.rules import TableRule
from sqlanon.policy.sections import Attribute, PopulationSection, ReleaseSection, SourceSection


def spark_check(parts: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield what does not go together with Spark: its rows are not at hand, but what is counted of them.

    Parameters
    ----------
    parts:
        The sections that are sound, by name.
    """
    source: SourceSection | None = parts.get("source")
    release: ReleaseSection | None = parts.get("release")
    if source is not None and source.spark is not None:
        yield from _source(parts, source)
        if release is not None:
            yield from _release(release)
    elif release is not None and release.spark and source is not None and _is_elsewhere(source):
        told = "is for a source in Spark, and this one is not: give database = ... or file = ..."
        yield Problem("release.spark", told)


def _is_elsewhere(source: SourceSection) -> bool:
    """Whether it says where it is. If not, it is what the policy is applied to: that may be a Spark session."""
    return source.database is not None or source.postgres is not None or bool(source.files)


def _source(parts: Mapping[str, Any], source: SourceSection) -> Iterator[Problem]:
    rows = "and the rows of a source in Spark never leave it"
    if source.person is not None:
        yield Problem("source.person", f"persons are counted row by row, {rows}: leave it out")
    if source.key:
        yield Problem("source.key", f"keys are kept of each row, {rows}: leave it out")
    attributes: Mapping[str, Attribute] = parts.get("attributes", {})
    for name, attribute in attributes.items():
        if any(isinstance(rule, TableRule) for rule in attribute.hierarchy or ()):
            told = "names a table of a DuckDB source, and this one is in Spark: export it, and use file = ..."
            yield Problem(join(join("attributes", name), "hierarchy"), told)
    if parts.get("risk") is not None:
        yield Problem("risk", f"looks at single rows, {rows}: leave it out")
    population: PopulationSection | None = parts.get("population")
    if population is not None and population.database is None and not population.files:
        told = "tables of a source in Spark are no population: give database = ... or files = ..."
        yield Problem("population", told)


def _release(release: ReleaseSection) -> Iterator[Problem]:
    rows = "and the rows of a source in Spark never leave it"
    if release.decoys:
        yield Problem("release.decoys", f"are drawn among the rows, {rows}: leave them out")
    if release.after:
        yield Problem("release.after", f"needs to know which rows an earlier release has, {rows}: leave it out")
