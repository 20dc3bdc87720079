"""What a run is about to publish: written to the ledger before the release is put in its place, and settled afterwards.

A run that is killed between the two leaves its intent. Whoever opens the ledger next looks at the place: if the release
is there, its publication is completed; if not, the intent is dropped. Where the place cannot be read the intent stays,
and counts as a release that is out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TypeAlias

from sqlglot import exp

from sqlanon import catalog
from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.errors import SourceError, SqlanonError
from sqlanon.expressions import col, is_null, number, select, table
from sqlanon.ledger.trees import forget_trees, is_gone
from sqlanon.release.target import Reach, recorded_place
from sqlanon.workdir import BusyError, alone_at

Claims: TypeAlias = "frozenset[tuple[str, int | None]]"
"""What a place has: the fingerprints of the manifests there, with their versions."""


@dataclass(frozen=True)
class Intent:
    """A row of the ledger that is not known to be out."""

    run_id: str
    path: Path
    table_name: str
    manifest_hash: str
    version: int | None
    published_at: datetime
    intended_at: datetime

    @property
    def claim(self) -> tuple[str, int | None]:
        """What its place has, if it is out."""
        return self.manifest_hash, self.version


UNRECORDED = ""
"""In place of the run, of a release that the ledger is to know nothing of, once it is known to be out."""

_COLUMNS = ("run_id", "path", "table_name", "manifest_hash", "version", "published_at", "intended_at")


@contextmanager
def alone_with(path: Path) -> Iterator[None]:
    """The lock of a catalog's publications: an intent without it is of a run that has ended."""
    try:
        with alone_at(path):
            yield
    except BusyError as error:
        raise SourceError(f"another run is publishing with the catalog {path}: try again when it is done") from error


def intents(engine: DuckDBEngine) -> list[Intent]:
    """The intents in the open catalog."""
    query = select(list(map(col, _COLUMNS)), _releases())
    query = query.where(_is_intent(), copy=False).order_by(col("intended_at"), copy=False)
    return [Intent(run_id, Path(place), *more) for run_id, place, *more in engine.rows(query)]


def settle(engine: DuckDBEngine, path: Path, reach: Reach) -> None:
    """Complete or drop the intents of runs that have ended, as far as their places can be read. For who has the
    lock.
    """
    with catalog.open_catalog(engine, path):
        found = intents(engine)
    there = {one: _claims_at(one, reach, engine) for one in found}
    if not any(claims is not None for claims in there.values()):
        return
    with catalog.open_catalog(engine, path):
        for one, claims in there.items():
            if claims is not None and one.claim in claims:
                complete(engine, one, [version for _, version in claims if version not in (None, one.version)])
            elif claims is not None:
                _drop(engine, one)


def complete(engine: DuckDBEngine, intent: Intent, kept: Collection[int | None]) -> None:
    """Write to the open catalog that an intended release is out, and that what was in its place is gone, but for the
    versions that are kept there."""
    replace_at(engine, str(intent.path), intent.published_at, kept)
    if intent.run_id != UNRECORDED:
        out = col("intended_at").eq(exp.Null())
        where = exp.and_(_of_run(), _at_place(), _is_intent(), copy=False)
        update = exp.Update(this=_releases(), expressions=[out], where=exp.Where(this=where))
        engine.execute(update, [intent.run_id, str(intent.path)])
    others = exp.and_(_at_place(), _is_intent(), copy=False)  # of whatever was intended for this place before
    engine.execute(exp.Delete(this=_releases(), where=exp.Where(this=others)), [str(intent.path)])
    forget_gone(engine)


def _drop(engine: DuckDBEngine, intent: Intent) -> None:
    where = exp.and_(_of_run(), _at_place(), _is_intent(), copy=False)
    engine.execute(exp.Delete(this=_releases(), where=exp.Where(this=where)), [intent.run_id, str(intent.path)])
    forget_gone(engine)


def replace_at(engine: DuckDBEngine, place: str, at: datetime, kept: Collection[int | None] = ()) -> None:
    """Write to the open catalog that a place was taken, but for the versions that it still has."""
    standing = exp.and_(_at_place(), is_null(col("replaced_at")), is_null(col("intended_at")), copy=False)
    if kept:
        version = exp.Coalesce(this=col("version"), expressions=[number(1)])  # the first that a file has is not counted
        there = exp.In(this=version, expressions=[number(one or 1) for one in kept])
        standing = exp.and_(standing, ~there, copy=False)
    gone = col("replaced_at").eq(exp.Placeholder())
    engine.execute(exp.Update(this=_releases(), expressions=[gone], where=exp.Where(this=standing)), [at, place])


def forget_gone(engine: DuckDBEngine) -> None:
    """Of releases that do not stand, hierarchies, keys and samples are needed no more."""
    forget_trees(engine)
    keys = table("released_keys", catalog.SCHEMA, catalog.ATTACHED)
    engine.execute(exp.Delete(this=keys, where=exp.Where(this=is_gone())))
    # What was published with noise counts for good.
    noisy = select([col("run_id")], _releases()).where(~is_null(col("epsilon")), copy=False)
    others = ~exp.In(this=col("run_id"), query=exp.Subquery(this=noisy))
    samples = table("source_samples", catalog.SCHEMA, catalog.ATTACHED)
    engine.execute(exp.Delete(this=samples, where=exp.Where(this=exp.and_(is_gone(), others, copy=False))))


def _releases() -> exp.Table:
    return table("releases", catalog.SCHEMA, catalog.ATTACHED)


def _is_intent() -> exp.Expr:
    return ~is_null(col("intended_at"))


def _of_run() -> exp.Expr:
    return col("run_id").eq(exp.Placeholder())


def _at_place() -> exp.Expr:
    return col("path").eq(exp.Placeholder())


def _claims_at(intent: Intent, reach: Reach, engine: DuckDBEngine) -> Claims | None:
    """What the place of an intent has now; None if it cannot be read."""
    try:
        found = recorded_place(intent.path, intent.table_name, reach).manifests(engine.limits)
    except (SqlanonError, OSError):
        return None
    return None if found is None else frozenset((one.fingerprint(), one.version) for one in found)
