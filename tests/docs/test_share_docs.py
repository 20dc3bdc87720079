"""docs/how-to/share.md is true: its commands run, and it quotes the terminal as it is."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from support import cli
from test_readme import FIRST_POLICY, FOLDER, ROOT, blocks

from sqlanon.cli.printing import DRAFT
from sqlanon.demo.hospital import make_hospital

PAGE = (ROOT / "docs" / "how-to" / "share.md").read_text(encoding="utf-8")


def test_the_commands_run_and_the_checklist_quotes_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = blocks("toml", FIRST_POLICY)[0]
    (tmp_path / FOLDER).mkdir()
    (tmp_path / FOLDER / "first.toml").write_text(policy, encoding="utf-8")
    make_hospital(tmp_path / FOLDER / "hospital.duckdb", rows=2000)
    monkeypatch.chdir(tmp_path)
    printed = ""
    for line in blocks("sh", PAGE)[0].splitlines():
        arguments = shlex.split(line, comments=True)[1:]
        if arguments[0] != "report":  # tested with the page of the report
            ended = cli(*arguments)
            assert ended.status == 0, line
            printed += ended.out + ended.err
    printed += cli("anonymize", f"{FOLDER}/first.toml", "--draft", "-o", "draft.duckdb").out
    checklist = PAGE.partition("## The checklist")[2].partition("## Who signs")[0]
    quoted = [text for text in re.findall("`([^`]+)`", checklist) if text not in ("quasi", "[source] person")]
    assert DRAFT in quoted and DRAFT in printed
    # What is said of a refusal is not printed here: it stands in the package.
    source = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "sqlanon").rglob("*.py"))
    for text in quoted:
        assert text in printed or text.removeprefix("error: ").rstrip(":") in source, text
