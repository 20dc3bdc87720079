"""How the rows of a release are made from the source: what each recoding provides, and their order."""

from __future__ import annotations

from typing import Protocol

from sqlglot import exp

from sqlanon.support.coding import Column
from sqlanon.support.expressions import release_order, star, subquery

MASKED = "masked"


class ReleaseStatement(Protocol):
    """How a release is made from the source: by one generalization of all rows, below the full domain, with noise."""

    @property
    def columns(self) -> tuple[Column, ...]:
        """What is released."""

    def released_type(self, column: Column, own: str) -> str:
        """The type of a column in the release; in the source it has its own."""

    def label_counts(self) -> exp.Select:
        """One row: how many labels each attribute has in the release."""

    def fully_suppressed(self) -> exp.Select:
        """One row: whether nothing is left of each attribute, as all rows show one label above its values."""

    def select(self, shuffled: bool = True) -> exp.Select:
        """The statement that makes the release; unless it is for checks, in the order of the released classes, and at
        random inside each."""

    def with_column(self, column: Column) -> ReleaseStatement:
        """The same, with one more column of the source: for checks."""


class ClassRecoding(ReleaseStatement, Protocol):
    """A recoding whose rows tell their classes, before labels stand for codes: what noise can be added to."""

    @property
    def codes_identify_labels(self) -> bool:
        """Whether two rows read the same in all attributes exactly if their `class_keys` are the same."""

    def with_column(self, column: Column) -> ClassRecoding: ...

    def with_source(self, source: exp.Table) -> ClassRecoding:
        """The same, of other rows of the source."""

    def class_keys(self) -> dict[int, str]:
        """By attribute the column of `rows` that tells classes apart; what is the same in all rows is left out."""

    def rows(self) -> exp.Select:
        """The rows of the release in the order of the source, with codes for labels and ``value_j`` for the rest."""

    def with_labels(self, rows: exp.Expr) -> exp.Select:
        """The release, of `rows`."""


def order_by_class(recoding: ClassRecoding, rows: exp.Select) -> exp.Select:
    """The release, of rows of a recoding, in the order of its classes. The order follows from what readers see: codes
    are ranks of labels, and where that is not all of it, the labels themselves are sorted."""
    if recoding.codes_identify_labels:
        keys = recoding.class_keys().values()
        return recoding.with_labels(subquery(rows.order_by(*release_order(keys), copy=False), "r"))
    quasi = [column.name for column in recoding.columns if column.quasi is not None]
    released = recoding.with_labels(subquery(rows, "r"))
    return star(subquery(released, "released")).order_by(*release_order(quasi), copy=False)
