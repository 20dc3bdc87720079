"""Text of statements in which nothing is taken for a variable, by engines or by the tools in front of them."""

from __future__ import annotations

import re

from sqlglot import exp

from sqlanon.errors import UntranslatableError
from sqlanon.support.expressions import text

_VARIABLE = r"(?<=\$)(?=\{)"
_JINJA = r"(?<=\{)(?=[{%#])"
_SPLITS = {
    "databricks": re.compile(rf"{_JINJA}|(?<=\$)(?=[\w{{])"),
    "snowflake": re.compile(rf"{_VARIABLE}|{_JINJA}|(?<=<)(?=%)|(?<=&)(?=[\w{{])"),
}
_SPLIT = re.compile(f"{_VARIABLE}|{_JINJA}")
"""Places inside what engines and their tools replace in the text of a statement, in quotes and comments too: ``${x}``
(Spark, Databricks), ``{{ x }}``, ``{% x %}`` and ``{# x #}`` (dbt), ``<% x %>`` and ``&x`` (Snowflake's clients)."""

_SUBSTITUTING = ("spark", "databricks")
"""Engines that replace ``${x}`` by themselves, in names too."""


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
