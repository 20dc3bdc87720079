"""The stages of a plan, and what a plain run leaves out."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import pytest
from sqlglot import parse_one

import sqlanon
from sqlanon.ledger import catalog
from sqlanon.policy.strategies import STRATEGIES


def policy(**parts: Any) -> sqlanon.Policy:
    attributes = {"ward": {"role": "quasi", "hierarchy": "suppress"}, "ill": {"role": "sensitive"}}
    attributes["age"] = {"role": "quasi", "hierarchy": {"intervals": [10, 20]}}
    return sqlanon.Policy(**{"source": {"table": "people"}, "attributes": attributes, "privacy": {"k": 2}} | parts)


def people() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.execute(
        "CREATE TABLE people AS SELECT i % 5 AS ward, 20 + i AS age, i % 3 AS ill FROM range(40) AS t(i)"
    )
    return connection


@pytest.mark.thorough
def test_a_plan_reads_no_row_and_names_each_stage_once() -> None:
    connection = people()
    connection.execute("CREATE VIEW broken AS SELECT ward, age, error('read') AS ill FROM people")
    with sqlanon.connect(connection) as db:
        plan = db.plan(policy(source={"table": "broken"}))
    names = [stage.name for stage in plan.stages]
    assert names[:4] == ["scan", "hierarchies", "frequency set", "search"]
    assert names[-2:] == ["recode and suppress", "audit and publish"]
    assert len(set(names)) == len(names)


@pytest.mark.slow
@pytest.mark.parametrize("strategy", [name for name, strategy in STRATEGIES.items() if strategy.traits.is_local])
def test_a_plan_shows_the_recoding_that_a_local_strategy_runs(strategy: str) -> None:
    connection = duckdb.connect()  # all values differ: none is released as it is
    connection.execute("CREATE TABLE t AS SELECT i AS id, nullif('w' || i, 'w0') AS ward, i AS ill FROM range(6) t(i)")
    attributes = {"ward": {"role": "quasi", "hierarchy": "suppress"}, "ill": {"role": "sensitive"}}
    search = {"strategy": strategy, **({} if STRATEGIES[strategy].traits.terminates else {"max_checks": 9})}
    requested_policy = policy(source={"table": "t", "key": "id"}, attributes=attributes, search=search)
    with sqlanon.connect(connection) as db:
        run = db.anonymize(requested_policy)._draft.recoding.statement.select().sql("duckdb")
        [planned] = (stage.sql for stage in db.plan(requested_policy).stages if stage.name == "recode and suppress")
    run, plan = (
        re.sub(r"run_\d", "run", parse_one(statement, dialect="duckdb").sql()) for statement in (run, planned[-1])
    )
    assert plan == run


PLAIN = """
import sys, duckdb, sqlanon
connection = duckdb.connect()
connection.execute("CREATE TABLE people AS SELECT i % 3 AS ward FROM range(9) AS t(i)")
policy = sqlanon.Policy(
    source={"table": "people"}, attributes={"ward": {"role": "quasi", "hierarchy": "suppress"}}, privacy={"k": 3}
)
with sqlanon.connect(connection) as db:
    db.anonymize(policy).publish(sys.argv[1])
parts = ("attacks", "decoys", "ledger", "live", "noise", "report", "risk", "suggest", "warehouse")
others = ("numpy", "sqlglot.optimizer.annotate_types", *(f"sqlanon.{part}" for part in parts))
print(*(name for name in others if name in sys.modules))
"""


@pytest.mark.thorough
@pytest.mark.extras
def test_plain_run_imports_only_the_modules_it_uses(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PLAIN, str(tmp_path / "release.duckdb")]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == ""


@pytest.mark.thorough
@pytest.mark.parametrize("again", [False, True])
def test_a_run_that_is_published_opens_the_catalog_five_times(
    again: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[Path] = []
    attach = catalog._attach

    def noting(engine: Any, path: Path) -> None:
        opened.append(path)
        attach(engine, path)

    monkeypatch.setattr(catalog, "_attach", noting)
    source = {"query": "SELECT *, 5 * age + ward AS id FROM people", "key": ["id"]}
    requested_policy = policy(source=source, catalog={"database": tmp_path / "c.duckdb"})
    with sqlanon.connect(people()) as db:
        for _ in range(1 + again):
            opened.clear()
            db.anonymize(requested_policy).publish(tmp_path / "release.duckdb")
    assert opened == [tmp_path / "c.duckdb"] * 5
