"""Checks of a source, or of a release, in PostgreSQL against the rest of a policy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sqlanon.errors import Problem
from sqlanon.policy.names import table_parts
from sqlanon.policy.sections import ReleaseSection, SourceSection
from sqlanon.policy.without_rows import without_rows


def postgres_check(parts: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield what does not go together with PostgreSQL: its rows are not at hand, but counts of their combinations.

    Parameters
    ----------
    parts:
        The sections that are sound, by name.
    """
    source: SourceSection | None = parts.get("source")
    release: ReleaseSection | None = parts.get("release")
    if source is not None and source.postgres is not None:
        yield from without_rows(parts, "and the rows of a source in PostgreSQL never leave it", "in PostgreSQL")
        own = table_parts(source.table)[:-1] if source.table else ()
        if release is not None and release.postgres == source.postgres and own[-1:] == table_parts(release.table)[:1]:
            told = "readers of the release would be let into that one; use another"
            yield Problem("release.table", f"is in the source's schema {own[-1]!r}: {told}")
