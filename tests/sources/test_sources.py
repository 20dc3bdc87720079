"""Sources: everything that can be anonymized, under any name, of any type, and the messages for everything else."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sqlanon
from sqlanon import InfeasibleError, SourceError
from support.databases import DUCKDB_1, connection_of, quote_name
from support.lanes import some
from support.policies import make_policy
from support.published_tables import publish_and_read, table_of

PEOPLE = "SELECT '0213' || i % 2 AS zip, i % 2 AS age FROM range(8) AS r(i)"
ROLES = {"zip": "mask", "age": "suppress"}
ROWS = Counter({("02130", 0): 4, ("02131", 1): 4})


Released: TypeAlias = Callable[..., tuple[Counter[tuple[Any, ...]], dict[str, str]]]


@pytest.fixture(params=some(["by the statement", "in a file"], 2))
def released_table(request: pytest.FixtureRequest) -> Released:
    """The rows of a release as a multiset, and its columns: by the statement that makes it, or as `published`."""

    def by_statement(
        source: Any, /, attributes: Mapping[str, Any], directory: Path, k: int = 2, **sections: Any
    ) -> tuple[Counter[tuple[Any, ...]], dict[str, str]]:
        with sqlanon.connect(source) as db:
            result = db.anonymize(make_policy(attributes, k=k, **sections))
            space = db._workspace
            relation = next(iter(space._readers.values()), space.engine).connection.sql(result.sql())
            return Counter(relation.fetchall()), dict(zip(relation.columns, map(str, relation.types), strict=True))

    def in_a_file(*arguments: Any, **options: Any) -> tuple[Counter[tuple[Any, ...]], dict[str, str]]:
        rows, types = publish_and_read(*arguments, **options)
        return Counter(rows), types

    return in_a_file if request.param == "in a file" else by_statement


# A DuckDB file


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("source") / "people file.duckdb"
    with duckdb.connect(str(path)) as db:
        db.execute(f"CREATE TABLE people AS {PEOPLE}")
        db.execute("CREATE VIEW seen AS FROM people")
        db.execute(f'CREATE SCHEMA "my schema"; CREATE TABLE "my schema".people AS {PEOPLE}')
        db.execute(f'CREATE TABLE "my schema"."only here" AS {PEOPLE}')
        db.execute(f'CREATE TABLE "with.dot" AS {PEOPLE}')
        db.execute('CREATE VIEW "my schema".crossing AS FROM "my schema"."only here"')
        db.execute("CREATE TABLE nobody AS FROM people WHERE false")
    return path


@pytest.mark.thorough
@pytest.mark.parametrize(
    "name",
    some(
        [
            "people",
            "PEOPLE",
            '"people"',
            "seen",
            "main.people",
            "my schema.people",
            '"my schema"."only here"',
            '"my schema".crossing',
            "people file.main.people",
            "with.dot",
            '"with.dot"',
        ],
        3,
    ),
)
def test_tables_and_views_of_a_file_are_read(file: Path, tmp_path: Path, name: str, released_table: Released) -> None:
    rows, types = released_table(file, ROLES, tmp_path, source={"table": name})
    assert rows == ROWS
    assert types == {"zip": "VARCHAR", "age": "BIGINT"}


@pytest.mark.thorough
@pytest.mark.parametrize(
    "query",
    some(
        [
            "SELECT * FROM people",
            "SELECT zip, age FROM people;",
            "SELECT * FROM people -- all of them",
            "SELECT * FROM people; -- all of them",
            "/* all */ SELECT * FROM people ;; \n -- of them\n",
            "FROM people SELECT zip, age",
            "(FROM people)",
            "WITH p AS (FROM people) SELECT * FROM p",
            "FROM people WHERE age = 0 UNION ALL FROM people WHERE age = 1",
            'FROM "my schema"."only here"',
            'SELECT p.zip, s.age FROM people AS p POSITIONAL JOIN "my schema".people AS s',
            "SELECT zip, age, ';--' || zip AS \"a;b\" FROM people",
        ],
        4,
    ),
)
def test_query_is_released(file: Path, tmp_path: Path, query: str, released_table: Released) -> None:
    rows, _ = released_table(file, ROLES, tmp_path, source={"query": query, "undeclared": "drop"})
    assert rows == ROWS


@pytest.mark.slow
@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM people; SELECT 1",
        "SELECT * FROM people; DROP TABLE people",
        "DROP TABLE people",
        "INSERT INTO people VALUES ('x', 1)",
        "CREATE TABLE other AS FROM people",
        "COPY people TO 'out.csv'",
        "ATTACH 'other.duckdb'",
        "SET threads = 1",
        "EXPLAIN SELECT * FROM people",
        "-- nothing",
        ";",
        "SELECT * FROM",
        "SELECT * FROM people) AS x; DROP TABLE people; --",
        "SELECT * FROM nowhere",
        "SELECT nothing FROM people",
        "SELECT ? AS zip, 1 AS age",
    ],
)
def test_queries_other_than_one_select_are_refused(file: Path, query: str) -> None:
    before = digest(file)
    with sqlanon.connect(file) as db, pytest.raises(SourceError):
        db.anonymize(make_policy(ROLES, source={"query": query}))
    assert digest(file) == before
    assert not (file.parent / "other.duckdb").exists()


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.thorough
def test_the_file_is_only_read(file: Path, tmp_path: Path) -> None:
    before, siblings = (digest(file), file.stat().st_mtime_ns), set(file.parent.iterdir())
    catalog = {"database": str(tmp_path / "catalog.duckdb")}
    with sqlanon.connect(file) as db:
        policy = make_policy(ROLES, source={"table": "people"}, catalog=catalog)
        db.plan(policy)
        db.risk(policy)
        result = db.anonymize(policy)
        release = result.publish(tmp_path / "release.duckdb")
        result.publish(tmp_path / "release.parquet", "people")
        db.verify(release.path, policy)
        with pytest.raises(duckdb.Error, match="read-only"):
            connection_of(db).execute('INSERT INTO "people file".people VALUES (1, 2)')
    assert (digest(file), file.stat().st_mtime_ns) == before
    assert set(file.parent.iterdir()) == siblings


@pytest.mark.thorough
@pytest.mark.parametrize("source", some([{"table": "t"}, {"query": "SELECT age FROM t"}], 2), ids=["table", "query"])
def test_results_over_two_files_do_not_mix(tmp_path: Path, source: dict[str, str]) -> None:
    """A release is made from the file that was searched, whatever was opened since, also under the same name."""
    results = {}
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        with duckdb.connect(str(tmp_path / name / "p.duckdb")) as db:
            db.execute(f"CREATE TABLE t AS SELECT '{name}' AS age FROM range(3)")
    with sqlanon.connect() as both_files:
        for name in ("a", "b"):
            section = {"database": str(tmp_path / name / "p.duckdb"), **source}
            results[name] = both_files.anonymize(make_policy({"age": "suppress"}, source=section))
        for name, result in results.items():
            result.publish(tmp_path / f"release_{name}.duckdb", "released")
    for name in results:
        assert table_of(tmp_path / f"release_{name}.duckdb")[0] == [(name,)] * 3


@pytest.mark.slow
def test_missing_files_and_tables_are_named(file: Path, tmp_path: Path) -> None:
    nowhere = tmp_path / "nowhere.duckdb"
    with pytest.raises(SourceError, match=r"nowhere\.duckdb: the database does not exist"):
        sqlanon.connect(nowhere)
    assert not nowhere.exists()
    with sqlanon.connect() as db, pytest.raises(SourceError, match=r"nowhere\.duckdb"):
        db.anonymize(make_policy(ROLES, source={"database": str(nowhere), "table": "t"}))
    (tmp_path / "text.duckdb").write_text("no database at all", encoding="utf-8")
    with pytest.raises(SourceError, match=r"text\.duckdb"):
        sqlanon.connect(tmp_path / "text.duckdb")
    with sqlanon.connect(file) as db:
        with pytest.raises(SourceError, match=r"'persons'.*people"):
            db.anonymize(make_policy(ROLES, source={"table": "persons"}))
        with pytest.raises(SourceError, match="no table or view"):
            db.anonymize(make_policy(ROLES, source={"table": "people; DROP TABLE people"}))
        with pytest.raises(SourceError, match="name a table"):
            db.anonymize(make_policy(ROLES, table=None))
    with sqlanon.connect() as db, pytest.raises(SourceError, match=r"no file matches .*gone\*\.csv"):
        db.anonymize(make_policy(ROLES, source={"files": [str(tmp_path / "gone*.csv")]}))


def test_columns_and_roles_must_fit(file: Path) -> None:
    with sqlanon.connect(file) as db:
        with pytest.raises(SourceError, match=r"without a role: 'age'.*undeclared"):
            db.anonymize(make_policy({"zip": "mask"}, table="people"))
        with pytest.raises(SourceError, match=r"without a column in the source: 'ZIPCODE', 'sex'"):
            db.anonymize(make_policy({**ROLES, "ZIPCODE": "mask", "sex": "suppress"}, table="people"))


def test_empty_table_is_infeasible(file: Path) -> None:
    with sqlanon.connect(file) as db, pytest.raises(InfeasibleError, match="no rows") as caught:
        db.anonymize(make_policy(ROLES, table="nobody"))
    assert caught.value.exit_status == 1
    assert caught.value.nearest is None


@pytest.mark.thorough
def test_file_that_another_process_writes_to(tmp_path: Path) -> None:
    path = tmp_path / "held.duckdb"
    code = f"""
import duckdb, sys
db = duckdb.connect({str(path)!r})
db.execute("CREATE TABLE people AS {PEOPLE}")
print("ready", flush=True)
sys.stdin.read()
"""
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == "ready\n"
        with pytest.raises(SourceError, match=r"held\.duckdb cannot be opened for reading.*process"):
            sqlanon.connect(path)
        holder.communicate("")
    with sqlanon.connect(path) as db:
        assert db.anonymize(make_policy(ROLES, table="people")).rows == 8


# Files


def write(path: Path, content: str) -> str:
    path.write_bytes(content.encode())
    return str(path)


def csv_text(separator: str = ",", end: str = "\n") -> str:
    lines = [("zip", "age"), *((f"0213{i % 2}", str(i % 2)) for i in range(8))]
    return "".join(separator.join(line) + end for line in lines)


@pytest.mark.thorough
def test_zip_stays_text_for_a_hierarchy_file(tmp_path: Path, released_table: Released) -> None:
    path = write(tmp_path / "people.csv", csv_text())
    file = write(tmp_path / "zips.csv", "02130;021**\n02131;021**\n")
    rule = {"role": "quasi", "hierarchy": {"file": file}}
    assert released_table(path, {"zip": rule, "age": "insensitive"}, tmp_path, table=None)[0] == ROWS


@pytest.mark.slow
def test_files_that_do_not_fit_together(tmp_path: Path) -> None:
    write(tmp_path / "a1.csv", csv_text())
    write(tmp_path / "a2.csv", "zip,years\n02139,1\n")
    pq.write_table(ARROW, tmp_path / "p1.parquet")
    pq.write_table(ARROW.rename_columns(["zip", "years"]), tmp_path / "p2.parquet")
    for patterns in (["a*.csv"], ["p*.parquet"], ["a1.csv", "p1.parquet"]):
        files = [str(tmp_path / pattern) for pattern in patterns]
        with sqlanon.connect() as db, pytest.raises(SourceError):
            db.anonymize(make_policy(ROLES, source={"files": files}))


def test_file_of_another_format_than_its_extension_is_refused(tmp_path: Path) -> None:
    for name in ("people.parquet", "people.csv.gz"):
        path = write(tmp_path / name, csv_text())
        with sqlanon.connect(path) as db, pytest.raises(SourceError):
            db.anonymize(make_policy(ROLES, table=None))
    path = write(tmp_path / "people.xls", csv_text())
    with (
        sqlanon.connect() as db,
        pytest.raises(
            SourceError, match=r"people\.xls has an unknown format; save it as \.xlsx or CSV; known: \.parquet"
        ),
    ):
        db.anonymize(make_policy(ROLES, source={"files": [path]}))


def test_empty_csv_is_infeasible(tmp_path: Path) -> None:
    path = write(tmp_path / "people.csv", "zip,age\n")
    with sqlanon.connect(path) as db, pytest.raises(InfeasibleError):
        db.anonymize(make_policy(ROLES, table=None))


@pytest.mark.slow
def test_csv_names_that_differ_in_case_only(tmp_path: Path) -> None:
    for header in ("zip,Age,age", "zip,age,age", "ZIP,zip,age"):
        path = write(tmp_path / "people.csv", header + "\n" + "02139,1,2\n" * 3)
        with sqlanon.connect(path) as db, pytest.raises(SourceError, match=r"people\.csv.*case"):
            db.anonymize(make_policy(ROLES, source={"undeclared": "drop"}))


ARROW = pa.table({"zip": ["02130", "02131"] * 4, "age": pa.array([0, 1] * 4, pa.int64())})


def test_parquet_names_that_differ_in_case_only(tmp_path: Path) -> None:
    path = tmp_path / "people.parquet"
    pq.write_table(pa.table({"zip": ["a"] * 3, "age": [1] * 3, "Age": [2] * 3}), path)
    with sqlanon.connect(path) as db, pytest.raises(SourceError, match=r"'age', 'Age'.*case"):
        db.anonymize(make_policy(ROLES, source={"undeclared": "drop"}))


@pytest.mark.thorough
def test_fields_of_parquet_structs_are_not_columns(tmp_path: Path) -> None:
    path = tmp_path / "people.parquet"
    nested = {"inner": [{"zip": "x", "b": [{"age": 1}]}] * 8, "list": [[{"zip": 1}]] * 8, "map": [{"age": 1}] * 8}
    pq.write_table(pa.table({"zip": ARROW["zip"], **nested, "age": ARROW["age"]}), path)
    nested_roles = dict.fromkeys(nested, "insensitive")
    rows, types = publish_and_read(path, {**ROLES, **nested_roles}, tmp_path, table=None)
    assert list(types) == ["zip", "inner", "list", "map", "age"]
    assert Counter((row[0], row[-1]) for row in rows) == ROWS


# Arrow


@pytest.mark.thorough
def test_arrow_tables_and_streams_are_read(tmp_path: Path, released_table: Released) -> None:
    assert released_table(ARROW, ROLES, tmp_path, table=None)[0] == ROWS
    assert released_table(ARROW.to_reader(max_chunksize=3), ROLES, tmp_path, table=None)[0] == ROWS
    many = pa.chunked_array([ARROW["zip"].chunk(0).dictionary_encode()])
    rows, types = released_table(pa.table({"zip": many, "age": ARROW["age"]}), ROLES, tmp_path, table=None)
    assert (rows, types["zip"]) == (ROWS, "VARCHAR")


def test_arrow_names_that_differ_in_case_only() -> None:
    twice = ARROW.append_column("Age", ARROW["age"])
    for source in (twice, twice.to_reader()):
        with pytest.raises(SourceError, match=r"'age', 'Age'.*case"), sqlanon.connect(source) as db:
            db.anonymize(make_policy(ROLES, source={"undeclared": "drop"}))


def test_empty_arrow_table_is_infeasible() -> None:
    with sqlanon.connect(ARROW.slice(0, 0)) as db, pytest.raises(InfeasibleError):
        db.anonymize(make_policy(ROLES, table=None))


# A live connection


@pytest.fixture
def live() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        yield connection


def state(connection: duckdb.DuckDBPyConnection) -> dict[str, list[tuple[Any, ...]]]:
    """Visible state of a connection: databases, settings, tables and views."""
    queries = {
        "databases": "SELECT database_name FROM duckdb_databases()",
        "settings": "SELECT name, value FROM duckdb_settings()",
        "tables": "SELECT database_name, schema_name, table_name, estimated_size FROM duckdb_tables()",
        "views": "SELECT database_name, schema_name, view_name FROM duckdb_views() WHERE NOT internal",
        "schemas": "SELECT database_name, schema_name FROM duckdb_schemas()",
        "macros": "SELECT function_name FROM duckdb_functions() WHERE NOT internal",
        "path": "SELECT current_database(), current_schema()",
    }
    return {name: sorted(connection.execute(query).fetchall()) for name, query in queries.items()}


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("setup", "source"),
    some(
        [
            (f"CREATE TABLE people AS {PEOPLE}", {"table": "people"}),
            (f"CREATE TABLE p AS {PEOPLE}; CREATE VIEW people AS FROM p", {"table": "people"}),
            (f"CREATE TEMP TABLE people AS {PEOPLE}", {"table": "people"}),
            (f"CREATE TEMP TABLE p AS {PEOPLE}; CREATE TEMP VIEW people AS FROM p", {"table": "people"}),
            (f"CREATE TEMP TABLE p AS {PEOPLE}", {"query": "FROM p"}),
            (f"CREATE SCHEMA s; CREATE TABLE s.people AS {PEOPLE}", {"table": "s.people"}),
            (f"CREATE SCHEMA s; CREATE TABLE s.people AS {PEOPLE}", {"query": "FROM s.people"}),
            (f"CREATE SCHEMA s; USE s; CREATE TABLE people AS {PEOPLE}", {"table": "people"}),
            (f"ATTACH ':memory:' AS o; CREATE TABLE o.people AS {PEOPLE}", {"table": "o.people"}),
            (f"ATTACH ':memory:' AS o; USE o; CREATE TABLE people AS {PEOPLE}", {"table": "people"}),
            (
                f"CREATE SCHEMA a; CREATE SCHEMA b; CREATE TABLE b.people AS {PEOPLE}; SET search_path = 'a,b'",
                {"table": "people"},
            ),
        ],
        3,
    ),
)
def test_live_connection_is_released_and_unchanged(
    live: duckdb.DuckDBPyConnection, tmp_path: Path, setup: str, source: dict[str, str], released_table: Released
) -> None:
    live.execute(setup)
    before = state(live)
    rows, _ = released_table(live, ROLES, tmp_path, source=source)
    assert rows == ROWS
    assert state(live) == before


@pytest.mark.thorough
def test_an_error_leaves_a_live_connection_unchanged(live: duckdb.DuckDBPyConnection) -> None:
    live.execute(f"CREATE TABLE people AS {PEOPLE}")
    before = state(live)
    wrong: list[tuple[dict[str, Any], type[Exception]]] = [
        ({"source": {"table": "nowhere"}}, SourceError),
        ({"source": {"query": "SELECT error('broken') AS zip, 1 AS age"}}, Exception),
        ({"source": {"table": "people"}, "k": 9}, InfeasibleError),
    ]
    for options, error in wrong:
        with sqlanon.connect(live) as db, pytest.raises(error):
            db.anonymize(make_policy(ROLES, **options))
        assert state(live) == before


@pytest.mark.slow
def test_python_variables_are_not_read_as_tables(live: duckdb.DuckDBPyConnection) -> None:
    arrow_people = ARROW
    assert live.execute("SELECT count(*) FROM arrow_people").fetchall() == [(arrow_people.num_rows,)]
    with sqlanon.connect(live) as db, pytest.raises(SourceError):
        db.anonymize(make_policy(ROLES, table="arrow_people"))
    assert live.execute("SELECT count(*) FROM arrow_people").fetchall() == [(8,)]


@pytest.mark.slow
@pytest.mark.parametrize("writes", [True, False])
def test_open_transaction_of_the_user_is_not_lost(
    live: duckdb.DuckDBPyConnection, tmp_path: Path, writes: bool, released_table: Released
) -> None:
    """A transaction can write to one database only: so a release cannot be written inside of it. That is said,
    and the transaction goes on."""
    live.execute(f"CREATE TABLE people AS {PEOPLE}")
    live.execute("BEGIN")
    if writes:
        live.execute("INSERT INTO people VALUES ('02130', 0)")
    with pytest.raises(SourceError, match="transaction"), sqlanon.connect(live) as db:
        db.anonymize(make_policy(ROLES, table="people")).publish(tmp_path / "release.duckdb")
    live.execute("INSERT INTO people VALUES ('02131', 1)")
    live.execute("COMMIT")
    assert live.execute("SELECT count(*) FROM people").fetchall() == [(8 + writes + 1,)]
    rows, _ = released_table(live, ROLES, tmp_path, table="people")
    assert sum(rows.values()) == 8 + writes + 1


# Names

INTERNAL = (
    "n", "row_count", "quasi_0", "quasi_0_level_0", "quasi_1_level_1", "known", "class_size", "value", "value_code",
    "rows", "levels", "sqlanon class size", "code_0", "code_1", "label_1", "leaves_1", "level_0", "level_1", "key_0",
    "key", "masked", "k", "classes", "uniques", "x",
    "f", "s", "v", "h", "h0", "c0", "c1", "attribute", "text", "file", "class_count", "class_population", "kept",
    "least_suppressed", "share", "mover", "person", "persons", "population", "sensitive_0",
    "inner_0", "own", "counts", "figures", "round", "alone",
)  # fmt: skip
HOSTILE = (
    '"; drop table people; --', '"', "o'x", "a b", " ", "\t", "a\nb", "größe", "日本", "select", "order", "table", "*",
    ".", "a.b", "$1", "?", "%s", "{}", "--", "/*", "rowid", "true", "null", "COLUMNS(*)", "sqlanon", "x" * 300,
)  # fmt: skip


@pytest.mark.thorough
@pytest.mark.parametrize("name", some([*INTERNAL, *HOSTILE], 23, few=2))
def test_any_name_of_a_column(
    live: duckdb.DuckDBPyConnection, tmp_path: Path, name: str, released_table: Released
) -> None:
    """At level 0, with a label, with suppressed rows, as sensitive; and with all the other names."""
    other_names = [candidate for candidate in ("n", "known", "value", '"; drop', "a b") if candidate != name]
    values = ("i // 12 % 2", "i % 3", "i // 24", "i % 5", "i % 7", "i % 11")  # classes of 12, 12, 12 and 4
    columns = ", ".join(
        f"{value} AS {quote_name(column)}" for value, column in zip(values, (name, *other_names), strict=False)
    )
    live.execute(f"CREATE TABLE people AS SELECT {columns} FROM range(40) AS r(i)")
    generalized = {"role": "quasi", "hierarchy": "suppress", "min_level": 1}
    roles = {name: "suppress", other_names[0]: generalized, other_names[1]: "suppress", other_names[2]: "sensitive"}
    sections = {
        "source": {"table": "people", "undeclared": "drop"},
        "search": {"measure": "loss", "suppression_limit": 0.3},
    }
    rows, types = released_table(live, roles, tmp_path, k=9, **sections)
    assert list(types) == [name, *other_names[:3]]
    picked = ", ".join(map(quote_name, (name, other_names[1])))
    expected = live.execute(f"SELECT {picked}, count(*) FROM people GROUP BY ALL HAVING count(*) >= 9").fetchall()
    assert Counter((row[0], row[2]) for row in rows.elements()) == {(a, b): n for a, b, n in expected}
    assert {row[1] for row in rows} == {"*"}

    swapped = {
        name: generalized,
        other_names[0]: "suppress",
        other_names[1]: "insensitive",
        other_names[2]: "identifying",
    }
    rows, types = released_table(live, swapped, tmp_path, k=9, **sections)
    assert list(types) == [name, *other_names[:2]]
    assert types[name] == "VARCHAR"
    assert {row[0] for row in rows} == {"*"}


WORK_TABLES = (
    "source", "source_read", "frequency_raw", "frequency_0", "values_0", "hierarchy_0", "coded_0", "lattice",
    "suppressed", "recoded", "manifest", "released", "sqlanon_work", "members", "movers", "combinations", "pairs_0",
    "sensitive_0", "distribution_0_0", "domain_0", "population_frequency_raw", "source_copy", "own_values_0",
    "combinations_of_both",
)  # fmt: skip


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("name", "as_query"),
    some([(name, bool((i + j) % 2)) for i, name in enumerate((*WORK_TABLES, *HOSTILE)) for j in (0, 1)], 20, few=2),
)
def test_any_name_of_a_table(
    live: duckdb.DuckDBPyConnection, tmp_path: Path, name: str, as_query: bool, released_table: Released
) -> None:
    live.execute(f"CREATE TABLE {quote_name(name)} AS {PEOPLE} UNION ALL SELECT 'x', 9")
    if as_query:
        source = {"query": f"SELECT zip, age FROM {quote_name(name)}"}
    elif name == " ":
        pytest.skip("a policy has no blank names")
    else:
        source = {"table": name}
    rows, _ = released_table(live, ROLES, tmp_path, source=source, search={"suppression_limit": 0.2})
    assert rows == ROWS


# Types


SCALARS = {
    "BOOLEAN": ["true", "false"],
    "TINYINT": ["-128", "7"],
    "SMALLINT": ["-32768", "7"],
    "INTEGER": ["-2147483648", "7"],
    "BIGINT": ["-9223372036854775808", "7"],
    "HUGEINT": ["-170141183460469231731687303715884105728", "170141183460469231731687303715884105727"],
    "UTINYINT": ["255", "7"],
    "USMALLINT": ["65535", "7"],
    "UINTEGER": ["4294967295", "7"],
    "UBIGINT": ["18446744073709551615", "18446744073709551614"],
    "UHUGEINT": ["340282366920938463463374607431768211455", "340282366920938463463374607431768211454"],
    "BIGNUM": ["123456789012345678901234567890123456789012345678901", "-7"],
    "FLOAT": ["nan", "inf", "-inf", "1e-45", "0.1"],
    "DOUBLE": ["nan", "inf", "-inf", "0.1", "0.30000000000000004", "0.3"],
    "DECIMAL(4,1)": ["1.5", "-999.9"],
    "DECIMAL(18,3)": ["1.500", "999999999999999.999"],
    "DECIMAL(38,10)": ["1.5000000000", "2.0000000001"],
    "VARCHAR": ["a", "A", "a ", "", "é", "e\u0301", "NULL", "**", "it's", "日"],
    "BLOB": ["\\x00\\xFF", "a", ""],
    "BIT": ["0101", "101", "1"],
    "UUID": ["00000000-0000-0000-0000-000000000001", "f0000000-0000-0000-0000-000000000001"],
    "DATE": ["2020-02-29", "0044-03-15 (BC)", "infinity", "-infinity"],
    "TIME": ["12:00:00", "23:59:59.999999"],
    "TIME_NS": ["12:00:00.123456789", "12:00:00.123456788"],
    "TIME WITH TIME ZONE": ["12:00:00+01", "11:00:00+00", "13:00:00+02"],
    "TIMESTAMP": ["2020-01-01 00:00:00", "2020-01-01 00:00:00.000001", "infinity"],
    "TIMESTAMP_S": ["2020-01-01 00:00:00", "2020-01-01 00:00:01"],
    "TIMESTAMP_MS": ["2020-01-01 00:00:00", "2020-01-01 00:00:00.001"],
    "TIMESTAMP_NS": ["2020-01-01 00:00:00", "2020-01-01 00:00:00.000000001"],
    "TIMESTAMP WITH TIME ZONE": ["2020-01-01 00:00:00+00", "2020-01-01 00:00:00.000001+00"],
    "INTERVAL": ["1 month", "29 days", "00:00:01"],
}


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("type_", "storage", "rule"),
    some(
        [
            (type_, ("live", "file")[(i + j) % 2], ("mask", "suppress")[j])
            for i, type_ in enumerate(SCALARS)
            for j in (0, 1)
        ],
        35,
    ),
)
def test_every_scalar_type_can_be_a_quasi_identifier(tmp_path: Path, type_: str, storage: str, rule: str) -> None:
    """At level 0 it keeps its type, its values stay apart, and NULL is one of them."""
    path = tmp_path / "types.duckdb" if storage == "file" else ":memory:"
    connection = duckdb.connect(str(path))
    connection.execute(f"CREATE TABLE t (x {type_}, y INTEGER)")
    values = [*SCALARS[type_], None]
    for value in values:
        connection.execute(f"INSERT INTO t SELECT CAST(? AS {type_}), 1 FROM range(2)", [value])
    query = "SELECT typeof(x), CAST(x AS VARCHAR), count(*) FROM {} GROUP BY ALL"
    expected = sorted(connection.execute(query.format("t")).fetchall(), key=str)
    assert len(expected) == len(values)
    source: Any = connection
    if storage == "file":
        connection.close()
        source = path
    release = tmp_path / "release.duckdb"
    with sqlanon.connect(source) as db:
        result = db.anonymize(make_policy({"x": rule, "y": "insensitive"}))
        assert (result.generalization, result.classes) == ({"x": 0}, len(values))
        assert result.publish(release, "released").verify().verified
    with duckdb.connect(str(release), read_only=True) as reader:
        assert sorted(reader.execute(query.format("released")).fetchall(), key=str) == expected
    connection.close()


@pytest.mark.thorough
@pytest.mark.parametrize("type_", some(SCALARS, 20))
def test_every_scalar_type_can_have_labels_and_suppression(
    live: duckdb.DuckDBPyConnection, tmp_path: Path, type_: str
) -> None:
    """Suppressed rows are matched by value at level 0; labels are VARCHAR."""
    live.execute(f"CREATE TABLE t (x {type_}, y {type_})")
    first, second = SCALARS[type_][:2]
    for x, n in ((first, 3), (second, 1), (None, 3)):
        live.execute(f"INSERT INTO t SELECT CAST(? AS {type_}), CAST(? AS {type_}) FROM range({n})", [x, first])
    top, path = {"role": "quasi", "hierarchy": "suppress", "min_level": 1}, tmp_path / "release.duckdb"
    rows = live.execute("SELECT CAST(x AS VARCHAR), 3 FROM t GROUP BY x HAVING count(*) > 1").fetchall()
    assert len(rows) == 2
    with sqlanon.connect(live) as db:
        limit = {"suppression_limit": 0.2}
        release = db.anonymize(make_policy({"x": "suppress", "y": top}, search=limit)).publish(path, "released")
        assert release.verify().verified
    with duckdb.connect(str(path), read_only=True) as reader:
        query = "SELECT CAST(x AS VARCHAR), count(*) FROM released WHERE y = '*' GROUP BY ALL"
        assert Counter(reader.execute(query).fetchall()) == Counter(rows)
        types = reader.execute("SELECT DISTINCT typeof(x), typeof(y) FROM released").fetchall()
        assert types == [(type_, "VARCHAR")]


@pytest.mark.thorough
def test_intervals_that_are_equal_are_one_value(live: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    """They are equal to GROUP BY: a release must not distinguish them."""
    live.execute("CREATE TABLE t AS SELECT unnest(['30 days', '1 month', '720 hours'])::INTERVAL AS x")
    publish_and_read(live, {"x": "suppress"}, tmp_path, k=3)
    with duckdb.connect(str(tmp_path / "release.duckdb"), read_only=True) as release:
        assert release.execute("SELECT DISTINCT CAST(x AS VARCHAR), typeof(x) FROM released").fetchall() == [
            ("1 month", "INTERVAL")
        ]


@pytest.mark.slow
def test_enum_becomes_text_everywhere(live: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    live.execute("CREATE TYPE mood AS ENUM ('sad', 'ok', 'never seen')")
    live.execute("""
        CREATE TABLE t AS SELECT
            'ok'::mood AS quasi, 'ok'::mood AS plain, {'m': 'ok'::mood, 'a b': ['sad'::mood], 'n': 1} AS struct,
            ['ok'::mood] AS list, map {'ok'::mood: 'sad'::mood} AS map, union_value(u := 'ok'::mood) AS either,
            ['ok', 'sad']::mood[2] AS pair, [{'deep': map {'x': ['ok'::mood]}}] AS deep, {'no': 'enum'} AS other
        FROM range(3)""")
    names = ("plain", "struct", "list", "map", "either", "pair", "deep", "other")
    _, types = publish_and_read(live, {"quasi": "suppress", **dict.fromkeys(names, "insensitive")}, tmp_path)
    assert types == {
        "quasi": "VARCHAR",
        "plain": "VARCHAR",
        "struct": 'STRUCT(m VARCHAR, "a b" VARCHAR[], n INTEGER)',
        "list": "VARCHAR[]",
        "map": "MAP(VARCHAR, VARCHAR)",
        "either": "UNION(u VARCHAR)",
        "pair": "VARCHAR[2]",
        "deep": "STRUCT(deep MAP(VARCHAR, VARCHAR[]))[]",
        "other": 'STRUCT("no" VARCHAR)',
    }
    assert b"never seen" not in (tmp_path / "release.duckdb").read_bytes()


@pytest.mark.slow
@pytest.mark.cases(1)
@pytest.mark.parametrize(
    "expression",
    [
        pytest.param("{'a': 1}::VARIANT", id="variant"),
        pytest.param(
            "row(1, 'x')", id="tuple", marks=pytest.mark.skipif(DUCKDB_1, reason="DuckDB 1.5 makes no such table")
        ),
    ],
)
def test_types_that_a_release_cannot_hold_are_named(
    live: duckdb.DuckDBPyConnection, tmp_path: Path, expression: str
) -> None:
    """If it can be bound after all, no error of the engine is passed on."""
    live.execute(f"CREATE TABLE t AS SELECT 1 AS x, {expression} AS y FROM range(3)")
    try:
        rows, _ = publish_and_read(live, {"x": "suppress", "y": "insensitive"}, tmp_path)
    except sqlanon.SqlanonError as error:
        assert "y" in str(error)
    else:
        assert len(rows) == 3


# Values that look equal


@pytest.mark.thorough
def test_collations_do_not_merge_values(
    live: duckdb.DuckDBPyConnection, tmp_path: Path, released_table: Released
) -> None:
    live.execute("CREATE TABLE t (x VARCHAR COLLATE NOCASE, y VARCHAR COLLATE NOCASE.NOACCENT)")
    live.execute("INSERT INTO t VALUES ('a', 'é'), ('a', 'é'), ('A', 'E'), ('A', 'E')")
    rows, _ = released_table(live, {"x": "suppress", "y": "suppress"}, tmp_path)
    assert rows == {("a", "é"): 2, ("A", "E"): 2}
    with sqlanon.connect(live) as db:
        result = db.anonymize(make_policy({"x": "suppress", "y": "suppress"}, k=3))
        assert set(result.generalization.values()) == {1}, "two values of two rows each are not one of four"
        assert db.risk(make_policy({"x": "suppress", "y": "suppress"})).classes == 2


@pytest.mark.thorough
def test_default_collation_of_a_connection_does_not_merge_values(
    live: duckdb.DuckDBPyConnection, tmp_path: Path, released_table: Released
) -> None:
    live.execute("SET default_collation = 'nocase'")
    live.execute("CREATE TABLE t (x VARCHAR)")
    live.execute("INSERT INTO t VALUES ('ab'), ('ab'), ('AB'), ('AB')")
    assert released_table(live, {"x": "suppress"}, tmp_path)[0] == {("ab",): 2, ("AB",): 2}
    masked = {"role": "quasi", "hierarchy": {"mask": "right"}, "min_level": 1}
    assert released_table(live, {"x": masked}, tmp_path)[0] == {("a*",): 2, ("A*",): 2}
    assert live.execute("SELECT current_setting('default_collation'), 'a' = 'A'").fetchall() == [("nocase", True)]


# Names and places that mean something to the engine


@pytest.mark.thorough
@pytest.mark.parametrize("ending", some(["parquet", "csv"], 2))
def test_paths_are_read_literally_without_partition_columns(tmp_path: Path, ending: str) -> None:
    """``f[1]`` is that folder, not ``f1``; ``year=2020`` is not a column."""
    for folder, rows in (("f[1]/year=2020", 8), ("f1", 90)):
        (tmp_path / folder).mkdir(parents=True)
        path = tmp_path / folder / f"p.{ending}"
        duckdb.connect().execute(f"COPY (SELECT i % 2 AS x FROM range({rows}) AS t(i)) TO '{path}'")
    policy = tmp_path / "f[1]" / "year=2020" / "policy.toml"
    policy.write_text(
        f'source.files = "p.{ending}"\nprivacy.k = 2\nrelease.file = "o.parquet"\n'
        'attributes.x = { role = "quasi", hierarchy = "suppress" }\n',
        encoding="utf-8",
    )
    with sqlanon.connect() as db:
        result = db.anonymize(sqlanon.Policy.load(policy))
        assert result.rows == 8
        assert result.publish().verify().verified
