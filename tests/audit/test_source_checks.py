"""Verification with the source: each false claim is refused by one check, and by no other."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import duckdb
import pytest
from sqlglot import exp

import sqlanon
from sqlanon.audit.source_audit import SourceAudit
from sqlanon.audit.verification import Verification
from sqlanon.frequency.suppression_limit import SuppressionLimit
from sqlanon.publish.draft import ReleaseDraft
from sqlanon.release.manifest import Facts, Manifest
from sqlanon.release.visible_values import count_different_rows
from sqlanon.source_verification import check_against_source, check_policy
from sqlanon.support.checks import SOURCE_PREFIX, Check
from sqlanon.support.expressions import create_table, drop_view, table
from support.policies import make_policy

RELEASED = table("released_rows", "main", "memory")


@dataclass(frozen=True)
class Subject:
    """A draft with its released rows in a table, and the claims of the release."""

    draft: ReleaseDraft
    manifest: Manifest
    suppressed: Any

    def refused(
        self,
        statement: str = "",
        suppressed: Any = None,
        checks: tuple[Check, ...] = (),
        withdraws: bool = False,
        search: dict[str, Any] | None = None,
        **claims: Any,
    ) -> set[str]:
        """The checks that fail after a change of the released rows, of the search, or of claims."""
        draft, connection = self.draft, self.draft.run.engine.connection
        connection.execute("CREATE OR REPLACE TABLE memory.main.released_rows AS FROM memory.main.draft_rows")
        if statement:
            connection.execute(statement.replace("released_rows", "memory.main.released_rows"))
        manifest = replace(self.manifest, **claims)
        suppressed = self.suppressed if suppressed is None else suppressed
        verification = Verification(Path("r.parquet"), manifest, checks, manifest.digest, suppressed, is_file=True)
        connection.execute(f"DROP TABLE IF EXISTS {draft.run.work('suppressed').sql('duckdb')}")
        search_input = replace(draft.search_input, **(search or {}))
        try:
            results = check_against_source(draft.run, search_input, _Rows(verification), withdraws)
        finally:
            draft.run.engine.execute(drop_view(draft.run.work_names.view("recoded")))
        assert all(check.name.startswith(SOURCE_PREFIX) and check.passed is not None for check in results)
        return {check.name.removeprefix(SOURCE_PREFIX) for check in results if not check.passed}


@dataclass(frozen=True)
class _Rows:
    verification: Verification

    @contextmanager
    def rows(self, engine: Any, manifest: Manifest) -> Iterator[exp.Table]:
        yield RELEASED.copy()

    def sha256(self) -> None:
        return None


@contextmanager
def draft_release(query: str, attributes: dict[str, Any], **sections: Any) -> Iterator[Subject]:
    with duckdb.connect() as connection, sqlanon.connect(connection) as db:
        connection.execute(f"CREATE TABLE t AS {query}")
        draft = db.anonymize(make_policy(attributes, **sections))._draft
        with draft.rows(shuffled=False) as rows:
            draft.run.engine.execute(create_table(table("draft_rows", "main", "memory"), rows))
        expected = draft.expected_figures
        manifest = draft.manifest("t", Facts(expected.rows, expected.classes, expected.smallest_class, "digest"))
        yield Subject(draft, manifest, draft.suppressed_by_label(table("draft_rows", "main", "memory")))


WARDS = "FROM (VALUES {}) AS c(ward, floor, n), range(n) AS r(i)"


@pytest.fixture(scope="module")
def plain() -> Iterator[Subject]:
    """A release without four rows of ward a and three of ward b, which are in classes of fewer than three rows."""
    classes = "('a', 1, 5), ('b', 1, 9), ('a', 2, 2), ('a', 3, 2), ('b', 3, 2), ('b', 4, 1)"
    source = f"SELECT ward, floor, ['flu', 'gout', 'cut'][1 + i % 3] AS ill {WARDS.format(classes)}"
    ward = {"role": "quasi", "hierarchy": "suppress", "max_level": 0}
    attributes = {"ward": ward, "floor": {"intervals": [10]}, "ill": "sensitive"}
    search = {"suppression_limit": 0.4, "measure": "average_class_size"}
    privacy = {"average_risk": 0.15, "k_anonymity": [{"quasi": ["ward"], "k": 5}]}
    with draft_release(source, attributes, k=3, privacy=privacy, search=search) as subject:
        assert subject.manifest.generalization == {"ward": 0, "floor": 0} and subject.manifest.score
        assert sorted(subject.suppressed) == [("ward", "a", 4, 5), ("ward", "b", 3, 9)]
        yield subject


FALSE_CLAIMS: dict[str, tuple[dict[str, Any], set[str]]] = {
    "a row more of the source": ({"rows": 22}, {"source rows"}),
    "a row less of the source": ({"rows": 20}, {"source rows"}),
    "a suppressed row more": ({"suppressed_rows": 8}, {"suppressed rows"}),
    "a bad line": ({"dropped_lines": 1}, {"dropped lines"}),
    "a score that is less": ({"score": 6.9999999}, {"score"}),
    "an unknown attribute": ({"generalization": {"ward": 0, "floor": 0, "ill": 0}}, {"generalization"}),
    "an attribute less": ({"generalization": {"ward": 0}}, {"generalization"}),
    "a level above max_level": ({"generalization": {"ward": 1, "floor": 0}}, {"generalization"}),
    "another level": (
        {"generalization": {"ward": 0, "floor": 1}},
        {"suppressed rows", "score", "recoded source"},
    ),
    "a row that the source does not give": (
        {"statement": "INSERT INTO released_rows VALUES ('a', 1, 'flu')"},
        {"recoded source"},
    ),
    "a row that is missing": ({"statement": "DELETE FROM released_rows WHERE ward = 'b'"}, {"recoded source"}),
    "a column of another type": (
        {"statement": "ALTER TABLE released_rows ALTER floor TYPE BIGINT"},
        {"recoded source"},
    ),
    "columns that differ from those claimed": ({"checks": (Check("columns", False, ""),)}, {"recoded source"}),
    "another number of suppressed rows of a label": (
        {"suppressed": [("ward", "a", 3, 5), ("ward", "b", 3, 9)]},
        {"suppression by value"},
    ),
    "no suppressed rows": ({"suppressed": []}, {"suppression by value"}),
    "no suppressed rows, after a withdrawal": ({"suppressed": [], "withdraws": True}, set()),
    "suppressed rows in another order": ({"suppressed": [("ward", "b", 3, 9), ("ward", "a", 4, 5)]}, set()),
    "more suppressed rows than are allowed": (
        {"search": {"limit": SuppressionLimit(6)}},
        {"suppression limit", "requirements"},
    ),
    "as many suppressed rows as are allowed": ({"search": {"limit": SuppressionLimit(7)}}, set()),
}


@pytest.mark.parametrize("case", FALSE_CLAIMS)
def test_one_check_alone_refuses_a_false_claim(case: str, plain: Subject) -> None:
    changes, expected = FALSE_CLAIMS[case]
    assert plain.refused(**changes) == expected


def test_parts_of_a_release_meet_class_requirements(plain: Subject) -> None:
    """The rows that an extension adds: the average risk is of the whole release."""
    draft, connection = plain.draft, plain.draft.run.engine.connection
    statement, macros = draft.recoding.statement, draft.run.install_macros()
    audit = SourceAudit(draft.run.engine, draft.run.work, macros, draft.search_input, statement, None)
    requirements = ["3-anonymity", "5-anonymity of ward"]
    for rows, refused in ((14, []), (13, requirements[1:]), (12, requirements[1:]), (11, requirements)):
        part = f"FROM memory.main.draft_rows ORDER BY ward DESC LIMIT {rows}"
        connection.execute(f"CREATE OR REPLACE TABLE memory.main.released_rows AS {part}")
        checks = audit.checks_of_classes("memory.main.released_rows")
        assert [check.name for check in checks] == requirements
        assert [check.name for check in checks if not check.passed] == refused


def test_hidden_score_passes_the_audit(plain: Subject) -> None:
    assert plain.refused(score=None) == plain.refused() == set()


@pytest.fixture(scope="module")
def persons() -> Iterator[Subject]:
    """Each kept class has four persons with up to two rows; one person has a row in a separate class."""
    source = """
        SELECT 'p' || i % 8 AS person, CASE WHEN i = 11 THEN 'c' WHEN i % 2 = 0 THEN 'a' ELSE 'b' END AS ward
        FROM range(12) AS r(i)
    """
    attributes = {"ward": "suppress"}
    sections = {"source": {"table": "t", "person": "person"}, "search": {"suppression_limit": 0.2, "measure": "height"}}
    with draft_release(source, attributes, k=4, **sections) as subject:
        claims = subject.manifest
        assert (claims.persons, claims.suppressed_persons, claims.partly_released_persons) == (8, 1, 1)
        assert (claims.smallest_class, claims.smallest_class_rows, claims.suppressed_rows) == (4, 5, 1)
        yield subject


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, set()),
        ({"persons": 9, "released_persons": 8}, {"persons"}),
        ({"released_persons": 6}, {"persons"}),
        ({"partly_released_persons": 0}, {"persons"}),
        ({"smallest_class": 5}, {"smallest class"}),
        ({"search": {"limit": SuppressionLimit(1, 0, 8)}}, {"suppression limit", "requirements"}),
        ({"search": {"limit": SuppressionLimit(2, 1, 8)}}, set()),
    ],
)
def test_persons_are_counted_again(changes: dict[str, Any], expected: set[str], persons: Subject) -> None:
    assert persons.refused(**changes) == expected


@pytest.mark.thorough
def test_requirements_on_a_population_are_checked_with_it() -> None:
    """Three persons of the population match ward b, and two match ward c; one of the two is in the source."""
    population = {"query": "SELECT unnest(['a', 'a', 'a', 'b', 'b', 'b', 'c', 'c']) AS ward"}
    source = "SELECT unnest(['a', 'a', 'b', 'b', 'b', 'c']) AS ward"
    sections = {"population": population, "search": {"suppression_limit": 0.2}}
    with draft_release(source, {"ward": "suppress"}, k=2, privacy={"k_map": 3}, **sections) as subject:
        assert (subject.manifest.generalization, subject.manifest.suppressed_rows) == ({"ward": 0}, 1)
        assert subject.refused() == set()
        every_row = {"limit": SuppressionLimit(0)}
        assert subject.refused(search=every_row) == {"suppression limit", "requirements"}


PAIRS = [
    ("'a'", "'a'", True),
    ("'a'", "'A' COLLATE NOCASE", False),
    ("NULL::VARCHAR", "''", False),
    ("0.0::DOUBLE", "'-0.0'::DOUBLE", False),
    ("'nan'::FLOAT", "'nan'::FLOAT", True),
    ("INTERVAL 30 DAY", "INTERVAL 1 MONTH", False),
    ("['a', 'b']", "['a, b']", False),
    ("[0.0::DOUBLE]", "['-0.0'::DOUBLE]", False),
    ("'01'::BIT", "'1'::BIT", False),
]
"""Two values, and whether every reader sees the same."""


def test_values_are_compared_as_readers_see_them() -> None:
    with duckdb.connect() as connection:
        for first, second, is_same in PAIRS:
            connection.execute(f"CREATE OR REPLACE TABLE one AS SELECT {first} AS x")
            connection.execute(f"CREATE OR REPLACE TABLE two AS SELECT {second} AS x")
            (type_,) = connection.table("one").types
            query = count_different_rows(table("one"), table("two"), {"x": str(type_)}).sql("duckdb")
            assert connection.execute(query).fetchall() == [(0, 0) if is_same else (1, 1)], second


POLICY = make_policy({"ward": "suppress", "ill": "sensitive"}, k=3)


def at(name: str) -> sqlanon.Policy:
    return POLICY.with_output_file(Path(name))


OTHER_K = make_policy({"ward": "suppress", "ill": "sensitive"}, k=2)
OTHER_TABLE = make_policy({"ward": "suppress", "ill": "sensitive"}, table="u", k=3)


@pytest.mark.parametrize(
    ("made_by", "policy", "policy_entries", "expected"),
    [
        (POLICY, POLICY, {}, set()),
        (POLICY, POLICY, {"draft": True}, set()),
        (POLICY, POLICY, {"persons": True}, {"manifest"}),
        (POLICY, POLICY, {"privacy": {"k": 2}}, {"manifest"}),
        (POLICY, OTHER_K, {}, {"policy", "manifest"}),
        (POLICY, OTHER_TABLE, {}, {"policy"}),
        # The place of the release is an option of `anonymize`, too.
        (at("r.duckdb"), POLICY, {}, set()),
        (at("r.duckdb"), at("r.duckdb"), {}, set()),
        (at("q.duckdb"), POLICY, {}, {"policy"}),
        (POLICY, at("q.duckdb"), {}, {"policy"}),
    ],
)
def test_the_release_was_made_by_the_policy_and_shows_it(
    made_by: sqlanon.Policy, policy: sqlanon.Policy, policy_entries: dict[str, Any], expected: set[str], plain: Subject
) -> None:
    manifest = replace(plain.manifest, policy=POLICY.redact() | policy_entries, policy_hash=made_by.fingerprint())
    verification = Verification(Path("r.duckdb").absolute(), manifest, (), "digest", is_file=True)
    checks = {check.name.removeprefix(SOURCE_PREFIX): check.passed for check in check_policy(policy, verification)}
    assert checks == {name: name not in expected for name in ("policy", "manifest")}
