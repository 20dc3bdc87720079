"""Recode and suppress: the one statement that makes a release from the source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from sqlglot import exp

from sqlanon.frequency.sets import ClassSpace
from sqlanon.requirements.base import CLASS_COUNT, CLASS_SIZE
from sqlanon.strategies.lattice.classes import KEPT, judged_classes
from sqlanon.strategies.recoding import MASKED, order_by_class
from sqlanon.support.coding import KNOWN, SOURCE_ALIAS, CodedAttribute, Column, Levels, code_column, levels_below_top
from sqlanon.support.expressions import (
    aliased,
    all_of,
    as_column,
    cast,
    col,
    filter_where,
    is_not_null,
    null_safe_equal,
    number,
    select,
    subquery,
    text,
    union_all,
)


@dataclass(frozen=True)
class FullDomainRecoding:
    """How a release is made from the source, by one generalization of all rows.

    It reads the source once. What is sorted are codes, small integers, and the columns that are released as they are;
    the labels are looked up behind the sort. Rows have ``code_i`` for each attribute ``i`` below its top, ``value_j``
    for each other column ``j`` that varies, and with a mask ``masked``.
    """

    source: exp.Table
    columns: tuple[Column, ...]
    attributes: tuple[CodedAttribute, ...]
    tops: tuple[str | None, ...]  # the labels of their top levels
    levels: Levels
    suppressed: exp.Table | None = None  # the suppressed classes, made by `suppressed_classes`
    mask: bool = False  # suppressed rows stay, with every quasi-identifier at its top

    def released_type(self, column: Column, own: str) -> str:
        """Level 0 keeps its type; any label, an open end, or a mask, makes the column VARCHAR."""
        if column.quasi is None:
            return own
        labelled = self.levels[column.quasi] >= self.attributes[column.quasi].lowest_labelled
        return "VARCHAR" if labelled or self.mask else own

    def with_column(self, column: Column) -> FullDomainRecoding:
        return replace(self, columns=(*self.columns, column))

    def with_source(self, source: exp.Table) -> FullDomainRecoding:
        """The same, of other rows of the source."""
        return replace(self, source=source)

    @property
    def codes_identify_labels(self) -> bool:
        """Not with a mask: a masked row keeps its codes, and a label may read like the mask."""
        return not self.mask

    def class_keys(self) -> dict[int, str]:
        return {i: f"code_{i}" for i, _ in _coded(self)}

    def rows(self) -> exp.Select:
        output = [as_column(col(f"code_{level}", f"h{i}"), f"code_{i}") for i, level in _coded(self)]
        output += [as_column(col(self.columns[j].name, SOURCE_ALIAS), f"value_{j}") for j in unchanged_columns(self)]
        if self.mask:
            output.append(as_column(_masked(self), MASKED))
        # Where all is at the top, the rows still have to be counted.
        return _kept_rows(self).select(*(output or [as_column(exp.true(), KNOWN)]), copy=False)

    def with_labels(self, rows: exp.Expr) -> exp.Select:
        query = exp.Select().from_(aliased(rows, "r"))
        for i, level in _coded(self):
            on = col(f"code_{i}", "r").eq(col("code", f"l{i}"))
            query = query.join(subquery(_labels(self.attributes[i], level, self.mask), f"l{i}"), on=on, copy=False)
        output = [as_column(_value(self, j), column.name) for j, column in enumerate(self.columns)]
        return query.select(*output, copy=False)

    def select(self, shuffled: bool = True) -> exp.Select:
        if shuffled:
            return order_by_class(self, self.rows())
        output = [as_column(_value_of_row(self, j), column.name) for j, column in enumerate(self.columns)]
        return _kept_rows(self).select(*output, copy=False)

    def label_counts(self) -> exp.Select:
        below = dict(_coded(self))
        counts = [_count_of(i) if i in below else number(1) for i in range(len(self.attributes))]
        return self._of_labels(counts, below)

    def fully_suppressed(self) -> exp.Select:
        between = {i: level for i, level in _coded(self) if level >= self.attributes[i].lowest_labelled}
        flags = [_count_of(i) <= 1 if i in between else exp.convert(level > 0) for i, level in enumerate(self.levels)]
        return self._of_labels(flags, between)

    def _of_labels(self, figures: list[exp.Expr], counted: Mapping[int, int]) -> exp.Select:
        """One row of figures of the labels of some attributes at their levels. (A subquery for each attribute takes
        four times as long to plan.)"""
        labels = [
            select([as_column(number(i), "i")], subquery(_labels(self.attributes[i], level), "l"))
            for i, level in counted.items()
        ]
        return select(figures, subquery(union_all(*labels), "labels")) if labels else exp.Select(expressions=figures)


def _count_of(attribute: int) -> exp.Filter:
    return filter_where(exp.Count(this=exp.Star()), col("i").eq(number(attribute)))


def suppressed_classes(space: ClassSpace, levels: Levels) -> exp.Select:
    """The classes that are not kept: for each attribute ``i`` below its top its code ``code_i``; and ``known``."""
    codes: list[exp.Expr] = [as_column(col(code_column(i, level)), f"code_{i}") for i, level in space.below_top(levels)]
    output: list[exp.Expr] = [col(f"code_{i}") for i, _ in space.below_top(levels)]
    known = col(KNOWN) if space.unknown else exp.true()
    query = select([*output, as_column(known, KNOWN)], subquery(judged_classes(space, levels, codes), "f"))
    return query.where(~col(KEPT), col(CLASS_SIZE) > 0, copy=False)


def masked_class(suppressed: ClassSpace) -> exp.Select:
    """One row: the size of the class that all masked rows make together, its count, and whether it is kept.

    Where every attribute is at its top, the kept rows read the same: the whole table is that class. A masked class
    matches all of the population, of which each kept class matches a part: what asks for that is met.
    """
    columns: list[exp.Expr] = [col(CLASS_SIZE), col(CLASS_COUNT), col(KEPT)]
    return select(columns, subquery(judged_classes(suppressed, suppressed.heights), "c"))


def _kept_rows(recoding: FullDomainRecoding) -> exp.Select:
    """The rows of the source that are released, as ``s``, beside the coded values ``h0``, ``h1`` .. of each."""
    query, coded = exp.Select().from_(aliased(recoding.source, SOURCE_ALIAS)), _coded(recoding)
    for i, attribute in enumerate(recoding.attributes):
        if attribute.unknown or (i, recoding.levels[i]) in coded:
            on = null_safe_equal(col(attribute.column, SOURCE_ALIAS), col("value", f"h{i}"), attribute.nullable)
            query = query.join(aliased(attribute.table, f"h{i}"), on=on, copy=False)
    known = _known(recoding)
    if recoding.suppressed is not None:
        keys = [col(f"code_{level}", f"h{i}").eq(col(f"code_{i}", "x")) for i, level in coded]
        if known:
            # A class with an unknown value may read like a kept one: where that attribute is at its top.
            keys.append(exp.Paren(this=all_of(known)).eq(col(KNOWN, "x")))
        kind = "left" if recoding.mask else "anti"
        query = query.join(aliased(recoding.suppressed, "x"), on=all_of(keys), join_type=kind, copy=False)
    if known and not recoding.mask:
        query = query.where(all_of(one.copy() for one in known), copy=False)
    return query


def _known(recoding: FullDomainRecoding) -> list[exp.Expr]:
    return [col(KNOWN, f"h{i}") for i, attribute in enumerate(recoding.attributes) if attribute.unknown]


def _masked(recoding: FullDomainRecoding) -> exp.Expr:
    """Whether a row is masked."""
    masked: list[exp.Expr] = [(~one) for one in _known(recoding)]
    if recoding.suppressed is not None:
        masked.append(is_not_null(col(KNOWN, "x")))
    return exp.or_(*masked, copy=False)


def _label(attribute: CodedAttribute, level: int, as_text: bool, relation: str | None = None) -> exp.Expr:
    """The label of a level beside a coded value; a value too as text, where that is asked for."""
    if level >= attribute.lowest_labelled:
        return col(f"label_{level}", relation)
    if as_text and attribute.texts is not None:
        return col(attribute.texts, relation)
    return cast(col("value", relation), "VARCHAR") if as_text else col("value", relation)


def _labels(attribute: CodedAttribute, level: int, as_text: bool = False) -> exp.Select:
    """The labels of a level by their codes: ``code`` and ``label``."""
    label = _label(attribute, level, as_text)
    query = select([as_column(col(f"code_{level}"), "code"), as_column(label, "label")], attribute.table.copy())
    return query if level < attribute.lowest_labelled else query.distinct(copy=False)


def _coded(recoding: FullDomainRecoding) -> list[tuple[int, int]]:
    """Attribute and level where a generalization leaves more than one value."""
    return levels_below_top(recoding.levels, [attribute.height for attribute in recoding.attributes])


def unchanged_columns(recoding: FullDomainRecoding) -> list[int]:
    """The columns that are released as the source has them: without a hierarchy, or with one of a single level."""
    return [
        j
        for j, column in enumerate(recoding.columns)
        if column.quasi is None or recoding.attributes[column.quasi].height == 0
    ]


def _value(recoding: FullDomainRecoding, j: int) -> exp.Expr:
    """Column ``j`` of the release, of rows behind their sort."""
    quasi = recoding.columns[j].quasi
    return _shown(recoding, j, col(f"value_{j}", "r"), col("label", f"l{quasi}"), col(MASKED, "r"))


def _value_of_row(recoding: FullDomainRecoding, j: int) -> exp.Expr:
    """Column ``j`` of the release, of `_kept_rows`."""
    own, i = col(recoding.columns[j].name, SOURCE_ALIAS), recoding.columns[j].quasi
    if i is None:
        return own
    label = _label(recoding.attributes[i], recoding.levels[i], recoding.mask, f"h{i}")
    return _shown(recoding, j, own, label, _masked(recoding) if recoding.mask else exp.false())


def _shown(recoding: FullDomainRecoding, j: int, own: exp.Expr, label: exp.Expr, masked: exp.Expr) -> exp.Expr:
    quasi = recoding.columns[j].quasi
    if quasi is None:
        return own
    attribute, level, top = recoding.attributes[quasi], recoding.levels[quasi], recoding.tops[quasi]
    if level == attribute.height and level > 0:
        return text(top or "")
    value = label if level < attribute.height else own
    if not recoding.mask or top is None:
        return value
    return exp.Case(ifs=[exp.If(this=masked, true=text(top))], default=value)
