"""Calls of the macro library on relations that are named by text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp

from sqlanon.support.expressions import anonymous, col, ident, number, select, text


@dataclass(frozen=True)
class Macro:
    """A macro that returns one row of figures for a relation, with the names of its columns."""

    name: str
    columns: tuple[str, ...]


def call_macro(
    name: str, relation: str, *arguments: str | Sequence[str], catalog: str | None = None, **options: str | int
) -> exp.Select:
    """``SELECT * FROM sqlanon.name(relation, arguments, option := value)``.

    >>> call_macro("l_diversity", "patients", ["zip"], "diagnosis", l=3).sql("duckdb")
    'SELECT * FROM "sqlanon".L_DIVERSITY(\\'patients\\', [\\'zip\\'], \\'diagnosis\\', "l" := 3)'
    """
    literals: list[exp.Expr] = [text(relation)]
    for argument in arguments:
        if isinstance(argument, str):
            literals.append(text(argument))
        else:
            literals.append(exp.Array(expressions=[text(name) for name in argument]))
    for option, value in options.items():
        literal = text(value) if isinstance(value, str) else number(value)
        literals.append(exp.PropertyEQ(this=ident(option), expression=literal))
    call = exp.Table(this=anonymous(name, *literals), db=ident("sqlanon"), catalog=ident(catalog) if catalog else None)
    return select([exp.Star()], call)


def call_k_anonymity(relation: str, quasi: Sequence[str], catalog: str | None = None) -> exp.Select:
    """One row: k, classes, rows, uniques."""
    return call_macro("k_anonymity", relation, quasi, catalog=catalog)


def call_digest(relation: str, catalog: str | None = None) -> exp.Select:
    """One row: rows, digest."""
    return call_macro("digest", relation, catalog=catalog)


def count_class_sizes(relation: str, quasi: Sequence[str], person: str | None, catalog: str | None) -> exp.Select:
    """The number of classes of each size, in rows or persons."""
    if person is None:
        classes = call_macro("equivalence_classes", relation, quasi, catalog=catalog)
    else:
        classes = call_macro("person_k_anonymity_classes", relation, quasi, person, catalog=catalog)
    source = exp.Subquery(this=classes, alias=exp.TableAlias(this=ident("c")))
    return select([col("class_size"), exp.Count(this=exp.Star())], source, [col("class_size")])
