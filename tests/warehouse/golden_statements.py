"""Golden files of the statements for warehouses: ``python tests/warehouse/golden_statements.py`` writes them.

A dialect that is like another one has a file of the differences from it.
"""

from __future__ import annotations

import difflib
import sys
from functools import cache
from pathlib import Path
from typing import Any

import sqlanon
from sqlanon.warehouse import DIALECTS

GOLDEN = Path(__file__).parents[1] / "golden"

BASES = {"snowflake": "duckdb", "trino": "snowflake", "bigquery": "spark", "databricks": "spark"}
"""The dialect whose statements those of a dialect are compared with."""

DIVERSITIES = [
    {"attribute": "diagnosis", "kind": "distinct", "l": 2},
    {"attribute": "diagnosis", "kind": "entropy", "l": 1.5},
    {"attribute": "diagnosis", "kind": "recursive", "l": 2, "c": 3},
    {"attribute": "diagnosis", "kind": "distinct", "l": 2, "joint": True},
]
EVERYTHING: dict[str, Any] = {
    "k": 5,
    "average_risk": 0.2,
    "sample_uniqueness": 0.01,
    "k_anonymity": [{"quasi": ["zip"], "k": 20}],
    "l_diversity": DIVERSITIES,
    "t_closeness": [
        {"attribute": "diagnosis", "distance": "equal", "t": 0.3},
        {"attribute": "diagnosis", "distance": "ordered", "t": 0.3},
    ],
    "delta_disclosure": [{"attribute": "diagnosis", "delta": 1}],
    "beta_likeness": [
        {"attribute": "diagnosis", "beta": 2},
        {"attribute": "diagnosis", "beta": 2, "kind": "basic"},
    ],
    "alpha_k": [{"attribute": "diagnosis", "alpha": 0.5}],
}


def policy(privacy: dict[str, Any], release: dict[str, Any], **source: Any) -> sqlanon.Policy:
    return sqlanon.Policy(
        source={"table": "lake.clinic.patients", **source},
        attributes={
            "name": {"role": "identifying"},
            "zip": {"role": "quasi", "hierarchy": {"mask": "right"}},
            "age": {"role": "quasi", "hierarchy": {"intervals": [5, 10, 20]}, "max_level": 0},
            "born": {"role": "quasi", "hierarchy": {"dates": ["month", "year"]}, "on_unknown": "suppress"},
            "sex": {"role": "quasi", "hierarchy": "suppress"},
            "diagnosis": {"role": "sensitive"},
            "ward": {"role": "sensitive"},
            "cost": {"role": "insensitive"},
        },
        privacy=privacy,
        release=release,
    )


@cache
def plans(dialect: str) -> str:
    """Two plans: every requirement, with suppressed rows left out; and a query as source, with masked rows."""
    query = "SELECT * FROM clinic.patients WHERE year = 2024 -- this year's"
    with sqlanon.connect() as db:
        first = db.plan(policy(EVERYTHING, {"table": "shared.patients"}), dialect=dialect)
        masked = policy({"k": 5}, {"table": "shared.patients", "suppressed": "mask"}, table=None, query=query)
        return f"{first}\n\n{db.plan(masked, dialect=dialect)}\n"


def golden_file(dialect: str) -> Path:
    return GOLDEN / (f"{dialect}.diff" if dialect in BASES else f"{dialect}.sql")


def golden_text(dialect: str) -> str:
    """The statements of a dialect, or their differences from those of its base."""
    text = plans(dialect)
    if dialect not in BASES:
        return text
    base = BASES[dialect]
    lines = (plans(base).splitlines(keepends=True), text.splitlines(keepends=True))
    return "".join(difflib.unified_diff(*lines, base, dialect, n=1))


if __name__ == "__main__":
    for dialect in DIALECTS:
        golden_file(dialect).write_text(golden_text(dialect), encoding="utf-8")
        sys.stdout.write(f"{golden_file(dialect)}\n")
