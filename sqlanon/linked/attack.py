"""The attack on a release of linked tables: `known_rows`, with 0, 1, 2 or all child rows of each person known."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import duckdb
from sqlglot import exp

from sqlanon.attacks.findings import Attack, Attacks, Finding
from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.engines.limits import NO_LIMITS, Limits
from sqlanon.errors import BrokenReleaseError, PolicyError, Problem, ReleaseError
from sqlanon.linked.manifest import LinkedManifest
from sqlanon.linked.matching import MOST_ATTACKED, Matches, MatchingRun, VisibleTable, source_tables
from sqlanon.linked.records import bind_tables, encode_bound_tables
from sqlanon.linked.release import KNOWN_ROWS, WHOLE_ROWS, read_linked_manifest
from sqlanon.linked.support import COMBINATIONS, combination_keys
from sqlanon.policy.linked import Known, LinkedPolicy
from sqlanon.release.contents import is_plain_table
from sqlanon.release.reader import lock_down
from sqlanon.sources.workspace import Workspace
from sqlanon.support.coding import Levels
from sqlanon.support.expressions import as_column, cast, col, cols, ident, select, table, template, text, union_all

NAME = "known_rows"
"""The name of the attack."""

_RELEASE = "attacked_release"


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
        return Attacks((Attack(NAME, tuple(map(self._finding, self.after, before))),))

    def to_dict(self) -> dict[str, object]:
        """The fields as JSON values."""
        return self.attacks.to_dict()

    def _finding(self, after: Matches, before: Matches | None) -> Finding:
        figures = {
            "known": after.known,
            "persons": after.persons,
            "matched_persons": after.matched_persons,
            "fewest_matches": after.fewest_matches,
            "average_risk": after.average_risk,
            **({} if before is None else {"before": before.to_dict()}),
        }
        sql = victim_sql(self.path, self.manifest, after.known)
        return Finding((str(self.path),), after.unique_persons, after.persons, sql, figures)


def attack_linked(
    path: Path, policy: LinkedPolicy | None = None, limits: Limits = NO_LIMITS, most_attacked: int = MOST_ATTACKED
) -> LinkedAttack:
    """Attack a release of linked tables with what an attacker knows of each person of its source, or of the release.

    Parameters
    ----------
    path:
        A release in a DuckDB file.
    policy:
        The policy of the release, to attack the persons of the source, and to attack the source, too.
    most_attacked:
        The size of a sample of the persons, if there are more.

    Raises
    ------
    ReleaseError
        The file is not a release of linked tables.
    PolicyError
        The release was made with another policy.
    SourceError, HierarchyError
        The source cannot be read, or does not fit the policy.
    """
    manifest = read_linked_manifest(path, limits)
    if policy is not None:
        _refuse_other_policy(path, manifest, policy)
    rows = sorted({0, 1, 2} | ({int(manifest.known)} if manifest.known != "all" else set()))
    knowledge: list[Known] = [*rows, "all"]
    workspace = Workspace(None, limits)
    try:
        tables = [] if policy is None else bind_tables(workspace, policy)
        engine = tables[0].run.engine if tables else workspace.engine
        run = MatchingRun(engine, tables[0].run.work if tables else table, most_attacked)
        with _attached(engine, path, manifest):
            if not tables:
                lock_down(engine)
            released = run.describe("release", _released_tables(engine, manifest))
        attacked, before = released, None
        if policy is not None:
            source = run.describe("source", source_tables(tables))
            before = run.count_matches(source, source, knowledge, manifest.k)
            levels = _released_levels(manifest, policy)
            if levels is not None:
                encode_bound_tables(policy, tables)
                attacked = run.describe("labelled", source_tables(tables, levels))
        after = run.count_matches(attacked, released, knowledge, manifest.k)
        return LinkedAttack(path, manifest, after, before, run.count_persons(attacked))
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
        message = f"has other tables, quasi-identifiers or hierarchies than {path}: give the policy of the release"
        raise PolicyError([Problem("--policy", message)])


@contextmanager
def _attached(engine: DuckDBEngine, path: Path, manifest: LinkedManifest) -> Iterator[None]:
    """Attach a release read-only. The file may have been replaced, so its tables are checked again."""
    try:
        engine.attach(path, _RELEASE, read_only=True)
    except duckdb.Error as error:
        raise ReleaseError(f"{path} cannot be read: {str(error).splitlines()[0]}") from error
    try:
        for claims in manifest.tables:
            if not is_plain_table(engine, "main", manifest.rows_table(claims), _RELEASE):
                raise BrokenReleaseError(
                    f"{path} was a release of linked tables; the rows of {claims.name!r} are not a plain table any "
                    "more. None of its rows was read"
                )
        yield
    finally:
        engine.detach(_RELEASE)


def _released_tables(engine: DuckDBEngine, manifest: LinkedManifest) -> list[VisibleTable]:
    names = [claims.name for claims in manifest.tables]
    tables = []
    for claims in manifest.tables:
        keys = [
            as_column(col(columns[0]) if columns else cast(exp.null(), "BIGINT"), name)
            for name, columns in (("row_key", claims.key), ("parent_key", claims.references))
        ]
        values = [as_column(col(name), f"value_{i}") for i, name in enumerate(claims.quasi_identifiers)]
        rows = select([*keys, *values], table(manifest.rows_table(claims), "main", _RELEASE))
        parent = None if claims.parent is None else names.index(claims.parent)
        tables.append(VisibleTable(claims.name, parent, engine, rows))
    return tables


def _released_levels(manifest: LinkedManifest, policy: LinkedPolicy) -> Levels | None:
    """The level of each quasi-identifier in the release. None if a source has no labels of the release: a
    quasi-identifier has several levels, or its dates are moved by random numbers of days."""
    levels = [level for claims in manifest.tables for level in claims.generalization.values()]
    return None if None in levels or policy.shift is not None else tuple(levels)


def victim_sql(path: Path, manifest: LinkedManifest, known: Known) -> str:
    """Statements for any DuckDB client: the released persons whom the known rows single out."""
    attach = f"ATTACH {text(str(path)).sql('duckdb')} AS {ident('release').sql('duckdb')} (READ_ONLY);"
    query = _singled_out_by_signature() if known == "all" else _singled_out_by_rows(int(known))
    return f"{attach}\n{query.sql('duckdb', pretty=True)};"


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
    alone = template("""
        SELECT :shown, min(person) AS person FROM :rows AS rows GROUP BY class HAVING count(DISTINCT person) = 1
    """)
    nothing: list[exp.Expr] = [as_column(cast(exp.null(), "VARCHAR"), f"row_{i}") for i in range(1, known + 1)]
    queries: list[exp.Query] = [alone(shown=[col("class"), *nothing], rows=rows)]
    for size in range(1, known + 1):
        keys = combination_keys(size)
        shown = [as_column(col("class_id"), "class"), *cols(f"row_{i}" for i in range(1, size + 1)), *nothing[size:]]
        single = template("""
            SELECT :shown, min(person) AS person FROM (:combinations) AS c GROUP BY :keys HAVING count(*) = 1
        """)
        combinations = COMBINATIONS[size](occurrences=table("occurrences"))
        queries.append(single(shown=shown, combinations=combinations, keys=cols(keys)))
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
