"""docs/how-to/sources.md: what its table says is what policies take, and which extensions these need."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

import sqlanon
from sqlanon.places.databases import ENDINGS, choose_attachment, extensions_for, file_kind
from sqlanon.sources.extensions import _REQUIRED_EXTENSIONS
from sqlanon.sources.files.binding import FORMATS
from support.environments import ROOT
from support.pages import blocks

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PAGE = (ROOT / "docs" / "how-to" / "sources.md").read_text(encoding="utf-8")
OF_STATISTICS = (ROOT / "docs" / "how-to" / "statistics-files.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| (.+?) \| `(.+?)` \|(.*)\|$", PAGE, re.MULTILINE)


@pytest.mark.parametrize(("source", "line", "extensions"), ROWS, ids=[row[0] for row in ROWS])
def test_each_row_is_a_source_with_its_extensions(source: str, line: str, extensions: str) -> None:
    document = tomllib.loads(line)
    if "database" in document:
        document["table"] = "patients"
    section = sqlanon.Policy(
        source=document, attributes={"zip": {"role": "quasi", "hierarchy": "suppress"}}, privacy={"k": 2}
    ).source
    needed: set[str] = set()
    if (section.database is not None and Path(str(section.database)).suffix != ".duckdb") or "://" in line:
        needed |= set(choose_attachment(section.database).extensions) if section.database is not None else set()
    for pattern in section.files:
        kind = file_kind(pattern)
        assert kind is not None
        needed |= {*extensions_for(pattern), *([FORMATS[kind].extension] if FORMATS[kind].extension else [])}
    for name in list(needed):
        needed |= set(_REQUIRED_EXTENSIONS.get(name, ()))
    assert set(re.findall(r"`(\w+)`", extensions)) == needed


def test_the_table_has_all_formats() -> None:
    formats = {file_kind(tomllib.loads(line).get("files", "")) for _, line, _ in ROWS}
    assert set(FORMATS) <= formats


def test_documented_endings_of_statistics_files_are_complete() -> None:
    kinds = {"SPSS": "spss", "Stata": "stata", "SAS": "sas", "SAS transport": "xport"}
    rows = re.findall(r"^\| (.+?) \| (`\..+?`) \|", OF_STATISTICS, re.MULTILINE)
    assert {kinds[name]: tuple(re.findall(r"`(.+?)`", endings)) for name, endings in rows} == {
        kind: ENDINGS[kind] for kind in kinds.values()
    }


@pytest.mark.parametrize("policy", [*blocks("toml", PAGE), *blocks("toml", OF_STATISTICS)])
def test_the_policies_are_policies(policy: str) -> None:
    assert sqlanon.Policy(**tomllib.loads(policy)).privacy.k == 5


@pytest.mark.parametrize(
    "address",
    [
        "s3://bucket/x.parquet?s3_endpoint=minio.example:9000&s3_url_style=path",
        "iceberg:lake/patients/metadata/00002-....metadata.json",
    ],
)
def test_documented_addresses_are_valid_sources(address: str) -> None:
    assert address in PAGE
    asks = sqlanon.Policy(
        source={"files": address}, attributes={"zip": {"role": "quasi", "hierarchy": "suppress"}}, privacy={"k": 2}
    )
    assert asks.source.files == (address,)
