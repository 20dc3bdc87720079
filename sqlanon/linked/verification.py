"""Verification of released linked tables: counts, keys and the smallest group, recomputed from their rows alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlglot import exp

from sqlanon.engines.base import Engine
from sqlanon.linked.manifest import LinkedManifest, TableClaims
from sqlanon.linked.views import known_rows_query, whole_rows_query
from sqlanon.places.addresses import format_location
from sqlanon.release.contents import ATTACHED
from sqlanon.requirements.macros import call_digest
from sqlanon.support.checks import Check, check_faults
from sqlanon.support.expressions import (
    anonymous,
    col,
    create_temporary_table,
    create_view,
    drop_table,
    ident,
    number,
    quote_name,
    select,
    select_star,
    table,
    template,
    text,
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
    """The fewest persons who share what an attacker may know, by the macros, from the rows of the open release."""
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
