"""Recode and suppress: the one statement that makes a release from the source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from sqlanon.privacy.base import CLASS_COUNT, CLASS_SIZE
from sqlanon.privacy.presence import KMap
from sqlanon.queries.classes import KEPT, ClassSpace, Levels, judged
from sqlanon.queries.coding import KNOWN, Coded, code_name
from sqlanon.queries.names import (
    aliased,
    all_of,
    anonymous,
    cast,
    col,
    ident,
    named,
    number,
    same,
    select,
    subquery,
    text,
)


@dataclass(frozen=True)
class Column:
    """A column of the release.

    Attributes
    ----------
    name:
        Its name in the source and in the release.
    quasi:
        Its number among the quasi-identifiers, or None.
    """

    name: str
    quasi: int | None = None


@dataclass(frozen=True)
class Recoding:
    """How a release is made from the source.

    Attributes
    ----------
    source, columns:
        The private table, and what is released of it.
    attributes, tops, levels:
        The quasi-identifiers with the labels of their top levels, and the generalization.
    suppressed:
        The suppressed classes, made by `suppressed_classes`; None where there are none.
    mask:
        Whether suppressed rows stay, with every quasi-identifier at its top.
    """

    source: exp.Table
    columns: tuple[Column, ...]
    attributes: tuple[Coded, ...]
    tops: tuple[str | None, ...]
    levels: Levels
    suppressed: exp.Table | None = None
    mask: bool = False


def suppressed_classes(space: ClassSpace, attributes: Sequence[Coded], levels: Levels) -> exp.Select:
    """The classes that are not kept.

    Makes for each attribute ``i`` below its top ``code_i``, and ``key_i``: what a row of the source is matched by,
    the value itself at level 0, else its code; and ``known``.
    """
    below = space.below_top(levels)
    codes: list[exp.Expr] = [named(col(code_name(i, level)), f"code_{i}") for i, level in below]
    failing = select([exp.Star()], subquery(judged(space, levels, codes), "f"))
    failing = failing.where(exp.Not(this=col(KEPT)), exp.GT(this=col(CLASS_SIZE), expression=number(0)), copy=False)
    output: list[exp.Expr] = [col(f"code_{i}", "x") for i, _ in below]
    query = exp.Select().from_(subquery(failing, "x"))
    for i, level in below:
        key = col(f"code_{i}", "x")
        if level == 0:
            key = col("value", f"v{i}")
            on = exp.EQ(this=col("code_0", f"v{i}"), expression=col(f"code_{i}", "x"))
            query = query.join(aliased(attributes[i].table, f"v{i}"), on=on, copy=False)
        output.append(named(key, f"key_{i}"))
    known = col(KNOWN, "x") if space.unknown else exp.true()
    return query.select(*output, named(known, KNOWN), copy=False)


def masked_class(space: ClassSpace, suppressed: exp.Table, levels: Levels) -> exp.Select:
    """One row: the size of the class that all masked rows make together, its count, and whether it is kept.

    Where every attribute is at its top, the kept rows read the same: the whole table is that class. A masked class
    matches all of the population, of which each kept class matches a part: what asks for that is met.
    """
    requirements = space.requirements
    met = tuple(one for one in requirements.classes if not isinstance(one, KMap))
    masked = replace(
        space,
        frequency=_of_suppressed(space, space.frequency, suppressed, levels),
        sensitive={
            distribution: replace(one, table=_of_suppressed(space, one.table, suppressed, levels))
            for distribution, one in space.sensitive.items()
        },
        requirements=replace(requirements, classes=met),
        # Masked, what was unknown reads like all else.
        unknown=False,
        population=False,
    )
    columns: list[exp.Expr] = [col(CLASS_SIZE), col(CLASS_COUNT), col(KEPT)]
    return select(columns, subquery(judged(masked, space.heights), "c"))


def _of_suppressed(space: ClassSpace, relation: exp.Expr, suppressed: exp.Table, levels: Levels) -> exp.Expr:
    """The part of the frequency set, or of a distribution, that is in suppressed classes."""
    below = space.below_top(levels)
    if not below:
        return relation
    keys = [exp.EQ(this=col(code_name(i, level), "f"), expression=col(f"code_{i}", "x")) for i, level in below]
    if space.unknown:
        keys.append(exp.EQ(this=col(KNOWN, "f"), expression=col(KNOWN, "x")))
    part = select([exp.Column(this=exp.Star(), table=ident("f"))], aliased(relation, "f"))
    return subquery(part.join(aliased(suppressed, "x"), on=all_of(keys), join_type="semi", copy=False), "f")


def recode(recoding: Recoding, shuffled: bool = True) -> exp.Select:
    """The statement that makes the release, rows in random order (unless not ``shuffled``, for checks).

    It reads the source once. Level 0 keeps its type; any label, or a mask, makes the attribute VARCHAR.
    """
    query = exp.Select().from_(aliased(recoding.source, "s"))
    for i, attribute in enumerate(recoding.attributes):
        if _needs_values(recoding, i):
            on = same(col(attribute.column, "s"), col("value", f"h{i}"), attribute.nullable)
            query = query.join(aliased(attribute.table, f"h{i}"), on=on, copy=False)
    unknown = _known(recoding)
    if recoding.suppressed is not None:
        kind = "left" if recoding.mask else "anti"
        query = query.join(aliased(recoding.suppressed, "x"), on=_matches(recoding), join_type=kind, copy=False)
    if recoding.mask:
        parts: list[exp.Expr] = [exp.Not(this=known) for known in unknown]
        if recoding.suppressed is not None:
            parts.append(exp.Not(this=exp.Is(this=col(KNOWN, "x"), expression=exp.null())))
        masked: exp.Expr | None = exp.or_(*parts, copy=False)
    else:
        masked = None
        if unknown:
            query = query.where(all_of(unknown), copy=False)
    output = [named(_value(recoding, column, masked), column.name) for column in recoding.columns]
    query = query.select(*output, copy=False)
    return query.order_by(anonymous("RANDOM"), copy=False) if shuffled else query


def _needs_values(recoding: Recoding, i: int) -> bool:
    """Whether the coded values of an attribute are needed: for its labels, codes, or to leave out unknown values."""
    attribute = recoding.attributes[i]
    return attribute.unknown or 0 < recoding.levels[i] < attribute.height


def _matches(recoding: Recoding) -> exp.Expr:
    """Whether a row is in a suppressed class."""
    keys = []
    for i, (attribute, level) in enumerate(zip(recoding.attributes, recoding.levels, strict=True)):
        if level == attribute.height:
            continue
        own = col(attribute.column, "s") if level == 0 else col(f"code_{level}", f"h{i}")
        keys.append(same(own, col(f"key_{i}", "x"), attribute.nullable and level == 0))
    if unknown := _known(recoding):
        # A class with an unknown value may read like a kept one: where that attribute is at its top.
        keys.append(exp.EQ(this=exp.Paren(this=all_of(unknown)), expression=col(KNOWN, "x")))
    return all_of(keys)


def _known(recoding: Recoding) -> list[exp.Expr]:
    """For each attribute with unknown values, whether a row's value is known."""
    return [col(KNOWN, f"h{i}") for i, attribute in enumerate(recoding.attributes) if attribute.unknown]


def _value(recoding: Recoding, column: Column, masked: exp.Expr | None) -> exp.Expr:
    if column.quasi is None:
        return col(column.name, "s")
    attribute, level = recoding.attributes[column.quasi], recoding.levels[column.quasi]
    top = recoding.tops[column.quasi]
    if level == attribute.height and level > 0:
        return text(top or "")
    value = col(column.name, "s") if level == 0 else col(f"label_{level}", f"h{column.quasi}")
    if masked is None or top is None:
        return value
    return exp.Case(ifs=[exp.If(this=masked.copy(), true=text(top))], default=cast(value, "VARCHAR"))
