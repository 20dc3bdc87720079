"""Estimators of population uniqueness: the share of people who are unique in the population, estimated from a sample.

A row that is unique in the table (the sample) may not be unique in the population. The estimators use the sizes of the
table's classes. Their symbols are those of Dankar et al.:

- ``n``, ``N``: rows of the sample and of the population; ``π = n / N``, the sampling fraction.
- ``u``, ``K``: classes of the sample and of the population.
- ``s_j``, ``S_j``: classes of size j in the sample (``sizes[j]``) and in the population. Known: s. Estimated: S_1.

**Unit.** Every function returns ``S_1 / N``, the estimated share of the *population's* rows that are unique in the
population. A simple random sample includes each of these with probability π, so this is also the expected share of the
*sample's* rows that are unique in the population: π S_1 / n = S_1 / N. It is not the share of the sample's uniques; for
that, divide by ``s_1 / n``. If classes count persons, read persons for rows.

**Special cases.** No uniques in the sample, or an empty table: 0. The sample is the population: ``s_1 / n``. Only
uniques in the sample: 1, the limit of all the models. NaN: the estimator has no estimate, and no limit is met, because
``nan <= limit`` is false.

Sources
-------
- F. K. Dankar, K. El Emam, A. Neisa, T. Roffey, "Estimating the re-identification risk of clinical data sets",
  BMC Medical Informatics and Decision Making 12:66 (2012); its appendix A sums up the three models.
- L. Zayatz, "Estimation of the number of unique population elements using a sample", Proceedings of the Section on
  Survey Research Methods, American Statistical Association (1991).
- N. Hoshino, "Applying Pitman's sampling formula to microdata disclosure risk assessment", Journal of Official
  Statistics 17 (2001).
- G. Chen, S. Keller-McNulty, "Estimation of identification disclosure risk in microdata", Journal of Official
  Statistics 14 (1998).
- P. J. Haas, L. Stokes, "Estimating the number of classes in a finite population", Journal of the American
  Statistical Association 93 (1998).

The labels (Z), (P1) ... (S4) are those of this file, not of the papers. The figures were compared with the ARX Data
Anonymization Tool, called the reference below; docstrings explain the differences.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from sqlanon.errors import SourceError

Estimator = Literal["dankar", "pitman", "zayatz", "snb"]
"""The names of the estimators in a policy."""


def population_uniqueness(sizes: Mapping[int, int], population: float, estimator: Estimator = "dankar") -> float:
    """The estimated share of the population's rows that are unique in the population.

    >>> round(population_uniqueness({1: 40, 2: 20, 5: 4}, population=1000, estimator="zayatz"), 4)
    0.1794
    >>> population_uniqueness({1: 40, 2: 20, 5: 4}, population=100)  # the sample is the population
    0.4
    """
    functions = {"dankar": dankar, "pitman": pitman, "zayatz": zayatz, "snb": snb}
    return functions[estimator](sizes, population)


def dankar(sizes: Mapping[int, int], population: float) -> float:
    """The choice of Dankar et al. (2012) between the estimators; never NaN.

    - π <= 0.1: Pitman's estimate; without one, Zayatz's.
    - π > 0.1: the smaller one of SNB's and Zayatz's; without SNB's, Zayatz's.

    The paper decides by the sampling fraction and by the difference between estimates. The threshold of 0.1, the choice
    of the smaller one, and the fallbacks follow the reference. As in the reference, an estimate of 0 counts as none,
    because the sample has uniques. Unlike the reference, `snb` solves the equations of the model (see there), and often
    has an estimate where the reference falls back to Zayatz's.
    """
    return dankar_choice(sizes, population)[1]


def dankar_choice(sizes: Mapping[int, int], population: float) -> tuple[Estimator | None, float]:
    """The estimator that `dankar` chooses, and its estimate; None and the share if it is known exactly.

    >>> dankar_choice({1: 40, 2: 20, 5: 4}, population=100)
    (None, 0.4)
    """
    sample = _Sample.from_sizes(sizes, population)
    if sample.known_share is not None:
        return None, sample.known_share
    zayatz_share = zayatz(sizes, population)
    if sample.rows <= 0.1 * sample.population:
        share = pitman(sizes, population)
        return ("pitman", share) if share > 0 else ("zayatz", zayatz_share)  # NaN is not above 0
    share = snb(sizes, population)
    return ("snb", share) if 0 < share < zayatz_share else ("zayatz", zayatz_share)


def zayatz(sizes: Mapping[int, int], population: float) -> float:
    """The equivalence class model of Zayatz (1991): no parameters, always an estimate.

    Bayes' rule gives the probability that a class of one in the sample (f = 1) is one in the population (F = 1); the
    unknown share p_j of the population's classes that have size j is taken from the sample, p_j = s_j / u:

    (Z)  P(F=1 | f=1) = p_1 P(f=1 | F=1) / Σ_j p_j P(f=1 | F=j),    S_1 = s_1 P(F=1 | f=1) / π

    P(f=1 | F=j) is hypergeometric, j C(N-j, n-1) / C(N, n) = j π × Π_{i=0}^{j-2} (N-n-i) / (N-1-i). The factor π
    cancels out.
    """
    sample = _Sample.from_sizes(sizes, population)
    if sample.known_share is not None:
        return sample.known_share
    # missed: the product above, the probability that the other rows are not in the sample
    total, missed, steps = 0.0, 1.0, 0
    for size, classes in sorted(sample.sizes.items()):
        while steps < size - 1 and missed > 1e-30:  # smaller terms do not change the sum
            missed *= max(sample.population - sample.rows - steps, 0) / (sample.population - 1 - steps)
            steps += 1
        total += classes * size * missed
    return sample.uniques / sample.rows * (sample.uniques / total)


def pitman(sizes: Mapping[int, int], population: float) -> float:
    """Pitman's sampling formula, fitted by maximum likelihood (Hoshino 2001); NaN without a maximum.

    Sample and population are modelled as random partitions with two parameters, α < 1 and θ. Up to a constant,
    the logarithm of the sample's likelihood is

    L = Σ_{i=1}^{u-1} ln(θ + iα) − Σ_{i=1}^{n-1} ln(θ + i) + Σ_j s_j Σ_{i=1}^{j-1} ln(i − α)

    so that at its maximum

    (P1)  ∂L/∂θ = Σ_{i=1}^{u-1} 1/(θ + iα) − Σ_{i=1}^{n-1} 1/(θ + i) = 0
    (P2)  ∂L/∂α = Σ_{i=1}^{u-1} i/(θ + iα) − Σ_j s_j Σ_{i=1}^{j-1} 1/(i − α) = 0
    (P3)  S_1 = N^α Γ(θ + 1) / Γ(θ + α)

    (P3) is the limit of the formula's expectation N × Π_{i=0}^{N-2} (θ + α + i)/(θ + 1 + i) for a large N; it
    overshoots where N is not large compared with θ (by 0.3 % for the Adult table and π = 0.1). A share above 1
    counts as no estimate.

    All θ + iα have to be positive. As in the reference, α < 0 (classes of similar size; finitely many, θ/−α) is
    allowed: without it, many tables with few uniques would have no estimate.
    """
    sample = _Sample.from_sizes(sizes, population)
    if sample.known_share is not None:
        return sample.known_share

    def slope(z: float) -> float:  # (P2) along (P1), as a logarithm of its two sums
        alpha = -math.expm1(z)
        gains = _weighted_sum(_theta(alpha, sample), alpha, sample.classes)
        return math.log(gains) - math.log(_within_sum(alpha, sample.sizes))

    # α = 1 − e^z, from almost 1 to −100, beyond which the classes have practically equal sizes
    alpha = -math.expm1(_root(slope, math.log(1e-12), math.log(101)))
    if math.isnan(alpha):
        return math.nan
    theta = _theta(alpha, sample)
    if theta > 1e6:  # two large logarithms would leave few digits: their difference as a series in 1/θ
        gammas = (1 - alpha) * (math.log(theta) + alpha / (2 * theta))
    else:
        gammas = math.lgamma(theta + 1) - math.lgamma(theta + alpha)
    share = gammas + (alpha - 1) * math.log(sample.population)
    return math.exp(share) if share <= 0 else math.nan


def snb(sizes: Mapping[int, int], population: float) -> float:
    """The slide negative binomial model of Chen and Keller-McNulty (1998); NaN if its equations have no solution.

    The size of a population class is 1 plus a negative binomial number: its generating function is
    G(x) = x (β / (1 − (1 − β) x))^α, α > 0, 0 < β < 1. So the share G'(0) = β^α of the classes has size 1:

    (S1)  S_1 = K β^α

    Each row is in the sample with probability π, so a class has size j in the sample with probability
    π^j G^(j)(1 − π) / j!. With D = 1 − (1 − π)(1 − β) and t = α (1 − D) / D:

    (S2)  s_1 = K π (β/D)^α (1 + t)
    (S3)  s_2 / s_1 = π/(1 − π) × t (1 + 1/D + t) / (2 (1 + t))

    K comes from (S4), see `_shlosser`. For any β, (S3) is a quadratic equation with one positive root t, which leaves
    one unknown in (S2).

    The reference solves other equations: it multiplies s_2 by D^(α+2) instead of dividing, and in (S4) subtracts 1
    after the multiplication, not before. It has no estimate for the Adult table and π = 0.2, where this one is 0.319.
    """
    sample = _Sample.from_sizes(sizes, population)
    if sample.known_share is not None:
        return sample.known_share
    pi = sample.rows / sample.population
    classes = _shlosser(sample, pi)
    ratio = 2 * (1 - pi) / pi * sample.sizes.get(2, 0) / sample.uniques
    if not ratio:
        return math.nan  # t = 0 would mean that all population classes have size 1

    def parameters(z: float) -> tuple[float, float]:  # α and t for β / (1 − β) = e^z
        beta, complement = 1 / (1 + math.exp(-z)), 1 / (1 + math.exp(z))
        d = pi + (1 - pi) * beta
        half = (1 + 1 / d - ratio) / 2  # (S3): t² + 2 half t − ratio = 0
        root = math.hypot(half, math.sqrt(ratio))
        t = ratio / (half + root) if half > 0 else root - half  # the form without cancellation
        return t * d / ((1 - pi) * complement), t

    def excess(z: float) -> float:  # the logarithm of (S2)'s right side / left side; D/β = 1 + π (1 − β)/β
        alpha, t = parameters(z)
        return math.log(classes * pi / sample.uniques) - alpha * math.log1p(pi * math.exp(-z)) + math.log1p(t)

    z = _root(excess, -700.0, 30.0)
    if math.isnan(z):
        return math.nan
    alpha, _ = parameters(z)
    return classes / sample.population * math.exp(-alpha * math.log1p(math.exp(-z)))


@dataclass(frozen=True)
class _Sample:
    """A validated sample and its population: n, u, s_1 and N."""

    sizes: Mapping[int, int]
    population: float
    rows: int
    classes: int
    uniques: int

    @classmethod
    def from_sizes(cls, sizes: Mapping[int, int], population: float) -> _Sample:
        if any(size < 1 or classes < 0 for size, classes in sizes.items()):
            raise ValueError("class sizes are at least 1, and their numbers at least 0")
        if not math.isfinite(population):
            raise ValueError(f"a population is a finite number of rows, not {population}")
        rows = sum(size * classes for size, classes in sizes.items())
        if population < rows:
            raise SourceError(
                f"a population of {population:g} is smaller than the table's {rows} rows: "
                "give the number of people that the table was drawn from"
            )
        nonzero = {size: classes for size, classes in sizes.items() if classes}
        return cls(nonzero, population, rows, sum(nonzero.values()), nonzero.get(1, 0))

    @property
    def known_share(self) -> float | None:
        """The share, if it needs no estimate."""
        if not self.uniques:
            return 0.0
        if self.rows in (self.uniques, self.population):
            return self.uniques / self.rows
        return None


def _shlosser(sample: _Sample, pi: float) -> float:
    """The estimated classes K of the population: Shlosser's estimator as modified by Haas and Stokes (1998).

    (S4)  K = u + s_1 × Σ j π² (1−π²)^(j−1) s_j / Σ (1−π)^j ((1+π)^j − 1) s_j × (Σ (1−π)^j s_j / Σ j π (1−π)^(j−1) s_j)²
    """
    log_missed, log_missed_squared = math.log1p(-pi), math.log1p(-pi * pi)  # ln(1−π), ln(1−π²)
    above = below = unseen = once = 0.0
    for size, classes in sample.sizes.items():
        above += classes * size * pi * pi * math.exp((size - 1) * log_missed_squared)
        below += classes * math.exp(size * log_missed_squared) * -math.expm1(-size * math.log1p(pi))
        unseen += classes * math.exp(size * log_missed)
        once += classes * size * pi * math.exp((size - 1) * log_missed)
    return sample.classes + sample.uniques * (above / below) * (unseen / once) ** 2


def _theta(alpha: float, sample: _Sample) -> float:
    """θ that solves (P1) for an α. The unknown is the least θ + iα, which has to be positive."""
    low = -alpha if alpha > 0 else -(sample.classes - 1) * alpha  # a lower bound of θ

    def slope(y: float) -> float:  # the logarithm of (P1)'s first sum / its second
        least = math.exp(y)
        first = _harmonic_sum(least, abs(alpha), sample.classes - 1)
        second = _harmonic_sum(least + (low + 1), 1.0, sample.rows - 1)
        return math.log(first) - math.log(second)

    return low + math.exp(_root(slope, -60.0, 60.0))


def _within_sum(alpha: float, sizes: Mapping[int, int]) -> float:
    """The second sum of (P2): Σ_j s_j Σ_{i=1}^{j-1} 1/(i − α)."""
    total = inner = 0.0
    last = 1
    for size, classes in sorted(sizes.items()):
        inner += _harmonic_sum(last - alpha, 1.0, size - last)
        total += classes * inner
        last = size
    return total


def _weighted_sum(theta: float, alpha: float, classes: int) -> float:
    """The first sum of (P2): Σ_{i=1}^{u-1} i/(θ + iα)."""
    m = classes - 1
    if abs(alpha) * m < 1e-3 * theta:  # a power series in α/θ, because the other form divides by α, which may be 0
        i1, i2 = m * (m + 1) / 2, m * (m + 1) * (2 * m + 1) / 6  # Σ i, Σ i²; then Σ i³, Σ i⁴
        i3, i4, x = i1 * i1, i2 * (3 * m * m + 3 * m - 1) / 5, alpha / theta
        return (i1 - x * (i2 - x * (i3 - x * i4))) / theta
    least = theta + (alpha if alpha > 0 else m * alpha)
    return (m - theta * _harmonic_sum(least, abs(alpha), m)) / alpha


def _harmonic_sum(first: float, step: float, count: int) -> float:
    """Σ_{i=0}^{count-1} 1/(first + i step), first > 0, step >= 0: the first terms, then Euler and Maclaurin's formula.

    >>> math.isclose(_harmonic_sum(0.5, 0.1, 1000), math.fsum(1 / (0.5 + 0.1 * i) for i in range(1000)), rel_tol=1e-13)
    True
    """
    total, done = 0.0, 0
    while done < count and first + done * step < 32 * step:  # until the formula's next term is below 1e-14
        total += 1 / (first + done * step)
        done += 1
    if done == count:
        return total
    if not step:
        return count / first
    low, span = first + done * step, (count - 1 - done) * step
    high = low + span
    a, b = (step / low) ** 2, (step / high) ** 2
    correction = (a - b) / 12 - (a**2 - b**2) / 120 + (a**3 - b**3) / 252
    return total + (math.log1p(span / low) + correction) / step + (1 / low + 1 / high) / 2


def _root(f: Callable[[float], float], low: float, high: float) -> float:
    """Find a root of f between low and high by Ridders' method; NaN if f does not change its sign.

    Every step at least halves the bracket, so 100 steps are more than enough.
    """
    at_low, at_high = f(low), f(high)
    if not at_low * at_high < 0:
        return math.nan
    last = math.inf
    for _ in range(100):
        middle = (low + high) / 2
        at_middle = f(middle)
        shift = at_middle / math.hypot(at_middle, math.sqrt(-at_low * at_high))
        x = middle + (middle - low) * math.copysign(1, at_low) * shift
        at_x = f(x)
        if at_x == 0 or abs(x - last) < 1e-13 or high - low < 1e-13:
            return x
        last = x
        ends = sorted([(low, at_low), (middle, at_middle), (x, at_x), (high, at_high)])
        for (left, at_left), (right, at_right) in pairwise(ends):
            if at_left * at_right < 0:
                low, at_low, high, at_high = left, at_left, right, at_right
                break
    return math.nan
