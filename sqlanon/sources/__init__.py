"""Where the private table comes from: a database, files, a live connection, Arrow."""

from sqlanon.sources.bind import Place, Source, bind_source, copy_arrow, file_kind, find_table, readable, unbind_source
from sqlanon.sources.plain import plain_column

__all__ = [
    "Place",
    "Source",
    "bind_source",
    "copy_arrow",
    "file_kind",
    "find_table",
    "plain_column",
    "readable",
    "unbind_source",
]
