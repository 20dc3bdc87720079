"""Requirements at a border of what they count: persons or rows, a sample or all, some quasi-identifiers or each."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import duckdb
import pytest

import sqlanon
from sqlanon.audit.verify import verify_file
from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.policy import PrivacySection
from sqlanon.requirements import guaranteed_k
from sqlanon.requirements.audit import AuditedRelease, PrivateRelations
from sqlanon.requirements.k_map import KMap
from sqlanon.requirements.l_diversity import LDiversity
from sqlanon.support.resources import REQUIREMENT_MACROS, macro_script
from support.databases import change


def test_a_share_of_persons_is_audited_as_one_of_persons(tmp_path: Path) -> None:
    """One of two persons has three of four rows."""
    policy = sqlanon.Policy(
        source={"table": "t", "person": "who"},
        attributes={"ward": {"role": "quasi", "hierarchy": "suppress"}, "illness": {"role": "sensitive"}},
        privacy={"k": 2, "alpha_k": [{"attribute": "illness", "alpha": 0.5}]},
    )
    with duckdb.connect() as connection:
        connection.execute(
            "CREATE TABLE t AS FROM (VALUES (1, 'a', 'x'), (1, 'a', 'x'), (1, 'a', 'x'), (2, 'a', 'y')) "
            "AS t(who, ward, illness)"
        )
        with sqlanon.connect(connection) as db:
            result = db.anonymize(policy)
            assert (result.generalization, result.suppressed_rows) == ({"ward": 0}, 0)
            assert result.publish(tmp_path / "r.duckdb").path.exists()


@pytest.mark.slow
def test_a_release_alone_does_not_show_its_persons(tmp_path: Path) -> None:
    """Too few rows imply too few distinct values."""
    path = tmp_path / "r.duckdb"
    policy = sqlanon.Policy(
        source={"table": "t", "person": "who"},
        attributes={"ward": {"role": "quasi", "hierarchy": "suppress"}},
        privacy={"k": 3, "average_risk": 0.5},
    )
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE t AS SELECT i // 2 AS who, 'a' AS ward FROM range(6) AS r(i)")
        with sqlanon.connect(connection) as db:
            db.anonymize(policy).publish(path)
    alone = {check.name: check.passed for check in verify_file(path).checks}
    assert (alone["3-anonymity"], alone["average risk of at most 0.5"]) == (None, None)
    change(path, "DELETE FROM t_v1 WHERE rowid > 1")
    assert {check.name: check.passed for check in verify_file(path).checks}["3-anonymity"] is False


@pytest.mark.parametrize(("quasi", "promised"), [(["zip"], 2), (["zip", "age"], 5)])
def test_a_shield_over_some_promises_nothing_of_all(quasi: list[str], promised: int) -> None:
    section = PrivacySection.model_validate({"k_anonymity": [{"quasi": quasi, "k": 5}]})
    assert guaranteed_k(section, ["Zip", "Age"]) == promised
    assert guaranteed_k(section, ["Zip"]) == 5


def test_where_the_source_is_the_population_its_uniques_are_known() -> None:
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE t AS SELECT unnest(['a', 'a', 'b', 'c']) AS ward")
        with sqlanon.connect(connection) as db:
            uniqueness = {"limit": 0.5, "population": 4}
            attributes = {"ward": {"role": "quasi", "hierarchy": "suppress"}}
            policy = sqlanon.Policy(
                source={"table": "t"}, attributes=attributes, privacy={"population_uniqueness": uniqueness}
            )
            assert db.anonymize(policy).generalization == {"ward": 0}


def test_a_class_of_the_population_alone_counts_beside_sensitive_values() -> None:
    """The source has no person of ward b: if ward a is unchanged, a person of b is known to be absent."""
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE t AS FROM (VALUES ('a', 'flu'), ('a', 'gout')) AS t(ward, illness)")
        connection.execute("CREATE TABLE everybody AS SELECT unnest(['a', 'a', 'b', 'b']) AS ward")
        diverse = {"attribute": "illness", "kind": "distinct", "l": 2}
        policy = sqlanon.Policy(
            source={"table": "t"},
            attributes={"ward": {"role": "quasi", "hierarchy": "suppress"}, "illness": {"role": "sensitive"}},
            privacy={"l_diversity": [diverse], "delta_presence": {"min": 0.5, "max": 1}},
            population={"table": "everybody"},
        )
        with sqlanon.connect(connection) as db:
            assert db.anonymize(policy).generalization == {"ward": 1}


def run_audit(
    connection: duckdb.DuckDBPyConnection, *sensitive: str, private: PrivateRelations | None = None
) -> AuditedRelease:
    """Table t, released: its ward is a quasi-identifier."""
    connection.execute(macro_script(REQUIREMENT_MACROS))
    return AuditedRelease(DuckDBEngine(connection), "t", ["ward"], sensitive, rows=2, private=private)


def test_a_population_is_audited_by_its_persons() -> None:
    """One of two persons of the ward has three of its four rows."""
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE t AS SELECT unnest(['a', 'a']) AS ward")
        connection.execute("CREATE TABLE everybody AS SELECT 'a' AS ward, unnest([1, 1, 1, 2]) AS who")
        private = PrivateRelations("t", population="everybody", population_person="who")
        subject = run_audit(connection, private=private)
        assert [check.passed for k in (2, 3) for check in KMap(k).audit(subject)] == [True, False]


def test_joint_diversity_is_audited_beside_the_other_sensitive_values() -> None:
    """Two illnesses in the ward, and one for each cost."""
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE t AS FROM (VALUES ('a', 'x', 1), ('a', 'y', 2)) AS t(ward, illness, cost)")
        subject = run_audit(connection, "illness", "cost")
        requirements = [LDiversity(attribute="illness", kind="distinct", l=2, joint=joint) for joint in (False, True)]
        assert [check.passed for requirement in requirements for check in requirement.audit(subject)] == [True, False]


@pytest.mark.parametrize(("c", "passed"), [(2, False), (2.01, True)])
def test_the_audit_of_recursive_diversity_is_strict_at_its_border(c: float, passed: bool) -> None:
    """The larger count is exactly twice the sum of the others."""
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE t AS SELECT 'a' AS ward, unnest(['x', 'x', 'y']) AS illness")
        recursive = LDiversity(attribute="illness", kind="recursive", l=2, c=c)
        assert [check.passed for check in recursive.audit(run_audit(connection, "illness"))] == [passed]


@pytest.mark.parametrize(
    ("kind", "values", "passed"),
    [("distinct", "xy", True), ("distinct", "xx", False), ("entropy", "xy", None), ("entropy", "xx", False)],
)
def test_too_few_distinct_values_fail_for_any_persons(kind: str, values: str, passed: bool | None) -> None:
    """A release alone does not show whose rows are whose: it shows the distinct values, and not their shares."""
    with duckdb.connect() as connection:
        connection.execute(f"CREATE TABLE t AS SELECT 'a' AS ward, unnest({[*values]}) AS illness")
        subject = replace(run_audit(connection, "illness"), counts_persons=True)
        diversity = LDiversity(attribute="illness", kind=kind, l=2)
        assert [check.passed for check in diversity.audit(subject)] == [passed]
