"""Where the private table comes from: a database, files, a live connection, Arrow."""

from sqlanon.sources.bind import bind_source, copy_arrow, file_kind, find_table, readable, unbind_source
from sqlanon.sources.bound import Place, Sampled, Source
from sqlanon.sources.frequency_set import NOT_THERE, bind_frequency_set
from sqlanon.sources.identity import identity_of
from sqlanon.sources.plain import fixed_column, plain_column
from sqlanon.sources.postgres import bind_postgres
from sqlanon.sources.scope import bring_temporary, refuse_functions
from sqlanon.sources.spark import bind_spark

__all__ = [
    "NOT_THERE",
    "Place",
    "Sampled",
    "Source",
    "bind_frequency_set",
    "bind_postgres",
    "bind_source",
    "bind_spark",
    "bring_temporary",
    "copy_arrow",
    "file_kind",
    "find_table",
    "fixed_column",
    "identity_of",
    "plain_column",
    "readable",
    "refuse_functions",
    "unbind_source",
]
