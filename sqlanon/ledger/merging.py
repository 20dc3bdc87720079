"""Catalogs of a folder become one: what the policies there have published is held against all that comes.

Each catalog is copied in one transaction, and then set aside under another name. A merge that is stopped between the
two is done again by the next: rows that are there already are not copied twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import duckdb
from sqlglot import exp

from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.errors import SourceError, SqlanonError
from sqlanon.expressions import fragment, star, table, template
from sqlanon.ledger import catalog
from sqlanon.ledger.recording import alone_with, forget_gone, settle
from sqlanon.ledger.records import Publication, standing
from sqlanon.policy.names import OWN_CATALOG, SHARED_CATALOG
from sqlanon.records import dataclass
from sqlanon.release.target import Reach, recorded_place
from sqlanon.workdir import spill_directory

_TABLES = template("""
    SELECT table_name
    FROM duckdb_tables()
    WHERE database_name = 'sqlanon_catalog_beside' AND schema_name = 'sqlanon'
""")
_RELEASES = template("SELECT count(*) FROM sqlanon_catalog_beside.sqlanon.releases WHERE NOT coalesce(draft, false)")

_OWNED = {
    "hierarchies": fragment("NOT (policy_hash, attribute) IN (SELECT (policy_hash, attribute) FROM :own)"),
    "released_hierarchies": fragment("NOT run_id IN (SELECT run_id FROM :own)"),
    "decoys": fragment("NOT run_id IN (SELECT run_id FROM :own)"),
}
"""Tables whose rows name other tables; and which rows are new here."""

_OF_RUNS = fragment("NOT run_id IN (SELECT run_id FROM :own)")
_ROWS = {
    "runs": _OF_RUNS,
    "lattice": _OF_RUNS,
    "released_keys": _OF_RUNS,
    "released_people": _OF_RUNS,
    "released_noise": _OF_RUNS,
    "source_samples": _OF_RUNS,
    "source_people": _OF_RUNS,
    "exports": fragment("NOT (run_id, path) IN (SELECT (run_id, path) FROM :own)"),
    "releases": fragment("""
        NOT (run_id, path, published_at, coalesce(version, 0)) IN (
            SELECT (run_id, path, published_at, coalesce(version, 0)) FROM :own
        )
    """),
}
"""The other tables, likewise."""

_NAMED = template("SELECT table_name FROM :theirs WHERE :new")
_COPY = fragment("INSERT INTO :own BY NAME SELECT * FROM :theirs WHERE :new")
# The catalog that is copied knew its releases best, until now.
_KNOWN_BETTER = fragment("""
    UPDATE sqlanon_catalog.sqlanon.releases AS r SET
        replaced_at = coalesce(r.replaced_at, o.replaced_at),
        intended_at = CASE WHEN o.intended_at IS NULL THEN NULL ELSE r.intended_at END
    FROM sqlanon_catalog_beside.sqlanon.releases AS o
    WHERE r.run_id = o.run_id AND r.path = o.path AND r.published_at = o.published_at
        AND coalesce(r.version, 0) = coalesce(o.version, 0)
""")
_FIRST_SECRET = fragment("""
    INSERT INTO sqlanon_catalog.sqlanon.secret
    SELECT secret FROM sqlanon_catalog_beside.sqlanon.secret
    WHERE NOT EXISTS (SELECT 1 FROM sqlanon_catalog.sqlanon.secret)
    LIMIT 1
""")
_OTHER_SECRETS = fragment("""
    INSERT OR IGNORE INTO sqlanon_catalog.sqlanon.merged_secrets
    SELECT run_id, coalesce(m.secret, s.secret)
    FROM (SELECT DISTINCT run_id FROM sqlanon_catalog_beside.sqlanon.releases) AS r
    CROSS JOIN (SELECT secret FROM sqlanon_catalog_beside.sqlanon.secret LIMIT 1) AS s
    LEFT JOIN sqlanon_catalog_beside.sqlanon.merged_secrets AS m USING (run_id)
    WHERE coalesce(m.secret, s.secret) <> (SELECT secret FROM sqlanon_catalog.sqlanon.secret LIMIT 1)
""")
_GONE = fragment("""
    UPDATE sqlanon_catalog.sqlanon.releases SET replaced_at = :at::TIMESTAMP
    WHERE run_id = :run AND path = :place AND replaced_at IS NULL AND coalesce(version, 0) = :version
""")


@dataclass(frozen=True)
class MergedCatalog:
    """A catalog that was merged: where it was, and how many releases it has, drafts not counted."""

    path: Path
    releases: int


def merge_catalogs(folder: Path) -> tuple[Path, list[MergedCatalog]]:
    """Merge the catalogs of single policies in a folder into the folder's: that, and those."""
    if not folder.is_dir():
        raise SourceError(f"{folder} is not a folder: name the folder of the policies")
    target = folder / SHARED_CATALOG
    found = [one for one in sorted(folder.glob(f"*{OWN_CATALOG}")) if one.name != SHARED_CATALOG]
    if strange := [one.name for one in found if not catalog.is_catalog(one)]:
        raise SourceError(f"{folder} has files that are not catalogs: {', '.join(strange)}; move them away first")
    return target, [_merge(target, one) for one in found]


def _merge(target: Path, other: Path) -> MergedCatalog:
    aside = catalog.merged(other)
    if aside.exists():
        raise SourceError(f"{other} was merged before, and is kept as {aside.name}: move that file away first")
    with (
        spill_directory() as spill,
        closing(DuckDBEngine.private(spill)) as engine,
        alone_with(other),
        alone_with(target),
    ):
        with catalog.open_catalog(engine, other):  # of an older version, it gets the tables of now
            _refuse_newer(engine, other)
        settle(engine, other, Reach())
        with _beside(engine, other), catalog.open_catalog(engine, target):
            _refuse_newer(engine, target)
            releases = _copy(engine, other)
        settle(engine, target, Reach())
        _forget_overwritten(engine, target)
        other.rename(aside)
    return MergedCatalog(other, releases)


def _refuse_newer(engine: DuckDBEngine, path: Path) -> None:
    if catalog.format_of(engine) > catalog.FORMAT:
        raise SourceError(f"the catalog {path} is of a newer version of sqlanon: update sqlanon first")


@contextmanager
def _beside(engine: DuckDBEngine, path: Path) -> Iterator[None]:
    try:
        engine.attach(path, catalog.BESIDE, read_only=True)
    except duckdb.Error as error:
        raise SourceError(f"the catalog {path} cannot be read: {str(error).splitlines()[0]}") from error
    try:
        yield
    finally:
        engine.detach(catalog.BESIDE)


def _copy(engine: DuckDBEngine, path: Path) -> int:
    """Copy what the open catalog does not have of the one beside it; how many releases that has."""
    try:
        return _copied(engine)
    except duckdb.Error as error:
        raise SourceError(f"the catalog {path} cannot be merged: {str(error).splitlines()[0]}") from error


def _copied(engine: DuckDBEngine) -> int:
    there = {name for (name,) in engine.rows(_TABLES())}
    _refuse_missing({*_OWNED, *_ROWS, "secret", "merged_secrets"}, there)  # a view would be a query of somebody else's
    engine.execute(_FIRST_SECRET())
    engine.execute(_OTHER_SECRETS())
    for name, new in _OWNED.items():
        own, theirs = catalog.stored(name), _theirs(name)
        named = [one for (one,) in engine.rows(_NAMED(theirs=theirs, new=new(own=own)))]
        _refuse_missing(named, there)
        for one in named:
            catalog.replace_table(engine, catalog.stored(one), star(_theirs(one)))
        engine.execute(_COPY(own=own.copy(), theirs=theirs.copy(), new=new(own=own.copy())))
    engine.execute(_KNOWN_BETTER())
    for name, new in _ROWS.items():
        own = catalog.stored(name)
        engine.execute(_COPY(own=own, theirs=_theirs(name), new=new(own=own.copy())))
    return int(engine.rows(_RELEASES())[0][0])


def _refuse_missing(needed: Sequence[str] | set[str], there: set[str]) -> None:
    if missing := sorted(set(needed) - there):
        raise SourceError(f"the catalog has no table {', '.join(missing)}: it was changed by hand")


def _theirs(name: str) -> exp.Table:
    return table(name, catalog.SCHEMA, catalog.BESIDE)


def _forget_overwritten(engine: DuckDBEngine, path: Path) -> None:
    """Two policies may have published to one place, each with a catalog of its own: what is there now has replaced the
    other. Where the place cannot be read, both stand."""
    with catalog.open_catalog(engine, path):
        places: dict[Path, list[Publication]] = {}
        for one in standing(engine):
            places.setdefault(one.path, []).append(one)
    gone = [one for several in places.values() if len(several) > 1 for one in _overwritten(engine, several)]
    if not gone:
        return
    with catalog.open_catalog(engine, path):
        for one in gone:
            at, version = str(one.published_at), exp.Literal.number(one.version or 0)
            engine.execute(_GONE(at=at, run=one.run_id, place=str(one.path), version=version))
        forget_gone(engine)


def _overwritten(engine: DuckDBEngine, several: Sequence[Publication]) -> list[Publication]:
    try:
        found = recorded_place(several[0].path, several[0].table_name, Reach()).manifests(engine.limits)
    except (SqlanonError, OSError):
        return []
    if any(one.draft for one in found or ()):
        return []  # a draft takes no release's place: where it came to stand, the release may be elsewhere
    claims = {(one.fingerprint(), one.version) for one in found or ()}
    known = [one for one in several if (one.manifest_hash, one.version) in claims]
    return [one for one in several if one not in known and one.manifest_hash is not None] if known else []
