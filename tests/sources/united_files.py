"""Files with different columns, united by a policy."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

Columns = dict[str, list[Any]]


ROLES = {"zip": "suppress", "diagnosis": "sensitive", "name": "insensitive", "age": "insensitive"}


FIRST: Columns = {"zip": ["1", "2"] * 2, "diagnosis": ["flu"] * 4, "name": ["a", "b", "c", "d"], "age": [1, 2, 3, 4]}


def write_csv(path: Path, columns: Columns) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))


def write_json(path: Path, columns: Columns) -> None:
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    path.write_text("\n".join(map(json.dumps, rows)) + "\n")


def write_parquet(path: Path, columns: Columns) -> None:
    pq.write_table(pa.table(columns), path)


WRITERS: dict[str, Callable[[Path, Columns], None]] = {"csv": write_csv, "json": write_json, "parquet": write_parquet}


def write_files(folder: Path, ending: str, files: Sequence[Columns]) -> list[str]:
    paths = [folder / f"f{i}.{ending}" for i in range(len(files))]
    for path, columns in zip(paths, files, strict=True):
        WRITERS[ending](path, columns)
    return [str(path) for path in paths]


def reorder(columns: Columns, *names: str) -> Columns:
    return {name: columns[name] for name in names}
