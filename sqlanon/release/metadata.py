"""What a release file has for those who look, made of its rows and its manifest; and whether a file still has it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

from sqlglot import exp

from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.errors import ReleaseError
from sqlanon.expressions import cast, col, column_definitions, create_table, insert_row, table
from sqlanon.hierarchies.bounds import Kind, bounds
from sqlanon.policy.names import TOLD, labels_table
from sqlanon.release import metadata_views as pr
from sqlanon.release.manifest import Manifest
from sqlanon.release.words import comment_on_column, comment_on_release, what_was_done

ABOUT = ("attributes", "suppression", "figures")
"""The tables in the schema ``sqlanon`` that tell about a release."""

Suppressed: TypeAlias = Sequence[tuple[str, str | None, int, int]]
"""Rows of ``sqlanon.suppression``: attribute, value, suppressed and released rows."""


def labelled(manifest: Manifest) -> list[str]:
    """The columns that have a table of labels: those that are generalized."""
    levels = {name.lower(): level for name, level in manifest.generalization.items()}
    return [name for name in manifest.quasi if levels.get(name.lower(), 0) != 0]


def objects(manifests: Sequence[Manifest]) -> set[str]:
    """The tables and views in the main schema."""
    newest = manifests[0]
    if newest.version is None:
        return {f"table main.{newest.table_name}"}
    tables = [one.rows_table for one in manifests] + [labels_table(name) for name in labelled(newest)]
    views = (newest.table_name, *TOLD)
    return {f"table main.{name}" for name in tables} | {f"view main.{name}" for name in views}


def refuse_name(manifest: Manifest) -> None:
    """Refuse a table that has the name of something else in a release file."""
    taken = {name.lower() for name in (*TOLD, *map(labels_table, labelled(manifest)))}
    if manifest.table_name.lower() in taken:
        raise ReleaseError(f"a release has a {manifest.table_name!r} of its own: give its table another name")


def present(
    engine: DuckDBEngine,
    manifests: Sequence[Manifest],
    ranges: Mapping[str, Kind],
    suppressed: Suppressed,
    catalog: str,
) -> None:
    """Add all that tells about a release to its file, which has its rows and its manifests."""
    newest = manifests[0]
    rows = table(newest.rows_table, "main", catalog)
    for name in labelled(newest):
        target = table(labels_table(name), "main", catalog)
        engine.execute(create_table(target, labels_of(name, rows.copy(), ranges.get(name.lower()))))
    for name, columns, content in (
        ("attributes", pr.OVERVIEW_COLUMNS, overview(newest)),
        ("figures", pr.QUALITY_COLUMNS, quality(newest)),
        ("suppression", pr.SUPPRESSION_COLUMNS, suppressed),
    ):
        engine.execute(column_definitions(table(name, "sqlanon", catalog), columns.items()))
        for row in content:
            engine.execute(insert_row(table(name, "sqlanon", catalog), columns), list(row))
    for view in views(newest, catalog):
        engine.execute(view)
    for told in _comments(manifests, catalog):
        engine.execute(told)


def overview(manifest: Manifest) -> list[tuple[int, str, str, int | None, int | None, str]]:
    """The rows of ``sqlanon.attributes``: of all attributes of the policy, released or not."""
    levels = {name.lower(): level for name, level in manifest.generalization.items()}
    heights = {name.lower(): height for name, height in (manifest.heights or {}).items()}
    return [
        (i, name, str(one["role"]), levels.get(name.lower()), heights.get(name.lower()), what_was_done(manifest, name))
        for i, (name, one) in enumerate(manifest.policy["attributes"].items())
    ]


def quality(manifest: Manifest) -> list[tuple[int, str, float | None, str]]:
    """The rows of ``sqlanon.figures``."""
    share = manifest.suppressed_rows / manifest.rows if manifest.rows else None
    average = manifest.released_rows / manifest.classes if manifest.classes else None
    hidden = "" if manifest.score is not None else ", which follows from values that are not released: not shown"
    figures: list[tuple[str, float | None, str]] = [
        ("rows", manifest.rows, "rows of the source"),
        ("released_rows", manifest.released_rows, "rows of this release"),
        ("suppressed_rows", manifest.suppressed_rows, "rows of the source that were left out, or masked"),
        ("suppressed_share", share, "suppressed_rows / rows"),
        ("classes", manifest.classes, "equivalence classes: rows that no quasi-identifier tells apart"),
        ("smallest_class", manifest.smallest_class, "rows of the smallest class"),
        ("average_class", average, "released_rows / classes"),
        ("score", manifest.score, f"what was lost, by the measure {manifest.measure}{hidden}"),
        ("optimal", manifest.optimal, "1: the strategy proves that no generalization that meets the policy is better"),
    ]
    return [(i, name, None if value is None else float(value), told) for i, (name, value, told) in enumerate(figures)]


def may_be_told(told: Sequence[int], suppressed: int, labels: int, least: int) -> bool:
    """Whether the suppressed rows of some of an attribute's labels may be told, when the sum of all is known.

    Each label that is not told has fewer than ``least``; how many must not follow from what is left. Nothing must be
    left, or so many that it is of no few rows, and so few that each of those labels may have none.

    Examples
    --------
    >>> may_be_told([7, 5], suppressed=12, labels=2, least=5)  # nothing is left
    True
    >>> may_be_told([7, 5], suppressed=14, labels=9, least=5)  # 2 are left
    False
    >>> may_be_told([6], suppressed=18, labels=4, least=5)  # 12 are left to three that have 4 at most: 4 each
    False
    >>> may_be_told([6], suppressed=18, labels=9, least=5)
    True
    """
    rest = suppressed - sum(told)
    return rest == 0 or least <= rest <= (labels - len(told) - 1) * (least - 1)


def views(manifest: Manifest, catalog: str) -> list[exp.Create]:
    """The statements that make the views of a release file: the stable one first."""
    columns = [column.name for column in manifest.columns]
    name = table(manifest.table_name, "main", catalog)
    stable = pr.stable_view(name, table(manifest.rows_table), columns)
    return [stable, *pr.about_views(manifest.table_name, manifest.quasi, catalog)]


def labels_of(name: str, rows: exp.Table, kind: Kind | None) -> exp.Query:
    """The query for the labels of a generalized attribute in the rows of a release."""
    return pr.labels(name, rows, None if kind is None else bounds(cast(col(name), "VARCHAR"), kind))


def _comments(manifests: Sequence[Manifest], catalog: str) -> Iterator[exp.Comment]:
    newest = manifests[0]
    places = [("VIEW", newest.table_name, newest), *(("TABLE", one.rows_table, one) for one in manifests)]
    for kind, place, manifest in places:
        yield from comments_on(kind, table(place, "main", catalog), manifest)
    for name in labelled(newest):
        told = f"the labels of {name} that are in the release, in order, with the ends of those that are ranges"
        yield pr.comment("TABLE", table(labels_table(name), "main", catalog), told)


def comments_on(kind: str, relation: exp.Table, manifest: Manifest) -> Iterator[exp.Comment]:
    """What is told of a relation that shows released rows, and of its columns."""
    yield pr.comment(kind, relation.copy(), comment_on_release(manifest))
    for column in manifest.columns:
        yield pr.comment_on_column(relation, column.name, comment_on_column(manifest, column.name, column.role))


def comments(manifests: Sequence[Manifest]) -> dict[tuple[str, str], str]:
    """The comments of a release file by table or view, and column; the column of the whole is empty."""
    found = {}
    if manifests[0].version is None:
        return {}
    for one in _comments(manifests, "c"):
        target = one.this
        of_column = isinstance(target, exp.Column)
        found[(target.table, target.name) if of_column else (target.name, "")] = one.expression.name
    return found
