"""The levels of labels in a release: true of its rows, functions of nothing else, and verified."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pytest

import sqlanon
from oracles.oracle_labels import may_be
from sqlanon.audit.verify import verify_file
from support.databases import change, compact_file, fetch
from support.policies import make_policy
from support.verification import failed_alone

pytestmark = pytest.mark.thorough

ROWS = """
    CREATE TABLE t AS
    SELECT (2130 + hash(i) % 40)::VARCHAR AS zip, (hash(i + 1) % 90)::INTEGER AS age,
        (hash(i + 7) % 1000) / 10.0 AS amount, DATE '1940-01-01' + (hash(i + 5) % 25000)::INTEGER AS birth,
        ['red', 'rose', 'green', 'mint', 'teal'][i % 5 + 1] AS color
    FROM range(200) AS r(i)
"""
COLORS = (
    "red;reds;warm;*\nrose;reds;warm;*\ngreen;greens;cold;*\nmint;greens;cold;*\nteal;blues;cold;*\npink;pinks;warm;*\n"
)
ATTRIBUTES: dict[str, Any] = {
    "zip": "mask",
    "age": {"intervals": [5, 10, 20, 40]},
    "amount": {"intervals": [10, 50]},
    "birth": {"dates": ["month", "year", "decade"]},
}
LEVELS = "SELECT label, level, ancestor FROM sqlanon.label_levels WHERE attribute = '{}' ORDER BY ALL"


def policy(folder: Path, **search: Any) -> sqlanon.Policy:
    (folder / "colors.csv").write_text(COLORS, encoding="utf-8")
    attributes = ATTRIBUTES | {"color": {"file": str(folder / "colors.csv")}}
    database = folder / "source.duckdb"
    if not database.exists():
        with duckdb.connect(database) as connection:
            connection.execute(ROWS)
    return make_policy(attributes, k=3, table=None, source={"database": str(database), "table": "t"}, search=search)


def publish(folder: Path, **search: Any) -> Path:
    with sqlanon.connect() as db:
        return db.anonymize(policy(folder, **search)).publish(folder / "r.duckdb").path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("levels")
    publish(folder, strategy="local")
    return folder


@pytest.fixture
def copy(folder: Path, tmp_path: Path) -> Path:
    path = tmp_path / "copy.duckdb"
    path.write_bytes((folder / "r.duckdb").read_bytes())
    return path


def check_levels(path: Path) -> None:
    """Labels lie under those above them, one at each level; there are only released labels and these."""
    sources = {name: [row[0] for row in fetch(path.with_name("source.duckdb"), f"SELECT DISTINCT {name} FROM t")]
               for name in (*ATTRIBUTES, "color")}  # fmt: skip
    colors = {line.split(";")[0]: line.split(";") for line in COLORS.split()}

    def under(name: str, label: str, value: Any) -> bool:
        if name == "color":
            return label in colors[value]
        if name == "zip":
            return label == "*" or all(mine in (its, "*") for mine, its in zip(label, value, strict=True))
        return bool(may_be(label, value, value))

    labelled = {name for name, level in fetch(path, "SELECT attribute, level FROM release_overview") if level != 0}
    for name in labelled:
        values = sources[name]
        released = {row[0] for row in fetch(path, f"SELECT DISTINCT {name}::VARCHAR FROM t")}
        rows = fetch(path, LEVELS.format(name))
        above = {ancestor for label, _, ancestor in rows if label in released}
        labels = {label for label, _, _ in rows}
        assert labels <= released | above
        if labels and "-" not in "".join(released):  # no ranges of values
            assert labels == released | above
        heights = {level for _, level, _ in rows}
        for label, level, ancestor in rows:
            inside = [value for value in values if under(name, label, value)]
            assert all(under(name, ancestor, value) for value in inside), (name, label, level, ancestor)
        for value in values:
            for level in heights:
                assert (
                    len({ancestor for _, its, ancestor in rows if its == level and under(name, ancestor, value)}) <= 1
                )
        for label in released & labels:
            mine = [level for its, level, _ in rows if its == label]
            assert mine == list(range(mine[0], max(heights) + 1)), (name, label)


@pytest.mark.parametrize(
    "search",
    [
        {"strategy": "optimal", "suppression_limit": 0.05},
        {"strategy": "optimal", "suppression": "cells"},
        {"strategy": "subtree"},
        {"strategy": "mondrian"},
        {"strategy": "mondrian", "summary": "median"},
    ],
)
def test_labels_lie_under_those_above_them_by_any_strategy(search: dict[str, Any], tmp_path: Path) -> None:
    path = publish(tmp_path, **search)
    check_levels(path)
    with sqlanon.connect() as db:
        assert db.verify(path, policy(tmp_path, **search)).verified


def test_sets_have_no_levels(tmp_path: Path) -> None:
    path = publish(tmp_path, strategy="mondrian", summary="set")
    assert verify_file(path).verified
    assert fetch(path, LEVELS.format("zip")) == []
    assert not [label for label, _, _ in fetch(path, LEVELS.format("color")) if label.startswith("{")]


def release(path: Path, values: list[Any], rule: Any, **more: Any) -> list[tuple[Any, ...]]:
    """The levels in the release of a column: each value thrice, but for the last one, which is suppressed."""
    with duckdb.connect() as connection:
        type_ = "INTEGER" if isinstance(values[0], int) else "VARCHAR"
        connection.execute(f"CREATE TABLE t (v {type_})")
        connection.executemany("INSERT INTO t VALUES (?)", [(value,) for value in [*values[:-1] * 5, values[-1]]])
        with sqlanon.connect(connection) as db:
            attributes = {"v": {"role": "quasi", "hierarchy": rule, **more}}
            publication = db.anonymize(make_policy(attributes, k=5, search={"suppression_limit": 0.2})).publish(path)
    assert publication.verify().failures == ()
    assert publication.manifest.suppressed_rows == 1
    return fetch(path, "FROM sqlanon.label_levels ORDER BY ALL")


def test_values_of_suppressed_rows_change_nothing(tmp_path: Path) -> None:
    """A person of 85 makes a range of three digits two levels above; a value of a file has separate groups."""
    at: dict[str, Any] = {"min_level": 1, "max_level": 1}
    widths = {"intervals": [10, 40]}
    levels = [release(tmp_path / f"{value}.duckdb", [12, 15, 23, 27, value], widths, **at) for value in (85, 35)]
    assert levels[0] == levels[1]
    assert ("v", "10-19", 2, "00-39") in levels[0]
    (tmp_path / "groups.csv").write_text("a;x;xs;*\nb;x;xs;*\nc;y;ys;*\nd;z;zs;*\ne;w;zs;*\n", encoding="utf-8")
    file = {"file": str(tmp_path / "groups.csv")}
    levels = [release(tmp_path / f"{value}.duckdb", ["a", "b", value], file, **at) for value in "cd"]
    assert levels[0] == levels[1]
    assert {label for _, label, _, _ in levels[0]} == {"x", "xs", "*"}


def test_ancestors_of_an_ambiguous_label_are_left_out(tmp_path: Path) -> None:
    """`other` is a group of x, and one above c2: whether x is above it, the release does not say."""
    (tmp_path / "groups.csv").write_text("a;other;x;*\nb;other;x;*\nc;c2;other;*\nd;c2;other;*\n", encoding="utf-8")
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE t AS SELECT unnest(['a', 'b', 'c', 'c']) AS v FROM range(3)")
        attributes = {"v": {"role": "quasi", "hierarchy": {"file": str(tmp_path / "groups.csv")}}}
        with sqlanon.connect(connection) as db:
            policy = make_policy(attributes, k=6, search={"strategy": "local"})
            publication = db.anonymize(policy).publish(tmp_path / "r.duckdb")
            assert db.verify(publication.path, policy).failures == ()
    assert set(fetch(publication.path, "SELECT DISTINCT v FROM t")) == {("other",), ("c",)}
    levels = fetch(publication.path, "SELECT label, level, ancestor FROM sqlanon.label_levels")
    assert {(label, ancestor) for label, _, ancestor in levels if label == "other"} == {
        ("other", "other"),
        ("other", "*"),
    }
    assert "x" not in {label for label, *_ in levels}


def test_with_the_policy_the_groups_of_a_file_are_compared(folder: Path, copy: Path) -> None:
    requested_policy = policy(folder, strategy="local")
    with sqlanon.connect() as db:
        assert db.verify(folder / "r.duckdb", requested_policy).verified
        for statement in (
            "UPDATE sqlanon.label_levels SET ancestor = if(ancestor = 'warm', 'cold', 'warm') "
            "WHERE attribute = 'color' AND level = 2 AND label NOT IN ('warm', 'cold')",
            "DELETE FROM sqlanon.label_levels WHERE attribute = 'age'",
        ):
            copy.write_bytes((folder / "r.duckdb").read_bytes())
            change(copy, statement)
            compact_file(copy)
            assert failed_alone(copy) == set()  # these follow from the source
            failures = db.verify(copy, requested_policy).failures
            assert any("levels of labels" in failure for failure in failures)


def test_the_macros_roll_labels_up(folder: Path) -> None:
    path = folder / "r.duckdb"
    rows = fetch(path, "SELECT age, count(*) FROM t GROUP BY age")
    levels = {(label, level): ancestor for label, level, ancestor in fetch(path, LEVELS.format("age"))}
    expected: dict[str, int] = {}
    for label, count in rows:
        up = levels.get((label, 3), label)
        expected[up] = expected.get(up, 0) + count
    assert dict(fetch(path, "SELECT sqlanon.roll_up('AGE', age, 3) AS a, count(*) FROM t GROUP BY a")) == expected
    assert fetch(path, "SELECT DISTINCT sqlanon.level('age', sqlanon.parent('age', '20-39'))") == [(4,)]
    assert fetch(path, "SELECT sqlanon.parent('age', '*'), sqlanon.level('age', '*')") == [(None, 5)]
    with pytest.raises(duckdb.InvalidInputException, match="nope"):
        fetch(path, "SELECT sqlanon.level('nope', age) FROM t")
    with duckdb.connect() as connection:
        connection.execute(f"ATTACH '{path}' AS r (READ_ONLY)")
        query = (
            "SELECT count(*) FROM r.t WHERE r.sqlanon.roll_up('age', age, 5, levels := 'r.sqlanon.label_levels') = '*'"
        )
        assert connection.execute(query).fetchall() == [(200,)]


@pytest.mark.parametrize("search", [{}, {"strategy": "local"}, {"strategy": "mondrian", "summary": "set"}])
def test_a_release_by_dates_without_days_verifies(search: dict[str, Any], tmp_path: Path) -> None:
    with duckdb.connect() as connection:
        texts = ["1981", "1980-05", "1980-05-31", "1979-12"]
        connection.execute("CREATE TABLE t AS SELECT unnest(?) AS seen FROM range(3)", [texts])
        dates = {"seen": {"role": "quasi", "hierarchy": {"dates": ["month", "year", "decade"]}, "min_level": 1}}
        with sqlanon.connect(connection) as db:
            policy = make_policy(dates, k=3, search=search)
            publication = db.anonymize(policy).publish(tmp_path / "r.duckdb")
            assert publication.verify().failures == ()
            assert db.verify(publication.path, policy).failures == ()
    if not search:
        ends = fetch(publication.path, "SELECT seen::VARCHAR, seen_low::VARCHAR, seen_high::VARCHAR FROM seen_labels")
        assert ("1981", "1981-01-01", "1981-12-31") in ends
        assert ("1980-05", "1980-05-01", "1980-05-31") in ends
