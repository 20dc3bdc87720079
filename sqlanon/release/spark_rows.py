"""What is looked at of a release in Spark: its rows stay there, and what is counted of them is checked here.

The rows of a release are public, and there may be very many of them. The content digest is worked out there. Of what
requirements look at, each combination of values comes here once, with its count; a view repeats it as often as that,
so that the checks are those of any release.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from uuid import uuid4

import duckdb
from sqlglot import exp

from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.engines.limits import Limits
from sqlanon.engines.spark import SparkEngine
from sqlanon.errors import BrokenReleaseError
from sqlanon.policy import PrivacySection, shown_place
from sqlanon.policy.problems import read_part
from sqlanon.privacy import sensitive_attributes
from sqlanon.queries import spark_release as sr
from sqlanon.queries.names import column_definitions, create_temporary_view, star, table
from sqlanon.queries.spark import type_here
from sqlanon.queries.spark_digest import digest_there, digestible
from sqlanon.queries.travel import arrived, repeated
from sqlanon.release.manifest import Manifest
from sqlanon.release.once import Once
from sqlanon.release.reader import SUBJECT, OpenRelease
from sqlanon.release.verify import Verification, verify_rows
from sqlanon.resources import PLAIN, macros
from sqlanon.workdir import spill_directory

AT_ONCE = 2_000_000
"""So many combinations are fetched at a time."""


def types_of(server: SparkEngine, relation: exp.Table) -> dict[str, str]:
    """DuckDB's types of a relation's columns, Spark's where there is no equal."""
    return {name: type_here(type_) or type_ for name, type_ in server.columns(relation).items()}


def looked_at(manifest: Manifest) -> dict[str, str]:
    """The columns that the requirements of a release look at, with their types."""
    section, _ = read_part(PrivacySection, manifest.policy["privacy"], "privacy", {})
    wanted = {name.lower() for name in manifest.quasi}
    if section is not None:
        wanted |= {name.lower() for name in sensitive_attributes(section)}
        if any(one.joint for one in section.l_diversity):
            wanted |= {column.name.lower() for column in manifest.columns if column.role == "sensitive"}
    return {column.name: column.type for column in manifest.columns if column.name.lower() in wanted}


def verified_there(
    server: SparkEngine, relation: exp.Table, manifest: Manifest, path: Path, limits: Limits
) -> Verification:
    """Hold rows that are in Spark against what is claimed of them.

    Parameters
    ----------
    server, relation:
        Where they are.
    manifest, path:
        What is claimed, and the place of the release.
    limits:
        What the engine that checks may take.

    Raises
    ------
    BrokenReleaseError
        A value does not have its type.
    """
    types = types_of(server, relation)
    claimed = {column.name: column.type for column in manifest.columns}
    rows, digest = 0, ""
    if list(types.items()) == list(claimed.items()) and all(map(digestible, types.values())):
        rows, digest = server.rows(digest_there(relation.copy(), types))[0]
    with spill_directory() as spill, closing(DuckDBEngine.private(spill, limits)) as engine:
        engine.script(macros(PLAIN))
        if digest:
            try:
                query = fetched(server, engine, table("combinations", "main", "temp"), relation, looked_at(manifest), rows)
            except duckdb.Error as error:
                raise BrokenReleaseError(f"{shown_place(path)} cannot be read: a value is no value here") from error
            engine.execute(create_temporary_view(SUBJECT.copy(), query))
        release = OpenRelease(engine, Once(engine), manifest, is_parquet=True, manifests=(manifest,))
        return verify_rows(path, release, types, digest, fresh=False)


def fetched(
    server: SparkEngine,
    engine: DuckDBEngine,
    target: exp.Table,
    relation: exp.Table,
    types: Mapping[str, str],
    rows: int,
) -> exp.Select:
    """Fetch the combinations of some columns of a release: the query that gives as many rows of them as there are.

    Parameters
    ----------
    server, relation, rows:
        Where the release is, and how many rows it has.
    engine, target:
        The temporary table that is made of them.
    types:
        The columns, with DuckDB's types.
    """
    count = "rows"
    while count in {name.lower() for name in types}:
        count += "_"
    arriving = {**types, count: "BIGINT"}
    made = column_definitions(target.copy(), arriving.items())
    made.set("properties", exp.Properties(expressions=[exp.TemporaryProperty()]))
    engine.execute(made)
    for part in _parts(server, sr.combinations(relation, types, count), list(arriving), rows):
        with server.stream(part) as reader, engine.registered(reader) as here:
            engine.execute(exp.Insert(this=target.copy(), expression=arrived(here, arriving)))
    return repeated(target, list(types) or [count], count)


def _parts(server: SparkEngine, query: exp.Select, columns: list[str], rows: int) -> Iterator[exp.Select]:
    """A query, or several that give its rows together: each few enough to be fetched at once."""
    if rows <= AT_ONCE:
        yield query
        return
    name = f"sqlanon_combinations_{uuid4().hex[:12]}"
    parts = -(-server.keep(name, query) // AT_ONCE)
    try:
        for number in range(parts):
            yield star(table(name)).where(sr.in_part(columns, number, parts), copy=False)
    finally:
        server.forget(name)
