"""Keep texts and comments of statements from being read as variables, by engines or by the tools in front of them."""

from __future__ import annotations

import re

from sqlglot import exp

from sqlanon.errors import UntranslatableError
from sqlanon.support.expressions import text

_VARIABLE = r"(?<=\$)(?=\{)"
_JINJA = r"(?<=\{)(?=[{%#])"
_BREAK = re.compile(f"{_VARIABLE}|{_JINJA}")
_BREAKS = {
    "databricks": re.compile(rf"{_JINJA}|(?<=\$)(?=[\w{{])"),
    "snowflake": re.compile(rf"{_VARIABLE}|{_JINJA}|(?<=<)(?=%)|(?<=&)(?=[\w{{])"),
}
"""Positions inside variables, which are replaced in quotes and comments as well: ``${x}`` (Spark, Databricks),
``{{ x }}``, ``{% x %}`` and ``{# x #}`` (dbt), ``<% x %>`` and ``&x`` (Snowflake's clients)."""


def without_variables(statement: exp.Expr, dialect: str) -> exp.Expr:
    """A statement in which string literals that look like variables are concatenated from parts.

    >>> without_variables(text("${env:HOME}"), "spark").sql("spark")
    "('$' || '{env:HOME}')"
    """
    if dialect in ("spark", "databricks"):  # these replace variables in names, too
        for identifier in statement.find_all(exp.Identifier):
            if re.search(_VARIABLE, identifier.name):
                raise UntranslatableError(
                    f"the name {identifier.name!r} cannot be translated to {dialect}, which replaces variables: "
                    "make a view with another name"
                )

    def split(node: exp.Expr) -> exp.Expr:
        if not (isinstance(node, exp.Literal) and node.is_string):
            return node
        first, *parts = map(text, _BREAKS.get(dialect, _BREAK).split(node.name))
        whole: exp.Expr = first
        for part in parts:
            whole = exp.DPipe(this=whole, expression=part)
        return exp.Paren(this=whole) if parts else node

    return statement.transform(split)


def comment_without_variables(comment: str, dialect: str) -> str:
    """A comment in which variables are broken by spaces.

    >>> comment_without_variables("classes of ${env:HOME} and {{ x }}", "spark")
    'classes of $ {env:HOME} and { { x }}'
    """
    return _BREAKS.get(dialect, _BREAK).sub(" ", comment)
