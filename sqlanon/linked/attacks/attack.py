"""The attack on a release of linked tables: `known_rows`, with 0, 1, 2 or all child rows of each person known."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sqlglot import exp

from sqlanon.attacks.findings import Attack, Attacks, Finding
from sqlanon.engines.base import Engine
from sqlanon.engines.limits import NO_LIMITS, Limits
from sqlanon.errors import BrokenReleaseError, PolicyError, Problem
from sqlanon.linked.attacks.matching import (
    COMBINATIONS,
    MAX_ATTACKED_PERSONS,
    Matches,
    MatchingRun,
    VisibleTable,
    list_knowledge,
    match_keys,
    source_tables,
)
from sqlanon.linked.publish.targets.base import LinkedLocation
from sqlanon.linked.records import encode_bound_tables
from sqlanon.linked.release.manifest import LinkedManifest
from sqlanon.linked.release.released_numbers import released_table
from sqlanon.linked.release.views import KNOWN_ROWS, WHOLE_ROWS, first_column, known_rows_query, whole_rows_query
from sqlanon.linked.tables import bind_tables
from sqlanon.places.addresses import format_location
from sqlanon.policy.linked import LinkedPolicy
from sqlanon.policy.linked_sections import Known
from sqlanon.sources.workspace import Workspace
from sqlanon.support.coding import Levels
from sqlanon.support.expressions import (
    as_column,
    cast,
    col,
    cols,
    create_view,
    ident,
    read_parquet,
    select,
    select_star,
    table,
    template,
    text,
    union_all,
)

KNOWN_ROWS_VIEW = "known_rows"
"""The name of the attack."""


@dataclass(frozen=True)
class LinkedAttack:
    """The result of the attack.

    Attributes
    ----------
    path, manifest:
        The release.
    after:
        What the attacker finds in the release, by the number of known rows.
    before:
        What the attacker finds in the source; None without a policy.
    persons:
        The persons of the source, who are attacked; those of the release without a policy, and where the labels of the
        source are unknown. Of many, a sample is attacked.
    """

    path: Path
    manifest: LinkedManifest
    after: Sequence[Matches]
    before: Sequence[Matches] | None
    persons: int

    @property
    def is_sample(self) -> bool:
        """Whether a sample of the persons was attacked."""
        return self.after[0].persons < self.persons

    @property
    def attacks(self) -> Attacks:
        """The result in the form of the attacks on one table, with a finding for each number of known rows."""
        before: Sequence[Matches | None] = self.before or [None] * len(self.after)
        return Attacks((Attack(KNOWN_ROWS_VIEW, tuple(map(self._finding, self.after, before))),))

    def to_dict(self) -> dict[str, object]:
        """The fields as JSON values."""
        return self.attacks.to_dict()

    def _finding(self, after: Matches, before: Matches | None) -> Finding:
        figures = {**after.to_dict(), **({} if before is None else {"before": before.to_dict()})}
        sql = victim_sql(self.path, self.manifest, after.known)
        return Finding((format_location(self.path),), after.unique_persons, after.persons, sql, figures)


def attack_linked(
    location: LinkedLocation,
    policy: LinkedPolicy | None = None,
    limits: Limits = NO_LIMITS,
    most_attacked: int = MAX_ATTACKED_PERSONS,
) -> LinkedAttack:
    """Attack a release of linked tables, by an attacker who knows rows of each person of its source or of the release.

    Parameters
    ----------
    location:
        The release.
    policy:
        The policy of the release. With it, the persons of the source are attacked, in the release and in the source.
    most_attacked:
        Maximum number of persons: if there are more, a sample is attacked.

    Raises
    ------
    ReleaseError
        It is not a release of linked tables, or was changed.
    PolicyError
        The release was made with another policy.
    SourceError, HierarchyError
        The source cannot be read, or does not fit the policy.
    """
    with location.open(limits) as release:
        if faults := [check.message for check in release.checks if check.passed is False]:
            raise BrokenReleaseError(f"{format_location(location.path)} was a release of linked tables: {faults[0]}")
        manifest = release.manifest
        if policy is not None:
            _refuse_other_policy(location.path, manifest, policy)
        knowledge = list_knowledge(manifest.known)
        release_run = MatchingRun(release.engine, table, most_attacked)
        released = release_run.describe("release", _released_tables(release.engine, manifest))
        if policy is None:
            after = release_run.count_matches(released, released, knowledge, manifest.k)
            return LinkedAttack(location.path, manifest, after, None, release_run.count_persons(released))
        workspace = Workspace(None, limits)
        try:
            tables = bind_tables(workspace, policy)
            run = MatchingRun(tables[0].run.engine, tables[0].run.work, most_attacked)
            source = run.describe("source", source_tables(tables))
            before = run.count_matches(source, source, knowledge, manifest.k)
            searched = run.copy("release", released, release.engine)
            attacked = searched
            if (levels := _released_levels(manifest, policy)) is not None:
                encode_bound_tables(policy, tables)
                attacked = run.describe("labelled", source_tables(tables, levels))
            after = run.count_matches(attacked, searched, knowledge, manifest.k)
            return LinkedAttack(location.path, manifest, after, before, run.count_persons(attacked))
        finally:
            workspace.close()


def _refuse_other_policy(path: Path, manifest: LinkedManifest, policy: LinkedPolicy) -> None:
    """Refuse a policy with other tables, quasi-identifiers or hierarchies than the release."""

    def hierarchies(tables: Mapping[str, Mapping[str, Mapping[str, object]]]) -> object:
        return {
            name: {
                attribute: json.dumps(spec.get("hierarchy"), sort_keys=True)
                for attribute, spec in attributes.items()
                if spec.get("role") == "quasi"
            }
            for name, attributes in tables.items()
        }

    if hierarchies(manifest.policy["tables"]) != hierarchies(policy.redact()["tables"]):
        release = format_location(path)
        message = f"has other tables, quasi-identifiers or hierarchies than {release}: give the policy of the release"
        raise PolicyError([Problem("--policy", message)])


def _released_tables(engine: Engine, manifest: LinkedManifest) -> list[VisibleTable]:
    names = [claims.name for claims in manifest.tables]
    tables = []
    for claims in manifest.tables:
        keys = [
            as_column(first_column(claims.key), "row_key"),
            as_column(first_column(claims.references), "parent_key"),
        ]
        values = [as_column(col(name), f"value_{i}") for i, name in enumerate(claims.quasi_identifiers)]
        rows = select([*keys, *values], released_table(manifest, claims))
        parent = None if claims.parent is None else names.index(claims.parent)
        tables.append(VisibleTable(claims.name, parent, engine, rows))
    return tables


def _released_levels(manifest: LinkedManifest, policy: LinkedPolicy) -> Levels | None:
    """The level of each quasi-identifier in the release. None if a source has no labels of the release: a
    quasi-identifier has several levels, or its dates are moved by random numbers of days."""
    single = tuple(level for level in manifest.levels.values() if level is not None)
    return None if len(single) < len(manifest.levels) or policy.shift is not None else single


def victim_sql(path: Path, manifest: LinkedManifest, known: Known) -> str:
    """Statements for any DuckDB client: the released persons whom the known rows single out; none for a server."""
    if not path.exists():
        return ""
    query = _singled_out_by_signature() if known == "all" else _singled_out_by_rows(int(known))
    return "\n".join([*_open_statements(path, manifest), f"{query.sql('duckdb', pretty=True)};"])


def _open_statements(path: Path, manifest: LinkedManifest) -> list[str]:
    """Statements after which a release in a file or folder is the database ``release``."""
    database = ident("release").sql("duckdb")
    if not path.is_dir():
        return [f"ATTACH {text(str(path)).sql('duckdb')} AS {database} (READ_ONLY);"]
    statements = [f"ATTACH ':memory:' AS {database};"]
    for claims in manifest.tables:
        rows = select_star(read_parquet([str(path / f"{claims.name}.parquet")]))
        statements.append(f"{create_view(table(manifest.rows_table(claims), 'main', 'release'), rows).sql('duckdb')};")
    for name, query in ((KNOWN_ROWS, known_rows_query), (WHOLE_ROWS, whole_rows_query)):
        view = create_view(table(name, "main", "release"), query(manifest, "release"))
        statements.append(f"{view.sql('duckdb')};")
    return statements


def _singled_out_by_signature() -> exp.Select:
    return template("""
        WITH records AS (
            SELECT person, class, list_sort(list(known_row) FILTER (WHERE NOT known_row IS NULL)) AS whole_rows
            FROM :rows AS rows
            GROUP BY person, class
        )
        SELECT class, whole_rows, min(person) AS person
        FROM records
        GROUP BY class, whole_rows
        HAVING count(*) = 1
        ORDER BY person
    """)(rows=table(WHOLE_ROWS, "main", "release"))


def _singled_out_by_rows(known: int) -> exp.Query:
    rows = table(KNOWN_ROWS, "main", "release")
    persons_of_classes = template("""
        SELECT :columns, min(person) AS person FROM :rows AS rows GROUP BY class HAVING count(DISTINCT person) = 1
    """)
    no_rows: list[exp.Expr] = [as_column(cast(exp.null(), "VARCHAR"), f"row_{i}") for i in range(1, known + 1)]
    queries: list[exp.Query] = [persons_of_classes(columns=[col("class"), *no_rows], rows=rows)]
    for size in range(1, known + 1):
        keys = match_keys(size)
        columns = [as_column(col("class_id"), "class"), *cols(f"row_{i}" for i in range(1, size + 1)), *no_rows[size:]]
        single = template("""
            SELECT :columns, min(person) AS person FROM (:combinations) AS c GROUP BY :keys HAVING count(*) = 1
        """)
        combinations = COMBINATIONS[size](occurrences=table("occurrences"))
        queries.append(single(columns=columns, combinations=combinations, keys=cols(keys)))
    if not known:
        return queries[0].order_by(col("person"))
    query = template("""
        WITH occurrences AS (
            SELECT
                person,
                class AS class_id,
                known_row,
                row_number() OVER (PARTITION BY person, known_row) AS copy
            FROM :rows AS rows
            WHERE NOT known_row IS NULL
        )
        SELECT * FROM (:queries) AS singled_out ORDER BY person
    """)
    return query(rows=rows, queries=union_all(*queries))
