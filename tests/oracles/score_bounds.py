"""Scores, and comparisons that allow for rounding."""

from __future__ import annotations

from oracles import oracle
from oracles.oracle import Levels, Release
from properties.random_cases import Case


def at_most(low: Levels, high: Levels) -> bool:
    return all(a <= b for a, b in zip(low, high, strict=True))


def cost(case: Case, release: Release) -> float:
    """The score by the oracle; lower is better."""
    score = oracle.score(release, case.measure, case.aggregate, case.weights)
    return -score if case.measure in oracle.MAXIMISED else score


def holds(bound: float, score: float) -> bool:
    return bound <= score + 1e-12 * abs(score)
