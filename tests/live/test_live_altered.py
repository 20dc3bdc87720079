"""Live views of a table whose columns change their types or vanish: nothing is revealed, and other views still work."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest
from live_tables import FORMS, SECRET, all_of, live, policy_for

import sqlanon
from sqlanon import SourceError
from support.commands import cli
from support.lanes import some
from support.policies import make_policy

pytestmark = pytest.mark.slow


@pytest.fixture
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        yield connection


# --- a column of another type

TABLE = (
    "SELECT (20 + i % 3 * 20)::INTEGER AS age, ['f', 'm'][1 + i % 2] AS sex, DATE '1980-05-01' + (i % 2)::INTEGER AS "
    "born, ['a', 'b'][1 + i % 2]::ENUM('a', 'b') AS rank, (i % 4)::INTEGER AS diagnosis, 'd' || i % 4 AS other, "
    "(i % 50)::INTEGER AS cost, (i % 2 = 0) AS alive, 'n' || i % 7 AS note FROM range(600) AS t(i)"
)
ATTRIBUTES: dict[str, Any] = {
    "age": {"intervals": [10, 20]},
    "sex": "suppress",
    "born": {"role": "quasi", "hierarchy": {"dates": ["month", "year"]}, "min_level": 1},
    "rank": {"role": "quasi", "hierarchy": "suppress", "min_level": 1},
    "diagnosis": {"role": "sensitive", "hierarchy": {"intervals": [2]}},
    "other": "sensitive",
    "cost": "insensitive",
    "alive": "insensitive",
    "note": "insensitive",
}
PRIVACY: dict[str, Any] = {
    "k": 5,
    "l_diversity": [{"attribute": "other", "kind": "entropy", "l": 1}],
    "t_closeness": [
        {"attribute": "diagnosis", "distance": "hierarchical", "t": 0.9},
        {"attribute": "other", "distance": "ordered", "t": 0.9},
    ],
}


@pytest.fixture(scope="module", params=FORMS)
def altered_view(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    path = tmp_path_factory.mktemp("altered") / "t.duckdb"
    with duckdb.connect() as maker:
        storage = "v1.0.0" if request.param == "plain" else "v2.0.0"
        maker.execute(f"ATTACH '{path}' AS h (STORAGE_VERSION '{storage}'); CREATE TABLE h.t AS {TABLE}")
    with duckdb.connect(path) as connection:
        view = live(connection, policy_for(PRIVACY, ATTRIBUTES, search={"suppression_limit": 0.1}))
        assert view.secure is (request.param == "secure")
        assert view.suppressed_rows == 0
        yield connection


LOOKS = [
    "SELECT count(*) FROM t_live",
    "SELECT * FROM t_live",
    "SELECT count(*) FROM t_live WHERE age > 3 AND cost < 100 AND other <> 'd1'",
    "SELECT count(*) FROM t_live WHERE diagnosis = 4711 OR note = 'x' OR NOT alive",
]
# The type that a column gets, what its values become, and a value that is of no other type.
OTHER_TYPES = {
    "VARCHAR": ("{}::VARCHAR", f"'{SECRET}'"),
    "DOUBLE": ("4.5", "4.711e300"),
    "DECIMAL(38, 2)": ("4.5", "471147114711471147114711.47"),
    "TIMESTAMPTZ": ("'2001-01-01'", "'4711-04-07 11:47:11+00'"),
    "VARCHAR[]": ("['x']", f"['{SECRET}']"),
    "STRUCT(a VARCHAR)": ("{{'a': 'x'}}", f"{{'a': '{SECRET}'}}"),
}


@pytest.mark.parametrize("column", some(["age", "diagnosis", "others"], 3))
def test_changed_column_type_reveals_no_values(altered_view: duckdb.DuckDBPyConnection, column: str) -> None:
    """Comparing the values to those of the hierarchies would cast them, and the error would reveal invalid ones."""
    types = dict(altered_view.execute("SELECT column_name, column_type FROM (DESCRIBE t)").fetchall())
    for name in [name for name in types if name not in ("age", "diagnosis")] if column == "others" else [column]:
        for type_, (usual, odd) in [*OTHER_TYPES.items()][:: 1 if column == "others" else 2]:
            if types[name] == type_:
                continue
            altered_view.execute(f"ALTER TABLE t ALTER {name} TYPE {type_} USING ({usual.format(name)})::{type_}")
            altered_view.execute(f"INSERT INTO t SELECT * REPLACE ({odd} AS {name}) FROM t LIMIT 30")
            seen = [altered_view.execute(look).fetchall() for look in LOOKS]
            assert seen == [[(0,)], [], [(0,)], [(0,)]], (name, type_)
            rows = altered_view.execute('SELECT "rows", suppressed, search_advised FROM sqlanon.live_views').fetchall()
            assert rows == [(630, 630, True)], (name, type_)
            altered_view.execute(f"CREATE OR REPLACE TABLE t AS {TABLE}")
            assert altered_view.execute("SELECT count(*) FROM t_live").fetchall() == [(600,)]


def test_unchanged_column_type_is_accepted(connection: duckdb.DuckDBPyConnection) -> None:
    values = [
        "1::UTINYINT",
        "2::HUGEINT",
        "1.5::DECIMAL(10, 3)",
        "1.5::FLOAT",
        "'x' COLLATE nocase",
        "'1'::BLOB",
        "'101'::BIT",
        "uuid()",
        "now()",
        "now()::TIMESTAMP_NS",
        "'10:00'::TIME",
        "'10:00:00+01'::TIMETZ",
        "INTERVAL 40 DAYS",
        "[1, 2]",
        "[1, 2]::INTEGER[2]",
        "{'a b': 1, 'c': 'x'}",
        "MAP {'a': 1}",
        "union_value(a := 1)",
        "'{}'::JSON",
        "['a'::ENUM('a', 'it''s, (b)')]",
        "{'a': 'a'::ENUM('a', 'b')}",
    ]
    columns = ", ".join(f"{value} AS v{i}" for i, value in enumerate(values))
    connection.execute(f"CREATE TABLE t AS SELECT 1 AS q, {columns} FROM range(3)")
    live(connection, make_policy({"q": "suppress", **{f"v{i}": "insensitive" for i in range(len(values))}}))
    rows = connection.execute("SELECT COLUMNS(*)::VARCHAR FROM t_live ORDER BY ALL").fetchall()
    expected = connection.execute(
        "SELECT COLUMNS(* REPLACE (INTERVAL '1 month 10 days' AS v12))::VARCHAR FROM t ORDER BY ALL"
    )
    assert rows == expected.fetchall()


@pytest.mark.thorough
def test_an_enum_may_grow_and_its_dictionary_is_in_no_view(connection: duckdb.DuckDBPyConnection) -> None:
    connection.execute(
        "CREATE TABLE t AS SELECT ['a', 'A'][1 + i % 2]::ENUM('a', 'A', 'SECRET') AS q FROM range(5) AS t(i)"
    )
    live(connection, make_policy({"q": "suppress"}, k=2))
    connection.execute("ALTER TABLE t ALTER q TYPE ENUM('SECRET', 'A', 'a', 'more')")
    expected = [("A",)] * 2 + [("a",)] * 3
    assert all_of(connection) == expected
    connection.execute("INSERT INTO t SELECT 'more' FROM range(3)")
    connection.execute("DELETE FROM t WHERE rowid < 2")
    connection.execute("SET default_collation = 'NOCASE'")
    assert all_of(connection) == [("a",)] * 2  # one 'A', which is another class
    texts = connection.execute("SELECT sql FROM duckdb_views() WHERE NOT internal").fetchall()
    assert len(texts) == 3
    assert "SECRET" not in str(texts)


# --- a table that is gone, or a column of it


def policy_of(table: str, **attributes: Any) -> sqlanon.Policy:
    return make_policy({"q": "suppress", **attributes}, table=table)


@pytest.fixture
def two(connection: duckdb.DuckDBPyConnection) -> duckdb.DuckDBPyConnection:
    for name in ("t", "u"):
        connection.execute(f"CREATE TABLE {name} AS SELECT i % 3 AS q, i % 2 AS z FROM range(90) AS t(i)")
        live(connection, policy_of(name, z="suppress"))
    return connection


BREAKING = ["ALTER TABLE u DROP COLUMN z", "DROP TABLE u"]


@pytest.mark.thorough
@pytest.mark.parametrize("breaking", some(BREAKING, 2))
def test_a_broken_view_holds_up_no_other(two: duckdb.DuckDBPyConnection, breaking: str) -> None:
    two.execute(breaking)
    policy = policy_of("t", z="suppress")
    assert live(two, policy).warnings == (
        "the live view 'u_live' in schema 'main' is broken: its table, or a column of it, is gone; "
        "create it again with its policy, or remove it with --drop",
    )
    assert live(two, policy, "more").replaced is False
    status = 'SELECT view, "rows", suppressed, search_advised FROM sqlanon.live_views ORDER BY view'
    expected = [("more", 90, 0, False), ("t_live", 90, 0, False), ("u_live", None, None, True)]
    assert two.execute(status).fetchall() == expected
    with sqlanon.connect(two) as db:
        assert "u_live" not in db.live_sql(policy)
        assert db.drop_live(policy) == "t_live"
        assert two.execute(status).fetchall() == [expected[0], expected[2]]
        assert db.drop_live(policy_of("t"), "more") == "more"
        assert two.execute(status).fetchall() == expected[2:]
        assert db.drop_live(policy_of("u")) == "u_live"
    assert two.execute("SELECT count(*) FROM duckdb_tables() WHERE schema_name = 'sqlanon'").fetchall() == [(0,)]


@pytest.mark.thorough
def test_a_broken_view_is_made_again(two: duckdb.DuckDBPyConnection) -> None:
    two.execute("ALTER TABLE u DROP COLUMN z")
    view = live(two, policy_of("u"))
    assert (view.replaced, view.warnings) == (True, ())
    assert [column[0] for column in two.execute("FROM u_live").description or []] == ["q"]
    assert two.execute('SELECT count(*) FROM sqlanon.live_views WHERE "rows" = 90').fetchall() == [(2,)]


def test_a_view_whose_table_is_gone_is_dropped_by_the_name_in_the_policy(
    connection: duckdb.DuckDBPyConnection,
) -> None:
    connection.execute('CREATE SCHEMA a; CREATE SCHEMA b; CREATE SCHEMA "c.d"')
    tables = ["a.t", "b.t", '"c.d"."e ""f"""', '"x.y"']
    for name in tables:
        connection.execute(f"CREATE TABLE {name} AS SELECT i % 3 AS q FROM range(90) AS t(i)")
        live(connection, policy_of(name))
    connection.execute("CREATE TEMP TABLE v AS SELECT 1 AS q")
    for name in tables:
        connection.execute(f"DROP TABLE {name}")
    with sqlanon.connect(connection) as db:
        with pytest.raises(SourceError, match="in schemas 'a', 'b'; name the table with its schema"):
            db.drop_live(policy_of("t"))
        with pytest.raises(
            SourceError, match=r"live view 'v_live': does not exist; the live views are 't_live', 't_live', 'e"
        ):
            db.drop_live(policy_of("v"))
        dropped = [db.drop_live(policy_of(name)) for name in ["b.t", tables[2], "x.y", "t"]]
    assert dropped == ["t_live", 'e "f"_live', "x.y_live", "t_live"]


# --- names


@pytest.mark.parametrize("name", ["live_views", "LIVE_Definitions"])
def test_names_of_support_tables_are_refused(name: str) -> None:
    with duckdb.connect() as connection, pytest.raises(SourceError, match="cannot be called"):
        connection.execute("CREATE TABLE t AS SELECT 1 AS q FROM range(3)")
        live(connection, make_policy({"q": "suppress"}), name)


@pytest.mark.parametrize("schema", ["clinic", "CLINIC", "sqlanon"])
def test_a_database_named_like_its_schema_is_refused(tmp_path: Path, schema: str) -> None:
    name = schema.lower()
    with duckdb.connect(tmp_path / f"{name}.duckdb") as connection:
        place = f'"{name}"."{schema}"'
        connection.execute(f"CREATE SCHEMA {place}; CREATE TABLE {place}.t AS SELECT 1 AS q FROM range(3)")
        with sqlanon.connect(connection) as db, pytest.raises(SourceError, match="attach it under another name"):
            db.live(policy_of(f"{name}.{schema}.t"))
    with sqlanon.connect(tmp_path / f"{name}.duckdb") as db, pytest.raises(SourceError, match="rename the file"):
        db.live(policy_of(f"{schema}.t"))


def test_a_file_named_main_is_a_source_of_live_views(tmp_path: Path) -> None:
    """DuckDB calls it otherwise itself."""
    with duckdb.connect(tmp_path / "main.duckdb") as connection:
        connection.execute("CREATE TABLE t AS SELECT 1 AS q FROM range(3)")
    with sqlanon.connect(tmp_path / "main.duckdb") as db:
        db.live(policy_of("t"))
    with duckdb.connect(tmp_path / "main.duckdb") as connection:
        assert all_of(connection) == [(1,)] * 3
        assert connection.execute('SELECT "rows" FROM sqlanon.live_views').fetchall() == [(3,)]


def test_a_name_with_lines_is_shown_on_one(tmp_path: Path) -> None:
    with duckdb.connect(tmp_path / "t.duckdb") as connection:
        connection.execute("CREATE TABLE t AS SELECT 1 AS q FROM range(3)")
    (tmp_path / "policy.toml").write_text(
        '[source]\ndatabase = "t.duckdb"\ntable = "t"\n[attributes]\nq = { role = "quasi", hierarchy = "suppress" }\n'
        "[privacy]\nk = 2\n",
        encoding="utf-8",
    )
    name = "a\nwarning: \x1b[2Jall is lost"
    for options, prefix in (([], "created: view "), (["--drop"], "dropped: view ")):
        ended = cli("live", tmp_path / "policy.toml", "--name", name, *options)
        status, output = ended.status, ended.out
        assert status == 0
        assert f"{prefix}a\\nwarning: \\x1b[2Jall is lost" in output
    ended = cli("live", tmp_path / "policy.toml", "--name", name, "--drop")
    status, output = ended.status, ended.err
    assert (status, output.count("\n"), "'a\\nwarning" in output) == (2, 1, True)
