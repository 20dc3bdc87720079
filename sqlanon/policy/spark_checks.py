"""Checks of a source, or of a release, in Spark against the rest of a policy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sqlanon.errors import Problem
from sqlanon.policy.names import table_parts
from sqlanon.policy.sections import ReleaseSection, SourceSection
from sqlanon.policy.without_rows import without_rows


def spark_check(parts: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield what does not go together with Spark.

    Parameters
    ----------
    parts:
        The sections that are sound, by name.
    """
    source: SourceSection | None = parts.get("source")
    release: ReleaseSection | None = parts.get("release")
    if source is not None and source.spark is not None:
        yield from _of_source(parts, source)
    elif release is not None and release.spark and source is not None and _is_elsewhere(source):
        told = "is for a source in Spark, and this one is not: give database = ... or file = ..."
        yield Problem("release.spark", told)


def _of_source(parts: Mapping[str, Any], source: SourceSection) -> Iterator[Problem]:
    rows = "and the rows of a source in Spark never leave it"
    yield from without_rows(parts, rows, "in Spark", works_there=True)
    release: ReleaseSection | None = parts.get("release")
    own = table_parts(source.table)[:-1] if source.table else ()
    if release is not None and release.spark and own and own[-1].lower() == table_parts(release.table)[0].lower():
        told = "readers of the release would be let into that one; use another"
        yield Problem("release.table", f"is in the source's schema {own[-1]!r}: {told}")


def _is_elsewhere(source: SourceSection) -> bool:
    """Whether it says where it is. If not, it is what the policy is applied to: that may be a Spark session."""
    return source.database is not None or source.postgres is not None or bool(source.files)
