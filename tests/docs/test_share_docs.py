"""docs/how-to/share.md is true: its commands run, and it quotes the terminal as it is."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from sqlanon.cli.printing import DRAFT
from sqlanon.demo.hospital import make_hospital
from support.commands import cli
from support.databases import change
from support.pages import FIRST_POLICY, FOLDER, ROOT, blocks

pytestmark = pytest.mark.thorough

PAGE = (ROOT / "docs" / "how-to" / "share.md").read_text(encoding="utf-8")


CHECKLIST = PAGE.partition("## The checklist")[2].partition("## Who signs")[0]
QUOTED = {*re.findall("`([^`]+)`", CHECKLIST)} - {"quasi", "[source] person"}
OF_BAD_RELEASES = {"error: the audit refused the release; nothing was published", "NOT verified:", "warning:"}


def make_first(folder: Path) -> None:
    (folder / "first.toml").write_text(blocks("toml", FIRST_POLICY)[0], encoding="utf-8")
    make_hospital(folder / "hospital.duckdb", rows=2000)


def test_the_commands_run_and_the_checklist_quotes_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / FOLDER).mkdir()
    make_first(tmp_path / FOLDER)
    monkeypatch.chdir(tmp_path)
    printed = ""
    for line in blocks("sh", PAGE)[0].splitlines():
        arguments = shlex.split(line, comments=True)[1:]
        if arguments[0] != "report":  # tested with the page of the report
            ended = cli(*arguments)
            assert ended.status == 0, line
            printed += ended.out + ended.err
    printed += cli("anonymize", f"{FOLDER}/first.toml", "--draft", "-o", "draft.duckdb").out
    assert DRAFT in QUOTED
    for text in QUOTED - OF_BAD_RELEASES:
        assert text in printed


def test_checklist_quotes_messages_about_bad_releases(tmp_path: Path) -> None:
    make_first(tmp_path)
    assert cli("anonymize", "first.toml", cwd=tmp_path).status == 0
    finer = ["attributes.birth_date.max_level=3", "search.suppression_limit=0.5"]
    command = ["anonymize", "first.toml", "-o", "other.duckdb", *(part for key in finer for part in ("--set", key))]
    refused = cli(*command, cwd=tmp_path)
    forced = cli(*command, "--force", cwd=tmp_path)
    change(tmp_path / "first.duckdb", "UPDATE patients_v1 SET cost = cost + 1 WHERE rowid = 0")
    changed = cli("verify", "first.duckdb", cwd=tmp_path)
    assert (refused.status, forced.status, changed.status) == (1, 0, 1)
    printed = "".join(ended.out + ended.err for ended in (refused, forced, changed))
    assert OF_BAD_RELEASES <= QUOTED
    for text in OF_BAD_RELEASES:
        assert text in printed
