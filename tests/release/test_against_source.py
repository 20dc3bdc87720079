"""The checks of `verify --policy`, at their borders: figures of a release beside those that its source gives."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sqlanon.against_source import _persons, _suppressed, _within_limit, check_losses, explain_failure
from sqlanon.frequency.suppression_limit import SuppressionLimit
from sqlanon.release.check import Check
from sqlanon.release.decoy_check import CATALOG_CHECK
from sqlanon.release.source_change import SourceChange
from sqlanon.release.verify import Verification

SAME = SourceChange(datetime(2026, 1, 2), 100, 100, withdrawn_persons=0, missing_rows=0)


def prepared(limit: SuppressionLimit = SuppressionLimit(5), late: bool = False, masks: bool = False) -> Any:  # noqa: B008
    return SimpleNamespace(limit=limit, policy=SimpleNamespace(suppresses_last=late, masks=masks))


@pytest.mark.parametrize(
    ("claimed", "found", "late", "passed"),
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
def test_suppressed_rows_are_those_of_the_source(claimed: int, found: int, late: bool, passed: bool) -> None:
    assert _suppressed(prepared(late=late), SimpleNamespace(suppressed_rows=claimed), found).passed is passed


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
def test_no_more_is_suppressed_than_is_allowed(
    limit: SuppressionLimit, rows: int, persons: int | None, passed: bool
) -> None:
    searched: Any = SimpleNamespace(suppressed_rows=rows, suppressed_persons=persons)
    assert _within_limit(prepared(limit), searched, rows).passed is passed


COUNTED: Any = SimpleNamespace(persons=20, released=17, suppressed=3, partly_released=1, smallest_class=4)
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
    checks = _persons(prepared(SuppressionLimit(50, 4, 20)), manifest, COUNTED)
    wrong = [check.name.removeprefix("against the source: ") for check in checks if not check.passed]
    assert wrong == ([] if off == 0 else ["smallest class" if name == "smallest_class" else "persons"])
    # Masked rows are a class, too, which the recoded source does not have.
    assert len(_persons(prepared(SuppressionLimit(50, 4, 20), masks=True), manifest, COUNTED)) == 1


@pytest.mark.parametrize(
    ("persons", "suppressed", "passed"), [(20, 3, True), (20, 4, True), (20, 5, False), (20, 2, False), (21, 4, False)]
)
def test_with_noise_more_persons_may_have_lost_rows(persons: int, suppressed: int, passed: bool) -> None:
    manifest: Any = SimpleNamespace(**CLAIMED | {"persons": persons, "suppressed_persons": suppressed})
    (check,) = _persons(prepared(SuppressionLimit(50, 4, 20), late=True), manifest, COUNTED)
    assert check.passed is passed


def test_where_rows_are_counted_nothing_is_said_of_persons() -> None:
    assert _persons(prepared(), SimpleNamespace(), None) == []


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
        ({"missing_rows": None}, False, False, True),  # nobody can tell
        ({"missing_rows": None, "deleted_rows": 0}, False, False, False),
    ],
)
def test_what_shows_that_a_source_has_changed(
    fields: dict[str, Any], has_changed: bool, has_lost: bool, may_have_lost: bool
) -> None:
    change = replace(SAME, **fields)
    assert (bool(change), change.lost_rows, change.may_have_lost_rows) == (has_changed, has_lost, may_have_lost)
    found = check_losses(verification(True), change)
    assert found.verified is not has_lost


def test_a_change_of_the_source_is_said_in_words() -> None:
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
    assert "its smallest class has 4 rows, and 1 class has fewer than 5" in replace(SAME, **few).what_holds
    assert "fewer than" not in replace(SAME, **few | {"small_classes": 0}).what_holds
    assert "smallest class" not in replace(SAME, **few | {"missing_rows": 0}).what_holds


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
    checks = tuple(Check(name, one, "m") for name, one in zip(names, passed, strict=False))
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
def test_checks_fail_because_of_a_change_only_where_there_may_be_one(change: SourceChange, is_explained: bool) -> None:
    before = verification(True, False, False)
    found = explain_failure(before, change, 2)
    if not is_explained:
        assert found == before
        return
    # What was wrong with the release alone stays wrong.
    assert [check.passed for check in found.checks] == [True, False, None, False]
    assert (found.source_change, found.verified) == (change, False)


def test_a_catalog_of_other_decoys_is_no_change_of_the_source() -> None:
    unknown = replace(SAME, missing_rows=None)
    of_catalog = replace(verification(True), checks=(Check("a", True, ""), Check(CATALOG_CHECK, False, "")))
    assert explain_failure(of_catalog, unknown, 1) == of_catalog
    changed = explain_failure(of_catalog, replace(unknown, rows_now=99), 1)
    assert [check.passed for check in changed.checks] == [True, None, False]
