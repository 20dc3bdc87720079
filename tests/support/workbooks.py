"""Workbooks for tests: as openpyxl writes them, and of XML that other programs write."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import openpyxl
from openpyxl.utils.datetime import CALENDAR_MAC_1904

Rows = Sequence[Sequence[Any]]

_MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
_OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_PACKAGE = "http://schemas.openxmlformats.org/package/2006/relationships"


def workbook(
    rows: Rows,
    *,
    formats: Mapping[str, str] | None = None,
    merged: Sequence[str] = (),
    more: Mapping[str, Rows] | None = None,
    hidden: Sequence[str] = (),
    from_1904: bool = False,
) -> bytes:
    """A workbook whose sheet Patients has rows; further sheets, formats of cells and merged cells."""
    book = openpyxl.Workbook()
    if from_1904:
        book.epoch = CALENDAR_MAC_1904
    sheet = book.active
    sheet.title = "Patients"
    for row in rows:
        sheet.append(row)
    for cell, code in (formats or {}).items():
        sheet[cell].number_format = code
    for place in merged:
        sheet.merge_cells(place)
    for name, of_sheet in (more or {}).items():
        added = book.create_sheet(name)
        for row in of_sheet:
            added.append(row)
    for name in hidden:
        book[name].sheet_state = "hidden"
    file = io.BytesIO()
    book.save(file)
    return file.getvalue()


def write_workbook(path: Path, rows: Rows, **options: Any) -> Path:
    path.write_bytes(workbook(rows, **options))
    return path


def raw_workbook(
    rows: str, *, strings: str | None = None, formats: Sequence[str] = (), book: str = "", main: str = _MAIN
) -> bytes:
    """A workbook whose sheet Patients has the rows of an XML text; style 1 of cells is the first of ``formats``."""
    codes = "".join(f'<numFmt numFmtId="{164 + i}" formatCode="{code}"/>' for i, code in enumerate(formats))
    styles = "".join(f'<xf numFmtId="{164 + i}"/>' for i in range(len(formats)))
    kinds = {"rId1": ("worksheet", "worksheets/sheet1.xml"), "rId2": ("styles", "/xl/styles.xml")}
    if strings is not None:
        kinds["rId3"] = ("sharedStrings", "sharedStrings.xml")
    parts = {
        "_rels/.rels": _relations({"rId1": ("officeDocument", "xl/workbook.xml")}),
        "xl/_rels/workbook.xml.rels": _relations(kinds),
        "xl/workbook.xml": f'<workbook xmlns="{main}" xmlns:r="{_OFFICE}">{book}<sheets>'
        '<sheet name="Patients" sheetId="1" r:id="rId1"/></sheets></workbook>',
        "xl/styles.xml": f'<styleSheet xmlns="{main}"><numFmts>{codes}</numFmts><cellStyleXfs><xf numFmtId="14"/>'
        f'</cellStyleXfs><cellXfs><xf numFmtId="0"/>{styles}</cellXfs></styleSheet>',
        "xl/worksheets/sheet1.xml": f'<worksheet xmlns="{main}"><sheetData>{rows}</sheetData></worksheet>',
    }
    if strings is not None:
        parts["xl/sharedStrings.xml"] = f'<sst xmlns="{main}">{strings}</sst>'
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as packed:
        for name, content in parts.items():
            packed.writestr(name, content)
    return file.getvalue()


def _relations(targets: Mapping[str, tuple[str, str]]) -> str:
    parts = [
        f'<Relationship Id="{identifier}" Type="{_OFFICE}/{kind}" Target="{target}"/>'
        for identifier, (kind, target) in targets.items()
    ]
    return f'<Relationships xmlns="{_PACKAGE}">{"".join(parts)}</Relationships>'
