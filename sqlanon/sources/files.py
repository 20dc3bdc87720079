"""Data files: Parquet, which is scanned in place, and CSV, which is copied."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from sqlglot import exp

from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.errors import SourceError
from sqlanon.expressions import create_temporary_view, literal_path, read_parquet, star, template, union_all
from sqlanon.policy import PopulationSection, SourceSection
from sqlanon.sources.bind import bind_relation, source_errors
from sqlanon.sources.bound import Source, WorkNames
from sqlanon.sources.csv import copy_csv, scan_csv
from sqlanon.sources.kinds import Binding, SourceKind
from sqlanon.sources.plain import refuse_ambiguous, refuse_query

_ENDINGS = {
    "parquet": (".parquet", ".pq"),
    "csv": (".csv", ".tsv", ".txt", ".csv.gz", ".tsv.gz", ".txt.gz", ".csv.zst"),
}


_MATCHES = template("SELECT file FROM glob(:pattern)")
_EACH_ONCE = template("SELECT DISTINCT file FROM :files AS g ORDER BY file")
_NODES = template("SELECT name, num_children FROM parquet_schema(:path)")


class _Files(SourceKind):
    name = "files"

    def bind(self, binding: Binding) -> tuple[DuckDBEngine, Source]:
        names = binding.as_text, binding.wanted, binding.home
        return binding.engine, bind_files(binding.engine, binding.section, binding.place, *names)


KIND = _Files()


def bind_files(
    engine: DuckDBEngine,
    section: SourceSection | PopulationSection,
    place: WorkNames,
    text_columns: Collection[str] = (),
    wanted: Collection[str] = (),
    home: str | None = None,
) -> Source:
    refuse_query(section)
    with source_errors():
        paths = _paths(engine, section.files)
        found, more = _from_files(engine, paths, place, text_columns, wanted)
        return bind_relation(engine, found, place, True, tuple(map(Path, paths)), more, home)


def file_kind(path: str) -> str | None:
    """``parquet`` or ``csv`` by a file's ending, else None.

    >>> file_kind("a.CSV.gz"), file_kind("hospital.duckdb")
    ('csv', None)
    """
    return next((kind for kind, endings in _ENDINGS.items() if path.lower().endswith(endings)), None)


def _paths(engine: DuckDBEngine, patterns: tuple[str, ...]) -> list[str]:
    found = union_all(*(_MATCHES(pattern=pattern) for pattern in patterns))
    paths = [path for (path,) in engine.rows(_EACH_ONCE(files=found))]
    if not paths:
        raise SourceError(f"source.files: no file matches {', '.join(patterns)}")
    return paths


def _from_files(
    engine: DuckDBEngine, paths: list[str], place: WorkNames, text_columns: Collection[str], wanted: Collection[str]
) -> tuple[exp.Table, Mapping[str, str]]:
    kinds = {file_kind(path) for path in paths}
    if len(kinds) != 1 or None in kinds:
        strange = [Path(path).name for path in paths if file_kind(path) is None]
        what = f"{strange[0]} is neither Parquet nor CSV by its ending" if strange else "Parquet and CSV are mixed"
        raise SourceError(f"source.files: {what}; give files of one kind")
    if kinds == {"parquet"}:
        for path in paths:
            refuse_ambiguous(_parquet_columns(engine, path), Path(path).name)
        query = star(read_parquet(paths))
    else:
        if place.copy is not None:
            return place.copy, copy_csv(engine, paths, text_columns, wanted, place.copy).columns
        query = scan_csv(engine, paths, text_columns)
    view = place.view("files")
    engine.execute(create_temporary_view(view, query))
    return view, {}


def _parquet_columns(engine: DuckDBEngine, path: str) -> list[str]:
    """The top-level names in a Parquet file's own schema: a scan would rename the ones that differ in case only."""
    nodes = engine.rows(_NODES(path=literal_path(path)))
    names: list[str] = []
    position = 1
    for _ in range(nodes[0][1] or 0):
        names.append(nodes[position][0])
        position = _after(nodes, position)
    return names


def _after(nodes: list[tuple[Any, ...]], position: int) -> int:
    """The position behind a node and all of its children, in depth-first order."""
    children, position = nodes[position][1] or 0, position + 1
    for _ in range(children):
        position = _after(nodes, position)
    return position
