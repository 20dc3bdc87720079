"""SUDA: minimal sample uniques and their scores, against brute force and the examples of sdcMicro."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sqlanon
from sqlanon.errors import PolicyError
from sqlanon.frequency.packing import assign_words
from sqlanon.risk.suda import Suda, compute_dis
from support.databases import insert
from support.lanes import examples
from support.policies import make_policy

Row = tuple[Any, ...]


# --- the oracle: all subsets of all rows, in plain Python


def alone(rows: Sequence[Row], row: Row, subset: tuple[int, ...]) -> bool:
    return sum(all(other_row[i] == row[i] for i in subset) for other_row in rows) == 1


def all_msus(rows: Sequence[Row], size: int) -> dict[int, set[tuple[int, ...]]]:
    """The MSUs of each row, by its number."""
    msus: dict[int, set[tuple[int, ...]]] = {}
    for number, row in enumerate(rows):
        for k in range(1, size + 1):
            for subset in combinations(range(len(row)), k):
                smaller = [part for j in range(1, k) for part in combinations(subset, j)]
                if alone(rows, row, subset) and not any(alone(rows, row, part) for part in smaller):
                    msus.setdefault(number, set()).add(subset)
    return msus


def weight(convention: str, m: int, size: int, k: int) -> float:
    if convention == "score":
        return math.prod(m - i for i in range(k, min(size, m - 1) + 1))
    return (2 ** (m - k) - 1) * math.factorial(k) * math.factorial(m - k) / math.factorial(m)


def expected_figures(rows: Sequence[Row], names: Sequence[str], size: int, fraction: float) -> dict[str, Any]:
    msus = all_msus(rows, size)
    m = len(names)
    sizes = Counter(rows).values()
    uniques, in_pairs = sum(n == 1 for n in sizes), 2 * sum(n == 2 for n in sizes)
    figures: dict[str, Any] = {
        "rows_with_msus": len(msus),
        "msus_by_size": dict(sorted(Counter(len(msu) for subsets in msus.values() for msu in subsets).items())),
        "rows_by_smallest": dict(sorted(Counter(min(map(len, subsets)) for subsets in msus.values()).items())),
        "uniques": uniques,
        "records": {},
    }
    for number, subsets in msus.items():
        figures["records"][rows[number]] = [len(subsets), min(map(len, subsets))]
    exponent = 1 + (8 - m) / 20
    for convention in ("score", "ihsn_score"):
        scores = {row: sum(weight(convention, m, size, len(msu)) for msu in subsets) for row, subsets in msus.items()}
        adjustment = sum(score**-exponent for score in scores.values() if score)
        dis = uniques * fraction / (uniques * fraction + in_pairs * (1 - fraction)) if uniques else None
        for row, score in scores.items():
            risk = 0.0
            if score:
                assert dis
                risk = 1 / (1 + (uniques / dis - uniques) / (score**exponent * adjustment))
            figures["records"][rows[row]] += [score, risk]
        total = sum(scores.values())
        figures[convention] = {
            name: 100
            * sum(weight(convention, m, size, len(msu)) for subsets in msus.values() for msu in subsets if j in msu)
            / total
            if total
            else 0.0
            for j, name in enumerate(names)
        }
        figures["dis"] = dis
    return figures


def policy_of(names: Sequence[str], **sections: Any) -> sqlanon.Policy:
    return make_policy(dict.fromkeys(names, "suppress"), **sections)


def table_of(rows: Sequence[Row], names: Sequence[str], type_: str = "VARCHAR") -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    columns = ", ".join('"' + name.replace('"', '""') + f'" {type_}' for name in names)
    connection.execute(f"CREATE TABLE t ({columns})")
    insert(connection, "t", rows)
    return connection


def check(suda: Suda, rows: Sequence[Row], names: Sequence[str], size: int, fraction: float) -> None:
    oracle = expected_figures(rows, names, size, fraction)
    assert (suda.rows, suda.uniques, suda.rows_with_msus) == (
        len(rows), oracle["uniques"], oracle["rows_with_msus"]
    )  # fmt: skip
    assert suda.msus_by_size == oracle["msus_by_size"]
    assert suda.rows_by_smallest == oracle["rows_by_smallest"]
    assert suda.dis == pytest.approx(oracle["dis"])
    records = {tuple(kind.values()): figures for kind, *figures in suda.records.fetchall()}
    assert records.keys() == oracle["records"].keys()
    for row, figures in records.items():
        assert figures == pytest.approx(oracle["records"][row])
    for scores, convention in ((suda.scores, "score"), (suda.ihsn_scores, "ihsn_score")):
        assert scores.contributions == pytest.approx(oracle[convention])
        place = 2 if convention == "score" else 4
        assert scores.highest == pytest.approx(max((record[place] for record in oracle["records"].values()), default=0))
        assert scores.highest_dis == pytest.approx(
            max((record[place + 1] for record in oracle["records"].values()), default=0)
        )
    msu_counts = Counter(
        (tuple(kind.values()), tuple(attributes)) for kind, attributes, _ in suda.minimal_uniques.fetchall()
    )
    assert msu_counts == Counter(
        (rows[number], tuple(names[i] for i in msu))
        for number, subsets in all_msus(rows, size).items()
        for msu in subsets
    )


NAMES = ('my "col"', "score", "class", "quasi_0", "Größe", "a'b")


@pytest.mark.slow
@settings(max_examples=examples(24), deadline=None)
@given(st.data())
def test_result_equals_brute_force(data: st.DataObject) -> None:
    m = data.draw(st.integers(1, 5))
    values = st.sampled_from([None, "", "a", "A", "b"][: data.draw(st.integers(2, 5))])
    rows = data.draw(st.lists(st.tuples(*[values] * m), max_size=12))
    size = data.draw(st.integers(1, m + 1))
    fraction = data.draw(st.sampled_from([0.01, 0.5, 1.0]))
    with table_of(rows, NAMES[:m]) as connection, sqlanon.connect(connection) as db:
        check(db.suda(policy_of(NAMES[:m]), size, fraction), rows, NAMES[:m], min(size, m), fraction)


@pytest.mark.thorough
@pytest.mark.parametrize("type_", ["DATE", "DECIMAL(9, 2)", "DOUBLE", "TIMESTAMP"])
def test_other_types_match_brute_force(type_: str) -> None:
    values = ["2020-01-01", "2020-02-01", None] if type_ in ("DATE", "TIMESTAMP") else ["1.50", "2", None]
    texts = [(values[i % 3], values[i // 3 % 3], values[i * i % 3]) for i in range(7)]
    with table_of(texts, NAMES[:3], type_) as connection, sqlanon.connect(connection) as db:
        rows = connection.execute("FROM t").fetchall()
        check(db.suda(policy_of(NAMES[:3])), rows, NAMES[:3], 3, 0.01)


# --- the examples that sdcMicro's tests and guide show (github.com/sdcTools/sdcMicro, tests/testthat/test_suda2.R)

GUIDE = [
    ("Urban", "Female", "Secondary incomplete", "Employed"),
    ("Urban", "Female", "Secondary incomplete", "Employed"),
    ("Urban", "Female", "Primary incomplete", "Non-LF"),
    ("Urban", "Male", "Secondary complete", "Employed"),
    ("Rural", "Female", "Secondary complete", "Unemployed"),
    ("Urban", "Male", "Secondary complete", "Employed"),
    ("Urban", "Female", "Primary complete", "Non-LF"),
    ("Urban", "Male", "Post-secondary", "Unemployed"),
    ("Urban", "Female", "Secondary incomplete", "Non-LF"),
    ("Urban", "Female", "Secondary incomplete", "Non-LF"),
]
BOOK = list(
    zip(
        ["20s"] * 7 + ["60s"],
        ["male"] * 4 + ["female"] * 3 + ["male"],
        ["50k+"] * 2 + ["50k-"] * 6,
        ["highschool"] * 4 + ["university", "highschool", "middleschool", "university"],
        strict=True,
    )
)


def scores_of(rows: Sequence[Row], column: str, **options: Any) -> list[float]:
    """The score of each row; 0 without MSUs."""
    names = [f"x{i}" for i in range(len(rows[0]))]
    with table_of(rows, names) as connection, sqlanon.connect(connection) as db:
        relation = db.suda(policy_of(names), **options).records
        scores = {tuple(kind.values()): score for kind, score in relation.project(f"class, {column}").fetchall()}
    return [scores.get(row, 0) for row in rows]


@pytest.mark.thorough
def test_scores_match_the_practice_guide() -> None:
    """The table of the SDC practice guide; its DIS-SUDA scores are those of the IHSN's convention."""
    assert scores_of(GUIDE, "score") == [0, 0, 6, 0, 12, 0, 6, 10, 0, 0]
    assert scores_of(GUIDE, "score", size=3) == [0, 0, 6, 0, 12, 0, 6, 10, 0, 0]
    scores = [0, 0, 0.0051, 0, 0.0107, 0, 0.0051, 0.0088, 0, 0]
    assert [round(score, 4) for score in scores_of(GUIDE, "dis_ihsn_score")] == scores


@pytest.mark.thorough
def test_scores_match_the_book() -> None:
    assert scores_of(BOOK, "score")[4:] == [4, 2, 6, 8]


@pytest.mark.cases(1)
@pytest.mark.parametrize("order", ["cab", "abc", "acb", "cba"])
def test_contributions_do_not_depend_on_the_order_of_columns(order: str) -> None:
    columns = {"a": (2, 1, 1), "b": (0, 3, 0), "c": (0, 6, 0)}
    rows = list(zip(*(columns[name] for name in order), strict=True))
    with table_of(rows, order, "INTEGER") as connection, sqlanon.connect(connection) as db:
        suda = db.suda(policy_of(order))
        assert suda.scores.contributions == {"a": 50, "b": 37.5, "c": 37.5}
        values = suda.value_contributions.fetchall()
    assert sorted(values) == [("a", "1", 50.0), ("a", "2", 50.0)] + [
        (name, value, pytest.approx(share))
        for name, label in (("b", "3"), ("c", "6"))
        for value, share in (("0", 100 / 3), (label, 200 / 3))
    ]


def test_dis_scales_with_sample_uniques() -> None:
    assert compute_dis(0, 4, 0.1) is None
    assert compute_dis(3, 0, 0.1) == 1
    assert compute_dis(10, 20, 0.5) == pytest.approx(1 / 3)


# --- more


@pytest.mark.thorough
def test_keys_of_more_than_one_word() -> None:
    """Twenty-two attributes of ten values take more than 63 bits."""
    m = 22
    assert assign_words([2**10 - 1] * m).words == 4
    assert assign_words([2**62, 1, 2]).places == ((0, 0, 63), (1, 0, 1), (1, 1, 2))
    names = [f"x{i}" for i in range(m)]
    rows = [tuple(str((i // 2) * (j + 3) % (9 + j % 2)) for j in range(m)) for i in range(40)]
    rows.append((*rows[0][:-1], "5"))
    with table_of(rows, names) as connection, sqlanon.connect(connection) as db:
        check(db.suda(policy_of(names), 2), rows, names, 2, 0.01)


def test_mistakes_are_refused_before_the_first_statement() -> None:
    with table_of([], "a") as connection, sqlanon.connect(connection) as db:
        with pytest.raises(PolicyError, match=r"(?s)at least 1, and 0 is not.*at most 1, and 2 is not"):
            db.suda(policy_of("a"), 0, 2)
        with pytest.raises(PolicyError, match="at least 1"):
            db.suda_sql(policy_of("a"), 0)


@pytest.mark.slow
def test_printed_statements_reproduce_the_result() -> None:
    """They are shown for attributes of up to three values."""
    rows = [("a", "x", "u"), ("a", "x", "v"), ("a", "y", "u"), ("b", "y", "u"), ("b", "y", None), ("b", "y", None)]
    with table_of(rows, "abc") as connection, sqlanon.connect(connection) as db:
        text = db.suda_sql(policy_of("abc"))
        connection.execute(text)
        (work,) = {name for name in text.split('"') if re.fullmatch("sqlanon_work_[0-9a-f]+", name)}
        scores = connection.execute(f"SELECT list_sort(list(score)) FROM {work}.run_1.suda_scores").fetchall()
        from_python = db.suda(policy_of("abc")).records.aggregate("list_sort(list(score))").fetchall()
    assert scores == from_python
    assert len(scores[0][0]) == 4


def names_in(connection: duckdb.DuckDBPyConnection, query: str) -> list[str]:
    return [name for (name,) in connection.execute(query).fetchall()]


@pytest.mark.thorough
def test_suda_leaves_no_tables_in_the_users_database() -> None:
    with table_of(GUIDE, "abcd") as connection:
        with sqlanon.connect(connection) as db:
            db.suda(policy_of("abcd")).records.fetchall()
        assert names_in(connection, "SELECT table_name FROM duckdb_tables()") == ["t"]
        assert names_in(connection, "SELECT view_name FROM duckdb_views() WHERE NOT internal") == []
        assert names_in(connection, "SELECT database_name FROM duckdb_databases() WHERE NOT internal") == ["memory"]


@pytest.mark.thorough
def test_adult_has_the_msus_of_plain_python(data: Path) -> None:
    """Eight quasi-identifiers: figures that a CUBE over all of them gives, too (benchmarks/suda.py)."""
    names = ("sex", "age", "race", "marital-status", "education", "native-country", "workclass", "salary-class")
    policy = policy_of(names, table=None, source={"undeclared": "drop"})
    with sqlanon.connect(data / "adult" / "adult.csv") as db:
        suda = db.suda(policy)
    assert (suda.rows, suda.uniques, suda.rows_with_msus, suda.msus) == (30162, 8841, 8841, 23811)
    assert suda.msus_by_size == {1: 2, 2: 1006, 3: 7852, 4: 9409, 5: 4576, 6: 894, 7: 66, 8: 6}
    assert suda.scores.highest == 5040


@pytest.mark.thorough
def test_suda_command_prints_scores(tmp_path: Path) -> None:
    with table_of(GUIDE, "abcd") as connection:
        connection.execute(f"COPY t TO '{tmp_path / 'people.parquet'}'")
    lines = ["[source]", 'files = "people.parquet"', "[attributes]"]
    lines += [f'{name} = {{ role = "quasi", hierarchy = "suppress" }}' for name in "abcd"]
    (tmp_path / "policy.toml").write_text("\n".join([*lines, "[privacy]", "k = 2"]), encoding="utf-8")

    def run(*options: str) -> str:
        command = [sys.executable, "-m", "sqlanon", "risk", "policy.toml", *options]
        done = subprocess.run(command, cwd=tmp_path, check=False, capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, ""), options
        return done.stdout

    suda = json.loads(run("--suda", "--json"))["suda"]
    assert (suda["rows_with_msus"], suda["msus_by_size"]) == (4, {"1": 4, "2": 5})
    assert suda["scores"]["highest"] == 12
    assert suda["scores"]["contributions"]["c"] == pytest.approx(100 * 22 / 34)
    assert "SUDA: 4 rows (40 %) unique on 4 or fewer quasi-identifiers" in run("--suda")
    assert json.loads(run("--suda-size", "1", "--json"))["suda"]["msus_by_size"] == {"1": 4}
    assert "suda" not in json.loads(run("--json"))


def test_equal_rows_of_a_person_count_once() -> None:
    """Each combination of a person is one row, however often it occurs."""
    visits = [("a", "x", 1), ("a", "x", 1), ("a", "x", 1), ("a", "y", 2), ("b", "x", 3), ("b", "x", 3), ("b", "x", 4)]
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE t (a VARCHAR, b VARCHAR, who INTEGER)")
        insert(connection, "t", visits)
        policy = policy_of("ab", source={"table": "t", "person": "who"})
        with sqlanon.connect(connection) as db:
            check(db.suda(policy, fraction=0.1), [row[:2] for row in sorted(set(visits))], "ab", 2, 0.1)


def test_the_fraction_is_of_persons_where_persons_count() -> None:
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE t AS SELECT i // 2 AS who, 'w' || i AS ward FROM range(4) AS r(i)")
        policy = sqlanon.Policy(
            source={"table": "t", "person": "who"},
            attributes={"ward": {"role": "quasi", "hierarchy": "suppress"}},
            privacy={"population_uniqueness": {"limit": 1, "population": 100}},
        )
        with sqlanon.connect(connection) as db:
            suda = db.suda(policy)
    assert (suda.fraction, suda.fraction_by) == (0.02, "policy")
