"""A release in PostgreSQL: a versioned table, a stable view over it, and its manifest, in a schema of their own.

All of it is one transaction: the rows are audited before anybody can see them, and whatever goes wrong leaves what was
there before. The audit counts there, and reads the rows back: they are public, so that they may be read.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from sqlglot import exp

from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.engines.postgres import PostgresEngine
from sqlanon.errors import AuditError, ReleaseError
from sqlanon.queries import postgres as pg
from sqlanon.queries import postgres_release as pr
from sqlanon.queries.names import drop_table, drop_view, qualified, star, table
from sqlanon.queries.presented import stable_view
from sqlanon.queries.travel import arrived, travelling
from sqlanon.release.manifest import Manifest, versioned
from sqlanon.release.on_server import version_of
from sqlanon.release.postgres_reader import PostgresSpot, types_of
from sqlanon.release.presented import comments_on
from sqlanon.release.publish import Kept, audited, with_version
from sqlanon.release.staging import Content
from sqlanon.release.verify import Verification
from sqlanon.workdir import SPILL_PREFIX, private_directory

_READ_BACK = "read_back"
"""The name of the rows in the file that is audited: a name that is free in PostgreSQL may be taken in a file."""


def publish_postgres(
    engine: DuckDBEngine,
    server: PostgresEngine,
    content: Content,
    spot: PostgresSpot,
    fill: Callable[[exp.Table], None],
) -> Verification:
    """Write a release to PostgreSQL, audit it there, and let readers see it: all of it, or nothing.

    Parameters
    ----------
    engine:
        Audits the rows.
    server:
        A connection to where the release goes.
    content:
        What is to be released; its query counts for nothing.
    spot:
        Where it goes.
    fill:
        Fills the table that it is given, by the connection, in the transaction that is open.

    Raises
    ------
    ReleaseError
        There is no such schema, or something else has the name, or it cannot be written.
    AuditError
        The audit refused the release; what was there before still is.
    """
    types = {column.name: column.type for column in content.columns}
    if strange := [f"{name!r} ({type_})" for name, type_ in types.items() if pg.type_there(type_) is None]:
        raise ReleaseError(
            f"PostgreSQL cannot hold the types of {', '.join(strange)} as they are: cast them in a source query"
        )
    with server.undone_unless_committed(ReleaseError):
        older = _Older.found(server, spot)
        content = with_version(content, older.next_version)
        staged = table(versioned(spot.name, older.next_version), spot.schema)
        server.execute(pr.released_table(staged.copy(), types))
        fill(staged.copy())
        verification = _audited(engine, server, content, spot, staged, types)
        with content.recording(verification.manifest):
            _put_in_place(server, spot, staged, older, verification.manifest)
            server.commit()
    return replace(verification, path=spot.path)


@dataclass(frozen=True)
class _Older:
    """What is there already: the number of the next version, the versioned table that readers see now, its readers."""

    next_version: int
    table: exp.Table | None
    readers: tuple[str, ...]

    @classmethod
    def found(cls, server: PostgresEngine, spot: PostgresSpot) -> _Older:
        """Look, and let nobody else publish under this name meanwhile.

        Raises
        ------
        ReleaseError
            There is no such schema, or something that is no release has the name.
        """
        server.rows(pr.alone(str(spot.path)))
        if not server.rows(pr.schema_exists(), [spot.schema])[0][0]:
            raise ReleaseError(f"there is no schema {spot.schema!r} in PostgreSQL: make it first (CREATE SCHEMA)")
        server.execute(pr.manifest_table(spot.schema))
        kinds = dict(server.rows(pr.relations_of(), [spot.schema]))
        known = server.rows(pr.manifest_of(spot.schema), [spot.name])
        if kinds.get(spot.name, "v") != "v" or (spot.name in kinds and not known):
            raise ReleaseError(
                f"{spot.schema}.{spot.name} exists and is no release of sqlanon: choose another name, or remove it"
            )
        numbers = [number for name in kinds if (number := version_of(name, spot.name)) is not None]
        own = versioned(spot.name, known[0][0]) if known else ""
        readers = server.rows(pr.readers_of(), [qualified(spot.schema, spot.name)])
        return cls(
            max(numbers, default=0) + 1,
            table(own, spot.schema) if own in kinds else None,
            tuple(role for (role,) in readers),
        )


def _audited(
    engine: DuckDBEngine,
    server: PostgresEngine,
    content: Content,
    spot: PostgresSpot,
    staged: exp.Table,
    types: Mapping[str, str],
) -> Verification:
    """Hold the rows that PostgreSQL has against what the run knows: counted there, and read back for all checks."""
    with (
        private_directory(Path(tempfile.gettempdir()), SPILL_PREFIX) as directory,
        server.stream(travelling(star(staged.copy()), types)) as reader,
        engine.registered(reader) as relation,
    ):
        read_back = replace(_named(content, _READ_BACK), query=arrived(relation, types))
        verification = audited(engine, read_back, directory, Kept(directory, ()))
    manifest = replace(verification.manifest, table_name=spot.name)
    there = server.rows(pr.class_figures(staged.copy(), content.quasi))[0]
    claimed = (manifest.released_rows, manifest.classes, manifest.smallest_class)
    failures = []
    if tuple(there) != claimed:
        failures.append(f"PostgreSQL counts {there} rows, classes and rows of the smallest, and {claimed} were read")
    if (found := types_of(server, staged.db, staged.name)) != dict(types):
        failures.append(f"the columns in PostgreSQL are {found}, and should be {dict(types)}")
    if failures:
        raise AuditError(failures)
    return replace(verification, manifest=manifest)


def _named(content: Content, name: str) -> Content:
    """The same, by another name."""

    def manifest(rows: int, classes: int, smallest: int, digest: str) -> Manifest:
        return replace(content.manifest(rows, classes, smallest, digest), table_name=name)

    return replace(content, manifest=manifest)


def _put_in_place(
    server: PostgresEngine, spot: PostgresSpot, staged: exp.Table, older: _Older, manifest: Manifest
) -> None:
    """Have the view show the new version, to those who could read it before; the older one goes."""
    view = stable_view(spot.table, staged.copy(), [column.name for column in manifest.columns])
    # A view that is replaced keeps who may read what of it, and what others have built upon it.
    if _has_the_columns_of(server, spot, staged):
        view.set("replace", True)
        server.execute(view)
    else:
        _refuse_if_needed(server, spot, spot.name, "has other columns now")
        server.execute(drop_view(spot.table))
        server.execute(view)
        for role in older.readers:
            server.execute(pr.grant_select(spot.table, role))
    for told in comments_on("VIEW", spot.table, manifest):
        server.execute(told)
    server.execute(pr.forget_manifest(spot.schema), [spot.name])
    server.execute(pr.insert_manifest(spot.schema), [spot.name, older.next_version, manifest.to_json()])
    if older.table is not None:
        _refuse_if_needed(server, spot, older.table.name, f"is dropped, and {spot.name} is what readers use")
        server.execute(drop_table(older.table.copy()))


def _has_the_columns_of(server: PostgresEngine, spot: PostgresSpot, staged: exp.Table) -> bool:
    """Whether the view is there, with the names, types and collations of a table, in its order."""
    there, new = (server.rows(pr.shape_of(), [qualified(spot.schema, name)]) for name in (spot.name, staged.name))
    return bool(there) and there == new


def _refuse_if_needed(server: PostgresEngine, spot: PostgresSpot, name: str, why: str) -> None:
    """What others have built upon a relation is theirs: it is not dropped with it."""
    view = qualified(spot.schema, spot.name)
    if needed := [one for (one,) in server.rows(pr.upon(), [qualified(spot.schema, name), view])]:
        raise ReleaseError(
            f"{spot.schema}.{name} {why}, but this depends on it: {', '.join(needed)}; drop that first, and make it "
            f"again over {spot.schema}.{spot.name}"
        )
