"""The plan of a policy with every kind of requirement: its statements make all that they use, and can be run."""

from __future__ import annotations

import re

import duckdb
import pytest

import sqlanon
from support.policies import make_policy

ATTRIBUTES = {
    "zip": "mask",
    "age": {"intervals": [10, 40]},
    "dx": {"role": "sensitive", "hierarchy": {"categories": {"ill": ["a", "b"], "well": ["c"]}}},
    "income": "sensitive",
    "who": "identifying",
}
EVERYTHING = {
    "k": 2,
    "k_map": 2,
    "average_risk": 0.9,
    "sample_uniqueness": 0.9,
    "delta_presence": {"max": 1},
    "population_uniqueness": {"limit": 0.9, "sampling_fraction": 0.5},
    "k_anonymity": [{"quasi": ["zip"], "k": 3}, {"quasi": ["age"], "k": 4}],
    "l_diversity": [
        {"attribute": "dx", "kind": "distinct", "l": 2},
        {"attribute": "dx", "kind": "entropy", "l": 1.2},
        {"attribute": "income", "kind": "recursive", "l": 2, "c": 3, "joint": True},
    ],
    "t_closeness": [
        {"attribute": "dx", "distance": "hierarchical", "t": 0.8},
        {"attribute": "dx", "distance": "equal", "t": 0.8},
        {"attribute": "income", "distance": "ordered", "t": 0.8},
    ],
    "delta_disclosure": [{"attribute": "dx", "delta": 3}],
    "beta_likeness": [{"attribute": "dx", "beta": 3}],
    "alpha_k": [{"attribute": "dx", "alpha": 0.9}],
}


@pytest.mark.cases(1)
@pytest.mark.parametrize("persons", [False, True])
def test_the_statements_of_a_plan_make_all_that_they_use(persons: bool) -> None:
    """Run one after the other in the database of the source, on tables that are empty."""
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE t (zip VARCHAR, age INTEGER, dx VARCHAR, income INTEGER, who INTEGER)")
        connection.execute("CREATE TABLE voters (zip VARCHAR, age BIGINT, who INTEGER)")
        person = {"person": "who"} if persons else {}
        policy = sqlanon.Policy(
            source={"table": "t", **person},
            attributes=make_policy(ATTRIBUTES).attributes,
            privacy=EVERYTHING,
            population={"table": "voters", **person},
        )
        with sqlanon.connect(connection) as db:
            stages = db.plan(policy).stages
            created: set[str] = set()
            for stage in stages:
                for statement in stage.sql:
                    used = set(re.findall(r'"run_\d+"\."(\w+)"', statement))
                    target = re.match(r'CREATE TABLE "\w+"\."run_\d+"\."(\w+)"', statement)
                    assert used - {target.group(1) if target else ""} <= created, statement
                    if target:
                        created.add(target.group(1))
                        connection.execute(statement)
                    elif stage.name in ("search", "dependencies"):
                        connection.execute(statement)
            names = {stage.name for stage in stages}
    before = {"scan", "hierarchies", "frequency set", "search", "dependencies"}
    assert names == {*before, "recode and suppress", "audit and publish"}
    assert {"frequency_0", "distribution_0_0", "domain_0", "nodes_0", "population_audited"} <= created
    assert ("audited" in created) == persons
