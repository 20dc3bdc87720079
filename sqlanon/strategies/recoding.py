"""Protocols of recodings, which make released rows from the source, and the order of those rows."""

from __future__ import annotations

from typing import Protocol

from sqlglot import exp

from sqlanon.support.coding import Column
from sqlanon.support.expressions import release_order, select_star, subquery

MASKED = "masked"


class ReleaseStatement(Protocol):
    """Makes a release from the source: by a generalization, below the full domain, with noise or with decoys."""

    @property
    def columns(self) -> tuple[Column, ...]:
        """The released columns."""

    def released_type(self, column: Column, source_type: str) -> str:
        """The type of a column in the release."""

    def label_counts(self) -> exp.Select:
        """One row: the number of labels of each attribute in the release."""

    def fully_suppressed(self) -> exp.Select:
        """One row: whether each attribute has one label, above its values, in all rows."""

    def select(self, shuffled: bool = True) -> exp.Select:
        """The statement that makes the release: in the order of its classes, shuffled within each.

        Checks need no order and pass ``shuffled=False``.
        """

    def with_column(self, column: Column) -> ReleaseStatement:
        """The same with another column of the source, for checks."""


class ClassRecoding(ReleaseStatement, Protocol):
    """A recoding that can return codes in place of labels, so that rows show their class; noise needs one."""

    @property
    def codes_identify_labels(self) -> bool:
        """Whether rows have equal `class_keys` exactly if their released quasi-identifiers are equal."""

    def with_column(self, column: Column) -> ClassRecoding: ...

    def with_source(self, source: exp.Table) -> ClassRecoding:
        """The same over other source rows."""

    def class_keys(self) -> dict[int, str]:
        """By attribute, the column of `rows` that distinguishes classes. Constant attributes are omitted."""

    def rows(self) -> exp.Select:
        """The released rows in the order of the source: codes for labels, ``value_j`` for other columns."""

    def with_labels(self, rows: exp.Expr) -> exp.Select:
        """The release, made from `rows`."""


def order_by_class(recoding: ClassRecoding, rows: exp.Select) -> exp.Select:
    """The release made from the rows of a recoding, ordered by class.

    The order must depend on visible values only. Codes are ranks of labels; where they distinguish rows with equal
    labels, the labels are sorted instead.
    """
    if recoding.codes_identify_labels:
        keys = recoding.class_keys().values()
        return recoding.with_labels(subquery(rows.order_by(*release_order(keys), copy=False), "r"))
    quasi_identifiers = [column.name for column in recoding.columns if column.quasi is not None]
    released = recoding.with_labels(subquery(rows, "r"))
    return select_star(subquery(released, "released")).order_by(*release_order(quasi_identifiers), copy=False)
