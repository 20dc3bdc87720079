"""docs/how-to/attacks.md and docs/reference/macros_attacks.md are true: SQL, commands and Python run as they stand."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
from pathlib import Path

import duckdb
import pytest

from sqlanon.attacks import NAMES
from sqlanon.demo.hospital import make_hospital
from sqlanon.ledger.catalog import init_database
from support.commands import cli
from support.pages import FIRST_POLICY, FOLDER, ROOT, blocks

ATTACKS = (ROOT / "docs" / "how-to" / "attacks.md").read_text(encoding="utf-8")
MACROS = (ROOT / "docs" / "reference" / "macros_attacks.md").read_text(encoding="utf-8")


@pytest.mark.thorough
@pytest.mark.parametrize("page", [ATTACKS, MACROS], ids=["attacks", "macros"])
def test_sql_blocks_run(page: str, tmp_path: Path) -> None:
    init_database(tmp_path / "practice.duckdb")
    count = 0
    with duckdb.connect(tmp_path / "practice.duckdb") as connection:
        for statement in re.findall(r"^(?:CREATE|FROM sqlanon)[^;]*;(?: *-- .*)?$", "".join(blocks("sql", page)), re.M):
            query, _, comment = statement.partition(";")
            cursor = connection.execute(query)
            if not query.startswith("FROM"):
                continue
            row, *_ = cursor.fetchall()
            names = [column[0] for column in cursor.description or []]
            texts = [f"{value:.6g}" if isinstance(value, float) else str(value) for value in row]
            assert ", ".join(map(" ".join, zip(names, texts, strict=True))) == comment.strip(" -"), query
            count += 1
    assert count >= 6


def test_every_attack_and_every_macro_is_documented() -> None:
    for name in NAMES:
        assert re.search(rf"^#+ {name}$", ATTACKS, re.M), name
    text = (ROOT / "sql" / "macros_attacks.sql").read_text(encoding="utf-8")
    for name in re.findall(r"MACRO sqlanon\.(\w+)", text):
        assert f"### {name}(" in MACROS, name


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A smaller hospital, and the policy that the demo leaves next to it."""
    folder = tmp_path_factory.mktemp("attacks")
    (folder / FOLDER).mkdir()
    make_hospital(folder / FOLDER / "hospital.duckdb", rows=3000)
    (folder / FOLDER / "first.toml").write_text(blocks("toml", FIRST_POLICY)[0], encoding="utf-8")
    return folder


@pytest.mark.thorough
def test_commands_and_python_blocks_run(workshop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(workshop)
    (commands,) = blocks("sh", ATTACKS)
    for line in commands.splitlines():
        arguments = shlex.split(line)[1:]
        done = cli(*arguments)
        assert done.status == 0, line
        assert "linking" in done.out or arguments[0] == "anonymize"
    (program,) = blocks("python", ATTACKS)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(program, "attacks.md", "exec"), {})
    assert printed.getvalue().strip() == re.findall(r"# (.*)", program)[-1]
