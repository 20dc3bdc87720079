"""A release in PostgreSQL: a versioned table, a stable view over it, and its manifest, in a schema of their own.

All of it is one transaction: the rows are audited before anybody can see them, and whatever goes wrong leaves what was
there before. The audit counts there, and reads the rows back: they are public, so that they may be read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from dataclasses import dataclass, replace

from sqlglot import exp

from sqlanon.engines.dialects import postgres as pg
from sqlanon.engines.postgres.engine import PostgresEngine
from sqlanon.engines.travel import arrived, travelling
from sqlanon.errors import AuditError, ReleaseError, SourceError
from sqlanon.places.addresses import MANIFEST
from sqlanon.policy import Policy
from sqlanon.release.manifest import Facts, Manifest, version_name
from sqlanon.release.metadata import SuppressedRows, comment_statements, stable_view
from sqlanon.release.rows_hash import hash_rows
from sqlanon.release.targets.base import Draft, ReleaseTarget, Verification, refuse_draft_over
from sqlanon.release.targets.file.target import STAGED_FILE, StagedRows, write_rows
from sqlanon.release.targets.postgres import statements as ps
from sqlanon.release.targets.postgres.checks import manifest_table_flaws, number_of, server_checks
from sqlanon.release.targets.postgres.reader import (
    PostgresLocation,
    PostgresRelease,
    recorded_location,
    release_location,
    types_of,
)
from sqlanon.release.targets.server import (
    ServerTarget,
    StagedOnServer,
    manifests_of,
    next_version,
    refuse_types,
    release_section,
    types_in,
    version_of,
)
from sqlanon.sources import Source
from sqlanon.support.expressions import drop_table, drop_view, star, table
from sqlanon.support.workdir import spill_directory

__all__ = ["PostgresTarget", "recorded_location", "release_location", "target_for"]

_SECTION = "release.postgres"

_READ_BACK = "read_back"
"""The name of the rows in the file that is audited: a name that is free in PostgreSQL may be taken in a file."""


@dataclass(frozen=True)
class PostgresTarget(ServerTarget[PostgresLocation]):
    @contextmanager
    def stage(self, draft: Draft) -> Iterator[StagedPostgres]:
        """Write the rows to a table of their own, in a transaction that is undone unless it is committed; and read them
        back."""
        # It may be another than the policy's.
        draft.search_input.source.refuse_release(self.place.address, self.place.schema)
        types = types_in(draft.columns())
        refuse_types(types, lambda type_: pg.type_there(type_) is not None, "PostgreSQL")
        with (
            self._server(draft) as server,
            server.undone_unless_committed(ReleaseError),
            spill_directory() as directory,
        ):
            older = _Older.found(server, self.place)
            if draft.is_draft:
                refuse_draft_over(older.manifests, f"{self.place.schema}.{self.place.name}")
            relation = table(version_name(self.place.name, older.next_version), self.place.schema)
            server.execute(ps.released_table(relation.copy(), types))
            _closed(server, relation)
            _fill(server, self.place.address, draft, relation, types)
            file = directory / STAGED_FILE
            with (
                server.stream(travelling(star(relation.copy()), types)) as reader,
                draft.run.engine.registered(reader) as here,
            ):
                write_rows(draft, arrived(here, types), file, _READ_BACK)
            with StagedRows.opened(draft, file, _READ_BACK) as rows:
                yield StagedPostgres(self.place, server, relation, older, rows)

    def facts(self, staged: StagedPostgres) -> Facts:
        """Count the rows there and here: both must find the same."""
        draft, relation = staged.staged.draft, staged.relation
        facts, types = staged.staged.counted(staged.older.next_version), types_in(draft.columns())
        there = staged.server.rows(ps.class_figures(relation, draft.quasi_identifiers))[0]
        here = (facts.rows, facts.classes, facts.smallest_class)
        failures = []
        if tuple(there) != here:
            failures.append(f"PostgreSQL counts {there} (rows, classes, smallest class), but {here} were read")
        if (found := types_of(staged.server, relation.db, relation.name)) != types:
            failures.append(f"the columns in PostgreSQL are {found}, and should be {types}")
        if failures:
            raise AuditError(failures)
        return facts

    def commit(self, staged: StagedPostgres, manifest: Manifest) -> PostgresRelease:
        """End the transaction: where it is not committed, before anybody looks what became of it."""
        try:
            staged.server.commit()
        finally:
            with suppress(Exception):  # the connection may be gone
                staged.server.rollback()
        return PostgresRelease(self.place, manifest, staged.staged.engine.limits)

    @contextmanager
    def _server(self, draft: Draft) -> Iterator[PostgresEngine]:
        """The source's connection, if that is the place, by the very text of its address; else a new one."""
        if (own := draft.search_input.source.server(PostgresEngine, self.place.address)) is not None:
            with own.named(_SECTION):
                yield own
            return
        with closing(PostgresEngine.open(self.place.address, _SECTION)) as server:
            yield server


def refuse_server_of(policy: Policy, source: Source) -> None:
    """Refuse a server that cannot hold the policy's release, before anything is searched. One that is not reached now
    may be reached when the release is published, or that may go elsewhere."""
    section = policy.release
    assert section is not None
    assert section.postgres is not None
    place = PostgresLocation.of(section.postgres, section.table)
    if source.server(PostgresEngine, place.address) is not None:
        return  # it was looked at when the source was bound
    try:
        opened = PostgresEngine.open(place.address, _SECTION)
    except SourceError:
        return
    with closing(opened) as server, server.reading(ReleaseError):
        _refuse_server(server)


def _refuse_server(server: PostgresEngine) -> None:
    if why := server.why_not_for_releases():
        raise ReleaseError(f"{_SECTION}: {why}")


def target_for(draft: Draft, place: object, table_name: str | None) -> ReleaseTarget[StagedPostgres, PostgresRelease]:
    section = release_section(draft)
    assert section.postgres is not None
    return PostgresTarget(PostgresLocation.of(section.postgres, table_name or section.table))


@dataclass(frozen=True)
class StagedPostgres(StagedOnServer):
    """A release in an open transaction, which has the lock of the place; what was there before; and its rows, as they
    were read back."""

    place: PostgresLocation
    server: PostgresEngine
    relation: exp.Table
    older: _Older
    staged: StagedRows

    def rows(self) -> AbstractContextManager[exp.Table]:
        return self.staged.beside_source()

    @property
    def sha256(self) -> str | None:
        draft = self.staged.draft
        if draft.search_input.policy.catalog is None:
            return None
        with self.rows() as released:
            return hash_rows(draft.run.engine, released, types_in(draft.columns()))

    def complete(self, manifest: Manifest, suppressed: SuppressedRows) -> Verification:
        """Have the view show the new version, and verify the rows, and what PostgreSQL has of the release."""
        verification = self.staged.verified(self.place.path, manifest)
        _put_in_place(self.server, self.place, self.relation, self.older, manifest)
        checks = server_checks(self.server, self.place, manifest)
        return replace(verification, checks=(*verification.checks, *checks))


def _fill(server: PostgresEngine, address: str, draft: Draft, target: exp.Table, types: Mapping[str, str]) -> None:
    """Make the rows there, where the source is on that server; else send them."""
    if draft.search_input.source.server(PostgresEngine, address) is not None:
        with draft.remote_rows() as query:
            server.execute(exp.Insert(this=target.copy(), expression=query))
        return
    with draft.rows() as rows, draft.run.engine.stream(travelling(rows, types, "VARCHAR")) as reader:
        arrived_ = server.upload("sqlanon_released_rows", reader)
    server.execute(exp.Insert(this=target.copy(), expression=pg.landed(arrived_, types)))
    server.execute(drop_table(arrived_.copy()))


@dataclass(frozen=True)
class _Older:
    """What is there already: the number of the next version; the view that readers know and the versioned table behind
    it, by their numbers, None if there is none; the readers of the view, and which of them may let others read; and the
    manifests, None if one is broken."""

    next_version: int
    view: int | None
    table: exp.Table | None
    table_number: int | None
    readers: tuple[tuple[str, bool], ...]
    manifests: Sequence[Manifest] | None

    @classmethod
    def found(cls, server: PostgresEngine, place: PostgresLocation) -> _Older:
        """Look, and let nobody else publish under this name meanwhile."""
        _refuse_server(server)
        server.rows(ps.lock(name=place.lock_name))  # of this database
        kinds = dict(server.rows(ps.relations_of(), [_own_schema(server, place)]))
        known = []
        if MANIFEST in kinds:
            _lock_manifests(server, place, ps.READING)
            known = server.rows(ps.manifest_of(manifests=ps.manifests(place.schema)), [place.name])
        if kinds.get(place.name, "v") != "v" or (place.name in kinds and not known):
            raise place.taken()
        view, readers = number_of(server, place.schema, place.name), []
        if view is not None:
            _refuse_of_others(server, place, place.name)
            rights = _rights(server, place.table)
            readers = [
                (role, grant) for role, privilege, grant, column in rights if privilege == "SELECT" and not column
            ]
        own = version_name(place.name, known[-1][0]) if known else ""
        shown = table(own, place.schema) if kinds.get(own) == "r" else None
        return cls(
            next_version(version_of(name, place.name) for name in kinds),
            view,
            shown,
            None if shown is None else number_of(server, place.schema, own),
            tuple(readers),
            manifests_of(text for _, text in known),
        )


def _own_schema(server: PostgresEngine, place: PostgresLocation) -> int:
    """The number of the schema. Refuse a schema that does not exist, or whose owner could put another in its place
    while the release is written."""
    schemas = server.rows(ps.schema(), [place.schema])
    if not schemas:
        raise place.without_schema()
    number: int
    number, may_use, owner, is_trusted = schemas[0]
    if not may_use:
        raise ReleaseError(f"this user may not use the schema {place.schema!r}: GRANT USAGE, CREATE ON SCHEMA")
    if not is_trusted:
        raise ReleaseError(
            f"the schema {place.schema!r} belongs to {owner}, who could replace what is in it while the release is "
            f"written: publish as that role (SET ROLE, in options of the address), or ALTER SCHEMA ... OWNER TO the "
            "role that publishes"
        )
    return number


def _refuse_of_others(server: PostgresEngine, place: PostgresLocation, name: str) -> None:
    """The owner of a view, or of a table, can change it at any time: a release is of one."""
    found = server.rows(ps.relation(), [number_of(server, place.schema, name)])
    if not found:
        raise _replaced(place.schema, name)
    _, _, owner, is_own = found[0]
    if not is_own:
        raise ReleaseError(
            f"{place.schema}.{name} belongs to {owner}: publish as that role (SET ROLE, in options of the address), or "
            "into another schema"
        )


def _lock_manifests(server: PostgresEngine, place: PostgresLocation, mode: str) -> None:
    """Lock the table of manifests until the transaction ends, and refuse what sqlanon did not make of it: what its
    triggers did would be done by this user."""
    _refuse_of_others(server, place, MANIFEST)
    server.execute(ps.locked(ps.manifests(place.schema), mode))
    _refuse_of_others(server, place, MANIFEST)  # it may be another since
    if wrong := manifest_table_flaws(server, number_of(server, place.schema, MANIFEST)):
        raise ReleaseError(f"{place.schema}.{MANIFEST} was changed: it {wrong}; undo that first")


def _lock_found(server: PostgresEngine, relation: exp.Table, number: int) -> None:
    """Lock a relation for being replaced, and refuse it unless it still is the one that was found, of this user."""
    server.execute(ps.locked(relation.copy(), ps.REPLACING))
    found = number_of(server, relation.db, relation.name)
    if found != number or not server.rows(ps.relation(), [number])[0][3]:
        raise _replaced(relation.db, relation.name)


def _replaced(schema: str, name: str) -> ReleaseError:
    return ReleaseError(
        f"{schema}.{name} was replaced while the release was written: look who did that, and publish again"
    )


def _put_in_place(
    server: PostgresEngine, place: PostgresLocation, staged: exp.Table, older: _Older, manifest: Manifest
) -> None:
    """Have the view show the new version, to those who could read it before; the older one goes."""
    view = stable_view(place.table, staged.copy(), [column.name for column in manifest.columns])
    # A view that is replaced keeps who may read what of it, and what others have built upon it.
    if older.view is None:
        server.execute(view)  # an error if somebody else has made one since
        _readers_only(server, place.table)
    else:
        _lock_found(server, place.table, older.view)
        _replace_view(server, place, view, staged, older)
    for told in comment_statements("VIEW", place.table, manifest, f"{place.schema}.{MANIFEST}"):
        server.execute(told)
    _manifest_in_place(server, place, older.next_version, manifest)
    if older.table is not None and older.table_number is not None:
        _lock_found(server, older.table, older.table_number)
        _refuse_if_needed(server, place, older.table.name, f"is dropped, and {place.name} is what readers use")
        server.execute(drop_table(older.table.copy()))


def _replace_view(
    server: PostgresEngine, place: PostgresLocation, view: exp.Create, staged: exp.Table, older: _Older
) -> None:
    assert older.view is not None
    if _has_the_columns_of(server, older.view, staged):
        view.set("replace", True)
        server.execute(view)
        return
    _refuse_if_needed(server, place, place.name, "has other columns now")
    server.execute(drop_view(place.table))
    server.execute(view)
    _closed(server, place.table)
    for role, may_grant in older.readers:
        server.execute(ps.grant_select(place.table, role, may_grant))


def _manifest_in_place(server: PostgresEngine, place: PostgresLocation, version: int, manifest: Manifest) -> None:
    manifests = ps.manifests(place.schema)
    # Two that publish into a new schema would both make the table, and the later one would fail.
    server.rows(ps.lock(name=f"sqlanon {place.schema}"))
    if number_of(server, place.schema, MANIFEST) is None:
        server.execute(ps.manifest_table(manifests=manifests))
        _readers_only(server, manifests)
    else:
        _lock_manifests(server, place, ps.WRITING)
    server.execute(ps.forget_manifest(manifests=manifests), [place.name])
    server.execute(ps.insert_manifest(manifests=manifests), [place.name, version, manifest.to_json()])


def _rights(server: PostgresEngine, relation: exp.Table) -> list[tuple[str, str, bool, str]]:
    return server.rows(ps.rights(), [number_of(server, relation.db, relation.name)])


def _closed(server: PostgresEngine, relation: exp.Table) -> None:
    """Take what default privileges gave others of a new relation."""
    if roles := list(dict.fromkeys(role for role, *_ in _rights(server, relation))):
        server.execute(ps.revoke_all(relation.copy(), roles))


def _readers_only(server: PostgresEngine, relation: exp.Table) -> None:
    """Of what default privileges gave others of a new relation, leave the right to read it."""
    rights = _rights(server, relation)
    if {privilege for _, privilege, *_ in rights} - {"SELECT"}:
        _closed(server, relation)
        for role, privilege, may_grant, _ in rights:
            if privilege == "SELECT":
                server.execute(ps.grant_select(relation.copy(), role, may_grant))


def _has_the_columns_of(server: PostgresEngine, view: int, staged: exp.Table) -> bool:
    """Whether a view has the names, types and collations of a table, in its order."""
    table_number = number_of(server, staged.db, staged.name)
    return server.rows(ps.shape(), [view]) == server.rows(ps.shape(), [table_number])


def _refuse_if_needed(server: PostgresEngine, place: PostgresLocation, name: str, why: str) -> None:
    """What others have built upon a relation is theirs: it is not dropped with it."""
    own, view = (number_of(server, place.schema, one) for one in (name, place.name))
    if needed := [one for (one,) in server.rows(ps.upon(), [own, view])]:
        raise ReleaseError(
            f"{place.schema}.{name} {why}, but these depend on it: {', '.join(needed)}; drop them first, and "
            f"create them again over {place.schema}.{place.name}"
        )
