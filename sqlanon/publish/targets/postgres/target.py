"""Publishing in PostgreSQL: a versioned table, the view that readers use, and the manifest, in one transaction.

The rows are audited before the commit, and an error leaves the schema unchanged. The audit counts on the server, and
reads the rows back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from dataclasses import dataclass, replace

from sqlglot import exp

from sqlanon.audit.verification import Verification
from sqlanon.engines.dialects import postgres
from sqlanon.engines.postgres.engine import PostgresEngine
from sqlanon.engines.travel import decode_columns, encode_columns
from sqlanon.errors import AuditError, ReleaseError, SourceError
from sqlanon.places.addresses import MANIFEST
from sqlanon.policy import Policy
from sqlanon.publish.targets.base import Draft, ReleaseTarget, refuse_draft_over, unsupported_types
from sqlanon.publish.targets.file.target import STAGED_FILE, StagedRows, write_rows
from sqlanon.publish.targets.postgres import statements
from sqlanon.publish.targets.postgres.checks import check_catalog, find_manifest_table_flaws, relation_number
from sqlanon.publish.targets.postgres.reader import (
    PostgresLocation,
    PostgresRelease,
    recorded_location,
    release_location,
    types_of,
)
from sqlanon.publish.targets.server import (
    ServerTarget,
    StagedOnServer,
    next_version,
    parse_manifests,
    release_section,
    version_number,
)
from sqlanon.release.digests import hash_rows
from sqlanon.release.manifest import Facts, Manifest, types_in, version_name
from sqlanon.release.metadata import SuppressedRows, comment_statements, stable_view
from sqlanon.sources import Source
from sqlanon.support.expressions import drop_table, drop_view, select_star, table
from sqlanon.support.workdir import spill_directory

__all__ = ["PostgresTarget", "recorded_location", "release_location", "target_for"]

_SECTION = "release.postgres"

_READ_BACK = "read_back"
"""The table in the audited file. A name that is free in PostgreSQL may be taken in a DuckDB file."""


@dataclass(frozen=True)
class PostgresTarget(ServerTarget):
    location: PostgresLocation

    @contextmanager
    def stage(self, draft: Draft) -> Iterator[StagedPostgres]:
        """Write the rows to a table in a transaction that is rolled back unless it is committed, and read them back."""
        location = self.location
        # The address may differ from that of the policy.
        draft.search_input.source.refuse_release(location.address, location.schema)
        types = types_in(draft.columns())
        if unsupported := {name: type_ for name, type_ in types.items() if postgres.from_duckdb_type(type_) is None}:
            raise unsupported_types(unsupported, "PostgreSQL")
        with (
            self._server(draft) as server,
            server.rolled_back_unless_committed(ReleaseError),
            spill_directory() as directory,
        ):
            refuse_server(server)
            replaced = ReleaseInSchema(server, location).find_replaced()
            if draft.is_draft:
                refuse_draft_over(replaced.manifests, location.qualified_name)
            relation = location.version_table(replaced.next_version)
            server.execute(statements.create_version_table(relation.copy(), types))
            revoke_default_privileges(server, relation)
            _insert_rows(server, location.address, draft, relation, types)
            file = directory / STAGED_FILE
            with (
                server.stream(encode_columns(select_star(relation.copy()), types)) as reader,
                draft.run.engine.register_arrow(reader) as arrow_table,
            ):
                write_rows(draft, decode_columns(arrow_table, types), file, _READ_BACK)
            with StagedRows.open(draft, file, _READ_BACK) as rows:
                yield StagedPostgres(draft, location, server, relation, replaced, rows)

    def facts(self, staged: StagedPostgres) -> Facts:
        """Count the rows on the server and those that were read back, which must agree."""
        draft, relation = staged.draft, staged.relation
        facts, types = staged.staged_rows.count(staged.replaced.next_version), types_in(draft.columns())
        remote_figures = staged.server.rows(statements.class_figures(relation, draft.quasi_identifiers))[0]
        local_figures = (facts.rows, facts.classes, facts.smallest_class)
        failures = []
        if tuple(remote_figures) != local_figures:
            failures.append(
                f"PostgreSQL counts {remote_figures} (rows, classes, smallest class), but {local_figures} were read"
            )
        if (remote_types := types_of(staged.server, relation)) != types:
            failures.append(f"the columns in PostgreSQL are {remote_types}, and should be {types}")
        if failures:
            raise AuditError(failures)
        return facts

    def commit(self, staged: StagedPostgres, manifest: Manifest) -> PostgresRelease:
        """Commit, and end the transaction in any case before its outcome is looked up."""
        try:
            staged.server.commit()
        finally:
            with suppress(Exception):  # the connection may be gone
                staged.server.rollback()
        return PostgresRelease(self.location, manifest, staged.staged_rows.engine.limits)

    @contextmanager
    def _server(self, draft: Draft) -> Iterator[PostgresEngine]:
        """The connection of the source if its address is the same text, or a new one."""
        if (source_server := draft.search_input.source.server(PostgresEngine, self.location.address)) is not None:
            with source_server.at_place(_SECTION):
                yield source_server
            return
        with closing(PostgresEngine.open(self.location.address, _SECTION)) as server:
            yield server


def refuse_unsupported(policy: Policy, source: Source) -> None:
    """Refuse a server that cannot hold the policy's release, before the search.

    A server that cannot be reached now may be reached when the release is published, or not be used.
    """
    section = policy.release
    assert section is not None
    assert section.postgres is not None
    location = PostgresLocation.parse(section.postgres, section.table)
    if source.server(PostgresEngine, location.address) is not None:
        return  # checked when the source was bound
    try:
        connection = PostgresEngine.open(location.address, _SECTION)
    except SourceError:
        return
    with closing(connection) as server, server.read_only(ReleaseError):
        refuse_server(server)


def refuse_server(server: PostgresEngine) -> None:
    """Refuse a server that cannot hold a release."""
    if reason := server.find_release_obstacle():
        raise ReleaseError(f"{_SECTION}: {reason}")


def target_for(draft: Draft, target: object, table_name: str | None) -> ReleaseTarget:
    section = release_section(draft)
    assert section.postgres is not None
    return PostgresTarget(PostgresLocation.parse(section.postgres, table_name or section.table))


@dataclass(frozen=True)
class StagedPostgres(StagedOnServer):
    """A release in an open transaction that has the lock of its name, and the rows that were read back."""

    draft: Draft
    location: PostgresLocation
    server: PostgresEngine
    relation: exp.Table
    replaced: ReplacedRelease
    staged_rows: StagedRows

    def rows(self) -> AbstractContextManager[exp.Table]:
        return self.staged_rows.beside_source()

    def hash_rows(self) -> str:
        with self.rows() as released:
            return hash_rows(self.draft.run.engine, released, types_in(self.draft.columns()))

    def complete(self, manifest: Manifest, suppressed: SuppressedRows) -> Verification:
        """Show the new version in the view, and verify the rows and the catalog."""
        verification = self.staged_rows.verify(self.location.path, manifest)
        in_schema = ReleaseInSchema(self.server, self.location)
        names = [column.name for column in manifest.columns]
        in_schema.replace_view(self.relation, self.replaced, names)
        for statement in comment_statements(
            "VIEW", self.location.table, manifest, f"{self.location.schema}.{MANIFEST}"
        ):
            self.server.execute(statement)
        in_schema.store_manifest(self.replaced.next_version, manifest.to_json())
        in_schema.drop_replaced_table(self.replaced)
        checks = check_catalog(self.server, self.location, manifest)
        return replace(verification, checks=(*verification.checks, *checks))


def _insert_rows(
    server: PostgresEngine, address: str, draft: Draft, target: exp.Table, types: Mapping[str, str]
) -> None:
    """Compute the rows on the server if it has the source, or upload them."""
    if draft.search_input.source.server(PostgresEngine, address) is not None:
        with draft.remote_rows() as query:
            server.execute(exp.Insert(this=target.copy(), expression=query))
        return
    with draft.rows() as rows, draft.run.engine.stream(encode_columns(rows, types, "VARCHAR")) as reader:
        uploaded = server.upload("sqlanon_released_rows", reader)
    server.execute(exp.Insert(this=target.copy(), expression=postgres.POSTGRES.decode_uploaded(uploaded, types)))
    server.execute(drop_table(uploaded.copy()))


@dataclass(frozen=True)
class ReplacedRelease:
    """The release that a publication replaces, if there is one.

    ``view`` and ``table_number`` are the numbers of the view and of its table; ``readers`` are the roles that may read
    the view, and whether they may grant that; ``manifests`` is None if one is broken.
    """

    next_version: int
    view: int | None
    table: exp.Table | None
    table_number: int | None
    readers: tuple[tuple[str, bool], ...]
    manifests: Sequence[Manifest] | None


@dataclass(frozen=True)
class ReleaseInSchema:
    """A release by its name, in a transaction that publishes it."""

    server: PostgresEngine
    location: PostgresLocation

    def find_replaced(self) -> ReplacedRelease:
        """Find the release that is replaced, and lock the name against other publications."""
        server, location = self.server, self.location
        server.rows(statements.advisory_lock(name=location.lock_name))  # of this database
        kinds = dict(server.rows(statements.relations_in_schema(), [self._trusted_schema()]))
        manifest_rows = []
        if MANIFEST in kinds:
            self._lock_manifests(statements.READ_LOCK)
            query = statements.select_manifest(manifests=statements.manifests(location.schema))
            manifest_rows = server.rows(query, [location.name])
        if kinds.get(location.name, "v") != "v" or (location.name in kinds and not manifest_rows):
            raise location.name_is_taken()
        view, readers = self._number(location.name), []
        if view is not None:
            self._refuse_foreign_relation(location.name)
            privileges = _privileges(server, location.table)
            readers = [(role, grants) for role, name, grants, column in privileges if name == "SELECT" and not column]
        table_name = version_name(location.name, manifest_rows[-1][0]) if manifest_rows else ""
        has_table = kinds.get(table_name) == "r"
        return ReplacedRelease(
            next_version(version_number(name, location.name) for name in kinds),
            view,
            table(table_name, location.schema) if has_table else None,
            self._number(table_name) if has_table else None,
            tuple(readers),
            parse_manifests(manifest_json for _, manifest_json in manifest_rows),
        )

    def replace_view(self, staged_table: exp.Table, replaced: ReplacedRelease, columns: Sequence[str]) -> None:
        """Show the new version in the view to the readers of the replaced one."""
        server, location = self.server, self.location
        view = stable_view(location.table, staged_table.copy(), columns)
        if replaced.view is None:
            server.execute(view)  # an error if another user has created one
            _grant_readers_only(server, location.table)
        else:
            self._lock_for_replacement(location.table, replaced.view)
            self._replace_view(view, staged_table, replaced)

    def drop_replaced_table(self, replaced: ReplacedRelease) -> None:
        """Drop the table of the replaced version, which the view no longer shows."""
        if replaced.table is not None and replaced.table_number is not None:
            self._lock_for_replacement(replaced.table, replaced.table_number)
            self._refuse_dependents(replaced.table.name, f"is dropped, and {self.location.name} is what readers use")
            self.server.execute(drop_table(replaced.table.copy()))

    def _number(self, name: str) -> int | None:
        return relation_number(self.server, self.location.schema, name)

    def _trusted_schema(self) -> int:
        """The number of the schema; refuse a schema whose owner could replace it while the release is written."""
        schema = self.location.schema
        schemas = self.server.rows(statements.schema_properties(), [schema])
        if not schemas:
            raise self.location.schema_is_missing()
        number: int
        number, may_use, owner, is_trusted = schemas[0]
        if not may_use:
            raise ReleaseError(f"this user may not use the schema {schema!r}: GRANT USAGE, CREATE ON SCHEMA")
        if not is_trusted:
            raise ReleaseError(
                f"the schema {schema!r} belongs to {owner}, who could replace what is in it while the release is "
                "written: publish as that role (SET ROLE, in options of the address), or ALTER SCHEMA ... OWNER TO the "
                "role that publishes"
            )
        return number

    def _refuse_foreign_relation(self, name: str) -> None:
        """Refuse a relation of another user, who could change it at any time."""
        properties = self.server.rows(statements.relation_properties(), [self._number(name)])
        if not properties:
            raise self._was_replaced(name)
        _, _, owner, is_own = properties[0]
        if not is_own:
            raise ReleaseError(
                f"{self.location.schema}.{name} belongs to {owner}: publish as that role (SET ROLE, in options of the "
                "address), or into another schema"
            )

    def _lock_manifests(self, mode: str) -> None:
        """Lock the manifest table, and refuse changes to it: its triggers would run with privileges of this user."""
        self._refuse_foreign_relation(MANIFEST)
        self.server.execute(statements.lock_relation(statements.manifests(self.location.schema), mode))
        self._refuse_foreign_relation(MANIFEST)  # it may have been replaced before the lock
        if flaws := find_manifest_table_flaws(self.server, self._number(MANIFEST)):
            raise ReleaseError(f"{self.location.schema}.{MANIFEST} was changed: it {flaws}; undo that first")

    def _lock_for_replacement(self, relation: exp.Table, number: int) -> None:
        """Lock a relation exclusively, and refuse it unless it still has this number and belongs to this user."""
        self.server.execute(statements.lock_relation(relation.copy(), statements.EXCLUSIVE_LOCK))
        current = self._number(relation.name)
        if current != number or not self.server.rows(statements.relation_properties(), [number])[0][3]:
            raise self._was_replaced(relation.name)

    def _was_replaced(self, name: str) -> ReleaseError:
        return ReleaseError(
            f"{self.location.schema}.{name} was replaced while the release was written: look who did that, and publish "
            "again"
        )

    def _replace_view(self, view: exp.Create, staged_table: exp.Table, replaced: ReplacedRelease) -> None:
        server, location = self.server, self.location
        numbers = replaced.view, self._number(staged_table.name)
        columns, staged_columns = (server.rows(statements.relation_columns(), [number]) for number in numbers)
        if columns == staged_columns:
            view.set("replace", True)  # the view keeps its privileges and dependents
            server.execute(view)
            return
        self._refuse_dependents(location.name, "has other columns now")
        server.execute(drop_view(location.table))
        server.execute(view)
        revoke_default_privileges(server, location.table)
        for role, may_grant in replaced.readers:
            server.execute(statements.grant_select(location.table, role, may_grant))

    def store_manifest(self, version: int, manifest: str) -> None:
        """Write the manifest to the table of the schema, in place of that of the replaced version."""
        server, location = self.server, self.location
        manifests = statements.manifests(location.schema)
        # Concurrent publications to a new schema would both create the table, and the later one would fail.
        server.rows(statements.advisory_lock(name=f"sqlanon {location.schema}"))
        if self._number(MANIFEST) is None:
            server.execute(statements.create_manifest_table(manifests=manifests))
            _grant_readers_only(server, manifests)
        else:
            self._lock_manifests(statements.WRITE_LOCK)
        server.execute(statements.delete_manifest(manifests=manifests), [location.name])
        server.execute(statements.insert_manifest(manifests=manifests), [location.name, version, manifest])

    def _refuse_dependents(self, name: str, reason: str) -> None:
        """Refuse to drop a relation that objects of other users depend on."""
        numbers = [self._number(relation) for relation in (name, self.location.name)]
        if dependents := [dependent for (dependent,) in self.server.rows(statements.dependents(), numbers)]:
            raise ReleaseError(
                f"{self.location.schema}.{name} {reason}, but these depend on it: {', '.join(dependents)}; drop them "
                f"first, and create them again over {self.location.qualified_name}"
            )


def _privileges(server: PostgresEngine, relation: exp.Table) -> list[tuple[str, str, bool, str]]:
    return server.rows(statements.privileges(), [relation_number(server, relation.db, relation.name)])


def revoke_default_privileges(server: PostgresEngine, relation: exp.Table) -> None:
    """Revoke the default privileges of other roles on a new relation."""
    if roles := list(dict.fromkeys(role for role, *_ in _privileges(server, relation))):
        server.execute(statements.revoke_all(relation.copy(), roles))


def _grant_readers_only(server: PostgresEngine, relation: exp.Table) -> None:
    """Reduce the default privileges of other roles on a new relation to SELECT."""
    privileges = _privileges(server, relation)
    if {privilege for _, privilege, *_ in privileges} - {"SELECT"}:
        revoke_default_privileges(server, relation)
        for role, privilege, may_grant, _ in privileges:
            if privilege == "SELECT":
                server.execute(statements.grant_select(relation.copy(), role, may_grant))
