"""The levels that a policy permits, against plain Python, and limits beyond a hierarchy."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import duckdb
import pytest

from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.engines.statement_runner import StatementRunner
from sqlanon.hierarchies.levels import find_level_problems, find_permitted_levels, warn_of_levels_above_top
from sqlanon.policy import Attribute
from sqlanon.support.expressions import table


def test_permitted_levels_are_those_within_the_limits_that_are_not_forbidden() -> None:
    height, levels = 3, range(4)
    for low, high in itertools.product(levels, [*levels, None, 9]):
        for count in range(3):
            for forbidden in itertools.combinations(levels, count):
                spec = SimpleNamespace(min_level=low, max_level=high)
                policy: Any = SimpleNamespace(generalized_attributes=["x"], attributes={"x": spec})
                permitted = find_permitted_levels(policy, (height,), [frozenset(forbidden)])
                within = [level for level in levels if low <= level and (high is None or level <= high)]
                allowed = [level for level in within if level not in forbidden]
                if not within:
                    continue  # the policy is refused
                holes = permitted.forbidden[0] if permitted.forbidden else frozenset()
                span = [*range(permitted.lowest[0], permitted.highest[0] + 1)]
                assert [level for level in span if level not in holes] == allowed
                assert span == ([*range(allowed[0], allowed[-1] + 1)] if allowed else within)
    high_limit = SimpleNamespace(min_level=7, max_level=None)
    policy = SimpleNamespace(generalized_attributes=["x"], attributes={"x": high_limit})
    assert find_permitted_levels(policy, (3,))[:2] == ((3,), (3,))  # of a mask: its top


@pytest.fixture
def engine() -> Iterator[DuckDBEngine]:
    with closing(DuckDBEngine(duckdb.connect())) as engine:
        engine.connection.execute("CREATE TABLE tree AS SELECT 7 AS level_0, '5-9' AS level_1, '*' AS level_2")
        yield engine


@pytest.mark.parametrize(
    ("limits", "places"),
    [
        ({"min_level": 2}, []),
        ({"min_level": 3}, ["min_level"]),
        ({"max_level": 2}, []),
        ({"max_level": 3}, ["max_level"]),
        ({"forbidden": ("5-9",)}, []),
        ({"forbidden": ("7",)}, []),
        ({"forbidden": ("*",)}, []),
        ({"forbidden": ("5-10",)}, ["forbidden"]),
        ({"forbidden": ("5-9", "8")}, ["forbidden"]),
    ],
)
def test_limits_and_forbidden_labels_are_in_the_hierarchy(
    limits: dict[str, Any], places: list[str], engine: DuckDBEngine
) -> None:
    runner, columns = StatementRunner(engine), ["level_0", "level_1", "level_2"]
    spec = Attribute(role="quasi", hierarchy={"intervals": [5]}).model_copy(update=limits)
    problems = find_level_problems(runner, "age", spec, table("tree"), columns)
    assert [problem.place.removeprefix("attributes.age.") for problem in problems] == places
    mask = Attribute(role="quasi", hierarchy={"mask": "right"}).model_copy(update=limits)
    of_mask = [problem.place for problem in find_level_problems(runner, "age", mask, table("tree"), columns)]
    assert of_mask == [f"attributes.age.{place}" for place in places if place == "forbidden"]


def test_a_mask_that_is_lower_than_its_limit_is_warned_of() -> None:
    mask = Attribute(role="quasi", hierarchy={"mask": "right"})
    ages = Attribute(role="quasi", hierarchy={"intervals": [5]})
    for least, warned in ((3, []), (4, ["zip"])):
        attributes = {
            name: spec.model_copy(update={"min_level": least}) for name, spec in (("zip", mask), ("age", ages))
        }
        policy: Any = SimpleNamespace(attributes=attributes)
        notices = warn_of_levels_above_top(policy, {"zip": 3, "age": 3})
        assert [notice.message.split(".")[1] for notice in notices] == warned
