"""The claims of a manifest, each at its border: one row, person, decoy or level more or less."""

from __future__ import annotations

import itertools
from collections import Counter
from contextlib import nullcontext
from dataclasses import fields, replace
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sqlanon.audit.verification import CLAIMS, Verification
from sqlanon.audit.verify import _check_consistency, check_decoys
from sqlanon.errors import AuditError
from sqlanon.frequency.class_sizes import ClassSizes
from sqlanon.publish import stage
from sqlanon.publish.stage import NOT_COMPARED, NoLedger, find_mismatches
from sqlanon.release.manifest import Manifest, ReleasedColumn, find_invalid_fields
from sqlanon.release.metadata import can_show_labels, generalized_columns
from sqlanon.release.score import is_score_public, recompute_score
from sqlanon.support.checks import Check
from sqlanon.support.expressions import table

POLICY: dict[str, Any] = {
    "attributes": {
        "zip": {"role": "quasi", "hierarchy": [{"rule": "suppress"}]},
        "illness": {"role": "sensitive"},
    },
    "privacy": {"k": 5},
    "search": {"strategy": "optimal", "measure": "loss"},
}
COLUMNS = (ReleasedColumn("zip", "VARCHAR", "quasi"), ReleasedColumn("illness", "VARCHAR", "sensitive"))
PLAIN = Manifest(
    table_name="patients",
    published_at=datetime(2026, 1, 2),
    sqlanon_version="1.0.0",
    engine="duckdb 1.4.0, python 3.12.0",
    policy=POLICY,
    policy_hash="0" * 64,
    columns=COLUMNS,
    generalization={"zip": 1},
    rows=20,
    released_rows=17,
    suppressed_rows=3,
    classes=2,
    smallest_class=5,
    measure="loss",
    score=None,
    optimal=True,
    digest="d",
    heights={"zip": 1},
)


def with_policy(manifest: Manifest = PLAIN, **sections: Any) -> Manifest:
    return replace(manifest, policy={**POLICY, **sections})


PERSONS = replace(
    with_policy(persons="name"),
    smallest_class_rows=6,
    persons=15,
    released_persons=12,
    suppressed_persons=3,
    partly_released_persons=3,
)
"""The suppressed rows belong to different persons, who all have released rows, too."""
DECOYS = replace(with_policy(decoys=True), decoys=4, released_rows=21)
NOISE = replace(
    with_policy(
        attributes={**POLICY["attributes"], "age": {"role": "quasi", "noise": {"epsilon": 1.0}}},
        privacy={"k": 5, "confidence": 0.9},
    ),
    columns=(*COLUMNS, ReleasedColumn("age", "BIGINT", "quasi")),
    noise={"age": {"epsilon": 1.0}},
    epsilon=1.0,
    confidence={"beta": 0.9},
)


def wrong(manifest: Manifest) -> str:
    """The claims that contradict one another; empty without any."""
    check = _check_consistency(manifest)
    assert check.passed == (check.message == "consistent")
    return check.message.removeprefix("contradicts itself in ") if not check.passed else ""


@pytest.mark.parametrize("manifest", [PLAIN, PERSONS, DECOYS, NOISE])
def test_sound_claims_are_consistent(manifest: Manifest) -> None:
    assert wrong(manifest) == ""


@pytest.mark.parametrize(
    ("changes", "claim"),
    [
        ({"format": 2}, "format"),
        ({"digest_algorithm": "sum"}, "format"),
        ({"released_rows": 18}, "row counts"),
        ({"released_rows": 16}, "row counts"),
        ({"released_rows": 20}, "row counts"),  # right if rows are masked
        ({"generalization": {}}, "generalization"),
        ({"generalization": {"zip": 1, "illness": 0}}, "generalization"),
        ({"columns": (*COLUMNS[:1], replace(COLUMNS[1], role="insensitive"))}, "roles"),
        ({"columns": COLUMNS[1:]}, "quasi-identifiers"),
        ({"measure": "precision"}, "measure"),
        ({"guarantee": "combinations"}, "guarantee"),
        ({"decoys": 0}, "decoys"),
        ({"persons": 15}, "persons"),
        ({"smallest_class_rows": 5}, "persons"),
        ({"partly_released_persons": 0}, "persons"),
        ({"epsilon": 1.0}, "noise"),
        ({"confidence": {"beta": 0.9}}, "noise"),
        ({"policy": {**POLICY, "privacy": {}}}, "requirements"),
    ],
)
def test_each_claim_that_contradicts_the_others_is_named(changes: dict[str, Any], claim: str) -> None:
    assert wrong(replace(PLAIN, **changes)) == claim


def test_masked_rows_are_released_or_dropped_together() -> None:
    for key in ({"suppressed": "mask"}, {"release": {"suppressed": "mask"}}):
        masked = with_policy(**key)
        assert [n for n in range(15, 23) if not wrong(replace(masked, released_rows=n))] == [17, 20]
    assert wrong(replace(with_policy(suppressed="drop"), released_rows=20)) == "row counts"


@pytest.mark.parametrize(
    ("changes", "is_sound"),
    [
        ({"persons": 16}, False),
        ({"persons": 14}, False),
        ({"partly_released_persons": 0}, True),
        ({"partly_released_persons": -1}, False),
        ({"partly_released_persons": 4}, False),  # more than have a suppressed row
        ({"persons": 16, "suppressed_persons": 4}, False),  # more than there are suppressed rows
        ({"persons": 14, "suppressed_persons": 2, "partly_released_persons": 2}, True),
        ({"persons": 12, "suppressed_persons": 0, "partly_released_persons": 0}, True),
        ({"smallest_class": 6}, True),  # each row of another person
        ({"smallest_class": 7}, False),
        ({"smallest_class": 0}, True),
        ({"smallest_class": -1}, False),
        ({"smallest_class": 16, "smallest_class_rows": 16}, False),  # more than there are persons
        ({"smallest_class": 15, "smallest_class_rows": 16}, True),
        ({"smallest_class_rows": None}, False),
        ({"released_persons": None}, False),
        ({"suppressed_persons": None}, False),
        ({"partly_released_persons": None}, False),
        ({"persons": None}, False),
    ],
)
def test_figures_of_persons_fit_one_another(changes: dict[str, Any], is_sound: bool) -> None:
    assert wrong(replace(PERSONS, **changes)) == ("" if is_sound else "persons")


def test_no_rows_suppressed_are_of_no_person() -> None:
    none = {"persons": 12, "suppressed_persons": 0, "partly_released_persons": 0}
    assert wrong(replace(PERSONS, rows=17, suppressed_rows=0, **none)) == ""
    assert wrong(replace(PERSONS, rows=17, suppressed_rows=0, **none | {"persons": 13, "suppressed_persons": 1}))


@pytest.mark.parametrize(
    ("changes", "claim"),
    [
        ({"decoys": None, "released_rows": 17}, "decoys"),
        ({"decoys": 0, "released_rows": 17}, ""),
        ({"decoys": 1, "released_rows": 18}, ""),
        ({"decoys": -1, "released_rows": 16}, "decoys"),
        ({"smallest_class": 6}, "decoys"),  # a filled class has k rows
        ({"smallest_class": 4}, "decoys"),
        ({"smallest_class": 1, "policy": {**POLICY, "decoys": True, "privacy": {"k": 1}}}, "decoys"),
        ({"smallest_class": 2, "policy": {**POLICY, "decoys": True, "privacy": {"k": 2}}}, ""),
        ({"decoys": 0, "released_rows": 17, "smallest_class": 6}, ""),
        ({"decoys": 0, "released_rows": 17, "policy": {**POLICY, "decoys": True, "privacy": {"l": 2}}}, "decoys"),
    ],
)
def test_decoys_fill_classes_up_to_k(changes: dict[str, Any], claim: str) -> None:
    assert wrong(replace(DECOYS, **changes)) == claim


@pytest.mark.parametrize(
    "changes",
    [
        {"epsilon": 1.5},
        {"epsilon": None},
        {"noise": {"age": {"epsilon": 2.0}}},
        {"confidence": {"beta": 0.8}},
        {"confidence": None},
    ],
)
def test_noise_is_claimed_as_the_policy_has_it(changes: dict[str, Any]) -> None:
    assert wrong(replace(NOISE, **changes)) == "noise"


@pytest.mark.parametrize(("decoys", "passed"), [(8, True), (9, False), (0, True)])
def test_a_filled_class_has_at_most_k_less_one_decoys(decoys: int, passed: bool) -> None:
    (check,) = check_decoys(replace(DECOYS, decoys=decoys), {4: 7, 5: 2, 6: 7})
    assert check.passed is passed


def test_a_manifest_without_decoys_passes() -> None:
    assert check_decoys(PLAIN, {5: 2}) == []


@pytest.mark.parametrize(
    ("changes", "strange"),
    [
        ({}, []),
        ({"heights": {"zip": 2}}, []),
        ({"heights": {"zip": 0}}, ["heights"]),
        ({"heights": {"zip": 2**31 - 1}}, []),
        ({"heights": {"zip": 2**31}}, ["heights"]),
        ({"heights": {"zip": 1, "illness": 1}}, ["heights"]),
        ({"heights": None}, []),
        ({"dropped_lines": 0}, []),
        ({"dropped_lines": -1}, ["dropped_lines"]),
        ({"dropped_lines": True}, ["dropped_lines"]),
        ({"decoys": True}, ["decoys"]),
        ({"version": 1.0}, ["decoys"]),
        ({"persons": 1.0}, ["persons"]),
        ({"optimal": 1}, ["optimal"]),
        ({"confidence": {"beta": 1}}, []),
        ({"confidence": {"beta": True}}, ["confidence"]),
        ({"confidence": {"alpha": 0.5}}, ["confidence"]),
        ({"guarantee": "all"}, ["guarantee"]),
        ({"policy_hash": "0" * 63}, ["policy_hash"]),
        ({"policy_hash": "0" * 65}, ["policy_hash"]),
        ({"engine": "duckdb 1.4.0"}, ["engine"]),
        ({"sqlanon_version": "1.0 "}, ["sqlanon_version"]),
    ],
)
def test_fields_hold_nothing_but_their_figures(changes: dict[str, Any], strange: list[str]) -> None:
    assert find_invalid_fields(replace(PLAIN, **changes)) == strange


def test_the_fingerprint_is_of_all_claims_but_the_version() -> None:
    """A file with the rows of several versions numbers them; everything else is the release."""
    changed_manifest = replace(
        DECOYS, persons=1, table_name="t", rows=21, noise={"age": {"epsilon": 1}}, version=2, score=1.0
    )
    changed = {
        field.name for field in fields(Manifest) if getattr(PLAIN, field.name) != getattr(changed_manifest, field.name)
    }
    assert {"policy", "decoys", "rows", "score", "version"} <= changed
    for name in changed:
        is_same = replace(PLAIN, **{name: getattr(changed_manifest, name)}).fingerprint() == PLAIN.fingerprint()
        assert is_same is (name == "version"), name


def test_labels_are_of_generalized_columns_and_of_open_ends() -> None:
    assert generalized_columns(PLAIN) == ["zip"]
    assert generalized_columns(replace(PLAIN, generalization={"ZIP": 0})) == []
    assert generalized_columns(replace(PLAIN, generalization={"ZIP": None})) == ["zip"]
    ends = with_policy(attributes={"ZIP": {"role": "quasi", "hierarchy": [{"rule": "intervals", "above": 90}]}})
    assert generalized_columns(replace(ends, generalization={"zip": 0})) == ["zip"]


# --- the score ---------------------------------------------------------------------------------------


def shows(measure: str, manifest: Manifest = PLAIN, **search: Any) -> bool:
    return is_score_public(
        replace(
            manifest,
            measure=measure,
            policy={**manifest.policy, "search": {"strategy": "optimal", "measure": measure, **search}},
        )
    )


def test_a_score_is_shown_where_it_follows_from_the_release() -> None:
    """Heights follow from levels, and class sizes from the rows; loss needs the values of the source."""
    classes, levels = ("discernibility", "average_class_size", "distinct"), ("height", "relative_height")
    assert all(map(shows, (*classes, *levels, "suppression")))
    assert not any(map(shows, ("loss", "entropy")))
    masked = with_policy(suppressed="mask")
    assert not any(shows(class_, masked) for class_ in classes)  # the masked rows look like a class
    assert shows("suppression", masked) and all(shows(level, masked) for level in levels)
    unmasked = replace(masked, suppressed_rows=0)
    assert all(shows(figure, unmasked) for figure in classes)
    for figures in (PERSONS, DECOYS, replace(DECOYS, decoys=0)):
        assert not any(shows(figure, figures) for figure in classes)
        assert shows("suppression", figures)
    assert not any(shows(figure, NOISE) for figure in (*classes, "suppression"))
    for local in ({"strategy": "mondrian"}, {"suppression": "cells"}):
        assert not any(shows(figure, **local) for figure in (*classes, *levels))
    assert not shows("height", replace(PLAIN, generalization={"zip": None}))
    assert not shows("height", replace(PLAIN, heights={}))
    assert shows("height", replace(PLAIN, generalization={"zip": 0}, heights={}))


def test_the_top_of_a_mask_hides_its_height() -> None:
    """The release shows level 1 of 1: a measure that counts levels would show the length of the longest text."""
    mask = with_policy(attributes={"ZIP": {"role": "quasi", "hierarchy": [{"rule": "mask"}]}})
    assert not shows("height", mask)
    assert shows("relative_height", mask)
    assert shows("height", replace(mask, heights={"zip": 2}))


@pytest.mark.parametrize(
    ("measure", "score"),
    [
        ("discernibility", 5 * 5 + 12 * 12 + 20 * 3),
        ("average_class_size", 20 / 3),
        ("suppression", 3),
        ("height", 1),
    ],
)
def test_the_score_is_worked_out_from_the_release(measure: str, score: float) -> None:
    policy = {**POLICY, "search": {"strategy": "optimal", "measure": measure}}
    recomputed = recompute_score(replace(PLAIN, measure=measure, policy=policy), {5: 1, 12: 1})
    assert recomputed == pytest.approx(score)


# --- against the run ---------------------------------------------------------------------------------


def failures(figures: dict[str, int], expected: dict[str, Any]) -> list[str]:
    """The differences between a release with these figures and a run that expects others."""
    manifest = replace(PLAIN, **{"released_rows": 12, "classes": 3, "smallest_class": 4, **figures})
    wanted = SimpleNamespace(
        **{"rows": 12, "classes": 3, "smallest_class": 4, "masked_rows": 0, "digest": None} | expected
    )
    draft: Any = SimpleNamespace(expected_figures=wanted, columns=lambda: COLUMNS)
    return find_mismatches(manifest, manifest, draft)


@pytest.mark.parametrize(
    ("figures", "expected", "count"),
    [
        ({}, {}, 0),
        ({}, {"digest": "d"}, 0),
        ({}, {"digest": "e"}, 1),
        ({"released_rows": 11}, {}, 1),
        ({"released_rows": 13}, {}, 1),
        ({"classes": 4}, {}, 1),
        ({"classes": 2}, {}, 1),
        ({"smallest_class": 3}, {}, 1),
        ({"smallest_class": 5}, {}, 1),
        # Masked rows are a class of their own, which may be the smallest.
        ({"classes": 4}, {"masked_rows": 4}, 0),
        ({"classes": 4}, {"masked_rows": 5}, 0),
        ({"classes": 4}, {"masked_rows": 3}, 1),
        ({"classes": 4, "smallest_class": 3}, {"masked_rows": 3}, 0),
        ({"classes": 4, "smallest_class": 3}, {"masked_rows": 5}, 1),
        ({"classes": 5}, {"masked_rows": 4}, 1),
        # Or they read like a kept class.
        ({"smallest_class": 5}, {"masked_rows": 3}, 0),
        ({"classes": 2}, {"masked_rows": 3}, 1),
        ({"smallest_class": 9, "smallest_class_rows": 4}, {}, 0),
        ({"smallest_class": 4, "smallest_class_rows": 5}, {}, 1),
    ],
)
def test_a_release_has_the_rows_and_classes_of_its_run(
    figures: dict[str, int], expected: dict[str, Any], count: int
) -> None:
    assert len(failures(figures, expected)) == count


def test_columns_and_manifest_are_those_that_were_written() -> None:
    wanted = SimpleNamespace(rows=17, classes=2, smallest_class=5, masked_rows=0, digest=None)
    draft: Any = SimpleNamespace(expected_figures=wanted, columns=lambda: COLUMNS)
    assert find_mismatches(PLAIN, PLAIN, draft) == []
    assert len(find_mismatches(PLAIN, replace(PLAIN, optimal=False), draft)) == 1
    draft.columns = lambda: COLUMNS[::-1]
    assert find_mismatches(PLAIN, PLAIN, draft) == ["the columns are not those of the policy"]


# --- what may be shown -------------------------------------------------------------------------------


def test_published_suppression_leaves_each_hidden_label_undetermined() -> None:
    """Hidden labels have at most ``least - 1`` suppressed rows each. The rows that are not shown must be 0, or at least
    ``least`` and few enough that any hidden label may have none."""
    for least, labels, count, suppressed_rows in itertools.product((2, 3, 5), range(1, 5), range(4), range(14)):
        if count > labels:
            continue
        label_counts = [least + i for i in range(count)]
        hidden_counts = itertools.product(range(least), repeat=max(labels - count - 1, 0))
        is_open = labels > count and any(sum(rows) == suppressed_rows for rows in hidden_counts)  # one of them has none
        expected = suppressed_rows == 0 or (suppressed_rows >= least and is_open)
        assert can_show_labels(label_counts, sum(label_counts) + suppressed_rows, labels, least) == expected, (
            least,
            labels,
            count,
            suppressed_rows,
        )


# --- sizes of classes --------------------------------------------------------------------------------


def test_figures_of_class_sizes_are_those_of_a_list_of_classes() -> None:
    classes = [1, 1, 1, 2, 4, 5, 7, 7, 9, 10, 30]
    sizes = ClassSizes.from_classes(dict(Counter(classes)))
    assert (sizes.classes, sizes.count, sizes.rows) == (len(classes), sum(classes), sum(classes))
    assert (sizes.smallest, sizes.uniques, sizes.pairs) == (1, 3, 1)
    assert sizes.rows_where(lambda size: size < 5) == sum(size for size in classes if size < 5)
    assert sizes.mean(lambda size: 1 / size) == pytest.approx(len(classes) / sum(classes))
    assert ClassSizes.from_classes({}).mean(lambda size: 1.0) == 0
    assert (ClassSizes.from_classes({}).smallest, ClassSizes.from_classes({3: 1}).uniques) == (0, 0)
    for few, apart in itertools.product((1, 2, 3, 5, 10), (False, True)):
        bins = sizes.bins(few, apart)
        assert [(low, high, sum(low <= class_ <= high for class_ in classes)) for low, high, *_ in bins] == [
            (low, high, n) for low, high, n, _ in bins
        ]
        assert sum(n for *_, n, _ in bins) == len(classes)
        assert [low for low, *_ in bins[1:]] == [high + 1 for _, high, *_ in bins[:-1]]


def test_persons_with_several_rows_are_counted_once_in_a_class() -> None:
    """Two classes of two persons with five rows in all, one of a single person with three."""
    sizes = ClassSizes.from_rows([(2, 2, 5), (1, 1, 3), (4, 0, 0)])
    assert (sizes.count, sizes.rows, sizes.classes, sizes.smallest) == (5, 8, 3, 1)
    assert sizes.mean(lambda size: 1 / size) == pytest.approx((4 * 0.5 + 1) / 5)
    assert sizes.rows_where(lambda size: size < 2) == 3


@pytest.mark.parametrize("name", ["sha256", "against the ledger: sha256", "rows"])
@pytest.mark.parametrize("passed", [True, False, None])
@pytest.mark.parametrize("is_file", [True, False])
def test_only_the_hash_of_a_whole_file_proves_the_claims(name: str, passed: bool | None, is_file: bool) -> None:
    """The ledger has a hash of the rows of a release on a server, whose manifest may have been replaced."""
    checks = (Check("rows", passed=True, message=""), Check(name, passed, ""))
    verification = Verification(Path("r"), PLAIN, checks, "digest", is_file=is_file)
    is_proven = passed is True and (name == "sha256" or (name == "against the ledger: sha256" and is_file))
    assert verification.claims == (() if is_proven else CLAIMS)
    assert verification.verified is (passed is not False)


def test_a_release_without_a_catalog_is_not_compared_and_says_so() -> None:
    assert NoLedger().notes("d") == (NOT_COMPARED,)
    assert NoLedger(is_draft=True).notes("d") == ()  # no draft is compared


@pytest.mark.parametrize("failures", [[], ["k-anonymity"]])
def test_rows_are_copied_only_if_the_audit_passes(failures: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def audit(*_: Any) -> None:
        if failures:
            raise AuditError(failures)

    monkeypatch.setattr(stage, "audit", audit)
    staged = SimpleNamespace(rows=lambda: nullcontext(table("staged")))
    target: Any = SimpleNamespace(table_name="r", facts=lambda staged: None, stage=lambda draft: nullcontext(staged))
    statements = list[str]()
    run = SimpleNamespace(engine=SimpleNamespace(execute=lambda statement: statements.append(statement.sql("duckdb"))))
    draft: Any = SimpleNamespace(run=run, manifest=lambda name, facts: None)
    with pytest.raises(AuditError) if failures else nullcontext():
        stage.copy_audited_rows(target, draft, table("copied"))
    assert statements == ([] if failures else ['CREATE TABLE "copied" AS SELECT * FROM "staged"'])
