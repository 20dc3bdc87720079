"""The audit's queries: calls of the macro library, on a relation that is named by text."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from sqlanon.queries.names import ident, select, text


def k_anonymity_of(relation: str, quasi: Sequence[str], catalog: str | None = None) -> exp.Select:
    """``FROM sqlanon.k_anonymity(relation, quasi)``: one row of k, classes, rows, uniques.

    >>> k_anonymity_of("patients", ["zip"]).sql("duckdb")
    'SELECT * FROM "sqlanon".K_ANONYMITY(\\'patients\\', [\\'zip\\'])'
    """
    names = exp.Array(expressions=[text(name) for name in quasi])
    return _from_macro(catalog, "k_anonymity", text(relation), names)


def digest_of(relation: str, catalog: str | None = None) -> exp.Select:
    """``FROM sqlanon.digest(relation)``: one row of rows, digest."""
    return _from_macro(catalog, "digest", text(relation))


def _from_macro(catalog: str | None, name: str, *arguments: exp.Expr) -> exp.Select:
    call = exp.Table(
        this=exp.Anonymous(this=name, expressions=list(arguments)),
        db=ident("sqlanon"),
        catalog=ident(catalog) if catalog else None,
    )
    return select([exp.Star()], call)
