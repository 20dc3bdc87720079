"""When nothing satisfies a policy: what the error says."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import Any
from unittest.mock import patch

import duckdb
import pyarrow
import pytest

import sqlanon
from sqlanon.strategies.lattice import LatticeSearch, Outcome
from sqlanon.strategies.lattice.task import lattice_strategy
from support.databases import insert
from support.policies import make_policy

# Eight women and eight men; all women have one diagnosis. One zip is alone.
ROWS = [("F", "a", "02139")] * 8 + [("M", dx, "02139") for dx in "bcdebcd"] + [("M", "b", "99999")]


def infeasible_error(
    privacy: dict[str, Any], limit: float = 0, strategy: str = "optimal", **sections: Any
) -> sqlanon.InfeasibleError:
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE t (sex VARCHAR, dx VARCHAR, zip VARCHAR, person INTEGER)")
        insert(connection, "t", [(*row, 1) for row in ROWS])
        connection.execute(
            "CREATE TABLE everybody AS SELECT sex, zip, 2 AS other FROM t UNION ALL SELECT 'X', '00000', 2"
        )
        attributes = make_policy({"sex": "suppress", "zip": "suppress", "dx": "sensitive", "person": "identifying"})
        policy = sqlanon.Policy(
            source={"table": "t", **sections.pop("source", {})},
            attributes=attributes.attributes,
            privacy=privacy,
            search={"suppression_limit": limit, "strategy": strategy},
            **sections,
        )
        with sqlanon.connect(connection) as db, pytest.raises(sqlanon.InfeasibleError) as raised:
            db.anonymize(policy)
    return raised.value


@pytest.mark.thorough
def test_a_single_requirement_is_named() -> None:
    error = infeasible_error({"l_diversity": [{"attribute": "dx", "kind": "distinct", "l": 6}]})
    assert "The requirement is distinct 6-diversity of dx" in str(error)
    assert (error.suppressed_rows, error.allowed_rows) == (16, 0)


@pytest.mark.thorough
def test_the_binding_requirement_is_the_one_without_which_the_fewest_rows_are_suppressed() -> None:
    error = infeasible_error(
        {
            "k": 2,
            "l_diversity": [{"attribute": "dx", "kind": "distinct", "l": 6}],
            "alpha_k": [{"attribute": "dx", "alpha": 0.9}],
        }
    )
    assert "The binding requirement is distinct 6-diversity of dx; without it, 0 rows would be suppressed" in str(error)


@pytest.mark.thorough
def test_message_names_sufficient_remedies() -> None:
    """A limit that it names is enough."""
    privacy = {"k": 2, "l_diversity": [{"attribute": "dx", "kind": "distinct", "l": 6}]}
    assert str(infeasible_error(privacy)).endswith(
        "loosen distinct 6-diversity of dx (readers may then learn more about people)"
    )
    assert str(infeasible_error({"k": 17})).endswith("What can help: lower k (it hides people among fewer others)")


def test_where_several_requirements_bind_all_are_to_blame() -> None:
    diversities = [{"attribute": "dx", "kind": kind, "l": 6} for kind in ("distinct", "entropy")]
    error = str(infeasible_error({"k": 2, "l_diversity": diversities}))
    alone = [f"{kind} 6-diversity of dx alone suppresses 16 rows" for kind in ("distinct", "entropy")]
    assert f"No single requirement is to blame: {'; '.join(alone)}. " in error
    assert error.endswith(
        "What can help: loosen distinct 6-diversity of dx and entropy 6-diversity of dx "
        "(readers may then learn more about people)"
    )


@pytest.mark.thorough
@pytest.mark.parametrize("strategy", ["optimal", "local"])
def test_the_suppression_limit_that_the_message_names_is_enough(strategy: str) -> None:
    """One of seven rows has a unique ZIP code, which may not be generalized."""
    rows = pyarrow.table({"zip": ["02139"] * 6 + ["99999"]})
    search = {"strategy": strategy, "suppression_limit": 0.1}
    policy = sqlanon.Policy(
        attributes={"zip": {"role": "quasi", "hierarchy": "suppress", "max_level": 0}}, privacy={"k": 3}, search=search
    )
    with sqlanon.connect(rows) as db:
        with pytest.raises(sqlanon.InfeasibleError) as raised:
            db.anonymize(policy)
        search_result = re.search(
            r"What can help: raise search\.suppression_limit to ([\d.]+), "
            r"or lower k \(it hides people among fewer others\), or raise the max_level of zip$",
            str(raised.value),
        )
        assert search_result is not None and search_result[1] == "0.1429"
        enough = policy.model_copy(
            update={"search": type(policy.search)(**{**search, "suppression_limit": float(search_result[1])})}
        )
        assert db.anonymize(enough).suppressed_rows == 1


@pytest.mark.slow
def test_an_incomplete_strategy_does_not_claim_infeasibility() -> None:
    def gives_up(search: LatticeSearch) -> Outcome:
        search.check(search.lattice.top)
        return Outcome(None, optimal=False, exhaustive=False)

    with patch("sqlanon.strategies.full_domain.datafly.run", lattice_strategy(gives_up)):
        error = infeasible_error({"k": 17}, strategy="datafly")
    assert "strategy datafly found no generalization that meets the policy" in str(error)
    assert 'strategy = "optimal" does, and may find one. The closest it found' in str(error)
    assert "no generalization meets" not in str(error)
    assert (error.nearest, error.suppressed_rows) == ({"sex": 1, "zip": 1}, 16)


@pytest.mark.thorough
@pytest.mark.parametrize("strategy", ["incognito", "ola", "flash"])
def test_a_strategy_that_looks_at_everything_does(strategy: str) -> None:
    assert "no generalization meets the policy" in str(infeasible_error({"k": 17}, strategy=strategy))


@pytest.mark.thorough
def test_requirements_that_the_whole_table_fails_are_named() -> None:
    error = infeasible_error({"average_risk": 0.01})
    assert "It does not meet average risk of at most 0.01" in str(error)
    assert error.nearest == {"sex": 1, "zip": 1}


@pytest.mark.slow
def test_the_distance_to_a_requirement_is_reported() -> None:
    population = {"table": "everybody", "person": "other"}
    error = infeasible_error({"wrong_map": {"max": 0.1}}, source={"person": "person"}, population=population)
    assert "It does not meet wrong-map of at most 0.1 (here 1)" in str(error)


@pytest.mark.thorough
def test_population_classes_without_released_rows_are_named() -> None:
    error = infeasible_error({"delta_presence": {"min": 0.99, "max": 1}}, population={"table": "everybody"}, limit=0.5)
    assert "(0.99, 1)-presence" in str(error)


@pytest.mark.thorough
def test_persons_are_counted() -> None:
    """Sixteen rows of one person do not count as two persons."""
    error = infeasible_error({"k": 2}, source={"person": "person"})
    assert "The requirement is 2-anonymity" in str(error)
    assert error.suppressed_rows == 16


@pytest.mark.thorough
def test_infeasible_policy_exits_with_1_and_the_message(tmp_path: Any) -> None:
    with duckdb.connect(str(tmp_path / "h.duckdb")) as connection:
        connection.execute("CREATE TABLE t AS SELECT 'F' AS sex, 'a' AS dx FROM range(4)")
    (tmp_path / "policy.toml").write_text(
        """
        [source]
        database = "h.duckdb"
        table = "t"
        [attributes]
        sex = { role = "quasi", hierarchy = "suppress" }
        dx = { role = "sensitive" }
        [privacy]
        k = 2
        l_diversity = { attribute = "dx", kind = "entropy", l = 2 }
        [release]
        database = "r.duckdb"
        """
    )
    command = [sys.executable, "-m", "sqlanon", "anonymize", str(tmp_path / "policy.toml")]
    outcome = subprocess.run(command, capture_output=True, text=True, check=False)
    assert outcome.returncode == 1
    assert "The binding requirement is entropy 2-diversity of dx" in " ".join(outcome.stderr.split())
    assert not (tmp_path / "r.duckdb").exists()


@pytest.mark.thorough
def test_two_requirements_with_nearly_the_same_parameter_stay_two() -> None:
    """Their names have all digits: else one would stand for both."""
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE t AS SELECT 'F' AS sex, 'a' AS dx FROM range(4)")
        policy = sqlanon.Policy(
            source={"table": "t"},
            attributes=make_policy({"sex": "suppress", "dx": "sensitive"}).attributes,
            privacy={"t_closeness": [{"attribute": "dx", "distance": "equal", "t": t} for t in (0.1000001, 0.1000002)]},
        )
        with sqlanon.connect(connection) as db:
            names = [requirement.requirement for requirement in db.risk(policy).requirements]
    assert names == ["equal 0.1000001-closeness of dx", "equal 0.1000002-closeness of dx"]
