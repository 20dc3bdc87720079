"""A reader of the releases of two tables of the same people, who knows the person of each row."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import duckdb
import pytest

import sqlanon
from support.people_tables import K, in_csv, make_people, make_tables, of_labs, policy_of, publish, tables_of

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("plain_macros")]

Label = tuple[str, ...]


def label_of(person: tuple[Any, ...], levels: dict[str, int]) -> Label:
    """Values that a release shows of a person."""
    _, age, zip_code, sex = person[:4]
    width = (0, 10, 20, 0)[levels["age"]]
    low = age - age % width if width else 0
    ages = (str(age), f"{low}-{low + width - 1}", f"{low}-{low + width - 1}", "*")
    digits = 5 - levels["zip"]
    return (
        ages[levels["age"]],
        zip_code[:digits] + "*" * levels["zip"] if digits else "*",
        "*" if levels["sex"] else sex,
    )


@pytest.mark.parametrize("after", ["all", pytest.param("visits_release", marks=pytest.mark.thorough)])
def test_people_who_are_in_both_releases_hide_among_k_such_people(tmp_path: Path, after: str) -> None:
    """A class of the later release has the rows of k people or more of the earlier one, or of none; and as many of
    others, or of none."""
    people = make_people()
    labs = tables_of(people, people[60:])["labs"][1]
    make_tables(tmp_path, people[:-45], people[60:])
    publish(policy_of(tmp_path, "visits", in_csv(tmp_path, "visits"), day=False))
    policy = policy_of(tmp_path, "labs", of_labs(tmp_path), day=False, after=after)
    result = publish(policy)
    with sqlanon.connect() as db:
        assert db.verify(tmp_path / "labs_release.duckdb", policy).verified
    with duckdb.connect(str(tmp_path / "catalog.duckdb"), read_only=True) as catalog:
        rows_of_ledger = catalog.execute("SELECT table_name, generalization FROM sqlanon.ledger").fetchall()
    levels = {name: json.loads(generalization) for name, generalization in rows_of_ledger}
    by_class = defaultdict(set)
    for person in people[:-45]:
        by_class[label_of(person, levels["visits"])].add(person[0])
    in_visits = {number for members in by_class.values() if len(members) >= K for number in members}
    parts: dict[tuple[Label, bool], set[int]] = defaultdict(set)
    rows = Counter[tuple[Label, bool]]()
    for row in labs:
        part = label_of(row, levels["labs"]), row[0] in in_visits
        parts[part].add(row[0])
        rows[part] += 1
    expected = Counter[Label]()
    for part, members in parts.items():
        expected[part[0]] += rows[part] if len(members) >= K else 0
    with duckdb.connect(str(tmp_path / "labs_release.duckdb"), read_only=True) as release:
        released = release.execute("SELECT age, zip, sex, count(*) FROM labs GROUP BY ALL").fetchall()
    assert {tuple(map(str, label)): n for *label, n in released} == {label: n for label, n in expected.items() if n}
    assert all(levels["labs"][name] >= levels["visits"][name] for name in levels["visits"])
    assert [Path(path).name for path in result.held_against] == ["visits_release.duckdb"]
    assert min(map(len, parts.values())) < K  # some had to be left out
