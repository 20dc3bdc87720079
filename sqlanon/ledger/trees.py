"""The hierarchies of what was published, as they were then: a value may have other labels under the same rule later,
where a file was edited, or a mask has longer texts to hide."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from sqlanon import catalog
from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.expressions import col, create_table, drop_table, is_null, select, star, table, text
from sqlanon.hierarchies import Hierarchy
from sqlanon.ledger.extension_statements import changed_labels
from sqlanon.policy import Policy
from sqlanon.sources.run import Run


def stored_name(run_id: str, attribute: str) -> str:
    """The table of the catalog with a hierarchy of what a run published."""
    return f"released_{run_id[:12]}_{attribute}"


def keep_trees(engine: DuckDBEngine, run_id: str, hierarchies: Sequence[Hierarchy]) -> None:
    """Copy hierarchies to the open catalog, and drop those of releases that are gone."""
    known = table("released_hierarchies", catalog.SCHEMA, catalog.ATTACHED)
    of_run = col("run_id").eq(text(run_id))
    engine.execute(exp.Delete(this=known, where=exp.Where(this=of_run)))  # published twice
    for one in hierarchies:
        name = stored_name(run_id, one.attribute)
        copy = create_table(table(name, catalog.SCHEMA, catalog.ATTACHED), star(one.table.copy()))
        copy.set("replace", True)
        engine.execute(copy)
        row = {"run_id": run_id, "attribute": one.attribute, "height": one.height, "table_name": name}
        catalog.insert(engine, "released_hierarchies", row)
    forget_trees(engine)


def forget_trees(engine: DuckDBEngine) -> None:
    """Drop the hierarchies of releases whose places others have taken."""
    gone, known = is_gone(), table("released_hierarchies", catalog.SCHEMA, catalog.ATTACHED)
    for (name,) in engine.rows(select([col("table_name")], known).where(gone, copy=False)):
        engine.execute(drop_table(table(name, catalog.SCHEMA, catalog.ATTACHED)))
    engine.execute(exp.Delete(this=known.copy(), where=exp.Where(this=gone.copy())))


def is_gone() -> exp.Expr:
    """Whether others have taken the places of all releases of a ``run_id``, in the open catalog."""
    releases = table("releases", catalog.SCHEMA, catalog.ATTACHED)
    standing = select([col("run_id")], releases).where(is_null(col("replaced_at")), copy=False)
    return ~exp.In(this=col("run_id"), query=exp.Subquery(this=standing))


def trees_of(run: Run, policy: Policy, run_id: str) -> dict[str, Hierarchy]:
    """The hierarchies of what a run published, by attribute in lower case.

    Makes a table for each in the work schema.
    """
    engine, found = run.engine, dict[str, Hierarchy]()
    assert policy.catalog is not None
    with catalog.open_catalog(engine, policy.catalog.database):
        known = table("released_hierarchies", catalog.SCHEMA, catalog.ATTACHED)
        query = select([col("attribute"), col("height"), col("table_name")], known)
        of_run = col("run_id").eq(text(run_id))
        for attribute, height, name in engine.rows(query.where(of_run, copy=False)):
            target = run.work(f"of_{name}")
            copy = create_table(target.copy(), star(table(name, catalog.SCHEMA, catalog.ATTACHED)))
            copy.set("replace", True)  # it was asked for before: by another file of that run, or the same again
            engine.execute(copy)
            found[attribute.lower()] = Hierarchy(attribute, target, height, 0, None)
    return found


def is_same_tree(engine: DuckDBEngine, then: Hierarchy, now: Hierarchy) -> bool:
    """Whether the values that both have are under the same labels."""
    types = [engine.columns(one.table)["level_0"] for one in (then, now)]
    if then.height != now.height or types[0] != types[1]:
        return False
    return not any(engine.rows(changed_labels(then.table, now.table, level))[0][0] for level in range(1, now.height))


def tree_of_both(run: Run, then: Hierarchy, now: Hierarchy) -> Hierarchy:
    """One hierarchy of the values that either has, where both are the same tree.

    Makes a table in the work schema.
    """
    target = run.work(f"both_{then.table.name}")
    copy = create_table(target.copy(), union_of(then.table, now.table, now.height))
    copy.set("replace", True)
    run.engine.execute(copy)
    return Hierarchy(now.attribute, target, now.height, 0, now.top)


def union_of(then: exp.Expr, now: exp.Expr, height: int) -> exp.Query:
    """The rows of two tables of one hierarchy."""
    levels: list[exp.Expr] = [col(f"level_{level}") for level in range(height + 1)]
    queries = [select([one.copy() for one in levels], each.copy()) for each in (then, now)]
    return exp.union(*queries, distinct=True, copy=False)
