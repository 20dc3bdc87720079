"""The formats of data files, by the endings of their names."""

from __future__ import annotations

from collections.abc import Mapping

from sqlanon.places.databases import format_address, table_format


def _packed(*names: str) -> tuple[str, ...]:
    return tuple(f".{name}{packed}" for name in names for packed in ("", ".gz", ".zst"))


ENDINGS: Mapping[str, tuple[str, ...]] = {
    "parquet": (".parquet", ".pq"),
    "csv": _packed("csv", "tsv", "txt"),
    "json": _packed("json", "jsonl", "ndjson"),
    "excel": (".xlsx",),
    "spss": (".sav", ".zsav"),
    "stata": (".dta",),
    "sas": (".sas7bdat",),
    "xport": (".xpt",),
}


KNOWN_ENDINGS = ", ".join(one for endings in ENDINGS.values() for one in endings if one.count(".") == 1)
"""The endings of data files, for people."""


OTHER_WORKBOOKS = (".xls", ".xlsb", ".ods")
"""The endings of workbooks that are not read."""


def file_kind(path: str) -> str | None:
    """The format of a file by its ending, or of a folder by what stands before it; else None.

    >>> file_kind("a.CSV.gz"), file_kind("https://host/x.parquet?sig=1"), file_kind("delta:x"), file_kind("x.duckdb")
    ('csv', 'parquet', 'delta', None)
    """
    name = format_address(path).lower()
    by_ending = (kind for kind, endings in ENDINGS.items() if name.endswith(endings))
    return table_format(path) or next(by_ending, None)
