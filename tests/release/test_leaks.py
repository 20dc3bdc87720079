"""Private values must not be in a release: searched byte by byte, in files that are written uncompressed.

Compressed values hide from such a search, so every search has its control: the same needles are found in the source,
written the same way, and released values are found in the release.
"""

from __future__ import annotations

import logging
import random
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

import sqlanon
import sqlanon.publish.targets.file.target as publishing
from support.commands import cli
from support.lanes import some
from support.policies import make_policy
from support.private_values import (
    ATTRIBUTES,
    ODD,
    ROWS,
    UNUSED,
    needles,
    plain,
    query,
    source,
    suppression_kind,
    values,
)

pytestmark = pytest.mark.slow

__all__ = ["source", "suppression_kind"]  # fixtures


def without_max_level(spec: Any) -> Any:
    """An attribute whose rows may be masked: they show its top label."""
    return {name: value for name, value in spec.items() if name != "max_level"} if isinstance(spec, dict) else spec


@pytest.fixture(scope="module", params=["duckdb", "parquet"])
def release(
    request: pytest.FixtureRequest,
    suppression_kind: str,
    source: duckdb.DuckDBPyConnection,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Path]:
    path = tmp_path_factory.mktemp("leaks") / f"release.{request.param}"
    attributes = {
        name: spec if suppression_kind == "drop" else without_max_level(spec) for name, spec in ATTRIBUTES.items()
    }
    policy = make_policy(
        attributes,
        k=4,
        table="people",
        privacy={"dependencies": "warn"},
        search={"suppression_limit": 0.02},
        release={"suppressed": suppression_kind},
    )
    with pytest.MonkeyPatch.context() as patch, sqlanon.connect(source) as db:
        patch.setattr(publishing.DuckDBEngine, "execute", plain(publishing.DuckDBEngine.execute))
        result = db.anonymize(policy)
        assert result.suppressed_rows == ODD
        assert result.released_rows == ROWS + (ODD if suppression_kind == "mask" else 0)
        result.publish(path, "people")
    yield path


def released_needles(source: duckdb.DuckDBPyConnection) -> list[bytes]:
    """Values that must be in the release, or the search proves nothing."""
    condition = "FROM people WHERE city <> 'Farawaytown-c5'"
    texts = ["note", "illness", "drug::VARCHAR", "history[1]::VARCHAR", "wards.first::VARCHAR", "sex", "code"]
    needles_ = [value.encode() for text in texts for value in values(source, f"SELECT DISTINCT {text} {condition}")]
    needles_ += [struct.pack("<q", value) for value in values(source, f"SELECT visits {condition}")]
    return [*needles_, b"north region", b"south region", b"QX71", b"1984"]


def test_releases_contain_no_private_values(
    release: Path, suppression_kind: str, source: duckdb.DuckDBPyConnection
) -> None:
    content = release.read_bytes()
    released_rows = released_needles(source)
    missing = [value for value in released_rows if value not in content]
    assert len(released_rows) > 2 * ROWS
    assert missing == []
    assert [name for name, value in needles(source, suppression_kind).items() if value in content] == []


def test_the_search_finds_every_needle_where_it_is(source: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    """The control of the other half: a file that does hold the private values."""
    source.execute(f"ATTACH '{tmp_path / 'private.duckdb'}' AS private (STORAGE_VERSION 'v1.0.0')")
    # A date as text is written only where somebody wrote it as text.
    source.execute(
        "CREATE TABLE private.main.people AS SELECT *, born::VARCHAR AS b, income::VARCHAR AS i, ssn::VARCHAR AS s, "
        "city::VARCHAR AS c, drug::VARCHAR AS d, history[1]::VARCHAR AS h FROM people"
    )
    source.execute("DETACH private")
    content = (tmp_path / "private.duckdb").read_bytes()
    assert [name for name, value in needles(source).items() if value not in content] == []


@pytest.mark.thorough
def test_the_release_of_the_command_line_holds_no_private_value(
    source: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    """The source is a DuckDB file with ENUM types, compressed: the test searches for what the engine can find in it."""
    source.execute(f"ATTACH '{tmp_path / 'hospital.duckdb'}' AS hospital")
    source.execute("CREATE TABLE hospital.main.people AS FROM people")
    source.execute("DETACH hospital")
    lines = ["[source]", 'database = "hospital.duckdb"', 'table = "people"', 'undeclared = "drop"', "[attributes]"]
    lines += [
        'city = { role = "quasi", hierarchy = "suppress", min_level = 1 }',
        'zip = { role = "quasi", hierarchy = { mask = "right", levels = 4 }, min_level = 2 }',
        'drug = { role = "sensitive" }',
        'history = { role = "insensitive" }',
        "[privacy]", "k = 4", 'dependencies = "warn"', "[search]",
        "suppression_limit = 0.02", "[release]", 'database = "release.duckdb"',
    ]  # fmt: skip
    (tmp_path / "policy.toml").write_text("\n".join(lines))
    assert cli("anonymize", tmp_path / "policy.toml").status == 0
    with duckdb.connect(tmp_path / "release.duckdb", read_only=True) as connection:
        types = dict(connection.execute("SELECT column_name, data_type FROM duckdb_columns() "
                                        "WHERE table_name = 'people_v1'").fetchall())  # fmt: skip
        assert types == {"zip": "VARCHAR", "city": "VARCHAR", "drug": "VARCHAR", "history": "VARCHAR[]"}
        statistics = str(connection.execute("SELECT DISTINCT stats(zip), stats(city), stats(drug), stats(history) "
                                            "FROM people").fetchall())  # fmt: skip
        assert "QX" in statistics
        metadata = str(connection.execute("FROM pragma_storage_info('people_v1')").fetchall())
        dump = str([connection.execute(f"FROM {name}()").fetchall()
                    for name in ("duckdb_types", "duckdb_views", "duckdb_tables", "duckdb_columns")])  # fmt: skip
    for text in (statistics, metadata, dump):
        for column in ("zip", "city::VARCHAR"):
            for value in values(source, f"SELECT DISTINCT {column} FROM people"):
                assert value not in text
        for value in UNUSED:
            assert value not in text


def test_a_release_has_no_default_index_type_or_sequence(release: Path) -> None:
    if release.suffix == ".parquet":
        pytest.skip("a Parquet file has none")
    with duckdb.connect(release, read_only=True) as connection:
        for query in (
            "FROM duckdb_columns() WHERE NOT internal AND column_default IS NOT NULL",
            "FROM duckdb_types() WHERE NOT internal",
            "FROM duckdb_indexes()",
            "FROM duckdb_sequences()",
        ):
            assert connection.execute(query).fetchall() == [], query
    assert not release.with_name(release.name + ".wal").exists()


# Messages of failing runs

PEOPLE = [f"Secret Person {i}" for i in range(40)]
POLICY = """
[source]
{source}
[attributes]
{attributes}
[privacy]
k = {k}
[release]
database = "release.duckdb"
table = "people"
"""
SUPPRESSING = 'name = { role = "quasi", hierarchy = "suppress" }'


def broken_csv(folder: Path) -> str:
    """One line in the middle has more fields than the others."""
    lines = ["name,age", *(f"{name},{i}" for i, name in enumerate(PEOPLE * 1000))]
    lines[30_000] = "Secret Person 7,1,2,Secret Person 8"
    (folder / "people.csv").write_text("\n".join(lines))
    return 'files = "people.csv"'


def not_utf8(folder: Path) -> str:
    lines = [b"name,age", *(f"{name},{i}".encode() for i, name in enumerate(PEOPLE * 1000))]
    lines[30_000] = b"Secret Person \xff\xfe,1"
    (folder / "people.csv").write_bytes(b"\n".join(lines))
    return 'files = "people.csv"'


def broken_parquet(folder: Path) -> str:
    duckdb.connect().execute(f"COPY (SELECT unnest({PEOPLE}) AS name, 1 AS age) TO '{folder / 'people.parquet'}'")
    content = bytearray((folder / "people.parquet").read_bytes())
    content[4:200] = random.Random(0).randbytes(196)
    (folder / "people.parquet").write_bytes(content)
    return 'files = "people.parquet"'


FAILING: dict[str, Any] = {
    "a cast": query("CAST(name AS INTEGER) AS name, age"),
    "a date": query("CAST(name AS DATE) AS name, age"),
    "a format": query("strptime(name, '%Y-%m-%d') AS name, age"),
    "an error of the query's own": query("error(name) AS name, age"),
    "an overflow": query("name, CAST(9223372036854775000 + age * 1000 AS BIGINT) AS age"),
    "a number too large": query("name, CAST(10000 + age AS TINYINT) AS age"),
    "JSON": query("json(name) AS name, age"),
    "an ENUM": query("CAST(name AS ENUM ('a', 'b')) AS name, age"),
    "a pattern": query("name, regexp_matches('x', '(' || name) AS age"),
    "a struct": query("CAST(name AS STRUCT(a INTEGER)) AS name, age"),
    "a blob": query("from_hex(name) AS name, age"),
    "a CSV line": broken_csv,
    "a CSV encoding": not_utf8,
    "a Parquet page": broken_parquet,
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with duckdb.connect(tmp_path / "people.duckdb") as connection:
        connection.execute("CREATE TABLE people (name VARCHAR, age INTEGER)")
        connection.executemany("INSERT INTO people VALUES (?, ?)", [[name, i] for i, name in enumerate(PEOPLE)])
    return tmp_path


def failing_run(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    command: str = "anonymize",
    **parts: Any,
) -> str:
    """Output of a run that has to fail."""
    attributes = SUPPRESSING + '\nage = { role = "insensitive" }'
    text = POLICY.format(
        **{"source": 'database = "people.duckdb"\ntable = "people"', "attributes": attributes, "k": 5, **parts}
    )
    (folder / "policy.toml").write_text(text)
    monkeypatch.delenv("SQLANON_DEBUG", raising=False)
    caplog.set_level(logging.DEBUG)
    status = cli(command, folder / "policy.toml").status
    output = capsys.readouterr()
    assert status in (1, 2), output
    assert output.out == ""
    assert output.err != ""
    assert "Traceback" not in output.err
    assert not (folder / "release.duckdb").exists()
    return output.err + caplog.text


@pytest.mark.thorough
@pytest.mark.parametrize("command", some(["anonymize", "risk"], 2))
@pytest.mark.parametrize("name", some(FAILING, 3))
def test_errors_contain_no_private_values(
    name: str,
    command: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    failing = FAILING[name]
    source = failing(folder) if callable(failing) else failing
    if command == "risk":  # every column has to be read
        attributes = SUPPRESSING + '\nage = { role = "quasi", hierarchy = "suppress" }'
        message = failing_run(folder, monkeypatch, capsys, caplog, command, source=source, attributes=attributes)
    else:
        message = failing_run(folder, monkeypatch, capsys, caplog, command, source=source)
    assert "Secret Person" not in message
    # The query is the data holder's own; what it computed is not to be seen.
    assert "9223372036854775" not in message.replace("9223372036854775000 + age", "")
    assert "100" not in message.replace("10000 + age", "").replace("age * 1000", "")


@pytest.mark.thorough
@pytest.mark.parametrize(
    "rule",
    some(
        [
            '{ file = "names.csv" }',
            '{ table = "names" }',
            '{ categories = { all = ["Public Person"], none = ["Nobody"] } }',
            '[{ mask = "right", levels = 2 }, { file = "names.csv" }]',
            '{ dates = ["year"] }',
            "{ intervals = [5] }",
        ],
        3,
    ),
)
def test_an_error_of_a_hierarchy_shows_at_most_five_values(
    rule: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The data holder needs some to mend the hierarchy, and the log of a run must not become a copy of the table."""
    (folder / "names.csv").write_text("Public Person;*\nNobody;*\n")
    with duckdb.connect(folder / "people.duckdb") as connection:
        connection.execute("CREATE TABLE names AS SELECT 'Public Person' AS name, '*' AS top")
    attributes = f'name = {{ role = "quasi", hierarchy = {rule} }}\nage = {{ role = "insensitive" }}'
    message = failing_run(folder, monkeypatch, capsys, caplog, attributes=attributes)
    assert message.count("Secret Person") <= 5


def test_the_error_of_a_policy_that_cannot_be_met_names_no_value(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    message = failing_run(folder, monkeypatch, capsys, caplog, k=41)
    assert "Secret Person" not in message
    assert "name 1" in message


@pytest.mark.thorough
def test_a_warning_names_columns_and_no_values(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    attributes = 'age = { role = "quasi", hierarchy = "suppress" }\nname = { role = "insensitive" }'
    text = POLICY.format(source='database = "people.duckdb"\ntable = "people"', attributes=attributes, k=5)
    (folder / "policy.toml").write_text(text)
    assert cli("anonymize", folder / "policy.toml").status == 0
    output = capsys.readouterr()
    assert "'name'" in output.err
    assert "warning" in output.err
    assert "Secret Person" not in output.err + output.out


@pytest.mark.thorough
def test_nothing_that_is_printed_by_a_good_run_names_a_value(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    attributes = SUPPRESSING + '\nage = { role = "sensitive" }'
    text = POLICY.format(source='database = "people.duckdb"\ntable = "people"', attributes=attributes, k=5)
    (folder / "policy.toml").write_text(text)
    for command in ("plan", "risk", "anonymize"):
        assert cli(command, folder / "policy.toml").status == 0
    assert cli("verify", folder / "release.duckdb", "--policy", folder / "policy.toml").status == 0
    output = capsys.readouterr()
    assert "Secret Person" not in output.err + output.out


@pytest.mark.thorough
def test_reprs_show_no_values(source: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    policy = make_policy(
        ATTRIBUTES, k=4, table="people", privacy={"dependencies": "warn"}, search={"suppression_limit": 0.02}
    )
    with sqlanon.connect(source) as db:
        result = db.anonymize(policy)
        text = repr(db) + repr(result) + repr(result.publish(tmp_path / "r.duckdb"))
    assert [name for name, value in needles(source).items() if value.decode("latin-1") in text] == []
