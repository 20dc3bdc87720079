"""Plain columns: equality is what a reader sees, and a type carries nothing but its values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from duckdb.sqltypes import DuckDBPyType
from sqlglot import exp

from sqlanon.errors import SourceError
from sqlanon.queries.names import cast, col, ident, native_type


def refuse_ambiguous(names: Sequence[str], where: str) -> None:
    """SQL does not tell names apart that differ in case only.

    Raises
    ------
    SourceError
        There are such names, or equal ones.
    """
    counts = Counter(name.lower() for name in names)
    if twice := [name for name in names if counts[name.lower()] > 1]:
        raise SourceError(
            f"{where}: columns {', '.join(map(repr, twice))} have the same name, or differ in case only; rename them"
        )


def plain_column(name: str, type_: DuckDBPyType) -> exp.Expr:
    """A column whose equality is what a reader sees, and which carries no dictionary."""
    plain = plain_type(type_)
    if plain != str(type_):
        return cast(col(name), plain)
    return _normal(col(name), plain)


def fixed_column(name: str, type_: DuckDBPyType) -> exp.Expr:
    """The same, of the type that the column has now, whatever it gets later: what does not fit then is NULL."""
    plain = plain_type(type_)
    return _normal(exp.TryCast(this=col(name), to=native_type(plain)), plain)


def _normal(column: exp.Expr, plain: str) -> exp.Expr:
    if plain == "VARCHAR":
        return exp.Collate(this=column, expression=ident("binary"))
    if plain in ("FLOAT", "DOUBLE"):
        return cast(exp.Add(this=column, expression=exp.Literal.number(0)), plain)  # -0.0 becomes 0.0
    if plain == "INTERVAL":
        return exp.Anonymous(this="normalized_interval", expressions=[column])  # 30 days become 1 month
    return column


def plain_type(type_: DuckDBPyType) -> str:
    """The spelling of a type with VARCHAR for every ENUM in it."""
    if type_.id == "enum":
        return "VARCHAR"
    if type_.id == "null":
        return "INTEGER"
    if type_.id in ("list", "array", "struct", "map", "union") and "ENUM(" in str(type_):
        return _plain_nested(type_)
    return str(type_)


def _plain_nested(type_: DuckDBPyType) -> str:
    children: dict[str, Any] = dict(type_.children)
    if type_.id == "list":
        return f"{plain_type(children['child'])}[]"
    if type_.id == "array":
        return f"{plain_type(children['child'])}[{children['size']}]"
    if type_.id == "map":
        return f"MAP({plain_type(children['key'])}, {plain_type(children['value'])})"
    children.pop("", None)  # the tag of a UNION
    fields = [f"{ident(name).sql('duckdb')} {plain_type(child)}" for name, child in children.items()]
    return f"{type_.id.upper()}({', '.join(fields)})"
