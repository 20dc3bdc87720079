"""Compare statements for warehouses with what sqlanon computes itself."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import sqlanon


def from_set(policy: sqlanon.Policy, path: Path | str, **sections: Any) -> sqlanon.Policy:
    """The same policy, of a frequency set."""
    tree = policy.model_dump(exclude_none=True)
    source = {"frequency_set": str(path), "table": "patients"} | sections.pop("source", {})
    release = {name: part for name, part in tree.get("release", {}).items() if name == "suppressed"}
    return sqlanon.Policy(**{**tree, "source": source, "release": {**release, "table": "shared"}, **sections})


def violations(audit: Mapping[str, list[Any]]) -> dict[str, list[Any]]:
    return {name: rows for name, rows in audit.items() if rows and not name.startswith("For information")}


def figures(result: sqlanon.Result) -> dict[str, Any]:
    names = ("generalization", "score", "classes", "smallest_class", "suppressed_rows", "released_rows", "nodes")
    return {name: getattr(result, name) for name in names} | {"rows": result.rows, "optimal": result.optimal}


DIFFERING = "the rows in which the release and this statement differ"


THERE = {"VARCHAR": "text", "INTEGER": "integer", "DATE": "date", "BOOLEAN": "boolean", "DOUBLE": "float8"}
