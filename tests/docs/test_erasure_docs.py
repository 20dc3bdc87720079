"""docs/how-to/erasure.md is true: its code prints what its comments say, and its commands run."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
from pathlib import Path

import duckdb
import pytest

from support.commands import cli
from support.pages import ROOT, blocks

pytestmark = pytest.mark.thorough

PAGE = (ROOT / "docs" / "how-to" / "erasure.md").read_text(encoding="utf-8")
POLICY = """
[source]
database = "clinic.duckdb"
table = "visits"
key = ["id"]
person = "patient"
[attributes]
age = { role = "quasi", hierarchy = { intervals = [5, 10] } }
illness = { role = "sensitive" }
[privacy]
k = 3
[search]
suppression_limit = 0.2
[release]
database = "release.duckdb"
table = "visits"
"""


def test_code_prints_the_commented_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (code,) = blocks("python", PAGE)
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(code, "erasure.md", "exec"), {})
    assert printed.getvalue().splitlines() == re.findall(r"print\(.*\)  # (.*)$", code, re.MULTILINE)


def test_commands_print_the_quoted_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "policy.toml").write_text(POLICY, encoding="utf-8")
    (code,) = blocks("python", PAGE)
    table = "".join(re.findall(r'^        "((?:CREATE|FROM).*)"$', code, re.MULTILINE))
    with duckdb.connect("clinic.duckdb") as connection:
        connection.execute(table)
    assert cli("anonymize", "policy.toml").status == 0
    with duckdb.connect("clinic.duckdb") as connection:
        connection.execute("DELETE FROM visits WHERE patient IN (1, 2)")
    printed = ""
    for line, status in zip(blocks("sh", PAGE)[0].splitlines(), (1, 0, 0), strict=True):
        ended = cli(*shlex.split(line, comments=True)[1:])
        assert ended.status == status, line
        printed += ended.out
    for line in blocks("text", PAGE)[0].splitlines():
        assert line.removesuffix(" ...") in printed
