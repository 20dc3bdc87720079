"""Whether the metadata of a release fit its rows: views, comments, labels and suppressed rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sqlglot import exp, parse_one
from sqlglot.errors import SqlglotError

from sqlanon.audit.check import Check, check_faults, check_wording
from sqlanon.audit.label_levels import RANGE_KINDS, find_level_faults
from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.policy import PrivacySection
from sqlanon.policy.problems import read_part
from sqlanon.release.contents import ATTACHED, read_comments, read_views
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
    label_query,
    stable_view,
    view_statements,
)
from sqlanon.release.reader import SUBJECT
from sqlanon.requirements import guaranteed_k
from sqlanon.support.expressions import (
    cast,
    col,
    column_definitions,
    create_schema,
    create_table,
    drop_table,
    select,
    star,
    subquery,
    table,
)
from sqlanon.support.names import labels_table

SUPPRESSION = "suppression by value"
"""The name of the check of suppressed rows."""

_AGAIN = "views_again"
"""The database with the views as this version writes them."""


def check_stable_view(engine: DuckDBEngine, manifest: Manifest) -> Check:
    """Whether the view for readers shows exactly the columns of the newest table."""
    statement = read_views(engine).get(manifest.table_name, "")
    claim = f"exactly the columns of {manifest.rows_table!r}"
    right = _selects(statement, [column.name for column in manifest.columns], manifest.rows_table)
    return Check("view", right, claim if right else f"{manifest.table_name!r} is not a view of {claim}")


def _selects(statement: str, columns: Sequence[str], source: str) -> bool:
    """Whether a statement creates a view that is a plain list of columns of a table."""
    try:
        parsed = parse_one(statement, dialect="duckdb")
    except SqlglotError:
        return False
    query = parsed.expression if isinstance(parsed, exp.Create) else None
    # A view with names for its columns would have a schema in place of a table.
    if not isinstance(query, exp.Select) or not isinstance(parsed.this, exp.Table):
        return False
    expected = stable_view(table("v"), table(source), columns).expression
    return bool(_plain(query) == _plain(expected))


def _plain(query: exp.Select) -> exp.Expr:
    """The query with all names quoted, because engines differ in quoting."""
    return query.copy().transform(
        lambda node: exp.Identifier(this=node.name, quoted=True) if isinstance(node, exp.Identifier) else node
    )


def check_metadata(engine: DuckDBEngine, manifests: Sequence[Manifest], same_engine: bool) -> list[Check]:
    """Whether the labels are those of the rows, and comments and views those of the manifest."""
    newest, name, seen = manifests[0], "comments and views", "unchanged"
    changed = list(_changed_words(engine, manifests))
    if same_engine:
        changed += _changed_views(engine, newest)
    else:
        seen = "the comments are unchanged; another engine created the views"
    if wrong := [*_changed_labels(engine, newest), *find_level_faults(engine, newest)]:
        return [check_faults(name, [*changed, *wrong], seen)]
    return [check_wording(name, changed, seen, newest)]


def _changed_labels(engine: DuckDBEngine, manifest: Manifest) -> Iterator[str]:
    again = table("labels_again", "main", "memory")
    rules = {name.lower(): spec.get("hierarchy") or () for name, spec in manifest.policy["attributes"].items()}
    for name in generalized_columns(manifest):
        found = table(labels_table(name), "main", ATTACHED)
        kind = RANGE_KINDS.get(engine.columns(found).get(f"{name}_low", ""))
        if kind is None and {rule["rule"] for rule in rules[name.lower()]} & {"intervals", "dates"}:
            yield f"{labels_table(name)!r} lacks the ends of its ranges"
            continue
        engine.execute(create_table(again.copy(), label_query(name, SUBJECT.copy(), kind)))
        same = engine.columns(found) == engine.columns(again)
        for one, other in ((found, again), (again, found)) if same else ():
            more = exp.except_(star(one.copy()), star(other.copy()), distinct=False, copy=False)
            same = same and not engine.rows(select([exp.Count(this=exp.Star())], subquery(more, "m")))[0][0]
        engine.execute(drop_table(again.copy()))
        if not same:
            yield f"{labels_table(name)!r} does not have the labels of the rows"


def read_suppressed_rows(engine: DuckDBEngine) -> SuppressedRows:
    found: SuppressedRows = engine.rows(star(table("suppression", "sqlanon", ATTACHED)))
    return found


def check_suppression(engine: DuckDBEngine, manifest: Manifest) -> Check:
    """Whether the figures of suppressed rows are at least k and fit the released rows."""
    types = engine.columns(table("suppression", "sqlanon", ATTACHED))
    if types != SUPPRESSION_COLUMNS:
        return Check(SUPPRESSION, False, f"its table does not have the columns {', '.join(SUPPRESSION_COLUMNS)}")
    section, _ = read_part(PrivacySection, manifest.policy["privacy"], "privacy", {})
    if section is None:
        return Check(SUPPRESSION, False, "the requirements in the manifest cannot be read")
    least = guaranteed_k(section, manifest.quasi_identifiers)
    wrong = list(_wrong_suppression(engine, manifest, read_suppressed_rows(engine), least))
    return check_faults(SUPPRESSION, wrong, "no reported group is smaller than k")


def _wrong_suppression(
    engine: DuckDBEngine, manifest: Manifest, suppressed: SuppressedRows, least: int
) -> Iterator[str]:
    names = {name for name, *_ in suppressed}
    if not names:
        return
    if not names <= set(manifest.quasi_identifiers) or len(names) > 1:
        yield "suppressed rows are reported by a column that is not a quasi-identifier, or by several"
        return
    name = names.pop()
    label = cast(col(name), "VARCHAR")
    counts = dict(engine.rows(select([label, exp.Count(this=exp.Star())], SUBJECT.copy(), [label.copy()])))
    shown = [count or 0 for _, _, count, _ in suppressed]
    if min(shown) < least or not can_show_labels(shown, manifest.suppressed_rows, len(counts), least):
        yield f"the suppressed rows by {name!r} reveal groups smaller than {least}"
    if any(counts.get(value) != kept or (kept or 0) < least for _, value, _, kept in suppressed):
        yield f"the released rows by {name!r} do not match the release"


def _changed_words(engine: DuckDBEngine, manifests: Sequence[Manifest]) -> Iterator[str]:
    if read_comments(engine) != expected_comments(manifests):
        yield "the comments do not match the manifest"
    for name, columns, right in (
        ("attributes", ATTRIBUTES_COLUMNS, attribute_rows(manifests[0])),
        ("figures", FIGURES_COLUMNS, figure_rows(manifests[0])),
    ):
        found = table(name, "sqlanon", ATTACHED)
        if engine.columns(found) != columns or engine.rows(star(found)) != right:
            yield f"sqlanon.{name} does not match the manifest"


def _changed_views(engine: DuckDBEngine, manifest: Manifest) -> Iterator[str]:
    """Compare views by the engine's text, after creating them again over empty tables."""
    engine.attach(":memory:", _AGAIN)
    try:
        engine.execute(create_schema("sqlanon", _AGAIN))
        for schema, name in _tables(manifest):
            types = engine.columns(table(name, schema, ATTACHED))
            engine.execute(column_definitions(table(name, schema, _AGAIN), types.items()))
        with engine.using(_AGAIN):
            for view in view_statements(manifest, _AGAIN):
                engine.execute(view)
        found, again = read_views(engine), read_views(engine, _AGAIN)
        for name in sorted(found.keys() | again.keys()):
            if found.get(name) != again.get(name):
                yield f"the view {name!r} was changed"
    finally:
        engine.detach(_AGAIN)


def _tables(manifest: Manifest) -> list[tuple[str, str]]:
    own = [("sqlanon", name) for name in DESCRIPTION_TABLES]
    return [("main", manifest.rows_table), *own]
