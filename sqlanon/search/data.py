"""What a strategy may ask of the table itself, beside the checks of generalizations."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from sqlanon.coding import Levels


@dataclass(frozen=True)
class Data:
    """What is told of a table; by default, nothing.

    Attributes
    ----------
    vectors:
        The distinct distance vectors (see `search.vectors`) between outliers and all combinations, part after part: a
        strategy may stop between two of them. They are within the lattice.
    joins_suffice:
        Whether every k-minimal generalization is the lowest one, or a join (attribute by attribute, the greater level)
        of vectors. So it is where all that is asked for is asked of each class by itself, and a class made of some
        that meet it meets it: a generalization and the join of the vectors at or below it suppress the same rows.
    distinct_values:
        By attribute and level: how many values the rows have.
    """

    vectors: Callable[[], Iterable[Collection[Levels]]] = tuple
    joins_suffice: bool = False
    distinct_values: Callable[[], Sequence[Sequence[int]]] = tuple
