"""Where the private table comes from: a database, files, a live connection, Arrow."""

from sqlanon.sources.bind import Source, bind_source, copy_arrow

__all__ = ["Source", "bind_source", "copy_arrow"]
