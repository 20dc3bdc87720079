"""Two linked releases of the same persons can exist at the same time only if one of them gives the other."""

from __future__ import annotations

import itertools
import random
from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence
from pathlib import Path

import duckdb
import pytest

from oracles.oracle_linked import LinkedDatabase, Outcome, evaluate
from properties.linked_cases import LinkedCase, small_cases
from sqlanon.database import connect
from sqlanon.errors import AuditError
from sqlanon.linked.publish.stage import LinkedRelease
from sqlanon.policy.linked import LinkedPolicy
from sqlanon.support.coding import Levels
from support.lanes import draw_tables

pytestmark = pytest.mark.slow


def publish(case: LinkedCase, folder: Path, name: str, levels: Levels) -> LinkedRelease:
    """Publish the only generalization that the policy permits, with a catalog that all releases share."""
    tree = case.policy(
        source={"database": str(folder / "source.duckdb")}, catalog={"database": str(folder / "private.duckdb")}
    )
    numbers = iter(levels)
    for section, table in zip(tree["table"], case.database.tables, strict=True):
        for attribute in table.names:
            level = next(numbers)
            section["attributes"][attribute] |= {"min_level": level, "max_level": level}
    with connect() as db:
        return db.anonymize(LinkedPolicy(**tree)).publish(folder / name)


def released_persons(path: Path, database: LinkedDatabase, levels: Levels, raised_levels: Levels) -> Counter[Hashable]:
    """The released persons with all their rows, nested, whose labels a reader raises from levels to higher ones."""
    numbers = iter(zip(levels, raised_levels, strict=True))
    raised = [
        [
            {hierarchy.label(value, level): hierarchy.label(value, higher) for value in (*hierarchy.paths, None)}
            for hierarchy, (level, higher) in zip(table.hierarchies, numbers, strict=False)
        ]
        for table in database.tables
    ]
    children: dict[tuple[int, int], list[Hashable]] = defaultdict(list)
    persons: Counter[Hashable] = Counter()
    with duckdb.connect(str(path), read_only=True) as connection:
        for t, table in reversed(list(enumerate(database.tables))):
            parent = "NULL" if table.parent is None else f"parent_{t}"
            columns = ", ".join([f"id_{t}", parent, *table.names])
            for key, parent_key, *labels in connection.execute(f"SELECT {columns} FROM {table.name}").fetchall():
                raised_labels = tuple(
                    mapping.get(label, label) for mapping, label in zip(raised[t], labels, strict=True)
                )
                row = (t, raised_labels, tuple(sorted(children[t, key], key=repr)))
                if table.parent is None:
                    persons[row] += 1
                else:
                    children[table.parent, parent_key].append(row)
    return persons


def feasible_outcomes(case: LinkedCase) -> list[Outcome]:
    every = itertools.product(*(range(height + 1) for height in case.database.heights))
    outcomes = [evaluate(case.database, levels, case.k, case.known, case.weights) for levels in every]
    return [
        outcome for outcome in outcomes if outcome.state.persons and outcome.suppressed_persons <= case.allowed_persons
    ]


def is_nowhere_higher(levels: Sequence[int], second_levels: Sequence[int]) -> bool:
    return all(level <= second_level for level, second_level in zip(levels, second_levels, strict=True))


def draw_pair(number: int, case: LinkedCase) -> Sequence[Outcome] | None:
    """Two generalizations; in every second case each is finer than the other somewhere, if possible."""
    pairs = list(itertools.permutations(feasible_outcomes(case), 2))
    crossing = [pair for pair in pairs if not is_comparable(*pair)]
    chosen = crossing if number % 2 and crossing else pairs
    return random.Random(number).choice(chosen) if chosen else None


def is_comparable(first: Outcome, second: Outcome) -> bool:
    return is_nowhere_higher(first.levels, second.levels) or is_nowhere_higher(second.levels, first.levels)


PAIRS = [
    (case, pair)
    for number, case in enumerate(small_cases(40, 6 * draw_tables(8, 60)))
    if (pair := draw_pair(number, case)) is not None
][: draw_tables(8, 60)]


CROSSING = small_cases(40, 72)[71]
"""A case with few rows and two generalizations; each is finer than the other in one column."""


@pytest.mark.parametrize(
    ("case", "pair"),
    [
        *(pytest.param(*pair, marks=[] if i in (0, 5) else pytest.mark.slow) for i, pair in enumerate(PAIRS)),
        (CROSSING, draw_pair(71, CROSSING)),
    ],
)
def test_a_second_release_is_accepted_only_if_one_gives_the_other(
    case: LinkedCase, pair: Sequence[Outcome], tmp_path: Path
) -> None:
    with duckdb.connect(str(tmp_path / "source.duckdb")) as connection:
        case.fill(connection)
    first, second = pair
    publish(case, tmp_path, "first.duckdb", first.levels)
    try:
        publish(case, tmp_path, "second.duckdb", second.levels)
        is_accepted = True
    except AuditError as error:
        assert "unless both have the same persons and rows" in str(error)
        is_accepted = False
    if is_comparable(*pair) and first.state == second.state:
        assert is_accepted
    if is_accepted and is_comparable(*pair):
        outcomes = {"first": first, "second": second}
        fine, coarse = outcomes if is_nowhere_higher(first.levels, second.levels) else reversed(outcomes)
        levels, raised_levels = outcomes[fine].levels, outcomes[coarse].levels
        raised = released_persons(tmp_path / f"{fine}.duckdb", case.database, levels, raised_levels)
        assert raised == released_persons(tmp_path / f"{coarse}.duckdb", case.database, raised_levels, raised_levels)
    elif is_accepted:  # the levels differ where the labels do not
        levels = (0,) * len(first.levels)
        names = ("first.duckdb", "second.duckdb")
        rows = [released_persons(tmp_path / name, case.database, levels, levels) for name in names]
        assert rows[0] == rows[1]
