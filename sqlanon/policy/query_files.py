"""The files that a DuckDB query reads. As everywhere in a policy, relative paths start in the policy's folder."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import takewhile
from pathlib import Path

from sqlanon.support.fields import file_pattern

_DATA_FILE = re.compile(r"\.(parquet|pq|csv|tsv|txt|json|jsonl|ndjson|xlsx)(\.gz|\.zst)?$", re.IGNORECASE)
_CLAUSES_AFTER_FROM = {
    "SELECT", "WHERE", "GROUP_BY", "HAVING", "QUALIFY", "WINDOW", "ORDER_BY", "LIMIT", "UNION", "ON", "USING",
}  # fmt: skip
_READERS = re.compile(r"(read|scan)_\w+|\w+_scan", re.IGNORECASE)


def with_folder(query: str, folder: Path | None) -> str:
    """Make the relative paths in a query absolute.

    >>> with_folder("SELECT * FROM 'x/*.parquet' JOIN t USING (id)", Path("/data"))
    "SELECT * FROM '/data/x/*.parquet' JOIN t USING (id)"
    >>> with_folder("FROM read_csv(['a.csv', '/b.csv'], sep = ';') WHERE name = 'c.csv'", Path("/data"))
    "FROM read_csv(['/data/a.csv', '/b.csv'], sep = ';') WHERE name = 'c.csv'"
    >>> with_folder("FROM t, 'a.json' AS a, \\"b.parquet\\" WHERE name IN ('c.csv', 'd.csv')", Path("/data"))
    "FROM t, '/data/a.json' AS a, '/data/b.parquet' WHERE name IN ('c.csv', 'd.csv')"
    """
    return query if folder is None else _replace_paths(query, lambda path: file_pattern(path, folder))


def without_folders(query: str) -> str:
    """Reduce the paths in a query to file names, so that it is independent of folders."""
    return _replace_paths(query, lambda path: Path(path).name)


def _replace_paths(query: str, replace: Callable[[str], str]) -> str:
    """Replace the paths in a query. All other characters stay, because formatting could change its meaning."""
    parts, end = [], 0
    for start, next_start, path in _find_paths(query):
        quoted = replace(path).replace("'", "''")
        parts += [query[end:start], f"'{quoted}'"]
        end = next_start
    return "".join([*parts, query[end:]])


def _find_paths(query: str) -> Iterator[tuple[int, int, str]]:
    """The positions of paths: tables with the ending of a data file, and the first argument of a reader function."""
    from sqlglot.dialects import DuckDB  # noqa: PLC0415 - it takes long to load, and most policies have no query
    from sqlglot.errors import TokenError  # noqa: PLC0415

    try:
        tokens = DuckDB().tokenize(query)
    except TokenError:  # DuckDB reports the error
        return
    kinds = [token.token_type.name for token in tokens]
    tables = {i for i in _find_quoted_tables(kinds) if _DATA_FILE.search(tokens[i].text)}
    for i, token in enumerate(tokens):
        paths: list[int] = [i] if i in tables else []
        if kinds[i] == "VAR" and _READERS.fullmatch(token.text) and kinds[i + 1 : i + 2] == ["L_PAREN"]:
            paths = _find_first_argument(kinds, i + 2)
        yield from ((tokens[j].start, tokens[j].end + 1, tokens[j].text) for j in paths)


def _find_quoted_tables(kinds: Sequence[str]) -> Iterator[int]:
    """The quoted tokens in the place of a table: after FROM or JOIN, or after a comma in their list."""
    is_from = [False]  # for each open parenthesis, whether the position is in a list of tables
    for i, kind in enumerate(kinds):
        if kind == "L_PAREN":
            is_from.append(False)
        elif kind == "R_PAREN":
            is_from[:] = is_from[:-1] or [False]
        elif kind in ("FROM", "JOIN"):
            is_from[-1] = True
        elif kind in _CLAUSES_AFTER_FROM:
            is_from[-1] = False
        elif kind in ("STRING", "IDENTIFIER") and is_from[-1] and kinds[i - 1] in ("FROM", "JOIN", "COMMA"):
            yield i


def _find_first_argument(kinds: Sequence[str], start: int) -> list[int]:
    """The texts of the argument that starts at a token: one, or those of a list."""
    if kinds[start : start + 1] == ["L_BRACKET"]:
        items = takewhile(lambda j: kinds[j] in ("STRING", "COMMA"), range(start + 1, len(kinds)))
        return [j for j in items if kinds[j] == "STRING"]
    return [start] if kinds[start : start + 1] == ["STRING"] else []
