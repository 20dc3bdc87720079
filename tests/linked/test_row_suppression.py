"""Child rows that are suppressed by themselves, and put back, row by row as the oracle chooses them."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from oracles.oracle import Hierarchy
from oracles.oracle_linked import Known, LinkedDatabase, LinkedTable, Row
from oracles.oracle_row_suppression import At, ChildRow, NumberedRows
from properties.linked_cases import LinkedCase
from sqlanon.linked.check.peeling import Peeling
from sqlanon.linked.check.row_suppression import RowSuppression
from sqlanon.linked.check.snapshot import Snapshot
from sqlanon.linked.records import LinkedRecords, encode_tables
from sqlanon.support.expressions import cols, insert_rows, select, subquery
from support.linked_databases import case_policy, open_case


def tree_of(values: str) -> Hierarchy:
    return Hierarchy({value: (value, "*") for value in values})


def persons_with_rows(has_many_kinds: bool) -> LinkedCase:
    """Persons in two classes with two or three rows, where some rows have a row themselves; or in one class with two
    rows each, most of them equal, so that several persons have the same rows."""
    draw, persons = random.Random(1), 14
    rows = [i % persons if i < 2 * persons else draw.randrange(persons) for i in range(5 * persons // 2)]
    values = [*"ddd", *draw.choices("abcd", [6, 3, 1, 1], k=len(rows) - 3)]
    rows[:3] = [0, 0, 0]  # three equal rows, which hardly anybody else has
    children = [(draw.randrange(len(rows)), draw.choice("mmmn")) for _ in range(2 * persons)]
    classes = draw.choices("xxxy", k=persons)
    if not has_many_kinds:
        rows, classes = [i // 2 for i in range(2 * persons)], ["x"] * persons
        values, children = [*draw.choices("ab", [6, 1], k=len(rows))], []
    tables = (
        LinkedTable("t0", None, ("q",), (tree_of("xy"),), tuple(Row(i, None, (q,)) for i, q in enumerate(classes))),
        LinkedTable(
            "t1",
            0,
            ("v",),
            (tree_of("abcd"),),
            tuple(Row(i, person, (value,)) for i, (person, value) in enumerate(zip(rows, values, strict=True))),
        ),
        LinkedTable(
            "t2", 1, ("w",), (tree_of("mn"),), tuple(Row(i, row, (value,)) for i, (row, value) in enumerate(children))
        ),
    )
    return LinkedCase(LinkedDatabase(tables), 2, 1, "0.5", (1.0,) * 3)


def number_rows(snapshot: Snapshot) -> NumberedRows:
    """The rows of a snapshot with their numbers."""
    read, tables = snapshot.runner.engine.rows, snapshot.records.tables
    classes = read(select(cols(["person", "class_id"]), snapshot.kept_persons.copy()))
    names = cols(["position", "row", "parent", "person", "known_row"])
    rows = []
    for position, row, parent, person, known_row in read(select(names, subquery(snapshot.known_rows(), "r"))):
        above = tables[position].parent
        assert above is not None
        parent_row = None if above.is_person_table else (above.position, parent)
        rows.append(ChildRow((position, row), person, parent_row, known_row))
    return NumberedRows(dict(classes), rows, snapshot.k, snapshot.known)


def suppressed_rows(snapshot: Snapshot) -> set[At]:
    return {*snapshot.runner.engine.rows(select(cols(["position", "row"]), snapshot.suppressed_rows.copy()))}


def encode(case: LinkedCase) -> Iterator[LinkedRecords]:
    with open_case(case) as db:
        yield encode_tables(db._workspace, case_policy(case, row_suppression_limit=1))


@pytest.fixture(scope="module")
def many_kinds() -> Iterator[LinkedRecords]:
    yield from encode(persons_with_rows(has_many_kinds=True))


@pytest.fixture(scope="module")
def few_kinds() -> Iterator[LinkedRecords]:
    yield from encode(persons_with_rows(has_many_kinds=False))


@pytest.fixture
def peeling(kinds: str, known: Known, k: int, request: pytest.FixtureRequest) -> Iterator[Peeling]:
    records: LinkedRecords = request.getfixturevalue(kinds)
    peeling = Peeling(records, k, known)
    peeling.snapshot.start((0,) * len(records.names), suppresses_rows=True)
    yield peeling
    peeling.drop_tables()


@pytest.mark.cases(3)
@pytest.mark.parametrize(
    ("kinds", "known", "k"),
    [
        ("many_kinds", 1, 2),
        ("many_kinds", 2, 2),
        ("many_kinds", 2, 3),
        ("many_kinds", 3, 2),
        ("many_kinds", "all", 2),
        ("few_kinds", "all", 2),
        ("few_kinds", "all", 3),
        pytest.param("many_kinds", 1, 3, marks=pytest.mark.slow),
        pytest.param("many_kinds", 3, 3, marks=pytest.mark.slow),
        pytest.param("few_kinds", 2, 2, marks=pytest.mark.slow),
        pytest.param("few_kinds", 3, 3, marks=pytest.mark.slow),
    ],
)
def test_rows_are_suppressed_and_put_back_as_the_oracle_does(peeling: Peeling) -> None:
    snapshot = peeling.snapshot
    numbered, row_suppression = number_rows(snapshot), RowSuppression(snapshot, peeling.requirements)
    for allowed in (1, 4, len(numbered.rows)):
        snapshot.start(snapshot.levels, suppresses_rows=True)
        is_suppressed, expected = row_suppression.suppress(allowed), numbered.suppress(allowed)
        assert suppressed_rows(snapshot) == expected
        assert is_suppressed is bool(expected)

    draw, suppressed = random.Random(str((snapshot.known, snapshot.k))), set[At]()
    for row in sorted(numbered.rows, key=lambda row: row.at):
        if row.parent in suppressed or draw.random() < 0.25:
            suppressed.add(row.at)
    snapshot.start(snapshot.levels, suppresses_rows=True)
    statement = insert_rows(snapshot.suppressed_rows.copy(), ["position", "row"], len(suppressed))
    snapshot.runner.engine.execute(statement, [number for at in sorted(suppressed) for number in at])
    expected = numbered.restore(suppressed, numbered.classes)
    is_restored = row_suppression.restore()
    assert suppressed_rows(snapshot) == expected
    assert is_restored is (expected != suppressed)
