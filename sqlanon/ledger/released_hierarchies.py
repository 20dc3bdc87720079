"""The hierarchies of published releases at the time of publication.

Under the same rule, a value can have other labels later: a file was edited, or a mask has longer texts to hide.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from pathlib import Path
from typing import Any, TypeAlias

from sqlglot import exp

from sqlanon.engines.dialects.kinds import INTEGER_TYPES
from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.hierarchies import Hierarchy
from sqlanon.hierarchies.build import released_column
from sqlanon.ledger import catalog
from sqlanon.ledger.joint.release_links import (
    ComparedHierarchies,
    ComparedHierarchy,
    ComparedRelease,
    CrossedHierarchies,
    cross_hierarchies,
)
from sqlanon.policy import Policy
from sqlanon.release.manifest import Manifest
from sqlanon.sources.run import Run
from sqlanon.support.expressions import as_column, col, drop_table, fragment, select_star, table, template

CATALOG_IN_QUERIES = "hierarchies"
"""The catalog's name in queries for people."""

Store: TypeAlias = Callable[[str, exp.Query], exp.Expr]
"""Stores a query under a name; returns the relation."""

_CHANGED_LABELS = template("""
    SELECT count(*)
    FROM :then AS t
    JOIN :now AS n ON t.level_0 IS NOT DISTINCT FROM n.level_0
    WHERE :label_then IS DISTINCT FROM :label_now
""")
_NOW_AND_GONE = fragment("""
    SELECT :levels_now FROM :now
    UNION ALL
    SELECT :levels_then
    FROM :then AS t
    ANTI JOIN :now AS n ON t.level_0 IS NOT DISTINCT FROM n.level_0
""")
_KNOWN = template("""
    SELECT attribute, height, table_name
    FROM sqlanon_catalog.sqlanon.released_hierarchies
    WHERE run_id = :run_id
""")
_RECORDED = template("""
    SELECT h.attribute, h.height, h.table_name
    FROM sqlanon_catalog.sqlanon.released_hierarchies AS h
    SEMI JOIN sqlanon_catalog.sqlanon.releases AS r ON r.run_id = h.run_id AND r.manifest_hash = :manifest_hash
""")
_FORGET = fragment("DELETE FROM sqlanon_catalog.sqlanon.released_hierarchies WHERE :condition")
is_replaced = fragment("NOT run_id IN (SELECT run_id FROM sqlanon_catalog.sqlanon.releases WHERE replaced_at IS NULL)")
"""Whether all releases of a ``run_id`` in the open catalog were replaced."""


def released_hierarchy_name(run_id: str, attribute: str) -> str:
    """The name of the catalog table with a hierarchy of a run's release."""
    return f"released_{run_id[:12]}_{attribute}"


def store_released_hierarchies(engine: DuckDBEngine, run_id: str, hierarchies: Sequence[Hierarchy]) -> None:
    """Copy hierarchies to the open catalog, and drop those of replaced releases."""
    engine.execute(_FORGET(condition=col("run_id").eq(run_id)))  # a result can be published twice
    rows = []
    for hierarchy in hierarchies:
        name = released_hierarchy_name(run_id, hierarchy.attribute)
        catalog.replace_table(engine, catalog.catalog_table(name), select_star(hierarchy.table.copy()))
        rows.append(
            {"run_id": run_id, "attribute": hierarchy.attribute, "height": hierarchy.height, "table_name": name}
        )
    if rows:
        catalog.insert_records(engine, "released_hierarchies", *rows)
    drop_replaced_hierarchies(engine)


def drop_replaced_hierarchies(engine: DuckDBEngine) -> None:
    """Drop the hierarchies of replaced releases."""
    for (name,) in engine.rows(
        template("SELECT table_name FROM sqlanon_catalog.sqlanon.released_hierarchies WHERE :gone")(gone=is_replaced())
    ):
        engine.execute(drop_table(catalog.catalog_table(name)))
    engine.execute(_FORGET(condition=is_replaced()))


def copy_released_hierarchies(run: Run, policy: Policy, run_id: str) -> dict[str, Hierarchy]:
    """Copy the hierarchies of a run's release from the catalog, by attribute in lower case.

    Makes a table for each in the work schema.
    """
    assert policy.catalog is not None
    with catalog.open_catalog(run.engine, policy.catalog.database):
        return {
            hierarchy.attribute.lower(): hierarchy for hierarchy, _ in _copy_hierarchies(run, _KNOWN(run_id=run_id))
        }


def copy_recorded_hierarchies(run: Run, path: Path, manifest: Manifest) -> list[tuple[Hierarchy, exp.Table]]:
    """Copy the hierarchies of a recorded release, each with its table in queries for people.

    There are none if the catalog cannot be read.

    Makes a table for each in the work schema.
    """
    with catalog.open_read_only(run.engine, path) as is_readable:
        return _copy_hierarchies(run, _RECORDED(manifest_hash=manifest.fingerprint())) if is_readable else []


def _copy_hierarchies(run: Run, query: exp.Select) -> list[tuple[Hierarchy, exp.Table]]:
    """Copy hierarchies of the open catalog to the work schema."""
    copies = []
    for attribute, height, name in run.engine.rows(query):
        target = run.work(f"of_{name}")
        # The same table may be copied again for another file of that run.
        catalog.replace_table(run.engine, target.copy(), select_star(catalog.catalog_table(name)))
        open_ends = released_column(0, open_ends=True) in run.engine.columns(target)
        copies.append((Hierarchy(attribute, target, height, 0, None, open_ends), readable_table(name)))
    return copies


def readable_table(name: str) -> exp.Table:
    """A table of the catalog in queries for people."""
    return table(name, catalog.SCHEMA, CATALOG_IN_QUERIES)


def find_equal_hierarchies(
    engine: DuckDBEngine, then: Mapping[str, Hierarchy], now: Mapping[str, Hierarchy]
) -> set[str]:
    """The attributes with the same hierarchy in two releases."""
    both = then.keys() & now.keys()
    return {name for name in both if then[name] is now[name] or have_same_labels(engine, then[name], now[name])}


def ground_value_types(
    engine: DuckDBEngine, then: Mapping[str, Hierarchy], now: Mapping[str, Hierarchy]
) -> dict[str, tuple[str, str]]:
    """The types of the ground values in two releases, by common attribute."""
    return {
        name: (engine.columns(then[name].table)["level_0"], engine.columns(now[name].table)["level_0"])
        for name in then.keys() & now.keys()
    }


def pair_hierarchies(
    releases: tuple[ComparedRelease, ComparedRelease],
    hierarchies: tuple[Mapping[str, Hierarchy], Mapping[str, Hierarchy]],
    same: Set[str],
    types: Mapping[str, tuple[str, str]],
    store: Store,
) -> ComparedHierarchies:
    """Pair the hierarchies of two releases.

    Parameters
    ----------
    hierarchies:
        Those of each release, by attribute in lower case.
    same:
        The attributes that have the same hierarchy in both.
    types:
        The types of the ground values in both.
    store:
        Makes a relation of the rows of both hierarchies of an attribute.
    """
    then, now = hierarchies
    merged, rules, crossed = dict[str, ComparedHierarchy](), dict[str, list[Any]](), dict[str, CrossedHierarchies]()
    for name in dict.fromkeys([*now, *then]):
        versions = [
            (release, by_name[name]) for release, by_name in zip(releases, hierarchies, strict=True) if name in by_name
        ]
        rules[name] = [release.rule(name) for release, _ in versions]
        oldest, newest = versions[0][1], versions[-1][1]
        if oldest is newest:
            merged[name] = _tree(newest, newest.table)
        elif name in same:
            query = union_hierarchy_rows(oldest.table, newest.table, newest.height, newest.open_ends)
            merged[name] = _tree(newest, store(f"both_{name}", query))
        else:
            first_hierarchy, second_hierarchy = _tree(oldest, oldest.table), _tree(newest, newest.table)
            crossed[name] = CrossedHierarchies(
                first_hierarchy,
                second_hierarchy,
                store(f"crossed_{name}", cross_hierarchies(first_hierarchy, second_hierarchy, types[name])),
            )
    return ComparedHierarchies(merged, rules, crossed)


def _tree(hierarchy: Hierarchy, relation: exp.Expr) -> ComparedHierarchy:
    return ComparedHierarchy.of(relation, hierarchy.height, hierarchy.open_ends)


def have_same_labels(engine: DuckDBEngine, then: Hierarchy, now: Hierarchy) -> bool:
    """Whether two hierarchies give their common values the same labels. The width of integers does not matter."""
    types = {engine.columns(hierarchy.table)["level_0"] for hierarchy in (then, now)}
    if (then.height, then.open_ends) != (now.height, now.open_ends) or (len(types) > 1 and not types <= INTEGER_TYPES):
        return False
    labels = [now.released_column(level) for level in range(0 if now.open_ends else 1, now.height)]
    queries = [count_changed_labels(then.table, now.table, col(label, "t"), col(label, "n")) for label in labels]
    return not any(engine.rows(query)[0][0] for query in queries)


def merge_hierarchies(run: Run, then: Hierarchy, now: Hierarchy) -> Hierarchy:
    """Merge two hierarchies: values that only the earlier one has keep their labels.

    A mask may have become longer or shorter since: its top is repeated above. Makes a table in the work schema.
    """
    target, height = run.work(f"both_{then.table.name}"), max(then.height, now.height)
    query = _NOW_AND_GONE(
        levels_now=_levels_up_to(height, now), levels_then=_levels_up_to(height, then), now=now.table, then=then.table
    )
    assert isinstance(query, exp.Query)
    catalog.replace_table(run.engine, target.copy(), query)
    return Hierarchy(now.attribute, target, height, 0, now.top, now.open_ends)


def _levels_up_to(height: int, hierarchy: Hierarchy) -> list[exp.Expr]:
    """The columns of a hierarchy's table, up to a height that may be above its own."""
    names = dict.fromkeys(["level_0", *(released_column(level, hierarchy.open_ends) for level in range(height + 1))])
    top = hierarchy.released_column(hierarchy.height)
    column_names = {"level_0", *(hierarchy.released_column(level) for level in range(hierarchy.height + 1))}
    return [as_column(col(name if name in column_names else top), name) for name in names]


def union_hierarchy_rows(then: exp.Expr, now: exp.Expr, height: int, open_ends: bool) -> exp.Query:
    """The rows of two tables of one hierarchy."""
    names = dict.fromkeys(["level_0", *(released_column(level, open_ends) for level in range(height + 1))])
    query = fragment("SELECT :levels FROM :then UNION SELECT :levels FROM :now")(
        levels=[col(name) for name in names], then=then, now=now
    )
    assert isinstance(query, exp.Query)
    return query


def count_changed_labels(then: exp.Expr, now: exp.Expr, label_then: exp.Expr, label_now: exp.Expr) -> exp.Select:
    """The number of ground values of two tables, ``t`` and ``n``, whose labels differ."""
    return _CHANGED_LABELS(then=then, now=now, label_then=label_then, label_now=label_now)
