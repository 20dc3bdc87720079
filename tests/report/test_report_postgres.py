"""Reports and charts of a source in PostgreSQL, on a real server: the same as of that table in DuckDB."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

import sqlanon
import sqlanon.report.page as paging
from sqlanon.errors import PolicyError
from support.report_pages import BUNDLE, read
from support.servers.postgres import VARIABLE, Server

pytestmark = pytest.mark.slow

COLUMNS = {"zip": "text", "age": "integer", "diagnosis": "text", "cost": "integer", "name": "text"}
ROWS = [[f"{i % 7:05}", 20 + i % 11, "abc"[i % 3], i % 9, f"person {i}"] for i in range(400)] + [
    [None, 99, "a", None, "odd one"]
]


def policy(**sections: Any) -> sqlanon.Policy:
    tree = {
        "attributes": {
            "zip": {"role": "quasi", "hierarchy": {"mask": "right"}},
            "age": {"role": "quasi", "hierarchy": {"intervals": [5, 10]}},
            "diagnosis": {"role": "sensitive"},
            "cost": {"role": "insensitive"},
            "name": {"role": "identifying"},
        },
        "privacy": {
            "k": 5,
            "l_diversity": [{"attribute": "diagnosis", "kind": "distinct", "l": 2}],
            "t_closeness": [{"attribute": "diagnosis", "distance": "equal", "t": 0.9}],
        },
        "search": {"suppression_limit": 0.05},
        "release": {"table": "r"},
    }
    return sqlanon.Policy(**{**tree, **sections})


@pytest.fixture(scope="module")
def results(postgres: Server) -> Iterator[tuple[sqlanon.Result, sqlanon.Result]]:
    """The same page for the table in DuckDB and in PostgreSQL."""
    postgres.run("DROP SCHEMA IF EXISTS ward CASCADE", "CREATE SCHEMA ward")
    postgres.load("ward.t", COLUMNS, ROWS)
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE t (zip VARCHAR, age INTEGER, diagnosis VARCHAR, cost INTEGER, name VARCHAR)")
        connection.executemany("INSERT INTO t VALUES (?, ?, ?, ?, ?)", ROWS)
        with sqlanon.connect(connection) as local_db, sqlanon.connect() as remote_db:
            source = {"postgres": f"env:{VARIABLE}", "table": "ward.t"}
            yield local_db.anonymize(policy(source={"table": "t"})), remote_db.anonymize(policy(source=source))


@pytest.fixture(autouse=True)
def without_the_bundle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paging, "_bundle", lambda: BUNDLE)


@pytest.mark.thorough
def test_the_public_page_is_the_same(results: tuple[sqlanon.Result, sqlanon.Result], tmp_path: Path) -> None:
    pages = []
    for i, result in enumerate(results):
        assert result.report(tmp_path / f"{i}.html")
        pages.append(read(tmp_path / f"{i}.html"))
    assert pages[0].charts == pages[1].charts
    assert {"classes", "risk", "column-0"} <= pages[0].charts.keys()
    assert "0.9-closeness of diagnosis" in pages[1].text
    assert "odd one" not in pages[1].text


def test_private_page_has_the_counts(results: tuple[sqlanon.Result, sqlanon.Result], tmp_path: Path) -> None:
    pages = []
    for i, result in enumerate(results):
        assert result.report(tmp_path / f"{i}.html", private=True)
        pages.append(read(tmp_path / f"{i}.html"))
    local_charts, remote_charts = (page.charts for page in pages)
    different = {name for name in local_charts if local_charts[name] != remote_charts[name]}
    assert local_charts.keys() == remote_charts.keys()
    assert {"frontier", "lattice", "levels", "classes", "risk"} <= local_charts.keys() - different
    assert different == {"column-3"}, "the cost: it is released, and has no requirement"
    assert pages[1].text.count("In the source it was not counted.") == 1
    assert "In the source it was not counted." not in pages[0].text


def test_charts_of_postgres_and_duckdb_are_equal(results: tuple[sqlanon.Result, sqlanon.Result]) -> None:
    local_chart, remote_chart = (result.chart for result in results)
    for name in ("classes", "risk"):
        assert getattr(remote_chart, name)(private=True).to_dict() == getattr(local_chart, name)(private=True).to_dict()
    for name in ("frontier", "lattice", "attributes"):
        assert getattr(remote_chart, name)().to_dict() == getattr(local_chart, name)().to_dict()
    assert remote_chart.distribution("cost").to_dict() == local_chart.distribution("cost").to_dict()
    assert (
        remote_chart.distribution("zip", private=True).to_dict()
        == local_chart.distribution("zip", private=True).to_dict()
    )
    with pytest.raises(PolicyError, match="'cost' was not counted in the source"):
        remote_chart.distribution("cost", private=True)
    assert remote_chart._private.sizes.sizes == Counter(Counter((zip_, age) for zip_, age, *_ in ROWS).values())


def test_a_policy_report_has_the_chart_of_strategies(
    results: tuple[sqlanon.Result, sqlanon.Result], tmp_path: Path
) -> None:
    with sqlanon.connect() as db:
        assert db.report(results[1].policy, tmp_path / "p.html", private=True, strategies=["optimal", "datafly"])
    assert "strategies" in read(tmp_path / "p.html").charts
