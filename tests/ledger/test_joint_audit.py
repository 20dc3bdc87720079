"""The joint audit, made step by step, finds what plain Python finds; and what is too much to compare is refused."""

from __future__ import annotations

from typing import Any

import duckdb
import oracle_attacks as oracle
import pytest
from conftest import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from test_attacks_linked import built, releases
from test_ledger import FINE_RACE, hospital, policy, publish

from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.errors import AuditError
from sqlanon.expressions import table
from sqlanon.ledger import joint_audit
from sqlanon.ledger.joint_audit import PairAudit
from sqlanon.ledger.release_links import compared_with

__all__ = ["hospital"]


@settings(max_examples=examples(4), deadline=None)
@given(releases(), st.booleans())
def test_the_joint_audit_finds_what_plain_python_finds(case: dict[str, Any], ordered: bool) -> None:
    """Whatever the order in which attributes are compared; rows that are gone by what was made for new ones."""
    with duckdb.connect() as connection:
        link, k = built(connection, case)
        engine = DuckDBEngine(connection)
        if ordered:
            link = compared_with(engine, link, frozenset())
        with PairAudit.of(engine, lambda name: table(name, "main", "memory"), link, k) as audit:
            assert audit.complementary() == oracle.complementary_victims(**case)
            came, gone = audit.came(), audit.gone()
        left = connection.execute("SELECT table_name FROM duckdb_tables() WHERE table_name LIKE 'joint%'").fetchall()
    expected = oracle.temporal(case["first"], case["second"], case["shared"], case["attributes"], k)
    assert came == (len(expected), sum(expected.values()))
    back = [
        oracle.Attribute(one.second, one.first, one.second_levels, one.first_levels, one.tree)
        for one in case["attributes"]
    ]
    pairs = [(j, i) for i, j in case["shared"]]
    expected = oracle.temporal(case["second"], case["first"], pairs, back, k)
    assert gone == (len(expected), sum(expected.values()))
    assert not left


@pytest.mark.slow
def test_what_is_too_much_to_compare_is_refused(hospital: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same again is safe, as it is, and is refused where it cannot be compared."""
    publish(policy(hospital, "one", FINE_RACE))
    publish(policy(hospital, "two", FINE_RACE))
    monkeypatch.setattr(joint_audit, "MOST_MEETING", 3)
    with pytest.raises(AuditError, match="more than 3 pairs of their groups can be the same rows: too many to compare"):
        publish(policy(hospital, "three", FINE_RACE))
    result, _ = publish(policy(hospital, "three", FINE_RACE), force=True)
    assert any("too many to compare" in warning for warning in result.warnings)
