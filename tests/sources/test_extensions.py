"""Sources that need an extension of DuckDB: SQLite, MySQL, DuckLake, Delta, Iceberg, and files over the network.

Extensions are built for one version of DuckDB. Where this one has none, the tests skip, and the last one runs the file
in an environment that has them (`pins/extensions.txt`).
"""

from __future__ import annotations

import datetime
import functools
import hashlib
import json
import os
import shutil
import sqlite3
import subprocess
import threading
import time
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote

import duckdb
import pytest

import sqlanon
from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.sources import extensions
from support.environments import ROOT, missing, python_of, run
from support.workbooks import write_workbook

pytestmark = pytest.mark.slow

WARDS = ("north", "south")
ROWS = [
    {
        "name": f"p{i}",
        "zip": f"{i * 37 % 60:05}",
        "age": None if i % 40 == 0 else i * 13 % 70,
        "ward": WARDS[i % 2],
        "cost": i % 7 + 0.5,
        "since": datetime.date(2020, 1, 1) + datetime.timedelta(days=i % 9),
    }
    for i in range(300)
]
TYPES = "name VARCHAR, zip VARCHAR, age BIGINT, ward VARCHAR, cost DOUBLE, since DATE"
SECRET = "hush'hush"


def policy(source: dict[str, Any], **more: Any) -> sqlanon.Policy:
    return sqlanon.Policy(
        source=source,
        attributes={
            "name": {"role": "identifying"},
            "zip": {"role": "quasi", "hierarchy": {"mask": "right"}},
            "age": {"role": "quasi", "hierarchy": {"intervals": [10, 40]}},
            "ward": {"role": "sensitive"},
            "cost": {"role": "insensitive"},
            "since": {"role": "insensitive"},
        },
        privacy={"k": 5, "dependencies": "warn"},
        **more,
    )


def connection_with(name: str) -> duckdb.DuckDBPyConnection:
    """A connection with an extension, which writes the files of the tests."""
    connection = duckdb.connect(config={"autoinstall_known_extensions": False})
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(extensions, "_install", no_network)
            extensions.load_extension(DuckDBEngine(connection), name, "source", "this")
    except sqlanon.SourceError:
        pytest.skip(
            f"DuckDB {duckdb.__version__} has no extension {name} here; "
            "test_extension_tests_pass_with_packaged_extensions has one"
        )
    return connection


def no_network(engine: DuckDBEngine, name: str) -> None:
    raise duckdb.IOException("no network")


@pytest.fixture(autouse=True)
def _no_downloads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extensions, "_install", no_network)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the rows as Parquet, CSV and JSON."""
    folder = tmp_path_factory.mktemp("data")
    with duckdb.connect() as connection:
        connection.execute(f"CREATE TABLE patients ({TYPES})")
        connection.executemany("INSERT INTO patients VALUES (?, ?, ?, ?, ?, ?)", [tuple(row.values()) for row in ROWS])
        for name in ("parquet", "csv", "json"):
            connection.execute(f"COPY patients TO '{folder / f'patients.{name}'}'")
        connection.execute(f"ATTACH '{folder / 'patients.duckdb'}' AS file")
        connection.execute("CREATE TABLE file.patients AS FROM patients")
    return folder


@pytest.fixture(scope="module")
def expected_rows(data: Path) -> list[tuple[Any, ...]]:
    """The release of the same rows in a DuckDB file."""
    return released_rows({"database": str(data / "patients.duckdb"), "table": "patients"}, data / "expected")


@pytest.fixture(scope="module")
def expected_release(data: Path) -> tuple[object, ...]:
    """Extensions found for these."""
    return find_release({"database": str(data / "patients.duckdb"), "table": "patients"})[:3]


def released_rows(source: dict[str, Any], folder: Path, **more: Any) -> list[tuple[Any, ...]]:
    """The rows that are released from a source, which goes through all verbs."""
    folder.mkdir(exist_ok=True)
    asks = policy(source, catalog={"database": str(folder / "catalog.duckdb")}, **more)
    with sqlanon.connect() as db:
        plan = str(db.plan(asks))
        release = db.anonymize(asks).publish(folder / "release.duckdb")
    for file in (folder / "catalog.duckdb", folder / "release.duckdb"):
        assert SECRET.encode() not in file.read_bytes()
    assert SECRET not in plan
    with duckdb.connect(folder / "release.duckdb", read_only=True) as connection:
        query = f"SELECT zip, age, ward, cost, since FROM {release.table}"
        return sorted(connection.execute(query).fetchall(), key=repr)


def find_release(source: dict[str, Any]) -> tuple[object, ...]:
    """Extension found for a source, and its name in the ledger."""
    with sqlanon.connect() as db:
        result = db.anonymize(policy(source))
        return result.generalization, result.score, result.released_rows, result._run.identity


def refusal(source: dict[str, Any], **more: Any) -> str:
    with sqlanon.connect() as db, pytest.raises(sqlanon.SourceError) as caught:
        db.anonymize(policy(source, **more))
    message, error = "", caught.value
    while error is not None:  # what a traceback would print, too
        message, error = message + str(error), error.__cause__
    assert SECRET not in message and quote(SECRET) not in message
    return message


# --- SQLite


@pytest.fixture
def lite(tmp_path: Path) -> Path:
    connection_with("sqlite_scanner").close()
    path = tmp_path / "patients.db"
    with sqlite3.connect(path) as connection:
        connection.execute(
            "CREATE TABLE patients (name TEXT, zip TEXT, age INTEGER, ward TEXT, cost REAL, since DATE, odd INTEGER)"
        )
        values = [(*row.values(), i) for i, row in enumerate(ROWS)]
        connection.executemany(
            "INSERT INTO patients VALUES (?, ?, ?, ?, ?, ?, ?)", [list(map(plain, value)) for value in values]
        )
        connection.execute("CREATE VIEW few AS SELECT name, zip, age, ward, cost, since FROM patients WHERE age < 30")
    connection.close()
    return path


def plain(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime.date) else value


@pytest.mark.thorough
def test_sqlite_gives_the_same_release_and_is_only_read(lite: Path, expected_rows: list[Any], tmp_path: Path) -> None:
    before = hashlib.sha256(lite.read_bytes()).hexdigest(), sorted(tmp_path.iterdir())
    source = {"database": str(lite), "table": "patients", "undeclared": "drop"}
    assert released_rows(source, tmp_path / "table") == expected_rows
    with sqlanon.connect() as db:
        catalog = {"database": str(tmp_path / "table" / "catalog.duckdb")}
        assert db.verify(tmp_path / "table" / "release.duckdb", policy(source, catalog=catalog)).verified
    columns = "name, zip, age, ward, cost, since"
    section = {"database": str(lite), "query": f"SELECT {columns} FROM patients"}
    assert find_release(section)[:3] == find_release(source)[:3]
    shutil.rmtree(tmp_path / "table")
    assert (hashlib.sha256(lite.read_bytes()).hexdigest(), sorted(tmp_path.iterdir())) == before
    refused = refusal({"database": str(lite), "table": "nobody"})
    assert "no table or view is named 'nobody'; the database has: few, patients" in refused
    with sqlanon.connect() as db, pytest.raises(sqlanon.SqlanonError, match="odd"):
        db.anonymize(policy({"database": str(lite), "table": "patients"}))  # a column without a role


def test_sqlite_queries_read_and_write_nothing_else(lite: Path, tmp_path: Path) -> None:
    for query in ("DELETE FROM patients", "SELECT 1; DELETE FROM patients", "ATTACH 'x.db'"):
        assert "must be one SELECT" in refusal({"database": str(lite), "query": query})
    assert not (tmp_path / "x.db").exists()


def test_sqlite_views_are_sources_and_populations(lite: Path) -> None:
    source = {"database": str(lite), "table": "few"}
    population = {"database": str(lite), "table": "patients"}
    with sqlanon.connect(lite) as db:
        assessment = db.risk(policy({"table": "few"}))
        assert assessment.rows == sum(row["age"] is not None and row["age"] < 30 for row in ROWS)
    asks = sqlanon.Policy(
        source=source,
        population=population,
        attributes=policy({}).model_dump(mode="json", exclude_none=True)["attributes"],
        privacy={"k_map": 5},
    )
    with sqlanon.connect() as db:
        assert db.anonymize(asks).released_rows == assessment.rows


@pytest.mark.thorough
def test_a_live_connection_has_a_population_elsewhere(lite: Path, data: Path) -> None:
    """Its own database is a file, and the population is attached to it for a moment."""
    connection_with("sqlite_scanner").close()
    with duckdb.connect(data / "patients.duckdb") as connection, sqlanon.connect(connection) as db:
        asks = policy({"table": "patients"}).model_dump(mode="json", exclude_none=True)
        asks = {"source": {"table": "patients"}, "attributes": asks["attributes"], "privacy": {"k_map": 5}}
        result = db.anonymize(sqlanon.Policy(**asks, population={"database": str(lite), "table": "patients"}))
        assert result.released_rows == len(ROWS)
        attached = connection.execute("SELECT path FROM duckdb_databases() WHERE path LIKE '%.db'").fetchall()
    assert attached == []


def test_a_value_of_another_type_in_sqlite_is_not_quoted(lite: Path) -> None:
    with sqlite3.connect(lite) as connection:
        connection.execute("INSERT INTO patients (name, age) VALUES ('x', ?)", [SECRET])
    connection.close()
    message = refusal({"database": str(lite), "table": "patients", "undeclared": "drop"})
    assert "make a view there that casts the column" in message


@pytest.mark.thorough
def test_live_connection_uses_its_attached_databases(lite: Path, expected_rows: list[Any]) -> None:
    with connection_with("sqlite_scanner") as connection:
        connection.execute(f"ATTACH '{lite}' AS hospital (READ_ONLY)")
        with sqlanon.connect(connection) as db:
            asks = policy({"table": "hospital.patients", "undeclared": "drop"})
            assert db.anonymize(asks).released_rows == len(expected_rows)


def test_live_views_are_refused(lite: Path) -> None:
    with (
        sqlanon.connect(lite) as db,
        pytest.raises(sqlanon.SqlanonError, match="a live view needs a table in a DuckDB database"),
    ):
        db.live(policy({"table": "patients", "undeclared": "drop"}))


# --- DuckLake, Delta, Iceberg


def test_ducklake_gives_the_same_release(data: Path, expected_rows: list[Any], tmp_path: Path) -> None:
    with connection_with("ducklake") as connection:
        connection.execute(f"ATTACH 'ducklake:{tmp_path}/lake.ducklake' AS lake (DATA_PATH '{tmp_path}/files')")
        connection.execute(f"CREATE TABLE lake.patients AS FROM '{data / 'patients.parquet'}'")
    before = (tmp_path / "lake.ducklake").read_bytes()
    source = {"database": f"ducklake:{tmp_path / 'lake.ducklake'}", "table": "patients"}
    assert released_rows(source, tmp_path / "out") == expected_rows
    assert (tmp_path / "lake.ducklake").read_bytes() == before
    assert "the database does not exist" in refusal({"database": f"ducklake:{tmp_path}/other", "table": "patients"})
    assert not (tmp_path / "other").exists()


@pytest.mark.thorough
def test_delta_gives_the_same_release(data: Path, expected_release: tuple[object, ...], tmp_path: Path) -> None:
    connection_with("delta").close()
    folder = tmp_path / "patients"
    log = folder / "_delta_log"
    log.mkdir(parents=True)
    shutil.copy(data / "patients.parquet", folder / "part-0.parquet")
    shutil.copy(data / "patients.parquet", folder / "removed.parquet")  # of no version
    types = {"VARCHAR": "string", "BIGINT": "long", "DOUBLE": "double", "DATE": "date"}
    columns = (column.split() for column in TYPES.split(", "))
    fields = [{"name": name, "type": types[type_], "nullable": True, "metadata": {}} for name, type_ in columns]
    meta = {
        "id": "1",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": fields}),
        "partitionColumns": [],
        "configuration": {},
    }
    part = folder / "part-0.parquet"
    add = {
        "path": part.name,
        "partitionValues": {},
        "size": part.stat().st_size,
        "modificationTime": 0,
        "dataChange": True,
    }
    actions = [{"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}, {"metaData": meta}, {"add": add}]
    (log / f"{0:020}.json").write_text("\n".join(map(json.dumps, actions)))
    assert find_release({"files": f"delta:{folder}"})[:3] == expected_release
    assert 'write files = "delta:patients"' in refusal({"files": str(folder)})


@pytest.mark.thorough
def test_iceberg_gives_the_same_release(data: Path, expected_release: tuple[object, ...], tmp_path: Path) -> None:
    connection_with("iceberg").close()
    sql = pytest.importorskip("pyiceberg.catalog.sql", reason="pyiceberg writes the table of this test")
    parquet = pytest.importorskip("pyarrow.parquet")
    rows = parquet.read_table(data / "patients.parquet")
    catalog = sql.SqlCatalog("test", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}/warehouse")
    catalog.create_namespace("hospital")
    table = catalog.create_table("hospital.patients", schema=rows.schema)
    table.append(rows)
    catalog.close()
    newest = table.metadata_location.removeprefix("file://")
    assert find_release({"files": f"iceberg:{newest}"})[:3] == expected_release
    folder = table.location().removeprefix("file://")
    assert "name the metadata file of a version" in refusal({"files": f"iceberg:{folder}"})


# --- over the network


class Served(SimpleHTTPRequestHandler):
    """Files over HTTP; with a bucket in their path, they are also what S3 serves."""

    asked: list[tuple[str, str]]

    def do_HEAD(self) -> None:
        self.record()
        super().do_HEAD()

    def do_GET(self) -> None:
        self.record()
        if "list-type=2" in self.path:
            self.listing()
        elif wanted := self.headers.get("Range"):
            first, _, last = wanted.removeprefix("bytes=").partition("-")
            content = Path(self.translate_path(self.path)).read_bytes()
            self.answer(content[int(first) : int(last) + 1], status=206)
        else:
            super().do_GET()

    def record(self) -> None:
        self.asked.append((self.path, self.headers.get("Authorization", "")))

    def listing(self) -> None:
        folder = Path(self.directory, "bucket")
        keys = "".join(
            f"<Contents><Key>{file.name}</Key><Size>{file.stat().st_size}</Size></Contents>"
            for file in sorted(folder.iterdir())
        )
        body = f'<?xml version="1.0"?><ListBucketResult><Name>bucket</Name>{keys}</ListBucketResult>'.encode()
        self.answer(body)

    def answer(self, body: bytes, status: int = 200) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def server(data: Path) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    connection_with("httpfs").close()
    (data / "bucket").mkdir(exist_ok=True)
    shutil.copy(data / "patients.parquet", data / "bucket")
    requests: list[tuple[str, str]] = []
    handler = type("Handler", (Served,), {"asked": requests})
    with ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(handler, directory=str(data))) as served:
        thread = threading.Thread(target=served.serve_forever, daemon=True)
        thread.start()
        yield f"127.0.0.1:{served.server_port}", requests
        served.shutdown()
        thread.join()


@pytest.mark.parametrize("kind", ["parquet", "csv", "json", "xlsx"])
def test_files_over_http_give_the_same_release(
    server: Any, kind: str, expected_release: tuple[object, ...], data: Path
) -> None:
    if kind == "xlsx":
        rows = [[*ROWS[0]], *[[*row.values()] for row in ROWS]]
        write_workbook(data / "patients.xlsx", rows, formats={f"F{i}": "yyyy-mm-dd" for i in range(2, len(rows) + 1)})
    assert find_release({"files": f"http://{server[0]}/patients.{kind}"})[:3] == expected_release


def test_a_database_over_http_gives_the_same_release(server: Any, expected_release: tuple[object, ...]) -> None:
    source = {"database": f"http://{server[0]}/patients.duckdb", "table": "patients"}
    assert find_release(source)[:3] == expected_release


def test_a_signed_address_is_in_the_environment_and_nowhere_else(
    server: Any, expected_rows: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host, requests = server
    monkeypatch.setenv("PATIENTS", f"http://{host}/patients.parquet?sig={SECRET}")
    assert released_rows({"files": "env:PATIENTS"}, tmp_path) == expected_rows
    assert any("sig=hush" in path for path, _ in requests)
    monkeypatch.setenv("PATIENTS", f"http://{host}/gone.parquet?sig={SECRET}")
    assert "HTTP" in refusal({"files": "env:PATIENTS"})
    monkeypatch.setenv("PATIENTS", f"http://{host}/patients.xls?sig={SECRET}")
    assert "patients.xls has an unknown format" in refusal({"files": "env:PATIENTS"})


def test_files_of_a_bucket(server: Any, expected_release: tuple[object, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    host, requests = server
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "somebody")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    options = f"s3_endpoint={host}&s3_use_ssl=false&s3_url_style=path&s3_region=eu-west-1"
    assert find_release({"files": f"s3://bucket/patients.parquet?{options}"})[:3] == expected_release
    assert any("Credential=somebody" in authorization for _, authorization in requests)  # of the environment
    assert all(SECRET not in path + authorization for path, authorization in requests)
    assert "no file matches" in refusal({"files": f"s3://bucket/*.json?{options}"})
    assert "HTTP" in refusal({"files": f"s3://bucket/gone.parquet?{options}"})


def test_no_other_network_request_is_made(server: Any, data: Path) -> None:
    host, requests = server
    find_release({"files": f"http://{host}/patients.parquet"})
    assert {path for path, _ in requests} == {"/patients.parquet"}
    before = len(requests)
    find_release({"files": str(data / "patients.parquet")})
    assert len(requests) == before


# --- MySQL


@pytest.fixture(scope="module")
def mysql(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of a server with a user who may read; SQLANON_MARIADB is the folder of one that is unpacked there."""
    connection_with("mysql_scanner").close()
    root = Path(os.environ.get("SQLANON_MARIADB", "/"))
    programs = {
        name: root / "usr" / place / name
        for name, place in {"mariadbd": "sbin", "mariadb-install-db": "bin", "mariadb": "bin"}.items()
    }
    if not all(path.exists() for path in programs.values()):
        pytest.skip("there is no MariaDB server on this machine (mariadbd, mariadb-install-db, mariadb)")
    folder = tmp_path_factory.mktemp("mysql")
    environment = {**os.environ, "LD_LIBRARY_PATH": str(root / "usr/lib/x86_64-linux-gnu")}
    common = [
        "--no-defaults",
        f"--datadir={folder}/data",
        f"--basedir={root / 'usr'}",
        f"--user={os.environ.get('USER', 'root')}",
    ]
    install = [programs["mariadb-install-db"], *common, "--auth-root-authentication-method=normal", "--skip-test-db"]
    subprocess.run(install, env=environment, check=True, capture_output=True)
    port, socket = 30_000 + os.getpid() % 10_000, folder / "socket"
    messages = f"--lc-messages-dir={root / 'usr/share/mysql'}"
    start = [
        programs["mariadbd"],
        *common,
        f"--socket={socket}",
        f"--port={port}",
        "--bind-address=127.0.0.1",
        messages,
    ]
    with (folder / "log").open("w") as log, subprocess.Popen(start, env=environment, stdout=log, stderr=log) as process:
        try:
            deadline = time.monotonic() + 60
            while not socket.exists():
                assert process.poll() is None and time.monotonic() < deadline, (folder / "log").read_text()
                time.sleep(0.1)
            statements = [
                "CREATE DATABASE hospital",
                "USE hospital",
                "CREATE TABLE patients (name VARCHAR(9), zip CHAR(5), age BIGINT, ward ENUM('north', 'south'), "
                "cost DOUBLE, since DATE)",
                f"INSERT INTO patients VALUES {', '.join(map(mysql_row, ROWS))}",
            ]
            for user in ("reader@'127.0.0.1'", "reader@localhost"):
                password = SECRET.replace("'", "''")
                statements.append(f"CREATE USER {user} IDENTIFIED BY '{password}'")
                statements.append(f"GRANT ALL ON hospital.* TO {user}")
            client = [programs["mariadb"], "--no-defaults", f"--socket={socket}", "-uroot"]
            subprocess.run(
                client, input=";".join(statements), env=environment, check=True, capture_output=True, text=True
            )
            yield port
        finally:
            process.terminate()


def mysql_row(row: dict[str, Any]) -> str:
    age = "NULL" if row["age"] is None else row["age"]
    return f"('{row['name']}', '{row['zip']}', {age}, '{row['ward']}', {row['cost']}, '{row['since']}')"


def test_mysql_gives_the_same_release(
    mysql: int, expected_rows: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MYSQL_PWD", SECRET)
    by_pairs = f"mysql:host=127.0.0.1 port={mysql} user=reader database=hospital"
    by_url = f"mysql://reader@127.0.0.1:{mysql}/hospital"
    assert released_rows({"database": by_pairs, "table": "patients"}, tmp_path / "pairs") == expected_rows
    release = find_release({"database": by_pairs, "table": "patients"})
    assert (
        find_release({"database": by_url, "table": "hospital.patients"}) == release
    )  # the ledger knows it by any name
    query = "SELECT name, zip, age, ward, cost, since FROM patients"
    assert find_release({"database": by_url, "query": query})[:3] == release[:3]
    refused = refusal({"database": by_url, "table": "nobody"})
    assert "no table or view is named 'nobody'; the database has: patients" in refused


def test_the_password_of_mysql_is_in_the_environment_and_nowhere_else(
    mysql: int, expected_rows: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOSPITAL", f"mysql://reader:{quote(SECRET)}@127.0.0.1:{mysql}/hospital")
    assert released_rows({"database": "env:HOSPITAL", "table": "patients"}, tmp_path) == expected_rows
    address = f"mysql:host=127.0.0.1 port={mysql} user=reader database=hospital"
    for wrong in (f"{address} passwd=1{SECRET}", f"{address.replace(str(mysql), '1')} passwd={SECRET}"):
        monkeypatch.setenv("HOSPITAL", wrong)
        message = refusal({"database": "env:HOSPITAL", "table": "patients"})
        assert "mysql://127.0.0.1" in message and "passwd" not in message


# --- where an extension cannot be had


def test_missing_extension_is_named_with_a_remedy(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extensions, "_load", no_network)
    monkeypatch.setattr(extensions, "_find_packaged_file", lambda name: None)
    with sqlite3.connect(tmp_path / "x.db") as connection:
        connection.execute("CREATE TABLE t (x)")
    connection.close()
    version = duckdb.__version__
    for source, name in (
        ({"files": "https://host/x.parquet"}, "httpfs"),
        ({"files": "s3://bucket/x.parquet"}, "httpfs"),
        ({"files": "az://container/x.parquet"}, "azure"),
        ({"files": f"delta:{tmp_path}"}, "delta"),
        ({"files": f"iceberg:{tmp_path}"}, "avro"),
        ({"database": str(tmp_path / "x.db"), "table": "t"}, "sqlite_scanner"),
        ({"database": "mysql://db/h", "table": "t"}, "mysql_scanner"),
        ({"database": "ducklake:mysql://db/h", "table": "t"}, "ducklake"),
        ({"database": "https://host/x.duckdb", "table": "t"}, "httpfs"),
    ):
        message = refusal(source)
        assert f"with its extension {name}: it is not installed, and cannot be downloaded" in message
        assert f"INSTALL {name} in DuckDB {version}" in message
        package = f"duckdb-extension-{name.replace('_', '-')}"
        if version.startswith("1."):
            assert f"pip install {package}=={version}" in message
        else:  # no such package is on PyPI
            assert (
                f"pip install duckdb==1.5.5 {package}==1.5.5 (no such package exists for DuckDB {version})" in message
            )


@pytest.mark.thorough
def test_extension_tests_pass_with_packaged_extensions() -> None:
    """All of this file, with the newest DuckDB for which PyPI has extensions."""
    if extensions._find_packaged_file("sqlite_scanner") is not None:
        pytest.skip("this environment has the extensions")
    python = python_of("extensions", with_sqlanon=True)
    done = run([python, "-m", "pytest", "-n", "0", "-rs", "-p", "no:cacheprovider", Path(__file__)], ROOT, ROOT)
    output = done.stdout + done.stderr
    assert done.returncode == 0, output
    skipped = [line for line in output.splitlines() if line.startswith("SKIPPED")]
    if strange := [line for line in skipped if "MariaDB" not in line and "this environment" not in line]:
        missing(f"skipped in the environment with extensions: {strange}")
