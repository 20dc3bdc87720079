"""The loss and the classes of an anonymized Adult, whoever made it; one JSON object.

    python benchmarks/score.py out.csv --rows 30162            # labels of the hierarchies: anjana, sqlanon
    python benchmarks/score.py out.csv --rows 30162 --sets     # sets ("a,b") and ranges ("17-23"), with counts: anonypy

The loss is sqlanon's: the mean over the quasi-identifiers and over all rows of (leaves(v) - 1) / (leaves - 1), where
leaves(v) are the ground values in the hierarchy under the released value v; a row that is missing counts 1. A column of
labels is read at the lowest level that has them all. Of a set, the leaves are its members; of a range, the ground
values within.
"""

from __future__ import annotations

import argparse
import csv
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import duckdb
from harness import ADULT, DATA


def hierarchy(name: str) -> list[list[str]]:
    """The lines of a hierarchy of Adult, leaf to root."""
    with (DATA / "adult" / f"hierarchy_{name}.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.reader(file, delimiter=";"))


def label_leaves(lines: Sequence[Sequence[str]], labels: Mapping[str, int]) -> dict[str, int]:
    """Ground values under each label of a column; the keys of ``labels`` are those that are in it."""
    for level in zip(*lines, strict=True):
        leaves = Counter(level)
        if labels.keys() <= leaves.keys():
            return dict(leaves)
    raise ValueError(f"no level has all of these labels: {sorted(labels)[:5]}")


def set_leaves(lines: Sequence[Sequence[str]], labels: Mapping[str, int]) -> dict[str, int]:
    """Ground values in each set or range of a column."""
    ground = {line[0] for line in lines}
    numbers = sorted(int(value) for value in ground if value.isdigit())

    def leaves(label: str) -> int:
        if not numbers:
            return len(label.split(","))
        least, _, most = label.partition("-")
        return sum(int(least) <= number <= int(most or least) for number in numbers)

    return {label: leaves(label) for label in labels}


def score(connection: duckdb.DuckDBPyConnection, relation: str, rows: int, sets: bool) -> dict[str, float]:
    """Loss, classes, smallest class and missing rows of a relation with Adult's quasi-identifiers.

    Parameters
    ----------
    relation:
        SQL after FROM: a table, or a call of read_csv.
    rows:
        Of the source.
    sets:
        Whether values are sets and ranges, and a column ``count`` tells rows; else labels, a row each.
    """
    weight, total, kept_rows = ('sum("count")' if sets else "count(*)"), 0.0, 0
    for name in ADULT:
        counts = connection.execute(f'SELECT "{name}", {weight} FROM {relation} GROUP BY ALL').fetchall()
        labels = {label: int(count) for label, count in counts}
        lines = hierarchy(name)
        leaves = set_leaves(lines, labels) if sets else label_leaves(lines, labels)
        kept_rows = sum(labels.values())
        lost = sum(count * (leaves[label] - 1) for label, count in labels.items()) / (len(lines) - 1)
        total += (lost + rows - kept_rows) / rows
    columns = ", ".join(f"""list_sort(string_split("{name}", ','))""" if sets else f'"{name}"' for name in ADULT)
    row = connection.execute(
        f"SELECT count(*), min(n) FROM (SELECT {columns}, {weight} AS n FROM {relation} GROUP BY ALL)"
    ).fetchone()
    assert row
    return {"loss": total / len(ADULT), "classes": row[0], "smallest": int(row[1]), "missing": rows - kept_rows}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("released", type=Path, help="a CSV file, or a DuckDB file with the table adult")
    parser.add_argument("--rows", type=int, required=True, help="of the source")
    parser.add_argument("--sets", action="store_true")
    args = parser.parse_args()
    with duckdb.connect() as connection:
        if args.released.suffix == ".duckdb":
            connection.execute(f"ATTACH '{args.released}' AS released (READ_ONLY)")
            relation = "released.adult"
        else:
            relation = f"read_csv('{args.released}', delim = ';', header = true, all_varchar = {not args.sets})"
            if args.sets:
                columns = ", ".join(f'"{name}"::VARCHAR AS "{name}"' for name in ADULT)
                relation = f'(SELECT {columns}, "count" FROM {relation})'
        print(json.dumps(score(connection, relation, args.rows, args.sets)))


if __name__ == "__main__":
    main()
