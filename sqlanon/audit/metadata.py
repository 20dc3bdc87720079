"""Checks of the metadata of a release against its rows: views, comments, labels, levels of labels, suppressed rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from sqlglot import exp, parse_one
from sqlglot.errors import SqlglotError

from sqlanon.audit.verification import check_wording
from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.hierarchies.bounds import RangeKind, label_bounds
from sqlanon.release.contents import ATTACHED, read_comments, read_views, scratch_database
from sqlanon.release.label_levels import LEVELS, LEVELS_COLUMNS
from sqlanon.release.manifest import Manifest
from sqlanon.release.metadata import (
    ATTRIBUTES_COLUMNS,
    DESCRIPTION_TABLES,
    FIGURES_COLUMNS,
    SUPPRESSION_COLUMNS,
    SuppressedRows,
    attribute_rows,
    can_show_labels,
    expected_comments,
    figure_rows,
    generalized_columns,
    is_column_list,
    label_query,
    view_statements,
)
from sqlanon.release.reader import SUBJECT
from sqlanon.release.visible_values import count_different_rows
from sqlanon.requirements import guaranteed_k
from sqlanon.support.checks import Check, check_faults
from sqlanon.support.expressions import (
    col,
    create_table,
    create_table_with_columns,
    drop_table,
    fragment,
    select_star,
    table,
    template,
    text,
    union_all,
)
from sqlanon.support.names import labels_table

SUPPRESSION = "suppression by value"
"""Name of the check of suppressed rows."""

_EXPECTED = "views_again"
"""Database with the views as this version of sqlanon writes them."""


def check_stable_view(engine: DuckDBEngine, manifest: Manifest) -> Check:
    """Check that the view for readers shows exactly the columns of the newest table."""
    statement = read_views(engine).get(manifest.table_name, "")
    claim = f"exactly the columns of {manifest.rows_table!r}"
    passed = _is_plain_view(statement, [column.name for column in manifest.columns], manifest.rows_table)
    return Check("view", passed, claim if passed else f"{manifest.table_name!r} is not a view of {claim}")


def _is_plain_view(statement: str, columns: Sequence[str], source: str) -> bool:
    """Whether a statement creates a view that is a plain list of columns of a table."""
    try:
        parsed = parse_one(statement, dialect="duckdb")
    except SqlglotError:
        return False
    query = parsed.expression if isinstance(parsed, exp.Create) else None
    # A view with names for its columns would have a schema in place of a table.
    if not isinstance(query, exp.Select) or not isinstance(parsed.this, exp.Table):
        return False
    return is_column_list(query, table(source), columns)


def check_metadata(engine: DuckDBEngine, manifests: Sequence[Manifest], is_same_engine: bool) -> list[Check]:
    """Check that the labels are those of the rows, and comments and views those of the manifests."""
    newest, name, message = manifests[0], "comments and views", "unchanged"
    changes = list(_find_changed_texts(engine, manifests))
    if is_same_engine:
        changes += _find_changed_views(engine, newest)
    else:
        message = "the comments are unchanged; another engine created the views"
    if faults := [*_find_changed_labels(engine, newest), *find_level_faults(engine, newest)]:
        return [check_faults(name, [*changes, *faults], message)]
    return [check_wording(name, changes, message, newest)]


def _find_changed_labels(engine: DuckDBEngine, manifest: Manifest) -> Iterator[str]:
    expected = table("labels_again", "main", "memory")
    for name in generalized_columns(manifest):
        rules = manifest.attribute(name).get("hierarchy") or ()
        labels = table(labels_table(name), "main", ATTACHED)
        kind = RANGE_KINDS.get(engine.columns(labels).get(f"{name}_low", ""))
        if kind is None and {rule["rule"] for rule in rules} & {"intervals", "dates"}:
            yield f"{labels_table(name)!r} lacks the ends of its ranges"
            continue
        engine.execute(create_table(expected.copy(), label_query(name, SUBJECT.copy(), kind)))
        types = engine.columns(expected)
        is_same = engine.columns(labels) == types and not any(
            engine.rows(count_different_rows(labels.copy(), expected.copy(), types))[0]
        )
        engine.execute(drop_table(expected.copy()))
        if not is_same:
            yield f"{labels_table(name)!r} does not have the labels of the rows"


def read_suppressed_rows(engine: DuckDBEngine) -> SuppressedRows:
    rows: SuppressedRows = engine.rows(select_star(table("suppression", "sqlanon", ATTACHED)))
    return rows


def check_suppression(engine: DuckDBEngine, manifest: Manifest) -> Check:
    """Check that the figures of suppressed rows are at least k and fit the released rows."""
    types = engine.columns(table("suppression", "sqlanon", ATTACHED))
    if types != SUPPRESSION_COLUMNS:
        return Check(SUPPRESSION, False, f"its table does not have the columns {', '.join(SUPPRESSION_COLUMNS)}")
    if manifest.privacy is None:
        return Check(SUPPRESSION, False, "the requirements in the manifest cannot be read")
    k = guaranteed_k(manifest.privacy, manifest.quasi_identifiers)
    faults = _find_suppression_faults(engine, manifest, read_suppressed_rows(engine), k)
    return check_faults(SUPPRESSION, faults, "no reported group is smaller than k")


def _find_suppression_faults(
    engine: DuckDBEngine, manifest: Manifest, suppressed: SuppressedRows, k: int
) -> Iterator[str]:
    names = {name for name, *_ in suppressed}
    if not names:
        return
    if not names <= set(manifest.quasi_identifiers) or len(names) > 1:
        yield "suppressed rows are reported by a column that is not a quasi-identifier, or by several"
        return
    name = names.pop()
    query = template("SELECT :label::VARCHAR AS label, count(*) AS row_count FROM :rows GROUP BY :label::VARCHAR")
    released_rows = dict(engine.rows(query(label=col(name), rows=SUBJECT.copy())))
    counts = [count or 0 for _, _, count, _ in suppressed]
    if min(counts) < k or not can_show_labels(counts, manifest.suppressed_rows, len(released_rows), k):
        yield f"the suppressed rows by {name!r} reveal groups smaller than {k}"
    if any(released_rows.get(value) != rows or (rows or 0) < k for _, value, _, rows in suppressed):
        yield f"the released rows by {name!r} do not match the release"


def _find_changed_texts(engine: DuckDBEngine, manifests: Sequence[Manifest]) -> Iterator[str]:
    if read_comments(engine) != expected_comments(manifests):
        yield "the comments do not match the manifest"
    for name, columns, rows in (
        ("attributes", ATTRIBUTES_COLUMNS, attribute_rows(manifests[0])),
        ("figures", FIGURES_COLUMNS, figure_rows(manifests[0])),
    ):
        relation = table(name, "sqlanon", ATTACHED)
        if engine.columns(relation) != columns or engine.rows(select_star(relation)) != rows:
            yield f"sqlanon.{name} does not match the manifest"


def _find_changed_views(engine: DuckDBEngine, manifest: Manifest) -> Iterator[str]:
    """Compare views by the engine's text, after creating them again over empty tables."""
    tables = [("main", manifest.rows_table), *(("sqlanon", name) for name in DESCRIPTION_TABLES)]
    with scratch_database(engine, name=_EXPECTED):
        for schema, name in tables:
            types = engine.columns(table(name, schema, ATTACHED))
            engine.execute(create_table_with_columns(table(name, schema, _EXPECTED), types.items()))
        with engine.using(_EXPECTED):
            for view in view_statements(manifest, _EXPECTED):
                engine.execute(view)
        actual, expected = read_views(engine), read_views(engine, _EXPECTED)
        for name in sorted(actual.keys() | expected.keys()):
            if actual.get(name) != expected.get(name):
                yield f"the view {name!r} was changed"


RANGE_KINDS: Mapping[str, RangeKind] = {"BIGINT": "integer", "DOUBLE": "number", "DATE": "date"}
"""Kinds of ranges by the type of the bounds in a table of labels."""

_UNRELATED_LABELS = template("""
    WITH "sqlanon released" AS MATERIALIZED (:released)
    SELECT count(*)
    FROM :levels AS l
    WHERE NOT coalesce((attribute, label) IN (SELECT (attribute, label) FROM "sqlanon released" AS r), FALSE)
        AND NOT coalesce((attribute, label) IN (
            SELECT (attribute, ancestor)
            FROM :levels AS a
            WHERE (attribute, label) IN (SELECT (attribute, label) FROM "sqlanon released" AS r)
        ), FALSE)
""")
_AMBIGUOUS_ANCESTORS = template("""
    SELECT count(*)
    FROM (
        SELECT 1
        FROM :levels AS l
        GROUP BY attribute, label, level
        HAVING count(*) > 1 OR level IS NULL OR level < 0 OR bool_or(ancestor IS NULL)
    ) AS r
""")
_CONTRADICTING_ANCESTORS = template("""
    SELECT count(*)
    FROM :levels AS a
    JOIN :levels AS b ON a.attribute = b.attribute AND a.label = b.label AND a.level <= b.level
    JOIN :levels AS c ON c.attribute = a.attribute AND c.label = a.ancestor AND c.level = b.level
    WHERE c.ancestor <> b.ancestor
""")
_IS_RANGE_WITHIN = fragment("coalesce(:low >= :from_, :from_ IS NULL) AND coalesce(:high <= :to_, :to_ IS NULL)")
_IS_MASKED_BY = {
    "right": fragment("""
        ancestor = '*' OR length(label) <= length(ancestor)
            AND starts_with(rpad(label, length(ancestor)::INTEGER, '*'), rtrim(ancestor, '*'))
    """),
    "left": fragment("""
        ancestor = '*' OR length(label) <= length(ancestor)
            AND ends_with(lpad(label, length(ancestor)::INTEGER, '*'), ltrim(ancestor, '*'))
    """),
}
_DIGEST = template("""
    SELECT md5(coalesce(string_agg(md5(concat_ws(chr(10), attribute, level, length(label), label, ancestor)), ''
        ORDER BY attribute, label, level, ancestor), ''))
    FROM :levels AS l
""")


def levels_digest(engine: DuckDBEngine, levels: exp.Expr) -> str:
    """The digest of all levels of labels, independent of their order."""
    digest: str = engine.rows(_DIGEST(levels=levels))[0][0]
    return digest


def find_level_faults(engine: DuckDBEngine, manifest: Manifest) -> Iterator[str]:
    """Find faults in the levels of labels that the release alone shows.

    Each label is released, or an ancestor of a released one; ancestors of a label are ancestors of one another; ranges,
    masks and suppressed values lie under their ancestors. Groups from a file can only be compared with the source.
    """
    levels = table(LEVELS, "sqlanon", ATTACHED)
    if engine.columns(levels) != LEVELS_COLUMNS:
        yield f"{LEVELS!r} has not the columns {', '.join(LEVELS_COLUMNS)}"
        return
    names = generalized_columns(manifest)
    labels = [
        template("SELECT :name AS attribute, :column::VARCHAR AS label FROM :rows GROUP BY :column")(
            name=text(name), column=col(name), rows=SUBJECT.copy()
        )
        for name in names
    ]
    released = union_all(*(labels or [template("SELECT '' AS attribute, '' AS label LIMIT 0")()]))
    for fault, query in (
        ("labels that are neither released nor above one that is", _UNRELATED_LABELS(levels=levels, released=released)),
        ("labels with two labels at one level, or none", _AMBIGUOUS_ANCESTORS(levels=levels)),
        ("labels above one another that contradict each other", _CONTRADICTING_ANCESTORS(levels=levels)),
    ):
        if count := engine.rows(query)[0][0]:
            yield f"{LEVELS!r}: {count:,} rows have {fault}"
    for name in names:
        for is_under in _ancestor_conditions(engine, name, manifest.attribute(name).get("hierarchy") or ()):
            query = template("SELECT count(*) FROM :levels AS l WHERE attribute = :name AND NOT (:is_under)")(
                levels=levels, name=text(name), is_under=is_under
            )
            if count := engine.rows(query)[0][0]:
                yield f"{LEVELS!r}: {count:,} rows have a label of {name!r} that is not under the one above it"


def _ancestor_conditions(engine: DuckDBEngine, name: str, rules: Sequence[Mapping[str, str]]) -> Iterator[exp.Expr]:
    """The condition that a label lies under its ancestor, if the rules of the hierarchy imply one."""
    kinds = {rule["rule"] for rule in rules}
    masks = [rule for rule in rules if rule["rule"] == "mask"]
    if kinds & {"intervals", "dates"} and kinds <= {"intervals", "dates", "suppress"}:
        columns = engine.columns(table(labels_table(name), "main", ATTACHED))
        kind = RANGE_KINDS.get(columns.get(f"{name}_low", ""))
        if kind is None:
            return
        low, high = label_bounds(col("label"), kind)
        from_, to_ = label_bounds(col("ancestor"), kind)
        yield _IS_RANGE_WITHIN(low=low, high=high, from_=from_, to_=to_)
    elif kinds == {"suppress"}:
        yield col("ancestor").isin(col("label"), text("*"))
    elif kinds <= {"mask", "suppress"} and len(masks) == 1:
        yield _IS_MASKED_BY[masks[0].get("mask", "right")]()
