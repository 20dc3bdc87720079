"""The metadata of a release file: views, tables and comments that describe its rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

from sqlglot import exp

from sqlanon.disclosure.class_sizes import class_sizes
from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.errors import ReleaseError
from sqlanon.hierarchies.bounds import RangeKind, bounds
from sqlanon.release.manifest import Manifest
from sqlanon.release.sentences import (
    CLASSES,
    HIDDEN,
    IN_ORDER,
    OPTIMAL,
    comment_on_column,
    comment_on_release,
    describe_treatment,
)
from sqlanon.support.expressions import (
    cast,
    col,
    column_definitions,
    create_table,
    create_view,
    ident,
    insert_rows,
    select,
    table,
    template,
    text,
)
from sqlanon.support.names import METADATA_VIEWS, labels_table

ATTRIBUTES_COLUMNS = {
    "position": "INTEGER",
    "attribute": "VARCHAR",
    "role": "VARCHAR",
    "level": "INTEGER",
    "height": "INTEGER",
    "what_was_done": "VARCHAR",
}
"""Columns of ``sqlanon.attributes``."""

FIGURES_COLUMNS = {"position": "INTEGER", "figure": "VARCHAR", "value": "DOUBLE", "meaning": "VARCHAR"}
"""Columns of ``sqlanon.figures``. No view has this name: duckdb-engine confuses tables of one name in two schemas."""

SUPPRESSION_COLUMNS = {
    "attribute": "VARCHAR",
    "value": "VARCHAR",
    "suppressed_rows": "BIGINT",
    "released_rows": "BIGINT",
}
"""Columns of ``sqlanon.suppression``."""

AT_ONCE = 1000
"""Rows per INSERT statement, which has at most 65,535 parameters."""


_LABELS_THERE = template("SELECT :label FROM :rows WHERE :label IS NOT NULL GROUP BY :label")
_LABELS = template("""
    SELECT :label, row_number() OVER (ORDER BY :label)::INTEGER AS :place
    FROM :there AS r
    ORDER BY :place
""")
# Ranges that are open below come first; labels without ends (the top) come last.
_RANGE_LABELS = template("""
    SELECT
        :label,
        row_number() OVER (
            ORDER BY coalesce(:low, :high) NULLS LAST, :low NULLS FIRST, :high NULLS LAST, :label
        )::INTEGER AS :place,
        :low,
        :high
    FROM (SELECT :label, :least AS :low, :most AS :high FROM :there AS r) AS b
    ORDER BY :place
""")
_SUPPRESSED_BY = template("""
    SELECT value, suppressed_rows, released_rows, labels
    FROM (
        SELECT
            s.value,
            s.rows - r.rows AS suppressed_rows,
            r.rows AS released_rows,
            count(*) OVER () AS labels
        FROM (SELECT :value AS value, sum(rows)::BIGINT AS rows FROM :values WHERE :known GROUP BY :value) AS s
        JOIN (SELECT :label AS value, count(*) AS rows FROM :released GROUP BY :label) AS r
            ON s.value IS NOT DISTINCT FROM r.value
    ) AS b
    WHERE suppressed_rows >= :least AND released_rows >= :least
""")


def stable_view(view: exp.Table, rows: exp.Table, columns: Sequence[str]) -> exp.Create:
    """The view for readers over the table of the newest version: a plain list of its columns.

    >>> stable_view(table("patients"), table("patients_v3"), ["zip", "age"]).sql("duckdb")
    'CREATE VIEW "patients" AS SELECT "zip", "age" FROM "patients_v3"'
    """
    return create_view(view, select([col(one) for one in columns], rows))


def metadata_views(name: str, quasi: Sequence[str], catalog: str) -> list[exp.Create]:
    queries = (
        _in_order("attributes", ATTRIBUTES_COLUMNS),
        class_sizes(table(name), quasi),
        select(list(map(col, SUPPRESSION_COLUMNS)), table("suppression", "sqlanon")),
        _in_order("figures", FIGURES_COLUMNS),
    )
    return [create_view(table(one, "main", catalog), query) for one, query in zip(METADATA_VIEWS, queries, strict=True)]


def _in_order(name: str, columns: Iterable[str]) -> exp.Query:
    readable: list[exp.Expr] = [col(one) for one in columns if one != "position"]
    return select(readable, table(name, "sqlanon")).order_by(col("position"), copy=False)


def comment(kind: str, target: exp.Expr, words: str) -> exp.Comment:
    """``COMMENT ON kind target IS 'words'``.

    >>> comment("TABLE", table("t"), "it's").sql("duckdb")
    'COMMENT ON TABLE "t" IS \\'it\\'\\'s\\''
    """
    return exp.Comment(this=target, kind=kind, expression=text(words))


def column_comment(relation: exp.Table, name: str, words: str) -> exp.Comment:
    parts = relation.args
    column = exp.Column(this=ident(name), table=parts["this"], db=parts.get("db"), catalog=parts.get("catalog"))
    return comment("COLUMN", column.copy(), words)


def suppressed_by_label(
    values: exp.Expr, value: exp.Expr, known: exp.Expr, released: exp.Expr, column: str, least: int
) -> exp.Select:
    """Suppressed and released rows by released label: ``value``, ``suppressed_rows``, ``released_rows``.

    Only labels with at least ``least`` of both are shown; ``labels`` counts the others, too.
    """
    label = cast(col(column), "VARCHAR")
    return _SUPPRESSED_BY(value=value, values=values, known=known, label=label, released=released, least=least)


DESCRIPTION_TABLES = ("attributes", "suppression", "figures")
"""The tables in the schema ``sqlanon`` that describe a release."""

SuppressedRows: TypeAlias = Sequence[tuple[str, str | None, int, int]]
"""Rows of ``sqlanon.suppression``: attribute, value, suppressed and released rows."""


def generalized_columns(manifest: Manifest) -> list[str]:
    levels = {name.lower(): level for name, level in manifest.generalization.items()}
    return [
        name for name in manifest.quasi_identifiers if levels.get(name.lower(), 0) != 0 or manifest.has_open_ends(name)
    ]


def objects(manifests: Sequence[Manifest]) -> set[str]:
    newest = manifests[0]
    tables = [one.rows_table for one in manifests] + [labels_table(name) for name in generalized_columns(newest)]
    views = (newest.table_name, *METADATA_VIEWS)
    return {f"table main.{name}" for name in tables} | {f"view main.{name}" for name in views}


def refuse_name(manifest: Manifest) -> None:
    taken = {name.lower() for name in (*METADATA_VIEWS, *map(labels_table, generalized_columns(manifest)))}
    if manifest.table_name.lower() in taken:
        raise ReleaseError(f"a release file has its own {manifest.table_name!r}: choose another name for the table")


def present(
    engine: DuckDBEngine,
    manifests: Sequence[Manifest],
    ranges: Mapping[str, RangeKind],
    suppressed: SuppressedRows,
    catalog: str,
) -> None:
    """Add the metadata to a release file that has its rows and its manifests."""
    newest = manifests[0]
    rows = table(newest.rows_table, "main", catalog)
    for name in generalized_columns(newest):
        target = table(labels_table(name), "main", catalog)
        engine.execute(create_table(target, label_query(name, rows.copy(), ranges.get(name.lower()))))
    for name, columns, content in (
        ("attributes", ATTRIBUTES_COLUMNS, attribute_rows(newest)),
        ("figures", FIGURES_COLUMNS, figure_rows(newest)),
        ("suppression", SUPPRESSION_COLUMNS, suppressed),
    ):
        engine.execute(column_definitions(table(name, "sqlanon", catalog), columns.items()))
        for start in range(0, len(content), AT_ONCE):
            some = content[start : start + AT_ONCE]
            statement = insert_rows(table(name, "sqlanon", catalog), columns, len(some))
            engine.execute(statement, [value for row in some for value in row])
    for view in views(newest, catalog):
        engine.execute(view)
    for one in _comments(manifests, catalog):
        engine.execute(one)


def attribute_rows(manifest: Manifest) -> list[tuple[int, str, str, int | None, int | None, str]]:
    levels = {name.lower(): level for name, level in manifest.generalization.items()}
    heights = {name.lower(): height for name, height in (manifest.heights or {}).items()}
    return [
        (
            i,
            name,
            str(one["role"]),
            levels.get(name.lower()),
            heights.get(name.lower()),
            describe_treatment(manifest, name),
        )
        for i, (name, one) in enumerate(manifest.policy["attributes"].items())
    ]


def figure_rows(manifest: Manifest) -> list[tuple[int, str, float | None, str]]:
    share = manifest.suppressed_rows / manifest.rows if manifest.rows else None
    average = manifest.released_rows / manifest.classes if manifest.classes else None
    hidden = "" if manifest.score is not None else HIDDEN
    figures: list[tuple[str, float | None, str]] = [
        ("rows", manifest.rows, "rows of the source"),
        ("released_rows", manifest.released_rows, "rows of this release"),
        ("suppressed_rows", manifest.suppressed_rows, "rows of the source that were suppressed"),
        ("suppressed_share", share, "suppressed_rows / rows"),
        ("classes", manifest.classes, CLASSES),
        *_smallest_class(manifest),
        ("average_class", average, "released_rows / classes"),
        ("score", manifest.score, f"cost by the measure {manifest.measure}{hidden}"),
        ("optimal", manifest.optimal, OPTIMAL),
    ]
    if manifest.draft:
        figures.append(("draft", 1, "1: a draft for trying out, compared with no other release; not for sharing"))
    return [(i, name, None if value is None else float(value), words) for i, (name, value, words) in enumerate(figures)]


def _smallest_class(manifest: Manifest) -> list[tuple[str, float | None, str]]:
    """The smallest class, and where persons are counted the persons."""
    if manifest.persons is None:
        return [("smallest_class", manifest.smallest_class, "rows of the smallest class")]
    return [
        ("persons", manifest.persons, "persons of the source"),
        ("released_persons", manifest.released_persons, "persons all of whose rows are in this release"),
        ("suppressed_persons", manifest.suppressed_persons, "persons with a suppressed row"),
        ("partly_released_persons", manifest.partly_released_persons, "of these, persons with a released row, too"),
        ("smallest_class", manifest.smallest_class, "the fewest persons in a class"),
        ("smallest_class_rows", manifest.smallest_class_rows, "the fewest rows in a class"),
    ]


def can_show_labels(shown: Sequence[int], suppressed: int, labels: int, least: int) -> bool:
    """Whether a release may show the suppressed rows of some labels of an attribute, given that the total is known.

    Labels that are not shown have fewer than ``least`` rows, and their numbers must not follow from the rest: the rest
    is zero, or at least ``least`` rows and so few that any of these labels may have none.

    Examples
    --------
    >>> may_be_shown([7, 5], suppressed=12, labels=2, least=5)  # nothing is left
    True
    >>> may_be_shown([7, 5], suppressed=14, labels=9, least=5)  # 2 are left
    False
    >>> may_be_shown([6], suppressed=18, labels=4, least=5)  # 12 are left for three labels with at most 4 each
    False
    >>> may_be_shown([6], suppressed=18, labels=9, least=5)
    True
    """
    rest = suppressed - sum(shown)
    return rest == 0 or least <= rest <= (labels - len(shown) - 1) * (least - 1)


def views(manifest: Manifest, catalog: str) -> list[exp.Create]:
    """The statements that create the views of a release file, the stable view first."""
    columns = [column.name for column in manifest.columns]
    name = table(manifest.table_name, "main", catalog)
    stable = stable_view(name, table(manifest.rows_table), columns)
    return [stable, *metadata_views(manifest.table_name, manifest.quasi_identifiers, catalog)]


def label_query(name: str, rows: exp.Table, kind: RangeKind | None) -> exp.Select:
    """The labels of a generalized attribute that released rows have, in order."""
    names: dict[str, exp.Expr] = {"label": col(name), "place": ident(f"{name}_order")}
    there = _LABELS_THERE(label=col(name), rows=rows)
    if kind is None:
        return _LABELS(**names, there=there)
    least, most = bounds(cast(col(name), "VARCHAR"), kind)
    names |= {"low": ident(f"{name}_low"), "high": ident(f"{name}_high"), "least": least, "most": most}
    return _RANGE_LABELS(**names, there=there)


def _comments(manifests: Sequence[Manifest], catalog: str) -> Iterator[exp.Comment]:
    newest = manifests[0]
    places = [("VIEW", newest.table_name, newest), *(("TABLE", one.rows_table, one) for one in manifests)]
    for kind, place, manifest in places:
        yield from comment_statements(kind, table(place, "main", catalog), manifest)
    for name in generalized_columns(newest):
        words = f"the labels of {name}{IN_ORDER}"
        yield comment("TABLE", table(labels_table(name), "main", catalog), words)


def comment_statements(
    kind: str, relation: exp.Table, manifest: Manifest, details: str = "sqlanon.manifest"
) -> Iterator[exp.Comment]:
    """The comments on a relation with released rows, and on its columns."""
    yield comment(kind, relation.copy(), comment_on_release(manifest, details))
    for column in manifest.columns:
        yield column_comment(relation, column.name, comment_on_column(manifest, column.name, column.role))


def comments(manifests: Sequence[Manifest]) -> dict[tuple[str, str], str]:
    found = {}
    for one in _comments(manifests, "c"):
        target = one.this
        of_column = isinstance(target, exp.Column)
        found[(target.table, target.name) if of_column else (target.name, "")] = one.expression.name
    return found
