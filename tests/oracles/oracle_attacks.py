"""Attacks, in plain Python on lists of rows: slow and obvious. The queries must find the same."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Row = tuple[Any, ...]


@dataclass(frozen=True)
class Tree:
    """A hierarchy: for each ground value its labels from itself to the top, as texts."""

    paths: Sequence[Row]

    @property
    def height(self) -> int:
        return len(self.paths[0]) - 1


@dataclass(frozen=True)
class Attribute:
    """A quasi-identifier: its places in the rows of the two releases, the levels of its labels there, its tree."""

    first: int | None
    second: int | None
    first_levels: Sequence[int] = (0,)
    second_levels: Sequence[int] = (0,)
    tree: Tree | None = None

    def finer(self, first: Any, second: Any) -> tuple[bool, Any]:
        """Whether two labels go together, and the lower of them."""
        if self.tree is not None:
            for path in self.tree.paths:
                for a in self.first_levels:
                    for b in self.second_levels:
                        if path[a] == first and path[b] == second and a != b:
                            return True, path[min(a, b)]
        return first == second, first


def meet(a: Row, b: Row, shared: Sequence[tuple[int, int]], attributes: Sequence[Attribute]) -> Row | None:
    """The finest values that two rows show together, if they can be the same row."""
    if any(a[i] != b[j] for i, j in shared):
        return None
    values: list[Any] = []
    for attribute in attributes:
        if attribute.first is None or attribute.second is None:
            values.append(b[attribute.second or 0] if attribute.first is None else a[attribute.first])
            continue
        fits, finer = attribute.finer(a[attribute.first], b[attribute.second])
        if not fits:
            return None
        values.append(finer)
    return tuple(values)


def _looks(row: Row, places: Sequence[int | None]) -> Row:
    return tuple(row[place] for place in places if place is not None)


def meetings(
    first: Sequence[Row], second: Sequence[Row], shared: Sequence[tuple[int, int]], attributes: Sequence[Attribute]
) -> list[tuple[Row, Row, Row, int, int]]:
    """Groups of rows that look alike and can be the same: finest values, the labels in both releases, the rows of
    each."""
    first_looks = Counter(_looks(row, [*(a.first for a in attributes), *(i for i, _ in shared)]) for row in first)
    twos = Counter(_looks(row, [*(a.second for a in attributes), *(j for _, j in shared)]) for row in second)
    row_of = {_looks(row, [*(a.first for a in attributes), *(i for i, _ in shared)]): row for row in first}
    to = {_looks(row, [*(a.second for a in attributes), *(j for _, j in shared)]): row for row in second}
    pairs = []
    for look, n in first_looks.items():
        for second_looks, m in twos.items():
            values = meet(row_of[look], to[second_looks], shared, attributes)
            if values is not None:
                pairs.append((values, look, second_looks, n, m))
    return pairs


def complementary(
    first: Sequence[Row],
    second: Sequence[Row],
    shared: Sequence[tuple[int, int]],
    attributes: Sequence[Attribute],
    k: int,
) -> dict[Row, int]:
    """Combinations of finest values for fewer than k rows."""
    labels = sum(a.first is not None for a in attributes)
    greatest = most_rows(
        ((values, look[labels:]), look, two, n, m)
        for values, look, two, n, m in meetings(first, second, shared, attributes)
    )
    rows = Counter[Row]()
    for (values, _), n in greatest.items():  # rows with other shared values are others
        rows[values] += n
    return {values: n for values, n in rows.items() if n < k}


def most_rows(pairs: Iterable[tuple[Any, Any, Any, int, int]]) -> dict[Any, int]:
    """The maximum number of rows that pairs of groups share, by their values: no group shares more rows than it has."""
    rows: dict[Any, tuple[Counter[Any], Counter[Any]]] = defaultdict(lambda: (Counter(), Counter()))
    most: tuple[dict[Any, int], dict[Any, int]] = ({}, {})
    for values, left, right, n, m in pairs:
        for side, group, size in ((0, left, n), (1, right, m)):
            rows[values][side][group] += min(n, m)
            most[side][group] = size
    return {
        values: min(sum(min(n, most[side][group]) for group, n in sides[side].items()) for side in (0, 1))
        for values, sides in rows.items()
    }


def complementary_victims(
    first: Sequence[Row],
    second: Sequence[Row],
    shared: Sequence[tuple[int, int]],
    attributes: Sequence[Attribute],
    k: int,
) -> tuple[int, int]:
    """The number of combinations, and of the rows that have them: the smaller number of both releases."""
    few = complementary(first, second, shared, attributes, k)
    sides: tuple[dict[Row, int], dict[Row, int]] = ({}, {})
    most: tuple[dict[Row, int], dict[Row, int]] = ({}, {})
    for values, first_look, two, n, m in meetings(first, second, shared, attributes):
        if values in few:
            for side, (look, size) in enumerate(((first_look, n), (two, m))):
                sides[side][look] = sides[side].get(look, 0) + min(n, m)
                most[side][look] = size
    counts = [sum(min(n, most[side][look]) for look, n in sides[side].items()) for side in (0, 1)]
    return len(few), min(counts)


def temporal(
    then: Sequence[Row], now: Sequence[Row], shared: Sequence[tuple[int, int]], attributes: Sequence[Attribute], k: int
) -> dict[Row, int]:
    """Classes of `now` with new rows, fewer than k: the most that can be new where as few as possible are."""
    common = [a for a in attributes if a.first is not None and a.second is not None]
    comparable = all(a.tree is None or len(a.first_levels) == len(a.second_levels) == 1 for a in common)
    quasi = [a.second for a in attributes]
    new: Mapping[Row, int] = defaultdict(int)
    if not comparable:
        for (row, _), n in most_unmatched(then, now, shared, common, [*quasi, *(j for _, j in shared)]).items():
            new[_looks(row, quasi)] += n
        return {labels: n for labels, n in new.items() if 0 < n < k}
    groups = Counter((_looks(row, quasi), _looks(row, [j for _, j in shared])) for row in now)
    example = {(_looks(row, quasi), _looks(row, [j for _, j in shared])): row for row in now}
    for (labels, values), n in groups.items():
        key = _key(example[labels, values], shared, common, second=True)
        rows_now = sum(_key(candidate, shared, common, second=True) == key for candidate in now)
        rows_then = sum(_key(candidate, shared, common, second=False) == key for candidate in then)
        new[labels] += min(n, max(rows_now - rows_then, 0))
    return {labels: n for labels, n in new.items() if 0 < n < k}


def most_unmatched(
    then: Sequence[Row],
    now: Sequence[Row],
    shared: Sequence[tuple[int, int]],
    attributes: Sequence[Attribute],
    places: Sequence[int | None],
) -> dict[tuple[Row, Row], int]:
    """For each group of `now` with equal values at some places: most rows without a counterpart in `then`, if as many
    rows as possible are the same: all but the needed ones. By an example and its look."""
    most, new_rows = _most_matched(then, now, shared, attributes), {}
    for look, row in {_looks(row, places): row for row in now}.items():
        remaining = [candidate for candidate in now if _looks(candidate, places) != look]
        needed = most - _most_matched(then, remaining, shared, attributes)
        new_rows[row, look] = len(now) - len(remaining) - needed
    return new_rows


def _most_matched(
    then: Sequence[Row], now: Sequence[Row], shared: Sequence[tuple[int, int]], attributes: Sequence[Attribute]
) -> int:
    """The most rows of two tables that can be the same (H. W. Kuhn, The Hungarian method, 1955)."""
    fits = [[j for j, b in enumerate(now) if meet(a, b, shared, attributes) is not None] for a in then]
    partner: dict[int, int] = {}

    def match(i: int, seen: set[int]) -> bool:
        for j in fits[i]:
            if j not in seen:
                seen.add(j)
                if j not in partner or match(partner[j], seen):
                    partner[j] = i
                    return True
        return False

    return sum(match(i, set()) for i in range(len(then)))


def new_in_unions(
    first: Sequence[Row],
    second: Sequence[Row],
    shared: Sequence[tuple[int, int]],
    attributes: Sequence[Attribute],
    k: int,
    union: str,
) -> tuple[int, int]:
    """Unions of classes that both have, with new rows, but fewer than k; and these rows."""
    common = [a for a in attributes if a.first is not None and a.second is not None]
    classes = [
        *((True, _looks(row, [a.first for a in common])) for row in first),
        *((False, _looks(row, [a.second for a in common])) for row in second),
    ]
    values = [
        *(_looks(row, [i for i, _ in shared]) for row in first),
        *(_looks(row, [j for _, j in shared]) for row in second),
    ]
    regions = {row_class: i for i, row_class in enumerate(dict.fromkeys(classes))}
    pairs = [
        (classes[i], classes[len(first) + j])
        for i, row_class in enumerate(first)
        for j, two in enumerate(second)
        if meet(row_class, two, shared, common) is not None
    ]
    while any(regions[left] != regions[right] for left, right in pairs):
        for left, right in pairs:
            regions[left] = regions[right] = min(regions[left], regions[right])
    if union == "region":
        new = dict.fromkeys(regions.values(), 0)
        for place, value in {(regions[row_class], value) for row_class, value in zip(classes, values, strict=True)}:
            its = [
                regions[row_class] == place and released == value
                for row_class, released in zip(classes, values, strict=True)
            ]
            before = [row for row, is_its in zip(first, its, strict=False) if is_its]
            after = [row for row, is_its in zip(second, its[len(first) :], strict=True) if is_its]
            new[place] += len(after) - _most_matched(before, after, shared, common)
        few = [n for n in new.values() if 0 < n < k]
        return len(few), sum(few)
    changes: dict[Any, Counter[Row]] = defaultdict(Counter)
    sides = set()
    for left, value in zip(classes, values, strict=True):
        place = {"class": left[1], "table": None}[union]
        sides |= {(left[0], place)}
        changes[place][value] += -1 if left[0] else 1
    new = {place: sum(n for n in counts.values() if n > 0) for place, counts in changes.items()}
    few = [n for place, n in new.items() if 0 < n < k and (True, place) in sides]
    return len(few), sum(few)


def _key(row: Row, shared: Sequence[tuple[int, int]], common: Sequence[Attribute], second: bool) -> Row:
    """Values of a row that both releases show: shared values, and labels at the coarser level."""
    parts = [row[pair[second]] for pair in shared]
    for attribute in common:
        label = row[(attribute.second if second else attribute.first) or 0]
        if attribute.tree is None:
            parts.append(label)
            continue
        level, other_level = attribute.first_levels[0], attribute.second_levels[0]
        if second:
            level, other_level = other_level, level
        if max(level, other_level) == attribute.tree.height > 0:
            parts.append(None)
        elif level >= other_level:
            parts.append(label)
        else:
            parts.append(next((path[other_level] for path in attribute.tree.paths if path[level] == label), label))
    return tuple(parts)


def _classes(rows: Sequence[Row], quasi: int) -> dict[Row, Counter[Any]]:
    """The counts of the values of each class, in rows that end in a sensitive value."""
    values_by_class: dict[Row, Counter[Any]] = defaultdict(Counter)
    for row in rows:
        values_by_class[row[:quasi]][row[quasi]] += 1
    return values_by_class


def background_knowledge(rows: Sequence[Row], quasi: int, known_values: int) -> dict[Row, tuple[int, int]]:
    """Classes with at most one value more than the limit: values, rows."""
    classes = _classes(rows, quasi)
    return {key: (len(n), n.total()) for key, n in classes.items() if len(n) <= known_values + 1}


def homogeneity(rows: Sequence[Row], quasi: int) -> dict[Row, tuple[Any, int]]:
    """Classes with one value: it, rows."""
    return {key: (*n, n.total()) for key, n in _classes(rows, quasi).items() if len(n) == 1}


def ratios(rows: Sequence[Row], quasi: int) -> dict[tuple[Row, Any], tuple[float, float, int]]:
    """p, p/q and rows, by class and value."""
    whole = Counter(row[quasi] for row in rows)
    by_value = {}
    for key, counts in _classes(rows, quasi).items():
        for value, n in counts.items():
            p = n / counts.total()
            by_value[key, value] = (p, p / (whole[value] / len(rows)), n)
    return by_value


def similarity(rows: Sequence[Row], quasi: int, tree: Tree) -> dict[Row, tuple[int, Any, int]]:
    """Classes whose values agree below the top: the lowest level, the label there, rows."""
    paths = {path[0]: path for path in tree.paths}
    similar = {}
    for key, counts in _classes(rows, quasi).items():
        for level in range(max(tree.height, 1)):
            labels = {paths[value][level] if value in paths else value for value in counts}
            if len(labels) == 1:
                similar[key] = (level, labels.pop(), counts.total())
                break
    return similar


def composition(
    first: Sequence[Row], second: Sequence[Row], shared: Sequence[tuple[int, int]], attributes: Sequence[Attribute]
) -> Counter[Row]:
    """Finest values, the one value that two classes have in common, and rows: how often."""
    ((i, j),) = shared
    shared_counts: Counter[Row] = Counter()
    first_counts, twos = (
        {_looks(row, places): row for row in rows}
        for rows, places in ((first, [a.first for a in attributes]), (second, [a.second for a in attributes]))
    )
    for look, a in first_counts.items():
        for second_counts, b in twos.items():
            values = meet(a, b, [], attributes)
            mine = Counter(row[i] for row in first if _looks(row, [x.first for x in attributes]) == look)
            theirs = Counter(row[j] for row in second if _looks(row, [x.second for x in attributes]) == second_counts)
            common = mine.keys() & theirs.keys()
            if values is not None and len(common) == 1:
                (value,) = common
                shared_counts[(*values, value, min(mine[value], theirs[value]))] += 1
    return shared_counts


def composition_victims(
    first: Sequence[Row], second: Sequence[Row], shared: Sequence[tuple[int, int]], attributes: Sequence[Attribute]
) -> int:
    """The rows that have the one common value of two classes; the lesser of both sides."""
    ((i, j),) = shared
    sides: tuple[Counter[Row], Counter[Row]] = (Counter(), Counter())
    most: tuple[Counter[Row], Counter[Row]] = (Counter(), Counter())
    first_counts, second_counts = (
        {_looks(row, places): row for row in rows}
        for rows, places in ((first, [a.first for a in attributes]), (second, [a.second for a in attributes]))
    )
    for look, a in first_counts.items():
        for two, b in second_counts.items():
            mine = Counter(row[i] for row in first if _looks(row, [x.first for x in attributes]) == look)
            theirs = Counter(row[j] for row in second if _looks(row, [x.second for x in attributes]) == two)
            common = mine.keys() & theirs.keys()
            if meet(a, b, [], attributes) is not None and len(common) == 1:
                (value,) = common
                for side, key, counts in ((0, (*look, value), mine), (1, (*two, value), theirs)):
                    sides[side][key] += min(mine[value], theirs[value])
                    most[side][key] = counts[value]
    return min(sum(min(n, most[side][key]) for key, n in sides[side].items()) for side in (0, 1))


def by_position(
    first: Sequence[Row],
    second: Sequence[Row],
    shared: Sequence[tuple[int, int]],
    attributes: Sequence[Attribute],
    k: int,
) -> tuple[dict[Row, int], tuple[int, int, float | None]]:
    """Combinations of fewer than k rows; places, those that agree, and the share of all pairs that do."""
    met = [meet(a, b, shared, attributes) for a, b in zip(first, second)]  # noqa: B905  (beyond the shorter table nothing is matched)
    rows = Counter(values for values in met if values is not None)
    every = [meet(a, b, shared, attributes) is not None for a in first for b in second]
    chance = sum(every) / len(every) if every else None
    return {values: n for values, n in rows.items() if n < k}, (len(met), rows.total(), chance)


def chance_by_class(
    first: Sequence[Row],
    second: Sequence[Row],
    shared: Sequence[tuple[int, int]],
    attributes: Sequence[Attribute],
    in_order: bool,
) -> float | None:
    """The mean share of pairs that agree, of the rows that may stand at each place: of the classes of both tables, or
    of the second only the row itself where it is ``in_order``."""
    shares = []
    for a, b in zip(first, second):  # noqa: B905  (as above)
        alike = [row for row in first if all(row[x.first] == a[x.first] for x in attributes if x.first is not None)]
        twos = [two for two in second if all(two[x.second] == b[x.second] for x in attributes if x.second is not None)]
        every = [meet(row, two, shared, attributes) is not None for row in alike for two in ([b] if in_order else twos)]
        shares.append(sum(every) / len(every))
    return sum(shares) / len(shares) if shares else None


def linking(
    release: Sequence[Row], outside: Sequence[Row], attributes: Sequence[Attribute], k: int
) -> tuple[dict[Row, tuple[int, int]], tuple[int, ...]]:
    """The people outside who match fewer than k rows: these rows, the people, and the figures."""
    fits = [[meet(row, candidate, [], attributes) is not None for row in release] for candidate in outside]
    victims: dict[Row, tuple[int, int]] = {}
    for person, row in zip(outside, fits, strict=True):
        if 0 < sum(row) < k:
            look = _looks(person, [a.second for a in attributes])
            victims[look] = (sum(row), victims.get(look, (0, 0))[1] + 1)
    sums = [sum(row) for row in fits]
    columns = [sum(column) for column in zip(*fits, strict=True)] if fits else []
    identified = sum(
        row[i] and sums[j] == 1 and columns[i] == 1 for j, row in enumerate(fits) for i in range(len(release))
    )
    few = [row for row in fits if 0 < sum(row) < k]
    exposed = sum(any(row[i] for row in few) for i in range(len(release)))
    figures = (sums.count(0), sums.count(1), sum(0 < n < k for n in sums), sum(map(bool, columns)), identified, exposed)
    return victims, figures


def split(
    rows: Sequence[Row], levels: Sequence[int], trees: Sequence[Tree], k: int, distinct: int
) -> tuple[dict[Row, tuple[str, int]], dict[Row, tuple[str, int]]]:
    """Downcoding and minimality of a full-domain release of rows that end in a sensitive value: by class, the
    attributes and the rows.
    """
    width = len(trees)

    def meets(some: Sequence[Row]) -> bool:
        return len(some) >= k and len({row[width] for row in some}) >= distinct

    classes: dict[Row, list[Row]] = defaultdict(list)
    for row in rows:
        classes[tuple(_label(row, i, trees[i], levels[i]) for i in range(width))].append(row)
    lower: dict[Row, tuple[str, int]] = {}
    merged: dict[Row, tuple[str, int]] = {}
    for key, members in classes.items():
        if not meets(members):
            continue
        parts = {i: _parts(members, i, trees[i], levels[i] - 1) for i in range(width) if levels[i]}
        bad = {i: [part for part in some if not meets(part)] for i, some in parts.items()}
        fine = [str(i) for i in bad if not bad[i]]
        if fine:
            lower[key] = (", ".join(fine), len(members))
        blamed = {
            str(i): sum(map(len, bad[i]))
            for i, some in parts.items()
            if bad[i] and len(some) > 1 and all(len(part) >= k for part in some)
        }
        if blamed:
            merged[key] = (", ".join(blamed), max(blamed.values()))
    return lower, merged


def _label(row: Row, i: int, tree: Tree, level: int) -> Any:
    return next(path[level] for path in tree.paths if path[0] == row[i])


def _parts(members: Sequence[Row], i: int, tree: Tree, level: int) -> list[list[Row]]:
    parts: dict[Any, list[Row]] = defaultdict(list)
    for row in members:
        parts[_label(row, i, tree, level)].append(row)
    return list(parts.values())


def greatest_flows(
    first: Mapping[int, int], second: Mapping[int, int], edges: Sequence[tuple[int, int]]
) -> list[dict[tuple[int, int], int]]:
    """All maximum flows between two sides with limits, by exhaustive search."""
    greatest, flows = 0, list[dict[tuple[int, int], int]]()
    choices = [range(min(first[a], second[b]) + 1) for a, b in edges]
    for flow in itertools.product(*choices):
        used = Counter[tuple[bool, int]]()
        for (a, b), n in zip(edges, flow, strict=True):
            used[True, a] += n
            used[False, b] += n
        if any(n > (first if is_first else second)[node] for (is_first, node), n in used.items()):
            continue
        if sum(flow) > greatest:
            greatest, flows = sum(flow), []
        if sum(flow) == greatest:
            flows.append(dict(zip(edges, flow, strict=True)))
    return flows
