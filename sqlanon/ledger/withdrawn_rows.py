"""What readers of a release see of rows that a later version of it lacks."""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from sqlanon.ledger.earlier import opened
from sqlanon.ledger.published_release import PublishedRelease
from sqlanon.release.draft import ReleaseDraft
from sqlanon.release.targets.base import Reach
from sqlanon.support.expressions import all_of, col, named, same, template

_GONE = template("""
    WITH published AS (SELECT :keys, count(*) AS n FROM :released AS r GROUP BY :columns),
    drafted AS (SELECT :keys, count(*) AS n FROM (:rows) AS r GROUP BY :columns)
    SELECT
        count(*) FILTER (WHERE gone > 0) AS classes,
        coalesce(sum(gone) FILTER (WHERE gone > 0), 0)::BIGINT AS rows,
        coalesce(min(gone) FILTER (WHERE gone > 0), 0) AS fewest
    FROM (
        SELECT p.n - coalesce(d.n, 0) AS gone
        FROM published AS p
        LEFT JOIN drafted AS d ON :same
    ) AS classes
""")


@dataclass(frozen=True)
class WithdrawnRows:
    """The rows that a new version of a release lacks, the classes that lose them, and the fewest that one of these
    loses. Readers of both see which rows these are."""

    rows: int
    classes: int
    fewest: int


def count_withdrawn_rows(published: PublishedRelease, draft: ReleaseDraft) -> WithdrawnRows | None:
    """Compare the classes of a release and of its new version; None where their labels are at other levels, or the rows
    are elsewhere."""
    run, manifest = draft.run, published.manifest
    if dict(draft.recoding.generalization) != manifest.levels(draft.search_input.heights) or published.levels is None:
        return None
    if draft.search_input.source.access != "rows" or draft.noise is not None or draft.decoys is not None:
        return None
    columns = [col(name) for name in manifest.quasi_identifiers]
    keys: list[exp.Expr] = [named(column.copy(), f"k{i}") for i, column in enumerate(columns)]
    with opened(run.engine, published.publication, Reach(published.policy, run.source), verified=True) as release:
        query = _GONE(
            keys=keys,
            columns=columns,
            released=release.relation,
            rows=draft.statement.select(shuffled=False),
            same=all_of(same(col(f"k{i}", "p"), col(f"k{i}", "d")) for i in range(len(keys))),
        )
        classes, rows, fewest = run.engine.rows(query)[0]
    return WithdrawnRows(rows, classes, fewest)
