"""Checking a release from the outside: what it shows against what it claims.

The checks are SQL over the released rows. They know nothing of the search: class sizes are counted again, and
the content digest finds what k cannot.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlglot import exp

from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.queries.audit import digest_of, k_anonymity_of
from sqlanon.queries.names import col, select, table, text
from sqlanon.release.manifest import DIGEST, Manifest, ReleasedColumn
from sqlanon.release.reader import ATTACHED, SUBJECT, OpenRelease, open_release


@dataclass(frozen=True)
class Check:
    """One check of a release: its name, whether it passed (None: not verifiable alone), and what was seen."""

    name: str
    passed: bool | None
    message: str


@dataclass(frozen=True)
class Verification:
    """All checks of a release.

    Attributes
    ----------
    path, manifest, checks:
        The release, what it claims, and what was found.
    """

    path: Path
    manifest: Manifest
    checks: tuple[Check, ...]

    @property
    def verified(self) -> bool:
        """Whether no check failed."""
        return all(check.passed is not False for check in self.checks)

    @property
    def failures(self) -> tuple[str, ...]:
        """What the failed checks saw."""
        return tuple(f"{check.name}: {check.message}" for check in self.checks if check.passed is False)

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {
            "release": str(self.path),
            "table": self.manifest.table_name,
            "verified": self.verified,
            "checks": [vars(check) for check in self.checks],
        }


def verify_file(path: Path) -> Verification:
    """Verify a release by itself: columns, counts, requirements, content digest.

    Raises
    ------
    ReleaseError
        It is not there, or not a release.
    """
    with open_release(path) as release:
        return Verification(path, release.manifest, tuple(checks_of(release)))


def verification_sql(manifest: Manifest) -> list[str]:
    """The statements of `verify_file`, for anybody to run in the release file itself."""
    name = str(table(manifest.table_name).sql("duckdb"))
    queries = [k_anonymity_of(name, manifest.quasi), digest_of(name)]
    return [query.sql("duckdb") for query in queries]


def checks_of(release: OpenRelease) -> list[Check]:
    """Run the checks on an open release."""
    manifest, engine = release.manifest, release.engine
    found_columns = list(engine.columns(SUBJECT).items())
    checks = [_columns(manifest.columns, found_columns)]
    if not checks[0].passed:
        return checks
    rows, digest = engine.rows(digest_of(SUBJECT.name))[0]
    checks.append(_equal("rows", manifest.released_rows, rows))
    k, classes, _, _ = engine.rows(k_anonymity_of(SUBJECT.name, manifest.quasi))[0]
    checks.append(_equal("classes", manifest.classes, classes))
    checks.append(_equal("smallest class", manifest.smallest_class, k or 0))
    required = manifest.policy.get("privacy", {}).get("k")
    if required is not None:
        message = f"the smallest class has {k or 0} rows, {required} are required"
        checks.append(Check(f"{required}-anonymity", (k or 0) >= required, message))
    if manifest.digest_algorithm == DIGEST:
        checks.append(_equal("content digest", manifest.digest, digest))
    else:
        checks.append(Check("content digest", None, f"{manifest.digest_algorithm} is not known here"))
    if not release.is_parquet:
        checks.append(_contents(engine, manifest))
    return checks


def _columns(claimed: Sequence[ReleasedColumn], found: list[tuple[str, str]]) -> Check:
    expected = [(column.name, column.type) for column in claimed]
    if expected == found:
        return Check("columns", True, f"{len(found)} columns, as claimed")
    return Check("columns", False, f"claimed {json.dumps(expected)}, found {json.dumps(found)}")


def _equal(name: str, claimed: Any, found: Any) -> Check:
    message = f"{found}, as claimed" if claimed == found else f"claimed {claimed}, found {found}"
    return Check(name, claimed == found, message)


def _contents(engine: DuckDBEngine, manifest: Manifest) -> Check:
    """The file has the table and the manifest, and no other table, view or type."""
    parts = [
        select(
            [exp.Concat(expressions=[col("schema_name"), text("."), col(name)], safe=True)],
            exp.Table(this=exp.Anonymous(this=function, expressions=[])),
        ).where(_ours())
        for function, name in (
            ("duckdb_tables", "table_name"),
            ("duckdb_views", "view_name"),
            ("duckdb_types", "type_name"),
        )
    ]
    found = sorted(name for (name,) in engine.rows(exp.union(*parts, distinct=False)))
    expected = sorted([f"main.{manifest.table_name}", "sqlanon.manifest"])
    return _equal("contents", ", ".join(expected), ", ".join(found))


def _ours() -> exp.Expr:
    in_file = exp.EQ(this=col("database_name"), expression=text(ATTACHED))
    return exp.And(this=in_file, expression=exp.Not(this=col("internal")))
