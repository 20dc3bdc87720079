"""Publications, as the catalog has them."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from sqlglot import exp

from sqlanon import catalog
from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.errors import PolicyError, Problem, ReleaseError
from sqlanon.hierarchies import Hierarchy
from sqlanon.ledger.trees import forget_trees, is_gone, keep_trees
from sqlanon.policy import Policy, same_file, shown_place
from sqlanon.queries.names import col, is_null, named, number, select, table, text
from sqlanon.release.manifest import versioned
from sqlanon.release.verify import Verification


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

    @property
    def names(self) -> frozenset[str]:
        """What a policy may call it: its file, with and without its ending and its folder, or its table, with and
        without its version."""
        own = {shown_place(self.path), self.path.name, self.path.stem, self.table_name}
        return frozenset(own if self.version is None else own | {versioned(self.table_name, self.version)})

    def __str__(self) -> str:
        return f"{shown_place(self.path)} of {self.published_at:%Y-%m-%d %H:%M}"


BESIDE = 20
"""So many catalogs are looked into."""

_COLUMNS = (
    *("run_id", "published_at", "path", "table_name", "digest", "policy_hash", "source", "after", "extends"),
    *("manifest_hash", "version"),
)


def publications(engine: DuckDBEngine, path: Path) -> list[Publication]:
    """The publications that stand: whose place no other has taken, or that are kept beside it; the oldest first.

    Parameters
    ----------
    engine:
        Opens the catalog.
    path:
        The catalog. Where there is none, there are no publications.

    Raises
    ------
    SourceError
        It cannot be opened.
    """
    if not path.exists():
        return []
    with catalog.open_catalog(engine, path):
        return _read(engine)


def _read(engine: DuckDBEngine) -> list[Publication]:
    """The publications of the open catalog whose place no other has taken."""
    query = select(list(map(col, _COLUMNS)), table("releases", catalog.SCHEMA, catalog.ATTACHED))
    query = query.where(is_null(col("replaced_at")), copy=False)
    rows = engine.rows(query.order_by(col("published_at"), copy=False))
    return [
        Publication(run_id, at, Path(place), name, digest, policy_hash, source, tuple(after or ()), *more)
        for run_id, at, place, name, digest, policy_hash, source, after, *more in rows
    ]


def publications_elsewhere(engine: DuckDBEngine, path: Path, source: str, target: Path) -> list[Path]:
    """The catalogs beside one that have releases of a source, but in one place: nothing is held against these.

    What cannot be read now, or is no catalog, is passed over.
    """
    beside = sorted(one for one in path.parent.glob("*.catalog.duckdb") if not same_file(one, path))
    return [one for one in beside[:BESIDE] if catalog.has_releases(engine, one, source, target)]


def named_publications(known: Sequence[Publication], after: Sequence[str], source: str) -> list[Publication]:
    """Those that a policy's ``after`` names, and those that they are themselves after, as far as they still stand.

    Parameters
    ----------
    known:
        The ledger.
    after:
        Names, or ``all``: every release of this source.
    source:
        What is to be released.

    Raises
    ------
    PolicyError
        A name is no publication's; lists the names there are.
    """
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

    Raises
    ------
    ReleaseError
        The policy bases it on earlier ones, and the ledger does not know the release.
    """
    after = policy.release is not None and bool(policy.release.after)
    if policy.catalog is None or not (after or policy.source.key):
        return None
    same = [one for one in publications(engine, policy.catalog.database) if one.digest == release.digest]
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
    keys: exp.Query | None = None,
    hierarchies: Sequence[Hierarchy] = (),
    known: Collection[tuple[str, Path]] = (),
    keep: int = 1,
) -> Iterator[None]:
    """Write a publication to the ledger, and that what was in its place before is gone: if all goes well meanwhile.

    Parameters
    ----------
    engine, path:
        Opens the catalog.
    row:
        Of the table ``releases``.
    keys:
        The hashes of the keys that are in the release: ``key_hash``, made with `secret_of`.
    hierarchies:
        Those that its labels are made by.
    known:
        By run and path, the releases of this source that it was held against, or replaces.
    keep:
        How many versions its file has, at most.

    Raises
    ------
    ReleaseError
        There are others by now.
    """
    with catalog.open_catalog(engine, path):
        of_source = [one for one in _read(engine) if one.source == row["source"] and str(one.path) != row["path"]]
        if any((one.run_id, one.path) not in known for one in of_source):
            raise ReleaseError("another release of this source was published meanwhile: try again")
        version = row["version"] or 0
        _replace(engine, row["path"], row["published_at"], range(version - keep + 1, version))
        catalog.insert(engine, "releases", row)
        if keys is not None:
            target = table("released_keys", catalog.SCHEMA, catalog.ATTACHED)
            of_before = exp.EQ(this=col("run_id"), expression=text(row["run_id"]))
            engine.execute(exp.Delete(this=target.copy(), where=exp.Where(this=of_before)))  # published twice
            of_run = select([named(text(row["run_id"]), "run_id"), col("key_hash")], exp.Subquery(this=keys))
            engine.execute(exp.Insert(this=target, expression=of_run))
        keep_trees(engine, row["run_id"], hierarchies)
        _forget_keys(engine)
        yield


@contextmanager
def recording_replaced(engine: DuckDBEngine, path: Path, place: Path, at: datetime) -> Iterator[None]:
    """Write that another release has taken a place, and nothing of that one: if all goes well meanwhile.

    Parameters
    ----------
    engine, path:
        Opens the catalog.
    place, at:
        Where, and since when.
    """
    with catalog.open_catalog(engine, path):
        _replace(engine, str(place), at)
        forget_trees(engine)
        _forget_keys(engine)
        yield


def _replace(engine: DuckDBEngine, place: str, at: datetime, kept: Sequence[int] = ()) -> None:
    """Write that a place was taken, but for the versions that its file has still."""
    releases = table("releases", catalog.SCHEMA, catalog.ATTACHED)
    same_place = exp.EQ(this=col("path"), expression=exp.Placeholder())
    standing = exp.and_(same_place, is_null(col("replaced_at")), copy=False)
    if kept:
        version = exp.Coalesce(this=col("version"), expressions=[number(1)])  # the first that a file has is not counted
        there = exp.In(this=version, expressions=[number(one) for one in kept])
        standing = exp.and_(standing, exp.Not(this=there), copy=False)
    gone = exp.EQ(this=col("replaced_at"), expression=exp.Placeholder())
    engine.execute(exp.Update(this=releases, expressions=[gone], where=exp.Where(this=standing)), [at, place])


def _forget_keys(engine: DuckDBEngine) -> None:
    """Of releases whose place another has taken, keys are needed no more."""
    keys = table("released_keys", catalog.SCHEMA, catalog.ATTACHED)
    engine.execute(exp.Delete(this=keys, where=exp.Where(this=is_gone())))


def secret_of(engine: DuckDBEngine, path: Path) -> str:
    """What the catalog's keys are hashed with; made if there is none yet."""
    with catalog.open_catalog(engine, path):
        rows = engine.rows(select([col("secret")], table("secret", catalog.SCHEMA, catalog.ATTACHED)))
        if not rows:
            rows = [(secrets.token_hex(32),)]
            catalog.insert(engine, "secret", {"secret": rows[0][0]})
    return str(rows[0][0])
