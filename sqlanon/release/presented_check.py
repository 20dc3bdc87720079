"""Whether what tells about a release is true of its rows: the views, the comments, the labels, what was suppressed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from sqlglot import exp, parse_one
from sqlglot.errors import SqlglotError

from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.policy.names import labels_table
from sqlanon.queries import presented as pr
from sqlanon.queries.bounds import Kind
from sqlanon.queries.names import (
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
from sqlanon.release.check import Check
from sqlanon.release.contents import found_comments, found_views
from sqlanon.release.manifest import Manifest
from sqlanon.release.presented import ABOUT, Suppressed, comments, labelled, labels_of, overview, quality, views
from sqlanon.release.reader import ATTACHED, SUBJECT
from sqlanon.release.side_by_side import promised_k

_KINDS: Mapping[str, Kind] = {"BIGINT": "integer", "DOUBLE": "number", "DATE": "date"}
"""By the type of the bounds of a table of labels, what they are ranges of."""

SUPPRESSION = "suppression by value"
"""The check of what is told of suppressed rows."""

_AGAIN = "made_again"
"""A database of the engine that checks a file: views as this version makes them."""


def stable_view_check(engine: DuckDBEngine, manifest: Manifest) -> Check:
    """Whether the view that readers name shows all columns of the newest table, and does nothing more."""
    told = found_views(engine).get(manifest.table_name, "")
    shown = f"the columns of {manifest.rows_table!r}, and nothing more"
    right = _selects(told, [column.name for column in manifest.columns], manifest.rows_table)
    return Check("view", right, shown if right else f"{manifest.table_name!r} is not the view of {shown}")


def _selects(statement: str, columns: Sequence[str], source: str) -> bool:
    """Whether a statement makes a view that is a list of plain columns of a table. Every part of it is looked at."""
    try:
        made = parse_one(statement, dialect="duckdb")
    except SqlglotError:
        return False
    query = made.expression if isinstance(made, exp.Create) else None
    if not isinstance(query, exp.Select):
        return False
    expected = pr.stable_view(table("v"), table(source), columns).expression
    return bool(_plain(query) == _plain(expected))


def _plain(query: exp.Select) -> exp.Expr:
    """The same with all names in quotes: whether an engine writes them is its own."""
    return query.copy().transform(
        lambda node: exp.Identifier(this=node.name, quoted=True) if isinstance(node, exp.Identifier) else node
    )


def about_checks(engine: DuckDBEngine, manifests: Sequence[Manifest], same_writer: bool) -> list[Check]:
    """What a file tells about its rows.

    Parameters
    ----------
    engine:
        Has the file open.
    manifests:
        Of the versions that are kept, the newest first.
    same_writer:
        Whether this version of sqlanon and of the engine wrote it: others have other words, and spell views otherwise.
    """
    newest = manifests[0]
    if not same_writer:
        return [Check("words and views", None, "written by another version than this one")]
    changed = [*_changed_words(engine, manifests), *_changed_views(engine, newest), *_changed_labels(engine, newest)]
    return [Check("words and views", not changed, "; ".join(changed) or "as sqlanon made them")]


def _changed_labels(engine: DuckDBEngine, manifest: Manifest) -> Iterator[str]:
    again = table("labels_again", "main", "memory")
    for name in labelled(manifest):
        found = table(labels_table(name), "main", ATTACHED)
        kind = _KINDS.get(engine.columns(found).get(f"{name}_low", ""))
        engine.execute(create_table(again.copy(), labels_of(name, SUBJECT.copy(), kind)))
        same = engine.columns(found) == engine.columns(again)
        for one, other in ((found, again), (again, found)) if same else ():
            more = exp.except_(star(one.copy()), star(other.copy()), distinct=False, copy=False)
            same = same and not engine.rows(select([exp.Count(this=exp.Star())], subquery(more, "m")))[0][0]
        engine.execute(drop_table(again.copy()))
        if not same:
            yield f"{labels_table(name)!r} has not the labels of the rows"


def suppressed_rows(engine: DuckDBEngine) -> Suppressed:
    """What an open release file tells of suppressed rows."""
    found: Suppressed = engine.rows(star(table("suppression", "sqlanon", ATTACHED)))
    return found


def suppression_check(engine: DuckDBEngine, manifest: Manifest) -> Check:
    """Whether what is told of suppressed rows is of no fewer than k, and of the rows that are released."""
    wrong = list(_wrong_suppression(engine, manifest, suppressed_rows(engine)))
    return Check(SUPPRESSION, not wrong, "; ".join(wrong) or "of no fewer rows than a class has")


def _wrong_suppression(engine: DuckDBEngine, manifest: Manifest, suppressed: Suppressed) -> Iterator[str]:
    """What a release may tell of suppressed rows: nothing of fewer than k."""
    least = promised_k(manifest.policy["privacy"], manifest.quasi)
    for name in dict.fromkeys(name for name, *_ in suppressed):
        mine = [row[1:] for row in suppressed if row[0] == name]
        if name not in manifest.quasi:
            yield f"{name!r} is no quasi-identifier, and its suppressed rows are counted"
            continue
        rest = manifest.suppressed_rows - sum(count for _, count, _ in mine)
        if min(count for _, count, _ in mine) < least or 0 < rest < least or rest < 0:
            yield f"fewer than {least} suppressed rows are told of by {name!r}"
        label = cast(col(name), "VARCHAR")
        query = select([label, exp.Count(this=exp.Star())], SUBJECT.copy(), [label.copy()])
        counts = dict(engine.rows(query))
        if any(counts.get(value) != kept or kept < least for value, _, kept in mine):
            yield f"the released rows are not those that are told by {name!r}"


def _changed_words(engine: DuckDBEngine, manifests: Sequence[Manifest]) -> Iterator[str]:
    if found_comments(engine) != comments(manifests):
        yield "the comments are not those of the manifest"
    if engine.rows(star(table("attributes", "sqlanon", ATTACHED))) != overview(manifests[0]):
        yield "the overview is not that of the manifest"
    if engine.rows(star(table("figures", "sqlanon", ATTACHED))) != quality(manifests[0]):
        yield "the quality is not that of the manifest"


def _changed_views(engine: DuckDBEngine, manifest: Manifest) -> Iterator[str]:
    """Views are compared by their text, as the engine writes it: so they are made again, over empty tables."""
    engine.attach(":memory:", _AGAIN)
    try:
        engine.execute(create_schema("sqlanon", _AGAIN))
        for schema, name in _tables(manifest):
            types = engine.columns(table(name, schema, ATTACHED))
            engine.execute(column_definitions(table(name, schema, _AGAIN), types.items()))
        with engine.using(_AGAIN):
            for view in views(manifest, _AGAIN):
                engine.execute(view)
        found, again = found_views(engine), found_views(engine, _AGAIN)
        for name in sorted(found.keys() | again.keys()):
            if found.get(name) != again.get(name):
                yield f"the view {name!r} is another one"
    finally:
        engine.detach(_AGAIN)


def _tables(manifest: Manifest) -> list[tuple[str, str]]:
    own = [("sqlanon", name) for name in ABOUT]
    return [("main", manifest.rows_table), *own]
