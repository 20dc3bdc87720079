"""Where releases and sources are: on a server or in a file."""

from __future__ import annotations

import os
from pathlib import Path

from sqlanon.policy.postgres import is_postgres, shown_postgres_place
from sqlanon.policy.spark import in_spark, is_spark, shown_spark_place


def is_server(place: str) -> bool:
    """Whether a text is where a server is, of PostgreSQL or of Spark; else it is a file.

    >>> is_server("postgresql://db/hospital"), is_server("sc://host:15002"), is_server("release.duckdb")
    (True, True, False)
    """
    return is_spark(place) or is_postgres(place)


def shown_place(path: Path) -> str:
    """The place of a release as people are told of it: of one that is no file an address, which a path shortens.

    >>> from sqlanon.policy.postgres import server_of
    >>> shown_place(Path(server_of("postgresql://db/hospital"), "public.patients")), shown_place(Path("r.duckdb"))
    ('postgresql://db/hospital/public.patients', 'r.duckdb')
    """
    return shown_spark_place(path) if in_spark(path) else shown_postgres_place(path)


def why_not_written(path: Path) -> str | None:
    """Why DuckDB cannot write a database at a path, or None.

    It reads a question mark as the end of the path, and a backslash as a slash: its log of changes goes elsewhere.

    >>> why_not_written(Path("/data/what now?/release.duckdb"))
    "has '?' in its path, which DuckDB cannot write a database at: use another folder or name"
    """
    wrong = next((one for one in ("?", *("\\" * (os.sep != "\\"))) if one in str(path)), None)
    return wrong and f"has {wrong!r} in its path, which DuckDB cannot write a database at: use another folder or name"
