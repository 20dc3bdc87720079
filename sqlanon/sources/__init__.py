"""Where the private table comes from: a database, files, a live connection, Arrow, a server."""

from sqlanon.sources.bind import source_errors, unbind_source
from sqlanon.sources.bound import NOT_THERE, Sampled, Source, WorkNames
from sqlanon.sources.duckdb import bind_source, find_table
from sqlanon.sources.formats import file_kind
from sqlanon.sources.kinds import Binding, SourceKind, register_source
from sqlanon.sources.plain import fixed_column, plain_column

__all__ = [
    "NOT_THERE",
    "Binding",
    "Sampled",
    "Source",
    "SourceKind",
    "WorkNames",
    "bind_source",
    "file_kind",
    "find_table",
    "fixed_column",
    "plain_column",
    "register_source",
    "source_errors",
    "unbind_source",
]
