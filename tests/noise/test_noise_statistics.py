"""The noise itself: its distribution, its budget, and that nothing averages it away.

Every test here may fail by chance, with a probability of at most `FALSE_ALARM`. The bounds hold for every number of
draws, not in the limit: of Dvoretzky, Kiefer and Wolfowitz (with Massart's constant) for distributions, and Chernoff's
for means.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import duckdb
import pytest

import sqlanon
from oracles import oracle_noise
from oracles.oracle_noise import STEPS, Noisy
from properties.noise_cases import read_columns
from sqlanon.noise.laplace import laplace_mechanism
from support.lanes import some
from support.policies import make_policy

dp = pytest.importorskip("opendp.prelude", reason="the extra dp is not installed")

pytestmark = pytest.mark.extras

FALSE_ALARM = 1e-6
"""False alarm rate of each test, for any number of bounds."""


# --- bounds of chance -------------------------------------------------------------------------------


def laplace_cdf(t: float) -> float:
    """Of scale 1.

    >>> laplace_cdf(0), round(laplace_cdf(1), 4), round(laplace_cdf(-1), 4)
    (0.5, 0.8161, 0.1839)
    """
    return 1 - math.exp(-t) / 2 if t > 0 else math.exp(t) / 2


def kolmogorov(draws: Sequence[float], cdf: Callable[[float], float] = laplace_cdf) -> float:
    """The greatest difference between the distribution of draws and a continuous one."""
    n = len(draws)
    return max(
        max(abs(cdf(value) - i / n), abs(cdf(value) - (i + 1) / n)) for i, value in enumerate(sorted(draws))
    )  # fmt: skip


def kolmogorov_bound(n: int, tests: int = 1) -> float:
    """Bound that D exceeds with a probability of at most `FALSE_ALARM`: P(D > d) <= 2 exp(-2 n d²)."""
    return math.sqrt(math.log(2 * tests / FALSE_ALARM) / (2 * n))


def mean_bounds(n: int, tests: int = 1) -> tuple[float, float]:
    """Between which the mean of n exponential variables of mean 1 is, but for a probability of `FALSE_ALARM`.

    Chernoff: P(mean beyond t) <= exp(-n (t - 1 - ln t)), on each side.

    >>> [round(bound, 3) for bound in mean_bounds(10_000)]
    [0.947, 1.055]
    """
    allowed = math.log(2 * tests / FALSE_ALARM) / n

    def root(inside: float, outside: float) -> float:
        for _ in range(200):
            middle = (inside + outside) / 2
            if middle - 1 - math.log(middle) < allowed:
                inside = middle
            else:
                outside = middle
        return outside

    return root(1, 1e-12), root(1, 1e6)


def correlation_bound(n: int, tests: int = 1) -> float:
    """Hoeffding, for the mean of n products of signs: P(|mean| > t) <= 2 exp(-n t² / 2)."""
    return math.sqrt(2 * math.log(2 * tests / FALSE_ALARM) / n)


# --- runs -------------------------------------------------------------------------------------------


def records_of(rows: str, epsilons: Sequence[float], **more: dict[str, object]) -> list[Noisy]:
    """Figures of a run for attributes x_0, x_1, ... of a query with classes by q."""
    attributes: dict[str, object] = {"q": "suppress"}
    for j, epsilon in enumerate(epsilons):
        attributes[f"x_{j}"] = {"role": "quasi", "noise": {"epsilon": epsilon, **more.get(f"x_{j}", {})}}
    with duckdb.connect() as connection:
        connection.execute(f"CREATE TABLE t AS {rows}")
        with sqlanon.connect(connection) as db:
            return read_columns(db.anonymize(make_policy(attributes)), len(epsilons)).records


def in_scales(records: Sequence[Noisy], epsilons: Sequence[float], j: int) -> list[float]:
    """The noise of each record, divided by the scale of its class: of scale 1, but for the rounding."""
    b = oracle_noise.scales(records, epsilons)
    return [(record.ys[j] - record.xs[j]) / b[record.place][j] for record in records]


def step(epsilon: float, granularity: float, delta: float) -> float:
    """How far rounding moves a value at most, in scales: half a step of the grid and half of the granularity; and how
    far the whole steps of the noise are from a continuous Laplace variable: half a step more."""
    b = delta / epsilon
    return epsilon / STEPS + granularity / 2 / b


DENSITY = 0.5
"""The greatest density of Laplace noise of scale 1: a move by s changes the distribution by at most s / 2."""


# --- the distribution -------------------------------------------------------------------------------

# Four classes with ranges from 1 to 1000 and all sorts of shapes; ε of three orders of magnitude.
CLASSES = """
    SELECT 'c' || i % 4 AS q,
           [1.0, 10.0, 100.0, 1000.0][1 + i % 4] * (CASE WHEN i < 8 THEN i // 4 ELSE (i * 7919 % 10007) / 10007.0 END)
               + 100 * (i % 4) AS x_0,
           CAST((i % 4 + 1) * 50000 * (CASE WHEN i < 8 THEN i // 4 WHEN i % 3 = 0 THEN 0 ELSE 1 END) AS BIGINT) AS x_1,
           CAST(DATE '2000-01-01' + CAST((i % 4 + 1) * 5000 * (CASE WHEN i < 8 THEN i // 4 ELSE i % 100 / 99.0 END)
               AS INTEGER) AS DATE) AS x_2
    FROM range({rows}) AS r(i)
"""
EPSILONS = (1.0, 0.1, 5.0)


@pytest.fixture(scope="module", params=[6_000, pytest.param(60_000, marks=pytest.mark.thorough)])
def records(request: pytest.FixtureRequest) -> Iterator[list[Noisy]]:
    drawn = records_of(CLASSES.format(rows=request.param), EPSILONS)
    assert len(drawn) == request.param
    yield drawn


def granularities(j: int, delta: float) -> float:
    """At most: a power of two that is less than twice the step of the grid; whole numbers at least 1."""
    return max(2 * delta / STEPS, 0 if j == 0 else 1)


@pytest.mark.thorough
@pytest.mark.parametrize("j", some(range(3), 4))
def test_noise_is_laplace_with_the_scale_of_its_class(j: int, records: list[Noisy]) -> None:
    """Pooled over the classes, each in its own scales: by its distribution, and by its mean size."""
    draws = in_scales(records, EPSILONS, j)
    slack = max(step(EPSILONS[j], granularities(j, d[j]), d[j]) for d in oracle_noise.ranges(records).values())
    assert slack < 0.02
    assert kolmogorov(draws) <= kolmogorov_bound(len(draws), tests=2) + DENSITY * slack
    low, high = mean_bounds(len(draws), tests=2)
    assert low - slack <= sum(map(abs, draws)) / len(draws) <= high + slack


@pytest.mark.thorough
@pytest.mark.parametrize("j", range(3))
def test_noise_of_each_class_is_laplace_with_its_own_scale(j: int, records: list[Noisy]) -> None:
    """A scale that were wrong in one class would hide in the pool."""
    draws = in_scales(records, EPSILONS, j)
    members = oracle_noise.classes(records)
    deltas = oracle_noise.ranges(records)
    assert len(members) == 4 and len({delta[j] for delta in deltas.values()}) == 4
    for place, numbers in members.items():
        class_draws = [draws[i] for i in numbers]
        slack = step(EPSILONS[j], granularities(j, deltas[place][j]), deltas[place][j])
        assert kolmogorov(class_draws) <= kolmogorov_bound(len(class_draws), tests=8) + DENSITY * slack
        low, high = mean_bounds(len(class_draws), tests=8)
        assert low - slack <= sum(map(abs, class_draws)) / len(class_draws) <= high + slack


@pytest.mark.slow
def test_noise_does_not_depend_on_the_value(records: list[Noisy]) -> None:
    """Values at the ends of the range of their class get the same noise as others."""
    for j in (0, 1):
        draws = in_scales(records, EPSILONS, j)
        members = oracle_noise.classes(records)
        for end in (min, max):
            ends = {place: end(records[i].xs[j] for i in some) for place, some in members.items()}
            end_draws = [draws[i] for i, record in enumerate(records) if record.xs[j] == ends[record.place]]
            slack = step(EPSILONS[j], granularities(j, 1000), 1000)
            assert kolmogorov(end_draws) <= kolmogorov_bound(len(end_draws), tests=4) + DENSITY * slack


@pytest.mark.thorough
def test_noise_of_two_attributes_and_of_two_records_is_independent(records: list[Noisy]) -> None:
    """The signs are compared, across the attributes of a record and across consecutive records."""
    signs = [[math.copysign(1, draw) for draw in in_scales(records, EPSILONS, j)] for j in range(3)]
    pairs = [(signs[0], signs[1]), (signs[0], signs[2]), (signs[1], signs[2])]
    pairs += [(sign[:-1], sign[1:]) for sign in signs] + [(sign[:-2], sign[2:]) for sign in signs]
    # Rounding to a value may favour a side, by the share of the draws that it moves over 0.
    slack = 2 * DENSITY * max(
        step(EPSILONS[j], granularities(j, d[j]), d[j]) for d in oracle_noise.ranges(records).values() for j in range(3)
    )  # fmt: skip
    for first, second in pairs:
        mean = sum(a * b for a, b in zip(first, second, strict=True)) / len(first)
        # Successive pairs overlap, so they are bounded as two sets of every other one.
        assert abs(mean) <= math.sqrt(2) * correlation_bound(len(first), tests=18) + slack


def test_the_size_of_noise_is_independent_too(records: list[Noisy]) -> None:
    """Two attributes with one draw of different sign would pass the test of signs: whether both are large."""
    large = [
        [1 if abs(draw) > math.log(2) else -1 for draw in in_scales(records, EPSILONS, j)] for j in range(3)
    ]  # fmt: skip
    slack = 4 * max(
        step(EPSILONS[j], granularities(j, d[j]), d[j]) for d in oracle_noise.ranges(records).values() for j in range(3)
    )  # fmt: skip
    for first, second in ((0, 1), (0, 2), (1, 2)):
        mean = sum(a * b for a, b in zip(large[first], large[second], strict=True)) / len(records)
        assert abs(mean) <= correlation_bound(len(records), tests=3) + slack


# --- the scale follows the range --------------------------------------------------------------------


@pytest.mark.thorough
def test_ten_times_the_range_is_ten_times_the_noise() -> None:
    """The other class has the same values times ten, and noise that is ten times as large."""
    value = "(CASE WHEN i % 2 = 0 THEN 1 ELSE 10 END) * (i // 2 % 101)"
    rows = f"SELECT 'c' || i % 2 AS q, {value} AS x_0 FROM range(12000) AS r(i)"
    drawn = records_of(rows, [1.0])
    members, deltas = oracle_noise.classes(drawn), oracle_noise.ranges(drawn)
    size = {
        deltas[place][0]: oracle_noise.mean(abs(drawn[i].ys[0] - drawn[i].xs[0]) for i in some)
        for place, some in members.items()
    }
    assert set(size) == {100.0, 1000.0}
    low, high = mean_bounds(6000, tests=2)
    for delta, mean in size.items():
        assert mean is not None
        assert low - 0.01 <= mean / delta <= high + 0.01


@pytest.mark.thorough
@pytest.mark.parametrize("epsilon", some([1.0, 0.1, 10.0], 3))
def test_the_observed_error_is_the_expected_one(epsilon: float) -> None:
    """Absolute and relative, of a run's own figures; classes of different ranges and both signs."""
    with duckdb.connect() as connection:
        connection.execute(
            "CREATE TABLE t AS SELECT 'c' || i % 3 AS q, (i % 3 - 1) * 500 + (i % 3 + 1) * (100 + i * 31 % 200) AS x "
            "FROM range(9000) AS r(i)"
        )
        policy = make_policy({"q": "suppress", "x": {"role": "quasi", "noise": {"epsilon": epsilon}}})
        with sqlanon.connect(connection) as db:
            result = db.anonymize(policy)
            assert result.noise is not None
            figures = result.noise["x"]
            records = read_columns(result, 1).records
    b = {place: scale[0] for place, scale in oracle_noise.scales(records, [epsilon]).items()}
    for kind, weights in (
        ("error", [b[record.place] for record in records]),
        ("relative_error", [b[record.place] / abs(record.xs[0]) for record in records if record.xs[0]]),
    ):
        expected, observed = figures[f"expected_{kind}"], figures[f"observed_{kind}"]
        assert expected == pytest.approx(sum(weights) / len(weights))
        # Bernstein for a weighted sum of exponential variables, Σ w (e - 1): P(> t) <= exp(-t² / (2 (Σ w² + max w t))).
        total, squares, most = sum(weights), sum(w * w for w in weights), max(weights)
        nats = math.log(2 * 2 / FALSE_ALARM)
        allowed = (most * nats + math.sqrt((most * nats) ** 2 + 2 * nats * squares)) / total
        rounding = 2 * (epsilon / STEPS + 0.5 / min(b.values()))
        assert abs(observed / expected - 1) <= allowed + rounding


# --- the budget is the record's ---------------------------------------------------------------------

COPIED = "SELECT 'a' AS q, (i * 7919 % 1009) AS x_0, (i * 7919 % 1009) AS x_1 FROM range({rows}) AS r(i)"


@pytest.mark.thorough
@pytest.mark.parametrize("rows", [3000, pytest.param(30_000, marks=pytest.mark.slow)])
def test_two_copies_averaged_are_no_better_than_one_column(rows: int) -> None:
    """Each copy has half of the record's ε, so the mean of both is 3/2 scales of the record's away, not 3/4."""
    epsilon = 1.0
    noise = {"role": "quasi", "noise": {"epsilon": 1}}
    tree = make_policy({"q": "suppress", "x_0": noise, "x_1": noise}).model_dump()
    for name in ("x_0", "x_1"):
        tree["attributes"][name]["noise"] = {}
    tree["privacy"]["epsilon"] = epsilon
    policy = sqlanon.Policy(**tree)
    assert policy.epsilons == {"x_0": 0.5, "x_1": 0.5}
    with duckdb.connect() as connection:
        connection.execute(f"CREATE TABLE t AS {COPIED.format(rows=rows)}")
        with sqlanon.connect(connection) as db:
            result = db.anonymize(policy)
            copies = read_columns(result, 2).records
            assert result.epsilon == epsilon
    delta = oracle_noise.ranges(copies)[copies[0].place][0]
    scale = delta / epsilon
    assert all(copy.xs[0] == copy.xs[1] for copy in copies)
    averaged = [abs((record.ys[0] + record.ys[1]) / 2 - record.xs[0]) / scale for record in copies]
    # 3/2 with a deviation of 1.33: Bernstein's bound with room for the tail, which is that of a mean of exponentials.
    mean = sum(averaged) / rows
    spread = 6 * 1.35 / math.sqrt(rows)
    assert 1.5 - spread - 0.01 <= mean <= 1.5 + spread + 0.01
    assert mean > 1  # what one column with all of the record's ε has
    # And no linear combination of both is better than the better one alone with the record's ε.
    for share in (0.25, 0.4, 0.6, 0.75):
        mixed = (
            sum(abs(share * record.ys[0] + (1 - share) * record.ys[1] - record.xs[0]) for record in copies)
            / scale
            / rows
        )
        assert mixed > 1


# Sizes that are not round in binary, with both ends.
BUDGETS = [
    *(n / 100 for n in range(1, 100, 7)), *(n / 7 for n in range(1, 40, 6)), 1, 2, 3, 4, 8, 10, 1e-3, 1e-4, 1e-6,
    math.pi, math.e, 1 / 3, 0.1 + 0.2, 50, 100, 1000, 1024, 1025, 1e4, 1e6,
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", BUDGETS)
def test_opendp_accounts_for_no_more_than_epsilon(epsilon: float) -> None:
    """In its own accounting, which rounds up: two values of a class are at most 1024 steps apart."""
    mechanism = laplace_mechanism(epsilon)
    assert mechanism.map(STEPS) <= epsilon
    assert mechanism.map(STEPS) >= epsilon * (1 - 1e-9)  # and for no less than it can be used for


@pytest.mark.thorough
def test_the_mechanisms_of_a_run_stay_within_epsilon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mechanisms of a run: the cost of moving by the whole range is at most the attribute's ε."""
    costs: list[float] = []
    real = dp.m.make_laplace

    class Remembered:
        def __init__(self, mechanism: object) -> None:
            self.mechanism = mechanism

        def __call__(self, values: object) -> object:
            costs.append(self.mechanism.map(STEPS))
            return self.mechanism(values)

        def __getattr__(self, name: str) -> object:
            return getattr(self.mechanism, name)

    monkeypatch.setattr(dp.m, "make_laplace", lambda *some, **keywords: Remembered(real(*some, **keywords)))
    epsilons = [0.01, 0.1, 0.3, 1.0, 1 / 3, 2.5, 7.0, 10.0]
    columns = ", ".join(f"i AS x_{j}" for j in range(len(epsilons)))
    records_of(f"SELECT 'a' AS q, {columns} FROM range(20) AS r(i)", epsilons)
    assert len(costs) == len(epsilons)
    for cost, epsilon in zip(sorted(costs), sorted(epsilons), strict=True):
        assert epsilon * (1 - 1e-9) <= cost <= epsilon


@pytest.mark.thorough
def test_values_of_a_class_are_indistinguishable() -> None:
    """The definition itself, on the two values of a class that are farthest apart: for every event the odds differ by
    at most e^ε. Events: the released value is below a threshold."""
    epsilon, rows = 1.0, 16_000
    drawn = records_of(f"SELECT 'a' AS q, i % 2 * 1000 AS x_0 FROM range({rows}) AS r(i)", [epsilon])
    low, high = ([record.ys[0] for record in drawn if record.xs[0] == x] for x in (0.0, 1000.0))
    # Each has the whole noise: nothing is cut off at the ends of the class.
    for x, ys in ((0.0, low), (1000.0, high)):
        draws = [(y - x) / 1000 for y in ys]
        assert kolmogorov(draws) <= kolmogorov_bound(len(draws), tests=4) + DENSITY * step(epsilon, 1, 1000)
    margin = kolmogorov_bound(rows // 2, tests=4)
    for threshold in range(-3000, 4001, 100):
        p, q = (sum(y <= threshold for y in ys) / len(ys) for ys in (low, high))
        assert p - margin <= math.exp(epsilon) * (q + margin)
        assert 1 - q - margin <= math.exp(epsilon) * (1 - p + margin)
        assert q <= p + 2 * margin
    # And it is used: at the lesser value the odds do differ by e^ε.
    p, q = (sum(y <= 0 for y in ys) / len(ys) for ys in (low, high))
    assert p / q > math.exp(epsilon) * 0.7


@pytest.mark.thorough
def test_both_ends_of_a_class_release_the_same_values() -> None:
    """A result that only one of two values can have would distinguish them for certain (Mironov 2012): with few steps
    and much noise every multiple of the granularity nearby comes up for both."""
    rows = 8000
    drawn = records_of(f"SELECT 'a' AS q, (i % 2 * 0.3)::DOUBLE AS x_0 FROM range({rows}) AS r(i)", [1000.0])
    low, high = ({record.ys[0] for record in drawn if record.xs[0] == x} for x in (0.0, 0.3))
    spacing = 2.0**-11  # of 0.3 / 1024 the next power of two
    for values in (low, high):
        assert all((value / spacing).is_integer() for value in values)
    assert {round(value / spacing) for value in low} <= set(range(-40, 700))
    # Each of these values has a chance of more than 0.05 for both.
    wide = records_of(
        f"SELECT 'a' AS q, (i % 2 * 0.3)::DOUBLE AS x_0 FROM range({rows}) AS r(i)", [1.0], x_0={"round": 0.1}
    )
    low_values, high_values = ({value.ys[0] for value in wide if value.xs[0] == x} for x in (0.0, 0.3))
    middle = {round(value, 6) for value in (0.0, 0.1, 0.2, 0.3)}
    assert middle <= {round(value, 6) for value in low_values}
    assert middle <= {round(value, 6) for value in high_values}
