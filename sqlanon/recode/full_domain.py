"""The statement that generalizes, suppresses and masks rows of the source, by one generalization of all rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sqlglot import exp

from sqlanon.frequency.sets import ClassSpace
from sqlanon.requirements.base import CLASS_COUNT, CLASS_SIZE
from sqlanon.strategies.lattice.classes import KEPT, evaluated_classes
from sqlanon.strategies.recoding import MASKED, ClassRecoding
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
class FullDomainRecoding(ClassRecoding):
    """Makes a release from the source by one generalization of all rows.

    The statement reads the source once, sorts codes (small integers) and unchanged columns, and looks up labels after
    the sort. Rows have ``code_i`` for each attribute ``i`` below its top, ``value_j`` for each other column ``j`` that
    varies, and with a mask ``masked``.
    """

    attributes: tuple[CodedAttribute, ...]
    tops: tuple[str | None, ...]  # labels of the top levels
    levels: Levels
    suppressed: exp.Table | None = None  # the suppressed classes, made by `suppressed_classes`
    mask: bool = False  # suppressed rows stay, with every quasi-identifier at its top

    def recoded_type(self, column: Column, source_type: str) -> str:
        """Level 0 keeps the type of the source; labels, open ends and masks make the column VARCHAR."""
        if column.quasi is None:
            return source_type
        has_labels = self.levels[column.quasi] >= self.attributes[column.quasi].lowest_labelled
        return "VARCHAR" if has_labels or self.mask else source_type

    @property
    def codes_identify_labels(self) -> bool:
        """False with a mask: masked rows keep their codes, and a label may equal the mask."""
        return not self.mask

    def class_keys(self) -> dict[int, str]:
        return {i: f"code_{i}" for i, _ in _coded_levels(self)}

    def rows(self) -> exp.Select:
        output = [as_column(col(f"code_{level}", f"h{i}"), f"code_{i}") for i, level in _coded_levels(self)]
        output += [as_column(col(self.columns[j].name, SOURCE_ALIAS), f"value_{j}") for j in unchanged_columns(self)]
        if self.mask:
            output.append(as_column(_is_masked(self), MASKED))
        # Rows must be countable even if every attribute is at its top.
        return _kept_rows(self).select(*(output or [as_column(exp.true(), KNOWN)]), copy=False)

    def with_labels(self, rows: exp.Expr) -> exp.Select:
        query = exp.Select().from_(aliased(rows, "r"))
        for i, level in _coded_levels(self):
            on = col(f"code_{i}", "r").eq(col("code", f"l{i}"))
            query = query.join(subquery(_labels(self.attributes[i], level, self.mask), f"l{i}"), on=on, copy=False)
        output = [as_column(_value_of_sorted_row(self, j), column.name) for j, column in enumerate(self.columns)]
        return query.select(*output, copy=False)

    def select(self, shuffled: bool = True) -> exp.Select:
        if shuffled or self.drawn is not None:
            return super().select(shuffled)
        output = [as_column(_value_of_source_row(self, j), column.name) for j, column in enumerate(self.columns)]
        return _kept_rows(self).select(*output, copy=False)

    def label_counts(self) -> exp.Select:
        coded_levels = dict(_coded_levels(self))
        counts = [_count_labels(i) if i in coded_levels else number(1) for i in range(len(self.attributes))]
        return self._aggregate_labels(counts, coded_levels)

    def fully_suppressed(self) -> exp.Select:
        label_levels = {i: level for i, level in _coded_levels(self) if level >= self.attributes[i].lowest_labelled}
        flags = [
            _count_labels(i) <= 1 if i in label_levels else exp.convert(level > 0)
            for i, level in enumerate(self.levels)
        ]
        return self._aggregate_labels(flags, label_levels)

    def _aggregate_labels(self, aggregates: list[exp.Expr], levels: Mapping[int, int]) -> exp.Select:
        """One row of aggregates over the labels of attributes at the given levels.

        A subquery for each attribute would take four times as long to plan.
        """
        labels = [
            select([as_column(number(i), "i")], subquery(_labels(self.attributes[i], level), "l"))
            for i, level in levels.items()
        ]
        return (
            select(aggregates, subquery(union_all(*labels), "labels")) if labels else exp.Select(expressions=aggregates)
        )


def _count_labels(attribute: int) -> exp.Filter:
    return filter_where(exp.Count(this=exp.Star()), col("i").eq(number(attribute)))


def suppressed_classes(space: ClassSpace, levels: Levels) -> exp.Select:
    """The suppressed classes: ``code_i`` for each attribute ``i`` below its top, and ``known``."""
    codes: list[exp.Expr] = [as_column(col(code_column(i, level)), f"code_{i}") for i, level in space.below_top(levels)]
    output: list[exp.Expr] = [col(f"code_{i}") for i, _ in space.below_top(levels)]
    known = col(KNOWN) if space.unknown else exp.true()
    query = select([*output, as_column(known, KNOWN)], subquery(evaluated_classes(space, levels, codes), "f"))
    return query.where(~col(KEPT), col(CLASS_SIZE) > 0, copy=False)


def masked_class(suppressed: ClassSpace) -> exp.Select:
    """One row: the size and the count of the class of all masked rows, and whether it is kept.

    If every attribute is at its top, kept rows have the same labels, and the class is the whole table. A masked class
    matches the whole population, so population requirements hold.
    """
    columns: list[exp.Expr] = [col(CLASS_SIZE), col(CLASS_COUNT), col(KEPT)]
    return select(columns, subquery(evaluated_classes(suppressed, suppressed.heights), "c"))


def _kept_rows(recoding: FullDomainRecoding) -> exp.Select:
    """The released rows of the source as ``s``, joined to the coded values ``h0``, ``h1``, ... of their attributes."""
    query, coded_levels = exp.Select().from_(aliased(recoding.source, SOURCE_ALIAS)), _coded_levels(recoding)
    for i, attribute in enumerate(recoding.attributes):
        if attribute.unknown or (i, recoding.levels[i]) in coded_levels:
            on = null_safe_equal(col(attribute.column, SOURCE_ALIAS), col("value", f"h{i}"), attribute.nullable)
            query = query.join(aliased(attribute.table, f"h{i}"), on=on, copy=False)
    known_flags = _known_flags(recoding)
    if recoding.suppressed is not None:
        keys = [col(f"code_{level}", f"h{i}").eq(col(f"code_{i}", "x")) for i, level in coded_levels]
        if known_flags:
            # A class with an unknown value may have the labels of a kept class, if that attribute is at its top.
            keys.append(exp.Paren(this=all_of(known_flags)).eq(col(KNOWN, "x")))
        join_type = "left" if recoding.mask else "anti"
        query = query.join(aliased(recoding.suppressed, "x"), on=all_of(keys), join_type=join_type, copy=False)
    if known_flags and not recoding.mask:
        query = query.where(all_of(flag.copy() for flag in known_flags), copy=False)
    return query


def _known_flags(recoding: FullDomainRecoding) -> list[exp.Expr]:
    return [col(KNOWN, f"h{i}") for i, attribute in enumerate(recoding.attributes) if attribute.unknown]


def _is_masked(recoding: FullDomainRecoding) -> exp.Expr:
    reasons: list[exp.Expr] = [~flag for flag in _known_flags(recoding)]
    if recoding.suppressed is not None:
        reasons.append(is_not_null(col(KNOWN, "x")))
    return exp.or_(*reasons, copy=False)


def _label(attribute: CodedAttribute, level: int, as_text: bool, relation: str | None = None) -> exp.Expr:
    """The label of a coded value at a level; with ``as_text``, values of level 0 are cast to text."""
    if level >= attribute.lowest_labelled:
        return col(f"label_{level}", relation)
    if as_text and attribute.texts is not None:
        return col(attribute.texts, relation)
    return cast(col("value", relation), "VARCHAR") if as_text else col("value", relation)


def _labels(attribute: CodedAttribute, level: int, as_text: bool = False) -> exp.Select:
    """The labels of a level: ``code`` and ``label``."""
    label = _label(attribute, level, as_text)
    query = select([as_column(col(f"code_{level}"), "code"), as_column(label, "label")], attribute.table.copy())
    return query if level < attribute.lowest_labelled else query.distinct(copy=False)


def _coded_levels(recoding: FullDomainRecoding) -> list[tuple[int, int]]:
    """Attribute and level of each attribute below its top."""
    return levels_below_top(recoding.levels, [attribute.height for attribute in recoding.attributes])


def unchanged_columns(recoding: FullDomainRecoding) -> list[int]:
    """Indexes of the columns that are released unchanged: without a hierarchy, or with a single level."""
    return [
        j
        for j, column in enumerate(recoding.columns)
        if column.quasi is None or recoding.attributes[column.quasi].height == 0
    ]


def _value_of_sorted_row(recoding: FullDomainRecoding, j: int) -> exp.Expr:
    """Column ``j`` of the release, from sorted rows."""
    quasi = recoding.columns[j].quasi
    return _released_value(recoding, j, col(f"value_{j}", "r"), col("label", f"l{quasi}"), col(MASKED, "r"))


def _value_of_source_row(recoding: FullDomainRecoding, j: int) -> exp.Expr:
    """Column ``j`` of the release, from `_kept_rows`."""
    source_value, quasi = col(recoding.columns[j].name, SOURCE_ALIAS), recoding.columns[j].quasi
    if quasi is None:
        return source_value
    label = _label(recoding.attributes[quasi], recoding.levels[quasi], recoding.mask, f"h{quasi}")
    is_masked = _is_masked(recoding) if recoding.mask else exp.false()
    return _released_value(recoding, j, source_value, label, is_masked)


def _released_value(
    recoding: FullDomainRecoding, j: int, source_value: exp.Expr, label: exp.Expr, is_masked: exp.Expr
) -> exp.Expr:
    quasi = recoding.columns[j].quasi
    if quasi is None:
        return source_value
    attribute, level, top = recoding.attributes[quasi], recoding.levels[quasi], recoding.tops[quasi]
    if level == attribute.height and level > 0:
        return text(top or "")
    value = label if level < attribute.height else source_value
    if not recoding.mask or top is None:
        return value
    return exp.Case(ifs=[exp.If(this=is_masked, true=text(top))], default=value)
