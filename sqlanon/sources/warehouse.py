"""What a warehouse is asked: its frequency set, and the release.

Names of tables are the warehouse's own. Queries are built for DuckDB; `engines.dialects.translation` translates them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from sqlglot import exp

from sqlanon.coding import SOURCE
from sqlanon.engines.values import one_float, one_form
from sqlanon.errors import UntranslatableError
from sqlanon.expressions import (
    anonymous,
    cast,
    col,
    create_table,
    named,
    number,
    select,
    subquery,
    text,
    total,
    where,
)

COUNT = "n"
"""The column of a frequency set that counts; where an attribute has that name, with a line below."""

TEXTS = "label_0"
"""The column of an uploaded table that has its values as text."""

_VARIABLE = r"(?<=\$)(?=\{)"
_JINJA = r"(?<=\{)(?=[{%#])"
_SPLITS = {
    "databricks": re.compile(rf"{_JINJA}|(?<=\$)(?=[\w{{])"),
    "snowflake": re.compile(rf"{_VARIABLE}|{_JINJA}|(?<=<)(?=%)|(?<=&)(?=[\w{{])"),
}
_SPLIT = re.compile(f"{_VARIABLE}|{_JINJA}")
"""Places inside what engines and their tools replace in the text of a statement, in quotes and comments too: ``${x}``
(Spark, Databricks), ``{{ x }}``, ``{% x %}`` and ``{# x #}`` (dbt), ``<% x %>`` and ``&x`` (Snowflake's clients)."""

_IS_NAN: Mapping[str, str] = {"spark": "isnan", "databricks": "isnan", "trino": "is_nan", "bigquery": "IS_NAN"}
"""Where NaN does not equal itself, or may not: the function that knows it."""

_FLOATS: Mapping[str, Mapping[str, str]] = {
    "bigquery": {"FLOAT": "FLOAT64", "DOUBLE": "FLOAT64"},
    "postgres": {"FLOAT": "real", "DOUBLE": "double precision"},
    "snowflake": {"FLOAT": "DOUBLE", "DOUBLE": "DOUBLE"},
    "trino": {"FLOAT": "REAL", "DOUBLE": "DOUBLE"},
}
"""By dialect, its names of DuckDB's floating-point types, where they are others."""

_SUBSTITUTING = ("spark", "databricks")
"""Engines that replace ``${x}`` by themselves, in names too."""


def frequency_set(source: exp.Table, columns: Sequence[str], count: str) -> exp.Select:
    """The distinct combinations of columns, with how many rows have each.

    >>> from sqlanon.expressions import table
    >>> frequency_set(table("patients"), ["zip", "age"], "n").sql("duckdb")
    'SELECT "zip" AS "zip", "age" AS "age", COUNT(*) AS "n" FROM "patients" GROUP BY "zip", "age"'
    """
    values: list[exp.Expr] = [named(col(name), name) for name in columns]
    return select([*values, named(exp.Count(this=exp.Star()), count)], source, [col(name) for name in columns])


def with_own_query(statement: exp.Expr, stand_in: str, query: str) -> exp.Expr:
    """A statement with the holder's own query, as it stands, in place of a table; a comment may end it."""
    for found in list(statement.find_all(exp.Table)):
        if found.name == stand_in:
            found.set("this", exp.Var(this=f"({query.strip().rstrip(';')}\n)"))
    return statement


def with_one_form(statement: exp.Expr, dialect: str, floats: Mapping[str, str]) -> exp.Expr:
    """A translated statement that reads floating-point numbers of the source in one form: one NaN, and no -0.0.

    >>> query = select([named(col("x", "s"), "value_0")], exp.to_table("t", alias="s"))
    >>> print(with_one_form(query, "trino", {"x": "DOUBLE"}).sql("trino", pretty=True))
    SELECT
      CASE
        WHEN IS_NAN("s"."x")
        THEN CAST('NaN' AS DOUBLE)
        ELSE CAST("s"."x" + 0 AS DOUBLE)
      END AS "value_0"
    FROM t AS s
    """
    for found in list(statement.find_all(exp.Alias)):
        value = found.this
        if isinstance(value, exp.Column) and value.table == SOURCE and value.name in floats:
            found.set("this", _one_form(value, dialect, floats[value.name]))
    return statement


def _one_form(value: exp.Column, dialect: str, type_: str) -> exp.Expr:
    if dialect == "duckdb":
        return one_form(value, type_)
    own = _FLOATS.get(dialect, {}).get(type_, type_)
    if name := _IS_NAN.get(dialect):
        return one_float(value, own, anonymous(name, value))
    return one_float(value, own, exp.EQ(this=value, expression=cast(text("NaN"), own)))


def without_variables(statement: exp.Expr, dialect: str) -> exp.Expr:
    """A statement in whose text nothing is taken for a variable: literals that look like one are put together of parts.

    >>> without_variables(text("${env:HOME}"), "spark").sql("spark")
    "('$' || '{env:HOME}')"
    """
    if dialect in _SUBSTITUTING:
        for found in statement.find_all(exp.Identifier):
            if re.search(_VARIABLE, found.name):
                raise UntranslatableError(
                    f"the name {found.name!r} cannot be put in the dialect of {dialect}, which replaces variables: "
                    "make a view with another name"
                )

    def parted(node: exp.Expr) -> exp.Expr:
        if not (isinstance(node, exp.Literal) and node.is_string):
            return node
        first, *others = map(text, _SPLITS.get(dialect, _SPLIT).split(node.name))
        together: exp.Expr = first
        for part in others:
            together = exp.DPipe(this=together, expression=part)
        return exp.Paren(this=together) if others else node

    return statement.transform(parted)


def comment_without_variables(comment: str, dialect: str) -> str:
    """A comment in which nothing is taken for a variable.

    >>> comment_without_variables("classes of ${env:HOME} and {{ x }}", "spark")
    'classes of $ {env:HOME} and { { x }}'
    """
    return _SPLITS.get(dialect, _SPLIT).sub(" ", comment)


def count_facts(relation: exp.Table, count: str) -> exp.Select:
    """One row on what should be counts: how many rows have none, one below 1, one that is not whole, one too large;
    and the sum of the rest."""
    value = col(count)
    few = exp.LT(this=value, expression=number(1))
    large = exp.GTE(this=value.copy(), expression=number(2**53))  # NaN is the greatest number
    fractional = exp.And(
        this=exp.Not(this=exp.Paren(this=large.copy())),
        expression=exp.NEQ(this=exp.Floor(this=value.copy()), expression=value.copy()),
    )
    wrong = [exp.Is(this=value.copy(), expression=exp.null()), few, fractional, large]
    figures: list[exp.Expr] = [where(exp.Count(this=exp.Star()), one) for one in wrong]
    fine = exp.Not(this=exp.Paren(this=large.copy()))
    sum_ = where(exp.Sum(this=cast(value.copy(), "DOUBLE")), fine)
    return select([*figures, exp.Coalesce(this=sum_, expressions=[number(0.0)])], relation.copy())


def added_up(relation: exp.Table, columns: Sequence[str], count: str) -> exp.Select:
    """Each combination once: what is written in several files may have one several times."""
    keys: list[exp.Expr] = [col(name) for name in columns]
    return select([*keys, named(total(col(count)), count)], relation.copy(), [key.copy() for key in keys])


def create_release(target: exp.Table, rows: exp.Select) -> exp.Create:
    """``CREATE TABLE target AS``, in random order: else rows could be matched to the source by their position.

    It is the outermost query that is sorted: warehouses do not keep the order of an inner one.
    """
    released = select([col(name) for name in rows.named_selects], subquery(rows, "released"))
    return create_table(target, released.order_by(exp.Rand(), copy=False))


def written(query: exp.Query, path: str) -> exp.Copy:
    """``COPY (query) TO path``: as Parquet, by DuckDB."""
    parquet = exp.CopyParameter(this=exp.Var(this="FORMAT"), expression=exp.Var(this="PARQUET"))
    return exp.Copy(this=exp.Subquery(this=query), kind=False, files=[text(path)], params=[parquet])


def uploaded(relation: exp.Table, columns: Sequence[str]) -> exp.Select:
    """What a warehouse gets of a table of ours: codes, which are the smallest integers here, as integers that all have;
    values as text, which each would write in its own way, as we do."""
    values: dict[str, exp.Expr] = {
        name: cast(col("value"), "VARCHAR")
        if name == TEXTS
        else cast(col(name), "INTEGER")
        if name.startswith("code_")
        else col(name)
        for name in columns
    }
    return select([named(value, name) for name, value in values.items()], relation.copy())
