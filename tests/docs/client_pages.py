"""Sections of the page on clients."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import duckdb
import pytest

from sqlanon import Policy, connect
from sqlanon.demo.hospital import make_hospital
from support.pages import FIRST_POLICY, blocks

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "how-to" / "serving.md").read_text(encoding="utf-8")


SECTIONS = dict(re.findall(r"^### (.*?)\n(.*?)(?=^##|\Z)", PAGE, re.MULTILINE | re.DOTALL))


VIEWS = ["class_sizes", "quality", "release_overview", "suppression_by"]


@pytest.fixture(scope="module")
def prepared_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the README's release, in both kinds of files; nothing private is in it."""
    private, public = tmp_path_factory.mktemp("private"), tmp_path_factory.mktemp("public")
    make_hospital(private / "hospital.duckdb", rows=3000)
    (private / "first.toml").write_text(blocks("toml", FIRST_POLICY)[0], encoding="utf-8")
    with connect() as db:
        result = db.anonymize(Policy.load(private / "first.toml"))
        for name in ("first.duckdb", "first.parquet"):
            assert result.publish(public / name).verify().verified
    return public


@pytest.fixture
def public(prepared_folder: Path, tmp_path: Path) -> Path:
    """A copy of it, which a test may replace files in."""
    return Path(shutil.copytree(prepared_folder, tmp_path / "public"))


def replace(public: Path) -> int:
    """Put another release in the place of the first one, as `publish` does; its rows."""
    with duckdb.connect() as connection:
        connection.execute(f"ATTACH '{public / 'new.duckdb'}' AS new (STORAGE_VERSION 'v1.0.0')")
        connection.execute("CREATE TABLE new.patients AS SELECT 'f' AS sex FROM range(7)")
    (public / "new.duckdb").replace(public / "first.duckdb")
    return 7
