"""A release in PostgreSQL: a versioned table, a stable view over it, and its manifest, in a schema of their own.

All of it is one transaction: the rows are audited before anybody can see them, and whatever goes wrong leaves what was
there before. The audit counts there, and reads the rows back: they are public, so that they may be read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace

from sqlglot import exp

from sqlanon.engines.dialects import postgres as pg
from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.engines.postgres import PostgresEngine
from sqlanon.engines.travel import arrived, travelling
from sqlanon.errors import AuditError, ReleaseError
from sqlanon.expressions import drop_table, drop_view, star, table
from sqlanon.policy.postgres import MANIFEST
from sqlanon.release.manifest import Manifest, versioned
from sqlanon.release.metadata import comments_on
from sqlanon.release.metadata_views import stable_view
from sqlanon.release.staging import Content
from sqlanon.release.targets import postgres_catalog as pc
from sqlanon.release.targets import postgres_statements as pr
from sqlanon.release.targets.file import Kept, audited, with_version
from sqlanon.release.targets.on_server import version_of
from sqlanon.release.targets.postgres_checks import manifest_table_flaws, number_of, server_checks
from sqlanon.release.targets.postgres_reader import PostgresSpot, types_of
from sqlanon.release.verify import Verification
from sqlanon.workdir import spill_directory

_READ_BACK = "read_back"
"""The name of the rows in the file that is audited: a name that is free in PostgreSQL may be taken in a file."""


def publish_postgres(
    engine: DuckDBEngine,
    server: PostgresEngine,
    content: Content,
    spot: PostgresSpot,
    fill: Callable[[exp.Table], None],
) -> Verification:
    """Write a release to PostgreSQL, audit it there, and let readers see it: all of it, or nothing."""
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
        _closed(server, staged)
        fill(staged.copy())
        verification = _audited(engine, server, content, spot, staged, types)
        _put_in_place(server, spot, staged, older, verification.manifest)
        checks = server_checks(server, spot.schema, spot.name, verification.manifest)
        if failures := [f"{check.name}: {check.message}" for check in checks if check.passed is False]:
            raise AuditError(failures)
        with content.recording(verification.manifest, None), _ended(server):
            server.commit()
    return replace(verification, path=spot.path)


@contextmanager
def _ended(server: PostgresEngine) -> Iterator[None]:
    """Where a transaction is not committed, it ends before anybody looks what became of it."""
    try:
        yield
    finally:
        with suppress(Exception):  # the connection may be gone
            server.rollback()


@dataclass(frozen=True)
class _Older:
    """What is there already: the number of the next version, the versioned table that readers see now, its readers, and
    which of them may let others read."""

    next_version: int
    table: exp.Table | None
    readers: tuple[tuple[str, bool], ...]

    @classmethod
    def found(cls, server: PostgresEngine, spot: PostgresSpot) -> _Older:
        """Look, and let nobody else publish under this name meanwhile."""
        server.rows(pr.alone(f"sqlanon {spot.schema}.{spot.name}"))  # of this database
        schemas = server.rows(pc.schema(), [spot.schema])
        if not schemas:
            raise ReleaseError(f"there is no schema {spot.schema!r} in PostgreSQL: make it first (CREATE SCHEMA)")
        if not schemas[0][1]:
            raise ReleaseError(f"this user may not use the schema {spot.schema!r}: GRANT USAGE, CREATE ON SCHEMA")
        kinds = dict(server.rows(pc.relations_of(), [spot.schema]))
        known = []
        if MANIFEST in kinds:
            _refuse_of_others(server, spot, MANIFEST)
            # What its triggers did would be done by us.
            server.execute(pr.locked_for_rows(table(MANIFEST, spot.schema)))
            if wrong := manifest_table_flaws(server, spot.schema):
                raise ReleaseError(f"{spot.schema}.{MANIFEST} is not as sqlanon made it: it {wrong}; remove that first")
            known = server.rows(pr.manifest_of(spot.schema), [spot.name])
        if kinds.get(spot.name, "v") != "v" or (spot.name in kinds and not known):
            raise ReleaseError(
                f"{spot.schema}.{spot.name} exists and is no release of sqlanon: choose another name, or remove it"
            )
        readers = []
        if spot.name in kinds:
            _refuse_of_others(server, spot, spot.name)
            rights = server.rows(pc.rights(), [number_of(server, spot.schema, spot.name)])
            readers = [
                (role, grant) for role, privilege, grant, column in rights if privilege == "SELECT" and not column
            ]
        numbers = [number for name in kinds if (number := version_of(name, spot.name)) is not None]
        own = versioned(spot.name, known[-1][0]) if known else ""
        return cls(
            max(numbers, default=0) + 1, table(own, spot.schema) if kinds.get(own) == "r" else None, tuple(readers)
        )


def _refuse_of_others(server: PostgresEngine, spot: PostgresSpot, name: str) -> None:
    """The owner of a view, or of a table, can change it at any time: a release is of one."""
    _, _, owner, is_own = server.rows(pc.relation(), [number_of(server, spot.schema, name)])[0]
    if not is_own:
        raise ReleaseError(
            f"{spot.schema}.{name} belongs to {owner}: publish as that role (SET ROLE, in options of the address), or "
            "into another schema"
        )


def _closed(server: PostgresEngine, relation: exp.Table) -> None:
    """Take what default privileges gave others of a new relation."""
    rights = server.rows(pc.rights(), [number_of(server, relation.db, relation.name)])
    if roles := list(dict.fromkeys(role for role, *_ in rights)):
        server.execute(pr.revoke_all(relation.copy(), roles))


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
        spill_directory() as directory,
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
    there = number_of(server, spot.schema, spot.name)
    # A view that is replaced keeps who may read what of it, and what others have built upon it.
    if there is None:
        server.execute(view)
        _readers_only(server, spot.table)
    elif _has_the_columns_of(server, there, staged):
        view.set("replace", True)
        server.execute(view)
    else:
        _refuse_if_needed(server, spot, spot.name, "has other columns now")
        server.execute(drop_view(spot.table))
        server.execute(view)
        _closed(server, spot.table)
        for role, may_grant in older.readers:
            server.execute(pr.grant_select(spot.table, role, may_grant))
    for told in comments_on("VIEW", spot.table, manifest):
        server.execute(told)
    _manifest_in_place(server, spot, older.next_version, manifest)
    if older.table is not None:
        _refuse_if_needed(server, spot, older.table.name, f"is dropped, and {spot.name} is what readers use")
        server.execute(drop_table(older.table.copy()))


def _manifest_in_place(server: PostgresEngine, spot: PostgresSpot, version: int, manifest: Manifest) -> None:
    # Two that publish into a new schema would both make the table, and the later one would fail.
    server.rows(pr.alone(f"sqlanon {spot.schema}"))
    if number_of(server, spot.schema, MANIFEST) is None:
        server.execute(pr.manifest_table(spot.schema))
        _readers_only(server, table(MANIFEST, spot.schema))
    server.execute(pr.forget_manifest(spot.schema), [spot.name])
    server.execute(pr.insert_manifest(spot.schema), [spot.name, version, manifest.to_json()])


def _readers_only(server: PostgresEngine, relation: exp.Table) -> None:
    """Of what default privileges gave others of a new relation, leave the right to read it."""
    rights = server.rows(pc.rights(), [number_of(server, relation.db, relation.name)])
    if {privilege for _, privilege, *_ in rights} - {"SELECT"}:
        server.execute(pr.revoke_all(relation.copy(), list(dict.fromkeys(role for role, *_ in rights))))
        for role, privilege, may_grant, _ in rights:
            if privilege == "SELECT":
                server.execute(pr.grant_select(relation.copy(), role, may_grant))


def _has_the_columns_of(server: PostgresEngine, view: int, staged: exp.Table) -> bool:
    """Whether a view has the names, types and collations of a table, in its order."""
    table_number = number_of(server, staged.db, staged.name)
    return server.rows(pc.shape(), [view]) == server.rows(pc.shape(), [table_number])


def _refuse_if_needed(server: PostgresEngine, spot: PostgresSpot, name: str, why: str) -> None:
    """What others have built upon a relation is theirs: it is not dropped with it."""
    own, view = (number_of(server, spot.schema, one) for one in (name, spot.name))
    if needed := [one for (one,) in server.rows(pc.upon(), [own, view])]:
        raise ReleaseError(
            f"{spot.schema}.{name} {why}, but this depends on it: {', '.join(needed)}; drop that first, and make it "
            f"again over {spot.schema}.{spot.name}"
        )
