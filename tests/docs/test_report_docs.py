"""docs/how-to/report.md is true: its commands and its Python run as they stand."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from sqlanon.demo.hospital import make_hospital
from sqlanon.report.facts import SAMPLE, SMALL
from sqlanon.report.notebook import Charts
from support.commands import cli
from support.pages import FIRST_POLICY, FOLDER, ROOT, blocks

PAGE = (ROOT / "docs" / "how-to" / "report.md").read_text(encoding="utf-8")


def test_every_chart_is_documented() -> None:
    for name in vars(Charts):
        if not name.startswith("_"):
            assert f"| `{name}(" in PAGE, name
    assert f"up to {SMALL} generalizations" in PAGE
    assert f"{SAMPLE:,} are drawn" in PAGE


@pytest.mark.thorough
def test_commands_and_python_blocks_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / FOLDER).mkdir()
    make_hospital(tmp_path / FOLDER / "hospital.duckdb", rows=3000)
    (tmp_path / FOLDER / "first.toml").write_text(blocks("toml", FIRST_POLICY)[0], encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    (commands,) = blocks("sh", PAGE)
    for line in commands.splitlines():
        assert cli(*shlex.split(line, comments=True)[1:]).status == 0, line
    (program,) = blocks("python", PAGE)
    exec(compile(program, "docs/how-to/report.md", "exec"), {})
    names = {path.name for path in (tmp_path / FOLDER).iterdir() if path.suffix in (".html", ".svg", ".png")}
    assert names == {"before.html", "release.html", "checked.html", "inside.html", "frontier.svg", "zip.png"}
