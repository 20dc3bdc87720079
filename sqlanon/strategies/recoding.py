"""Recodings, which make released rows from the source, and the order of those rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from sqlglot import exp

from sqlanon.support.coding import Column
from sqlanon.support.expressions import release_order, select_star, subquery

MASKED = "masked"


class DrawnRows(Protocol):
    """Rows with noise or decoys, drawn once for a release. They take the place of the recoded rows."""

    @property
    def types(self) -> Mapping[str, str]:
        """The types of the columns that do not have the recoding's type."""

    def rows(self, recoding: ClassRecoding) -> exp.Select:
        """The drawn rows, with the columns of `ClassRecoding.rows`."""


@dataclass(frozen=True)
class ClassRecoding(ABC):
    """Makes a release from the source. Its rows have codes in place of labels, so that they show their class."""

    source: exp.Table
    columns: tuple[Column, ...]  # the released columns
    drawn: DrawnRows | None = field(default=None, kw_only=True)

    @property
    @abstractmethod
    def codes_identify_labels(self) -> bool:
        """Whether rows have equal `class_keys` exactly if their released quasi-identifiers are equal."""

    @abstractmethod
    def recoded_type(self, column: Column, source_type: str) -> str:
        """The type of a recoded column."""

    @abstractmethod
    def label_counts(self) -> exp.Select:
        """One row: the number of labels of each attribute in the release."""

    @abstractmethod
    def fully_suppressed(self) -> exp.Select:
        """One row: whether each attribute has one label, above its values, in all rows."""

    @abstractmethod
    def class_keys(self) -> dict[int, str]:
        """The column of `rows` that distinguishes classes, by attribute. Constant attributes are omitted."""

    @abstractmethod
    def rows(self) -> exp.Select:
        """The recoded rows in the order of the source: codes for labels, ``value_j`` for other columns."""

    @abstractmethod
    def with_labels(self, rows: exp.Expr) -> exp.Select:
        """The release, made from `rows`."""

    def released_type(self, column: Column, source_type: str) -> str:
        """The type of a column in the release."""
        drawn_types = {} if self.drawn is None else self.drawn.types
        return drawn_types.get(column.name) or self.recoded_type(column, source_type)

    def with_column(self, column: Column) -> ClassRecoding:
        """The same with another column of the source, for checks."""
        return replace(self, columns=(*self.columns, column))

    def with_source(self, source: exp.Table) -> ClassRecoding:
        """The same over other source rows."""
        return replace(self, source=source)

    def select(self, shuffled: bool = True) -> exp.Select:
        """The statement that makes the release: in the order of its classes, shuffled within each.

        Checks need no order and pass ``shuffled=False``. The order must depend on visible values only. Codes are ranks
        of labels; where they distinguish rows with equal labels, the labels are sorted instead.
        """
        rows = self.rows() if self.drawn is None else self.drawn.rows(self)
        if shuffled and self.codes_identify_labels:
            rows = rows.order_by(*release_order(self.class_keys().values()), copy=False)
        released = self.with_labels(subquery(rows, "r"))
        if not shuffled or self.codes_identify_labels:
            return released
        quasi_identifiers = [column.name for column in self.columns if column.quasi is not None]
        return select_star(subquery(released, "released")).order_by(*release_order(quasi_identifiers), copy=False)
