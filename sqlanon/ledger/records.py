"""The records of the ledger: publications, epsilon spent on noise, and exports; each a row of the catalog."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice
from pathlib import Path

from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.errors import PolicyError, Problem
from sqlanon.ledger import catalog
from sqlanon.policy import format_location, is_same_file
from sqlanon.release.manifest import version_name
from sqlanon.support.expressions import template

_STANDING = template("""
    SELECT
        run_id, published_at, path, table_name, digest, policy_hash, source, "after", extends,
        manifest_hash, version, sha256, intended_at, same_source, draft, withdraws, only_rows_of
    FROM sqlanon_catalog.sqlanon.releases
    WHERE replaced_at IS NULL
    ORDER BY published_at
""")
_SPENT = template("""
    SELECT run_id, path, source, same_source, epsilon
    FROM sqlanon_catalog.sqlanon.releases
    WHERE NOT epsilon IS NULL AND NOT draft
    ORDER BY published_at
""")
_EXPORTS = template("""
    SELECT run_id, exported_at, path, table_name, dialect, source
    FROM sqlanon_catalog.sqlanon.exports
    WHERE NOT draft
    ORDER BY exported_at
""")

BESIDE = 30
"""The most DuckDB files that are searched for releases, at 2 ms each."""

_LISTED = 2_000
"""The most files of a folder that are listed."""


@dataclass(frozen=True)
class Publication:
    """One release that was published, or may have been."""

    run_id: str
    published_at: datetime
    path: Path
    table_name: str
    digest: str
    policy_hash: str | None
    source: str | None
    """The description of its source: JSON, made by `Workspace.run`. None in catalogs of older versions."""
    after: tuple[str, ...] = ()
    """The runs of the releases on which it is based."""
    extends: str | None = None
    """The run of the release that it extends."""
    manifest_hash: str | None = None
    version: int | None = None
    """Its number among the versions in its file. None in catalogs of older versions, and for a Parquet file."""
    sha256: str | None = None
    """The hash of the file after the newest publication there; on a server, that of the rows."""
    intended_at: datetime | None = None
    """When a run that did not finish began to publish it. None: it is published."""
    same_source: str | None = None
    """The description of an earlier source that has the same rows."""
    draft: bool = False
    """Whether it is a draft, with which no release is compared."""
    withdraws: str | None = None
    """The run of the release that it replaced, without rows that had left the source."""
    only_rows_of: str | None = None
    """The run of the release that has all of its rows, too. None: its rows are any of the source."""

    @property
    def is_part(self) -> bool:
        """Whether it has some rows of the source only, and the ledger knows which."""
        return self.extends is not None or self.only_rows_of is not None

    @property
    def names(self) -> frozenset[str]:
        """Its names in policies: its file, with and without ending and folder, or its table, with and without
        version."""
        own = {format_location(self.path), self.path.name, self.path.stem, self.table_name}
        return frozenset(own if self.version is None else own | {version_name(self.table_name, self.version)})

    def __str__(self) -> str:
        return f"{format_location(self.path)}, table {self.table_name}, of {self.published_at:%Y-%m-%d %H:%M}"


@dataclass(frozen=True)
class SpentEpsilon:
    """The epsilon of a record that a run has spent on noise; its release may be replaced since."""

    run_id: str
    path: Path
    source: str | None
    same_source: str | None
    epsilon: float


@dataclass(frozen=True)
class Export:
    run_id: str
    exported_at: datetime
    path: str
    table_name: str
    dialect: str
    source: str
    draft: bool = False


_SECRET = template("SELECT secret FROM sqlanon_catalog.sqlanon.secret")


@dataclass(frozen=True)
class History:
    """The ledger as it was read: publications and drafts that were not replaced, the oldest first; releases with noise,
    one for each run and place; exports; the secret of the hashes (empty without a catalog)."""

    publications: Sequence[Publication] = ()
    drafts: Sequence[Publication] = ()
    spent: Sequence[SpentEpsilon] = ()
    exports: Sequence[Export] = ()
    secret: str = ""


def read_history(engine: DuckDBEngine) -> History:
    """Read the open catalog."""
    exports = [Export(*row) for row in engine.rows(_EXPORTS())]
    found = read_current_publications(engine)
    published, drafts = [one for one in found if not one.draft], [one for one in found if one.draft]
    return History(published, drafts, read_spent_epsilon(engine), exports, read_or_create_secret(engine))


def read_or_create_secret(engine: DuckDBEngine) -> str:
    """The secret of the open catalog; made if there is none yet."""
    rows = engine.rows(_SECRET())
    if not rows:
        rows = [(secrets.token_hex(32),)]
        catalog.insert_records(engine, "secret", {"secret": rows[0][0]})
    return str(rows[0][0])


def read_current_publications(engine: DuckDBEngine) -> list[Publication]:
    """The publications of the open catalog that no other has replaced, drafts included."""
    rows = engine.rows(_STANDING())
    found = [
        Publication(run_id, at, Path(place), name, digest, policy_hash, source, tuple(after or ()), *more)
        for run_id, at, place, name, digest, policy_hash, source, after, *more in rows
    ]
    # The versions that are kept in one file are written again with the newest.
    left = {one.path: one.sha256 for one in sorted(found, key=lambda one: one.version or 1)}
    return [replace(one, sha256=left[one.path]) for one in found]


def read_spent_epsilon(engine: DuckDBEngine) -> list[SpentEpsilon]:
    """The releases with noise in the open catalog."""
    return [
        SpentEpsilon(run_id, Path(place), source, same_source, epsilon)
        for run_id, place, source, same_source, epsilon in engine.rows(_SPENT())
    ]


def find_other_catalogs(
    engine: DuckDBEngine, path: Path, source: str, target: Path, folders: Iterable[Path] = ()
) -> list[Path]:
    """Other catalogs that have releases of a source, except at one place. Files that cannot be read now are skipped."""
    found = {}
    for folder in {path.parent, *folders}:
        with suppress(OSError):
            for one in islice(folder.iterdir(), _LISTED):
                if one not in (path, target) and catalog.is_database(one) and not is_same_file(one, path):
                    found[one] = ("catalog" not in one.name, -one.stat().st_mtime, one)
    beside = sorted(found, key=found.__getitem__)
    return sorted(one for one in beside[:BESIDE] if catalog.has_releases(engine, one, source, target))


def find_named_publications(
    history: History, after: Sequence[str], of_source: Callable[[], list[Publication]]
) -> list[Publication]:
    """The releases that a policy's ``after`` names, and those on which these are based, unless replaced; ``of_source``
    has all releases of its source."""
    known = history.publications
    if "all" in after:
        return of_source()
    found, problems = [], []
    for name in after:
        theirs = [one for one in known if name in one.names]
        found += theirs
        if not theirs and any(name in one.names for one in history.drafts):
            problems.append(Problem("release.after", f"{name!r} is a draft: publish it first, or leave it out"))
        elif not theirs:
            there = ", ".join(sorted({one.path.name for one in known})) or "none"
            problems.append(Problem("release.after", f"{name!r} is not in the ledger, which has: {there}"))
    if problems:
        raise PolicyError(problems)
    wanted = {one.run_id for one in found} | {run_id for one in found for run_id in one.after}
    return [one for one in known if one.run_id in wanted]


def warn_of_uncompared_exports(known: Sequence[Export]) -> list[str]:
    """The warning about exports, after a release is published."""
    if not known:
        return []
    newest, few = known[-1], len(known) == 1
    shown = (
        f"{'' if few else 'the newest '}of {newest.exported_at:%Y-%m-%d %H:%M}: {newest.table_name}, {newest.dialect}"
    )
    return [
        f"the ledger has {len(known)} export{'' if few else 's'} for warehouses ({shown}), which this release was not "
        "compared with: compare copies of both with sqlanon attack"
    ]


def warn_of_uncompared_export(known: Sequence[Export], publications: Sequence[Publication]) -> list[str]:
    """The warning about releases and exports, after an export is written."""
    found = [
        f"{count} {what}{'s' if count > 1 else ''}"
        for count, what in ((len(publications), "release"), (len(known), "earlier export"))
        if count
    ]
    if not found:
        return []
    return [
        f"the ledger has {' and '.join(found)}, which this export is not compared with, because its rows are in the "
        "warehouse: compare copies with sqlanon attack"
    ]
