"""The examples of docs/how-to/dbt.md: a model that is a release, and tests that check k, l and t of a table.

The Python of the materialization runs in the quick lane, with a connection as dbt would give it. dbt builds projects in
an environment of its own.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

import sqlanon
from sqlanon.demo.hospital import make_hospital
from sqlanon.ledger.catalog import init_database
from sqlanon.support.resources import sql_file
from support.databases import fetch
from support.environments import ROOT, python_of, run
from support.pages import blocks

PAGE = (ROOT / "docs" / "how-to" / "dbt.md").read_text(encoding="utf-8")
PACKAGE = ROOT / "sql" / "dbt"
FILES = {
    re.match(r"(?:#|--) (.*)\n", block).group(1): block
    for language in ("toml", "sql", "yaml")
    for block in blocks(language, PAGE)
}
MODEL, RELEASE = "models/patients_released.sql", "released/patients.duckdb"
STAGING = "SELECT * FROM patients WHERE sex IS NOT NULL"
QUASI = "zip, birth_date, sex, ethnicity"
PROJECT = {
    "dbt_project.yml": "{name: warehouse, version: '1.0', profile: warehouse}",
    "profiles.yml": "warehouse: {target: dev, outputs: {dev: {type: duckdb, path: warehouse.duckdb, threads: 2}}}",
    "packages.yml": FILES["packages.yml"].replace("../sqlanon/sql/dbt", str(PACKAGE)),
    "models/stg_patients.sql": STAGING,
}


def write(folder: Path, files: dict[str, str]) -> None:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content, encoding="utf-8")


def released_rows(folder: Path) -> list[tuple[Any, ...]]:
    with duckdb.connect(folder / RELEASE, read_only=True) as connection:
        return sorted(connection.execute("FROM patients").fetchall())


def test_the_page_has_the_files() -> None:
    assert set(FILES) == {"patients.toml", MODEL, "packages.yml", "models/schema.yml"}
    pins = (ROOT / "tests" / "pins" / "dbt.txt").read_text(encoding="utf-8")
    for name, version in re.findall(r"(dbt-core|dbt-duckdb|duckdb)==(\S+)", pins):
        assert f"{name.replace('duckdb', 'DuckDB') if name == 'duckdb' else name} {version}" in PAGE
    assert sql_file("dbt") == PACKAGE
    assert f'version: "{sqlanon.__version__}"' in (PACKAGE / "dbt_project.yml").read_text()


def test_the_page_lists_the_arguments_of_each_test() -> None:
    """All but the model, with their defaults."""
    documented: dict[str, dict[str, str | None]] = {}
    test = ""
    row = r"^\| (?:`sqlanon\.(\w+)`|all)? ?\| `(\w+)` \|.*\| ?(.*?) ?\|$"
    for name, argument, default in re.findall(row, PAGE, re.M):
        test = name or test
        documented.setdefault(test, {})[argument] = default.strip("`") or None
    everywhere = documented.pop("")
    for test, arguments in documented.items():
        text = (PACKAGE / "macros" / f"{test}.sql").read_text(encoding="utf-8")
        (signature,) = re.findall(r"{% test (\w+)\(model, (.*)\) %}", text)
        signature_defaults = dict(part.partition("=")[::2] for part in signature[1].split(", "))
        assert signature[0] == test
        assert set(signature_defaults) == {*everywhere, *arguments}
        defaults = {name: value.strip('"') for name, value in signature_defaults.items() if value not in ("", "none")}
        assert defaults == {name: value for name, value in arguments.items() if value in defaults.values()}


# --- the materialization's Python, with a live connection


@pytest.fixture
def warehouse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection to a small warehouse, in a folder that has the page's policy."""
    make_hospital(tmp_path / "warehouse.duckdb", rows=1000)
    write(tmp_path, FILES)
    (tmp_path / "released").mkdir()
    monkeypatch.chdir(tmp_path)
    with duckdb.connect("warehouse.duckdb") as connection:
        connection.execute(f"CREATE VIEW stg_patients AS {STAGING}")
        yield connection


def materialize(session: duckdb.DuckDBPyConnection) -> None:
    """Statement of the materialization; dbt would rename the table."""
    text = (PACKAGE / "macros" / "anonymized.sql").read_text(encoding="utf-8")
    (code,) = re.findall(r'language="python"\) -%}\n(.*?)\n *{%- endcall', text, re.S)
    arguments = {"policy": "patients.toml", "query": "SELECT * FROM main.stg_patients -- é 😀 ' \"", "table": '"made"'}
    code, times = re.subn(r"{{.*?}}", lambda _: json.dumps(json.dumps(arguments)), code)
    assert times == 1
    names: dict[str, Any] = {}
    exec(compile(code, "anonymized.sql", "exec"), names)
    names["materialize"](names["model"](names["dbtObj"](None), session), session)


@pytest.mark.thorough
def test_the_table_has_the_rows_of_an_audited_release(warehouse: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    materialize(warehouse)
    rows = warehouse.execute("FROM made").fetchall()
    assert sorted(rows) == released_rows(tmp_path)
    ((smallest,),) = warehouse.execute(
        f"SELECT min(n) FROM (SELECT count(*) AS n FROM made GROUP BY {QUASI})"
    ).fetchall()
    assert smallest >= 5
    (catalog,) = tmp_path.glob("*catalog.duckdb")
    assert fetch(catalog, "SELECT count(*) FROM sqlanon.releases") == [(1,)]
    temporary = warehouse.execute("SELECT count(*) FROM duckdb_databases() WHERE database_name LIKE 'sqlanon%'")
    assert temporary.fetchall() == [(0,)]


@pytest.mark.thorough
def test_a_parquet_release_materializes_as_a_model(warehouse: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    write(tmp_path, {"patients.toml": FILES["patients.toml"].replace(f'database = "{RELEASE}"', 'file = "p.parquet"')})
    materialize(warehouse)
    rows = warehouse.execute("FROM made").fetchall()
    assert sorted(rows) == sorted(warehouse.execute(f"FROM '{tmp_path / 'p.parquet'}'").fetchall())
    assert len(rows) > 900


@pytest.mark.thorough
def test_a_model_that_cannot_be_released_gives_nothing(warehouse: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    write(tmp_path, {"patients.toml": FILES["patients.toml"].replace("k = 5", "k = 5000")})
    with pytest.raises(sqlanon.InfeasibleError):
        materialize(warehouse)
    assert not (tmp_path / RELEASE).exists()
    assert warehouse.execute("SELECT count(*) FROM duckdb_tables() WHERE table_name = 'made'").fetchall() == [(0,)]


@pytest.mark.slow
def test_draft_does_not_become_a_model(warehouse: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    """The table could not show the mark."""
    write(tmp_path, {"patients.toml": FILES["patients.toml"].replace("[release]", "[release]\ndraft = true")})
    with pytest.raises(sqlanon.ReleaseError, match="cannot show that it is a draft"):
        materialize(warehouse)
    assert not (tmp_path / RELEASE).exists()


# --- projects, with dbt


def dbt(folder: Path, *command: str) -> tuple[int, str]:
    """Output of a dbt command; it sees sqlanon in the checkout."""
    main = [python_of("dbt", with_sqlanon=True), "-m", "dbt.cli.main", "--no-use-colors", *command]
    quiet = {"DBT_SEND_ANONYMOUS_USAGE_STATS": "false", "DO_NOT_TRACK": "1"}
    done = run([*main, "--profiles-dir", "."], folder, ROOT, **quiet)
    return done.returncode, done.stdout + done.stderr


def table(folder: Path) -> list[tuple[Any, ...]]:
    with duckdb.connect(folder / "warehouse.duckdb", read_only=True) as connection:
        return sorted(connection.execute("FROM patients_released").fetchall())


@pytest.mark.thorough
def test_dbt_builds_the_release_and_fails_where_it_should(tmp_path: Path) -> None:
    """This is one test, because each command of dbt takes seconds and needs the project that the one before left."""
    make_hospital(tmp_path / "warehouse.duckdb", rows=1000)
    write(tmp_path, {**PROJECT, **FILES, "packages.yml": PROJECT["packages.yml"]})
    (tmp_path / "released").mkdir()

    status, output = dbt(tmp_path, "deps")
    assert status == 0, output
    status, output = dbt(tmp_path, "build")
    assert (status, "PASS=5" in output) == (0, True), output  # two models, three tests
    released = table(tmp_path)
    assert released == released_rows(tmp_path)
    with duckdb.connect(tmp_path / RELEASE, read_only=True) as connection:
        query = f"SELECT k, uniques FROM sqlanon.k_anonymity('patients', {QUASI.split(', ')})"
        ((k, uniques),) = connection.execute(query).fetchall()
    assert (k >= 5, uniques) == (True, 0)
    with duckdb.connect(tmp_path / "warehouse.duckdb", read_only=True) as connection:
        relations = connection.execute("SELECT table_name FROM information_schema.tables ORDER BY ALL").fetchall()
    assert relations == [
        ("patients",),
        ("patients_released",),
        ("stg_patients",),
        ("voters",),
    ]  # no other with private rows

    write(tmp_path, {"patients.toml": FILES["patients.toml"].replace("k = 5", "k = 5000")})
    status, output = dbt(tmp_path, "run", "--select", "patients_released")
    assert (status, "InfeasibleError" in output) == (1, True), output
    assert table(tmp_path) == released_rows(tmp_path) == released

    with duckdb.connect(tmp_path / "warehouse.duckdb") as connection:
        connection.execute("INSERT INTO patients_released BY NAME SELECT NULL AS zip, 'x' AS diagnosis")
    status, output = dbt(tmp_path, "test")
    assert (status, "ERROR=3" in output, "Got 1 result" in output) == (1, True, True), output

    write(tmp_path, {MODEL: FILES[MODEL].replace(', policy="patients.toml"', "")})
    status, output = dbt(tmp_path, "run", "--select", "patients_released")
    assert (status, "policy" in output) == (1, True), output


# The tests of the package, held against the macro library, on names and values that are easily mistaken.

STRANGE = """
    CREATE TABLE own_strange AS
    SELECT
        CASE i % 7 WHEN 0 THEN NULL ELSE 'z' || i % 3 END AS "value",
        CASE WHEN i % 11 < 4 THEN NULL ELSE i % 11 % 3 END AS "n",
        CASE hash(i) % 5 WHEN 0 THEN NULL ELSE 'd' || (hash(i) % 5)::INTEGER END AS "the ""p"" x",
        (hash(i + 1) % 6)::INTEGER AS cost
    FROM range(240) AS r(i)
"""
COLUMNS = ["value", "n"]
ILLNESS = 'the "p" x'
TREE = """
    CREATE TABLE own_tree AS
    FROM (VALUES ('d1', 'low', '*'), ('d2', 'low', '*'), ('d3', 'high', '*')) AS t(level_0, level_1, level_2)
"""
CLASSES = f"'strange', {COLUMNS}"
SENSITIVE = "'the \"p\" x'"
ASKED: dict[str, tuple[str, dict[str, Any], str]] = {
    # name: the test, its arguments, and the classes that break it by the macros
    "k": ("k_anonymity", {"k": 12}, f"FROM sqlanon.equivalence_classes({CLASSES}) WHERE class_size < 12"),
    "distinct": (
        "l_diversity",
        {"attribute": ILLNESS, "l": 5},
        f"FROM sqlanon.l_diversity_classes({CLASSES}, {SENSITIVE}) WHERE distinct_l < 5",
    ),
    "entropy": (
        "l_diversity",
        {"attribute": ILLNESS, "l": 4.2, "kind": "entropy"},
        f"FROM sqlanon.l_diversity_classes({CLASSES}, {SENSITIVE}) WHERE ln(entropy_l) < ln(4.2) - 1e-12",
    ),
    "recursive": (
        "l_diversity",
        {"attribute": ILLNESS, "l": 3, "kind": "recursive", "c": 0.9},
        f"FROM sqlanon.l_diversity_classes({CLASSES}, {SENSITIVE}, l := 3) WHERE recursive_c >= 0.9",
    ),
    "equal": (
        "t_closeness",
        {"attribute": ILLNESS, "t": 0.2},
        f"FROM sqlanon.t_closeness_classes({CLASSES}, {SENSITIVE}) WHERE t > 0.2 + 1e-12",
    ),
    "ordered": (
        "t_closeness",
        {"attribute": "cost", "t": 0.1, "distance": "ordered", "reference": "ref('others')"},
        f"FROM sqlanon.t_closeness_classes({CLASSES}, 'cost', reference := 'others', distance := 'ordered') "
        "WHERE t > 0.1 + 1e-12",
    ),
    "texts": (
        "t_closeness",
        {"attribute": ILLNESS, "t": 0.1, "distance": "ordered"},
        f"FROM sqlanon.t_closeness_classes({CLASSES}, {SENSITIVE}, distance := 'ordered') WHERE t > 0.1 + 1e-12",
    ),
    "tree": (
        "t_closeness",
        {
            "attribute": ILLNESS,
            "t": 0.15,
            "distance": "hierarchical",
            "hierarchy": "ref('tree')",
            "levels": ["level_0", "level_1", "level_2"],
        },
        f"FROM sqlanon.t_closeness_classes({CLASSES}, {SENSITIVE}, distance := 'hierarchical', hierarchy := 'tree') "
        "WHERE t > 0.15 + 1e-12",
    ),
}
OTHERS = 'CREATE TABLE own_others AS SELECT "value", "n", cost + 1 AS cost FROM own_strange WHERE cost < 5'


@pytest.fixture(scope="module")
def tested_project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with all of these tests, which dbt has run."""
    folder = tmp_path_factory.mktemp("tests")
    init_database(folder / "warehouse.duckdb")
    with duckdb.connect(folder / "warehouse.duckdb") as connection:
        for statement in (STRANGE, TREE, OTHERS):
            connection.execute(statement)
    tests = [
        {f"sqlanon.{test}": {"name": name, "arguments": {"columns": COLUMNS, **arguments}}}
        for name, (test, arguments, _) in ASKED.items()
    ]
    models = {f"models/{name}.sql": f"SELECT * FROM own_{name}" for name in ("strange", "tree", "others")}
    schema = {"models": [{"name": "strange", "data_tests": tests}]}
    write(folder, {**PROJECT, **models, "models/schema.yml": json.dumps(schema), "models/stg_patients.sql": "SELECT 1"})
    status, output = dbt(folder, "deps")
    assert status == 0, output
    status, output = dbt(folder, "build")
    assert status == 1, output
    return folder


@pytest.mark.thorough
def test_wrong_arguments_are_named(tested_project: Path, tmp_path: Path) -> None:
    shutil.copytree(tested_project, tmp_path / "copy")
    wrong = {"columns": COLUMNS, "attribute": "cost", "l": 0}
    schema = {"models": [{"name": "strange", "data_tests": [{"sqlanon.l_diversity": {"arguments": wrong}}]}]}
    write(tmp_path / "copy", {"models/schema.yml": json.dumps(schema)})
    status, output = dbt(tmp_path / "copy", "parse")
    assert (status, "sqlanon.l_diversity: l must be a number of at least 1" in output) == (2, True), output


@pytest.mark.thorough
@pytest.mark.parametrize("name", ASKED)
def test_a_test_finds_the_classes_that_the_macros_find(tested_project: Path, name: str) -> None:
    results = json.loads((tested_project / "target" / "run_results.json").read_text())["results"]
    (node,) = [result for result in results if re.match(rf"test\.warehouse\.{name}\.", result["unique_id"])]
    with duckdb.connect(tested_project / "warehouse.duckdb", read_only=True) as connection:
        broken = connection.execute(f"SELECT {', '.join(COLUMNS)} {ASKED[name][2]}").fetchall()
        failing = connection.execute(f"SELECT {', '.join(COLUMNS)} FROM ({node['compiled_code']}) AS t").fetchall()
        ((classes,),) = connection.execute(f"SELECT count(*) FROM sqlanon.equivalence_classes({CLASSES})").fetchall()
    assert sorted(map(repr, failing)) == sorted(map(repr, broken))
    assert node["failures"] == len(broken)
    assert 0 < len(broken) < classes  # it distinguishes classes


@pytest.mark.thorough
def test_the_tests_run_in_postgresql(tested_project: Path, postgres: Any) -> None:
    results = json.loads((tested_project / "target" / "run_results.json").read_text())["results"]
    with duckdb.connect(tested_project / "warehouse.duckdb", read_only=True) as connection:
        rows = {name: connection.execute(f"FROM own_{name}").fetchall() for name in ("strange", "tree", "others")}
    columns = {
        "strange": 'value TEXT, n INTEGER, "the ""p"" x" TEXT, cost INTEGER',
        "tree": "level_0 TEXT, level_1 TEXT, level_2 TEXT",
        "others": "value TEXT, n INTEGER, cost INTEGER",
    }
    for name, definition in columns.items():
        values = ", ".join(f"({', '.join(map(literal, row))})" for row in rows[name])
        postgres.run(f"CREATE TABLE {name} ({definition})", f"INSERT INTO {name} VALUES {values}")
    for name in ASKED:
        (node,) = [result for result in results if re.match(rf"test\.warehouse\.{name}\.", result["unique_id"])]
        query = node["compiled_code"].replace('"warehouse"."main".', "")
        ((count,),) = postgres.rows(f"SELECT count(*) FROM ({query}) AS t")
        assert count == node["failures"], name


def literal(value: Any) -> str:
    return "NULL" if value is None else f"'{value}'" if isinstance(value, str) else str(value)
