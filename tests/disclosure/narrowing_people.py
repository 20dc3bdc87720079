"""People whose released values narrow one another."""

from __future__ import annotations

from typing import Any

PEOPLE = """
    SELECT i AS name, (1000 + (i * 7919) % 1000)::VARCHAR AS zip, (hash(i + 7) % 60)::INTEGER AS age,
        'd' || ((i * 7919) % 1000) // 4 AS district, ['flu', 'cold', 'cut'][1 + (hash(i) % 3)::INTEGER] AS diagnosis,
        (hash(i + 1) % 100000) / 100 AS cost
    FROM range(20000) AS t(i)
"""


ROLES: dict[str, Any] = {
    "name": {"role": "identifying"},
    "zip": {"role": "quasi", "hierarchy": {"mask": "right"}},
    "age": {"role": "quasi", "hierarchy": {"intervals": [10, 20]}},
    "district": {"role": "insensitive"},
    "diagnosis": {"role": "sensitive"},
    "cost": {"role": "insensitive"},
}
