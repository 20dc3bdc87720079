"""(k,ε)-anonymity in plain Python: what noise costs, who is linked and who is suppressed, the slow and obvious way.

It imports nothing from sqlanon. Records are what `result.noisy` shows: the class, the originals, the released values;
dates as days. Every figure is a loop over all pairs, or the brief's formula word for word.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from oracles import oracle_privacy
from oracles.oracle import Row
from oracles.oracle_privacy import Privacy, Source

STEPS = 1024
"""The steps of the grid that the range of a class is cut into."""


@dataclass(frozen=True)
class Noisy:
    """A record that got noise: its class, and by attribute its original, its released value, and (if that is another)
    the value with noise before it was rounded and cut off."""

    place: Hashable
    xs: tuple[float, ...]
    ys: tuple[float, ...]
    vs: tuple[float, ...] = ()


Records = Sequence[Noisy]
Scales = dict[Hashable, tuple[float, ...]]


def classes(records: Records) -> dict[Hashable, list[int]]:
    """The numbers of the records, by class.

    >>> classes([Noisy("a", (1,), (1,)), Noisy("b", (2,), (2,)), Noisy("a", (3,), (3,))])
    {'a': [0, 2], 'b': [1]}
    """
    members: dict[Hashable, list[int]] = defaultdict(list)
    for i, record in enumerate(records):
        members[record.place].append(i)
    return dict(members)


def ranges(records: Records) -> Scales:
    """Δ: by class and attribute the greatest original less the least."""
    widths = {}
    for place, members in classes(records).items():
        columns = zip(*(records[i].xs for i in members), strict=True)
        widths[place] = tuple(max(column) - min(column) for column in columns)
    return widths


def scales(records: Records, epsilons: Sequence[float]) -> Scales:
    """b = Δ / ε, by class and attribute.

    >>> scales([Noisy("a", (150,), (0,)), Noisy("a", (170,), (0,))], [0.5])
    {'a': (40.0,)}
    """
    return {
        place: tuple(delta / epsilon for delta, epsilon in zip(deltas, epsilons, strict=True))
        for place, deltas in ranges(records).items()
    }


# --- errors -----------------------------------------------------------------------------------------


def mean(values: Iterable[float]) -> float | None:
    some = list(values)
    return math.fsum(some) / len(some) if some else None


def expected_error(records: Records, epsilons: Sequence[float], j: int) -> float | None:
    """The mean of b, which is the mean absolute value of a Laplace variable of scale b."""
    b = scales(records, epsilons)
    return mean(b[record.place][j] for record in records)


def expected_relative_error(records: Records, epsilons: Sequence[float], j: int) -> float | None:
    """The mean of b / |x| over the rows where x is not 0."""
    b = scales(records, epsilons)
    return mean(b[record.place][j] / abs(record.xs[j]) for record in records if record.xs[j] != 0)


def expected_relative_error_by_classes(records: Records, epsilons: Sequence[float], j: int) -> float | None:
    """The formula of the paper: the mean of (Δ / ε) / H over classes by their rows, H the harmonic mean."""
    b = scales(records, epsilons)
    terms, rows = [], 0
    for place, members in classes(records).items():
        magnitudes = [abs(records[i].xs[j]) for i in members if records[i].xs[j] != 0]
        if magnitudes:
            harmonic = len(magnitudes) / math.fsum(1 / x for x in magnitudes)
            terms.append(len(magnitudes) * b[place][j] / harmonic)
            rows += len(magnitudes)
    return math.fsum(terms) / rows if rows else None


def observed_error(records: Records, j: int) -> float | None:
    return mean(abs(record.ys[j] - record.xs[j]) for record in records)


def observed_relative_error(records: Records, j: int) -> float | None:
    return mean(abs(record.ys[j] - record.xs[j]) / abs(record.xs[j]) for record in records if record.xs[j] != 0)


def zero_rows(records: Records, j: int) -> int:
    return sum(record.xs[j] == 0 for record in records)


# --- linking ----------------------------------------------------------------------------------------


def distance(ys: Sequence[float], xs: Sequence[float], b: Sequence[float]) -> float:
    """The greatest |y - x| / b of the attributes with noise; 0 without any.

    >>> distance((5, 9), (3, 6), (4, 2)), distance((5, 9), (3, 6), (4, 0)), distance((5, 9), (3, 6), (0, 0))
    (1.5, 0.5, 0.0)
    """
    return max((abs(y - x) / scale for y, x, scale in zip(ys, xs, b, strict=True) if scale > 0), default=0.0)


def linked_records(
    records: Records, epsilons: Sequence[float], released: Collection[int], strict: bool = False, slack: float = 0.0
) -> list[int]:
    """The released records that are linked to their own original.

    Not strict: no original of the class is nearer than its own. Strict: those of all other records are farther.
    ``slack`` is what counts as equal, relatively: more than 0 in favour of success, less against it.
    """
    b, members = scales(records, epsilons), classes(records)
    linked_records = []
    for i in released:
        record = records[i]
        own_distance = distance(record.ys, record.xs, b[record.place])
        distances = [distance(record.ys, records[j].xs, b[record.place]) for j in members[record.place] if j != i]
        least = min(distances, default=math.inf) * (1 + slack)
        if own_distance < least if strict else own_distance <= least:
            linked_records.append(i)
    return linked_records


def linking_risk(
    records: Records, epsilons: Sequence[float], released: Collection[int], strict: bool = False, slack: float = 0.0
) -> float:
    """The share of the released records that are linked to their own original."""
    return len(linked_records(records, epsilons, released, strict, slack)) / len(released)


# --- confidence -------------------------------------------------------------------------------------


def half_width(b: float, beta: float, attributes: int) -> float:
    """Half of the interval around a noisy value that holds the original with confidence β^(1/m).

    >>> round(half_width(20, 0.5, 1), 4), half_width(20, 0.25, 2) == half_width(20, 0.5, 1)
    (13.8629, True)
    """
    return -b * math.log(1 - beta ** (1 / attributes))


def near(records: Records, epsilons: Sequence[float], beta: float) -> list[int]:
    """n_i: how many originals of its class are, in every attribute, within the half-width of a record with noise.

    An attribute without a range has no noise and reveals nothing, even where rounding moves its value.
    """
    b, members = scales(records, epsilons), classes(records)
    counts = []
    for record in records:
        widths = [half_width(scale, beta, len(epsilons)) for scale in b[record.place]]
        n = 0
        for j in members[record.place]:
            pairs = zip(records[j].xs, record.vs or record.ys, widths, strict=True)
            n += all(width == 0 or v - width <= x <= v + width for x, v, width in pairs)
        counts.append(n)
    return counts


def too_few(records: Records, epsilons: Sequence[float], beta: float, k: int) -> set[int]:
    """The records with 1 <= n_i < k."""
    return {i for i, n in enumerate(near(records, epsilons, beta)) if 1 <= n < k}


def kept_records(
    records: Records, suppressed: Collection[int], meets: Callable[[list[int]], bool], shields: Sequence[Shield] = ()
) -> set[int]:
    """Records left after suppression: without classes that break a requirement, nor those that a shield
    then suppresses, repeated until none is suppressed."""
    left = {
        place: [i for i in members if i not in suppressed] for place, members in classes(records).items()
    }  # fmt: skip
    left = {place: members for place, members in left.items() if members and meets(members)}
    while True:
        broken = {place for shield in shields for place in shield.breaking(left)}
        if not broken:
            return {i for members in left.values() for i in members}
        left = {place: members for place, members in left.items() if place not in broken}


@dataclass(frozen=True)
class Shield:
    """k-anonymity over some of the quasi-identifiers: their labels of a class, and how records are counted."""

    shows: Mapping[Hashable, Row]
    count: Callable[[Sequence[int]], int]
    k: int

    def breaking(self, left: Mapping[Hashable, Sequence[int]]) -> list[Hashable]:
        merged: dict[Row, list[int]] = defaultdict(list)
        for place, members in left.items():
            merged[self.shows[place]].extend(members)
        return [place for place in left if self.count(merged[self.shows[place]]) < self.k]


def survivors(
    records: Records,
    epsilons: Sequence[float],
    beta: float,
    privacy: Privacy,
    source: Source,
    rows: Sequence[oracle_privacy.Record],
    labels: Mapping[Hashable, Mapping[str, object]],
) -> set[int]:
    """β-confident k-anonymity: the released records, after checking all requirements on classes again.

    Parameters
    ----------
    rows:
        The row of the source that each record is of.
    labels:
        What each class shows of its generalized quasi-identifiers.
    """

    def meets(members: list[int]) -> bool:
        some = [rows[i] for i in members]
        if source.count(some) < privacy["k"]:
            return False
        tests = oracle_privacy.OF_VALUES.items()
        return all(holds(source, some, spec) for name, holds in tests for spec in privacy.get(name, ()))

    shields = [
        Shield(
            {place: tuple(visible[name] for name in spec["quasi"]) for place, visible in labels.items()},
            lambda members: source.count([rows[i] for i in members]),
            spec["k"],
        )
        for spec in privacy.get("k_anonymity", ())
    ]
    return kept_records(records, too_few(records, epsilons, beta, privacy["k"]), meets, shields)


# --- granularity ------------------------------------------------------------------------------------


def granularity(delta: Fraction, unit: Fraction, any_sign: bool = False) -> Fraction:
    """r = unit · 2^e, the least that is not below Δ / 1024; e at least 0, but for floats.

    >>> [str(granularity(Fraction(delta), Fraction(1))) for delta in (1, 1024, 1025, 5000)]
    ['1', '1', '2', '8']
    >>> str(granularity(Fraction(1), Fraction(1), any_sign=True)), str(granularity(Fraction(2000), Fraction(1, 100)))
    ('1/1024', '64/25')
    """
    r, g = unit, delta / STEPS
    while r < g:
        r *= 2
    while any_sign and r / 2 >= g > 0:
        r /= 2
    return r
