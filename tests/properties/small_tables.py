"""Small tables that differ in all that strategies may trip over, each made from a number alone.

Ties, labels that come at several levels, NULLs, values that no hierarchy knows, level limits, forbidden labels,
weights, persons with several rows, a population, and requirements of every kind, monotone under suppression or not.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count
from typing import Any

import oracle
from oracle import Hierarchy, Levels, Row, Value
from oracle_privacy import Record, Release, Source, satisfies
from strategies import Case
from strategies_privacy import PrivacyCase

ROW = "row"
"""A column with the number of each row, which is released as it is: by it a released row is known again."""

# Names that a builder of SQL can trip over.
QUASI, SENSITIVE = ("b", "select", 'a"; drop', "größe"), ("v", 'n"')
LIMITS = ("0", "0.1", "0.29", "0.5")
OF_CLASSES = ("l_diversity", "t_closeness", "delta_disclosure", "beta_likeness", "alpha_k", "k_anonymity")
OF_TABLES = ("average_risk", "sample_uniqueness")
OF_A_POPULATION = ("delta_presence", "k_map", "null_map")


@dataclass(frozen=True)
class SmallTable:
    """A case, and what each quasi-identifier may be released as: its levels, and labels that are forbidden."""

    case: PrivacyCase
    limits: tuple[tuple[int, int], ...]
    forbidden: tuple[tuple[str, ...], ...]

    @property
    def source(self) -> Source:
        return self.case.source

    @cached_property
    def generalizations(self) -> dict[Levels, Release]:
        """All that may be released, in lexicographic order."""
        return {levels: Release(self.source, levels, self.case.privacy) for levels in self._lattice()}

    @cached_property
    def satisfying(self) -> list[oracle.Figures]:
        """Those that meet the policy."""
        case = self.case
        return [
            oracle.Figures(levels, self.score(levels), one.suppressed, len(one.kept))
            for levels, one in self.generalizations.items()
            if satisfies(one, case.limit)
        ]

    @cached_property
    def best(self) -> oracle.Solution | None:
        return oracle.best(self.satisfying, self.case.measure)

    @cached_property
    def minimal(self) -> list[oracle.Figures]:
        """The k-minimal ones."""
        figures = self.satisfying
        return [one for one in figures if not any(oracle.strictly_lower(two.levels, one.levels) for two in figures)]

    def score(self, levels: Levels) -> float:
        case, release = self.case, self.generalizations[levels]
        return oracle.score(release, case.measure, case.aggregate, case.weights)  # type: ignore[arg-type]

    def _lattice(self) -> Iterator[Levels]:
        table, levels = self.source.table, []
        for a, (tree, (low, high), labels) in enumerate(
            zip(table.hierarchies, self.limits, self.forbidden, strict=True)
        ):
            known = [value for value in table.values[a] if value is not None and tree.knows(value)]
            shown = [{str(tree.label(value, level)) for value in known} for level in range(tree.height + 1)]
            levels.append([level for level in range(low, high + 1) if not shown[level] & {*labels}])
        return itertools.product(*levels)


def small_table(number: int, of_classes: bool = False) -> SmallTable:
    """The table of a number. Every second one has persons, every fourth a population, every third limits of levels.

    With ``of_classes`` all that is asked is asked of each class by itself, often no more than k.
    """
    drawn = (_draw(random.Random(f"{number} {i}"), number, of_classes) for i in count())
    return next(table for table in drawn if _is_telling(table, number))


def _is_telling(table: SmallTable, number: int) -> bool:
    """Whether there is something to find, and to get wrong: neither all nor nothing satisfies, and several do that
    nothing lower does. Of a few tables only the top satisfies, and of a few nothing."""
    if not 8 <= len(table.generalizations) <= 40:
        return False
    if number % 12 in (5, 11):
        return len(table.satisfying) == (1 if number % 12 == 5 else 0)
    return len(table.minimal) > 1 and len(table.satisfying) < 0.8 * len(table.generalizations)


def _draw(drawn: random.Random, number: int, of_classes: bool) -> SmallTable:
    trees = {name: _tree(drawn, of_classes) for name in drawn.sample(QUASI, drawn.choice([2, 2, 3]))}
    combinations = _combinations(drawn, list(trees.values()), unknown=number % 5 == 0, many=of_classes)
    sensitive = {name: _tree(drawn) if drawn.random() < 0.5 else None for name in SENSITIVE[: drawn.choice([1, 1, 2])]}
    person = "mover" if number % 2 else None
    rows = [
        {ROW: i} | dict(zip(trees, one, strict=True)) | {name: _value(drawn, tree) for name, tree in sensitive.items()}
        for i, one in enumerate(combinations)
    ]
    if person is not None:
        rows = [row | {person: who} for row, who in zip(rows, _persons(drawn, combinations), strict=True)]
    people = _population(drawn, trees, combinations) if number % 4 == 2 and not of_classes else None
    source = Source(rows, trees, sensitive, person, people)
    limits, forbidden = [], []
    for tree in trees.values():
        low = drawn.choice([0, 0, 1]) if number % 3 == 0 and tree.height else 0
        high = drawn.choice([tree.height, tree.height, max(low, tree.height - 1)]) if number % 3 == 0 else tree.height
        limits.append((low, high))
        labels = sorted({str(label) for path in tree.paths.values() for label in path})
        forbidden.append((drawn.choice(labels),) if number % 3 == 1 and drawn.random() < 0.4 else ())
    measure, aggregate, weights = _objective(drawn, list(trees), of_classes)
    case = PrivacyCase(
        source,
        _privacy(drawn, number, source, of_classes),
        drawn.choice(LIMITS),
        measure,
        aggregate,
        weights,
        declared=number % 4 == 1,
    )
    return SmallTable(case, tuple(limits), tuple(forbidden))


def numbered(case: PrivacyCase) -> SmallTable:
    """A case without limits; its rows get numbers."""
    source = case.source
    rows = [{ROW: i} | dict(row) for i, row in enumerate(source.rows)]
    free = tuple((0, tree.height) for tree in source.quasi.values())
    return SmallTable(replace(case, source=replace(source, rows=rows)), free, ((),) * len(free))


def plain_case(number: int) -> Case:
    """The rows of a table, of which half may be suppressed, and k alone to be met."""
    source = small_table(number).source
    rows = [tuple(row[name] for name in source.quasi) for row in source.rows]
    return Case(rows, source.quasi, k=2, limit="0.5", measure="loss")


def local_case(number: int) -> Case:
    """The rows of a table of classes, its suppression limit and weights, and k alone to be met."""
    case = small_table(number, of_classes=True).case
    rows = [tuple(row[name] for name in case.source.quasi) for row in case.source.rows]
    return Case(rows, case.source.quasi, case.privacy["k"], case.limit, "loss", weights=case.weights)


def _tree(drawn: random.Random, many: bool = False) -> Hierarchy:
    """2 to 5 values, or 5 to 9, under 1 to 3 levels, uneven; groups may be called like one of their values."""
    numbers, texts = (0, 1, 2, 7, 10, -3, 15, 4, 30), ("v0", "v1", "it's", "a b", "é", "NULL", "007", "v2", "V0")
    pool: Sequence[Value] = numbers if drawn.random() < (0.6 if many else 0.4) else texts
    ground = drawn.sample(pool, drawn.choice([5, 6, 7, 9] if many else [2, 3, 4, 5]))
    height, by_member = drawn.choice([1, 2, 2, 3]), drawn.random() < 0.3
    paths = {value: [value] for value in ground}
    groups: list[list[Value]] = [[value] for value in ground]
    for level in range(1, height):
        joined: dict[int, list[Value]] = {}
        for group in groups:
            joined.setdefault(drawn.randrange(len(groups)), []).extend(group)
        groups = [joined[key] for key in sorted(joined)]
        for i, group in enumerate(groups):
            for value in group:
                paths[value].append(str(group[0]) if by_member else f"{level}.{i}")
    return Hierarchy({value: (*path, "*") for value, path in paths.items()})


def _combinations(drawn: random.Random, trees: list[Hierarchy], unknown: bool, many: bool) -> list[Row]:
    """8 to 30 rows, or 20 to 60: combinations that repeat, so that classes are about k, and some at random."""

    def row(odd: bool = False) -> Row:
        found: list[Value] = []
        for tree in trees:
            values: list[Value] = [*tree.paths]
            rare: list[Value] = [None, *([] if not unknown else [90 if isinstance(values[0], int) else "u0"])]
            found.append(drawn.choice(rare if odd and drawn.random() < 0.25 else values))
        return tuple(found)

    heaps = drawn.randint(6, 14) if many else drawn.randint(2, 6)
    repeated = [one for _ in range(heaps) for one in [row()] * drawn.randint(1, 6)]
    return [*repeated, *(row(odd=True) for _ in range(heaps if many else drawn.randint(2, 8)))][: 60 if many else 30]


def _value(drawn: random.Random, tree: Hierarchy | None) -> Value:
    values: list[Value] = ["flu", "flu", "gout", None] if tree is None else [*tree.paths][:3]
    return drawn.choice(values)


def _persons(drawn: random.Random, combinations: list[Row]) -> list[Value]:
    """Anybody's row, or of one combination each; nobody's at times."""
    if drawn.random() < 0.5:
        return [drawn.choice([*(f"p{i}" for i in range(12)), None]) for _ in combinations]
    numbers = {one: i for i, one in enumerate(dict.fromkeys(combinations))}
    return [f"{numbers[one]} {drawn.randrange(4)}" for one in combinations]


def _population(drawn: random.Random, trees: dict[str, Hierarchy], combinations: list[Row]) -> list[Record]:
    """Most of the rows, some several times, and others."""
    there = [one for one in combinations for _ in range(drawn.choice([1, 1, 2, 0]))]
    others = [tuple(drawn.choice([*tree.paths]) for tree in trees.values()) for _ in range(4)]
    return [dict(zip(trees, one, strict=True)) for one in (*there, *others)]


def _objective(
    drawn: random.Random, names: list[str], of_classes: bool
) -> tuple[str, str | None, dict[str, float] | None]:
    of_rows = ["precision", "discernibility", "average_class_size", "distinct"]  # whatever their levels are
    measure = drawn.choice(["loss", "loss", "loss", *(of_rows if of_classes else oracle.MEASURES)])
    if measure not in oracle.PER_ATTRIBUTE:
        return measure, None, None
    aggregate = drawn.choice([None, None, *oracle.AGGREGATES])
    if aggregate in ("geometric", "max") or drawn.random() < 0.5:
        return measure, aggregate, None
    return measure, aggregate, {drawn.choice(names): drawn.choice([0.5, 2.0, 3.0])}


def _privacy(drawn: random.Random, number: int, source: Source, of_classes: bool) -> dict[str, Any]:
    """k, and up to two requirements more: each takes its turn, with persons and without."""
    privacy: dict[str, Any] = {"k": drawn.choice([2, 2, 3, 4])}
    able = OF_CLASSES if of_classes else (*OF_TABLES, *OF_CLASSES)
    kinds = drawn.sample(able, drawn.choice([0, 0, 1]))
    kinds += [] if of_classes else [able[number // 2 % len(able)]]
    kinds += [] if source.population is None else [OF_A_POPULATION[number // 4 % len(OF_A_POPULATION)]]
    for kind in kinds:
        privacy[kind] = _requirement(drawn, source, kind)
    return privacy


def _requirement(drawn: random.Random, source: Source, kind: str) -> Any:
    attribute = drawn.choice([*source.sensitive])
    distances = ["equal", "ordered", *(["hierarchical"] if source.sensitive[attribute] else [])]
    diversity: dict[str, Any] = {"attribute": attribute, "kind": drawn.choice(["distinct", "entropy", "recursive"])}
    diversity |= {"l": 1.5 if diversity["kind"] == "entropy" else 2}
    diversity |= {"c": drawn.choice([1, 2.0, 3.0])} if diversity["kind"] == "recursive" else {}
    made: dict[str, Any] = {
        "l_diversity": [diversity],
        "t_closeness": [{"attribute": attribute, "distance": drawn.choice(distances), "t": drawn.choice([0.2, 0.3])}],
        "delta_disclosure": [{"attribute": attribute, "delta": drawn.choice([0.7, 1.0, 1.5])}],
        "beta_likeness": [{"attribute": attribute, "beta": drawn.choice([0.5, 1, 2.0])}],
        "alpha_k": [{"attribute": attribute, "alpha": drawn.choice([0.4, 0.5, 0.6, 0.75])}],
        "k_anonymity": [{"quasi": drawn.sample([*source.quasi], drawn.choice([1, 2])), "k": drawn.choice([3, 4, 6])}],
        "average_risk": drawn.choice([0.5, 0.3, 0.2]),
        "sample_uniqueness": drawn.choice([0.1, 0.05]),
        "k_map": drawn.choice([2, 3, 5]),
        "delta_presence": {"max": drawn.choice([1, 0.8, 2.0]), "min": drawn.choice([0.1, 0.25, 0.5])},
        "null_map": {"max": drawn.choice([0, 0.1, 0.3])},
    }
    return made[kind]
