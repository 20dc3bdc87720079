"""Queries and views that read files: relative to the policy, and no CSV file by a guess."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

import sqlanon
from sqlanon.errors import SourceError
from sqlanon.policy import Policy
from support.commands import cli

GUESSED = "DuckDB would guess how it is written"
TOLD = "auto_detect = false, delim = ',', header = true, columns = {'age': 'INT', 'ill': 'VARCHAR'}"
ATTRIBUTES = '[attributes]\nage = { role = "quasi", hierarchy = "suppress" }\nill = { role = "sensitive" }\n'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A project with a database, and files next to it."""
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "people.csv").write_text("age,ill\n" + "".join(f"{20 + i},flu\n" for i in range(6)))
    with duckdb.connect(str(tmp_path / "d.duckdb")) as connection:
        connection.execute("CREATE TABLE t AS SELECT 1 AS one")
        connection.execute(f"CREATE VIEW guessed AS FROM '{tmp_path}/x/people.csv'")
        connection.execute(f"COPY (FROM guessed) TO '{tmp_path}/x/people.parquet'")
    return tmp_path


def write_policy(folder: Path, source: str) -> Path:
    file = folder / "policy.toml"
    release = '[release]\ndatabase = "release.duckdb"\ntable = "r"\n'
    file.write_text(f'[source]\ndatabase = "d.duckdb"\n{source}\n{ATTRIBUTES}[privacy]\nk = 2\n{release}')
    return file


@pytest.mark.slow
@pytest.mark.parametrize(
    "source",
    [
        """query = "FROM 'x/people.csv'" """,
        """query = "SELECT age, ill FROM read_csv('x/people.csv')" """,
        """query = "FROM read_csv_auto(['x/people.csv'], delim = ',')" """,
        """query = "WITH p AS (FROM 'x/people.csv') FROM p" """,
        """query = "FROM guessed" """,
        'table = "guessed"',
        f"""query = "FROM read_csv('x/people.csv', {TOLD}) UNION ALL FROM guessed" """,
        f"""query = "FROM read_csv('x/people.csv', {TOLD}) UNION ALL FROM read_csv('x/people.csv')" """,
        """query = "FROM query('FROM read_csv(''x/people.csv'')')" """,
    ],
)
@pytest.mark.parametrize("verb", ["anonymize", "risk"])
def test_no_csv_file_is_read_by_a_guess(folder: Path, source: str, verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    ended = cli(verb, str(write_policy(folder, source)), cwd=folder)
    assert ended.status == 2 and GUESSED in ended.err
    assert not (folder / "release.duckdb").exists()


@pytest.mark.thorough
@pytest.mark.parametrize(
    "query",
    [
        "FROM 'x/people.parquet'",
        f"FROM read_csv('x/people.csv', {TOLD})",
        "SELECT p.* FROM t, 'x/people.parquet' AS p",
        "SELECT p.* FROM t JOIN read_parquet(['x/*.parquet']) AS p ON one = 1",
    ],
)
def test_a_query_reads_files_beside_the_policy(
    folder: Path, query: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    policy = write_policy(folder, f'query = "{query}"')
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "x").mkdir()
    duckdb.connect().execute(f"COPY (SELECT 99 AS age, 'no' AS ill) TO '{elsewhere}/x/people.parquet'").close()
    ended = cli("anonymize", str(policy), cwd=elsewhere)
    assert ended.status == 0, ended.err
    with duckdb.connect(str(folder / "release.duckdb"), read_only=True) as connection:
        assert connection.execute("SELECT ill, count(*) FROM r GROUP BY ALL").fetchall() == [("flu", 6)]


@pytest.mark.slow
def test_lines_that_a_configured_reader_cannot_read_are_refused(folder: Path) -> None:
    with (folder / "x" / "people.csv").open("a") as file:
        file.write("21,flu,more\n")
    ended = cli("anonymize", str(write_policy(folder, f"""query = "FROM read_csv('x/people.csv', {TOLD})" """)))
    assert ended.status == 2 and "the source cannot be read" in ended.err and "flu" not in ended.err


def test_a_policy_with_a_query_has_one_fingerprint_wherever_it_is(folder: Path) -> None:
    policy = write_policy(folder, """query = "FROM 'x/people.parquet'" """)
    (folder / "moved").mkdir()
    moved = policy.rename(folder / "moved" / "policy.toml")
    query = Policy.load(moved).source.query
    assert query == f"FROM '{folder}/moved/x/people.parquet'"
    assert (
        Policy.load(moved).fingerprint()
        == Policy.load(write_policy(folder, "query = \"FROM 'x/people.parquet'\"")).fingerprint()
    )


def test_texts_of_a_query_that_are_no_files_stay(folder: Path) -> None:
    for query in (
        "SELECT extract(year FROM '2020-01-01'), 'x.csv' AS ill FROM t WHERE name = 'y.parquet' -- FROM 'z.csv'",
        "FROM t AS a, (SELECT trim(BOTH FROM 'x'), 'y.csv') SELECT 1, 'z.csv' ORDER BY 1, 'z.csv'",
    ):
        source = write_policy(folder, f'query = "{query}"')
        assert Policy.load(source).source.query == query


def test_a_query_that_sqlglot_cannot_split_into_words_reads_no_guess(folder: Path) -> None:
    ended = cli("anonymize", str(write_policy(folder, """query = "FROM 'x/people.csv' WHERE '1" """)), cwd=folder)
    assert ended.status == 2 and "source.query" in ended.err and "Traceback" not in ended.err


@pytest.mark.slow
def test_a_connection_whose_view_guesses_is_refused(folder: Path) -> None:
    attributes = {"age": {"role": "quasi", "hierarchy": "suppress"}, "ill": {"role": "sensitive"}}
    with duckdb.connect() as connection:
        connection.execute(f"CREATE TEMP VIEW people AS FROM '{folder}/x/people.csv'")
        with sqlanon.connect(connection) as db:
            policy = Policy(source={"table": "people"}, attributes=attributes, privacy={"k": 2})
            with pytest.raises(SourceError, match=GUESSED):
                db.anonymize(policy)
            connection.execute("CREATE TABLE loaded AS FROM people")
            loaded = policy.model_copy(update={"source": policy.source.model_copy(update={"table": "loaded"})})
            assert db.anonymize(loaded).smallest_class == 6
