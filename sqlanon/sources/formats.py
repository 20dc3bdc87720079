"""The formats of data files, by the endings of their names."""

from __future__ import annotations

from collections.abc import Mapping

from sqlanon.places.databases import format_address, table_format


def _with_compression(*names: str) -> tuple[str, ...]:
    return tuple(f".{name}{suffix}" for name in names for suffix in ("", ".gz", ".zst"))


ENDINGS: Mapping[str, tuple[str, ...]] = {
    "parquet": (".parquet", ".pq"),
    "csv": _with_compression("csv", "tsv", "txt"),
    "json": _with_compression("json", "jsonl", "ndjson"),
    "excel": (".xlsx",),
    "spss": (".sav", ".zsav"),
    "stata": (".dta",),
    "sas": (".sas7bdat",),
    "xport": (".xpt",),
}


KNOWN_ENDINGS = ", ".join(ending for endings in ENDINGS.values() for ending in endings if ending.count(".") == 1)
"""The endings of data files, for messages."""


OTHER_WORKBOOKS = (".xls", ".xlsb", ".ods")
"""The endings of workbooks in unsupported formats."""


def file_kind(path: str) -> str | None:
    """The format of a file by its ending, or of a folder by its prefix; None for others.

    >>> file_kind("a.CSV.gz"), file_kind("https://host/x.parquet?sig=1"), file_kind("delta:x"), file_kind("x.duckdb")
    ('csv', 'parquet', 'delta', None)
    """
    name = format_address(path).lower()
    by_ending = (kind for kind, endings in ENDINGS.items() if name.endswith(endings))
    return table_format(path) or next(by_ending, None)
