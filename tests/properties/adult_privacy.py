"""The Adult table with privacy requirements."""

from __future__ import annotations

import csv
from functools import cache
from pathlib import Path
from typing import Any

from oracles.oracle import Hierarchy
from oracles.oracle_privacy import Source
from support.files import data_folder


def read(path: Path) -> list[list[str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.reader(file, delimiter=";"))


def privacy_of(entry: dict[str, Any]) -> dict[str, Any]:
    """The requirements of a proven optimum, as in a policy."""
    kind, *numbers = entry["model"].split(":")
    spec = {"attribute": entry["sensitive"]}
    if kind in ("equal", "hierarchical"):
        return {"k": entry["k"], "t_closeness": [{**spec, "distance": kind, "t": float(numbers[0])}]}
    c = {"c": float(numbers[0])} if kind == "recursive" else {}
    return {"k": entry["k"], "l_diversity": [{**spec, "kind": kind, "l": int(numbers[-1]), **c}]}


@cache
def adult(quasi: tuple[str, ...], sensitive: str) -> Source:
    folder = data_folder()
    assert folder is not None
    header, *lines = read(folder / "adult" / "adult.csv")
    trees = {
        name: Hierarchy({p[0]: tuple(p) for p in read(folder / "adult" / f"hierarchy_{name}.csv")})
        for name in (*quasi, sensitive)
    }
    records = [dict(zip(header, line, strict=True)) for line in lines]
    return Source(records, {name: trees[name] for name in quasi}, {sensitive: trees[sensitive]})
