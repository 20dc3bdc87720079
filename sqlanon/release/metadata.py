"""The metadata of a release file: views, tables and comments that describe its rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

from sqlglot import exp

from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.errors import ReleaseError
from sqlanon.frequency.class_sizes import class_sizes
from sqlanon.hierarchies.bounds import RangeKind, label_bounds
from sqlanon.release.manifest import Manifest
from sqlanon.release.sentences import (
    CLASSES,
    HIDDEN,
    IN_ORDER,
    OPTIMAL,
    comment_on_column,
    comment_on_release,
    describe_treatment,
    lowercase_keys,
)
from sqlanon.support.expressions import (
    cast,
    col,
    create_table,
    create_table_with_columns,
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

_INSERT_SIZE = 1000
"""Rows per INSERT statement, which has at most 65,535 parameters."""

DESCRIPTION_TABLES = ("attributes", "suppression", "figures")
"""The tables in the schema ``sqlanon`` that describe a release."""

SuppressedRows: TypeAlias = Sequence[tuple[str, str | None, int, int]]
"""Rows of ``sqlanon.suppression``: attribute, value, suppressed rows, released rows."""


def column_list(rows: exp.Table, columns: Iterable[str]) -> exp.Select:
    """The query of the view that readers use: plain columns of one table.

    >>> column_list(table("r_v1", "s"), ["zip"]).sql("spark")
    'SELECT `zip` FROM `s`.`r_v1`'
    """
    return select([col(name) for name in columns], rows.copy())


def is_column_list(query: exp.Expr, rows: exp.Table, columns: Iterable[str]) -> bool:
    """Whether a query is the `column_list` of a table, with any quoting of names, in which engines differ."""
    quoted = query.copy().transform(lambda node: ident(node.name) if isinstance(node, exp.Identifier) else node)
    return bool(quoted == column_list(rows, columns))


def stable_view(view: exp.Table, rows: exp.Table, columns: Sequence[str]) -> exp.Create:
    """The view that readers use: a plain list of the columns of the newest version.

    >>> stable_view(table("patients"), table("patients_v3"), ["zip", "age"]).sql("duckdb")
    'CREATE VIEW "patients" AS SELECT "zip", "age" FROM "patients_v3"'
    """
    return create_view(view, column_list(rows, columns))


def _metadata_views(name: str, quasi_identifiers: Sequence[str], catalog: str) -> list[exp.Create]:
    queries = (
        _ordered_table("attributes", ATTRIBUTES_COLUMNS),
        class_sizes(table(name), quasi_identifiers),
        select(list(map(col, SUPPRESSION_COLUMNS)), table("suppression", "sqlanon")),
        _ordered_table("figures", FIGURES_COLUMNS),
    )
    return [
        create_view(table(view, "main", catalog), query) for view, query in zip(METADATA_VIEWS, queries, strict=True)
    ]


def _ordered_table(name: str, columns: Iterable[str]) -> exp.Query:
    visible: list[exp.Expr] = [col(column) for column in columns if column != "position"]
    return select(visible, table(name, "sqlanon")).order_by(col("position"), copy=False)


def comment(kind: str, target: exp.Expr, message: str) -> exp.Comment:
    """``COMMENT ON kind target IS 'message'``.

    >>> comment("TABLE", table("t"), "it's").sql("duckdb")
    'COMMENT ON TABLE "t" IS \\'it\\'\\'s\\''
    """
    return exp.Comment(this=target, kind=kind, expression=text(message))


def column_comment(relation: exp.Table, name: str, message: str) -> exp.Comment:
    parts = relation.args
    column = exp.Column(this=ident(name), table=parts["this"], db=parts.get("db"), catalog=parts.get("catalog"))
    return comment("COLUMN", column.copy(), message)


def suppressed_by_label(
    values: exp.Expr, value: exp.Expr, known: exp.Expr, released: exp.Expr, column: str, least: int
) -> exp.Select:
    """Count suppressed and released rows by released label: ``value``, ``suppressed_rows``, ``released_rows``.

    Only labels with at least ``least`` rows of both kinds are returned; ``labels`` is the number of all labels.
    """
    return template("""
        WITH source_rows AS (
            SELECT :value AS value, sum(rows)::BIGINT AS rows FROM :values WHERE :known GROUP BY :value
        ),
        released_rows AS (
            SELECT :label AS value, count(*) AS rows FROM :released GROUP BY :label
        ),
        rows_by_label AS (
            SELECT
                s.value,
                s.rows - r.rows AS suppressed_rows,
                r.rows AS released_rows,
                count(*) OVER () AS labels
            FROM source_rows AS s
            JOIN released_rows AS r ON s.value IS NOT DISTINCT FROM r.value
        )
        SELECT value, suppressed_rows, released_rows, labels
        FROM rows_by_label
        WHERE suppressed_rows >= :least AND released_rows >= :least
    """)(value=value, values=values, known=known, label=cast(col(column), "VARCHAR"), released=released, least=least)


def generalized_columns(manifest: Manifest) -> list[str]:
    """The quasi-identifiers that are released as labels."""
    levels, names = lowercase_keys(manifest.generalization), manifest.quasi_identifiers
    return [name for name in names if levels.get(name.lower(), 0) != 0 or manifest.has_open_ends(name)]


def expected_relations(manifests: Sequence[Manifest]) -> set[str]:
    """The tables and views of a release file in the schema ``main``."""
    newest = manifests[0]
    tables = [manifest.rows_table for manifest in manifests]
    tables += [labels_table(name) for name in generalized_columns(newest)]
    views = (newest.table_name, *METADATA_VIEWS)
    return {f"table main.{name}" for name in tables} | {f"view main.{name}" for name in views}


def refuse_taken_name(manifest: Manifest) -> None:
    taken = {name.lower() for name in (*METADATA_VIEWS, *map(labels_table, generalized_columns(manifest)))}
    if manifest.table_name.lower() in taken:
        raise ReleaseError(f"a release file has its own {manifest.table_name!r}: choose another name for the table")


def write_metadata(
    engine: DuckDBEngine,
    manifests: Sequence[Manifest],
    range_kinds: Mapping[str, RangeKind],
    suppressed: SuppressedRows,
    catalog: str,
) -> None:
    """Add the metadata to a release file that has its rows and its manifests."""
    newest = manifests[0]
    rows = table(newest.rows_table, "main", catalog)
    for name in generalized_columns(newest):
        target = table(labels_table(name), "main", catalog)
        engine.execute(create_table(target, label_query(name, rows.copy(), range_kinds.get(name.lower()))))
    for name, columns, content in (
        ("attributes", ATTRIBUTES_COLUMNS, attribute_rows(newest)),
        ("figures", FIGURES_COLUMNS, figure_rows(newest)),
        ("suppression", SUPPRESSION_COLUMNS, suppressed),
    ):
        target = table(name, "sqlanon", catalog)
        engine.execute(create_table_with_columns(target.copy(), columns.items()))
        for start in range(0, len(content), _INSERT_SIZE):
            batch = content[start : start + _INSERT_SIZE]
            engine.execute(insert_rows(target.copy(), columns, len(batch)), [value for row in batch for value in row])
    for statement in (*view_statements(newest, catalog), *_comment_statements(manifests, catalog)):
        engine.execute(statement)


def attribute_rows(manifest: Manifest) -> list[tuple[int, str, str, int | None, int | None, str]]:
    """The rows of ``sqlanon.attributes``."""
    levels, heights = lowercase_keys(manifest.generalization), lowercase_keys(manifest.heights or {})
    return [
        (
            position,
            name,
            str(attribute["role"]),
            levels.get(name.lower()),
            heights.get(name.lower()),
            describe_treatment(manifest, name),
        )
        for position, (name, attribute) in enumerate(manifest.policy["attributes"].items())
    ]


def figure_rows(manifest: Manifest) -> list[tuple[int, str, float | None, str]]:
    """The rows of ``sqlanon.figures``."""
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
        figures.append(("draft", 1, "1: a draft for testing, compared with no other release; not for sharing"))
    return [
        (position, name, None if value is None else float(value), meaning)
        for position, (name, value, meaning) in enumerate(figures)
    ]


def _smallest_class(manifest: Manifest) -> list[tuple[str, float | None, str]]:
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
    """Whether a release may show the suppressed rows of some labels of an attribute, whose total readers know.

    Labels that are not shown have fewer than ``least`` rows. Readers must not be able to derive their counts: together
    they have no rows, or at least ``least`` rows and few enough that any of these labels may have none.

    Examples
    --------
    >>> can_show_labels([7, 5], suppressed=12, labels=2, least=5)  # no rows are left
    True
    >>> can_show_labels([7, 5], suppressed=14, labels=9, least=5)  # 2 rows are left
    False
    >>> can_show_labels([6], suppressed=18, labels=4, least=5)  # 12 rows are left for three labels with at most 4 each
    False
    >>> can_show_labels([6], suppressed=18, labels=9, least=5)
    True
    """
    hidden_rows = suppressed - sum(shown)
    return hidden_rows == 0 or least <= hidden_rows <= (labels - len(shown) - 1) * (least - 1)


def view_statements(manifest: Manifest, catalog: str) -> list[exp.Create]:
    """Create the views of a release file; the first is the one that readers use."""
    columns = [column.name for column in manifest.columns]
    view = stable_view(table(manifest.table_name, "main", catalog), table(manifest.rows_table), columns)
    return [view, *_metadata_views(manifest.table_name, manifest.quasi_identifiers, catalog)]


def label_query(name: str, rows: exp.Table, kind: RangeKind | None) -> exp.Select:
    """The released labels of a generalized attribute, in order."""
    names: dict[str, exp.Expr] = {"label": col(name), "position": ident(f"{name}_order")}
    if kind is None:
        return template("""
            SELECT :label, row_number() OVER (ORDER BY :label)::INTEGER AS :position
            FROM (SELECT :label FROM :rows WHERE :label IS NOT NULL GROUP BY :label) AS labels
            ORDER BY :position
        """)(**names, rows=rows)
    lower_bound, upper_bound = label_bounds(cast(col(name), "VARCHAR"), kind)
    names |= {"low": ident(f"{name}_low"), "high": ident(f"{name}_high")}
    # Ranges that are open below come first; labels without ends (the top) come last.
    return template("""
        SELECT
            :label,
            row_number() OVER (
                ORDER BY coalesce(:low, :high) NULLS LAST, :low NULLS FIRST, :high NULLS LAST, :label
            )::INTEGER AS :position,
            :low,
            :high
        FROM (
            SELECT :label, :lower_bound AS :low, :upper_bound AS :high
            FROM (SELECT :label FROM :rows WHERE :label IS NOT NULL GROUP BY :label) AS labels
        ) AS ranges
        ORDER BY :position
    """)(**names, lower_bound=lower_bound, upper_bound=upper_bound, rows=rows)


def _comment_statements(manifests: Sequence[Manifest], catalog: str) -> Iterator[exp.Comment]:
    newest = manifests[0]
    relations = [("VIEW", newest.table_name, newest)]
    relations += [("TABLE", manifest.rows_table, manifest) for manifest in manifests]
    for kind, name, manifest in relations:
        yield from comment_statements(kind, table(name, "main", catalog), manifest)
    for name in generalized_columns(newest):
        yield comment("TABLE", table(labels_table(name), "main", catalog), f"the labels of {name}{IN_ORDER}")


def comment_statements(
    kind: str, relation: exp.Table, manifest: Manifest, details: str = "sqlanon.manifest"
) -> Iterator[exp.Comment]:
    """Comment on a relation with released rows, and on its columns; ``details`` is the relation with the manifest."""
    yield comment(kind, relation.copy(), comment_on_release(manifest, details))
    for column in manifest.columns:
        yield column_comment(relation, column.name, comment_on_column(manifest, column.name, column.role))


def expected_comments(manifests: Sequence[Manifest]) -> dict[tuple[str, str], str]:
    """The comments of a release file by relation and column; the column is '' for the relation itself."""
    comments = {}
    for statement in _comment_statements(manifests, "c"):
        target = statement.this
        is_column = isinstance(target, exp.Column)
        comments[(target.table, target.name) if is_column else (target.name, "")] = statement.expression.name
    return comments
