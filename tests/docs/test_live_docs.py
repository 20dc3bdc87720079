"""docs/how-to/live.md is true: its commands, its Python and its SQL run as they stand."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
from pathlib import Path

import duckdb
import pytest

import sqlanon
from sqlanon.demo.hospital import make_hospital
from support.commands import cli
from support.databases import DUCKDB_1
from support.pages import FIRST_POLICY, FOLDER, ROOT, blocks
from support.policies import make_policy

pytestmark = pytest.mark.thorough

NO_SECURE = pytest.mark.skipif(DUCKDB_1, reason="DuckDB 1 has no secure views")
LIVE = (ROOT / "docs" / "how-to" / "live.md").read_text(encoding="utf-8")


def test_live_page_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / FOLDER).mkdir()
    make_hospital(tmp_path / FOLDER / "hospital.duckdb")
    (tmp_path / FOLDER / "first.toml").write_text(blocks("toml", FIRST_POLICY)[0], encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    (commands,) = blocks("sh", LIVE)
    for line in commands.splitlines():
        done = cli(*shlex.split(line)[1:])
        assert done.status == 0
        assert "patients" in done.out
    (program,) = blocks("python", LIVE)
    (output,) = blocks("text", LIVE)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(program, "docs/how-to/live.md", "exec"), {})
    assert printed.getvalue() == output
    (question,) = blocks("sql", LIVE)
    query, _, answer = question.partition(";")
    with duckdb.connect(tmp_path / FOLDER / "hospital.duckdb") as connection:
        (row,) = connection.execute(query).fetchall()
        assert ", ".join(map(str, row)) == answer.strip(" -\n")
        names = {name for (name,) in connection.execute("SELECT table_name FROM information_schema.tables").fetchall()}
    for name in re.findall(r"^\| `(?:sqlanon\.)?(\w+)`", LIVE, re.M):
        assert name in names


@pytest.mark.parametrize("storage", ["v1.0.0", pytest.param("v2.0.0", marks=NO_SECURE)])
def test_readers_are_denied_the_documented_accesses(tmp_path: Path, storage: str) -> None:
    """Rows that are estimated in plans, in views of both kinds; a temporary table in the place of the private one."""
    path = tmp_path / "t.duckdb"
    with duckdb.connect() as connection:
        connection.execute(f"ATTACH '{path}' AS h (STORAGE_VERSION '{storage}')")
        connection.execute("CREATE TABLE h.t AS SELECT 1 AS q, 'x' AS s FROM range(600) UNION ALL SELECT 7, 'alone'")
    with sqlanon.connect(path) as db:
        policy = make_policy({"q": "suppress", "s": "sensitive"}, search={"suppression_limit": 0.5})
        assert db.live(policy).secure is (storage == "v2.0.0")
    with duckdb.connect(path, read_only=True) as reader:
        assert re.search(r"~\d+ row", str(reader.execute("EXPLAIN FROM t_live").fetchone()))
        assert reader.execute("SELECT count(*) FROM t_live").fetchall() == [(600,)]
        reader.execute("CREATE TEMP TABLE t AS SELECT 1 AS q, 'mine' AS s FROM range(2)")
        assert reader.execute("FROM t_live").fetchall() == [(1, "mine")] * 2


def test_temporary_macro_does_not_replace_functions() -> None:
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE t AS SELECT 1 AS q UNION ALL SELECT 2 UNION ALL SELECT 2")
        with sqlanon.connect(connection) as db:
            db.live(make_policy({"q": "suppress"}, search={"suppression_limit": 0.5}))
        assert connection.execute("FROM t_live").fetchall() == [(2,), (2,)]
        connection.execute("CREATE TEMP MACRO count_star() AS 100")
        assert connection.execute("SELECT count(*) FROM t").fetchall() == [(100,)] * 3
        assert connection.execute("FROM t_live").fetchall() == [(2,), (2,)]
