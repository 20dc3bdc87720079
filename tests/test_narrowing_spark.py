"""Dependencies of a source in Spark: measured there, with the figures that DuckDB has of the same rows."""

from __future__ import annotations

from typing import Any

import duckdb
import pytest
from test_narrowing import PEOPLE, ROLES

import sqlanon
from sqlanon import narrowing
from sqlanon.errors import AuditError

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("spark_cluster")]


def policy(**privacy: Any) -> sqlanon.Policy:
    attributes = {name: one for name, one in ROLES.items() if name != "cost"}
    source = {"table": "people", "undeclared": "drop"}
    return sqlanon.Policy(source=source, attributes=attributes, privacy={"k": 20} | privacy)


def test_the_figures_are_those_of_duckdb(session: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with duckdb.connect() as connection:
        connection.execute(f"CREATE TABLE people AS {PEOPLE.replace('20000', '4000')}")
        with sqlanon.connect(connection) as db:
            (expected,) = db.anonymize(policy()).dependencies
        session.createDataFrame(connection.sql("FROM people").to_arrow_table()).createOrReplaceTempView("people")
    try:
        with sqlanon.connect(session) as db:
            strict = db.anonymize(policy(dependencies="error"))
            (found,) = strict.dependencies
            assert (found.columns, found.quasi) == (expected.columns, expected.quasi) == (("district",), "zip")
            own, theirs = (
                {name: figure for name, figure in one.to_dict().items() if isinstance(figure, int | float)}
                for one in (found, expected)
            )
            assert own == pytest.approx(theirs, rel=1e-9)
            with pytest.raises(AuditError, match="'district' narrows 'zip'"):
                strict.publish("nowhere.duckdb")
            (stage,) = [one for one in db.plan(policy()).stages if one.name == "dependencies"]
            assert "in Spark, makes narrowing_rows" in stage.sql[-2]
            assert "alike_before" in stage.sql[-1]
            monkeypatch.setattr(narrowing, "ENOUGH", 1500)
            (found,) = db.anonymize(policy()).dependencies
            assert (found.columns, found.quasi, found.smallest_group) == (("district",), "zip", None)
            assert found.after == pytest.approx(4, rel=0.4)
    finally:
        session.catalog.dropTempView("people")
