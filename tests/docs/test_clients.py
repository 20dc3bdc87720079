"""The examples of docs/how-to/serving.md work with each program that reads a release, in a separate environment."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import pytest
from client_pages import PAGE, SECTIONS, VIEWS, prepared_folder, public, replace

from sqlanon import connect
from support.environments import PINS, node_modules, python_of, run
from support.pages import blocks
from support.policies import make_policy

__all__ = ["prepared_folder", "public"]  # fixtures

COLUMNS = ["zip", "birth_date", "sex", "ethnicity", "diagnosis", "cost"]
CATALOG = """
SELECT r.name, any_value(r.comment),
    list(c.column_name ORDER BY c.column_index), list(c.comment ORDER BY c.column_index)
FROM (
    SELECT table_name AS name, comment FROM duckdb_tables() WHERE schema_name = 'main'
    UNION ALL SELECT view_name, comment FROM duckdb_views() WHERE schema_name = 'main' AND NOT internal
) AS r JOIN duckdb_columns() AS c ON c.table_name = r.name AND c.schema_name = 'main'
GROUP BY r.name ORDER BY r.name
"""
"""Readable content of a release: its relations and columns with their comments."""
LOCKED = {"enable_external_access": "false", "lock_configuration": "true"}


def program(tool: str, language: str = "python") -> str:
    (block,) = blocks(language, SECTIONS[tool])
    return block


def last_comment(text: str, sign: str = "#") -> str:
    """Output that a program of the page announces: its last comment."""
    return re.findall(rf"{sign} (.*)$", text, re.MULTILINE)[-1]


def printed_text(python: str | Path, text: str, cwd: Path) -> str:
    done = run([python, "-c", text], cwd)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def check(python: str | Path, tool: str, cwd: Path) -> None:
    assert printed_text(python, program(tool), cwd) == last_comment(program(tool)), tool


def catalog_of(folder: Path) -> dict[str, tuple[str | None, list[tuple[str, str | None]]]]:
    """The comment of each relation of a release, and its columns with theirs, as DuckDB reads them in the tests."""
    with duckdb.connect(folder / "first.duckdb", read_only=True) as connection:
        relations = connection.execute(CATALOG).fetchall()
    return {name: (comment, list(zip(columns, texts, strict=True))) for name, comment, columns, texts in relations}


def check_catalog(relations: list[Any], folder: Path) -> None:
    """Check that another client sees all relations, columns and comments of the release."""
    seen = {name: (comment, list(zip(columns, texts, strict=True))) for name, comment, columns, texts in relations}
    assert seen == catalog_of(folder)
    assert set(seen) == {*VIEWS, "patients", "patients_v1", "birth_date_labels", "zip_labels"}
    for name in ("patients", "patients_v1"):
        comment, columns = seen[name]
        assert comment
        assert [column for column, _ in columns] == COLUMNS
        assert all(text for _, text in columns)


def check_views(rows: list[int], folder: Path) -> None:
    """Another client finds as many rows in the views."""
    with duckdb.connect(folder / "first.duckdb", read_only=True) as connection:
        expected = [connection.execute(f"SELECT count(*) FROM {name}").fetchall()[0][0] for name in VIEWS]
    assert rows == expected
    assert all(rows[:3])  # the suppressed part may be too small to detect


# --- DuckDB itself


@pytest.mark.thorough
def test_duckdb_prints_the_documented_rows(public: Path) -> None:
    check(sys.executable, "DuckDB", public)


@pytest.mark.thorough
def test_a_tool_lists_tables_columns_and_comments(public: Path) -> None:
    (script,) = blocks("sql", PAGE)
    queries = [part.strip() for part in re.sub(r"--.*", "", script).split(";") if part.strip()]
    with duckdb.connect(public / "first.duckdb", read_only=True) as connection:
        relations = [connection.sql(query) for query in queries]
        assert [relation.columns[0] for relation in relations] == [
            "zip", "attribute", "class_size", "attribute", "figure", "birth_date_low"
        ]  # fmt: skip
        rows = connection.execute("SELECT count(*) FROM patients").fetchall()[0][0]
        assert sum(count for _, count in relations[-1].fetchall()) == rows
        assert sum(count for *_, count in relations[2].fetchall()) == rows


@pytest.mark.slow
def test_the_file_is_put_in_its_place(public: Path) -> None:
    script = blocks("sh", PAGE.partition("## Lock the reader's process")[0])[-1]
    (public / "served").mkdir()
    (public / "served" / "first.duckdb").write_text("the old one")
    subprocess.run(["sh", "-e", "-c", script], cwd=public, check=True)
    assert [path.name for path in (public / "served").iterdir()] == ["first.duckdb"]
    assert (public / "served" / "first.duckdb").read_bytes() == (public / "first.duckdb").read_bytes()
    assert (public / "served" / "first.duckdb").stat().st_mode & 0o777 == 0o444


@pytest.mark.thorough
@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TABLE more (i INTEGER)",
        "INSERT INTO patients SELECT * FROM patients",
        "FROM 'outside.csv'",
        "FROM read_csv('outside.csv')",
        "ATTACH 'outside.duckdb' AS outside (READ_ONLY)",
        "COPY patients TO 'copied.csv'",
        "SET enable_external_access = true",
        "SET lock_configuration = false",
        "RESET enable_external_access",
    ],
)
def test_a_locked_reader_has_nothing_but_the_release(
    statement: str, public: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (public / "outside.csv").write_text("name\nAlice\n")
    duckdb.connect(public / "outside.duckdb").close()
    monkeypatch.chdir(public)
    before = sorted(path.name for path in public.iterdir())
    with duckdb.connect("first.duckdb", read_only=True, config=LOCKED) as connection:
        with pytest.raises(duckdb.Error):
            connection.execute(statement)
        assert connection.execute("SELECT count(*) > 0 FROM patients").fetchall() == [(True,)]
    assert sorted(path.name for path in public.iterdir()) == before


def other_process(how: str, cwd: Path) -> str:
    """Count by a second process that opens the release, or the end of its error."""
    opened = f"duckdb.connect('first.duckdb'{how})"
    text = f"import duckdb; print(*{opened}.execute('SELECT count(*) FROM patients').fetchone())"
    done = run([sys.executable, "-c", text], cwd)
    return done.stdout.strip() or done.stderr


@pytest.mark.thorough
def test_readers_and_writers_block_each_other_as_documented(public: Path) -> None:
    with duckdb.connect(public / "first.duckdb", read_only=True) as reader:
        (rows,) = reader.execute("SELECT count(*) FROM patients").fetchall()[0]
        assert other_process(", read_only=True", public) == str(rows)
        assert "Could not set lock on file" in other_process("", public)
    with duckdb.connect(public / "first.duckdb"):
        assert "Could not set lock on file" in other_process(", read_only=True", public)


@pytest.mark.slow
def test_relation_names_are_unique_across_schemas(public: Path) -> None:
    """SQLAlchemy's driver treats them as one table with the columns of both."""
    with duckdb.connect(public / "first.duckdb", read_only=True) as connection:
        names = connection.execute(
            "SELECT lower(table_name) FROM information_schema.tables WHERE table_schema IN ('main', 'sqlanon')"
        ).fetchall()
    assert ("figures",) in names
    assert len(set(names)) == len(names)


@pytest.mark.thorough
def test_a_reader_that_has_the_old_release_keeps_it(public: Path) -> None:
    path, count = public / "first.duckdb", "SELECT count(*) FROM patients"
    first = duckdb.connect(path, read_only=True)
    old = first.execute(count).fetchall()
    new = [(replace(public),)]
    assert new != old
    assert first.execute(count).fetchall() == old
    second = duckdb.connect(path, read_only=True)  # of the same process: it is given what is open
    assert second.execute(count).fetchall() == old
    assert other_process(", read_only=True", public) == "7"
    first.close()
    assert second.execute(count).fetchall() == old
    second.close()
    with duckdb.connect(path, read_only=True) as third:
        assert third.execute(count).fetchall() == new


@pytest.mark.slow
def test_an_attached_release_is_the_old_one_until_it_is_detached(public: Path) -> None:
    attach, count = f"ATTACH %s '{public / 'first.duckdb'}' AS r (READ_ONLY)", "SELECT count(*) FROM r.patients"
    with duckdb.connect() as connection:
        connection.execute(attach % "")
        old = connection.execute(count).fetchall()
        new = [(replace(public),)]
        connection.execute(attach % "OR REPLACE")
        assert connection.execute(count).fetchall() == old
        connection.execute("DETACH r")
        connection.execute(attach % "")
        assert connection.execute(count).fetchall() == new


def test_the_page_names_the_versions_that_are_tested() -> None:
    pins = "\n".join(file.read_text(encoding="utf-8") for file in PINS.iterdir())
    for tool, version in (
        ("duckdb==", "1.5.5"),
        ("pandas==", "3.1"),
        ("polars==", "2.1"),
        ("pyarrow==", "26"),
        ("SQLAlchemy==", "2.0.54"),
        ("duckdb-engine==", "0.17"),
        ("apache-superset==", "6.1"),
        ('"@duckdb/node-api": "', "1.5.6"),
    ):
        assert f"{tool}{version}" in pins
        assert version in PAGE


# --- the others, in environments of their own


@pytest.mark.thorough
@pytest.mark.parametrize("tool", ["DuckDB", "pandas, polars, Arrow", "SQLAlchemy", "Parquet"])
def test_python_tools_print_the_documented_rows(tool: str, public: Path) -> None:
    check(python_of("clients"), tool, public)


@pytest.mark.thorough
def test_sqlalchemy_reflects_tables_views_and_comments(public: Path) -> None:
    text = """
import json, sqlalchemy
engine = sqlalchemy.create_engine("duckdb:///first.duckdb", connect_args={"read_only": True})
found = sqlalchemy.inspect(engine)
metadata = sqlalchemy.MetaData()
metadata.reflect(engine, views=True)
print(json.dumps({
    "tables": sorted(found.get_table_names(schema="main")),
    "views": sorted(found.get_view_names(schema="main")),
    "reflected": {
        name: [relation.comment, *([column.name, str(column.type), column.comment] for column in relation.columns)]
        for name, relation in metadata.tables.items()
    },
}))
"""
    document = json.loads(printed_text(python_of("clients"), text, public))
    assert document["tables"] == ["birth_date_labels", "patients_v1", "zip_labels"]
    assert document["views"] == sorted([*VIEWS, "patients"])
    for name, entries in catalog_of(public).items():
        comment, *columns = document["reflected"][name]
        assert (comment, [(column, text) for column, _, text in columns]) == entries, name
    _, *columns = document["reflected"]["patients"]
    assert [(column, type_) for column, type_, _ in columns] == [
        *((name, "VARCHAR") for name in COLUMNS[:-1]),
        ("cost", "NUMERIC(9, 2)"),
    ]
    assert all(text for *_, text in columns)


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a release whose names and labels need quotes."""
    folder = tmp_path_factory.mktemp("hostile")
    with duckdb.connect() as source:
        source.execute(f'CREATE TABLE {HOSTILE} ("a ""b\'" VARCHAR, "select" INTEGER, "<i>" VARCHAR)')
        source.execute(f"INSERT INTO {HOSTILE} SELECT '<script>', NULL, 'it''s' FROM range(3)")
        source.execute(f"INSERT INTO {HOSTILE} SELECT NULL, 7, '; --' FROM range(3)")
        attributes = {"a \"b'": "suppress", "select": "suppress", "<i>": "insensitive"}
        policy = make_policy(attributes, k=3, table=HOSTILE, release={"table": HOSTILE[1:-1].replace('""', '"')})
        with connect(source) as db:
            db.anonymize(policy).publish(folder / "first.duckdb")
    return folder


HOSTILE = '"pa""ti <b>; --"'
ROWS = [["<script>", None, "it's"]] * 3 + [[None, 7, "; --"]] * 3


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["clients", "duckdb_1"])
def test_strange_names_and_values_come_through(name: str, hostile: Path) -> None:
    text = f"""
import duckdb, json
with duckdb.connect("first.duckdb", read_only=True) as connection:
    print(json.dumps(connection.execute({f"FROM {HOSTILE} ORDER BY 3 DESC"!r}).fetchall()))
"""
    assert json.loads(printed_text(python_of(name), text, hostile)) == ROWS


@pytest.mark.thorough
def test_strange_names_and_values_come_through_sqlalchemy(hostile: Path) -> None:
    text = """
import json, sqlalchemy
engine = sqlalchemy.create_engine("duckdb:///first.duckdb?access_mode=read_only")
metadata = sqlalchemy.MetaData()
metadata.reflect(engine, views=True)
table = metadata.tables['pa"ti <b>; --']
with engine.connect() as connection:
    rows = connection.execute(sqlalchemy.select(table).order_by(table.columns["<i>"].desc())).fetchall()
print(json.dumps([list(table.columns.keys()), *map(list, rows)]))
"""
    assert json.loads(printed_text(python_of("clients"), text, hostile)) == [["a \"b'", "select", "<i>"], *ROWS]


@pytest.mark.thorough
def test_sqlalchemy_picks_up_a_new_release(public: Path) -> None:
    (public / "old.duckdb").write_bytes((public / "first.duckdb").read_bytes())
    replace(public)
    (public / "first.duckdb").rename(public / "new.duckdb")
    (public / "old.duckdb").rename(public / "first.duckdb")
    text = """
import os, sqlalchemy
from sqlalchemy.pool import NullPool
def count(engine):
    with engine.connect() as connection:
        return connection.execute(sqlalchemy.text("SELECT count(*) FROM patients")).scalar()
engine = sqlalchemy.create_engine("duckdb:///first.duckdb?access_mode=read_only")
before = count(engine)
os.replace("new.duckdb", "first.duckdb")
kept = count(engine) == before
engine.dispose()
print(kept, count(engine))
engine.dispose()
os.replace("other.duckdb", "first.duckdb")
print(count(sqlalchemy.create_engine("duckdb:///first.duckdb?access_mode=read_only", poolclass=NullPool)) == before)
"""
    shutil.copy(public / "first.duckdb", public / "other.duckdb")
    assert printed_text(python_of("clients"), text, public).splitlines() == ["True 7", "True"]


@pytest.mark.thorough
def test_duckdb_1_prints_the_documented_rows(public: Path) -> None:
    python = python_of("duckdb_1")
    assert printed_text(python, "import duckdb; print(duckdb.__version__)", public) == "1.5.5"
    check(python, "DuckDB", public)


@pytest.mark.thorough
def test_duckdb_1_reads_views_and_comments(public: Path) -> None:
    text = f"""
import duckdb, json
with duckdb.connect("first.duckdb", read_only=True) as connection:
    print(json.dumps(connection.execute({CATALOG!r}).fetchall()))
    print(json.dumps([connection.execute(f"SELECT count(*) FROM {{name}}").fetchone()[0] for name in {VIEWS!r}]))
"""
    relations, rows = map(json.loads, printed_text(python_of("duckdb_1"), text, public).splitlines())
    check_catalog(relations, public)
    check_views(rows, public)


@pytest.mark.thorough
def test_the_documented_duckdb_command_reads_only_the_release(public: Path) -> None:
    command = program("DuckDB", "sh")
    bin_ = python_of("duckdb_1").parent
    done = run(["sh", "-c", f'PATH="{bin_}:$PATH"; {command}'], public)
    assert (done.returncode, done.stdout.split()) == (0, ["sexes", "2"]), done.stderr
    (public / "outside.csv").write_text("name\nAlice\n")
    settings, _, _ = command.partition("first.duckdb")
    for statement in ("FROM 'outside.csv'", "SET enable_external_access = true"):
        done = run(["sh", "-c", f'PATH="{bin_}:$PATH"; {settings} first.duckdb -c "{statement}"'], public)
        assert done.returncode != 0
        assert "Alice" not in done.stdout


@pytest.mark.thorough
def test_node_prints_the_documented_rows(public: Path) -> None:
    folder = node_modules()
    text = program("node", "js")
    (public / "node_modules").symlink_to(folder / "node_modules")
    (public / "page.mjs").write_text(text, encoding="utf-8")
    done = run(["node", "page.mjs"], public)
    assert (done.returncode, done.stdout.strip()) == (0, last_comment(text, "//")), done.stderr

    def query_node(query: str) -> Any:
        (public / "query.mjs").write_text(re.sub(r'"SELECT .*?"', lambda _: json.dumps(query), text), encoding="utf-8")
        done = run(["node", "query.mjs"], public)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    macro = "FROM sqlanon.k_anonymity('patients', ['zip', 'birth_date', 'sex', 'ethnicity'])"
    k, _, rows, uniques = map(int, query_node(macro)[0])  # 64 bits are more than a number of JavaScript
    with duckdb.connect(public / "first.duckdb", read_only=True) as connection:
        assert connection.execute("SELECT count(*) FROM patients").fetchall() == [(rows,)]
    assert (k >= 5, uniques) == (True, 0)
    check_catalog(query_node(CATALOG), public)
    check_views([int(query_node(f"SELECT count(*) FROM {name}")[0][0]) for name in VIEWS], public)


@pytest.mark.thorough
def test_node_picks_up_a_new_release(public: Path) -> None:
    shutil.copy(public / "first.duckdb", public / "old.duckdb")
    replace(public)
    (public / "first.duckdb").rename(public / "new.duckdb")
    (public / "old.duckdb").rename(public / "first.duckdb")
    (public / "node_modules").symlink_to(node_modules() / "node_modules")
    closed = re.findall(r"`(\w+\.closeSync\(\))`", PAGE)
    assert len(closed) == 2
    text = """
import { renameSync } from "node:fs";
import { DuckDBInstance } from "@duckdb/node-api";
const open = () => DuckDBInstance.create("first.duckdb", { access_mode: "READ_ONLY" });
const count = async (connection) =>
  (await connection.runAndReadAll("SELECT count(*)::INTEGER FROM patients")).getRows()[0][0];
let instance = await open(), connection = await instance.connect();
const before = await count(connection);
renameSync("new.duckdb", "first.duckdb");
console.log((await count(connection)) === before);
CLOSED;
instance = await open(); connection = await instance.connect();
console.log(await count(connection));
"""
    (public / "new.mjs").write_text(text.replace("CLOSED", "; ".join(closed)), encoding="utf-8")
    done = run(["node", "new.mjs"], public)
    assert (done.returncode, done.stdout.split()) == (0, ["true", "7"]), done.stderr
