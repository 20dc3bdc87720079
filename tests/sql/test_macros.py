"""The macro library, as a stranger uses it: from `sqlanon init`, in a release, and straight from the SQL file."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterator
from hashlib import md5
from pathlib import Path
from typing import Any

import duckdb
import pytest

import sqlanon
from sqlanon.ledger.catalog import init_database
from sqlanon.support.resources import read_sql_file
from support.databases import DUCKDB_1, insert, quote_name
from support.lanes import examples
from support.policies import make_policy

# Names that the macros use themselves, and names that are patterns: each is the name of a column here.
INTERNAL = ["qi", "rel", "class_size", "sqlanon class size", "k", "rows", "classes", "uniques", "line", "c", "digest"]
PATTERNS = [".*", "*", "z.*", "^zip$", "%"]
COLUMNS = ["zip", "Age", 'say "hi"', "größe", *INTERNAL, *PATTERNS]
ROWS = 60


def values(row: int) -> list[int | None]:
    """A value for each column; every column groups the rows in its own way, and some have NULLs."""
    return [None if (row + i) % 17 == 0 else (row * (i + 1)) % (2 + i % 5) for i in range(len(COLUMNS))]


TABLE = [values(row) for row in range(ROWS)]


def fill(connection: duckdb.DuckDBPyConnection) -> None:
    columns = ", ".join(f"{quote_name(name)} INTEGER" for name in COLUMNS)
    connection.execute(f"CREATE TABLE people ({columns})")
    insert(connection, "people", TABLE)
    connection.execute('CREATE SCHEMA "my schema"')
    connection.execute('CREATE TABLE "my schema"."my ""own"" table" AS FROM people')
    connection.execute("CREATE TABLE nobody AS FROM people LIMIT 0")
    connection.execute("CREATE VIEW looked_at AS FROM people")


OLD = pytest.param("init of an old file", marks=pytest.mark.slow)


@pytest.fixture(scope="module", params=["init of a new file", OLD, "the SQL file"])
def db(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[duckdb.DuckDBPyConnection]:
    if request.param == "the SQL file":
        with duckdb.connect() as connection:
            fill(connection)
            connection.execute(read_sql_file("macros.sql"))
            yield connection
        return
    path = tmp_path_factory.mktemp("macros") / "db.duckdb"
    if request.param == "init of a new file":
        init_database(path)
    with duckdb.connect(path) as connection:
        fill(connection)
    if request.param == "init of an old file":
        init_database(path)
    with duckdb.connect(path, read_only=True) as connection:
        yield connection


def list_literal(names: list[str]) -> str:
    return "[" + ", ".join("'" + name.replace("'", "''") + "'" for name in names) + "]"


def k_anonymity(db: duckdb.DuckDBPyConnection, relation: str, names: list[str]) -> tuple[Any, ...]:
    cursor = db.execute(f"FROM sqlanon.k_anonymity({relation}, {list_literal(names)})")
    assert [column[0] for column in cursor.description or []] == ["k", "classes", "rows", "uniques"]
    (row,) = cursor.fetchall()
    return row


def count_combinations(names: list[str]) -> Counter[tuple[int | None, ...]]:
    places = [COLUMNS.index(name) for name in names]
    return Counter(tuple(row[place] for place in places) for row in TABLE)


def expected_figures(names: list[str]) -> tuple[int, int, int, int]:
    sizes = list(count_combinations(names).values())
    return min(sizes), len(sizes), ROWS, sizes.count(1)


@pytest.mark.thorough
def test_k_is_that_of_the_given_columns(db: duckdb.DuckDBPyConnection) -> None:
    assert k_anonymity(db, "'people'", ["zip", "Age"]) == expected_figures(["zip", "Age"])
    assert k_anonymity(db, "'people'", ["Age"]) == expected_figures(["Age"])
    assert expected_figures(["zip", "Age"]) != expected_figures(["Age"])


@pytest.mark.thorough
def test_a_file_with_tables_gets_them_and_keeps_its_tables(tmp_path: Path) -> None:
    with duckdb.connect(tmp_path / "db.duckdb") as connection:
        fill(connection)
    init_database(tmp_path / "db.duckdb")
    with duckdb.connect(tmp_path / "db.duckdb", read_only=True) as connection:
        assert k_anonymity(connection, "'people'", COLUMNS[:3]) == expected_figures(COLUMNS[:3])


@pytest.mark.thorough
@pytest.mark.parametrize("name", COLUMNS)
def test_every_name_means_its_own_column(name: str, db: duckdb.DuckDBPyConnection) -> None:
    """The macros' own names (parameters, inner columns) and patterns are names like any other."""
    for names in ([name], [name, "zip"], ["zip", name]):
        assert k_anonymity(db, "'people'", names) == expected_figures(list(dict.fromkeys(names)))


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in COLUMNS if name.lower() != "class_size"])
def test_the_classes_are_those_of_the_column(name: str, db: duckdb.DuckDBPyConnection) -> None:
    relation = db.execute(f"FROM sqlanon.equivalence_classes('people', {list_literal([name])})")
    columns = [column[0] for column in relation.description or []]
    assert columns[0] == name
    assert columns[1].startswith("class_size")
    assert Counter({(value,): size for value, size in relation.fetchall()}) == count_combinations([name])


@pytest.mark.slow
@pytest.mark.parametrize("names", [["class_size"], ["zip", "CLASS_SIZE"]])
def test_a_column_that_is_called_class_size_is_refused(names: list[str], db: duckdb.DuckDBPyConnection) -> None:
    """Which of the two columns of that name would be the count?"""
    with pytest.raises(duckdb.Error, match="rename it"):
        db.execute(f"FROM sqlanon.equivalence_classes('people', {list_literal(names)})").fetchall()


@pytest.mark.thorough
def test_null_is_a_value_of_its_own(db: duckdb.DuckDBPyConnection) -> None:
    rows = db.execute("SELECT zip, class_size FROM sqlanon.equivalence_classes('people', ['zip'])").fetchall()
    nulls = sum(row[0] is None for row in TABLE)
    assert nulls > 0
    assert (None, nulls) in rows


@pytest.mark.parametrize("names", [["ZIP", "AGE"], ["Zip"], ["age"], ['SAY "HI"'], ["SQLANON CLASS SIZE", "zip"]])
def test_case_does_not_matter(names: list[str], db: duckdb.DuckDBPyConnection) -> None:
    by_lower = {name.lower(): name for name in COLUMNS}
    assert k_anonymity(db, "'people'", names) == expected_figures([by_lower[name.lower()] for name in names])


@pytest.mark.slow
@pytest.mark.parametrize(
    "names",
    [["nope"], ["zip", "nope"], ["nope", "zip"], ["zi."], ["zi.*"], ["(zip|Age)"], ["zip "], [" zip"], [""],
     ["people.zip"], ['"zip"'], ["zip, Age"], ["rowid"], ["_"], ["zip", ""]],
)  # fmt: skip
@pytest.mark.parametrize("macro", ["k_anonymity", "equivalence_classes"])
def test_an_unknown_column_is_an_error(macro: str, names: list[str], db: duckdb.DuckDBPyConnection) -> None:
    """A name that was left out in silence, or that matched others, would make k look other than it is."""
    with pytest.raises(duckdb.BinderException):
        db.execute(f"FROM sqlanon.{macro}('people', {list_literal(names)})")


@pytest.mark.slow
@pytest.mark.parametrize("argument", ["[]", "[]::VARCHAR[]", "NULL", "[NULL]", "['zip', NULL]", "'zip'", "1"])
@pytest.mark.parametrize("macro", ["k_anonymity", "equivalence_classes"])
def test_no_list_of_names_is_an_error(macro: str, argument: str, db: duckdb.DuckDBPyConnection) -> None:
    with pytest.raises(duckdb.Error):
        db.execute(f"FROM sqlanon.{macro}('people', {argument})")


def test_a_name_given_twice_counts_once(db: duckdb.DuckDBPyConnection) -> None:
    assert k_anonymity(db, "'people'", ["zip", "zip", "ZIP"]) == expected_figures(["zip"])


@pytest.mark.slow
@pytest.mark.parametrize(
    "relation",
    [
        "'people'",
        "'PEOPLE'",
        "'main.people'",
        "'looked_at'",
        pytest.param(
            """'"my schema"."my ""own"" table"'""",
            marks=pytest.mark.skipif(DUCKDB_1, reason="query_table of DuckDB 1.5 reads no quotes in quotes"),
        ),
        """'"people"'""",
    ],
)
def test_relations_are_named_by_text(relation: str, db: duckdb.DuckDBPyConnection) -> None:
    assert k_anonymity(db, relation, ["zip", "Age"]) == expected_figures(["zip", "Age"])
    assert db.execute(f"SELECT rows FROM sqlanon.digest({relation})").fetchall() == [(ROWS,)]
    rows = db.execute(f"SELECT sum(class_size) FROM sqlanon.equivalence_classes({relation}, ['zip'])").fetchall()
    assert rows == [(ROWS,)]


@pytest.mark.slow
@pytest.mark.parametrize(
    "relation", ["'nope'", "'people; DROP TABLE people'", "'(SELECT 1 AS zip)'", "''", "NULL", "'people WHERE false'"]
)
def test_an_unknown_relation_is_an_error(relation: str, db: duckdb.DuckDBPyConnection) -> None:
    for call in ("k_anonymity({}, ['zip'])", "equivalence_classes({}, ['zip'])", "digest({})"):
        with pytest.raises(duckdb.Error):
            db.execute(f"FROM sqlanon.{call.format(relation)}")
    assert db.execute("SELECT count(*) FROM people").fetchall() == [(ROWS,)]


def test_an_empty_table_has_no_k_and_no_classes(db: duckdb.DuckDBPyConnection) -> None:
    assert k_anonymity(db, "'nobody'", ["zip"]) == (None, 0, 0, 0)
    assert db.execute("FROM sqlanon.equivalence_classes('nobody', ['zip'])").fetchall() == []
    assert db.execute("FROM sqlanon.digest('nobody')").fetchall() == [(0, "0")]
    with pytest.raises(duckdb.BinderException):
        k_anonymity(db, "'nobody'", ["nope"])


def test_the_macros_can_be_used_in_queries_and_other_macros(db: duckdb.DuckDBPyConnection) -> None:
    query = """
        WITH sizes AS (SELECT class_size FROM sqlanon.equivalence_classes('people', ['zip', 'Age']))
        SELECT min(class_size), count(*) FROM sizes
    """
    assert db.execute(query).fetchall() == [expected_figures(["zip", "Age"])[:2]]


# The digest


def digest(query: str) -> str:
    with duckdb.connect() as connection:
        connection.execute(read_sql_file("macros.sql"))
        connection.execute(f"CREATE TABLE t AS {query}")
        text: str = connection.execute("SELECT digest FROM sqlanon.digest('t')").fetchall()[0][0]
        return text


def test_digest_matches_its_documented_definition() -> None:
    """Done again here in plain Python."""
    numbers = [1, 12, None, 0, -1, -(2**63), 2**63 - 1, 2**31, -(2**40) + 5]
    rows = [(number, None if i == 2 else f"ä{i}", i % 2 == 0) for i, number in enumerate(numbers)]
    total = 0
    for row in rows:
        line = 0
        for name, value in zip(("a", "B c", "d"), row, strict=True):
            upper, lowest = md5_number(name) >> 97, md5_number(name) % 2**31
            if isinstance(value, str):
                line ^= (md5_number(f"={value}") >> 97) * upper
            elif value is not None:
                line ^= (value % 2**31 + 1431655765) * upper ^ (value // 2**31) * lowest
        total += (line // 2**32) * (line % 2**31)
    values = ", ".join(str(row).replace("None", "NULL") for row in rows)
    assert digest(f'SELECT a::BIGINT AS a, "B c", d FROM (VALUES {values}) AS v(a, "B c", d)') == str(total)


def md5_number(text: str) -> int:
    return int.from_bytes(md5(text.encode(), usedforsecurity=False).digest(), "little")


ODD_NAMES = (
    "zip",
    "Zip code",
    'a"b',
    '"a"',
    '""',
    "select",
    "ß",
    "x\ny",
    "STRUCT(a",
    "a) ",
    "\\1",
    "'",
    " INTEGER",
    "日本",
)


@pytest.mark.thorough
def test_the_digest_has_the_names_of_columns_as_they_are() -> None:
    """The types contain words with spaces, quotes, names and brackets."""
    with duckdb.connect() as connection:
        connection.execute(read_sql_file("macros.sql"))
        for name in ODD_NAMES:
            quoted = '"' + name.replace('"', '""') + '"'
            for value in ("7", "'a'", "{'a b': 1, 'c': [2.5]}", "MAP {'\"': 1}", "TIMESTAMPTZ '2020-01-01'"):
                connection.execute(f"CREATE OR REPLACE TABLE t AS SELECT {value} AS {quoted}")
                text, type_ = connection.execute(f"SELECT {quoted}::VARCHAR, typeof({quoted}) FROM t").fetchall()[0]
                upper = md5_number(name) >> 97
                line = (7 + 1431655765) * upper if type_ == "INTEGER" else (md5_number(f"={text}") >> 97) * upper
                total = (line // 2**32) * (line % 2**31)
                assert connection.execute("FROM sqlanon.digest('t')").fetchall() == [(1, str(total))], (name, value)


def test_the_digest_has_names_as_constants() -> None:
    """DuckDB evaluates a constant text once; a function of each row would take a quarter longer."""
    macro = read_sql_file("macros.sql").partition("MACRO sqlanon.digest(")[2]
    hashed = re.findall(r"md5_number\((.+?)\) (?:>> 97|& 2147483647)", macro, re.DOTALL)
    names = [argument.replace("COLUMNS(*)", "zip") for argument in hashed if not argument.startswith("'='")]
    assert len(names) == 3
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE t AS SELECT '02139' AS zip")
        for name in names:
            plan = connection.execute(f"EXPLAIN SELECT md5_number({name}) FROM t").fetchall()[0][1]
            assert str(md5_number("zip")) in re.sub(r"[^0-9]", "", plan), plan  # some versions break long lines


@pytest.mark.thorough
@pytest.mark.parametrize("type_", ["TINYINT", "SMALLINT", "INTEGER", "BIGINT"])
def test_a_number_alone_in_its_table_has_a_digest_of_its_own(type_: str) -> None:
    digests = [digest(f"SELECT {value}::{type_} AS x") for value in (0, 1, -1, 2, 100, -100, "NULL")]
    assert len(set(digests)) == len(digests)


@pytest.mark.thorough
def test_the_digest_does_not_depend_on_the_order_of_rows() -> None:
    rows = "SELECT i, i % 7 AS j, 'v' || i AS t FROM range(5000) AS r(i) ORDER BY"
    assert digest(f"{rows} i") == digest(f"{rows} i DESC") == digest(f"{rows} hash(i)")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("first_query", "second_query"),
    [
        ("SELECT 'a' AS x, 'b' AS y", "SELECT 'b' AS x, 'a' AS y"),
        ("SELECT 'ab' AS x, '' AS y", "SELECT 'a' AS x, 'b' AS y"),
        ("SELECT 'N' AS x", "SELECT NULL::VARCHAR AS x"),
        ("SELECT '' AS x", "SELECT NULL::VARCHAR AS x"),
        ("SELECT 'a' AS x", "SELECT 'a ' AS x"),
        ("SELECT 'a' AS x", "SELECT 'A' AS x"),
        ("SELECT 0.1::DOUBLE AS x", "SELECT 0.10000000000000002::DOUBLE AS x"),
        ("SELECT 'a' AS x FROM range(2)", "SELECT 'a' AS x FROM range(3)"),
        ("SELECT ['a', 'b'] AS x", "SELECT ['a, b'] AS x"),
        ("SELECT [NULL] AS x", "SELECT ['NULL'] AS x"),
        ("SELECT TIMESTAMP '2020-01-01 00:00:00.000001' AS x", "SELECT TIMESTAMP '2020-01-01 00:00:00' AS x"),
        # Cells in another row, or in another column; columns that read alike; the names of columns.
        ("FROM (VALUES ('a', 'x', 1), ('b', 'y', 2)) AS v", "FROM (VALUES ('a', 'y', 1), ('b', 'x', 2)) AS v"),
        ("FROM (VALUES (1, 2), (3, 4)) AS v", "FROM (VALUES (2, 1), (3, 4)) AS v"),
        ("SELECT 'a' AS x, 'a' AS y", "SELECT 'b' AS x, 'b' AS y"),
        ("SELECT NULL AS x, 'a' AS y", "SELECT 'a' AS x, NULL AS y"),
        ("FROM (VALUES ('a', 'x'), ('a', 'x')) AS v", "FROM (VALUES ('b', 'x'), ('b', 'x')) AS v"),
        ("SELECT 'a' AS x", "SELECT 'a' AS z"),
    ],
)
def test_different_tables_have_different_digests(first_query: str, second_query: str) -> None:
    assert digest(first_query) != digest(second_query)


@pytest.mark.thorough
def test_cells_that_change_places_are_found() -> None:
    """Exchange two cells of a column, or of a row: each exchange gives another digest."""
    chance = random.Random(5)
    rows = [[i, 100 + i % 7, 1000 + i * i] for i in range(40)]
    digests = {digest_of(rows)}
    exchanges = set()
    while len(exchanges) < examples(40):
        first_row, second_row = sorted(chance.sample(range(40), 2))
        column = chance.randrange(3)
        if rows[first_row][column] != rows[second_row][column]:
            exchanges.add((first_row, column, second_row, column))
        exchanges.add((first_row, 0, first_row, chance.choice((1, 2))))
    for first_row, column, second_row, second in exchanges:
        moved = [list(row) for row in rows]
        moved[first_row][column], moved[second_row][second] = moved[second_row][second], moved[first_row][column]
        digests.add(digest_of(moved))
    assert len(digests) == 1 + len(exchanges)


ACCIDENTS = {
    "a row is lost": "FROM t WHERE id <> {i}",
    "a row is doubled": "FROM t UNION ALL FROM t WHERE id = {i}",
    "a row takes the place of another": "FROM t WHERE id <> {i} UNION ALL FROM t WHERE id = {j}",
    "a number is one more": "SELECT * REPLACE (if(id = {i}, stay + 1, stay) AS stay) FROM t",
    "one more here, one less there": "SELECT * REPLACE (stay + (id = {i})::INT - (id = {j})::INT AS stay) FROM t",
    "a number is cut off": "SELECT * REPLACE (if(id = {i}, stay % 256, stay) AS stay) FROM t WHERE {i} > 25",
    "a number is lost": "SELECT * REPLACE (if(id = {i}, NULL, stay) AS stay) FROM t",
    "a text is cut off": "SELECT * REPLACE (if(id = {i}, left(label, 4), label) AS label) FROM t",
    "a text is empty": "SELECT * REPLACE (if(id = {i}, '', label) AS label) FROM t",
    "a truth is turned": "SELECT * REPLACE (flag <> (id = {i}) AS flag) FROM t",
    "columns are exchanged": "SELECT id, days AS stay, stay AS days, label, flag, cost FROM t WHERE {i} >= 0",
    "columns are exchanged in a row": (
        "SELECT * REPLACE (if(id = {i}, days, stay) AS stay, if(id = {i}, stay, days) AS days) FROM t"
    ),
    "a number moves down a row": "SELECT * REPLACE (lag(stay, 1, -7) OVER (ORDER BY id) AS stay) FROM t WHERE {i} >= 0",
    "a column is all zeros": "SELECT * REPLACE (0::BIGINT AS stay) FROM t WHERE {i} >= 0",
}


@pytest.mark.thorough
def test_accidents_are_found() -> None:
    """In a table of numbers and texts, each at several rows."""
    table = """
        SELECT i AS id, 300 + i * 7 AS stay, (i % 5)::BIGINT AS days, 'label ' || i % 3 AS label, i % 2 = 0 AS flag,
               i * 0.25::DOUBLE AS cost
        FROM range(50) AS r(i)
    """
    with duckdb.connect() as connection:
        connection.execute(read_sql_file("macros.sql"))
        connection.execute(f"CREATE TABLE t AS {table}")
        right = connection.execute("SELECT digest FROM sqlanon.digest('t')").fetchall()
        for accident, query in ACCIDENTS.items():
            for i, j in ((0, 1), (1, 31), (30, 4), (49, 48)):
                connection.execute(f"CREATE OR REPLACE TABLE found AS {query.format(i=i, j=j)}")
                assert connection.execute("SELECT digest FROM sqlanon.digest('found')").fetchall() != right, (
                    accident,
                    i,
                )


def digest_of(rows: list[list[int]]) -> str:
    return digest(f"FROM (VALUES {', '.join(str(tuple(row)) for row in rows)}) AS v(a, b, c)")


# In a release


@pytest.mark.thorough
def test_the_macros_of_a_release_group_by_the_right_columns(tmp_path: Path) -> None:
    """The same hostile names, in a release file that is opened with nothing but DuckDB."""
    with duckdb.connect() as connection:
        fill(connection)
        attributes = {name: "suppress" if name == "zip" else "insensitive" for name in COLUMNS}
        with sqlanon.connect(connection) as db:
            result = db.anonymize(make_policy(attributes, k=ROWS, table="people"))
            path = result.publish(tmp_path / "r.duckdb").path
    with duckdb.connect(path, read_only=True) as release:
        assert k_anonymity(release, "'people'", ["ZIP"]) == (ROWS, 1, ROWS, 0)
        for name in COLUMNS[1:]:
            assert k_anonymity(release, "'people'", ["zip", name]) == expected_figures([name])
        with pytest.raises(duckdb.BinderException):
            k_anonymity(release, "'people'", ["zip", "nope"])
