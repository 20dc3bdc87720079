"""Translate queries and values between DuckDB and an engine that holds the source: one description per dialect."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import ClassVar, TypeVar

from sqlglot import exp

from sqlanon.engines import travel
from sqlanon.engines.dialects.translation import translate_query
from sqlanon.engines.values import person_id
from sqlanon.support.expressions import aliased, as_column, cast, col, fragment, full_name, select, table, template

Statement = TypeVar("Statement", bound=exp.Expr)


class RemoteDialect:
    """DuckDB's own dialect; subclasses define how engines with separate tables differ."""

    name: ClassVar[str] = "duckdb"
    text: ClassVar[str] = "VARCHAR"
    """The type of texts."""
    types: ClassVar[Mapping[str, str]] = {}
    """DuckDB types by its types. DuckDB itself has none: they are the same."""
    wider_types: ClassVar[Mapping[str, str]] = {}
    """Its types for DuckDB types without an equal, whose values come back with another type."""
    decimal: ClassVar[str] = "decimal"
    text_types: ClassVar[str] = ""
    """A pattern of all types whose values are texts."""
    direct_types: ClassVar[frozenset[str]] = travel.DIRECT_TYPES | {
        "DATE", "TIMESTAMP", "TIMESTAMP WITH TIME ZONE", "HUGEINT"
    }  # fmt: skip
    """DuckDB types that are transferred without a cast to text."""

    def to_duckdb_type(self, type_: str) -> str | None:
        """DuckDB's type for a type of this engine; None without an equal."""
        if not self.types:
            return type_
        if match := re.fullmatch(rf"{self.decimal}\((\d+),(\d+)\)", type_):
            width, scale = int(match[1]), int(match[2])
            return f"DECIMAL({width},{scale})" if scale <= width <= 38 else None
        return "VARCHAR" if re.fullmatch(self.text_types, type_) else self.types.get(re.sub(r"\(\d+\)", "", type_))

    def from_duckdb_type(self, type_: str) -> str | None:
        """The type that holds the values of a DuckDB type; None without one."""
        if not self.types:
            return type_
        if re.fullmatch(r"DECIMAL\(\d+,\d+\)", type_):
            return type_.replace("DECIMAL", self.decimal)
        same = next((name for name, duckdb_type in self.types.items() if duckdb_type == type_), None)
        return same or self.wider_types.get(type_)

    def canonical_column(self, name: str, type_: str) -> exp.Expr:
        """A column in canonical form: values are equal if readers see them as equal."""
        return col(name)

    def person_id_column(self, name: str, type_: str) -> exp.Expr:
        """The person ids in a column, compared with the engine's own equality."""
        return person_id(col(name)) if self.to_duckdb_type(type_) == "VARCHAR" else col(name)

    def count_invalid_texts(self, name: str) -> exp.Expr | None:
        """The number of values of a text column that are not UTF-8; None if the engine has no such values."""
        return None

    def encode_columns(self, query: exp.Query, types: Mapping[str, str], as_text: str = "VARCHAR") -> exp.Select:
        """Cast columns for the transfer to the other engine; `decode_columns` or `decode_uploaded` reverse it."""
        return travel.encode_columns(query, types, as_text, self.direct_types)

    def decode_columns(self, relation: exp.Expr, types: Mapping[str, str]) -> exp.Select:
        """Restore the types of transferred columns in DuckDB."""
        return travel.decode_columns(relation, types, self.direct_types)

    def decode_uploaded(self, relation: exp.Expr, types: Mapping[str, str]) -> exp.Select:
        """Restore the types of transferred columns in the remote engine."""
        return select([as_column(self._decode_column(name, type_), name) for name, type_ in types.items()], relation)

    def _decode_column(self, name: str, duckdb_type: str) -> exp.Expr:
        return col(name) if duckdb_type in self.direct_types else cast(col(name), self._stored_type(duckdb_type))

    def _stored_type(self, duckdb_type: str) -> str:
        if (type_ := self.from_duckdb_type(duckdb_type)) is None:
            raise ValueError(f"{duckdb_type} has no equal in {self.name}")
        return type_

    def escape_variables(self, statement: exp.Expr) -> exp.Expr:
        """Escape the parts of texts that the engine would replace by variables."""
        return statement

    def translate(self, query: Statement, relations: Mapping[str, exp.Expr]) -> Statement:
        """Translate a statement built for DuckDB, with relations in place of the tables of these full names."""
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
        assert isinstance(translation, type(query))
        return translation

    def render(self, query: exp.Query, relations: Mapping[str, exp.Expr]) -> str:
        return self.escape_variables(self.translate(query, relations)).sql(self.name, pretty=True)


DUCKDB = RemoteDialect()


def shadow_query(types: Mapping[str, str]) -> exp.Select:
    """A relation with these columns that DuckDB can bind; reading it raises an error.

    A constant condition would be folded before rows are read, and NULLs would pass for an empty table.
    """
    refusal = fragment("error('the rows of the source are elsewhere, and are not read here' || CAST(r.i AS VARCHAR))")
    return template("SELECT :columns FROM range(1, 2) AS r(i) WHERE :refused")(
        columns=[as_column(cast(refusal(), type_), name) for name, type_ in types.items()],
        refused=cast(refusal(), "BOOLEAN"),
    )


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
