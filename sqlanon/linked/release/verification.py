"""Verification of released linked tables: counts, keys and the smallest group, recomputed from their rows alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from sqlglot import exp

from sqlanon.engines.base import Engine
from sqlanon.linked.check.group_conditions import number_values, violating_persons
from sqlanon.linked.check.occurrences import combination_keys, combine_occurrences, number_occurrences
from sqlanon.linked.release.manifest import LinkedManifest, TableClaims
from sqlanon.linked.release.released_numbers import number_rows, released_table, sensitive_values
from sqlanon.linked.release.row_texts import describe_whole_rows
from sqlanon.linked.release.sentences import describe_known
from sqlanon.linked.release.views import text_tables
from sqlanon.places.addresses import format_location
from sqlanon.release.contents import ATTACHED
from sqlanon.release.manifest import DIGEST
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
    subquery,
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


def check_rows(
    engine: Engine, manifest: LinkedManifest, counted_manifest: LinkedManifest | None = None
) -> Iterator[Check]:
    """Check the rows of an open release against its manifest, and the requirements.

    ``counted_manifest`` is a manifest whose smallest group was counted in rows with its digests: in equal rows it is
    the same.
    """
    try:
        contradictions = list(find_contradictions(manifest))
    except (ArithmeticError, AttributeError, KeyError, TypeError, ValueError):
        contradictions = ["the policy of the manifest cannot be read"]
    yield check_faults("claims", contradictions, "agree with one another")
    digests = list[str]()
    for claims in manifest.tables:
        rows, digest = count_and_digest_rows(engine, manifest.rows_table(claims))
        digests.append(digest)
        faults = [] if rows == claims.released_rows else [f"{rows:,} rows, {claims.released_rows:,} claimed"]
        faults += [] if digest == claims.digest else ["the digest is not the one claimed"]
        yield check_faults(f"rows of {claims.name}", faults, f"{rows:,}, as claimed")
    yield check_faults("keys", _find_broken_keys(engine, manifest), "unique, and every reference names a row")
    smallest: int | None = None
    if counted_manifest is not None and [claims.digest for claims in counted_manifest.tables] == digests:
        smallest = counted_manifest.smallest_group
        if not manifest.requirements:
            yield from _check_smallest_group(manifest, smallest)
            return
    with number_rows(engine, manifest) as known_rows:
        if smallest is None:
            smallest = _smallest_group(engine, manifest, known_rows)
        yield from _check_smallest_group(manifest, smallest)
        yield from _check_requirements(engine, manifest, known_rows)


def find_contradictions(manifest: LinkedManifest) -> Iterator[str]:
    """Claims of a manifest that contradict one another."""
    persons = manifest.tables[0]
    if (manifest.persons, manifest.released_persons) != (persons.rows, persons.released_rows):
        yield f"the persons are not the rows of {persons.name!r}"
    for claims in manifest.tables:
        if claims.suppressed_rows != claims.rows - claims.released_rows or claims.suppressed_rows < 0:
            yield f"the suppressed rows of {claims.name!r} are not the difference of its rows and released rows"
        attributes = manifest.policy["tables"][claims.name]
        quasi = {name for name, attribute in attributes.items() if attribute["role"] == "quasi"}
        if set(claims.generalization) != quasi:
            yield f"the levels of {claims.name!r} are not those of its quasi-identifiers"
    suppression_limit = Decimal(str(manifest.policy["search"].get("suppression_limit", 0)))
    if persons.suppressed_rows > int(suppression_limit * persons.rows):
        yield "more persons are suppressed than the policy allows"
    privacy = dict(manifest.policy["privacy"])
    if (manifest.k, manifest.known) != (privacy.pop("k"), privacy.pop("known")):
        yield "k or known is not that of the policy"
    policy_requirements = [(key, parameters) for key, entries in privacy.items() for parameters in entries]
    claimed_requirements = [(claim.key, claim.parameters) for claim in manifest.requirements]
    if sorted(map(repr, policy_requirements)) != sorted(map(repr, claimed_requirements)):
        yield "the requirements are not those of the policy"
    if manifest.digest_algorithm != DIGEST:
        yield f"the digest {manifest.digest_algorithm!r} is not known"


def _check_smallest_group(manifest: LinkedManifest, smallest: int | None) -> Iterator[Check]:
    faults = [] if smallest == manifest.smallest_group else [f"{smallest} persons, {manifest.smallest_group} claimed"]
    yield check_faults("smallest group", faults, f"{smallest} persons, as claimed")
    is_met = smallest is not None and smallest >= manifest.k
    attacker = f"an attacker who knows {describe_known(manifest.known)}"
    message = f"smallest group of {attacker}: {smallest} persons (required: {manifest.k})"
    yield Check(f"{manifest.k}-anonymity", is_met, message)


def count_and_digest_rows(engine: Engine, name: str) -> tuple[int, str]:
    """The rows of a table of the open release, and their digest."""
    subject = table(f"subject {name}")
    engine.execute(create_view(subject.copy(), select_star(table(name, "main", ATTACHED))))
    rows, digest = engine.rows(call_digest(quote_name(subject.name)))[0]
    return int(rows), str(digest)


def digest_persons(engine: Engine, manifest: LinkedManifest) -> str:
    """A digest of the persons of an open release with all their rows, which does not depend on keys and order."""
    tables = text_tables(manifest, lambda claims: released_table(manifest, claims), lambda claims: claims.value_columns)
    subject, rows = table("subject of persons"), describe_whole_rows(tables, 0, as_digests=True)
    engine.execute(create_view(subject.copy(), select([col("whole_row")], subquery(rows, "persons"))))
    return str(engine.rows(call_digest(quote_name(subject.name)))[0][1])


def smallest_group(engine: Engine, manifest: LinkedManifest) -> int | None:
    """The fewest persons who share what an attacker may know, from the rows of the open release."""
    with number_rows(engine, manifest) as known_rows:
        return _smallest_group(engine, manifest, known_rows)


def _smallest_group(engine: Engine, manifest: LinkedManifest, known_rows: exp.Table) -> int | None:
    """Compute the smallest group with the release's macros, on numbers instead of labels."""
    is_whole = manifest.known == "all"
    macro = "relational_k" if is_whole else "km_anonymity"
    arguments = [text(known_rows.name)] if is_whole else [text(known_rows.name), number(int(manifest.known))]
    call = exp.Table(this=anonymous(macro, *arguments), db=ident("sqlanon"))
    smallest = engine.rows(select([col("k")], call))[0][0]
    return None if smallest is None else int(smallest)


def _check_requirements(engine: Engine, manifest: LinkedManifest, known_rows: exp.Table) -> Iterator[Check]:
    """Check the requirements on sensitive attributes in every group."""
    if not manifest.requirements:
        return
    occurrences, values = (table(f"sqlanon_{name}", "main", "temp") for name in ("occurrences", "sensitive"))
    try:
        groups = _list_groups(engine, manifest, known_rows, occurrences)
        for claim in manifest.requirements:
            claims = manifest.table(claim.table)
            numbered = number_values(sensitive_values(manifest, claims, claim.column))
            engine.execute(create_temporary_table(values, numbered))
            queries = [violating_persons(claim.condition, members.copy(), keys, values) for members, keys in groups]
            count = engine.rows(_COUNTED_PERSONS(persons=subquery(union_all(*queries))))[0][0]
            engine.execute(drop_table(values.copy()))
            faults = [f"violated in groups of {count:,} persons"] if count else []
            yield check_faults(claim.condition.name, faults, "met by every group")
    finally:
        engine.execute(drop_table(occurrences.copy(), exists=True))


def _list_groups(
    engine: Engine, manifest: LinkedManifest, known_rows: exp.Table, occurrences: exp.Table
) -> list[tuple[exp.Query, list[str]]]:
    """The groups of persons who share what attackers know: ``person`` and the keys of the group, and these keys.

    Stores the occurrences of known rows unless attackers know all rows.
    """
    if manifest.known == "all":
        return [(_SIGNATURES(known_rows=known_rows), ["signature"])]
    most_known = int(manifest.known)
    row_numbers = engine.rows(_ROW_NUMBERS(known_rows=known_rows))[0][0]
    numbered = number_occurrences(_ROWS_WITH_CLASS(known_rows=known_rows), most_known, row_numbers)
    engine.execute(create_temporary_table(occurrences, numbered))
    groups: list[tuple[exp.Query, list[str]]] = [(_PERSONS_WITH_CLASS(known_rows=known_rows), ["class_id"])]
    for size in range(1, most_known + 1):
        groups.append((combine_occurrences(size, most_known, occurrences), combination_keys(size)))
    return groups


_COUNTED_PERSONS = template("SELECT count(DISTINCT person) FROM :persons AS persons")

_PERSONS_WITH_CLASS = template("""
    SELECT DISTINCT person, class AS class_id FROM :known_rows AS known_rows
""")

_ROWS_WITH_CLASS = template("""
    SELECT person, class AS class_id, known_row FROM :known_rows AS known_rows WHERE known_row IS NOT NULL
""")

_ROW_NUMBERS = template("SELECT coalesce(max(known_row), 0) + 1 FROM :known_rows AS known_rows")

_SIGNATURES = template("""
    SELECT person, dense_rank() OVER (ORDER BY class, known_rows) AS signature
    FROM (
        SELECT person, class, list_sort(list(known_row) FILTER (WHERE known_row IS NOT NULL)) AS known_rows
        FROM :known_rows AS known_rows
        GROUP BY person, class
    ) AS signatures
""")


# Other numbers could be those of the source, or in their order.
_OTHER_NUMBERS = template("""
    SELECT 1
    FROM (SELECT min(:key) AS least, max(:key) AS greatest, count(*) AS row_count FROM :rows AS r) AS keys
    WHERE least <> 1 OR greatest <> row_count
""")


def _find_broken_keys(engine: Engine, manifest: LinkedManifest) -> Iterator[str]:
    for claims in manifest.tables:
        rows = released_table(manifest, claims)
        if claims.key:
            faults = template("SELECT count(*) - count(DISTINCT :first) FROM :rows AS r")
            repeated = engine.rows(faults(first=col(claims.key[0]), rows=rows))[0][0]
            if repeated:
                yield f"{repeated:,} rows of {claims.name!r} have no unique key"
            elif claims.key[0] not in claims.references and engine.rows(
                _OTHER_NUMBERS(key=col(claims.key[0]), rows=rows)
            ):
                yield f"the keys of {claims.name!r} are not the numbers from 1 on"
        for names in (claims.key, claims.references):
            for name in names[1:]:
                count_differences = template("SELECT count(*) FROM :rows AS r WHERE :first IS DISTINCT FROM :other")
                if engine.rows(count_differences(rows=rows, first=col(names[0]), other=col(name)))[0][0]:
                    yield f"the key columns of {claims.name!r} differ"
        if (parent := manifest.parent_of(claims)) is not None:
            orphans = template("SELECT count(*) FROM :rows AS r ANTI JOIN :parents AS p ON :same")(
                rows=rows,
                parents=released_table(manifest, parent),
                same=col(claims.references[0], "r").eq(col(parent.key[0], "p")),
            )
            if missing := engine.rows(orphans)[0][0]:
                yield f"{missing:,} rows of {claims.name!r} name no row of {parent.name!r}"
        yield from _find_wrong_ancestors(engine, manifest, claims)


def _find_wrong_ancestors(engine: Engine, manifest: LinkedManifest, claims: TableClaims) -> Iterator[str]:
    """Find rows that name another row of a table above their parent than the parent row belongs to."""
    wrong_rows = template("SELECT count(*) FROM :rows AS r WHERE :reference IS DISTINCT FROM :key_above")
    for column, name in claims.ancestor_references.items():
        above, key_above = manifest.parent_of(claims), col(claims.references[0], "r")
        joins = list[tuple[exp.Expr, exp.Expr]]()
        while above is not None and above.name != name:
            alias = f"above_{len(joins)}"
            joins.append((released_table(manifest, above).as_(alias), key_above.eq(col(above.key[0], alias))))
            key_above, above = col(above.references[0], alias), manifest.parent_of(above)
        query = wrong_rows(rows=released_table(manifest, claims), reference=col(column, "r"), key_above=key_above)
        for rows, on in joins:
            query = query.join(rows, on=on, copy=False)
        if wrong := engine.rows(query)[0][0]:
            yield f"{wrong:,} rows of {claims.name!r} name another row of {name!r} than their row of {claims.parent!r}"
