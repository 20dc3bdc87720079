"""Statements written as SQL: parsed once, and filled with expressions, never with text."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TypeAlias

from sqlglot import exp, parse_one

Filling: TypeAlias = "exp.Expr | Sequence[exp.Expr]"


def template(sql: str, dialect: str = "duckdb") -> Callable[..., exp.Select]:
    """A function that fills the placeholders (``:name``) of a statement with an expression, or a list of them.

    A placeholder that is not filled, or that the statement does not have, is an error.

    >>> from sqlanon.expressions import col, table
    >>> sizes = template("SELECT :keys, count(*) AS n FROM :rows GROUP BY ALL")
    >>> sizes(keys=[col("zip"), col("age")], rows=table("people")).sql("duckdb")
    'SELECT "zip", "age", COUNT(*) AS n FROM "people" GROUP BY ALL'
    """

    @lru_cache(maxsize=1)
    def parsed() -> exp.Select:
        # No placeholder stands for a table in SQL: there it is parsed as a table of that name. DuckDB's are $name.
        relations = re.sub(r"\b(FROM|JOIN) :(?=\w)", rf"\1 {_TABLE}", sql)
        statement = parse_one(re.sub(r"(?<!:):(?=[a-z])", "$", relations), dialect=dialect)
        assert isinstance(statement, exp.Select)
        return statement

    def fill(**filled: Filling) -> exp.Select:
        statement, used = parsed().copy(), set[str]()
        for node in list(statement.find_all(exp.Placeholder, exp.Parameter, exp.Table)):
            if isinstance(node, exp.Table) and not node.name.startswith(_TABLE):
                continue
            if isinstance(node.this, exp.Literal):  # $1 is a parameter of the statement itself
                continue
            name = node.name.removeprefix(_TABLE)
            used.add(name)
            _put(node, filled[name])
        if unknown := filled.keys() - used:
            raise KeyError(f"the statement has no {', '.join(sorted(unknown))}")
        return statement

    return fill


_TABLE = "sqlanon_table_"


def _put(node: exp.Expr, value: Filling) -> None:
    if isinstance(value, exp.Expr):
        new = value.copy()
        if isinstance(node, exp.Table) and node.alias:
            new.set("alias", node.args["alias"])
        node.replace(new)
        return
    parent, key = node.parent, node.arg_key
    assert parent is not None
    assert key is not None
    before = parent.args[key]
    at = next(i for i, one in enumerate(before) if one is node)
    parent.set(key, [*before[:at], *(one.copy() for one in value), *before[at + 1 :]])
