"""Small tables on which strategies can go wrong, each determined by a number.

They have ties, labels of several levels, NULLs, unknown values, level limits, forbidden labels, weights, persons with
several rows, a population, and requirements that are monotone under suppression or not.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import count
from typing import Any

from oracles import oracle
from oracles.oracle import Hierarchy, Levels, Row, Value
from oracles.oracle_privacy import Record, Release, Source, satisfies
from properties.privacy_cases import PrivacyCase
from properties.random_cases import Case

ROW = "row"
"""A column that numbers the rows. It is released unchanged, so that each released row can be matched to its source."""

# Names that SQL has to quote.
QUASI, SENSITIVE = ("b", "select", 'a"; drop', "größe"), ("v", 'n"')
SUPPRESSION_LIMITS = ("0", "0.1", "0.29", "0.5")
CLASS_REQUIREMENTS = ("l_diversity", "t_closeness", "delta_disclosure", "beta_likeness", "alpha_k", "k_anonymity")
TABLE_REQUIREMENTS = ("average_risk", "sample_uniqueness")
POPULATION_REQUIREMENTS = ("delta_presence", "k_map", "null_map")


@dataclass(frozen=True)
class Size:
    """The size of a table. Each count is drawn from a list."""

    attributes: Sequence[int]
    values: Sequence[int]  # of an attribute
    heights: Sequence[int]  # the levels of a hierarchy, without the ground values and the top
    whole_numbers: float  # the share of attributes of numbers
    generalizations: int = 40  # at most


SMALL = Size([2, 2, 3], [2, 3, 4, 5], [1, 2, 2, 3], 0.4)
MEDIUM = Size([2, 2, 3], [5, 6, 7, 9], [1, 2, 2, 3], 0.6)
WIDE = Size([3], [6, 9, 12], [2, 3, 3], 0.6, generalizations=64)
"""Tens of distinct combinations, so that a greedy step has many to choose from."""

FEW = Size([3], [3, 4, 5], [2, 3], 0.5, generalizations=64)
"""At most ten combinations, some of them large: strategies try everything."""


def size_of(number: int, for_local: bool) -> Size:
    """The size of the table with a number."""
    if not for_local:
        return SMALL
    return MEDIUM if number < 12 else FEW if number < 16 else WIDE


@dataclass(frozen=True)
class SmallTable:
    """A case with the lowest and highest level and the forbidden labels of each quasi-identifier."""

    case: PrivacyCase
    level_limits: tuple[tuple[int, int], ...]
    forbidden: tuple[tuple[str, ...], ...]

    @property
    def source(self) -> Source:
        return self.case.source

    @cached_property
    def generalizations(self) -> dict[Levels, Release]:
        """The generalizations within the level limits and without forbidden labels, in lexicographic order."""
        return {levels: Release(self.source, levels, self.case.privacy) for levels in self._lattice()}

    @cached_property
    def satisfying(self) -> list[oracle.Figures]:
        """The figures of the generalizations that meet the policy, in lexicographic order."""
        case = self.case
        return [
            oracle.Figures(levels, self.score(levels), release.suppressed, len(release.kept))
            for levels, release in self.generalizations.items()
            if satisfies(release, case.limit)
        ]

    @cached_property
    def is_upward_closed(self) -> bool:
        """Whether every generalization above a feasible one is feasible."""
        good = {figures.levels for figures in self.satisfying}
        return all(high in good for low in good for high in self.generalizations if oracle.strictly_lower(low, high))

    @cached_property
    def best(self) -> oracle.Solution | None:
        return oracle.best(self.satisfying, self.case.measure)

    @cached_property
    def minimal(self) -> list[oracle.Figures]:
        """The figures of the k-minimal generalizations."""
        figures = self.satisfying
        return [
            candidate
            for candidate in figures
            if not any(oracle.strictly_lower(lower.levels, candidate.levels) for lower in figures)
        ]

    def score(self, levels: Levels) -> float:
        case, release = self.case, self.generalizations[levels]
        return oracle.score(release, case.measure, case.aggregate, case.weights)  # type: ignore[arg-type]

    def _lattice(self) -> Iterator[Levels]:
        table, levels = self.source.table, []
        for a, (tree, (low, high), labels) in enumerate(
            zip(table.hierarchies, self.level_limits, self.forbidden, strict=True)
        ):
            values = [value for value in table.values[a] if value is not None and tree.knows(value)]
            labels_by_level = [{str(tree.label(value, level)) for value in values} for level in range(tree.height + 1)]
            levels.append([level for level in range(low, high + 1) if not labels_by_level[level] & {*labels}])
        return itertools.product(*levels)


@cache
def small_table(number: int, for_local: bool = False) -> SmallTable:
    """The table of a number. Every second one has persons, every fourth a population, and every eighth both; of three
    one has level limits, one forbidden labels and one weights; and in one of twelve some generalization that meets the
    policy has a higher one that does not.

    With ``for_local`` the table is larger, and each class can be checked by itself, as local strategies need: half of
    these tables have no requirement but k. From number 12 on they have few combinations, and the best
    generalization suppresses several, from 16 on many.
    """
    candidates = (_draw(random.Random(f"{number} {i}"), number, for_local) for i in count())
    return next(table for table in candidates if _is_discriminating(table, number, for_local))


def _is_discriminating(table: SmallTable, number: int, for_local: bool) -> bool:
    """Whether a search of this table can go wrong: some generalizations meet the policy, others do not, and several are
    k-minimal. In one table of twelve a single generalization meets the policy, and in one, not for local strategies,
    none does."""
    size = size_of(number, for_local)
    if not 8 <= len(table.generalizations) <= size.generalizations:
        return False
    if size is FEW and (table.best is None or table.generalizations[table.best.levels].suppressed < 5):
        return False
    heights = [(0, tree.height) for tree in table.source.quasi.values()]
    if (number % 3 == 0 and [*table.level_limits] == heights) or (number % 3 == 1 and not any(table.forbidden)):
        return False
    if number % 12 == 5 or (number % 12 == 11 and not for_local):
        return len(table.satisfying) == (number % 12 == 5)
    if number % 12 == 1 and not for_local and table.is_upward_closed:
        return False
    return len(table.minimal) > 1 and len(table.satisfying) < 0.8 * len(table.generalizations)


def _draw(rng: random.Random, number: int, for_local: bool) -> SmallTable:
    size = size_of(number, for_local)
    trees = {name: _tree(rng, size) for name in rng.sample(QUASI, rng.choice(size.attributes))}
    combinations = _combinations(rng, list(trees.values()), number % 5 == 0, size)
    sensitive = {name: _tree(rng, SMALL) if rng.random() < 0.5 else None for name in SENSITIVE[: rng.choice([1, 1, 2])]}
    person = "mover" if number % 2 else None
    rows = [
        {ROW: i}
        | dict(zip(trees, combination, strict=True))
        | {name: _value(rng, tree) for name, tree in sensitive.items()}
        for i, combination in enumerate(combinations)
    ]
    people = None
    if person is not None:
        rows = [row | {person: who} for row, who in zip(rows, _persons(rng, combinations), strict=True)]
    if not for_local and number % 4 == 2:
        people = _population(rng, trees, combinations)
    elif not for_local and number % 8 == 5:
        people = _population_of_persons(rng, rows, trees)
    source = Source(rows, trees, sensitive, person, people, person if people else None)
    level_limits, forbidden = [], []
    for tree in trees.values():
        limits = [(0, tree.height), (0, tree.height), (1, tree.height), (0, max(tree.height - 1, 1))]
        level_limits.append(rng.choice(limits) if number % 3 == 0 else limits[0])
        labels = sorted({str(label) for path in tree.paths.values() for label in path})
        forbidden.append((rng.choice(labels),) if number % 3 == 1 and rng.random() < 0.6 else ())
    measure, aggregate, weights = _objective(rng, number, list(trees), for_local)
    case = PrivacyCase(
        source,
        _privacy(rng, number, source, for_local),
        rng.choice(SUPPRESSION_LIMITS),
        measure,
        aggregate,
        weights,
        declared=number % 4 == 1,
    )
    return SmallTable(case, tuple(level_limits), tuple(forbidden))


def number_rows(case: PrivacyCase) -> SmallTable:
    """Number the rows of a case; its levels are not limited."""
    source = case.source
    rows = [{ROW: i} | dict(row) for i, row in enumerate(source.rows)]
    free = tuple((0, tree.height) for tree in source.quasi.values())
    return SmallTable(replace(case, source=replace(source, rows=rows)), free, ((),) * len(free))


def plain_case(number: int) -> Case:
    """The rows of a table with k as the only requirement; half of them may be suppressed."""
    source = small_table(number).source
    rows = [tuple(row[name] for name in source.quasi) for row in source.rows]
    return Case(rows, source.quasi, k=2, limit="0.5", measure="loss")


def local_case(number: int) -> Case:
    """The rows, suppression limit and weights of a table for local strategies, with k as the only requirement."""
    case = small_table(number, for_local=True).case
    rows = [tuple(row[name] for name in case.source.quasi) for row in case.source.rows]
    return Case(rows, case.source.quasi, case.privacy["k"], case.limit, "loss", weights=case.weights)


def _tree(rng: random.Random, size: Size) -> Hierarchy:
    """Values under 1 to 3 uneven levels; a group may have the name of one of its values."""
    numbers, texts = [0, 1, 2, 7, 10, -3, 15, 4, 30], ["v0", "v1", "it's", "a b", "é", "NULL", "007", "v2", "V0"]
    if size is WIDE:
        numbers, texts = [*numbers, 31, 40, 55], [*texts, "b", "c", "d"]
    pool: Sequence[Value] = numbers if rng.random() < size.whole_numbers else texts
    ground = rng.sample(pool, rng.choice(size.values))
    height, by_member = rng.choice(size.heights), rng.random() < 0.3
    paths = {value: [value] for value in ground}
    groups: list[list[Value]] = [[value] for value in ground]
    for level in range(1, height):
        joined: dict[int, list[Value]] = {}
        for group in groups:
            joined.setdefault(rng.randrange(len(groups)), []).extend(group)
        groups = [joined[key] for key in sorted(joined)]
        for i, group in enumerate(groups):
            for value in group:
                paths[value].append(str(group[0]) if by_member else f"{level}.{i}")
    return Hierarchy({value: (*path, "*") for value, path in paths.items()})


def _combinations(rng: random.Random, trees: list[Hierarchy], unknown: bool, size: Size) -> list[Row]:
    """Up to 30 rows, or 60 for local strategies: repeated combinations, so that classes have about k rows, and random
    ones. A wide table repeats each seldom; the small ones of few combinations differ little."""

    def row(odd: bool = False) -> Row:
        values_of_row: list[Value] = []
        for tree in trees:
            values: list[Value] = [*tree.paths]
            rare: list[Value] = [None, *([] if not unknown else [90 if isinstance(values[0], int) else "u0"])]
            values_of_row.append(rng.choice(rare if odd and rng.random() < 0.25 else values))
        return tuple(values_of_row)

    if size is WIDE:
        rows = [row(odd=rng.random() < 0.1) for _ in range(rng.randint(60, 100))]
        return [*rows, *(rng.choice(rows) for _ in range(20))]
    if size is FEW:
        large = [row() for _ in range(3)]
        similar = {
            (*combination[:i], *row()[i : i + 1], *combination[i + 1 :]) for combination in large for i in range(3)
        } - {*large}
        small = rng.sample(sorted(similar, key=repr), min(len(similar), 7))
        return [*(combination for combination in large for _ in range(rng.randint(3, 6))), *small, small[0]]
    many = size is MEDIUM
    heaps = rng.randint(6, 14) if many else rng.randint(2, 6)
    repeated = [combination for _ in range(heaps) for combination in [row()] * rng.randint(1, 6)]
    return [*repeated, *(row(odd=True) for _ in range(heaps if many else rng.randint(2, 8)))][: 60 if many else 30]


def _value(rng: random.Random, tree: Hierarchy | None) -> Value:
    values: list[Value] = ["flu", "flu", "gout", None] if tree is None else [*tree.paths][:3]
    return rng.choice(values)


def _persons(rng: random.Random, combinations: list[Row]) -> list[Value]:
    """The person of each row: at random, or None; or persons whose rows all have one combination."""
    if rng.random() < 0.5:
        return [rng.choice([*(f"p{i}" for i in range(12)), None]) for _ in combinations]
    numbers = {combination: i for i, combination in enumerate(dict.fromkeys(combinations))}
    return [f"{numbers[combination]} {rng.randrange(4)}" for combination in combinations]


def _population(rng: random.Random, trees: dict[str, Hierarchy], combinations: list[Row]) -> list[Record]:
    """Most combinations of the source, some of them twice, and four random ones."""
    from_source = [combination for combination in combinations for _ in range(rng.choice([1, 1, 2, 0]))]
    random_rows = [tuple(rng.choice([*tree.paths]) for tree in trees.values()) for _ in range(4)]
    return [dict(zip(trees, combination, strict=True)) for combination in (*from_source, *random_rows)]


def _population_of_persons(rng: random.Random, rows: Sequence[Record], trees: dict[str, Hierarchy]) -> list[Record]:
    """Most rows of the source with their persons, some of them two times, some under the name of somebody else."""
    people: list[Record] = []
    for row in rows:
        for _ in range(rng.choice([1, 1, 2, 0])):
            who = row["mover"] if rng.random() < 0.8 else f"other {rng.randrange(4)}"
            people.append({name: row[name] for name in trees} | {"mover": who})
    return people


def _objective(
    rng: random.Random, number: int, names: list[str], for_local: bool
) -> tuple[str, str | None, dict[str, float] | None]:
    if number % 3 == 2:
        weights = dict(zip(names, rng.sample([0.5, 1.0, 2.0, 3.0], len(names)), strict=True))
        return rng.choice(["loss", "loss", "precision"]), rng.choice([None, "mean", "sum"]), weights
    local_measures = ["precision", "discernibility", "average_class_size", "distinct"]
    measure = rng.choice(["loss", "loss", "loss", *(local_measures if for_local else oracle.MEASURES)])
    return measure, rng.choice([None, None, *oracle.AGGREGATES]) if measure in oracle.PER_ATTRIBUTE else None, None


def _privacy(rng: random.Random, number: int, source: Source, for_local: bool) -> dict[str, Any]:
    """k and up to three other requirements, which take turns, with persons and without."""
    privacy: dict[str, Any] = {"k": rng.choice([2, 2, 3, 4])}
    eligible = (*TABLE_REQUIREMENTS, *CLASS_REQUIREMENTS)
    kinds = [] if for_local else [*rng.sample(eligible, rng.choice([0, 0, 1])), eligible[number // 2 % len(eligible)]]
    if for_local and number % 4 in (1, 2):
        kinds.append(CLASS_REQUIREMENTS[(number // 4 * 2 + number % 4 // 2) % len(CLASS_REQUIREMENTS)])
    if source.population is not None and source.person is not None:
        kinds.append("wrong_map")
    elif source.population is not None:
        kinds.append(POPULATION_REQUIREMENTS[number // 4 % len(POPULATION_REQUIREMENTS)])
    for kind in kinds:
        privacy[kind] = _requirement(rng, source, kind)
    if not for_local and "k_anonymity" in privacy and len(source.quasi) > 1:
        privacy["k_anonymity"] += _requirement(rng, source, "k_anonymity")
    return privacy


def _requirement(rng: random.Random, source: Source, kind: str) -> Any:
    attribute = rng.choice([*source.sensitive])
    distances = ["equal", "ordered", *(["hierarchical"] if source.sensitive[attribute] else [])]
    diversity: dict[str, Any] = {"attribute": attribute, "kind": rng.choice(["distinct", "entropy", "recursive"])}
    diversity |= {"l": 1.5 if diversity["kind"] == "entropy" else 2}
    diversity |= {"c": rng.choice([1, 2.0, 3.0])} if diversity["kind"] == "recursive" else {}
    specs: dict[str, Any] = {
        "l_diversity": [diversity],
        "t_closeness": [{"attribute": attribute, "distance": rng.choice(distances), "t": rng.choice([0.2, 0.3])}],
        "delta_disclosure": [{"attribute": attribute, "delta": rng.choice([0.7, 1.0, 1.5])}],
        "beta_likeness": [{"attribute": attribute, "beta": rng.choice([0.5, 1, 2.0])}],
        "alpha_k": [{"attribute": attribute, "alpha": rng.choice([0.4, 0.5, 0.6, 0.75])}],
        "k_anonymity": [{"quasi": rng.sample([*source.quasi], rng.choice([1, 2])), "k": rng.choice([3, 4, 6])}],
        "average_risk": rng.choice([0.5, 0.3, 0.2]),
        "sample_uniqueness": rng.choice([0.1, 0.05]),
        "k_map": rng.choice([2, 3, 5]),
        "delta_presence": {"max": rng.choice([1, 0.8, 2.0]), "min": rng.choice([0.1, 0.25, 0.5])},
        "null_map": {"max": rng.choice([0, 0.1, 0.3])},
        "wrong_map": {"max": 0.1 if len(source.rows) % 2 else 0.3},
    }
    return specs[kind]
