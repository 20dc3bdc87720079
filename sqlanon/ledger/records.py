"""What the ledger has: publications, what was spent on noise, and exports; each a row of a table of the catalog."""

from __future__ import annotations

import json
import secrets
import shlex
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import islice
from pathlib import Path

from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.errors import PolicyError, Problem
from sqlanon.expressions import template
from sqlanon.ledger import catalog
from sqlanon.policy import same_file, shown_place
from sqlanon.policy.names import OWN_CATALOG
from sqlanon.release.manifest import versioned

_STANDING = template("""
    SELECT
        run_id, published_at, path, table_name, digest, policy_hash, source, "after", extends,
        manifest_hash, version, sha256, intended_at, same_source, coalesce(draft, false)
    FROM sqlanon_catalog.sqlanon.releases
    WHERE replaced_at IS NULL
    ORDER BY published_at
""")
_SPENT = template("""
    SELECT run_id, path, source, same_source, epsilon, noise
    FROM sqlanon_catalog.sqlanon.releases
    WHERE NOT epsilon IS NULL AND NOT coalesce(draft, false)
    ORDER BY published_at
""")
_EXPORTS = template("""
    SELECT run_id, exported_at, path, table_name, dialect, source
    FROM sqlanon_catalog.sqlanon.exports
    WHERE NOT coalesce(draft, false)
    ORDER BY exported_at
""")

BESIDE = 30
"""So many DuckDB files are looked into, which takes 2 ms each."""

_LISTED = 2_000
"""So many files of a folder are looked at."""


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
    """What it is a release of: JSON, made by `Workspace.run`. None in catalogs of older versions."""
    after: tuple[str, ...] = ()
    """The runs of the releases that it is safe together with."""
    extends: str | None = None
    """The run of the release whose rows it has, too."""
    manifest_hash: str | None = None
    version: int | None = None
    """Which of those in its file it is. None in catalogs of older versions, and of a Parquet file."""
    sha256: str | None = None
    """Of the file as the newest publication in that place left it. None on a server, and of older versions."""
    intended_at: datetime | None = None
    """When a run was about to publish it that ended before it could say whether it did. None: it is out."""
    same_source: str | None = None
    """What an earlier release is of, whose source has rows of its own under another description."""
    draft: bool = False
    """Nothing is compared with it."""

    @property
    def names(self) -> frozenset[str]:
        """What a policy may call it: its file, with and without its ending and its folder, or its table, with and
        without its version."""
        own = {shown_place(self.path), self.path.name, self.path.stem, self.table_name}
        return frozenset(own if self.version is None else own | {versioned(self.table_name, self.version)})

    def __str__(self) -> str:
        return f"{shown_place(self.path)}, table {self.table_name}, of {self.published_at:%Y-%m-%d %H:%M}"


@dataclass(frozen=True)
class Spent:
    """The epsilon of a record that a run has spent on the noise of ``attributes``, in lower case (None in catalogs of
    older versions); its release may be replaced since."""

    run_id: str
    path: Path
    source: str | None
    same_source: str | None
    epsilon: float
    attributes: frozenset[str] | None


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
_MERGED_SECRETS = template("SELECT run_id, secret FROM sqlanon_catalog.sqlanon.merged_secrets")


@dataclass(frozen=True)
class History:
    """What the ledger has by now: the publications that stand, the oldest first; the drafts that stand; what was
    published with noise, one a run and place; the exports; and what keys and samples are hashed with, which a catalog
    that is not there lacks, and of runs of catalogs that were merged into this one."""

    publications: Sequence[Publication] = ()
    drafts: Sequence[Publication] = ()
    spent: Sequence[Spent] = ()
    exports: Sequence[Export] = ()
    secret: str = ""
    merged_secrets: Mapping[str, str] = field(default_factory=dict)

    def secret_of(self, run_id: str) -> str:
        """What the keys and the sample of a run are hashed with."""
        return self.merged_secrets.get(run_id, self.secret)


def read_history(engine: DuckDBEngine) -> History:
    """All of it, from the open catalog."""
    exports = [Export(*row) for row in engine.rows(_EXPORTS())]
    found = standing(engine)
    published, drafts = [one for one in found if not one.draft], [one for one in found if one.draft]
    merged = dict(engine.rows(_MERGED_SECRETS()))
    return History(published, drafts, spent_so_far(engine), exports, kept_secret(engine), merged)


def kept_secret(engine: DuckDBEngine) -> str:
    """What keys and samples are hashed with, from the open catalog; made if there is none yet."""
    rows = engine.rows(_SECRET())
    if not rows:
        rows = [(secrets.token_hex(32),)]
        catalog.insert(engine, "secret", {"secret": rows[0][0]})
    return str(rows[0][0])


def standing(engine: DuckDBEngine) -> list[Publication]:
    """The publications of the open catalog whose place no other has taken."""
    rows = engine.rows(_STANDING())
    found = [
        Publication(run_id, at, Path(place), name, digest, policy_hash, source, tuple(after or ()), *more)
        for run_id, at, place, name, digest, policy_hash, source, after, *more in rows
    ]
    # The versions that are kept in one file are written again with the newest.
    left = {one.path: one.sha256 for one in sorted(found, key=lambda one: one.version or 1)}
    return [replace(one, sha256=left[one.path]) for one in found]


def spent_so_far(engine: DuckDBEngine) -> list[Spent]:
    """What the open catalog has of releases with noise."""
    found = []
    for run_id, place, source, same_source, epsilon, noise in engine.rows(_SPENT()):
        attributes = None if noise is None else frozenset(name.lower() for name in json.loads(noise))
        found.append(Spent(run_id, Path(place), source, same_source, epsilon, attributes))
    return found


def publications_elsewhere(
    engine: DuckDBEngine, path: Path, source: str, target: Path, folders: Iterable[Path] = ()
) -> list[Path]:
    """Other catalogs that have releases of a source, but in one place: nothing is held against these.

    What cannot be read now, or is no catalog, is passed over.
    """
    found = {}
    for folder in {path.parent, *folders}:
        with suppress(OSError):
            for one in islice(folder.iterdir(), _LISTED):
                if one in (path, target) or one.name.endswith(f"{OWN_CATALOG}{catalog.MERGED}"):
                    continue
                if catalog.is_database(one) and not same_file(one, path):
                    found[one] = ("catalog" not in one.name, -one.stat().st_mtime, one)
    beside = sorted(found, key=found.__getitem__)
    return sorted(one for one in beside[:BESIDE] if catalog.has_releases(engine, one, source, target))


def not_in_catalog(engine: DuckDBEngine, path: Path) -> list[str]:
    """The warning about catalogs that were merged into one that is missing."""
    gone = catalog.forgotten_merges(engine, path)
    if not gone:
        return []
    names, several = ", ".join(one.name for one in gone), len(gone) > 1
    return [
        f"{path.name} is not the catalog that {names} {'were' if several else 'was'} merged into: the releases "
        f"recorded there were not compared with this one. Put that catalog back; or remove {catalog.MERGED} from the "
        f"name{'s' if several else ''}, and run `sqlanon merge-catalogs {shlex.quote(str(path.parent))}`"
    ]


def named_publications(history: History, after: Sequence[str], source: str) -> list[Publication]:
    """Those that a policy's ``after`` names, and those that they are themselves after, as far as they still stand."""
    known = history.publications
    if "all" in after:
        return [one for one in known if one.source == source]
    found, problems = [], []
    for name in after:
        theirs = [one for one in known if name in one.names]
        found += theirs
        if not theirs and any(name in one.names for one in history.drafts):
            problems.append(Problem("release.after", f"{name!r} is a draft: publish it first, or leave it out"))
        elif not theirs:
            there = ", ".join(sorted({one.path.name for one in known})) or "none"
            problems.append(Problem("release.after", f"{name!r} is no release in the ledger; there are: {there}"))
    if problems:
        raise PolicyError(problems)
    wanted = {one.run_id for one in found} | {run_id for one in found for run_id in one.after}
    return [one for one in known if one.run_id in wanted]


def not_compared(known: Sequence[Export]) -> list[str]:
    """What the holder should know of the exports, once a release is out."""
    if not known:
        return []
    newest, few = known[-1], len(known) == 1
    shown = (
        f"{'' if few else 'the newest '}of {newest.exported_at:%Y-%m-%d %H:%M}: {newest.table_name}, {newest.dialect}"
    )
    return [
        f"the ledger has {len(known)} export{'' if few else 's'} for warehouses ({shown}), and this release was not "
        f"compared with what {'it makes' if few else 'they make'} there: compare copies of both with sqlanon attack"
    ]


def compared_with_nothing(known: Sequence[Export], publications: Sequence[Publication]) -> list[str]:
    """What the holder should know of the ledger, once an export is written."""
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
