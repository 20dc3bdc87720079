"""docs/live.md is true: its commands, its Python and its SQL run as they stand."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import sys
from pathlib import Path

import duckdb
import pytest
from conftest import make_policy
from test_readme import FOLDER, ROOT, blocks

import sqlanon
from sqlanon.cli import main
from sqlanon.demo.hospital import make_hospital

LIVE = (ROOT / "docs" / "live.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / FOLDER).mkdir()
    make_hospital(tmp_path / FOLDER / "hospital.duckdb")
    (tmp_path / FOLDER / "first.toml").write_text(blocks("toml")[0], encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    (commands,) = blocks("sh", LIVE)
    for line in commands.splitlines():
        monkeypatch.setattr(sys, "argv", shlex.split(line))
        with pytest.raises(SystemExit) as ended:
            main()
        assert not ended.value.code
        assert "patients" in capsys.readouterr().out
    (program,) = blocks("python", LIVE)
    (told,) = blocks("text", LIVE)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(program, "docs/live.md", "exec"), {})
    assert printed.getvalue() == told
    (question,) = blocks("sql", LIVE)
    query, _, answer = question.partition(";")
    with duckdb.connect(tmp_path / FOLDER / "hospital.duckdb") as connection:
        (row,) = connection.execute(query).fetchall()
        assert ", ".join(map(str, row)) == answer.strip(" -\n")
        made = {name for (name,) in connection.execute("SELECT table_name FROM information_schema.tables").fetchall()}
    for name in re.findall(r"^\| `(?:sqlanon\.)?(\w+)`", LIVE, re.M):
        assert name in made


def test_a_temporary_macro_breaks_the_view_as_the_page_says() -> None:
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE t AS SELECT 1 AS q UNION ALL SELECT 2 UNION ALL SELECT 2")
        with sqlanon.connect(connection) as db:
            db.live(make_policy({"q": "suppress"}, search={"suppression_limit": 0.5}))
        assert connection.execute("FROM t_live").fetchall() == [(2,), (2,)]
        connection.execute("CREATE TEMP MACRO count_star() AS 100")
        assert sorted(connection.execute("FROM t_live").fetchall()) == [(1,), (2,), (2,)]
