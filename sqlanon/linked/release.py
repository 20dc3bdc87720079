"""Releases of linked tables in a DuckDB file: all tables are written and verified together, then appear at once."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import duckdb
from sqlglot import exp

from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.engines.limits import NO_LIMITS, Limits
from sqlanon.errors import AuditError, BrokenReleaseError, DiskError, ReleaseError
from sqlanon.linked.manifest import LinkedManifest, TableClaims
from sqlanon.linked.recode import LinkedRecoding
from sqlanon.linked.records import LinkedRecords
from sqlanon.places.addresses import database_path_flaw, release_file_flaw
from sqlanon.policy.checks import is_same_file
from sqlanon.policy.sections import STORAGE_VERSION
from sqlanon.publish.targets.file.target import attach_new, identify_file, swap_in
from sqlanon.release import macro_library
from sqlanon.release.contents import (
    ATTACHED,
    count_free_blocks,
    find_changed_macros,
    find_stray_bytes,
    find_unexpected_definitions,
    is_plain_table,
    list_objects,
    read_catalog_columns,
    read_comments,
    read_views,
)
from sqlanon.release.manifest import utc_now, version_name
from sqlanon.release.metadata import stable_view
from sqlanon.release.reader import lock_down
from sqlanon.requirements.macros import call_digest
from sqlanon.support.checks import Check, check_faults
from sqlanon.support.expressions import (
    anonymous,
    cast,
    col,
    cols,
    create_table_with_columns,
    create_temporary_table,
    create_view,
    drop_table,
    fragment,
    ident,
    insert_rows,
    literal_path,
    number,
    quote_name,
    select,
    select_star,
    table,
    template,
    text,
    union_all,
)
from sqlanon.support.names import STAGED
from sqlanon.support.resources import LINKED_MACROS, __version__, macro_scripts, read_sql_file
from sqlanon.support.workdir import describe_disk_error, private_directory, spill_directory

KNOWN_ROWS, WHOLE_ROWS = "known_rows", "whole_rows"
"""Views of a release: the rows of each person as an attacker may know them, alone, and with the rows that belong to
them."""


@dataclass(frozen=True)
class LinkedVerification:
    """All checks of a release of linked tables."""

    path: Path
    manifest: LinkedManifest
    checks: tuple[Check, ...]

    @property
    def verified(self) -> bool:
        """Whether no check failed."""
        return all(check.passed is not False for check in self.checks)

    @property
    def failures(self) -> tuple[str, ...]:
        """The failed checks, with their messages."""
        return tuple(f"{check.name}: {check.message}" for check in self.checks if check.passed is False)

    def to_dict(self) -> dict[str, Any]:
        """The fields as JSON values."""
        return {
            "release": str(self.path),
            "tables": [claims.name for claims in self.manifest.tables],
            "verified": self.verified,
            "checks": [vars(check) for check in self.checks],
        }


# --- The views of a release


def _quote_value(column: str) -> exp.Expr:
    return fragment("coalesce('\"' || replace(:value, '\"', '\"\"') || '\"', 'NULL')")(
        value=cast(col(column), "VARCHAR")
    )


def quoted_values(columns: Sequence[str]) -> exp.Expr:
    """The values of columns as one text, which differs wherever a value differs: ``"2026-01","A",NULL``."""
    values: exp.Expr = text("")
    for i, column in enumerate(columns):
        separator = fragment("concat(:values, ',', :value)") if i else fragment("concat(:values, :value)")
        values = separator(values=values, value=_quote_value(column))
    return values


def _row_query(manifest: LinkedManifest, claims: TableClaims, database: str | None = None) -> exp.Select:
    """The rows of a table with ``row_key``, ``person``, ``class`` and ``known_row``: the quasi-identifiers of the row
    and of its ancestors below the person."""
    values, key = quoted_values(claims.quasi_identifiers), _first_column(claims.key)
    rows = _rows_table(manifest, claims, database)
    if claims.parent is None:
        persons = template(
            "SELECT :key AS row_key, :key AS person, :values AS class, '' AS known_row FROM :rows AS rows"
        )
        return persons(key=key, values=values, rows=rows)
    parent = next(table_claims for table_claims in manifest.tables if table_claims.name == claims.parent)
    described = template(
        "SELECT :key AS row_key, :reference AS parent_key, concat(:name, '(', :values, ')') AS own FROM :rows AS rows"
    )
    own = described(key=key, reference=_first_column(claims.references), name=claims.name, values=values, rows=rows)
    return template("""
        SELECT child.row_key, parent.person, parent.class, concat(parent.known_row, child.own) AS known_row
        FROM :own AS child
        JOIN :parents AS parent ON child.parent_key = parent.row_key
    """)(own=own, parents=_row_query(manifest, parent, database))


def _first_column(columns: Sequence[str]) -> exp.Expr:
    """A column with the new key: all columns of a key have the same number."""
    return col(columns[0]) if columns else cast(exp.null(), "BIGINT")


def _rows_table(manifest: LinkedManifest, claims: TableClaims, database: str | None) -> exp.Table:
    name = manifest.rows_table(claims)
    return table(name) if database is None else table(name, "main", database)


def known_rows_query(manifest: LinkedManifest, database: str | None = None) -> exp.Query:
    """One row for each child row: ``person``, ``class`` and ``known_row``. A person without child rows has one row, in
    which ``known_row`` is NULL."""
    persons, *children = manifest.tables
    alone = template("SELECT person, class, NULL::VARCHAR AS known_row FROM :persons AS persons")
    known = template("SELECT person, class, known_row FROM :rows AS rows")
    parts = [known(rows=_row_query(manifest, claims, database)) for claims in children]
    return union_all(alone(persons=_row_query(manifest, persons, database)), *parts)


def whole_rows_query(manifest: LinkedManifest, database: str | None = None) -> exp.Query:
    """Like `known_rows_query`, for the rows that belong to persons directly, with the rows that belong to them."""
    persons, *children = manifest.tables
    alone = template("SELECT person, class, NULL::VARCHAR AS known_row FROM :persons AS persons")
    parts: list[exp.Query] = [alone(persons=_row_query(manifest, persons, database))]
    for claims in children:
        if claims.parent == persons.name:
            whole = template("""
                SELECT persons.person, persons.class, children.whole_row AS known_row
                FROM :children AS children
                JOIN :persons AS persons ON children.parent_key = persons.row_key
            """)
            parts.append(
                whole(children=_whole_rows(manifest, claims, database), persons=_row_query(manifest, persons, database))
            )
    return union_all(*parts)


def _whole_rows(manifest: LinkedManifest, claims: TableClaims, database: str | None) -> exp.Select:
    """The rows of a table with ``parent_key`` and ``whole_row``: its quasi-identifiers and its nested child rows."""
    described = template("""
        SELECT :key AS row_key, :reference AS parent_key, concat(:name, '(', :values, ')') AS whole_row
        FROM :rows AS rows
    """)(
        key=_first_column(claims.key),
        reference=_first_column(claims.references),
        name=claims.name,
        values=quoted_values(claims.quasi_identifiers),
        rows=_rows_table(manifest, claims, database),
    )
    for child in manifest.tables:
        if child.parent == claims.name:
            described = template("""
                SELECT own.row_key, own.parent_key, concat(own.whole_row, '[', nested.child_rows, ']') AS whole_row
                FROM :own AS own
                LEFT JOIN (
                    SELECT parent_key, string_agg(whole_row, ';' ORDER BY whole_row) AS child_rows
                    FROM :children AS children
                    GROUP BY parent_key
                ) AS nested ON own.row_key = nested.parent_key
            """)(own=described, children=_whole_rows(manifest, child, database))
    return described


def _views(manifest: LinkedManifest, catalog: str) -> list[exp.Create]:
    """The views of a release file: a stable one for each table, and those for the macros."""
    views = []
    for claims in manifest.tables:
        rows, columns = table(manifest.rows_table(claims)), [column.name for column in claims.columns]
        views.append(stable_view(table(claims.name, "main", catalog), rows, columns))
    views.append(create_view(table(KNOWN_ROWS, "main", catalog), known_rows_query(manifest)))
    views.append(create_view(table(WHOLE_ROWS, "main", catalog), whole_rows_query(manifest)))
    return views


def _expected_objects(manifest: LinkedManifest) -> set[str]:
    tables = {f"table main.{manifest.rows_table(claims)}" for claims in manifest.tables}
    views = {f"view main.{name}" for name in (*(claims.name for claims in manifest.tables), KNOWN_ROWS, WHOLE_ROWS)}
    return tables | views | {"table sqlanon.linked_manifest", "schema sqlanon.sqlanon"}


# --- Publishing


@dataclass(frozen=True)
class LinkedRelease:
    """A published release of linked tables."""

    path: Path
    manifest: LinkedManifest
    verification: LinkedVerification

    def to_dict(self) -> dict[str, Any]:
        """The file and its smallest group, as JSON values."""
        return {"release": str(self.path), "smallest_group": self.manifest.smallest_group}

    def verify(self) -> LinkedVerification:
        """Verify the file as it is now."""
        return verify_linked_file(self.path)


def publish_linked(recoding: LinkedRecoding, target: Path, claims: Mapping[str, Any]) -> LinkedRelease:
    """Write the released tables to a new file, verify it as a reader would, and swap it in.

    ``claims`` are the fields of the manifest that the rows do not show.

    Raises
    ------
    ReleaseError
        The file cannot be written, or another file is there.
    AuditError
        The written release does not meet the policy; the file that was there is unchanged.
    """
    records = recoding.records
    path, limits = _check_target(target, records), records.tables[0].run.engine.limits
    replaced = identify_file(path)
    version = 1 + (_read_version(path, records) if replaced is not None else 0)
    try:
        with private_directory(path.parent, f".{path.name}.sqlanon-") as directory:
            staged = directory / "release.duckdb"
            tables = _write_rows(recoding, staged, version)
            manifest = _complete(staged, tables, {**claims, "persons": records.persons, "version": version}, limits)
            verification = verify_linked_file(staged, limits)
            if failures := [*verification.failures, *_find_mismatches(verification.manifest, manifest, recoding)]:
                raise AuditError(failures)
            if identify_file(path) != replaced:
                raise ReleaseError(f"{path} was replaced by another run: publish again")
            swap_in(staged, path)
    except (OSError, DiskError) as error:
        problem = error if isinstance(error, DiskError) else describe_disk_error(error) or error.strerror or error
        state = "nothing was published" if replaced is None else "the existing release is unchanged"
        raise ReleaseError(f"{path} cannot be written: {problem}; {state}") from error
    return LinkedRelease(path, manifest, LinkedVerification(path, manifest, verification.checks))


def _find_mismatches(written: LinkedManifest, expected: LinkedManifest, recoding: LinkedRecoding) -> Iterator[str]:
    """Compare the written release with the run, to detect lost or added rows."""
    if written != expected:
        yield "the manifest in the file is not the one that was written"
    for claims, linked in zip(written.tables, recoding.records.tables, strict=True):
        kept = recoding.count_kept_rows(linked)
        if claims.released_rows != kept:
            yield f"{claims.released_rows:,} rows of {claims.name!r} are in the release (expected: {kept:,})"


def _check_target(target: Path, records: LinkedRecords) -> Path:
    path = Path(target).resolve()
    if reason := release_file_flaw(Path(target)) or database_path_flaw(path):
        raise ReleaseError(f"{target} {reason}")
    if path.suffix.lower() == ".parquet":
        raise ReleaseError(f"{target}: several tables are released in a DuckDB file, whose name ends in .duckdb")
    if not path.parent.is_dir():
        raise ReleaseError(f"folder {path.parent} does not exist: create it first")
    files = [file for linked in records.tables for file in (*linked.run.source.files, *linked.run.engine.files())]
    if records.policy.catalog is not None:
        files.append(records.policy.catalog.database)
    if any(is_same_file(path, file) for file in files):
        raise ReleaseError(f"{path} is the source, or the catalog: a release needs a file of its own")
    if names := [linked.name for linked in records.tables if linked.name.lower() in (KNOWN_ROWS, WHOLE_ROWS)]:
        raise ReleaseError(f"a release has its own view {names[0]!r}: give the table another name")
    return path


def _read_version(path: Path, records: LinkedRecords) -> int:
    """The version of the release that is replaced; refuse any file but a release of the same tables."""
    try:
        with _open_file(path) as (_, manifest, _):
            names = [claims.name for claims in manifest.tables]
    except ReleaseError as error:
        advice = "choose another name, or remove it"
        raise ReleaseError(f"{path} exists and is not a release of linked tables: {advice}") from error
    if names != [linked.name for linked in records.tables]:
        raise ReleaseError(f"{path} is a release of other tables: choose another name, or remove it")
    return manifest.version


def _write_rows(recoding: LinkedRecoding, file: Path, version: int) -> list[dict[str, Any]]:
    """Write the rows of all tables to a fresh file; return the claims about them that the file does not show."""
    records, tables = recoding.records, list[dict[str, Any]]()
    recoding.create_surrogates()
    engine = records.tables[0].run.engine
    attach_new(engine, file, STORAGE_VERSION)
    try:
        file.chmod(0o600)
        for linked in records.tables:
            columns = recoding.columns(linked)
            target = table(version_name(linked.name, version), "main", STAGED)
            engine.execute(create_table_with_columns(target.copy(), [(column.name, column.type) for column in columns]))
            linked.run.engine.execute(exp.Insert(this=target, expression=recoding.rows(linked)))
            levels = [recoding.levels[i] for i in linked.own]
            tables.append(
                {
                    "name": linked.name,
                    "parent": None if linked.parent is None else linked.parent.name,
                    "key": tuple(linked.key),
                    "references": tuple(linked.references),
                    "columns": columns,
                    "generalization": dict(zip(linked.policy.generalized_attributes, levels, strict=True)),
                    "rows": linked.rows,
                }
            )
    except duckdb.OutOfMemoryException as error:
        raise ReleaseError("the release needs more memory: raise memory_limit") from error
    except duckdb.Error as error:
        reason = str(error).splitlines()[0]
        raise ReleaseError(
            f"the release cannot be written: {reason}; if the source has changed meanwhile, run it again"
        ) from error
    finally:
        engine.detach(STAGED)
    return tables


def _complete(
    file: Path, tables: Sequence[Mapping[str, Any]], claims: Mapping[str, Any], limits: Limits
) -> LinkedManifest:
    """Count the written rows; add the manifest, the views and the macros to the file."""
    with spill_directory() as spill, closing(DuckDBEngine.open_private(spill, limits)) as engine:
        engine.script(*macro_scripts(LINKED_MACROS))
        engine.attach(file, ATTACHED, read_write=True)
        counted = []
        for fields in tables:
            name = version_name(fields["name"], claims["version"])
            rows, digest = _count_rows(engine, name)
            counted.append(
                TableClaims(**fields, released_rows=rows, suppressed_rows=fields["rows"] - rows, digest=digest)
            )
        manifest = LinkedManifest(
            published_at=utc_now(),
            sqlanon_version=__version__,
            engine=f"{engine.version}, python {platform.python_version()}",
            tables=tuple(counted),
            released_persons=counted[0].released_rows,
            smallest_group=0,
            **claims,
        )
        manifest = replace(manifest, smallest_group=_smallest_group(engine, manifest) or 0)
        with engine.using(ATTACHED):
            macro_library.install(engine, macro_scripts(LINKED_MACROS), ATTACHED, spill, STORAGE_VERSION)
            with engine.transaction():
                engine.script(read_sql_file("manifest_linked.sql"))
                row = manifest.row()
                target = table("linked_manifest", "sqlanon", ATTACHED)
                engine.execute(insert_rows(target, row), list(row.values()))
                for view in _views(manifest, ATTACHED):
                    engine.execute(view)
            engine.script(f"CHECKPOINT {ATTACHED}")  # DETACH does not report a full disk
        engine.detach(ATTACHED)
    return manifest


def _count_rows(engine: DuckDBEngine, name: str) -> tuple[int, str]:
    """The rows of a table of the attached file, and their digest."""
    subject = table(f"subject {name}")
    engine.execute(create_view(subject.copy(), select_star(table(name, "main", ATTACHED))))
    rows, digest = engine.rows(call_digest(quote_name(subject.name)))[0]
    return int(rows), str(digest)


def _smallest_group(engine: DuckDBEngine, manifest: LinkedManifest) -> int | None:
    """The fewest persons who share what an attacker may know, by the macros, from the rows of the attached file."""
    is_whole = manifest.known == "all"
    query = whole_rows_query(manifest, ATTACHED) if is_whole else known_rows_query(manifest, ATTACHED)
    known = table("sqlanon_known_rows", "main", "temp")
    engine.execute(create_temporary_table(known, query))
    try:
        macro = "relational_k" if is_whole else "km_anonymity"
        arguments = [text(known.name)] if is_whole else [text(known.name), number(int(manifest.known))]
        call = exp.Table(this=anonymous(macro, *arguments), db=ident("sqlanon"))
        smallest = engine.rows(select([col("k")], call))[0][0]
        return None if smallest is None else int(smallest)
    finally:
        engine.execute(drop_table(known.copy()))


# --- Verification


def is_linked_file(path: Path) -> bool:
    """Whether a file is a release of linked tables, by its catalog alone."""
    if not path.is_file() or path.suffix.lower() == ".parquet" or path.with_name(f"{path.name}.wal").exists():
        return False
    with spill_directory() as spill, closing(DuckDBEngine.open_private(spill)) as engine:
        try:
            engine.attach(path, ATTACHED, read_only=True)
            lock_down(engine)
            return not _MANIFEST.isdisjoint(list_objects(engine))
        except duckdb.Error:
            return False


_MANIFEST = frozenset({"table sqlanon.linked_manifest", "view sqlanon.linked_manifest"})
_WAS_LINKED = "was a release of linked tables"


@contextmanager
def _open_file(path: Path, limits: Limits = NO_LIMITS) -> Iterator[tuple[DuckDBEngine, LinkedManifest, Path]]:
    """Open a release read-only in an engine of its own, in which nothing of the file can reach beyond it;
    the engine may write to the folder."""
    if not path.is_file():
        raise ReleaseError(f"release {path} does not exist")
    if (log := path.with_name(f"{path.name}.wal")).exists():
        raise BrokenReleaseError(f"{log} is beside the release, with changes that are not in it: remove it")
    with spill_directory() as spill, closing(DuckDBEngine.open_private(spill, limits)) as engine:
        engine.script(*macro_scripts(LINKED_MACROS))
        scratch = spill / "scratch"
        scratch.mkdir()
        try:
            engine.attach(path, ATTACHED, read_only=True)
            engine.execute(fragment("SET allowed_directories = [:folder]")(folder=literal_path(str(scratch))))
            lock_down(engine)
            objects = list_objects(engine)
        except duckdb.Error as error:
            raise ReleaseError(
                f"{path} cannot be read as a release of sqlanon: {str(error).splitlines()[0]}"
            ) from error
        if _MANIFEST.isdisjoint(objects):
            raise ReleaseError(f"{path} is not a release of linked tables")
        try:
            if not is_plain_table(engine, "sqlanon", "linked_manifest"):
                raise ValueError("it is not a plain table any more")
            source = table("linked_manifest", "sqlanon", ATTACHED)
            names = list(engine.types(source))
            rows = engine.rows(select(cols(names), source.copy()))
            if len(rows) != 1:
                raise ValueError(f"it has {len(rows)} rows")
            manifest = LinkedManifest.from_row(dict(zip(names, rows[0], strict=True)))
        except (AttributeError, KeyError, TypeError, ValueError, duckdb.Error) as error:
            raise BrokenReleaseError(f"{path} {_WAS_LINKED}; its manifest is broken: {error}") from error
        yield engine, manifest, scratch


def read_linked_manifest(path: Path, limits: Limits = NO_LIMITS) -> LinkedManifest:
    """Read the manifest of a release, from a plain table."""
    with _open_file(path, limits) as (_, manifest, _):
        return manifest


def verify_linked_file(path: Path, limits: Limits = NO_LIMITS) -> LinkedVerification:
    """Verify a release of linked tables by itself: its contents first, then its rows."""
    with _open_file(path, limits) as (engine, manifest, scratch):
        contents = _check_contents(engine, path, manifest, scratch)
        if not contents.passed:
            return LinkedVerification(path, manifest, (contents,))
        try:
            return LinkedVerification(path, manifest, (contents, *_check_rows(engine, manifest)))
        except duckdb.OutOfMemoryException as error:
            raise ReleaseError(f"{path} cannot be verified: it needs more memory; raise memory_limit") from error
        except duckdb.Error as error:
            raise BrokenReleaseError(f"{path} {_WAS_LINKED}; it cannot be read: {error}") from error


def _check_contents(engine: DuckDBEngine, path: Path, manifest: LinkedManifest, scratch: Path) -> Check:
    """Whether the file has the objects of a release and no others, and no definition that could hold a value."""
    objects, expected = list_objects(engine), _expected_objects(manifest)
    faults = [f"{name} was added" for name in sorted(objects - expected)]
    faults += [f"{name} is missing" for name in sorted(expected - objects)]
    faults += [f"{name} is defined by more than columns" for name in find_unexpected_definitions(engine)]
    faults += [*find_stray_bytes(path)]
    if free := count_free_blocks(engine):
        faults.append(f"{free} unused blocks, which may hold deleted rows")
    for claims in manifest.tables:
        types = read_catalog_columns(engine, "main", manifest.rows_table(claims))
        if types != {column.name: column.type for column in claims.columns}:
            faults.append(f"the columns of {claims.name!r} are not those of the manifest")
    if read_comments(engine):
        faults.append("comments, which no release of linked tables has")
    if not faults:
        faults += [f"macro {name!r} was changed" for name in find_changed_macros(engine, scratch, LINKED_MACROS)]
        faults += _find_changed_views(engine, manifest, scratch)
    return check_faults("contents", faults, "rows, views and metadata only")


_EXPECTED = "sqlanon_expected"


def _find_changed_views(engine: DuckDBEngine, manifest: LinkedManifest, folder: Path) -> list[str]:
    """The views of the file that differ from those of a release with this manifest.

    DuckDB words a view that it reads from a file otherwise than a new one, so the expected views are in a file, too.
    """
    file = folder / "expected.duckdb"
    engine.attach(file, _EXPECTED, read_write=True, storage_version=STORAGE_VERSION)
    for claims in manifest.tables:
        columns = [(column.name, column.type) for column in claims.columns]
        engine.execute(create_table_with_columns(table(manifest.rows_table(claims), "main", _EXPECTED), columns))
    with engine.using(_EXPECTED):
        for view in _views(manifest, _EXPECTED):
            engine.execute(view)
    engine.detach(_EXPECTED)
    engine.attach(file, _EXPECTED, read_only=True)
    views, expected = read_views(engine), read_views(engine, _EXPECTED)
    engine.detach(_EXPECTED)
    return [f"view {name!r} was changed" for name in sorted(expected) if views.get(name) != expected[name]]


def _check_rows(engine: DuckDBEngine, manifest: LinkedManifest) -> Iterator[Check]:
    for claims in manifest.tables:
        rows, digest = _count_rows(engine, manifest.rows_table(claims))
        faults = [] if rows == claims.released_rows else [f"{rows:,} rows, {claims.released_rows:,} claimed"]
        faults += [] if digest == claims.digest else ["the digest is not the one claimed"]
        yield check_faults(f"rows of {claims.name}", faults, f"{rows:,}, as claimed")
    yield check_faults("keys", _find_broken_keys(engine, manifest), "unique, and every reference names a row")
    smallest = _smallest_group(engine, manifest)
    faults = [] if smallest == manifest.smallest_group else [f"{smallest} persons, {manifest.smallest_group} claimed"]
    yield check_faults("smallest group", faults, f"{smallest} persons, as claimed")
    known = "all child rows" if manifest.known == "all" else f"{manifest.known} child rows"
    is_met = smallest is not None and smallest >= manifest.k
    message = f"smallest group of an attacker who knows {known}: {smallest} persons (required: {manifest.k})"
    yield Check(f"{manifest.k}-anonymity", is_met, message)


def _find_broken_keys(engine: DuckDBEngine, manifest: LinkedManifest) -> Iterator[str]:
    for claims in manifest.tables:
        rows = table(manifest.rows_table(claims), "main", ATTACHED)
        if claims.key:
            faults = template("SELECT count(*) - count(DISTINCT :first) FROM :rows AS r")
            repeated = engine.rows(faults(first=col(claims.key[0]), rows=rows))[0][0]
            if repeated:
                yield f"{repeated:,} rows of {claims.name!r} have no key of their own"
        for names in (claims.key, claims.references):
            for name in names[1:]:
                differs = template("SELECT count(*) FROM :rows AS r WHERE :first IS DISTINCT FROM :other")
                if engine.rows(differs(rows=rows, first=col(names[0]), other=col(name)))[0][0]:
                    yield f"the key columns of {claims.name!r} differ"
        if claims.parent is not None:
            parent = next(other for other in manifest.tables if other.name == claims.parent)
            orphans = template("SELECT count(*) FROM :rows AS r ANTI JOIN :parents AS p ON :same")(
                rows=rows,
                parents=table(manifest.rows_table(parent), "main", ATTACHED),
                same=col(claims.references[0], "r").eq(col(parent.key[0], "p")),
            )
            if missing := engine.rows(orphans)[0][0]:
                yield f"{missing:,} rows of {claims.name!r} name no row of {parent.name!r}"
