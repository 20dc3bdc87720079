"""Releases that are based on earlier ones, and releases that break one another, in plain Python: slow and obvious.

It imports nothing from sqlanon. The base of a release follows from the rows that the earlier ones show, as files of
rows; breaches between two are found in these files alone, with the attacks of `oracle_attacks`.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from oracles import oracle, oracle_privacy
from oracles import oracle_attacks as attacks
from oracles.oracle import Figures, Hierarchy, Levels, Row, Solution
from oracles.oracle_privacy import Record, Source

LEAST = 2
"""Without a promised k, every row must have another one like it."""


@dataclass(frozen=True)
class File:
    """A full-domain release, as a reader with its file and the policies sees it.

    Attributes
    ----------
    rows:
        One mapping a row: values by column.
    levels:
        By quasi-identifier, the level of its labels.
    shown:
        The columns that it shows as they are.
    k:
        What it promises.
    """

    rows: list[Record]
    levels: Mapping[str, int]
    shown: Sequence[str]
    k: int | None


# --- which rows of a source a release has -----------------------------------------------------------


def marks(
    source: Source,
    visible: Sequence[str],
    files: Sequence[File],
    columns: Sequence[str],
    key: str | None = None,
    keys: Sequence[set[Any]] = (),
) -> list[int]:
    """For each row of the source, in its order, a number: bit i is set where file i has it.

    Parameters
    ----------
    source, shown:
        What is released now: its quasi-identifiers, and the other columns that the release shows or looks at.
    files:
        The earlier releases.
    columns:
        Those that are looked at, in the order of the source.
    key, keys:
        The column of ids, and those of the rows that are in each, where that is known; else rows with equal
        shared values are in it up to that number: first those that earlier files have, too, then by values.
    """
    bits = [0] * len(source.rows)
    for i, file in enumerate(files):
        if key is not None:
            for j, row in enumerate(source.rows):
                bits[j] |= (row[key] in keys[i]) << i
            continue
        common = [name for name in source.quasi if name in file.levels]
        alike = [name for name in (*source.quasi, *visible) if name in file.shown]
        left = Counter(tuple(row[name] for name in (*common, *alike)) for row in file.rows)
        order = sorted(range(len(bits)), key=lambda j: (-bits[j], _sort_key(source.rows[j], columns)))
        for j in order:
            row = source.rows[j]
            labels = (source.quasi[name].label(row[name], file.levels[name]) for name in common)
            reads = (*labels, *(row[name] for name in alike))
            if left[reads]:
                left[reads] -= 1
                bits[j] |= 1 << i
    return bits


def _sort_key(row: Record, columns: Sequence[str]) -> list[tuple[bool, Any]]:
    return [(row[name] is None, 0 if row[name] is None else row[name]) for name in columns]


def floors(source: Source, files: Sequence[File]) -> dict[str, int]:
    """The level that each quasi-identifier must at least have."""
    levels = {}
    for name, tree in source.quasi.items():
        file_levels = [file.levels.get(name, 0 if name in file.shown else tree.height) for file in files]
        levels[name] = max(file_levels, default=0)
    return levels


# --- a generalization of a source, with suppression, that is based on earlier releases --------------


@dataclass(frozen=True)
class Based(oracle_privacy.Release):
    """A release whose classes are made of parts: rows that the same earlier releases have. Each part meets all.

    ``privacy`` has the requirements of parts; `based` makes it. The keys of ``classes``, ``kept_records`` and ``kept``
    are labels, and the mark behind them.
    """

    marks: Sequence[int] = ()

    @cached_property
    def classes(self) -> dict[Row, list[Record]]:
        records_by_class: dict[Row, list[Record]] = defaultdict(list)
        for row, mark in zip(self.source.rows, self.marks, strict=True):
            if (labels := self._labels(row)) is not None:
                records_by_class[(*labels, mark)].append(row)
        return dict(records_by_class)

    def _labels(self, row: Record) -> Row | None:
        trees = self.source.quasi.items()
        if not all(tree.knows(row[name]) for name, tree in trees):
            return None
        return tuple([tree.label(row[name], level) for (name, tree), level in zip(trees, self.levels, strict=True)])

    def suppressed_rows(self) -> Iterator[tuple[Row, int]]:
        for row, mark in zip(self.source.rows, self.marks, strict=True):
            labels = self._labels(row)
            if labels is None or (*labels, mark) not in self.kept:
                yield tuple([row[name] for name in self.source.quasi]), 1

    @property
    def whole(self) -> Counter[Row]:
        """The kept classes as the release shows them, with their rows."""
        totals: Counter[Row] = Counter()
        for labels, n in self.kept.items():
            totals[labels[:-1]] += n
        return totals

    @property
    def counts(self) -> dict[Row, int]:
        """The kept classes as the release shows them, with their rows, or persons."""
        records: dict[Row, list[Record]] = defaultdict(list)
        for labels, some in self.kept_records.items():
            records[labels[:-1]] += some
        return {labels: self.source.count(some) for labels, some in records.items()}

    def released(self, columns: Sequence[str]) -> Counter[Row]:
        return Counter(
            (*labels[:-1], *(record[name] for name in columns))
            for labels, records in self.kept_records.items()
            for record in records
        )


def promised_rows(privacy: Mapping[str, Any], quasi: Iterable[str]) -> int:
    """The rows that a class has at least: k, a shield's over all quasi-identifiers, and l."""
    shields = [shield["k"] for shield in privacy.get("k_anonymity", ()) if set(quasi) <= set(shield["quasi"])]
    diverse = [math.ceil(requirement["l"]) for requirement in privacy.get("l_diversity", ())]
    return max([privacy.get("k") or LEAST, *shields, *diverse])


def asked_of_parts(source: Source, privacy: Mapping[str, Any], files: Sequence[File]) -> dict[str, Any]:
    """Requirements of parts of classes: with each earlier release the smaller promise of the two, so the greatest of
    these; whole classes need the policy's own k, where it is more.
    """
    k, promised_k = privacy.get("k"), promised_rows(privacy, source.quasi)
    least = max(min(promised_k, file.k or LEAST) for file in files)
    part_privacy = {**privacy, "k": least}
    if k is not None and least < k:
        part_privacy["k_anonymity"] = [*privacy.get("k_anonymity", ()), {"quasi": [*source.quasi], "k": k}]
    return part_privacy


def based_releases(
    source: Source, privacy: Mapping[str, Any], files: Sequence[File], base: Sequence[int]
) -> Iterator[Based]:
    """Every generalization that is nowhere finer than an earlier release, in lexicographic order."""
    least, requirements = floors(source, files), asked_of_parts(source, privacy, files)
    limits = {name: (least[name], tree.height) for name, tree in source.quasi.items()}
    for levels in oracle.lattice(source.table, limits):
        yield Based(source, levels, requirements, base)


def satisfying(
    source: Source,
    privacy: Mapping[str, Any],
    files: Sequence[File],
    base: Sequence[int],
    suppression_limit: str,
    measure: str,
    *,
    aggregate: str | None = None,
    weights: Mapping[str, float] | None = None,
) -> list[Figures]:
    """The figures of the generalizations within the suppression limit; ``classes`` are whole ones."""
    return [
        Figures(
            candidate.levels,
            oracle.score(candidate, measure, aggregate, weights),
            candidate.suppressed,
            len(candidate.whole),
        )
        for candidate in based_releases(source, privacy, files, base)
        if oracle_privacy.satisfies(candidate, suppression_limit)
    ]


def solve(*arguments: Any, **options: Any) -> Solution | None:
    """The best of `satisfying`, with its arguments."""
    return oracle.best(satisfying(*arguments, **options), arguments[-1])


# --- whether two releases break one another ---------------------------------------------------------


def paths(tree: Hierarchy) -> attacks.Tree:
    """A hierarchy as texts, with the path of NULL."""
    rows: list[Row] = [tuple(str(label) for label in path) for path in tree.paths.values()]
    if tree.height:
        rows.append((*[None] * tree.height, str(tree.top)))
    return attacks.Tree(rows)


@dataclass(frozen=True)
class Broken:
    """The groups of fewer rows than promised that two releases show together."""

    combinations: Mapping[Row, int]
    added: Mapping[Row, int]
    gone: Mapping[Row, int]

    def __bool__(self) -> bool:
        return bool(self.combinations or self.added or self.gone)


def find_breaches(first: File, second: File, trees: Mapping[str, Hierarchy]) -> Broken:
    """Hold two files of rows against each other.

    Parameters
    ----------
    first, second:
        The earlier release, and the later.
    trees:
        The hierarchies of all quasi-identifiers of either.
    """
    k = min((file.k for file in (first, second) if file.k is not None), default=LEAST)
    theirs, ours, pairs, attributes = _compare_columns(first, second, trees)
    back = [
        attacks.Attribute(
            attribute.second, attribute.first, attribute.second_levels, attribute.first_levels, attribute.tree
        )
        for attribute in attributes
    ]
    return Broken(
        attacks.complementary(theirs, ours, pairs, attributes, k) if pairs else {},
        attacks.temporal(theirs, ours, pairs, attributes, k),
        attacks.temporal(ours, theirs, [(j, i) for i, j in pairs], back, k),
    )


def are_joined_classes_diverse(
    first: File, second: File, trees: Mapping[str, Hierarchy], specs: Iterable[Mapping[str, Any]]
) -> bool:
    """Whether each joined class, with the maximum number of rows of each value, is as diverse as required."""
    shared = [name for name in first.shown if name in second.shown]
    theirs, ours, pairs, attributes = _compare_columns(first, second, trees)
    labels = sum(attribute.first is not None for attribute in attributes)
    most = attacks.most_rows(
        ((finest, left[labels:]), left, right, n, m)
        for finest, left, right, n, m in attacks.meetings(theirs, ours, pairs, attributes)
    )
    for spec in specs:
        if spec["attribute"] not in shared:
            continue
        classes: dict[Row, Counter[Any]] = defaultdict(Counter)
        for (finest, values), n in most.items():
            classes[finest][values[shared.index(spec["attribute"])]] += n
        if not all(oracle_privacy.is_diverse(counts, spec) for counts in classes.values()):
            return False
    return True


def _compare_columns(
    first: File, second: File, trees: Mapping[str, Hierarchy]
) -> tuple[list[Row], list[Row], list[tuple[int, int]], list[attacks.Attribute]]:
    """The rows of both, the places of the columns that both show, and the quasi-identifiers of either."""
    shared = [name for name in first.shown if name in second.shown]
    first_columns, twos = _columns(first), _columns(second)
    attributes = []
    for name, tree in trees.items():
        if name not in first.levels and name not in second.levels:
            continue  # shared unchanged, or in one of them alone, where it is not a quasi-identifier
        attributes.append(
            attacks.Attribute(
                first_columns.index(name) if name in first_columns else None,
                twos.index(name) if name in twos else None,
                (first.levels.get(name, 0),),
                (second.levels.get(name, 0),),
                paths(tree) if name in first_columns and name in twos else None,
            )
        )
    pairs = [(first_columns.index(name), twos.index(name)) for name in shared]
    return _rows(first, first_columns), _rows(second, twos), pairs, attributes


def exposes(file: File, quasi: Iterable[str], k: int) -> bool:
    """Whether a file by itself shows fewer than k rows for a combination of those of these columns that it has."""
    names = [name for name in quasi if name in _columns(file)]
    return any(n < k for n in Counter(tuple(row[name] for name in names) for row in file.rows).values())


def _columns(file: File) -> list[str]:
    return [*file.levels, *file.shown]


def _rows(file: File, columns: Sequence[str]) -> list[Row]:
    """The rows as text: labels, and values that may be compared with labels."""
    return [tuple([None if row[name] is None else str(row[name]) for name in columns]) for row in file.rows]


__all__ = [
    "Based",
    "Broken",
    "File",
    "Levels",
    "are_joined_classes_diverse",
    "based_releases",
    "exposes",
    "find_breaches",
    "floors",
    "marks",
    "satisfying",
    "solve",
]
