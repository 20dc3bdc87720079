"""Recode and suppress: what the statement gives, what is masked, what is never possible."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import strategies as st

import sqlanon
from sqlanon import HierarchyError, InfeasibleError
from sqlanon.publish.stage import NOT_COMPARED
from support.databases import connect_to, insert, live_connection, without_tables
from support.lanes import some
from support.policies import make_policy

Rows = Counter[tuple[Any, ...]]
TREE = {"categories": {"low": ["a", "b"], "high": ["c", "d"]}}


@pytest.fixture(scope="module")
def shared_connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with live_connection() as connection:
        yield connection


@pytest.fixture
def live(shared_connection: duckdb.DuckDBPyConnection) -> Iterator[duckdb.DuckDBPyConnection]:
    with without_tables(shared_connection):
        yield shared_connection


def fill(live: duckdb.DuckDBPyConnection, columns: str, rows: Any) -> None:
    """Make table ``t``; ``rows`` are values with how often they come."""
    live.execute(f"CREATE OR REPLACE TABLE t ({columns})")
    insert(live, "t", [values for values, n in rows for _ in range(n)])


def read_release(path: Path) -> tuple[Rows, dict[str, str]]:
    with duckdb.connect(str(path), read_only=True) as db:
        relation = db.sql("FROM released")
        return Counter(relation.fetchall()), dict(zip(relation.columns, map(str, relation.types), strict=True))


def rows_of_statement(live: duckdb.DuckDBPyConnection, result: sqlanon.Result) -> tuple[Rows, dict[str, str]]:
    """Rows of the statement of a result, as released."""
    relation = live.sql(result.sql())
    return Counter(relation.fetchall()), dict(zip(relation.columns, map(str, relation.types), strict=True))


def quasi(rule: Any, **options: Any) -> dict[str, Any]:
    return {"role": "quasi", "hierarchy": rule, **options}


def masking(limit: float = 1, **search: Any) -> dict[str, Any]:
    return {"search": {"suppression_limit": limit, **search}, "release": {"suppressed": "mask"}}


# The statement


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("levels", "suppressed"),
    some([(levels, kind) for levels in ((0, 0), (1, 0), (0, 1), (1, 2), (2, 2)) for kind in ("drop", "mask")], 4),
)
def test_the_statement_gives_the_rows_of_the_release(
    live: duckdb.DuckDBPyConnection, tmp_path: Path, levels: tuple[int, int], suppressed: str
) -> None:
    chance = random.Random(7)
    rows = [((chance.choice("abcd"), chance.randrange(12), chance.random()), 1) for _ in range(60)]
    fill(live, "letter VARCHAR, number INTEGER, cost DOUBLE", rows)
    pinned = [{"min_level": level, "max_level": level} for level in levels]
    policy = make_policy(
        {
            "letter": quasi(TREE, **pinned[0]),
            "number": quasi({"intervals": [4]}, **pinned[1]),
            "cost": "insensitive",
        },
        k=3,
        search={"suppression_limit": 1},
        release={"suppressed": suppressed},
    )
    with connect_to(live) as db:
        result = db.anonymize(policy)
        assert tuple(result.generalization.values()) == levels
        statement = live.sql(result.sql())
        by_statement = Counter(statement.fetchall())
        types = dict(zip(statement.columns, map(str, statement.types), strict=True))
        result.publish(tmp_path / "release.duckdb", "released")
        assert live.sql(result.sql(dialect="duckdb")).columns == ["letter", "number", "cost"]
    assert read_release(tmp_path / "release.duckdb") == (by_statement, types)
    assert sum(by_statement.values()) == result.released_rows
    masked = suppressed == "mask" and result.released_rows == 60 and result.suppressed_rows > 0
    assert types["number"] == ("INTEGER" if levels[1] == 0 and not masked else "VARCHAR")
    assert types["cost"] == "DOUBLE"


def test_sql_speaks_other_dialects(live: duckdb.DuckDBPyConnection) -> None:
    fill(live, "letter VARCHAR", [(("a",), 3)])
    with connect_to(live) as db:
        text = db.anonymize(make_policy({"letter": "suppress"})).sql(dialect="spark")
    assert "`letter`" in text
    # The rows are shuffled, and last: Spark leaves out a sort within a query.
    assert text.count("ORDER BY") == 1
    assert "RAND()" in text.partition("ORDER BY")[2]
    assert text.partition("ORDER BY")[0].rstrip().endswith("AS `released`")


@pytest.mark.thorough
def test_the_source_is_read_once_and_sorted_narrow(live: duckdb.DuckDBPyConnection) -> None:
    """Suppression is an anti join with the few classes that are suppressed; labels come behind the sort."""
    live.execute(
        "CREATE TABLE t AS SELECT i AS cost, 'v' || i % 4 AS letter, i % 3 AS ward, "
        "CASE WHEN i < 3 THEN 90 ELSE i % 20 END AS age FROM range(1000) AS r(i)"
    )
    policy = make_policy(
        {
            "letter": quasi({"categories": {"even": ["v0", "v2"], "odd": ["v1", "v3"]}}, min_level=1, max_level=1),
            "age": quasi({"intervals": [5]}, max_level=0),
            "ward": quasi("suppress", min_level=1),
            "cost": "insensitive",
        },
        k=5,
        search={"suppression_limit": 0.1},
    )
    with connect_to(live) as db:
        result = db.anonymize(policy)
        assert result.suppressed_rows == 3
        plan = json.loads(live.execute(f"EXPLAIN (FORMAT JSON) {result.sql()}").fetchall()[0][1])
    over_source = [node for node in operators(plan) if reads_source(node)]
    names = [node["name"] for node in over_source]
    assert names.count("SEQ_SCAN") == sum(table_of(node).endswith("main.t") for node in operators(plan)) == 1
    assert not [name for name in names if name in ("HASH_GROUP_BY", "PERFECT_HASH_GROUP_BY", "WINDOW")]
    joins = [node["extra_info"]["Join Type"] if name.endswith("JOIN") else name
             for node, name in zip(over_source, names, strict=True) if name.endswith(("JOIN", "ORDER_BY"))]  # fmt: skip
    # From the end: labels, but of what is at its top; the sort; and before it the codes.
    assert joins == ["INNER", "INNER", "ORDER_BY", "ANTI", "INNER", "INNER"]


def operators(plan: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The operators of a plan, from the last one on."""
    for node in plan:
        yield node
        yield from operators(node["children"])


def table_of(node: dict[str, Any]) -> str:
    return str(node["extra_info"].get("Table", ""))


def reads_source(node: dict[str, Any]) -> bool:
    return any(table_of(operator).endswith("main.t") for operator in operators([node]))


# Suppression


@pytest.mark.slow
def test_suppression_is_minimal(live: duckdb.DuckDBPyConnection) -> None:
    """Every class of at least k stays whole: a superset of the rows would hold a smaller class."""
    chance = random.Random(11)
    fill(live, "letter VARCHAR, number INTEGER", [((chance.choice("abcd"), chance.randrange(9)), 1) for _ in range(99)])
    pinned = {"letter": quasi(TREE, min_level=1), "number": quasi({"intervals": [3]}, max_level=0)}
    with connect_to(live) as db:
        result = db.anonymize(make_policy(pinned, k=6, search={"suppression_limit": 0.9}))
    assert result.generalization == {"letter": 1, "number": 0}
    label = "CASE WHEN letter IN ('a', 'b') THEN 'low' ELSE 'high' END"
    classes = live.execute(f"SELECT {label} AS label, number, count(*) FROM t GROUP BY ALL").fetchall()
    expected_rows = {(letter, number): n for letter, number, n in classes if n >= 6}
    rows, _ = rows_of_statement(live, result)
    assert rows == expected_rows
    assert result.suppressed_rows == 99 - sum(expected_rows.values()) > 0


@pytest.mark.thorough
def test_masked_rows_join_the_class_that_is_all_top(live: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    """At the top, masked and released rows look the same: together they must meet the policy."""
    unknown = quasi({"categories": {"low": ["a"], "high": ["c"]}}, on_unknown="suppress", min_level=2)
    fill(live, "letter VARCHAR", [(("a",), 2), (("c",), 2), (("x",), 1)])
    with connect_to(live) as db:
        result = db.anonymize(make_policy({"letter": unknown}, k=3, **masking(0.2)))
        release = result.publish(tmp_path / "release.duckdb", "released")
    assert (result.suppressed_rows, result.released_rows, result.classes) == (1, 5, 1)
    assert result.warnings == (NOT_COMPARED,)
    assert read_release(release.path)[0] == {("*",): 5}
    assert (release.manifest.classes, release.manifest.smallest_class) == (1, 5)
    assert release.verify().verified


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("level", "suppressed"),
    some([(0, "mask"), (0, "drop"), (1, "drop"), (1, "mask"), (2, "mask"), (2, "drop")], 3),
)
def test_unknown_values_are_suppressed_at_every_level(
    live: duckdb.DuckDBPyConnection, tmp_path: Path, level: int, suppressed: str
) -> None:
    """Even where they are a class of at least k, and even if all that is left is the top. Masked, they read as the
    top, which ``max_level`` must allow."""
    fill(live, "letter VARCHAR", [(("a",), 4), (("c",), 4), (("x",), 2)])
    rule = quasi(TREE, on_unknown="suppress", min_level=level, max_level=level)
    sections = {"search": {"suppression_limit": 0.2}, "release": {"suppressed": suppressed}}
    with connect_to(live) as db:
        result = db.anonymize(make_policy({"letter": rule}, k=2, **sections))
        release = result.publish(tmp_path / "release.duckdb", "released")
    labels = [("a", "c"), ("low", "high"), ("*", "*")][level]
    expected = Counter({(label,): 0 for label in labels})
    for label in labels:
        expected[label,] += 4
    expected["*",] += 2 if suppressed == "mask" and level == 2 else 0
    assert result.suppressed_rows == 2
    assert read_release(release.path)[0] == +expected
    assert release.verify().verified


@pytest.mark.slow
def test_unknown_values_are_an_error_by_default(live: duckdb.DuckDBPyConnection) -> None:
    fill(live, "letter VARCHAR", [(("a",), 4), (("x",), 2)])
    with connect_to(live) as db:
        with pytest.raises(HierarchyError, match=r"'x'.*2|2.*'x'"):
            db.anonymize(make_policy({"letter": TREE}))
        allowed = make_policy({"letter": quasi(TREE, on_unknown="suppress")}, search={"suppression_limit": 0.3})
        with pytest.raises(InfeasibleError) as caught:
            db.anonymize(allowed)
    assert (caught.value.suppressed_rows, caught.value.allowed_rows) == (2, 1)
    assert caught.value.nearest is not None
    assert "2 rows" in str(caught.value)


# Feasibility


columns = st.lists(st.tuples(st.sampled_from(["a", "b", "c", "d", None]), st.integers(0, 20)), min_size=1, max_size=25)


@pytest.mark.slow
def test_empty_release_is_not_a_solution(live: duckdb.DuckDBPyConnection) -> None:
    fill(live, "letter VARCHAR", [(("a",), 2)])
    for suppressed in ("drop", "mask"):
        sections = {"search": {"suppression_limit": 1}, "release": {"suppressed": suppressed}}
        with connect_to(live) as db, pytest.raises(InfeasibleError, match="No row would be released"):
            db.anonymize(make_policy({"letter": "suppress"}, k=3, **sections))


# NULL


@pytest.mark.slow
def test_nulls_are_a_class_of_their_own(live: duckdb.DuckDBPyConnection) -> None:
    """Equal to NULL only, however many others it could stand for."""
    fill(live, "letter VARCHAR, number INTEGER", [((None, 1), 3), (("a", 1), 3), (("a", None), 2), ((None, None), 1)])
    pinned = {"letter": quasi("suppress", max_level=0), "number": quasi("suppress", max_level=0)}
    with connect_to(live) as db:
        result = db.anonymize(make_policy(pinned, k=2, search={"suppression_limit": 0.2}))
    assert (result.suppressed_rows, result.classes, result.smallest_class) == (1, 3, 2)
    assert rows_of_statement(live, result)[0] == {(None, 1): 3, ("a", 1): 3, ("a", None): 2}


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("type_", "rule", "values"),
    some(
        [
            ("INTEGER", {"intervals": [5, 10]}, [1, 2, None]),
            ("VARCHAR", {"mask": "right"}, ["abc", "abd", None]),
            ("DATE", {"dates": ["month", "year"]}, ["1980-01-02", "1980-01-03", None]),
            ("VARCHAR", TREE, ["a", "b", None]),
            ("VARCHAR", [{"mask": "right", "levels": 1}, TREE], ["a", "b", None]),
        ],
        5,
    ),
)
def test_null_stays_null_below_the_top(
    live: duckdb.DuckDBPyConnection, type_: str, rule: Any, values: list[Any]
) -> None:
    fill(live, f"x {type_}", [((value,), 3) for value in values])
    with connect_to(live) as db:
        releases: list[Rows] = []
        while True:
            policy = make_policy({"x": quasi(rule, min_level=len(releases), max_level=len(releases))})
            try:
                result = db.anonymize(policy)
            except HierarchyError:
                break
            if result.generalization["x"] < len(releases):  # a mask ends with the longest text
                break
            releases.append(rows_of_statement(live, result)[0])
    *below, top = releases
    assert len(below) >= 2
    for level, rows in enumerate(below):
        assert rows[None,] == 3, level
        assert len(rows) == (3 if level == 0 else 2)
    assert list(top.values()) == [9]
    assert (None,) not in top


@pytest.mark.slow
def test_null_counts_as_a_leaf(live: duckdb.DuckDBPyConnection) -> None:
    fill(live, "letter VARCHAR", [(("a",), 2), ((None,), 2)])
    with connect_to(live) as db:
        at_1 = db.anonymize(make_policy({"letter": quasi(TREE, min_level=1)}))
    # a, b, c, d and NULL are five leaves; `low` stands for two of them, NULL for one.
    assert at_1.score == pytest.approx((2 * 1 / 4 + 2 * 0) / 4)


# Unknown values next to kept classes


@pytest.mark.thorough
@pytest.mark.parametrize("suppressed", some(["drop", "mask"], 2))
def test_an_unknown_value_takes_no_kept_class_with_it(
    live: duckdb.DuckDBPyConnection, tmp_path: Path, suppressed: str
) -> None:
    """If its attribute is at the top, a row with an unknown value looks like the rows of a kept class."""
    fill(live, "age INTEGER, town VARCHAR", [((30, "p"), 3), ((30, "q"), 3), ((30, "?"), 2)])
    towns = {"categories": {"*": ["p", "q"]}}
    policy = make_policy(
        {"age": "suppress", "town": quasi(towns, on_unknown="suppress", min_level=1)},
        search={"suppression_limit": 0.3},
        release={"suppressed": suppressed},
    )
    path = tmp_path / "release.duckdb"
    with connect_to(live) as db:
        result = db.anonymize(policy)
        assert (result.generalization, result.suppressed_rows) == ({"age": 0, "town": 1}, 2)
        assert result.publish(path, "released").verify().verified
    rows, _ = read_release(path)
    assert rows == (Counter({(30, "*"): 6}) if suppressed == "drop" else Counter({("30", "*"): 6, ("*", "*"): 2}))


@pytest.mark.thorough
def test_rows_without_top_label_are_not_masked(live: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    """A hierarchy of height 0 has no label that could hide an unknown value."""
    only = tmp_path / "only.csv"
    only.write_text("a\n", encoding="utf-8")
    fill(live, "x VARCHAR, y INTEGER", [(("a", 0), 10), (("b", 0), 4), (("c", 0), 2)])
    policy = make_policy(
        {"x": quasi({"file": str(only)}, on_unknown="suppress"), "y": "suppress"}, **masking(limit=0.5)
    )
    path = tmp_path / "release.duckdb"
    with connect_to(live) as db:
        result = db.anonymize(policy)
        assert any("not masked" in warning for warning in result.warnings)
        assert result.publish(path, "released").verify().verified
    assert read_release(path)[0] == Counter({("a", 0): 10})
