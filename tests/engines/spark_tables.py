"""Tables of Spark with the rows of tables of DuckDB."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
from spark_cases import in_duckdb

import sqlanon

FIGURES = (
    "rows", "generalization", "classes", "smallest_class", "suppressed_rows", "released_rows", "optimal", "warnings",
)  # fmt: skip


ABOUT_DEPENDENCIES = re.compile(r" narrows? '|whether released columns narrow ")
"""Warnings of what is measured where rows are at hand, and not in Spark."""


def into_spark(session: Any, table: pa.Table, name: str, parquet: Path | None = None) -> None:
    """Make a view of a table: of a file that DuckDB writes, or of Arrow."""
    if parquet is not None:
        with in_duckdb(table) as connection:
            connection.execute(f"COPY t TO '{parquet}' (FORMAT parquet)")
        session.read.parquet(f"file://{parquet}").createOrReplaceTempView(name)
        return
    from pyspark.sql.pandas.types import from_arrow_schema  # noqa: PLC0415  (it is an extra)

    schema = from_arrow_schema(table.schema, prefer_timestamp_ntz=True)
    session.createDataFrame(table, schema).createOrReplaceTempView(name)


def outcome(source: Any, policy: sqlanon.Policy, folder: Path) -> dict[str, Any]:
    """Result of a policy: the figures and the digest of the released rows, or the message of its error."""
    try:
        with sqlanon.connect(source) as db:
            result = db.anonymize(policy)
            release = result.publish(folder / "release.duckdb")
            figures = {name: getattr(result, name) for name in FIGURES}
            figures["warnings"] = tuple(
                warning for warning in result.warnings if not ABOUT_DEPENDENCIES.search(warning)
            )
            figures |= {"score": result.score, "columns": release.manifest.columns, "digest": release.manifest.digest}
            assert release.verify().verified
            return figures
    except sqlanon.SqlanonError as error:
        return {"error": type(error), "says": str(error)}


PLANTED = "planted-"


def planted_table(rows: int = 120) -> pa.Table:
    return pa.table(
        {
            "zip": [f"z{i % 6}" if i % 7 else None for i in range(rows)],
            "age": pa.array([i * 7 % 30 for i in range(rows)], pa.int32()),
            "ill": [f"ill {i % 4}" for i in range(rows)],
            "note": [f"{PLANTED}{i}" for i in range(rows)],
            "name": [f"{PLANTED}name {i}" for i in range(rows)],
        }
    )


ATTRIBUTES = {
    "zip": {"role": "quasi", "hierarchy": "suppress"},
    "age": {"role": "quasi", "hierarchy": {"intervals": [5, 15]}},
    "ill": {"role": "sensitive"},
    "note": {"role": "insensitive"},
    "name": {"role": "identifying"},
}


def plain_policy(table: str = "planted", **source: Any) -> sqlanon.Policy:
    return sqlanon.Policy(
        source={"table": table, **source},
        attributes=ATTRIBUTES,
        privacy={
            "k": 4,
            "l_diversity": [{"attribute": "ill", "kind": "distinct", "l": 2}],
            "t_closeness": [{"attribute": "ill", "distance": "ordered", "t": 0.4}],
            "k_anonymity": [{"quasi": ["zip"], "k": 9}],
        },
        search={"suppression_limit": 0.2},
        release={"table": "r"},
    )


def state(session: Any) -> tuple[Any, ...]:
    """The views of a session, and its settings."""
    views = sorted(row.viewName for row in session.sql("SHOW VIEWS").collect())
    return views, dict(session.conf.getAll)
