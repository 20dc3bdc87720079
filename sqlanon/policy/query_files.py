"""The files that a query of DuckDB reads: as everywhere in a policy, their paths start in the policy's folder."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import takewhile
from pathlib import Path

from sqlanon.support.fields import file_pattern

_DATA = re.compile(r"\.(parquet|pq|csv|tsv|txt|json|jsonl|ndjson|xlsx)(\.gz|\.zst)?$", re.IGNORECASE)
_AFTER_TABLES = {
    "SELECT",
    "WHERE",
    "GROUP_BY",
    "HAVING",
    "QUALIFY",
    "WINDOW",
    "ORDER_BY",
    "LIMIT",
    "UNION",
    "ON",
    "USING",
}
_READERS = re.compile(r"(read|scan)_\w+|\w+_scan", re.IGNORECASE)


def with_folder(query: str, folder: Path | None) -> str:
    """The query with absolute paths in place of those that are relative to a folder.

    >>> with_folder("SELECT * FROM 'x/*.parquet' JOIN t USING (id)", Path("/data"))
    "SELECT * FROM '/data/x/*.parquet' JOIN t USING (id)"
    >>> with_folder("FROM read_csv(['a.csv', '/b.csv'], sep = ';') WHERE name = 'c.csv'", Path("/data"))
    "FROM read_csv(['/data/a.csv', '/b.csv'], sep = ';') WHERE name = 'c.csv'"
    >>> with_folder("FROM t, 'a.json' AS a, \\"b.parquet\\" WHERE name IN ('c.csv', 'd.csv')", Path("/data"))
    "FROM t, '/data/a.json' AS a, '/data/b.parquet' WHERE name IN ('c.csv', 'd.csv')"
    """
    return query if folder is None else _with_files(query, lambda path: file_pattern(path, folder))


def without_folders(query: str) -> str:
    """The query with the names of files alone: the same wherever the files are."""
    return _with_files(query, lambda path: Path(path).name)


def _with_files(query: str, change: Callable[[str], str]) -> str:
    """The query with other paths; all other characters stay as they are: to write it anew could change its meaning."""
    parts, end = [], 0
    for start, after, path in _files(query):
        changed = change(path).replace("'", "''")
        parts += [query[end:start], f"'{changed}'"]
        end = after
    return "".join([*parts, query[end:]])


def _files(query: str) -> Iterator[tuple[int, int, str]]:
    """Where files are named: a table whose name ends as files do, and the first argument of a reader, which is a text
    or a list of texts."""
    from sqlglot.dialects import DuckDB  # noqa: PLC0415 - it takes long to load, and most policies have no query
    from sqlglot.errors import TokenError  # noqa: PLC0415

    try:
        tokens = DuckDB().tokenize(query)
    except TokenError:  # DuckDB says what is wrong
        return
    kinds = [token.token_type.name for token in tokens]
    names = {i for i in _names_of_tables(kinds) if _DATA.search(tokens[i].text)}
    for i, token in enumerate(tokens):
        found: list[int] = [i] if i in names else []
        if kinds[i] == "VAR" and _READERS.fullmatch(token.text) and kinds[i + 1 : i + 2] == ["L_PAREN"]:
            found = _first_argument(kinds, i + 2)
        yield from ((tokens[j].start, tokens[j].end + 1, tokens[j].text) for j in found)


def _names_of_tables(kinds: Sequence[str]) -> Iterator[int]:
    """The tokens in quotes that stand where a table does: after FROM or JOIN, or after a comma that follows these."""
    is_from = [False]  # whether tables are listed, by open parentheses
    for i, kind in enumerate(kinds):
        if kind == "L_PAREN":
            is_from.append(False)
        elif kind == "R_PAREN":
            is_from[:] = is_from[:-1] or [False]
        elif kind in ("FROM", "JOIN"):
            is_from[-1] = True
        elif kind in _AFTER_TABLES:
            is_from[-1] = False
        elif kind in ("STRING", "IDENTIFIER") and is_from[-1] and kinds[i - 1] in ("FROM", "JOIN", "COMMA"):
            yield i


def _first_argument(kinds: Sequence[str], start: int) -> list[int]:
    """The texts of an argument that starts at a token: one, or those of a list."""
    if kinds[start : start + 1] == ["L_BRACKET"]:
        listed = takewhile(lambda j: kinds[j] in ("STRING", "COMMA"), range(start + 1, len(kinds)))
        return [j for j in listed if kinds[j] == "STRING"]
    return [start] if kinds[start : start + 1] == ["STRING"] else []
