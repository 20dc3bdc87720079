"""Checks of a release against PostgreSQL's catalog: view, table, manifest, comments, privileges, and schema.

The right rows may come from the wrong table, and a column, a rule or a privilege can change what readers get. Relations
are looked up by number, in the transaction that reads the rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from sqlglot import exp

from sqlanon.audit.verification import check_wording
from sqlanon.engines.dialects import postgres
from sqlanon.engines.postgres.engine import PostgresEngine
from sqlanon.errors import BrokenReleaseError
from sqlanon.places.addresses import MANIFEST
from sqlanon.publish.targets.postgres import statements
from sqlanon.publish.targets.server import (
    ServerLocation,
    check_versions,
    column_comments,
    columns_of_table,
    version_number,
)
from sqlanon.release.manifest import Manifest, ReleasedColumn, version_name
from sqlanon.release.sentences import comment_on_release
from sqlanon.support.checks import Check, check_faults
from sqlanon.support.expressions import quote_name

_MAX_NAME_BYTES = 63
_MANIFEST_KEY = f"{MANIFEST}_pkey"
"""The index of the primary key of the manifest table."""

_MAX_LISTED = 5
"""Maximum number of objects that a message lists."""


def relation_number(server: PostgresEngine, schema: str, name: str) -> int | None:
    number: int | None = server.rows(postgres.relation_oid(), [quote_name(schema, name)])[0][0]
    return number


def schema_number(server: PostgresEngine, relation: int | None) -> int | None:
    """The number of the schema of a relation."""
    rows = server.rows(statements.schema_of_relation(), [relation])
    return rows[0][0] if rows else None


@dataclass(frozen=True)
class Relations:
    """The view of a release and the manifest table: their numbers, and the relations to read them by."""

    view_number: int | None
    view: exp.Table
    manifests_number: int | None
    manifests: exp.Table

    @classmethod
    def by_name(cls, server: PostgresEngine, location: ServerLocation) -> Relations:
        """Look the relations up in a schema that other users cannot replace."""
        numbers = [relation_number(server, location.schema, name) for name in (location.name, MANIFEST)]
        return cls(numbers[0], location.table, numbers[1], statements.manifests(location.schema))


def check_catalog(
    server: PostgresEngine, location: ServerLocation, manifest: Manifest, relations: Relations | None = None
) -> list[Check]:
    """Check a release against the catalog; ``relations`` are those that are read if their names can be replaced."""
    audit = _CatalogAudit(server, location, manifest, relations or Relations.by_name(server, location))
    return [*audit.checks_of_table(), audit.check_comments(manifest), audit.check_privileges(), audit.check_schema()]


class CatalogClaims(Protocol):
    """The claims of a manifest about one table that the catalog can show."""

    @property
    def table_name(self) -> str: ...
    @property
    def columns(self) -> Sequence[ReleasedColumn]: ...
    @property
    def version(self) -> int | None: ...
    @property
    def types(self) -> Mapping[str, str]: ...


def check_table_of_several(
    server: PostgresEngine, location: ServerLocation, claims: CatalogClaims, relations: Relations
) -> list[Check]:
    """Check one of several tables against the catalog; no comments belong to it."""
    audit = _CatalogAudit(server, location, claims, relations)
    return [*audit.checks_of_table(), audit.check_no_comments(), audit.check_privileges(), audit.check_schema()]


def find_manifest_table_flaws(server: PostgresEngine, number: int | None) -> str:
    """The differences from a manifest table that sqlanon creates; '' if there are none."""
    flaws = _compare_table(server, number, statements.MANIFEST_TYPES)
    index_flaws, plain_indexes = _check_indexes(server, MANIFEST, number)
    foreign = [f"has index {name!r}" for name in plain_indexes if name != _MANIFEST_KEY]
    return ", ".join([flaws] * bool(flaws) + index_flaws + foreign)


def refuse_unsafe_manifest_table(server: PostgresEngine, schema: str, number: int | None) -> None:
    """Refuse to read a manifest table if PostgreSQL would evaluate code of other users for it.

    The table must be locked, so that it stays as it is.
    """
    expected = {
        name: (type_, "pg_catalog.default" if type_ == "text" else "")
        for name, type_ in statements.MANIFEST_TYPES.items()
    }
    columns = {
        name: (type_, collation) for name, type_, collation in server.rows(statements.relation_columns(), [number])
    }
    properties = server.rows(statements.relation_properties(), [number])
    flaws = [] if properties and properties[0][0] == "r" else ["it is not a table"]
    flaws += [f"it has {description}" for (description,) in server.rows(statements.evaluated_objects(), [number])]
    flaws += [f"it has no column {name!r} of its type" for name in expected if columns.get(name) != expected[name]]
    if flaws:
        raise BrokenReleaseError(
            f"{schema}.{MANIFEST} differs from the table that sqlanon creates, and is not read: {', '.join(flaws)}"
        )


@dataclass(frozen=True)
class _CatalogAudit:
    server: PostgresEngine
    location: ServerLocation
    claims: CatalogClaims
    relations: Relations

    def checks_of_table(self) -> list[Check]:
        return [self._check_view(), self._check_table(), self._check_versions(), self._check_manifest_table()]

    @cached_property
    def table_name(self) -> str:
        """The table of the version in the manifest."""
        name, version = self.location.name, self.claims.version
        return name if version is None else version_name(name, version)

    @cached_property
    def numbers(self) -> Mapping[str, int | None]:
        """The numbers of the view, its table and the manifest table, by name."""
        view = self.relations.view_number
        table_rows = self.server.rows(statements.sibling_relation(), [view, self.table_name])
        return {
            self.location.name: view,
            self.table_name: table_rows[0][0] if table_rows else None,
            MANIFEST: self.relations.manifests_number,
        }

    @cached_property
    def schema_number(self) -> int | None:
        return schema_number(self.server, self.relations.manifests_number)

    def _check_view(self) -> Check:
        """Check that the view is a plain list of the columns of the table."""
        name, view = self.location.name, self.numbers[self.location.name]
        relations = [number for (number,) in self.server.rows(statements.relations_read(), [view])]
        query = self.server.rows(statements.view_query(), [view])[0][0] if relations else ""
        columns = [column.name for column in self.claims.columns]
        description = columns_of_table(self.table_name)
        if relations != [self.numbers[self.table_name]] or not statements.is_view_of(query, columns, self.table_name):
            return Check("view", False, f"{name!r} is not a view of {description}")
        attachments = _describe_attachments(self.server, view)
        flaws = [f"{name!r} has {attachments}"] * bool(attachments)
        flaws += [f"{name!r} uses {used}" for (used,) in self.server.rows(statements.objects_used(), [view])]
        return check_faults("view", flaws, description)

    def _check_table(self) -> Check:
        """Check that the table behind the view is plain and has the released columns only."""
        types = {name: postgres.from_duckdb_type(type_) for name, type_ in self.claims.types.items()}
        # Another type, and its casts, could be defined by the publisher.
        if unsupported := [name for name, type_ in types.items() if type_ is None]:
            names = ", ".join(map(repr, unsupported))
            return Check("table", False, f"the manifest names types that no release in PostgreSQL has, of {names}")
        name, number = self.table_name, self.numbers[self.table_name]
        supported = {column: type_ for column, type_ in types.items() if type_ is not None}
        differences = _compare_table(self.server, number, supported, "C")
        flaws = [f"{name!r} {differences}"] * bool(differences)
        index_flaws, plain_indexes = _check_indexes(self.server, name, number)
        message = f"{name!r} is a plain table with the released columns"
        if plain_indexes:
            message += f", with plain indexes that sqlanon did not create: {', '.join(plain_indexes)}"
        return check_faults("table", flaws + index_flaws, message)

    def _check_versions(self) -> Check:
        """Check that no other relation has the name of the release or of a version, in any case of letters.

        Readers could mistake it for the release.
        """
        name = self.location.name
        relations = [
            relation for relation, _ in self.server.rows(statements.relations_in_schema(), [self.schema_number])
        ]
        return check_versions(
            [
                relation
                for relation in relations
                if relation not in (name, self.table_name)
                and (relation.lower() == name.lower() or version_number(relation.lower(), name.lower()) is not None)
            ]
        )

    def _check_manifest_table(self) -> Check:
        """Check that the manifest table is plain and has one manifest of the release, of its version."""
        name, version, flaws = self.location.name, self.claims.version, []
        if table_flaws := find_manifest_table_flaws(self.server, self.relations.manifests_number):
            flaws.append(f"{MANIFEST!r} {table_flaws}")
        query = statements.select_manifest(manifests=self.relations.manifests.copy())
        versions = [stored_version for stored_version, _ in self.server.rows(query, [name])]
        if len(versions) != 1:
            flaws.append(f"there are {len(versions)} manifests of {name!r}")
        elif versions != [version]:
            flaws.append(f"it is of version {version}, but stored as version {versions[0]}")
        if self.claims.table_name != name:
            flaws.append("it belongs to a release with another name")
        return check_faults("one manifest", flaws, "one, of this version")

    def check_comments(self, manifest: Manifest) -> Check:
        """Check that the comments on the view follow from the manifest, and that nothing else has comments."""
        name, rows = self.location.name, self.server.rows
        comments = {relation: dict(rows(statements.relation_comments(), [n])) for relation, n in self.numbers.items()}
        flaws = [
            f"those of {relation!r} were not written by sqlanon"
            for relation in (self.table_name, MANIFEST)
            if comments[relation]
        ]
        foreign_comments = [
            row for number in self.numbers.values() for row in rows(statements.foreign_comments(), [number])
        ]
        flaws += [f"{description} was not written by sqlanon: remove it" for (description,) in foreign_comments]
        comment = comment_on_release(manifest, f"{self.location.schema}.{MANIFEST}")
        expected, actual = {"": comment, **column_comments(manifest)}, comments[name]
        differences = [
            f"that of column {column!r} was not written by sqlanon" if column else f"that of {name!r} was not"
            for column in sorted(expected.keys() | actual.keys())
            if expected.get(column) != actual.get(column)
        ]
        if flaws:
            return check_faults("comments", [*flaws, *differences], "unchanged")
        return check_wording("comments", differences, "unchanged", manifest)

    def check_no_comments(self) -> Check:
        """Check that nothing of the release has comments."""
        rows = self.server.rows
        flaws = [f"of {name!r}" for name, n in self.numbers.items() if rows(statements.relation_comments(), [n])]
        flaws += [
            description for n in self.numbers.values() for (description,) in rows(statements.foreign_comments(), [n])
        ]
        return check_faults("comments", flaws, "none")

    def check_privileges(self) -> Check:
        """Check that readers only have the view, that they cannot change anything, and that one role owns all."""
        properties = {name: self.server.rows(statements.relation_properties(), [n]) for name, n in self.numbers.items()}
        owners = {name: rows[0][2] for name, rows in properties.items() if rows}
        flaws = list[str]()
        if len(set(owners.values())) > 1:
            owned = ", ".join(f"{name!r} of {owner}" for name, owner in owners.items())
            flaws.append(f"they are of several owners: {owned}")
        for name, number in self.numbers.items():
            for role, privilege, _, _ in self.server.rows(statements.privileges(), [number]):
                if privilege != "SELECT" or name == self.table_name:
                    flaws.append(f"{role or 'everybody'} has {privilege} on {name!r}")
        return check_faults(
            "rights", dict.fromkeys(flaws), "only the owner can change the release; readers read the view"
        )

    def check_schema(self) -> Check:
        """Report objects in the schema, or built on the release, that belong to no release."""
        rows = self.server.rows
        contents = rows(statements.schema_contents(), [self.schema_number])
        manifests = rows(statements.list_releases(manifests=self.relations.manifests.copy()))
        parts = {view: {(view, "v"), (version_name(view, version), "r")} for view, version in manifests}
        relations = {(name, kind) for _, name, kind in contents}
        complete = {view: pair for view, pair in parts.items() if pair <= relations}
        release_relations = {(MANIFEST, "r")}.union(*complete.values())
        view = self.numbers[self.location.name]
        dependents = [name for n in self.numbers.values() for (name,) in rows(statements.dependents(), [n, view])]
        foreign = {
            "in the schema": [
                description for description, name, kind in contents if (name, kind) not in release_relations
            ],
            "built upon the release": list(dict.fromkeys(dependents)),
            "manifests without a release": [repr(view) for view in parts if view not in complete],
            "comment of the schema": [
                repr(text) for (text,) in rows(statements.schema_comment(), [self.schema_number])
            ],
        }
        if flaws := [f"{kind}: {_list_some(names)}" for kind, names in foreign.items() if names]:
            return Check("schema", None, f"not created by sqlanon: {'; '.join(flaws)}")
        return Check("schema", True, f"has only releases: {_list_some(sorted(complete))}")


def _compare_table(
    server: PostgresEngine, number: int | None, types: Mapping[str, str], collation: str = "default"
) -> str:
    """The differences of a relation from a plain table with these columns; '' if there are none."""
    properties = server.rows(statements.relation_properties(), [number]) if number is not None else []
    if not properties or properties[0][:2] != ("r", "p"):
        return "is not a plain table" if properties else "is not there"
    collations = {"text": f"pg_catalog.{collation}"}
    expected = [(name, type_, collations.get(type_, "")) for name, type_ in types.items()]
    columns = server.rows(statements.relation_columns(), [number])
    flaws = [f"column {column[0]!r}" for column in columns if column not in expected]
    flaws += [f"no column {column[0]!r} of type {column[1]}" for column in expected if column not in columns]
    if not flaws and columns != expected:
        flaws = ["its columns in another order"]
    if attachments := _describe_attachments(server, number):
        flaws.append(attachments)
    return f"has {', '.join(flaws)}" if flaws else ""


def _describe_attachments(server: PostgresEngine, number: int | None) -> str:
    return ", ".join(description for (description,) in server.rows(statements.attachments(), [number]))


def _check_indexes(server: PostgresEngine, relation: str, number: int | None) -> tuple[list[str], list[str]]:
    """The flaws of the indexes of a relation, and the names of plain indexes.

    A name that is not PostgreSQL's default could reveal anything.
    """
    flaws, plain = list[str](), list[str]()
    for name, is_primary, columns, is_plain in server.rows(statements.indexes(), [number]):
        default_name = index_name(relation, "" if is_primary else columns, "pkey" if is_primary else "idx")
        if not is_plain:
            flaws.append(f"index {name!r} has expressions, options or other columns: drop it")
        elif name != default_name:
            flaws.append(
                f"index {name!r} does not have PostgreSQL's default name: drop it, or rename it to {default_name!r}"
            )
        else:
            plain.append(name)
    return flaws, plain


def index_name(relation: str, columns: str, suffix: str) -> str:
    """PostgreSQL's default name of an index, which it shortens to 63 bytes.

    >>> index_name("patients_v1", "zip_age", "idx"), index_name("sqlanon_manifest", "", "pkey")
    ('patients_v1_zip_age_idx', 'sqlanon_manifest_pkey')
    """
    parts = [relation.encode(), columns.encode()]
    lengths, available = [len(part) for part in parts], _MAX_NAME_BYTES - len(suffix) - 1 - bool(columns)
    while sum(lengths) > available:  # the longer part is shortened
        lengths[0 if lengths[0] > lengths[1] else 1] -= 1
    shortened = [part[:length].decode(errors="ignore") for part, length in zip(parts, lengths, strict=True)]
    return "_".join(part for part in (*shortened, suffix) if part)


def _list_some(names: Sequence[str]) -> str:
    more = len(names) - _MAX_LISTED
    return ", ".join(names[:_MAX_LISTED]) + (f", and {more:,} more" if more > 0 else "")
