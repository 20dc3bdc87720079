"""The page on linked tables publishes a release, and its queries run."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from support.commands import cli
from support.files import ROOT
from support.linked_hospital import TABLES
from support.pages import blocks

pytestmark = pytest.mark.slow

PAGE = (ROOT / "docs" / "how-to" / "linked-tables.md").read_text(encoding="utf-8")


def test_the_page_publishes_a_release_and_its_queries_run(tmp_path: Path) -> None:
    with duckdb.connect(str(tmp_path / "hospital.duckdb")) as connection:
        connection.execute(TABLES)
    (tmp_path / "policy.toml").write_text(blocks("toml", PAGE)[0], encoding="utf-8")
    assert cli("anonymize", tmp_path / "policy.toml").status == 0
    attacked = cli("attack", tmp_path / "release.duckdb", "--policy", tmp_path / "policy.toml")
    assessed = cli("risk", tmp_path / "policy.toml")
    for text, ended in zip(blocks("text", PAGE), (assessed, attacked), strict=True):
        assert [line for line in text.splitlines() if line not in ended.out] == []
    with duckdb.connect(str(tmp_path / "release.duckdb"), read_only=True) as connection:
        for query in blocks("sql", PAGE)[0].split(";"):
            if "FROM" in query:
                assert connection.execute(query).fetchall()
