"""The figures of `risk` in plain Python: slow, and obvious."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from decimal import Decimal, localcontext
from itertools import combinations
from typing import Any

Row = Sequence[Any]


def classes_of(rows: Iterable[Row], places: Sequence[int]) -> dict[tuple[Hashable, ...], list[Row]]:
    """The rows by their values at some positions."""
    rows_by_class: dict[tuple[Hashable, ...], list[Row]] = defaultdict(list)
    for row in rows:
        rows_by_class[tuple([row[place] for place in places])].append(row)
    return dict(rows_by_class)


def sizes_of(rows: Sequence[Row], places: Sequence[int], person: int | None = None) -> list[tuple[int, int]]:
    """For each class its size, in rows or persons, and its rows."""
    groups = classes_of(rows, places).values()
    return [(len(group) if person is None else len({row[person] for row in group}), len(group)) for group in groups]


def prosecutor(sizes: Sequence[tuple[int, int]], threshold: float) -> dict[str, Any]:
    """Row by row."""
    risks = [1 / size for size, rows in sizes for _ in range(rows)]
    highest = max(risks, default=0.0)
    rows_counted = sum(size for size, _ in sizes)
    return {
        "highest": highest,
        "average": len(sizes) / rows_counted if rows_counted else 0.0,
        "rows_at_highest": risks.count(highest),
        "share_at_highest": risks.count(highest) / len(risks) if risks else 0.0,
        "rows_above": sum(risk > threshold for risk in risks),
    }


def fit_to_priors(rows: Sequence[Row], priors: Mapping[int, Mapping[Any, float]]) -> list[float]:
    """The probability of each row: equal ones, scaled to the shares of one place after the other until all hold."""
    chances = [1 / len(rows) for _ in rows]
    for _ in range(2000):
        for place, shares in priors.items():
            values = {row[place] for row in rows}
            whole = math.fsum(shares[value] for value in values)
            for value in values:
                of_value = [i for i, row in enumerate(rows) if row[place] == value]
                now = math.fsum(chances[i] for i in of_value)
                for i in of_value:
                    chances[i] *= shares[value] / whole / now if now else 0.0
    return chances


def entropy(chances: Iterable[float]) -> float:
    return math.fsum(-chance * math.log2(chance) for chance in chances if chance > 0)


def expected_gain(rows: Sequence[Row], places: Sequence[int], chances: Sequence[float]) -> float:
    """Effort of finding a row, less the average effort once its class is known."""
    classes: dict[tuple[Any, ...], list[float]] = defaultdict(list)
    for row, chance in zip(rows, chances, strict=True):
        classes[tuple([row[place] for place in places])].append(chance)
    left = 0.0
    for class_ in classes.values():
        chance = math.fsum(class_)
        if chance > 0:
            left += chance * entropy([probability / chance for probability in class_])
    return entropy(chances) - left


def value_gains(values: Sequence[Any], chances: Sequence[float]) -> dict[Any, tuple[int, float, float | None]]:
    """For each value its rows, its probability, and the relative entropy of beliefs once it is known."""
    gains = {}
    for value in set(values):
        rows = [i for i, candidate in enumerate(values) if candidate == value]
        chance = math.fsum(chances[i] for i in rows)
        after = {i: chances[i] / chance for i in rows} if chance > 0 else {}
        gain = math.fsum(p * math.log2(p / chances[i]) for i, p in after.items() if p > 0) if after else None
        gains[value] = (len(rows), chance, gain)
    return gains


def leakage(rows: Sequence[Row], places: Sequence[int]) -> float:
    """Σ |E_j|/n (S0 − S_j)."""
    n = len(rows)
    groups = [len(group) for group in classes_of(rows, places).values()]
    return math.fsum(size / n * (math.log2(n) - math.log2(size)) for size in groups) if n else 0.0


def leakage_of_persons(rows: Sequence[Row], places: Sequence[int], person: int) -> float:
    """Person by person: the mean, over its rows, of the bits that knowing the row's class saves."""
    persons = classes_of(rows, [person]).values()
    classes = classes_of(rows, places)
    gain = 0.0
    for person_rows in persons:
        for row in person_rows:
            class_ids = {class_[person] for class_ in classes[tuple([row[place] for place in places])]}
            gain += math.log2(len(persons) / len(class_ids)) / len(person_rows) / len(persons)
    return gain


def leakages(rows: Sequence[Row], quasi: int, most: int = 3, person: int | None = None) -> dict[tuple[int, ...], float]:
    """All sets of places up to this size."""
    sets = [combination for size in range(1, most + 1) for combination in combinations(range(quasi), size)]
    if person is None:
        return {attributes: leakage(rows, attributes) for attributes in sets}
    return {attributes: leakage_of_persons(rows, attributes, person) for attributes in sets}


def expected_inverse(size: int, p: float, terms: int = 4000) -> float:
    """E(1/F | f), F − f negative binomial: Σ_h 1/h C(h−1, f−1) p^f (1−p)^(h−f), h from f: the definition itself."""
    total, chance = 0.0, p**size
    for h in range(size, size + terms):
        total += chance / h
        chance *= h / (h - size + 1) * (1 - p)
    return total


def individual(size: int, weight: float) -> float:
    """The formulas of the issue, with 60 digits: they lose many where p is almost 1."""
    with localcontext() as context:
        context.prec = 60
        p = Decimal(size) / Decimal(weight)
        if p >= 1:
            return 1 / size
        if size == 1:
            return float(p / (1 - p) * -p.ln())
        if size == 2:
            return float(p / (1 - p) - (p / (1 - p)) ** 2 * -p.ln())
        return float(p / (size - (1 - p)))


def households(homes: Sequence[Hashable], risks: Sequence[float]) -> list[float]:
    """The risk of each row by its household: 1 − Π (1 − r); None is not a household."""
    safe: dict[Hashable, float] = defaultdict(lambda: 1.0)
    for home, risk in zip(homes, risks, strict=True):
        safe[home] *= 1 - risk
    return [risk if home is None else 1 - safe[home] for home, risk in zip(homes, risks, strict=True)]


def uniques(rows: Sequence[Row], levels: Sequence[Callable[[Any], Any]], person: int | None = None) -> int:
    """The classes of one row, or one person, after each place was generalized."""
    classes: dict[Row, list[Any]] = defaultdict(list)
    for i, row in enumerate(rows):
        key = tuple([level(value) for level, value in zip(levels, row, strict=False)])
        classes[key].append(i if person is None else row[person])
    return [len(set(who)) for who in classes.values()].count(1)


def uniques_there(
    rows: Sequence[Row], people: Sequence[tuple[Row, Any]], levels: Sequence[Callable[[Any], Any]]
) -> tuple[int, int, int]:
    """The combinations of people, who are rows with the person that each is of; those of one person; the rows that
    have one of these."""

    def combination(row: Row) -> Row:
        return tuple([level(value) for level, value in zip(levels, row, strict=True)])

    who: dict[Row, set[Any]] = {}
    for row, person in people:
        who.setdefault(combination(row), set()).add(person)
    alone = {combination for combination, persons in who.items() if len(persons) == 1}
    return len(who), len(alone), sum(combination(row) in alone for row in rows)
