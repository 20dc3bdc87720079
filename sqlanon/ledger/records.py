"""Publications and exports, as the catalog has them."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone
from itertools import islice
from pathlib import Path
from typing import Any

import duckdb
from sqlglot import exp

from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.errors import OvertakenError, PolicyError, Problem, ReleaseError, SqlanonError
from sqlanon.expressions import fragment, table, template
from sqlanon.hierarchies import Hierarchy
from sqlanon.ledger import catalog
from sqlanon.ledger.intents import UNRECORDED, Intent, alone_with, complete, intents, settle
from sqlanon.ledger.trees import keep_trees
from sqlanon.policy import Policy, same_file, shown_place
from sqlanon.release.check import Check, file_check
from sqlanon.release.manifest import Manifest, versioned
from sqlanon.release.target import Reach
from sqlanon.release.verify import Verification

_EXPORTS = template("""
    SELECT run_id, exported_at, path, table_name, dialect, source
    FROM sqlanon_catalog.sqlanon.exports
    ORDER BY exported_at
""")
_DROP_EXPORT = fragment("DELETE FROM sqlanon_catalog.sqlanon.exports WHERE run_id = :run AND path = :folder")


@dataclass(frozen=True)
class Export:
    """One row of the table ``exports``."""

    run_id: str
    exported_at: datetime
    path: str
    table_name: str
    dialect: str
    source: str


@contextmanager
def recording_export(engine: DuckDBEngine, path: Path, export: Export) -> Iterator[None]:
    """Write an export to the ledger before its folder is there; and take it back if that comes to nothing."""
    with alone_with(path), catalog.open_catalog(engine, path):
        catalog.insert(engine, "exports", asdict(export))
    try:
        yield
    except BaseException:
        with suppress(SqlanonError), alone_with(path), catalog.open_catalog(engine, path):
            engine.execute(_DROP_EXPORT(run=export.run_id, folder=export.path))
        raise


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


@dataclass(frozen=True)
class Publication:
    """One row of the ledger.

    Attributes
    ----------
    run_id, published_at, path, table_name, digest, policy_hash:
        Of what run, when, where, and what.
    source:
        What it is a release of: JSON, made by `Workspace.run`. None in catalogs of older versions.
    after:
        The runs of the releases that it is safe together with.
    extends:
        The run of the release whose rows it has, too.
    manifest_hash:
        Of what it claims.
    version:
        Which of those in its file it is. None in catalogs of older versions, and of a Parquet file.
    sha256:
        Of the file as the newest publication in that place left it. None on a server, and of older versions.
    intended_at:
        When a run was about to publish it that ended before it could say whether it did. None: it is out.
    same_source:
        What an earlier release is of, whose source has rows of its own under another description.
    """

    run_id: str
    published_at: datetime
    path: Path
    table_name: str
    digest: str
    policy_hash: str | None
    source: str | None
    after: tuple[str, ...] = ()
    extends: str | None = None
    manifest_hash: str | None = None
    version: int | None = None
    sha256: str | None = None
    intended_at: datetime | None = None
    same_source: str | None = None

    @property
    def names(self) -> frozenset[str]:
        """What a policy may call it: its file, with and without its ending and its folder, or its table, with and
        without its version."""
        own = {shown_place(self.path), self.path.name, self.path.stem, self.table_name}
        return frozenset(own if self.version is None else own | {versioned(self.table_name, self.version)})

    def __str__(self) -> str:
        return f"{shown_place(self.path)} of {self.published_at:%Y-%m-%d %H:%M}"


@dataclass(frozen=True)
class Spent:
    """What a run has published with noise, replaced since or not.

    Attributes
    ----------
    run_id, path, source, same_source:
        Of what run, where, and of what, as `Publication` has it.
    epsilon:
        Of a record.
    attributes:
        Those with noise, in lower case; None in catalogs of older versions.
    """

    run_id: str
    path: Path
    source: str | None
    same_source: str | None
    epsilon: float
    attributes: frozenset[str] | None


BESIDE = 30
"""So many DuckDB files are looked into, which takes 2 ms each."""

_LISTED = 2_000
"""So many files of a folder are looked at."""

_STANDING = template("""
    SELECT
        run_id, published_at, path, table_name, digest, policy_hash, source, "after", extends,
        manifest_hash, version, sha256, intended_at, same_source
    FROM sqlanon_catalog.sqlanon.releases
    WHERE replaced_at IS NULL
    ORDER BY published_at
""")
_SPENT = template("""
    SELECT run_id, path, source, same_source, epsilon, noise
    FROM sqlanon_catalog.sqlanon.releases
    WHERE NOT epsilon IS NULL
    ORDER BY published_at
""")
_DROP_RUN = fragment("DELETE FROM :rows WHERE run_id = :run")
_KEEP_KEYS = fragment("""
    INSERT INTO sqlanon_catalog.sqlanon.released_keys
    SELECT :run AS run_id, key_hash FROM :keys
""")
_KEEP_SAMPLE = fragment("INSERT INTO sqlanon_catalog.sqlanon.source_samples SELECT * FROM :sample")
_SECRET = template("SELECT secret FROM sqlanon_catalog.sqlanon.secret")


@dataclass(frozen=True)
class History:
    """What the ledger has by now: the publications that stand, the oldest first; what was published with noise, one
    a run and place; and the exports."""

    publications: Sequence[Publication] = ()
    spent: Sequence[Spent] = ()
    exports: Sequence[Export] = ()


def history(engine: DuckDBEngine, path: Path, reach: Reach) -> History:
    """What the ledger has. What a run was about to publish that has ended is looked for; where its place cannot be
    read, it counts as out."""
    if not path.exists():
        return History()
    with catalog.open_catalog(engine, path):
        found = _history(engine)
    if not any(one.intended_at for one in found.publications):
        return found
    with alone_with(path):
        settle(engine, path, reach)
    with catalog.open_catalog(engine, path):
        return _history(engine)


def _history(engine: DuckDBEngine) -> History:
    return History(_read(engine), _read_spent(engine), [Export(*row) for row in engine.rows(_EXPORTS())])


def publications(engine: DuckDBEngine, path: Path, reach: Reach) -> Sequence[Publication]:
    """The publications that stand: whose place no other has taken, or that are kept beside it; the oldest first."""
    return history(engine, path, reach).publications


def _read(engine: DuckDBEngine) -> list[Publication]:
    """The publications of the open catalog whose place no other has taken."""
    rows = engine.rows(_STANDING())
    found = [
        Publication(run_id, at, Path(place), name, digest, policy_hash, source, tuple(after or ()), *more)
        for run_id, at, place, name, digest, policy_hash, source, after, *more in rows
    ]
    # The versions that are kept in one file are written again with the newest.
    left = {one.path: one.sha256 for one in sorted(found, key=lambda one: one.version or 1)}
    return [replace(one, sha256=left[one.path]) for one in found]


def check_against_ledger(engine: DuckDBEngine, policy: Policy, release: Verification) -> list[Check]:
    """Whether a file is the one that was published in its place last, by the hash that the ledger has of it."""
    if policy.catalog is None or not release.is_file:
        return []
    name, place = "against the ledger: sha256", os.path.realpath(release.path)
    recorded = catalog.recorded_sha256(engine, policy.catalog.database, place)
    if recorded is None:
        why = "the ledger has no hash of a file in this place, or cannot be read now"
        return [Check(name, None, f"not recorded: {why}")]
    return [replace(file_check(release.path, recorded), name=name)]


def _read_spent(engine: DuckDBEngine) -> list[Spent]:
    return [
        Spent(
            run_id,
            Path(place),
            source,
            same,
            epsilon,
            None if noise is None else frozenset(name.lower() for name in json.loads(noise)),
        )
        for run_id, place, source, same, epsilon, noise in engine.rows(_SPENT())
    ]


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
                if one not in (path, target) and catalog.is_database(one) and not same_file(one, path):
                    found[one] = ("catalog" not in one.name, -one.stat().st_mtime, one)
    beside = sorted(found, key=found.__getitem__)
    return sorted(one for one in beside[:BESIDE] if catalog.has_releases(engine, one, source, target))


def named_publications(known: Sequence[Publication], after: Sequence[str], source: str) -> list[Publication]:
    """Those that a policy's ``after`` names, and those that they are themselves after, as far as they still stand."""
    if "all" in after:
        return [one for one in known if one.source == source]
    found, problems = [], []
    for name in after:
        theirs = [one for one in known if name in one.names]
        found += theirs
        if not theirs:
            there = ", ".join(sorted({one.path.name for one in known})) or "none"
            problems.append(Problem("release.after", f"{name!r} is no release in the ledger; there are: {there}"))
    if problems:
        raise PolicyError(problems)
    wanted = {one.run_id for one in found} | {run_id for one in found for run_id in one.after}
    return [one for one in known if one.run_id in wanted]


def publication_of(engine: DuckDBEngine, policy: Policy, release: Verification) -> Publication | None:
    """What the ledger has of a published release, where it may be more than the policy tells: None where it is not.

    Several releases may have the same content: then it is the one in that place, or of that policy, or the newest.
    """
    after = policy.release is not None and bool(policy.release.after)
    if policy.catalog is None or not (after or policy.source.key):
        return None
    known = publications(engine, policy.catalog.database, Reach(policy))
    same = [one for one in known if one.digest == release.digest]
    if same:
        asked = policy.fingerprint()
        return max(same, key=lambda one: (one.path == release.path, one.policy_hash == asked, one.published_at))
    if not after:
        return None
    ledger = f"the ledger in {policy.catalog.database}"
    raise ReleaseError(f"{ledger} has no release of this content: on which ones it was based is not known")


@contextmanager
def recording(
    engine: DuckDBEngine,
    path: Path,
    row: dict[str, Any],
    reach: Reach,
    keys: exp.Query | None = None,
    hierarchies: Sequence[Hierarchy] = (),
    known: Collection[tuple[str, Path]] = (),
    keep: int = 1,
    sample: exp.Query | None = None,
    run: dict[str, Any] | None = None,
) -> Iterator[None]:
    """Write to the ledger what is about to be published; and, if all goes well meanwhile, that it is out and that what
    was in its place is gone. No other run with this catalog publishes meanwhile.
    """
    version = row["version"] or 0
    kept = range(version - keep + 1, version)
    now = datetime.now(timezone.utc).replace(tzinfo=None)
    with alone_with(path):
        with _settled(engine, path, reach):
            _refuse_overtaken(engine, row, known, kept)
            catalog.insert(engine, "releases", row | {"intended_at": now})
            if run is not None:
                _insert_again(engine, "runs", run)
            if keys is not None:
                _keep_keys(engine, row["run_id"], keys)
            if sample is not None:
                _keep_sample(engine, row["run_id"], sample)
            keep_trees(engine, row["run_id"], hierarchies)
            intent = _intent(engine, row["run_id"], now)
        with _until_known(engine, path, intent, kept, reach):
            yield


@contextmanager
def _settled(engine: DuckDBEngine, path: Path, reach: Reach) -> Iterator[None]:
    """The open catalog, without intents that can be settled."""
    with catalog.open_catalog(engine, path):
        if not intents(engine):
            yield
            return
    settle(engine, path, reach)
    with catalog.open_catalog(engine, path):
        yield


def _intent(engine: DuckDBEngine, run_id: str, at: datetime) -> Intent:
    (intent,) = [one for one in intents(engine) if one.run_id == run_id and one.intended_at == at]
    return intent


@contextmanager
def _until_known(
    engine: DuckDBEngine, path: Path, intent: Intent, kept: Collection[int], reach: Reach
) -> Iterator[None]:
    """Complete an intent if all goes well meanwhile; else look whether it is out."""
    is_known = False
    try:
        yield
        with _out_already(intent.path, path), catalog.open_catalog(engine, path):
            complete(engine, intent, kept)
        is_known = True
    finally:
        if not is_known:  # it may be out all the same
            _settle_if_possible(engine, path, reach)


def _settle_if_possible(engine: DuckDBEngine, path: Path, reach: Reach) -> None:
    """Once more, where the signal that ends this run has ended this, too; else it is left to the next run."""
    for _ in range(2):
        with suppress(Exception):
            return settle(engine, path, reach)


@contextmanager
def _out_already(place: Path, path: Path) -> Iterator[None]:
    """Errors of the ledger once a release is out: they do not undo it."""
    try:
        yield
    except (SqlanonError, OSError, duckdb.Error) as error:
        raise ReleaseError(
            f"{shown_place(place)} is published, and the ledger in {path} cannot be written to: "
            f"{str(error).splitlines()[0]}; the next run with this catalog completes it"
        ) from error


def _refuse_overtaken(
    engine: DuckDBEngine, row: dict[str, Any], known: Collection[tuple[str, Path]], kept: Collection[int]
) -> None:
    for one in _read(engine):
        stays = str(one.path) != row["path"] or (one.version or 1) in kept
        if one.source == row["source"] and stays and (one.run_id, one.path) not in known:
            raise OvertakenError("another release of this source was published meanwhile: try again")
    if row["epsilon"] is not None:
        noisy = [one for one in _read_spent(engine) if one.source == row["source"] and one.run_id != row["run_id"]]
        if any((one.run_id, one.path) not in known for one in noisy):
            raise OvertakenError("another release of this source was published with noise meanwhile: try again")


def _insert_again(engine: DuckDBEngine, name: str, row: dict[str, Any]) -> None:
    """Add a row of a run; it may be there from a publication that came to nothing."""
    _drop_run(engine, name, row["run_id"])
    catalog.insert(engine, name, row)


def _drop_run(engine: DuckDBEngine, name: str, run_id: str) -> None:
    engine.execute(_DROP_RUN(rows=table(name, catalog.SCHEMA, catalog.ATTACHED), run=run_id))


def _keep_keys(engine: DuckDBEngine, run_id: str, keys: exp.Query) -> None:
    _drop_run(engine, "released_keys", run_id)  # published twice
    engine.execute(_KEEP_KEYS(run=run_id, keys=keys))


def _keep_sample(engine: DuckDBEngine, run_id: str, sample: exp.Query) -> None:
    _drop_run(engine, "source_samples", run_id)  # published twice
    engine.execute(_KEEP_SAMPLE(sample=sample))


@contextmanager
def recording_replaced(
    engine: DuckDBEngine, path: Path, place: Path, manifest: Manifest, reach: Reach
) -> Iterator[None]:
    """Write that another release has taken a place, and nothing of that one: if all goes well meanwhile. Until then
    its intent is there, which a run that is killed leaves.
    """
    now = datetime.now(timezone.utc).replace(tzinfo=None)
    row = {
        "run_id": UNRECORDED,
        "published_at": manifest.published_at,
        "path": str(place),
        "table_name": manifest.table_name,
        "released_rows": manifest.released_rows,
        "digest": manifest.digest,
        "manifest_hash": manifest.fingerprint(),
        "version": manifest.version,
        "intended_at": now,
    }
    with alone_with(path):
        with _settled(engine, path, reach):
            catalog.insert(engine, "releases", row)
            intent = _intent(engine, UNRECORDED, now)
        with _until_known(engine, path, intent, (), reach):
            yield


def secret_of(engine: DuckDBEngine, path: Path) -> str:
    """What the catalog's keys are hashed with; made if there is none yet."""
    with catalog.open_catalog(engine, path):
        rows = engine.rows(_SECRET())
        if not rows:
            rows = [(secrets.token_hex(32),)]
            catalog.insert(engine, "secret", {"secret": rows[0][0]})
    return str(rows[0][0])
