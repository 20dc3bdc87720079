"""Checks of a policy for a table in a warehouse, of which sqlanon has no more than a frequency set."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sqlanon.errors import Problem
from sqlanon.policy.names import table_parts
from sqlanon.policy.sections import ReleaseSection, SourceSection
from sqlanon.policy.without_rows import without_rows

_HERE = ("database", "file", "postgres", "spark")
"""Where releases go that are written by sqlanon."""


def warehouse_check(parts: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield what does not go together with a frequency set in place of a source.

    Parameters
    ----------
    parts:
        The sections that are sound, by name.
    """
    source: SourceSection | None = parts.get("source")
    if source is None or not source.frequency_set:
        return
    yield from for_warehouse(parts)
    release: ReleaseSection | None = parts.get("release")
    for name in _HERE:
        if release is not None and getattr(release, name):
            told = "a frequency set has no rows to release: leave it out, export the statement that makes the release "
            told += 'there, and name that with table = "schema.name"'
            yield Problem(f"release.{name}", told)
    if release is not None and release.keep > 1:
        yield Problem("release.keep", "is for a release in a database of its own: leave it out")
    if release is not None and source.table is not None and table_parts(source.table) == table_parts(release.table):
        yield Problem("release.table", "is the source: name another table of the warehouse")


def for_warehouse(parts: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield what statements for a warehouse cannot do, or cannot name.

    Parameters
    ----------
    parts:
        The sections that are sound, by name.
    """
    yield from without_rows(parts, "and sqlanon does not see the rows of a table in a warehouse", "in a warehouse")
    release: ReleaseSection | None = parts.get("release")
    if release is not None and not table_parts(release.table):
        yield Problem("release.table", "must be table, schema.table or database.schema.table, as the warehouse has it")
