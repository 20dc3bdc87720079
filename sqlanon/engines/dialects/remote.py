"""Translate queries and values between DuckDB and an engine that holds the source: one description per dialect."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from sqlglot import exp

from sqlanon.engines import travel
from sqlanon.engines.dialects.translation import translate_query
from sqlanon.engines.values import person_id
from sqlanon.support.expressions import (
    aliased,
    as_column,
    cast,
    col,
    fragment,
    full_name,
    select,
    subquery,
    table,
    template,
)

_SHADOW = template("SELECT :columns FROM range(1, 2) AS r(i) WHERE :refused")
_REFUSAL = fragment("error('the rows of the source are elsewhere, and are not read here' || CAST(r.i AS VARCHAR))")


@dataclass(frozen=True)
class RemoteDialect:
    """The dialect of an engine with tables of its own. The defaults are DuckDB's."""

    name: str
    text: str = "VARCHAR"  # the type of texts
    direct_types: frozenset[str] = travel.DIRECT_TYPES  # DuckDB types that are transferred without a cast to text
    # Types of one engine by those of the other; None without an equal
    to_duckdb_type: Callable[[str], str | None] = lambda type_: type_
    from_duckdb_type: Callable[[str], str | None] = lambda type_: type_
    # A column (name, type) in canonical form: equal values are equal to readers
    canonical_column: Callable[[str, str], exp.Expr] = lambda name, type_: col(name)
    # Person ids in a column (name, type), as the engine's own equality tells them apart
    person_id_column: Callable[[str, str], exp.Expr] = lambda name, type_: (
        person_id(col(name)) if type_ == "VARCHAR" else col(name)
    )
    escape_variables: Callable[[exp.Expr], exp.Expr] = lambda statement: statement
    # The number of values of a text column that are not UTF-8; None if the engine has no such values
    count_invalid_texts: Callable[[str], exp.Expr] | None = None

    def encode_columns(self, query: exp.Query, types: Mapping[str, str], as_text: str = "VARCHAR") -> exp.Select:
        """Cast columns for the transfer to the other engine; `decode_columns` or `decode_uploaded` reverse it."""
        return travel.encode_columns(query, types, as_text, self.direct_types)

    def decode_columns(self, relation: exp.Expr, types: Mapping[str, str]) -> exp.Select:
        """Restore the types of transferred columns in DuckDB."""
        return travel.decode_columns(relation, types, self.direct_types)

    def decode_uploaded(self, relation: exp.Expr, types: Mapping[str, str]) -> exp.Subquery:
        """Restore the types of transferred columns in the remote engine."""
        values = {
            name: col(name) if type_ in self.direct_types else cast(col(name), self._type(type_))
            for name, type_ in types.items()
        }
        return subquery(select([as_column(value, name) for name, value in values.items()], relation), "shipped")

    def _type(self, duckdb_type: str) -> str:
        type_ = self.from_duckdb_type(duckdb_type)
        if type_ is None:
            raise ValueError(f"{duckdb_type} has no equal in {self.name}")
        return type_

    def translate(self, query: exp.Query, relations: Mapping[str, exp.Expr]) -> exp.Query:
        """Translate a query built for DuckDB, with relations in place of the tables of these full names."""
        marks: dict[str, exp.Expr] = {}
        marked = query.copy()
        for old in list(marked.find_all(exp.Table)):
            if (relation := relations.get(full_name(old))) is not None:
                mark = f"sqlanon_mark_{len(marks)}"
                marks[mark] = aliased(relation, old.alias or old.name)
                old.replace(table(mark, alias=old.alias or old.name))
        translation = translate_query(marked, self.name)
        # Relations are in the remote dialect already: they replace their marks after the translation.
        for mark_table in list(translation.find_all(exp.Table)):
            if (relation := marks.get(mark_table.name)) is not None:
                mark_table.replace(relation)
        assert isinstance(translation, exp.Query)
        return translation

    def render(self, query: exp.Query, relations: Mapping[str, exp.Expr]) -> str:
        return self.escape_variables(self.translate(query, relations)).sql(self.name, pretty=True)


DUCKDB = RemoteDialect(
    "duckdb", direct_types=travel.DIRECT_TYPES | {"DATE", "TIMESTAMP", "TIMESTAMP WITH TIME ZONE", "HUGEINT"}
)


def shadow_query(types: Mapping[str, str]) -> exp.Select:
    """A relation with these columns that DuckDB can bind; reading it raises an error.

    A constant condition would be folded before rows are read, and NULLs would pass for an empty table.
    """
    columns = [as_column(cast(_REFUSAL(), type_), name) for name, type_ in types.items()]
    return _SHADOW(columns=columns, refused=cast(_REFUSAL(), "BOOLEAN"))


def has_star(query: exp.Query) -> bool:
    return any(not isinstance(star.parent, exp.Count) for star in query.find_all(exp.Star))


def name_columns(query: exp.Query) -> exp.Query:
    """The query with a name for each output column, since engines generate different ones.

    >>> from sqlglot import parse_one
    >>> name_columns(parse_one("SELECT a, COUNT(*), COUNT(*) AS n FROM t GROUP BY a")).sql()
    'SELECT a, COUNT(*) AS "c1", COUNT(*) AS n FROM t GROUP BY a'
    """
    query = query.copy()
    first: exp.Expr = query
    while not isinstance(first, exp.Select):
        first = first.this
    for i, column in enumerate(list(first.expressions)):
        if not isinstance(column, (exp.Alias, exp.Column, exp.Star)):
            column.replace(as_column(column.copy(), f"c{i}"))
    return query
