"""Where the private table comes from: a database, files, a live connection, Arrow."""

from sqlanon.sources.bind import Place, Source, bind_source, copy_arrow, file_kind, readable, unbind_source

__all__ = ["Place", "Source", "bind_source", "copy_arrow", "file_kind", "readable", "unbind_source"]
