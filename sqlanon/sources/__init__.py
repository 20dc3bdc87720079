"""Sources: the tables to anonymize, in a database, files, a live connection, Arrow, or a server."""

from sqlanon.places.databases import file_kind
from sqlanon.sources.duckdb import bind_source, find_table
from sqlanon.sources.kinds import Binding, SourceKind, register_source
from sqlanon.sources.relation import drop_source_views, fixed_column, plain_column, source_errors
from sqlanon.sources.source import UNKNOWN_TYPE, SamplingRelation, Source, WorkNames

__all__ = [
    "UNKNOWN_TYPE",
    "Binding",
    "SamplingRelation",
    "Source",
    "SourceKind",
    "WorkNames",
    "bind_source",
    "drop_source_views",
    "file_kind",
    "find_table",
    "fixed_column",
    "plain_column",
    "register_source",
    "source_errors",
]
