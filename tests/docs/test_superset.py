"""A release in Apache Superset, in an environment of its own: a database, a dataset, a chart, and a picture of it.

It takes minutes and a gigabyte, so it runs only on request::

    SQLANON_SUPERSET=1 python -m pytest tests/docs/test_superset.py

The picture, as the browser shows the chart, is then in ``build/superset.png``. Everything is on loopback, and everybody
there is the admin.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.cookiejar import CookieJar
from pathlib import Path
from typing import Any

import duckdb
import pytest
from client_pages import SECTIONS, VIEWS, prepared_folder, replace  # noqa: F401  (a fixture)

from support.environments import ROOT, missing, python_of, run
from support.pages import blocks

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not os.environ.get("SQLANON_SUPERSET"), reason="only with SQLANON_SUPERSET=1: it takes minutes"),
]

PICTURE = ROOT / "build" / "superset.png"
CONFIG = """
SECRET_KEY = "only for a test on this machine, and forgotten after it"
SQLALCHEMY_DATABASE_URI = "sqlite:///{home}/superset.db"
WTF_CSRF_ENABLED = False
TALISMAN_ENABLED = False


def FLASK_APP_MUTATOR(app):
    @app.before_request
    def everybody_is_the_admin():
        from flask_login import current_user, login_user

        if not current_user.is_authenticated:
            login_user(app.appbuilder.sm.find_user("admin"))
"""
QUIET = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--hide-scrollbars",
]  # fmt: skip


class Client:
    """A browser's requests to Superset's REST interface."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar()))

    def get(self, path: str) -> Any:
        return self._successful(path, None)

    def post(self, path: str, content: Any) -> Any:
        return self._successful(path, content)

    def ask(self, path: str, content: Any = None) -> tuple[int, str]:
        """The status and the text of an answer."""
        data = None if content is None else json.dumps(content).encode()
        request = urllib.request.Request(self.address + path, data, {"Content-Type": "application/json"})
        try:
            with self._opener.open(request, timeout=120) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def _successful(self, path: str, content: Any) -> Any:
        status, answer = self.ask(path, content)
        assert status in (200, 201), f"{path}: {status} {answer[:500]}"
        return json.loads(answer)


@pytest.fixture(scope="module")
def superset(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A running Superset without any databases."""
    home = tmp_path_factory.mktemp("superset")
    (page,) = blocks("python", SECTIONS["Superset"])
    (home / "superset_config.py").write_text(page + CONFIG.format(home=home), encoding="utf-8")
    python = python_of("superset")
    environment = {
        "SUPERSET_HOME": str(home),
        "SUPERSET_CONFIG_PATH": str(home / "superset_config.py"),
        "FLASK_APP": "superset.app:create_app",
    }
    admin = [
        "--username",
        "admin",
        "--firstname",
        "A",
        "--lastname",
        "A",
        "--email",
        "a@example.org",
        "--password",
        "a",
    ]
    for command in (["db", "upgrade"], ["fab", "create-admin", *admin], ["init"]):
        done = run([python.with_name("superset"), *command], home, **environment)
        assert done.returncode == 0, done.stderr[-2000:]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with (home / "log.txt").open("w") as log, serving(python, port, environment, home, log) as process:
        client = Client(f"http://127.0.0.1:{port}")
        for _ in range(120):
            assert process.poll() is None, (home / "log.txt").read_text()[-2000:]
            try:
                urllib.request.urlopen(client.address + "/health", timeout=5).close()
                break
            except OSError:
                time.sleep(1)
        yield client


@contextmanager
def serving(
    python: Path, port: int, environment: dict[str, str], home: Path, log: Any
) -> Iterator[subprocess.Popen[bytes]]:
    command = [python.with_name("superset"), "run", "--host", "127.0.0.1", "--port", str(port), "--with-threads"]
    with subprocess.Popen(command, env={**os.environ, **environment}, cwd=home, stdout=log, stderr=log) as process:
        try:
            yield process
        finally:
            process.terminate()


@pytest.fixture(scope="module")
def database(superset: Client, prepared_folder: Path) -> int:  # noqa: F811  (the fixture)
    """The release, as a database of Superset, by the URI of the page."""
    (uri,) = blocks("text", SECTIONS["Superset"])
    uri = uri.strip().replace("/data/first.duckdb", str(prepared_folder / "first.duckdb"))
    assert str(prepared_folder) in uri
    created = superset.post("/api/v1/database/", {"database_name": "release", "sqlalchemy_uri": uri})
    return int(created["id"])


@pytest.fixture(scope="module")
def dataset(superset: Client, database: int) -> int:
    body = {"database": database, "schema": "main", "table_name": "patients"}
    return int(superset.post("/api/v1/dataset/", body)["id"])


def test_the_tables_are_found(superset: Client, database: int) -> None:
    response = superset.get(f"/api/v1/database/{database}/tables/?q=(force:!t,schema_name:main)")
    kinds = {table["value"]: table["type"] for table in response["result"]}
    assert {kinds[name] for name in ("patients", *VIEWS)} == {"view"}
    assert kinds["birth_date_labels"] == "table"


def test_dataset_has_columns_with_descriptions(superset: Client, dataset: int, prepared_folder: Path) -> None:  # noqa: F811  (the fixture)
    columns = superset.get(f"/api/v1/dataset/{dataset}")["result"]["columns"]
    with duckdb.connect(prepared_folder / "first.duckdb", read_only=True) as connection:
        expected = connection.execute(
            "SELECT column_name, comment FROM duckdb_columns() WHERE table_name = 'patients' ORDER BY column_index"
        ).fetchall()
    assert [(column["column_name"], column["description"]) for column in columns] == expected
    assert all(comment for _, comment in expected)


def test_the_chart_data_are_those_of_the_release(superset: Client, dataset: int, prepared_folder: Path) -> None:  # noqa: F811  (the fixture)
    query = {"columns": ["sex", "ethnicity"], "metrics": ["count"], "row_limit": 1000}
    body = {"datasource": {"id": dataset, "type": "table"}, "queries": [query], "result_format": "json"}
    (answer,) = superset.post("/api/v1/chart/data", body)["result"]
    with duckdb.connect(prepared_folder / "first.duckdb", read_only=True) as connection:
        expected = connection.execute("SELECT sex, ethnicity, count(*) FROM patients GROUP BY ALL").fetchall()
    assert sorted((row["sex"], row["ethnicity"], row["count"]) for row in answer["data"]) == sorted(expected)


def test_a_person_may_not_look_further(superset: Client, database: int, tmp_path: Path) -> None:
    (tmp_path / "outside.csv").write_text("name\nAlice\n")
    for statement, status in (
        ("SELECT count(*) AS n FROM patients", 200),
        (f"SELECT * FROM read_csv('{tmp_path / 'outside.csv'}')", 500),
        (f"SELECT * FROM '{tmp_path / 'outside.csv'}'", 500),
    ):
        body = {"database_id": database, "sql": statement, "runAsync": False}
        answer_status, answer = superset.ask("/api/v1/sqllab/execute/", body)
        assert answer_status == status, answer
        assert "Alice" not in answer


def test_superset_picks_up_a_new_release(superset: Client, prepared_folder: Path, tmp_path: Path) -> None:  # noqa: F811  (the fixture)
    shutil.copy(prepared_folder / "first.duckdb", tmp_path / "first.duckdb")
    uri = f"duckdb:///{tmp_path / 'first.duckdb'}?access_mode=read_only"
    database = superset.post("/api/v1/database/", {"database_name": "another", "sqlalchemy_uri": uri})["id"]
    body = {"database_id": database, "sql": "SELECT count(*) AS n FROM patients", "runAsync": False}
    (before,) = superset.post("/api/v1/sqllab/execute/", body)["data"]
    replace(tmp_path)
    (after,) = superset.post("/api/v1/sqllab/execute/", body)["data"]
    assert before["n"] > after["n"] == 7


def test_the_picture_of_a_chart(superset: Client, dataset: int, tmp_path: Path) -> None:
    chromium = shutil.which("chromium")
    if chromium is None:
        missing("chromium is not on this machine")
    body = {
        "datasource": f"{dataset}__table",
        "viz_type": "echarts_timeseries_bar",
        "x_axis": "ethnicity",
        "metrics": ["count"],
        "groupby": ["sex"],
        "row_limit": 1000,
        "adhoc_filters": [],
        "show_legend": True,
    }
    chart = superset.post(
        "/api/v1/chart/",
        {
            "slice_name": "patients",
            "viz_type": body["viz_type"],
            "datasource_id": dataset,
            "datasource_type": "table",
            "params": json.dumps(body),
        },
    )
    address = f"{superset.address}/explore/?slice_id={chart['id']}&standalone=1"
    PICTURE.parent.mkdir(exist_ok=True)
    PICTURE.unlink(missing_ok=True)
    browser = [chromium, *QUIET, f"--user-data-dir={tmp_path / 'profile'}", "--window-size=1200,700"]
    waits = ["--virtual-time-budget=30000", "--timeout=60000"]
    done = run([*browser, *waits, f"--screenshot={PICTURE}", address], tmp_path)
    assert PICTURE.is_file(), done.stderr[-2000:]
    page = run([*browser, *waits, "--dump-dom", address], tmp_path).stdout
    assert re.search(r"<canvas|<svg[^>]*>.*?<path", page, re.DOTALL), "the page shows no chart"
    assert PICTURE.stat().st_size > 8000, "the picture is nearly empty"
