"""The number of examples and cases that each lane of the suite runs."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import Any

import pytest

EXAMPLES = float(os.environ.get("SQLANON_EXAMPLES", "1"))
"""Factor for the usual number of examples of each property; above 1 for a run overnight before a release."""


def examples(usual: int) -> int:
    """The number of examples that a property draws."""
    return max(1, round(EXAMPLES * usual))


def draw_tables(least: int, usual: int) -> int:
    """The number of random tables that an oracle check draws: as `examples`, but never fewer than ``least``, since a
    single table misses most faults."""
    return max(least, examples(usual))


SEARCHING = EXAMPLES >= 1
"""Whether properties draw new examples on every run. If few are drawn, as in CI, they stay the same, so that a failure
comes from the change."""


_FIRST_MARK = re.compile(r"^pytestmark = \[?\s*pytest\.mark\.(\w+)", re.MULTILINE)


def is_of_other_lane(module: str, selected: str, searching: bool = SEARCHING) -> bool:
    """Whether the first mark of a test module keeps all its tests out of a selection by ``-m``.

    Thorough tests run only in searches.

    >>> text = "import pytest\\n\\npytestmark = [pytest.mark.spark, pytest.mark.usefixtures('folder')]"
    >>> is_of_other_lane(text, "not slow and not extras"), is_of_other_lane(text, "slow or extras")
    (True, False)
    >>> is_of_other_lane("pytestmark = pytest.mark.thorough", "slow", searching=False)
    True
    """
    found = _FIRST_MARK.search(module)
    mark = found[1] if found else ""
    if mark == "thorough" and not searching:
        return True
    left_out = re.findall(r"\bnot (\w+)", selected)
    return mark in left_out or (mark in {"thorough", "spark"} and "slow" in left_out)


def group_cases(items: Iterable[pytest.Item]) -> list[list[pytest.Item]]:
    """The cases of each test."""
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    return list(cases.values())


def share(cases: list[Any], least: int = 1) -> list[Any]:
    """The same share of the cases as of the examples, evenly spread; two cases are two facts, and both run."""
    return cases if len(cases) <= 2 else spread(cases, max(least, examples(len(cases))))


def spread(cases: list[Any], number: int) -> list[Any]:
    """A number of the cases, evenly spread."""
    number = min(len(cases), number)
    return [cases[i * len(cases) // number] for i in range(number)]


def some(values: Iterable[Any], every: int, few: int = 1) -> list[Any]:
    """Values as parameters, tuples as several. Every ``every``-th value, from the first, is in the quick lane.

    The slow lane has every ``few``-th of all values, or all if ``SQLANON_EXAMPLES`` is above 1.
    """
    return [
        pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=[pytest.mark.slow] if i % every else [])
        for i, value in enumerate(values)
        if not i % every or not i % few or EXAMPLES > 1
    ]
