"""Live views on random small tables that change: what they show is what plain Python makes of the table as it is."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, assume, given, settings
from hypothesis import strategies as st

import sqlanon
from oracles import oracle_privacy
from oracles.oracle import Value
from oracles.oracle_privacy import Record, Source
from properties import privacy_cases, random_cases
from properties.privacy_cases import LISTED, PrivacyCase
from properties.privacy_checks import columns_of, open_database, policy_of, quick
from support.databases import connection_of, quote_name
from support.lanes import some

pytestmark = pytest.mark.slow

some_of_each = settings(quick, max_examples=8, phases=[Phase.generate])  # shrinking takes long


@st.composite
def cases(draw: st.DrawFn, kind: str) -> PrivacyCase:
    """A table with requirements that a view can keep: one of a kind, k at times, and others."""
    source = draw(privacy_cases.sources(population=False))
    more = draw(st.lists(st.sampled_from([*LISTED, "k", "k"]), max_size=2))
    privacy = draw(privacy_cases.requirements(source, [kind, *more]))
    return PrivacyCase(source, privacy, draw(st.sampled_from(["0.5", "0.29", "1"])), "loss")


@st.composite
def values_later(draw: st.DrawFn, case: PrivacyCase, type_: Any, name: str) -> Value:
    """A value that a column may get later; at times one that no hierarchy has."""
    tree = case.source.quasi.get(name)
    if tree is not None:
        return draw(st.sampled_from(random_cases.occurring(tree, unknown=True)))
    new: list[Value] = [90, 91] if str(type_) == "int64" else ["p1", "p2", "u0", "row 0"]
    existing = [row[name] for row in case.source.rows]
    return draw(st.sampled_from([*existing, *existing, *new, None]))


@st.composite
def changed_cases(draw: st.DrawFn, kind: str) -> tuple[PrivacyCase, list[tuple[str, Any]]]:
    """A case, and later changes of its table: inserts, deletes and updates, by the number of a row."""
    case = draw(cases(kind))
    assume(case.source.rows)
    types = columns_of(case.source)
    changes: list[tuple[str, Any]] = []
    row = st.fixed_dictionaries({name: values_later(case, type_, name) for name, type_ in types.items()})
    for change_kind in draw(st.lists(st.sampled_from(["insert", "insert", "delete", "update"]), max_size=3)):
        n = len(case.source.rows)
        if change_kind == "insert":  # heaps, so that classes grow beyond their limits
            heaps = draw(st.lists(st.tuples(row, st.integers(1, 5)), min_size=1, max_size=4))
            changes.append((change_kind, [row for row, times in heaps for _ in range(times)]))
        elif change_kind == "delete":
            changes.append((change_kind, draw(st.sets(st.integers(0, n - 1), max_size=n))))
        else:
            name = draw(st.sampled_from([*types]))
            some_rows = draw(st.sets(st.integers(0, n - 1), max_size=4))
            changes.append((change_kind, (name, some_rows, draw(values_later(case, types[name], name)))))
    return case, changes


def apply(connection: Any, rows: list[Record], change: tuple[str, Any]) -> list[Record]:
    """Change the table and a list of its rows alike: a column identifies each row."""
    kind, subject = change
    if kind == "insert":
        numbered = [{**row, "row number": 1000 + len(rows) + i} for i, row in enumerate(subject)]
        names = [*numbered[0]]
        connection.executemany(
            f"INSERT INTO t ({', '.join(map(quote_name, names))}) VALUES ({', '.join('?' for _ in names)})",
            [[row[name] for name in names] for row in numbered],
        )
        return [*rows, *numbered]
    if kind == "delete":
        connection.execute('DELETE FROM t WHERE list_contains(?, "row number")', [sorted(subject)])
        return [row for row in rows if row["row number"] not in subject]
    name, places, value = subject
    connection.execute(
        f'UPDATE t SET {quote_name(name)} = ? WHERE list_contains(?, "row number")', [value, sorted(places)]
    )
    return [{**row, name: value} if row["row number"] in places else row for row in rows]


def expected_view(case: PrivacyCase, rows: list[Record], levels: Mapping[str, int]) -> oracle_privacy.Release:
    """Expected rows of a live view: those whose sensitive values are in the hierarchies that are needed."""
    source = case.source
    needed = [
        requirement["attribute"]
        for requirement in case.privacy.get("t_closeness", ())
        if requirement["distance"] == "hierarchical"
    ]
    placed = [row for row in rows if all(source.sensitive[name].knows(row[name]) for name in needed)]
    now = Source(placed, source.quasi, source.sensitive, source.person)
    return oracle_privacy.Release(now, tuple(levels[name] for name in source.quasi), case.privacy)


def persons_of(rows: list[Record], release: oracle_privacy.Release) -> tuple[int | None, int | None]:
    """The persons of some rows, and those with a row that is not shown, where persons are counted."""
    who = release.source.person
    if who is None:
        return None, None
    retained = Counter(row[who] for records in release.kept_records.values() for row in records)
    return len({row[who] for row in rows}), len(Counter(row[who] for row in rows) - retained)


@pytest.mark.parametrize("kind", some([*LISTED, "k"], 1))
def test_view_matches_plain_python_release_of_the_current_table(kind: str) -> None:
    seen: Counter[str] = Counter()

    @some_of_each
    @given(changed_cases(kind))
    def check(drawn: tuple[PrivacyCase, list[tuple[str, Any]]]) -> None:
        case, changes = drawn
        rows: list[Record] = [{**row, "row number": i} for i, row in enumerate(case.source.rows)]
        numbered = replace(case.source, rows=rows)
        names = [*case.source.quasi, *case.source.sensitive]
        columns = ", ".join(map(quote_name, names))
        with tempfile.TemporaryDirectory() as folder, open_database(numbered_types(numbered)) as db:
            policy = policy_of(case, "optimal", Path(folder))
            tree = policy.model_dump(exclude_none=True)
            tree["source"]["undeclared"] = "drop"
            try:
                view = db.live(sqlanon.Policy(**tree))
            except sqlanon.InfeasibleError:
                seen["infeasible"] += 1
                return
            connection = connection_of(db)
            for change in [None, *changes]:
                rows = rows if change is None else apply(connection, rows, change)
                release = expected_view(case, rows, view.generalization)
                expected = release.released([*case.source.sensitive])
                live_rows = Counter(connection.execute(f"SELECT {columns} FROM t_live").fetchall())
                assert live_rows == expected, (change, live_rows - expected, expected - live_rows)
                columns_of_status = '"rows", suppressed, "limit", search_advised, persons, suppressed_persons'
                status = connection.execute(f"SELECT {columns_of_status} FROM sqlanon.live_views")
                left_out, (persons, lost) = len(rows) - expected.total(), persons_of(rows, release)
                limit = int(Decimal(case.limit) * (len(rows) if persons is None else persons))
                advised = (left_out if lost is None else lost) > limit
                assert status.fetchall() == [(len(rows), left_out, limit, advised, persons, lost)]
                seen["some suppressed" if left_out else "all shown"] += 1

    check()
    assert seen["some suppressed"] >= 3, seen
    assert seen["all shown"] or kind != "k", seen


def numbered_types(source: Source) -> Source:
    """The same source, its row numbers one more column of the table that plays no part."""
    return replace(source, sensitive={**source.sensitive, "row number": None})
