"""Each class requirement on 90 classes at once, compared with plain Python; and the lower bound on suppressed rows.

``lost``, a figure of each check, is a lower bound on the rows that finer generalizations suppress. The tables of its
test split each group into the largest part that meets the requirement, and the rest: a bound that is too high fails.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from class_requirements import REQUIREMENTS, VALUES

from oracles.oracle import Hierarchy
from oracles.oracle_privacy import OF_VALUES, Record, Release, Source
from properties.prepared_tables import prepared_table
from properties.privacy_cases import PrivacyCase
from properties.small_tables import ROW, SmallTable
from sqlanon.measures import Figures


def table_of(
    rows: Sequence[tuple[int, str, Record]], privacy: Mapping[str, Any], person: str | None = None
) -> SmallTable:
    """A table of rows with a group and a class: level 0 shows classes, level 1 groups."""
    classes = {name: (name, f"group {group}", "*") for group, name, _ in rows}
    records = [{ROW: i, "class": name} | dict(record) for i, (_, name, record) in enumerate(rows)]
    source = Source(records, {"class": Hierarchy(classes)}, {"s": VALUES, "other": None}, person)
    return SmallTable(PrivacyCase(source, privacy, "1", "loss"), ((0, 2),), ((),))


@pytest.mark.least(13)
@pytest.mark.cases(17)
@pytest.mark.parametrize("person", [None, "who"])
@pytest.mark.parametrize("name", REQUIREMENTS)
def test_the_classes_that_meet_it_are_kept(name: str, person: str | None) -> None:
    rng = random.Random(3)
    rows: list[tuple[int, str, Record]] = []
    for i in range(90):
        values = rng.sample(range(4), rng.randint(1, 4))
        for _ in range(rng.randint(1, 9)):
            who = {"who": f"{i // 3} {rng.randrange(6)}"} if person else {}
            rows.append((i // 3, f"class {i}", {"s": rng.choice(values), "other": rng.choice("xy")} | who))
    table = table_of(rows, REQUIREMENTS[name], person)
    with prepared_table(table) as prepared:
        for level in (0, 1):
            expected = Release(table.source, (level,), REQUIREMENTS[name])
            assert expected.kept and (level or len(expected.kept) < len(expected.classes))
            kept_rows = {record[ROW] for records in expected.kept_records.values() for record in records}
            figures = prepared.check((level,))
            assert figures.classes == len(expected.kept)
            assert figures.suppressed_rows == expected.suppressed
            assert {row[-1] for row in prepared.rows(prepared.recode((level,), figures))} == kept_rows


BOUNDED = [name for name, privacy in REQUIREMENTS.items() if OF_VALUES.keys() & privacy.keys() and name != "joint"]


@pytest.mark.least(9)
@pytest.mark.cases(12)
@pytest.mark.parametrize("name", BOUNDED)
def test_no_more_rows_are_lost_than_further_down(name: str) -> None:
    (kind, (spec,)), rng = next(iter(REQUIREMENTS[name].items())), random.Random(5)
    groups = [[rng.choice([1, 2, 3, 6, 9]) for _ in range(3)] for _ in range(12)]
    whole = Source([record for counts in groups for record in records_of(counts)], {}, {"s": VALUES})

    def largest_part(counts: Sequence[int]) -> Sequence[int]:
        parts = sorted(itertools.product(*(range(n + 1) for n in counts)), key=sum, reverse=True)
        meet = (part for part in parts if any(part) and OF_VALUES[kind](whole, records_of(part), spec))
        return next(meet, [0] * len(counts))

    rows = []
    for group, counts in enumerate(groups):
        part = largest_part(counts)
        remainder = [n - m for n, m in zip(counts, part, strict=True)]
        for class_name, class_counts in (("part", part), ("rest", remainder)):
            rows += [(group, f"{class_name} {group}", record | {"other": "x"}) for record in records_of(class_counts)]
    with prepared_table(table_of(rows, REQUIREMENTS[name])) as prepared:
        below, above, top = (prepared.check((level,)) for level in range(3))
    assert below.suppressed_rows < sum(map(sum, groups))
    for lost in (lost_by(above), lost_by(top)):
        assert lost <= below.suppressed_rows + 1e-6
    assert lost_by(above) > 0 or above.suppressed_rows == 0


def records_of(counts: Sequence[int]) -> list[dict[str, Any]]:
    return [{"s": value} for value, n in enumerate(counts) for _ in range(n)]


def lost_by(figures: Figures) -> float:
    return figures.suppressed_rows if figures.least_suppressed is None else figures.least_suppressed
