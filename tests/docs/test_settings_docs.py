"""docs/how-to/settings.md is true: its commands run as they stand."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from sqlanon.cli.commands import app
from sqlanon.cli.printing import COMPARISON_MARKS
from sqlanon.demo.hospital import make_hospital
from support.commands import cli
from support.pages import FIRST_POLICY, FOLDER, ROOT, blocks

PAGE = (ROOT / "docs" / "how-to" / "settings.md").read_text(encoding="utf-8")


@pytest.mark.thorough
def test_settings_commands_print_the_documented_output(tmp_path: Path) -> None:
    (tmp_path / FOLDER).mkdir()
    make_hospital(tmp_path / FOLDER / "hospital.duckdb", rows=2000)
    (tmp_path / FOLDER / "first.toml").write_text(blocks("toml", FIRST_POLICY)[0], encoding="utf-8")
    before = {path.name for path in (tmp_path / FOLDER).iterdir()}
    outputs = {}
    for line in "\n".join(blocks("sh", PAGE)).splitlines():
        done = cli(*shlex.split(line)[1:], cwd=tmp_path)
        assert (done.status, done.err) == (0, ""), line
        outputs[line] = done.out
    assert {path.name for path in (tmp_path / FOLDER).iterdir()} == before
    smallest = [int(re.findall(r"smallest has (\d+)", out)[0]) for line, out in outputs.items() if "--dry-run" in line]
    assert min(smallest) >= 5 and min(smallest[1:3]) >= 10
    *_, summary, statements = outputs.values()
    assert "To print the statements: " in summary and len(statements) > 4 * len(summary)


def test_the_marks_and_the_commands_that_have_set() -> None:
    for mark, _ in COMPARISON_MARKS.values():
        assert f"`{mark}`" in PAGE
    having = {
        command.callback.__name__
        for command in app.registered_commands
        if command.callback is not None and "settings" in command.callback.__annotations__
    }
    (sentence,) = re.findall(r"`--set` works\swith\s(.*?), too", PAGE, re.DOTALL)
    assert having == {*re.findall(r"`(\w+)`", sentence), "anonymize"}
