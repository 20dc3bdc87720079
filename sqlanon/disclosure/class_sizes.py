"""The sizes of classes, from which the risks of rows follow, and their histograms."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from sqlglot import exp

from sqlanon.support.expressions import col, named, template

_CLASSES = template("SELECT count(*) AS class_size FROM :relation GROUP BY :quasi")
# Without quasi-identifiers, all rows are one class; without rows, there is none.
_ONE_CLASS = template("SELECT count(*) AS class_size FROM :relation HAVING count(*) > 0")
_SIZES = template("""
    SELECT class_size, count(*) AS classes, sum(class_size)::BIGINT AS rows
    FROM :classes AS c
    GROUP BY class_size
    ORDER BY class_size
""")


def class_sizes(relation: exp.Expr, quasi: Sequence[str]) -> exp.Select:
    """The number of classes of each size: ``class_size``, ``classes``, ``rows``."""
    quasi_columns = [col(one) for one in quasi]
    classes = _CLASSES(relation=relation, quasi=quasi_columns) if quasi else _ONE_CLASS(relation=relation)
    return _SIZES(classes=classes)


_VALUE_COUNTS = template("""
    SELECT :labels, :sensitive AS value, count(*) AS n
    FROM :release AS r
    GROUP BY :columns
""")


def class_labels(quasi: Sequence[str]) -> list[exp.Expr]:
    """The labels of a class, as `value_counts` names them: ``v0``, ``v1``, ..."""
    return [col(f"v{i}") for i in range(len(quasi))]


def value_counts(release: exp.Expr, quasi: Sequence[str], sensitive: str) -> exp.Select:
    """The rows by class and value of a sensitive attribute: ``v0`` .., ``value``, ``n``."""
    return _VALUE_COUNTS(
        labels=[named(col(name, "r"), f"v{i}") for i, name in enumerate(quasi)],
        sensitive=col(sensitive, "r"),
        release=release,
        columns=[col(name, "r") for name in (*quasi, sensitive)],
    )


def doubling_histogram(classes: Mapping[int, int]) -> dict[str, int]:
    """The classes by ranges of sizes, each as wide as all before it: ``1``, ``2``, ``3-4``, ``5-8``, ...

    >>> by_doubling({1: 3, 2: 1, 7: 2})
    {'1': 3, '2': 1, '3-4': 0, '5-8': 2}
    """
    found, low, high, largest = dict[str, int](), 1, 1, max(classes, default=0)
    while low <= largest:
        label = f"{low}" if low == high else f"{low}-{high}"
        found[label] = sum(n for size, n in classes.items() if low <= size <= high)
        low, high = high + 1, 2 * high
    return found


@dataclass(frozen=True)
class ClassSizes:
    """The number of classes of each size (in rows or persons), and of their rows; ascending.

    >>> sizes = ClassSizes.of({1: 3, 2: 1, 7: 2})
    >>> sizes.classes, sizes.count, sizes.uniques, sizes.pairs
    (6, 19, 3, 1)
    >>> sizes.histogram
    {'1': 3, '2': 1, '3-4': 0, '5-8': 2}
    """

    by_size: tuple[tuple[int, int, int], ...]

    @classmethod
    def from_classes(cls, classes: dict[int, int]) -> ClassSizes:
        return cls.from_rows((size, n, size * n) for size, n in classes.items())

    @classmethod
    def from_rows(cls, rows: Iterable[Sequence[Any]]) -> ClassSizes:
        return cls(tuple(sorted((int(size), int(n), int(of)) for size, n, of in rows if n)))

    @property
    def sizes(self) -> dict[int, int]:
        return {size: n for size, n, _ in self.by_size}

    @cached_property
    def classes(self) -> int:
        return sum(n for _, n, _ in self.by_size)

    @cached_property
    def rows(self) -> int:
        return sum(of for _, _, of in self.by_size)

    @cached_property
    def count(self) -> int:
        """The number of rows, or of persons in each class together."""
        return sum(size * n for size, n, _ in self.by_size)

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
        """The classes by ranges of sizes, each twice as wide as the one before: low, high, classes, rows.

        >>> ClassSizes.of({1: 3, 2: 1, 7: 2, 30: 1}).bins(5)
        [(1, 4, 4, 5), (5, 9, 2, 14), (10, 19, 0, 0), (20, 39, 1, 30)]
        >>> ClassSizes.of({1: 3, 2: 1, 7: 2}).bins(5, apart=True)
        [(1, 1, 3, 3), (2, 4, 1, 2), (5, 9, 2, 14)]
        """
        largest = self.by_size[-1][0] if self.by_size else 0
        few = max(few, 2)
        ranges = [(1, 1), (2, few - 1)] if apart else [(1, few - 1)]
        while few <= largest:
            ranges.append((few, 2 * few - 1))
            few *= 2
        found = []
        for low, high in ranges:
            inside = [(n, of) for size, n, of in self.by_size if low <= size <= high]
            if low <= high:
                found.append((low, high, sum(n for n, _ in inside), sum(of for _, of in inside)))
        return found

    def rows_where(self, holds: Callable[[int], bool]) -> int:
        return sum(of for size, _, of in self.by_size if holds(size))

    def mean(self, risk: Callable[[int], float]) -> float:
        """The mean over all rows (or persons of each class) of a risk that depends on the size of the class."""
        return sum(size * n * risk(size) for size, n, _ in self.by_size) / self.count if self.count else 0.0

    def to_dict(self) -> dict[str, Any]:
        return {"histogram": self.histogram, "uniques": self.uniques, "pairs": self.pairs}
