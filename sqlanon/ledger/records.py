"""The records of the ledger: publications, epsilon spent on noise, and exports. Each is a row of the catalog."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice
from pathlib import Path

from sqlglot import exp

from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.errors import PolicyError, Problem
from sqlanon.ledger import catalog
from sqlanon.places.addresses import format_location
from sqlanon.policy import Policy
from sqlanon.policy.checks import is_same_file
from sqlanon.release.manifest import version_name
from sqlanon.sources.run import Run
from sqlanon.support.expressions import template
from sqlanon.support.notices import count_noun

MAX_SEARCHED_FILES = 30
MAX_NAMED_CATALOGS = 3
"""Maximum number of other catalogs that a warning names."""
"""The most DuckDB files that are searched for releases, at 2 ms each."""

_MOST_LISTED_FILES = 2_000
"""Maximum number of files of a folder that are listed."""


@dataclass(frozen=True)
class Publication:
    """The record of a release that is published, or may be."""

    run_id: str
    published_at: datetime
    path: Path
    table_name: str
    digest: str
    policy_hash: str | None
    source: str | None  # the description of its source: JSON, made by `Workspace.run`; None if it is not recorded
    after: tuple[str, ...] = ()  # the runs of the releases on which it is based
    extends: str | None = None  # the run of the release that it extends
    manifest_hash: str | None = None
    version: int | None = None  # its number among the versions in its file; None for a Parquet file
    sha256: str | None = None  # the hash of the file after its newest publication; on a server, that of the rows
    intended_at: datetime | None = None  # when an interrupted run began to publish it; None if it is published
    same_source: str | None = None  # the description of an earlier source that has the same rows
    draft: bool = False  # whether it is a draft: releases are not compared with drafts
    withdraws: str | None = None  # the run of the release that it replaced without rows that had left the source
    only_rows_of: str | None = None  # the run of the release that contains all of its rows, if there is one
    linked: bool = False  # whether it is one of several tables about the same persons, which were released together

    @property
    def is_part(self) -> bool:
        """Whether it has only some rows of the source, which the ledger identifies."""
        return self.extends is not None or self.only_rows_of is not None

    @property
    def names(self) -> frozenset[str]:
        """The names of the release in policies: file, with and without suffix and folder; table, with and without
        version."""
        names = {format_location(self.path), self.path.name, self.path.stem, self.table_name}
        return frozenset(names if self.version is None else names | {version_name(self.table_name, self.version)})

    def __str__(self) -> str:
        return f"{format_location(self.path)}, table {self.table_name}, of {self.published_at:%Y-%m-%d %H:%M}"


@dataclass(frozen=True)
class SpentEpsilon:
    """The epsilon that a run has spent on noise for each record; its release may have been replaced."""

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


@dataclass(frozen=True)
class History:
    """The contents of the ledger."""

    publications: Sequence[Publication] = ()  # the publications that were not replaced, the oldest first
    drafts: Sequence[Publication] = ()
    spent: Sequence[SpentEpsilon] = ()  # the releases with noise, one for each run and location
    exports: Sequence[Export] = ()
    secret: str = ""  # the secret of the hashes; empty without a catalog


def read_history(engine: DuckDBEngine) -> History:
    """Read the open catalog."""
    query = template("""
        SELECT run_id, exported_at, path, table_name, dialect, source
        FROM sqlanon_catalog.sqlanon.exports
        WHERE NOT draft
        ORDER BY exported_at
    """)
    exports = [Export(*row) for row in engine.rows(query())]
    current = read_current_publications(engine)
    published = [publication for publication in current if not publication.draft]
    drafts = [publication for publication in current if publication.draft]
    return History(published, drafts, read_spent_epsilon(engine), exports, read_or_create_secret(engine))


def read_or_create_secret(engine: DuckDBEngine) -> str:
    """The secret of the open catalog; created if there is none."""
    rows = engine.rows(template("SELECT secret FROM sqlanon_catalog.sqlanon.secret")())
    if not rows:
        rows = [(secrets.token_hex(32),)]
        catalog.insert_records(engine, "secret", {"secret": rows[0][0]})
    return str(rows[0][0])


def copy_hashes(run: Run, policy: Policy, name: str, query: exp.Query) -> tuple[exp.Table, str]:
    """Copy hashes from the policy's catalog to a table of the work schema; returns it, and the secret of the hashes."""
    assert policy.catalog is not None
    target = run.work(name)
    with catalog.open_catalog(run.engine, policy.catalog.database):
        catalog.replace_table(run.engine, target.copy(), query)
        return target, read_or_create_secret(run.engine)


def read_current_publications(engine: DuckDBEngine) -> list[Publication]:
    """The publications of the open catalog that were not replaced, including drafts."""
    query = template("""
        SELECT
            run_id, published_at, path, table_name, digest, policy_hash, source, "after", extends,
            manifest_hash, version, sha256, intended_at, same_source, draft, withdraws, only_rows_of, linked
        FROM sqlanon_catalog.sqlanon.releases
        WHERE replaced_at IS NULL
        ORDER BY published_at
    """)
    publications = [
        Publication(run_id, at, Path(path), name, digest, policy_hash, source, tuple(after or ()), *more)
        for run_id, at, path, name, digest, policy_hash, source, after, *more in engine.rows(query())
    ]
    # Publishing a new version rewrites the kept versions of the file.
    newest_sha256 = {
        publication.path: publication.sha256
        for publication in sorted(publications, key=lambda publication: publication.version or 1)
    }
    return [replace(publication, sha256=newest_sha256[publication.path]) for publication in publications]


def read_spent_epsilon(engine: DuckDBEngine) -> list[SpentEpsilon]:
    """The releases with noise in the open catalog."""
    query = template("""
        SELECT run_id, path, source, same_source, epsilon
        FROM sqlanon_catalog.sqlanon.releases
        WHERE NOT epsilon IS NULL AND NOT draft
        ORDER BY published_at
    """)
    return [SpentEpsilon(run_id, Path(path), *more) for run_id, path, *more in engine.rows(query())]


def find_other_catalogs(
    engine: DuckDBEngine, path: Path, source: str, target: Path, folders: Iterable[Path] = ()
) -> list[Path]:
    """Other catalogs with releases of a source, except at one location. Unreadable files are skipped."""
    candidates = {}
    for folder in {path.parent, *folders}:
        with suppress(OSError):
            for file in islice(folder.iterdir(), _MOST_LISTED_FILES):
                if file not in (path, target) and catalog.is_database(file) and not is_same_file(file, path):
                    candidates[file] = ("catalog" not in file.name, -file.stat().st_mtime, file)
    newest = sorted(candidates, key=candidates.__getitem__)
    return sorted(file for file in newest[:MAX_SEARCHED_FILES] if catalog.has_releases(engine, file, source, target))


def warn_of_other_catalogs(catalogs: Sequence[Path]) -> list[str]:
    """The warning about releases in other catalogs once a release is published."""
    if not catalogs:
        return []
    names = ", ".join(map(str, catalogs[:MAX_NAMED_CATALOGS]))
    if len(catalogs) > MAX_NAMED_CATALOGS:
        names += f" and {len(catalogs) - MAX_NAMED_CATALOGS} more"
    return [
        f"releases of this source that are recorded in {names} were not compared with this one: point the policies to "
        "the same [catalog] database"
    ]


def find_named_publications(
    history: History, after: Sequence[str], of_source: Callable[[], list[Publication]]
) -> list[Publication]:
    """The releases that a policy's ``after`` names, and those on which these are based, unless replaced.

    ``of_source`` returns all releases of its source.
    """
    publications = history.publications
    if "all" in after:
        return of_source()
    named_publications, problems = [], []
    for name in after:
        matches = [publication for publication in publications if name in publication.names]
        named_publications += matches
        if not matches and any(name in publication.names for publication in history.drafts):
            problems.append(Problem("release.after", f"{name!r} is a draft: publish it first, or leave it out"))
        elif not matches:
            known_files = ", ".join(sorted({publication.path.name for publication in publications})) or "none"
            problems.append(Problem("release.after", f"{name!r} is not in the ledger, which has: {known_files}"))
    if problems:
        raise PolicyError(problems)
    run_ids = {publication.run_id for publication in named_publications} | {
        run_id for publication in named_publications for run_id in publication.after
    }
    return [publication for publication in publications if publication.run_id in run_ids]


def warn_of_uncompared_exports(exports: Sequence[Export]) -> list[str]:
    """The warning about exports once a release is published."""
    if not exports:
        return []
    newest, is_single = exports[-1], len(exports) == 1
    export = f"of {newest.exported_at:%Y-%m-%d %H:%M}: {newest.table_name}, {newest.dialect}"
    return [
        f"the ledger has {count_noun(len(exports), 'export')} for warehouses "
        f"({'' if is_single else 'the newest '}{export}), which this release was not compared with: compare copies of "
        "both with sqlanon attack"
    ]


def warn_of_uncompared_export(exports: Sequence[Export], publications: Sequence[Publication]) -> list[str]:
    """The warning about releases and exports once an export is written."""
    counts = [
        f"{count} {noun}{'s' if count > 1 else ''}"
        for count, noun in ((len(publications), "release"), (len(exports), "earlier export"))
        if count
    ]
    if not counts:
        return []
    return [
        f"the ledger has {' and '.join(counts)}, which this export is not compared with, because its rows are in the "
        "warehouse: compare copies with sqlanon attack"
    ]
