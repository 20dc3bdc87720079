"""A frequency set in place of a source, and the release that a warehouse makes of what was found: as from the rows."""

from __future__ import annotations

import json
import re
import stat
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st
from sqlglot import exp, parse
from typer.testing import CliRunner

import sqlanon
from oracles import oracle_privacy
from oracles.oracle_privacy import Source
from properties import privacy_cases
from properties.privacy_cases import LISTED, PrivacyCase
from properties.privacy_checks import open_database, policy_of
from sqlanon.cli import app
from sqlanon.requirements import list_requirements
from sqlanon.requirements.plain_sql import WarehouseRelease
from sqlanon.support.expressions import table
from sqlanon.warehouse import DIALECTS
from support.databases import quote_name
from support.lanes import SEARCHING, examples, some
from support.policies import make_policy
from support.warehouse_checks import DIFFERING, figures, from_set, violations

slow = pytest.mark.slow
quick = settings(
    max_examples=examples(25),
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.generate, Phase.shrink],
)

FEW: dict[str, Any] = {
    **dict.fromkeys(("name", "born", "diagnosis", "cost"), "identifying"),
    "zip": "mask",
    "age": "suppress",
}
ATTRIBUTES: dict[str, Any] = {
    "name": "identifying",
    "zip": "mask",
    "age": {"intervals": [5, 10]},
    "born": {"dates": ["month", "year"]},
    "diagnosis": "sensitive",
    "cost": "insensitive",
}
PRIVACY: dict[str, Any] = {"k": 5, "l_diversity": [{"attribute": "diagnosis", "kind": "distinct", "l": 2}]}


TYPES = "name VARCHAR, zip VARCHAR, age INTEGER, born DATE, diagnosis VARCHAR, cost INTEGER"


def fill(connection: duckdb.DuckDBPyConnection) -> None:
    """A warehouse has the same rows: inserting them one by one takes DuckDB long."""
    connection.execute(f"CREATE TABLE patients ({TYPES})")
    connection.execute(
        "INSERT INTO patients SELECT 'person ' || i, lpad((i % 7)::VARCHAR, 5, '0'), 20 + i % 11, "
        "CASE WHEN i % 5 > 0 THEN DATE '1990-01-01' + (i % 60)::INTEGER END, 'abc'[1 + i % 3], i % 9 "
        "FROM range(400) AS t(i)"
    )


@pytest.fixture
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    """A warehouse that is DuckDB: it understands its own dialect."""
    with duckdb.connect() as connection:
        fill(connection)
        yield connection


def ask(connection: duckdb.DuckDBPyConnection, policy: sqlanon.Policy, path: Path) -> None:
    """Run the frequency-set query of the plan, and write its result as Parquet."""
    with sqlanon.connect() as db:
        query = db.plan(policy, dialect="duckdb").stages[0].sql[0]
    connection.execute(f"COPY ({query}) TO '{path}'")


def follow(connection: duckdb.DuckDBPyConnection, folder: Path) -> dict[str, list[tuple[Any, ...]]]:
    """Upload an exported folder, make the release, and audit it: the rows of each query, by the comment above it."""
    for file in folder.glob("*.parquet"):
        connection.execute(f"CREATE TABLE {quote_name(file.stem)} AS FROM read_parquet('{file}')")
    connection.execute((folder / "release.sql").read_text())
    answers = {}
    for block in (folder / "audit.sql").read_text().split("\n\n")[1:]:
        comment, _, query = block.partition("\n")
        answers[comment.removeprefix("-- ")] = connection.execute(query).fetchall()
    return answers


def released_rows(result: sqlanon.Result) -> Counter[tuple[Any, ...]]:
    """The rows of the release that is made here, with the columns in their order."""
    relation = result._run.engine.relation(result._draft.statement.select(shuffled=False))
    return Counter(relation.project(", ".join(quote_name(name) for name in sorted(relation.columns))).fetchall())


def make_rows(connection: duckdb.DuckDBPyConnection, name: str) -> Counter[tuple[Any, ...]]:
    relation = connection.table(name)
    return Counter(relation.project(", ".join(quote_name(name) for name in sorted(relation.columns))).fetchall())


def check_same(source_policy: sqlanon.Policy, connection: duckdb.DuckDBPyConnection, folder: Path) -> int:
    """The rows and their frequency set have the same result and release; and the audit agrees. The masked rows."""
    set_policy = from_set(source_policy, folder / "f.parquet", source={"table": source_policy.source.table})
    ask(connection, set_policy, folder / "f.parquet")
    with sqlanon.connect(connection) as db, sqlanon.connect() as second_db:
        try:
            expected = db.anonymize(source_policy)
        except sqlanon.InfeasibleError as error:
            with pytest.raises(sqlanon.InfeasibleError) as raised:
                second_db.anonymize(set_policy)
            assert str(raised.value) == str(error)
            return 0
        result = second_db.anonymize(set_policy)
        assert figures(result) == figures(expected)
        rows = released_rows(expected)
        audit = follow(connection, result.export(folder / "export", "duckdb"))
        assert make_rows(connection, set_policy.release.table) == rows
        assert violations(audit) == {}
        return result._draft.recoding.masked_rows


# --- the same answer ---------------------------------------------------------------------------------


@pytest.mark.thorough
@pytest.mark.parametrize(("limit", "suppressed"), some([(0.2, "mask"), (0, "drop"), (0, "mask"), (0.2, "drop")], 4))
def test_the_same_is_found_and_released(
    connection: duckdb.DuckDBPyConnection, tmp_path: Path, suppressed: str, limit: float
) -> None:
    search, release = {"suppression_limit": limit}, {"suppressed": suppressed}
    connection.execute("DELETE FROM patients WHERE age > 27 AND cost > 2")
    policy = make_policy(ATTRIBUTES, table="patients", search=search, release=release)
    policy = sqlanon.Policy(**{**policy.model_dump(exclude_none=True), "privacy": PRIVACY})
    masked = check_same(policy, connection, tmp_path)
    assert (masked > 0) == (suppressed == "mask" and limit > 0)


def without_rows(case: PrivacyCase) -> PrivacyCase:
    """A case that a frequency set can serve: rows are not of persons."""
    return replace(case, source=replace(case.source, person=None), declared=False)


@pytest.mark.slow
@slow
@given(case=privacy_cases.privacy_cases(), masked=st.booleans())
@quick
def test_random_sources_are_found_and_released_as_from_rows(case: PrivacyCase, masked: bool) -> None:
    assume(case.source.population is None)
    case = without_rows(case)
    with tempfile.TemporaryDirectory() as name, open_database(case.source) as db:
        policy = policy_of(case, "optimal", Path(name))
        if masked:
            policy = sqlanon.Policy(
                **{**policy.model_dump(exclude_none=True), "release": {"table": "released", "suppressed": "mask"}}
            )
        check_same(policy, db._workspace.engine.connection.cursor(), Path(name))


@pytest.mark.thorough
@slow
def test_a_population_in_a_file_is_looked_at(connection: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    connection.execute(f"COPY (SELECT zip, age FROM patients, range(2)) TO '{tmp_path}/people.parquet'")
    attributes = {"zip": "mask", "age": {"intervals": [5, 10]}}
    policy = sqlanon.Policy(
        attributes=make_policy(attributes).attributes,
        source={"table": "patients", "undeclared": "drop"},
        population={"files": str(tmp_path / "people.parquet")},
        privacy={"k_map": 80},
    )
    check_same(policy, connection, tmp_path)
    assert "Not checked here: 80-map" in (tmp_path / "export" / "audit.sql").read_text()


@pytest.mark.thorough
def test_a_combination_may_be_written_several_times(connection: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    query = "SELECT zip, age, count(*) AS n FROM patients"
    connection.execute(f"COPY ({query} WHERE cost < 5 GROUP BY ALL) TO '{tmp_path}/part-1.parquet'")
    connection.execute(f"COPY ({query} WHERE cost >= 5 GROUP BY ALL) TO '{tmp_path}/part-2.parquet'")
    policy = make_policy(FEW, k=5, table="patients")
    with sqlanon.connect(connection) as db, sqlanon.connect() as second_db:
        result = second_db.anonymize(from_set(policy, tmp_path / "part-*.parquet"))
        assert figures(result) == figures(db.anonymize(policy))


@pytest.mark.thorough
def test_compare_and_plan_need_no_rows(connection: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    policy = from_set(make_policy(FEW, k=5, table="patients"), tmp_path / "f.parquet")
    ask(connection, policy, tmp_path / "f.parquet")
    with sqlanon.connect() as db, sqlanon.connect(connection) as rows:
        compared = db.compare(policy, ["optimal", "datafly"]).project("strategy, score, error").fetchall()
        assert compared == rows.compare(policy, ["optimal", "datafly"]).project("strategy, score, error").fetchall()
        assert "in the warehouse" in str(db.plan(policy))


@pytest.mark.thorough
def test_columns_unknown_to_the_policy_are_audited(connection: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    policy = from_set(make_policy(ATTRIBUTES, k=5, table="patients"), tmp_path / "f.parquet")
    ask(connection, policy, tmp_path / "f.parquet")
    with sqlanon.connect() as db:
        result = db.anonymize(policy)
        unique, narrow = result.warnings
        assert "'diagnosis', 'cost'" in unique
        assert "was not measured: its rows are in a warehouse" in narrow
        audit = follow(connection, result.export(tmp_path / "x", "duckdb"))
    assert "whether other released columns narrow" in (tmp_path / "x" / "audit.sql").read_text()
    unknown_columns = next(rows for name, rows in audit.items() if "identifies people by itself" in name)
    assert unknown_columns == [(400, 3, 9)]


@pytest.mark.slow
def test_dependencies_cannot_be_refused_without_rows(connection: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    policy = from_set(make_policy(ATTRIBUTES, k=5, table="patients"), tmp_path / "f.parquet")
    ask(connection, policy, tmp_path / "f.parquet")
    strict = policy.model_copy(update={"privacy": policy.privacy.model_copy(update={"dependencies": "error"})})
    with (
        sqlanon.connect() as db,
        pytest.raises(sqlanon.SourceError, match="was not measured: its rows are in a warehouse"),
    ):
        db.anonymize(strict)


@pytest.mark.slow
def test_rows_take_the_place_of_a_frequency_set_where_they_are_given(connection: duckdb.DuckDBPyConnection) -> None:
    policy = from_set(make_policy(FEW, k=5, table="patients"), "nowhere.parquet")
    with sqlanon.connect(connection) as db:
        assert db.risk(policy).rows == 400


# --- what is refused ---------------------------------------------------------------------------------


def problems(**sections: Any) -> dict[str, str]:
    tree = {
        "source": {"frequency_set": "f.parquet", "table": "clinic.patients"},
        "attributes": {"zip": {"role": "quasi", "hierarchy": {"mask": "right"}}},
        "privacy": {"k": 5},
    }
    with pytest.raises(sqlanon.PolicyError) as error:
        sqlanon.Policy(**{**tree, **sections})
    return {problem.place: problem.message for problem in error.value.problems}


def test_features_that_need_rows_are_refused_at_once() -> None:
    messages = problems(
        source={"frequency_set": "f.parquet", "table": "t", "person": "who", "key": ["id"]},
        attributes={
            "zip": {"role": "quasi", "hierarchy": {"table": "z"}},
            "age": {"role": "quasi", "noise": {"epsilon": 1.0, "bounds": [0, 100]}},
        },
        privacy={"k": 5, "epsilon": 1},
        population={"table": "people"},
        risk={"population": 1000},
        search={"strategy": "mondrian"},
        release={"database": "r.duckdb", "decoys": True, "after": "all", "keep": 2, "table": "t"},
        catalog={"database": "c.duckdb"},
    )
    assert {
        *("source.person", "source.key", "attributes.zip.hierarchy", "attributes.age.noise", "population", "risk"),
        *("search", "release.decoys", "release.after", "release.database", "release.keep", "release.table"),
    } <= messages.keys()
    assert all("warehouse" in messages[place] for place in ("source.person", "search", "release.decoys"))


@pytest.mark.parametrize(
    ("source", "place", "message"),
    [
        ({"frequency_set": "f.parquet"}, "source", "no table"),
        ({"frequency_set": "f.parquet", "table": "a.b.c.d"}, "source.table", "database.schema.table"),
        ({"frequency_set": "f.parquet", "table": "t", "query": "SELECT 1"}, "source.query", "not both"),
        ({"frequency_set": "f.parquet", "table": "t", "files": "t.csv"}, "source.frequency_set", "only one"),
    ],
)
def test_invalid_frequency_set_sources_are_refused(source: dict[str, Any], place: str, message: str) -> None:
    assert message in problems(source=source)[place]


def test_catalog_is_refused_as_frequency_set(tmp_path: Path) -> None:
    messages = problems(
        source={"frequency_set": str(tmp_path / "*.parquet"), "table": "t"},
        catalog={"database": str(tmp_path / "c.parquet")},
    )
    assert "only reads" in messages["catalog.database"]


def test_a_policy_without_a_frequency_set_has_the_fingerprint_that_it_had() -> None:
    assert "frequency_set" not in make_policy({"zip": "mask"}).model_dump_json()
    first, second = (from_set(make_policy({"zip": "mask"}), f"{folder}/f.parquet") for folder in ("/a", "/b"))
    assert first.fingerprint() == second.fingerprint()


COUNTS = {
    "0": "below 1",
    "-3": "below 1",
    "1.5": "not whole",
    "NULL": "no count (NULL)",
    "'nan'::DOUBLE": "more than 2^53",
    "1e300": "more than 2^53",
    "'inf'::DOUBLE": "more than 2^53",
}


@pytest.mark.cases(2)
@pytest.mark.parametrize("count", some(COUNTS, 3))
def test_counts_that_are_none(count: str, connection: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    path = tmp_path / "f.parquet"
    query = f"SELECT '02139' AS zip, 20 AS age, n::DOUBLE AS n FROM (VALUES (7), ({count})) AS v(n)"
    connection.execute(f"COPY ({query}) TO '{path}'")
    policy = from_set(make_policy({"zip": "mask", "age": "suppress"}), path)
    with sqlanon.connect() as db, pytest.raises(sqlanon.SourceError) as error:
        db.anonymize(policy)
    assert f"1 with {COUNTS[count]}" in str(error.value) or COUNTS[count] in str(error.value)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("columns", "message"),
    some(
        [
            ("zip, n", "it has no column 'age'"),
            ("zip, age", "it has no column 'n'"),
            ("zip, n AS age", "it has no column 'n'"),
            ('zip, age, n, 1 AS ward, 2 AS "o\'x"', "it has 'ward', \"o'x\", which the policy does not declare"),
            ("zip, age, n::VARCHAR AS n", "'n' counts rows, and is VARCHAR"),
            ("zip, [age] AS age, n", "cannot have nested types"),
        ],
        3,
    ),
)
def test_frequency_sets_with_wrong_columns_are_refused(
    columns: str, message: str, connection: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    path = tmp_path / "f.parquet"
    connection.execute(f"COPY (SELECT {columns} FROM (VALUES ('02139', 20, 7)) AS v(zip, age, n)) TO '{path}'")
    policy = from_set(make_policy({"zip": "mask", "age": "suppress"}), path)
    with sqlanon.connect() as db, pytest.raises(sqlanon.SourceError, match=re.escape(message)):
        db.anonymize(policy)


@pytest.mark.slow
def test_missing_or_unreadable_frequency_sets_are_refused(tmp_path: Path) -> None:
    for name, message in {
        "f.csv": "must be a Parquet file",
        "none.parquet": "frequency_set: no file",
        "bad.parquet": "cannot be read",
    }.items():
        (tmp_path / "bad.parquet").write_text("nothing")
        (tmp_path / "f.csv").write_text("zip,n\n1,1\n")
        policy = from_set(make_policy({"zip": "mask"}), tmp_path / name)
        with sqlanon.connect() as db, pytest.raises(sqlanon.SourceError, match=message):
            db.anonymize(policy)


@pytest.mark.thorough
def test_an_empty_frequency_set_is_an_empty_source(connection: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    connection.execute("DELETE FROM patients")
    policy = make_policy(FEW, table="patients")
    check_same(policy, connection, tmp_path)  # both are infeasible, and say the same


@pytest.mark.thorough
def test_an_attribute_may_have_the_name_of_the_count(connection: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    connection.execute('CREATE TABLE t AS SELECT zip AS "N", age AS "n_" FROM patients')
    policy = make_policy({"N": "mask", "n_": {"intervals": [5]}}, k=5)
    check_same(policy, connection, tmp_path)
    assert "n__" in connection.read_parquet(str(tmp_path / "f.parquet")).columns


@pytest.mark.thorough
@pytest.mark.parametrize("whole", some(["n::DOUBLE", "n::DECIMAL(18,0)", "n::HUGEINT", "n::UTINYINT"], 4))
def test_counts_of_any_type_of_number(whole: str, connection: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    policy = from_set(make_policy({"zip": "mask", "age": "suppress"}, k=5), tmp_path / "f.parquet")
    query = f"SELECT zip, age, {whole} AS N FROM (SELECT zip, age, count(*) AS n FROM patients GROUP BY ALL)"
    connection.execute(f"COPY ({query}) TO '{tmp_path}/f.parquet'")
    with sqlanon.connect() as db:
        assert db.anonymize(policy).rows == 400


@pytest.mark.slow
def test_verbs_that_read_rows_name_the_warehouse(connection: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    policy = from_set(make_policy(FEW, k=5, table="patients"), tmp_path / "f.parquet")
    ask(connection, policy, tmp_path / "f.parquet")
    with sqlanon.connect() as db:
        for look in (db.risk, db.row_risks, db.suda, db.distinction, db.extend, db.live):
            with pytest.raises(sqlanon.SqlanonError, match=r"frequency set|key|database"):
                look(policy)
        result = db.anonymize(policy)
        with pytest.raises(sqlanon.ReleaseError, match="export"):
            result.publish(tmp_path / "r.duckdb")
        with pytest.raises(sqlanon.SqlanonError, match="frequency set"):
            result.report(tmp_path / "r.html")
    assert not (tmp_path / "r.duckdb").exists()
    plain = make_policy(FEW, k=5, table="patients")
    with sqlanon.connect(connection) as db:
        with pytest.raises(sqlanon.ReleaseError, match="publish"):
            db.anonymize(plain).export(tmp_path / "x", "trino")
        file = db.anonymize(plain).publish(tmp_path / "p.duckdb")
    with sqlanon.connect() as db, pytest.raises(sqlanon.SourceError, match="in the warehouse"):
        db.verify(file.path, policy)


# --- the export --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def initial_result(tmp_path_factory: pytest.TempPathFactory) -> Iterator[sqlanon.Result]:
    """Findings in the warehouse's rows before a test changes them."""
    path = tmp_path_factory.mktemp("found") / "f.parquet"
    policy = from_set(make_policy(ATTRIBUTES, k=6, table="patients", search={"suppression_limit": 0.3}), path)
    with duckdb.connect() as connection, sqlanon.connect() as db:
        fill(connection)
        ask(connection, policy, path)
        yield db.anonymize(policy)


@pytest.mark.thorough
def test_an_export_is_private_and_whole(initial_result: sqlanon.Result, tmp_path: Path) -> None:
    folder = initial_result.export(tmp_path / "x", "snowflake")
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert all(stat.S_IMODE(file.stat().st_mode) == 0o600 for file in folder.iterdir())
    names = {"release.sql", "audit.sql", "sqlanon_suppressed.parquet", "sqlanon_0_zip.parquet"}
    assert names <= {file.name for file in folder.iterdir()}
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
    assert initial_result.sql("snowflake") in (folder / "release.sql").read_text()


@pytest.mark.slow
def test_the_uploaded_tables_have_no_counts(initial_result: sqlanon.Result, tmp_path: Path) -> None:
    folder = initial_result.export(tmp_path / "x", "trino")
    with duckdb.connect() as connection:
        for file in folder.glob("*.parquet"):
            columns = connection.read_parquet(str(file)).columns
            assert all(re.fullmatch(r"value|known|(code|label)_\d", name) for name in columns), columns


@pytest.mark.slow
def test_an_export_overwrites_nothing(initial_result: sqlanon.Result, tmp_path: Path) -> None:
    full = tmp_path / "full"
    full.mkdir()
    (full / "mine.txt").write_text("mine")
    for target in (full, full / "mine.txt"):
        with pytest.raises(sqlanon.ReleaseError, match="not empty"):
            initial_result.export(target, "trino")
    with pytest.raises(sqlanon.ReleaseError, match="cannot be written"):
        initial_result.export(tmp_path / "no" / "such" / "folder", "trino")
    assert [path.name for path in full.iterdir()] == ["mine.txt"]
    (tmp_path / "empty").mkdir()
    assert (initial_result.export(tmp_path / "empty", "trino") / "audit.sql").is_file()


@pytest.mark.slow
def test_an_export_is_in_the_ledger(connection: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    """Its result cannot be compared with releases: both sides say so, as long as the ledger has it."""
    policy = from_set(make_policy(FEW, k=6, table="patients"), tmp_path / "f.parquet")
    ask(connection, policy, tmp_path / "f.parquet")
    parts = policy.model_dump(exclude_unset=True) | {"catalog": {"database": tmp_path / "c.duckdb"}}
    policy = sqlanon.Policy(**parts | {"release": {"table": "shared.patients"}})
    with sqlanon.connect() as db:
        result = db.anonymize(policy)
        with pytest.raises(sqlanon.ReleaseError, match="cannot be written"):
            result.export(tmp_path / "no" / "such" / "folder", "trino")
        result.export(tmp_path / "x", "trino")
        assert not [
            warning for warning in result.warnings if "ledger" in warning
        ]  # the first, and the one that failed is none
        again = db.anonymize(policy)
        again.export(tmp_path / "y", "Trino")
        assert [warning for warning in again.warnings if "the ledger has 1 earlier export, which" in warning]
        unrecorded = sqlanon.Policy(**parts | {"release": {"table": "shared.patients", "ledger": False}})
        db.anonymize(unrecorded).export(tmp_path / "z", "trino")
    with duckdb.connect(str(tmp_path / "c.duckdb"), read_only=True) as reader:
        rows = reader.execute("SELECT path, table_name, dialect FROM sqlanon.exports ORDER BY exported_at").fetchall()
    assert rows == [(str(tmp_path / name), "shared.patients", "trino") for name in "xy"]
    plain = make_policy(FEW, k=6, table="patients").model_dump(exclude_unset=True)
    release = {"database": tmp_path / "r.duckdb", "table": "r"}
    with sqlanon.connect(connection) as db:
        published = db.anonymize(sqlanon.Policy(**plain | {"catalog": parts["catalog"], "release": release}))
        published.publish()
        assert [
            warning
            for warning in published.warnings
            if "2 exports for warehouses" in warning and "shared.patients" in warning
        ]
    with duckdb.connect(str(tmp_path / "c.duckdb")) as writer:
        writer.execute("DELETE FROM sqlanon.exports")
    with sqlanon.connect(connection) as db:
        published = db.anonymize(sqlanon.Policy(**plain | {"catalog": parts["catalog"], "release": release}))
        published.publish()
        assert not [warning for warning in published.warnings if "for warehouses" in warning]


@pytest.mark.slow
def test_the_release_is_in_random_order(initial_result: sqlanon.Result, connection: duckdb.DuckDBPyConnection) -> None:
    for dialect in DIALECTS:
        statement = parse(initial_result.sql(dialect), dialect=dialect)[0]
        assert isinstance(statement, exp.Create) and statement.expression.args["order"] is not None
        assert re.search(r"(?i)ORDER BY\s+(pg_catalog\.|system\.main\.)?RAND(OM)?\(\)$", initial_result.sql(dialect))


@pytest.mark.slow
def test_database_macros_do_not_change_the_export(
    initial_result: sqlanon.Result, connection: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    folder = initial_result.export(tmp_path / "export", "duckdb")
    expected, clean = follow(connection, folder), make_rows(connection, "shared")
    connection.execute("DROP TABLE shared")
    for file in folder.glob("*.parquet"):
        connection.execute(f"DROP TABLE {quote_name(file.stem)}")
    text = "".join((folder / name).read_text() for name in ("release.sql", "audit.sql"))
    names = set(re.findall(r'system\.main\."?([^\s"(]+)"?\(', text))
    assert {"count", "random", "sum"} <= names
    for name in [*names, "count_star"]:
        connection.execute(f"CREATE MACRO {quote_name(name)}() AS 7, (a) AS 7, (a, b) AS 7")
    assert connection.execute("SELECT sum(i), random() FROM range(3) AS t(i)").fetchall() == [(7, 7)] * 3
    assert follow(connection, folder) == expected
    assert make_rows(connection, "shared") == clean


FLOATS = """
    SELECT
        CASE WHEN i = 7 THEN '-0.0'::DOUBLE ELSE 0.0 END AS one,
        CASE WHEN i = 8 THEN -'nan'::DOUBLE ELSE 'nan' END AS none,
        i % 2 AS age,
        CASE i % 3 WHEN 0 THEN CASE WHEN i = 9 THEN '-0.0'::FLOAT ELSE 0.0 END
            WHEN 1 THEN CASE WHEN i = 10 THEN -'nan'::DOUBLE ELSE 'nan' END ELSE 1.5 END::FLOAT AS weight
    FROM range(40) AS t(i)
"""
"""Two quasi-identifiers of one value, and a sensitive attribute: with signs that the engine takes for the same."""


@pytest.mark.slow
@pytest.mark.parametrize("stored", [False, True])
def test_numbers_that_the_warehouse_takes_for_equal_are_released_in_one_form(stored: bool, tmp_path: Path) -> None:
    (tmp_path / "one.csv").write_text("0.0\n")  # one level: the column is released as the source has it
    policy = sqlanon.Policy(
        source={"table": "floats"},
        attributes={
            "one": {"role": "quasi", "hierarchy": {"file": tmp_path / "one.csv"}},
            **{name: {"role": "quasi", "hierarchy": "suppress", "max_level": 0} for name in ("none", "age")},
            "weight": {"role": "sensitive"},
        },
        privacy={"k": 10, "l_diversity": [{"attribute": "weight", "kind": "distinct", "l": 2}]},
    )
    set_policy = from_set(policy, tmp_path / "f.parquet", source={"table": "floats"})
    with duckdb.connect() as connection, sqlanon.connect() as db:
        if stored:
            connection.execute(f"CREATE TABLE floats AS {FLOATS}")
        else:  # statistics of a Parquet file leave NaN out
            connection.execute(f"COPY ({FLOATS}) TO '{tmp_path}/floats.parquet'")
            connection.execute(f"CREATE VIEW floats AS FROM '{tmp_path}/floats.parquet'")
        ask(connection, set_policy, tmp_path / "f.parquet")
        result = db.anonymize(set_policy)
        assert violations(follow(connection, result.export(tmp_path / "export", "duckdb"))) == {}
        forms = "SELECT count(DISTINCT (signbit({0}), {0}::VARCHAR)) FROM {1}"
        counts = {
            name: [connection.execute(forms.format(name, table)).fetchone() for table in ("floats", "shared")]
            for name in ("one", "none", "weight")
        }
        for dialect in DIALECTS:
            (statement,) = parse(result.sql(dialect), dialect=dialect)
            assert statement is not None
            twice = dialect in ("postgres", "snowflake")  # which compare with it, too
            assert [node.name for node in statement.find_all(exp.Literal)].count("NaN") == (4 if twice else 2), dialect
    before, after = ({name: digests[i] for name, digests in counts.items()} for i in range(2))
    assert after == {"one": (1,), "none": (1,), "weight": (3,)}
    if stored:
        assert before == {"one": (2,), "none": (2,), "weight": (5,)}
    elif (
        duckdb.__version__ >= "2"
    ):  # it writes one NaN to the dictionary of a Parquet file, and both zeros; 1.5 one zero
        assert before == {"one": (2,), "none": (1,), "weight": (4,)}


def test_trino_must_sort(initial_result: sqlanon.Result, tmp_path: Path) -> None:
    text = (initial_result.export(tmp_path / "x", "trino") / "release.sql").read_text()
    assert text.index("SET SESSION skip_redundant_sort = FALSE;") < text.index("CREATE TABLE")


@pytest.mark.slow
def test_audit_finds_later_changes(
    initial_result: sqlanon.Result, connection: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    connection.execute("DELETE FROM patients WHERE zip = '00003' AND cost > 0 AND (age <> 21 OR cost > 1)")
    connection.execute("DELETE FROM patients WHERE age = 22 AND cost > 2")
    audit = violations(follow(connection, initial_result.export(tmp_path / "x", "duckdb")))
    assert "6-anonymity" in audit and any("source" in name for name in audit) and len(audit) == 3


TAMPERED = {
    "a copy of another of its class": "UPDATE shared SET cost = 1 WHERE rowid = {row}",
    "of another type of value": "UPDATE shared SET weight = NULL WHERE rowid = {row}",
    "numbers for NaN": "UPDATE shared SET weight = 1 WHERE isnan(weight)",
    "NaN for a number": "UPDATE shared SET weight = 'nan' WHERE rowid = {row}",
    "NULL for a value": "UPDATE shared SET diagnosis = NULL WHERE rowid = {row}",
    "a value for NULL": "UPDATE shared SET note = '' WHERE rowid = (SELECT min(rowid) FROM shared WHERE note IS NULL)",
    "another case": "UPDATE shared SET diagnosis = upper(diagnosis) WHERE rowid = {row}",
    "lost": "DELETE FROM shared WHERE rowid = {row}",
    "doubled": "INSERT INTO shared FROM shared WHERE rowid = {row}",
    "replaced": "DELETE FROM shared WHERE rowid = {row}; INSERT INTO shared FROM shared WHERE rowid = {other}",
    "all of them doubled": "INSERT INTO shared FROM shared",
}


@pytest.fixture
def odd(connection: duckdb.DuckDBPyConnection) -> duckdb.DuckDBPyConnection:
    """The warehouse with columns of odd values."""
    weights = "[NULL, 'nan'::DOUBLE, 'inf'::DOUBLE, -0.0, 0.5][1 + rowid % 5]"
    columns = f"*, {weights} AS weight, nullif(cost, 3)::VARCHAR AS note"
    connection.execute(f"CREATE OR REPLACE TABLE patients AS SELECT {columns} FROM patients")
    return connection


def differing(before: Counter[Any], after: Counter[Any]) -> dict[tuple[Any, ...], tuple[int, int]]:
    """The former and the present number of each row, where they differ."""
    return {row: (before[row], after[row]) for row in before | after if before[row] != after[row]}


@pytest.mark.thorough
@pytest.mark.parametrize("suppressed", some(["drop", "mask"], 2))
def test_the_audit_finds_every_row_that_differs(
    odd: duckdb.DuckDBPyConnection, tmp_path: Path, suppressed: str
) -> None:
    attributes = {**ATTRIBUTES, "weight": "insensitive", "note": "insensitive"}
    release, search = {"suppressed": suppressed}, {"suppression_limit": 0.3}
    policy = make_policy(attributes, k=6, table="patients", search=search, release=release)
    policy = from_set(policy, tmp_path / "f.parquet")
    ask(odd, policy, tmp_path / "f.parquet")
    with sqlanon.connect() as db:
        folder = db.anonymize(policy).export(tmp_path / "x", "duckdb")
    assert follow(odd, folder)[DIFFERING] == []
    audit = dict(block.partition("\n")[::2] for block in (folder / "audit.sql").read_text().split("\n\n")[1:])
    columns = [column[0] for column in odd.execute(audit[f"-- {DIFFERING}"]).description][:-2]
    rows = f"SELECT {', '.join(f'{quote_name(name)}::VARCHAR' for name in columns)} FROM shared"
    before = Counter(odd.execute(rows).fetchall())
    row, other_row = odd.execute(
        "SELECT arg_min(rowid, cost), arg_max(rowid, cost) FROM shared WHERE cost NOT IN (1, 3) AND weight = 0.5 "
        "GROUP BY zip, age, born, diagnosis HAVING min(cost) <> max(cost) ORDER BY 1 LIMIT 1"
    ).fetchall()[0]
    for tampering in TAMPERED.values():
        odd.execute("BEGIN")
        for part in tampering.format(row=row, other=other_row).split("; "):
            odd.execute(part)
        expected = differing(before, Counter(odd.execute(rows).fetchall()))
        assert expected
        text = ", ".join(f"{quote_name(name)}::VARCHAR" for name in columns)
        query = audit[f"-- {DIFFERING}"].rstrip(";\n")
        different = odd.execute(f"SELECT {text}, rows_of_statement, rows_of_release FROM ({query})").fetchall()
        assert {difference[:-2]: difference[-2:] for difference in different} == expected
        odd.execute("ROLLBACK")


@pytest.mark.thorough
def test_rows_of_new_values_are_left_out(
    initial_result: sqlanon.Result, connection: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    connection.execute("INSERT INTO patients SELECT name, '99999', age, born, diagnosis, cost FROM patients LIMIT 9")
    audit = violations(follow(connection, initial_result.export(tmp_path / "x", "duckdb")))
    assert connection.execute("SELECT count(*) FROM shared WHERE zip LIKE '9%'").fetchone() == (0,)
    assert any("source" in name for name in audit)


# --- the audit against an oracle ---------------------------------------------------------------------

OF_SOURCE = ("l_diversity", "t_closeness", "delta_disclosure", "beta_likeness", "alpha_k", "k_anonymity")


def expected_classes(source: Source, kind: str, spec: Any) -> int:
    """The classes of the rows as they stand that break a requirement, by plain Python."""
    quasi = source.quasi if kind != "k_anonymity" else {name: source.quasi[name] for name in spec["quasi"]}
    groups: dict[tuple[Any, ...], list[Any]] = {}
    for row in source.rows:
        groups.setdefault(tuple(row[name] for name in quasi), []).append(row)
    if kind == "k_anonymity":
        return sum(len(group) < spec["k"] for group in groups.values())
    return sum(not oracle_privacy.OF_VALUES[kind](source, group, spec) for group in groups.values())


@slow
@pytest.mark.parametrize("kind", OF_SOURCE)
@given(data=st.data())
@settings(quick, derandomize=not SEARCHING, max_examples=examples(20), print_blob=True)
def test_the_audit_finds_the_classes_that_an_oracle_finds(kind: str, data: st.DataObject) -> None:
    source = replace(data.draw(privacy_cases.sources(population=False)), person=None)
    spec = LISTED[kind](data.draw, source)
    policy = sqlanon.Policy(
        attributes={
            **{name: {"role": "quasi", "hierarchy": "suppress"} for name in source.quasi},
            **{name: {"role": "sensitive", "hierarchy": "suppress"} for name in source.sensitive},
        },
        privacy={kind: [spec]},
    )
    (requirement,) = list_requirements(policy.privacy)
    names = {name: name for name in policy.attributes}
    released = WarehouseRelease(table("t"), table("t"), policy.generalized_attributes, [*source.sensitive], names)
    with open_database(source) as db:
        engine = db._workspace.engine.holder
        query = requirement.violations(released)
        if query is None:
            assert kind == "t_closeness" and spec["distance"] != "equal"
            return
        classes = {row[: len(source.quasi)] for row in engine.rows(query)} if kind != "k_anonymity" else None
        count = len(engine.rows(query)) if classes is None else len(classes)
    assert count == expected_classes(source, kind, spec)


def test_the_audit_of_the_whole_table(connection: duckdb.DuckDBPyConnection) -> None:
    connection.execute("CREATE TABLE t AS SELECT zip FROM (VALUES ('a'), ('a'), (NULL), ('b'), (NULL)) AS v(zip)")
    limits = {"average_risk": (0.6, 0.59), "sample_uniqueness": (0.2, 0.19)}
    for name, (enough, little) in limits.items():
        for limit, expected in ((enough, []), (little, [(pytest.approx(enough),)])):
            policy = sqlanon.Policy(
                attributes={"zip": {"role": "quasi", "hierarchy": "suppress"}}, privacy={name: limit}
            )
            (requirement,) = list_requirements(policy.privacy)
            query = requirement.violations(WarehouseRelease(table("t"), table("t"), ["zip"], [], {"zip": "zip"}))
            assert query is not None and connection.execute(query.sql("duckdb")).fetchall() == expected


# --- the command line --------------------------------------------------------------------------------

TOML = """
[source]
frequency_set = "f.parquet"
table = "clinic.patients"

[attributes]
name = { role = "identifying" }
zip = { role = "quasi", hierarchy = { mask = "right" } }
age = { role = "quasi", hierarchy = { intervals = [5, 10] } }
cost = { role = "insensitive" }

[privacy]
k = 5

[release]
table = "shared.patients"
"""


@pytest.fixture
def policy_file(connection: duckdb.DuckDBPyConnection, tmp_path: Path) -> Path:
    connection.execute(f"COPY (SELECT zip, age, count(*) AS n FROM patients GROUP BY ALL) TO '{tmp_path}/f.parquet'")
    (tmp_path / "p.toml").write_text(TOML)
    return tmp_path / "p.toml"


def run(*arguments: object, status: int = 0) -> str:
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert done.exit_code == status, done.output
    return done.output


def test_anonymize_writes_exported_statements(policy_file: Path, tmp_path: Path) -> None:
    outcome = run("anonymize", policy_file, "--export", tmp_path / "x", "--dialect", "snowflake")
    assert "400 of 400 rows to be released" in outcome and str(tmp_path / "x") in outcome.replace("\n", "")
    assert 'CREATE TABLE "shared"."patients" AS' in (tmp_path / "x" / "release.sql").read_text()
    arguments = ["anonymize", str(policy_file), "--export", str(tmp_path / "y"), "--dialect", "Trino", "--json"]
    document = json.loads(CliRunner().invoke(app, arguments).stdout)
    assert document["export"] == str(tmp_path / "y") and document["table"] == "shared.patients"
    assert document["suppressed_rows"] == 0 and document["generalization"]


@pytest.mark.thorough
def test_plan_needs_no_database(policy_file: Path, tmp_path: Path) -> None:
    (tmp_path / "f.parquet").unlink()
    outcome = run("plan", policy_file, "--dialect", "bigquery")
    assert "FROM `clinic`.`patients`" in outcome and "CREATE TABLE `shared`.`patients`" in outcome
    policy_file.write_text(TOML.replace('frequency_set = "f.parquet"', 'database = "nowhere.duckdb"'))
    assert "FROM `clinic`.`patients`" in run("plan", policy_file, "--dialect", "bigquery")


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("release", "table_name"),
    some([("", "`release`"), ('table = "patients"', "`patients`"), ('table = "a.b.c"', "`a`.`b`.`c`")], 3),
)
def test_the_release_has_the_name_that_it_was_given(policy_file: Path, release: str, table_name: str) -> None:
    policy_file.write_text(TOML.replace('table = "shared.patients"', release))
    assert f"CREATE TABLE {table_name} AS" in run("plan", policy_file, "--dialect", "spark")


@pytest.mark.slow
def test_a_release_of_duckdb_without_a_name_is_not_the_source(policy_file: Path) -> None:
    text = TOML.replace('frequency_set = "f.parquet"', 'database = "d.duckdb"')
    policy_file.write_text(text.replace('table = "shared.patients"', 'file = "r.parquet"'))
    assert "CREATE TABLE `release` AS" in run("plan", policy_file, "--dialect", "spark")


def refusal_message(*arguments: object) -> str:
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert done.exit_code != 0
    return f"{done.output}\n{done.exception}"


@pytest.mark.slow
def test_wrong_requests_are_refused(policy_file: Path, tmp_path: Path) -> None:
    every = ", ".join(DIALECTS)
    assert f"must be one of {every}, not 'oracle'" in refusal_message("plan", policy_file, "--dialect", "oracle")
    assert every in refusal_message("anonymize", policy_file, "--export", tmp_path / "x", "--dialect", "oracle")
    assert "--export FOLDER --dialect NAME" in refusal_message("anonymize", policy_file)
    assert "--export FOLDER --dialect NAME" in refusal_message("anonymize", policy_file, "--export", tmp_path / "x")
    policy_file.write_text(TOML.replace('frequency_set = "f.parquet"', 'database = "d.duckdb"'))
    assert "leave it out" in refusal_message("anonymize", policy_file, "--dialect", "trino")
    no_file = 'zip = { role = "quasi", hierarchy = { file = "nowhere.csv" } }'
    policy_file.write_text(TOML.replace('zip = { role = "quasi", hierarchy = { mask = "right" } }', no_file))
    assert "attributes.zip.hierarchy" in refusal_message("plan", policy_file, "--dialect", "trino")
    policy_file.write_text(TOML.replace("[privacy]", '[search]\nstrategy = "mondrian"\n[privacy]'))
    assert "search" in refusal_message("plan", policy_file, "--dialect", "trino")
    assert not (tmp_path / "x").exists()
