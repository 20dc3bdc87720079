"""Population uniqueness: the reference's figures, the models solved in another way, known populations."""

from __future__ import annotations

import csv
import math
import random
from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from fractions import Fraction
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from sqlanon.errors import SourceError
from sqlanon.requirements.estimators import Estimator, dankar, pitman, population_uniqueness, snb, zayatz
from support.lanes import examples

Sizes = dict[int, int]

USA = 317_238_626
"""The population of the USA that the reference takes."""

TINY = 1e-9
"""Relative: what may be lost in floating point."""

samples = st.dictionaries(st.integers(1, 40), st.integers(0, 60), max_size=8)
samples_with_uniques = st.builds(lambda sizes, uniques: {**sizes, 1: uniques}, samples, st.integers(1, 60))
growth = st.floats(0, 6).map(lambda exponent: 10.0**exponent)


def sizes_of(rows: Iterable[Hashable]) -> Sizes:
    return dict(Counter(Counter(rows).values()))


def rows_of(sizes: Sizes) -> int:
    return sum(size * classes for size, classes in sizes.items())


def uniques_of(sizes: Sizes) -> float:
    """The sample's uniqueness."""
    return sizes.get(1, 0) / rows_of(sizes)


@pytest.fixture(scope="module")
def adult(data: Path) -> Sizes:
    """Adult with all of its nine attributes as quasi-identifiers."""
    with (data / "adult" / "adult.csv").open(encoding="utf-8", newline="") as file:
        rows = csv.reader(file, delimiter=";")
        next(rows)
        return sizes_of(map(tuple, rows))


# ---- the reference's figures


@pytest.mark.thorough
def test_estimates_of_adult_in_the_usa_match_the_reference(adult: Sizes) -> None:
    assert (rows_of(adult), adult[1]) == (30_162, 15_512)
    assert round(pitman(adult, USA), 4) == 0.0389
    assert round(zayatz(adult, USA), 4) == 0.2646
    assert dankar(adult, USA) == pitman(adult, USA)


@pytest.mark.parametrize(
    ("estimator", "fraction", "share"),
    [
        (pitman, 0.1, 0.27684993883653597),
        (pitman, 0.01, 0.1446083531167384),
        (zayatz, 0.1, 0.3207402393466189),
        (zayatz, 0.2, 0.3577099234829125),
        (dankar, 0.1, 0.27684993883653597),
        (dankar, 1.0, 0.5142895033485844),
    ],
)
def test_estimates_of_adult_match_the_tests_of_the_reference(
    adult: Sizes, estimator: Callable[[Sizes, float], float], fraction: float, share: float
) -> None:
    assert math.isclose(estimator(adult, rows_of(adult) / fraction), share, rel_tol=TINY)


@pytest.mark.parametrize("fraction", [0.1001, 0.2, 0.5])
def test_with_a_large_fraction_the_choice_is_the_smaller_of_two(adult: Sizes, fraction: float) -> None:
    population = rows_of(adult) / fraction
    assert dankar(adult, population) == snb(adult, population) < zayatz(adult, population)
    skewed = {size: round(1000 / size**1.5) for size in range(1, 300)}
    population = rows_of(skewed) / fraction
    assert dankar(skewed, population) == zayatz(skewed, population) < snb(skewed, population)


# ---- the models' own equations, solved in another way


@settings(max_examples=examples(40))
@given(samples_with_uniques, st.integers(0, 300))
def test_zayatz_is_bayes_rule(sizes: Sizes, outside: int) -> None:
    rows = rows_of(sizes)
    population = rows + outside

    def single(size: int) -> Fraction:
        """The chance that a population class of a size has one row in the sample."""
        ways = math.comb(size, 1) * math.comb(population - size, rows - 1)
        return Fraction(ways, math.comb(population, rows))

    weighted_classes = sum(classes * single(size) for size, classes in sizes.items() if classes)
    expected = Fraction(sizes[1], rows) * sizes[1] * single(1) / weighted_classes
    assert math.isclose(zayatz(sizes, population), expected, rel_tol=TINY)


def likelihood(sizes: Sizes, theta: float, alpha: float) -> float:
    """The logarithm of Pitman's formula up to a constant, term by term."""
    classes, rows = sum(sizes.values()), rows_of(sizes)
    if min(theta + alpha, theta + (classes - 1) * alpha, theta + 1) <= 0 or alpha >= 1:
        return -math.inf
    return math.fsum(
        [
            *(math.log(theta + i * alpha) for i in range(1, classes)),
            *(-math.log(theta + i) for i in range(1, rows)),
            *(count * math.log(i - alpha) for size, count in sizes.items() for i in range(1, size)),
        ]
    )


def top(f: Callable[[float], float], low: float, high: float) -> float:
    """The argument of the maximum of a unimodal function, by ternary search."""
    for _ in range(40):
        left, right = low + (high - low) / 3, high - (high - low) / 3
        low, high = (left, high) if f(left) < f(right) else (low, right)
    return (low + high) / 2


def zero(f: Callable[[float], float], low: float, high: float) -> float:
    """The root of an increasing function."""
    assert f(low) < 0 < f(high)
    for _ in range(45):
        middle = (low + high) / 2
        low, high = (middle, high) if f(middle) < 0 else (low, middle)
    return (low + high) / 2


@pytest.mark.thorough
@pytest.mark.parametrize(
    "sizes",
    [
        {1: 60, 2: 21, 3: 9, 5: 4, 12: 2},  # α about 1/2
        {1: 5, 2: 4, 9: 3, 30: 1},
        {1: 9, 2: 8, 3: 9, 5: 6, 9: 5},  # α about −1
        {1: 3, 7: 2, 20: 1},  # α about 0
    ],
)
def test_pitman_is_at_the_top_of_the_likelihood(sizes: Sizes) -> None:
    spread = sum(sizes.values()) - 1

    def theta(least: float, alpha: float) -> float:  # where the least of the θ + iα is e^least
        return math.exp(least) - (alpha if alpha > 0 else spread * alpha)

    def ridge(alpha: float) -> float:
        return top(lambda least: likelihood(sizes, theta(least, alpha), alpha), -3, 7)

    alpha = top(lambda alpha: likelihood(sizes, theta(ridge(alpha), alpha), alpha), -3, 1 - 1e-9)
    best = theta(ridge(alpha), alpha)
    expected = math.gamma(best + 1) / math.gamma(best + alpha) * 1e6 ** (alpha - 1)
    assert math.isclose(pitman(sizes, 1e6), expected, rel_tol=1e-3)


def uniques_and_twins(alpha: float, beta: float, pi: float) -> tuple[float, float]:
    """The chances that a class of the slide negative binomial model has one row, or two, in the sample: sums."""
    uniques = twos = 0.0
    chance, missed = beta**alpha, 1.0  # that the class has `there` rows; that a sample takes none of all but one
    for i in range(1, int(40 / pi)):
        uniques += chance * i * pi * missed
        twos += chance * i * (i - 1) / 2 * pi**2 * missed / (1 - pi)
        chance *= (alpha + i - 1) / i * (1 - beta)
        missed *= 1 - pi
    return uniques, twos


@pytest.mark.thorough
@pytest.mark.parametrize("pi", [0.1, 0.3, 0.6])
def test_snb_solves_the_equations_of_its_model(pi: float) -> None:
    sizes = {1: 300, 2: 80, 3: 40, 4: 20, 9: 6}
    squares = sum(j * pi**2 * (1 - pi**2) ** (j - 1) * s for j, s in sizes.items())
    misses = sum((1 - pi) ** j * ((1 + pi) ** j - 1) * s for j, s in sizes.items())
    unseen = sum((1 - pi) ** j * s for j, s in sizes.items())
    once = sum(j * pi * (1 - pi) ** (j - 1) * s for j, s in sizes.items())
    classes = sum(sizes.values()) + sizes[1] * squares / misses * (unseen / once) ** 2

    def ratio(alpha: float, beta: float) -> float:
        uniques, twos = uniques_and_twins(alpha, beta, pi)
        return twos / uniques

    def alpha_of(beta: float) -> float:
        return math.exp(zero(lambda x: ratio(math.exp(x), beta) - sizes[2] / sizes[1], -12, 3))

    beta = zero(lambda beta: classes * uniques_and_twins(alpha_of(beta), beta, pi)[0] - sizes[1], 0.02, 0.5)
    population = rows_of(sizes) / pi
    assert math.isclose(snb(sizes, population), classes * beta ** alpha_of(beta) / population, rel_tol=1e-6)


# ---- properties


@settings(max_examples=examples(60))
@given(samples, growth)
@example({1: 10**6, 2: 1}, 1000.0)
@example({1: 10**6, 2: 5 * 10**5, 10**8: 9}, 11.0)
@example({1: 1, 10**9: 1}, 10.0)
@example({1: 1, 2: 10**5}, 1e6)
def test_an_estimate_is_a_share_or_none(sizes: Sizes, times: float) -> None:
    population = max(rows_of(sizes), 1) * times
    shares = {name: population_uniqueness(sizes, population, name) for name in get_args(Estimator)}
    for name, share in shares.items():
        assert 0 <= share <= 1 or (math.isnan(share) and name in ("pitman", "snb"))
    assert shares["dankar"] in (shares["pitman"], shares["zayatz"], shares["snb"])
    for name in ("zayatz", "snb"):  # the others of a kind can only be missing from the sample
        assert math.isnan(shares[name]) or not sizes.get(1) or shares[name] <= uniques_of(sizes) * (1 + TINY)


@given(samples, growth)
def test_a_larger_population_has_a_smaller_share_of_uniques(sizes: Sizes, times: float) -> None:
    population = max(rows_of(sizes), 1) * 1.5
    for estimator in (zayatz, pitman):
        first, second = estimator(sizes, population), estimator(sizes, population * times)
        assert second <= first * (1 + TINY) or math.isnan(first)


@pytest.mark.slow
@pytest.mark.parametrize("name", get_args(Estimator))
@given(sizes=samples)
def test_where_the_sample_is_the_population_nothing_is_estimated(name: Estimator, sizes: Sizes) -> None:
    assume(rows_of(sizes))
    assert population_uniqueness(sizes, rows_of(sizes), name) == uniques_of(sizes)


@given(samples_with_uniques)
def test_towards_the_whole_population_the_estimates_become_the_samples_uniqueness(sizes: Sizes) -> None:
    for estimator in (zayatz, dankar):
        assert math.isclose(estimator(sizes, rows_of(sizes) * (1 + 1e-6)), uniques_of(sizes), rel_tol=1e-3)


@pytest.mark.parametrize("name", get_args(Estimator))
def test_estimates_hold_at_the_limits_of_sampling(name: Estimator) -> None:
    assert population_uniqueness({}, 1000, name) == 0
    assert population_uniqueness({1: 0, 3: 0}, 0, name) == 0
    assert population_uniqueness({2: 5, 9: 1}, 1000, name) == 0
    assert population_uniqueness({30: 1}, 1000, name) == 0, "a single class"
    assert population_uniqueness({1: 1}, 1000, name) == 1, "a single row"
    assert population_uniqueness({1: 50}, 1000, name) == 1, "only uniques"


def test_without_an_estimate_the_choice_falls_back() -> None:
    alike = {1: 1, 2: 10**4}  # the classes are so alike in size that no maximum exists
    assert math.isnan(pitman(alike, 1e9))
    assert dankar(alike, 1e9) == zayatz(alike, 1e9) > 0
    no_pairs = {1: 10, 3: 4}  # no class of two, which the model's equations need
    assert math.isnan(snb(no_pairs, 40))
    assert dankar(no_pairs, 40) == zayatz(no_pairs, 40) > 0
    above_one = {1: 10**6, 2: 1}  # the formula for large populations gives more uniques than rows
    assert math.isnan(pitman(above_one, 1e9))


def test_impossible_class_sizes_are_refused() -> None:
    with pytest.raises(SourceError, match="a population of 10 is smaller than the table's 11 rows"):
        population_uniqueness({1: 5, 6: 1}, 10)
    for population in (math.nan, math.inf):
        with pytest.raises(ValueError, match="finite"):
            population_uniqueness({1: 5}, population)
    for sizes in ({0: 1}, {1: -1}):
        with pytest.raises(ValueError, match="class sizes"):
            population_uniqueness(sizes, 10)


# ---- known populations


def pitmans_population(rng: random.Random, rows: int, theta: float, alpha: float) -> list[int]:
    """A random partition by Pitman's scheme: a new class with probability (θ + uα)/(θ + i), else an old one."""
    population: list[int] = []
    counts: list[int] = []
    for i in range(rows):
        if rng.random() * (theta + i) < theta + len(counts) * alpha:
            chosen = len(counts)
            counts.append(0)
        else:
            chosen = rng.choice(population)
            while rng.random() < alpha / counts[chosen]:
                chosen = rng.choice(population)
        counts[chosen] += 1
        population.append(chosen)
    return population


def slide_population(rng: random.Random, classes: int, whole: int, beta: float) -> list[int]:
    """Classes of 1 plus a negative binomial number of rows, with a whole α: the failures before α successes."""

    def failures() -> int:
        return int(math.log(1 - rng.random()) / math.log(1 - beta))

    return [kind for kind in range(classes) for _ in range(1 + sum(failures() for _ in range(whole)))]


def zipfs_population(rng: random.Random, rows: int) -> list[int]:
    weights = [1 / (rank + 10) ** 1.1 for rank in range(2 * rows)]
    return rng.choices(range(2 * rows), weights, k=rows)


@pytest.mark.slow
@pytest.mark.parametrize("fraction", [0.05, 0.1, 0.4])
def test_pitman_finds_the_uniques_of_a_population_of_its_kind(fraction: float) -> None:
    rng = random.Random(11)
    population = pitmans_population(rng, 20_000, theta=100, alpha=0.5)
    sample = rng.sample(population, int(fraction * len(population)))
    truth = uniques_of(sizes_of(population))
    assert uniques_of(sizes_of(sample)) > 1.3 * truth, "else there is nothing to find"
    assert math.isclose(pitman(sizes_of(sample), len(population)), truth, rel_tol=0.35)


@pytest.mark.parametrize("fraction", [0.3, 0.6])
def test_snb_finds_the_uniques_of_a_population_of_its_kind(fraction: float) -> None:
    rng = random.Random(12)
    population = slide_population(rng, 10_000, whole=1, beta=0.25)
    sample = rng.sample(population, int(fraction * len(population)))
    truth = uniques_of(sizes_of(population))
    assert uniques_of(sizes_of(sample)) > 1.3 * truth, "else there is nothing to find"
    assert math.isclose(snb(sizes_of(sample), len(population)), truth, rel_tol=0.35)


@pytest.mark.slow
@pytest.mark.parametrize("fraction", [0.05, 0.1, 0.2, 0.5])
def test_the_choice_comes_near_the_truth_in_a_skewed_population(fraction: float) -> None:
    rng = random.Random(13)
    population = zipfs_population(rng, 40_000)
    sample = rng.sample(population, int(fraction * len(population)))
    assert math.isclose(dankar(sizes_of(sample), len(population)), uniques_of(sizes_of(population)), rel_tol=0.35)
