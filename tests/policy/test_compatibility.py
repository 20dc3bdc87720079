"""Incompatible features: each row of the table refuses some policy, and the page is generated from the table."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import sqlanon
from sqlanon.policy import compatibility
from sqlanon.policy.compatibility import (
    EXTENSIONS,
    LEDGER_FEATURES,
    LIVE_VIEWS,
    TABLE,
    Row,
    collect_sections,
    find_conflicts,
    page,
)

REACHING = (632, 11, 617, 218, 342, 491, 850, 172, 6, 470, 521, 727, 63, 90, 123, 209, 7, 9, 33, 52, 99, 141, 153, 223,
            379, 1179)  # fmt: skip
"""The seeds of the first policies: together they reach each row. Others are drawn after a change of the table."""
DRAWN = 2000
"""So many policies are drawn at most."""

DOCS = Path(__file__).parents[2] / "docs"
QUASI = ("zip", "age", "sex")
SOURCES: tuple[Mapping[str, Any], ...] = (
    {"database": "a.duckdb", "table": "t"},
    {"database": "a.duckdb", "query": "SELECT 1"},
    {"files": "a/*.csv"},
    {"postgres": "postgresql://h/d", "table": "s.t"},
    {"spark": "local[2]", "table": "s.t"},
    {"frequency_set": "f.parquet", "table": "t"},
)
PLACES: tuple[Mapping[str, Any], ...] = (
    {"database": "r.duckdb"},
    {"file": "r.parquet"},
    {"postgres": "postgresql://h/d", "table": "s.r"},
    {"spark": True, "table": "S.r"},
    {"table": "t"},
    {"table": "a.b.c.d"},
)
PRIVACY: Mapping[str, Any] = {
    "k_map": 3,
    "delta_presence": {"max": 0.5},
    "null_map": {"max": 0.1},
    "wrong_map": {"max": 0.1},
    "average_risk": 0.2,
    "sample_uniqueness": 0.2,
    "population_uniqueness": {"limit": 0.1, "population": 1000},
    "k_anonymity": [{"quasi": ["zip"], "k": 3}],
    "l_diversity": [{"attribute": "ill", "kind": "distinct", "l": 2}],
    "epsilon": 2,
    "epsilon_total": 3,
    "linkable_noise": True,
    "confidence": 0.9,
}
ATTRIBUTE: Mapping[str, Any] = {"weight": 2.0, "on_unknown": "suppress", "identification": "most"}
SEARCH: Mapping[str, tuple[Any, ...]] = {
    "strategy": ("optimal", "mu-argus", "iab", "mondrian", "local"),
    "measure": ("loss", "height", "entropy", "distinct"),
    "aggregate": ("mean", "max"),
    "summary": ("set",),
    "cuts": ("relaxed",),
    "suppression": ("cells",),
}
RELEASE: Mapping[str, Any] = {
    "suppressed": "mask",
    "after": "all",
    "decoys": True,
    "draft": True,
    "keep": 3,
    "storage_version": "v1.0.0",
    "ledger": False,
}


def draw_table(seed: int) -> dict[str, Any]:
    """A policy that is sound in each section but [search], with a few features at a time."""
    rng = random.Random(seed)
    share = rng.choice([0.05, 0.15])

    def some(keys: Mapping[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in keys.items() if rng.random() < share}

    attributes: dict[str, Any] = {"ill": {"role": "sensitive"}, "id": {"role": "identifying"}}
    for name in QUASI:
        spec = {"role": "quasi", **some(ATTRIBUTE)}
        if rng.random() < share:
            attributes[name] = {"role": "quasi", "noise": {"epsilon": 1}, "on_unknown": spec.get("on_unknown", "error")}
        else:
            attributes[name] = {**spec, "hierarchy": rng.choice(["suppress", "suppress", {"table": "h"}])}
    mostly_sound = seed % 5 in (3, 4)
    sources, places = (SOURCES[:1], PLACES[:1]) if mostly_sound else (SOURCES, PLACES)
    tree = {
        "source": {**rng.choice(sources), **some({"person": "id", "key": "id"})},
        "attributes": attributes,
        "privacy": {"k": rng.choice([1, 5, 5, 5]), **some(PRIVACY)},
        "search": {name: rng.choice(values) for name, values in SEARCH.items() if rng.random() < 2 * share},
        "release": {**rng.choice(places), **some(RELEASE)},
    }
    tree |= some({"population": {"table": "p"}, "risk": {"population": 9}, "catalog": {"database": "c.duckdb"}})
    if seed % 5 == 1:
        tree["search"] |= {"sets": "list", **({"strategy": "mondrian", "summary": "set"} if seed % 2 else {})}
    if seed % 5 == 2:
        tree["search"]["strategy"] = "forest"
        tree["source"] |= some({"person": "id"}) if seed % 2 else {"key": "id"}
    if rng.random() < share:
        tree |= {"population": {"database": "p.duckdb", "table": "p"}, "privacy": {"k": 5, "k_map": 3}}
    return tree


def messages(tree: dict[str, Any]) -> set[str]:
    try:
        policy = sqlanon.Policy(**tree)
    except sqlanon.PolicyError as error:
        return {problem.message for problem in error.problems}
    sections = collect_sections(dict(policy))
    return {
        conflict.message
        for rows in (LIVE_VIEWS, EXTENSIONS, LEDGER_FEATURES)
        for conflict in find_conflicts(rows, sections)
    }


def test_each_row_refuses_a_policy() -> None:
    def pattern(row: Row) -> re.Pattern[str]:
        return re.compile(re.sub(r"\\{\w+\\}", ".+", re.escape(row.message)).replace(r"\{\{\}\}", r"\{\}"))

    left = {row.message: (pattern(row), row) for rows in TABLE.values() for row in rows}
    assert len(left) > 70
    for seed in (*REACHING, *range(DRAWN)):
        reported = messages(draw_table(seed))
        left = {name: row for name, row in left.items() if not any(map(row[0].fullmatch, reported))}
        if not left:
            break
    assert not left, [(row.feature.label, row.conflicting.label) for _, row in left.values()]


@pytest.mark.parametrize("rows", TABLE.values(), ids=TABLE)
def test_the_features_of_a_row_are_named(rows: list[Row]) -> None:
    for row in rows:
        assert "…" not in row.message
        assert row.feature.label.strip("`")
        assert row.conflicting.label.strip("`")


GUARANTEES = (
    compatibility.PERSON,
    compatibility.POPULATION_REQUIREMENT,
    compatibility.TABLE_REQUIREMENT,
    compatibility.UNSUPPORTED_REQUIREMENT,
    compatibility.MORE_THAN_K,
    compatibility.ESTIMATE,
    compatibility.COMPARES_PERSONS,
    compatibility.NOISY_SHIELD,
    compatibility.CONFIDENCE,
    compatibility.DECIDED_BEFORE_NOISE,
    compatibility.DECIDED_WITH_PERSONS,
    compatibility.NOISE,
    compatibility.ATTRIBUTE_NOISE,
    compatibility.POPULATION,
    compatibility.AFTER,
    compatibility.IDENTIFICATION,
)
"""What protects people: a release without it protects them less."""

ADVICE = re.compile(r"\b(leave (it|them|one)\b|remove\b|leave [`\w.]+ out)")
NOT_USED = (
    "applies to strategy {supported}, not to {strategy}: leave it out",  # without it all combinations are checked
    "is not used: only {kinds} use it, and `risk` with a [risk] section; add one of them under [privacy], or leave "
    "the section out",
)
"""Settings without any protection."""

NAMES_WHAT_IS_LOST = re.compile(r"(; the ledger then refuses|; without)")


@pytest.mark.parametrize(
    "row",
    [row for rows in TABLE.values() for row in rows],
    ids=lambda row: f"{row.feature.label}|{row.conflicting.label}",
)
def test_advice_to_weaken_protection_names_the_loss(row: Row) -> None:
    assert "leave one of" not in row.message, "which of them protects people?"
    if row.feature in GUARANTEES and row.message not in NOT_USED:
        assert not ADVICE.search(row.message) or NAMES_WHAT_IS_LOST.search(row.message), row.message
    assert not re.search(r"(leave|remove|drop) (`?source\.)?(person|k|noise|confidence)\b", row.message), row.message


def test_all_incompatible_settings_are_reported_at_once() -> None:
    tree = draw_table(0) | {
        "source": {"database": "a.duckdb", "table": "t", "person": "id"},
        "attributes": {"zip": {"role": "quasi", "hierarchy": "suppress", "weight": 2.0}, "id": {"role": "identifying"}},
        "privacy": {"k": 5, "average_risk": 0.2},
        "search": {"strategy": "local", "measure": "distinct"},
        "release": {"database": "r.duckdb", "decoys": True, "after": "all"},
    }
    with pytest.raises(sqlanon.PolicyError) as caught:
        sqlanon.Policy(**tree)
    assert [problem.place for problem in caught.value.problems] == [
        "attributes.zip.weight",
        "privacy.average_risk",
        *["release.after"] * 2,
        *["release.decoys"] * 4,
    ]


def test_the_page_is_the_table() -> None:
    """`python -c "from sqlanon.policy.compatibility import page; print(page(), end='')"` writes it."""
    assert (DOCS / "reference" / "compatibility.md").read_text(encoding="utf-8") == page()
