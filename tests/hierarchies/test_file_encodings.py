"""Hierarchy files follow the rules of data files: UTF-8, UTF-16 with a mark, else the encoding that is named."""

from __future__ import annotations

import codecs
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import sqlanon
from sqlanon.errors import HierarchyError, PolicyError
from sqlanon.support.encodings import probable_encodings
from support.policies import make_policy

LINES = 'Köln;"Nordrhein; Westfalen";*\nOrléans;Centre-Val;*\nÅbo;;*\n'
TOWNS = ["Köln", "Orléans", "Åbo"] * 2


def labels(path: Path, **keys: Any) -> list[str]:
    """The labels at level 1, by the released rows."""
    rule = {"file": str(path), **keys}
    policy = make_policy({"town": {"role": "quasi", "hierarchy": rule, "min_level": 1}}, table=None)
    with sqlanon.connect(pa.table({"town": TOWNS})) as db:
        result = db.anonymize(policy, record=False)
        assert result.generalization == {"town": 1}
        release = result.publish(path.parent / "release.duckdb")
        assert release.verify().verified
    with duckdb.connect(str(release.path), read_only=True) as connection:
        return sorted({row[0] for row in connection.execute(f"SELECT town FROM {release.table}").fetchall()})


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("mark", "encoding", "keys"),
    [
        (b"", "utf-8", {}),
        (codecs.BOM_UTF8, "utf-8", {}),
        (codecs.BOM_UTF16_LE, "utf-16-le", {}),
        (codecs.BOM_UTF16_BE, "utf-16-be", {}),
        (b"", "latin-1", {"encoding": "latin-1"}),
        (b"", "windows-1252", {"encoding": "windows-1252"}),
        (b"", "utf-16-le", {"encoding": "utf-16-le"}),
        (codecs.BOM_UTF8, "utf-8", {"encoding": "utf-8"}),
    ],
)
def test_a_hierarchy_file_is_read_in_its_encoding(
    mark: bytes, encoding: str, keys: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "towns.csv").write_bytes(mark + LINES.encode(encoding))
    assert labels(tmp_path / "towns.csv", **keys) == ["", "Centre-Val", "Nordrhein; Westfalen"]


def test_an_invalid_utf_8_byte_is_named_with_the_likely_encodings(tmp_path: Path) -> None:
    path = tmp_path / "towns.csv"
    path.write_bytes(LINES.encode("latin-1"))
    with pytest.raises(HierarchyError) as caught:
        labels(path)
    assert (
        "line 1 has the byte 0xF6, which is not valid UTF-8; save it as UTF-8, or as UTF-16 with a byte order mark, "
        "or name "
        'its encoding: encoding = "windows-1252" (or latin-1, windows-1250, cp437, big5)'
    ) in str(caught.value)
    with pytest.raises(
        HierarchyError, match="line 1 has the byte 0xF6, which is not valid in ascii; give another encoding"
    ):
        labels(path, encoding="ascii")


@pytest.mark.parametrize(
    ("text", "encoding", "first"),
    [
        ("Käse, Müsli, Crêpe", "windows-1252", "windows-1252"),
        ("Preis 5 €", "windows-1252", "windows-1252"),
        ("größe;straße", "windows-1252", "windows-1252"),
        ("Łódź;Kraków;Gdańsk", "windows-1250", "windows-1250"),
        ("Москва;Санкт-Петербург;ясли", "windows-1251", "windows-1251"),
        ("Αθήνα;Θεσσαλονίκη;Πάτρα", "windows-1253", "windows-1253"),
        ("東京;日本", "shift-jis", "shift-jis"),
        ("北京;中国;*\n上海;中国;*\n", "gb18030", "gb18030"),
    ],
)
def test_the_most_probable_encoding_is_that_of_the_text(text: str, encoding: str, first: str) -> None:
    assert probable_encodings(text.encode(encoding))[0] == first


def test_japanese_text_may_be_in_shift_jis() -> None:
    assert "shift-jis" in probable_encodings("東京;日本;*\nソポ;日本;*\n".encode("shift-jis"))


def test_an_unknown_encoding_is_refused_by_the_policy() -> None:
    with pytest.raises(PolicyError, match=r"town\.hierarchy\.encoding: 'utf-9' is not a text encoding"):
        make_policy({"town": {"file": "towns.csv", "encoding": "utf-9"}})
