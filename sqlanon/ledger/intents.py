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

from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.errors import SourceError, SqlanonError
from sqlanon.expressions import fragment, number, template
from sqlanon.ledger import catalog
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

_INTENTS = template("""
    SELECT run_id, path, table_name, manifest_hash, version, published_at, intended_at
    FROM sqlanon_catalog.sqlanon.releases
    WHERE NOT intended_at IS NULL
    ORDER BY intended_at
""")
_OUT = fragment("""
    UPDATE sqlanon_catalog.sqlanon.releases SET intended_at = NULL
    WHERE run_id = :run AND path = :place AND NOT intended_at IS NULL
""")
_DROP = fragment("""
    DELETE FROM sqlanon_catalog.sqlanon.releases
    WHERE run_id = :run AND path = :place AND NOT intended_at IS NULL
""")
_DROP_ALL = fragment("DELETE FROM sqlanon_catalog.sqlanon.releases WHERE path = :place AND NOT intended_at IS NULL")
_REPLACE = fragment("""
    UPDATE sqlanon_catalog.sqlanon.releases SET replaced_at = :at::TIMESTAMP
    WHERE path = :place AND replaced_at IS NULL AND intended_at IS NULL
        AND NOT coalesce(version, 1) IN (:kept) -- the first that a file has is not counted
""")
_FORGET_KEYS = fragment("DELETE FROM sqlanon_catalog.sqlanon.released_keys WHERE :gone")
_FORGET_SAMPLES = fragment("""
    DELETE FROM sqlanon_catalog.sqlanon.source_samples
    WHERE :gone AND NOT run_id IN (
        SELECT run_id FROM sqlanon_catalog.sqlanon.releases WHERE NOT epsilon IS NULL -- it counts for good
    )
""")


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
    return [Intent(run_id, Path(place), *more) for run_id, place, *more in engine.rows(_INTENTS())]


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
    place = str(intent.path)
    versions = [one or 1 for one in kept] or [0]
    engine.execute(_REPLACE(place=place, at=str(intent.published_at), kept=[number(one) for one in versions]))
    if intent.run_id != UNRECORDED:
        engine.execute(_OUT(run=intent.run_id, place=place))
    engine.execute(_DROP_ALL(place=place))  # whatever was intended for this place before
    forget_gone(engine)


def _drop(engine: DuckDBEngine, intent: Intent) -> None:
    engine.execute(_DROP(run=intent.run_id, place=str(intent.path)))
    forget_gone(engine)


def forget_gone(engine: DuckDBEngine) -> None:
    """Of releases that do not stand, hierarchies, keys and samples are needed no more."""
    forget_trees(engine)
    engine.execute(_FORGET_KEYS(gone=is_gone()))
    engine.execute(_FORGET_SAMPLES(gone=is_gone()))


def _claims_at(intent: Intent, reach: Reach, engine: DuckDBEngine) -> Claims | None:
    """What the place of an intent has now; None if it cannot be read."""
    try:
        found = recorded_place(intent.path, intent.table_name, reach).manifests(engine.limits)
    except (SqlanonError, OSError):
        return None
    return None if found is None else frozenset((one.fingerprint(), one.version) for one in found)
