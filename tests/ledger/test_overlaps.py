"""Classes that overlap without containment: the counts of both releases reveal the size of their intersection."""

from __future__ import annotations

import itertools
import math
import random
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import sqlanon
from oracles.oracle_attacks import greatest_flows
from sqlanon.attacks import attack, matching
from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.errors import AuditError
from sqlanon.ledger.joint import overlap_flows, overlaps, pair_audit
from sqlanon.ledger.joint.attacks import complementary_release
from sqlanon.ledger.joint.label_pairs import LinkedAttribute
from sqlanon.ledger.joint.overlap_flows import OverlapFlows
from sqlanon.ledger.joint.overlaps import count_shared_rows, subtraction
from sqlanon.ledger.joint.pair_audit import PairAudit
from sqlanon.ledger.joint.row_matching import ReleaseLink
from sqlanon.support.expressions import table
from support.databases import change, run_script
from support.lanes import examples


def policy_of(
    folder: Path, name: str, hierarchy: Any, ill: str = "sensitive", k: int = 5, diversity: int = 1, **search: Any
) -> sqlanon.Policy:
    return sqlanon.Policy(
        source={"database": folder / "people.duckdb", "table": "people", "person": False},
        attributes={"age": {"role": "quasi", "hierarchy": hierarchy, "min_level": 1}, "ill": {"role": ill}},
        privacy={
            "k": k,
            "l_diversity": [{"attribute": "ill", "kind": "distinct", "l": diversity}] if diversity > 1 else [],
        },
        search={"suppression_limit": 0, **search},
        release={"database": folder / f"{name}.duckdb", "table": "people"},
        catalog={"database": folder / "catalog.duckdb"},
    )


def publish(folder: Path, *policy: Any, force: bool = False, **more: Any) -> None:
    with sqlanon.connect() as db:
        db.anonymize(policy_of(folder, *policy, **more)).publish(force=force)


def load(folder: Path, ages: list[int], alone: bool = True) -> None:
    """People of some ages, half of them with an illness; and one of 12 years with HIV."""
    change(folder / "people.duckdb", "CREATE TABLE people (age INTEGER, ill TEXT)")
    with duckdb.connect(folder / "people.duckdb") as connection:
        rows = [(age, "ny"[i % 2]) for i, age in enumerate(ages)] + ([(12, "HIV")] if alone else [])
        if rows:
            connection.executemany("INSERT INTO people VALUES (?, ?)", rows)


AGES = [*range(10), *range(10), *range(15, 30), *range(15, 30)]


@pytest.mark.thorough
@pytest.mark.parametrize("ill", ["sensitive", pytest.param("identifying", marks=pytest.mark.thorough)])
def test_bands_of_two_hierarchies_show_who_is_between_their_ends(tmp_path: Path, ill: str) -> None:
    """0-14 without 0-9 is one person: with a diagnosis, if both show it."""
    load(tmp_path, AGES)
    publish(tmp_path, "one", {"intervals": [10]}, ill)
    with pytest.raises(
        AuditError, match=r"two of their classes share at most 1 row, fewer than 5 \(subtraction\)"
    ) as refused:
        publish(tmp_path, "two", {"intervals": [15]}, ill)
    assert len(refused.value.queries) == 1


@pytest.mark.thorough
def test_bands_that_share_enough_rows_are_published(tmp_path: Path) -> None:
    load(tmp_path, [*AGES, *[12] * 10], alone=False)
    publish(tmp_path, "one", {"intervals": [10]})
    publish(tmp_path, "two", {"intervals": [15]})


@pytest.mark.thorough
def test_the_query_of_a_refusal_counts_the_rows(tmp_path: Path) -> None:
    load(tmp_path, AGES)
    publish(tmp_path, "one", {"intervals": [10]})
    with pytest.raises(AuditError) as refused:
        publish(tmp_path, "two", {"intervals": [15]})
    with duckdb.connect(tmp_path / "two.duckdb") as connection:  # as a draft would be
        connection.execute(f"ATTACH '{tmp_path / 'people.duckdb'}' AS source")
        bands = "CASE WHEN age < 15 THEN '00-14' ELSE '15-29' END"
        connection.execute(f"CREATE TABLE people AS SELECT {bands} AS age, ill FROM source.people")
    with duckdb.connect() as connection:
        for statement in duckdb.extract_statements(refused.value.queries[0]):
            rows = connection.execute(statement).fetchall()
    assert rows == [(1, "10-19 & 00-14")]


@pytest.mark.thorough
@pytest.mark.parametrize("k", [6, 7])
def test_no_pair_of_local_releases_shows_few_rows_by_cumulated_counts(tmp_path: Path, k: int) -> None:
    """The releases have one ordered quasi-identifier: the rows of one up to an age are compared with those of the
    other."""
    compared = 0
    for seed in range(examples(8)):
        folder = tmp_path / str(seed)
        folder.mkdir()
        draw = random.Random(seed)
        load(folder, [draw.randrange(60) for _ in range(120)], alone=False)
        publish(folder, "one", {"intervals": [2]}, "identifying", strategy="mondrian")
        try:
            publish(folder, "two", {"intervals": [2]}, "identifying", k=k, strategy="mondrian")
        except AuditError:
            continue
        cumulated = cumulate(folder / "one.duckdb") | cumulate(folder / "two.duckdb")
        counts = [cumulated[age] for age in sorted(cumulated)]
        compared += 1
        assert all(later - earlier not in range(1, 5) for earlier, later in itertools.pairwise(counts))
    assert compared


def cumulate(release: Path) -> dict[int, int]:
    """The rows up to the last age of each class."""
    with duckdb.connect(release, read_only=True) as connection:
        counts = connection.execute("SELECT age, count(*) FROM people GROUP BY age").fetchall()
    by_last = sorted((int(age.split("-")[-1]), n) for age, n in counts)
    return dict(zip([last for last, _ in by_last], itertools.accumulate(n for _, n in by_last), strict=True))


@settings(max_examples=examples(40), deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_flows_are_those_that_plain_python_finds(data: st.DataObject) -> None:
    first = data.draw(st.dictionaries(st.integers(0, 9), st.integers(1, 4), min_size=1, max_size=3))
    second = data.draw(st.dictionaries(st.integers(0, 9), st.integers(1, 4), min_size=1, max_size=3))
    pairs = [(a, b) for a in first for b in second]
    edges = data.draw(st.lists(st.sampled_from(pairs), unique=True, min_size=1, max_size=6))
    enough = data.draw(st.sampled_from([1, 2, 3, 100]))
    flows, greatest = OverlapFlows(first, second, edges), greatest_flows(first, second, edges)
    most = {edge: max(flow[edge] for flow in greatest) for edge in edges}
    for edge in data.draw(st.permutations(edges)):
        assert flows.max_rows(edge, enough) == min(most[edge], enough)
    some = data.draw(st.lists(st.sampled_from(edges), unique=True, min_size=1))
    together = max(sum(flow[edge] for edge in some) for flow in greatest)
    assert flows.max_rows_together(some, enough) == min(together, enough)
    for edge in data.draw(st.permutations(edges)):  # whatever was asked before
        bound = flows.bound(edge)
        rows = sum(second[b] for b in bound.seconds) - sum(first[a] for a in bound.firsts) + bound.changed
        assert rows == most[edge]


Class = tuple[str, str, str]
"""The labels of two quasi-identifiers, and a value that is shown unchanged."""

VALUES = {"a": {"a"}, "A": {"a", "A2"}, "B": {"B"}, "*": {"a", "A2", "B"}}


def finer_label(first: str, second: str) -> str:
    return min(first, second, key=lambda label: len(VALUES[label]))


def find_few_rows(
    first: Mapping[Class, int], second: Mapping[Class, int], k: int
) -> tuple[dict[tuple[str, str], int], dict[tuple[str, str], int]]:
    """By their finest labels the most rows of overlapping classes, fewer than k: as the join of both counts them, and
    by the counts of both, which a query lists for each pair of classes."""
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE h (level_0 TEXT, level_1 TEXT, level_2 TEXT)")
        connection.execute("INSERT INTO h VALUES ('a', 'A', '*'), ('A2', 'A', '*'), ('B', 'B', '*')")
        for name, classes in (("one", first), ("two", second)):
            connection.execute(f"CREATE TABLE {name} (x TEXT, y TEXT, ill TEXT)")
            for look, n in classes.items():
                connection.execute(f"INSERT INTO {name} SELECT ?, ?, ? FROM range(?)", [*look, n])
        attributes = tuple(LinkedAttribute(name, name, name, (0, 1, 2), (0, 1, 2), table("h"), 2) for name in "xy")
        linked = ReleaseLink(table("one"), table("two"), ("ill",), attributes)
        joined = dict[tuple[str, str], int]()
        for *labels, n in connection.execute(complementary_release(linked, k).sql("duckdb")).fetchall():
            joined[labels[0], labels[1]] = n
        with PairAudit.open(DuckDBEngine(connection), table, linked, k) as audit:
            few = audit.find_overlaps().few
        few_counts = count_shared_rows(few)
        subtracted_rows = connection.execute(subtraction(linked, few).sql("duckdb")).fetchall() if few else []
    assert Counter(subtracted_rows) == Counter((*pair.values, pair.rows) for pair in few)
    counted_by_labels = dict[tuple[str, str], int]()
    for texts, n in few_counts.items():
        x, y = (finer_label(*text.split(" & ")) if " & " in text else text for text in map(str, texts))
        counted_by_labels[x, y] = n
    return joined, counted_by_labels


def test_pairs_that_cannot_have_their_most_rows_at_once_are_counted_together() -> None:
    """Two rows of (A, *) are not of (A, a), and so of (A, B), whichever of two classes of the first they are in."""
    first = {("A", "B", "flu"): 4, ("*", "B", "flu"): 3, ("A", "a", "flu"): 6}
    second = {("A", "*", "flu"): 8, ("a", "B", "flu"): 5}
    assert find_few_rows(first, second, 3) == ({}, {("A", "B"): 2})


def test_the_least_bound_that_is_not_exact_is_checked_by_a_flow() -> None:
    """All groups match. At most 1 row of (a, a) in the first and 2 in the second are in both: 3 rows, where row counts
    of either side allow 4 or more."""
    first = {("a", "a", "flu"): 1, ("A", "A", "flu"): 9, ("*", "*", "flu"): 9}
    second = {("a", "a", "flu"): 2, ("A", "*", "flu"): 9, ("*", "A", "flu"): 9}
    assert find_few_rows(first, second, 4)[1] == {("a", "a"): 3}


@pytest.mark.thorough
def test_rows_of_separate_classes_with_the_same_finest_labels_add_up() -> None:
    """Two of (A, B) are in both with flu, as above; and of each other illness the one that the second release has."""
    first = {("A", "B", "flu"): 4, ("*", "B", "flu"): 3, ("A", "a", "flu"): 6}
    second = {("A", "*", "flu"): 8, ("a", "B", "flu"): 5}
    for illness in ("gout", "cold"):
        first |= {("A", "B", illness): 5, ("A", "*", illness): 5}
        second |= {("*", "B", illness): 1}
    assert find_few_rows(first, second, 5)[1][("A", "B")] == 4


@pytest.mark.thorough
@settings(max_examples=examples(100), deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_rows_that_are_counted_are_those_of_greatest_flows(data: st.DataObject) -> None:
    """No cell of fewer than k rows in all maximum flows is passed over, whichever of the two finds it."""
    looks = st.tuples(*[st.sampled_from("aAB*")] * 2, st.sampled_from("xy"))
    classes = st.dictionaries(looks, st.integers(1, 4), min_size=1, max_size=4)
    first, second, k = data.draw(classes), data.draw(classes), data.draw(st.integers(2, 5))
    cells = {
        (a, b): (finer_label(a[0], b[0]), finer_label(a[1], b[1]))
        for a in first
        for b in second
        if a[2] == b[2] and VALUES[a[0]] & VALUES[b[0]] and VALUES[a[1]] & VALUES[b[1]]
    }
    firsts, seconds = dict(enumerate(first.values())), dict(enumerate(second.values()))
    numbers = [{look: i for i, look in enumerate(side)} for side in (first, second)]
    edges = [(numbers[0][a], numbers[1][b]) for a, b in cells]
    assume(math.prod(min(firsts[a], seconds[b]) + 1 for a, b in edges) < 5_000)
    most = Counter[tuple[str, str]]()
    for flow in greatest_flows(firsts, seconds, edges):
        rows = Counter[tuple[str, str]]()
        for edge, cell in zip(edges, cells.values(), strict=True):
            rows[cell] += flow[edge]
        most |= rows
    joined, few_counts = find_few_rows(first, second, k)
    assert few_counts == {cell: most[cell] for cell in few_counts}
    assert all(joined[cell] >= most[cell] for cell in joined)
    assert {cell for cell, n in most.items() if n < k} <= {*joined, *few_counts}
    assert all(most[cell] < k for cell in {*joined, *few_counts})


@pytest.mark.thorough
@pytest.mark.parametrize("ill", ["sensitive", "identifying"])
def test_attack_subtracts_the_counts_of_overlapping_classes(tmp_path: Path, ill: str) -> None:
    """Same hierarchy: people of 36 to 39 years in a class from 30 on, and in one up to 39."""
    breaches = 0
    for seed in range(6):
        folder = tmp_path / str(seed)
        folder.mkdir()
        draw = random.Random(seed)
        load(folder, [draw.randrange(60) for _ in range(100)], alone=False)
        publish(folder, "one", {"intervals": [2]}, ill, strategy="mondrian")
        try:
            publish(folder, "two", {"intervals": [2]}, ill, k=7, strategy="k-similar")
        except AuditError as refused:
            publish(folder, "two", {"intervals": [2]}, ill, k=7, force=True, strategy="k-similar")
            policy = policy_of(folder, "two", {"intervals": [2]}, ill, 7)
            if re.search(r"\((subtraction|.*complementary release)\)", str(refused)):
                files = [folder / f"{name}.duckdb" for name in ("one", "two")]
                assert attack(files, policy, only=["complementary_release"])["complementary_release"].victims, refused
                breaches += 1
        if breaches:
            break
    assert breaches


@pytest.mark.slow
def test_attack_takes_the_hierarchy_of_a_release_from_the_catalog(tmp_path: Path) -> None:
    """A draft is in no ledger, so its hierarchy is that of the policy."""
    load(tmp_path, AGES)
    publish(tmp_path, "one", {"intervals": [10]})
    policy = policy_of(tmp_path, "two", {"intervals": [15]})
    files = [tmp_path / f"{name}.duckdb" for name in ("one", "two")]
    with sqlanon.connect() as db:
        db.anonymize(policy).publish(draft=True)
    outcome = attack(files, policy, only=["complementary_release"])["complementary_release"]
    assert (outcome.victims, outcome.skipped) == (1, None)
    assert (1, "10-19 & 00-14") in run_script(outcome.sql)
    without = attack(files, policy.model_copy(update={"catalog": None}), only=["complementary_release"])
    assert "needs a policy with the hierarchies of 'age'" in str(without["complementary_release"].skipped)


@pytest.mark.thorough
def test_attack_takes_both_hierarchies_from_the_catalog(tmp_path: Path) -> None:
    """Whichever policy names the catalog; also with open ends."""
    load(tmp_path, AGES)
    hierarchies: dict[str, Any] = {
        "one": {"intervals": [10]},
        "two": {"intervals": [15]},
        "three": {"intervals": {"widths": [15], "below": 15}},
    }
    for name, hierarchy in hierarchies.items():
        publish(tmp_path, name, hierarchy, force=True)
    third = policy_of(tmp_path, "four", {"intervals": [7]})
    for second_name, rows in (("two", (1, "10-19 & 00-14")), ("three", (1, "10-19 & <15"))):
        for policy in (third, policy_of(tmp_path, second_name, hierarchies[second_name])):
            files = [tmp_path / "one.duckdb", tmp_path / f"{second_name}.duckdb"]
            outcome = attack(files, policy, only=["complementary_release"])["complementary_release"]
            assert (outcome.victims, outcome.skipped) == (1, None)
            assert rows in run_script(outcome.sql)


@pytest.mark.slow
def test_too_many_overlapping_pairs_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load(tmp_path, [*AGES, *[12] * 10], alone=False)
    publish(tmp_path, "one", {"intervals": [10]})
    monkeypatch.setattr(overlaps, "MAX_OVERLAPS", 3)
    with pytest.raises(AuditError, match=r"more than 3 pairs of groups may have rows in common: too many to decide"):
        publish(tmp_path, "two", {"intervals": [15]})


@pytest.mark.thorough
def test_attack_reports_too_many_classes_to_subtract(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The attack continues with the classes that it can compare."""
    draw = random.Random(0)
    load(tmp_path, [draw.randrange(60) for _ in range(100)], alone=False)
    publish(tmp_path, "one", {"intervals": [2]}, strategy="mondrian")
    publish(tmp_path, "two", {"intervals": [2]}, k=7, force=True, strategy="k-similar")
    monkeypatch.setattr(overlaps, "MAX_OVERLAPS", 3)
    files = [tmp_path / f"{name}.duckdb" for name in ("one", "two")]
    report = attack(files, policy_of(tmp_path, "two", {"intervals": [2]}, k=7), only=["complementary_release"])
    assert "are not subtracted: their classes overlap, and more than 3 pairs of groups" in str(report)
    assert report["complementary_release"].victims == 0


@pytest.mark.slow
def test_classes_distinguished_by_counts_meet_the_requirements(tmp_path: Path) -> None:
    """0-14 without 0-9 is ten people with HIV. Noise has no part in it, and no release by other bands can be a base."""
    load(tmp_path, AGES, alone=False)
    with duckdb.connect(tmp_path / "people.duckdb") as connection:
        connection.execute("INSERT INTO people SELECT 12, 'HIV' FROM range(10)")
    publish(tmp_path, "one", {"intervals": [10]}, diversity=2)
    with pytest.raises(AuditError, match=r"one class of the two does not have distinct 2-diversity of ill") as refused:
        publish(tmp_path, "two", {"intervals": [15]}, diversity=2)
    assert "noise" not in str(refused.value)
    assert "after" not in str(refused.value)


@pytest.mark.thorough
def test_queries_and_attacks_list_classes_distinguished_by_counts(tmp_path: Path) -> None:
    """No other classes are listed: all people of 10 to 14 years have HIV."""
    load(tmp_path, AGES, alone=False)
    with duckdb.connect(tmp_path / "people.duckdb") as connection:
        connection.execute("INSERT INTO people SELECT 12, 'HIV' FROM range(10)")
    publish(tmp_path, "one", {"intervals": [10]}, diversity=2)
    with pytest.raises(AuditError) as refused:
        publish(tmp_path, "two", {"intervals": [15]}, diversity=2)
    policy = policy_of(tmp_path, "two", {"intervals": [15]}, diversity=2)
    with sqlanon.connect() as db:
        db.anonymize(policy).publish(draft=True)
    (query,) = refused.value.queries
    assert [(row[0], row[-1]) for row in run_script(query)] == [(10, "10-19 & 00-14")]
    files = [tmp_path / f"{name}.duckdb" for name in ("one", "two")]
    outcome = attack(files, policy, only=["complementary_release"])["complementary_release"]
    assert outcome.victims == 10
    assert [(row[0], row[-1]) for row in run_script(outcome.sql) if len(row) > 1] == [(10, "10-19 & 00-14")]


@pytest.mark.thorough
def test_attack_counts_new_rows_of_overlapping_classes_also_of_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One person is new among those up to 29, next to ten who are older. The SQL of many classes is left out."""
    load(tmp_path, [*AGES, *(30 + age for age in AGES)], alone=False)
    publish(tmp_path, "one", {"intervals": [10]}, "insensitive")
    change(tmp_path / "people.duckdb", "INSERT INTO people VALUES (12, 'n')")
    change(tmp_path / "people.duckdb", "INSERT INTO people SELECT 45, 'n' FROM range(10)")
    publish(tmp_path, "two", {"intervals": [15]}, "insensitive", force=True)
    policy = policy_of(tmp_path, "two", {"intervals": [15]}, "insensitive")
    files = [tmp_path / f"{name}.duckdb" for name in ("one", "two")]
    outcome = attack(files, policy, only=["temporal"])["temporal"]
    assert (outcome.victims, outcome.skipped) == (1, None)
    assert any(row[0] == 1 for row in run_script(outcome.sql))
    monkeypatch.setattr(matching, "MAX_SHOWN_CLASSES", 3)
    outcome = attack(files, policy, only=["temporal"])["temporal"]
    assert outcome.victims == 1
    assert "is left out: it takes too long for more than 3 classes" in str(outcome.skipped)


@pytest.mark.thorough
def test_a_group_that_meets_several_counts_once(tmp_path: Path) -> None:
    """The first release has two rows with flu, however many classes of the second they may be in."""
    load(tmp_path, [], alone=False)
    with duckdb.connect(tmp_path / "people.duckdb") as connection:
        before = [(age, ill) for ill, ages in (("flu", (12, 15)), ("HIV", (11, 13, 14, 17))) for age in ages]
        connection.executemany("INSERT INTO people VALUES (?, ?)", before)
    publish(tmp_path, "one", {"intervals": [10]}, k=4)
    with duckdb.connect(tmp_path / "people.duckdb") as connection:
        connection.execute("DELETE FROM people WHERE ill = 'HIV'")
        new = [(age, ill) for ill, ages in (("cold", (11, 13, 14, 18)), ("flu", (25, 35))) for age in ages]
        new += [(age, "gout") for age in (45, 46, 55, 66)]
        connection.executemany("INSERT INTO people VALUES (?, ?)", new)
    with pytest.raises(AuditError, match=r"1 combination of values has fewer than 4 rows \(2 rows in all"):
        publish(tmp_path, "two", {"intervals": [10]}, k=4, suppression="cells", suppression_limit=0.6)


@pytest.mark.slow
def test_refusal_names_findings_before_the_time_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The two classes that share one row are named, although the flows of new rows are not followed."""
    load(tmp_path, AGES)
    publish(tmp_path, "one", {"intervals": [10]})
    change(tmp_path / "people.duckdb", "DELETE FROM people WHERE age = 3")
    monkeypatch.setattr(overlap_flows, "FEW_STEPS", 0)
    with pytest.raises(AuditError, match=r"share at most 1 row, fewer than 5 \(subtraction\)"):
        publish(tmp_path, "two", {"intervals": [15]})


def insert(folder: Path, people: dict[tuple[int, str], int]) -> None:
    """Insert a number of people of each age with each illness."""
    with duckdb.connect(folder / "people.duckdb") as connection:
        for (age, ill), n in people.items():
            connection.execute("INSERT INTO people SELECT ?, ? FROM range(?)", [age, ill, n])


@pytest.mark.thorough
@pytest.mark.parametrize("strategy", ["local", "mondrian", "subtree"])
def test_knowing_a_newcomer_does_not_reveal_the_illness(tmp_path: Path, strategy: str) -> None:
    """The class 20-29 has as many rows with flu as before, so the newcomer of 22 has HIV."""
    load(tmp_path, [], alone=False)
    insert(tmp_path, {(25, "flu"): 4, (35, "flu"): 10, (35, "HIV"): 6})
    insert(tmp_path, {(age, ill): n for age in (45, 55, 65, 75) for ill, n in (("flu", 10), ("HIV", 6))})
    publish(tmp_path, "one", {"intervals": [10, 20, 40]}, diversity=2, strategy=strategy)
    insert(tmp_path, {(22, "HIV"): 1, (33, "HIV"): 5, (33, "gout"): 5})
    with pytest.raises(AuditError, match=r"1 row is new, fewer than 5 in one class") as refused:
        publish(tmp_path, "two", {"intervals": [10, 20, 40]}, diversity=2, strategy=strategy)
    assert refused.value.queries
    with pytest.MonkeyPatch.context() as patch:  # a statement that would be too long is left out
        patch.setattr(pair_audit, "MAX_LISTED", 0)
        with pytest.raises(AuditError, match=r"1 row is new, fewer than 5 in one class") as refused:
            publish(tmp_path, "two", {"intervals": [10, 20, 40]}, diversity=2, strategy=strategy)
    assert not refused.value.queries


@pytest.mark.slow
def test_rows_that_are_gone_hide_none_that_are_new(tmp_path: Path) -> None:
    """Bands of two hierarchies: the first release leaves those of 1 out, the second those of 7 and of 8."""
    load(tmp_path, [], alone=False)
    insert(tmp_path, {(age, ill): 5 for age in (2, 3, 6, 11, 12) for ill in ("HIV", "flu")})
    insert(tmp_path, {(1, "HIV"): 3, (4, "HIV"): 8, (4, "flu"): 8, (7, "HIV"): 4, (8, "flu"): 5})
    first, second = (
        {f"{band[0]}-{band[-1]}": [*map(str, band)] for band in bands}
        for bands in (
            [[1], [2, 3], [4, 5], [6, 7, 8], [9], [10], [11], [12]],
            [[1, 2], [3, 4], [5, 6], [7], [8], [9, 10], [11], [12]],
        )
    )
    limits = {"diversity": 2, "suppression_limit": 0.5}
    publish(tmp_path, "one", {"categories": first}, **limits)
    with pytest.raises(AuditError, match=r"rows are new, fewer than 5 in each of 2 classes"):
        publish(tmp_path, "two", {"categories": second}, **limits)


@pytest.mark.thorough
@pytest.mark.parametrize("type_", ["DOUBLE", "DECIMAL(6,2)", "VARCHAR"])
def test_bands_meet_whatever_the_type_of_ages_has_become(tmp_path: Path, type_: str) -> None:
    """15 is 15.0: the same table again is published, and one person between the ends of bands is found."""
    load(tmp_path, AGES)
    band = {"low": [*map(str, range(10))], "high": [*map(str, range(10, 30))]}
    publish(tmp_path, "one", {"intervals": [10]})
    change(tmp_path / "people.duckdb", f"ALTER TABLE people ALTER age TYPE {type_}")
    if type_ == "VARCHAR":
        publish(tmp_path, "two", {"categories": band})
    else:
        publish(tmp_path, "two", {"intervals": [10]})
        with pytest.raises(AuditError, match=r"share at most 1 row, fewer than 5 \(subtraction\)"):
            publish(tmp_path, "three", {"intervals": [15]})


@pytest.mark.thorough
@pytest.mark.parametrize("is_swapped", [False, True])
def test_a_range_of_all_values_has_no_null(is_swapped: bool) -> None:
    """One row is in ``0-3`` in addition to those of ``*``, which may have no value; whichever release came first."""
    sexes = {("*", "m"): 8, ("*", "f"): 8}
    two = {("0-3", "*"): 1, ("*", "m"): 7, ("*", "f"): 8}
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE age AS SELECT unnest(['0', '1', '2', '3', NULL]) AS level_0, '*' AS level_1")
        connection.execute("CREATE TABLE sex AS SELECT unnest(['m', 'f']) AS level_0, '*' AS level_1")
        for name, classes in (("one", two if is_swapped else sexes), ("two", sexes if is_swapped else two)):
            connection.execute(f"CREATE TABLE {name} (age TEXT, sex TEXT)")
            for look, n in classes.items():
                connection.execute(f"INSERT INTO {name} SELECT ?, ? FROM range(?)", [*look, n])
        attributes = tuple(
            LinkedAttribute(name, name, name, (0, 1), (0, 1), table(name), 1, ranges=name == "age")
            for name in ("age", "sex")
        )
        linked = ReleaseLink(table("one"), table("two"), (), attributes)
        rows = connection.execute(complementary_release(linked, 3).sql("duckdb")).fetchall()
    assert sorted((*labels, n) for *labels, n in rows) == [("0-3", "f", 1), ("0-3", "m", 1)]
