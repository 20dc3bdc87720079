"""The checks of `verify` with a policy, at their borders: figures, rows and labels compared with the source."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duckdb
import pytest

from sqlanon.audit.decoys import CATALOG_CHECK
from sqlanon.audit.metadata import (
    _AMBIGUOUS_ANCESTORS,
    _CONTRADICTING_ANCESTORS,
    _IS_MASKED_BY,
    _IS_RANGE_WITHIN,
    _UNRELATED_LABELS,
)
from sqlanon.audit.verify import Verification
from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.errors import BrokenReleaseError
from sqlanon.frequency.suppression_limit import SuppressionLimit
from sqlanon.hierarchies.bounds import label_bounds
from sqlanon.release.metadata import suppressed_by_label
from sqlanon.release.source_change import SourceChange
from sqlanon.release.visible_values import count_different_rows
from sqlanon.source_verification import (
    _check_persons,
    _check_rows,
    _check_suppressed_rows,
    _check_suppression_limit,
    check_lost_rows,
    explain_failure,
)
from sqlanon.support.checks import Check
from sqlanon.support.expressions import col, select_star, table

SAME = SourceChange(datetime(2026, 1, 2), 100, 100, withdrawn_persons=0, missing_rows=0)


LIMIT = SuppressionLimit(5)


def prepare_search(limit: SuppressionLimit = LIMIT, late: bool = False, masks: bool = False) -> Any:
    return SimpleNamespace(
        limit=limit, policy=SimpleNamespace(suppresses_after_noise=late, masks_suppressed_rows=masks)
    )


@pytest.mark.parametrize(
    ("claimed", "found_rows", "late", "passed"),
    [
        (3, 3, False, True),
        (4, 3, False, False),
        (2, 3, False, False),
        (4, 3, True, True),  # with noise, more rows may have been suppressed since
        (5, 3, True, True),
        (6, 3, True, False),
        (3, 3, True, True),
        (2, 3, True, False),
    ],
)
def test_suppressed_rows_are_those_of_the_source(claimed: int, found_rows: int, late: bool, passed: bool) -> None:
    assert (
        _check_suppressed_rows(prepare_search(late=late), SimpleNamespace(suppressed_rows=claimed), found_rows).passed
        is passed
    )


@pytest.mark.parametrize(
    ("limit", "rows", "persons", "passed"),
    [
        (SuppressionLimit(5), 5, None, True),
        (SuppressionLimit(5), 6, None, False),
        (SuppressionLimit(50, 2, 20), 5, 2, True),
        (SuppressionLimit(50, 2, 20), 5, 3, False),
        (SuppressionLimit(50, 2, 20), 5, None, False),  # more than were counted
    ],
)
def test_suppression_stays_within_the_limit(
    limit: SuppressionLimit, rows: int, persons: int | None, passed: bool
) -> None:
    searched: Any = SimpleNamespace(suppressed_rows=rows, suppressed_persons=persons)
    assert _check_suppression_limit(prepare_search(limit), searched, rows).passed is passed


COUNTED: Any = SimpleNamespace(persons=20, fully_released=17, suppressed=3, partly_released=1, smallest_class=4)
CLAIMED = {
    "persons": 20,
    "released_persons": 17,
    "suppressed_persons": 3,
    "partly_released_persons": 1,
    "smallest_class": 4,
}


@pytest.mark.parametrize("name", CLAIMED)
@pytest.mark.parametrize("off", [-1, 0, 1])
def test_persons_are_those_of_the_source(name: str, off: int) -> None:
    manifest: Any = SimpleNamespace(**CLAIMED | {name: CLAIMED[name] + off})
    checks = _check_persons(prepare_search(SuppressionLimit(50, 4, 20)), manifest, COUNTED)
    wrong = [check.name.removeprefix("against the source: ") for check in checks if not check.passed]
    assert wrong == ([] if off == 0 else ["smallest class" if name == "smallest_class" else "persons"])
    # Masked rows are a class, too, which the recoded source does not have.
    assert len(_check_persons(prepare_search(SuppressionLimit(50, 4, 20), masks=True), manifest, COUNTED)) == 1


@pytest.mark.parametrize(
    ("persons", "suppressed", "passed"), [(20, 3, True), (20, 4, True), (20, 5, False), (20, 2, False), (21, 4, False)]
)
def test_with_noise_more_persons_may_have_lost_rows(persons: int, suppressed: int, passed: bool) -> None:
    manifest: Any = SimpleNamespace(**CLAIMED | {"persons": persons, "suppressed_persons": suppressed})
    (check,) = _check_persons(prepare_search(SuppressionLimit(50, 4, 20), late=True), manifest, COUNTED)
    assert check.passed is passed


def test_persons_are_not_checked_where_rows_are_counted() -> None:
    assert _check_persons(prepare_search(), SimpleNamespace(), None) == []


# --- what has changed


@pytest.mark.parametrize(
    ("fields", "has_changed", "has_lost", "may_have_lost"),
    [
        ({}, False, False, False),
        ({"rows_now": 101}, True, False, False),
        ({"rows_now": 99}, True, False, False),
        ({"withdrawn_persons": 1}, True, True, True),
        ({"missing_rows": 1}, True, True, True),
        ({"missing_rows": 1, "deleted_rows": 0}, True, False, False),  # its values have changed
        ({"deleted_rows": 1}, True, True, True),
        ({"deleted_rows": 0, "changed_rows": 1}, True, False, False),
        ({"deleted_rows": 0, "new_rows": 1}, True, False, False),
        ({"relabelled": ("zip",)}, True, False, False),
        ({"missing_rows": None}, False, False, True),  # unknown
        ({"missing_rows": None, "deleted_rows": 0}, False, False, False),
    ],
)
def test_lost_rows_show_that_a_source_has_changed(
    fields: dict[str, Any], has_changed: bool, has_lost: bool, may_have_lost: bool
) -> None:
    change = replace(SAME, **fields)
    assert (bool(change), change.has_lost_rows, change.may_have_lost_rows) == (has_changed, has_lost, may_have_lost)
    checked = check_lost_rows(verification(True), change)
    assert checked.verified is not has_lost


def test_a_change_of_the_source_is_described() -> None:
    words = {
        "1 person is withdrawn": {"withdrawn_persons": 1},
        "about 2 persons are withdrawn": {"withdrawn_persons": 2, "is_estimate": True},
        "1 released row was deleted": {"deleted_rows": 1},
        "2 released rows have other values": {"deleted_rows": 0, "changed_rows": 2},
        "3 released rows were deleted or changed": {"missing_rows": 3},
        "the source has 1 fewer row": {"rows_now": 99},
        "the source has grown by 2 rows": {"rows_now": 102},
        "1 row is new": {"new_rows": 1, "rows_now": 102, "deleted_rows": 0},
        "rows that the release does not show have changed": {},
    }
    assert {text: replace(SAME, **fields).differences for text, fields in words.items()} == {
        text: text for text in words
    }
    few = {"missing_rows": 2, "smallest_class": 4, "small_classes": 1, "least": 5}
    assert "its smallest class has 4 rows, and 1 class has fewer than 5" in replace(SAME, **few).valid_claims
    assert "fewer than" not in replace(SAME, **few | {"small_classes": 0}).valid_claims
    assert "smallest class" not in replace(SAME, **few | {"missing_rows": 0}).valid_claims


@pytest.mark.parametrize(
    ("fields", "verbs"),
    [
        ({}, {"anonymize"}),
        ({"rows_now": 101}, {"extend"}),
        ({"rows_now": 99}, {"anonymize"}),
        ({"new_rows": 1, "deleted_rows": 1}, {"withdraw", "extend"}),
        ({"withdrawn_persons": 1}, {"withdraw"}),
        ({"withdrawn_persons": 1, "relabelled": ("zip",)}, {"anonymize"}),
        ({"missing_rows": None}, {"withdraw"}),
    ],
)
def test_the_remedy_fits_the_change(fields: dict[str, Any], verbs: set[str]) -> None:
    remedy = replace(SAME, **fields).remedy("p.toml")
    assert {verb for verb in ("withdraw", "extend", "anonymize") if f"`sqlanon {verb} p.toml`" in remedy} == verbs


def verification(*passed: bool | None, names: str = "abcdef") -> Verification:
    checks = tuple(Check(name, is_passed, "m") for name, is_passed in zip(names, passed, strict=False))
    return Verification(Path("r"), SimpleNamespace(), checks, "d")


@pytest.mark.parametrize(
    ("change", "is_explained"),
    [
        (SAME, False),  # it was counted, and nothing has changed: the checks stay
        (replace(SAME, rows_now=101), True),
        (replace(SAME, missing_rows=None), True),
        (replace(SAME, missing_rows=None, deleted_rows=0), False),
    ],
)
def test_failures_are_attributed_to_a_possible_change_only(change: SourceChange, is_explained: bool) -> None:
    before = verification(True, False, False)
    explained = explain_failure(before, change, 2)
    if not is_explained:
        assert explained == before
        return
    # Failures of the release alone stay failures.
    assert [check.passed for check in explained.checks] == [True, False, None, False]
    assert (explained.source_change, explained.verified) == (change, False)


def test_catalog_with_other_decoys_leaves_source_unchanged() -> None:
    unknown = replace(SAME, missing_rows=None)
    of_catalog = replace(verification(True), checks=(Check("a", True, ""), Check(CATALOG_CHECK, False, "")))
    assert explain_failure(of_catalog, unknown, 1) == of_catalog
    changed = explain_failure(of_catalog, replace(unknown, rows_now=99), 1)
    assert [check.passed for check in changed.checks] == [True, None, False]


# --- the rows themselves


TYPES = {"zip": "VARCHAR", "cost": "DOUBLE"}
ROWS = [("1", 0.5), ("1", 0.5), (None, 2.0), ("2", None)]


@pytest.fixture
def engine() -> Iterator[DuckDBEngine]:
    with closing(DuckDBEngine(duckdb.connect())) as engine:
        yield engine


def fill(engine: DuckDBEngine, name: str, rows: list[tuple[Any, ...]], types: dict[str, str]) -> None:
    engine.connection.execute(f"CREATE TABLE {name} ({', '.join(f'{key} {type_}' for key, type_ in types.items())})")
    for row in rows:
        engine.connection.execute(f"INSERT INTO {name} VALUES ({', '.join('?' * len(row))})", list(row))


@pytest.mark.parametrize(
    ("rows", "added", "missing"),
    [
        (ROWS, 0, 0),
        (ROWS[::-1], 0, 0),
        ([*ROWS, ROWS[0]], 1, 0),  # each row as often
        (ROWS[1:], 0, 1),
        ([*ROWS[1:], ("3", 0.5)], 1, 1),
        ([*ROWS[:2], ("", 2.0), ROWS[3]], 1, 1),  # NULL is not an empty text
        ([*ROWS[:3], ("2", 0.0)], 1, 1),
        ([], 0, 4),
    ],
)
def test_repeated_rows_are_compared_by_their_number(
    rows: list[tuple[Any, ...]], added: int, missing: int, engine: DuckDBEngine
) -> None:
    fill(engine, "released", rows, TYPES)
    fill(engine, "recoded", ROWS, TYPES)
    assert engine.rows(count_different_rows(table("released"), table("recoded"), TYPES)) == [(added, missing)]
    counts = Counter(ROWS)
    fill(engine, "counted", [(*row, n) for row, n in counts.items()], TYPES | {"n": "BIGINT"})
    assert engine.rows(count_different_rows(table("released"), table("counted"), TYPES, "n")) == [(added, missing)]
    check = same_rows(engine, TYPES)
    assert check.passed is (not added and not missing)
    if not check.passed:
        assert f"does not give: {added}; rows missing in the release: {missing}" in check.message


def same_rows(
    engine: DuckDBEngine, claimed: dict[str, str], error: Exception | None = None, columns: bool = True
) -> Any:
    """The check that compares the rows of ``released``, whose manifest claims these columns, with ``recoded``."""

    @contextmanager
    def rows(*_: Any) -> Iterator[Any]:
        if error is not None:
            raise error
        yield table("released")

    manifest = SimpleNamespace(types=claimed)
    simple_namespace = SimpleNamespace(manifest=manifest, checks=[Check("columns", columns, ""), Check("k", False, "")])
    run: Any = SimpleNamespace(engine=engine)
    release: Any = SimpleNamespace(verification=simple_namespace, rows=rows)
    return _check_rows(run, release, table("recoded"))


def test_rows_of_other_columns_are_not_those_of_the_source(engine: DuckDBEngine) -> None:
    fill(engine, "released", ROWS, TYPES)
    fill(engine, "recoded", ROWS, TYPES)
    assert same_rows(engine, TYPES).passed
    assert not same_rows(engine, TYPES, columns=False).passed
    assert not same_rows(engine, {"zip": "VARCHAR"}).passed
    assert not same_rows(engine, TYPES, BrokenReleaseError("it cannot be read")).passed
    engine.connection.execute("ALTER TABLE released ALTER cost TYPE DECIMAL(9, 2)")
    assert not same_rows(engine, TYPES).passed
    engine.connection.execute("ALTER TABLE recoded ALTER cost TYPE DECIMAL(9, 2)")
    assert not same_rows(engine, TYPES).passed
    assert same_rows(engine, TYPES | {"cost": "DECIMAL(9,2)"}).passed


@pytest.mark.parametrize("least", [2, 3])
def test_suppressed_rows_are_shown_by_labels_with_enough_of_both(least: int, engine: DuckDBEngine) -> None:
    """Each has at least ``least`` suppressed and released rows. Labels without released rows and unknown values do not
    count; NULL is a label."""
    source = {
        ("a", True): 6,
        ("b", True): 5,
        (None, True): 7,
        ("d", True): 4,
        ("e", True): 9,
        ("g", True): 9,
        ("f", False): 9,
    }
    released = {"a": 3, "b": 3, None: 4, "d": 2, "f": 5, "g": 1}
    fill(
        engine, "source", [(*key, n) for key, n in source.items()], {"value": "VARCHAR", "known": "BOOL", "rows": "INT"}
    )
    fill(engine, "released", [(key,) for key, n in released.items() for _ in range(n)], {"zip": "VARCHAR"})
    query = suppressed_by_label(table("source"), col("value"), col("known"), table("released"), "zip", least)
    partly_suppressed = {key: source[key, True] - n for key, n in released.items() if (key, True) in source}
    assert {row[0]: row[1:] for row in engine.rows(query)} == {
        key: (n, released[key], len(partly_suppressed))
        for key, n in partly_suppressed.items()
        if n >= least and released[key] >= least
    }


TREE = [("02139", 1, "0213*"), ("02139", 2, "*"), ("0213*", 2, "*"), ("02140", 1, "0214*"), ("02140", 2, "*")]
TREE += [("0214*", 2, "*"), ("05001", 1, "0500*"), ("05001", 2, "050**"), ("0500*", 2, "050**")]


@pytest.mark.parametrize(
    ("rows", "strange", "repeated", "contradicted"),
    [
        (TREE, 0, 0, 0),
        ([*TREE, ("0299*", 2, "*")], 1, 0, 0),  # neither released nor above one that is
        ([*TREE, ("02139", 1, "0213*")], 0, 1, 0),
        ([*TREE, ("02139", 1, "0219*")], 0, 1, 0),
        ([*TREE, ("02139", -1, "x")], 0, 1, 0),
        ([*TREE, ("02139", 0, "x")], 0, 0, 0),
        ([*TREE, ("02139", None, "x")], 0, 1, 0),
        ([*TREE, ("02139", 3, None)], 0, 1, 0),
        ([*TREE[:2], ("0213*", 2, "all"), *TREE[3:]], 0, 0, 1),
        ([*TREE[:1], ("02139", 2, "all"), *TREE[2:]], 0, 0, 1),
        ([*TREE, ("02140", 0, "0500*")], 0, 0, 1),
    ],
)
def test_label_levels_form_a_tree_of_released_labels(
    rows: list[tuple[Any, ...]], strange: int, repeated: int, contradicted: int, engine: DuckDBEngine
) -> None:
    types = {"attribute": "VARCHAR", "label": "VARCHAR", "level": "INT", "ancestor": "VARCHAR"}
    fill(engine, "levels", [("zip", *row) for row in rows], types)
    released = [("zip", "02139"), ("zip", "02140"), ("zip", "05001"), ("age", "0299*")]
    fill(engine, "released", released, {"attribute": "VARCHAR", "label": "VARCHAR"})
    levels = table("levels")
    assert engine.rows(_UNRELATED_LABELS(levels=levels, released=select_star(table("released")))) == [(strange,)]
    assert engine.rows(_AMBIGUOUS_ANCESTORS(levels=levels)) == [(repeated,)]
    assert bool(engine.rows(_CONTRADICTING_ANCESTORS(levels=levels))[0][0]) is bool(contradicted)


@pytest.mark.parametrize(
    ("side", "label", "ancestor", "is_under"),
    [
        ("right", "02139", "0213*", True),
        ("right", "0213*", "021**", True),
        ("right", "0214*", "0213*", False),
        ("right", "213", "21***", True),  # shorter texts are padded first
        ("right", "213", "20***", False),
        ("right", "02139", "0213", False),
        ("right", "anything", "*", True),
        ("left", "02139", "*2139", True),
        ("left", "139", "**139", True),
        ("left", "02139", "*2138", False),
        ("left", "02139", "2139", False),
    ],
)
def test_masked_labels_lie_under_their_masks(
    side: str, label: str, ancestor: str, is_under: bool, engine: DuckDBEngine
) -> None:
    condition = _IS_MASKED_BY[side]().sql("duckdb")
    query = f"SELECT {condition} FROM (SELECT '{label}' AS label, '{ancestor}' AS ancestor)"
    assert engine.connection.execute(query).fetchone() == (is_under,)


@pytest.mark.cases(4)
@pytest.mark.parametrize(
    ("label", "ancestor", "is_under"),
    [
        ("20-24", "20-29", True),
        ("25-29", "20-29", True),
        ("19-24", "20-29", False),
        ("25-30", "20-29", False),
        ("20-29", "20-29", True),
        ("<20", "<30", True),
        ("<30", "<20", False),
        ("10-19", "<20", True),
        ("10-20", "<20", False),
        ("≥90", "≥80", True),
        ("≥80", "≥90", False),
        ("<20", "10-29", False),
        ("≥90", "80-99", False),
        ("20-24", "*", True),
    ],
)
def test_ranges_lie_under_wider_ones(label: str, ancestor: str, is_under: bool, engine: DuckDBEngine) -> None:
    low, high = label_bounds(col("label"), "integer")
    from_, to_ = label_bounds(col("ancestor"), "integer")
    condition = _IS_RANGE_WITHIN(low=low, high=high, from_=from_, to_=to_).sql("duckdb")
    query = f"SELECT {condition} FROM (SELECT '{label}' AS label, '{ancestor}' AS ancestor)"
    assert engine.connection.execute(query).fetchone() == (is_under,)
