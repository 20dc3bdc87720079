"""Persons are counted in every engine, and alike; and no id of one leaves the server that has the rows."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import sqlanon
from properties import persons_cases as cases
from sqlanon import pipeline
from sqlanon.engines.postgres.engine import PostgresEngine
from sqlanon.engines.spark.engine import SparkEngine
from support.lanes import some
from support.servers.postgres import VARIABLE, Server

POSTGRES = {"postgres": f"env:{VARIABLE}", "table": "visited.visits"}


def policy_of(tree: Mapping[str, Any], source: Mapping[str, Any]) -> sqlanon.Policy:
    return sqlanon.Policy(**tree, source={**source, "person": "pid"})


def check_same(db: sqlanon.Database, source: Mapping[str, Any], seed: int, folder: Path, **sections: Any) -> None:
    """Check that an engine finds, releases and verifies the same as DuckDB."""
    rows = visits_of(seed)
    tree = cases.tree(seed, **sections)
    with sqlanon.connect(cases.in_duckdb(rows)) as local:
        expected = cases.outcome(local, policy_of(tree, {"table": "visits"}), folder / "local.duckdb")
    assert cases.outcome(db, policy_of(tree, source), folder / "remote.duckdb") == expected


def visits_of(seed: int) -> list[tuple[Any, ...]]:
    return cases.visits(seed, movers=0.0 if seed % 4 == 3 else 0.4)


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(4))
def test_persons_are_counted_as_by_the_oracle(seed: int) -> None:
    rows = cases.visits(seed)
    tree = cases.tree(seed, search={"strategy": "incognito"}, privacy=cases.REQUIREMENTS[1])
    with sqlanon.connect(cases.in_duckdb(rows)) as db:
        result = db.anonymize(policy_of(tree, {"table": "visits"}))
        statuses = {tuple(levels): status for levels, status in result.lattice.project("levels, status").fetchall()}
    feasible = cases.feasible_by_oracle(cases.strip_persons(rows), 2, 2)
    assert feasible, "there is something to find"
    assert {levels for levels, status in statuses.items() if status == "satisfies"} == feasible


@pytest.mark.thorough
@pytest.mark.parametrize("seed", some(list(range(24)), 6))
def test_persons_of_random_visits_are_counted_in_postgres_as_in_duckdb(
    postgres: Server, tmp_path: Path, seed: int
) -> None:
    cases.in_postgres(postgres, visits_of(seed))
    with sqlanon.connect() as db:
        check_same(db, POSTGRES, seed, tmp_path)


@pytest.mark.thorough
@pytest.mark.spark
@pytest.mark.parametrize("seed", some(list(range(12)), 6))
def test_persons_of_random_visits_are_counted_in_spark_as_in_duckdb(session: Any, tmp_path: Path, seed: int) -> None:
    cases.in_spark(session, visits_of(seed), tmp_path)
    with sqlanon.connect(session) as db:
        check_same(db, {"table": "visits"}, seed, tmp_path)


@contextmanager
def fetched_values(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[str, Any]]]:
    """Everything that is fetched from a server within the test: names of columns, and values."""
    values: list[tuple[str, Any]] = []
    for engine in (PostgresEngine, SparkEngine):
        stream, rows = engine.stream, engine.rows

        @contextmanager
        def watched_stream(self: Any, query: Any, *more: Any, stream: Any = stream) -> Iterator[Any]:
            with stream(self, query, *more) as reader:
                table = reader.read_all()
                for name, column in zip(table.schema.names, table.columns, strict=True):
                    values.extend((name, value) for value in column.to_pylist())
                yield table.to_reader()

        def watched_rows(self: Any, query: Any, *more: Any, rows: Any = rows) -> list[tuple[Any, ...]]:
            answer = rows(self, query, *more)
            values.extend(("a row", value) for row in answer for value in row)
            return answer

        monkeypatch.setattr(engine, "stream", watched_stream)
        monkeypatch.setattr(engine, "rows", watched_rows)
    yield values
    monkeypatch.undo()


def check_nothing_but_counts(
    db: sqlanon.Database, source: Mapping[str, Any], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = cases.tree(1, privacy=cases.REQUIREMENTS[2], search={"suppression_limit": 0.3})
    file = folder / "release.duckdb"
    policy = policy_of(tree, source)
    with fetched_values(monkeypatch) as fetched:
        result = db.anonymize(policy)
        engine = result._run.engine.connection
        tables = engine.execute(
            "SELECT database_name, schema_name, table_name FROM duckdb_tables() WHERE NOT internal"
        ).fetchall()
        result.publish(file, "visits")
        assert db.verify(file, policy).verified
    assert len(fetched) > 500, "what is fetched is seen"
    assert not {name for name, _ in fetched if re.search(r"person\b|mover$|pid", name)}
    assert not [value for _, value in fetched if re.fullmatch(r" ?p\d+ *", str(value))]
    assert len(tables) > 5
    for names in tables:
        relation = ".".join(f'"{name}"' for name in names)
        columns = [name for name, *_ in engine.execute(f"DESCRIBE {relation}").fetchall()]
        assert not {"person", "pid", "mover"} & set(columns)
        rows = engine.execute(f"FROM {relation}").fetchall()
        assert not [value for row in rows for value in row if re.fullmatch(r" ?p\d+ *", str(value))]


@pytest.mark.slow
def test_nothing_but_counts_leaves_postgres(postgres: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cases.in_postgres(postgres, cases.visits(1))
    with sqlanon.connect() as db:
        check_nothing_but_counts(db, POSTGRES, tmp_path, monkeypatch)


@pytest.mark.spark
def test_nothing_but_counts_leaves_spark(session: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cases.in_spark(session, cases.visits(1), tmp_path)
    with sqlanon.connect(session) as db:
        check_nothing_but_counts(db, {"table": "visits"}, tmp_path, monkeypatch)


@pytest.mark.thorough
def test_masked_rows_and_releases_in_postgres_count_persons_too(postgres: Server, tmp_path: Path) -> None:
    """Masked rows are one class of all suppressed persons, who are counted there; and a release may go there, too."""
    rows = cases.visits(5)
    cases.in_postgres(postgres, rows)
    tree = cases.tree(5, privacy={"k": 3}, search={"suppression_limit": 0.3}, release={"suppressed": "mask"})
    remote_tree = cases.tree(5, privacy={"k": 3}, release={"postgres": POSTGRES["postgres"], "table": "shown.visits"})
    tree["release"]["table"] = "visits"
    postgres.run("DROP SCHEMA IF EXISTS shown CASCADE", "CREATE SCHEMA shown")
    with sqlanon.connect(cases.in_duckdb(rows)) as local, sqlanon.connect() as db:
        expected = cases.outcome(local, policy_of(tree, {"table": "visits"}), tmp_path / "local.duckdb")
        assert expected["suppressed_rows"] > 0
        assert cases.outcome(db, policy_of(tree, POSTGRES), tmp_path / "remote.duckdb") == expected
        policy = policy_of(remote_tree, POSTGRES)
        published = db.anonymize(policy).publish()
        assert published.verify().verified
        verification = db.verify(POSTGRES["postgres"], policy, "shown.visits")
        assert verification.verified, verification.failures


@pytest.mark.slow
def test_a_plan_counts_no_persons_and_shows_how(postgres: Server) -> None:
    cases.in_postgres(postgres, cases.visits(5))
    before = len(postgres.log())
    with sqlanon.connect() as db:
        text = str(db.plan(policy_of(cases.tree(5, privacy=cases.REQUIREMENTS[1]), POSTGRES)))
    assert "-- in PostgreSQL, makes movers_coded" in text
    assert "SELECT DISTINCT" in text and "visited" in text
    assert 'FROM "visited"."visits"' not in postgres.log()[before:]


@pytest.mark.slow
def test_requirements_that_need_the_person_of_each_row_are_refused(postgres: Server) -> None:
    cases.in_postgres(postgres, cases.visits(5))
    shield = {"k": 2, "k_anonymity": [{"quasi": ["age"], "k": 4}]}
    with sqlanon.connect() as db, pytest.raises(sqlanon.SourceError, match="persons have rows with different") as error:
        db.anonymize(policy_of(cases.tree(5, privacy=shield), POSTGRES))
    assert "never leaves PostgreSQL" in str(error.value)


@pytest.mark.thorough
def test_a_search_that_fails_leaves_nothing_in_postgres(postgres: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tables with ids go with the transaction, and the connection that has it is closed."""
    cases.in_postgres(postgres, cases.visits(5))

    def fail(*_: Any) -> None:
        temporary = postgres.rows("SELECT count(*) FROM pg_class WHERE relpersistence = 't' AND relkind = 'r'")
        assert temporary == [(0,)], "other sessions cannot see them while the transaction is open"
        raise KeyboardInterrupt

    monkeypatch.setattr("sqlanon.pipeline.run_search", fail)
    with sqlanon.connect() as db:
        with pytest.raises(KeyboardInterrupt):
            db.anonymize(policy_of(cases.tree(5), POSTGRES))
        busy = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'sqlanon' AND state <> 'idle'"
        assert postgres.rows(busy) == [(0,)]
        assert postgres.rows("SELECT count(*) FROM pg_class WHERE relpersistence = 't' AND relkind = 'r'") == [(0,)]


@pytest.mark.thorough
def test_rows_without_a_person_are_those_that_the_search_saw(postgres: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others lose their person while the search runs, and are committed: the warning counts the rows of the release."""
    rows = cases.visits(5)
    without = sum(row[cases.PERSON] is None for row in rows)
    assert 0 < without < len(rows)
    cases.in_postgres(postgres, rows)
    run_search = pipeline.run_search

    def change_and_search(*arguments: Any) -> Any:
        result = run_search(*arguments)
        postgres.run("UPDATE visited.visits SET pid = NULL")
        return result

    monkeypatch.setattr("sqlanon.pipeline.run_search", change_and_search)
    with sqlanon.connect() as db:
        result = db.anonymize(policy_of(cases.tree(5, privacy={"k": 3}), POSTGRES))
    assert postgres.rows("SELECT count(pid) FROM visited.visits") == [(0,)]
    (warning,) = [message for message in result.warnings if "no 'pid'" in message]
    assert warning.startswith(f"{without:,} row")
    assert result.persons == len({row[cases.PERSON] for row in cases.strip_persons(rows)})


@pytest.mark.thorough
@pytest.mark.spark
def test_local_strategies_on_spark_count_persons_of_one_combination(session: Any, tmp_path: Path) -> None:
    local = {"privacy": {"k": 3}, "search": {"strategy": "mondrian"}}
    cases.in_spark(session, visits_of(7), tmp_path)
    with sqlanon.connect(session) as db:
        check_same(db, {"table": "visits"}, 7, tmp_path, **local)
        cases.in_spark(session, visits_of(5), tmp_path)
        with pytest.raises(sqlanon.SourceError, match="strategy mondrian needs to know which rows are of one person"):
            db.anonymize(policy_of(cases.tree(5, **local), {"table": "visits"}))
