"""The limits of levels hold for every cell of every strategy: a reader who knows the person of each row looks.

The strategies are those of the registry: a new one is looked at by itself. The reader is plain Python, and knows the
meaning of labels from the contract.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import date, timedelta
from typing import Any, TypeAlias

import duckdb
import pytest

import sqlanon
from adversary.level_searches import searches
from support.databases import connection_of
from support.policies import make_policy

pytestmark = pytest.mark.slow

BELOW, ABOVE = 18, 90
BORN_BELOW, BORN_ABOVE = date(1940, 1, 1), date(2010, 1, 1)
TOWNS = {
    "north": {"coast": ["Kiel", "Emden"], "heath": ["Celle", "Soltau"]},
    "south": {"alps": ["Fuessen", "Lindau"], "lakes": ["Ulm", "Konstanz"]},
}
FORBIDDEN = "alps"

# Values at the borders and far beyond them; one NULL; towns under a forbidden label; a last digit that must be hidden.
ROWS = f"""
    CREATE TABLE t AS
    SELECT
        i AS id,
        i AS place,
        CASE WHEN i = 7 THEN NULL ELSE [0, 17, 18, 89, 90, 91, 104, 120][i % 8 + 1] + CASE i % 16 WHEN 10 THEN i % 70
            WHEN 3 THEN -(i % 60) ELSE 0 END END::INTEGER AS age,
        DATE '1930-06-15' + (CASE i % 4 WHEN 0 THEN 3487 WHEN 1 THEN 3486 WHEN 2 THEN 29055 ELSE i % 5 * 6000 + 300
            END)::INT AS birth,
        (1100 + hash(i) % 3 * 10 + hash(i + 5) % 4)::VARCHAR AS zip,
        {[town for part in TOWNS.values() for towns in part.values() for town in towns]}[(hash(i + 9) % 8 + 1)::INT]
            AS town,
        i % 5 AS illness
    FROM range(90) AS r(i)
"""
ATTRIBUTES: dict[str, Any] = {
    "id": "identifying",
    "place": "insensitive",
    "age": {"intervals": {"widths": [10, 40], "below": BELOW, "above": ABOVE}},
    "birth": {"intervals": {"widths": [360], "below": BORN_BELOW, "above": BORN_ABOVE}},
    "zip": {"role": "quasi", "hierarchy": {"mask": "right"}, "min_level": 1, "max_level": 3},
    "town": {"role": "quasi", "hierarchy": {"categories": TOWNS}, "forbidden": [FORBIDDEN]},
    "illness": "insensitive",
}


Release: TypeAlias = "tuple[list[dict[str, Any]], list[dict[str, Any]], sqlanon.Result]"


@pytest.fixture(scope="module")
def db() -> Iterator[sqlanon.Database]:
    with duckdb.connect() as connection:
        connection.execute(ROWS)
        with sqlanon.connect(connection) as database:
            yield database


def released_rows(db: sqlanon.Database, attributes: dict[str, Any], search: dict[str, Any], **sections: Any) -> Release:
    """The rows of a release, the rows of its source by place, and the result."""
    source = connection_of(db).sql("SELECT * FROM t ORDER BY place").to_arrow_table().to_pylist()
    settings = {"suppression_limit": 0.3, **search}
    section = {"source": {"table": "t", "key": "id", "undeclared": "drop"}}
    result = db.anonymize(make_policy(attributes, k=3, table=None, search=settings, **section, **sections))
    relation = result.relation()
    return [dict(zip(relation.columns, row, strict=True)) for row in relation.fetchall()], source, result


_NUMBER, _DAY = r"(-?\d+(?:\.\d+)?)", r"(\d{4}-\d{2}-\d{2})"
Value = Any


def ends(label: str, kind: type) -> tuple[Value | None, Value | None]:
    """The least and the greatest value of a label, both included; None at an open end."""
    value, read = (_DAY, date.fromisoformat) if kind is date else (_NUMBER, kind)
    if label == "*":
        return None, None
    if match := re.fullmatch(f"≥{value}", label):
        return read(match[1]), None
    if match := re.fullmatch(f"<{value}", label):
        return None, read(match[1]) - _step(read(match[1]))
    if match := re.fullmatch(rf"\[{value}, {value}\)", label):
        return read(match[1]), read(match[2]) - _step(read(match[2]))
    if match := re.fullmatch(f"{value}(?:(?:-| to ){value})?", label):
        return read(match[1]), read(match[2] or match[1])
    raise AssertionError(f"{label!r} is not a label of the contract")


def members(cell: Any) -> list[str]:
    if isinstance(cell, list):
        return [str(member) for member in cell]
    text = str(cell)
    return text[1:-1].split(", ") if text.startswith("{") else [text]


def breaks_open_ends(cell: Any, below: Value, above: Value) -> bool:
    """Whether a cell distinguishes values beyond an open end."""
    for label in members(cell):
        low, high = ends(label, type(below))
        if low is not None and not below <= low <= (above if high is None else high):
            return True
        if high is not None and not (below - _step(below) if low is None else low) <= high < above:
            return True
    return False


def _step(value: Value) -> Any:
    return timedelta(days=1) if isinstance(value, date) else 1


def holds(cell: Any, value: Value, kind: type) -> bool:
    """Whether a cell can be the label of a value."""
    if cell is None or value is None:
        return (cell is None and value is None) or "*" in members(cell)
    return any(
        (low is None or low <= value) and (high is None or value <= high)
        for low, high in (ends(label, kind) for label in members(cell))
    )


def is_under(zip_code: str, label: str) -> bool:
    first, _, last = label.partition("-")
    return first <= zip_code <= last if last else zip_code.startswith(label.rstrip("*"))


def labels_of_town(town: str) -> list[str]:
    part, kind = next((part, kind) for part, kinds in TOWNS.items() for kind, towns in kinds.items() if town in towns)
    return [town, kind, part, "*"]


LATER = [(search, suppressed) for search in searches() for suppressed in ("drop", "mask")]
FIRST = {search.get("strategy", "cells"): (search, ("drop", "mask")[i % 2]) for i, search in enumerate(searches())}
"""One way of each strategy, for the quick lane."""


@pytest.mark.cases(1)
@pytest.mark.parametrize(("search", "suppressed"), FIRST.values(), ids=str)
def test_no_cell_lies_beyond_its_limits(db: sqlanon.Database, search: dict[str, Any], suppressed: str) -> None:
    check_cells(db, {name: spec for name, spec in ATTRIBUTES.items() if name != "birth"}, search, suppressed)


@pytest.mark.thorough
@pytest.mark.parametrize(("search", "suppressed"), LATER, ids=str)
def test_no_cell_lies_beyond_its_limits_in_any_way_of_a_strategy(
    db: sqlanon.Database, search: dict[str, Any], suppressed: str
) -> None:
    check_cells(db, ATTRIBUTES, search, suppressed)


def check_cells(db: sqlanon.Database, attributes: dict[str, Any], search: dict[str, Any], suppressed: str) -> None:
    seen, source, result = released_rows(db, attributes, search, release={"suppressed": suppressed})
    assert len(seen) >= 60
    if suppressed == "mask" and result.suppressed_rows:
        assert len(seen) == len(source) - result.suppressed_rows
        assert any("max_level keeps zip below the top label" in warning for warning in result.warnings)
    medians = search.get("summary") == "median"
    for row in seen:
        person = source[row["place"]]
        for name, below, above in (("age", BELOW, ABOVE), ("birth", BORN_BELOW, BORN_ABOVE)):
            if name not in attributes:
                continue
            cell, value = row[name], person[name]
            assert isinstance(cell, (str, list)) or (cell is None and value is None)
            assert cell is None or not breaks_open_ends(cell, below, above), (name, cell)
            assert medians or holds(cell, value, type(below)), (name, cell, value)
        for label in members(row["zip"]):  # a range is one of labels at min_level, under one at max_level
            is_range = re.fullmatch(r"(\d)\d\d0-\1\d\d9", label)
            assert is_range or (len(label) == 4 and 1 <= label.count("*") <= 3), label
            assert medians or any(is_under(person["zip"], member) for member in members(row["zip"]))
        for label in members(row["town"]):
            assert label != FORBIDDEN
            assert search.get("summary") == "set" or label in labels_of_town(person["town"])


@pytest.mark.thorough
@pytest.mark.parametrize(
    "search",
    [
        {"strategy": "optimal"},
        {"suppression": "cells"},
        {"strategy": "mondrian"},
        pytest.param({"strategy": "local"}, marks=pytest.mark.slow),
        pytest.param({"strategy": "subtree"}, marks=pytest.mark.slow),
        pytest.param({"strategy": "k-similar"}, marks=pytest.mark.slow),
        pytest.param({"strategy": "forest"}, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_loss_counts_the_leaves_under_an_open_end(db: sqlanon.Database, search: dict[str, Any]) -> None:
    attributes = {name: spec for name, spec in ATTRIBUTES.items() if name in ("id", "place", "age")}
    seen, source, result = released_rows(db, attributes, {**search, "suppression_limit": 0.1})
    values = {row["age"] for row in source}
    losses = [(sum(holds(row["age"], value, int) for value in values) - 1) / (len(values) - 1) for row in seen]
    assert {row["age"] for row in seen} & {"≥90", "<18"}
    assert result.score == pytest.approx((sum(losses) + result.suppressed_rows) / len(source), abs=1e-9)
