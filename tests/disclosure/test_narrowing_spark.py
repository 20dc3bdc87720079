"""Dependencies of a source in Spark are not measured, and the data holder is warned."""

from __future__ import annotations

from typing import Any

import pytest

import sqlanon

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark_cluster")]


def test_a_missing_measurement_is_reported(session: Any) -> None:
    attributes = {
        "zip": {"role": "quasi", "hierarchy": {"mask": "right"}, "min_level": 1},
        "district": {"role": "insensitive"},
    }
    rows = session.range(40).selectExpr("CAST(100 + id % 4 AS STRING) AS zip", "id % 2 AS district")
    rows.createOrReplaceTempView("narrowed")

    def policy(**privacy: Any) -> sqlanon.Policy:
        return sqlanon.Policy(source={"table": "narrowed"}, attributes=attributes, privacy={"k": 5} | privacy)

    try:
        with sqlanon.connect(session) as db:
            result = db.anonymize(policy())
            assert [warning for warning in result.warnings if "was not measured: its rows are in Spark" in warning]
            assert "dependencies" not in [stage.name for stage in db.plan(policy()).stages]
            with pytest.raises(sqlanon.SourceError, match="was not measured: its rows are in Spark"):
                db.anonymize(policy(dependencies="error"))
    finally:
        session.catalog.dropTempView("narrowed")
