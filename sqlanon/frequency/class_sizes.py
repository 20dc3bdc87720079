"""Class sizes, their histograms, and counts of sensitive values by class."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from sqlglot import exp

from sqlanon.support.expressions import as_column, col, template


def class_sizes(relation: exp.Expr, quasi_identifiers: Sequence[str]) -> exp.Select:
    """The query for the number of classes of each size: ``class_size``, ``classes``, ``rows``."""
    # Without quasi-identifiers, all rows form one class; a table without rows has no class.
    return template("""
        SELECT class_size, count(*) AS classes, sum(class_size)::BIGINT AS rows
        FROM (
            SELECT count(*) AS class_size
            FROM :relation
            GROUP BY :quasi_identifiers
            HAVING count(*) > 0
        ) AS c
        GROUP BY class_size
        ORDER BY class_size
    """)(relation=relation, quasi_identifiers=[col(name) for name in quasi_identifiers])


def class_labels(quasi_identifiers: Sequence[str]) -> list[exp.Expr]:
    """The labels of a class, as `value_counts` names them: ``label_0``, ``label_1``, ..."""
    return [col(f"label_{i}") for i in range(len(quasi_identifiers))]


def value_counts(release: exp.Expr, quasi_identifiers: Sequence[str], sensitive: str) -> exp.Select:
    """The query for the rows by class and value of a sensitive attribute: ``label_0`` .., ``value``,
    ``row_count``."""
    return template("""
        SELECT :labels, :sensitive AS value, count(*) AS row_count
        FROM :release AS r
        GROUP BY :columns
    """)(
        labels=[as_column(col(name, "r"), f"label_{i}") for i, name in enumerate(quasi_identifiers)],
        sensitive=col(sensitive, "r"),
        release=release,
        columns=[col(name, "r") for name in (*quasi_identifiers, sensitive)],
    )


def doubling_histogram(classes: Mapping[int, int]) -> dict[str, int]:
    """Count classes in ranges of sizes that double: ``1``, ``2``, ``3-4``, ``5-8``, ...

    >>> doubling_histogram({1: 3, 2: 1, 7: 2})
    {'1': 3, '2': 1, '3-4': 0, '5-8': 2}
    """
    histogram, low, high, largest = dict[str, int](), 1, 1, max(classes, default=0)
    while low <= largest:
        label = f"{low}" if low == high else f"{low}-{high}"
        histogram[label] = sum(count for size, count in classes.items() if low <= size <= high)
        low, high = high + 1, 2 * high
    return histogram


@dataclass(frozen=True)
class ClassSizes:
    """The number of classes of each size (in rows or persons), and of their rows; ascending.

    >>> sizes = ClassSizes.from_classes({1: 3, 2: 1, 7: 2})
    >>> sizes.classes, sizes.count, sizes.uniques, sizes.pairs
    (6, 19, 3, 1)
    >>> sizes.histogram
    {'1': 3, '2': 1, '3-4': 0, '5-8': 2}
    """

    by_size: tuple[tuple[int, int, int], ...]

    @classmethod
    def from_classes(cls, classes: dict[int, int]) -> ClassSizes:
        return cls.from_rows((size, count, size * count) for size, count in classes.items())

    @classmethod
    def from_rows(cls, rows: Iterable[Sequence[Any]]) -> ClassSizes:
        return cls(tuple(sorted((int(size), int(classes), int(rows)) for size, classes, rows in rows if classes)))

    @property
    def sizes(self) -> dict[int, int]:
        return {size: classes for size, classes, _ in self.by_size}

    @cached_property
    def classes(self) -> int:
        return sum(classes for _, classes, _ in self.by_size)

    @cached_property
    def rows(self) -> int:
        return sum(rows for _, _, rows in self.by_size)

    @cached_property
    def count(self) -> int:
        """The number of rows, or the persons of each class added up."""
        return sum(size * classes for size, classes, _ in self.by_size)

    @property
    def smallest(self) -> int:
        return self.by_size[0][0] if self.by_size else 0

    @property
    def uniques(self) -> int:
        return self.sizes.get(1, 0)

    @property
    def pairs(self) -> int:
        return self.sizes.get(2, 0)

    @property
    def histogram(self) -> dict[str, int]:
        return doubling_histogram(self.sizes)

    def bins(self, few: int, apart: bool = False) -> list[tuple[int, int, int, int]]:
        """Classes in ranges of sizes that double from ``few`` on: low, high, classes, rows.

        With ``apart``, classes of size 1 have a separate range.

        >>> ClassSizes.from_classes({1: 3, 2: 1, 7: 2, 30: 1}).bins(5)
        [(1, 4, 4, 5), (5, 9, 2, 14), (10, 19, 0, 0), (20, 39, 1, 30)]
        >>> ClassSizes.from_classes({1: 3, 2: 1, 7: 2}).bins(5, apart=True)
        [(1, 1, 3, 3), (2, 4, 1, 2), (5, 9, 2, 14)]
        """
        largest = self.by_size[-1][0] if self.by_size else 0
        few = max(few, 2)
        ranges = [(1, 1), (2, few - 1)] if apart else [(1, few - 1)]
        while few <= largest:
            ranges.append((few, 2 * few - 1))
            few *= 2
        bins = []
        for low, high in ranges:
            inside = [(classes, rows) for size, classes, rows in self.by_size if low <= size <= high]
            if low <= high:
                bins.append((low, high, sum(classes for classes, _ in inside), sum(rows for _, rows in inside)))
        return bins

    def rows_where(self, condition: Callable[[int], bool]) -> int:
        return sum(rows for size, _, rows in self.by_size if condition(size))

    def mean(self, risk: Callable[[int], float]) -> float:
        """The mean over all rows (or persons of each class) of a risk that depends on the size of the class."""
        total = sum(size * classes * risk(size) for size, classes, _ in self.by_size)
        return total / self.count if self.count else 0.0

    def to_dict(self) -> dict[str, Any]:
        return {"histogram": self.histogram, "uniques": self.uniques, "pairs": self.pairs}
