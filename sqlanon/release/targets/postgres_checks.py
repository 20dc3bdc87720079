"""What PostgreSQL's catalog tells of a release: whether view, table and manifest are as sqlanon made them.

The right rows may come from the wrong place, and a column, a rule or a right beside them changes what readers get. All
of it is looked up by the numbers of the relations, in one transaction with the rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from sqlglot import exp

from sqlanon.engines.dialects import postgres as pg
from sqlanon.engines.postgres import PostgresEngine
from sqlanon.expressions import qualified, table
from sqlanon.policy.addresses import MANIFEST
from sqlanon.release.check import Check
from sqlanon.release.manifest import Manifest, versioned
from sqlanon.release.metadata import comments_on
from sqlanon.release.targets import postgres_catalog as pc
from sqlanon.release.targets import postgres_statements as pr
from sqlanon.release.targets.on_server import version_of
from sqlanon.resources import __version__

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


def server_checks(server: PostgresEngine, schema: str, name: str, manifest: Manifest) -> list[Check]:
    """All checks of a release that need the catalog of the server."""
    own = name if manifest.version is None else versioned(name, manifest.version)
    numbers = {one: number_of(server, schema, one) for one in (name, own, MANIFEST)}
    columns = [column.name for column in manifest.columns]
    types = {column.name: pg.type_there(column.type) or column.type for column in manifest.columns}
    return [
        _view(server, name, own, numbers, columns),
        _table(server, own, numbers[own], types),
        _versions(server, schema, name, own),
        _manifest(server, schema, name, numbers[MANIFEST], manifest),
        _comments(server, schema, name, own, numbers, manifest),
        _rights(server, name, own, numbers, manifest),
        _schema(server, schema, name, numbers),
    ]


def _view(
    server: PostgresEngine, name: str, own: str, numbers: Mapping[str, int | None], columns: Sequence[str]
) -> Check:
    """Whether the view shows the columns of the table of its version, and does nothing more."""
    view, shown = numbers[name], f"the columns of the table {own!r}, and nothing more"
    reads = [number for (number,) in server.rows(pc.behind(), [view])]
    query = server.rows(pc.definition(), [view])[0][0] if reads else ""
    if reads != [numbers[own]] or not pr.is_column_list(query, columns, own):
        return Check("view", False, f"{name!r} is not the view of {shown}")
    strange = _attached(server, view)
    return Check("view", not strange, f"{name!r} has {strange}" if strange else shown)


def _table(server: PostgresEngine, own: str, number: int | None, types: Mapping[str, str]) -> Check:
    """Whether the table behind the view is a plain one, with the released columns and nothing else."""
    wrong = _unlike(server, number, types, "C")
    strange, plain = _indexes(server, own, number)
    faults = [f"{own!r} {wrong}"] * bool(wrong) + strange
    message = f"{own!r} is a plain table with the released columns"
    message += f", and has plain indexes that are not sqlanon's: {', '.join(plain)}" if plain else ""
    return Check("table", not faults, "; ".join(faults) or message)


def manifest_table_flaws(server: PostgresEngine, schema: str) -> str:
    """What the table of manifests is, or has, that sqlanon did not make; '' if nothing."""
    return _manifest_table(server, number_of(server, schema, MANIFEST))


def _manifest_table(server: PostgresEngine, number: int | None) -> str:
    """What the table of manifests has beside its columns and the index of its key; '' if nothing."""
    unlike = _unlike(server, number, pr.MANIFEST_TYPES)
    strange, plain = _indexes(server, MANIFEST, number)
    return ", ".join([unlike] * bool(unlike) + strange + [f"has index {one!r}" for one in plain if one != _KEY])


def _unlike(server: PostgresEngine, number: int | None, types: Mapping[str, str], collation: str = "default") -> str:
    """What a relation is, or has, that a plain table of these columns is not, or has not; '' if it is one."""
    found = server.rows(pc.relation(), [number]) if number is not None else []
    if not found or found[0][:2] != ("r", "p"):
        return "is no plain table" if found else "is not there"
    collations = {"text": f"pg_catalog.{collation}"}
    expected = [(name, type_, collations.get(type_, "")) for name, type_ in types.items()]
    columns = server.rows(pc.shape(), [number])
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
    return ", ".join(what for (what,) in server.rows(pc.attached(), [number]))


def _indexes(server: PostgresEngine, relation: str, number: int | None) -> tuple[list[str], list[str]]:
    """What is wrong with indexes of a relation, and the names of the others: a name that somebody chose may say
    anything, and one that PostgreSQL chose says which columns it is over."""
    wrong, plain = list[str](), list[str]()
    for name, is_primary, columns, is_plain in server.rows(pc.indexes(), [number]):
        own = index_name(relation, "" if is_primary else columns, "pkey" if is_primary else "idx")
        if not is_plain:
            wrong.append(f"index {name!r} is not over released columns alone, without options: drop it")
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


def _versions(server: PostgresEngine, schema: str, name: str, own: str) -> Check:
    """Whether other relations have the name of the release or of a version, in small letters or capitals: a reader may
    take one for it."""
    names = [found for found, _ in server.rows(pc.relations_of(), [schema]) if found not in (name, own)]
    others = sorted(
        one for one in names if one.lower() == name.lower() or version_of(one.lower(), name.lower()) is not None
    )
    return Check("versions", not others, f"not of the release: {', '.join(others)}" if others else "no other relations")


def _manifest(server: PostgresEngine, schema: str, name: str, number: int | None, manifest: Manifest) -> Check:
    """Whether the release has one row in the table of manifests, of its version, and that table is a plain one."""
    wrong = []
    if unlike := _manifest_table(server, number):
        wrong.append(f"{MANIFEST!r} {unlike}")
    versions = [version for version, _ in server.rows(pr.manifest_of(schema), [name])]
    if len(versions) != 1:
        wrong.append(f"there are {len(versions)} manifests of {name!r}")
    elif versions != [manifest.version]:
        wrong.append(f"it is of version {manifest.version}, and stands there as version {versions[0]}")
    if manifest.table_name != name:
        wrong.append("it is of a release of another name")
    return Check("one manifest", not wrong, "; ".join(wrong) if wrong else "one, of this version")


def _comments(
    server: PostgresEngine,
    schema: str,
    name: str,
    own: str,
    numbers: Mapping[str, int | None],
    manifest: Manifest,
) -> Check:
    """Whether the comments are what sqlanon says of the release, and no other relation of it has any."""
    found = {one: dict(server.rows(pc.comments(), [number])) for one, number in numbers.items()}
    strange = [one for one in (own, MANIFEST) if found[one]]
    notes = [what for number in numbers.values() for (what,) in server.rows(pc.notes(), [number])]
    if not strange and not notes and manifest.sqlanon_version != __version__:
        message = f"written by sqlanon {manifest.sqlanon_version}, not by this one"
        return Check("comments", None, message)
    expected = _told(comments_on("VIEW", table(name, schema), manifest))
    changed = sorted(one for one in expected.keys() | found[name].keys() if expected.get(one) != found[name].get(one))
    wrong = [f"those of {one!r} are not sqlanon's" for one in strange]
    wrong += [f"{one} is not sqlanon's: remove it" for one in notes]
    wrong += [f"that of column {one!r} is not sqlanon's" if one else f"that of {name!r} is not" for one in changed]
    return Check("comments", not wrong, "; ".join(wrong) if wrong else "as sqlanon made them")


def _told(comments: Iterable[exp.Comment]) -> dict[str, str]:
    """By column ('' for the relation itself), what statements say of it."""
    return {one.this.name if isinstance(one.this, exp.Column) else "": one.expression.name for one in comments}


def _rights(
    server: PostgresEngine, name: str, own: str, numbers: Mapping[str, int | None], manifest: Manifest
) -> Check:
    """Whether readers get at the rows by the view alone, can change nothing, and all is of one owner."""
    owners = {one: server.rows(pc.relation(), [number]) for one, number in numbers.items()}
    named = {one: found[0][2] for one, found in owners.items() if found}
    wrong, older = list[str](), list[str]()
    if len(set(named.values())) > 1:
        wrong.append("they are of several owners: " + ", ".join(f"{one!r} of {who}" for one, who in named.items()))
    for one, number in numbers.items():
        for role, privilege, _, _ in server.rows(pc.rights(), [number]):
            message = f"{role or 'everybody'} has {privilege} on {one!r}"
            if privilege != _READ:
                wrong.append(message)
            elif one == own:
                (wrong if manifest.sqlanon_version == __version__ else older).append(message)
    if wrong:
        return Check("rights", False, "; ".join(dict.fromkeys([*wrong, *older])))
    if older:
        return Check("rights", None, f"an older sqlanon left it so: {'; '.join(dict.fromkeys(older))}; REVOKE it")
    return Check("rights", True, "the owner changes, and readers read the view")


def _schema(server: PostgresEngine, schema: str, name: str, numbers: Mapping[str, int | None]) -> Check:
    """What is in the schema, or built upon the release, and is of no release: others may have made it in good faith, or
    to tell anything."""
    there = server.rows(pc.beside(), [schema])
    releases = [(one, versioned(one, version)) for one, version in server.rows(pr.releases_of(schema))]
    pairs = {view: {(view, "v"), (behind, "r")} for view, behind in releases}
    whole = {view: pair for view, pair in pairs.items() if pair <= {(one, kind) for _, one, kind in there}}
    known = {(MANIFEST, "r")}.union(*whole.values())
    others = [what for what, one, kind in there if (one, kind) not in known]
    missing = [repr(view) for view in pairs if view not in whole]
    upon = [one for number in numbers.values() for (one,) in server.rows(pc.upon(), [number, numbers[name]])]
    comments = [repr(comment) for (comment,) in server.rows(pc.schema_comment(), [schema])]
    lists = {
        "in the schema": others,
        "built upon the release": list(dict.fromkeys(upon)),
        "manifests without a release": missing,
        "comment of the schema": comments,
    }
    flaws = [f"{what}: {_few(found)}" for what, found in lists.items() if found]
    if flaws:
        return Check("schema", None, f"not sqlanon's: {'; '.join(flaws)}")
    return Check("schema", True, f"has releases alone: {_few(sorted(whole))}")


def _few(names: Sequence[str]) -> str:
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f", and {more:,} more" if more > 0 else "")
