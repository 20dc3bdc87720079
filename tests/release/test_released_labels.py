"""The labels of a release against the tables of its hierarchies: their levels, and which of them are ranges."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import duckdb
import pytest

import sqlanon
from sqlanon.publish.draft import ReleaseDraft, ReplacedRelease, count_suppressed_by_label
from sqlanon.release.label_levels import find_range_kinds, label_levels
from sqlanon.release.metadata import label_query
from sqlanon.release.score import is_proof_public, public_generalization
from sqlanon.support.expressions import create_table, table
from support.policies import make_policy

CITIES = {"hills": {"north": ["Hilltown", "Stonebridge"], "south": ["Upton"]}, "north": {"coast": ["Fenmarsh"]}}
BANDS = {"10-19": ["12", "15"], "20-39": ["20", "30"]}
ATTRIBUTES: dict[str, tuple[Any, int]] = {
    "age": ({"intervals": [5, 10], "above": 60, "below": 20}, 0),
    "price": ({"intervals": [2.5, 5]}, 1),
    "birth": ({"dates": ["month", "quarter", "year"]}, 1),
    "zip": ({"mask": "right"}, 1),
    "city": ({"categories": CITIES}, 1),
    "band": ({"categories": BANDS}, 1),
    "rank": ({"categories": {"1-2": ["1", "3"], "4-5": ["4", "5"]}}, 1),  # 3 is not in its range
    "sex": ("suppress", 0),
}
"""By attribute its rule and the level at which it is released."""
SOURCE = """
    SELECT
        [7, 20, 34, 59, 60, 61][1 + i % 6] AS age,
        [0.5, 7.25, 12.0][1 + i % 3] AS price,
        DATE '2020-01-31' + 100 * (i % 4)::INTEGER AS birth,
        ['12345', '12399', '98765'][1 + i % 3] AS zip,
        ['Hilltown', 'Stonebridge', 'Upton', 'Fenmarsh'][1 + i % 4] AS city,
        ['12', '15', '20', '30'][1 + i % 4] AS band,
        ['1', '3', '4', '5'][1 + i % 4] AS rank,
        'mf'[1 + i % 2] AS sex
    FROM range(48) AS r(i)
"""
HEIGHTS = {"age": 3, "price": 3, "birth": 4, "zip": 5, "city": 3, "band": 2, "rank": 2, "sex": 1}


def make_draft(db: sqlanon.Database, **changes: Any) -> ReleaseDraft:
    specs: dict[str, Any] = {}
    for name, (hierarchy, level) in ATTRIBUTES.items():
        rule = {"mask": "right"} if hierarchy == "mask" else hierarchy
        specs[name] = {"role": "quasi", "hierarchy": rule, "min_level": level, "max_level": level} | changes.get(
            name, {}
        )
    return db.anonymize(make_policy(specs, k=2, search={"measure": "height"}))._draft


@pytest.fixture(scope="module")
def draft() -> Iterator[ReleaseDraft]:
    with duckdb.connect() as connection, sqlanon.connect(connection) as db:
        connection.execute(f"CREATE TABLE t AS {SOURCE}")
        draft = make_draft(db)
        assert draft.recoding.figures.suppressed_rows == 0
        with draft.rows(shuffled=False) as rows:
            draft.run.engine.execute(create_table(draft.run.work("released"), rows))
        yield draft


def expected_levels(draft: ReleaseDraft) -> set[tuple[str, str, int, str]]:
    """For each label at its level or above it, the label of the same values at each level from there.

    There is none where these are several: north is a part of the hills, and also the label of the coast.
    """
    entries = set()
    for name, hierarchy in zip(ATTRIBUTES, draft.search_input.policy_hierarchies, strict=True):
        level = ATTRIBUTES[name][1]
        names = [hierarchy.released_column(n) for n in range(hierarchy.height + 1)]
        columns = ", ".join(f"{column}::VARCHAR" for column in names)
        query = f"SELECT {columns} FROM {hierarchy.table.sql('duckdb')}"
        if level or hierarchy.open_ends:
            for row in draft.run.engine.connection.execute(query).fetchall():
                entries |= {
                    (name, row[i], j, row[j]) for i in range(level, len(row)) for j in range(max(i, level), len(row))
                }
    counts = Counter((name, label, level) for name, label, level, _ in entries)
    return {row for row in entries if counts[row[:3]] == 1}


@pytest.mark.thorough
def test_the_levels_of_labels_are_those_of_their_hierarchies(draft: ReleaseDraft) -> None:
    """The top of all is *, whose level is that of each attribute; level 0 has labels only with open ends."""
    assert draft.search_input.heights == HEIGHTS
    query = draft.label_levels(draft.run.work("released"))
    rows = draft.run.engine.rows(query)
    assert len(rows) == len({*rows}) and {*rows} == expected_levels(draft)
    assert ("age", "≥60", 1, "≥60") in rows and ("age", "59", 1, "55-59") in rows and ("age", "<20", 2, "<20") in rows


@pytest.mark.slow
@pytest.mark.parametrize("forbidden", ["coast", "hills"])
def test_forbidden_labels_are_not_above_others(forbidden: str, draft: ReleaseDraft) -> None:
    """Nor is another label above north, which has two labels at level 2, if one of these is forbidden."""
    policy = draft.search_input.policy
    city = policy.attributes["city"].model_copy(update={"forbidden": (forbidden,)})
    attributes = {**policy.attributes, "city": city}
    search_input = replace(draft.search_input, policy=policy.model_copy(update={"attributes": attributes}))
    levels = dict.fromkeys(ATTRIBUTES, 0) | {"city": 1}
    query = label_levels(draft.run.engine, search_input, levels, draft.run.work("released"))
    expected = {row for row in expected_levels(draft) if row[0] in ("age", "city") and forbidden not in row}
    assert {*draft.run.engine.rows(query)} == expected


def test_ranges_lie_under_the_labels_of_both_their_ends(draft: ReleaseDraft) -> None:
    """A range of ages lies under the labels that both its ends have."""
    released = draft.run.work("released_with_gaps")
    ages = "CASE age WHEN '59' THEN '30-49' WHEN '34' THEN '30-34' ELSE age END"
    draft.run.engine.connection.execute(
        f"CREATE TABLE {released.sql('duckdb')} AS SELECT * REPLACE ({ages} AS age) "
        f"FROM {draft.run.work('released').sql('duckdb')}"
    )
    query = label_levels(draft.run.engine, draft.search_input, dict.fromkeys(ATTRIBUTES, 0), released)
    levels = {row[1:] for row in draft.run.engine.rows(query) if row[0] == "age"}
    assert {row for row in levels if row[0] in ("30-34", "30-49")} == {
        ("30-34", 1, "30-34"),
        ("30-34", 2, "30-39"),
        ("30-34", 3, "*"),
        ("30-49", 3, "*"),
    }


def test_labels_of_a_local_strategy_are_at_any_level(draft: ReleaseDraft) -> None:
    released = draft.run.work("released_at_levels")
    cities = "CASE city WHEN 'south' THEN 'hills' WHEN 'coast' THEN '*' ELSE city END"
    draft.run.engine.connection.execute(
        f"CREATE TABLE {released.sql('duckdb')} AS SELECT * REPLACE ({cities} AS city) "
        f"FROM {draft.run.work('released').sql('duckdb')}"
    )
    levels: dict[str, int | None] = {**dict.fromkeys(ATTRIBUTES, 0), "city": None}
    query = label_levels(draft.run.engine, draft.search_input, levels, released)
    assert {row[1:] for row in draft.run.engine.rows(query) if row[0] == "city"} == {
        ("north", 1, "north"),
        ("north", 3, "*"),
        ("hills", 2, "hills"),
        ("hills", 3, "*"),
        ("*", 3, "*"),
    }


def test_labels_are_ranges_where_they_hold_their_values(draft: ReleaseDraft) -> None:
    kinds = find_range_kinds(draft.run.engine, draft.search_input)
    assert kinds == {"age": "integer", "price": "number", "birth": "date", "band": "integer"}


LABELS = ["<21", "20", "20-24", "34", "60-69", "≥60", "*"]


def test_labels_are_in_the_order_of_their_ends() -> None:
    """Open ranges come before others that begin or after others that end where they do; the top comes last."""
    with duckdb.connect() as connection:
        connection.execute(f"CREATE TABLE r AS SELECT unnest({LABELS[::-1]}) AS age UNION ALL SELECT NULL")
        for kind, labels in (("integer", LABELS), (None, sorted(LABELS))):
            query = label_query("age", table("r"), kind)  # type: ignore[arg-type]
            rows = connection.execute(query.sql("duckdb")).fetchall()
            assert [row[:2] for row in rows] == [(label, i) for i, label in enumerate(labels, start=1)]


def test_a_proof_is_shown_where_the_policy_alone_decides_it() -> None:
    attributes = {"ward": "suppress"}

    def is_public(**search: Any) -> bool:
        return is_proof_public(make_policy(attributes, search=search))

    assert is_public()
    for search in ({"time_limit": 60}, {"max_checks": 9}, {"strategy": "mondrian"}, {"suppression": "cells"}):
        assert not is_public(**search), search


def test_the_height_of_a_mask_is_shown_where_labels_show_it() -> None:
    policy = make_policy({"zip": "mask", "age": {"intervals": [5]}})
    heights = {"zip": 5, "age": 2}
    for level, shown_level, shown_heights in (
        (0, 0, {"age": 2}),
        (1, 1, heights),
        (4, 4, heights),
        (5, 1, {"zip": 1, "age": 2}),
    ):
        generalization = public_generalization(policy, {"zip": level, "age": 0}, heights)
        assert generalization == ({"zip": shown_level, "age": 0}, shown_heights)


# --- suppressed rows by label


@pytest.fixture(scope="module")
def suppressing() -> Iterator[ReleaseDraft]:
    with duckdb.connect() as connection, sqlanon.connect(connection) as db:
        classes = "('a', 'x', 9), ('a', 'y', 2), ('a', 'z', 2), ('b', 'x', 9)"
        connection.execute(f"CREATE TABLE t AS SELECT ward, job FROM (VALUES {classes}) AS c(ward, job, n), range(n)")
        fixed = {"role": "quasi", "hierarchy": "suppress", "max_level": 0}
        policy = make_policy({"ward": fixed, "job": fixed}, k=3, search={"suppression_limit": 0.2, "measure": "height"})
        draft = db.anonymize(policy)._draft
        with draft.rows(shuffled=False) as rows:
            draft.run.engine.execute(create_table(draft.run.work("released"), rows))
        yield draft


STARS = "SELECT '*' AS ward, '*' AS job FROM range(18)"


def suppressed_labels(draft: ReleaseDraft, **changes: Any) -> list[tuple[Any, ...]]:
    search_input = replace(draft.search_input, **changes)
    return [*count_suppressed_by_label(draft.run, search_input, draft.recoding, draft.run.work("released"))]


@pytest.mark.slow
def test_suppressed_rows_are_shown_by_the_first_attribute_below_its_top(suppressing: ReleaseDraft) -> None:
    draft = suppressing
    assert suppressed_labels(draft) == [("ward", "a", 4, 9)]
    top = replace(draft.recoding, generalization={"ward": 1, "job": 0})
    released = draft.run.work("released")
    assert count_suppressed_by_label(draft.run, draft.search_input, top, released) == []  # y and z have two each
    stars = draft.run.work("released_at_top")
    for levels in ({"ward": 1, "job": 1}, {"ward": None, "job": None}):
        at_top = replace(draft.recoding, generalization=levels)
        assert count_suppressed_by_label(draft.run, draft.search_input, at_top, released) == []
        draft.run.engine.connection.execute(f"CREATE OR REPLACE TABLE {stars.sql('duckdb')} AS {STARS}")
        assert count_suppressed_by_label(draft.run, draft.search_input, at_top, stars) == []


def test_suppressed_rows_are_hidden_where_they_could_be_derived(suppressing: ReleaseDraft) -> None:
    policy = suppressing.search_input.policy
    for update in (
        {"source": policy.source.model_copy(update={"person": "ward"})},
        {"population": policy.source},
        {"search": policy.search.model_copy(update={"strategy": "mondrian"})},
    ):
        assert suppressed_labels(suppressing, policy=policy.model_copy(update=update)) == []
    earlier = replace(suppressing.search_input.earlier, run_ids=("first",))
    assert suppressed_labels(suppressing, earlier=earlier) == []


def test_a_withdrawal_keeps_no_earlier_version_and_shows_no_suppressed_rows(suppressing: ReleaseDraft) -> None:
    released = suppressing.run.work("released")
    assert suppressing.suppressed_by_label(released) == [("ward", "a", 4, 9)]
    withdrawal = replace(suppressing, replaces=ReplacedRelease("first", True))
    assert withdrawal.suppressed_by_label(released) == ()
    keeping = suppressing.search_input.policy.model_copy(
        update={"release": sqlanon.policy.ReleaseSection(database="r.duckdb", keep=3)}
    )
    keeping_draft = replace(suppressing, search_input=replace(suppressing.search_input, policy=keeping))
    assert [draft.retained_versions for draft in (suppressing, keeping_draft)] == [1, 3]
    assert replace(keeping_draft, replaces=withdrawal.replaces).retained_versions == 1
    assert replace(keeping_draft, is_draft=True).retained_versions == 1
