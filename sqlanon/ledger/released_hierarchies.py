"""The hierarchies of published releases at the time of publication.

Under the same rule, a value can have other labels later: a file was edited, or a mask has longer texts to hide.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
from sqlanon.support.expressions import as_column, col, cols, drop_table, fragment, select_star, table, template

CATALOG_IN_QUERIES = "hierarchies"
"""The catalog's name in queries for people."""

Store: TypeAlias = Callable[[str, exp.Query], exp.Expr]
"""Stores a query under a name; returns the relation."""

is_replaced = fragment("NOT run_id IN (SELECT run_id FROM sqlanon_catalog.sqlanon.releases WHERE replaced_at IS NULL)")
"""Whether all releases of a ``run_id`` in the open catalog were replaced."""


def released_hierarchy_name(run_id: str, attribute: str) -> str:
    """The name of the catalog table with a hierarchy of a run's release."""
    return f"released_{run_id[:12]}_{attribute}"


def store_released_hierarchies(engine: DuckDBEngine, run_id: str, hierarchies: Sequence[Hierarchy]) -> None:
    """Copy hierarchies to the open catalog, and drop those of replaced releases."""
    _delete_records(engine, col("run_id").eq(run_id))  # a result can be published twice
    for hierarchy in hierarchies:
        name = released_hierarchy_name(run_id, hierarchy.attribute)
        catalog.replace_table(engine, catalog.catalog_table(name), select_star(hierarchy.table.copy()))
        record = {"run_id": run_id, "attribute": hierarchy.attribute, "height": hierarchy.height, "table_name": name}
        catalog.insert_records(engine, "released_hierarchies", record)
    drop_replaced_hierarchies(engine)


def drop_replaced_hierarchies(engine: DuckDBEngine) -> None:
    """Drop the hierarchies of replaced releases."""
    query = template("SELECT table_name FROM sqlanon_catalog.sqlanon.released_hierarchies WHERE :is_replaced")
    for (name,) in engine.rows(query(is_replaced=is_replaced())):
        engine.execute(drop_table(catalog.catalog_table(name)))
    _delete_records(engine, is_replaced())


def _delete_records(engine: DuckDBEngine, condition: exp.Expr) -> None:
    delete = fragment("DELETE FROM sqlanon_catalog.sqlanon.released_hierarchies WHERE :condition")
    engine.execute(delete(condition=condition))


def copy_released_hierarchies(run: Run, policy: Policy, run_id: str) -> dict[str, Hierarchy]:
    """Copy the hierarchies of a run's release from the catalog, by attribute in lower case.

    Makes a table for each in the work schema.
    """
    assert policy.catalog is not None
    with catalog.open_catalog(run.engine, policy.catalog.database):
        copies = _copy_hierarchies(run, fragment("run_id = :run_id")(run_id=run_id))
    return {hierarchy.attribute.lower(): hierarchy for hierarchy, _ in copies}


def copy_recorded_hierarchies(run: Run, path: Path, manifest: Manifest) -> list[tuple[Hierarchy, exp.Table]]:
    """Copy the hierarchies of a recorded release, each with its table in queries for people; none if the catalog cannot
    be read.

    Makes a table for each in the work schema.
    """
    is_of_release = fragment("""
        run_id IN (SELECT run_id FROM sqlanon_catalog.sqlanon.releases WHERE manifest_hash = :manifest_hash)
    """)(manifest_hash=manifest.fingerprint())
    with catalog.open_read_only(run.engine, path) as is_readable:
        return _copy_hierarchies(run, is_of_release) if is_readable else []


def _copy_hierarchies(run: Run, condition: exp.Expr) -> list[tuple[Hierarchy, exp.Table]]:
    """Copy hierarchies of the open catalog to the work schema."""
    query = template("""
        SELECT attribute, height, table_name
        FROM sqlanon_catalog.sqlanon.released_hierarchies
        WHERE :condition
    """)
    copies = []
    for attribute, height, name in run.engine.rows(query(condition=condition)):
        target = run.work(f"of_{name}")
        # The same table may be copied again for another file of that run.
        catalog.replace_table(run.engine, target.copy(), select_star(catalog.catalog_table(name)))
        open_ends = released_column(0, open_ends=True) in run.engine.columns(target)
        copies.append((Hierarchy(attribute, target, height, 0, None, open_ends), readable_table(name)))
    return copies


def readable_table(name: str) -> exp.Table:
    """A table of the catalog in queries for people."""
    return table(name, catalog.SCHEMA, CATALOG_IN_QUERIES)


def find_different_hierarchies(
    engine: DuckDBEngine, earlier: Mapping[str, Hierarchy], current: Mapping[str, Hierarchy]
) -> dict[str, tuple[str, str]]:
    """The attributes with different hierarchies in two releases, with the types of the ground values in both."""
    return {
        name: (engine.columns(earlier[name].table)["level_0"], engine.columns(current[name].table)["level_0"])
        for name in earlier.keys() & current.keys()
        if earlier[name] is not current[name] and not have_same_labels(engine, earlier[name], current[name])
    }


def pair_hierarchies(
    releases: tuple[ComparedRelease, ComparedRelease],
    hierarchies: tuple[Mapping[str, Hierarchy], Mapping[str, Hierarchy]],
    different: Mapping[str, tuple[str, str]],
    store: Store,
) -> ComparedHierarchies:
    """Pair the hierarchies of two releases, by attribute in lower case; ``store`` makes a relation of the rows of both
    hierarchies of an attribute."""
    merged, rules, crossed = dict[str, ComparedHierarchy](), dict[str, list[Any]](), dict[str, CrossedHierarchies]()
    for name in dict.fromkeys([*hierarchies[1], *hierarchies[0]]):
        versions = [
            (release, by_name[name]) for release, by_name in zip(releases, hierarchies, strict=True) if name in by_name
        ]
        rules[name] = [release.rule(name) for release, _ in versions]
        oldest, newest = versions[0][1], versions[-1][1]
        if oldest is newest:
            merged[name] = ComparedHierarchy.from_table(newest.table, newest.height, newest.open_ends)
        elif name not in different:
            levels = dict.fromkeys(
                ["level_0", *(released_column(level, newest.open_ends) for level in range(newest.height + 1))]
            )
            query = template("SELECT * FROM (SELECT :levels FROM :earlier UNION SELECT :levels FROM :current) AS h")(
                levels=cols(levels), earlier=oldest.table, current=newest.table
            )
            merged[name] = ComparedHierarchy.from_table(store(f"both_{name}", query), newest.height, newest.open_ends)
        else:
            first = ComparedHierarchy.from_table(oldest.table, oldest.height, oldest.open_ends)
            second = ComparedHierarchy.from_table(newest.table, newest.height, newest.open_ends)
            rows = store(f"crossed_{name}", cross_hierarchies(first, second, different[name]))
            crossed[name] = CrossedHierarchies(first, second, rows)
    return ComparedHierarchies(merged, rules, crossed)


def have_same_labels(engine: DuckDBEngine, earlier: Hierarchy, current: Hierarchy) -> bool:
    """Whether two hierarchies give their common values the same labels. The width of integers does not matter."""
    types = {engine.columns(hierarchy.table)["level_0"] for hierarchy in (earlier, current)}
    if (earlier.height, earlier.open_ends) != (current.height, current.open_ends) or (
        len(types) > 1 and not types <= INTEGER_TYPES
    ):
        return False
    labels = [current.released_column(level) for level in range(0 if current.open_ends else 1, current.height)]
    queries = [count_changed_labels(earlier.table, current.table, col(label, "e"), col(label, "c")) for label in labels]
    return not any(engine.rows(query)[0][0] for query in queries)


def merge_hierarchies(run: Run, earlier: Hierarchy, current: Hierarchy) -> Hierarchy:
    """Merge two hierarchies: values that only the earlier one has keep their labels.

    A mask may have become longer or shorter since: its top is repeated above. Makes a table in the work schema.
    """
    target, height = run.work(f"both_{earlier.table.name}"), max(earlier.height, current.height)
    query = template("""
        SELECT *
        FROM (
            SELECT :current_levels FROM :current
            UNION ALL
            SELECT :earlier_levels
            FROM :earlier AS e
            ANTI JOIN :current AS c ON e.level_0 IS NOT DISTINCT FROM c.level_0
        ) AS h
    """)(
        current_levels=_levels_up_to(height, current),
        earlier_levels=_levels_up_to(height, earlier),
        current=current.table,
        earlier=earlier.table,
    )
    catalog.replace_table(run.engine, target.copy(), query)
    return Hierarchy(current.attribute, target, height, 0, current.top, current.open_ends)


def _levels_up_to(height: int, hierarchy: Hierarchy) -> list[exp.Expr]:
    """The columns of a hierarchy's table, up to a height that may be above its own."""
    names = dict.fromkeys(["level_0", *(released_column(level, hierarchy.open_ends) for level in range(height + 1))])
    top = hierarchy.released_column(hierarchy.height)
    column_names = {"level_0", *(hierarchy.released_column(level) for level in range(hierarchy.height + 1))}
    return [as_column(col(name if name in column_names else top), name) for name in names]


def count_changed_labels(
    earlier: exp.Expr, current: exp.Expr, earlier_label: exp.Expr, current_label: exp.Expr
) -> exp.Select:
    """The number of ground values of two tables, ``e`` and ``c``, whose labels differ."""
    return template("""
        SELECT count(*)
        FROM :earlier AS e
        JOIN :current AS c ON e.level_0 IS NOT DISTINCT FROM c.level_0
        WHERE :earlier_label IS DISTINCT FROM :current_label
    """)(earlier=earlier, current=current, earlier_label=earlier_label, current_label=current_label)
