"""A difficult table and a policy for it: statements to run in warehouses by hand."""

from __future__ import annotations

from datetime import date, timedelta
from pathlib import Path
from typing import Any

import sqlanon

COLUMNS = {
    "name": "text",
    'zip "code"': "varchar(20)",
    "age": "integer",
    "born": "date",
    "ill; --": "text",
    "cost": "numeric(8,2)",
}
HERE = {
    "text": "VARCHAR",
    "varchar(20)": "VARCHAR",
    "integer": "INTEGER",
    "date": "DATE",
    "numeric(8,2)": "DECIMAL(8,2)",
}


TOP = "${env:PATH} {{ x }} \\ it's"
"""The label of all ages, which no engine and no tool may read for anything but a text."""


def rows() -> list[list[Any]]:
    """Rows with NULL, quotes, upper and lower case, and accents; the hierarchy lacks the last age."""
    zips = ["02139", "0213'9", "É2139", "é2139", None, "02140", '0"1']
    return [
        [
            f"person {i}",
            zips[i * i % 7],
            None if i % 13 == 0 else 99 if i % 17 == 0 else 20 + i % 5,
            None if i % 5 == 0 else date(1990, 1, 1) + timedelta(days=i * 37 % 700),
            ("flu", "Flu", None)[i % 3],
            f"{i % 9}.50",
        ]
        for i in range(500)
    ]


def policy(folder: Path, suppressed: str) -> sqlanon.Policy:
    (folder / "age.csv").write_text("".join(f"{20 + i};{20 if i < 3 else 23}+;{TOP}\n" for i in range(5)))
    return sqlanon.Policy(
        source={"table": "patients"},
        attributes={
            "name": {"role": "identifying"},
            'zip "code"': {"role": "quasi", "hierarchy": {"mask": "right"}},
            "age": {"role": "quasi", "hierarchy": {"file": str(folder / "age.csv")}, "on_unknown": "suppress"},
            "born": {"role": "quasi", "hierarchy": {"dates": ["year", "decade"]}},
            "ill; --": {"role": "sensitive"},
            "cost": {"role": "insensitive"},
        },
        privacy={
            "k": 6,
            "l_diversity": [
                {"attribute": "ill; --", "kind": "distinct", "l": 2},
                {"attribute": "ill; --", "kind": "entropy", "l": 1.2},
                {"attribute": "ill; --", "kind": "recursive", "l": 2, "c": 9},
            ],
            "t_closeness": [{"attribute": "ill; --", "distance": "equal", "t": 0.6}],
            "beta_likeness": [{"attribute": "ill; --", "beta": 5}],
            "delta_disclosure": [{"attribute": "ill; --", "delta": 5}],
            "alpha_k": [{"attribute": "ill; --", "alpha": 0.9}],
            "average_risk": 0.2,
            "sample_uniqueness": 0.1,
        },
        search={"suppression_limit": 0.4},
        release={"table": "released", "suppressed": suppressed},
    )
