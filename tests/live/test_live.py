"""Live views: what readers see and cannot see, what is refused, how they are replaced and removed, the command."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import duckdb
import pytest
from live_tables import FORMS, SECRET, all_of, connection, live, policy_for

import sqlanon
from sqlanon import PolicyError, SourceError
from support.commands import cli
from support.databases import DUCKDB_1
from support.lanes import some
from support.policies import make_policy

__all__ = ["connection"]  # fixtures


def make_hospital(path: Path, storage: str | None = None) -> None:
    """Three wards of many, and one of a single patient, whose values are below and above all others."""
    with duckdb.connect() as connection:
        option = f" (STORAGE_VERSION '{storage}')" if storage else ""
        connection.execute(f"ATTACH '{path}' AS hospital{option}")
        connection.execute(
            "CREATE TABLE hospital.patients AS SELECT (i % 3)::VARCHAR AS ward, 'd' || (i % 4) AS diagnosis, "
            "(i % 50)::INTEGER AS cost, DATE '2020-01-01' + (i % 90)::INTEGER AS since, i AS id "
            "FROM range(3000) AS t(i)"
        )
        connection.execute(f"INSERT INTO hospital.patients VALUES ('7', '{SECRET}', -5, DATE '1900-01-01', -1)")


POLICY: dict[str, Any] = {
    "attributes": {
        "ward": "suppress",
        "diagnosis": "sensitive",
        "cost": "insensitive",
        "since": "insensitive",
        "id": "identifying",
    },
    "table": "patients",
    "search": {"suppression_limit": 0.01},
}


def hospital_policy(path: Path | None = None, **more: Any) -> sqlanon.Policy:
    sections = {**POLICY, **more}
    if path is not None:
        sections["source"] = {"database": path, "table": sections.pop("table")}
    return make_policy(k=5, **sections)


@pytest.fixture(scope="module", params=FORMS)
def hospital(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A hospital with a live view: plain as a file of storage version 1 has them, and secure."""
    path = tmp_path_factory.mktemp("live") / "hospital.duckdb"
    make_hospital(path, "v1.0.0" if request.param == "plain" else "v2.0.0")
    with sqlanon.connect() as db:
        view = db.live(hospital_policy(path))
    assert view.secure is (request.param == "secure")
    assert (view.rows, view.suppressed_rows, view.generalization) == (3001, 1, {"ward": 0})
    return path


@pytest.fixture
def reader(hospital: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect(hospital, read_only=True) as connection:
        yield connection


# --- what a reader cannot see

LOOKS = {
    "filter": "SELECT count(*) FROM patients_live WHERE {}",
    "filter of a kept column": "SELECT cost FROM patients_live WHERE ward > '' AND {}",
    "projection": "SELECT count({}) FROM patients_live",
    "aggregate": "SELECT count(*) FILTER (WHERE {}) FROM patients_live",
    "group": "SELECT {} AS g, count(*) FROM patients_live GROUP BY g",
    "having": "SELECT diagnosis, ward, cost FROM patients_live GROUP BY ALL HAVING {}",
    "order": "SELECT ward FROM patients_live ORDER BY {} LIMIT 3",
    "join": "SELECT count(*) FROM patients_live JOIN (VALUES ('7'), ('1')) AS o(w) ON ward = w AND {}",
    "left join": "SELECT count(*) FROM (VALUES ('7'), ('1')) AS o(w) LEFT JOIN patients_live ON {}",
    "exists": "SELECT w FROM (VALUES ('7'), ('1')) AS o(w) "
    "WHERE EXISTS (SELECT 1 FROM patients_live WHERE ward = w AND {})",
    "in": "SELECT count(*) FROM patients_live WHERE diagnosis IN (SELECT 'SECRET 4711') AND {}",
    "window": "SELECT rank() OVER (PARTITION BY ward ORDER BY {}) FROM patients_live",
    "qualify": "SELECT ward FROM patients_live QUALIFY row_number() OVER (PARTITION BY ward ORDER BY cost) < 3 AND {}",
    "union": "SELECT * FROM (FROM patients_live UNION ALL FROM patients_live) WHERE {}",
    "cte": "WITH t AS MATERIALIZED (FROM patients_live) SELECT count(*) FROM t WHERE {}",
    "lateral": "SELECT count(*) FROM patients_live AS p, LATERAL (SELECT p.cost AS c WHERE {}) AS l",
}
# What fails in the engine on the values of the one patient alone, and on no others.
ALARMS = {
    "ward cast": "CAST(CAST(ward AS INTEGER) * 40 AS UTINYINT) >= 0",
    "cost cast": "CAST(cost AS UTINYINT) >= 0",
    "since cast": "CAST(2200 - year(since) AS UTINYINT) >= 0",
    "in a list": "list_sum(list_transform([cost], lambda c: c::UTINYINT)) >= 0",
    "ward": "CASE WHEN ward = '7' THEN error('a hidden ward: ' || ward) ELSE true END",
    "diagnosis": "CASE WHEN diagnosis LIKE 'SEC%' THEN error('hidden: ' || diagnosis) ELSE true END",
    "cost": "CASE WHEN cost < 0 THEN error('hidden: ' || cost) ELSE true END",
    "cast": "CAST(substr(diagnosis, 2) AS INTEGER) >= 0",
}


@pytest.mark.thorough
@pytest.mark.parametrize("look", some(LOOKS, 4))
def test_no_condition_of_a_reader_meets_a_suppressed_row(reader: duckdb.DuckDBPyConnection, look: str) -> None:
    """A condition that fails on the values of a suppressed row would reveal them in its message."""
    for name, alarm in ALARMS.items():
        if look == "window" and name in ("ward", "diagnosis", "cost"):  # error() has no place there
            continue
        reader.execute(LOOKS[look].format(alarm)).fetchall()


@pytest.mark.thorough
def test_the_alarms_go_off_without_a_barrier(reader: duckdb.DuckDBPyConnection) -> None:
    for alarm in ALARMS.values():
        with pytest.raises(duckdb.Error):
            reader.execute(f"SELECT ward FROM patients WHERE {alarm}").fetchall()


@pytest.mark.slow
def test_statistics_do_not_reveal_suppressed_rows(reader: duckdb.DuckDBPyConnection) -> None:
    for column in ("ward", "diagnosis", "cost", "since"):
        of_table = str(reader.execute(f"SELECT stats({column}) FROM patients LIMIT 1").fetchone())
        assert any(secret in of_table for secret in ("7", "SECRET", "-5", "1900")), column
        of_view = str(reader.execute(f"SELECT stats({column}) FROM patients_live LIMIT 1").fetchone())
        assert not any(secret in of_view for secret in ("7", "SECRET", "-5", "1900", "d3", "49")), column
    least = reader.execute("SELECT min(cost), max(diagnosis), max(ward), min(since)::VARCHAR FROM patients_live")
    assert least.fetchall() == [(0, "d3", "2", "2020-01-01")]


QUESTIONS = [
    "SELECT {} FROM {} WHERE ward = '1'",
    "SELECT {} FROM {} WHERE ward <> '1' OR cost > 40",
    "SELECT {} FROM {} WHERE cost BETWEEN 3 AND 9 AND diagnosis <> 'd1'",
    "SELECT {} FROM {} WHERE ward IN ('7', '2') AND since < DATE '2020-02-01'",
    "SELECT {} FROM {} WHERE ward = (SELECT max(ward) FROM patients_live)",
    "SELECT {} FROM {} GROUP BY ward, diagnosis HAVING count(*) > 1 AND min(cost) < 2",
    "SELECT {} FROM {} WHERE false",
]


@pytest.mark.slow
@pytest.mark.parametrize("question", some(QUESTIONS, 4))
def test_reader_filters_apply_to_visible_rows_only(reader: duckdb.DuckDBPyConnection, question: str) -> None:
    """A condition, or an aggregate, on the view is one on all that it shows, copied."""
    reader.execute("CREATE TEMP TABLE copied AS SELECT ward, diagnosis, cost, since FROM patients_live")
    columns = "ward, count(*), sum(cost)" if "GROUP" in question else "ward, diagnosis, cost, since"
    answer, expected = (
        Counter(reader.execute(question.format(columns, place)).fetchall()) for place in ("patients_live", "copied")
    )
    assert answer == expected
    assert bool(answer) is ("false" not in question)


@pytest.mark.thorough
def test_row_order_is_independent_of_the_table(tmp_path: Path) -> None:
    """The order in which people came to the table must not show."""
    orders = []
    for place in ("there", "back"):
        (tmp_path / place).mkdir()
        path = tmp_path / place / "hospital.duckdb"
        make_hospital(path)
        with duckdb.connect(path) as connection:
            if place == "back":
                connection.execute("CREATE OR REPLACE TABLE patients AS FROM patients ORDER BY id DESC")
            live(connection, hospital_policy())
            orders.append(connection.execute("SELECT cost, since FROM patients_live").fetchall())
            rows = connection.execute("SELECT cost, since FROM patients WHERE ward <> '7'").fetchall()
            assert orders[-1] != rows
            assert Counter(orders[-1]) == Counter(rows)
    assert orders[0] == orders[1]


@pytest.mark.thorough
def test_settings_of_a_reader_change_no_class(tmp_path: Path) -> None:
    """Under another collation 'a' and 'A' would be one class of two each."""
    with duckdb.connect(tmp_path / "t.duckdb") as connection:
        connection.execute("CREATE TABLE t AS SELECT * FROM (VALUES ('a', 'x'), ('a', 'x'), ('A', 'X')) AS v(q, s)")
        with sqlanon.connect(connection) as db:
            db.live(make_policy({"q": "suppress", "s": "sensitive"}, search={"suppression_limit": 0.5}))
        expected = [("a", "x"), ("a", "x")]
        assert connection.execute("FROM t_live").fetchall() == expected
        connection.execute("SET default_collation = 'NOCASE'")
        assert connection.execute("SELECT * FROM t_live").fetchall() == expected


# --- what it shows


@pytest.mark.thorough
def test_hostile_names_make_a_live_view(connection: duckdb.DuckDBPyConnection) -> None:
    schema, name, column = 'my "schema"', "t; drop 'x", '"><script>.col'
    quote = {identifier: '"' + identifier.replace('"', '""') + '"' for identifier in (schema, name, column)}
    table = f"{quote[schema]}.{quote[name]}"
    connection.execute(f"CREATE SCHEMA {quote[schema]}")
    connection.execute(f'CREATE TABLE {table} AS SELECT 1 AS {quote[column]}, 2 AS "rows", 3 AS kept FROM range(4)')
    attributes = {column: "suppress", "rows": "suppress", "kept": "sensitive"}
    policy = make_policy(attributes, table=table, source={"table": table})
    view = '"my ""schema""".alive" -- '
    created = live(connection, policy, view)
    assert (created.view, created.schema) == (view, schema)
    relation = connection.execute(
        f"SELECT * FROM {quote[schema]}.{chr(34)}{view.replace(chr(34), chr(34) * 2)}{chr(34)}"
    )
    assert [column_[0] for column_ in relation.description or []] == [column, "rows", "kept"]
    assert relation.fetchall() == [(1, 2, 3)] * 4
    assert connection.execute("SELECT view, suppressed FROM sqlanon.live_views").fetchall() == [(view, 0)]


@pytest.mark.thorough
@pytest.mark.parametrize("name", some(["source", "rows", "classes", "live_views", "hierarchies", "alone"], 9))
def test_a_table_may_have_a_name_that_the_view_uses_itself(connection: duckdb.DuckDBPyConnection, name: str) -> None:
    connection.execute("CREATE SCHEMA sqlanon; CREATE TABLE sqlanon.hierarchies AS SELECT 7 AS q, 8 AS s")
    connection.execute(f'CREATE TABLE "{name}" AS SELECT 1 AS q, 2 AS s FROM range(3)')
    shield = {"k_anonymity": [{"quasi": ["q"], "k": 3}]}
    live(connection, policy_for(shield, table=name))
    assert all_of(connection, f"{name}_live") == [(1, 2)] * 3
    status = connection.execute('SELECT "rows", suppressed FROM sqlanon.live_views')
    assert status.fetchall() == [(3, 0)]


def make_policy_of_types(k: int) -> sqlanon.Policy:
    attributes = {
        "born": {"dates": ["month", "year"]},
        "weight": {"intervals": [10, 100]},
        "rank": "suppress",
        "alive": "suppress",
        "note": "insensitive",
    }
    return make_policy(attributes, k=k, search={"suppression_limit": 0.2, "measure": "height"})


@pytest.mark.thorough
def test_level_0_keeps_types_and_labels_are_text(connection: duckdb.DuckDBPyConnection) -> None:
    """Level 0 keeps its type, labels are text; an ENUM, which carries its whole dictionary, becomes text."""
    connection.execute("CREATE TYPE rank AS ENUM ('low', 'high', 'SECRET')")
    connection.execute(
        "CREATE TABLE t AS SELECT DATE '1980-05-01' + i::INTEGER AS born, (50 + i / 10)::DECIMAL(8, 2) AS weight, "
        "(CASE i % 2 WHEN 0 THEN 'low' ELSE 'high' END)::rank AS rank, i % 2 = 0 AS alive, "
        "['low'::rank] AS note FROM range(10) AS t(i)"
    )
    view = live(connection, make_policy_of_types(5))
    assert view.generalization == {"born": 1, "weight": 1, "rank": 0, "alive": 0}
    types = dict(connection.execute("SELECT column_name, column_type FROM (DESCRIBE t_live)").fetchall())
    expected = {"born": "VARCHAR", "weight": "VARCHAR", "rank": "VARCHAR", "alive": "BOOLEAN", "note": "VARCHAR[]"}
    assert types == expected
    assert Counter(connection.execute("SELECT born, weight, rank, alive FROM t_live").fetchall()) == {
        ("1980-05", "[50, 60)", "low", True): 5,
        ("1980-05", "[50, 60)", "high", False): 5,
    }


@pytest.mark.thorough
def test_null_is_a_value_of_its_own(connection: duckdb.DuckDBPyConnection) -> None:
    connection.execute("CREATE TABLE t AS SELECT 'x' || i % 2 AS q, 'y' AS top, i % 3 AS s FROM range(8) AS t(i)")
    top = {"role": "quasi", "hierarchy": "suppress", "min_level": 1}
    live(connection, make_policy({"q": "suppress", "top": top, "s": "sensitive"}, k=3))
    connection.execute("INSERT INTO t VALUES (NULL, NULL, 1), (NULL, 'y', NULL)")  # two alike, which is too few
    assert {row[0] for row in all_of(connection)} == {"x0", "x1"}
    connection.execute("INSERT INTO t VALUES (NULL, NULL, 2)")
    assert Counter(all_of(connection)) - Counter({("x0", "*", 0): 9}) >= Counter(
        {(None, "*", 1): 1, (None, "*", None): 1, (None, "*", 2): 1}
    )


@pytest.mark.thorough
def test_values_that_are_new_to_a_hierarchy_are_suppressed_at_its_top_too(
    connection: duckdb.DuckDBPyConnection,
) -> None:
    connection.execute("CREATE TABLE t AS SELECT 'x' AS q, 'y' AS top, 1 AS s FROM range(4)")
    top = {"role": "quasi", "hierarchy": "suppress", "min_level": 1}
    live(connection, make_policy({"q": "suppress", "top": top, "s": "sensitive"}))
    connection.execute("INSERT INTO t SELECT 'new', 'y', 2 FROM range(9) UNION ALL SELECT 'x', 'new', 3 FROM range(9)")
    assert all_of(connection) == [("x", "*", 1)] * 4
    rows = connection.execute('SELECT "rows", suppressed, "limit", search_advised FROM sqlanon.live_views').fetchall()
    assert rows == [(22, 18, 0, True)]


@pytest.mark.slow
def test_a_column_of_one_value_gets_others(connection: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    """A hierarchy of a single level has a single value: any other value is new, including NULL."""
    (tmp_path / "one.csv").write_text("x\n", encoding="utf-8")
    connection.execute("CREATE TABLE t AS SELECT 'x' AS q, 1 AS s FROM range(4)")
    live(connection, make_policy({"q": {"file": str(tmp_path / "one.csv")}, "s": "sensitive"}, k=3))
    connection.execute("INSERT INTO t VALUES (NULL, 2), ('y', 3)")
    assert all_of(connection) == [("x", 1)] * 4


@pytest.mark.slow
def test_a_forbidden_label_is_never_shown(connection: duckdb.DuckDBPyConnection) -> None:
    """The search chooses a level at which no value of the source has the label; later a value may have it."""
    tree = {"a": ["a1", "a2"], "b": ["b1", "b2"]}
    connection.execute("CREATE TABLE t AS SELECT 'a' || 1 + i % 2 AS q, 1 AS s FROM range(4) AS t(i)")
    quasi = {"role": "quasi", "hierarchy": {"categories": tree}, "forbidden": ["b"], "min_level": 1}
    view = live(connection, make_policy({"q": quasi, "s": "sensitive"}))
    assert view.generalization == {"q": 1}
    connection.execute("INSERT INTO t SELECT 'b1', 2 FROM range(9)")
    assert all_of(connection) == [("a", 1)] * 4


@pytest.mark.slow
def test_emptied_and_empty_tables_show_no_rows(connection: duckdb.DuckDBPyConnection) -> None:
    connection.execute("CREATE TABLE t AS SELECT 1 AS q, 2 AS s FROM range(4)")
    l_and_t = {
        "l_diversity": [{"attribute": "s", "kind": "entropy", "l": 1}],
        "t_closeness": [{"attribute": "s", "distance": "ordered", "t": 0.1}],
    }
    policy = policy_for(l_and_t)
    live(connection, policy)
    connection.execute("DELETE FROM t")
    assert all_of(connection) == []
    status = connection.execute('SELECT "rows", suppressed, search_advised FROM sqlanon.live_views')
    assert status.fetchall() == [(0, 0, False)]
    with pytest.raises(sqlanon.InfeasibleError, match="no rows"):
        live(connection, policy)


@pytest.mark.slow
def test_a_column_that_is_added_never_appears(connection: duckdb.DuckDBPyConnection) -> None:
    connection.execute("CREATE TABLE t AS SELECT 1 AS q, 2 AS s, 'name' AS name FROM range(4)")
    live(connection, make_policy({"q": "suppress", "s": "sensitive", "name": "identifying"}))
    connection.execute("ALTER TABLE t ADD COLUMN secret VARCHAR DEFAULT 'x'")
    assert all_of(connection) == [(1, 2)] * 4
    connection.execute("ALTER TABLE t DROP COLUMN name")
    assert all_of(connection) == [(1, 2)] * 4
    connection.execute("ALTER TABLE t DROP COLUMN s")
    with pytest.raises(duckdb.Error):
        all_of(connection)


# --- while the table changes


def change(writer: duckdb.DuckDBPyConnection, stop: threading.Event) -> None:
    n = 0
    while not stop.is_set():
        n += 1
        writer.execute("DELETE FROM t WHERE random() < 0.3")
        writer.execute("INSERT INTO t (q, s) SELECT i % 7, (random() * 3)::INTEGER FROM range(21) AS t(i)")
        writer.execute("UPDATE t SET q = (q + 1) % 9 WHERE random() < 0.1")
        if n % 5 == 0:
            writer.execute(f"ALTER TABLE t ADD COLUMN more_{n} INTEGER")


def look(reader: duckdb.DuckDBPyConnection, stop: threading.Event, seen: set[int]) -> None:
    while not stop.is_set():
        try:
            rows = reader.execute("SELECT q, s FROM t_live").fetchall()
        except duckdb.TransactionException:  # the table was altered between binding and reading
            continue
        classes = Counter(row[0] for row in rows)
        assert all(n >= 4 for n in classes.values()), classes
        assert all(len({s for q, s in rows if q == class_}) >= 3 for class_ in classes)
        assert {q for q, _ in rows} <= set(range(7))
        seen.add(len(rows))


@pytest.mark.thorough
@pytest.mark.parametrize("seconds", [0.5, pytest.param(5, marks=pytest.mark.slow)])
def test_every_look_satisfies_the_policy_while_others_write(tmp_path: Path, seconds: float) -> None:
    with duckdb.connect(tmp_path / "t.duckdb") as connection:
        connection.execute("CREATE TABLE t AS SELECT i % 7 AS q, i % 4 AS s FROM range(70) AS t(i)")
        privacy = {"k": 4, "l_diversity": [{"attribute": "s", "kind": "distinct", "l": 3}]}
        live(connection, policy_for(privacy, search={"suppression_limit": 0.5}))
        stop, seen = threading.Event(), set[int]()
        with ThreadPoolExecutor(3) as pool:
            workers = [pool.submit(change, connection.cursor(), stop)]
            workers += [pool.submit(look, connection.cursor(), stop, seen) for _ in range(2)]
            wait(workers, seconds, FIRST_EXCEPTION)
            stop.set()
        for worker in workers:
            worker.result()
        assert len(seen) > 1


# --- making, replacing, removing


@pytest.mark.slow
def test_the_statements_are_those_that_are_run_and_nothing_is_written(tmp_path: Path) -> None:
    path = tmp_path / "hospital.duckdb"
    make_hospital(path)
    before = path.read_bytes()
    with sqlanon.connect(path) as db:
        statements = db.live_sql(hospital_policy())
        assert path.read_bytes() == before
        db.live(hospital_policy())
        again = db.live_sql(hospital_policy())
        release = db.anonymize(hospital_policy())  # what reads the file goes on as before
        assert release.generalization == {"ward": 0}
    assert "patients_live" in statements
    assert 'DROP VIEW IF EXISTS "main"."patients_live"' in again
    with duckdb.connect(path) as connection:
        (text,) = (
            connection.execute("SELECT sql FROM duckdb_views() WHERE view_name = 'patients_live'").fetchone() or ()
        )
        assert ("SECURE" in text.upper().partition("VIEW")[0]) is ("CREATE SECURE VIEW" in statements) is not DUCKDB_1
        names = connection.execute("SELECT table_name FROM duckdb_tables() WHERE schema_name = 'sqlanon'").fetchall()
        assert sorted(names) == [("live_1_ward",), ("live_definitions",)]


@pytest.mark.slow
def test_the_hierarchies_hold_labels_of_the_chosen_level_only(connection: duckdb.DuckDBPyConnection) -> None:
    connection.execute("CREATE TABLE t AS SELECT 20 + i % 10 AS age, 1 AS s FROM range(20) AS t(i)")
    live(connection, make_policy({"age": {"intervals": [5, 10]}, "s": "sensitive"}, k=10))
    rows = connection.execute("SELECT DISTINCT label FROM sqlanon.live_1_age ORDER BY label NULLS LAST").fetchall()
    assert rows == [("20-24",), ("25-29",), (None,)]


@pytest.mark.thorough
def test_a_live_view_is_replaced_as_a_whole_and_others_stay(connection: duckdb.DuckDBPyConnection) -> None:
    connection.execute("CREATE TABLE t AS SELECT i % 4 AS q, i % 2 AS s FROM range(40) AS t(i)")
    policy = make_policy({"q": "suppress", "s": "sensitive"})
    assert live(connection, policy).replaced is False
    live(connection, policy, "other")
    connection.execute("INSERT INTO t SELECT 9, 1 FROM range(5)")
    assert len(all_of(connection)) == 40
    assert live(connection, policy, "T_LIVE").replaced is True
    assert len(all_of(connection)) == 45
    assert len(all_of(connection, "other")) == 40
    rows = connection.execute("SELECT view, suppressed FROM sqlanon.live_views ORDER BY view").fetchall()
    assert sorted(rows) == [("T_LIVE", 0), ("other", 5)]


def objects(connection: duckdb.DuckDBPyConnection) -> list[str]:
    rows = connection.execute("SELECT table_name FROM duckdb_tables() UNION ALL SELECT sql FROM duckdb_views()")
    return sorted(row[0] for row in rows.fetchall())


@pytest.mark.slow
def test_a_failed_replacement_is_rolled_back(connection: duckdb.DuckDBPyConnection) -> None:
    """A table has the name that a statement needs: everything before that statement is undone."""
    connection.execute("CREATE TABLE t AS SELECT i % 4 AS q FROM range(40) AS t(i)")
    policy = make_policy({"q": "suppress"})
    live(connection, policy)
    connection.execute("DROP VIEW sqlanon.live_1_status; CREATE VIEW sqlanon.live_2_q AS SELECT 1 AS a")
    connection.execute("UPDATE sqlanon.live_definitions SET id = 2, tables = ['live_1_q']")
    before = objects(connection)
    with pytest.raises(SourceError, match="cannot be written"):
        live(connection, policy)
    assert objects(connection) == before
    assert len(all_of(connection)) == 40


@pytest.mark.thorough
def test_drop_removes_only_the_named_view(connection: duckdb.DuckDBPyConnection) -> None:
    connection.execute("CREATE TABLE t AS SELECT i % 4 AS q FROM range(40) AS t(i)")
    policy = make_policy({"q": "suppress"})
    live(connection, policy)
    live(connection, policy, "other")
    with sqlanon.connect(connection) as db:
        assert db.drop_live(policy, "OTHER") == "other"
        assert connection.execute("SELECT view FROM sqlanon.live_views").fetchall() == [("t_live",)]
        with pytest.raises(SourceError, match="live view 'other': does not exist; the live views are 't_live'"):
            db.drop_live(policy, "other")
        assert db.drop_live(policy) == "t_live"
    left = connection.execute("SELECT table_name FROM information_schema.tables").fetchall()
    assert left == [("t",)]


@pytest.mark.slow
@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TABLE t_live AS SELECT 1 AS a",
        "CREATE VIEW T_Live AS SELECT 1 AS a",
        "CREATE VIEW sqlanon.live_views AS SELECT 1 AS a",
    ],
)
def test_foreign_objects_are_never_replaced(connection: duckdb.DuckDBPyConnection, statement: str) -> None:
    connection.execute(
        f"CREATE TABLE t AS SELECT i % 4 AS q FROM range(40) AS t(i); CREATE SCHEMA sqlanon; {statement}"
    )
    with pytest.raises(SourceError, match=r"sqlanon (live )?did not create"):
        live(connection, make_policy({"q": "suppress"}))
    assert connection.execute(f"FROM {statement.split()[2]}").fetchall() == [(1,)]


@pytest.mark.thorough
def test_a_foreign_view_in_place_of_a_live_view_is_kept(connection: duckdb.DuckDBPyConnection) -> None:
    connection.execute("CREATE TABLE t AS SELECT i % 4 AS q FROM range(40) AS t(i)")
    policy = make_policy({"q": "suppress"})
    live(connection, policy)
    connection.execute("CREATE OR REPLACE VIEW t_live AS SELECT 1 AS a")
    with sqlanon.connect(connection) as db:
        for verb in (db.live, db.drop_live):
            with pytest.raises(SourceError, match="did not create"):
                verb(policy)
    assert all_of(connection) == [(1,)]


@pytest.mark.slow
def test_the_table_itself_has_the_name(connection: duckdb.DuckDBPyConnection) -> None:
    connection.execute("CREATE TABLE t AS SELECT i % 4 AS q FROM range(40) AS t(i)")
    with pytest.raises(SourceError, match="there is a table 't' that sqlanon live did not create"):
        live(connection, make_policy({"q": "suppress"}), "t")


# --- what is refused


def test_all_settings_that_a_view_cannot_keep_are_reported_at_once() -> None:
    policy = policy_for(
        {"k": 2, "average_risk": 0.5, "sample_uniqueness": 0.0},
        {"q": "suppress"},
        source={"query": "SELECT * FROM t"},
        table=None,
        release={"table": "r", "suppressed": "mask"},
    )
    with duckdb.connect() as connection, sqlanon.connect(connection) as db, pytest.raises(PolicyError) as refused:
        db.live(policy)
    assert [problem.place for problem in refused.value.problems] == [
        "source.query",
        "privacy.average_risk",
        "privacy.sample_uniqueness",
        "release.suppressed",
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("privacy", "sections", "places"),
    [
        ({"k_map": 2}, {"population": {"table": "people"}}, ["population", "privacy.k_map"]),
        (
            {"delta_presence": {"max": 0.5}},
            {"population": {"table": "people"}},
            ["population", "privacy.delta_presence"],
        ),
        (
            {"population_uniqueness": {"limit": 0.1, "estimator": "zayatz", "sampling_fraction": 0.1}},
            {},
            ["privacy.population_uniqueness"],
        ),
        ({"k": 2}, {"release": {"table": "r", "after": "all"}, "catalog": {"database": "c"}}, ["release.after"]),
    ],
)
def test_populations_and_earlier_releases_are_refused(
    privacy: dict[str, Any], sections: dict[str, Any], places: list[str]
) -> None:
    policy = policy_for(privacy, {"q": "suppress", "id": "identifying"}, **sections)
    with duckdb.connect() as connection, sqlanon.connect(connection) as db, pytest.raises(PolicyError) as refused:
        db.live(policy)
    assert [problem.place for problem in refused.value.problems] == places


@pytest.mark.slow
def test_noise_and_decoys_are_refused() -> None:
    noisy = make_policy({"q": "suppress", "height": {"role": "quasi", "noise": {"epsilon": 1}}})
    decoys = make_policy({"q": "suppress"}, release={"table": "r", "decoys": True})
    with duckdb.connect() as connection, sqlanon.connect(connection) as db:
        for policy, place in ((noisy, "attributes.height.noise"), (decoys, "release.decoys")):
            with pytest.raises(PolicyError) as refused:
                db.live(policy)
            assert [problem.place for problem in refused.value.problems] == [place]


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("search", "place"),
    [({"strategy": "mondrian"}, "search.strategy"), ({"suppression": "cells"}, "search.suppression")],
)
def test_recoding_below_the_full_domain_is_refused(search: dict[str, Any], place: str) -> None:
    with duckdb.connect() as connection, sqlanon.connect(connection) as db, pytest.raises(PolicyError) as refused:
        db.live(make_policy({"q": "suppress"}, search=search))
    assert [problem.place for problem in refused.value.problems] == [place]


@pytest.mark.slow
def test_live_views_refuse_files_and_data_frames(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("q\n1\n1\n", encoding="utf-8")
    with sqlanon.connect(tmp_path / "t.csv") as db, pytest.raises(PolicyError, match="a view needs a database"):
        db.live(make_policy({"q": "suppress"}, table=None))
    arrow = duckdb.connect().sql("SELECT 1 AS q FROM range(4)").to_arrow_table()
    with (
        sqlanon.connect(arrow) as db,
        pytest.raises(SourceError, match="a live view needs a table in a DuckDB database"),
    ):
        db.live(make_policy({"q": "suppress"}, table=None))
    attributes = {"q": {"role": "quasi", "hierarchy": "suppress"}}
    elsewhere = sqlanon.Policy(
        source={"postgres": "postgresql://localhost/h", "table": "t"}, attributes=attributes, privacy={"k": 2}
    )
    with (
        sqlanon.connect() as db,
        pytest.raises(SourceError, match="a live view needs a table in a DuckDB database"),
    ):  # without a prompt
        db.live(elsewhere)


@pytest.mark.slow
def test_temporary_table_is_refused_as_live_source(connection: duckdb.DuckDBPyConnection) -> None:
    connection.execute("CREATE TEMP TABLE t AS SELECT 1 AS q FROM range(4)")
    with pytest.raises(SourceError, match="a temporary table"):
        live(connection, make_policy({"q": "suppress"}))


@pytest.mark.slow
def test_a_file_named_like_the_schema_of_sqlanon_is_refused(tmp_path: Path) -> None:
    make_hospital(tmp_path / "sqlanon.duckdb")
    with sqlanon.connect(tmp_path / "sqlanon.duckdb") as db, pytest.raises(SourceError, match="rename the file"):
        db.live(hospital_policy())


# --- the command


@pytest.fixture
def policy_file(tmp_path: Path) -> Path:
    make_hospital(tmp_path / "hospital.duckdb")
    lines = [
        '[source]\ndatabase = "hospital.duckdb"\ntable = "patients"\n[attributes]',
        *(f'{name} = {{ role = "{role}" }}' for name, role in POLICY["attributes"].items() if role != "suppress"),
        'ward = { role = "quasi", hierarchy = "suppress" }\n[privacy]\nk = 5\n[search]\nsuppression_limit = 0.01',
    ]
    (tmp_path / "policy.toml").write_text("\n".join(lines), encoding="utf-8")
    return tmp_path / "policy.toml"


def test_live_command_prints_its_figures(policy_file: Path) -> None:
    ended = cli("live", policy_file)
    status, output = ended.status, ended.out
    assert status == 0
    assert "3,000 of 3,001 rows shown now, 1 suppressed (limit 30)" in output
    assert ("(secure)" in output) is not DUCKDB_1
    ended = cli("live", policy_file, "--name", "again", "--json")
    status, output = ended.status, ended.out
    document = json.loads(output)
    assert (document["view"], document["rows"], document["suppressed_rows"], document["replaced"]) == (
        "again",
        3001,
        1,
        False,
    )
    assert document["database"] == str(policy_file.parent / "hospital.duckdb")
    assert SECRET not in output
    with duckdb.connect(policy_file.parent / "hospital.duckdb") as connection:
        views = connection.execute("SELECT view, suppressed FROM sqlanon.live_views ORDER BY ALL").fetchall()
        assert views == [("again", 1), ("patients_live", 1)]
    ended = cli("live", policy_file, "--name", "again", "--drop")
    status, output = ended.status, ended.out
    assert (status, "dropped: view again " in output) == (0, True)


@pytest.mark.slow
def test_the_live_command_reports_refusals_by_exit_status(policy_file: Path) -> None:
    ended = cli("live", policy_file, "--name", "again", "--drop")
    status, output = ended.status, ended.err
    assert (status, "live view 'again': does not exist" in output) == (2, True)
    with duckdb.connect(policy_file.parent / "hospital.duckdb") as connection:
        ended = cli("live", policy_file)  # somebody has it
        status, output = ended.status, ended.err
        assert (status, "cannot be opened" in output) == (2, True)
        connection.execute("DELETE FROM patients")
    ended = cli("live", policy_file)
    status, output = ended.status, ended.err
    assert (status, "no rows" in output) == (1, True)
    policy_file.write_text(policy_file.read_text(encoding="utf-8") + '\nstrategy = "mondrian"\n', encoding="utf-8")
    ended = cli("live", policy_file)
    status, output = ended.status, ended.err
    assert (status, "search.strategy" in output) == (2, True)
