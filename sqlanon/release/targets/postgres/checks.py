"""What PostgreSQL's catalog tells of a release: whether view, table and manifest are as sqlanon made them.

The right rows may come from the wrong place, and a column, a rule or a right beside them changes what readers get. All
of it is looked up by the numbers of the relations, in one transaction with the rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from sqlglot import exp

from sqlanon.audit.check import Check, check_faults, check_wording
from sqlanon.engines.dialects import postgres as pg
from sqlanon.engines.postgres.engine import PostgresEngine
from sqlanon.errors import BrokenReleaseError
from sqlanon.places.addresses import MANIFEST
from sqlanon.release.manifest import Manifest, version_name
from sqlanon.release.metadata import comment_statements
from sqlanon.release.targets.postgres import statements as ps
from sqlanon.release.targets.server import ServerLocation, shown_columns, types_in, version_of
from sqlanon.support.expressions import qualified

_READ = "SELECT"

_LONGEST = 63
"""Of PostgreSQL's names, in bytes."""

_KEY = f"{MANIFEST}_pkey"
"""The index of the key of the table of manifests."""

_SHOWN = 5
"""How many things beside a release are named."""


def number_of(server: PostgresEngine, schema: str, name: str) -> int | None:
    found: int | None = server.rows(pg.number_of(), [qualified(schema, name)])[0][0]
    return found


def schema_of(server: PostgresEngine, relation: int | None) -> int | None:
    """The number of the schema of a relation; None without one."""
    rows = server.rows(ps.schema_of(), [relation])
    return rows[0][0] if rows else None


@dataclass(frozen=True)
class Relations:
    """The view of a release and the table of manifests: their numbers, and what reads them."""

    view_number: int | None
    view: exp.Table
    manifests_number: int | None
    manifests: exp.Table

    @classmethod
    def by_name(cls, server: PostgresEngine, place: ServerLocation) -> Relations:
        """For a schema that nobody else can exchange."""
        numbers = [number_of(server, place.schema, name) for name in (place.name, MANIFEST)]
        return cls(numbers[0], place.table, numbers[1], ps.manifests(place.schema))


def server_checks(
    server: PostgresEngine, place: ServerLocation, manifest: Manifest, relations: Relations | None = None
) -> list[Check]:
    """The checks of what the catalog has of a release; of the relations that are read, where they are not its names."""
    return list(_InCatalog(server, place, manifest, relations or Relations.by_name(server, place)).checks())


def manifest_table_flaws(server: PostgresEngine, number: int | None) -> str:
    """What the table of manifests is, or has, that sqlanon did not make; '' if nothing."""
    unlike = _unlike(server, number, ps.MANIFEST_TYPES)
    strange, plain = _indexes(server, MANIFEST, number)
    return ", ".join([unlike] * bool(unlike) + strange + [f"has index {one!r}" for one in plain if one != _KEY])


def refuse_to_read_manifests(server: PostgresEngine, schema: str, number: int | None) -> None:
    """An error if PostgreSQL would evaluate anything of others where the table of manifests is read.

    The table is locked before, and so stays as it is.
    """
    types = {
        name: (type_, "pg_catalog.default" if type_ == "text" else "") for name, type_ in ps.MANIFEST_TYPES.items()
    }
    columns = {name: (type_, collation) for name, type_, collation in server.rows(ps.shape(), [number])}
    found = server.rows(ps.relation(), [number])
    wrong = [] if found and found[0][0] == "r" else ["it is not a table"]
    wrong += [f"it has {what}" for (what,) in server.rows(ps.evaluated(), [number])]
    wrong += [f"it has no column {name!r} of its type" for name, own in types.items() if columns.get(name) != own]
    if wrong:
        raise BrokenReleaseError(f"{schema}.{MANIFEST} is not as sqlanon made it, and is not read: {', '.join(wrong)}")


@dataclass(frozen=True)
class _InCatalog:
    server: PostgresEngine
    place: ServerLocation
    manifest: Manifest
    relations: Relations

    def checks(self) -> Iterator[Check]:
        yield self._view()
        yield self._table()
        yield self._versions()
        yield self._one_manifest()
        yield self._comments()
        yield self._rights()
        yield self._schema()

    @cached_property
    def own(self) -> str:
        """The table of its version."""
        name, version = self.place.name, self.manifest.version
        return name if version is None else version_name(name, version)

    @cached_property
    def numbers(self) -> Mapping[str, int | None]:
        view = self.relations.view_number
        beside = self.server.rows(ps.beside_relation(), [view, self.own])
        return {
            self.place.name: view,
            self.own: beside[0][0] if beside else None,
            MANIFEST: self.relations.manifests_number,
        }

    @cached_property
    def schema_number(self) -> int | None:
        return schema_of(self.server, self.relations.manifests_number)

    def _view(self) -> Check:
        """Whether the view shows the columns of the table of its version, and does nothing more."""
        name, view = self.place.name, self.numbers[self.place.name]
        reads = [number for (number,) in self.server.rows(ps.behind(), [view])]
        query = self.server.rows(ps.definition(), [view])[0][0] if reads else ""
        columns = [column.name for column in self.manifest.columns]
        if reads != [self.numbers[self.own]] or not ps.is_column_list(query, columns, self.own):
            return Check("view", False, f"{name!r} is not a view of {shown_columns(self.own)}")
        strange = _attached(self.server, view)
        wrong = [f"{name!r} has {strange}"] * bool(strange)
        wrong += [f"{name!r} uses {what}" for (what,) in self.server.rows(ps.more_behind(), [view])]
        return check_faults("view", wrong, shown_columns(self.own))

    def _table(self) -> Check:
        """Whether the table behind the view is a plain one, with the released columns and nothing else."""
        types = {name: pg.type_there(type_) for name, type_ in types_in(self.manifest.columns).items()}
        # Another type, and its casts, may be of whoever made the release.
        if strange_types := [name for name, type_ in types.items() if type_ is None]:
            names = ", ".join(map(repr, strange_types))
            return Check("table", False, f"the manifest names types that no release in PostgreSQL has, of {names}")
        known = {name: type_ for name, type_ in types.items() if type_ is not None}
        wrong = _unlike(self.server, self.numbers[self.own], known, "C")
        strange, plain = _indexes(self.server, self.own, self.numbers[self.own])
        fine = f"{self.own!r} is a plain table with the released columns"
        fine += f", with plain indexes that sqlanon did not create: {', '.join(plain)}" if plain else ""
        return check_faults("table", [f"{self.own!r} {wrong}"] * bool(wrong) + strange, fine)

    def _versions(self) -> Check:
        """Whether other relations have the name of the release or of a version, in small letters or capitals: a reader
        may take one for it."""
        name = self.place.name
        found = [one for one, _ in self.server.rows(ps.relations_of(), [self.schema_number])]
        others = sorted(
            one
            for one in found
            if one not in (name, self.own)
            and (one.lower() == name.lower() or version_of(one.lower(), name.lower()) is not None)
        )
        return check_faults(
            "versions", [f"not of the release: {', '.join(others)}"] * bool(others), "no other relations"
        )

    def _one_manifest(self) -> Check:
        """Whether the release has one row in the table of manifests, of its version, and that table is a plain one."""
        name, version, wrong = self.place.name, self.manifest.version, []
        if unlike := manifest_table_flaws(self.server, self.relations.manifests_number):
            wrong.append(f"{MANIFEST!r} {unlike}")
        known = self.server.rows(ps.manifest_of(manifests=self.relations.manifests.copy()), [name])
        versions = [one for one, _ in known]
        if len(versions) != 1:
            wrong.append(f"there are {len(versions)} manifests of {name!r}")
        elif versions != [version]:
            wrong.append(f"it is of version {version}, but stored as version {versions[0]}")
        if self.manifest.table_name != name:
            wrong.append("it belongs to a release with another name")
        return check_faults("one manifest", wrong, "one, of this version")

    def _comments(self) -> Check:
        """Whether the comments are what sqlanon says of the release, and no other relation of it has any."""
        name, rows = self.place.name, self.server.rows
        found = {one: dict(rows(ps.comments(), [number])) for one, number in self.numbers.items()}
        strange = [one for one in (self.own, MANIFEST) if found[one]]
        notes = [what for number in self.numbers.values() for (what,) in rows(ps.notes(), [number])]
        expected = _told(comment_statements("VIEW", self.place.table, self.manifest, f"{self.place.schema}.{MANIFEST}"))
        there = found[name]
        changed = sorted(one for one in expected.keys() | there.keys() if expected.get(one) != there.get(one))
        wrong = [f"those of {one!r} were not written by sqlanon" for one in strange]
        wrong += [f"{one} was not written by sqlanon: remove it" for one in notes]
        words = [
            f"that of column {one!r} was not written by sqlanon" if one else f"that of {name!r} was not"
            for one in changed
        ]
        if wrong:
            return check_faults("comments", [*wrong, *words], "unchanged")
        return check_wording("comments", words, "unchanged", self.manifest)

    def _rights(self) -> Check:
        """Whether readers get at the rows by the view alone, can change nothing, and all is of one owner."""
        owners = {one: self.server.rows(ps.relation(), [number]) for one, number in self.numbers.items()}
        named = {one: found[0][2] for one, found in owners.items() if found}
        wrong = list[str]()
        if len(set(named.values())) > 1:
            wrong.append("they are of several owners: " + ", ".join(f"{one!r} of {who}" for one, who in named.items()))
        for one, number in self.numbers.items():
            for role, privilege, _, _ in self.server.rows(ps.rights(), [number]):
                message = f"{role or 'everybody'} has {privilege} on {one!r}"
                if privilege != _READ or one == self.own:
                    wrong.append(message)
        return check_faults(
            "rights", dict.fromkeys(wrong), "only the owner can change the release; readers read the view"
        )

    def _schema(self) -> Check:
        """What is in the schema, or built upon the release, and is of no release: others may have made it in good
        faith, or to tell anything."""
        schema, rows = self.schema_number, self.server.rows
        there = rows(ps.beside(), [schema])
        known = rows(ps.releases_of(manifests=self.relations.manifests.copy()))
        pairs = {view: {(view, "v"), (version_name(view, version), "r")} for view, version in known}
        whole = {view: pair for view, pair in pairs.items() if pair <= {(one, kind) for _, one, kind in there}}
        ours = {(MANIFEST, "r")}.union(*whole.values())
        upon = [rows(ps.upon(), [number, self.numbers[self.place.name]]) for number in self.numbers.values()]
        lists = {
            "in the schema": [what for what, one, kind in there if (one, kind) not in ours],
            "built upon the release": list(dict.fromkeys(one for found in upon for (one,) in found)),
            "manifests without a release": [repr(view) for view in pairs if view not in whole],
            "comment of the schema": [repr(comment) for (comment,) in rows(ps.schema_comment(), [schema])],
        }
        if flaws := [f"{what}: {_few(found)}" for what, found in lists.items() if found]:
            return Check("schema", None, f"not created by sqlanon: {'; '.join(flaws)}")
        return Check("schema", True, f"has only releases: {_few(sorted(whole))}")


def _unlike(server: PostgresEngine, number: int | None, types: Mapping[str, str], collation: str = "default") -> str:
    """What a relation is, or has, that a plain table of these columns is not, or has not; '' if it is one."""
    found = server.rows(ps.relation(), [number]) if number is not None else []
    if not found or found[0][:2] != ("r", "p"):
        return "is not a plain table" if found else "is not there"
    collations = {"text": f"pg_catalog.{collation}"}
    expected = [(name, type_, collations.get(type_, "")) for name, type_ in types.items()]
    columns = server.rows(ps.shape(), [number])
    wrong = [f"column {name!r}" for name, type_, sorts in columns if (name, type_, sorts) not in expected]
    wrong += [
        f"no column {name!r} of type {type_}" for name, type_, sorts in expected if (name, type_, sorts) not in columns
    ]
    if not wrong and columns != expected:
        wrong = ["its columns in another order"]
    if strange := _attached(server, number):
        wrong.append(strange)
    return f"has {', '.join(wrong)}" if wrong else ""


def _attached(server: PostgresEngine, number: int | None) -> str:
    return ", ".join(what for (what,) in server.rows(ps.attached(), [number]))


def _indexes(server: PostgresEngine, relation: str, number: int | None) -> tuple[list[str], list[str]]:
    """What is wrong with indexes of a relation, and the names of the others: a name that somebody chose may say
    anything, and one that PostgreSQL chose says which columns it is over."""
    wrong, plain = list[str](), list[str]()
    for name, is_primary, columns, is_plain in server.rows(ps.indexes(), [number]):
        own = index_name(relation, "" if is_primary else columns, "pkey" if is_primary else "idx")
        if not is_plain:
            wrong.append(f"index {name!r} has expressions, options or other columns: drop it")
        elif name != own:
            wrong.append(f"index {name!r} does not have PostgreSQL's default name: drop it, or rename it to {own!r}")
        else:
            plain.append(name)
    return wrong, plain


def index_name(relation: str, columns: str, ending: str) -> str:
    """The name that PostgreSQL gives an index, which is no longer than 63 bytes.

    >>> index_name("patients_v1", "zip_age", "idx"), index_name("sqlanon_manifest", "", "pkey")
    ('patients_v1_zip_age_idx', 'sqlanon_manifest_pkey')
    """
    first, second = relation.encode(), columns.encode()
    one, two, room = len(first), len(second), _LONGEST - len(ending) - 1 - bool(second)
    while one + two > room:  # the longer one is cut
        one, two = (one - 1, two) if one > two else (one, two - 1)
    parts = [first[:one].decode(errors="ignore"), second[:two].decode(errors="ignore"), ending]
    return "_".join(part for part in parts if part)


def _told(comments: Iterable[exp.Comment]) -> dict[str, str]:
    """By column ('' for the relation itself), what statements say of it."""
    return {one.this.name if isinstance(one.this, exp.Column) else "": one.expression.name for one in comments}


def _few(names: Sequence[str]) -> str:
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f", and {more:,} more" if more > 0 else "")
