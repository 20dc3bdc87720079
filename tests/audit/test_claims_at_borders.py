"""Claims of a release at the borders of the rules: its score, its suppressed rows by value, its smallest class."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import duckdb
import pytest

import sqlanon
from sqlanon.audit.verify import _check_score
from sqlanon.policy import ReleaseSection
from sqlanon.publish.draft import ReleaseDraft
from sqlanon.release.manifest import Facts, Manifest
from sqlanon.release.metadata import figure_rows
from sqlanon.source_verification import _check_figures
from sqlanon.support.expressions import table
from support.policies import make_policy


@contextmanager
def draft_of(k: int, classes: str, **sections: Any) -> Iterator[ReleaseDraft]:
    """A draft of a table with classes (ward, street, rows), in which classes of at least k rows are kept."""
    with duckdb.connect() as connection, sqlanon.connect(connection) as db:
        connection.execute(f"""
            CREATE TABLE t AS
            SELECT ward, street, 'p' || row_number() OVER () AS person
            FROM (VALUES {classes}) AS r(ward, street, n), range(n);
            CREATE TABLE kept AS FROM t QUALIFY count(*) OVER (PARTITION BY ward, street) >= {k}
        """)
        attributes = {"ward": "suppress", "street": "suppress", "person": "identifying"}
        yield db.anonymize(make_policy(attributes, k=k, **sections))._draft


@pytest.fixture(scope="module")
def draft() -> Iterator[ReleaseDraft]:
    """A draft in which seven rows of ward a are suppressed, because their classes have fewer than five rows."""
    search = {"suppression_limit": 0.2, "measure": "average_class_size"}
    with draft_of(5, "('a', 'x', 20), ('b', 'x', 20), ('a', 'y', 4), ('a', 'z', 3)", search=search) as draft:
        assert draft.recoding.generalization == {"ward": 0, "street": 0}
        yield draft


def released_as(draft: ReleaseDraft, **release: Any) -> ReleaseDraft:
    policy = draft.search_input.policy.model_copy(update={"release": ReleaseSection(**release)})
    return replace(draft, search_input=replace(draft.search_input, policy=policy))


def manifest_of(draft: ReleaseDraft) -> Manifest:
    expected = draft.expected_figures
    return draft.manifest("t", Facts(expected.rows, expected.classes, expected.smallest_class, "digest"))


@pytest.mark.parametrize(("keep", "expected_labels"), [(1, [("ward", "a", 7, 20)]), (2, [])])
def test_suppressed_rows_are_shown_where_readers_have_one_version(
    keep: int, expected_labels: list[Any], draft: ReleaseDraft
) -> None:
    """Subtracting the sums of two versions would reveal rows that only one of them has."""
    assert released_as(draft, keep=keep).suppressed_by_label(table("kept")) == expected_labels


@pytest.mark.parametrize(("after", "is_shown"), [((), True), (("first",), False)])
def test_the_score_of_a_release_beside_others_is_hidden(
    after: tuple[str, ...], is_shown: bool, draft: ReleaseDraft
) -> None:
    manifest = manifest_of(released_as(draft, after=after))
    score = draft.score if is_shown else None
    assert manifest.score == score
    assert [value for _, figure, value, _ in figure_rows(manifest) if figure == "score"] == [score]


@pytest.mark.parametrize(("factor", "passed"), [(1.005, False), (1 + 1e-6, False), (1, True)])
def test_a_score_that_is_a_little_off_is_refused(factor: float, passed: bool, draft: ReleaseDraft) -> None:
    """By a release alone, and with its source: there it is the only figure that is."""
    right = manifest_of(draft)
    assert right.score
    manifest = replace(right, score=right.score * factor)
    opened: Any = SimpleNamespace(manifest=manifest)
    assert [check.passed for check in _check_score(opened)] == [passed]
    checks = _check_figures(draft.search_input, manifest, draft.recoding, draft.score)
    failures = [check.name for check in checks if not check.passed]
    assert failures == ([] if passed else ["against the source: score"])


@pytest.mark.cases(1)
@pytest.mark.parametrize(("size", "smallest"), [(1, 3), (2, 5)])
def test_masked_persons_are_the_smallest_class_where_they_are_fewest(size: int, smallest: int) -> None:
    classes = f"('a', 'x', 5), ('b', 'x', 5), ('c', 'x', {size}), ('d', 'x', {size}), ('e', 'x', {size})"
    source, release = {"table": "t", "person": "person"}, {"suppressed": "mask"}
    with draft_of(
        3, classes, source=source, release=release, search={"suppression_limit": 0.4, "measure": "height"}
    ) as draft:
        assert draft.recoding.masked_rows == 3 * size
        assert manifest_of(draft).smallest_class == smallest
