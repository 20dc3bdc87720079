"""Releases of files, and the tables that they publish."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import duckdb

import sqlanon
from support.databases import quote_name
from support.policies import make_policy


def table_of(path: Path, name: str = "released") -> tuple[list[tuple[Any, ...]], dict[str, str]]:
    """The rows of a release, and its columns with their types."""
    with duckdb.connect(str(path), read_only=True) as release:
        relation = release.sql(f"FROM {quote_name(name)}")
        return relation.fetchall(), dict(zip(relation.columns, map(str, relation.types), strict=True))


def publish_and_read(
    source: Any, /, attributes: Mapping[str, Any], directory: Path, k: int = 2, **sections: Any
) -> tuple[list[tuple[Any, ...]], dict[str, str]]:
    """Anonymize, publish, verify: the rows of the release, and its columns with their types."""
    path = directory / "release.duckdb"
    with sqlanon.connect(source) as db:
        release = db.anonymize(make_policy(attributes, k=k, **sections)).publish(path, "released")
        assert release.verify().verified
    return table_of(path)
