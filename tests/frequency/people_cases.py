"""People and policies for frequency sets."""

from __future__ import annotations

from typing import Any

import sqlanon


def people(rows: int) -> str:
    """A skewed table of a few attributes: the more rows, the lower the optimum."""
    return f"""
        SELECT i % 2 AS sex, 1900 + floor(100 * pow((hash(i, 1) % 1000) / 1000, 1.5))::INTEGER AS birth,
               lpad((floor(3000 * pow((hash(i, 2) % 10000) / 10000, 2)))::INTEGER::VARCHAR, 4, '0') AS zip,
               'w' || (hash(i, 3) % 7) AS work, 'd' || (hash(i, 4) % 5) AS diagnosis
        FROM range({rows}) AS r(i)
    """


def policy_of(**privacy: Any) -> sqlanon.Policy:
    return sqlanon.Policy(
        source={"table": "people"},
        attributes={
            "sex": {"role": "quasi", "hierarchy": "suppress"},
            "birth": {"role": "quasi", "hierarchy": {"intervals": [5, 20, 100]}},
            "zip": {"role": "quasi", "hierarchy": {"mask": "right"}},
            "work": {"role": "quasi", "hierarchy": "suppress"},
            "diagnosis": {"role": "sensitive"},
        },
        privacy=privacy,
        search={"suppression_limit": 0.02},
    )
