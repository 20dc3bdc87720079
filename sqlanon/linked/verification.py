"""Verification of released linked tables: counts, keys and the smallest group, recomputed from their rows alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlglot import exp

from sqlanon.engines.base import Engine
from sqlanon.linked.manifest import LinkedManifest, TableClaims
from sqlanon.linked.views import first_column
from sqlanon.places.addresses import format_location
from sqlanon.release.contents import ATTACHED
from sqlanon.requirements.macros import call_digest
from sqlanon.support.checks import Check, check_faults
from sqlanon.support.expressions import (
    anonymous,
    as_column,
    cast,
    col,
    cols,
    create_temporary_table,
    create_view,
    drop_table,
    ident,
    number,
    quote_name,
    same_values,
    select,
    select_star,
    table,
    template,
    text,
    union_all,
)


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
            "release": format_location(self.path),
            "tables": [claims.name for claims in self.manifest.tables],
            "verified": self.verified,
            "checks": [vars(check) for check in self.checks],
        }


def released_table(manifest: LinkedManifest, claims: TableClaims) -> exp.Table:
    """The rows of a released table in the engine that has the release open."""
    return table(manifest.rows_table(claims), "main", ATTACHED)


def check_rows(engine: Engine, manifest: LinkedManifest) -> Iterator[Check]:
    """Check the rows of an open release against its manifest, and the requirement."""
    for claims in manifest.tables:
        rows, digest = count_rows(engine, manifest.rows_table(claims))
        faults = [] if rows == claims.released_rows else [f"{rows:,} rows, {claims.released_rows:,} claimed"]
        faults += [] if digest == claims.digest else ["the digest is not the one claimed"]
        yield check_faults(f"rows of {claims.name}", faults, f"{rows:,}, as claimed")
    yield check_faults("keys", _find_broken_keys(engine, manifest), "unique, and every reference names a row")
    smallest = smallest_group(engine, manifest)
    faults = [] if smallest == manifest.smallest_group else [f"{smallest} persons, {manifest.smallest_group} claimed"]
    yield check_faults("smallest group", faults, f"{smallest} persons, as claimed")
    known = "all child rows" if manifest.known == "all" else f"{manifest.known} child rows"
    is_met = smallest is not None and smallest >= manifest.k
    message = f"smallest group of an attacker who knows {known}: {smallest} persons (required: {manifest.k})"
    yield Check(f"{manifest.k}-anonymity", is_met, message)


def count_rows(engine: Engine, name: str) -> tuple[int, str]:
    """The rows of a table of the open release, and their digest."""
    subject = table(f"subject {name}")
    engine.execute(create_view(subject.copy(), select_star(table(name, "main", ATTACHED))))
    rows, digest = engine.rows(call_digest(quote_name(subject.name)))[0]
    return int(rows), str(digest)


def smallest_group(engine: Engine, manifest: LinkedManifest) -> int | None:
    """The fewest persons who share what an attacker may know, by the macros, from the rows of the open release.

    The macros count numbers in place of the labels of the release's views: one for each distinct row.
    """
    is_whole = manifest.known == "all"
    query = _number_whole_rows(engine, manifest) if is_whole else _number_known_rows(engine, manifest)
    known = table("sqlanon_known_rows", "main", "temp")
    engine.execute(create_temporary_table(known, query))
    try:
        macro = "relational_k" if is_whole else "km_anonymity"
        arguments = [text(known.name)] if is_whole else [text(known.name), number(int(manifest.known))]
        call = exp.Table(this=anonymous(macro, *arguments), db=ident("sqlanon"))
        smallest = engine.rows(select([col("k")], call))[0][0]
        return None if smallest is None else int(smallest)
    finally:
        for target in (known, *(_numbered_rows(position) for position in range(len(manifest.tables)))):
            engine.execute(drop_table(target.copy(), exists=True))


def _numbered_rows(position: int) -> exp.Table:
    return table(f"sqlanon_numbered_rows_{position}", "main", "temp")


def _compared_values(claims: TableClaims) -> list[exp.Alias]:
    """The quasi-identifiers of a released table as ``value_0``, ...: equal where readers see the same."""
    values = list[exp.Alias]()
    for i, column in enumerate(column for column in claims.columns if column.role == "quasi"):
        is_exact = column.type.split("(")[0] in _EXACT_TYPES
        values.append(as_column(col(column.name) if is_exact else cast(col(column.name), "VARCHAR"), f"value_{i}"))
    return values


_EXACT_TYPES = frozenset(
    ("VARCHAR", "BOOLEAN", "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "DECIMAL", "DATE", "TIMESTAMP")
)
"""The types whose equal values are written alike."""


def _number_rows(engine: Engine, target: exp.Table, rows: exp.Query, keys: Sequence[str], names: Sequence[str]) -> None:
    """Store the ``keys`` of rows with ``number``: the same for rows that are equal in the columns ``names``."""
    if not names:
        query = template("SELECT :keys, 1::BIGINT AS number FROM :rows AS rows")(keys=cols(keys), rows=rows)
    else:
        query = template("""
            WITH rows AS (:rows),
            numbers AS (
                SELECT *, row_number() OVER () AS number FROM (SELECT DISTINCT :names FROM rows AS r) AS distinct_rows
            )
            SELECT :keys, numbers.number FROM rows JOIN numbers ON :same
        """)(rows=rows, names=cols(names), keys=cols(keys, "rows"), same=same_values(names, "rows", "numbers"))
    engine.execute(create_temporary_table(target, query))


def _number_persons(engine: Engine, manifest: LinkedManifest) -> exp.Table:
    """Store the persons of a release with a number for each class: ``row_key`` and ``number``."""
    persons, target = manifest.tables[0], _numbered_rows(0)
    values = _compared_values(persons)
    rows = select([as_column(first_column(persons.key), "row_key"), *values], released_table(manifest, persons))
    _number_rows(engine, target, rows, ["row_key"], [value.alias for value in values])
    return target


def _number_known_rows(engine: Engine, manifest: LinkedManifest) -> exp.Query:
    """`known_rows_query` with numbers."""
    persons = _number_persons(engine, manifest)
    parts: list[exp.Query] = [_PERSONS(persons=persons)]
    positions = {claims.name: position for position, claims in enumerate(manifest.tables)}
    for position, claims in enumerate(manifest.tables[1:], 1):
        above, values = positions[claims.parent or ""], _compared_values(claims)
        names, keys = [value.alias for value in values], ["row_key", "person", "class"]
        own = select([as_column(first_column(claims.key), "row_key"),
                      as_column(first_column(claims.references), "parent_key"), *values],
                     released_table(manifest, claims))  # fmt: skip
        if above:
            rows = template("""
                SELECT own.*, above.person, above.class, above.number AS above
                FROM :own AS own
                JOIN :parents AS above ON own.parent_key = above.row_key
            """)(own=own, parents=_numbered_rows(above))
            names.append("above")
        else:
            rows = template("""
                SELECT own.*, persons.row_key AS person, persons.number AS class
                FROM :own AS own
                JOIN :persons AS persons ON own.parent_key = persons.row_key
            """)(own=own, persons=persons)
        _number_rows(engine, _numbered_rows(position), rows, keys, names)
        known = template("SELECT person, class, number * :tables + :position AS known_row FROM :rows AS rows")
        parts.append(known(tables=len(manifest.tables), position=position, rows=_numbered_rows(position)))
    return union_all(*parts)


def _number_whole_rows(engine: Engine, manifest: LinkedManifest) -> exp.Query:
    """`whole_rows_query` with numbers."""
    persons = _number_persons(engine, manifest)
    parts: list[exp.Query] = [_PERSONS(persons=persons)]
    for position, claims in reversed(list(enumerate(manifest.tables))[1:]):
        values = _compared_values(claims)
        own = select([as_column(first_column(claims.key), "row_key"),
                      as_column(first_column(claims.references), "parent_key"), *values],
                     released_table(manifest, claims))  # fmt: skip
        names = [value.alias for value in values]
        for child, child_claims in enumerate(manifest.tables):
            if child_claims.parent == claims.name:
                own = template("""
                    SELECT own.*, nested.numbers AS :name
                    FROM :own AS own
                    LEFT JOIN (
                        SELECT parent_key, list_sort(list(number)) AS numbers FROM :children AS c GROUP BY parent_key
                    ) AS nested ON own.row_key = nested.parent_key
                """)(own=own, children=_numbered_rows(child), name=ident(f"rows_{child}"))
                names.append(f"rows_{child}")
        _number_rows(engine, _numbered_rows(position), own, ["parent_key"], names)
        if claims.parent == manifest.tables[0].name:
            whole = template("""
                SELECT
                    persons.row_key AS person,
                    persons.number AS class,
                    rows.number * :tables + :position AS known_row
                FROM :rows AS rows
                JOIN :persons AS persons ON rows.parent_key = persons.row_key
            """)
            rows = _numbered_rows(position)
            parts.append(whole(tables=len(manifest.tables), position=position, rows=rows, persons=persons))
    return union_all(*parts)


_PERSONS = template("""
    SELECT row_key AS person, number AS class, NULL::BIGINT AS known_row FROM :persons AS persons
""")


def _find_broken_keys(engine: Engine, manifest: LinkedManifest) -> Iterator[str]:
    for claims in manifest.tables:
        rows = released_table(manifest, claims)
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
                parents=released_table(manifest, parent),
                same=col(claims.references[0], "r").eq(col(parent.key[0], "p")),
            )
            if missing := engine.rows(orphans)[0][0]:
                yield f"{missing:,} rows of {claims.name!r} name no row of {parent.name!r}"
