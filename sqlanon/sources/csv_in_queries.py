"""Queries and views that read CSV files: refused where DuckDB would guess how these are written.

DuckDB may take all columns for one where a line has another number of fields. With ``files`` all lines are checked; in
a query, a reader that is told everything refuses such lines itself.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from sqlglot import exp
from sqlglot.dialects import DuckDB
from sqlglot.errors import TokenError

from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.errors import SourceError
from sqlanon.support.expressions import star

_READERS = ("read_csv", "read_csv_auto")
_SCANS = (*_READERS, "sniff_csv")
_ASSIGNS = ("EQ", "COLON_EQ", "FARROW")


def refuse_guessed_csv(engine: DuckDBEngine, found: str | exp.Table) -> None:
    """Refuse a query, or a table or view, that has DuckDB guess how a CSV file is written."""
    scans = [node["name"].strip().lower() for node in _nodes(_plan(engine, found)) if "name" in node]
    told = _count_told_readers(found) if isinstance(found, str) else 0
    if sum(name in _SCANS for name in scans) > told:
        key = "query" if isinstance(found, str) else "table"
        raise SourceError(
            f"source.{key}: reads a CSV file, and DuckDB would guess how it is written: "
            "one wrong line, and all columns may become one. Give the file as files = ... under [source], or load it "
            "into a table; or say in a query how it is written: read_csv(..., auto_detect = false, delim = ..., "
            "columns = {...})"
        )


def _plan(engine: DuckDBEngine, found: str | exp.Table) -> Any:
    query = found if isinstance(found, str) else engine.sql(star(found))
    statement = exp.Command(this="EXPLAIN", expression=f"(FORMAT JSON) {query}")
    return json.loads(engine.rows(statement)[0][1])


def _nodes(tree: Any) -> Iterator[dict[str, Any]]:
    if isinstance(tree, dict):
        yield tree
    for part in tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else ():
        yield from _nodes(part)


def _count_told_readers(query: str) -> int:
    """How many readers of CSV files in a query are told how the files are written; 0 where one is not.

    >>> _count_told_readers("FROM read_csv('a', auto_detect = false), read_csv('b', AUTO_DETECT := FALSE)")
    2
    >>> _count_told_readers("FROM read_csv('a', auto_detect = false), read_csv('b')")
    0
    """
    try:
        tokens = DuckDB().tokenize(query)
    except TokenError:  # DuckDB knows spellings that sqlglot does not: then no reader is known to be told
        return 0
    texts = [token.text.lower() for token in tokens]
    told = []
    for i, text in enumerate(texts):
        if text in _READERS and texts[i + 1 : i + 2] == ["("]:
            call = range(i + 2, _end_of_call(texts, i + 1))
            told.append(
                any(
                    texts[j] == "auto_detect" and tokens[j + 1].token_type.name in _ASSIGNS and texts[j + 2] == "false"
                    for j in call[:-2]
                )
            )
    return len(told) if all(told) else 0


def _end_of_call(texts: list[str], start: int) -> int:
    """Where the parenthesis that opens at a token is closed."""
    depth = 0
    for i in range(start, len(texts)):
        depth += (texts[i] == "(") - (texts[i] == ")")
        if depth == 0:
            return i
    return len(texts)
